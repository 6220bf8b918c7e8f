/** hutch for Node. docs/clients.md of hutch is the manual. */
'use strict';

const { Client } = require('./lib/client.js');
const { ContainerStrategy, ExecutionEngine } = require('./lib/engine.js');
const { FunctionError, HutchError } = require('./lib/errors.js');
const { LanguageRegistry, getImageForLanguage } = require('./lib/languages.js');
const { Process } = require('./lib/process.js');
const { SandboxSession } = require('./lib/sandbox.js');
const { Session } = require('./lib/session.js');
const { createCodeExecutionTool } = require('./lib/tool.js');

/* interpreter-tools has one ready, too. It asks the usual server when it is first used. */
const { codeExecutionTool, executionEngine, cleanup } = createCodeExecutionTool();

module.exports = {
  Client, ContainerStrategy, ExecutionEngine, FunctionError, HutchError, LanguageRegistry, Process, SandboxSession,
  Session, cleanup, codeExecutionTool, createCodeExecutionTool, executionEngine, getImageForLanguage,
};
