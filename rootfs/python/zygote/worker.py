# What a worker shows of itself to its program: the module __main__ before it begins, and sys.excepthook. Both are made
# before the fork; what comes after it is C (rootfs/helper/pymain.c), but for renew.py.
import gc
import os
import sys

import environment
import first_use
import hutch_report

SOCKET = 3

Module = type(sys)
BuiltinImporter = sys.modules["_frozen_importlib"].BuiltinImporter


def make_excepthook(helper):
    """Prints and reports as the one in rootfs/python/sitecustomize.py."""
    may_report = helper.hutch_worker_may_report

    def excepthook(kind, value, traceback):
        original = excepthook.original
        report = None
        try:
            if may_report():
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
    more maps again what programs will need. Returns the environment."""
    first_use.again()
    gc.collect()
    gc.freeze()
    # What comes from here on is the program's, and is collected with it.
    make_main_module()
    return environment.current()

