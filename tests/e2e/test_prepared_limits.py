"""Limits that a request asks for, set in a sandbox that was prepared for the policy's: the same verdicts, reports and
numbers inside as in one that is built for the request, and nothing of the code runs before they hold."""
import json
import os
import re
import signal

import pytest

import engine
import support

MIB = 1 << 20


def run_prepared(warm, code, **fields):
    """A run that has to find a prepared sandbox: by what its result says, and by the engine's numbers."""
    before = warm.settle()
    result = warm.run(code, **fields)
    after = warm.stats()
    assert result["was_prepared"], result["message"]
    assert (after["from_pool"] - before["from_pool"], after["on_demand"] - before["on_demand"]) == (1, 0)
    return result


def run_built(warm, code, **fields):
    """The same in a sandbox of its own: naming a policy in other words asks for one."""
    result = warm.run(code, policy=engine.OTHER_DEFAULT, **fields)
    assert not result["was_prepared"]
    return result


LIMITS = "import resource as r\nprint(*(r.getrlimit(n) for n in (r.RLIMIT_NPROC, r.RLIMIT_DATA, r.RLIMIT_FSIZE)))\n"
SEEN = LIMITS + support.MEMINFO + (
    "import os\nprint(meminfo()['MemTotal'], os.cpu_count(), len(os.sched_getaffinity(0)), os.environ.get('OMP_NUM_THREADS'))\n"
    "for limit in (r.RLIMIT_NPROC, r.RLIMIT_DATA):\n  most = r.getrlimit(limit)[1]\n"
    "  try:\n    if most != r.RLIM_INFINITY: r.setrlimit(limit, (most + 1, most + 1)); print('raised')\n"
    "  except (ValueError, OSError): pass\n")

CASES = {
    "memory": ("x = bytearray(b'x') * (300 << 20)\nimport time; time.sleep(20)", {"memory_bytes": 64 * MIB}, "out_of_memory"),
    "memory, of children": ("import os, time\nfor _ in range(6):\n  if os.fork() == 0:\n    x = bytearray(b'x') * (30 << 20); time.sleep(20)\n"
                            "time.sleep(20)", {"memory_bytes": 96 * MIB}, "out_of_memory"),
    "memory that is enough": ("x = bytearray(b'x') * (80 << 20)\nimport time; time.sleep(0.5)", {"memory_bytes": 110 * MIB}, "ok"),
    "processes": ("import os, signal\nn = 0\ntry:\n  while n < 50:\n    if os.fork() == 0: signal.pause()\n    n += 1\n"
                  "except OSError as e: print(n, e.errno)", {"pids": 8}, "ok"),
    "threads": ("import threading, time\nn = 0\ntry:\n  while n < 50: threading.Thread(target=time.sleep, args=(20,), daemon=True).start(); n += 1\n"
                "except RuntimeError: print(n)", {"pids": 5}, "ok"),
    "a part of a processor": ("", {"cpus": 500}, "ok"),
    "output": ("while True: print('x' * 1000)", {"output_bytes": 100000, "memory_bytes": 200 * MIB}, "output_limit"),
    "all of them": ("print('ran')", {"memory_bytes": 128 * MIB, "pids": 9, "cpus": 300, "output_bytes": 5000, "file_bytes": 4096,
                                     "cpu_ms": 5000, "data_bytes": MIB, "data_files": 10, "wall_ms": 20000}, "ok"),
    "the policy's own": ("", {"memory_bytes": 512 * MIB, "pids": 64, "cpus": 1000}, "ok"),
}


def without_numbers(text):
    return re.sub(r"\d+ bytes were", "N bytes were", text or "")


@pytest.mark.parametrize("name", CASES)
def test_same_as_in_a_sandbox_of_its_own(warm, name):
    code, limits, verdict = CASES[name]
    found = []
    for run in run_prepared, run_built:
        result = run(warm, SEEN + code, **dict({"wall_ms": 25000}, **limits))
        assert result["verdict"] == verdict, (result["message"], result["stderr"])
        stdout = result["stdout"] if verdict != "output_limit" else result["stdout"][:500]
        found.append((stdout, result["exit_code"], result["signal"], without_numbers(result["message"]), result["limits"],
                      {name: (layer["asked"], layer["active"]) for name, layer in result["layers"].items()}))
    assert found[0] == found[1]
    assert "raised" not in found[0][0]
    for field, value in limits.items():
        name = {"memory_bytes": "memory", "pids": "pids", "cpus": "cpus"}.get(field)
        if name:
            assert found[0][4][name]["asked"] == value and found[0][4][name]["enforced_by"] not in ([], ["none"])


