"""Policies from the command line: found by name and by path, strict, and combined with options."""
import json
import os

import pytest

from support import IMAGE, refused, run, run_json


@pytest.fixture
def write(tmp_path):
    def make(text):
        path = tmp_path / "policy.json"
        path.write_text(text if isinstance(text, str) else json.dumps(text))
        return str(path)
    return make


def extended(**fields):
    return dict({"schema": 1, "extends": "default"}, **fields)


def test_extends_changes_one_field(write):
    result = run_json("--policy", write(extended(limits={"pids": 7})), "-c", "pass")
    assert result["limits"]["pids"]["asked"] == 7
    assert result["limits"]["memory"]["asked"] == 512 << 20


def test_option_beats_policy(write):
    result = run_json("--policy", write(extended(limits={"pids": 7, "memory": "100M", "wall": "9s", "cpus": 1})),
                      "--pids-limit", "9", "--memory", "200m", "--timeout", "8s", "-c", "pass")
    assert [result["limits"][name]["asked"] for name in ("pids", "memory", "wall")] == [9, 200 << 20, 8000]


def test_byte_order_mark(write):
    path = write("\ufeff" + json.dumps(extended()))
    refused("run", "--policy", path, "-c", "pass",
            says="policy '%s': line 1, column 1: a byte order mark: save the file as UTF-8 without one" % path)


def test_option_order_does_not_matter(write):
    path = write(extended(limits={"pids": 7}))
    assert run_json("--pids-limit", "9", "--policy", path, "-c", "pass")["limits"]["pids"]["asked"] == 9


def test_environment_of_policy(write):
    """What it takes away is the image's to say, where that says it: LANG is in ours, MPLBACKEND is not."""
    path = write(extended(environment={"FROM_POLICY": "yes", "LANG": None, "MPLBACKEND": None}))
    done = run("--policy", path, "-e", "FROM_OPTION=too", "-c",
               "import os; print([os.environ.get(n) for n in ('FROM_POLICY', 'FROM_OPTION', 'LANG', 'MPLBACKEND')])")
    assert done.stdout == b"['yes', 'too', 'C.UTF-8', None]\n", done.stderr


def test_mounts_of_policy(write, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "x").write_text("text")
    path = write(extended(mounts=[{"type": "bind", "source": str(tmp_path / "folder"), "target": "/mnt/here", "readonly": True},
                                  {"type": "tmpfs", "target": "/mnt/there", "size": "1M"}]))
    done = run("--policy", path, "-c", "print(open('/mnt/here/x').read()); open('/mnt/there/y', 'w')")
    assert (done.returncode, done.stdout) == (0, b"text\n"), done.stderr


def test_masked_path_of_policy(write):
    path = write(extended(masked_paths=["/proc/version", "/no/such/path"]))
    done = run("--policy", path, "-c", "print(repr(open('/proc/version').read()))")
    assert done.stdout in (b"''\n", b"") and b"Linux" not in done.stdout


def test_hostname_of_policy(write):
    assert run("--policy", write(extended(hostname="box")), "-c", "import os; print(os.uname().nodename)").stdout == b"box\n"


def test_workdir_of_policy(write):
    assert run("--policy", write(extended(workdir="/tmp")), "-c", "import os; print(os.getcwd())").stdout == b"/tmp\n"


def test_policy_dir(tmp_path, write):
    write(extended(limits={"pids": 5}))
    done = run_json("--policy", "policy", "-c", "pass",
                    env={"HUTCH_POLICY_DIR": _with_builtin(tmp_path)})
    assert done["limits"]["pids"]["asked"] == 5


def _with_builtin(tmp_path):
    """A policy directory that has the built-in files beside our own."""
    from support import HUTCH, TREE
    for folder in (os.path.join(os.path.dirname(HUTCH), "..", "share", "hutch", "policies"), os.path.join(TREE, "policies")):
        if os.path.isdir(folder):
            for name in os.listdir(folder):
                with open(os.path.join(folder, name), "rb") as source, open(tmp_path / name, "wb") as target:
                    target.write(source.read())
            return str(tmp_path)
    pytest.fail("no policies found")


def test_seccomp_off_is_reported(write):
    result = run_json("--policy", write(extended(layers={"seccomp": "off"})), "-c", "pass")
    assert result["layers"]["seccomp"]["asked"] == "off" and not result["layers"]["seccomp"]["active"]


def test_landlock_off_is_reported(write):
    result = run_json("--policy", write(extended(layers={"landlock": "off"})), "-c", "pass")
    assert result["layers"]["landlock"] ["asked"] == "off" and not result["layers"]["landlock"]["active"]


@pytest.mark.parametrize("text, says", [
    ("", "policy.json"),
    ("{", "policy.json"),
    ("[]", "object"),
    ('{"schema": 1, "extends": "default", "limit": {}}', "$.limit"),
    ('{"schema": 1, "extends": "default", "limits": {"memory": true}}', "$.limits.memory"),
    ('{"schema": 1, "extends": "default", "limits": {"memory": "-5"}}', "$.limits.memory"),
    ('{"schema": 1, "extends": "default", "limits": {"pids": 0}}', "$.limits.pids"),
    ('{"schema": 1, "extends": "default", "limits": {"ram": "1G"}}', "$.limits.ram"),
    ('{"schema": 1, "extends": "default", "layers": {"seccomp": "maybe"}}', "$.layers.seccomp"),
    ('{"schema": 1, "extends": "default", "layers": {"pid_namespace": "off"}}', "$.layers.pid_namespace"),
    ('{"schema": 1, "extends": "default", "network": "bridge"}', "$.network"),
    ('{"schema": 1, "extends": "no-such"}', "no-such"),
    ('{"schema": 1, "extends": "default", "mounts": [{"type": "bind", "target": "/mnt/x"}]}', "$.mounts[0]"),
    ('{"schema": 1, "extends": "default", "mounts": [{"type": "tmpfs", "target": "/proc"}]}', "$.mounts[0].target"),
    ('{"schema": 1, "extends": "default", "environment": {"A=B": "x"}}', "$.environment"),
    ('{"schema": 1, "extends": "default", "network": "none", "network": "none"}', "$.network"),
    ('{"schema": 2, "extends": "default"}', "$.schema"),
    ('{"schema": 1, "extends": "default", "seccomp": "no-such.json"}', "no-such.json"),
    ('{"schema": 1, "extends": "./policy.json"}', "extends itself"),
    ('{"schema": 1, "extends": "default"} trailing', "policy.json"),
])
def test_faulty_policy(write, text, says):
    refused("run", "--image", IMAGE, "--policy", write(text), "-c", "print('ran')", says=says)
