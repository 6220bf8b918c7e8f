"""A thousand workers of one zygote: none repeats another, none has anything of another, and everything that Python does with
processes, threads and signals works in each of them as in an interpreter that has just started.

The zygote has used what it could: its warm-up code draws from every random number generator, makes some of its own, and starts and ends threads.
All workers run a program that tells what it finds; the tests look at all the answers together. What Python does with processes, threads
and signals takes most of the time, and every fifth worker does it."""
import json

import pytest

import engine
import support

WORKERS = 1000
EVERY = 5  # so many workers have one among them that does all
IN_FLIGHT = 24
MODULES = ("asyncio", "concurrent.futures", "decimal", "logging", "multiprocessing.pool", "multiprocessing.synchronize", "random", "secrets",
           "sqlite3", "ssl", "subprocess", "sympy.core.random", "tempfile", "threading", "uuid", "numpy", "pandas", "matplotlib.pyplot")

# The operator's. What is made here without a seed has to differ between workers, what has a seed must not.
WARM_UP = """
import atexit, concurrent.futures, logging, os, random, signal, sqlite3, ssl, sys, tempfile, threading, uuid
import numpy as np
random.random(); random.gauss(0, 1); np.random.rand(); np.random.normal(); uuid.uuid4(); ssl.RAND_bytes(8)
import ctypes; assert ctypes.CDLL("libcrypto.so.3").RAND_priv_bytes(ctypes.create_string_buffer(8), 8) == 1
sqlite3.connect(":memory:").execute("select random()").fetchone()
tempfile.gettempdir(); next(tempfile._get_candidate_names())
logging.getLogger("zygote").addHandler(logging.NullHandler())
t = threading.Thread(target=random.random); t.start(); t.join()
with concurrent.futures.ThreadPoolExecutor(2) as pool: list(pool.map(abs, range(4)))
signal.signal(signal.SIGUSR1, lambda *a: None)
signal.signal(signal.SIGINT, signal.SIG_IGN)
os.environ["FROM_THE_ZYGOTE"] = "1"
os.umask(0o077)
sys.modules["operators"] = operators = type(sys)("operators")
operators.free, operators.fixed = random.Random(), random.Random(7)
operators.np_free, operators.np_fixed = np.random.default_rng(), np.random.default_rng(7)
operators.np_old_free, operators.np_old_fixed = np.random.RandomState(), np.random.RandomState(7)
(np.ones((400, 400)) @ np.ones((400, 400))).sum()
"""

