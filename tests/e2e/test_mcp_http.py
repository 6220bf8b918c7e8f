"""The Model Context Protocol over HTTP, from outside: raw requests as clients send them, and such as none should send."""
import asyncio
import base64
import hashlib
import http.client
import json
import re
import threading
import time
import urllib.parse

import aiohttp
import pytest

import gateway
from gateway import Server, await_that

SECONDS = gateway.SECONDS
MODERN = "2026-07-28"
LATEST = "2025-11-25"
META = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {}}
BOTH = "application/json, text/event-stream"
TOOLS = ["run_python", "run_command", "list_files", "read_file", "write_file"]
SLEEP = "import time\nprint('begun', flush=True)\ntime.sleep(1000)"

# As @modelcontextprotocol/sdk 1.32.2 and @modelcontextprotocol/client 2.4.0 write them.
INITIALIZE = (b'{"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}},'
              b'"jsonrpc":"2.0","id":0}')
INITIALIZED = b'{"method":"notifications/initialized","jsonrpc":"2.0"}'


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Server(tmp_path_factory.mktemp("mcp"), "--request-timeout", "120s", image="python") as started:
        yield started


@pytest.fixture
def fresh(tmp_path):
    """For tests that count sessions."""
    with Server(tmp_path, "--request-timeout", "120s", image="python") as started:
        yield started


def events_of(text):
    """[(event, data)] of whole server-sent events; comments are left out."""
    found = []
    for block in text.split("\n\n"):
        rows = [line.partition(": ")[::2] for line in block.split("\n") if line and not line.startswith(":")]
        if rows:
            found.append((dict(rows)["event"], dict(rows)["data"]))
    return found


def messages_of(answer):
    """What an answer has, as a text or as a stream."""
    if answer.headers["Content-Type"] == "application/json":
        found = answer.json
        return found if isinstance(found, list) else [found]
    assert answer.headers["Content-Type"] == "text/event-stream" and answer.headers["X-Accel-Buffering"] == "no"
    return [json.loads(data) for event, data in events_of(answer.body.decode()) if event == "message"]


class Client:
    """Of the older era, with a session."""

    def __init__(self, server, version=LATEST, headers=None):
        self.server, self.last_id = server, 100
        self.headers = {"Accept": BOTH, **(headers or {})}
        body = {"jsonrpc": "2.0", "id": 0, "method": "initialize",
                "params": {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}}
        answer = server.ask("POST", "/mcp", body, self.headers)
        assert answer.status == 200, answer.body
        self.opening = answer.json["result"]
        self.id = answer.headers["Mcp-Session-Id"]
        self.headers.update({"Mcp-Session-Id": self.id, "MCP-Protocol-Version": version})
        assert self.post(INITIALIZED).status == 202

    def post(self, body, headers=None):
        return self.server.ask("POST", "/mcp", body, {**self.headers, **(headers or {})})

    def request(self, method, params=None):
        self.last_id += 1
        return {"jsonrpc": "2.0", "id": self.last_id, "method": method, **({} if params is None else {"params": params})}

    def ask(self, method, params=None):
        answer = self.post(self.request(method, params))
        assert answer.status == 200, answer.body
        return messages_of(answer)[-1]

    def call(self, tool, **arguments):
        return self.ask("tools/call", {"name": tool, "arguments": arguments})["result"]

    def value(self, code):
        result = self.call("run_python", code=code)
        assert result["isError"] is False, result
        return result["structuredContent"]["result"]

    def begin(self, tool, token=None, accept=BOTH, **arguments):
        """A call whose answer is not waited for."""
        params = {"name": tool, "arguments": arguments, **({} if token is None else {"_meta": {"progressToken": token}})}
        return Stream(self.server, "POST", "/mcp", self.request("tools/call", params), {**self.headers, "Accept": accept})

    def cancel(self, number):
        answer = self.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number, "reason": "stop"}})
        assert answer.status == 202 and answer.body == b""

    def end(self):
        return self.server.ask("DELETE", "/mcp", headers=self.headers).status


class Stream:
    """An answer that is read event by event."""

    def __init__(self, server, method, path, body=None, headers=None):
        self.number = (body or {}).get("id") if isinstance(body, dict) else None
        self.connection = gateway.UnixConnection(server.path)
        self.connection.request(method, path, None if body is None else json.dumps(body).encode(),
                                {"Content-Type": "application/json", **(headers or {})})
        self.answer, self.text = None, ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def begin(self):
        if not self.answer:
            self.answer = self.connection.getresponse()
            assert self.answer.status == 200, self.answer.read()
            assert self.answer.headers["Content-Type"] == "text/event-stream"

    def next(self):
        """(event, data); None at the end."""
        self.begin()
        while True:
            lines = []
            while line := self.answer.readline().decode().rstrip("\n"):
                if not line.startswith(":"):
                    lines.append(line.partition(": ")[::2])
            if lines:
                return dict(lines)["event"], dict(lines)["data"]
            if self.answer.isclosed():
                return None

    def message(self):
        event, data = self.next()
        assert event == "message"
        return json.loads(data)

    def await_text(self, wanted, text=""):
        """In progress, which may come in pieces; @text has come already."""
        while len(text) < len(wanted):
            text += self.message()["params"].get("message", "")
        assert text == wanted

    def rest(self):
        found = []
        while event := self.next():
            found.append(json.loads(event[1]))
        return found

    def close(self):
        if self.answer:
            self.answer.close()
        self.connection.close()


