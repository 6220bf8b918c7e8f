"""hutch.Engine: libhutch in an asyncio loop. What comes back, what a cancelled task does, many at once, and what must not happen
to the process that uses it."""
import asyncio
import dataclasses
import gc
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import weakref

import pytest

import package
import support
import hutch

SECONDS = 150


def run(coroutine):
    """In a loop of its own, with an end."""
    return asyncio.run(asyncio.wait_for(coroutine, SECONDS))


@pytest.fixture(scope="module")
def shared():
    """One engine for the tests that leave it as it was: each has a loop of its own."""
    engine = hutch.Engine(**package.options())
    yield engine
    engine.close()


# --------------------------------------------------------------------------------------------------
# Results

def test_hello(shared):
    result = run(shared.run("import sys\nprint('one')\nprint('two', file=sys.stderr)"))
    assert (result.verdict, result.exit_code, result.stdout, result.stderr) == ("ok", 0, "one\n", "two\n")
    assert result.ok and result.check() is result and result.stdout_bytes == b"one\n"
    support.check_result(result.document)
    assert json.loads(result.to_json()) == result.document
    assert result.signal is None and result.message is None and result.error is None
    assert sorted(result.limits) == sorted(support.LIMITS) and sorted(result.layers) == sorted(support.LAYERS)
    assert result.layers["seccomp"].active and result.limits["wall"].asked == 30000
    assert result.timings_ms.total >= result.timings_ms.run > 0 and result.zygote == "bare" and result.restarts == 0


def test_exception_is_told(shared):
    result = run(shared.run("def f():\n    return 1 / 0\nf()"))
    assert (result.verdict, result.exit_code, result.error.name) == ("error", 1, "ZeroDivisionError")
    assert result.error.value == "division by zero" and "line 2, in f" in result.error.traceback
    with pytest.raises(hutch.RunError, match="ZeroDivisionError: division by zero") as caught:
        result.check()
    assert caught.value.result is result


def test_arguments_environment_and_input(shared):
    code = "import os, sys\nprint(sys.argv[1:], os.environ['WORD'], sys.stdin.read())"
    result = run(shared.run(code, args=["a b", "é"], env={"WORD": "x=1"}, stdin="böse\n"))
    assert result.stdout == "['a b', 'é'] x=1 böse\n\n"


def test_input_from_a_descriptor(shared):
    async def main():
        ours, theirs = os.pipe()
        os.write(theirs, b"first\n")
        started = await shared.start("print(input())\nprint(input())", stdin=ours, stream=True)
        os.close(ours)
        seen = b""
        async for stream, data in started:
            assert stream == "stdout"
            seen += data
            if seen == b"first\n":
                os.write(theirs, b"second\n")
        os.close(theirs)
        return seen, await started
    seen, result = run(main())
    assert seen == b"first\nsecond\n" and result.verdict == "ok" and result.stdout == ""


def test_bytes_that_are_no_text(shared):
    result = run(shared.run("import os\nos.write(1, bytes(range(256)))"))
    assert result.stdout_bytes == bytes(range(256))
    assert result.stdout == bytes(range(256)).decode("utf-8", "replace")


def test_half_a_surrogate_pair_is_the_interpreters_business(shared):
    """Models write such code, and whoever runs a thousand programs wants a result and not an exception."""
    result = run(shared.run("print('\ud800')"))
    assert result.verdict == "error" and "SyntaxError" in result.stderr


def test_languages_and_files(shared, data):
    (data / "in.txt").write_text("3\n4\n")
    result = run(shared.run("wc -l <in.txt >out.txt", language="sh", data_dir=data))
    assert result.verdict == "ok" and (data / "out.txt").read_text().strip() == "2"
    assert [entry.name for entry in result.files.added] == [b"out.txt"] and result.files.directory == str(data)


def test_limits_are_seconds_and_units_of_the_header(shared):
    assert run(shared.run("while True: pass", timeout=0.3)).verdict == "timeout"
    result = run(shared.run("print('x' * 100)", output_bytes=50))
    assert result.verdict == "output_limit" and result.stdout == "x" * 50 and result.stdout_truncated
    assert shared.limits().wall_ms == 30000


