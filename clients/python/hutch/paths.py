"""What lies at paths inside of a session's sandbox, and what changes there: the same from the library and a server."""
from __future__ import annotations

import base64
import io
import os
from dataclasses import dataclass
from typing import Any, BinaryIO, Iterator, List, Mapping, Optional

from . import _abi
from .errors import EngineError
from .options import Path

KINDS = ("created", "written", "removed", "renamed", "attributes", "lost")  # enum hutch_change_kind
FLAGS = {"rb": os.O_RDONLY, "wb": os.O_WRONLY | os.O_CREAT | os.O_TRUNC, "xb": os.O_WRONLY | os.O_CREAT | os.O_EXCL,
         "ab": os.O_WRONLY | os.O_CREAT | os.O_APPEND}


def path_bytes(path: Path, what: str = "path") -> bytes:
    """The name of a file is bytes on Linux."""
    found = _abi.plain(os.fsencode(path), what)
    assert isinstance(found, bytes)
    return found


def _text(found: Mapping[str, Any], key: str) -> Optional[str]:
    """A text of which os.fsencode() makes the true bytes."""
    if key + "_base64" in found:
        return os.fsdecode(base64.b64decode(found[key + "_base64"]))
    value = found.get(key)
    return None if value is None else str(value)


@dataclass(frozen=True)
class PathEntry:
    """What lies at a path. `os.fsencode(entry.path)` are the true bytes of one that is no text; that of a list is
    below the directory. `mode` has twelve bits, `uid` and `gid` are the sandbox's, `target` is of a link."""

    path: str
    type: str  # file, directory, link, fifo, socket, device, other
    mode: int
    uid: int
    gid: int
    size: int
    mtime: float
    target: Optional[str] = None

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> "PathEntry":
        return cls(_text(found, "path") or "", found["type"], found["mode"], found["uid"], found["gid"], found["size"],
                   found["mtime"], _text(found, "target"))


@dataclass(frozen=True)
class PathList:
    """What is in a directory, sorted by the bytes of the names. `truncated`: there was more, or a directory below that
    could not be read."""

    entries: List[PathEntry]
    truncated: bool

    def __iter__(self) -> Iterator[PathEntry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)


@dataclass(frozen=True)
class Change:
    """What happened in a directory that is watched. `kind` is created, written, removed, renamed, attributes, or lost,
    when some were not told: list the directory then. `os.fsencode(change.name)` are the true bytes of a name."""

    kind: str
    name: str
    is_directory: bool

    @classmethod
    def from_event(cls, event: str, data: Mapping[str, Any]) -> "Change":
        if event == "lost":
            return cls("lost", "", False)
        return cls(data["kind"], _text(data, "name") or "", data["directory"])


def first_entry(found: Mapping[str, Any]) -> PathEntry:
    return PathEntry.from_json(found["entries"][0])


def entries(found: Mapping[str, Any]) -> PathList:
    return PathList([PathEntry.from_json(entry) for entry in found["entries"]], bool(found["truncated"]))


class Gathered(io.RawIOBase):
    """Takes what a file has, up to @max_bytes: its owner inside may write on while it is read. With @to it goes there,
    else `value()` has it."""

    def __init__(self, to: Optional[BinaryIO], max_bytes: int) -> None:
        self._own = io.BytesIO()
        self._to: BinaryIO = self._own if to is None else to
        self._left, self._max = max_bytes, max_bytes

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._left -= len(data)
        if self._left < 0:
            raise EngineError("the file has more than %d bytes" % self._max)
        self._to.write(data)
        return len(data)

    def value(self) -> bytes:
        return self._own.getvalue()


class PathFile(io.RawIOBase):
    """A file of the sandbox's that the library has opened. It keeps its own position: a program inside can hold the
    same open file, and move that one's."""

    def __init__(self, descriptor: int, is_writable: bool) -> None:
        self._descriptor, self._is_writable = descriptor, is_writable
        self._place = 0

    def fileno(self) -> int:
        if self.closed:
            raise ValueError("the file is closed")
        return self._descriptor

    def readable(self) -> bool:
        return not self._is_writable

    def writable(self) -> bool:
        return self._is_writable

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._place}.get(whence)
        if base is None:
            base = os.fstat(self.fileno()).st_size
        if base + offset < 0:
            raise ValueError("a position before the file's begin")
        self._place = base + offset
        return self._place

    def readinto(self, buffer: Any) -> int:
        count = os.preadv(self.fileno(), [buffer], self._place)
        self._place += count
        return count

    def write(self, data: Any) -> int:
        count = os.pwrite(self.fileno(), data, self._place)
        self._place += count
        return count

    def close(self) -> None:
        if not self.closed:
            super().close()
            os.close(self._descriptor)

    def __del__(self) -> None:
        self.close()


def buffered(raw: PathFile) -> BinaryIO:
    """As open() has them."""
    return io.BufferedReader(raw) if raw.readable() else io.BufferedWriter(raw)
