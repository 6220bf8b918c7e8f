"""hutch serve as E2B's servers: its SDK from npm, unchanged (tests/clients/e2b), LiteLLM's requests, and what hostile ones
get."""
import asyncio
import base64
import concurrent.futures
import hashlib
import http.client
import json
import os
import shutil
import struct
import subprocess

import pytest

import gateway
import support
from gateway import Server

TOKEN, OTHER = "e2b_" + "0a" * 20, "e2b_" + "0b" * 20
CLIENTS = os.environ.get("HUTCH_TEST_CLIENTS") or os.path.join(support.TREE, "build", "clients")
NOBODYS = "a" * 26
ENVD = "49983"


def write_tokens(folder):
    path = os.path.join(str(folder), "tokens")
    with open(path, "w", encoding="ascii") as file:
        for name, token in (("ada", TOKEN), ("bob", OTHER)):
            file.write("%s %s\n" % (name, hashlib.sha256(token.encode()).hexdigest()))
    os.chmod(path, 0o600)
    return path


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("e2b")
    with Server(folder, "--listen", "127.0.0.1:0", "--listen", "unix:" + gateway.socket_path(folder), "--tokens", write_tokens(folder),
                "--allow-host", "*.box.example", image="python") as started:
        yield started


@pytest.fixture(autouse=True)
def nothing_is_left(request):
    """No exchange outlives its test."""
    yield
    if "server" in request.fixturenames:
        request.getfixturevalue("server").await_metric("hutch_http_exchanges", 1, {"X-API-Key": TOKEN, "Authorization": "Bearer " + TOKEN})


def observe(server, part):
    folder = os.path.join(CLIENTS, "e2b")
    if not shutil.which("node") or not os.path.exists(os.path.join(folder, "installed.json")):
        support.miss("npm: its packages for tests/clients/e2b are not installed (make clients)")
    url = "http://127.0.0.1:%d" % server.port()
    done = subprocess.run(["node", os.path.join(folder, "suite.mjs"), part], capture_output=True, timeout=gateway.SECONDS, check=False,
                          env={**os.environ, "E2B_API_URL": url, "E2B_SANDBOX_URL": url, "E2B_API_KEY": TOKEN})
    assert done.returncode == 0, done.stderr.decode()
    seen = json.loads(done.stdout)
    assert "crashed" not in seen, seen
    return seen


# --- the SDK ---

def test_control(server):
    seen = observe(server, "control")
    assert seen["listed"] and not seen["listedOther"] and not seen["listedPaused"]
    assert seen["info"]["metadata"] == {"k": "v", "a b": "c&d=é"} and seen["info"]["state"] == "running"
    assert seen["info"]["sandboxId"] == seen["id"] and seen["info"]["cpuCount"] >= 1 and seen["info"]["memoryMB"] > 0
    assert 400_000 < seen["later"] <= 600_000
    assert seen["running"] and not seen["runningThen"]
    assert len(seen["metrics"]) == 1 and seen["metrics"][0]["memTotal"] > 0
    for refused in ("fork", "snapshot"):
        assert "cannot be copied" in seen[refused]["message"]
    assert "there is no template 'nobodys-template'" in seen["template"]["message"]
    assert seen["killed"] is True and seen["again"] is False
    assert seen["gone"]["name"] == seen["connectGone"]["name"] == "SandboxNotFoundError"


def test_pause_and_connect(server):
    seen = observe(server, "pause")
    assert seen["paused"] is True and seen["pausedAgain"] is False and seen["state"] == "paused" and seen["listed"]
    assert "409" in seen["refused"]["message"]
    assert seen["stateThen"] == "running" and seen["value"] == "(42, True, 'kept')"


def test_code(server):
    seen = observe(server, "code")
    assert seen["first"] == {"text": "42", "count": 1, "logs": {"stdout": ["hello é 😀\n"], "stderr": ["bad\n"]}}
    assert seen["heard"] == {"stdout": ["hello é 😀\n"], "stderr": ["bad\n"], "results": ["42"], "errors": []}
    assert seen["state"] == "quoted"
    assert seen["error"]["name"] == "ZeroDivisionError" and seen["error"]["value"] == "division by zero"
    assert "\x1b[" in seen["error"]["traceback"] and seen["count"] == 3
    assert seen["env"] == "('1', '2')" and seen["envAfter"] is None
    assert seen["html"] == [{"json": {"a": [1, "ü"]}, "main": False}, {"html": "<b>ü</b>", "main": True}]
    assert [row["png"] for row in seen["plot"]] == ["PNG", None] and seen["plot"][0]["extra"] == {} and seen["plot"][1]["text"] == "3"
    assert seen["input"] == "StdinNotImplementedError"
    assert seen["cwd"] == "['here.txt']"
    assert seen["language"]["name"] == "SandboxError" and seen["python"] == "2"
    assert seen["timeout"]["name"] == "TimeoutError" and seen["afterTimeout"] == "42"
    assert seen["queued"] == ["1", "2"]
    assert seen["died"]["name"] == "SandboxError" and seen["died"]["value"] and seen["afterDeath"] == "42"


def test_bash(server):
    seen = observe(server, "bash")
    assert seen["first"] == {"count": 1, "logs": {"stdout": ["hello é\n"], "stderr": ["bad\n"]}, "heard": "hello é\n"}
    assert seen["state"] == ["/tmp 5 1 2\n"] and seen["envAfter"] == ["[]\n"]
    assert seen["error"] == {"name": "ExitError", "value": "3", "traceback": "exit status 3"}
    assert seen["context"]["language"] == "bash" and seen["cwd"] == ["/tmp\n"]
    assert seen["list"] == [["main", "python"], ["bash", "bash"], [seen["context"]["id"], "bash"]]
    assert seen["restarted"] == ["[]\n"] and seen["removed"]["name"] == "NotFoundError"
    assert seen["timeout"]["name"] == "TimeoutError" and seen["afterTimeout"] == ["[]\n"]
    assert seen["files"] == "made by bash\n"


