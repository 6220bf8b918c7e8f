# What a zygote does before it forks: imports, the operator's warm-up code, and the first use of what is slow when it is
# first used. In the end it must be one thread with no open files but its own, or it is not allowed to fork.
import contextlib
import errno
import gc
import importlib
import io
import os
import stat
import sys

import cells
import channel
import first_use
import functions
import immortal
import rehearsal
import renew
import seal
import shell

SEPARATOR = "---"
REPORT_MAX = 4000  # bytes, what a message holds
DESCRIPTORS = {0, 1, 2, 3}


def import_all(names):
    """Those that could not be imported."""
    missing = []
    for name in names:
        try:
            importlib.import_module(name)
        except (Exception, SystemExit):
            missing.append(name)
    return missing


def run_warm_up(code):
    """What is wrong with it, or None."""
    if not code.strip():
        return None
    try:
        exec(compile(code, "<warm-up>", "exec", 0, True), {"__name__": "warm_up"})
    except (Exception, SystemExit) as error:
        return "the warm-up code ended with %s: %s" % (type(error).__name__, error)
    return None


class NullDevice(io.RawIOBase):
    def writable(self):
        return True

    def write(self, data):
        return len(data)


def let_go_of_null_device():
    """IPython keeps /dev/null open for writing, for what it once did. No descriptor of a zygote gets into a worker, so
    what is written there goes to a stream that has none."""
    module = sys.modules.get("IPython.utils.io")
    stream = getattr(module, "devnull", None)
    if stream is not None and not stream.closed:
        stream.close()
        module.devnull = io.TextIOWrapper(NullDevice(), "utf-8", write_through=True)


def read_own(name):
    """The text of the process's own file in procfs, which may have no procfs (rootfs/helper/own_proc.h)."""
    fd = channel.Channel.helper.hutch_own_proc_open(name.encode("ascii"))
    if fd < 0:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "/proc/self/" + name)
    with open(fd, encoding="utf-8", errors="replace") as file:
        return file.read()


def count_threads():
    return int(read_own("status").partition("\nThreads:")[2].split()[0])


def list_descriptors():
    """Number and file of those that the imports have left open."""
    try:
        listing = os.open("/proc/self/fd", os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        find = channel.Channel.helper.hutch_own_proc_next_descriptor
        fd = find(max(DESCRIPTORS) + 1)
        while fd >= 0:
            yield fd, "a file of the kind %s" % stat.filemode(os.fstat(fd).st_mode)[0]
            fd = find(fd + 1)
        return
    left = {int(name) for name in os.listdir(listing)} - DESCRIPTORS - {listing}
    os.close(listing)
    for fd in sorted(left):
        try:
            yield fd, os.readlink("/proc/self/fd/%d" % fd)
        except FileNotFoundError:
            pass  # that of listdir() itself


def stop_threads_of_libraries():
    """OpenBLAS, among others, has asked libc to be told of forks: then it ends its threads, and starts them again when
    they are needed. One fork for nothing makes it do that here, instead of each time."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def what_forbids_to_fork():
    """None, or why a copy of this process would be unsound or would give one program a hold on another."""
    if count_threads() > 1:
        stop_threads_of_libraries()
    threads = count_threads()
    if threads > 1:
        return "the imports have started %d threads, which no fork survives" % (threads - 1)
    for line in read_own("maps").split("\n"):
        if line.split()[1:2] and line.split()[1].startswith("rw") and line.split()[1].endswith("s"):
            name = (line.split(None, 5) + [""])[5].strip()
            return "the imports have mapped memory that all programs would share: %s" % name
    for fd, file in list_descriptors():
        return "the imports have left descriptor %d open, on %s" % (fd, file)
    return None


def shortened(lines):
    report = ""
    for line in lines:
        line = " ".join(line.splitlines())
        if len((report + line).encode("utf-8", "replace")) > REPORT_MAX:
            break
        report += line + "\n"
    return report


def load(order):
    """Imports the modules that are named in order, one a line; after a separator follows warm-up code. Returns a
    report: one line for each module that could not be imported, and one before them that begins with "error: " when
    this process must not fork. Or order is a function: functions.py."""
    lines, function = order.decode("utf-8", "surrogateescape").split("\n"), None
    if lines[0] == functions.SEPARATOR:
        lines, function = [], (lines[1], "\n".join(lines[2:]))
    end = lines.index(SEPARATOR) if SEPARATOR in lines else len(lines)
    names, warm_up = [line.strip() for line in lines[:end] if line.strip()], "\n".join(lines[end + 1 :])
    gc.disable()  # what is imported stays; collecting meanwhile finds nothing
    with contextlib.ExitStack() as stack:
        if names or function:
            for watch in (renew.watch_seeds, renew.hold_back_hooks, renew.replace_shutdown):
                stack.enter_context(watch())
        before = set(sys.modules)
        missing = import_all(names)
        fault = functions.define(*function) if function else None
        if "ipykernel" in names and "ipykernel" not in missing:
            shell.make(channel.Channel())
            cells.stand_in_for_kernel()
        let_go_of_null_device()
        first_use.exercise(set(sys.modules) - before)
        rehearsal.in_zygote()
        fault = fault or run_warm_up(warm_up)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    renew.clean_up()
    gc.enable()
    gc.collect()
    renew.find_generators()
    try:
        fault = fault or what_forbids_to_fork()
    except OSError as error:
        fault = "look for threads and open files in /proc: %s" % error
    seal.fill()
    immortal.freeze()
    return shortened((["error: " + fault] if fault else []) + missing)
