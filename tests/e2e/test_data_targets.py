"""Further names of /mnt/data that one run or one session has for itself."""
import errno
import json

import pytest

import engine
import gateway
import support

ZYGOTES = (("bare", None, (), 1, 2), ("shell", "bare", ("IPython", "ipykernel"), 1, 2))
LOOK = "import os; print([name for name in ('/engine', '/home/user', '/a/b') if os.path.exists(name)])"


@pytest.fixture(scope="module")
def named():
    """An engine that has one name of its own."""
    with engine.Engine(image="python", zygotes=ZYGOTES, data_targets=engine.words(["/engine"])) as one:
        yield one


def names(*targets):
    return engine.words(targets)


def test_of_a_run(named, tmp_path):
    """One directory by all of its names, those of the engine among them, on each way that a run is made; and files are put
    and fetched by them."""
    code = ("import os\nprint(open('/home/user/in').read(), open('/a/b/sub/in').read(), open('/engine/in').read(), os.path.samefile('/a/b', '/mnt/data'))\n"
            "open('/home/user/out', 'w').write('made')\n")
    for fields in ({}, {"policy": engine.OTHER_DEFAULT}, {"data_dir": tmp_path}, {"keep_data": 1}, {"rich": 1}, {"env": ["PYTHONHASHSEED=1"]}):
        result = named.run(code, data_targets=names("/home/user", "/a/b", "/engine", "/a/b"), fetch=["/home/user/out", "/a/b/out", "out"],
                           files=[("/home/user/in", b"one"), ("/a/b/sub/in", b"two")], **fields)
        assert result["stdout"] == "one two one True\n", (fields, result["message"], result["stderr"])
        assert result["fetched"] == [(path, b"made") for path in ("/home/user/out", "/a/b/out", "out")]
    result = named.run("cat /home/user/in; cd /a/b; echo x >made", language="sh", files=[("/home/user/in", b"shell\n")], fetch=["/a/b/made"],
                       data_targets=names("/home/user", "/a/b"))
    assert (result["stdout"], result["fetched"]) == ("shell\n", [("/a/b/made", b"x\n")])


def test_another_run_has_none_of_them(named):
    assert named.run(LOOK, data_targets=names("/home/user"))["stdout"] == "['/engine', '/home/user']\n"
    assert named.run(LOOK)["stdout"] == "['/engine']\n"
    sentence = engine.refused(lambda: named.run("", files=[("/home/user/in", b"")], data_targets=names("/a/b")), errno.EINVAL)
    assert "'/home/user/in' is not below /mnt/data" in sentence


def test_where_the_sandbox_comes_from(named):
    """Names that the engine has, too, change nothing; others have a sandbox built, and none is taken from the pool."""
    before = named.settle()
    for targets in (None, names(), names("/engine"), names("/engine", "/engine")):
        named.settle()
        assert named.run("", data_targets=targets)["was_prepared"]
    between = named.settle()
    assert (between["from_pool"] - before["from_pool"], between["on_demand"] - before["on_demand"]) == (4, 0)
    assert not named.run("", data_targets=names("/engine", "/home/user"))["was_prepared"]
    after = named.settle()
    assert (after["from_pool"] - between["from_pool"], after["on_demand"] - between["on_demand"]) == (0, 1)


def test_of_sessions(named):
    """Each has its own, for cells, after a restart, and behind a rollback."""
    with engine.Session(named, data_targets=names("/home/user")) as one, engine.Session(named, data_targets=names("/a/b")) as two, \
            engine.Session(named) as three:
        assert one.printed("open('/home/user/kept', 'w').write('x')\n" + LOOK) == "['/engine', '/home/user']\n"
        assert two.printed(LOOK) == "['/engine', '/a/b']\n"
        assert three.printed(LOOK) == "['/engine']\n"
        assert [entry["path"] for entry in one.files()] == ["kept"] and two.files() == []
        one.restart()
        assert one.printed("print(open('/home/user/kept').read())\n" + LOOK) == "x\n['/engine', '/home/user']\n"
    with engine.Session(named, no_interpreter=1, data_targets=names("/a/b")):
        pass
    with engine.Session(named, data_targets=names("/engine")) as session:
        assert session.printed(LOOK) == "['/engine']\n"


