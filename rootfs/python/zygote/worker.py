# What a worker does between its fork and its program. It is in its sandbox already, confined, with the program's streams as 0, 1
# and 2 and the socket that its job comes from as 3. First, while nobody waits: it becomes a fresh interpreter, rehearses,
# and says that it is ready. Then comes the job (struct worker_job in runtime/warm.h), and from here to the first line of the
# program every microsecond counts: nothing is imported, compiled or looked up that could have been before.
#
# helper.so's hutch_worker_main() (rootfs/helper/pymain.c) calls prepare() and begin(), runs the program, and ends the process.
import _io
import _signal
import gc
import os
import sys

import environment
import hutch_report
import renew

SOCKET = 3
MAGIC = b"HJOB"
CHUNK = 1 << 16
LOWER_HALF = 1 << 63  # rlimits from here on are "unlimited"

# Does, in small, what most programs do, so that the pages which that writes to are the worker's own afterwards.
REHEARSAL = b"""
import sys
class Rehearsal:
    def __init__(self, number):
        self.number = number
    def show(self):
        return "%d %s %r" % (self.number, [self.number * 0.5], {"number": self.number})
def rehearse():
    for number in range(3):
        print(Rehearsal(number).show()[:0], end="", flush=True)
    try:
        raise ValueError(str(number))
    except ValueError as error:
        return sorted(f"{error}"), len([n for n in "text" if n])
rehearse()
"""

Module = type(sys)
SourceFileLoader = sys.modules["_frozen_importlib_external"].SourceFileLoader
BuiltinImporter = sys.modules["_frozen_importlib"].BuiltinImporter


class Start:
    """What the zygote finds out once, for all its workers."""


start = Start()


def get_ready(helper):
    import resource

    start.helper = helper
    start.setrlimit = resource.setrlimit
    start.python = sys.orig_argv[:1] if hasattr(sys, "orig_argv") else None
    start.has_script_path = not getattr(sys.flags, "safe_path", False)
    environment.get_ready()


def look_around():
    """In the zygote, after each of its imports."""
    start.path = sys.path[:]
    start.environment = environment.current()


def make_main_module():
    """A __main__ as it is before a program: what the interpreter itself puts there, in its order."""
    module = Module("__main__")
    names = module.__dict__
    names["__loader__"] = BuiltinImporter
    names["__annotations__"] = {}
    names["__builtins__"] = sys.modules["builtins"]
    sys.modules["__main__"] = module
    return names


def make_excepthook():
    """The same as in rootfs/python/sitecustomize.py."""
    pid = os.getpid()
    socket = os.fstat(SOCKET)

    def excepthook(kind, value, traceback):
        original = excepthook.original
        report = None
        if os.getpid() == pid:
            try:
                frame = sys._getframe().f_back
                while frame is not None:
                    if frame.f_code.co_name == "<module>":
                        raise LookupError
                    frame = frame.f_back
                report = hutch_report.Report(sys, os, SOCKET, socket)
            except BaseException:
                pass
        if report is None:
            original(kind, value, traceback)
        else:
            report.show(original, kind, value, traceback)

    excepthook.original = sys.excepthook
    return excepthook


def text_file(data):
    """Descriptor of a file that holds it and has no name."""
    try:
        fd = os.memfd_create("code", os.MFD_CLOEXEC)
    except (AttributeError, OSError):
        fd = os.open("/tmp", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    return filled(fd, data)


def filled(fd, data):
    while data:
        data = data[os.write(fd, data) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def prepare():
    os.set_inheritable(SOCKET, False)
    renew.everything()
    environment.set_streams()
    sys.excepthook = make_excepthook()
    # A job like any other, of which nothing remains.
    fields = [b"code", b"", b"", b"", start.environment, b"/", b""]
    set_up(parse(b"".join(len(field).to_bytes(4, "little") + field for field in fields)))
    return text_file(REHEARSAL)


def begin():
    # What prepare() made is part of the interpreter. What comes from here on is the program's, and is collected with it.
    gc.freeze()
    make_main_module()
    helper = start.helper
    if helper.hutch_worker_pin() < 0 or helper.hutch_worker_ready() < 0:
        os._exit(1)
    return set_up(parse(receive()))


def receive():
    data = os.read(SOCKET, CHUNK)
    while data and len(data) < 8:
        data += read_more()
    if not data:
        os._exit(0)  # nobody needed this worker
    end = 8 + int.from_bytes(data[4:8], "little")
    while len(data) < end:
        data += read_more()
    if data[:4] != MAGIC or len(data) > end:
        os._exit(1)
    return data[8:]


def read_more():
    more = os.read(SOCKET, CHUNK)
    if not more:
        os._exit(1)
    return more


def parse(data):
    fields = []
    at = 0
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "little")
        fields.append(data[at + 4 : end])
        at = end
    return fields


def set_up(fields):
    """Returns what hutch_worker_main() is to run."""
    mode, name, code, arguments, env, cwd, rlimits = fields
    if env != start.environment:
        environment.change(env, start)
    os.chdir(cwd)
    for line in rlimits.splitlines():
        resource, soft, hard = map(int, line.split())
        start.setrlimit(resource, (soft if soft < LOWER_HALF else -1, hard if hard < LOWER_HALF else -1))
    names = sys.modules["__main__"].__dict__
    if mode == b"file":
        script = os.fsdecode(name)
        fd = filled(os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444), code)
        names["__loader__"] = SourceFileLoader("__main__", script)
        sys.path_importer_cache[script] = None
        first, words, text = script.rpartition("/")[0], [script], None
    elif mode == b"code":
        text = code.decode("utf-8", "surrogateescape")
        fd, script, first, words = -1, None, "", ["-c", text]
    else:
        fd, script, first, words, text = text_file(code), "<stdin>", "", ["-"], None
        name = b"<stdin>"
    if script is not None:
        names["__file__"] = script
        names["__cached__"] = None
    if start.has_script_path:
        sys.path[:] = [first] + start.path
    arguments = [os.fsdecode(argument) for argument in arguments.split(b"\0")[:-1]]
    sys.argv[:] = words[:1] + arguments
    if start.python is not None:
        sys.orig_argv[:] = start.python + words + arguments
    return fd, name, text


def main():
    start.helper.hutch_worker_main(
        (
            prepare,
            begin,
            gc.collect,
            gc.callbacks,
            gc.get_referrers,
            _signal.getsignal,
            _signal.signal,
            True.__bool__,
            sys.base_prefix + "/",
        )
    )
