"""Using up what all share: processes, memory, disk, descriptors, time. Every bomb is bounded, so that a
machine whose limits do not work survives it: at most 2,000 processes, 2 GiB of memory, 2 GiB of disk."""
import ctypes
import errno
import mmap
import os
import signal
import socket
import time

from kit import REFUSALS, Blocked, Crash, probe, syscall

MANY_PROCESSES = 2000
MUCH = 2 << 30
MIB = 1 << 20
OUTSIDE = "a bomb outside of the sandbox is no test"
DEATHS = ("ok", "out_of_memory", "killed", "error")


def stopped_below(what, count, most):
    """Blocked when the bomb ended below @most."""
    if count < most:
        raise Blocked("stopped after %d %s" % (count, what))
    return "made %d %s" % (count, what)


# --------------------------------------------------------------------------------------------------
# Processes and threads

@probe(why_no_control=OUTSIDE, verdicts=DEATHS)
def fork_bomb():
    """Children that do nothing but live, until the limit."""
    children = []
    try:
        for _ in range(MANY_PROCESSES):
            pid = os.fork()
            if pid == 0:
                signal.pause()
                os._exit(0)
            children.append(pid)
    except OSError as error:
        if error.errno != errno.EAGAIN:
            raise
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
        for pid in children:
            os.waitpid(pid, 0)
    return stopped_below("processes", len(children), 512)


@probe(why_no_control=OUTSIDE, verdicts=DEATHS + ("timeout",), silent=True)
def doubling_fork_bomb():
    """Each process makes two, the classic; eleven generations at most. It is left running."""
    for _ in range(11):
        try:
            os.fork()
        except OSError:
            break
    time.sleep(0.3)
    os._exit(0)


@probe(why_no_control=OUTSIDE, verdicts=DEATHS)
def thread_bomb():
    """Threads count as processes do."""
    import threading
    threading.stack_size(64 * 1024)
    release = threading.Event()
    threads = []
    try:
        for _ in range(MANY_PROCESSES):
            thread = threading.Thread(target=release.wait, daemon=True)
            thread.start()
            threads.append(thread)
    except (RuntimeError, MemoryError):
        pass
    release.set()
    for thread in threads:
        thread.join()
    return stopped_below("threads", len(threads), 512)


@probe(why_no_control=OUTSIDE, verdicts=DEATHS)
def zombie_bomb():
    """Children that nobody waits for keep their entry in the process table."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    count = 0
    try:
        for count in range(MANY_PROCESSES):
            if os.fork() == 0:
                os._exit(0)
        count = MANY_PROCESSES
    except OSError as error:
        if error.errno != errno.EAGAIN:
            raise
    return stopped_below("zombies", count, 512)


@probe(why_no_control=OUTSIDE, verdicts=DEATHS)
def orphan_bomb():
    """Double forks: the orphans fall to init, which has to reap them all as they die."""
    for _ in range(300):
        try:
            pid = os.fork()
        except OSError as error:
            if error.errno == errno.EAGAIN:
                time.sleep(0.001)
                continue
            raise
        if pid == 0:
            try:
                os.fork()
            except OSError:
                pass
            os._exit(0)
        os.waitpid(pid, 0)
    left = len([name for name in os.listdir("/proc") if name.isdigit()])
    if left < 100:
        raise Blocked("%d processes left of 300" % left)
    return "%d processes left" % left


@probe(why_no_control=OUTSIDE, verdicts=("timeout", "cpu_time", "killed"), silent=True, options=("--timeout", "1s"))
def spin_on_all_cpus():
    """Loops in four processes: the wall clock ends them all."""
    for _ in range(3):
        if os.fork() == 0:
            break
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        pass


# --------------------------------------------------------------------------------------------------
# Memory

def fill(take, step):
    """Calls take() for @step bytes at a time up to 2 GiB; returns how much it got."""
    kept = []
    got = 0
    try:
        while got < MUCH:
            kept.append(take())
            got += step
    except (MemoryError, OSError, ValueError, OverflowError):
        pass
    return got


def fill_socket(sender):
    """Sends until the other end would have to read; returns how many bytes are on their way."""
    sender.setblocking(False)
    sent = 0
    try:
        while True:
            sent += sender.send(b"\1" * 65536)
    except BlockingIOError:
        return sent


def memory_verdict(got):
    if got < 1 << 30:
        raise Blocked("stopped after %d MiB" % (got >> 20))
    return "has %d MiB" % (got >> 20)


@probe(why_no_control=OUTSIDE, verdicts=DEATHS, silent=True)
def memory_bomb():
    """Allocate and touch, 16 MiB at a time."""
    got = fill(lambda: b"\1" * (16 * MIB), 16 * MIB)
    return memory_verdict(got)


@probe(why_no_control=OUTSIDE, verdicts=DEATHS, silent=True)
def memory_bomb_in_children():
    """Eight children with 256 MiB each: a limit per process alone would let them pass. They take it step by
    step, and live until all have it."""
    reader, writer = os.pipe()
    pids = []
    for _ in range(8):
        try:
            pid = os.fork()
        except OSError:
            break
        if pid == 0:
            os.close(reader)
            blocks = []
            try:
                for _ in range(64):
                    blocks.append(b"\1" * (4 * MIB))
                    os.write(writer, b"x")
                os.write(writer, b"D")
                signal.alarm(20)
                signal.pause()
            finally:
                os._exit(0)
        pids.append(pid)
    os.close(writer)
    steps = finished = 0
    while finished < len(pids):
        text = os.read(reader, 4096)
        if not text:
            break
        steps += text.count(b"x")
        finished += text.count(b"D")
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    return memory_verdict(steps * 4 * MIB)


@probe(why_no_control=OUTSIDE, verdicts=DEATHS, silent=True)
def shared_memory_bomb():
    """Anonymous shared memory, touched: it is accounted as a file, not as the process's own."""
    def take():
        block = mmap.mmap(-1, 16 * MIB, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)
        for offset in range(0, 16 * MIB, 4096):
            block[offset] = 1
        return block
    return memory_verdict(fill(take, 16 * MIB))


