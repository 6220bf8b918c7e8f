"""hutch serve --config and --check."""
import hashlib
import json
import os
import signal

import pytest

import support
from gateway import Server, UnixConnection, await_that, parse, policy_file, tokens_file


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
    tokens = tokens_file(tmp_path, ada="secret")
    config = write(tmp_path, {"listen": ["127.0.0.1:8080", "unix:/x"], "tokens": tokens, "memory": "200m", "quiet": True})
    done = support.hutch("serve", "--image", "minimal", "--config", config, "--check", "--jobs", "3")
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.decode().splitlines()) == {"config: " + config, "image: minimal", "listen: 127.0.0.1:8080", "listen: unix:/x",
                                                     "tokens: " + tokens, "memory: 200m", "quiet: true", "jobs: 3"}


def test_check_of_tcp_without_tokens(tmp_path):
    """As a start is refused, and with the same words."""
    for words in (("--listen", "127.0.0.1:0"), ("--listen", "unix:" + str(tmp_path / "s"), "--listen", "127.0.0.1:0")):
        said = {support.refused("serve", "--image", "minimal", *words, *more, says="without tokens") for more in ((), ("--check",))}
        assert len(said) == 1 and not (tmp_path / "s").exists(), said
    assert support.hutch("serve", "--image", "minimal", "--listen", "127.0.0.1:0", "--insecure-no-auth", "--check").returncode == 0
    assert support.hutch("serve", "--image", "minimal", "--listen", "unix:" + str(tmp_path / "s"), "--check").returncode == 0


def test_no_file(tmp_path):
    support.refused("serve", "--config", str(tmp_path / "none"), says="none")


# --- what the command line has not

ZYGOTES = [{"name": "root", "min": 1, "max": 2}, {"name": "dec", "parent": "root", "modules": ["decimal", "fractions"], "min": 1, "max": 2,
                                                  "warm_up": "import decimal\ndecimal.getcontext().prec = 5\n"}]


def test_zygotes_and_pools(tmp_path, policy):
    support.need("userns")
    config = write(tmp_path, {"zygotes": ZYGOTES, "pools": [{"policy": policy(limits={"pids": 33}), "zygote": "root", "min": 1, "max": 2}], "layouts": 1})
    with Server(tmp_path, "--workers", "1", "--config", config) as server:  # whose pool is counted
        pools = server.ask("GET", "/v1/pools").json["pools"]
        assert [pool["name"] for pool in pools] == ["root", "dec"]
        assert [[row["name"] for row in pool["policies"]] for pool in pools] == [["policy"], []]
        server.await_metric('hutch_pool_prepared{zygote="root",policy="policy"}', 1)
        found = server.metrics()
        assert found['hutch_pool_hits_total{zygote="root",policy="policy"}'] == 0 and 'hutch_pool_hits_total{zygote="dec"}' in found
        assert server.run("import decimal\nprint(decimal.Decimal(1) / 3)")["stdout"] == "0.33333\n"
        assert server.ask("POST", "/v1/sessions", {"zygote": "nothing"}).status == 400


BAD_ENGINES = {
    "zygotes: no list": ('{"zygotes": {}}', "$.zygotes: expected an array"),
    "zygotes: none": ('{"zygotes": []}', "$.zygotes: there has to be one zygote"),
    "zygotes: no name": ('{"zygotes": [{}]}', "$.zygotes[0]"),
    "zygotes: name": ('{"zygotes": [{"name": "a b"}]}', "zygote 'a b'"),
    "zygotes: unknown": ('{"zygotes": [{"name": "a", "mim": 1}]}', "$.zygotes[0].mim: unknown key"),
    "zygotes: key twice": ('{"zygotes": [{"name": "a", "name": "b"}]}', "$.zygotes[0].name"),
    "zygotes: same": ('{"zygotes": [{"name": "a"}, {"name": "a", "parent": "a"}]}', "is there twice"),
    "zygotes: orphan": ('{"zygotes": [{"name": "a"}, {"name": "b", "parent": "c"}]}', "there is no zygote 'c'"),
    "zygotes: modules": ('{"zygotes": [{"name": "a", "modules": "x"}]}', "$.zygotes[0].modules: expected an array"),
    "zygotes: a module": ('{"zygotes": [{"name": "a", "modules": [1]}]}', "$.zygotes[0].modules[0]: expected a string"),
    "zygotes: module's name": ('{"zygotes": [{"name": "a", "modules": ["a;b"]}]}', "is not the name of a module"),
    "zygotes: bounds": ('{"zygotes": [{"name": "a", "min": 3, "max": 2}]}', "min 3 is above max 2"),
    "zygotes: negative": ('{"zygotes": [{"name": "a", "min": -1}]}', "$.zygotes[0].min"),
    "zygotes: many": (json.dumps({"zygotes": [{"name": "z%d" % i} for i in range(33)]}), "$.zygotes"),
    "pools: policy": ('{"pools": [{"policy": "none-such"}]}', "none-such"),
    "pools: no policy": ('{"pools": [{"zygote": "bare"}]}', "$.pools[0]"),
    "pools: empty policy": ('{"pools": [{"policy": ""}]}', "$.pools[0].policy: a policy has a name"),
    "pools: zygote": ('{"pools": [{"policy": "strict", "zygote": "none"}]}', "the zygote 'none', which there is not"),
    "pools: twice": ('{"pools": [{"policy": "strict"}, {"policy": "strict"}]}', "two pools"),
    "pools: the engine's": ('{"pools": [{"policy": "default"}]}', "which is the engine's"),
    "layouts": ('{"layouts": 9}', "$.layouts"),
    "layouts: text": ('{"layouts": "2"}', "$.layouts"),
    "policies: unknown": ('{"policies": {"users": {}}}', "$.policies.users: unknown key"),
    "policies: no object": ('{"policies": []}', "$.policies: expected an object"),
    "policies: number": ('{"policies": {"tokens": {"ada": 1}}}', "$.policies.tokens.ada: expected a string"),
    "policies: twice": ('{"policies": {"formats": {"mcp": "strict", "mcp": "strict"}}}', "$.policies.formats.mcp"),
    "policies: no such token": ('{"policies": {"tokens": {"ada": "strict"}}}', "policies: there is no token of the name 'ada' in --tokens"),
    "policies: no such format": ('{"policies": {"formats": {"soap": "strict"}}}', "policies: the server does not speak the format 'soap' (--format)"),
    "policies: no such policy": ('{"policies": {"formats": {"mcp": "none-such"}}}', "the policy of the format 'mcp': "),
}


