"""Proxies in front of `hutch serve`, with the configurations of docs/: haproxy and two servers, nginx with TLS."""
import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import threading

import pytest

import gateway
import support
from gateway import SECONDS, Server
from websocket import WebSocket

FOLDER = os.path.join(os.environ.get("HUTCH_TEST_CLIENTS") or os.path.join(support.TREE, "build", "clients"), "proxies")
NAME_HEADER = ("--id-header", "X-Hutch-Session")


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def program(name):
    path = os.path.join(FOLDER, "root", "usr", "sbin", name)
    if not os.path.exists(path):
        support.miss("apt: %s is not there (make clients)" % name)
    return path


class Proxy:
    """A proxy in the foreground, and requests to it."""

    def __init__(self, words, port, context=None, **env):
        self.port, self.context = port, context
        libraries = [os.path.join(FOLDER, "root", "usr", "lib", name) for name in os.listdir(os.path.join(FOLDER, "root", "usr", "lib"))]
        env = {**os.environ, **env, "LD_LIBRARY_PATH": ":".join(libraries)}
        self.process = subprocess.Popen(words, env=env, stderr=subprocess.PIPE)
        gateway.await_that(self.answers)

    def answers(self):
        assert self.process.poll() is None, self.process.stderr.read()
        try:
            return self.ask("GET", "/readyz")[0] == 200
        except OSError:
            return False

    def connect(self):
        if self.context:
            return http.client.HTTPSConnection("localhost", self.port, timeout=SECONDS, context=self.context)
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)

    def dial(self, name="localhost"):
        """A connection without a word said."""
        sock = socket.create_connection(("127.0.0.1", self.port), SECONDS)
        return self.context.wrap_socket(sock, server_hostname=name) if self.context else sock

    def ask(self, method, path, body=None, **headers):
        """(status, JSON or text)."""
        connection = self.connect()
        try:
            headers = {name.replace("_", "-"): value for name, value in headers.items()}
            if body is not None:
                headers["Content-Type"] = "application/json"
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        is_json = text[:1] in (b"{", b"[") and b"\n" not in text.strip()  # else it is a stream of it
        return answer.status, json.loads(text) if is_json else text.decode()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(SECONDS)
        finally:
            if self.process.poll() is None:
                self.process.kill()
            self.process.stderr.close()


@pytest.fixture
def servers(tmp_path):
    """Two of them."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with Server(tmp_path / "a", *NAME_HEADER, image="python") as a, Server(tmp_path / "b", *NAME_HEADER, image="python") as b:
        yield a, b


def haproxy(a, b, *more):
    """@more: words of its command line."""
    port = free_port()
    config = os.path.join(support.TREE, "docs", "haproxy.cfg")
    return Proxy([program("haproxy"), "-f", config, *more, "-db"], port, HUTCH_BIND="127.0.0.1:%d" % port, HUTCH_A=a.path, HUTCH_B=b.path)


def run(proxy, code):
    status, result = proxy.ask("POST", "/v1/run", {"code": code})
    assert status == 200 and result["verdict"] == "ok", result
    return result["stdout"]


def cell(proxy, name, code):
    return proxy.ask("POST", "/v1/sessions/%s/cells" % name, {"code": code})


def stream_of(result):
    return "".join(output.get("text", "") for output in result["outputs"])


def counts_of(servers):
    return [server.metrics()["hutch_sessions"] for server in servers]


def enough(servers):
    """Numbers of sessions to be opened: until both servers have one, as the proxy draws where each goes."""
    for i in range(60):
        if i >= 10 and min(counts_of(servers)) > 0:
            return
        yield i


def test_sessions_stay_where_they_are(servers):
    """Of each the state is there, whatever connection asks; both servers have some."""
    with haproxy(*servers) as proxy:
        names = []
        for i in enough(servers):
            status, session = proxy.ask("POST", "/v1/sessions", {})
            assert status == 201, session
            names.append(session["id"])
            assert cell(proxy, names[i], "x = %d" % i)[0] == 200
        assert len(set(names)) == len(names) and all(len(name) == 21 for name in names)
        for i, name in enumerate(names):
            status, result = cell(proxy, name, "print(x)")
            assert status == 200 and stream_of(result) == "%d\n" % i, result
        counts = counts_of(servers)
        assert sum(counts) == len(names) and min(counts) > 0, counts
        assert cell(proxy, "A" * 21, "1")[0] == 404
        for name in names:
            assert proxy.ask("DELETE", "/v1/sessions/" + name)[0] < 300


def test_sandboxes_stay_where_they_are(servers):
    """Those of E2B's: by the path, by the header, and by the name of the host."""
    with haproxy(*servers) as proxy:
        created = []
        for i in enough(servers):
            status, sandbox = proxy.ask("POST", ("/sandboxes", "/v2/sandboxes")[i % 2], {"templateID": "base", "timeout": 60})
            assert status == 201, sandbox
            created.append(sandbox)
        names = [sandbox["sandboxID"] for sandbox in created]
        assert len(set(names)) == len(names) and all(len(name) == 26 for name in names)
        for i, sandbox in enumerate(created):
            name, more = sandbox["sandboxID"], {"X_Access_Token": sandbox["envdAccessToken"]}
            assert proxy.ask("GET", "/sandboxes/" + name)[1]["sandboxID"] == name
            by_header = proxy.ask("POST", "/execute", {"code": "x = %d" % i}, E2b_Sandbox_Id=name, E2b_Sandbox_Port="49999", **more)
            assert by_header[0] == 200, by_header
            by_host = proxy.ask("POST", "/execute", {"code": "print(x)"}, Host="49999-%s.localhost" % name, **more)
            assert by_host[0] == 200 and '"%d\\n"' % i in by_host[1], by_host
            assert proxy.ask("POST", "/v2/sandboxes/%s/connect" % name, {"timeout": 60})[0] in (200, 201)
        assert min(counts_of(servers)) > 0
        for name in names:
            assert proxy.ask("DELETE", "/sandboxes/" + name)[0] == 204


BOTH = "application/json, text/event-stream"
INITIALIZE = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
    "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}}


def initialize(proxy, **headers):
    """The name of the session."""
    connection = proxy.connect()
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("POST", "/mcp", json.dumps(INITIALIZE), {"Content-Type": "application/json", "Accept": BOTH, **headers})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    assert answer.status == 200 and len(answer.headers["Mcp-Session-Id"]) == 21
    return answer.headers["Mcp-Session-Id"]


def test_mcp_sessions_stay_where_they_are(servers):
    with haproxy(*servers) as proxy:
        for i in range(8):
            name = initialize(proxy)
            for _ in range(3):
                status, text = proxy.ask("POST", "/mcp", {"jsonrpc": "2.0", "id": 2, "method": "ping"}, Accept=BOTH, Mcp_Session_Id=name)
                assert status == 200, text
            assert proxy.ask("DELETE", "/mcp", Mcp_Session_Id=name)[0] == 204


NEWER = "2026-07-28"


def newer_body(arguments, tool="run_python"):
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments, "_meta": {
        "io.modelcontextprotocol/protocolVersion": NEWER, "io.modelcontextprotocol/clientCapabilities": {}}}}


def newer_headers(tool="run_python"):
    return {"MCP_Protocol_Version": NEWER, "Mcp_Method": "tools/call", "Mcp_Name": tool, "Accept": BOTH}


def newer_result(found):
    """Of what .ask() has given: an object, or events."""
    status, found = found
    assert status == 200, found
    if isinstance(found, str):
        found = json.loads([line for line in found.splitlines() if line.startswith("data: ")][-1][6:])
    return found["result"]


def newer_call(proxy, tool="run_python", **arguments):
    """A call of MCP's newer era, which has no session."""
    return newer_result(proxy.ask("POST", "/mcp", newer_body(arguments, tool), **newer_headers(tool)))


