"""hutch bundle: what it writes, and what runc and crun make of it, held against what `hutch run` makes of the same policy."""
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

import support
from rootfs_archives import file, folder, layer, oci, symlink

RUNTIMES = ("crun", "runc")
RUNC = shutil.which("runc", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")

# crun 1.8 does not run at all where v1 hierarchies and a v2 tree are mounted side by side. It is to use no cgroups, so
# it is shown none: in a mount namespace that it starts in, with the ids that it gives to the container.
HIDE_CGROUPS = r"""
import ctypes, json, os, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
config = json.load(open("config.json"))
NEWNS, NEWUSER, REC, PRIVATE = 0x20000, 0x10000000, 0x4000, 1 << 18
def must(rc):
    if rc != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
if os.geteuid() == 0:
    must(libc.unshare(NEWNS))
else:
    read, write = os.pipe()
    me = str(os.getpid())
    if os.fork() == 0:
        os.read(read, 1)
        for tool, key in (("newuidmap", "uidMappings"), ("newgidmap", "gidMappings")):
            ids = [str(row["hostID"]) for row in config["linux"][key]]
            subprocess.run([tool, me, *[word for one in ids for word in (one, one, "1")]], check=True)
        os._exit(0)
    must(libc.unshare(NEWNS | NEWUSER))
    os.write(write, b"x")
    if os.wait()[1] != 0:
        sys.exit("the ids could not be mapped")
must(libc.mount(None, b"/", None, REC | PRIVATE, None))
must(libc.mount(b"tmpfs", b"/sys/fs/cgroup", b"tmpfs", 0, None))
if os.geteuid() != 0: # crun has the rights over this namespace, too
    head, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    must(libc.capget(head, sets))
    sets[2], sets[5] = sets[1], sets[4]
    must(libc.capset(head, sets))
    for number in range(64):
        libc.prctl(47, 2, number, 0, 0) # PR_CAP_AMBIENT_RAISE
os.execvp(sys.argv[1], sys.argv[1:])
"""

# Everything here is the same in a container of the bundle as in a sandbox.
PROBE = r"""
import ctypes, errno, json, os, platform, resource, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def attempt(act, *args):
    try:
        act(*args)
    except OSError as failure:
        return errno.errorcode[failure.errno]
    return "done"
def call(number, *args):
    ctypes.set_errno(0)
    failed = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(arg) for arg in args]) == -1
    return errno.errorcode[ctypes.get_errno()] if failed else "done"
def read(path):
    try:
        with open(path, "rb") as text:
            return text.read(4096).decode()
    except OSError as failure:
        return errno.errorcode[failure.errno]
def size(path):
    found = os.statvfs(path)
    flags = os.ST_NOSUID | os.ST_NODEV | os.ST_RDONLY | os.ST_NOEXEC
    return found.f_blocks * found.f_frsize, found.f_files, found.f_flag & flags
CALLS = {"clone3": (435, 0, 0), "io_uring_setup": (425, 0, 0), "openat2": (437, 0, 0, 0, 0), "pidfd_getfd": (438, 0, 0, 0),
         "landlock": (444, 0, 0, 1), "none": (999,)}
if platform.machine() == "x86_64":
    CALLS.update({
        "unshare": (272, 0x10000000), "setns": (308, 0, 0), "mount": (165, 0, 0, 0, 0, 0), "ptrace": (101, 0, 0, 0, 0),
        "bpf": (321, 0, 0, 0), "keyctl": (250, 0, 0, 0), "memfd_create": (319, 0, 0), "shmget": (29, 0, 4096, 0o1600),
        "userfaultfd": (323, 0), "perf_event_open": (298, 0, 0, 0, 0, 0), "TIOCSTI": (16, 0, 0x100005412, 0),
        "sched_setaffinity": (203, 0, 0, 0), "vmsplice": (278, 0, 0, 0, 0), "prctl": (157, 22, 0, 0, 0, 0),
        "clone": (56, 0x20000, 0, 0, 0, 0)})
PLACES = ("/", "/usr", "/etc", "/run", "/sys", "/dev", "/tmp", "/mnt", "/mnt/data", "/dev/shm")
LIMITS = ("CORE", "DATA", "FSIZE", "NOFILE", "MEMLOCK", "MSGQUEUE", "SIGPENDING")
STATUS = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Uid", "Gid", "Umask")
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
with socket.socket() as server, socket.socket() as client:
    server.bind(("127.0.0.1", 0))
    server.listen()
    client.settimeout(10)
    client.connect(server.getsockname())
print(json.dumps({
    "status": {key: status[key].split() for key in STATUS},
    "calls": {name: call(*args) for name, args in CALLS.items()},
    "setuid": attempt(os.open, "/tmp/setuid", os.O_CREAT | os.O_WRONLY, 0o4755),
    "sockets": [attempt(socket.socket, *kind) for kind in ((17, socket.SOCK_RAW), (2, socket.SOCK_RAW, 1), (38, 5))],
    "written": {path: attempt(os.mkdir, path + "/made") for path in PLACES},
    "sysctl": attempt(open, "/proc/sys/kernel/hostname", "w"),
    "size": {path: size(path) for path in ("/tmp", "/mnt/data", "/dev/shm")},
    "owner": [os.stat(path).st_uid for path in ("/tmp", "/mnt/data", "/dev/shm")],
    "masked": {path: os.listdir(path) if os.path.isdir(path) else read(path) for path in json.loads(sys.argv[1])},
    "host": [socket.gethostname(), os.cpu_count(), read("/sys/devices/system/cpu/online"), os.listdir("/sys")],
    "network": [socket.if_nameindex(), read("/proc/sys/net/ipv4/tcp_rmem"), read("/proc/sys/net/ipv4/tcp_wmem")],
    "limits": {name: resource.getrlimit(getattr(resource, "RLIMIT_" + name)) for name in LIMITS},
    "environment": dict(os.environ), "place": os.getcwd(), "terminals": attempt(os.openpty),
    "terminal": attempt(os.open, "/dev/tty", os.O_RDWR),
}))
sys.exit(7)
"""


@pytest.fixture(autouse=True)
def needs():
    support.need("userns")
    if os.geteuid() != 0:
        name = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
        with open("/etc/subuid", encoding="utf-8") as table:
            if not any(line.split(":")[0] in (name, str(os.geteuid())) for line in table):
                support.miss("this user has no subordinate ids")


def bundle(*args, **options):
    return support.hutch("bundle", *args, timeout=120, **options)


def made(place, *args, image=support.IMAGE, **options):
    """The bundle in the new directory @place, and its config.json."""
    done = bundle(image, str(place), *args, **options)
    assert (done.returncode, done.stdout) == (0, b""), done.stderr
    with open(os.path.join(str(place), "config.json"), encoding="utf-8") as text:
        return json.load(text)


def is_hybrid():
    return os.path.isdir("/sys/fs/cgroup/unified")


def execute(runtime, place, stdin=b""):
    """The bundle's container by @runtime; returns the CompletedProcess. Its state is in a directory beside the bundle."""
    state = str(place) + "." + runtime
    if runtime == "crun":
        program = shutil.which("crun") or support.miss("apt: crun is not installed")
        command = [program, "--root", state, "--cgroup-manager=disabled", "run", "hutch-test-%d" % os.getpid()]
        if is_hybrid():
            command = [sys.executable, "-c", HIDE_CGROUPS, *command]
    else:
        program = RUNC or support.miss("apt: runc is not installed")
        rootless = ["--rootless=true"] if os.geteuid() else []
        command = [program, "--root", state, *rootless, "run", "hutch-test-%d" % os.getpid()]
        if os.geteuid():
            without_resources(place)
    return subprocess.run(command, cwd=str(place), input=stdin, capture_output=True, timeout=120, check=False)


def without_resources(place):
    """An ordinary user's runc refuses limits that it has no cgroup for, see test_limits_of_the_cgroup(), and where a
    subtree is delegated version 1.1 leaves groups in it that are of no use any more. So it runs without these limits
    here, and the rest is what it was."""
    path = os.path.join(str(place), "config.json")
    with open(path, encoding="utf-8") as text:
        config = json.load(text)
    config["linux"].pop("resources", None)
    with open(path, "w", encoding="utf-8") as text:
        json.dump(config, text)


def policy(where, **keys):
    path = where / "policy.json"
    path.write_text(json.dumps({"schema": 1, "extends": "default", **keys}))
    return str(path)


# --------------------------------------------------------------------------------------------------
# In a container

@pytest.fixture(scope="module")
def sandbox(tmp_path_factory):
    """What the probe finds in a sandbox; its file, and what it is given."""
    where = tmp_path_factory.mktemp("probe")
    (where / "probe.py").write_text(PROBE)
    done = support.hutch("run", "--image", support.IMAGE, "-c", "pass")
    assert done.returncode == 0, done.stderr
    masked = made(where / "bundle")["linux"]["maskedPaths"]
    assert "/proc/kcore" in masked and len(masked) > 20
    args = [str(where / "probe.py"), json.dumps(masked)]
    done = support.hutch("run", "--image", support.IMAGE, "--no-server", *args)
    assert done.returncode == 7, done.stderr
    return json.loads(done.stdout), args


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_container_is_what_a_sandbox_is(runtime, sandbox, tmp_path):
    wanted, args = sandbox
    config = made(tmp_path / "b", *args)
    done = execute(runtime, tmp_path / "b")
    assert done.returncode == 7, done.stderr
    found = json.loads(done.stdout)
    assert found["status"]["CapEff"] == found["status"]["CapBnd"] == ["0" * 16]
    assert [found["status"][key] for key in ("NoNewPrivs", "Seccomp", "Uid")] == [["1"], ["2"], ["1000"] * 4]
    assert found["size"]["/tmp"][0] == 64 << 20 and found["size"]["/mnt/data"][:2] == [1 << 30, 100001]
    assert {path for path, what in found["written"].items() if what == "done"} == {"/tmp", "/mnt/data", "/dev/shm"}
    assert found["calls"]["none"] == "ENOSYS"
    assert not any(what for what in found["masked"].values() if what not in ("ENOENT", "EACCES"))
    # The one has a file /dev/tty, with no terminal behind it, and the other none.
    assert (found.pop("terminal"), wanted["terminal"]) == ("ENXIO", "ENOENT")
    # A file can be missing, empty, or closed to its owner: there is nothing to read in each case.
    found["masked"] = {path: "" if what == "EACCES" else what for path, what in found["masked"].items()}
    wanted = {**wanted, "masked": {path: "" if what == "EACCES" else what for path, what in wanted["masked"].items()}}
    # Nothing of hutch's counts memory there.
    assert (found["limits"]["DATA"], wanted["limits"]["DATA"]) == ([16 * (512 << 20)] * 2, [-1, -1])
    wanted["limits"] = {**wanted["limits"], "DATA": found["limits"]["DATA"]}
    if "shmget" in wanted["calls"]:
        assert (found["calls"].pop("shmget"), wanted["calls"]["shmget"]) == ("ENOSYS", "done")
        wanted["calls"] = {call: what for call, what in wanted["calls"].items() if call != "shmget"}
    for key in found:
        assert found[key] == wanted[key], key
    assert set(found) | {"terminal"} == set(wanted)
    host = config["linux"]["uidMappings"][1]["hostID"]
    assert host not in (0, os.geteuid())


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_what_is_the_process(runtime, tmp_path):
    (tmp_path / "say.sh").write_text("echo say $0 $@; exit 9\n")
    made(tmp_path / "script", "-e", "X=1", str(tmp_path / "say.sh"), "--copy", "b c")
    done = execute(runtime, tmp_path / "script")
    assert (done.returncode, done.stdout) == (9, b"say /run/hutch/code/say.sh --copy b c\n"), done.stderr
    made(tmp_path / "inside", "--env", "X=1", "-w", "/usr", "--", "sh", "-c", "pwd; echo $X; kill -9 $$; exit 4")
    done = execute(runtime, tmp_path / "inside")
    assert (done.returncode, done.stdout) == (4, b"/usr\n1\n"), done.stderr  # process 1 does not get its own signals
    made(tmp_path / "stdin")
    done = execute(runtime, tmp_path / "stdin", stdin=b"import sys; print(sys.argv); sys.exit(5)")
    assert (done.returncode, done.stdout) == (5, b"['']\n"), done.stderr  # the image says: python3


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_mounts_of_a_policy(runtime, tmp_path):
    (tmp_path / "set").mkdir(mode=0o755)
    (tmp_path / "set" / "text").write_text("data\n")
    text = policy(tmp_path, mounts=[{"type": "bind", "source": str(tmp_path / "set"), "target": "/run/set"},
                                    {"type": "bind", "source": "/nowhere", "target": "/srv", "optional": True},
                                    {"type": "tmpfs", "target": "/srv", "size": "1M"}],
                  limits={"tmp_size": "2M", "open_files": 99}, hostname="other")
    (tmp_path / "p.sh").write_text("cat /run/set/text; touch /run/set/x && echo wrong; touch /srv/x && hostname; ulimit -n\n"
                                   "df -k /srv /tmp | awk 'NR>1{print $2}'\n")
    made(tmp_path / "b", "--policy", text, str(tmp_path / "p.sh"))
    done = execute(runtime, tmp_path / "b")
    assert done.stdout.split() == [b"data", b"other", b"99", b"1024", b"2048"], (done.stdout, done.stderr)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_call_that_kills(runtime, tmp_path):
    (tmp_path / "seccomp.json").write_text(json.dumps({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
        {"names": ["sethostname"], "action": "SCMP_ACT_KILL_PROCESS"},
        {"names": ["getsid"], "action": "SCMP_ACT_ERRNO", "errnoRet": 71}]}))
    text = policy(tmp_path, seccomp="seccomp.json")
    code = ("import os, socket\ntry: os.getsid(0)\nexcept OSError as e: print(e.errno, flush=True)\n"
            "if os.fork() == 0: socket.sethostname('x')\nprint(os.wait()[1])")
    (tmp_path / "kill.py").write_text(code)
    made(tmp_path / "b", "--policy", text, str(tmp_path / "kill.py"))
    done = execute(runtime, tmp_path / "b")
    assert [int(line) & 0x7f for line in done.stdout.split()] == [71, signal.SIGSYS], done.stderr


