# The zygote: an interpreter that imports what it is told to, and then only forks. It runs as python3
# /run/hutch/zygote/main.py, in an image, with descriptor 3 as the socket of its orders. What it forks is either a
# worker, which runs a program, or another zygote, which imports more. No code of a request runs here, and none of its
# data ever comes here: a worker reads its job when it is a process of its own, inside a sandbox.
#
# helper.so beside this does what Python cannot: it forks into a sandbox, and its main loop (rootfs/helper/pymain.c)
# calls the functions of preload.py and worker.py, and runs programs.
#
# Programs must not see that any of this was there. So the modules that these files need are taken out of sys.modules
# again: a program that imports ctypes gets one of its own.
import sys

modules_before, directories_before = set(sys.modules), set(sys.path_importer_cache)

import _signal  # noqa: E402
import _thread  # noqa: E402
import atexit  # noqa: E402
import builtins  # noqa: E402
import ctypes  # noqa: E402
import gc  # noqa: E402
import os  # noqa: E402

import cells  # noqa: E402
import channel  # noqa: E402
import environment  # noqa: E402
import functions  # noqa: E402
import immortal  # noqa: E402
import preload  # noqa: E402
import rehearsal  # noqa: E402
import renew  # noqa: E402
import worker  # noqa: E402

ADDED_BUILTINS = {"open", "exit", "quit", "copyright", "credits", "license", "help"}  # by the io module and site.py
all_builtins = vars(builtins).copy()  # all are referred to: taking them apart when a program ends would be in vain
here = os.path.dirname(__file__)


def hide():
    for name in set(sys.modules) - modules_before:
        del sys.modules[name]
    for path in set(sys.path_importer_cache) - directories_before | {__file__}:
        sys.path_importer_cache.pop(path, None)
    if sys.path[0] == here:
        del sys.path[0]
    sys.modules["__main__"] = type(sys)("__main__")  # for imports that look at it; a worker makes its own


def run_atexit_of_program():
    if "atexit" in sys.modules:
        sys.modules["atexit"]._run_exitfuncs()


def main():
    helper = ctypes.PyDLL(here + "/helper.so")
    helper.hutch_zygote_main.argtypes = [ctypes.py_object, ctypes.c_char_p]
    channel.set_helper(helper, ctypes)
    immortal.set_helper(helper, ctypes)
    with open(here + "/preload", "rb") as file:
        order = file.read()
    environment.get_ready()
    sys.excepthook = worker.make_excepthook(helper)
    functions.Defined.may_report = helper.hutch_worker_may_report
    hide()
    # The functions belong to the interpreter, and before 3.10 to the module, of which a program gets one of its own.
    run_atexit = atexit._run_exitfuncs if sys.version_info >= (3, 10) else run_atexit_of_program
    objects = (  # struct pyobjects, in its order
        preload.load,
        worker.use_libraries_again,
        renew.everything,
        environment.change,
        os.environ._data,
        environment.renew_streams,
        renew.mt19937_states,
        sys.modules["_frozen_importlib_external"].SourceFileLoader,
        sys.modules["_frozen_importlib"].BuiltinImporter,
        sys.orig_argv[0] if hasattr(sys, "orig_argv") else None,
        not getattr(sys.flags, "safe_path", False),
        run_atexit,
        gc.collect,
        gc.callbacks,
        gc.get_referrers,
        _signal.getsignal,
        _signal.signal,
        _thread._count,
        {name: value for name, value in all_builtins.items() if name not in ADDED_BUILTINS},
        True.__bool__,
        rehearsal.in_worker,
        cells.main,
        functions.main,
        functions.rehearse,
        sys.base_prefix + "/",
    )
    helper.hutch_zygote_main(objects, order)


main()
