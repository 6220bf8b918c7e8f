'use strict';

const { HutchError } = require('./errors.js');

/* Programs of Python that are cells of a session. Each is one function, called with one text of JSON, so that nothing
 * of it stays among the session's variables but a name. What they answer comes from inside a sandbox: it can be
 * forged, and is taken for what the sandbox says of itself. */

const COMMAND = `
def _hutch_command(text):
    import json, os, signal, subprocess
    given = json.loads(text)
    # The shell's own ask for colours, as a kernel's do; what this prints is no terminal's.
    colours = ("CLICOLOR", "CLICOLOR_FORCE", "FORCE_COLOR")
    env = {**{name: value for name, value in os.environ.items() if name not in colours}, **given["env"]}
    if "MPLBACKEND" not in given["env"]:
        env["MPLBACKEND"] = "Agg"  # the session's own draws into cells
    process = subprocess.Popen(given["command"], cwd=given["directory"], env=env, stdin=subprocess.DEVNULL,
                               start_new_session=True)
    try:
        status = process.wait()
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    return status if status >= 0 else 128 - status
`;

const LOOK = `
def _hutch_look(text):
    import json, os, stat
    given, told = json.loads(text), None
    def kind(mode):
        return "file" if stat.S_ISREG(mode) else "directory" if stat.S_ISDIR(mode) else \\
            "symlink" if stat.S_ISLNK(mode) else "other"
    try:
        if given["act"] == "remove":
            os.unlink(given["path"])
            told = True
        elif given["act"] == "list":
            with os.scandir(given["path"]) as entries:
                told = [{"name": os.fsencode(entry.name).decode("utf-8", "replace"),
                         "type": kind(entry.stat(follow_symlinks=False).st_mode)} for entry in entries]
        else:
            found = os.stat(given["path"])
            told = {"type": kind(found.st_mode), "size": found.st_size}
    except FileNotFoundError:
        pass
    print(json.dumps(told))
`;

const CHECK = `
def _hutch_check(text):
    import importlib.metadata, importlib.util, json, os, re, shutil
    given, missing, places = json.loads(text), [], {}
    def has_module(name):
        name = re.match(r"[A-Za-z0-9._-]*", name).group()
        try:
            importlib.metadata.distribution(name)
            return True
        except Exception:
            module = name.replace("-", "_")
            return module.isidentifier() and importlib.util.find_spec(module) is not None
    for name in given["modules"]:
        if not has_module(name):
            missing.append(name)
    for name in given["programs"]:
        if not shutil.which(name):
            missing.append(name)
    for path in given["places"]:
        above = os.path.normpath(path)
        while above != "/" and not (os.path.isdir(above) and os.path.samefile(above, "/mnt/data")):
            above = os.path.dirname(above)
        places[path] = None if above == "/" else os.path.relpath(os.path.normpath(path), above)
    print(json.dumps({"missing": missing, "places": places}))
`;

/** The code of a cell that calls @program with @given. JSON of a JSON text is a literal of Python, too. */
function cell(program, given) {
  const name = /^def (\w+)/m.exec(program)[1];
  return `${program}\n${name}(${JSON.stringify(JSON.stringify(given))})`;
}

/** Runs a command in @session as a process of its own, and waits for it. What it prints goes to onOutput(stream, text);
 * the answer is {exitCode, message, files}: message is said where something other than the program ended it. */
async function runCommand(session, { command, directory = '/mnt/data', env = {}, timeoutMs, abortSignal, onOutput }) {
  const code = cell(COMMAND, { command, directory, env });
  const result = await session.run(code, {
    timeoutMs, abortSignal, storeHistory: false,
    onOutput: ({ kind, stream, text }) => kind === 'stream' && onOutput(stream, text),
  });
  if (result.verdict === 'ok' && /^\d+$/.test(result.value ?? '')) {
    return { exitCode: Number(result.value), message: null, files: result.files };
  }
  if (result.verdict === 'error' && !result.interrupted && result.error && !result.interpreter_died) {
    throw new HutchError(`run the command: ${result.error.name}: ${result.error.value}`, { code: 'command_failed' });
  }
  return { exitCode: result.verdict === 'timeout' ? 124 : 137, message: result.message ?? result.verdict,
           files: result.files };
}

async function ask(session, program, given, abortSignal) {
  const result = await session.run(cell(program, given), { abortSignal, storeHistory: false });
  if (result.verdict !== 'ok') {
    const { name, value } = result.error ?? { name: result.verdict, value: result.message };
    throw new HutchError(`look into the sandbox: ${name}: ${value}`, { code: 'command_failed' });
  }
  const text = result.outputs.filter((output) => output.name === 'stdout').map((output) => output.text).join('');
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new HutchError('the sandbox answered with what is no JSON', { code: 'invalid_answer', cause });
  }
}

/** @act: "stat" answers with {type, size}, "list" with a list of {name, type}, "remove", which is for what is no
 * directory, with true; all with null when nothing is at @path. */
function look(session, act, path, abortSignal) {
  return ask(session, LOOK, { act, path }, abortSignal);
}

/** {missing, places}: what of @modules and @programs is not there, and for each of @places its path below /mnt/data,
 * null where it is not below it. */
function check(session, { modules = [], programs = [], places = [] }, abortSignal) {
  return ask(session, CHECK, { modules, programs, places }, abortSignal);
}

module.exports = { runCommand, look, check };
