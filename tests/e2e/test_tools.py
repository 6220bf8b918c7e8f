"""Tools for models: their definitions, calls of them as each model's API has them, and what the model is given back."""
import base64
import json
import os
import shutil
import subprocess
import threading

import pytest

import support
from gateway import SECONDS, Server, socket_path

NAMES = ["run_python", "run_python_code", "execute_python_code", "code_interpreter", "code_interpreter_call"]
CLIENTS = os.environ.get("HUTCH_TEST_CLIENTS") or os.path.join(support.TREE, "build", "clients")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    place = tmp_path_factory.mktemp("tools")
    with Server(place, "--listen", "127.0.0.1:0", "--listen", "unix:" + socket_path(place), "--insecure-no-auth", image="python") as started:
        yield started


def definitions(*words):
    done = support.hutch("tools", *words)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return json.loads(done.stdout)


def ask(server, path, body, status=200):
    answer = server.ask("POST", path, body if isinstance(body, bytes) else json.dumps(body).encode())
    assert answer.status == status, answer.body
    return answer


def bare(server, name, code, key="code"):
    return ask(server, "/v1/tools/" + name, {key: code})


# --------------------------------------------------------------------------------------------------
# Definitions

def test_definitions():
    schema = {"type": "object", "properties": {"code": {"type": "string", "description": "Python source text."}}, "required": ["code"],
              "additionalProperties": False}
    (one,) = definitions()
    assert one["type"] == "function" and one["function"]["name"] == "run_python" and one["function"]["strict"] is True
    assert one["function"]["parameters"] == schema and "sandbox" in one["function"]["description"]
    (flat,) = definitions("--format", "openai-responses")
    assert list(flat) == ["type", "name", "description", "parameters", "strict"] and flat["parameters"] == schema
    (anthropic,) = definitions("--format", "anthropic")
    assert list(anthropic) == ["name", "description", "input_schema"] and anthropic["input_schema"] == schema
    (mcp,) = definitions("--format", "mcp")
    assert list(mcp) == ["name", "description", "inputSchema"] and mcp["inputSchema"] == schema
    (gemini,) = definitions("--format", "gemini")
    (declared,) = gemini["functionDeclarations"]
    assert declared["parameters"] == {"type": "OBJECT", "properties": {"code": {"type": "STRING", "description": "Python source text."}}, "required": ["code"]}


def test_chosen_tools():
    found = definitions("--format", "anthropic", *NAMES)
    assert [tool["name"] for tool in found] == NAMES
    assert [tool["input_schema"]["required"] for tool in found] == [["code"], ["code_string"], ["python_code"], ["python_code"], ["code"]]


@pytest.mark.parametrize("words, message", [(["--format", "cobol"], "there is no 'cobol'"), (["nothing"], "there is no tool 'nothing'"),
                                            (["run_python"] * 17, "at most 16")])
def test_bad_words(words, message):
    done = support.hutch("tools", *words)
    assert done.returncode == 125 and message in done.stderr.decode() and not done.stdout


# --------------------------------------------------------------------------------------------------
# Results in the shapes of existing agents

def test_text(server):
    answer = bare(server, "run_python", "print('hello')\n6 * 7")
    assert answer.headers["Content-Type"].startswith("text/plain") and "hello" in answer.body.decode() and "42" in answer.body.decode()
    assert "ZeroDivisionError" in bare(server, "run_python", "1 / 0").body.decode()


@pytest.mark.parametrize("code, want", [
    ("print(0.041999999999999996)", {"function_response": "0.041999999999999996"}), ("print('  a\\nb \\n\\n')", {"function_response": "a\nb"}),
    ("x = 1", {}), ("print(1)\n1 / 0", {"function_response": "Error executing code.", "details": "division by zero"}),
    ("raise SystemExit(3)", {"function_response": "Error executing code.", "details": "the program ended with exit code 3"}),
    ("def f(): return g()\ndef g(): return 7\nprint(f())", {"function_response": "7"})])
def test_function_response(server, code, want):
    assert bare(server, "run_python_code", code, "code_string").json == want


def test_stdout_or_error(server):
    assert bare(server, "execute_python_code", "print('a')", "python_code").body == b"a\n"
    assert bare(server, "execute_python_code", "pass", "python_code").body == b""
    text = bare(server, "execute_python_code", "print('a'); 1 / 0", "python_code").body.decode()
    assert text.startswith("[Error]\nTraceback") and "ZeroDivisionError" in text
    assert bare(server, "execute_python_code", "import sys; print('a'); sys.stderr.write('warned')", "python_code").body == b"[Error]\nwarned"


