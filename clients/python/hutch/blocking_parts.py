"""What a BlockingEngine and its sessions give out: processes, watched directories, functions. Any thread may use
them."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, AsyncIterator, Callable, Iterator, Optional, Tuple, TypeVar

from .functions import Function
from .options import Text
from .paths import Change
from .results import ProcessEnd, Result
from .session_paths import Watch
from .sessions import Process

if TYPE_CHECKING:
    from .blocking import BlockingEngine

T = TypeVar("T")
Call = Callable[[Callable[[], Any]], Any]  # has the engine's thread call that, and waits for what it awaits


async def _next(iterator: AsyncIterator[T]) -> Optional[T]:
    async for one in iterator:
        return one
    return None


class BlockingProcess:
    """A program in a session: `wait()` is its end, `for stream, data in process` what it prints. The methods are those
    of `Process`."""

    def __init__(self, call: Call, process: Process) -> None:
        self._call, self._process = call, process
        self.id = process.id

    def __iter__(self) -> Iterator[Tuple[str, bytes]]:
        chunks = self._process.__aiter__()
        while True:
            chunk: Optional[Tuple[str, bytes]] = self._call(lambda: _next(chunks))
            if chunk is None:
                return
            yield chunk

    def wait(self) -> ProcessEnd:
        """Its end. Ctrl-C leaves it running."""
        found = self._call(self._process.wait)
        assert isinstance(found, ProcessEnd)
        return found

    def done(self) -> bool:
        return self._process.done()

    def write(self, data: Text) -> None:
        self._call(lambda: self._process.write(data))

    def close_stdin(self) -> None:
        self._call(self._process.close_stdin)

    def signal(self, number: int) -> None:
        self._call(lambda: self._process.signal(number))

    def resize(self, rows: int, columns: int) -> None:
        self._call(lambda: self._process.resize(rows, columns))

    def hold(self, is_held: bool = True) -> None:
        self._call(lambda: self._process.hold(is_held))


class BlockingWatch:
    """A directory that is watched: `for change in watch`, and `with` ends it."""

    def __init__(self, call: Call, watch: Watch) -> None:
        self._call, self._watch = call, watch

    def __enter__(self) -> "BlockingWatch":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    @property
    def why(self) -> Optional[str]:
        return self._watch.why

    def __iter__(self) -> Iterator[Change]:
        changes = self._watch.__aiter__()
        while True:
            change: Optional[Change] = self._call(lambda: _next(changes))
            if change is None:
                return
            yield change

    def close(self) -> None:
        self._call(self._watch.close)


class BlockingFunction:
    """One of an engine's functions: `engine.function("NAME")(event)` is its value."""

    def __init__(self, engine: "BlockingEngine", function: Function) -> None:
        self._engine, self._function = engine, function
        self.name = function.name

    def __call__(self, event: Any = None, **options: Any) -> Any:
        return self._engine._call(lambda _engine: self._function(event, **options))

    def call(self, event: Any = None, **options: Any) -> Result:
        return self._engine._call(lambda _engine: self._function.call(event, **options))
