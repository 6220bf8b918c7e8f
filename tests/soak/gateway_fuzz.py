#!/usr/bin/python3
"""`hutch serve` under requests that are nearly right: those of every format, changed byte by byte, spliced, cut off and sent in pieces.

    tests/soak/gateway_fuzz.py [--seconds 1200] [--seed N] [--image python]

is `make fuzz-http`, with the sanitizers; tests/soak/test_gateway_fuzz.py is the short form. Whatever comes, the server answers in
HTTP or closes, never with 500, and between all that it runs programs as ever; at the end it stops in an orderly way, without a leak.
The same seed sends the same requests, but for the ids of sessions. HUTCH_TEST_WORKERS=N has N workers serve. It raises Wrong at the
first thing that is not as it has to be, with the requests that came last."""
import argparse
import collections
import json
import os
import pathlib
import random
import socket
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import gateway  # noqa: E402  (the path comes first)

CONNECTIONS_OF_A_ROUND = 100  # and then the server is asked whether all is well
ANSWER_SECONDS = 0.25         # that are waited for an answer, which may never come: a request may be incomplete
REMEMBERED = 20
BOUNDARY = b"--b\r\n"
JSON, CONNECT, FORM = "application/json", "application/connect+json", "multipart/form-data; boundary=b"


class Wrong(Exception):
    """The server did what it never may."""


def part(name, data, filename=None):
    more = b'; filename="%s"' % filename if filename else b""
    return BOUNDARY + b'Content-Disposition: form-data; name="%s"%s\r\n\r\n%s\r\n' % (name, more, data)


def envelope(value):
    data = json.dumps(value).encode()
    return b"\0" + len(data).to_bytes(4, "big") + data


