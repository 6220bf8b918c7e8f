# What a worker has of Python code between its fork and its program. It is in its sandbox then, confined, with the program's streams
# as 0, 1 and 2 and the socket that its job comes from as 3. Whatever can be done before the fork is done before: a function
# that a worker calls costs it some ten pages of memory. And when the job is there (struct worker_job in
# runtime/warm.h), every microsecond counts: nothing is imported, compiled or looked up that could have been before.
import gc
import os
import sys

import environment
import first_use
import hutch_report

SOCKET = 3
UNLIMITED = 1 << 63  # rlimits from here on

Module = type(sys)
SourceFileLoader = sys.modules["_frozen_importlib_external"].SourceFileLoader
BuiltinImporter = sys.modules["_frozen_importlib"].BuiltinImporter


class Start:
    """What the zygote finds out once, for all its workers."""


start = Start()


def get_ready(helper):
    import resource

    start.setrlimit = resource.setrlimit
    start.may_report = helper.hutch_worker_may_report
    start.python = sys.orig_argv[:1] if hasattr(sys, "orig_argv") else None
    start.has_script_path = not getattr(sys.flags, "safe_path", False)
    sys.excepthook = make_excepthook()


def make_excepthook():
    """Prints and reports as the one in rootfs/python/sitecustomize.py."""

    def excepthook(kind, value, traceback):
        original = excepthook.original
        report = None
        try:
            if start.may_report():
                # Called by code that goes on, perhaps to log what it has caught: that did not end the program.
                frame = sys._getframe().f_back
                while frame is not None:
                    if frame.f_code.co_name == "<module>":
                        raise LookupError
                    frame = frame.f_back
                report = hutch_report.Report(sys, os, SOCKET, os.fstat(SOCKET))
        except BaseException:
            pass
        if report is None:
            original(kind, value, traceback)
        else:
            report.show(original, kind, value, traceback)

    excepthook.original = sys.excepthook
    return excepthook


def make_main_module():
    """A __main__ as it is before a program: what the interpreter itself puts there, in its order."""
    module = Module("__main__")
    names = module.__dict__
    names["__loader__"] = BuiltinImporter
    names["__annotations__"] = {}
    names["__builtins__"] = sys.modules["builtins"]
    sys.modules["__main__"] = module


def settle():
    """The zygote's memory has found its place, perhaps another one than before (rootfs/helper/freeze.c). Using the libraries once
    more maps again what programs will need."""
    first_use.again()
    start.path = sys.path[:]
    start.environment = environment.current()
    gc.collect()
    gc.freeze()
    # What comes from here on is the program's, and is collected with it.
    make_main_module()


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


def parse(data):
    fields = []
    at = 0
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "little")
        fields.append(data[at + 4 : end])
        at = end
    return fields


def set_up(job):
    """Makes everything as the job has it, and returns the program: its file and the name of that, or its text."""
    mode, name, code, arguments, env, cwd, rlimits = parse(job)
    if env != start.environment:
        environment.change(env, start)
    os.chdir(cwd)
    for line in rlimits.splitlines():
        resource, soft, hard = map(int, line.split())
        start.setrlimit(resource, (soft if soft < UNLIMITED else -1, hard if hard < UNLIMITED else -1))
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
    sys.path[:] = [first] + start.path if start.has_script_path else start.path
    arguments = [os.fsdecode(argument) for argument in arguments.split(b"\0")[:-1]]
    sys.argv[:] = words[:1] + arguments
    if start.python is not None:
        sys.orig_argv[:] = start.python + words + arguments
    return fd, name, text
