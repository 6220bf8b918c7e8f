"""Attacks that only a session allows: code that talks to the engine for as long as it likes, lives on between cells, has itself copied, and
writes files that others read and restore. Whatever it does, it does to its own session: each cell and order has one answer, the session
beside works on, a run too, and the engine's own processes and memory stay what they were.

test_cells.py has what a single cell can try of what a run can."""
import json
import os
import time

import pytest

import engine
import neighbour
import support
import test_tenants
import witness
from neighbour import text_of

SECRET = test_tenants.SECRET
MEMORY = 256 << 20  # what the engine may take more, for a moment, for one session

TICK = "import time\nfor n in range(12):\n    print(n, value)\n    time.sleep(0.01)"
TICKED = "".join("%d beside\n" % n for n in range(12))

# What attacks are written with.
KIT = """
import array, fcntl, json, os, signal, socket, struct, sys, threading, time
def frame(text):
    text = text if isinstance(text, bytes) else json.dumps(text).encode()
    return len(text).to_bytes(4, 'little') + text
def say(*frames):
    text = b''.join(map(frame, frames))
    while text:
        text = text[os.write(3, text):]
"""


@pytest.fixture(scope="module")
def shared():
    support.become_subreaper()
    with neighbour.engine_with_session(prepared=2) as found:
        yield found


def memory(what):
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith(what))


@pytest.fixture
def warm(shared):
    """While the test goes on, a cell of the session beside does, too. After it, all is as it was."""
    one, beside, whole = shared
    one.settle()
    own, processes, losses = neighbour.own_processes(one), witness.names_of_processes(whole), one.stats()
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")  # VmHWM begins anew, proc(5)
    used = memory("VmHWM:")
    ticking = beside.execute(TICK)
    yield one
    grown = memory("VmHWM:") - used
    result = beside.wait(ticking)
    assert (result["verdict"], text_of(result)) == ("ok", TICKED), result
    assert beside.printed("print(value)") == "beside\n"
    assert one.run("print('works')", language=None)["stdout"] == "works\n"
    after = one.settle()
    for name in ("lost_zygotes", "lost_launchers", "lost_sandboxes", "restarted"):
        assert after[name] == losses[name], name
    neighbour.check_outside(one, own, processes)
    assert support.dead_runs() == []
    assert grown < MEMORY, "the engine's process took %d MiB more" % (grown >> 20)


def check_next(session):
    """The next cells: the state is there, or it is said that it is not; and then all is well."""
    after, again = session.run("print(state)", timeout_ms=5000), session.run("print(6 * 7)", timeout_ms=5000)
    if after["is_fresh"]:
        assert after["message"] and after["error_name"] == "NameError", after
    else:
        assert (after["verdict"], text_of(after)) == ("ok", "kept\n"), after
    assert (again["verdict"], text_of(again)) == ("ok", "42\n"), again


# --------------------------------------------------------------------------------------------------
# The interpreter's descriptor, its streams and its process

BAD_FRAMES = (
    b"", b"{}", b"[]", b"null", b"{\"is\":1}", b"{\"is\":\"done\"", b"{\"is\":\"done\"}{}", b"{\"is\":\"display\",\"n\":1}",
    b"{\"is\":\"display\",\"n\":-1,\"data\":{},\"metadata\":{}}", b"{\"is\":\"display\",\"n\":1e999,\"data\":{},\"metadata\":{}}",
    b"{\"is\":\"display\",\"n\":4294967296,\"data\":{},\"metadata\":{}}", b"{\"is\":\"display\",\"n\":1,\"data\":[],\"metadata\":{}}",
    b"{\"is\":\"error\",\"n\":1,\"ename\":1,\"evalue\":2,\"traceback\":3}", b"\xff\xfe", b"{\"is\":\"\xed\xa0\x80\"}", b"{\"is\":NaN}",
)