def test_stream_comes_before_the_end(shared):
    async def main():
        heard = []
        started = await shared.start("import time\nprint('ready', flush=True)\ntime.sleep(1000)",
                                     on_output=lambda stream, data: heard.append((stream, data)))
        while not any(data.endswith(b"\n") for _, data in heard):
            await asyncio.sleep(0.01)
        assert started.signal(signal.SIGKILL) and not started.done()
        result = await started
        return heard, result
    heard, result = run(main())
    assert b"".join(data for _, data in heard) == b"ready\n" and {stream for stream, _ in heard} == {"stdout"}
    assert result.verdict == "killed"


# --------------------------------------------------------------------------------------------------
# Many, and their ends

def test_many_at_once(shared):
    """None is lost, and none is another's."""
    async def main():
        return await asyncio.gather(*(shared.run("print(%d)" % i) for i in range(40)))
    assert [result.stdout for result in run(main())] == ["%d\n" % i for i in range(40)]


def test_run_many_has_their_order_and_options(shared):
    codes = ["print(1)", {"code": "import sys; print(sys.argv[1])", "args": ["2"]}, "raise SystemExit(3)"]
    results = run(shared.run_many(codes, timeout=20))
    assert [(result.stdout, result.exit_code) for result in results] == [("1\n", 0), ("2\n", 0), ("", 3)]


def test_full_queue():
    """It waits for its place, or says so at once."""
    async def main():
        async with hutch.Engine(**package.options(max_running=1, max_queued=2)) as engine:
            results = await asyncio.gather(*(engine.run("print(%d)" % i) for i in range(12)))
            assert [result.stdout for result in results] == ["%d\n" % i for i in range(12)]
        async with hutch.Engine(**package.options(max_running=1, max_queued=1), wait_when_full=False) as engine:
            tasks = [asyncio.ensure_future(engine.run("pass")) for _ in range(12)]
            found = await asyncio.gather(*tasks, return_exceptions=True)
            refused = [one for one in found if isinstance(one, hutch.BusyError)]
            assert refused and len(refused) < 12 and refused[0].code != 0 and "wait already" in str(refused[0])
    run(main())


def test_cancelled_task_cancels_its_run(shared):
    async def main():
        before = shared.stats().finished
        task = asyncio.ensure_future(shared.run("while True: pass"))
        while shared.stats().running == 0:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while shared.stats().running or shared.stats().finished == before:
            await asyncio.sleep(0.01)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(shared.run("while True: pass"), 0.3)
        while shared.stats().running:
            await asyncio.sleep(0.01)
        assert not shared._core.waiting
    run(main())


def test_cancelled_while_it_waits_for_room():
    """The place that a cancelled one does not take is the next one's."""
    async def main():
        async with hutch.Engine(**package.options(max_running=1, max_queued=1)) as engine:
            tasks = [asyncio.ensure_future(engine.run("print(%d)" % i)) for i in range(8)]
            await asyncio.sleep(0)
            for task in tasks[3:6]:
                task.cancel()
            found = await asyncio.gather(*tasks, return_exceptions=True)
            assert [one.stdout for i, one in enumerate(found) if i not in (3, 4, 5)] == ["0\n", "1\n", "2\n", "6\n", "7\n"]
            assert all(isinstance(one, asyncio.CancelledError) for one in found[3:6])
    run(main())


@pytest.fixture
def runs():
    """The runs of engines that are there already; at the end there are no others."""
    before = support.live_runs()
    yield before
    assert support.live_runs() == before and not support.dead_runs()


@pytest.mark.usefixtures("runs")
def test_close_ends_what_runs():
    async def main():
        engine = hutch.Engine(**package.options())
        task = asyncio.ensure_future(engine.run("while True: pass"))
        session = engine.session()
        await asyncio.sleep(0.1)
        engine.close()
        engine.close()
        with pytest.raises(hutch.ClosedError):
            await task
        with pytest.raises(hutch.ClosedError):
            await session.ended()
        with pytest.raises(hutch.ClosedError, match="closed"):
            await engine.run("1")
    run(main())


def test_callback_may_close_the_engine():
    """Callbacks of the package are called when no frame of the library is below them."""
    async def main():
        engine = hutch.Engine(**package.options())
        with pytest.raises(hutch.ClosedError):
            await engine.run("print(1, flush=True)\nimport time; time.sleep(100)", on_output=lambda *_: engine.close())
    run(main())


