"""The Model Context Protocol over HTTP, from outside: raw requests as clients send them, and such as none should send."""
import base64
import hashlib
import http.client
import json
import os
import re
import threading
import time

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
