"""hutch inside containers of Debian's podman, rootless and without a daemon: which level a run has there, what each layer says,
and that the limits hold where nothing of /proc is seen inside. The container has this machine's /usr, and nothing else of it but
the tree, the store and the tests' data."""
import json
import os
import re

import pytest

import containers
import support
from containers import as_caller

PROFILE = "/usr/share/containers/seccomp.json"
SHIPPED = os.path.join(support.TREE, "examples/kubernetes/cluster/seccomp-hutch.json")
NEW_NAMESPACES = 0x7E020000  # CLONE_NEW*, clone(2), as Docker's filter has them

FULL = ("own_proc", "host_name", "network_buffers")

pytestmark = pytest.mark.skipif(os.geteuid() == 0, reason="rootless containers: an ordinary user's lane has them")


def without_user_namespaces(path):
    """podman's filter with Docker's rule: no process of the container makes namespaces."""
    with open(PROFILE, encoding="utf-8") as file:
        profile = json.load(file)
    for rule in profile["syscalls"]:
        rule["names"] = [name for name in rule["names"] if name not in ("clone", "clone3", "unshare", "setns")]
    profile["syscalls"] = [rule for rule in profile["syscalls"] if rule["names"]]
    profile["syscalls"].append({"names": ["clone"], "action": "SCMP_ACT_ALLOW",
                                "args": [{"index": 0, "value": NEW_NAMESPACES, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}]})
    profile["syscalls"].append({"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38})
    with open(path, "w", encoding="utf-8") as file:
        json.dump(profile, file)


@pytest.fixture(scope="module")
def podman():
    with containers.podman() as made:
        yield made


@pytest.fixture(scope="module")
def image(podman):
    """hutch's own image, loaded, and the words that run it; the store is mounted."""
    done = podman.podman("load", "--input", support.static_file("hutch-*-image.tar"))
    assert done.returncode == 0 and "localhost/hutch:" in done.stdout, done.stderr
    name = done.stdout.split("localhost/hutch:")[1].split()[0]

    def run(*words, options=()):
        for _ in range(5):  # podman now and then passes on nothing of a container that ends at once
            done = podman.podman("run", "--rm", "--network", "none", *options, "localhost/hutch:" + name, *words)
            if done.returncode or done.stdout:
                break
        return done
    return run


def test_our_image_in_a_default_container(image):
    store = ["-v", support.hutch_home() + ":/var/lib/hutch"]
    done = image("run", "--image", support.IMAGE, "--json", "-c", "import os; print(os.getuid())", options=store)
    result = json.loads(done.stdout)
    support.check_result(result)
    assert (result["verdict"], result["level"], result["stdout"]) == ("ok", "no_proc", "1000\n"), result
    assert image("--version").stdout.startswith("hutch ")
    done = image("doctor", "--json", options=store)
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert checks["policies"]["status"] == "ok" and support.IMAGE in checks["images"]["detail"], checks


def test_our_image_with_nothing_allowed(image):
    """A store that is only read, a root that cannot be written, no capability, and the caller's own uid."""
    options = [*as_caller(), "--read-only", "-v", os.path.join(support.hutch_home(), "images") + ":/images:ro", "-e", "HUTCH_IMAGES=/images",
               "-e", "HUTCH_HOME=/tmp/hutch"]
    done = image("run", "--image", support.IMAGE, "-c", "print(6 * 7)", options=options)
    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr


def test_our_image_serves_where_proc_is_uncovered(image):
    options = ["--security-opt", "unmask=ALL", "-v", support.hutch_home() + ":/var/lib/hutch"]
    done = image("run", "--image", support.IMAGE, "--warm", "-c", "print(6 * 7)", options=options)
    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr


SETTINGS = {  # options -> the level, and what of FULL is there
    "default": ([], "no_proc", set()),
    "nothing_allowed": (as_caller(), "no_proc", set()),
    "unmasked": (["--security-opt", "unmask=ALL"], "full", {"own_proc", "network_buffers"}),
    "unconfined": (["--security-opt", "seccomp=unconfined"], "no_proc", {"host_name"}),
    "our_profile": (["--security-opt", "seccomp=" + SHIPPED], "no_proc", {"host_name"}),
    "our_profile_alone": ([*as_caller(), "--security-opt", "seccomp=" + SHIPPED], "no_proc", {"host_name"}),
    "both": (["--security-opt", "unmask=ALL", "--security-opt", "seccomp=unconfined"], "full", set(FULL)),
    "privileged": (["--privileged"], "full", set(FULL)),
}
ALWAYS = {"user_namespace", "mount_namespace", "pid_namespace", "net_namespace", "ipc_namespace", "uts_namespace", "cgroup_namespace",
          "readonly_root", "no_capabilities", "no_new_privs", "seccomp"}


@pytest.mark.parametrize("name", SETTINGS)
def test_level(podman, name):
    options, level, there = SETTINGS[name]
    result = podman.hutch(options, "-c", "import os, socket; print(os.uname().nodename, os.getuid(), socket.gethostbyname(os.uname().nodename))")
    assert (result["verdict"], result["level"]) == ("ok", level), result["message"]
    active = {layer for layer, state in result["layers"].items() if state["active"]}
    assert ALWAYS <= active, ALWAYS - active
    assert active & set(FULL) == there
    assert all(result["layers"][layer]["detail"] for layer in FULL if layer not in there), result["layers"]
    host, uid, address = result["stdout"].split()
    assert address == "127.0.1.1", "the name that programs see, whoever gave it, has an address"
    assert uid == "1000" and (host == "hutch") == ("host_name" in there)


def test_without_user_namespaces(podman):
    """Docker's default: refused, with the reason. No layer is called active that was not made."""
    profile = os.path.join(podman.place, "no-namespaces.json")
    without_user_namespaces(profile)
    options = ["--security-opt", "seccomp=" + profile]
    result = podman.hutch(options, "-c", "print(1)")
    assert (result["verdict"], result["level"], result["stdout"]) == ("setup_failed", None, "")
    assert "namespaces" in result["message"], result["message"]
    assert not any(layer["active"] for layer in result["layers"].values())
    report = json.loads(podman.run(options, support.HUTCH, "doctor", "--json").stdout)
    assert report["policies"]["default"]["level"] == "refused" and report["policies"]["default"]["reason"]
    assert {check["name"]: check for check in report["checks"]}["user_namespace"]["fix"]


def test_proc_that_hides_processes(podman):
    """With hidepid a process that made itself unreadable would not be seen at all, and nobody would count it."""
    result = podman.hutch(["--security-opt", "proc-opts=hidepid=2"], "-c", "print(1)")
    assert result["verdict"] == "setup_failed" and "hidepid" in result["message"], result["message"]


@pytest.mark.parametrize("errnum", [1, 38])
def test_processes_that_cannot_be_told_apart(podman, errnum):
    """A filter around hutch that forbids the call by which init tells the sandbox's processes from others."""
    profile = os.path.join(podman.place, "no-pidfd-%d.json" % errnum)
    with open(PROFILE, encoding="utf-8") as file:
        found = json.load(file)
    for rule in found["syscalls"]:
        rule["names"] = [name for name in rule["names"] if name != "pidfd_send_signal"]
    found["syscalls"].append({"names": ["pidfd_send_signal"], "action": "SCMP_ACT_ERRNO", "errnoRet": errnum})
    with open(profile, "w", encoding="utf-8") as file:
        json.dump(found, file)
    result = podman.hutch(["--security-opt", "seccomp=" + profile], "-c", "print(1)")
    assert result["verdict"] == "setup_failed" and "pidfd_send_signal" in result["message"], result["message"]


def test_very_many_groups(podman):
    """They stand before what tells the numbers of a process."""
    options = [word for group in range(2000, 2750) for word in ("--group-add", str(group))]
    path = podman.file("large.py", "import os, time\nfor i in range(4):\n    if os.fork() == 0:\n        kept = b'x' * (60 << 20); "
                                   "time.sleep(60)\ntime.sleep(60)")
    result = podman.hutch(options, "--memory", "128M", path)
    assert result["verdict"] == "out_of_memory", result


def test_root_that_cannot_be_mapped(podman):
    """uid 0 of a container without capabilities: the kernel maps it for nobody, and the sentence says what to do."""
    result = podman.hutch(["--cap-drop", "all"], "-c", "print(1)")
    assert result["verdict"] == "setup_failed" and "CAP_SETFCAP" in result["message"] and "keep-id" in result["message"], result


def test_strict_refuses(podman):
    result = podman.hutch([], "--policy", "strict", "-c", "print(1)")
    assert result["verdict"] == "setup_failed" and result["stdout"] == ""
    path = podman.file("strict.json", json.dumps({"schema": 1, "extends": "default", "layers": {"own_proc": "require"}}))
    result = podman.hutch([], "--policy", path, "-c", "print(1)")
    assert result["verdict"] == "setup_failed" and "own_proc" in result["message"] and "partly covered" in result["message"], result
    # What stood by then is told, and nothing that did not.
    active = {layer for layer, state in result["layers"].items() if state["active"]}
    assert "user_namespace" in active and not active & {"readonly_root", "seccomp", "no_capabilities", "landlock", *FULL}, active


def test_doctor_says_the_level(podman):
    report = json.loads(podman.run([], support.HUTCH, "doctor", "--json").stdout)
    assert report["policies"]["default"]["runs"] and report["policies"]["default"]["level"] == "no_proc"
    checks = {check["name"]: check for check in report["checks"]}
    for name in ("fresh_proc", "host_name", "network_buffers"):
        assert checks[name]["status"] == "degraded" and checks[name]["costs"] and "podman" in checks[name]["fix"], checks[name]


def test_proc_is_a_few_files(podman):
    """None of the container's procfs is inside, and nothing there can be written."""
    seen = podman.hutch([], "-c", """
import os
names = sorted(os.listdir("/proc"))
print(names)
print([line.split()[2] for line in []], os.statvfs("/proc").f_flag & os.ST_RDONLY)
try: open("/proc/new", "w")
except OSError as error: print(error.errno)
try: os.readlink("/proc/self/exe")
except OSError as error: print(error.errno)
for path in ("cpuinfo", "stat", "filesystems", "sys/kernel/osrelease"): assert open("/proc/" + path).read()
print(open("/proc/meminfo").readline().split()[1])
import ctypes
class Statfs(ctypes.Structure): _fields_ = [("type", ctypes.c_long), ("rest", ctypes.c_long * 14)]
found = Statfs(); ctypes.CDLL(None).statfs(b"/proc", ctypes.byref(found)); print(hex(found.type))
""")
    assert seen["verdict"] == "ok", seen
    lines = seen["stdout"].splitlines()
    assert not re.search(r"'\d+'|self|mounts|net'", lines[0]), lines[0]
    assert lines[1] == "[] 1" and lines[2] in ("13", "30") and lines[3] == "2"
    assert lines[4] == str(512 << 10), "the sandbox's memory limit"
    assert lines[5] == "0x1021994", "a tmpfs"


def test_programs_are_started(podman):
    """Python 3.13 has libc close what the child is not to have, and that goes by close_range(2) or by a procfs."""
    seen = podman.hutch([], "-c", """
import os, subprocess
print(subprocess.run(["/bin/echo", "one"], capture_output=True, text=True).stdout.strip())
print(subprocess.run("echo two", shell=True, capture_output=True, text=True).stdout.strip(), flush=True)
os.system("echo three")
print(subprocess.Popen(["/bin/echo", "four"], stdout=subprocess.PIPE, close_fds=False).communicate()[0].decode().strip())
os.closerange(3, 4096)
print("five")
""")
    assert seen["verdict"] == "ok" and seen["stdout"].split() == ["one", "two", "three", "four", "five"], seen


def test_children_are_counted(podman):
    path = podman.file("children.py", containers.CHILDREN)
    result = podman.hutch([], path)
    assert result["stdout"].split() == ["11", "63"], result
    assert result["usage"]["pids_peak"] == 64, "seen by init although nothing in /proc shows them inside"


SOCKETS = """
import socket, time
listener = socket.create_server(("127.0.0.1", 0), backlog=512)
kept, queued = [], 0
try:
    while len(kept) < 230:
        one = socket.create_connection(listener.getsockname())
        kept += [one, listener.accept()[0]]
        one.setblocking(False)
        try:
            while True: one.send(bytes(65536))
        except BlockingIOError: pass
except OSError: pass
time.sleep(60)
"""


@pytest.mark.parametrize("how", [*containers.MEMORY, "sockets"])
def test_memory_is_counted(podman, how):
    path = podman.file("memory.py", {**containers.MEMORY, "sockets": SOCKETS}[how] + "\nprint('survived')\n")
    words = ["--memory", "128M"] if how == "sockets" else []
    result = podman.hutch([], *words, path)
    assert "survived" not in result["stdout"], result
    # A single process is refused the memory by its rlimit, and Python ends with its own word.
    assert result["verdict"] == "out_of_memory" or (how == "one process" and result["error"]["name"] == "MemoryError"), result
    assert "supervisor" in result["limits"]["memory"]["enforced_by"]


def test_cpu_time_is_counted(podman):
    path = podman.file("cpu.py", "import os\nfor i in range(2):\n    if os.fork() == 0:\n        while True: pass\nos.wait()")
    result = podman.hutch([], "--cpu-time", "1s", path)
    assert result["verdict"] == "cpu_time" and result["usage"]["cpu_user_ms"] + result["usage"]["cpu_system_ms"] >= 900, result


@pytest.mark.parametrize("path", ["cold", "warm"])
def test_hostile_suite(podman, path):
    """All probes of the cold path, and all of the engine's, in a container with default options."""
    done = podman.run(["-e", "HUTCH_WARM=%d" % (path == "warm")], "/usr/bin/python3", "-m", "pytest", "-p", "no:cacheprovider", "-q", "--rootdir", support.TREE,
                      os.path.join(support.TREE, "tests/hostile/test_hostile.py"), "-k", "test_probe", seconds=900)
    summary = re.search(r"(?:(\d+) failed, )?(\d+) passed(?:, (\d+) skipped)?", done.stdout)
    assert summary, done.stdout[-2000:] + done.stderr[-2000:]
    print("hostile suite at the level no_proc, %s: %s" % (path, summary.group(0)))
    assert not summary.group(1) and done.returncode == 0, done.stdout[-4000:]
    assert int(summary.group(2)) >= 350, summary.group(0)