PROGRAM = r"""
import sys
look = {}
import os, threading, time
look["threads at the start"] = len(os.listdir("/proc/self/task"))
listing = os.open("/proc/self/fd", os.O_RDONLY | os.O_DIRECTORY)
look["descriptors"] = sorted(int(n) for n in os.listdir(listing) if int(n) not in (listing, listing + 1))
os.close(listing)
look["environment"] = "FROM_THE_ZYGOTE" in os.environ
look["umask"] = os.umask(0o022)
look["pid"] = os.getpid(), os.getppid(), threading.get_native_id(), threading.main_thread().native_id, int(os.readlink("/proc/self"))
look["thread"] = (threading.active_count(), threading.current_thread() is threading.main_thread(), threading.main_thread().is_alive(),
                  threading.main_thread().ident == threading.get_ident())
try:
    os.waitpid(-1, os.WNOHANG)
    look["children"] = True
except ChildProcessError:
    look["children"] = False

import signal
look["signals"] = {int(n): str(int(signal.getsignal(n)) if isinstance(signal.getsignal(n), int) else signal.getsignal(n)) for n in signal.valid_signals() if signal.getsignal(n) not in (signal.SIG_DFL, None)}
with open("/proc/self/status") as status:
    look["kernel's signals"] = {k: v.strip() for k, v in (l.split(":", 1) for l in status) if k in ("SigBlk", "SigIgn", "SigCgt", "SigPnd")}

import random, secrets, sqlite3, ssl, tempfile, uuid
import numpy as np
import operators
import pandas as pd
from sympy.core.random import rng
look["random"] = {
    "random": random.random(), "gauss": random.gauss(0, 1), "getrandbits": random.getrandbits(64), "state": hash(random.getstate()),
    "numpy": np.random.rand(), "numpy normal": np.random.normal(), "numpy bytes": np.random.bytes(8).hex(), "numpy default": np.random.default_rng().random(),
    "numpy RandomState": np.random.RandomState().rand(), "pandas": str(list(pd.Series(np.arange(1000)).sample(8))),
    "uuid1": uuid.uuid1().hex, "uuid4": uuid.uuid4().hex, "uuid node": uuid.getnode(), "tempfile": next(tempfile._get_candidate_names()),
    "secrets": secrets.token_hex(8), "SystemRandom": random.SystemRandom().random(), "urandom": os.urandom(8).hex(), "ssl": ssl.RAND_bytes(8).hex(),
    "sqlite": sqlite3.connect(":memory:").execute("select random()").fetchone()[0],
    "Random()": random.Random().random(), "module's Random": rng.random(), "operator's": operators.free.random(),
    "operator's numpy": operators.np_free.random(), "operator's RandomState": operators.np_old_free.rand(),
    "authkey": bytes(__import__("multiprocessing").current_process().authkey).hex(),
    "semaphore": __import__("multiprocessing.synchronize").synchronize.SemLock._make_name(),
}
look["seeded"] = operators.fixed.random(), operators.np_fixed.random(), operators.np_old_fixed.rand()
random.seed(1); np.random.seed(1)
look["seeded here"] = random.random(), np.random.rand(), np.random.default_rng(1).random()
look["gauss pair"] = np.random.get_state()[3:]
import decimal
look["decimal"] = decimal.getcontext().prec
look["hash"] = hash("hutch"), hash(b"hutch")
look["address"] = id(operators)

import ctypes
crypto = ctypes.CDLL("libcrypto.so.3")  # the one that ssl has loaded
def draw():
    private = ctypes.create_string_buffer(8)
    assert crypto.RAND_priv_bytes(private, 8) == 1
    return ssl.RAND_bytes(8) + private.raw
def draw_in_a_fork():
    ours, theirs = os.pipe()
    if os.fork() == 0:
        os.write(theirs, draw())
        os._exit(0)
    os.close(theirs)
    with open(ours, "rb") as pipe:
        drawn = pipe.read()
    os.wait()
    return drawn
look["OpenSSL"] = [drawn.hex() for drawn in (draw_in_a_fork(), draw_in_a_fork(), draw())]

import logging
look["time"] = time.time(), time.monotonic(), time.process_time(), logging.LogRecord("n", 1, "p", 1, "m", (), None).relativeCreated
"""

USES = """
import asyncio, concurrent.futures, multiprocessing, subprocess
names = []
ts = [threading.Thread(target=lambda: names.append(threading.current_thread().name)) for _ in range(2)]
[t.start() for t in ts]; [t.join() for t in ts]
look["thread names"] = [t.name for t in ts]
with concurrent.futures.ThreadPoolExecutor(2) as pool:
    look["pool"] = list(pool.map(lambda n: n * n, range(4))), pool._thread_name_prefix
async def main():
    p = await asyncio.create_subprocess_exec("true")
    return asyncio.current_task().get_name(), await p.wait(), await asyncio.to_thread(lambda: 5)
look["asyncio"] = asyncio.run(main())
look["subprocess"] = subprocess.run(["sh", "-c", "cat; exit 3"], input=b"x", capture_output=True).returncode
def child(q): q.put((random.random(), np.random.rand(), os.getpid() != parent))
parent = os.getpid()
q = multiprocessing.SimpleQueue()
p = multiprocessing.Process(target=child, args=(q,)); p.start()
look["multiprocessing"] = p.name, q.get(), p.join(), p.exitcode
pid = os.fork()
if pid == 0:
    os._exit(threading.active_count() != 1 or threading.get_native_id() != os.getpid())
look["fork"] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
got = []
signal.signal(signal.SIGUSR1, lambda *a: got.append(1)); os.kill(os.getpid(), signal.SIGUSR1)
look["handler"] = got
try:
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(10**6): pass
except KeyboardInterrupt:
    look["interrupt"] = True
a = np.ones((300, 300))
look["blas"] = float((a @ a).sum()), float(np.linalg.det(np.eye(50)))
def in_thread(out): out.append(float((a @ a).sum()))
out = []
t = threading.Thread(target=in_thread, args=(out,)); t.start(); t.join()
look["blas in a thread"] = out
with open(tempfile.mkstemp()[1], "w") as f: f.write("x")
"""

