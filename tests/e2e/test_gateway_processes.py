"""Processes and terminals of sessions through hutch serve: over HTTP, and over WebSockets."""
import base64
import hashlib
import json
import os
import socket
import subprocess
import sys
import threading

import pytest

import gateway
import support
from gateway import Server, await_that
from test_gateway_sessions import NOBODYS, Session
from test_gateway_stream import FORMATS, events_of
from websocket import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, Closed, WebSocket, frame

OCTETS = bytes(range(256))


@pytest.fixture(autouse=True)
def nothing_is_left(request):
    """No exchange outlives its test, and no memory is held."""
    yield
    if "server" in request.fixturenames:
        found = request.getfixturevalue("server").await_metric("hutch_http_exchanges", 1)
        assert found["hutch_http_held_bytes"] < 4096


class Shell(Session):
    """A session of processes alone."""

    def __init__(self, server, headers=None, **options):
        super().__init__(server, headers, **{"no_interpreter": True, **options})

    def spawn(self, shell=None, **more):
        answer = self.ask("POST", "/processes", {**({"shell": shell} if shell else {}), **more})
        assert answer.status == 201, answer.body
        return answer.json["id"]

    def stream(self, shell=None, accept="application/x-ndjson", **more):
        connection = gateway.UnixConnection(self.server.path)
        connection.request("POST", self.path + "/processes", json.dumps({**({"shell": shell} if shell else {}), **more}),
                           {"Content-Type": "application/json", "Accept": accept})
        return connection

    def run(self, shell=None, **more):
        """What it writes to stdout, and its end."""
        connection = self.stream(shell, **more)
        events = list(events_of(connection.getresponse()))
        connection.close()
        assert events[0][0] == "process" and events[-1][0] == "end"
        return "".join(data["text"] for name, data in events if name == "output" and data["stream"] == "stdout"), events[-1][1]

    def listed(self):
        return self.ask("GET", "/processes").json

    def state(self, number):
        return ([row["state"] for row in self.listed()["processes"] if row["id"] == number] + ["gone"])[0]

    def to(self, number, verb, body=None):
        return self.ask("POST", "/processes/%d/%s" % (number, verb), body)

    def attach(self, number, **more):
        return WebSocket(self.server, "%s/processes/%d/attach" % (self.path, number), **more)

    def terminal(self, query="", **more):
        return WebSocket(self.server, self.path + "/terminal" + query, **more)


@pytest.fixture
def session(server):
    opened = Shell(server)
    yield opened
    opened.close()


# --------------------------------------------------------------------------------------------------
# Over HTTP alone

@pytest.mark.parametrize("accept", FORMATS)
def test_a_process_as_it_comes(session, accept):
    connection = session.stream("echo a; echo é >&2; exit 3", accept)
    answer = connection.getresponse()
    assert answer.status == 200
    events = list(events_of(answer))
    connection.close()
    assert events[0][0] == "process" and events[0][1]["id"] > 0
    assert sorted(data["stream"] + data["text"] for name, data in events if name == "output") == ["stderré\n", "stdouta\n"]
    end = events[-1][1]
    assert end.pop("run_ms") > 0 and end == {"exit_code": 3, "signal": None, "message": None, "truncated": False}
    assert session.listed() == {"processes": [], "ended": []}


def test_numbers_say_nothing_of_other_sessions(session, server):
    other = Shell(server)
    session.run("exit")
    assert [other.spawn("exit") for _ in range(3)] == [1, 2, 3] and [session.spawn("exit") for _ in range(2)] == [2, 3]
    for number in (4, 1000):
        assert other.to(number, "signal", {"signal": "TERM"}).status == 404
    other.close()
    alone = Shell(server, no_interpreter=False)
    answer = alone.ask("POST", "/processes", {"shell": "exit"})
    assert (answer.status, answer.error["message"]) == (400, "the session was opened without max_processes")
    alone.close()


def test_what_it_is_given(session):
    assert session.run(args=["printf", "%s|", "a b", "$X"])[0] == "a b|$X|"
    assert session.run("echo $X; pwd", env={"X": "1 2"}, cwd="/tmp")[0] == "1 2\n/tmp\n"
    assert session.run("cat")[0] == ""
    out, end = session.run(args=["no-such-program"])
    assert out == "" and end["exit_code"] == 127 and "no-such-program" in end["message"]
    out, end = session.run("sleep 100", wall_ms=200)
    assert end["signal"] == 15 and end["exit_code"] is None
    out, end = session.run("while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done", output_bytes=10000)
    assert len(out) == 10000 and end["truncated"] and end["message"] == "it wrote more than 10000 bytes"


