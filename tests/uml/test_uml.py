"""Boots user-mode Linux and runs inside.py in it: the only lane where the memory, pids and cpu controllers of
cgroup v2 are certain to be there, and where Landlock is certain not to be."""
import importlib.util
import os
import re
import shutil
import subprocess

import pytest

import support

HERE = os.path.dirname(os.path.abspath(__file__))
SECONDS = 240

_spec = importlib.util.spec_from_file_location("inside", os.path.join(HERE, "inside.py"))
inside = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(inside)


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """What the machine printed, after it has powered off: {test: (word, text)}."""
    support.need("uml")
    folder = str(tmp_path_factory.mktemp("uml"))
    shutil.copy(os.path.join(HERE, "inside.py"), folder)
    shutil.copy(os.path.join(HERE, "init.sh"), folder)
    # Another user reads them in there.
    parent = folder
    while parent != "/" and os.stat(parent).st_uid == os.geteuid():
        os.chmod(parent, os.stat(parent).st_mode & 0o7777 | 0o055 if parent == folder else os.stat(parent).st_mode & 0o7777 | 0o011)
        parent = os.path.dirname(parent)
    words = ["linux.uml", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "rw", "mem=2G",
             "init=" + os.path.join(folder, "init.sh"), "con=null", "con0=null,fd:1", "con1=fd:0,fd:1", "quiet",
             "uml_dir=" + folder + "/", "hutch_dir=" + folder, "hutch_bin=" + os.path.abspath(support.HUTCH), "hutch_uid=%d" % test_uid()]
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               env={"HOME": folder, "PATH": os.environ.get("PATH", "/usr/bin:/bin"), "TMPDIR": "/dev/shm"},
                               cwd=folder, start_new_session=True)
    try:
        output, _ = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        output, _ = process.communicate()
        output += b"\nthe machine did not power off within %d s\n" % SECONDS
    text = output.decode("utf-8", "replace").replace("\r", "")
    results = {match[1]: (match[0], match[2]) for match in
               re.findall(r"^UML (PASS|FAIL) (\w+) [\d.]+ ?(.*)$", text, re.MULTILINE)}
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
    assert word == "PASS", why


def test_machine_ended_by_itself(machine):
    _, text = machine
    assert "UML done: 0" in text, text[-3000:]
