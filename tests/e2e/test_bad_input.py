"""What bad input gets from `hutch serve`: each kind of it (a row) in each format (a column), with its status and in the
format's own shape of errors. A cell is a function here, the name of a test elsewhere that shows it, or a reason why there is
nothing to show."""
import ast
import base64
import contextlib
import json
import os
import socket
import struct
import uuid

import pytest

import gateway
import support
import test_e2b
import test_mcp_http
from gateway import Server, await_that, bearer

COLUMNS = ["native", "mcp", "sse", "e2b", "fusion", "azure", "tools"]
FORMATS = [word for name in ("mcp", "e2b", "sandboxfusion", "tools", "azure=/azure") for word in ("--format", name)]
TOKENS = {"ada": test_e2b.TOKEN, "bob": test_e2b.OTHER}
ADA, BOB = bearer(TOKENS["ada"]), bearer(TOKENS["bob"])
VERSION = "2025-10-02-preview"
SLEEP = "import time\nprint('begun', flush=True)\ntime.sleep(1000)"
FLOOD = "import sys\nwhile True: sys.stdout.write('x' * 1000 + '\\n')"
NOBODYS = "A" * 21
UPWARDS = ["../x", "..%2fx", "%2e%2e/x", "%2E%2E%2Fx", "a/../../x", "a%2f..%2f..%2fx", "a/%2e%2e/%2e%2e/x"]
NO_JSON = [b"", b"{", b"code=1", b'{"code": "1"', b'{"code": "1"} {}', b'{"code": "\xff"}', b'{"code": NaN}']
DEEP = b'{"code": "1", "x": ' + b"[" * 100000


class Elsewhere:
    """The test that shows it: FILE::FUNCTION, in this folder."""

    def __init__(self, *tests):
        self.tests = tests


class Nothing:
    """Why the row says nothing about the format."""

    def __init__(self, reason):
        self.reason = reason


# --- the shape of errors of each format ---

def native_error(answer, status):
    assert answer.status == status, answer.body
    return answer.error["message"]


def rpc_error(answer, status):
    assert answer.status == status and answer.headers["Content-Type"] == "application/json", (answer.status, answer.body)
    assert answer.json["jsonrpc"] == "2.0" and answer.json["error"]["code"] < 0 and "result" not in answer.json, answer.body
    return answer.json["error"]["message"]


def fusion_error(answer, status):
    assert answer.status == status and answer.headers["Content-Type"] == "application/json", (answer.status, answer.body)
    assert list(answer.json) == ["detail"], answer.body
    if status != 422:
        assert isinstance(answer.json["detail"], str)
        return answer.json["detail"]
    assert [list(one) for one in answer.json["detail"]] == [["type", "loc", "msg", "input"]], answer.body
    return answer.json["detail"][0]["msg"]


def azure_error(answer, status):
    assert answer.status == status and answer.headers["Content-Type"] == "application/json", (answer.status, answer.body)
    assert list(answer.json) == ["error"] and list(answer.json["error"]) == ["code", "message"], answer.body
    return answer.json["error"]["message"]


ERRORS = {"native": native_error, "mcp": rpc_error, "sse": rpc_error, "e2b": test_e2b.error_of, "fusion": fusion_error,
          "azure": azure_error, "tools": native_error}


def stream_error(answer, code):
    """Of a stream of E2B's, whose status is always 200: its only message."""
    assert answer.status == 200 and answer.headers["Content-Type"] == "application/connect+json", answer.body
    flags, size = struct.unpack(">BI", answer.body[:5])
    assert (flags, size) == (2, len(answer.body) - 5)
    assert json.loads(answer.body[5:])["error"]["code"] == code, answer.body


# --- servers ---

@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Of all formats and two tokens."""
    folder = tmp_path_factory.mktemp("bad")
    with Server(folder, *FORMATS, "--tokens", gateway.tokens_file(folder, **TOKENS), "--max-body", "200k", "--workers", "1", image="python") as one:
        yield one


@pytest.fixture(scope="module")
def hasty(tmp_path_factory):
    """Without patience, and of an image that can execute Python's programs and no cells."""
    with Server(tmp_path_factory.mktemp("hasty"), *FORMATS, "--request-timeout", "1s", image="minimal") as one:
        yield one


class Old:
    """A client of HTTP+SSE, whose messages may be bad: they are taken, and the stream says what is wrong."""

    def __init__(self, server):
        self.client = test_mcp_http.OldClient(server, "/mcp/sse", ADA)
        self.path = self.client.path

    def error(self, body):
        answer = self.client.server.ask("POST", self.path, body, ADA)
        assert answer.status == 202 and answer.body == b"", answer.body
        message = self.client.stream.message()
        assert message["jsonrpc"] == "2.0" and message["error"]["code"] < 0, message
        return message["error"]["message"]

    def call(self, tool, **arguments):
        return self.client.ask("tools/call", {"name": tool, "arguments": arguments})["result"]


@pytest.fixture(scope="module")
def mcp(server):
    client = test_mcp_http.Client(server, headers=ADA)
    yield client
    client.end()


