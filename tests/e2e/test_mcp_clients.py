"""hutch mcp with the clients that people use, from npm: tests/clients/mcp. Each tells what it has observed."""
import base64
import hashlib
import json
import os
import re
import shutil
import socket
import subprocess

import pytest

import gateway
import support
from support import HUTCH

SECONDS = 150
TOKEN = "a token for tests"
BEARER = {"Authorization": "Bearer " + TOKEN}
TOOLS = ["run_python", "run_command", "list_files", "read_file", "write_file"]
CLIENTS = os.environ.get("HUTCH_TEST_CLIENTS") or os.path.join(support.TREE, "build", "clients")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """hutch serve with a token, on TCP: these clients do not speak to unix sockets."""
    folder = tmp_path_factory.mktemp("mcp")
    tokens = folder / "tokens"
    tokens.write_text("ada %s\n" % hashlib.sha256(TOKEN.encode()).hexdigest())
    tokens.chmod(0o600)
    with gateway.Server(folder, "--listen", "unix:" + gateway.socket_path(folder), "--listen", "127.0.0.1:0", "--tokens", str(tokens),
                        "--request-timeout", "120s", image="python") as started:
        yield started


def url(server, path="/mcp"):
    return "http://127.0.0.1:%d%s" % (server.port(), path)


def find_client(name):
    """The folder of what npm has installed."""
    folder = os.path.join(CLIENTS, name)
    if not shutil.which("node") or not os.path.exists(os.path.join(folder, "installed.json")):
        support.miss("npm: its packages for tests/clients/%s are not installed (make clients)" % name)
    return folder


def observe(script, *words, command=(HUTCH, "mcp")):
    """Runs a client, which starts hutch mcp or asks a server."""
    folder = find_client("mcp")
    done = subprocess.run(["node", os.path.join(folder, script), *words, *command], capture_output=True, timeout=SECONDS, check=False)
    assert done.returncode == 0 and done.stderr == b"", done.stderr.decode()
    seen = json.loads(done.stdout)
    # Node reads what comes at once, and these clients take an answer before a message of progress that precedes it.
    assert [error for error in seen["errors"] if "unknown token" not in error] == []
    return seen


def text_of(result):
    return "\n".join(item["text"] for item in result["content"] if item["type"] == "text")


def check_common(seen):
    assert seen["server"]["name"] == "hutch" and "sandbox" in seen["instructions"] and seen["tools"] == TOOLS
    assert seen["value"]["structuredContent"]["result"] == "42" and seen["value"]["structuredContent"]["stdout"] == "x is 6\n"
    assert seen["state"]["structuredContent"]["result"] == "6"
    assert seen["error"]["isError"] is True and "ZeroDivisionError" in text_of(seen["error"])
    images = [item for item in seen["plot"]["content"] if item["type"] == "image"]
    assert len(images) == 1 and base64.b64decode(images[0]["data"]).startswith(b"\x89PNG")
    assert seen["unknown"] == -32602
    assert seen["streamed"]["structuredContent"]["stdout"] == "begun\ndone\n"
    assert "".join(row.get("message", "") for row in seen["progress"]).startswith("begun\n") and seen["progress"][0]["progress"] == 1
    assert seen["cancelled"] and "stop" in seen["cancelled"]
    assert seen["after"]["structuredContent"]["result"] == "6"


def check_legacy(seen):
    check_common(seen)
    assert seen["capabilities"] == {"tools": {}}
    assert seen["command"]["isError"] is True and seen["command"]["structuredContent"]["exit_code"] == 3
    assert seen["write"]["structuredContent"]["size"] == len("from the client")
    assert text_of(seen["read"]) == "from the client"
    assert "note.txt" in [row["path"] for row in seen["list"]["structuredContent"]["files"]]
    assert seen["timeout"] == -32001 and seen["afterTimeout"]["structuredContent"]["result"] == "6"


