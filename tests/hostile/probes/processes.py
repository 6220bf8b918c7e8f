"""Reading, changing, signalling or outranking other processes: init, the host's, and one's own limits."""
import ctypes
import os
import signal
import struct

from kit import REFUSALS, Blocked, host, in_child, probe, syscall

PTRACE_TRACEME, PTRACE_ATTACH, PTRACE_SEIZE = 0, 16, 0x4206
GONE = REFUSALS + ("ESRCH",)


def victim():
    """Whom to attack: inside, init; outside, the canary, which is the same user as the attacker."""
    return host.canary_pid if host.outside else 1


class Iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]


# --------------------------------------------------------------------------------------------------
# Memory and registers of others

@probe(control="root")
def ptrace_init():
    """ptrace(2) on init: its registers, its memory, its privileges."""
    def attack():
        syscall("ptrace", PTRACE_SEIZE, victim(), None, None)
        return "attached to pid %d" % victim()
    return in_child(attack)


@probe(control="user")
def ptrace_own_child():
    """ptrace(2) on a child is harmless to others, but ptrace has been the door of many exploits, and with
    it a tracer rewrites a call after the filter has looked at it (before Linux 4.8)."""
    def attack():
        syscall("ptrace", PTRACE_TRACEME, 0, None, None)
        return "is traced by its parent"
    return in_child(attack)


