"""The part of bench/report about `hutch serve`: what HTTP costs beside the library's own call, in the same run and in
turns. gateway.c asks both; instant.c is the floor, the same server with a handler that answers at once."""
import contextlib
import glob
import hashlib
import json
import os
import secrets
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.dirname(HERE)
PARTS = ("gateway",)
CODE = "print('hello')\n"
HELLO = '"stdout":"hello\\n"'
SECONDS = 60   # for anything that has to happen at all
ROW_SECONDS = 30  # for one way beside another: on a busy machine, fewer rounds have to do
FILE = 256 << 20
STREAMED = """\
import time
for _ in range(20):
    print(time.monotonic_ns(), flush=True)
    time.sleep(0.003)
"""


def request(method, path, body=None, *headers):
    """As it is sent."""
    text = "" if body is None else json.dumps(body)
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *headers]
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(text)}"]
    return "\r\n".join(lines) + "\r\n\r\n" + text


RUN = request("POST", "/v1/run", {"code": CODE})
INSTANT = request("POST", "/instant", {"code": CODE})
LIMITED = request("POST", "/run_code", {"code": CODE, "language": "python", "memory_limit_MB": 256})
WEBSOCKET = ("Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13",
             "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")


class Missing(Exception):
    """A row cannot be measured here, and why."""