TELL = """
import atexit, json
atexit.register(print, json.dumps(look))
"""


@pytest.fixture(scope="module")
def answers():
    """What every worker found."""
    support.need("userns")
    found = []
    with engine.Engine(image="python", recycle_forks=100 * WORKERS,
                       zygotes=(("base", None, ("random", "threading", "uuid"), 1, 2),
                                ("full", "base", MODULES, 8, 16, WARM_UP))) as warm:
        runs = []
        warm.until(lambda: all(zygote["is_ready"] for zygote in warm.stats()["zygotes"]), what="the zygotes are ready")
        pid = warm.zygote_pid(1)
        for i in range(WORKERS):
            warm.until(lambda: sum(run.result is None for run in runs) < IN_FLIGHT, what="room for one more")
            runs = [run for run in runs if run.result is None]
            runs.append(warm.submit(PROGRAM + (USES if i % EVERY == 0 else "") + TELL))
            found.append(runs[-1])
        warm.wait(*found)
        assert warm.zygote_pid(1) == pid, "one zygote had them all"
        assert warm.stats()["zygotes"][1]["forks"] >= WORKERS
    for run in found:
        assert (run.result["verdict"], run.result["stderr"]) == ("ok", ""), run.result
        assert run.result["zygote"] == "full"
    return [json.loads(run.result["stdout"]) for run in found]


@pytest.fixture(scope="module")
def uses(answers):
    """What those found that have used processes, threads and signals."""
    found = answers[::EVERY]
    assert all("interrupt" in answer for answer in found) and len(found) == WORKERS // EVERY
    return found


def all_of(answers, key):
    return [answer[key] for answer in answers]


def same(answers, key, value):
    """Every worker gave this answer."""
    wrong = [answer[key] for answer in answers if answer[key] != value]
    assert not wrong, "%d of %d: %r" % (len(wrong), len(answers), wrong[0])


NAMES = ("random", "gauss", "getrandbits", "state", "numpy", "numpy normal", "numpy bytes", "numpy default", "numpy RandomState", "pandas", "uuid1", "uuid4",
         "uuid node", "tempfile", "secrets", "SystemRandom", "urandom", "ssl", "sqlite", "Random()", "module's Random", "operator's", "operator's numpy",
         "operator's RandomState", "authkey", "semaphore")


@pytest.mark.parametrize("name", NAMES)
def test_no_two_workers_draw_the_same(answers, name):
    values = [found[name] for found in all_of(answers, "random")]
    assert len(set(values)) == WORKERS


def test_openssl_draws_nothing_twice(answers):
    """Neither the public nor the private generator, of workers whose zygote has used both, and of their own forks."""
    drawn = [text[i : i + 16] for found in all_of(answers, "OpenSSL") for text in found for i in (0, 16)]
    assert len(drawn) == len(set(drawn)) == WORKERS * 6


def test_the_numbers_are_spread_evenly(answers):
    """Random words put in the place of numpy's own seeding still are a uniform distribution."""
    for name in ("random", "numpy", "numpy default", "operator's RandomState"):
        values = [found[name] for found in all_of(answers, "random")]
        assert 0.45 < sum(values) / WORKERS < 0.55, name
        assert min(values) < 0.02 and max(values) > 0.98, name


def test_what_has_a_seed_is_the_same_in_all(answers):
    same(answers, "seeded", answers[0]["seeded"])
    same(answers, "seeded here", answers[0]["seeded here"])
    assert answers[0]["seeded"][0] == 0.32383276483316237  # random.Random(7).random(), in any Python
    same(answers, "gauss pair", [0, 0.0])


def test_hash_seed_and_layout_are_shared(answers):
    """As docs/engine.md says: they are the zygote's."""
    same(answers, "hash", answers[0]["hash"])
    same(answers, "address", answers[0]["address"])