def text_of(result):
    return "\n".join(item["text"] for item in result["content"] if item["type"] == "text")


def modern(server, method, params=None, number=1, headers=None, drop=(), meta=None):
    """One request of the newer era."""
    sent = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method, "Accept": BOTH}
    if method == "tools/call":
        sent["Mcp-Name"] = params["name"]
    sent.update(headers or {})
    body = {"jsonrpc": "2.0", "id": number, "method": method, "params": {**(params or {}), "_meta": META if meta is None else meta}}
    return server.ask("POST", "/mcp", body, {name: value for name, value in sent.items() if name not in drop})


def modern_call(server, tool, headers=None, **arguments):
    answer = modern(server, "tools/call", {"name": tool, "arguments": arguments}, headers=headers)
    assert answer.status == 200, answer.body
    return messages_of(answer)[-1]["result"]


def await_count(server, n, headers=None):
    """So many sessions are open in the engine."""
    server.await_metric("hutch_sessions", n, headers)


# --------------------------------------------------------------------------------------------------
# The older era

def test_opening(server):
    answer = server.ask("POST", "/mcp", INITIALIZE, {"Accept": BOTH})
    assert answer.status == 200 and answer.headers["Content-Type"] == "application/json"
    assert answer.json["id"] == 0 and answer.json["result"]["protocolVersion"] == LATEST
    assert answer.json["result"]["serverInfo"]["name"] == "hutch" and answer.json["result"]["capabilities"] == {"tools": {}}
    session = answer.headers["Mcp-Session-Id"]
    assert re.fullmatch(r"[A-Za-z0-9_-]{21}", session)
    sent = {"Accept": BOTH, "Mcp-Session-Id": session, "MCP-Protocol-Version": LATEST}
    answer = server.ask("POST", "/mcp", INITIALIZED, sent)
    assert answer.status == 202 and answer.body == b""
    answer = server.ask("GET", "/mcp", headers=sent)
    assert answer.status == 405 and answer.headers["Allow"] == "POST, DELETE"
    answer = server.ask("POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, sent)
    assert [tool["name"] for tool in answer.json["result"]["tools"]] == TOOLS
    answer = server.ask("POST", "/mcp", {"jsonrpc": "2.0", "id": "one", "method": "ping"}, sent)
    assert answer.json == {"jsonrpc": "2.0", "id": "one", "result": {}}
    assert server.ask("DELETE", "/mcp", headers=sent).status == 204
    for method, body in (("POST", b'{"jsonrpc":"2.0","id":1,"method":"ping"}'), ("DELETE", None)):
        assert server.ask(method, "/mcp", body, sent).status == 404


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", LATEST])
def test_versions(server, version):
    client = Client(server, version)
    assert client.opening["protocolVersion"] == version
    assert client.end() == 204
    answer = server.ask("POST", "/mcp", INITIALIZE.replace(LATEST.encode(), b"1999-01-01"), {"Accept": BOTH})
    assert answer.json["result"]["protocolVersion"] == LATEST


def test_state_and_files(server):
    client = Client(server)
    assert client.value("x = 6\nx * 7") == "42"
    assert client.value("x") == "6"
    result = client.call("run_command", command="echo hello; exit 3")
    assert result["isError"] is True and result["structuredContent"]["exit_code"] == 3
    assert client.call("write_file", path="a.txt", content="text")["structuredContent"]["size"] == 4
    assert text_of(client.call("read_file", path="a.txt")) == "text"
    assert [row["path"] for row in client.call("list_files")["structuredContent"]["files"]] == ["a.txt"]
    assert client.end() == 204


def test_cells_are_counted(server):
    """Each call that runs code is a cell of this format."""
    def count():
        return server.metrics().get('hutch_cell_seconds_count{format="mcp",phase="run"}', 0)

    before = count()
    client = Client(server)
    client.value("1")
    client.call("run_command", command="true")
    client.end()
    assert count() == before + 2


def test_streams(server):
    """What takes longer is a stream, if the client takes one; what it prints is in the progress."""
    client = Client(server)
    wait = "import os, time\nprint('begun', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint('done')"
    with client.begin("run_python", token="t", code=wait) as stream:
        first = stream.message()
        said = first["params"].pop("message")
        assert first["method"] == "notifications/progress" and first["params"] == {"progressToken": "t", "progress": 1}
        stream.await_text("begun\n", said)
        client.call("write_file", path="go", content="")
        last = stream.rest()[-1]
        assert last["id"] == stream.number and last["result"]["structuredContent"]["stdout"] == "begun\ndone\n"
    with client.begin("run_python", token="t", accept="application/json", code="print('quiet'); 1") as stream:
        answer = stream.connection.getresponse()
        assert answer.headers["Content-Type"] == "application/json"
        assert json.loads(answer.read())["result"]["structuredContent"]["stdout"] == "quiet\n"
    with client.begin("list_files", accept="text/event-stream") as stream:
        assert stream.message()["result"]["isError"] is False and stream.next() is None
    client.end()


def test_batch(server):
    """Only one revision has them."""
    client = Client(server, "2025-03-26")
    call = client.request("tools/call", {"name": "run_python", "arguments": {"code": "6 * 7"}})
    ping, unknown = client.request("ping"), client.request("nothing")
    found = {message["id"]: message for message in
             (part for message in messages_of(client.post([ping, json.loads(INITIALIZED), call, unknown]))
              for part in (message if isinstance(message, list) else [message]))}
    assert found[ping["id"]]["result"] == {} and found[unknown["id"]]["error"]["code"] == -32601
    assert found[call["id"]]["result"]["structuredContent"]["result"] == "42"
    answer = client.post([client.request("ping"), client.request("ping")])
    assert answer.headers["Content-Type"] == "application/json" and [part["result"] for part in answer.json] == [{}, {}]
    answer = client.post([json.loads(INITIALIZED)])
    assert answer.status == 202 and answer.body == b""
    for bad in ([], [client.request("ping")] * 65):
        answer = client.post(bad)
        assert answer.status == 400 and answer.json["error"]["code"] == -32600
    client.end()
    newer = Client(server)
    answer = newer.post([newer.request("ping")])
    assert answer.status == 400 and answer.json["error"]["code"] == -32600
    newer.end()
    assert server.ask("POST", "/mcp", [json.loads(INITIALIZE)], {"Accept": BOTH}).status == 400


def test_cancellation(server):
    """A cancelled call gets no answer, and its stream ends; what is kept is kept."""
    client = Client(server)
    assert client.value("x = 6\nx") == "6"
    with client.begin("run_python", token=1, code=SLEEP) as stream, client.begin("run_python", code="x") as waiting:
        stream.await_text("begun\n")
        client.cancel(waiting.number)
        assert waiting.rest() == []
        client.cancel(stream.number)
        assert [message for message in stream.rest() if "id" in message] == []
    assert client.value("x") == "6"
    client.cancel(12345)
    client.end()


def test_client_that_leaves(server):
    """It cannot come back for the answer, so its code is stopped after a moment, and the session stays."""
    client = Client(server)
    assert client.value("x = 6\nx") == "6"
    with client.begin("run_python", token=1, code=SLEEP) as stream:
        stream.message()
    begun = time.monotonic()
    assert client.value("x") == "6"  # it has waited its turn
    assert time.monotonic() - begun < 100
    client.end()


def test_end_of_a_session(fresh):
    """What runs in it ends with it."""
    client = Client(fresh)
    with client.begin("run_python", token=1, code=SLEEP) as stream, client.begin("run_python", code="1") as waiting:
        stream.message()
        assert client.call("list_files", session_id="new")["isError"] is False
        await_count(fresh, 2)
        assert client.end() == 204
        assert [message for message in stream.rest() if "id" in message] == [] and waiting.rest() == []
    await_count(fresh, 0)
    assert client.post(client.request("ping")).status == 404
    assert client.end() == 404


def test_sessions_are_their_own(server):
    """Two at once, whose outputs do not mix."""
    clients = [Client(server) for _ in range(4)]
    seen, failed = {}, []

    def work(number):
        try:
            client = clients[number]
            code = "import time\nfor i in range(20):\n    print('nonce-%d-' + str(i), flush=True)\n    time.sleep(0.005)\nmine = %d" % (number, number)
            with client.begin("run_python", token=number, code=code) as stream:
                messages = stream.rest()
            progress = "".join(message["params"].get("message", "") for message in messages if "params" in message)
            assert {message["params"]["progressToken"] for message in messages if "params" in message} <= {number}
            result = messages[-1]["result"]["structuredContent"]
            assert result["stdout"] == "".join("nonce-%d-%d\n" % (number, i) for i in range(20)) and result["stdout"].startswith(progress)
            seen[number] = (client.value("mine"), result["session_id"])
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == [] and [seen[number][0] for number in range(4)] == ["0", "1", "2", "3"]
    # The handle of one is unknown to another.
    result = clients[0].call("run_python", code="1", session_id=seen[1][1])
    assert result["isError"] is True and "no session" in text_of(result)
    for client in clients:
        client.end()


# --------------------------------------------------------------------------------------------------
# The newer era

def test_discover(server):
    answer = modern(server, "server/discover", number="server-discover-probe-1")
    result = answer.json["result"]
    assert answer.status == 200 and "Mcp-Session-Id" not in answer.headers and answer.json["id"] == "server-discover-probe-1"
    assert result["supportedVersions"] == [MODERN] and result["resultType"] == "complete"
    result = modern(server, "tools/list").json["result"]
    assert [tool["name"] for tool in result["tools"]] == TOOLS and result["cacheScope"] == "public"


def test_requests_without_a_session(server):
    """Each makes one of its own, whose handle the model is told."""
    result = modern_call(server, "run_python", code="x = 6\nx * 7")
    handle = result["structuredContent"]["session_id"]
    assert result["structuredContent"]["result"] == "42" and result["resultType"] == "complete" and handle in text_of(result)
    again = modern_call(server, "run_python", code="x", session_id=handle)
    assert again["structuredContent"]["result"] == "6" and handle not in text_of(again)
    assert modern_call(server, "run_python", code="x")["isError"] is True
    assert "note" in text_of(modern_call(server, "write_file", path="note.txt", content="note", session_id=handle))
    assert text_of(modern_call(server, "read_file", path="note.txt", session_id=handle)) == "note"
    result = modern_call(server, "run_python", code="1", session_id="A" * 21)
    assert result["isError"] is True and "no session" in text_of(result)


def test_headers_are_compared(server):
    call = {"name": "run_python", "arguments": {"code": "1"}}

    def refused(code, status=400, **more):
        answer = modern(server, "tools/call", call, **more)
        assert (answer.status, answer.json["error"]["code"], answer.json["id"]) == (status, code, 1), answer.body

    refused(-32020, drop=["MCP-Protocol-Version"])
    refused(-32020, headers={"MCP-Protocol-Version": LATEST})
    refused(-32020, drop=["Mcp-Method"])
    refused(-32020, headers={"Mcp-Method": "tools/list"})
    refused(-32020, drop=["Mcp-Name"])
    refused(-32020, headers={"Mcp-Name": "run_command"})
    refused(-32020, headers={"Mcp-Name": "=?base64?!?="})
    refused(-32602, meta={})
    refused(-32602, meta={**META, "io.modelcontextprotocol/protocolVersion": 1})
    refused(-32602, meta={"io.modelcontextprotocol/protocolVersion": MODERN})
    other = {**META, "io.modelcontextprotocol/protocolVersion": "2099-01-01"}
    refused(-32022, meta=other, headers={"MCP-Protocol-Version": "2099-01-01"})
    answer = modern(server, "tools/call", call, headers={"Mcp-Name": "=?base64?%s?=" % base64.b64encode(b"run_python").decode(),
                                                         "Mcp-Session-Id": "ignored", "Last-Event-ID": "7"})
    assert answer.status == 200 and messages_of(answer)[-1]["result"]["isError"] is False
    answer = modern(server, "nothing")
    assert answer.status == 404 and answer.json["error"]["code"] == -32601
    answer = modern(server, "ping")
    assert answer.status == 404 and answer.json["error"]["code"] == -32601
    answer = modern(server, "tools/call", {"name": "nothing"})
    assert answer.status == 200 and answer.json["error"]["code"] == -32602
    for method in ("GET", "DELETE"):
        assert server.ask(method, "/mcp", headers={"MCP-Protocol-Version": MODERN}).status == 405
    answer = server.ask("POST", "/mcp", {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}},
                        {"Accept": BOTH, "MCP-Protocol-Version": MODERN, "Mcp-Method": "notifications/cancelled"})
    assert answer.status == 202 and answer.body == b""


