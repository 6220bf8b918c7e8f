"""examples/e2b, recorded, and examples/python: run as their README says, against a server and a model whose words are known."""
import hashlib
import os
import re
import shutil
import subprocess

import pytest

import gateway
import support
from gateway import Server

TOKEN = "e2b_" + "0d" * 20
CLIENTS = os.environ.get("HUTCH_TEST_CLIENTS") or os.path.join(support.TREE, "build", "clients")
EXAMPLES = os.path.join(support.TREE, "examples")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("examples")
    tokens = folder / "tokens"
    tokens.write_text("ada %s\n" % hashlib.sha256(TOKEN.encode()).hexdigest())
    tokens.chmod(0o600)
    with Server(folder, "--listen", "127.0.0.1:0", "--listen", "unix:" + gateway.socket_path(folder), "--tokens", str(tokens),
                image="python") as started:
        yield started


def miss(reason):
    (pytest.fail if support.STRICT else pytest.skip)(("strict: " if support.STRICT else "") + reason)


def read(*names):
    with open(os.path.join(EXAMPLES, *names), encoding="utf-8") as file:
        return file.read()


def test_recorded_session_of_e2b(server, tmp_path):
    """The record in the README, apart from the id; the plot is one."""
    folder = os.path.join(CLIENTS, "e2b")
    if not shutil.which("node") or not os.path.exists(os.path.join(folder, "installed.json")):
        miss("npm: its packages for tests/clients/e2b are not installed (make clients)")
    shutil.copy(os.path.join(EXAMPLES, "e2b", "session.mjs"), tmp_path)
    (tmp_path / "node_modules").symlink_to(os.path.join(folder, "node_modules"))
    url = "http://127.0.0.1:%d" % server.port()
    done = subprocess.run(["node", "session.mjs"], cwd=tmp_path, capture_output=True, text=True, timeout=gateway.SECONDS, check=False,
                          env={**os.environ, "E2B_API_URL": url, "E2B_SANDBOX_URL": url, "E2B_API_KEY": TOKEN})
    assert done.returncode == 0 and done.stderr == "", done.stderr
    recorded = read("e2b", "README.md").split("\n```\n")[2]

    def without_ids(text):
        return re.sub(r"\b[a-z2-7]{26}\b", "ID", text).rstrip()
    if os.environ.get("HUTCH_TEST_SHOW"):
        print(done.stdout)
    assert without_ids(done.stdout) == without_ids(recorded)
    with open(os.path.join(EXAMPLES, "e2b", "people.png"), "rb") as file:
        assert file.read(24) == (tmp_path / "people.png").read_bytes()[:24]  # as large as the one that was recorded