def test_error_of_a_callback_is_its_callers(shared):
    async def main():
        def fail(stream, data):
            raise KeyError("mine")
        with pytest.raises(KeyError, match="mine"):
            await shared.run("print(1, flush=True)\nimport time; time.sleep(100)", on_output=fail)
        assert (await shared.run("print(2)")).stdout == "2\n"
    run(main())


def test_runs_that_nobody_holds(shared):
    """Their callbacks live as long as the library may call them."""
    async def main():
        for _ in range(20):
            await shared.start("print('x' * 1000)", on_output=lambda *_: None)
        for _ in range(5):
            gc.collect()
            assert (await shared.run("print(1)")).ok
        while shared.stats().running or shared.stats().queued:
            await asyncio.sleep(0.01)
    run(main())


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_exception_within_a_callback_does_not_reach_c(shared, monkeypatch, capfd, kind):
    """Such as Ctrl-C at that moment, or no memory: the run fails with it, and the engine goes on."""
    def fail(*_, **__):
        raise kind("within")
    async def main():
        task = await shared.start("print(1)")
        with monkeypatch.context() as patch:
            patch.setattr(hutch.Result, "from_json", fail)
            await task
    with pytest.raises(kind if kind is KeyboardInterrupt else ValueError, match="within"):
        run(main())
    assert run(shared.run("print(2)")).stdout == "2\n"
    assert "ctypes" not in capfd.readouterr().err


# --------------------------------------------------------------------------------------------------
# Functions

FUNCTION = """import os, asyncio
async def handler(event):
    print("printed")
    if event == "fail":
        raise ValueError("no")
    if event == "env":
        return os.environ.get("SECRET")
    if event == "sleep":
        await asyncio.sleep(100)
    return {"event": event}
"""


def test_functions(shared):
    async def main():
        await shared.set_function("f-1", FUNCTION, min=1, max=2)
        call = shared.function("f-1")
        for event in (None, 5, "ä\u2028", [1, {"a": None}], "x" * 100000):
            assert await call(event) == {"event": event}
        assert await call("env", env={"SECRET": "s"}) == "s" and await call("env") is None
        result = await call.call(3, timeout=20)
        assert (result.verdict, result.value, result.stdout) == ("ok", {"event": 3}, "printed\n")
        with pytest.raises(hutch.RunError, match="ValueError: no") as failed:
            await call("fail")
        assert failed.value.result.error.name == "ValueError"
        assert (await call.call("sleep", timeout=0.3)).verdict == "timeout"
        assert await asyncio.gather(*(call(i) for i in range(8))) == [{"event": i} for i in range(8)]
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(call("sleep"), 0.3)
        found, = shared.functions()
        assert (found["name"], found["state"], found["error"]) == ("f-1", "ready", None) and found["from_pool"] + found["on_demand"] > 10

        with pytest.raises(hutch.EngineError, match="NameError"):
            await shared.set_function("f-1", "nothing")  # which changes nothing
        assert await call(1) == {"event": 1}
        assert shared.functions()[0]["state"] == "ready" and "NameError" in shared.functions()[0]["error"]
        await shared.set_function("f-1", "def handler(event):\n    return event * 2")
        assert await call(21) == 42 and shared.functions()[0]["error"] is None
        with pytest.raises(hutch.EngineError, match="handler"):
            await shared.set_function("g", "x = 1")
        assert [(entry["name"], entry["state"]) for entry in shared.functions()] == [("f-1", "ready"), ("g", "failed")]
        assert shared.drop_function("f-1") and not shared.drop_function("f-1")
        with pytest.raises(hutch.EngineError, match="f-1"):
            await call(1)
        for name in ("", "a b", "../x"):
            with pytest.raises(hutch.EngineError):
                await shared.set_function(name, FUNCTION)
        with pytest.raises(TypeError, match="nothing"):
            await call(1, nothing=1)
        with pytest.raises(ValueError, match="NUL"):
            await shared.set_function("a\0b", FUNCTION)
        with pytest.raises(ValueError):
            await call(float("nan"))
    run(main())


def test_functions_of_a_blocking_engine():
    with hutch.BlockingEngine(**package.options()) as engine:
        engine.set_function("double", "def handler(event):\n    return event * 2")
        double = engine.function("double")
        assert double(21) == 42 and double.call("ab").value == "abab" and double.name == "double"
        assert [entry["state"] for entry in engine.functions()] == ["ready"] and engine.drop_function("double")


