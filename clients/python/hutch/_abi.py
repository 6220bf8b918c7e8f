"""The structs and functions of hutch.h as ctypes knows them, in the order of the header.

tests/e2e/test_python_abi.py compares name, place and size of each field with what a C compiler makes of the header, so
a field that the header gets at the end of a struct is added here, too. A library that is older or newer than this file
is no harm: each struct begins with the size that its maker knows."""
from __future__ import annotations

from ctypes import (CFUNCTYPE, POINTER, Structure, c_char, c_char_p, c_double, c_int, c_int64, c_size_t, c_uint,
                    c_uint64, c_void_p)
from typing import Any, Dict, List, Tuple

TEXTS = POINTER(c_char_p)  # ends with NULL
LIMIT_NAMES = ("wall_ms", "cpu_ms", "memory_bytes", "pids", "cpus", "output_bytes", "data_bytes", "data_files",
               "file_bytes")
SESSION_LIMIT_NAMES = LIMIT_NAMES[2:]
NO_LIMIT = UNKNOWN = 2**64 - 1


def each(kind: Any, *names: str) -> List[Tuple[str, Any]]:
    return [(name, kind) for name in names]


class Error(Structure):
    _fields_ = [("code", c_int), ("message", c_char * 512)]


# --- engine

class Zygote(Structure):
    _fields_ = [("name", c_char_p), ("parent", c_char_p), ("modules", TEXTS), ("warm_up", c_char_p), ("min", c_uint),
                ("max", c_uint)]


class Limits(Structure):
    _fields_ = [("size", c_size_t)] + each(c_uint64, *LIMIT_NAMES)


class EngineOptions(Structure):
    _fields_ = [("size", c_size_t)] + each(c_char_p, "home", "launcher", "image", "policy", "policy_dir") + [
        ("zygotes", POINTER(Zygote)), ("n_zygotes", c_size_t)] + each(
            c_uint, "max_running", "max_queued", "recycle_forks") + each(c_uint64, "recycle_ms", "trim_ms") + [
        ("max_sessions", c_uint), ("rootfs", c_char_p), ("limits", POINTER(Limits)), ("network", c_char_p),
        ("workdir", c_char_p), ("env", TEXTS), ("volumes", TEXTS), ("tmpfs", TEXTS), ("answer_ms", c_uint64),
        ("setup_ms", c_uint64), ("layouts", c_uint), ("pools", c_void_p), ("n_pools", c_size_t),
        ("data_targets", TEXTS), ("gpu", c_char_p)]


class ZygoteStats(Structure):
    _fields_ = [("name", c_char_p), ("is_ready", c_int), ("pid", c_int), ("prepared", c_uint), ("building", c_uint),
                ("forks", c_uint64), ("recycled", c_uint64)]


class EngineStats(Structure):
    _fields_ = [("size", c_size_t)] + each(c_uint, "running", "queued", "prepared", "building") + each(
        c_uint64, "submitted", "finished", "from_pool", "on_demand", "restarted", "lost_zygotes", "lost_launchers",
        "lost_sandboxes") + [("launcher_pid", c_int), ("zygotes", POINTER(ZygoteStats)), ("n_zygotes", c_size_t),
                             ("sessions", c_uint), ("hung", c_uint64), ("layouts", c_uint), ("pools", c_void_p),
                             ("n_pools", c_size_t)]


# --- results

class CellResult(Structure):
    _fields_ = [("size", c_size_t), ("verdict", c_int)] + each(
        c_int, "interpreter_died", "is_fresh", "was_interrupted", "execution_count") + each(
        c_char_p, "message", "outputs") + [("truncated", c_int)] + each(
        c_char_p, "error_name", "error_value", "error_traceback", "error_traceback_ansi") + [
        ("error_line", c_int)] + each(
        c_double, "queued_ms", "run_ms", "t_busy", "t_input", "t_reply", "t_idle") + each(
        c_uint64, "cpu_user_ms", "cpu_system_ms", "memory_peak_bytes") + [
        ("internal", c_void_p), ("language_info", c_char_p), ("value_json", c_char_p), ("id", c_uint64)]


