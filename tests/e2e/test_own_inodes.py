"""Inodes of their own: what is on an inode, locks first of all, does not reach from one sandbox to another on the same image."""
import contextlib
import json
import os
import subprocess

import pytest

import engine
import support
from support import HUTCH, IMAGE, command, run_json

# A file, a directory, and the directory in which the mount points are that an image may lack.
SHARED = ("/usr/bin/python3", "/usr/lib", "/")
HOLD = """
import fcntl, os, time
for path in %r:
    fd = os.open(path, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    if not os.path.isdir(path):
        fcntl.lockf(fd, fcntl.LOCK_SH, 1, 7)
    os.dup(fd)
print("ready", flush=True)
time.sleep(60)
""" % (SHARED,)
LOOK = """
import fcntl, os, struct
for path in %r:
    fd = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(path, "flock")
    lock = fcntl.fcntl(fd, fcntl.F_GETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 7, 1, 0))
    if struct.unpack("hhqqi4x", lock)[0] != fcntl.F_UNLCK:
        print(path, "record")
""" % (SHARED,)
SEEN = "".join("%s flock\n" % path + "%s record\n" % path * (path == SHARED[0]) for path in SHARED)
SPANS = pytest.mark.parametrize("holder, other", [("cold", "cold"), ("cold", "warm"), ("warm", "cold"), ("warm", "warm")])


@contextlib.contextmanager
def cold_run(words, code):
    process = subprocess.Popen(words + ["-c", code], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline() == b"ready\n"
        yield
    finally:
        process.terminate()
        process.communicate(timeout=30)


def what_is_seen(holder, other, path):
    """What a run sees of the locks that another one holds meanwhile, and its result."""
    with engine.Engine(max_running=4, policy=path, zygotes=(("bare", None, (), 2, 4),)) as warm, contextlib.ExitStack() as stack:
        if holder == "cold":
            stack.enter_context(cold_run(command("--policy", path), HOLD))
        else:
            run = warm.run_streaming(HOLD)
        result = run_json("--policy", path, "-c", LOOK) if other == "cold" else warm.run(LOOK)
        if holder == "warm":
            warm.cancel(run)
            warm.wait(run)
    assert result["verdict"] == "ok", result
    return result["stdout"], result["layers"]["own_inodes"]


@SPANS
def test_locks_do_not_meet(holder, other, policy):
    seen, layer = what_is_seen(holder, other, policy("default", layers={"own_inodes": "require"}))
    assert (seen, layer) == ("", {"asked": "require", "active": True, "detail": ""})


@SPANS
def test_without_the_layer_they_do(holder, other, policy):
    """Or the test above would prove nothing. All mount points are in the tests' image."""
    seen, layer = what_is_seen(holder, other, policy("default", layers={"own_inodes": "off"}))
    assert (seen, layer) == (SEEN, {"asked": "off", "active": False, "detail": ""})


@pytest.mark.parametrize("asked", ["try", "off"])
def test_locks_on_files_of_the_host(asked, policy):
    path = policy("default", layers={"own_inodes": asked})
    look = LOOK.replace("'/')", ")")  # that is a tmpfs, here
    with cold_run([HUTCH, "run", "--rootfs", "host", "--policy", path], HOLD):
        result = run_json("--rootfs", "host", "--policy", path, "-c", look, image=None)
    assert result["stdout"] == ("" if asked == "try" else SEEN[:SEEN.index("/ ")]), result
    assert result["layers"]["own_inodes"]["active"] == (asked == "try")


def test_layers_can_be_required_by_enforcement(policy):
    """Where everything is: it takes nothing that a host of hutch's can lack but overlayfs."""
    path = policy("default", enforcement="require", layers={"landlock": "off", "cgroup": "off"},
                  limits={"memory": None, "pids": None, "cpus": None})
    assert run_json("--policy", path, "-c", "pass")["layers"]["own_inodes"] == {"asked": "require", "active": True, "detail": ""}


# --------------------------------------------------------------------------------------------------
# Where there can be no overlay: a mount below the image that the caller may not take away, as all are that come into a user namespace

CANNOT = "an overlay cannot be mounted: Invalid argument"


def with_mount(place, *words):
    """Runs a command where something is mounted at @place."""
    script = 'mount -t tmpfs -o mode=755 tmpfs "$1" && touch "$1/there" && shift && exec "$@"'
    ns = ["unshare", "--mount"] if support.is_root() else ["unshare", "--user", "--map-root-user", "--mount"]
    inner = [] if support.is_root() else ["unshare", "--user", "--map-user=%d" % os.getuid(), "--map-group=%d" % os.getgid()]
    return subprocess.run(ns + ["sh", "-c", script, "sh", place] + inner + list(words), stdin=subprocess.DEVNULL, capture_output=True,
                          timeout=60, check=False)


def result_with_mount(place, *options):
    """Of a run that lists the directory in which the mount has made a file."""
    done = with_mount(place, HUTCH, "run", "--json", *options, "-c", "import os; print(os.listdir(%r))" % place[place.rindex("/opt"):])
    result = json.loads(done.stdout)
    support.check_result(result)
    return result


def refuses(result):
    assert result["verdict"] == "setup_failed", result
    assert "inodes of the sandbox's own, as the policy requires" in result["message"], result["message"]


def test_image_with_a_mount_below(policy):
    """What is mounted there is seen as ever, and no overlay would show it."""
    place = support.root_of_image() + "/opt"
    result = result_with_mount(place, "--rootfs", support.root_of_image())
    assert (result["verdict"], result["stdout"]) == ("ok", "['there']\n"), result
    assert result["layers"]["own_inodes"] == {"asked": "try", "active": False, "detail": CANNOT}
    refuses(result_with_mount(place, "--rootfs", support.root_of_image(), "--policy", policy("default", layers={"own_inodes": "require"})))


def test_host_with_a_mount_below(policy):
    place, options = "/usr/share", ("--rootfs", "host")
    listing = ("-c", "import os; print(os.listdir('/usr/share'))")
    done = with_mount(place, HUTCH, "run", "--json", *options, *listing)
    result = json.loads(done.stdout)
    assert (result["verdict"], result["stdout"]) == ("ok", "['there']\n"), result
    assert result["layers"]["own_inodes"] == {"asked": "try", "active": False, "detail": CANNOT}
    path = policy("default", layers={"own_inodes": "require"})
    refuses(json.loads(with_mount(place, HUTCH, "run", "--json", *options, "--policy", path, *listing).stdout))


def test_an_engine_says_it():
    """The same, where the sandbox is prepared."""
    place, listing = support.root_of_image() + "/opt", "import os; print(os.listdir('/opt'))"
    done = with_mount(place, HUTCH, "run", "--warm", "--image", IMAGE, "--json", "-c", listing)
    result = json.loads(done.stdout)
    assert (result["verdict"], result["stdout"]) == ("ok", "['there']\n"), result
    assert result["layers"]["own_inodes"] == {"asked": "try", "active": False, "detail": CANNOT}
