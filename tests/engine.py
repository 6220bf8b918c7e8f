"""libhutch from Python, by ctypes: what hutch.h declares, and a loop that waits for events. One engine serves as many
tests as use it; `with Engine(...) as engine: engine.run("print(1)")`."""
import base64
import ctypes
import fcntl
import functools
import json
import os
import select
import subprocess
import time

import pytest

import support

SECONDS = 150  # for anything that has to happen at all
# The policy "default" in other words than an engine's: a request that names it has a sandbox built.
SHELL_ZYGOTES = (("bare", None, (), 1, 4), ("shell", "bare", ("IPython", "ipykernel"), 2, 8))  # of engines for sessions
OTHER_DEFAULT = os.path.join(support.engine_env()["HUTCH_POLICY_DIR"], "default.json")


class Error(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int), ("message", ctypes.c_char * 512)]


class ZygoteOptions(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("parent", ctypes.c_char_p), ("modules", ctypes.POINTER(ctypes.c_char_p)),
                ("warm_up", ctypes.c_char_p), ("min", ctypes.c_uint), ("max", ctypes.c_uint)]


class PoolOptions(ctypes.Structure):
    _fields_ = [("zygote", ctypes.c_char_p), ("policy", ctypes.c_char_p), ("min", ctypes.c_uint), ("max", ctypes.c_uint)]


class Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("home", ctypes.c_char_p), ("launcher", ctypes.c_char_p), ("image", ctypes.c_char_p),
                ("policy", ctypes.c_char_p), ("policy_dir", ctypes.c_char_p), ("zygotes", ctypes.POINTER(ZygoteOptions)),
                ("n_zygotes", ctypes.c_size_t), ("max_running", ctypes.c_uint), ("max_queued", ctypes.c_uint),
                ("recycle_forks", ctypes.c_uint), ("recycle_ms", ctypes.c_uint64), ("trim_ms", ctypes.c_uint64),
                ("max_sessions", ctypes.c_uint), ("rootfs", ctypes.c_char_p), ("limits", ctypes.c_void_p), ("network", ctypes.c_char_p),
                ("workdir", ctypes.c_char_p), ("env", ctypes.POINTER(ctypes.c_char_p)), ("volumes", ctypes.POINTER(ctypes.c_char_p)),
                ("tmpfs", ctypes.POINTER(ctypes.c_char_p)), ("answer_ms", ctypes.c_uint64), ("setup_ms", ctypes.c_uint64),
                ("layouts", ctypes.c_uint), ("pools", ctypes.POINTER(PoolOptions)), ("n_pools", ctypes.c_size_t),
                ("data_targets", ctypes.POINTER(ctypes.c_char_p)), ("gpu", ctypes.c_char_p)]


class ZygoteStats(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("is_ready", ctypes.c_int), ("pid", ctypes.c_int), ("prepared", ctypes.c_uint),
                ("building", ctypes.c_uint), ("forks", ctypes.c_uint64), ("recycled", ctypes.c_uint64)]


class PoolStats(ctypes.Structure):
    _fields_ = [("zygote", ctypes.c_char_p), ("policy", ctypes.c_char_p), ("prepared", ctypes.c_uint), ("building", ctypes.c_uint),
                ("from_pool", ctypes.c_uint64), ("on_demand", ctypes.c_uint64)]


class Stats(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("running", ctypes.c_uint), ("queued", ctypes.c_uint), ("prepared", ctypes.c_uint),
                ("building", ctypes.c_uint)] + [(name, ctypes.c_uint64) for name in (
                    "submitted", "finished", "from_pool", "on_demand", "restarted", "lost_zygotes", "lost_launchers",
                    "lost_sandboxes")] + [("launcher_pid", ctypes.c_int), ("zygotes", ctypes.POINTER(ZygoteStats)),
                                          ("n_zygotes", ctypes.c_size_t), ("sessions", ctypes.c_uint), ("hung", ctypes.c_uint64),
                                          ("layouts", ctypes.c_uint), ("pools", ctypes.POINTER(PoolStats)), ("n_pools", ctypes.c_size_t)]


class RawFetched(ctypes.Structure):
    _fields_ = [("path", ctypes.c_char_p), ("fd", ctypes.c_int), ("code", ctypes.c_int), ("size", ctypes.c_uint64)]


class RawFile(ctypes.Structure):
    _fields_ = [("path", ctypes.c_char_p), ("data", ctypes.c_char_p), ("len", ctypes.c_size_t), ("mode", ctypes.c_uint)]


class RawResult(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("verdict", ctypes.c_int), ("exit_code", ctypes.c_int), ("signal", ctypes.c_int),
                ("message", ctypes.c_char_p), ("out", ctypes.POINTER(ctypes.c_char)), ("out_len", ctypes.c_size_t),
                ("err", ctypes.POINTER(ctypes.c_char)), ("err_len", ctypes.c_size_t), ("out_truncated", ctypes.c_int),
                ("err_truncated", ctypes.c_int), ("error_name", ctypes.c_char_p), ("error_value", ctypes.c_char_p),
                ("error_traceback", ctypes.c_char_p), ("directory", ctypes.c_char_p)] + [
                    (name, ctypes.c_double) for name in ("queued_ms", "prepared_ms", "run_ms", "total_ms")] + [
                    (name, ctypes.c_uint64) for name in ("cpu_user_ms", "cpu_system_ms", "memory_peak_bytes", "pids_peak")] + [
                    ("was_prepared", ctypes.c_int), ("restarts", ctypes.c_int), ("zygote", ctypes.c_char_p),
                    ("internal", ctypes.c_void_p), ("cell", ctypes.c_void_p), ("cpu_at_least", ctypes.c_int),
                    ("hutch_failed", ctypes.c_int), ("fetched", ctypes.POINTER(RawFetched)), ("n_fetched", ctypes.c_size_t),
                    ("value_json", ctypes.c_char_p)]


