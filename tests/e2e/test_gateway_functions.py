"""Functions of hutch serve: POST /v1/functions/NAME, their files, what a reload does, and who gets to know which secret."""
import json
import os
import signal
import subprocess
import time

import pytest

import support
from gateway import Server, UnixConnection, await_that, parse

CALL = {"Content-Type": "application/vnd.hutch.call+json"}
ECHO = "def handler(event):\n    return event\n"
FILES = {
    "echo": ECHO,
    "random": "import os\ndef handler(event):\n    return os.urandom(8).hex()\n",
    "env": "import os\ndef handler(event):\n    return {'secret': os.environ.get(event), 'all': sorted(os.environ)}\n",
    "prints": "import sys\ndef handler(event):\n    print('{\"value\":1}'); print('err', file=sys.stderr)\n"
              "    sys.stdout.buffer.write(b'HUTCHRV1\\x01\\0\\0\\x002'); return 'mine'\n",
    "fails": "def handler(event):\n    return 1 / event\n",
    "sleeps": "import time\ndef handler(event):\n    open('/tmp/begun', 'w'); time.sleep(event); return 'slept'\n",
    "talks": "import time\ndef handler(event):\n    print('begun', flush=True); time.sleep(event)\n",
    "later": "import asyncio\nasync def handler(event):\n    await asyncio.sleep(0)\n    return ['async', event]\n",
    "leaves": "import os\ndef handler(event):\n    open('/tmp/left', 'w').close(); open('left', 'w').close()\n"
              "    return [os.listdir('/tmp'), os.listdir('.')]\n",
    "exits": "import os\ndef handler(event):\n    os._exit(0)\n",
}


def write(tmp_path, **files):
    """The options of a server with these."""
    words = []
    for name, text in files.items():
        path = tmp_path / (name + ".py")
        path.write_text(text)
        words += ["--function", "%s=%s" % (name, path)]
    return words


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    support.need("userns")
    folder = tmp_path_factory.mktemp("functions")
    with Server(folder, "--jobs", "4", *write(folder, **FILES)) as one:
        yield one


def call(server, name, event=None, **more):
    answer = server.ask("POST", "/v1/functions/" + name, event if event is not None else b"null", **more)
    assert answer.status == 200, answer.body
    support.check_result(answer.json)
    return answer.json


VALUES = [None, False, 0, -5, 12345678901234567890123, 1.5, "", "ä\u0000\U0001f600", [], {}, {"a": [{"b": None}]}, [[[[[[[[1]]]]]]]]]


def test_value_kinds(server):
    for value in VALUES:
        result = call(server, "echo", value)
        assert (result["verdict"], result["value"], result["error"]) == ("ok", value, None)
    big = server.ask("POST", "/v1/functions/echo", b'[1e3, 123456789012345678901234567890, "\\u00e4", 0.1]')
    assert b'"value":[1000.0,123456789012345678901234567890,"\xc3\xa4",0.1]' in big.body


def test_list(server):
    listed = server.ask("GET", "/v1/functions").json["functions"]
    assert [entry["name"] for entry in listed] == sorted(FILES)
    assert {entry["state"] for entry in listed} == {"ready"} and {entry["error"] for entry in listed} == {None}


def test_asynchronous(server):
    assert call(server, "later", {"x": 1})["value"] == ["async", {"x": 1}]


def test_what_it_prints_is_not_its_value(server):
    result = call(server, "prints")
    assert (result["value"], result["stderr"]) == ("mine", "err\n")
    assert result["stdout"].startswith('{"value":1}\n')


def test_errors(server):
    result = call(server, "fails", 0)
    assert (result["verdict"], result["value"]) == ("error", None)
    assert (result["error"]["name"], result["error"]["value"]) == ("ZeroDivisionError", "division by zero")
    assert 'File "fails.py", line 2, in handler\n    return 1 / event\n' in result["error"]["traceback"]
    result = call(server, "exits")
    assert (result["verdict"], result["value"], result["error"]) == ("error", None, None) and "before the handler" in result["message"]


def test_nothing_is_left_for_the_next_call(server):
    for _ in range(3):
        assert call(server, "leaves")["value"] == [["left"], ["left"]]


