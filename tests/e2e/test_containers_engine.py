"""hutch's engine inside containers of Debian's podman: warm runs, batches, notebooks, sessions and the server at the level no_proc,
where no sandbox and no zygote has a procfs of its own. What is refused there is refused in a sentence, and where the kernel gives a
procfs nothing of this is used."""
import json
import os
import re

import pytest

import containers
import engine
import support
from containers import as_caller

SETTINGS = {"default": [], "nothing_allowed": as_caller()}

pytestmark = pytest.mark.skipif(os.geteuid() == 0, reason="rootless containers: an ordinary user's lane has them")


@pytest.fixture(scope="module")
def podman():
    with containers.podman() as made:
        yield made


@pytest.fixture(params=SETTINGS)
def options(request):
    return SETTINGS[request.param]


def python_inside(podman, options, code, seconds=240):
    """What a program of the container prints that has the tests' modules, as JSON."""
    path = podman.file("inside.py", "import json, os, sys\nsys.path.insert(0, %r)\nimport engine, support\n%s"
                       % (os.path.join(support.TREE, "tests"), code))
    done = podman.run(options, "/usr/bin/python3", path, seconds=seconds)
    assert done.returncode == 0, (done.stdout, done.stderr[-3000:])
    return json.loads(done.stdout)


def warm(podman, options, *words):
    return podman.hutch(options, "--warm", *words)


# --------------------------------------------------------------------------------------------------
# What runs

def test_a_warm_run(podman, options):
    result = warm(podman, options, "-c", "import os; print(sorted(os.listdir('/proc')), os.statvfs('/proc').f_flag & os.ST_RDONLY)")
    assert (result["verdict"], result["level"]) == ("ok", "no_proc"), result["message"]
    layers = {name for name, layer in result["layers"].items() if layer["active"]}
    assert {"user_namespace", "pid_namespace", "readonly_root", "no_capabilities", "no_new_privs", "seccomp"} <= layers
    assert "own_proc" not in layers and "partly covered" in result["layers"]["own_proc"]["detail"]
    assert not re.search(r"'\d+'|self|mounts|net'", result["stdout"]) and result["stdout"].split()[-1] == "1", result["stdout"]


def test_a_batch(podman, options):
    """Right and wrong programs; the judge's memory is closed to them by other means than /proc."""
    tasks = [{"id": "t%d" % i, "code": "def f(x):\n    return x * %d" % (i % 5), "tests": "assert f(2) == %d" % (2 * (i % 5) + (i % 10 == 9))}
             for i in range(50)]
    path = podman.file("tasks.jsonl", "".join(json.dumps(task) + "\n" for task in tasks))
    done = podman.run(options, support.HUTCH, "batch", "--image", support.IMAGE, "-j", "2", path, seconds=240)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) == 50 and done.returncode == 0, (done.returncode, done.stderr[-2000:])
    verdicts = {line["id"]: line["verdict"] for line in lines}
    assert verdicts == {task["id"]: "wrong_answer" if int(task["id"][1:]) % 10 == 9 else "pass" for task in tasks}, lines[0]
    assert "45 of 50 passed" in done.stderr, done.stderr


def test_a_notebook(podman, options):
    cells = [{"cell_type": "code", "source": source, "metadata": {}, "outputs": [], "execution_count": None}
             for source in ("x = 6\nprint('begun')", "x * 7", "!echo from a shell")]
    podman.file("in.ipynb", json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}))
    done = podman.run(options, support.HUTCH, "run", "--image", "python", "-o", "-", "/files/in.ipynb", seconds=240)
    assert done.returncode == 0, done.stderr[-2000:]
    outputs = [cell["outputs"] for cell in json.loads(done.stdout)["cells"]]
    assert "".join(outputs[0][0]["text"]) == "begun\n" and "".join(outputs[1][0]["data"]["text/plain"]) == "42"
    assert "".join(outputs[2][0]["text"]).strip() == "from a shell"


