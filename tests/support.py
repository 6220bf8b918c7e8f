"""What all test files share: where the binary under test is, how to run it, and what this host offers.

Environment (set by tests/run; every variable has a default for running pytest by hand):
  HUTCH_BIN           the binary under test                        build/hutch
  HUTCH_HOME          a store with the images minimal and python   as hutch itself finds it
  HUTCH_TEST_PROGRAMS folder with the drivers warm_many and soak   build/tests
  HUTCH_TEST_CLIENTS  folder with the clients of others        build/clients
  HUTCH_TEST_IMAGE    image for tests that need no library         minimal
  HUTCH_TEST_DATA     folder with real input data                  ../shared/data beside the tree
  HUTCH_WARM          1: hutch run is called with --warm, so the same tests are those of the engine
  HUTCH_STRICT_TESTS  1: a missing kernel feature fails a test instead of skipping it
"""
import contextlib
import ctypes
import fcntl
import functools
import glob
import importlib
import json
import os
import platform
import pty
import pwd
import select
import shutil
import subprocess
import time

import pytest

TESTS = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.dirname(TESTS)
HUTCH = os.environ.get("HUTCH_BIN") or os.path.join(TREE, "build", "hutch")
IMAGE = os.environ.get("HUTCH_TEST_IMAGE", "minimal")
WARM = ["--warm"] if os.environ.get("HUTCH_WARM") == "1" else []
STRICT = os.environ.get("HUTCH_STRICT_TESTS") == "1"

RESULT_KEYS = ("version", "verdict", "exit_code", "signal", "message", "stdout", "stdout_truncated", "stderr",
               "stderr_truncated", "error", "files", "timings_ms", "usage", "limits", "level", "layers")
VERDICTS = ("ok", "error", "timeout", "cpu_time", "out_of_memory", "output_limit", "killed", "denied", "setup_failed")
LAYERS = ("user_namespace", "mount_namespace", "pid_namespace", "net_namespace", "ipc_namespace",
          "uts_namespace", "cgroup_namespace", "readonly_root", "no_capabilities", "no_new_privs", "seccomp",
          "landlock", "cgroup", "own_uid", "own_inodes", "own_proc", "host_name", "network_buffers")
ENFORCERS = ("none", "cgroup", "rlimit", "affinity", "kernel", "supervisor")


def _documented_limits():
    """The names in docs/results.md, which a unit test holds against the limits there are."""
    with open(os.path.join(TREE, "docs", "results.md"), encoding="utf-8") as text:
        table = text.read().split("| limit | unit |", 1)[1].split("\n\n", 1)[0]
    return tuple(line.split("`")[1] for line in table.splitlines() if line.startswith("| `"))


LIMITS = _documented_limits()


# For programs inside: /proc/meminfo as psutil reads it, and a bounded wait for what it is to say.
MEMINFO = """
import time
def meminfo():
    with open('/proc/meminfo') as file:
        return {words[0].rstrip(':'): int(words[1]) * 1024 for words in map(str.split, file)}
def await_meminfo(holds, seconds=30):
    deadline = time.monotonic() + seconds
    while not holds(now := meminfo()):
        if time.monotonic() > deadline: raise TimeoutError(now)
        time.sleep(0.01)
    return now
"""


# --------------------------------------------------------------------------------------------------
# Features of this host, each tried

def _landlock():
    number = 444
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    return libc.syscall(ctypes.c_long(number), None, ctypes.c_long(0), ctypes.c_long(1)) > 0