ON_OUTPUT = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int, ctypes.POINTER(ctypes.c_char),
                             ctypes.c_size_t)
ON_RESULT = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint64, ctypes.POINTER(RawResult))


class Request(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("language", ctypes.c_char_p), ("code", ctypes.c_char_p), ("code_len", ctypes.c_size_t),
                ("name", ctypes.c_char_p), ("args", ctypes.POINTER(ctypes.c_char_p)), ("env", ctypes.POINTER(ctypes.c_char_p)),
                ("input", ctypes.c_char_p), ("input_len", ctypes.c_size_t), ("data_dir", ctypes.c_char_p),
                ("keep_data", ctypes.c_int), ("policy", ctypes.c_char_p)] + [
                    (name, ctypes.c_uint64) for name in ("wall_ms", "cpu_ms", "memory_bytes", "pids", "cpus", "output_bytes",
                                                         "data_bytes", "data_files", "file_bytes")] + [
                    ("on_output", ON_OUTPUT), ("on_result", ON_RESULT), ("user", ctypes.c_void_p), ("rich", ctypes.c_int),
                    ("has_input_fd", ctypes.c_int), ("input_fd", ctypes.c_int), ("files", ctypes.POINTER(RawFile)),
                    ("n_files", ctypes.c_size_t), ("fetch", ctypes.POINTER(ctypes.c_char_p)), ("function", ctypes.c_char_p),
                ("event", ctypes.c_char_p), ("event_len", ctypes.c_size_t), ("data_targets", ctypes.POINTER(ctypes.c_char_p))]


ON_READY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(Error))


class RawFunction(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("name", ctypes.c_char_p), ("code", ctypes.c_char_p), ("code_len", ctypes.c_size_t),
                ("min", ctypes.c_uint), ("max", ctypes.c_uint), ("on_ready", ON_READY), ("user", ctypes.c_void_p)]


class FunctionInfo(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("is_ready", ctypes.c_int), ("is_starting", ctypes.c_int), ("prepared", ctypes.c_uint),
                ("building", ctypes.c_uint), ("calls", ctypes.c_uint), ("from_pool", ctypes.c_uint64), ("on_demand", ctypes.c_uint64),
                ("why", ctypes.c_char * 512)]


def library_path():
    """Beside the binary in a build directory, and where `make install` puts it."""
    folder = os.path.dirname(support.HUTCH)
    for path in (os.path.join(folder, "libhutch.so.1"), os.path.join(folder, "../lib/libhutch.so.1")):
        if os.path.exists(path):
            return path
    pytest.fail("there is no libhutch.so.1 for %s" % support.HUTCH)


@functools.lru_cache(None)
def has_sanitizer(path):
    symbols = subprocess.run(["nm", "-D", path], capture_output=True, text=True, check=False).stdout
    return "__asan_" in symbols


_LIBRARY = []


def library():
    if not _LIBRARY:
        path = library_path()
        if has_sanitizer(path):
            pytest.skip("a sanitized library cannot be loaded by an interpreter that is not")
        lib = ctypes.CDLL(path)
        lib.hutch_result_to_json.restype = ctypes.c_void_p
        lib.hutch_verdict_text.restype = ctypes.c_char_p
        for name in ("options_init", "open", "free", "fd", "dispatch", "get_stats", "submit", "cancel"):
            getattr(lib, "hutch_engine_" + name).argtypes = None
        _LIBRARY.append((lib, ctypes.CDLL(None)))
        _LIBRARY[0][1].free.argtypes = [ctypes.c_void_p]
    return _LIBRARY[0][0]


def words(texts):
    """A NULL-terminated array, or None."""
    if texts is None:
        return None
    texts = [text.encode() if isinstance(text, str) else text for text in texts]
    return (ctypes.c_char_p * (len(texts) + 1))(*texts, None)


def text(value):
    return value.encode() if isinstance(value, str) else value


class Failure(Exception):
    """What the library says: an errno and a sentence."""

    def __init__(self, error):
        super().__init__(error.message.decode())
        self.code = error.code


def refused(call, code):
    """It is, with this errno; the sentence."""
    with pytest.raises(Failure) as caught:
        call()
    assert caught.value.code == code, caught.value
    return str(caught.value)


class Run:
    """A submitted run; `result` when there is one: the JSON object of docs/results.md with what hutch.h adds to it."""

    def __init__(self):
        self.id = 0
        self.result = None
        self.cell = None  # of a rich run
        self.results = 0
        self.output = {1: b"", 2: b""}


