"""The tables "your client | set this" of README.md and docs/clients.md. Each line ends with the name of the test below that sets
what the line says, as it is read from the line, with the address and token of a server that is started for it:

    | your client | `SETTING=http://HOST:PORT` <!-- tested by: NAME --> |

What is no package of npm's or Debian's (vLLM, verl, LiteLLM, LlamaIndex, TRL, ...) is replayed: its first request at that address."""
import base64
import hashlib
import json
import os
import re
import shlex
import shutil
import ssl
import subprocess
import sys
import urllib.parse

import pytest
import requests

import gateway
import package
import support
from gateway import SECONDS, Server

TOKEN = "e2b_" + "0c" * 20
CLIENTS = os.environ.get("HUTCH_TEST_CLIENTS") or os.path.join(support.TREE, "build", "clients")
DOCUMENTS = ("README.md", "docs/clients.md")
LINE = re.compile(r"\| (?P<client>.+?) \| (?P<set>.+?) (?:<!-- tested by: (?P<test>\w+) --> )?\|")


def lines_of(document):
    """(client, what to set, name of a test or None) of each line of each such table."""
    with open(os.path.join(support.TREE, document), encoding="utf-8") as file:
        lines, is_inside = file.read().splitlines(), False
    for line in lines:
        if re.fullmatch(r"\| (your )?client \| set( this)? \|", line):
            is_inside = True
        elif not line.startswith("|"):
            is_inside = False
        elif is_inside and not line.startswith("|---"):
            found = LINE.fullmatch(line)
            assert found, "%s: %s" % (document, line)
            yield found["client"], found["set"], found["test"]


ROWS = [(document, *line) for document in DOCUMENTS for line in lines_of(document)]
TESTS = {}


def sets(function):
    """A function that is told the texts between backticks of a line, and where servers are."""
    TESTS[function.__name__] = function
    return function


def test_each_line_names_its_test():
    assert len(ROWS) > 30
    assert [row for row in ROWS if row[3] not in TESTS] == []
    assert sorted(set(TESTS) - {row[3] for row in ROWS}) == []


class Place:
    """Where a line is tried: servers, started when the first line needs one, and a directory."""

    def __init__(self, factory):
        self.factory, self.servers = factory, {}

    def server(self, kind):
        if kind not in self.servers:
            folder = self.folder(kind)
            tokens = folder / "tokens"
            tokens.write_text("ada %s\n" % hashlib.sha256(TOKEN.encode()).hexdigest())
            tokens.chmod(0o600)
            words = {"guarded": ["--tokens", str(tokens), "--allow-host", "*.box.example"], "open": ["--insecure-no-auth"],
                     "azure": ["--tokens", str(tokens), "--format", "azure"]}[kind]
            self.servers[kind] = self.start(*words, image="python")
        return self.servers[kind]

    def start(self, *words, image="minimal"):
        folder = self.folder("server")
        return Server(folder, "--listen", "127.0.0.1:0", "--listen", "unix:" + gateway.socket_path(folder), "--drain", "2s", *words, image=image)

    def folder(self, name="place"):
        return self.factory.mktemp(name)

    def address(self, kind):
        return "127.0.0.1:%d" % self.server(kind).port()

    def stop(self):
        for server in self.servers.values():
            server.stop()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    started = Place(tmp_path_factory)
    yield started
    started.stop()


@pytest.mark.parametrize("document,client,text,name", [pytest.param(*row, id="%s-%s" % (row[0], row[1])) for row in ROWS])
def test_line(place, document, client, text, name):
    found = Settings(re.findall(r"`([^`]+)`", text), place)
    TESTS[name](found, place)
    assert found.unread() == [], "the test of this line does not use what it says"


class Settings:
    """The texts of a line, each of which has to be used."""

    def __init__(self, texts, place):
        self.texts, self.place, self.used = texts, place, set()

    def take(self, pattern, kind=None):
        """The groups, or the whole, of the one text that @pattern fits, with a server's address and token put in."""
        found = [(text, re.fullmatch(pattern, text)) for text in self.texts]
        found = [(text, match) for text, match in found if match]
        assert len(found) == 1, (pattern, self.texts)
        self.used.add(found[0][0])
        groups = [self.fill(group, kind) for group in found[0][1].groups() or [found[0][0]]]
        return groups[0] if len(groups) == 1 else groups

    def fill(self, text, kind):
        return text.replace("HOST:PORT", self.place.address(kind) if kind else "HOST:PORT").replace("TOKEN", TOKEN)

    def has(self, pattern):
        return any(re.fullmatch(pattern, text) for text in self.texts)

    def unread(self):
        return [text for text in self.texts if text not in self.used and ("HOST" in text or "TOKEN" in text or "=" in text or text[:2] == "--")]


