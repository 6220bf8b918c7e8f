'use strict';

const { readAddress } = require('./address.js');
const { FunctionError, HutchError, notSupported } = require('./errors.js');
const { LibraryTransport, findAddon } = require('./library.js');
const { callBody, engineOptions, runBody, sessionBody } = require('./options.js');
const { Session } = require('./session.js');
const { Transport, parseObject } = require('./transport.js');

/** Asks a running `hutch serve`, over a unix socket or TCP. Each request that is under way has a connection of its
 * own, and connections are kept for the next ones; they do not keep the process alive. */
class Client {
  #transport;

  /** @address: unix:PATH, HOST:PORT or http://HOST:PORT; without one $HUTCH_SERVER, else the usual socket of hutch
   * serve. timeoutMs: how long the server may say nothing. */
  constructor(address, { token, timeoutMs } = {}) {
    this.#transport = address instanceof LibraryTransport ? address
                                                          : new Transport(readAddress(address), { token, timeoutMs });
  }

  /** The same with an engine of libhutch in this process, by the addon (clients/node/addon); functions are the
   * server's alone. Options are home, launcher, image, policy, policyDir, rootfs, network, workdir, env (an array of
   * NAME=VALUE), volumes, tmpfs, dataTargets, zygotes, maxRunning, maxQueued, maxSessions and layouts, as in hutch.h.
   * Where the addon was not built it asks a server in its place, at `fallback` as of the constructor; with fallback:
   * false that is an error. `transport` says which of both it is. close() ends the engine. */
  static inProcess({ fallback, ...options } = {}) {
    const taken = engineOptions(options), addon = findAddon();
    if (addon) return new Client(new LibraryTransport(addon, taken));
    if (fallback === false) {
      throw notSupported('the addon of the library is not there: make -C addon in this package builds it');
    }
    return new Client(fallback);
  }

  /** 'library' or 'server'. */
  get transport() {
    return this.#transport instanceof LibraryTransport ? 'library' : 'server';
  }

  /** Runs a program; its result, as docs/results.md has it. With onOutput(stream, text) what it prints comes there and
   * is not in the result. */
  async run(code, { abortSignal, onOutput, ...options } = {}) {
    if (!onOutput) return this._json('POST', '/v1/run', runBody(code, options), abortSignal);
    let result;
    for await (const { event, data } of this.stream(code, { abortSignal, ...options })) {
      if (event === 'output') onOutput(data.stream, data.text);
      else if (event === 'result') result = data;
    }
    return result;
  }

  /** The same as events, {event, data}; the last one is the result. Leaving the loop ends the run. */
  stream(code, { abortSignal, ...options } = {}) {
    return this._events('/v1/run', runBody(code, options), abortSignal);
  }

  /** One of the operator's functions: await client.function('NAME')(event) is its value; nothing is asked yet. An event
   * and a value are what JSON can say. Where it does not return, a FunctionError. Of options there are env, variables
   * for this call alone, abortSignal, timeoutMs and the limits. `call()` gives the whole result, whatever became of
   * it. */
  function(name) {
    const call = (event = null, { abortSignal, ...options } = {}) => this.#callFunction(name, event, options, abortSignal);
    const value = async (event, options) => {
      const result = await call(event, options);
      if (result.verdict !== 'ok') throw new FunctionError(result);
      return result.value;
    };
    return Object.assign(value, { call });
  }

  /** What the server tells of each function: its name, its state, and why it is not ready. */
  async functions({ abortSignal } = {}) {
    return (await this._json('GET', '/v1/functions', undefined, abortSignal)).functions;
  }

  /** Opens a session. */
  async session({ abortSignal, ...options } = {}) {
    const { id } = await this._json('POST', '/v1/sessions', sessionBody(options), abortSignal);
    return new Session(this, id);
  }

  /** A session that is open already, by its id; nothing is asked. */
  findSession(id) {
    return new Session(this, id);
  }

  /** What the server tells of each of the asker's sessions. */
  async sessions({ abortSignal } = {}) {
    return (await this._json('GET', '/v1/sessions', undefined, abortSignal)).sessions;
  }

  /** The zygotes, and how many sandboxes of each are prepared. */
  pools({ abortSignal } = {}) {
    return this._json('GET', '/v1/pools', undefined, abortSignal);
  }

  /** Whether the engine can run something. */
  isHealthy({ abortSignal } = {}) {
    return this.#says('/healthz', abortSignal);
  }

  /** Whether the pool is filled and requests are taken. */
  isReady({ abortSignal } = {}) {
    return this.#says('/readyz', abortSignal);
  }

  /** Closes the connections that wait for a request; the next request opens one. */
  close() {
    this.#transport.close();
  }

  async #callFunction(name, event, options, abortSignal) {
    const { body, type } = callBody(event, options);
    const call = this.#call('POST', `/v1/functions/${encodeURIComponent(name)}`, body, 'application/json');
    call.headers['Content-Type'] = type;
    return parseObject(await this._bytes({ ...call, abortSignal }));
  }

  async #says(path, abortSignal) {
    try {
      await this.#transport.bytes({ method: 'GET', path, abortSignal });
      return true;
    } catch (error) {
      if (error instanceof HutchError && error.status === 503) return false;
      throw error;
    }
  }

  /* ---- for the classes of this package */

  async _json(method, path, body, abortSignal) {
    const found = await this._bytes({ ...this.#call(method, path, body, 'application/json'), abortSignal });
    return found.length ? parseObject(found) : null;
  }

  /** @last: the event that ends them, where it is not "result". */
  _events(path, body, abortSignal, last) {
    return this.#transport.events({ ...this.#call('POST', path, body, 'application/x-ndjson'), abortSignal, last });
  }

  _bytes(call) {
    return this.#transport.bytes(call);
  }

  async _pieces(call) {
    return this.#transport.pieces(await this.#transport.send(call), call.abortSignal);
  }

  #call(method, path, body, accept) {
    const headers = { Accept: accept };
    if (body === undefined) return { method, path, headers };
    headers['Content-Type'] = 'application/json';
    return { method, path, headers, body: JSON.stringify(body) };
  }
}

module.exports = { Client };