def test_handles_of_mcps_newer_era_stay_where_they_are(servers):
    """They are in the body, before the code or behind it; none is found by chance, and headers of the older era say nothing."""
    with haproxy(*servers) as proxy:
        handles = [newer_call(proxy, code="x = %d" % i, **({} if i % 2 else {"session_id": "new"}))["structuredContent"]["session_id"]
                   for i in enough(servers)]
        assert len(set(handles)) == len(handles) and all(len(handle) == 21 for handle in handles)
        for i, handle in enumerate(handles):
            for arguments in ({"code": "x", "session_id": handle}, {"session_id": handle, "code": "x #" + "y" * 100000},
                              {"code": "x #" + "y" * 50000, "session_id": handle}):
                assert newer_call(proxy, **arguments)["structuredContent"]["result"] == str(i)
            body, headers = newer_body({"code": "x", "session_id": handle}), newer_headers()
            found = newer_result(proxy.ask("POST", "/mcp", body, **headers, Mcp_Session_Id=handles[i - 1], X_Hutch_Route=handles[i - 1]))
            assert found["structuredContent"]["result"] == str(i)
        counts = counts_of(servers)
        assert sum(counts) == len(handles) and min(counts) > 0, counts
        lost = newer_call(proxy, code="x", session_id="A" * 21)
        assert lost["isError"] and "no session" in lost["content"][0]["text"]
        for handle in ("A\r\nX-Hutch-Session: " + "B" * 21, "A" * 21 + "\r\n\r\nGET / HTTP/1.1", "", "\0", "new\n"):
            assert newer_call(proxy, code="1", session_id=handle)["isError"], handle
        for text in (b"{", b"", b'{"params": {"arguments": {"session_id": ["' + b"A" * 21 + b'"]}}}', b"[" * 100000, b"\xff" * 1000):
            connection = proxy.connect()
            connection.request("POST", "/mcp", text, {"Content-Type": "application/json", "Accept": BOTH, "MCP-Protocol-Version": NEWER})
            assert connection.getresponse().status == 400, text
            connection.close()


