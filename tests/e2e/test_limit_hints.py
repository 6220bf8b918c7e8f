"""What the message says of a limit that a program has run into: the same in every way of running it."""
import json

import pytest

import support
from support import run, run_json

OPEN_FILES = "the limit 'open_files' (%d) may have been in the way: 'open_files' in the limits of a policy raises it"
# "was reached" is the kernel's count, or a sample of the supervisor's that came at the right moment; else the program's word is all.
PIDS = "the limit 'pids' (%d) …: --pids-limit or 'pids' in the limits of a policy raises it"
TMP = ("the limit 'tmp_size' (1048576 bytes, of /tmp and of /dev/shm) may have been in the way: --tmpfs /tmp:SIZE or 'tmp_size' in the "
       "limits of a policy raises it")
LIMITS = {"open_files": 64, "pids": 12, "tmp_size": "1M", "file_size": "2M", "memory": "300M"}
CASES = {
    "descriptors": ("l = [open('/dev/null') for _ in range(100)]", OPEN_FILES % 64),
    "threads": ("import threading, time\nfor _ in range(20): threading.Thread(target=time.sleep, args=(9,), daemon=True).start()", PIDS % 12),
    "processes": ("import os, signal\nfor _ in range(20):\n  if os.fork() == 0: signal.pause()", PIDS % 12),
    "/tmp": ("open('/tmp/x', 'wb').write(b'x' * (2 << 20))", TMP),
    "a file": ("open('x', 'wb').truncate(3 << 20)", "the limit 'file_size' (2097152 bytes) may have been in the way: 'file_size' in the "
               "limits of a policy raises it"),
    "memory": ("bytearray(1 << 50)", "the limit 'memory' (314572800 bytes) may have been in the way: --memory or 'memory' in the limits of "
               "a policy raises it"),
    "none": ("1 / 0", None),
    "one that is caught": ("try: l = [open('/dev/null') for _ in range(100)]\nexcept OSError: pass\nl = None", None),
}
# A pool of processes goes on to wait for children that it has not got; descriptors are short at 200 of them.
POOL = "import multiprocessing\nmultiprocessing.Pool(200)"


def told(message):
    return message and message.replace(") was reached: --pids", ") …: --pids").replace(") may have been in the way: --pids", ") …: --pids")


@pytest.fixture(scope="module")
def tight(tmp_path_factory):
    path = tmp_path_factory.mktemp("policy") / "tight.json"
    path.write_text(json.dumps({"schema": 1, "extends": "default", "limits": LIMITS}))
    return str(path)


@pytest.mark.parametrize("way", [[], ["--warm"], ["--rich"]], ids=["cold", "warm", "cell"])
@pytest.mark.parametrize("name", CASES)
def test_named(name, way, tight):
    code, message = CASES[name]
    done = run("--json", *way, "--policy", tight, "-c", code, image="python" if way == ["--rich"] else support.IMAGE)
    result = json.loads(done.stdout)
    assert "cell" not in result or result["cell"]["message"] == result["message"]
    assert (told(result["message"]), result["verdict"]) == (message, "ok" if "caught" in name else "error"), result["stderr"]


@pytest.mark.parametrize("way", [[], ["--warm"]], ids=["cold", "warm"])
def test_printed(way, tight):
    """On stderr, behind what the program has said itself; -q is no reason to be silent on why it failed."""
    for more in ([], ["-q"]):
        done = run(*way, *more, "--policy", tight, "-c", CASES["descriptors"][0])
        assert done.returncode == 1 and done.stderr.decode().splitlines()[-1] == "hutch: " + OPEN_FILES % 64, done.stderr
    done = run(*way, "--policy", tight, "-c", CASES["none"][0])
    assert done.stderr.decode().splitlines()[-1] == "ZeroDivisionError: division by zero"


def test_pool_of_200():
    message = run_json("-c", POOL)["message"]
    assert message and ("the limit 'open_files'" in message or told(message) == PIDS % 64), message


SHELL = {
    "fork": ("i=0; while [ $i -lt 30 ]; do sleep 9 & i=$((i + 1)); done", PIDS % 12),
    "words alone": ("echo 'accept: Too many open files' >&2; exit 3", OPEN_FILES % 64),
    "long ago": ("echo 'accept: Too many open files' >&2; head -c 9000 /dev/zero | tr '\\0' x >&2; exit 3", None),
    "after much": ("head -c 200000 /dev/zero | tr '\\0' x >&2; echo 'accept: Too many open files' >&2; exit 3", OPEN_FILES % 64),
    "not on stderr": ("echo 'accept: Too many open files'; exit 3", None),
    "by a signal": ("echo 'Too many open files' >&2; kill -ABRT $$", OPEN_FILES % 64),
}


@pytest.mark.parametrize("way", [[], ["--warm"]], ids=["cold", "warm"])
@pytest.mark.parametrize("name", SHELL)
def test_other_programs(name, way, tight):
    code, message = SHELL[name]
    result = run_json(*way, "--policy", tight, "--language", "sh", "-c", code)
    assert (result["verdict"], told(result["message"])) == ("error", message), result


def test_data_directory_comes_first(policy):
    """Where that is full, the message says so, and nothing of /tmp."""
    path = policy(limits={"data_size": "1M", "memory": "200M"})
    result = run_json("--policy", path, "-c", "open('x', 'wb').write(b'x' * (2 << 20))")
    if "kernel" in result["limits"]["data_size"]["enforced_by"]:
        assert "/mnt/data is full" in result["message"] and "the limit '" not in result["message"], result


def test_batch(tight, tmp_path):
    (tmp_path / "tasks").write_text(json.dumps({"id": "x", "code": CASES["threads"][0], "stdin": "", "expected": {"stdout": ""}}) + "\n")
    out = tmp_path / "out"
    done = support.hutch("batch", str(tmp_path / "tasks"), "--format", "generic", "--image", support.IMAGE, "--policy", tight, "-o", str(out),
                         timeout=120)
    result = json.loads(out.read_text())["result"]
    assert told(result) == "failed: RuntimeError: can't start new thread; " + PIDS % 12, done.stderr
