"""The wire format of Azure's dynamic sessions, as its clients speak it: requests, aiohttp and httpx replay what they send."""
import asyncio
import base64
import socket
import time
import uuid

import aiohttp
import pytest
import requests

import gateway
import support
from gateway import Server, await_that

OLD, STRING, NATIVE, LATEST = "2024-02-02-preview", "2024-10-02-preview", "2025-02-02-preview", "2025-10-02-preview"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    place = tmp_path_factory.mktemp("azure")
    with Server(place, "--listen", "127.0.0.1:0", "--listen", "unix:" + gateway.socket_path(place), "--insecure-no-auth", "--format", "azure",
                image="python") as started:
        yield started


def url(server, path, identifier, version, more=""):
    return "http://127.0.0.1:%d/%s?identifier=%s&api-version=%s%s" % (server.port(), path, identifier, version, more)


def old(server, identifier, code):
    body = {"properties": {"codeInputType": "inline", "executionType": "synchronous", "code": code}}
    answer = requests.post(url(server, "code/execute", identifier, OLD), json=body, timeout=gateway.SECONDS)
    assert answer.status_code == 200, answer.text
    assert list(answer.json()) == ["$id", "properties"]
    return answer.json()["properties"]


def new(server, identifier, version=LATEST, status=200, **body):
    answer = requests.post(url(server, "executions", identifier, version), json=body, timeout=gateway.SECONDS)
    assert answer.status_code == status, answer.text
    return answer.json()


def fresh():
    return str(uuid.uuid4())


def test_old_shape(server):
    name = fresh()
    assert old(server, name, "x = 41\nprint('hello')")["stdout"] == "hello\n"
    found = old(server, name, "x + 1")
    assert (found["status"], found["result"], found["stdout"], found["stderr"]) == ("Success", 42, "", "")
    assert old(server, name, "'text'")["result"] == "text" and old(server, name, "y = 1")["result"] == ""
    assert old(server, name, "[1, 'a']")["result"] == "[1, 'a']"
    failed = old(server, name, "print('before'); 1 / 0")
    assert (failed["status"], failed["stdout"], failed["result"]) == ("Failure", "before\n", None)
    assert failed["stderr"].startswith("division by zero") and "\x1b" not in failed["stderr"]
    assert "NameError" in old(server, fresh(), "x")["stderr"]


def test_image(server):
    found = old(server, fresh(), "import matplotlib.pyplot as plt\nplt.plot([1, 2]); plt.show()")["result"]
    assert (found["type"], found["format"]) == ("image", "png") and base64.b64decode(found["base64_data"]).startswith(b"\x89PNG")


def test_new_shapes(server):
    name = fresh()
    body = {"codeInputType": "Inline", "executionType": "Synchronous", "timeoutInSeconds": 100}
    found = new(server, name, STRING, code="6 * 7", **body)
    assert list(found) == ["id", "identifier", "executionType", "status", "result"] and (found["identifier"], found["status"]) == (name, "Succeeded")
    assert found["result"]["executionResult"] == "42" and new(server, name, STRING, code="'a'", **body)["result"]["executionResult"] == "a"
    assert new(server, name, NATIVE, code="[1, None, {'a': 2.5}]", **body)["result"]["executionResult"] == [1, None, {"a": 2.5}]
    failed = new(server, name, NATIVE, code="1 / 0")
    assert failed["status"] == "Failed" and "ZeroDivisionError" in failed["result"]["stderr"] and failed["error"]["error"]["code"]
    coded = base64.b64encode(b"print('decoded')").decode()
    assert new(server, name, code=coded, codeInputType="InlineBase64")["result"]["stdout"] == "decoded\n"


def test_asynchronous(server):
    name = fresh()
    begun = new(server, name, code="import time; time.sleep(1); 'done'", executionType="Asynchronous")
    assert begun["status"] == "Running" and "result" not in begun
    found = {}

    def is_over():
        found.update(requests.get(url(server, "executions/" + begun["id"], name, LATEST), timeout=gateway.SECONDS).json())
        return found["status"] != "Running"

    await_that(is_over)
    assert (found["status"], found["executionType"], found["result"]["executionResult"]) == ("Succeeded", "Asynchronous", "done")


def test_commands(server):
    name = fresh()
    found = new(server, name, NATIVE, shellCommand="echo hi; echo oh >&2; echo kept >file; exit 3")
    assert (found["status"], found["result"]["stdout"], found["result"]["stderr"]) == ("3", "hi\n", "oh\n")
    assert new(server, name, NATIVE, shellCommand="cat file")["status"] == "0"
    assert old(server, name, "open('/mnt/data/file').read()")["result"] == "kept\n"


