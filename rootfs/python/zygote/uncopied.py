# What of a process is not in a copy of it: threads, child processes, sockets, files that are being written. It is told
# in short sentences before the copy is made.
import os
import sys

MAX = 64  # sentences
NAME_MAX = 200  # characters of whatever the program has named
DATA = "/mnt/data/"


def shortened(text):
    text = " ".join(str(text).split())
    return text if len(text) <= NAME_MAX else text[: NAME_MAX - 3] + "..."


def threads():
    threading = sys.modules.get("threading")
    names = []
    if threading is not None:
        names = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    count = max(len(os.listdir("/proc/self/task")) - 1, len(names))
    if count == 0:
        return []
    named = ": " + shortened(", ".join(map(str, names[:8]))) if names else ", of libraries"
    return ["%d %s%s" % (count, "thread" if count == 1 else "threads", named)]


def read(path):
    with open(path, "rb") as file:
        return file.read(4096)


def child_processes():
    """Of this one, which are still running."""
    found, me = [], os.getpid()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            state, parent = read("/proc/%s/stat" % name).rpartition(b")")[2].split()[:2]
            if int(parent) != me or state in (b"Z", b"X"):
                continue
            words = read("/proc/%s/cmdline" % name).replace(b"\0", b" ").decode("utf-8", "replace")
            found.append("child process %s: %s" % (name, shortened(words) or "?"))
        except (OSError, ValueError):
            pass  # it has ended meanwhile
    return found


def describe_socket(fd):
    import socket

    try:
        with socket.socket(fileno=os.dup(fd)) as sock:
            family = getattr(sock.family, "name", str(sock.family))
            try:
                peer = sock.getpeername()
            except OSError:
                peer = ""
        to = " to " + shortened(peer) if peer else ""
        return "a socket: descriptor %d, %s%s" % (fd, family, to)
    except OSError:
        return "a socket: descriptor %d" % fd


def is_open_for_writing(fd):
    for line in read("/proc/self/fdinfo/%d" % fd).split(b"\n"):
        if line.startswith(b"flags:"):
            return int(line.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY
    return False


def descriptors(own):
    """Sockets, and files of the data directory that are being written; @own are left out."""
    sentences = []
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        try:
            target = os.readlink("/proc/self/fd/" + name)
            if fd in own:
                continue
            if target.startswith("socket:"):
                sentences.append(describe_socket(fd))
            elif target.startswith(DATA) and is_open_for_writing(fd):
                sentences.append("a file open for writing: " + shortened(target))
        except OSError:
            pass  # the one that listdir() had
    return sentences


def list_uncopied(own):
    """All of it; @own are descriptors that are no concern of the program's."""
    sentences = []
    for find in (threads, child_processes, lambda: descriptors(own)):
        try:
            sentences += find()
        except OSError as error:
            sentences.append("what there may be besides: %s" % error)
    return bounded(sentences)


def bounded(sentences):
    if len(sentences) > MAX:
        sentences[MAX - 1 :] = ["and %d more" % (len(sentences) - MAX + 1)]
    return sentences
