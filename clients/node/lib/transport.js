'use strict';

const http = require('node:http');
const { Readable, pipeline } = require('node:stream');
const { setImmediate: turn } = require('node:timers/promises');

const { Connections } = require('./connections.js');
const { HutchError, refusalOf, brokenOff } = require('./errors.js');

const MAX_EVENT = 64 << 20; /* of an answer that comes as it is made */
const ERROR_BODY = 1 << 20;
const SMALL = 1 << 16; /* a body that is sent before the server can have refused it */
const CLOSED = ['ECONNRESET', 'EPIPE'];

/** Requests to one server, on connections that are kept. */
class Transport {
  #address;
  #connections;
  #agent = new http.Agent({ keepAlive: true, maxFreeSockets: 64 });
  #headers;
  #timeoutMs;

  constructor(address, { token, timeoutMs = 0 } = {}) {
    this.#address = address;
    this.#connections = new Connections(address.options, ERROR_BODY);
    this.#headers = token ? { Authorization: `Bearer ${token}` } : {};
    this.#timeoutMs = timeoutMs;
  }

  /** Closes the connections that wait for a request. The next request opens one. */
  close() {
    this.#connections.close();
    this.#agent.destroy();
    this.#agent = new http.Agent({ keepAlive: true, maxFreeSockets: 64 });
  }

  /** The answer to @call, {method, path, headers, body, abortSignal}, its body still to be read. Rejects with a
   * HutchError when the server refuses. What was sent on a connection that the server was closing is sent again on
   * another one. */
  async send(call) {
    for (;;) {
      const { response, error, wasKept } = await this.#ask(call);
      if (response) {
        if (response.statusCode < 300) return response;
        throw refusalOf(response.statusCode, response.headers, await readSome(response, ERROR_BODY));
      }
      call.abortSignal?.throwIfAborted();
      if (error instanceof HutchError || error.isOfSource) throw error.isOfSource ? error.error : error;
      if (wasKept && CLOSED.includes(error.code) && !isStream(call.body)) continue;
      throw this.#explain(error);
    }
  }

  /** The same for a small request whose answer is wanted whole. */
  async #exchange(call) {
    for (;;) {
      call.abortSignal?.throwIfAborted();
      try {
        const asked = { ...call, headers: { ...this.#headers, ...call.headers } };
        const answer = await this.#connections.ask(asked, this.#timeoutMs, () => silence(this.#timeoutMs));
        if (answer.status < 300) return answer.body;
        throw refusalOf(answer.status, answer.headers, answer.body);
      } catch (error) {
        call.abortSignal?.throwIfAborted();
        if (error instanceof HutchError || error instanceof TypeError) throw error;
        if (error.isWithin) throw brokenOff(error);
        if (!error.isUnheard || !CLOSED.includes(error.code)) throw this.#explain(error);
      }
    }
  }

  /** @error: of a request that has got no answer. */
  #explain(error) {
    if (CLOSED.includes(error.code)) return brokenOff(error);
    return new HutchError(`ask the server at ${this.#address.text}: ${error.message} (is hutch serve running there?)`,
                          { code: 'connect_failed', cause: error });
  }

  #ask(call) {
    call.abortSignal?.throwIfAborted();
    return new Promise((resolve) => {
      const headers = { ...this.#headers, ...call.headers };
      if (call.body !== undefined && !isStream(call.body)) headers['Content-Length'] = Buffer.byteLength(call.body);
      const request = http.request({ ...this.#address.options, agent: this.#agent, method: call.method, path: call.path,
                                     headers, signal: call.abortSignal });
      let isAnswered = false;
      request.on('response', (response) => {
        isAnswered = true;
        resolve({ response });
      });
      request.on('error', (error) => resolve({ error, wasKept: request.reusedSocket }));
      if (this.#timeoutMs) request.setTimeout(this.#timeoutMs, () => request.destroy(silence(this.#timeoutMs)));
      if (!isStream(call.body)) {
        request.end(call.body);
        return;
      }
      /* A server that refuses answers before it has read everything: then the rest is not sent. */
      const source = call.body instanceof Readable ? call.body : Readable.from(call.body);
      source.once('error', (error) => resolve({ error: { isOfSource: true, error } }));
      pipeline(source, paced, request, (error) => {
        if (error && !isAnswered) request.destroy(error);
      });
    });
  }

  /** The whole body of the answer. */
  async bytes(call) {
    if (call.body === undefined || (!isStream(call.body) && call.body.length <= SMALL)) return this.#exchange(call);
    const response = await this.send(call);
    const pieces = [];
    for await (const piece of this.pieces(response, call.abortSignal)) pieces.push(piece);
    return Buffer.concat(pieces);
  }

  /** The body as it comes. Leaving the loop early closes the connection, which ends the run. */
  async *pieces(response, abortSignal) {
    try {
      for await (const piece of response) yield piece;
    } catch (error) {
      abortSignal?.throwIfAborted();
      throw error instanceof HutchError ? error : brokenOff(error);
    }
  }

  /** The events of an answer that comes as it is made: {event, data}, the last of which is "result", or call.last. */
  async *events(call) {
    const response = await this.send(call);
    let isWhole = false;
    for await (const line of linesOf(this.pieces(response, call.abortSignal))) {
      const event = parseObject(line);
      isWhole ||= event.event === (call.last ?? 'result');
      yield event;
    }
    if (!isWhole) throw brokenOff();
  }
}

function isStream(body) {
  return body !== undefined && typeof body !== 'string' && !(body instanceof Uint8Array);
}

/** A turn of the loop between two pieces: a refusal that has come is read before a write to the closed connection
 * fails, which would take the place of it. */
async function* paced(source) {
  for await (const piece of source) {
    yield piece;
    await turn();
  }
}

function silence(milliseconds) {
  return new HutchError(`the server has said nothing for ${milliseconds} ms`, { code: 'timeout' });
}

async function readSome(response, most) {
  const pieces = [];
  let size = 0;
  try {
    for await (const piece of response) {
      size += piece.length;
      if (size > most) break;
      pieces.push(piece);
    }
  } catch {
    /* What has come is all there is of the refusal. */
  }
  return Buffer.concat(pieces);
}

async function* linesOf(pieces) {
  let begun = [], size = 0;
  for await (const piece of pieces) {
    let from = 0;
    for (let end; (end = piece.indexOf(0x0a, from)) >= 0; from = end + 1) {
      begun.push(piece.subarray(from, end));
      const line = Buffer.concat(begun);
      begun = [];
      size = 0;
      if (line.length) yield line;
    }
    begun.push(piece.subarray(from));
    size += piece.length - from;
    if (size > MAX_EVENT) throw new HutchError(`an event of more than ${MAX_EVENT} bytes`, { code: 'invalid_answer' });
  }
}

/** An answer that has to be a JSON object. */
function parseObject(bytes) {
  try {
    const found = JSON.parse(bytes.toString());
    if (found !== null && typeof found === 'object' && !Array.isArray(found)) return found;
  } catch {
    /* said below */
  }
  throw new HutchError("the server's answer is no JSON object: is it hutch that listens there?",
                       { code: 'invalid_answer' });
}

module.exports = { Transport, parseObject };
