"""Leaving, changing or making control groups: whoever moves his process to another group has no limits."""
import os

from kit import ABSENT, READ_ONLY, Blocked, first_success, host, in_child, probe, syscall

CLONE_NEWCGROUP, CLONE_NEWNS, CLONE_INTO_CGROUP = 0x02000000, 0x00020000, 0x200000000


def mounted():
    """The cgroup file systems that one can see."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as table:
        return [line.split()[4] for line in table if " - cgroup" in line]


@probe(control="user")
def cgroup_file_system():
    """No mounted cgroup tree, nothing to write to."""
    if not mounted():
        raise Blocked("none is mounted")
    return "mounted: " + ", ".join(mounted())


@probe(control="root", refused=READ_ONLY)
def move_to_root_group():
    """Write oneself into cgroup.procs of the topmost group."""
    def attack():
        places = mounted() or ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
        return first_success([
            lambda place=place: os.close(os.open(place + "/cgroup.procs", os.O_WRONLY)) or "opened %s/cgroup.procs" % place
            for place in places])
    return in_child(attack)


@probe(control="root", refused=READ_ONLY)
def raise_memory_limit():
    """memory.max, pids.max, cpu.max of the own group and of those above."""
    places = mounted() or ["/sys/fs/cgroup"]
    files = ("memory.max", "pids.max", "cpu.max", "memory.limit_in_bytes", "cgroup.subtree_control", "cgroup.procs")
    return first_success([
        lambda path=place + "/" + name: os.close(os.open(path, os.O_WRONLY)) or "opened " + path
        for place in places for name in files])


@probe(control="root")
def mount_cgroup2():
    """A cgroup2 file system of one's own, in which the namespace's root group is writable."""
    def attack():
        if host.outside:
            syscall("unshare", CLONE_NEWNS)
            syscall("mount", b"none", b"/", None, 16384 | 1 << 18, None)
        syscall("mount", b"cgroup2", b"/tmp", b"cgroup2", 0, None)
        return "mounted cgroup2"
    return in_child(attack)


@probe(why_no_control="it would need a v1 hierarchy that nobody uses", refused=ABSENT + ("EINVAL", "EBUSY", "ENODEV"))
def cgroup_v1_release_agent():
    """release_agent of cgroup v1 (CVE-2022-0492): a program that the host runs as root when a group gets
    empty. Mounting any v1 hierarchy is the first step, in a user namespace of one's own if need be."""
    def attempt(options):
        def act():
            syscall("mount", b"cgroup", b"/tmp", b"cgroup", 0, options)
            return "mounted a v1 hierarchy"
        return act

    def in_own_namespace():
        syscall("unshare", 0x10000000 | CLONE_NEWNS | CLONE_NEWCGROUP)
        return attempt(b"rdma")()
    return in_child(lambda: first_success([attempt(b"rdma"), attempt(b"memory"), attempt(b"none,name=hutch-probe"),
                                           in_own_namespace]))


@probe(control="root")
def cgroup_namespace_of_own():
    """A fresh cgroup namespace, whose root is wherever one is: with a mount, delegation by accident."""
    def attack():
        syscall("unshare", CLONE_NEWCGROUP)
        return "made a cgroup namespace"
    return in_child(attack)


@probe(why_no_control="clone3 with any flag is checked among the namespaces", refused=("ENOSYS",))
def clone_into_cgroup():
    """CLONE_INTO_CGROUP: a child born in another group. It takes a descriptor of the group and clone3(2)."""
    import ctypes
    from kit import pack
    fd = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
    arguments = ctypes.create_string_buffer(pack("QQQQQQQQQQQ", CLONE_INTO_CGROUP, 0, 0, 0, 17, 0, 0, 0, 0, 0, fd), 88)
    pid = syscall("clone3", arguments, 88)
    if pid == 0:
        os._exit(0)
    return "clone3 took CLONE_INTO_CGROUP"


@probe(why_no_control="which group the suite runs in is the machine's business")
def foreign_cgroup_in_proc():
    """/proc/self/cgroup with "/.." in it shows that the namespace's root is not our group: an escape took
    place, or was forgotten."""
    with open("/proc/self/cgroup", encoding="ascii", errors="replace") as file:
        for line in file:
            if "/.." in line:
                return "group " + line.strip()
    raise Blocked("every group is at or below our root")
