"""Runs in the user-mode Linux machine, as an ordinary user with a delegated cgroup v2 subtree that has the
real memory, pids and cpu controllers. Prints one line per test for test_uml.py outside.

Kernels differ in one thing that tests depend on: some have Landlock. A test that is about its presence or its absence says so
by @needs, and is a named skip in the others.

That machine is one slow CPU: nothing here asserts an absolute time."""
import ctypes
import json
import os
import subprocess
import sys
import time
import traceback

HUTCH = os.environ.get("HUTCH_BIN", "hutch")
MANY = os.environ.get("HUTCH_MANY", "warm_many")  # one engine, and requests of it: tests/warm_many.c
DATA = "/run/home/data"
GROUP = "/sys/fs/cgroup/hutch"
MIB = 1 << 20

TESTS = []
ENGINE_TESTS = []  # what only an engine has: they run once
WARM = []  # or --warm: all other tests run both ways


class Failed(Exception):
    """What was expected, and what came instead."""


class Skipped(Exception):
    """Why this kernel is not the one for the test."""


def has_landlock():
    """landlock_create_ruleset(2) tells its version."""
    libc = ctypes.CDLL(None)
    libc.syscall.restype = ctypes.c_long
    return libc.syscall(ctypes.c_long(444), None, ctypes.c_long(0), ctypes.c_long(1)) > 0


def test(function):
    TESTS.append(function)
    return function


def engine_test(function):
    ENGINE_TESTS.append(function)
    return function


def needs(landlock):
    """@landlock: whether the kernel has to have it."""
    if landlock != has_landlock():
        raise Skipped("landlock: this kernel has %s" % ("none" if landlock else "it"))


def expect(condition, *seen):
    if not condition:
        raise Failed(" ".join(repr(value)[:900] for value in seen))


def command(*args):
    return [HUTCH, "run", *WARM, "--rootfs", "host", *args]


def run(*args, seconds=120):
    """hutch run --json; returns the result with the exit status as "process"."""
    done = subprocess.run(command("--json", "--timeout", "90s", *args), capture_output=True, stdin=subprocess.DEVNULL, timeout=seconds,
                          check=False)
    try:
        result = json.loads(done.stdout)
    except ValueError:
        raise Failed("no result: exit %d, %r %r" % (done.returncode, done.stdout[:300], done.stderr[:600])) from None
    result["process"] = done.returncode
    return result


def enforced(result, limit):
    return result["limits"][limit]["enforced_by"]


def groups():
    return sorted(name for name in os.listdir(GROUP) if os.path.isdir(os.path.join(GROUP, name)))


def policy(name, **fields):
    path = "/run/home/%s.json" % name
    with open(path, "w", encoding="ascii") as file:
        json.dump(dict({"schema": 1}, **fields), file)
    return path


# --------------------------------------------------------------------------------------------------

@test
def controllers_are_there():
    """The lane is what it claims: cgroup v2 with the controllers, delegated."""
    with open(GROUP + "/cgroup.controllers", encoding="ascii") as file:
        have = set(file.read().split())
    expect({"memory", "pids", "cpu"} <= have, have)
    expect(os.geteuid() != 0, os.geteuid())


@test
def every_limit_comes_from_the_cgroup():
    """Memory, processes and CPU are counted by the kernel for the sandbox as a whole, and the result says so."""
    result = run("-c", "print('hello')")
    expect(result["verdict"] == "ok" and result["stdout"] == "hello\n", result)
    for limit in ("memory", "pids", "cpus"):
        expect("cgroup" in enforced(result, limit), limit, result["limits"][limit])
    expect(result["layers"]["cgroup"]["active"], result["layers"]["cgroup"])
    expect(result["usage"]["memory_peak_bytes"] > MIB and result["usage"]["pids_peak"] >= 1, result["usage"])


@test
def landlock_is_missing_and_reported():
    """A kernel without Landlock: the default policy tries it, does without, and says so."""
    needs(landlock=False)
    layer = run("-c", "pass")["layers"]["landlock"]
    expect(layer["asked"] == "try" and not layer["active"] and layer["detail"], layer)


