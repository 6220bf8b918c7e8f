"""Files anywhere in a session's sandbox, by the library: orders about paths inside, and changes of a directory."""
from __future__ import annotations

import asyncio
import ctypes
import io
import os
from typing import TYPE_CHECKING, Any, AsyncIterator, BinaryIO, Optional, Union

from . import _abi
from ._core import Descriptor, Owner
from .errors import EngineError, make_error
from .options import Path, Text, milliseconds, source
from .paths import FLAGS, KINDS, Change, Gathered, PathEntry, PathFile, PathList, buffered, entries, first_entry, \
    path_bytes

if TYPE_CHECKING:
    from .engine import Engine

COPY_BYTES = 1 << 20
MAX_BYTES = 1 << 30


def make_path(*, follow: bool = False, depth: int = 0, max_entries: int = 0, parents: bool = False, tree: bool = False,
              mode: int = 0, timeout: Optional[float] = None) -> Any:
    """struct hutch_path_options."""
    raw = _abi.PathOptions(size=ctypes.sizeof(_abi.PathOptions))
    raw.follow, raw.depth, raw.max_entries, raw.parents = follow, depth, max_entries, parents
    raw.tree, raw.mode, raw.timeout_ms = tree, mode, milliseconds(timeout, "timeout")
    return raw


class PathOrder(Owner):
    """One order; its answer is the JSON object, and a descriptor."""

    def __init__(self) -> None:
        self.future: "asyncio.Future[Any]" = asyncio.get_running_loop().create_future()

    def hear(self, what: str, value: Any) -> None:
        if self.future.done():
            return  # whoever gave the order was cancelled; a descriptor closes itself
        if what == "reply":
            self.future.set_result(value)
        else:
            self.future.set_exception(value if isinstance(value, Exception) else EngineError(str(value)))
            self.future.exception()


class Watch(Owner):
    """A directory that is watched: `async for change in watch`, and `async with` ends it. When it has ended by itself
    `why` says it."""

    def __init__(self, session: "SessionPaths") -> None:
        self._session = session
        self._begun: "asyncio.Future[None]" = asyncio.get_running_loop().create_future()
        self._changes: "asyncio.Queue[Optional[Change]]" = asyncio.Queue()
        self._is_over = False
        self.id = 0
        self.why: Optional[str] = None

    async def __aenter__(self) -> "Watch":
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.close()

    async def __aiter__(self) -> AsyncIterator[Change]:
        while True:
            change = await self._changes.get()
            if change is None:
                self._changes.put_nowait(None)
                return
            yield change

    async def close(self) -> None:
        """Leaves off watching. More than once is fine."""
        if not self._is_over:
            self._end(None)
            if self._session._engine.is_open:
                self._session._engine._core.ask("unwatch", self._session.id, self.id)

    def _end(self, why: Optional[str]) -> None:
        self._is_over, self.why = True, why
        self._changes.put_nowait(None)

    def hear(self, what: str, value: Any) -> None:
        if what == "begin":
            if not self._begun.done():
                self._begun.set_result(None)
        elif self._is_over:
            return
        elif what == "change":
            kind = KINDS[value[0]] if value[0] < len(KINDS) else "unknown"
            self._changes.put_nowait(Change(kind, os.fsdecode(value[1]), value[2]))
        else:
            error = make_end(value)
            if not self._begun.done():
                self._begun.set_exception(error)
                self._begun.exception()
            self._end(error.sentence)


def make_end(value: Any) -> EngineError:
    if isinstance(value, tuple):
        return make_error(value[1], value[0])
    return value if isinstance(value, EngineError) else EngineError("interrupted: %r" % value)


class SessionPaths(Owner):
    """The part of a session that is about paths inside; it was opened with paths, max_processes or no_interpreter. A
    path is absolute, or relative to the working directory, and leads where it leads for the programs inside. What is
    answered is the sandbox's word. Orders do not wait for cells."""

    _engine: "Engine"
    id: int

    def _check(self) -> None:
        raise NotImplementedError

    async def _path(self, name: str, *args: Any, **options: Any) -> Any:
        self._check()
        order = PathOrder()
        self._engine._core.path(order, name, self.id, *args, options=make_path(**options))
        return await order.future

    async def stat(self, path: Path, *, follow: bool = False) -> PathEntry:
        """What lies there; with @follow what a link at the end of the path leads to."""
        found, _ = await self._path("stat", path_bytes(path), follow=follow)
        return first_entry(found)

    async def list(self, path: Path = ".", *, depth: int = 1, max_entries: int = 0) -> PathList:
        """What is in a directory, and to @depth below it, 32 at most."""
        found, _ = await self._path("list", path_bytes(path), depth=depth, max_entries=max_entries)
        return entries(found)

    async def make_directory(self, path: Path, *, parents: bool = False, mode: int = 0o755) -> bool:
        """With @parents those on the way are made, too, and one that is there is no error: then False."""
        found, _ = await self._path("make_directory", path_bytes(path), parents=parents, mode=mode)
        return not found["existed"]

    async def rename(self, path: Path, to: Path, *, parents: bool = False) -> None:
        """As rename(2); with @parents directories on the way to the new name are made."""
        await self._path("rename", path_bytes(path), path_bytes(to, "to"), parents=parents)

    async def remove(self, path: Path, *, tree: bool = False) -> None:
        """A file, a link, or an empty directory; with @tree all that is in it, too."""
        await self._path("remove", path_bytes(path), tree=tree)

    async def open_path(self, path: Path, mode: str = "rb", *, parents: bool = False,
                        permissions: int = 0o644) -> BinaryIO:
        """A regular file: to read ("rb"), a new or emptied one ("wb"), a new one ("xb"), or one to write on at its end
        ("ab"). Its owner inside may change it meanwhile."""
        if mode not in FLAGS:
            raise ValueError("mode is %r: it can be %s" % (mode, ", ".join(repr(name) for name in FLAGS)))
        _, descriptor = await self._path("open_path", path_bytes(path), FLAGS[mode], parents=parents,
                                         mode=permissions if mode != "rb" else 0)
        assert isinstance(descriptor, Descriptor)
        return buffered(PathFile(descriptor.take(), mode != "rb"))

    async def read_path(self, path: Path, to: Optional[BinaryIO] = None, *, max_bytes: int = MAX_BYTES) -> bytes:
        """What is in a file; with @to it is written there, and b"" is returned. More than @max_bytes is an error."""
        gathered = Gathered(to, max_bytes)
        file = await self.open_path(path)
        await asyncio.get_running_loop().run_in_executor(None, _copy, file, gathered, file)
        return gathered.value()

    async def write_path(self, path: Path, content: Union[Text, BinaryIO], *, mode: int = 0o644) -> None:
        """Writes a file: a text, bytes, or what is left of a binary file. Directories on the way are made. @mode is for
        a file that is new."""
        reader = content if hasattr(content, "read") else io.BytesIO(source(content))
        file = await self.open_path(path, "wb", parents=True, permissions=mode)
        await asyncio.get_running_loop().run_in_executor(None, _copy, reader, file, file)

    async def watch(self, path: Path = ".") -> Watch:
        """Tells what changes in a directory, and not below it, from the moment when this returns."""
        self._check()
        watch = Watch(self)
        watch.id = self._engine._core.watch(watch, self.id, path_bytes(path))
        try:
            await watch._begun
        except asyncio.CancelledError:
            await watch.close()
            raise
        return watch


def _copy(reader: Any, writer: Any, file: Any) -> None:
    """Closes @file, the one of both that is the session's."""
    with file:
        while True:
            data = reader.read(COPY_BYTES)
            if not data:
                return
            writer.write(data)