def test_time_is_the_workers_own(answers):
    times = all_of(answers, "time")
    assert len({now for now, _, _, _ in times}) > 0.9 * WORKERS  # several at a time may read the same
    assert len({tick for _, tick, _, _ in times}) > 0.9 * WORKERS
    assert all(process < 5 for _, _, process, _ in times), "processor time begins with the fork"
    assert all(relative >= -1 for _, _, _, relative in times)
    starts = {round(now * 1e3 - relative) for now, _, _, relative in times}
    assert len(starts) > 0.5 * WORKERS, "logging counts from the worker's start, and not from its zygote's"


def test_pid_and_thread_ids(answers):
    for pid, parent, native, main, proc in all_of(answers, "pid"):
        assert pid == native == main == proc > 1 and parent == 1
    same(answers, "thread", [1, True, True, True])
    same(answers, "threads at the start", 1)
    same(answers, "children", False)


def test_descriptors(answers):
    same(answers, "descriptors", [0, 1, 2, 3])


def test_nothing_of_the_warm_up_in_process_state(answers):
    same(answers, "environment", False)
    same(answers, "umask", 0o022)
    same(answers, "decimal", 28)


def test_signals(answers, uses):
    same(answers, "signals", {"2": "<built-in function default_int_handler>", "13": "1", "25": "1"})
    same(answers, "kernel's signals", {"SigPnd": "0" * 16, "SigBlk": "0" * 16, "SigIgn": "%016x" % (1 << 12 | 1 << 24), "SigCgt": "%016x" % 2})
    same(uses, "handler", [1])
    same(uses, "interrupt", True)


def test_names_are_counted_from_the_beginning(uses):
    assert [name.partition(" ")[0] for name in uses[0]["thread names"]] == ["Thread-1", "Thread-2"]
    same(uses, "thread names", uses[0]["thread names"])
    same(uses, "pool", [[0, 1, 4, 9], "ThreadPoolExecutor-0"])
    same(uses, "asyncio", ["Task-1", 0, 5])


def test_processes(uses):
    same(uses, "subprocess", 3)
    same(uses, "fork", 0)
    for name, (first, second, is_other), _, code in all_of(uses, "multiprocessing"):
        assert (name, is_other, code) == ("Process-1", True, 0)
        assert first == uses[0]["multiprocessing"][1][0] or 0 <= first < 1
        assert 0 <= second < 1


def test_linear_algebra(uses):
    same(uses, "blas", [27e6, 1.0])
    same(uses, "blas in a thread", [27e6])


def test_atexit_functions_ran_once(answers):
    """One printed the answer, which would be no JSON if it had run in a forked child too."""
    assert len(answers) == WORKERS


def test_a_recycled_zygote_has_another_hash_seed():
    support.need("userns")
    with engine.Engine(image=support.IMAGE, recycle_forks=3, zygotes=(("bare", None, (), 1, 2),)) as warm:
        seen = set()
        warm.until(lambda: warm.stats()["zygotes"][0]["is_ready"], what="the zygote is ready")
        for _ in range(3000):  # another zygote takes its time, while this one goes on
            seen.add(warm.run("print(hash('hutch'))")["stdout"])
            if len(seen) > 2:
                break
        assert len(seen) > 2


@pytest.mark.parametrize("warm_up, says", [
    ("import threading, time\nthreading.Thread(target=time.sleep, args=(1000,), daemon=True).start()", "thread"),
    ("import os\nkept = os.open('/dev/null', os.O_RDONLY)", "descriptor"),
    ("1/0", "ZeroDivisionError"),
], ids=["a thread", "a descriptor", "a fault"])
def test_a_zygote_that_must_not_fork_does_not(warm_up, says):
    """And the engine says why."""
    support.need("userns")
    with engine.Engine(image=support.IMAGE, zygotes=(("bare", None, (), 1, 2, warm_up),)) as warm:
        with pytest.raises(engine.Failure, match=says):
            run = warm.submit("print(1)")
            warm.until(lambda: run.result, what="a result")
            raise AssertionError(run.result)
