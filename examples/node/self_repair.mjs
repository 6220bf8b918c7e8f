// A program by a model that has to work: what went wrong is told to the model, which has three tries.
//   node self_repair.mjs "Print the sum of the squares of 1 to 10."
import { Client } from 'hutch';

import { ask, codeOf } from './model.mjs';

const TRIES = 3;

const client = new Client();
const messages = [{ role: 'system', content: 'Answer with one Python program between ``` and nothing else.' },
                  { role: 'user', content: process.argv[2] }];

for (let n = 1; n <= TRIES; n++) {
  const message = await ask(messages);
  const result = await client.run(codeOf(message), { timeoutMs: 20000 });
  if (result.verdict === 'ok') {
    console.log(`try ${n}: ${result.stdout}`.trimEnd());
    process.exit(0);
  }
  const { error, message: said, exit_code: exitCode } = result;
  const why = error ? `${error.name}: ${error.value}` : said ?? `exit code ${exitCode}`;
  console.log(`try ${n}: ${why}`);
  messages.push(message, { role: 'user', content: `That failed:\n${result.stderr || why}\nMend it.` });
}
console.log(`no program worked in ${TRIES} tries`);
process.exit(1);
