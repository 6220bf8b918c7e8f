"""`AsyncClient`: the same with asyncio. HTTP/1.1 as far as the server speaks it: an answer has a length, or comes in
chunks."""
from __future__ import annotations

import asyncio
import errno
import inspect
from typing import Any, AsyncIterator, Dict, List, Optional

from . import _wire
from .remote import CallbackFailed, Question, Requests, is_for_code
from .remote_parts import AsyncParts
from .tools import ANSWER_SECONDS


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.was_kept = False

    def close(self) -> None:
        self.writer.close()

    def is_idle(self) -> bool:
        """Nothing has come since the last answer, such as its end."""
        return not self.reader.at_eof() and not self.writer.is_closing() and not self.reader._buffer  # type: ignore

    async def line(self) -> bytes:
        line = await self.reader.readline()
        if not line.endswith(b"\n"):
            raise asyncio.IncompleteReadError(line, None)
        return line.rstrip(b"\r\n")


class _Answer:
    """Status and headers, and the body as it comes."""

    def __init__(self, connection: _Connection, status: int, headers: Dict[str, str], is_first_version: bool) -> None:
        self.connection, self.status, self.headers = connection, status, headers
        self.will_close = is_first_version or headers.get("connection", "").lower() == "close"

    async def pieces(self) -> AsyncIterator[bytes]:
        connection = self.connection
        if "transfer-encoding" in self.headers:
            _wire.check_coding(self.headers)
            while True:
                size = _wire.read_chunk_size(await connection.line())
                if size == 0:
                    while await connection.line():
                        pass
                    return
                while size > 0:
                    piece = await connection.reader.readexactly(min(size, 1 << 16))
                    size -= len(piece)
                    yield piece
                if await connection.line():
                    raise ValueError("a chunk of the answer is longer than it says")
        elif "content-length" in self.headers:
            left = _wire.read_length(self.headers["content-length"])
            while left > 0:
                piece = await connection.reader.readexactly(min(left, 1 << 16))
                left -= len(piece)
                yield piece
        elif self.status not in (204, 304):
            self.will_close = True
            while True:
                piece = await connection.reader.read(1 << 16)
                if not piece:
                    return
                yield piece


class AsyncClient(AsyncParts, Requests):
    """`async with hutch.AsyncClient() as client: result = await client.run("print(1)")`. Cancelling the task that
    awaits a run closes its connection, and so ends the run."""

    def __init__(self, address: Optional[str] = None, *, token: Optional[str] = None) -> None:
        self._address = _wire.read_address(address)
        self._headers = {"Authorization": "Bearer " + token} if token else {}
        self._idle: List[_Connection] = []
        self._loop: Optional[asyncio.AbstractEventLoop] = None

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections that wait for a request; the next request opens one."""
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
        for connection in idle:
            try:
                await connection.writer.wait_closed()
            except OSError:
                pass

    async def _take(self) -> _Connection:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._idle, self._loop = [], loop  # those of another loop ended with it
        while self._idle:
            connection = self._idle.pop()
            if connection.is_idle():
                connection.was_kept = True
                return connection
            connection.close()
        if self._address.path is not None:
            return _Connection(*await asyncio.open_unix_connection(self._address.path, limit=_wire.MAX_LINE))
        return _Connection(*await asyncio.open_connection(self._address.host, self._address.port, limit=_wire.MAX_LINE))

    async def _send(self, call: _wire.Call) -> _Answer:
        """What was sent on a connection that the server was closing is sent again on another one."""
        head = _wire.make_head(self._address, call, self._headers)
        while True:
            connection: Optional[_Connection] = None
            try:
                connection = await self._take()
                connection.writer.write(head + (call.body or b""))
                await connection.writer.drain()
                return await _read_head(connection)
            except (asyncio.IncompleteReadError, BrokenPipeError, ConnectionResetError) as error:
                if connection is not None:
                    connection.close()
                if connection is None or not connection.was_kept or getattr(error, "partial", None):
                    raise _wire.ConnectError("the server at %s closed the connection" % self._address.text,
                                             errno.ECONNRESET) from None
            except (OSError, ValueError) as error:
                if connection is not None:
                    connection.close()
                raise _wire.ConnectError("ask the server at %s: %s (is `hutch serve` running there?)" % (
                    self._address.text, error), getattr(error, "errno", None) or errno.EPROTO) from None
            except BaseException:
                if connection is not None:
                    connection.close()
                raise

    async def _do(self, call: _wire.Call) -> Any:
        answer = await self._send(call)
        call.abort.append(answer.connection.close)
        found, is_good = bytearray(), answer.status < 300
        try:
            async for piece in answer.pieces():
                if call.to is not None and is_good:
                    _write(call.to, piece)
                    continue
                found += piece
                if call.on_event is not None and is_good:
                    found = _wire.take_lines(found, call.on_event)
        except CallbackFailed as failure:
            answer.connection.close()
            raise failure.error from None
        except (OSError, ValueError, EOFError):
            answer.connection.close()
            raise call.failures[0] if call.failures else _wire.broken_off() from None
        except BaseException:
            answer.connection.close()  # which ends the run
            raise
        finally:
            for task in call.tasks:
                task.cancel()
        if answer.will_close:
            answer.connection.close()
        else:
            self._idle.append(answer.connection)
        if not is_good:
            raise _wire.make_error(answer.status, answer.headers, bytes(found))
        if call.failures:
            raise call.failures[0]
        return call.parse(bytes(found))

    def _reply(self, question: Question, call: _wire.Call) -> None:
        call.tasks.append(asyncio.ensure_future(self._reply_later(question, call)))

    async def _reply_later(self, question: Question, call: _wire.Call) -> None:
        value, failure = None, None
        try:
            value = question.solve()
            if inspect.isawaitable(value):
                value = await value
        except Exception as error:
            failure = error
            if not question.is_tool:
                call.failures.append(error)
        while True:
            try:
                await self._do(question.answer(value, failure))
                return
            except (_wire.ServerNotFoundError, _wire.ServerConflictError):
                return  # the cell is over, or does not wait any more
            except _wire.ServerBusyError:
                await asyncio.sleep(ANSWER_SECONDS)
            except Exception as error:
                if not is_for_code(error, question, failure):
                    call.failures.append(error)
                    call.abort[0]()  # the cell would wait for ever
                    return
                failure = error

    async def is_ready(self) -> bool:
        """Whether the server's pool is filled and it takes requests."""
        try:
            await self._do(_wire.Call("GET", "/readyz", bytes))
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


async def _read_head(connection: _Connection) -> _Answer:
    status = 100
    while status < 200:
        status, is_first_version = _wire.read_status(await connection.line())
        headers: Dict[str, str] = {}
        while True:
            line = await connection.line()
            if not line:
                break
            _wire.read_header(line, headers)
    return _Answer(connection, status, headers, is_first_version)
