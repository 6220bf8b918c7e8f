"""The victim: a process on the host, with the user id that the sandbox has there, that offers everything
a sandboxed program might try to reach, and keeps count.

Speaks JSON lines: on start it prints the facts that probes need to find it; for each line on standard
input it prints a report. Ends with standard input."""
import ctypes
import json
import os
import resource
import signal
import socket
import sys

libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p

IPC_CREAT_PUBLIC = 0o1666
IPC_RMID = 0
ADD_KEY, KEYCTL = (248, 250) if os.uname().machine == "x86_64" else (217, 219)
MQ_OPEN, MQ_UNLINK = (240, 241) if os.uname().machine == "x86_64" else (180, 181)
USER_KEYRING, SETPERM, KEYCTL_READ, KEYCTL_UNLINK = -4, 5, 11, 9


def listen(family, address):
    server = socket.socket(family, socket.SOCK_STREAM)
    server.bind(address)
    server.listen(16)
    server.setblocking(False)
    return server


def datagrams(family, address):
    server = socket.socket(family, socket.SOCK_DGRAM)
    server.bind(address)
    server.setblocking(False)
    return server


class Canary:
    def __init__(self, directory, text, token):
        self.text = text.encode()
        self.signals = []
        self.reached = {}
        self.before = self.rank()
        for number in range(1, signal.NSIG):
            if number not in (signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, 32, 33):
                signal.signal(number, lambda got, _frame: self.signals.append(got))
        base = 0x48000000 | (os.getpid() & 0x3FFFFF) << 2
        self.facts = {
            "canary_pid": os.getpid(), "abstract_name": "hutch-canary-" + token,
            "unix_path": os.path.join(directory, "socket"), "shm_key": base, "sem_key": base | 1,
            "msg_key": base | 2, "mq_name": "hutch-canary-" + token, "posix_shm": "hutch-canary-" + token,
            "key_name": "hutch-canary-" + token,
        }
        self.open_sockets()
        self.open_ipc()

    def open_sockets(self):
        facts = self.facts
        self.servers = {
            "tcp4": listen(socket.AF_INET, ("127.0.0.1", 0)),
            "any": listen(socket.AF_INET, ("0.0.0.0", 0)),
            "abstract": listen(socket.AF_UNIX, "\0" + facts["abstract_name"]),
            "path": listen(socket.AF_UNIX, facts["unix_path"]),
        }
        os.chmod(facts["unix_path"], 0o777)
        try:
            self.servers["tcp6"] = listen(socket.AF_INET6, ("::1", 0))
            facts["tcp6_port"] = self.servers["tcp6"].getsockname()[1]
        except OSError:
            facts["tcp6_port"] = 0  # a host without IPv6
        self.inboxes = {
            "udp": datagrams(socket.AF_INET, ("127.0.0.1", 0)),
            "abstract datagram": datagrams(socket.AF_UNIX, "\0" + facts["abstract_name"] + "-dgram"),
        }
        facts["tcp4_port"] = self.servers["tcp4"].getsockname()[1]
        facts["tcp_any_port"] = self.servers["any"].getsockname()[1]
        facts["udp_port"] = self.inboxes["udp"].getsockname()[1]

    def open_ipc(self):
        facts = self.facts
        self.shm = libc.shmget(facts["shm_key"], 4096, IPC_CREAT_PUBLIC)
        self.address = libc.shmat(self.shm, None, 0)
        ctypes.memmove(self.address, self.text, len(self.text))
        self.sem = libc.semget(facts["sem_key"], 1, IPC_CREAT_PUBLIC)
        self.msg = libc.msgget(facts["msg_key"], IPC_CREAT_PUBLIC)
        self.mq = libc.syscall(ctypes.c_long(MQ_OPEN), facts["mq_name"].encode(), 0o100 | 0o2, 0o666, None)
        with open("/dev/shm/" + facts["posix_shm"], "wb") as file:
            file.write(self.text)
        os.chmod("/dev/shm/" + facts["posix_shm"], 0o666)
        self.key = libc.syscall(ctypes.c_long(ADD_KEY), b"user", facts["key_name"].encode(), self.text,
                                ctypes.c_long(len(self.text)), ctypes.c_long(USER_KEYRING))
        libc.syscall(ctypes.c_long(KEYCTL), ctypes.c_long(SETPERM), ctypes.c_long(self.key), ctypes.c_long(0x3F3F0000))

    @staticmethod
    def rank():
        """What others could have taken from this process, or done to it."""
        return {
            "nice": os.getpriority(os.PRIO_PROCESS, 0), "cpus": sorted(os.sched_getaffinity(0)),
            "files": resource.getrlimit(resource.RLIMIT_NOFILE), "scheduler": os.sched_getscheduler(0),
        }

    def report(self):
        for name, server in self.servers.items():
            try:
                while True:
                    server.accept()[0].close()
                    self.reached[name] = self.reached.get(name, 0) + 1
            except BlockingIOError:
                pass
        for name, inbox in self.inboxes.items():
            try:
                while True:
                    inbox.recv(4096)
                    self.reached[name] = self.reached.get(name, 0) + 1
            except BlockingIOError:
                pass
        changed = []
        if ctypes.string_at(self.address, len(self.text)) != self.text:
            changed.append("shared memory")
        with open("/dev/shm/" + self.facts["posix_shm"], "rb") as file:
            if file.read() != self.text:
                changed.append("/dev/shm file")
        if libc.msgrcv(self.msg, ctypes.create_string_buffer(4096), 4000, 0, 0o4000) >= 0:
            changed.append("message queue")
        if libc.semctl(self.sem, 0, 12) < 0:
            changed.append("semaphore")
        if self.key > 0:
            buffer = ctypes.create_string_buffer(256)
            size = libc.syscall(ctypes.c_long(KEYCTL), ctypes.c_long(KEYCTL_READ), ctypes.c_long(self.key), buffer,
                                ctypes.c_long(256))
            if buffer.raw[:max(size, 0)] != self.text:
                changed.append("key")
        if self.rank() != self.before:
            changed.append("priority, processors or limits")
        return {"signals": self.signals, "reached": self.reached, "changed": changed}

    def close(self):
        libc.shmctl(self.shm, IPC_RMID, None)
        libc.semctl(self.sem, 0, IPC_RMID)
        libc.msgctl(self.msg, IPC_RMID, None)
        libc.syscall(ctypes.c_long(MQ_UNLINK), self.facts["mq_name"].encode())
        libc.syscall(ctypes.c_long(KEYCTL), ctypes.c_long(KEYCTL_UNLINK), ctypes.c_long(self.key),
                     ctypes.c_long(USER_KEYRING))
        os.unlink("/dev/shm/" + self.facts["posix_shm"])
        os.unlink(self.facts["unix_path"])


def main():
    canary = Canary(*sys.argv[1:4])
    try:
        print(json.dumps(canary.facts), flush=True)
        for _ in sys.stdin:
            print(json.dumps(canary.report()), flush=True)
    finally:
        canary.close()


main()