@probe(why_no_control=OUTSIDE, verdicts=DEATHS, silent=True)
def memfd_bomb():
    """memfd_create(2): memory that no mapping shows, so RLIMIT_AS does not see it."""
    def take():
        fd = os.memfd_create("bomb")
        written = 0
        while written < 16 * MIB:
            written += os.write(fd, b"\1" * MIB)
        return fd
    return memory_verdict(fill(take, 16 * MIB))


@probe(why_no_control=OUTSIDE, verdicts=DEATHS, silent=True)
def system_v_memory_bomb():
    """System V shared memory lives on without a process."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p

    def take():
        number = libc.shmget(0, 16 * MIB, 0o1600)
        if number < 0:
            raise MemoryError
        address = libc.shmat(number, None, 0)
        if address in (None, 2 ** 64 - 1):
            raise MemoryError
        ctypes.memset(address, 1, 16 * MIB)
        libc.shmdt(ctypes.c_void_p(address))
        return number
    return memory_verdict(fill(take, 16 * MIB))


@probe(why_no_control=OUTSIDE, verdicts=DEATHS, silent=True)
def pipe_buffer_bomb():
    """Bytes in pipes are kernel memory."""
    import fcntl

    def take():
        reader, writer = os.pipe()
        try:
            fcntl.fcntl(writer, 1031, MIB)
        except OSError:
            pass
        os.set_blocking(writer, False)
        try:
            while True:
                os.write(writer, b"\1" * 65536)
        except BlockingIOError:
            pass
        return reader, writer
    return memory_verdict(fill(take, MIB))


@probe(why_no_control=OUTSIDE, verdicts=DEATHS, silent=True)
def socket_buffer_bomb():
    """Bytes in unix sockets, likewise."""
    def take():
        one, other = socket.socketpair()
        fill_socket(one)
        return one, other
    return memory_verdict(fill(take, 200 * 1024))


def six(per_process, take):
    """Six processes, each with @per_process of what @take makes; waits for the end."""
    children = []
    try:
        while len(children) < 6:
            pid = os.fork()
            if pid == 0:
                got = []
                try:
                    for _ in range(per_process):
                        got.append(take())
                except (MemoryError, OSError):
                    pass
                time.sleep(20)
                os._exit(0)
            children.append(pid)
    except OSError:
        pass
    time.sleep(20)
    for pid in children:
        os.kill(pid, signal.SIGKILL)
    return "held on to what %d processes made" % len(children)


KILLED = ("out_of_memory", "killed")
SMALL = ("--memory", "96m")


@probe(why_no_control=OUTSIDE, verdicts=KILLED, silent=True, options=SMALL)
def socket_buffers_of_senders():
    """Bytes on their way through unix sockets, 400 KiB for each descriptor of each process: with 64 processes
    gigabytes that none of them shows."""
    def take():
        one, other = socket.socketpair()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        fill_socket(one)
        return one, other
    return six(240, take)


@probe(why_no_control=OUTSIDE, verdicts=KILLED, silent=True, options=SMALL)
def socket_buffers_without_senders():
    """The same, and the sender is closed: it was the one that the kernel counted them for."""
    def take():
        one, other = socket.socketpair()
        fill_socket(one)
        one.close()
        return other
    return six(480, take)


@probe(why_no_control=OUTSIDE, verdicts=KILLED, silent=True, options=SMALL)
def memory_of_mappings():
    """Mappings of one page, each with other rights than its neighbours: 280 bytes of the kernel's memory apiece."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p

    def take():
        at = libc.mmap(None, ctypes.c_size_t(1 << 28), 0, 0x4022, -1, ctypes.c_long(0))
        for page in range(0, 1 << 28, 8192):
            if libc.mprotect(ctypes.c_void_p(at + page), ctypes.c_size_t(4096), 1) < 0:
                raise MemoryError
        return at
    return six(1, take)


