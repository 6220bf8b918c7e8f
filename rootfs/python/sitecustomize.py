# Python imports this when it starts inside a sandbox, because hutch put its directory on PYTHONPATH. It makes an
# uncaught exception known to hutch, and leaves no trace of itself: not on sys.path, not in os.environ, not in
# sys.modules; and the sitecustomize that the image may have of its own runs as if this one were not here. It has to be
# quick, as every start pays for it: only the parts for a program that ends well are here, and the rest is
# read now, since a program may run out of descriptors, but compiled when it is needed. Python 3.8 and later.
import os
import sys


def _hutch_start():
    environ = os.environ
    site = os.path.dirname(__file__)
    sys.path[:] = [entry for entry in sys.path if entry != site]
    sys.path_importer_cache.pop(site, None)
    users_path = environ.pop("HUTCH_PYTHONPATH", None)
    if users_path is None:
        environ.pop("PYTHONPATH", None)
    else:
        environ["PYTHONPATH"] = users_path
    number = environ.pop("HUTCH_REPORT_FD", None)
    if number is None:
        return None

    fd = int(number)
    os.set_inheritable(fd, False)
    pipe = os.fstat(fd)
    with open(site + "/hutch_report.py", "rb") as file:
        source = file.read()
    pid = os.getpid()

    def excepthook(kind, value, traceback):
        original = excepthook.original
        report = None
        if os.getpid() == pid:  # a forked child's exception is not the program's
            try:
                # Called by code that goes on, perhaps to log what it has caught: that did not end the program.
                frame = sys._getframe().f_back
                while frame is not None:
                    if frame.f_code.co_name == "<module>":
                        raise LookupError
                    frame = frame.f_back
                scope = {"__name__": "hutch_report"}
                exec(compile(source, "hutch_report", "exec"), scope)
                report = scope["Report"](sys, os, fd, pipe)
            except BaseException:
                pass
        if report is None:
            original(kind, value, traceback)
        else:
            report.show(original, kind, value, traceback)

    return excepthook


try:
    _hutch_hook = _hutch_start()
except Exception:
    _hutch_hook = None  # no report is better than a program that does not start
try:
    del sys.modules["sitecustomize"]
    # Runs the image's own. Where there is none, the ImportError is what site.py expects then, and drops this module.
    import sitecustomize
finally:
    if _hutch_hook is not None:
        _hutch_hook.original = sys.excepthook
        sys.excepthook = _hutch_hook
