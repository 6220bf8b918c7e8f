"""POST /v1/batch: a run for each line, a line for each result, and clients that leave or do not read."""
import hashlib
import json

import pytest

import gateway
import openapi
from gateway import Server

LINES = {"Content-Type": "application/x-ndjson"}
LINE = {"$ref": "#/components/schemas/BatchLine"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Server(tmp_path_factory.mktemp("gateway"), "--workers", "1", "--max-body", "2m", "--request-timeout", "120s") as started:
        yield started


def text_of(lines):
    return b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines)


def batch(server, lines, headers=None):
    """The lines that come back."""
    answer = server.ask("POST", "/v1/batch", text_of(lines), {**LINES, **(headers or {})})
    assert answer.status == 200 and answer.headers["Content-Type"] == "application/x-ndjson", answer.body
    assert answer.body.endswith(b"\n") or not answer.body
    found = [json.loads(line) for line in answer.body.splitlines()]
    for line in found:
        openapi.hold(line, LINE, "a line of a batch")
    return found


def test_each_line_has_its_answer(server):
    lines = [{"id": "run %d" % i, "code": "print(%d * 7)" % i} for i in range(40)]
    found = batch(server, lines)
    assert sorted((line["line"], line["id"], line["result"]["stdout"]) for line in found) == [
        (i + 1, "run %d" % i, "%d\n" % (i * 7)) for i in range(40)]


def test_order_of_finishing(server):
    found = batch(server, [{"id": 1, "code": "import time; time.sleep(8)"}, {"id": 2, "code": ""}])
    assert [line["id"] for line in found] == [2, 1]


def test_what_a_line_takes(server):
    found = batch(server, [b'{"id": "a\\u00ff\\"", "code": "import sys; print(sys.stdin.read(), sys.argv[1:])", "stdin": "in", "args": ["x"]}\r\n',
                           b"\n", b"  \n", b'{"code": "exit 3", "language": "sh"}'])
    found.sort(key=lambda line: line["line"])
    assert [(line["line"], line["id"]) for line in found] == [(1, "aÿ\""), (4, None)]
    assert found[0]["result"]["stdout"] == "in ['x']\n" and found[1]["result"]["exit_code"] == 3


def test_nothing(server):
    assert batch(server, [b"\n\n"]) == []


BAD_LINES = {
    "no JSON": (b"code=1\n", None, "line 1, column 1"),
    "cut": (b'{"code": "1"\n', None, "column"),
    "NUL": (b'{"code": "a\\u0000"}\n', None, "column"),
    "raw NUL": (b'{"code": "\0"}\n', None, "column"),
    "no UTF-8": (b'{"code": "\xff"}\n', None, "UTF-8"),
    "unknown key": (b'{"id": 5, "code": "", "polcy": 1}\n', None, "$.polcy: unknown key"),
    "bad id": (b'{"id": [], "code": ""}\n', None, "$.id"),
    "negative id": (b'{"id": -1, "code": ""}\n', None, "$.id"),
    "long id": (b'{"id": "' + b"x" * 300 + b'", "code": ""}\n', None, "$.id"),
    "no code": (b'{"id": 5}\n', 5, '"code" is missing'),
    "wrong type": (b'{"id": "x", "code": 5}\n', "x", "$.code"),
    "unknown language": (b'{"id": 7, "code": "", "language": "cobol"}\n', 7, "cobol"),
    "limit above the policy's": (b'{"id": 8, "code": "", "limits": {"pids": 1000000}}\n', 8, "above the policy's"),
}


def test_bad_lines(server):
    """Each is told of, and the others run."""
    lines = [line for bad, _, _ in BAD_LINES.values() for line in (bad, {"id": "good", "code": "print(1)"})]
    found = {line["line"]: line for line in batch(server, lines)}
    assert len(found) == 2 * len(BAD_LINES)
    for i, (label, (_, name, words)) in enumerate(BAD_LINES.items()):
        bad = found[2 * i + 1]
        assert bad["id"] == name and bad["error"]["code"] == "invalid_request" and words in bad["error"]["message"], (label, bad)
        assert found[2 * i + 2]["result"]["stdout"] == "1\n"


def test_refusals(server):
    answer = server.ask("POST", "/v1/batch", b"{}", {"Content-Type": "application/json"})
    assert answer.error["code"] == "unsupported_media_type" and "application/x-ndjson" in answer.error["message"]
    head = b"POST /v1/batch HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\nContent-Length: %d\r\n\r\n"
    assert gateway.parse(server.raw(head % (2 << 20 | 1))).error["code"] == "body_too_large"
    assert server.ask("GET", "/v1/batch").headers["Allow"] == "POST"