@pytest.mark.parametrize("label", BAD_ENGINES)
def test_bad_engine(tmp_path, label):
    text, words = BAD_ENGINES[label]
    support.refused("serve", "--image", "minimal", "--check", "--config", write(tmp_path, text), says=words)


def test_check_says_all(tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text("ada %s\n" % hashlib.sha256(b"a" * 40).hexdigest())
    config = write(tmp_path, {"zygotes": ZYGOTES, "pools": [{"policy": "strict", "min": 1}], "layouts": 2, "tokens": str(tokens),
                              "policies": {"tokens": {"ada": "strict"}, "formats": {"mcp": "strict"}}})
    done = support.hutch("serve", "--image", "minimal", "--config", config, "--check")
    assert done.returncode == 0, done.stderr
    assert {"zygote: root, 1 to 2 sandboxes", "zygote: dec of root, imports decimal fractions, 1 to 2 sandboxes", "layouts: 2",
            "pool: policy strict, 1 to 32 sandboxes", "policy of token ada: strict",
            "policy of format mcp: strict"} <= set(done.stdout.decode().splitlines())


FORKS = """import os, signal
n = 0
try:
    while n < 40:
        if os.fork() == 0:
            signal.pause()
        n += 1
except OSError:
    pass
print(n)
"""


def test_policies_of_tokens_and_formats(tmp_path):
    support.need("userns")
    words = {name: name[0] * 40 for name in ("ada", "bob", "eve")}
    tokens = tmp_path / "tokens"
    tokens.write_text("".join("%s %s\n" % (name, hashlib.sha256(word.encode()).hexdigest()) for name, word in words.items()))
    small, smaller = policy_file(tmp_path, "small", pids=21), policy_file(tmp_path, "smaller", pids=13)
    function = tmp_path / "f.py"
    function.write_text("def handler(event): return event\n")
    settings = {"tokens": str(tokens), "pools": [{"policy": small, "min": 1, "max": 2}], "functions": {"f": str(function)},
                "policies": {"tokens": {"ada": small}, "formats": {"sandboxfusion": smaller}}}
    config = write(tmp_path, settings)
    with Server(tmp_path, "--config", config) as server:
        def ask(name, method, path, body=None, **headers):
            answer = server.ask(method, path, body, headers={"Authorization": "Bearer " + words[name], **headers})
            assert answer.status < 300, answer.body
            return answer.json

        def pids(name):
            """As each way of a run reports it."""
            own = UnixConnection(server.path)
            own.request("POST", "/v1/batch", b'{"code": "1"}\n', {"Authorization": "Bearer " + words[name], "Content-Type": "application/x-ndjson"})
            results = [ask(name, "POST", "/v1/run", {"code": "1"}), ask(name, "POST", "/v1/functions/f", 1),
                       ask(name, "POST", "/v1/run", {"code": "1"}, **{"Idempotency-Key": os.urandom(8).hex()}),
                       json.loads(own.getresponse().read())["result"]]
            own.close()
            return {ask(name, "GET", "/v1/policies")["policies"][0]["limits"]["pids"], *(result["limits"]["pids"]["asked"] for result in results)}

        usual = pids("bob").pop()
        assert usual > 21 and pids("ada") == {21} and pids("eve") == {usual}
        assert ask("ada", "GET", "/v1/policies")["policies"][0]["name"] == "small"
        refused = server.ask("POST", "/v1/run", {"code": "1", "limits": {"pids": 22}}, headers={"Authorization": "Bearer " + words["ada"]})
        assert refused.status == 400 and "above the policy's" in refused.error["message"]
        forks = {name: int(ask(name, "POST", "/run_code", {"code": FORKS, "language": "python"})["run_result"]["stdout"])
                 for name in ("ada", "bob")}
        assert forks["bob"] < 13 <= forks["ada"] < 21, forks

        session = ask("eve", "POST", "/v1/sessions", {"no_interpreter": True})["id"]
        write(tmp_path, {**settings, "policies": {"tokens": {"eve": small}}})
        server.signal(signal.SIGHUP)
        server.await_event("reloaded")
        await_that(lambda: pids("eve") == {21} and pids("ada") == {usual})
        assert ask("eve", "GET", "/v1/sessions/" + session)["id"] == session
        write(tmp_path, {**settings, "policies": {"tokens": {"mallory": small}}, "max-body": 1, "functions": {}})
        server.signal(signal.SIGHUP)
        assert "mallory" in server.await_event("reload failed")["message"]
        assert pids("eve") == {21}  # by a function, too, whose body has more than one byte
        write(tmp_path, {**settings, "policies": {"tokens": {"eve": small}}, "layouts": 3, "memory": "300m"})
        server.signal(signal.SIGHUP)
        server.await_event("restart needed", lambda event: event["options"] == "memory, layouts")