def test_limits_of_the_cgroup(tmp_path):
    """runc applies them, or refuses: a container without them is none of this config.json's."""
    config = made(tmp_path / "b", "--", "true")
    assert config["linux"]["resources"] == {"memory": {"limit": 512 << 20, "swap": 512 << 20}, "pids": {"limit": 64},
                                            "cpu": {"period": 100000, "quota": 100000}}
    if RUNC is None:
        support.miss("apt: runc is not installed")
    if os.geteuid() and support.has("delegation"):
        pytest.skip("delegation: runc 1.1 spoils the subtree that is delegated to an ordinary user")
    rootless = ["--rootless=true"] if os.geteuid() else []
    done = subprocess.run([RUNC, "--root", str(tmp_path / "state"), *rootless, "run", "hutch-limits-%d" % os.getpid()],
                          cwd=str(tmp_path / "b"), stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False)
    if os.geteuid():
        assert done.returncode == 1 and b"cgroup" in done.stderr, done.stderr
    else:
        assert done.returncode == 0 or b"cgroup" in done.stderr, done.stderr


# --------------------------------------------------------------------------------------------------
# The image

@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """An image with a program, an entry point, a link where a mount would go, and none of /opt/place."""
    where = tmp_path_factory.mktemp("tiny")
    (where / "say.c").write_text("#include <stdio.h>\n"
                                 "int main(int c, char **v) { for (int i = 0; i < c; i++) puts(v[i]); return 3; }\n")
    done = subprocess.run(["cc", "-static", "-O1", "-s", "-o", str(where / "say"), str(where / "say.c")],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    program = file("bin/say", (where / "say").read_bytes(), mode=0o755)
    config = {"Entrypoint": ["/bin/say", "one"], "Cmd": ["two"], "Env": ["OF=image"], "WorkingDir": "/bin"}
    oci(str(where / "a.tar"), [layer(program, folder("closed", mode=0o700), symlink("led", "/bin"))],
        config=lambda c: c.update(config=config))
    env = {"HUTCH_HOME": str(where / "home")}
    done = support.hutch("rootfs", "unpack", str(where / "a.tar"), "tiny", env=env)
    assert done.returncode == 0, done.stderr
    yield env
    support.remove_tree(str(where / "home"))


def test_the_images_own_program(tiny, tmp_path):
    process = made(tmp_path / "a", image="tiny", env=tiny)["process"]
    assert (process["args"], process["cwd"]) == (["/bin/say", "one", "two"], "/bin") and "OF=image" in process["env"]
    assert made(tmp_path / "b", "--", "x", image="tiny", env=tiny)["process"]["args"] == ["/bin/say", "one", "x"]
    process = made(tmp_path / "c", "--entrypoint", "/bin/say", "--", "x", image="tiny", env=tiny)["process"]
    assert process["args"] == ["/bin/say", "x"]


@pytest.mark.parametrize("programs, args", [
    (["usr/bin/python3", "bin/sh"], ["python3", "-"]), (["bin/bash", "bin/sh"], ["sh"]), (["bin/bash"], None), ([], None)])
def test_an_image_without_a_program_of_its_own(programs, args, tmp_path):
    oci(str(tmp_path / "a.tar"), [layer(folder("srv"), *[file(name, "", mode=0o755) for name in programs])])
    env = {"HUTCH_HOME": str(tmp_path / "home")}
    assert support.hutch("rootfs", "unpack", str(tmp_path / "a.tar"), "bare", env=env).returncode == 0
    if args:
        assert made(tmp_path / "b", image="bare", env=env)["process"]["args"] == args
    else:
        done = bundle("bare", str(tmp_path / "b"), env=env)
        assert done.returncode == 125 and b"there is nothing to run: the image names no program" in done.stderr
        assert not os.path.exists(tmp_path / "b")
    support.remove_tree(str(tmp_path / "home"))


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_stores_tree_stays_as_it_is(runtime, tiny, tmp_path):
    config = made(tmp_path / "b", image="tiny", env=tiny)
    assert config["root"]["readonly"] is True and config["root"]["path"].startswith(tiny["HUTCH_HOME"] + "/images/")
    done = execute(runtime, tmp_path / "b")
    assert (done.returncode, done.stdout) == (3, b"/bin/say\none\ntwo\n"), done.stderr
    done = support.hutch("rootfs", "verify", "tiny", env=tiny)
    assert done.returncode == 0, done.stdout
    text = policy(tmp_path, mounts=[{"type": "tmpfs", "target": "/opt/place"}])
    done = bundle("tiny", str(tmp_path / "c"), "--policy", text, env=tiny)
    assert done.returncode == 125 and b"the image has no '/opt/place' to mount on" in done.stderr
    assert b"--copy" in done.stderr
    assert not os.path.exists(tmp_path / "c")


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_copy_is_the_bundles_own(runtime, tiny, tmp_path):
    text = policy(tmp_path, mounts=[{"type": "tmpfs", "target": "/opt/place"}])
    config = made(tmp_path / "b", "--copy", "--policy", text, image="tiny", env=tiny)
    assert config["root"] == {"path": "rootfs", "readonly": True}
    os.rename(tmp_path / "b", tmp_path / "moved")
    assert os.path.isdir(tmp_path / "moved" / "rootfs" / "opt" / "place")
    done = execute(runtime, tmp_path / "moved")
    assert (done.returncode, done.stdout) == (3, b"/bin/say\none\ntwo\n"), done.stderr
    support.remove_tree(str(tmp_path / "moved"))


def test_a_link_is_no_mount_point(tiny, tmp_path):
    text = policy(tmp_path, mounts=[{"type": "tmpfs", "target": "/led/place"}])
    for words in ([], ["--copy"]):
        done = bundle("tiny", str(tmp_path / "b"), "--policy", text, *words, env=tiny)
        assert done.returncode == 125 and b"a link is on the way to '/led/place'" in done.stderr
        assert not os.path.exists(tmp_path / "b")


def test_a_signal_leaves_nothing(tmp_path):
    command = [support.HUTCH, "bundle", "--copy", support.IMAGE, str(tmp_path / "b")]
    for _ in range(20):
        with subprocess.Popen(command, stderr=subprocess.PIPE) as begun:
            while begun.poll() is None and not os.path.isdir(tmp_path / "b" / "rootfs" / "usr"):
                time.sleep(0.001)
            begun.send_signal(signal.SIGTERM)
            begun.communicate(timeout=120)
        if begun.returncode != 0:
            break
        support.remove_tree(str(tmp_path / "b"))  # it was done before the signal came
    assert begun.returncode == -signal.SIGTERM and not os.path.exists(tmp_path / "b")


# --------------------------------------------------------------------------------------------------
# What is written, and what is said

# runtime-spec 1.0.2, of what hutch writes. None: any value; a list: of such; "*": any key.
GOLDEN = {
    "ociVersion": None, "hostname": None, "root": {"path": None, "readonly": None},
    "process": {"terminal": None, "user": {"uid": None, "gid": None, "umask": None}, "args": None, "env": None, "cwd": None,
                "capabilities": {key: None for key in ("bounding", "effective", "inheritable", "permitted", "ambient")},
                "rlimits": [{"type": None, "hard": None, "soft": None}], "noNewPrivileges": None},
    "mounts": [{"destination": None, "type": None, "source": None, "options": None}],
    "linux": {"namespaces": [{"type": None}], "uidMappings": [{"containerID": None, "hostID": None, "size": None}],
              "gidMappings": [{"containerID": None, "hostID": None, "size": None}],
              "resources": {"memory": {"limit": None, "swap": None}, "pids": {"limit": None},
                            "cpu": {"period": None, "quota": None}},
              "sysctl": {"net.ipv4.tcp_rmem": None, "net.ipv4.tcp_wmem": None},
              "seccomp": {"defaultAction": None, "defaultErrnoRet": None, "architectures": None, "flags": None,
                          "syscalls": [{"names": None, "action": None, "errnoRet": None,
                                        "args": [{"index": None, "value": None, "valueTwo": None, "op": None}]}]},
              "rootfsPropagation": None, "maskedPaths": None, "readonlyPaths": None},
}
OPTIONAL = ("errnoRet", "args", "valueTwo")


def check_shape(have, want, where):
    if isinstance(want, list):
        assert isinstance(have, list) and have, where
        for number, one in enumerate(have):
            check_shape(one, want[0], "%s.%d" % (where, number))
    elif want is not None:
        optional = OPTIONAL if where.startswith("$.linux.seccomp.syscalls.") else ()
        assert set(have) <= set(want) and {key for key in want if key not in optional} <= set(have), (where, sorted(have))
        for key, value in have.items():
            check_shape(value, want[key], where + "." + key)


def test_the_shape_of_config(tmp_path):
    config = made(tmp_path / "b", "--", "true")
    check_shape(config, GOLDEN, "$")
    assert sorted(os.listdir(tmp_path / "b")) == ["config.json", "files"]
    assert os.stat(tmp_path / "b").st_mode & 0o777 == 0o700
    assert sorted(row["type"] for row in config["linux"]["namespaces"]) == ["cgroup", "ipc", "mount", "network", "pid", "user", "uts"]
    for mount in config["mounts"]:
        assert {"nosuid", "rnosuid"} & set(mount["options"]), mount
        assert mount["type"] == "devpts" or {"nodev", "rnodev"} & set(mount["options"]), mount
    assert {one["action"] for one in config["linux"]["seccomp"]["syscalls"]} == {"SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO"}


def test_what_is_lost_is_named(tmp_path):
    done = bundle(support.IMAGE, str(tmp_path / "b"))
    names = [line.split(": ")[2] for line in done.stderr.decode().splitlines()]
    assert all(line.startswith("hutch: not in config.json: ") for line in done.stderr.decode().splitlines())
    assert names == ["memory", "pids", "cpus", "wall", "output", "landlock", "cgroup", "own_uid", "own_inodes", "seccomp",
                     "data", "dev", "meminfo", "init", "result"]
    with open(os.path.join(support.TREE, "docs", "images.md"), encoding="utf-8") as text:
        documented = text.read().split("## A bundle for runc and crun", 1)[1]
    assert [name for name in [*names, "cpu_time"] if "| `%s` |" % name not in documented] == []
    done = bundle(support.IMAGE, str(tmp_path / "c"), "--cpu-time", "10s", "--timeout", "0")
    assert b": cpu_time: " in done.stderr and b": wall: " not in done.stderr


@pytest.mark.parametrize("words, message", [
    ([], "expected IMAGE and DIR (see: hutch bundle --help)"),
    (["minimal"], "expected IMAGE and DIR (see: hutch bundle --help)"),
    (["--", "minimal", "{dir}/b"], "expected IMAGE and DIR before '--'"),
    (["none-such", "{dir}/b"], "there is no image 'none-such' in the store"),
    (["minimal", "{dir}"], "a bundle goes into a new or an empty directory, and '{dir}' has 'full'"),
    (["minimal", "{dir}/full"], "open the directory '{dir}/full': Not a directory"),
    (["minimal", "{dir}/none/b"], "make the directory '{dir}/none/b': No such file or directory"),
    (["minimal", "{dir}/b", "--policy", "none-such"], "none-such"),
    (["minimal", "{dir}/b", "--policy", "strict"], "the policy requires 'landlock', and an OCI config has no word for it"),
    (["minimal", "{dir}/b", "--memory", "1"], "option '--memory': '1' is too small"),
    (["minimal", "{dir}/b", "--workdir", "/none"], "the working directory '/none' is not in the image"),
    (["minimal", "{dir}/b", "{dir}/none.py"], "open the program '{dir}/none.py': No such file or directory"),
    (["minimal", "{dir}/b", "--entrypoint", "/bin/sh", "{dir}/full"], "option '--entrypoint' is for a program of the image"),
    (["minimal", "{dir}/b", "--bogus"], "there is no option '--bogus' (see: hutch bundle --help)"),
])
def test_bad_input(words, message, tmp_path):
    (tmp_path / "full").write_text("")
    done = bundle(*[word.format(dir=tmp_path) for word in words])
    assert (done.returncode, done.stdout) == (125, b"")
    assert message.format(dir=tmp_path) in done.stderr.decode() and done.stderr.count(b"\n") == 1, done.stderr
    assert os.listdir(tmp_path) == ["full"]


def test_a_script_that_wants_packages(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("# /// script\n# dependencies = ['rich']\n# ///\n")
    done = bundle(support.IMAGE, str(tmp_path / "b"), str(script))
    assert (done.returncode, done.stdout) == (125, b"") and not (tmp_path / "b").exists()
    assert "wants the package 'rich', and a bundle has one tree" in support.sentence(done)


@pytest.mark.parametrize("keys, message", [
    ({"layers": {"landlock": "require"}}, "the policy requires 'landlock'"),
    ({"layers": {"own_uid": "require"}}, "the policy requires 'own_uid'"),
    ({"layers": {"own_inodes": "require"}}, "the policy requires 'own_inodes'"),
    ({"enforcement": "require"}, "the policy requires 'landlock'"),
    ({"data_place": "disk"}, 'the policy has "data_place": "disk"'),
    ({"mounts": [{"type": "bind", "source": "/usr", "target": "/srv", "readonly": False}]}, "the policy's mount '/srv' can be written"),
])
def test_what_cannot_be_expressed(keys, message, tmp_path):
    done = bundle(support.IMAGE, str(tmp_path / "b"), "--policy", policy(tmp_path, **keys))
    assert done.returncode == 125 and message in done.stderr.decode() and done.stderr.count(b"\n") == 1, done.stderr
    assert not os.path.exists(tmp_path / "b")


def test_an_empty_directory_is_filled_and_kept(tmp_path):
    (tmp_path / "b").mkdir(mode=0o755)
    done = bundle(support.IMAGE, str(tmp_path / "b"), "--workdir", "/none")
    assert done.returncode == 125 and os.listdir(tmp_path / "b") == []
    made(tmp_path / "b")
    assert sorted(os.listdir(tmp_path / "b")) == ["config.json", "files"]


def test_the_files_are_for_the_containers_user_whatever_the_umask(tmp_path):
    (tmp_path / "p.py").write_text("print(1)")
    done = subprocess.run([support.HUTCH, "bundle", support.IMAGE, str(tmp_path / "b"), str(tmp_path / "p.py")],
                          umask=0o077, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert os.stat(tmp_path / "b" / "files" / "run" / "hutch" / "code").st_mode & 0o777 == 0o755
    assert os.stat(tmp_path / "b" / "files" / "run" / "hutch" / "code" / "p.py").st_mode & 0o777 == 0o444