# What no sandbox can have, with what is said of it.
BAD = {
    "": "expected an absolute path", "relative": "expected an absolute path", "/": "expected an absolute path", "/proc": "set up by hutch itself",
    "/proc/x": "set up by hutch itself", "/dev/shm/x": "set up by hutch itself", "/sys": "set up by hutch itself", "/tmp": "set up by hutch itself",
    "/run": "set up by hutch itself", "/run/hutch/code": "set up by hutch itself", "/mnt": "set up by hutch itself", "/mnt/data": "set up by hutch itself",
    "/mnt/data/x": "set up by hutch itself", "/mnt/data/..": "without '.', '..'", "//proc/x": "without '.', '..', '//'",
    "/tmp/../x": "without '.', '..'", "/home/..": "without '.', '..'", "/home/./x": "without '.', '..'", "/home//x": "without '.', '..'",
    "/home/user/": "a '/' at its end", "/home\n/x": "control characters", "/home/\x7f": "control characters", b"/home/\xff": "UTF-8",
    "/" + "x" * 255: "a data target of 256 bytes: at most 255", "/x" * 17: "at most 16 directories deep",
    "/usr": "'/usr': the image has that path", "/usr/lib": "'/usr/lib': the image has that path", "/etc/passwd": "the image has that path",
    "/etc/passwd/x": "has a file on the way", "/bin/x": "has a link on the way", "/bin": "the image has that path",
}


@pytest.mark.parametrize("target", BAD)
def test_bad_names(named, target):
    """The same sentence, whoever asks."""
    said = [engine.refused(call, errno.EINVAL) for call in (
        lambda: named.run("", data_targets=names(target)),
        lambda: named.run("", language="sh", data_targets=names("/home/user", target)),
        lambda: engine.Session(named, data_targets=names(target)),
        lambda: engine.Engine(image="python", data_targets=names(target)))]
    assert BAD[target] in said[0] and set(said) == {said[0]}, said


def test_names_in_the_way_of_each_other(named, tmp_path):
    for targets, where in ((("/a", "/a/b"), "/a"), (("/a/b", "/a"), "/a/b"), (("/engine/x",), "/engine")):
        said = engine.refused(lambda: named.run("", data_targets=names(*targets)), errno.EINVAL)
        assert "a mount or another data target at '%s' already" % where in said
    said = engine.refused(lambda: named.run("", data_targets=names(*("/x%d" % i for i in range(17)))), errno.EINVAL)
    assert said == "there are more than 16 data targets"
    targets = ["/home/user/%d%s" % (i, "/x" * 13) for i in range(16)]
    assert named.run("open(%r, 'w')" % (targets[15] + "/y"), data_targets=names(*targets))["verdict"] == "ok"


def test_names_and_mounts(tmp_path):
    """Nothing is made in a directory of the host's, and no mount is hidden; in a tmpfs there is room for a name."""
    (tmp_path / "volume").mkdir()
    with engine.Engine(image="python", volumes=names("%s:/srv/volume" % (tmp_path / "volume")), tmpfs=names("/scratch/own")) as one:
        for target, where in (("/srv/volume", "/srv/volume"), ("/srv/volume/x", "/srv/volume"), ("/srv/volume/x/y", "/srv/volume"),
                              ("/scratch/own", "/scratch/own"), ("/scratch", "/scratch/own")):
            said = engine.refused(lambda: one.run("", data_targets=names(target)), errno.EINVAL)
            assert said == "data target '%s': the sandbox has a mount or another data target at '%s' already" % (target, where)
        for target in ("/scratch/own/x", "/tmp/x/y", "/srv/other"):
            result = one.run("open('%s/made', 'w')" % target, data_targets=names(target))
            assert result["verdict"] == "ok" and support.paths(result["files"]["added"]) == ["made"], result
    assert list((tmp_path / "volume").iterdir()) == []