def test_beside_cells(server):
    session = Shell(server, no_interpreter=False, max_processes=2)
    session.cell("x = 6; open('/mnt/data/a', 'w').write('from the cell')")
    assert session.run("cat /mnt/data/a")[0] == "from the cell"
    assert session.value("x") == "6"
    session.close()


def test_input(session):
    number = session.spawn("cat; echo; echo over", stdin=True)
    assert session.to(number, "stdin", {"data": "é\n"}).json == {"written": 3}
    assert session.to(number, "stdin", {"data_base64": base64.b64encode(b"abc").decode()}).json == {"written": 3}
    assert session.to(number, "stdin", {"data": ""}).json == {"written": 0}
    assert session.to(number, "close_stdin").status == 204
    await_that(lambda: session.listed()["ended"])
    answer = session.to(number, "stdin", {"data": "x"})
    assert (answer.status, answer.error["code"]) == (409, "conflict")
    row, = session.listed()["ended"]
    assert row.pop("run_ms") > 0 and row == {"id": number, "exit_code": 0, "signal": None, "message": None, "truncated": False}
    events = list(events_of(begin_output(session, number)))
    assert [name for name, _ in events] == ["process", "output", "end"] and events[1][1]["text"] == "é\nabc\nover\n"
    assert session.listed()["ended"] == []
    assert session.ask("GET", "/processes/%d/output" % number).status == 404


def begin_output(session, number):
    connection = gateway.UnixConnection(session.server.path)
    connection.request("GET", "%s/processes/%d/output" % (session.path, number))
    answer = connection.getresponse()
    answer.connection = connection
    return answer


def test_input_that_waits(server, session):
    """The answer comes when the process has taken it all; another one is refused meanwhile."""
    session.run("mkfifo /mnt/data/go")
    number = session.spawn("read x </mnt/data/go; wc -c", stdin=True)
    await_that(lambda: session.state(number) == "running")
    answers = []
    thread = threading.Thread(target=lambda: answers.append(session.to(number, "stdin", {"data": "x" * 1000000})))
    thread.start()
    await_that(lambda: server.metrics()["hutch_http_held_bytes"] >= 1000000)  # it has come whole
    answer = session.to(number, "stdin", {"data": "y"})
    assert (answer.status, answer.error["code"]) == (409, "conflict")
    assert session.run("echo >/mnt/data/go")[1]["exit_code"] == 0
    thread.join(gateway.SECONDS)
    assert answers[0].json == {"written": 1000000}
    session.to(number, "close_stdin")
    assert [data["text"] for name, data in events_of(begin_output(session, number)) if name == "output"] == ["1000000\n"]


def test_a_client_that_leaves_takes_its_input_back(server, session):
    number = session.spawn("sleep 1000", stdin=True)
    connection = gateway.UnixConnection(server.path)
    connection.request("POST", "%s/processes/%d/stdin" % (session.path, number), json.dumps({"data": "x" * 1000000}), {"Content-Type": "application/json"})
    server.await_metric("hutch_http_exchanges", 2)
    connection.close()
    server.await_metric("hutch_http_exchanges", 1)
    assert session.to(number, "signal", {"signal": "KILL"}).status == 204


def test_signals(session):
    for name, number in (("TERM", 15), ("SIGINT", 2), (10, 10)):
        process = session.spawn("echo begun; exec sleep 1000")
        assert session.to(process, "signal", {"signal": name}).status == 204
        end = list(events_of(begin_output(session, process)))[-1][1]
        assert end["signal"] in (number, None)
    process = session.spawn("exec sleep 1000")
    for wrong in ({}, {"signal": 0}, {"signal": 65}, {"signal": "NONE"}, {"signal": "SIG"}, {"signal": None}, {"signal": 9, "x": 1}, []):
        assert session.to(process, "signal", wrong).status == 400, wrong
    assert session.to(process, "signal", {"signal": 9}).status == 204


@pytest.mark.parametrize("wrong", [{}, {"args": []}, {"args": [""]}, {"args": ["a"], "shell": "b"}, {"args": "a"}, {"shell": 1}, {"shell": "a\0b"},
                                   {"shell": "a", "env": {"": "x"}}, {"shell": "a", "env": {"A=": "x"}}, {"shell": "a", "stdin": 1},
                                   {"shell": "a", "terminal": True}, {"shell": "a", "terminal": {"rows": 0}}, {"shell": "a", "terminal": {"cols": 70000}},
                                   {"shell": "a", "terminal": {}, "stdin": True}, {"shell": "a", "x": 1}, {"shell": "a", "wall_ms": -1},
                                   {"args": ["a", "x" * 140000]}, {"args": ["a"] * 4097}, [], "a", None])
