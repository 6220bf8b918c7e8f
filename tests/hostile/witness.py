"""What the host looks like, as a value that can be compared: before a probe and after it."""
import ctypes
import hashlib
import json
import os
import re
import subprocess
import sys
import time

from support import MEMORY_HOLDER_BLOCKS, cgroup2_mount, dead_runs, descendants, live_runs, own_cgroup

HERE = os.path.dirname(os.path.abspath(__file__))

SYSCTLS = ("kernel/hostname", "kernel/domainname", "kernel/core_pattern", "kernel/modprobe", "kernel/sysrq",
           "kernel/panic", "kernel/dmesg_restrict", "kernel/randomize_va_space", "kernel/pid_max",
           "kernel/threads-max", "kernel/shmmax", "kernel/perf_event_paranoid", "kernel/unprivileged_bpf_disabled",
           "kernel/keys/maxkeys", "vm/overcommit_memory", "vm/swappiness", "vm/drop_caches", "vm/mmap_min_addr",
           "fs/file-max", "fs/suid_dumpable", "fs/protected_hardlinks", "user/max_user_namespaces",
           "net/ipv4/ip_forward", "net/core/somaxconn")

# Where a file that a probe made on the host would turn up. Probes put the run's token into every name.
PLACES = ("/", "/tmp", "/var/tmp", "/dev/shm", "/run", "/etc", "/usr", "/usr/bin", "/usr/lib", "/mnt", "/var", "/home", "/srv",
          "/opt")


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read(65536)
    except OSError as error:
        return error.errno


def directory_state(path):
    """Every file below @path with its metadata and contents."""
    state = {}
    for top, directories, files in os.walk(path):
        for name in directories + files:
            full = os.path.join(top, name)
            info = os.lstat(full)
            digest = hashlib.sha256(read(full)).hexdigest() if name in files and os.path.isfile(full) else ""
            state[os.path.relpath(full, path)] = (oct(info.st_mode), info.st_uid, info.st_gid, info.st_nlink,
                                                  info.st_size, info.st_mtime_ns, digest)
    return state


ADD_KEY, KEYCTL = (248, 250) if os.uname().machine == "x86_64" else (217, 219)
KEYCTL_SETPERM, KEYCTL_UNLINK, USER_KEYRING = 5, 9, -4


def keyring_call(*args):
    """libc has no functions for keys."""
    return ctypes.CDLL(None).syscall(*[ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args])


def clock_offset():
    """Wall clock minus time since boot: changes only when somebody sets the clock."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


class Victim:
    """The canary process and its files."""

    def __init__(self, directory, uid):
        self.directory = directory
        self.token = os.urandom(6).hex()
        self.text = "canary-" + os.urandom(12).hex()
        os.chmod(directory, 0o777)
        self.file = os.path.join(directory, "secret")
        self.scratch_file = os.path.join(directory, "scratch-file")
        for path in (self.file, self.scratch_file):
            with open(path, "w", encoding="ascii") as file:
                file.write(self.text)
            # Open to everybody: file permissions are not what is under test.
            os.chmod(path, 0o666)
            os.chown(path, uid, uid if os.geteuid() == 0 else -1)
        identity = {"user": uid, "group": uid, "extra_groups": []} if os.geteuid() == 0 else {}
        self.process = subprocess.Popen(
            [sys.executable, "-I", os.path.join(HERE, "canary.py"), directory, self.text, self.token],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/", **identity)
        line = self.process.stdout.readline()
        assert line, "the canary did not start"
        self.facts = json.loads(line)

        # In root's lane the canary is another user: its key, in a keyring of root's own too, for the control.
        self.own_key = 0
        if os.geteuid() == 0:
            self.own_key = keyring_call(ADD_KEY, b"user", self.facts["key_name"].encode(), self.text.encode(),
                                        len(self.text), USER_KEYRING)
            keyring_call(KEYCTL, KEYCTL_SETPERM, self.own_key, 0x3F3F0000)

    def report(self):
        """What happened to the canary so far."""
        assert self.process.poll() is None, "the canary is dead: exit %r" % self.process.returncode
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        if self.own_key > 0:
            keyring_call(KEYCTL, KEYCTL_UNLINK, self.own_key, USER_KEYRING)
        self.process.stdin.close()
        self.process.wait(timeout=10)
        self.process.stdout.close()


class Witness:
    """Takes the host's state, and says what changed."""

    def __init__(self, victim):
        self.victim = victim
        self.state = None

    def look(self):
        return {
            "canary": self.victim.report(),
            "canary files": directory_state(self.victim.directory),
            "mounts": read("/proc/self/mountinfo"),
            "names": os.uname()[:2],
            "sysctls": {name: read("/proc/sys/" + name) for name in SYSCTLS},
            "own rank": (os.getpriority(os.PRIO_PROCESS, 0), sorted(os.sched_getaffinity(0)), os.sched_getscheduler(0)),
            "own namespaces": {name: os.readlink("/proc/self/ns/" + name) for name in os.listdir("/proc/self/ns")},
            "own group": own_cgroup(),
            "planted files": self.planted(),
        }

    def planted(self):
        found = []
        for place in PLACES:
            try:
                found += [os.path.join(place, name) for name in os.listdir(place)
                          if "hutch-probe-" in name or (self.victim.token in name and name != "hutch-canary-" + self.victim.token)]
            except OSError:
                pass
        return found

    def remember(self):
        self.state = self.look()
        self.offset = clock_offset()

    def check(self):
        """Raises AssertionError that names what is different."""
        now = self.look()
        for name, before in self.state.items():
            assert now[name] == before, "the host changed: %s: %r -> %r" % (name, before, now[name])
        assert abs(clock_offset() - self.offset) < 2, "somebody set the clock"


