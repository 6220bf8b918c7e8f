"""`hutch serve` for tests: a server of their own, and requests to it, by http.client or byte by byte."""
import hashlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time

import openapi
import support

SECONDS = 150  # for anything that has to happen at all
WORKERS = os.environ.get("HUTCH_TEST_WORKERS")  # all servers have so many, where their test says nothing of it
ERROR_KEYS = ["status", "code", "message", "hint"]


def await_that(holds):
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


class CheckedResponse(http.client.HTTPResponse):
    """Of the native API: what is read of a stream is as its OpenAPI document has it."""
    stream = None  # of openapi.py
    depth = 0      # a method may call another one

    def _checked(self, method, *args):
        self.depth += 1
        try:
            data = method(*args)
        finally:
            self.depth -= 1
        if self.stream and not self.depth:
            self.stream.feed(data)
        return data

    def read(self, amt=None):
        return self._checked(super().read, amt)

    def read1(self, n=-1):
        return self._checked(super().read1, n)

    def readline(self, limit=-1):
        return self._checked(super().readline, limit)


class UnixConnection(http.client.HTTPConnection):
    response_class = CheckedResponse

    def __init__(self, path):
        super().__init__("localhost", timeout=SECONDS)
        self.path, self.asked = path, None

    def putrequest(self, method, url, *args, **more):
        self.asked = method, url
        super().putrequest(method, url, *args, **more)

    def getresponse(self):
        answer = super().getresponse()
        answer.stream = openapi.Stream(*self.asked, answer.status, answer.headers)
        return answer

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(SECONDS)
        self.sock.connect(self.path)


def tokens_file(tmp_path, **tokens):
    """A file for --tokens; its path."""
    path = tmp_path / "tokens"
    path.write_text("# who may ask\n\n" + "".join("%s %s\n" % (name, hashlib.sha256(token.encode()).hexdigest())
                                                  for name, token in tokens.items()))
    path.chmod(0o600)
    return str(path)


def bearer(token):
    return {"Authorization": "Bearer " + token}


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        """The error, whose shape is the same everywhere."""
        assert self.headers["Content-Type"] == "application/json", self.headers
        error = self.json["error"]
        assert list(self.json) == ["error"] and list(error) == ERROR_KEYS, self.json
        assert error["status"] == self.status and error["message"] and error["hint"].endswith("."), error
        assert "\n" not in error["message"]
        return error


def policy_file(tmp_path, name, **limits):
    """The policy "default" with other limits; its path."""
    folder = support.engine_env()["HUTCH_POLICY_DIR"]
    with open(os.path.join(folder, "default.json"), encoding="utf-8") as file:
        policy = json.load(file)
    policy["limits"].update(limits)
    for profile in os.listdir(folder):
        if profile.startswith("seccomp"):
            shutil.copy(os.path.join(folder, profile), tmp_path)
    path = tmp_path / (name + ".json")
    path.write_text(json.dumps(policy))
    return str(path)


def little_config(image):
    """The file for --config of a server that keeps little warm."""
    return os.path.join(support.TESTS, "zygotes", ("python" if image == "python" else "minimal") + ".json")


def socket_path(tmp_path):
    """Paths of sockets are short."""
    path = os.path.join(str(tmp_path), "s")
    return path if len(path) < 100 else os.path.join("/tmp", "hutch-test-%d.sock" % os.getpid())