class Engine:
    def __init__(self, image=None, policy=None, zygotes=(("bare", None, (), 2, 4),), pools=(), **numbers):
        lib = library()
        self.options = Options()
        self.options.size = ctypes.sizeof(Options)  # the function, which is not the macro, knows the first fields only
        found = support.engine_env()
        self.options.launcher, self.options.policy_dir = text(found["HUTCH_LAUNCHER"]), text(found["HUTCH_POLICY_DIR"])
        self.options.image = None if "rootfs" in numbers else text(image or support.IMAGE)
        self.options.policy = text(policy)
        self.options.layouts = 1  # further ones would start in the middle of tests that count processes
        self.kept = []  # arrays that the options point to
        if zygotes:
            self.kept = (ZygoteOptions * len(zygotes))()
            for entry, (name, parent, modules, least, most, *warm_up) in zip(self.kept, zygotes):
                entry.name, entry.parent, entry.min, entry.max = text(name), text(parent), least, most
                entry.modules = words(modules)
                entry.warm_up = text(warm_up[0]) if warm_up else None
            self.options.zygotes, self.options.n_zygotes = self.kept, len(zygotes)
        self.kept_pools = (PoolOptions * len(pools))()
        for entry, (zygote, name, least, most) in zip(self.kept_pools, pools):
            entry.zygote, entry.policy, entry.min, entry.max = text(zygote), text(name), least, most
        self.options.pools, self.options.n_pools = self.kept_pools, len(pools)
        for name, value in numbers.items():
            setattr(self.options, name, value)
        self.handle = ctypes.c_void_p()
        error = Error()
        if lib.hutch_engine_open(ctypes.byref(self.options), ctypes.byref(self.handle), ctypes.byref(error)) < 0:
            raise Failure(error)
        self.fd = lib.hutch_engine_fd(self.handle)
        self.runs = {}  # id: (Run, what must live as long as it)
        self.on_result = ON_RESULT(self._on_result)
        self.on_output = ON_OUTPUT(self._on_output)
        self.told, self.on_ready = [], ON_READY(self._on_ready)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        if self.handle:
            library().hutch_engine_free(self.handle)
            self.handle = None

    # --- runs

    def submit(self, code, stream=False, args=None, env=None, files=(), fetch=None, **fields):
        """@files: (path, bytes) or (path, bytes, mode); @fetch: paths, whose contents or errno are result["fetched"]."""
        request = Request()
        lib = library()
        lib.hutch_request_init(ctypes.byref(request))
        request.size = ctypes.sizeof(Request)
        kept = [(os.fsencode(path), data, mode[0] if mode else 0) for path, data, *mode in files]
        request.files = (RawFile * len(kept))(*((path, data, len(data), mode) for path, data, mode in kept))
        request.n_files, request.fetch = len(kept), words(fetch and [os.fsencode(path) for path in fetch])
        code = text(code)
        if code is not None:
            request.code, request.code_len = code, len(code)
        request.args, request.env = words(args), words(env)
        request.on_result = self.on_result
        if stream:
            request.on_output = self.on_output
        for name, value in fields.items():
            value = text(str(value) if isinstance(value, os.PathLike) else value)
            setattr(request, name, value)
            if name == "input":
                request.input_len = len(value)
        run, number, error = Run(), ctypes.c_uint64(), Error()
        if lib.hutch_engine_submit(self.handle, ctypes.byref(request), ctypes.byref(number), ctypes.byref(error)) < 0:
            raise Failure(error)
        run.id = number.value
        self.runs[run.id] = run
        return run

    def cancel(self, run):
        return library().hutch_engine_cancel(self.handle, ctypes.c_uint64(run.id))

    def _on_output(self, _user, number, stream, data, length):
        self.runs[number].output[stream] += ctypes.string_at(data, length)

    def _on_result(self, _user, number, pointer):
        raw, run = pointer.contents, self.runs[number]
        lib = library()
        address = lib.hutch_result_to_json(pointer)
        run.result = json.loads(ctypes.string_at(address).decode("utf-8", "surrogateescape"))
        _LIBRARY[0][1].free(address)
        run.cell = run.result.pop("cell", None)
        support.check_result(run.result)
        if "value" in run.result:
            value = raw.value_json and json.loads(raw.value_json)
            assert value == run.result["value"] and (raw.value_json is not None) == (run.result["verdict"] == "ok")
        assert run.result["verdict"] == lib.hutch_verdict_text(raw.verdict).decode()
        run.result.update(zygote=(raw.zygote or b"").decode(), was_prepared=bool(raw.was_prepared), restarts=raw.restarts,
                          out=ctypes.string_at(raw.out, raw.out_len), err=ctypes.string_at(raw.err, raw.err_len))
        run.result["fetched"] = [self._fetched(raw.fetched[i]) for i in range(raw.n_fetched)]
        run.results += 1

    @staticmethod
    def _fetched(raw):
        """(path, contents or errno)"""
        if raw.fd < 0:
            assert raw.code > 0
            return os.fsdecode(raw.path), raw.code
        assert raw.code == 0 and os.fstat(raw.fd).st_size == raw.size
        return os.fsdecode(raw.path), os.pread(raw.fd, raw.size, 0)

    # --- functions

    def _on_ready(self, _user, name, why):
        self.told.append((name.decode(), why.contents.message.decode() if why else None))

    def set_function(self, name, code, least=1, most=4):
        """Without waiting: what becomes of it is in `told`."""
        code, error = text(code), Error()
        given = RawFunction(ctypes.sizeof(RawFunction), text(name), code, len(code), least, most, self.on_ready, None)
        if library().hutch_engine_set_function(self.handle, ctypes.byref(given), ctypes.byref(error)) < 0:
            raise Failure(error)

    def add_function(self, name, code, **numbers):
        """None, or why it cannot be imported."""
        n = len(self.told)
        self.set_function(name, code, **numbers)
        self.until(lambda: len(self.told) > n, what="the function is ready or not")
        told, why = self.told[n]
        assert told == name
        return why

    def drop_function(self, name):
        return library().hutch_engine_drop_function(self.handle, text(name))

    def function(self, name):
        info, error = FunctionInfo(size=ctypes.sizeof(FunctionInfo)), Error()
        if library().hutch_engine_get_function(self.handle, text(name), ctypes.byref(info), ctypes.byref(error)) < 0:
            raise Failure(error)
        return {name: getattr(info, name) for name, _ in FunctionInfo._fields_[1:]}

    def submit_call(self, name, event=None, **fields):
        """@event: an object, or bytes as they are."""
        event = event if isinstance(event, bytes) else json.dumps(event).encode()
        return self.submit(None, function=name, event=event, event_len=len(event), **fields)

    def call(self, name, event=None, **fields):
        return self.wait(self.submit_call(name, event, **fields))

    # --- the loop

    def dispatch(self, seconds):
        """Waits for something to do, and does it."""
        select.select([self.fd], [], [], seconds)
        error = Error()
        if library().hutch_engine_dispatch(self.handle, ctypes.byref(error)) < 0:
            raise Failure(error)

    def until(self, condition, seconds=SECONDS, what="a condition"):
        deadline = time.monotonic() + seconds
        while not condition():
            left = deadline - time.monotonic()
            assert left > 0, "%s did not come true within %d s: %r" % (what, seconds, self.stats())
            self.dispatch(min(left, 0.05))

    def wait(self, *runs, seconds=SECONDS):
        self.until(lambda: all(run.result for run in runs), seconds, "every run has a result")
        return runs[0].result if len(runs) == 1 else [run.result for run in runs]

    def run(self, code, **fields):
        return self.wait(self.submit(code, **fields))

    def run_streaming(self, code, word=b"ready\n", **fields):
        """Starts a run, and returns it when it has said @word."""
        run = self.submit(code, stream=True, **fields)
        self.until(lambda: word in run.output[1] or run.result, what="%r" % word)
        assert word in run.output[1], run.result
        return run

    # --- what it looks like

    def stats(self):
        stats = Stats(size=ctypes.sizeof(Stats))
        library().hutch_engine_get_stats(self.handle, ctypes.byref(stats))
        found = {name: getattr(stats, name) for name, _ in Stats._fields_ if name not in ("size", "zygotes", "n_zygotes", "pools", "n_pools")}
        found["pools"] = [{name: getattr(stats.pools[i], name) for name, _ in PoolStats._fields_} for i in range(stats.n_pools)]
        found["zygotes"] = [{name: getattr(stats.zygotes[i], name) for name, _ in ZygoteStats._fields_}
                            for i in range(stats.n_zygotes)]
        return found

    def settle(self, seconds=SECONDS):
        """Waits until nothing runs, is built or taken apart, and the pool is full."""
        def is_still():
            stats = self.stats()
            return (stats["running"] == stats["queued"] == stats["building"] == 0 and
                    all(entry["is_ready"] and entry["prepared"] >= least.min
                        for entry, least in zip(stats["zygotes"], self.kept)) and
                    all(entry["prepared"] >= least.min for entry, least in zip(stats["pools"][len(self.kept):], self.kept_pools)))
        self.until(is_still, seconds, "the pool is full")
        return self.stats()

    def zygote_pid(self, index=0):
        return self.stats()["zygotes"][index]["pid"]

    def zygote_files(self, index=0):
        """What each descriptor of a zygote is. It closes those of an order after its answer, and may not have got to it."""
        pid, links = self.zygote_pid(index), {}

        def is_idle():
            nonlocal links
            links = support.open_files(pid)
            return not any(fd > 3 and link.startswith(("anon_inode:", "pipe:", "socket:")) for fd, link in links.items())
        self.until(is_idle, what="the zygote has closed what came with its orders")
        return links


