"""hutch.Session: cells with outputs as they come, files, checkpoints, input, interrupts; and what a notebook is shown of it."""
import asyncio
import base64
import contextlib
import errno
import gc
import glob
import io
import os

import pytest

import package
import support
import hutch
from hutch import _rich

SECONDS = 150


@pytest.fixture(scope="module")
def shared():
    engine = hutch.Engine(**package.options(image="python", zygotes=package.SHELL))
    yield engine
    engine.close()


def within(engine, test, **options):
    """Calls test(session) in a loop of its own."""
    async def main():
        async with engine.session(**options) as session:
            return await test(session)
    return asyncio.run(asyncio.wait_for(main(), SECONDS))


# --------------------------------------------------------------------------------------------------
# Cells

def test_variables_stay_and_values_are_told(shared):
    async def test(session):
        first = await session.run("x = 6\nprint('x is', x)")
        assert (first.verdict, first.stdout, first.value, first.execution_count) == ("ok", "x is 6\n", None, 1)
        second = await session.run("x * 7")
        assert (second.value, second.execution_count) == ("42", 2) and second.check() is second
        assert second.llm_text.strip() == "Out[2]: 42"
        assert second.outputs[0]["data"] == {"text/plain": "42"} and second.document["version"] == 1
    within(shared, test)


def test_further_names_of_the_files(shared):
    """Those of the engine, of a run and of a session."""
    code = ("import os\nprint([name for name in ('/of/all', '/own/a', '/own/b') if os.path.exists(name) and os.path.samefile(name, '/mnt/data')])")

    async def main():
        async with hutch.Engine(**package.options(image="python", zygotes=package.SHELL, data_targets=["/of/all"])) as engine:
            assert (await engine.run(code, data_targets=[b"/own/a"])).stdout == "['/of/all', '/own/a']\n"
            assert (await engine.run(code)).stdout == "['/of/all']\n"
            async with engine.session(data_targets=("/own/b",)) as session:
                assert (await session.run(code)).stdout == "['/of/all', '/own/b']\n"
            with pytest.raises(hutch.EngineError, match="data target '/of/all/x': the sandbox has a mount or another"):
                await engine.run("", data_targets=["/of/all/x"])
            with pytest.raises(hutch.EngineError, match="data target '/usr': the image has that path") as caught:
                engine.session(data_targets=["/usr"])
            assert caught.value.code == errno.EINVAL
            with pytest.raises(TypeError, match="one text"):
                await engine.run("", data_targets="/own/a")
    asyncio.run(asyncio.wait_for(main(), SECONDS))


def test_exception_of_a_cell(shared):
    async def test(session):
        result = await session.run("a = 1\n1 / 0")
        assert (result.verdict, result.error.name, result.error.line) == ("error", "ZeroDivisionError", 2)
        assert "\x1b" not in result.error.traceback and "\x1b" in result.error.traceback_ansi
        with pytest.raises(hutch.RunError, match="division by zero"):
            result.check()
    within(shared, test)


def test_outputs_come_as_they_are_made(shared):
    async def test(session):
        cell = session.start("import sys\nprint('one', flush=True)\nprint('zwei ü', file=sys.stderr)\n'three'", stream=True)
        found = [output async for output in cell]
        for stream, text in (("stdout", "one\n"), ("stderr", "zwei ü\n")):
            assert "".join(output.text for output in found if output.stream == stream) == text
        assert found[-1].kind == "value" and found[-1].data["data"]["text/plain"] == "'three'"
        assert (await cell).ok
        heard = []
        await session.run("print(1)", on_output=heard.append)
        assert "".join(output.text for output in heard) == "1\n"
    within(shared, test)


def test_output_comes_before_the_end(shared):
    async def test(session):
        cell = session.start("print('ready', flush=True)\nwhile True: pass", stream=True)
        async for output in cell:
            assert "ready\n".startswith(output.text) and not cell.done()
            break
        assert session.interrupt()
        result = await cell
        assert result.interrupted and result.error.name == "KeyboardInterrupt"
        assert not session.interrupt()
    within(shared, test)


