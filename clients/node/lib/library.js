'use strict';

const path = require('node:path');
const { StringDecoder } = require('node:string_decoder');

const { HutchError, libraryRefusal, notSupported } = require('./errors.js');
const { download, upload } = require('./library_files.js');

const TEXT = 100; /* addon/engine.h: kinds of output from here on are text */
const STREAMS = { 1: 'stdout', 2: 'stderr' };
const SHOWN = { 1: 'display', 2: 'value', 3: 'error', 4: 'update', 5: 'clear' };
const IDLE_MS = 600000, LIFETIME_MS = 86400000; /* hutch.h: of a session that says nothing else */

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
  if (!body.env || typeof body.env !== 'object') return body;
  return { ...body, env: Object.entries(body.env).map(([name, value]) => `${name}=${value}`) };
}

/** What `Transport` is for a server, for an engine of libhutch in this process: the same requests, as far as the
 * library answers them. An engine that has nothing to do lets the process end, and one that nobody has any more is
 * ended. */
class LibraryTransport {
  #addon;
  #engine;
  #pending = new Set(); /* functions that reject what waits */
  #sessions = new Map(); /* by their ids */
  #failure = null;
  #wasReady = false;

  constructor(addon, options) {
    const weak = new WeakRef(this);
    this.#addon = addon;
    try {
      this.#engine = addon.open(options, (kind, message) => weak.deref()?.#fail(message, 'engine_failed'));
    } catch (error) {
      throw error instanceof TypeError ? error : libraryRefusal(error, { absent: 'invalid_request' });
    }
  }

  /** Ends everything that runs, and the engine. */
  close() {
    if (!this.#engine) return;
    const engine = this.#engine;
    this.#engine = null;
    this.#addon.close(engine);
    this.#fail('the engine is closed', 'closed');
  }

  #fail(message, code) {
    this.#failure = new HutchError(message, { code });
    for (const reject of [...this.#pending]) reject(this.#failure);
  }

  /* ---- as Transport has them */

  async bytes(call) {
    call.abortSignal?.throwIfAborted();
    const found = await this.#answer(call).catch((error) => {
      call.abortSignal?.throwIfAborted(); /* a stream or a clock says it in words of its own */
      throw error;
    });
    if (found === undefined) return Buffer.alloc(0);
    return Buffer.isBuffer(found) ? found : Buffer.from(typeof found === 'string' ? found : JSON.stringify(found));
  }

  /** A file, as a Readable. */
  async send(call) {
    call.abortSignal?.throwIfAborted();
    const { session, words } = this.#find(call);
    const fd = await this.#atFiles(call, 'openFile', session, decodeBytes(words.join('/')), false);
    return download(fd, call.headers.Range, call.abortSignal);
  }

  pieces(stream) {
    return stream;
  }

  /** Leaving the loop ends the run, or interrupts the cell. */
  async *events(call) {
    const controller = new AbortController();
    const signal = call.abortSignal ? AbortSignal.any([call.abortSignal, controller.signal]) : controller.signal;
    const queue = [];
    let wake = () => {}, error = null, isOver = false;
    const show = (event) => {
      queue.push(event);
      wake();
    };
    signal.throwIfAborted();
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

  /* ---- what the library is asked */

  /** A call of the addon for @session, or for the engine, that is done at once. */
  #tell(name, session, ...args) {
    if (this.#failure) throw this.#failure;
    try {
      return this.#addon[name](this.#engine, ...(session ? [session.number] : []), ...args);
    } catch (error) {
      /* A file is not there yet, or a list of waiting cells is full. */
      throw libraryRefusal(error, { again: /file/i.test(name) ? 'conflict' : 'queue_full' });
    }
  }

  /** One for files, which are there when the session has got its first sandbox. */
  async #atFiles(call, name, session, ...args) {
    if (!session.hasFiles) await this.#order(call, 'awaitFiles', session);
    session.hasFiles = true;
    return this.#tell(name, session, ...args);
  }

