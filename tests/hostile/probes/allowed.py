"""Abuse of the calls that the default filter allows because container engines do: what they take has to be bounded for the
sandbox alone, and what they could give has to be nothing. docs/policy.md has the table of what bounds them."""
import ctypes
import errno
import mmap
import os
import resource
import signal
import stat
import struct

from kit import REFUSALS, Blocked, host, in_child, libc, probe, syscall

OUTSIDE = "a bomb outside of the sandbox is no test"
MANY = 100000
SOME = 20  # children that do the same
SIGNALS = 1024  # RLIMIT_SIGPENDING of a sandbox
CLOCK_MONOTONIC = 1


def count(take, most):
    """How often take() goes well, until it is refused or was called @most times."""
    for number in range(most):
        try:
            take()
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EPERM, errno.ENOSYS):
                raise
            return number
    return most


def check(result, what):
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
    return result


def in_children(action):
    """The sum of what action() counted in SOME children that are alive at the same time."""
    reader, writer = os.pipe()
    hold_reader, hold_writer = os.pipe()
    pids = []
    for _ in range(SOME):
        pid = os.fork()
        if pid == 0:
            os.close(hold_writer)
            found = MANY  # an error that nobody expected is no bound
            try:
                found = action()
            finally:
                os.write(writer, struct.pack("q", found))
                os.read(hold_reader, 1)
                os._exit(0)
        pids.append(pid)
    os.close(writer)
    total = sum(struct.unpack("q", os.read(reader, 8))[0] for _ in pids)
    os.close(hold_writer)
    for pid in pids:
        os.waitpid(pid, 0)
    return total


def bounded(found, most, what):
    if found <= most:
        raise Blocked("stopped after %d %s" % (found, what))
    return "made %d %s" % (found, what)


# --------------------------------------------------------------------------------------------------
# Timers and signals: RLIMIT_SIGPENDING, of the sandbox's own user namespace

def make_timer():
    timer = ctypes.c_void_p()
    event = (ctypes.c_char * 64)()
    struct.pack_into("Qii", event, 0, 0, signal.SIGUSR1, 1)  # SIGEV_NONE
    check(libc.timer_create(CLOCK_MONOTONIC, event, ctypes.byref(timer)), "timer_create")


@probe(why_no_control=OUTSIDE)
def timer_bomb():
    """100,000 POSIX timers in one process: each is memory of the kernel."""
    return bounded(count(make_timer, MANY), SIGNALS, "timers")


