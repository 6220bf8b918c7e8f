// @anthropic-ai/sdk, toolRunner, against a fake model whose first program fails. It hands each call of the model on as it is,
// so the answer is the block that the model's API wants. Words and output as in openai.mjs.
import http from 'node:http';
import Anthropic from '@anthropic-ai/sdk';

const [server, definitions, ...programs] = process.argv.slice(2);
const seen = { requests: [], results: [], answers: [] };
let tool; // the conversation is the model's to keep: later requests have only what is new

const model = http.createServer((request, response) => {
  let body = '';
  request.on('data', (piece) => { body += piece; });
  request.on('end', () => {
    const asked = JSON.parse(body);
    tool = asked.tools ? asked.tools[0] : tool;
    seen.requests.push(asked.tools ?? null);
    const last = asked.messages[asked.messages.length - 1].content;
    seen.results.push(...(Array.isArray(last) ? last.filter((block) => block.type === 'tool_result') : []));
    const program = programs[seen.results.length];
    const use = { type: 'tool_use', id: `tu_${seen.results.length}`, name: tool.name, input: { [tool.input_schema.required[0]]: program } };
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify({ id: `msg_${seen.results.length}`, type: 'message', role: 'assistant', model: 'x', stop_sequence: null,
      content: program === undefined ? [{ type: 'text', text: 'done' }] : [use], stop_reason: program === undefined ? 'end_turn' : 'tool_use',
      usage: { input_tokens: 1, output_tokens: 1 } }));
  });
});
await new Promise((resolve) => { model.listen(0, '127.0.0.1', resolve); });

const tools = JSON.parse(definitions).map((definition) => ({ ...definition, type: 'custom', parse: (input) => input, run: async (input) => {
  const call = { type: 'tool_use', id: 'tu', name: definition.name, input };
  const answer = await fetch(`${server}/v1/tools`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(call) });
  const block = await answer.json();
  seen.answers.push(block);
  return block.content;
} }));
const client = new Anthropic({ apiKey: 'k', baseURL: `http://127.0.0.1:${model.address().port}` });
const runner = client.beta.messages.toolRunner({ model: 'x', max_tokens: 10, messages: [{ role: 'user', content: 'x' }], tools });
const final = await runner;
seen.final = final.content[0].text;
model.close();
console.log(JSON.stringify(seen));