# --- sessions

ON_END = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_char_p, ctypes.c_char_p)


class SessionOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("policy", ctypes.c_char_p), ("zygote", ctypes.c_char_p),
                ("env", ctypes.POINTER(ctypes.c_char_p)), ("data_dir", ctypes.c_char_p), ("keep_data", ctypes.c_int)] + [
                    (name, ctypes.c_uint64) for name in ("idle_ms", "lifetime_ms", "memory_bytes", "pids", "cpus", "output_bytes",
                                                         "data_bytes", "data_files", "file_bytes")] + [
                    ("max_checkpoints", ctypes.c_uint), ("checkpoint_bytes", ctypes.c_uint64), ("on_end", ON_END),
                    ("user", ctypes.c_void_p), ("max_processes", ctypes.c_uint), ("no_interpreter", ctypes.c_int),
                    ("paths", ctypes.c_int), ("wall_ms", ctypes.c_uint64), ("data_targets", ctypes.POINTER(ctypes.c_char_p))]


class RawOutput(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("kind", ctypes.c_int), ("stream", ctypes.c_int), ("text", ctypes.POINTER(ctypes.c_char)),
                ("text_len", ctypes.c_size_t), ("json", ctypes.c_char_p)]


class RawCellResult(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("verdict", ctypes.c_int), ("interpreter_died", ctypes.c_int), ("is_fresh", ctypes.c_int),
                ("was_interrupted", ctypes.c_int), ("execution_count", ctypes.c_int), ("message", ctypes.c_char_p),
                ("outputs", ctypes.c_char_p), ("truncated", ctypes.c_int)] + [
                    (name, ctypes.c_char_p) for name in ("error_name", "error_value", "error_traceback", "error_traceback_ansi")] + [
                    ("error_line", ctypes.c_int)] + [
                    (name, ctypes.c_double) for name in ("queued_ms", "run_ms", "t_busy", "t_input", "t_reply", "t_idle")] + [
                    (name, ctypes.c_uint64) for name in ("cpu_user_ms", "cpu_system_ms", "memory_peak_bytes")] + [
                    ("internal", ctypes.c_void_p), ("language_info", ctypes.c_char_p), ("value_json", ctypes.c_char_p),
                    ("id", ctypes.c_uint64)]


CELL_ON_OUTPUT = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint64, ctypes.POINTER(RawOutput))
CELL_ON_INPUT = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_char_p, ctypes.c_int)
CELL_ON_START = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int)
CELL_ON_CALL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_char_p, ctypes.c_char_p)
CELL_ON_RESULT = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint64, ctypes.POINTER(RawCellResult))


class RawCell(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("code", ctypes.c_char_p), ("code_len", ctypes.c_size_t), ("context", ctypes.c_char_p),
                ("timeout_ms", ctypes.c_uint64), ("silent", ctypes.c_int), ("no_history", ctypes.c_int), ("allow_input", ctypes.c_int),
                ("on_output", CELL_ON_OUTPUT), ("on_input", CELL_ON_INPUT), ("on_result", CELL_ON_RESULT), ("user", ctypes.c_void_p), ("widgets", ctypes.c_int),
                ("ret_id", ctypes.POINTER(ctypes.c_uint64)), ("on_start", CELL_ON_START), ("env", ctypes.POINTER(ctypes.c_char_p)),
                ("wants_value", ctypes.c_int), ("stop_on_error", ctypes.c_int), ("cwd", ctypes.c_char_p),
                ("calls", ctypes.c_char_p), ("on_call", CELL_ON_CALL)]