def test_wrong_requests(session, wrong):
    answer = session.ask("POST", "/processes", wrong)
    assert answer.status == 400 and answer.error["code"] == "invalid_request", answer.body
    assert session.listed() == {"processes": [], "ended": []}


@pytest.mark.parametrize("wrong", [{}, {"data": 1}, {"data": "a", "data_base64": "YQ=="}, {"data_base64": "?"}, {"data": "x" * (1 << 20) + "x"}, []])
def test_wrong_input(session, wrong):
    number = session.spawn("cat", stdin=True)
    assert session.to(number, "stdin", wrong).status == 400
    assert session.to(number, "signal", {"signal": 9}).status == 204


def test_what_is_not_there(server, session):
    for number in ("0", "999", "x", "-1", "1.5", "99999999999999999999999"):
        for verb, body in (("stdin", {"data": "a"}), ("close_stdin", None), ("signal", {"signal": 9}), ("resize", {"rows": 1, "cols": 1})):
            answer = session.ask("POST", "/processes/%s/%s" % (number, verb), body)
            assert (answer.status, answer.error["code"]) == (404, "not_found"), (number, verb)
        assert session.ask("GET", "/processes/%s/output" % number).status == 404
    assert server.ask("POST", "/v1/sessions/%s/processes" % NOBODYS, {"shell": "true"}).status == 404
    plain = Shell(server, no_interpreter=False)
    answer = plain.ask("POST", "/processes", {"shell": "true"})
    assert answer.status == 400 and "max_processes" in answer.error["message"]
    plain.close()


def test_so_many_and_no_more(server):
    session = Shell(server, max_processes=2)
    first = session.spawn("sleep 1000")
    session.spawn("sleep 1000")
    answer = session.ask("POST", "/processes", {"shell": "true"})
    assert (answer.status, answer.error["code"]) == (429, "queue_full") and answer.headers["Retry-After"]
    session.to(first, "signal", {"signal": "KILL"})
    await_that(lambda: session.ask("POST", "/processes", {"shell": "true"}).status == 201)
    session.close()


def test_ends_that_nobody_hears_are_bounded(session):
    numbers = []
    for _ in range(20):
        numbers.append(session.spawn("true"))
        await_that(lambda: session.state(numbers[-1]) == "gone")
    assert [row["id"] for row in session.listed()["ended"]] == numbers[-16:]


def test_another_tokens_process(tmp_path):
    tokens = {name: os.urandom(16).hex() for name in ("ada", "bob")}
    path = tmp_path / "tokens"
    path.write_text("".join("%s %s\n" % (name, hashlib.sha256(token.encode()).hexdigest()) for name, token in tokens.items()))
    ada, bob = ({"Authorization": "Bearer " + tokens[name]} for name in ("ada", "bob"))
    with Server(tmp_path, "--tokens", str(path), image="minimal") as server:
        session = Shell(server, ada)
        number = session.spawn("sleep 1000")
        process = "%s/processes/%d" % (session.path, number)
        assert server.ask("GET", session.path + "/processes", headers=bob).status == 404
        assert server.ask("POST", process + "/signal", {"signal": 9}, bob).status == 404
        for wrong in (bob, {}):
            assert WebSocket(server, process + "/attach", wrong).answer.status == (404 if wrong else 401)
        # A page cannot send Authorization: its token is among the protocols, and none of the answer's.
        offered = "hutch.token.%s, hutch.v1" % tokens["ada"]
        with WebSocket(server, process + "/attach", {"Sec-WebSocket-Protocol": offered}) as ws:
            assert ws.headers["Sec-Websocket-Protocol"] == "hutch.v1"
            assert ws.event("process") == {"id": number}
        for wrong in ("hutch.v1", "hutch.token.", "hutch.token.x", "x" + offered, "hutch.token." + tokens["bob"] + "x"):
            assert WebSocket(server, process + "/attach", {"Sec-WebSocket-Protocol": wrong}).answer.status == 401, wrong
        assert not any(token in json.dumps(server.events) for token in tokens.values())
        session.close()


# --------------------------------------------------------------------------------------------------
# Clients that leave, or do not read

def test_a_process_goes_on_without_its_client(server, session):
    session.run("mkfifo /mnt/data/go")
    connection = session.stream("echo begun; read x </mnt/data/go; echo after")
    events = events_of(connection.getresponse())
    number = next(events)[1]["id"]
    assert next(events)[1]["text"] == "begun\n"
    connection.close()
    server.await_metric("hutch_http_exchanges", 1)
    session.run("echo >/mnt/data/go")
    await_that(lambda: session.state(number) == "gone")
    events = list(events_of(begin_output(session, number)))
    assert events[1] == ("output", {"stream": "stdout", "text": "after\n"}) and events[2][1]["exit_code"] == 0


