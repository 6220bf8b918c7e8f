#!/usr/bin/python3
"""`hutch serve` under load: many connections that mix runs, streams, sessions, uploads, WebSockets and clients that leave, with a reload
and a restart in the midst of it, and SIGKILL at the end. Each thing that is asked has a nonce that its answer must have. In one
process and one thread, which is far from busy: the sandboxes take the machine.

    tests/soak/gateway_load.py [--connections 256] [--seconds 60] [--image python]

is `make load`; tests/soak/test_gateway_load.py is the short form. It raises Wrong at the first thing that is not as it has to be."""
import argparse
import asyncio
import base64
import contextlib
import hashlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import support  # noqa: E402  (the path comes first)
import websocket  # noqa: E402

PATIENCE = 120  # seconds, for anything that has to happen at all
HAND_OVER = ("import os, sys; os.dup2(int(sys.argv[1]), 3); os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1'); "
             "os.execv(sys.argv[2], sys.argv[2:])")
TOKENS = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("ada", "bob", "eve", "leaver")}
FILES_OF_ONE = 11  # descriptors that an engine has for each sandbox, see hutch.h
GROWTH_KB = 24 << 10  # of a server: what its heap may keep of 256 clients' requests and results


class Wrong(Exception):
    """Something was lost, mixed up or left."""


class Moved(Exception):
    """The server that has the session goes away; what was asked was not begun."""


class Cut(Exception):
    """The connection was closed before the first byte of an answer."""


def check(holds, *what):
    if not holds:
        raise Wrong(*what)


