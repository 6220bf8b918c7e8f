"""Changing what is mounted, leaving the root directory, and making or joining namespaces."""
import ctypes
import os

from kit import ABSENT, READ_ONLY, REFUSALS, Blocked, host, first_success, in_child, pack, probe, syscall

MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE, MS_SHARED = 1, 32, 4096, 16384, 1 << 18, 1 << 20
MNT_DETACH = 2
AT_FDCWD = -100
AT_EMPTY_PATH = 0x1000
AT_RECURSIVE = 0x8000
MOUNT_ATTR_RDONLY = 1
OPEN_TREE_CLONE = 1

NAMESPACES = {
    "time": 0x00000080, "mnt": 0x00020000, "cgroup": 0x02000000, "uts": 0x04000000, "ipc": 0x08000000,
    "user": 0x10000000, "pid": 0x20000000, "net": 0x40000000,
}


def alone(action):
    """Outside, an attack on mounts runs in a mount namespace of its own, so that the control run of root
    leaves the machine as it was. Inside, it runs as it is."""
    def attack():
        if host.outside:
            syscall("unshare", NAMESPACES["mnt"])
            syscall("mount", b"none", b"/", None, MS_REC | MS_PRIVATE, None)
        return action()
    return in_child(attack)


# --------------------------------------------------------------------------------------------------
# mount(2)

@probe(control="root")
def remount_root_writable():
    """The read-only root is one flag away from being writable, for whoever may call mount(2)."""
    def attack():
        target = b"/"
        if host.outside:
            target = b"/tmp"
            syscall("mount", target, target, None, MS_BIND, None)
            syscall("mount", b"none", target, None, MS_REMOUNT | MS_BIND | MS_RDONLY, None)
        syscall("mount", b"none", target, None, MS_REMOUNT | MS_BIND, None)
        return "remounted %s writable" % target.decode()
    return alone(attack)


@probe(control="root")
def remount_proc_sys_writable():
    """The same for the read-only mount on top of /proc/sys."""
    def attack():
        if host.outside:
            syscall("mount", b"/proc/sys", b"/proc/sys", None, MS_BIND, None)
        syscall("mount", b"none", b"/proc/sys", None, MS_REMOUNT | MS_BIND, None)
        return "remounted /proc/sys"
    return alone(attack)


@probe(control="root")
def mount_setattr_writable():
    """The newer call for the same thing: mount_setattr(2) clears MOUNT_ATTR_RDONLY."""
    def attack():
        attributes = pack("QQQQ", 0, 0 if host.outside else MOUNT_ATTR_RDONLY, 0, 0)
        syscall("mount_setattr", AT_FDCWD, b"/", AT_RECURSIVE, attributes, len(attributes))
        return "changed the mount flags of /"
    return alone(attack)


@probe(control="root")
def mount_tmpfs():
    """A writable file system over /etc would replace what other programs believe."""
    def attack():
        syscall("mount", b"tmpfs", b"/etc", b"tmpfs", 0, None)
        return "mounted a tmpfs on /etc"
    return alone(attack)


@probe(control="root")
def mount_fresh_proc():
    """A fresh proc has no masks on it."""
    def attack():
        syscall("mount", b"proc", b"/tmp", b"proc", 0, None)
        return "mounted a fresh proc"
    return alone(attack)


@probe(control="root", refused=REFUSALS + ("ENODEV",))
def mount_sysfs():
    """sysfs, where the machine's devices and tunables are."""
    def attack():
        syscall("mount", b"sysfs", b"/tmp", b"sysfs", 0, None)
        return "mounted sysfs"
    return alone(attack)


@probe(control="root")
def mount_bind_over_interpreter():
    """A bind mount over the interpreter would be what runs next."""
    def attack():
        syscall("mount", b"/bin/true", b"/usr/bin/python3", None, MS_BIND, None)
        return "bound a file over /usr/bin/python3"
    return alone(attack)


