"""The native API of hutch serve beyond runs and sessions: what can be asked for, and the document that says how."""
import concurrent.futures
import hashlib
import json
import os
import re

import jsonschema
import pytest

import gateway
import openapi
import support
from gateway import Server

LIMITS = ["wall_ms", "cpu_ms", "memory_bytes", "pids", "cpus", "output_bytes", "data_bytes", "data_files", "file_bytes"]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Server(tmp_path_factory.mktemp("gateway"), "--memory", "200m", "--pids-limit", "17") as started:
        yield started


def test_languages(server):
    answer = server.ask("GET", "/v1/languages")
    assert answer.status == 200
    languages = {language["name"]: language["ending"] for language in answer.json["languages"]}
    assert languages["python"] == ".py" and languages["sh"] == ".sh" and "cobol" not in languages
    for name in languages:  # each can be run
        assert server.run("", language=name)["verdict"] == "ok", name
    for name in {"js", "perl", "ruby", "lua", "r", "bash"} - set(languages):
        assert server.run("", language=name)["exit_code"] == 127, name


def test_policies(server):
    policies = server.ask("GET", "/v1/policies").json["policies"]
    assert [policy["name"] for policy in policies] == ["default"]
    limits = policies[0]["limits"]
    assert list(limits) == LIMITS
    assert (limits["memory_bytes"], limits["pids"]) == (200 << 20, 17)
    # They are what may be asked for, and no more.
    for name, value in limits.items():
        if value:
            assert server.ask("POST", "/v1/run", {"code": "", "limits": {name: value}}).status == 200
            answer = server.ask("POST", "/v1/run", {"code": "", "limits": {name: value + 1}})
            assert answer.status == 400 and answer.error["message"] == "%s of %d is above the policy's %d" % (name, value + 1, value), answer.body


def test_variables_that_follow_from_limits(server):
    """Of the policy that the server has made of its options, and of what a request asks for."""
    code = "import os; print(os.environ['JAVA_TOOL_OPTIONS'].split()[0], os.environ['GOTMPDIR'])"
    for more, want in ({}, "-Xmx100m"), ({"limits": {"memory_bytes": 100 << 20}}, "-Xmx50m"), ({"env": {"JAVA_TOOL_OPTIONS": "-Xmx1m"}}, "-Xmx1m"):
        assert server.run(code, **more)["stdout"] == want + " /mnt/data\n"
        if "env" not in more:
            assert server.run('echo "${JAVA_TOOL_OPTIONS%% *}"', language="sh", **more)["stdout"] == want + "\n"


def test_message_names_a_limit(server):
    result = server.run("import threading, time\nfor _ in range(40): threading.Thread(target=time.sleep, args=(9,), daemon=True).start()")
    assert result["verdict"] == "error" and result["message"].startswith("the limit 'pids' (17) "), result


def test_policy_of_a_path(tmp_path):
    path = tmp_path / "tight.json"
    path.write_text('{"schema": 1, "extends": "default", "limits": {"pids": 9}}')
    with Server(tmp_path, "--policy", str(path)) as server:
        policy = server.ask("GET", "/v1/policies").json["policies"][0]
        assert (policy["name"], policy["limits"]["pids"]) == ("tight", 9)


# --------------------------------------------------------------------------------------------------
# The OpenAPI document

def routes():
    """Method and path of each row of the native API."""
    with open(os.path.join(support.TREE, "runtime", "gateway", "routes.c"), encoding="utf-8") as file:
        text = file.read()
    prefixes = {"": "", "SESSION": re.search(r'#define SESSION "([^"]+)"', text)[1]}
    prefixes["PROCESS"] = prefixes["SESSION"] + re.search(r'#define PROCESS SESSION "([^"]+)"', text)[1]
    rows = re.findall(r'^    \{ "(\w+)", (SESSION|PROCESS)? ?(?:"([^"]*)")?,', text, re.MULTILINE)
    assert len(rows) > 20
    return {(method, prefixes[name] + path.replace("*", "")) for method, name, path in rows}


def test_document_has_what_there_is(server):
    answer = server.ask("GET", "/openapi.json")
    document = answer.json
    assert document == openapi.document() and document["openapi"].startswith("3.1.")
    listed = {(method.upper(), path) for path, item in document["paths"].items() for method in openapi.METHODS & set(item)}
    assert listed == routes()


def test_document_is_sound():
    document = openapi.document()
    text = json.dumps(document)
    for name in re.findall(r'"\$ref": "#/components/(\w+/\w+)"', text):
        kind, _, which = name.partition("/")
        assert which in document["components"][kind], name
    for name, schema in document["components"]["schemas"].items():
        jsonschema.Draft202012Validator.check_schema(schema)
        assert '"#/components/schemas/%s"' % name in text, "%s is not used" % name
    for path, item in document["paths"].items():
        assert re.findall(r"\{(\w+)\}", path) == [parameter["name"] for parameter in item.get("parameters", []) if parameter["in"] == "path"], path
        for method in openapi.METHODS & set(item):
            assert item[method]["summary"] and "default" in item[method]["responses"], path


