"""SandboxFusion's wire format: what its clients send and read, and what bad requests get in its own shapes."""
import asyncio
import base64
import json
import threading

import aiohttp
import pytest
import requests

import gateway
from gateway import Server, await_that

# What every answer of /run_code has: clients validate it with closed lists of words.
KEYS = ["status", "message", "compile_result", "run_result", "executor_pod_name", "files"]
STEP = ["status", "execution_time", "return_code", "stdout", "stderr"]
PNG = b"\x89PNG\0\xff"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    place = tmp_path_factory.mktemp("fusion")
    with Server(place, "--listen", "127.0.0.1:0", "--listen", "unix:" + gateway.socket_path(place), "--insecure-no-auth",
                "--format", "sandboxfusion") as started:
        yield started


def url(server, path="/run_code"):
    return "http://127.0.0.1:%d%s" % (server.port(), path)


def check(answer):
    """The shape, as the strictest client checks it."""
    assert list(answer) == KEYS and answer["status"] in ("Success", "Failed", "SandboxError"), answer
    assert isinstance(answer["message"], str) and isinstance(answer["files"], dict) and answer["compile_result"] is None
    step = answer["run_result"]
    if step is not None:
        assert list(step) == STEP, step
        is_finished, is_timeout = step["status"] == "Finished", step["status"] == "TimeLimitExceeded"
        assert is_finished or is_timeout or (step["status"], answer["status"]) == ("Error", "SandboxError"), answer
        assert isinstance(step["return_code"], int) == is_finished and (step["execution_time"] is None) == (not is_finished and not is_timeout)
        assert isinstance(step["stdout"], str) == (is_finished or is_timeout) and isinstance(step["stderr"], str)
    return answer


def run(server, code, **more):
    answer = server.ask("POST", "/run_code", {"code": code, **more})
    assert answer.status == 200, answer.body
    return check(answer.json)


def encoded(data):
    return base64.b64encode(data).decode()


# --------------------------------------------------------------------------------------------------
# Runs

def test_run(server):
    answer = run(server, "import sys\nprint(int(input()) * 2)\nprint('oh', file=sys.stderr)", stdin="21", language="python")
    step = answer["run_result"]
    assert (answer["status"], answer["message"], answer["files"]) == ("Success", "", {})
    assert (step["status"], step["return_code"], step["stdout"], step["stderr"]) == ("Finished", 0, "42\n", "oh\n")
    assert 0 < step["execution_time"] < 60


def test_code_alone(server):
    """verl's agent loop sends nothing else; junit's code is empty."""
    assert run(server, "print(1)")["run_result"]["stdout"] == "1\n"
    assert run(server, "")["status"] == "Success"


@pytest.mark.parametrize("code, want", [("raise SystemExit(3)", 3), ("import sys; sys.exit(-1)", 255), ("1 / 0", 1),
                                        ("import os; os.kill(os.getpid(), 11)", -11), ("import os; os.kill(os.getpid(), 9)", -9)])
def test_ends(server, code, want):
    answer = run(server, code)
    assert (answer["status"], answer["run_result"]["status"], answer["run_result"]["return_code"]) == ("Failed", "Finished", want), answer


def test_time_limit(server):
    answer = run(server, "open('out', 'w').write('x')\nprint('begun', flush=True)\nwhile True: pass", run_timeout=3, fetch_files=["out"])
    step = answer["run_result"]
    assert (answer["status"], step["status"], step["return_code"], step["stdout"]) == ("Failed", "TimeLimitExceeded", None, "begun\n"), answer
    assert step["execution_time"] >= 3 and answer["files"] == {"out": encoded(b"x")}


def test_memory_limit(server):
    """verl sends 1024 with every request, which is more than the policy has: the policy's holds. Neither leaves the pool."""
    for limit in (1024, -1, 400, 256):
        await_that(lambda: all(value > 0 for name, value in server.metrics().items() if name.startswith("hutch_pool_prepared")))
        before = server.metrics()["hutch_on_demand_total"]
        assert run(server, "print(1)", memory_limit_MB=limit)["status"] == "Success"
        assert server.metrics()["hutch_on_demand_total"] == before, limit
    answer = run(server, "x = bytearray(400 << 20)\nprint(len(x))", memory_limit_MB=128)
    assert answer["status"] == "Failed" and answer["run_result"]["status"] == "Finished" and answer["run_result"]["return_code"] != 0, answer


