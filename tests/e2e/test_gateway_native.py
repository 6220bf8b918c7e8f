"""The native API of hutch serve beyond runs and sessions: what can be asked for."""
import pytest

from gateway import Server

LIMITS = ["wall_ms", "cpu_ms", "memory_bytes", "pids", "cpus", "output_bytes", "data_bytes", "data_files", "file_bytes"]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Server(tmp_path_factory.mktemp("gateway"), "--memory", "200m", "--pids-limit", "17") as started:
        yield started


def test_languages(server):
    answer = server.ask("GET", "/v1/languages")
    assert answer.status == 200
    languages = {language["name"]: language["ending"] for language in answer.json["languages"]}
    assert languages["python"] == ".py" and languages["sh"] == ".sh" and "cobol" not in languages
    for name in languages:  # each can be run
        assert server.run("", language=name)["verdict"] == "ok", name
    for name in {"js", "perl", "ruby", "lua", "r", "bash"} - set(languages):
        assert server.run("", language=name)["exit_code"] == 127, name


def test_policies(server):
    policies = server.ask("GET", "/v1/policies").json["policies"]
    assert [policy["name"] for policy in policies] == ["default"]
    limits = policies[0]["limits"]
    assert list(limits) == LIMITS
    assert (limits["memory_bytes"], limits["pids"]) == (200 << 20, 17)
    # They are what may be asked for, and no more.
    for name, value in limits.items():
        if value:
            assert server.ask("POST", "/v1/run", {"code": "", "limits": {name: value}}).status == 200
            answer = server.ask("POST", "/v1/run", {"code": "", "limits": {name: value + 1}})
            assert answer.status == 400 and "above the policy's" in answer.error["message"], (name, answer.body)


def test_policy_of_a_path(tmp_path):
    path = tmp_path / "tight.json"
    path.write_text('{"schema": 1, "extends": "default", "limits": {"pids": 9}}')
    with Server(tmp_path, "--policy", str(path)) as server:
        policy = server.ask("GET", "/v1/policies").json["policies"][0]
        assert (policy["name"], policy["limits"]["pids"]) == ("tight", 9)
