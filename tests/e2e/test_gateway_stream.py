"""Answers of hutch serve that come as they are made, and clients that do not take them."""
import json
import socket

import pytest

import gateway
from gateway import Server

FOREVER = "import time\nwhile True: time.sleep(60)\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Server(tmp_path_factory.mktemp("gateway")) as started:
        yield started


def begin(server, code, accept, path="/v1/run", **more):
    connection = gateway.UnixConnection(server.path)
    connection.request("POST", path, json.dumps({"code": code, **more}), {"Content-Type": "application/json", "Accept": accept})
    return connection


def events_of(answer):
    """What comes as server-sent events or lines: [(name, data)], one after the other."""
    if answer.headers["Content-Type"] == "text/event-stream":
        while name := answer.readline():
            data, end = answer.readline(), answer.readline()
            assert name.startswith(b"event: ") and data.startswith(b"data: ") and end == b"\n", (name, data, end)
            yield name[7:-1].decode(), json.loads(data[6:])
    else:
        assert answer.headers["Content-Type"] == "application/x-ndjson"
        while line := answer.readline():
            event = json.loads(line)
            assert list(event) == ["event", "data"]
            yield event["event"], event["data"]


FORMATS = ("text/event-stream", "application/x-ndjson")


@pytest.mark.parametrize("accept", FORMATS)
def test_events(server, accept):
    connection = begin(server, "import sys; print('a', flush=True); print('b', file=sys.stderr, flush=True); 1 / 0", accept)
    answer = connection.getresponse()
    assert answer.status == 200 and answer.headers["X-Content-Type-Options"] == "nosniff"
    events = list(events_of(answer))
    out = "".join(data["text"] for name, data in events if name == "output" and data["stream"] == "stdout")
    err = "".join(data["text"] for name, data in events if name == "output" and data["stream"] == "stderr")
    assert out == "a\n" and err.startswith("b\n") and "ZeroDivisionError" in err
    name, result = events[-1]
    assert name == "result" and result["verdict"] == "error" and result["error"]["name"] == "ZeroDivisionError"
    assert result["stdout"] == result["stderr"] == ""
    # The connection serves the next one.
    assert server.ask("GET", "/healthz", connection=connection).status == 200
    connection.close()


@pytest.mark.parametrize("accept", ["*/*", "application/json", "text/html, application/json;q=0.9", "text/event-streams", "x/text/event-stream"])
def test_nobody_asked_for_a_stream(server, accept):
    assert server.ask("POST", "/v1/run", {"code": "print(1)"}, {"Accept": accept}).json["stdout"] == "1\n"


@pytest.mark.parametrize("accept", ["application/json, text/event-stream", "TEXT/Event-Stream; q=1"])
def test_asked_for_among_others(server, accept):
    connection = begin(server, "print(1)", accept)
    names = [name for name, _ in events_of(connection.getresponse())]
    assert set(names[:-1]) == {"output"} and names[-1] == "result"
    connection.close()


def test_silence(server):
    """Server-sent events have comments where nothing else comes: what proxies and browsers wait for."""
    connection = begin(server, "import time; time.sleep(16)", "text/event-stream")
    answer = connection.getresponse()
    assert (answer.readline(), answer.readline()) == (b": \n", b"\n")
    assert [name for name, _ in events_of(answer)] == ["result"]
    connection.close()


@pytest.mark.parametrize("accept", FORMATS)
def test_output_comes_before_the_end(server, accept):
    """… which never comes: the client leaves, and with it the run."""
    connection = begin(server, "print('begun', flush=True)\n" + FOREVER, accept)
    events, seen = events_of(connection.getresponse()), ""
    while seen != "begun\n":  # in one event or two
        name, data = next(events)
        assert (name, data["stream"]) == ("output", "stdout") and "begun\n".startswith(seen + data["text"]), data
        seen += data["text"]
    server.await_metric("hutch_running", 1)
    connection.close()
    server.await_metric("hutch_running", 0)
    server.await_metric("hutch_http_exchanges", 1)


def test_characters_are_not_cut(server):
    code = ("import os, time\n"
            "for byte in 'aÿ€😀'.encode() + b'\\xff' + '€'.encode()[:2]:\n"
            "    os.write(1, bytes([byte])); time.sleep(0.02)\n")
    connection = begin(server, code, FORMATS[1])
    texts = [data["text"] for name, data in events_of(connection.getresponse()) if name == "output"]
    connection.close()
    assert "".join(texts) == "aÿ€😀\ufffd\ufffd"


def test_line_ends_stay_within_an_event(server):
    connection = begin(server, "print('a\\n\\nevent: result\\ndata: {}\\n\\r\\x00\\u2028')", FORMATS[0])
    events = list(events_of(connection.getresponse()))
    connection.close()
    assert "".join(data["text"] for _, data in events[:-1]) == "a\n\nevent: result\ndata: {}\n\r\x00\u2028\n"


def test_refused_before_it_begins(server):
    answer = server.ask("POST", "/v1/run", b"{", {"Accept": FORMATS[0]})
    assert answer.status == 400 and answer.error["code"] == "invalid_request"


def test_client_that_reads_nothing(tmp_path):
    """Its run ends, and so does the connection; others go on, and the memory is given back."""
    with Server(tmp_path) as server:
        deaf = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect(server.path)
        body = json.dumps({"code": "import sys\nline = 'x' * 1000 + '\\n'\nwhile True: sys.stdout.write(line)"}).encode()
        deaf.sendall(b"POST /v1/run HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAccept: text/event-stream\r\n"
                     b"Content-Length: %d\r\n\r\n" % len(body) + body)
        runs = ("killed", "output_limit")
        while not any(server.metrics()['hutch_runs_total{verdict="%s"}' % verdict] for verdict in runs):
            assert server.run("print(1)")["stdout"] == "1\n"
            assert server.metrics()["hutch_http_held_bytes"] < 10 << 20
        assert server.run("print(2)")["stdout"] == "2\n"
        deaf.close()
        server.await_metric("hutch_http_held_bytes", 0)
        server.await_metric("hutch_http_exchanges", 1)


def test_stream_is_drained(tmp_path):
    """A stream that runs when the server is told to end gets its result."""
    with Server(tmp_path, "--drain", "1s") as server:
        connection = begin(server, "print('begun', flush=True)\n" + FOREVER, FORMATS[1])
        events = events_of(connection.getresponse())
        assert next(events)[0] == "output"
        server.signal()
        name, result = list(events)[-1]
        assert (name, result["verdict"]) == ("result", "killed")
        assert server.await_end() == 0


def test_stream_that_is_cut_is_seen_to_be(tmp_path):
    """The server is killed: the client sees an error, and no end."""
    with Server(tmp_path) as server:
        connection = begin(server, "print('begun', flush=True)\n" + FOREVER, FORMATS[0])
        answer = connection.getresponse()
        assert next(events_of(answer))[0] == "output"
        server.signal(9)
        with pytest.raises((ConnectionError, gateway.http.client.IncompleteRead)):
            answer.read()
        server.await_end()
