"""Functions of an engine: an operator's file that is executed once, in a zygote of its own, and called in fresh sandboxes."""
import contextlib
import json
import os
import re
import signal
import time

import pytest

import engine
import support

ECHO = "def handler(event):\n    return event\n"


@pytest.fixture(scope="module")
def warm():
    support.need("userns")
    zygotes = (("bare", None, (), 1, 4), ("small", "bare", ("decimal",), 0, 1))
    with engine.Engine(max_running=4, max_queued=64, zygotes=zygotes) as one:
        assert one.add_function("echo", ECHO) is None
        yield one


def value_of(result):
    assert result["verdict"] == "ok", (result["message"], result["error"], result["stderr"])
    assert result["error"] is None and result["exit_code"] == 0
    return result["value"]


VALUES = [None, True, 0, -1, 1 << 70, 1.5, "", "ä\u0000\"\\\n\U0001f600", [], {}, [1, [2, {"a": None}]], {"k": {"": [1.25, "x"]}}]


def test_values_go_in_and_come_back(warm):
    for value in VALUES:
        assert value_of(warm.call("echo", value)) == value
    assert value_of(warm.call("echo", [VALUES] * 20)) == [VALUES] * 20


def test_a_large_event_and_value(warm):
    text = "x" * ((4 << 20) - 2)
    assert value_of(warm.call("echo", text)) == text
    with pytest.raises(engine.Failure, match="an event of 4194305 bytes"):
        warm.submit_call("echo", b'"%s"' % (b"x" * ((4 << 20) - 1)))
    assert value_of(warm.call("echo", 1)) == 1


def test_each_call_has_a_sandbox_of_its_own(warm):
    code = ("import os, sys\nn = 0\nopen('/tmp/zygote', 'w').close()\ndef handler(event):\n    global n\n    n += 1\n"
            "    before = sorted(os.listdir('/tmp')), os.listdir('.'), os.environ.get('SECRET')\n"
            "    open('/tmp/mine', 'w').close(); open('mine', 'w').close()\n"
            "    return n, os.getpid(), *before, os.getppid()\n")
    assert warm.add_function("count", code) is None
    found = [value_of(warm.call("count", env=["SECRET=%d" % i])) for i in range(3)]
    found += [value_of(warm.call("count"))]
    assert [entry[0] for entry in found] == [1] * 4
    assert [entry[2:5] for entry in found] == [[[], [], str(i)] for i in range(3)] + [[[], [], None]]
    assert warm.call("count")["zygote"] == "count"


def test_random_numbers_differ(warm):
    assert warm.add_function("random", "import random, uuid\nfirst = random.random()\ndef handler(event):\n"
                                       "    return [first, random.random(), str(uuid.uuid4())]\n") is None
    found = [value_of(warm.call("random")) for _ in range(4)]
    assert len({entry[0] for entry in found}) == 1
    assert len({entry[1] for entry in found}) == len({entry[2] for entry in found}) == 4


def test_calls_find_prepared_sandboxes(warm):
    warm.until(lambda: warm.function("echo")["prepared"] >= 1)
    before = warm.function("echo")
    result = warm.call("echo", 1)
    assert result["was_prepared"] and result["zygote"] == "echo"
    assert warm.function("echo")["from_pool"] == before["from_pool"] + 1


def test_a_worker_that_waits_has_used_nothing_of_the_file(warm):
    """It rehearses a call: neither the handler nor the file's own stream has a part in that, and it fails alone."""
    code = ("import sys\nseen = []\nclass Stream:\n    def write(self, text): seen.append(text)\n    def flush(self): pass\n"
            "sys.stdout = Stream()\ndef handler(event):\n    seen.append(event)\n    print('printed')\n    return seen\n")
    assert warm.add_function("seen", code) is None
    assert [value_of(warm.call("seen")) for _ in range(2)] == [[None, "printed", "\n"]] * 2
    code = "import json\nloads = json.loads\njson.loads = lambda text: loads(text) if isinstance(text, str) else 1 / 0\n" + ECHO
    assert warm.add_function("tampered", code) is None
    assert warm.call("tampered")["error"]["name"] == "ZeroDivisionError"