def test_a_process_ends_with_its_client(server, session):
    connection = session.stream("echo begun; exec sleep 1000", end_with_client=True)
    events = events_of(connection.getresponse())
    number = next(events)[1]["id"]
    next(events)
    connection.close()
    await_that(lambda: session.state(number) == "gone")
    assert [(row["id"], row["signal"]) for row in session.listed()["ended"]] == [(number, 9)]


def test_output_that_nobody_hears_is_bounded(server, session):
    """The last of it is kept, and how much is missing is told."""
    number = session.spawn("for i in 1 2 3 4; do head -c 100000 /dev/zero | tr '\\0' $i; done; echo; echo err >&2", output_bytes=1 << 30)
    await_that(lambda: session.state(number) == "gone")
    assert server.metrics()["hutch_http_held_bytes"] < 300000
    events = list(events_of(begin_output(session, number)))
    assert events[1][0] == "dropped"
    text = "".join(data["text"] for name, data in events if name == "output" and data["stream"] == "stdout")
    assert 50000 < len(text) <= 65536 and set(text) == {"4", "\n"} and events[1][1]["bytes"] + len(text) == 400001
    assert [data["text"] for name, data in events if name == "output" and data["stream"] == "stderr"] == ["err\n"]


@pytest.mark.parametrize("how", ["stream", "websocket"])
def test_a_client_that_reads_nothing_holds_its_process(server, session, how):
    """Nothing grows: the process waits, and goes on when the client reads."""
    flood = "i=0; while [ $i -lt 400 ]; do head -c 50000 /dev/zero | tr '\\0' x; i=$((i+1)); echo $i >/mnt/data/n; done"
    number = session.spawn(flood, output_bytes=1 << 30)
    if how == "stream":
        connection = gateway.UnixConnection(server.path)
        connection.request("GET", "%s/processes/%d/output" % (session.path, number))
    else:
        ws = session.attach(number)

    def progress():
        return session.ask("GET", "/files/n").body

    def stands():
        row, = session.listed()["processes"]
        return row["held"]

    await_that(stands)
    before = int(progress())
    held = server.metrics()["hutch_http_held_bytes"]
    assert held < 2 << 20, held
    assert server.run("print(1)", language="python")["stdout"] == "1\n" # others go on
    assert stands() and int(progress()) <= before + 4  # what its pipes still take
    if how == "stream":
        events = list(events_of(connection.getresponse()))
        connection.close()
        text = sum(len(data["text"]) for name, data in events if name == "output")
        dropped = sum(data["bytes"] for name, data in events if name == "dropped")
    else:
        text = dropped = 0
        try:
            while True:
                name, data = ws.message()
                text += len(data) if name == "output" else 0
                dropped += data["bytes"] if name == "dropped" else 0
        except Closed as closed:
            assert closed.code == 1000
        ws.shut()
    assert text + dropped == 20000000 and dropped < 20000000


def test_a_client_that_reads_nothing_and_leaves(session):
    connection = session.stream("while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done", output_bytes=1 << 40)
    await_that(lambda: any(row["held"] for row in session.listed()["processes"]))
    connection.close()
    await_that(lambda: not any(row["held"] for row in session.listed()["processes"]))
    number = session.listed()["processes"][0]["id"]
    assert session.to(number, "signal", {"signal": "KILL"}).status == 204
    assert list(events_of(begin_output(session, number)))[-1][1]["signal"] == 9


CLIENT = """
import sys; sys.path[:0] = %r
import gateway, websocket
server = gateway.Server.__new__(gateway.Server)
server.path = %r
ws = websocket.WebSocket(server, %r)
print(ws.event("process")["id"], flush=True)
while True:
    print(ws.message(), flush=True)
"""


def test_a_client_that_is_killed(server, session):
    support.need("landlock")
    client = subprocess.Popen([sys.executable, "-c", CLIENT % (sys.path, server.path, session.path + "/terminal")], stdout=subprocess.PIPE)
    number = int(client.stdout.readline())
    assert session.state(number) in ("starting", "running")
    client.kill()
    client.wait()
    client.stdout.close()
    await_that(lambda: session.state(number) == "gone")


# --------------------------------------------------------------------------------------------------
# WebSockets

