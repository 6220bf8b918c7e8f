"""What engines, runs, sessions and cells are asked for, and the structs of hutch.h made of it."""
from __future__ import annotations

import ctypes
import json
import os
from dataclasses import dataclass, fields
from typing import Any, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

from . import _abi

Text = Union[str, bytes]
Path = Union[str, bytes, "os.PathLike[str]"]
NO_LIMIT = _abi.NO_LIMIT


@dataclass(frozen=True)
class Zygote:
    """One interpreter that is kept warm; see struct hutch_zygote. Those of an engine form a tree by `parent`."""

    name: str
    modules: Sequence[str] = ()
    parent: Optional[str] = None
    warm_up: Optional[str] = None
    min: int = 0
    max: int = 0


@dataclass(frozen=True)
class Limits:
    """In the units of hutch.h: milliseconds, bytes, thousandths of a CPU. 0 takes the policy's, NO_LIMIT none."""

    wall_ms: int = 0
    cpu_ms: int = 0
    memory_bytes: int = 0
    pids: int = 0
    cpus: int = 0
    output_bytes: int = 0
    data_bytes: int = 0
    data_files: int = 0
    file_bytes: int = 0


@dataclass(frozen=True)
class ZygoteStats:
    name: str
    is_ready: bool
    pid: int
    prepared: int
    building: int
    forks: int
    recycled: int


@dataclass(frozen=True)
class Stats:
    """Counts of an engine, as struct hutch_engine_stats has them."""

    running: int
    queued: int
    prepared: int
    building: int
    submitted: int
    finished: int
    from_pool: int
    on_demand: int
    restarted: int
    lost_zygotes: int
    lost_launchers: int
    lost_sandboxes: int
    launcher_pid: int
    sessions: int
    hung: int
    layouts: int
    zygotes: List[ZygoteStats]

    @classmethod
    def read(cls, raw: Any) -> "Stats":
        zygotes = []
        for i in range(raw.n_zygotes):
            entry = raw.zygotes[i]
            zygotes.append(ZygoteStats(entry.name.decode(), bool(entry.is_ready), entry.pid, entry.prepared,
                                       entry.building, entry.forks, entry.recycled))
        names = [field.name for field in fields(cls) if field.name != "zygotes"]
        return cls(zygotes=zygotes, **{name: getattr(raw, name) for name in names})


def source(code: Text) -> bytes:
    """The bytes of a program. Half a surrogate pair, which models write, is for the interpreter to refuse."""
    if isinstance(code, str):
        return code.encode("utf-8", "surrogatepass")
    if isinstance(code, bytes):
        return code
    raise TypeError("code is a %s and no text" % type(code).__name__)


def path_text(path: Optional[Path], what: str) -> Optional[bytes]:
    return None if path is None else _abi.plain(os.fsencode(path), what)


def words(values: Optional[Iterable[Text]], what: str) -> Any:
    if isinstance(values, (str, bytes)):
        raise TypeError("%s is one text and not a list of them" % what)
    return None if values is None else _abi.texts([_abi.plain(value, what) for value in values])


def environment(env: Optional[Mapping[str, str]]) -> Any:
    if env is None:
        return None
    for name in env:
        if not name or "=" in name:
            raise ValueError("%r is not the name of a variable" % name)
    return words(["%s=%s" % pair for pair in env.items()], "a variable of the environment")


def milliseconds(seconds: Optional[float], what: str) -> int:
    """0, which takes the policy's limit, for None. A time of 0 would mean that, too, so it is refused."""
    if seconds is None:
        return 0
    if not seconds > 0:
        raise ValueError("%s is %r seconds; it has to be more than 0, or None for the policy's" % (what, seconds))
    return max(1, round(seconds * 1000)) if seconds < 1e15 else NO_LIMIT


def set_fields(raw: Any, given: Mapping[str, Any], names: Sequence[str]) -> None:
    """Fields of the names that the struct has them under; another key is the caller's mistake."""
    for name, value in given.items():
        if name not in names:
            raise TypeError("there is no option '%s': there are %s" % (name, ", ".join(sorted(names))))
        if value is not None:
            if not 0 <= int(value) <= NO_LIMIT:
                raise ValueError("%s is %r" % (name, value))
            setattr(raw, name, int(value))