@pytest.fixture(scope="module")
def sse(server):
    client = Old(server)
    yield client
    client.client.stream.close()


@pytest.fixture(scope="module")
def sandbox(server):
    with test_e2b.Sandbox(server, timeout=600) as one:
        yield one


def azure(path, name="everybodys", version=VERSION):
    return "/azure%s?identifier=%s&api-version=%s" % (path, name, version)


class Asker:
    """One usual request of a format with JSON: post() sends another body in its place."""

    def __init__(self, request, column):
        self.column, self.server = column, request.getfixturevalue("server")
        self.path, self.headers = {"native": "/v1/run", "mcp": "/mcp", "e2b": "/execute", "fusion": "/run_code", "azure": azure("/executions"),
                                   "tools": "/v1/tools"}.get(column), dict(ADA)
        if column == "mcp":
            self.headers = request.getfixturevalue("mcp").headers
        elif column == "sse":
            self.old = request.getfixturevalue("sse")
            self.path = self.old.path
        elif column == "e2b":
            self.headers = request.getfixturevalue("sandbox").headers("49999")

    def post(self, body):
        return self.server.ask("POST", self.path, body, self.headers)

    def refused(self, body):
        """The sentence. SandboxFusion's status for what is wrong with a request is FastAPI's."""
        if self.column == "sse":
            return self.old.error(body)
        return ERRORS[self.column](self.post(body), 422 if self.column == "fusion" else 400)

    def head(self, more=b""):
        lines = ["POST %s HTTP/1.1" % self.path, "Host: localhost", "Content-Type: application/json"]
        return "\r\n".join(lines + ["%s: %s" % row for row in self.headers.items()]).encode() + b"\r\n" + more + b"\r\n"


ASKED_AT_ONCE = {"native": "/v1/run", "mcp": "/mcp", "sse": "/python/messages/" + NOBODYS, "e2b": "/v2/sandboxes", "fusion": "/run_code",
                 "azure": azure("/executions"), "tools": "/v1/tools/run_python"}


def raw_head(column, *lines, path=None):
    return ("\r\n".join(["POST %s HTTP/1.1" % (path or ASKED_AT_ONCE[column]), "Host: localhost", "Content-Type: application/json", *lines])
            + "\r\n").encode()


# --- rows that are the same in all columns ---

def malformed(request, column):
    asker = Asker(request, column)
    for body in NO_JSON:
        if column == "fusion" and body == NO_JSON[-1]:
            continue  # it is a number to Python, of a type that code may not have: in the next row
        if column == "tools":
            native_error(asker.server.ask("POST", "/v1/tools", body, ADA), 400)
        else:
            asker.refused(body)


def deep(request, column):
    Asker(request, column).refused(DEEP)


def too_large(request, column):
    """Before anything of the body has come; and the connection is closed."""
    asker = Asker(request, column)
    ERRORS[column](gateway.parse(asker.server.raw(asker.head(b"Content-Length: 9999999\r\n"))), 413)


@pytest.fixture(scope="module")
def late(hasty):
    """What all columns read that have begun a request at the same time and go no further, until they are closed."""
    begun = {("head", column): raw_head(column) for column in COLUMNS}
    begun |= {("body", column): raw_head(column, "Content-Length: 20", "") + b"{" for column in COLUMNS}
    begun["stream"] = raw_head("e2b", "Content-Length: 20", "", path="/process.Process/Start") + b"\0"
    with contextlib.ExitStack() as stack:
        socks = {key: stack.enter_context(hasty.connect()) for key in begun}
        for key, sock in socks.items():
            sock.sendall(begun[key])
        yield {key: gateway.parse(gateway.read_all(sock)) for key, sock in socks.items()}


def slow_head(request, column):
    ERRORS[column](request.getfixturevalue("late")["head", column], 408)


def slow_body(request, column):
    late = request.getfixturevalue("late")
    ERRORS[column](late["body", column], 408)
    if column == "e2b":
        stream_error(late["stream"], "deadline_exceeded")


def two_lengths(request, column):
    """What follows is never taken for another request."""
    hasty = request.getfixturevalue("hasty")
    for lines in (("Content-Length: 3", "Content-Length: 4"), ("Content-Length: 4", "Transfer-Encoding: chunked"),
                  ("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"), ("Transfer-Encoding: gzip",)):
        data = hasty.raw(raw_head(column, *lines, "") + b"0\r\n\r\nGET /healthz HTTP/1.1\r\n\r\n")
        assert data.count(b"HTTP/1.1") == 1
        ERRORS[column](gateway.parse(data), 400)


def bad_chunks(request, column):
    """libmicrohttpd's own answer, which knows no format (docs/open-items.md)."""
    hasty = request.getfixturevalue("hasty")
    for lines in (["Content-Length: 4x"], ["Content-Length: -1"], ["Transfer-Encoding: chunked"]):
        data = hasty.raw(raw_head(column, *lines, "") + b"zz\r\nabc\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\n\r\n")
        assert gateway.parse(data).status in (400, 413) and b'"ok"' not in data, data
    hasty.await_metric("hutch_http_exchanges", 1)


