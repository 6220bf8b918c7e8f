"""Where a suite runs: trees of Debian, sources from its archive, and the two ways to run a command on both, inside and outside.

Nothing here needs root. A tree is what mmdebstrap makes of a list of packages, unpacked with the caller as the owner of everything, so
that `hutch run --rootfs` and bubblewrap can both have it as their root directory. /mnt/data is the folder of one side: both begin as
copies of what was built, with the times of all files, so that make finds nothing to do."""
import fcntl
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time

import reading

TREE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PLACE = os.environ.get("HUTCH_SUITES_FOLDER") or os.path.join(TREE, "build", "suites")
HUTCH = os.path.abspath(os.environ.get("HUTCH_BIN") or os.path.join(TREE, "build", "hutch"))
SUITE = "trixie"
# The file systems and processes of a suite that is stopped go with it.
BWRAP = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--clearenv", "--uid", "1000", "--gid", "1000", "--hostname", "hutch"]
# A job of a shell in the background ignores these, and its children would.
DEFAULT_SIGNALS = ["env", "--default-signal=INT,QUIT"]
FETCH_SECONDS = 1800
SPARE_SECONDS = 60  # hutch ends a run by itself; this is for the case that it does not
# What `default` limits, as far as any program of some size needs more. Whatever a suite needs besides is in its row.
RAISED = {"memory": "4G", "wall": "1h", "cpu_time": None, "data_size": None, "data_files": None, "output": "256M", "cpus": 2}


class Missing(Exception):
    """What this machine or the archive lacks for a suite. The suite is skipped, by this name."""


def shell(words, **more):
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                          timeout=FETCH_SECONDS, check=False, **more)
    return done.returncode, done.stdout


def folder(*names):
    path = os.path.join(PLACE, *names)
    os.makedirs(path, exist_ok=True)
    return path


def sources(kind):
    """The lines of apt for this release's main archive. The security archive is left out: what it has is in no snapshot for long."""
    status, said = shell([os.path.join(TREE, "rootfs", "debian-sources.sh"), SUITE])
    lines = [line for line in said.splitlines() if line.startswith("deb ") and line.split()[-2] == SUITE]
    if status or not lines:
        raise Missing("no source of Debian's %s" % SUITE)
    path = os.path.join(folder("apt"), kind + ".list")
    with open(path, "w", encoding="utf-8") as out:
        out.writelines(kind + line[len("deb"):] + "\n" for line in lines)
    return path


def tree(name, packages):
    """The root directory with these packages, made once."""
    with only_one("tree-" + name):
        return make_tree(name, packages)


def make_tree(name, packages):
    path = os.path.join(folder("trees"), name)
    told = os.path.join(path + ".packages")
    wanted = " ".join(packages)
    if os.path.exists(told) and open(told, encoding="utf-8").read() == wanted:
        return path
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    if not shutil.which("mmdebstrap"):
        raise Missing("mmdebstrap is not installed")
    archive = path + ".tar"
    status, said = shell(["mmdebstrap", "--variant=minbase", "--format=tar", "--skip=output/dev",
                          "--aptopt=Acquire::Languages \"none\"", "--dpkgopt=path-exclude=/usr/share/doc/*",
                          "--include=" + ",".join(packages), SUITE, archive, sources("deb")])
    if status:
        raise Missing("no tree '%s': %s" % (name, said[-600:]))
    status, said = shell(["tar", "-C", path, "--no-same-owner", "-p", "-xf", archive])
    if status:
        raise Missing("tree '%s' cannot be unpacked: %s" % (name, said[-600:]))
    os.unlink(archive)
    shell(["chmod", "-R", "u+rwX", path])
    prepare(path)
    with open(told, "w", encoding="utf-8") as out:
        out.write(wanted)
    return path


def prepare(path):
    """What the images of hutch have besides: the sandbox's user, the place of its data, and who the machine is."""
    for name, line in (("passwd", "user:x:1000:1000:user:/tmp:/bin/bash"), ("group", "user:x:1000:")):
        with open(os.path.join(path, "etc", name), "r+", encoding="utf-8") as table:
            if line not in table.read().splitlines():
                table.write(line + "\n")
    for name in ("dev", "mnt/data", "proc", "run", "sys", "tmp"):
        os.makedirs(os.path.join(path, name), exist_ok=True)
    with open(os.path.join(path, "etc", "hosts"), "w", encoding="utf-8") as hosts:
        hosts.write("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n127.0.1.1\thutch\n")


def source(package, target):
    """Unpacks the tarball of the authors, as Debian's archive has it, into @target. Debian's patches are left out: some archives lack the
    file that says which they are, and a suite is compared with itself."""
    store = folder("sources", package)
    with only_one("sources"):
        download(package, store)
    names = [name for name in os.listdir(store) if ".tar." in name and not name.endswith(".asc")]
    os.makedirs(target)
    for name in sorted(names, key=lambda name: ".orig.tar." not in name):
        part = name.partition(".orig-")[2].partition(".tar.")[0]
        if ".orig" not in name:
            continue
        where = os.path.join(target, part) if part else target
        os.makedirs(where, exist_ok=True)
        status, said = shell(["tar", "-C", where, "--strip-components=1", "-xf", os.path.join(store, name)])
        if status:
            raise Missing("'%s' cannot be unpacked: %s" % (name, said[-600:]))


