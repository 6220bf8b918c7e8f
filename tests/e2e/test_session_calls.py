"""Calls from the code of a cell to the caller of libhutch, and what forged ones can do."""
import errno

import pytest

import engine
from engine import value


def adder(session, seen=None):
    def on_call(number, name, arguments):
        if seen is not None:
            seen.append((name, arguments))
        session.answer(number, sum(arguments["args"]) + sum(arguments["kwargs"].values()))
    return on_call


def run_adding(session, code, calls=("add",), seen=None, **fields):
    return session.run(code, calls=list(calls), on_call=adder(session, seen), **fields)


# --------------------------------------------------------------------------------------------------
# Calls and answers

def test_a_call(session):
    seen = []
    assert value(run_adding(session, "add(1, 2, c=3) + 36", seen=seen)) == "42"
    assert seen == [("add", {"args": [1, 2], "kwargs": {"c": 3}})]


def test_awaited(session):
    assert value(run_adding(session, "await add(1, 2)")) == "3"
    assert value(run_adding(session, "import asyncio\nawait asyncio.gather(*[add(n, n) for n in range(20)])")) == str([2 * n for n in range(20)])
    assert value(run_adding(session, "async def f(x):\n    return await add(x, 1)\nawait f(await f(1))")) == "3"
    assert value(run_adding(session, "def g(x): return add(x, 1)\nasync def f(x): return g(x) + await add(x, 0)\nawait f(1)")) == "3"


def test_awaited_by_declaration(session):
    calls = [{"name": "late", "async": True}, {"name": "now", "async": False}]
    assert value(run_adding(session, "a = late(1)\nb = late(2)\nimport asyncio\nawait asyncio.gather(a, b)", calls=calls)) == "[1, 2]"
    assert value(run_adding(session, "async def f(): return now(5)\nawait f()", calls=calls)) == "5"


def test_several_in_flight(session):
    """Answered in another order than they were made."""
    cell = session.execute("import asyncio\nawait asyncio.gather(*[ask(n) for n in range(10)])", calls=["ask"])
    session.engine.until(lambda: len(cell.calls) == 10)
    for number, _, arguments in reversed(cell.calls):
        session.answer(number, arguments["args"][0] * 2)
    assert value(session.wait(cell)) == str([2 * n for n in range(10)])


def test_threads(session):
    code = "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(8) as pool: r = list(pool.map(lambda n: ask(n), range(40)))\nstr(r)"
    cell = session.execute(code, calls=["ask"])
    answered = set()

    def serve():
        waiting = [call for call in cell.calls if call[0] not in answered]
        for number, _, arguments in reversed(waiting):
            answered.add(number)
            session.answer(number, arguments["args"][0] + 1)
        return cell.result is not None

    session.engine.until(serve)
    assert value(cell.result) == repr(str(list(range(1, 41))))


def test_awaited_in_another_loop(session):
    code = ("import asyncio, threading\nfound = []\nasync def f(): found.extend(await asyncio.gather(add(1), add(2)))\n"
            "t = threading.Thread(target=lambda: asyncio.run(f()))\nt.start(); t.join(); found")
    assert value(run_adding(session, code)) == "[1, 2]"


def test_blocking_while_others_are_awaited(session):
    code = ("import asyncio\ndef blocking(n): return add(n)\nasync def f():\n    task = asyncio.ensure_future(add(1))\n"
            "    await asyncio.sleep(0)\n    return blocking(2), await task\nawait f()")
    assert value(run_adding(session, code)) == "(2, 1)"


def test_values(session):
    for found in ("null", "[1, 2.5, {\"a\": [true]}]", "\"\\u00e4\\ud83d\\ude00\\u0000\"", "\"" + "x" * 1000000 + "\""):
        cell = session.execute("import json; r = json.dumps(ask()); len(r), r[:50]", calls=["ask"])
        session.engine.until(lambda: cell.calls)
        session.answer(cell.calls[0][0], (found,))
        assert session.wait(cell)["verdict"] == "ok"
    cell = session.execute("ask() is None", calls=["ask"])
    session.engine.until(lambda: cell.calls)
    session._order("answer", __import__("ctypes").c_uint64(cell.calls[0][0]), None, 0)
    assert value(session.wait(cell)) == "True"