def large_headers(request, column):
    """Likewise."""
    hasty = request.getfixturevalue("hasty")
    assert gateway.parse(hasty.raw(raw_head(column, "X: " + "x" * 100000, "Content-Length: 0", ""))).status == 431


def unknown_path(request, column):
    """Where something of the path is known."""
    paths = {"native": "/v1/nothing", "mcp": "/mcp/nothing", "sse": "/python/nothing", "e2b": "/sandboxes/x/y/z", "fusion": "/run_code/x",
             "azure": "/azure/nothing", "tools": "/v1/tools/run_python/x"}
    ERRORS[column](request.getfixturevalue("server").ask("POST", paths[column], {}, ADA | {"X-API-Key": TOKENS["ada"]}), 404)


def without_token(request, column):
    server = request.getfixturevalue("server")
    answer = server.ask("POST", ASKED_AT_ONCE[column], b"{}", bearer("x"))
    ERRORS[column](answer, 401)
    assert answer.headers["WWW-Authenticate"] == "Bearer"


# --- rows whose bodies are each format's own ---

def call(name="run_python", **arguments):
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}


WRONG_TYPES = {
    "native": [b"[]", b"{}", b'{"code": 5}', b'{"code": null}', b'{"code": "1", "args": [1]}', b'{"code": "1", "limits": {"wall_ms": "1"}}'],
    "mcp": [b"7", b'"ping"', b'{"jsonrpc": "2.0", "id": 1.5, "method": "ping"}', b'{"jsonrpc": "2.0", "id": 1, "method": 5}',
            b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []}'],
    "e2b": [b"[]", b"{}", b'{"code": 5}', b'{"code": "1", "env_vars": []}', b'{"code": "1", "env_vars": {"A": 1}}'],
    "fusion": [b"[]", b"{}", b'{"code": 5}', b'{"code": "1", "run_timeout": "soon"}', b'{"code": "1", "files": ["a"]}', b'{"code": "1", "run_timeout": NaN}'],
    "azure": [b"[]", b"{}", b'{"code": 5}', b'{"code": "1", "timeoutInSeconds": "x"}', b'{"code": "1", "executionType": 1}', b'{"properties": 1}'],
    "tools": [b"[]", b"{}", b'{"type": "tool_use", "name": 1}', b"5"],
}
WRONG_TYPES["sse"] = WRONG_TYPES["mcp"]


def wrong_types(request, column):
    asker = Asker(request, column)
    for body in WRONG_TYPES[column]:
        asker.refused(body)


NO_TEXT = {
    "native": [b'{"code": "a\\u0000b"}', b'{"code": "\\ud800"}', b'{"code": "\0"}'],
    "mcp": [b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "x": "\\ud800"}', b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "x": "\0"}'],
    "e2b": [b'{"code": "a\\u0000b"}', b'{"code": "\\ud800"}', b'{"code": "\0"}'],
    "fusion": [b'{"code": "echo \\u0000", "language": "bash"}', b'{"code": "\\ud800"}', b'{"code": "\0"}'],
    "azure": [b'{"code": "a\\u0000b"}', b'{"code": "\\ud800"}', b'{"code": "\0"}'],
    "tools": [b'{"function": {"name": "\\ud800"}}', b'{"function": {"name": "\0"}}'],
}
NO_TEXT["sse"] = NO_TEXT["mcp"]


def no_text(request, column):
    asker = Asker(request, column)
    for body in NO_TEXT[column]:
        asker.refused(body)


def unknown_keys_native(request):
    assert "unknown key" in Asker(request, "native").refused(b'{"code": "1", "polcy": "x"}')


def is_refused_tool(result, words=""):
    """An error that a model can read, as the protocol wants it for arguments of tools."""
    assert result["isError"] is True and words in result["content"][0]["text"], result


def unknown_keys_mcp(request):
    is_refused_tool(request.getfixturevalue("mcp").call("run_python", code="1", other=1), "other")


def unknown_keys_sse(request):
    is_refused_tool(request.getfixturevalue("sse").call("run_python", code="1", other=1), "other")


# --- names of files ---

def traversal_native(request):
    server = request.getfixturevalue("server")
    name = server.ask("POST", "/v1/sessions", {}, ADA).json["id"]
    for path in UPWARDS:
        for method, body in (("GET", None), ("PUT", b"x"), ("DELETE", None)):
            native_error(server.ask(method, "/v1/sessions/%s/files/%s" % (name, path), body, ADA), 400)
    assert server.ask("DELETE", "/v1/sessions/" + name, headers=ADA).status == 204


def names_of_tools(client):
    for path in ("../x", "/mnt/data/../../etc/passwd", "a/../../x", "/etc/passwd", "/dev/mem", "/proc/1/environ", "a\0b", ""):
        is_refused_tool(client.call("read_file", path=path))
        is_refused_tool(client.call("write_file", path=path, text="x"))


def names_mcp(request):
    names_of_tools(request.getfixturevalue("mcp"))


def names_sse(request):
    names_of_tools(request.getfixturevalue("sse"))


def upload(name):
    return b"--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"%s\"\r\n\r\nx\r\n--b--\r\n" % name.encode()


