"""What a program finds around it that is not its own: names, sizes and numbers are to be those of an ordinary machine, cold, warm and in a
session."""
import json
import os

import pytest

import engine
import support

# Everything at once, as one JSON object.
LOOK = r"""
import json, os, shutil, socket
def attempt(call):
    try:
        return call()
    except OSError as error:
        return str(error)
print(json.dumps({
    "name": socket.gethostname(),
    "address": attempt(lambda: socket.gethostbyname(socket.gethostname())),
    "localhost": sorted({info[4][0] for info in socket.getaddrinfo("localhost", 80)}),
    "can bind": attempt(lambda: socket.create_server((socket.gethostname(), 0)).close()),
    "hosts": open("/etc/hosts").read().splitlines(),
    "size": [shutil.disk_usage("/").total, shutil.disk_usage("/").free >= shutil.disk_usage("/").total - (1 << 20)],
    "files": os.statvfs("/").f_files,
}))
"""
WAYS = pytest.mark.parametrize("way", ["cold", "warm", "session"])


def look(way, path=None, **options):
    if way == "cold":
        words = [word for name, value in options.items() for word in ("--" + name, value)]
        done = support.hutch("run", "--no-server", *(() if "rootfs" in options else ("--image", "python")),
                             *(("--policy", path) if path else ()), *words, "-c", LOOK)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)
    image = None if "rootfs" in options else "python"
    with engine.Engine(image=image, policy=path, zygotes=engine.SHELL_ZYGOTES, **options) as one:
        if way == "session":
            with engine.Session(one) as session:
                return json.loads(session.printed(LOOK))
        one.settle()
        result = one.run(LOOK)
    assert result["verdict"] == "ok" and result["was_prepared"], result
    return json.loads(result["stdout"])


def check(found, name="hutch", size=1 << 30):
    """As on a machine of Debian's."""
    assert (found["name"], found["address"], found["can bind"]) == (name, "127.0.1.1", None)
    assert "127.0.0.1" in found["localhost"] and set(found["localhost"]) <= {"127.0.0.1", "::1"}
    assert found["size"] == [size, True]


@WAYS
def test_as_on_any_machine(way):
    found = look(way)
    check(found)
    assert found["hosts"][0] == "127.0.1.1 hutch" and len(found["hosts"]) > 1, "what the image has is lost"
    assert found["files"] >= 100000


@WAYS
def test_another_policy(way, policy):
    path = policy("default", hostname="a-longer.name", limits={"data_size": "3G", "data_files": 777777})
    found = look(way, path)
    check(found, name="a-longer.name", size=3 << 30)
    assert found["files"] == 777777


@WAYS
def test_shared_inodes(way, policy):
    """The image itself is the root, whose disk it is then."""
    found = look(way, policy("default", layers={"own_inodes": "off"}))
    assert (found["address"], found["can bind"]) == ("127.0.1.1", None) and "localhost" in " ".join(found["hosts"])


def test_no_limit_on_data(policy):
    """What the disk of the image has left."""
    path = policy("default", limits={"data_size": None})
    disk = os.statvfs(support.root_of_image("python"))
    total = look("cold", path)["size"][0]
    assert 0.5 * disk.f_bavail * disk.f_frsize < total < 2 * disk.f_bavail * disk.f_frsize


def test_the_host_s_network(policy):
    check(look("cold", network="host"))


@pytest.mark.parametrize("way", ["cold", "warm"])
def test_the_host_s_programs(way):
    if way == "warm":
        words = ["run", "--warm", "--rootfs", "host", "-c", LOOK]
        done = support.hutch(*words)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
    else:
        found = look(way, rootfs="host")
    check(found)
    assert found["hosts"][-1] == "127.0.1.1 hutch"


def test_what_is_installed_finds_the_image_s_own_file(policy, data):
    """A change of another one would be taken into the layer."""
    for name in ("upper", "work"):
        (data / name).mkdir()
    path = policy("default", root_changes=str(data))
    done = support.hutch("run", "--no-server", "--image", "python", "--policy", path, "-c", "print(open('/etc/hosts').read())")
    if done.returncode == 125 and b"overlay" in done.stderr:
        pytest.skip("no overlay can have its changes on this disk")
    assert done.returncode == 0, done.stderr
    assert b"127.0.1.1" not in done.stdout and b"localhost" in done.stdout


# --------------------------------------------------------------------------------------------------
# What processes may ask for

@pytest.mark.parametrize("way", ["cold", "warm"])
def test_keeping_capabilities_may_be_asked_for(way):
    """setpriv and Go's runtime do so whatever they are to do, and there is nothing to keep."""
    code = ("import ctypes; libc = ctypes.CDLL(None); print([libc.prctl(8, flag, 0, 0, 0) for flag in (1, 0)],"
            " [line.split()[1].strip('0') for line in open('/proc/self/status') if line.startswith('Cap')])")
    done = support.hutch("run", "--no-server" if way == "cold" else "--warm", "--image", "python", "-c", code)
    assert done.stdout == b"[0, 0] ['', '', '', '', '']\n", (done.stdout, done.stderr)