@test
def out_of_memory_is_reported_with_the_peak():
    """An out-of-memory kill of the cgroup is told from any other SIGKILL."""
    result = run("--memory", "64m", "-c", "print('before', flush=True)\nx = bytearray(10**9)\nprint('after')")
    expect(result["verdict"] == "out_of_memory", result["verdict"], result["message"], result["stderr"])
    expect(result["stdout"] == "before\n", result["stdout"])
    expect(enforced(result, "memory")[:1] == ["cgroup"], result["limits"]["memory"])
    peak = result["usage"]["memory_peak_bytes"]
    expect(40 * MIB <= peak <= 80 * MIB, "peak", peak)
    expect(result["message"] and result["signal"] == "SIGKILL" and result["process"] == 137, result)


@test
def memory_of_all_processes_counts_together():
    """Four children that each stay below the limit are together above it."""
    code = ("import os, signal\nr, w = os.pipe()\nfor _ in range(4):\n"
            "  if os.fork() == 0:\n    x = b'x' * (40 << 20); os.write(w, b'1'); signal.alarm(60); signal.pause()\n"
            "got = b''\nwhile len(got) < 4: got += os.read(r, 4)\nsignal.alarm(60); signal.pause()\n")
    result = run("--memory", "100m", "-c", code)
    expect(result["verdict"] == "out_of_memory", result["verdict"], result["message"])


@test
def memory_in_tmpfs_counts():
    """Memory that no process maps is counted all the same: the fallback by rlimits cannot see it."""
    code = ("for path in '/tmp/x', '/dev/shm/x':\n  with open(path, 'wb', buffering=0) as file:\n"
            "    for _ in range(60): file.write(b'x' * (1 << 20))\nprint('got it')")
    result = run("--memory", "64m", "-c", code)
    expect(result["verdict"] == "out_of_memory" and "got it" not in result["stdout"], result["verdict"], result["stdout"])


@test
def memory_behind_one_page_counts():
    """Shared memory of which all but one page is unmapped again: in no process's count, and in the group's."""
    code = ("import ctypes\nlibc = ctypes.CDLL(None)\nlibc.mmap.restype = ctypes.c_void_p\nfor _ in range(40):\n"
            "  a = libc.mmap(None, ctypes.c_size_t(8 << 20), 3, 0x21, -1, ctypes.c_long(0))\n"
            "  ctypes.memset(a, 1, 8 << 20)\n  libc.munmap(ctypes.c_void_p(a + 4096), ctypes.c_size_t((8 << 20) - 4096))\n"
            "print('got it')")
    result = run("--memory", "64m", "-c", code)
    expect(result["verdict"] == "out_of_memory" and "got it" not in result["stdout"], result["verdict"], result["stdout"])


@test
def swap_is_no_way_round():
    """memory.swap.max of the sandbox is 0."""
    watched = watch("--memory", "64m", "-c", "print('ready', flush=True); input()",
                    files=("memory.max", "memory.swap.max", "pids.max", "cpu.max"))
    expect(watched["memory.max"] == str(64 * MIB), watched)
    expect(watched.get("memory.swap.max") in ("0", None), watched)
    expect(watched["pids.max"].isdigit() and int(watched["pids.max"]) <= 70, watched)
    expect(watched["cpu.max"].split()[0] != "max", watched)


MEMINFO = """
import time
def meminfo():
    with open('/proc/meminfo') as file:
        return {words[0].rstrip(':'): int(words[1]) * 1024 for words in map(str.split, file)}
def await_meminfo(holds):
    end = time.monotonic() + 60
    while not holds(now := meminfo()):
        if time.monotonic() > end: raise TimeoutError(now)
        time.sleep(0.05)
    return now
"""


def check_meminfo(*options):
    """What a program reads of its memory is the group's: what it holds is missing, and pages of files are not."""
    code = MEMINFO + (
        "first = await_meminfo(lambda now: now['MemFree'] < now['MemTotal'])\n"
        "held = b'x' * (60 << 20)\n"
        "full = await_meminfo(lambda now: first['MemAvailable'] - now['MemAvailable'] > 50 << 20)\n"
        "del held\n"
        "await_meminfo(lambda now: first['MemAvailable'] - now['MemAvailable'] < 10 << 20)\n"
        "with open('/tmp/x', 'wb') as file: file.write(b'x' * (20 << 20))\n"
        "shown = await_meminfo(lambda now: now['Shmem'] - full['Shmem'] > 15 << 20)\n"
        "print(full['MemTotal'] >> 20, shown['Cached'] >= shown['Shmem'], shown['MemAvailable'] >= shown['MemFree'], full['SwapTotal'])")
    result = run("--memory", "200m", *options, "-c", code)
    expect(result["stdout"] == "200 True True 0\n", result["verdict"], result["message"], result["stdout"], result["stderr"])
    expect(enforced(result, "memory")[:1] == ["cgroup"], result["limits"]["memory"])