def test_nothing_runs_before_they_hold(warm):
    """The first thing that a program does finds them, whichever of two processors it has."""
    for turn in range(40):
        memory, pids = (64 + turn) * MIB, 5 + turn % 7
        result = warm.run(SEEN, memory_bytes=memory, pids=pids)
        limits, shown = result["stdout"].splitlines()
        assert json.loads(re.match(r"\((\d+)", limits)[1]) == pids + 2 and int(shown.split()[0]) == memory, result["stdout"]


def test_the_next_run_has_the_policys_again(warm):
    run_prepared(warm, "pass", memory_bytes=64 * MIB, pids=5)
    result = run_prepared(warm, SEEN)
    assert result["stdout"] == run_built(warm, SEEN)["stdout"]


def test_with_a_directory_of_the_callers(warm, tmp_path):
    """The mount comes first, and the limits then."""
    for turn in range(6):
        result = warm.run(SEEN + "open('out%d', 'w').close()" % turn, data_dir=tmp_path, memory_bytes=100 * MIB, pids=7)
        assert result["verdict"] == "ok" and result["stdout"].splitlines()[1].split()[0] == str(100 * MIB), result
    assert len(list(tmp_path.iterdir())) == 6


def test_small_ones_are_for_a_program_of_its_own(warm):
    """A worker of a zygote does not fit into less; the program is executed, and the limits hold."""
    for limits in ({"memory_bytes": 32 * MIB}, {"cpus": 100}):
        result = warm.run("print('ran')", **limits)
        assert (result["verdict"], result["was_prepared"], result["zygote"]) == ("ok", False, ""), result


def test_cancelled_at_any_moment(warm):
    """Also while process 1 is told."""
    before = warm.settle()
    runs = []
    for turn in range(60):
        runs.append(warm.submit("import time; time.sleep(60)", memory_bytes=100 * MIB))
        for _ in range(turn % 5):
            warm.dispatch(0)
        assert warm.cancel(runs[-1]) == 1
    for result in warm.wait(*runs):
        assert result["verdict"] == "killed", result
    after = warm.settle()
    assert after["restarted"] == before["restarted"] and after["lost_sandboxes"] == before["lost_sandboxes"]


@pytest.mark.parametrize("blow", [signal.SIGSTOP, signal.SIGKILL])
def test_process_1_that_does_not_answer(blow):
    """It is given up, and nothing runs in its sandbox, which has the policy's limits."""
    with engine.Engine(max_running=4, answer_ms=5000, setup_ms=15000) as one:
        one.settle()
        victims = [pid for pid in support.descendants(os.getpid()) if support.comm(pid) == "hutch-init"]
        assert len(victims) >= 2
        for pid in victims:
            os.kill(pid, blow)
        results = one.wait(*[one.submit(SEEN, memory_bytes=100 * MIB, pids=9) for _ in range(4)])
        for result in results:
            limits, shown = result["stdout"].splitlines()
            assert (result["verdict"], limits.split(",")[0], shown.split()[0]) == ("ok", "(11", str(100 * MIB)), result
        assert one.stats()["hung"] >= (blow == signal.SIGSTOP)


def test_what_files_inside_go_by_takes_a_sandbox_of_its_own(policy):
    """How many processors there are is said by files and variables that are made with the sandbox."""
    with engine.Engine(policy=policy(limits={"cpus": 2})) as two:
        two.settle()
        assert two.run("pass", cpus=1500)["was_prepared"]
        two.settle()
        result = two.run("import os; print(os.cpu_count(), os.environ['OMP_NUM_THREADS'])", cpus=1000)
        assert (result["stdout"], result["was_prepared"]) == ("1 1\n", False)


def test_what_the_policy_leaves_open_takes_a_sandbox_of_its_own(policy):
    """Without a limit nothing in a sandbox counts, and its filter does not know of one."""
    with engine.Engine(policy=policy(limits={"memory": None, "pids": None, "cpus": None})) as free:
        free.settle()
        assert free.run("pass")["was_prepared"]
        for field, name, value in (("memory_bytes", "memory", 64 * MIB), ("pids", "pids", 8), ("cpus", "cpus", 1000)):
            free.settle()
            result = free.run(SEEN, **{field: value})
            assert result["verdict"] == "ok" and not result["was_prepared"], result
            assert result["limits"][name]["asked"] == value and result["limits"][name]["enforced_by"] not in ([], ["none"])
        result = free.run("x = bytearray(b'x') * (300 << 20)\nimport time; time.sleep(20)", memory_bytes=64 * MIB)
        assert result["verdict"] == "out_of_memory", result["message"]
