"""Sessions over HTTP: cells, checkpoints, files, and whose they are."""
import hashlib
import http.client
import json
import os
import signal

import pytest

import gateway
from gateway import Server, await_that
from test_gateway_stream import begin, events_of

NOBODYS = "A" * 21


@pytest.fixture(autouse=True)
def nothing_is_left(request):
    """No exchange outlives its test."""
    yield
    if "server" in request.fixturenames:
        request.getfixturevalue("server").await_metric("hutch_http_exchanges", 1)


class Session:
    def __init__(self, server, headers=None, **options):
        self.server, self.headers = server, headers
        answer = server.ask("POST", "/v1/sessions", options, headers)
        assert answer.status == 201, answer.body
        self.info = answer.json
        self.path = "/v1/sessions/" + self.info["id"]

    def ask(self, method, path="", body=None, headers=None):
        return self.server.ask(method, self.path + path, body, {**(self.headers or {}), **(headers or {})})

    def cell(self, code, **more):
        answer = self.ask("POST", "/cells", {"code": code, **more})
        assert answer.status == 200, answer.body
        return answer.json

    def value(self, code, **more):
        result = self.cell(code, **more)
        assert result["verdict"] == "ok", result
        return result["value"]

    def order(self, method, path, body=None):
        answer = self.ask(method, path, body)
        assert answer.status == 200, answer.body
        assert list(answer.json) == ["id", "ms", "bytes", "lost"]
        return answer.json["id"]

    def close(self):
        assert self.ask("DELETE").status == 204


def test_variables_that_follow_from_limits(server):
    """Of what a session asks for, in a sandbox that was prepared for more."""
    code = "import os; os.environ['JAVA_TOOL_OPTIONS'].split()[0], os.environ['GOTMPDIR']"
    for more, want in ({}, "-Xmx256m"), ({"limits": {"memory_bytes": 100 << 20}}, "-Xmx50m"), ({"env": {"JAVA_TOOL_OPTIONS": "mine"}}, "mine"):
        session = Session(server, **more)
        assert session.value(code) == repr((want, "/mnt/data"))
        session.close()


def test_message_names_a_limit(server):
    session = Session(server)
    result = session.cell("l = [open('/dev/null') for _ in range(5000)]")
    assert result["verdict"] == "error" and result["message"].startswith("the limit 'open_files' ("), result
    assert session.cell("1 / 0")["message"] is None
    session.close()


@pytest.fixture
def session(server):
    opened = Session(server)
    yield opened
    opened.ask("DELETE")


def test_cells_are_counted(server, session):
    before = server.metrics()
    session.value("1")
    session.cell("1 / 0")
    after = server.metrics()
    for phase in ("queued", "run"):
        name = 'hutch_cell_seconds_count{format="native",phase="%s"}' % phase
        assert after[name] - before[name] == 2
    assert after['hutch_cells_total{verdict="error"}'] - before['hutch_cells_total{verdict="error"}'] == 1


def test_life(server):
    session = Session(server, idle_ms=60000, lifetime_ms=3600000)
    assert len(session.info["id"]) == 21 and session.info["idle_ms"] == 60000 and session.info["lifetime_ms"] == 3600000
    assert session.value("x = 6\nx * 7") == "42"
    assert session.value("x + 1") == "7"
    info = session.ask("GET").json
    assert info.pop("now")["state"] == "idle"
    assert list(info) == list(session.info) and info["last_used"] > info["created"] and info["waiting"] == 0
    assert info in server.ask("GET", "/v1/sessions").json["sessions"]
    assert server.metrics()["hutch_sessions"] >= 1
    session.close()
    assert session.ask("GET").error["code"] == "not_found"
    assert info["id"] not in [other["id"] for other in server.ask("GET", "/v1/sessions").json["sessions"]]
    server.await_metric("hutch_sessions", 0)


