"""The life of a session by way of libhutch: what is known of it, how long it lives, and how it is paused."""
import errno
import os
import time

import pytest

import engine
from engine import Session

NO_LIMIT = 2**64 - 1


# --------------------------------------------------------------------------------------------------
# What is known of it

def test_states(session):
    assert session.info()["state"] == "opening"
    session.run("1")
    session.engine.until(lambda: session.info()["state"] == "idle")
    cell = session.run_until("print('ready', flush=True)\nimport time; time.sleep(1000)")
    waiting = session.execute("2")
    info = session.info()
    assert (info["state"], info["waiting"], info["idle_end"]) == ("busy", 1, None)
    assert (info["cell"], info["cells"]) == (cell.id, [waiting.id])
    session.interrupt()
    session.wait(cell, waiting)
    session.run("import os; os._exit(3)")
    assert session.info()["state"] == "lost"
    session.run("1")
    assert session.info()["state"] in ("busy", "idle")


def test_times(shell):
    before = time.time()
    with Session(shell, idle_ms=100000, lifetime_ms=200000) as session:
        session.run("1")
        after, info = time.time(), session.info()
        assert before - 0.1 <= info["opened"] <= info["used"] <= after + 0.1
        assert abs(info["end"] - info["opened"] - 200) < 0.1 and abs(info["idle_end"] - info["used"] - 100) < 0.1
        assert info["idle_ms"] == 100000


def test_what_it_uses(session):
    assert session.info()["data_bytes"] is None or session.info()["data_bytes"] == 0
    session.run("block = bytearray(64 << 20)\nopen('file', 'wb').write(b'x' * (1 << 20))\nsum(range(20_000_000))")

    def knows_all():
        info = session.info()
        return ((info["memory_bytes"] or 0) >= 64 << 20 and (info["cpu_ms"] or 0) > 10 and (info["pids"] or 0) >= 1 and
                (info["data_bytes"] or 0) >= 1 << 20 and info["data_files"] == 1)

    session.engine.until(knows_all, what="all is known: %r" % session.info())


def test_checkpoints_and_branches_are_listed(session):
    session.run("open('file', 'wb').write(b'x' * 5000)")
    one, branch = session.do("checkpoint"), session.do("fork")
    info = session.info()
    assert info["checkpoints"] == [{"id": one["id"], "bytes": one["bytes"]}]
    assert info["branches"] == [{"id": branch["id"], "bytes": branch["bytes"]}] and info["branch"] == 0
    assert info["checkpoint_bytes"] == one["bytes"] + branch["bytes"] >= 10000
    session.do("switch", branch["id"])
    info = session.info()
    assert (info["branch"], [entry["id"] for entry in info["branches"]]) == (branch["id"], [0])
    session.run("import os; os._exit(1)")
    assert [entry["id"] for entry in session.info()["checkpoints"]] == [one["id"]], "it outlives its interpreter"


def test_no_such_session(shell):
    with Session(shell) as session:
        pass
    with pytest.raises(engine.Failure, match="no such session") as failure:
        session.info()
    assert failure.value.code == errno.ENOENT
    with pytest.raises(engine.Failure, match="no such session"):
        session.set_lifetime(1)


# --------------------------------------------------------------------------------------------------
# How long it lives

def test_a_shorter_life(session):
    session.run("1")
    session.set_lifetime(lifetime_ms=200)
    session.engine.until(lambda: session.ends)
    assert session.ends == [("the session's lifetime was over", None)]


def test_less_patience(session):
    session.run("1")
    session.set_lifetime(idle_ms=200)
    session.engine.until(lambda: session.ends)
    assert "idle" in session.ends[0][0]


def test_a_longer_life(shell):
    with Session(shell, idle_ms=300, lifetime_ms=400) as session:
        session.set_lifetime(60000, 60000)
        info = session.info()
        assert abs(info["end"] - time.time() - 60) < 5
        session.run("import time; time.sleep(1)")
        assert session.run("1")["verdict"] == "ok" and not session.ends


