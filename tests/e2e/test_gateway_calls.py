"""What the code of a cell asks its caller through `hutch serve`: calls and input(), in the cell's stream; and what a shell can tell."""
import json
import os
import threading

import pytest

import gateway
from gateway import Server, UnixConnection, bearer, tokens_file

NDJSON = "application/x-ndjson"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Server(tmp_path_factory.mktemp("calls"), "--request-timeout", "120s", image="python") as started:
        yield started


class Session:
    def __init__(self, server, headers=None):
        self.server, self.headers = server, headers or {}
        self.path = "/v1/sessions/" + server.ask("POST", "/v1/sessions", {}, self.headers).json["id"]

    def ask(self, path, body=None, method="POST", headers=None):
        return self.server.ask(method, self.path + path, body, {**self.headers, **(headers or {})})

    def begin(self, code, accept=NDJSON, **more):
        """The events, as (name, data)."""
        connection = UnixConnection(self.server.path)
        connection.request("POST", self.path + "/cells", json.dumps({"code": code, **more}),
                           {"Content-Type": "application/json", "Accept": accept, **self.headers})
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        for line in answer:
            event = json.loads(line)
            yield event["event"], event["data"]
        connection.close()

    def run(self, code, tools, **more):
        """The result; @tools answer its calls: ("value" or "error", JSON)."""
        for event, data in self.begin(code, calls=list(tools), **more):
            if event == "call":
                key, value = tools[data["name"]](*data["arguments"]["args"], **data["arguments"]["kwargs"])
                answer = self.ask("/calls/%d" % data["id"], {key: value})
                assert answer.status == 204, answer.body
            elif event == "result":
                return data
        raise AssertionError("no result came")


@pytest.fixture
def session(server):
    one = Session(server)
    yield one
    assert server.ask("DELETE", one.path).status == 204
    server.await_metric("hutch_http_exchanges", 1)


def printed(result):
    return "".join(output.get("text", "") for output in result["outputs"])


def test_calls_and_their_answers(session):
    """Arguments and values of all kinds, and an error that is caught where it was called."""
    deep = {"a": [1, None, True, 1.5, "ü\0\U0001f600", {"b": []}]}
    seen = []

    def tool(*args, **kwargs):
        seen.append((list(args), kwargs))
        return ("value", deep) if len(seen) == 1 else ("error", "no: ü")
    code = "r = tool(1, 'ü', [None], k={'x': 2.5})\nprint(r == %r)\ntry:\n    tool()\nexcept Exception as e:\n    print(e)" % (deep,)
    result = session.run(code, {"tool": tool})
    assert result["verdict"] == "ok" and printed(result) == "True\nno: ü\n", result
    assert seen == [([1, "ü", [None]], {"k": {"x": 2.5}}), ([], {})]


def test_large_values(session):
    text = os.urandom(100000).hex()
    result = session.run("s = tool('%s')\nprint(len(s), s[-20:])" % text[:200000], {"tool": lambda s: ("value", s * 15)})
    assert printed(result) == "%d %s\n" % (15 * 200000, text[-20:])
    refused = []

    def too_large(*_):
        answer = session.ask("/calls/%d" % number[0], {"value": "x" * (5 << 20)})
        refused.append((answer.status, answer.error["code"]))
        return "value", 1
    number = []
    for event, data in session.begin("print(tool())", calls=["tool"]):
        if event == "call":
            number.append(data["id"])
            too_large()
            assert session.ask("/calls/%d" % data["id"], {"value": 1}).status == 204
    assert refused == [(400, "invalid_request")]


def test_several_at_once(session):
    """Answered in another order than asked."""
    code = ("import asyncio\nasync def main():\n    print(await asyncio.gather(*[tool(i) for i in range(5)]))\nawait main()")
    waiting = []
    for event, data in session.begin(code, calls=[{"name": "tool", "async": True}]):
        if event == "call":
            waiting.append((data["id"], data["arguments"]["args"][0]))
            if len(waiting) == 5:
                for call, i in reversed(waiting):
                    assert session.ask("/calls/%d" % call, {"value": i * 10}).status == 204
        elif event == "result":
            assert printed(data) == "[0, 10, 20, 30, 40]\n", data