def npm(name):
    folder = os.path.join(CLIENTS, name)
    if not shutil.which("node") or not os.path.exists(os.path.join(folder, "installed.json")):
        support.miss("npm: its packages for tests/clients/%s are not installed (make clients)" % name)
    return folder


def node(script, *words, program="node", cwd=None, **env):
    kept = {name: value for name, value in os.environ.items() if name != "HUTCH_SERVER"}
    done = subprocess.run([program, script, *words], capture_output=True, text=True, timeout=SECONDS, check=False, cwd=cwd, env={**kept, **env})
    assert done.returncode == 0, done.stderr
    return done.stdout


def python(code, **env):
    """Of a program that has the package, as a user's would."""
    folder = env.pop("folder")
    (folder / "sitecustomize.py").write_text("import hutch, hutch.judging\nhutch.configure(layouts=1)\nhutch.judging.configure(layouts=1)\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=SECONDS, cwd=folder,
                          env={**package.environment(), "PYTHONPATH": "%s:%s" % (folder, package.folder()), **env})
    assert done.returncode == 0, done.stderr
    return done.stdout


def header(text):
    name, _, value = text.partition(": ")
    return {name: value}


# --------------------------------------------------------------------------------------------------
# hutch's own

@sets
def http(settings, _):
    url, bearer = settings.take("http://.*", "guarded"), header(settings.take("Authorization: .*"))
    assert requests.post(url, json={"code": "print(6 * 7)"}, timeout=SECONDS).status_code == 401
    assert requests.post(url, json={"code": "print(6 * 7)"}, headers=bearer, timeout=SECONDS).json()["stdout"] == "42\n"
    done = subprocess.run(["curl", "-sS", url, "-H", "Authorization: " + bearer["Authorization"], "-H", "Content-Type: application/json", "-d",
                           '{"code": "print(6 * 7)"}'], capture_output=True, check=False, timeout=SECONDS)
    assert json.loads(done.stdout)["stdout"] == "42\n", done.stderr


@sets
def python_client(settings, place):
    name, value = settings.take("(.*)=(.*PORT)", "guarded")
    code = "import hutch\nwith %s as client: print(client.run('print(6 * 7)').stdout)" % settings.take(r"hutch\.Client\(.*")
    assert python(code, folder=place.folder(), **{name: value}) == "42\n\n"


def project(place, *packages):
    """A directory that has the package `hutch`, and some of npm's."""
    folder = place.folder()
    (folder / "node_modules").mkdir()
    (folder / "node_modules" / "hutch").symlink_to(os.path.join(support.TREE, "clients", "node"))
    for name in packages:
        (folder / "node_modules" / name).symlink_to(os.path.join(npm("node"), "node_modules", name))
    return folder


def program(folder, code):
    (folder / "program.mjs").write_text(code)
    return str(folder / "program.mjs")


def needs_node():
    said = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout if shutil.which("node") else "v0."
    if int(said[1:].partition(".")[0]) < 20:
        support.miss("node: Node 20 or newer is not installed")


@sets
def node_client(settings, place):
    needs_node()
    name, value = settings.take("(.*)=(.*PORT)", "guarded")
    code = "import { Client } from 'hutch';\nconst client = %s;\nconsole.log((await client.run('print(6 * 7)')).stdout);\n"
    assert node(program(project(place), code % settings.take("new Client.*")), **{name: value}) == "42\n\n"


# --------------------------------------------------------------------------------------------------
# The Model Context Protocol

def mcp(*words, clients=(("legacy.mjs",), ("modern.mjs", "auto")), **env):
    for script in clients:
        seen = json.loads(node(os.path.join(npm("mcp"), script[0]), *script[1:], *words, **env))
        assert seen["server"]["name"] == "hutch" and seen["value"]["structuredContent"]["result"] == "42"