def test_azures_sessions_stay_where_they_are(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    words = (*NAME_HEADER, "--format", "azure")
    with Server(tmp_path / "a", *words, image="python") as a, Server(tmp_path / "b", *words, image="python") as b, haproxy(a, b) as proxy:
        for code, wanted in (("x = '%s'", None), ("print(x)", "%s\n")):
            for i in range(8):
                status, result = proxy.ask("POST", "/executions?api-version=2025-02-02-preview&identifier=name-%d" % i, {
                    "codeInputType": "Inline", "executionType": "Synchronous", "code": code % i if wanted is None else code})
                assert status in (200, 202), result
                assert wanted is None or result["result"]["stdout"] == wanted % i, result
        assert min(counts_of((a, b))) > 0


def test_a_client_chooses_no_name(servers):
    """Whatever header or query of some format has one: that of what is new is drawn."""
    chosen = "B" * 21
    asked = {"X_Hutch_Session": chosen, "X_Hutch_Route": chosen, "Mcp_Session_Id": chosen, "E2b_Sandbox_Id": "b" * 26,
             "Host": "49999-%s.localhost" % ("b" * 26)}
    with haproxy(*servers) as proxy:
        for name, value in asked.items():
            status, session = proxy.ask("POST", "/v1/sessions?identifier=" + chosen, {}, **{name: value})
            assert status == 201 and session["id"] != chosen
            assert cell(proxy, session["id"], "1")[0] == 200
            assert proxy.ask("DELETE", "/v1/sessions/" + session["id"])[0] < 300
            status, sandbox = proxy.ask("POST", "/sandboxes", {"templateID": "base"}, **{name: value})
            assert status == 201 and sandbox["sandboxID"] != "b" * 26
            assert proxy.ask("DELETE", "/sandboxes/" + sandbox["sandboxID"])[0] == 204
            if name != "Mcp_Session_Id":  # which the server takes for what it is, and does not know
                opened = initialize(proxy, **{name: value})
                assert opened != chosen
                assert proxy.ask("DELETE", "/mcp", Mcp_Session_Id=opened)[0] == 204
            made = newer_result(proxy.ask("POST", "/mcp", newer_body({"code": "x = 1"}), **newer_headers(), **{name: value}))
            handle = made["structuredContent"]["session_id"]
            assert handle != chosen and newer_call(proxy, code="x", session_id=handle)["structuredContent"]["result"] == "1"


def test_names_from_the_proxy(tmp_path):
    """Of the right form and once."""
    with Server(tmp_path, *NAME_HEADER) as server:
        name = "0123456789-_abcdefABC"
        assert server.ask("POST", "/v1/sessions", {}, {"X-Hutch-Session": name}).json["id"] == name
        for other in (name, "short", "x" * 22, "/" * 21, ""):
            answer = server.ask("POST", "/v1/sessions", {}, {"X-Hutch-Session": other})
            assert answer.error["code"] == "invalid_request" and "name" in answer.error["message"], other
        assert server.ask("POST", "/v1/sessions", {}).status == 201, "without one it is drawn"
    with Server(tmp_path) as server:
        assert server.ask("POST", "/v1/sessions", {}, {"X-Hutch-Session": name}).json["id"] != name


@pytest.mark.parametrize("workers", ["1", "2"])
def test_handles_from_the_proxy(tmp_path, workers):
    """Of MCP's newer era; whichever worker is asked."""
    with Server(tmp_path, *NAME_HEADER, "--workers", workers, image="python") as server:
        def call(given=None, **arguments):
            headers = {name.replace("_", "-"): value for name, value in newer_headers().items()}
            answer = server.ask("POST", "/mcp", newer_body(arguments), {**headers, **({"X-Hutch-Session": given} if given else {})})
            text = answer.body.decode()
            return newer_result((answer.status, text if "data: " in text else answer.json))

        for i in range(4):
            name = "0123456789-_abcdefAB%d" % i
            assert call(name, code="x = %d" % i)["structuredContent"]["session_id"] == name
            for other in (None, "C" * 21, "D" * 21):
                assert call(other, code="x", session_id=name)["structuredContent"]["result"] == str(i), "what is there is found"
            assert call(name, code="x = 7")["structuredContent"]["session_id"] != name, "it is taken"
            assert call(name, code="x", session_id=name)["structuredContent"]["result"] == str(i)
        for nonsense in ("short", "x" * 22, "/" * 21):
            assert len(call(nonsense, code="1")["structuredContent"]["session_id"]) == 21


def test_a_server_dies(servers):
    """What ran there is lost and says so, everything else goes on; its sessions are known no more."""
    a, b = servers
    answers, broken, stop = [], [], threading.Event()

    def ask(n, proxy):
        i = 0
        while not stop.is_set() or i == 0:
            i += 1
            nonce = "%d.%d" % (n, i)
            try:
                status, result = proxy.ask("POST", "/v1/run", {"code": "print(%r)" % nonce})
            except (OSError, http.client.HTTPException):
                broken.append(nonce)
                continue
            if status == 200 and result["verdict"] == "ok":
                answers.append((nonce, result["stdout"].strip()))
            else:
                broken.append((nonce, status, result))

    with haproxy(a, b) as proxy:
        sessions = [proxy.ask("POST", "/v1/sessions", {})[1]["id"] for _ in range(8)]
        assert all(cell(proxy, name, "x = 1")[0] == 200 for name in sessions)
        there = int(b.metrics()["hutch_sessions"])
        askers = [threading.Thread(target=ask, args=(n, proxy)) for n in range(4)]
        for thread in askers:
            thread.start()
        gateway.await_that(lambda: len(answers) > 40)
        a.process.send_signal(signal.SIGKILL)
        a.process.wait(SECONDS)
        killed_at = len(answers)
        gateway.await_that(lambda: len(answers) > killed_at + 40)
        stop.set()
        for thread in askers:
            thread.join(SECONDS)
        assert len(broken) <= len(askers), broken
        assert all(nonce == said for nonce, said in answers) and len(set(answers)) == len(answers)
        kept = [name for name in sessions if cell(proxy, name, "x")[0] == 200]
        assert len(kept) == there and run(proxy, "print(6 * 7)") == "42\n"
        # The other one is asked as soon as the proxy has noticed.
        gateway.await_that(lambda: all(cell(proxy, name, "x")[0] == 404 for name in set(sessions) - set(kept)))
    a.process.returncode = 0  # its end was meant


ALL_FORMATS = [word for name in ("mcp", "e2b", "azure=/azure") for word in ("--format", name)]


class OldStream:
    """MCP's transport of 2024-11-05: one stream, and posts to where it says."""

    def __init__(self, proxy, number):
        self.proxy, self.connection = proxy, proxy.connect()
        self.connection.request("GET", "/mcp/sse", headers={"Accept": "text/event-stream"})
        self.answer = self.connection.getresponse()
        self.path = self.event()
        assert self.answer.status == 200 and self.path.startswith("/mcp/messages/"), self.path
        assert self.post({**INITIALIZE, "id": 0}) == 202 and json.loads(self.event())["id"] == 0
        assert self.post({"jsonrpc": "2.0", "method": "notifications/initialized"}) == 202
        assert self.value("x = %d" % number) is None

    def event(self):
        """The data of the next one; comments are passed over."""
        while True:
            line = self.answer.readline().decode()
            if not line:
                raise EOFError
            if line.startswith("data: "):
                return line[6:].rstrip("\n")

    def post(self, body):
        return self.proxy.ask("POST", self.path, body)[0]

    def value(self, code):
        assert self.post({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "run_python", "arguments": {"code": code}}}) == 202
        result = json.loads(self.event())["result"]
        assert result["isError"] is False, result
        return result["structuredContent"].get("result")

    def close(self):
        self.answer.close()
        self.connection.close()


