"""An engine of libhutch in an asyncio loop: the engine's descriptor is watched by the loop, and nothing here blocks."""
from __future__ import annotations

import asyncio
import collections
from dataclasses import fields
from typing import Any, AsyncIterator, Callable, Deque, Dict, Generator, List, Optional, Tuple

from . import _abi, _library
from ._core import Core, Owner
from .errors import BusyError, ClosedError, EngineError, NotFoundError
from .functions import Function, Import, describe
from .options import Limits, Stats, Text, make_call, make_engine_options, make_function, make_request, \
    make_session_options
from .results import Result
from .sessions import Session

Chunk = Tuple[str, bytes]
STREAMS = {1: "stdout", 2: "stderr"}


class Run(Owner):
    """A run that was handed in: `await run` is its result, `async for stream, data in run` what it prints meanwhile.
    When a task that awaits it is cancelled, so is the run."""

    def __init__(self, engine: "Engine", on_output: Optional[Callable[[str, bytes], Any]], streams: bool) -> None:
        self._engine = engine
        self._on_output = on_output
        self._future: "asyncio.Future[Result]" = asyncio.get_running_loop().create_future()
        self._chunks: "Optional[asyncio.Queue[Optional[Chunk]]]" = asyncio.Queue() if streams else None
        self.id = 0

    def __await__(self) -> Generator[Any, None, Result]:
        return self.result().__await__()

    async def result(self) -> Result:
        try:
            return await self._future
        except asyncio.CancelledError:
            self.cancel()
            raise

    async def __aiter__(self) -> AsyncIterator[Chunk]:
        if self._chunks is None:
            raise EngineError("the run was started without stream=True, so what it prints is in its result")
        while True:
            chunk = await self._chunks.get()
            if chunk is None:
                self._chunks.put_nowait(None)  # for whoever iterates once more
                return
            yield chunk

    def done(self) -> bool:
        return self._future.done()

    def cancel(self) -> bool:
        """Ends it; its result says "killed". False when it is over."""
        return self._engine.is_open and self.id != 0 and self._engine._core.cancel(self.id)

    def signal(self, number: int) -> bool:
        """Passes a signal on, as a terminal does; two seconds later it is killed."""
        return self._engine.is_open and self.id != 0 and self._engine._core.signal(self.id, number)

    def hear(self, what: str, value: Any) -> None:
        if what == "output":
            self._hear_output(STREAMS.get(value[0], "stdout"), value[1])
            return
        if not self._future.done():
            if what == "result":
                self._future.set_result(value)
            else:
                self._fail(value)
        if self._chunks is not None:
            self._chunks.put_nowait(None)
        self._engine._leave_room()

    def _hear_output(self, stream: str, data: bytes) -> None:
        if self._chunks is not None:
            self._chunks.put_nowait((stream, data))
        if self._on_output is None:
            return
        try:
            self._on_output(stream, data)
        except Exception as error:  # the caller's own: it is raised where the run is awaited
            self._on_output = None
            self._fail(error)
            self.cancel()

    def _fail(self, error: BaseException) -> None:
        if not self._future.done():
            self._future.set_exception(error if isinstance(error,
                                                           Exception) else EngineError("interrupted: %r" % error))
            self._future.exception()  # a run that nobody awaits any more is no mistake