# --------------------------------------------------------------------------------------------------
# What is refused

@pytest.mark.parametrize("options,kind,says", [
    ({"image": "nosuch"}, hutch.EngineError, "nosuch"),
    ({"launcher": "/nowhere/launcher"}, hutch.NotFoundError, "/nowhere/launcher"),
    ({"policy": "a\0b"}, ValueError, "NUL"),
    ({"max_runing": 3}, TypeError, "max_runing"),
    ({"zygotes": [hutch.Zygote("a/b")]}, hutch.EngineError, "a/b"),
])
def test_options_that_are_refused(options, kind, says):
    with pytest.raises(kind, match=says):
        hutch.Engine(**package.options(**options))


@pytest.mark.parametrize("options,kind,says", [
    ({"timeout": 3600}, hutch.EngineError, "wall"),
    ({"timeout": 0}, ValueError, "more than 0"),
    ({"memory": 1}, TypeError, "memory_bytes"),
    ({"args": "one text"}, TypeError, "not a list"),
    ({"env": {"A=B": "1"}}, ValueError, "A=B"),
    ({"name": "a\0b"}, ValueError, "NUL"),
    ({"data_dir": "/nowhere"}, hutch.NotFoundError, "/nowhere"),
    ({"language": "cobol"}, hutch.EngineError, "cobol"),
])
def test_requests_that_are_refused(shared, options, kind, says):
    before = dict(shared._core.waiting)
    with pytest.raises(kind, match=says):
        run(shared.run("print(1)", **options))
    assert set(shared._core.waiting) <= set(before)


def test_error_has_code_and_sentence(shared):
    with pytest.raises(hutch.HutchError) as caught:
        run(shared.run("1", data_dir="/nowhere"))
    assert caught.value.code == 2 and caught.value.sentence == str(caught.value) and "code=ENOENT" in repr(caught.value)


def test_results_and_errors_can_be_sent_to_another_process(shared):
    result = run(shared.run("1 / 0"))
    copy = pickle.loads(pickle.dumps(result))
    assert copy == result and copy.files == result.files
    with pytest.raises(hutch.RunError) as caught:
        result.check()
    assert pickle.loads(pickle.dumps(caught.value)).result == result
    with pytest.raises(hutch.NotFoundError) as caught:
        run(shared.run("1", data_dir="/nowhere"))
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (type(copy), copy.code, copy.sentence) == (hutch.NotFoundError, 2, caught.value.sentence)


def test_results_are_read_as_they_are_asked_for(shared):
    """Whichever member is the first, and by whichever way it is asked."""
    def fresh():
        return pickle.loads(untouched)
    result = run(shared.run("import os\nprint('\"files\":{', ',\"cell\":')\nos.write(1, b'\\xff,')"))
    untouched = pickle.dumps(result)
    whole = hutch.Result.from_json(fresh().document, stdout_bytes=result.stdout_bytes, stderr_bytes=b"", zygote=result.zygote,
                                   was_prepared=result.was_prepared, restarts=0, hutch_failed=False)
    assert result.stdout == '"files":{ ,"cell":\n\ufffd,' and fresh() == whole and hash(fresh()) == hash(whole)
    for name in ("files", "limits", "layers", "timings_ms", "usage", "document"):
        assert getattr(fresh(), name) == getattr(whole, name)
    assert fresh().timings_ms.total > 0 and fresh().usage.cpu_ms is not None and fresh().limits["output"].asked
    assert dataclasses.asdict(fresh()) == dataclasses.asdict(whole) and json.loads(fresh().to_json()) == whole.document
    assert dataclasses.replace(fresh(), stdout="").usage == whole.usage and not hasattr(fresh(), "nothing")
    assert hutch.Result("ok", 0, None, None, "", "").timings_ms.total == 0


def test_nul_in_code_does_not_cut_it(shared):
    """hutch.h takes no NUL in a program; what follows one must not be lost without a word."""
    with pytest.raises(hutch.EngineError, match="NUL|byte"):
        run(shared.run("print(1)\0print(2)"))


# --------------------------------------------------------------------------------------------------
# The process that uses it

def test_another_thread_is_refused(shared):
    found = []
    def use():
        try:
            asyncio.run(shared.run("1"))
        except hutch.EngineError as error:
            found.append(str(error))
    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert len(found) == 1 and "thread" in found[0]


