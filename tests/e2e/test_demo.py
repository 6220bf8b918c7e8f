"""The second half of `make demo`: questions about its table by clients of others, and what is said where npm is out of reach."""
import csv
import os
import shutil
import subprocess
import sys

import gateway
import support

ASK = os.path.join(support.TREE, "examples", "clients", "ask")
CLIENTS = os.environ.get("HUTCH_TEST_CLIENTS") or os.path.join(support.TREE, "build", "clients")


def make_table(folder):
    table = os.path.join(str(folder), "traffic_accidents.csv")
    subprocess.run([sys.executable, os.path.join(support.TREE, "examples", "make_accidents.py"), table], check=True, capture_output=True)
    with open(table, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def ask(folder, clients, **env):
    return subprocess.run([sys.executable, ASK, support.HUTCH, str(folder), str(clients)], env={**os.environ, **env}, check=False,
                          capture_output=True, text=True, timeout=gateway.SECONDS, stdin=subprocess.DEVNULL)


def test_questions_and_answers(data):
    for name in ("mcp", "e2b"):
        if not shutil.which("node") or not os.path.exists(os.path.join(CLIENTS, name, "installed.json")):
            support.miss("npm: its packages for tests/clients/%s are not installed (make clients)" % name)
    rows = make_table(data)
    done = ask(data, CLIENTS)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("@modelcontextprotocol/sdk ") and lines[0].endswith(", with `hutch mcp`:")
    assert lines[3].startswith("@e2b/code-interpreter ") and lines[3].endswith(", with `hutch serve`:")
    assert lines[1] == "  question: How many accidents were there, and how many of them in urban areas?"
    once = list({tuple(row.items()): row for row in rows}.values())
    urban = sum(int(row["accidents"]) for row in once if row["urban_area"] == "1")
    assert lines[2] == "  answer:   %d accidents, %d of them in urban areas" % (sum(int(row["accidents"]) for row in once), urban)
    assert lines[4] == "  question: How many lines of the table are there twice, and how many cells are empty?"
    empty = sum(value in ("", "n/a") for row in rows for value in row.values())
    assert lines[5:] == ["  answer:   %d lines are there twice, %d cells are empty" % (len(rows) - len(once), empty)]


def test_npm_out_of_reach(tmp_path):
    """It fails, and says what it could not have."""
    if not shutil.which("npm"):
        support.miss("npm is not installed")
    make_table(tmp_path)
    done = ask(tmp_path, tmp_path / "clients", npm_config_registry="http://127.0.0.1:9/", npm_config_cache=str(tmp_path / "cache"),
               npm_config_fetch_retries="0")
    assert done.returncode == 1 and done.stdout == ""
    assert "hutch: npm has not installed the packages of tests/clients/mcp\n" in done.stderr
    assert done.stderr.endswith("hutch: npm cannot fetch mcp and e2b (its reason is above), so the demo ends here; "
                                "what came before does not need it\n")
    assert not os.path.exists(tmp_path / "clients" / "mcp" / "installed.json")


def test_a_script_that_fails_fails_the_demo(tmp_path):
    """Without the table there is no answer."""
    for name in ("mcp", "e2b"):
        if not shutil.which("node") or not os.path.exists(os.path.join(CLIENTS, name, "installed.json")):
            support.miss("npm: its packages for tests/clients/%s are not installed (make clients)" % name)
    done = ask(tmp_path, CLIENTS)
    assert done.returncode == 1 and "No such file or directory: 'traffic_accidents.csv'" in done.stderr
    assert done.stderr.endswith("hutch: examples/clients/mcp.mjs ended with status 1\n")
