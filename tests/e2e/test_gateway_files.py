"""Runs with files: forms that bring them, and files that come back."""
import base64
import json

import pytest
import requests

import gateway
import openapi
from gateway import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Server(tmp_path_factory.mktemp("gateway"), "--listen", "127.0.0.1:0", "--insecure-no-auth", "--max-body", "4m",
                "--listen", "unix:" + gateway.socket_path(tmp_path_factory.mktemp("s"))) as started:
        started.path = [event["address"] for event in started.events if event["event"] == "listening"
                        and event["address"].startswith("unix:")][0][5:]
        yield started


def post(server, request, files=(), headers=None):
    """As requests sends a form."""
    parts = [("request", (None, json.dumps(request), "application/json"))] + [("file", file) for file in files]
    answer = requests.post("http://127.0.0.1:%d/v1/run" % server.port(), files=parts, headers=headers, timeout=gateway.SECONDS)
    found = gateway.Answer(answer.status_code, answer.headers, answer.content)
    openapi.check("POST", "/v1/run", None, None, found)
    return found


BYTES = bytes(range(256)) * 300 + b"\r\n--boundary\r\n"


def test_files_go_in_and_come_back(server):
    code = """import os
data = open('in.bin', 'rb').read()
print(len(data), open('d/e.txt').read(), os.getcwd())
open('out.bin', 'wb').write(data[::-1])
"""
    answer = post(server, {"code": code, "fetch": ["out.bin", "/mnt/data/d/e.txt", "none", "d"]},
                  [("in.bin", BYTES, "application/octet-stream"), ("d/e.txt", "hello ÿ".encode(), "text/plain")])
    assert answer.status == 200, answer.body
    result = answer.json
    assert result["stdout"] == "%d hello ÿ /mnt/data\n" % len(BYTES), result
    out, other, none, folder = result["fetched"]
    assert (out["path"], out["size"], base64.b64decode(out["base64"])) == ("out.bin", len(BYTES), BYTES[::-1])
    assert (other["path"], base64.b64decode(other["base64"])) == ("/mnt/data/d/e.txt", "hello ÿ".encode())
    assert none == {"path": "none", "error": "No such file or directory"}
    assert folder == {"path": "d", "error": "Is a directory"}


def test_fetch_without_a_form(server):
    result = server.run("open('a', 'w').write('x')", fetch=["a"])
    assert result["fetched"] == [{"path": "a", "size": 1, "base64": "eA=="}]
    assert "fetched" not in server.run("")
    # Links of the program's own are not followed, and a large file is not had.
    result = server.run("import os; os.symlink('/etc/passwd', 'l'); os.mkfifo('f'); open('big', 'w').truncate(17 << 20)", fetch=["l", "f", "big"])
    assert all("base64" not in file and file["error"] for file in result["fetched"]), result["fetched"]
    assert "16 MiB" in result["fetched"][2]["error"]


def test_no_file_and_empty_file(server):
    assert post(server, {"code": "print(1)"}).json["stdout"] == "1\n"
    assert post(server, {"code": "print(open('e').read() == '')"}, [("e", b"", "text/plain")]).json["stdout"] == "True\n"


def test_form_and_stream(server):
    parts = {"request": (None, json.dumps({"code": "print(open('a').read())"})), "file": ("a", b"x")}
    answer = requests.post("http://127.0.0.1:%d/v1/run" % server.port(), files=parts, timeout=gateway.SECONDS,
                           headers={"Accept": "application/x-ndjson"})
    events = [json.loads(line) for line in answer.text.splitlines()]
    assert events[0]["event"] == "output" and events[-1]["event"] == "result"
    assert "".join(event["data"]["text"] for event in events[:-1]) == "x\n"  # a line may come in pieces


def form(*parts, end=b"--XX--\r\n"):
    return b"".join(b"--XX\r\nContent-Disposition: form-data; %s\r\n\r\n%s\r\n" % part for part in parts) + end


REQUEST = (b'name="request"', b'{"code": ""}')
BAD_FORMS = {
    "empty": (b"", "last boundary"),
    "cut": (form(REQUEST, end=b""), "last boundary"),
    "no request": (form((b'name="file"; filename="a"', b"")), "'request' is missing"),
    "two requests": (form(REQUEST, REQUEST), "two parts 'request'"),
    "request no JSON": (form((b'name="request"', b"code")), "line 1, column 1"),
    "unknown part": (form(REQUEST, (b'name="fil"; filename="a"', b"")), "a part 'fil'"),
    "file without a name": (form(REQUEST, (b'name="file"', b"")), "no filename"),
    "many files": (form(REQUEST, *[(b'name="file"; filename="f%d"' % i, b"") for i in range(1025)]), "more than 1024 files"),
    "no disposition": (b"--XX\r\nA: b\r\n\r\n\r\n--XX--", "no Content-Disposition"),
    "path that leads out": (form(REQUEST, (b'name="file"; filename="../../etc/x"', b"")), ""),
    "absolute path elsewhere": (form(REQUEST, (b'name="file"; filename="/etc/x"', b"")), ""),
    "no path": (form(REQUEST, (b'name="file"; filename="."', b"")), ""),
    "not UTF-8": (form((b'name="request"', b'{"code": "\xff"}')), "UTF-8"),
}


@pytest.mark.parametrize("label", BAD_FORMS)
def test_bad_form(server, label):
    body, words = BAD_FORMS[label]
    answer = server.ask("POST", "/v1/run", body, {"Content-Type": "multipart/form-data; boundary=XX"})
    assert answer.status == 400 and answer.error["code"] == "invalid_request" and words in answer.error["message"], answer.body


def test_other_refusals(server):
    head = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data%s\r\n%s\r\n\r\n"
    assert gateway.parse(server.raw(head % (b"/v1/run", b"; boundary=XX", b"Content-Length: 5000000"))).error["code"] == "body_too_large"
    answer = server.ask("POST", "/v1/sessions", b"x", {"Content-Type": "multipart/form-data; boundary=XX"})
    assert answer.error["code"] == "unsupported_media_type"
    answer = server.ask("POST", "/v1/run", form(REQUEST), {"Content-Type": "multipart/form-data"})
    assert answer.status == 400 and "boundary" in answer.error["message"]
    answer = server.ask("POST", "/v1/run", form(REQUEST), {"Content-Type": "multipart/form-data; boundary=XX", "Idempotency-Key": "k"})
    assert answer.status == 400 and "whose body is JSON" in answer.error["message"]


def test_chunked_form_that_is_too_large(server):
    def pieces():
        yield b'--XX\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
        for _ in range(80):
            yield bytes(65536)

    connection = gateway.UnixConnection(server.path)
    try:
        connection.request("POST", "/v1/run", pieces(), {"Content-Type": "multipart/form-data; boundary=XX"}, encode_chunked=True)
        assert connection.getresponse().status == 413
    except (BrokenPipeError, ConnectionResetError):
        pass  # it does not read on for ever
    connection.close()
    server.await_metric("hutch_http_held_bytes", 0)


def test_client_that_leaves_within_a_form(server):
    with server.connect() as sock:
        sock.sendall(b"POST /v1/run HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=XX\r\n"
                     b"Content-Length: 100000\r\n\r\n" + form(REQUEST, (b'name="file"; filename="a"', b"x" * 1000), end=b""))
        server.await_metric("hutch_http_exchanges", 2)
    server.await_metric("hutch_http_exchanges", 1)
    server.await_metric("hutch_http_held_bytes", 0)