@pytest.mark.parametrize("code, want", [("6 * 7", 42), ("'text'", "text"), ("[1, 'a']", "[1, 'a']"), ("x = 1", ""), ("print(1)", ""), ("2.5", 2.5)])
def test_response_object(server, code, want):
    answer = bare(server, "code_interpreter", code, "python_code").json
    assert list(answer) == ["$id", "properties"] and list(answer["properties"]) == ["$id", "status", "stdout", "stderr", "result",
                                                                                   "executionTimeInMilliseconds"]
    assert (answer["properties"]["status"], answer["properties"]["result"], answer["properties"]["stderr"]) == ("Success", want, "")


def test_response_object_of_a_failure(server):
    found = bare(server, "code_interpreter", "print('before'); 1 / 0", "python_code").json["properties"]
    assert (found["status"], found["stdout"], found["result"]) == ("Failure", "before\n", None)
    assert found["stderr"].startswith("division by zero") and "ZeroDivisionError" in found["stderr"] and "\x1b" not in found["stderr"]


def test_image(server):
    code = "import matplotlib.pyplot as plt\nprint('plot')\nplt.plot([1, 2]); plt.show()"
    found = bare(server, "code_interpreter", code, "python_code").json["properties"]["result"]
    assert list(found) == ["type", "format", "base64_data"] and base64.b64decode(found["base64_data"]).startswith(b"\x89PNG")
    item = bare(server, "code_interpreter_call", code).json
    assert list(item) == ["type", "id", "status", "container_id", "code", "outputs"] and (item["type"], item["code"]) == ("code_interpreter_call", code)
    assert (item["status"], item["outputs"][0]) == ("completed", {"type": "logs", "logs": "plot\n"})
    assert item["outputs"][1]["type"] == "image" and item["outputs"][1]["url"].startswith("data:image/png;base64,iVBOR")


def test_item_of_a_failure(server):
    item = bare(server, "code_interpreter_call", "print('a'); 1 / 0").json
    assert item["status"] == "failed" and item["outputs"][0] == {"type": "logs", "logs": "a\n"} and "ZeroDivisionError" in item["outputs"][1]["logs"]


# --------------------------------------------------------------------------------------------------
# Calls as the model's API has them

def test_calls(server):
    text = json.dumps({"python_code": "print(42)"})
    answer = ask(server, "/v1/tools", {"id": "call_1", "type": "function", "function": {"name": "execute_python_code", "arguments": text}})
    assert answer.json == {"role": "tool", "tool_call_id": "call_1", "content": "42\n"}
    answer = ask(server, "/v1/tools", {"type": "function_call", "call_id": "c", "name": "execute_python_code", "arguments": text})
    assert answer.json == {"type": "function_call_output", "call_id": "c", "output": "42\n"}
    answer = ask(server, "/v1/tools", {"type": "tool_use", "id": "t", "name": "execute_python_code", "input": {"python_code": "1 / 0"}})
    assert answer.json["is_error"] is True and answer.json["content"].startswith("[Error]") and answer.json["tool_use_id"] == "t"
    answer = ask(server, "/v1/tools", {"functionCall": {"name": "execute_python_code", "args": {"python_code": "print(42)"}}})
    assert answer.json == {"functionResponse": {"name": "execute_python_code", "response": {"output": "42\n"}}}


@pytest.mark.parametrize("key", ["code", "python_code", "code_string", "input"])
def test_other_names_of_the_argument(server, key):
    assert bare(server, "execute_python_code", "print(1)", key).body == b"1\n"


BAD_ARGUMENTS = {
    "no JSON": (b"print(1)", "the arguments are no JSON"),
    "empty": (b"", "the arguments are no JSON"),
    "array": (b"[1]", "an object with the text 'python_code'"),
    "no code": (b"{}", "an object with the text 'python_code'"),
    "code of another type": (b'{"python_code": 5}', "an object with the text 'python_code'"),
    "NUL": (b'{"python_code": "a\\u0000b"}', "NUL"),
    "lone surrogate": (b'{"python_code": "\\ud800"}', "surrogate"),
    "deep": (b'{"python_code": ' + b"[" * 100000, "the arguments are no JSON"),
    "not UTF-8": (b'{"python_code": "\xff"}', "UTF-8"),
}


