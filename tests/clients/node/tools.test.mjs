// The face of interpreter-tools: ExecutionEngine, ContainerStrategy, LanguageRegistry, createCodeExecutionTool().
import assert from 'node:assert/strict';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import test from 'node:test';

import { ContainerStrategy, ExecutionEngine, HutchError, LanguageRegistry, createCodeExecutionTool,
         getImageForLanguage } from 'hutch';

import { client, rejected, until } from './common.mjs';

const FIELDS = ['stdout', 'stderr', 'dependencyStdout', 'dependencyStderr', 'exitCode', 'executionTime', 'workspaceDir',
                'generatedFiles', 'sessionGeneratedFiles'];

async function withEngine(strategy, use, containerConfig = {}) {
  const engine = new ExecutionEngine();
  try {
    return await use(engine, await engine.createSession({ strategy, containerConfig }));
  } finally {
    await engine.cleanup();
  }
}

function python(code, more) {
  return { language: 'python', code, ...more };
}

test('engine: a result has the nine fields', () => withEngine('per_execution', async (engine, id) => {
  const result = await engine.executeCode(id, python('import sys\nprint("out")\nprint("err", file=sys.stderr)\nsys.exit(3)'));
  assert.deepEqual(Object.keys(result).sort(), [...FIELDS].sort());
  assert.deepEqual([result.stdout, result.stderr, result.exitCode], ['out\n', 'err\n', 3]);
  assert.deepEqual([result.dependencyStdout, result.dependencyStderr], ['', '']);
  assert.equal(typeof result.executionTime, 'number');
  assert.ok(path.isAbsolute(result.workspaceDir));
}));

test('engine: streamOutput is called with strings as they come', () => withEngine('per_execution', async (engine, id) => {
  const seen = { stdout: '', stderr: '' };
  const result = await engine.executeCode(id, python('import sys\nprint("ä")\nprint("e", file=sys.stderr)', {
    streamOutput: { stdout: (data) => { seen.stdout += data; }, stderr: (data) => { seen.stderr += data; } },
  }));
  assert.deepEqual(seen, { stdout: 'ä\n', stderr: 'e\n' });
  assert.equal(result.stdout, 'ä\n');
}));

test('engine: environment of the container', () => withEngine('per_execution', async (engine, id) => {
  assert.equal((await engine.executeCode(id, python('import os; print(os.environ["A"])'))).stdout, 'b\n');
}, { environment: { A: 'b' } }));

test('engine: generated files lie on this machine', () => withEngine('per_execution', async (engine, id) => {
  const result = await engine.executeCode(id, python('import os; os.makedirs("o/p")\nopen("o/p/x", "w").write("made")'));
  assert.deepEqual(result.generatedFiles, [path.join(result.workspaceDir, 'o/p/x')]);
  assert.equal(fs.readFileSync(result.generatedFiles[0], 'utf8'), 'made');
  assert.equal((await engine.readFileBinary(id, 'o/p/x')).toString(), 'made');
  assert.equal(Buffer.from(await engine.readFileBase64(id, 'o/p/x'), 'base64').toString(), 'made');
}));

test('engine: links and pipes that code makes stay inside', () => withEngine('per_execution', async (engine, id) => {
  const result = await engine.executeCode(id, python(
    'import os\nos.symlink("/etc/passwd", "l")\nos.mkfifo("f")\nos.symlink("/tmp", "d")\nopen("plain", "w").close()'));
  assert.deepEqual(result.generatedFiles, [path.join(result.workspaceDir, 'plain')]);
  assert.deepEqual(fs.readdirSync(result.workspaceDir).sort(), ['code.py', 'plain']);
}));

