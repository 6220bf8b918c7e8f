"""What only a worker of an engine has: a socket to the engine where a cold run has a pipe, a process beside it that
holds its memory, and a parent that was somebody else's interpreter."""
import array
import ctypes
import os
import signal
import socket
import struct
import sys
import time

from kit import REFUSALS, Blocked, Crash, first_success, host, libc, probe, syscall

JOB = 3
SO_PASSPIDFD, SO_PEERPIDFD = 76, 77
HELLO = struct.pack("=Ii", 0x57524459, 2) + b"\0" * 512  # WORKER_READY, in sandbox/zygote_wire.h
SYSCALL = b"\x0f\x05"
IS_X86 = os.uname().machine == "x86_64"


def job_socket():
    return socket.socket(fileno=os.dup(JOB))


def is_there(pid):
    if os.path.exists("/proc/self"):
        return os.path.exists("/proc/%d" % pid)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def others():
    """Processes beside init and this one: the memory holder, while it lives. Without procfs each number is tried."""
    has_procfs = os.path.exists("/proc/self")
    numbers = [int(name) for name in os.listdir("/proc") if name.isdigit()] if has_procfs else range(2, 1000)
    return [pid for pid in numbers if pid not in (1, os.getpid()) and is_there(pid)]


def program_counter(pid):
    """Of the memory holder: procfs says it, or its code is looked for in this process's own memory, which it shares."""
    try:
        while True:
            with open("/proc/%d/syscall" % pid, encoding="ascii") as file:
                words = file.read().split()
            if words[0] != "running":  # it is on its way into the call that it sleeps in
                return int(words[-1], 16)
            time.sleep(0.01)
    except FileNotFoundError:
        pass
    code = b"\xb8\x22\0\0\0" + SYSCALL + b"\x48\x83\xf8\xfc"  # mov $34, %eax: pause; syscall; cmp $-4, %rax
    found = []

    class Header(ctypes.Structure):  # struct dl_phdr_info, to dlpi_phnum
        _fields_ = [("base", ctypes.c_size_t), ("name", ctypes.c_char_p), ("headers", ctypes.c_void_p), ("n", ctypes.c_uint16)]

    def look(info, _size, _data):
        for i in range(info.contents.n):
            kind, flags, _, address, _, _, size = struct.unpack("=IIQQQQQ", ctypes.string_at(info.contents.headers + 56 * i, 48))
            if kind == 1 and flags & 1:  # PT_LOAD, PF_X
                start = info.contents.base + address
                at = ctypes.string_at(start, size).find(code)
                found.extend([start + at + 7] if at >= 0 else [])
        return 0

    libc.dl_iterate_phdr(ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Header), ctypes.c_size_t, ctypes.c_void_p)(look), None)
    if not found:
        raise Crash("the code of the memory holder was not found")
    return found[0]


def memory_holder():
    found = others()
    if not found:
        raise Blocked("nothing holds the memory")
    return found[0]


def wait_until_gone(pid):
    deadline = time.monotonic() + 20
    while is_there(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not is_there(pid)


# --------------------------------------------------------------------------------------------------
# The engine at the other end of the socket

@probe(control="user", refused=REFUSALS + ("ENOPROTOOPT", "EINVAL"), warm=True)
def pidfd_of_the_engine():
    """SO_PEERPIDFD turns a socket into a hold on the process at its other end, which is the same user as a sandbox of
    an ordinary caller, and lives outside. (Outside, the victim stands for it.)"""
    if host.outside:
        peer = socket.socket(socket.AF_UNIX)
        peer.connect(host.unix_path)
    else:
        peer = job_socket()
    fd = struct.unpack("=i", peer.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD, 4))[0]
    return first_success([
        lambda: "may send it signals: %d" % syscall("pidfd_send_signal", fd, 0, None, 0),
        lambda: "has its descriptor %d" % syscall("pidfd_getfd", fd, 0, 0),
        lambda: "is in its mounts: %d" % syscall("setns", fd, 0x00020000),
        lambda: "advises its memory: %d" % syscall("process_madvise", fd, None, 0, 21, 0),
        lambda: "knows its number: %r" % number_behind(fd),
    ])


def number_behind(pidfd):
    with open("/proc/self/fdinfo/%d" % pidfd, encoding="ascii") as file:
        pids = [line.split()[1] for line in file if line.startswith("Pid:")]
    if pids in ([], ["0"], ["-1"]):
        raise Blocked("it is in no namespace of ours")
    return pids