def test_key_gets_the_first_answer(server):
    """As for runs; what is no repetition is refused: another event, another function, the same bytes as a call."""
    def keyed(name, event, key="one", **headers):
        return server.ask("POST", "/v1/functions/" + name, event, {"Content-Type": "application/json", "Idempotency-Key": key, **headers})

    first = keyed("random", b"1")
    assert first.status == 200 and first.json["verdict"] == "ok" and keyed("random", b"1").body == first.body
    assert keyed("random", b"1", "two").json["value"] != first.json["value"]
    for name, event, headers in (("random", b"2", {}), ("echo", b"1", {}), ("random", b"1", {"Content-Type": "application/vnd.hutch.call+json"})):
        answer = keyed(name, event, **headers)
        assert (answer.status, answer.error["code"]) == (422, "idempotency_key_reused"), (name, answer.body)
    answer = server.ask("POST", "/v1/run", b"1", {"Content-Type": "application/json", "Idempotency-Key": "one"})
    assert (answer.status, answer.error["code"]) == (422, "idempotency_key_reused")
    assert keyed("nobodys", b"1", "three").status == 404 and keyed("n" * 5000, b"1", "three").status == 404
    assert keyed("random", b"{", "three").status == 400 and keyed("random", b"3", "three").json["verdict"] == "ok"
    assert keyed("random", b"1", "a b").error["code"] == "invalid_request"


def test_secrets_are_of_one_call(server):
    body = {"event": "SECRET", "env": {"SECRET": "s3cr3t", "OTHER": "x\ny=z"}}
    result = call(server, "env", body, headers=CALL)
    assert result["value"]["secret"] == "s3cr3t" and "OTHER" in result["value"]["all"]
    for _ in range(4):
        found = call(server, "env", "SECRET")["value"]
        assert found["secret"] is None and not {"SECRET", "OTHER"} & set(found["all"])
    assert not any("s3cr3t" in json.dumps(event) for event in server.events)


def test_an_event_is_never_taken_for_a_call(server):
    body = {"event": 5, "env": {"A": "b"}}
    assert call(server, "echo", body)["value"] == body
    assert call(server, "echo", body, headers=CALL)["value"] == 5
    assert call(server, "echo", {}, headers=CALL)["value"] is None
    assert call(server, "echo", {"event": {"env": {"LANG": "x"}}}, headers=CALL)["value"] == {"env": {"LANG": "x"}}


def test_limits_of_a_call(server):
    result = call(server, "sleeps", {"event": 100, "limits": {"wall_ms": 300}}, headers=CALL)
    assert (result["verdict"], result["value"]) == ("timeout", None)
    answer = server.ask("POST", "/v1/functions/echo", {"limits": {"wall_ms": 1 << 50}}, headers=CALL)
    assert answer.status == 400 and "above the policy's" in answer.error["message"]


BAD_BODIES = {
    "empty": (b"", None, "the body is empty"),
    "no JSON": (b"{", None, "line 1, column"),
    "two values": (b"1 2", None, "line 1"),
    "not a number": (b"NaN", None, "line 1"),
    "UTF-8": (b'"\xff"', None, "UTF-8"),
    "half a pair": (b'"\\ud800"', None, "line 1"),
    "deep": (b"[" * 101 + b"]" * 101, None, "line 1"),
    "call: no object": (b"[]", CALL, "expected an object"),
    "call: escaped key": (b'{"\\u0065vent": 1}', CALL, "without escapes"),
    "call: unknown": (b'{"event": 1, "evnt": 2}', CALL, "$.evnt: unknown key"),
    "call: twice": (b'{"event": 1, "event": 2}', CALL, "$.event"),
    "call: env": (b'{"env": []}', CALL, "$.env: expected an object"),
    "call: env value": (b'{"env": {"A": 1}}', CALL, "$.env.A: expected a string"),
    "call: env name": (b'{"env": {"": "x"}}', CALL, "env"),
    "call: env name with =": (b'{"env": {"A=B": "x"}}', CALL, "env"),
    "call: env NUL": (b'{"env": {"A": "\\u0000"}}', CALL, "line 1"),
    "call: locale": (b'{"env": {"LANG": "C"}}', CALL, "is there already"),
    "call: limit": (b'{"limits": {"wall": 1}}', CALL, "$.limits.wall: unknown key"),
}


