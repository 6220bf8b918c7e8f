"""Limits, whoever enforces them: the run ends, the verdict says why, and the report names the enforcer."""
import gzip
import os
import resource
import select
import signal
import subprocess
import time

import pytest
import support
from support import command, run, run_json

MIB = 1 << 20


# --------------------------------------------------------------------------------------------------
# Time

def test_timeout_sends_sigterm_first(policy):
    """What the script writes on SIGTERM is part of the result."""
    code = ("import signal, sys, time\ndef end(*_):\n  print('last words', flush=True); sys.exit(0)\n"
            "signal.signal(signal.SIGTERM, end)\nprint('first', flush=True)\ntime.sleep(60)")
    result = run_json("--policy", policy(limits={"grace": "20s"}), "--timeout", "5s", "-c", code)
    assert result["verdict"] == "timeout" and result["process"] == 124
    assert result["stdout"] == "first\nlast words\n"
    assert result["message"]


def test_timeout_kills_who_ignores_sigterm(policy):
    code = ("import signal, time\nsignal.signal(signal.SIGTERM, lambda *_: print('no', flush=True))\n"
            "print('first', flush=True)\nwhile True: time.sleep(1)")
    result = run_json("--policy", policy(limits={"grace": "3s"}), "--timeout", "4s", "-c", code)
    assert result["verdict"] == "timeout" and result["process"] == 124
    assert result["stdout"] == "first\nno\n"
    assert result["signal"] == "SIGKILL" and result["exit_code"] is None


def test_timeout_returns_partial_output_of_plain_run():
    done = run("--timeout", "4s", "-c", "import time\nprint('partial', flush=True)\ntime.sleep(60)")
    assert done.returncode == 124
    assert done.stdout == b"partial\n"
    assert b"hutch: " in done.stderr, "the end is explained"


def test_timeout_names_itself():
    result = run_json("--timeout", "300ms", "-c", "import time; time.sleep(60)")
    assert result["limits"]["wall"] == {"asked": 300, "enforced_by": ["supervisor"]}
    assert 300 <= result["timings_ms"]["run"]


def test_timeout_reaches_children():
    code = "import os, time\nfor _ in range(5):\n  if os.fork() == 0: break\ntime.sleep(60)"
    assert run_json("--timeout", "500ms", "-c", code)["verdict"] == "timeout"


