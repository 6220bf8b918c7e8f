// What Client makes of HTTP/1.1 as other servers could speak it, and of connections that end: a server of this test's
// own says so.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import test from 'node:test';

import { Client } from 'hutch';

import { rejected } from './common.mjs';

const RESULT = { verdict: 'ok', stdout: 'ü'.repeat(30000) };
const TEXT = Buffer.from(JSON.stringify(RESULT));
const sized = (body, ...headers) => Buffer.concat([
  Buffer.from(['HTTP/1.1 200 OK', ...headers, `Content-Length: ${body.length}`, '', ''].join('\r\n')), body]);
const chunked = () => Buffer.concat([
  Buffer.from('HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n'),
  ...[TEXT.subarray(0, 1), TEXT.subarray(1, 40000), TEXT.subarray(40000)].flatMap((piece) => [
    Buffer.from(`${piece.length.toString(16)};name=value\r\n`), piece, Buffer.from('\r\n')]),
  Buffer.from('0\r\nAfter: all\r\n\r\n')]);

/** @answer(socket, n, request): is called for the n-th request, from 0. Its socket is closed by the server's end. */
async function withServer(answer, use, options) {
  const folder = mkdtempSync(path.join(tmpdir(), 'wire-')), seen = { connections: 0, requests: 0 };
  const sockets = new Set();
  const server = createServer((socket) => {
    let text = '';
    seen.connections++;
    sockets.add(socket);
    socket.on('error', () => {});
    socket.on('data', (data) => {
      text += data;
      if (!text.includes('\r\n\r\n') || !text.endsWith('}')) return;
      answer(socket, seen.requests++, text);
      text = '';
    });
  });
  server.listen(path.join(folder, 's'));
  await once(server, 'listening');
  const client = new Client(`unix:${path.join(folder, 's')}`, options);
  try {
    return await use(client, seen);
  } finally {
    client.close();
    for (const socket of sockets) socket.destroy();
    server.close();
    rmSync(folder, { recursive: true });
  }
}

/** Byte by byte at first, where most can go wrong. */
async function drip(socket, data) {
  for (let at = 0; at < 200; at++) {
    socket.write(data.subarray(at, at + 1));
    await new Promise(setImmediate);
  }
  socket.write(data.subarray(200));
}

test('wire: answers with a length, in chunks and to the end, in any pieces', async () => {
  const answers = [
    (socket) => socket.write(sized(TEXT)),
    (socket) => drip(socket, sized(TEXT)),
    (socket) => socket.write(chunked()),
    (socket) => drip(socket, chunked()),
    (socket) => socket.write(Buffer.concat([Buffer.from('HTTP/1.1 100 Continue\r\n\r\n'), sized(TEXT)])),
    (socket) => socket.end(Buffer.concat([Buffer.from('HTTP/1.0 200 OK\r\n\r\n'), TEXT])),
    (socket) => socket.end(sized(TEXT, 'Connection: close')),
    (socket) => socket.write(sized(TEXT)),
  ];
  await withServer((socket, n) => answers[n](socket), async (client, seen) => {
    for (const _ of answers) assert.deepEqual(await client.run('1'), RESULT);
    assert.deepEqual(seen, { connections: 3, requests: answers.length }); // two of them were closed
  });
});

test('wire: what is no HTTP', async () => {
  for (const answer of ['SSH-2.0-x\r\n\r\n', 'HTTP/2 200\r\n\r\n', 'HTTP/1.1 200 OK\r\nno header\r\n\r\n', 'x'.repeat(70000),
                        'HTTP/1.1 101 Switching\r\n\r\n', `HTTP/1.1 200 OK\r\nA: ${'x'.repeat(70000)}\r\n\r\n`]) {
    const error = await withServer((socket) => socket.write(answer), (client) => rejected(client.run('1')));
    assert.match(error.message, /HTTP|broken off/, answer.slice(0, 40));
    assert.ok(['connect_failed', 'broken_off'].includes(error.code), error);
  }
});