def test_second_loop_is_refused_while_the_first_has_runs(shared):
    async def other():
        return await shared.run("print('other')")
    async def main():
        task = asyncio.ensure_future(shared.run("import time; time.sleep(0.5)"))
        await asyncio.sleep(0.1)
        assert shared._loop is asyncio.get_running_loop()
        await task
    run(main())
    assert run(other()).stdout == "other\n"


def test_engine_that_is_dropped_is_freed():
    async def main():
        engine = hutch.Engine(**package.options())
        assert (await engine.run("print(1)")).ok
        return weakref.ref(engine._core)
    with pytest.warns(ResourceWarning):
        core = run(main())
        gc.collect()
    assert core() is None


PROGRAM = """
import os, sys, hutch
hutch.configure(image=%r, layouts=1, zygotes=[hutch.Zygote("bare", min=1, max=4)])
""" % support.IMAGE


def program(text, **options):
    return subprocess.run([sys.executable, "-W", "error", "-c", PROGRAM + text], capture_output=True, text=True, check=False,
                          env=package.environment(), timeout=SECONDS, **options)


@pytest.mark.usefixtures("runs")
def test_blocking_functions():
    done = program("print(hutch.run('print(6 * 7)').stdout, end='')\n"
                   "print([result.stdout for result in hutch.run_many(['print(1)', 'print(2)'])])\n"
                   "print(hutch.default_engine().stats().finished)\n")
    assert (done.stdout, done.stderr, done.returncode) == ("42\n['1\\n', '2\\n']\n3\n", "", 0)

def test_threads_share_a_blocking_engine():
    done = program("import concurrent.futures\n"
                   "with concurrent.futures.ThreadPoolExecutor(8) as pool:\n"
                   "    found = list(pool.map(lambda i: hutch.run('print(%d)' % i).stdout, range(30)))\n"
                   "assert found == ['%d\\n' % i for i in range(30)], found\nprint('right')\n")
    assert (done.stdout, done.stderr) == ("right\n", "")


def test_forked_child_opens_its_own():
    """The parent's engine is not the child's to use or to end."""
    done = program("engine = hutch.default_engine()\nassert hutch.run('print(1)').ok\npid = os.fork()\nif pid == 0:\n"
                   "    try:\n        engine.run('print(2)')\n    except hutch.EngineError as error:\n        assert 'fork' in str(error)\n"
                   "    assert hutch.run('print(3)').stdout == '3\\n'\n    assert hutch.default_engine() is not engine\n    engine.close()\n"
                   "    hutch.default_engine().close()\n    os._exit(7)\n"
                   "assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7\n"
                   "assert hutch.run('print(4)').stdout == '4\\n' and hutch.default_engine() is engine\nprint('right')\n")
    assert (done.stdout, done.stderr) == ("right\n", "")


def test_interrupt_ends_a_blocking_run():
    """Ctrl-C while it waits is KeyboardInterrupt, and the run does not go on."""
    process = subprocess.Popen([sys.executable, "-c", PROGRAM + "engine = hutch.default_engine()\ntry:\n"
                                "    hutch.run('import os; os.write(1, b\"x\")\\nwhile True: pass', on_output=lambda *_: print('ready', flush=True))\n"
                                "except KeyboardInterrupt:\n    while engine.stats().running: pass\n    print('interrupted')\n"],
                               stdout=subprocess.PIPE, text=True, env=package.environment())
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=SECONDS)[0] == "interrupted\n" and process.returncode == 0


def test_callback_of_a_blocking_engine_cannot_wait_for_it():
    done = program("engine = hutch.default_engine()\ndef on_output(stream, data):\n    engine.run('1')\ntry:\n"
                   "    engine.run('print(1)', on_output=on_output)\nexcept hutch.EngineError as error:\n    print(error)\n")
    assert "callback" in done.stdout, done


@pytest.mark.usefixtures("runs")
def test_end_of_the_process_leaves_nothing():
    done = program("import asyncio\nasync def main():\n    engine = hutch.Engine(image=%r, layouts=1)\n"
                   "    asyncio.ensure_future(engine.run('while True: pass'))\n    await asyncio.sleep(0.5)\n    sys.exit(3)\n"
                   "asyncio.run(main())\n" % support.IMAGE)
    assert done.returncode == 3, done