def test_sdk():
    seen = observe("legacy.mjs")
    check_legacy(seen)
    assert seen["isGone"] is True


def test_sdk_by_http(server):
    seen = observe("legacy.mjs", command=("http", url(server), TOKEN))
    check_legacy(seen)
    assert len(seen["session"]) == 21
    server.await_metric("hutch_sessions", 0, BEARER)  # the client has ended its own


def test_sdk_by_sse(server):
    check_legacy(observe("legacy.mjs", command=("sse", url(server, "/mcp/sse"), TOKEN)))
    server.await_metric("hutch_sessions", 0, BEARER)


@pytest.mark.parametrize("mode,version", [("auto", "2026-07-28"), ("2026-07-28", "2026-07-28"), ("legacy", "2025-11-25")])
def test_client_by_http(server, mode, version):
    seen = observe("modern.mjs", mode, command=("http", url(server), TOKEN))
    check_common(seen)
    assert seen["version"] == version


@pytest.mark.parametrize("mode,version", [("auto", "2026-07-28"), ("2026-07-28", "2026-07-28"), ("legacy", "2025-11-25")])
def test_client(mode, version):
    seen = observe("modern.mjs", mode)
    check_common(seen)
    assert seen["version"] == version


# The conformance tool: what it asks of any server. Its other scenarios call tools, prompts and resources of a server that was made
# for it, so that each of them has a check that fails here.
CONFORMS = {"server-initialize", "ping", "tools-list", "server-sse-multiple-streams", "dns-rebinding-protection"}
SAYS_NOTHING = {"server-sse-polling"}  # it is about streams that are resumed, which there are not
NEEDS_ITS_OWN_SERVER = {
    "logging-set-level", "completion-complete", "tools-call-simple-text", "tools-call-image", "tools-call-audio",
    "tools-call-embedded-resource", "tools-call-mixed-content", "tools-call-with-logging", "tools-call-error",
    "tools-call-with-progress", "tools-call-sampling", "tools-call-elicitation", "json-schema-2020-12", "elicitation-sep1034-defaults",
    "elicitation-sep1330-enums", "resources-list", "resources-read-text", "resources-read-binary", "resources-templates-read",
    "resources-subscribe", "resources-unsubscribe", "prompts-list", "prompts-get-simple", "prompts-get-with-args",
    "prompts-get-embedded-resource", "prompts-get-with-image",
}
CONFORMS_NEXT = CONFORMS | {"server-session-lifecycle"}
# Of the newer era. Those of input-required-result are about a state that a server sends along, which this one never does.
CONFORMS_MODERN = {
    "tools-list", "server-sse-multiple-streams", "dns-rebinding-protection", "http-header-validation", "sep-2164-resource-not-found",
    "input-required-result-missing-input-response", "input-required-result-unsupported-methods",
    "input-required-result-ignore-extra-params", "input-required-result-validate-input",
}
NEEDS_ITS_OWN_SERVER_MODERN = {
    "completion-complete", "tools-call-simple-text", "tools-call-image", "tools-call-audio", "tools-call-embedded-resource",
    "tools-call-mixed-content", "tools-call-error", "tools-call-with-progress", "json-schema-2020-12", "resources-list",
    "resources-read-text", "resources-read-binary", "resources-templates-read", "prompts-list", "prompts-get-simple",
    "prompts-get-with-args", "prompts-get-embedded-resource", "prompts-get-with-image", "http-custom-header-server-validation",
    "input-required-result-basic-elicitation", "input-required-result-basic-sampling", "input-required-result-basic-list-roots",
    "input-required-result-request-state", "input-required-result-multiple-input-requests", "input-required-result-multi-round",
    "input-required-result-non-tool-request", "input-required-result-result-type", "input-required-result-tampered-state",
    "input-required-result-capability-check",
}
# These have checks of both kinds. What fails calls a tool of its own, or lists what this server has not.
IN_PART = {
    "server-stateless": (21, {"sep-2575-server-rejects-undeclared-capability", "sep-2575-missing-capability-http-400",
                              "sep-2575-http-server-no-independent-requests-on-stream", "sep-2575-server-no-log-without-loglevel"}),
    "caching": (4, {"sep-2549-prompts-list-caching-hints", "sep-2549-resources-list-caching-hints",
                    "sep-2549-resources-templates-list-caching-hints"}),
}


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def find_node(folder):
    """Of npm: the tool needs 22."""
    path = os.path.join(folder, "node_modules", ".bin", "node")
    if not os.path.exists(path):
        support.miss("npm: there is no Node for this machine in tests/clients/mcp_conformance")
    return path