class RawReply(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("ok", ctypes.c_int), ("message", ctypes.c_char_p), ("id", ctypes.c_uint64),
                ("lost", ctypes.c_char_p), ("ms", ctypes.c_double), ("bytes", ctypes.c_uint64), ("json", ctypes.c_char_p)]


ON_REPLY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint64, ctypes.POINTER(RawReply))

class RawQuestion(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("kind", ctypes.c_int), ("code", ctypes.c_char_p), ("code_len", ctypes.c_size_t),
                ("cursor", ctypes.c_int64), ("context", ctypes.c_char_p), ("detail", ctypes.c_int), ("timeout_ms", ctypes.c_uint64)]


QUESTIONS = ("complete", "inspect", "is_complete")


class RawInfo(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("state", ctypes.c_int)] + [
        (name, ctypes.c_double) for name in ("t_opened", "t_used", "t_idle_end", "t_end")] + [
        ("idle_ms", ctypes.c_uint64), ("waiting", ctypes.c_uint), ("cell", ctypes.c_uint64), ("contexts", ctypes.c_uint), ("checkpoints", ctypes.c_uint), ("branches", ctypes.c_uint)] + [
        (name, ctypes.c_uint64) for name in ("branch", "memory_bytes", "cpu_ms", "pids", "data_bytes", "data_files",
                                             "checkpoint_bytes")] + [
        ("paused_by", ctypes.c_int), ("is_still", ctypes.c_int), ("processes", ctypes.c_uint)]


STATES = ("opening", "idle", "busy", "paused", "lost")
PAUSED_BY = (None, "cgroup", "signals")
KINDS = ("stream", "display", "value", "error", "update", "clear", "widget")
UNKNOWN = 2**64 - 1


class Pending:
    """What a session has been asked for: `result` when it is answered."""

    def __init__(self):
        self.result = None
        self.results = 0
        self.outputs = []  # (kind, bytes or JSON) as they came
        self.prompts = []
        self.id = 0
        self.starts = []   # counts, as on_start told them
        self.calls = []    # (number, name, arguments) as they came
        self.kept = ()     # what must live until then

    def text(self, stream=1):
        return b"".join(value for kind, value in self.outputs if kind == stream)


def file_counts(result):
    """Of a cell: how many files it has added, modified and deleted, by a list that is complete."""
    files = result["json"]["files"]
    assert not files["truncated"], files
    return tuple(len(files[what]) for what in ("added", "modified", "deleted"))


def value(result):
    """The text of the last output of a cell."""
    assert result["outputs"], result
    return result["outputs"][-1]["data"]["text/plain"]


