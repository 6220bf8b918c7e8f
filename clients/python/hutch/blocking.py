"""The same engine for programs without an event loop: a thread has the loop, and calls wait. Any thread may call."""
from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import inspect
import os
import threading
import weakref
from typing import Any, BinaryIO, Callable, Coroutine, Dict, Iterable, List, Optional, TypeVar, Union

from .blocking_parts import BlockingFunction, BlockingProcess, BlockingWatch
from .engine import Engine
from .errors import ClosedError, EngineError
from .options import Limits, Path, Stats, Text
from .paths import PathEntry, PathList
from .results import CellResult, Ended, FileEntry, Reply, Result
from .session_paths import MAX_BYTES
from .sessions import OnBytes, OnInput, OnOutput, Process, Session

T = TypeVar("T")
START_SECONDS = 60


class BlockingEngine:
    """`with hutch.BlockingEngine() as engine: result = engine.run("print(1)")`. Options are those of `Engine`.

    Callbacks such as on_output are called by the engine's thread, and must not call the engine."""

    def __init__(self, **options: Any) -> None:
        self._pid = os.getpid()
        self._library_path: Optional[str] = options.get("library")
        self._loop = asyncio.new_event_loop()
        self._engine: Optional[Engine] = None
        self._lock = threading.Lock()
        failure: List[BaseException] = []
        ready = threading.Event()
        self._thread = threading.Thread(target=_serve, args=(weakref.ref(self), self._loop, options, ready, failure),
                                        name="hutch-engine", daemon=True)
        self._thread.start()
        ready.wait(START_SECONDS)
        if failure:
            raise failure[0]
        if self._engine is None:
            raise EngineError("the thread of the engine did not start within %d s" % START_SECONDS)
        atexit.register(_close, weakref.ref(self))

    def __enter__(self) -> "BlockingEngine":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_engine", None) is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)

    @property
    def is_open(self) -> bool:
        return self._engine is not None and os.getpid() == self._pid

    def close(self) -> None:
        """Kills whatever runs. More than once is fine, and so is a fork of the process, in which this does nothing."""
        with self._lock:
            if not self.is_open:
                return
            self._engine = None
        self._loop.call_soon_threadsafe(self._loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _call(self, make: Callable[[Engine], Coroutine[Any, Any, T]]) -> T:
        engine = self._engine
        if os.getpid() != self._pid:
            raise EngineError("the engine belongs to process %d, of which this one is a fork: open another one here" %
                              self._pid)
        if engine is None:
            raise ClosedError("the engine is closed")
        if threading.current_thread() is self._thread:
            raise EngineError("a callback of the engine must not wait for the engine")
        future = asyncio.run_coroutine_threadsafe(_bounded(make, engine), self._loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise ClosedError("the engine was closed while this was under way") from None
        except BaseException:
            future.cancel()  # Ctrl-C while waiting ends the run
            raise

    # --- as Engine has them

    def run(self, code: Text, *, on_output: Optional[Callable[[str, bytes], Any]] = None, **options: Any) -> Result:
        return self._call(lambda engine: engine.run(code, on_output=on_output, **options))

    def run_many(self, codes: Iterable[Any], **options: Any) -> List[Result]:
        codes = list(codes)
        return self._call(lambda engine: engine.run_many(codes, **options))

    def session(self, **options: Any) -> "BlockingSession":
        async def open_session(engine: Engine) -> Session:
            return engine.session(**options)
        return BlockingSession(self, self._call(open_session))

    def set_function(self, name: str, code: Text, **options: Any) -> None:
        self._call(lambda engine: engine.set_function(name, code, **options))

    def drop_function(self, name: str) -> bool:
        async def drop(engine: Engine) -> bool:
            return engine.drop_function(name)
        return self._call(drop)

    def function(self, name: str) -> BlockingFunction:
        """`engine.function("NAME")(event)` is its value."""
        async def find(engine: Engine) -> BlockingFunction:
            return BlockingFunction(self, engine.function(name))
        return self._call(find)

    def functions(self) -> List[Dict[str, Any]]:
        async def ask(engine: Engine) -> List[Dict[str, Any]]:
            return engine.functions()
        return self._call(ask)

    def stats(self) -> Stats:
        async def ask(engine: Engine) -> Stats:
            return engine.stats()
        return self._call(ask)

    def limits(self) -> Limits:
        async def ask(engine: Engine) -> Limits:
            return engine.limits()
        return self._call(ask)


async def _bounded(make: Callable[[Engine], Coroutine[Any, Any, T]], engine: Engine) -> T:
    """Makes the coroutine within the loop: what it calls before its first await needs one."""
    return await make(engine)


def _serve(owner: "weakref.ref[BlockingEngine]", loop: asyncio.AbstractEventLoop, options: Any, ready: threading.Event,
           failure: List[BaseException]) -> None:
    """The thread. It holds no reference to the BlockingEngine, so that one that is dropped can end."""
    asyncio.set_event_loop(loop)
    try:
        engine = Engine(**options)
    except BaseException as error:
        failure.append(error)
        loop.close()
        ready.set()
        return
    loop.call_soon(engine._attach_in_loop)
    made = owner()
    if made is not None:
        made._engine = engine
    del made
    ready.set()
    try:
        loop.run_forever()
    finally:
        engine.close()
        loop.run_until_complete(asyncio.sleep(0.001))  # those who wait for it hear that it is closed
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


def _close(engine: "weakref.ref[BlockingEngine]") -> None:
    found = engine()
    if found is not None:
        found.close()


class _Held:
    """What can be awaited, and is not to be."""

    def __init__(self, value: Process) -> None:
        self.value = value


class BlockingSession:
    """`with engine.session() as session: result = session.run("x = 1")`. The methods are those of `Session`."""

    def __init__(self, engine: BlockingEngine, session: Session) -> None:
        self._engine = engine
        self._session = session
        self.id = session.id

    def __enter__(self) -> "BlockingSession":
        return self

    def __exit__(self, *_: Any) -> None:
        if self._engine.is_open:
            self.close()

    @property
    def is_open(self) -> bool:
        return self._engine.is_open and self._session.is_open

    def _call(self, do: Callable[[Session], Any]) -> Any:
        async def call(_engine: Engine) -> Any:
            found = do(self._session)
            return await found if inspect.isawaitable(found) else found
        return self._engine._call(call)

    def _do(self, do: Callable[[], Any]) -> Any:
        return self._call(lambda _session: do())

    def _with_files(self, do: Callable[[Session], T]) -> T:
        async def call(session: Session) -> T:
            await session.files_ready()
            return do(session)
        found: T = self._call(call)
        return found

    def run(self, code: Text, *, on_output: Optional[OnOutput] = None, on_input: Optional[OnInput] = None,
            **options: Any) -> CellResult:
        return self._call(lambda session: session.run(code, on_output=on_output, on_input=on_input, **options))

    def interrupt(self) -> bool:
        return self._call(lambda session: session.interrupt())

    def reply(self, text: Optional[str]) -> bool:
        return self._call(lambda session: session.reply(text))

    def restart(self) -> None:
        self._call(lambda session: session.restart())

    def pause(self) -> None:
        self._call(lambda session: session.pause())

    def resume(self) -> None:
        self._call(lambda session: session.resume())

    def info(self) -> Any:
        return self._call(lambda session: session.info())

    def set_lifetime(self, *, idle: Optional[float] = None, lifetime: Optional[float] = None) -> None:
        self._call(lambda session: session.set_lifetime(idle=idle, lifetime=lifetime))

    def checkpoint(self) -> Reply:
        return self._call(lambda session: session.checkpoint())

    def rollback(self, checkpoint: int) -> Reply:
        return self._call(lambda session: session.rollback(checkpoint))

    def fork(self) -> Reply:
        return self._call(lambda session: session.fork())

    def switch(self, branch: int = 0) -> Reply:
        return self._call(lambda session: session.switch(branch))

    def drop(self, checkpoint_or_branch: int) -> Reply:
        return self._call(lambda session: session.drop(checkpoint_or_branch))

    def reset_context(self, context: str = "main") -> None:
        self._call(lambda session: session.reset_context(context))

    def drop_context(self, context: str) -> None:
        self._call(lambda session: session.drop_context(context))

    def complete(self, code: Text, cursor: Optional[int] = None, *, context: Optional[str] = None) -> Dict[str, Any]:
        return self._call(lambda session: session.complete(code, cursor, context=context))

    def inspect(self, code: Text, cursor: Optional[int] = None, *, context: Optional[str] = None,
                detail: bool = False) -> Dict[str, Any]:
        return self._call(lambda session: session.inspect(code, cursor, context=context, detail=detail))

    def is_complete(self, code: Text, *, context: Optional[str] = None) -> Dict[str, Any]:
        return self._call(lambda session: session.is_complete(code, context=context))

    def spawn(self, command: Union[str, Iterable[Text]], *, on_output: Optional[OnBytes] = None, stream: bool = False,
              **options: Any) -> BlockingProcess:
        """@on_output is called by the engine's thread."""
        return BlockingProcess(self._do, self._call(
            lambda session: _Held(session.spawn(command, on_output=on_output, stream=stream, **options))).value)

    def processes(self) -> List[Dict[str, Any]]:
        return self._call(lambda session: session.processes())

    def stat(self, path: Path, *, follow: bool = False) -> PathEntry:
        return self._call(lambda session: session.stat(path, follow=follow))

    def list(self, path: Path = ".", *, depth: int = 1, max_entries: int = 0) -> PathList:
        return self._call(lambda session: session.list(path, depth=depth, max_entries=max_entries))

    def make_directory(self, path: Path, *, parents: bool = False, mode: int = 0o755) -> bool:
        return self._call(lambda session: session.make_directory(path, parents=parents, mode=mode))

    def rename(self, path: Path, to: Path, *, parents: bool = False) -> None:
        self._call(lambda session: session.rename(path, to, parents=parents))

    def remove(self, path: Path, *, tree: bool = False) -> None:
        self._call(lambda session: session.remove(path, tree=tree))

    def open_path(self, path: Path, mode: str = "rb", *, parents: bool = False, permissions: int = 0o644) -> BinaryIO:
        return self._call(lambda session: session.open_path(path, mode, parents=parents, permissions=permissions))

    def read_path(self, path: Path, to: Optional[BinaryIO] = None, *, max_bytes: int = MAX_BYTES) -> bytes:
        return self._call(lambda session: session.read_path(path, to, max_bytes=max_bytes))

    def write_path(self, path: Path, content: Union[Text, BinaryIO], *, mode: int = 0o644) -> None:
        self._call(lambda session: session.write_path(path, content, mode=mode))

    def watch(self, path: Path = ".") -> BlockingWatch:
        return BlockingWatch(self._do, self._call(lambda session: session.watch(path)))

    def files(self) -> List[FileEntry]:
        return self._with_files(lambda session: session.files())

    def open_file(self, name: Path, mode: str = "rb") -> BinaryIO:
        return self._with_files(lambda session: session.open_file(name, mode))

    def upload(self, name: Path, content: Union[Text, BinaryIO]) -> None:
        self._call(lambda session: session.upload(name, content))

    def download(self, name: Path, to: Optional[BinaryIO] = None, max_bytes: int = 1 << 30) -> bytes:
        return self._call(lambda session: session.download(name, to, max_bytes))

    def delete_file(self, name: Path) -> None:
        self._with_files(lambda session: session.delete_file(name))

    def close(self) -> Ended:
        return self._call(lambda session: session.close())

    def ended(self) -> Ended:
        return self._call(lambda session: session.ended())


# --- one engine for all who do not want to think of engines

class SharedEngine:
    """An engine of the process that is opened when it is first needed, and again after a fork; it ends with the
    process."""

    def __init__(self, make_options: Callable[..., Any] = dict) -> None:
        self._make_options = make_options
        self._options: Any = {}
        self._engine: Optional[BlockingEngine] = None
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=self._after_fork)

    def configure(self, **options: Any) -> None:
        """Options of `Engine` for the next one; one that is open is closed."""
        with self._lock:
            engine, self._engine, self._options = self._engine, None, options
        if engine is not None:
            engine.close()

    def get(self) -> BlockingEngine:
        with self._lock:
            if self._engine is None or not self._engine.is_open:
                self._engine = BlockingEngine(**self._make_options(**self._options))
            return self._engine

    def _after_fork(self) -> None:
        """The child has a copy and must not use it; and a thread that it has not may have held the lock."""
        self._engine, self._lock = None, threading.Lock()


_shared = SharedEngine()
default_engine = _shared.get
configure = _shared.configure


def run(code: Text, **options: Any) -> Result:
    """Runs a program in a fresh sandbox and waits for what comes of it. Options are those of `Engine.run()`; those of
    the engine are told to `configure()` before."""
    return default_engine().run(code, **options)


def run_many(codes: Iterable[Any], **options: Any) -> List[Result]:
    """Runs programs, as many at a time as there are CPUs; results in the order of @codes."""
    return default_engine().run_many(codes, **options)


def session(**options: Any) -> BlockingSession:
    """Opens a session on the default engine."""
    return default_engine().session(**options)