def download(package, store):
    if not os.listdir(store):
        apt = folder("apt")
        options = ["-q", "-o", "Dir::State=" + folder("apt", "state"), "-o", "Dir::Cache=" + folder("apt", "cache"),
                   "-o", "Dir::Etc::SourceList=" + sources("deb-src"), "-o", "Dir::Etc::SourceParts=/nonexistent",
                   "-o", "Dir::State::status=/dev/null", "-o", "APT::Sandbox::User="]
        for below in ("state/lists/partial", "cache/archives/partial"):
            folder("apt", below)
        if not any(name.endswith("Sources") or "Sources." in name for name in os.listdir(os.path.join(apt, "state", "lists"))):
            status, said = shell(["apt-get", *options, "update"])
            if status:
                raise Missing("Debian's sources cannot be listed: " + said[-600:])
        _status, said = shell(["apt-get", *options, "source", "--download-only", package], cwd=store)
        if not any(".orig.tar." in name for name in os.listdir(store)):
            shutil.rmtree(store)
            raise Missing("the archive has no source of '%s': %s" % (package, said[-600:]))


def copy(origin, target):
    shutil.rmtree(target, ignore_errors=True)
    status, said = shell(["cp", "-a", "--reflink=auto", origin + "/.", target])
    assert status == 0, said[-600:]


def finish(words, seconds, **more):
    """Runs it, with all that it says kept away from the terminal. Its status, or "timeout"."""
    with subprocess.Popen([*DEFAULT_SIGNALS, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True, **more) as running:
        try:
            said, _none = running.communicate(timeout=seconds)
            return running.returncode, said.decode(errors="replace")
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            said, _none = running.communicate()
            return "timeout", said.decode(errors="replace")


class Side:
    """One of the two places. @way is "cold", a script of sh by `hutch run`, or "session" or "server", Python for warm.py. What the command says is in /mnt/data/log, a file on both, so that nothing there is a pipe to the caller."""

    def __init__(self, name, root, data, environment, limits, policy="default", way="cold"):
        self.name, self.root, self.data, self.environment, self.way = name, root, data, environment, way
        self.limits = dict(RAISED, **limits)
        self.policy = os.path.join(os.path.dirname(data), "policy-%s.json" % name)
        with open(self.policy, "w", encoding="utf-8") as out:
            json.dump({"schema": 1, "extends": policy, "limits": self.limits}, out, indent=1)

    def words(self, command):
        if self.way != "cold" and self.name == "inside":
            return [sys.executable, os.path.join(TREE, "tests", "suites", "warm.py"), self.way, HUTCH, self.root, self.policy, self.data, command]
        if self.way != "cold":
            command = "exec python3 -c " + shlex.quote(command)
        script = "exec >/mnt/data/log 2>&1 </dev/null\n" + command
        if self.name == "outside":
            known = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/tmp", "USER": "user", "LOGNAME": "user", "TMPDIR": "/tmp", "TERM": "dumb",
                     "LANG": "C.UTF-8", **default_environment(), **self.environment}
            return [*BWRAP, "--ro-bind", self.root, "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/run",
                    "--bind", self.data, "/mnt/data", "--chdir", "/mnt/data",
                    *(word for name, value in known.items() for word in ("--setenv", name, value)), "/bin/sh", "-c", script]
        words = [HUTCH, "run", "--no-server", "--quiet", "--rootfs", self.root, "--policy", self.policy, "--data", self.data]
        return [*words, *("--env=%s=%s" % pair for pair in self.environment.items()), "--", "/bin/sh", "-c", script]

    def run(self, command, seconds):
        """Its status, what it printed, and how long it took. What hutch or bubblewrap themselves say is the last line."""
        begin = time.monotonic()
        log = os.path.join(self.data, "log")
        if os.path.lexists(log):
            os.unlink(log)
        status, said = finish(self.words(command), seconds + SPARE_SECONDS)
        return status, reading.text_of(self.data, "log") + said, time.monotonic() - begin


def prepared(suite, packages):
    """The tree, and the folder in which the suite was built, by a tree of these packages."""
    root = tree(suite.tree, packages)
    home = folder("work", suite.name)
    built = os.path.join(home, "built")
    if os.path.exists(os.path.join(built, "done")):
        return root, built
    shell(["rm", "-rf", built])
    os.makedirs(built)
    if suite.package:
        source(suite.package, os.path.join(built, "src"))
    print("%s: build" % suite.name, flush=True)
    status, printed, seconds = Side("outside", root, built, suite.environment, suite.limits).run(suite.build, 7200)
    if status:
        raise Missing("it cannot be built:\n" + printed[-3000:])
    print("%s: built in %d s" % (suite.name, seconds), flush=True)
    open(os.path.join(built, "done"), "w", encoding="utf-8").close()
    return root, built


def default_environment():
    folder_of = os.environ.get("HUTCH_POLICY_DIR") or os.path.join(TREE, "policies")
    with open(os.path.join(folder_of, "default.json"), encoding="utf-8") as text:
        return json.load(text)["environment"]


def only_one(name):
    """One process at a time makes or uses what has this name; the file returned holds the lock until it is closed."""
    lock = open(os.path.join(folder("locks"), name), "w", encoding="utf-8")
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock
