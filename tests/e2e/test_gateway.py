"""hutch serve, from outside: runs over HTTP, who may ask, what bad requests get, and how it ends."""
import asyncio
import base64
import hashlib
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import time

import aiohttp
import pytest
import requests

import gateway
import support
from gateway import await_that, bearer, parse, Server, tokens_file

FOREVER = "import time\nprint('begun', flush=True)\nwhile True: time.sleep(60)\n"
HEADERS = b"Host: localhost\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Server(tmp_path_factory.mktemp("gateway"), "--request-timeout", "120s") as started:
        yield started


# --------------------------------------------------------------------------------------------------
# Runs

def test_result(server):
    result = server.run("import sys; print(6 * 7); print('oh', file=sys.stderr)")
    assert tuple(result) == support.RESULT_KEYS
    assert (result["verdict"], result["exit_code"], result["stdout"], result["stderr"]) == ("ok", 0, "42\n", "oh\n")


def test_what_a_run_takes(server):
    code = "import os, sys; print(sys.argv[1:], os.environ['A'], sys.stdin.read(), os.path.basename(sys.argv[0]))"
    result = server.run(code, args=["x", "ÿ"], env={"A": "b=c"}, stdin="in\n", name="prog.py", language="python")
    assert result["stdout"] == "['x', 'ÿ'] b=c in\n prog.py\n", result
    result = server.run("import sys; print(sys.stdin.buffer.read())", stdin_base64=base64.b64encode(b"\0\xff").decode())
    assert result["stdout"] == "b'\\x00\\xff'\n"
    assert server.run("echo $((6 * 7))", language="sh")["stdout"] == "42\n"


def test_verdicts(server):
    assert server.run("1 / 0")["error"]["name"] == "ZeroDivisionError"
    result = server.run("while True: pass", limits={"wall_ms": 300})
    assert (result["verdict"], result["limits"]["wall"]["asked"]) == ("timeout", 300)
    assert server.run("print('x' * 5000)", limits={"output_bytes": 1000})["verdict"] == "output_limit"


def test_connection_is_kept(server):
    connection = gateway.UnixConnection(server.path)
    server.await_metric("hutch_http_connections", 1)  # the one that asks
    for i in range(3):
        answer = server.ask("POST", "/v1/run", {"code": "print(%d)" % i}, connection=connection)
        assert answer.json["stdout"] == "%d\n" % i
        # An error does not end a connection whose request was read.
        assert server.ask("POST", "/v1/run", b"{", connection=connection).status == 400
        assert server.ask("GET", "/nothing", connection=connection).status == 404
    server.await_metric("hutch_http_connections", 2)
    connection.close()


def test_requests_that_did_not_wait_for_answers(server):
    """An answer is sent within the engine's callback, and the next request, which is there already, is read and handed in then: a run, one
    that is refused, one of another format, one whose answer needs no engine, and a stream."""
    def request(method, path, body, *headers):
        text = json.dumps(body)
        lines = ["%s %s HTTP/1.1" % (method, path), "Host: localhost", "Content-Type: application/json", "Content-Length: %d" % len(text), *headers]
        return ("\r\n".join(lines) + "\r\n\r\n" + text).encode()

    data, wanted = b"", []
    for i in range(10):
        data += request("POST", "/v1/run", {"code": "print('run %d')" % i})
        data += request("POST", "/v1/run", {"cod": "print(1)"})
        data += request("POST", "/run_code", {"code": "print('fusion %d')" % i, "language": "python"})
        data += b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
        data += request("POST", "/v1/run", {"code": "print('stream %d')" % i}, "Accept: application/x-ndjson")
        wanted += ["run %d" % i, "invalid_request", "fusion %d" % i, '"ok"', "stream %d" % i]
    answers = server.raw(data + b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").decode().split("HTTP/1.1 ")[1:]
    assert len(answers) == len(wanted) + 1
    for answer, text in zip(answers, wanted):
        assert text in answer, (text, answer)


def test_many_at_once(server):
    async def one(session, number):
        async with session.post("http://localhost/v1/run", json={"code": "print('nonce %d')" % number}) as answer:
            assert answer.status == 200
            return (await answer.json())["stdout"] == "nonce %d\n" % number

    async def many():
        async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(server.path, limit=32)) as session:
            return await asyncio.gather(*(one(session, number) for number in range(100)))

    assert all(asyncio.run(many()))
    metrics = server.metrics()
    assert metrics["hutch_running"] == metrics["hutch_queued"] == 0


# --------------------------------------------------------------------------------------------------
# Bad requests

