"""clients/node: the tests in tests/clients/node, each a row here. They ask servers that are started for all of them."""
import functools
import hashlib
import json
import os
import re
import shutil
import subprocess

import pytest

import gateway
import model
import support

SECONDS = 400  # for one file of tests
TOKEN = "a-long-and-random-token-of-these-tests"
HERE = os.path.join(support.TREE, "tests", "clients", "node")
CLIENTS = os.path.join(os.environ.get("HUTCH_TEST_CLIENTS") or os.path.join(support.TREE, "build", "clients"), "node")
FILES = ("client.test.mjs", "wire.test.mjs", "required.test.cjs", "tools.test.mjs", "sandbox.test.mjs")
HAS_SERVER = support.hutch("serve", "--help").returncode == 0
needs_server = pytest.mark.skipif(not HAS_SERVER, reason="this build has no `hutch serve`")


@functools.lru_cache(maxsize=None)
def node():
    """The host's Node, when the package takes it."""
    found = shutil.which("node")
    said = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout if found else ""
    return found if said and int(said[1:].partition(".")[0]) >= 20 else None


def newer_node():
    """Node 22, of npm's, for packages that want it."""
    for machine in ("x64", "arm64"):
        path = os.path.join(CLIENTS, "node_modules", "node-linux-%s" % machine, "bin", "node")
        if os.path.exists(path):
            return path
    return None


def has_packages():
    return os.path.exists(os.path.join(CLIENTS, "installed.json"))


