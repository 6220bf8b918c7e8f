"""Outliving the script, or never ending: whatever happens, when hutch has returned nothing runs any more,
and hutch returns. The suite looks for processes after every probe; these try to leave some."""
import ctypes
import os
import signal
import sys
import threading
import time

from kit import Blocked, probe

OUTSIDE = "it would leave processes on the host"
LONG = 60


def linger():
    """Lives for a minute, or until it is killed."""
    deadline = time.monotonic() + LONG
    while time.monotonic() < deadline:
        time.sleep(1)
    os._exit(0)


def ignore_everything():
    for number in range(1, 65):
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            pass


def left(what):
    raise Blocked("left behind: " + what)


@probe(why_no_control=OUTSIDE)
def daemon():
    """The classical daemon: fork, setsid, fork; streams closed."""
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        for number in range(64):
            try:
                os.close(number)
            except OSError:
                pass
        linger()
    os.wait()
    left("a daemon")


@probe(why_no_control=OUTSIDE)
def daemon_holding_stdout():
    """A child that keeps standard output open: whoever waits for the end of the output waits for ever."""
    if os.fork() == 0:
        linger()
    left("a child with our streams")


@probe(why_no_control=OUTSIDE, silent=True, verdicts=("ok", "output_limit"))
def daemon_writing_on():
    """A child that goes on writing after the script's end."""
    if os.fork() == 0:
        deadline = time.monotonic() + LONG
        try:
            while time.monotonic() < deadline:
                os.write(1, b"still here\n")
                time.sleep(0.001)
        finally:
            os._exit(0)
    left("a writer")


@probe(why_no_control=OUTSIDE)
def many_daemons():
    """Thirty of them, half in sessions of their own, all ignoring every signal."""
    for number in range(30):
        if os.fork() == 0:
            if number % 2:
                os.setsid()
            ignore_everything()
            linger()
    left("thirty daemons")


@probe(why_no_control=OUTSIDE)
def daemon_forking_on():
    """A process that replaces itself all the time: there is no pid that one could kill in time."""
    if os.fork() == 0:
        deadline = time.monotonic() + LONG
        while time.monotonic() < deadline:
            try:
                if os.fork():
                    os._exit(0)
            except OSError:
                pass
        os._exit(0)
    left("a moving target")


@probe(why_no_control=OUTSIDE)
def daemon_in_background_thread():
    """A thread that is no daemon thread keeps the interpreter alive; here one that ends soon enough."""
    thread = threading.Thread(target=time.sleep, args=(0.2,))
    thread.start()
    left("a thread that ends by itself")


@probe(why_no_control=OUTSIDE, silent=True, verdicts=("timeout",), options=("--timeout", "700ms"))
def ignore_sigterm():
    """At the timeout comes SIGTERM, which we ignore, and after the grace SIGKILL, which we cannot."""
    ignore_everything()
    linger()


@probe(why_no_control=OUTSIDE, silent=True, verdicts=("timeout",), options=("--timeout", "700ms"))
def stop_oneself():
    """A stopped process takes no SIGTERM; only SIGKILL ends it."""
    os.kill(os.getpid(), signal.SIGSTOP)
    linger()


@probe(why_no_control=OUTSIDE, silent=True, verdicts=("timeout",), options=("--timeout", "700ms"))
def stop_everybody():
    """SIGSTOP to the whole sandbox, init included, from a process outside of its group."""
    if os.fork() == 0:
        os.setsid()
        for _ in range(1000):
            for target in (-1, 1, os.getppid()):
                try:
                    os.kill(target, signal.SIGSTOP)
                except OSError:
                    pass
            time.sleep(0.001)
        linger()
    linger()


@probe(why_no_control=OUTSIDE, silent=True, verdicts=("timeout",), options=("--timeout", "700ms"))
def vfork_and_wait():
    """A parent in vfork(2) is in uninterruptible sleep until its child is done."""
    libc = ctypes.CDLL(None)
    ignore_everything()
    if os.fork() == 0:
        linger()
    libc.pause()
    linger()


@probe(why_no_control=OUTSIDE, silent=True, verdicts=("timeout",), options=("--timeout", "700ms"))
def trap_and_fork_on_sigterm():
    """Answers SIGTERM by making more processes."""
    def more(_number, _frame):
        for _ in range(10):
            try:
                if os.fork() == 0:
                    ignore_everything()
                    linger()
            except OSError:
                pass
    signal.signal(signal.SIGTERM, more)
    while True:
        time.sleep(1)


@probe(why_no_control=OUTSIDE, silent=True, verdicts=("timeout",), options=("--timeout", "700ms"))
def wait_on_stdin():
    """Reads standard input, which never ends."""
    sys.stdin.buffer.read()
    signal.pause()


@probe(why_no_control=OUTSIDE, silent=True, verdicts=("timeout",), options=("--timeout", "700ms"))
def wait_on_fifo():
    """Opens a FIFO that nobody else opens."""
    os.mkfifo("/tmp/fifo")
    os.close(os.open("/tmp/fifo", os.O_RDONLY))


@probe(why_no_control=OUTSIDE)
def die_with_full_process_table():
    """Ends with all process slots in use: init must not need one of them to clean up."""
    for _ in range(500):
        try:
            if os.fork() == 0:
                linger()
        except OSError:
            break
    left("a full process table")


@probe(why_no_control=OUTSIDE, silent=True, verdicts=("ok", "error", "killed"))
def exec_something_else():
    """The script turns into another program, whose end is the end."""
    os.execv("/bin/sh", ["sh", "-c", "exec sleep 0.1"])


@probe(why_no_control=OUTSIDE)
def parent_death_signal():
    """PR_SET_PDEATHSIG and a new child subreaper: orphans that fall to us instead of init."""
    libc = ctypes.CDLL(None)
    libc.prctl(36, 1, 0, 0, 0)
    libc.prctl(1, 0, 0, 0, 0)
    if os.fork() == 0:
        if os.fork() == 0:
            linger()
        os._exit(0)
    left("an orphan of ours")
