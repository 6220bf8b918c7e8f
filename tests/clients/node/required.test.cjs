// The package from CommonJS.
'use strict';

const assert = require('node:assert/strict');
const test = require('node:test');

const { Client, HutchError, createCodeExecutionTool } = require('hutch');

test('require: a run over the unix socket', async () => {
  assert.equal((await new Client().run('print(6 * 7)')).stdout, '42\n');
});

test('require: a tool', async () => {
  const { codeExecutionTool, cleanup } = createCodeExecutionTool();
  assert.equal((await codeExecutionTool.execute({ language: 'python', code: 'print("t")' })).stdout, 't\n');
  await cleanup();
});

test('require: errors are of the same class as the imported ones', async () => {
  const imported = await import('hutch');
  await assert.rejects(new Client('unix:/nowhere').run('1'), imported.HutchError);
  assert.equal(imported.HutchError, HutchError);
});