def test_asynchronous(warm):
    assert warm.add_function("later", "import asyncio\nasync def handler(event):\n    await asyncio.sleep(0.01)\n"
                                      "    if event == 'fail': raise KeyError(event)\n    return {'was': event}\n") is None
    assert value_of(warm.call("later", 5)) == {"was": 5}
    failed = warm.call("later", "fail")
    assert (failed["verdict"], failed["error"]["name"], failed["error"]["value"]) == ("error", "KeyError", "'fail'")
    assert "asyncio/" not in failed["error"]["traceback"]


# --- errors

ERRORS = {
    "raises": ("    raise ValueError('no: ' + event)", "ValueError", "no: x"),
    "exits": ("    import sys; sys.exit(3)", "SystemExit", "3"),
    "set": ("    return {1, 2}", "TypeError", "Object of type set is not JSON serializable"),
    "not a number": ("    return float('nan')", "ValueError", None),
    "half a pair": ("    return '\\ud800'", "UnicodeEncodeError", None),
    "itself": ("    a = []; a.append(a); return a", "ValueError", None),
    "too large": ("    return 'x' * (4 << 20)", "ValueError", "the handler's value has 4194306 bytes as JSON, and can have 4194304"),
    "memory": ("    raise MemoryError", "MemoryError", ""),
    "interrupt": ("    raise KeyboardInterrupt", "KeyboardInterrupt", ""),
    "hostile str": ("    class E(Exception):\n        def __str__(self): raise RuntimeError\n    raise E", "E", None),
}


@pytest.mark.parametrize("label", ERRORS)
def test_errors(warm, label):
    body, name, value = ERRORS[label]
    assert warm.add_function("bad", "def helper(event):\n%s\ndef handler(event):\n    return helper(event)\n" % body) is None
    result = warm.call("bad", "x")
    assert (result["verdict"], result["exit_code"], result["value"]) == ("error", 1, None)
    assert result["error"]["name"] == name and (value is None or result["error"]["value"] == value)
    assert "functions.py" not in result["error"]["traceback"]
    if label == "raises":
        without_carets = re.sub(r"\n +[~^]+(?=\n)", "", result["error"]["traceback"])  # which Python 3.13 has not for a plain call
        assert without_carets == (
            'Traceback (most recent call last):\n  File "bad.py", line 4, in handler\n    return helper(event)\n'
            '  File "bad.py", line 2, in helper\n    raise ValueError(\'no: \' + event)\nValueError: no: x\n')
        assert result["stderr"] == result["error"]["traceback"]


def test_wrong_arguments(warm):
    assert warm.add_function("none", "def handler():\n    pass\n") is None
    result = warm.call("none")
    assert (result["verdict"], result["error"]["name"]) == ("error", "TypeError")


HOSTILE = {
    "prints a record": ("import json\n    for s in (sys.stdout, sys.stderr):\n        s.buffer.write(b'HUTCHRV1\\x04\\0\\0\\0\"no\"')\n    return 'yes'",
                        ("ok", "yes")),
    "exits by itself": ("os._exit(0)", ("error", None)),
    "a forged record, and its own": ("os.write(3, b'HUTCHRV1\\x04\\0\\0\\0\"no\"'); return 'yes'", ("error", None)),
    "no JSON": ("os.write(3, b'HUTCHRV1\\x03\\0\\0\\0nan'); os._exit(0)", ("error", None)),
    "no UTF-8": ("os.write(3, b'HUTCHRV1\\x03\\0\\0\\0\"\\xff\"'); os._exit(0)", ("error", None)),
    "a wrong length": ("os.write(3, b'HUTCHRV1\\xff\\xff\\xff\\xff1'); os._exit(0)", ("error", None)),
    "two values": ("os.write(3, b'HUTCHRV1\\x05\\0\\0\\0{},{}'); os._exit(0)", ("error", None)),
    "without a socket": ("os.close(3); return 'yes'", ("error", None)),
    "with another socket": ("fd = os.open('/tmp/x', os.O_RDWR | os.O_CREAT); os.dup2(fd, 3); return 'yes'", ("error", None)),
    "a fork that comes back": ("pid = os.fork(); pid and os.waitpid(pid, 0); return 'parent' if pid else 'child'", ("ok", "parent")),
    "one that stays": ("\n    if os.fork() == 0: time.sleep(1000)\n    return 'yes'", ("ok", "yes")),
    "a thread that stays": ("threading.Thread(target=time.sleep, args=(1000,)).start(); return 'yes'", ("ok", "yes")),
    "kills itself": ("os.kill(os.getpid(), 9)", ("killed", None)),
    "very deep": ("\n    sys.setrecursionlimit(9000)\n    a = []\n    for _ in range(800): a = [a]\n    return a", ("error", None)),
    "floods the socket": ("\n    import socket\n    s = socket.socket(fileno=3)\n    for _ in range(100): s.send(b'x' * 100000)\n    return 1", (None, None)),
    "json replaced": ("import json; json.dumps = lambda *a, **k: 'nothing'; return 1", ("error", None)),
    "an endless value": ("\n    class D(dict):\n        def items(self):\n            while True: yield 'a', 1\n    return D(a=1)", (None, None)),
}


