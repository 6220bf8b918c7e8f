"""Attacks that take more than one run: what one run can learn of others that the same engine runs, before it or at the same
time; what it can leave to those that come later; and whether the others still get what is theirs while it does its worst.

One engine for all of it, as a service would have one for all its tenants. What a single run can try is in probes/."""
import json
import os
import resource
import socket

import pytest

import engine
import support

SECRET = "marker-" + os.urandom(8).hex()

# Looks for a text in all memory that can be read, knowing only the half that is common and the sum of the other, so that it does
# not find itself.
SEARCH = """
import os
prefix, rest = b'marker-', bytes(byte ^ 255 for byte in %r)
found, size = [], 0
memory = os.open('/proc/self/mem', os.O_RDONLY)
for line in open('/proc/self/maps'):
    span, flags = line.split()[:2]
    if flags[0] != 'r' or '[v' in line:
        continue
    at, end = (int(text, 16) for text in span.split('-'))
    while at < end:
        try:
            block = os.pread(memory, min(end - at, 1 << 20), at)
        except OSError:
            break
        size += len(block)
        here = block.find(prefix)
        while here >= 0:
            if all(a ^ b == 255 for a, b in zip(block[here + 7:here + 7 + len(rest)], %r)):
                found.append(line.strip())
            here = block.find(prefix, here + 1)
        at += len(block) if at + len(block) == end or len(block) < 100 else len(block) - 64
print(size >> 20, found)
"""


def search(secret, libraries=""):
    turned = bytes(byte ^ 255 for byte in secret[len("marker-"):].encode())
    return libraries + SEARCH % (turned, turned)


@pytest.fixture(scope="module")
def shared():
    support.become_subreaper()
    os.environ["HUTCH_TEST_SECRET"] = SECRET
    with engine.Engine(max_running=12, zygotes=(("bare", None, (), 2, 4),)) as warm:
        warm.settle()
        yield warm
    del os.environ["HUTCH_TEST_SECRET"]


def pids_of_engine(warm):
    stats = warm.stats()
    return stats["launcher_pid"], stats["zygotes"][0]["pid"]


@pytest.fixture
def warm(shared):
    """After each test the engine's own processes are the same ones, and all is as it was."""
    shared.settle()
    before, processes, losses = pids_of_engine(shared), len(support.descendants(os.getpid())), shared.stats()
    yield shared
    for _ in range(3):
        result = shared.run("print('works')")
        assert (result["verdict"], result["stdout"]) == ("ok", "works\n"), result
    after = shared.settle()
    assert pids_of_engine(shared) == before, "a process of the engine was replaced"
    for name in ("lost_zygotes", "lost_launchers", "lost_sandboxes", "restarted"):
        assert after[name] == losses[name], name
    shared.until(lambda: len(support.descendants(os.getpid())) <= processes + 3 * 4, what="no process is left")
    assert support.dead_runs() == []


# --------------------------------------------------------------------------------------------------
# What other runs have

def found_in(result):
    assert result["verdict"] == "ok", result["stderr"]
    size, _, found = result["stdout"].partition(" ")
    assert int(size) >= 4, "hardly any memory was looked at"
    return found.strip()


def test_memory_of_other_runs(warm, data):
    """Code, arguments, variables, input and files of a run that is over, and of one that goes on, are in no other worker's
    memory: the zygote never had them."""
    (data / "file").write_text(SECRET)
    secrets = {"args": [SECRET], "env": ["SECRET=" + SECRET], "input": SECRET, "data_dir": data}
    code = "text = %r\nhere = [open('/mnt/data/file').read() * 100 for _ in range(1000)]\n" % SECRET
    assert found_in(warm.run("import sys\nfrom_input = sys.stdin.read()\n" + search(SECRET), input=SECRET) ) != "[]", "the search is blind"
    for _ in range(5):
        assert warm.run(code, **secrets)["verdict"] == "ok"
    going_on = warm.run_streaming(code + "print('ready', flush=True)\nimport time; time.sleep(20)", **secrets)
    for _ in range(5):
        assert found_in(warm.run(search(SECRET))) == "[]"
    warm.cancel(going_on)
    warm.wait(going_on)


def test_memory_of_the_caller(warm):
    """What the engine's own process has in its environment is in no zygote."""
    assert os.environ["HUTCH_TEST_SECRET"] == SECRET
    assert found_in(warm.run(search(SECRET))) == "[]"
    listing = warm.run("import os; print(sorted(os.environ))\nprint(open('/proc/self/environ').read())")
    assert "HUTCH_TEST_SECRET" not in listing["stdout"]