def test_no_end(shell):
    with Session(shell, idle_ms=NO_LIMIT, lifetime_ms=NO_LIMIT) as session:
        session.run("1")
        info = session.info()
        assert (info["end"], info["idle_end"], info["idle_ms"]) == (None, None, None)
        session.set_lifetime(1000)
        assert session.info()["idle_ms"] == 1000 and session.info()["end"] is None


# --------------------------------------------------------------------------------------------------
# Pauses

TICKS = """
import subprocess, threading, time
def tick(name):
    while True:
        with open(name, 'a') as file: file.write('.')
        time.sleep(0.01)
threading.Thread(target=tick, args=('thread',), daemon=True).start()
subprocess.Popen(['sh', '-c', 'while :; do echo -n . >> process; sleep 0.01; done'])
"""
LOOP = "print('ready', flush=True)\nn = 0\nwhile n < 10**12: n += 1"


def sizes(session):
    return {entry["path"]: entry["size"] for entry in session.files()}


def stand_still(session):
    session.pause()
    session.engine.until(lambda: session.info()["still"], what="it stands still: %r" % session.info())
    info = session.info()
    assert info["state"] == "paused" and info["paused_by"] in ("cgroup", "signals")
    assert info["idle_end"] is None
    return info


def spend(session, seconds):
    """The engine goes on meanwhile."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        session.engine.dispatch(0.05)


def test_nothing_moves(session):
    session.run(TICKS)
    session.engine.until(lambda: len([size for size in sizes(session).values() if size > 5]) == 2)
    cell = session.run_until(LOOP)
    stand_still(session)
    spend(session, 0.3)  # what is sampled is of a moment ago
    before, used = sizes(session), session.info()["cpu_ms"]
    spend(session, 0.5)
    assert sizes(session) == before and session.info()["still"]
    assert used is None or session.info()["cpu_ms"] - used < 100
    assert session.info()["memory_bytes"] is None or session.info()["memory_bytes"] > 1 << 20
    session.resume()
    session.engine.until(lambda: all(size > before[name] for name, size in sizes(session).items()))
    assert session.info()["state"] == "busy" and session.info()["paused_by"] is None
    session.interrupt()
    assert session.wait(cell)["error_name"] == "KeyboardInterrupt"


def test_memory_is_kept(session):
    session.run("x = list(range(1000))")
    stand_still(session)
    session.resume()
    assert session.run("assert x[-1] == 999")["verdict"] == "ok"


def test_clocks_stand_still(shell):
    with Session(shell, idle_ms=3000) as session:
        cell = session.run_until("import os, time\nprint('ready', flush=True)\nwhile not os.path.exists('/mnt/data/go'): time.sleep(0.01)",
                                 timeout_ms=5000)
        stand_still(session)
        spend(session, 6)
        assert cell.result is None and not session.ends
        session.resume()
        with session.open_file("go", os.O_WRONLY):
            pass
        result = session.wait(cell)
        assert result["verdict"] == "ok" and result["run_ms"] < 5500
        stand_still(session)
        spend(session, 4)
        assert not session.ends
        session.resume()
        session.engine.until(lambda: session.ends)
        assert "idle" in session.ends[0][0]


def test_the_lifetime_goes_on(session):
    session.run("1")
    stand_still(session)
    session.set_lifetime(lifetime_ms=300)
    session.engine.until(lambda: session.ends)
    assert "lifetime" in session.ends[0][0]


def test_orders_wait(session):
    session.run("x = 1")
    stand_still(session)
    cell, checkpoint, question = session.execute("x + 1"), session.order("checkpoint"), session.question("complete", "x")
    spend(session, 0.3)
    assert (cell.result, checkpoint.result, question.result) == (None, None, None) and session.info()["waiting"] == 3
    assert session.cancel(cell) == 1
    assert session.wait(cell)["verdict"] == "killed"
    session.resume()
    session.wait(checkpoint, question)
    assert checkpoint.result["ok"] and question.result["ok"]


def test_an_interrupt_comes_when_it_goes_on(session):
    cell = session.run_until(LOOP)
    stand_still(session)
    assert session.interrupt() == 1
    spend(session, 0.3)
    assert cell.result is None and session.info()["still"]
    session.resume()
    assert session.wait(cell)["error_name"] == "KeyboardInterrupt"


def test_close_while_it_is_paused(session):
    session.run(TICKS)
    cell = session.run_until(LOOP)
    stand_still(session)
    assert session.close() == 1
    assert session.wait(cell)["verdict"] == "killed"
    session.engine.until(lambda: session.ends)


def test_restart_while_it_is_paused(session):
    session.run("x = 1")
    cell = session.run_until(LOOP)
    stand_still(session)
    session.restart()
    assert session.wait(cell)["verdict"] == "killed"
    waiting = session.execute("'x' in globals()")
    spend(session, 0.3)
    info = session.info()
    assert (info["state"], info["paused_by"], info["still"], waiting.result) == ("paused", None, True, None)
    session.resume()
    assert session.wait(waiting)["outputs"][0]["data"]["text/plain"] == "False"


def test_pause_before_it_is_ready(shell):
    with Session(shell) as session:
        session.pause()
        session.pause()
        cell = session.execute("40 + 2")
        session.engine.until(lambda: session.info()["paused_by"] and session.info()["still"])
        spend(session, 0.3)
        assert cell.result is None
        session.resume()
        session.resume()
        assert session.wait(cell)["outputs"][0]["data"]["text/plain"] == "42"


def test_pause_in_the_middle_of_an_order(session):
    session.run("x = bytearray(1 << 20)")
    checkpoint = session.do("checkpoint")["id"]
    session.run("x = None")
    rollback = session.order("rollback", checkpoint)
    session.pause()
    spend(session, 0.5)
    session.resume()
    assert session.wait(rollback)["ok"]
    assert session.printed("print(len(x))") == "1048576\n"


def test_checkpoints_live_through_a_pause(session):
    session.run("x = 1")
    checkpoint = session.do("checkpoint")["id"]
    stand_still(session)
    session.resume()
    session.run("x = 2")
    session.do("rollback", checkpoint)
    assert session.printed("print(x)") == "1\n"


def test_pauses_at_any_moment(session):
    """Paused and resumed as fast as that goes: nothing is lost, and nothing stays stopped."""
    cells = [session.execute("sum(range(100000))") for _ in range(20)]
    for _ in range(200):
        session.pause()
        session.engine.dispatch(0.002)
        session.resume()
        session.engine.dispatch(0.002)
    assert {result["verdict"] for result in session.wait(*cells)} == {"ok"}


def test_other_sessions_go_on(session, shell):
    session.run("1")
    stand_still(session)
    with Session(shell) as other:
        assert other.run("1")["verdict"] == "ok"
    assert shell.run("print(1)")["verdict"] == "ok"


# Processes that continue each other as long as one of them runs.
WITHSTANDS = """
import os, signal
pids = [os.getpid()]
for _ in range(3):
    pid = os.fork()
    if pid == 0:
        break
    pids.append(pid)
if pid:
    print('ready', flush=True)
while True:
    for other in pids:
        try: os.kill(other, signal.SIGCONT)
        except OSError: pass
"""


def test_a_pause_that_is_withstood(session):
    """By signals it is not certain, and is told for what it is; the session is another's to command all the same."""
    cell = session.run_until(WITHSTANDS)
    for _ in range(5):
        session.pause()
        session.engine.until(lambda: session.info()["paused_by"])
        spend(session, 0.3)
        info = session.info()
        if info["still"]:
            used = info["cpu_ms"]
            spend(session, 0.2)
            now = session.info()
            assert not now["still"] or used is None or now["cpu_ms"] - used < 100
        session.resume()
        session.engine.dispatch(0.01)
    session.pause()
    session.restart()
    session.resume()
    assert session.wait(cell)["verdict"] == "killed"
    assert session.run("1")["verdict"] == "ok"


def test_the_end_of_the_engine_while_one_is_paused(tmp_path):
    with engine.Engine(image="python", zygotes=engine.SHELL_ZYGOTES) as one:
        session = Session(one)
        session.run(TICKS)
        stand_still(session)