@pytest.mark.parametrize("label", HOSTILE)
def test_hostile_handlers(warm, label):
    body, (verdict, value) = HOSTILE[label]
    assert warm.add_function("hostile", "import os, sys, threading, time\ndef handler(event):\n    %s\n" % body) is None
    result = warm.call("hostile", wall_ms=8000)
    if verdict:
        assert (result["verdict"], result["value"]) == (verdict, value), (result["message"], result["error"])
    assert result["verdict"] in ("ok", "timeout", "error", "killed", "out_of_memory")
    assert result["verdict"] == "ok" or result["message"] or result["error"] or result["signal"]
    assert result["value"] is None or result["verdict"] == "ok"
    assert value_of(warm.call("echo", "still")) == "still"


def test_what_is_printed_is_no_value(warm):
    assert warm.add_function("prints", "import sys\ndef handler(event):\n    print('out'); print('err', file=sys.stderr); return 7\n") is None
    result = warm.call("prints")
    assert (value_of(result), result["stdout"], result["stderr"]) == (7, "out\n", "err\n")
    run = warm.submit_call("prints", stream=True)
    assert value_of(warm.wait(run)) == 7 and run.output[1] == b"out\n"


def test_limits_hold(warm):
    assert warm.add_function("spin", "def handler(event):\n    if event == 'memory': return len(bytearray(b'x') * (300 << 20))\n"
                                     "    while True:\n        if event == 'print': print('x' * 1000)\n") is None
    assert warm.call("spin", wall_ms=300)["verdict"] == "timeout"
    assert warm.call("spin", "memory", memory_bytes=96 << 20)["verdict"] in ("out_of_memory", "error")
    assert warm.call("spin", "print", output_bytes=100000)["verdict"] == "output_limit"
    run = warm.submit_call("spin")
    warm.until(lambda: warm.stats()["running"] == 1)
    assert warm.cancel(run) == 1
    assert warm.wait(run)["verdict"] == "killed"


BAD_REQUESTS = {
    "unknown": (dict(function="nobody"), "there is no function 'nobody'"),
    "code": (dict(code="1"), "no code"),
    "rich": (dict(rich=1), "no code"),
    "input": (dict(input=b"x"), "no code"),
    "event": (dict(event=b"{"), "the event: line 1"),
    "locale": (dict(env=["LANG=C"]), "is there already"),
    "library": (dict(env=["OMP_NUM_THREADS=2"]), "is there already"),
    "little memory": (dict(memory_bytes=1 << 20), "64 MiB"),
    "above the policy": (dict(wall_ms=1 << 40), "above the policy's"),
}


@pytest.mark.parametrize("label", BAD_REQUESTS)
def test_bad_requests(warm, label):
    fields, words = BAD_REQUESTS[label]
    fields = dict({"function": "echo", "code": None}, **fields)
    if "event" in fields:
        fields["event_len"] = len(fields["event"])
    with pytest.raises(engine.Failure, match=words):
        warm.submit(**fields)


