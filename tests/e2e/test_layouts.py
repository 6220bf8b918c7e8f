"""Several trees of zygotes in one engine: each was executed by itself, so it has an address layout and a hash seed of its own,
and sandboxes come from them in turn."""
import contextlib
import os
import signal
import time

import pytest

import engine
import support

ZYGOTES = (("bare", None, (), 2, 4), ("more", "bare", ("json",), 2, 4))
WHO = "import ctypes\nprint(hash('hutch'), ctypes.cast(ctypes.CDLL(None).puts, ctypes.c_void_p).value)"
CODE = {"bare": WHO, "more": "import json\n" + WHO}


@pytest.fixture(autouse=True)
def needs():
    support.need("userns")


def layouts(warm):
    return warm.stats()["layouts"]


def whole(warm, n):
    warm.until(lambda: layouts(warm) == n, what="%d trees are ready" % n)
    warm.settle()


def who(warm, zygote="bare"):
    result = warm.run(CODE[zygote])
    assert (result["verdict"], result["zygote"], result["stderr"]) == ("ok", zygote, ""), result
    return tuple(result["stdout"].split())


def zygotes_of_this_process():
    """Their pids: interpreters that are in no sandbox. One that makes a worker has children of that kind for a moment."""
    found = set()
    for pid in support.descendants(os.getpid()):
        try:
            status = support.status_of(pid)
        except OSError:
            continue
        if status["Name"][0].startswith("python") and len(status["NSpid"]) == 2:
            found.add(pid)
    return found


def hears_from(warm, n):
    """Sandboxes come from @n trees, soon or late: one of a busy machine's may take its time. There is none beyond."""
    found = [who(warm) for _ in range(20)]
    while len(set(found)) < n and len(found) < 300:
        found.append(who(warm))
    assert len(set(found)) == n, found


def has_processes(warm, n):
    warm.until(lambda: len(zygotes_of_this_process()) == n, what="there are %d zygotes" % n)


def test_sandboxes_come_from_all_in_turn():
    with engine.Engine(zygotes=ZYGOTES, layouts=3) as warm:
        whole(warm, 3)
        for zygote in CODE:
            found = [who(warm, zygote) for _ in range(18)][4:]  # the first were prepared before the others were there
            while len(set(found)) < 3 or min(map(found.count, found)) < 2:  # one of a busy machine's may take its time
                assert len(found) < 300, found
                found.append(who(warm, zygote))
            assert len(set(found)) == 3, found
            assert len({seed for seed, _ in found}) == len({address for _, address in found}) == 3, found
            assert all(found.count(one) >= 2 for one in found), found
        has_processes(warm, 8)  # two zygotes in each of three trees, and the spares of the first
        stats = warm.stats()
        assert sum(zygote["forks"] for zygote in stats["zygotes"]) >= 36 and stats["lost_zygotes"] == 0


@pytest.mark.parametrize("n", [1, 2])
def test_no_more_than_asked_for(n):
    with engine.Engine(zygotes=ZYGOTES, layouts=n) as warm:
        whole(warm, n)
        assert len({who(warm) for _ in range(12)}) <= n
        until = time.monotonic() + 4  # in a pause, as none begins while something runs
        while time.monotonic() < until:
            warm.dispatch(0.1)
            assert layouts(warm) == n
        has_processes(warm, 2 + 2 * n)


def test_none_begins_while_something_runs():
    with engine.Engine(zygotes=ZYGOTES, layouts=2) as warm:
        run = warm.run_streaming("print('ready', flush=True)\nimport time; time.sleep(6)")
        while not run.result:
            assert layouts(warm) <= 1
            warm.dispatch(0.1)
        whole(warm, 2)


def test_those_that_die_are_replaced():
    """Whichever they are; the others go on, and nothing is told twice."""
    with engine.Engine(zygotes=ZYGOTES, layouts=2) as warm:
        whole(warm, 2)
        for pid in sorted(zygotes_of_this_process()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            assert who(warm) and who(warm, "more")
        whole(warm, 2)
        for _ in range(8):  # what was prepared from those that are gone
            who(warm)
        hears_from(warm, 2)
        has_processes(warm, 6)


def test_worn_ones_are_replaced():
    with engine.Engine(zygotes=ZYGOTES[:1], layouts=2, recycle_forks=6) as warm:
        whole(warm, 2)
        seen = set()
        for _ in range(120):
            seen.add(who(warm))
            if len(seen) > 5:
                break
        assert len(seen) > 5
        warm.until(lambda: layouts(warm) == 2, what="both are there")
        assert warm.stats()["zygotes"][0]["recycled"] >= 3


def test_a_launcher_that_dies():
    with engine.Engine(zygotes=ZYGOTES, layouts=2) as warm:
        whole(warm, 2)
        os.kill(warm.stats()["launcher_pid"], signal.SIGKILL)
        warm.until(lambda: warm.stats()["lost_launchers"] == 1, what="the launcher's end is known")
        assert who(warm) and who(warm, "more")
        whole(warm, 2)
        hears_from(warm, 2)


def test_too_many():
    with pytest.raises(engine.Failure, match="layouts: there can be 8, not 9"):
        engine.Engine(zygotes=ZYGOTES, layouts=9)


def test_what_memory_allows():
    """Without a number: between one and four, and something of all that are there."""
    with engine.Engine(zygotes=ZYGOTES[:1], layouts=0) as warm:
        warm.settle()
        with open("/proc/meminfo", encoding="ascii") as file:
            available = {line.split(":")[0]: int(line.split()[1]) << 10 for line in file}["MemAvailable"]
        if available > 8 << 30:  # a bare interpreter has some 10 MB
            whole(warm, 4)
            hears_from(warm, 4)
        else:
            assert layouts(warm) <= 4