def test_contexts(server):
    seen = observe(server, "contexts")
    assert seen["context"]["language"] == "python" and seen["context"]["cwd"] == seen["cwd"] == "/tmp"
    assert seen["other"] == seen["restarted"] == seen["mainRestarted"] == "NameError"
    assert seen["both"] == ["1", "2"]
    assert seen["list"] == ["main", seen["context"]["id"]] and seen["listThen"] == ["main"]
    assert seen["removed"]["name"] == seen["unknown"]["name"] == "NotFoundError"
    assert seen["removeMain"]["name"] == seen["javascript"]["name"] == "SandboxError"


def test_commands(server):
    seen = observe(server, "commands")
    assert seen["done"] == {"stdout": "out 1 2\n/tmp\n", "stderr": "err\n", "exitCode": 0} and seen["heard"] == "out 1 2\n/tmp\n"
    assert seen["failed"] == {"name": "CommandExitError", "exitCode": 3, "stdout": "before\n"}
    assert seen["home"] == "x\nmade.txt\n"
    assert seen["listed"] == [{"same": True, "cmd": "/bin/bash", "args": ["-l", "-c", "cat; echo end"]}]
    assert seen["cat"] == "typed\nmore\nend\n" and seen["connected"]
    assert seen["goesOn"] and seen["killed"] is True and seen["killedAgain"] is False
    assert seen["waited"] in ("NotFoundError", "CommandExitError")
    assert seen["timeout"]["name"] == "TimeoutError"
    assert "127" in seen["missing"]["message"]
    assert seen["large"] == 3_000_000 and seen["parallel"] == ["1\n", "2\n", "3\n"]


def test_terminals(server):
    seen = observe(server, "pty")
    assert seen == {"sizes": [True, True, True], "end": 5, "killed": True}


def test_files(server):
    seen = observe(server, "files")
    assert seen["written"] == {"name": "a.txt", "type": "file", "path": "/home/user/a.txt"}
    assert seen["read"] == seen["inside"] == "hello é"
    assert seen["many"] == ["/home/user/d/one", "/home/user/d/two"] and seen["empty"] == "" and seen["large"] and seen["octets"] == "octets"
    assert seen["missing"]["name"] == "FileNotFoundError"
    assert seen["outside"] == ["/tmp/o/one", "/home/user/between", "/tmp/o/two", "1", 50000]
    assert seen["refused"] == "InvalidArgumentError" and seen["tmpRead"] == "outside\n"
    assert seen["traversal"]["name"] == "InvalidArgumentError"
    assert seen["list"] == sorted(seen["list"], key=lambda row: row["name"])
    assert {row["name"]: row["type"] for row in seen["list"]} == {"a.txt": "file", "d": "dir", "empty": "file", "large.bin": "file", "octets": "file"}
    assert seen["deep"] == ["/home/user/d/one", "/home/user/d/two"] and seen["exists"] == [True, False, True]
    assert seen["info"] == {"name": "a.txt", "type": "file", "size": 8, "path": "/home/user/a.txt", "mode": 0o644,
                            "permissions": "-rw-r--r--", "owner": "user", "time": True}
    assert seen["made"] == [True, False] and seen["moved"] == ["/home/user/new/b.txt", False, "hello é"]
    assert seen["removed"] == [False, "FileNotFoundError"] and seen["tmp"] and seen["denied"] == "InvalidArgumentError"
    assert seen["listMissing"] == "FileNotFoundError"
    assert seen["watch"][:2] == ["create three", "write three"] and seen["watch"][-1] == "remove four", seen["watch"]
    assert {"rename three", "create four", "chmod four"} <= set(seen["watch"]), seen["watch"]
    assert "is gone" in seen["watchGone"][0] and seen["watchRefused"][0] == "FileNotFoundError" and "watch each" in seen["watchRefused"][1]


def test_signed_addresses(server):
    assert observe(server, "files")["urls"] == {"read": [200, "22"], "forged": 401, "bare": 401, "over": 401, "write": 200,
                                                "written": "uploaded"}


# --- by hand ---

class Sandbox:
    def __init__(self, server, token=TOKEN, path="/v2/sandboxes", **more):
        self.server, self.token = server, token
        answer = server.ask("POST", path, {"templateID": "base", **more}, {"X-API-Key": token})
        assert answer.status == 201, answer.body
        self.info = answer.json
        self.id = self.info["sandboxID"]

    def control(self, method, path="", body=None, token=None):
        return self.server.ask(method, "/sandboxes/" + self.id + path, body, {"X-API-Key": token or self.token})

    def ask(self, method, path, body=None, headers=None, port=ENVD):
        return self.server.ask(method, path, body, {**self.headers(port), **(headers or {})})

    def headers(self, port=ENVD):
        return {"E2b-Sandbox-Id": self.id, "E2b-Sandbox-Port": port, "X-Access-Token": self.info["envdAccessToken"]}

    def kill(self):
        assert self.control("DELETE").status == 204

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()


@pytest.fixture(scope="module")
def sandbox(server):
    with Sandbox(server, timeout=600) as made:
        yield made


def lines_of(answer):
    assert answer.status == 200 and answer.body.isascii() and answer.body.endswith(b"\n")
    return [json.loads(line) for line in answer.body.split(b"\n")[:-1]]


def error_of(answer, status):
    """E2B's: {"code", "message"}."""
    assert answer.status == status and answer.headers["Content-Type"] == "application/json", (answer.status, answer.body)
    assert list(answer.json) == ["code", "message"] and answer.json["code"] == status and "\n" not in answer.json["message"]
    return answer.json["message"]


def connect_error_of(answer, status, code):
    assert answer.status == status and list(answer.json) == ["code", "message"] and answer.json["code"] == code, answer.body
    return answer.json["message"]