def test_timeout_while_nobody_reads():
    """A script blocked in write(2), because the caller does not read, is stopped as well; what it wrote is
    there for whoever reads it at last."""
    process = subprocess.Popen(command("--timeout", "4s", "-c", "for _ in range(1000): print('x' * 1000)\nimport time; time.sleep(60)"),
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    select.select([process.stdout], [], [], 20)  # it has begun; nothing is read
    deadline = time.monotonic() + 20
    while support.descendants(process.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not support.descendants(process.pid), "the sandbox lives on"
    output, _ = process.communicate(timeout=20)
    assert process.returncode == 124 and output.startswith(b"x" * 1000)


def test_timeout_with_input_that_never_ends():
    reader, writer = os.pipe()
    try:
        done = subprocess.run(command("--timeout", "500ms", "-c", "import sys; sys.stdin.read()"), stdin=reader, timeout=30,
                              capture_output=True, check=False)
        assert done.returncode == 124
    finally:
        os.close(reader)
        os.close(writer)


def test_end_of_script_with_input_that_never_ends():
    reader, writer = os.pipe()
    try:
        done = subprocess.run(command("-c", "print(1)"), stdin=reader, timeout=30, capture_output=True, check=False)
        assert (done.returncode, done.stdout) == (0, b"1\n")
    finally:
        os.close(reader)
        os.close(writer)


def test_cpu_time(policy):
    result = run_json("--policy", policy(limits={"cpu_time": "400ms"}), "-c", "while True: pass")
    assert result["verdict"] == "cpu_time"
    assert result["limits"]["cpu_time"]["asked"] == 400
    assert set(result["limits"]["cpu_time"]["enforced_by"]) & {"cgroup", "rlimit", "supervisor"}


def test_cpu_time_of_all_processes(policy):
    """Four processes that each stay below the limit are together above it."""
    code = "import os\nfor _ in range(2): os.fork()\nwhile True: pass"
    result = run_json("--policy", policy(limits={"cpu_time": "1s"}), "--timeout", "20s", "-c", code)
    assert result["verdict"] == "cpu_time"


NO_WAIT = {
    "SIG_IGN": "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    "SA_NOCLDWAIT": "import ctypes, struct\nctypes.CDLL(None).sigaction(signal.SIGCHLD, struct.pack('Q128xi4xQ', 0, 2, 0), None)",
}


@pytest.mark.parametrize("how", NO_WAIT)
@pytest.mark.parametrize("ms", [20, 300])
def test_cpu_time_of_children_that_the_kernel_reaps(policy, how, ms):
    """They are in no process's count of children. What was seen of them counts all the same."""
    code = ("import os, signal, time\n%s\n"
            "for _ in range(%d):\n"
            "  if os.fork() == 0:\n"
            "    while time.process_time() < %f: pass\n"
            "    os._exit(0)\n"
            "  try: os.wait()\n"
            "  except ChildProcessError: pass\n"
            "print('done')" % (NO_WAIT[how], 6000 // ms, ms / 1000))
    result = run_json("--policy", policy(limits={"cpu_time": "1s"}), "--timeout", "60s", "-c", code, timeout=90)
    assert result["verdict"] == "cpu_time", (result["verdict"], result["message"], result["usage"])
    usage = result["usage"]
    if not result["layers"]["cgroup"]["active"]:
        assert usage["cpu_at_least"] and usage["cpu_user_ms"] + usage["cpu_system_ms"] >= 1000, usage


def test_cpu_time_of_children_is_whole():
    """Children that are waited for are counted once, whether they use less than a tick or more."""
    code = ("import os, time\n"
            "for i in range(40):\n"
            "  if os.fork() == 0:\n"
            "    while time.process_time() < i / 1000: pass\n"
            "    os._exit(0)\n"
            "  os.wait()\n"
            "print(*(round(1000 * t) for t in os.times()[:4]))")
    result = run_json("-c", code)
    usage, own = result["usage"], sum(map(int, result["stdout"].split()))
    assert not usage["cpu_at_least"]
    assert own - 40 <= usage["cpu_user_ms"] + usage["cpu_system_ms"] <= own + 400, (usage, own)


def test_cpu_time_is_not_wall_time(policy):
    code = "import time; time.sleep(0.9); print('slept')"
    result = run_json("--policy", policy(limits={"cpu_time": "700ms"}), "-c", code)
    assert (result["verdict"], result["stdout"]) == ("ok", "slept\n")


def test_one_cpu():
    result = run_json("--cpus", "1", "-c", "import os; print(len(os.sched_getaffinity(0)))")
    enforced = result["limits"]["cpus"]
    assert enforced["asked"] == 1000
    assert set(enforced["enforced_by"]) & {"cgroup", "affinity"}
    if "affinity" in enforced["enforced_by"]:
        assert result["stdout"] == "1\n"


def test_half_a_cpu_is_honest():
    """Without the cpu controller a fraction cannot be had, and the report has to admit it."""
    limit = run_json("--cpus", "0.5", "-c", "pass")["limits"]["cpus"]
    assert limit["asked"] == 500
    assert limit["enforced_by"], limit


# --------------------------------------------------------------------------------------------------
# Memory

def test_memory_by_whoever_enforces_it():
    """A gigabyte in 64 MB: an out-of-memory kill by the cgroup, or by the supervisor."""
    result = run_json("--memory", "64m", "-c", "bytearray(10**9)\nimport time; time.sleep(20)\nprint('got it')")
    assert "got it" not in result["stdout"]
    enforced = result["limits"]["memory"]
    assert enforced["asked"] == 64 * MIB
    if "cgroup" in enforced["enforced_by"]:
        assert result["verdict"] == "out_of_memory", result
    else:
        assert enforced["enforced_by"] == ["supervisor"], enforced
        assert result["verdict"] == "out_of_memory", result


def test_memory_below_the_limit():
    result = run_json("--memory", "256m", "-c", "x = bytearray(64 << 20); print(len(x))")
    assert (result["verdict"], result["stdout"]) == ("ok", "%d\n" % (64 * MIB))


def test_memory_of_all_processes_together():
    """Ten children with 64 MiB each, in 256 MB: by the fallback, the supervisor has to add them up."""
    code = ("import os, signal\nr, w = os.pipe()\nfor _ in range(10):\n"
            "  if os.fork() == 0:\n    x = b'x' * (64 << 20); os.write(w, b'1'); signal.alarm(20); signal.pause()\n"
            "got = b''\nwhile len(got) < 10: got += os.read(r, 10)\nsignal.alarm(5)\nsignal.pause()\n")
    result = run_json("--memory", "256m", "--timeout", "25s", "-c", code)
    assert result["verdict"] == "out_of_memory", (result["verdict"], result["message"], result["limits"]["memory"])


def test_memory_is_not_refused_in_silence():
    """Libraries that do not look at what malloc(3) returns gave results that looked fine. Now what is asked for is had,
    and what is used beyond the limit ends the run."""
    code = ("import ctypes, sys, time\nlibc = ctypes.CDLL(None)\nlibc.malloc.restype = ctypes.c_void_p\n"
            "p = libc.malloc(ctypes.c_size_t(600 << 20))\nprint(p is not None, flush=True)\n"
            "if len(sys.argv) > 1: libc.memset(ctypes.c_void_p(p), 1, ctypes.c_size_t(600 << 20)); time.sleep(20)\nprint('used')")
    result = run_json("--memory", "200m", "-c", code)
    assert (result["verdict"], result["stdout"]) == ("ok", "True\nused\n"), result
    result = run_json("--memory", "200m", "-c", code, "use")
    assert (result["verdict"], result["stdout"]) == ("out_of_memory", "True\n"), result


@pytest.mark.parametrize("way", [(), ("--no-server",), ("--warm",)])
def test_memory_that_is_only_reserved(way):
    """Programs built with -fsanitize=address or thread reserve 15 TB for their shadow; what they use of it counts."""
    with open("/proc/sys/vm/overcommit_memory", encoding="ascii") as file:
        if file.read().strip() == "2":
            support.miss("this kernel does not reserve what it does not have (vm.overcommit_memory)")
    code = ("import mmap, sys, time\nprivate = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_NORESERVE\n"
            "m = mmap.mmap(-1, 15 << 40, private)\nprint(len(m) >> 40, flush=True)\n"
            "for at in range(int(sys.argv[1]) << 8): m[at * 4096] = 1\nprint('used')")
    words = [*way, "--memory", "200m", "-c", code]
    result = run_json(*words, "20")
    assert (result["verdict"], result["stdout"]) == ("ok", "15\nused\n"), result
    result = run_json(*words, "2000")
    assert (result["verdict"], result["stdout"]) == ("out_of_memory", "15\n"), result
    assert "rlimit" not in result["limits"]["memory"]["enforced_by"]


def test_memory_of_linear_algebra():
    """numpy returned NaN, and no exception, when its working space was refused."""
    code = ("import numpy as np\nrng = np.random.default_rng(1)\n"
            "for n in (300, 700, 1100):\n"
            "  print(n, np.isfinite(np.linalg.svd(rng.random((n, n)), compute_uv=True)[1]).all(), flush=True)")
    result = run_json("--memory", "150m", "--timeout", "120s", "-c", code, image="python", timeout=150)
    assert "False" not in result["stdout"] and result["verdict"] in ("ok", "out_of_memory"), result


def test_memory_of_watches(policy):
    """What epoll watches is the kernel's memory: 180,000 watches take more than 50 MB, and no process shows them."""
    code = ("import os, select, time\n[os.pipe() for _ in range(100)]\nfor _ in range(2): os.fork()\npolls = []\n"
            "for _ in range(250):\n  polls.append(select.epoll())\n"
            "  for fd in range(3, 190):\n    try: polls[-1].register(fd)\n    except OSError: pass\n"
            "time.sleep(20)")
    result = run_json("--policy", policy(limits={"open_files": 512}), "--memory", "64m", "-c", code, timeout=60)
    assert result["verdict"] == "out_of_memory", (result["verdict"], result["message"], result["usage"])


@pytest.mark.parametrize("make", ["eventfd(0, 0)", "timerfd_create(1, 0)", "signalfd(-1, bytes(8), 0)"])
def test_memory_of_descriptors(make, policy):
    """Each is a file of the kernel's: 18,000 take 11 to 17 MB, of which no process shows anything."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < 18000:
        pytest.skip("nobody here can have 18,000 descriptors")
    code = "import ctypes, time\nlibc = ctypes.CDLL(None)\nwhile libc.%s >= 0: pass\nprint('all', flush=True); time.sleep(20)" % make
    result = run_json("--policy", policy(limits={"open_files": 18000}), "--memory", "20m", "-c", code, timeout=60)
    assert result["verdict"] == "out_of_memory", (result["verdict"], result["message"], result["usage"])


KEEPERS = {  # as much as there is room for; nothing of it belongs to the process
    "shm": "for _ in range(40):\n  at = libc.shmat(libc.shmget(0, 16 << 20, 0o1600), None, 0)\n"
           "  ctypes.memset(at, 1, 16 << 20); libc.shmdt(ctypes.c_void_p(at))",
    "msg": "b = b'1' + bytes(8010)\nfor _ in range(32000):\n  q = libc.msgget(0, 0o1600)\n  while libc.msgsnd(q, b, 8000, 0o4000) == 0: pass",
    "many queues": "for _ in range(32000):\n  q = libc.msgget(0, 0o1600)\n  for _ in range(100): libc.msgsnd(q, b'12345678', 0, 0o4000)",
    "sem": "for _ in range(1000): libc.semget(0, 30000, 0o1600)",
}


@pytest.mark.parametrize("way", [("--no-server",), ("--warm",)])
@pytest.mark.parametrize("what", KEEPERS)
def test_memory_of_system_v(what, way):
    """It belongs to no process and stays when all who used it have ended."""
    code = ("import ctypes, os, time\nlibc = ctypes.CDLL(None)\nlibc.shmat.restype = ctypes.c_void_p\nif os.fork() == 0:\n  "
            + KEEPERS[what].replace("\n", "\n  ") + "\n  os._exit(0)\nos.wait()\ntime.sleep(20)")
    result = run_json(*way, "--memory", "96m", "-c", code, timeout=60)
    assert result["verdict"] == "out_of_memory", (result["verdict"], result["message"], result["stderr"])


QUEUES = {  # of sockets that nobody reads
    "UDP-Lite": "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 136); s.bind(('127.0.0.1', 0)); s.connect(s.getsockname())\n"
                "    s.setblocking(False)\n    for _ in range(40): s.send(bytes(60000))",
    "netlink": "s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0); s.setblocking(False)\n"
               "    for n in range(200): s.send(struct.pack('IHHII', 2000, 999, 5, n, 0).ljust(2000, b'\\0'))",
}


@pytest.mark.parametrize("way", [("--no-server",), ("--warm",)])
@pytest.mark.parametrize("what", QUEUES)
def test_memory_of_queues(what, way):
    """What waits in a socket is memory of the kernel. A request that nobody understands comes back whole in its answer."""
    code = ("import os, socket, struct, time\nfor _ in range(2): os.fork()\nkept = []\nfor _ in range(900):\n  try:\n    "
            + QUEUES[what] + "\n  except OSError: pass\n  kept.append(s)\ntime.sleep(20)")
    result = run_json(*way, "--memory", "128m", "-c", code, timeout=60)
    assert result["verdict"] == "out_of_memory", (result["verdict"], result["message"], result["stderr"], result["usage"])


def test_a_little_system_v():
    """PostgreSQL's initdb takes a segment of 56 bytes."""
    code = ("import ctypes\nlibc = ctypes.CDLL(None)\nlibc.shmat.restype = ctypes.c_void_p\nn = libc.shmget(0, 56, 0o1600)\n"
            "ctypes.memset(libc.shmat(n, None, 0), 1, 56)\nprint(n, libc.semget(0, 16, 0o1600), libc.msgget(0, 0o1600))")
    result = run_json("-c", code)
    assert (result["verdict"], result["stdout"]) == ("ok", "0 0 0\n"), result


@pytest.mark.parametrize("way", [(), ("--warm",)])
def test_as_many_descriptors_as_elsewhere(way):
    """select(2) takes all of them."""
    code = ("import os, resource, select\nprint(resource.getrlimit(resource.RLIMIT_NOFILE))\nfds = []\n"
            "try:\n  while True: fds.append(os.dup(0))\nexcept OSError: pass\nprint(fds[-1], len(select.select(fds, [], [], 5)[0]) == len(fds))")
    result = run_json(*way, "-c", code)
    assert result["stdout"] == "(1024, 1024)\n1023 True\n", result


def test_memory_of_locks():
    """Every other byte of each file is locked: 400,000 locks take more than 75 MB of the kernel's. They may take
    longer to count than a sample may."""
    code = ("import fcntl, os, time\nfor _ in range(3): os.fork()\n"
            "files = [open('%d-%d' % (os.getpid(), n), 'w') for n in range(25)]\n"
            "for file in files:\n  for at in range(0, 4000, 2): fcntl.lockf(file, fcntl.LOCK_EX, 1, at)\n"
            "time.sleep(20)")
    result = run_json("--memory", "96m", "--timeout", "120s", "-c", code, timeout=150)
    assert result["verdict"] in ("out_of_memory", "killed"), (result["verdict"], result["message"], result["usage"])


def test_memory_beside_locks_that_take_long_to_count():
    """What is inside can make one process take as long as it likes: a sample ends in it, too, and memory is counted."""
    code = ("import fcntl, os, struct, time\nfile = os.open('locks', os.O_RDWR | os.O_CREAT)\n"
            "for at in range(20000, 0, -1): fcntl.fcntl(file, 37, struct.pack('hhqqi4x', fcntl.F_RDLCK, 0, 2 * at, 1, 0))\n"
            "for _ in range(240): os.dup(file)\n"
            "time.sleep(0.5)\nheld = [bytearray(50 << 20) for _ in range(20)]\ntime.sleep(20)\n")
    result = run_json("--memory", "256m", "-c", code, timeout=60)
    assert result["verdict"] in ("out_of_memory", "killed"), (result["verdict"], result["message"], result["usage"])


VFORK = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
held = bytearray(150 << 20)
for at in range(0, len(held), 4096): held[at] = 1
stack = ctypes.create_string_buffer(1 << 16)
top = ctypes.c_void_p(ctypes.addressof(stack) + len(stack) & ~15)
CLONE_VM, CLONE_VFORK, SIGCHLD = 0x100, 0x4000, 17
%s
pid = libc.clone(ctypes.cast(libc.sleep, ctypes.c_void_p), top, CLONE_VM | CLONE_VFORK | SIGCHLD, ctypes.c_void_p(1))
print(os.waitpid(pid, 0)[0] == pid)
"""


def test_memory_that_a_child_of_vfork_has(policy):
    """It has its parent's until it executes a program: memory counts once, and a child that has its own counts beside it."""
    small = policy(limits={"memory": "256m", "pids": 32})
    result = run_json("--policy", small, "-c", VFORK % "", timeout=60)
    assert (result["verdict"], result["stdout"]) == ("ok", "True\n"), (result["verdict"], result["message"])
    ended = ("for n in range(3):\n  if os.fork() == 0:\n    import threading, time\n"
             "    threading.Thread(target=lambda own: (bytearray(own), time.sleep(20)), args=(held,)).start()\n"
             "    libc.syscall(60 if os.uname().machine == 'x86_64' else 93, 0)")  # the first thread alone
    held = "held = bytearray(90 << 20)\nfor at in range(0, len(held), 4096): held[at] = 1\nimport ctypes, os\nlibc = ctypes.CDLL(None)\n"
    result = run_json("--policy", small, "-c", held + ended + "\nos.wait()", timeout=60)
    assert result["verdict"] == "out_of_memory", (result["verdict"], result["message"])
    other = "if os.fork() == 0:\n    for at in range(0, len(held), 4096): held[at] = 2\n    libc.sleep(20)"
    result = run_json("--policy", small, "-c", VFORK % other, timeout=60)
    assert result["verdict"] == "out_of_memory", (result["verdict"], result["message"])


def test_memory_of_pipes():
    """What is in a pipe is in no process: 960 pipes are more than 60 MB."""
    code = ("import os, time\nfor _ in range(3): os.fork()\n"
            "for _ in range(120):\n  end = os.pipe()[1]\n  os.set_blocking(end, False)\n"
            "  try: os.write(end, b'x' * 65536)\n  except BlockingIOError: pass\n"
            "time.sleep(20)")
    result = run_json("--memory", "64m", "-c", code, timeout=60)
    assert result["verdict"] == "out_of_memory", (result["verdict"], result["message"], result["usage"])


def test_processors_are_counted(policy):
    """Pools that are made as large as the machine are made as large as the sandbox."""
    code = "import os; print(os.cpu_count(), os.sysconf('SC_NPROCESSORS_ONLN'), os.popen('nproc').read())"  # psutil's is the second
    host = len(os.sched_getaffinity(0))
    for asked, wanted in ((1, 1), (0.5, 1), (2, min(2, host)), (None, host)):
        result = run_json("--policy", policy(limits={"cpus": asked}), "-c", code)
        assert result["stdout"].split() == [str(wanted)] * 3, (asked, result["stdout"], result["stderr"])


def test_processors_of_the_host_are_known():
    """Tables are as long as there are processors, as a thread may learn the number of the last one; lscpu shows both."""
    result = run_json("--cpus", "1", "-c", "import os; print(os.sysconf('SC_NPROCESSORS_CONF')); os.system('LC_ALL=C lscpu')")
    lines = dict(line.split(":", 1) for line in result["stdout"].splitlines()[1:])
    assert int(result["stdout"].split()[0]) > max(os.sched_getaffinity(0)), result["stdout"]
    assert lines["On-line CPU(s) list"].strip() == "0" and int(lines["CPU(s)"]) >= len(os.sched_getaffinity(0)), result["stderr"]


def test_memory_is_shown():
    """Programs that fit themselves to the memory there is find their limit, and what is left of it, soon."""
    code = support.MEMINFO + (
        "first = await_meminfo(lambda now: now['MemAvailable'] < now['MemTotal'])\n"
        "held = b'x' * (100 << 20)\n"
        "full = await_meminfo(lambda now: first['MemAvailable'] - now['MemAvailable'] > 90 << 20)\n"
        "del held\n"
        "again = await_meminfo(lambda now: first['MemAvailable'] - now['MemAvailable'] < 10 << 20)\n"
        "print(*(now['MemTotal'] >> 20 for now in (first, full, again)), full['SwapTotal'], first['MemAvailable'] - full['MemAvailable'] >> 20)")
    result = run_json("--memory", "256m", "-c", code)
    assert result["verdict"] == "ok", (result["message"], result["stderr"])
    *totals, swap, fell = map(int, result["stdout"].split())
    assert totals == [256] * 3 and swap == 0 and 90 <= fell <= 120, result["stdout"]


def test_memory_of_the_host_is_shown_without_a_limit(policy):
    """And where the limit is beyond it: there is no more than that."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for asked in (None, "64T"):
        result = run_json("--policy", policy(limits={"memory": asked}), "-c", support.MEMINFO + "print(meminfo()['MemTotal'], len(meminfo()))")
        assert int(result["stdout"].split()[0]) == total, (asked, result["stdout"], result["stderr"])


def test_tools_read_the_memory_shown():
    """The format is the kernel's: what reads it is psutil, and free(1)."""
    code = ("import psutil, subprocess\nnow, swap = psutil.virtual_memory(), psutil.swap_memory()\n"
            "print(now.total, swap.total, 0 < now.available <= now.total, now.used <= now.total)\n"
            "print(*subprocess.run(['free', '-m'], stdout=-1, check=True, text=True).stdout.splitlines()[1].split()[:2])")
    result = run_json("--memory", "300m", "-c", code, image="python")
    assert result["stdout"] == "%d 0 True True\nMem: 300\n" % (300 * MIB), (result["stdout"], result["stderr"])


def test_memory_peak_is_reported():
    result = run_json("-c", "x = b'x' * (100 << 20); print(len(x))")
    peak = result["usage"]["memory_peak_bytes"]
    assert peak is None or 100 * MIB <= peak < 1000 * MIB


def test_memory_survives_many_small_objects():
    result = run_json("--memory", "96m", "-c", "x = []\nwhile True: x.append(object())", "--", timeout=60)
    assert result["verdict"] in ("out_of_memory", "error")


# --------------------------------------------------------------------------------------------------
# Processes

def test_pids_limit():
    code = ("import os, signal\nn = 0\ntry:\n  while n < 500:\n    if os.fork() == 0: signal.pause()\n    n += 1\n"
            "except OSError as e: print(n, e.errno)")
    result = run_json("--pids-limit", "16", "-c", code)
    assert result["limits"]["pids"]["asked"] == 16
    count, code = map(int, result["stdout"].split())
    assert code == 11 and count <= 16
    assert set(result["limits"]["pids"]["enforced_by"]) & {"cgroup", "rlimit"}


def test_pids_limit_of_two_sandboxes_is_separate():
    """RLIMIT_NPROC counts per user namespace since Linux 5.14: two runs at once do not take from each other."""
    code = ("import os, signal\nfor _ in range(12):\n  if os.fork() == 0: signal.pause()\nprint('all', flush=True)\ninput()")
    processes = [subprocess.Popen(command("--pids-limit", "16", "-c", code), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
                 for _ in range(4)]
    for process in processes:
        assert process.stdout.readline() == b"all\n"
    for process in processes:
        process.communicate(b"\n", timeout=30)
        assert process.returncode == 0


def test_pids_limit_does_not_stop_the_first_process():
    assert run_json("--pids-limit", "1", "-c", "print(1)")["stdout"] == "1\n"


# --------------------------------------------------------------------------------------------------
# Output

def test_output_limit(policy):
    result = run_json("--policy", policy(limits={"output": "10K"}), "-c", "print('x' * 100000)\nimport time; time.sleep(30)")
    assert result["verdict"] == "output_limit"
    assert result["stdout_truncated"] and not result["stderr_truncated"]
    assert result["stdout"] == "x" * 10240


def test_output_limit_of_stderr(policy):
    result = run_json("--policy", policy(limits={"output": "10K"}), "-c", "import sys; sys.stderr.write('x' * 100000)")
    assert result["stderr_truncated"] and not result["stdout_truncated"]
    assert len(result["stderr"]) <= 10240


def test_output_at_the_limit(policy):
    """Exactly as much as is allowed is no violation."""
    result = run_json("--policy", policy(limits={"output": "10K"}), "-c", "import sys; sys.stdout.write('x' * 10240)")
    assert (result["verdict"], result["stdout_truncated"], len(result["stdout"])) == ("ok", False, 10240)


def test_output_limit_of_a_stream(policy):
    """Without --json the same cap holds for what is passed on."""
    done = run("--policy", policy(limits={"output": "10K"}), "-c", "print('x' * 100000)")
    assert len(done.stdout) <= 10240
    assert done.returncode != 0
    assert b"hutch: " in done.stderr


def test_output_cut_inside_of_a_character(policy):
    """The cap falls into a UTF-8 sequence: the result is still valid."""
    result = run_json("--policy", policy(limits={"output": "1K"}), "-c", "print('\\u20ac' * 1000)")
    assert result["stdout"].rstrip("\ufffd") == "\u20ac" * 341


# --------------------------------------------------------------------------------------------------
# Files

def test_file_size(policy, data):
    code = "import signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nopen('x', 'wb').write(b'x' * (4 << 20))"
    result = run_json("--policy", policy(limits={"file_size": "1M"}), "--data", str(data), "-c", code)
    assert result["verdict"] == "error" and result["error"]["name"] == "OSError"
    assert (data / "x").stat().st_size <= MIB
    assert result["limits"]["file_size"] == {"asked": MIB, "enforced_by": ["rlimit"]}


def test_open_files(policy):
    code = "f = []\ntry:\n  while len(f) < 100000: f.append(open('/dev/null'))\nexcept OSError as e: print(len(f), e.errno)"
    result = run_json("--policy", policy(limits={"open_files": 100}), "-c", code)
    count, code = map(int, result["stdout"].split())
    assert code == 24 and count < 100


def test_tmp_size(policy):
    code = "try: open('/tmp/x', 'wb').write(b'x' * (8 << 20))\nexcept OSError as e: print(e.errno)"
    assert run_json("--policy", policy(limits={"tmp_size": "1M"}), "-c", code)["stdout"] == "28\n"


def test_data_size(policy, data):
    """The supervisor looks now and then; a program that keeps on writing is stopped."""
    code = ("import os, time\nfor i in range(400):\n  open('f%d' % i, 'wb').write(os.urandom(1 << 20))\n  time.sleep(0.02)")
    result = run_json("--policy", policy(limits={"data_size": "20M"}), "--data", str(data), "-c", code)
    assert result["verdict"] == "output_limit", result["verdict"]
    assert sum(entry.stat().st_size for entry in os.scandir(data)) < 300 * MIB
    assert result["limits"]["data_size"]["enforced_by"] == ["supervisor"]


BURSTS = {
    "write": "open('big', 'wb').write(bytes(40 << 20))",
    "files": "for i in range(40): open('f%d' % i, 'wb').write(bytes(1 << 20))",
    "posix_fallocate": "import os; os.posix_fallocate(os.open('big', os.O_CREAT | os.O_RDWR), 0, 40 << 20)",
}


@pytest.mark.parametrize("burst", BURSTS)
def test_data_size_of_a_program_that_ends_at_once(policy, data, burst):
    """Before every verdict there is a last count. What is over the limit in a directory of hutch's own is not kept, and the
    exit code 0 of the program does not say otherwise."""
    limited = policy(limits={"data_size": "20M"}, data_place="disk")
    result = run_json("--policy", limited, "-c", BURSTS[burst])
    assert result["verdict"] == "output_limit" and result["message"].endswith("none of its files were kept"), result
    assert result["files"]["directory"] is None and (result["exit_code"], result["signal"]) == (None, "SIGKILL"), result
    assert run("--policy", limited, "-c", BURSTS[burst]).returncode == 128 + signal.SIGKILL
    result = run_json("--policy", limited, "--data", str(data), "-c", BURSTS[burst])
    assert result["verdict"] == "output_limit" and result["message"].endswith("its files were left there"), result


WAYS = pytest.mark.parametrize("way", [(), ("--warm",)], ids=["cold", "warm"])


@WAYS
@pytest.mark.parametrize("burst", BURSTS)
def test_data_size_in_memory(policy, burst, way):
    """The kernel lets in what the limit says, to the page, however fast it comes; the rest is an error to the program. Not
    more than that is kept."""
    result = run_json("--policy", policy(limits={"data_size": "20M"}, data_place="memory"), *way, "-c", BURSTS[burst])
    assert result["verdict"] == "error" and result["error"]["value"] == "[Errno 28] No space left on device", result
    assert "/mnt/data is full: 20971520 bytes or 100000 files" in result["message"]
    assert result["limits"]["data_size"]["enforced_by"] == result["limits"]["data_files"]["enforced_by"] == ["kernel"]
    kept = sum(entry.stat().st_blocks * 512 for entry in os.scandir(result["files"]["directory"]))
    assert 15 * MIB < kept <= 20 * MIB if burst != "posix_fallocate" else kept <= 20 * MIB


@WAYS
def test_data_files_in_memory(policy, way):
    code = ("import os\nfor i in range(5): os.mkdir('d%d' % i)\n"
            "try:\n  for i in range(1000): open('d1/%d' % i, 'w').close()\nexcept OSError as e: print(i, e.errno)")
    result = run_json("--policy", policy(limits={"data_files": 100}, data_place="memory"), *way, "-c", code)
    assert result["stdout"] == "95 28\n" and len(result["files"]["added"]) == 95, result


def test_data_in_memory_without_a_size(policy):
    done = support.run("--policy", policy(limits={"data_size": None}, data_place="memory"), "-c", "print(1)")
    assert done.returncode == 125
    assert b"$.data_place is \"memory\", and $.limits.data_size does not say how much of it" in done.stderr


def test_data_size_beside_another_end(policy):
    """The verdict is the first reason, and the message says what became of the files."""
    code = "open('big', 'wb').write(bytes(40 << 20)); import os; os.kill(os.getpid(), 9)"
    result = run_json("--policy", policy(limits={"data_size": "20M"}, data_place="disk"), "-c", code)
    assert result["verdict"] == "output_limit" and result["files"]["directory"] is None, result


def test_no_space_is_reserved():
    """fallocate(2) reserves gigabytes in no time; posix_fallocate(3) writes instead, and still gives a whole file."""
    code = ("import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\nfd = os.open('x', os.O_CREAT | os.O_RDWR)\n"
            "print(libc.fallocate(fd, 0, ctypes.c_long(0), ctypes.c_long(1 << 20)), ctypes.get_errno())\n"
            "os.posix_fallocate(fd, 0, 1 << 20); print(os.fstat(fd).st_size, os.fstat(fd).st_blocks >= 2048)")
    assert run_json("-c", code)["stdout"] == "-1 95\n1048576 True\n"


def test_a_tree_that_dodges_the_count(policy, data):
    """Directories do not show that they were read, and a tree that is moved about all the time is found."""
    code = ("import os, time\n"
            "for d in ('a', 'b', 'c'): os.mkdir(d)\n"
            "os.mkdir('a/x'); open('a/x/big', 'wb').write(bytes(40 << 20))\n"
            "where, end = 'a', time.monotonic() + 20\n"
            "while time.monotonic() < end:\n"
            "  for to in ('b', 'c', 'a'):\n"
            "    os.rename(where + '/x', to + '/x'); where = to\n")
    result = run_json("--policy", policy(limits={"data_size": "20M"}), "--data", str(data), "-c", code, timeout=60)
    assert result["verdict"] == "output_limit", result["message"]
    code = ("import os, time\n"
            "for d in ('a', 'b'): os.mkdir(d); open(d + '/f', 'w').close()\n"
            "before = [os.stat(d).st_atime_ns for d in 'ab']\n"
            "time.sleep(1.5)\n"
            "print(before == [os.stat(d).st_atime_ns for d in 'ab'])")
    data.joinpath("a").rename(data / "old")
    for name in ("b", "c"):
        (data / name).rename(data / ("old" + name))
    assert run_json("--data", str(data), "-c", code)["stdout"] == "True\n"


def test_data_files(policy, data):
    code = "import time\nfor i in range(100000):\n  open('f%d' % i, 'w').close()\n  if i % 500 == 0: time.sleep(0.02)"
    result = run_json("--policy", policy(limits={"data_files": 1000}), "--data", str(data), "-c", code)
    assert result["verdict"] == "output_limit", result["verdict"]
    assert len(os.listdir(data)) < 100000


# --------------------------------------------------------------------------------------------------
# The report

def test_every_limit_is_reported():
    limits = run_json("--memory", "300m", "--pids-limit", "20", "--cpus", "1", "--timeout", "20s", "-c", "pass")["limits"]
    assert limits["memory"]["asked"] == 300 * MIB
    assert limits["pids"]["asked"] == 20
    assert limits["cpus"]["asked"] == 1000
    assert limits["wall"]["asked"] == 20000
    assert limits["cpu_time"]["asked"] is None
    for name, limit in limits.items():
        if limit["asked"] is not None:
            assert limit["enforced_by"], name
            assert "none" not in limit["enforced_by"] or limit["enforced_by"] == ["none"], name


def test_cgroup_layer_is_honest():
    """The report says whether there was a cgroup; where one is delegated there has to be one."""
    result = run_json("-c", "pass")
    layer = result["layers"]["cgroup"]
    assert layer["asked"] == "try"
    if support.has("delegation") and not support.is_root():
        assert layer["active"], layer
    if not layer["active"]:
        assert layer["detail"], "why there is none"
        assert "cgroup" not in sum((limit["enforced_by"] for limit in result["limits"].values()), [])


def test_required_limits_refuse_before_any_code_runs(policy, data):
    """"enforcement": "require" where the controllers are missing: an error, and not a line of the script."""
    done = run("--policy", "strict", "--data", str(data), "-c", "open('ran', 'w')")
    result = run_json("--policy", "strict", "--data", str(data), "-c", "open('ran', 'w')")
    if result["verdict"] == "setup_failed":
        assert done.returncode == 125 and result["process"] == 125
        assert not (data / "ran").exists()
        assert support.sentence(done)
        assert result["message"]
    else:
        assert done.returncode == 0, done.stderr
        assert all(layer["active"] for layer in result["layers"].values())
        assert (data / "ran").exists()


def test_signal_of_limit_is_not_the_scripts():
    """A script that kills itself is no out-of-memory kill."""
    result = run_json("-c", "import os; os.kill(os.getpid(), %d)" % signal.SIGKILL)
    assert result["verdict"] in ("killed", "error") and result["signal"] == "SIGKILL" and result["process"] == 137


# --------------------------------------------------------------------------------------------------
# Descriptors: a program's, and hutch's own

def under(soft, hard):
    """What a child does before it becomes hutch."""
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("path", ([], ["--warm"]), ids=("cold", "warm"))
def test_open_files_without_a_limit(policy, path):
    """hutch raises its own soft limit, and its programs have the usual one all the same."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    code = "import resource; print(*resource.getrlimit(resource.RLIMIT_NOFILE))"
    done = subprocess.run(command(*path, "--policy", policy(limits={"open_files": None}), "-c", code), timeout=60,
                          preexec_fn=under(min(300, hard), hard), capture_output=True, check=False)
    assert (done.stdout.decode(), done.stderr) == ("%d %d\n" % (min(1024, hard), hard), b"")


@pytest.mark.parametrize("how", (["--warm"], ["--rich"]), ids=("warm", "rich"))
def test_too_few_descriptors_for_hutch(how):
    """Under whatever limit: a run is executed, or hutch says what it needs. Before any of that it has to read a policy,
    and a dynamic linker its libraries."""
    seen = set()
    for limit in (*range(16, 80, 4), *range(80, 160, 20)):
        done = subprocess.run(command(*how, "-c", "print('works')", image="python"), timeout=60,
                              preexec_fn=under(limit, limit), capture_output=True, check=False)
        says = done.stderr.decode()
        if done.returncode == 0:
            assert b"works\n" in done.stdout
        else:
            assert done.returncode == 125 and "and the limit is %d: raise RLIMIT_NOFILE" % limit in says, (limit, says)
        seen.add(done.returncode)
    assert seen == {0, 125}


def test_hutch_raises_its_own_limit():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    done = subprocess.run(command("--warm", "-c", "print('works')"), timeout=60, preexec_fn=under(16, hard), capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"works\n", b"")


@pytest.mark.parametrize("name, words", (("build.sh", ["rootfs", "build", "none"]), ("mmdebstrap", ["doctor"]), ("gzip", ["batch", "packed"])),
                         ids=("build.sh", "doctor", "gzip"))
def test_programs_of_the_host_have_the_callers_limit(tmp_path, name, words):
    """Some use select(2), and some close every descriptor there can be."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    soft = min(300, hard - 1)
    program = tmp_path / name
    program.write_text("#!/bin/sh\nulimit -Sn > '%s/seen'\nexit 1\n" % tmp_path)
    program.chmod(0o755)
    (tmp_path / "packed").write_bytes(gzip.compress(b"{}\n"))
    env = {**os.environ, "HUTCH_ROOTFS_DIR": str(tmp_path), "PATH": "%s:%s" % (tmp_path, os.environ["PATH"])}
    subprocess.run([support.HUTCH, *words], cwd=tmp_path, env=env, timeout=120, preexec_fn=under(soft, hard), capture_output=True, check=False)
    assert (tmp_path / "seen").read_text() == "%d\n" % soft