# --------------------------------------------------------------------------------------------------
# What hutch must not leave behind

def leftover_processes(known):
    """Processes below us that were not there before. They are given a moment: a killed process is gone only
    when the kernel has torn it down."""
    deadline = time.monotonic() + 30
    while True:
        left = descendants(os.getpid()) - known
        if not left or time.monotonic() > deadline:
            return {pid: read("/proc/%d/cmdline" % pid) for pid in left}
        time.sleep(0.01)


MEMORY_HOLDER = re.compile(b"SigBlk:\t" + MEMORY_HOLDER_BLOCKS.encode() + b"\n")


def left_of(names):
    """Which processes below us are more than there were: pids by name, where @names is an earlier names_of_processes(). A memory
    holder, which blocks every signal, counts where a sandbox has two: on a busy machine it may have been prepared without one."""
    found, holders = {}, {}
    for pid in descendants(os.getpid()):
        name, status = read("/proc/%d/comm" % pid), read("/proc/%d/status" % pid)
        if isinstance(name, int) or isinstance(status, int):  # it has ended meanwhile
            continue
        parent = re.search(rb"PPid:\t(\d+)\n", status).group(1)
        if MEMORY_HOLDER.search(status) and holders.setdefault(parent, pid) == pid:
            continue
        found.setdefault(name.decode("utf-8", "replace").strip(), []).append(pid)
    return {name: pids for name, pids in found.items() if len(pids) > names.get(name, 0)}


def names_of_processes(least=None):
    """How many processes there are below us, by name; at least as many as @least says, which was known to be whole."""
    names = {name: len(pids) for name, pids in left_of({}).items()}
    return {name: max(names.get(name, 0), (least or {}).get(name, 0)) for name in {**names, **(least or {})}}


def leftover_runs():
    """State of runs: nothing of ours lives, so all of it is left over."""
    return live_runs() + dead_runs()


def cgroups():
    """All groups of the subtree that hutch may use: beside our own and below it. In the topmost group nothing is
    delegated to us, and what is below it is other people's."""
    own = own_cgroup()
    if own is None or own == cgroup2_mount():
        return set()
    top = os.path.dirname(own)
    return {os.path.join(parent, name) for parent, names, _ in os.walk(top) for name in names}


def reap_strays(known):
    """Waits for zombies that fell to us as subreaper, so that they do not pile up."""
    libc = ctypes.CDLL(None)
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) not in known:
            try:
                with open("/proc/%s/stat" % name, encoding="utf-8", errors="replace") as file:
                    fields = file.read().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] == "Z" and int(fields[1]) == os.getpid():
                libc.waitpid(int(name), None, 1)
