"""`hutch serve --workers`: any of them takes any request, whichever has what it is about, and one that dies takes what it had along.
The tests of the formats say it of all requests where HUTCH_TEST_WORKERS is set; here is what there is with several alone."""
import concurrent.futures
import contextlib
import json
import os
import resource
import select
import signal
import socket
import subprocess
import threading
import time

import pytest

import gateway
import support
from gateway import SECONDS, Server, UnixConnection
from websocket import WebSocket

N = 3


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Server(tmp_path_factory.mktemp("workers"), "--workers", str(N), image="python") as server:
        yield server


def workers(server):
    """The pids."""
    with open("/proc/%d/task/%d/children" % (server.process.pid, server.process.pid)) as file:
        return [int(pid) for pid in file.read().split()]


def open_sessions(server, n=8, **more):
    """Over one connection."""
    connection = UnixConnection(server.path)
    names = []
    for _ in range(n):
        answer = server.ask("POST", "/v1/sessions", more, connection=connection)
        assert answer.status == 201, answer.body
        names.append(answer.json["id"])
    connection.close()
    return names


def open_on_both(server, n):
    """@n sessions or more, so that each of two workers has one: it is drawn where they go."""
    names = open_sessions(server, n)
    while len({place(name, 2) for name in names}) < 2:
        names += open_sessions(server, 1)
    return names


def cell(server, name, code, **more):
    answer = server.ask("POST", "/v1/sessions/%s/cells" % name, {"code": code}, **more)
    assert answer.status == 200, answer.body
    return answer.json


def text_of(result):
    return "".join(output.get("text", "") for output in result["outputs"])


def close(server, names):
    for name in names:
        assert server.ask("DELETE", "/v1/sessions/" + name).status == 204


def test_sessions_by_any_connection(server):
    """Each connection is another worker's, and each session is found by all of them."""
    names = open_sessions(server)
    assert len(set(names)) == len(names)
    for i, name in enumerate(names):
        cell(server, name, "x = %d" % i)
    for _ in range(N):  # connections go round
        connection = UnixConnection(server.path)
        for i, name in enumerate(names):
            assert text_of(cell(server, name, "print(x)", connection=connection)) == "%d\n" % i
        connection.close()
    assert sorted(session["id"] for session in server.ask("GET", "/v1/sessions").json["sessions"]) == sorted(names)
    assert server.metrics()["hutch_sessions"] == len(names)
    assert server.ask("GET", "/v1/pools").json["sessions"] == len(names)
    close(server, names)
    assert server.ask("GET", "/v1/sessions").json["sessions"] == []
    for name in names:
        assert server.ask("GET", "/v1/sessions/" + name).error["code"] == "not_found"


def test_files_of_any_size(server):
    names = open_sessions(server, 4)
    data = os.urandom(3 << 20) + b"end"
    for name in names:
        cell(server, name, "1")
        path = "/v1/sessions/%s/files/a%%20b.bin" % name
        assert server.ask("PUT", path, data, {"Content-Type": "application/octet-stream"}).status == 201
        assert server.ask("GET", path).body == data
        part = server.ask("GET", path, headers={"Range": "bytes=10-19"})
        assert part.status == 206 and part.body == data[10:20] and part.headers["Content-Range"] == "bytes 10-19/%d" % len(data)
        head = server.ask("HEAD", path)
        assert head.status == 200 and head.body == b"" and head.headers["Content-Length"] == str(len(data))
        assert server.ask("DELETE", path).status == 204 and server.ask("GET", path).status == 404
    close(server, names)


def test_bodies_in_chunks(server):
    names = open_sessions(server, 4)
    for name in names:
        cell(server, name, "1")
        connection = UnixConnection(server.path)
        connection.request("PUT", "/v1/sessions/%s/files/c" % name, iter([b"one ", b"two " * 50000, b"three"]),
                           {"Content-Type": "application/octet-stream"}, encode_chunked=True)
        assert connection.getresponse().status == 201
        connection.close()
        assert cell(server, name, "open('/mnt/data/c').read()[-9:]")["value"] == "'two three'"
    close(server, names)


