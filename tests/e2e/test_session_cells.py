"""What a caller can say of one cell by way of libhutch, and what it is told: its number and its begin, its environment, its value as JSON;
cells that are taken back; questions to the shell."""
import json
import os

import pytest

import engine
from engine import Session, value

ZYGOTES = (("bare", None, (), 1, 4), ("shell", "bare", ("IPython", "ipykernel", "numpy"), 2, 8))


@pytest.fixture(scope="module")
def shell():
    with engine.Engine(image="python", zygotes=ZYGOTES, trim_ms=1000) as one:
        yield one


# --------------------------------------------------------------------------------------------------
# Numbers and begins

def test_numbers(session):
    cells = [session.execute("1"), session.execute("2", silent=1), session.execute("3")]
    results = session.wait(*cells)
    assert len({cell.id for cell in cells}) == 3 and 0 not in {cell.id for cell in cells}
    assert [result["id"] for result in results] == [cell.id for cell in cells]
    assert [cell.starts for cell in cells] == [[1], [0], [2]]


def test_a_cell_that_never_began(session):
    cell = session.execute("1")
    session.restart()
    assert session.wait(cell)["verdict"] == "killed" and cell.starts == []


def test_the_begin_is_told_before_the_end(session):
    cell = session.execute("import time; time.sleep(1000)")
    session.engine.until(lambda: cell.starts)
    assert cell.result is None and session.interrupt() == 1
    session.wait(cell)
    assert cell.starts == [1]


# --------------------------------------------------------------------------------------------------
# Cells that are taken back

def test_cancel_one_that_waits(session):
    running = session.run_until("print('ready', flush=True)\nimport time; time.sleep(1000)")
    first, second = session.execute("x = 1"), session.execute("'x' in globals()")
    assert session.cancel(first) == 1
    result = session.wait(first)
    assert (result["verdict"], result["execution_count"], first.results) == ("killed", 0, 1) and "cancelled" in result["message"]
    assert running.result is None, "it is told while another one runs"
    assert session.cancel(first) == 0
    assert session.cancel(running) == 2
    result = session.wait(running)
    assert result["error_name"] == "KeyboardInterrupt", result
    assert value(session.wait(second)) == "False"
    assert session.cancel(second) == 0


def test_cancel_before_there_is_a_sandbox(shell):
    with Session(shell) as session:
        cells = [session.execute("1") for _ in range(3)]
        assert [session.cancel(cell) for cell in cells] == [1, 1, 1]
        results = session.wait(*cells)
        assert {result["verdict"] for result in results} == {"killed"}
        assert session.info()["waiting"] == 0
        assert value(session.run("1 + 1")) == "2"


def test_cancel_in_a_callback(session):
    order = []
    cells = []
    cells.append(session.execute("1", on_result=lambda _: order.append(("first", session.cancel(cells[1]), session.cancel(cells[0])))))
    cells.append(session.execute("2", on_result=lambda _: order.append(("second",))))
    cells.append(session.execute("3", on_result=lambda _: order.append(("third",))))
    results = session.wait(*cells)
    assert order[0] == ("first", 1, 0) and len(order) == 3
    assert [result["verdict"] for result in results] == ["ok", "killed", "ok"]


def test_cancel_what_is_not_there(session, shell):
    other, unknown = Session(shell), engine.Pending()
    unknown.id = session.execute("1").id + 1
    assert session.cancel(unknown) == 0
    with other:
        other.run("1")
    assert other.cancel(unknown) == 0
    assert session.run("1")["verdict"] == "ok"


def test_cells_behind_a_failed_one(session):
    cells = [session.execute(code, stop_on_error=1) for code in ("1", "1 / 0", "x = 1", "y = 1")]
    results = session.wait(*cells)
    assert [result["verdict"] for result in results] == ["ok", "error", "killed", "killed"]
    assert "failed" in results[2]["message"] and results[2]["execution_count"] == 0
    assert value(session.run("'x' in globals()")) == "False"
    cells = [session.execute("1 / 0"), session.execute("z = 1")]
    assert [result["verdict"] for result in session.wait(*cells)] == ["error", "ok"]


