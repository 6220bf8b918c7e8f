// Client and Session: runs, streams, aborts, errors, files. The first word of a test says what it is about.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { Readable } from 'node:stream';
import test from 'node:test';

import { Client, FunctionError, HutchError, Session } from 'hutch';

import { client, rejected, tcp, until, withSession } from './common.mjs';

const FOREVER = 'import time\nprint("begun", flush=True)\nwhile True: time.sleep(0.01)';
const running = async () => (await client.pools()).running;

test('run: a program over the unix socket', async () => {
  const result = await client.run('import os, sys\nprint(sys.argv[1], os.environ["W"], sys.stdin.read())\n1 / 0',
                                  { args: ['ä'], env: { W: 'x' }, stdin: 'in', timeoutMs: 20000, name: 'mine.py' });
  assert.equal(result.verdict, 'error');
  assert.equal(result.stdout, 'ä x in\n');
  assert.equal(result.error.name, 'ZeroDivisionError');
  assert.match(result.stderr, /mine\.py/);
});

test('run: bytes as standard input', async () => {
  const result = await client.run('import sys\nprint(len(sys.stdin.buffer.read()))', { stdin: Buffer.from([255, 0]) });
  assert.equal(result.stdout, '2\n');
});

test('run: limits by their names here', async () => {
  const result = await client.run('while True: pass', { timeoutMs: 300, memoryBytes: 200 << 20, pids: 20, cpus: 500 });
  assert.equal(result.verdict, 'timeout');
  assert.equal(result.limits.wall.asked, 300);
  assert.equal(result.limits.memory.asked, 200 << 20);
  assert.equal(result.limits.pids.asked, 20);
  assert.equal(result.limits.cpus.asked, 500);
});

test('run: a rich one has a cell', async () => {
  assert.equal((await client.run('6 * 7', { rich: true })).cell.value, '42');
});

test('run: further names of its files', async () => {
  const code = 'import os\nprint([name for name in ("/own/a", "/own/b") if os.path.exists(name) and os.path.samefile(name, "/mnt/data")])';
  assert.equal((await client.run(code, { dataTargets: ['/own/a'] })).stdout, "['/own/a']\n");
  assert.equal((await client.run(code)).stdout, '[]\n');
  assert.match((await rejected(client.run('1', { dataTargets: ['/mnt/data/..'] }))).message, /data target '\/mnt\/data\/\.\.': expected an absolute path/);
  assert.match((await rejected(client.session({ dataTargets: ['/usr'] }))).message, /data target '\/usr': the image has that path/);
  await withSession({ dataTargets: ['/own/b'] }, async (session) => {
    assert.equal((await session.run(code)).outputs[0].text, "['/own/b']\n");
    await session.upload('f', 'x');
    assert.equal((await session.run('open("/own/b/f").read()')).value, "'x'");
  });
});

test('run: an option that does not exist is a TypeError', async () => {
  for (const options of [{ polcy: 1 }, { dataDir: '/' }, { wall_ms: 1 }]) {
    const error = await rejected(client.run('1', options));
    assert.ok(error instanceof TypeError && error.message.includes(Object.keys(options)[0]), error);
  }
  assert.ok(await rejected(client.run(undefined)) instanceof TypeError);
});

test('run: many at once, each with its own answer', async () => {
  const results = await Promise.all([...Array(20).keys()].map((n) => client.run(`print(${n} ** 2)`)));
  assert.deepEqual(results.map((result) => Number(result.stdout)), [...Array(20).keys()].map((n) => n ** 2));
});

test('function: its value, by unix socket and TCP', async () => {
  for (const event of [null, 5, 'ä', [1, { a: null }], { env: { A: 'b' } }]) {
    assert.deepEqual(await client.function('f-1')(event), { event });
  }
  assert.deepEqual(await client.function('f-1')(), { event: null });
  assert.equal((await rejected(new Client(tcp.address, { token: tcp.token }).function('f-1')(5))).code, 'not_found');
  const [{ name, state, error }] = await client.functions();
  assert.deepEqual([name, state, error], ['f-1', 'ready', null]);
});

test('function: a secret is of one call', async () => {
  assert.equal(await client.function('f-1')('env', { env: { SECRET: 's' } }), 's');
  assert.equal(await client.function('f-1')('env'), null);
});