@pytest.mark.parametrize("label", BAD_BODIES)
def test_bad_bodies(server, label):
    body, headers, words = BAD_BODIES[label]
    answer = server.ask("POST", "/v1/functions/echo", body, headers=headers)
    assert (answer.status, answer.error["code"]) == (400, "invalid_request") and words in answer.error["message"]


def test_other_bad_requests(server):
    assert server.ask("POST", "/v1/functions/nobody", 1).error["code"] == "not_found"
    for name in ("..", "%2e%2e", "echo%00", "ECHO", "echo.py", "%ff", "x" * 300):
        assert server.ask("POST", "/v1/functions/" + name, 1).status in (400, 404)
    assert server.ask("GET", "/v1/functions/echo").error["code"] == "method_not_allowed"
    for kind in ("text/plain", "application/vnd.hutch.call+jsonx", "application/x-www-form-urlencoded", "multipart/form-data"):
        assert server.ask("POST", "/v1/functions/echo", b"1", headers={"Content-Type": kind}).error["code"] == "unsupported_media_type"
    large = b'"' + b"x" * (4 << 20) + b'"'
    assert server.ask("POST", "/v1/functions/echo", large).error["code"] == "body_too_large"
    head = b"POST /v1/functions/echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99999999\r\n\r\n"
    assert parse(server.raw(head)).error["code"] == "body_too_large"
    assert call(server, "echo", 1)["value"] == 1


def test_a_client_that_leaves_ends_its_call(server):
    own = UnixConnection(server.path)
    own.request("POST", "/v1/functions/sleeps", b"100", {"Content-Type": "application/json"})
    state = lambda: {entry["name"]: entry for entry in server.ask("GET", "/v1/functions").json["functions"]}["sleeps"]
    await_that(lambda: state()["calls"] == 1)
    own.close()
    await_that(lambda: state()["calls"] == 0)


@pytest.mark.parametrize("accept", ["text/event-stream", "application/x-ndjson"])
def test_as_it_comes(server, accept):
    """What a handler prints, while it goes on, and then its value. Who leaves ends the call."""
    answer = server.ask("POST", "/v1/functions/prints", b"1", {"Content-Type": "application/json", "Accept": accept})
    assert answer.status == 200 and answer.headers["Content-Type"] == accept
    if accept == "application/x-ndjson":
        events = [(line["event"], line["data"]) for line in map(json.loads, answer.body.splitlines())]
    else:
        pairs = [piece.split("\n") for piece in answer.body.decode().split("\n\n")[:-1]]
        events = [(event[len("event: "):], json.loads(data[len("data: "):])) for event, data in pairs]
    assert {name for name, _ in events[:-1]} == {"output"} and events[-1][0] == "result"
    written = {stream: "".join(data.get("text", "") for _, data in events[:-1] if data["stream"] == stream) for stream in ("stdout", "stderr")}
    assert written["stderr"] == "err\n" and written["stdout"].startswith('{"value":1}\n')
    result = events[-1][1]
    assert (result["verdict"], result["value"], result["stdout"], result["stderr"]) == ("ok", "mine", "", "")

    own = UnixConnection(server.path)
    own.request("POST", "/v1/functions/talks", b"100", {"Content-Type": "application/json", "Accept": accept})
    stream = own.getresponse()
    assert b"begun" in b"".join(stream.readline() for _ in range(2 if accept == "text/event-stream" else 1))
    own.sock.close()
    stream.close()
    own.close()
    await_that(lambda: [entry["calls"] for entry in server.ask("GET", "/v1/functions").json["functions"] if entry["name"] == "talks"] == [0])


# --- beginning

BAD_STARTS = {
    "syntax": ("def handler(:\n", "cannot be imported: SyntaxError"),
    "module": ("import nothing_such\n", "No module named 'nothing_such' (f.py, line 1)"),
    "no handler": ("x = 1\n", "has no handler"),
    "UTF-8": (b"x = '\xff'\n", "not UTF-8"),
    "large": ("#" * (128 << 10), "can have"),
}


@pytest.mark.parametrize("words", (("--check",), ()))
@pytest.mark.parametrize("label", BAD_STARTS)
def test_a_server_that_refuses_to_start(tmp_path, label, words):
    text, says = BAD_STARTS[label]
    path = tmp_path / "f.py"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    support.refused("serve", "--quiet", "--image", "minimal", "--listen", "unix:" + str(tmp_path / "s"), "--function", "f=%s" % path,
                    *words, says=says)


