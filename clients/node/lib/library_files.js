'use strict';

const fs = require('node:fs');
const { Readable, addAbortSignal } = require('node:stream');
const { promisify } = require('node:util');

const { HutchError } = require('./errors.js');

const write = promisify(fs.write);

/** The file @fd, which is closed with the Readable, or the bytes of it that @range says. */
function download(fd, range, abortSignal) {
  const [, start, end] = /^bytes=(\d+)-(\d*)$/.exec(range ?? 'bytes=0-') ?? [];
  const { size } = fs.fstatSync(fd);
  if (start === undefined || (range && Number(start) >= size)) {
    fs.closeSync(fd);
    throw new HutchError(`the file has ${size} bytes, and '${range}' is none of them`,
                         { status: 416, code: 'range_not_satisfiable' });
  }
  const stream = fs.createReadStream('', { fd, start: Number(start), ...(end && { end: Number(end) }) });
  return abortSignal ? addAbortSignal(abortSignal, stream) : stream;
}

/** Writes @body to @fd and closes it; how many bytes it had. What @session may have is a limit for all of its uploads
 * since its last cell: the engine counts its files when a cell ends. */
async function upload(fd, session, body, abortSignal) {
  const isWhole = typeof body === 'string' || body instanceof Uint8Array;
  let size = 0;
  try {
    const source = body instanceof Readable ? body : Readable.from(isWhole ? [body] : body);
    for await (const piece of abortSignal ? addAbortSignal(abortSignal, source) : source) {
      const bytes = typeof piece === 'string' ? Buffer.from(piece) : piece;
      size += bytes.length;
      if (session.dataBytes && session.uploaded + size > session.dataBytes) {
        throw new HutchError(`the session may have ${session.dataBytes} bytes of files`,
                             { status: 413, code: 'body_too_large' });
      }
      for (let at = 0; at < bytes.length;) at += (await write(fd, bytes, at)).bytesWritten;
    }
    session.uploaded += size;
    return size;
  } finally {
    fs.closeSync(fd);
  }
}

module.exports = { download, upload };