def test_leaving_is_cancelling(server):
    """In the newer era, and at once. Another request's call with the same id goes on."""
    handle = modern_call(server, "run_python", code="x = 6")["structuredContent"]["session_id"]
    headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": "run_python", "Accept": BOTH}

    def begin(code, **more):
        return Stream(server, "POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
            "name": "run_python", "arguments": {"code": code, **more}, "_meta": {**META, "progressToken": 1}}}, headers)

    wait = "import os, time\nprint('begun', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint('done')"
    with begin(wait) as other:
        other.await_text("begun\n")
        with begin(SLEEP, session_id=handle) as stream:
            stream.message()
        assert modern_call(server, "run_python", code="x", session_id=handle)["structuredContent"]["result"] == "6"
        # Its files are reached by its handle alone, which it has not told yet: so it is left, too.


def test_oldest_session_makes_room(server):
    handles = [modern_call(server, "list_files")["structuredContent"]["session_id"] for _ in range(3)]
    assert len(set(handles)) == 3
    for _ in range(64 * int(gateway.WORKERS or 1) + 8):
        handles.append(modern_call(server, "list_files")["structuredContent"]["session_id"])
    result = modern_call(server, "list_files", session_id=handles[0])
    assert result["isError"] is True and "no session" in text_of(result)
    assert modern_call(server, "list_files", session_id=handles[-1])["isError"] is False