def test_cells(session):
    result = session.cell("import sys; print('a'); 1 / 0")
    assert result["verdict"] == "error" and result["error"]["name"] == "ZeroDivisionError"
    assert session.value("y = 1; y", context="other") == "1"
    assert session.cell("y")["error"]["name"] == "NameError"
    assert session.cell("5", silent=True)["value"] is None
    assert session.cell("import time; time.sleep(60)", timeout_ms=300)["verdict"] == "timeout"


def test_cell_as_it_comes(server, session):
    connection = begin(server, "print('a'); display({'k': 1}); 'v'", "text/event-stream", session.path + "/cells")
    events = list(events_of(connection.getresponse()))
    connection.close()
    assert [name for name, _ in events] == ["output", "display", "value", "result"]
    assert events[0][1] == {"stream": "stdout", "text": "a\n"}
    assert events[1][1]["data"]["text/plain"] == "{'k': 1}"
    assert events[3][1]["value"] == "'v'" and len(events[3][1]["outputs"]) == 3


def test_interrupt_and_restart(server, session):
    assert session.ask("POST", "/interrupt").json == {"interrupted": False}
    connection = begin(server, "x = 1\nprint('begun', flush=True)\nimport time\nwhile True: time.sleep(0.1)", "application/x-ndjson",
                       session.path + "/cells")
    events = events_of(connection.getresponse())
    assert next(events)[0] == "output"
    assert session.ask("GET").json["waiting"] == 1
    assert session.ask("POST", "/interrupt").json == {"interrupted": True}
    assert list(events)[-1][1]["error"]["name"] == "KeyboardInterrupt"
    connection.close()
    assert session.value("x") == "1"
    assert session.ask("POST", "/restart").json == {"restarted": True}
    assert session.cell("x")["error"]["name"] == "NameError"


def test_client_that_leaves_interrupts_its_cell(server, session):
    connection = begin(server, "print('begun', flush=True)\nimport time\nwhile True: time.sleep(0.1)", "text/event-stream", session.path + "/cells")
    assert next(events_of(connection.getresponse()))[0] == "output"
    connection.close()
    assert session.value("1 + 1") == "2"


def test_closing_ends_what_runs(server):
    session = Session(server)
    connection = begin(server, "print('begun', flush=True)\nimport time\nwhile True: time.sleep(0.1)", "application/x-ndjson",
                       session.path + "/cells")
    events = events_of(connection.getresponse())
    assert next(events)[0] == "output"
    session.close()
    assert list(events)[-1][1]["verdict"] == "killed"
    connection.close()


def test_checkpoints_and_branches(session):
    session.cell("x = 1")
    checkpoint = session.order("POST", "/checkpoints")
    session.cell("x = 2")
    session.order("POST", "/rollback", {"checkpoint": checkpoint})
    assert session.value("x") == "1"
    branch = session.order("POST", "/branches")
    session.cell("x = 3")
    session.order("POST", "/switch", {"branch": branch})
    assert session.value("x") == "1"
    session.order("POST", "/switch", {"branch": 0})
    assert session.value("x") == "3"
    session.order("DELETE", "/branches/%d" % branch)
    session.order("DELETE", "/checkpoints/%d" % checkpoint)
    answer = session.ask("POST", "/rollback", {"checkpoint": checkpoint})
    assert (answer.status, answer.error["code"]) == (409, "conflict")
    assert session.ask("DELETE", "/checkpoints/x").status == 404
    for body in ({}, {"checkpoint": -1}, {"checkpoint": "1"}, {"checkpoint": 1, "x": 1}, []):
        assert session.ask("POST", "/rollback", body).status == 400


# --------------------------------------------------------------------------------------------------
# Files