test('engine: per_session keeps files, and each execution is a process', () => withEngine('per_session', async (engine, id) => {
  await engine.executeCode(id, python('open("kept", "w").write("k"); x = 1'));
  const second = await engine.executeCode(id, python('print(open("kept").read(), "x" in globals())\nopen("more", "w").close()'));
  assert.equal(second.stdout, 'k False\n');
  assert.deepEqual(second.sessionGeneratedFiles.map((file) => path.basename(file)).sort(), ['kept', 'more']);
  const third = await engine.executeCode(id, python('import os; os.remove("kept")'));
  assert.deepEqual(third.generatedFiles.map((file) => path.basename(file)), ['more']);
  assert.equal(third.sessionGeneratedFiles.length, 2);
}));

test('engine: per_execution and pool begin anew', async () => {
  for (const strategy of [ContainerStrategy.PER_EXECUTION, ContainerStrategy.POOL]) {
    await withEngine(strategy, async (engine, id) => {
      await engine.executeCode(id, python('open("kept", "w").close()'));
      assert.equal((await engine.executeCode(id, python('import os; print(os.listdir())'))).stdout, "['code.py']\n");
    });
  }
});

test('engine: files are put into the workspace, which has its usual name', () => withEngine('per_session', async (engine, id) => {
  await engine.addFileFromBase64(id, 'notes/hello.txt', Buffer.from('hi there').toString('base64'));
  const source = path.join(fs.mkdtempSync(path.join(os.tmpdir(), 'hutch-test-')), 'x');
  fs.writeFileSync(source, 'copied');
  await engine.copyFileIntoWorkspace(id, source, 'c.txt');
  fs.rmSync(path.dirname(source), { recursive: true });
  const result = await engine.executeCode(id, python('print(open("/workspace/notes/hello.txt").read(), open("c.txt").read())'));
  assert.equal(result.stdout, 'hi there copied\n', result.stderr);
  assert.deepEqual(result.generatedFiles, []);
  assert.ok((await engine.listWorkspaceFiles(id)).includes(path.join(result.workspaceDir, 'c.txt')));
  await assert.rejects(engine.addFileFromBase64(id, '../out', ''), TypeError);
}));

test('engine: a directory is mounted as a copy, below the names that the server gives', async () => {
  const source = fs.mkdtempSync(path.join(os.tmpdir(), 'hutch-test-'));
  fs.mkdirSync(path.join(source, 'sub'));
  fs.writeFileSync(path.join(source, 'sub', 'a.json'), '{"a": 1}');
  for (const target of ['/app/data', '/workspace/data', '/mnt/data/data', 'data']) {
    await withEngine('per_session', async (engine, id) => {
      const where = target.startsWith('/') ? target : `/workspace/${target}`;
      const result = await engine.executeCode(id, python(`print(open("${where}/sub/a.json").read())`));
      assert.equal(result.stdout, '{"a": 1}\n', result.stderr);
    }, { mounts: [{ type: 'directory', source, target }] });
  }
  await withEngine('per_session', async (engine, id) => {
    const error = await rejected(engine.executeCode(id, python('1')));
    assert.match(error.message, /no place at '\/opt\/data'.*--data-target/);
  }, { mounts: [{ type: 'directory', source, target: '/opt/data' }] });
  fs.rmSync(source, { recursive: true });
});

test('engine: runApp brings a directory', async () => {
  const cwd = fs.mkdtempSync(path.join(os.tmpdir(), 'hutch-test-'));
  fs.writeFileSync(path.join(cwd, 'main.py'), 'import part\nprint(part.x)');
  fs.writeFileSync(path.join(cwd, 'part.py'), 'x = 42');
  await withEngine('per_execution', async (engine, id) => {
    const result = await engine.executeCode(id, { language: 'python', runApp: { cwd, entryFile: 'main.py' } });
    assert.equal(result.stdout, '42\n', result.stderr);
  });
  fs.rmSync(cwd, { recursive: true });
});

test('engine: shell scripts by their first line', () => withEngine('per_execution', async (engine, id) => {
  const code = '#!/bin/bash\n[ -n "$BASH_VERSION" ] && echo bash; exit 5';
  const result = await engine.executeCode(id, { language: 'shell', code });
  assert.deepEqual([result.stdout, result.exitCode], ['bash\n', 5]);
  assert.equal((await engine.executeCode(id, { language: 'shell', code: 'echo plain' })).stdout, 'plain\n');
}));