  /** One that is answered later, as (kind, text): begin(onAnswer) returns the number by which cancel() takes it
   * back. */
  #wait({ abortSignal, begin, cancel }) {
    if (this.#failure) throw this.#failure;
    return new Promise((resolve, reject) => {
      let number;
      const end = (settle, value) => {
        abortSignal?.removeEventListener('abort', onAbort);
        this.#pending.delete(fail);
        settle(value);
      };
      const fail = (error) => end(reject, error);
      const onAbort = () => {
        if (this.#engine) cancel?.(number);
        fail(abortSignal.reason);
      };
      number = begin((kind, text) => {
        if (kind !== TEXT) fail(new HutchError(text, { status: 409, code: 'conflict' }));
        else if (text) end(resolve, text);
        else fail(new HutchError('there is no memory for the answer', { status: 503, code: 'overloaded' }));
      });
      this.#pending.add(fail);
      abortSignal?.addEventListener('abort', onAbort, { once: true });
    });
  }

  /** A run or a cell; its result as JSON. */
  #start(call, show) {
    const { session } = this.#find(call), onOutput = show && outputs(show);
    const request = environment(JSON.parse(call.body));
    const begin = (onAnswer) => {
      const onResult = (kind, text) => {
        if (session) session.uploaded = 0; /* counted among its files, by now */
        onOutput?.end();
        onAnswer(kind, text);
      };
      return session ? this.#tell('execute', session, request, onOutput?.hear, onResult)
                     : this.#submit(request, onOutput?.hear, onResult);
    };
    const cancel = (number) => session ? this.#addon.cancelCell(this.#engine, session.number, number)
                                       : this.#addon.cancel(this.#engine, number);
    return this.#wait({ abortSignal: call.abortSignal, begin, cancel });
  }

  #submit({ stdin_base64: bytes, ...request }, hear, onResult) {
    if (bytes !== undefined) request.stdin = Buffer.from(bytes, 'base64');
    return this.#tell('submit', null, request, hear, onResult);
  }

  /** An order, which cannot be taken back. */
  async #order({ abortSignal }, name, session, number = 0) {
    const begin = (onAnswer) => this.#tell(name, session, number, undefined, onAnswer);
    return JSON.parse(await this.#wait({ abortSignal, begin }));
  }

  #openSession(body) {
    const sessions = this.#sessions; /* and not this object, which an open session does not keep */
    const number = this.#tell('openSession', null, environment(body), () => sessions.delete(String(number)));
    const session = {
      number, uploaded: 0, idle_ms: body.idle_ms ?? IDLE_MS, lifetime_ms: body.lifetime_ms ?? LIFETIME_MS,
      dataBytes: body.limits?.data_bytes ?? this.#addon.dataLimit(this.#engine),
    };
    sessions.set(String(number), session);
    return this.#describe(session);
  }

  #describe(session, hasNow) {
    const now = JSON.parse(this.#tell('info', session));
    const found = { id: String(session.number), created: now.opened, last_used: now.used, waiting: now.waiting,
                    idle_ms: session.idle_ms, lifetime_ms: session.lifetime_ms };
    return hasNow ? { ...found, now } : found;
  }

  #isReady() {
    this.#wasReady ||= this.#tell('pools', null).pools.every(({ ready, prepared }) => ready && prepared);
    return this.#wasReady;
  }

  /* ---- which request it is */

  #find({ method, path: asked }) {
    const [, , kind, id, what = '', ...words] = asked.split('/');
    if (kind !== 'sessions' || id === undefined) return { what: `${method} ${asked}`, session: null, words };
    const session = this.#sessions.get(id);
    if (!session) throw new HutchError('there is no such session', { status: 404, code: 'not_found' });
    return { what: `${method} ${what}`, session, words };
  }

  async #answer(call) {
    const { what, session, words } = this.#find(call);
    const answer = (session ? OF_SESSION : OF_ENGINE)[what];
    if (!answer) {
      throw notSupported(`the library in this process has nothing for ${call.method} ${call.path}: use a server`);
    }
    return answer(this.#asked, { call, session, words });
  }

  /* What the tables below make answers of. */
  #asked = {
    tell: (...args) => this.#tell(...args),
    atFiles: (...args) => this.#atFiles(...args),
    end: (session) => {
      this.#tell('closeSession', session);
      this.#sessions.delete(String(session.number));
    },
    start: (call) => this.#start(call),
    order: (...args) => this.#order(...args),
    openSession: (body) => this.#openSession(body),
    describe: (...args) => this.#describe(...args),
    sessions: () => [...this.#sessions.values()].map((session) => this.#describe(session)),
    state: (isRight) => {
      if (this.#failure) throw new HutchError(this.#failure.message, { status: 503, code: this.#failure.code });
      if (!isRight()) throw new HutchError('the engine gets ready', { status: 503, code: 'overloaded' });
      return {};
    },
    isReady: () => this.#isReady(),
  };
}