test('function: errors and limits', async () => {
  const error = await rejected(client.function('f-1')('fail'));
  assert.ok(error instanceof FunctionError && error instanceof HutchError, error);
  assert.equal(error.message, 'ValueError: no');
  assert.equal(error.result.stdout, 'printed\n');
  assert.equal((await client.function('f-1').call('sleep', { timeoutMs: 300 })).verdict, 'timeout');
  assert.equal((await client.function('f-1').call(3)).value.event, 3);
  assert.equal((await rejected(client.function('../run')(1))).code, 'not_found');
  assert.ok(await rejected(client.function('f-1')(1, { polcy: 1 })) instanceof TypeError);
});

test('function: an abort ends the call', async () => {
  const abort = new AbortController();
  const call = client.function('f-1')('sleep', { abortSignal: abort.signal });
  await until(async () => (await client.functions())[0].calls === 1);
  abort.abort(new Error('enough'));
  assert.equal((await rejected(call)).message, 'enough');
  await until(async () => (await client.functions())[0].calls === 0);
});

test('stream: output comes as it is made', async () => {
  const seen = { stdout: '', stderr: '' };
  const result = await client.run("import sys\nprint('one', flush=True)\nprint('two ü', file=sys.stderr)", {
    onOutput: (stream, text) => { seen[stream] += text; },
  });
  assert.deepEqual(seen, { stdout: 'one\n', stderr: 'two ü\n' });
  assert.equal(result.verdict, 'ok');
  assert.equal(result.stdout, '');
});

test('stream: events, the last of which is the result', async () => {
  const events = [];
  let text = '';
  for await (const { event, data } of client.stream("print('x')")) {
    events.push(event);
    text += data.text ?? data.verdict;
  }
  assert.ok(events.slice(0, -1).every((event) => event === 'output'), events); // in one piece or in more
  assert.equal(text, 'x\nok');
});

test('stream: a large one is whole', async () => {
  let size = 0;
  await client.run("print('x' * 3000000)", { onOutput: (_, text) => { size += text.length; } });
  assert.equal(size, 3000001);
});

test('stream: leaving the loop ends the run', async () => {
  for await (const { event } of client.stream(FOREVER)) {
    assert.equal(event, 'output');
    break;
  }
  await until(async () => await running() === 0);
});

test('stream: what onOutput throws ends the run and is thrown', async () => {
  const error = await rejected(client.run(FOREVER, { onOutput: () => { throw new RangeError('mine'); } }));
  assert.ok(error instanceof RangeError);
  await until(async () => await running() === 0);
});

test('abort: ends a run', async () => {
  const controller = new AbortController();
  const run = rejected(client.run(FOREVER, { abortSignal: controller.signal }));
  await until(async () => await running() === 1);
  controller.abort(new RangeError('mine'));
  assert.equal((await run).message, 'mine');
  await until(async () => await running() === 0);
});

test('abort: ends one that streams', async () => {
  const controller = new AbortController();
  const error = await rejected(client.run(FOREVER, { abortSignal: controller.signal, onOutput: () => controller.abort() }));
  assert.equal(error.name, 'AbortError');
  await until(async () => await running() === 0);
});

test('abort: before the call, nothing is asked', async () => {
  const error = await rejected(new Client('unix:/nowhere').run('1', { abortSignal: AbortSignal.abort(new RangeError('early')) }));
  assert.equal(error.message, 'early');
});

test('abort: interrupts a cell, and the session goes on', () => withSession({}, async (session) => {
  const controller = new AbortController();
  await rejected(session.run(`x = 7\n${FOREVER}`, { abortSignal: controller.signal, onOutput: () => controller.abort() }));
  assert.equal((await session.run('x')).value, '7');
}));

test('errors: have status, code, message and hint', async () => {
  const error = await rejected(client.run('1', { language: 'cobol' }));
  assert.ok(error instanceof HutchError && error instanceof Error);
  assert.deepEqual([error.name, error.status, error.code], ['HutchError', 400, 'invalid_request']);
  assert.match(error.message, /cobol/);
  assert.match(error.hint, /\.$/);
  assert.equal((await client.run('print(1)')).stdout, '1\n');
});

test('errors: a session that is not there, however it is named', async () => {
  for (const id of ['A'.repeat(21), '../run', 'a/b', 'ü']) {
    const error = await rejected(client.findSession(id).info());
    assert.deepEqual([error.status, error.code], [404, 'not_found']);
  }
});

test('errors: a server that is not there', async () => {
  const error = await rejected(new Client('unix:/nowhere/s').run('1'));
  assert.ok(error instanceof HutchError);
  assert.deepEqual([error.status, error.code], [0, 'connect_failed']);
  assert.match(error.message, /\/nowhere\/s.*hutch serve/);
});

