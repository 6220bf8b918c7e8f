# What of a process is not in a copy of it: threads, child processes, sockets, what lies in /tmp. It is told in
# short sentences. Open files have a file of their own (files.py).
import os
import sys

MAX = 64  # sentences
NAME_MAX = 200  # characters of whatever the program has named
SCRATCH = ("/tmp", "/dev/shm")
SCRATCH_MAX = 10000


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


def mapped_files():
    """Rights and path of each mapping that has a path."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            words = line.split(None, 5)
            if len(words) == 6:
                yield words[1], words[5].rstrip("\n")


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


def sockets(own):
    """Those of the program's; @own are others."""
    sentences = []
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        try:
            if fd not in own and os.readlink("/proc/self/fd/" + name).startswith("socket:"):
                sentences.append(describe_socket(fd))
        except OSError:
            pass  # the one that listdir() had
    return sentences


def list_scratch():
    """Files in the directories that do not roll back, as far as there are no more than SCRATCH_MAX."""
    found = {}
    for top in SCRATCH:
        for folder, _, names in os.walk(top):
            for name in names:
                path = os.path.join(folder, name)
                try:
                    status = os.lstat(path)
                except OSError:
                    continue
                found[path] = status.st_ino, status.st_size, status.st_mtime_ns
                if len(found) >= SCRATCH_MAX:
                    return found
    return found


def list_changed_scratch(before):
    changed = sorted(path for path, _ in set(before.items()) ^ set(list_scratch().items()))
    if not changed:
        return []
    names = ", ".join(map(shortened, dict.fromkeys(changed[:8])))
    return ["what has changed in %s, which do not roll back: %s" % (" and ".join(SCRATCH), names)]


def list_uncopied(own):
    """Processes' and threads' part of it; @own are descriptors that are no concern of the program's."""
    sentences = []
    for find in (threads, child_processes, lambda: sockets(own)):
        try:
            sentences += find()
        except OSError as error:
            sentences.append("what there may be besides: %s" % error)
    return sentences


def bounded(sentences):
    if len(sentences) > MAX:
        sentences[MAX - 1 :] = ["and %d more" % (len(sentences) - MAX + 1)]
    return sentences
