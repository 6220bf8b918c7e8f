"""The life of a session by way of libhutch: what is known of it, how long it lives, and how it is paused."""
import errno
import time

import pytest

import engine
from engine import Session

ZYGOTES = (("bare", None, (), 1, 4), ("shell", "bare", ("IPython", "ipykernel"), 2, 8))
NO_LIMIT = 2**64 - 1


@pytest.fixture(scope="module")
def shell():
    with engine.Engine(image="python", zygotes=ZYGOTES, trim_ms=1000) as one:
        yield one


@pytest.fixture
def session(shell):
    with Session(shell) as one:
        yield one


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
    with pytest.raises(engine.Failure, match="no session") as failure:
        session.info()
    assert failure.value.code == errno.ENOENT
    with pytest.raises(engine.Failure, match="no session"):
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
