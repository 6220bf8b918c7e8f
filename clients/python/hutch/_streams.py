"""Answers that go on for as long as something lasts: events of a process or of a directory, one line each."""
from __future__ import annotations

import asyncio
import collections
import threading
from typing import TYPE_CHECKING, Any, AsyncIterator, Deque, Optional, Tuple

from . import _wire

if TYPE_CHECKING:
    from .async_client import AsyncClient
    from .client import Client

Event = Tuple[str, Any]


class Events:
    """The events of one answer, read by whoever asks for the next."""

    def __init__(self, client: "Client", call: _wire.Call) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._connection, self._answer = client._send(call)
        self._pieces = self._answer.pieces()
        self._rest = bytearray()
        self._events: Deque[Event] = collections.deque()
        if self._answer.status >= 300:
            raise _wire.make_error(self._answer.status, self._answer.headers, self._read_all())

    def _read_all(self) -> bytes:
        try:
            found = b"".join(self._pieces)
        except BaseException as error:
            self.close()
            if isinstance(error, (OSError, ValueError, EOFError)):
                raise _wire.broken_off() from None
            raise
        self._client._give_back(self._connection, self._answer)
        return found

    def next(self) -> Event:
        """Raises ConnectError when there is none any more: the last event is for the caller to know."""
        with self._lock:
            try:
                while not self._events:
                    piece = next(self._pieces, None)
                    if piece is None:
                        raise EOFError
                    self._rest += piece
                    self._rest = _wire.take_lines(self._rest, lambda event, data: self._events.append((event, data)))
            except BaseException as error:  # another thread has closed it, too
                self.close()
                if isinstance(error, (OSError, ValueError, EOFError)):
                    raise _wire.broken_off() from None
                raise
            return self._events.popleft()

    def finish(self) -> None:
        """The last event was there: the connection can be kept."""
        with self._lock:
            try:
                for _ in self._pieces:
                    pass
            except (OSError, ValueError, EOFError):
                self.close()
                return
        self._client._give_back(self._connection, self._answer)

    def close(self) -> None:
        """Leaves. A thread that waits for an event gets ConnectError."""
        self._connection.abort()


class AsyncEvents:
    """The same with asyncio. A task that waits for the next event can be cancelled without a loss."""

    def __init__(self, client: "AsyncClient", answer: Any) -> None:
        self._client, self._answer = client, answer
        self._pieces: AsyncIterator[bytes] = answer.pieces()
        self._rest = bytearray()
        self._events: Deque[Event] = collections.deque()
        self._reading: "Optional[asyncio.Future[None]]" = None

    @classmethod
    async def open(cls, client: "AsyncClient", call: _wire.Call) -> "AsyncEvents":
        answer = await client._send(call)
        events = cls(client, answer)
        if answer.status < 300:
            return events
        try:
            body = b"".join([piece async for piece in answer.pieces()])
        except (OSError, ValueError, EOFError):
            events.close()
            raise _wire.broken_off() from None
        except BaseException:
            events.close()
            raise
        events._give_back()
        raise _wire.make_error(answer.status, answer.headers, body)

    async def next(self) -> Event:
        """Raises ConnectError when there is none any more: the last event is for the caller to know."""
        while not self._events:
            if self._reading is None:
                self._reading = asyncio.ensure_future(self._read())
            reading = self._reading
            await asyncio.wait([reading])  # which a cancellation of this task leaves running
            if self._reading is reading:
                self._reading = None
            if reading.cancelled() or isinstance(reading.exception(), (OSError, ValueError, EOFError)):
                self.close()
                raise _wire.broken_off()
            reading.result()
        return self._events.popleft()

    async def _read(self) -> None:
        try:
            piece = await self._pieces.__anext__()
        except StopAsyncIteration:
            raise EOFError from None
        self._rest += piece
        self._rest = _wire.take_lines(self._rest, lambda event, data: self._events.append((event, data)))

    async def finish(self) -> None:
        """The last event was there: the connection can be kept."""
        try:
            async for _ in self._pieces:
                pass
        except (OSError, ValueError, EOFError):
            self.close()
            return
        except BaseException:
            self.close()
            raise
        self._give_back()

    def _give_back(self) -> None:
        if self._answer.will_close:
            self.close()
        else:
            self._client._idle.append(self._answer.connection)

    def close(self) -> None:
        """Leaves. A task that waits for an event gets ConnectError."""
        if self._reading is not None and not self._reading.done():
            self._reading.cancel()
        self._answer.connection.close()