@probe(control="root", refused=GONE)
def process_vm_readv_init():
    """process_vm_readv(2): read the memory of init without attaching."""
    with open("/proc/%s/maps" % ("self" if not host.outside else victim()), encoding="ascii") as maps:
        address = int(maps.readline().split("-")[0], 16)
    buffer = ctypes.create_string_buffer(16)
    local = Iovec(ctypes.addressof(buffer), 16)
    remote = Iovec(address, 16)
    count = syscall("process_vm_readv", victim(), ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
    return "read %d bytes of pid %d" % (count, victim())


@probe(why_no_control="it would change the victim", refused=GONE)
def process_vm_writev_init():
    """process_vm_writev(2): change the memory of init. With no bytes, only the permission is asked for."""
    local, remote = Iovec(None, 0), Iovec(0x400000, 8)
    data = ctypes.create_string_buffer(8)
    local = Iovec(ctypes.addressof(data), 8)
    count = syscall("process_vm_writev", victim(), ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
    return "wrote %d bytes of pid %d" % (count, victim())


@probe(control="root", refused=GONE + ("EBADF",))
def steal_descriptor_of_init():
    """pidfd_getfd(2) copies a descriptor out of another process."""
    pidfd = syscall("pidfd_open", victim(), 0)
    for number in range(16):
        try:
            fd = syscall("pidfd_getfd", pidfd, number, 0)
        except OSError as error:
            last = error
            continue
        return "got descriptor %d of pid %d as %d" % (number, victim(), fd)
    raise last


@probe(control="user", refused=GONE)
def kcmp_init():
    """kcmp(2) tells whether two processes share kernel objects: an address oracle."""
    return "compared with itself: %d" % syscall("kcmp", os.getpid(), os.getpid(), 2, 0, 0)


@probe(why_no_control="which calls pass depends on the kernel's version", refused=GONE + ("EINVAL", "EBADF"))
def madvise_init():
    """process_madvise(2) and process_mrelease(2) work on other processes' memory."""
    pidfd = syscall("pidfd_open", 1, 0)
    region = Iovec(0x400000, 4096)
    syscall("process_madvise", pidfd, ctypes.byref(region), 1, 20, 0)
    return "advised on the memory of pid 1"


# --------------------------------------------------------------------------------------------------
# Signals

def send_to_init(number):
    try:
        os.kill(1, number)
    except OSError as error:
        raise Blocked("kill answers errno %d" % error.errno) from None
    # The kernel drops signals to a namespace's init that it has no handler for, so success of kill(2)
    # says nothing. That init does its work shows in the run's result, which the suite checks.
    if os.getppid() != 1 and os.path.exists("/proc/1"):
        raise Blocked("init is alive")
    os.stat("/proc/1")
    raise Blocked("init is alive")


@probe(why_no_control="outside, pid 1 is the machine's")
def kill_init():
    """SIGKILL to pid 1 of the sandbox: its death would end the run with a verdict of our choice."""
    return send_to_init(signal.SIGKILL)


@probe(why_no_control="outside, pid 1 is the machine's")
def stop_init():
    """SIGSTOP to pid 1: an init that stands still neither reaps nor reports."""
    return send_to_init(signal.SIGSTOP)


@probe(why_no_control="outside, pid 1 is the machine's")
def every_signal_to_init():
    """All 64 signals to pid 1: one that it handles wrongly is enough."""
    for number in range(1, 65):
        try:
            syscall("tgkill", 1, 1, number)
        except OSError:
            pass
        try:
            os.kill(1, number)
        except OSError:
            pass
    return send_to_init(0)


@probe(why_no_control="outside, it would kill the suite itself", verdicts=("ok", "killed"))
def kill_everyone():
    """kill(-1, SIGKILL): all that one may signal. Guarded: only when the victim is out of sight, which
    means that the pid namespace is there."""
    if os.path.exists("/proc/%d" % host.canary_pid) and os.getpid() > 1000:
        return "no pid namespace: not tried"
    if os.fork() == 0:
        signal.pause()
    os.kill(-1, signal.SIGKILL)
    os.stat("/proc/1")
    raise Blocked("only the sandbox's own processes were hit, and init is alive")


@probe(control="user", refused=GONE)
def signal_host_process():
    """kill(2) with the victim's number on the host."""
    if not host.outside and host.canary_pid < 50:
        raise Blocked("the number is in use inside")
    os.kill(host.canary_pid, signal.SIGUSR2 if not host.outside else 0)
    return "signalled pid %d" % host.canary_pid


@probe(control="user", refused=GONE + ("EINVAL",))
def signal_host_process_by_pidfd():
    """pidfd_open(2) and pidfd_send_signal(2): the same by descriptor."""
    fd = syscall("pidfd_open", host.canary_pid, 0)
    syscall("pidfd_send_signal", fd, 0, None, 0)
    return "reached pid %d by pidfd" % host.canary_pid


@probe(why_no_control="outside, it would be the shell's process group", verdicts=("ok",))
def signal_own_group():
    """kill(0): the process group. If hutch had left us in its own group, it would get the signal."""
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    os.kill(0, signal.SIGUSR1)
    if os.getpgrp() == 0:
        return "the process group is one outside of the pid namespace"
    raise Blocked("the group is %d, and hutch is not in it" % os.getpgrp())


@probe(why_no_control="asks for nothing outside", refused=GONE)
def session_of_caller():
    """A session or a group outside of the namespace shows as 0: then the terminal's job control reaches us and ours
    reaches it. getsid(2) may be left out by the filter, so /proc says it."""
    with open("/proc/self/stat", encoding="ascii", errors="replace") as file:
        group, session = file.read().rpartition(")")[2].split()[2:4]
    if "0" in (group, session):
        return "session %s and group %s belong to the caller" % (session, group)
    raise Blocked("a session of its own: %s" % session)


@probe(control="user", refused=REFUSALS + ("ESRCH", "ENOENT"))
def forge_signal_sender():
    """rt_sigqueueinfo(2) lets the sender invent si_code and si_pid: to init it would look as if the kernel
    had sent it."""
    info = ctypes.create_string_buffer(struct.pack("=iii", signal.SIGCHLD, 0, -60) + bytes(116), 128)
    target = os.getpid() if host.outside else 1
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    syscall("rt_sigqueueinfo", target, signal.SIGCHLD, info)
    if not host.outside:
        os.stat("/proc/1")
        raise Blocked("queued, and init took no notice")
    return "queued a forged signal"


# --------------------------------------------------------------------------------------------------
# Rank: priorities, limits, processors

@probe(control="root")
def raise_own_priority():
    """A nice value below the one we were given takes CPU time from the host."""
    os.setpriority(os.PRIO_PROCESS, 0, -5)
    return "has nice value %d" % os.getpriority(os.PRIO_PROCESS, 0)


@probe(control="root")
def realtime_scheduling():
    """SCHED_FIFO: a loop at real-time priority starves a CPU."""
    def attack():
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        return "runs at real-time priority"
    return in_child(attack)


@probe(control="root", refused=REFUSALS + ("EINVAL", "EBUSY"))
def deadline_scheduling():
    """SCHED_DEADLINE by sched_setattr(2): guaranteed time before everybody else's."""
    def attack():
        attributes = struct.pack("=IIQiIQQQ", 48, 6, 0, 0, 0, 10_000_000, 100_000_000, 100_000_000)
        syscall("sched_setattr", 0, attributes, 0)
        return "runs with a deadline"
    return in_child(attack)


@probe(control="root")
def realtime_io_priority():
    """ioprio_set(2) to the real-time class: the host's disk waits for us."""
    def attack():
        syscall("ioprio_set", 1, 0, 1 << 13)
        return "reads and writes at real-time priority"
    return in_child(attack)


@probe(control="user")
def widen_cpu_affinity():
    """Where one CPU is granted by affinity, asking for all of them must not help."""
    wanted = set(range(64))
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, wanted)
    except OSError:
        if host.outside:
            raise
    after = os.sched_getaffinity(0)
    if host.outside:
        return "asked for CPUs %r" % after
    if len(after) > max(len(before), 1):
        return "went from %d CPUs to %d" % (len(before), len(after))
    raise Blocked("still %d of %d CPUs" % (len(after), os.cpu_count()))


@probe(control="root")
def raise_own_limits():
    """A hard limit may only be lowered."""
    import resource

    def attack():
        for which in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC, resource.RLIMIT_CORE, resource.RLIMIT_FSIZE):
            soft, hard = resource.getrlimit(which)
            if hard == resource.RLIM_INFINITY:
                continue
            try:
                resource.setrlimit(which, (soft, hard + 1))
            except ValueError as error:
                raise PermissionError(1, str(error)) from None
            return "raised limit %d from %d" % (which, hard)
        return "has no hard limit at all"
    return in_child(attack)