def traversal_azure(request):
    server = request.getfixturevalue("server")
    assert server.ask("POST", azure("/executions"), {"code": "1"}, ADA).status == 200
    for name in UPWARDS:
        for path, method in (("/files/%s", "GET"), ("/files/%s/content", "GET"), ("/files/content/%s", "GET"), ("/files/%s", "DELETE")):
            azure_error(server.ask(method, azure(path % name), headers=ADA), 400)
        azure_error(server.ask("POST", azure("/files/upload", version="2024-02-02-preview"), upload(name), ADA), 400)
        azure_error(server.ask("POST", azure("/files") + "&path=" + name, upload("y"), ADA), 400)


def absolute_native(request):
    """By a path inside, what the sandbox's user may not read is refused, and a device is no file."""
    server = request.getfixturevalue("server")
    name = server.ask("POST", "/v1/sessions", {}, ADA).json["id"]
    for path in ("/dev/null", "/dev/mem", "/proc/self/mem", "/", "/etc/shadow"):
        answer = server.ask("GET", "/v1/sessions/%s/files?path=%s" % (name, path), headers=ADA)
        assert answer.status in (400, 404, 409), (path, answer.body)
        native_error(answer, answer.status)
    for path in ("/etc/passwd", "/dev/null", "/usr/x"):
        answer = server.ask("PUT", "/v1/sessions/%s/files?path=%s" % (name, path), b"x", ADA)
        assert answer.status in (400, 404, 409), (path, answer.body)
        native_error(answer, answer.status)
    assert server.ask("DELETE", "/v1/sessions/" + name, headers=ADA).status == 204


def absolute_e2b(request):
    sandbox = request.getfixturevalue("sandbox")
    for path in ("/dev/null", "/dev/mem", "/proc/self/mem", "/", "/etc/shadow"):
        answer = sandbox.ask("GET", "/files?path=" + path)
        assert answer.status in (400, 404), (path, answer.body)
        test_e2b.error_of(answer, answer.status)
    for path in ("/etc/passwd", "/dev/null", "/usr/x"):
        test_e2b.error_of(sandbox.ask("POST", "/files?path=" + path, b"x", {"Content-Type": "application/octet-stream"}), 400)


def absolute_azure(request):
    """A name is one below /mnt/data, whatever it begins with."""
    server = request.getfixturevalue("server")
    for path in ("%2Fetc%2Fpasswd", "/etc/passwd", "%2Fdev%2Fmem", "%2Fproc%2Fself%2Fmem"):
        azure_error(server.ask("GET", azure("/files/" + path), headers=ADA), 404)
        azure_error(server.ask("GET", azure("/files/content/" + path, version="2024-02-02-preview"), headers=ADA), 404)


# --- ids ---

def the_same(answers, check):
    """Whoever asks cannot tell what is another's from what never was."""
    assert len({(answer.status, answer.body) for answer in answers}) == 1, [(answer.status, answer.body) for answer in answers]
    check(answers[0], 404)


def ids_native(request):
    server = request.getfixturevalue("server")
    foreign, expired = (server.ask("POST", "/v1/sessions", {}, one).json["id"] for one in (BOB, ADA))
    assert server.ask("DELETE", "/v1/sessions/" + expired, headers=ADA).status == 204
    for method, path, body in (("GET", "", None), ("DELETE", "", None), ("POST", "/cells", {"code": "1"}), ("GET", "/files/x", None),
                               ("PUT", "/files/x", b"x"), ("POST", "/interrupt", None), ("GET", "/processes", None)):
        the_same([server.ask(method, "/v1/sessions/" + name + path, body, ADA) for name in (NOBODYS, foreign, expired)], native_error)
    assert server.ask("DELETE", "/v1/sessions/" + foreign, headers=BOB).status == 204


def ids_mcp(request):
    server = request.getfixturevalue("server")
    foreign, expired, own = test_mcp_http.Client(server, headers=BOB), test_mcp_http.Client(server, headers=ADA), request.getfixturevalue("mcp")
    expired.end()
    for method in ("POST", "DELETE"):
        the_same([server.ask(method, "/mcp", own.request("ping") if method == "POST" else None, {**own.headers, "Mcp-Session-Id": name})
                  for name in (NOBODYS, foreign.id, expired.id)], rpc_error)
    foreign.end()


def ids_sse(request):
    server = request.getfixturevalue("server")
    foreign, expired = (test_mcp_http.OldClient(server, "/mcp/sse", one) for one in (BOB, ADA))
    expired.stream.close()
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    await_that(lambda: server.ask("POST", expired.path, ping, ADA).status == 404)
    the_same([server.ask("POST", path, ping, ADA) for path in ("/mcp/messages/" + NOBODYS, foreign.path, expired.path)], rpc_error)
    foreign.stream.close()