class Connection:
    """HTTP/1.1 over a unix socket."""

    def __init__(self, load, token):
        self.load, self.token, self.reader, self.writer = load, token, None, None
        self.turn = 0  # of the servers, when it was opened

    async def open(self):
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_unix_connection(self.load.path, limit=1 << 22)
            self.turn = self.load.turn

    def may_be_closed(self):
        """Its server may have gone, or be about to."""
        return self.load.is_changing() or self.turn != self.load.turn

    def close(self):
        if self.writer is not None:
            self.writer.transport.abort()
            self.writer = None

    def send(self, method, path, body=None, headers=""):
        if body is not None and not isinstance(body, bytes):
            body, headers = json.dumps(body).encode(), headers + "Content-Type: application/json\r\n"
        head = "%s %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n%s" % (method, path, self.token, headers)
        if body is not None:
            head += "Content-Length: %d\r\n" % len(body)
        self.writer.write(head.encode() + b"\r\n" + (body or b""))

    async def head(self):
        """(status, {name: value})."""
        try:
            text = await self.reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionResetError) as error:
            check(not getattr(error, "partial", b""), "an answer broke off in its headers")
            raise Cut() from error
        lines = text.decode("latin-1").split("\r\n")
        return int(lines[0].split()[1]), {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:-2])}

    async def chunks(self):
        while size := int(await self.reader.readline(), 16):
            yield (await self.reader.readexactly(size + 2))[:-2]
        await self.reader.readline()

    async def answer(self):
        """(status, bytes)."""
        status, headers = await self.head()
        if "content-length" in headers:
            body = await self.reader.readexactly(int(headers["content-length"]))
        else:
            body = b"".join([chunk async for chunk in self.chunks()]) if "transfer-encoding" in headers else b""
        if headers.get("connection", "").lower() == "close":
            self.close()
        return status, body

    async def ask(self, method, path, body=None, headers=""):
        """The answer's object, or bytes. A request that nobody has begun is sent again, while servers take turns."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                await self.open()
                self.send(method, path, body, headers)
                status, found = await self.answer()
            except (Cut, ConnectionError) as error:
                self.close()
                check(self.may_be_closed(), "a connection was closed without an answer", method, path)
                if method != "POST" or path != "/v1/run":
                    raise Moved() from error
                self.load.n_again += 1
                await asyncio.sleep(0.05)
                continue
            if status == 503 and b"shutting_down" in found:
                self.close()
                self.load.n_again += 1
                if path.startswith("/v1/sessions/"):
                    raise Moved()
                check(time.monotonic() < deadline, "the server is shutting down, and no other one takes its place")
                await asyncio.sleep(0.02)
                continue
            if status == 404 and self.load.turn and path.startswith("/v1/sessions/"):
                raise Moved()
            check(status // 100 == 2, method, path, status, found[:600])
            return json.loads(found) if found[:1] == b"{" else found


class Client:
    """Does one thing after the other on its connection until the time is over."""

    def __init__(self, load, number):
        self.load, self.rng = load, random.Random("%s %d" % (load.seed, number))
        self.number, self.count = number, 0
        self.connection = Connection(load, ("ada", "bob")[number % 2])

    def nonce(self):
        self.count += 1
        return "%d.%d.%016x" % (self.number, self.count, self.rng.getrandbits(64))

    async def work(self):
        kinds = (self.run, 50), (self.stream, 14), (self.leave, 12), (self.cells, 9), (self.files, 8), (self.websocket, 7)
        acts, weights = zip(*kinds)
        while time.monotonic() < self.load.end:
            act = self.rng.choices(acts, weights)[0]
            if self.load.has_reloaded and self.number % 7 == 0 and self.connection.token != "eve":
                self.connection.close()
                self.connection = Connection(self.load, "eve")  # whom the reload has made known
            start, turn = time.monotonic(), self.load.turn
            try:
                await asyncio.wait_for(act(), PATIENCE)
                self.load.note(act.__name__, time.monotonic() - start)
            except Moved as moved:
                check(self.load.is_changing() or turn != self.load.turn or self.connection.may_be_closed(), "a session is gone",
                      act.__name__, moved.__cause__)
                self.load.n_moved += 1
                self.connection.close()
            except asyncio.TimeoutError:
                raise Wrong("no answer after %d s" % PATIENCE, act.__name__, self.number) from None
        self.connection.close()

    async def run(self):
        nonce = self.nonce()
        kind = self.rng.randrange(4)
        if kind == 0:
            result = await self.connection.ask("POST", "/v1/run", {"code": "raise ValueError(%r)" % nonce})
            check(result["verdict"] == "error" and result["error"]["value"] == nonce, nonce, result)
        elif kind == 1:
            result = await self.connection.ask("POST", "/v1/run", {"code": "print(input())", "stdin": nonce + "\n"})
            check(result["verdict"] == "ok" and result["stdout"] == nonce + "\n", nonce, result)
        else:
            limits = {"memory_bytes": 256 << 20} if kind == 2 else {}
            result = await self.connection.ask("POST", "/v1/run", {"code": "print(%r)" % nonce, "limits": limits})
            check(result["verdict"] == "ok" and result["stdout"] == nonce + "\n", nonce, result)

    async def stream(self):
        """Output as it comes, as a program writes it."""
        nonces = [self.nonce() for _ in range(4)]
        code = "import time\n" + "".join("print(%r, flush=True)\ntime.sleep(0.005)\n" % nonce for nonce in nonces)
        deadline = time.monotonic() + PATIENCE
        while True:
            await self.connection.open()
            self.connection.send("POST", "/v1/run", {"code": code}, "Accept: application/x-ndjson\r\n")
            try:
                status, headers = await self.connection.head()
            except (Cut, ConnectionError):
                check(self.connection.may_be_closed(), "a stream was not begun")
                status = 503
            else:
                if status != 503:
                    break
            self.connection.close()
            check(time.monotonic() < deadline and self.connection.may_be_closed(), "streams are refused")
            self.load.n_again += 1
            await asyncio.sleep(0.05)
        check(status == 200 and headers["content-type"] == "application/x-ndjson", status)
        data = b"".join([chunk async for chunk in self.connection.chunks()])
        events = [json.loads(line) for line in data.splitlines()]
        seen = "".join(event["data"]["text"] for event in events if event["event"] == "output")
        check(seen == "".join(nonce + "\n" for nonce in nonces), nonces, seen)
        check(events[-1]["event"] == "result" and events[-1]["data"]["verdict"] == "ok", events[-1])

    async def leave(self):
        """In the midst of a request, before its answer, or in the midst of a stream. Its token tells these in the log."""
        connection = Connection(self.load, "leaver")
        try:
            await connection.open()
            code = "import time\nwhile True:\n    print(%r, flush=True)\n    time.sleep(0.01)\n" % self.nonce()
            kind = self.rng.randrange(4)
            if kind == 0:
                connection.writer.write(b"POST /v1/run HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer leaver\r\n"
                                        b"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{\"code\"")
            else:
                connection.send("POST", "/v1/run", {"code": code}, "Accept: text/event-stream\r\n" if kind > 1 else "")
            if kind == 3:
                await connection.head()
                await connection.reader.read(100)
            else:
                await asyncio.sleep(self.rng.uniform(0, 0.1))
        except (Cut, ConnectionError):
            check(self.load.has_changed(), "the server left first")
        finally:
            connection.close()

    @contextlib.asynccontextmanager
    async def session(self, **options):
        """Its path. It is closed, or gone with its server."""
        found = await self.connection.ask("POST", "/v1/sessions", options)
        path = "/v1/sessions/" + found["id"]
        self.load.n_sessions += 1
        try:
            yield path
        except Moved:
            if self.connection.writer is not None:  # while two servers take connections, another one may have come to the wrong one
                await self.connection.ask("DELETE", path)
            raise
        await self.connection.ask("DELETE", path)

    async def cell(self, path, code):
        result = await self.connection.ask("POST", path + "/cells", {"code": code})
        # A server that goes away ends the cells that it cannot wait for.
        if result["verdict"] == "killed" and self.load.has_changed():
            raise Moved()
        check(result["verdict"] == "ok", code, result)
        return "".join(output.get("text", "") for output in result["outputs"] if output["output_type"] == "stream")

    async def cells(self):
        nonce = self.nonce()
        async with self.session() as path:
            await self.cell(path, "nonce = %r" % nonce)
            for _ in range(self.rng.randrange(1, 4)):
                said = await self.cell(path, "print(nonce)")
                check(said == nonce + "\n", nonce, said)

    async def files(self):
        nonce = self.nonce()
        data = (nonce + "\n").encode() * self.rng.choice((1, 100, 5000, 40000))
        async with self.session() as path:
            await self.cell(path, "import hashlib")
            put = await self.connection.ask("PUT", path + "/files/in.txt", data)
            check(put["size"] == len(data), put)
            said = await self.cell(path, "print(hashlib.sha256(open('in.txt', 'rb').read()).hexdigest())")
            check(said == hashlib.sha256(data).hexdigest() + "\n", nonce, said)
            check(await self.connection.ask("GET", path + "/files/in.txt") == data, "a download differs", nonce)

    async def websocket(self):
        """A process that says what it hears, at a WebSocket."""
        nonce = self.nonce().encode()
        async with self.session(no_interpreter=True, max_processes=2) as path:
            started = await self.connection.ask("POST", path + "/processes", {"args": ["cat"], "stdin": True})
            other = Connection(self.load, self.connection.token)
            try:
                await self.attach(other, "%s/processes/%d/attach" % (path, started["id"]), nonce)
            finally:
                other.close()

    async def attach(self, other, path, nonce):
        key = base64.b64encode(nonce[:16].ljust(16, b".")).decode()
        await other.open()
        other.send("GET", path, None, "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                                      "Sec-WebSocket-Key: %s\r\n" % key)
        try:
            status, _ = await other.head()
            if status in (503, 404) and self.load.has_changed():
                raise Moved()
            check(status == 101, status)
            seen = b""
            for _ in range(3):
                other.writer.write(websocket.frame(websocket.BINARY, nonce))
            while len(seen) < 3 * len(nonce):
                first, length = await other.reader.readexactly(2)
                if length == 126:
                    length = int.from_bytes(await other.reader.readexactly(2), "big")
                data = await other.reader.readexactly(length)
                if first & 15 == websocket.CLOSE:
                    check(self.load.has_changed() and data[:2] == b"\x03\xe9", "a WebSocket was closed", data)
                    raise Moved()
                if first & 15 == websocket.BINARY:
                    seen += data
            check(seen == 3 * nonce, nonce, seen)
            if self.rng.randrange(2):  # the other half leaves without a word
                other.writer.write(websocket.frame(websocket.CLOSE, b"\x03\xe8"))
                await other.reader.read(100)
        except (Cut, ConnectionError, asyncio.IncompleteReadError) as error:
            check(self.load.has_changed(), "a WebSocket was broken off")
            raise Moved() from error


class Server:
    """hutch serve on a socket that is handed to it, as a service manager does."""

    def __init__(self, load):
        self.log_path = os.path.join(load.folder, "log.%d" % load.n_started)
        load.n_started += 1
        words = [support.HUTCH, "serve", "--image", load.image, "--tokens", load.tokens, "--drain", "60s"]
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen([sys.executable, "-c", HAND_OVER, str(load.listening.fileno()), *words],
                                            stdin=subprocess.DEVNULL, stderr=log, pass_fds=[load.listening.fileno()])
        self.pid = self.process.pid

    def events(self, name):
        with open(self.log_path, encoding="utf-8", errors="replace") as log:
            found = [line for line in log if '"event":"%s"' % name in line and line.endswith("\n")]
        return [json.loads(line) for line in found]

    async def await_event(self, name, count=1):
        deadline = time.monotonic() + PATIENCE
        while len(self.events(name)) < count:
            if self.process.poll() is not None or time.monotonic() > deadline:
                with open(self.log_path, encoding="utf-8", errors="replace") as log:
                    raise Wrong("the server does not say '%s'" % name, self.process.poll(), log.read()[-1500:])
            await asyncio.sleep(0.05)

    async def ended(self):
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            check(time.monotonic() < deadline, "the server does not end")
            await asyncio.sleep(0.02)
        return self.process.returncode

    def descriptors(self):
        return len(os.listdir("/proc/%d/fd" % self.pid))

    def memory(self):
        """kB that it has alone."""
        with open("/proc/%d/smaps_rollup" % self.pid, encoding="utf-8") as lines:
            return sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))

    def check_log(self):
        """Nobody's answer was broken off but those of who left; and nothing was refused but by one that goes away."""
        for line in self.events("request"):
            was_left = line.get("token") == "leaver" or "/attach" in (line["route"] or "")
            check(not line.get("gone") or was_left, "an answer was broken off", line)
            check(line["status"] < 500 or line.get("code") == "shutting_down", "a request failed", line)