def test_document_needs_no_token(tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text("ada " + 64 * "0" + "\n")
    tokens.chmod(0o600)
    with Server(tmp_path, "--tokens", str(tokens)) as server:
        assert server.ask("GET", "/openapi.json").status == 200
        assert server.ask("GET", "/v1/languages").status == 401


def test_check_finds_what_is_not_in_the_document(server):
    answer = server.ask("GET", "/v1/languages")
    for body in (b'{"languages":[],"more":1}', b'{"languages":{}}', b"{}"):
        answer.body = body
        with pytest.raises(AssertionError):
            openapi.check("GET", "/v1/languages", None, None, answer)


def test_check_finds_what_no_stream_has(server):
    kinds = {"application/x-ndjson": b'{"event":"%s","data":%s}\n', "text/event-stream": b"event: %s\ndata: %s\n\n"}
    good, bad = (b"output", b'{"stream":"stdout","text":"a"}'), [(b"output", b'{"stream":"stdin","text":"a"}'), (b"outputs", b"{}"), (b"result", b"{}")]
    for kind, line in kinds.items():
        openapi.Stream("POST", "/v1/run", 200, {"Content-Type": kind}).feed(line % good + line[:4])
        for event in bad:
            stream = openapi.Stream("POST", "/v1/run?x", 200, {"Content-Type": kind})
            stream.feed(line % good)
            with pytest.raises(AssertionError):
                stream.feed(line % event)
    openapi.Stream("POST", "/v1/run", 200, {"Content-Type": "text/event-stream"}).feed(b": \n\n")
    connection = gateway.UnixConnection(server.path)  # what is read of a connection is what is checked
    connection.request("POST", "/v1/run", b'{"code": "print(1)"}', {"Content-Type": "application/json", "Accept": "application/x-ndjson"})
    answer = connection.getresponse()
    seen = []
    answer.stream.feed = seen.append
    first, rest = answer.readline(), answer.read()
    assert first.startswith(b'{"event":"output"') and b"".join(seen) == first + rest
    connection.close()


# --------------------------------------------------------------------------------------------------
# Asked twice, run once

RANDOM = "import os; print(os.urandom(8).hex())"


def keyed(server, key, code, headers=None, **more):
    return server.ask("POST", "/v1/run", {"code": code, **more}, {"Idempotency-Key": key, **(headers or {})})


def test_key_gets_the_first_answer(server):
    first = keyed(server, "a", RANDOM)
    assert first.status == 200 and first.json["verdict"] == "ok"
    assert keyed(server, "a", RANDOM).body == first.body
    assert keyed(server, "b", RANDOM).json["stdout"] != first.json["stdout"]
    assert server.run(RANDOM)["stdout"] != first.json["stdout"]


def test_key_with_another_body(server):
    keyed(server, "c", "print(1)")
    answer = keyed(server, "c", "print(2)")
    assert (answer.status, answer.error["code"]) == (422, "idempotency_key_reused")


def test_refusals_are_not_kept(server):
    assert keyed(server, "d", 5).status == 400
    assert keyed(server, "d", "", language="cobol").status == 400
    assert keyed(server, "d", "print(3)").json["stdout"] == "3\n"


@pytest.mark.parametrize("key", ["", "x" * 256, "a b", "ÿ"])
def test_bad_keys(server, key):
    assert keyed(server, key, "").error["code"] == "invalid_request"


def test_key_and_stream(server):
    answer = keyed(server, "e", "", {"Accept": "text/event-stream"})
    assert answer.status == 400 and "one piece" in answer.error["message"]


def test_key_while_the_first_runs(server):
    """The second waits for the same run, and the first one's leaving does not end it."""
    code = "import os, time\nprint(os.urandom(8).hex())\ntime.sleep(6)"
    before = server.metrics().get('hutch_runs_total{verdict="ok"}', 0)
    body = json.dumps({"code": code}).encode()
    with server.connect() as leaves:
        leaves.sendall(b"POST /v1/run HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nIdempotency-Key: f\r\n"
                       b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        server.await_metric("hutch_running", 1)
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda _: server.ask("POST", "/v1/run", body, {"Idempotency-Key": "f"}), range(3)))
    assert len({answer.body for answer in found}) == 1 and found[0].json["verdict"] == "ok"
    assert server.metrics()['hutch_runs_total{verdict="ok"}'] == before + 1


def test_keys_of_tokens(tmp_path):
    """One token's key says nothing about another one's."""
    tokens = tmp_path / "tokens"
    tokens.write_text("".join("%s %s\n" % (name, hashlib.sha256(name.encode()).hexdigest()) for name in ("ada", "bob")))
    tokens.chmod(0o600)
    with Server(tmp_path, "--tokens", str(tokens)) as server:
        found = [keyed(server, "k", RANDOM, {"Authorization": "Bearer " + name}).json["stdout"] for name in ("ada", "bob", "ada")]
        assert found[0] == found[2] != found[1]


def test_key_at_the_end_of_the_server(tmp_path):
    """A run whose client has left is ended with the server."""
    with Server(tmp_path, "--drain", "200ms") as server:
        with server.connect() as leaves:
            leaves.sendall(b"POST /v1/run HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nIdempotency-Key: f\r\n"
                           b"Content-Length: 29\r\n\r\n" + b'{"code": "while True: pass"}\n')
            server.await_metric("hutch_running", 1)
        server.await_metric("hutch_http_connections", 1)
        server.signal()
        assert server.await_end() == 0