def test_a_process_over_a_websocket(session):
    number = session.spawn("cat; echo err >&2; exit 4", stdin=True)
    with session.attach(number) as ws:
        assert ws.message() == ("process", {"id": number})
        ws.send(BINARY, OCTETS)
        assert ws.until(OCTETS) == OCTETS
        ws.send(BINARY, b"one", final=False)
        ws.send(PING, b"in between")
        assert ws.frame() in ((PONG, b"in between"), (BINARY, b"one"))
        ws.send(CONTINUATION, b" two", final=False)
        ws.send(CONTINUATION)
        ws.control(type="close_stdin")
        assert ws.event("stream") == {"stream": "stderr"}
        assert ws.message() == ("output", b"err\n")
        end = ws.event("end")
        assert end["exit_code"] == 4 and end["signal"] is None
        assert ws.closed() == (1000, "the process has ended")
    assert session.attach(number).answer.status == 404


def test_large_messages(server, session):
    """One of any size is passed on as it comes."""
    number = session.spawn("wc -c", stdin=True)
    with session.attach(number) as ws:
        ws.send(BINARY, b"x" * (8 << 20))
        ws.control(type="close_stdin")
        assert ws.until("\n") == b"%d\n" % (8 << 20)
        assert ws.event("end")["exit_code"] == 0
    assert server.metrics()["hutch_http_held_bytes"] < 4096


def test_input_that_the_process_does_not_take(server, session):
    """The client waits, and a signal by another way still comes through."""
    number = session.spawn("exec sleep 1000", stdin=True)
    await_that(lambda: session.state(number) == "running")
    with session.attach(number) as ws:
        ws.event("process")
        ws.sock.setblocking(False)
        piece, sent = frame(BINARY, b"x" * 65536), 0
        with pytest.raises(BlockingIOError):
            while sent < 64 << 20:
                sent += ws.sock.send(piece[sent % len(piece):])
        ws.sock.settimeout(gateway.SECONDS)
        assert server.metrics()["hutch_http_held_bytes"] < 200000
        assert session.to(number, "signal", {"signal": "TERM"}).status == 204
        assert ws.event("end")["signal"] == 15


def test_control_messages(session):
    number = session.spawn("echo begun; exec sleep 1000", stdin=True)
    with session.attach(number) as ws:
        ws.until("begun")
        ws.control(type="resize", rows=1, cols=2)
        assert "no terminal" in ws.event("error")["message"]
        ws.control(type="close_stdin")
        ws.type("x")
        assert ws.event("error")["message"]
        ws.control(type="signal", signal="TERM")
        assert ws.event("end")["signal"] in (15, None)
        assert ws.closed()[0] == 1000


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"{}", b'{"type":"x"}', b'{"type":"resize"}', b'{"type":"resize","rows":1}',
                                  b'{"type":"resize","rows":0,"cols":1}', b'{"type":"signal"}', b'{"type":"signal","signal":"X"}',
                                  b'{"type":"close_stdin","rows":1,"cols":1}', b'{"type":"close_stdin","signal":9}',
                                  b'{"type":"signal","signal":9,"rows":1}', b'{"type":"close_stdin","type":"close_stdin"}', b"[" * 1000,
                                  b'{"type":"a\\u0000"}'])
def test_wrong_control_messages(session, text):
    number = session.spawn("exec sleep 1000")
    with session.attach(number) as ws:
        ws.send(TEXT, text)
        code, reason = ws.closed()
        assert code == 1008 and reason
    assert session.to(number, "signal", {"signal": "KILL"}).status == 204


