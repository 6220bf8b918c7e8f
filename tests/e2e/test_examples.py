"""examples/e2b, recorded, and examples/python: run as their README says, against a server and a model whose words are known."""
import hashlib
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import urllib.parse

import pytest
import requests

import gateway
import model
import package
import support
from gateway import Server

TOKEN = "e2b_" + "0d" * 20
CLIENTS = os.environ.get("HUTCH_TEST_CLIENTS") or os.path.join(support.TREE, "build", "clients")
EXAMPLES = os.path.join(support.TREE, "examples")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("examples")
    tokens = folder / "tokens"
    tokens.write_text("ada %s\n" % hashlib.sha256(TOKEN.encode()).hexdigest())
    tokens.chmod(0o600)
    with Server(folder, "--listen", "127.0.0.1:0", "--listen", "unix:" + gateway.socket_path(folder), "--tokens", str(tokens),
                image="python", warm="usual") as started:
        yield started


def read(*names):
    with open(os.path.join(EXAMPLES, *names), encoding="utf-8") as file:
        return file.read()


def test_recorded_session_of_e2b(server, tmp_path):
    """The record in the README, apart from the id; the plot is one."""
    folder = os.path.join(CLIENTS, "e2b")
    if not shutil.which("node") or not os.path.exists(os.path.join(folder, "installed.json")):
        support.miss("npm: its packages for tests/clients/e2b are not installed (make clients)")
    shutil.copy(os.path.join(EXAMPLES, "e2b", "session.mjs"), tmp_path)
    (tmp_path / "node_modules").symlink_to(os.path.join(folder, "node_modules"))
    url = "http://127.0.0.1:%d" % server.port()
    done = subprocess.run(["node", "session.mjs"], cwd=tmp_path, capture_output=True, text=True, timeout=gateway.SECONDS, check=False,
                          env={**os.environ, "E2B_API_URL": url, "E2B_SANDBOX_URL": url, "E2B_API_KEY": TOKEN})
    assert done.returncode == 0 and done.stderr == "", done.stderr
    recorded = read("e2b", "README.md").split("\n```\n")[2]

    def without_ids(text):
        return re.sub(r"\b[a-z2-7]{26}\b", "ID", text).rstrip()
    if os.environ.get("HUTCH_TEST_SHOW"):
        print(done.stdout)
    assert without_ids(done.stdout) == without_ids(recorded)
    with open(os.path.join(EXAMPLES, "e2b", "people.png"), "rb") as file:
        assert file.read(24) == (tmp_path / "people.png").read_bytes()[:24]  # as large as the one that was recorded


# --------------------------------------------------------------------------------------------------
# examples/python

def run(server, url, script, *words, answer="", **env):
    """An example, as its user runs it: it has the package, the server and a model."""
    kept = {name: value for name, value in os.environ.items() if name not in ("MODEL_KEY", "MODEL")}
    path = "%s:%s" % (os.path.dirname(support.HUTCH), os.environ["PATH"])
    return subprocess.run([sys.executable, os.path.join(EXAMPLES, "python", script), *map(str, words)], input=answer, capture_output=True, text=True,
                          timeout=gateway.SECONDS, check=False, env={
                              **kept, "PATH": path, "PYTHONPATH": package.folder(), "PYTHONDONTWRITEBYTECODE": "1", "MODEL_URL": url,
                              "HUTCH_SERVER": "127.0.0.1:%d" % server.port(), "HUTCH_TOKEN": TOKEN, **env})