def test_answers_that_nobody_waits_for(session):
    """Before, twice and after; and a call that is none."""
    for number in ("1", "999", "x", "-1", "18446744073709551615", "99999999999999999999"):
        assert session.ask("/calls/" + number, {"value": 1}).status == 404, number
    for event, data in session.begin("tool()", calls=["tool"]):
        if event == "call":
            path = "/calls/%d" % data["id"]
            assert session.ask(path, {"value": 1}).status == 204 and session.ask(path, {"value": 2}).status == 404
    answer = session.ask(path, {"value": 1})
    assert (answer.error["code"], answer.error["message"]) == ("not_found", "no call %d waits for an answer" % int(path.rpartition("/")[2]))


@pytest.mark.parametrize("body", [b"", b"[]", b"1", b"{}", b'{"value": 1, "error": 2}', b'{"valu\\u0065": 1}', b'{"other": 1}', b'{"value": 1',
                                  b'{"value": NaN}', b'{"value": "\xff"}', b'{"value": ' + b"[" * 200 + b"]" * 200 + b"}"])
def test_answers_that_are_refused(session, body):
    answered = False
    for event, data in session.begin("print(tool())", calls=["tool"]):
        if event == "call":
            answer = session.ask("/calls/%d" % data["id"], body)
            assert (answer.status, answer.error["code"]) == (400, "invalid_request"), answer.body
            answered = session.ask("/calls/%d" % data["id"], {"value": 7}).status == 204
        elif event == "result":
            assert printed(data) == "7\n"
    assert answered


@pytest.mark.parametrize("calls", [[""], ["1a"], ["a b"], ["ü"], ["a"] * 65, [{"name": "a", "async": 1}], [{"async": True}], [1], "a", {"a": 1}])
def test_names_that_are_refused(session, calls):
    answer = session.ask("/cells", {"code": "1", "calls": calls}, headers={"Accept": NDJSON})
    assert (answer.status, answer.error["code"]) == (400, "invalid_request"), answer.body


@pytest.mark.parametrize("more", [{"calls": ["a"]}, {"allow_input": True}])
def test_an_answer_in_one_piece_cannot_ask(session, more):
    answer = session.ask("/cells", {"code": "1", **more})
    assert (answer.status, answer.error["code"]) == (400, "invalid_request") and "stream" in answer.error["message"]
    assert printed(session.ask("/cells", {"code": "print(1)"}).json) == "1\n"


def test_a_call_that_is_not_answered(session):
    """The cell's time goes on."""
    events = list(session.begin("tool()", calls=["tool"], timeout_ms=4000))
    assert [event for event, _ in events] == ["call", "error", "result"] and events[-1][1]["verdict"] == "timeout"


def test_a_client_that_leaves_while_it_is_asked(session):
    events = session.begin("tool()", calls=["tool"])
    call = next(events)[1]["id"]
    events.close()
    assert printed(session.ask("/cells", {"code": "print(2)"}).json) == "2\n"
    assert session.ask("/calls/%d" % call, {"value": 1}).status == 404


def test_another_tokens_calls(tmp_path):
    path = tokens_file(tmp_path, ada="secret of ada", bob="secret of bob")
    with Server(tmp_path, "--tokens", path, image="python") as server:
        ada, bob = Session(server, bearer("secret of ada")), bearer("secret of bob")
        for event, data in ada.begin("print(tool(), input())", calls=["tool"], allow_input=True):
            if event == "call":
                for headers, status in ((bob, 404), ({"Authorization": ""}, 401)):
                    assert ada.ask("/calls/%d" % data["id"], {"value": 1}, headers=headers).status == status
                assert ada.ask("/calls/%d" % data["id"], {"value": 3}).status == 204
            elif event == "input":
                assert ada.ask("/input", {"text": "x"}, headers=bob).status == 404
                assert ada.ask("/input", {"text": "y"}).status == 204
            elif event == "result":
                assert printed(data) == "3 y\n"


