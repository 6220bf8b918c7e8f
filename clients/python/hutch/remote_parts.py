"""What sessions on a server give out: processes and watched directories, for Client and for AsyncClient."""
from __future__ import annotations

import asyncio
import base64
import signal
import threading
from typing import TYPE_CHECKING, Any, AsyncIterator, Callable, Dict, Generator, Iterable, Iterator, List, Optional, \
    Tuple, Type

from ._streams import AsyncEvents, Event, Events
from ._wire import Call, ConnectError, ServerError, broken_off, nothing, read_object
from .errors import EngineError
from .options import Text, source
from .paths import Change
from .results import ProcessEnd

if TYPE_CHECKING:
    from .remote import RemoteSession

Chunk = Tuple[str, bytes]
OnBytes = Callable[[str, bytes], Any]
INPUT_BYTES = 512 << 10  # of one request; a server takes 1 MiB


def _ignore(_event: str, _data: Any) -> None:
    """That there is one asks for a stream."""


def stream_call(method: str, path: str, body: Optional[bytes] = None) -> Call:
    return Call(method, path, nothing, body, on_event=_ignore)


def read_chunk(data: Dict[str, Any]) -> Chunk:
    """What is no text has base64 beside it."""
    if "base64" in data:
        return data["stream"], base64.b64decode(data["base64"])
    return data["stream"], data["text"].encode("utf-8")


def read_end(data: Dict[str, Any]) -> ProcessEnd:
    code, number = data["exit_code"], data["signal"]
    return ProcessEnd(-1 if code is None else code, number or 0, data["message"] or "", data["truncated"],
                      data["run_ms"])


class ProcessOrders:
    """What a process is told, in both clients. Of an AsyncClient, what the methods return is to be awaited."""

    def __init__(self, session: "RemoteSession", number: int, on_output: Optional[OnBytes] = None) -> None:
        self._session = session
        self._on_output = on_output
        self._end: Optional[ProcessEnd] = None
        self._failure: Optional[Exception] = None  # the caller's own
        self.id = number
        self.dropped = 0  # bytes of output that came while nobody listened, and are lost

    def done(self) -> bool:
        """Whether its end has been heard."""
        return self._end is not None

    def _order(self, what: str, body: Optional[Dict[str, Any]] = None) -> Any:
        return self._session._ask("POST", "/processes/%d/%s" % (self.id, what), nothing, body)

    def _output_call(self) -> Call:
        return stream_call("GET", self._session._path("/processes/%d/output" % self.id))

    def write(self, data: Text) -> Any:
        """Returns when its input has taken all of it. ServerConflictError when it was closed, or while another call
        writes."""
        return self._session._client._in_turn(self._input_calls(source(data)), nothing)

    def _input_calls(self, text: bytes) -> Iterator[Call]:
        for begin in range(0, len(text), INPUT_BYTES):
            piece = base64.b64encode(text[begin:begin + INPUT_BYTES])
            yield Call("POST", self._session._path("/processes/%d/stdin" % self.id), nothing,
                       b'{"data_base64": "' + piece + b'"}')

    def close_stdin(self) -> Any:
        return self._order("close_stdin")

    def signal(self, number: int) -> Any:
        """To its process group."""
        return self._order("signal", {"signal": int(number)})

    def resize(self, rows: int, columns: int) -> Any:
        return self._order("resize", {"rows": rows, "cols": columns})

    def _take(self, event: Event) -> Optional[Chunk]:
        """Output; None for another event."""
        what, data = event
        if what == "output":
            return read_chunk(data)
        if what == "dropped":
            self.dropped += data["bytes"]
        elif what == "end":
            self._end = read_end(data)
        return None

    def _show(self, chunk: Chunk) -> bool:
        """False when the caller's own callback failed, which ends the process."""
        if self._on_output is not None:
            try:
                self._on_output(*chunk)
            except Exception as error:
                self._on_output, self._failure = None, error
                return False
        return True