def test_old_streams_stay_where_they_are(servers):
    """Their posts come by other connections, and reach the server that has the stream."""
    with haproxy(*servers) as proxy:
        streams = [OldStream(proxy, i) for i in range(16)]  # all at one server: once in 32,768 times
        assert [stream.value("x") for stream in streams] == [str(i) for i in range(16)]
        assert min(counts_of(servers)) > 0
        for stream in streams:
            stream.close()


def test_sessions_of_a_server_that_dies(tmp_path):
    """They are gone in the words of each format; those of the other server are not. A stream breaks, and nothing is
    sent to it any more."""
    for name in "ab":
        (tmp_path / name).mkdir()
    words = (*NAME_HEADER, *ALL_FORMATS)
    with Server(tmp_path / "a", *words, image="python") as a, Server(tmp_path / "b", *words, image="python") as b, haproxy(a, b) as proxy:
        def mcp(name, method="tools/call", arguments=None):
            body = {"jsonrpc": "2.0", "id": 2, "method": method, "params": {"name": "run_python", "arguments": arguments or {"code": "x"}}}
            return proxy.ask("POST", "/mcp", body, Accept=BOTH, Mcp_Session_Id=name)

        def azure(name, method="GET", path="session", body=None):
            return proxy.ask(method, "/azure/%s?api-version=2025-10-02-preview&identifier=%s" % (path, name), body)

        def execute(sandbox, code):
            return proxy.ask("POST", "/execute", {"code": code}, Host="49999-%s.localhost" % sandbox["sandboxID"],
                             X_Access_Token=sandbox["envdAccessToken"])

        def newer(handle):
            return newer_call(proxy, code="x", session_id=handle)

        opened = {
            "native": [proxy.ask("POST", "/v1/sessions", {})[1]["id"] for _ in range(8)],
            "e2b": [proxy.ask("POST", "/v2/sandboxes", {"templateID": "base", "timeout": 600})[1] for _ in range(8)],
            "mcp": [initialize(proxy) for _ in range(8)],
            "newer": [newer_call(proxy, code="x = 1")["structuredContent"]["session_id"] for _ in range(8)],
            "azure": ["name-%d" % i for i in range(8)],
            "old": [OldStream(proxy, i) for i in range(8)],
        }
        for name in opened["azure"]:
            assert azure(name, "POST", "executions", {"code": "x = 1"})[1]["status"] == "Succeeded"
        alive = {
            "native": lambda name: proxy.ask("GET", "/v1/sessions/" + name)[0] == 200,
            "e2b": lambda sandbox: execute(sandbox, "1")[0] == 200,
            "mcp": lambda name: mcp(name, "ping")[0] == 200,
            "newer": lambda name: not newer(name)["isError"],
            "azure": lambda name: azure(name)[0] == 200,
            "old": lambda stream: stream.post({"jsonrpc": "2.0", "method": "notifications/x"}) == 202,
        }
        assert all(alive[kind](one) for kind, names in opened.items() for one in names)
        a.process.send_signal(signal.SIGKILL)
        a.process.wait(SECONDS)
        gateway.await_that(lambda: all(proxy.ask("GET", "/v1/sessions/" + name)[0] in (200, 404) for name in opened["native"]))
        kept = {kind: [one for one in names if alive[kind](one)] for kind, names in opened.items()}
        lost = {kind: [one for one in names if one not in kept[kind]] for kind, names in opened.items()}
        # Of eight at random all are at one server once in 128 times.
        assert sum(bool(kept[kind] and lost[kind]) for kind in opened) >= 4, (kept, lost)

        for name in lost["native"]:
            status, found = cell(proxy, name, "x")
            assert status == 404 and list(found["error"]) == gateway.ERROR_KEYS and found["error"]["code"] == "not_found", found
        for sandbox in lost["e2b"]:
            for found in (proxy.ask("GET", "/sandboxes/" + sandbox["sandboxID"]), execute(sandbox, "1"),
                          proxy.ask("POST", "/v2/sandboxes/%s/connect" % sandbox["sandboxID"], {"timeout": 60})):
                assert found[0] == 404 and list(found[1]) == ["code", "message"] and found[1]["code"] == 404, found
            assert proxy.ask("GET", "/health", E2b_Sandbox_Id=sandbox["sandboxID"], E2b_Sandbox_Port="49983")[0] == 502
        for name in lost["mcp"]:
            status, found = mcp(name)
            assert status == 404 and found["jsonrpc"] == "2.0" and "no such session" in found["error"]["message"], found
            assert proxy.ask("DELETE", "/mcp", Mcp_Session_Id=name)[0] == 404
        for handle in lost["newer"]:
            found = newer(handle)
            assert found["isError"] and "no session" in found["content"][0]["text"], found
        for name in lost["azure"]:
            status, found = azure(name)
            assert status == 404 and list(found) == ["error"] and found["error"]["code"] and found["error"]["message"], found
            assert azure(name, path="executions/" + "A" * 21)[0] == 404
        for stream in lost["old"]:
            status, found = proxy.ask("POST", stream.path, INITIALIZE)
            assert status == 404 and found["jsonrpc"] == "2.0" and "no such session" in found["error"]["message"], found
            with pytest.raises((EOFError, http.client.IncompleteRead, OSError)):
                stream.event()
        assert all(stream.value("x") == str(opened["old"].index(stream)) for stream in kept["old"])
        for name in lost["azure"]:  # whoever names a session makes it where there is none
            assert azure(name, "POST", "executions", {"code": "x"})[1]["status"] == "Failed"
        for stream in opened["old"]:
            stream.close()
    a.process.returncode = 0  # its end was meant


