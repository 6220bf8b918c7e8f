"""Becoming somebody else: user ids, capabilities, setuid programs, device nodes."""
import ctypes
import glob
import os
import stat

from kit import ABSENT, READ_ONLY, REFUSALS, Blocked, first_success, host, in_child, pack, probe, syscall

PR_SET_PTRACER, PR_CAPBSET_READ, PR_CAP_AMBIENT, PR_SET_SECUREBITS, PR_SET_MM = 0x59616D61, 23, 47, 28, 35
INVALID = REFUSALS + ("EINVAL",)


def data_directory():
    return host.scratch if host.outside else "/mnt/data"


def prctl(*args):
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.prctl(*[ctypes.c_ulong(arg) for arg in args])
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def status_field(name):
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        for line in status:
            if line.startswith(name + ":"):
                return line.split(":", 1)[1].strip()
    raise Blocked("no field " + name)


# --------------------------------------------------------------------------------------------------
# User and group

@probe(why_no_control="whoever runs the suite may be root")
def is_not_root():
    """The user inside: not 0, in none of the four ids, and in no group of the caller's."""
    uids, gids = status_field("Uid").split(), status_field("Gid").split()
    ids = uids + gids
    groups = [group for group in os.getgroups() if group not in (os.getgid(), 65534)]
    if "0" not in ids and len(set(uids)) == 1 and not groups:
        raise Blocked("ids %r" % (ids,))
    return "ids %r, groups %r" % (ids, groups)


@probe(control="root", refused=INVALID)
def setuid_root():
    """setuid(0)."""
    def attack():
        os.setuid(0)
        return "is uid 0"
    return in_child(attack)


@probe(control="root", refused=INVALID)
def setresuid_other():
    """setresuid(2) to the ids that other people have."""
    def attempt(uid):
        def act():
            os.setresuid(uid, uid, uid)
            return "is uid %d" % uid
        return act
    return in_child(lambda: first_success([attempt(uid) for uid in (0, 1, 33, 65534 if os.getuid() != 65534 else 1,
                                                                    1001, 100000)]))


@probe(control="root", refused=INVALID)
def setgid_root():
    """setgid(0), and the group that owns the disks."""
    def attack():
        for gid in (0, 6, 42):
            try:
                os.setresgid(gid, gid, gid)
            except OSError as error:
                last = error
                continue
            return "is gid %d" % gid
        raise last
    return in_child(attack)


@probe(control="root", refused=INVALID)
def setgroups():
    """Dropping a supplementary group can grant access, where a file denies it to a group."""
    def attack():
        os.setgroups([0, 4, 6])
        return "is in groups %r" % os.getgroups()
    return in_child(attack)


@probe(control="root", refused=INVALID)
def setfsuid_root():
    """setfsuid(2): the id for file access alone. It reports no error, so the effect is read back."""
    def attack():
        libc = ctypes.CDLL(None)
        libc.setfsuid(0)
        now = libc.setfsuid(-1)
        if now != 0:
            raise Blocked("file system uid is still %d" % now)
        return "file system uid is 0"
    return in_child(attack)


@probe(control="root", refused=INVALID)
def chown_to_root():
    """A file of root's in the caller's data directory would be trusted, and hard to remove."""
    path = data_directory() + "/chowned"
    open(path, "w", encoding="ascii").close()
    try:
        os.chown(path, 0, 0)
        if host.outside:
            return "chowned"
        return "owner is now %d" % os.stat(path).st_uid
    finally:
        os.unlink(path)


# --------------------------------------------------------------------------------------------------
# Capabilities