def check_conformance(tmp_path, package, *words):
    """{scenario: {check: its status}}."""
    folder, port = find_client("mcp_conformance"), free_port()
    serving = ["--listen", "127.0.0.1:%d" % port, "--insecure-no-auth"]
    for host in ("localhost", "127.0.0.1", "[::1]"):
        serving += ["--allow-origin", "http://%s:%d" % (host, port)]
    tool = os.path.join(folder, "node_modules", *package.split("/"), "dist", "index.js")
    with gateway.Server(tmp_path, *serving, image="python"):
        done = subprocess.run([find_node(folder), tool, "server", "--url", "http://127.0.0.1:%d/mcp" % port, "--suite", "all",
                               "--output-dir", str(tmp_path / "out"), *words], capture_output=True, timeout=SECONDS, check=False, cwd=tmp_path)
    found = {}
    for name in os.listdir(tmp_path / "out"):
        scenario = re.fullmatch(r"server-(.*)-\d{4}-\d\d-\d\dT[\d-]+Z", name).group(1)
        checks = json.loads((tmp_path / "out" / name / "checks.json").read_text())
        found[scenario] = [(check["id"], check["status"]) for check in checks]
    assert set(found) == set(re.findall(r"^. ([a-z0-9-]+): \d+ passed", done.stdout.decode(), re.M)), done.stdout[-3000:]
    return found


def of_status(checks, status):
    return {check for check, found in checks if found == status}


def check_sets(found, conforms, needs_its_own_server):
    """Each scenario is in the set that is said."""
    failed = {name for name, checks in found.items() if of_status(checks, "FAILURE")}
    passed = {name for name, checks in found.items() if of_status(checks, "SUCCESS")} - failed
    assert failed == needs_its_own_server, {name: found[name] for name in failed ^ needs_its_own_server}
    assert passed == conforms, {name: found.get(name) for name in passed ^ conforms}


def test_conformance(tmp_path):
    """The last release of the tool."""
    found = check_conformance(tmp_path, "@modelcontextprotocol/conformance")
    check_sets(found, CONFORMS, NEEDS_ITS_OWN_SERVER)
    assert set(found) - CONFORMS - NEEDS_ITS_OWN_SERVER == SAYS_NOTHING


def test_conformance_to_come(tmp_path):
    """What its next one asks of the older era."""
    found = check_conformance(tmp_path, "conformance-next", "--spec-version", "2025-11-25")
    check_sets(found, CONFORMS_NEXT, NEEDS_ITS_OWN_SERVER)
    assert set(found) - CONFORMS_NEXT - NEEDS_ITS_OWN_SERVER == SAYS_NOTHING


def test_conformance_of_the_newer_era(tmp_path):
    found = check_conformance(tmp_path, "conformance-next", "--spec-version", "2026-07-28")
    for name, (n_passed, failed) in IN_PART.items():
        checks = found.pop(name)
        assert of_status(checks, "FAILURE") == failed, (name, checks)
        assert len([check for check, status in checks if status == "SUCCESS"]) == n_passed, (name, checks)
    check_sets(found, CONFORMS_MODERN, NEEDS_ITS_OWN_SERVER_MODERN)
    assert set(found) == CONFORMS_MODERN | NEEDS_ITS_OWN_SERVER_MODERN
