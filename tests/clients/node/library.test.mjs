// Client.inProcess(): the library in this process. tests/e2e/test_node_library.py has built the addon.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import test from 'node:test';
import { Worker } from 'node:worker_threads';

import { Client, HutchError } from 'hutch';

const rejected = (promise) => promise.then((value) => { throw new Error(`not rejected: ${JSON.stringify(value)}`); }, (error) => error);
const options = { image: 'python', layouts: 1 };
const client = Client.inProcess(options);
test.after(() => client.close());

const child = (code, env = {}, words = []) => spawnSync(process.execPath, [...words, '--input-type=module', '-e', `import { Client } from 'hutch';\n${code}`],
                                            { env: { ...process.env, ...env }, encoding: 'utf8', timeout: 150000 });

test('library: it is the library', () => {
  assert.equal(client.transport, 'library');
});

test('library: a run, its input, arguments and limits', async () => {
  const result = await client.run('import os, sys\nprint(sys.argv[1], os.environ["W"], sys.stdin.read())\n1 / 0',
                                  { args: ['ä'], env: { W: 'x' }, stdin: 'in', timeoutMs: 20000, name: 'mine.py' });
  assert.equal(result.stdout, 'ä x in\n');
  assert.equal(result.error.name, 'ZeroDivisionError');
  assert.equal(result.limits.wall.asked, 20000);
  assert.equal((await client.run('import sys\nprint(len(sys.stdin.buffer.read()))', { stdin: Buffer.from([255, 0]) })).stdout, '2\n');
  assert.equal((await client.run('6 * 7', { rich: true })).cell.value, '42');
});

test('library: many at once, each with its own answer', async () => {
  const results = await Promise.all([...Array(30).keys()].map((n) => client.run(`print(${n} ** 2)`)));
  assert.deepEqual(results.map((result) => Number(result.stdout)), [...Array(30).keys()].map((n) => n ** 2));
});

test('library: output as it comes', async () => {
  const seen = [];
  const result = await client.run('import sys\nprint("ü€")\nprint("e", file=sys.stderr)', { onOutput: (stream, text) => seen.push([stream, text]) });
  assert.equal(seen.filter(([stream]) => stream === 'stdout').map(([, text]) => text).join(''), 'ü€\n');
  assert.equal(seen.filter(([stream]) => stream === 'stderr').map(([, text]) => text).join(''), 'e\n');
  assert.equal(result.stdout, '');
});

test('library: an abort ends the run, and so does leaving its events', async () => {
  const controller = new AbortController();
  const code = 'print("begun", flush=True)\nwhile True: pass';
  const error = await rejected(client.run(code, { abortSignal: controller.signal, onOutput: () => controller.abort(new Error('mine')) }));
  assert.equal(error.message, 'mine');
  for await (const { event } of client.stream(code)) {
    assert.equal(event, 'output');
    break;
  }
  assert.equal((await rejected(client.run('1', { abortSignal: AbortSignal.abort() }))).name, 'AbortError');
  assert.equal((await client.run('print(1)')).stdout, '1\n');
});

test('library: sessions', async () => {
  const session = await client.session({ env: { A: 'b' } });
  await session.run('import os\nx = os.environ["A"]');
  const shown = [];
  const result = await session.run('print(x)\nx * 2', { onOutput: (output) => shown.push(output) });
  assert.equal(result.value, "'bb'");
  assert.deepEqual(shown[0], { kind: 'stream', stream: 'stdout', text: 'b\n' });
  assert.equal(shown[1].kind, 'value');
  const controller = new AbortController();
  const left = session.run('print(1, flush=True)\nwhile True: pass', { abortSignal: controller.signal, onOutput: () => controller.abort() });
  assert.equal((await rejected(left)).name, 'AbortError');
  assert.equal((await session.run('x')).value, "'b'");
  assert.equal(await session.interrupt(), false);
  await session.restart();
  assert.equal((await session.run('x')).error.name, 'NameError');
  await session.close();
  assert.equal((await rejected(session.run('1'))).code, 'not_found');
  assert.deepEqual(await client.sessions(), []);
});

test('library: what is wrong is one sentence', async () => {
  assert.ok(await rejected(client.run('1', { polcy: 1 })) instanceof TypeError);
  for (const wrong of [{ args: 'x' }, { args: [1] }, { language: 1 }, { memoryBytes: -1 }, { memoryBytes: 1.5 }, { rich: 1 }, { name: 'a\0b' }]) {
    const error = await rejected(client.run('1', wrong));
    assert.ok(error instanceof TypeError || error instanceof HutchError, error);
    assert.ok(error.message && !error.message.includes('\n'));
  }
  assert.throws(() => Client.inProcess({ image: 'no-such-image' }), /no-such-image/);
  for (const [wrong, said] of [[{ image: 1 }, "'image' is no text"], [{ polcy: 'x' }, /'polcy'/], [{ volumes: [1] }, "'volumes' is no text"],
                               [{ maxRunning: -1 }, /^'maxRunning' is no whole number from 0 to /], [{ policy: 'a\0' }, /NUL/],
                               [{ zygotes: [{}] }, "'zygotes' has one without a name"], [{ zygotes: 1 }, "'zygotes' is no array"]]) {
    assert.throws(() => Client.inProcess(wrong), { name: 'TypeError', message: said });
  }
  assert.equal((await rejected(client.run('1', { language: 'cobol' }))).status, 400);
});

