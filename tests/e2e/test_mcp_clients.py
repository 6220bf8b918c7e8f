"""hutch mcp with the clients that people use, from npm: tests/clients/mcp. Each tells what it has observed."""
import base64
import json
import os
import shutil
import subprocess

import pytest

import support
from support import HUTCH

SECONDS = 150
TOOLS = ["run_python", "run_command", "list_files", "read_file", "write_file"]
CLIENTS = os.environ.get("HUTCH_TEST_CLIENTS") or os.path.join(support.TREE, "build", "clients")


def observe(script, *words):
    """Runs a client, which starts hutch mcp."""
    folder = os.path.join(CLIENTS, "mcp")
    if not shutil.which("node") or not os.path.exists(os.path.join(folder, "installed.json")):
        reason = "npm: its packages for tests/clients/mcp are not installed (make clients)"
        if support.STRICT:
            pytest.fail("strict: " + reason)
        pytest.skip(reason)
    done = subprocess.run(["node", os.path.join(folder, script), *words, HUTCH, "mcp"], capture_output=True, timeout=SECONDS, check=False)
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


def test_sdk():
    seen = observe("legacy.mjs")
    check_common(seen)
    assert seen["capabilities"] == {"tools": {}}
    assert seen["command"]["isError"] is True and seen["command"]["structuredContent"]["exit_code"] == 3
    assert seen["write"]["structuredContent"]["size"] == len("from the client")
    assert text_of(seen["read"]) == "from the client"
    assert "note.txt" in [row["path"] for row in seen["list"]["structuredContent"]["files"]]
    assert seen["timeout"] == -32001 and seen["afterTimeout"]["structuredContent"]["result"] == "6"
    assert seen["isGone"] is True


@pytest.mark.parametrize("mode,version", [("auto", "2026-07-28"), ("2026-07-28", "2026-07-28"), ("legacy", "2025-11-25")])
def test_client(mode, version):
    seen = observe("modern.mjs", mode)
    check_common(seen)
    assert seen["version"] == version