def test_streams_as_they_come(server):
    """The second line is printed when the first was seen."""
    for name in open_sessions(server, 4):
        connection = UnixConnection(server.path)
        code = "import os, time\nprint('first', flush=True)\nwhile not os.path.exists('/mnt/data/go'): time.sleep(0.01)\nprint('last')"
        connection.request("POST", "/v1/sessions/%s/cells" % name, json.dumps({"code": code}),
                           {"Content-Type": "application/json", "Accept": "text/event-stream"})
        answer = connection.getresponse()
        assert answer.status == 200 and answer.headers["Content-Type"].startswith("text/event-stream")
        seen = b""
        while b"first" not in seen:
            seen += answer.readline()
        assert server.ask("PUT", "/v1/sessions/%s/files/go" % name, b"", {"Content-Type": "application/octet-stream"}).status == 201
        assert b"last" in answer.read()
        connection.close()
        close(server, [name])


def test_a_client_that_leaves_its_stream(server):
    """Its cell ends, wherever it is."""
    names = open_sessions(server, 4)
    for name in names:
        connection = UnixConnection(server.path)
        connection.request("POST", "/v1/sessions/%s/cells" % name, json.dumps({"code": "import time\nprint(1, flush=True)\ntime.sleep(1000)"}),
                           {"Content-Type": "application/json", "Accept": "text/event-stream"})
        answer = connection.getresponse()
        seen = b""
        while b'"1' not in seen:
            seen += answer.readline()
        answer.close()
        connection.close()
        assert text_of(cell(server, name, "print(2)")) == "2\n"
    close(server, names)
    server.await_metric("hutch_http_exchanges", 1)


def test_terminals(server):
    """WebSockets pass both ways, and their end does."""
    names = open_sessions(server, 6, max_processes=2)
    for name in names:
        with WebSocket(server, "/v1/sessions/%s/terminal?rows=20&cols=80" % name) as terminal:
            assert not terminal.answer
            terminal.type("echo a$((40+2))b\n")
            terminal.until("a42b")
            terminal.type("exit 3\n")
            assert terminal.event("end")["exit_code"] == 3
            assert terminal.closed()[0] == 1000
    close(server, names)
    server.await_metric("hutch_http_exchanges", 1)


def test_a_key_has_one_answer(server):
    """Whichever worker is asked."""
    code = "import random; print(random.random())"
    answers = [server.ask("POST", "/v1/run", {"code": code}, {"Idempotency-Key": "k1"}).json["stdout"] for _ in range(2 * N)]
    assert len(set(answers)) == 1
    reused = server.ask("POST", "/v1/run", {"code": "1"}, {"Idempotency-Key": "k1"})
    assert reused.error["code"] == "idempotency_key_reused"


def test_a_client_of_a_key_that_leaves(server):
    """Its exchange outlives its connection; what is counted meanwhile does not look into that."""
    body = {"code": "import time; time.sleep(1); print('kept')"}
    for i in range(2 * N):
        connection = UnixConnection(server.path)
        connection.request("POST", "/v1/run", json.dumps(body), {"Content-Type": "application/json", "Idempotency-Key": "left-%d" % i})
        connection.sock.shutdown(socket.SHUT_RDWR)
        connection.close()
        server.metrics()
    assert [server.ask("POST", "/v1/run", body, {"Idempotency-Key": "left-%d" % i}).json["stdout"] for i in range(2 * N)] == ["kept\n"] * 2 * N
    server.await_metric("hutch_http_exchanges", 1)


def test_names_are_not_the_clients(server):
    name = "0123456789-_abcdefABC"
    for _ in range(2 * N):
        given = server.ask("POST", "/v1/sessions", {}, {"X-Hutch-New-Name": name}).json["id"]
        assert given != name
        close(server, [given])