WRONG_FRAMES = {
    "unmasked": (frame(BINARY, b"x", mask=None), 1002),
    "unmasked, empty": (frame(PING, mask=None), 1002),
    "reserved bit": (frame(BINARY, b"x", rsv=4), 1002),
    "reserved bit 2": (frame(TEXT, b"x", rsv=1), 1002),
    "unknown opcode": (frame(3, b"x"), 1002),
    "unknown control opcode": (frame(11), 1002),
    "continuation of nothing": (frame(CONTINUATION, b"x"), 1002),
    "message within a message": (frame(BINARY, b"x", final=False) + frame(BINARY, b"y"), 1002),
    "text within a binary": (frame(BINARY, b"x", final=False) + frame(TEXT, b"y"), 1002),
    "long ping": (frame(PING, b"x" * 126), 1002),
    "ping in pieces": (frame(PING, b"x", final=False), 1002),
    "close in pieces": (frame(CLOSE, final=False), 1002),
    "close of one byte": (frame(CLOSE, b"\x03"), 1002),
    "close 999": (frame(CLOSE, b"\x03\xe7"), 1002),
    "close 1005": (frame(CLOSE, b"\x03\xed"), 1002),
    "close 1006": (frame(CLOSE, b"\x03\xee"), 1002),
    "close 2000": (frame(CLOSE, b"\x07\xd0"), 1002),
    "close 5000": (frame(CLOSE, b"\x13\x88"), 1002),
    "close without UTF-8": (frame(CLOSE, b"\x03\xe8\xff"), 1007),
    "text without UTF-8": (frame(TEXT, b'{"type":"\xff"}'), 1007),
    "surrogate": (frame(TEXT, b"\xed\xa0\x80"), 1007),
    "text that ends in a character": (frame(TEXT, b"\xc3"), 1007),
    "large text": (frame(TEXT, b"x" * 16385), 1009),
    "large text in pieces": (frame(TEXT, b"x" * 16000, final=False) + frame(CONTINUATION, b"x" * 385), 1009),
    "text that says it is large": (frame(TEXT, b"x", length=1 << 62), 1009),
    "length with its first bit": (frame(BINARY, length=1 << 63), 1002),
    "long form of a short length": (bytes([0x82, 0xfe, 0, 5]) + b"\x01\x02\x03\x04" + b"xxxxx", 1002),
    "no WebSocket at all": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 1002),
}


@pytest.mark.parametrize("name", WRONG_FRAMES)
@pytest.mark.parametrize("how", ["whole", "byte by byte", "early"])
def test_wrong_frames(server, session, name, how):
    """Each is told by its code, and ends nothing but its WebSocket."""
    data, code = WRONG_FRAMES[name]
    number = session.spawn("exec sleep 1000", stdin=True)
    with session.attach(number, early=data if how == "early" else b"") as ws:
        if how == "whole":
            ws.sock.sendall(data)
        elif how == "byte by byte":
            for i in range(0, len(data), 1 if len(data) < 200 else 500):
                try:
                    ws.sock.sendall(data[i:i + (1 if len(data) < 200 else 500)])
                except (BrokenPipeError, ConnectionResetError):
                    break
        assert ws.closed()[0] == code
    assert session.state(number) in ("waiting", "starting", "running")
    assert session.to(number, "signal", {"signal": "KILL"}).status == 204


@pytest.mark.parametrize("code", [1000, 1001, 1011, 3000, 4999, None])
def test_close_handshake(session, code):
    number = session.spawn("exec sleep 1000")
    with session.attach(number) as ws:
        ws.event("process")
        ws.send(CLOSE, b"" if code is None else code.to_bytes(2, "big") + "é".encode())
        assert ws.closed()[0] == (code or 1000)
        assert ws.sock.recv(1) == b""
    assert session.to(number, "signal", {"signal": "KILL"}).status == 204


def test_a_client_that_does_not_answer_a_close(server, session):
    """It is closed all the same; what it goes on to send is not heard."""
    number = session.spawn("sleep 0.1")
    with session.attach(number) as ws:
        ws.event("end")
        assert ws.frame()[0] == CLOSE
        ws.send(BINARY, b"x" * 1000)
        assert ws.sock.recv(1) == b""


def test_a_second_client_takes_over(session):
    number = session.spawn("cat", stdin=True)
    with session.attach(number) as first:
        first.type("one\n")
        first.until("one\n")
        with session.attach(number) as second:
            second.event("process")
            assert first.closed() == (4001, "another client listens to the process")
            second.type("two\n")
            second.until("two\n")
            answer = begin_output(session, number)
            assert next(events_of(answer))[0] == "process"
            assert second.closed()[0] == 4001
            session.to(number, "close_stdin")
            assert list(events_of(answer))[-1][0] == "end"


def test_the_end_of_the_session(server):
    session = Shell(server)
    number = session.spawn("exec sleep 1000", stdin=True)
    with session.attach(number) as ws:
        ws.event("process")
        session.close()
        assert ws.event("end")["message"]
        assert ws.closed()[0] == 1000


def test_pings(session):
    number = session.spawn("exec sleep 1000")
    with session.attach(number) as ws:
        ws.event("process")
        ws.send(PING, b"x" * 125)
        assert ws.frame() == (PONG, b"x" * 125)
        ws.send(PONG, b"nobody asked")
        ws.send(PING)
        assert ws.frame() == (PONG, b"")
        for _ in range(1000):
            ws.send(PING, b"many")
        for _ in range(1000):
            assert ws.frame() == (PONG, b"many")
    session.to(number, "signal", {"signal": "KILL"})


