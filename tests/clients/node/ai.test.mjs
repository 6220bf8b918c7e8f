// The tool and the sandbox with the AI SDK, whose package $AI names: "ai" is 7, "ai6" is 6. The model is scripted.
import assert from 'node:assert/strict';
import test from 'node:test';

import { SandboxSession, createCodeExecutionTool } from 'hutch';

import { client } from './common.mjs';

const { generateText, jsonSchema, stepCountIs, isStepCount, tool } = await import(process.env.AI);
const mocks = await import(`${process.env.AI}/test`);
const Model = mocks.MockLanguageModelV4 ?? mocks.MockLanguageModelV3;
const steps = (isStepCount ?? stepCountIs)(6);
const usage = { inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 }, outputTokens: { total: 1, text: 1, reasoning: 0 } };

/** Says what @turns say, one after the other: a text, or the arguments of a call of @toolName. */
function model(toolName, turns) {
  let n = 0;
  return new Model({
    doGenerate: async () => {
      const turn = turns[n++];
      const isText = typeof turn === 'string';
      const content = isText ? { type: 'text', text: turn }
        : { type: 'tool-call', toolCallId: `call_${n}`, toolName, input: JSON.stringify(turn) };
      const why = isText ? 'stop' : 'tool-calls';
      return { content: [content], finishReason: { unified: why, raw: why }, usage, warnings: [] };
    },
  });
}

/** What the model was told of the tool's result, call by call. */
function toolMessages(asked) {
  return asked.doGenerateCalls.at(-1).prompt.filter(({ role }) => role === 'tool').map(({ content }) => content[0].output);
}

test('tool: the model is told its schema', async () => {
  const { codeExecutionTool } = createCodeExecutionTool({ client, languages: ['python'] });
  const asked = model('codeExecutionTool', ['nothing to do']);
  await generateText({ model: asked, prompt: 'x', tools: { codeExecutionTool }, stopWhen: steps });
  const [told] = asked.doGenerateCalls[0].tools;
  assert.equal(told.name, 'codeExecutionTool');
  assert.deepEqual(told.inputSchema.properties.language.enum, ['python']);
  assert.deepEqual(told.inputSchema.required, ['code', 'language']);
});

test('tool: code that fails is seen by the model, which mends it', async () => {
  const { codeExecutionTool } = createCodeExecutionTool({ client });
  const asked = model('codeExecutionTool', [{ language: 'python', code: '1 / 0' }, { language: 'python', code: 'print(42)' }, 'It is 42.']);
  const { text } = await generateText({ model: asked, prompt: 'x', tools: { codeExecutionTool }, stopWhen: steps });
  assert.equal(text, 'It is 42.');
  const [first, second] = toolMessages(asked);
  assert.equal(first.type, 'json');
  assert.match(first.value.stderr, /ZeroDivisionError/);
  assert.equal(second.value.stdout, '42\n');
});

test('tool: what is refused is an error that the model reads', async () => {
  const { codeExecutionTool } = createCodeExecutionTool({ client });
  const asked = model('codeExecutionTool', [{ language: 'javascript', code: '1' }, 'I cannot.']);
  await generateText({ model: asked, prompt: 'x', tools: { codeExecutionTool }, stopWhen: steps });
  const [told] = toolMessages(asked);
  assert.equal(told.type, 'error-text');
  assert.match(told.value, /image has no 'node'/);
});

test('tool: an abort of the conversation ends the code', async () => {
  const { codeExecutionTool, executionEngine } = createCodeExecutionTool({ client });
  const controller = new AbortController();
  const execute = executionEngine.executeCode.bind(executionEngine);
  const heard = [];
  executionEngine.executeCode = (id, options) => {
    assert.ok(options.abortSignal);
    const run = execute(id, { ...options, streamOutput: { stdout: () => controller.abort() } });
    heard.push(run.then(() => 'ended', (error) => error.name));
    return run;
  };
  const asked = model('codeExecutionTool', [{ language: 'python', code: 'import time\nprint("begun", flush=True)\ntime.sleep(1000)' }, 'no']);
  await generateText({ model: asked, prompt: 'x', tools: { codeExecutionTool }, stopWhen: steps, abortSignal: controller.signal }).catch(() => {});
  assert.deepEqual(await Promise.all(heard), ['AbortError']);
});

test('sandbox: a tool of anybody that takes one runs in hutch', { skip: process.env.AI === 'ai6' && 'AI SDK 6 has none' }, async () => {
  const sandbox = await SandboxSession.open(client);
  const shell = tool({
    description: 'Runs a command.',
    inputSchema: jsonSchema({ type: 'object', properties: { command: { type: 'string' } }, required: ['command'] }),
    execute: async ({ command }, { abortSignal, experimental_sandbox: given }) => {
      await given.writeTextFile({ path: 'in.txt', content: 'from the tool' });
      return given.run({ command, abortSignal });
    },
  });
  const asked = model('shell', [{ command: 'cat in.txt; uname -n >/dev/null; exit 2' }, 'done']);
  await generateText({ model: asked, prompt: 'x', tools: { shell }, stopWhen: steps, experimental_sandbox: sandbox });
  assert.deepEqual(toolMessages(asked)[0].value, { exitCode: 2, stdout: 'from the tool', stderr: '' });
  await sandbox.close();
});
