'use strict';

const crypto = require('node:crypto');
const fs = require('node:fs');
const path = require('node:path');

const { Client } = require('./client.js');
const { HutchError, notSupported } = require('./errors.js');
const { check, runCommand } = require('./guest.js');
const { LanguageRegistry, requireLanguage } = require('./languages.js');
const { Workspace, copyIn } = require('./workspace.js');

const ContainerStrategy = Object.freeze({ PER_EXECUTION: 'per_execution', POOL: 'pool', PER_SESSION: 'per_session' });
const UNITS = { '': 1, b: 1, k: 1 << 10, m: 1 << 20, g: 1 << 30 };

/** Has the face of interpreter-tools' class, and runs code in a hutch server's sandboxes. Each execution is a process
 * of its own; PER_SESSION keeps the sandbox and its files for the next one. */
class ExecutionEngine {
  #sessions = new Map();
  #client;

  /** @client: a Client; without one, the one of $HUTCH_SERVER or of the usual socket. */
  constructor({ client } = {}) {
    this.#client = client;
  }

  /** Kept for callers that say it: there is no log. */
  setVerbosity(_level) {}

  async createSession(config) {
    const { strategy, containerConfig = {}, sessionId = crypto.randomUUID(), enforceNewSession } = config;
    if (!Object.values(ContainerStrategy).includes(strategy)) {
      throw new TypeError(`'${strategy}' is no strategy: it can be ${Object.values(ContainerStrategy).join(', ')}`);
    }
    if (this.#sessions.has(sessionId)) {
      if (!enforceNewSession) {
        this.#sessions.get(sessionId).config = config;
        return sessionId;
      }
      await this.cleanupSession(sessionId);
    }
    sayOnce(containerConfig.image);
    this.#sessions.set(sessionId, {
      sessionId, config, workspace: new Workspace(), opened: null, places: new Map(), last: Promise.resolve(),
      isActive: false, createdAt: new Date(), lastExecutedAt: null,
    });
    return sessionId;
  }

  /** Executions of one session come one after the other. */
  async executeCode(sessionId, options) {
    const session = this.#find(sessionId);
    const execution = session.last.then(() => this.#execute(session, options));
    session.last = execution.catch(() => {});
    return execution;
  }

  async #execute(session, options) {
    const { abortSignal } = options;
    abortSignal?.throwIfAborted();
    const config = requireLanguage(options.language);
    const begun = performance.now();
    session.isActive = true;
    try {
      prepare(session.workspace, config, options);
      const opened = await this.#open(session, options);
      await this.#bringIn(session, opened, config, options);
      const result = await run(session, opened, config, options);
      session.lastExecutedAt = new Date();
      const { directory: workspaceDir, generated: generatedFiles, everGenerated: sessionGeneratedFiles } =
        session.workspace;
      const executionTime = Math.round(performance.now() - begun);
      return { ...result, executionTime, workspaceDir, generatedFiles, sessionGeneratedFiles };
    } finally {
      session.isActive = false;
      if (session.config.strategy !== ContainerStrategy.PER_SESSION) await closeSandbox(session);
    }
  }

  /** The sandbox, of the session or of this execution alone. */
  async #open(session, { memoryLimit, cpuLimit, abortSignal }) {
    const given = session.config.containerConfig ?? {};
    const limits = {
      memoryBytes: bytes(memoryLimit ?? given.memoryLimit), cpus: thousandths(cpuLimit ?? given.cpuLimit),
    };
    if (session.opened) {
      if ((memoryLimit || cpuLimit) && JSON.stringify(limits) !== session.limits) {
        throw notSupported('the limits of a sandbox that is kept are set by its first execution');
      }
      return session.opened;
    }
    this.#client ??= new Client();
    const opened = await this.#client.session({ ...limits, abortSignal });
    session.opened = opened;
    session.limits = JSON.stringify(limits);
    session.workspace.forgetSent();
    session.places.clear();
    return opened;
  }

  /** Files and mounts, when everything that the code names is there. */
  async #bringIn(session, opened, config, { dependencies = [], runApp, abortSignal }) {
    const mounts = (session.config.containerConfig?.mounts ?? []).filter(({ target }) => !session.places.has(target));
    const targets = mounts.map(({ target }) => path.posix.resolve('/mnt/data', target));
    const isCheckable = config.packages && dependencies.length;
    if (dependencies.length && !config.packages) throw nothingIsInstalled(dependencies);
    const programs = [...(config.program ? config.program.slice(0, 1) : [])];
    const wanted = { modules: [], programs, places: targets };
    if (isCheckable) wanted[config.packages] = [...wanted[config.packages], ...dependencies];
    const { missing, places } = await check(opened, wanted, abortSignal);
    if (missing.some((name) => programs.includes(name))) {
      throw notSupported(`the server's image has no '${programs[0]}', so it cannot run ${config.language}`);
    }
    if (missing.length) throw nothingIsInstalled(missing);
    for (const [at, mount] of mounts.entries()) {
      const target = placeOf(targets[at], places);
      await copyIn(opened, { ...mount, target }, abortSignal);
      session.places.set(mount.target, target);
    }
    if (runApp) await copyIn(opened, { type: 'directory', source: runApp.cwd, target: '' }, abortSignal);
    await session.workspace.send(opened, abortSignal);
  }

  async cleanupSession(sessionId, keepGeneratedFiles = false) {
    const session = this.#sessions.get(sessionId);
    if (!session) return;
    this.#sessions.delete(sessionId);
    await closeSandbox(session);
    session.workspace.remove(keepGeneratedFiles);
  }

  async cleanup(keepGeneratedFiles = false) {
    for (const sessionId of [...this.#sessions.keys()]) await this.cleanupSession(sessionId, keepGeneratedFiles);
  }

  /* ---- files: they are uploaded by the next execution */

  async addFileFromBase64(sessionId, relativePath, dataBase64) {
    this.#find(sessionId).workspace.write(relativePath, Buffer.from(dataBase64, 'base64'));
  }

  async copyFileIntoWorkspace(sessionId, localPath, destRelativePath) {
    this.#find(sessionId).workspace.write(destRelativePath, fs.readFileSync(localPath));
  }

  async readFileBinary(sessionId, relativePath) {
    return fs.readFileSync(this.#find(sessionId).workspace.place(relativePath));
  }

  async readFileBase64(sessionId, relativePath) {
    return (await this.readFileBinary(sessionId, relativePath)).toString('base64');
  }

  async listWorkspaceFiles(sessionId, onlyGenerated = false) {
    const { workspace } = this.#find(sessionId);
    return onlyGenerated ? workspace.generated : workspace.list();
  }

  async getSessionInfo(sessionId) {
    const { config, workspace, opened, isActive, createdAt, lastExecutedAt } = this.#find(sessionId);
    const meta = {
      sessionId, depsInstalled: false, depsChecksum: null, baselineFiles: new Set(), workspaceDir: workspace.directory,
      generatedFiles: new Set(workspace.generated), sessionGeneratedFiles: new Set(workspace.everGenerated),
      isRunning: Boolean(opened), createdAt, lastExecutedAt, containerId: opened?.id ?? '',
      imageName: config.containerConfig?.image ?? '', containerName: config.containerConfig?.name ?? sessionId,
    };
    return { sessionId, config, currentContainer: { container: undefined, meta }, containerHistory: [meta], createdAt,
             lastExecutedAt, isActive };
  }

  #find(sessionId) {
    const session = this.#sessions.get(sessionId);
    if (!session) throw new HutchError(`there is no session '${sessionId}'`, { code: 'not_found' });
    return session;
  }
}

/** The language's own files, such as the one with the code. */
function prepare(workspace, config, options) {
  if (options.runApp) {
    if (!options.runApp.entryFile || !options.runApp.cwd) throw new TypeError('runApp has entryFile and cwd');
    return;
  }
  if (typeof options.code !== 'string') throw new TypeError('code is a string');
  config.prepareFiles(options, workspace.directory);
}

async function run(session, opened, config, { runApp, streamOutput = {}, timeout, abortSignal }) {
  const command = runApp ? config.buildRunAppCommand(runApp.entryFile, false) : config.buildInlineCommand(false);
  const text = { stdout: '', stderr: '' };
  const { exitCode, message, files } = await runCommand(opened, {
    command, env: session.config.containerConfig?.environment, timeoutMs: timeout, abortSignal,
    onOutput: (stream, piece) => {
      text[stream] += piece;
      streamOutput[stream]?.(piece);
    },
  });
  await session.workspace.fetch(opened, files, abortSignal);
  const stderr = message ? `${text.stderr}hutch: ${message}\n` : text.stderr;
  return { stdout: text.stdout, stderr, dependencyStdout: '', dependencyStderr: '', exitCode };
}

async function closeSandbox(session) {
  const { opened } = session;
  session.opened = null;
  try {
    await opened?.close();
  } catch (error) {
    /* One that has ended by itself, or whose server has, is closed. */
    if (!(error instanceof HutchError)) throw error;
  }
}

function placeOf(target, places) {
  const workspace = path.posix.relative('/workspace', target);
  if (typeof places[target] === 'string') return places[target] === '.' ? '' : places[target];
  if (workspace && !workspace.startsWith('..')) return workspace;
  throw notSupported(`the sandbox has no place at '${target}': mount below /workspace or /mnt/data, or start the ` +
                     `server with --data-target ${path.posix.dirname(target)}`);
}

function nothingIsInstalled(names) {
  return notSupported(`the server's image has no ${names.map((name) => `'${name}'`).join(', ')}, and nothing is ` +
                      'installed in a sandbox: build an image that has it');
}

/** "512m" */
function bytes(text) {
  if (text === undefined) return undefined;
  const [, number, unit] = /^(\d+(?:\.\d+)?)([bkmg]?)b?$/i.exec(String(text)) ?? [];
  if (number === undefined) throw new TypeError(`'${text}' is no amount of memory: it can be 512m`);
  return Math.floor(Number(number) * UNITS[unit.toLowerCase()]);
}

/** "0.5" CPUs */
function thousandths(text) {
  if (text === undefined) return undefined;
  if (!(Number(text) > 0)) throw new TypeError(`'${text}' is no number of CPUs: it can be 0.5`);
  return Math.max(1, Math.round(Number(text) * 1000));
}

let isSaid = false;

/** Images are the server's to choose. A language's usual one is what the caller would have had in any case. */
function sayOnce(image) {
  if (isSaid || !image || LanguageRegistry.list().some((config) => config.defaultImage === image)) return;
  isSaid = true;
  process.emitWarning(`'${image}' is not used: code runs in the image of the hutch server`, { code: 'HUTCH_IMAGE' });
}

module.exports = { ContainerStrategy, ExecutionEngine };
