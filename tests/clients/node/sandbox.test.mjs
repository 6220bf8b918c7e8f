// SandboxSession: what AI SDK 7 calls a sandbox, over a session of hutch.
import assert from 'node:assert/strict';
import test from 'node:test';

import { SandboxSession } from 'hutch';

import { client, rejected, until } from './common.mjs';

async function withSandbox(use) {
  const sandbox = await SandboxSession.open(client);
  try {
    return await use(sandbox);
  } finally {
    await sandbox.close();
  }
}

async function text(stream) {
  let found = '';
  for await (const piece of stream) found += Buffer.from(piece).toString();
  return found;
}

test('run: output, exit code, environment, directory', () => withSandbox(async (sandbox) => {
  await sandbox.writeTextFile({ path: 'd/f', content: '' });
  const done = await sandbox.run({ command: 'ls; pwd; echo "$A" >&2; exit 4', workingDirectory: 'd', env: { A: 'b' } });
  assert.deepEqual(done, { exitCode: 4, stdout: 'f\n/mnt/data/d\n', stderr: 'b\n' });
  assert.equal((await sandbox.run({ command: 'kill -9 $$' })).exitCode, 137);
  assert.match((await rejected(sandbox.run({ command: 'ls', workingDirectory: 'none' }))).message, /run the command: .*none/s);
}));

test('run: an abort kills the command', () => withSandbox(async (sandbox) => {
  const controller = new AbortController();
  const run = rejected(sandbox.run({ command: 'touch begun; sleep 1000', abortSignal: controller.signal }));
  while (await client.findSession(sandbox.session.id).files().then((files) => !files.length)) await new Promise((go) => setTimeout(go, 50));
  controller.abort(new RangeError('mine'));
  assert.equal((await run).message, 'mine');
  await until(async () => (await sandbox.run({ command: 'grep -l sleep /proc/[0-9]*/comm | wc -l' })).stdout === '0\n');
}));

test('spawn: streams, wait and kill', () => withSandbox(async (sandbox) => {
  const short = await sandbox.spawn({ command: 'echo out; echo err >&2; exit 3' });
  assert.deepEqual(await Promise.all([text(short.stdout), text(short.stderr), short.wait()]), ['out\n', 'err\n', { exitCode: 3 }]);
  const long = await sandbox.spawn({ command: 'echo begun; sleep 1000' });
  const reader = long.stdout.getReader();
  assert.equal(Buffer.from((await reader.read()).value).toString(), 'begun\n');
  await long.kill();
  await long.kill();
  assert.deepEqual(await long.wait(), { exitCode: 137 });
  assert.equal((await reader.read()).done, true);
}));

test('spawn: an abort rejects wait with its reason', () => withSandbox(async (sandbox) => {
  const controller = new AbortController();
  const process = await sandbox.spawn({ command: 'echo begun; sleep 1000', abortSignal: controller.signal });
  await process.stdout.getReader().read();
  controller.abort(new RangeError('mine'));
  assert.equal((await rejected(process.wait())).message, 'mine');
}));

test('processes: standard input stays open where it is asked for', () => withSandbox(async (sandbox) => {
  const sorted = await sandbox.spawn({ command: 'sort; exit 5', stdin: true });
  const writer = sorted.stdin.getWriter();
  await writer.write(Buffer.from('b\n'));
  await writer.write(Buffer.alloc(1_500_000, 'a'));
  await writer.close();
  const [out, end] = await Promise.all([text(sorted.stdout), sorted.wait()]);
  assert.deepEqual([out.length, out.slice(-3), end], [1_500_003, '\nb\n', { exitCode: 5 }]);
  const without = await sandbox.spawn({ command: 'cat; echo end' });
  assert.equal(without.stdin, undefined);
  assert.equal(await text(without.stdout), 'end\n');
}));

test('processes: commands run at once, and beside cells', () => withSandbox(async (sandbox) => {
  const cell = sandbox.session.run('import time, os\nwhile not os.path.exists("b"): time.sleep(0.05)\n1');
  const first = sandbox.run({ command: 'while ! test -e a; do sleep 0.05; done; touch b; printf "\\303\\251\\377"' });
  assert.equal((await sandbox.run({ command: 'touch a; echo from b' })).stdout, 'from b\n');
  assert.deepEqual(await first, { exitCode: 0, stdout: 'é\ufffd', stderr: '' });
  assert.equal((await cell).value, '1');
}));

test('processes: commands of a session without are refused', async () => {
  const session = await client.session();
  const sandbox = new SandboxSession(session);
  assert.match((await rejected(sandbox.run({ command: 'ls' }))).message, /opened without max_processes/);
  assert.match((await rejected(session.spawn(['ls']))).message, /opened without max_processes/);
  await session.close();
});