test('errors: what is no address', () => {
  for (const text of ['https://localhost:1', 'localhost', 'http://localhost:1/v1', 'unix', '']) {
    assert.throws(() => new Client(text), TypeError, text);
  }
});

test('errors: a server that says nothing', async () => {
  const error = await rejected(new Client(undefined, { timeoutMs: 500 }).run(FOREVER));
  assert.equal(error.code, 'timeout');
  await until(async () => await running() === 0);
});

test('tcp: with its token', async () => {
  const one = new Client(tcp.address, { token: tcp.token });
  assert.equal((await one.run('print(6 * 7)')).stdout, '42\n');
  assert.equal((await new Client(`http://${tcp.address}`, { token: tcp.token }).run('print(1)')).stdout, '1\n');
});

test('tcp: without it, or with another', async () => {
  for (const token of [undefined, 'wrong']) {
    const error = await rejected(new Client(tcp.address, { token }).run('1'));
    assert.deepEqual([error.status, error.code], [401, 'unauthorized']);
  }
});

test('state: healthy, ready, pools', async () => {
  assert.equal(await client.isHealthy(), true);
  await until(() => client.isReady());
  const { pools, running: now } = await client.pools();
  assert.ok(pools.length >= 1 && pools.every((pool) => typeof pool.prepared === 'number'));
  assert.equal(typeof now, 'number');
});

test('modules: CommonJS has the same classes', async () => {
  const required = createRequire(import.meta.url)('hutch');
  assert.equal(required.Client, Client);
  assert.equal(required.HutchError, HutchError);
  assert.equal((await import('hutch')).default.Session, Session);
});

test('connections: one is kept, and closing it does no harm', async () => {
  const one = new Client(tcp.address, { token: tcp.token });
  await one.run('1');
  one.close();
  assert.equal((await one.run('print(2)')).stdout, '2\n');
});

test('session: cells share variables, and say what they are', () => withSession({}, async (session) => {
  await session.run('x = 20');
  const result = await session.run('print("out")\n2 * x + 2');
  assert.equal(result.value, '42');
  assert.equal(result.execution_count, 2);
  assert.equal(result.outputs[0].text, 'out\n');
  assert.equal((await session.run('1 / 0')).error.name, 'ZeroDivisionError');
  assert.ok((await client.sessions()).some(({ id }) => id === session.id));
}));

test('session: outputs come as they are made', () => withSession({}, async (session) => {
  const seen = [];
  const result = await session.run("print('a')\nfrom IPython.display import display, HTML\ndisplay(HTML('<b>'))\n6 * 7",
                                   { onOutput: (output) => seen.push(output) });
  assert.deepEqual(seen.map(({ kind }) => kind), ['stream', 'display', 'value']);
  assert.equal(seen[0].text, 'a\n');
  assert.equal(seen[1].data.data['text/html'], '<b>');
  assert.equal(seen[2].data.data['text/plain'], '42');
  assert.equal(result.value, '42');
}));

test('session: a cell with a time limit, a context, no history', () => withSession({}, async (session) => {
  assert.equal((await session.run('while True: pass', { timeoutMs: 300 })).verdict, 'timeout');
  await session.run('y = 1', { context: 'other' });
  assert.equal((await session.run('y')).error.name, 'NameError');
  const counted = (await session.run('1')).execution_count;
  await session.run('1', { storeHistory: false });
  assert.equal((await session.run('1', { silent: true })).value, null);
  assert.ok(counted >= 1);
}));

test('session: is interrupted', () => withSession({}, async (session) => {
  const interrupts = [];
  const result = await session.run(FOREVER, { onOutput: ({ kind }) => kind === 'stream' && interrupts.push(session.interrupt()) });
  assert.equal(await interrupts[0], true);
  assert.equal(result.interrupted, true);
  assert.equal(await session.interrupt(), false);
}));

test('session: is restarted, with its files', () => withSession({}, async (session) => {
  await session.run('x = 1\nopen("kept", "w").write("k")');
  await session.restart();
  assert.equal((await session.run('x')).error.name, 'NameError');
  assert.equal((await session.download('kept')).toString(), 'k');
}));

test('session: is paused and resumed', () => withSession({}, async (session) => {
  await session.run('1');
  await session.pause();
  assert.ok((await session.info()).now.paused_by);
  await session.resume();
  assert.equal((await session.info()).now.paused_by, null);
  assert.equal((await session.run('3')).value, '3');
}));

