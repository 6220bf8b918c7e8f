// node suite.mjs PART - asks the server of E2B_API_URL and E2B_SANDBOX_URL for one part of the SDK, and tells what it has
// observed as one JSON object.
import { createHash } from "node:crypto";
import { Sandbox } from "@e2b/code-interpreter";

const seen = {};
const made = [];

async function make(options = {}) {
  const sandbox = await Sandbox.create({ timeoutMs: 120_000, ...options });
  made.push(sandbox);
  return sandbox;
}

async function failure(act) {
  try {
    await act();
    return null;
  } catch (error) {
    return { name: error.constructor.name, message: error.message };
  }
}

async function ids(query) {
  const pages = Sandbox.list({ query });
  const found = [];
  while (pages.hasNext) found.push(...(await pages.nextItems()));
  return found.map((sandbox) => sandbox.sandboxId);
}

const parts = {
  async control() {
    const sandbox = await make({ metadata: { k: "v", "a b": "c&d=é" }, envs: { A: "1" } });
    seen.id = sandbox.sandboxId;
    seen.listed = (await ids({ metadata: { k: "v", "a b": "c&d=é" }, state: ["running"] })).includes(seen.id);
    seen.listedOther = (await ids({ metadata: { k: "w" } })).includes(seen.id);
    seen.listedPaused = (await ids({ state: ["paused"] })).includes(seen.id);
    seen.info = await sandbox.getInfo();
    await sandbox.setTimeout(600_000);
    seen.later = (await sandbox.getInfo()).endAt - seen.info.endAt;
    seen.running = await sandbox.isRunning();
    seen.metrics = await sandbox.getMetrics();
    seen.fork = await failure(() => Sandbox.fork ? Sandbox.fork(seen.id) : sandbox.fork());
    seen.snapshot = await failure(() => sandbox.createSnapshot());
    seen.template = await failure(() => Sandbox.create("nobodys-template"));
    seen.killed = await sandbox.kill();
    seen.again = await Sandbox.kill(seen.id);
    seen.gone = await failure(() => Sandbox.getInfo(seen.id));
    seen.connectGone = await failure(() => Sandbox.connect(seen.id));
    seen.runningThen = await sandbox.isRunning();
  },

  async pause() {
    const sandbox = await make();
    await sandbox.runCode("x = 41; import os; pid = os.getpid()");
    await sandbox.files.write("kept.txt", "kept");
    seen.paused = await sandbox.pause();
    seen.pausedAgain = await sandbox.pause();
    seen.state = (await Sandbox.getInfo(sandbox.sandboxId)).state;
    seen.listed = (await ids({ state: ["paused"] })).includes(sandbox.sandboxId);
    seen.refused = await failure(() => sandbox.runCode("1"));
    const again = await Sandbox.connect(sandbox.sandboxId);
    seen.stateThen = (await again.getInfo()).state;
    seen.value = (await again.runCode("(x + 1, pid == os.getpid(), open('kept.txt').read())")).text;
  },

  async code() {
    const sandbox = await make({ envs: { A: "1" } });
    const heard = { stdout: [], stderr: [], results: [], errors: [] };
    const first = await sandbox.runCode("import sys\nprint('hello \\u00e9 \\U0001f600')\nprint('bad', file=sys.stderr)\n6 * 7", {
      onStdout: (line) => heard.stdout.push(line.line), onStderr: (line) => heard.stderr.push(line.line),
      onResult: (result) => heard.results.push(result.text), onError: (error) => heard.errors.push(error.name),
    });
    seen.first = { text: first.text, count: first.executionCount, logs: first.logs, error: first.error };
    seen.heard = heard;
    seen.state = (await sandbox.runCode("y = 'quoted'\ny")).text;
    const failed = await sandbox.runCode("1 / 0");
    seen.error = failed.error;
    seen.count = failed.executionCount;
    seen.env = (await sandbox.runCode("import os; (os.environ.get('A'), os.environ.get('B'))", { envs: { B: "2" } })).text;
    seen.envAfter = (await sandbox.runCode("os.environ.get('B')")).text ?? null;
    seen.html = (await sandbox.runCode("from IPython.display import HTML, JSON, display\ndisplay(JSON({'a': [1, 'ü']}))\nHTML('<b>ü</b>')")).results.map((r) => ({ html: r.html, json: r.json, main: r.isMainResult }));
    const plot = await sandbox.runCode("import matplotlib.pyplot as plt\nplt.plot([1, 2]); plt.show()\nx = 3\nx");
    seen.plot = plot.results.map((r) => ({ png: r.png ? Buffer.from(r.png, "base64").subarray(1, 4).toString() : null, text: r.text, extra: r.extra }));
    seen.input = (await sandbox.runCode("input()")).error?.name;
    seen.cwd = (await sandbox.runCode("open('/home/user/here.txt', 'w').write('1'); os.listdir('.')")).text;
    seen.language = await failure(() => sandbox.runCode("1", { language: "r" }));
    seen.python = (await sandbox.runCode("1 + 1", { language: "Python" })).text;
    seen.timeout = await failure(() => sandbox.runCode("import time\ntime.sleep(60)", { timeoutMs: 700 }));
    seen.afterTimeout = (await sandbox.runCode("6 * 7")).text;
    const both = await Promise.all([1, 2].map(() => sandbox.runCode("z = globals().get('z', 0) + 1; z")));
    seen.queued = both.map((execution) => execution.text).sort();
    seen.died = (await sandbox.runCode("os._exit(3)")).error;
    seen.afterDeath = (await sandbox.runCode("6 * 7")).text;
  },

  async bash() {
    const sandbox = await make({ envs: { A: "1" } });
    const language = "bash";
    let heard = "";
    const first = await sandbox.runCode("echo 'hello é'; echo bad >&2", { language, onStdout: (line) => (heard += line.line) });
    seen.first = { count: first.executionCount, logs: first.logs, heard };
    await sandbox.runCode("X=5; cd /tmp", { language });
    seen.state = (await sandbox.runCode("echo $PWD $X $A $B", { language, envs: { B: "2" } })).logs.stdout;
    seen.envAfter = (await sandbox.runCode("echo [$B]", { language })).logs.stdout;
    seen.error = (await sandbox.runCode("(exit 3)", { language })).error;
    const context = await sandbox.createCodeContext({ language, cwd: "/tmp" });
    seen.context = context;
    seen.cwd = (await sandbox.runCode("pwd; X=other", { context })).logs.stdout;
    seen.list = (await sandbox.listCodeContexts()).map((one) => [one.id, one.language]);
    await sandbox.restartCodeContext(context);
    seen.restarted = (await sandbox.runCode("echo [$X]", { context })).logs.stdout;
    await sandbox.removeCodeContext(context);
    seen.removed = await failure(() => sandbox.runCode("echo", { context }));
    seen.timeout = await failure(() => sandbox.runCode("sleep 60", { language, timeoutMs: 700 }));
    seen.afterTimeout = (await sandbox.runCode("echo [$X]", { language })).logs.stdout;
    await sandbox.runCode("echo made by bash > /home/user/made", { language });
    seen.files = await sandbox.files.read("made");
  },

  async contexts() {
    const sandbox = await make();
    const context = await sandbox.createCodeContext({ language: "python", cwd: "/tmp" });
    seen.context = context;
    await sandbox.runCode("x = 1");
    seen.other = (await sandbox.runCode("x", { context })).error?.name;
    await sandbox.runCode("x = 2", { context });
    seen.both = [(await sandbox.runCode("x")).text, (await sandbox.runCode("x", { context })).text];
    seen.cwd = (await sandbox.runCode("import os; os.getcwd()", { context })).text;
    seen.list = (await sandbox.listCodeContexts()).map((one) => one.id);
    await sandbox.restartCodeContext(context);
    seen.restarted = (await sandbox.runCode("x", { context })).error?.name;
    await sandbox.restartCodeContext(seen.list[0]);
    seen.mainRestarted = (await sandbox.runCode("x")).error?.name;
    await sandbox.removeCodeContext(context);
    seen.removed = await failure(() => sandbox.runCode("1", { context }));
    seen.listThen = (await sandbox.listCodeContexts()).map((one) => one.id);
    seen.removeMain = await failure(() => sandbox.removeCodeContext(seen.list[0]));
    seen.unknown = await failure(() => sandbox.restartCodeContext("nobodys"));
    seen.javascript = await failure(() => sandbox.createCodeContext({ language: "javascript" }));
  },

  async commands() {
    const sandbox = await make({ envs: { A: "1" } });
    const heard = [];
    const done = await sandbox.commands.run("echo out $A $Q; echo err >&2; pwd", { envs: { Q: "2" }, cwd: "/tmp", onStdout: (text) => heard.push(text) });
    seen.done = { stdout: done.stdout, stderr: done.stderr, exitCode: done.exitCode };
    seen.heard = heard.join("");
    seen.failed = await sandbox.commands.run("echo before; exit 3").catch((error) => ({ name: error.constructor.name, exitCode: error.exitCode, stdout: error.stdout }));
    seen.home = (await sandbox.commands.run("echo x > /home/user/made.txt; cat made.txt; ls")).stdout;
    const cat = await sandbox.commands.run("cat; echo end", { background: true, stdin: true });
    seen.listed = (await sandbox.commands.list()).map((one) => ({ same: one.pid === cat.pid, cmd: one.cmd, args: one.args }));
    await sandbox.commands.sendStdin(cat.pid, "typed\n");
    const other = await sandbox.commands.connect(cat.pid);
    await sandbox.commands.sendStdin(cat.pid, "more\n");
    await sandbox.commands.closeStdin(cat.pid);
    seen.cat = (await cat.wait()).stdout;
    seen.connected = (await other.wait()).stdout.endsWith("end\n");
    const sleeper = await sandbox.commands.run("sleep 1000", { background: true });
    await sleeper.disconnect();
    seen.goesOn = (await sandbox.commands.list()).some((one) => one.pid === sleeper.pid);
    seen.killed = await sandbox.commands.kill(sleeper.pid);
    const waited = await sandbox.commands.connect(sleeper.pid).then((one) => one.wait()).catch((error) => error.constructor.name);
    seen.waited = waited;
    seen.killedAgain = await sandbox.commands.kill(99999);
    seen.timeout = await failure(() => sandbox.commands.run("sleep 1000", { timeoutMs: 500 }));
    seen.missing = await failure(() => sandbox.commands.run("nothing-of-this-name"));
    seen.large = (await sandbox.commands.run("head -c 3000000 /dev/zero | tr '\\0' x")).stdout.length;
    seen.parallel = (await Promise.all([1, 2, 3].map((n) => sandbox.commands.run("echo " + n)))).map((one) => one.stdout);
  },

  async pty() {
    const sandbox = await make();
    let text = "";
    let wake = () => {};
    const until = async (word) => { while (!text.includes(word)) await new Promise((resolve) => { wake = resolve; setTimeout(resolve, 200); }); };
    const terminal = await sandbox.pty.create({ cols: 80, rows: 24, timeoutMs: 0, onData: (data) => { text += Buffer.from(data).toString(); wake(); } });
    await sandbox.pty.sendInput(terminal.pid, Buffer.from("stty size; echo be''gun\n"));
    await until("begun");
    await sandbox.pty.resize(terminal.pid, { cols: 100, rows: 30 });
    await sandbox.pty.sendInput(terminal.pid, Buffer.from("stty size; echo $TERM do''ne\n"));
    await until("done");
    seen.sizes = [text.includes("24 80"), text.includes("30 100"), text.includes("xterm-256color done")];
    await sandbox.pty.sendInput(terminal.pid, Buffer.from("exit 5\n"));
    seen.end = await terminal.wait().catch((error) => error.exitCode);
    const second = await sandbox.pty.create({ cols: 80, rows: 24, onData: () => {} });
    seen.killed = await sandbox.pty.kill(second.pid);
  },

  async files() {
    const sandbox = await make();
    const info = await sandbox.files.write("a.txt", "hello é");
    seen.written = { name: info.name, type: info.type, path: info.path };
    seen.read = await sandbox.files.read("a.txt");
    seen.inside = (await sandbox.commands.run("cat /home/user/a.txt")).stdout;
    seen.many = (await sandbox.files.write([{ path: "d/one", data: "1" }, { path: "/home/user/d/two", data: "22" }])).map((one) => one.path);
    seen.empty = (await sandbox.files.write("empty", ""), await sandbox.files.read("empty"));
    const bytes = Buffer.alloc(3_000_000, 7);
    await sandbox.files.write("large.bin", bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
    seen.large = createHash("sha256").update(await sandbox.files.read("large.bin", { format: "bytes" })).digest("hex") === createHash("sha256").update(bytes).digest("hex");
    await sandbox.files.write("octets", new Blob(["octets"]).stream(), { useOctetStream: true });
    seen.octets = await sandbox.files.read("octets");
    seen.missing = await failure(() => sandbox.files.read("nothing"));
    const outside = await sandbox.files.write([{ path: "/tmp/o/one", data: "1" }, { path: "between", data: "2" }, { path: "/tmp/o/two", data: "é".repeat(50_000) }]);
    seen.outside = [...outside.map((one) => one.path), await sandbox.files.read("/tmp/o/one"), (await sandbox.files.read("/tmp/o/two")).length];
    seen.refused = (await failure(() => sandbox.files.write("/usr/of-mine.txt", "x")))?.name;
    seen.tmpRead = (await sandbox.commands.run("echo outside > /tmp/x.txt"), await sandbox.files.read("/tmp/x.txt"));
    seen.traversal = await failure(() => sandbox.files.read("../../etc/passwd"));
    await sandbox.files.remove("between");
    seen.list = (await sandbox.files.list("/home/user")).map((one) => ({ name: one.name, type: one.type, size: one.size })).sort((a, b) => (a.name < b.name ? -1 : 1));
    seen.deep = (await sandbox.files.list("d", { depth: 2 })).map((one) => one.path).sort();
    seen.exists = [await sandbox.files.exists("a.txt"), await sandbox.files.exists("nothing"), await sandbox.files.exists("d")];
    const about = await sandbox.files.getInfo("a.txt");
    seen.info = { name: about.name, type: about.type, size: about.size, path: about.path, mode: about.mode, permissions: about.permissions, owner: about.owner, time: about.modifiedTime instanceof Date };
    seen.made = [await sandbox.files.makeDir("new/deep"), await sandbox.files.makeDir("new/deep")];
    const moved = await sandbox.files.rename("a.txt", "new/b.txt");
    seen.moved = [moved.path, await sandbox.files.exists("a.txt"), await sandbox.files.read("new/b.txt")];
    await sandbox.files.remove("new");
    seen.removed = [await sandbox.files.exists("new"), (await failure(() => sandbox.files.remove("new")))?.name];
    seen.tmp = (await sandbox.files.makeDir("/tmp/of-mine"), await sandbox.files.exists("/tmp/of-mine"));
    seen.denied = (await failure(() => sandbox.files.makeDir("/usr/of-mine")))?.name;
    seen.listMissing = (await failure(() => sandbox.files.list("nothing")))?.name;
    const heard = [], exits = [];
    const until = async (holds) => { while (!holds()) await new Promise((wake) => setTimeout(wake, 20)); };
    const handle = await sandbox.files.watchDir("d", (event) => heard.push(event.type + " " + event.name));
    await sandbox.files.write("d/three", "3");
    await until(() => heard.includes("write three"));
    await sandbox.commands.run("cd d; mv three four; chmod 600 four; rm four");
    await until(() => heard.includes("remove four"));
    await handle.stop();
    seen.watch = heard.filter((line) => line !== "chmod three");
    const gone = await sandbox.files.watchDir("/tmp/o", () => {}, { onExit: (error) => exits.push(String(error)) });
    await sandbox.files.remove("/tmp/o");
    await until(() => exits.length > 0);
    seen.watchGone = exits;
    seen.watchRefused = [(await failure(() => sandbox.files.watchDir("nothing", () => {})))?.name, (await failure(() => sandbox.files.watchDir("d", () => {}, { recursive: true })))?.message];
    seen.urls = {};
    const url = await sandbox.downloadUrl("d/two", { useSignatureExpiration: 60 });
    const headers = { "E2b-Sandbox-Id": sandbox.sandboxId, "E2b-Sandbox-Port": "49983" };
    const base = process.env.E2B_SANDBOX_URL + new URL(url).pathname + new URL(url).search;
    const got = await fetch(base, { headers });
    seen.urls.read = [got.status, await got.text()];
    seen.urls.forged = (await fetch(base.replace(/two/, "one"), { headers })).status;
    seen.urls.bare = (await fetch(process.env.E2B_SANDBOX_URL + "/files?path=d%2Ftwo", { headers })).status;
    const over = await sandbox.downloadUrl("d/two", { useSignatureExpiration: -60 });
    seen.urls.over = (await fetch(process.env.E2B_SANDBOX_URL + new URL(over).pathname + new URL(over).search, { headers })).status;
    const to = await sandbox.uploadUrl("up.txt", {});
    const form = new FormData();
    form.append("file", new Blob(["uploaded"]), "up.txt");
    seen.urls.write = (await fetch(process.env.E2B_SANDBOX_URL + new URL(to).pathname + new URL(to).search, { method: "POST", body: form, headers })).status;
    seen.urls.written = await sandbox.files.read("up.txt");
  },
};

try {
  await parts[process.argv[2]]();
} catch (error) {
  seen.crashed = String(error.stack);
} finally {
  for (const sandbox of made) await sandbox.kill().catch(() => {});
}
process.stdout.write(JSON.stringify(seen) + "\n", () => process.exit()); // a runCode() that is refused leaves its timer of 60 s