class Servers:
    """One on the usual socket below a directory of its own, for anybody who can connect; one on TCP with tokens."""

    def __init__(self, folder):
        self.runtime = folder / "r"
        (self.runtime / "hutch").mkdir(parents=True)
        tokens = folder / "tokens"
        tokens.write_text("ada %s\n" % hashlib.sha256(TOKEN.encode()).hexdigest())
        self.usual = gateway.Server(folder, "--drain", "2s", "--data-target", "/workspace", "--data-target", "/app", "--function",
                                    "f-1=%s" % os.path.join(HERE, "function.py"), image="python",
                                    env={"XDG_RUNTIME_DIR": str(self.runtime)})
        self.tcp = gateway.Server(folder, "--listen", "127.0.0.1:0", "--tokens", str(tokens), "--drain", "2s")

    def env(self):
        kept = {name: value for name, value in os.environ.items() if name != "HUTCH_SERVER"}
        return {**kept, "XDG_RUNTIME_DIR": str(self.runtime), "HUTCH_TEST_TCP": "127.0.0.1:%d" % self.tcp.port(),
                "HUTCH_TEST_TOKEN": TOKEN, "NODE_NO_WARNINGS": "1"}

    def stop(self):
        self.usual.stop()
        self.tcp.stop()


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    started = Servers(tmp_path_factory.mktemp("node"))
    yield started
    started.stop()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A project that has `hutch` among its packages, and what npm has installed for these tests."""
    folder = tmp_path_factory.mktemp("project")
    shutil.copytree(HERE, folder, dirs_exist_ok=True)
    shutil.copytree(os.path.join(support.TREE, "examples", "node"), folder / "examples")
    packages = folder / "node_modules"
    packages.mkdir()
    (packages / "hutch").symlink_to(os.path.join(support.TREE, "clients", "node"))
    if has_packages():
        for name in os.listdir(os.path.join(CLIENTS, "node_modules")):
            if not name.startswith("."):
                (packages / name).symlink_to(os.path.join(CLIENTS, "node_modules", name))
    return folder


# --------------------------------------------------------------------------------------------------
# The tests in JavaScript. A file is run once; each of its tests is a row.

def names_in(file):
    with open(os.path.join(HERE, file), encoding="utf-8") as text:
        return re.findall(r"^test\('((?:[^'\\]|\\.)+)'", text.read(), re.MULTILINE)


def outcomes_in(tap):
    """{name: (passed, what was said)}"""
    found, name = {}, None
    for line in tap.splitlines():
        match = re.match(r"\s*(not ok|ok) \d+ - (.*?)(?: # .*)?$", line)
        if match:
            name = match.group(2)
            found[name] = (match.group(1) == "ok", [])
        elif name:
            found[name][1].append(line)
    return found


@pytest.fixture(scope="module")
def outcomes(servers, place):
    """outcomes(file) is {name: (passed, what was said)}."""
    @functools.lru_cache(maxsize=None)
    def run(file, program, **more):
        done = subprocess.run([program, "--test", "--test-reporter=tap", file], cwd=place, env={**servers.env(), **more},
                              capture_output=True, text=True, timeout=SECONDS, check=False)
        return outcomes_in(done.stdout), done.stdout + done.stderr
    return run


def check(outcomes, file, name, program=None, **more):
    found, said = outcomes(file, program or node(), **more)
    assert name in found, said[-5000:]
    passed, lines = found[name]
    assert passed, "\n".join(lines)


def needs_node():
    if not node():
        support.miss("node: Node 20 or newer is not installed")


def needs_packages():
    if not has_packages():
        support.miss("npm: its packages for tests/clients/node are not installed (make clients)")


@needs_server
@pytest.mark.parametrize("file,name", [(file, name) for file in FILES for name in names_in(file)])
def test_client(outcomes, file, name):
    needs_node()
    check(outcomes, file, name)


@needs_server
@pytest.mark.parametrize("name", names_in("ai.test.mjs"))
@pytest.mark.parametrize("sdk", ["ai", "ai6"])
def test_ai_sdk(outcomes, sdk, name):
    needs_node()
    needs_packages()
    if sdk == "ai" and not newer_node():
        support.miss("npm: Node 22 is not among the packages for tests/clients/node")
    if sdk == "ai6" and name.startswith("sandbox:"):
        return  # AI SDK 6 has none
    check(outcomes, "ai.test.mjs", name, newer_node() if sdk == "ai" else node(), AI=sdk)


# --------------------------------------------------------------------------------------------------
# The package

@pytest.mark.parametrize("file", ["types.mts", "types.cts"])
def test_types(place, file):
    """TypeScript takes what is right, and refuses what is wrong, in both kinds of modules."""
    needs_node()
    needs_packages()
    done = subprocess.run([node(), os.path.join(str(place), "node_modules", "typescript", "bin", "tsc"), "--noEmit", "--strict", "--target",
                           "es2022", "--lib", "es2023,esnext.disposable,dom,dom.asynciterable", "--module", "nodenext",
                           "--skipLibCheck", "false" if file == "types.cts" else "true", "--types", "node", file],
                          cwd=place, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stdout


def test_package(tmp_path):
    """What npm packs is whole, has no dependencies, and can be required from where it was unpacked."""
    needs_node()
    if not shutil.which("npm"):
        support.miss("npm is not installed")
    source = os.path.join(support.TREE, "clients", "node")
    done = subprocess.run(["npm", "pack", "--json", "--pack-destination", str(tmp_path), source], capture_output=True, text=True,
                          env={**os.environ, "npm_config_cache": str(tmp_path / "cache")}, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    packed = json.loads(done.stdout)[0]
    libs = ["%s/%s" % (folder, name) for folder in ("lib", "addon") for name in os.listdir(os.path.join(source, folder)) if not name.endswith(".node")]
    assert sorted(file["path"] for file in packed["files"]) == sorted(
        ["README.md", "package.json", "index.js", "index.mjs", "index.d.ts", "index.d.mts", *libs])
    with open(os.path.join(source, "package.json"), encoding="utf-8") as text:
        assert not {"dependencies", "optionalDependencies", "scripts"} & set(json.load(text))
    shutil.unpack_archive(str(tmp_path / packed["filename"]), str(tmp_path))
    code = "const a = require(%r); import(%r).then((b) => console.log(a.Client === b.Client))" % (
        str(tmp_path / "package"), str(tmp_path / "package" / "index.mjs"))
    env = {name: value for name, value in os.environ.items() if name not in ("XDG_RUNTIME_DIR", "HUTCH_SERVER")}
    done = subprocess.run([node(), "-e", code], capture_output=True, text=True, env=env, timeout=SECONDS, check=False)
    assert (done.stdout, done.stderr) == ("true\n", "")  # without a server, too: it is asked when it is used


# --------------------------------------------------------------------------------------------------
# The examples, with a model whose first program fails

def run_example(servers, place, url, script, question, program=None, answer=""):
    return subprocess.run([program or node(), os.path.join("examples", script), question], cwd=place, input=answer, text=True,
                          env={**servers.env(), "MODEL_URL": url}, capture_output=True, timeout=SECONDS, check=False)


@needs_server
def test_example_tool(servers, place):
    needs_node()
    needs_packages()
    calls = [("codeExecutionTool", {"language": "python", "code": code}) for code in ("1 / 0", "print(6 * 7)")]
    with model.Model([*calls, "It is 42."]) as one:
        done = run_example(servers, place, one.url, "tool.mjs", "What is six times seven?", newer_node())
    assert done.returncode == 0, done.stderr
    assert done.stdout == "exit code 1: ZeroDivisionError: division by zero\nexit code 0: 42\nIt is 42.\n"
    assert one.asked[0]["tools"][0]["function"]["parameters"]["properties"]["language"]["enum"] == ["python"]
    told = [message for message in one.asked[-1]["messages"] if message["role"] == "tool"]
    assert "ZeroDivisionError" in told[0]["content"] and json.loads(told[1]["content"])["stdout"] == "42\n"


@needs_server
@pytest.mark.parametrize("programs,status,said", [
    (["```python\n1 / 0\n```", "```\nprint(385)\n```"], 0, "try 1: ZeroDivisionError: division by zero\ntry 2: 385\n"),
    (["x", "y", "z", "print(1)"], 1, "try 1: NameError: name 'x' is not defined\ntry 2: NameError: name 'y' is not defined\n"
                                     "try 3: NameError: name 'z' is not defined\nno program worked in 3 tries\n"),
])
def test_example_self_repair(servers, place, programs, status, said):
    needs_node()
    with model.Model(programs) as one:
        done = run_example(servers, place, one.url, "self_repair.mjs", "The sum of squares, please.")
    assert (done.returncode, done.stdout, done.stderr) == (status, said, "")
    assert len(one.asked) == (2 if status == 0 else 3)
    assert "Traceback" in one.asked[1]["messages"][-1]["content"]


@needs_server
@pytest.mark.parametrize("answer,said", [("y\n", "ok: 42"), ("n\n", "It was not run."), ("\n", "It was not run.")])
def test_example_approval(servers, place, answer, said):
    needs_node()
    with model.Model(["print(6 * 7)  # \x1b[2K\u202e"]) as one:
        done = run_example(servers, place, one.url, "approval.mjs", "Six times seven?", answer=answer)
    assert done.returncode == 0 and done.stdout.endswith(said + "\n"), done.stderr
    assert "print(6 * 7)  # \\u001b[2K\\u202e\nRun this? [y/N] " in done.stdout


# --------------------------------------------------------------------------------------------------
# The examples of the documentation

def examples():
    """(where, program, what it prints)"""
    for file in ("docs/clients.md", "clients/node/README.md"):
        with open(os.path.join(support.TREE, file), encoding="utf-8") as text:
            found = re.findall(r"^```js\n(.*?)^```\n\nprints\n\n```\n(.*?)^```", text.read(), re.DOTALL | re.MULTILINE)
        yield from ((file, code, said) for code, said in found)


@needs_server
@pytest.mark.parametrize("file,code,said", [pytest.param(*row, id="%s-%d" % (row[0], n)) for n, row in enumerate(examples())])
def test_documentation(servers, place, file, code, said):
    needs_node()
    script = place / ("%s.mjs" % file.replace("/", "-"))
    script.write_text(code)
    done = subprocess.run([node(), str(script)], cwd=place, env=servers.env(), capture_output=True, text=True, timeout=SECONDS,
                          check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, said, "")
