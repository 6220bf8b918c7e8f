# What is left of Python code around a program: sys.excepthook, made before the fork. What comes after it is C
# (rootfs/helper/pymain.c), but for renew.py.
import gc
import os
import sys

import environment
import first_use
import hutch_report
import immortal
import rehearsal
import seal

SOCKET = 3


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


def use_libraries_again():
    """Maps again the pages that programs will need, after the zygote's memory has been moved (rootfs/helper/freeze.c).
    Returns the environment."""
    first_use.again()
    rehearsal.in_zygote()
    gc.collect()
    seal.fill()
    immortal.freeze()
    return environment.current()