ATTACKS = {
    "garbage": "os.write(3, b'\\xff' * 64)",
    "a length beyond all bounds": "os.write(3, (33 << 20).to_bytes(4, 'little'))",
    "empty frames": "for _ in range(64): os.write(3, bytes(65536))",
    "nesting": "say(b'{\"is\":\"display\",\"n\":1,\"metadata\":{},\"data\":{\"application/json\":' + b'[' * 3000000)",
    "a million members": "say(b'{\"is\":\"x\",' + b','.join(b'\"%d\":1' % n for n in range(1000000)) + b'}')",
    "ten million values": "say(b'{\"is\":\"x\",\"n\":[' + b'0,' * 10000000 + b'0]}')",
    "names of unknown things": "say(*[{'is': 'x' * n, 'n': n} for n in range(1, 2000)])",
    "displays of its own making": "say(*[{'is': 'display', 'n': 2**32 - 1, 'data': {'text/plain': 'x' * n}, 'metadata': {}, 'id': str(n)}\n"
                                  "      for n in range(500)])",
    "flushes": "text = frame({'is': 'flush', 'n': 2**32 - 1}) * 1000\nfor _ in range(40):\n  left = text\n  while left: left = left[os.write(3, left):]",
    "questions nobody may ask": "say(*[{'is': 'input', 'n': n, 'prompt': 'x' * 1000, 'password': True} for n in range(5, 2000)])",
    "beginnings and readiness": "say(*[{'is': word, 'n': n, 'id': n, 'count': 2**62, 'language_info': {}}\n"
                                "      for n in range(1, 300) for word in ('begin', 'ready')])",
    "words of a copy": "say(*[{'is': word, 'n': n, 'pid': n, 'lost': [], 'why': 'x' * 10000}\n"
                       "      for n in range(1, 300) for word in ('parked', 'here', 'failed')])",
    "marks": "for _ in range(100): os.write(1, (b'\\0' + b'%032x' % 5 + b'%08x\\n' % 7) * 1000)",
    "beginnings of marks": "for _ in range(10):\n  os.write(1, bytes(100000))\n  os.write(2, bytes(100000))",
    "marks with the right word": """
reader, writer = os.pipe()
os.set_blocking(reader, False)
theirs = {os.readlink('/proc/self/fd/%d' % n): n for n in (1, 2)}
held = [int(n) for n in os.listdir('/proc/self/fd') if int(n) > 3 and os.path.lexists('/proc/self/fd/' + n)]
held = [n for n in held if os.readlink('/proc/self/fd/%d' % n) in theirs]
kept = {n: os.dup(n) for n in held}
for n in held: os.dup2(writer, n)
sys.stdout.write('x'); sys.stdout.flush()
seen = os.read(reader, 65536)
for n in held: os.dup2(kept[n], n)
at = seen.find(b'\\0')
word = seen[at + 1:at + 33]
assert len(word) == 32, seen
for n in range(0, 200000, 100):
    os.write(1 + n % 200 // 100, b''.join(b'text\\0' + word + b'%08x\\n' % i for i in range(n, n + 100)))
""",
    "closed: the channel": "os.close(3)",
    "closed: the streams": "for n in range(3): os.close(n)",
    "closed: all": "os.closerange(0, 1000)",
    "the channel is the output": "os.dup2(3, 1); os.dup2(3, 2); print('x', flush=True)",
    "the output is the channel": "os.dup2(1, 3)",
    "a channel to itself": "a, b = socket.socketpair(); os.dup2(a.fileno(), 3)",
    "the channel shut": "s = socket.socket(fileno=os.dup(3)); s.shutdown(socket.SHUT_WR); time.sleep(0.2)",
    "descriptors for the engine": """
s = socket.socket(fileno=os.dup(3))
fds = array.array('i', [os.open('/dev/null', 0) for _ in range(100)])
text = frame({'is': 'flush', 'n': 2**32 - 1})
for _ in range(100): s.sendmsg([text], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
""",
    "signals to all": "os.kill(-1, signal.SIGKILL)",
    "a stop": "os.kill(os.getpid(), signal.SIGSTOP)",
    "an alarm for later": "signal.setitimer(signal.ITIMER_REAL, 0.05); time.sleep(0.02)",
    "an end": "os._exit(0)",
    "another program": "os.execv('/bin/true', ['true'])",
    "no descriptors": "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))",
    "no memory": "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 20, 1 << 20)); held = bytearray(1 << 26)",
    "no recursion": "sys.setrecursionlimit(40)",
    "no functions": "import json, os\njson.dumps = json.loads = os.write = os._exit = lambda *_, **__: 1 / 0",
    "no loop": "import asyncio; asyncio.get_event_loop().stop()",
    "100 MB of output": "for _ in range(100): sys.stdout.write('x' * (1 << 20))",
    "100 MB of displays": "from IPython.display import display\nfor _ in range(100): display({'text/plain': 'x' * (1 << 20)}, raw=True)",
    "a display beyond all bounds": "from IPython.display import display\ndisplay({'text/plain': 'x' * (17 << 20)}, raw=True)",
    "display ids": "from IPython.display import display\nfor n in range(2000): display(n, display_id=str(n))\n"
                   "for n in range(300): display('x' * 1000, display_id='0', update=True)",
    "clears": "from IPython.display import clear_output\nfor n in range(3000): print(n); clear_output(wait=n % 2)",
    "a prompt of 10 MB": "input('x' * (10 << 20))",
    "an exception of 17 MB": "raise ValueError('x' * (17 << 20))",
    "no text": "os.write(1, bytes(range(256)) * 1000); print('\\udc80' * 1000); raise ValueError('\\ud800')",
    "a name that lies": "class E(Exception):\n  __str__ = __repr__ = lambda self: 1 / 0\nE.__name__ = 'x' * 10000000\nraise E",
}


@pytest.mark.parametrize("what", ATTACKS)
def test_attack(warm, what):
    with engine.Session(warm) as session:
        session.printed("state = 'kept'")
        cell = session.execute(KIT + ATTACKS[what], timeout_ms=300 if what == "a stop" else 5000)
        result = session.wait(cell)
        if what == "an alarm for later":
            warm.until(lambda: session.info()["state"] == "lost", what="the alarm")
        check_next(session)
    assert cell.results == 1 and len(session.ends) == 1, result
    if what in ("flushes", "names of unknown things", "words of a copy", "marks", "clears"):  # which harm nobody, itself neither
        assert result["verdict"] == "ok", result


