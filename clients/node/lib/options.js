'use strict';

/* Options, by the names that they have here, and the keys of the server for them. */
const LIMITS = {
  timeoutMs: 'wall_ms', cpuMs: 'cpu_ms', memoryBytes: 'memory_bytes', pids: 'pids', cpus: 'cpus',
  outputBytes: 'output_bytes', dataBytes: 'data_bytes', dataFiles: 'data_files', fileBytes: 'file_bytes',
};
const RUN = {
  language: 'language', name: 'name', args: 'args', env: 'env', rich: 'rich', dataTargets: 'data_targets',
};
const { timeoutMs: _timeout, cpuMs: _cpu, ...SESSION_LIMITS } = LIMITS;
const SESSION = {
  env: 'env', zygote: 'zygote', idleMs: 'idle_ms', lifetimeMs: 'lifetime_ms', maxCheckpoints: 'max_checkpoints',
  checkpointBytes: 'checkpoint_bytes', maxProcesses: 'max_processes', dataTargets: 'data_targets',
};
const PROCESS = {
  env: 'env', cwd: 'cwd', stdin: 'stdin', timeoutMs: 'wall_ms', outputBytes: 'output_bytes',
  endWithClient: 'end_with_client',
};
const CELL = { context: 'context', timeoutMs: 'timeout_ms', silent: 'silent' };

/** Moves what @given has of @names into an object with the server's keys. */
function take(given, names) {
  const found = {};
  for (const [name, key] of Object.entries(names)) {
    if (given[name] !== undefined && given[name] !== null) found[key] = given[name];
    delete given[name];
  }
  return found;
}

function refuseRest(given, of) {
  const [unknown] = Object.keys(given);
  if (unknown !== undefined) throw new TypeError(`there is no option '${unknown}' of ${of}`);
}

function withLimits(body, limits) {
  return Object.keys(limits).length ? { ...body, limits } : body;
}

function source(code) {
  if (typeof code !== 'string') throw new TypeError('code is a string');
  return code;
}

/** The body of POST /v1/run. */
function runBody(code, options) {
  const given = { ...options };
  const body = { code: source(code), ...take(given, RUN) };
  if (given.stdin instanceof Uint8Array) body.stdin_base64 = Buffer.from(given.stdin).toString('base64');
  else if (given.stdin !== undefined) body.stdin = given.stdin;
  delete given.stdin;
  const limits = take(given, LIMITS);
  refuseRest(given, 'a run');
  return withLimits(body, limits);
}

/** The body of POST /v1/functions/NAME and its type: the event alone, or with what is for this call only. */
function callBody(event, options) {
  const given = { ...options };
  const env = given.env;
  delete given.env;
  const limits = take(given, LIMITS);
  refuseRest(given, 'a call');
  if (env === undefined && !Object.keys(limits).length) return { body: event, type: 'application/json' };
  const body = withLimits(env === undefined ? { event } : { event, env }, limits);
  return { body, type: 'application/vnd.hutch.call+json' };
}

/** The body of POST /v1/sessions. */
function sessionBody(options) {
  const given = { ...options };
  const body = take(given, SESSION), limits = take(given, SESSION_LIMITS);
  refuseRest(given, 'a session');
  return withLimits(body, limits);
}

/** The body of a cell. */
function cellBody(code, options) {
  const given = { ...options };
  const body = { code: source(code), ...take(given, CELL) };
  if (given.storeHistory === false) body.no_history = true;
  delete given.storeHistory;
  refuseRest(given, 'a cell');
  return body;
}

const ENGINE = [
  'home', 'launcher', 'image', 'policy', 'policyDir', 'rootfs', 'network', 'workdir', 'env', 'volumes', 'tmpfs', 'gpu',
  'dataTargets', 'zygotes', 'maxRunning', 'maxQueued', 'maxSessions', 'layouts',
];

/** The body of a process. @command: a text for /bin/sh -c, or a list of the program and its arguments. */
function processBody(command, options) {
  const given = { ...options };
  if (typeof command !== 'string' && !Array.isArray(command)) throw new TypeError('a command is a string or an array');
  const body = { ...(Array.isArray(command) ? { args: command } : { shell: command }), ...take(given, PROCESS) };
  refuseRest(given, 'a process');
  return body;
}

/** What an engine in this process is opened with. */
function engineOptions(options) {
  const { ...given } = options, found = take(given, Object.fromEntries(ENGINE.map((name) => [name, name])));
  refuseRest(given, 'an engine in this process');
  return found;
}

module.exports = { engineOptions, runBody, callBody, sessionBody, cellBody, processBody };
