"""Runs inside the image: executes notebooks as `jupyter nbconvert --to notebook --execute` does, with its own classes, one after the
other, each with a kernel, a process and an empty working directory of its own.

usage: reference.py IN OUT NAME:MODE...   MODE: allow, or stop at the first error; writes OUT/NAME.ipynb, and OUT/NAME.error if it failed"""
import os
import shutil
import signal
import sys
import time
import traceback
import warnings

import jupyter_client.kernelspec
import nbformat
import traitlets.config
from nbconvert.exporters import NotebookExporter
from nbconvert.preprocessors import ExecutePreprocessor

try:
    from nbconvert.preprocessors.coalescestreams import coalesce_streams

    AFTERWARDS = []
except ImportError:
    from nbconvert.preprocessors import CoalesceStreamsPreprocessor

    coalesce_streams = CoalesceStreamsPreprocessor().preprocess
    # nbconvert 7 leaves a stream in the pieces into which the kernel's clock has cut it, which no two runs have alike.
    AFTERWARDS = [CoalesceStreamsPreprocessor]

WORK = os.getcwd()
SECONDS = 300  # for one notebook; the longest takes 25 where nothing else runs. nbconvert waits without end for a reply that a kernel lost
ATTEMPTS = 2
EXECUTED = []  # notebooks as far as they have got: nbconvert drops one that failed


def preprocess(self, nb, *args, preprocess=ExecutePreprocessor.preprocess, **options):
    EXECUTED.append(nb)
    return preprocess(self, nb, *args, **options)


ExecutePreprocessor.preprocess = preprocess


def empty(folder):
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)


def execute(source, target, allow_errors):
    config = traitlets.config.Config()
    config.ExecutePreprocessor.enabled = True
    config.ExecutePreprocessor.kernel_name = "python3"  # whatever the notebook names
    config.ExecutePreprocessor.allow_errors = allow_errors
    exporter = NotebookExporter(config=config, preprocessors=AFTERWARDS)
    resources = {"metadata": {"path": WORK, "name": os.path.basename(source)[:-len(".ipynb")]}}
    try:
        text, _ = exporter.from_notebook_node(nbformat.read(source, as_version=4), resources)
    except Exception:
        with open(target[:-len(".ipynb")] + ".error", "w", encoding="utf-8", errors="replace") as file:
            traceback.print_exc(file=file)
        notebook, _ = coalesce_streams(EXECUTED[0], {})
        text = nbformat.writes(notebook) + "\n"
    with open(target, "w", encoding="utf-8") as file:
        file.write(text)


def start(source, target, allow_errors):
    """The pid of a process that executes @source and writes @target."""
    pid = os.fork()
    if pid:
        return pid
    try:
        execute(source, target, allow_errors)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def has_ended(pid, seconds):
    """Waits for the process @pid. One that has not ended after @seconds is killed, its kernel too."""
    deadline = time.monotonic() + seconds
    while not os.waitpid(pid, os.WNOHANG)[0]:
        if time.monotonic() > deadline:
            os.kill(-1, signal.SIGKILL)  # all processes of the sandbox but its init and this one
            os.waitpid(pid, 0)
            return False
        time.sleep(0.02)
    return True


def prepare():
    """What each process would import and compile for itself; the kernels are programs of their own."""
    jupyter_client.kernelspec.KernelSpecManager().get_kernel_spec("python3")
    nbformat.validate(nbformat.v4.new_notebook())
    NotebookExporter()


def main(folder, out, *jobs):
    warnings.simplefilter("ignore")
    prepare()
    os.environ.pop("MPLBACKEND", None)  # ipykernel chooses its own only where there is none
    for job in jobs:
        name, mode = job.rsplit(":", 1)
        for _ in range(ATTEMPTS):
            empty(WORK)
            empty("/tmp")
            pid = start(os.path.join(folder, name + ".ipynb"), os.path.join(out, name + ".ipynb"), mode == "allow")
            if has_ended(pid, SECONDS):
                break
            print("%s: no end within %d s" % (name, SECONDS), file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