test('processes: session.spawn has arguments, output, input, signals and ends', async () => {
  const session = await client.session({ maxProcesses: 4 });
  const done = await (await session.spawn(['sh', '-c', 'echo out "$A" "$1"; echo err >&2; pwd; exit 3', 'sh', 'b c'], { env: { A: 'a' }, cwd: '/tmp' })).wait();
  assert.deepEqual({ ...done, runMs: 0 }, { exitCode: 3, signal: null, message: null, truncated: false, runMs: 0, stdout: 'out a b c\n/tmp\n', stderr: 'err\n' });
  const heard = [];
  const cat = await session.spawn('cat; printf "\\377"', { stdin: true, onOutput: (stream, bytes) => heard.push(bytes) });
  await cat.write('typed é\n');
  await cat.closeStdin();
  assert.equal((await cat.wait()).stdout, undefined);
  assert.deepEqual(Buffer.concat(heard), Buffer.concat([Buffer.from('typed é\n'), Buffer.from([255])]));
  assert.equal((await rejected(cat.write('late'))).status, 404);
  let begun;
  const isBegun = new Promise((resolve) => { begun = resolve; });
  const sleeper = await session.spawn('echo begun; exec sleep 1000', { onOutput: begun });
  assert.equal(sleeper.id, 3);
  await isBegun;
  assert.equal(await sleeper.signal('SIGTERM'), true);
  const { exitCode, signal } = await sleeper.wait();
  assert.deepEqual([exitCode, signal, await sleeper.signal(9)], [null, 15, false]);
  const { message, exitCode: late } = await (await session.spawn('sleep 1000', { timeoutMs: 100 })).wait();
  assert.ok(late === null && message, message);
  assert.match((await (await session.spawn(['nonsuch'])).wait()).message, /nonsuch/);
  for (const [command, options] of [[5, {}], ['a', { x: 1 }]]) await assert.rejects(async () => session.spawn(command, options), TypeError);
  await session.close();
});

test('files: texts, bytes and streams', () => withSandbox(async (sandbox) => {
  await sandbox.writeTextFile({ path: 'a/b.txt', content: '1\nzwei ü\n3\n' });
  assert.equal(await sandbox.readTextFile({ path: '/mnt/data/a/b.txt' }), '1\nzwei ü\n3\n');
  assert.equal(await sandbox.readTextFile({ path: 'a/b.txt', startLine: 2, endLine: 2 }), 'zwei ü');
  assert.equal(await sandbox.readTextFile({ path: 'a/b.txt', startLine: 2, endLine: 99 }), 'zwei ü\n3');
  await sandbox.writeBinaryFile({ path: 'bin', content: new Uint8Array([0, 255]) });
  assert.deepEqual(await sandbox.readBinaryFile({ path: 'bin' }), new Uint8Array([0, 255]));
  await sandbox.writeFile({ path: 'bin', content: new Blob(['streamed']).stream() });
  assert.equal(await text(await sandbox.readFile({ path: 'bin' })), 'streamed');
  await sandbox.writeTextFile({ path: 'l', content: 'ü', encoding: 'latin1' });
  assert.equal(await sandbox.readTextFile({ path: 'l', encoding: 'latin1' }), 'ü');
  assert.equal((await sandbox.readBinaryFile({ path: 'l' })).length, 1);
}));

test('files: what is not there is null', () => withSandbox(async (sandbox) => {
  for (const act of ['readFile', 'readBinaryFile', 'readTextFile', 'stat', 'listDirectory']) {
    assert.equal(await sandbox[act]({ path: 'none' }), null, act);
  }
  assert.equal(await sandbox.deleteFile({ path: 'none' }), false);
}));

test('files: stat, list, delete', () => withSandbox(async (sandbox) => {
  await sandbox.writeTextFile({ path: 'd/f', content: 'four' });
  await sandbox.run({ command: 'mkdir d/sub; ln -s f d/link; mkfifo d/pipe' });
  assert.deepEqual(await sandbox.stat({ path: 'd/link' }), { type: 'file', size: 4 });
  assert.equal((await sandbox.stat({ path: 'd' })).type, 'directory');
  const entries = (await sandbox.listDirectory({ path: 'd' })).sort((a, b) => (a.name < b.name ? -1 : 1));
  assert.deepEqual(entries, [{ name: 'f', type: 'file' }, { name: 'link', type: 'symlink' }, { name: 'pipe', type: 'other' },
                             { name: 'sub', type: 'directory' }]);
  assert.equal(await sandbox.deleteFile({ path: 'd/link' }), true);
  assert.equal((await sandbox.stat({ path: 'd/f' })).size, 4);
  await rejected(sandbox.deleteFile({ path: 'd' }));
  await rejected(sandbox.listDirectory({ path: 'd/f' }));
  await rejected(sandbox.writeTextFile({ path: 'd', content: 'x' }));
}));

test('files: what lies elsewhere is refused', () => withSandbox(async (sandbox) => {
  for (const path of ['/etc/passwd', '../x', '/mnt/data']) {
    assert.match((await rejected(sandbox.readFile({ path }))).message, /not below \/mnt\/data/);
  }
}));

test('files: nothing is null when the session has gone', async () => {
  const sandbox = await SandboxSession.open(client);
  await sandbox.close();
  assert.equal((await rejected(sandbox.readFile({ path: 'x' }))).status, 404);
});