@pytest.mark.parametrize("programs,status,said", [
    (["```python\n1 / 0\n```", "```\nprint(385)\n```"], 0, "try 1: ZeroDivisionError: division by zero\ntry 2: 385\n"),
    (["x", "y", "z", "print(1)"], 1, "try 1: NameError: name 'x' is not defined\ntry 2: NameError: name 'y' is not defined\n"
                                     "try 3: NameError: name 'z' is not defined\n"),
])
def test_self_repair(server, programs, status, said):
    with model.Model(programs) as one:
        done = run(server, one.url, "self_repair.py", "The sum of squares, please.")
    assert (done.returncode, done.stdout) == (status, said), done.stderr
    assert done.stderr == ("no program worked in 3 tries\n" if status else "")
    assert len(one.asked) == (2 if status == 0 else 3)
    assert "Traceback" in one.asked[1]["messages"][-1]["content"]


@pytest.mark.parametrize("answer,said", [("y\n", "ok: 42"), ("n\n", "It was not run."), ("\n", "It was not run.")])
def test_approval(server, answer, said):
    with model.Model(["print(6 * 7)  # \x1b[2K\u202e"]) as one:
        done = run(server, one.url, "approval.py", "Six times seven?", answer=answer)
    assert done.returncode == 0 and done.stdout.endswith(said + "\n"), done.stderr
    assert "print(6 * 7)  # \\u001b[2K\\u202e\nRun this? [y/N] " in done.stdout


def test_two_agents(server, tmp_path):
    """Each sees what it is to see: the reader no sandbox, the analyst one file. A link of the directory leads nowhere."""
    folder = tmp_path / "files"
    folder.mkdir()
    (tmp_path / "secret.txt").write_text("the secret")
    (folder / "cities.csv").write_text("city,people\nOslo,709037\nBergen,291940\n")
    (folder / "notes.txt").write_text("nothing about cities")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    code = "import os, pandas as pd\nprint(os.listdir('.'))\npd.read_csv('cities.csv').set_index('city').people.idxmax()"
    turns = [("list_files", {}), ("read_file", {"name": "../secret.txt"}), ("read_file", {"name": "link.txt"}), ("read_file", {"name": "cities.csv"}),
             ("hand_over", {"name": "cities.csv", "task": "Which city has the most people?"}),
             ("run_python", {"code": "1 / 0"}), ("run_python", {"code": code}), "It is Oslo.", "The answer is Oslo."]
    with model.Model(turns) as one:
        done = run(server, one.url, "two_agents.py", folder, "Which city has the most people?")
    assert (done.returncode, done.stdout) == (0, "The answer is Oslo.\n"), done.stderr
    tools = [[tool["function"]["name"] for tool in asked["tools"]] for asked in one.asked]
    assert tools == [["list_files", "read_file", "hand_over"]] * 5 + [["run_python"]] * 3 + [["list_files", "read_file", "hand_over"]]
    reader = [message["content"] for message in one.asked[-1]["messages"] if message["role"] == "tool"]
    assert reader == ["cities.csv\nlink.txt\nnotes.txt", "Error: ValueError: there is no file '../secret.txt'",
                      "Error: ValueError: there is no file 'link.txt'", (folder / "cities.csv").read_text(), "It is Oslo."]
    analyst = [message["content"] for message in one.asked[7]["messages"] if message["role"] == "tool"]
    assert analyst == ["ZeroDivisionError: division by zero", "['cities.csv']\n'Oslo'"]