def ids_azure(request):
    """An identifier is its client's word: another's session is not there. What is expired was deleted."""
    server = request.getfixturevalue("server")
    foreign, expired, own = ("ids-%s" % uuid.uuid4() for _ in range(3))
    begun = {}
    for name, token in ((foreign, BOB), (expired, ADA), (own, ADA)):
        answer = server.ask("POST", azure("/executions", name), {"code": "1"}, token)
        assert answer.status == 200, answer.body
        begun[name] = answer.json["id"]
    assert server.ask("DELETE", azure("/session", expired), headers=ADA).status == 204
    for method, path in (("GET", "/session"), ("DELETE", "/session"), ("GET", "/files/x"), ("DELETE", "/files/x"), ("GET", "/executions/" + NOBODYS)):
        the_same([server.ask(method, azure(path, name), headers=ADA) for name in ("ids-nobodys", foreign, expired)], azure_error)
    the_same([server.ask("GET", azure("/executions/" + one, own), headers=ADA) for one in (NOBODYS, begun[foreign], begun[expired])], azure_error)
    the_same([server.ask("GET", azure("/executions/" + begun[foreign], foreign), headers=ADA),
              server.ask("GET", azure("/executions/" + begun[own], foreign), headers=ADA)], azure_error)
    listed = server.ask("GET", "/azure/listSessions?api-version=" + VERSION, headers=ADA).json["sessions"]
    assert own in [row["identifier"] for row in listed] and foreign not in [row["identifier"] for row in listed]
    assert server.ask("GET", azure("/session", foreign), headers=BOB).status == 200
    for name, token in ((foreign, BOB), (own, ADA)):
        assert server.ask("DELETE", azure("/session", name), headers=token).status == 204


# --- versions, languages, limits ---

def version_azure(request):
    server = request.getfixturevalue("server")
    for version in ("2030-01-01", "", "2024-02-02", "2025-10-02-PREVIEW", "2025-10-02-preview%00"):
        for method, path, body in (("POST", "/executions", {"code": "1"}), ("POST", "/code/execute", {"properties": {"code": "1"}}), ("GET", "/files", None),
                                   ("GET", "/session", None), ("GET", "/listSessions", None), ("POST", "/files/upload", upload("x"))):
            azure_error(server.ask(method, azure(path, version=version), body, ADA), 400)
    azure_error(server.ask("GET", "/azure/files?identifier=everybodys", headers=ADA), 400)


def version_mcp(request):
    client = request.getfixturevalue("mcp")
    for version in ("2099-01-01", ""):
        rpc_error(client.post(client.request("ping"), {"MCP-Protocol-Version": version}), 400)


def language_fusion(request):
    answer = Asker(request, "fusion").post({"code": "1", "language": "cobol"})
    assert answer.status == 200 and answer.json["status"] == "SandboxError" and "python" in answer.json["message"], answer.body
    fusion_error(request.getfixturevalue("server").ask("POST", "/run_jupyter", {"cells": ["1"], "kernel": "ir"}, ADA), 422)


def language_native(request):
    assert "cobol" in Asker(request, "native").refused({"code": "1", "language": "cobol"})


def language_e2b(request):
    assert Asker(request, "e2b").refused({"code": "1", "language": "cobol"})


def limit_mcp(request):
    is_refused_tool(request.getfixturevalue("mcp").call("run_python", code="1", timeout=100000), "timeout")


def limit_sse(request):
    is_refused_tool(request.getfixturevalue("sse").call("run_python", code="1", timeout=100000), "timeout")


def limit_native(request):
    asker = Asker(request, "native")
    assert "above the policy's" in asker.refused({"code": "1", "limits": {"memory_bytes": 10 ** 12}})
    native_error(asker.server.ask("POST", "/v1/sessions", {"limits": {"memory_bytes": 10 ** 12}}, ADA), 400)


def limit_e2b(request):
    server = request.getfixturevalue("server")
    test_e2b.error_of(server.ask("POST", "/v2/sandboxes", {"templateID": "base", "timeout": 10 ** 12}, {"X-API-Key": TOKENS["ada"]}), 400)


def limit_fusion(request):
    assert "less than or equal" in Asker(request, "fusion").refused({"code": "1", "run_timeout": 86400})


# --- too many at once ---

@pytest.fixture(scope="module")
def full(tmp_path_factory):
    """One program runs and one waits; one token has as many sessions as it may."""
    folder = tmp_path_factory.mktemp("full")
    with Server(folder, *FORMATS, "--tokens", gateway.tokens_file(folder, **TOKENS), "--jobs", "1", "--queue", "1", "--workers", "1") as one:
        body = json.dumps({"code": SLEEP}).encode()
        with contextlib.ExitStack() as stack:
            for name, token in (("hutch_running", "bob"), ("hutch_queued", "ada")):
                sock = stack.enter_context(one.connect())
                sock.sendall(raw_head("native", "Authorization: Bearer " + TOKENS[token], "Content-Length: %d" % len(body), "") + body)
                one.await_metric(name, 1, BOB)
            connection = gateway.UnixConnection(one.path)
            while one.ask("POST", "/mcp", test_mcp_http.INITIALIZE, {"Accept": test_mcp_http.BOTH, **ADA}, connection).status == 200:
                pass
            connection.close()
            yield one