def envelope(text, flags=0):
    data = text if isinstance(text, bytes) else json.dumps(text).encode()
    return struct.pack(">BI", flags, len(data)) + data


def stream(sandbox, method, body, **headers):
    answer = sandbox.ask("POST", "/process.Process/" + method, body, {"Content-Type": "application/connect+json", **headers})
    assert answer.status == 200 and answer.headers["Content-Type"] == "application/connect+json"
    found, rest = [], answer.body
    while rest:
        flags, n = struct.unpack(">BI", rest[:5])
        found.append((flags, json.loads(rest[5:5 + n])))
        rest = rest[5 + n:]
    assert [flags for flags, _ in found] == [0] * (len(found) - 1) + [2]
    return [message for _, message in found]


def test_lines(sandbox):
    lines = lines_of(sandbox.ask("POST", "/execute", {"code": "print('\\u2028é')\n'\\U0001f600'"}, port="49999"))
    assert [line["type"] for line in lines] == ["number_of_executions", "stdout", "result", "end_of_execution"]
    assert list(lines[0]) == ["type", "execution_count"] and list(lines[1]) == ["type", "text", "timestamp"]
    assert lines[1]["text"] == "\u2028é\n"
    assert lines[2] == {"type": "result", "is_main_result": True, "text": "\U0001f600", "extra": {}}


def test_stream_of_a_process(sandbox):
    start = {"process": {"cmd": "/bin/sh", "args": ["-c", "echo a; exit 4"]}}
    begin, data, end, last = stream(sandbox, "Start", envelope(start))
    assert begin["event"]["start"]["pid"] > 0 and base64.b64decode(data["event"]["data"]["stdout"]) == b"a\n"
    assert end["event"]["end"] == {"exitCode": 4, "exited": True, "status": "exit status 4", "error": "exit status 4"} and last == {}


def test_a_client_that_reads_slowly(sandbox):
    """The process waits for it, and nothing is lost; others of the sandbox do not."""
    connection = http.client.HTTPConnection("127.0.0.1", sandbox.server.port(), timeout=gateway.SECONDS)
    connection.request("POST", "/process.Process/Start",
                       envelope({"process": {"cmd": "/bin/sh", "args": ["-c", "head -c 33554432 /dev/zero; touch /tmp/over"]}}),
                       {**sandbox.headers(), "Content-Type": "application/connect+json"})
    answer = connection.getresponse()
    other = {"process": {"cmd": "/bin/sh", "args": ["-c", "sleep 2; test ! -e /tmp/over"]}}
    assert stream(sandbox, "Start", envelope(other))[-2]["event"]["end"]["exitCode"] == 0
    n, last = 0, None
    while head := answer.read(5):
        flags, size = struct.unpack(">BI", head)
        last = json.loads(answer.read(size))
        if not flags and "data" in last["event"]:
            n += len(base64.b64decode(last["event"]["data"]["stdout"]))
    assert (n, last) == (33554432, {})
    connection.close()


def test_directory_after_a_death(server):
    """A context begins where it was made for, with each interpreter."""
    with Sandbox(server) as made:
        context = made.ask("POST", "/contexts", {"cwd": "/tmp"}, port="49999").json["id"]
        where = {"code": "import os; print(os.getcwd())", "context_id": context}
        for code in (where, {"code": "import os; os._exit(3)", "context_id": context}, where):
            lines = lines_of(made.ask("POST", "/execute", code, port="49999"))
            if code is where:
                assert [line["text"] for line in lines if line["type"] == "stdout"] == ["/tmp\n"], lines
        assert made.ask("POST", "/contexts/%s/restart" % context, b"", port="49999").status == 200
        made.ask("POST", "/execute", {"code": "import os; os._exit(3)"}, port="49999")
        assert made.ask("POST", "/contexts/%s/restart" % context, b"", port="49999").status == 200
        assert made.ask("DELETE", "/contexts/" + context, port="49999").status == 200


def test_streams_that_are_silent(sandbox):
    """Nobody on the way takes them for dead: the words are those that E2B's own servers have for it."""
    start = {"process": {"cmd": "/bin/sh", "args": ["-c", "sleep 2.5; echo a"]}}
    messages = stream(sandbox, "Start", envelope(start), **{"Keepalive-Ping-Interval": "1"})
    signs = messages.count({"event": {"keepalive": {}}})
    assert 1 <= signs <= 12 and len(messages) == signs + 4 and "start" in messages[0]["event"], messages
    for nonsense in ("0", "x", "-1", "1e9", "99999999999999999999"):
        messages = stream(sandbox, "Start", envelope({"process": {"cmd": "sleep", "args": ["0.1"]}}), **{"Keepalive-Ping-Interval": nonsense})
        assert len(messages) == 3, messages
    lines = lines_of(sandbox.ask("POST", "/execute", {"code": "import time; time.sleep(7)"}, port="49999"))
    types = [line["type"] for line in lines]
    assert (types[0], set(types[1:-1]), types[-1]) == ("number_of_executions", {"keepalive"}, "end_of_execution"), types


def test_changes_that_do_not_come(sandbox):
    connection = http.client.HTTPConnection("127.0.0.1", sandbox.server.port(), timeout=gateway.SECONDS)
    connection.request("POST", "/filesystem.Filesystem/WatchDir", envelope({"path": "/home/user"}),
                       {**sandbox.headers(), "Content-Type": "application/connect+json", "Keepalive-Ping-Interval": "1"})
    answer = connection.getresponse()
    wanted = envelope(b'{"start":{}}') + 2 * envelope(b'{"keepalive":{}}')
    assert answer.status == 200 and answer.read(len(wanted)) == wanted
    connection.close()


