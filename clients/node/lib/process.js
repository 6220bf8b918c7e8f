'use strict';

const { HutchError } = require('./errors.js');
const { processBody } = require('./options.js');

const PIECE = 1 << 19; /* of input, in one request */

/** A program that runs in a session's sandbox beside its cells. `session.spawn()` begins one. */
class Process {
  #client;
  #path;
  #ended;

  constructor(client, path, id, ended) {
    this.#client = client;
    this.#path = `${path}/${id}`;
    this.id = id;
    this.#ended = ended;
    ended.catch(() => {}); /* who waits is told */
  }

  /** @path: of the session's processes. */
  static async begin(client, path, command, { abortSignal, onOutput, ...options }) {
    const events = client._events(path, processBody(command, options), abortSignal, 'end');
    const { value: first } = await events.next();
    return new Process(client, path, first.data.id, follow(events, onOutput));
  }

  /** How it ended: {exitCode, signal, message, truncated, runMs}, as process 1 of the sandbox says. exitCode is null
   * where it did not exit by itself. Without onOutput there are stdout and stderr, too. Rejects where the answer breaks
   * off, or was aborted. */
  wait() {
    return this.#ended;
  }

  /** Resolves when the process has taken all of @data, a text or bytes. One write waits at a time. */
  async write(data, { abortSignal } = {}) {
    const bytes = Buffer.from(data);
    for (let at = 0; at < bytes.length; at += PIECE) {
      const piece = bytes.subarray(at, at + PIECE).toString('base64');
      await this.#client._json('POST', `${this.#path}/stdin`, { data_base64: piece }, abortSignal);
    }
  }

  /** The end of its input. */
  async closeStdin({ abortSignal } = {}) {
    await this.#client._json('POST', `${this.#path}/close_stdin`, undefined, abortSignal);
  }

  /** To its process group: "TERM", "SIGKILL", or a number. False: it had ended. */
  async signal(signal, { abortSignal } = {}) {
    const word = typeof signal === 'string' ? signal.replace(/^SIG/, '') : signal;
    try {
      await this.#client._json('POST', `${this.#path}/signal`, { signal: word }, abortSignal);
      return true;
    } catch (error) {
      if (error instanceof HutchError && error.status === 404) return false;
      throw error;
    }
  }
}

/** Its output goes to @onOutput, and is waited for there: so the process waits for who reads slowly. */
async function follow(events, onOutput) {
  const kept = { stdout: [], stderr: [] };
  let end = null;
  for await (const { event, data } of events) {
    if (event === 'output') {
      const bytes = data.base64 === undefined ? Buffer.from(data.text) : Buffer.from(data.base64, 'base64');
      if (onOutput) await onOutput(data.stream, bytes);
      else kept[data.stream].push(bytes);
    } else if (event === 'end') {
      end = data;
    }
  }
  const told = { exitCode: end.exit_code, signal: end.signal, message: end.message, truncated: end.truncated,
                 runMs: end.run_ms };
  if (onOutput) return told;
  const text = (pieces) => Buffer.concat(pieces).toString();
  return { ...told, stdout: text(kept.stdout), stderr: text(kept.stderr) };
}

module.exports = { Process };
