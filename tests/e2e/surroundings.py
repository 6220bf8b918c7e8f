"""Runs inside a sandbox: prints, as one JSON object, everything that a program can find out about what it is and where. For
comparing two ways of starting it (test_warm.py)."""
import ctypes
import json
import os
import resource
import signal
import sys

libc = ctypes.CDLL(None, use_errno=True)
IOPRIO_GET = 252 if os.uname().machine == "x86_64" else 31
SCHED_GETATTR = 315 if os.uname().machine == "x86_64" else 275
STATUS_LEFT_OUT = ("Vm", "Rss", "HugetlbPages", "voluntary_ctxt", "nonvoluntary_ctxt", "FDSize", "Cpus_allowed", "SigQ")
PROC_FILES = ("cgroup", "comm", "oom_score_adj", "loginuid", "sessionid", "personality", "timerslack_ns", "coredump_filter",
              "uid_map", "gid_map", "setgroups", "projid_map", "timens_offsets", "cpuset", "attr/current", "limits")
SYSCTLS = ("kernel/hostname", "kernel/domainname", "kernel/shmmax", "kernel/shmall", "kernel/msgmax", "kernel/msgmnb", "kernel/sem",
           "fs/mqueue/queues_max", "fs/mqueue/msg_max", "net/core/wmem_max", "net/core/rmem_max", "net/core/wmem_default",
           "net/ipv4/tcp_rmem", "net/ipv4/tcp_wmem", "net/ipv4/ip_forward", "net/unix/max_dgram_qlen",
           "net/ipv4/ip_unprivileged_port_start", "net/ipv4/ping_group_range")
PRCTLS = {"PDEATHSIG": (2, True), "DUMPABLE": (3, False), "KEEPCAPS": (7, False), "TIMING": (13, False), "TSC": (25, True),
          "SECUREBITS": (27, False), "TIMERSLACK": (30, False), "MCE_KILL": (34, False), "SUBREAPER": (37, True),
          "NO_NEW_PRIVS": (39, False), "THP_DISABLE": (42, False), "IO_FLUSHER": (58, False)}


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read(1 << 20).decode("utf-8", "backslashreplace")
    except OSError as error:
        return "errno %d" % error.errno


def names(path):
    try:
        return sorted(os.listdir(path))
    except OSError as error:
        return "errno %d" % error.errno


def link(path):
    try:
        return os.readlink(path)
    except OSError as error:
        return "errno %d" % error.errno


def permissions(path):
    try:
        info = os.stat(path)
        return [oct(info.st_mode), info.st_uid, info.st_gid]
    except OSError as error:
        return "errno %d" % error.errno


def space(path):
    try:
        info = os.statvfs(path)
        # That of a disk changes while we look.
        return [info.f_flag] + ([info.f_blocks * info.f_frsize, info.f_files] if path not in ("/", "/mnt/data") else [])
    except OSError as error:
        return "errno %d" % error.errno


def prctl(number, by_pointer):
    value = ctypes.c_int(-1)
    result = libc.prctl(number, ctypes.byref(value) if by_pointer else 0, 0, 0, 0)
    return [result, value.value]


def status():
    found = {}
    for line in read("/proc/self/status").splitlines():
        name, _, value = line.partition(":")
        if not name.startswith(STATUS_LEFT_OUT):
            found[name] = value.strip()
    return found


def mounts():
    """Without numbers: target, options, type, source, the superblock's options, propagation."""
    found = []
    for line in read("/proc/self/mountinfo").splitlines():
        fields = line.split()
        dash = fields.index("-")
        found.append([fields[4], fields[3], fields[5], fields[6:dash], fields[dash + 1:dash + 4]])
    return found


def dispositions():
    found = {}
    for number in range(1, 65):
        try:
            found[str(number)] = str(signal.getsignal(number)).partition(" at 0x")[0]
        except ValueError:
            found[str(number)] = "libc's"
    return found