test('library: errors are those of a server', async () => {
  for (const [wrong, said] of [[{ args: 'x' }, "'args' is no array"], [{ name: 'a\0b' }, "'name' has a NUL in it"], [{ rich: 1 }, /'rich'/],
                               [{ memoryBytes: 1.5 }, /^'memory_bytes' is no whole number/], [{ memoryBytes: 2 ** 52 }, /memory/]]) {
    const error = await rejected(client.run('1', wrong));
    assert.deepEqual([error.status, error.code], [400, 'invalid_request'], error);
    assert.match(error.message, said instanceof RegExp ? said : new RegExp(`^${said}$`));
  }
  assert.equal((await rejected(client.functions())).code, 'not_supported');
  assert.equal((await rejected(client.findSession('99').run('1'))).status, 404);
  const session = await client.session();
  assert.equal((await rejected(session.rollback('x'))).status, 400);
  assert.equal((await rejected(session.drop('x'))).status, 404);
  await session.close();
});

test('library: zygotes of its own', async () => {
  const other = Client.inProcess({ ...options, zygotes: [{ name: 'mine', modules: ['json'], warmUp: 'x = 1', min: 1, max: 2 }] });
  assert.equal((await other.run('print(1)')).stdout, '1\n');
  assert.deepEqual((await other.pools()).pools.map(({ name }) => name), ['mine']);
  other.close();
});

test('library: one that nobody has any more is ended', () => {
  const done = child(`import { readFileSync } from 'node:fs';
    import { setTimeout as sleep } from 'node:timers/promises';
    const children = () => readFileSync('/proc/self/task/' + process.pid + '/children', 'utf8').trim();
    await (async () => Client.inProcess(${JSON.stringify(options)}).run('1'))();
    console.log(children() !== '');
    while (children() !== '') { gc(); await sleep(10); }
    console.log('ended');`, {}, ['--expose-gc']);
  assert.equal(done.stdout, 'true\nended\n', done.stderr);
});

test('library: what is closed rejects what waits', async () => {
  const other = Client.inProcess(options);
  const waiting = rejected(other.run('while True: pass'));
  other.close();
  other.close();
  assert.equal((await waiting).code, 'closed');
  assert.equal((await rejected(other.run('1'))).code, 'closed');
});

test('library: closing within a callback', async () => {
  const other = Client.inProcess(options);
  const error = await rejected(other.run('print(1, flush=True)\nwhile True: pass', { onOutput: () => other.close() }));
  assert.equal(error.code, 'closed');
});

test('library: a process with nothing to do ends, one with a run waits for it', () => {
  const done = child(`const client = Client.inProcess(${JSON.stringify(options)});
                      client.run('print(6 * 7)').then((result) => console.log(result.stdout));`);
  assert.equal(done.status, 0, done.stderr);
  assert.equal(done.stdout, '42\n\n');
});

test('library: what onOutput throws rejects the run, and ends it', async () => {
  const onOutput = () => { throw new Error('mine'); };
  assert.equal((await rejected(client.run('print(1, flush=True)\nwhile True: pass', { onOutput }))).message, 'mine');
  assert.equal((await client.run('print(2)')).stdout, '2\n');
});

test('library: a worker thread has an engine of its own, which ends with it', async () => {
  const worker = new Worker(`const { parentPort } = require('node:worker_threads');
    const { Client } = require('hutch');
    const client = Client.inProcess(${JSON.stringify(options)});
    client.run('print(6 * 7)').then(({ stdout }) => { parentPort.postMessage(stdout); client.run('while True: pass').catch(() => {}); });`,
                            { eval: true });
  const [said] = await new Promise((resolve, reject) => {
    worker.once('message', (...said) => resolve(said));
    worker.once('error', reject);
  });
  assert.equal(said, '42\n');
  await worker.terminate();
  assert.equal((await client.run('print(2)')).stdout, '2\n');
});

test('library: without the addon it is a server', () => {
  const env = { HUTCH_NODE_ADDON: '/none/hutch.node', HUTCH_SERVER: 'unix:/none' };
  const done = child('console.log(Client.inProcess().transport);\ntry { Client.inProcess({ fallback: false }); } catch (error) { console.log(error.code); }', env);
  assert.equal(done.stdout, 'server\nnot_supported\n', done.stderr);
});