class Server:
    """Started with @words behind `hutch serve`; without a --listen, on a unix socket. Its log is collected.

    With @warm "little" it keeps an interpreter warm, and in the image "python" a shell, in one address layout; with "usual", what a
    server does that was told nothing: its zygotes import pandas and matplotlib as well, which takes 4 seconds of a processor, and
    that for up to four layouts. A server with a --config among its @words has what that says."""

    def __init__(self, tmp_path, *words, image="minimal", env=None, before=(), wait="ready", pass_fds=(), warm="little"):
        self.path = socket_path(tmp_path)
        words = list(words)
        if WORKERS and "--workers" not in words:
            words += ["--workers", WORKERS]
        if warm != "usual" and "--config" not in words:
            words += ["--config", little_config(image)]
        if "--listen" not in words and not pass_fds and not (env and "XDG_RUNTIME_DIR" in env):
            words += ["--listen", "unix:" + self.path]
        self.events, self.changed = [], threading.Condition()
        self.process = subprocess.Popen([*before, support.HUTCH, "serve", "--image", image, *words], stdin=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE, env={**os.environ, **(env or {})}, pass_fds=pass_fds)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        if wait:
            self.await_event(wait)

    def _read(self):
        for line in self.process.stderr:
            with self.changed:
                try:
                    self.events.append(json.loads(line))
                except ValueError:
                    self.events.append({"event": "message", "text": line.decode("utf-8", "replace")})
                self.changed.notify_all()
        with self.changed:
            self.events.append({"event": "end of log"})
            self.changed.notify_all()

    def await_event(self, name, holds=lambda event: True):
        deadline = time.monotonic() + SECONDS
        with self.changed:
            while True:
                found = [event for event in self.events if event["event"] == name and holds(event)]
                if found:
                    return found[0]
                assert not any(event["event"] == "end of log" for event in self.events), self.events
                assert self.changed.wait(max(0, deadline - time.monotonic())), "no '%s' came: %s" % (name, self.events)

    def port(self):
        """Of the TCP socket."""
        with self.changed:
            addresses = [event["address"] for event in self.events if event["event"] == "listening"]
        return int([address for address in addresses if not address.startswith("unix:")][0].rpartition(":")[2])

    def connect(self):
        """A socket, without a word said."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(SECONDS)
        sock.connect(self.path)
        return sock

    def ask(self, method, path, body=None, headers=None, connection=None):
        """One request on a connection of its own, or on @connection. A @body that is no bytes is JSON. What the native API
        answers is as its OpenAPI document has it."""
        own = connection or UnixConnection(self.path)
        headers = dict(headers or {})
        if body is not None:
            headers.setdefault("Content-Type", "application/json")
            body = body if isinstance(body, bytes) else json.dumps(body).encode()
        try:
            own.request(method, path, body, headers)
        except BrokenPipeError:
            pass  # refused before all of it was read; the answer says why
        answer = own.getresponse()
        answer.stream = None  # all of it is checked below
        found = Answer(answer.status, answer.headers, answer.read())
        openapi.check(method, path, body, headers.get("Content-Type"), found)
        if not connection:
            own.close()
        return found

    def run(self, code, **more):
        """The result of a run."""
        answer = self.ask("POST", "/v1/run", {"code": code, **more})
        assert answer.status == 200, answer.body
        return answer.json

    def raw(self, data):
        """What comes back to these bytes until the server closes."""
        with self.connect() as sock:
            sock.sendall(data)
            found = read_all(sock)
        asked = re.match(rb"(\w+) (/\S*) HTTP/1\.1\r\n", data)
        if asked and re.match(rb"HTTP/1\.1 [2-5]\d\d .*?\r\nContent-Length: ", found, re.DOTALL):
            openapi.check(asked[1].decode(), asked[2].decode("latin-1"), None, None, parse(found))
        return found

    def metrics(self, headers=None):
        """{'name{labels}': value}."""
        answer = self.ask("GET", "/metrics", headers=headers)
        assert answer.status == 200
        lines = [line for line in answer.body.decode().splitlines() if not line.startswith("#")]
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}

    def await_metric(self, name, value, headers=None):
        deadline = time.monotonic() + SECONDS
        while (found := self.metrics(headers)).get(name) != value:
            assert time.monotonic() < deadline, (name, value, found.get(name))
            time.sleep(0.02)
        return found

    def signal(self, number=signal.SIGTERM):
        self.process.send_signal(number)

    def await_end(self):
        """The exit status."""
        status = self.process.wait(SECONDS)
        self.reader.join(SECONDS)
        return status

    def stop(self):
        """It ends in an orderly way, whatever it was asked before; under a sanitizer, without a leak."""
        status = 0
        if self.process.poll() is None:
            self.signal()
            try:
                status = self.process.wait(SECONDS)
            finally:
                if self.process.poll() is None:
                    self.process.kill()
        self.reader.join(SECONDS)
        self.process.stderr.close()
        assert status == 0, (status, self.events[-20:])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def read_all(sock):
    """Until its end, which may come as a reset: the server does not read what it has refused."""
    data = b""
    while True:
        try:
            piece = sock.recv(65536)
        except ConnectionResetError:
            return data
        if not piece:
            return data
        data += piece


def read_answer(sock):
    """One with a Content-Length, of a connection that may stay open."""
    data = b""
    while (head := data.partition(b"\r\n\r\n"))[1] == b"" or len(head[2]) < int(re.search(rb"\r\nContent-Length: (\d+)", head[0])[1]):
        piece = sock.recv(65536)
        assert piece, data
        data += piece
    return parse(data)


def parse(data):
    """The first answer among raw bytes."""
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    headers = {name.title(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
    return Answer(int(lines[0].split()[1]), headers, body[:int(headers.get("Content-Length", len(body)))])
