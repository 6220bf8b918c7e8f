"""Host ids of their own, which sandboxes borrow from a range of subordinate ids: root's that of the user hutch, an ordinary
user's the user's."""
import json
import os
import subprocess
import time

import pytest

import engine
import support
from support import HUTCH, IMAGE, run_json

WHO = "print(open('/proc/self/uid_map').read().split()[1], open('/proc/self/gid_map').read().split()[1])"
HOLD = "import time; " + WHO + "; print(flush=True); time.sleep(60)"
# With what others of the same user of the host have on their way, the second message is refused: the kernel compares
# their sum with the limit on open files, which is to be 256.
SEND = """
import array, socket, time
one, other = socket.socketpair()
for _ in range(2):
    one.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0] * 125))])
print("sent", flush=True)
"""
BOTH = pytest.mark.parametrize("way", ["cold", "warm"])

AS_ROOT = pytest.mark.skipif(not support.is_root(), reason="another table of subordinate ids takes root to mount")
AS_USER = pytest.mark.skipif(support.is_root(), reason="root's files can be mapped wherever they are")
ON_DISK = "shared: its files are on the host's disk, where only root can map owners"


def needs_range():
    uids = support.host_uids()
    if len(uids) < 2:
        pytest.skip("the user hutch, or an ordinary one, has no subordinate ids here")
    return uids


def with_table(text, tmp_path, *words, more="mount -t tmpfs tmpfs /run", paths=()):
    """Runs a command in a mount namespace in which the tables of subordinate ids say @text, and the locks are of nobody
    else."""
    table = tmp_path / "table"
    table.write_text(text)
    return subprocess.run(support.range_words(table, more, *paths) + list(words), stdin=subprocess.DEVNULL, capture_output=True, timeout=60,
                          check=False)


def run_with_table(text, tmp_path, way, *options, **how):
    done = with_table(text, tmp_path, HUTCH, "run", *(["--warm"] if way == "warm" else []), "--image", IMAGE, "--json", *options, "-c", WHO,
                      **how)
    result = json.loads(done.stdout)
    support.check_result(result)
    return result


def ids_of(text):
    return tuple(int(word) for word in text.split())


def test_the_result_says_it():
    uids = needs_range()
    result = run_json("-c", WHO)
    layer = result["layers"]["own_uid"]
    uid, gid = ids_of(result["stdout"])
    assert layer == {"asked": "try", "active": True, "detail": "uid %d of the host" % uid}
    assert uid in uids[1:] and gid == uid


def test_at_the_same_time_each_has_another():
    """Of two engines and of cold runs."""
    needs_range()
    found = []
    with engine.Engine(max_running=8, zygotes=(("bare", None, (), 2, 4),)) as one, engine.Engine(max_running=8) as other:
        for warm in (one, other):
            runs = [warm.submit(HOLD, stream=True) for _ in range(6)]
            warm.until(lambda runs=runs: all(b"\n" in run.output[1] for run in runs), what="all have said who they are")
            found += [ids_of(run.output[1].decode().split("\n")[0]) for run in runs]
        found += [ids_of(run_json("-c", WHO)["stdout"]) for _ in range(3)]
        found += [ids_of(one.run(WHO)["stdout"]), ids_of(other.run(WHO)["stdout"])]
    assert len(set(found)) == len(found) == 17
    assert len({uid for uid, _ in found}) == 17


@AS_ROOT
@BOTH
def test_files_stay_the_callers(way, tmp_path):
    needs_range()
    data = tmp_path / "data"
    data.mkdir()
    os.chown(data, 12345, 54321)
    (data / "before").write_text("old")
    os.chown(data / "before", 12345, 54321)
    code = ("import os\nopen('made', 'w').write('x'); open('before', 'a').write('er'); os.mkdir('below', 0o700)\n"
            "print({os.stat(name).st_uid for name in ('.', 'made', 'before', 'below')}, os.getuid())")
    words = [HUTCH, "run", *(["--warm"] if way == "warm" else []), "--image", IMAGE, "--data", str(data), "-c", code]
    assert subprocess.run(words, capture_output=True, timeout=60, check=True).stdout == b"{1000} 1000\n"
    for name in ("", "made", "before", "below"):
        info = os.stat(data / name)
        assert (info.st_uid, info.st_gid) == (12345, 54321), name
    assert (data / "before").read_text() == "older"


