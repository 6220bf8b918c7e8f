# The interpreter's side of its socket: frames out, orders in (docs/cells.md). What writes is C
# (rootfs/helper/channel.c).
import os
import sys

SOCKET = 3
FRAME_MAX = 16 << 20  # bytes of one frame
ORDER_MAX = 64 << 20  # more than the engine ever sends
TEXT_MAX = 64 << 10  # characters of what is told besides outputs
CMSG_MAX = 256


def set_helper(helper, ctypes):
    text, size, number = ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int
    helper.hutch_channel_open.argtypes = [text]
    helper.hutch_channel_move.argtypes = [number]
    helper.hutch_channel_send_unnumbered.argtypes = helper.hutch_channel_write.argtypes = [number, text, size]
    helper.hutch_channel_send.argtypes = [text, size]
    helper.hutch_channel_deafen.restype = None
    Channel.helper, Channel.deafen = helper, helper.hutch_channel_deafen


class Closed(Exception):
    """The other end of the socket is closed, or sends what is no order."""


class Channel:
    helper = None  # set once, before the first fork
    # Of the helper: no interrupt comes from here on. It is one step of the interpreter and no function of Python's, at
    # whose begin the next interrupt could come: the first sign of an impatient caller is not the last.
    deafen = None
    mail = None  # set in the worker: what waits for orders in the middle of a cell (calls.py)

    def __init__(self):
        self.sock = None
        self.unmarked = set()  # streams to which something was written since the last frame

    def open(self, token):
        """Takes descriptor 3; the streams are 1 and 2."""
        import socket

        self.sock = socket.socket(fileno=SOCKET)
        self.sock.setblocking(True)
        if self.helper.hutch_channel_open(token.encode("ascii")) < 0:
            raise OSError("no descriptor is left for the streams")

    def move(self):
        """In a process that goes on in another's place, whose socket is descriptor 3 now: same number, same object."""
        self.helper.hutch_channel_move(SOCKET)

    # --- out ---

    def send(self, frame):
        """With a number and marks. Values are strings, numbers, and what json knows; no lone surrogates go out."""
        self.send_text(encode(frame))

    def send_text(self, text):
        self.unmarked.clear()
        if self.helper.hutch_channel_send(text[1:], len(text) - 1) < 0:
            os._exit(1)  # the engine is gone, or the program has closed the socket

    def write(self, stream, data):
        self.unmarked.add(stream)
        if self.helper.hutch_channel_write(stream, data, len(data)) < 0:
            raise OSError("write to the standard streams")

    def flush(self, stream):
        """What was written to it is a message of its own; the other stream's is still to come."""
        if stream in self.unmarked:
            others = self.unmarked - {stream}
            self.send({"is": "flush", "stream": stream})
            self.unmarked.update(others)

    def send_unnumbered(self, frame, fd=SOCKET):
        """Without a number. Errors are ignored: the other end is gone then."""
        text = encode(frame)
        self.helper.hutch_channel_send_unnumbered(fd, text, len(text))

    # --- in ---

    def receive(self):
        """The next order and the descriptors that came with it. Blocks; signals may interrupt it between two orders
        only."""
        head, fds = self.receive_some(4)
        while len(head) < 4:
            more, more_fds = self.receive_some(4 - len(head))
            head, fds = head + more, fds + more_fds
        size = int.from_bytes(head, "little")
        if size > ORDER_MAX:
            raise Closed
        body = bytearray()
        while len(body) < size:
            piece, more_fds = self.receive_some(min(size - len(body), 1 << 20))
            body += piece
            fds += more_fds
        return decode(body), fds

    def receive_in_cell(self):
        """The next order, in the middle of a cell; None: there is none yet. An interrupt comes before or after an
        order, never amid."""
        import _signal
        import select

        if not select.select([SOCKET], [], [], 0)[0]:
            return None
        try:
            _signal.pthread_sigmask(_signal.SIG_BLOCK, {_signal.SIGINT})
            order, fds = self.receive()
        finally:
            _signal.pthread_sigmask(_signal.SIG_UNBLOCK, {_signal.SIGINT})
        for fd in fds:
            os.close(fd)
        return order

    def receive_some(self, size):
        import array
        import socket

        data, ancillary, _, _ = self.sock.recvmsg(size, CMSG_MAX, socket.MSG_CMSG_CLOEXEC)
        if not data:
            raise Closed
        fds = array.array("i")
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
        return data, list(fds)


def shortened(text):
    return text if len(text) <= TEXT_MAX else text[:TEXT_MAX] + "..."


def decode(body):
    import json

    return json.loads(body)


def encode(frame):
    import json

    text = json.dumps(frame, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")


def flush(stream):
    try:
        stream.flush()
    except Exception:
        pass


def flush_streams():
    flush(sys.stdout)
    flush(sys.stderr)


def new_id():
    """As jupyter_client's."""
    text = os.urandom(16).hex()
    return text[:8] + "-" + text[8:]
