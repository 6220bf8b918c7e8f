// A sandbox from its beginning to its end, by E2B's SDK: what is done stands behind a $, what came back below.
//   E2B_API_URL=http://HOST:PORT E2B_SANDBOX_URL=http://HOST:PORT E2B_API_KEY=TOKEN node session.mjs
import { writeFileSync } from 'node:fs';
import { Sandbox } from '@e2b/code-interpreter';

const show = (what, came) => console.log(`$ ${what}\n${came}\n`);
const size = (png) => `a PNG of ${png.readUInt32BE(16)} x ${png.readUInt32BE(20)}`;

const sandbox = await Sandbox.create({ timeoutMs: 300_000, metadata: { who: 'ada' } });
show("Sandbox.create({ metadata: { who: 'ada' } })", sandbox.sandboxId);

const table = 'city,people\nOslo,709037\nBergen,291940\nTrondheim,212660\n';
const written = await sandbox.files.write('cities.csv', table);
show("files.write('cities.csv', table)", written.path);

const code = "import pandas as pd\ncities = pd.read_csv('cities.csv')\nprint(len(cities), 'cities')\nint(cities.people.sum())";
const sum = await sandbox.runCode(code);
show(`runCode(\`${code}\`)`, `${sum.logs.stdout.join('')}${sum.text}`);

const failed = await sandbox.runCode('cities.area');
show("runCode('cities.area')", `${failed.error.name}: ${failed.error.value}`);

const plot = await sandbox.runCode("cities.plot.bar(x='city', y='people', rot=0).figure.savefig('people.png');");
const png = Buffer.from(plot.results.find((result) => result.png).png, 'base64');
show("runCode(\"cities.plot.bar(x='city', y='people')...\")", size(png));

const command = await sandbox.commands.run('wc -l cities.csv && id -u && ls');
show("commands.run('wc -l cities.csv && id -u && ls')", `${command.stdout}exit code ${command.exitCode}`);

await sandbox.pause();
show('pause()', (await Sandbox.getInfo(sandbox.sandboxId)).state);

const again = await Sandbox.connect(sandbox.sandboxId);
const kept = await again.runCode('int(cities.people.max())');
show(`Sandbox.connect('${sandbox.sandboxId}'), runCode('int(cities.people.max())')`, kept.text);

const file = Buffer.from(await again.files.read('people.png', { format: 'bytes' }));
writeFileSync('people.png', file);
show("files.read('people.png')", size(file));

show('kill()', await again.kill());
show('getInfo()', await again.getInfo().then(() => 'there', (error) => error.constructor.name));