class Session:
    """`with Session(engine) as session: session.run("x = 1")`."""

    def __init__(self, engine, env=None, **fields):
        lib = library()
        self.engine = engine
        self.ends = []  # (why, directory)
        self.on_end = ON_END(lambda _user, _id, why, folder: self.ends.append((why.decode(), folder and os.fsdecode(folder))))
        options = SessionOptions()
        lib.hutch_session_options_init(ctypes.byref(options))
        options.size = ctypes.sizeof(SessionOptions)  # the function, which is not the macro, knows the first fields only
        options.env, options.on_end = words(env), self.on_end
        for name, value in fields.items():
            setattr(options, name, text(str(value) if isinstance(value, os.PathLike) else value))
        number, error = ctypes.c_uint64(), Error()
        if lib.hutch_session_open(engine.handle, ctypes.byref(options), ctypes.byref(number), ctypes.byref(error)) < 0:
            raise Failure(error)
        self.id = number.value
        self.pending = []  # until answered: callbacks must live so long

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.engine.handle and not self.ends:
            self.close()
            self.engine.until(lambda: self.ends, what="the session's end")

    def _call(self, name, *args):
        return getattr(library(), "hutch_session_" + name)(self.engine.handle, ctypes.c_uint64(self.id), *args)

    def _order(self, name, *args):
        error = Error()
        if self._call(name, *args, ctypes.byref(error)) < 0:
            raise Failure(error)

    # --- cells

    def execute(self, code, on_output=None, on_result=None, env=None, on_call=None, calls=None, **fields):
        """Hands in a cell, and returns what becomes of it."""
        pending, cell, number = Pending(), RawCell(size=ctypes.sizeof(RawCell)), ctypes.c_uint64()
        cell.ret_id, cell.env = ctypes.pointer(number), words(env)
        code = text(code)
        cell.code, cell.code_len = code, len(code)
        for name, value in fields.items():
            setattr(cell, name, text(value))

        def output(_user, _session, pointer):
            raw = pointer.contents
            if raw.kind == 0:
                pending.outputs.append((raw.stream, ctypes.string_at(raw.text, raw.text_len)))
            else:
                pending.outputs.append((KINDS[raw.kind], json.loads(raw.json.decode())))
            if on_output:
                on_output(pending)

        def result(_user, _session, pointer):
            pending.results += 1
            pending.result = self._result(pointer)
            if on_result:
                on_result(pending)

        def ask(_user, _session, prompt, is_password):
            pending.prompts.append((prompt.decode(), bool(is_password)))

        def start(_user, _session, cell, count):
            assert cell == pending.id and pending.result is None
            pending.starts.append(count)

        cell.on_output, cell.on_input, cell.on_result = CELL_ON_OUTPUT(output), CELL_ON_INPUT(ask), CELL_ON_RESULT(result)
        def call(_user, _session, number, name, arguments):
            pending.calls.append((number, name.decode(), json.loads(arguments.decode())))
            if on_call:
                on_call(*pending.calls[-1])

        cell.on_start, cell.on_call = CELL_ON_START(start), CELL_ON_CALL(call)
        cell.calls = text(calls if isinstance(calls, (str, bytes, type(None))) else json.dumps(calls))
        pending.kept = (cell.on_output, cell.on_input, cell.on_result, cell.on_start, cell.on_call)
        self._order("execute", ctypes.byref(cell))
        pending.id = number.value
        self.pending.append(pending)
        return pending

    def _result(self, pointer):
        raw, lib = pointer.contents, library()
        found = {name: getattr(raw, name) for name, _ in RawCellResult._fields_ if name not in ("size", "internal")}
        for name in ("cpu_user_ms", "cpu_system_ms", "memory_peak_bytes"):
            found[name] = None if found[name] == UNKNOWN else found[name]
        for name, value in found.items():
            if isinstance(value, bytes):
                found[name] = value.decode()
        found["verdict"] = lib.hutch_verdict_text(raw.verdict).decode()
        found["outputs"] = json.loads(found["outputs"])
        for name, function in (("json", lib.hutch_cell_result_to_json), ("text", lib.hutch_cell_result_to_text)):
            function.restype = ctypes.c_void_p
            address = function(pointer, ctypes.c_size_t(0))
            if address:
                found[name] = ctypes.string_at(address).decode()
                _LIBRARY[0][1].free(ctypes.c_void_p(address))
        found["json"] = json.loads(found["json"]) if "json" in found else None
        return found

    def wait(self, *pending, seconds=SECONDS):
        self.engine.until(lambda: all(entry.result is not None for entry in pending), seconds, "every cell has a result")
        return pending[0].result if len(pending) == 1 else [entry.result for entry in pending]

    def run(self, code, **fields):
        return self.wait(self.execute(code, **fields))

    def printed(self, code, **fields):
        """Runs a cell that has to succeed, and returns what it prints."""
        result = self.run(code, **fields)
        assert result["verdict"] == "ok", result
        return "".join(output["text"] for output in result["outputs"] if output["output_type"] == "stream")

    def run_until(self, code, word=b"ready\n", **fields):
        """Starts a cell, and returns it when it has said @word."""
        pending = self.execute(code, **fields)
        self.engine.until(lambda: word in pending.text() or pending.result, what="%r" % word)
        assert word in pending.text(), pending.result
        return pending

    def cancel(self, pending):
        return self._call("cancel_cell", ctypes.c_uint64(pending.id))

    def answer(self, call, value, is_error=0):
        """A str of @value is JSON as it is, in a tuple."""
        given = value[0] if isinstance(value, tuple) else json.dumps(value)
        self._order("answer", ctypes.c_uint64(call), text(given), ctypes.c_int(is_error))

    def interrupt(self):
        return self._call("interrupt")

    def reply(self, answer):
        return self._call("reply", None if answer is None else ctypes.c_char_p(text(answer)))

    def restart(self):
        self._order("restart")

    def close(self):
        return self._call("close")

    # --- checkpoints and branches

    def order(self, name, *args, on_reply=None):
        """"checkpoint", "rollback", …: hands it in, and returns what becomes of it."""
        return self._hand_in(name, on_reply, *(arg if isinstance(arg, ctypes.c_char_p) else ctypes.c_uint64(arg) for arg in args))

    def _hand_in(self, name, on_reply, *args):
        pending = Pending()

        def reply(_user, _session, pointer):
            pending.results += 1
            pending.result = {field: getattr(pointer.contents, field) for field, _ in RawReply._fields_ if field != "size"}
            pending.result["message"] = pending.result["message"].decode()
            pending.result["lost"] = json.loads(pending.result["lost"].decode())
            pending.result["json"] = json.loads(pending.result["json"].decode()) if pending.result["json"] else None
            if on_reply:
                on_reply(pending)

        pending.kept = (ON_REPLY(reply),)
        self._order(name, *args, pending.kept[0], None)
        self.pending.append(pending)
        return pending

    def question(self, kind, code, cursor=-1, **fields):
        """Hands in a question to the shell, and returns what becomes of it."""
        question = RawQuestion(size=ctypes.sizeof(RawQuestion), kind=QUESTIONS.index(kind) if kind in QUESTIONS else kind, cursor=cursor)
        code = text(code)
        question.code, question.code_len = code, len(code)
        for name, value in fields.items():
            setattr(question, name, text(value))
        return self._hand_in("ask", None, ctypes.byref(question))

    def ask(self, kind, code, cursor=-1, **fields):
        """The same, and waits for the answer."""
        reply = self.wait(self.question(kind, code, cursor, **fields))
        assert reply["ok"], reply
        return reply["json"]

    def do(self, name, *args):
        """The same, and waits: it has to succeed."""
        reply = self.wait(self.order(name, *args))
        assert reply["ok"], reply
        return reply

    # --- its life

    def info(self):
        """The JSON of hutch_session_get_info(), which has to agree with the struct."""
        raw, error, address = RawInfo(size=ctypes.sizeof(RawInfo)), Error(), ctypes.c_void_p()
        if self._call("get_info", ctypes.byref(raw), ctypes.byref(address), ctypes.byref(error)) < 0:
            raise Failure(error)
        found = json.loads(ctypes.string_at(address).decode())
        _LIBRARY[0][1].free(address)
        assert found["state"] == STATES[raw.state] and found["paused_by"] == PAUSED_BY[raw.paused_by]
        assert found["still"] == bool(raw.is_still)
        for name in ("contexts", "checkpoints", "branches"):
            assert len(found[name]) == getattr(raw, name), name
        for name in ("branch", "memory_bytes", "cpu_ms", "pids", "data_bytes", "data_files", "checkpoint_bytes", "waiting", "idle_ms",
                     "processes"):
            assert found[name] == (None if getattr(raw, name) == UNKNOWN else getattr(raw, name)), name
        assert (found["cell"] or 0) == raw.cell and found["cell"] != 0
        for name in ("opened", "used", "idle_end", "end"):
            assert abs((found[name] or 0) - getattr(raw, "t_" + name)) < 0.001, name
        return found

    def set_lifetime(self, idle_ms=0, lifetime_ms=0):
        self._order("set_lifetime", ctypes.c_uint64(idle_ms), ctypes.c_uint64(lifetime_ms))

    def pause(self):
        self._order("pause")

    def resume(self):
        self._order("resume")

    # --- files

    def files(self):
        lib, error = library(), Error()
        lib.hutch_session_files.restype = ctypes.c_void_p
        address = self._call("files", ctypes.byref(error))
        if not address:
            raise Failure(error)
        found = json.loads(ctypes.string_at(address).decode())
        _LIBRARY[0][1].free(ctypes.c_void_p(address))
        return found

    def open_file(self, name, flags=os.O_RDONLY):
        error = Error()
        fd = self._call("open_file", ctypes.c_char_p(os.fsencode(name)), flags, ctypes.byref(error))
        if fd < 0:
            raise Failure(error)
        return os.fdopen(fd, "rb" if flags == os.O_RDONLY else "wb")

    def delete_file(self, name):
        self._order("delete_file", ctypes.c_char_p(os.fsencode(name)))

    # --- paths inside

    def path_order(self, name, path, *args, on_reply=None, **fields):
        """Hands in "stat", "list", …, and returns what becomes of it. result["file"] is a copy of the descriptor, or None."""
        pending, raw = Pending(), RawPathOptions()
        library().hutch_path_options_init(ctypes.byref(raw))
        raw.size = ctypes.sizeof(RawPathOptions)
        for field, value in fields.items():
            setattr(raw, field, value)

        def reply(_user, session, pointer):
            assert session == self.id
            pending.results += 1
            pending.result = path_reply(pointer)
            if on_reply:
                on_reply(pending)

        raw.on_reply = ON_PATH(reply)
        pending.kept = (raw.on_reply,)
        self._order(name, ctypes.c_char_p(os.fsencode(path)), *args, ctypes.byref(raw))
        self.pending.append(pending)
        return pending

    def path_reply(self, name, path, *args, **fields):
        return self.wait(self.path_order(name, path, *args, **fields))

    def path_fails(self, name, path, *args, **fields):
        """The errno and the sentence."""
        reply = self.path_reply(name, path, *args, **fields)
        assert not reply["ok"] and reply["message"] and reply["code"] > 0 and not reply["entries"] and reply["file"] is None, reply
        return reply["code"], reply["message"]

    def path_done(self, name, path, *args, **fields):
        reply = self.path_reply(name, path, *args, **fields)
        assert reply["ok"] and reply["code"] == 0 and reply["message"] == "", reply
        return reply

    def stat(self, path, **fields):
        return self.path_done("stat", path, **fields)["entries"][0]

    def list(self, path, **fields):
        """{path: entry}"""
        return {entry["path"]: entry for entry in self.path_done("list", path, **fields)["entries"]}

    def make_directory(self, path, **fields):
        return self.path_done("make_directory", path, **fields)

    def rename(self, path, new_path, **fields):
        return self.path_done("rename", path, ctypes.c_char_p(os.fsencode(new_path)), **fields)

    def remove(self, path, **fields):
        return self.path_done("remove", path, **fields)

    def open_path(self, path, flags=os.O_RDONLY, **fields):
        return self.path_done("open_path", path, ctypes.c_int(flags), **fields)["file"]

    def read_path(self, path):
        with self.open_path(path) as file:
            return file.read()

    def write_path(self, path, data, flags=os.O_WRONLY | os.O_CREAT | os.O_TRUNC, **fields):
        with self.open_path(path, flags, **fields) as file:
            file.write(data)

    # --- processes

    def spawn(self, *args, shell=None, env=None, on_output=None, **fields):
        """A program with arguments, or shell="a text". Returns the Process."""
        process, raw = Process(self), RawProcessOptions()
        library().hutch_process_options_init(ctypes.byref(raw))
        raw.size = ctypes.sizeof(RawProcessOptions)
        raw.args, raw.env, raw.shell = words(args or None), words(env), text(shell)
        for name, value in fields.items():
            setattr(raw, name, text(value))

        def output(_user, _session, _process, stream, data, length):
            process.output[stream] += ctypes.string_at(data, length)
            if on_output:
                on_output(process)

        def room(_user, _session, _process):
            process.rooms += 1

        def end(_user, _session, number, pointer):
            assert number == process.id
            process.ends += 1
            process.end = {name: getattr(pointer.contents, name) for name, _ in RawProcessEnd._fields_ if name != "size"}
            process.end["why"] = process.end["why"].decode()

        raw.on_output, raw.on_room, raw.on_end = PROCESS_ON_OUTPUT(output), PROCESS_ON_ROOM(room), PROCESS_ON_END(end)
        process.kept = (raw.on_output, raw.on_room, raw.on_end)
        number = ctypes.c_uint64()
        self._order("spawn", ctypes.byref(raw), ctypes.byref(number))
        process.id = number.value
        self.pending.append(process)
        return process

    def processes(self):
        lib, error = library(), Error()
        lib.hutch_session_processes.restype = ctypes.c_void_p
        address = self._call("processes", ctypes.byref(error))
        if not address:
            raise Failure(error)
        found = json.loads(ctypes.string_at(address).decode())
        _LIBRARY[0][1].free(ctypes.c_void_p(address))
        return found


