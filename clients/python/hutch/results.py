"""What came of a run or a cell, as docs/results.md and docs/sessions.md describe it. The same classes serve results
from the library and those that came as JSON."""
from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Tuple

from . import _rich
from .errors import RunError


def _as_bytes(entry: Mapping[str, Any]) -> bytes:
    """The true name of a file: names on Linux are bytes."""
    if "path_base64" in entry:
        return base64.b64decode(entry["path_base64"])
    return str(entry["path"]).encode("utf-8", "surrogateescape")


@dataclass(frozen=True)
class FileEntry:
    """One file below /mnt/data. `path` is for display where it is not UTF-8; `name` has the bytes."""

    path: str
    name: bytes
    size: Optional[int] = None
    mime: Optional[str] = None
    type: str = "file"  # or symlink, fifo, socket, char_device, block_device, directory
    mtime: Optional[float] = None

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> "FileEntry":
        return cls(entry["path"], _as_bytes(entry), entry.get("size"), entry.get("mime"), entry.get("type", "file"),
                   entry.get("mtime"))


@dataclass(frozen=True)
class Files:
    """What is different in /mnt/data afterwards. `directory`: where it lies on the host, None when nothing was kept."""

    directory: Optional[str]
    added: List[FileEntry]
    modified: List[FileEntry]
    deleted: List[FileEntry]
    truncated: bool

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> "Files":
        lists = [[FileEntry.from_json(entry) for entry in found[name]] for name in ("added", "modified", "deleted")]
        return cls(found["directory"], lists[0], lists[1], lists[2], found["truncated"])


@dataclass(frozen=True)
class ProgramError:
    """The exception that ended a Python program, as the program told it: text, which it could have forged."""

    name: str
    value: str
    traceback: str


@dataclass(frozen=True)
class Timings:
    """Milliseconds."""

    queued: float
    prepared: float
    run: float
    total: float


@dataclass(frozen=True)
class Usage:
    """None where nobody counted."""

    cpu_user_ms: Optional[int]
    cpu_system_ms: Optional[int]
    cpu_at_least: bool
    memory_peak_bytes: Optional[int]
    pids_peak: Optional[int]

    @property
    def cpu_ms(self) -> Optional[int]:
        if self.cpu_user_ms is None or self.cpu_system_ms is None:
            return None
        return self.cpu_user_ms + self.cpu_system_ms


@dataclass(frozen=True)
class Limit:
    asked: Optional[int]
    enforced_by: Tuple[str, ...]


@dataclass(frozen=True)
class Layer:
    asked: str
    active: bool
    detail: str


@dataclass(frozen=True)
class CellError:
    """The exception of a cell. `line` is of the cell's own code; `traceback` has no colours."""

    name: str
    value: str
    line: Optional[int]
    cause: Optional[str]
    traceback: str
    traceback_ansi: str


@dataclass(frozen=True)
class CellTimes:
    """Seconds since 1970; None when the cell did not get there."""

    busy: Optional[float]
    input: Optional[float]
    reply: Optional[float]
    idle: Optional[float]


@dataclass(frozen=True)
class CellUsage:
    cpu_user_ms: Optional[int]
    cpu_system_ms: Optional[int]
    memory_peak_bytes: Optional[int]


@dataclass(frozen=True)
class CellTimings:
    """Milliseconds."""

    queued: float
    run: float