# Memory that is in use without being in any process's count. Where a cgroup counts, it is counted all the same;
# where the supervisor adds up what processes map, it has to be refused or found.

def hold(got):
    """What was taken is held long enough for whoever looks now and then."""
    if got >= 1 << 30:
        time.sleep(3)
    return memory_verdict(got)


def shared_block():
    return mmap.mmap(-1, 16 * MIB, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)


def touch_all(block):
    for offset in range(0, len(block), 4096):
        block[offset] = 1


@probe(why_no_control=OUTSIDE, verdicts=DEATHS, silent=True)
def memory_without_pages():
    """Shared memory, filled, and then MADV_DONTNEED: the pages stay, but no process has them mapped."""
    def take():
        block = shared_block()
        touch_all(block)
        block.madvise(mmap.MADV_DONTNEED)
        return block
    return hold(fill(take, 16 * MIB))


@probe(why_no_control=OUTSIDE, verdicts=DEATHS, silent=True)
def memory_filled_by_the_dead():
    """A child fills shared memory and ends; the parent holds the mapping and has touched nothing."""
    def take():
        block = shared_block()
        pid = os.fork()
        if pid == 0:
            touch_all(block)
            os._exit(0)
        if os.waitpid(pid, 0)[1] != 0:
            raise MemoryError
        return block
    return hold(fill(take, 16 * MIB))


@probe(why_no_control=OUTSIDE, verdicts=DEATHS, silent=True, counted=True)
def memory_behind_one_page():
    """Shared memory, filled, and all but the first page unmapped again: the object keeps the rest."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p

    def take():
        address = libc.mmap(None, ctypes.c_size_t(16 * MIB), 3, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS, -1, ctypes.c_long(0))
        if address in (None, 2 ** 64 - 1):
            raise MemoryError
        ctypes.memset(address, 1, 16 * MIB)
        libc.munmap(ctypes.c_void_p(address + 4096), ctypes.c_size_t(16 * MIB - 4096))
        return address
    return hold(fill(take, 16 * MIB))


@probe(why_no_control=OUTSIDE, verdicts=DEATHS, silent=True)
def memory_in_page_tables():
    """Reading one page in every 2 MiB of a huge mapping costs 4 KiB of page table each, and no page at all."""
    size = 1 << 38
    try:
        block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, prot=mmap.PROT_READ)
    except (OSError, ValueError, OverflowError, MemoryError) as error:
        raise Blocked("no such mapping: %s" % error) from None
    got = 0
    for offset in range(0, size, 2 * MIB):
        _ = block[offset]
        got += 4096
    time.sleep(3)
    if got >= 500 * MIB:
        return "has %d MiB of page tables" % (got >> 20)
    raise Blocked("%d MiB" % (got >> 20))


@probe(why_no_control=OUTSIDE, verdicts=DEATHS, silent=True)
def memory_of_a_dead_leader():
    """The first thread ends alone: its process shows as a zombie without memory, and the others live on."""
    import threading

    def worker():
        time.sleep(0.2)
        got = fill(lambda: b"\1" * (16 * MIB), 16 * MIB)
        time.sleep(3)
        line = "GOT THROUGH has %d MiB" % (got >> 20) if got >= 1 << 30 else "BLOCKED at %d MiB" % (got >> 20)
        os.write(1, b"\n" + line.encode() + b"\n")
        os._exit(0)
    threading.Thread(target=worker).start()
    syscall("exit", 0)


# Without bounds they are counted, and end the run at its limit: tests/e2e/test_containers.py.
@probe(why_no_control=OUTSIDE, verdicts=DEATHS, silent=True, layer="network_buffers")
def tcp_buffers():
    """Buffers of TCP are counted for the whole host, whichever network namespace they are in."""
    server = socket.create_server(("127.0.0.1", 0), backlog=256)
    kept = []
    queued = 0
    try:
        for _ in range(200):
            one = socket.create_connection(server.getsockname())
            other, _ = server.accept()
            kept += [one, other]
            queued += fill_socket(one)
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENOBUFS, errno.ENOMEM):
            raise
    if queued < 128 * MIB:
        raise Blocked("%d MiB in %d connections" % (queued >> 20, len(kept) // 2))
    return "queued %d MiB in %d connections" % (queued >> 20, len(kept) // 2)


@probe(why_no_control=OUTSIDE, verdicts=DEATHS)
def locked_memory():
    """mlock(2) takes memory that cannot be swapped or moved."""
    libc = ctypes.CDLL(None, use_errno=True)
    block = mmap.mmap(-1, 128 * MIB)
    address = ctypes.addressof(ctypes.c_char.from_buffer(block))
    if libc.mlock(ctypes.c_void_p(address), 128 * MIB) == 0:
        return "locked 128 MiB"
    raise Blocked("errno %d" % ctypes.get_errno())


# --------------------------------------------------------------------------------------------------
# Disk

def fill_directory(directory, most, files=64):
    """Writes @files files of 32 MiB; returns the bytes written before something stopped it."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    written = 0
    try:
        for number in range(files):
            with open("%s/fill-%d" % (directory, number), "wb", buffering=0) as file:
                for _ in range(32):
                    written += file.write(b"\1" * MIB)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.ENOMEM, errno.EACCES, errno.EROFS, errno.EPERM):
            raise
    if written >= most:
        return "wrote %d MiB to %s" % (written >> 20, directory)
    raise Blocked("stopped after %d MiB" % (written >> 20))