def session():
    """getsid(0), which the default filter leaves out."""
    return int(read("/proc/self/stat").rpartition(")")[2].split()[3])


def status_of_init():
    return [line for line in read("/proc/1/status").splitlines()
            if line.startswith(("Uid", "Gid", "Groups", "Cap", "NoNewPrivs", "Seccomp", "Umask"))]


def scheduling():
    buffer = ctypes.create_string_buffer(64)
    if libc.syscall(SCHED_GETATTR, 0, buffer, 64, 0) < 0:
        return "errno %d" % ctypes.get_errno()
    return buffer.raw[:48].hex()


def main():
    descriptors = {name: link("/proc/self/fd/" + name).partition(":")[0] for name in names("/proc/self/fd")}
    descriptors = {name: target for name, target in descriptors.items() if os.path.exists("/proc/self/fd/" + name)}
    found = {
        "status": status(),
        "mounts": mounts(),
        "namespaces": {name: link("/proc/self/ns/" + name) for name in names("/proc/self/ns")},
        "limits": {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")},
        "descriptors": descriptors,
        "flags of descriptors": {name: read("/proc/self/fdinfo/" + name).split("flags:")[-1].split()[0] for name in descriptors},
        "environment": dict(os.environ),
        "proc": {name: read("/proc/self/" + name) for name in PROC_FILES},
        "umask": read("/proc/self/status").split("Umask:")[1].split()[0],
        "ids": [os.getuid(), os.geteuid(), os.getgid(), os.getegid(), os.getgroups()],
        "relations": [os.getpid() == os.getpgid(0), os.getpid() == session(), os.getppid(), os.getpid()],
        "priority": [os.getpriority(os.PRIO_PROCESS, 0), os.getpriority(os.PRIO_PGRP, 0), os.sched_getscheduler(0),
                     os.sched_getparam(0).sched_priority, libc.syscall(IOPRIO_GET, 1, 0), scheduling()],
        "number of processors": len(os.sched_getaffinity(0)),
        "personality": libc.personality(0xFFFFFFFF),
        "prctl": {name: prctl(*how) for name, how in PRCTLS.items()},
        "processes": {name: [read("/proc/%s/comm" % name), permissions("/proc/" + name)] for name in names("/proc") if name.isdigit()},
        "init": {name: read("/proc/1/" + name).strip("\0") for name in ("cmdline", "environ", "maps", "stack", "comm", "cgroup")},
        "status of init": status_of_init(),
        "descriptors of init": names("/proc/1/fd"),
        "names": [os.uname().nodename, link("/proc/self/exe"), link("/proc/self/root"), os.getcwd()],
        "network": [sorted(line.split(":")[0].strip() for line in read("/proc/net/dev").splitlines()[2:]), read("/proc/net/route"),
                    len(read("/proc/net/unix").splitlines()), names("/sys/class/net")],
        "signals": dispositions(),
        "blocked signals": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "timers": [signal.setitimer(which, 0) for which in range(3)],
        "terminal": [os.isatty(fd) for fd in range(3)] + [link("/dev/tty"), link("/dev/console")],
        "settings": {name: read("/proc/sys/" + name).strip() for name in SYSCTLS},
        "keys": [read("/proc/keys"), read("/proc/key-users")],
        "directories": {path: [permissions(path), space(path), names(path) if path not in ("/proc", "/usr/bin") else None]
                        for path in ("/", "/tmp", "/dev", "/dev/shm", "/mnt", "/mnt/data", "/run", "/run/hutch", "/run/hutch/code",
                                     "/proc", "/sys", "/var/tmp", "/root", "/home")},
        "entries of /proc": [name for name in names("/proc") if not name.isdigit()],
        "threads": len(names("/proc/self/task")),
        "arguments": [sys.argv, sys.flags.__repr__(), sys.path],
    }
    print(json.dumps(found))


main()
