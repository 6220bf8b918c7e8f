# A function: an operator's file that defines "def handler(event)" (hutch_engine_set_function() in runtime/hutch.h).
#
# A zygote that is one has executed the file; each of its workers answers one call, with an event that came with its
# job. The value goes to the engine by the socket of descriptor 3, as the error of a program does, so nothing that the
# handler prints is taken for it:
#     8 bytes  "HUTCHRV1"
#     4        the length of what follows, little endian
#     then the value as JSON in UTF-8; nothing after it
import os
import sys

import hutch_report
import worker

SEPARATOR = "==="  # before the function's name and its text, in what a zygote is told to import
MAX_VALUE = 4 << 20  # bytes of JSON; as FUNCTION_MAX_VALUE in runtime/engine/function.h
MODULE = "function"  # its name in sys.modules
REHEARSED = b'{"text": [1, 2.5, null, true]}'
COROUTINE = 0x80  # inspect.CO_COROUTINE
original_print = print


class Source:
    """The module's loader: by this tracebacks have the lines of a file that is nowhere."""

    def __init__(self, text):
        self.text = text

    def get_source(self, name):
        return self.text


class Defined:
    module = None  # what the file of this zygote has become
    may_report = None  # set by main.py: whether this is the process that was given the call


def place_of(error, name):
    """The line of the file in which it was raised, as " (NAME.py, line 3)"."""
    line, traceback = None, error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == name:
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return " (%s, line %d)" % (name, line) if line else ""


def define(name, text):
    """Executes the file. What is wrong with it, or None."""
    import json
    import traceback
    import types

    file_name = name + ".py"
    module = types.ModuleType(MODULE)
    module.__file__ = file_name
    module.__loader__ = Source(text)
    sys.modules[MODULE] = module
    try:
        exec(compile(text, file_name, "exec", 0, True), vars(module))
    except BaseException as error:
        try:
            words = "%s: %s" % (type(error).__name__, error)
        except BaseException:
            words = type(error).__name__
        return "the function '%s' cannot be imported: %s%s" % (name, words, place_of(error, file_name))
    handler = vars(module).get("handler")
    if not callable(handler):
        return "the function '%s' has no handler: its file is to define 'def handler(event)'" % name
    if getattr(getattr(handler, "__code__", None), "co_flags", 0) & COROUTINE:
        __import__("asyncio")  # calls find it imported
    json.loads(json.dumps({"text": [1, 2.5, None, True]}))  # what is slow when it is first used
    traceback.format_exception(ValueError, ValueError(), None)
    Defined.module = module
    return None


def call(handler, event):
    import json

    value = handler(json.loads(event))
    if hasattr(type(value), "__await__"):
        import asyncio

        async def awaited():
            return await value

        value = asyncio.run(awaited())
    data = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=plain).encode("utf-8")
    if len(data) > MAX_VALUE:
        raise ValueError("the handler's value has %d bytes as JSON, and can have %d" % (len(data), MAX_VALUE))
    return data


def plain(value):
    """For json: numpy's scalars are the numbers that they hold."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic):
        return value.item()
    raise TypeError("Object of type %s is not JSON serializable" % type(value).__name__)


def own_part(traceback):
    """From the first line of the operator's file on; None when it was not reached."""
    names = vars(Defined.module)
    while traceback is not None and traceback.tb_frame.f_globals is not names:
        traceback = traceback.tb_next
    return traceback


def show(kind, value, traceback):
    """As the interpreter prints it, which does not know the text of the file."""
    import traceback as lines

    sys.stderr.write("".join(lines.format_exception(kind, value, traceback)))


def report(error):
    traceback = own_part(error.__traceback__)
    error.__traceback__ = traceback
    if Defined.may_report():
        pipe = os.fstat(worker.SOCKET)
        hutch_report.Report(sys, os, worker.SOCKET, pipe).show(show, type(error), error, traceback)
    else:
        show(type(error), error, traceback)


def record_of(data):
    return memoryview(b"HUTCHRV1" + len(data).to_bytes(4, "little") + data)


def send(record):
    while record:
        record = record[os.write(worker.SOCKET, record) :]


def main(event):
    """Answers the call. The exit status."""
    try:
        data = call(Defined.module.handler, event)
        if Defined.may_report():  # not a process that the handler has forked, and came back
            send(record_of(data))
    except BaseException as error:
        try:
            report(error)
        except BaseException:
            pass
        return 1
    return 0


def stand_in(event):
    original_print(end="", file=sys.__stdout__)  # neither is the operator's
    return event


def rehearse():
    """In a worker that waits for its call: the way that main() takes, so that the pages which it writes to are the
    worker's own already. The operator's handler is not called, and nothing is sent. What fails here, as a json module
    that was tampered with may, costs time alone."""
    try:
        record_of(call(stand_in, REHEARSED))
        Defined.may_report()
    except BaseException:
        pass
