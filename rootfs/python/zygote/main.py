# The zygote: an interpreter that imports what it is told to, and then only forks. It runs as python3 /run/hutch/zygote/main.py,
# in an image, with descriptor 3 as the socket of its orders. What it forks is either a worker, which runs a program, or another
# zygote, which imports more. No code of a request runs here, and none of its data ever comes here: a worker reads its job when
# it is a process of its own, inside a sandbox.
#
# helper.so beside this does what Python cannot: it forks into a sandbox, and its main loop (rootfs/helper/pymain.c) calls the
# functions of preload.py and worker.py, and runs programs.
#
# Programs must not see that any of this was there. So the modules that these files need are taken out of sys.modules again: a
# program that imports ctypes gets one of its own.
import sys

modules_before, directories_before = set(sys.modules), set(sys.path_importer_cache)

import _signal  # noqa: E402
import _thread  # noqa: E402
import ctypes  # noqa: E402
import gc  # noqa: E402
import os  # noqa: E402

import environment  # noqa: E402
import preload  # noqa: E402
import renew  # noqa: E402
import worker  # noqa: E402

here = os.path.dirname(__file__)


def hide():
    for name in set(sys.modules) - modules_before:
        del sys.modules[name]
    for path in set(sys.path_importer_cache) - directories_before | {__file__}:
        sys.path_importer_cache.pop(path, None)
    if sys.path[0] == here:
        del sys.path[0]
    worker.make_main_module()


def main():
    helper = ctypes.PyDLL(here + "/helper.so")
    helper.hutch_zygote_main.argtypes = [ctypes.py_object, ctypes.c_char_p]
    with open(here + "/preload", "rb") as file:
        order = file.read()
    environment.get_ready()
    sys.excepthook = worker.make_excepthook(helper)
    hide()
    kit = (  # struct pykit
        preload.load,
        worker.settle,
        renew.everything,
        environment.change,
        environment.renew_streams,
        renew.twisters,
        sys.modules["_frozen_importlib_external"].SourceFileLoader,
        sys.orig_argv[0] if hasattr(sys, "orig_argv") else None,
        not getattr(sys.flags, "safe_path", False),
        gc.collect,
        gc.callbacks,
        gc.get_referrers,
        _signal.getsignal,
        _signal.signal,
        _thread._count,
        True.__bool__,
        sys.base_prefix + "/",
    )
    helper.hutch_zygote_main(kit, order)


main()