class Store:
    """An object store that takes PUT of who has a signature, which is checked with code of its own."""

    def __init__(self, key, secret):
        self.objects, self.refused = {}, []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_PUT(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                path, _, query = self.path.partition("?")
                unsigned, _, signature = query.rpartition("&X-Amz-Signature=")
                given = dict(urllib.parse.parse_qsl(unsigned))
                is_right = signature == outer.sign("PUT", path, unsigned, self.headers["Host"], given.get("X-Amz-Date", ""), key, secret) and \
                    given["X-Amz-Credential"].startswith(key + "/") and given["X-Amz-Expires"] == "600"
                if is_right:
                    outer.objects[urllib.parse.unquote(path)] = body
                else:
                    outer.refused.append(self.path)
                self.send_response(200 if is_right else 403)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = "http://127.0.0.1:%d/bucket" % self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @staticmethod
    def sign(method, path, query, host, stamp, key, secret):
        import hmac
        request = "%s\n%s\n%s\nhost:%s\n\nhost\nUNSIGNED-PAYLOAD" % (method, path, query, host)
        text = "AWS4-HMAC-SHA256\n%s\n%s/us-east-1/s3/aws4_request\n%s" % (stamp, stamp[:8], hashlib.sha256(request.encode()).hexdigest())
        signed = b"AWS4" + secret.encode()
        for word in (stamp[:8], "us-east-1", "s3", "aws4_request", text):
            signed = hmac.new(signed, word.encode(), hashlib.sha256).digest()
        return signed.hex()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


PROGRAM = """```python
import os
print("drawn")
os.makedirs("out d", exist_ok=True)
open("out d/sine ä.txt", "w").write("0 1 0")
open("table.csv", "wb").write(b"a,b" * 1000)
os.symlink("/etc/passwd", "link")
```"""


def test_upload(server):
    """Names with blanks; a link is not followed."""
    with model.Model([PROGRAM]) as one, Store("ada", "s3cret") as store:
        done = run(server, one.url, "upload.py", "Draw.", S3_URL=store.url, S3_KEY="ada", S3_SECRET="s3cret")
    assert done.returncode == 0, done.stderr
    assert store.objects == {"/bucket/out d/sine ä.txt": b"0 1 0", "/bucket/table.csv": b"a,b" * 1000} and store.refused == []
    assert done.stdout.startswith("ok: drawn\n") and "200: table.csv, 3000 bytes\n" in done.stdout and "left out: 'link'\n" in done.stdout
    with model.Model([PROGRAM]) as one, Store("ada", "s3cret") as store:
        done = run(server, one.url, "upload.py", "Draw.", S3_URL=store.url, S3_KEY="ada", S3_SECRET="another")
    assert done.returncode != 0 and store.objects == {} and len(store.refused) == 1


def test_presigned_url_of_the_documentation():
    """The example of AWS' page on Signature Version 4 in a query."""
    code = """import datetime, upload
print(upload.presign("https://examplebucket.s3.amazonaws.com/test.txt", "GET", "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
                     seconds=86400, now=datetime.datetime(2013, 5, 24, tzinfo=datetime.timezone.utc)))"""
    path = "%s:%s" % (os.path.join(EXAMPLES, "python"), package.folder())
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": path})
    assert done.stdout.endswith("&X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404\n"), done.stderr


def test_litellm(server):
    with model.Model([("run_python", {"code": "1 / 0"}), ("run_python", {"code": "6 * 7"}), "It is 42."]) as one:
        done = run(server, one.url, "litellm.py", "What is six times seven?", HUTCH_URL="http://127.0.0.1:%d" % server.port(), MODEL="local")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "ZeroDivisionError" in lines[0] and "42" in lines[1] and lines[2] == "It is 42."
    assert {asked["model"] for asked in one.asked} == {"local"} and one.asked[0]["tools"][0]["function"]["name"] == "run_python"
    config = read("python", "litellm.yaml")
    assert "model_name: local\n" in config
    url = re.search(r"url: (http://HOST:PORT/.*)", config)[1].replace("HOST:PORT", "127.0.0.1:%d" % server.port())
    token = re.search(r"auth_value: (.*)", config)[1].replace("TOKEN", TOKEN)
    opening = {"jsonrpc": "2.0", "id": 1, "method": "initialize",
               "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "litellm", "version": "1"}}}
    headers = {"Authorization": "Bearer " + token, "Accept": "application/json, text/event-stream"}
    assert "transport: http\n" in config and "auth_type: bearer_token\n" in config
    assert requests.post(url, json=opening, headers=headers, timeout=gateway.SECONDS).json()["result"]["serverInfo"]["name"] == "hutch"


class Vllm:
    """What vLLM does with --tool-server: the model's Python goes to ADDRESS/sse by the old transport, and comes back as an answer."""

    def __init__(self, address, code):
        self.asked = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.asked.append((self.path, asked))
                text = outer.python("http://%s/sse" % address, code)
                output = [{"type": "code_interpreter_call", "code": code, "id": "ci_1", "status": "completed", "container_id": "auto"},
                          {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It is %s." % text.strip()}]}]
                found = json.dumps({"id": "resp_1", "object": "response", "status": "completed", "output": output}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(found)))
                self.end_headers()
                self.wfile.write(found)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = "http://127.0.0.1:%d/v1" % self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @staticmethod
    def python(url, code):
        with requests.get(url, headers={"Accept": "text/event-stream"}, stream=True, timeout=gateway.SECONDS) as stream:
            lines = (line for line in stream.iter_lines(chunk_size=1, decode_unicode=True) if line.startswith("data: "))
            where = urllib.parse.urljoin(url, next(lines)[6:])

            def ask(number, method, **params):
                requests.post(where, json={"jsonrpc": "2.0", "id": number, "method": method, "params": params}, timeout=gateway.SECONDS)
                return json.loads(next(lines)[6:])["result"]
            ask(0, "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "mcp", "version": "0.1.0"})
            requests.post(where, json={"jsonrpc": "2.0", "method": "notifications/initialized"}, timeout=gateway.SECONDS)
            return ask(1, "tools/call", name="python", arguments={"code": code})["content"][0]["text"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def test_vllm(tmp_path):
    """With the address that the example's first lines give to vLLM."""
    text = read("python", "vllm.py")
    words = re.search(r"hutch serve (--listen 127\.0\.0\.1):8080 (--insecure-no-auth) &\n.*--tool-server 127\.0\.0\.1:8080(/\S+) &", text)
    listen, address = words[1].split()
    with Server(tmp_path, listen, address + ":0", words[2], image="python") as open_server:
        with Vllm("127.0.0.1:%d%s" % (open_server.port(), words[3]), "print(6 * 7)") as one:
            done = run(open_server, one.url, "vllm.py", "What is six times seven?")
    assert (done.returncode, done.stdout) == (0, "It is 42.\n"), done.stderr
    ((path, asked),) = one.asked
    assert path == "/v1/responses" and asked["tools"][0]["type"] == "code_interpreter"


def test_n8n(server):
    """The request that its node makes: the body's expression is one of JavaScript."""
    workflow = json.loads(read("n8n", "workflow.json"))
    (node,) = [node for node in workflow["nodes"] if node["type"] == "n8n-nodes-base.httpRequest"]
    given = node["parameters"]
    assert workflow["connections"]["Webhook"]["main"][0][0]["node"] == node["name"]
    assert given["authentication"] == "genericCredentialType" and given["genericAuthType"] == "httpHeaderAuth"
    expression = re.fullmatch(r"=\{\{ (.*) \}\}", given["jsonBody"])[1]
    if not shutil.which("node"):
        support.miss("node is not installed")
    body = subprocess.run(["node", "-e", "const $json = { body: { code: 'print(6 * 7)' } }; console.log(JSON.stringify(%s))" % expression],
                          capture_output=True, check=True, timeout=gateway.SECONDS).stdout
    answer = requests.request(given["method"], given["url"].replace("HOST:PORT", "127.0.0.1:%d" % server.port()), data=body,
                              headers={"Authorization": "Bearer " + TOKEN, "Content-Type": "application/json"}, timeout=given["options"]["timeout"] / 1000)
    assert answer.status_code == 200 and answer.json()["stdout"] == "42\n", answer.text


def test_examples_need_nothing_but_the_package():
    """The standard library, hutch and each other."""
    for name in os.listdir(os.path.join(EXAMPLES, "python")):
        if name.endswith(".py"):
            found = set(re.findall(r"^(?:import|from) (\w+)", read("python", name), re.MULTILINE))
            assert found - set(sys.stdlib_module_names) <= {"hutch", "model"}, name
