'use strict';

const path = require('node:path');
const { StringDecoder } = require('node:string_decoder');

const { HutchError, notSupported } = require('./errors.js');

const TEXT = 100; /* addon/engine.h: kinds of output from here on are text */
const STREAMS = { 1: 'stdout', 2: 'stderr' };
const SHOWN = { 1: 'display', 2: 'value', 3: 'error', 4: 'update', 5: 'clear' };

/** The addon, where it was built: $HUTCH_NODE_ADDON, else addon/hutch.node of this package. Null: it is not there. */
function findAddon() {
  const file = process.env.HUTCH_NODE_ADDON || path.join(__dirname, '..', 'addon', 'hutch.node');
  try {
    return require(file);
  } catch (error) {
    if (error.code === 'MODULE_NOT_FOUND') return null;
    throw new HutchError(`load the addon '${file}': ${error.message}`, { code: 'addon_failed', cause: error });
  }
}

/** Variables as C has them. */
function environment(body) {
  return body.env ? { ...body, env: Object.entries(body.env).map(([name, value]) => `${name}=${value}`) } : body;
}

function refusal(error) {
  if (error instanceof TypeError) return error;
  const status = { EAGAIN: 429, ENOENT: 404, EINVAL: 400 }[error.code] ?? 0;
  return new HutchError(error.message, { status, code: error.code ?? 'library_error', cause: error });
}

/** What `Transport` is for a server, for an engine of libhutch in this process: the same requests, as far as the library
 * answers them. An engine that has nothing to do lets the process end. */
class LibraryTransport {
  #addon;
  #engine;
  #pending = new Set(); /* functions that reject what waits */
  #sessions = new Set();
  #failure = null;

  constructor(addon, options) {
    this.#addon = addon;
    try {
      this.#engine = addon.open(options, (kind, message) => this.#fail(new HutchError(message, { code: 'engine_failed' })));
    } catch (error) {
      throw refusal(error);
    }
  }