BAD_BODIES = {
    "empty": (b"", "the body is empty"),
    "no JSON": (b"code=1", "line 1, column 1"),
    "cut": (b'{"code": "1"', "line 1, column"),
    "two values": (b'{"code": "1"} {}', "column 15"),
    "not UTF-8": (b'{"code": "\xff"}', "UTF-8"),
    "raw control character": (b'{"code": "a\nb"}', "control"),
    "NUL": (b'{"code": "a\\u0000b"}', "column"),
    "lone surrogate": (b'{"code": "\\ud800"}', "surrogate"),
    "deep": (b'{"code": ' + b"[" * 100000, "deep"),
    "many values": (b'{"code": "1", "args": [' + b"0," * 60000 + b"0]}", "more values"),
    "array": (b"[]", "$: expected an object"),
    "no code": (b"{}", 'the key \\"code\\" is missing'.replace("\\", "")),
    "unknown key": (b'{"code": "1", "polcy": "x"}', "$.polcy: unknown key"),
    "twice": (b'{"code": "1", "code": "2"}', "$.code: this key is there twice"),
    "code of another type": (b'{"code": 5}', "$.code: expected a string, got 5"),
    "code is null": (b'{"code": null}', "$.code: expected a string"),
    "argument of another type": (b'{"code": "1", "args": ["a", 1]}', "$.args[1]: expected a string"),
    "arguments no list": (b'{"code": "1", "args": "a"}', "$.args: expected an array"),
    "variable with =": (b'{"code": "1", "env": {"A=B": "c"}}', "has no '='"),
    "negative limit": (b'{"code": "1", "limits": {"wall_ms": -1}}', "$.limits.wall_ms: expected a whole number"),
    "limit of zero": (b'{"code": "1", "limits": {"pids": 0}}', "$.limits.pids"),
    "huge limit": (b'{"code": "1", "limits": {"pids": 1e300}}', "$.limits.pids"),
    "limit above the policy's": (b'{"code": "1", "limits": {"memory_bytes": 1000000000000}}', "above the policy's"),
    "unknown limit": (b'{"code": "1", "limits": {"wal": 1}}', "$.limits.wal: unknown key"),
    "unknown language": (b'{"code": "1", "language": "cobol"}', "cobol"),
    "name with a path": (b'{"code": "1", "name": "../x.py"}', "$.name: a name"),
    "name like an option": (b'{"code": "1", "name": "-m"}', "$.name: a name"),
    "input twice": (b'{"code": "1", "stdin": "a", "stdin_base64": "YQ=="}', "either stdin or stdin_base64"),
    "no base64": (b'{"code": "1", "stdin_base64": "?"}', "not base64"),
    "policy": (b'{"code": "1", "policy": "trusted"}', "$.policy: unknown key"),
}


@pytest.mark.parametrize("label", BAD_BODIES)
def test_bad_body(server, label):
    body, words = BAD_BODIES[label]
    answer = server.ask("POST", "/v1/run", body)
    assert answer.status == 400
    assert answer.error["code"] == "invalid_request" and words in answer.error["message"], answer.error


def test_paths_and_methods(server):
    assert server.ask("GET", "/v1/nothing").error["code"] == "not_found"
    answer = server.ask("GET", "/v1/run")
    assert (answer.status, answer.error["code"], answer.headers["Allow"]) == (405, "method_not_allowed", "POST")
    assert server.ask("PUT", "/healthz", b"{}").headers["Allow"] == "GET, HEAD"
    assert server.ask("HEAD", "/healthz").status == 200
    for path in ("/v1/run/", "//v1/run", "/v1/../v1/run", "/v1%2frun", "/V1/RUN", "/v1/run%00"):
        assert server.ask("POST", path, {"code": "1"}).status == 404, path
    assert server.ask("POST", "/v1/run?x=%00&y", {"code": "1"}).status == 200  # a query means nothing here


def test_media_type(server):
    """A form could be sent by any page of the web: it is taken for files only, and from no page that may not ask."""
    for headers in ({"Origin": "https://evil.example"}, {"Origin": "null"}):
        form = {"Content-Type": "multipart/form-data; boundary=X", **headers}
        assert server.ask("POST", "/v1/run", b"--X--", form).error["code"] == "origin_not_allowed"
    for kind in ("application/x-www-form-urlencoded", "text/plain", ""):
        answer = server.ask("POST", "/v1/run", b'{"code": "1"}', {"Content-Type": kind})
        assert (answer.status, answer.error["code"]) == (415, "unsupported_media_type")
    assert server.ask("POST", "/v1/run", b'{"code": "1"}', {"Content-Type": "Application/JSON; charset=utf-8"}).status == 200
    assert server.ask("POST", "/v1/run", b"x", {"Content-Encoding": "gzip"}).status == 415
    assert server.ask("GET", "/healthz", b"x").status == 400


def test_body_limit(tmp_path):
    with Server(tmp_path, "--max-body", "100k") as server:
        assert server.run("#" + "x" * 90000 + "\nprint(1)")["stdout"] == "1\n"
        with server.connect() as sock:  # the answer comes before the body
            sock.sendall(b"POST /v1/run HTTP/1.1\r\n" + HEADERS + b"Content-Length: 102401\r\n\r\n")
            answer = parse(gateway.read_all(sock))
        assert (answer.status, answer.error["code"]) == (413, "body_too_large")
        assert "102401" in answer.error["message"] and answer.headers["Connection"] == "close"
        with server.connect() as sock:
            sock.sendall(b"POST /v1/run HTTP/1.1\r\n" + HEADERS + b"Expect: 100-continue\r\nContent-Length: 9999999999\r\n\r\n")
            assert parse(gateway.read_all(sock)).status == 413
        chunk = b"8000\r\n" + b"x" * 0x8000 + b"\r\n"  # nobody said how many
        with server.connect() as sock:
            sock.sendall(b"POST /v1/run HTTP/1.1\r\n" + HEADERS + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 10 + b"0\r\n\r\n")
            sock.shutdown(socket.SHUT_WR)
            assert parse(gateway.read_all(sock)).status == 413
        with server.connect() as sock:  # and never ends
            sock.sendall(b"POST /v1/run HTTP/1.1\r\n" + HEADERS + b"Transfer-Encoding: chunked\r\n\r\n")
            with pytest.raises((BrokenPipeError, ConnectionResetError)):
                for _ in range(1000000):
                    sock.sendall(chunk)
        assert server.await_metric("hutch_http_held_bytes", 0)["hutch_http_exchanges"] == 1  # the one that asks