class Engine:
    """Sandboxes that are kept warm. `async with hutch.Engine() as engine: result = await engine.run("print(1)")`.

    It is opened at once, which takes some milliseconds; zygotes and sandboxes get ready while the loop runs. Options
    are those of struct hutch_engine_options under their own names. It may be used by one loop after another, but by one
    thread only. @wait_when_full: with a full queue, `run()` waits for a place in the order of the calls, and does not
    raise BusyError."""

    def __init__(self, *, library: Optional[str] = None, wait_when_full: bool = True, **options: Any) -> None:
        for name, value in _library.surroundings().items():
            options.setdefault(name, value)
        self._core = Core(_library.load(library), make_engine_options(**options))
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self._wait_when_full = wait_when_full
        self._room: "Deque[asyncio.Future[None]]" = collections.deque()
        self._broken: Optional[EngineError] = None
        self._functions: Dict[str, Import] = {}

    async def __aenter__(self) -> "Engine":
        self._attach()
        return self

    async def __aexit__(self, *_: Any) -> None:
        self.close()

    @property
    def is_open(self) -> bool:
        return self._core.handle is not None

    # --- the loop

    def _attach(self) -> None:
        """Has the running loop watch the engine's descriptor."""
        loop = asyncio.get_running_loop()
        if self._broken:
            raise EngineError(self._broken.sentence, self._broken.code)
        self._core.check()
        if loop is self._loop:
            return
        if self._loop is not None and not self._loop.is_closed():
            if self._core.waiting:
                raise EngineError("the engine has something under way in another event loop")
            self._loop.remove_reader(self._core.fd)
        self._loop = loop
        loop.add_reader(self._core.fd, self._on_readable)

    def _attach_in_loop(self) -> None:
        """For a loop that is about to run: the pool fills from its first turn on."""
        if self.is_open:
            self._attach()

    def _on_readable(self) -> None:
        core = self._core
        if core.handle is None:
            return
        notes, error = core.dispatch()
        for owner, what, value in notes:
            self._tell(owner, what, value)
        if error is not None:
            self._broken = error
            self._give_up(error)
        interrupted, core.interrupted = core.interrupted, None
        if interrupted is not None:
            raise interrupted

    @staticmethod
    def _tell(owner: Owner, what: str, value: Any) -> None:
        """An error in what one is told is not the others'."""
        try:
            owner.hear(what, value)
        except Exception as error:
            asyncio.get_running_loop().call_exception_handler({"message": "a callback of hutch failed",
                                                               "exception": error})

    def _leave_room(self) -> None:
        """There is room for one more in the queue."""
        while self._room:
            waiter = self._room.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _give_up(self, error: EngineError) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._core.fd)
        self._loop = None
        for owner in self._core.free():
            owner.hear("failed", error)
        waiters, self._room = self._room, collections.deque()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(error)

    def close(self) -> None:
        """Kills whatever runs; whoever awaits it gets ClosedError. Takes some ms, at worst two seconds. More than once
        is fine. In a child that was forked, the parent's engine stays open."""
        if self.is_open:
            self._give_up(ClosedError("the engine was closed while this was under way"))

    # --- runs

    async def start(self, code: Text, *, on_output: Optional[Callable[[str, bytes], Any]] = None, stream: bool = False,
                    **options: Any) -> Run:
        """Hands a program in. @options are those of `run()`. What a program prints goes to @on_output(stream, data) as
        it comes, or with @stream to `async for`; then it is not in the result."""
        return await self._start(make_request(code, **options), on_output, stream)

    async def _start(self, request: Any, on_output: Optional[Callable[[str, bytes], Any]], stream: bool) -> Run:
        self._attach()
        run = Run(self, on_output, stream)
        is_first = not self._room
        while True:
            if is_first:
                try:
                    run.id = self._core.submit(run, request, stream or on_output is not None)
                    return run
                except BusyError:
                    if not self._wait_when_full or not self._core.waiting:
                        raise
            await self._wait_for_room(is_first)
            is_first = True
            self._attach()

    async def _wait_for_room(self, is_first: bool) -> None:
        assert self._loop is not None
        waiter = self._loop.create_future()
        if is_first:
            self._room.appendleft(waiter)
        else:
            self._room.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter in self._room:
                self._room.remove(waiter)
            elif waiter.done() and not waiter.cancelled():
                self._leave_room()  # the place that this one does not take
            raise

    async def run(self, code: Text, *, on_output: Optional[Callable[[str, bytes], Any]] = None,
                  **options: Any) -> Result:
        """Runs a program in a sandbox of its own, and returns what came of it, whatever that is: `result.verdict`.

        language, name, args, env, data_dir, keep_data, data_targets, policy and rich are as in struct hutch_request,
        and so are the limits (memory_bytes, pids, cpus, output_bytes, …). stdin is a text or a descriptor; timeout and
        cpu_time are seconds. Cancelling the task that awaits this cancels the run."""
        return await (await self.start(code, on_output=on_output, **options))

    async def run_many(self, codes: Any, **options: Any) -> List[Result]:
        """All of them, as many at a time as the engine runs; the results have the order of @codes. Each is a text, or a
        dict of what `run()` takes."""
        runs = [self.run(**{**options, **code}) if isinstance(code, dict) else self.run(code,
                                                                                        **options) for code in codes]
        tasks = [asyncio.ensure_future(run) for run in runs]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()  # of what is left when one was refused

    # --- functions

    async def set_function(self, name: str, code: Text, *, min: int = 0, max: int = 0) -> None:
        """Adds a function, or sets one again; returns when it can be called. @code defines `def handler(event)`, or an
        asynchronous one, and is executed once: it is the operator's, and trusted. @min and @max: how many sandboxes are
        kept prepared for it. A file that cannot be imported is an error, and changes nothing."""
        self._attach()
        owner = Import()
        self._core.set_function(owner, make_function(name, code, min=min, max=max))
        self._functions[name] = owner
        await owner.future

    def drop_function(self, name: str) -> bool:
        """Calls that were accepted go on. False when there was none."""
        self._attach()
        self._functions.pop(name, None)
        return self._core.drop_function(_abi.plain(name, "the name of a function"))

    def function(self, name: str) -> Function:
        """`await engine.function("NAME")(event)` is its value."""
        return Function(self, name)

    def functions(self) -> List[Dict[str, Any]]:
        """Of each its name, its state (starting, ready, failed), and why it is not ready; as a server tells it."""
        self._attach()
        return [describe(name, self._functions[name], self._function_info(name)) for name in sorted(self._functions)]

    def _function_info(self, name: str) -> Any:
        try:
            return self._core.function_info(_abi.plain(name, "the name of a function"))
        except NotFoundError:
            return None

    async def _call(self, name: str, event: Any, options: Dict[str, Any]) -> Result:
        return await (await self._start(make_call(name, event, **options), None, False))

    # --- sessions, and what it looks like

    def session(self, **options: Any) -> Session:
        """Opens a session, within a running loop. Options are those of struct hutch_session_options."""
        self._attach()
        session = Session(self)
        session.id = self._core.open_session(session, make_session_options(**options))
        return session

    def stats(self) -> Stats:
        return Stats.read(self._core.stats())

    def limits(self) -> Limits:
        """Those of a run that asks for none itself; 0: no limit."""
        raw = self._core.limits()
        return Limits(**{field.name: getattr(raw, field.name) for field in fields(Limits)})


__all__ = ["Engine", "Run", "Chunk"]
assert _abi.LIMIT_NAMES == tuple(field.name for field in fields(Limits))
