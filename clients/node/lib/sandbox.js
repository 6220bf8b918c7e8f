'use strict';

const { SIGKILL } = require('node:os').constants.signals;
const { Readable } = require('node:stream');
const { StringDecoder } = require('node:string_decoder');
const posix = require('node:path').posix;

const { CellProcess } = require('./cell_process.js');
const { HutchError, notSupported } = require('./errors.js');
const { look } = require('./guest.js');

const BASE = '/mnt/data';
const MAX_PROCESSES = 16; /* at a time */
const SIGNAL_BASE = 128; /* as a shell has it */

/** What AI SDK 7 calls a sandbox session, over a session of hutch: tools that take one run in hutch. Commands are processes
 * of the session's, which was opened with maxProcesses; several run at once. With the library in this process they are
 * cells, one after the other. */
class SandboxSession {
  #session;

  constructor(session, { description } = {}) {
    this.#session = session;
    this.description = description ?? 'A Linux sandbox without network. Files are in /mnt/data, where commands ' +
      'start; only /mnt/data and /tmp can be written. Nothing can be installed.';
  }

  /** Commands and files of a session of its own. */
  static async open(client, { description, ...options } = {}) {
    const own = client.transport === 'server' ? { maxProcesses: MAX_PROCESSES } : {}; /* elsewhere there are none */
    return new SandboxSession(await client.session({ ...own, ...options }), { description });
  }

  get session() {
    return this.#session;
  }

  async close() {
    await this.#session.close();
  }

  /* ---- files */

  async readFile({ path, abortSignal }) {
    const stream = await orNull(this.#session.downloadStream(below(path), { abortSignal }));
    return stream && Readable.toWeb(stream);
  }

  async readBinaryFile({ path, abortSignal }) {
    const bytes = await orNull(this.#session.download(below(path), { abortSignal }));
    return bytes && new Uint8Array(bytes);
  }

  async readTextFile({ path, encoding = 'utf-8', startLine = 1, endLine = Infinity, abortSignal }) {
    const bytes = await this.readBinaryFile({ path, abortSignal });
    if (bytes === null) return null;
    const text = new TextDecoder(encoding).decode(bytes);
    if (startLine <= 1 && endLine === Infinity) return text;
    return text.split(/(?<=\n)/).slice(Math.max(0, startLine - 1), endLine).join('').replace(/\r?\n$/, '');
  }

  async writeFile({ path, content, abortSignal }) {
    await this.#session.upload(below(path), content, { abortSignal });
  }

  async writeBinaryFile({ path, content, abortSignal }) {
    await this.#session.upload(below(path), content, { abortSignal });
  }

  async writeTextFile({ path, content, encoding = 'utf-8', abortSignal }) {
    if (!Buffer.isEncoding(encoding)) throw notSupported(`text cannot be written as '${encoding}'`);
    await this.#session.upload(below(path), Buffer.from(content, encoding), { abortSignal });
  }

  stat({ path, abortSignal }) {
    return look(this.#session, 'stat', inside(path), abortSignal);
  }

  listDirectory({ path, abortSignal }) {
    return look(this.#session, 'list', inside(path), abortSignal);
  }

  async deleteFile({ path, abortSignal }) {
    return (await look(this.#session, 'remove', inside(path), abortSignal)) ?? false;
  }

  /* ---- commands */

  async run(options) {
    const decoders = { stdout: new StringDecoder(), stderr: new StringDecoder() }, text = { stdout: '', stderr: '' };
    const process = await this.#begin(options, (stream, bytes) => {
      text[stream] += decoders[stream].write(bytes);
    });
    const { exitCode, message } = codeOf(await process.wait());
    for (const stream of Object.keys(text)) text[stream] += decoders[stream].end();
    return { exitCode, stdout: text.stdout, stderr: message ? `${text.stderr}hutch: ${message}\n` : text.stderr };
  }

  async spawn(options) {
    const streams = { stdout: openStream(), stderr: openStream() };
    const process = await this.#begin(options, (stream, bytes) => streams[stream].add(new Uint8Array(bytes)));
    const ended = process.wait().then((end) => ({ exitCode: codeOf(end).exitCode }));
    const close = () => Object.values(streams).forEach((stream) => stream.close());
    ended.then(close, close);
    const handle = {
      stdout: streams.stdout.readable,
      stderr: streams.stderr.readable,
      wait: () => ended,
      kill: async () => {
        await process.signal('KILL');
        await ended.catch(() => {});
      },
    };
    return options.stdin ? { ...handle, stdin: inputOf(process) } : handle;
  }

  async #begin({ command, workingDirectory, env, stdin, abortSignal }, onOutput) {
    const cwd = workingDirectory === undefined ? BASE : inside(workingDirectory);
    if (!this.#session.hasProcesses) return new CellProcess(this.#session, command, { cwd, env, stdin, abortSignal, onOutput });
    return this.#session.spawn(command, { cwd, env, stdin, endWithClient: true, abortSignal, onOutput });
  }
}

/** As a shell has it. Rejects by an error where the command was never begun. */
function codeOf({ exitCode, signal, message }) {
  if (message && (exitCode === 126 || exitCode === 127)) {
    throw new HutchError(`run the command: ${message}`, { code: 'command_failed' });
  }
  return { exitCode: exitCode ?? SIGNAL_BASE + (signal || SIGKILL), message };
}

/** Its standard input as a web stream. */
function inputOf(process) {
  return new WritableStream({
    write: (bytes) => process.write(bytes),
    close: () => process.closeStdin(),
    abort: () => process.closeStdin(),
  });
}

/** A path as the sandbox has it. */
function inside(path) {
  return posix.resolve(BASE, path);
}

/** The same below /mnt/data: the server hands out nothing else. */
function below(path) {
  const whole = inside(path);
  if (!whole.startsWith(`${BASE}/`)) {
    throw notSupported(`'${path}' is not below ${BASE}, where the files are that can be had from outside`);
  }
  return whole.slice(BASE.length + 1);
}

async function orNull(found) {
  try {
    return await found;
  } catch (error) {
    if (error instanceof HutchError && error.status === 404 && !/session/.test(error.message)) return null;
    throw error;
  }
}

/** A web stream that is filled from outside, and may be left unread. */
function openStream() {
  let controller, isOpen = true;
  const readable = new ReadableStream({
    start(made) {
      controller = made;
    },
    cancel() {
      isOpen = false;
    },
  });
  return {
    readable,
    add: (bytes) => isOpen && controller.enqueue(bytes),
    close: () => {
      if (isOpen) controller.close();
      isOpen = false;
    },
  };
}

module.exports = { SandboxSession };