def too_many(request, column):
    """At once, and with a time to wait."""
    full = request.getfixturevalue("full")
    bodies = {"native": {"code": "1"}, "fusion": {"code": "1"}, "tools": {"code": "1"}, "e2b": {"templateID": "base"}, "azure": {"code": "1"},
              "mcp": test_mcp_http.INITIALIZE}
    headers = {"X-API-Key": TOKENS["ada"]} if column == "e2b" else ADA | {"Accept": test_mcp_http.BOTH}
    if column == "sse":
        answer = full.ask("GET", "/python/sse", headers=headers)
    else:
        answer = full.ask("POST", "/v1/tools/run_python_code" if column == "tools" else ASKED_AT_ONCE[column], bodies[column], headers)
    ERRORS[column](answer, 429)
    assert int(answer.headers["Retry-After"]) > 0


# --- an image without what is asked for ---

MISSING = "ipykernel"


def image_native(request):
    hasty = request.getfixturevalue("hasty")
    answer = hasty.ask("POST", "/v1/run", {"code": "1", "language": "ruby"})
    assert answer.status == 200 and answer.json["verdict"] == "setup_failed" and "ruby" in answer.json["message"]
    name = hasty.ask("POST", "/v1/sessions", {}).json["id"]
    answer = hasty.ask("POST", "/v1/sessions/%s/cells" % name, {"code": "1"})
    assert answer.status == 200 and answer.json["verdict"] == "setup_failed" and MISSING in answer.json["message"]
    hasty.ask("DELETE", "/v1/sessions/" + name)


def image_mcp(request):
    client = test_mcp_http.Client(request.getfixturevalue("hasty"))
    is_refused_tool(client.call("run_python", code="1"), MISSING)
    client.end()


def image_sse(request):
    client = test_mcp_http.OldClient(request.getfixturevalue("hasty"))
    is_refused_tool(client.python("1"), MISSING)
    client.stream.close()


def image_e2b(request):
    hasty = request.getfixturevalue("hasty")
    assert MISSING in test_e2b.error_of(hasty.ask("POST", "/v2/sandboxes", {"templateID": "base"}), 501)
    hasty.await_metric("hutch_sessions", 0)


def image_fusion(request):
    hasty = request.getfixturevalue("hasty")
    answer = hasty.ask("POST", "/run_jupyter", {"cells": ["1"], "total_timeout": 60})
    assert answer.status == 200 and answer.json["status"] == "SandboxError" and MISSING in answer.json["message"], answer.body
    answer = hasty.ask("POST", "/run_code", {"code": "1", "language": "ruby"})
    assert answer.status == 200 and answer.json["status"] == "SandboxError" and "ruby" in answer.json["message"], answer.body


def image_azure(request):
    hasty = request.getfixturevalue("hasty")
    name = "image-%s" % uuid.uuid4()
    assert hasty.ask("GET", azure("/files", name)).json["value"] == []  # files need no interpreter
    assert hasty.ask("POST", azure("/files", name), upload("x")).status == 200
    found = hasty.ask("POST", azure("/executions", name), {"code": "1"}).json
    assert found["status"] == "Failed" and MISSING in found["result"]["stderr"]
    found = hasty.ask("POST", azure("/code/execute", name, "2024-02-02-preview"), {"properties": {"code": "1"}}).json["properties"]
    assert found["status"] == "Failure" and MISSING in found["stderr"]
    assert hasty.ask("DELETE", azure("/session", name)).status == 204


# --- clients that read nothing ---

def begin(server, column, code, headers, path=None, receive=None):
    """A request that executes @code, on a connection of its own, from which nothing is read."""
    bodies = {"native": {"code": code}, "fusion": {"code": code, "run_timeout": 25}, "tools": {"code_string": code}, "e2b": {"code": code},
              "azure": {"code": code}, "mcp": {**call(code=code), "id": 77}, "sse": {**call(code=code), "id": 77}}
    bodies["mcp"]["params"]["_meta"] = bodies["sse"]["params"]["_meta"] = {"progressToken": 1}
    body = json.dumps(bodies[column]).encode()
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    if receive:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
    sock.settimeout(gateway.SECONDS)
    sock.connect(server.path)
    path = path or {"e2b": "/execute", "tools": "/v1/tools/run_python_code"}.get(column) or ASKED_AT_ONCE[column]
    sock.sendall(raw_head(column, *("%s: %s" % row for row in headers.items()), "Content-Length: %d" % len(body), "", path=path) + body)
    return sock


def deaf(request, column):
    """Its code ends, by the limit of its output, and others go on meanwhile."""
    server = request.getfixturevalue("server")
    counted = ["hutch_%s_total{verdict=\"%s\"}" % (what, verdict) for what in ("cells", "runs") for verdict in ("output_limit", "killed")]
    headers = request.getfixturevalue("sandbox").headers("49999") if column == "e2b" else ADA
    metrics = server.metrics(ADA)
    before = sum(metrics[name] for name in counted)
    with begin(server, column, FLOOD, headers, None, 4096):
        while sum((metrics := server.metrics(ADA))[name] for name in counted) == before:
            assert server.ask("POST", "/v1/run", {"code": "print(1)"}, ADA).json["stdout"] == "1\n"
            assert metrics["hutch_http_held_bytes"] < 40 << 20
    server.await_metric("hutch_running", 0, ADA)


