"""Functions of an engine of one's own: a handler that is imported once, and called in a fresh sandbox each time."""
from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Dict, Optional

from ._core import Owner
from .errors import EngineError
from .results import Result

if TYPE_CHECKING:
    from .engine import Engine


class Import(Owner):
    """A function that is being imported."""

    def __init__(self) -> None:
        self.future: "asyncio.Future[None]" = asyncio.get_running_loop().create_future()
        self.why: Optional[str] = None

    def hear(self, what: str, value: Any) -> None:
        error: Optional[Exception] = None
        if what != "ready" or value is not None:
            error = value if isinstance(value, Exception) else EngineError("interrupted: %r" % value)
            self.why = str(error)
        if self.future.done():
            return
        if error is None:
            self.future.set_result(None)
        else:
            self.future.set_exception(error)
            self.future.exception()


class Function:
    """One of an engine's functions. Each call has a sandbox of its own."""

    def __init__(self, engine: "Engine", name: str) -> None:
        self._engine = engine
        self.name = name

    async def __call__(self, event: Any = None, **options: Any) -> Any:
        """What the handler returns to @event, anything that JSON can say. Raises RunError, with all of the result, when
        it does not return. Options are env, variables for this call alone, policy, timeout, cpu_time and the limits."""
        return (await self.call(event, **options)).check().value

    async def call(self, event: Any = None, **options: Any) -> Result:
        """The same; its Result, whatever became of it, with `value`. Cancelling the task that awaits it ends the
        call."""
        return await self._engine._call(self.name, event, options)


def describe(name: str, last: Import, info: Any) -> Dict[str, Any]:
    """As `GET /v1/functions` of a server has it. @last: what was set last; @info: None when there is no version that
    can be called."""
    state = "ready" if info and info.is_ready else "failed" if last.why else "starting"
    why = (info.why.decode("utf-8", "replace") if info else "") or last.why
    counts = ("prepared", "building", "calls", "from_pool", "on_demand")
    return {"name": name, "state": state, "error": why or None,
            **{count: getattr(info, count) if info else 0 for count in counts}}