@probe(why_no_control=OUTSIDE, verdicts=DEATHS)
def fill_tmp():
    """/tmp is memory of the host: 64 MB by the default policy."""
    return fill_directory("/tmp", 128 * MIB, 16)


@probe(why_no_control=OUTSIDE, verdicts=DEATHS)
def fill_dev_shm():
    """/dev/shm, the other tmpfs."""
    return fill_directory("/dev/shm", 128 * MIB, 16)


@probe(why_no_control=OUTSIDE, verdicts=DEATHS + ("output_limit",), silent=True, leaves=("*",))
def fill_data():
    """/mnt/data is the host's disk: 2 GiB, if nobody says no."""
    return fill_directory("/mnt/data", MUCH)


def unlinked_file(number):
    """64 MiB of disk without a name."""
    path = "/mnt/data/unlinked-%d" % number
    file = open(path, "wb", buffering=0)
    os.unlink(path)
    for _ in range(64):
        file.write(b"\1" * MIB)
    return file


@probe(why_no_control=OUTSIDE, verdicts=DEATHS + ("output_limit",), silent=True, leaves=("*",))
def disk_without_names():
    """Files that are unlinked and open: not in the directory, and on the disk all the same."""
    kept = [unlinked_file(number) for number in range(24)]
    time.sleep(3)
    return "holds %d MiB" % (sum(os.fstat(file.fileno()).st_blocks for file in kept) >> 11)


@probe(why_no_control=OUTSIDE, verdicts=DEATHS + ("output_limit",), silent=True, leaves=("*",))
def disk_of_a_dead_leader():
    """The same, held by a thread whose leader has ended: /proc/PID/fd of a zombie shows nothing."""
    import threading

    def worker():
        time.sleep(0.2)
        kept = [unlinked_file(number) for number in range(24)]
        time.sleep(3)
        os.write(1, b"\nGOT THROUGH holds %d files\n" % len(kept))
        os._exit(0)
    threading.Thread(target=worker).start()
    syscall("exit", 0)