def test_files(server):
    code = "import testing_util\nprint(testing_util.answer(), open('d/data.bin', 'rb').read(), open('/mnt/data/abs').read())\nopen('out/made', 'wb').write(b'\\x89PNG\\0\\xff')\n"
    answer = run(server, code, fetch_files=["./out/made", "none", "/mnt/data/abs", "out"],
                 files={"testing_util.py": encoded(b"def answer(): return 42\n"), "./d/data.bin": encoded(PNG), "/mnt/data/abs": encoded(b"abs"),
                        "out/keep": encoded(b""), "skipped": None, "IGNORE_THIS_FILE_1": "?"})
    assert answer["status"] == "Success" and answer["run_result"]["stdout"] == "42 %r abs\n" % PNG, answer
    assert answer["files"] == {"./out/made": encoded(PNG), "/mnt/data/abs": encoded(b"abs")}


def test_languages(server):
    assert run(server, "echo $((6 * 7)) $(cat in)", language="bash", files={"in": encoded(b"x")})["run_result"]["stdout"] == "42 x\n"
    for language in ("cpp", "sql", "cobol", "python_gpu", "Python", "a\0b", "x" * 5000):
        answer = run(server, "int main() {}", language=language)
        assert answer["status"] == "SandboxError" and answer["run_result"] is None and "python, bash, nodejs" in answer["message"], answer
    answer = run(server, "puts 1", language="ruby")  # which the image has not got
    assert answer["status"] == "SandboxError" and "the languages of this image: python, sh" in answer["message"], answer


def test_any_bytes(server):
    answer = run(server, "import sys; sys.stdout.buffer.write(b'a\\xff\\0\\x1b[1m' + sys.stdin.buffer.read())", stdin="\0\U0001f600")
    assert answer["run_result"]["stdout"] == "a\ufffd\0\x1b[1m\0\U0001f600", answer
    answer = run(server, "print(1)\n\0print(2)")
    assert answer["status"] == "Failed" and "null byte" in answer["run_result"]["stderr"] and answer["run_result"]["stdout"] == "", answer


def test_lax_types(server):
    """Numbers as texts, null for what is not said, keys that nobody knows."""
    answer = run(server, "print(input())", stdin="x", run_timeout="5", compile_timeout=10.0, memory_limit_MB="512", files=None, fetch_files=None,
                 language=None, other={"deep": [[[1e300]]]})
    assert answer["run_result"]["stdout"] == "x\n"


def test_background_child(server):
    """A program that has ended is not waited for longer because a child of its holds stdout."""
    answer = run(server, "import subprocess; subprocess.Popen(['sleep', '20']); print('done')", run_timeout=15, language="python")
    assert (answer["status"], answer["run_result"]["stdout"]) == ("Success", "done\n"), answer


def test_other_paths(server):
    ping = server.ask("GET", "/v1/ping")
    assert (ping.status, ping.headers["Content-Type"], ping.body) == (200, "application/json", b'"pong"')
    assert server.ask("GET", "/").status == 200


def test_below_a_prefix(tmp_path):
    with Server(tmp_path, "--format", "sandboxfusion=/faas/sandbox") as server:
        assert check(server.ask("POST", "/faas/sandbox/run_code", {"code": "print(1)"}).json)["status"] == "Success"
        assert server.ask("POST", "/faas/sandbox/nothing", {}).json == {"detail": "Not Found"}
        assert server.ask("POST", "/run_code", {"code": "1"}).status == 404


# --------------------------------------------------------------------------------------------------
# Cells

CELL = ["stdout", "stderr", "display", "error"]


@pytest.fixture(scope="module")
def notebooks(tmp_path_factory):
    with Server(tmp_path_factory.mktemp("cells"), image="python") as started:
        yield started


def cells(server, *codes, status=200, **more):
    answer = server.ask("POST", "/run_jupyter", {"cells": list(codes), **more})
    assert answer.status == status, answer.body
    answer = answer.json
    assert list(answer) == ["status", "message", "driver", "cells", "executor_pod_name", "files"], answer
    assert list(answer["driver"]) == STEP and all(list(cell) == CELL for cell in answer["cells"])
    return answer


def test_cells(notebooks):
    """An exception does not stop the next; displays come as bundles, in their order."""
    answer = cells(notebooks, "a = 41\nprint('é'); import sys; print('oh', file=sys.stderr); print('two')", "1 / 0", "a + 1",
                   "from IPython.display import display, HTML\ndisplay(HTML('<b>x</b>')); display(3)\n'last'", "", cell_timeout=0, total_timeout=120,
                   kernel="python3", memory_limit_MB=1024)
    assert (answer["status"], answer["message"], answer["driver"]["status"], answer["driver"]["return_code"]) == ("Success", "", "Finished", 0)
    first, second, third, fourth, fifth = answer["cells"]
    assert first == {"stdout": "é\ntwo\n", "stderr": "oh\n", "display": [], "error": []}
    assert [(error["ename"], error["evalue"]) for error in second["error"]] == [("ZeroDivisionError", "division by zero")]
    assert isinstance(second["error"][0]["traceback"], list) and second["display"] == []
    assert third == {"stdout": "", "stderr": "", "display": [{"text/plain": "42"}], "error": []}
    assert [sorted(bundle) for bundle in fourth["display"]] == [["text/html", "text/plain"], ["text/plain"], ["text/plain"]]
    assert fifth == {"stdout": "", "stderr": "", "display": [], "error": []}


