// @modelcontextprotocol/sdk 1.x: a client of the older revisions. Words: the command that is the server, or where it is.
// Prints one JSON object with what it has observed.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';

// "http" or "sse", a URL and a token; else the command that is the server.
function makeTransport(command, args) {
  const requestInit = { headers: { Authorization: `Bearer ${args[1]}` } };
  if (command === 'http') return new StreamableHTTPClientTransport(new URL(args[0]), { requestInit });
  if (command === 'sse') return new SSEClientTransport(new URL(args[0]), { requestInit });
  return new StdioClientTransport({ command, args, env: process.env, stderr: 'inherit' });
}

const [command, ...args] = process.argv.slice(2);
const transport = makeTransport(command, args);
const client = new Client({ name: 'hutch-test', version: '1' });
const seen = { errors: [], progress: [] };
client.onerror = (error) => seen.errors.push(String(error));

await client.connect(transport);
seen.server = client.getServerVersion();
seen.capabilities = client.getServerCapabilities();
seen.instructions = client.getInstructions();
seen.tools = (await client.listTools()).tools.map((tool) => tool.name);
await client.ping();

const call = (name, args, options) => client.callTool({ name, arguments: args }, undefined, options);

seen.value = await call('run_python', { code: 'x = 6\nprint("x is", x)\nx * 7' }); // checked by the client against outputSchema
seen.state = await call('run_python', { code: 'x' });
seen.error = await call('run_python', { code: '1/0' });
seen.plot = await call('run_python', { code: 'import matplotlib.pyplot as plt\nplt.plot([1, 3, 2])\nplt.show()' });
seen.command = await call('run_command', { command: 'echo from the shell; exit 3' });
seen.write = await call('write_file', { path: 'note.txt', content: 'from the client' });
seen.read = await call('read_file', { path: 'note.txt' });
seen.list = await call('list_files', {});
seen.unknown = await call('nothing', {}).then(() => null, (error) => error.code);

// The code goes on when the client has seen that it has begun.
const onStreamed = (progress) => {
  seen.progress.push(progress);
  if (seen.progress.length === 1) call('write_file', { path: 'go', content: '' });
};
const waiting = 'import os, time\nprint("begun")\nwhile not os.path.exists("go"): time.sleep(0.01)\nprint("done")';
seen.streamed = await call('run_python', { code: waiting }, { onprogress: onStreamed, resetTimeoutOnProgress: true });

const controller = new AbortController();
const cancelled = call('run_python', { code: 'print("begun")\nimport time; time.sleep(1000)' },
                       { signal: controller.signal, onprogress: () => controller.abort('stop') });
seen.cancelled = await cancelled.then(() => null, (error) => String(error));
seen.after = await call('run_python', { code: 'x' });

seen.timeout = await call('run_python', { code: 'import time; time.sleep(1000)' }, { timeout: 500 }).then(() => null, (error) => error.code);
seen.afterTimeout = await call('run_python', { code: 'x' });

const pid = transport.pid;
const begin = Date.now();
seen.session = transport.sessionId;
if (command === 'http') await transport.terminateSession();
await client.close();
seen.closeMs = Date.now() - begin;
if (pid) {
  try {
    process.kill(pid, 0);
    seen.isGone = false;
  } catch {
    seen.isGone = true;
  }
}
console.log(JSON.stringify(seen));