def test_files_before_the_first_execution(server):
    name = fresh()
    answer = requests.post(url(server, "files/upload", name, OLD), files={"file": ("/mnt/data/sub/a b.csv", b"a,b\n", "application/octet-stream")},
                           timeout=gateway.SECONDS)
    assert answer.status_code == 200, answer.text
    told = answer.json()["value"][0]["properties"]
    assert (told["filename"], told["size"]) == ("sub/a b.csv", 4) and told["lastModifiedTime"].endswith("Z")
    assert old(server, name, "open('/mnt/data/sub/a b.csv').read()")["result"] == "a,b\n"
    listed = requests.get(url(server, "files", name, OLD), timeout=gateway.SECONDS).json()["value"]
    assert [row["properties"]["filename"] for row in listed] == ["sub/a b.csv"]
    assert requests.get(url(server, "files/content/sub/a b.csv", name, OLD), timeout=gateway.SECONDS).content == b"a,b\n"
    assert requests.get(url(server, "files/content/none", name, OLD), timeout=gateway.SECONDS).status_code == 404


def test_new_files(server):
    name = fresh()
    answer = requests.post(url(server, "files", name, LATEST, "&path=/mnt/data/d"), files={"file": ("x.bin", bytes(range(256)))}, timeout=gateway.SECONDS)
    told = answer.json()
    assert (told["name"], told["type"], told["sizeInBytes"]) == ("x.bin", "file", 256), told
    rows = requests.get(url(server, "files", name, LATEST, "&recursive=true"), timeout=gateway.SECONDS).json()
    assert rows["nextLink"] is None and ("x.bin", "d") in [(row["name"], row["directory"]) for row in rows["value"]]
    assert requests.get(url(server, "files/d%2Fx.bin/content", name, LATEST), timeout=gateway.SECONDS).content == bytes(range(256))
    assert requests.get(url(server, "files/d/x.bin", name, LATEST), timeout=gateway.SECONDS).json()["sizeInBytes"] == 256
    assert requests.delete(url(server, "files/d/x.bin", name, LATEST), timeout=gateway.SECONDS).status_code == 204
    assert requests.get(url(server, "files/d/x.bin", name, LATEST), timeout=gateway.SECONDS).status_code == 404


def test_times_of_files(server):
    """Programs set them as they like."""
    name = fresh()
    old(server, name, "import os\nfor n, t in (('a', 2 ** 40), ('b', -1), ('c', 0)):\n    open(n, 'w').close(); os.utime(n, (t, t))")
    told = [requests.get(url(server, "files/" + file, name, LATEST), timeout=gateway.SECONDS).json()["lastModifiedAt"] for file in "abc"]
    assert told == ["9999-12-31T23:59:59.000Z", "1969-12-31T23:59:59.000Z", "1970-01-01T00:00:00.000Z"]


def test_upload_whose_client_leaves(server):
    """At any moment until the session has a sandbox: the file is where the query says, or it is not there. Nothing stays of the upload."""
    body = b"--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"x\"\r\n\r\n" + bytes(100000) + b"\r\n--b--\r\n"
    seconds = None
    for i in range(60):
        name = fresh()
        with socket.create_connection(("127.0.0.1", server.port())) as sock:
            begun = time.monotonic()
            sock.sendall(b"POST /files?identifier=%s&api-version=%s&path=d HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s"
                         % (name.encode(), LATEST.encode(), len(body), body))
            if seconds is None:
                assert sock.recv(12) == b"HTTP/1.1 200"
                seconds = time.monotonic() - begun
            else:
                time.sleep(seconds * i / 60)
        rows = requests.get(url(server, "files", name, LATEST, "&recursive=true"), timeout=gateway.SECONDS).json()["value"]
        assert [(row["directory"], row["name"]) for row in rows] in ([], [("d", "x")])
        requests.delete(url(server, "session", name, LATEST), timeout=gateway.SECONDS)
    server.await_metric("hutch_http_exchanges", 1)
    server.await_metric("hutch_http_held_bytes", 0)


def test_wrong_content_type(server):
    """Semantic Kernel's shared client says application/json of its multipart body, too."""
    body = b"--abc\r\nContent-Disposition: form-data; name=\"file\"; filename=\"/mnt/data/k.txt\"\r\n\r\nkernel\r\n--abc--\r\n"
    answer = requests.post(url(server, "files/upload", "some id", OLD), data=body, headers={"Content-Type": "application/json"}, timeout=gateway.SECONDS)
    assert answer.status_code == 200 and answer.json()["value"][0]["properties"]["filename"] == "k.txt", answer.text


def test_aiohttp(server):
    """AutoGen: a space in the identifier is a plus, and names are percent-encoded."""
    async def talk():
        async with aiohttp.ClientSession() as session:
            form = aiohttp.FormData()
            form.add_field("file", b"data", filename="ä b.txt", content_type="application/octet-stream")
            async with session.post(url(server, "files/upload", "with space", OLD), data=form) as answer:
                assert answer.status == 200, await answer.text()
            async with session.get(url(server, "files", "with+space", OLD)) as answer:
                return await answer.json()

    assert [row["properties"]["filename"] for row in asyncio.run(talk())["value"]] == ["ä b.txt"]