# Method, path, type and body, more headers. SESSION and SANDBOX stand for ids that are there.
NATIVE = "/v1/sessions/SESSION"
REQUESTS = [
    ("GET", "/healthz", None, None), ("GET", "/readyz", None, None), ("GET", "/metrics", None, None), ("GET", "/openapi.json", None, None),
    ("GET", "/v1/pools", None, None), ("GET", "/v1/languages", None, None), ("GET", "/v1/policies", None, None),
    ("POST", "/v1/run", JSON, {"code": "print(6 * 7)", "limits": {"memory": "256m"}, "env": {"A": "b"}, "stdin": "x"}),
    ("POST", "/v1/run", JSON, {"code": "print(1)", "files": [{"name": "a.txt", "text": "b"}], "fetch": ["a.txt"]}, {"Accept": "text/event-stream"}),
    ("POST", "/v1/run", JSON, {"code": "print(1)"}, {"Accept": "application/x-ndjson", "Idempotency-Key": "k"}),
    ("POST", "/v1/run", FORM, part(b"request", b'{"code": "print(open(\'a.txt\').read())"}') + part(b"file", b"hello", b"a.txt") + b"--b--\r\n"),
    ("POST", "/v1/batch", "application/x-ndjson", b'{"code": "print(1)", "id": "a"}\n{"code": "1/0"}\n'),
    ("GET", "/v1/functions", None, None), ("POST", "/v1/functions/none", JSON, {"a": [1, None]}),
    ("GET", "/v1/sessions", None, None), ("GET", NATIVE, None, None),
    ("POST", NATIVE + "/cells", JSON, {"code": "x = 1; x", "id": "c", "stop_on_error": True}),
    ("POST", NATIVE + "/interrupt", JSON, {}), ("POST", NATIVE + "/restart", JSON, {}), ("POST", NATIVE + "/pause", JSON, {}),
    ("POST", NATIVE + "/resume", JSON, {}), ("POST", NATIVE + "/lifetime", JSON, {"idle": "1m"}),
    ("POST", NATIVE + "/checkpoints", JSON, {"name": "a"}), ("POST", NATIVE + "/rollback", JSON, {"checkpoint": 1}),
    ("POST", NATIVE + "/branches", JSON, {"name": "b"}), ("POST", NATIVE + "/switch", JSON, {"branch": "b"}),
    ("POST", NATIVE + "/processes", JSON, {"shell": "cat", "stdin": True}), ("GET", NATIVE + "/processes", None, None),
    ("GET", NATIVE + "/processes/1/output", None, None), ("POST", NATIVE + "/processes/1/stdin", JSON, {"text": "a"}),
    ("POST", NATIVE + "/processes/1/signal", JSON, {"signal": "TERM"}), ("POST", NATIVE + "/processes/1/resize", JSON, {"rows": 2, "cols": 3}),
    ("GET", NATIVE + "/terminal?rows=20&cols=80", None, None,
     {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}),
    ("GET", NATIVE + "/stat?path=/mnt/data", None, None), ("GET", NATIVE + "/list?path=/mnt/data&depth=2", None, None),
    ("POST", NATIVE + "/make_directory", JSON, {"path": "/mnt/data/d"}), ("POST", NATIVE + "/rename", JSON, {"from": "/mnt/data/d", "to": "/mnt/data/e"}),
    ("GET", NATIVE + "/files", None, None), ("PUT", NATIVE + "/files/a%20b.txt", "application/octet-stream", b"data"),
    ("GET", NATIVE + "/files/a%20b.txt", None, None, {"Range": "bytes=1-2"}), ("DELETE", NATIVE + "/files/a%20b.txt", None, None),
    ("POST", "/sandboxes", JSON, {"templateID": "base", "timeout": 60, "metadata": {"a": "b"}}), ("GET", "/v2/sandboxes?metadata=a%3Db&limit=2", None, None),
    ("POST", "/sandboxes/SANDBOX/timeout", JSON, {"timeout": 60}), ("GET", "/sandboxes/SANDBOX/metrics", None, None),
    ("POST", "/sandboxes/SANDBOX/pause", JSON, {}), ("POST", "/v2/sandboxes/SANDBOX/connect", JSON, {"timeout": 60}),
    ("POST", "/execute", JSON, {"code": "1 + 1", "language": "python"}, {"E2b-Sandbox-Id": "SANDBOX", "E2b-Sandbox-Port": "49999"}),
    ("POST", "/contexts", JSON, {"language": "python", "cwd": "/home/user"}, {"E2b-Sandbox-Id": "SANDBOX", "E2b-Sandbox-Port": "49999"}),
    ("POST", "/process.Process/Start", CONNECT, envelope({"process": {"cmd": "/bin/sh", "args": ["-c", "echo a"]}}), {"E2b-Sandbox-Id": "SANDBOX"}),
    ("POST", "/process.Process/List", JSON, {}, {"E2b-Sandbox-Id": "SANDBOX"}),
    ("POST", "/filesystem.Filesystem/ListDir", JSON, {"path": "/home/user", "depth": 1}, {"E2b-Sandbox-Id": "SANDBOX"}),
    ("POST", "/filesystem.Filesystem/WatchDir", CONNECT, envelope({"path": "/home/user"}), {"E2b-Sandbox-Id": "SANDBOX"}),
    ("POST", "/files?path=a.txt&username=user", FORM, part(b"file", b"hello", b"a.txt") + b"--b--\r\n", {"E2b-Sandbox-Id": "SANDBOX"}),
    ("GET", "/files?path=a.txt&signature=v1_x&signature_expiration=1", None, None, {"E2b-Sandbox-Id": "SANDBOX"}),
    ("POST", "/run_code", JSON, {"code": "print(1)", "language": "python", "files": {"a": "aGk="}, "fetch_files": ["a"], "run_timeout": 1}),
    ("POST", "/run_jupyter", JSON, {"cells": ["x = 1", "x"], "kernel": "python3"}), ("GET", "/v1/ping", None, None),
    ("POST", "/code/execute?api-version=2024-02-02-preview&identifier=fuzz", JSON, {"properties": {"codeInputType": "inline", "executionType": "synchronous", "code": "1"}}),
    ("POST", "/executions?api-version=2025-02-02-preview&identifier=fuzz", JSON, {"code": "1", "codeInputType": "Inline", "executionType": "Synchronous"}),
    ("POST", "/files/upload?api-version=2024-02-02-preview&identifier=fuzz", FORM, part(b"file", b"hello", b"a.txt") + b"--b--\r\n"),
    ("GET", "/files/content/a.txt?api-version=2024-02-02-preview&identifier=fuzz", None, None), ("GET", "/session?api-version=2025-02-02-preview&identifier=fuzz", None, None),
    ("POST", "/mcp", JSON, {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "f", "version": "1"}}},
     {"Accept": "application/json, text/event-stream"}),
    ("POST", "/mcp", JSON, {"jsonrpc": "2.0", "id": "a", "method": "tools/call", "params": {"name": "run_python", "arguments": {"code": "1"}}},
     {"Accept": "application/json, text/event-stream", "Mcp-Protocol-Version": "2025-06-18"}),
    ("GET", "/mcp/sse", None, None), ("GET", "/python/sse", None, None), ("POST", "/mcp/messages/x", JSON, {"jsonrpc": "2.0", "method": "ping", "id": 1}),
    ("POST", "/v1/tools/run_python", JSON, {"code": "1"}), ("POST", "/v1/tools", JSON, {"name": "run_python", "arguments": "{\"code\": \"1\"}"}),
]
WORDS = [b"\r\n", b"\r\n\r\n", b"\n", b"\r", b"\0", b"%00", b"%2e%2e%2f", b"../", b"//", b"?", b"&", b"=", b"%", b"\xff\xfe", b"\xed\xa0\x80", b"\\ud800",
         b'"', b"\\", b"{", b"}", b"[" * 300, b"{\"a\":" * 100, b"null", b"true", b"-1", b"0", b"1e400", b"18446744073709551616", b"9007199254740993", b"NaN",
         b"Content-Length: 5\r\n", b"Content-Length: -1\r\n", b"Content-Length: 99999999999999999999\r\n", b"Transfer-Encoding: chunked\r\n", b"Expect: 100-continue\r\n",
         b"Connection: close\r\n", b"Host: a\r\n", b"Upgrade: websocket\r\n", b"ffffffffffffffff\r\n", b"0\r\n\r\n", b"Range: bytes=0-0,2-3\r\n",
         b"Origin: null\r\n", b"Content-Encoding: gzip\r\n", b"A" * 9000, b"/" * 3000, b"\x82\xff" + b"\xff" * 8, b"\x88\x80\0\0\0\0", b"HTTP/1.0", b"HTTP/2.0", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"]


def bytes_of(row):
    method, path, kind, body, headers = (*row, {})[:5]
    body = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    fields = {"Host": "localhost", **({"Content-Type": kind, "Content-Length": len(body)} if body is not None else {}), **headers}
    head = "%s %s HTTP/1.1\r\n%s\r\n" % (method, path, "".join("%s: %s\r\n" % field for field in fields.items()))
    return head.encode() + (body or b"")


def change(draw, data):
    """One change of a few bytes."""
    at, how = draw.randrange(len(data) + 1), draw.randrange(7)
    end = min(len(data), at + draw.choice((1, 1, 2, 4, 16, 64)))
    if how == 0:
        return data[:at] + bytes([draw.randrange(256)]) + data[at + 1:]
    if how == 1:
        return data[:at] + data[end:]
    if how == 2:
        return data[:end] + data[at:]
    if how in (3, 4):
        return data[:at] + draw.choice(WORDS) + data[at:]
    if how == 5:
        return data[:at] + draw.choice(WORDS) + data[end:]
    return data[:at] if at else data


def chunked(draw, data):
    """The same request, with its body in chunks."""
    head, _, body = data.partition(b"\r\n\r\n")
    lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"content-length")]
    out = b"\r\n".join(lines + [b"Transfer-Encoding: chunked"]) + b"\r\n\r\n"
    while body:
        n = draw.randint(1, len(body))
        out, body = out + b"%x\r\n%s\r\n" % (n, body[:n]), body[n:]
    return out + b"0\r\n\r\n"


