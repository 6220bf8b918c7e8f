/* One copy of the classes serves both kinds of modules, so that instanceof holds between them. */
import hutch from './index.js';

export const {
  Client, ContainerStrategy, ExecutionEngine, FunctionError, HutchError, LanguageRegistry, Process, SandboxSession,
  Session, cleanup, codeExecutionTool, createCodeExecutionTool, executionEngine, getImageForLanguage,
} = hutch;
export default hutch;
