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


def haproxy(a, b):
    port = free_port()
    config = os.path.join(support.TREE, "docs", "haproxy.cfg")
    return Proxy([program("haproxy"), "-f", config, "-db"], port, HUTCH_BIND="127.0.0.1:%d" % port, HUTCH_A=a.path, HUTCH_B=b.path)


def run(proxy, code):
    status, result = proxy.ask("POST", "/v1/run", {"code": code})
    assert status == 200 and result["verdict"] == "ok", result
    return result["stdout"]


def cell(proxy, name, code):
    return proxy.ask("POST", "/v1/sessions/%s/cells" % name, {"code": code})


def stream_of(result):
    return "".join(output.get("text", "") for output in result["outputs"])


def test_sessions_stay_where_they_are(servers):
    """Of each the state is there, whatever connection asks; both servers have some."""
    with haproxy(*servers) as proxy:
        names = []
        for i in range(12):
            status, session = proxy.ask("POST", "/v1/sessions", {})
            assert status == 201, session
            names.append(session["id"])
            assert cell(proxy, names[i], "x = %d" % i)[0] == 200
        assert len(set(names)) == 12 and all(len(name) == 21 for name in names)
        for i, name in enumerate(names):
            status, result = cell(proxy, name, "print(x)")
            assert status == 200 and stream_of(result) == "%d\n" % i, result
        counts = [server.metrics()["hutch_sessions"] for server in servers]
        assert sum(counts) == 12 and min(counts) > 0, counts
        assert cell(proxy, "A" * 21, "1")[0] == 404
        for name in names:
            assert proxy.ask("DELETE", "/v1/sessions/" + name)[0] < 300


def test_sandboxes_stay_where_they_are(servers):
    """Those of E2B's: by the path, by the header, and by the name of the host."""
    with haproxy(*servers) as proxy:
        created = []
        for i in range(10):
            status, sandbox = proxy.ask("POST", ("/sandboxes", "/v2/sandboxes")[i % 2], {"templateID": "base", "timeout": 60})
            assert status == 201, sandbox
            created.append(sandbox)
        names = [sandbox["sandboxID"] for sandbox in created]
        assert len(set(names)) == 10 and all(len(name) == 26 for name in names)
        for i, sandbox in enumerate(created):
            name, more = sandbox["sandboxID"], {"X_Access_Token": sandbox["envdAccessToken"]}
            assert proxy.ask("GET", "/sandboxes/" + name)[1]["sandboxID"] == name
            by_header = proxy.ask("POST", "/execute", {"code": "x = %d" % i}, E2b_Sandbox_Id=name, E2b_Sandbox_Port="49999", **more)
            assert by_header[0] == 200, by_header
            by_host = proxy.ask("POST", "/execute", {"code": "print(x)"}, Host="49999-%s.localhost" % name, **more)
            assert by_host[0] == 200 and '"%d\\n"' % i in by_host[1], by_host
            assert proxy.ask("POST", "/v2/sandboxes/%s/connect" % name, {"timeout": 60})[0] in (200, 201)
        assert min(server.metrics()["hutch_sessions"] for server in servers) > 0
        for name in names:
            assert proxy.ask("DELETE", "/sandboxes/" + name)[0] == 204


INITIALIZE = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
    "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}}


def test_mcp_sessions_stay_where_they_are(servers):
    both = "application/json, text/event-stream"
    with haproxy(*servers) as proxy:
        for i in range(8):
            connection = proxy.connect()
            connection.request("POST", "/mcp", json.dumps(INITIALIZE), {"Content-Type": "application/json", "Accept": both})
            answer = connection.getresponse()
            answer.read()
            name = answer.headers["Mcp-Session-Id"]
            connection.close()
            assert answer.status == 200 and len(name) == 21
            for _ in range(3):
                status, text = proxy.ask("POST", "/mcp", {"jsonrpc": "2.0", "id": 2, "method": "ping"}, Accept=both, Mcp_Session_Id=name)
                assert status == 200, text
            assert proxy.ask("DELETE", "/mcp", Mcp_Session_Id=name)[0] == 204


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
        assert min(server.metrics()["hutch_sessions"] for server in (a, b)) > 0


def test_a_client_chooses_no_name(servers):
    with haproxy(*servers) as proxy:
        status, session = proxy.ask("POST", "/v1/sessions", {}, X_Hutch_Session="B" * 21)
        assert status == 201 and session["id"] != "B" * 21
        assert proxy.ask("DELETE", "/v1/sessions/" + session["id"])[0] < 300


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


def certificate(folder):
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
             "subjectAltName=DNS:localhost", "-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
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
    return Proxy([program("nginx"), "-p", str(folder), "-c", "nginx.conf", "-e", "stderr", *as_root], port, context)


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
