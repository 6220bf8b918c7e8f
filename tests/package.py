"""The Python package `hutch`, as it is installed beside the binary under test, or in the tree; and options with which an engine
of it uses the library, programs and store of the tests."""
import os
import sys

import engine
import support


def folder():
    """What has to be in sys.path."""
    prefix = os.path.dirname(os.path.dirname(support.HUTCH))
    installed = os.path.join(prefix, "share", "hutch-data", "python")
    return installed if os.path.isdir(installed) else os.path.join(support.TREE, "clients", "python")


sys.path.insert(0, folder())

import hutch  # noqa: E402  (the path comes first)

assert os.path.realpath(hutch.__file__).startswith(os.path.realpath(folder())), hutch.__file__


def options(**more):
    """For Engine and BlockingEngine. A library with sanitizers is a named skip."""
    engine.library()
    found = support.engine_env()
    return {"library": engine.library_path(), "launcher": found["HUTCH_LAUNCHER"], "policy_dir": found["HUTCH_POLICY_DIR"],
            "home": found["HUTCH_HOME"], "image": support.IMAGE, "layouts": 1, "zygotes": [hutch.Zygote("bare", min=2, max=6)], **more}


SHELL = [hutch.Zygote("bare", min=1, max=4), hutch.Zygote("shell", ("IPython", "ipykernel"), parent="bare", min=2, max=6)]


def environment(**more):
    """For a program that uses the package as its user would."""
    engine.library()
    return support.engine_env(**{"HUTCH_LIBRARY": engine.library_path(), "PYTHONPATH": folder(), "PYTHONDONTWRITEBYTECODE": "1",
                                 "HUTCH_BIN": support.HUTCH, **more})
