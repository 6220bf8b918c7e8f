"""The client's side of a WebSocket for tests, frame by frame: RFC 6455, right and wrong."""
import base64
import hashlib
import json
import os
import struct
import time

import gateway

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Closed(Exception):
    """The server has closed the WebSocket with @code; None: without a word."""

    def __init__(self, code, reason=""):
        super().__init__("%s %s" % (code, reason))
        self.code, self.reason = code, reason


def frame(opcode, data=b"", final=True, mask=b"\x01\x02\x03\x04", rsv=0, length=None):
    """@mask None: unmasked, as no client may send it. @length: another one than that of @data."""
    n = len(data) if length is None else length
    head = bytes([(0x80 if final else 0) | rsv << 4 | opcode])
    bit = 0x80 if mask else 0
    if n < 126:
        head += bytes([bit | n])
    elif n < 65536:
        head += bytes([bit | 126]) + struct.pack("!H", n)
    else:
        head += bytes([bit | 127]) + struct.pack("!Q", n)
    if not mask:
        return head + data
    key = (mask * (len(data) // 4 + 1))[:len(data)]
    return head + mask + (int.from_bytes(data, "big") ^ int.from_bytes(key, "big")).to_bytes(len(data), "big")


def request(path, headers=None, leave_out=()):
    key = base64.b64encode(os.urandom(16)).decode()
    fields = {"Host": "localhost", "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": key,
              **(headers or {})}
    lines = ["GET %s HTTP/1.1" % path] + ["%s: %s" % field for field in fields.items() if field[0] not in leave_out]
    return key, ("\r\n".join(lines) + "\r\n\r\n").encode()


class WebSocket:
    """Opened, or refused: then there is @answer, and nothing else."""

    def __init__(self, server, path, headers=None, early=b"", leave_out=(), sock=None):
        key, data = request(path, headers, leave_out)
        self.sock, self.rest, self.written, self.answer = sock or server.connect(), b"", b"", None
        self.sock.sendall(data + early)
        while b"\r\n\r\n" not in self.rest:
            piece = self.sock.recv(65536)
            assert piece, self.rest
            self.rest += piece
        head, _, rest = self.rest.partition(b"\r\n\r\n")
        answer = gateway.parse(head + b"\r\n\r\n")
        if answer.status != 101:
            while len(rest) < int(answer.headers.get("Content-Length", 0)):
                rest += self.sock.recv(65536)
            self.answer = gateway.parse(head + b"\r\n\r\n" + rest)
            self.sock.close()
            return
        self.rest, self.headers = rest, answer.headers
        assert answer.headers["Sec-Websocket-Accept"] == base64.b64encode(hashlib.sha1(key.encode() + MAGIC).digest()).decode()
        assert answer.headers["Upgrade"].lower() == "websocket" and "upgrade" in answer.headers["Connection"].lower()

    def send(self, opcode, data=b"", **more):
        self.sock.sendall(frame(opcode, data, **more))

    def type(self, text):
        self.send(BINARY, text.encode())

    def control(self, **message):
        self.send(TEXT, json.dumps(message).encode())

    def _take(self, n):
        while len(self.rest) < n:
            try:
                piece = self.sock.recv(65536)
            except ConnectionResetError:
                piece = b""
            if not piece:
                raise Closed(None)
            self.rest += piece
        taken, self.rest = self.rest[:n], self.rest[n:]
        return taken

    def frame(self):
        """The next one: (opcode, data). The server's are whole and unmasked."""
        first, second = self._take(2)
        assert first & 0xf0 == 0x80 and second < 128
        n = second
        if n == 126:
            n = struct.unpack("!H", self._take(2))[0]
            assert n > 125
        elif n == 127:
            n = struct.unpack("!Q", self._take(8))[0]
            assert n > 65535
        return first & 0xf, self._take(n)

    def message(self):
        """('output', bytes), or an event of the server's. It asks now and then whether we are there, which is neither."""
        deadline = time.monotonic() + gateway.SECONDS
        while True:
            assert time.monotonic() < deadline, self.written[-1000:]
            opcode, data = self.frame()
            if opcode == BINARY:
                return "output", data
            if opcode == TEXT:
                event = json.loads(data)
                assert list(event) == ["event", "data"]
                return event["event"], event["data"]
            if opcode == CLOSE:
                raise Closed(struct.unpack("!H", data[:2])[0] if data else 1005, data[2:].decode())
            if opcode == PING:
                self.send(PONG, data)

    def event(self, name):
        """The data of the next one of this name; others are passed over."""
        while True:
            found, data = self.message()
            if found == name:
                return data

    def until(self, text):
        """What is written up to the end of @text; what follows is for the next call."""
        deadline = time.monotonic() + gateway.SECONDS
        wanted = text if isinstance(text, bytes) else text.encode()
        while wanted not in self.written:
            assert time.monotonic() < deadline, self.written[-1000:]
            name, data = self.message()
            if name == "output":
                self.written += data
        end = self.written.index(wanted) + len(wanted)
        seen, self.written = self.written[:end], self.written[end:]
        return seen

    def closed(self):
        """How it was closed: (code, reason), after whatever else came."""
        try:
            while True:
                self.message()
        except Closed as closed:
            return closed.code, closed.reason

    def shut(self):
        self.sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.shut()
