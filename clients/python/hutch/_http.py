"""The connections of `Client`: HTTP/1.1 as far as the server speaks it. An answer has a length, or comes in chunks.

http.client would do it, too. It writes head and body of a request by themselves, for which the server wakes up twice,
and reads headers as those of mail: that took 0.2 ms of a request that comes every now and then."""
from __future__ import annotations

import select
import socket
from typing import Dict, Iterator, Optional

from . import _wire

SMALL = 1 << 16  # sent in one piece with the head
RECEIVED = 1 << 18


class Connection:
    def __init__(self, address: _wire.Address, timeout: Optional[float]) -> None:
        if address.path is None:
            self._sock = socket.create_connection((address.host, address.port), timeout)
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        else:
            self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._sock.settimeout(timeout)
            try:
                self._sock.connect(address.path)
            except BaseException:
                self._sock.close()
                raise
        self._rest = b""
        self._poll = select.poll()
        self._poll.register(self._sock, select.POLLIN)
        self.was_kept = False
        self.has_heard = False  # something of the answer

    def close(self) -> None:
        self._sock.close()

    def abort(self) -> None:
        """Closes it, and has another thread that waits for the answer hear of that."""
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._sock.close()

    def is_idle(self) -> bool:
        """Nothing has come since the last answer, such as its end."""
        return not self._rest and not self._poll.poll(0)

    def ask(self, head: bytes, body: Optional[bytes]) -> "Answer":
        """Sends a request; the answer, of which the body is still to be read."""
        self.has_heard = False
        if body is None or len(body) <= SMALL:
            self._sock.sendall(head + (body or b""))
        else:
            self._sock.sendall(head)
            self._sock.sendall(body)
        status = 100
        while status < 200:
            status, is_first_version = _wire.read_status(self.line())
            headers: Dict[str, str] = {}
            while True:
                line = self.line()
                if not line:
                    break
                _wire.read_header(line, headers)
        return Answer(self, status, headers, is_first_version)

    def line(self) -> bytes:
        while True:
            line, end, rest = self._rest.partition(b"\n")
            if end:
                self._rest = rest
                return line.rstrip(b"\r")
            if len(line) > _wire.MAX_LINE:
                raise ValueError("the answer has a line of more than %d bytes" % _wire.MAX_LINE)
            self._rest += self._receive()

    def piece(self, most: int) -> bytes:
        """What there is, and no more than @most. Raises EOFError at the end."""
        if not self._rest:
            self._rest = self._receive()
        found, self._rest = self._rest[:most], self._rest[most:]
        return found

    def _receive(self) -> bytes:
        found = self._sock.recv(RECEIVED)
        if not found:
            raise EOFError("it has ended the connection")
        self.has_heard = True
        return found


class Answer:
    """Status and headers, and the body as it comes."""

    def __init__(self, connection: Connection, status: int, headers: Dict[str, str], is_first_version: bool) -> None:
        self._connection, self.status, self.headers = connection, status, headers
        self.will_close = is_first_version or headers.get("connection", "").lower() == "close"

    def pieces(self) -> Iterator[bytes]:
        connection = self._connection
        if "transfer-encoding" in self.headers:
            _wire.check_coding(self.headers)
            while True:
                left = _wire.read_chunk_size(connection.line())
                if left == 0:
                    while connection.line():
                        pass
                    return
                while left > 0:
                    piece = connection.piece(left)
                    left -= len(piece)
                    yield piece
                if connection.line():
                    raise ValueError("a chunk of the answer is longer than it says")
        elif "content-length" in self.headers:
            left = _wire.read_length(self.headers["content-length"])
            while left > 0:
                piece = connection.piece(left)
                left -= len(piece)
                yield piece
        elif self.status not in (204, 304):
            self.will_close = True
            while True:
                try:
                    piece = connection.piece(RECEIVED)
                except EOFError:
                    return
                yield piece
