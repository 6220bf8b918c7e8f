"""Contexts of a session by way of libhutch: their list, their directories, and how they begin anew or go."""
import errno

import pytest

import engine
from engine import value


def order(session, what, context):
    return session.wait(session._hand_in(what, None, context.encode()))


def reset(session, context):
    return order(session, "reset_context", context)


def drop(session, context):
    return order(session, "drop_context", context)


def listed(session):
    return [(entry["name"], entry["count"], entry["directory"]) for entry in session.info()["contexts"]]


# --------------------------------------------------------------------------------------------------
# Their list

def test_list(session):
    assert listed(session) == [("main", 0, None)]
    session.run("1", context="one")
    assert listed(session) == [("main", 0, None), ("one", 1, None)]
    session.run("1")
    session.run("1", context="one")
    session.run("1", context="two", silent=1)
    session.run("1", context="two", cwd="/tmp")
    assert listed(session) == [("main", 1, None), ("one", 2, None), ("two", 1, "/tmp")]
    session.run("import os; os._exit(1)")
    assert listed(session) == [("main", 0, None)]


def test_no_more_than_sixteen(session):
    for n in range(15):
        session.run("1", context="c%d" % n)
    result = session.run("x = 1", context="another")
    assert (result["verdict"], result["execution_count"]) == ("error", 0) and "16 contexts" in result["error_value"]
    assert len(listed(session)) == 16
    assert drop(session, "c3")["ok"]
    assert session.run("1", context="another")["verdict"] == "ok"
    assert len(listed(session)) == 16 and "c3" not in [name for name, _, _ in listed(session)]


def test_list_of_a_checkpoint(session):
    session.run("1", context="before", cwd="/tmp")
    checkpoint = session.do("checkpoint")["id"]
    session.run("1", context="after")
    session.do("rollback", checkpoint)
    assert listed(session) == [("main", 0, None), ("before", 1, "/tmp")]
    branch = session.do("fork")["id"]
    session.run("1", context="here")
    session.do("switch", branch)
    assert [name for name, _, _ in listed(session)] == ["main", "before"]
    session.do("switch", 0)
    assert [name for name, _, _ in listed(session)] == ["main", "before", "here"]


# --------------------------------------------------------------------------------------------------
# Their directories

LOOK = "import os; os.getcwd()"


def test_directories(session):
    session.run("import os; os.makedirs('/mnt/data/a/b')")
    assert value(session.run(LOOK, context="one", cwd="/mnt/data/a")) == "'/mnt/data/a'"
    assert value(session.run(LOOK)) == "'/mnt/data'"
    assert value(session.run("os.chdir('b'); os.getcwd()", context="one")) == "'/mnt/data/a/b'"
    assert value(session.run(LOOK, context="two")) == "'/mnt/data'", "a new one begins in the session's"
    assert value(session.run(LOOK, context="one")) == "'/mnt/data/a/b'"
    assert value(session.run(LOOK, cwd="/tmp")) == "'/tmp'"
    assert value(session.run(LOOK)) == "'/tmp'"
    assert value(session.run(LOOK, context="two")) == "'/mnt/data'"


def test_directories_that_cannot_be_entered(session):
    for context in ("main", "new"):
        result = session.run("x = 1", context=context, cwd="/mnt/data/none")
        assert (result["verdict"], result["error_name"], result["execution_count"]) == ("error", "FileNotFoundError", 0)
    assert listed(session) == [("main", 0, None)]
    assert value(session.run("import os; os.getcwd(), 'x' in globals()")) == "('/mnt/data', False)"
    for cwd in ("relative", "", "/" + "x" * 5000, b"/\xff"):
        with pytest.raises(engine.Failure, match="absolute path"):
            session.execute("1", cwd=cwd)


def test_a_directory_that_is_removed(session):
    session.run("import os; os.mkdir('a'); os.mkdir('b')")
    session.run("1", context="one", cwd="/mnt/data/a")
    session.run("import os; os.rmdir('../a')", context="one")
    assert value(session.run(LOOK)) == "'/mnt/data'"
    assert value(session.run(LOOK, context="one")) == "'/mnt/data'"


# --------------------------------------------------------------------------------------------------
# How they begin anew and go

@pytest.mark.parametrize("context", ["main", "other"])
def test_reset(session, context):
    session.run("import os; os.mkdir('a'); x = 'another'", context="third")
    session.run("import os, sys; x = 1; os.chdir('/tmp'); sys.kept = 'module'", context=context)
    reply = reset(session, context)
    assert reply["ok"] and reply["json"] is None and reply["id"] == 0
    assert (context, 0, None) in listed(session)
    result = session.run("import os, sys\n'x' in globals(), os.getcwd(), sys.kept, In[1][:6], __name__, sys.modules['__main__'].__dict__ is globals()",
                         context=context)
    assert value(result) == "(False, '/mnt/data', 'module', 'import', '__main__', True)" and result["execution_count"] == 1
    assert value(session.run("x", context="third")) == "'another'"


def test_reset_goes_back_to_its_own_directory(session):
    session.run("import os; os.chdir('/')", context="one", cwd="/tmp")
    assert reset(session, "one")["ok"]
    assert value(session.run(LOOK, context="one")) == "'/tmp'"


def test_drop(session):
    session.run("x = 1", context="one", cwd="/tmp")
    session.run("x = 2")
    assert drop(session, "one")["ok"] and listed(session) == [("main", 1, None)]
    assert value(session.run("x")) == "2"
    result = session.run("import os; 'x' in globals(), os.getcwd()", context="one")
    assert (value(result), result["execution_count"]) == ("(False, '/mnt/data')", 1)
    session.run("1", context="two")
    assert drop(session, "two")["ok"], "the one that is in place"
    assert value(session.run("x")) == "2"


def test_orders_wait_their_turn(session):
    session.run("x = 1", context="one")
    cell = session.execute("import time; time.sleep(0.3); x", context="one")
    dropped = session._hand_in("drop_context", None, b"one")
    after = session.execute("'x' in globals()", context="one")
    session.wait(cell, dropped, after)
    assert value(cell.result) == "1" and dropped.result["ok"] and value(after.result) == "False"


def test_what_is_refused(session):
    for what, context, says in (("drop_context", "main", "cannot be dropped"), ("drop_context", "a b", "letters"), ("reset_context", "", "letters")):
        with pytest.raises(engine.Failure, match=says) as failure:
            order(session, what, context)
        assert failure.value.code == errno.EINVAL
    reply = drop(session, "unknown")
    assert not reply["ok"] and "no context unknown" in reply["message"]