def test_of_a_call(named):
    named.add_function("look", "import os\ndef handler(event):\n    return [os.path.exists(name) and os.path.samefile(name, '/mnt/data') for name in event]\n")
    for targets, found in ((("/a/b",), [True, False]), ((), [False, False])):
        result = named.call("look", ["/a/b", "/home/user"], data_targets=names(*targets))
        assert (result["verdict"], result["value"]) == ("ok", found), result


def test_on_the_hosts_own_tree(tmp_path):
    """There a name is not compared with what is there: the sandbox cannot be made, and says so."""
    with engine.Engine(rootfs=b"host") as one:
        result = one.run(LOOK, data_targets=names("/home/user"))
        assert result["stdout"] == "['/home/user']\n", result
        result = one.run("", data_targets=names("/usr/lib"))
        assert result["verdict"] == "setup_failed" and "/usr/lib" in result["message"], result


# --------------------------------------------------------------------------------------------------
# Over HTTP

@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with gateway.Server(tmp_path_factory.mktemp("gateway"), "--data-target", "/engine", image="python") as started:
        yield started


def test_of_a_run_over_http(server):
    code = LOOK + "\nopen('/home/user/made', 'w').write('x')"
    result = server.run(code, data_targets=["/home/user", "/engine"], fetch=["/home/user/made", "/engine/made"])
    assert result["stdout"] == "['/engine', '/home/user']\n", result
    assert [file["base64"] for file in result["fetched"]] == ["eA==", "eA=="]
    assert server.run(LOOK, data_targets=[])["stdout"] == "['/engine']\n"


def test_of_a_batch(server):
    lines = [{"id": 1, "code": LOOK, "data_targets": ["/a/b"]}, {"id": 2, "code": LOOK}, {"id": 3, "code": LOOK, "data_targets": ["/proc"]}]
    answer = server.ask("POST", "/v1/batch", "\n".join(map(json.dumps, lines)).encode(), {"Content-Type": "application/x-ndjson"})
    found = {line["id"]: line for line in map(json.loads, answer.body.splitlines())}
    assert [found[1]["result"]["stdout"], found[2]["result"]["stdout"]] == ["['/engine', '/a/b']\n", "['/engine']\n"], found
    assert found[3]["error"]["code"] == "invalid_request" and "'/proc'" in found[3]["error"]["message"]


def test_of_sessions_over_http(server):
    for options, printed in (({"data_targets": ["/home/user"]}, "['/engine', '/home/user']\n"), ({"data_targets": ["/a/b"]}, "['/engine', '/a/b']\n"),
                             ({}, "['/engine']\n")):
        path = "/v1/sessions/" + server.ask("POST", "/v1/sessions", options).json["id"]
        outputs = server.ask("POST", path + "/cells", {"code": LOOK}).json["outputs"]
        assert [output["text"] for output in outputs] == [printed]
        assert server.ask("DELETE", path).status == 204


@pytest.mark.parametrize("targets, sentence", [
    ("/home/user", "$.data_targets: expected an array"), ([1], "$.data_targets[0]: expected a string"), (["/a\0b"], "\\u0000 in a string"),
    ([None], "$.data_targets[0]: expected a string"), (None, "$.data_targets: expected an array"),
    (["/ok", "/mnt/data/.."], "data target '/mnt/data/..': expected an absolute path"), (["/"], "data target '/': expected an absolute path"),
    (["/proc"], "data target '/proc': it is set up by hutch itself"), (["/usr"], "data target '/usr': the image has that path"),
    (["/" + "x" * 300], "a data target of 301 bytes: at most 255"), (["/x%d" % i for i in range(17)], "more than 16 data targets"),
    (["/a", "/a/b"], "data target '/a/b': the sandbox has a mount or another data target at '/a'"), (["/\n"], "control characters"),
    (["/é" * 16 + "é" * 104], "a data target of 256 bytes"), (["/x"] * 5000, "data_targets"), (["/" + "y" * 2000000], "data_targets")])
def test_refused_over_http(server, targets, sentence):
    for path, body in (("/v1/run", {"code": "", "data_targets": targets}), ("/v1/sessions", {"data_targets": targets})):
        answer = server.ask("POST", path, body)
        assert (answer.status, answer.error["code"]) == (400, "invalid_request"), answer.body
        assert sentence in answer.error["message"], answer.error