@pytest.mark.parametrize("label", BAD_ARGUMENTS)
def test_bad_arguments(server, label):
    """A model can mend them, so it is told, in the words of its tool; HTTP knows no error."""
    body, words = BAD_ARGUMENTS[label]
    text = ask(server, "/v1/tools/execute_python_code", body).body.decode()
    assert text.startswith("[Error]\n") and words in text, text


def test_trouble_in_each_shape(server):
    assert bare(server, "run_python", 5).body.startswith(b"Error: the arguments")
    assert bare(server, "run_python_code", 5).json["function_response"] == "Error executing code."
    assert bare(server, "code_interpreter", 5).json["properties"]["status"] == "Failure"
    assert bare(server, "code_interpreter_call", 5).json["status"] == "failed"
    answer = ask(server, "/v1/tools", {"type": "tool_use", "id": "t", "name": "nothing", "input": {}}).json
    assert answer["is_error"] is True and "there are run_python, " in answer["content"]


@pytest.mark.parametrize("body, words", [(b"", "empty"), (b"{", "line 1"), (b"[]", "no call"), (b"{}", "no call"), (b'{"type": "tool_use"}', "no name"),
                                         (b'{"type": "tool_use", "name": 1}', "no name"), (b'{"function": {"name": "\\udc00"}}', "surrogate")])
def test_bad_calls(server, body, words):
    answer = ask(server, "/v1/tools", body, 400)
    assert answer.error["code"] == "invalid_request" and words in answer.error["message"]


def test_unknown_tool(server):
    assert ask(server, "/v1/tools/nothing", {}, 404).error["code"] == "not_found"


def test_too_large_and_too_many(tmp_path):
    with Server(tmp_path, "--workers", "1", "--jobs", "1", "--queue", "1", "--max-body", "10000") as server:
        assert ask(server, "/v1/tools/run_python", {"code": "#" * 20000}, 413).error["code"] == "body_too_large"
        body = {"code_string": "1"}
        threads = [threading.Thread(target=ask, args=(server, "/v1/tools/run_python_code", one))
                   for one in ({"code_string": "import time; time.sleep(8)"}, body)]
        threads[0].start()
        server.await_metric("hutch_running", 1)
        threads[1].start()
        server.await_metric("hutch_queued", 1)
        answer = ask(server, "/v1/tools/run_python_code", body, 429)
        assert answer.error["code"] == "queue_full" and answer.headers["Retry-After"]
        for thread in threads:
            thread.join()


def test_image_without_shell(tmp_path):
    with Server(tmp_path) as server:
        assert bare(server, "run_python", "1").body.startswith(b"Error: ")
        assert bare(server, "run_python_code", "print(1)", "code_string").json == {"function_response": "1"}


# --------------------------------------------------------------------------------------------------
# The clients that people use

def observe(server, script, definition, *programs):
    folder = os.path.join(CLIENTS, "tools")
    if not shutil.which("node") or not os.path.exists(os.path.join(folder, "installed.json")):
        support.miss("npm: its packages for tests/clients/tools are not installed (make clients)")
    done = subprocess.run(["node", os.path.join(folder, script), "http://127.0.0.1:%d" % server.port(), json.dumps(definition), *programs],
                          capture_output=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def test_openai_run_tools(server):
    """The first program fails, the model is told why, and the second one does it."""
    definition = definitions("--format", "openai", "run_python_code")
    seen = observe(server, "openai.mjs", definition, "print(undefined_name)", "print(6 * 7)")
    assert seen["final"] == "done" and seen["requests"] == [definition] * 3
    failed, done = map(json.loads, seen["results"])
    assert failed["function_response"] == "Error executing code." and "undefined_name" in failed["details"]
    assert done == {"function_response": "42"}


def test_anthropic_tool_runner(server):
    seen = observe(server, "anthropic.mjs", definitions("--format", "anthropic"), "1 / 0", "6 * 7")
    assert seen["final"] == "done" and len(seen["results"]) == 2
    first = seen["requests"][0][0]
    assert first["name"] == "run_python" and first["input_schema"]["required"] == ["code"]
    assert "ZeroDivisionError" in json.dumps(seen["results"][0]) and "42" in json.dumps(seen["results"][1])
    assert [block["is_error"] for block in seen["answers"]] == [True, False]