@probe(why_no_control="it is the limits' presence that is asked for")
def limits_are_set():
    """Core dumps off (the host's core_pattern program would handle them as root), files and processes
    bounded."""
    import resource
    wanted = {"RLIMIT_CORE": 0, "RLIMIT_MEMLOCK": 64 << 20, "RLIMIT_NOFILE": 65536, "RLIMIT_MSGQUEUE": 8 << 20,
              "RLIMIT_RTPRIO": 0, "RLIMIT_SIGPENDING": 1 << 20}
    for name, most in wanted.items():
        hard = resource.getrlimit(getattr(resource, name))[1]
        if hard == resource.RLIM_INFINITY or hard > most:
            return "hard limit %s is %d" % (name, hard)
    raise Blocked("all within bounds")


@probe(control="root", refused=GONE)
def limits_of_init():
    """prlimit(2) on init: no descriptors and no CPU time for it."""
    before = ctypes.create_string_buffer(16)
    if host.outside:
        syscall("prlimit64", victim(), 7, None, before)
        return "reached the limits of pid %d" % victim()
    syscall("prlimit64", 1, 7, struct.pack("=QQ", 0, 0), before)
    return "took the descriptors of init"


@probe(control="root", refused=GONE)
def priority_of_init():
    """setpriority(2) of init: slow it down until it misses what it has to do."""
    os.setpriority(os.PRIO_PROCESS, victim(), 19 if not host.outside else 0)
    return "changed the priority of pid %d" % victim()


@probe(control="root", refused=GONE)
def io_priority_of_init():
    """ioprio_set(2) of init: idle."""
    syscall("ioprio_set", 1, victim(), 0 if host.outside else 3 << 13)
    return "changed the I/O priority of pid %d" % victim()


@probe(control="root", refused=GONE)
def affinity_of_init():
    """sched_setaffinity(2) of init: onto the CPU that our own loop keeps busy."""
    os.sched_setaffinity(victim(), os.sched_getaffinity(victim()) if host.outside else {max(os.sched_getaffinity(0))})
    return "moved pid %d" % victim()


@probe(control="root", refused=GONE)
def scheduling_of_init():
    """sched_setscheduler(2) of init: SCHED_IDLE, so that it runs only when nobody else wants to."""
    if host.outside:
        os.sched_setscheduler(victim(), os.SCHED_OTHER, os.sched_param(0))
    else:
        os.sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0))
    return "changed the scheduling of pid %d" % victim()


@probe(why_no_control="it would move the victim's memory", refused=GONE + ("EINVAL", "ENODEV"))
def move_pages_of_init():
    """move_pages(2) and migrate_pages(2) shuffle another process's memory between nodes."""
    nodes = (ctypes.c_ulong * 1)(1)
    syscall("migrate_pages", 1, 8, nodes, nodes)
    return "moved the memory of pid 1"


@probe(control="user")
def core_dump():
    """Dying with a core dump runs what core_pattern says on the host: dumping has to be off, by limit 0 or
    by not being dumpable."""
    import resource
    if resource.getrlimit(resource.RLIMIT_CORE) == (0, 0):
        raise Blocked("the limit is 0")
    if host.outside or libc_dumpable():
        return "would dump core"
    raise Blocked("not dumpable")


def libc_dumpable():
    return ctypes.CDLL(None).prctl(3, 0, 0, 0, 0) == 1
