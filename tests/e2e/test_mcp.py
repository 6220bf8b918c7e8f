"""hutch mcp, from outside: raw messages as clients send them, and such as none should send."""
import base64
import json
import os
import select
import signal
import subprocess
import threading
import time

import pytest

import engine
import support
from support import HUTCH

SECONDS = 120  # for anything that has to happen at all
TOOLS = ["run_python", "run_command", "list_files", "read_file", "write_file"]
MODERN = "2026-07-28"
META = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {}}

# As the clients write them: @modelcontextprotocol/sdk 1.32.2 and @modelcontextprotocol/client 2.4.0.
INITIALIZE = (b'{"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}},'
              b'"jsonrpc":"2.0","id":0}')
INITIALIZED = b'{"method":"notifications/initialized","jsonrpc":"2.0"}'
LEGACY_CALL = (b'{"method":"tools/call","params":{"name":"run_python","arguments":{"code":"print(2)"},"_meta":{"progressToken":2}},'
               b'"jsonrpc":"2.0","id":2}')
DISCOVER = (b'{"jsonrpc":"2.0","id":"server-discover-probe-1","method":"server/discover","params":{"_meta":{'
            b'"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},'
            b'"io.modelcontextprotocol/clientCapabilities":{}}}}')
MODERN_LIST = (b'{"method":"tools/list","jsonrpc":"2.0","id":0,"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
               b'"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}')
MODERN_CALL = (b'{"method":"tools/call","params":{"name":"run_python","arguments":{"code":"1"},"_meta":{'
               b'"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},'
               b'"io.modelcontextprotocol/clientCapabilities":{}}},"jsonrpc":"2.0","id":1}')


