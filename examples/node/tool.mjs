// A model that runs code: the AI SDK with hutch's tool. The model sees what goes wrong, and tries again.
//   node tool.mjs "How many primes are there below 1000?"
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, isStepCount } from 'ai';
import { createCodeExecutionTool } from 'hutch';

const { MODEL_URL, MODEL = 'default', MODEL_KEY } = process.env;
const provider = createOpenAICompatible({ name: 'local', baseURL: MODEL_URL, apiKey: MODEL_KEY });
const { codeExecutionTool, cleanup } = createCodeExecutionTool({ languages: ['python'], timeout: 20000 });

const { text, steps } = await generateText({
  model: provider(MODEL),
  tools: { codeExecutionTool },
  stopWhen: isStepCount(6),
  prompt: process.argv[2],
});
for (const { toolResults } of steps) {
  for (const { output } of toolResults) {
    const said = (output.stdout || output.stderr).trim().split('\n').at(-1);
    console.log(`exit code ${output.exitCode}: ${said}`);
  }
}
console.log(text);
await cleanup();