@sets
def mcp_stdio(settings, _):
    env = {"PATH": "%s:%s" % (os.path.dirname(support.HUTCH), os.environ["PATH"])}
    if settings.has("hutch mcp"):
        return mcp(*settings.take("hutch mcp").split(), **env)
    server = json.loads(settings.take("{.*}"))["mcpServers"]["hutch"]
    return mcp(server["command"], *server["args"], **env)


@sets
def mcp_http(settings, _):
    name, value = settings.take("(Authorization): Bearer (.*)")
    assert name == "Authorization"
    mcp("http", settings.take("http://.*", "guarded"), value)


@sets
def mcp_sse(settings, _):
    token = settings.take("Authorization: Bearer (.*)") if settings.has("Authorization.*") else TOKEN
    mcp("sse", settings.take("http://.*", "guarded"), token, clients=(("legacy.mjs",),))


@sets
def tool_server(settings, _):
    """vLLM adds /sse to it, and sends no token."""
    if settings.has("--insecure.*"):
        assert settings.take("--insecure.*") == "--insecure-no-auth"  # with which Place.server() starts it
    url = "http://%s/sse" % settings.take("--tool-server (.*)", "open")
    with requests.get(url, headers={"Accept": "text/event-stream"}, stream=True, timeout=SECONDS) as stream:
        lines = (line for line in stream.iter_lines(chunk_size=1, decode_unicode=True) if line.startswith("data: "))
        where = urllib.parse.urljoin(url, next(lines)[6:])

        def ask(method, number, **params):
            body = {"jsonrpc": "2.0", "method": method, "params": params, **({} if number is None else {"id": number})}
            assert requests.post(where, json=body, timeout=SECONDS).status_code == 202
            return None if number is None else json.loads(next(lines)[6:])["result"]

        opening = ask("initialize", 0, protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "mcp", "version": "0.1.0"})
        ask("notifications/initialized", None)
        assert opening["serverInfo"]["name"] == "python" and [tool["name"] for tool in ask("tools/list", 1)["tools"]] == ["python"]
        assert ask("tools/call", 2, name="python", arguments={"code": "print(6 * 7)"})["content"][0]["text"] == "42\n"


# --------------------------------------------------------------------------------------------------
# E2B

@sets
def e2b(settings, place):
    found = dict(pair.split("=") for pair in settings.take("E2B_.*", "guarded").split())
    assert sorted(found) == ["E2B_API_KEY", "E2B_API_URL", "E2B_SANDBOX_URL"]
    code = """import { Sandbox } from "%s";
const sandbox = await Sandbox.create({ timeoutMs: 120_000 });
console.log(%s);
await sandbox.kill();
"""
    for name, ask in (("e2b", "(await sandbox.commands.run('echo 42')).stdout.trim()"),
                      ("@e2b/code-interpreter", "(await sandbox.runCode('6 * 7')).text")):
        folder = place.folder()
        (folder / "node_modules").symlink_to(os.path.join(npm("e2b"), "node_modules"))
        assert node(program(folder, code % (name, ask)), **found) == "42\n"


@sets
def litellm(settings, place):
    """Creates by HTTP, then goes to 49999-ID.DOMAIN; without the proxy that has the certificate."""
    base = settings.take("api_base=(.*)", "guarded")
    key = settings.take("api_key=(.*)") if settings.has("api_key=.*") else TOKEN
    domain = shlex.split(settings.take("--allow-host .*"))[1].replace("*.", "")
    answer = requests.post(base + "/sandboxes", timeout=SECONDS, headers={"X-API-Key": key},
                           json={"templateID": "code-interpreter-v1", "timeout": 300, "secure": True, "allow_internet_access": True})
    made = answer.json()
    assert answer.status_code == 201 and made["domain"] == domain
    lines = requests.post(base + "/execute", json={"code": "print(6 * 7)", "context_id": None, "env_vars": None}, timeout=SECONDS, headers={
        "Host": "49999-%s.%s" % (made["sandboxID"], made["domain"]), "X-Access-Token": made["envdAccessToken"]}).text.splitlines()
    assert json.loads(lines[1])["text"] == "42\n"
    assert requests.delete(base + "/sandboxes/" + made["sandboxID"], headers={"X-API-Key": key}, timeout=SECONDS).status_code == 204
    settings.used.update(text for text in settings.texts if text.startswith("https://49999-ID"))


# --------------------------------------------------------------------------------------------------
# SandboxFusion