def test_checkpoints_behind_a_failed_one(session):
    failed, checkpoint, cell = session.execute("1 / 0", stop_on_error=1), session.order("checkpoint"), session.execute("1")
    session.wait(failed, checkpoint, cell)
    assert checkpoint.result["ok"] and cell.result["verdict"] == "killed"


def test_cells_behind_a_death(session):
    cells = [session.execute("import os; os._exit(3)", stop_on_error=1), session.execute("1")]
    assert [result["verdict"] for result in session.wait(*cells)] == ["error", "killed"]
    assert value(session.run("1 + 1")) == "2"


# --------------------------------------------------------------------------------------------------
# Environment

def test_environment_of_a_cell(session):
    session.run("import os; os.environ['KEPT'] = 'before'")
    look = "os.environ.get('KEPT'), os.environ.get('NEW'), os.popen('echo $NEW').read()"
    assert value(session.run(look, env=["KEPT=cell", "NEW=\u00e4 b=c", "NEW=last"])) == "('cell', 'last', 'last\\n')"
    assert value(session.run(look)) == "('before', None, '\\n')"
    session.run("os.environ['NEW'] = 'changed'; 1 / 0", env=["NEW=x"])
    assert value(session.run(look)) == "('before', None, '\\n')"


@pytest.mark.parametrize("env, says", [(["no"], "NAME=VALUE"), (["=x"], "NAME=VALUE"), ([b"A=\xff"], "UTF-8"),
                                       (["A%d=x" % n for n in range(257)], "256 variables"), (["A=" + "x" * 200000], "bytes")])
def test_environments_that_are_refused(session, env, says):
    with pytest.raises(engine.Failure, match=says):
        session.execute("1", env=env)


# --------------------------------------------------------------------------------------------------
# Values

FORGE = """
import json, os, time
def forge(frame):
    data = json.dumps(frame).encode()
    os.write(3, len(data).to_bytes(4, 'little') + data)
"""


@pytest.mark.parametrize("code, found", [
    ("40 + 2", 42), ("{'a': [1, 2.5, None, True, 'x\\u00e4\\n\\x00\\x1b']}", {"a": [1, 2.5, None, True, "x\u00e4\n\0\x1b"]}), ("(1, (2,))", [1, [2]]),
    ("2 ** 200", 2 ** 200), ("'text'", "text"), ("[]", []), ("import numpy as np; [np.int64(7), np.float64(0.5), np.bool_(True)]", [7, 0.5, True]),
    ("await __import__('asyncio').sleep(0, 'late')", "late")])
def test_value(session, code, found):
    result = session.run(code, wants_value=1)
    assert json.loads(result["value_json"]) == found and result["json"]["value_json"] == found
    assert result["value_json"].isascii() and result["value_json"].isprintable()


@pytest.mark.parametrize("code", ["None", "1;", "x = 1", "float('nan')", "[float('inf')]", "object()", "{1: 2}", "'x' * 300000", "list(range(60000))",
                                  "l = []; l.append(l); l", "'\\ud800'", "1 << 100000", "1 / 0", "{1, 2}", "b'x'", "print('x')",
                                  "class D(dict): pass\nD(a=1)", "e = []\nfor _ in range(100): e = [e]\ne"])
def test_values_without_json(session, code):
    result = session.run(code, wants_value=1)
    assert result["value_json"] is None and result["json"]["value_json"] is None and not result["interpreter_died"]


def test_a_value_that_nobody_wants(session):
    assert session.run("1")["value_json"] is None
    assert session.run("1", silent=1, wants_value=1)["value_json"] is None


@pytest.mark.parametrize("forged", ["'no json'", "'1\\n'", "'\"\\u009b\"'", "'[' * 100000", "'9' * 400000", "'{\"a\":1,}'", "'NaN'", "'\"\\\\ud800\"'", "7"])
def test_forged_values(session, forged):
    """The interpreter can say what it likes; what is passed on is JSON that harms no reader."""
    code = FORGE + "forge({'is': 'done', 'n': 1000, 'id': 1, 'status': 'ok', 'count': 1, 'value': %s})\n1" % forged
    result = session.run(code, wants_value=1)
    assert result["value_json"] is None
    assert bool(result["interpreter_died"]) == (forged == "7")


