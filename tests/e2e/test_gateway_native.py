"""The native API of hutch serve beyond runs and sessions: what can be asked for, and the document that says how."""
import json
import os
import re

import jsonschema
import pytest

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
            assert answer.status == 400 and "above the policy's" in answer.error["message"], (name, answer.body)


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
    prefix = re.search(r'#define SESSION "([^"]+)"', text)[1]
    rows = re.findall(r'^    \{ "(\w+)", (SESSION)? ?(?:"([^"]*)")?,', text, re.MULTILINE)
    assert len(rows) > 20
    return {(method, (prefix if session else "") + path.replace("*", "")) for method, session, path in rows}


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
        assert re.findall(r"\{(\w+)\}", path) == [parameter["name"] for parameter in item.get("parameters", [])], path
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
