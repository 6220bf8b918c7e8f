# The zygote: an interpreter that imports what it is told to, and then only forks. It runs as python3 /run/hutch/zygote/main.py,
# in an image, with descriptor 3 as the socket of its orders; helper.so beside it does what Python cannot. What it forks is
# either a worker (worker.py) or another zygote that imports more. No code of a request runs here, and none of its data
# ever comes here: a worker reads its job when it is a process of its own, inside a sandbox.
#
# Programs must not see that any of this was there. So the modules that these files need are taken out of sys.modules again: a
# program that imports ctypes gets one of its own.
import sys

modules_before, directories_before = set(sys.modules), set(sys.path_importer_cache)

import ctypes  # noqa: E402
import os  # noqa: E402

import preload  # noqa: E402
import worker  # noqa: E402

WORKER, ZYGOTE = 1, 2  # what hutch_zygote_serve() returns; 0 when there is no engine any more
TEXT_MAX = 1 << 16


def hide():
    for name in set(sys.modules) - modules_before:
        del sys.modules[name]
    for path in set(sys.path_importer_cache) - directories_before | {__file__}:
        sys.path_importer_cache.pop(path, None)
    if sys.path[0] == os.path.dirname(__file__):
        del sys.path[0]
    worker.make_main_module()


def main():
    here = os.path.dirname(__file__)
    helper = ctypes.PyDLL(here + "/helper.so")
    helper.hutch_worker_main.argtypes = [ctypes.py_object]
    text = ctypes.create_string_buffer(TEXT_MAX)
    worker.get_ready(helper)
    hide()
    with open(here + "/preload", "rb") as file:
        order = file.read()
    while True:
        report, may_fork = preload.load(order.decode("utf-8", "surrogateescape"))
        worker.look_around()
        if may_fork and hasattr(helper, "hutch_zygote_freeze"):
            helper.hutch_zygote_freeze()
        if helper.hutch_zygote_ready(report.encode("utf-8", "replace")) < 0 or not may_fork:
            os._exit(1)
        what = helper.hutch_zygote_serve(text, TEXT_MAX)
        if what == WORKER:
            worker.main()
        if what != ZYGOTE:
            os._exit(0)
        order = text.value


main()
