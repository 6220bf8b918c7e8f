"""Drives the interpreter of a session as the engine does, but for the sandbox: this runs inside one, with hutch's Python files in ZYGOTE_DIR.
The zygote is this process; each interpreter is forked from it, with a socket as descriptor 3 and pipes as its streams."""
import array
import fcntl
import json
import os
import select
import signal
import socket
import struct
import sys
import time

TOKEN = "0123456789abcdef0123456789abcdef"
MARK = 42


def load(directory, has_shell=True):
    """Makes this process a zygote."""
    import ctypes

    sys.path.insert(0, directory)
    import cells
    import channel
    import environment
    import immortal
    import preload

    helper = ctypes.PyDLL(os.path.join(directory, "helper.so"))
    channel.set_helper(helper, ctypes)
    immortal.set_helper(helper, ctypes)
    environment.get_ready()
    names = ["IPython", "ipykernel", "matplotlib", "matplotlib.pyplot", "pandas"] if has_shell else []
    report = preload.load("\n".join(names).encode())
    assert not report, report
    return cells.main


class Interpreter:
    def __init__(self, main, token=TOKEN):
        self.sock, theirs = socket.socketpair()
        out_r, out_w = os.pipe()
        err_r, err_w = os.pipe()
        in_r, in_w = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.setpgid(0, 0)
            held = [fcntl.fcntl(fd, fcntl.F_DUPFD, 200) for fd in (in_r, out_w, err_w, theirs.fileno())]
            for target, fd in enumerate(held):
                os.dup2(fd, target)
            os.closerange(4, 256)
            status = 99
            try:
                status = main(json.dumps({"token": token}).encode())
                import atexit

                atexit._run_exitfuncs()
            finally:
                os._exit(status)
        os.close(in_w)
        for fd in (out_w, err_w, in_r):
            os.close(fd)
        theirs.close()
        self.frames, self.bytes = b"", {1: b"", 2: b""}
        self.fds = {out_r: 1, err_r: 2}
        self.seen = []
        self.n_cells = 0

    def send(self, order, fd=None, sock=None):
        body = json.dumps(order).encode()
        data = struct.pack("<I", len(body)) + body
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))] if fd is not None else []
        sock = sock or self.sock
        sent = sock.sendmsg([data], rights)
        sock.sendall(data[sent:])

    def pump(self, seconds=20):
        ready = select.select([self.sock] + list(self.fds), [], [], seconds)[0]
        assert ready, "nothing came"
        for fd in ready:
            data = fd.recv(1 << 20) if fd is self.sock else os.read(fd, 1 << 20)
            if fd is self.sock:
                if not data:
                    raise EOFError
                self.frames += data
            elif data:
                self.bytes[self.fds[fd]] += data
            else:
                del self.fds[fd]

    def frame(self, seconds=20):
        while True:
            if len(self.frames) >= 4:
                size = struct.unpack("<I", self.frames[:4])[0]
                if len(self.frames) >= 4 + size:
                    body, self.frames = self.frames[4 : 4 + size], self.frames[4 + size :]
                    return json.loads(body.decode("utf-8"))
            self.pump(seconds)

    def split(self, n, stream):
        """What came before mark @n."""
        mark = b"\0" + TOKEN.encode() + b"%08x\n" % n
        while mark not in self.bytes[stream]:
            self.pump()
        before, self.bytes[stream] = self.bytes[stream].split(mark, 1)
        return before.decode("utf-8", "replace")

    def wait_for(self, *kinds, seconds=20):
        """All outputs up to a frame of one of these kinds, which comes last; streams as ("stdout", text)."""
        outputs = []
        while True:
            frame = self.frame(seconds)
            if "n" in frame:
                for stream, name in ((1, "stdout"), (2, "stderr")):
                    text = self.split(frame["n"], stream)
                    if text and outputs and outputs[-1][0] == name:
                        outputs[-1] = (name, outputs[-1][1] + text)
                    elif text:
                        outputs.append((name, text))
            if frame["is"] in kinds:
                return outputs, frame
            if frame["is"] != "flush":
                outputs.append((frame["is"], frame))

    def begin(self, code, **more):
        self.n_cells += 1
        self.send(dict({"do": "execute", "id": self.n_cells, "code": code}, **more))
        self.wait_for("begin")

    def run(self, code, **more):
        """Executes a cell. Its outputs and the last frame."""
        self.begin(code, **more)
        return self.wait_for("done")

    def out(self, code, **more):
        """The text of standard output."""
        return "".join(text for kind, text in self.run(code, **more)[0] if kind == "stdout")

    def value(self, code, **more):
        """The text of the result."""
        for kind, frame in self.run(code, **more)[0]:
            if kind == "result":
                return frame["data"]["text/plain"]
        return None

    def error(self, code, **more):
        for kind, frame in self.run(code, **more)[0]:
            if kind == "error":
                return frame
        return None

    def interrupt(self):
        os.killpg(self.pid, signal.SIGINT)

    def copy(self, sock):
        """For a copy of that process, on a socket of its own. Its streams are the same pipes."""
        other = object.__new__(Interpreter)
        vars(other).update(vars(self), sock=sock, frames=b"", is_copy=True)
        return other

    def status(self, seconds=10):
        """Waits for its end. The exit status, or "hung"."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.pid = None
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.002)
        return "hung"

    def close(self):
        self.sock.close()
        for fd in self.fds:
            os.close(fd)
        if self.pid is not None:
            os.killpg(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