def test_plot(notebooks):
    answer = cells(notebooks, "import matplotlib.pyplot as plt\nplt.plot([1, 2]); plt.show()", total_timeout=120)
    bundle = answer["cells"][0]["display"][-1]
    assert base64.b64decode(bundle["image/png"]).startswith(b"\x89PNG") and "Figure" in bundle["text/plain"]


def test_files_of_cells(notebooks):
    answer = cells(notebooks, "import helper\nopen('submission.csv', 'w').write(helper.text + open('d/in.csv').read())", total_timeout=120,
                   files={"d/in.csv": encoded(b"a,b\n"), "/mnt/data/helper.py": encoded(b"text = 'head,'\n")},
                   fetch_files=["submission.csv", "./d/in.csv", "none", "d"])
    assert answer["files"] == {"submission.csv": encoded(b"head,a,b\n"), "./d/in.csv": encoded(b"a,b\n")}, answer


def test_nothing_is_kept(notebooks):
    """Each request has an interpreter and files of its own, and no session is left."""
    cells(notebooks, "x = 1; open('left', 'w')", total_timeout=120)
    answer = cells(notebooks, "import os; print('x' in globals(), os.listdir('.'))", total_timeout=120)
    assert answer["cells"][0]["stdout"] == "False []\n"
    notebooks.await_metric("hutch_sessions", 0)
    assert notebooks.ask("GET", "/v1/sessions").json == {"sessions": []}


def test_time_of_cells(notebooks):
    answer = cells(notebooks, "open('out', 'w').write('x')", "while True: pass", "print(1)", total_timeout=8, fetch_files=["out"])
    assert (answer["status"], answer["cells"], answer["driver"]["status"], answer["driver"]["return_code"]) == ("Failed", [], "TimeLimitExceeded", None)
    assert answer["files"] == {"out": encoded(b"x")}


def test_dead_interpreter(notebooks):
    answer = cells(notebooks, "import os; os._exit(3)", "print(1)", total_timeout=120)
    assert (answer["status"], answer["cells"], answer["driver"]["status"]) == ("Failed", [], "Finished") and answer["driver"]["return_code"] != 0


def test_cell_with_nul(notebooks):
    answer = cells(notebooks, "print(1)\n\0", "print(2)", total_timeout=120)
    assert "null byte" in answer["cells"][0]["error"][0]["evalue"] and answer["cells"][1]["stdout"] == "2\n"


def test_image_without_shell(server):
    answer = cells(server, "print(1)", total_timeout=120)
    assert (answer["status"], answer["driver"]["status"]) == ("SandboxError", "Error") and answer["message"]


BAD_CELLS = {
    "no cells": ({}, "cells: Field required"),
    "no list": ({"cells": "1"}, "cells: Input should be a valid list"),
    "cell no text": ({"cells": ["1", 2]}, "cells: Input should be a valid string"),
    "many cells": ({"cells": [""] * 4097}, "cells: there are too many cells"),
    "another kernel": ({"cells": [], "kernel": "ir"}, "kernel: Input should be 'python3'"),
    "file above": ({"cells": [], "files": {"../x": ""}}, "files: "),
    "file elsewhere": ({"cells": [], "files": {"/etc/x": ""}}, "files: "),
}


@pytest.mark.parametrize("label", BAD_CELLS)
def test_bad_cells(notebooks, label):
    body, words = BAD_CELLS[label]
    answer = notebooks.ask("POST", "/run_jupyter", body)
    assert answer.status == 422 and words in answer.json["detail"][0]["msg"], answer.body
    notebooks.await_metric("hutch_sessions", 0)


