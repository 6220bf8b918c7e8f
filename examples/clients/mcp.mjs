// One question about a table, by the Model Context Protocol: the SDK starts `hutch mcp`, whose tools a model would call.
//   node mcp.mjs hutch mcp --data DIRECTORY-OF-THE-TABLE
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';

const question = 'How many accidents were there, and how many of them in urban areas?';
const code = `
import pandas as pd
table = pd.read_csv("traffic_accidents.csv").drop_duplicates()
print(table.accidents.sum(), "accidents,", table.accidents[table.urban_area == 1].sum(), "of them in urban areas")
`;

const [command, ...args] = process.argv.slice(2);
const client = new Client({ name: 'hutch-example', version: '1' });
await client.connect(new StdioClientTransport({ command, args, env: process.env }));
const result = await client.callTool({ name: 'run_python', arguments: { code } });
await client.close();
if (result.isError) throw new Error(result.content[0].text);
console.log(`  question: ${question}\n  answer:   ${result.structuredContent.stdout.trim()}`);
