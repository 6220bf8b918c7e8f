'use strict';

const { Readable } = require('node:stream');

const { notSupported } = require('./errors.js');
const { cellBody } = require('./options.js');
const { Process } = require('./process.js');

const SHOWN = ['display', 'value', 'error', 'update', 'clear'];

/** An interpreter that is kept: its cells share variables and the files in /mnt/data. `client.session()` opens one. */
class Session {
  #client;

  constructor(client, id) {
    this.#client = client;
    this.id = id;
  }

  #path(below) {
    return `/v1/sessions/${encodeURIComponent(this.id)}${below}`;
  }

  #ask(method, below, { abortSignal } = {}, body) {
    return this.#client._json(method, this.#path(below), body, abortSignal);
  }

  /** Executes a cell; its result, as docs/sessions.md has it. With onOutput(output) what is shown comes there, too, as
   * it is made: {kind: "stream", stream, text}, or {kind, data} with nbformat's output. */
  async run(code, { abortSignal, onOutput, ...options } = {}) {
    if (!onOutput) return this.#ask('POST', '/cells', { abortSignal }, cellBody(code, options));
    let result;
    for await (const { event, data } of this.stream(code, { abortSignal, ...options })) {
      if (event === 'output') onOutput({ kind: 'stream', ...data });
      else if (SHOWN.includes(event)) onOutput({ kind: event, data });
      else if (event === 'result') result = data;
    }
    return result;
  }

  /** The same as events, {event, data}; the last one is the result. Leaving the loop interrupts the cell. */
  stream(code, { abortSignal, ...options } = {}) {
    return this.#client._events(this.#path('/cells'), cellBody(code, options), abortSignal);
  }

  /** Begins a program beside the cells: a text for /bin/sh -c, or a list of it and its arguments. The session was
   * opened with maxProcesses, at a server. With onOutput(stream, bytes) its output goes there as it comes; what that
   * returns is awaited. An abort ends the answer, and with endWithClient the program, too. */
  async spawn(command, options = {}) {
    if (!this.hasProcesses) throw notSupported('sessions of the library in this process have no processes: ask a server');
    return Process.begin(this.#client, this.#path('/processes'), command, options);
  }

  /** Whether spawn() is there: a server's sessions have it. */
  get hasProcesses() {
    return this.#client.transport === 'server';
  }

  /** The server's object: times, how many cells wait, and in `now` what the session is like. */
  info(options) {
    return this.#ask('GET', '', options);
  }

  /** KeyboardInterrupt in the cell that runs. False when there is none. */
  async interrupt(options) {
    return (await this.#ask('POST', '/interrupt', options)).interrupted;
  }

  /** Another interpreter, the same files. */
  async restart(options) {
    await this.#ask('POST', '/restart', options);
  }

  /** Its processes stand still until resume(). */
  async pause(options) {
    await this.#ask('POST', '/pause', options);
  }

  async resume(options) {
    await this.#ask('POST', '/resume', options);
  }

  /** When it ends by itself, counted from now. */
  setLifetime({ idleMs, lifetimeMs, abortSignal } = {}) {
    return this.#ask('POST', '/lifetime', { abortSignal }, { idle_ms: idleMs, lifetime_ms: lifetimeMs });
  }

  /** Keeps variables and files as they are: {id, ms, bytes, lost}. */
  checkpoint(options) {
    return this.#ask('POST', '/checkpoints', options);
  }

  rollback(checkpoint, options) {
    return this.#ask('POST', '/rollback', options, { checkpoint });
  }

  /** A branch of what there is now; its `id` is for switch(). */
  fork(options) {
    return this.#ask('POST', '/branches', options);
  }

  /** The cells from here on are that branch's; 0 is the first. */
  switch(branch = 0, options) {
    return this.#ask('POST', '/switch', options, { branch });
  }

  /** Drops a checkpoint. */
  drop(checkpoint, options) {
    return this.#ask('DELETE', `/checkpoints/${encodeURIComponent(checkpoint)}`, options);
  }

  dropBranch(branch, options) {
    return this.#ask('DELETE', `/branches/${encodeURIComponent(branch)}`, options);
  }

  /** Ends the session, its cells and its files. */
  async close(options) {
    await this.#ask('DELETE', '', options);
  }

  async [Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose')]() {
    await this.close();
  }

  /* ---- files below /mnt/data */

  #file(name) {
    return this.#path(`/files/${encodePath(name)}`);
  }

  async files(options) {
    return (await this.#ask('GET', '/files', options)).files;
  }

  /** Writes a file: a text, bytes, a Blob, or a stream or async iterable of bytes, which goes there as it comes. */
  async upload(name, content, { abortSignal } = {}) {
    const body = content instanceof Blob ? content.stream() : content;
    const found = await this.#client._bytes({ method: 'PUT', path: this.#file(name), body, abortSignal,
                                              headers: { 'Content-Type': 'application/octet-stream' } });
    return JSON.parse(found.toString());
  }

  /** The contents of a file, or of the bytes from @start to @end of it, both included. */
  download(name, options) {
    return this.#client._bytes(this.#get(name, options));
  }

  /** The same as a Readable, which has to be read or destroyed. */
  async downloadStream(name, options) {
    const pieces = await this.#client._pieces(this.#get(name, options));
    return pieces instanceof Readable ? pieces : Readable.from(pieces, { objectMode: false });
  }

  async deleteFile(name, { abortSignal } = {}) {
    await this.#client._bytes({ method: 'DELETE', path: this.#file(name), abortSignal });
  }

  #get(name, { start, end, abortSignal } = {}) {
    const headers = start === undefined && end === undefined ? {} : { Range: `bytes=${start ?? 0}-${end ?? ''}` };
    return { method: 'GET', path: this.#file(name), headers, abortSignal };
  }
}

/** Names on Linux are bytes: a Buffer names a file whose name is no UTF-8. */
function encodePath(name) {
  const bytes = Buffer.from(name);
  let text = '';
  for (const byte of bytes) {
    const character = String.fromCharCode(byte);
    text += /[A-Za-z0-9._~/-]/.test(character) ? character : `%${byte.toString(16).toUpperCase().padStart(2, '0')}`;
  }
  return text;
}

module.exports = { Session };
