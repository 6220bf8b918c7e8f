"""hutch.Client and hutch.AsyncClient against `hutch serve`: runs, streams, sessions, errors, connections that are kept."""
import asyncio
import contextlib
import functools
import hashlib
import inspect
import io
import itertools
import json
import os
import signal
import socket
import subprocess
import threading
import time

import pytest

import gateway
import package
import support
import hutch
from hutch import _wire

SECONDS = 100
HAS_SERVER = support.hutch("serve", "--help").returncode == 0
needs_server = pytest.mark.skipif(not HAS_SERVER, reason="this build has no `hutch serve`")
TOKEN = "a-long-and-random-token-of-these-tests"


class Server:
    """Started with @words behind `hutch serve`; its log is read until it is ready, and thrown away then."""

    def __init__(self, folder, *words):
        self.path = os.path.join(str(folder), "s")
        (folder / "tokens").write_text("ada %s\n" % hashlib.sha256(TOKEN.encode()).hexdigest())
        self.process = subprocess.Popen(
            [support.HUTCH, "serve", "--image", "python", "--listen", "unix:" + self.path, "--listen", "127.0.0.1:0", "--drain", "2s",
             "--config", gateway.little_config("python"), "--tokens", str(folder / "tokens"), *words], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.port, said = None, []
        for line in self.process.stderr:
            said.append(line)
            event = json.loads(line) if line.startswith("{") else {}
            if event.get("event") == "listening" and not event["address"].startswith("unix:"):
                self.port = int(event["address"].rpartition(":")[2])
            if event.get("event") == "ready":
                break
        else:
            raise AssertionError("hutch serve did not get ready: %s" % "".join(said))
        threading.Thread(target=lambda: [None for _ in self.process.stderr], daemon=True).start()

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        self.process.wait(SECONDS)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    started = Server(tmp_path_factory.mktemp("client"))
    yield started
    started.stop()


class Both:
    """One test for both clients: `both.do(lambda client: …)` returns what the call gives, awaited where it has to be."""

    def __init__(self, is_async, address, token=TOKEN):
        self.loop = asyncio.new_event_loop() if is_async else None
        self.client = (hutch.AsyncClient if is_async else hutch.Client)(address, token=token)

    def do(self, call):
        found = call(self.client)
        if self.loop is None:
            return found
        async def wait():
            return await asyncio.wait_for(found, SECONDS)
        return self.loop.run_until_complete(wait()) if inspect.isawaitable(found) else found

    def collect(self, iterable, count=None):
        """What it gives, or the first @count of it."""
        if self.loop is None:
            return list(itertools.islice(iterable, count))
        async def gather():
            found = []
            if count != 0:
                async for one in iterable:
                    found.append(one)
                    if len(found) == count:
                        break
            return found
        return self.do(lambda _: gather())

    def close(self):
        if self.loop is None:
            self.client.close()
        else:
            self.loop.run_until_complete(self.client.close())
            self.loop.close()


@pytest.fixture(params=["sync over unix", "async over unix", "sync over TCP", "async over TCP"])
def both(request, server):
    address = "unix:" + server.path if "unix" in request.param else "127.0.0.1:%d" % server.port
    one = Both("async" in request.param, address)
    yield one
    one.close()


# --------------------------------------------------------------------------------------------------
# Runs

@needs_server
def test_run(both):
    result = both.do(lambda client: client.run("import os, sys\nprint(sys.argv[1], os.environ['W'], sys.stdin.read())\n1 / 0",
                                               args=["ä"], env={"W": "x"}, stdin="in", timeout=10))
    assert (result.verdict, result.stdout, result.error.name) == ("error", "ä x in\n", "ZeroDivisionError")
    support.check_result(result.document)
    assert both.do(lambda client: client.run("import sys\nprint(len(sys.stdin.buffer.read()))", stdin=b"\xff\0")).stdout == "2\n"
    assert both.do(lambda client: client.run("while True: pass", timeout=0.3)).verdict == "timeout"
    assert both.do(lambda client: client.run("6 * 7", rich=True)).cell.value == "42"
    assert both.do(lambda client: client.is_ready()) in (True, False)


@needs_server
def test_further_names_of_the_files(both):
    code = "import os\nprint([name for name in ('/own/a', '/own/b') if os.path.exists(name) and os.path.samefile(name, '/mnt/data')])"
    assert both.do(lambda client: client.run(code, data_targets=["/own/a"])).stdout == "['/own/a']\n"
    assert both.do(lambda client: client.run(code)).stdout == "[]\n"
    many = both.do(lambda client: client.run_many([code, {"code": code, "data_targets": ["/own/b"]}]))
    assert [result.stdout for result in many] == ["[]\n", "['/own/b']\n"]
    session = both.do(lambda client: client.session(data_targets=[b"/own/b", "/own/a"]))
    assert both.do(lambda _: session.run(code)).stdout == "['/own/a', '/own/b']\n"
    both.do(lambda _: session.close())
    for call in (lambda client: client.run("", data_targets=["/proc"]), lambda client: client.session(data_targets=["/proc"])):
        with pytest.raises(hutch.ServerError, match="data target '/proc': it is set up by hutch itself") as caught:
            both.do(call)
        assert (caught.value.status, caught.value.reason) == (400, "invalid_request")
    with pytest.raises(TypeError, match="data_targets is one text"):
        both.do(lambda client: client.run("", data_targets="/own/a"))


@needs_server
def test_output_as_it_comes(both):
    heard = []
    result = both.do(lambda client: client.run("import sys\nprint('one', flush=True)\nprint('two ü', file=sys.stderr)",
                                               on_output=lambda stream, data: heard.append((stream, data))))
    assert b"".join(data for stream, data in heard if stream == "stdout") == b"one\n"
    assert b"".join(data for stream, data in heard if stream == "stderr") == "two ü\n".encode()
    assert result.verdict == "ok" and result.stdout == ""
    large = []
    both.do(lambda client: client.run("print('x' * 3000000)", on_output=lambda _, data: large.append(data)))
    assert b"".join(large) == b"x" * 3000000 + b"\n"


@needs_server
@pytest.mark.parametrize("call,kind,status,reason", [
    (lambda client: client.run("1", timeout=10000), hutch.ServerError, 400, "invalid_request"),
    (lambda client: client.run("1", language="cobol"), hutch.ServerError, 400, "invalid_request"),
    (lambda client: client.find_session("A" * 21).info(), hutch.NotFoundError, 404, "not_found"),
    (lambda client: client.find_session("../run").info(), hutch.NotFoundError, 404, "not_found"),
    (lambda client: client.run("print(1)", name="x" * 100000), hutch.ServerError, 400, "invalid_request"),
])
def test_errors_of_the_server(both, call, kind, status, reason):
    with pytest.raises(kind) as caught:
        both.do(call)
    assert (caught.value.status, caught.value.reason) == (status, reason) and caught.value.sentence and caught.value.code
    assert both.do(lambda client: client.run("print(1)")).stdout == "1\n"  # on the same connection


@needs_server
@pytest.mark.parametrize("is_async", [False, True])
def test_token(server, is_async):
    for token in (None, "wrong"):
        one = Both(is_async, "unix:" + server.path, token)
        with pytest.raises(hutch.ServerError) as caught:
            one.do(lambda client: client.run("1"))
        assert (caught.value.status, caught.value.reason) == (401, "unauthorized")
        one.close()


def test_options_that_do_not_exist():
    client = hutch.Client("unix:/nowhere")
    for options in ({"data_dir": "/"}, {"polcy": "x"}, {"memory": 1}):
        with pytest.raises(TypeError, match=next(iter(options))):
            client.run("1", **options)
    with pytest.raises(TypeError, match="wall_ms"):
        client.session(wall_ms=3)


@pytest.mark.parametrize("is_async", [False, True])
def test_nobody_there(is_async, tmp_path):
    one = Both(is_async, "unix:%s/none" % tmp_path)
    with pytest.raises(hutch.ConnectError, match="hutch serve.*running") as caught:
        one.do(lambda client: client.run("1"))
    assert caught.value.code == 2
    one.close()


@pytest.mark.parametrize("text", ["", "ftp://a:1", "host", "http://host:80/path", "host:port"])
def test_addresses_that_are_none(text):
    with pytest.raises(ValueError):
        hutch.Client(text or "http://")


def test_usual_address(monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/7")
    monkeypatch.delenv("HUTCH_SERVER", raising=False)
    assert _wire.read_address(None).path == "/run/user/7/hutch/hutch.sock"
    monkeypatch.setenv("HUTCH_SERVER", "http://[::1]:8080")
    assert _wire.read_address(None)[1:] == (None, "::1", 8080)
    monkeypatch.delenv("HUTCH_SERVER")
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    with pytest.raises(ValueError, match="XDG_RUNTIME_DIR"):
        hutch.AsyncClient()


# --------------------------------------------------------------------------------------------------
# What is said by something else than hutch

class Fake:
    """Answers each connection with the next of @answers, byte for byte, and closes it."""

    def __init__(self, folder, *answers):
        self.path = os.path.join(str(folder), "fake")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(8)
        self.thread = threading.Thread(target=self._serve, args=(answers,), daemon=True)
        self.thread.start()

    def _serve(self, answers):
        for answer in answers:
            connection, _ = self.listener.accept()
            asked = b""
            while b"\r\n\r\n" not in asked or not asked.endswith(b"}"):
                asked += connection.recv(1 << 16)
            with contextlib.suppress(OSError):  # who has heard enough leaves
                connection.sendall(answer)
            connection.close()
        self.listener.close()


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("answer", [
    b"", b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
    b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabc", b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 4\r\n\r\noops",
    b"HTTP/1.1 500 X\r\nContent-Length: 14\r\n\r\n{\"error\": null}", b"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\n{}",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n{}", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-2\r\n{}\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nA: " + b"x" * 600000 + b"\r\nContent-Length: 2\r\n\r\n{}", b"HTTP/1.1 200 OK\r\n" + b"A%d: 1\r\n" * 101 % tuple(range(101)),
])
def test_answers_that_are_none(tmp_path, is_async, answer):
    fake = Fake(tmp_path, answer)
    one = Both(is_async, "unix:" + fake.path, None)
    with pytest.raises((hutch.ConnectError, hutch.ServerError)):
        one.do(lambda client: client.run("1"))
    one.close()


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("answer", [
    b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200\r\nCONTENT-LENGTH:%d\r\n\r\n%s",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n%x;name=value\r\n%s\r\n0\r\nAfter: all\r\n\r\n",
    b"HTTP/1.0 200 OK\r\nLength: %d\r\n\r\n%s",
])
def test_answers_of_other_servers(tmp_path, is_async, answer):
    found = {name: None for name in ("exit_code", "signal", "message", "error", "files", "timings_ms", "usage")}
    body = json.dumps({"verdict": "ok", "stdout": "x" * 300000, "stderr": "", "stdout_truncated": False, "stderr_truncated": False,
                       **found}).encode()
    fake = Fake(tmp_path, answer % (len(body), body))
    one = Both(is_async, "unix:" + fake.path, None)
    assert len(one.do(lambda client: client.run("1")).stdout) == 300000
    one.close()


@pytest.mark.parametrize("is_async", [False, True])
def test_token_that_would_be_two_headers(tmp_path, is_async):
    one = Both(is_async, "unix:%s" % (tmp_path / "s"), "x\r\nEvil: 1")
    with pytest.raises(ValueError, match="header"):
        one.do(lambda client: client.run("1"))
    one.close()


@pytest.mark.parametrize("is_async", [False, True])
def test_stream_that_breaks_off(tmp_path, is_async):
    line = b'{"event":"output","data":{"stream":"stdout","text":"a"}}\n'
    body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(line), line)
    fake = Fake(tmp_path, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body)
    one, heard = Both(is_async, "unix:" + fake.path, None), []
    with pytest.raises(hutch.ConnectError, match="before the result"):
        one.do(lambda client: client.run("1", on_output=lambda *given: heard.append(given)))
    assert heard == [("stdout", b"a")]
    one.close()


# --------------------------------------------------------------------------------------------------
# Connections

@needs_server
def test_connections_are_kept(both):
    for _ in range(5):
        assert both.do(lambda client: client.run("print(1)")).ok
    assert len(both.client._idle) == 1


@needs_server
def test_many_at_once(server):
    async def main():
        async with hutch.AsyncClient("unix:" + server.path, token=TOKEN) as client:
            found = await asyncio.gather(*(client.run("print(%d)" % i) for i in range(40)))
            assert [result.stdout for result in found] == ["%d\n" % i for i in range(40)]
            assert 0 < len(client._idle) <= 40
    asyncio.run(asyncio.wait_for(main(), SECONDS))


@needs_server
def test_threads_share_a_client(server):
    found = {}
    with hutch.Client("unix:" + server.path, token=TOKEN) as client:
        threads = [threading.Thread(target=lambda i=i: found.update({i: client.run("print(%d)" % i).stdout})) for i in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == {i: "%d\n" % i for i in range(12)}


@needs_server
def test_cancelled_task_ends_its_run(server):
    """Were it not, the server would be busy with them for the policy's 30 s, and the last run would wait."""
    async def main():
        async with hutch.AsyncClient("unix:" + server.path, token=TOKEN) as client:
            tasks = [asyncio.ensure_future(client.run("while True: pass")) for _ in range(6)]
            await asyncio.sleep(0.5)
            for task in tasks:
                task.cancel()
            assert all(isinstance(one, asyncio.CancelledError) for one in await asyncio.gather(*tasks, return_exceptions=True))
            assert (await asyncio.wait_for(client.run("print(1)"), 20)).stdout == "1\n"
    asyncio.run(main())


@needs_server
def test_error_of_a_callback_is_its_callers(both):
    def fail(*_):
        raise OSError("mine")
    with pytest.raises(OSError, match="mine"):
        both.do(lambda client: client.run("print(1, flush=True)\nimport time; time.sleep(20)", on_output=fail))
    assert both.do(lambda client: client.run("print(2)")).stdout == "2\n"


@needs_server
@pytest.mark.parametrize("is_async", [False, True])
def test_server_that_is_killed_and_comes_back(tmp_path, is_async):
    first = Server(tmp_path)
    one = Both(is_async, "unix:" + first.path)
    assert one.do(lambda client: client.run("print(1)")).ok
    killer = []
    def kill(*_):
        if not killer:
            killer.append(first.stop(signal.SIGKILL))
    with pytest.raises(hutch.ConnectError):
        one.do(lambda client: client.run("print(1, flush=True)\nimport time; time.sleep(20)", on_output=kill))
    with pytest.raises(hutch.ConnectError):
        one.do(lambda client: client.run("print(1)"))
    second = Server(tmp_path)
    assert one.do(lambda client: client.run("print(3)")).stdout == "3\n"
    one.close()
    second.stop()


# --------------------------------------------------------------------------------------------------
# Sessions

@needs_server
def test_session(both):
    session = both.do(lambda client: client.session(idle_ms=60000, env={"W": "x"}))
    do = lambda call: both.do(lambda _: call(session))  # noqa: E731
    heard = []
    assert do(lambda s: s.run("x = 6\nprint('x is', x)", on_output=heard.append)).stdout == "x is 6\n"
    assert "".join(output.text for output in heard) == "x is 6\n"
    result = do(lambda s: s.run("x * 7"))
    assert result.value == "42" and result.execution_count == 2
    assert do(lambda s: s.run("x", context="other")).error.name == "NameError"
    assert do(lambda s: s.run("import os; os.environ['W']")).value == "'x'"
    saved = do(lambda s: s.checkpoint())
    do(lambda s: s.upload("in/a b?.txt", "content"))
    assert do(lambda s: s.run("y = open('in/a b?.txt').read(); y")).value == "'content'"
    assert [entry.path for entry in do(lambda s: s.files())] == ["in/a b?.txt"]
    target = io.BytesIO()
    assert do(lambda s: s.download("in/a b?.txt")) == b"content" and do(lambda s: s.download("in/a b?.txt", target)) == b""
    assert target.getvalue() == b"content" and do(lambda s: s.download("in/a b?.txt", max_bytes=7)) == b"content"
    with pytest.raises(hutch.EngineError, match="more than 6 bytes"):
        do(lambda s: s.download("in/a b?.txt", max_bytes=6))
    do(lambda s: s.delete_file("in/a b?.txt"))
    with pytest.raises(hutch.NotFoundError):
        do(lambda s: s.download("in/a b?.txt"))
    branch = do(lambda s: s.fork())
    do(lambda s: s.rollback(saved.id))
    assert do(lambda s: s.run("'y' in globals()")).value == "False"
    do(lambda s: s.switch(branch.id))
    assert do(lambda s: s.run("y")).value == "'content'"
    do(lambda s: s.drop(saved.id))
    with pytest.raises(hutch.ServerConflictError):
        do(lambda s: s.rollback(saved.id))
    assert do(lambda s: s.interrupt()) is False
    assert do(lambda s: s.info())["id"] == session.id
    do(lambda s: s.restart())
    assert do(lambda s: s.run("'y' in globals()")).value == "False"
    assert both.do(lambda client: client.find_session(session.id).run("1 + 1")).value == "2"
    do(lambda s: s.close())
    with pytest.raises(hutch.NotFoundError):
        do(lambda s: s.run("1"))


@needs_server
@pytest.mark.parametrize("name", ["../x", "a/../../x", "%2e%2e/x", "/etc/passwd", "link", "link/x"])
def test_names_that_lead_elsewhere(both, name):
    session = both.do(lambda client: client.session())
    both.do(lambda _: session.run("import os\nos.symlink('/etc', 'link')"))
    with pytest.raises(hutch.ServerError) as caught:
        both.do(lambda _: session.download(name))
    assert 400 <= caught.value.status < 500
    both.do(lambda _: session.close())


@needs_server
def test_sessions_close_themselves(server):
    address = "unix:" + server.path
    with hutch.Client(address, token=TOKEN) as client:
        with client.session() as session:
            assert session.run("1 + 1").value == "2"
        with pytest.raises(hutch.NotFoundError):
            session.info()

    async def main():
        async with hutch.AsyncClient(address, token=TOKEN) as client:
            async with await client.session() as session:
                task = asyncio.ensure_future(session.run("print('ready', flush=True)\nwhile True: pass"))
                while not await session.interrupt():
                    await asyncio.sleep(0.05)
                assert (await task).error.name == "KeyboardInterrupt"
            with pytest.raises(hutch.NotFoundError):
                await session.info()
    asyncio.run(asyncio.wait_for(main(), SECONDS))
    assert package.folder()


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


@pytest.fixture(scope="module")
def functions(tmp_path_factory):
    folder = tmp_path_factory.mktemp("functions")
    (folder / "f.py").write_text(FUNCTION)
    started = Server(folder, "--function", "f-1=%s" % (folder / "f.py"))
    yield started
    started.stop()


@needs_server
@pytest.mark.parametrize("is_async", (False, True))
def test_functions(functions, is_async):
    both = Both(is_async, "unix:" + functions.path)
    for event in (None, 5, "ä\u2028", [1, {"a": None}], {"env": {"A": "b"}}):
        assert both.do(lambda client: client.function("f-1")(event)) == {"event": event}
    assert both.do(lambda client: client.function("f-1")("env", env={"SECRET": "s"})) == "s"
    assert both.do(lambda client: client.function("f-1")("env")) is None
    result = both.do(lambda client: client.function("f-1").call(3, timeout=20))
    assert (result.verdict, result.value, result.stdout) == ("ok", {"event": 3}, "printed\n")
    support.check_result(result.document)
    with pytest.raises(hutch.RunError, match="ValueError: no") as failed:
        both.do(lambda client: client.function("f-1")("fail"))
    assert failed.value.result.error.name == "ValueError"
    assert both.do(lambda client: client.function("f-1").call("sleep", timeout=0.3)).verdict == "timeout"
    with pytest.raises(hutch.ServerNotFoundError):
        both.do(lambda client: client.function("../run")(1))
    with pytest.raises(TypeError, match="nothing"):
        both.do(lambda client: client.function("f-1")(1, nothing=1))
    with pytest.raises((TypeError, ValueError)):
        both.do(lambda client: client.function("f-1")(float("nan")))
    assert [entry["name"] for entry in both.do(lambda client: client.functions())] == ["f-1"]
    both.close()


# --------------------------------------------------------------------------------------------------
# What the code of a cell asks

@needs_server
def test_tools(both):
    """In turn or at once, with what they raise; and a coroutine, which only one of both clients can await."""
    with_session = both.do(lambda client: client.session())
    seen = []

    def add(a, b=0):
        seen.append((a, b))
        return {"sum": a + b}

    def fail():
        raise ValueError("mine: ü")

    async def later(x):
        await asyncio.sleep(0.01)
        return x * 2
    tools = {"add": add, "fail": fail, "later": later, "odd": lambda: object()}
    code = ("print(add(1, b=2))\nfor tool in (fail, odd):\n    try:\n        tool()\n    except Exception as e:\n        print(e)\n"
            "try:\n    print(later(21))\nexcept Exception as e:\n    print(e)")
    heard = []
    result = both.do(lambda client: with_session.run(code, tools=tools, on_output=heard.append))
    lines = result.stdout.splitlines()
    assert lines[:2] == ["{'sum': 3}", "mine: ü"] and "JSON" in lines[2] and seen == [(1, 2)], lines
    assert lines[3] == "42" if both.loop else "AsyncClient" in lines[3], lines
    assert "".join(output.text for output in heard) == result.stdout
    assert both.do(lambda client: with_session.run("add", tools=None)).error.name == "NameError"
    both.do(lambda client: with_session.close())


@needs_server
def test_answers_that_are_too_long(both):
    """The code hears of it, and does not wait for ever; those that it has not read yet come later."""
    with_session = both.do(lambda client: client.session())
    code = "for n in (5 << 20, 20 << 20):\n    try:\n        tool(n)\n    except Exception as e:\n        print(e)\nprint(len(tool(3)))"
    lines = both.do(lambda client: with_session.run(code, tools={"tool": lambda n: "x" * n})).stdout.splitlines()
    assert len(lines) == 3 and "4194304" in lines[0] and "16777216" in lines[1] and lines[2] == "3", lines
    code = "import asyncio\nprint(sum(map(len, await asyncio.gather(*[tool(1000000) for _ in range(40)]))))"
    assert both.do(lambda client: with_session.run(code, tools={"tool": lambda n: "x" * n})).stdout == "40000000\n"
    both.do(lambda client: with_session.close())


@needs_server
def test_answers_that_cannot_be_sent(both, monkeypatch):
    """The cell would wait for one, so it ends."""
    with_session = both.do(lambda client: client.session())
    do = both.client._do

    def refuse(call):
        if "/calls/" in call.path:
            raise hutch.ConnectError("no")
        return do(call)
    monkeypatch.setattr(both.client, "_do", refuse)
    with pytest.raises(hutch.ConnectError, match="no"):
        both.do(lambda client: with_session.run("tool()", tools={"tool": int}))
    assert both.do(lambda client: with_session.run("2 + 2")).value == "4"
    both.do(lambda client: with_session.close())


@needs_server
def test_input_of_a_cell(both):
    with_session = both.do(lambda client: client.session())
    asked = []

    def answer(prompt, is_password):
        asked.append((prompt, is_password))
        return "Ada" if len(asked) == 1 else None
    result = both.do(lambda client: with_session.run("print(input('name? '))\ninput()", on_input=answer))
    assert result.stdout.startswith("Ada\n") and result.error.name == "EOFError" and asked == [("name? ", False), ("", False)]

    def fail(*_):
        raise KeyError("mine")
    with pytest.raises(KeyError, match="mine"):
        both.do(lambda client: with_session.run("input()", on_input=fail))
    assert both.do(lambda client: with_session.run("2 + 2")).value == "4"
    both.do(lambda client: with_session.close())


@needs_server
def test_tools_at_once(server):
    """Those of AsyncClient are awaited side by side."""
    both = Both(True, "unix:" + server.path)
    order = []

    async def tool(i):
        await asyncio.sleep((3 - i) * 0.05)
        order.append(i)
        return i
    with_session = both.do(lambda client: client.session())
    code = "import asyncio\nasync def main():\n    print(await asyncio.gather(*[tool(i) for i in range(4)]))\nawait main()"
    assert both.do(lambda client: with_session.run(code, tools={"tool": tool})).stdout == "[0, 1, 2, 3]\n"
    assert sorted(order) == [0, 1, 2, 3]
    both.do(lambda client: with_session.close())
    both.close()


@needs_server
def test_options_of_a_cell(both):
    with_session = both.do(lambda client: client.session())
    run = functools.partial(with_session.run, "import os\n[os.environ.get('A'), os.getcwd()]")
    assert both.do(lambda client: run(env={"A": "b"}, cwd="/tmp", wants_value=True)).value_json == ["b", "/tmp"]
    assert both.do(lambda client: run()).value_json is None
    both.do(lambda client: with_session.run("x = 1", context="c"))
    both.do(lambda client: with_session.reset_context("c"))
    assert both.do(lambda client: with_session.run("x", context="c")).error.name == "NameError"
    both.do(lambda client: with_session.drop_context("c"))
    with pytest.raises(hutch.EngineError):
        both.do(lambda client: with_session.drop_context("c"))
    both.do(lambda client: with_session.close())


# --------------------------------------------------------------------------------------------------
# Many at once, and twice

@needs_server
def test_run_many(both):
    codes = ["print(%d)" % i for i in range(20)] + [{"code": "import sys\nprint(sys.argv[1])", "args": ["ä"]}, "1 / 0"]
    results = both.do(lambda client: client.run_many(codes, timeout=20))
    assert [result.stdout for result in results] == ["%d\n" % i for i in range(20)] + ["ä\n", ""]
    assert results[-1].error.name == "ZeroDivisionError" and both.do(lambda client: client.run_many([])) == []
    with pytest.raises(hutch.ServerError, match="cobol") as caught:
        both.do(lambda client: client.run_many(["1", {"code": "1", "language": "cobol"}]))
    assert (caught.value.status, caught.value.reason) == (400, "invalid_request")
    padding = "#" * (3 << 20)  # in several requests
    assert [result.stdout for result in both.do(lambda client: client.run_many(["print(%d)%s" % (i, padding) for i in range(4)]))] == [
        "%d\n" % i for i in range(4)]


@needs_server
def test_asked_twice_run_once(both):
    key = os.urandom(8).hex()
    code = "import os\nprint(os.urandom(8).hex())"
    first = both.do(lambda client: client.run(code, idempotency_key=key))
    assert both.do(lambda client: client.run(code, idempotency_key=key)).stdout == first.stdout != ""
    assert both.do(lambda client: client.run(code)).stdout != first.stdout
    with pytest.raises(hutch.ServerError) as caught:
        both.do(lambda client: client.run("print(2)", idempotency_key=key))
    assert (caught.value.status, caught.value.reason) == (422, "idempotency_key_reused")
    with pytest.raises(hutch.ServerError, match="one piece"):
        both.do(lambda client: client.run(code, idempotency_key=key, on_output=lambda *_: None))
    for bad in ("", "a b", "a\r\nX-Other: 1", "ä", "x" * 256):
        with pytest.raises(ValueError, match="idempotency_key"):
            both.do(lambda client: client.run(code, idempotency_key=bad))


@needs_server
@pytest.mark.parametrize("is_async", (False, True))
def test_function_asked_twice(functions, is_async):
    both = Both(is_async, "unix:" + functions.path)
    assert both.do(lambda client: client.function("f-1")(1, idempotency_key="k%d" % is_async)) == {"event": 1}
    with pytest.raises(hutch.ServerError, match="Idempotency-Key"):
        both.do(lambda client: client.function("f-1")(2, idempotency_key="k%d" % is_async))
    both.close()


# --------------------------------------------------------------------------------------------------
# Life of a session, questions to its shell

@needs_server
def test_life(both):
    session = both.do(lambda client: client.session())
    do = lambda call: both.do(lambda _: call(session))  # noqa: E731
    assert do(lambda s: s.run("x_long = 1")).ok
    found = do(lambda s: s.info())
    assert found["id"] == session.id and found["state"] == "idle" and found["contexts"][0]["count"] == 1
    do(lambda s: s.pause())
    assert do(lambda s: s.info())["state"] == "paused"
    do(lambda s: s.resume())
    assert do(lambda s: s.run("x_long")).value == "1"
    do(lambda s: s.set_lifetime(idle=7, lifetime=100))
    found = do(lambda s: s.info())
    assert found["idle_ms"] == 7000 and found["end"] - found["opened"] < 200
    with pytest.raises(ValueError, match="idle"):
        do(lambda s: s.set_lifetime(idle=-1))
    assert do(lambda s: s.complete("x_lo"))["matches"] == ["x_long"] and do(lambda s: s.complete("x_lo + 1", 4))["matches"] == ["x_long"]
    assert do(lambda s: s.inspect("x_long"))["found"] and do(lambda s: s.inspect("print", detail=True))["found"]
    assert do(lambda s: s.is_complete("for x in y:")) == {"status": "incomplete", "indent": "    "}
    assert do(lambda s: s.reply("nobody asks")) is False
    with pytest.raises(hutch.EngineError, match="other"):
        do(lambda s: s.complete("x", context="other"))
    do(lambda s: s.close())


# --------------------------------------------------------------------------------------------------
# One interface

KINDS = {hutch.Session: (hutch.BlockingSession, hutch.RemoteSession), hutch.Engine: (hutch.BlockingEngine, hutch.Client, hutch.AsyncClient),
         hutch.Process: (hutch.BlockingProcess, hutch.RemoteProcess, hutch.AsyncRemoteProcess),
         hutch.Watch: (hutch.BlockingWatch, hutch.RemoteWatch, hutch.AsyncRemoteWatch), hutch.Function: (hutch.BlockingFunction, hutch.RemoteFunction)}
METHODS = {hutch.Session: ("interrupt", "reply", "restart", "checkpoint", "rollback", "fork", "switch", "drop", "reset_context", "drop_context",
                           "pause", "resume", "info", "set_lifetime", "complete", "inspect", "is_complete", "spawn", "processes", "stat",
                           "list", "make_directory", "rename", "remove", "read_path", "write_path", "watch", "files", "upload", "download",
                           "delete_file"),
           hutch.Engine: ("run_many", "function", "functions"),
           hutch.Process: ("wait", "write", "close_stdin", "signal", "resize", "done"), hutch.Watch: ("close",),
           hutch.Function: ("call", "__call__")}


@pytest.mark.parametrize("kind,other", [(kind, other) for kind, others in KINDS.items() for other in others])
def test_one_interface(kind, other):
    """The same names and arguments, in the same order, whoever runs the code and with or without asyncio."""
    for name in METHODS[kind]:
        lists = [[(one.name, one.kind) for one in inspect.signature(getattr(cls, name)).parameters.values()] for cls in (kind, other)]
        assert lists[0] == lists[1], name


# --------------------------------------------------------------------------------------------------
# Processes

def until(condition):
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture
def with_processes(both):
    session = both.do(lambda client: client.session(max_processes=4))
    yield session
    try:
        both.do(lambda _: session.close())
    except hutch.EngineError:
        pass  # a test has closed it


@needs_server
def test_processes(both, with_processes):
    do = lambda call: both.do(lambda _: call(with_processes))  # noqa: E731
    process = do(lambda s: s.spawn("echo out; echo err >&2; printf '\\377'; exit 3", stream=True))
    found = both.collect(process)
    assert b"".join(data for stream, data in found if stream == "stdout") == b"out\n\xff" and ("stderr", b"err\n") in found
    end = do(lambda _: process.wait())
    assert (end.exit_code, end.signal, end.why, end.truncated) == (3, 0, "", False) and end.run_ms > 0 and process.done()
    assert both.collect(process) == []
    heard = []
    reader = do(lambda s: s.spawn(["cat"], stdin=True, on_output=lambda stream, data: heard.append(data), env={"A": "b"}, cwd="/tmp"))
    assert [(entry["id"], entry["cwd"]) for entry in do(lambda s: s.processes())] == [(reader.id, "/tmp")] and not reader.done()
    if both.loop is None:
        writer = threading.Thread(target=lambda: (reader.write("x" * 1500000), reader.close_stdin()))
        writer.start()
        assert reader.wait().exit_code == 0
        writer.join()
    else:
        do(lambda _: reader.write("x" * 1500000))
        do(lambda _: reader.close_stdin())
        assert do(lambda _: reader.wait()).exit_code == 0
    assert b"".join(heard) == b"x" * 1500000
    with pytest.raises(hutch.EngineError):
        do(lambda _: reader.write("more"))
    sleeper = do(lambda s: s.spawn("echo begun; sleep 100", stream=True))
    assert both.collect(sleeper, 1) == [("stdout", b"begun\n")]
    assert do(lambda s: s.run("6 * 7")).value == "42"
    do(lambda _: sleeper.signal(signal.SIGKILL))
    assert do(lambda _: sleeper.wait()).signal == 9
    with pytest.raises(hutch.NotFoundError, match="no such process"):
        do(lambda _: sleeper.signal(9))
    assert do(lambda _: do(lambda s: s.spawn(["nothing-of-this-name"])).wait()).exit_code == 127
    timed = do(lambda s: s.spawn("sleep 100", timeout=0.2))
    assert do(lambda _: timed.wait()).why


@needs_server
def test_terminal(both, with_processes):
    do = lambda call: both.do(lambda _: call(with_processes))  # noqa: E731
    terminal = do(lambda s: s.spawn(["sh"], terminal=(30, 90), stream=True, env={"PS1": "> "}))
    do(lambda _: terminal.write("stty size; read x\n"))
    seen = b""
    while b"30 90" not in seen:
        seen += both.collect(terminal, 1)[0][1]
    do(lambda _: terminal.resize(40, 100))
    do(lambda _: terminal.write("\nstty size\nexit\n"))
    assert b"40 100" in b"".join(data for _, data in both.collect(terminal)) and do(lambda _: terminal.wait()).exit_code == 0


@needs_server
def test_processes_that_are_refused(both, with_processes):
    do = lambda call: both.do(lambda _: call(with_processes))  # noqa: E731
    for options, says in (({"command": []}, "args"), ({"command": "true", "env": {"": "x"}}, "env"),
                          ({"command": "true", "terminal": (0, 80)}, "rows"), ({"command": "true", "stdin": True, "terminal": (1, 1)}, "stdin")):
        for stream in (False, True):
            with pytest.raises(hutch.ServerError, match=says) as caught:
                do(lambda s: s.spawn(stream=stream, **options))
            assert (caught.value.status, caught.value.reason) == (400, "invalid_request")
    for kind, options in ((TypeError, {"command": b"true"}), (TypeError, {"command": "true", "nothing": 1}), (ValueError, {"command": "true", "timeout": 0})):
        with pytest.raises(kind):
            do(lambda s: s.spawn(**options))
    with pytest.raises(hutch.NotFoundError, match="no such process"):
        do(lambda s: s.find_process(99).wait())
    sleepers = [do(lambda s: s.spawn("sleep 100")) for _ in range(4)]
    with pytest.raises(hutch.BusyError) as caught:
        do(lambda s: s.spawn("true", stream=True))
    assert caught.value.retry_after and len({sleeper.id for sleeper in sleepers}) == 4
    without = both.do(lambda client: client.session())
    with pytest.raises(hutch.EngineError, match="max_processes"):
        both.do(lambda _: without.spawn("true"))
    both.do(lambda _: without.close())
    do(lambda s: s.close())


@needs_server
def test_process_outlives_its_reader(both, with_processes):
    do = lambda call: both.do(lambda _: call(with_processes))  # noqa: E731
    process = do(lambda s: s.spawn("echo one; read x; echo $x; exit 5", stdin=True, stream=True))
    assert both.collect(process, 1) == [("stdout", b"one\n")]
    do(lambda _: process.close())
    found = do(lambda s: s.processes())
    assert [entry["id"] for entry in found] == [process.id]
    do(lambda _: process.write("two\n"))
    again = both.client.find_session(with_processes.id).find_process(process.id)
    assert both.collect(again) == [("stdout", b"two\n")] and do(lambda _: again.wait()).exit_code == 5 and again.dropped == 0
    much = do(lambda s: s.spawn("head -c 300000 /dev/zero; exec >&-; sleep 100"))
    until(lambda: any(entry["output_bytes"] == 300000 for entry in do(lambda s: s.processes())))
    do(lambda _: much.signal(9))
    data = b"".join(data for _, data in both.collect(much))
    assert len(data) + much.dropped == 300000 and much.dropped > 0 and do(lambda _: much.wait()).signal == 9
    with_client = do(lambda s: s.spawn("sleep 100", stream=True, end_with_client=True))
    do(lambda _: with_client.close())
    until(lambda: not do(lambda s: s.processes()))


@needs_server
def test_error_of_a_process_callback_is_its_callers(both, with_processes):
    def fail(*_):
        raise KeyError("mine")
    process = both.do(lambda _: with_processes.spawn("echo 1; sleep 100", on_output=fail))
    for _ in range(2):
        with pytest.raises(KeyError, match="mine"):
            both.do(lambda _: process.wait())
    until(lambda: not both.do(lambda _: with_processes.processes()))


@needs_server
def test_cancelled_task_leaves_its_process(server):
    async def main():
        async with hutch.AsyncClient("unix:" + server.path, token=TOKEN) as client, await client.session(max_processes=2) as session:
            process = await session.spawn(["cat"], stdin=True, stream=True)
            waiter, reader = asyncio.ensure_future(process.wait()), asyncio.ensure_future(process.__aiter__().__anext__())
            await asyncio.sleep(0.05)
            for task in (waiter, reader):
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            await process.write("typed")
            await process.close_stdin()
            assert b"".join([data async for _, data in process]) == b"typed" and (await process).exit_code == 0
            watch = await session.watch("/tmp")
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(watch.__aiter__().__anext__(), 0.05)
            await session.make_directory("/tmp/after")
            assert await watch.__aiter__().__anext__() == hutch.Change("created", "after", True)
            await watch.close()
            left = await session.spawn("touch /tmp/begun; sleep 100", stream=True)
            for _ in range(500):
                if "begun" in [entry.path for entry in await session.list("/tmp")]:
                    break
                await asyncio.sleep(0.02)
            waiter = asyncio.ensure_future(left.wait())
            await asyncio.sleep(0.05)
            await left.close()
            with pytest.raises(hutch.ConnectError):
                await waiter
            reader = asyncio.ensure_future(left.__aiter__().__anext__())  # listens anew
            await asyncio.sleep(0.05)
            await left.signal(signal.SIGKILL)
            with pytest.raises(StopAsyncIteration):
                await reader
            assert (await left).signal == 9
        assert len([task for task in asyncio.all_tasks()]) == 1
    asyncio.run(main())


# --------------------------------------------------------------------------------------------------
# Paths inside

@needs_server
def test_paths(both):
    session = both.do(lambda client: client.session(paths=True))
    do = lambda call: both.do(lambda _: call(session))  # noqa: E731
    assert do(lambda s: s.make_directory("/tmp/a/b", parents=True, mode=0o750)) is True
    assert do(lambda s: s.make_directory("/tmp/a/b", parents=True)) is False
    do(lambda s: s.write_path("/tmp/a/b/ä ?&%", "content", mode=0o600))
    entry = do(lambda s: s.stat("/tmp/a/b/ä ?&%"))
    assert (entry.path, entry.type, entry.size, entry.mode, entry.target) == ("/tmp/a/b/ä ?&%", "file", 7, 0o600, None)
    assert do(lambda s: s.read_path("/tmp/a/b/ä ?&%")) == b"content"
    target = io.BytesIO()
    assert do(lambda s: s.read_path("/tmp/a/b/ä ?&%", target)) == b"" and target.getvalue() == b"content"
    with pytest.raises(hutch.EngineError, match="more than 3 bytes"):
        do(lambda s: s.read_path("/tmp/a/b/ä ?&%", max_bytes=3))
    do(lambda s: s.rename("/tmp/a/b/ä ?&%", "/tmp/a/new/g", parents=True))
    do(lambda s: s.run("import os\nos.symlink(b'/tmp/\\xff', '/tmp/a/link')\nopen(b'/tmp/a/\\xff', 'w').close()"))
    found = do(lambda s: s.list("/tmp/a", depth=2))
    assert [os.fsencode(entry.path) for entry in found] == [b"b", b"link", b"new", b"new/g", b"\xff"] and not found.truncated
    assert os.fsencode(found.entries[1].target) == b"/tmp/\xff"
    assert len(do(lambda s: s.list("/tmp/a", max_entries=2))) == 2
    assert do(lambda s: s.read_path(b"/tmp/a/\xff")) == b""
    with pytest.raises(hutch.NotFoundError):
        do(lambda s: s.stat("/tmp/a/link", follow=True))
    with pytest.raises(hutch.ServerConflictError, match="/tmp/a"):
        do(lambda s: s.remove("/tmp/a"))
    do(lambda s: s.remove("/tmp/a", tree=True))
    with pytest.raises(hutch.NotFoundError):
        do(lambda s: s.list("/tmp/a"))
    for bad in ("", "x" * 4096):
        with pytest.raises(hutch.ServerError):
            do(lambda s: s.stat(bad))
    with pytest.raises(ValueError, match="NUL"):
        do(lambda s: s.stat("a\0b"))
    large = os.urandom(3 << 20)
    do(lambda s: s.write_path("large", io.BytesIO(large)))
    assert do(lambda s: s.read_path("/mnt/data/large")) == large
    do(lambda s: s.close())
    without = both.do(lambda client: client.session())
    for call in (lambda s: s.stat("/tmp"), lambda s: s.watch("/tmp"), lambda s: s.write_path("/tmp/f", b"")):
        with pytest.raises(hutch.EngineError, match="paths"):
            both.do(lambda _: call(without))
    both.do(lambda _: without.close())


@needs_server
def test_watch(both):
    session = both.do(lambda client: client.session(paths=True))
    do = lambda call: both.do(lambda _: call(session))  # noqa: E731
    do(lambda s: s.make_directory("/tmp/here"))
    watch = do(lambda s: s.watch("/tmp/here"))
    do(lambda s: s.run("open(b'/tmp/here/\\xfe', 'w').write('1')"))
    assert both.collect(watch, 1) == [hutch.Change("created", os.fsdecode(b"\xfe"), False)]
    do(lambda _: watch.close())
    do(lambda _: watch.close())
    assert both.collect(watch) == [] and watch.why is None
    do(lambda s: s.make_directory("/tmp/gone"))
    watch = do(lambda s: s.watch("/tmp/gone"))
    do(lambda s: s.remove("/tmp/gone"))
    assert all(change.kind in ("removed", "attributes") for change in both.collect(watch)) and watch.why
    with pytest.raises(hutch.NotFoundError):
        do(lambda s: s.watch("/tmp/nothing"))
    if both.loop is None:
        watch = session.watch("/tmp")
        threading.Timer(0.2, watch.close).start()
        assert list(watch) == []
    do(lambda s: s.close())


@needs_server
@pytest.mark.parametrize("is_async", (False, True))
def test_server_that_is_killed_in_the_middle_of_streams(tmp_path, is_async):
    started = Server(tmp_path)
    both = Both(is_async, "unix:" + started.path)
    session = both.do(lambda client: client.session(max_processes=3))
    process = both.do(lambda _: session.spawn("echo one; sleep 100", stream=True))
    quiet = both.do(lambda _: session.spawn("sleep 100", on_output=lambda *_: None))
    watch = both.do(lambda _: session.watch("/tmp"))
    assert both.collect(process, 1) == [("stdout", b"one\n")]
    started.stop(signal.SIGKILL)
    for call in (lambda: both.collect(process), lambda: both.do(lambda _: quiet.wait()), lambda: both.collect(watch),
                 lambda: both.do(lambda _: session.spawn("true", stream=True)), lambda: both.do(lambda _: process.wait())):
        with pytest.raises(hutch.ConnectError):
            call()
    both.close()