def fusion(url, **more):
    answer = requests.post(url, json={"code": "print(int(input()) * 2)", "stdin": "21\n", "language": "python", **more}, timeout=SECONDS)
    assert answer.status_code == 200, answer.text
    assert (answer.json()["status"], answer.json()["run_result"]["stdout"]) == ("Success", "42\n"), answer.text


@sets
def fusion_url(settings, _):
    url = settings.take("(?:reward_model.sandbox_fusion.url=|sandbox_fusion_url: )(.*)", "open")
    fusion(url, compile_timeout=10, run_timeout=10, memory_limit_MB=1024, files={}, fetch_files=[])


@sets
def fusion_long(settings, place):
    """Of minutes, and with much in its files."""
    with place.start("--insecure-no-auth", *settings.take("--timeout .*").split()) as server:
        fusion(settings.take("(http://.*)").replace("HOST:PORT", "127.0.0.1:%d" % server.port()), run_timeout=500,
               files={"cases.txt": base64.b64encode(b"x" * (20 << 20)).decode()})


@sets
def fusion_endpoint(settings, _):
    endpoint = settings.take("SANDBOX_FUSION_ENDPOINT=(.*)", "open")
    fusion(endpoint + "/run_code", compile_timeout=10, run_timeout=10)
    assert requests.get(endpoint + "/v1/ping", timeout=SECONDS).status_code == 200


@sets
def fusion_prefix(settings, place):
    with place.start("--insecure-no-auth", *settings.take("--format .*").split()) as server:
        fusion(settings.take("(http://.*)").replace("HOST:PORT", "127.0.0.1:%d" % server.port()))


# --------------------------------------------------------------------------------------------------
# Azure

def execute(endpoint, token, **more):
    answer = requests.post(endpoint + "/executions", params={"identifier": "a session", "api-version": "2025-10-02-preview"}, timeout=SECONDS,
                           headers={"Authorization": "Bearer " + token}, json={"code": "6 * 7", "codeInputType": "Inline", "executionType": "Synchronous"},
                           **more)
    assert answer.status_code == 200 and answer.json()["result"]["executionResult"] == 42, answer.text


@sets
def azure(settings, place):
    endpoint = settings.take("http://.*", "azure")
    execute(endpoint, settings.take("TOKEN") if settings.has("TOKEN") else TOKEN)
    assert requests.get(endpoint + "/listSessions?api-version=2025-10-02-preview", timeout=SECONDS).status_code == 401
    if settings.has("--format.*"):
        assert settings.take("--format azure") == "--format azure"  # with which Place.server() starts it


@sets
def azure_tls(_, place):
    import test_proxies
    folder = place.folder()
    with test_proxies.nginx(folder, place.server("azure")) as proxy:
        assert isinstance(proxy.context, ssl.SSLContext)
        execute("https://localhost:%d" % proxy.port, TOKEN, verify=str(folder / "cert.pem"))


# --------------------------------------------------------------------------------------------------
# Tools for models

def tool_loop(settings, script, path):
    words = settings.take("(?:hutch tools )?(--format .*)").split()
    definitions = support.hutch("tools", *words).stdout.decode()
    server, url = settings.take("(http://HOST:PORT)(/.*)", "open")
    assert url == path
    seen = json.loads(node(os.path.join(npm("tools"), script), server, definitions, "1 / 0", "6 * 7"))
    assert seen["final"] == "done" and "ZeroDivisionError" in json.dumps(seen["results"][0]) and "42" in json.dumps(seen["results"][1])


@sets
def openai(settings, _):
    tool_loop(settings, "openai.mjs", "/v1/tools/NAME")


@sets
def anthropic(settings, _):
    tool_loop(settings, "anthropic.mjs", "/v1/tools")


@sets
def any_loop(settings, _):
    call = {"id": "call_1", "type": "function", "function": {"name": "run_python", "arguments": "{\"code\": \"6 * 7\"}"}}
    answer = requests.post(settings.take("(http://.*)", "open"), json=call, timeout=SECONDS).json()
    assert (answer["role"], answer["tool_call_id"]) == ("tool", "call_1") and "42" in answer["content"]