test('engine: languages that hutch or the image has not are refused in one sentence', () => withEngine('per_session', async (engine, id) => {
  for (const [language, words] of [['javascript', /image has no 'node'/], ['typescript', /no language 'typescript'/],
                                   ['cobol', /no language 'cobol' here: there are javascript/]]) {
    const error = await rejected(engine.executeCode(id, { language, code: '1' }));
    assert.ok(error instanceof HutchError && error.code === 'not_supported', error);
    assert.match(error.message, words);
    assert.doesNotMatch(error.message, /\n/);
  }
}));

test('engine: dependencies that are there are nothing, others are refused', () => withEngine('per_session', async (engine, id) => {
  const result = await engine.executeCode(id, python('import numpy; print(numpy.arange(3).sum())', { dependencies: ['numpy', 'scikit-learn'] }));
  assert.equal(result.stdout, '3\n', result.stderr);
  const error = await rejected(engine.executeCode(id, python('1', { dependencies: ['numpy', 'nothing-of-it'] })));
  assert.match(error.message, /has no 'nothing-of-it', and nothing is installed/);
  assert.match((await rejected(engine.executeCode(id, { language: 'shell', code: '1', dependencies: ['curl'] }))).message, /'curl'/);
}));

test('engine: limits of one execution', () => withEngine('per_execution', async (engine, id) => {
  const result = await engine.executeCode(id, python('x = bytearray(300 << 20)\nprint(len(x))', { memoryLimit: '128m', cpuLimit: '0.5' }));
  assert.notEqual(result.exitCode, 0);
  assert.equal((await engine.executeCode(id, python('print(1)', { memoryLimit: '256m' }))).stdout, '1\n');
  await assert.rejects(engine.executeCode(id, python('1', { memoryLimit: 'much' })), TypeError);
}));

test('engine: a time limit', () => withEngine('per_session', async (engine, id) => {
  const result = await engine.executeCode(id, python('print("begun", flush=True)\nwhile True: pass', { timeout: 2000 }));
  assert.equal(result.exitCode, 124);
  assert.match(result.stderr, /hutch: .*2000 ms/);
  assert.equal((await engine.executeCode(id, python('print("after")'))).stdout, 'after\n');
}));

test('engine: an abort ends the execution and its process', () => withEngine('per_session', async (engine, id) => {
  const controller = new AbortController();
  const streamOutput = { stdout: () => controller.abort() };
  const code = 'import time\nprint("begun", flush=True)\nwhile True: time.sleep(0.01)';
  const error = await rejected(engine.executeCode(id, python(code, { abortSignal: controller.signal, streamOutput })));
  assert.equal(error.name, 'AbortError');
  const left = `import os
def command_line(pid):
    try:
        return open(f"/proc/{pid}/cmdline", "rb").read()
    except OSError:  # it has ended since
        return b""
print([p for p in os.listdir("/proc") if p.isdigit() and int(p) != os.getpid() and b"code.py" in command_line(p)])`;
  assert.equal((await engine.executeCode(id, python(left))).stdout, '[]\n');
}));

test('engine: cleaning up ends sandboxes and removes files', async () => {
  const engine = new ExecutionEngine({ client });
  const id = await engine.createSession({ strategy: 'per_session', containerConfig: {}, sessionId: 'mine' });
  assert.equal(id, 'mine');
  const { generatedFiles, workspaceDir } = await engine.executeCode(id, python('open("g", "w").write("g")'));
  const info = await engine.getSessionInfo(id);
  assert.equal(info.sessionId, 'mine');
  assert.ok(info.currentContainer.meta.isRunning && info.lastExecutedAt instanceof Date && info.isActive === false);
  const sandbox = info.currentContainer.meta.containerId;
  await engine.cleanupSession(id, true);
  await until(async () => !(await client.sessions()).some((session) => session.id === sandbox));
  assert.equal(fs.readFileSync(generatedFiles[0], 'utf8'), 'g');
  assert.deepEqual(fs.readdirSync(workspaceDir), ['g']);
  fs.rmSync(workspaceDir, { recursive: true });
  await assert.rejects(engine.executeCode(id, python('1')), HutchError);
  await engine.createSession({ strategy: 'per_session', containerConfig: {}, sessionId: 'mine' });
  const second = await engine.executeCode('mine', python('1'));
  await engine.cleanup();
  assert.equal(fs.existsSync(second.workspaceDir), false);
});