@pytest.mark.parametrize("layer", ["try", "off"])
def test_what_one_has_on_its_way_is_not_counted_for_another(layer, policy):
    """As it is where they share a uid, which says that the kernel counts at all."""
    needs_range()
    with engine.Engine(max_running=2, policy=policy("default", layers={"own_uid": layer}, limits={"open_files": 256})) as warm:
        run = warm.run_streaming(SEND + "time.sleep(60)", word=b"sent\n")
        result = warm.run(SEND)
        warm.cancel(run)
        warm.wait(run)
    if layer == "try":
        assert result["stdout"] == "sent\n", result
    else:
        assert result["verdict"] == "error" and "Too many references" in result["stderr"], result


@AS_ROOT
@BOTH
def test_without_a_range_it_is_shared(way, tmp_path):
    result = run_with_table("somebody:100000:65536\n", tmp_path, way)
    assert result["verdict"] == "ok" and ids_of(result["stdout"]) == (65534, 65534)
    assert result["layers"]["own_uid"] == {"asked": "try", "active": False,
                                           "detail": "shared: the user 'hutch' has no range of subordinate ids"}


@AS_ROOT
@BOTH
def test_required(way, tmp_path, policy):
    path = policy("default", layers={"own_uid": "require"})
    result = run_with_table("somebody:100000:65536\n", tmp_path, way, "--policy", path)
    assert result["verdict"] == "setup_failed" and result["stdout"] == ""
    assert "the policy requires a host uid of the sandbox's own: the user 'hutch' has no range of subordinate ids" in result["message"]
    result = run_with_table("hutch:700000000:3\n", tmp_path, way, "--policy", path)
    assert result["verdict"] == "ok" and result["layers"]["own_uid"]["active"]
    assert ids_of(result["stdout"])[0] in (700000001, 700000002)


@AS_ROOT
@BOTH
def test_switched_off(way, tmp_path, policy):
    path = policy("default", layers={"own_uid": "off"})
    result = run_with_table("hutch:700000000:3\n", tmp_path, way, "--policy", path)
    assert result["verdict"] == "ok" and ids_of(result["stdout"])[0] == 700000000
    assert result["layers"]["own_uid"]["asked"] == "off" and not result["layers"]["own_uid"]["active"]


@AS_ROOT
def test_a_path_that_is_mounted_for_all_is_shared(tmp_path):
    needs_range()
    place = tmp_path / "place"
    place.mkdir()
    for warm in ([], ["--warm"]):
        done = subprocess.run([HUTCH, "run", *warm, "--image", IMAGE, "--json", "-v", "%s:/mnt/place" % place, "-c",
                               "open('/mnt/place/made', 'a').write('x')"], capture_output=True, timeout=60, check=False)
        result = json.loads(done.stdout)
        assert result["verdict"] == "ok", result
        assert result["layers"]["own_uid"]["active"] == (not warm), result["layers"]["own_uid"]
    assert result["layers"]["own_uid"]["detail"] == "shared: a path of the host is mounted for all sandboxes alike"
    assert (place / "made").read_text() == "xx"


