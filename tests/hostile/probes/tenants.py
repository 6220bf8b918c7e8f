"""What one run shares with the next, with other runs of the same caller, and with the caller himself: inodes of
the image, devices, quotas of the user. None of it may become a lever or a wire."""
import ctypes
import fcntl
import os
import signal

from kit import READ_ONLY, REFUSALS, Blocked, host, in_child, probe, syscall

SHARED_FILE = "/etc/ld.so.cache"
F_SETLEASE, F_NOTIFY = 1024, 1026


def own_or_shared_file():
    """Inside, a file of the image, which all runs share; outside, one of our own."""
    if not host.outside:
        return SHARED_FILE if os.path.exists(SHARED_FILE) else "/etc/passwd"
    path = host.scratch + "/lease"
    with open(path, "w", encoding="ascii"):
        pass
    return path


@probe(control="user", refused=REFUSALS + ("EINVAL", "EAGAIN"))
def lease_on_shared_file():
    """F_SETLEASE: whoever opens the file next waits until the holder lets go, for up to 45 seconds. An ordinary
    caller's sandbox owns the image's files, so it could stop all others as they start."""
    fd = os.open(own_or_shared_file(), os.O_RDONLY)
    fcntl.fcntl(fd, F_SETLEASE, fcntl.F_WRLCK)
    fcntl.fcntl(fd, F_SETLEASE, fcntl.F_UNLCK)
    return "holds a lease"


@probe(control="user", refused=REFUSALS + ("EINVAL",))
def watch_directory_by_fcntl():
    """F_NOTIFY tells who reads what in a directory that others use, too."""
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    fd = os.open("/usr/bin", os.O_RDONLY | os.O_DIRECTORY)
    fcntl.fcntl(fd, F_NOTIFY, 1)
    return "watches /usr/bin"


@probe(control="user", refused=REFUSALS)
def watch_shared_files():
    """inotify(7) on the image: which modules the other runs import; on the host's own /usr, which programs
    everybody starts."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.inotify_init()
    if fd < 0 or libc.inotify_add_watch(fd, b"/usr/bin", 0x20) < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return "watches /usr/bin"


@probe(control="root", refused=READ_ONLY)
def times_of_devices():
    """/dev/null inside is the host's own inode: its time stamps would be a wire from run to run."""
    os.utime("/dev/null", (0, 0) if not host.outside else None)
    return "changed the times of /dev/null"


@probe(control="root", refused=READ_ONLY)
def mode_of_devices():
    """Its permissions are the host's, too."""
    os.chmod("/dev/null", 0o666)
    return "changed the mode of /dev/null"


@probe(control="user", refused=REFUSALS + ("EOPNOTSUPP", "EFBIG"))
def reserve_disk_past_the_end():
    """fallocate(2) with FALLOC_FL_KEEP_SIZE reserves disk without changing the size, which is what RLIMIT_FSIZE
    looks at: one call takes the whole disk."""
    path = (host.scratch if host.outside else "/mnt/data") + "/reserved"
    fd = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    size = (16 if host.outside else 1024) << 20
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        if libc.fallocate(fd, 1, ctypes.c_long(0), ctypes.c_long(size)) < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return "reserved %d MiB" % (os.fstat(fd).st_blocks >> 11)
    finally:
        os.close(fd)
        os.unlink(path)


@probe(control="user", refused=REFUSALS)
def hide_descriptors_in_a_thread():
    """close_range(2) with CLOSE_RANGE_UNSHARE gives a thread descriptors that /proc/PID/fd does not show, and
    so nobody counts."""
    def attack():
        syscall("close_range", 500, 600, 2)
        return "has a table of its own"
    return in_child(attack)


@probe(control="user", refused=("EPERM",))
def thread_without_shared_descriptors():
    """clone(2) of a thread without CLONE_FILES, for the same end. Without CLONE_SIGHAND the kernel refuses such a
    thread with EINVAL, so nothing is made; the filter has to be first."""
    try:
        syscall("clone", 0x00010000 | 0x00000100, None, None, None, None)
    except OSError as error:
        if error.errno == 22:
            return "the kernel looked at the flags"
        raise
    return "made a thread"


@probe(why_no_control="it is the limit's height that is asked for")
def queued_signals_of_the_caller():
    """Queued signals are counted up the tree of user namespaces: what a sandbox queues is missing to its caller,
    who may be root."""
    import resource
    hard = resource.getrlimit(resource.RLIMIT_SIGPENDING)[1]
    if 0 <= hard <= 8192:
        raise Blocked("at most %d" % hard)
    return "may queue %d signals" % hard


@probe(why_no_control="hutch is outside", silent=True, verdicts=("error", "killed"))
def pretend_cpu_time():
    """SIGXCPU sent by oneself is no CPU time used up: the verdict must not believe it."""
    os.kill(os.getpid(), signal.SIGXCPU)


@probe(why_no_control="hutch is outside", silent=True, verdicts=("error", "killed"))
def pretend_file_size():
    """SIGXFSZ, likewise."""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGXFSZ)


@probe(why_no_control="hutch is outside", silent=True, verdicts=("error", "killed", "denied"))
def pretend_denial():
    """SIGSYS, which is what the filter's kill looks like."""
    os.kill(os.getpid(), signal.SIGSYS)


@probe(why_no_control="hutch is outside", leaves=("\x01*",))
def names_that_fill_memory():
    """Two thousand names behind a path of three thousand control characters, each six bytes in JSON: the list
    of files has a bound in bytes, or hutch's own memory has none."""
    os.chdir("/mnt/data")
    for _ in range(12):
        os.mkdir("\x01" * 250)
        os.chdir("\x01" * 250)
    for number in range(2000):
        os.close(os.open("%d" % number, os.O_CREAT | os.O_WRONLY, 0o600))
    raise Blocked("laid out")