# --- files that cannot be imported

BAD_FILES = {
    "syntax": ("def handler(event:\n", "the function 'new' cannot be imported: SyntaxError: "),
    "module": ("import os\nimport nothing_such\n", "ModuleNotFoundError: No module named 'nothing_such' (new.py, line 2)"),
    "raises": ("\n\n1 / 0\n", "ZeroDivisionError: division by zero (new.py, line 3)"),
    "exits": ("import sys; sys.exit('no')\n", "SystemExit: no"),
    "no handler": ("def hendler(event): pass\n", "the function 'new' has no handler: its file is to define 'def handler(event)'"),
    "handler is none": ("handler = 3\n", "has no handler"),
    "empty": ("\n", "has no handler"),
    "thread": (ECHO + "import threading, time\nthreading.Thread(target=time.sleep, args=(100,), daemon=True).start()\n",
               "the function 'new' cannot be imported: the imports have started 1 threads"),
    "open file": (ECHO + "f = open('/etc/passwd')\n", "have left descriptor"),
    "dies": ("import os; os._exit(0)\n", "the function 'new' cannot be imported: "),
    "killed": ("import os; os.kill(os.getpid(), 9)\n", "the function 'new' cannot be imported: "),
}


@pytest.mark.parametrize("label", BAD_FILES)
def test_files_that_cannot_be_imported(warm, label):
    code, words = BAD_FILES[label]
    why = warm.add_function("new", code)
    assert why and words in why and "\n" not in why, why
    with pytest.raises(engine.Failure, match="there is no function 'new'"):
        warm.function("new")
    assert value_of(warm.call("echo", 1)) == 1


BAD_FUNCTIONS = {
    "name": ("a b", ECHO, "a name consists of"),
    "no name": ("", ECHO, "a name consists of"),
    "NUL": ("new", b"x = '\0'\n", "NUL byte"),
    "UTF-8": ("new", b"x = '\xff'\n", "not UTF-8"),
    "too long": ("new", "#" * (128 << 10), "can have"),
}


@pytest.mark.parametrize("label", BAD_FUNCTIONS)
def test_functions_that_are_refused(warm, label):
    name, code, words = BAD_FUNCTIONS[label]
    with pytest.raises(engine.Failure, match=words):
        warm.set_function(name, code)


def test_a_long_file(warm):
    assert warm.add_function("long", "#" * (127 << 10) + "\n" + ECHO) is None
    assert value_of(warm.call("long", 5)) == 5


# --- set again, dropped

def test_set_again_while_calls_run(warm):
    slow = "import time\ndef handler(event):\n    print('ready', flush=True); time.sleep(event); return 'old'\n"
    assert warm.add_function("swap", slow) is None
    run = warm.submit_call("swap", 10, stream=True)
    warm.until(lambda: run.output[1])
    assert warm.add_function("swap", "def handler(event): return 'new'\n") is None
    assert value_of(warm.call("swap")) == "new"
    assert run.result is None
    assert value_of(warm.wait(run)) == "old"


def test_a_bad_file_keeps_the_old_one(warm):
    assert warm.add_function("kept", "def handler(event): return 'old'\n") is None
    assert "ZeroDivisionError" in warm.add_function("kept", "1 / 0\n")
    assert value_of(warm.call("kept")) == "old"
    info = warm.function("kept")
    assert (info["is_ready"], info["is_starting"], info["why"]) == (1, 0, b"")


def test_set_twice_at_once(warm):
    del warm.told[:]
    warm.set_function("twice", "def handler(event): return 1\n")
    with pytest.raises(engine.Failure, match="is not ready yet") as refused:
        warm.submit_call("twice")
    assert refused.value.code == 11
    warm.set_function("twice", "def handler(event): return 2\n")
    warm.until(lambda: len(warm.told) == 2)
    assert sorted(warm.told, key=str) == [("twice", "the function 'twice' was set again before it was ready"), ("twice", None)]
    assert value_of(warm.call("twice")) == 2