# In a range of three the engine's own processes have one, and two sandboxes one each.
FEW = """
import sys
sys.path.insert(0, sys.argv[1])
import engine
with engine.Engine(max_running=4, zygotes=(("bare", None, (), 1, 1),)) as warm:
    for _ in range(10):
        warm.settle()
        assert warm.run("1")["layers"]["own_uid"]["active"]
    warm.settle()
    runs = [warm.submit(%r, stream=True) for _ in range(4)]
    warm.until(lambda: all(b"\\n" in run.output[1] for run in runs), what="all have said who they are")
    for run in runs: warm.cancel(run)
    warm.wait(*runs)
    for run in runs: print(run.output[1].split()[0].decode(), run.result["layers"]["own_uid"]["detail"])
    warm.settle()
    warm.run("1")  # in what was prepared while there was none
    warm.settle()
    assert warm.run("1")["layers"]["own_uid"]["active"]
""" % HOLD
KILLED = FEW.split("with engine", 1)[0] + ("import os, signal\nwarm = engine.Engine(max_running=2)\nwarm.settle()\n"
                                           "assert warm.run('1')['layers']['own_uid']['active']\nos.kill(os.getpid(), signal.SIGKILL)\n")
TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def check_few(done):
    assert done.returncode == 0, done.stderr.decode()
    lines = sorted(done.stdout.decode().splitlines())
    own = [line for line in lines if "shared" not in line]
    shared = [line for line in lines if "shared" in line]
    assert len(lines) == 4 and set(shared) == {"700000000 shared: all ids of the range are in use"}, lines
    assert own and set(own) <= {"%d uid %d of the host" % (uid, uid) for uid in (700000001, 700000002)}, lines
    assert len(set(own)) == len(own)


@AS_ROOT
def test_ids_are_given_back_and_run_out(tmp_path):
    engine.library()  # which the interpreter of the command below loads, too
    check_few(with_table("hutch:700000000:3\n", tmp_path, "/usr/bin/python3", "-c", FEW, TESTS))


@AS_ROOT
def test_a_killed_engine_gives_them_back(tmp_path):
    """Of engines that end without a word; the last gets what they had."""
    engine.library()  # which the interpreter of the command below loads, too
    script = 'for _ in 1 2 3; do /usr/bin/python3 -c "$1" "$3"; [ $? = 137 ] || exit 1; done; exec /usr/bin/python3 -c "$2" "$3"'
    check_few(with_table("hutch:700000000:3\n", tmp_path, "sh", "-c", script, "sh", KILLED, FEW, TESTS))


# Two ids, which are required, for four runs at a time.
WAITING = """
import sys
sys.path.insert(0, sys.argv[1])
import engine
with engine.Engine(max_running=4, zygotes=(("bare", None, (), 1, 1),), policy=sys.argv[2]) as warm:
    runs = [warm.submit("import time; time.sleep(0.5)") for _ in range(6)] + [warm.submit("sleep 0.5", language="sh") for _ in range(2)]
    for result in warm.wait(*runs):
        assert result["verdict"] == "ok" and result["layers"]["own_uid"]["active"], result
"""


@AS_ROOT
def test_who_has_to_have_one_waits_for_it(tmp_path, policy):
    engine.library()  # which the interpreter of the command below loads, too
    path = policy("default", layers={"own_uid": "require"})
    done = with_table("hutch:700000000:3\n", tmp_path, "/usr/bin/python3", "-c", WAITING, TESTS, path)
    assert done.returncode == 0, done.stderr.decode()


def run_with_ramfs(place, tmp_path, way, *options):
    """Where a file system that cannot map owners is mounted at @place."""
    return run_with_table("hutch:700000000:9\n", tmp_path, way, *options, paths=(place,),
                          more='mount -t tmpfs tmpfs /run && mount -t ramfs -o mode=777 ramfs "$2" && chmod 777 "$2"')


UNMAPPED = "a file system cannot map the owner of a directory"