test('registry: names, images, and a language of the caller', async () => {
  assert.deepEqual(LanguageRegistry.names().slice(0, 4), ['javascript', 'typescript', 'python', 'shell']);
  assert.equal(getImageForLanguage('python'), LanguageRegistry.get('python').defaultImage);
  assert.equal(LanguageRegistry.list().length, LanguageRegistry.names().length);
  LanguageRegistry.register({
    language: 'perl', defaultImage: 'perl:5', codeFilename: 'code.pl',
    prepareFiles: (options, directory) => fs.writeFileSync(path.join(directory, 'code.pl'), options.code),
    buildInlineCommand: () => ['sh', '-c', 'perl code.pl'],
    buildRunAppCommand: (entry) => ['sh', '-c', `perl ${entry}`],
  });
  await withEngine('per_execution', async (engine, id) => {
    assert.equal((await engine.executeCode(id, { language: 'perl', code: 'print 6 * 7' })).stdout, '42');
  });
  const { codeExecutionTool } = createCodeExecutionTool();
  assert.ok(codeExecutionTool.parameters.properties.language.enum.includes('perl'));
});

test('tool: has one schema under both names', () => {
  const { codeExecutionTool } = createCodeExecutionTool({ languages: ['python'] });
  assert.equal(codeExecutionTool.parameters, codeExecutionTool.inputSchema);
  const plain = JSON.parse(JSON.stringify(codeExecutionTool.parameters));
  assert.equal(plain.type, 'object');
  assert.deepEqual(Object.keys(plain).sort(), ['additionalProperties', 'properties', 'required', 'type']);
  assert.deepEqual(plain.properties.language.enum, ['python']);
  assert.ok(codeExecutionTool.description);
});

test('tool: executes, and cleans up after itself', async () => {
  const { codeExecutionTool, cleanup } = createCodeExecutionTool();
  const result = await codeExecutionTool.execute(python('import os\nprint(os.environ["E"])\n1 / 0', { environment: { E: 'v' } }));
  assert.equal(result.stdout, 'v\n');
  assert.match(result.stderr, /ZeroDivisionError/);
  assert.equal(result.exitCode, 1);
  assert.equal(fs.existsSync(result.workspaceDir), false);
  await cleanup();
});

test('tool: honours abortSignal', async () => {
  const { codeExecutionTool } = createCodeExecutionTool();
  const controller = new AbortController();
  const code = 'import time\nprint("begun", flush=True)\nwhile True: time.sleep(0.01)';
  const streamOutput = { stdout: () => controller.abort(new RangeError('mine')) };
  const error = await rejected(codeExecutionTool.execute(python(code, { streamOutput }), { abortSignal: controller.signal }));
  assert.equal(error.message, 'mine');
});

test('tool: a model does not choose directories of this machine', async () => {
  const { codeExecutionTool } = createCodeExecutionTool();
  const error = await rejected(codeExecutionTool.execute({ language: 'python', code: '', runApp: { cwd: '/etc', entryFile: 'x' } }));
  assert.match(error.message, /'\/etc'.*not among the mounts/);
});

test('tool: arguments that a model got wrong are a sentence', async () => {
  const { codeExecutionTool } = createCodeExecutionTool({ languages: ['python'] });
  assert.match((await rejected(codeExecutionTool.execute({ language: 'shell', code: '1' }))).message, /language is one of python/);
  assert.match((await rejected(codeExecutionTool.execute(python('1', { dependencies: 'x' })))).message, /dependencies is a list/);
});
