// One client of a running `hutch serve`: for each number on a line of stdin so many calls, one after the other, and
// their times as a line of JSON, {"ms": […]}. bench/gateway.py starts it by --eval where the client's packages are, so
// that they are found. Words: hutch INDEX ADDRESS, library INDEX IMAGE, e2b, or mcp URL TOKEN.
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';

const nothing = async () => {};

// A fresh sandbox for each, from a full pool.
function hello(client) {
  const settle = async () => {
    for (;;) {
      const { pools, running } = await client.pools();
      if (!running && pools.every((pool) => pool.ready && !pool.building)) return;
      await sleep(1);
    }
  };
  const call = async () => (await client.run("print('hello')")).stdout === 'hello\n';
  return { settle, call, close: async () => client.close() };
}

const makers = {
  async hutch(index, address) {
    const { Client } = await import(pathToFileURL(index).href);
    return hello(new Client(address));
  },
  // The same by the addon, with an engine in this process.
  async library(index, image) {
    const { Client } = await import(pathToFileURL(index).href);
    return hello(Client.inProcess({ image, layouts: 1, fallback: false }));
  },
  // A cell in one sandbox of E2B's.
  async e2b() {
    const { Sandbox } = await import('@e2b/code-interpreter');
    const sandbox = await Sandbox.create({ timeoutMs: 300_000 });
    const call = async () => (await sandbox.runCode('1+1')).text === '2';
    return { settle: nothing, call, close: () => sandbox.kill() };
  },
  // A cell by a tool of MCP's; the handle in a result is passed on, as a model does.
  async mcp(url, token) {
    const { Client, StreamableHTTPClientTransport } = await import('@modelcontextprotocol/client');
    const requestInit = { headers: { Authorization: `Bearer ${token}` } };
    const client = new Client({ name: 'hutch-bench', version: '1' }, { versionNegotiation: { mode: 'auto' } });
    await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit }));
    let handle;
    const call = async () => {
      const args = handle ? { code: '1+1', session_id: handle } : { code: '1+1' };
      const result = await client.callTool({ name: 'run_python', arguments: args });
      handle ??= result.structuredContent?.session_id;
      return result.structuredContent?.result === '2';
    };
    return { settle: nothing, call, close: () => client.close() };
  },
};

const [kind, ...words] = process.argv.slice(1);
const { settle, call, close } = await makers[kind](...words);
for await (const line of createInterface({ input: process.stdin })) {
  const ms = [];
  for (let i = 0; i < Number(line); i++) {
    await settle();
    const start = performance.now();
    const isRight = await call();
    ms.push(performance.now() - start);
    if (!isRight) throw new Error(`${kind}: a wrong answer`);
  }
  console.log(JSON.stringify({ ms }));
}
await close();