def test_character_that_comes_in_two_pieces(shared):
    async def test(session):
        code = "import os, time\nfor byte in 'ü€'.encode():\n    os.write(1, bytes([byte])); time.sleep(0.05)"
        heard = []
        await session.run(code, on_output=heard.append)
        assert "".join(output.text for output in heard) == "ü€"
    within(shared, test)


@pytest.mark.parametrize("is_later", [False, True])
def test_input(shared, is_later):
    async def test(session):
        asked = []
        async def later(prompt, is_password):
            await asyncio.sleep(0.01)
            return at_once(prompt, is_password)
        def at_once(prompt, is_password):
            asked.append((prompt, is_password))
            return "Ada" if len(asked) == 1 else None
        result = await session.run("name = input('name? ')\nprint('hello', name)\nimport getpass\ngetpass.getpass('word? ')",
                                   on_input=later if is_later else at_once)
        assert asked == [("name? ", False), ("word? ", True)]
        assert "hello Ada\n" in result.stdout and result.error.name == "EOFError"
        assert (await session.run("input()")).error.name == "StdinNotImplementedError"
    within(shared, test)


def test_tools(shared):
    """Functions and coroutines, in turn and at once, with what they raise."""
    async def test(session):
        async def later(i):
            await asyncio.sleep((3 - i) * 0.01)
            return i

        def fail():
            raise ValueError("mine: ü")
        tools = {"add": lambda a, b=0: {"sum": a + b}, "later": later, "fail": fail, "odd": object, "long": lambda: "x" * (5 << 20)}
        code = ("import asyncio\nprint(add(1, b=2), later(3))\nfor tool in (fail, odd, long):\n    try:\n        tool()\n"
                "    except Exception as e:\n        print(e)\nasync def main():\n"
                "    print(await asyncio.gather(*[later(i) for i in range(4)]))\nawait main()")
        lines = (await session.run(code, tools=tools)).check().stdout.splitlines()
        assert lines[0] == "{'sum': 3} 3" and lines[1] == "mine: ü" and "JSON" in lines[2] and lines[3] and lines[4] == "[0, 1, 2, 3]", lines
        assert (await session.run("add")).error.name == "NameError"
        with pytest.raises(hutch.EngineError):
            await session.run("1", tools={"no name": len})
    within(shared, test)


def test_a_tool_that_outlives_its_cell(shared):
    async def test(session):
        started = asyncio.Event()

        async def forever():
            started.set()
            await asyncio.sleep(1000)
        result = await session.run("forever()", tools={"forever": forever}, timeout=5)
        assert started.is_set() and result.verdict == "timeout"
        assert (await session.run("2 + 2")).value == "4"
    within(shared, test)


def test_options_of_a_cell(shared):
    async def test(session):
        code = "import os\n[os.environ.get('A'), os.getcwd()]"
        assert (await session.run(code, env={"A": "b"}, cwd="/tmp", wants_value=True)).value_json == ["b", "/tmp"]
        failing, waiting = session.start("1/0", stop_on_error=True), session.start("2")
        assert (await failing).error.name == "ZeroDivisionError" and (await waiting).verdict == "killed"
        await session.run("x = 1", context="c")
        await session.reset_context("c")
        assert (await session.run("x", context="c")).error.name == "NameError"
        await session.drop_context("c")
        with pytest.raises(hutch.EngineError):
            await session.drop_context("c")
        await session.reset_context()
    within(shared, test)


def test_error_of_a_callback_is_its_callers(shared):
    async def test(session):
        def fail(*_):
            raise KeyError("mine")
        with pytest.raises(KeyError, match="mine"):
            await session.run("print(1, flush=True)\nwhile True: pass", on_output=fail)
        with pytest.raises(KeyError, match="mine"):
            await session.run("input()", on_input=fail)
        assert (await session.run("2 + 2")).value == "4"
    within(shared, test)


