"""One engine of libhutch: the calls, and what its callbacks tell, kept in order until C has returned.

Callbacks may not raise into C, may not free the engine, and are given memory that ends with them. So the ones here only
copy and note; `Core.dispatch()` returns the notes, and whoever called it acts on them when no frame of C is below.

There is one callback of each kind in the whole process and they live as long as this module, so none can be collected
while the library may still call it. Their first argument is a number, by which `_owners` finds whom they are about; an
entry goes when its one answer has come, or with its engine."""
from __future__ import annotations

import atexit
import ctypes
import itertools
import json
import os
import threading
import warnings
import weakref
from typing import Any, Callable, Dict, List, Optional, Tuple

from . import _abi
from ._library import Library
from .errors import ClosedError, EngineError, HutchError, make_error
from .results import CellResult, Result

Event = Tuple["Owner", str, Any]


class Descriptor:
    """An open file that is closed when nobody has taken it."""

    def __init__(self, number: int) -> None:
        self._number = number

    def take(self) -> int:
        number, self._number = self._number, -1
        return number

    def __del__(self) -> None:
        if self._number >= 0:
            os.close(self._number)


class Owner:
    """Whom callbacks are about: a run, a cell, an order, a session."""

    core: "Core"
    key: int

    def hear(self, what: str, value: Any) -> None:
        """Called outside of C for each note, in their order."""
        raise NotImplementedError


CELL_END, FAILED_END = _abi.end_of(_abi.Result, "cell"), _abi.end_of(_abi.Result, "hutch_failed")
_owners: Dict[int, Owner] = {}
_keys = itertools.count(1)


def _guarded(kind: Any, answers: bool) -> Callable[[Callable[..., Any]], Any]:
    """A callback of @kind around a function that makes one note of what it is given. @answers: it is the only answer
    that its owner gets, which counts as given even if it cannot be read."""
    def wrap(function: Callable[..., Any]) -> Any:
        def call(user: Optional[int], *args: Any) -> None:
            owner = _owners.get(user or 0)
            if owner is None:
                return
            try:
                note = function(owner, *args)
            except BaseException as error:  # an exception of Ctrl-C, too: it is raised again when C has returned
                note = ("failed", error)
                if not isinstance(error, Exception):
                    owner.core.interrupted = error
            if answers:
                _owners.pop(owner.key, None)
                owner.core.waiting.pop(owner.key, None)
            owner.core.notes.append((owner, note[0], note[1]))
        return kind(call)
    return wrap


@_guarded(_abi.ON_OUTPUT, False)
def _on_output(owner: Owner, _id: int, stream: int, data: int, length: int) -> Tuple[str, Any]:
    return "output", (stream, ctypes.string_at(data, length))


@_guarded(_abi.ON_RESULT, True)
def _on_result(owner: Owner, _id: int, pointer: Any) -> Tuple[str, Any]:
    raw, library = pointer.contents, owner.core.library
    text = library.take_text(library.result_to_json(pointer))
    if text is None:
        raise HutchError("there is not enough memory for the result of a run")
    more: Dict[str, Any] = {}
    size = raw.size
    if size >= CELL_END and raw.cell:
        more["cell"] = _read_cell(library, raw.cell)
    if size >= FAILED_END:
        more["hutch_failed"] = bool(raw.hutch_failed)
    return "result", Result.from_text(
        text, stdout_bytes=ctypes.string_at(raw.out, raw.out_len) if raw.out_len else b"",
        stderr_bytes=ctypes.string_at(raw.err, raw.err_len) if raw.err_len else b"",
        zygote=raw.zygote.decode() if raw.zygote else None, was_prepared=bool(raw.was_prepared), restarts=raw.restarts,
        **more)


def _read_cell(library: Library, pointer: Any) -> CellResult:
    text = library.take_text(library.cell_result_to_json(pointer))
    if text is None:
        raise HutchError("there is not enough memory for the result of a cell")
    for_model = library.take_text(library.cell_result_to_text(pointer, 0))
    return CellResult.from_json(json.loads(text), for_model.decode("utf-8",
                                                                   "replace") if for_model is not None else None)


@_guarded(_abi.CELL_ON_OUTPUT, False)
def _on_cell_output(owner: Owner, _session: int, pointer: Any) -> Tuple[str, Any]:
    raw = pointer.contents
    if raw.kind == 0:
        return "stream", (raw.stream, ctypes.string_at(raw.text, raw.text_len) if raw.text_len else b"")
    kind = _abi.OUTPUT_KINDS[raw.kind] if raw.kind < len(_abi.OUTPUT_KINDS) else "unknown"
    return "shown", (kind, json.loads(raw.json))