def _userns():
    return subprocess.run(["unshare", "--user", "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0


def cgroup2_mount():
    """The mount point of the cgroup v2 tree, or None."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as table:
        for line in table:
            fields = line.split()
            if fields[fields.index("-") + 1] == "cgroup2":
                return fields[4]
    return None


def cgroup_of(pid):
    """The directory of a process's v2 group, or None."""
    mount = cgroup2_mount()
    with open("/proc/%s/cgroup" % pid, encoding="utf-8", errors="replace") as table:
        for line in table:
            if line.startswith("0::") and mount:
                return os.path.normpath(mount + line.strip()[3:])
    return None


def own_cgroup():
    """The directory of our own v2 group, or None."""
    return cgroup_of("self")


def engine_cgroup(pid):
    """The directory below which an engine of the process @pid has all of its groups, or None: other tests have theirs beside it."""
    own = own_cgroup()
    if own is None or own == cgroup2_mount():
        return None
    parent = os.path.dirname(own)
    for below in descendants(pid):
        try:
            group = cgroup_of(below)
        except (FileNotFoundError, ProcessLookupError):
            continue
        name = os.path.relpath(group, parent).split("/")[0] if group else ""
        if name.startswith("hutch-"):
            return os.path.join(parent, name)
    return None


def _delegated():
    """We may make groups beside our own: the subtree above us is ours."""
    own = own_cgroup()
    if own is None:
        return False
    return all(os.access(path, os.W_OK) for path in (os.path.dirname(own), os.path.dirname(own) + "/cgroup.procs"))


FEATURES = {
    "landlock": (_landlock, "the kernel has no Landlock"),
    "userns": (_userns, "this user cannot make user namespaces"),
    "cgroup2": (lambda: cgroup2_mount() is not None, "no cgroup v2 file system is mounted"),
    "delegation": (_delegated, "no cgroup v2 subtree is delegated to this user"),
    "uml": (lambda: shutil.which("linux.uml") is not None, "user-mode Linux is not installed"),
}
# Which lane has them is a matter of how tests/run called us, so their absence is never a failure.
NOT_STRICT = ("delegation",)


@functools.lru_cache(maxsize=None)
def has(feature):
    return bool(FEATURES[feature][0]())


def miss(reason):
    """Skips the test by name; in strict mode that is a failure."""
    if STRICT:
        pytest.fail("strict: " + reason)
    pytest.skip(reason)


def module(name, package):
    """A module of Debian's for the tests; a named skip where it is missing."""
    try:
        return importlib.import_module(name)
    except ImportError:
        miss("apt: %s is not there (%s)" % (package, name))


def need(feature):
    """Skips the test by name when the host lacks the feature; in strict mode that is a failure."""
    if has(feature):
        return
    reason = "%s: %s" % (feature, FEATURES[feature][1])
    if feature in NOT_STRICT:
        pytest.skip(reason)
    miss(reason)


def test_data(name):
    """Path of a file of the real input data; a named skip where there is none."""
    folder = os.environ.get("HUTCH_TEST_DATA") or os.path.join(os.path.dirname(TREE), "shared", "data")
    path = os.path.join(folder, name)
    if not os.access(path, os.R_OK):
        pytest.skip("no test data: %s" % path)
    return path


test_data.__test__ = False  # pytest takes it for a test by its name


def is_root():
    return os.geteuid() == 0


def host_uids():
    """Which users sandboxes can be on this host: the caller and the caller's subordinate ids, or for root those of the
    user hutch, else nobody. With more than one, the first is that of the engine's own processes, and each sandbox has
    one of the rest."""
    owners = ("hutch",) if is_root() else (pwd.getpwuid(os.geteuid()).pw_name, str(os.geteuid()))
    found = []
    try:
        with open("/etc/subuid", encoding="ascii", errors="replace") as table:
            for line in table:
                name, first, count = line.strip().split(":")
                if name in owners and not found:
                    found = list(range(int(first), int(first) + int(count)))
    except (OSError, ValueError):
        pass
    if is_root():
        return found or [65534]
    return [os.geteuid()] + found[1:]  # the first is no sandbox's


def range_words(table, more="true", *paths):
    """What stands before a command so that the file @table is in the place of /etc/subuid and /etc/subgid for it. @more is
    what the shell does besides, with @paths as its arguments from $2 on."""
    script = 'mount --bind "$1" /etc/subuid && mount --bind "$1" /etc/subgid && ' + more + ' && shift %d && exec "$@"' % (1 + len(paths))
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", str(table), *map(str, paths)]


def hutch_home():
    if os.environ.get("HUTCH_HOME"):
        return os.environ["HUTCH_HOME"]
    base = os.environ.get("XDG_DATA_HOME") or os.path.join(pwd.getpwuid(os.geteuid()).pw_dir, ".local", "share")
    return os.path.join(base, "hutch")


# --------------------------------------------------------------------------------------------------
# The library

PROGRAMS = os.environ.get("HUTCH_TEST_PROGRAMS") or os.path.join(TREE, "build", "tests")


def program(name):
    """Path of a driver: a C program on the public interface, built beside the unit tests."""
    path = os.path.join(PROGRAMS, name)
    assert os.access(path, os.X_OK), "%s is not built (make unit)" % path
    return path


def processes_about(path):
    """Those that speak of @path on their command lines."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open("/proc/%s/cmdline" % pid, "rb") as opened:
            if path.encode() in opened.read():
                found.append(int(pid))
    return found


def packages(*words):
    """What rootfs/packages.sh prints: packages of a flavour, flavours, releases."""
    script = os.path.join(TREE, "rootfs", "packages.sh")
    return subprocess.run([script, *words], stdout=subprocess.PIPE, text=True, check=True).stdout.split()


def releases():
    """Of Debian, of which images are made; the usual one first."""
    return packages("releases")


def static_file(pattern):
    """What `make tarball` or `make image` has made, as the only file with such a name."""
    build = os.environ.get("HUTCH_TEST_BUILD") or os.path.dirname(HUTCH)
    if build.endswith("-asan"):
        pytest.skip("sanitizers cannot be linked statically")
    if not os.access(build, os.R_OK):
        pytest.skip("this user cannot read what make tarball has made, in " + build)
    if subprocess.run(["pkg-config", "--atleast-version=3", "libcgroup"], check=False).returncode == 0:
        pytest.skip("the tarball is made on Debian 12: libcgroup 3 cannot be linked statically (.ci/dist/libraries)")
    found = glob.glob(os.path.join(build, pattern))
    assert len(found) == 1, "make tarball and make image have made %r in %s" % (found, build)
    return found[0]


def engine_env(**more):
    """The environment for a program that embeds the library, which lies where it was not made for."""
    folder = os.path.dirname(HUTCH)
    below = os.path.join(os.path.dirname(folder), "libexec"), os.path.join(os.path.dirname(folder), "share", "hutch-data", "policies")
    launcher, policies = below if os.path.isdir(below[0]) else (folder, os.path.join(TREE, "policies"))
    return {**os.environ, "HUTCH_LAUNCHER": os.path.join(launcher, "hutch-launcher"), "HUTCH_POLICY_DIR": policies,
            "HUTCH_HOME": hutch_home(), **more}


# --------------------------------------------------------------------------------------------------
# Running it

def command(*args, image=IMAGE):
    """The argument vector of `hutch run` with the image of the tests."""
    return [HUTCH, "run", *WARM] + (["--image", image] if image else []) + list(args)


def root_of_image(image=IMAGE):
    """Where the store has its tree."""
    with open(os.path.join(hutch_home(), "images", "names", image), encoding="ascii") as file:
        return os.path.join(hutch_home(), "images", "trees", file.read().strip().partition(":")[2], "root")


def hutch(*args, stdin=b"", timeout=60, env=None, cwd=None):
    """Runs hutch with any arguments; returns the CompletedProcess with bytes."""
    return subprocess.run([HUTCH, *args], input=stdin, capture_output=True, timeout=timeout, cwd=cwd, check=False,
                          env={**os.environ, **(env or {})})


def run(*args, image=IMAGE, **options):
    """hutch run ARGS in the tests' image."""
    return hutch("run", *WARM, *(["--image", image] if image else []), *args, **options)


def run_json(*args, **options):
    """hutch run --json ARGS; returns the checked result object, with the process's own exit status added
    as "process"."""
    done = run("--json", *args, **options)
    try:
        result = json.loads(done.stdout)
    except ValueError as error:
        raise AssertionError("no JSON on standard output (exit %d): %r, stderr %r"
                             % (done.returncode, done.stdout[:400], done.stderr[:800])) from error
    check_result(result)
    result["process"] = done.returncode
    result["process_stderr"] = done.stderr.decode("utf-8", "replace")
    return result


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_count(value):
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def check_result(result):
    """The schema of the result object, by hand: every key there, every value of its type, nothing else. With a value it is
    the call's of a function; with a project it had a copy of one to write to; with a gpu it had one."""
    is_call = "value" in result
    assert tuple(sorted(set(result) - {"value", "project", "gpu"})) == tuple(sorted(RESULT_KEYS)), "keys of the result"
    assert not is_call or result["value"] is None or result["verdict"] == "ok"
    assert result["version"] == 1
    assert result["verdict"] in VERDICTS, result["verdict"]
    assert result["exit_code"] is None or is_count(result["exit_code"])
    assert result["signal"] is None or (isinstance(result["signal"], str) and result["signal"].startswith("SIG"))
    assert result["message"] is None or (isinstance(result["message"], str) and "\n" not in result["message"])
    if result["verdict"] == "ok" or (result["verdict"] == "error" and not is_call):  # nothing, or what became of the files
        assert result["message"] is None or any(words in result["message"] for words in ("/mnt/data", "files", "the limit '")), result["message"]
    elif result["verdict"] != "error":
        assert result["message"] is not None
    for name in ("stdout", "stderr"):
        assert isinstance(result[name], str)
        assert isinstance(result[name + "_truncated"], bool)
    if result["error"] is not None:
        assert sorted(result["error"]) == ["name", "traceback", "value"]
        assert all(isinstance(value, str) for value in result["error"].values())
    check_files(result["files"])
    if "project" in result:
        check_files({"directory": None, **result["project"]})
    if "gpu" in result:
        assert sorted(result["gpu"]) == ["devices", "driver", "files", "from", "left_out", "root"]
        assert is_count(result["gpu"]["left_out"]) and all(name.startswith("/dev/nvidia") for name in result["gpu"]["devices"])
    assert sorted(result["timings_ms"]) == ["prepared", "queued", "run", "total"]
    assert all(is_number(value) and value >= 0 for value in result["timings_ms"].values())
    assert sorted(result["usage"]) == ["cpu_at_least", "cpu_system_ms", "cpu_user_ms", "memory_peak_bytes", "pids_peak"]
    assert isinstance(result["usage"]["cpu_at_least"], bool)
    assert all(value is None or (is_number(value) and value >= 0) for key, value in result["usage"].items()
               if key != "cpu_at_least")
    assert sorted(result["limits"]) == sorted(LIMITS)
    for name, limit in result["limits"].items():
        assert sorted(limit) == ["asked", "enforced_by"], name
        assert limit["asked"] is None or is_number(limit["asked"]), name
        assert isinstance(limit["enforced_by"], list) and set(limit["enforced_by"]) <= set(ENFORCERS), name
    assert result["level"] in ("full", "no_proc", None)
    # A run that was cancelled while it waited has had no sandbox either.
    has_run = result["verdict"] != "setup_failed" and result["layers"]["user_namespace"]["active"]
    assert (result["level"] is not None) == has_run, (result["level"], result["verdict"])
    assert result["level"] is None or (result["level"] == "full") == result["layers"]["own_proc"]["active"]
    assert sorted(result["layers"]) == sorted(LAYERS)
    for name, layer in result["layers"].items():
        assert sorted(layer) == ["active", "asked", "detail"], name
        assert layer["asked"] in ("require", "try", "off"), name
        assert isinstance(layer["active"], bool) and isinstance(layer["detail"], str), name
        assert layer["active"] or layer["asked"] != "require" or result["verdict"] == "setup_failed", name


def check_files(files):
    assert sorted(files) == ["added", "deleted", "directory", "modified", "truncated"]
    assert files["directory"] is None or os.path.isabs(files["directory"])
    assert isinstance(files["truncated"], bool)
    for kind in ("added", "modified"):
        for entry in files[kind]:
            # "path_base64" only for names that are no UTF-8, "type" only for what is no regular file.
            assert set(entry) - {"path_base64", "type"} == {"mime", "path", "size"}, entry
            assert isinstance(entry["path"], str) and not entry["path"].startswith("/")
            assert is_count(entry["size"])
            assert isinstance(entry["mime"], str) if "type" not in entry else entry["mime"] is None, entry
    for entry in files["deleted"]:
        assert set(entry) - {"path_base64", "type"} == {"path"}, entry


def paths(entries):
    return sorted(entry["path"] for entry in entries)


def sentence(done):
    """The one line on standard error of a run that hutch refused, after checking that it is one."""
    text = done.stderr.decode("utf-8", "replace")
    assert text.startswith("hutch: ") and text.endswith("\n") and text.count("\n") == 1, text
    return text.strip()


def refused(*args, code=125, says=(), **options):
    """hutch ARGS has to fail with @code and one sentence that holds every text of @says."""
    done = hutch(*args, **options)
    assert done.returncode == code, (done.returncode, done.stderr)
    line = sentence(done)
    for text in (says,) if isinstance(says, str) else says:
        assert text in line, line
    return line


# --------------------------------------------------------------------------------------------------
# Cleaning up, and looking whether hutch did

def remove_tree(path):
    """Removes a directory however deep it is and whatever its modes are."""
    subprocess.run(["chmod", "-R", "u+rwx", path], stderr=subprocess.DEVNULL, check=False)
    subprocess.run(["rm", "-rf", path], check=False)


def _is_held(slot):
    """Somebody has the slot's lock: a live hutch."""
    with open(slot, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def live_runs():
    """The slots of HUTCH_HOME/runs that a live hutch holds."""
    folder = os.path.join(hutch_home(), "runs")
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return sorted(name for name in names if name.isdigit() and _is_held(os.path.join(folder, name)))


def dead_runs():
    """What runs left in HUTCH_HOME/runs that nobody holds any more: a slot with a note in it, a data directory
    with anything in it, or anything that is neither. An empty slot and an empty directory are for the next run."""
    folder = os.path.join(hutch_home(), "runs")
    live = live_runs()
    found = []
    for name in os.listdir(folder) if os.path.isdir(folder) else []:
        path = os.path.join(folder, name)
        slot = name.partition(".")[0]
        if slot in live:
            continue
        try:
            if name.isdigit() and os.path.isfile(path):
                is_left = os.stat(path).st_size > 0
            elif slot.isdigit() and os.path.isdir(path):
                is_left = not os.access(path, os.R_OK) or bool(os.listdir(path))
            else:
                is_left = True
        except FileNotFoundError:
            continue
        if is_left:
            found.append(name)
    return sorted(found)


def process_fields():
    """{pid: words of /proc/PID/stat from the state on} of all processes."""
    table = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open("/proc/%s/stat" % name, encoding="utf-8", errors="replace") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        table[int(name)] = fields
    return table


def process_table():
    """{pid: (parent pid, state)} of all processes."""
    return {pid: (int(fields[1]), fields[0]) for pid, fields in process_fields().items()}


def group(number):
    """The processes of a process group, zombies aside."""
    return {pid for pid, fields in process_fields().items() if int(fields[2]) == number and fields[0] not in "ZX"}


def comm(pid):
    """The name of a process, "" when it is gone."""
    try:
        with open("/proc/%d/comm" % pid, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def status_of(pid):
    """The words of each line of /proc/PID/status, by its name."""
    with open("/proc/%d/status" % pid, encoding="utf-8", errors="replace") as file:
        return {line.partition(":")[0]: line.partition(":")[2].split() for line in file}


# SigBlk of what holds a sandbox's memory: all signals but SIGKILL and SIGSTOP. A sandbox may be without a holder: its worker waits
# for the end of the process that has forked it, and not for long.
MEMORY_HOLDER_BLOCKS = "fffffffffffbfeff"


def open_files(pid):
    """What each descriptor of a process is, by its number; what is closed meanwhile is left out."""
    found = {}
    for name in os.listdir("/proc/%d/fd" % pid):
        with contextlib.suppress(FileNotFoundError):
            found[int(name)] = os.readlink("/proc/%d/fd/%s" % (pid, name))
    return found


def openers(below):
    """The openers of the engines of process @below that are alive."""
    return [pid for pid, (parent, state) in process_table().items()
            if parent == below and state not in "ZX" and comm(pid) == "hutch-launcher"]


def descendants(root):
    """All processes below @root, zombies aside. A sandbox is among them as long as anything of it lives:
    its processes have its init as ancestor, and orphans outside of it come to the nearest subreaper."""
    table = process_table()
    found = set()
    frontier = {root}
    while frontier:
        frontier = {pid for pid, (parent, _) in table.items() if parent in frontier} - found
        found |= frontier
    return {pid for pid in found if table[pid][1] not in "ZX"}


def become_subreaper():
    """From here on, orphans below us become our children (prctl(2), PR_SET_CHILD_SUBREAPER)."""
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)


def platform_is_x86():
    return platform.machine() == "x86_64"


def at_terminal(env, answer, *words, began=lambda fd: None, seconds=60):
    """What hutch shows at a terminal, where its question is answered once, and its exit status. @began is called with the terminal."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execve(HUTCH, [HUTCH, *words], {**os.environ, **env})
    shown, is_answered, end = b"", False, time.monotonic() + seconds
    began(fd)
    while time.monotonic() < end:
        if not select.select([fd], [], [], 1)[0]:
            continue
        try:
            more = os.read(fd, 4096)
        except OSError:
            break
        if not more:
            break
        shown += more
        if (b"[Y/n]" in shown or b"[y/N]" in shown) and not is_answered:
            os.write(fd, answer)
            is_answered = True
    os.close(fd)
    return shown.decode(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