class RemoteProcess(ProcessOrders):
    """A program in a session on a server: `wait()` is its end, `for stream, data in process` what it prints. Both read
    what the server has, in the thread that calls, and call on_output. While nobody reads, the process waits when 256
    KiB are on the way, if it was started with stream or on_output; else its last 64 KiB are kept."""

    def __init__(self, session: "RemoteSession", number: int, on_output: Optional[OnBytes] = None,
                 events: Optional[Events] = None) -> None:
        super().__init__(session, number, on_output)
        self._events = events
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[Chunk]:
        while True:
            chunk = self._next()
            if chunk is None:
                return
            yield chunk

    def wait(self) -> ProcessEnd:
        """Its end; what is left of its output goes to on_output alone. After a ConnectError it can be called again, and
        listens anew. Ctrl-C leaves the process running."""
        while self._next() is not None:
            pass
        assert self._end is not None
        return self._end

    def close(self) -> None:
        """Listens no more. The process goes on, and `session.find_process(process.id)` finds it."""
        events, self._events = self._events, None
        if events is not None:
            events.close()

    def _next(self) -> Optional[Chunk]:
        with self._lock:
            while self._end is None and self._failure is None:
                if self._events is None:
                    self._events = Events(self._session._client, self._output_call())  # type: ignore[arg-type]
                events = self._events
                try:
                    chunk = self._take(events.next())
                except BaseException:
                    self.close()
                    raise
                if chunk is not None and self._show(chunk):
                    return chunk
            self._finish()
            return None

    def _finish(self) -> None:
        events, self._events = self._events, None
        if self._failure is None:
            if events is not None:
                events.finish()
            return
        if events is not None:
            events.close()
            try:
                self.signal(signal.SIGKILL)
            except ServerError:
                pass  # it has ended
        raise self._failure


class AsyncRemoteProcess(ProcessOrders):
    """The same of an AsyncClient: `await process` is its end, `async for stream, data in process` what it prints. A task
    of its own listens, from the begin with stream or on_output. Cancelling a task that waits leaves the process
    running."""

    def __init__(self, session: "RemoteSession", number: int, on_output: Optional[OnBytes] = None,
                 events: Optional[AsyncEvents] = None, streams: bool = False) -> None:
        super().__init__(session, number, on_output)
        self._chunks: "Optional[asyncio.Queue[Optional[Chunk]]]" = asyncio.Queue() if streams else None
        self._task: "Optional[asyncio.Task[None]]" = None
        if events is not None:
            self._listen(events)

    def __await__(self) -> Generator[Any, None, ProcessEnd]:
        return self.wait().__await__()

    async def wait(self) -> ProcessEnd:
        """Its end. After a ConnectError it can be called again, and listens anew."""
        while self._end is None:
            task = self._listen()
            await asyncio.wait([task])
            self._check(task)
        return self._end

    async def __aiter__(self) -> AsyncIterator[Chunk]:
        if self._chunks is None:
            if self._task is not None:
                raise EngineError("the process was started without stream=True")
            self._chunks = asyncio.Queue()
        while True:
            task = self._listen()
            chunk = await self._chunks.get()
            if chunk is not None:
                yield chunk
            elif self._end is not None:
                self._chunks.put_nowait(None)  # for whoever iterates once more
                return
            elif task.done():  # else it was of one before, whose error another has been told
                self._check(task)

    async def close(self) -> None:
        """Listens no more. The process goes on, and `session.find_process(process.id)` finds it."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def _listen(self, events: Optional[AsyncEvents] = None) -> "asyncio.Task[None]":
        if self._failure is not None:
            raise self._failure
        if self._task is None:
            self._task = asyncio.ensure_future(self._hear(events))
            self._task.add_done_callback(_forgive)
        return self._task

    def _check(self, task: "asyncio.Task[None]") -> None:
        """Raises what ended the task. The next who waits listens anew."""
        if self._end is not None:
            return
        if self._task is task:
            self._task = None
        if task.cancelled():
            raise broken_off()
        task.result()

    async def _hear(self, events: Optional[AsyncEvents]) -> None:
        try:
            if events is None:
                events = await AsyncEvents.open(self._session._client, self._output_call())  # type: ignore[arg-type]
            while self._end is None:
                chunk = self._take(await events.next())
                if chunk is None:
                    continue
                if self._chunks is not None:
                    self._chunks.put_nowait(chunk)
                if not self._show(chunk):
                    await self._kill()
            await events.finish()
        except BaseException:
            if events is not None:
                events.close()
            raise
        finally:
            if self._chunks is not None:
                self._chunks.put_nowait(None)

    async def _kill(self) -> None:
        try:
            await self.signal(signal.SIGKILL)
        except ServerError:
            pass  # it has ended
        assert self._failure is not None
        raise self._failure


def _forgive(task: "asyncio.Task[None]") -> None:
    """What nobody awaits any more is no mistake."""
    if not task.cancelled():
        task.exception()


class RemoteWatch:
    """A directory in a session on a server that is watched: `for change in watch`, and `with` ends it. `close()` by
    another thread ends it, too. When it has ended by itself `why` says it."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._is_over = False
        self.why: Optional[str] = None

    def __enter__(self) -> "RemoteWatch":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __iter__(self) -> Iterator[Change]:
        while not self._is_over:
            try:
                event, data = self._events.next()
            except ConnectError:
                if self._is_over:  # closed
                    return
                self._is_over = True
                raise
            if event == "end":
                self._is_over, self.why = True, data["message"]
                self._events.finish()
            elif event in ("change", "lost"):
                yield Change.from_event(event, data)

    def close(self) -> None:
        """Leaves off watching. More than once is fine."""
        if not self._is_over:
            self._is_over = True
            self._events.close()


class AsyncRemoteWatch:
    """The same of an AsyncClient: `async for change in watch`, `async with`, `await watch.close()`."""

    def __init__(self, events: AsyncEvents) -> None:
        self._events = events
        self._is_over = False
        self.why: Optional[str] = None

    async def __aenter__(self) -> "AsyncRemoteWatch":
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()

    async def __aiter__(self) -> AsyncIterator[Change]:
        while not self._is_over:
            try:
                event, data = await self._events.next()
            except ConnectError:
                if self._is_over:  # closed
                    return
                self._is_over = True
                raise
            if event == "end":
                self._is_over, self.why = True, data["message"]
                await self._events.finish()
            elif event in ("change", "lost"):
                yield Change.from_event(event, data)

    async def close(self) -> None:
        """Leaves off watching. More than once is fine."""
        if not self._is_over:
            self._is_over = True
            self._events.close()


# --- how a client makes them

class BlockingParts:
    """The part of Client that is about them."""

    def _in_turn(self, calls: Iterable[Call], join: Callable[[List[Any]], Any]) -> Any:
        return join([self._do(call) for call in calls])  # type: ignore[attr-defined]

    def _unless(self, kind: Type[ServerError], call: Call) -> Any:
        try:
            return self._do(call)  # type: ignore[attr-defined]
        except kind:
            return False

    def _open(self, call: Call, make: Callable[[Events, Any], Any]) -> Any:
        events = Events(self, call)  # type: ignore[arg-type]
        return make(events, events.next()[1])

    def _spawn(self, session: "RemoteSession", body: bytes, on_output: Optional[OnBytes], streams: bool,
               listens: bool) -> Any:
        path = session._path("/processes")
        if not listens:
            return self._do(Call("POST", path, lambda found: RemoteProcess(  # type: ignore[attr-defined]
                session, read_object(found)["id"]), body))
        return self._open(stream_call("POST", path, body),
                          lambda events, first: RemoteProcess(session, first["id"], on_output, events))

    def _watch(self, path: str) -> Any:
        return self._open(stream_call("GET", path), lambda events, _first: RemoteWatch(events))

    @staticmethod
    def _find_process(session: "RemoteSession", number: int) -> Any:
        return RemoteProcess(session, number)


class AsyncParts:
    """The part of AsyncClient that is about them."""

    async def _in_turn(self, calls: Iterable[Call], join: Callable[[List[Any]], Any]) -> Any:
        return join([await self._do(call) for call in calls])  # type: ignore[attr-defined]

    async def _unless(self, kind: Type[ServerError], call: Call) -> Any:
        try:
            return await self._do(call)  # type: ignore[attr-defined]
        except kind:
            return False

    async def _open(self, call: Call, make: Callable[[AsyncEvents, Any], Any]) -> Any:
        events = await AsyncEvents.open(self, call)  # type: ignore[arg-type]
        try:
            return make(events, (await events.next())[1])
        except BaseException:
            events.close()
            raise

    async def _spawn(self, session: "RemoteSession", body: bytes, on_output: Optional[OnBytes], streams: bool,
                     listens: bool) -> Any:
        path = session._path("/processes")
        if not listens:
            return await self._do(Call("POST", path, lambda found: AsyncRemoteProcess(  # type: ignore[attr-defined]
                session, read_object(found)["id"]), body))
        return await self._open(stream_call("POST", path, body), lambda events, first: AsyncRemoteProcess(
            session, first["id"], on_output, events, streams))

    async def _watch(self, path: str) -> Any:
        return await self._open(stream_call("GET", path), lambda events, _first: AsyncRemoteWatch(events))

    @staticmethod
    def _find_process(session: "RemoteSession", number: int) -> Any:
        return AsyncRemoteProcess(session, number)