def test_deadline_of_a_process(sandbox):
    messages = stream(sandbox, "Start", envelope({"process": {"cmd": "sleep", "args": ["1000"]}}), **{"Connect-Timeout-Ms": "300"})
    assert messages[-1]["error"]["code"] == "deadline_exceeded"
    assert sandbox.ask("POST", "/process.Process/List", {}).json == {"processes": []}


def test_litellm(server):
    """Its provider: creates by HTTP, executes at 49999-ID.DOMAIN with nulls, deletes."""
    answer = server.ask("POST", "/sandboxes", {"templateID": "code-interpreter-v1", "timeout": 300, "secure": True,
                                               "allow_internet_access": True}, {"X-API-Key": TOKEN})
    assert answer.status == 201 and answer.json["domain"] == "box.example" and answer.json["envdAccessToken"]
    made = answer.json
    connection = http.client.HTTPConnection("127.0.0.1", server.port(), timeout=gateway.SECONDS)
    host = "49999-%s.%s" % (made["sandboxID"], made["domain"])
    connection.request("POST", "/execute", json.dumps({"code": "print(6 * 7)", "context_id": None, "env_vars": None}),
                       {"Host": host, "Content-Type": "application/json", "X-Access-Token": made["envdAccessToken"]})
    got = connection.getresponse()
    lines = [json.loads(line) for line in got.read().splitlines()]
    assert got.status == 200 and lines[1]["text"] == "42\n" and lines[-1] == {"type": "end_of_execution"}
    connection.request("GET", "/health", headers={"Host": host.replace("box.example", "other.example")})
    assert connection.getresponse().status == 403
    connection.close()
    assert server.ask("DELETE", "/sandboxes/" + made["sandboxID"], headers={"X-API-Key": TOKEN}).status == 204


def test_litellm_by_httpx(server):
    """The same with the library that it uses: one client, and lines as they come."""
    httpx = support.module("httpx", "python3-httpx")
    base = "http://127.0.0.1:%d" % server.port()

    async def execute(client, made, code):
        host = "49999-%s.%s" % (made["sandboxID"], made["domain"])
        body = {"code": code, "context_id": None, "env_vars": None}
        headers = {"Host": host, "X-Access-Token": made["envdAccessToken"]}
        async with client.stream("POST", base + "/execute", json=body, headers=headers) as answer:
            assert answer.status_code == 200, await answer.aread()
            return [json.loads(line) async for line in answer.aiter_lines() if line.strip()]

    async def provide(number):
        async with httpx.AsyncClient(timeout=gateway.SECONDS) as client:
            answer = await client.post(base + "/sandboxes", headers={"X-API-Key": TOKEN}, json={
                "templateID": "code-interpreter-v1", "timeout": 300, "secure": True, "allow_internet_access": True})
            assert answer.status_code == 201, answer.text
            made = answer.json()
            await execute(client, made, "x = %d" % number)
            lines = await execute(client, made, "print(x, '\\u2028é')\n1 / 0")
            answer = await client.delete("%s/sandboxes/%s" % (base, made["sandboxID"]), headers={"X-API-Key": TOKEN})
            assert answer.status_code == 204
            again = await client.delete("%s/sandboxes/%s" % (base, made["sandboxID"]), headers={"X-API-Key": TOKEN})
            assert again.status_code == 404 and again.json()["code"] == 404
            return lines

    async def all_of_them():
        return await asyncio.gather(*(provide(number) for number in range(3)))

    for number, lines in enumerate(asyncio.run(all_of_them())):
        assert [line["type"] for line in lines] == ["number_of_executions", "stdout", "error", "end_of_execution"]
        assert lines[1]["text"] == "%d \u2028é\n" % number and lines[2]["name"] == "ZeroDivisionError"


# --- bash ---

def execute(sandbox, code, **more):
    return lines_of(sandbox.ask("POST", "/execute", {"code": code, **({} if "context_id" in more else {"language": "bash"}), **more}, port="49999"))


def said(lines, kind="stdout"):
    return "".join(line["text"] for line in lines if line["type"] == kind)


def failure_of(lines):
    """Name and value of its error; None where there is none. Nothing comes behind the end."""
    assert lines[-1] == {"type": "end_of_execution"} and [line["type"] for line in lines].count("end_of_execution") == 1, lines
    errors = [line for line in lines if line["type"] == "error"]
    assert all(list(line) == ["type", "name", "value", "traceback"] for line in errors) and len(errors) <= 1, lines
    return (errors[0]["name"], errors[0]["value"]) if errors else None


@pytest.fixture
def shells(server):
    """A sandbox of its own: what code does to its shell stays there."""
    with Sandbox(server, timeout=600) as made:
        yield made


def test_lines_of_bash(shells):
    lines = execute(shells, "echo 'h\u00e9 \u2028'; echo bad >&2")
    assert lines[0] == {"type": "number_of_executions", "execution_count": 1} and failure_of(lines) is None
    assert (said(lines), said(lines, "stderr")) == ("h\u00e9 \u2028\n", "bad\n") and list(lines[1]) == ["type", "text", "timestamp"]
    assert execute(shells, "false")[0]["execution_count"] == 2


def test_state_of_bash(shells):
    execute(shells, "X=5; export Y=6; cd /tmp; f() { echo \"f $1\"; }; alias g='f g'; set -o noclobber")
    assert said(execute(shells, "echo $X $PWD $(printenv Y); f 1; g; set -o | grep noclobber")).split() == "5 /tmp 6 f 1 f g noclobber on".split()
    assert said(execute(shells, "echo $A [$B]", env_vars={"A": "it's 'quoted' $X", "B": "2"})) == "it's 'quoted' $X [2]\n"
    assert said(execute(shells, "echo [$A]")) == "[]\n"
    assert said(execute(shells, "cat <<E\nhere $X\nE\n# a comment")) == "here 5\n"
    assert said(execute(shells, "x='%s'; echo ${#x}" % ("it'\\''s" * 20000))) == "80000\n"
    assert execute(shells, "echo")[0]["execution_count"] == 7


def test_where_bash_begins(shells):
    assert said(execute(shells, "pwd; echo 1 > made; ls -A")) == "/home/user\nmade\n"
    context = shells.ask("POST", "/contexts", {"language": "Bash", "cwd": "/tmp"}, port="49999").json
    assert (context["language"], context["cwd"]) == ("bash", "/tmp")
    assert said(execute(shells, "pwd; X=here", context_id=context["id"])) == "/tmp\n"
    assert said(execute(shells, "pwd; echo $X", context_id="bash")) == "/home/user\n\n"
    listed = shells.ask("GET", "/contexts", port="49999").json
    assert [(row["id"], row["language"]) for row in listed] == [("main", "python"), ("bash", "bash"), (context["id"], "bash")]
    assert shells.ask("POST", "/contexts/%s/restart" % context["id"], b"", port="49999").status == 200
    lines = execute(shells, "pwd; echo [$X]", context_id=context["id"])
    assert said(lines) == "/tmp\n[]\n" and lines[0]["execution_count"] == 1
    for one in ("bash", context["id"]):
        assert shells.ask("DELETE", "/contexts/" + one, port="49999").status == 200
        error_of(shells.ask("POST", "/execute", {"code": "1", "context_id": one}, port="49999"), 404)
    assert said(execute(shells, "cat made")) == "1\n"


def test_errors_of_bash(shells):
    execute(shells, "X=5")
    for code, status, words in (("exit_with() { return 3; }; exit_with", "3", ""), ("nonsuch", "127", "nonsuch: command not found"),
                                ("if true", "2", "syntax error"), ("echo 'open", "2", "unexpected EOF"), ("set -u; echo $nope", "1", "unbound"),
                                ("set +u; ${nope?missing}", "1", "missing")):
        lines = execute(shells, code)
        assert failure_of(lines) == ("ExitError", status) and words in said(lines, "stderr"), lines
        assert next(line for line in lines if line["type"] == "error")["traceback"] == "exit status " + status
    assert said(execute(shells, "echo $X; cat; read x || echo no input")) == "5\nno input\n"
    for code in ("A-B", "1A", "A B"):
        assert "no name of a variable in bash" in error_of(shells.ask("POST", "/execute", {"code": "1", "language": "bash", "env_vars": {code: ""}}), 400)
    assert "write a file" in error_of(shells.ask("POST", "/execute", {"code": "#" * (1 << 20) + "!", "language": "bash"}), 400)
    assert "python and bash" in error_of(shells.ask("POST", "/execute", {"code": "1", "language": "java"}), 400)
    assert failure_of(execute(shells, "")) is None


HOSTILE = {  # what ends the shell: its name and value; None: it goes on
    "exit 7": ("ExitError", "7"), "exit 0": (), "set -e; false; echo not": ("ExitError", "1"), "exec true": (),
    "kill -9 $$": ("SandboxError", "the shell was killed by signal 9; the next code finds another one"),
    "exec >/dev/null 2>&1; echo lost": None, "exec 8>&- 9>&-; exec 0<&- 1>&- 2>&-": None, "trap 'echo trapped' DEBUG EXIT; trap - DEBUG": None,
    "set -xv; set +xv": None, "break; continue": None, "printf() { :; }; eval() { :; }; alias eval=false": None, "PROMPT_COMMAND='echo prompt'; PS1=x": None,
    "sleep 1000 & disown; echo left": None, "printf '\\036aaaaaaaaaaaaaaaaaaaaa 0\\036'": None, "kill -INT $$; echo not": ("ExitError", "130"),
}


@pytest.mark.parametrize("code", HOSTILE)
def test_hostile_bash(shells, code):
    execute(shells, "X=kept")
    lines = execute(shells, code)
    wanted = HOSTILE[code]
    if wanted and wanted[1] == "130":
        assert failure_of(lines) == wanted and said(execute(shells, "echo [$X]")) == "[kept]\n"
        return
    assert failure_of(lines) == (wanted or None), lines
    assert said(execute(shells, "echo [$X]")) == ("[kept]\n" if wanted is None else "[]\n")
    assert said(lines_of(shells.ask("POST", "/execute", {"code": "import os; print(os.listdir('/home/user'))"}))) == "[]\n"


def test_bash_says_much(shells):
    """A client that reads slowly holds the shell; nothing is lost."""
    lines = execute(shells, "head -c 20000000 /dev/zero | tr '\\0' x; echo; echo end")
    assert said(lines) == "x" * 20000000 + "\nend\n" and failure_of(lines) is None
    raw = execute(shells, "head -c 3000000 /dev/urandom; printf '\\xff\\xc3\\n'")
    assert failure_of(raw) is None and said(raw).endswith("\ufffd\ufffd\n")


def test_bash_takes_turns(shells):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(execute, shells, "n=$((n + 1)); sleep 0.2; echo $n") for _ in range(5)]
        seen = sorted(said(one.result()) for one in asked)
    assert seen == ["%d\n" % n for n in range(1, 6)]
    context = shells.ask("POST", "/contexts", {"language": "bash"}, port="49999").json["id"]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(execute, shells, "echo begun > began; sleep 1000", context_id=context) for _ in range(3)]
        gateway.await_that(lambda: said(execute(shells, "ls /home/user")) == "began\n")
        assert shells.ask("DELETE", "/contexts/" + context, port="49999").status == 200
        assert {failure_of(one.result()) for one in asked} <= {("SandboxError", "the context was removed")}


def test_bash_in_a_sandbox_that_ends(server):
    """Who waits is told."""
    made = Sandbox(server)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(execute, made, "echo > began; sleep 1000") for _ in range(3)]
        gateway.await_that(lambda: "began" in said(lines_of(made.ask("POST", "/execute", {"code": "import os; print(os.listdir())"}))))
        made.kill()
        assert {failure_of(one.result())[0] for one in asked} == {"SandboxError"}


def test_time_limit_of_bash(tmp_path):
    """As Python's: an error of the same name. The shell is another one then."""
    policy = gateway.policy_file(tmp_path, "short", wall="5s")
    with Server(tmp_path, "--policy", policy, image="python") as short, Sandbox(short) as made:
        python = failure_of(lines_of(made.ask("POST", "/execute", {"code": "while True: pass"})))
        execute(made, "X=kept")
        for code in ("sleep 1000; echo not", "while :; do :; done", "trap '' INT TERM; while :; do :; done", "kill -STOP $$"):
            lines = execute(made, code)
            name, value = failure_of(lines)
            assert name == python[0] and "time limit of 5000 ms" in value and said(lines) == "", (lines, python)
            assert said(execute(made, "echo [$X]")) == "[]\n"


def leave(server, sandbox, code):
    """Begins @code, and closes the connection once it has said something."""
    body = json.dumps({"code": code, "language": "bash"}).encode()
    head = "POST /execute HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n" % len(body)
    with server.connect() as sock:
        sock.sendall((head + "".join("%s: %s\r\n" % row for row in sandbox.headers().items()) + "\r\n").encode() + body)
        while b"begun" not in sock.recv(65536):
            pass


def test_a_client_that_leaves_bash(server, shells):
    execute(shells, "X=kept")
    leave(server, shells, "echo begun; sleep 1000; echo > not")
    assert said(execute(shells, "echo [$X]; ls")) == "[]\n"
    for code in ["echo begun; yes"] * 10 + ["trap '' INT TERM; echo begun; while :; do :; done"]:
        leave(server, shells, code)
        assert said(execute(shells, "echo [$X]; X=kept")) == "[]\n"


def test_timeout_ends_it(server):
    made = Sandbox(server, timeout=1)
    gateway.await_that(lambda: made.control("GET").status == 404)
    assert made.ask("GET", "/health").status == 502


def test_whose_it_is(server, sandbox):
    gone = Sandbox(server)
    gone.kill()
    ids = {"forged": NOBODYS, "foreign": sandbox.id, "expired": gone.id}
    for method, path, body in (("GET", "", None), ("DELETE", "", None), ("POST", "/timeout", {"timeout": 5}), ("POST", "/pause", {}),
                               ("POST", "/connect", {}), ("GET", "/metrics", None), ("POST", "/fork", {})):
        answers = {kind: server.ask(method, "/sandboxes/" + one + path, body, {"X-API-Key": OTHER}) for kind, one in ids.items()}
        assert {(answer.status, answer.body) for answer in answers.values()} == {(404, answers["forged"].body)}, answers
        error_of(answers["forged"], 404)
    listed = server.ask("GET", "/v2/sandboxes", headers={"X-API-Key": OTHER})
    assert listed.status == 200 and listed.json == []
    sessions = server.ask("GET", "/v1/sessions", headers={"Authorization": "Bearer " + TOKEN}).json["sessions"]
    assert sessions and {session["idle_ms"] for session in sessions} == {None}, "a sandbox ends by its lifetime alone"
    assert sandbox.control("GET").json["state"] == "running"
    error_of(server.ask("GET", "/v2/sandboxes", headers={"X-API-Key": "e2b_00"}), 401)
    error_of(server.ask("GET", "/v2/sandboxes"), 401)


def test_without_the_access_token(server, sandbox):
    for token in ("", "x", sandbox.info["envdAccessToken"][:-1], sandbox.info["envdAccessToken"] + "x", TOKEN, "a" * 21):
        error_of(sandbox.ask("POST", "/execute", {"code": "1"}, {"X-Access-Token": token}), 401)
        connect_error_of(sandbox.ask("POST", "/process.Process/List", {}, {"X-Access-Token": token}), 401, "unauthenticated")
        error_of(sandbox.ask("GET", "/files?path=a", headers={"X-Access-Token": token}), 401)
    for one in (NOBODYS, "", "x", "A" * 26, "0" * 26, "../" + sandbox.id, sandbox.id + "a", sandbox.id[:-1]):
        error_of(sandbox.ask("POST", "/execute", {"code": "1"}, {"E2b-Sandbox-Id": one}), 404)
        error_of(sandbox.ask("GET", "/contexts", headers={"E2b-Sandbox-Id": one}), 404)


BODIES = [b"", b"{", b"[]", b"null", b"1", b"{\"code\":1}", b"{\"code\":\"\\u0000\"}", b"{\"code\":\"\xff\"}", b"{\"code\":\"\\ud800\"}",
          b"{" * 500, b"[" * 500, b"{\"a\":" * 40 + b"1" + b"}" * 40, b"{\"code\":\"1\",\"context_id\":\"main\",\"language\":\"python\"}",
          b"{\"code\":\"1\",\"env_vars\":[]}", b"{\"code\":\"1\",\"env_vars\":{\"\":\"\"}}", b"{\"code\":\"1\",\"env_vars\":{\"A=\":\"\"}}",
          b"{\"code\":\"1\",\"env_vars\":{\"A\":1}}", b"{\"code\":\"1\",\"language\":\"r\"}", b"{\"code\":\"1\",\"language\":\"sh\"}",
          b"{\"code\":\"\\u0000\",\"language\":\"bash\"}", b"{\"language\":\"bash\"}"]


@pytest.mark.parametrize("body", BODIES)
def test_malformed_code(sandbox, body):
    error_of(sandbox.ask("POST", "/execute", body, port="49999"), 400)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"{}", b"{\"templateID\":1}", b"{\"templateID\":\"base\",\"timeout\":-1}",
                                  b"{\"templateID\":\"base\",\"timeout\":1e30}", b"{\"templateID\":\"base\",\"timeout\":\"1\"}",
                                  b"{\"templateID\":\"base\",\"metadata\":{\"a\":1}}", b"{\"templateID\":\"base\",\"metadata\":[]}",
                                  b"{\"templateID\":\"base\",\"autoPause\":true}", b"{\"templateID\":\"base\",\"envVars\":{\"A\":null}}",
                                  b"{\"templateID\":\"base\",\"volumeMounts\":[{}]}", b"{\"templateID\":\"base\",\"mcp\":{}}"])