@AS_ROOT
@BOTH
def test_a_store_that_cannot_map_owners(way, tmp_path, policy):
    """What a sandbox makes there would belong to the id of another one later."""
    runs = os.path.join(support.hutch_home(), "runs")
    os.makedirs(runs, mode=0o700, exist_ok=True)
    result = run_with_ramfs(runs, tmp_path, way, "--policy", policy("default", data_place="disk"))
    assert result["verdict"] == "ok" and ids_of(result["stdout"]) == (700000000, 700000000)
    assert result["layers"]["own_uid"]["detail"] == "shared: " + UNMAPPED
    result = run_with_ramfs(runs, tmp_path, way, "--policy", policy("default", layers={"own_uid": "require"}, data_place="disk"))
    assert result["verdict"] == "setup_failed"
    assert result["message"].endswith("the policy requires a host uid of the sandbox's own: " + UNMAPPED)


@AS_ROOT
@BOTH
def test_a_data_directory_that_cannot_map_owners(way, tmp_path, policy):
    data = tmp_path / "data"
    data.mkdir()
    result = run_with_ramfs(data, tmp_path, way, "--data", str(data))
    if way == "cold":
        assert result["verdict"] == "ok" and result["layers"]["own_uid"]["detail"] == "shared: " + UNMAPPED
    else:  # the sandbox is prepared, with an id
        assert result["verdict"] == "setup_failed"
        assert ("map the owner of '%s' to the sandbox's own uid (the file system cannot; a policy with \"own_uid\": \"off\" does without)" %
                data) in result["message"]
    result = run_with_ramfs(data, tmp_path, way, "--data", str(data), "--policy", policy("default", layers={"own_uid": "off"}))
    assert result["verdict"] == "ok", result


NUMBER = "import re; print(int(re.search(r'data/([0-9a-f]{8}) /mnt/data', open('/proc/self/mountinfo').read())[1], 16))"


@AS_ROOT
def test_directories_that_cannot_be_opened_are_not_tried_without_end(policy):
    """The engine makes them by its descriptor, and the opener looks for their path, which somebody has moved away. The
    numbers of the sandboxes tell how many were tried."""
    needs_range()
    with engine.Engine(max_running=1, zygotes=(("bare", None, (), 1, 1),), policy=policy(data_place="disk")) as warm:
        warm.settle()
        before = int(warm.run(NUMBER)["stdout"])
        warm.settle()
        path = [os.readlink("/proc/self/fd/" + fd) for fd in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + fd)]
        root, = {found for found in path if found.endswith(".data")}
        os.rename(root, root + ".away")
        try:
            warm.run("1")  # in what is prepared
            failed = warm.run("1")
        finally:
            os.rename(root + ".away", root)
        assert failed["verdict"] == "setup_failed" and root in failed["message"], failed
        warm.until(lambda: warm.stats()["prepared"] == 1)
        assert int(warm.run(NUMBER)["stdout"]) - before < 100


@AS_ROOT
def test_a_place_for_locks_that_others_can_reach(tmp_path):
    """Who could hold the locks could keep ids from sandboxes; the file is not used, and the result says so."""
    layer = run_with_table("hutch:700000000:9\n", tmp_path, "cold", more="mount -t tmpfs tmpfs /run && mkdir -m 755 /run/hutch")["layers"]["own_uid"]
    assert not layer["active"] and "'/run/hutch' belongs to uid 0 with mode 755; it has to be the caller's alone" in layer["detail"]


# --------------------------------------------------------------------------------------------------
# An ordinary user, who can map owners in memory only

@AS_USER
@BOTH
def test_a_directory_of_the_users_shares(way, tmp_path, policy):
    """And so does a path of -v; what is made there is the caller's. Where an id of its own is required nothing runs."""
    needs_range()
    words = ["--warm"] * (way == "warm")
    data = tmp_path / "data"
    data.mkdir()
    result = run_json(*words, "--data", str(data), "-c", WHO + "; open('made', 'w').close()")
    assert ids_of(result["stdout"]) == (os.geteuid(), os.getegid()) and result["layers"]["own_uid"]["detail"] == ON_DISK
    assert os.stat(data / "made").st_uid == os.geteuid()
    result = run_json(*words, "-v", "%s:/mnt/place" % data, "-c", WHO)
    assert ids_of(result["stdout"])[0] == os.geteuid() and "a path of the host is mounted" in result["layers"]["own_uid"]["detail"]
    required = policy("default", layers={"own_uid": "require"})
    assert run_json(*words, "--policy", required, "-c", WHO)["layers"]["own_uid"]["active"]
    result = run_json(*words, "--policy", required, "--data", str(data), "-c", "print(1)")
    assert result["verdict"] == "setup_failed" and result["stdout"] == ""
    assert "the policy requires a host uid of the sandbox's own: its files are on the host's disk" in result["message"]


