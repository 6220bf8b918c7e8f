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
import support

SECONDS = 400  # for one file of tests
TOKEN = "a-long-and-random-token-of-these-tests"
HERE = os.path.join(support.TREE, "tests", "clients", "node")
CLIENTS = os.path.join(os.environ.get("HUTCH_TEST_CLIENTS") or os.path.join(support.TREE, "build", "clients"), "node")
HAS_SERVER = support.hutch("serve", "--help").returncode == 0
needs_server = pytest.mark.skipif(not HAS_SERVER, reason="this build has no `hutch serve`")


def miss(reason):
    (pytest.fail if support.STRICT else pytest.skip)(("strict: " if support.STRICT else "") + reason)


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
        self.usual = gateway.Server(folder, "--drain", "2s", "--data-target", "/workspace", "--data-target", "/app", image="python",
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


def rows(file):
    return pytest.mark.parametrize("name", names_in(file))


@pytest.fixture(scope="module")
def outcomes(servers, place):
    """outcomes(file) is {name: (passed, what was said)}."""
    @functools.lru_cache(maxsize=None)
    def run(file, program, **more):
        done = subprocess.run([program, "--test", "--test-reporter=tap", file], cwd=place, env={**servers.env(), **more},
                              capture_output=True, text=True, timeout=SECONDS, check=False)
        found, name = {}, None
        for line in done.stdout.splitlines():
            match = re.match(r"\s*(not ok|ok) \d+ - (.*?)(?: # .*)?$", line)
            if match:
                name = match.group(2)
                found[name] = (match.group(1) == "ok", [])
            elif name:
                found[name][1].append(line)
        return found, done.stdout + done.stderr
    return run


def check(outcomes, file, name, program=None, **more):
    found, said = outcomes(file, program or node(), **more)
    assert name in found, said[-5000:]
    passed, lines = found[name]
    assert passed, "\n".join(lines)


def needs_node():
    if not node():
        miss("node: Node 20 or newer is not installed")


def needs_packages():
    if not has_packages():
        miss("npm: its packages for tests/clients/node are not installed (make clients)")


@needs_server
@rows("client.test.mjs")
def test_client(outcomes, name):
    needs_node()
    check(outcomes, "client.test.mjs", name)


@needs_server
@rows("required.test.cjs")
def test_common_js(outcomes, name):
    needs_node()
    check(outcomes, "required.test.cjs", name)