# --- paths inside sessions

class RawPathEntry(ctypes.Structure):
    _fields_ = [("path", ctypes.c_char_p), ("type", ctypes.c_int), ("mode", ctypes.c_uint), ("uid", ctypes.c_uint), ("gid", ctypes.c_uint),
                ("bytes", ctypes.c_uint64), ("mtime", ctypes.c_double), ("target", ctypes.c_char_p)]


class RawPathReply(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("ok", ctypes.c_int), ("code", ctypes.c_int), ("message", ctypes.c_char_p),
                ("entries", ctypes.POINTER(RawPathEntry)), ("n_entries", ctypes.c_size_t), ("truncated", ctypes.c_int),
                ("existed", ctypes.c_int), ("fd", ctypes.c_int), ("ms", ctypes.c_double)]


ON_PATH = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint64, ctypes.POINTER(RawPathReply))
PATH_TYPES = ("other", "file", "directory", "link", "fifo", "socket", "device")


class RawPathOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("on_reply", ON_PATH), ("user", ctypes.c_void_p), ("timeout_ms", ctypes.c_uint64),
                ("follow", ctypes.c_int), ("depth", ctypes.c_uint), ("max_entries", ctypes.c_uint), ("parents", ctypes.c_int),
                ("tree", ctypes.c_int), ("mode", ctypes.c_uint)]


