"""`Client`: programs run by `hutch serve`, over a unix socket or TCP, on connections that are kept."""
from __future__ import annotations

import errno
import inspect
import os
import threading
import time
from typing import Any, List, Optional, Tuple

from . import _wire
from ._http import Answer, Connection
from .remote import CallbackFailed, Question, Requests, is_for_code
from .remote_parts import BlockingParts
from .tools import ANSWER_SECONDS


class Client(BlockingParts, Requests):
    """`with hutch.Client("unix:/run/user/1000/hutch/hutch.sock") as client: result = client.run("print(1)")`.

    Any thread may call; each request that is under way has a connection of its own, and connections are kept for the
    next ones. @timeout: seconds without a byte from the server after which a request fails; None waits."""

    def __init__(self, address: Optional[str] = None, *, token: Optional[str] = None,
                 timeout: Optional[float] = None) -> None:
        self._address = _wire.read_address(address)
        self._timeout = timeout
        self._headers = {"Authorization": "Bearer " + token} if token else {}
        self._idle: List[Connection] = []
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

    def _take(self) -> Connection:
        """A forked child leaves the parent's connections alone."""
        with self._lock:
            if self._pid != os.getpid():
                self._idle, self._pid = [], os.getpid()
            while self._idle:
                connection = self._idle.pop()
                if connection.is_idle():
                    connection.was_kept = True
                    return connection
                connection.close()
        return Connection(self._address, self._timeout)

    def _give_back(self, connection: Connection, answer: Answer) -> None:
        if answer.will_close:
            connection.close()
            return
        with self._lock:
            self._idle.append(connection)

    def _send(self, call: _wire.Call) -> Tuple[Connection, Answer]:
        """The answer, of which the body is still to be read. What was sent on a connection that the server was closing
        is sent again on another one."""
        head = _wire.make_head(self._address, call, self._headers)
        while True:
            connection: Optional[Connection] = None
            try:
                connection = self._take()
                return connection, connection.ask(head, call.body)
            except (EOFError, BrokenPipeError, ConnectionResetError) as error:
                if connection is not None:
                    connection.close()
                if connection is None or not connection.was_kept or connection.has_heard:
                    raise _wire.ConnectError("the server at %s closed the connection: %s" % (self._address.text, error),
                                             errno.ECONNRESET) from None
            except (OSError, ValueError) as error:
                if connection is not None:
                    connection.close()
                raise _wire.ConnectError("ask the server at %s: %s (is `hutch serve` running there?)" % (
                    self._address.text, error), getattr(error, "errno", None) or errno.EPROTO) from None
            except BaseException:
                if connection is not None:
                    connection.close()  # its answer would be taken for that of the next request
                raise

    def _do(self, call: _wire.Call) -> Any:
        connection, answer = self._send(call)
        found, is_good = bytearray(), answer.status < 300
        try:
            for piece in answer.pieces():
                if call.to is not None and is_good:
                    _write(call.to, piece)
                    continue
                found += piece
                if call.on_event is not None and is_good:
                    found = _wire.take_lines(found, call.on_event)
        except CallbackFailed as failure:
            connection.close()
            raise failure.error from None
        except (OSError, ValueError, EOFError):
            connection.close()
            raise _wire.broken_off() from None
        except BaseException:
            connection.close()  # which ends the run
            raise
        self._give_back(connection, answer)
        if not is_good:
            raise _wire.make_error(answer.status, answer.headers, bytes(found))
        return call.parse(bytes(found))

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
        while True:
            try:
                self._do(question.answer(value, failure))
                return
            except (_wire.ServerNotFoundError, _wire.ServerConflictError):
                return  # the cell is over, or does not wait any more
            except _wire.ServerBusyError:
                time.sleep(ANSWER_SECONDS)
            except _wire.ServerError as error:
                if not is_for_code(error, question, failure):
                    raise
                failure = error

    def is_ready(self) -> bool:
        """Whether the server's pool is filled and it takes requests."""
        try:
            self._do(_wire.Call("GET", "/readyz", bytes))
        except _wire.ServerError as error:
            if error.status == 503:
                return False
            raise
        return True


def _write(to: Any, piece: bytes) -> None:
    try:
        to.write(piece)
    except Exception as error:
        raise CallbackFailed(error) from error