def make_zygotes(zygotes: Optional[Sequence[Zygote]]) -> Any:
    if zygotes is None:
        return None
    made = (_abi.Zygote * len(zygotes))()
    for raw, entry in zip(made, zygotes):
        raw.name = _abi.plain(entry.name, "the name of a zygote")
        raw.parent = _abi.plain(entry.parent, "a zygote's parent")
        raw.modules = words(entry.modules, "a module of zygote '%s'" % entry.name)
        raw.warm_up = _abi.plain(entry.warm_up, "the warm-up of zygote '%s'" % entry.name)
        raw.min, raw.max = entry.min, entry.max
    return made


ENGINE_NUMBERS = ("max_running", "max_queued", "recycle_forks", "recycle_ms", "trim_ms", "max_sessions", "answer_ms",
                  "setup_ms",
                  "layouts")


def make_engine_options(*, home: Optional[Path] = None, launcher: Optional[Path] = None, image: Optional[Text] = None,
                        policy: Optional[Text] = None, policy_dir: Optional[Path] = None,
                        zygotes: Optional[Sequence[Zygote]] = None, rootfs: Optional[Text] = None,
                        limits: Optional[Limits] = None, network: Optional[str] = None, workdir: Optional[Text] = None,
                        env: Optional[Mapping[str, str]] = None, volumes: Optional[Iterable[Text]] = None,
                        tmpfs: Optional[Iterable[Text]] = None, data_targets: Optional[Iterable[Text]] = None,
                        gpu: Optional[str] = None, **numbers: Optional[int]) -> Any:
    """struct hutch_engine_options; hutch.h says what each is."""
    raw = _abi.EngineOptions(size=ctypes.sizeof(_abi.EngineOptions))
    for name, path in (("home", home), ("launcher", launcher), ("policy_dir", policy_dir)):
        setattr(raw, name, path_text(path, name))
    for name, text in (("image", image), ("policy", policy), ("rootfs", rootfs), ("network", network),
                       ("workdir", workdir), ("gpu", gpu)):
        setattr(raw, name, _abi.plain(text, name))
    made = make_zygotes(zygotes)
    if made is not None:
        raw.zygotes, raw.n_zygotes = made, len(made)
    if limits is not None:
        raw_limits = _abi.Limits(size=ctypes.sizeof(_abi.Limits))
        set_fields(raw_limits, {field.name: getattr(limits, field.name) for field in fields(limits)}, _abi.LIMIT_NAMES)
        raw.limits = ctypes.pointer(raw_limits)
    raw.env, raw.volumes, raw.tmpfs = environment(env), words(volumes, "a volume"), words(tmpfs, "a tmpfs")
    raw.data_targets = words(data_targets, "a data target")
    set_fields(raw, numbers, ENGINE_NUMBERS)
    return raw


def make_request(code: Text, *, language: Optional[str] = None, name: Optional[Text] = None,
                 args: Optional[Iterable[Text]] = None, env: Optional[Mapping[str, str]] = None,
                 stdin: Union[Text, int, None] = None, data_dir: Optional[Path] = None, keep_data: bool = False,
                 policy: Optional[Text] = None, timeout: Optional[float] = None, cpu_time: Optional[float] = None,
                 rich: bool = False, data_targets: Optional[Iterable[Text]] = None, **limits: Optional[int]) -> Any:
    """struct hutch_request. @stdin: a text, or a descriptor that is read as the program reads. @timeout, @cpu_time:
    seconds, for wall_ms and cpu_ms."""
    raw = _abi.Request(size=ctypes.sizeof(_abi.Request))
    text = source(code)
    raw.code, raw.code_len = text, len(text)
    raw.language, raw.name = _abi.plain(language, "language"), _abi.plain(name, "name")
    if args is not None:
        raw.args = words(args, "an argument")
    if env is not None:
        raw.env = environment(env)
    if isinstance(stdin, int):
        raw.has_input_fd, raw.input_fd = 1, stdin
    elif stdin is not None:
        data = source(stdin)
        raw.input, raw.input_len = data, len(data)
    raw.data_dir, raw.keep_data = path_text(data_dir, "data_dir"), keep_data
    raw.policy = _abi.plain(policy, "policy")
    raw.wall_ms, raw.cpu_ms = milliseconds(timeout, "timeout"), milliseconds(cpu_time, "cpu_time")
    raw.rich = rich
    raw.data_targets = words(data_targets, "a data target")
    set_fields(raw, limits, _abi.LIMIT_NAMES)
    return raw


SESSION_NUMBERS = ("idle_ms", "lifetime_ms", "max_checkpoints", "checkpoint_bytes", "max_processes",
                   "no_interpreter", "paths") + _abi.SESSION_LIMIT_NAMES