@probe(why_no_control="the socket exists inside only", refused=REFUSALS + ("ENOPROTOOPT",), warm=True)
def credentials_of_the_engine():
    """SO_PEERCRED and messages with credentials: the engine's process id on the host."""
    peer = job_socket()
    pid = struct.unpack("=iii", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
    if pid != 0:
        return "the engine is process %d" % pid
    raise Blocked("its number means nothing here")


@probe(why_no_control="the socket exists inside only", refused=REFUSALS + ("EAGAIN", "ENOTCONN"), warm=True)
def second_job():
    """After the job, the socket must have nothing more to give: no job of another run, no descriptor."""
    text, ancillary, _, _ = job_socket().recvmsg(65536, 4096, socket.MSG_DONTWAIT)
    if text or ancillary:
        return "received %r %r" % (text[:100], ancillary)
    raise Blocked("it is closed")


@probe(why_no_control="hutch is outside", verdicts=("ok",), warm=True)
def forged_messages():
    """What a worker says before it has a job, said again after it; reports whose lengths lie; fragments."""
    peer = job_socket()
    peer.setblocking(False)
    sent = 0
    for record in (HELLO, HELLO[:7], HELLO * 50, b"HUTCHPY1" + b"\xff" * 12, b"HUTCHPY1" + struct.pack("=III", 1, 0, 0x7FFFFFFF) + b"x",
                   b"HUTCHPY1" + struct.pack("=III", 0, 0, 0), b"HJOB" + b"\xff" * 4, b"\0" * 4096):
        try:
            sent += peer.send(record)
        except OSError:
            break
    raise Blocked("%d bytes are written, and mean nothing" % sent)


@probe(why_no_control="hutch is outside", verdicts=("ok",), warm=True)
def descriptors_for_the_engine():
    """Descriptors nobody asked for: each message fills the engine's table, if it takes them."""
    peer = job_socket()
    peer.setblocking(False)
    many = array.array("i", [os.open("/dev/null", os.O_RDONLY) for _ in range(100)])
    sent = 0
    try:
        for _ in range(200):
            peer.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, many)])
            sent += len(many)
    except OSError:
        pass
    raise Blocked("%d were sent, and the engine works as before" % sent)


@probe(why_no_control="hutch is outside", verdicts=("ok",), warm=True)
def hang_up_on_the_engine():
    """The socket shut and closed in the middle of the run: whoever polls it must not turn in circles, nor take that
    for the end."""
    peer = job_socket()
    peer.shutdown(socket.SHUT_RDWR)
    peer.close()
    os.close(JOB)
    time.sleep(0.3)
    raise Blocked("hung up")


@probe(why_no_control="hutch is outside", silent=True, verdicts=("error",), warm=True)
def flood_and_fail():
    """Too much on the socket, and then a real exception, whose report no longer fits."""
    peer = job_socket()
    peer.setblocking(False)
    try:
        while True:
            peer.send(b"\xff" * 65536)
    except OSError:
        pass
    raise Crash("flooded")


# --------------------------------------------------------------------------------------------------
# The memory holder

def run_in_holder(code):
    """Makes the memory holder run machine code: it sleeps in pause(2), whose instruction is in memory that we may write, and
    which a stop and a continue make it execute again."""
    if not IS_X86:
        raise Blocked("the memory holder is x86-64's")
    target = memory_holder()
    pc = program_counter(target)
    libc.mmap.restype = ctypes.c_void_p
    page = libc.mmap(None, ctypes.c_size_t(4096), 7, 0x22, -1, ctypes.c_long(0))
    if page == ctypes.c_void_p(-1).value or libc.mprotect(ctypes.c_void_p((pc - 2) & ~4095), ctypes.c_size_t(8192), 7) < 0:
        raise Blocked("its code cannot be changed")
    ctypes.memmove(page, code, len(code))
    jump = b"\x48\xb8" + struct.pack("=Q", page) + b"\xff\xe0"  # mov page, %rax; jmp *%rax
    ctypes.memmove(pc - 2, jump, len(jump))
    os.kill(target, signal.SIGSTOP)
    os.kill(target, signal.SIGCONT)
    return target, page


FOR_EVER = b"\xeb\xfe"


@probe(why_no_control="the memory holder exists inside only", warm=True)
def processes_from_the_holder():
    """The memory holder is not one of those that are counted in full: what it starts would be a process more than allowed, and
    what it opens would be seen by nobody."""
    target, _ = run_in_holder(b"\xb8\x39\0\0\0" + SYSCALL + FOR_EVER)  # mov $57, %eax: fork
    if wait_until_gone(target):
        raise Blocked("it was killed for trying")
    more = [pid for pid in others() if pid != target]
    if more:
        return "it has forked %r" % more
    raise Blocked("it turns in circles")