@AS_USER
@BOTH
def test_without_the_programs_that_map(way, tmp_path):
    needs_range()
    done = subprocess.run([HUTCH, "run", *["--warm"] * (way == "warm"), "--image", IMAGE, "--json", "-c", WHO], capture_output=True,
                          timeout=60, check=True, env=dict(os.environ, PATH=str(tmp_path)))
    result = json.loads(done.stdout)
    assert ids_of(result["stdout"]) == (os.geteuid(), os.getegid())
    assert result["layers"]["own_uid"] == {"asked": "try", "active": False, "detail": "shared: newuidmap or newgidmap is not installed"}


@AS_USER
def test_both_kinds_are_prepared(tmp_path):
    """A pool has some for directories of the caller's, as soon as such a one was asked for."""
    needs_range()
    with engine.Engine(max_running=4, zygotes=(("bare", None, (), 4, 8),)) as warm:
        warm.settle()
        for turn in range(6):
            for options in ({}, {"data_dir": str(tmp_path)}):
                result = warm.run(WHO, **options)
                assert (ids_of(result["stdout"])[0] == os.geteuid()) == bool(options), result
                assert result["was_prepared"] or turn < 2, (turn, options)
            warm.settle()


@BOTH
def test_what_is_kept_is_the_callers(way):
    """With its modes, also of what the program has closed, and its holes."""
    needs_range()
    code = ("import os\nos.mkdir('below'); open('below/made', 'w').write('x' * 5000); os.chmod('below', 0)\n"
            "os.mkfifo('pipe'); os.symlink('below/made', 'link')\n"
            "f = open('holes', 'wb'); f.seek(1 << 20); f.write(b'end')")
    result = run_json(*["--warm"] * (way == "warm"), "-c", code)
    kept = result["files"]["directory"]
    assert {entry["path"] for entry in result["files"]["added"]} == {"below/made", "pipe", "link", "holes"}
    for path, _, files in os.walk(kept):
        for name in files + ["."]:
            info = os.lstat(os.path.join(path, name))
            assert (info.st_uid, info.st_gid) == (os.geteuid(), os.getegid()), (path, name)
    with open(os.path.join(kept, "below", "made"), encoding="ascii") as made:
        assert made.read() == "x" * 5000
    assert os.stat(os.path.join(kept, "holes")).st_size == (1 << 20) + 3 and os.stat(os.path.join(kept, "holes")).st_blocks < 64


def host_uid(session):
    return int(session.printed("print(open('/proc/self/uid_map').read().split()[1])"))


