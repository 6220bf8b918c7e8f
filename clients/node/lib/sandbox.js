'use strict';

const { Readable } = require('node:stream');
const posix = require('node:path').posix;

const { HutchError, notSupported } = require('./errors.js');
const { runCommand, look } = require('./guest.js');

const BASE = '/mnt/data';

/** What AI SDK 7 calls a sandbox session, over a session of hutch: tools that take one run in hutch. Commands are cells
 * beside the session's own, so several at once run one after the other. */
class SandboxSession {
  #session;

  constructor(session, { description } = {}) {
    this.#session = session;
    this.description = description ?? 'A Linux sandbox without network. Files are in /mnt/data, where commands ' +
      'start; only /mnt/data and /tmp can be written. Nothing can be installed. Commands run one after the other.';
  }

  /** Commands and files of a session of its own. */
  static async open(client, { description, ...options } = {}) {
    return new SandboxSession(await client.session(options), { description });
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
    const text = { stdout: '', stderr: '' };
    const { exitCode, message } = await this.#command(options, (stream, piece) => {
      text[stream] += piece;
    });
    return { exitCode, stdout: text.stdout, stderr: message ? `${text.stderr}hutch: ${message}\n` : text.stderr };
  }

  async spawn({ stdin, abortSignal, ...options }) {
    if (stdin) {
      throw notSupported('a command in hutch has no standard input that stays open: write a file, and read that');
    }
    inside(options.workingDirectory ?? BASE);
    const encoder = new TextEncoder(), killed = new AbortController();
    const streams = { stdout: openStream(), stderr: openStream() };
    const signal = abortSignal ? AbortSignal.any([abortSignal, killed.signal]) : killed.signal;
    const ended = this.#command({ ...options, abortSignal: signal }, (stream, piece) => {
      streams[stream].add(encoder.encode(piece));
    }).then(({ exitCode }) => ({ exitCode }), (error) => {
      if (killed.signal.aborted && !abortSignal?.aborted) return { exitCode: 137 };
      throw error;
    });
    const close = () => Object.values(streams).forEach((stream) => stream.close());
    ended.then(close, close);
    return {
      stdout: streams.stdout.readable,
      stderr: streams.stderr.readable,
      wait: () => ended,
      kill: async () => {
        killed.abort();
        await ended.catch(() => {});
      },
    };
  }

  async #command({ command, workingDirectory, env, abortSignal }, onOutput) {
    const directory = workingDirectory === undefined ? BASE : inside(workingDirectory);
    return runCommand(this.#session, { command: ['/bin/sh', '-c', command], directory, env, abortSignal, onOutput });
  }
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
