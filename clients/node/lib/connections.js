'use strict';

const net = require('node:net');
const { validateHeaderValue } = require('node:http');

const { Answer } = require('./answer.js');

const MAX_IDLE = 64;

/** One socket, and the request that is under way on it. */
class Connection {
  socket;
  wasKept = false;
  #request = null;
  #onIdleEnd;

  constructor(place, onIdleEnd) {
    this.#onIdleEnd = onIdleEnd;
    this.socket = net.connect(place);
    this.socket.on('data', (data) => this.#take(data));
    for (const event of ['end', 'close']) this.socket.on(event, () => this.#end());
    this.socket.on('error', (error) => this.#fail(error));
    this.socket.on('timeout', () => this.#request && this.#fail(this.#request.makeTimeout()));
  }

  /** @request: {text, answer, timeoutMs, makeTimeout, resolve, reject}. */
  begin(request) {
    this.#request = request;
    if (this.wasKept) this.socket.ref();
    if (request.timeoutMs) this.socket.setTimeout(request.timeoutMs);
    this.socket.write(request.text);
  }

  abort() {
    this.#fail(new Error('the request was aborted'));
  }

  #take(data) {
    if (!this.#request) {
      this.#drop(); /* nobody has asked for that */
      return;
    }
    const { answer } = this.#request;
    try {
      answer.take(data);
    } catch (error) {
      this.#fail(error);
      return;
    }
    if (answer.isWhole) this.#finish();
  }

  #end() {
    if (this.#request?.answer.end()) this.#finish();
    else this.#fail(Object.assign(new Error('socket hang up'), { code: 'ECONNRESET' }));
  }

  #finish() {
    const { answer, timeoutMs, resolve } = this.#request;
    this.#request = null;
    if (answer.isLast) this.socket.destroy();
    if (timeoutMs) this.socket.setTimeout(0);
    resolve(answer);
  }

  #fail(error) {
    const request = this.#request;
    this.#request = null;
    this.#drop();
    if (!request) return;
    const { hasBegun, status } = request.answer;
    request.reject(Object.assign(error, { isUnheard: this.wasKept && !hasBegun, isWithin: status > 0 }));
  }

  #drop() {
    this.socket.destroy();
    this.#onIdleEnd(this);
  }
}

/** Connections to one server for requests that are small and whose answers are wanted whole, which is what a run is.
 * They are kept for the next request, and do not keep the process alive.
 *
 * node:http would do it, too: its streams, agent and timers took 0.25 ms of a request that comes every now and then,
 * when their code is in none of the processor's caches. */
class Connections {
  #place;
  #host;
  #maxRefusal;
  #idle = [];

  /** @place: address.js's options. @maxRefusal: see Answer. */
  constructor({ socketPath, host, port }, maxRefusal) {
    this.#place = socketPath === undefined ? { host, port, noDelay: true } : { path: socketPath };
    this.#host = (host.includes(':') ? `[${host}]` : host) + (port && port !== 80 ? `:${port}` : '');
    this.#maxRefusal = maxRefusal;
  }

  /** Closes those that wait for a request. */
  close() {
    for (const connection of this.#idle.splice(0)) connection.socket.destroy();
  }

  /** The Answer to a request, {method, path, headers, body, abortSignal}; the body is a string, a Uint8Array or
   * undefined. Rejects with the socket's error, or one that says what is wrong with the answer; `isWithin` tells that
   * the answer had begun, `isUnheard` that nothing has come on a connection that was not new. @timeoutMs, @makeTimeout:
   * for how long the server may say nothing, 0 for ever, and the error then. */
  async ask({ method, path, headers, body, abortSignal }, timeoutMs, makeTimeout) {
    const text = this.#format(method, path, headers, body);
    const connection = this.#idle.pop() ?? new Connection(this.#place, (ended) => this.#forget(ended));
    const onAbort = () => connection.abort();
    abortSignal?.addEventListener('abort', onAbort);
    try {
      const answer = await new Promise((resolve, reject) => {
        connection.begin({ text, answer: new Answer(this.#maxRefusal), timeoutMs, makeTimeout, resolve, reject });
      });
      this.#keep(connection);
      return answer;
    } finally {
      abortSignal?.removeEventListener('abort', onAbort);
    }
  }

  #format(method, path, headers, body) {
    const bytes = typeof body === 'string' ? Buffer.from(body) : body;
    let head = `${method} ${path} HTTP/1.1\r\nHost: ${this.#host}\r\n`;
    if (/[^\x21-\xff]/.test(path)) throw new TypeError(`'${path}' is no path of a request`);
    for (const name in headers) {
      validateHeaderValue(name, headers[name]);
      head += `${name}: ${headers[name]}\r\n`;
    }
    if (bytes || method === 'POST' || method === 'PUT') head += `Content-Length: ${bytes?.length ?? 0}\r\n`;
    const start = Buffer.from(`${head}\r\n`, 'latin1');
    return bytes ? Buffer.concat([start, bytes]) : start;
  }

  #keep(connection) {
    const { socket } = connection;
    if (socket.destroyed || this.#idle.length >= MAX_IDLE) {
      socket.destroy();
      return;
    }
    connection.wasKept = true;
    socket.unref();
    this.#idle.push(connection);
  }

  #forget(connection) {
    const at = this.#idle.indexOf(connection);
    if (at >= 0) this.#idle.splice(at, 1);
  }
}

module.exports = { Connections };
