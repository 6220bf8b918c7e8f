"""hutch serve --config and --check."""
import json

import pytest

import support
from gateway import Server, parse


def write(tmp_path, config):
    path = tmp_path / "hutch.json"
    path.write_text(config if isinstance(config, str) else json.dumps(config))
    return str(path)


def test_options_of_a_file(tmp_path):
    config = write(tmp_path, {"memory": "200m", "pids-limit": 17, "max-body": 2000, "allow-origin": ["https://example.org"], "jobs": 1})
    with Server(tmp_path, "--config", config, "--pids-limit", "18") as server:
        limits = server.ask("GET", "/v1/policies").json["policies"][0]["limits"]
        assert (limits["memory_bytes"], limits["pids"]) == (200 << 20, 18)  # the command line goes first
        head = b"POST /v1/run HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2001\r\n\r\n"
        assert parse(server.raw(head)).error["code"] == "body_too_large"
        answer = server.ask("GET", "/healthz", headers={"Origin": "https://example.org"})
        assert answer.headers["Access-Control-Allow-Origin"] == "https://example.org"


BAD = {
    "no JSON": ("{", "line 1, column"),
    "no object": ("[]", "$: expected an object"),
    "unknown": ('{"memry": "1g"}', "$.memry: unknown key"),
    "twice": ('{"jobs": 1, "jobs": 2}', "$.jobs"),
    "dashes": ('{"--jobs": 1}', "unknown key"),
    "itself": ('{"config": "x"}', "$.config: unknown key"),
    "check": ('{"check": true}', "$.check: unknown key"),
    "no list": ('{"listen": "127.0.0.1:1"}', "$.listen: expected an array"),
    "list of numbers": ('{"listen": [1]}', "$.listen[0]: expected a string"),
    "flag": ('{"quiet": 1}', "$.quiet: expected"),
    "null": ('{"jobs": null}', "$.jobs: expected a string"),
    "negative": ('{"jobs": -1}', "$.jobs"),
    "value": ('{"jobs": 0}', "option '--jobs'"),
    "limit": ('{"memory": "much"}', "much"),
    "tokens that are not there": ('{"tokens": "/nothing"}', "/nothing"),
    "policy": ('{"policy": "none-such"}', "none-such"),
}


@pytest.mark.parametrize("label", BAD)
def test_bad_file(tmp_path, label):
    text, words = BAD[label]
    support.refused("serve", "--image", "minimal", "--check", "--config", write(tmp_path, text), says=words)


def test_check(tmp_path):
    config = write(tmp_path, {"listen": ["127.0.0.1:8080", "unix:/x"], "memory": "200m", "quiet": True})
    done = support.hutch("serve", "--image", "minimal", "--config", config, "--check", "--jobs", "3")
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.decode().splitlines()) == {"config: " + config, "image: minimal", "listen: 127.0.0.1:8080", "listen: unix:/x",
                                                     "memory: 200m", "quiet: true", "jobs: 3"}


def test_no_file(tmp_path):
    support.refused("serve", "--config", str(tmp_path / "none"), says="none")
