"""Boots user-mode Linux and runs inside.py in it: the only lane where the memory, pids and cpu controllers of
cgroup v2 are certain to be there. HUTCH_UML_KERNEL names the kernel's program, HUTCH_UML_MODULES the folder of its
modules; tests/run sets them, and without them it is the one that is installed."""
import os
import re
import shutil

import pytest

import inside
import machine as uml
import support

HERE = os.path.dirname(os.path.abspath(__file__))
SECONDS = 560


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """What the machine printed, after it has powered off: {test: (word, text)}."""
    if "HUTCH_UML_KERNEL" in os.environ:
        kernel = uml.Kernel("given", os.environ["HUTCH_UML_KERNEL"], modules=os.environ["HUTCH_UML_MODULES"])
    else:
        support.need("uml")
        kernel = uml.Kernel("installed", shutil.which("linux.uml"), modules="/usr/lib/uml/modules")
    folder = str(tmp_path_factory.mktemp("uml"))
    shutil.copy(os.path.join(HERE, "inside.py"), folder)
    shutil.copy(os.path.join(HERE, "init.sh"), folder)
    # Another user reads them in there.
    parent = folder
    while parent != "/" and os.stat(parent).st_uid == os.geteuid():
        os.chmod(parent, os.stat(parent).st_mode & 0o7777 | 0o055 if parent == folder else os.stat(parent).st_mode & 0o7777 | 0o011)
        parent = os.path.dirname(parent)
    found = support.engine_env()
    text = uml.boot(kernel, os.path.join(folder, "init.sh"), folder, SECONDS, dir=folder, bin=os.path.abspath(support.HUTCH),
                    uid="%d" % test_uid(), modules=kernel.modules, many=os.path.abspath(support.program("warm_many")),
                    launcher=found["HUTCH_LAUNCHER"], policies=found["HUTCH_POLICY_DIR"])
    results = {match[1]: (match[0], match[2]) for match in
               re.findall(r"^UML (PASS|FAIL|SKIP) (\w+) [\d.]+ ?(.*)$", text, re.MULTILINE)}
    support.remove_tree(folder)
    return results, text


def test_uid():
    """Whom the tests run as in the machine: not root, and for root's lane nobody who owns anything."""
    return os.geteuid() if os.geteuid() else 65533


test_uid.__test__ = False


@pytest.mark.parametrize("name", inside.names())
def test_in_machine(machine, name):
    results, text = machine
    if name not in results:
        pytest.fail("no result; the machine said:\n" + text[-3000:])
    word, why = results[name]
    if word == "SKIP":
        pytest.skip(why)
    assert word == "PASS", why


def test_machine_ended_by_itself(machine):
    _, text = machine
    assert "UML done: 0" in text, text[-3000:]
