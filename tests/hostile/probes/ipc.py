"""Objects that processes share without any file: System V and POSIX. They belong to the ipc namespace, and
the host's have numbers that are easily guessed."""
import ctypes
import os

from kit import ABSENT, Blocked, host, probe

libc = ctypes.CDLL(None, use_errno=True)


def check(result):
    if result == -1:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


@probe(control="user", refused=ABSENT)
def host_shared_memory():
    """shmget(2) by the victim's key: the memory of databases and of X11's images."""
    number = check(libc.shmget(host.shm_key, 0, 0))
    libc.shmat.restype = ctypes.c_void_p
    address = libc.shmat(number, None, 0o10000)
    if address in (None, 2 ** 64 - 1):
        raise OSError(ctypes.get_errno(), "shmat")
    return "read %r" % ctypes.string_at(address, 40)


@probe(control="user", refused=ABSENT)
def host_semaphores():
    """semget(2) by key: whoever holds the semaphore stops the others."""
    number = check(libc.semget(host.sem_key, 0, 0))
    return "found semaphore set %d" % number


@probe(control="user", refused=ABSENT)
def host_message_queue():
    """msgget(2) by key, and a message that the victim would take for one of its own."""
    number = check(libc.msgget(host.msg_key, 0))
    message = ctypes.create_string_buffer(b"\1\0\0\0\0\0\0\0hutch-probe")
    if not host.outside:
        check(libc.msgsnd(number, message, 11, 0o4000))
    return "found queue %d" % number


@probe(control="user")
def list_host_ipc():
    """/proc/sysvipc lists what is there."""
    found = []
    for name in ("shm", "sem", "msg"):
        try:
            with open("/proc/sysvipc/" + name, encoding="ascii") as table:
                found += table.readlines()[1:]
        except OSError:
            pass
    if found:
        return "saw %d objects" % len(found)
    raise Blocked("no object of anybody's")


@probe(control="user", refused=ABSENT + ("EMFILE",))
def host_posix_queue():
    """mq_open(3) by name."""
    number = libc.syscall(ctypes.c_long(240 if os.uname().machine == "x86_64" else 180), host.mq_name.encode(), 0, 0, None)
    check(number)
    os.close(number)
    return "opened the queue " + host.mq_name