class Server:
    """A program that listens at @path, and says in its log when its pool is filled."""

    def __init__(self, folder, name, words):
        self.path = os.path.join(folder, name)
        self.log = self.path + ".log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([word.replace("SOCKET", self.path) for word in words],
                                            stdin=subprocess.DEVNULL, stderr=log)
        self.address, self.pid = "unix:" + self.path, self.process.pid
        limit = time.monotonic() + 2 * SECONDS
        while not self.events("ready"):
            if self.process.poll() is not None or time.monotonic() > limit:
                self.stop()
                sys.exit(f"bench/report: {name}: {self.text()[-600:]}")
            time.sleep(0.05)

    def text(self):
        with open(self.log, encoding="utf-8", errors="replace") as log:
            return log.read()

    def events(self, name):
        with open(self.log, encoding="utf-8", errors="replace") as log:
            return [json.loads(line) for line in log if line.startswith("{") and f'"event":"{name}"' in line
                    and line.endswith("\n")]

    def port(self):
        addresses = [event["address"] for event in self.events("listening")]
        return [int(address.rpartition(":")[2]) for address in addresses if not address.startswith("unix:")][0]

    def memory(self):
        """kB that the process has alone: without what the kernel holds for its sockets."""
        total = 0
        with open(f"/proc/{self.pid}/smaps_rollup", encoding="utf-8") as lines:
            for line in lines:
                if line.startswith("Private_"):
                    total += int(line.split()[1])
        return total

    def ask(self, method, path, body=None):
        """The answer's object, on a connection of its own."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(SECONDS)
            sock.connect(self.path)
            sock.sendall(request(method, path, body, "Connection: close").encode())
            data = b""
            while piece := sock.recv(65536):
                data += piece
        status, body = int(data.split()[1]), data.partition(b"\r\n\r\n")[2]
        if status // 100 != 2:
            sys.exit(f"bench/report: {method} {path}: {data[:600].decode()}")
        return json.loads(body) if body else None

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()


class Asker:
    """A program that is told by lines of stdin what to ask, and answers each with a line of JSON."""

    def __init__(self, name, words, **options):
        self.name = name
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options)

    def ask(self, line):
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except OSError:
            answer = ""
        if not answer:
            self.process.wait()
            sys.exit(f"bench/report: {self.name}: it has ended, see above")
        return json.loads(answer)

    def times(self, n):
        return self.ask(str(n))["ms"]

    def do(self, order, **words):
        return self.ask(json.dumps({"do": order, **words}))

    def stop(self):
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()


def cpu_below(root):
    """Clock ticks that a process and all below it have had."""
    parents, ticks = {}, {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
            parents[int(name)], ticks[int(name)] = int(fields[1]), int(fields[11]) + int(fields[12])
    below = {root}
    while more := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= more
    return sum(ticks.get(pid, 0) for pid in below)


class Gateway:
    """@bench: report's, for its arguments and its record."""

    def __init__(self, bench, say, percentiles):
        self.bench, self.say, self.percentiles = bench, say, percentiles
        self.quick = bench.args.quick
        self.found = {"absent": {}}

    def few(self, n):
        return max(1, n // 10) if self.quick else n

    def seconds(self, n):
        return n / 4 if self.quick else n

    def settle(self, *pids):
        """Further trees of zygotes are begun in a pause. They are waited for, and do not disturb then."""
        quiet, limit = time.monotonic(), time.monotonic() + 30
        last = None
        while time.monotonic() < limit and time.monotonic() - quiet < 1.5:
            time.sleep(0.1)
            now = sum(cpu_below(pid) for pid in pids)
            if last is None or now - last > 1:
                quiet = time.monotonic()
            last = now

    def run_gateway(self):
        args, failed = self.bench.args, []
        with contextlib.ExitStack() as stack:
            self.folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="hutch-bench-"))
            self.say("gateway: start")
            self.server = Server(self.folder, "s", [self.bench.hutch, "serve", "--image", args.image, "--listen",
                                                    "unix:SOCKET", "--max-body", "200m"])
            stack.callback(self.server.stop)
            self.floor = Server(self.folder, "i", [os.path.join(args.build, "bench", "instant"), "SOCKET", args.image])
            stack.callback(self.floor.stop)
            self.asker = self.start_asker(stack)
            self.library(1)
            self.settle(self.server.pid, self.floor.pid, self.asker.process.pid)
            # Memory is counted before many connections have been there at once, whose memory the heap keeps.
            for name in ("idle", "hello", "function", "cpu", "instant", "closed", "workers", "cell", "stream", "files", "clients", "kits", "proxy"):
                self.say(f"gateway: {name}")
                try:
                    getattr(self, "measure_" + name)()
                except Missing as why:
                    self.found["absent"][name] = str(why)
                except SystemExit as why:  # the others are measured all the same
                    print(why, file=sys.stderr, flush=True)
                    failed.append(name)
                    if self.asker.process.poll() is not None:
                        self.asker = self.start_asker(stack)
        self.bench.record["gateway"] = self.found
        self.found["failed"] = failed

    def start_asker(self, stack):
        args = self.bench.args
        asker = Asker("gateway", [os.path.join(args.build, "bench", "gateway"), "--image", args.image])
        stack.callback(asker.stop)
        return asker

    # --- one after the other ---

    def library(self, n):
        return self.asker.do("library", n=n, code=CODE, want="hello\n")["ms"]

    def http(self, n, text=RUN, want=HELLO, server=None, pools=True):
        server = server or self.server
        more = {"pools": server.address} if pools else {}
        return self.asker.do("http", n=n, request=text, want=want, address=server.address, **more)["ms"]

    def in_turns(self, rounds, n, ways):
        """{name: percentiles}; @ways: {name: function that does it so many times}. All have the same weather."""
        times = {name: [] for name in ways}
        limit = time.monotonic() + ROW_SECONDS
        for done in range(self.few(rounds)):
            if done > 2 and time.monotonic() > limit:
                break
            for name, act in ways.items():
                times[name] += act(n)
        return {name: self.percentiles(values) for name, values in times.items()}

    def measure_hello(self):
        self.found["hello"] = self.in_turns(40, 25, {
            "library": self.library,
            "http": self.http,
            "instant": lambda n: self.http(n, INSTANT, server=self.floor, pools=False),
            "fusion": lambda n: self.http(n, LIMITED, '"stdout":"hello\\n"'),
        })

    def measure_function(self):
        """Beside a program of the same server, which has a pool for each."""
        path = os.path.join(self.folder, "hello.py")
        with open(path, "w", encoding="ascii") as file:
            file.write("def handler(event):\n    print('hello')\n")
        server = Server(self.folder, "f", [self.bench.hutch, "serve", "--image", self.bench.args.image, "--listen",
                                           "unix:SOCKET", "--function", "hello=" + path])
        try:
            self.settle(server.pid)
            call = request("POST", "/v1/functions/hello", {})
            self.found["function"] = self.in_turns(40, 25, {
                "http": lambda n: self.http(n, server=server),
                "function": lambda n: self.http(n, call, server=server),
            })
        finally:
            server.stop()

    def measure_cell(self):
        session = self.server.ask("POST", "/v1/sessions", {})["id"]
        text = request("POST", f"/v1/sessions/{session}/cells", {"code": "1+1"})
        want = '"text/plain":"2"'
        self.found["cell"] = self.in_turns(40, 25, {
            "library": lambda n: self.asker.do("cell", n=n, code="1+1", want=want)["ms"],
            "http": lambda n: self.http(n, text, want, pools=False),
        })
        self.server.ask("DELETE", "/v1/sessions/" + session)

    def measure_stream(self):
        text = request("POST", "/v1/run", {"code": STREAMED}, "Accept: text/event-stream")
        self.found["stream"] = self.percentiles(
            self.asker.do("stream", n=self.few(40), request=text, address=self.server.address)["ms"])

    # --- many at once ---

    def closed(self, connections, seconds, text=RUN, server=None):
        server = server or self.server
        return self.asker.do("closed", connections=connections, seconds=seconds, request=text, want=HELLO,
                             address=server.address, pid=server.pid)

    def closed_library(self, connections, seconds):
        return self.asker.do("closed_library", connections=connections, seconds=seconds, code=CODE, want="hello\n")

    def both_closed(self, connections, rounds, seconds):
        """Medians over the rounds; each round has both."""
        rates, cpus, ratios, times = {"http": [], "library": []}, {"http": [], "library": []}, [], {}
        for _ in range(1 if self.quick else rounds):
            for name, act in (("http", self.closed), ("library", self.closed_library)):
                done = act(connections, self.seconds(seconds))
                rates[name].append(done["done"] / done["seconds"])
                cpus[name].append(done["cpu_ms"] / done["done"])
                times[name] = done["times"]
            ratios.append(rates["http"][-1] / rates["library"][-1])
        median = statistics.median
        return {"rate": {name: median(values) for name, values in rates.items()}, "ratio": median(ratios),
                "cpu_ms": {name: median(values) for name, values in cpus.items()},
                "cpu_more_ms": median(a - b for a, b in zip(cpus["http"], cpus["library"])), "times": times}

    def measure_cpu(self):
        self.found["cpu"] = {n: self.both_closed(n, 5, 1) for n in (1, 16)}

    def measure_closed(self):
        self.found["closed"] = {n: self.both_closed(n, 3, 2.5) for n in (64, 256)}

    def measure_workers(self):
        """Two of them beside one, in turns."""
        with contextlib.ExitStack() as stack:
            two = Server(self.folder, "w", [self.bench.hutch, "serve", "--image", self.bench.args.image, "--listen",
                                            "unix:SOCKET", "--workers", "2"])
            stack.callback(two.stop)
            self.settle(self.server.pid, two.pid)
            rates = {"one": [], "two": []}
            for _ in range(self.few(5)):
                for name, server in (("one", self.server), ("two", two)):
                    done = self.closed(64, self.seconds(2.5), RUN, server)
                    rates[name].append(done["done"] / done["seconds"])
            found = {name: statistics.median(values) for name, values in rates.items()}
            self.found["workers"] = {**found, "ratio": found["two"] / found["one"]}

    def measure_instant(self):
        found = {}
        for n in (1, 64, 256):
            done = self.closed(n, self.seconds(2), INSTANT, self.floor)
            found[n] = {"rate": done["done"] / done["seconds"], "cpu_us": 1e3 * done["cpu_ms"] / done["done"],
                        "times": done["times"], "done": done["done"]}
        self.found["instant"] = found

    # --- files and memory ---

    def measure_files(self):
        session = self.server.ask("POST", "/v1/sessions", {})["id"]
        self.server.ask("POST", f"/v1/sessions/{session}/cells", {"code": "1"})
        size = FILE // 8 if self.quick else FILE
        path = f"/v1/sessions/{session}/files/large"
        put = f"PUT {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n\r\n"
        times = {"upload": [], "download": []}
        for _ in range(self.few(5)):
            for name, text in (("upload", put), ("download", request("GET", path))):
                times[name].append(self.asker.do(name, n=size, request=text, address=self.server.address)["ms"])
            # Between two cells uploads may come to what the session's files may have.
            self.server.ask("POST", f"/v1/sessions/{session}/cells", {"code": "1"})
        self.found["files"] = {name: size / 1e3 / statistics.median(values) for name, values in times.items()}
        self.server.ask("DELETE", "/v1/sessions/" + session)

    def kept(self, n, requests, want):
        """kB of the server for each of @n connections that it keeps, beside those that are there: its heap would give the
        memory of others to them."""
        before = self.server.memory()
        self.asker.do("hold", n=n, requests=requests, want=want, address=self.server.address)
        return (self.server.memory() - before) / n

    def measure_idle(self):
        found = {"connection": self.kept(self.few(500), [RUN], HELLO)}
        names, attach = [], []
        for _ in range(3):
            names.append(self.server.ask("POST", "/v1/sessions", {"no_interpreter": True, "max_processes": 40})["id"])
            path = f"/v1/sessions/{names[-1]}/processes"
            for _ in range(40):
                started = self.server.ask("POST", path, {"args": ["sleep", "1000"], "stdin": True})
                attach.append(request("GET", f"{path}/{started['id']}/attach", None, *WEBSOCKET))
        found["websocket"] = self.kept(len(attach), attach, " 101 ")
        self.asker.do("drop")
        for name in names:
            self.server.ask("DELETE", "/v1/sessions/" + name)
        self.found["idle"] = found

    # --- clients and what stands between ---

    def node(self, folder, *words, **environment):
        """A client of bench/clients.mjs where its packages are."""
        where = os.path.join(self.bench.args.build, "clients", folder)
        if not os.path.exists(os.path.join(where, "installed.json")):
            raise Missing(f"npm: the packages of tests/clients/{folder} are not installed (make clients)")
        with open(os.path.join(HERE, "clients.mjs"), encoding="utf-8") as file:
            return Asker(words[0], ["node", "--input-type=module", "--eval", file.read(), "--", *words], cwd=where,
                         env={**os.environ, **self.kit_environment(), **environment})

    def kit_environment(self):
        url = getattr(self, "kit_url", "")
        return {"E2B_API_URL": url, "E2B_SANDBOX_URL": url, "E2B_API_KEY": getattr(self, "token", "")}

    def node_addon(self):
        """The addon of the Node package, against the library of this build and with the headers of npm's Node."""
        build = self.bench.args.build
        headers = glob.glob(os.path.join(build, "clients", "node", "node_modules", "node-linux-*", "include", "node"))
        if not headers:
            raise Missing("npm: the packages of tests/clients/node are not installed (make clients)")
        addon = os.path.join(self.folder, "hutch.node")
        subprocess.run(["make", "-s", "-C", os.path.join(TREE, "clients", "node", "addon"), "OUTPUT=" + addon, "NODE_INCLUDE=" + headers[0],
                        "HUTCH=-I%s %s -Wl,-rpath,%s" % (os.path.join(TREE, "runtime"), os.path.join(build, "libhutch.so.1"), build)],
                       check=True)
        return addon

    def measure_clients(self):
        script = [sys.executable, os.path.join(HERE, "clients.py")]
        environment = {**os.environ, "HUTCH_LIBRARY": os.path.join(self.bench.args.build, "libhutch.so.1")}
        with contextlib.ExitStack() as stack:
            engine = Asker("Python's Engine", [*script, "engine"], env=environment)
            stack.callback(engine.stop)
            client = Asker("Python's Client", [*script, "client", self.server.address], env=environment)
            stack.callback(client.stop)
            ways = {"library": self.library, "engine": engine.times, "client": client.times}
            try:
                node = self.node("node", "hutch", os.path.join(TREE, "clients", "node", "index.mjs"), self.server.address)
                stack.callback(node.stop)
                ways["node"] = node.times
                inside = self.node("node", "library", os.path.join(TREE, "clients", "node", "index.mjs"), self.bench.args.image,
                                   HUTCH_NODE_ADDON=self.node_addon())
                stack.callback(inside.stop)
                ways["addon"] = inside.times
            except Missing as why:
                self.found["absent"]["Node's client"] = str(why)
            for act in ways.values():
                act(10)
            self.settle(engine.process.pid)
            self.found["clients"] = self.in_turns(20, 25, ways)

    @contextlib.contextmanager
    def second_server(self):
        """On TCP with a token, as what is not on this machine's side of a socket would ask."""
        self.token = "e2b_" + secrets.token_hex(20)
        tokens = os.path.join(self.folder, "tokens")
        with open(tokens, "w", encoding="ascii") as file:
            file.write(f"bench {hashlib.sha256(self.token.encode()).hexdigest()}\n")
        server = Server(self.folder, "t", [self.bench.hutch, "serve", "--image", self.bench.args.image, "--tokens", tokens,
                                           "--listen", "unix:SOCKET", "--listen", "127.0.0.1:0"])
        try:
            self.settle(server.pid)
            self.kit_url = f"http://127.0.0.1:{server.port()}"
            yield server
        finally:
            server.stop()

    def measure_kits(self):
        """Others' clients, and haproxy, which have the second server in common."""
        with self.second_server() as server, contextlib.ExitStack() as stack:
            for folder, words in (("e2b", ["e2b"]), ("mcp", ["mcp", self.kit_url + "/mcp", self.token])):
                try:
                    kit = self.node(folder, *words)
                except Missing as why:
                    self.found["absent"][words[0]] = str(why)
                    continue
                stack.callback(kit.stop)
                kit.times(5)
                self.found[words[0]] = self.percentiles(kit.times(20 if self.quick else 200))
            self.proxy_between(server)

    def measure_proxy(self):
        if "proxy" not in self.found:
            raise Missing("apt: haproxy is not there (make clients)")

    def proxy_between(self, server):
        root = os.path.join(self.bench.args.build, "clients", "proxies", "root", "usr")
        program = os.path.join(root, "sbin", "haproxy")
        if not os.path.exists(program):
            return
        libraries = [os.path.join(root, "lib", name) for name in os.listdir(os.path.join(root, "lib"))]
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            port = sock.getsockname()[1]
        process = subprocess.Popen([program, "-f", os.path.join(TREE, "docs", "haproxy.cfg"), "-db"],
                                   stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   env={**os.environ, "HUTCH_BIND": f"127.0.0.1:{port}", "HUTCH_A": server.path,
                                        "HUTCH_B": server.path, "LD_LIBRARY_PATH": ":".join(libraries)})
        try:
            limit = time.monotonic() + SECONDS
            while True:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), SECONDS) as sock:
                    sock.sendall(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                    if b" 200 " in sock.recv(100):
                        break
                if time.monotonic() > limit or process.poll() is not None:
                    raise Missing("haproxy does not answer")
                time.sleep(0.05)
            text = request("POST", "/v1/run", {"code": CODE}, f"Authorization: Bearer {self.token}")

            def through(address):
                return lambda n: self.asker.do("http", n=n, request=text, want=HELLO, address=address,
                                               pools_token=self.token, pools=server.address)["ms"]
            self.found["proxy"] = self.in_turns(20, 25, {
                "unix": through(server.address), "tcp": through(f"127.0.0.1:{server.port()}"),
                "haproxy": through(f"127.0.0.1:{port}")})
        finally:
            process.terminate()
            process.wait()


# --- what is printed ---

def rows(record):
    """(label, percentiles, remark)."""
    found = record.get("gateway")
    if not found:
        return

    def times(part, name, label, beside=None):
        mine = found.get(part, {}).get(name)
        if mine:
            other = found[part].get(beside)
            remark = f"{mine['p50'] / other['p50']:.2f}x, {mine['p50'] - other['p50']:+.3f} ms" if other else ""
            yield label, mine, remark

    yield from times("hello", "instant", "floor: a handler that answers at once")
    yield from times("hello", "library", "warm hello, library")
    yield from times("hello", "http", "warm hello, HTTP on a unix socket", "library")
    yield from times("hello", "fusion", "SandboxFusion with a memory limit", "http")
    yield from times("function", "http", "warm hello, HTTP, in turns with")
    yield from times("function", "function", "a call of a function, HTTP", "http")
    yield from times("cell", "library", "a cell, library")
    yield from times("cell", "http", "a cell, HTTP", "library")
    for name, label in (("e2b", "a cell, E2B's SDK"), ("mcp", "a cell, MCP's SDK"), ("stream", "a print, to its arrival as an event")):
        if name in found:
            yield label, found[name], ""
    yield from times("clients", "library", "warm hello, library, in turns with")
    for name, label in (("engine", "Python's Engine"), ("client", "Python's Client"), ("node", "Node's client"),
                        ("addon", "Node's addon")):
        yield from times("clients", name, label, "library")
    yield from times("proxy", "unix", "warm hello with a token, unix socket")
    yield from times("proxy", "tcp", "the same, TCP", "unix")
    yield from times("proxy", "haproxy", "the same, haproxy between", "tcp")


def print_tables(record, print_table, ms):
    found = record.get("gateway")
    if not found:
        return
    if "instant" in found:
        print("\n## The gateway's floor: a handler that answers at once\n")
        print_table(["connections", "requests/s", "CPU of the server, µs", "p50 ms", "p99 ms", ""],
                    [[n, f"{run['rate']:.0f}", f"{run['cpu_us']:.1f}", ms(run["times"]["p50"]), ms(run["times"]["p99"]),
                      f"{run['done']} asked, all answered"] for n, run in found["instant"].items()])
    both = {**found.get("cpu", {}), **found.get("closed", {})}
    if both:
        print("\n## Hello in a closed loop: HTTP and the library, in turns\n")
        rows_of = [[n, f"{run['rate']['http']:.0f}", f"{run['rate']['library']:.0f}", f"{run['ratio']:.2f}x",
                    f"{run['cpu_ms']['http']:.3f}", f"{run['cpu_ms']['library']:.3f}", f"{run['cpu_more_ms']:+.3f}",
                    ms(run["times"]["http"]["p50"]), ms(run["times"]["http"]["p99"])] for n, run in both.items()]
        print_table(["connections", "runs/s, HTTP", "library", "ratio", "CPU of one, HTTP, ms", "library", "more",
                     "p50 ms, HTTP", "p99 ms"], rows_of)
    if "workers" in found:
        run = found["workers"]
        print(f"\nTwo workers, 64 connections: {run['two']:.0f} runs/s; one: {run['one']:.0f}; {run['ratio']:.2f}x.")
    for name, why in found["absent"].items():
        print(f"\nNot measured: gateway: {name}: {why}")


def goals(record):
    """As report's find_goals()."""
    found = record.get("gateway")
    if not found:
        return
    hello = found.get("hello")
    if hello:
        for at, limit in (("p50", 1.3), ("p99", 1.5)):
            yield (f"HTTP: warm hello {at}, of the library's", hello["http"][at] / hello["library"][at], limit, "x", False)
        yield ("HTTP: warm hello p50, above the library's", hello["http"]["p50"] - hello["library"]["p50"], 0.25, " ms", False)
    for n, run in found.get("cpu", {}).items():
        yield (f"HTTP: CPU of the server for a run, above the library's, {n} at a time", run["cpu_more_ms"], 0.1, " ms", False)
    for n, run in found.get("instant", {}).items():
        yield (f"HTTP: requests/s that are answered at once, {n} connections", run["rate"], 20000, "/s", True)
    for n, run in found.get("closed", {}).items():
        yield (f"HTTP: closed loop of {n}, of the library's rate", run["ratio"], 0.95, "x", True)
    if "workers" in found:
        yield ("HTTP: two workers, closed loop of 64, of one's rate", found["workers"]["ratio"], 1, "x", True)
    if "cell" in found:
        yield ("HTTP: a cell p50, of the library's", found["cell"]["http"]["p50"] / found["cell"]["library"]["p50"], 1.3, "x", False)
    for name, label, limit in (("e2b", "a cell through E2B's SDK p50", 5), ("mcp", "a cell through MCP's SDK p50", 5),
                               ("stream", "HTTP: a print to its arrival p50", 1)):
        if name in found:
            yield (label, found[name]["p50"], limit, " ms", False)
    if hello:
        yield ("HTTP: SandboxFusion with a memory limit p50, of warm hello",
               hello["fusion"]["p50"] / hello["http"]["p50"], 1.2, "x", False)
    if "function" in found:
        yield ("HTTP: a call of a function p50, of warm hello",
               found["function"]["function"]["p50"] / found["function"]["http"]["p50"], 1.1, "x", False)
    for name, rate in found.get("files", {}).items():
        yield (f"HTTP: {name} of 256 MB", rate, 500, " MB/s", True)
    for name, label, limit in (("connection", "an idle connection", 40), ("websocket", "an idle WebSocket", 64)):
        if "idle" in found:
            yield (f"HTTP: memory of the server for {label}", found["idle"][name], limit, " KB", False)
    clients = found.get("clients", {})
    for name, label, limit in (("engine", "Python's Engine", 0.15), ("client", "Python's Client", 0.4),
                               ("node", "Node's client", 0.4), ("addon", "Node's addon", 0.15)):
        if name in clients:
            yield (f"{label} p50, above the library's", clients[name]["p50"] - clients["library"]["p50"], limit, " ms", False)
    if "proxy" in found:
        yield ("HTTP: haproxy in between p50, above TCP",
               found["proxy"]["haproxy"]["p50"] - found["proxy"]["tcp"]["p50"], 0.2, " ms", False)
