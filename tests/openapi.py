"""The server's OpenAPI document against what it answers and takes. tests/gateway.py calls check() for each answer, and has a Stream for
each that is read as it comes."""
import functools
import json
import os
import re

import jsonschema

import support

SOURCE = os.path.join(support.TREE, "runtime", "gateway", "openapi.json")
STREAMS = ("application/x-ndjson", "text/event-stream")
METHODS = {"get", "post", "put", "delete"}


@functools.lru_cache
def document():
    with open(SOURCE, encoding="utf-8") as file:
        return json.load(file)


@functools.lru_cache
def patterns():
    """(regular expression, template) of each path; the path of a file has slashes."""
    found = [(re.compile(re.sub(r"\\{(\w+)\\}", lambda name: ".+" if name[1] == "path" else "[^/]+", re.escape(path))), path)
             for path in document()["paths"]]
    return sorted(found, key=lambda pair: pair[1].count("{"))


def find(method, path):
    """The operation of a request; None when the document has no such path, {} when it has the path with other methods."""
    path = path.partition("?")[0]
    for pattern, template in patterns():
        if pattern.fullmatch(path):
            return document()["paths"][template].get({"HEAD": "get"}.get(method, method.lower()), {})
    return None


@functools.lru_cache
def validator(schema):
    return jsonschema.Draft202012Validator({**json.loads(schema), "components": document()["components"]})


def hold(value, schema, what):
    errors = ["%s: %s" % (error.json_path, error.message[:300]) for error in validator(json.dumps(schema)).iter_errors(value)]
    assert not errors, (what, errors)


def resolve(response):
    return document()["components"]["responses"][response["$ref"].rpartition("/")[2]] if "$ref" in response else response


def kind_of(headers):
    return (headers.get("Content-Type") or "").partition(";")[0]


class Stream:
    """Holds each line or event of an answer to its schema, as the bytes come. An answer of another kind is not looked at, and neither is
    what a broken connection leaves of a line."""

    def __init__(self, method, path, status, headers):
        operation, kind = find(method, path), kind_of(headers)
        content = resolve(operation["responses"][str(status)]).get("content", {}) if operation and str(status) in operation["responses"] else {}
        self.schema = content.get(kind, {}).get("schema") if kind in STREAMS else None
        self.end = b"\n\n" if kind == "text/event-stream" else b"\n"
        self.what, self.rest = "%s %s: " % (method, path), b""

    def feed(self, data):
        if self.schema is None:
            return
        *pieces, self.rest = (self.rest + data).split(self.end)
        for piece in pieces:
            if self.end == b"\n":
                hold(json.loads(piece), self.schema, self.what + piece[:300].decode("utf-8", "replace"))
            elif piece != b": ":  # a sign of life
                name, data = re.fullmatch(rb"event: (\w+)\ndata: ([^\n\r]*)", piece).groups()
                hold({"event": name.decode(), "data": json.loads(data)}, self.schema, self.what + piece[:300].decode("utf-8", "replace"))


def check(method, path, sent, sent_type, answer):
    """An answer of the native API is as the document has it, and so is the JSON of a request that was taken."""
    operation = find(method, path)
    if operation is None:
        return
    kind = kind_of(answer.headers)
    responses = operation.get("responses", {"default": {"$ref": "#/components/responses/Error"}})
    response = resolve(responses.get(str(answer.status), responses["default"]))
    what = "%s %s: %d" % (method, path, answer.status)
    assert answer.status >= 400 or str(answer.status) in responses or not operation, what + " is not in the document"
    if kind:
        assert kind in response.get("content", {}), "%s: %s is not in the document" % (what, kind)
    if kind == "application/json" and method != "HEAD":
        hold(json.loads(answer.body), response["content"][kind]["schema"], what)
    stream = Stream(method, path, answer.status, answer.headers)
    stream.feed(answer.body)
    assert not stream.rest or stream.schema is None, (what, stream.rest[-300:])
    taken = operation.get("requestBody", {}).get("content", {}).get(sent_type)
    if answer.status < 300 and sent and taken and sent_type == "application/json":
        hold(json.loads(sent), taken["schema"], "the body of " + what)