def test_files(session):
    session.cell("pass")
    data = os.urandom(3 << 20)
    answer = session.ask("PUT", "/files/data%20set.bin", data, {"Content-Type": "application/octet-stream"})
    assert answer.status == 201 and answer.json == {"path": "data set.bin", "size": len(data)}
    digest = hashlib.sha256(data).hexdigest()
    assert session.value("import hashlib; hashlib.sha256(open('/mnt/data/data set.bin', 'rb').read()).hexdigest()") == "'%s'" % digest
    files = session.ask("GET", "/files").json["files"]
    assert [(file["path"], file["size"]) for file in files] == [("data set.bin", len(data))]
    answer = session.ask("GET", "/files/data%20set.bin")
    assert answer.status == 200 and answer.body == data
    assert answer.headers["Content-Type"] == "application/octet-stream" and answer.headers["Content-Disposition"] == "attachment"
    answer = session.ask("GET", "/files/data%20set.bin", headers={"Range": "bytes=10-19"})
    assert (answer.status, answer.body) == (206, data[10:20])
    assert answer.headers["Content-Range"] == "bytes 10-19/%d" % len(data)
    assert session.ask("GET", "/files/data%20set.bin", headers={"Range": "bytes=-5"}).body == data[-5:]
    answer = session.ask("GET", "/files/data%20set.bin", headers={"Range": "bytes=99999999-"})
    assert (answer.status, answer.error["code"]) == (416, "range_not_satisfiable")
    assert session.ask("PUT", "/files/data%20set.bin", b"").json["size"] == 0
    assert session.ask("GET", "/files/data%20set.bin").body == b""
    assert session.ask("DELETE", "/files/data%20set.bin").status == 204
    assert session.ask("GET", "/files/data%20set.bin").status == 404
    assert session.ask("GET", "/files").json["files"] == []


def test_file_in_chunks(server, session):
    """Nobody said how long it is."""
    session.cell("pass")
    connection = gateway.UnixConnection(server.path)
    connection.request("PUT", session.path + "/files/a", iter([b"abc", b"def"]), encode_chunked=True, headers={"Transfer-Encoding": "chunked"})
    assert connection.getresponse().status == 201
    connection.close()
    assert session.ask("GET", "/files/a").body == b"abcdef"


@pytest.mark.parametrize("name", ["..", "../x", "a/../../x", "%2e%2e/x", "%2e%2e%2fx", "..%2fx", "%2fetc%2fpasswd", "/etc/passwd", "a//b", "./x", ".",
                                  "a%2f", "out/passwd", "link"])
def test_names_that_lead_out(session, name):
    session.cell("import os; os.symlink('/etc', 'out'); os.symlink('/etc/passwd', 'link')")
    assert session.ask("GET", "/files/" + name).status in (400, 404), name
    if name != "link":  # that is replaced, as a file of that name would be
        assert session.ask("PUT", "/files/" + name, b"x").status in (400, 404), name
    assert session.ask("GET", "/files/" + name + "%00").status == 400


@pytest.mark.parametrize("make", ["os.mkfifo('x')", "os.mkdir('x')", "import socket; socket.socket(socket.AF_UNIX).bind('x')"])
def test_what_is_no_file(session, make):
    session.cell("import os; " + make)
    assert session.ask("GET", "/files/x").status in (400, 404)


def test_files_before_the_first_sandbox(server):
    """They wait for it: more sessions at once than sandboxes are prepared."""
    asked = [("PUT", "/files/d/f", b"x" * 100000, 201), ("GET", "/files", None, 200), ("GET", "/files/f", None, 404), ("DELETE", "/files/f", None, 404)]
    opened = []
    for method, path, body, status in asked * 3:
        opened.append(Session(server))
        answer = opened[-1].ask(method, path, body)
        assert answer.status == status, (method, path, answer.body)
        if method == "GET" and status == 200:
            assert answer.json == {"files": []}
    assert opened[0].value("open('d/f').read() == 'x' * 100000") == "True"
    opened.append(Session(server))
    for head in (b"PUT %s/files/f HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n", b"GET %s/files HTTP/1.1\r\nHost: localhost\r\n\r\n"):
        with server.connect() as sock:  # and leaves
            sock.sendall(head % opened[-1].path.encode())
    for session in opened:
        session.close()


def test_upload_that_breaks_off_leaves_nothing(server, session):
    session.cell("pass")
    with server.connect() as sock:
        sock.sendall(b"PUT %s/files/half HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n" % session.path.encode() + b"x" * 500000)
    server.await_metric("hutch_http_exchanges", 1)
    assert session.ask("GET", "/files/half").status == 404