def test_a_refusal_is_read_by_who_still_writes(tmp_path):
    """A connection that were closed with something unread would be reset, and the answer lost. What is read so has an end."""
    with Server(tmp_path, "--listen", "127.0.0.1:0", "--insecure-no-auth", "--max-body", "100k") as server:
        address, descriptors = ("127.0.0.1", server.port()), "/proc/%d/fd" % server.process.pid
        before = len(os.listdir(descriptors))
        head = b"POST /v1/run HTTP/1.1\r\n" + HEADERS + b"Content-Length: %d\r\n\r\n"
        for _ in range(5):
            with socket.create_connection(address, gateway.SECONDS) as sock:
                sock.sendall(head % (8 << 20) + b"x" * (8 << 20))
                sock.shutdown(socket.SHUT_WR)
                assert parse(gateway.read_all(sock)).error["code"] == "body_too_large"
        endless = [socket.create_connection(address, gateway.SECONDS) for _ in range(100)]
        try:
            for sock in endless:
                sock.sendall(head % (1 << 40))
            for sock in endless:
                with pytest.raises((BrokenPipeError, ConnectionResetError)):
                    for _ in range(1000000):
                        sock.sendall(b"x" * 65536)
        finally:
            for sock in endless:
                sock.close()
        with socket.create_connection(address, gateway.SECONDS) as sock:  # nobody said how much
            sock.sendall(b"POST /v1/run HTTP/1.1\r\n" + HEADERS + b"Transfer-Encoding: chunked\r\n\r\n")
            for _ in range(200):
                sock.sendall(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
            sock.shutdown(socket.SHUT_WR)
            assert parse(gateway.read_all(sock)).error["code"] == "body_too_large"
        await_that(lambda: len(os.listdir(descriptors)) < before + 20)


@pytest.mark.parametrize("headers", [b"Content-Length: 3\r\nContent-Length: 4\r\n", b"Content-Length: 4\r\nContent-Length: 4\r\n",
                                     b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
                                     b"Content-Length: 4\r\nTransfer-Encoding : chunked\r\n", b"Content-Length: 4\r\nX: a\rTransfer-Encoding: chunked\r\n",
                                     b"Content-Length: 4\r\nHost: localhost\r\n",
                                     b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
                                     b"Content-Length: -1\r\n", b"Content-Length: 4x\r\n", b"Content-Length: 99999999999999999999999\r\n",
                                     b"Transfer-Encoding: gzip\r\n"])
def test_lengths_that_could_mean_two_things(server, headers):
    """What follows is never taken for another request."""
    data = server.raw(b"POST /v1/run HTTP/1.1\r\n" + HEADERS + headers + b"\r\n4\r\nGET /healthz HTTP/1.1\r\n\r\n\r\n0\r\n\r\n")
    assert set(re.findall(rb"HTTP/1.1 (\d+)", data)) in ({b"400"}, {b"413"}) and b'"ok"' not in data, data


@pytest.mark.parametrize("head", [b"GET /healthz\0x HTTP/1.1\r\nHost: x\r\n", b"GET\0 /healthz HTTP/1.1\r\nHost: x\r\n",
                                  b"GET /healthz HTTP/1.1\0\r\nHost: x\r\n", b"GET /healthz HTTP/1.1\r\nHost: x\0y\r\n",
                                  b"GET /healthz HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer a\0b\r\n",
                                  b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 0\0 5\r\n",
                                  b"GET /healthz HTTP/1.1\r\nHost: x\r\nX\0Y: 1\r\n"])
def test_nul_in_a_head(server, head):
    """A proxy in front may have read on behind it: it is not cut off, and nothing is served."""
    data = server.raw(head + b"\r\n")
    assert set(re.findall(rb"HTTP/1.1 (\d+)", data)) == {b"400"} and b'"ok"' not in data, data


@pytest.mark.parametrize("head", [b"GET /healthz?a=%00 HTTP/1.1\r\nHost: x\r\nX-Empty:\r\nX-Blanks: \t a b \t\r\n",
                                  b"\r\nGET /healthz HTTP/1.1\r\nHost: x\r\nCookie: a=b; c=d\r\nAccept: */*, text/x\r\n"])
def test_odd_heads_that_are_whole(server, head):
    answers = server.raw((head + b"\r\n") * 2 + head + b"Connection: close\r\n\r\n")
    assert re.findall(rb"HTTP/1.1 (\d+)", answers) == [b"200"] * 3, answers


def test_headers_that_are_too_large(server):
    data = server.raw(b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + b"X-Long: " + b"a" * 100000 + b"\r\n\r\n")
    assert parse(data).status == 431
    data = server.raw(b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\nHost: x\r\n\r\n")
    assert parse(data).status in (414, 431)


def test_no_http(tmp_path):
    """It is closed, or told that this is no request; and the next one is served."""
    with Server(tmp_path, "--request-timeout", "2s") as server:
        for data in (b"", b"\0" * 1000, b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 20,
                     b"GET /healthz HTTP/1.1\r\n\r\n", b"GET /healthz HTTP/1.1\r\nHost : x\r\n\r\n", b"\r\n" * 5000):
            answer = server.raw(data)
            assert set(re.findall(rb"HTTP/1.1 (\d+)", answer)) in (set(), {b"400"}, {b"408"}, {b"505"}), answer
            assert server.ask("GET", "/healthz").status == 200


def test_slow_requests(tmp_path):
    """408, and the connection is closed; one that is idle between requests is closed without a word."""
    with Server(tmp_path, "--request-timeout", "1s", "--idle-timeout", "1s") as server:
        for begun in (b"", b"POST /v1/run HT", b"POST /v1/run HTTP/1.1\r\n" + HEADERS,
                      b"POST /v1/run HTTP/1.1\r\n" + HEADERS + b"Content-Length: 20\r\n\r\n{"):
            with server.connect() as sock:
                sock.sendall(begun)
                answer = parse(gateway.read_all(sock))
                assert (answer.status, answer.error["code"]) == (408, "request_timeout"), begun
        with server.connect() as sock:  # a byte from time to time is no excuse
            def drip():
                try:
                    for letter in b"GET /healthz HTTP/1.1\r\nX-Slow: " + b"x" * 10000:
                        sock.sendall(bytes([letter]))
                        time.sleep(0.1)
                except OSError:
                    pass
            thread = threading.Thread(target=drip)
            thread.start()
            assert parse(gateway.read_all(sock)).status == 408
            thread.join()
        with server.connect() as sock:
            sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            data = gateway.read_all(sock)
            assert data.count(b"HTTP/1.1") == 1 and parse(data).status == 200
        # A run may take longer than a request may.
        assert server.run("import time; time.sleep(2); print(1)")["stdout"] == "1\n"


# --------------------------------------------------------------------------------------------------
# Who may ask

def test_socket_is_its_owners(server):
    found = os.stat(server.path)
    assert stat.S_ISSOCK(found.st_mode) and stat.S_IMODE(found.st_mode) == 0o600


def test_default_socket(tmp_path):
    with Server(tmp_path, env={"XDG_RUNTIME_DIR": str(tmp_path)}, wait="listening") as server:
        server.path = str(tmp_path / "hutch" / "hutch.sock")
        assert server.ask("GET", "/healthz").status == 200
        assert stat.S_IMODE(os.stat(tmp_path / "hutch").st_mode) == 0o700
    assert not os.path.exists(server.path)


def refusal(*words, env=None):
    done = subprocess.run([support.HUTCH, "serve", "--image", "minimal", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          check=False, timeout=gateway.SECONDS, env={**os.environ, **(env or {})})
    assert done.returncode == 125 and not done.stdout and done.stderr.count("\n") == 1, done
    return done.stderr


def test_what_cannot_begin(tmp_path, server):
    assert "without tokens" in refusal("--listen", "127.0.0.1:0")
    assert "another server listens" in refusal("--listen", "unix:" + server.path)
    (tmp_path / "file").touch()
    assert "is no socket" in refusal("--listen", "unix:" + str(tmp_path / "file"))
    for address in ("127.0.0.1", "127.0.0.1:x", "127.0.0.1:65536", "::1:80", ":80", "[]:80", "unix:", "unix:" + "x" * 200):
        assert "hutch: " in refusal("--listen", address, "--insecure-no-auth"), address
    assert "XDG_RUNTIME_DIR" in refusal(env={"XDG_RUNTIME_DIR": ""})
    assert "takes no arguments" in refusal("x")
    assert "--max-body" in refusal("--max-body", "0")


def test_tokens_files_that_are_refused(tmp_path):
    path = tmp_path / "tokens"
    digest = hashlib.sha256(b"t").hexdigest()
    for text, words in (("", "has no token"), ("a\n", "line 1: expected NAME"), ("a t\n", "line 1"), ("a b c\n", "line 1"),
                        ("# x\na %s\na %s\n" % (digest, digest[::-1]), "line 3"), ("a %s\nb %s\n" % (digest, digest), "line 2"),
                        ("a/b %s\n" % digest, "line 1"), ("a %s0\n" % digest, "line 1"), ("a %s\0\n" % digest, "NUL"),
                        *(("a %s %s\n" % (digest, weight), "perhaps a weight from 1 to 100") for weight in ("0", "101", "-1", "1.5", "x", "1 1", "9999"))):
        path.write_text(text)
        path.chmod(0o600)
        assert words in refusal("--listen", "127.0.0.1:0", "--tokens", str(path)), text
    path.write_text("a %s\n" % digest)
    path.chmod(0o622)
    assert "chmod go-w" in refusal("--tokens", str(path))
    assert "open tokens" in refusal("--tokens", str(tmp_path / "none"))


def test_tokens(tmp_path):
    """On every socket: a proxy in front would come by the unix one."""
    tokens = tokens_file(tmp_path, ada="secret of ada", bob="secret of bob")
    path = gateway.socket_path(tmp_path)
    with Server(tmp_path, "--listen", "unix:" + path, "--listen", "127.0.0.1:0", "--tokens", tokens) as server:
        for headers in ({}, bearer(""), bearer("wrong"), bearer("secret of"), {"Authorization": "Basic eDp5"}, bearer("x" * 9000),
                        {"Authorization": "secret of ada"}):
            for method, where in (("POST", "/v1/run"), ("GET", "/metrics"), ("GET", "/nothing")):
                answer = server.ask(method, where, {"code": "1"} if method == "POST" else None, headers)
                assert (answer.status, answer.error["code"]) == (401, "unauthorized"), (headers, where)
                assert answer.headers["WWW-Authenticate"] == "Bearer"
        for where in ("/healthz", "/readyz"):  # a balancer asks these
            assert server.ask("GET", where).status == 200
        assert server.ask("POST", "/v1/run", {"code": "print(1)"}, bearer("secret of ada")).json["stdout"] == "1\n"
        url = "http://127.0.0.1:%d/v1/run" % server.port()
        assert requests.post(url, json={"code": "print(2)"}, timeout=gateway.SECONDS).status_code == 401
        answer = requests.post(url, json={"code": "print(2)"}, headers=bearer("secret of bob"), timeout=gateway.SECONDS)
        assert answer.json()["stdout"] == "2\n"
        server.await_event("request", lambda event: event["token"] == "bob" and event["status"] == 200)
        log = json.dumps(server.events)
    assert "secret of" not in log and hashlib.sha256(b"secret of ada").hexdigest() not in log


def test_one_token_leaves_room_for_others(tmp_path):
    tokens = tokens_file(tmp_path, ada="a", bob="b")
    with Server(tmp_path, "--workers", "1", "--jobs", "1", "--queue", "4", "--tokens", tokens) as server:
        held = []
        for _ in range(2):
            connection = gateway.UnixConnection(server.path)
            connection.request("POST", "/v1/run", json.dumps({"code": FOREVER}), {"Content-Type": "application/json", **bearer("a")})
            held.append(connection)
        server.await_metric("hutch_running", 1, bearer("a"))
        server.await_metric("hutch_queued", 1, bearer("a"))
        answer = server.ask("POST", "/v1/run", {"code": "print(1)"}, bearer("a"))
        assert (answer.status, answer.error["code"]) == (429, "queue_full") and "share" in answer.error["message"]
        bob = threading.Thread(target=lambda: held.append(server.ask("POST", "/v1/run", {"code": "print('bob')"}, bearer("b"))))
        bob.start()
        server.await_metric("hutch_queued", 2, bearer("a"))
        for connection in held[:2]:
            connection.close()
        bob.join()
        assert held[2].json["stdout"] == "bob\n"


def test_tokens_take_turns(tmp_path):
    """A token with many runs that wait does not keep another one's waiting, which came after all of them."""
    path = tmp_path / "tokens"
    path.write_text("ada %s\nbob %s 3\n" % tuple(hashlib.sha256(token).hexdigest() for token in (b"a", b"b")))
    path.chmod(0o600)
    with Server(tmp_path, "--workers", "1", "--jobs", "1", "--tokens", str(path)) as server:
        def send(token, code):
            connection = gateway.UnixConnection(server.path)
            connection.request("POST", "/v1/run", json.dumps({"code": code}), {"Content-Type": "application/json", **bearer(token)})
            return connection

        def ended(connection):
            return float(json.loads(connection.getresponse().read())["stdout"])
        running = send("a", FOREVER)
        server.await_metric("hutch_running", 1, bearer("a"))
        when = "import time; print(time.clock_gettime(time.CLOCK_MONOTONIC))"
        of_ada = [send("a", when) for _ in range(6)]
        server.await_metric("hutch_queued", 6, bearer("a"))
        of_bob = [send("b", when) for _ in range(4)]
        server.await_metric("hutch_queued", 10, bearer("a"))
        running.close()
        order = sorted([(ended(connection), "a") for connection in of_ada] + [(ended(connection), "b") for connection in of_bob])
    said = "".join(token for _, token in order)
    assert said.index("b") <= 1 and said.rindex("b") <= 5 and said.endswith("aaa"), said


def test_names_that_lead_here(tmp_path):
    """A page whose name was made to lead to this address is kept out: it says its own name."""
    path = gateway.socket_path(tmp_path)
    with Server(tmp_path, "--listen", "unix:" + path, "--listen", "127.0.0.1:0", "--insecure-no-auth", "--allow-host", "box.example",
                "--allow-origin", "https://page.example") as server:
        url = "http://127.0.0.1:%d/healthz" % server.port()

        def ask(**headers):
            return requests.get(url, headers=headers, timeout=gateway.SECONDS)

        for host in ("localhost", "LOCALHOST:80", "127.0.0.1", "[::1]:8080", "box.example", "Box.Example:443"):
            assert ask(Host=host).status_code == 200, host
        for host in ("evil.example", "box.example.evil", "localhost.evil", "127.0.0.1.evil", "[::1", "[evil]", "", "localhost:80:90"):
            answer = ask(Host=host)
            assert answer.status_code in (400, 403), host
        assert ask(Host="evil.example").json()["error"]["code"] == "host_not_allowed"
        assert ask(Origin="https://evil.example").json()["error"]["code"] == "origin_not_allowed"
        assert ask(Origin="null").status_code == 403
        answer = ask(Origin="https://page.example")
        assert answer.status_code == 200 and answer.headers["Access-Control-Allow-Origin"] == "https://page.example"
        assert "Access-Control-Allow-Origin" not in ask().headers
        for origin, status in (("https://page.example", 204), ("https://evil.example", 403)):
            answer = requests.options(url.replace("healthz", "v1/run"), timeout=gateway.SECONDS,
                                      headers={"Origin": origin, "Access-Control-Request-Method": "POST"})
            assert answer.status_code == status and answer.headers.get("Access-Control-Allow-Methods", "POST") == "POST"
        # No name leads to a unix socket.
        assert server.ask("GET", "/healthz", headers={"Host": "evil.example"}).status == 200
        assert server.ask("GET", "/healthz", headers={"Origin": "https://evil.example"}).status == 403


# --------------------------------------------------------------------------------------------------
# Load, and clients that leave

def begin(server, code=FOREVER):
    connection = gateway.UnixConnection(server.path)
    connection.request("POST", "/v1/run", json.dumps({"code": code}), {"Content-Type": "application/json"})
    return connection


def test_full_queue(tmp_path):
    with Server(tmp_path, "--workers", "1", "--jobs", "1", "--queue", "1") as server:
        held = [begin(server), begin(server)]
        server.await_metric("hutch_running", 1)
        server.await_metric("hutch_queued", 1)
        answer = server.ask("POST", "/v1/run", {"code": "print(1)"})
        assert (answer.status, answer.error["code"], answer.headers["Retry-After"]) == (429, "queue_full", "1")
        for connection in held:
            connection.close()
        server.await_metric("hutch_running", 0)
        assert server.run("print(1)")["stdout"] == "1\n"


def test_client_that_leaves_ends_its_run(server):
    before = server.metrics()
    left = begin(server)
    server.await_metric("hutch_running", 1)
    left.close()
    after = server.await_metric("hutch_running", 0)
    assert after['hutch_runs_total{verdict="killed"}'] == before['hutch_runs_total{verdict="killed"}'] + 1
    assert after["hutch_http_gone_total"] > before["hutch_http_gone_total"]
    server.await_metric("hutch_http_exchanges", 1)
    assert server.run("print(1)")["stdout"] == "1\n"


def test_mixed_load(tmp_path):
    """Runs, streams, bad requests and clients that leave, side by side: none lost or mixed up, and nothing is left."""
    async def run(session, number):
        async with session.post("/v1/run", json={"code": "print('nonce %d')" % number}) as answer:
            return (await answer.json())["stdout"] == "nonce %d\n" % number

    async def stream(session, number):
        async with session.post("/v1/run", json={"code": "print('nonce %d')" % number}, headers={"Accept": "application/x-ndjson"}) as answer:
            events = [json.loads(line) async for line in answer.content]
        return "".join(event["data"]["text"] for event in events[:-1]) == "nonce %d\n" % number and events[-1]["event"] == "result"

    async def leave(session, number):
        try:
            await asyncio.wait_for(session.post("/v1/run", json={"code": FOREVER}), 0.01 * (number % 20))
        except asyncio.TimeoutError:
            return True
        return False

    async def err(session, number):
        async with session.post("/v1/run", data=b"{" * number, headers={"Content-Type": "application/json"}) as answer:
            return answer.status == 400

    async def many(path):
        async with aiohttp.ClientSession("http://localhost", connector=aiohttp.UnixConnector(path, limit=32)) as session:
            return await asyncio.gather(*((run, stream, leave, err)[number % 4](session, number) for number in range(240)))

    with Server(tmp_path) as server:
        assert all(asyncio.run(many(server.path)))
        server.await_metric("hutch_running", 0)
        server.await_metric("hutch_queued", 0)
        server.await_metric("hutch_http_exchanges", 1)
        server.await_metric("hutch_http_held_bytes", 0)
        metrics = server.await_metric("hutch_http_connections", 1)
        assert metrics['hutch_runs_total{verdict="ok"}'] == 120
        assert metrics['hutch_http_errors_total{code="internal"}'] == 0


def test_more_connections_than_there_may_be(tmp_path):
    """They wait, and nobody is turned away."""
    with Server(tmp_path, "--max-connections", "4") as server:
        idle = [server.connect() for _ in range(4)]
        answers = []
        fifth = threading.Thread(target=lambda: answers.append(server.run("print(5)")["stdout"]))
        fifth.start()
        idle[0].close()
        fifth.join(gateway.SECONDS)
        assert answers == ["5\n"]
        for sock in idle:
            sock.close()


# --------------------------------------------------------------------------------------------------
# Its state, its log, its end

def test_health_and_readiness(tmp_path):
    with Server(tmp_path, wait="listening") as server:
        assert server.ask("GET", "/healthz").json == {"status": "ok"}
        server.await_event("ready")
        assert server.ask("GET", "/readyz").json == {"status": "ready"}
        metrics = server.metrics()
        assert metrics["hutch_ready"] == 1 and metrics['hutch_pool_prepared{zygote="bare"}'] >= 1


def test_pools(server):
    found = server.ask("GET", "/v1/pools").json
    assert list(found) == ["pools", "running", "queued", "sessions"]
    assert found["pools"][0]["name"] == "bare" and all(pool["ready"] is True for pool in found["pools"])
    assert list(found["pools"][0]) == ["name", "ready", "prepared", "building", "forks", "recycled", "from_pool", "on_demand", "policies"]
    assert all(pool["policies"] == [] for pool in found["pools"])


def test_metrics(server):
    before = server.metrics()
    server.run("print(1)")
    server.run("1 / 0")
    server.ask("POST", "/v1/run", b"{")
    after = server.metrics()

    def grew(name):
        return after.get(name, 0) - before.get(name, 0)

    assert grew('hutch_runs_total{verdict="ok"}') == grew('hutch_runs_total{verdict="error"}') == 1
    assert grew('hutch_http_requests_total{method="POST",route="/v1/run",status="2xx"}') == 2
    assert grew('hutch_http_errors_total{code="invalid_request"}') == 1
    for phase in ("queued", "prepared", "run", "total"):
        assert grew('hutch_run_seconds_count{format="native",phase="%s"}' % phase) == 2
        assert grew('hutch_run_seconds_bucket{format="native",phase="%s",le="+Inf"}' % phase) == 2
    assert grew("hutch_submitted_total") == grew("hutch_finished_total") == grew("hutch_from_pool_total") + grew("hutch_on_demand_total") == 2
    assert sum(grew('hutch_pool_%s_total{zygote="%s"}' % (kind, pool["name"])) for kind in ("hits", "misses")
               for pool in server.ask("GET", "/v1/pools").json["pools"]) == 2
    assert after["hutch_log_lost_total"] == 0


def test_metrics_by_format(server):
    """A format's rows are there from its first run on."""
    def count(format):
        return server.metrics().get('hutch_run_seconds_count{format="%s",phase="total"}' % format, 0)

    before, native = count("sandboxfusion"), count("native")
    assert server.ask("POST", "/run_code", {"code": "print(1)", "language": "python"}).status == 200
    assert (count("sandboxfusion"), count("native")) == (before + 1, native)


def test_metrics_are_a_text_that_prometheus_reads(server):
    """Each sample belongs to the TYPE above it, no series is there twice, buckets grow to their count."""
    server.run("1")
    text = server.ask("GET", "/metrics").body.decode()
    kinds, kind, seen, buckets = {}, None, set(), {}
    for line in text.splitlines():
        if line.startswith("#"):
            _, what, name, rest = line.split(" ", 3)
            if what == "TYPE":
                assert name not in kinds and rest in ("counter", "gauge", "histogram"), line
                assert rest != "counter" or name.endswith("_total"), line
                kinds[name], kind = rest, name
            continue
        series, labels, value = re.fullmatch(r'(\w+)(?:\{((?:\w+="(?:[^"\\\n]|\\.)*",?)*)\})? (\S+)', line).groups()
        assert series == kind or kinds[kind] == "histogram" and series in (kind + "_bucket", kind + "_sum", kind + "_count"), line
        assert (series, labels) not in seen and float(value) >= 0, line
        seen.add((series, labels))
        if series.endswith("_bucket"):
            family = (kind, re.sub(r',?le="[^"]*"', "", labels))
            assert float(value) >= buckets.get(family, 0), line
            buckets[family] = float(value)
        elif kinds[kind] == "histogram" and series.endswith("_count"):
            assert buckets[kind, labels or ""] == float(value), line
    assert set(kinds) >= {"hutch_pool_hits_total", "hutch_cell_seconds", "process_resident_memory_bytes"}


def test_metrics_of_memory(server):
    found = server.metrics()
    assert found["process_resident_memory_bytes"] > 1 << 20
    for pool in server.ask("GET", "/v1/pools").json["pools"]:
        assert found['hutch_zygote_resident_memory_bytes{zygote="%s"}' % pool["name"]] > 1 << 20
    assert found["hutch_launcher_resident_memory_bytes"] > 0


def test_log_has_nothing_of_the_code(server):
    server.run("print('out-nonce-77')\n# code-nonce-77", env={"A": "env-nonce-77"}, stdin="in-nonce-77")
    server.ask("GET", "/path-nonce-77")
    server.await_event("request", lambda event: event["route"] is None)
    for event in server.events:
        assert "nonce-77" not in json.dumps(event)
    request = server.await_event("request", lambda event: event["route"] == "/v1/run")
    assert list(request)[:6] == ["time", "event", "method", "route", "token", "status"] or request["code"]


def test_log_with_code(tmp_path):
    """The beginning, however it is written, and nothing else of the request; a line is never too long for it."""
    code = "print('out' + '-nonce-77')\n# ü" + "€" * 400 + "end"
    with Server(tmp_path, "--log-code", "--tokens", tokens_file(tmp_path, ada="token-nonce-77")) as server:
        for text in (code, "#" + "\x01" * 5000, "#" + "\x7f\\\"" * 3000):
            answer = server.ask("POST", "/v1/run", {"code": text, "env": {"A": "env-nonce-77"}, "stdin": "in-nonce-77"}, bearer("token-nonce-77"))
            assert answer.status == 200
        assert server.ask("POST", "/run_code", {"code": "2", "language": "python"}, bearer("token-nonce-77")).status == 200
        assert server.ask("POST", "/v1/run", {"cod": "no code"}, bearer("token-nonce-77")).status == 400
        metrics = server.metrics(bearer("token-nonce-77"))
        server.await_event("request", lambda event: event["route"] == "/metrics")
        seen = [event for event in server.events if event["event"] == "request"]
    programs = [event["program"] for event in seen if "program" in event]
    assert len(programs) == 4 and programs[3] == "2" and metrics["hutch_log_lost_total"] == 0
    for text, program in zip((code, "#" + "\x01" * 5000, "#" + "\x7f\\\"" * 3000), programs):
        assert text.startswith(program) and 100 < len(program.encode()) <= 1000
    for event in seen:
        assert not re.search("(token|env|in|out)-nonce-77", json.dumps(event)), event


def test_log_that_nobody_reads_holds_nothing(tmp_path):
    """A full pipe loses lines, which are counted."""
    read_fd, write_fd = os.pipe()
    try:
        path = gateway.socket_path(tmp_path)
        process = subprocess.Popen([support.HUTCH, "serve", "--image", "minimal", "--listen", "unix:" + path], stdin=subprocess.DEVNULL,
                                   stderr=write_fd)
        server = Server.__new__(Server)
        server.path, server.process = path, process
        await_that(lambda: os.path.exists(path))
        connection = gateway.UnixConnection(path)
        for _ in range(1000):
            assert server.ask("GET", "/healthz", connection=connection).status == 200
        connection.close()
        assert server.metrics()["hutch_log_lost_total"] > 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(gateway.SECONDS) == 0
    finally:
        process.kill()
        os.close(read_fd)
        os.close(write_fd)


def test_drain(tmp_path):
    """What runs is answered, nothing new is taken, and the socket is gone. (A worker that has nothing to do is gone at once.)"""
    with Server(tmp_path, "--workers", "1") as server:
        connection = begin(server, "import time; time.sleep(6); print('whole')")
        kept = gateway.UnixConnection(server.path)
        assert server.ask("GET", "/readyz", connection=kept).status == 200
        server.await_metric("hutch_running", 1)
        server.signal()
        server.await_event("draining")
        assert server.ask("GET", "/readyz", connection=kept).json == {"status": "shutting down"}
        answer = server.ask("POST", "/v1/run", {"code": "1"}, connection=kept)
        assert (answer.status, answer.error["code"]) == (503, "shutting_down") and "Retry-After" in answer.headers
        assert json.loads(connection.getresponse().read())["stdout"] == "whole\n"
        assert server.await_end() == 0
        assert not os.path.exists(server.path)


def test_drain_has_an_end(tmp_path):
    with Server(tmp_path, "--drain", "8s") as server:
        connection = begin(server)
        server.await_metric("hutch_running", 1)
        server.signal()
        result = json.loads(connection.getresponse().read())
        assert result["verdict"] == "killed" and result["stdout"] == "begun\n"
        assert server.await_end() == 0


def test_second_signal_does_not_wait(tmp_path):
    with Server(tmp_path, "--drain", "1h") as server:
        connection = begin(server)
        server.await_metric("hutch_running", 1)
        server.signal()
        server.await_event("draining")
        server.signal()
        assert json.loads(connection.getresponse().read())["verdict"] == "killed"
        assert server.await_end() == 0


def test_killed_server_leaves_nothing(tmp_path):
    """Its clients see the connection end, and the next server takes the socket's place."""
    with Server(tmp_path) as server:
        connection = begin(server)
        server.await_metric("hutch_running", 1)
        server.signal(signal.SIGKILL)
        with pytest.raises((ConnectionError, OSError, gateway.http.client.HTTPException)):
            connection.getresponse()
        server.await_end()
        assert os.path.exists(server.path)
        with Server(tmp_path) as second:
            assert second.run("print(1)")["stdout"] == "1\n"


def test_socket_activation_and_readiness(tmp_path):
    """As a service manager does it: sd_listen_fds(3), sd_notify(3)."""
    path = gateway.socket_path(tmp_path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(path)
    listening.listen()
    notified = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notified.bind(str(tmp_path / "n"))
    notified.settimeout(gateway.SECONDS)
    script = ("import os, sys; os.dup2(int(sys.argv[1]), 3); os.environ['LISTEN_PID'] = str(os.getpid()); "
              "os.execvp(sys.argv[2], sys.argv[2:])")
    with Server(tmp_path, env={"LISTEN_FDS": "1", "NOTIFY_SOCKET": str(tmp_path / "n")}, before=(sys.executable, "-c", script, str(listening.fileno())),
                pass_fds=(listening.fileno(),), wait="listening") as server:
        assert notified.recv(100) == b"READY=1"
        assert server.run("import os; print('LISTEN_FDS' in os.environ)")["stdout"] == "False\n"
        server.signal()
        assert notified.recv(100) == b"STOPPING=1"
        assert server.await_end() == 0
        assert os.path.exists(path)  # the manager's
    listening.close()
    notified.close()


def test_engine_that_can_run_nothing(tmp_path):
    """The server says why, and ends."""
    with Server(tmp_path, wait=None, env={"HUTCH_LAUNCHER": "/bin/false"}) as server:
        assert server.await_end() == 125
        assert any(event["event"] == "message" and event["text"].startswith("hutch: ") for event in server.events)