def test_a_forged_value(session):
    """It is the cell's own word, as its outputs are."""
    code = FORGE + "forge({'is': 'done', 'n': 1000, 'id': 1, 'status': 'ok', 'count': 1, 'value': '{\"a\": [1]}'})\n1"
    assert json.loads(session.run(code, wants_value=1)["value_json"]) == {"a": [1]}


# --------------------------------------------------------------------------------------------------
# Displays

def test_display_ids(session):
    code = "from IPython.display import display\nhandle = display('one', display_id='mine')\nhandle.update('two')\ndisplay('three')"
    cell = session.execute(code)
    session.wait(cell)
    assert [(kind, (found.get("transient") or {}).get("display_id"), found.get("id")) for kind, found in cell.outputs] == [
        ("display", "mine", None), ("update", None, "mine"), ("display", None, None)]
    assert "transient" not in cell.result["outputs"][0] or cell.result["outputs"][0]["transient"] == {"display_id": "mine"}


# --------------------------------------------------------------------------------------------------
# Questions to the shell

def test_completion(session):
    session.run("sortable = [1]; m\u00e4rchen = 'x'")
    reply = session.ask("complete", "x = 1\nsorta")
    assert reply == {"matches": ["sortable"], "cursor_start": 6, "cursor_end": 11, "metadata": {}, "status": "ok"}
    reply = session.ask("complete", "m\u00e4r; sorta.x", 3)
    assert (reply["matches"], reply["cursor_start"], reply["cursor_end"]) == (["m\u00e4rchen"], 0, 3)
    reply = session.ask("complete", "nothing_like_it")
    assert (reply["matches"], reply["cursor_end"]) == ([], 15)
    assert "a" in " ".join(session.ask("complete", "", 0)["matches"]), "everything"
    session.run("globals().update({'many_%05d' % n: n for n in range(5000)})")
    assert 200 < len(session.ask("complete", "many_")["matches"]) <= 1000
    assert session.run("1")["execution_count"] == 3, "a question is no cell"


def test_inspection(session):
    session.run("def double(x):\n    'Twice as much.'\n    return 2 * x")
    reply = session.ask("inspect", "y = double(3)", 7)
    assert reply["found"] and reply["status"] == "ok" and "Twice as much." in reply["data"]["text/plain"]
    assert "return 2" not in reply["data"]["text/plain"]
    assert "return" in session.ask("inspect", "double", detail=1)["data"]["text/plain"]
    assert session.ask("inspect", "unheard_of") == {"found": False, "data": {}, "metadata": {}, "status": "ok"}
    session.run("class Long: pass\nLong.__doc__ = 'a\\x1b' * 4000000")
    assert session.ask("inspect", "Long")["found"], "it is cut"


@pytest.mark.parametrize("code, status, indent", [("1 + 1", "complete", ""), ("for x in y:", "incomplete", "    "), ("1 +* 2", "invalid", ""),
                                                  ("f(", "incomplete", "")])
def test_is_complete(session, code, status, indent):
    reply = session.ask("is_complete", code)
    assert (reply["status"], reply["indent"].strip("    ") == "" and reply["indent"][:4]) == (status, indent)


def test_questions_in_a_context(session):
    session.run("here = 1", context="other")
    session.run("there = 1")
    assert session.ask("complete", "her", context="other")["matches"] == ["here"]
    assert session.ask("complete", "her")["matches"] == []
    reply = session.wait(session.question("complete", "her", context="unknown"))
    assert not reply["ok"] and "no context unknown" in reply["message"] and reply["json"] is None


def test_questions_wait_their_turn(session):
    cell = session.execute("import time; time.sleep(0.5); late = 1")
    question = session.question("complete", "lat")
    session.wait(cell, question)
    assert "late" in question.result["json"]["matches"] and question.results == 1


def test_a_question_starts_an_interpreter(session):
    session.run("import os; os._exit(1)")
    assert session.ask("is_complete", "1")["status"] == "complete"


def test_a_question_spares_checkpoints(session):
    session.run("x = 1")
    checkpoint = session.do("checkpoint")["id"]
    session.run("import os; os._exit(1)")
    reply = session.wait(session.question("complete", "x"))
    assert not reply["ok"] and "checkpoints" in reply["message"]
    session.do("rollback", checkpoint)
    assert value(session.run("x")) == "1"