def test_upload_that_does_not_fit(server):
    session = Session(server, limits={"data_bytes": 1 << 20, "file_bytes": 1 << 20})
    session.cell("pass")
    try:
        answer = session.ask("PUT", "/files/large", b"x" * (8 << 20))
        assert answer.status in (201, 413)  # 201 where the supervisor counts, and ends the session for it
    except (BrokenPipeError, ConnectionResetError, http.client.HTTPException):
        pass
    session.ask("DELETE")
    assert server.ask("GET", "/healthz").status == 200


def test_hostile_page_is_not_shown(session):
    session.cell("open('/mnt/data/page.html', 'w').write('<script>alert(1)</script>')")
    headers = session.ask("GET", "/files/page.html").headers
    assert headers["Content-Type"] == "application/octet-stream" and headers["X-Content-Type-Options"] == "nosniff"


# --------------------------------------------------------------------------------------------------
# Bad requests, and others' sessions

@pytest.mark.parametrize("options", [{"idle_ms": 0}, {"idle_ms": "1"}, {"x": 1}, {"limits": {"wall_ms": 5}}, {"limits": {"memory_bytes": 1 << 50}},
                                     {"zygote": "none"}, {"env": {"": ""}}, {"max_checkpoints": 65}, []])
def test_options_that_are_refused(server, options):
    answer = server.ask("POST", "/v1/sessions", options)
    assert (answer.status, answer.error["code"]) == (400, "invalid_request")


@pytest.mark.parametrize("cell", [{}, {"code": 1}, {"code": "1", "context": "a/b"}, {"code": "1", "timeout_ms": 0}, {"code": "1", "silent": 1},
                                  {"code": "1", "user": 1}])
def test_cells_that_are_refused(session, cell):
    assert session.ask("POST", "/cells", cell).error["code"] == "invalid_request"


def test_too_many_cells_wait(server, session):
    held = [begin(server, "import time; time.sleep(60)", "application/json", session.path + "/cells") for _ in range(70)]
    await_that(lambda: session.ask("GET").json["waiting"] >= 64)
    answer = session.ask("POST", "/cells", {"code": "1"})
    assert (answer.status, answer.error["code"]) == (429, "queue_full")
    session.close()
    for connection in held:
        connection.close()


EVERYTHING = [("GET", "", None), ("DELETE", "", None), ("POST", "/cells", {"code": "1"}), ("POST", "/interrupt", None), ("POST", "/restart", None),
              ("POST", "/pause", None), ("POST", "/resume", None), ("POST", "/lifetime", {"idle_ms": 1000}),
              ("POST", "/checkpoints", None), ("POST", "/rollback", {"checkpoint": 1}), ("POST", "/branches", None), ("POST", "/switch", {"branch": 0}),
              ("DELETE", "/checkpoints/1", None), ("DELETE", "/branches/1", None), ("GET", "/files", None), ("GET", "/files/a", None),
              ("PUT", "/files/a", b"x"), ("DELETE", "/files/a", None)]


def test_sessions_of_others(tmp_path):
    """A foreign, a forged and an ended one get the same answer."""
    path = tmp_path / "tokens"
    path.write_text("".join("%s %s\n" % (name, hashlib.sha256(name.encode()).hexdigest()) for name in ("ada", "bob")))
    path.chmod(0o600)
    ada, bob = ({"Authorization": "Bearer " + name} for name in ("ada", "bob"))
    with Server(tmp_path, "--tokens", str(path), image="python") as server:
        session, ended = Session(server, ada), Session(server, bob)
        assert session.value("x = 5; x") == "5"
        ended.close()
        ids = (session.info["id"], NOBODYS, ended.info["id"], "x", "%2e%2e", session.info["id"][:-1])
        for method, where, body in EVERYTHING:
            answers = {(answer.status, answer.body) for answer in
                       (server.ask(method, "/v1/sessions/" + name + where, body, bob) for name in ids)}
            assert len(answers) == 1 and answers.pop()[0] == 404, (method, where)
            assert server.ask(method, session.path + where, body).status == 401
        assert server.ask("GET", "/v1/sessions", headers=bob).json == {"sessions": []}
        assert session.value("x") == "5"
        assert [one["id"] for one in server.ask("GET", "/v1/sessions", headers=ada).json["sessions"]] == [session.info["id"]]