LEAVE = """
import ctypes, os, socket, subprocess
text = %r
def attempt(what, *args):
    try: what(*args)
    except (OSError, AttributeError, ValueError): pass
def write(path):
    with open(path, 'w') as file: file.write(text)
for top in ('/tmp', '/dev/shm', '/mnt/data', '/run/hutch/code', '/run/hutch', '/run', '/var/tmp', '/dev', '/', '/usr/lib/python3/dist-packages'):
    attempt(write, top + '/marker')
    attempt(os.mkdir, top + '/marker-directory')
    attempt(write, top + '/sitecustomize.py')
libc = ctypes.CDLL(None, use_errno=True)
attempt(libc.shmget, 0x6d61726b, 4096, 0o1666)
attempt(libc.semget, 0x6d61726b, 1, 0o1666)
attempt(libc.msgget, 0x6d61726b, 0o1666)
attempt(libc.syscall, 240, b'marker', 0o102, 0o666, None)
attempt(libc.syscall, 248, b'user', b'marker', text.encode(), len(text), -3)
attempt(socket.sethostname, 'marker')
listener = socket.socket(socket.AF_UNIX)
attempt(listener.bind, '\\0marker')
for path in ('/proc/sys/kernel/hostname', '/proc/self/oom_score_adj', '/proc/self/comm', '/proc/self/coredump_filter', '/proc/sys/kernel/ns_last_pid'):
    attempt(write, path)
if os.fork() == 0:
    os.setsid()
    import time
    time.sleep(30)
"""

FIND = """
import ctypes, os, socket
found = []
for top, directories, files in os.walk('/'):
    if top in ('/proc', '/sys', '/usr'):
        del directories[:]
        continue
    found += [os.path.join(top, name) for name in directories + files if name.startswith('marker')]
libc = ctypes.CDLL(None, use_errno=True)
found += [name for name in ('shmget', 'semget') if getattr(libc, name)(0x6d61726b, 0, 0) >= 0]
if libc.msgget(0x6d61726b, 0) >= 0: found.append('msgget')
if libc.syscall(240, b'marker', 0, 0, None) >= 0: found.append('message queue')
if libc.syscall(249, b'user', b'marker', None, -3) >= 0: found.append('key')
if socket.gethostname() == 'marker': found.append('host name')
try:
    socket.socket(socket.AF_UNIX).connect('\\0marker')
    found.append('socket')
except OSError: pass
for path in ('/proc/self/comm', '/proc/self/oom_score_adj', '/proc/self/environ', '/proc/self/cmdline'):
    if 'marker' in open(path).read(): found.append(path)
found += [name for name in os.listdir('/proc') if name.isdigit() and int(name) > 5]
print(found)
"""


def test_nothing_is_left_to_later_runs(warm):
    """Every place where something might stay: file systems, IPC of three kinds, keys, names, processes."""
    assert warm.run(FIND)["stdout"] == "[]\n"
    for _ in range(3):
        result = warm.run(LEAVE % SECRET)
        assert result["verdict"] == "ok", result["stderr"]
    results = warm.wait(*[warm.submit(FIND) for _ in range(6)])
    assert {result["stdout"] for result in results} == {"[]\n"}, results[0]["stderr"]


def test_memory_that_others_take(warm):
    """What is shown of memory is one's own: a neighbour that takes and gives back most of its limit changes nothing in it."""
    taker = warm.run_streaming("import time\nprint('ready', flush=True)\nwhile True:\n  x = b'x' * (300 << 20); time.sleep(0.2)\n"
                               "  del x; time.sleep(0.2)")
    code = support.MEMINFO + ("await_meminfo(lambda now: now['MemAvailable'] < now['MemTotal'])\nseen = []\nfor _ in range(100):\n"
                              "  time.sleep(0.02); seen.append(meminfo()['MemAvailable'])\nprint(max(seen) - min(seen), min(seen))")
    watcher = warm.run(code)
    warm.cancel(taker)
    warm.wait(taker)
    assert watcher["verdict"] == "ok", watcher["stderr"]
    spread, least = map(int, watcher["stdout"].split())
    assert spread < 10 << 20 and least > 400 << 20, watcher["stdout"]