class Result(Structure):
    _fields_ = [("size", c_size_t), ("verdict", c_int), ("exit_code", c_int), ("signal", c_int), ("message", c_char_p),
                ("out", c_void_p), ("out_len", c_size_t), ("err", c_void_p), ("err_len", c_size_t),
                ("out_truncated", c_int),
                ("err_truncated", c_int)] + each(c_char_p, "error_name", "error_value", "error_traceback",
                                                 "directory") + each(
                    c_double, "queued_ms", "prepared_ms", "run_ms", "total_ms") + each(
                    c_uint64, "cpu_user_ms", "cpu_system_ms", "memory_peak_bytes", "pids_peak") + [
                ("was_prepared", c_int), ("restarts", c_int), ("zygote", c_char_p), ("internal", c_void_p),
                ("cell", POINTER(CellResult)), ("cpu_at_least", c_int), ("hutch_failed", c_int),
                ("fetched", c_void_p), ("n_fetched", c_size_t), ("value_json", c_char_p),
                ("level", c_char_p)]


class LimitReport(Structure):
    _fields_ = [("size", c_size_t), ("name", c_char_p), ("value", c_uint64), ("enforcers", c_char * 64)]


class LayerReport(Structure):
    _fields_ = [("size", c_size_t), ("name", c_char_p), ("is_active", c_int), ("detail", c_char_p)]


# --- runs

ON_OUTPUT = CFUNCTYPE(None, c_void_p, c_uint64, c_int, c_void_p, c_size_t)
ON_RESULT = CFUNCTYPE(None, c_void_p, c_uint64, POINTER(Result))


class Request(Structure):
    _fields_ = [("size", c_size_t), ("language", c_char_p), ("code", c_char_p), ("code_len", c_size_t),
                ("name", c_char_p),
                ("args", TEXTS), ("env", TEXTS), ("input", c_char_p), ("input_len", c_size_t), ("data_dir", c_char_p),
                ("keep_data", c_int), ("policy", c_char_p)] + each(c_uint64, *LIMIT_NAMES) + [
                ("on_output", ON_OUTPUT), ("on_result", ON_RESULT), ("user", c_void_p), ("rich", c_int),
                ("has_input_fd", c_int),
                ("input_fd", c_int),
                ("files", c_void_p), ("n_files", c_size_t), ("fetch", TEXTS), ("function", c_char_p),
                ("event", c_char_p), ("event_len", c_size_t), ("data_targets", TEXTS), ("tenant", c_uint64), ("weight", c_uint)]


# --- functions of an engine

FUNCTION_ON_READY = CFUNCTYPE(None, c_void_p, c_char_p, POINTER(Error))


class Function(Structure):
    _fields_ = [("size", c_size_t), ("name", c_char_p), ("code", c_char_p), ("code_len", c_size_t), ("min", c_uint),
                ("max", c_uint), ("on_ready", FUNCTION_ON_READY), ("user", c_void_p)]


class FunctionInfo(Structure):
    _fields_ = [("size", c_size_t), ("is_ready", c_int), ("is_starting", c_int)] + each(
        c_uint, "prepared", "building", "calls") + each(c_uint64, "from_pool", "on_demand") + [("why", c_char * 512)]


# --- sessions

OUTPUT_KINDS = ("stream", "display", "value", "error", "update", "clear", "widget")  # enum hutch_output_kind


class Output(Structure):
    _fields_ = [("size", c_size_t), ("kind", c_int), ("stream", c_int), ("text", c_void_p), ("text_len", c_size_t),
                ("json", c_char_p)]


ON_END = CFUNCTYPE(None, c_void_p, c_uint64, c_char_p, c_char_p)


class SessionOptions(Structure):
    _fields_ = [("size", c_size_t), ("policy", c_char_p), ("zygote", c_char_p), ("env", TEXTS), ("data_dir", c_char_p),
                ("keep_data", c_int)] + each(c_uint64, "idle_ms", "lifetime_ms", *SESSION_LIMIT_NAMES) + [
                ("max_checkpoints", c_uint), ("checkpoint_bytes", c_uint64), ("on_end", ON_END), ("user", c_void_p),
                ("max_processes", c_uint), ("no_interpreter", c_int), ("paths", c_int),
                ("wall_ms", c_uint64), ("data_targets", TEXTS)]


CELL_ON_OUTPUT = CFUNCTYPE(None, c_void_p, c_uint64, POINTER(Output))
CELL_ON_INPUT = CFUNCTYPE(None, c_void_p, c_uint64, c_char_p, c_int)
CELL_ON_CALL = CFUNCTYPE(None, c_void_p, c_uint64, c_uint64, c_char_p, c_char_p)
CELL_ON_RESULT = CFUNCTYPE(None, c_void_p, c_uint64, POINTER(CellResult))


