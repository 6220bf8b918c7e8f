// @modelcontextprotocol/client 2.x: a client of both eras. Words: "auto", "legacy" or a version to insist on, and the
// command that is the server, or where it is. Prints one JSON object with what it has observed.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

// "http", a URL and a token; else the command that is the server.
function makeTransport(command, args) {
  const requestInit = { headers: { Authorization: `Bearer ${args[1]}` } };
  if (command === 'http') return new StreamableHTTPClientTransport(new URL(args[0]), { requestInit });
  return new StdioClientTransport({ command, args, env: process.env, stderr: 'inherit' });
}

const [mode, command, ...args] = process.argv.slice(2);
const transport = makeTransport(command, args);
const client = new Client({ name: 'hutch-test', version: '1' },
                          { versionNegotiation: { mode: mode === 'auto' || mode === 'legacy' ? mode : { pin: mode } } });
const seen = { errors: [], progress: [] };
client.onerror = (error) => seen.errors.push(String(error));

await client.connect(transport);
seen.version = client.getNegotiatedProtocolVersion();
seen.server = client.getServerVersion();
seen.instructions = client.getInstructions();
seen.tools = (await client.listTools()).tools.map((tool) => tool.name);

// By HTTP the newer era has no session: the handle in a result is passed on, as the model is told to.
let handle;
const call = async (name, args, options) => {
  const more = handle ? { session_id: handle } : {};
  const result = await client.callTool({ name, arguments: { ...args, ...more } }, options);
  if (command === 'http' && seen.version !== '2025-11-25') handle ??= result.structuredContent?.session_id;
  return result;
};

seen.value = await call('run_python', { code: 'x = 6\nprint("x is", x)\nx * 7' });
seen.state = await call('run_python', { code: 'x' });
seen.error = await call('run_python', { code: '1/0' });
seen.plot = await call('run_python', { code: 'import matplotlib.pyplot as plt\nplt.plot([1, 3, 2])\nplt.show()' });
seen.unknown = await call('nothing', {}).then(() => null, (error) => error.code);
// The code goes on when the client has seen that it has begun.
const onStreamed = (progress) => {
  seen.progress.push(progress);
  if (seen.progress.length === 1) call('write_file', { path: 'go', content: '' });
};
const waiting = 'import os, time\nprint("begun")\nwhile not os.path.exists("go"): time.sleep(0.01)\nprint("done")';
seen.streamed = await call('run_python', { code: waiting }, { onprogress: onStreamed });

const controller = new AbortController();
const cancelled = call('run_python', { code: 'print("begun")\nimport time; time.sleep(1000)' },
                       { signal: controller.signal, onprogress: () => controller.abort('stop') });
seen.cancelled = await cancelled.then(() => null, (error) => String(error));
seen.after = await call('run_python', { code: 'x' });

await client.close();
console.log(JSON.stringify(seen));