def deaf_sse(request):
    """Its stream is not read until its code has ended, as its next call shows."""
    server = request.getfixturevalue("server")
    client = test_mcp_http.OldClient(server, "/mcp/sse", ADA)
    number = client.begin("tools/call", {"name": "run_python", "arguments": {"code": "for i in range(100000): print('x' * 100)"},
                                         "_meta": {"progressToken": 1}})
    for _ in range(10):
        assert server.ask("POST", "/v1/run", {"code": "print(1)"}, ADA).json["stdout"] == "1\n"
        assert server.metrics(ADA)["hutch_http_held_bytes"] < 40 << 20
    while (message := client.stream.message()).get("id") != number:
        pass
    assert "result" in message
    client.stream.close()


# --- SIGKILL of the server ---

STREAMS = {"native": {"Accept": "text/event-stream"}, "mcp": {"Accept": "text/event-stream"}}


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """What each client has read, of a server that was killed while it ran their code."""
    support.become_subreaper()
    folder, found = tmp_path_factory.mktemp("killed"), {}
    with Server(folder, *FORMATS, "--workers", "1", image="python") as server:
        sandbox, client = test_e2b.Sandbox(server, timeout=600), test_mcp_http.Client(server)
        old = test_mcp_http.OldClient(server, "/mcp/sse")
        headers = {"mcp": client.headers, "e2b": sandbox.headers("49999"), "native": STREAMS["native"]}
        socks = {column: begin(server, column, SLEEP, {**headers.get(column, {}), **STREAMS.get(column, {})}, old.path if column == "sse" else None)
                 for column in COLUMNS}
        for column in ("native", "mcp", "e2b"):
            found[column] = b""
            while b"begun" not in found[column]:
                found[column] += socks[column].recv(65536)
        assert old.stream.message()["params"]["message"] == "begun\n"
        server.await_metric("hutch_http_exchanges", 8)  # theirs, the stream, and the one that asks
        below = support.descendants(server.process.pid)
        server.signal(9)
        for column, sock in socks.items():
            found[column] = found.get(column, b"") + gateway.read_all(sock)
            sock.close()
        with pytest.raises((ConnectionError, gateway.http.client.IncompleteRead)):
            old.stream.answer.read()
        old.stream.close()
        server.await_end()
        server.process.stderr.close()
    with Server(folder, *FORMATS) as server:
        assert server.run("print(1)")["stdout"] == "1\n" and server.metrics()["hutch_sessions"] == 0
        await_that(lambda: not below & support.descendants(os.getpid()))
        yield found


def cut_off(request, column):
    """An error, and not an end: no last chunk of a stream, nor anything of an answer that was not begun."""
    found = request.getfixturevalue("killed")[column]
    if column == "sse":
        assert found.startswith(b"HTTP/1.1 202 ") and found.endswith(b"\r\n\r\n")  # its stream was broken off: killed()
    elif column in ("native", "mcp", "e2b"):
        assert b"begun" in found and b"Transfer-Encoding: chunked" in found and not found.endswith(b"0\r\n\r\n"), found
    else:
        assert found == b""


# --- the table ---

def everywhere(function):
    return {column: function for column in COLUMNS}


LAX = Nothing("is not strict: its clients' newer versions send keys that nobody here knows")
NO_IDS = Nothing("has no ids: each request is for itself")
NO_FILES = Nothing("names no files: its tools take code alone")
PYTHON = Nothing("names no language: all code is Python")
NO_VERSION = Nothing("has no version of the interface in its requests")

