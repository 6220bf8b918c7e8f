"""clients/node/addon: the library in Node's process. It is built here, against the library of this build."""
import os
import re
import subprocess

import pytest

import engine
import support
from test_node_client import HERE, SECONDS, has_packages, names_in, newer_node

FILE = "library.test.mjs"


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """{name: (passed, what was said)}."""
    program = newer_node() if has_packages() else None
    if not program:
        support.miss("npm: Node 22 is not among the packages for tests/clients/node (make clients)")
    folder = tmp_path_factory.mktemp("library")
    addon, library = str(folder / "hutch.node"), engine.library_path()
    headers = "-I%s -I%s" % (os.path.join(support.TREE, "runtime"), os.path.join(os.path.dirname(library), "..", "include"))  # or where it is installed
    words = ["make", "-s", "-C", os.path.join(support.TREE, "clients", "node", "addon"), "OUTPUT=" + addon,
             "NODE_INCLUDE=" + os.path.join(os.path.dirname(os.path.dirname(program)), "include", "node"),
             "HUTCH=%s %s -Wl,-rpath,%s" % (headers, library, os.path.dirname(library))]
    built = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert built.returncode == 0 and not built.stderr, built.stderr
    (folder / "node_modules").mkdir()
    (folder / "node_modules" / "hutch").symlink_to(os.path.join(support.TREE, "clients", "node"))
    (folder / FILE).write_text(open(os.path.join(HERE, FILE), encoding="utf-8").read())
    done = subprocess.run([program, "--test", "--test-reporter=tap", FILE], cwd=folder, timeout=SECONDS, check=False, text=True, capture_output=True,
                          env={**os.environ, **support.engine_env(HUTCH_NODE_ADDON=addon), "NODE_NO_WARNINGS": "1"})
    found, name = {}, None
    for line in done.stdout.splitlines():
        match = re.match(r"\s*(not ok|ok) \d+ - (.*?)(?: # .*)?$", line)
        if match:
            name = match.group(2)
            found[name] = (match.group(1) == "ok", [])
        elif name:
            found[name][1].append(line)
    return found, done.stdout + done.stderr


@pytest.mark.parametrize("name", names_in(FILE))
def test_library(outcomes, name):
    found, said = outcomes
    assert name in found, said[-5000:]
    passed, lines = found[name]
    assert passed, "\n".join(lines)