def test_httpx(server):
    """Semantic Kernel: one client, which says application/json of its multipart body and of requests without one, too."""
    httpx = support.module("httpx", "python3-httpx")
    name = "an id " + fresh()  # the library escapes it

    async def talk():
        async with httpx.AsyncClient(timeout=gateway.SECONDS) as client:
            client.headers.update({"Authorization": "Bearer None", "Content-Type": "application/json"})
            body = {"properties": {"codeInputType": "inline", "executionType": "synchronous", "code": "x = 6", "timeoutInSeconds": 100}}
            answer = await client.post(url(server, "code/execute", name, OLD), json=body)
            assert answer.status_code == 200 and answer.json()["properties"]["status"] == "Success", answer.text
            file = ("/mnt/data/sub/ü \"b\".txt", b"data\r\n--data", "application/octet-stream")
            request = client.build_request("POST", url(server, "files/upload", name, OLD), files={"file": file})
            assert request.headers["Content-Type"] == "application/json"
            answer = await client.send(request)
            assert answer.status_code == 200, answer.text
            listed = await client.get(url(server, "files", name, OLD))
            assert [row["properties"]["filename"] for row in listed.json()["value"]] == ["sub/ü \"b\".txt"], listed.text
            content = await client.get(url(server, "files/content/sub/ü \"b\".txt", name, OLD))
            assert content.content == b"data\r\n--data"
            body["properties"]["code"] = "x * 7, len(open('/mnt/data/sub/ü \"b\".txt').read())"
            answer = await client.post(url(server, "code/execute", name, OLD), json=body)
            return answer.json()["properties"]

    assert asyncio.run(talk())["result"] == "(42, 11)"  # Python reads both ends of lines as one


def test_sessions(server):
    name = fresh()
    assert requests.get(url(server, "session", name, LATEST), timeout=gateway.SECONDS).status_code == 404
    new(server, name, code="x = 1")
    assert requests.get(url(server, "session", name, LATEST), timeout=gateway.SECONDS).json()["identifier"] == name
    listed = requests.get("http://127.0.0.1:%d/listSessions?api-version=%s" % (server.port(), LATEST), timeout=gateway.SECONDS).json()
    assert name in [row["identifier"] for row in listed["sessions"]]
    assert requests.delete(url(server, "session", name, LATEST), timeout=gateway.SECONDS).status_code == 204
    assert new(server, name, code="x")["status"] == "Failed"


BAD_BODIES = [b"", b"{", b"[]", b'{"code": 5}', b'{"code": "a\\u0000"}', b'{"code": "\\ud800"}', b'{"code": "1", "executionType": "later"}',
              b'{"code": "?", "codeInputType": "InlineBase64"}', b'{"code": "1", "shellCommand": "1"}', b'{"code": "1", "timeoutInSeconds": -1}',
              b'{"x": ' + b"[" * 100000, b'{"code": "\xff"}']


@pytest.mark.parametrize("body", BAD_BODIES)
def test_bad_body(server, body):
    answer = requests.post(url(server, "executions", "some-id", LATEST), data=body, timeout=gateway.SECONDS)
    assert answer.status_code == 400 and list(answer.json()["error"]) == ["code", "message"], answer.text


@pytest.mark.parametrize("path", ["executions?identifier=abcd", "executions?identifier=abcd&api-version=2030-01-01", "executions?api-version=" + LATEST,
                                  "executions?identifier=abc&api-version=" + LATEST, "executions?identifier=%00%01ab&api-version=" + LATEST])
def test_bad_query(server, path):
    answer = server.ask("POST", "/" + path, {"code": "1"})
    assert answer.status == 400 and answer.json["error"]["code"] == "invalid_request", answer.body


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/../../x", "..%2fx", "%2e%2e/x", "\\../x/.."])
def test_traversal(server, name):
    body = ("--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"%s\"\r\n\r\nx\r\n--b--\r\n" % name).encode()
    answer = server.ask("POST", "/files?identifier=traversal&api-version=" + LATEST, body)
    assert answer.status == 400 and "error" in answer.json, answer.body


@pytest.mark.parametrize("body", [b"--b\r\n", b"x", b"--b\r\n\r\n\r\n--b--", b"--b\r\nContent-Disposition: form-data; filename=\"a\"\r\n\r\ncut"])
def test_bad_multipart(server, body):
    answer = server.ask("POST", "/files?identifier=multipart&api-version=" + LATEST, body)
    assert answer.status == 400 and "multipart" in answer.json["error"]["message"], answer.body