class Cell(Structure):
    _fields_ = [("size", c_size_t), ("code", c_char_p), ("code_len", c_size_t), ("context", c_char_p),
                ("timeout_ms", c_uint64),
                ("silent", c_int), ("no_history", c_int), ("allow_input", c_int), ("on_output", CELL_ON_OUTPUT),
                ("on_input", CELL_ON_INPUT), ("on_result", CELL_ON_RESULT), ("user", c_void_p), ("widgets", c_int),
                ("ret_id", POINTER(c_uint64)), ("on_start", c_void_p), ("env", TEXTS), ("wants_value", c_int),
                ("stop_on_error", c_int), ("cwd", c_char_p), ("calls", c_char_p), ("on_call", CELL_ON_CALL)]


class Reply(Structure):
    _fields_ = [("size", c_size_t), ("ok", c_int), ("message", c_char_p), ("id", c_uint64), ("lost", c_char_p),
                ("ms", c_double),
                ("bytes", c_uint64),
                ("json", c_char_p)]


class SessionInfo(Structure):
    _fields_ = [("size", c_size_t), ("state", c_int)] + each(c_double, "t_opened", "t_used", "t_idle_end", "t_end") + [
        ("idle_ms", c_uint64), ("waiting", c_uint), ("cell", c_uint64)] + each(
        c_uint, "contexts", "checkpoints", "branches") + each(
        c_uint64, "branch", "memory_bytes", "cpu_ms", "pids", "data_bytes", "data_files", "checkpoint_bytes") + [
        ("paused_by", c_int), ("is_still", c_int), ("processes", c_uint)]


# --- processes of a session

class ProcessEnd(Structure):
    _fields_ = [("size", c_size_t), ("exit_code", c_int), ("signal", c_int), ("why", c_char_p), ("truncated", c_int),
                ("run_ms", c_double)]


PROCESS_ON_OUTPUT = CFUNCTYPE(None, c_void_p, c_uint64, c_uint64, c_int, c_void_p, c_size_t)
PROCESS_ON_ROOM = CFUNCTYPE(None, c_void_p, c_uint64, c_uint64)
PROCESS_ON_END = CFUNCTYPE(None, c_void_p, c_uint64, c_uint64, POINTER(ProcessEnd))


class ProcessOptions(Structure):
    _fields_ = [("size", c_size_t), ("args", TEXTS), ("shell", c_char_p), ("env", TEXTS), ("cwd", c_char_p),
                ("has_input", c_int), ("terminal", c_int), ("rows", c_uint), ("cols", c_uint), ("wall_ms", c_uint64),
                ("output_bytes", c_uint64), ("on_output", PROCESS_ON_OUTPUT), ("on_room", PROCESS_ON_ROOM),
                ("on_end", PROCESS_ON_END), ("user", c_void_p)]


ON_REPLY = CFUNCTYPE(None, c_void_p, c_uint64, POINTER(Reply))


class Question(Structure):
    _fields_ = [("size", c_size_t), ("kind", c_int), ("code", c_char_p), ("code_len", c_size_t), ("cursor", c_int64),
                ("context", c_char_p), ("detail", c_int), ("timeout_ms", c_uint64)]


# --- paths inside a session

class PathReply(Structure):
    _fields_ = [("size", c_size_t), ("ok", c_int), ("code", c_int), ("message", c_char_p), ("entries", c_void_p),
                ("n_entries", c_size_t), ("truncated", c_int), ("existed", c_int), ("fd", c_int), ("ms", c_double)]


ON_PATH = CFUNCTYPE(None, c_void_p, c_uint64, POINTER(PathReply))


class PathOptions(Structure):
    _fields_ = [("size", c_size_t), ("on_reply", ON_PATH), ("user", c_void_p), ("timeout_ms", c_uint64),
                ("follow", c_int), ("depth", c_uint), ("max_entries", c_uint), ("parents", c_int), ("tree", c_int),
                ("mode", c_uint)]


class Change(Structure):
    _fields_ = [("size", c_size_t), ("kind", c_int), ("name", c_char_p), ("is_directory", c_int)]


WATCH_ON_BEGIN = CFUNCTYPE(None, c_void_p, c_uint64, c_uint64)
WATCH_ON_CHANGE = CFUNCTYPE(None, c_void_p, c_uint64, c_uint64, POINTER(Change))
WATCH_ON_END = CFUNCTYPE(None, c_void_p, c_uint64, c_uint64, c_int, c_char_p)


class WatchOptions(Structure):
    _fields_ = [("size", c_size_t), ("on_begin", WATCH_ON_BEGIN), ("on_change", WATCH_ON_CHANGE),
                ("on_end", WATCH_ON_END), ("user", c_void_p)]


