// openai, runTools, against a fake model whose first program fails. Words: the server's URL, the definitions of hutch tools,
// and the programs. Prints one JSON object with what the model was told.
import http from 'node:http';
import OpenAI from 'openai';

const [server, definitions, ...programs] = process.argv.slice(2);
const seen = { requests: [], results: [] };

const model = http.createServer((request, response) => {
  let body = '';
  request.on('data', (piece) => { body += piece; });
  request.on('end', () => {
    const asked = JSON.parse(body);
    seen.requests.push(asked.tools);
    const results = asked.messages.filter((message) => message.role === 'tool');
    seen.results = results.map((message) => message.content);
    const { name, parameters } = asked.tools[0].function;
    const program = programs[results.length];
    const call = { id: `call_${results.length}`, type: 'function', function: { name, arguments: JSON.stringify({ [parameters.required[0]]: program }) } };
    const message = program === undefined ? { role: 'assistant', content: 'done' } : { role: 'assistant', content: null, tool_calls: [call] };
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify({ id: 'x', object: 'chat.completion', created: 1, model: 'm',
      choices: [{ index: 0, message, finish_reason: program === undefined ? 'stop' : 'tool_calls' }] }));
  });
});
await new Promise((resolve) => { model.listen(0, '127.0.0.1', resolve); });

const tools = JSON.parse(definitions).map((tool) => ({ ...tool, function: { ...tool.function, function: async (text) => {
  const answer = await fetch(`${server}/v1/tools/${tool.function.name}`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: text });
  return answer.text();
} } }));
const client = new OpenAI({ apiKey: 'k', baseURL: `http://127.0.0.1:${model.address().port}/v1` });
seen.final = await client.chat.completions.runTools({ model: 'm', messages: [{ role: 'user', content: 'x' }], tools }).finalContent();
model.close();
console.log(JSON.stringify(seen));
