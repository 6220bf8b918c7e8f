"""Who runs the tests: users, their homes and control groups, and how a command of theirs is started."""
import atexit
import os
import pwd
import re
import signal
import subprocess
import time

from common import TREE, say

USER_PREFIX = "hutchtest"


class Identity:
    """A user, his home and his environment, and how a command of his is started."""

    def __init__(self, label, uid, gid, home, group=None, is_temporary=False):
        self.label, self.uid, self.gid, self.home = label, uid, gid, home
        self.group = group  # a DelegatedGroup, or None
        self.is_temporary = is_temporary  # all processes of this user are the tests'
        self.variables = {}  # of the environment, besides
        self.ids = None  # a file that stands in for /etc/subuid and /etc/subgid
        self.store = os.path.join(home, "store")
        self.temporary = os.path.join(home, "tmp")

    def prefix(self):
        """What stands before a command so that it runs as this user, in his control group."""
        from support import range_words
        words = []
        if self.ids:
            words += range_words(self.ids)
        if self.group:
            words += ["sh", "-c", 'echo $$ > "$1/cgroup.procs" && shift && exec "$@"', "sh", self.group.leaf]
        if self.uid != os.geteuid():
            words += ["setpriv", "--reuid=%d" % self.uid, "--regid=%d" % self.gid, "--init-groups", "--"]
        return words

    def cpu(self):
        """Seconds of processors that all of his processes in the group have taken so far; None where no group counts them."""
        return self.group.cpu() if self.group else None

    def left(self):
        """What a lane has left behind, as sentences. Processes are ended."""
        found = []
        if self.is_temporary:
            left = wait_until_gone(self.uid, 30)
            if left:
                found.append("left processes: %r" % left)
                end_processes(self.uid)
        if self.group and self.group.left():
            found.append("left control groups: %r" % self.group.left())
        return found

    def environment(self, scratch):
        keep = ("PATH", "LANG", "LC_ALL", "TERM", "HUTCH_STRICT_TESTS", "HUTCH_TEST_DATA", "HUTCH_TEST_TREES", "HUTCH_TEST_FULL", "HUTCH_SUITE", "HUTCH_RUN",
                "HUTCH_SOAK", "ASAN_OPTIONS", "UBSAN_OPTIONS", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS")
        environment = {name: os.environ[name] for name in keep if name in os.environ}
        environment.update(
            HOME=self.home, TMPDIR=self.temporary, HUTCH_HOME=self.store, HUTCH_BIN=scratch.binary, HUTCH_TEST_PROGRAMS=scratch.programs,
            HUTCH_TEST_CLIENTS=scratch.clients, HUTCH_TEST_IMAGES=scratch.archives or "",
            PYTHONDONTWRITEBYTECODE="1", PYTHONUNBUFFERED="1",
            HUTCH_TEST_SOURCE=TREE, HUTCH_TEST_BUILD=os.path.join(TREE, scratch.build))  # what make install installs from
        environment.setdefault("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
        environment.update(self.variables)
        environment.setdefault("HUTCH_TEST_DATA", os.path.join(os.path.dirname(TREE), "shared", "data"))
        return environment


def give_range(scratch):
    """With a range of subordinate ids for the user hutch, root's sandboxes have host ids of their own, as doctor advises. tests/e2e/test_own_uid.py
    has the cases without one. The ids are far from those of users, and from the range that useradd gives."""
    path = os.path.join(scratch.path, "subordinate-ids")
    with open(path, "w", encoding="ascii") as file:
        file.write("hutch:805306368:65536\n")
    if not os.path.exists("/run/hutch"):
        atexit.register(subprocess.run, ["rm", "-rf", "/run/hutch"], check=False)
    for name in ("/etc/subuid", "/etc/subgid"):
        if not os.path.exists(name):
            return None  # nothing to put it in the place of
    return path


def make_home(scratch, name, uid, gid):
    home = os.path.join(scratch.path, name)
    for directory in (home, os.path.join(home, "tmp")):
        os.mkdir(directory, 0o711)
        os.chmod(directory, 0o711)
        if uid != os.geteuid():
            os.chown(directory, uid, gid)
    return home


def processes_of(uid):
    """The pids of all processes of a user. The dead are not among them: in some containers nobody takes them."""
    from support import status_of
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:  # the owner of the directory is root where a process is not dumpable
                status = status_of(int(name))
                if str(uid) in status["Uid"] and status["State"][0] not in "ZX":
                    found.append(int(name))
            except OSError:
                pass
    return found


def wait_until_gone(uid, seconds):
    deadline = time.monotonic() + seconds
    while processes_of(uid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return processes_of(uid)


class TemporaryUser:
    """An ordinary user for this run alone: useradd, and everything of his is gone at the end."""

    def __init__(self, home, letter):
        self.name = "%s%d%s" % (USER_PREFIX, os.getpid(), letter)
        self.entry = None
        atexit.register(self.remove)
        subprocess.run(["useradd", "--no-create-home", "--home-dir", home, "--shell", "/bin/sh", "--user-group", self.name], check=True)
        self.entry = pwd.getpwnam(self.name)

    @staticmethod
    def sweep():
        """Removes users of runs that were killed."""
        for entry in pwd.getpwall():
            match = re.fullmatch(USER_PREFIX + r"(\d+)[a-z]?", entry.pw_name)
            if match and not os.path.exists("/proc/" + match.group(1)):
                end_processes(entry.pw_uid)
                subprocess.run(["userdel", entry.pw_name], stderr=subprocess.DEVNULL, check=False)

    def remove(self):
        if self.entry is None:
            return
        end_processes(self.entry.pw_uid)
        subprocess.run(["userdel", self.name], stderr=subprocess.DEVNULL, check=False)
        self.entry = None


def end_processes(uid):
    for _ in range(20):
        left = processes_of(uid)
        if not left:
            return
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.05)


class DelegatedGroup:
    """A cgroup v2 subtree that belongs to a user, as systemd's Delegate=yes makes it: the directory and three
    files are his, and his processes start in a child of it, because processes live in leaves."""

    def __init__(self, name, uid, gid):
        from support import cgroup2_mount
        self.path = self.leaf = None
        mount = cgroup2_mount()
        if mount is None:
            return
        path = os.path.join(mount, "hutch-tests-%d-%s" % (os.getpid(), name))
        try:
            os.mkdir(path)
        except OSError as error:
            say("no delegated control group: %s" % error)
            return
        self.path = path
        atexit.register(self.remove)
        for controller in ("memory", "pids", "cpu"):
            try:
                with open(os.path.join(mount, "cgroup.subtree_control"), "w", encoding="ascii") as file:
                    file.write("+" + controller)
            except OSError:
                pass  # the machine mounts it the v1 way: limits fall back, and say so
        for name in ("", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control"):
            os.chown(os.path.join(path, name), uid, gid)
        self.leaf = os.path.join(path, "shell")
        os.mkdir(self.leaf)
        for name in ("", "cgroup.procs", "cgroup.threads"):
            os.chown(os.path.join(self.leaf, name), uid, gid)

    def left(self):
        """Groups below that are not ours."""
        if self.path is None:
            return []
        return [os.path.join(parent, name) for parent, names, _ in os.walk(self.path) for name in names
                if os.path.join(parent, name) != self.leaf]

    def cpu(self):
        """Seconds of processors that this group and all that was below it have taken."""
        if self.path is None:
            return None
        with open(os.path.join(self.path, "cpu.stat"), encoding="ascii") as file:
            return int(re.search(r"usage_usec (\d+)", file.read())[1]) / 1e6

    def remove(self):
        if self.path is None:
            return
        for parent, _, _ in os.walk(self.path, topdown=False):
            for _ in range(50):
                try:
                    os.rmdir(parent)
                    break
                except OSError:
                    time.sleep(0.02)
        self.path = None


def systemd_scope():
    """A delegated subtree for an ordinary caller, where his systemd makes one: the words before a command."""
    words = ["systemd-run", "--user", "--scope", "--quiet", "-p", "Delegate=yes", "--"]
    try:
        done = subprocess.run(words + ["true"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=10, check=False)
        return words if done.returncode == 0 else None
    except (OSError, subprocess.TimeoutExpired):
        return None


class ScopedIdentity(Identity):
    """An ordinary caller in a scope of his systemd."""

    def __init__(self, words, *args):
        super().__init__(*args)
        self.words = words

    def prefix(self):
        return self.words