class Server:
    """hutch mcp, and a client of it. Every line that it writes has to be a message."""

    def __init__(self, *args, opens=True):
        self.process = subprocess.Popen([HUTCH, "mcp", *map(str, args)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.buffer, self.last_id, self.progress, self.messages = b"", 100, [], []
        self.errors = []
        self.reader = threading.Thread(target=lambda: self.errors.append(self.process.stderr.read()))
        self.reader.start()
        if opens:
            self.write(INITIALIZE, INITIALIZED)
            assert self.read()["result"]["serverInfo"]["name"] == "hutch"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.reader.join()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            try:
                stream.close()
            except BrokenPipeError:
                pass

    def write(self, *lines):
        for line in lines:
            self.process.stdin.write((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n")
        self.process.stdin.flush()

    def read(self, seconds=SECONDS):
        """The next message, None when there is none in time."""
        deadline = time.monotonic() + seconds
        while b"\n" not in self.buffer:
            if not select.select([self.process.stdout], [], [], max(0, deadline - time.monotonic()))[0]:
                return None
            data = os.read(self.process.stdout.fileno(), 1 << 20)
            assert data, "the server has ended: %r" % self.process.wait()
            self.buffer += data
        line, _, self.buffer = self.buffer.partition(b"\n")
        message = json.loads(line.decode("utf-8"))
        assert message["jsonrpc"] == "2.0"
        return message

    def request(self, method, params=None, **more):
        self.last_id += 1
        self.write({"jsonrpc": "2.0", "id": self.last_id, "method": method, **({} if params is None else {"params": params}), **more})
        return self.last_id

    def answer(self, number):
        """The answer to request @number. What else comes is kept."""
        while True:
            message = self.read()
            assert message is not None, "no answer to %r" % number
            if message.get("id") == number:
                return message
            (self.progress if message.get("method") == "notifications/progress" else self.messages).append(message)

    def ask(self, method, params=None):
        return self.answer(self.request(method, params))

    def begin(self, tool, token=None, **arguments):
        return self.request("tools/call", {"name": tool, "arguments": arguments, **({"_meta": {"progressToken": token}} if token is not None else {})})

    def call(self, tool, token=None, **arguments):
        message = self.answer(self.begin(tool, token, **arguments))
        assert "result" in message, message
        return message["result"]

    def python(self, code, **more):
        return self.call("run_python", code=code, **more)

    def value(self, code, **more):
        result = self.python(code, **more)
        assert result["isError"] is False, result
        return result["structuredContent"]["result"]

    def cancel(self, number):
        self.write({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number, "reason": "stop"}})

    def end(self):
        """The client goes. Returns the exit status and what was written to standard error."""
        self.process.stdin.close()
        status = self.process.wait(SECONDS)
        self.reader.join()
        return status, self.errors[0].decode()


def text_of(result):
    return "\n".join(item["text"] for item in result["content"] if item["type"] == "text")


@pytest.fixture(scope="module")
def shared():
    with Server() as server:
        yield server
        assert server.end() == (0, "")
        assert server.messages == []


# --------------------------------------------------------------------------------------------------
# The protocol

def test_legacy_as_captured():
    with Server(opens=False) as server:
        server.write(INITIALIZE)
        result = server.read()
        assert result["id"] == 0
        assert result["result"]["protocolVersion"] == "2025-11-25"
        assert result["result"]["capabilities"] == {"tools": {}}
        assert result["result"]["instructions"]
        server.write(INITIALIZED, b'{"method":"tools/list","jsonrpc":"2.0","id":1}')
        result = server.read()
        assert result["id"] == 1 and set(result["result"]) == {"tools"}
        assert [tool["name"] for tool in result["result"]["tools"]] == TOOLS
        server.write(LEGACY_CALL)
        result = server.answer(2)["result"]
        assert text_of(result) == "2" and result["isError"] is False and "resultType" not in result
        assert [message["params"]["progressToken"] for message in server.progress] == [2] * len(server.progress)
        server.write(b'{"method":"ping","jsonrpc":"2.0","id":3}')
        assert server.read() == {"jsonrpc": "2.0", "id": 3, "result": {}}
        assert server.end() == (0, "")


def test_modern_as_captured():
    with Server(opens=False) as server:
        server.write(DISCOVER)
        message = server.read()
        assert message["id"] == "server-discover-probe-1"
        result = message["result"]
        assert result["resultType"] == "complete" and result["supportedVersions"] == [MODERN] and result["capabilities"] == {"tools": {}}
        assert isinstance(result["ttlMs"], int) and result["cacheScope"] == "public"
        assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "hutch"
        server.write(MODERN_LIST)
        result = server.read()["result"]
        assert result["resultType"] == "complete" and result["cacheScope"] == "public" and len(result["tools"]) == len(TOOLS)
        server.write(MODERN_CALL)
        result = server.read()["result"]
        assert result["resultType"] == "complete" and result["structuredContent"]["result"] == "1"
        # What the newer era does not have.
        for method in ("ping", "initialize", "logging/setLevel"):
            assert server.ask(method, {"_meta": META})["error"]["code"] == -32601
        assert server.end() == (0, "")


def test_a_probe_starts_nothing():
    """Some clients start a second server only to ask which era it speaks."""
    with Server(opens=False) as server:
        server.write(DISCOVER)
        assert server.read()["result"]
        assert support.descendants(server.process.pid) == set()
        server.process.terminate()
        assert server.process.wait(SECONDS) == 128 + signal.SIGTERM


@pytest.mark.parametrize("asked,given", [("2024-11-05", "2024-11-05"), ("2025-03-26", "2025-03-26"), ("2025-06-18", "2025-06-18"),
                                         ("2025-11-25", "2025-11-25"), ("1999-01-01", "2025-11-25"), (MODERN, "2025-11-25"), ("x" * 5000, "2025-11-25")])
def test_versions(asked, given):
    with Server(opens=False) as server:
        message = server.ask("initialize", {"protocolVersion": asked, "capabilities": {}})
        assert message["result"]["protocolVersion"] == given


def test_unsupported_modern_version():
    with Server(opens=False) as server:
        meta = {**META, "io.modelcontextprotocol/protocolVersion": "2031-01-01"}
        error = server.ask("tools/list", {"_meta": meta})["error"]
        assert error["code"] == -32022 and error["data"] == {"supported": [MODERN], "requested": "2031-01-01"}
        for wrong in ({**META, "io.modelcontextprotocol/protocolVersion": 7}, {"io.modelcontextprotocol/protocolVersion": MODERN},
                      {**META, "io.modelcontextprotocol/clientCapabilities": None}):
            assert server.ask("tools/list", {"_meta": wrong})["error"]["code"] == -32602


def test_order():
    with Server(opens=False) as server:
        for method in ("tools/list", "tools/call", "server/discover"):
            assert server.ask(method, {})["error"]["code"] == -32602
        assert server.ask("ping")["result"] == {}
        server.write(INITIALIZE)
        assert server.read()["id"] == 0
        assert server.ask("initialize", {"protocolVersion": "2025-11-25"})["error"]["code"] == -32600
        assert server.ask("server/discover", {})["error"]["code"] == -32601
        assert server.ask("tools/list", {"cursor": "x"})["error"]["code"] == -32602


def test_tools_are_described(shared):
    tools = shared.ask("tools/list", {})["result"]["tools"]
    assert [tool["name"] for tool in tools] == TOOLS
    for tool in tools:
        assert tool["title"] and tool["description"] and isinstance(tool["annotations"]["openWorldHint"], bool)
        schema = tool["inputSchema"]
        assert schema["type"] == "object" and schema["additionalProperties"] is False and "session_id" in schema["properties"]
        assert set(schema["required"]) <= set(schema["properties"])
        for row in schema["properties"].values():
            assert row["type"] in ("string", "number", "integer") and row["description"]
        if "outputSchema" in tool:
            assert set(tool["outputSchema"]["required"]) <= set(tool["outputSchema"]["properties"])
    assert shared.ask("tools/list", {})["result"]["tools"] == tools


@pytest.mark.parametrize("number", [0, -5, 12345678901234567, "a", "", "\u00e9\"\\", "server-discover-probe-1", "7"])
def test_ids_come_back(shared, number):
    shared.write({"jsonrpc": "2.0", "id": number, "method": "ping"})
    message = shared.read()
    assert message["id"] == number and type(message["id"]) is type(number)


def test_batch():
    """Only one revision has arrays of messages."""
    batch = [{"jsonrpc": "2.0", "id": 1, "method": "ping"}, {"jsonrpc": "2.0", "method": "notifications/x"}, 5,
             {"jsonrpc": "2.0", "id": 2, "method": "nothing"}]
    with Server(opens=False) as server:
        assert server.ask("initialize", {"protocolVersion": "2025-03-26"})["result"]
        server.write(batch)
        assert server.read() == {"jsonrpc": "2.0", "id": 1, "result": {}}
        assert server.read()["error"]["code"] == -32600
        assert server.read()["error"]["code"] == -32601
        for wrong in ([], [batch[0]] * 65):
            server.write(wrong)
            assert server.read()["error"]["code"] == -32600
    with Server() as server:
        server.write(batch)
        assert server.read()["error"]["code"] == -32600


# --------------------------------------------------------------------------------------------------
# run_python

def test_state_stays(shared):
    assert shared.value("kept = 6\nkept * 7") == "42"
    result = shared.python("import sys; print('out', kept); print('err', file=sys.stderr)")
    content = result["structuredContent"]
    assert (content["status"], content["stdout"], content["stderr"], content["result"]) == ("ok", "out 6\n", "err\n", None)
    assert content["fresh"] is False and content["truncated"] is False and content["session_id"]
    assert "out 6" in text_of(result) and "err" in text_of(result)


def test_exception(shared):
    result = shared.python("a = {}\na['x']")
    assert result["isError"] is True
    content = result["structuredContent"]
    assert content["status"] == "error" and content["error"]["name"] == "KeyError" and content["error"]["line"] == 2
    assert "KeyError" in content["error"]["traceback"] and "line 2" in text_of(result)


def test_image(shared):
    result = shared.python("import matplotlib.pyplot as plt\nplt.plot([1, 3, 2])\nplt.show()")
    images = [item for item in result["content"] if item["type"] == "image"]
    assert len(images) == 1 and images[0]["mimeType"] == "image/png" and result["structuredContent"]["images"] == 1
    assert base64.b64decode(images[0]["data"], validate=True).startswith(b"\x89PNG\r\n\x1a\n")


def test_hostile_images(shared):
    """What is no image would make the next request to a model fail."""
    result = shared.python("from IPython.display import display\n"
                           "import base64\n"
                           "for data in ('!!!', base64.b64encode(b'hello').decode(), 'iVBORw0KGgo=', ''):\n"
                           "    display({'image/png': data}, raw=True)\n"
                           "for i in range(20):\n"
                           "    display({'image/gif': base64.b64encode(b'GIF89a' + bytes(50)).decode()}, raw=True)\n")
    kinds = [item["type"] for item in result["content"]]
    assert kinds.count("image") == 16 and result["structuredContent"]["images"] == 16
    assert text_of(result).count("is left out") == 8
    result = shared.python("import base64, os\n"
                           "display({'image/gif': base64.b64encode(b'GIF89a' + os.urandom(5 << 20)).decode()}, raw=True)\n")
    assert "image" not in [item["type"] for item in result["content"]] and "4 MiB" in text_of(result)


def test_hostile_output(shared):
    """Neither what is no text nor what looks like a message of the protocol gets out of its string."""
    result = shared.python("import os, sys\n"
                           "os.write(1, b'\\xff\\xc3(\\0\\x1b[31m\\n{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\\n\\xe2\\x80\\xae')\n"
                           "print('\\ud800')")
    content = result["structuredContent"]
    assert '{"jsonrpc":"2.0","id":1,"result":{}}\n' in content["stdout"] and "\x00" in content["stdout"] and "\ufffd" in content["stdout"]
    content["stdout"].encode("utf-8")


def test_much_output_is_cut(shared):
    result = shared.python("print('begin' + 'x' * 1000000 + 'end')")
    content = result["structuredContent"]
    assert content["truncated"] is True and len(content["stdout"]) < 20000
    assert content["stdout"].startswith("begin") and content["stdout"].endswith("end\n") and "are left out" in content["stdout"]
    assert len(text_of(result)) < 20000


def test_a_dead_interpreter_is_told(shared):
    session = shared.python("before = 1", session_id="new")["structuredContent"]["session_id"]
    result = shared.python("import os; os._exit(3)", session_id=session)
    assert result["isError"] and result["structuredContent"]["interpreter_died"] and "exit code 3" in result["structuredContent"]["message"]
    result = shared.python("'before' in dir()", session_id=session)
    assert result["structuredContent"]["result"] == "False" and result["structuredContent"]["fresh"] is True


def test_time_limit(shared):
    result = shared.python("while True: pass", timeout=0.3)
    assert result["isError"] and result["structuredContent"]["status"] == "timeout"
    assert "kept" in shared.value("globals().setdefault('kept', 1); 'kept'")
    assert "30 seconds" in text_of(shared.python("1", timeout=31))


# --------------------------------------------------------------------------------------------------
# Sessions, commands, files

def test_sessions(shared):
    first = shared.python("x = 'first'")["structuredContent"]["session_id"]
    second = shared.python("x = 'second'", session_id="new")["structuredContent"]["session_id"]
    assert first != second and len(second) == 21
    assert (shared.value("x", session_id=first), shared.value("x", session_id=second), shared.value("x")) == ("'first'", "'second'", "'first'")
    for wrong in ("nothing", "", second[:-1], second + "x", second.swapcase(), "../" + second, "main"):
        result = shared.python("x", session_id=wrong)
        assert result["isError"] and "there is no session" in text_of(result)


def test_too_many_sessions():
    with Server() as server:
        ids = {server.python("1", session_id="new")["structuredContent"]["session_id"] for _ in range(8)}
        assert len(ids) == 8
        result = server.python("1", session_id="new")
        assert result["isError"] and "8 sessions" in text_of(result)
        assert server.value("2", session_id=ids.pop()) == "2"


def test_command(shared):
    result = shared.call("run_command", command="echo out; echo err >&2; pwd; exit 3")
    content = result["structuredContent"]
    assert (content["status"], content["exit_code"], content["stdout"], content["stderr"]) == ("error", 3, "out\n/mnt/data\n", "err\n")
    assert result["isError"] and "[exit code 3]" in text_of(result)
    result = shared.call("run_command", command="cat; printf '%s' \"it's \\\"quoted\\\" \u00e9 $((6 * 7))\"")
    assert result["structuredContent"]["stdout"] == "it's \"quoted\" \u00e9 42" and result["isError"] is False
    assert shared.call("run_command", command="kill -9 $$")["structuredContent"]["exit_code"] == 137


def await_no_sleep(server):
    """A command's group is killed at its end, and is gone a moment later."""
    deadline = time.monotonic() + SECONDS
    while server.call("run_command", command="grep -ls sleep /proc/[0-9]*/comm")["structuredContent"]["stdout"]:
        assert time.monotonic() < deadline, "a process goes on"
        time.sleep(0.05)


def test_command_takes_its_time(shared):
    """Its whole process group ends with it."""
    result = shared.call("run_command", command="sleep 1000 & sleep 1000", timeout=0.5)
    assert result["structuredContent"]["status"] == "timeout" and result["structuredContent"]["exit_code"] is None
    await_no_sleep(shared)


def test_forged_exit_codes(shared):
    """Code decides what its own session is told, and no more."""
    session = shared.python("1", session_id="new")["structuredContent"]["session_id"]
    shared.python("import subprocess\nsubprocess.Popen = None", session_id=session)
    result = shared.call("run_command", command="true", session_id=session)
    assert result["isError"] and result["structuredContent"]["exit_code"] is None and "TypeError" in text_of(result)
    assert shared.call("run_command", command="true")["structuredContent"]["exit_code"] == 0


def test_files(shared):
    session = shared.call("write_file", path="table.csv", content="a,b\n1,\u00e9\n", session_id="new")["structuredContent"]["session_id"]
    more = {"session_id": session}
    assert shared.value("open('table.csv', encoding='utf-8').read()", **more) == repr("a,b\n1,\u00e9\n")
    assert text_of(shared.call("read_file", path="/mnt/data/table.csv", **more)) == "a,b\n1,\u00e9\n"
    assert "a,b" in text_of(shared.call("read_file", path="./table.csv", **more))
    data = bytes(range(256)) * 300
    result = shared.call("write_file", path="bytes.bin", content=base64.b64encode(data).decode(), encoding="base64", **more)
    assert result["structuredContent"]["size"] == len(data)
    result = shared.call("read_file", path="bytes.bin", length=1000, offset=5, **more)
    resource = result["content"][0]["resource"]
    assert base64.b64decode(resource["blob"]) == data[5:1005] and resource["uri"] == "file:///mnt/data/bytes.bin"
    assert "[bytes 5 to 1005 of %d]" % len(data) in text_of(result)
    listed = shared.call("list_files", **more)
    assert [(row["path"], row["size"]) for row in listed["structuredContent"]["files"]] == [("bytes.bin", len(data)), ("table.csv", 9)]
    assert "table.csv  9 bytes" in text_of(listed)


def test_a_cut_character_is_left_for_later(shared):
    more = {"session_id": shared.call("write_file", path="e", content="\u00e9" * 10, session_id="new")["structuredContent"]["session_id"]}
    result = shared.call("read_file", path="e", length=3, **more)
    assert text_of(result) == "\u00e9\n[bytes 0 to 2 of 20]"
    assert text_of(shared.call("read_file", path="e", offset=20, **more)) == "[the file ends before this offset]"


def test_an_image_is_read_as_one(shared):
    shared.python("import matplotlib.pyplot as plt\nplt.plot([1, 3, 2])\nplt.savefig('plot.png')\nplt.close()")
    item = shared.call("read_file", path="plot.png")["content"][0]
    assert item["type"] == "image" and base64.b64decode(item["data"]).startswith(b"\x89PNG")


@pytest.mark.parametrize("path", ["../../etc/passwd", "/etc/passwd", "/mnt/data/../../etc/passwd", "link", "linked/passwd", "pipe", "", ".",
                                  "/mnt/data", "/mnt/data/", "/mnt/data//etc/passwd", "sub", "a" * 5000, "no/../such"])
def test_paths_stay_inside(shared, path):
    if shared.python("'link'")["isError"] is False:
        shared.call("run_command", command="ln -sf /etc/passwd link; ln -sfn /etc linked; [ -p pipe ] || mkfifo pipe; mkdir -p sub")
    result = shared.call("read_file", path=path)
    assert result["isError"] is True and "root:" not in text_of(result)
    result = shared.call("write_file", path=path, content="x")
    assert result["isError"] is True or path in ("link", "linked/passwd"), result


def test_files_while_code_runs(shared):
    number = shared.begin("run_python", code="import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\n'gone'")
    assert shared.call("write_file", path="go", content="")["isError"] is False
    assert shared.answer(number)["result"]["structuredContent"]["result"] == "'gone'"


@pytest.mark.parametrize("tool,arguments,says", [
    ("run_python", {}, "'code' is missing"), ("run_python", {"code": 5}, "'code' has to be a string"), ("run_python", {"code": None}, "'code' has to be"),
    ("run_python", {"code": "1", "x": 1}, "there is no argument \"x\""), ("run_python", {"code": "1", "timeout": "5"}, "'timeout' has to be a number"),
    ("run_python", {"code": "1", "timeout": 0}, "between 0.001 and 86400"), ("run_python", {"code": "1", "timeout": -1}, "between"),
    ("run_python", {"code": "a\0b"}, "NUL"), ("run_python", {"code": "1", "session_id": ["new"]}, "'session_id' has to be a string"),
    ("read_file", {"path": "x", "offset": 1.5}, "whole number"), ("read_file", {"path": "x", "length": 1 << 30}, "between 1 and"),
    ("write_file", {"path": "x", "content": "!", "encoding": "base64"}, "not base64"), ("write_file", {"path": "x", "content": "", "encoding": "b"}, "utf-8"),
    ("run_command", {"command": "x\0y"}, "NUL"), ("list_files", {"path": "x"}, "there is no argument"),
])
def test_wrong_arguments_are_told_to_the_model(shared, tool, arguments, says):
    result = shared.call(tool, **arguments)
    assert result["isError"] is True and says in text_of(result) and "structuredContent" not in result


def test_null_is_what_models_write_for_nothing(shared):
    assert shared.value("1 + 1", timeout=None, session_id=None) == "2"


# --------------------------------------------------------------------------------------------------
# Progress and cancellation

@pytest.mark.parametrize("token", [7, "a token", 0])
def test_progress(shared, token):
    shared.progress = []
    shared.call("run_command", command="rm -f go*")
    code = ("import os, time\nfor i in range(3):\n    print('line', i, '\u00e9')\n"
            "    while not os.path.exists('go%d' % i): time.sleep(0.01)")
    number = shared.begin("run_python", token=token, code=code)
    for i in range(3):  # each line comes while the code goes on
        while "line %d \u00e9\n" % i not in "".join(row["params"].get("message", "") for row in shared.progress):
            shared.progress.append(shared.read())
        shared.call("write_file", path="go%d" % i, content="")
    result = shared.answer(number)["result"]
    params = [message["params"] for message in shared.progress]
    assert len(params) >= 3
    assert all(row["progressToken"] == token and type(row["progressToken"]) is type(token) for row in params)
    assert [row["progress"] for row in params] == list(range(1, len(params) + 1))
    # What came last may be in the result alone.
    assert result["structuredContent"]["stdout"].startswith("".join(row.get("message", "") for row in params))
    assert shared.read(0.2) is None


def test_progress_is_asked_for(shared):
    shared.progress = []
    shared.python("import time\nfor i in range(3):\n    print(i)\n    time.sleep(0.1)")
    assert shared.progress == []


def test_cancel(shared):
    shared.value("kept = 'still here'; 1")
    number = shared.begin("run_python", token=5, code="import time\nprint('begun')\ntime.sleep(1000)")
    while "begun" not in (message := shared.read())["params"].get("message", ""):
        assert message["method"] == "notifications/progress"
    waits = shared.begin("run_python", code="kept = 'overwritten'")
    shared.cancel(waits)
    shared.cancel(number)
    assert shared.value("kept") == "'still here'"
    assert shared.read(0.2) is None
    for nonsense in (number, 4711, "x", None, [], {}):
        shared.cancel(nonsense)
    assert shared.ask("ping")["result"] == {}


def test_cancel_of_what_does_not_listen():
    with Server() as server:
        number = server.begin("run_python", token=1, code="import time\nprint('begun')\nwhile True:\n    try:\n        time.sleep(1000)\n"
                                                          "    except BaseException: pass")
        while "begun" not in server.read()["params"].get("message", ""):
            pass
        server.cancel(number)
        result = server.python("'begun'")
        assert result["structuredContent"]["result"] == "'begun'"
        assert result["structuredContent"]["fresh"] is True and "did not stop" in text_of(result)
        assert server.python("1")["structuredContent"]["fresh"] is False
        assert server.progress == [] and server.messages == []
        assert server.end() == (0, "")


def test_cancel_at_once():
    """Before the session has begun, before the code has, or when it has just begun."""
    with Server() as server:
        for pause in (0, 0, 0.001, 0.002, 0.005, 0.01, 0.05):
            number = server.begin("run_python", code="import time; time.sleep(1000)")
            time.sleep(pause)
            server.cancel(number)
            assert server.python("1")["structuredContent"]["fresh"] is False
        assert server.messages == []
        assert server.end() == (0, "")


def test_cancel_of_a_command(shared):
    number = shared.begin("run_command", token=1, command="echo begun; sleep 1000")
    while "begun" not in shared.read()["params"].get("message", ""):
        pass
    shared.cancel(number)
    await_no_sleep(shared)


def test_calls_in_flight():
    with Server() as server:
        first = server.begin("run_python", code="import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)")
        rest = [server.begin("run_python", code=str(i)) for i in range(31)]
        result = server.python("'one too many'")
        assert result["isError"] and "32 calls" in text_of(result)
        server.write({"jsonrpc": "2.0", "id": rest[0], "method": "tools/call", "params": {"name": "run_python", "arguments": {"code": "1"}}})
        assert server.answer(rest[0])["error"]["code"] == -32602
        for number in rest[1:]:
            server.cancel(number)
        # Files can be reached also while the first call of a session runs.
        assert server.call("write_file", path="go", content="")["isError"] is False
        server.answer(first)
        assert server.answer(rest[0])["result"]["structuredContent"]["result"] == "0"
        assert server.value("'after'") == "'after'"


# --------------------------------------------------------------------------------------------------
# Hostile clients

HOSTILE = [
    (b"{", -32700), (b"nonsense", -32700), (b'{"jsonrpc":"2.0","id":1,"method":"ping"} {}', -32700), (b"\xff\xfe", -32700), (b"[" * 100000, -32700),
    (b'{"a":' * 65 + b"1" + b"}" * 65, -32700), (b'{"jsonrpc":"2.0","id":1,"method":"\\ud800"}', -32700), (b'{"jsonrpc":"2.0","id":01,"method":"ping"}', -32700),
    (b"NaN", -32700), (b"\0", -32700), (b'{"jsonrpc":"2.0","id":1,"method":"ping",}', -32700), (b'{"jsonrpc":"2.0","id":"\n', -32700),
    (b"5", -32600), (b"[]", -32600), (b"{}", -32600), (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600), (b'{"id":1,"method":"ping"}', -32600),
    (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600), (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600),
    (b'{"jsonrpc":"2.0","id":1e3,"method":"ping"}', -32600), (b'{"jsonrpc":"2.0","id":[1],"method":"ping"}', -32600),
    (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600), (b'{"jsonrpc":"2.0","id":"' + b"x" * 300 + b'","method":"ping"}', -32600),
    (b'{"jsonrpc":"2.0","id":1,"method":5}', -32600), (b'{"jsonrpc":"2.0","id":1}', -32600), (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}', -32600),
    (b'{"jsonrpc":"2.0","id":1,"method":"ping","method":"x"}', -32600), (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}', -32602),
    (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":"x"}', -32602), (b'{"jsonrpc":"2.0","id":1,"method":"rpc.discover"}', -32601),
    (b'{"jsonrpc":"2.0","id":1,"method":"' + b"x" * 5000 + b'"}', -32601), (b'{"jsonrpc":"2.0","id":1,"method":"ping\\u0000"}', -32601),
    (b'{"jsonrpc":"2.0","id":1,"method":"resources/list"}', -32601), (b'{"jsonrpc":"2.0","id":1,"method":"notifications/cancelled"}', -32601),
    (b'{"jsonrpc":"2.0","id":1,"method":"tools/call"}', -32602), (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}', -32602),
    (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run_python","arguments":[]}}', -32602),
    (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":5}}', -32602),
    (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"run_python","arguments":{"code":"1"},"_meta":{"progressToken":[]}}}', -32602),
]


@pytest.mark.parametrize("row", range(len(HOSTILE)))
def test_hostile_messages(shared, row):
    line, code = HOSTILE[row]
    shared.write(line)
    if line.endswith(b"\n"):
        assert shared.read()["error"]["code"] == code  # and the rest of the line is a blank one
        shared.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
        assert shared.read()["id"] == 1
        return
    message = shared.read()
    assert message["error"]["code"] == code and message["error"]["message"], message
    assert message.get("id", 1) in (1, 2)


def test_what_nobody_waits_for_is_not_answered(shared):
    shared.write(b"", b"  \r", b'{"jsonrpc":"2.0","method":"notifications/nonsense"}', b'{"jsonrpc":"2.0","method":"tools/list"}',
                 b'{"jsonrpc":"2.0","id":1,"result":{}}', b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}',
                 b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":5}')
    assert shared.read()["error"]["code"] == -32700  # blanks are no message
    assert shared.ask("ping")["result"] == {}


def test_other_spellings(shared):
    """Escapes that some languages write, and a line end of two bytes."""
    shared.write(b'{"jsonrpc":"2.0","id":1,"method":"tools\\/call","params":{"n\\u0061me":"run\\u005fpython","arguments":{"code":"\\u0031+1"}}}\r')
    assert shared.answer(1)["result"]["structuredContent"]["result"] == "2"


def test_a_line_without_end():
    with Server() as server:
        server.value("x = 1; 1")
        for _ in range(17 << 4):
            server.process.stdin.write(b"x" * 65536)
        server.write(b"")
        message = server.read()
        assert message["error"]["code"] == -32600 and "at most 16777216 bytes" in message["error"]["message"]
        assert server.value("x") == "1"
        assert server.end() == (0, "")


def test_a_large_message(shared):
    text = "y" * (7 << 20)
    assert shared.call("write_file", path="large", content=text)["structuredContent"]["size"] == len(text)
    assert shared.value("len(%r)" % text[:1 << 20]) == str(1 << 20)
    result = shared.python("'%s'" % ("z" * (9 << 20)))
    assert result["isError"] and "8388608" in text_of(result)


def test_a_client_that_reads_nothing():
    """Its run ends, what waits is bounded, and nothing is lost when it reads again."""
    with Server() as server:
        server.value("1")
        for i in range(3):
            server.begin("run_python", token=i, code="import sys\nfor i in range(300000): sys.stdout.write('%08d ' % i * 2)")

        def ask():
            try:
                for _ in range(20000):
                    server.request("tools/list")
            except BrokenPipeError:
                pass

        writer = threading.Thread(target=ask)
        writer.start()
        time.sleep(5)
        with open("/proc/%d/status" % server.process.pid, encoding="ascii") as file:
            size = next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))
        # A sanitizer has a shadow of the memory, and keeps what was freed for a while.
        assert size < (600000 if engine.has_sanitizer(HUTCH) else 200000), "%d kB" % size
        answered = set()
        while len(answered) < 1000:
            message = server.read()
            if "id" in message:
                answered.add(message["id"])
        server.process.terminate()
        assert server.process.wait(SECONDS) == 128 + signal.SIGTERM
        writer.join(SECONDS)


def test_files_are_read_faster_than_sent():
    with Server() as server:
        server.call("write_file", path="large", content=base64.b64encode(b"\x01" * (1 << 20)).decode(), encoding="base64")
        number = server.begin("run_python", code="import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)")
        numbers = [server.begin("read_file", path="large", length=1 << 20) for _ in range(30)]
        time.sleep(2)
        with open("/proc/%d/status" % server.process.pid, encoding="ascii") as file:
            size = next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
        assert size < 120000, "%d kB" % size
        for one in numbers:
            assert len(server.answer(one)["result"]["content"][0]["text"]) == 1 << 20
        server.call("write_file", path="go", content="")
        assert server.answer(number)["result"]["isError"] is False


# --------------------------------------------------------------------------------------------------
# Beginning and end

@pytest.mark.parametrize("how", ["end of input", "SIGTERM", "SIGINT", "nobody reads", "SIGKILL"])
def test_the_end(how):
    support.become_subreaper()
    with Server() as server:
        server.begin("run_python", token=1, code="print('begun')\nwhile True: pass")
        while "begun" not in server.read()["params"].get("message", ""):
            pass
        below = support.descendants(server.process.pid)
        assert below
        if how == "end of input":
            assert server.end() == (0, "")
        elif how == "nobody reads":
            server.process.stdout.close()
            server.write({"jsonrpc": "2.0", "id": 1, "method": "ping"})
            assert server.process.wait(SECONDS) == 0
        else:
            number = getattr(signal, how)
            server.process.send_signal(number)
            assert server.process.wait(SECONDS) == (-number if how == "SIGKILL" else 128 + number)
        deadline = time.monotonic() + SECONDS
        while any(os.path.exists("/proc/%d" % pid) and support.process_table().get(pid, (0, "Z"))[1] not in "ZX" for pid in below):
            assert time.monotonic() < deadline, "something goes on"
            time.sleep(0.02)
    if how != "SIGKILL":
        assert support.dead_runs() == []


def test_answers_before_the_end_are_written():
    done = subprocess.run([HUTCH, "mcp"], input=INITIALIZE + b"\n" + b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}\n', capture_output=True,
                          timeout=SECONDS, check=False)
    assert done.returncode == 0 and done.stderr == b""
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [0, 1]


def test_data_directory(data):
    (data / "in.txt").write_text("from the host")
    with Server("--data", data) as server:
        assert server.value("open('in.txt').read()") == "'from the host'"
        assert server.call("write_file", path="out.txt", content="from inside")["isError"] is False
        assert server.end() == (0, "")
    assert (data / "out.txt").read_text() == "from inside"


def test_options_make_the_sandbox():
    with Server("--timeout", "300ms", "--env", "GREETING=hello", "--budget", "100") as server:
        assert server.value("import os; os.environ['GREETING']") == "'hello'"
        result = server.python("while True: pass")
        assert result["structuredContent"]["status"] == "timeout"
        assert len(server.python("'x' * 5000")["structuredContent"]["result"]) < 500
    for words, says in ((["x"], "takes no arguments"), (["--budget", "0"], "--budget"), (["--budget", "200000"], "100000"), (["--context", "x"], "--context"),
                        (["--data", "/nonexistent"], "--data"), (["--timeout", "x"], "--timeout")):
        support.refused("mcp", *words, says=says)
    said = support.hutch("mcp", "--help").stdout
    assert b"--budget" in said and b"no hint for a person" in said and b"what the program prints" not in said


def test_an_image_that_is_not_there():
    """The server stays, and says why to the log and to the model."""
    with Server("--image", "nothing") as server:
        for _ in range(2):
            result = server.python("1")
            assert result["isError"] and "there is no image 'nothing'" in text_of(result)
        status, log = server.end()
        assert status == 0 and "hutch: there is no image 'nothing'" in log


def test_an_image_without_cells():
    with Server("--image", "minimal") as server:
        result = server.python("1")
        assert result["isError"] and text_of(result)
        assert server.call("list_files")["isError"]
        assert server.end()[0] == 0


def test_the_engine_dies():
    """The next call has another one, and says that variables are gone."""
    with Server() as server:
        server.value("x = 1; 1")
        opener = support.openers(server.process.pid)
        assert opener
        number = server.begin("run_python", token=1, code="print('begun')\nimport time; time.sleep(1000)")
        while "begun" not in server.read()["params"].get("message", ""):
            pass
        for pid in opener:
            os.kill(pid, signal.SIGKILL)
        assert server.answer(number)["result"]["isError"] is True
        result = server.python("'x' in dir()")
        if result["isError"]:  # it may hear of the end first
            result = server.python("'x' in dir()")
        assert result["structuredContent"]["result"] == "False" and result["structuredContent"]["fresh"] is True
