"""clients/node/addon: the library in Node's process. It is built here, against the library of this build."""
import functools
import os
import re
import shutil
import subprocess

import pytest

import engine
import support
from test_node_client import HERE, SECONDS, has_packages, names_in, newer_node, outcomes_in

OWN = "library.test.mjs"
# Tests that ask a server, as well. Those of other servers, of functions, of processes and of connections are left out.
SHARED = ("client.test.mjs", "sandbox.test.mjs")
SERVERS = re.compile("function:|tcp:|connections:|errors: a server|processes:")


def rows():
    yield from ((OWN, name) for name in names_in(OWN))
    yield from ((file, name) for file in SHARED for name in names_in(file) if not SERVERS.match(name))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A project that has `hutch` among its packages, Node, and the addon."""
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
    for file in (OWN, "common.mjs", *SHARED):
        shutil.copy(os.path.join(HERE, file), folder)
    return folder, program, addon


@pytest.fixture(scope="module")
def outcomes(place):
    """outcomes(file) is {name: (passed, what was said)}, and all that was said."""
    folder, program, addon = place

    @functools.lru_cache(maxsize=None)
    def run(file):
        words = [program, "--test", "--test-reporter=tap"]
        if file in SHARED:
            words.append("--test-skip-pattern=/^(%s)/" % SERVERS.pattern)
        done = subprocess.run([*words, file], cwd=folder, timeout=SECONDS, check=False, text=True, capture_output=True,
                              env={**os.environ, **support.engine_env(HUTCH_NODE_ADDON=addon), "NODE_NO_WARNINGS": "1",
                                   "HUTCH_TEST_IN_PROCESS": "1"})
        return outcomes_in(done.stdout), done.stdout + done.stderr
    return run


@pytest.mark.parametrize("file,name", rows())
def test_library(outcomes, file, name):
    found, said = outcomes(file)
    assert name in found, said[-5000:]
    passed, lines = found[name]
    assert passed, "\n".join(lines)
