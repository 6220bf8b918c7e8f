"""Files that a request puts into its run before the start, and those that it gets back after the end."""
import errno
import os

import pytest

import engine
import support

MIB = 1 << 20


# How a run has its directory: on which way it is prepared, and whose it is.
WAYS = {
    "prepared": {},
    "of the caller's": {"data_dir": True},
    "kept": {"keep_data": 1},
    "built": {"policy": engine.OTHER_DEFAULT},
    "executed": {"language": "sh"},
    "executed, of the caller's": {"language": "sh", "data_dir": True},
    "executed, kept": {"language": "sh", "keep_data": 1},
}
PYTHON = ("import os\nprint(open('in.txt').read(), open('/mnt/data/a/b/deep.bin', 'rb').read() == bytes(range(256)), oct(os.stat('run.sh').st_mode & 0o777),\n"
          "      os.stat('in.txt').st_uid == os.getuid(), os.access('a/b', os.W_OK), oct(os.stat('in.txt').st_mode & 0o777))\n"
          "open('in.txt', 'a').write(' changed')\nos.makedirs('out')\nopen('out/made', 'wb').write(b'\\0made\\n')\n")
SHELL = ("[ $(wc -c <a/b/deep.bin) = 256 ] && echo $(cat in.txt) True 0o$(stat -c %a run.sh) $([ -O in.txt ] && echo True) "
         "$([ -w a/b ] && echo True) 0o$(stat -c %a in.txt)\n"
         "printf ' changed' >>in.txt; mkdir out; printf '\\000made\\n' >out/made\n")


@pytest.mark.parametrize("way", WAYS)
def test_in_and_out(warm, tmp_path, way):
    fields = dict(WAYS[way])
    if fields.pop("data_dir", None):
        (tmp_path / "in.txt").write_text("replaced")
        fields["data_dir"] = tmp_path
    result = warm.run(SHELL if "language" in fields else PYTHON, **fields,
                      files=[("in.txt", b"input"), ("a/b/deep.bin", bytes(range(256))), ("/mnt/data/run.sh", b"", 0o755)],
                      fetch=["in.txt", "/mnt/data/out/made", "none", "out", "a/b/deep.bin"])
    assert (result["verdict"], result["stdout"]) == ("ok", "input True 0o755 True True 0o644\n"), result
    assert result["fetched"] == [("in.txt", b"input changed"), ("/mnt/data/out/made", b"\0made\n"), ("none", errno.ENOENT),
                                 ("out", errno.EISDIR), ("a/b/deep.bin", bytes(range(256)))]
    files = result["files"]
    assert [support.paths(files[what]) for what in ("added", "modified", "deleted")] == [["out/made"], ["in.txt"], []], files


def test_in_a_cell(warm):
    with engine.Engine(image="python", zygotes=(("bare", None, (), 1, 2), ("shell", "bare", ("IPython", "ipykernel"), 1, 2))) as one:
        result = one.run("text = open('in').read()\nopen('out', 'w').write(text.upper())\n", rich=1, files=[("in", b"cell")], fetch=["out"])
        assert (result["verdict"], result["fetched"]) == ("ok", [("out", b"CELL")]), result


def test_of_runs_that_end_badly(warm):
    """What lies there is to be had whatever became of the program; where none ran there is nothing."""
    for code, fields, verdict in (("open('out', 'w').write('x')\nraise SystemExit(3)", {}, "error"),
                                  ("open('out', 'w').write('x')\nimport time; time.sleep(60)", {"wall_ms": 4000}, "timeout"),
                                  ("open('out', 'w').write('x')\nimport os, signal; os.kill(os.getpid(), signal.SIGKILL)", {}, "error killed")):
        result = warm.run(code, fetch=["out", "in"], files=[("in", b"in")], **fields)
        assert result["verdict"] in verdict and result["fetched"] == [("out", b"x"), ("in", b"in")], result
    result = warm.run("pass", fetch=["out"])
    assert result["fetched"] == [("out", errno.ENOENT)]
    result = warm.run("pass", data_dir=os.path.join("/usr", "share"), files=[("hutch-test/x", b"x")]) if os.geteuid() else None
    if result:
        assert result["verdict"] == "setup_failed" and "hutch-test/x" in result["message"], result


def test_nothing_hostile_is_followed(warm, tmp_path):
    """What the code has left under the names: links, FIFOs, sockets, directories without permission, what grows."""
    secret = tmp_path / "secret"
    secret.write_text("secret")
    code = ("import os, socket\nos.symlink(%r, 'link'); os.symlink('/etc', 'dir'); os.mkfifo('fifo'); os.link('real', 'hard')\n"
            "socket.socket(socket.AF_UNIX).bind('sock')\nos.symlink('real', 'near'); os.mkdir('closed'); open('closed/x', 'w').write('x')\n"
            "os.chmod('closed', 0); os.chmod('real', 0)\n" % str(secret))
    result = warm.run(code, files=[("real", b"real")], fetch=["link", "dir/passwd", "fifo", "sock", "near", "hard", "real", "closed/x"])
    assert result["verdict"] == "ok", result["stderr"]
    found = dict(result["fetched"])
    assert [found[name] for name in ("link", "dir/passwd", "fifo", "sock", "near")] == [errno.ELOOP, errno.ELOOP, errno.EINVAL, errno.EINVAL, errno.ELOOP]
    assert all(found[name] in (b"real", errno.EACCES) for name in ("hard", "real")), found
    assert found["closed/x"] in (b"x", errno.EACCES), found