def test_errors(session):
    cell = session.execute("try: ask()\nexcept RuntimeError as e: print(type(e).__name__, e)", calls=["ask"])
    session.engine.until(lambda: cell.calls)
    session.answer(cell.calls[0][0], "no such city", 1)
    assert session.wait(cell)["outputs"][0]["text"] == "CallError no such city\n"
    cell = session.execute("await ask()", calls=["ask"])
    session.engine.until(lambda: cell.calls)
    session.answer(cell.calls[0][0], {"code": 7}, 1)
    result = session.wait(cell)
    assert (result["error_name"], result["error_value"]) == ("CallError", '{"code": 7}')


def test_output_before_a_call_comes_first(session):
    seen = []
    cell = session.execute("print('before', end=''); ask(); print('after')", calls=["ask"],
                           on_call=lambda number, *_: (seen.append(cell.text()), session.answer(number, None)))
    session.wait(cell)
    assert seen == [b"before"]


def test_input_beside_calls(session):
    cell = session.execute("x = input('?'); y = ask(); z = input(); (x, y, z)", calls=["ask"], allow_input=1)
    session.engine.until(lambda: cell.prompts)
    session.reply("one")
    session.engine.until(lambda: cell.calls)
    assert session.reply("nobody asked") == 0
    session.answer(cell.calls[0][0], 2)
    session.engine.until(lambda: len(cell.prompts) == 2)
    session.reply("three")
    assert value(session.wait(cell)) == "('one', 2, 'three')"


# --------------------------------------------------------------------------------------------------
# Declared for one cell

def test_names_are_the_cells_own(session):
    session.run("add = 'mine'; other = 1")
    assert value(run_adding(session, "add(1)", calls=["add", "tool"])) == "1"
    assert value(session.run("add, 'tool' in globals()")) == "('mine', False)"
    run_adding(session, "add = 'changed'")
    assert value(session.run("add")) == "'changed'"
    session.run("def later(): return add(1, 1)")
    assert value(run_adding(session, "later()")) == "2"


def test_none_is_left_for_the_next_cell(session):
    run_adding(session, "kept = add")
    result = session.run("kept(1)")
    assert result["error_name"] == "CallError" and "no such call" in result["error_value"]


def test_a_call_without_an_answer_ends_with_the_cell(session):
    code = "import threading\ndef f():\n    try: ask()\n    except RuntimeError as e: globals().update(found=str(e))\nt = threading.Thread(target=f); t.start()"
    cell = session.execute(code + "\ninput()", calls=["ask"], allow_input=1)
    session.engine.until(lambda: cell.calls and cell.prompts)
    session.reply("")
    assert session.wait(cell)["verdict"] == "ok"
    with pytest.raises(engine.Failure) as failure:
        session.answer(cell.calls[0][0], 1)
    assert failure.value.code == errno.ENOENT
    assert value(session.run("t.join(5); found")) == "'the cell that has called is over'"
    assert value(run_adding(session, "add(20, 22)")) == "42"


def test_an_interrupt_while_it_waits(session):
    for code in ("ask()", "await ask()"):
        cell = session.execute(code, calls=["ask"])
        session.engine.until(lambda: cell.calls)
        assert session.interrupt() == 1
        assert session.wait(cell)["error_name"] in ("KeyboardInterrupt", "CancelledError")
    assert value(run_adding(session, "add(20, 22)")) == "42"


def test_time_limits_hold(session):
    result = session.run("ask()", calls=["ask"], timeout_ms=300)
    assert (result["verdict"], result["interpreter_died"]) == ("timeout", 0)


def test_calls_in_a_copy(session):
    session.run("x = 1")
    checkpoint = session.do("checkpoint")
    assert checkpoint["lost"] in (b"[]", [], "[]")
    assert value(run_adding(session, "add(1, 1)")) == "2"
    session.do("rollback", checkpoint["id"])
    assert value(run_adding(session, "a = add(x, 1)\na, await add(x, 2)")) == "(2, 3)"


def test_what_is_refused(session):
    for calls, says in (("{", "calls"), ("{}", "array"), ('["a b"]', "name"), ('["1a"]', "name"), ('[""]', "name"), ("[1]", "name"), ('["\u00e4"]', "name"),
                        ('[{"name":"a","async":1}]', "neither"), ("[" + ",".join('"a%d"' % n for n in range(65)) + "]", "64")):
        with pytest.raises(engine.Failure, match=says) as failure:
            session.execute("1", calls=calls)
        assert failure.value.code == errno.EINVAL
    for code in ("ask(object())", "ask(x=float('nan'))", "ask('x' * 300000)", "l = []; l.append(l); ask(l)"):
        cell = session.execute(code, calls=["ask"])
        assert session.wait(cell)["error_name"] == "TypeError" and not cell.calls