def test_pings_of_a_client_that_reads_nothing(server, session):
    """Answers to them do not pile up."""
    number = session.spawn("exec sleep 1000")
    with session.attach(number) as ws:
        piece = frame(PING, b"x" * 125) * 500
        for _ in range(100):
            ws.sock.sendall(piece)
        assert server.metrics()["hutch_http_held_bytes"] < 200000
    session.to(number, "signal", {"signal": "KILL"})


def test_a_client_that_is_silent_is_asked_and_left(tmp_path):
    """A half-open connection: nothing tells that its client has gone."""
    with Server(tmp_path, "--idle-timeout", "8s") as server:
        session = Shell(server)
        number = session.spawn("exec sleep 1000")
        with session.attach(number) as silent, session.attach(session.spawn("exec sleep 1000")) as answering:
            assert silent.event("process") and answering.event("process")
            assert silent.frame() == (PING, b"")
            for _ in range(2):
                assert answering.frame() == (PING, b"")
                answering.send(PONG)
            assert silent.sock.recv(1) == b""
            answering.send(PING)
            while answering.frame()[0] != PONG:
                pass
        assert session.state(number) == "running"
        session.close()


@pytest.mark.parametrize("headers,leave_out,status", [
    ({}, ("Upgrade",), 426), ({}, ("Connection",), 426), ({"Upgrade": "h2c"}, (), 426), ({"Sec-WebSocket-Version": "12"}, (), 426),
    ({}, ("Sec-WebSocket-Version",), 426), ({}, ("Sec-WebSocket-Key",), 426), ({"Sec-WebSocket-Key": "eA=="}, (), 426),
    ({"Sec-WebSocket-Key": "?" * 24}, (), 426), ({"Origin": "https://evil.example"}, (), 403)])
def test_handshakes_that_are_refused(session, headers, leave_out, status):
    number = session.spawn("exec sleep 1000")
    for path in ("/processes/%d/attach" % number, "/terminal"):
        ws = WebSocket(session.server, session.path + path, headers, leave_out=leave_out)
        assert ws.answer and ws.answer.status == status, path
        if status == 426:
            assert ws.answer.error["code"] == "upgrade_required"
    assert [row["id"] for row in session.listed()["processes"]] == [number]


def test_host_and_origin_over_tcp(tmp_path):
    with Server(tmp_path, "--listen", "127.0.0.1:0", "--listen", "unix:" + gateway.socket_path(tmp_path), "--insecure-no-auth",
                "--allow-origin", "https://page.example") as server:
        session = Shell(server)
        path = "%s/processes/%d/attach" % (session.path, session.spawn("exec sleep 1000"))

        def opened(headers):
            ws = WebSocket(server, path, headers, sock=socket.create_connection(("127.0.0.1", server.port()), gateway.SECONDS))
            if ws.answer:
                return ws.answer.status
            with ws:
                return ws.message()[0]

        assert opened({}) == "process"
        assert opened({"Host": "rebound.example"}) == 403
        assert opened({"Origin": "https://evil.example"}) == opened({"Origin": "null"}) == 403
        assert opened({"Origin": "https://page.example", "Sec-WebSocket-Protocol": "hutch.v1"}) == "process"
        session.close()


# --------------------------------------------------------------------------------------------------
# Terminals

@pytest.fixture
def landlock():
    support.need("landlock")


def test_a_terminal(session, landlock):
    with session.terminal("?rows=30&cols=100") as ws:
        number = ws.event("process")["id"]
        ws.type("stty size\n")
        ws.until("30 100")
        ws.control(type="resize", rows=17, cols=55)
        ws.type("stty size; echo $TERM\n")
        ws.until("17 55")
        ws.until("xterm-256color")
        assert session.to(number, "resize", {"rows": 20, "cols": 60}).status == 204
        ws.type("stty size\n")
        ws.until("20 60")
        ws.type("sh -c 'trap \"echo interrup\"\"ted; exit\" INT; echo be\"\"gun; while :; do sleep 0.1; done'\n")
        ws.until("begun")
        ws.type("\x03")
        ws.until("interrupted")
        ws.type("echo after $((6 * 7))\n")
        ws.until("after 42")
        ws.type("exit 5\n")
        assert ws.event("end")["exit_code"] == 5
        assert ws.closed()[0] == 1000


def test_a_terminal_ends_with_its_client(session, landlock):
    with session.terminal() as ws:
        number = ws.event("process")["id"]
    await_that(lambda: session.state(number) == "gone")
    assert session.listed()["processes"] == []