@test
def memory_of_the_group_is_shown():
    """/proc/meminfo has the numbers of the group, beside samples that are taken for another limit."""
    check_meminfo()


@test
def memory_of_the_group_is_shown_without_samples():
    """And where the kernel counts everything, so that no sample is taken."""
    check_meminfo("--policy", policy("uncounted", extends="default", limits={"data_size": None}))


def watch(*args, files):
    """Starts a run that waits, reads files of its control group, and lets it end."""
    before = set(groups())
    process = subprocess.Popen(command(*args), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        expect(process.stdout.readline() == b"ready\n", "the script did not start")
        found = {}
        for parent, _, names in os.walk(GROUP):
            if parent == GROUP or set(os.path.relpath(parent, GROUP).split("/")) & (before | {"shell"}):
                continue
            for name in files:
                if name in names:
                    with open(os.path.join(parent, name), encoding="ascii") as file:
                        text = file.read().strip()
                    if name not in found or found[name].startswith("max"):
                        found[name] = text
        return found
    finally:
        process.communicate(b"\n", timeout=60)


@test
def fork_bomb_ends():
    """A fork bomb stays within pids.max and ends."""
    code = ("import os, time\nfor _ in range(9):\n  try: os.fork()\n  except OSError as e:\n    if e.errno == 11: print('full', flush=True)\n"
            "    os._exit(0)\ntime.sleep(0.2)\nos._exit(0)")
    result = run("--pids-limit", "20", "-c", code)
    expect(result["verdict"] in ("ok", "error", "timeout"), result["verdict"], result["message"])
    expect("full" in result["stdout"], result["stdout"])
    expect("cgroup" in enforced(result, "pids"), result["limits"]["pids"])
    peak = result["usage"]["pids_peak"]
    expect(peak is None or peak <= 21, "peak", peak)


@test
def process_count_is_bounded():
    """Counted exactly: at most as many as were asked for."""
    code = ("import os, signal\nn = 0\ntry:\n  while n < 100:\n    if os.fork() == 0: signal.pause()\n    n += 1\n"
            "except OSError as e: print(n, e.errno)")
    result = run("--pids-limit", "12", "-c", code)
    count, number = map(int, result["stdout"].split())
    expect(number == 11 and count <= 12, result["stdout"])


@test
def cpu_limit_bites():
    """A loop at 0.25 CPUs gets about a quarter of the time, and without limit much more: as a ratio, on a
    machine that does nothing else."""
    code = ("import time\nend = time.monotonic() + 4\nwhile time.monotonic() < end: pass\n")

    def share(*args):
        result = run(*args, "-c", code)
        expect(result["verdict"] == "ok", result["verdict"], result["message"], result["stderr"])
        used = result["usage"]["cpu_user_ms"] + result["usage"]["cpu_system_ms"]
        return used / result["timings_ms"]["run"], result
    limited, result = share("--cpus", "0.25")
    free, _ = share("--cpus", "1")
    expect("cgroup" in enforced(result, "cpus"), result["limits"]["cpus"])
    expect(limited < 0.5 and limited < free * 0.7, "limited", limited, "free", free)


@test
def cpu_throttling_is_counted():
    """cpu.stat of the group says that it was throttled."""
    process = subprocess.Popen(command("--cpus", "0.2", "-c",
                                "import time\nend = time.monotonic() + 2\nwhile time.monotonic() < end: pass\n"
                                "print('ready', flush=True)\ninput()"), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        expect(process.stdout.readline() == b"ready\n", "the script did not start")
        most = 0
        for parent, _, names in os.walk(GROUP):
            if "cpu.stat" in names and "shell" not in parent and parent != GROUP:
                with open(parent + "/cpu.stat", encoding="ascii") as file:
                    stat = dict(line.split() for line in file)
                most = max(most, int(stat.get("nr_throttled", 0)))
        expect(most > 0, "nr_throttled is 0")
    finally:
        process.communicate(b"\n", timeout=60)


@test
def daemons_are_killed_with_the_group():
    """What the script leaves running is gone when hutch returns, and so is its group."""
    code = "import os, time\nfor _ in range(5):\n  if os.fork() == 0: os.setsid(); time.sleep(300)\nprint('left five')"
    result = run("-c", code)
    expect(result["verdict"] == "ok" and result["stdout"] == "left five\n", result)
    left = [pid for pid in os.listdir("/proc") if pid.isdigit() and b"left five" in command_line(pid)]
    expect(not left, left)


def command_line(pid):
    try:
        with open("/proc/%s/cmdline" % pid, "rb") as file:
            return file.read()
    except OSError:
        return b""


@test
def strict_refuses_without_landlock():
    """The strict policy requires Landlock, and without it there is an error before any code runs."""
    needs(landlock=False)
    if os.path.exists(DATA + "/ran"):
        os.unlink(DATA + "/ran")
    result = run("--policy", "strict", "--data", DATA, "-c", "open('ran', 'w')")
    expect(result["verdict"] == "setup_failed" and result["process"] == 125, result["verdict"], result["message"])
    expect("andlock" in result["message"], result["message"])
    expect(not os.path.exists(DATA + "/ran"), "the script ran")


def check_strict(name, off=()):
    """Runs with the policy @name: every layer but @off is active, and every limit has its enforcer, the cgroup where it can be.
    There are no subordinate ids in the machine, so none is a user of its own."""
    result = run("--policy", name, "--data", DATA, "-c", "open('ran', 'w').write('yes'); print('ran')")
    expect(result["verdict"] == "ok" and result["stdout"] == "ran\n", result["verdict"], result["message"], result["stderr"])
    for limit in ("memory", "pids", "cpus"):
        expect("cgroup" in enforced(result, limit), limit, result["limits"][limit])
    for limit, state in result["limits"].items():
        expect(state["asked"] is None or (state["enforced_by"] and "none" not in state["enforced_by"]), limit, state)
    for layer, state in result["layers"].items():
        expect(state["active"] != (layer in off or layer == "own_uid"), layer, state)
    expect(os.path.exists(DATA + "/ran"), "no file came out")


@test
def strict_runs_whole():
    """The strict policy as it is: all layers and all limits by the cgroup, Landlock among them, in one kernel."""
    needs(landlock=True)
    check_strict("strict")


@test
def strict_keeps_its_promise():
    """With everything on, what is outside of the rules is still refused, and what is within works."""
    needs(landlock=True)
    code = ("import os\nfor path in ('/etc/x', '/x', '/proc/sys/kernel/hostname'):\n"
            "  try: open(path, 'w'); print('wrote', path)\n  except OSError as e: pass\n"
            "open('/mnt/data/kept', 'w').write('kept'); open('/tmp/t', 'w').write('t'); print('done')")
    result = run("--policy", "strict", "--data", DATA, "-c", code)
    expect(result["verdict"] == "ok" and result["stdout"] == "done\n", result["verdict"], result["stdout"], result["stderr"])
    expect([entry["path"] for entry in result["files"]["added"]] in (["kept"], []), result["files"])
    result = run("--policy", "strict", "--memory", "64m", "-c", "x = bytearray(10**9)")
    expect(result["verdict"] == "out_of_memory", result["verdict"], result["message"])


@test
def strict_without_landlock_runs():
    """The same policy with Landlock left out, and inodes of the sandbox's own where the kernel was built without overlay:
    everything else that it requires is there."""
    off = ["landlock"]
    with open("/proc/filesystems", encoding="ascii") as kinds:
        if "overlay" not in kinds.read().split():
            off.append("own_inodes")
    check_strict(policy("almost-strict", extends="strict", layers={layer: "off" for layer in off}), off=off)


@test
def cgroup_view_inside():
    """Inside, the cgroup namespace shows the group as the root, and no cgroup file system is mounted."""
    result = run("-c", "print(open('/proc/self/cgroup').read(), [l for l in open('/proc/self/mountinfo') if 'cgroup' in l])")
    expect(result["stdout"].split("\n")[0].startswith("0::/") and "/.." not in result["stdout"], result["stdout"])
    expect(result["stdout"].rstrip().endswith("[]"), result["stdout"])


@test
def sigkill_of_hutch_is_swept():
    """hutch dies by SIGKILL: its sandbox dies with it, and the next start removes its group."""
    for _ in range(3):
        process = subprocess.Popen(command("-c", "print('ready', flush=True)\nimport time\ntime.sleep(300)"),
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        expect(process.stdout.readline() == b"ready\n", "the script did not start")
        process.kill()
        process.wait()
        process.stdout.close()
    expect(run("-c", "pass")["verdict"] == "ok")
    expect(groups() == ["shell"], groups())


@test
def two_at_once_have_groups_of_their_own():
    """An out-of-memory kill in one sandbox does not touch the other."""
    other = subprocess.Popen(command("-c", "print('ready', flush=True); input(); print('alive')"), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    expect(other.stdout.readline() == b"ready\n", "the script did not start")
    result = run("--memory", "48m", "-c", "bytearray(10**9)")
    output, _ = other.communicate(b"\n", timeout=60)
    expect(result["verdict"] == "out_of_memory", result["verdict"])
    expect(output == b"alive\n" and other.returncode == 0, output, other.returncode)


@test
def all_of_a_sandbox_is_in_its_group():
    """Init, the program, what it started, and a worker's memory holder: in one group, with nobody else in it."""
    code = ("import subprocess\nfor _ in range(3): subprocess.Popen(['sleep', '100'])\nprint('ready', flush=True); input()")
    process = subprocess.Popen(command("-c", code), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        expect(process.stdout.readline() == b"ready\n", "the script did not start")
        members = {}
        for parent, _, names in os.walk(GROUP):
            with open(parent + "/cgroup.procs", encoding="ascii") as file:
                members[parent] = [pid.strip() for pid in file]
        busy = [parent for parent, pids in members.items() if any(command_line(pid).startswith(b"sleep\0") for pid in pids)]
        expect(len(busy) == 1, members)
        # Init, the program, three children; and the memory holder.
        expect(len(members[busy[0]]) == 5 + len(WARM), [command_line(pid) for pid in members[busy[0]]])
        expect(os.path.basename(busy[0]).startswith("hutch-"), busy)
    finally:
        process.communicate(b"\n", timeout=60)


@test
def memory_is_given_back_by_execve():
    """A program that executes another has the first one's memory no more, whatever else holds on to it."""
    code = ("import os, sys\nheld = bytearray(b'x') * (60 << 20)\nos.execv(sys.executable, [sys.executable, '-c', "
            "'import time; time.sleep(0.5)\\nheld = bytearray(b\"x\") * (60 << 20)\\nprint(len(held) >> 20)'])")
    result = run("--memory", "110m", "-c", code)
    expect(result["verdict"] == "ok" and result["stdout"] == "60\n", result["verdict"], result["stderr"])


# --------------------------------------------------------------------------------------------------
# Limits of one request, set in the group of a sandbox that was prepared for the policy's

class Many:
    """An engine with one kind of zygote, which runs one program after the other."""

    def __enter__(self):
        self.process = subprocess.Popen([MANY, "-j", "1", "--rootfs", "host", "--zygote", "bare", "--min", "2", "--max", "2"],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(timeout=60)

    def submit(self, code, **fields):
        self.process.stdin.write(json.dumps(dict({"code": code}, **fields)).encode() + b"\n")
        self.process.stdin.flush()

    def take(self):
        line = self.process.stdout.readline()
        expect(line, "the engine has ended")
        return json.loads(line)

    def run(self, code, **fields):
        """In a sandbox that was prepared: this machine is slow to prepare one."""
        for _ in range(10):
            self.submit(code, **fields)
            answer = self.take()
            expect("result" in answer, answer)
            if answer["prepared"]:
                return answer["result"]
            time.sleep(3)
        raise Failed("no sandbox is ever prepared")


def values(name):
    """Of a file of the groups of all sandboxes, by group."""
    found = {}
    for parent, _, names in os.walk(GROUP):
        if os.path.basename(parent).startswith("hutch-") and name in names:
            with open(os.path.join(parent, name), encoding="ascii") as file:
                found[parent] = file.read().strip()
    return found


@engine_test
def prepared_group_is_bound_tighter():
    """Files of one group say what the policy does first, and what the request does when its code runs."""
    wanted = {"memory.max": str(100 * MIB), "pids.max": "12", "cpu.max": "40000 100000"}
    with Many() as many:
        many.run("pass")
        time.sleep(5)
        before = {name: values(name) for name in wanted}
        many.submit("import time; time.sleep(15)", memory_bytes=100 * MIB, pids=10, cpus=400)
        deadline = time.monotonic() + 14
        while not any(value == wanted["cpu.max"] for value in values("cpu.max").values()) and time.monotonic() < deadline:
            time.sleep(0.1)
        for name, value in wanted.items():
            changed = [group for group, now in values(name).items() if now == value]
            expect(len(changed) == 1 and before[name].get(changed[0]) not in (None, value), name, before[name], values(name))
        expect(many.take()["prepared"], "the group was built for it")


@engine_test
def prepared_memory_is_the_requests():
    """The kernel ends the sandbox at the request's limit; what is shown and said is that, too."""
    with Many() as many:
        result = many.run(MEMINFO + "print(meminfo()['MemTotal'] >> 20, flush=True)\nx = bytearray(10**9)", memory_bytes=80 * MIB)
        expect(result["verdict"] == "out_of_memory" and result["stdout"] == "80\n", result)
        expect(str(80 * MIB) in result["message"] and enforced(result, "memory") == ["cgroup"], result["message"], result["limits"])
        expect(result["usage"]["memory_peak_bytes"] <= 90 * MIB, result["usage"])
        result = many.run("x = bytearray(b'x') * (40 << 20)\nprint(len(x) >> 20)", memory_bytes=80 * MIB)
        expect(result["verdict"] == "ok" and result["stdout"] == "40\n", result["verdict"], result["message"])
        result = many.run("x = bytearray(b'x') * (150 << 20)\nprint('policy')")
        expect(result["stdout"] == "policy\n", result["verdict"], result["message"])


@engine_test
def prepared_processes_are_the_requests():
    code = ("import os, signal\nn = 0\ntry:\n  while n < 100:\n    if os.fork() == 0: signal.pause()\n    n += 1\n"
            "except OSError as e: print(n, e.errno)")
    with Many() as many:
        result = many.run(code, pids=12)
        expect(result["stdout"] == "11 11\n", result["stdout"], result["verdict"], result["message"])
        expect("cgroup" in enforced(result, "pids"), result["limits"]["pids"])


@engine_test
def prepared_cpu_is_the_requests():
    """As a ratio to a run without."""
    code = "import time\nend = time.monotonic() + 4\nwhile time.monotonic() < end: pass\n"
    with Many() as many:
        shares = []
        for fields in ({"cpus": 250}, {}):
            result = many.run(code, **fields)
            expect(result["verdict"] == "ok" and enforced(result, "cpus") == ["cgroup"], result["verdict"], result["limits"])
            shares.append((result["usage"]["cpu_user_ms"] + result["usage"]["cpu_system_ms"]) / result["timings_ms"]["run"])
        expect(shares[0] < 0.5 and shares[0] < shares[1] * 0.7, shares)


@test
def no_group_is_left():
    """After all of this, the subtree is as it was."""
    deadline = time.monotonic() + 20
    while groups() != ["shell"] and time.monotonic() < deadline:
        time.sleep(0.2)
    expect(groups() == ["shell"], groups())


def attempt(function, name):
    started = time.monotonic()
    try:
        function()
        word, why = "PASS", ""
    except Skipped as error:
        word, why = "SKIP", str(error)
    except Failed as error:
        word, why = "FAIL", str(error)
    except subprocess.TimeoutExpired as error:
        word, why = "FAIL", "no end within %s s" % error.timeout
    except Exception:  # the next tests run all the same, and outside it is a failure
        word, why = "FAIL", traceback.format_exc().replace("\n", " | ")
    print("UML %s %s %.1f %s" % (word, name, time.monotonic() - started, why), flush=True)


def names():
    return [function.__name__ for function in TESTS + ENGINE_TESTS] + ["warm_" + function.__name__ for function in TESTS]


def main():
    os.makedirs(DATA, exist_ok=True)
    for function in TESTS:
        attempt(function, function.__name__)
    for function in ENGINE_TESTS:
        attempt(function, function.__name__)
    WARM.append("--warm")
    for function in TESTS:
        attempt(function, "warm_" + function.__name__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