ZYGOTES = 'zygotes=(("bare", None, (), 2, 4), ("shell", "bare", ("IPython", "ipykernel"), 2, 4))'
SESSION = """
with engine.Engine(image="python", %s) as one:
    with engine.Session(one, max_processes=4) as session:
        found = {"cells": [session.printed("x = 6; print('one')"), session.printed("print(x * 7)")]}
        process = session.spawn("/bin/sh", "-c", "read line; echo got $line", has_input=1)
        process.write(b"it\\n")
        found["process"] = process.wait_ok().decode()
        sleeper = session.spawn("/bin/sleep", "1000")
        one.until(lambda: sleeper.listed()["state"] == "running")
        sleeper.signal(9)
        found["signal"] = sleeper.wait()["signal"]
        found["checkpoint"] = session.wait(session.order("checkpoint"))["message"]
        cell = session.run_until("print('ready', flush=True)\\nwhile True: pass")
        session.pause()
        one.until(lambda: session.info()["paused_by"] and session.info()["still"])
        found["paused_by"] = session.info()["paused_by"]
        session.resume()
        session.interrupt()
        found["interrupted"] = session.wait(cell)["verdict"]
        found["after"] = session.printed("print(x)")
    with engine.Session(one, no_interpreter=1) as session:
        found["alone"] = session.spawn(shell="ls /proc | grep -c '[0-9]'; echo $0").wait()["exit_code"]
print(json.dumps(found))
""" % ZYGOTES


def test_a_session(podman, options):
    """Cells, processes and pauses are there; a checkpoint is refused, and the session goes on."""
    found = python_inside(podman, options, SESSION)
    assert found["cells"] == ["one\n", "42\n"] and found["process"] == "got it\n" and found["after"] == "6\n"
    assert (found["signal"], found["paused_by"], found["interrupted"], found["alone"]) == (9, "signals", "error", 0), found
    assert "takes a /proc" in found["checkpoint"] and "no_proc" in found["checkpoint"], found["checkpoint"]


SERVE = """
import subprocess
process = subprocess.Popen([support.HUTCH, "serve", "--listen", "unix:/tmp/s", "--image", support.IMAGE], stderr=subprocess.PIPE, text=True)
for line in process.stderr:
    if '"ready"' in line: break
import gateway
connection = gateway.UnixConnection("/tmp/s")
connection.request("POST", "/v1/run", json.dumps({"code": "print(6 * 7)"}), {"Content-Type": "application/json"})
answer = connection.getresponse()
print(answer.read().decode())
process.terminate()
process.wait(60)
"""


def test_the_server(podman, options):
    result = python_inside(podman, options, SERVE)
    assert (result["verdict"], result["stdout"], result["level"]) == ("ok", "42\n", "no_proc"), result


# --------------------------------------------------------------------------------------------------
# Limits: init counts in the procfs around the sandbox, which is not inside

def test_children_are_counted(podman):
    result = warm(podman, [], podman.file("children.py", containers.CHILDREN))
    said = result["stdout"].split()
    # The worker and its memory holder are of the 64 that may be.
    assert result["verdict"] == "ok" and said[0] == "11" and 60 <= int(said[1]) <= 63, result
    assert result["limits"]["pids"]["enforced_by"] == ["rlimit"], result["limits"]
    assert result["usage"]["pids_peak"] == int(said[1]) + 1, "seen by init although nothing in /proc shows them inside"


@pytest.mark.parametrize("how", containers.MEMORY)
def test_memory_is_counted(podman, how):
    result = warm(podman, [], podman.file("memory.py", containers.MEMORY[how] + "\nprint('survived')\n"))
    assert "survived" not in result["stdout"], result
    # A single process is refused the memory by its rlimit, and Python ends with its own word.
    assert result["verdict"] == "out_of_memory" or (how == "one process" and result["error"]["name"] == "MemoryError"), result
    assert result["limits"]["memory"]["enforced_by"] == ["supervisor"]


def test_cpu_time_is_counted(podman):
    code = "import os\nfor i in range(2):\n    if os.fork() == 0:\n        while True: pass\nos.wait()"
    result = warm(podman, [], "--cpu-time", "1s", podman.file("cpu.py", code))
    assert result["verdict"] == "cpu_time" and result["usage"]["cpu_user_ms"] + result["usage"]["cpu_system_ms"] >= 900, result


def test_limits_of_a_session(podman):
    found = python_inside(podman, [], """
with engine.Engine(image="python", %s) as one, engine.Session(one) as session:
    memory = session.run(%r)
    children = session.printed(%r)
    print(json.dumps({"memory": memory["verdict"], "children": children.split()}))
""" % (ZYGOTES, containers.MEMORY["four processes"], containers.CHILDREN))
    # On a busy machine a sandbox may have been prepared without a memory holder, whose place is one more then.
    assert found["memory"] == "out_of_memory" and found["children"][0] == "11" and int(found["children"][1]) <= 64, found


# --------------------------------------------------------------------------------------------------
# What a zygote knows of itself, and what a worker has of that

