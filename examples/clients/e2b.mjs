// One question about a table, by E2B's SDK, which asks the server of E2B_API_URL and E2B_SANDBOX_URL.
//   E2B_API_URL=http://HOST:PORT E2B_SANDBOX_URL=http://HOST:PORT E2B_API_KEY=TOKEN node e2b.mjs TABLE
import { readFileSync } from 'node:fs';
import { Sandbox } from '@e2b/code-interpreter';

const question = 'How many lines of the table are there twice, and how many cells are empty?';
const code = `
import pandas as pd
table = pd.read_csv("table.csv")
print(table.duplicated().sum(), "lines are there twice,", table.isna().sum().sum(), "cells are empty")
`;

const sandbox = await Sandbox.create({ timeoutMs: 120_000 });
await sandbox.files.write('table.csv', readFileSync(process.argv[2], 'utf8'));
const { logs, error } = await sandbox.runCode(code);
await sandbox.kill();
if (error) throw new Error(error.traceback);
console.log(`  question: ${question}\n  answer:   ${logs.stdout.join('').trim()}`);