def test_cancelled_task_interrupts_its_cell_and_no_other(shared):
    async def test(session):
        running = asyncio.ensure_future(session.run("while True: pass"))
        waiting = asyncio.ensure_future(session.run("while True: x = 1"))
        last = asyncio.ensure_future(session.run("y = 5\ny"))
        await asyncio.sleep(0.3)
        waiting.cancel()
        running.cancel()
        found = await asyncio.gather(running, waiting, last, return_exceptions=True)
        assert isinstance(found[0], asyncio.CancelledError) and isinstance(found[1], asyncio.CancelledError)
        assert found[2].value == "5" and not found[2].fresh and not found[2].interrupted
        assert not session._queue
    within(shared, test)


def test_pause_and_life(shared):
    async def test(session):
        await session.run("import time; x = 1")
        session.pause()
        assert session.info()["state"] == "paused"
        cell = session.start("x + 1")
        await asyncio.sleep(0.3)
        assert not cell.done()
        session.resume()
        assert (await cell).value == "2"
        session.set_lifetime(idle=3600)
        found = session.info()
        assert found["idle_ms"] == 3600000 and found["state"] == "idle" and found["contexts"][0]["name"] == "main"
        session.set_lifetime(lifetime=0.2)
        ended = await session.ended()
        assert ended.why and not session.is_open
    within(shared, test)


def test_cell_that_waits_is_taken_back(shared):
    async def test(session):
        first = session.start("import time; time.sleep(0.5)")
        second, third = session.start("x = 'ran'"), session.start("'x' in globals()")
        second.interrupt()
        assert (await first).ok and (await second).verdict == "killed" and (await third).value == "False"
    within(shared, test)


def test_timeout_and_contexts(shared):
    async def test(session):
        assert (await session.run("while True: pass", timeout=0.3)).verdict == "timeout"
        await session.run("z = 1", context="other")
        assert (await session.run("z")).error.name == "NameError"
        silent = await session.run("5", silent=True)
        assert silent.value is None and silent.execution_count is None
    within(shared, test)


def test_death_and_restart(shared):
    async def test(session):
        await session.run("x = 1")
        died = await session.run("import os; os._exit(3)")
        assert died.interpreter_died and died.message
        assert (await session.run("'x' in globals()")).fresh
        await session.run("x = 1")
        session.restart()
        assert (await session.run("'x' in globals()")).value == "False"
    within(shared, test)


def test_close_tells_the_end(shared):
    async def main():
        session = shared.session()
        cell = session.start("while True: pass")
        ended = await session.close()
        assert "closed" in ended.why and ended.directory is None
        assert (await cell).verdict == "killed" and not session.is_open
        with pytest.raises(hutch.ClosedError, match="the session is over"):
            await session.run("1")
        assert (await session.close()) == ended
    asyncio.run(asyncio.wait_for(main(), SECONDS))


def test_options_that_are_refused(shared):
    async def main():
        with pytest.raises(hutch.EngineError, match="nosuch"):
            shared.session(zygote="nosuch")
        with pytest.raises(TypeError, match="idle_ms"):
            shared.session(idle=3)
        async with shared.session() as session:
            with pytest.raises(hutch.EngineError, match="context"):
                await session.run("1", context="a b")
            with pytest.raises(TypeError):
                await session.run("1", contxt="a")
    asyncio.run(asyncio.wait_for(main(), SECONDS))


# --------------------------------------------------------------------------------------------------
# Files, checkpoints and branches

