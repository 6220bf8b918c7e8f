"""A bare warm interpreter: the same code without any sandbox around each run, for comparison. It is itself run by
`hutch run`, so that it has the same image, the same Python and the same libraries.

    bare.py CODE WANT ROUNDS

Two ways of running CODE in a Python that has imported everything and has run it once before:

    forked      a fresh process for each run, the only way to start each run from the same state: from before fork to
                when its output was read to the end and its exit was noticed
    in_process  exec in this very process, with new globals: what one run does to the interpreter stays for the next

Prints one JSON object; times in milliseconds. Another output than WANT is an error."""
import contextlib
import gc
import importlib
import io
import json
import os
import sys
import time

for library in ("numpy", "pandas", "matplotlib.pyplot", "IPython"):  # as a full zygote has them
    importlib.import_module(library)


def in_process(code):
    out = io.StringIO()
    start = time.perf_counter()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "main.py", "exec"), {"__name__": "__main__"})  # pylint: disable=exec-used
    return (time.perf_counter() - start) * 1e3, out.getvalue()


def forked(code):
    start = time.perf_counter()
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(write_end, 1)
        os.close(write_end)
        os.close(read_end)
        exec(compile(code, "main.py", "exec"), {"__name__": "__main__"})  # pylint: disable=exec-used
        sys.stdout.flush()
        os._exit(0)
    os.close(write_end)
    out = b""
    while data := os.read(read_end, 65536):
        out += data
    status = os.waitpid(pid, 0)[1]
    taken = (time.perf_counter() - start) * 1e3
    os.close(read_end)
    if status != 0:
        sys.exit(f"bare.py: wait status {status:#x}")
    return taken, out.decode()


def percentiles(times):
    ordered = sorted(times)
    at = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1}
    return {"n": len(ordered), **{name: ordered[int((len(ordered) - 1) * share + 0.5)] for name, share in at.items()}}


def main():
    code, want, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
    result = {}
    for run in (in_process, forked):
        for _ in range(2):
            run(code)
        gc.collect()
        gc.freeze()
        times = []
        for _ in range(rounds):
            taken, out = run(code)
            if out != want:
                sys.exit(f"bare.py: {run.__name__} printed {out!r} and not {want!r}")
            times.append(taken)
        result[run.__name__] = percentiles(times)
    print(json.dumps(result))


main()