test('wire: what is no answer', async () => {
  for (const head of ['Content-Length: 1x', 'Content-Length: -1', 'Content-Length: 2\r\nContent-Length: 3',
                      'Transfer-Encoding: gzip', 'Transfer-Encoding: chunked\r\n\r\n-2\r\n{}', 'Transfer-Encoding: chunked\r\n\r\n2\r\n{}0\r\n']) {
    const error = await withServer((socket) => socket.write(`HTTP/1.1 200 OK\r\n${head}\r\n\r\n{}`),
                                   (client) => rejected(client.run('1')));
    assert.equal(error.code, 'broken_off', head);
  }
});

test('wire: a connection that ends within the answer', async () => {
  for (const data of [sized(TEXT).subarray(0, 1000), chunked().subarray(0, 1000), Buffer.from('HTTP/1.1 2')]) {
    await withServer((socket) => socket.end(data), async (client, seen) => {
      assert.equal((await rejected(client.run('1'))).code, 'broken_off');
      assert.equal(seen.requests, 1);
    });
  }
});

test('wire: a kept connection that has ended is replaced', async () => {
  await withServer((socket, n) => {
    if (n === 1) socket.destroy(); // it was closing when the request came
    else if (n === 2) socket.end(sized(TEXT)); // and this one ends while nothing is asked
    else socket.write(sized(TEXT));
  }, async (client, seen) => {
    for (let i = 0; i < 2; i++) assert.deepEqual(await client.run('1'), RESULT);
    await new Promise((resolve) => setTimeout(resolve, 1000)); // its end is here by then
    assert.deepEqual(await client.run('1'), RESULT);
    assert.deepEqual(seen, { connections: 3, requests: 4 });
  });
});

test('wire: a new connection that ends before the answer is an error', async () => {
  await withServer((socket) => socket.destroy(), async (client, seen) => {
    assert.equal((await rejected(client.run('1'))).code, 'broken_off');
    assert.equal(seen.requests, 1);
  });
});

test('wire: what comes unasked is no answer to the next request', async () => {
  await withServer((socket, n) => {
    socket.write(n === 0 ? Buffer.concat([sized(TEXT), sized(Buffer.from('{}'))]) : sized(TEXT));
  }, async (client, seen) => {
    for (let i = 0; i < 3; i++) assert.deepEqual(await client.run('1'), RESULT);
    assert.equal(seen.connections, 2);
  });
});

test('wire: many at once have a connection each, which are kept', async () => {
  await withServer((socket, n, text) => {
    const { code } = JSON.parse(text.slice(text.indexOf('{')));
    setTimeout(() => socket.write(sized(Buffer.from(JSON.stringify({ code })))), 20);
  }, async (client, seen) => {
    for (let round = 0; round < 2; round++) {
      const codes = Array.from({ length: 20 }, (_, i) => `${round} ${i}`);
      const found = await Promise.all(codes.map((code) => client.run(code)));
      assert.deepEqual(found.map(({ code }) => code), codes);
    }
    assert.equal(seen.connections, 20);
  });
});

test('wire: silence, an abort and a refusal that is too long', async () => {
  await withServer((socket) => socket.write(sized(TEXT).subarray(0, 300)), async (client) => {
    assert.equal((await rejected(client.run('1'))).code, 'timeout');
  }, { timeoutMs: 100 });
  const abort = new AbortController();
  await withServer((socket, n) => n === 0 ? abort.abort(new RangeError('mine')) : socket.write(sized(TEXT)), async (client) => {
    assert.equal((await rejected(client.run('1', { abortSignal: abort.signal }))).message, 'mine');
    assert.deepEqual(await client.run('1', { abortSignal: new AbortController().signal }), RESULT);
  });
  await withServer((socket) => socket.write(`HTTP/1.1 500 No\r\n\r\n${'x'.repeat(3 << 20)}`), async (client) => {
    assert.equal((await rejected(client.run('1'))).status, 500);
  });
});

test('wire: headers and paths that would be two', async () => {
  await withServer(() => assert.fail('it was sent'), async (client) => {
    assert.match((await rejected(client.run('1'))).message, /Authorization/);
  }, { token: 'x\r\nEvil: 1' });
});
