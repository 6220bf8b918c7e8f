"""`Client`: programs run by `hutch serve`, over a unix socket or TCP, on connections that are kept."""
from __future__ import annotations

import errno
import http.client
import inspect
import os
import select
import socket
import threading
from typing import Any, List, Optional, Tuple

from . import _wire
from .remote import CallbackFailed, Question, Requests

PIECE = 1 << 20


class _Connection(http.client.HTTPConnection):
    def __init__(self, address: _wire.Address, timeout: Optional[float]) -> None:
        super().__init__(address.host, address.port or None, timeout=timeout)
        self._path = address.path

    def connect(self) -> None:
        if self._path is None:
            super().connect()
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)

    def is_idle(self) -> bool:
        """Nothing has come since the last answer, such as its end."""
        return self.sock is not None and not select.select([self.sock], [], [], 0)[0]


class Client(Requests):
    """`with hutch.Client("unix:/run/user/1000/hutch/hutch.sock") as client: result = client.run("print(1)")`.

    Any thread may call; each request that is under way has a connection of its own, and connections are kept for the
    next ones. @timeout: seconds without a byte from the server after which a request fails; None waits."""

    def __init__(self, address: Optional[str] = None, *, token: Optional[str] = None,
                 timeout: Optional[float] = None) -> None:
        self._address = _wire.read_address(address)
        self._timeout = timeout
        self._headers = {"Authorization": "Bearer " + token} if token else {}
        self._idle: List[_Connection] = []
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections that wait for a request; the next request opens one."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    # --- connections

    def _take(self) -> Tuple[_Connection, bool]:
        """A connection, and whether it is one that was kept. A forked child leaves the parent's alone."""
        with self._lock:
            if self._pid != os.getpid():
                self._idle, self._pid = [], os.getpid()
            while self._idle:
                connection = self._idle.pop()
                if connection.is_idle():
                    return connection, True
                connection.close()
        return _Connection(self._address, self._timeout), False

    def _give_back(self, connection: _Connection, response: http.client.HTTPResponse) -> None:
        if response.will_close:
            connection.close()
            return
        with self._lock:
            self._idle.append(connection)

    def _send(self, call: _wire.Call) -> Tuple[_Connection, http.client.HTTPResponse]:
        """The response, of which the body is still to be read. What was sent on a connection that the server was
        closing is sent again on another one."""
        while True:
            connection, was_kept = self._take()
            try:
                connection.request(call.method, call.path, call.body, {**self._headers, **call.headers})
                return connection, connection.getresponse()
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError) as error:
                connection.close()
                if not was_kept:
                    raise _wire.ConnectError("the server at %s closed the connection: %s" % (self._address.text, error),
                                             errno.ECONNRESET) from None
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                raise _wire.ConnectError("ask the server at %s: %s (is `hutch serve` running there?)" % (
                    self._address.text, error), getattr(error, "errno", None) or errno.EPROTO) from None
            except BaseException:
                connection.close()  # its answer would be taken for that of the next request
                raise

    def _do(self, call: _wire.Call) -> Any:
        connection, response = self._send(call)
        found = b""
        try:
            if call.on_event is not None and response.status < 300:
                for line in response:
                    _wire.read_line(line, call.on_event)
            elif call.to is not None and response.status < 300:
                _pour(response, call.to)
            else:
                found = response.read()
        except CallbackFailed as failure:
            connection.close()
            raise failure.error from None
        except (OSError, http.client.HTTPException):
            connection.close()
            raise _wire.broken_off() from None
        except BaseException:
            connection.close()  # which ends the run
            raise
        self._give_back(connection, response)
        if response.status >= 300:
            told = {name.lower(): value for name, value in response.getheaders()}
            raise _wire.make_error(response.status, told, found)
        return call.parse(found)

    def _reply(self, question: Question, _call: _wire.Call) -> None:
        value, failure = None, None
        try:
            value = question.solve()
            if inspect.iscoroutine(value):
                value.close()
                raise TypeError("a coroutine answers the code of a cell, which AsyncClient can await and Client cannot")
        except Exception as error:
            if not question.is_tool:
                raise
            failure = error
        try:
            self._do(question.answer(value, failure))
        except (_wire.ServerNotFoundError, _wire.ServerConflictError):
            pass  # the cell is over, or does not wait any more

    def is_ready(self) -> bool:
        """Whether the server's pool is filled and it takes requests."""
        try:
            self._do(_wire.Call("GET", "/readyz", bytes))
        except _wire.ServerError as error:
            if error.status == 503:
                return False
            raise
        return True


def _pour(response: http.client.HTTPResponse, to: Any) -> None:
    while True:
        piece = response.read(PIECE)
        if not piece:
            return
        try:
            to.write(piece)
        except Exception as error:
            raise CallbackFailed(error) from error