@dataclass(frozen=True)
class CellResult:
    """What came of a cell. In a notebook it shows the outputs, with what is foreign about them out of harm's way."""

    verdict: str
    message: Optional[str]
    execution_count: Optional[int]
    value: Optional[str]
    outputs: List[Dict[str, Any]] = field(repr=False)  # as nbformat has them
    truncated: bool = False
    error: Optional[CellError] = None
    interrupted: bool = False
    interpreter_died: bool = False
    fresh: bool = False
    files: Optional[Files] = field(default=None, repr=False)  # None where nobody looked: the session was over
    timings_ms: Optional[CellTimings] = field(default=None, repr=False)
    times: Optional[CellTimes] = field(default=None, repr=False)
    usage: Optional[CellUsage] = field(default=None, repr=False)
    llm_text: Optional[str] = field(default=None,
                                    repr=False)  # for a language model to read; of results from the library
    document: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)  # the JSON object

    @classmethod
    def from_json(cls, found: Dict[str, Any], llm_text: Optional[str] = None) -> "CellResult":
        error = found["error"]
        return cls(
            verdict=found["verdict"], message=found["message"], execution_count=found["execution_count"],
            value=found["value"],
            outputs=found["outputs"], truncated=found["truncated"],
            error=CellError(**_known(CellError, error)) if error else None,
            interrupted=found["interrupted"], interpreter_died=found["interpreter_died"], fresh=found["fresh"],
            files=Files.from_json(found["files"]) if found["files"] else None,
            timings_ms=CellTimings(**_known(CellTimings, found["timings_ms"])),
            times=CellTimes(**_known(CellTimes, found["times"])), usage=CellUsage(**_known(CellUsage, found["usage"])),
            llm_text=llm_text, document=found)

    @property
    def ok(self) -> bool:
        return self.verdict == "ok"

    @property
    def value_json(self) -> Any:
        """The last value, where the cell was executed with wants_value=True and JSON can say it; else None."""
        return self.document.get("value_json")

    @property
    def stdout(self) -> str:
        return "".join(output["text"] for output in self.outputs if output.get("name") == "stdout")

    @property
    def stderr(self) -> str:
        return "".join(output["text"] for output in self.outputs if output.get("name") == "stderr")

    @property
    def images(self) -> List[bytes]:
        """The PNG images that were shown, in their order."""
        found = [output.get("data", {}).get("image/png") for output in self.outputs]
        return [base64.b64decode(text) for text in found if isinstance(text, str)]

    def check(self) -> "CellResult":
        """Itself when its verdict is "ok"; else raises RunError."""
        if self.ok:
            return self
        why = "%s: %s" % (self.error.name, self.error.value) if self.error else self.message or self.verdict
        raise RunError(why)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Dict[str, str]:
        return _rich.bundle(self.outputs, self.message)


HEAD_KEYS = ("verdict", "exit_code", "signal", "message", "stdout", "stdout_truncated", "stderr", "stderr_truncated",
             "error")


@dataclass(frozen=True)
class Result:
    """What came of a run."""

    verdict: str
    exit_code: Optional[int]
    signal: Optional[str]
    message: Optional[str]
    stdout: str
    stderr: str
    stdout_truncated: bool = False
    stderr_truncated: bool = False
    error: Optional[ProgramError] = None
    timings_ms: Timings = field(default_factory=lambda: Timings(0.0, 0.0, 0.0, 0.0), repr=False)
    usage: Usage = field(default_factory=lambda: Usage(None, None, False, None, None), repr=False)
    stdout_bytes: Optional[bytes] = field(default=None,
                                          repr=False)  # as the program wrote it; of results from the library
    stderr_bytes: Optional[bytes] = field(default=None, repr=False)
    zygote: Optional[str] = field(default=None, repr=False)
    was_prepared: Optional[bool] = field(default=None, repr=False)
    restarts: Optional[int] = field(default=None, repr=False)
    hutch_failed: Optional[bool] = field(default=None, repr=False)
    cell: Optional[CellResult] = field(default=None, repr=False)  # of a rich run
    value: Any = field(default=None, repr=False)  # of the call of a function that ended with "ok"
    document: Dict[str, Any] = field(default_factory=dict, repr=False, compare=False)  # the JSON object

    @classmethod
    def from_json(cls, found: Dict[str, Any], cell: Optional[CellResult] = None, text: Optional[bytes] = None,
                  **more: Any) -> "Result":
        """@found: the object of docs/results.md; with @text, which is the same, its first members will do. @more: what
        hutch.h adds to it."""
        if cell is None and found.get("cell"):
            cell = CellResult.from_json(found["cell"])
        error = found["error"]
        result = object.__new__(cls)
        state = result.__dict__
        state.update(more)
        for name in HEAD_KEYS:
            state[name] = found[name]
        state["error"] = ProgramError(**_known(ProgramError, error)) if error else None
        state["cell"], state["value"] = cell, found.get("value")
        if text is None:
            state["document"] = found
        else:
            state["_text"] = text
        return result

    @classmethod
    def from_text(cls, text: bytes, cell: Optional[CellResult] = None,
                  read: Callable[[bytes], Dict[str, Any]] = json.loads, **more: Any) -> "Result":
        """Of an object that is still text. Files, times, limits and layers, which are nine tenths of it and which few
        callers look at, are read when they are first asked for. @read: of the whole of it, where that has to be."""
        head = _read_head(text)
        if head is None:
            return cls.from_json(read(text), cell, **more)
        return cls.from_json(head, cell, text, **more)

    if not TYPE_CHECKING:
        def __getattr__(self, name: str) -> Any:
            """What `from_json()` has left for the first use."""
            state = self.__dict__
            kind = {"timings_ms": Timings, "usage": Usage}.get(name)
            text = state.get("_text")
            if name == "document" and text is not None:
                state.setdefault(name, json.loads(text))
                state.pop("_text", None)
            elif kind and (text is not None or "document" in state):
                state[name] = kind(**_known(kind, self.document[name]))
            elif name not in state:  # else another thread was here meanwhile
                raise AttributeError("'%s' object has no attribute '%s'" % (type(self).__name__, name))
            return state[name]

    @property
    def ok(self) -> bool:
        return self.verdict == "ok"

    @property
    def files(self) -> Files:
        return Files.from_json(self.document["files"])

    @property
    def limits(self) -> Dict[str, Limit]:
        """Each limit, what was asked for and who enforces it."""
        return {name: Limit(found["asked"], tuple(found["enforced_by"])) for name,
                found in self.document["limits"].items()}

    @property
    def layers(self) -> Dict[str, Layer]:
        """Each layer of isolation, and whether it was there."""
        return {name: Layer(found["asked"], found["active"], found["detail"]) for name,
                found in self.document["layers"].items()}

    def check(self) -> "Result":
        """Itself when its verdict is "ok"; else raises RunError."""
        if self.ok:
            return self
        if self.error:
            raise RunError("%s: %s" % (self.error.name, self.error.value), self)
        raise RunError(self.message or "the program ended with exit code %s" % self.exit_code, self)

    def to_json(self) -> str:
        return json.dumps(self.document)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Dict[str, str]:
        if self.cell is not None:
            return _rich.bundle(self.cell.outputs, self.message)
        streams = [{"output_type": "stream", "name": name, "text": text} for name, text in (
            ("stdout", self.stdout), ("stderr", self.stderr)) if text]
        return _rich.bundle(streams, self.message)