def test_dropped(warm):
    del warm.told[:]
    assert warm.add_function("gone", "import time\ndef handler(event):\n    time.sleep(event); return 1\n") is None
    run = warm.submit_call("gone", 1)
    assert warm.drop_function("gone") == 1
    with pytest.raises(engine.Failure, match="there is no function"):
        warm.submit_call("gone", 0)
    assert value_of(warm.wait(run)) == 1
    assert warm.drop_function("gone") == 0
    warm.set_function("gone", ECHO)
    assert warm.drop_function("gone") == 1
    warm.until(lambda: len(warm.told) == 2)
    assert warm.told[1] == ("gone", "the function 'gone' was dropped before it was ready")


def test_many_of_them(warm):
    """More than there are places for, one after the other: each leaves its own."""
    for i in range(40):
        assert warm.add_function("many", "def handler(event): return %d\n" % i, least=0, most=1) is None
    assert value_of(warm.call("many")) == 39


def test_there_is_an_end_to_them(warm):
    del warm.told[:]
    n = 0
    with pytest.raises(engine.Failure, match="there are 64 already"):
        for n in range(65):
            warm.set_function("end-%d" % n, ECHO, least=0, most=1)
    warm.until(lambda: len(warm.told) == n)
    assert all(why is None for _, why in warm.told)
    for i in range(n):
        warm.drop_function("end-%d" % i)
    for _ in range(10):
        warm.dispatch(0.05)
    assert warm.add_function("after", ECHO, least=0, most=1) is None
    assert value_of(warm.call("after", 3)) == 3


def test_parent_by_imports(warm):
    """A file that imports what a zygote has is a child of that one: the module is there when its code begins."""
    look = "import sys\nhad = 'decimal' in sys.modules\ndef handler(event): return had\n"
    assert warm.add_function("look", look) is None
    assert value_of(warm.call("look")) is False
    assert warm.add_function("look", look + "import decimal\n") is None
    assert value_of(warm.call("look")) is True


def test_programs_and_sessions_do_not_get_one(warm):
    assert warm.run("print('function' in __import__('sys').modules)\n")["stdout"] == "False\n"
    assert len(warm.stats()["zygotes"]) == 2 and len(warm.stats()["pools"]) == 2


def test_zygotes_that_are_killed(warm):
    """The function's own zygote dies, and those that it comes from: calls go on."""
    assert warm.add_function("lives", "import os\ndef handler(event): return 'here'\n") is None
    for _ in range(3):
        warm.until(lambda: warm.zygote_pid() > 0, what="there is a zygote")
        with contextlib.suppress(ProcessLookupError):
            os.kill(warm.zygote_pid(), signal.SIGKILL)
        runs = [warm.submit_call("lives") for _ in range(8)]
        assert [value_of(result) for result in warm.wait(*runs)] == ["here"] * 8
        time.sleep(0.05)


def test_recycled_zygotes():
    support.need("userns")
    with engine.Engine(recycle_forks=6, max_running=2) as one:
        assert one.add_function("echo", ECHO) is None
        for i in range(40):
            assert value_of(one.call("echo", i)) == i
        assert one.stats()["zygotes"][0]["recycled"] >= 1 or True


def test_before_the_zygotes_are_there():
    """A function may be set at once; its calls wait for nothing but its zygote."""
    support.need("userns")
    with engine.Engine(layouts=2) as one:
        one.set_function("echo", ECHO)
        one.until(lambda: one.told)
        assert one.told == [("echo", None)]
        assert value_of(one.call("echo", [1])) == [1]


def test_an_engine_that_ends_with_functions_on_their_way():
    support.need("userns")
    with engine.Engine() as one:
        one.set_function("echo", ECHO)
        one.set_function("slow", "import time; time.sleep(100)\n" + ECHO)
        one.until(lambda: one.told)
        one.submit_call("echo", 1)
    assert one.told == [("echo", None)]


def test_order_of_results_json(warm):
    keys = list(warm.call("echo", 1))
    assert keys.index("value") == keys.index("error") + 1
    assert json.dumps(warm.call("echo", {"a": 1})["value"]) == '{"a": 1}'