@_guarded(_abi.CELL_ON_INPUT, False)
def _on_cell_input(owner: Owner, _session: int, prompt: Optional[bytes], is_password: int) -> Tuple[str, Any]:
    return "asked", ((prompt or b"").decode("utf-8", "replace"), bool(is_password))


@_guarded(_abi.CELL_ON_CALL, False)
def _on_cell_call(owner: Owner, _session: int, call: int, name: bytes, text: bytes) -> Tuple[str, Any]:
    return "called", (call, name.decode("utf-8", "replace"), json.loads(text))


@_guarded(_abi.CELL_ON_RESULT, True)
def _on_cell_result(owner: Owner, _session: int, pointer: Any) -> Tuple[str, Any]:
    return "result", _read_cell(owner.core.library, pointer)


@_guarded(_abi.ON_REPLY, True)
def _on_reply(owner: Owner, _session: int, pointer: Any) -> Tuple[str, Any]:
    raw = pointer.contents
    return "reply", (bool(raw.ok), (raw.message or b"").decode("utf-8", "replace"), int(raw.id),
                     json.loads(raw.lost or b"[]"),
                     float(raw.ms), int(raw.bytes), json.loads(raw.json) if raw.json else None)


@_guarded(_abi.ON_END, True)
def _on_end(owner: Owner, _session: int, why: Optional[bytes], directory: Optional[bytes]) -> Tuple[str, Any]:
    return "end", ((why or b"").decode("utf-8", "replace"), os.fsdecode(directory) if directory else None)


@_guarded(_abi.PROCESS_ON_OUTPUT, False)
def _on_process_output(owner: Owner, _session: int, _id: int, stream: int, data: int, length: int) -> Tuple[str, Any]:
    return "output", (stream, ctypes.string_at(data, length))


@_guarded(_abi.PROCESS_ON_ROOM, False)
def _on_process_room(owner: Owner, _session: int, _id: int) -> Tuple[str, Any]:
    return "room", None


@_guarded(_abi.PROCESS_ON_END, True)
def _on_process_end(owner: Owner, _session: int, _id: int, pointer: Any) -> Tuple[str, Any]:
    raw = pointer.contents
    why = (raw.why or b"").decode("utf-8", "replace")
    return "end", (raw.exit_code, raw.signal, why, bool(raw.truncated), raw.run_ms)


@_guarded(_abi.ON_PATH, True)
def _on_path(owner: Owner, _session: int, pointer: Any) -> Tuple[str, Any]:
    """The descriptor of a file that was opened is the engine's: the note has a copy, which closes itself."""
    raw, library = pointer.contents, owner.core.library
    if not raw.ok:
        return "refused", make_error((raw.message or b"").decode("utf-8", "replace"), raw.code)
    text = library.take_text(library.path_reply_to_json(pointer))
    if text is None:
        raise HutchError("there is not enough memory for what lies at a path")
    return "reply", (json.loads(text), Descriptor(os.dup(raw.fd)) if raw.fd >= 0 else None)


@_guarded(_abi.WATCH_ON_BEGIN, False)
def _on_watch_begin(owner: Owner, _session: int, _watch: int) -> Tuple[str, Any]:
    return "begin", None


@_guarded(_abi.WATCH_ON_CHANGE, False)
def _on_change(owner: Owner, _session: int, _watch: int, pointer: Any) -> Tuple[str, Any]:
    raw = pointer.contents
    return "change", (raw.kind, raw.name or b"", bool(raw.is_directory))


@_guarded(_abi.WATCH_ON_END, True)
def _on_watch_end(owner: Owner, _session: int, _watch: int, code: int, message: Optional[bytes]) -> Tuple[str, Any]:
    return "end", (code, (message or b"").decode("utf-8", "replace"))


@_guarded(_abi.FUNCTION_ON_READY, True)
def _on_ready(owner: Owner, _name: bytes, why: Any) -> Tuple[str, Any]:
    return "ready", make_error(why.contents.message.decode("utf-8", "replace"), why.contents.code) if why else None


_open: "weakref.WeakSet[Core]" = weakref.WeakSet()


@atexit.register
def _free_all() -> None:
    """Engines that are open at the end of the process remove what they have on the disk."""
    for core in list(_open):
        if core.is_own_thread:
            core.free()