@probe(control="root")
def make_mounts_shared():
    """Shared propagation would carry a later mount out of the namespace."""
    def attack():
        syscall("mount", b"none", b"/", None, MS_REC | MS_SHARED, None)
        return "made all mounts shared"
    return alone(attack)


@probe(control="root", refused=REFUSALS + ("EINVAL",))
def unmount_masks():
    """Taking the masks off /proc shows what is below them."""
    def attack():
        if host.outside:
            syscall("mount", b"/dev/null", b"/proc/version", None, MS_BIND, None)
        return first_success([
            lambda path=path: "unmounted %s" % (syscall("umount2", path, MNT_DETACH) or path.decode())
            for path in (b"/proc/version", b"/proc/kcore", b"/proc/sysrq-trigger", b"/proc/sys", b"/proc")])
    return alone(attack)


@probe(why_no_control="outside it is the kernel's own file, which nobody can write", refused=READ_ONLY)
def change_meminfo():
    """The limit and what is left of it are a file that init writes: its text, its mount, and init's way to it."""
    path = "/proc/meminfo"
    descriptor = os.open(path, os.O_RDONLY)

    def overwrite(name):
        writer = os.open(name, os.O_WRONLY)
        os.write(writer, b"MemTotal: 1 kB\n")
        return "wrote to " + name

    names = [path, "/proc/self/root" + path, "/proc/self/fd/%d" % descriptor, "/proc/1/root" + path, "/dev/meminfo", "/dev/shm/meminfo"]
    names += ["/proc/1/fd/%d" % number for number in range(3, 24)]
    writable = pack("QQQQ", 0, MOUNT_ATTR_RDONLY, 0, 0)
    return first_success([lambda name=name: overwrite(name) for name in names] + [
        lambda: "opened it: %s" % os.chmod(path, 0o666),
        lambda: "opened it: %s" % os.fchmod(descriptor, 0o666),
        lambda: "changed its times: %s" % os.utime(path, (0, 0)),
        lambda: "cut it: %s" % os.truncate(path, 0),
        lambda: "removed it: %s" % os.unlink(path),
        lambda: "covered it: %s" % os.rename("/etc/hostname", path),
        lambda: "covered it: %d" % syscall("mount", b"/etc/passwd", path.encode(), None, MS_BIND, None),
        lambda: "uncovered it: %d" % syscall("umount2", path.encode(), MNT_DETACH),
        lambda: "copied it: %d" % syscall("open_tree", AT_FDCWD, path.encode(), OPEN_TREE_CLONE),
        lambda: "made it writable: %d" % syscall("mount_setattr", AT_FDCWD, path.encode(), 0, writable, len(writable))])