class Fuzz:
    def __init__(self, server, seed):
        self.server, self.draw = server, random.Random(seed)
        self.seeds = [bytes_of(row) for row in REQUESTS]
        self.last = collections.deque(maxlen=REMEMBERED)
        self.statuses, self.n_requests = collections.Counter(), 0
        self.session = self.sandbox = ""

    def request(self):
        draw = self.draw
        data = draw.choice(self.seeds)
        if draw.random() < 0.1:
            data = chunked(draw, data)
        if draw.random() < 0.1:
            data = data.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" + draw.choice(self.seeds).partition(b"\r\n\r\n")[2]
        data = data.replace(b"SESSION", self.session.encode()).replace(b"SANDBOX", self.sandbox.encode())
        for _ in range(draw.choice((0, 1, 1, 1, 2, 3, 8))):
            data = change(draw, data) or b"\n"
        return data

    def connect(self):
        """One connection with one request or more; what comes back is HTTP."""
        data = b"".join(self.request() for _ in range(self.draw.choice((1, 1, 1, 2, 4))))
        self.last.append(data)
        self.n_requests += 1
        with self.server.connect() as sock:
            sock.settimeout(ANSWER_SECONDS)
            try:
                for _ in range(self.draw.choice((1, 1, 2, 5))):
                    n = self.draw.randint(0, len(data))
                    sock.sendall(data[:n])
                    data = data[n:]
                sock.sendall(data)
                if self.draw.random() < 0.1:
                    return  # gone without having read a byte
                if self.draw.random() < 0.5:
                    sock.shutdown(socket.SHUT_WR)
                self.check(sock.recv(65536))
            except (TimeoutError, ConnectionResetError, BrokenPipeError):
                pass

    def check(self, answer):
        if not answer:
            self.statuses["closed"] += 1
            return
        status = answer[9:12].decode("latin-1")
        if not (answer.startswith((b"HTTP/1.1 ", b"HTTP/1.0 ")) and status.isdigit()) or status == "500":
            raise Wrong("what came back: %r" % answer[:500])
        self.statuses[status] += 1

    def settle(self):
        """The server is there, and runs what it is asked to; then other sessions take the place of those of before."""
        nonce = "%032x" % self.draw.getrandbits(128)
        deadline = time.monotonic() + gateway.SECONDS
        while (answer := self.server.ask("POST", "/v1/run", {"code": "print('%s')" % nonce})).status == 429:
            if time.monotonic() > deadline:
                raise Wrong("the queue stays full: %s" % answer.body)
            time.sleep(0.1)
        if answer.status != 200 or answer.json["stdout"] != nonce + "\n":
            raise Wrong("a run of ours: %d %s" % (answer.status, answer.body))
        for path in ["/v1/sessions/" + session["id"] for session in self.server.ask("GET", "/v1/sessions").json["sessions"]]:
            if self.server.ask("DELETE", path).status not in (200, 202, 204, 404):
                raise Wrong("a session could not be removed: " + path)
        self.session = self.open("/v1/sessions", {}, "id")
        self.sandbox = self.open("/sandboxes", {"templateID": "base", "timeout": 60}, "sandboxID")

    def open(self, path, request, key):
        answer = self.server.ask("POST", path, request)
        if answer.status == 429:
            return "x" * 21
        if answer.status not in (200, 201):
            raise Wrong("%s: %d %s" % (path, answer.status, answer.body))
        return answer.json[key]

    def run(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.settle()
            for _ in range(CONNECTIONS_OF_A_ROUND):
                self.connect()
                if self.server.process.poll() is not None:
                    raise Wrong("the server has ended: %s" % self.server.events[-40:])
                if any(event["event"] == "worker ended" for event in self.server.events):
                    raise Wrong("a worker has ended: %s" % self.server.events[-40:])
        self.settle()


def run(folder, seconds, seed, image):
    """Counts of what was answered, by status. @folder: for the server's socket."""
    server = gateway.Server(folder, "--timeout", "10s", "--request-timeout", "2s", "--jobs", "2", image=image)
    fuzz = Fuzz(server, seed)
    try:
        fuzz.run(seconds)
        server.stop()
    except BaseException:
        for data in fuzz.last:
            print("sent: %r" % data[:4000], file=sys.stderr)
        print("seed %d, the server's last words: %s" % (seed, server.events[-40:]), file=sys.stderr)
        raise
    finally:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()
    return fuzz


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=1200)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("--image", default="python")
    options = parser.parse_args()
    print("seed %d" % options.seed, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        fuzz = run(pathlib.Path(folder), options.seconds, options.seed, options.image)
    print("%d connections in %d s, answered with %s" % (fuzz.n_requests, options.seconds, dict(sorted(fuzz.statuses.items()))))


if __name__ == "__main__":
    main()