def test_nothing_is_shared_at_the_same_time(warm):
    """The same, while the other goes on."""
    other = warm.run_streaming(LEAVE % SECRET + "print('ready', flush=True)\nimport time; time.sleep(20)")
    results = warm.wait(*[warm.submit(FIND) for _ in range(4)])
    assert {result["stdout"] for result in results} == {"[]\n"}, results[0]["stderr"]
    warm.cancel(other)
    warm.wait(other)


# --------------------------------------------------------------------------------------------------
# A zygote with libraries keeps what its forks share in a file that has no name (rootfs/helper/freeze.c)

INTO_THE_FILE = """
import ctypes, errno, os, numpy
libc = ctypes.CDLL(None, use_errno=True)
libc.mremap.restype = libc.mmap.restype = ctypes.c_void_p
spans = []
for line in open('/proc/self/maps'):
    if 'memfd' in line:
        spans.append(tuple(int(text, 16) for text in line.split()[0].split('-')))
print(len(spans))
def call(function, *args):
    ctypes.set_errno(0)
    if function(*args) in (-1, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), '')
def attempt(name, what, *args):
    try:
        what(*args)
        print('DONE', name)
    except OSError as error:
        print(errno.errorcode[error.errno], name)
at, end = spans[0]
name = '/proc/self/map_files/%%x-%%x' %% spans[0]
P, S = ctypes.c_void_p, ctypes.c_size_t
attempt('open for reading', os.open, name, os.O_RDONLY)
attempt('open for writing', os.open, name, os.O_RDWR)
attempt('truncate', os.truncate, name, 0)
attempt('chmod', os.chmod, name, 0o777)
attempt('write to memory', lambda: os.pwrite(os.open('/proc/self/mem', os.O_RDWR), b'marker', at))
attempt('MADV_REMOVE', call, libc.madvise, P(at), S(4096), 9)
attempt('MADV_HWPOISON', call, libc.madvise, P(at), S(4096), 100)
attempt('MADV_SOFT_OFFLINE', call, libc.madvise, P(at), S(4096), 101)
attempt('remap_file_pages', call, libc.syscall, 216, P(at), S(4096), 0, 1, 0)
attempt('mremap to a shared double', call, libc.mremap, P(at), S(0), S(4096), 1, 0)
for start, end in spans:
    libc.mprotect(P(start), S(end - start), 3)
libc.msync(P(at), S(4096), 4)
print('END', flush=True)
text = %r
here = ctypes.create_string_buffer(text)
for start, end in spans[1:]:  # its own memory: it does not survive that
    for page in range(start, end, 4096):
        libc.memcpy(P(page + 64), here, S(len(text)))
"""


@pytest.fixture(scope="module")
def frozen():
    with engine.Engine(image="python", max_running=4, zygotes=(
            ("bare", None, (), 1, 2), ("data", "bare", ("numpy", "pandas", "matplotlib.pyplot"), 2, 2))) as warm:
        warm.settle()
        yield warm


def test_memory_that_all_forks_share(frozen):
    """One page of that file changed by one run would be code and data of all runs to come."""
    result = frozen.run(INTO_THE_FILE % SECRET.encode())
    lines = result["stdout"].splitlines()
    if lines[0] == "0":
        pytest.skip("this zygote was not worth freezing")
    assert result["zygote"] == "data" and "END" in lines, (lines, result["stderr"][-500:])
    assert not [line for line in lines if line.startswith("DONE")], lines
    for _ in range(3):
        assert found_in(frozen.run(search(SECRET, "import numpy\n"))) == "[]"
    assert frozen.run("import pandas\nprint(pandas.DataFrame({'a': [1, 2]}).a.sum())")["stdout"] == "3\n"


def test_memory_of_other_runs_with_libraries(frozen):
    """As above, where most of the memory is a mapped file."""
    code = "import numpy\ntext = [%r * 100 for _ in range(1000)]\narray = numpy.array(text)\n" % SECRET
    for _ in range(2):
        assert frozen.run(code)["verdict"] == "ok"
    going_on = frozen.run_streaming(code + "print('ready', flush=True)\nimport time; time.sleep(20)")
    result = frozen.run(search(SECRET, "import pandas\n"))
    assert result["zygote"] == "data" and found_in(result) == "[]"
    frozen.cancel(going_on)
    frozen.wait(going_on)