@probe(why_no_control=OUTSIDE)
def timers_of_many_processes():
    """The same in many processes: the bound is the sandbox's and not a process's."""
    return bounded(in_children(lambda: count(make_timer, MANY // SOME)), SIGNALS, "timers")


def queue_signal():
    number = signal.SIGRTMIN + 3
    information = struct.pack("iiiiiiq", number, 0, -1, 0, os.getpid(), os.getuid(), 7).ljust(128, b"\0")  # SI_QUEUE
    syscall("rt_sigqueueinfo", os.getpid(), number, information)


@probe(why_no_control=OUTSIDE)
def queue_of_signals():
    """100,000 signals with a value, to a process that takes none of them."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGRTMIN + 3})
    return bounded(count(queue_signal, MANY), SIGNALS, "signals")


@probe(why_no_control=OUTSIDE)
def queues_of_many_processes():
    """The same in many processes."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGRTMIN + 3})
    return bounded(in_children(lambda: count(queue_signal, MANY // SOME)), SIGNALS, "signals")


# --------------------------------------------------------------------------------------------------
# Descriptors: open_files

def of_descriptors(make):
    return count(lambda: check(make(), "a descriptor"), MANY)


@probe(why_no_control=OUTSIDE)
def timer_descriptor_bomb():
    """100,000 timers as descriptors."""
    return bounded(of_descriptors(lambda: libc.timerfd_create(CLOCK_MONOTONIC, 0)),
                   resource.getrlimit(resource.RLIMIT_NOFILE)[1], "timers")


@probe(why_no_control=OUTSIDE)
def descriptors_of_processes():
    """100,000 holds on a process, which each keep memory of the kernel when the process is gone."""
    return bounded(of_descriptors(lambda: libc.syscall(434, os.getpid(), 0)), resource.getrlimit(resource.RLIMIT_NOFILE)[1], "descriptors")


@probe(control="user", refused=REFUSALS + ("EPERM",))
def watches_of_files():
    """inotify tells what others read of an image that all share, and its instances are counted for the user of the host."""
    fd = check(libc.inotify_init1(0), "inotify_init1")
    check(libc.inotify_add_watch(fd, b"/usr/lib", 0x20), "inotify_add_watch")
    return "watches /usr/lib"


# --------------------------------------------------------------------------------------------------
# Locked memory: RLIMIT_MEMLOCK, 64 KiB for a process

@probe(why_no_control=OUTSIDE)
def lock_much_memory():
    """mlock(2) of 16 MiB: memory that the host cannot swap."""
    block = mmap.mmap(-1, 16 << 20)
    address = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(block)))
    got = count(lambda: check(libc.mlock(address, ctypes.c_size_t(16 << 20)), "mlock"), 1)
    return bounded(got, 0, "blocks of 16 MiB")


@probe(why_no_control=OUTSIDE)
def lock_all_memory():
    """mlockall(2), for what is mapped and for what will be."""
    return bounded(count(lambda: check(libc.mlockall(3), "mlockall"), 1), 0, "whole address spaces")


@probe(why_no_control=OUTSIDE)
def lock_memory_piece_by_piece():
    """mlock2(2) of single pages, until somebody says no."""
    block = mmap.mmap(-1, 16 << 20)
    start = ctypes.addressof(ctypes.c_char.from_buffer(block))
    pages = iter(range(0, 16 << 20, mmap.PAGESIZE))
    got = count(lambda: check(libc.mlock2(ctypes.c_void_p(start + next(pages)), ctypes.c_size_t(mmap.PAGESIZE), 0), "mlock2"), 4096)
    return bounded(got * mmap.PAGESIZE, 64 << 10, "bytes")


# --------------------------------------------------------------------------------------------------
# Queues: they are counted for the user of the host

def open_queue(name, messages, size):
    attributes = struct.pack("qqqq", 0, messages, size, 0).ljust(64, b"\0")
    return check(libc.mq_open(name.encode(), os.O_CREAT | os.O_RDWR, 0o600, attributes), "mq_open")


@probe(why_no_control=OUTSIDE)
def queue_of_messages():
    """One POSIX queue for 80 kB of messages, as any user of a host may have."""
    try:
        open_queue("/large", 10, 8192)
    except OSError as error:
        raise Blocked(str(error)) from None
    return "made a queue of 80 kB"


@probe(why_no_control=OUTSIDE)
def queues_of_messages():
    """Small queues without end, in many processes."""
    def take():
        names = iter(range(MANY))
        return count(lambda: open_queue("/%d-%d" % (os.getpid(), next(names)), 1, 256), 2000)
    return bounded(in_children(take) * 256, 16 << 10, "bytes of queues")


def message_of(size):
    return ctypes.create_string_buffer(struct.pack("q", 1) + bytes(size))


@probe(why_no_control=OUTSIDE, verdicts=("ok", "out_of_memory", "killed"), silent=True)
def messages_of_system_v():
    """Full queues of System V without end: they belong to no process. A queue takes 16 kB of texts, however small they are,
    so 32,000 queues of texts of 128 bytes take 800 MB of the kernel."""
    message = message_of(128)
    for _ in range(32000):
        number = check(libc.msgget(0, 0o1600), "msgget")
        while libc.msgsnd(number, message, 128, 0o4000) == 0:
            pass


@probe(why_no_control=OUTSIDE, verdicts=("ok", "out_of_memory", "killed"), silent=True)
def semaphores_of_system_v():
    """Sets of 32,000 semaphores without end."""
    for _ in range(32000):
        check(libc.semget(0, 32000, 0o1600), "semget")


# --------------------------------------------------------------------------------------------------
# Owners and modes

@probe(control="root")
def give_a_file_away():
    """chown(2) to another user: who reads the directory would take the file for that user's. By each of the four calls, with
    what the kernel takes for no id beside it."""
    path = host.outside and "/tmp/hutch-probe-owner-" + host.token or "/tmp/owner"
    fd = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        for uid, gid in ((0, -1), (-1, 0), (65534, 65534), (1001, 1000)):
            for change in (lambda: os.chown(path, uid, gid), lambda: os.fchown(fd, uid, gid), lambda: os.lchown(path, uid, gid),
                           lambda: os.chown(path, uid, gid, follow_symlinks=False)):
                try:
                    change()
                except OSError as error:
                    if error.errno != errno.EPERM:
                        raise
                else:
                    return "gave the file to %d:%d" % (uid, gid)
    finally:
        os.unlink(path)
    raise Blocked("EPERM for all of them")


@probe(control="user", leaves=("groups-file",))
def setgid_file_for_another_user():
    """A program with the bit setgid, owned by one's own group: whoever executes it on the host has that group. chown to oneself
    is allowed, so also after it."""
    path = "/tmp/hutch-probe-setgid-" + host.token if host.outside else "/mnt/data/groups-file"
    with open(path, "w", encoding="ascii") as file:
        file.write("#!/bin/sh\nid\n")
    os.chown(path, os.getuid(), os.getgid())
    try:
        os.chmod(path, 0o2755)
        if os.stat(path).st_mode & stat.S_ISGID:
            return "made a setgid program"
        raise Blocked("the bit was dropped")
    finally:
        if host.outside:
            os.unlink(path)


@probe(control="user", refused=REFUSALS + ("EOPNOTSUPP", "ENOTSUP"), leaves=("steered",))
def attribute_that_steers_an_overlay():
    """user.overlay.opaque on a directory of /mnt/data: an overlay that is mounted over it later hides what is below."""
    path = "/tmp/hutch-probe-steered-" + host.token if host.outside else "/mnt/data/steered"
    os.makedirs(path, exist_ok=True)
    try:
        os.setxattr(path, "user.overlay.opaque", b"y")
        return "set it"
    except OSError as error:
        if host.outside and error.errno == errno.EOPNOTSUPP:
            return "this file system has no attributes"
        raise
    finally:
        if host.outside:
            os.rmdir(path)


# --------------------------------------------------------------------------------------------------
# Other processes: hutch's init has the same uid

@probe(why_no_control="process 1 of the host is no target")
def signal_to_init_by_descriptor():
    """SIGKILL and SIGSTOP for process 1 of the sandbox by a descriptor of it: with init gone, nobody keeps the limits."""
    fd = os.pidfd_open(1)
    for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM):
        signal.pidfd_send_signal(fd, number)  # the kernel drops it, as for kill(2)
    with open("/proc/1/stat", encoding="ascii", errors="replace") as file:
        state = file.read().rpartition(")")[2].split()[0]
    if state in "RSD":
        raise Blocked("process 1 goes on")
    return "process 1 has the state " + state


@probe(control="user")
def rank_of_another_process():
    """Idle scheduling, idle I/O and the least niceness for another process of the same user, as process 1 is; and for oneself the
    first place among those who read and write."""
    pid = os.fork()
    if pid == 0:
        signal.pause()
        os._exit(0)
    target = pid if host.outside else 1
    try:
        for change in (lambda: os.sched_setscheduler(target, os.SCHED_IDLE, os.sched_param(0)),
                       lambda: os.setpriority(os.PRIO_PROCESS, target, 19),
                       lambda: syscall("ioprio_set", 1, target, 3 << 13), lambda: syscall("ioprio_set", 1, 0, 2 << 13)):
            try:
                change()
            except OSError as error:
                if error.errno not in (errno.EPERM, errno.EACCES):
                    raise
            else:
                return "changed the rank of process %d" % target
        raise Blocked("EPERM")
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


# --------------------------------------------------------------------------------------------------
# What the shared image's pages tell

@probe(control="user", refused=REFUSALS + ("EOPNOTSUPP", "ENOTSUP"))
def read_that_does_not_wait():
    """preadv2(2) with RWF_NOWAIT reads what is in memory and fails for the rest: so it tells what others have read."""
    path = "/usr/lib/os-release"
    with open(path, "rb") as file:
        try:
            os.preadv(file.fileno(), [bytearray(16)], 0, 8)
        except BlockingIOError:
            return "knows that it is not in memory"
    return "knows that it is in memory"


# --------------------------------------------------------------------------------------------------
# The kernel's own accounts

@probe(control="user", refused=REFUSALS + ("EINVAL",))
def filters_of_a_program():
    """Filters for one's own calls: compiled, they are counted for the whole host, and a sandbox that has made enough keeps all
    others from being made. By prctl(2) and seccomp(2)."""
    def attack():
        allow = (ctypes.c_ubyte * 8)(0x06, 0, 0, 0, 0, 0, 0xff, 0x7f)
        program = struct.pack("HxxxxxxQ", 1, ctypes.addressof(allow))
        check(libc.prctl(38, 1, 0, 0, 0), "PR_SET_NO_NEW_PRIVS")
        try:
            syscall("seccomp", 1, 0, program)
        except OSError:
            check(libc.prctl(22, 2, program, 0, 0), "PR_SET_SECCOMP")
        return "added a filter"
    return in_child(attack)