BAD_OPTIONS = {
    "no file": (["f=/nothing/f.py"], "/nothing/f.py"),
    "directory": (["f=/"], "not a regular file"),
    "no equals": (["f"], "is not NAME=FILE"),
    "no name": (["=f.py"], "1 to 64 letters"),
    "name": (["a b=f.py"], "1 to 64 letters"),
    "path as name": (["../f=f.py"], "1 to 64 letters"),
    "twice": (["f=/dev/null", "f=/dev/null"], "there twice"),
    "too many": (["f%d=/dev/null" % i for i in range(33)], "there can be 32"),
}


@pytest.mark.parametrize("label", BAD_OPTIONS)
def test_bad_options(tmp_path, label):
    words, says = BAD_OPTIONS[label]
    support.refused("serve", "--check", "--image", "minimal", *[part for word in words for part in ("--function", word)], says=says)


def test_check_of_good_ones(tmp_path):
    path = tmp_path / "echo.py"
    path.write_text(ECHO)
    config = tmp_path / "hutch.json"
    config.write_text(json.dumps({"functions": {"a": str(path), "b-2": {"file": str(path), "min": 1, "max": 2}}}))
    done = support.hutch("serve", "--image", "minimal", "--config", str(config), "--check")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.decode().splitlines()
    assert "function: a=%s" % path in lines and "function: b-2=%s" % path in lines


BAD_CONFIGS = {
    "no object": ('{"functions": []}', "$.functions: expected an object"),
    "name": ('{"functions": {"a b": "x"}}', "$.functions[\"a b\"]"),
    "number": ('{"functions": {"a": 1}}', "$.functions.a: expected"),
    "empty": ('{"functions": {"a": ""}}', "$.functions.a: there is no path"),
    "unknown": ('{"functions": {"a": {"file": "x", "mim": 1}}}', "$.functions.a.mim: unknown key"),
    "no file": ('{"functions": {"a": {"min": 1}}}', "file"),
    "twice": ('{"functions": {"a": "x", "a": "y"}}', "$.functions.a"),
    "twice at all": ('{"functions": {}, "functions": {}}', "$.functions"),
    "bounds": ('{"functions": {"a": {"file": "x", "min": 5, "max": 2}}}', "$.functions.a: min is above max"),
    "as an option": ('{"function": ["a=b"]}', "$.function: unknown key"),
}


@pytest.mark.parametrize("label", BAD_CONFIGS)
def test_bad_configurations(tmp_path, label):
    text, words = BAD_CONFIGS[label]
    path = tmp_path / "hutch.json"
    path.write_text(text)
    support.refused("serve", "--image", "minimal", "--check", "--config", str(path), says=words)


# --- reload

def hang_up(server, n):
    """The n-th."""
    server.signal(signal.SIGHUP)
    await_that(lambda: sum(event["event"] in ("reloaded", "reload failed") for event in server.events) >= n)


def states(server):
    return {entry["name"]: (entry["state"], entry["error"]) for entry in server.ask("GET", "/v1/functions").json["functions"]}


def test_reload_of_a_file(tmp_path):
    slow = "import time\ndef handler(event):\n    time.sleep(event); return 'old'\n"
    with Server(tmp_path, "--workers", "1", *write(tmp_path, f=slow, kept=ECHO)) as server:
        own = UnixConnection(server.path)
        own.request("POST", "/v1/functions/f", b"4", {"Content-Type": "application/json"})
        await_that(lambda: any(entry["calls"] for entry in server.ask("GET", "/v1/functions").json["functions"]))
        write(tmp_path, f="def handler(event): return 'new'\n")
        n = sum(event["event"] == "function ready" for event in server.events)
        hang_up(server, 1)
        await_that(lambda: sum(event["event"] == "function ready" for event in server.events) == n + 1)
        assert call(server, "f", 0)["value"] == "new" and call(server, "kept", 3)["value"] == 3
        assert json.loads(own.getresponse().read())["value"] == "old"

        write(tmp_path, f="import nothing_such\n")
        hang_up(server, 2)
        failed = server.await_event("function failed")
        assert "No module named 'nothing_such'" in failed["message"]
        assert call(server, "f", 0)["value"] == "new"
        state, error = states(server)["f"]
        assert state == "ready" and error == failed["message"]

        os.unlink(tmp_path / "f.py")
        hang_up(server, 3)
        server.await_event("function failed", lambda event: "read '" in event["message"])
        assert call(server, "f", 0)["value"] == "new"
        write(tmp_path, f="def handler(event): return 'third'\n")
        hang_up(server, 4)
        await_that(lambda: call(server, "f", 0)["value"] == "third")
        assert states(server)["f"] == ("ready", None)