# --- functions: what they return, and what they are given. A char * that is the caller's to free is a c_void_p.

ENGINE, SESSION, ERROR, SIZED = c_void_p, c_uint64, POINTER(Error), c_void_p
ORDER = (ON_REPLY, c_void_p, ERROR)
PATH = (POINTER(PathOptions), ERROR)
FUNCTIONS: Dict[str, Tuple[Any, Tuple[Any, ...]]] = {
    "hutch_engine_options_init": (None, (SIZED,)),
    "hutch_engine_open": (c_int, (POINTER(EngineOptions), POINTER(c_void_p), ERROR)),
    "hutch_engine_free": (None, (ENGINE,)),
    "hutch_engine_fd": (c_int, (ENGINE,)),
    "hutch_engine_dispatch": (c_int, (ENGINE, ERROR)),
    "hutch_engine_get_stats": (None, (ENGINE, POINTER(EngineStats))),
    "hutch_engine_get_limits": (None, (ENGINE, POINTER(Limits))),
    "hutch_engine_submit": (c_int, (ENGINE, POINTER(Request), POINTER(c_uint64), ERROR)),
    "hutch_engine_cancel": (c_int, (ENGINE, c_uint64)),
    "hutch_engine_signal": (c_int, (ENGINE, c_uint64, c_int)),
    "hutch_engine_set_function": (c_int, (ENGINE, POINTER(Function), ERROR)),
    "hutch_engine_drop_function": (c_int, (ENGINE, c_char_p)),
    "hutch_engine_get_function": (c_int, (ENGINE, c_char_p, POINTER(FunctionInfo), ERROR)),
    "hutch_request_init": (None, (SIZED,)),
    "hutch_verdict_text": (c_char_p, (c_int,)),
    "hutch_result_to_json": (c_void_p, (POINTER(Result),)),
    "hutch_session_options_init": (None, (SIZED,)),
    "hutch_session_open": (c_int, (ENGINE, POINTER(SessionOptions), POINTER(c_uint64), ERROR)),
    "hutch_session_close": (c_int, (ENGINE, SESSION)),
    "hutch_cell_init": (None, (SIZED,)),
    "hutch_session_execute": (c_int, (ENGINE, SESSION, POINTER(Cell), ERROR)),
    "hutch_session_interrupt": (c_int, (ENGINE, SESSION)),
    "hutch_session_reply": (c_int, (ENGINE, SESSION, c_char_p)),
    "hutch_session_answer": (c_int, (ENGINE, SESSION, c_uint64, c_char_p, c_int, ERROR)),
    "hutch_session_reset_context": (c_int, (ENGINE, SESSION, c_char_p) + ORDER),
    "hutch_session_drop_context": (c_int, (ENGINE, SESSION, c_char_p) + ORDER),
    "hutch_session_restart": (c_int, (ENGINE, SESSION, ERROR)),
    "hutch_session_checkpoint": (c_int, (ENGINE, SESSION) + ORDER),
    "hutch_session_rollback": (c_int, (ENGINE, SESSION, c_uint64) + ORDER),
    "hutch_session_fork": (c_int, (ENGINE, SESSION) + ORDER),
    "hutch_session_switch": (c_int, (ENGINE, SESSION, c_uint64) + ORDER),
    "hutch_session_ask": (c_int, (ENGINE, SESSION, POINTER(Question)) + ORDER),
    "hutch_session_drop": (c_int, (ENGINE, SESSION, c_uint64) + ORDER),
    "hutch_session_cancel_cell": (c_int, (ENGINE, SESSION, c_uint64)),
    "hutch_session_get_info": (c_int, (ENGINE, SESSION, POINTER(SessionInfo), POINTER(c_void_p), ERROR)),
    "hutch_session_pause": (c_int, (ENGINE, SESSION, ERROR)),
    "hutch_session_resume": (c_int, (ENGINE, SESSION, ERROR)),
    "hutch_session_set_lifetime": (c_int, (ENGINE, SESSION, c_uint64, c_uint64, ERROR)),
    "hutch_session_spawn": (c_int, (ENGINE, SESSION, POINTER(ProcessOptions), POINTER(c_uint64), ERROR)),
    "hutch_process_write": (c_int, (ENGINE, SESSION, c_uint64, c_char_p, c_size_t, ERROR)),
    "hutch_process_close_stdin": (c_int, (ENGINE, SESSION, c_uint64, ERROR)),
    "hutch_process_signal": (c_int, (ENGINE, SESSION, c_uint64, c_int, ERROR)),
    "hutch_process_resize": (c_int, (ENGINE, SESSION, c_uint64, c_uint, c_uint, ERROR)),
    "hutch_process_hold": (c_int, (ENGINE, SESSION, c_uint64, c_int, ERROR)),
    "hutch_session_processes": (c_void_p, (ENGINE, SESSION, ERROR)),
    "hutch_session_await_files": (c_int, (ENGINE, SESSION) + ORDER),
    "hutch_session_files": (c_void_p, (ENGINE, SESSION, ERROR)),
    "hutch_session_open_file": (c_int, (ENGINE, SESSION, c_char_p, c_int, ERROR)),
    "hutch_session_delete_file": (c_int, (ENGINE, SESSION, c_char_p, ERROR)),
    "hutch_session_stat": (c_int, (ENGINE, SESSION, c_char_p) + PATH),
    "hutch_session_list": (c_int, (ENGINE, SESSION, c_char_p) + PATH),
    "hutch_session_make_directory": (c_int, (ENGINE, SESSION, c_char_p) + PATH),
    "hutch_session_rename": (c_int, (ENGINE, SESSION, c_char_p, c_char_p) + PATH),
    "hutch_session_remove": (c_int, (ENGINE, SESSION, c_char_p) + PATH),
    "hutch_session_open_path": (c_int, (ENGINE, SESSION, c_char_p, c_int) + PATH),
    "hutch_path_reply_to_json": (c_void_p, (POINTER(PathReply),)),
    "hutch_session_watch": (c_int, (ENGINE, SESSION, c_char_p, POINTER(WatchOptions), POINTER(c_uint64), ERROR)),
    "hutch_session_unwatch": (c_int, (ENGINE, SESSION, c_uint64)),
    "hutch_cell_result_to_json": (c_void_p, (POINTER(CellResult),)),
    "hutch_cell_result_to_text": (c_void_p, (POINTER(CellResult), c_size_t)),
    "hutch_dir_list": (c_void_p, (c_int, ERROR)),
    "hutch_dir_open_file": (c_int, (c_int, c_char_p, c_int, ERROR)),
    "hutch_dir_delete": (c_int, (c_int, c_char_p, ERROR)),
}