@sets
def ai_sdk(settings, place):
    """Both versions; the newer one with Node 22."""
    needs_node()
    code = """%s;
import { generateText } from '%s';
import * as mocks from '%s/test';
const Model = mocks.MockLanguageModelV4 ?? mocks.MockLanguageModelV3;
const usage = { inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 }, outputTokens: { total: 1, text: 1, reasoning: 0 } };
const input = JSON.stringify({ language: 'python', code: 'print(6 * 7)' });
const content = [{ type: 'tool-call', toolCallId: 'c', toolName: 'codeExecutionTool', input }];
const model = new Model({ doGenerate: async () => ({ content, finishReason: { unified: 'tool-calls', raw: 'x' }, usage, warnings: [] }) });
const { codeExecutionTool, cleanup } = createCodeExecutionTool();
const { toolResults } = await generateText({ model, prompt: 'x', %s: { codeExecutionTool } });
console.log(toolResults[0].output.stdout);
await cleanup();
"""
    where = os.path.join(npm("node"), "node_modules")
    newer = [os.path.join(where, name, "bin", "node") for name in os.listdir(where) if name.startswith("node-linux-")]
    line, key = settings.take("import .*"), settings.take("tools")
    for sdk, which in (("ai6", "node"), ("ai", newer[0] if newer else None)):
        if which is None:
            support.miss("npm: Node 22 is not among the packages for tests/clients/node")
        folder = project(place, *[name for name in os.listdir(where) if not name.startswith(".")])
        assert node(program(folder, code % (line, sdk, sdk, key)), program=which, HUTCH_SERVER=place.address("open")) == "42\n\n"


@sets
def interpreter_tools(settings, place):
    needs_node()
    code = settings.take("import .*") + """;
const { codeExecutionTool, cleanup } = createCodeExecutionTool();
const result = await codeExecutionTool.execute({ language: 'python', code: 'print(6 * 7)' });
console.log(result.exitCode, result.stdout);
await cleanup();
"""
    assert node(program(project(place), code), HUTCH_SERVER=place.address("open")) == "0 42\n\n"


# --------------------------------------------------------------------------------------------------
# In place of other runners, without a server

@sets
def human_eval(settings, place):
    said = python(settings.take("from .*") + """
problem = {"task_id": "t", "entry_point": "add", "prompt": "def add(a, b):\\n",
           "test": "def check(candidate):\\n    assert candidate(1, 2) == 3\\n"}
print(check_correctness(problem, "    return a + b\\n", timeout=10.0)["passed"], check_correctness(problem, "    return a\\n", timeout=10.0)["passed"])
""", folder=place.folder())
    assert said == "True False\n"


@sets
def evalplus(settings, place):
    said = python(settings.take("from .*") + """
for body in ("a + b", "a"):
    print(untrusted_check("humaneval", "def add(a, b): return " + body, [[1, 2]], "add", [3], 0, [1.0])[0])
""", folder=place.folder())
    assert said == "pass\nfail\n"


@sets
def trl(settings, place):
    said = python("""import hutch.rewards
words = dict(%s)
tests = {"inputs": ["1\\n"], "outputs": ["2\\n"]}
print(words["reward_funcs"](prompts=["?"] * 2, completions=["```python\\nprint(int(input()) * 2)\\n```", "no"], tests=[tests] * 2))
""" % settings.take("reward_funcs=.*"), folder=place.folder())
    assert said == "[1.0, 0.0]\n"


@sets
def verl_words(settings, place):
    """verl loads the file that is named, and calls the function that is named."""
    module = settings.take("python3 -m (.*)")
    said = python("""import importlib.util, runpy, sys, io, contextlib
with contextlib.redirect_stdout(io.StringIO()) as out: runpy.run_module("%s", run_name="__main__")
words = dict(word.split("=") for word in out.getvalue().split())
spec = importlib.util.spec_from_file_location("custom_module", words["custom_reward_function.path"])
loaded = importlib.util.module_from_spec(spec)
spec.loader.exec_module(loaded)
compute = getattr(loaded, words["custom_reward_function.name"])
print(words["reward_model.reward_manager"], compute(data_sources=["x"], solution_strs=["```python\\nprint(int(input()) * 2)\\n```"],
                                                    ground_truths=['{"inputs": ["1"], "outputs": ["2"]}'], extra_infos=[None])[0]["score"])
""" % module, folder=place.folder())
    assert said == "batch 1.0\n"


@sets
def llm_sandbox(settings, place):
    said = python(settings.take("from .*") + """
with SandboxSession(lang="python") as session:
    print(session.run("print(6 * 7)").stdout)
""", folder=place.folder())
    assert said == "42\n\n"