def test_reload_of_the_configuration(tmp_path):
    write(tmp_path, a=ECHO, b="def handler(event): return 'b'\n", bad="1 / 0\n")
    config = tmp_path / "hutch.json"

    def configure(names, **more):
        config.write_text(json.dumps({"functions": {name: str(tmp_path / (name + ".py")) for name in names}, **more}))

    configure(["a"], jobs=2)
    with Server(tmp_path, "--config", str(config)) as server:
        session = server.ask("POST", "/v1/sessions", {"no_interpreter": True}).json["id"]
        assert list(states(server)) == ["a"]
        configure(["b", "bad"], jobs=3, **{"max-body": 1000})
        hang_up(server, 1)
        assert server.await_event("restart needed")["options"] == "jobs"
        await_that(lambda: states(server).get("b") == ("ready", None) and states(server)["bad"][0] == "failed")
        assert call(server, "b")["value"] == "b"
        assert server.ask("POST", "/v1/functions/a", 1).error["code"] == "not_found"
        failed = server.ask("POST", "/v1/functions/bad", 1)
        assert (failed.status, failed.error["code"]) == (503, "function_failed") and "ZeroDivisionError" in failed.error["message"]
        head = b"POST /v1/functions/b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1001\r\n\r\n"
        assert parse(server.raw(head)).error["code"] == "body_too_large"
        assert server.ask("GET", "/v1/sessions/" + session).status == 200

        config.write_text('{"functions": {"b": 1}}')
        hang_up(server, 2)
        assert "$.functions.b" in server.await_event("reload failed")["message"]
        assert call(server, "b")["value"] == "b"
        configure([])
        hang_up(server, 3)
        await_that(lambda: states(server) == {})
        assert server.ask("GET", "/v1/sessions/" + session).status == 200


def test_reload_again_and_again(tmp_path):
    """Faster than files can be imported, with calls all the time: each is answered by one file or the other."""
    with Server(tmp_path, *write(tmp_path, f="def handler(event): return 0\n"), warm="usual") as server:  # without a file of options
        for n in range(1, 8):
            write(tmp_path, f="def handler(event): return %d\n" % n)
            server.signal(signal.SIGHUP)
            assert call(server, "f")["value"] in range(n + 1)
            time.sleep(0.05)
        await_that(lambda: call(server, "f")["value"] == 7)


def test_terminated_while_it_imports(tmp_path):
    server = Server(tmp_path, *write(tmp_path, f="import time; time.sleep(100)\n" + ECHO), wait=None)
    await_that(lambda: os.path.exists(server.path))  # about when it begins to take signals
    time.sleep(1)
    server.signal()
    assert server.await_end() == 0


def test_tokens(tmp_path):
    import hashlib
    tokens = tmp_path / "tokens"
    tokens.write_text("ada %s\n" % hashlib.sha256(b"a" * 40).hexdigest())
    with Server(tmp_path, "--tokens", str(tokens), *write(tmp_path, f=ECHO)) as server:
        for method, path in (("GET", "/v1/functions"), ("POST", "/v1/functions/f"), ("POST", "/v1/functions/nobody")):
            assert server.ask(method, path, 1 if method == "POST" else None).status == 401
        headers = {"Authorization": "Bearer " + "a" * 40}
        assert server.ask("POST", "/v1/functions/f", 5, headers=headers).json["value"] == 5


def test_the_documented_commands(tmp_path, server):
    done = subprocess.run(["curl", "-s", "--unix-socket", server.path, "http://localhost/v1/functions/echo", "-H",
                           "Content-Type: application/json", "-d", '{"a": 1}'], capture_output=True, check=True)
    assert json.loads(done.stdout)["value"] == {"a": 1}