def make_session_options(*, policy: Optional[Text] = None, zygote: Optional[str] = None,
                         env: Optional[Mapping[str, str]] = None,
                         data_dir: Optional[Path] = None, keep_data: bool = False,
                         data_targets: Optional[Iterable[Text]] = None, **numbers: Optional[int]) -> Any:
    """struct hutch_session_options."""
    raw = _abi.SessionOptions(size=ctypes.sizeof(_abi.SessionOptions))
    raw.policy, raw.zygote = _abi.plain(policy, "policy"), _abi.plain(zygote, "zygote")
    raw.env, raw.data_dir, raw.keep_data = environment(env), path_text(data_dir, "data_dir"), keep_data
    raw.data_targets = words(data_targets, "a data target")
    set_fields(raw, numbers, SESSION_NUMBERS)
    return raw


def make_process(command: Union[str, Iterable[Text]], *, env: Optional[Mapping[str, str]] = None,
                 cwd: Optional[Text] = None, stdin: bool = False, terminal: Optional[Tuple[int, int]] = None,
                 timeout: Optional[float] = None, output_bytes: int = 0) -> Any:
    """struct hutch_process_options. @command: a text for the shell, or a program and its arguments; @terminal: rows and
    columns."""
    raw = _abi.ProcessOptions(size=ctypes.sizeof(_abi.ProcessOptions))
    if isinstance(command, str):
        raw.shell = _abi.plain(command, "a command")
    else:
        raw.args = words(command, "an argument")
    if env is not None:
        raw.env = environment(env)
    raw.cwd, raw.has_input = _abi.plain(cwd, "cwd"), stdin
    if terminal is not None:
        raw.terminal, (raw.rows, raw.cols) = 1, terminal
    raw.wall_ms, raw.output_bytes = milliseconds(timeout, "timeout"), output_bytes
    return raw


def make_cell(code: Text, *, context: Optional[str] = None, timeout: Optional[float] = None, silent: bool = False,
              store_history: bool = True, allow_input: bool = False, widgets: bool = False,
              env: Optional[Mapping[str, str]] = None, cwd: Optional[Text] = None, wants_value: bool = False,
              stop_on_error: bool = False, calls: Optional[str] = None) -> Any:
    """struct hutch_cell."""
    raw = _abi.Cell(size=ctypes.sizeof(_abi.Cell))
    text = source(code)
    raw.code, raw.code_len = text, len(text)
    raw.context, raw.timeout_ms = _abi.plain(context, "context"), milliseconds(timeout, "timeout")
    raw.silent, raw.no_history, raw.allow_input, raw.widgets = silent, not store_history, allow_input, widgets
    if env is not None:
        raw.env = environment(env)
    raw.cwd, raw.wants_value, raw.stop_on_error = _abi.plain(cwd, "cwd"), wants_value, stop_on_error
    raw.calls = _abi.plain(calls, "the name of a tool")
    return raw


def make_question(kind: int, code: Text, *, cursor: Optional[int] = None, context: Optional[str] = None,
                  detail: bool = False) -> Any:
    """struct hutch_question."""
    raw = _abi.Question(size=ctypes.sizeof(_abi.Question))
    text = source(code)
    raw.kind, raw.code, raw.code_len = kind, text, len(text)
    raw.cursor = -1 if cursor is None else cursor
    raw.context, raw.detail = _abi.plain(context, "context"), detail
    return raw


def make_function(name: str, code: Text, *, min: int = 0, max: int = 0) -> Any:
    """struct hutch_function."""
    raw = _abi.Function(size=ctypes.sizeof(_abi.Function))
    text = source(code)
    raw.name, raw.code, raw.code_len = _abi.plain(name, "the name of a function"), text, len(text)
    raw.min, raw.max = min, max
    return raw


def make_call(name: str, event: Any, *, env: Optional[Mapping[str, str]] = None, policy: Optional[Text] = None,
              timeout: Optional[float] = None, cpu_time: Optional[float] = None, **limits: Optional[int]) -> Any:
    """struct hutch_request that calls a function."""
    raw = _abi.Request(size=ctypes.sizeof(_abi.Request))
    text = json.dumps(event, allow_nan=False).encode("ascii")
    raw.function, raw.event, raw.event_len = _abi.plain(name, "the name of a function"), text, len(text)
    raw.env, raw.policy = environment(env), _abi.plain(policy, "policy")
    raw.wall_ms, raw.cpu_ms = milliseconds(timeout, "timeout"), milliseconds(cpu_time, "cpu_time")
    set_fields(raw, limits, _abi.LIMIT_NAMES)
    return raw