def test_what_is_refused(server):
    """The same sentences, in the same shape, where the session is another worker's."""
    names = open_sessions(server, 4)
    for name in names:
        path = "/v1/sessions/" + name
        cell(server, name, "1")  # then its files are there
        assert server.ask("POST", path + "/cells", {"code": 1}).error["code"] == "invalid_request"
        assert server.ask("POST", path + "/cells", b"{").error["code"] == "invalid_request"
        assert server.ask("PATCH", path).error["code"] == "method_not_allowed"
        assert server.ask("GET", path + "/files/none").error["code"] == "not_found"
        assert server.ask("POST", path + "/cells", b"x" * (17 << 20)).error["code"] == "body_too_large"
    close(server, names)
    missing = [server.ask("GET", "/v1/sessions/" + "x" * 21).body for _ in range(N)]
    assert len(set(missing)) == 1


def test_lists_of_other_formats(server):
    created = [server.ask("POST", "/sandboxes", {"templateID": "base", "timeout": 60, "metadata": {"i": str(i)}}).json for i in range(6)]
    ids = [row["sandboxID"] for row in created]
    listed = server.ask("GET", "/v2/sandboxes").json
    assert sorted(row["sandboxID"] for row in listed) == sorted(ids)
    assert [row["sandboxID"] for row in server.ask("GET", "/v2/sandboxes?metadata=i%3D4").json] == [ids[4]]
    for i, row in zip(ids, created):
        assert server.ask("GET", "/sandboxes/" + i).json["sandboxID"] == i
        headers = {"E2b-Sandbox-Id": i, "E2b-Sandbox-Port": "49999", "X-Access-Token": row["envdAccessToken"]}
        assert b"42" in server.ask("POST", "/execute", {"code": "6 * 7"}, headers).body
        assert server.ask("DELETE", "/sandboxes/" + i).status == 204


def test_many_at_once(server):
    """None is lost or mixed up."""
    names = open_sessions(server, 6)

    def ask(i):
        if i % 3:
            return server.run("print(%d)" % i)["stdout"]
        return text_of(cell(server, names[i % 6], "print(%d)" % i))
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        assert list(pool.map(ask, range(120))) == ["%d\n" % i for i in range(120)]
    close(server, names)


def test_a_worker_dies(tmp_path):
    """It is started again. Its sessions are gone and say so, those of the others are there."""
    with Server(tmp_path, "--workers", "2", image="python") as server:
        names = open_on_both(server, 12)
        first, second = workers(server)
        os.kill(first, signal.SIGKILL)
        ended = server.await_event("worker ended")
        assert "of signal 9" in ended["worker"]
        gateway.await_that(lambda: len(workers(server)) == 2)
        assert second in workers(server) and first not in workers(server)
        states = [server.ask("GET", "/v1/sessions/" + name).status for name in names]
        assert set(states) == {200, 404}, states
        gateway.await_that(lambda: server.ask("GET", "/readyz").status == 200)
        assert all(server.run("print(%d)" % i)["stdout"] == "%d\n" % i for i in range(8))
        more = open_sessions(server, 12)
        assert all(text_of(cell(server, name, "print(1)")) == "1\n" for name in more)


def test_the_parent_dies(tmp_path):
    """None of its workers stays."""
    server = Server(tmp_path, "--workers", "2")
    pids = workers(server)
    assert len(pids) == 2
    server.process.kill()
    server.process.wait(SECONDS)
    gateway.await_that(lambda: all(state in "ZX" for pid, (_, state) in support.process_table().items() if pid in pids))


def test_its_end(tmp_path):
    """What runs is answered, by each worker and for each."""
    server = Server(tmp_path, "--workers", "2", image="python")
    names = open_sessions(server, 4)
    code = "import time\nprint('a', flush=True)\ntime.sleep(6)\nprint('b')"
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(cell, server, name, code) for name in names]
        server.await_metric("hutch_http_exchanges", 5)
        server.process.send_signal(signal.SIGTERM)
        assert [text_of(answer.result(SECONDS)) for answer in answers] == ["a\nb\n"] * 4
    assert server.process.wait(SECONDS) == 0
    server.await_event("stopped")
    assert not os.path.exists(server.path)