# The functions of these names make the structs of the first version, which end with these fields. What they write into
# "size" shows at load whether library and package lay out a struct alike.
FIRST_VERSION = {
    "hutch_engine_options_init": (EngineOptions, "max_sessions"),
    "hutch_request_init": (Request, "rich"),
    "hutch_session_options_init": (SessionOptions, "user"),
    "hutch_cell_init": (Cell, "user"),
}

STRUCTS = {
    "hutch_error": Error, "hutch_zygote": Zygote, "hutch_limits": Limits, "hutch_engine_options": EngineOptions,
    "hutch_zygote_stats": ZygoteStats, "hutch_engine_stats": EngineStats, "hutch_result": Result,
    "hutch_limit_report": LimitReport, "hutch_layer_report": LayerReport, "hutch_request": Request,
    "hutch_output": Output,
    "hutch_cell_result": CellResult, "hutch_session_options": SessionOptions, "hutch_cell": Cell, "hutch_reply": Reply,
    "hutch_function": Function, "hutch_function_info": FunctionInfo, "hutch_question": Question,
    "hutch_path_reply": PathReply, "hutch_path_options": PathOptions, "hutch_change": Change,
    "hutch_watch_options": WatchOptions,
    "hutch_session_info": SessionInfo, "hutch_process_end": ProcessEnd, "hutch_process_options": ProcessOptions,
}


def end_of(struct: Any, name: str) -> int:
    """Up to where a struct that has the field goes: an older library gives a shorter one."""
    field = getattr(struct, name)
    return int(field.offset + field.size)


def texts(values: Any) -> Any:
    """An array that ends with NULL, of what `plain()` made; None for None."""
    if values is None:
        return None
    return (c_char_p * (len(values) + 1))(*values, None)


def plain(value: Any, what: str) -> Any:
    """The bytes of a text for C. A NUL would end it there: what follows would be lost without a word."""
    if value is None:
        return None
    if isinstance(value, str):
        value = value.encode("utf-8", "surrogateescape")
    if not isinstance(value, bytes):
        raise TypeError("%s is a %s and no text" % (what, type(value).__name__))
    if b"\0" in value:
        raise ValueError("%s has a NUL byte in it" % what)
    return value