def test_client_that_leaves_its_cells(notebooks):
    with notebooks.connect() as sock:
        body = json.dumps({"cells": ["import time; time.sleep(100)"], "total_timeout": 120}).encode()
        sock.sendall(b"POST /run_jupyter HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        notebooks.await_metric("hutch_sessions", 1)
    notebooks.await_metric("hutch_sessions", 0)


# --------------------------------------------------------------------------------------------------
# Clients

def test_verl_reward(server):
    """All eight keys, one request for each test case, a new connection each, many at a time."""
    def ask(number, found):
        body = {"compile_timeout": 10, "run_timeout": 10, "code": "print(int(input()) * 3)", "stdin": "%d\n" % number, "memory_limit_MB": 1024,
                "language": "python", "files": {}, "fetch_files": []}
        answer = requests.post(url(server), headers={"Content-Type": "application/json", "Accept": "application/json"}, data=json.dumps(body),
                               timeout=gateway.SECONDS)
        answer.raise_for_status()
        found[number] = check(answer.json())

    found = {}
    threads = [threading.Thread(target=ask, args=(number, found)) for number in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(64):
        answer = found[number]
        assert answer["status"] == "Success" and answer["run_result"]["status"] == "Finished"
        assert answer["run_result"]["stdout"].rstrip("\n") == str(number * 3)


def test_verl_tool(server):
    """Reads stdout and stderr where it is Finished, and adds them: neither is ever null then."""
    body = {"compile_timeout": 30, "run_timeout": 30, "code": "1 / 0", "stdin": None, "memory_limit_MB": 1024, "language": "python", "files": {},
            "fetch_files": []}
    step = check(requests.post(url(server), json=body, timeout=70).json())["run_result"]
    assert step["status"] == "Finished" and "ZeroDivisionError" in step["stdout"] + step["stderr"]


def test_tinker(server):
    """One request for each sample, its cases among the files, connections kept; a driver that exits with -1 is a wrong answer."""
    driver = "import sys\nimport testing_util\nok = testing_util.check(open('test_cases.txt').read())\nprint({'ok': ok})\nsys.exit(0 if ok else -1)\n"

    def ask(client, cases):
        answer = client.post(url(server), timeout=gateway.SECONDS, json={"code": driver, "language": "python", "run_timeout": 30, "files": {
            "testing_util.py": encoded(b"def check(text): return text == 'good'\n"), "test_cases.txt": encoded(cases)}})
        return check(answer.json())

    with requests.Session() as client:
        good, bad = ask(client, b"good"), ask(client, b"bad")
    assert good["status"] == "Success" and (bad["status"], bad["run_result"]["return_code"]) == ("Failed", 255)


def test_sdk_async(server):
    """Its own client has a session of aiohttp for each call, and sends no memory limit."""
    async def ask(number):
        async with aiohttp.ClientSession() as session:
            async with session.post(url(server), json={"code": "print(%d)" % number, "language": "python", "compile_timeout": 10, "run_timeout": 10,
                                                       "stdin": None, "files": {}, "fetch_files": []}) as answer:
                assert answer.status == 200
                return check(await answer.json())["run_result"]["stdout"]

    async def many():
        return await asyncio.gather(*(ask(number) for number in range(20)))

    assert asyncio.run(many()) == ["%d\n" % number for number in range(20)]


# --------------------------------------------------------------------------------------------------
# Bad requests

BAD = {
    "empty": (b"", "the body is empty"),
    "no JSON": (b"code=1", "line 1, column 1"),
    "cut": (b'{"code": "1"', "line 1"),
    "not UTF-8": (b'{"code": "\xff"}', "UTF-8"),
    "lone surrogate": (b'{"code": "\\ud800"}', "surrogate"),
    "lone surrogate in what is ignored": (b'{"code": "1", "x": "\\udc00"}', "surrogate"),
    "deep": (b'{"code": "1", "x": ' + b"[" * 100000, "deep"),
    "array": (b"[]", "Input should be a valid dictionary"),
    "no code": (b'{"language": "python"}', "code: Field required"),
    "code is null": (b'{"code": null}', "code: Input should be a valid string"),
    "code of another type": (b'{"code": 5}', "code: Input should be a valid string"),
    "language of another type": (b'{"code": "1", "language": ["python"]}', "language: Input should be a valid string"),
    "time of another type": (b'{"code": "1", "run_timeout": "soon"}', "run_timeout: Input should be a valid number"),
    "time is infinite": (b'{"code": "1", "run_timeout": "inf"}', "run_timeout: Input should be a valid number"),
    "time is no JSON": (b'{"code": "1", "run_timeout": NaN}', "line 1"),
    "time beyond doubles": (b'{"code": "1", "run_timeout": 1e999}', "run_timeout: Input should be a valid number"),
    "time is negative": (b'{"code": "1", "run_timeout": -1}', "run_timeout: Input should be greater than 0"),
    "time of truth": (b'{"code": "1", "compile_timeout": true}', "compile_timeout: Input should be a valid number"),
    "time above the policy's": (b'{"code": "1", "run_timeout": 86400}', "run_timeout: Input should be less than or equal to 30"),
    "part of a megabyte": (b'{"code": "1", "memory_limit_MB": 0.5}', "memory_limit_MB: Input should be a valid integer"),
    "files no object": (b'{"code": "1", "files": ["a"]}', "files: Input should be a valid dictionary"),
    "file no text": (b'{"code": "1", "files": {"a": 1}}', "files: Input should be a valid string"),
    "many files": (b'{"code": "1", "files": {' + b",".join(b'"%d": ""' % n for n in range(1025)) + b"}}", "files: there are too many files"),
    "paths no list": (b'{"code": "1", "fetch_files": "a"}', "fetch_files: Input should be a valid list"),
    "many paths": (b'{"code": "1", "fetch_files": [' + b",".join([b'"a"'] * 65) + b"]}", "fetch_files: there are too many paths"),
    "path with NUL": (b'{"code": "1", "files": {"a\\u0000b": ""}}', "files: a path"),
    "long path": (b'{"code": "1", "fetch_files": ["' + b"a" * 5000 + b'"]}', "fetch_files: a path is too long"),
    "program with NUL": (b'{"code": "echo \\u0000", "language": "bash"}', "code: a program has no NUL"),
    "file above": (b'{"code": "1", "files": {"../x": ""}}', "../x"),
    "file elsewhere": (b'{"code": "1", "files": {"/etc/passwd": ""}}', "/etc/passwd"),
    "file within and above": (b'{"code": "1", "files": {"/mnt/data/../../etc/x": ""}}', ".."),
    "path above": (b'{"code": "1", "fetch_files": ["a/../../etc/shadow"]}', ".."),
    "device": (b'{"code": "1", "fetch_files": ["/dev/mem"]}', "/dev/mem"),
    "its own path": (b'{"code": "1", "fetch_files": ["./"]}', "file"),
}


@pytest.mark.parametrize("label", BAD)
def test_bad_request(server, label):
    body, words = BAD[label]
    answer = server.ask("POST", "/run_code", body)
    assert answer.status == 422 and answer.headers["Content-Type"] == "application/json", answer.body
    assert list(answer.json) == ["detail"] and [list(one) for one in answer.json["detail"]] == [["type", "loc", "msg", "input"]], answer.body
    assert words in answer.json["detail"][0]["msg"], answer.body


def test_bad_file(server):
    answer = run(server, "print(1)", files={"a": "?"})
    assert (answer["status"], answer["run_result"], answer["message"]) == ("SandboxError", None, "the file 'a' is not base64")


def test_links_are_not_followed(server):
    answer = run(server, "import os; os.symlink('/etc/passwd', 'link'); os.mkfifo('fifo'); os.mkdir('dir')", fetch_files=["link", "fifo", "dir", "none"])
    assert (answer["status"], answer["files"]) == ("Success", {})


def test_other_refusals(server):
    assert (server.ask("POST", "/v1/ping", {}).status, server.ask("POST", "/v1/ping", {}).json) == (405, {"detail": "Method Not Allowed"})
    assert server.ask("GET", "/run_code").status == 405


def test_too_large(tmp_path):
    with Server(tmp_path, "--max-body", "10000") as server:
        answer = gateway.parse(server.raw(b"POST /run_code HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                                          b"Content-Length: 20000\r\n\r\n"))
        assert answer.status == 413 and isinstance(answer.json["detail"], str)


def test_full_queue(tmp_path):
    """At once, and with a time to wait."""
    with Server(tmp_path, "--workers", "1", "--jobs", "1", "--queue", "1") as server:
        found = []
        bodies = {"code": "import time; time.sleep(8)", "run_timeout": 25}, {"code": "1"}
        threads = [threading.Thread(target=lambda body=body: found.append(server.ask("POST", "/run_code", body))) for body in bodies]
        threads[0].start()
        server.await_metric("hutch_running", 1)
        threads[1].start()
        server.await_metric("hutch_queued", 1)
        answer = server.ask("POST", "/run_code", {"code": "1"})
        assert answer.status == 429 and answer.headers["Retry-After"] and list(answer.json) == ["detail"]
        for thread in threads:
            thread.join()
        assert all(check(one.json)["status"] == "Success" for one in found)


def test_client_that_leaves(server):
    with server.connect() as sock:
        body = json.dumps({"code": "import time; time.sleep(25)", "run_timeout": 30}).encode()
        sock.sendall(b"POST /run_code HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        server.await_metric("hutch_running", 1)
    server.await_metric("hutch_running", 0)