def test_a_second_signal_does_not_wait(tmp_path):
    """What runs is interrupted, in each worker: a cell that has begun ends as an interrupt ends it, one that has not is killed."""
    server = Server(tmp_path, "--workers", "2", "--drain", "1h", image="python")
    cells = {}
    for name in open_sessions(server, 4):
        connection = UnixConnection(server.path)
        connection.request("POST", "/v1/sessions/%s/cells" % name, json.dumps({"code": "print('begun')\nimport time; time.sleep(1000)"}),
                           {"Content-Type": "application/json", "Accept": "application/x-ndjson"})
        cells[name] = connection, connection.getresponse()
    for _, answer in cells.values():
        assert json.loads(answer.readline()) == {"event": "output", "data": {"stream": "stdout", "text": "begun\n"}}
    with concurrent.futures.ThreadPoolExecutor(len(cells)) as pool:
        waiting = [pool.submit(cell, server, name, "1") for name in cells]
        server.await_metric("hutch_http_exchanges", 2 * len(cells) + 1)
        server.process.send_signal(signal.SIGTERM)
        server.await_event("draining")
        server.process.send_signal(signal.SIGINT)
        for connection, answer in cells.values():
            event = [json.loads(line) for line in answer][-1]
            assert (event["event"], event["data"]["verdict"], event["data"]["error"]["name"]) == ("result", "error", "KeyboardInterrupt")
            connection.close()
        assert [answer.result(SECONDS)["verdict"] for answer in waiting] == ["killed"] * len(cells)
    assert server.process.wait(SECONDS) == 0


