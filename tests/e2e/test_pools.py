"""Prepared sandboxes of several policies in one engine: who is served from which, what the numbers say, and that one pool
is not another's."""
import json
import os
import signal

import pytest

import engine
import support
from engine import Session

MIB = 1 << 20
SEEN = support.MEMINFO + "import resource\nprint(meminfo()['MemTotal'] >> 20, resource.getrlimit(resource.RLIMIT_NPROC)[1])\n"


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A policy of less memory and fewer processes than the default one."""
    path = tmp_path_factory.mktemp("policies") / "small.json"
    path.write_text(json.dumps({"schema": 1, "extends": "default", "limits": {"memory": "200M", "pids": 20}}))
    return str(path)


@pytest.fixture(scope="module")
def two(small):
    support.need("userns")
    with engine.Engine(pools=(("bare", small, 1, 2),)) as one:
        one.settle()
        yield one


def pools(one):
    return {(entry["zygote"].decode(), entry["policy"] and entry["policy"].decode()): entry for entry in one.stats()["pools"]}


def test_each_policy_has_its_own(two, small):
    two.settle()
    before = pools(two)
    assert set(before) == {("bare", None), ("bare", small)}
    assert before["bare", None]["prepared"] >= 2 and before["bare", small]["prepared"] >= 1
    result = two.run(SEEN, policy=small)
    assert (result["stdout"], result["was_prepared"]) == ("200 22\n", True)
    assert result["limits"]["memory"]["asked"] == 200 * MIB
    result = two.run(SEEN)
    assert (result["stdout"], result["was_prepared"]) == ("512 66\n", True)
    after = pools(two)
    for key in before:
        assert after[key]["from_pool"] - before[key]["from_pool"] == 1 and after[key]["on_demand"] == before[key]["on_demand"]


def test_limits_of_a_request_are_tighter_than_its_pools(two, small):
    two.settle()
    result = two.run(SEEN, policy=small, memory_bytes=100 * MIB, pids=10)
    assert (result["stdout"], result["was_prepared"]) == ("100 12\n", True)
    for fields in ({"memory_bytes": 300 * MIB}, {"pids": 30}):
        with pytest.raises(engine.Failure, match="above the policy's"):
            two.submit("pass", policy=small, **fields)


def test_another_policy_is_built(two):
    two.settle()
    before = two.stats()
    result = two.run(SEEN, policy=engine.OTHER_DEFAULT)
    assert (result["stdout"], result["was_prepared"]) == ("512 66\n", False)
    assert two.stats()["on_demand"] == before["on_demand"] + 1
    two.settle()
    result = two.run(SEEN, policy="default")
    assert (result["stdout"], result["was_prepared"]) == ("512 66\n", True), "it is the engine's own"


def test_a_burst_is_served_by_its_pool(two, small):
    before = pools(two)
    runs = [two.submit(SEEN, policy=small if turn % 2 else None) for turn in range(20)]
    for turn, result in enumerate(two.wait(*runs)):
        assert result["stdout"] == ("200 22\n" if turn % 2 else "512 66\n")
    after = pools(two)
    for key in before:
        assert sum(after[key][name] - before[key][name] for name in ("from_pool", "on_demand")) == 10
    two.settle()
    assert all(entry["prepared"] <= 4 for entry in pools(two).values())


def test_pools_are_filled_again(two, small):
    """After the death of the launcher, and of idle sandboxes."""
    for _ in range(2):
        two.settle()
        os.kill(two.stats()["launcher_pid"], signal.SIGKILL)
        two.until(lambda: two.run(SEEN, policy=small)["was_prepared"], what="a prepared sandbox of the pool")
    assert two.run(SEEN, policy=small)["stdout"] == "200 22\n"


def test_a_pool_serves_programs_that_need_less(small):
    """One pool of the zygote with libraries is enough; what comes too late for its interpreter is built."""
    zygotes = (("bare", None, (), 1, 2), ("more", "bare", ("json", "decimal"), 1, 2), ("most", "more", ("fractions",), 1, 2))
    with engine.Engine(zygotes=zygotes, pools=(("most", small, 1, 2), ("more", small, 1, 2))) as one:
        for code, zygote in (("", "more"), ("import decimal\n", "more"), ("import decimal, fractions\n", "most")):
            one.settle()
            result = one.run(code + SEEN, policy=small)
            assert (result["stdout"], result["was_prepared"], result["zygote"]) == ("200 22\n", True, zygote)
        one.settle()
        result = one.run("import os; print(os.environ['OMP_NUM_THREADS'])", policy=small, env=("OMP_NUM_THREADS=3",))
        assert (result["stdout"], result["was_prepared"], result["zygote"]) == ("3\n", False, "bare")


def test_sessions_have_them_too(small):
    zygotes = (("bare", None, (), 1, 2), ("shell", "bare", ("IPython", "ipykernel"), 1, 4))
    with engine.Engine(image="python", zygotes=zygotes, pools=(("shell", small, 1, 2),)) as one:
        one.settle()
        with Session(one, policy=small) as session:
            assert session.printed(SEEN) == "200 22\n"
        assert pools(one)["shell", small]["from_pool"] == 1 and one.stats()["on_demand"] == 0


@pytest.mark.parametrize("name", ["no such zygote", "no policy", "twice", "the engine's", "too many", "turned round", "no such policy", "the host's network"])
def test_refused(small, policy, name):
    given = {"no such zygote": ([("other", small, 1, 2)], "zygote 'other'"), "no policy": ([("bare", None, 1, 2)], "without a policy"),
             "twice": ([(None, small, 1, 2), ("bare", small, 1, 2)], "two pools"),
             "the engine's": ([(None, "default", 1, 2)], "which is the engine's"),
             "too many": ([("bare", "p%d" % n, 1, 2) for n in range(33)], "at most 32"),
             "turned round": ([("bare", small, 3, 2)], "min 3 is above max 2"),
             "no such policy": ([("bare", "/nonexistent.json", 1, 2)], "/nonexistent"),
             "the host's network": ([("bare", policy(extends="trusted"), 1, 2)], "network")}[name]
    with pytest.raises(engine.Failure, match=given[1]):
        engine.Engine(pools=given[0])