class Core:
    """An engine that is open. It is used by the thread that opened it, and by the process that did."""

    def __init__(self, library: Library, options: Any) -> None:
        self.library = library
        self.waiting: Dict[int, Owner] = {}  # those that an answer is still due to
        self.notes: List[Event] = []
        self.interrupted: Optional[BaseException] = None
        self.is_dispatching = False
        self._error = _abi.Error()
        self._pid = os.getpid()
        self._thread = threading.get_ident()
        handle = ctypes.c_void_p()
        if library.engine_open(ctypes.byref(options), ctypes.byref(handle), ctypes.byref(self._error)) < 0:
            raise self.make_error()
        self.handle: Optional[ctypes.c_void_p] = handle
        self.fd: int = library.engine_fd(handle)
        _open.add(self)

    def make_error(self) -> EngineError:
        return make_error(self._error.message.decode("utf-8", "replace"), self._error.code)

    @property
    def is_ours(self) -> bool:
        """False in a child that was forked: the engine is the parent's, and stays open there."""
        return os.getpid() == self._pid

    @property
    def is_own_thread(self) -> bool:
        return threading.get_ident() == self._thread

    def __del__(self) -> None:
        if getattr(self, "handle", None) is not None:
            warnings.warn("an engine of hutch was not closed", ResourceWarning, source=self)
            self.free()

    def check(self) -> ctypes.c_void_p:
        if self.handle is None:
            raise ClosedError("the engine is closed")
        if not self.is_ours:
            raise EngineError("the engine belongs to process %d, of which this one is a fork: open another one here" %
                              self._pid)
        if not self.is_own_thread:
            raise EngineError("the engine is used by the thread that opened it; hutch.BlockingEngine may be shared "
                              "between threads")
        return self.handle

    def register(self, owner: Owner) -> int:
        owner.core = self
        owner.key = key = next(_keys)
        _owners[key] = self.waiting[key] = owner
        return key

    def forget(self, owner: Owner) -> None:
        _owners.pop(owner.key, None)
        self.waiting.pop(owner.key, None)

    # --- calls

    def submit(self, owner: Owner, request: Any, with_output: bool) -> int:
        handle, number = self.check(), ctypes.c_uint64()
        request.user = self.register(owner)
        request.on_result = _on_result
        if with_output:
            request.on_output = _on_output
        status = self.library.engine_submit(handle, ctypes.byref(request), ctypes.byref(number),
                                            ctypes.byref(self._error))
        if status < 0:
            self.forget(owner)
            raise self.make_error()
        return number.value

    def cancel(self, number: int) -> bool:
        return bool(self.library.engine_cancel(self.check(), number))

    def signal(self, number: int, signal: int) -> bool:
        return bool(self.library.engine_signal(self.check(), number, signal))

    def open_session(self, owner: Owner, options: Any) -> int:
        handle, number = self.check(), ctypes.c_uint64()
        options.user = self.register(owner)
        options.on_end = _on_end
        if self.library.session_open(handle, ctypes.byref(options), ctypes.byref(number),
                                     ctypes.byref(self._error)) < 0:
            self.forget(owner)
            raise self.make_error()
        return number.value

    def execute(self, owner: Owner, session: int, cell: Any) -> int:
        handle, number = self.check(), ctypes.c_uint64()
        cell.ret_id = ctypes.pointer(number)
        cell.user = self.register(owner)
        cell.on_output, cell.on_input, cell.on_result = _on_cell_output, _on_cell_input, _on_cell_result
        if cell.calls:
            cell.on_call = _on_cell_call
        if self.library.session_execute(handle, session, ctypes.byref(cell), ctypes.byref(self._error)) < 0:
            self.forget(owner)
            raise self.make_error()
        return number.value

    def spawn(self, owner: Owner, session: int, options: Any) -> int:
        handle, number = self.check(), ctypes.c_uint64()
        options.user = self.register(owner)
        options.on_output, options.on_room, options.on_end = _on_process_output, _on_process_room, _on_process_end
        if self.library.session_spawn(handle, session, ctypes.byref(options), ctypes.byref(number),
                                      ctypes.byref(self._error)) < 0:
            self.forget(owner)
            raise self.make_error()
        return number.value

    def tell_process(self, name: str, session: int, process: int, *args: Any) -> int:
        """write, close_stdin, signal, resize, hold."""
        found = getattr(self.library, "process_" + name)(self.check(), session, process, *args,
                                                         ctypes.byref(self._error))
        if found < 0:
            raise self.make_error()
        return int(found)

    def processes(self, session: int) -> List[Dict[str, Any]]:
        text = self.library.take_text(self.library.session_processes(self.check(), session, ctypes.byref(self._error)))
        if text is None:
            raise self.make_error()
        found = json.loads(text)
        assert isinstance(found, list)
        return found

    def order(self, owner: Owner, name: str, session: int, *args: Any) -> None:
        """checkpoint, rollback, fork, switch, drop, reset_context, drop_context, ask, await_files."""
        handle = self.check()
        key = self.register(owner)
        function = getattr(self.library, "session_" + name)
        if function(handle, session, *args, _on_reply, key, ctypes.byref(self._error)) < 0:
            self.forget(owner)
            raise self.make_error()

    def path(self, owner: Owner, name: str, session: int, *args: Any, options: Any) -> None:
        """stat, list, make_directory, rename, remove, open_path."""
        handle = self.check()
        options.user, options.on_reply = self.register(owner), _on_path
        function = getattr(self.library, "session_" + name)
        if function(handle, session, *args, ctypes.byref(options), ctypes.byref(self._error)) < 0:
            self.forget(owner)
            raise self.make_error()

    def watch(self, owner: Owner, session: int, path: bytes) -> int:
        handle, number = self.check(), ctypes.c_uint64()
        options = _abi.WatchOptions(size=ctypes.sizeof(_abi.WatchOptions))
        options.user = self.register(owner)
        options.on_begin, options.on_change, options.on_end = _on_watch_begin, _on_change, _on_watch_end
        if self.library.session_watch(handle, session, path, ctypes.byref(options), ctypes.byref(number),
                                      ctypes.byref(self._error)) < 0:
            self.forget(owner)
            raise self.make_error()
        return number.value

    def set_function(self, owner: Owner, function: Any) -> None:
        handle = self.check()
        function.user, function.on_ready = self.register(owner), _on_ready
        if self.library.engine_set_function(handle, ctypes.byref(function), ctypes.byref(self._error)) < 0:
            self.forget(owner)
            raise self.make_error()

    def drop_function(self, name: bytes) -> bool:
        return bool(self.library.engine_drop_function(self.check(), name))

    def function_info(self, name: bytes) -> Any:
        raw = _abi.FunctionInfo(size=ctypes.sizeof(_abi.FunctionInfo))
        if self.library.engine_get_function(self.check(), name, ctypes.byref(raw), ctypes.byref(self._error)) < 0:
            raise self.make_error()
        return raw

    def ask(self, name: str, session: int, *args: Any) -> bool:
        """interrupt, reply, close, cancel_cell, unwatch: what they return is 0 when there was nothing to do it to."""
        return bool(getattr(self.library, "session_" + name)(self.check(), session, *args))

    def do(self, name: str, session: int, *args: Any) -> int:
        """restart, answer, open_file, delete_file, pause, resume, set_lifetime: what they return, which is not negative."""
        found = getattr(self.library, "session_" + name)(self.check(), session, *args, ctypes.byref(self._error))
        if found < 0:
            raise self.make_error()
        return int(found)

    def files(self, session: int) -> List[Dict[str, Any]]:
        text = self.library.take_text(self.library.session_files(self.check(), session, ctypes.byref(self._error)))
        if text is None:
            raise self.make_error()
        found = json.loads(text)
        assert isinstance(found, list)
        return found

    def info(self, session: int) -> Dict[str, Any]:
        raw, text = _abi.SessionInfo(size=ctypes.sizeof(_abi.SessionInfo)), ctypes.c_void_p()
        if self.library.session_get_info(self.check(), session, ctypes.byref(raw), ctypes.byref(text),
                                         ctypes.byref(self._error)) < 0:
            raise self.make_error()
        found = json.loads(self.library.take_text(text.value) or b"{}")
        assert isinstance(found, dict)
        return found

    def stats(self) -> Any:
        stats = _abi.EngineStats(size=ctypes.sizeof(_abi.EngineStats))
        self.library.engine_get_stats(self.check(), ctypes.byref(stats))
        return stats

    def limits(self) -> Any:
        limits = _abi.Limits(size=ctypes.sizeof(_abi.Limits))
        self.library.engine_get_limits(self.check(), ctypes.byref(limits))
        return limits

    # --- the loop

    def dispatch(self) -> Tuple[List[Event], Optional[EngineError]]:
        """Does what is due. The notes of callbacks, and the error after which the engine is of no more use."""
        handle = self.check()
        self.is_dispatching = True
        try:
            status = self.library.engine_dispatch(handle, ctypes.byref(self._error))
        finally:
            self.is_dispatching = False
        notes, self.notes = self.notes, []
        return notes, self.make_error() if status < 0 else None

    def free(self) -> List[Owner]:
        """Ends everything that runs. Those that get no answer any more."""
        handle, self.handle = self.handle, None
        lost = list(self.waiting.values())
        for owner in lost:
            _owners.pop(owner.key, None)
        self.waiting.clear()
        self.notes.clear()
        if handle is not None and self.is_ours:
            self.library.engine_free(handle)
        return lost