@probe(why_no_control="the memory holder exists inside only", warm=True)
def files_from_the_holder():
    """A file that is opened in the memory holder and has no name any more is in no walk and in no process that is looked at."""
    path = b"/mnt/data/held\0"
    # mov $2, %eax; lea path(%rip), %rdi; mov $0102, %esi; mov $0600, %edx: open(2)
    code = b"\xb8\x02\0\0\0" + b"\x48\x8d\x3d" + struct.pack("=i", 14) + b"\xbe\x42\0\0\0" + b"\xba\x80\x01\0\0"
    target, _ = run_in_holder(code + SYSCALL + FOR_EVER + path)
    if wait_until_gone(target):
        raise Blocked("it was killed for trying")
    if os.path.exists("/mnt/data/held"):
        os.unlink("/mnt/data/held")
        return "it has opened a file"
    raise Blocked("it turns in circles")


@probe(why_no_control="the memory holder exists inside only", silent=True, verdicts=("cpu_time",), options=("--cpu-time", "1s"), warm=True)
def cpu_time_of_the_holder():
    """An endless loop in the memory holder, while the program itself sleeps: CPU time like any other."""
    run_in_holder(FOR_EVER)
    time.sleep(20)


@probe(why_no_control="the memory holder exists inside only", options=("--memory", "110m"), warm=True)
def memory_behind_the_holder():
    """Memory of the program, which the memory holder would keep, uncounted, while the program executes another that takes as much
    again."""
    held = bytearray(b"x") * (60 << 20)
    os.execv(sys.executable, [sys.executable, "-c", """
import os, time
def is_there(pid):
    try: os.kill(pid, 0)
    except OSError: return False
    return True
for _ in range(500):
    left = [pid for pid in range(2, 1000) if pid != os.getpid() and is_there(pid)]
    if not left:
        break
    time.sleep(0.02)
held = bytearray(b'x') * (60 << 20)
time.sleep(0.3)
print('GOT THROUGH %r holds the old memory' % left if left else 'BLOCKED the holder is gone with its memory')
"""])
    return "%d bytes and no execve" % len(held)


@probe(why_no_control="the memory holder exists inside only", options=("--memory", "150m"), warm=True)
def signals_for_the_holder():
    """Killed and stopped by its program: that is the program's own memory, and nobody else's business."""
    target = memory_holder()
    for number in (signal.SIGSTOP, signal.SIGCONT, signal.SIGTERM, signal.SIGUSR1, signal.SIGSTOP, signal.SIGKILL):
        os.kill(target, number)
    if not wait_until_gone(target):
        return "it lives on"
    held = bytearray(b"x") * (60 << 20)  # and is counted once
    time.sleep(0.3)
    raise Blocked("it is dead, and %d MiB are there" % (len(held) >> 20))


@probe(why_no_control="the memory holder exists inside only", options=("--pids-limit", "8"), warm=True)
def place_of_the_holder():
    """The memory holder has a place of its own among the processes. When it is killed, there is one more, and not more."""
    os.kill(memory_holder(), signal.SIGKILL)
    made = 0
    try:
        while made < 50:
            if os.fork() == 0:
                signal.pause()
            made += 1
    except OSError:
        pass
    if made > 8:
        return "made %d processes" % made
    raise Blocked("made %d processes" % made)


# --------------------------------------------------------------------------------------------------
# What the interpreter was before

@probe(why_no_control="outside, the interpreter is an ordinary one", warm=True)
def zygote_files():
    """The zygote's own directory is part of another tree."""
    for path in ("/run/hutch/zygote", "/run/hutch/zygote/main.py", "/proc/self/root/run/hutch/zygote/helper.so"):
        if os.path.exists(path):
            return "found " + path
    raise Blocked("not in this tree")


@probe(why_no_control="outside, the interpreter is an ordinary one", warm=True)
def zygote_modules():
    """Its modules hold functions that speak to the engine: none is to be had by import, and none by looking at what
    the collector knows."""
    import gc
    for name in ("preload", "renew", "worker", "environment", "first_use", "hutch_report"):
        if name in sys.modules:
            return "sys.modules has " + name
        try:
            __import__(name)
            return "can import " + name
        except ImportError:
            pass
    found = [thing for thing in gc.get_objects() if type(thing).__name__ == "Start" and hasattr(thing, "helper")]
    if found and getattr(found[0].helper, "hutch_zygote_serve", None) is not None:
        return serve(found[0].helper)
    raise Blocked("not to be found")


def serve(helper):
    """The helper's function that takes orders, called in the worker: it listens on the job socket, where the engine
    says nothing more. It must not do so as anything but the worker that it is."""
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    if os.fork() == 0:
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        helper.hutch_zygote_serve(ctypes.create_string_buffer(4096), 4096)
        os._exit(0)
    signal.setitimer(signal.ITIMER_REAL, 0)
    _, status = os.wait()
    raise Blocked("found, and of no use: status %#x" % status)