@pytest.mark.parametrize("end", ["restart", "crash", "launcher", "opener"])
def test_a_session_keeps_its_files_with_another_uid(end):
    """Its next sandbox has another id, and the files are its own there, too. When the opener dies, the memory that it was
    the owner of cannot be mounted again: the files go on on the disk."""
    needs_range()
    with engine.Engine(image="python", zygotes=(("shell", None, ("IPython",), 1, 2),)) as warm, engine.Session(warm, keep_data=1) as session:
        session.run("import os\nos.mkdir('d', 0o700)\nopen('d/file', 'w').write('kept')\nos.chmod('d/file', 0)")
        checkpoint = session.do("checkpoint")["id"]
        first = host_uid(session)
        if end == "restart":
            session.restart()
        elif end == "crash":
            session.run("os._exit(3)")
        elif end == "launcher":
            os.kill(warm.stats()["launcher_pid"], 9)
            session.run("os._exit(3)")
        else:
            warm.until(lambda: len(support.openers(os.getpid())) == 1)  # that of an engine before ends after its test
            (opener,) = support.openers(os.getpid())
            os.kill(opener, 9)
        text = "os.chmod('d/file', 0o600); print(open('d/file').read(), os.stat('d/file').st_uid == os.getuid())"
        session.run("1")  # in which the interpreter may be found to be dead
        assert session.printed("import os; " + text) == "kept True\n"
        second = host_uid(session)
        if end != "opener" or support.is_root():
            assert second != first and os.geteuid() not in (first, second)
        else:
            assert second == os.geteuid()
        if end != "opener":
            session.run("os.mkdir('late')")
            assert session.do("checkpoint")["id"] != checkpoint
        session.close()
        warm.until(lambda: session.ends, what="the session's end")
        with open(os.path.join(session.ends[0][1], "d", "file"), encoding="ascii") as file:
            assert file.read() == "kept"


def test_a_session_rolls_back_in_memory():
    needs_range()
    with engine.Engine(image="python", zygotes=(("shell", None, ("IPython",), 1, 2),)) as warm, engine.Session(warm) as session:
        session.run("open('a', 'w').write('1'); x = 1")
        checkpoint = session.do("checkpoint")["id"]
        session.run("open('a', 'w').write('2'); open('b', 'w').close(); x = 2")
        assert session.do("rollback", checkpoint)["ok"]
        assert session.printed("import os; print(x, open('a').read(), os.listdir('.'), os.stat('a').st_uid == os.getuid())") == "1 1 ['a'] True\n"


def test_a_full_directory_rolls_back_with_a_file_open(policy):
    """What is open keeps its memory when its name is gone, and two states do not fit in."""
    path = policy(limits={"data_size": "20M"}, data_place="memory")
    with engine.Engine(image="python", zygotes=(("shell", None, ("IPython",), 1, 2),), policy=path) as warm, engine.Session(warm) as session:
        session.run("open('a', 'wb').write(b'x' * (14 << 20)); open('precious', 'w').write('p')")
        checkpoint = session.do("checkpoint")["id"]
        session.run("f = open('a'); open('new', 'w').write('later')")
        for _ in range(2):
            session.do("rollback", checkpoint)
            assert session.printed("import os; print(sorted(os.listdir('.')), os.stat('a').st_size >> 20, open('precious').read())") == (
                "['a', 'precious'] 14 p\n")


@AS_USER
@BOTH
def test_a_root_tree_that_is_closed_to_others_shares(way, tmp_path):
    """A sandbox with an id of its own could not enter it."""
    needs_range()
    tree = tmp_path / "tree"
    subprocess.run(["cp", "-al", support.root_of_image(), tree], stderr=subprocess.DEVNULL, check=False)  # but for what is closed
    for mode, detail in ((0o755, "uid "), (0o700, "shared: the root tree is closed to other users")):
        tree.chmod(mode)
        done = subprocess.run([HUTCH, "run", *["--warm"] * (way == "warm"), "--rootfs", tree, "--json", "-c", "print(1)"],
                              capture_output=True, timeout=60, check=False)
        result = json.loads(done.stdout)
        assert result["verdict"] == "ok" and result["layers"]["own_uid"]["detail"].startswith(detail), result


def test_an_idle_session_in_memory_leaves_the_loop_alone():
    with engine.Engine(image="python", zygotes=(("shell", None, ("IPython",), 1, 1),)) as warm, engine.Session(warm) as session:
        session.run("open('a', 'w').write('x')")
        warm.settle()
        end, turns = time.monotonic() + 2, 0
        while time.monotonic() < end:
            warm.dispatch(0.5)
            turns += 1
        assert turns < 1000, "it has something to do all the time"