# --------------------------------------------------------------------------------------------------
# HTTP+SSE

class OldClient:
    """Of the transport of 2024-11-05: messages by POST, all answers by one stream."""

    def __init__(self, server, path="/python/sse", headers=None):
        self.server, self.last_id, self.headers = server, 0, dict(headers or {})
        self.stream = Stream(server, "GET", path, headers={"Accept": "text/event-stream", **self.headers})
        event, self.path = self.stream.next()
        assert event == "endpoint"
        self.opening = self.ask("initialize", {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}})["result"]
        self.post(json.loads(INITIALIZED))

    def post(self, body):
        answer = self.server.ask("POST", self.path, body, self.headers)
        assert answer.status == 202 and answer.body == b"", answer.body

    def begin(self, method, params=None):
        self.last_id += 1
        self.post({"jsonrpc": "2.0", "id": self.last_id, "method": method, **({} if params is None else {"params": params})})
        return self.last_id

    def ask(self, method, params=None):
        number = self.begin(method, params)
        while (message := self.stream.message()).get("id") != number:
            pass
        return message

    def python(self, code):
        return self.ask("tools/call", {"name": "python", "arguments": {"code": code}})["result"]


def test_python_face(server):
    """What vLLM and SGLang need: the server's name, its one tool, and an answer of one text."""
    client = OldClient(server)
    assert re.fullmatch(r"/python/messages/[A-Za-z0-9_-]{21}", client.path)
    assert client.opening["serverInfo"]["name"] == "python" and "Python" in client.opening["instructions"]
    tools = client.ask("tools/list")["result"]["tools"]
    assert [tool["name"] for tool in tools] == ["python"] and tools[0]["annotations"]["include_in_prompt"] is False
    assert tools[0]["inputSchema"]["required"] == ["code"] and list(tools[0]["inputSchema"]["properties"]) == ["code"]
    assert client.python("x = 6\nprint(x * 7)") == {"content": [{"type": "text", "text": "42\n"}], "isError": False}
    assert client.python("x")["content"] == [{"type": "text", "text": "6"}]
    assert client.python("y = 1")["content"] == [{"type": "text", "text": "[nothing was printed]"}]
    result = client.python("print('before')\n1 / 0")
    assert result["isError"] is True and len(result["content"]) == 1
    assert result["content"][0]["text"].startswith("before\n") and "ZeroDivisionError" in result["content"][0]["text"]
    assert client.ask("tools/call", {"name": "run_python", "arguments": {"code": "1"}})["error"]["code"] == -32602
    client.stream.close()
    await_that(lambda: server.ask("POST", client.path, {"jsonrpc": "2.0", "id": 1, "method": "ping"}).status == 404)


