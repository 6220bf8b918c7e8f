'use strict';

const MAX_HEAD = 64 << 10; /* also of the lines between chunks */
const EMPTY = Buffer.alloc(0);

/** One HTTP/1.1 answer, taken as it comes and kept whole. */
class Answer {
  status = 0;
  headers = {}; /* by names in lower case */
  isWhole = false;
  isLast = false; /* of its connection */
  hasBegun = false;

  #rest = EMPTY; /* what has come and is not understood yet */
  #body = [];
  #size = 0;
  #left = 0; /* of the body, or of a chunk */
  #step = this.#head;
  #maxRefusal;

  /** @maxRefusal: bytes of the body of an answer that is no success, which ends there. */
  constructor(maxRefusal) {
    this.#maxRefusal = maxRefusal;
  }

  /** Takes what has come. Throws where that is no HTTP. */
  take(data) {
    this.hasBegun = true;
    this.#rest = this.#rest.length ? Buffer.concat([this.#rest, data]) : data;
    while (!this.isWhole && this.#step());
    if (this.isWhole && this.#rest.length) this.isLast = true; /* nobody has asked for that */
  }

  /** The connection has ended. Whether that is the end of the answer. */
  end() {
    return this.isWhole ||= this.#step === this.#untilEnd;
  }

  get body() {
    return this.#body.length === 1 ? this.#body[0] : Buffer.concat(this.#body);
  }

  /* Each step takes what it understands, and tells whether the next one may go on. */

  #head() {
    const end = this.#rest.indexOf('\r\n\r\n');
    if (end < 0) return this.#wait();
    const [first, ...lines] = this.#rest.latin1Slice(0, end).split('\r\n');
    const [, minor, status] = /^HTTP\/1\.([01]) ([1-5]\d\d)(?: |$)/.exec(first) ?? refuse();
    this.#rest = this.#rest.subarray(end + 4);
    if (end > MAX_HEAD || status === '101') refuse();
    if (status[0] === '1') return true; /* one comes before the answer */
    this.status = Number(status);
    for (const line of lines) {
      const colon = line.indexOf(':'), name = line.slice(0, colon).toLowerCase(), value = line.slice(colon + 1).trim();
      if (colon <= 0) refuse();
      this.headers[name] = name in this.headers ? `${this.headers[name]}, ${value}` : value;
    }
    this.isLast = minor === '0' || /\bclose\b/i.test(this.headers.connection);
    return this.#choose();
  }

  #choose() {
    const { 'transfer-encoding': coding, 'content-length': length } = this.headers;
    if (this.status === 204 || this.status === 304) return this.#finish();
    if (coding !== undefined) {
      if (coding.toLowerCase() !== 'chunked') refuse();
      this.#step = this.#chunk;
      return true;
    }
    if (length === undefined) {
      this.isLast = true;
      this.#step = this.#untilEnd;
      return true;
    }
    if (!/^\d{1,15}$/.test(length)) refuse();
    this.#left = Number(length);
    this.#step = this.#sized;
    return this.#left > 0 || this.#finish();
  }

  #sized() {
    this.#left -= this.#keep(this.#left);
    return this.#left === 0 && this.#finish();
  }

  #untilEnd() {
    this.#keep(Infinity);
    return false;
  }

  #chunk() {
    const line = this.#line();
    if (line === null) return false;
    const [, size] = /^([\da-f]{1,12})[ \t]*(?:;.*)?$/i.exec(line) ?? refuse();
    this.#left = parseInt(size, 16);
    this.#step = this.#left > 0 ? this.#inChunk : this.#trailer;
    return true;
  }

  #inChunk() {
    this.#left -= this.#keep(this.#left);
    if (this.#left > 0) return false;
    this.#step = this.#afterChunk;
    return true;
  }

  #afterChunk() {
    const line = this.#line();
    if (line) refuse();
    this.#step = line === null ? this.#afterChunk : this.#chunk;
    return line !== null;
  }

  #trailer() {
    const line = this.#line();
    return line === '' ? this.#finish() : line !== null;
  }

  /** Moves up to @most bytes to the body; how many. */
  #keep(most) {
    const piece = this.#rest.length > most ? this.#rest.subarray(0, most) : this.#rest;
    this.#rest = this.#rest.subarray(piece.length);
    if (piece.length) this.#body.push(piece);
    this.#size += piece.length;
    if (this.status >= 300 && this.#size > this.#maxRefusal) {
      this.isLast = true;
      this.#finish();
    }
    return piece.length;
  }

  /** Without its end; null: it is not whole. */
  #line() {
    const end = this.#rest.indexOf('\r\n');
    if (end < 0) return this.#wait() || null;
    const line = this.#rest.latin1Slice(0, end);
    this.#rest = this.#rest.subarray(end + 2);
    return line;
  }

  #wait() {
    if (this.#rest.length > MAX_HEAD) refuse();
    return false;
  }

  #finish() {
    this.isWhole = true;
    return false;
  }
}

function refuse() {
  throw new Error('what answers there does not speak HTTP/1.1');
}

module.exports = { Answer };