def path_reply(pointer):
    """What the struct says, which has to be what its JSON says. Paths and targets are as os.fsdecode() has them."""
    raw, lib = pointer.contents, library()
    found = {"ok": bool(raw.ok), "code": raw.code, "message": raw.message.decode(), "truncated": bool(raw.truncated),
             "existed": bool(raw.existed), "ms": raw.ms, "file": None, "entries": []}
    if raw.fd >= 0:
        fd = os.dup(raw.fd)
        found["file"] = os.fdopen(fd, "rb" if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY else "wb", buffering=0)
    for entry in raw.entries[:raw.n_entries]:
        values = {name: getattr(entry, name) for name, _ in RawPathEntry._fields_}
        values["type"] = PATH_TYPES[entry.type]
        values["path"], values["target"] = os.fsdecode(entry.path), None if entry.target is None else os.fsdecode(entry.target)
        found["entries"].append(values)
    lib.hutch_path_reply_to_json.restype = ctypes.c_void_p
    address = lib.hutch_path_reply_to_json(pointer)
    told = json.loads(ctypes.string_at(address).decode())
    _LIBRARY[0][1].free(ctypes.c_void_p(address))
    if not raw.ok:
        assert told["error"] == {"errno": raw.code, "message": found["message"]} and "entries" not in told
        return found
    assert (told["truncated"], told["existed"]) == (found["truncated"], found["existed"]) and len(told["entries"]) == raw.n_entries
    for entry, values in zip(told["entries"], found["entries"]):
        for name in ("type", "mode", "uid", "gid"):
            assert entry[name] == values[name], name
        assert entry["size"] == values["bytes"] and abs(entry["mtime"] - values["mtime"]) < 0.001
        for name in ("path", "target"):
            exact = base64.b64decode(entry[name + "_base64"]) if name + "_base64" in entry else None
            assert (os.fsdecode(exact) if exact else entry[name]) == values[name], name
    return found


# --- processes of sessions

class RawProcessEnd(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("exit_code", ctypes.c_int), ("signal", ctypes.c_int), ("why", ctypes.c_char_p),
                ("truncated", ctypes.c_int), ("run_ms", ctypes.c_double)]


PROCESS_ON_OUTPUT = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int,
                                     ctypes.POINTER(ctypes.c_char), ctypes.c_size_t)
PROCESS_ON_ROOM = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64)
PROCESS_ON_END = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.POINTER(RawProcessEnd))


class RawProcessOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("args", ctypes.POINTER(ctypes.c_char_p)), ("shell", ctypes.c_char_p),
                ("env", ctypes.POINTER(ctypes.c_char_p)), ("cwd", ctypes.c_char_p), ("has_input", ctypes.c_int),
                ("terminal", ctypes.c_int), ("rows", ctypes.c_uint), ("cols", ctypes.c_uint), ("wall_ms", ctypes.c_uint64),
                ("output_bytes", ctypes.c_uint64), ("on_output", PROCESS_ON_OUTPUT), ("on_room", PROCESS_ON_ROOM),
                ("on_end", PROCESS_ON_END), ("user", ctypes.c_void_p)]


class Process:
    """What Session.spawn() has begun: `end` when it is over."""

    def __init__(self, session):
        self.session, self.id = session, 0
        self.output = {1: b"", 2: b""}
        self.rooms = self.ends = 0
        self.end = None
        self.kept = ()

    def _call(self, name, *args):
        """What the function returns; an error is raised."""
        error = Error()
        result = getattr(library(), "hutch_process_" + name)(self.session.engine.handle, ctypes.c_uint64(self.session.id),
                                                              ctypes.c_uint64(self.id), *args, ctypes.byref(error))
        if result < 0:
            raise Failure(error)
        return result

    def write(self, data):
        """How much of it was taken."""
        return self._call("write", ctypes.c_char_p(data), ctypes.c_size_t(len(data)))

    def close_stdin(self):
        self._call("close_stdin")

    def signal(self, number):
        self._call("signal", ctypes.c_int(number))

    def resize(self, rows, cols):
        self._call("resize", ctypes.c_uint(rows), ctypes.c_uint(cols))

    def hold(self, is_held=True):
        self._call("hold", ctypes.c_int(is_held))

    def listed(self):
        return next(entry for entry in self.session.processes() if entry["id"] == self.id)

    def until(self, word, stream=1):
        self.session.engine.until(lambda: word in self.output[stream] or self.end, what="%r" % word)
        assert word in self.output[stream], (self.output, self.end)

    def wait(self, seconds=SECONDS):
        self.session.engine.until(lambda: self.end is not None, seconds, "the process ends")
        return self.end

    def wait_ok(self):
        end = self.wait()
        assert (end["exit_code"], end["signal"], end["why"]) == (0, 0, ""), (end, self.output)
        return self.output[1]
