"""What every probe is written with: the verdict, raw system calls, and the facts about the victim.

A probe is one function. Its docstring says what it attacks and why that would matter. It *tries*, by
the shortest way that works on an ordinary Linux system, and then

  - returns text: the attack got through, and the text says what it reached;
  - lets an OSError escape whose errno is one that a refusal has (``refused``): it was blocked;
  - raises Blocked(why): it was blocked in a way that is no errno, such as an empty list.

Anything else (a TypeError, an errno nobody expected) is BROKEN and fails the suite: a probe that does not
know why it failed proves nothing. This file runs on both sides. Inside the sandbox ``main`` runs one probe
and prints its verdict; outside, the suite reads the table of probes from the same modules.

Every probe is safe to run on a machine whose isolation is broken: bombs are bounded, and calls that would
hurt are made with arguments that do nothing when they are let through.
"""
import ctypes
import errno
import json
import os
import platform
import struct
import sys
import traceback

# --------------------------------------------------------------------------------------------------
# The table

REFUSALS = ("EPERM", "EACCES", "ENOSYS")
ABSENT = REFUSALS + ("ENOENT", "ENOTDIR")
READ_ONLY = ABSENT + ("EROFS",)


class Blocked(Exception):
    """The attack was stopped, and here is how."""


class Crash(Exception):
    """Ends the script as an uncaught exception of its own would."""


class Probe:
    """One attack, and what the suite has to know about it.

    control   where the same code, run outside of any sandbox, has to get through: "user" (by whoever runs
              the suite), "root" (only when root does), or None with the reason in why_no_control
    verdicts  the verdicts that hutch may give to a run with this probe in it
    silent    the probe cannot print a verdict (it dies, or closes its output): only the host is checked,
              and the suite's ``after_NAME`` check, where there is one
    leaves    names that may stay in /mnt/data
    options   further options for ``hutch run``
    warm      it attacks what only a worker of an engine has: not for the cold path
    layer     the layer of the result that keeps this from the code, where a sandbox may be without it
    counted   only the kernel's own count of memory, by a cgroup, sees it; docs/security.md says so of the fallback
    """

    def __init__(self, function, family, control, why_no_control, verdicts, silent, leaves, options, refused,
                 counted, warm, layer):
        self.function = function
        self.name = function.__name__
        self.family = family
        self.doc = (function.__doc__ or "").strip()
        self.control = control
        self.why_no_control = why_no_control
        self.verdicts = verdicts
        self.silent = silent
        self.leaves = leaves
        self.options = options
        self.refused = refused
        self.counted = counted
        self.layer = layer
        self.warm = warm


PROBES = {}


def probe(control=None, why_no_control=None, verdicts=("ok",), silent=False, leaves=(), options=(),
          refused=REFUSALS, counted=False, warm=False, layer=None):
    """Registers the function below as a probe. The family is the name of its module."""

    def register(function):
        if function.__name__ in PROBES:
            raise ValueError("two probes are called " + function.__name__)
        if not function.__doc__:
            raise ValueError("probe without a docstring: " + function.__name__)
        if control is None and not why_no_control:
            raise ValueError("probe without a control run, and without the reason: " + function.__name__)
        PROBES[function.__name__] = Probe(function, function.__module__, control, why_no_control, verdicts,
                                          silent, leaves, options, refused, counted, warm, layer)
        return function

    return register


# --------------------------------------------------------------------------------------------------
# The victim: what the suite set up on the host, as one JSON object in the probe's first argument

class Host(dict):
    """The facts a real attacker would have to guess. Attribute access: host.canary_pid."""

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


host = Host()

# --------------------------------------------------------------------------------------------------
# Raw system calls: an attacker is not bound to what Python's os module offers

libc = ctypes.CDLL(None, use_errno=True)

