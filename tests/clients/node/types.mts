// Is compiled, and not run: the types of the package, as a caller of it has them. Each @ts-expect-error is a mistake that
// has to be one.
import type { Experimental_SandboxSession } from 'ai';
import { generateText, tool } from 'ai';
import hutch, { Client, ContainerStrategy, ExecutionEngine, HutchError, LanguageRegistry, SandboxSession,
                createCodeExecutionTool, type CellResult, type ExecutionResult, type LanguageConfig, type Result } from 'hutch';

const client = new Client('127.0.0.1:1', { token: 't' });
const result: Result = await client.run('1', { timeoutMs: 1, env: { A: 'b' }, abortSignal: AbortSignal.timeout(1),
                                               onOutput: (stream, text) => text.length + stream.length });
const verdict: 'ok' | 'error' | string = result.verdict;
for await (const event of client.stream('1')) {
  if (event.event === 'output') event.data.text.length;
  else event.data.verdict;
}
await client.run('1', { dataTargets: ['/workspace'] });
// @ts-expect-error
await client.session({ dataTargets: '/workspace' });
// @ts-expect-error
await client.run('1', { polcy: 1 });
// @ts-expect-error
await client.run(1);

const inside: Client = Client.inProcess({ image: 'python', zygotes: [{ name: 'a', modules: ['json'] }], fallback: false });
const how: 'library' | 'server' = inside.transport;
// @ts-expect-error
Client.inProcess({ polcy: 'default' });

const value: unknown = await client.function('f')({ a: 1 }, { env: { A: 'b' }, timeoutMs: 1 });
const called: Result = await client.function('f').call();
// @ts-expect-error
await client.function('f')(1, { polcy: 1 });
const session = await client.session({ maxCheckpoints: 2, memoryBytes: 1 });
const cell: CellResult = await session.run('1', { onOutput: (output) => output.kind === 'stream' && output.text });
await session.upload('a', new Blob([]));
const bytes: Buffer = await session.download(Buffer.from('a'), { start: 1 });
// @ts-expect-error
await client.session({ timeoutMs: 1 });

const sandbox: Experimental_SandboxSession = new SandboxSession(session);
const own: SandboxSession = await SandboxSession.open(client, { idleMs: 1 });

const { codeExecutionTool, executionEngine, cleanup } = createCodeExecutionTool({ defaultStrategy: 'per_session', client });
await generateText({ model: 'm', prompt: 'p', tools: { codeExecutionTool }, experimental_sandbox: sandbox });
const engine: ExecutionEngine = executionEngine;
const id: string = await engine.createSession({ strategy: ContainerStrategy.PER_SESSION, containerConfig: { image: 'x' } });
const done: ExecutionResult = await engine.executeCode(id, { language: 'python', code: '1', streamOutput: { stdout: (d) => d.length } });
// @ts-expect-error
await engine.createSession({ strategy: 'each' });
const ruby: LanguageConfig = {
  language: 'ruby', defaultImage: 'ruby', codeFilename: 'code.rb', prepareFiles: (options, directory) => { options.code; directory; },
  buildInlineCommand: () => ['ruby', 'code.rb'], buildRunAppCommand: (entry) => ['ruby', entry],
};
LanguageRegistry.register(ruby);
await cleanup(true);
try {
  await hutch.codeExecutionTool.execute({ language: 'python', code: '1' });
} catch (error) {
  if (error instanceof HutchError) console.log(error.status + 1, error.code.length, error.hint?.length);
}
void [verdict, cell, bytes, own, done, tool];