def test_as_a_server_of_models_asks(shared):
    """The steps of vLLM's --tool-server: a stream and a session for each answer of the model, several at a time."""
    base = "http://127.0.0.1:%d/python" % shared.port()

    async def read_event(content):
        lines = []
        while line := (await content.readline()).decode().rstrip("\r\n"):
            if not line.startswith(":"):
                lines.append(line.partition(": ")[::2])
        return dict(lines)

    async def converse(number):
        headers = {"Authorization": "Bearer ada", "Accept": "text/event-stream", "Cache-Control": "no-store"}
        async with aiohttp.ClientSession(headers=headers) as session, session.get(base + "/sse") as stream:
            assert stream.status == 200 and stream.content_type == "text/event-stream"
            where = urllib.parse.urljoin(base + "/sse", (await read_event(stream.content))["data"])

            async def ask(number, method, params=None):
                body = {"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}}
                async with session.post(where, json=body) as answer:
                    assert answer.status == 202
                message = json.loads((await read_event(stream.content))["data"])
                assert message["id"] == number
                return message["result"]

            opening = await ask(0, "initialize", {"protocolVersion": LATEST, "capabilities": {}, "clientInfo": {"name": "mcp", "version": "0.1.0"}})
            async with session.post(where, json={"jsonrpc": "2.0", "method": "notifications/initialized"}) as answer:
                assert answer.status == 202
            tools = (await ask(1, "tools/list"))["tools"]
            shown = [tool for tool in tools if tool["annotations"].get("include_in_prompt", True)]
            assert (opening["serverInfo"]["name"], [tool["name"] for tool in tools], shown) == ("python", ["python"], [])
            await ask(2, "tools/call", {"name": "python", "arguments": {"code": "mine = %d" % number}})
            return (await ask(3, "tools/call", {"name": "python", "arguments": {"code": "print(mine)"}}))["content"][0]["text"]

    async def all_of_them():
        return await asyncio.gather(*(converse(number) for number in range(6)))

    assert asyncio.run(all_of_them()) == ["%d\n" % number for number in range(6)]
    await_count(shared, 0, bearer("ada"))


def test_usual_face_of_the_old_transport(server):
    client = OldClient(server, "/mcp/sse")
    assert client.opening["serverInfo"]["name"] == "hutch"
    assert [tool["name"] for tool in client.ask("tools/list")["result"]["tools"]] == TOOLS
    number = client.begin("tools/call", {"name": "run_python", "arguments": {"code": SLEEP}, "_meta": {"progressToken": 1}})
    client.stream.await_text("begun\n")
    client.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}})
    assert client.ask("tools/call", {"name": "run_python", "arguments": {"code": "1"}})["result"]["structuredContent"]["result"] == "1"
    client.stream.close()