def test_malformed_creations(server, body):
    error_of(server.ask("POST", "/v2/sandboxes", body, {"X-API-Key": TOKEN}), 400)


GOOD = {"process": {"cmd": "true"}}


@pytest.mark.parametrize("body", [b"", b"\0", b"\0\0\0\0", b"\0\0\0\0\0", envelope(GOOD)[:-1], envelope(GOOD) + b"x", envelope(GOOD) * 2,
                                  envelope(GOOD, 1), envelope(GOOD, 2), envelope(b"{"), envelope(b"[]"), b"\0\xff\xff\xff\xff{}",
                                  envelope({}), envelope({"process": 1}), envelope({"process": {"cmd": 1}}), envelope({"process": {"cmd": ""}}),
                                  envelope({"process": {"cmd": "a\0b"}}), envelope({"process": {"cmd": "true", "args": "x"}}),
                                  envelope({"process": {"cmd": "true", "args": [1]}}), envelope({"process": {"cmd": "true", "args": ["\0"]}}),
                                  envelope({"process": {"cmd": "true", "cwd": "/a/../b"}}), envelope({"process": {"cmd": "true"}, "stdin": 1}),
                                  envelope({"process": {"cmd": "true"}, "pty": {"size": {"cols": -1}}}), json.dumps(GOOD).encode()])
def test_malformed_streams(sandbox, body):
    messages = stream(sandbox, "Start", body)
    assert len(messages) == 1 and messages[0]["error"]["code"] in ("invalid_argument", "not_found") and messages[0]["error"]["message"]


def test_other_codecs(sandbox):
    for kind in ("application/proto", "application/connect+proto", "application/grpc"):
        connect_error_of(sandbox.ask("POST", "/process.Process/List", b"{}", {"Content-Type": kind}), 415, "unimplemented")
    assert stream(sandbox, "Start", envelope(GOOD), **{"Content-Type": "application/connect+proto"})[-1]["error"]["code"] == "unimplemented"


def test_unknown_processes(sandbox):
    for selector in ({"pid": 0}, {"pid": 4294967295}, {"tag": "x"}, {}):
        for method, more in (("SendSignal", {"signal": "SIGNAL_SIGKILL"}), ("SendInput", {"input": {"stdin": "eA=="}}), ("CloseStdin", {}), ("Update", {})):
            connect_error_of(sandbox.ask("POST", "/process.Process/" + method, {"process": selector, **more}), 404, "not_found")
        assert stream(sandbox, "Connect", envelope({"process": selector}))[-1]["error"]["code"] == "not_found"
    connect_error_of(sandbox.ask("POST", "/process.Process/SendSignal", {"process": {"pid": -1}}), 400, "invalid_argument")


PATHS = ["..", "../etc/passwd", "/home/user/../../etc/passwd", "%2e%2e/x", "%2E%2E%2Fx", "a/%2e%2e/b", "a%2F..%2Fb", "", "a%00b", "%", "%zz",
         "x" * 5000]


@pytest.mark.parametrize("path", PATHS)
def test_traversal(sandbox, path):
    for method, body in (("GET", None), ("POST", b"x")):
        error_of(sandbox.ask(method, "/files?path=" + path, body, {"Content-Type": "application/octet-stream"}), 400)


def test_a_link_is_not_followed_by_an_upload(sandbox):
    assert stream(sandbox, "Start", envelope({"process": {"cmd": "ln", "args": ["-sf", "/etc", "/home/user/link"]}}))[-1] == {}
    answer = sandbox.ask("POST", "/files?path=link/x", b"x", {"Content-Type": "application/octet-stream"})
    assert answer.status == 400, answer.body
    for name in ("..", "/../x", "a/../../b"):
        connect_error_of(sandbox.ask("POST", "/filesystem.Filesystem/Stat", {"path": name}), 400, "invalid_argument")


def multipart(*parts, boundary="b"):
    text = b""
    for filename, data in parts:
        text += b"--%s\r\nContent-Disposition: form-data; name=\"file\"; filename=\"%s\"\r\n\r\n%s\r\n" % (boundary.encode(), filename, data)
    return text + b"--%s--\r\n" % boundary.encode()


def post_files(sandbox, body, kind="multipart/form-data; boundary=b", query=""):
    return sandbox.ask("POST", "/files" + query, body, {"Content-Type": kind})


def test_parts(sandbox):
    data = b"\r\n--x\r\r\n-" + bytes(range(256)) * 300
    answer = post_files(sandbox, multipart((b"p/one", data), (b"p/%22two%22", b""), (b"caf\xc3\xa9", b"3")))
    assert answer.status == 200 and [row["path"] for row in answer.json] == ["/home/user/p/one", "/home/user/p/\"two\"", "/home/user/café"]
    assert sandbox.ask("GET", "/files?path=p/one").body == data
    assert sandbox.ask("GET", "/files?path=p/%22two%22").body == b""


@pytest.mark.parametrize("is_whole", [True, False])
def test_parts_anywhere(sandbox, is_whole):
    """The sandbox opens each, while the others, which came with it, wait."""
    parts = [(b"/tmp/p/%d" % i if i % 2 else b"p%d" % i, b"%d" % i * 500) for i in range(120)]
    body = multipart(*parts) if is_whole else multipart(*parts)[:-30]
    if not is_whole:
        assert sandbox.ask("POST", "/filesystem.Filesystem/Remove", {"path": "/tmp/p"}).json == {}
        error_of(post_files(sandbox, body), 400)
        assert sandbox.ask("GET", "/files?path=/tmp/p/117").body == b"117" * 500
        assert sandbox.ask("GET", "/files?path=/tmp/p/119").status == 404  # it was not whole
        return
    answer = post_files(sandbox, body)
    assert answer.status == 200 and len(answer.json) == 120 and answer.json[1]["path"] == "/tmp/p/1"
    for i in (0, 1, 60, 119):
        assert sandbox.ask("GET", "/files?path=" + answer.json[i]["path"]).body == b"%d" % i * 500
    error_of(post_files(sandbox, multipart((b"/usr/x", b"1"))), 400)
    error_of(post_files(sandbox, multipart((b"/dev/null", b"1"))), 400)