def send(server, n, path):
    """Sockets with a request each."""
    found = [server.connect() for _ in range(n)]
    for sock in found:
        with contextlib.suppress(BrokenPipeError):  # it may be lost
            sock.sendall(("GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path).encode())
    return found


def heard(sockets, n, seconds=SECONDS):
    """Those of which something has come, or the end: @n of them at least, or as many as there were within @seconds."""
    found = []
    while len(found) < n:
        ready = select.select([sock for sock in sockets if sock not in found], [], [], seconds)[0]
        if not ready:
            break
        found += ready
    return found


def test_a_worker_hangs_and_is_not_waited_for(tmp_path):
    """At its second signal the server says to those who wait for an answer of all workers that it ends."""
    with Server(tmp_path, "--workers", "2", "--drain", "1h") as server:
        first, _ = workers(server)
        os.kill(first, signal.SIGSTOP)
        asked = send(server, 4, "/v1/pools")
        heard(send(server, 2, "/healthz"), 1)
        server.process.send_signal(signal.SIGTERM)
        server.await_event("draining")
        server.process.send_signal(signal.SIGTERM)
        answers = [sock.recv(65536) for sock in heard(asked, 2)]
        assert len(answers) >= 2 and all(answer.startswith(b"HTTP/1.1 503 ") and b"shutting_down" in answer for answer in answers), answers
        os.kill(first, signal.SIGCONT)


def test_a_worker_dies_at_the_end(tmp_path):
    """Nobody follows it, and what others have sent to it ends with it."""
    server = Server(tmp_path, "--workers", "2", "--drain", "1h", image="python")
    names = open_on_both(server, 8)
    first, _ = workers(server)
    os.kill(first, signal.SIGSTOP)
    asked = [sock for name in names for sock in send(server, 6, "/v1/sessions/" + name)]
    heard(send(server, 2, "/healthz"), 1)
    server.process.send_signal(signal.SIGTERM)
    server.await_event("draining")
    os.kill(first, signal.SIGKILL)
    assert len(heard(asked, len(asked))) == len(asked)
    server.process.send_signal(signal.SIGTERM)
    answers = [gateway.read_all(sock) for sock in asked]
    assert any(answer.startswith(b"HTTP/1.1 500 ") for answer in answers), answers
    assert server.process.wait(SECONDS) == 125


def ask_by(sock, method, path, body=""):
    sock.sendall(("%s %s HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
                  % (method, path, len(body), body)).encode())


def connections_of_the_other(server, n):
    """@n connections to the worker that is not stopped: those that answer. It is drawn which worker gets one."""
    found = []
    while len(found) < n:
        found += heard(send(server, 4, "/healthz"), 1, 1)
    for sock in found:
        assert sock.recv(65536).startswith(b"HTTP/1.1 200 ")
    return found[:n]


def test_a_worker_dies_in_the_drain(tmp_path):
    """What runs in the other one has the time that it was given."""
    with Server(tmp_path, "--workers", "2", "--drain", "1h", image="python") as server:
        names = {place(name, 2): name for name in open_on_both(server, 2)}
        first, _ = workers(server)
        os.kill(first, signal.SIGSTOP)
        *socks, looks = connections_of_the_other(server, 3)
        asked = dict(zip(socks, names.values()))
        for sock, name in asked.items():
            ask_by(sock, "GET", "/v1/sessions/" + name)
        sock = heard(socks, 1)[0]  # the other session is of the worker that is stopped
        at = "/v1/sessions/" + asked[sock]
        assert b'"waiting":0' in sock.recv(65536)
        ask_by(sock, "POST", at + "/cells", json.dumps({"code": "import time; time.sleep(2); print('whole')"}))

        def waits():
            ask_by(looks, "GET", at)
            return b'"waiting":1' in looks.recv(65536)
        gateway.await_that(waits)
        server.process.send_signal(signal.SIGTERM)
        server.await_event("draining")
        os.kill(first, signal.SIGKILL)
        answer = gateway.read_all(sock)
        assert answer.startswith(b"HTTP/1.1 200 ") and b"whole" in answer and b'"verdict":"ok"' in answer, answer
        assert server.process.wait(SECONDS) == 125


def test_an_upload_is_held_back_at_the_end(tmp_path):
    """Its client leaves when what runs was ended; then the worker that has its session answers after all."""
    size = 4 << 20
    with Server(tmp_path, "--workers", "2", "--drain", "1h", image="python") as server:
        names = open_sessions(server, 6)
        for name in names:
            cell(server, name, "1")  # then its files are there
        first, _ = workers(server)
        os.kill(first, signal.SIGSTOP)
        left = {}
        for name in names * 2:
            sock = server.connect()
            sock.sendall(("PUT /v1/sessions/%s/files/x HTTP/1.1\r\nHost: a\r\nContent-Type: application/octet-stream\r\n"
                          "Content-Length: %d\r\n\r\n" % (name, size)).encode())
            sock.setblocking(False)
            left[sock] = size
        while ready := select.select([], [sock for sock in left if left[sock]], [], 1)[1]:  # until the rest is not read
            for sock in ready:
                left[sock] -= sock.send(bytes(min(left[sock], 65536)))
        assert any(left.values())
        server.process.send_signal(signal.SIGTERM)
        server.await_event("draining")
        server.process.send_signal(signal.SIGTERM)
        time.sleep(1)  # for the second signal to arrive there, which shows nowhere
        for sock in left:
            sock.close()
        os.kill(first, signal.SIGCONT)


def place(name, n):
    """The number of the worker that has it: runtime/gateway/place.c."""
    value = 0xcbf29ce484222325
    for byte in name.encode():
        value = (value ^ byte) * 0x100000001b3 % (1 << 64)
    return (value ^ value >> 32) % n


def test_bodies_for_a_worker_that_does_not_read(tmp_path):
    """They count as held until they are sent: what one token may hold is an end to them."""
    path = gateway.tokens_file(tmp_path, ada="secret of ada", bob="secret of bob")
    with Server(tmp_path, "--workers", "2", "--tokens", path, image="python") as server:
        name = next(name for name in ("%021d" % i for i in range(100)) if place(name, 2) == 0)
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
            "name": "run_python", "arguments": {"code": "#" * (15 << 20), "session_id": name}}}).encode()
        head = ("POST /mcp HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer secret of ada\r\nContent-Type: application/json\r\n"
                "Accept: application/json, text/event-stream\r\nMcp-Protocol-Version: 2025-06-18\r\nContent-Length: %d\r\n\r\n" % len(body)).encode()
        first = workers(server)[0]
        os.kill(first, signal.SIGSTOP)
        left = {}
        for _ in range(50):  # each second one is the other worker's, and 18 are more than 256 MiB
            sock = server.connect()
            sock.setblocking(False)
            left[sock] = memoryview(head + body)
        while True:
            readable, writable, _ = select.select(left, [sock for sock in left if left[sock]], [], SECONDS)
            assert readable or writable, "nothing is refused"
            if readable:
                break
            for sock in writable:
                left[sock] = left[sock][sock.send(left[sock][:1 << 20]):]
        readable[0].settimeout(SECONDS)
        answer = b""
        while b"holds as much" not in answer and (piece := readable[0].recv(65536)):
            answer += piece
        assert answer.startswith(b"HTTP/1.1 503 ") and b"holds as much" in answer, answer
        for sock in left:
            sock.close()
        os.kill(first, signal.SIGCONT)