def test_answers_that_are_refused(session):
    cell = session.execute("ask()", calls=["ask"])
    session.engine.until(lambda: cell.calls)
    number = cell.calls[0][0]
    for wrong, code in (("{", errno.EINVAL), ("NaN", errno.EINVAL), ('"' + "x" * (5 << 20) + '"', errno.EINVAL), ('"\\ud800"', errno.EINVAL)):
        with pytest.raises(engine.Failure) as failure:
            session.answer(number, (wrong,))
        assert failure.value.code == code
    with pytest.raises(engine.Failure, match="no call"):
        session.answer(number + 1, 1)
    session.answer(number, 7)
    with pytest.raises(engine.Failure, match="no call"):
        session.answer(number, 8)
    assert value(session.wait(cell)) == "7"


def test_no_more_than_sixty_four_wait(session):
    cell = session.execute("import asyncio\ntasks = [asyncio.ensure_future(ask(n)) for n in range(70)]\n"
                           "while sum(task.done() for task in tasks) < 6: await asyncio.sleep(0.01)\nprint('refused', flush=True)\n"
                           "r = await asyncio.gather(*tasks, return_exceptions=True)\n"
                           "[str(x) for x in r if isinstance(x, Exception)][:1], sum(isinstance(x, Exception) for x in r)", calls=[{"name": "ask", "async": True}])
    session.engine.until(lambda: b"refused" in cell.text())
    assert len(cell.calls) == 64
    for number, _, arguments in cell.calls:
        session.answer(number, arguments["args"][0])
    assert value(session.wait(cell)) == "(['64 calls wait for an answer already, which is the most that may'], 6)"


# --------------------------------------------------------------------------------------------------
# Forged calls

FORGE = """
import json, os
def forge(frame):
    data = json.dumps(dict(frame, n=1000)).encode()
    os.write(3, len(data).to_bytes(4, 'little') + data)
"""


@pytest.mark.parametrize("frame", ['{"is": "call", "id": 99, "name": "other", "args": "{}"}', '{"is": "call", "id": 2**60, "name": "ask", "args": "no json"}',
                                   '{"is": "call", "id": 3, "name": "x" * 100000, "args": "{}"}', '{"is": "call", "id": 98, "name": "ask", "args": "[" * 1000}'])
def test_forged_calls(session, frame):
    cell = session.execute(FORGE + "for _ in range(100): forge(%s)\nask(5)" % frame, calls=["ask"])
    session.engine.until(lambda: cell.calls or cell.result)
    assert [(name, arguments) for _, name, arguments in cell.calls] == [("ask", {"args": [5], "kwargs": {}})]
    session.answer(cell.calls[0][0], 6)
    assert value(session.wait(cell)) == "6"


@pytest.mark.parametrize("frame", ['{"is": "call"}', '{"is": "call", "id": -1, "name": "ask", "args": "{}"}', '{"is": "call", "id": 1, "name": 1, "args": "{}"}',
                                   '{"is": "call", "id": 1, "name": "ask", "args": {}}'])
def test_what_is_no_call_ends_the_interpreter(session, frame):
    cell = session.execute(FORGE + "forge(%s)\nask(5)" % frame, calls=["ask"])
    result = session.wait(cell)
    assert result["interpreter_died"] and "descriptor 3" in result["message"] and not cell.calls


def test_calls_of_a_cell_that_may_not(session):
    cell = session.execute(FORGE + "forge({'is': 'call', 'id': 1, 'name': 'ask', 'args': '{}'})\n1")
    assert session.wait(cell)["verdict"] == "ok" and not cell.calls


def test_a_flood_of_calls(session):
    """It reads no answers: what waits for it is bounded, and so is what it says."""
    cell = session.execute(FORGE + "while True: forge({'is': 'call', 'id': 1, 'name': 'none', 'args': '{}'})", calls=["ask"])
    result = session.wait(cell)
    assert result["verdict"] in ("output_limit", "error", "killed") and not cell.calls
    assert value(session.run("1 + 1")) == "2"


def test_a_child_process_cannot_call(session):
    code = ("import os\nr, w = os.pipe()\npid = os.fork()\nif pid == 0:\n    try: ask()\n    except RuntimeError as e: os.write(w, str(e).encode())\n    os._exit(0)\n"
            "os.waitpid(pid, 0)\nos.read(r, 100)")
    cell = session.execute(code, calls=["ask"])
    assert "child process" in value(session.wait(cell)) and not cell.calls