def counters(path):
    """{(proxy, server): a row of haproxy's statistics}."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.connect(path)
        sock.sendall(b"show stat\n")
        rows = [line.split(",") for line in gateway.read_all(sock).decode().lstrip("# ").splitlines() if line]
    return {(row[0], row[1]): dict(zip(rows[0], row)) for row in rows[1:]}


def test_runs_that_had_not_begun(servers, tmp_path):
    """They are tried elsewhere: where a server takes no connection any more, and where it says that it ends. Its end is not noticed
    otherwise, as nobody asks whether it is there."""
    a, b = servers
    path = os.path.join(str(tmp_path), "h")
    path = path if len(path) < 100 else "/tmp/hutch-test-%d.haproxy" % os.getpid()
    (tmp_path / "more.cfg").write_text("global\n    stats socket %s mode 600 level admin\n" % path)
    with haproxy(a, b, "-f", str(tmp_path / "more.cfg")) as proxy:
        connection = proxy.connect()
        for _ in range(4):  # so that the proxy has connections to both, which it keeps
            assert run(proxy, "print(1)") == "1\n"
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.connect(path)
            sock.sendall(b"disable health runs/a\n")
            assert gateway.read_all(sock).strip() == b""
        held = gateway.UnixConnection(a.path)
        held.request("POST", "/v1/run", json.dumps({"code": "import time; time.sleep(5); print('held')"}), {"Content-Type": "application/json"})
        gateway.await_that(lambda: a.metrics().get("hutch_http_exchanges", 0) >= 2)
        a.signal(signal.SIGTERM)
        a.await_event("draining")
        for i in range(12):
            assert run(proxy, "print(%d)" % i) == "%d\n" % i
        found = counters(path)[("runs", "a")]
        assert found["status"] == "UP" or "no check" in found["status"], found
        assert int(found["wretr"]) + int(found["wredis"]) > 0, found
        assert json.loads(held.getresponse().read())["stdout"] == "held\n"
        held.close()
        connection.close()


def test_a_terminal_through_haproxy(servers):
    """It is with the server that has the session, whichever connection asks for it."""
    with haproxy(*servers) as proxy:
        names = [proxy.ask("POST", "/v1/sessions", {"max_processes": 2})[1]["id"] for _ in range(16)]
        for i, name in enumerate(names[:6]):
            assert cell(proxy, name, "open('mine', 'w').write('it is %d')" % i)[0] == 200
            with WebSocket(None, "/v1/sessions/%s/terminal?rows=30&cols=100" % name, sock=proxy.dial()) as ws:
                check_terminal(ws, "cat mine; echo", "it is %d" % i)
        assert min(counts_of(servers)) > 0
        refused = WebSocket(None, "/v1/sessions/%s/terminal" % ("A" * 21), sock=proxy.dial())
        assert refused.answer.status == 404


def check_terminal(ws, line, wanted):
    """Both directions, a resize, and its end."""
    assert ws.event("process")["id"] > 0
    ws.type("stty size\n")
    ws.until("30 100")
    ws.control(type="resize", rows=17, cols=55)
    ws.type("stty size\n")
    ws.until("17 55")
    ws.type(line + "\n")
    ws.until(wanted)
    ws.type("head -c 300000 /dev/zero | tr '\\0' x; echo; echo ov\"\"er\n")
    assert len(ws.until("over")) > 300000
    ws.type("exit 5\n")
    assert ws.event("end")["exit_code"] == 5
    assert ws.closed()[0] == 1000


def certificate(folder):
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
             "subjectAltName=DNS:localhost,DNS:*.box.localhost", "-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    subprocess.run(words, check=True, capture_output=True)
    return ssl.create_default_context(cafile=str(folder / "cert.pem"))


def nginx(folder, server):
    port = free_port()
    with open(os.path.join(support.TREE, "docs", "nginx.conf")) as file:
        config = file.read()
    assert "/run/hutch/hutch.sock" in config and "listen 8443 " in config
    config = config.replace("/run/hutch/hutch.sock", server.path).replace("listen 8443 ", "listen 127.0.0.1:%d " % port)
    (folder / "nginx.conf").write_text(config)
    context = certificate(folder)
    as_root = ("-g", "user root;") if support.is_root() else ()  # its workers would be another user's, who may not connect
    proxy = Proxy([program("nginx"), "-p", str(folder), "-c", "nginx.conf", "-e", "stderr", *as_root], port, context)
    proxy.authority = str(folder / "cert.pem")
    return proxy


def test_tls_by_nginx(tmp_path):
    """A run, a session's file, and events that come before the program has ended: it waits for what the test does when it
    has seen the first."""
    (tmp_path / "nginx").mkdir()
    with Server(tmp_path, image="python") as server, nginx(tmp_path / "nginx", server) as proxy:
        assert run(proxy, "print(6 * 7)") == "42\n"
        name = proxy.ask("POST", "/v1/sessions", {})[1]["id"]
        connection = proxy.connect()
        body = json.dumps({"code": "import os, time\nprint('first', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint('last')"})
        connection.request("POST", "/v1/sessions/%s/cells" % name, body,
                           {"Content-Type": "application/json", "Accept": "text/event-stream"})
        answer = connection.getresponse()
        assert answer.status == 200 and answer.headers["Content-Type"].startswith("text/event-stream")
        seen = b""
        while b"first" not in seen:
            seen += answer.readline()
        assert b"last" not in seen
        upload = proxy.connect()
        upload.request("PUT", "/v1/sessions/%s/files/go" % name, b"x" * 100000)
        assert upload.getresponse().status == 201
        upload.close()
        rest = answer.read()
        assert b"last" in rest
        connection.close()


def test_page_behind_nginx(tmp_path):
    """What the page asks for has the origin that browsers know the proxy by, with its port."""
    (tmp_path / "nginx").mkdir()
    with Server(tmp_path, "--ui", image="python") as server, nginx(tmp_path / "nginx", server) as proxy:
        assert proxy.ask("GET", "/ui/")[0] == 200
        for origin, status in (("https://localhost:%d" % proxy.port, 200), ("https://localhost", 403), ("https://evil.example", 403)):
            assert proxy.ask("POST", "/v1/run", {"code": ""}, Origin=origin)[0] == status, origin


def test_a_terminal_behind_nginx(tmp_path):
    """A WebSocket over TLS."""
    (tmp_path / "nginx").mkdir()
    with Server(tmp_path, image="python") as server, nginx(tmp_path / "nginx", server) as proxy:
        name = proxy.ask("POST", "/v1/sessions", {"max_processes": 2})[1]["id"]
        assert proxy.ask("PUT", "/v1/sessions/%s/files/mine" % name, {"a": 1})[0] == 201
        with WebSocket(None, "/v1/sessions/%s/terminal?rows=30&cols=100" % name, sock=proxy.dial()) as ws:
            check_terminal(ws, "cat /mnt/data/mine; echo", '{"a": 1}')
        with WebSocket(None, "/v1/sessions/%s/terminal" % name, sock=proxy.dial()) as ws:
            ws.event("process")
        gateway.await_that(lambda: not server.ask("GET", "/v1/sessions/%s/processes" % name).json["processes"])  # it has ended with its client
        refused = WebSocket(None, "/v1/sessions/%s/terminal" % ("A" * 21), sock=proxy.dial())
        assert refused.answer.status == 404


def curl(proxy, path, *words, data=None, host="localhost"):
    """(version of HTTP, status, body), by HTTP/2."""
    done = subprocess.run(["curl", "--silent", "--show-error", "--http2", "--cacert", proxy.authority, "--max-time", str(SECONDS),
                           "--resolve", "%s:%d:127.0.0.1" % (host, proxy.port), "--write-out", "\n%{http_version} %{http_code}", *words,
                           "https://%s:%d%s" % (host, proxy.port, path)], input=data, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    body, _, last = done.stdout.rpartition(b"\n")
    version, status = last.decode().split()
    return version, int(status), body


def test_http2_by_nginx(tmp_path):
    """A run, an upload and a download, events, and many requests at once over one connection."""
    (tmp_path / "nginx").mkdir()
    json_type = ("-H", "Content-Type: application/json", "--data-binary", "@-")
    if "HTTP2" not in subprocess.run(["curl", "--version"], capture_output=True, text=True, check=True).stdout:
        support.miss("curl: this one has no HTTP/2")
    with Server(tmp_path, image="python") as server, nginx(tmp_path / "nginx", server) as proxy:
        version, status, body = curl(proxy, "/v1/run", *json_type, data=b'{"code": "print(6 * 7)"}')
        assert (version, status, json.loads(body)["stdout"]) == ("2", 200, "42\n")
        name = json.loads(curl(proxy, "/v1/sessions", *json_type, data=b"{}")[2])["id"]
        data = os.urandom(300000)
        assert curl(proxy, "/v1/sessions/%s/files/data" % name, "--request", "PUT", "--data-binary", "@-", data=data)[:2] == ("2", 201)
        assert curl(proxy, "/v1/sessions/%s/files/data" % name) == ("2", 200, data)
        version, status, body = curl(proxy, "/v1/sessions/%s/cells" % name, *json_type, "-H", "Accept: text/event-stream",
                                     data=b'{"code": "print(1)\\nprint(2)"}')
        assert (version, status) == ("2", 200)
        events = [json.loads(line[6:]) for line in body.decode().splitlines() if line.startswith("data: ")]
        assert "".join(event.get("text", "") for event in events if event.get("type") in ("stdout", "text", None)).startswith("1\n2\n"), body
        paths = ["https://localhost:%d/v1/sessions/%s/files/data" % (proxy.port, name)] * 20
        done = subprocess.run(["curl", "--silent", "--show-error", "--http2", "--parallel", "--cacert", proxy.authority, "--write-out",
                               "%{stderr}%{http_version} %{http_code} %{size_download}\n", *paths], capture_output=True, check=True)
        assert done.stderr.decode().count("2 200 300000\n") == 20 and len(done.stdout) == 20 * 300000, done.stderr  # among its progress


def test_names_of_sandboxes_behind_nginx(tmp_path):
    """Of LiteLLM's provider: it creates at the one host, and executes at 49999-ID of the domain that it is told."""
    (tmp_path / "nginx").mkdir()
    with Server(tmp_path, "--allow-host", "*.box.localhost", image="python") as server, nginx(tmp_path / "nginx", server) as proxy:
        status, made = proxy.ask("POST", "/sandboxes", {"templateID": "code-interpreter-v1", "timeout": 300, "secure": True,
                                                        "allow_internet_access": True})
        assert status == 201 and made["domain"] == "box.localhost" and made["envdAccessToken"]
        host = "49999-%s.box.localhost" % made["sandboxID"]
        body = json.dumps({"code": "print(6 * 7)", "context_id": None, "env_vars": None})
        for name in (host, host):  # state is kept
            sock = proxy.dial(name)  # the certificate is for it
            connection = http.client.HTTPSConnection(name, proxy.port, timeout=SECONDS, context=proxy.context)
            connection.sock = sock
            connection.request("POST", "/execute", body, {"Content-Type": "application/json", "X-Access-Token": made["envdAccessToken"]})
            answer = connection.getresponse()
            lines = [json.loads(line) for line in answer.read().splitlines()]
            assert answer.status == 200 and lines[1]["text"] == "42\n" and lines[-1] == {"type": "end_of_execution"}
            connection.close()
        version, status, text = curl(proxy, "/execute", "-H", "Content-Type: application/json", "-H", "X-Access-Token: " + made["envdAccessToken"],
                                     "--data-binary", "@-", data=body.encode(), host=host)
        assert (version, status) == ("2", 200) and b'"42\\n"' in text
        assert curl(proxy, "/health", host="49999-%s.box.localhost" % ("a" * 26))[1] in (404, 502)
        assert proxy.ask("DELETE", "/sandboxes/" + made["sandboxID"])[0] == 204