def statuses(server, token):
    """Of all workers: connections that are there at once are each another one's."""
    connections = [UnixConnection(server.path) for _ in range(6)]
    for connection in connections:
        connection.connect()
    found = {server.ask("GET", "/v1/languages", headers=gateway.bearer(token), connection=connection).status for connection in connections}
    for connection in connections:
        connection.close()
    return found


def test_orders_reach_a_worker_that_is_behind(tmp_path):
    """It has so many connections to take that its channel is full: a token that was taken back is not known any more."""
    path = gateway.tokens_file(tmp_path, ada="secret of ada")
    with Server(tmp_path, "--workers", "2", "--tokens", path, warm="usual") as server:  # without a file of options
        second = workers(server)[1]
        os.kill(second, signal.SIGSTOP)
        waiting = send(server, 800, "/healthz")
        heard(waiting, 400)
        gateway.tokens_file(tmp_path, bob="secret of bob")
        server.process.send_signal(signal.SIGHUP)
        server.await_event("reloaded")  # by the first one
        os.kill(second, signal.SIGCONT)
        assert len(heard(waiting, 800)) == 800
        for sock in waiting:
            sock.close()
        gateway.await_that(lambda: statuses(server, "secret of bob") == {200})
        assert statuses(server, "secret of ada") == {401}


def test_reload(tmp_path):
    """All workers have the new tokens."""
    path = gateway.tokens_file(tmp_path, ada="secret of ada")
    with Server(tmp_path, "--workers", "2", "--tokens", path) as server:
        assert statuses(server, "secret of ada") == {200}
        gateway.tokens_file(tmp_path, bob="secret of bob")
        server.process.send_signal(signal.SIGHUP)
        server.await_event("reloaded")
        gateway.await_that(lambda: statuses(server, "secret of bob") == {200})
        assert statuses(server, "secret of ada") == {401}


def test_tcp_and_hosts(tmp_path):
    """The checks of TCP hold for sessions of other workers, too."""
    with Server(tmp_path, "--workers", "2", "--listen", "127.0.0.1:0", "--insecure-no-auth") as server:
        def ask(line, host):
            with socket.create_connection(("127.0.0.1", server.port())) as sock:
                sock.sendall(("%s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}" % (line, host)).encode())
                return sock.makefile("rb").read()
        names = [json.loads(ask("POST /v1/sessions", "localhost").partition(b"\r\n\r\n")[2])["id"] for _ in range(6)]
        for name in names:
            assert ask("POST /v1/sessions/%s/interrupt" % name, "evil.example").startswith(b"HTTP/1.1 403 ")
            assert ask("POST /v1/sessions/%s/lifetime" % name, "localhost").startswith(b"HTTP/1.1 200 ")