# --------------------------------------------------------------------------------------------------
# Processes beside the cells, and what makes them: all of it is the session's own code's to reach

PROCESS_KIT = KIT + """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def others():
    return [int(name) for name in os.listdir('/proc') if name.isdigit() and int(name) not in (1, os.getpid())]
def stolen():
    found = []
    for pid in others():
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            continue
        found += [fd for fd in (libc.syscall(438, pidfd, n, 0) for n in range(8)) if fd >= 0]  # pidfd_getfd
        os.close(pidfd)
    return found
def repeat(seconds, function, *args):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            function(*args)
        except OSError:
            pass
"""

PROCESS_ATTACKS = {
    "kills": "repeat(1.5, os.kill, -1, signal.SIGKILL)",
    "stops": "repeat(1.5, os.kill, -1, signal.SIGSTOP)\nos.kill(-1, signal.SIGCONT)",
    "other signals": "repeat(1.5, lambda: [os.kill(-1, n) for n in (1, 2, 3, 13, 15, 28)])",
    "garbage through their descriptors": """
def spoil():
    for fd in stolen():
        os.set_blocking(fd, False)
        for n in range(300):
            try:
                os.write(fd, os.urandom(16) if n % 2 else b'HERE' + n.to_bytes(4, 'little') + bytes(8))
            except OSError:
                break
        os.close(fd)
repeat(1.5, spoil)
""",
    "their memory": """
def write_memory():
    for pid in others():
        try:
            with open('/proc/%d/mem' % pid, 'r+b', buffering=0) as memory, open('/proc/%d/maps' % pid) as maps:
                for line in maps:
                    if 'rw-p' in line:
                        memory.seek(int(line.split('-')[0], 16))
                        memory.write(bytes(4096))
        except OSError:
            pass
repeat(1.5, write_memory)
""",
    "all process numbers": "try:\n  while os.fork(): pass\n  time.sleep(1000)\nexcept OSError:\n  time.sleep(1)\n  os.kill(-1, signal.SIGKILL)",
}


@pytest.mark.parametrize("what", PROCESS_ATTACKS)
def test_attack_on_processes(warm, what):
    """Each has one end, which comes whatever they do to each other; and the session can have others."""
    with engine.Session(warm, max_processes=8) as session:
        session.printed("state = 'kept'")
        cell = session.execute(PROCESS_KIT + PROCESS_ATTACKS[what], timeout_ms=20000)
        processes = []
        while cell.result is None:
            if len(session.processes()) < 4:
                processes.append(session.spawn(shell="echo text; exec sleep 100", terminal=len(processes) % 2))
            warm.dispatch(0.01)
        session.restart()
        warm.until(lambda: all(process.end for process in processes), what="every process has an end")
        assert session.spawn("echo", "new").wait_ok() == b"new\n"
        assert session.printed("print(6 * 7)") == "42\n"
    assert processes and all(process.ends == 1 for process in processes) and cell.results == 1


def test_frames_that_are_none(warm):
    """Each ends its interpreter, and the sentence says why."""
    sessions = [engine.Session(warm) for _ in BAD_FRAMES]
    cells = [session.execute(KIT + "say(%r)\ntime.sleep(5)" % bad, timeout_ms=5000) for session, bad in zip(sessions, BAD_FRAMES)]
    for session, cell, bad in zip(sessions, cells, BAD_FRAMES):
        result = session.wait(cell)
        assert result["interpreter_died"] and "its descriptor 3, so it was ended" in result["message"], (bad, result)
        assert len(result["message"]) < 600
        assert session.printed("print(1)") == "1\n"
        session.close()
    warm.until(lambda: all(session.ends for session in sessions), what="all are closed")


# What leaves an interpreter that is good for nothing.
SPOILED = {
    "modules": "sys.modules.clear()",
    "shell": "get_ipython().run_cell = get_ipython().run_cell_async = get_ipython().showtraceback = None",
    "streams": "sys.stdout = sys.stderr = sys.__stdout__ = sys.__stderr__ = None",
    "interpreter": "import gc\nfor one in gc.get_objects():\n  if type(one).__name__ in ('Interpreter', 'Channel'): one.__dict__.clear()",
}


@pytest.mark.parametrize("what", SPOILED)
def test_spoiled(warm, what):
    """Each cell has its result nevertheless, and a restart makes it good."""
    with engine.Session(warm) as session:
        cells = [session.execute(KIT + SPOILED[what], timeout_ms=500)] + [session.execute("print(1)", timeout_ms=500) for _ in range(2)]
        session.wait(*cells)
        assert [cell.results for cell in cells] == [1, 1, 1]
        session.restart()
        assert session.printed("print(6 * 7)") == "42\n"


