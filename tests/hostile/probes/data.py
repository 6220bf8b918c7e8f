"""What a program may leave in /mnt/data, and what hutch does when it collects it: never follow a link out,
never block, never trust a name. Most of these calls are allowed; the suite checks the collected result, and
that what stayed on the host is harmless. See ``after_*`` in test_hostile.py."""
import os
import socket
import stat
import sys

from kit import READ_ONLY, REFUSALS, Blocked, host, probe, syscall

DATA = "/mnt/data"
COLLECTED = "the collector runs outside, after the program"


def done(what):
    """The attack is laid out; what comes of it is seen outside."""
    raise Blocked("laid out: " + what)


@probe(why_no_control=COLLECTED, leaves=("link", "absolute", "up"))
def symlink_out():
    """Links to a file and to a directory of the host: the collector must not read what they lead to."""
    os.symlink(host.canary_file, DATA + "/link")
    os.symlink("/etc", DATA + "/absolute")
    os.symlink("../" * 30 + host.canary_dir.lstrip("/"), DATA + "/up")
    done("three links")


@probe(why_no_control=COLLECTED, leaves=("a", "b", "self"))
def symlink_loop():
    """Links in a circle: following them never ends."""
    os.symlink("b", DATA + "/a")
    os.symlink("a", DATA + "/b")
    os.symlink(".", DATA + "/self")
    done("a circle")


@probe(why_no_control=COLLECTED, leaves=("fifo",))
def fifo():
    """Opening a FIFO blocks until somebody writes: for ever."""
    os.mkfifo(DATA + "/fifo")
    done("a FIFO")


@probe(why_no_control=COLLECTED, leaves=("socket",))
def unix_socket():
    """A socket file, with nobody behind it any more."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(DATA + "/socket")
    done("a socket")


@probe(control="root", refused=READ_ONLY)
def device_in_data():
    """A device node would be opened by whoever looks through the results."""
    path = (host.scratch if host.outside else DATA) + "/null"
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    if host.outside:
        os.unlink(path)
    return "made a device node"


@probe(control="user", refused=READ_ONLY + ("EXDEV", "EMLINK"))
def hard_link_to_rootfs():
    """A hard link into /mnt/data to a file of the rootfs would make that file the caller's to change."""
    source = host.canary_file if host.outside else "/etc/passwd"
    target = (host.scratch if host.outside else DATA) + "/passwd"
    os.link(source, target)
    if host.outside:
        os.unlink(target)
    return "linked " + source


@probe(control="user", refused=READ_ONLY + ("EXDEV", "EMLINK", "EBADF"))
def hard_link_to_descriptor():
    """linkat(2) with AT_EMPTY_PATH and /proc/self/fd: a link to an open file, such as the script's."""
    directory = host.scratch if host.outside else DATA
    source = host.canary_file if host.outside else sys.executable
    fd = os.open(source, os.O_RDONLY)
    target = directory + "/linked"
    syscall("linkat", -100, b"/proc/self/fd/%d" % fd, -100, target.encode(), 0x400)  # AT_SYMLINK_FOLLOW
    os.unlink(target)
    return "linked an open file"


@probe(why_no_control=COLLECTED, leaves=("odd",))
def odd_names():
    """Names with newlines, escapes, invalid UTF-8, quotes, leading dashes; as long as names get."""
    os.mkdir(DATA + "/odd")
    for name in (b"new\nline", b"\x1b[31mred", b"\xff\xfe invalid", b"quote\"and\\backslash", b"-rf", b"tab\there",
                 b" leading and trailing ", b"\x01\x02\x7f", b"l" * 255, "\u202eexe.txt".encode(), b"..."):
        with open(os.path.join(DATA.encode(), b"odd", name), "wb") as file:
            file.write(b"x")
    done("eleven names")


@probe(why_no_control=COLLECTED, leaves=("d",))
def deep_directories():
    """A thousand directories in one another: more than PATH_MAX, so no absolute path leads there."""
    os.chdir(DATA)
    for _ in range(1000):
        os.mkdir("d" * 1)
        os.chdir("d")
    with open("bottom", "w", encoding="ascii") as file:
        file.write("x")
    done("a thousand levels")


@probe(why_no_control=COLLECTED, leaves=("locked", "unreadable"))
def locked_directory():
    """Directories and files without any permission: hutch has to look into and to clean them all the same."""
    os.makedirs(DATA + "/locked/inner")
    open(DATA + "/locked/inner/file", "w", encoding="ascii").close()
    open(DATA + "/unreadable", "w", encoding="ascii").close()
    os.chmod(DATA + "/unreadable", 0)
    os.chmod(DATA + "/locked/inner", 0)
    os.chmod(DATA + "/locked", 0)
    done("no permissions")


