// node check.mjs FOLDER - reads what `kubectl apply -f FOLDER` would send, and checks each object against the schema of its kind:
// types, ranges and what has to be there by the schemas of kubernetes-models, keys that no schema has by its types and TypeScript.
// Prints {objects, errors} as JSON.
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';
import { parseAllDocuments } from 'yaml';

const [folder] = process.argv.slice(2);
const found = { objects: [], errors: [] };
const lines = [];

for (const file of readdirSync(folder).filter((name) => /\.(ya?ml|json)$/.test(name)).sort()) {
  for (const document of parseAllDocuments(readFileSync(join(folder, file), 'utf8'), { uniqueKeys: true, strict: true })) {
    for (const error of [...document.errors, ...document.warnings]) found.errors.push(`${file}: ${error.message}`);
    const object = document.toJS();
    found.objects.push({ file, ...object });
    const module = `kubernetes-models/${object.apiVersion}/${object.kind}`;
    try {
      const Kind = (await import(module))[object.kind];
      new Kind(object).validate();
    } catch (error) {
      found.errors.push(`${file}: ${object.kind}: ${error.message}`);
    }
    const n = lines.length;
    lines.push(`/* ${file} */ import type { I${object.kind} as K${n} } from '${module}'; export const o${n}: K${n} = ${JSON.stringify(object)};`);
  }
}

// The file is nowhere but in memory, beside the packages.
const path = join(dirname(fileURLToPath(import.meta.url)), 'manifests.mts');
const options = { noEmit: true, strict: true, skipLibCheck: true, types: [], target: ts.ScriptTarget.ES2022,
                  module: ts.ModuleKind.NodeNext, moduleResolution: ts.ModuleResolutionKind.NodeNext };
const host = ts.createCompilerHost(options);
const { getSourceFile, fileExists, readFile } = host;
host.getSourceFile = (name, ...more) => (name === path ? ts.createSourceFile(name, lines.join('\n'), ts.ScriptTarget.ES2022) : getSourceFile(name, ...more));
host.fileExists = (name) => name === path || fileExists(name);
host.readFile = (name) => (name === path ? lines.join('\n') : readFile(name));
for (const { file, start, messageText } of ts.getPreEmitDiagnostics(ts.createProgram([path], options, host))) {
  const where = file ? file.text.split('\n')[file.getLineAndCharacterOfPosition(start).line].slice(3).split(' ')[0] : '';
  found.errors.push(`${where}: ${ts.flattenDiagnosticMessageText(messageText, ' ')}`);
}
console.log(JSON.stringify(found));