# --------------------------------------------------------------------------------------------------
# The others' share, while one does its worst

SO_PASSRIGHTS = 83

WORST = {
    "processes": "import os, signal\ntry:\n  while True:\n    if os.fork() == 0: signal.pause()\nexcept OSError: print('ready', flush=True)\n"
                 "signal.pause()",
    "short-lived processes": "import os\nprint('ready', flush=True)\nwhile True:\n  if os.fork() == 0: os._exit(0)\n  os.wait()",
    "orphans": "import os, time\nprint('ready', flush=True)\nwhile True:\n  try:\n    if os.fork() == 0:\n      if os.fork() == 0: time.sleep(0.1)\n"
               "      os._exit(0)\n    os.wait()\n  except OSError: time.sleep(0.01)",
    "threads": "import threading, time\ntry:\n  while True: threading.Thread(target=time.sleep, args=(60,)).start()\n"
               "except RuntimeError: print('ready', flush=True)\ntime.sleep(60)",
    "processor": "import os\nprint('ready', flush=True)\nfor _ in range(4): os.fork()\nwhile True: pass",
    "memory": "import time\nheld = []\ntry:\n  while len(held) < 80: held.append(bytearray(b'x') * (5 << 20))\n"
              "except MemoryError: pass\nprint('ready', flush=True)\ntime.sleep(60)",
    "output": "import os\nprint('ready', flush=True)\nwhile True: os.write(2, b'x' * 65536)",
    "messages to the engine": "import os\nprint('ready', flush=True)\ntry:\n  while True: os.write(3, b'x' * 65536)\nexcept OSError: pass\n"
                              "import time; time.sleep(60)",
    "descriptors on their way": "import array, os, socket, time\nfds = array.array('i', [os.open('/dev/null', 0) for _ in range(100)])\nkept = []\n"
                                "try:\n  while True:\n    kept.append(socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))\n    a = kept[-1][0]\n"
                                "    a.setblocking(False)\n    try:\n      while True: a.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])\n"
                                "    except BlockingIOError: pass\nexcept OSError: pass\nprint('ready', flush=True)\ntime.sleep(60)",
    # A connection with data that nobody reads waits in close(2) for as long as SO_LINGER says.
    "descriptors that are long in closing": """
import array, os, signal, socket, struct
listener = socket.create_server(("127.0.0.1", 0), backlog=64)
for _ in range(20):
    if os.fork(): continue
    one = socket.create_connection(listener.getsockname())
    one.setblocking(False)
    try:
        while True: one.send(b"x" * 65536)
    except BlockingIOError: pass
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 10))
    if os.fork() == 0:
        try: socket.socket(fileno=3).sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [one.fileno()]))])
        except OSError: one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))
    os._exit(0)
print("ready", flush=True)
signal.pause()""",
    "pipes": "import fcntl, os, time\nkept = []\ntry:\n  while True:\n    kept.append(os.pipe())\n"
             "    try: fcntl.fcntl(kept[-1][1], 1031, 1 << 20)\n    except OSError: pass\n    os.set_blocking(kept[-1][1], False)\n"
             "    try:\n      while True: os.write(kept[-1][1], b'x' * 65536)\n    except BlockingIOError: pass\nexcept OSError: pass\nprint('ready', flush=True)\ntime.sleep(60)",
    "things to wait for": "import os, select, time\nkept, fds = [], [os.pipe()[0] for _ in range(60)]\ntry:\n  while True:\n"
                          "    kept.append(select.epoll())\n    for fd in fds: kept[-1].register(fd)\nexcept OSError: pass\nprint('ready', flush=True)\ntime.sleep(60)",
    "queued signals": "import ctypes, os, signal, time\nsignal.pthread_sigmask(signal.SIG_BLOCK, [40])\n"
                      "while ctypes.CDLL(None).sigqueue(os.getpid(), 40, 0) == 0: pass\nprint('ready', flush=True)\ntime.sleep(60)",
    "files": "print('ready', flush=True)\nn = 0\nwhile n < 60000:\n  open('/mnt/data/%d' % n, 'w').close()\n  n += 1",
    "a deep tree": "import os\nprint('ready', flush=True)\nos.chdir('/mnt/data')\nfor _ in range(3000):\n  os.mkdir('d' * 200)\n  os.chdir('d' * 200)",
}