def test_a_terminal_that_is_kept(session, landlock):
    with session.terminal("?keep=true") as ws:
        number = ws.event("process")["id"]
        ws.type("x=6; echo be''gun\n")
        ws.until("begun")
    assert session.state(number) == "running"
    with session.attach(number) as ws:
        ws.event("process")
        ws.type("echo $((x * 7))\n")
        ws.until("42\r\n")
        ws.until("$ ")  # the shell reads key by key again: before, the terminal itself takes Ctrl-D
        ws.control(type="close_stdin")
        assert ws.event("end")["exit_code"] == 0


@pytest.mark.parametrize("query", ["?rows=0", "?rows=x", "?cols=70000", "?cols=", "?keep=1", "?rows=-1"])
def test_wrong_queries(session, query):
    assert session.terminal(query).answer.status == 400
    assert session.listed()["processes"] == []


def test_a_process_at_a_terminal(session, landlock):
    out, end = session.run("stty size; tty; [ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo all", terminal={"rows": 11, "cols": 22})
    assert out.startswith("11 22\r\n/dev/pts/") and out.endswith("all\r\n") and end["exit_code"] == 0


def test_a_flood_at_a_terminal(server, session, landlock):
    """^C ends it, however far behind the client is."""
    with session.terminal() as ws:
        ws.type("yes\n")
        ws.until("y\r\ny\r\ny\r\n")
        await_that(lambda: any(row["held"] for row in session.listed()["processes"]))
        assert server.metrics()["hutch_http_held_bytes"] < 1 << 20
        ws.type("\x03")
        ws.type("echo after $((6 * 7))\n")
        ws.until("after 42")


HOSTILE = [b"\x1b]0;title\x07\x1b[2J\x1b[?1049h", b"\x00\xff\xfe" * 100, b'{"event":"end","data":{"exit_code":0}}',
           b"\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", b"\x88\x02\x03\xe8"]


@pytest.mark.parametrize("data", HOSTILE)
def test_hostile_output(session, data):
    """Bytes are bytes: none is taken for the protocol's."""
    script = "printf '%s'" % "".join("\\%03o" % byte for byte in data)
    number = session.spawn(script + "; sleep 0.1; exit 3")
    with session.attach(number) as ws:
        seen = b""
        while True:
            name, found = ws.message()
            if name == "end":
                break
            seen += found if name == "output" else b""
        assert seen == data and found["exit_code"] == 3
    assert session.run(script)[0] == data.decode("utf-8", "replace")


# --------------------------------------------------------------------------------------------------
# The server's end

def test_drain(tmp_path):
    """Each WebSocket is told, and the end does not wait for those that do not answer."""
    with Server(tmp_path) as server:
        session = Shell(server)
        sockets = [session.attach(session.spawn("exec sleep 1000")) for _ in range(3)]
        for ws in sockets:
            ws.event("process")
        server.signal()
        for ws in sockets:
            assert ws.closed() == (1001, "the server is shutting down")
        sockets[0].send(CLOSE, b"\x03\xe9")
        assert server.await_end() == 0
        for ws in sockets:
            ws.shut()


def test_a_stream_ends_with_the_server(tmp_path):
    with Server(tmp_path, "--drain", "300ms") as server:
        session = Shell(server)
        connection = session.stream("echo begun; exec sleep 1000")
        events = events_of(connection.getresponse())
        assert [next(events)[0], next(events)[0]] == ["process", "output"]
        server.signal()
        assert server.await_end() == 0
        connection.close()


def test_a_server_that_is_stopped_twice(tmp_path):
    """With WebSockets that do not answer, and one that has only begun."""
    with Server(tmp_path) as server:
        session = Shell(server)
        sockets = [session.attach(session.spawn("exec sleep 1000")) for _ in range(2)]
        for ws in sockets:
            ws.event("process")
        server.signal()
        server.await_event("draining")
        server.signal()
        assert server.await_end() == 0
        for ws in sockets:
            ws.shut()


def test_memory_of_an_idle_websocket(tmp_path):
    with Server(tmp_path, "--max-connections", "1024") as server:
        session = Shell(server, max_processes=64)

        def rss():
            with open("/proc/%d/status" % server.process.pid) as status:
                return [int(line.split()[1]) for line in status if line.startswith("VmRSS:")][0]

        numbers = [session.spawn("exec sleep 1000") for _ in range(40)]
        first = [session.attach(number) for number in numbers[:20]]
        for ws in first:
            ws.event("process")
        before = rss()
        more = [session.attach(number) for number in numbers[20:]]
        for ws in more:
            ws.event("process")
        assert (rss() - before) / len(more) <= 64 or os.path.basename(os.path.dirname(support.HUTCH)) == "build-asan"
        for ws in first + more:
            ws.shut()
        session.close()