def test_it_cannot_begin(tmp_path):
    """One sentence, whichever worker says it."""
    for words, wanted in ((("--image", "no-such-image"), "no-such-image"), (("--policy", "no-such-policy"), "no-such-policy")):
        done = subprocess.run([support.HUTCH, "serve", "--workers", "3", "--listen", "unix:%s/x" % tmp_path, *words], capture_output=True,
                              text=True, timeout=SECONDS, stdin=subprocess.DEVNULL)
        lines = [line for line in done.stderr.splitlines() if not line.startswith("{")]
        assert done.returncode == 125 and len(lines) == 1 and wanted in lines[0], done.stderr


@pytest.mark.parametrize("value", ["0", "65", "x", "-1", ""])
def test_numbers_that_are_none(tmp_path, value):
    done = subprocess.run([support.HUTCH, "serve", "--workers", value], capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 125 and "--workers" in done.stderr and done.stderr.count("\n") == 1


def test_clients_that_wait_for_a_place(tmp_path):
    """Beyond --max-connections they wait, and have their turn."""
    with Server(tmp_path, "--workers", "2", "--max-connections", "4") as server:
        held = [server.connect() for _ in range(4)]
        answers = []
        thread = threading.Thread(target=lambda: answers.append(server.ask("GET", "/healthz").status))
        thread.start()
        thread.join(0.5)
        assert not answers
        held[0].close()
        thread.join(SECONDS)
        assert answers == [200]
        for sock in held:
            sock.close()


def assert_limit(server, limit):
    """So many clients have their turn at once, and no more."""
    sockets = send(server, 3 * limit, "/healthz")
    first = heard(sockets, limit)
    assert len(first) == limit and len(heard([sock for sock in sockets if sock not in first], 1, 0.5)) == 0
    for sock in first:
        sock.close()
    rest = [sock for sock in sockets if sock not in first]
    while rest:
        for sock in heard(rest, 1):
            assert sock.recv(65536).startswith(b"HTTP/1.1 200 ")
            sock.close()
            rest.remove(sock)


def test_clients_are_counted_where_a_worker_ends(tmp_path):
    """Those that were on their way to it are the next one's."""
    with Server(tmp_path, "--workers", "2", "--max-connections", "8") as server:
        for _ in range(3):
            first = workers(server)[0]
            os.kill(first, signal.SIGSTOP)
            waiting = send(server, 8, "/healthz")
            heard(waiting, 4)
            os.kill(first, signal.SIGKILL)
            assert all(sock.recv(65536).startswith(b"HTTP/1.1 200 ") for sock in heard(waiting, 8))
            for sock in waiting:
                sock.close()
            gateway.await_that(lambda: server.ask("GET", "/readyz").status == 200)
        assert_limit(server, 8)


def test_clients_are_counted_where_descriptors_run_out(tmp_path):
    """Connections that a worker has no descriptor for are lost, and take no place from then on."""
    with Server(tmp_path, "--workers", "2", "--max-connections", "40") as server:
        pids = workers(server)
        limits = [resource.prlimit(pid, resource.RLIMIT_NOFILE) for pid in pids]
        for pid, limit in zip(pids, limits):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (len(os.listdir("/proc/%d/fd" % pid)) + 8, limit[1]))
        for _ in range(4):
            sockets = send(server, 36, "/healthz")
            assert len(heard(sockets, 36)) == 36
            for sock in sockets:
                sock.close()
        for pid, limit in zip(pids, limits):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, limit)
        assert_limit(server, 40)


def test_http_1_0(server):
    """A request without a Host may be for another worker, or for all."""
    names = open_sessions(server, 6)
    for path in ["/metrics", *("/v1/sessions/" + name for name in names)]:
        assert gateway.parse(server.raw(("GET %s HTTP/1.0\r\n\r\n" % path).encode())).status == 200
    close(server, names)
