# The environment of a program: the variables themselves, and those things that an interpreter reads from them when it
# starts. A job usually has the environment of the zygote; change() is for those that have not.
#
# Honoured: PYTHONUNBUFFERED, PYTHONIOENCODING, PYTHONWARNINGS, PYTHONPATH, PYTHONDONTWRITEBYTECODE,
# PYTHONPYCACHEPREFIX, PYTHONINTMAXSTRDIGITS, PYTHONFAULTHANDLER, PYTHONTRACEMALLOC, TZ, and what is read at run time
# anyway (PYTHONBREAKPOINT, PYTHONASYNCIODEBUG, HOME, TMPDIR). All others were read before the fork: the engine gives a
# program that sets one of those an interpreter of its own. sys.flags stays as the zygote has it.
import _io
import ctypes
import os
import sys
import time
from fcntl import F_DUPFD_CLOEXEC, fcntl


class Defaults:
    """Of the standard streams, without the variables that change them."""


defaults = Defaults()


def get_ready():
    import _locale

    defaults.clearenv = getattr(ctypes.PyDLL(None), "clearenv", None)
    # As config_init_stdio_encoding() in Python/initconfig.c.
    defaults.encoding = _locale.nl_langinfo(_locale.CODESET) if not sys.flags.utf8_mode else "utf-8"
    locale = _locale.setlocale(_locale.LC_CTYPE)
    is_c = sys.flags.utf8_mode or locale in ("C", "POSIX", "C.UTF-8", "C.utf8", "UTF-8")
    defaults.errors = "surrogateescape" if is_c else "strict"
    defaults.python_path = split_path(os.environ.get("PYTHONPATH"))
    make_streams_for_pipes()


def current():
    """As it stands in a job."""
    return b"".join(b"%s=%s\0" % item for item in os.environ._data.items())


def normal_name(encoding):
    import codecs

    return codecs.lookup(encoding).name


def make_streams():
    """Standard input, output and error for the descriptors 0, 1 and 2, as create_stdio() in Python/pylifecycle.c makes
    them."""
    encoding, errors = defaults.encoding, defaults.errors
    wanted, _, wanted_errors = os.environ.get("PYTHONIOENCODING", "").partition(":")
    if wanted:
        encoding, errors = wanted, "strict"
    if wanted_errors:
        errors = wanted_errors
    encoding = normal_name(encoding)
    is_unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    streams = []
    for fd, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        is_raw = is_unbuffered and fd > 0
        buffer = _io.open(fd, mode + "b", 0 if is_raw else -1, None, None, None, False)
        raw = buffer if is_raw else buffer.raw
        raw.name = "<%s>" % name
        is_terminal = raw.isatty()
        stream = _io.TextIOWrapper(
            buffer,
            encoding,
            errors if fd < 2 else "backslashreplace",
            "\n",
            not is_unbuffered and (is_terminal or fd == 2),
            is_unbuffered,
        )
        stream.mode = mode
        streams.append(stream)
    return streams


def make_streams_for_pipes():
    """A stream finds out what its descriptor is when it is made, and in a worker that is a pipe."""
    saved = [fcntl(fd, F_DUPFD_CLOEXEC, 16) for fd in range(3)]
    reader, writer = os.pipe()
    for fd, end in enumerate((reader, writer, writer)):
        os.dup2(end, fd)
    try:
        set_streams(make_streams())
    finally:
        for fd, original in enumerate(saved):
            os.dup2(original, fd)
            os.close(original)
        os.close(reader)
        os.close(writer)


def renew_streams():
    """In a worker that was given something else than pipes."""
    set_streams(make_streams())


def set_streams(streams):
    sys.stdin, sys.stdout, sys.stderr = sys.__stdin__, sys.__stdout__, sys.__stderr__ = streams


def absolute(entry):
    """abspath() is much code for what has nothing to be changed."""
    is_plain = entry[:1] == "/" and entry[-1:] != "/" and "//" not in entry and "/." not in entry
    return entry if is_plain else os.path.abspath(entry)


def split_path(value):
    return [absolute(entry) for entry in value.split(os.pathsep)] if value else []


def change_path():
    """PYTHONPATH comes before the interpreter's own directories. The script's is not there yet."""
    rest = sys.path
    if rest[: len(defaults.python_path)] == defaults.python_path:
        rest = rest[len(defaults.python_path) :]
    path = []
    for entry in split_path(os.environ.get("PYTHONPATH")) + rest:
        if entry not in path:
            path.append(entry)
    sys.path[:] = path


def change_warnings(value):
    if not value:
        return
    import warnings

    sys.warnoptions[:] = value.split(",")
    warnings._processoptions(sys.warnoptions)


def change_fault_handler(value):
    import faulthandler

    if value:
        faulthandler.enable()
    else:
        faulthandler.disable()


def change_trace_malloc(value):
    import tracemalloc

    tracemalloc.stop()
    if value and value != "0":
        tracemalloc.start(int(value))


def replace_all(wanted):
    """Another order, or fewer variables: programs see the order, too."""
    data = os.environ._data
    if defaults.clearenv is not None:
        defaults.clearenv()
    else:
        for name in data:
            os.unsetenv(name)
    data.clear()
    for name, value in wanted.items():
        data[name] = value
        os.putenv(name, value)


# In a worker that was just forked each page that is written to is copied first, some microseconds for each. So what
# stays as it is is not touched, and the usual request, with a variable more, is spared most of what change() could do.
def change(block):
    """Takes on an environment that differs from the present one."""
    data = os.environ._data
    wanted = {}
    for item in block.split(b"\0")[:-1]:
        name, _, value = item.partition(b"=")
        wanted[name] = value
    changed = {name for name in wanted if data.get(name) != wanted[name]}
    if list(data) == list(wanted)[: len(data)]:
        for name in wanted:
            if name in changed:
                data[name] = wanted[name]
                os.putenv(name, wanted[name])
    else:
        changed.update(name for name in data if name not in wanted)
        replace_all(wanted)
    new = os.environ

    if b"TZ" in changed:
        time.tzset()
    if b"PYTHONUNBUFFERED" in changed or b"PYTHONIOENCODING" in changed:
        renew_streams()
    if b"PYTHONDONTWRITEBYTECODE" in changed:
        sys.dont_write_bytecode = bool(new.get("PYTHONDONTWRITEBYTECODE"))
    if b"PYTHONPYCACHEPREFIX" in changed:
        sys.pycache_prefix = new.get("PYTHONPYCACHEPREFIX") or None
    if b"PYTHONINTMAXSTRDIGITS" in changed and hasattr(sys, "set_int_max_str_digits"):
        sys.set_int_max_str_digits(int(new.get("PYTHONINTMAXSTRDIGITS") or sys.int_info.default_max_str_digits))
    if b"PYTHONPATH" in changed:
        change_path()
    if b"PYTHONWARNINGS" in changed:
        change_warnings(new.get("PYTHONWARNINGS"))
    if b"PYTHONFAULTHANDLER" in changed:
        change_fault_handler(new.get("PYTHONFAULTHANDLER"))
    if b"PYTHONTRACEMALLOC" in changed:
        change_trace_malloc(new.get("PYTHONTRACEMALLOC"))