TABLE = {
    "malformed JSON": everywhere(malformed),
    "wrong types": everywhere(wrong_types),
    "unknown keys": {"native": unknown_keys_native, "mcp": unknown_keys_mcp, "sse": unknown_keys_sse, "e2b": LAX, "fusion": LAX, "azure": LAX,
                     "tools": Nothing("is lenient: a model that adds an argument has said its code all the same")},
    "NUL and surrogates": everywhere(no_text),
    "deep nesting": everywhere(deep),
    "body over the limit": everywhere(too_large),
    "slow head": everywhere(slow_head),
    "slow body": everywhere(slow_body),
    "conflicting lengths": everywhere(two_lengths),
    "bad chunking": everywhere(bad_chunks),
    "oversized headers": everywhere(large_headers),
    "unknown path": everywhere(unknown_path),
    "no token": everywhere(without_token),
    "traversal": {"native": traversal_native, "mcp": names_mcp, "sse": names_sse, "e2b": Elsewhere("test_e2b.py::test_traversal"),
                  "fusion": Elsewhere("test_fusion.py::test_bad_request", "test_fusion.py::test_bad_cells"), "azure": traversal_azure, "tools": NO_FILES},
    "absolute and device names": {"native": absolute_native, "mcp": names_mcp, "sse": names_sse, "e2b": absolute_e2b,
                                  "fusion": Elsewhere("test_fusion.py::test_bad_request", "test_fusion.py::test_bad_cells"),
                                  "azure": absolute_azure, "tools": NO_FILES},
    "forged, foreign and expired ids": {"native": ids_native, "mcp": ids_mcp, "sse": ids_sse, "e2b": Elsewhere("test_e2b.py::test_whose_it_is"),
                                        "fusion": NO_IDS, "azure": ids_azure, "tools": NO_IDS},
    "unknown api-version": {"native": Nothing("has it in the path: an unknown one is an unknown path"), "mcp": version_mcp,
                            "sse": Nothing("agrees on one in initialize, where an unknown one is answered with one that is known"),
                            "e2b": NO_VERSION, "fusion": NO_VERSION, "azure": version_azure, "tools": NO_VERSION},
    "unknown language": {"native": language_native, "mcp": PYTHON, "sse": PYTHON, "e2b": language_e2b, "fusion": language_fusion, "azure": PYTHON,
                         "tools": PYTHON},
    "limit above the policy's": {"native": limit_native, "mcp": limit_mcp, "sse": limit_sse, "e2b": limit_e2b, "fusion": limit_fusion,
                                 "azure": Nothing("takes a longer time for the policy's, as its clients ask for 100 seconds always"),
                                 "tools": Nothing("has no limits in its requests")},
    "a full queue": everywhere(too_many),
    "image without a language": {"native": image_native, "mcp": image_mcp, "sse": image_sse, "e2b": image_e2b, "fusion": image_fusion, "azure": image_azure,
                                 "tools": Elsewhere("test_tools.py::test_image_without_shell")},
    "a client that reads nothing": everywhere(deaf) | {"sse": deaf_sse,
                                                       "native": Elsewhere("test_gateway_stream.py::test_client_that_reads_nothing"),
                                                       "mcp": Elsewhere("test_mcp_http.py::test_client_that_reads_nothing")},
    "SIGKILL of the server": everywhere(cut_off),
}


def functions_of(name):
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), name), encoding="utf-8") as file:
        return {node.name for node in ast.parse(file.read()).body if isinstance(node, ast.FunctionDef)}


def test_table():
    """No cell is empty, and each test that is named is there."""
    for row, cells in TABLE.items():
        assert list(cells) == COLUMNS, row
        for cell in cells.values():
            for test in getattr(cell, "tests", ()):
                name, _, function = test.partition("::")
                assert function in functions_of(name), test


CELLS = [(row, column) for row, cells in TABLE.items() for column, cell in cells.items() if callable(cell)]


@pytest.mark.parametrize("row,column", CELLS, ids=["%s-%s" % cell for cell in CELLS])
def test_cell(request, row, column):
    function = TABLE[row][column]
    if function.__code__.co_argcount == 2:
        function(request, column)
    else:
        function(request)


# --- Azure's paths and versions ---

def test_azure_paths_and_versions(server):
    """Old paths with new versions, new paths with old ones, and the version that was there for some days only."""
    name = "paths-%s" % uuid.uuid4()
    found = server.ask("POST", azure("/code/execute", name, VERSION), {"properties": {"code": "6 * 7"}}, ADA)
    assert found.status == 200 and found.json["result"]["executionResult"] == 42, found.body
    found = server.ask("POST", azure("/executions", name, "2024-02-02-preview"), {"code": "6 * 7"}, ADA)
    assert found.status == 200 and (found.json["properties"]["status"], found.json["properties"]["result"]) == ("Success", 42), found.body
    found = server.ask("POST", azure("/executions", name, "2024-09-01"), {"code": "6 * 7"}, ADA)
    assert found.status == 200 and found.json["result"]["executionResult"] == "42", found.body
    assert server.ask("POST", azure("/files/upload", name, VERSION), upload("new.txt"), ADA).json["sizeInBytes"] == 1
    assert server.ask("POST", azure("/files", name, "2024-02-02-preview"), upload("old.txt"), ADA).json["value"][0]["properties"]["size"] == 1
    rows = server.ask("GET", azure("/files", name, "2024-09-01"), headers=ADA).json["value"]
    assert sorted(row["name"] for row in rows) == ["new.txt", "old.txt"]
    assert server.ask("GET", azure("/files/content/new.txt", name, VERSION), headers=ADA).body == b"x"
    assert server.ask("GET", azure("/files/old.txt/content", name, "2024-02-02-preview"), headers=ADA).body == b"x"
    coded = base64.b64encode(b"1 / 0").decode()
    found = server.ask("POST", azure("/executions", name, "2024-09-01"), {"code": coded, "codeInputType": "inlineBase64"}, ADA)
    assert found.json["status"] == "Failed" and "ZeroDivisionError" in found.json["result"]["stderr"]
    assert server.ask("DELETE", azure("/session", name), headers=ADA).status == 204


def test_azure_alone(tmp_path):
    """Without a prefix its words are used for what nobody has."""
    with Server(tmp_path, "--format", "azure") as server:
        azure_error(server.ask("GET", "/nothing"), 404)
        azure_error(server.ask("GET", "/files"), 400)
        native_error(server.ask("GET", "/v1/nothing"), 404)
