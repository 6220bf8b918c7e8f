// A person reads each program before it runs.
//   node approval.mjs "Draw a histogram of 1000 random numbers, and say their mean."
import { createInterface } from 'node:readline/promises';

import { Client } from 'hutch';

import { ask, codeOf } from './model.mjs';

const code = codeOf(await ask([{ role: 'user', content: process.argv[2] }]));

/* What a terminal would obey is shown as text: the program is not to decide what its reader sees. */
console.log(code.replace(/[^\n\t -~\u00a1-\uffff]|[\u200b-\u200f\u202a-\u202e\u2066-\u2069]/g,
                         (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`));
const terminal = createInterface({ input: process.stdin, output: process.stdout });
const answer = await terminal.question('Run this? [y/N] ');
terminal.close();
if (answer.trim().toLowerCase() !== 'y') {
  console.log('It was not run.');
} else {
  const result = await new Client().run(code, { timeoutMs: 20000 });
  console.log(`${result.verdict}: ${result.stdout}${result.stderr}`.trimEnd());
}