def test_a_key_is_refused(server):
    """It would not keep a batch that is sent again from running again."""
    before = count_runs(server)
    answer = server.ask("POST", "/v1/batch", text_of([{"code": "1"}]), {**LINES, "Idempotency-Key": "k"})
    assert (answer.status, answer.error["code"]) == (400, "invalid_request") and "Idempotency-Key" in answer.error["message"]
    assert count_runs(server) == before


def begin(server, lines):
    connection = gateway.UnixConnection(server.path)
    connection.request("POST", "/v1/batch", text_of(lines), LINES)
    return connection


def test_results_come_as_they_are(server):
    connection = begin(server, [{"id": 1, "code": "import time; time.sleep(60)"}, {"id": 2, "code": "print(2)"}])
    answer = connection.getresponse()
    assert json.loads(answer.readline())["id"] == 2
    connection.close()
    server.await_metric("hutch_running", 0)


def count_runs(server):
    return sum(value for name, value in server.metrics().items() if name.startswith("hutch_runs_total"))


def test_client_that_leaves(server):
    """What runs is ended, and what has not begun never begins."""
    before = count_runs(server)
    connection = begin(server, [{"code": "while True: pass"}] * 500)
    server.await_metric("hutch_http_connections", 2)
    gateway.await_that(lambda: server.metrics()["hutch_running"] > 0)
    connection.close()
    server.await_metric("hutch_running", 0)
    server.await_metric("hutch_queued", 0)
    server.await_metric("hutch_http_exchanges", 1)
    assert count_runs(server) - before < 200


def test_client_that_does_not_read(server):
    """Lines are not begun while it is behind; what it has not read takes little memory; then all of it comes."""
    lines = [{"id": i, "code": "print('x' * 300000)"} for i in range(120)]
    connection = begin(server, lines)
    gateway.await_that(lambda: server.metrics()["hutch_running"] == 0 and server.metrics()["hutch_http_held_bytes"] > 1 << 20)
    metrics = server.metrics()
    assert metrics["hutch_http_held_bytes"] < 64 << 20 and metrics["hutch_queued"] == 0
    assert server.run("print(1)")["stdout"] == "1\n"  # others go on
    found = [json.loads(line) for line in connection.getresponse().read().splitlines()]
    assert sorted(line["id"] for line in found) == list(range(120))
    assert all(len(line["result"]["stdout"]) == 300001 for line in found)
    connection.close()


def test_client_that_does_not_read_and_leaves(server):
    connection = begin(server, [{"id": i, "code": "print('x' * 300000)"} for i in range(120)])
    gateway.await_that(lambda: server.metrics()["hutch_running"] == 0 and server.metrics()["hutch_http_held_bytes"] > 1 << 20)
    connection.close()
    server.await_metric("hutch_http_exchanges", 1)
    server.await_metric("hutch_http_held_bytes", 0)


def test_large_result(server):
    """Larger than what a stream may be behind."""
    found = batch(server, [{"id": 1, "code": "print('\\x01' * 3000000)"}, {"id": 2, "code": "print(2)"}])
    assert {line["id"] for line in found} == {1, 2}
    assert {line["id"]: len(line["result"]["stdout"]) for line in found}[1] == 3000001


def test_queue_of_one(tmp_path):
    """A batch waits for its own runs where the queue is full."""
    with Server(tmp_path, "--jobs", "1", "--queue", "1") as server:
        found = batch(server, [{"id": i, "code": "print(%d)" % i} for i in range(12)])
        assert sorted((line["id"], line["result"]["stdout"]) for line in found) == [(i, "%d\n" % i) for i in range(12)]


def test_share_of_a_token(tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text("".join("%s %s\n" % (name, hashlib.sha256(name.encode()).hexdigest()) for name in ("ada", "bob")))
    tokens.chmod(0o600)
    with Server(tmp_path, "--jobs", "4", "--queue", "4", "--tokens", str(tokens)) as server:
        found = batch(server, [{"id": i, "code": ""} for i in range(12)], {"Authorization": "Bearer ada"})
        assert all(line["result"]["verdict"] == "ok" for line in found) and len(found) == 12


def test_end_of_the_server(tmp_path):
    """What runs is ended and told, what has not begun is missing, and the client sees that the answer is not whole."""
    with Server(tmp_path, "--jobs", "1", "--drain", "300ms") as server:
        connection = begin(server, [{"id": i, "code": "while True: pass"} for i in range(9)])
        server.await_metric("hutch_running", 1)
        server.signal()
        with pytest.raises((gateway.http.client.IncompleteRead, ConnectionResetError)):
            connection.getresponse().read()
        assert server.await_end() == 0