class Load:
    def __init__(self, folder, image, connections, seconds, seed, say):
        self.folder, self.image, self.connections, self.seconds, self.seed, self.say = folder, image, connections, seconds, seed, say
        self.path, self.tokens = os.path.join(folder, "s"), os.path.join(folder, "tokens")
        self.times, self.end = {}, 0.0
        self.n_started = self.n_again = self.n_moved = self.n_sessions = 0
        self.turn = 0  # servers that have gone
        self.changing_until = 0.0
        self.has_reloaded = False
        self.left_before = set(support.dead_runs())
        self.listening = socket.socket(socket.AF_UNIX)
        self.listening.bind(self.path)
        self.listening.listen(1024)
        self.server = None

    def is_changing(self):
        return time.monotonic() < self.changing_until

    def has_changed(self):
        return self.turn > 0 or self.is_changing()

    def note(self, name, seconds):
        self.times.setdefault(name, []).append(seconds)

    def write_tokens(self, *names):
        with open(self.tokens + ".new", "w", encoding="ascii") as file:
            file.writelines("%s %s\n" % (name, TOKENS[name]) for name in names)
        os.rename(self.tokens + ".new", self.tokens)

    async def metrics(self):
        connection = Connection(self, "ada")
        text = (await connection.ask("GET", "/metrics")).decode()
        connection.close()
        rows = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
        return {name: float(value) for name, _, value in rows}

    @staticmethod
    def sandboxes(metrics):
        return sum(value for name, value in metrics.items() if name.startswith(("hutch_pool_prepared", "hutch_pool_building")))

    async def settled(self):
        """The metrics, when no client is left."""
        deadline = time.monotonic() + PATIENCE
        while True:
            found = await self.metrics()
            busy = {name: found[name] for name in ("hutch_running", "hutch_queued", "hutch_sessions", "hutch_http_held_bytes")
                    if found[name]}
            if not busy and found["hutch_http_connections"] == found["hutch_http_exchanges"] == 1 and \
                    not any(value for name, value in found.items() if name.startswith("hutch_pool_building")):
                return found
            check(time.monotonic() < deadline, "something stays", busy, found["hutch_http_connections"])
            await asyncio.sleep(0.2)

    async def reload(self):
        self.write_tokens("ada", "bob", "leaver", "eve")
        self.server.process.send_signal(signal.SIGHUP)
        await self.server.await_event("reloaded")
        self.has_reloaded = True

    async def restart(self):
        """A second server takes connections from the same socket; when it is ready, the first is told to end."""
        first, second = self.server, Server(self)
        self.changing_until = time.monotonic() + PATIENCE
        await second.await_event("ready")
        start = time.monotonic()
        first.process.send_signal(signal.SIGTERM)
        check(await first.ended() == 0, "the first server's status", first.process.returncode)
        self.turn += 1
        self.server = second
        self.changing_until = time.monotonic() + 2
        first.check_log()
        return time.monotonic() - start

    async def work(self):
        clients = [asyncio.ensure_future(Client(self, number).work()) for number in range(self.connections)]
        try:
            for share, act in ((0.3, self.reload), (0.55, self.restart)):
                await self.until(clients, self.end - (1 - share) * self.seconds)
                found = await act()
            await self.until(clients, None)
        finally:
            for client in clients:
                client.cancel()
            await asyncio.gather(*clients, return_exceptions=True)
        return found

    @staticmethod
    async def until(clients, at):
        """A client that fails ends it."""
        done, _ = await asyncio.wait(clients, timeout=None if at is None else max(0, at - time.monotonic()),
                                     return_when=asyncio.FIRST_EXCEPTION)
        for client in done:
            client.result()

    async def begin(self):
        self.write_tokens("ada", "bob", "leaver")
        self.server = Server(self)
        await self.server.await_event("ready")

    async def kill(self):
        """SIGKILL with streams, cells and WebSockets under way: clients see that their answers were broken off."""
        streams = [Connection(self, "ada") for _ in range(12)]
        for stream in streams:
            await stream.open()
            stream.send("POST", "/v1/run", {"code": "import time\nwhile True:\n    print('x', flush=True)\n    time.sleep(0.01)\n"},
                        "Accept: text/event-stream\r\n")
        for stream in streams[:2]:  # as many as run at a time; the others wait in the queue
            check((await stream.head())[0] == 200)
            await stream.reader.readexactly(200)
        session = await Connection(self, "ada").ask("POST", "/v1/sessions", {"no_interpreter": True, "max_processes": 2})
        await Connection(self, "ada").ask("POST", "/v1/sessions/%s/processes" % session["id"], {"args": ["sleep", "1000"]})
        self.server.process.kill()
        for stream in streams:
            rest = await asyncio.wait_for(stream.reader.read(-1), PATIENCE)
            check(b"\r\n0\r\n\r\n" not in rest and b"event: result" not in rest, "a stream has a good end")
            stream.close()
        await self.server.ended()
        deadline = time.monotonic() + PATIENCE
        while left := support.descendants(os.getpid()):
            check(time.monotonic() < deadline, "processes are left", [support.comm(pid) for pid in left])
            await asyncio.sleep(0.02)

    async def all(self):
        await self.begin()
        cpu = time.process_time()
        self.end = time.monotonic() + self.seconds
        begun = time.monotonic()
        handed_over = await self.work()
        taken, cpu = time.monotonic() - begun, time.process_time() - cpu
        self.tell(taken, cpu, handed_over)
        await self.check_flat()
        await self.kill()
        await self.begin_again()

    async def check_flat(self):
        """After a second load of the same kind, the server has what it had after the first."""
        before = None
        for seconds in (self.seconds / 6, self.seconds / 4):
            self.end = time.monotonic() + seconds
            clients = [asyncio.ensure_future(Client(self, number).work()) for number in range(self.connections)]
            await self.until(clients, None)
            found = await self.settled()
            now = self.server.descriptors(), self.server.memory(), self.sandboxes(found)
            before = before or now
        self.say("load: of the server after %.1f s more, and after %.1f: descriptors %d, %d; memory %d, %d kB; prepared sandboxes %d, %d"
                 % (self.seconds / 6, self.seconds / 4, before[0], now[0], before[1], now[1], before[2], now[2]))
        # Those of zygotes differ, and some may be on their end.
        check(now[0] <= before[0] + FILES_OF_ONE * (3 + max(0, now[2] - before[2])), "descriptors", before, now)
        check(now[1] <= before[1] + GROWTH_KB, "memory", before, now)
        self.server.check_log()

    async def begin_again(self):
        """The next start sweeps what the killed one has left."""
        self.server = Server(self)
        await self.server.await_event("ready")
        left = set(support.dead_runs()) - self.left_before
        check(not left, "left in the store", left)
        result = await Connection(self, "eve").ask("POST", "/v1/run", {"code": "print('again')"})
        check(result["stdout"] == "again\n", result)
        self.server.process.terminate()
        check(await self.server.ended() == 0, "the last server's status")

    def tell(self, taken, cpu, handed_over):
        total = sum(len(times) for times in self.times.values())
        self.say("load: %d connections, %.1f s, %d things done (%.0f/s), %d sessions; none lost, none mixed up"
                 % (self.connections, taken, total, total / taken, self.n_sessions))
        for name, times in sorted(self.times.items()):
            ordered = sorted(times)
            p50, p99 = (1e3 * ordered[int((len(ordered) - 1) * share)] for share in (0.5, 0.99))
            self.say("load: %-10s %6d   p50 %6.0f ms   p99 %6.0f ms" % (name, len(times), p50, p99))
        self.say("load: restart: %.1f s from SIGTERM to the first server's end; %d requests were sent again, %d things of its sessions ended"
                 % (handed_over, self.n_again, self.n_moved))
        self.say("load: the client took %.0f %% of a processor" % (100 * cpu / taken))

    def done(self):
        if self.server and self.server.process.poll() is None:
            self.server.process.kill()
            self.server.process.wait()
        self.listening.close()


def short(folder):
    """A path in which a socket's has room; a directory of its own, if need be."""
    return folder if len(str(folder)) < 80 else tempfile.mkdtemp(prefix="hutch-load-")


def run(folder, image="python", connections=256, seconds=60.0, seed="1", say=print):
    """@folder: an empty directory with a short path."""
    support.become_subreaper()  # so that nothing of a killed server can hide
    load = Load(str(folder), image, connections, seconds, seed, say)
    try:
        asyncio.run(load.all())
    finally:
        load.done()


def main():
    parser = argparse.ArgumentParser(description="`hutch serve` under load.")
    parser.add_argument("--connections", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--image", default="python")
    parser.add_argument("--seed", default="1")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hutch-load-") as folder:
        try:
            run(folder, args.image, args.connections, args.seconds, args.seed, lambda text: print(text, flush=True))
        except Wrong as wrong:
            sys.exit("load: %s" % (wrong,))


if __name__ == "__main__":
    main()