def test_closed_stream_ends_what_runs(fresh):
    client = OldClient(fresh)
    client.begin("tools/call", {"name": "python", "arguments": {"code": SLEEP}, "_meta": {"progressToken": 1}})
    client.stream.await_text("begun\n")
    await_count(fresh, 1)
    client.stream.close()
    await_count(fresh, 0)


# --------------------------------------------------------------------------------------------------
# Who may ask

@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A server of several tokens, on TCP, too."""
    folder = tmp_path_factory.mktemp("tokens")
    path = folder / "tokens"
    path.write_text("".join("%s %s\n" % (name, hashlib.sha256(name.encode()).hexdigest()) for name in ("ada", "ben")))
    path.chmod(0o600)
    words = ["--listen", "unix:" + gateway.socket_path(folder), "--listen", "127.0.0.1:0", "--tokens", str(path), "--request-timeout", "120s",
             "--workers", "1"]  # whose shares are the server's
    with Server(folder, *words, image="python") as started:
        yield started


def bearer(name):
    return {"Authorization": "Bearer " + name}


def test_tokens(shared):
    answer = shared.ask("POST", "/mcp", INITIALIZE, {"Accept": BOTH})
    assert answer.status == 401 and answer.headers["WWW-Authenticate"] == "Bearer" and answer.json["error"]["code"] == -32600
    assert shared.ask("GET", "/python/sse").status == 401
    ada, ben = Client(shared, headers=bearer("ada")), Client(shared, headers=bearer("ben"))
    assert ada.value("x = 1\nx") == "1" and ben.call("run_python", code="x")["isError"] is True
    foreign = ada.post(ada.request("ping"), bearer("ben"))
    forged = ben.post(ben.request("ping"), {"Mcp-Session-Id": "A" * 21})
    ended = Client(shared, headers=bearer("ben"))
    ended.end()
    ended = ended.post(ended.request("ping"))
    assert foreign.status == forged.status == ended.status == 404 and foreign.body == forged.body == ended.body
    assert shared.ask("DELETE", "/mcp", headers={**ada.headers, **bearer("ben")}).status == 404
    old = OldClient(shared, headers=bearer("ada"))
    assert shared.ask("POST", old.path, {"jsonrpc": "2.0", "id": 1, "method": "ping"}, bearer("ben")).status == 404
    old.stream.close()
    handle = modern_call(shared, "run_python", headers=bearer("ada"), code="x = 7")["structuredContent"]["session_id"]
    assert modern_call(shared, "run_python", headers=bearer("ben"), code="x", session_id=handle)["isError"] is True
    assert modern_call(shared, "run_python", headers=bearer("ada"), code="x", session_id=handle)["structuredContent"]["result"] == "7"
    assert ada.end() == ben.end() == 204


def test_share_of_sessions(shared):
    """Half of all, native ones among them; another token has the other half."""
    clients = []
    while True:
        answer = shared.ask("POST", "/mcp", INITIALIZE, {"Accept": BOTH, **bearer("ada")})
        if answer.status != 200:
            break
        clients.append(answer.headers["Mcp-Session-Id"])
        assert len(clients) <= 512
    assert answer.status == 429 and answer.headers["Retry-After"] and len(clients) > 500
    assert shared.ask("POST", "/v1/sessions", {}, bearer("ada")).status == 429
    result = modern_call(shared, "run_python", headers=bearer("ada"), code="1")
    assert result["isError"] is True and "no more sessions" in text_of(result)
    ben = Client(shared, headers=bearer("ben"))
    assert ben.value("1") == "1"
    for session in clients:
        assert shared.ask("DELETE", "/mcp", headers={"Mcp-Session-Id": session, **bearer("ada")}).status == 204
    ada = Client(shared, headers=bearer("ada"))
    assert ada.value("1") == "1"
    assert ada.end() == ben.end() == 204


def test_unused_sessions_make_room(fresh):
    """Whoever only says "initialize" keeps nobody out. One that has an interpreter stays."""
    used, connection = Client(fresh), gateway.UnixConnection(fresh.path)
    assert used.value("x = 1\nx") == "1"
    sessions = [fresh.ask("POST", "/mcp", INITIALIZE, {"Accept": BOTH}, connection).headers["Mcp-Session-Id"] for _ in range(1030)]
    connection.close()
    for session, status in ((sessions[0], 404), (sessions[-1], 200)):
        assert fresh.ask("POST", "/mcp", used.request("ping"), {"Accept": BOTH, "Mcp-Session-Id": session}).status == status
    assert used.value("x") == "1"
    used.end()


def test_browsers(shared):
    def ask(headers):
        connection = http.client.HTTPConnection("127.0.0.1", shared.port(), timeout=SECONDS)
        connection.request("POST", "/mcp", INITIALIZE, {"Accept": BOTH, "Content-Type": "application/json", **bearer("ada"), **headers})
        answer = connection.getresponse()
        status, body = answer.status, json.loads(answer.read())
        connection.close()
        return status, body

    assert ask({"Host": "evil.example"})[0] == 403 and ask({"Origin": "http://evil.example"})[0] == 403
    for host in ("localhost:1", "127.0.0.1", "[::1]:8080"):
        assert ask({"Host": host})[0] == 200


# --------------------------------------------------------------------------------------------------
# Bad requests

@pytest.mark.parametrize("body,code", [
    (b"", -32700), (b"{", -32700), (b"[" * 100 + b"]" * 100, -32700), (b'{"jsonrpc":"2.0","id":1,"method":"ping","x":"\\ud800"}', -32700),
    (b'{"jsonrpc":"2.0","id":1,"method":"ping","x":"\0"}', -32700), (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', -32700),
    (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600), (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600),
    (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}', -32600), (b'{"id":1,"method":"ping"}', -32600), (b'"ping"', -32600), (b"7", -32600),
    (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}', -32602), (b'{"a":' * 70 + b"1" + b"}" * 70, -32700),
    (b"[" + b'{"jsonrpc":"2.0","id":1,"method":"ping"},' * 9999 + b"1]", -32600),
], ids=lambda value: str(len(value)) if isinstance(value, bytes) else None)
def test_bad_bodies(server, body, code):
    client = Client(server)
    for headers in (client.headers, {"Accept": BOTH}, {"Accept": BOTH, "MCP-Protocol-Version": MODERN}):
        answer = server.ask("POST", "/mcp", body, headers)
        assert answer.status == 400 and answer.headers["Content-Type"] == "application/json", answer.body
        assert answer.json["error"]["code"] == code and answer.json["error"]["message"], answer.body
    assert client.ask("ping")["result"] == {}
    client.end()


def test_bad_headers(server):
    client = Client(server)
    ping = client.request("ping")
    assert client.post(ping, {"Accept": "text/html"}).status == 406
    assert client.post(ping, {"Content-Type": "text/plain"}).status == 415
    for version in ("2099-01-01", "", "2025-11-25x"):
        assert client.post(ping, {"MCP-Protocol-Version": version}).status == 400
    for session in ("", "A", "A" * 21, "A" * 5000, client.id.swapcase(), client.id + "x"):
        assert client.post(ping, {"Mcp-Session-Id": session}).status == 404
    answer = server.ask("POST", "/mcp", ping, {"Accept": BOTH})
    assert answer.status == 400 and answer.json["id"] == ping["id"]
    assert server.ask("DELETE", "/mcp").status == 400
    for path in ("/mcp/messages/" + client.id, "/python/messages/x", "/python/messages/" + "A" * 21):
        assert server.ask("POST", path, ping).status == 404
    assert server.ask("PUT", "/mcp", ping).status == 405
    assert client.post(client.request("initialize", {"protocolVersion": LATEST})).status == 400
    assert client.ask("ping")["result"] == {}
    client.end()
    answer = server.ask("POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}, {"Accept": BOTH})
    assert answer.json["error"]["code"] == -32602 and "Mcp-Session-Id" not in answer.headers


def test_bad_arguments(server):
    client = Client(server)
    for arguments in ({}, {"code": 1}, {"code": "1", "other": 1}, {"code": "1", "timeout": "x"}):
        assert client.call("run_python", **arguments)["isError"] is True
    assert client.ask("tools/call", {"name": "nothing"})["error"]["code"] == -32602
    assert client.ask("nothing")["error"]["code"] == -32601  # 404 would mean that the session is gone
    client.end()


def test_hostile_output_stays_text(server):
    client = Client(server)
    code = "import os\nos.write(1, b'\\xff\\x00\\n\\ndata: {}\\n\\nevent: message\\r\\n\\x1b[2J')\nprint(chr(0xd800))"
    with client.begin("run_python", token=1, accept="text/event-stream", code=code) as stream:
        messages = stream.rest()
    assert len([message for message in messages if "result" in message]) == 1
    assert "\ufffd\0\n\ndata: {}\n\n" in messages[-1]["result"]["structuredContent"]["stdout"]
    client.end()


def test_client_that_reads_nothing(server):
    """Others go on, and its code ends."""
    slow, other = Client(server), Client(server)
    body = json.dumps(slow.request("tools/call", {"name": "run_python", "arguments": {
        "code": "for i in range(200000): print('x' * 100)\nopen('ended', 'w')"}, "_meta": {"progressToken": 1}})).encode()
    head = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: %s\r\nMcp-Session-Id: %s\r\nContent-Length: %d\r\n\r\n"
    with server.connect() as sock:
        sock.sendall((head % (BOTH, slow.id, len(body))).encode() + body)
        assert other.value("6 * 7") == "42"
        assert server.metrics()["hutch_http_held_bytes"] < 12 << 20
    assert slow.value("1") == "1"  # whatever ran has ended
    slow.end()
    other.end()


def test_many_calls(server):
    """No more than 32 wait for one client, and what is refused is said to the model."""
    client = Client(server)
    streams = [client.begin("run_python", code="import time; time.sleep(1000)") for _ in range(32)]
    try:
        for stream in streams:
            stream.begin()
        result = client.call("run_python", code="1")
        assert result["isError"] is True and "32 calls" in text_of(result)
        for stream in streams[::-1]:
            client.cancel(stream.number)
        assert client.value("1") == "1"
    finally:
        for stream in streams:
            stream.close()
    client.end()


def test_same_id_twice(server):
    client = Client(server)
    with client.begin("run_python", token=1, code=SLEEP) as stream:
        stream.message()
        answer = client.post({"jsonrpc": "2.0", "id": stream.number, "method": "tools/call", "params": {"name": "run_python", "arguments": {"code": "1"}}})
        assert answer.json["error"]["code"] == -32602
        client.cancel(stream.number)
        assert [message for message in stream.rest() if "id" in message] == []
    client.end()


# --------------------------------------------------------------------------------------------------
# Where it is, and its end

def test_prefix(tmp_path):
    with Server(tmp_path, "--format", "mcp=/tools", image="python") as server:
        assert server.ask("POST", "/mcp", INITIALIZE, {"Accept": BOTH}).status == 404
        answer = server.ask("POST", "/tools/mcp", INITIALIZE, {"Accept": BOTH})
        assert answer.status == 200 and answer.json["result"]["serverInfo"]["name"] == "hutch"
        client = OldClient(server, "/tools/python/sse")
        assert client.path.startswith("/tools/python/messages/") and client.python("print(1)")["content"][0]["text"] == "1\n"
        client.stream.close()


def test_end_of_the_server(tmp_path):
    """What runs may end; a stream that only waits does not keep the server."""
    with Server(tmp_path, "--drain", "100s", image="python") as server:
        idle, client = OldClient(server), Client(server)
        with client.begin("run_python", token=1, code="import time\nprint('begun', flush=True)\ntime.sleep(1)\nprint('done')") as stream:
            stream.message()
            begun = time.monotonic()
            server.signal()
            assert stream.rest()[-1]["result"]["structuredContent"]["stdout"] == "begun\ndone\n"
            assert idle.stream.rest() == []
        assert server.await_end() == 0 and time.monotonic() - begun < 60


def test_hasty_end_of_the_server(tmp_path):
    with Server(tmp_path, "--drain", "0s", image="python") as server:
        client, old = Client(server), OldClient(server)
        with client.begin("run_python", token=1, code=SLEEP) as stream, client.begin("run_python", code="1"):
            stream.message()
            old.begin("tools/call", {"name": "python", "arguments": {"code": SLEEP}})
            server.signal()
            assert server.await_end() == 0
        old.stream.close()


def test_policy_of_the_format(tmp_path):
    """As the operator's configuration has it: what its sessions have, and what their cells may ask for."""
    policy = gateway.policy_file(tmp_path, "small", memory="300M", wall="20s")
    config = tmp_path / "hutch.json"
    config.write_text(json.dumps({"policies": {"formats": {"mcp": policy}}}))
    with Server(tmp_path, "--config", str(config), "--request-timeout", "120s", image="python") as server:
        client = Client(server)
        look = "print(open('/proc/meminfo').readline().split()[1])"
        seen = client.call("run_python", code=look)["content"][0]["text"]
        assert str(300 << 10) in seen, seen
        assert "20 seconds at most" in client.call("run_python", code="1", timeout=21)["content"][0]["text"]
        assert server.run(look)["stdout"] != "%d\n" % (300 << 10)