def test_put_follows_no_link_of_the_callers_directory(warm, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("kept")
    data = tmp_path / "data"
    data.mkdir()
    (data / "link").symlink_to(outside / "file")
    (data / "dir").symlink_to(outside)
    for name in ("link", "dir/file"):
        result = warm.run("print('ran')", data_dir=data, files=[(name, b"x")])
        assert result["verdict"] == "setup_failed" and "symbolic link" in result["message"] and result["stdout"] == "", result
    assert (outside / "file").read_text() == "kept" and os.listdir(outside) == ["file"]


@pytest.mark.parametrize("path", ["", "/", "/mnt/data", "/mnt/data/", "/tmp/x", "/mnt/datax", "../x", "a/../x", "a//b", "/mnt/data/../x", "a/", "./x",
                                  "/etc/passwd", "x" * 5000])
def test_names_that_are_refused(warm, path):
    for fields in ({"files": [(path, b"x")]}, {"fetch": [path]}):
        with pytest.raises(engine.Failure) as refusal:
            warm.submit("print('ran')", **fields)
        assert refusal.value.code in (errno.EINVAL, errno.ENAMETOOLONG), str(refusal.value)


def test_bounds(warm):
    with pytest.raises(engine.Failure, match="at most 1024"):
        warm.submit("pass", files=[("%d" % n, b"") for n in range(1025)])
    with pytest.raises(engine.Failure, match="64 fetched"):
        warm.submit("pass", fetch=["x"] * 65)
    with pytest.raises(engine.Failure, match="share a directory"):
        warm.submit("pass", files=[("a", bytes(33 * MIB)), ("b", bytes(32 * MIB))])
    with pytest.raises(engine.Failure, match="mode"):
        warm.submit("pass", files=[("a", b"", 0o4755)])
    many = [("d%d/f%d" % (n % 9, n), b"%d" % n) for n in range(1024)]
    result = warm.run("import os\nprint(sum(len(names) for _, _, names in os.walk('.')), open('d8/f800').read())", files=many,
                      fetch=["d%d/f%d" % (n % 9, n) for n in range(64)])
    assert result["stdout"] == "1024 800\n" and [text for _, text in result["fetched"]] == [b"%d" % n for n in range(64)]
    assert not result["files"]["added"] and not result["files"]["truncated"], result["files"]
    large = os.urandom(40 * MIB)
    result = warm.run("import hashlib\nprint(hashlib.sha256(open('large', 'rb').read()).hexdigest())", files=[("large", large)], fetch=["large"])
    assert result["verdict"] == "ok" and result["fetched"] == [("large", large)]


def test_more_than_the_directory_holds(policy):
    """No code runs without its files."""
    with engine.Engine(policy=policy(limits={"data_size": "1M"})) as one:
        for fields in {}, {"data_files": 1}:
            files = [("x", bytes(3 * MIB))] if not fields else [("x", b""), ("y", b"")]
            result = one.run("print('ran')", files=files, **fields)
            assert (result["stdout"], result["verdict"]) == ("", "setup_failed") and "more than" in result["message"], result


def test_working_directory(policy):
    """Relative paths go from where the program starts."""
    with engine.Engine(workdir=b"/mnt/data/") as one:
        assert one.run("print(open('in').read())", files=[("in", b"in")])["stdout"] == "in\n"
    with engine.Engine(workdir=b"/tmp") as one:
        with pytest.raises(engine.Failure, match="not below /mnt/data"):
            one.submit("pass", files=[("in", b"in")])
        assert one.run("print(open('/mnt/data/in').read())", files=[("/mnt/data/in", b"in")])["stdout"] == "in\n"


def test_descriptors_are_given_back(warm):
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        warm.run("open('x', 'w').write('x')", files=[("in", b"in")], fetch=["x", "in"] * 30)
    warm.settle()
    assert len(os.listdir("/proc/self/fd")) <= before + 22


def test_other_names_of_the_data_directory(tmp_path):
    """One directory, whatever is mounted on it, for runs and sessions; paths of files may begin with any of the names."""
    targets = engine.words(["/home/user", "/workspace/data"])
    code = ("import os\nprint(open('/home/user/in').read(), open('/workspace/data/sub/in').read(), os.getcwd(), os.path.samefile('/home/user', '/mnt/data'))\n"
            "open('/home/user/out', 'w').write('made')\n")
    zygotes = (("bare", None, (), 1, 2), ("shell", "bare", ("IPython", "ipykernel"), 1, 2))
    with engine.Engine(image="python", zygotes=zygotes, data_targets=targets, workdir=b"/home/user") as one:
        for fields in ({}, {"policy": engine.OTHER_DEFAULT}, {"data_dir": tmp_path}, {"keep_data": 1}):
            one.settle()
            result = one.run(code, files=[("in", b"one"), ("/workspace/data/sub/in", b"two")], fetch=["/home/user/out", "out"], **fields)
            assert result["stdout"] == "one two /mnt/data True\n", (result["message"], result["stderr"])
            assert result["fetched"] == [("/home/user/out", b"made"), ("out", b"made")]
        result = one.run("echo $PWD; cat /home/user/in; ls /workspace", language="sh", files=[("in", b"shell\n")])
        assert result["stdout"].split()[1:] == ["shell", "data"], result
        with engine.Session(one) as session:
            session.run("open('/home/user/kept', 'w').write('x')")
            assert [entry["path"] for entry in session.files()] == ["kept"]
    for target in ("", "relative", "/", "/proc/x", "/mnt/data", "/mnt/data/x", "/tmp/../x", "/home/user/"):
        with pytest.raises(engine.Failure):
            engine.Engine(data_targets=engine.words([target]))