# Numbers from arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h.
_X86_64 = {
    "ioctl": 16, "shmget": 29, "ptrace": 101, "syslog": 103, "setuid": 105, "capset": 126,
    "rt_sigqueueinfo": 129, "mknod": 133, "uselib": 134, "personality": 135, "vhangup": 153,
    "modify_ldt": 154, "pivot_root": 155, "adjtimex": 159, "chroot": 161, "acct": 163, "settimeofday": 164,
    "mount": 165, "umount2": 166, "swapon": 167, "reboot": 169, "sethostname": 170, "setdomainname": 171,
    "iopl": 172, "ioperm": 173, "init_module": 175, "delete_module": 176, "quotactl": 179, "tkill": 200,
    "sched_setaffinity": 203, "lookup_dcookie": 212, "clock_settime": 227, "tgkill": 234, "mbind": 237,
    "set_mempolicy": 238, "kexec_load": 246, "add_key": 248, "request_key": 249, "keyctl": 250,
    "ioprio_set": 251, "migrate_pages": 256, "unshare": 272, "move_pages": 279, "vmsplice": 278,
    "perf_event_open": 298, "fanotify_init": 300, "prlimit64": 302, "name_to_handle_at": 303,
    "open_by_handle_at": 304, "clock_adjtime": 305, "setns": 308, "process_vm_readv": 310,
    "process_vm_writev": 311, "kcmp": 312, "finit_module": 313, "seccomp": 317, "kexec_file_load": 320,
    "bpf": 321, "mmap": 9, "sendmmsg": 307, "membarrier": 324, "madvise": 28, "mincore": 27,
    "userfaultfd": 323, "fchmodat": 268, "clone": 56, "linkat": 265, "exit": 60, "sched_setattr": 314,
}
_GENERIC = {  # arm64, riscv64
    "ioctl": 29, "shmget": 194, "ptrace": 117, "syslog": 116, "setuid": 146, "capset": 91,
    "rt_sigqueueinfo": 138, "personality": 92, "vhangup": 58, "pivot_root": 41, "adjtimex": 171,
    "chroot": 51, "acct": 89, "settimeofday": 170, "mount": 40, "umount2": 39, "swapon": 224, "reboot": 142,
    "sethostname": 161, "setdomainname": 162, "init_module": 105, "delete_module": 106, "quotactl": 60,
    "tkill": 130, "sched_setaffinity": 122, "lookup_dcookie": 18, "clock_settime": 112, "tgkill": 131,
    "mbind": 235, "set_mempolicy": 237, "kexec_load": 104, "add_key": 217, "request_key": 218,
    "keyctl": 219, "ioprio_set": 30, "migrate_pages": 238, "unshare": 97, "move_pages": 239, "vmsplice": 75,
    "perf_event_open": 241, "fanotify_init": 262, "prlimit64": 261, "name_to_handle_at": 264,
    "open_by_handle_at": 265, "clock_adjtime": 266, "setns": 268, "process_vm_readv": 270,
    "process_vm_writev": 271, "kcmp": 272, "finit_module": 273, "seccomp": 277, "kexec_file_load": 294,
    "bpf": 280, "mmap": 222, "sendmmsg": 269, "membarrier": 283, "madvise": 233, "mincore": 232,
    "userfaultfd": 282, "fchmodat": 53, "clone": 220, "linkat": 37, "exit": 93, "sched_setattr": 274,
}
_EVERYWHERE = {  # one number on all architectures since 5.0
    "pidfd_send_signal": 424, "io_uring_setup": 425, "open_tree": 428, "move_mount": 429, "fsopen": 430,
    "fspick": 433, "pidfd_open": 434, "clone3": 435, "close_range": 436, "openat2": 437, "pidfd_getfd": 438,
    "process_madvise": 440, "mount_setattr": 442, "landlock_create_ruleset": 444, "landlock_add_rule": 445,
    "memfd_secret": 447, "process_mrelease": 448,
    "fchmodat2": 452, "statmount": 457, "listmount": 458, "open_tree_attr": 467,
}
SYSCALLS = dict(_X86_64 if platform.machine() == "x86_64" else _GENERIC, **_EVERYWHERE)


def syscall(name, *args):
    """Makes the call and raises OSError as the os module would. bytes become pointers, None is NULL."""
    if name not in SYSCALLS:
        raise Blocked("this architecture has no " + name)
    values = [ctypes.c_long(SYSCALLS[name])]
    for arg in args:
        if arg is None:
            values.append(ctypes.c_void_p(None))
        elif isinstance(arg, bytes):
            values.append(ctypes.c_char_p(arg))
        elif isinstance(arg, int):
            values.append(ctypes.c_long(arg))
        else:
            values.append(arg)  # a ctypes buffer or pointer
    ctypes.set_errno(0)
    libc.syscall.restype = ctypes.c_long
    result = libc.syscall(*values)
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)
    return result


def in_child(action):
    """Runs action() in a forked child and returns what it said, or raises what it raised.

    For attacks that would leave the probe itself changed (a new namespace, another root)."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        try:
            answer = {"said": str(action())}
        except OSError as error:
            answer = {"errno": error.errno}
        except Blocked as error:
            answer = {"blocked": str(error)}
        except BaseException:  # the parent is told, and decides
            answer = {"broken": traceback.format_exc()}
        os.write(writer, json.dumps(answer).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read()
    _, status = os.waitpid(pid, 0)
    if not text:
        raise Blocked("the child died: wait status 0x%x" % status)
    answer = json.loads(text)
    if "errno" in answer:
        raise OSError(answer["errno"], os.strerror(answer["errno"]))
    if "blocked" in answer:
        raise Blocked(answer["blocked"])
    if "broken" in answer:
        raise RuntimeError(answer["broken"])
    return answer["said"]


def first_success(attempts):
    """Makes every attempt; returns the first that got through, else raises the last refusal."""
    refusal = None
    for attempt in attempts:
        try:
            return attempt()
        except (OSError, Blocked) as error:
            refusal = error
    raise refusal


# --------------------------------------------------------------------------------------------------
# Inside: one probe, one verdict

def run(name):
    """Runs one probe and returns its verdict line."""
    entry = PROBES[name]
    try:
        got = entry.function()
    except Blocked as why:
        return "BLOCKED %s" % why
    except Crash:
        raise
    except OSError as error:
        code = errno.errorcode.get(error.errno, str(error.errno))
        # By number: EOPNOTSUPP and ENOTSUP are one, and errorcode knows only one name.
        if error.errno in [getattr(errno, name) for name in entry.refused]:
            return "BLOCKED %s" % code
        if error.errno == errno.ENOENT and not os.path.exists("/proc/self"):
            return "BLOCKED there is no process in /proc"  # the level no_proc
        return "BROKEN unexpected %s: %s" % (code, traceback.format_exc().replace("\n", " | "))
    except BaseException:  # SystemExit too: a probe has no business ending by itself
        return "BROKEN " + traceback.format_exc().replace("\n", " | ")
    if not isinstance(got, str):
        return "BROKEN the probe returned %r instead of text" % (got,)
    return "GOT THROUGH " + got


def main(argv):
    """argv: [program, probe name, JSON of the host's facts]"""
    host.update(json.loads(argv[2]))
    line = run(argv[1])
    try:
        # The raw descriptor: probes play with sys.stdout.
        os.write(1, ("\n" + line + "\n").encode("utf-8", "backslashreplace"))
    except OSError:
        pass
    sys.stdout = None


def pack(fmt, *values):
    """struct.pack in native byte order without padding."""
    return struct.pack("=" + fmt, *values)