@dataclass(frozen=True)
class Output:
    """One piece of what a cell shows, as it comes: `text` of a stream, `data` of the others, as nbformat has them."""

    kind: str  # stream, display, value, error, update, clear, widget
    stream: Optional[str] = None  # stdout or stderr
    text: Optional[str] = None
    data: Optional[Dict[str, Any]] = None

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Dict[str, str]:
        if self.kind == "stream":
            return _rich.bundle([{"output_type": "stream", "name": self.stream, "text": self.text}], None)
        return _rich.bundle([self.data] if self.data and "output_type" in self.data else [], None)


@dataclass(frozen=True)
class Reply:
    """The answer to an order about checkpoints and branches."""

    id: int
    lost: List[str]  # what the copy does not have: threads, child processes, connections
    ms: float
    bytes: int


@dataclass(frozen=True)
class ProcessEnd:
    """How a process of a session ended. `exit_code` is -1 when it did not exit by itself; `why` says it when hutch
    ended it, or it never ran."""

    exit_code: int
    signal: int
    why: str
    truncated: bool
    run_ms: float


@dataclass(frozen=True)
class Ended:
    """The last word on a session. `directory`: its files, where they were to be kept."""

    why: str
    directory: Optional[str]


NEEDED = frozenset(HEAD_KEYS)
_decode = json.JSONDecoder().raw_decode


def _read_head(text: bytes) -> Optional[Dict[str, Any]]:
    """The members of a result's object before "files"; None where they cannot be had so. Within strings quotes are
    escaped, so only a key looks like this one; and cut at the key of an inner object, the text is no JSON."""
    end = text.find(b',"files":{')
    if end < 0 or b',"cell":' in text or text.rstrip()[-1:] != b"}":
        return None
    try:
        cut = text[:end].decode("utf-8") + "}"
        head, used = _decode(cut)
    except ValueError:
        return None
    return head if used == len(cut) and isinstance(head, dict) and head.keys() >= NEEDED else None


def _known(cls: Any, found: Mapping[str, Any]) -> Dict[str, Any]:
    """The keys that the class has: a newer hutch may say more."""
    return {name: found.get(name) for name in cls.__dataclass_fields__}