test('session: has another lifetime', () => withSession({ idleMs: 300000 }, async (session) => {
  assert.equal((await session.info()).idle_ms, 300000);
  const told = await session.setLifetime({ idleMs: 400000, lifetimeMs: 500000 });
  assert.deepEqual([told.idle_ms, told.lifetime_ms], [400000, 500000]);
}));

test('session: goes back to a checkpoint', () => withSession({ maxCheckpoints: 2 }, async (session) => {
  await session.run('x = 1\nopen("f", "w").write("old")');
  const saved = await session.checkpoint();
  await session.run('x = 2\nopen("f", "w").write("new")');
  await session.rollback(saved.id);
  assert.equal((await session.run('x')).value, '1');
  assert.equal((await session.download('f')).toString(), 'old');
  await session.drop(saved.id);
  const error = await rejected(session.rollback(saved.id));
  assert.equal(error.status, 409);
}));

test('session: has branches', () => withSession({ maxCheckpoints: 2 }, async (session) => {
  await session.run('x = 1');
  const branch = await session.fork();
  await session.run('x = 2');
  await session.switch(branch.id);
  assert.equal((await session.run('x')).value, '1');
  await session.switch();
  assert.equal((await session.run('x')).value, '2');
  await session.dropBranch(branch.id);
}));

test('session: is closed, and gone', async () => {
  const session = await client.session({ env: { W: 'x' } });
  assert.equal((await session.run('import os; os.environ["W"]')).value, "'x'");
  await session.close();
  assert.equal((await rejected(session.run('1'))).status, 404);
});

test('session: options that do not exist are a TypeError', async () => {
  assert.match((await rejected(client.session({ timeoutMs: 1 }))).message, /timeoutMs/);
  await withSession({}, async (session) => assert.ok(await rejected(session.run('1', { wall: 1 })) instanceof TypeError));
});

test('files: texts, bytes, names of all kinds', () => withSession({}, async (session) => {
  await session.run('1');
  for (const [name, content] of [['a.txt', 'ä'], ['d e/ü?#%.bin', Buffer.from([0, 255])], [Buffer.from([0xff]), 'raw']]) {
    await session.upload(name, content);
    assert.deepEqual(await session.download(name), Buffer.from(content));
  }
  const names = (await session.files()).map((file) => file.path_base64 ?? file.path).sort();
  assert.deepEqual(names, ['/w==', 'a.txt', 'd e/ü?#%.bin'].sort());
  await session.deleteFile('a.txt');
  assert.equal((await rejected(session.download('a.txt'))).status, 404);
  assert.equal((await rejected(session.deleteFile('../../x'))).status >= 400, true);
}));

test('files: streams up and down, and a part', () => withSession({}, async (session) => {
  await session.run('1');
  async function* pieces() {
    for (let n = 0; n < 50; n++) yield Buffer.alloc(100000, n);
  }
  assert.equal((await session.upload('big', pieces())).size, 5000000);
  let size = 0, sum = 0;
  for await (const piece of await session.downloadStream('big')) {
    size += piece.length;
    sum += piece[0];
  }
  assert.ok(size === 5000000 && sum > 0);
  await session.upload('web', Readable.toWeb(Readable.from([Buffer.from('0123456789')])));
  assert.equal((await session.download('web', { start: 3, end: 5 })).toString(), '345');
  await session.upload('blob', new Blob(['of ', 'parts']));
  assert.equal((await session.download('blob', { start: 3 })).toString(), 'parts');
  assert.equal((await rejected(session.download('web', { start: 100 }))).status, 416);
}));

test('files: an upload that breaks off leaves nothing', () => withSession({}, async (session) => {
  await session.run('1');
  async function* broken() {
    yield Buffer.alloc(100000);
    throw new RangeError('of the source');
  }
  assert.equal((await rejected(session.upload('half', broken()))).message, 'of the source');
  assert.deepEqual(await session.files(), []);
}));

test('files: one that is larger than the session may have', () => withSession({ dataBytes: 1 << 20 }, async (session) => {
  await session.run('1');
  async function* pieces() {
    for (let n = 0; n < 100; n++) yield Buffer.alloc(100000);
  }
  for (const content of [Buffer.alloc(10000000), pieces()]) {
    const error = await rejected(session.upload('large', content));
    assert.ok(error instanceof HutchError && error.code === 'body_too_large', error);
  }
  assert.deepEqual(await session.files(), []);
}));