def test_tokens_are_read_again(tmp_path):
    """SIGHUP: who is still in the file keeps what it has; a file with a fault changes nothing."""
    path = tmp_path / "tokens"

    def write(*names):
        path.write_text("".join("%s %s\n" % (name, hashlib.sha256(name.encode()).hexdigest()) for name in names))
        path.chmod(0o600)

    ada, bob, eve = ({"Authorization": "Bearer " + name} for name in ("ada", "bob", "eve"))
    def statuses():  # a worker that has not been asked may take up the file later
        return [server.ask("GET", "/v1/sessions", headers=who).status for who in (ada, bob, eve)]

    write("ada", "bob")
    with Server(tmp_path, "--tokens", str(path), image="python", warm="usual") as server:  # without a file of options
        session = Session(server, ada)
        session.cell("x = 5")
        write("eve", "ada")
        server.signal(signal.SIGHUP)
        server.await_event("reloaded")
        assert session.value("x") == "5"
        await_that(lambda: statuses() == [200, 401, 200])
        path.write_text("nonsense")
        server.signal(signal.SIGHUP)
        assert "line 1" in server.await_event("reload failed")["message"]
        assert session.value("x") == "5"
        await_that(lambda: statuses() == [200, 401, 200])


def test_pause(server):
    session = Session(server)
    assert session.value("x = 5; x") == "5"
    assert session.ask("POST", "/pause").json == {"paused": True}
    await_that(lambda: session.ask("GET").json["now"]["still"])
    assert session.ask("GET").json["now"]["state"] == "paused"
    assert session.ask("POST", "/resume").json == {"paused": False}
    assert session.value("x") == "5" and session.ask("GET").json["now"]["state"] == "idle"


def test_lifetime(server):
    session = Session(server)
    answer = session.ask("POST", "/lifetime", {"lifetime_ms": 3600000}).json
    assert (answer["lifetime_ms"], answer["idle_ms"]) == (3600000, 600000)
    for body, says in (({"idle_ms": 0}, "idle_ms"), ({"idle_ms": "1"}, "idle_ms"), ({"more": 1}, "more")):
        refused = session.ask("POST", "/lifetime", body)
        assert refused.status == 400 and says in refused.json["error"]["message"], refused.body
    session.ask("POST", "/lifetime", {"idle_ms": 200})
    await_that(lambda: session.ask("GET").status == 404)


def test_uploads_come_to_no_more_than_the_files_may(server):
    """Also where nothing of the session runs that would be counted; a cell counts what lies there."""
    session = Session(server, limits={"data_bytes": 1 << 20})
    session.cell("1")
    assert session.ask("PUT", "/files/a", bytes(700 << 10)).status == 201
    refused = session.ask("PUT", "/files/a", bytes(700 << 10))
    assert refused.status == 413 and "since the session's last cell" in refused.error["message"], refused.body
    assert session.cell("import os; os.listdir()")["verdict"] == "ok"
    assert session.ask("PUT", "/files/a", bytes(700 << 10)).status == 201


def test_session_that_is_idle_ends(server):
    session = Session(server, idle_ms=3000)
    session.cell("1")
    await_that(lambda: session.ask("GET").status == 404)
    assert session.ask("POST", "/cells", {"code": "1"}).status == 404


def test_end_of_the_server_with_open_sessions(tmp_path):
    with Server(tmp_path, "--drain", "1s", image="python") as server:
        sessions = [Session(server) for _ in range(3)]
        sessions[0].cell("x = 1")
        connection = begin(server, "import time; time.sleep(600)", "application/json", sessions[1].path + "/cells")
        sessions[0].server.await_metric("hutch_http_exchanges", 2)
        server.signal()
        assert json.loads(connection.getresponse().read())["verdict"] in ("killed", "error")
        assert server.await_end() == 0