SLOW = "class Slow:\n    def __dir__(self):\n        while True: pass\nslow = Slow(); x = 'still there'"
STUBBORN = """
import os
def wait():  # a function: in Python 3.13, an interrupt in a loop that is itself below "try" may come out of it
    while not os.path.exists('/mnt/data/go'): pass
class Stubborn:
    def __dir__(self):
        while not os.path.exists('/mnt/data/go'):
            try: wait()
            except BaseException: pass
        return ['abcd']
stubborn = Stubborn()"""


def test_a_question_that_takes_too_long(session):
    session.run(SLOW)
    reply = session.wait(session.question("complete", "slow.a", timeout_ms=3000))
    assert not reply["ok"] or reply["json"]["matches"] == []  # IPython may catch the interrupt
    assert value(session.run("x")) == "'still there'"


def interrupt_until_over(session, order):
    """Again and again: an interrupt may come at any step of what ends the first."""
    session.engine.until(lambda: order.result is not None or session.interrupt() == 0 and session.info()["state"] == "idle")
    return session.wait(order)


@pytest.mark.parametrize("what", ["question", "cell"])
def test_interrupts_without_patience(session, what):
    """They end what runs, and neither the interpreter nor what comes next."""
    session.run(SLOW)
    for _ in range(40):
        if what == "question":
            interrupt_until_over(session, session.question("complete", "slow.a", timeout_ms=100000))
        else:
            result = interrupt_until_over(session, session.execute("while True: pass"))
            assert result["was_interrupted"], result
        assert value(session.run("x")) == "'still there'"


def test_a_question_that_cannot_be_interrupted(session):
    """It is given up, and holds up others until it ends; it costs no variables."""
    session.run(STUBBORN)
    reply = session.wait(session.question("complete", "stubborn.ab", timeout_ms=3000))
    assert not reply["ok"] and "interrupted" in reply["message"]
    reply = session.wait(session.question("complete", "x"))
    assert not reply["ok"] and "earlier question" in reply["message"]
    with session.open_file("go", os.O_WRONLY):
        pass
    assert value(session.run("'stubborn' in globals()")) == "True"
    assert session.ask("complete", "stubbor")["matches"] == ["stubborn"]


def test_a_question_that_ends_the_interpreter(session):
    session.run("import os\nclass Deadly:\n    def __dir__(self): os._exit(3)\ndeadly = Deadly()")
    question = session.question("complete", "deadly.a")
    reply = session.wait(question)
    assert not reply["ok"] and "exit code 3" in reply["message"] and question.results == 1
    result = session.run("'deadly' in globals()")
    assert value(result) == "False" and result["is_fresh"]


def test_questions_that_are_refused(session):
    for fields, says in (({"code": "x" * (300 << 10)}, "longer"), ({"code": b"\xff"}, "UTF-8"), ({"code": "x", "context": "a b"}, "context")):
        with pytest.raises(engine.Failure, match=says):
            session.question("complete", **fields)
    with pytest.raises(engine.Failure, match="no question"):
        session.question(7, "x")
    session.restart()


@pytest.mark.parametrize("frame", ['{"is": "answer", "id": n, "ok": True}', '{"is": "answer", "id": n, "ok": True, "reply": 1}',
                                   '{"is": "answer", "id": n}', '{"is": "answer", "id": n, "ok": False, "why": "x\\n" * 100000}'])
def test_forged_answers(session, frame):
    """They may come instead of a real one, and harm nobody."""
    session.run(FORGE + "class Forger:\n    def __dir__(self):\n        for n in range(64): forge(%s)\n        return ['abcd']\nforger = Forger()" % frame)
    question = session.question("complete", "forger.a")
    reply = session.wait(question)
    assert not reply["ok"] and "\n" not in reply["message"] and question.results == 1
    assert value(session.run("1 + 1")) == "2"


def test_a_restart_answers_questions(session):
    session.run(STUBBORN)
    questions = [session.question("complete", "stubborn.ab"), session.question("is_complete", "1")]
    session.engine.until(lambda: session.info()["state"] == "busy")
    session.restart()
    assert [reply["ok"] for reply in session.wait(*questions)] == [0, 0]
    assert session.ask("is_complete", "1")["status"] == "complete"