const OF_ENGINE = {
  'GET /healthz': (asked) => asked.state(() => true),
  'GET /readyz': (asked) => asked.state(asked.isReady),
  'GET /v1/pools': (asked) => asked.tell('pools', null),
  'POST /v1/run': (asked, { call }) => asked.start(call),
  'GET /v1/sessions': (asked) => ({ sessions: asked.sessions() }),
  'POST /v1/sessions': (asked, { call }) => asked.openSession(JSON.parse(call.body ?? '{}')),
};

const OF_SESSION = {
  'GET ': (asked, { session }) => asked.describe(session, true),
  'DELETE ': (asked, { session }) => asked.end(session),
  'POST cells': (asked, { call }) => asked.start(call),
  'POST interrupt': (asked, { session }) => ({ interrupted: asked.tell('interrupt', session) }),
  'POST restart': (asked, { session }) => void asked.tell('restart', session),
  'POST pause': (asked, { session }) => void asked.tell('pause', session),
  'POST resume': (asked, { session }) => void asked.tell('resume', session),
  'POST lifetime': (asked, { session, call }) => {
    const given = JSON.parse(call.body);
    asked.tell('setLifetime', session, given);
    return asked.describe(Object.assign(session, given));
  },
  'POST checkpoints': (asked, { session, call }) => asked.order(call, 'checkpoint', session),
  'POST rollback': (asked, { session, call }) => asked.order(call, 'rollback', session, numberIn(call, 'checkpoint')),
  'POST branches': (asked, { session, call }) => asked.order(call, 'fork', session),
  'POST switch': (asked, { session, call }) => asked.order(call, 'switch', session, numberIn(call, 'branch')),
  'DELETE checkpoints': (asked, { session, call, words }) => asked.order(call, 'drop', session, named(words)),
  'DELETE branches': (asked, { session, call, words }) => asked.order(call, 'drop', session, named(words)),
  'GET files': async (asked, { session, call, words }) => {
    if (!words.length) return { files: JSON.parse(await asked.atFiles(call, 'files', session)) };
    const fd = await asked.atFiles(call, 'openFile', session, decodeBytes(words.join('/')), false);
    const pieces = [];
    for await (const piece of download(fd, call.headers.Range, call.abortSignal)) pieces.push(piece);
    return Buffer.concat(pieces);
  },
  'PUT files': async (asked, { session, call, words }) => {
    const name = decodeBytes(words.join('/')), fd = await asked.atFiles(call, 'openFile', session, name, true);
    try {
      return { path: name.toString(), size: await upload(fd, session, call.body, call.abortSignal) };
    } catch (error) {
      try {
        asked.tell('deleteFile', session, name);
      } catch {
        /* It is gone, or the session is. */
      }
      throw error;
    }
  },
  'DELETE files': (asked, { session, call, words }) =>
    asked.atFiles(call, 'deleteFile', session, decodeBytes(words.join('/'))),
};

function numberIn({ body }, key) {
  const number = JSON.parse(body)[key];
  if (Number.isSafeInteger(number) && number >= 0) return number;
  throw new HutchError(`'${key}' is no whole number`, { status: 400, code: 'invalid_request' });
}

/** The number at the end of a path. */
function named([word]) {
  if (/^\d{1,15}$/.test(word)) return Number(word);
  throw new HutchError('there is no such checkpoint or branch', { status: 404, code: 'not_found' });
}

/** The bytes of a part of a path, which need not be UTF-8. */
function decodeBytes(text) {
  const latin = text.replace(/%([0-9A-F]{2})/gi, (_, digits) => String.fromCharCode(parseInt(digits, 16)));
  return Buffer.from(latin, 'latin1');
}

/** Events of what is told as (kind, bytes or text). A character may come in two pieces. */
function outputs(show) {
  const decoders = { 1: new StringDecoder('utf8'), 2: new StringDecoder('utf8') };
  const text = (stream, piece) => {
    if (piece) show({ event: 'output', data: { stream: STREAMS[stream], text: piece } });
  };
  return {
    hear: (kind, data) => {
      if (data === null) return; /* memory was short */
      if (kind < TEXT) text(kind, decoders[kind].write(data));
      else if (SHOWN[kind - TEXT]) show({ event: SHOWN[kind - TEXT], data: JSON.parse(data) });
    },
    end: () => {
      for (const stream of [1, 2]) text(stream, decoders[stream].end());
    },
  };
}

module.exports = { LibraryTransport, findAddon };