def test_files(shared):
    async def test(session):
        await session.run("pass")
        await session.upload("in/table.csv", "a,b\n1,2\n")
        await session.upload("raw", io.BytesIO(b"\0\1" * 700000))
        result = await session.run("text = open('in/table.csv').read()\nopen('out.txt', 'w').write(text[::-1])\nlen(open('raw', 'rb').read())")
        assert result.value == "1400000" and [entry.path for entry in result.files.added] == ["out.txt"]
        assert await session.download("out.txt") == b"\n2,1\nb,a"
        target = io.BytesIO()
        assert await session.download("raw", target) == b"" and target.getvalue() == b"\0\1" * 700000
        assert [(entry.path, entry.size) for entry in session.files()] == [("in/table.csv", 8), ("out.txt", 8), ("raw", 1400000)]
        session.delete_file("raw")
        with pytest.raises(hutch.NotFoundError):
            await session.download("raw")
        with pytest.raises(hutch.EngineError, match="more than 3 bytes"):
            await session.download("out.txt", max_bytes=3)
    within(shared, test)


def test_files_before_the_first_sandbox(shared):
    """More sessions at once than sandboxes are prepared: files wait for theirs."""
    async def test(session):
        others = [session._engine.session() for _ in range(6)]
        await asyncio.gather(*(other.upload("f", "%d" % n) for n, other in enumerate(others)))
        assert [await other.download("f") for other in others] == [b"%d" % n for n in range(6)]
        fresh = session._engine.session()
        await fresh.files_ready()
        assert fresh.files() == []
        closed = session._engine.session()
        waits = asyncio.ensure_future(closed.files_ready())
        await asyncio.sleep(0)
        await closed.close()
        with contextlib.suppress(hutch.EngineError):  # that the session was closed, where it had no sandbox by then
            await waits
        for other in [*others, fresh]:
            await other.close()
    within(shared, test)


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "", "a/../../b", "link", "fifo"])
def test_names_that_lead_elsewhere(shared, name):
    async def test(session):
        await session.run("import os\nos.symlink('/etc/passwd', 'link')\nos.mkfifo('fifo')")
        for read in (session.download(name), session.upload("link/x", "1") if name == "link" else session.download(name)):
            with pytest.raises((hutch.HutchError, ValueError)):
                await read
    within(shared, test)


def test_checkpoint_rollback_and_branches(shared):
    async def test(session):
        await session.run("x = 1\nopen('f', 'w').write('one')")
        saved = await session.checkpoint()
        assert saved.id > 0 and saved.lost == [] and saved.bytes == 3
        await session.run("x = 2\nopen('f', 'w').write('two')")
        await session.rollback(saved.id)
        assert (await session.run("x, open('f').read()")).value == "(1, 'one')"
        branch = await session.fork()
        await session.run("x = 3")
        await session.switch(branch.id)
        assert (await session.run("x")).value == "1"
        await session.switch()
        assert (await session.run("x")).value == "3"
        await session.drop(branch.id)
        with pytest.raises(hutch.EngineError):
            await session.switch(branch.id)
    within(shared, test)


def test_processes(shared):
    async def test(session):
        process = session.spawn("echo out; echo err >&2; exit 3", stream=True)
        found = [chunk async for chunk in process]
        end = await process
        assert sorted(found) == [("stderr", b"err\n"), ("stdout", b"out\n")] and end.exit_code == 3 and end.signal == 0
        heard = []
        reader = session.spawn(["cat"], stdin=True, on_output=lambda stream, data: heard.append(data))
        assert [entry["id"] for entry in session.processes()] == [reader.id]
        await reader.write("x" * 300000)
        reader.close_stdin()
        assert (await reader).exit_code == 0 and b"".join(heard) == b"x" * 300000
        heard.clear()
        sleeper = session.spawn("echo begun; sleep 100", on_output=lambda stream, data: heard.append(data))
        while not heard:
            await asyncio.sleep(0.01)
        waiting = asyncio.ensure_future(session.run("6 * 7"))
        assert (await waiting).value == "42"
        sleeper.signal(9)
        assert (await sleeper).signal == 9
        with pytest.raises(hutch.NotFoundError):
            sleeper.signal(9)
        terminal = session.spawn("stty size; exit 0", terminal=(30, 90), stream=True)
        assert b"30 90" in b"".join([data async for _, data in terminal])
        def fail(*_):
            raise KeyError("mine")
        with pytest.raises(KeyError, match="mine"):
            await session.spawn("echo 1; sleep 100", on_output=fail)
        left = session.spawn("sleep 100")
        await session.close()
        assert (await left).exit_code == -1
    within(shared, test, max_processes=4)


