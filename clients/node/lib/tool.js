'use strict';

const crypto = require('node:crypto');
const path = require('node:path');

const { ContainerStrategy, ExecutionEngine } = require('./engine.js');
const { notSupported } = require('./errors.js');
const { LanguageRegistry, getImageForLanguage } = require('./languages.js');

/** A JSON schema that the AI SDK takes for one of its own: what it looks for is not among the keys. */
function schemaOf(languages) {
  const text = (description) => ({ type: 'string', description });
  const schema = {
    type: 'object',
    properties: {
      code: text('The code to execute.'),
      language: { ...text('What the code is written in.'), enum: languages },
      dependencies: { type: 'array', items: { type: 'string' },
                      description: 'Libraries or programs that the code needs. They have to be there already.' },
      environment: { type: 'object', additionalProperties: { type: 'string' }, description: 'Environment variables.' },
      runApp: {
        type: 'object', description: 'Run a program of several files, in place of code.',
        properties: {
          entryFile: text('The file to begin with, below cwd.'), cwd: text('The directory of the program.'),
        },
        required: ['entryFile', 'cwd'], additionalProperties: false,
      },
    },
    required: ['code', 'language'],
    additionalProperties: false,
  };
  const hidden = { jsonSchema: { ...schema }, validate: (value) => validate(value, languages) };
  for (const key of ['vercel.ai.schema', 'vercel.ai.validator']) hidden[Symbol.for(key)] = true;
  for (const key of Reflect.ownKeys(hidden)) Object.defineProperty(schema, key, { value: hidden[key] });
  return schema;
}

function validate(value, languages) {
  const wrong = (sentence) => ({ success: false, error: new TypeError(sentence) });
  if (value === null || typeof value !== 'object') return wrong('the arguments are an object');
  if (typeof value.code !== 'string') return wrong('code is a string');
  if (!languages.includes(value.language)) return wrong(`language is one of ${languages.join(', ')}`);
  if (value.dependencies !== undefined && !(Array.isArray(value.dependencies) &&
                                            value.dependencies.every((name) => typeof name === 'string'))) {
    return wrong('dependencies is a list of strings');
  }
  return { success: true, value };
}

/** A tool for a model's client, with its engine: {codeExecutionTool, executionEngine, cleanup}. Besides
 * interpreter-tools' options there are `client`, `languages` (those that the model is told of) and `timeout` in
 * milliseconds. */
function createCodeExecutionTool(config = {}) {
  const { client, defaultStrategy = 'per_execution', languages = LanguageRegistry.names(), mounts = [] } = config;
  const strategy = ContainerStrategy[String(defaultStrategy).toUpperCase()];
  if (!strategy) throw new TypeError(`'${defaultStrategy}' is no strategy`);
  const executionEngine = new ExecutionEngine({ client });
  executionEngine.setVerbosity(config.verbosity ?? 'info');
  const schema = schemaOf(languages);

  async function execute({ code, language, dependencies = [], environment = {}, runApp, streamOutput },
                         { abortSignal } = {}) {
    const checked = validate({ code: code ?? '', language, dependencies }, languages);
    if (!checked.success) throw checked.error;
    if (runApp) allowDirectory(runApp.cwd, mounts);
    const sessionId = await executionEngine.createSession({
      sessionId: config.sessionId ?? crypto.randomUUID(), strategy,
      containerConfig: { image: getImageForLanguage(language), environment, mounts },
    });
    try {
      return await executionEngine.executeCode(sessionId, {
        language, code, dependencies, runApp, streamOutput, abortSignal, timeout: config.timeout,
        workspaceSharing: config.workspaceSharing ?? 'isolated',
      });
    } finally {
      if (strategy !== ContainerStrategy.PER_SESSION) await executionEngine.cleanupSession(sessionId);
    }
  }

  const codeExecutionTool = {
    description: 'Executes code in an isolated sandbox without network. Files that it writes to the working ' +
                 'directory are told. Nothing can be installed.',
    parameters: schema,
    inputSchema: schema,
    execute,
  };
  const cleanup = (keepGenerated = false) => executionEngine.cleanup(keepGenerated);
  return { codeExecutionTool, executionEngine, cleanup };
}

/** The arguments of a tool come from a model, which is not to choose what of this machine is copied into a sandbox. */
function allowDirectory(directory, mounts) {
  const asked = path.resolve(directory);
  for (const { source } of mounts) {
    const allowed = path.resolve(source);
    if (asked === allowed || asked.startsWith(allowed + path.sep)) return;
  }
  throw notSupported(`the tool may not run '${directory}': its directory is not among the mounts of the tool`);
}

module.exports = { createCodeExecutionTool };