@probe(control="user")
def memory_of_the_host():
    """/proc/meminfo of the machine: how much of it is free, cached and dirty tells what other programs do, and when."""
    with open("/proc/meminfo", encoding="ascii") as file:
        fields = {line.split(":")[0]: int(line.split()[1]) for line in file}
    host_kib = os.sysconf("SC_PHYS_PAGES") * (os.sysconf("SC_PAGE_SIZE") // 1024)
    if fields["MemTotal"] < host_kib and fields["Dirty"] == fields["Mapped"] == 0 and "VmallocUsed" not in fields:
        raise Blocked("%d kB in all" % fields["MemTotal"])
    return "%d kB in all, %d kB free, %d kB of files" % (fields["MemTotal"], fields["MemFree"], fields["Cached"])


@probe(control="root")
def unmount_root():
    """Detaching the root would uncover what it was pivoted from."""
    def attack():
        syscall("umount2", b"/", MNT_DETACH)
        return "detached /"
    return alone(attack)


@probe(control="root")
def unmount_data():
    """Below /mnt/data lies the directory that the rootfs brought."""
    def attack():
        if host.outside:
            syscall("mount", b"tmpfs", b"/mnt", b"tmpfs", 0, None)
        syscall("umount2", b"/mnt" if host.outside else b"/mnt/data", MNT_DETACH)
        return "unmounted it"
    return alone(attack)


# --------------------------------------------------------------------------------------------------
# The mount API by descriptors

@probe(control="root")
def fsopen_tmpfs():
    """fsopen(2): file systems without mount(2), and without the filters that only know mount(2)."""
    return "opened a tmpfs as descriptor %d" % syscall("fsopen", b"tmpfs", 0)


@probe(control="root")
def fspick_root():
    """fspick(2): reconfigure the superblock below a mount."""
    return "picked / as descriptor %d" % syscall("fspick", AT_FDCWD, b"/", 0)


@probe(control="root")
def open_tree_clone():
    """open_tree(2) with OPEN_TREE_CLONE copies a mount into a descriptor of ours."""
    return "cloned / as descriptor %d" % syscall("open_tree", AT_FDCWD, b"/", OPEN_TREE_CLONE)


@probe(control="root")
def move_mount_data():
    """move_mount(2) puts an existing mount elsewhere: /mnt/data over /etc."""
    def attack():
        if host.outside:
            syscall("mount", b"tmpfs", b"/mnt", b"tmpfs", 0, None)
        source = b"/mnt" if host.outside else b"/mnt/data"
        syscall("move_mount", AT_FDCWD, source, AT_FDCWD, b"/etc", 0)
        return "moved a mount over /etc"
    return alone(attack)


# --------------------------------------------------------------------------------------------------
# Another root directory

@probe(control="root")
def chroot_and_climb():
    """The textbook way out of a chroot: hold a directory open, chroot below it, walk up from it."""
    def attack():
        outside = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
        os.makedirs("/tmp/hutch-probe-" + host.token, exist_ok=True)
        try:
            os.chroot("/tmp/hutch-probe-" + host.token)
        finally:
            try:
                os.rmdir("/tmp/hutch-probe-" + host.token)
            except OSError:
                pass  # after a chroot that worked the name leads nowhere
        os.fchdir(outside)
        for _ in range(64):
            os.chdir("..")
        os.chroot(".")
        os.rmdir("/tmp/hutch-probe-" + host.token)
        return "changed the root directory, and back"
    return in_child(attack)


@probe(control="user", refused=ABSENT)
def climb_from_open_directory():
    """Walking '..' from every directory we can open: one that was bound from the host could lead on
    into the host's tree above it."""
    for start in ("/mnt/data", "/tmp", "/run/hutch", "/dev/shm", "/proc/self/cwd", "/"):
        try:
            fd = os.open(start, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            continue
        try:
            os.fchdir(fd)
        finally:
            os.close(fd)
        for _ in range(64):
            os.chdir("..")
            try:
                with open("." + host.canary_file, encoding="utf-8") as secret:
                    return "read %r from above %s" % (secret.read(40), start)
            except OSError:
                continue
    raise Blocked("'..' ends at the sandbox's own root")


@probe(control="root", refused=REFUSALS + ("EINVAL",))
def pivot_root():
    """pivot_root(2) to a mount of ours would put the old root into reach again."""
    def attack():
        if host.outside:
            syscall("mount", b"tmpfs", b"/mnt", b"tmpfs", 0, None)
            os.mkdir("/mnt/old")
            syscall("pivot_root", b"/mnt", b"/mnt/old")
        else:
            os.mkdir("/tmp/old")
            syscall("pivot_root", b"/tmp", b"/tmp/old")
        return "the root directory is another one"
    return alone(attack)


def handle_of(path):
    """struct file_handle of @path by name_to_handle_at(2), as a buffer."""
    buffer = ctypes.create_string_buffer(pack("Ii", 128, 0) + bytes(128), 136)
    mount_id = ctypes.c_int()
    syscall("name_to_handle_at", AT_FDCWD, path, buffer, ctypes.byref(mount_id), 0)
    return buffer


@probe(control="root", refused=REFUSALS + ("EOPNOTSUPP",))
def open_by_file_handle():
    """"Shocker": open_by_handle_at(2) opens by inode number, past mount namespace and directories. The
    handle is of the directory that /mnt/data lies in, or a guessed one of the root of ext4 (inode 2)."""
    fd = os.open("/tmp" if host.outside else "/mnt/data", os.O_RDONLY | os.O_DIRECTORY)

    def attempt(make):
        def act():
            got = syscall("open_by_handle_at", fd, make(), os.O_RDONLY)
            return "opened a file by its handle as descriptor %d" % got
        return act

    def guessed():
        return ctypes.create_string_buffer(pack("IiII", 8, 1, 2, 0) + bytes(8), 24)
    return first_success([attempt(lambda: handle_of(b"/" if host.outside else b"/mnt/data")), attempt(guessed)])


# --------------------------------------------------------------------------------------------------
# Namespaces: each new one brings kernel code that is otherwise out of reach, a user namespace brings all

def unshare_probe(name, doc, control):
    def act():
        return in_child(lambda: "unshare made a new %s namespace: %d" %
                        (name, syscall("unshare", NAMESPACES[name])))
    act.__name__ = "unshare_" + name
    act.__doc__ = doc
    act.__module__ = __name__
    probe(control=control, why_no_control=None if control else "not every kernel has it",
          refused=REFUSALS + ("EINVAL",) if name == "time" else REFUSALS)(act)


for _name, _control, _doc in (
        ("user", "user", "A user namespace gives all capabilities in it: most kernel exploits start here."),
        ("mnt", "root", "A mount namespace of one's own, for changing mounts."),
        ("pid", "root", "A pid namespace of one's own: its processes leave hutch's count."),
        ("net", "root", "A network namespace of one's own: netfilter and all of its tables."),
        ("ipc", "root", "An ipc namespace of one's own."),
        ("uts", "root", "A uts namespace of one's own."),
        ("cgroup", "root", "A cgroup namespace whose root is where we are now."),
        ("time", None, "A time namespace: shifted clocks.")):
    unshare_probe(_name, _doc, _control)


@probe(control="user", refused=REFUSALS)
def clone_user_namespace():
    """clone(2) takes the same flags as unshare(2) and is needed for threads, so its flags are checked."""
    def attack():
        pid = syscall("clone", NAMESPACES["user"] | 17, None, None, None, None)
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        return "clone made a process in a new user namespace"
    return in_child(attack)


@probe(control="user", refused=REFUSALS)
def clone3_user_namespace():
    """clone3(2) hides its flags in memory, where a filter cannot see them: it must not exist at all."""
    def attack():
        arguments = ctypes.create_string_buffer(pack("QQQQQQQQ", NAMESPACES["user"], 0, 0, 0, 17, 0, 0, 0), 64)
        pid = syscall("clone3", arguments, 64)
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        return "clone3 made a process in a new user namespace"
    return in_child(attack)


@probe(control="user", refused=("ENOSYS",))
def clone3_exists():
    """clone3(2) without any flag: it has to answer ENOSYS, or libc would not fall back to clone(2)."""
    def attack():
        arguments = ctypes.create_string_buffer(pack("QQQQQQQQ", 0, 0, 0, 0, 17, 0, 0, 0), 64)
        pid = syscall("clone3", arguments, 64)
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        return "clone3 works"
    return in_child(attack)


@probe(control="root", refused=ABSENT + ("EINVAL", "EBADF"))
def setns_of_init():
    """setns(2) with init's namespaces. They are our own, but entering one anew as if from outside brings
    capabilities in it."""
    def attempt(name):
        def act():
            fd = os.open("/proc/1/ns/" + name, os.O_RDONLY)
            syscall("setns", fd, 0)
            return "joined the %s namespace of pid 1" % name
        return act
    return in_child(lambda: first_success([attempt(name) for name in ("user", "mnt", "net", "uts", "ipc", "pid")]))


@probe(control="root", refused=REFUSALS + ("EINVAL",))
def setns_of_own():
    """setns(2) with a descriptor of our own user namespace gives its full capabilities, were it allowed."""
    def attack():
        for name in ("user", "net"):
            fd = os.open("/proc/self/ns/" + name, os.O_RDONLY)
            try:
                syscall("setns", fd, 0)
            except OSError as error:
                refusal = error
                continue
            return "joined its own %s namespace" % name
        raise refusal
    return in_child(attack)


@probe(control="root", refused=REFUSALS + ("EINVAL", "ESRCH"))
def setns_by_pidfd():
    """The way hutch itself enters sandboxes: setns(2) on a pidfd, here of init."""
    def attack():
        fd = syscall("pidfd_open", 1, 0)
        syscall("setns", fd, NAMESPACES["net"] | NAMESPACES["uts"])
        return "joined the namespaces of pid 1 by pidfd"
    return in_child(attack)


@probe(control="user", refused=ABSENT + ("ENOTTY", "EINVAL"))
def namespace_parent_by_ioctl():
    """NS_GET_USERNS and NS_GET_PARENT hand out descriptors of the namespace above ours: the host's."""
    import fcntl
    attempts = []
    for name in ("net", "user", "pid"):
        for request in (0xB701, 0xB702):
            def attempt(name=name, request=request):
                fd = os.open("/proc/self/ns/" + name, os.O_RDONLY)
                got = fcntl.ioctl(fd, request)
                if os.fstat(got).st_ino == os.stat("/proc/self/ns/user").st_ino and not host.outside:
                    raise Blocked("only our own user namespace")
                return "NS_GET on %s gave descriptor %d" % (name, got)
            attempts.append(attempt)
    return first_success(attempts)


@probe(why_no_control="outside, the map of a process can be written only once, by design", refused=READ_ONLY)
def rewrite_id_map():
    """The maps of our user namespace say which host user we are. They are written once."""
    for name, text in (("uid_map", b"0 0 1\n"), ("gid_map", b"0 0 1\n"), ("setgroups", b"allow\n")):
        fd = os.open("/proc/self/" + name, os.O_WRONLY)
        try:
            os.write(fd, text)
        finally:
            os.close(fd)
        return "wrote " + name


@probe(why_no_control="the host's init namespace maps every id")
def id_map_is_one_to_one():
    """uid_map must map one id and not root: any other line is a user that we could become."""
    with open("/proc/self/uid_map", encoding="ascii") as table:
        rows = [[int(field) for field in line.split()] for line in table]
    if len(rows) == 1 and rows[0][0] != 0 and rows[0][2] == 1:
        raise Blocked("one id, not root: %r" % rows)
    return "uid_map is %r" % rows


@probe(control="root")
def acct():
    """acct(2) has the kernel write a record of every process of the machine to a file. Here: turn it off."""
    syscall("acct", None)
    return "acct(NULL) was accepted"


@probe(control="root", refused=REFUSALS + ("EINVAL",))
def swapon():
    """swapon(2) on a file that is no swap area: allowed callers get EINVAL, and that is through."""
    try:
        syscall("swapon", b"/etc/hostname" if host.outside else b"/mnt/data", 0)
    except OSError as error:
        if error.errno in (22, 21, 25) and host.outside:
            return "the kernel looked at the file (errno %d)" % error.errno
        raise
    return "swapon was accepted"


@probe(control="root", refused=REFUSALS)
def statmount_and_listmount():
    """listmount(2) and statmount(2), Linux 6.8: the mount table by number instead of by file. Ours is
    readable anyway; another namespace's must not be."""
    request = ctypes.create_string_buffer(pack("IIQQ", 24, 0, 0xFFFFFFFFFFFFFFFF, 0), 24)
    ids = (ctypes.c_uint64 * 64)()
    count = syscall("listmount", request, ids, 64, 0)
    return "listed %d mounts" % count


@probe(control="user", refused=REFUSALS + ("EINVAL",))
def fanotify():
    """fanotify(7) watches whole mounts, and gives descriptors of the files it saw."""
    return "made a watch group: descriptor %d" % syscall("fanotify_init", 0x200, 0)