def test_cancelled_task_leaves_its_process(shared):
    async def test(session):
        process = session.spawn(["cat"], stdin=True, stream=True)
        task = asyncio.ensure_future(process.wait())
        await process.write("one\n")
        async for stream, data in process:
            assert (stream, data) == ("stdout", b"one\n")
            break
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await process.write("two\n")
        process.close_stdin()
        assert b"".join([data async for _, data in process]) == b"two\n" and (await process.wait()).exit_code == 0
    within(shared, test, max_processes=2)


# --------------------------------------------------------------------------------------------------
# Paths inside

def test_paths(shared):
    async def test(session):
        assert await session.make_directory("/tmp/a/b", parents=True, mode=0o750)
        assert not await session.make_directory("/tmp/a/b", parents=True)
        await session.write_path("/tmp/a/b/f", "content", mode=0o600)
        entry = await session.stat("/tmp/a/b/f")
        assert (entry.path, entry.type, entry.size, entry.mode, entry.target) == ("/tmp/a/b/f", "file", 7, 0o600, None)
        assert await session.read_path("/tmp/a/b/f") == b"content"
        target = io.BytesIO()
        assert await session.read_path(b"/tmp/a/b/f", target) == b"" and target.getvalue() == b"content"
        with pytest.raises(hutch.EngineError, match="more than 3 bytes"):
            await session.read_path("/tmp/a/b/f", max_bytes=3)
        await session.rename("/tmp/a/b/f", "/tmp/a/new/g", parents=True)
        await session.run("import os\nos.symlink(b'/tmp/\\xff', '/tmp/a/link')\nopen(b'/tmp/a/\\xff', 'w').close()\nopen('rel', 'w').write('r')")
        found = await session.list("/tmp/a", depth=2)
        assert [os.fsencode(entry.path) for entry in found] == [b"b", b"link", b"new", b"new/g", b"\xff"] and not found.truncated
        assert [(entry.type, entry.target and os.fsencode(entry.target)) for entry in found][1] == ("link", b"/tmp/\xff")
        assert len(await session.list("/tmp/a", max_entries=2)) == 2 and (await session.list("/tmp/a", max_entries=2)).truncated
        assert "rel" in [entry.path for entry in await session.list()]
        with pytest.raises(hutch.NotFoundError):
            await session.stat("/tmp/a/link", follow=True)
        with pytest.raises(hutch.EngineError) as caught:
            await session.remove("/tmp/a")
        assert caught.value.code == errno.ENOTEMPTY and "/tmp/a" in caught.value.sentence
        await session.remove("/tmp/a", tree=True)
        with pytest.raises(hutch.NotFoundError):
            await session.list("/tmp/a")
        for bad in ("", "x" * 4096):
            with pytest.raises(hutch.EngineError):
                await session.stat(bad)
        with pytest.raises(ValueError, match="NUL"):
            await session.stat("a\0b")
    within(shared, test, paths=1)