@probe(control="root")
def has_capabilities():
    """All five sets have to be empty, the bounding set included: it is what a setuid program could gain."""
    sets = {name: int(status_field(name), 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}
    if not any(sets.values()):
        raise Blocked("all five sets are empty")
    return "capabilities: %r" % sets


@probe(control="root")
def capset_all():
    """capset(2): ask for all of them."""
    def attack():
        header = pack("Ii", 0x20080522, 0)
        if host.outside:
            syscall("capset", header, pack("IIIIII", 0, 0, 0, 0, 0, 0))
            return "capset works"
        syscall("capset", header, pack("IIIIII", 0xFFFFFFFF, 0xFFFFFFFF, 0, 0xFFFFFFFF, 0xFFFFFFFF, 0))
        return "has capabilities %s" % status_field("CapEff")
    return in_child(attack)


@probe(control="root", refused=INVALID)
def raise_ambient_capability():
    """An ambient capability would survive execve(2) of an ordinary program."""
    def attack():
        if host.outside:
            header = pack("Ii", 0x20080522, 0)
            syscall("capset", header, pack("IIIIII", 1, 1, 1, 0, 0, 0))
        prctl(PR_CAP_AMBIENT, 2, 0, 0, 0)
        return "raised CAP_CHOWN"
    return in_child(attack)


@probe(control="root", refused=INVALID)
def set_securebits():
    """Secure bits decide whether becoming uid 0 gives capabilities."""
    def attack():
        prctl(PR_SET_SECUREBITS, 1, 0, 0, 0)
        return "set its secure bits"
    return in_child(attack)


@probe(control="root", refused=INVALID + ("ENOTSUP",))
def file_capabilities():
    """security.capability on a file of ours: a program that starts with capabilities."""
    path = data_directory() + "/program"
    open(path, "w", encoding="ascii").close()
    try:
        value = pack("IIIII", 0x02000001, 1 << 21, 0, 0, 0)
        os.setxattr(path, "security.capability", value)
        return "set file capabilities"
    finally:
        os.unlink(path)


@probe(control="user")
def no_new_privs_is_missing():
    """no_new_privs makes every setuid program an ordinary one, for good."""
    if status_field("NoNewPrivs") == "1":
        raise Blocked("no_new_privs is set")
    return "no_new_privs is not set"


@probe(control="root", refused=INVALID)
def move_own_memory_map():
    """PR_SET_MM moves what /proc/PID/exe and cmdline show: a disguise."""
    def attack():
        with open("/proc/self/maps", encoding="ascii") as maps:
            own = [line for line in maps if "[heap]" in line or " rw-p " in line]  # a frozen zygote's heap has no name
        start = int(own[0].split("-")[0], 16)
        prctl(PR_SET_MM, 8, start, 0, 0)  # PR_SET_MM_ARG_START
        return "moved its arguments"
    return in_child(attack)


# --------------------------------------------------------------------------------------------------
# Setuid files and programs

def setuid_attempt(make):
    """Makes a file in the data directory with make(path) and says whether a set-id bit stuck."""
    path = data_directory() + "/setid-" + make.__name__
    try:
        make(path)
        mode = os.stat(path).st_mode
    finally:
        if host.outside and os.path.lexists(path):
            (os.rmdir if os.path.isdir(path) else os.unlink)(path)
    if mode & (stat.S_ISUID | stat.S_ISGID):
        return "%s has mode %o" % (path, mode)
    raise Blocked("mode is %o" % mode)


def setuid_probe(name, doc, make, control="user"):
    make.__name__ = name

    def act():
        return setuid_attempt(make)
    act.__name__ = "setuid_by_" + name
    act.__doc__ = doc
    act.__module__ = __name__
    probe(control=control, why_no_control=None if control else "needs a newer kernel", refused=INVALID,
          leaves=("setid-" + name,))(act)


def touch(path):
    open(path, "w", encoding="ascii").close()


def by_chmod(path):
    touch(path)
    os.chmod(path, 0o4755)


def by_fchmod(path):
    with open(path, "w", encoding="ascii") as file:
        os.fchmod(file.fileno(), 0o4755)


def by_fchmodat(path):
    touch(path)
    syscall("fchmodat", -100, path.encode(), 0o2755)


def by_fchmodat2(path):
    touch(path)
    syscall("fchmodat2", -100, path.encode(), 0o4755, 0)


def by_open(path):
    os.umask(0)
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o4755))