def need_passrights():
    """Skips the test where a socket cannot refuse descriptors."""
    one, other = socket.socketpair()
    with one, other:
        try:
            one.setsockopt(socket.SOL_SOCKET, SO_PASSRIGHTS, 0)
        except OSError:
            pytest.skip("kernel: no SO_PASSRIGHTS, which Linux has since 6.16")


@pytest.mark.parametrize("what", WORST)
def test_neighbours(warm, what):
    """Three runs use up whatever they can, of what is counted for a user or is the engine's; runs beside them work as
    ever, and so does an engine that has to build for each."""
    if "closing" in what:
        need_passrights()
    worst = [warm.run_streaming(WORST[what], wall_ms=15000) for _ in range(3)]
    neighbours = [warm.submit("import os\nr, w = os.pipe()\nos.write(w, b'x')\nif os.fork() == 0: os._exit(0)\nos.wait()\n"
                              "open('/mnt/data/f', 'w').write('x')\nprint(%d)" % number) for number in range(12)]
    results = warm.wait(*neighbours)
    assert [result["verdict"] for result in results] == ["ok"] * 12, [result["message"] for result in results]
    assert [result["stdout"] for result in results] == ["%d\n" % number for number in range(12)]
    for run in worst:
        warm.cancel(run)
    assert {result["verdict"] for result in warm.wait(*worst)} <= {"killed", "output_limit", "out_of_memory", "ok", "error", "denied", "timeout"}
    assert all(run.results == 1 for run in worst)


def test_descriptors_of_a_careless_policy(tmp_path):
    """A policy that lets programs have more descriptors than the caller himself: what is on its way through sockets is
    counted against each sender's own limit."""
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"schema": 1, "extends": "default", "limits": {"open_files": 4096}}))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 4096:
        pytest.skip("nobody here can have 4096 descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 1024), hard))
    try:
        with engine.Engine(policy=str(policy), max_running=4, zygotes=(("bare", None, (), 1, 2),)) as warm:
            worst = warm.run_streaming(WORST["descriptors on their way"], wall_ms=8000)
            runs = [warm.submit("print(1)") for _ in range(6)]
            assert warm.wait(worst)["verdict"] == "timeout"
            results = warm.wait(*runs)
            # Whether they had to wait for the other's end or not: they have run.
            assert {(result["verdict"], result["stdout"]) for result in results} == {("ok", "1\n")}, results
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_thousand_messages_at_the_end(warm):
    """Everything at once on every channel, and then death: the result is about this run and no other."""
    code = ("import os, signal\nfor fd in (1, 2, 3): os.set_blocking(fd, False)\nfor n in range(1000):\n  for fd in (1, 2, 3):\n"
            "    try: os.write(fd, b'HUTCHPY1' + b'\\\\xff' * 500)\n    except OSError: pass\nos.kill(os.getpid(), signal.SIGKILL)")
    runs = []
    for number in range(8):
        runs += [warm.submit(code), warm.submit("print(%d)\nraise ValueError(%d)" % (number, number))]
    results = warm.wait(*runs)
    for number in range(8):
        assert results[2 * number]["verdict"] == "killed" and results[2 * number]["error"] is None
        error = results[2 * number + 1]
        assert (error["stdout"], error["error"]["name"], error["error"]["value"]) == ("%d\n" % number, "ValueError", str(number))


def test_run_that_stops_everything(warm):
    """SIGSTOP to all that it reaches, itself last."""
    run = warm.submit("import os, signal\nfor pid in range(2, 100):\n  if pid != os.getpid():\n    try: os.kill(pid, signal.SIGSTOP)\n"
                      "    except OSError: pass\nos.kill(os.getpid(), signal.SIGSTOP)", wall_ms=700)
    assert warm.wait(run)["verdict"] == "timeout"


def test_cancelled_at_any_moment(warm):
    """Two hundred runs that are cancelled as soon as they are accepted or a moment later: one result each."""
    runs = []
    for number in range(100):
        runs.append(warm.submit("import time; time.sleep(%d)" % (number % 2)))
        if number % 3 == 0:
            warm.dispatch(0.001)
        warm.cancel(runs[number // 2])
        warm.cancel(runs[-1])
        if len(runs) % 20 == 0:
            warm.wait(*runs)
    warm.wait(*runs)
    assert all(run.results == 1 for run in runs)
    assert {run.result["verdict"] for run in runs} <= {"killed", "ok"}
    assert warm.cancel(runs[0]) == 0