# What is only killed some seconds after it was interrupted: all at once.
STUBBORN = {
    "half a frame": "os.write(3, (1000).to_bytes(4, 'little') + b'{')",
    "a frame that never ends": "os.write(3, (32 << 20).to_bytes(4, 'little'))\nfor _ in range(31): os.write(3, b' ' * (1 << 20))\n"
                               "time.sleep(60)",
    "a deaf ear": "signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: time.sleep(1)",
    "a blocked signal": "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\nwhile True: time.sleep(1)",
    "exceptions swallowed": "while True:\n  try:\n    while True: time.sleep(1)\n  except BaseException: pass",
    "a handler": "signal.signal(signal.SIGINT, lambda *_: None)\nwhile True: time.sleep(1)",
    "a stop for ever": "child = os.fork()\nif child == 0:\n  os.setsid()\n  while True:\n    try: os.kill(os.getppid(), signal.SIGSTOP)\n"
                       "    except OSError: os._exit(0)\n    time.sleep(0.001)\ntime.sleep(60)",
    "orphans by the dozen": "signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True:\n  try:\n    if os.fork() == 0:\n      os.setsid()\n"
                            "      time.sleep(60)\n  except OSError: time.sleep(0.1)",
}


def test_stubborn(warm):
    """They are killed in the end, with all that they have started."""
    sessions = {what: engine.Session(warm) for what in STUBBORN}
    for session in sessions.values():
        session.printed("state = 'kept'")
    cells = {what: session.execute(KIT + STUBBORN[what], timeout_ms=3000) for what, session in sessions.items()}
    for what, session in sessions.items():
        result = session.wait(cells[what])
        assert result["verdict"] == "timeout" and result["interpreter_died"] and cells[what].results == 1, (what, result)
        check_next(session)
        session.close()
    warm.until(lambda: all(session.ends for session in sessions.values()), what="all are closed")


FLOODS = {
    "questions": "text = frame({'is': 'input', 'n': 2**32 - 1, 'prompt': '', 'password': False}) * 100\nwhile True: os.write(3, text)",
    "text that is cleared": "from IPython.display import clear_output\nwhile True: print('x' * 500000); clear_output()",
    "flushes": "text = frame({'is': 'flush', 'n': 2**32 - 1}) * 1000\nwhile True: os.write(3, text)",
    "displays": "text = frame({'is': 'display', 'n': 2**32 - 1, 'data': {}, 'metadata': {}, 'id': 'x' * 60000})\nwhile True: os.write(3, text)",
}


def test_floods(warm):
    """More than anybody reads, and answers that nobody takes, for as long as a cell may: it costs the engine no memory, and ends."""
    sessions = {what: engine.Session(warm) for what in FLOODS}
    for session in sessions.values():
        session.printed("state = 'kept'")
    cells = {what: session.execute(KIT + FLOODS[what], timeout_ms=2000, allow_input=1) for what, session in sessions.items()}
    for cell in cells.values():
        cell.outputs = Nothing()
    while any(cell.result is None for cell in cells.values()):
        warm.dispatch(0.05)
        for session in sessions.values():
            session.reply("x" * 10000)
    for what, session in sessions.items():
        assert cells[what].result["verdict"] in ("timeout", "output_limit", "killed") and cells[what].results == 1, (what, cells[what].result)
        check_next(session)
        session.close()
    warm.until(lambda: all(session.ends for session in sessions.values()), what="all are closed")


class Nothing(list):
    """A list that keeps nothing."""

    def append(self, _):
        pass


@pytest.mark.parametrize("how", ["", "; raise ValueError(1)", "; sys.exit(1)", "; signal.raise_signal(signal.SIGINT)"])
def test_fork_that_comes_back(warm, how):
    """A child that returns from the cell, by whatever way, is no second interpreter: the parent's session goes on."""
    with engine.Session(warm) as session:
        session.printed("state = 'kept'")
        code = "child = os.fork()\nif child == 0: pass" + how + "\nif child: os.waitpid(child, 0); print('parent')"
        result = session.run(KIT + code, timeout_ms=5000)
        assert result["verdict"] == "ok" and "parent\n" in text_of(result), result
        for _ in range(3):
            assert session.printed("print(state)") == "kept\n"


def test_liar(warm):
    """An interpreter that says "done" for cells that nobody has done: it has them, and a restart puts an end to it."""
    lies = "for n in range(100): say({'is': 'done', 'n': 2**32 - 1, 'id': n, 'status': 'ok', 'count': 5})\n"
    with engine.Session(warm) as session:
        cell = session.execute(KIT + lies + "for _ in range(500):\n  " + lies + "  time.sleep(0.01)", timeout_ms=20000)
        assert session.wait(cell)["verdict"] == "ok"
        more = [session.execute("print(1)") for _ in range(20)]
        session.wait(*more)
        session.restart()
        assert session.printed("print(6 * 7)") == "42\n"
        assert {entry.results for entry in [cell] + more} == {1}


# --------------------------------------------------------------------------------------------------
# Between two cells, and after an interpreter's end