def by_creat(path):
    os.umask(0)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.creat(path.encode(), 0o6755) < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def by_openat2(path):
    os.umask(0)
    how = pack("QQQ", os.O_CREAT | os.O_WRONLY, 0o4755, 0)
    os.close(syscall("openat2", -100, path.encode(), how, len(how)))


def by_mknod(path):
    os.umask(0)
    os.mknod(path, stat.S_IFREG | 0o4755)


def by_mkdir(path):
    os.umask(0)
    os.mkdir(path, 0o2755)
    os.chmod(path, 0o2755)


def by_copied_mode(path):
    """As tar and shutil do it: the mode comes last, by chmod with all bits."""
    touch(path)
    os.chmod(path, 0o7777)


for _name, _make, _control, _doc in (
        ("chmod", by_chmod, "user", "chmod(2): a setuid program of the caller's, in a directory that he will look into."),
        ("fchmod", by_fchmod, "user", "fchmod(2): by descriptor."),
        ("fchmodat", by_fchmodat, "user", "fchmodat(2): what chmod(2) is on new architectures; the group bit."),
        ("fchmodat2", by_fchmodat2, None, "fchmodat2(2), Linux 6.6: easily missing in an older filter."),
        ("open", by_open, "user", "open(2) with O_CREAT takes a mode, too."),
        ("creat", by_creat, "user", "creat(2), its grandfather."),
        ("openat2", by_openat2, "user", "openat2(2) holds its mode in memory, where a filter cannot look."),
        ("mknod", by_mknod, "user", "mknod(2) makes regular files as well."),
        ("mkdir", by_mkdir, "user", "A setgid directory passes its group on to what others put there."),
        ("copied_mode", by_copied_mode, "user", "Setuid, setgid and sticky at once.")):
    setuid_probe(_name, _doc, _make, _control)


@probe(control="root", refused=ABSENT)
def run_setuid_program():
    """su, mount and the like, if the rootfs brought them with their bit: they must not become root."""
    programs = [path for pattern in ("/usr/bin/*", "/usr/sbin/*", "/usr/lib/*/*", "/bin/*") for path in glob.glob(pattern)
                if os.path.isfile(path) and os.stat(path).st_mode & (stat.S_ISUID | stat.S_ISGID)]
    if host.outside:
        return "found %d set-id programs" % len(programs)
    if not programs:
        raise Blocked("no program here has a set-id bit")
    if status_field("NoNewPrivs") == "1":
        raise Blocked("%d set-id programs, and no_new_privs" % len(programs))
    return "may run " + programs[0]


# --------------------------------------------------------------------------------------------------
# Device nodes

def node_probe(name, directory, kind, device, doc, control="root"):
    def act():
        path = os.path.join(host.scratch if host.outside else directory, "node-" + name)
        os.mknod(path, kind | 0o666, device)
        try:
            return "made " + path
        finally:
            os.unlink(path)
    act.__name__ = "mknod_" + name
    act.__doc__ = doc
    act.__module__ = __name__
    probe(control=control, refused=READ_ONLY)(act)


node_probe("memory", "/mnt/data", stat.S_IFCHR, os.makedev(1, 1), "A device node for the machine's memory.")
node_probe("disk", "/mnt/data", stat.S_IFBLK, os.makedev(254, 0), "A device node for the first disk.")
node_probe("in_tmp", "/tmp", stat.S_IFCHR, os.makedev(1, 1), "In /tmp, which is a file system of our own namespace.")
node_probe("in_shm", "/dev/shm", stat.S_IFBLK, os.makedev(8, 0), "In /dev/shm, likewise.")
node_probe("kmsg", "/tmp", stat.S_IFCHR, os.makedev(1, 11), "The kernel's log device.")