def test_input(session):
    code = "import getpass\nprint(input('name? '))\nprint(getpass.getpass('word? '))\ninput()"
    asked, lines = [], ["Ada ü", "pass", None]
    for event, data in session.begin(code, allow_input=True):
        if event == "input":
            asked.append((data["prompt"], data["password"]))
            assert session.ask("/input", {"text": lines[len(asked) - 1]}).status == 204
        elif event == "result":
            assert "Ada ü\npass\n" in printed(data) and data["error"]["name"] == "EOFError"
    assert asked == [("name? ", False), ("word? ", True), ("", False)]
    nobody = session.ask("/input", {"text": "x"})
    assert (nobody.status, nobody.error["code"]) == (409, "conflict")
    for body in ({}, {"text": 1}, {"text": "a", "x": 1}, b"null"):
        assert session.ask("/input", body).error["code"] == "invalid_request"


def test_server_sent_events(session):
    """The same in the other form of a stream."""
    connection = UnixConnection(session.server.path)
    connection.request("POST", session.path + "/cells", json.dumps({"code": "print(tool())", "calls": ["tool"]}),
                       {"Content-Type": "application/json", "Accept": "text/event-stream"})
    answer = connection.getresponse()
    seen = b""
    while b"event: call\n" not in seen or not seen.endswith(b"\n\n"):
        seen += answer.readline()
    data = json.loads(seen.partition(b"event: call\ndata: ")[2].partition(b"\n")[0])
    assert data == {"id": data["id"], "name": "tool", "arguments": {"args": [], "kwargs": {}}}
    assert session.ask("/calls/%d" % data["id"], {"value": "v"}).status == 204
    assert b'"text":"v\\n"' in answer.read()
    connection.close()


def test_what_a_cell_can_have(session):
    result = session.ask("/cells", {"code": "import os\n[os.environ['A'], os.getcwd()]", "env": {"A": "ü"}, "cwd": "/tmp", "wants_value": True}).json
    assert result["value_json"] == ["ü", "/tmp"]
    assert session.ask("/cells", {"code": "'A' in os.environ"}).json["value"] == "False"
    assert session.ask("/cells", {"code": "1", "cwd": "/none"}).json["verdict"] == "error"
    assert session.ask("/cells", {"code": "1", "cwd": "tmp"}).error["code"] == "invalid_request"
    assert session.ask("/cells", {"code": "1", "env": {"A=": "b"}}).error["code"] == "invalid_request"
    results = []
    first = threading.Thread(target=lambda: results.append(session.ask("/cells", {"code": "import time; time.sleep(6); 1/0", "stop_on_error": True}).json))
    first.start()
    gateway.await_that(lambda: session.ask("", method="GET").json["now"]["state"] == "busy")
    assert session.ask("/cells", {"code": "2"}).json["verdict"] == "killed"
    first.join()
    assert results[0]["error"]["name"] == "ZeroDivisionError"


def test_contexts(session):
    assert session.ask("/cells", {"code": "x = 1", "context": "b"}).json["verdict"] == "ok"
    assert session.ask("/contexts/b/reset").status == 200
    assert session.ask("/cells", {"code": "x", "context": "b"}).json["error"]["name"] == "NameError"
    assert session.ask("/contexts/b", method="DELETE").status == 200
    assert session.ask("/contexts/b", method="DELETE").error["code"] == "conflict"
    assert session.ask("/contexts/main", method="DELETE").error["code"] == "invalid_request"
    assert session.ask("/contexts/a%20b/reset").error["code"] == "invalid_request"


def test_questions_to_the_shell(session):
    session.ask("/cells", {"code": "answer = 42"})
    found = session.ask("/complete", {"code": "print(answ)", "cursor": 10}).json
    assert "answer" in found["matches"] and (found["cursor_start"], found["cursor_end"]) == (6, 10)
    assert "42" in session.ask("/inspect", {"code": "answer", "detail": 1}).json["data"]["text/plain"]
    assert session.ask("/is_complete", {"code": "def f():"}).json == {"status": "incomplete", "indent": "    "}
    assert session.ask("/is_complete", {"code": "f()"}).json["status"] == "complete"
    for body in ({}, {"code": 1}, {"code": "a", "cursor": -1}, {"code": "a", "detail": 2}, {"code": "a", "timeout_ms": 0},
                 {"code": "a", "x": 1}, {"code": "x" * (257 << 10)}):
        assert session.ask("/complete", body).error["code"] == "invalid_request"
    assert session.ask("/complete", {"code": "a", "context": "none"}).error["code"] == "conflict"