def turn(warm, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        warm.dispatch(0.02)


BETWEEN = {
    "a thread that prints": "threading.Thread(target=lambda: [os.write(1, b'ghost\\n' * 10000) for _ in range(1000)]).start()",
    "a child that prints": "if os.fork() == 0:\n  os.setsid()\n  while True: os.write(1, b'ghost\\n' * 10000)",
    "a child that displays": "if os.fork() == 0:\n  while True: say({'is': 'display', 'n': 2**32 - 1, 'data': {'text/plain': 'ghost'},\n"
                             "                   'metadata': {}})",
    "a child that floods": "text = frame({'is': 'x', 'n': 2**32 - 1, 'why': 'x' * 60000})\nif os.fork() == 0:\n  while True: os.write(3, text)",
    "tasks": "import asyncio\nasync def f():\n  while True:\n    print('ghost', flush=True)\n    await asyncio.sleep(0.001)\n"
             "task = asyncio.ensure_future(f())",
}


@pytest.mark.parametrize("what", BETWEEN)
def test_between_cells(warm, what):
    """What is said between two cells is the next one's, up to a bound; it costs the engine no memory, and the session beside nothing."""
    with engine.Session(warm) as session:
        session.printed("state = 'kept'")
        session.run(KIT + BETWEEN[what])
        turn(warm, 0.3)
        result = session.run("print(state)", timeout_ms=5000)
        assert result["verdict"] in ("ok", "output_limit") or result["is_fresh"] or result["interpreter_died"], result
        assert len(json.dumps(result["outputs"])) < 20 << 20
        session.restart()
        assert session.printed("print(6 * 7)") == "42\n"


@pytest.mark.parametrize("end", ["os._exit(3)", "os.kill(os.getpid(), 9)"])
def test_what_outlives_its_interpreter(warm, end):
    """Children of an interpreter that is dead say nothing in the next one's cells, nor to anybody else."""
    with engine.Session(warm) as session:
        child = "if os.fork() == 0:\n  os.setsid()\n  while True:\n    for n in (1, 2, 3): os.write(n, b'ghost')\n"
        session.run(KIT + child + end, timeout_ms=5000)
        for _ in range(3):
            result = session.run("print('new')")
            assert (result["verdict"], text_of(result)) == ("ok", "new\n"), result


def test_limits_between_cells(warm):
    """Nobody's cell is on, and the limits are there as ever."""
    later = "x = 1\nif os.fork() == 0:\n  os.setsid()\n  time.sleep(0.4)\n  %s\n  time.sleep(60)\n"
    fill = "fd = os.open('/mnt/data/big', os.O_CREAT | os.O_WRONLY)\n  for _ in range(1000): os.write(fd, bytes(1 << 20))"
    take = "for _ in range(8):\n    if os.fork() == 0: held = bytearray(b'x') * (100 << 20); time.sleep(60)"
    with engine.Session(warm, data_bytes=20 << 20) as one, engine.Session(warm, memory_bytes=192 << 20) as other:
        one.printed(KIT + later % fill)
        other.printed(KIT + later % take)
        for session, word in ((one, "/mnt/data holds more than"), (other, "out of memory")):
            for _ in range(20):
                turn(warm, 1)
                result = session.run("print(x)")
                if result["is_fresh"] or result["interpreter_died"]:
                    break
            assert word in result["message"], result


# --------------------------------------------------------------------------------------------------
# Copies: an interpreter that is not one

# Says that its cell is done, and takes the orders that follow in the interpreter's place.
FAKE = KIT + """
def take(sock):
    head, ancillary, _, _ = sock.recvmsg(4, 1024)
    fds = array.array('i')
    for _, _, content in ancillary: fds.frombytes(content)
    size, text = int.from_bytes(head, 'little'), b''
    while len(text) < size:
        more, ancillary, _, _ = sock.recvmsg(size - len(text), 1024)
        if not more: os._exit(0)
        text += more
        for _, _, content in ancillary: fds.frombytes(content)
    return json.loads(text), [socket.socket(fileno=fd) for fd in fds]
def tell(sock, **what):
    sock.sendall(frame(what))
me = socket.socket(fileno=3)
for n in range(10): tell(me, **{'is': 'done', 'n': 2**32 - 1, 'id': n, 'status': 'ok', 'count': 1})
def answer(copy, me):
    order, fds = take(copy)
    spawned(copy, fds, me)
def parked(fds): %s
def spawned(copy, fds, me): %s
while True:
    order, fds = take(me)
    if order['do'] == 'execute':
        tell(me, **{'is': 'done', 'n': 2**32 - 1, 'id': order['id'], 'status': 'ok', 'count': 1})
    if order['do'] == 'park':
        threading.Thread(target=parked, args=(fds,)).start()
        time.sleep(0.05)
        tell(me, **{'is': 'parked', 'n': 2**32 - 1, 'lost': ['nothing']})
        threading.Thread(target=answer, args=(fds[0], me)).start()
"""
HERE = "tell(%s[0], **{'is': 'here', 'pid': %s})"
PIDS = ("1", "0", "-1", "2", "os.getpid()", "os.getppid()", "99999999", "2**31 - 1", "2**63", "1e300", "'x'", "None", "[1]")
LIES = {
    **{"pid " + pid: (HERE % ("fds", "os.getpid()"), HERE % ("fds", pid)) for pid in PIDS},
    **{"parked as " + pid: (HERE % ("fds", pid), HERE % ("fds", "os.getpid()")) for pid in ("1", "2", "os.getpid()", "99999999")},
    "garbage": ("fds[0].sendall(b'\\xff' * 64)", "pass"),
    "garbage from the copy": (HERE % ("fds", "os.getpid()"), "fds[0].sendall(b'\\xff' * 64)"),
    "an end": ("fds[0].shutdown(socket.SHUT_RDWR)", "pass"),
    "an end of the copy": (HERE % ("fds", "os.getpid()"), "copy.shutdown(socket.SHUT_RDWR)"),
    "a flood": ("[fds[0].sendall(frame({'is': 'here', 'pid': 5}) * 1000) for _ in range(1000)]", "pass"),
    "a frame that never ends": (HERE % ("fds", "os.getpid()") + "; fds[0].sendall((32 << 20).to_bytes(4, 'little') + b' ' * (31 << 20))",
                                HERE % ("fds", "os.getpid()")),
    "failures": ("fds[0].sendall(frame({'is': 'failed', 'why': 'x' * 100000}) * 10)",
                 "[tell(one, **{'is': 'failed', 'why': 'x'}) for one in (copy, me, fds[0])]"),
}


def test_copies_that_are_none(warm):
    """Whatever an interpreter says of its copies, and whose number it gives for one: each order has one answer within its time, and a
    restart gives an interpreter that works. All at once; some do not answer at all, and are closed."""
    sessions, orders = {}, []
    for what, (parked, spawned) in LIES.items():
        session = sessions[what] = engine.Session(warm)
        assert session.run(FAKE % (parked, spawned), timeout_ms=20000)["verdict"] == "ok"
        orders.append(session.order("checkpoint"))
        orders.append(session.order("rollback", 1))
        orders.append(session.order("fork"))
    end = time.monotonic() + 3
    while time.monotonic() < end and any(order.result is None for order in orders):
        warm.dispatch(0.02)
    for what, session in sessions.items():
        session.restart()
        assert session.printed("print(6 * 7)") == "42\n", what
        session.close()
    warm.until(lambda: all(session.ends for session in sessions.values()), what="all are closed")
    assert {order.results for order in orders} == {1}


def test_copies_are_killed(warm):
    """Code may kill its own parked copies: to go back to one fails with a sentence, and the session stays where it is."""
    with engine.Session(warm) as session:
        session.printed("state = 'old'")
        copy = session.do("checkpoint")["id"]
        branch = session.do("fork")["id"]
        session.printed("state = 'kept'\nimport os, time\nfor name in os.listdir('/proc'):\n"
                        "    if name.isdigit() and int(name) not in (1, os.getpid()): os.kill(int(name), 9)\ntime.sleep(0.1)")
        for order in (session.order("rollback", copy), session.order("switch", branch)):
            reply = session.wait(order)
            assert not reply["ok"] and reply["message"], reply
        assert session.printed("print(state)") == "kept\n"
        session.do("drop", copy)


def test_copies_have_bounds(warm):
    """So many, and their files and memory are what the session has."""
    with engine.Session(warm, max_checkpoints=3, checkpoint_bytes=10 << 20, memory_bytes=512 << 20) as session:
        session.printed("state = 'kept'")
        made = [session.wait(session.order("checkpoint" if n % 2 else "fork")) for n in range(5)]
        assert [reply["ok"] for reply in made] == [1, 1, 1, 0, 0], made
        session.do("drop", made[0]["id"])
        session.printed("import os\nopen('/mnt/data/f', 'wb').write(os.urandom(12 << 20))")
        reply = session.wait(session.order("checkpoint"))
        assert not reply["ok"] and "larger than" in reply["message"], reply
        assert session.printed("print(state)") == "kept\n"
    with engine.Session(warm, memory_bytes=256 << 20, max_checkpoints=8) as session:
        for n in range(8):  # each copy holds what the one after it has overwritten
            cell = session.run("held = bytearray(b'%d') * (60 << 20)" % n)
            reply = session.wait(session.order("checkpoint"))
            if cell["interpreter_died"] or not reply["ok"] or cell["is_fresh"]:
                break
        else:
            pytest.fail("eight copies of 60 MiB fit into 256")
        assert session.run("print(1)")["verdict"] in ("ok", "out_of_memory")


TREES = {
    "what is not a file": "os.mkfifo('p'); socket.socket(socket.AF_UNIX).bind('s'); os.symlink('/etc/passwd', 'l'); os.symlink('l2', 'l2')\n"
                          "os.symlink('..', 'up')",
    "modes": "os.mkdir('d'); open('d/f', 'w').write('x'); os.chmod('d/f', 0o777); os.chmod('d', 0)",
    "one file, many names": "open('a', 'w').write('x')\nfor n in range(1000): os.link('a', 'n%d' % n)",
    "a hole": "f = open('h', 'wb'); f.seek(50 << 20); f.write(b'x'); f.close()",
    "depth": "for _ in range(300): os.mkdir('d'); os.chdir('d')\nos.chdir('/mnt/data')",
    "names": "for name in (b'\\xff\\n', b'..x', b'-rf', b'c1-1', b'c1-1.in', b'c1-1.out', b'x' * 255): open(name, 'w').write('x')",
    "a file held": "held = open('f', 'w'); fcntl.flock(held, fcntl.LOCK_EX); fcntl.lockf(held, fcntl.LOCK_EX)",
}


@pytest.mark.parametrize("what", TREES)
def test_trees_that_are_kept(warm, what):
    """Copied and brought back, or refused with a sentence; nobody waits, nothing is followed, nothing is left behind at the end."""
    with engine.Session(warm) as session:
        session.printed("state = 'kept'\n" + KIT + "os.chdir('/mnt/data')\n" + TREES[what])
        reply = session.wait(session.order("checkpoint"))
        assert reply["ok"] or reply["message"], reply
        if reply["ok"]:
            session.printed("state = 'lost'; import os; os.system('chmod -R 700 /mnt/data; rm -rf /mnt/data/*')")
            session.do("rollback", reply["id"])
        assert session.printed("print(state)") == "kept\n"


def test_tree_that_changes(warm):
    """A child goes on changing what is being copied: into links that lead out, out of the copy's way, and back."""
    change = """
os.chdir('/mnt/data')
for n in range(50):
    os.mkdir('d%d' % n)
    open('d%d/f' % n, 'w').write('x' * 10000)
if os.fork() == 0:
    while True:
        for n in range(50):
            try:
                os.rename('d%d' % n, 'away'); os.symlink('/', 'd%d' % n); os.unlink('d%d' % n); os.rename('away', 'd%d' % n)
                os.unlink('d%d/f' % n); os.mkfifo('d%d/f' % n); os.unlink('d%d/f' % n); open('d%d/f' % n, 'w').write('y' * 5000)
            except OSError:
                try: os.unlink('d%d' % n)
                except OSError: pass
                try: os.rename('away', 'd%d' % n)
                except OSError: pass
"""
    with engine.Session(warm) as session:
        session.printed("state = 'kept'")
        session.printed(KIT + change)
        made = [session.wait(session.order("checkpoint")) for _ in range(3)]
        assert all(reply["ok"] or reply["message"] for reply in made), made
        for reply in made:
            if reply["ok"]:
                session.do("rollback", reply["id"])
        find = "['find', '/mnt/data', '-type', 'f', '-size', '+20k'], capture_output=True"
        listing = session.printed("import os, subprocess\nprint(subprocess.run(%s).stdout)" % find)
        assert listing == "b''\n", "something else was copied"
        assert session.printed("print(state)") == "kept\n"


def test_stores_are_not_to_be_seen(warm):
    """Where the engine keeps checkpoints is in no sandbox, neither the session's own nor another's."""
    find = """
import os
found = []
for top, directories, files in os.walk('/'):
    if top in ('/proc', '/sys', '/usr'):
        del directories[:]
    found += [os.path.join(top, name) for name in directories + files if name.startswith('marker-')]
print(found)
"""
    with engine.Session(warm) as one, engine.Session(warm) as other:
        one.printed("open('/mnt/data/%s', 'w').write('x'); open('/tmp/%s', 'w').write('x')" % (SECRET, SECRET))
        one.do("checkpoint")
        one.do("fork")
        assert other.printed(find) == "[]\n"
        other.do("checkpoint")
        assert other.printed(find) == "[]\n"
        assert sorted(json.loads(one.printed(find).replace("'", '"'))) == ["/mnt/data/" + SECRET, "/tmp/" + SECRET]
    result = warm.run(find)
    assert result["stdout"] == "[]\n", result


def test_memory_of_other_sessions(warm):
    """Nothing of a session is in another's memory, whether that one is open, closed, or parked."""
    search = test_tenants.search(SECRET)
    with engine.Session(warm) as one:
        one.printed("text = %r\nheld = [text + str(n) for n in range(10000)]" % SECRET)
        one.do("checkpoint")
        with engine.Session(warm) as other:
            said = other.printed(search)
            assert said.split(" ", 1)[1].strip() == "[]" and int(said.split()[0]) >= 4, said
            other.do("checkpoint")
        assert one.printed("print(text)") == SECRET + "\n"
    with engine.Session(warm) as later:
        assert later.printed(search).split(" ", 1)[1].strip() == "[]"


# --------------------------------------------------------------------------------------------------
# Files, seen from the host

TRAPS = """
os.chdir('/mnt/data')
os.mkfifo('fifo'); os.symlink('/etc/passwd', 'link'); os.symlink('/', 'root'); os.symlink('/proc/self/fd', 'fds'); os.symlink('.', 'here')
socket.socket(socket.AF_UNIX).bind('socket')
os.mkdir('directory'); open('file', 'w').write('text'); os.link('file', 'file2'); open('closed', 'w').write('text'); os.chmod('closed', 0)
os.mkdir('shut'); os.chmod('shut', 0)
"""


def test_files_that_are_traps(warm, tmp_path):
    """The caller reads and writes regular files below /mnt/data, and nothing else; he never waits."""
    outside = tmp_path / "outside"
    outside.write_text("untouched")
    with engine.Session(warm) as session:
        session.printed(KIT + TRAPS)
        for name in ("fifo", "link", "root/etc/passwd", "fds/0", "here/file", "socket", "directory", "../runs", "/etc/passwd", "..", ".", "",
                     "directory/../file", "directory//x", "file/x", "x" * 300, "d/" * 3000 + "x", "root" + str(outside)):
            for flags in (os.O_RDONLY, os.O_WRONLY):
                with pytest.raises(engine.Failure) as refused:
                    session.open_file(name, flags).close()
                assert "\n" not in str(refused.value)
        for flags in (os.O_RDWR, os.O_WRONLY | os.O_APPEND, os.O_PATH, os.O_RDONLY | os.O_DIRECTORY, -1):
            with pytest.raises(engine.Failure):
                session.open_file("file", flags)
        for name in ("root/etc", "..", "", "/", "here/file", "missing"):
            with pytest.raises(engine.Failure):
                session.delete_file(name)
        with session.open_file("file") as file:
            assert file.read() == b"text"
        with session.open_file("file", os.O_WRONLY) as file:
            file.write(b"new")
        assert session.printed("print(open('/mnt/data/file').read(), open('/mnt/data/file2').read())") == "new text\n"
        assert {entry["path"] for entry in session.files()} >= {"fifo", "link", "file", "file2", "socket"}
        for name in ("fifo", "link", "root", "socket", "directory", "here"):
            session.delete_file(name)
        assert not {entry["path"] for entry in session.files()} & {"fifo", "link", "root", "socket", "here"}
    assert outside.read_text() == "untouched"


def test_files_that_change(warm):
    """Code that exchanges a directory for a link, and a file for a FIFO or a link, while the caller writes and reads there by a hundred
    names: he gets what is below /mnt/data, or a refusal."""
    swap = """
os.chdir('/mnt/data')
os.mkdir('d')
if os.fork() == 0:
    while True:
        for step in (lambda: os.rename('d', 'away'), lambda: os.symlink('/tmp', 'd'), lambda: os.unlink('d'), lambda: os.rename('away', 'd'),
                     lambda: os.symlink('/tmp/there', 'd/f'), lambda: os.unlink('d/f'), lambda: os.mkfifo('d/f'), lambda: os.unlink('d/f')):
            try: step()
            except OSError: pass
"""
    with engine.Session(warm) as session:
        session.printed(KIT + swap)
        written = 0
        for number in range(400):
            try:
                with session.open_file("d/f" if number % 2 else "d/%d" % (number % 50), os.O_WRONLY) as file:
                    file.write(b"host")
                    written += 1
                session.open_file("d/f").close()
            except engine.Failure as refused:
                assert "\n" not in str(refused)
            try:
                session.files()
                session.delete_file("d/f")
            except engine.Failure:
                pass
        assert session.printed("import os; print(set(os.listdir('/tmp')) - {'.ipython', 'kernel.json'})") == "set()\n" or written == 0


def test_descriptors_of_files(warm):
    """A file that the host has open is changed under its hands: shortened, exchanged, deleted. It reads less, and nothing else."""
    with engine.Session(warm) as session:
        session.printed("open('/mnt/data/f', 'wb').write(bytes(1 << 20))")
        with session.open_file("f") as file:
            session.printed("import os; os.chdir('/mnt/data'); os.truncate('f', 10); os.rename('f', 'g'); os.symlink('/etc/passwd', 'f')")
            assert len(file.read()) == 10


# --------------------------------------------------------------------------------------------------
# Names and numbers from a caller who got them from a stranger

@pytest.mark.parametrize("name", ["", "a b", "../x", "x" * 65, "é", "a\n", "a.b", "a'b"])
def test_names_of_contexts(warm, name):
    with engine.Session(warm) as session:
        with pytest.raises(engine.Failure) as refused:
            session.execute("1", context=name)
        assert "context" in str(refused.value)


def test_many_contexts(warm):
    with engine.Session(warm) as session:
        assert session.run("state = 'kept'")["verdict"] == "ok"
        results = [session.run("x = %d" % n, context="c%d" % n) for n in range(20)]
        assert {result["verdict"] for result in results} == {"ok", "error"}
        assert all(not result["interpreter_died"] for result in results)
        assert session.printed("print(state)") == "kept\n"


def test_code_that_is_none(warm):
    with engine.Session(warm) as session:
        for code in (b"\xff", b"x = '\xed\xa0\x80'", b"x = 1\0", b" " * ((8 << 20) + 1)):
            with pytest.raises(engine.Failure):
                session.execute(code)
        deep = session.run("(" * 100000, timeout_ms=20000)
        assert deep["verdict"] == "error", deep["verdict"]
        assert session.printed("print(1)") == "1\n"


def test_ids_of_others(warm):
    """A number is no right: what is closed is gone, and checkpoints belong to their session."""
    with engine.Session(warm) as one, engine.Session(warm) as other:
        copy = one.do("checkpoint")["id"]
        for name in ("rollback", "switch", "drop"):
            reply = other.wait(other.order(name, copy))
            assert not reply["ok"], reply
            assert not other.wait(other.order(name, 2**64 - 1))["ok"]
    for call in (lambda: one.execute("1"), lambda: one.order("checkpoint"), one.files, lambda: one.open_file("f"), one.restart):
        with pytest.raises(engine.Failure):
            call()
    assert one.close() == 0 and one.interrupt() == 0 and one.reply("x") == 0