@probe(why_no_control=OUTSIDE, verdicts=DEATHS + ("output_limit",), silent=True, leaves=("*",))
def one_large_file():
    """One file of 2 GiB: RLIMIT_FSIZE, with its signal ignored."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with open("/mnt/data/large", "wb", buffering=0) as file:
        try:
            for _ in range(64):
                file.write(b"\1" * (32 * MIB))
        except OSError as error:
            raise Blocked("errno %d after %d MiB" % (error.errno, os.stat("/mnt/data/large").st_size >> 20)) from None
    size = os.stat("/mnt/data/large").st_size
    if size < MUCH:
        raise Blocked("a write was cut short, %d MiB" % (size >> 20))
    return "wrote %d MiB" % (size >> 20)


@probe(why_no_control=OUTSIDE, verdicts=DEATHS)
def inode_bomb_in_tmp():
    """Empty files cost an inode each: kernel memory that no size limit counts."""
    count = 0
    try:
        for count in range(200_000):
            os.close(os.open("/tmp/i%d" % count, os.O_CREAT | os.O_WRONLY, 0o600))
        count = 200_000
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.ENOMEM, errno.EDQUOT):
            raise
    return stopped_below("files in /tmp", count, 150_000)


@probe(why_no_control=OUTSIDE, verdicts=DEATHS + ("output_limit", "timeout"), silent=True, leaves=("*",))
def inode_bomb_in_data():
    """300,000 names in /mnt/data, most of them hard links, which are quicker to make."""
    count = 0
    try:
        for count in range(300_000):
            if count % 100:
                os.link("/mnt/data/i%d" % (count - count % 100), "/mnt/data/i%d" % count)
            else:
                os.close(os.open("/mnt/data/i%d" % count, os.O_CREAT | os.O_WRONLY, 0o600))
        count = 300_000
    except OSError as error:
        raise Blocked("errno %d after %d files" % (error.errno, count)) from None
    return "made %d files" % count


# --------------------------------------------------------------------------------------------------
# Descriptors, locks, queues

@probe(why_no_control=OUTSIDE)
def descriptor_bomb():
    """Open files are kernel memory and count against the host's fs.file-max."""
    kept = []
    try:
        for _ in range(1_000_000):
            kept.append(os.dup(0))
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
    for fd in kept:
        os.close(fd)
    return stopped_below("descriptors", len(kept), 70_000)


@probe(why_no_control=OUTSIDE, refused=REFUSALS + ("ENOSPC", "EMFILE", "ENOMEM", "EINVAL"))
def message_queue_bomb():
    """System V queues: kernel memory outside of any process."""
    libc = ctypes.CDLL(None, use_errno=True)
    made = 0
    for _ in range(40_000):
        if libc.msgget(0, 0o1600) < 0:
            raise Blocked("errno %d after %d queues" % (ctypes.get_errno(), made))
        made += 1
    return "made %d queues" % made


@probe(why_no_control=OUTSIDE, verdicts=DEATHS, refused=REFUSALS + ("EMFILE", "EAGAIN", "ENOMEM"))
def inotify_bomb():
    """inotify instances and watches are counted per user of the host: without a limit of its own, a sandbox
    uses up what its caller's desktop needs."""
    libc = ctypes.CDLL(None, use_errno=True)
    made = 0
    for _ in range(10_000):
        if libc.inotify_init() < 0:
            raise Blocked("errno %d after %d instances" % (ctypes.get_errno(), made))
        made += 1
    return "made %d inotify instances" % made


@probe(why_no_control=OUTSIDE, verdicts=DEATHS, refused=REFUSALS + ("EAGAIN",))
def pending_signal_bomb():
    """Queued signals and POSIX timers are kernel memory, bounded by RLIMIT_SIGPENDING."""
    import struct
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
    info = ctypes.create_string_buffer(struct.pack("=iii", signal.SIGRTMIN, 0, -1) + bytes(116), 128)
    made = 0
    try:
        for _ in range(1_000_000):
            syscall("rt_sigqueueinfo", os.getpid(), signal.SIGRTMIN, info)
            made += 1
    except OSError as error:
        raise Blocked("errno %d after %d signals" % (error.errno, made)) from None
    return "queued %d signals" % made


# --------------------------------------------------------------------------------------------------
# Output

def pour(fd, most):
    sent = 0
    try:
        while sent < most:
            sent += os.write(fd, b"x" * 65536)
    except OSError:
        pass
    return sent


@probe(why_no_control=OUTSIDE, verdicts=("output_limit",), silent=True)
def stdout_bomb():
    """1 GiB of output: what is collected is bounded, and the run ends."""
    raise Blocked("%d bytes were taken" % pour(1, 1 << 30))


@probe(why_no_control=OUTSIDE, verdicts=("output_limit",), silent=True)
def stderr_bomb():
    """The same on standard error."""
    raise Blocked("%d bytes were taken" % pour(2, 1 << 30))


@probe(why_no_control=OUTSIDE, verdicts=("ok", "output_limit", "error"), silent=True)
def traceback_bomb():
    """An exception whose text is 64 MiB: the report has a bound, too."""
    raise Crash("x" * (64 * MIB))