def test_files_that_are_opened_by_path(shared):
    async def test(session):
        with await session.open_path("f", "wb") as file:
            assert file.write(b"0123456789") == 10
        with await session.open_path("f", "ab") as file:
            file.write(b"x")
        with pytest.raises(hutch.EngineError):
            await session.open_path("f", "xb")
        with await session.open_path("f") as file:
            assert file.read(3) == b"012" and file.tell() == 3 and file.seek(-2, 2) == 9 and file.read() == b"9x"
            assert file.seek(1) == 1 and file.read(1) == b"1"
        assert (await session.run("open('f').read()")).value == "'0123456789x'"
        large = os.urandom(3 << 20)
        await session.write_path("large", io.BytesIO(large))
        assert await session.read_path("large") == large
        for bad in ("/dev/null", "/proc/self/mem", "/tmp"):
            with pytest.raises(hutch.EngineError):
                await session.open_path(bad)
        with pytest.raises(ValueError, match="mode"):
            await session.open_path("f", "r")
        task = asyncio.ensure_future(session.open_path("f"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await session.stat("f")
    within(shared, test, paths=1)
    gc.collect()
    held = [os.readlink(entry) for entry in glob.glob("/proc/self/fd/*") if os.path.lexists(entry)]
    assert held and not [path for path in held if os.path.basename(path.split(" (deleted)")[0]) in ("f", "large")]


def test_paths_of_a_session_without_them(shared):
    async def test(session):
        for call in (session.stat("/tmp"), session.watch("/tmp"), session.open_path("/tmp/f", "wb")):
            with pytest.raises(hutch.EngineError, match="paths") as caught:
                await call
            assert caught.value.code == errno.EINVAL
    within(shared, test)


def test_watch(shared):
    async def test(session):
        async with await session.watch("/tmp") as watch:
            await session.run("open('/tmp/w', 'w').write('1')\nimport os\nos.mkdir('/tmp/d')\nopen(b'/tmp/\\xfe', 'w').write('1')")
            seen = []
            async for change in watch:
                seen.append((change.kind, os.fsencode(change.name), change.is_directory))
                if change.kind == "written" and change.name == os.fsdecode(b"\xfe"):
                    break
            assert ("created", b"w", False) in seen and ("written", b"w", False) in seen and ("created", b"d", True) in seen
        assert [change async for change in watch] == [] and watch.why is None
        await session.make_directory("/tmp/gone")
        watch = await session.watch("/tmp/gone")
        await session.remove("/tmp/gone")
        assert all([change.kind in ("removed", "attributes") async for change in watch]) and watch.why
        with pytest.raises(hutch.NotFoundError):
            await session.watch("/tmp/nothing")
        watch = await session.watch("/tmp")
        await session.close()
        assert [change async for change in watch] == [] and watch.why
    within(shared, test, paths=1)


def test_questions_to_the_shell(shared):
    async def test(session):
        await session.run("a_long_name = 1\ndef f(x):\n    'its words'")
        found = await session.complete("a_long_na")
        assert found["matches"] == ["a_long_name"] and (found["cursor_start"], found["cursor_end"]) == (0, 9)
        assert (await session.complete("a_long_na + 1", 9))["matches"] == ["a_long_name"]
        assert "its words" in (await session.inspect("f"))["data"]["text/plain"] and not (await session.inspect("nothing"))["found"]
        assert "Source" in (await session.inspect("f", detail=True))["data"]["text/plain"]
        assert (await session.is_complete("for x in y:")) == {"status": "incomplete", "indent": "    "}
        assert (await session.is_complete("1"))["status"] == "complete"
        with pytest.raises(hutch.EngineError, match="other"):
            await session.complete("x", context="other")
    within(shared, test)


def test_blocking_session_with_processes_and_paths():
    with hutch.BlockingEngine(**package.options(image="python", zygotes=package.SHELL)) as engine, engine.session(max_processes=2) as session:
        process = session.spawn(["cat"], stdin=True, stream=True)
        assert [entry["id"] for entry in session.processes()] == [process.id] and not process.done()
        process.write("typed")
        process.close_stdin()
        assert b"".join(data for _, data in process) == b"typed" and process.wait().exit_code == 0 and process.done()
        heard = []
        assert session.spawn("stty size", terminal=(30, 90), on_output=lambda stream, data: heard.append(data)).wait().exit_code == 0
        assert b"30 90" in b"".join(heard)
        sleeper = session.spawn("echo begun; sleep 100", stream=True)
        assert next(iter(sleeper)) == ("stdout", b"begun\n")
        sleeper.signal(9)
        assert sleeper.wait().signal == 9
        session.write_path("/tmp/in/f", b"content")
        assert session.read_path("/tmp/in/f") == b"content" and session.stat("/tmp/in/f").size == 7
        assert session.make_directory("/tmp/d") and [entry.path for entry in session.list("/tmp/in")] == ["f"]
        with session.watch("/tmp/d") as watch:
            session.rename("/tmp/in/f", "/tmp/d/g")
            assert next(iter(watch)) == hutch.Change("created", "g", False)
        assert list(watch) == []
        session.remove("/tmp/d", tree=True)
        assert session.is_complete("1")["status"] == "complete" and session.complete("pri")["matches"]


def test_blocking_session():
    before = support.live_runs()
    with hutch.BlockingEngine(**package.options(image="python", zygotes=package.SHELL)) as engine, engine.session() as session:
        heard = []
        assert session.run("x = 5\nprint(x)", on_output=heard.append).stdout == "5\n"
        assert "".join(output.text for output in heard) == "5\n"
        saved = session.checkpoint()
        session.upload("name.txt", "Ada")
        session.run("x = open('name.txt').read()")
        assert session.run("x").value == "'Ada'" and session.download("name.txt") == b"Ada"
        session.rollback(saved.id)
        assert session.run("x").value == "5" and session.files() == []
        assert session.run("input()", on_input=lambda prompt, _: "typed").value == "'typed'"
        assert "closed" in session.close().why and not session.is_open
    assert support.live_runs() == before


# --------------------------------------------------------------------------------------------------
# What a notebook and a terminal are shown

HOSTILE = """
from IPython.display import HTML, SVG, display
print('\\x1b]0;title\\x07\\x1b[31mred\\x1b[0m \\u202e')
display(HTML('<script>fetch("https://evil.example/")</script>"quoted" <img src="https://evil.example/x">'))
display({'application/javascript': 'alert(1)', 'text/plain': 'script'}, raw=True)
"""


def test_page_has_nothing_foreign_but_in_a_frame(shared):
    async def test(session):
        result = await session.run(HOSTILE)
        shown = result._repr_mimebundle_()
        assert set(shown) == {"text/plain", "text/html"}
        page = shown["text/html"]
        assert "<script" not in page and '<iframe sandbox="" ' in page and "alert" not in page
        frame = page.split('srcdoc="')[1].split('"')[0]
        assert frame.startswith("&lt;meta http-equiv=&quot;Content-Security-Policy&quot; content=&quot;default-src &#x27;none&#x27;")
        assert "&quot;quoted&quot;" in frame
        assert "\x1b" not in shown["text/plain"] and "\x07" not in shown["text/plain"] and "\u202e" not in shown["text/plain"]
        assert "red" in shown["text/plain"] and "script" in shown["text/plain"]
    within(shared, test)


def test_figure_is_an_image(shared):
    async def test(session):
        result = await session.run("import matplotlib.pyplot as plt\nplt.plot([1, 2])\n'value'")
        assert [image[:4] for image in result.images] == [b"\x89PNG"]
        page = result._repr_mimebundle_()["text/html"]
        assert base64.b64encode(result.images[0]).decode() in page and "data:image/png;base64," in page and "value" in page
    within(shared, test)


def test_image_that_is_no_image_stays_in_its_attribute():
    bundle = _rich.bundle([{"output_type": "display_data", "data": {"image/png": '"><script>x</script>'}}], None)
    assert bundle["text/html"] == '<img alt="" src="data:image/png;base64,scriptx/script">'


def test_text_alone_is_text():
    bundle = _rich.bundle([{"output_type": "stream", "name": "stdout", "text": "a\r\nb\x00\x9b\n"}], "it was killed")
    assert bundle == {"text/plain": "a\nb^@\\u009b\nit was killed"}


def test_rich_run_shows_its_cell(shared):
    async def main():
        result = await shared.run("print('out')\n6 * 7", rich=True)
        assert result.cell.value == "42" and result.stdout == "out\n42\n" or result.stdout == "out\n"
        assert "42" in result._repr_mimebundle_()["text/plain"]
    asyncio.run(asyncio.wait_for(main(), SECONDS))