@pytest.mark.parametrize("body,kind", [
    (multipart((b"whole", b"data"))[:-4], "multipart/form-data; boundary=b"),
    (b"--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"cut\"\r\n\r\ndata", "multipart/form-data; boundary=b"),
    (b"no boundary at all", "multipart/form-data; boundary=b"),
    (b"--b\r\n" + b"X: y\r\n" * 4000, "multipart/form-data; boundary=b"),
    (b"--bx\r\n\r\n", "multipart/form-data; boundary=b"),
    (multipart((b"../up", b"x")), "multipart/form-data; boundary=b"),
    (multipart((b"", b"x")), "multipart/form-data; boundary=b"),
    (multipart(*[(b"m", b"")] * 1101), "multipart/form-data; boundary=b"),
])
def test_malformed_parts(sandbox, body, kind):
    error_of(post_files(sandbox, body, kind), 400)
    assert sandbox.ask("GET", "/files?path=cut").status == 404


@pytest.mark.parametrize("kind", ["multipart/form-data", "multipart/form-data; boundary=", "multipart/form-data; boundary=" + "b" * 71,
                                  "application/json", "text/plain"])
def test_other_types_of_uploads(sandbox, kind):
    error_of(post_files(sandbox, multipart((b"a", b"b")), kind), 415)


def test_too_large(server, sandbox):
    with server.connect() as sock:
        sock.sendall(b"POST /execute HTTP/1.1\r\nHost: localhost\r\nE2b-Sandbox-Id: %s\r\nX-Access-Token: %s\r\nContent-Length: 999999999\r\n\r\n"
                     % (sandbox.id.encode(), sandbox.info["envdAccessToken"].encode()))
        error_of(gateway.parse(gateway.read_all(sock)), 413)


def test_other_methods_and_paths(server, sandbox):
    error_of(sandbox.ask("POST", "/files?path=a", b"x", {"Content-Type": "application/octet-stream", "Content-Encoding": "gzip"}), 415)
    assert server.ask("PUT", "/execute", b"", {"X-API-Key": TOKEN, "Authorization": "Bearer " + TOKEN}).status == 405


@pytest.mark.parametrize("method, path, word", [
    ("GET", "/snapshots", "snapshots"), ("GET", "/snapshots?limit=1", "snapshots"), ("GET", "/templates", "templates"),
    ("POST", "/templates", "templates"), ("POST", "/v3/templates", "templates"), ("GET", "/templates/x/builds/y/status", "templates"),
    ("DELETE", "/templates/" + NOBODYS, "templates"), ("PATCH", "/v2/templates/x", "templates"), ("GET", "/teams", "teams"),
    ("GET", "/teams/x/metrics", "teams"), ("GET", "/volumes", "volumes"), ("DELETE", "/volumes/x", "volumes")])
def test_what_is_not_here(server, method, path, word):
    body = {} if method in ("POST", "PATCH") else None
    assert "no " + word in error_of(server.ask(method, path, body, {"X-API-Key": TOKEN}), 501)
    error_of(server.ask(method, path, body, {"X-API-Key": "e2b_00"}), 401)


def test_snapshots_of_a_sandbox(server, sandbox):
    assert "cannot be copied" in error_of(sandbox.control("POST", "/snapshots", {}), 501)
    error_of(sandbox.control("POST", "/snapshots", {}, OTHER), 404)


def test_a_client_that_leaves(server, sandbox):
    """Its code is interrupted; its process goes on until it is ended."""
    body = json.dumps({"code": "import time\nprint('begun')\ntime.sleep(1000)"}).encode()
    head = b"POST %s HTTP/1.1\r\nHost: localhost\r\nE2b-Sandbox-Id: %s\r\nX-Access-Token: %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n"
    names = (sandbox.id.encode(), sandbox.info["envdAccessToken"].encode())
    with server.connect() as sock:
        sock.sendall(head % (b"/execute", *names, b"application/json", len(body)) + body)
        while b"begun" not in sock.recv(65536):
            pass
    assert lines_of(sandbox.ask("POST", "/execute", {"code": "6 * 7"}))[-2]["text"] == "42"
    body = envelope({"process": {"cmd": "sleep", "args": ["1000"]}, "tag": "sleeper"})
    with server.connect() as sock:
        sock.sendall(head % (b"/process.Process/Start", *names, b"application/connect+json", len(body)) + body)
        while b"start" not in sock.recv(65536):
            pass
    server.await_metric("hutch_http_exchanges", 1, {"Authorization": "Bearer " + TOKEN})
    assert [row.get("tag") for row in sandbox.ask("POST", "/process.Process/List", {}).json["processes"]] == ["sleeper"]
    assert sandbox.ask("POST", "/process.Process/SendSignal", {"process": {"tag": "sleeper"}, "signal": "SIGNAL_SIGKILL"}).json == {}
    gateway.await_that(lambda: sandbox.ask("POST", "/process.Process/List", {}).json == {"processes": []})


def test_prefix(tmp_path):
    with Server(tmp_path, "--format", "e2b=/e2b") as server:
        answer = server.ask("GET", "/e2b/v2/sandboxes")
        assert answer.status == 200 and answer.json == []
        assert server.ask("GET", "/v2/sandboxes").status == 404