@probe(why_no_control=COLLECTED, leaves=())
def locked_top():
    """The top directory itself without any permission."""
    open(DATA + "/file", "w", encoding="ascii").close()
    os.unlink(DATA + "/file")
    os.chmod(DATA, 0)
    done("no permissions at the top")


@probe(control="root", refused=REFUSALS + ("ENOTTY", "EOPNOTSUPP"))
def immutable_file():
    """chattr +i: a file that even its owner cannot remove any more."""
    import fcntl
    import struct
    path = (host.scratch if host.outside else DATA) + "/immutable"
    with open(path, "w", encoding="ascii") as file:
        if host.outside:
            flags = struct.unpack("=l", fcntl.ioctl(file, 0x80086601, struct.pack("=l", 0)))[0]
            os.unlink(path)
            return "flags are %x" % flags
        try:
            fcntl.ioctl(file, 0x40086602, struct.pack("=l", 0x10))
        finally:
            os.unlink(path)
    return "made an immutable file"


@probe(why_no_control=COLLECTED, leaves=("sparse",), verdicts=("ok", "killed", "error", "output_limit"), silent=True)
def sparse_file():
    """A file of 8 EiB that takes no space, until somebody copies it."""
    import signal
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with open(DATA + "/sparse", "wb") as file:
        try:
            file.truncate(2 ** 62)
        except OSError as error:
            raise Blocked("errno %d" % error.errno) from None
    return "made a file of %d bytes" % os.stat(DATA + "/sparse").st_size


@probe(why_no_control=COLLECTED, leaves=("swap", "real"))
def swap_while_collecting():
    """A daemon that swaps a directory for a link all the time, in the hope that the collector checks first
    and opens later. It must be dead by then."""
    os.mkdir(DATA + "/real")
    open(DATA + "/real/file", "w", encoding="ascii").close()
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        while True:
            try:
                os.mkdir(DATA + "/swap")
                os.rmdir(DATA + "/swap")
                os.symlink(host.canary_dir, DATA + "/swap")
                os.unlink(DATA + "/swap")
            except OSError:
                pass
    os.wait()
    done("it swaps")


@probe(control="user", refused=REFUSALS + ("EOPNOTSUPP", "EINVAL"))
def replace_data_directory():
    """Renaming or removing /mnt/data itself from inside: it is a mount point, and its parent is read-only."""
    if host.outside:
        os.mkdir(host.scratch + "/d")
        os.rename(host.scratch + "/d", host.scratch + "/e")
        os.rmdir(host.scratch + "/e")
        return "renamed a directory"
    try:
        os.rename(DATA, "/mnt/data2")
    except OSError as error:
        if error.errno in (16, 30, 18):
            raise Blocked("errno %d" % error.errno) from None
        raise
    return "renamed /mnt/data"


@probe(control="user", refused=REFUSALS)
def trusted_attributes():
    """Extended attributes in the data directory stay on the host: user.* is harmless, others are not."""
    path = (host.scratch if host.outside else DATA) + "/attributes"
    open(path, "w", encoding="ascii").close()
    try:
        if host.outside:
            os.listxattr(path)
            return "attributes are there"
        for name in ("trusted.overlay.opaque", "trusted.hutch-probe"):
            try:
                os.setxattr(path, name, b"y")
            except OSError as error:
                last = error
                continue
            return "set " + name
        if last.errno == 95:
            raise Blocked("not supported")
        raise last
    finally:
        os.unlink(path)


@probe(why_no_control=COLLECTED, leaves=("many",))
def many_files():
    """Five thousand files: the diff names them, and it stays quick (100,000 in the end-to-end tests)."""
    os.mkdir(DATA + "/many")
    for number in range(5000):
        os.close(os.open(DATA + "/many/%d" % number, os.O_CREAT | os.O_WRONLY, 0o644))
    done("5000 files")


@probe(why_no_control=COLLECTED, leaves=("page.html", "tool.sh", "image.png"))
def lying_file_types():
    """Names that lie about what is in the file: the type is a hint for display, and comes as text."""
    with open(DATA + "/image.png", "wb") as file:
        file.write(b"#!/bin/sh\ntouch /tmp/owned\n")
    os.chmod(DATA + "/image.png", 0o755)
    with open(DATA + "/page.html", "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n")
    with open(DATA + "/tool.sh", "wb") as file:
        file.write(b"<script>")
    done("three liars")
