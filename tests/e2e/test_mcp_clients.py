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
    assert seen["progress"][0]["message"] == "begun\n" and seen["progress"][0]["progress"] == 1
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


# What the conformance tool asks of any server. Its other scenarios call tools, prompts and resources of a server that was made for it.
CONFORMS = {"server-initialize", "ping", "tools-list", "server-sse-multiple-streams", "dns-rebinding-protection"}
NEEDS_ITS_OWN_SERVER = {
    "logging-set-level", "completion-complete", "tools-call-simple-text", "tools-call-image", "tools-call-audio",
    "tools-call-embedded-resource", "tools-call-mixed-content", "tools-call-with-logging", "tools-call-error",
    "tools-call-with-progress", "tools-call-sampling", "tools-call-elicitation", "elicitation-sep1034-defaults",
    "elicitation-sep1330-enums", "resources-list", "resources-read-text", "resources-read-binary", "resources-templates-read",
    "resources-subscribe", "resources-unsubscribe", "prompts-list", "prompts-get-simple", "prompts-get-with-args",
    "prompts-get-embedded-resource", "prompts-get-with-image",
}


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def test_conformance(tmp_path):
    folder, port = find_client("mcp_conformance"), free_port()
    words = ["--listen", "127.0.0.1:%d" % port, "--insecure-no-auth"]
    for host in ("localhost", "127.0.0.1", "[::1]"):
        words += ["--allow-origin", "http://%s:%d" % (host, port)]
    with gateway.Server(tmp_path, *words, image="python"):
        done = subprocess.run(["node", os.path.join(folder, "conformance.mjs"), "server", "--url", "http://127.0.0.1:%d/mcp" % port],
                              capture_output=True, timeout=SECONDS, check=False, cwd=tmp_path)
    summary = done.stdout.decode().partition("=== SUMMARY ===")[2]
    passed = dict(re.findall(r"^. ([a-z0-9-]+): \d+ passed, (\d+) failed", summary, re.M))
    assert set(passed) == CONFORMS | NEEDS_ITS_OWN_SERVER, done.stdout[-3000:]
    assert {name for name, failed in passed.items() if failed == "0"} == CONFORMS, summary