  /** Ends everything that runs, and the engine. */
  close() {
    if (!this.#engine) return;
    const engine = this.#engine;
    this.#engine = null;
    this.#addon.close(engine);
    this.#fail(new HutchError('the engine is closed', { code: 'closed' }));
  }

  #fail(error) {
    this.#failure = error;
    for (const reject of [...this.#pending]) reject(error);
    this.#pending.clear();
  }

  async bytes(call) {
    if (call.method === 'POST' && (call.path === '/v1/run' || call.path.endsWith('/cells'))) {
      return Buffer.from(await this.#start(call));
    }
    call.abortSignal?.throwIfAborted();
    const found = this.#answer(call);
    return found === undefined ? Buffer.alloc(0) : Buffer.from(JSON.stringify(found));
  }

  send() {
    throw notSupported('files are not among what the library in this process is asked for: use a server');
  }

  /** As Transport has them. Leaving the loop ends the run, or interrupts the cell. */
  async *events(call) {
    const controller = new AbortController();
    const signal = call.abortSignal ? AbortSignal.any([call.abortSignal, controller.signal]) : controller.signal;
    const queue = [];
    let wake = () => {}, error = null, isOver = false;
    const show = (event) => {
      queue.push(event);
      wake();
    };
    this.#start({ ...call, abortSignal: signal }, show).then(
      (text) => queue.push({ event: 'result', data: JSON.parse(text) }), (reason) => { error = reason; },
    ).finally(() => {
      isOver = true;
      wake();
    });
    try {
      for (;;) {
        while (queue.length) yield queue.shift();
        if (error) throw error;
        if (isOver) return;
        await new Promise((resolve) => { wake = resolve; });
      }
    } finally {
      controller.abort();
    }
  }

  /** A run or a cell; its result as JSON. */
  #start({ path: asked, body, abortSignal }, show) {
    abortSignal?.throwIfAborted();
    if (this.#failure) throw this.#failure;
    const session = asked === '/v1/run' ? null : this.#session(asked.split('/')[3]);
    const request = environment(JSON.parse(body));
    if (request.stdin_base64 !== undefined) request.stdin = Buffer.from(request.stdin_base64, 'base64');
    return new Promise((resolve, reject) => {
      const onOutput = show && outputs(show);
      let number;
      const cancel = () => {
        if (this.#engine && session === null) this.#addon.cancel(this.#engine, number);
        else if (this.#engine) this.#addon.cancelCell(this.#engine, session, number);
        end(() => reject(abortSignal.reason));
      };
      const end = (settle) => {
        abortSignal?.removeEventListener('abort', cancel);
        this.#pending.delete(reject);
        settle();
      };
      const onResult = (kind, text) => end(() => {
        onOutput?.end();
        if (text) resolve(text);
        else reject(new HutchError('there is no memory for the result', { code: 'no_memory' }));
      });
      try {
        number = session === null ? this.#addon.submit(this.#engine, request, onOutput?.hear, onResult)
                                  : this.#addon.execute(this.#engine, { ...request, session }, onOutput?.hear, onResult);
      } catch (error) {
        reject(refusal(error));
        return;
      }
      this.#pending.add(reject);
      abortSignal?.addEventListener('abort', cancel, { once: true });
    });
  }

  #session(id) {
    const number = Number(id);
    if (!this.#sessions.has(number)) throw new HutchError('there is no such session', { status: 404, code: 'not_found' });
    return number;
  }

  /** What is answered at once. */
  #answer({ method, path: asked, body }) {
    const [, , kind, id, what] = asked.split('/');
    if (method === 'GET' && (asked === '/healthz' || asked === '/readyz')) {
      if (this.#failure) throw new HutchError(this.#failure.message, { status: 503, code: this.#failure.code });
      return { status: 'ok' };
    }
    if (this.#failure) throw this.#failure;
    if (method === 'GET' && asked === '/v1/sessions') return { sessions: [...this.#sessions].map((number) => ({ id: String(number) })) };
    if (method === 'POST' && asked === '/v1/sessions') return { id: String(this.#openSession(JSON.parse(body ?? '{}'))) };
    if (kind !== 'sessions') throw notSupported(`the library in this process has nothing for ${method} ${asked}: use a server`);
    const session = this.#session(id);
    try {
      if (method === 'POST' && what === 'interrupt') return { interrupted: this.#addon.interrupt(this.#engine, session) };
      if (method === 'POST' && what === 'restart') return void this.#addon.restart(this.#engine, session) ?? { restarted: true };
      if (method === 'DELETE' && what === undefined) {
        this.#sessions.delete(session);
        this.#addon.closeSession(this.#engine, session);
        return undefined;
      }
    } catch (error) {
      throw refusal(error);
    }
    throw notSupported(`the library in this process has nothing for ${method} /v1/sessions/ID/${what ?? ''}: use a server`);
  }

  #openSession(body) {
    try {
      const number = this.#addon.openSession(this.#engine, environment(body), () => this.#sessions.delete(number));
      this.#sessions.add(number);
      return number;
    } catch (error) {
      throw refusal(error);
    }
  }
}

/** Events of what is told as (kind, bytes or text). A character may come in two pieces. */
function outputs(show) {
  const decoders = { 1: new StringDecoder('utf8'), 2: new StringDecoder('utf8') };
  const text = (stream, piece) => {
    if (piece) show({ event: 'output', data: { stream: STREAMS[stream], text: piece } });
  };
  return {
    hear: (kind, data) => {
      if (kind < TEXT) text(kind, decoders[kind].write(data));
      else if (SHOWN[kind - TEXT]) show({ event: SHOWN[kind - TEXT], data: JSON.parse(data) });
    },
    end: () => {
      for (const stream of [1, 2]) text(stream, decoders[stream].end());
    },
  };
}

module.exports = { LibraryTransport, findAddon };
