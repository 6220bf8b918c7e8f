"""What goes wrong outside of the code that is run. How that code ended is told by its result, never by an exception."""
from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    from .results import Result


class HutchError(Exception):
    """`code` is an errno, 0 when there is none; `sentence` says what happened, with which value, and what to do."""

    def __init__(self, sentence: str, code: int = 0) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.code = code

    def __repr__(self) -> str:
        name = errno.errorcode.get(self.code, str(self.code)) if self.code else "0"
        return "%s(%r, code=%s)" % (type(self).__name__, self.sentence, name)


class LibraryError(HutchError):
    """libhutch cannot be found or loaded, or is another version than this package knows."""


class EngineError(HutchError):
    """The library refused a call, or the engine can never run anything."""


class BusyError(EngineError):
    """The queue is full, or as many sessions or cells are there as may be: try again when a result has come."""


class NotFoundError(EngineError):
    """There is no such session, file, image or policy."""


class ClosedError(EngineError):
    """The engine or session was closed, and with it whatever was under way in it."""


class RunError(HutchError):
    """Raised by `Result.check()` for a run that did not end well; `result` has all of it."""

    def __init__(self, sentence: str, result: Optional["Result"] = None) -> None:
        super().__init__(sentence)
        self.result = result


CLASSES = {errno.EAGAIN: BusyError, errno.ENOENT: NotFoundError}


def make_error(sentence: str, code: int) -> EngineError:
    """The exception for what the library says."""
    return CLASSES.get(code, EngineError)(sentence or os.strerror(code), code)