ZYGOTE = """
with engine.Engine(image="python", zygotes=(("bare", None, (), 2, 4), ("data", "bare", ("pandas",), 2, 4))) as one:
    found = {"fds": [], "result": one.run(%r)["stdout"]}
    one.settle()
    for index in (0, 1):
        pid = one.zygote_pid(index)
        found["fds"].append([pid, sorted(link for fd, link in one.zygote_files(index).items() if fd > 3)])
        with open("/proc/%%d/smaps_rollup" %% pid) as file:
            found["fds"][-1].append({line.split()[0]: int(line.split()[1]) for line in file if line.endswith("kB\\n")})
print(json.dumps(found))
"""
WORKER = "import os\nfor fd in range(256):\n    try: os.fstat(fd); print(fd, end=' ')\n    except OSError: pass"


def test_a_zygote_has_files_of_its_own_process_only(podman, options):
    found = python_inside(podman, options, ZYGOTE % WORKER)
    for pid, links, memory in found["fds"]:
        assert links == ["/proc/%d/%s" % (pid, name) for name in ("maps", "pagemap", "smaps", "status")], links
        assert memory["Anonymous:"] < 8192, "its memory lies in a file: forks copy no tables of it"
    assert found["result"].split() == ["0", "1", "2", "3"], "a worker has none of these files"


REFUSED = {"file": ("f = open('/etc/passwd')", "left descriptor"), "thread": (
    "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,), daemon=True).start()", "have started 1 threads"),
    "memory": ("import mmap\nm = mmap.mmap(-1, 4096)", "mapped memory that all programs would share")}


def test_what_forbids_a_zygote_to_fork_is_seen(podman):
    found = python_inside(podman, [], """
found = {}
for name, code in %r:
    with engine.Engine(image=support.IMAGE) as one:
        try:
            one.add_function("f", code + "\\ndef handler(event): return 1\\n")
        except (AssertionError, engine.Failure) as error:
            pass
        one.until(lambda: one.told, what="it is told")
        found[name] = repr(one.told)
print(json.dumps(found))
""" % [(name, code) for name, (code, _) in REFUSED.items()])
    for name, (_, words) in REFUSED.items():
        assert words in found[name], found


# --------------------------------------------------------------------------------------------------
# Nothing of it where it need not be

def test_strict_refuses(podman):
    path = podman.file("own-proc.json", json.dumps({"schema": 1, "extends": "default", "layers": {"own_proc": "require"}}))
    done = podman.run([], support.HUTCH, "run", "--image", support.IMAGE, "--warm", "--policy", path, "-c", "print(1)")
    assert done.returncode == 125 and done.stdout == "" and "own_proc" in done.stderr, done.stderr


@pytest.mark.parametrize("policy", ["default", "own-proc.json"])
def test_a_procfs_is_taken_where_there_is_one(podman, policy):
    """An uncovered /proc: the zygotes have no foreign descriptor there, and the layer stands, required or not."""
    unmasked = ["--security-opt", "unmask=ALL"]
    path = podman.file("own-proc.json", json.dumps({"schema": 1, "extends": "default", "layers": {"own_proc": "require"}}))
    words = ["--policy", path if policy != "default" else policy]
    result = podman.hutch(unmasked, "--warm", *words, "-c", "import os; print(os.readlink('/proc/self/exe') != '', os.path.isdir('/proc/1'))")
    assert (result["verdict"], result["level"], result["stdout"]) == ("ok", "full", "True True\n"), result
    assert result["layers"]["own_proc"]["active"]
    found = python_inside(podman, unmasked, ZYGOTE % WORKER)
    assert [links for _, links, _ in found["fds"]] == [[], []], found


def test_outside_of_containers_a_fresh_procfs_is_had():
    """The launcher's and the sandboxes' are others than the host's."""
    with engine.Engine(image=support.IMAGE) as one:
        result = one.run("import os; print(os.stat('/proc').st_dev, os.readlink('/proc/self/exe') != '')")
        assert result["level"] in ("full", b"full"), result
        with open("/proc/%d/mountinfo" % one.stats()["launcher_pid"], encoding="utf-8") as file:
            devices = [line.split()[2] for line in file if line.split()[4] == "/proc"]
        one.settle()
        assert set(one.zygote_files()) == {0, 1, 2, 3}
    own = os.stat("/proc").st_dev
    assert devices and devices[-1] != "%d:%d" % (os.major(own), os.minor(own)), devices
