"""Reaching the host's files: by name, through /proc, through devices, and by writing where only the
operator should write."""
import glob
import os
import stat

from kit import ABSENT, READ_ONLY, Blocked, host, first_success, in_child, probe, syscall


def read_text(path, size=4096):
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return os.read(fd, size)
    finally:
        os.close(fd)


def append(path, data=b"hutch-probe"):
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)


def create(directory):
    path = os.path.join(directory, "hutch-probe-" + host.token)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    os.close(fd)
    return path


# --------------------------------------------------------------------------------------------------
# By name

@probe(control="user", refused=ABSENT)
def read_host_file():
    """A file that everybody on the host may read: only the mount namespace stands before it."""
    text = read_text(host.canary_file)
    return "read %r of %s" % (text[:40], host.canary_file)


@probe(control="user", refused=READ_ONLY)
def overwrite_host_file():
    """A file that everybody on the host may write."""
    append(host.canary_scratch)
    return "wrote to " + host.canary_scratch


@probe(control="user", refused=READ_ONLY)
def delete_host_file():
    """unlink needs only the directory to be writable, and the canary's directory is."""
    path = create(host.canary_dir)
    os.unlink(path)
    return "made and unlinked " + path


@probe(control="user", refused=ABSENT)
def list_callers_home():
    """The home directory of whoever called hutch: keys, tokens, histories."""
    if host.home_canary in os.listdir(host.home):
        return "listed " + host.home
    raise Blocked("it is the rootfs's own " + host.home)


@probe(control="root", refused=ABSENT)
def read_shadow():
    """The classic: password hashes, of the host or of the image."""
    return "read %d bytes of /etc/shadow" % len(read_text("/etc/shadow"))


@probe(control="user", refused=ABSENT)
def dot_dot_above_root():
    """A chroot can be left by '..' from a directory outside; the root of a mount namespace cannot."""
    path = "/" + "../" * 40 + host.canary_file.lstrip("/")
    return "read %r" % read_text(path)[:40]


@probe(control="user", refused=ABSENT)
def symlink_to_host_file():
    """A link is resolved with the sandbox's own root, so it points nowhere."""
    link = "/tmp/hutch-probe-link-" + host.token
    os.symlink(host.canary_file, link)
    try:
        return "read %r" % read_text(link)[:40]
    finally:
        os.unlink(link)


@probe(control="user", refused=ABSENT)
def host_shared_memory_file():
    """/dev/shm of the host: shared by all processes of the machine that can see it."""
    return "read %r" % read_text("/dev/shm/" + host.posix_shm)[:40]


@probe(control="user", refused=ABSENT)
def connect_host_unix_socket():
    """Control sockets such as docker.sock are files; the victim listens on one."""
    import socket
    client = socket.socket(socket.AF_UNIX)
    client.connect(host.unix_path)
    return "connected to " + host.unix_path


@probe(why_no_control="hosts differ in which of them run", refused=ABSENT)
def control_sockets_of_daemons():
    """Sockets of the daemons that would hand out the host to anyone who asks."""
    import socket

    def attempt(path):
        def connect():
            socket.socket(socket.AF_UNIX).connect(path)
            return "connected to " + path
        return connect
    return first_success([attempt(path) for path in (
        "/run/docker.sock", "/var/run/docker.sock", "/run/containerd/containerd.sock", "/run/dbus/system_bus_socket",
        "/run/systemd/private", "/run/systemd/journal/dev-log", "/dev/log", "/run/snapd.socket",
        "/run/user/%d/bus" % os.getuid(), "/run/podman/podman.sock", "/run/crio/crio.sock")])


# --------------------------------------------------------------------------------------------------
# Writing where only the operator writes

@probe(control="root", refused=READ_ONLY)
def write_into_root():
    """The root directory itself."""
    return "created " + in_child(lambda: _create_and_remove("/"))


def _create_and_remove(directory):
    path = create(directory)
    os.unlink(path)
    return path


@probe(control="root", refused=READ_ONLY)
def write_into_usr_bin():
    """A program planted here would be run by the next user of the same rootfs."""
    return "created " + _create_and_remove("/usr/bin")


@probe(control="root", refused=READ_ONLY)
def write_into_site_packages():
    """A module planted here is code in everybody's next run: the rootfs is shared by all sandboxes."""
    import sysconfig
    return "created " + _create_and_remove(sysconfig.get_paths()["stdlib"])


@probe(control="root", refused=READ_ONLY)
def change_etc_passwd():
    """Append to the list of users (outside, only opening is tried)."""
    fd = os.open("/etc/passwd", os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    os.close(fd)
    return "opened /etc/passwd for writing"


@probe(control="root", refused=READ_ONLY)
def chmod_in_rootfs():
    """Metadata is a write, too: an owner may chmod without opening anything."""
    mode = stat.S_IMODE(os.stat("/usr/bin/python3").st_mode)
    os.chmod("/usr/bin/python3", mode)
    return "chmod of /usr/bin/python3"


@probe(control="user", refused=READ_ONLY)
def touch_in_rootfs():
    """Time stamps and extended attributes of a file that one owns (in the sandbox: of the rootfs)."""
    path = host.canary_scratch if host.outside else "/usr/bin/python3"
    os.utime(path)
    return "changed the times of " + path


@probe(why_no_control="/run/hutch exists inside only", refused=READ_ONLY)
def write_into_run_hutch():
    """hutch's own files in the sandbox (the script, the hook): data, not a channel back. A worker's script lies on a
    file system of its own; all around it is as read-only as ever."""
    def attempts():
        for top, directories, files in os.walk("/run/hutch"):
            if host.warm and top == "/run/hutch/code":
                continue
            for name in files:
                yield lambda path=os.path.join(top, name): append(path) or "wrote to " + path
            yield lambda path=top: _create_and_remove(path)
        yield lambda: os.rename("/run/hutch", "/run/hutch2") or "renamed /run/hutch"
    return first_success(attempts())


@probe(control="root", refused=READ_ONLY)
def bind_over_with_rename():
    """rename(2) swaps a directory of the rootfs for one of ours without writing into it."""
    source = "/var/hutch-probe-" + host.token
    if not host.outside:
        os.rename("/etc", "/etc2")
        return "renamed /etc"
    os.mkdir(source)
    os.rmdir(source)
    return "made a directory below /var"


@probe(control="root", refused=READ_ONLY)
def write_through_proc_self_root():
    """/proc/self/root is a magic link: it may lead to a mount that is not read-only."""
    fd = os.open("/proc/self/root/etc/hostname", os.O_WRONLY | os.O_CLOEXEC)
    os.close(fd)
    return "opened /proc/self/root/etc/hostname for writing"


@probe(control="user", refused=READ_ONLY + ("ETXTBSY",))
def write_through_proc_self_exe():
    """CVE-2019-5736: /proc/PID/exe leads to the binary that started the container, wherever it is. Here
    it must not be writable; outside, a copy that one owns stands for it."""
    if host.outside:
        append(host.canary_scratch)
        return "wrote to a program's file"
    return first_success([lambda path=path: append(path) or "opened %s for writing" % path
                          for path in ("/proc/self/exe", "/proc/1/exe", "/proc/%d/exe" % os.getppid())])


# --------------------------------------------------------------------------------------------------
# /proc

@probe(control="user", refused=ABSENT + ("ESRCH",))
def see_host_process():
    """The victim's entry in /proc: its arguments, environment and memory."""
    return "read %r" % read_text("/proc/%d/cmdline" % host.canary_pid)[:60]


@probe(control="user")
def count_processes():
    """Every number in /proc: only init and this program may be there, and beside a worker its memory holder."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    if len(pids) <= 2 + (os.getppid() > 1) + (not host.outside and host.warm):
        raise Blocked("%d processes to be seen" % len(pids))
    return "saw %d processes" % len(pids)


def proc_one(entry):
    """A file of init, which is trusted, holds hutch's descriptors, and was once outside. In the control run
    the suite's own process stands for it: the same user, in the same namespace."""
    return "/proc/%d/%s" % (os.getppid() if host.outside else 1, entry)


@probe(control="user", refused=ABSENT)
def init_environ():
    """Environment of init: what hutch was started with."""
    text = read_text(proc_one("environ"))
    if not text:
        raise Blocked("empty")
    return "read %r" % text[:60]


@probe(control="user", refused=ABSENT)
def init_root():
    """/proc/1/root: the root directory of init, which was moved from the host's."""
    return "listed " + ", ".join(os.listdir(proc_one("root/"))[:5])


@probe(control="user", refused=ABSENT)
def init_cwd():
    """/proc/1/cwd: if init forgot to leave it, it is a directory of the host."""
    return "listed " + ", ".join(os.listdir(proc_one("cwd/"))[:5]) + " through cwd"


@probe(control="user", refused=ABSENT + ("ESRCH",))
def init_descriptors():
    """/proc/1/fd: opening an entry reopens what init holds, such as the host's mount tree."""
    names = os.listdir(proc_one("fd"))
    return "listed %d descriptors of init" % len(names)


@probe(control="user", refused=ABSENT)
def init_memory():
    """/proc/1/mem for writing is code execution in the one process here that has privileges."""
    fd = os.open(proc_one("mem"), os.O_RDWR | os.O_CLOEXEC)
    os.close(fd)
    return "opened the memory of init"


@probe(control="user", refused=ABSENT)
def init_maps():
    """/proc/1/maps: addresses inside init, and the path of hutch on the host."""
    text = read_text(proc_one("maps"))
    if not text:
        raise Blocked("empty")
    return "read the layout of init"


@probe(control="user", refused=ABSENT + ("EINVAL",))
def init_namespace_links():
    """/proc/1/ns/*: descriptors that setns(2) takes."""
    return "opened %s" % first_success([
        lambda name=name: os.close(os.open(proc_one("ns/" + name), os.O_RDONLY)) or name
        for name in ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup")])


@probe(control="root", refused=READ_ONLY + ("EINVAL",))
def proc_sys_hostname():
    """/proc/sys is the kernel's own configuration. The host's name, written back as it is."""
    name = read_text("/proc/sys/kernel/hostname")
    append("/proc/sys/kernel/hostname", name)
    return "wrote kernel.hostname"


@probe(control="root", refused=READ_ONLY + ("EINVAL",))
def proc_sys_core_pattern():
    """core_pattern names a program that the host's kernel runs as root: a well-known way out."""
    fd = os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY | os.O_CLOEXEC)
    os.close(fd)
    return "opened kernel.core_pattern for writing"


@probe(control="root", refused=READ_ONLY + ("EINVAL",))
def proc_sys_modprobe():
    """modprobe_path, likewise: the kernel runs it as root for an unknown binary format."""
    return "opened %s" % first_success([
        lambda name=name: os.close(os.open("/proc/sys/kernel/" + name, os.O_WRONLY)) or name
        for name in ("modprobe", "hotplug", "poweroff_cmd")])


@probe(control="root", refused=READ_ONLY + ("EINVAL",))
def proc_sys_any():
    """Every file below /proc/sys that opens for writing, whichever it is."""
    for top, _, files in os.walk("/proc/sys"):
        for name in files:
            path = os.path.join(top, name)
            try:
                os.close(os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NONBLOCK))
            except OSError:
                continue
            return "opened %s for writing" % path
    raise Blocked("no file below /proc/sys opens for writing")


@probe(control="root", refused=READ_ONLY)
def sysrq_trigger():
    """/proc/sysrq-trigger: crash, reboot, kill all. Opened, never written."""
    os.close(os.open("/proc/sysrq-trigger", os.O_WRONLY | os.O_CLOEXEC))
    return "opened /proc/sysrq-trigger for writing"


@probe(control="root", refused=ABSENT + ("EIO",))
def kernel_memory():
    """/proc/kcore, /dev/mem, /dev/kmem, /dev/port: the memory of the machine."""
    def attempt(path):
        def read():
            if not read_text(path):
                raise Blocked("masked: %s is empty" % path)
            return "read " + path
        return read
    return first_success([attempt(path) for path in ("/dev/kmem", "/dev/port", "/dev/mem", "/proc/kcore")])


@probe(control="root", refused=ABSENT)
def kernel_log():
    """The kernel's messages: addresses, and what all others on the machine do."""
    return first_success([lambda path=path: "read %d bytes of %s" % (len(_read_or_blocked(path)), path)
                          for path in ("/dev/kmsg",)])


def _read_or_blocked(path):
    text = read_text(path, 65536)
    if not text.strip():
        raise Blocked("masked: %s is empty" % path)
    return text


@probe(why_no_control="which of them exist depends on the kernel", refused=ABSENT)
def masked_proc_files():
    """Files of /proc that tell about the whole machine, as container runtimes mask them."""
    return first_success([lambda path=path: "read %d bytes of %s" % (len(_read_or_blocked(path)), path)
                          for path in ("/proc/kmsg", "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug",
                                       "/proc/latency_stats", "/proc/keys", "/proc/key-users",
                                       "/proc/slabinfo", "/proc/vmallocinfo", "/proc/iomem_raw",
                                       "/proc/pagetypeinfo")])


@probe(control="root", refused=ABSENT)
def kernel_addresses():
    """Addresses in /proc/kallsyms that are not zero defeat the kernel's address randomisation."""
    for line in read_text("/proc/kallsyms").splitlines()[1:]:
        if int(line.split()[0], 16) != 0:
            return "saw %r" % line
    raise Blocked("all addresses are zero")


@probe(why_no_control="changes no file outside", refused=READ_ONLY + ("EINVAL",))
def writable_proc_elsewhere():
    """/proc/irq, /proc/bus, /proc/fs, /proc/acpi, /proc/scsi, /proc/mtrr: hardware, by text files."""
    for directory in ("irq", "bus", "fs", "acpi", "scsi", "driver", "tty", "mtrr", "dynamic_debug"):
        for top, _, files in os.walk("/proc/" + directory):
            for name in files:
                path = os.path.join(top, name)
                try:
                    os.close(os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NONBLOCK))
                except OSError:
                    continue
                return "opened %s for writing" % path
    raise Blocked("nothing there opens for writing")


@probe(control="user", refused=READ_ONLY)
def oom_score_of_others():
    """oom_score_adj of init below zero would have the kernel kill somebody else's process instead."""
    pid = host.canary_pid if host.outside else 1
    if host.outside:
        os.stat("/proc/%d/oom_score_adj" % pid)
        return "reached oom_score_adj of the victim"
    append("/proc/1/oom_score_adj", b"-1000")
    return "wrote oom_score_adj of init"


@probe(control="root", refused=READ_ONLY)
def own_oom_score_below_zero():
    """A process that the kernel would spare when memory runs out, at the cost of the host's."""
    before = read_text("/proc/self/oom_score_adj")
    append("/proc/self/oom_score_adj", b"-900")
    append("/proc/self/oom_score_adj", before)
    return "set its own oom_score_adj to -900"


# --------------------------------------------------------------------------------------------------
# Devices and /sys

@probe(control="root", refused=ABSENT + ("ENXIO", "ENODEV"))
def disks():
    """The host's disks as block devices: all files of the machine, past every permission."""
    found = [path for pattern in ("/dev/sd?", "/dev/vd?", "/dev/nvme?n?", "/dev/loop?", "/dev/dm-?", "/dev/xvd?")
             for path in glob.glob(pattern)]
    if not found:
        raise Blocked("no block device in /dev")
    os.close(os.open(found[0], os.O_RDONLY))
    return "opened " + found[0]


@probe(control="user")
def devices_beyond_the_list():
    """Everything in /dev that is a device and not null, zero, full, random, urandom, nor the maker of pseudo-terminals."""
    allowed = {"null", "zero", "full", "random", "urandom", "ptmx"}
    for top, directories, files in os.walk("/dev"):
        for name in files:
            mode = os.lstat(os.path.join(top, name)).st_mode
            if (stat.S_ISCHR(mode) or stat.S_ISBLK(mode)) and name not in allowed:
                return "found " + os.path.join(top, name)
    raise Blocked("only the harmless devices")


@probe(why_no_control="hosts differ in which of them exist", refused=ABSENT + ("ENXIO", "ENODEV"))
def dangerous_devices():
    """kvm, fuse, tun, vhost, userfaultfd, loop control: each is a large interface of the kernel."""
    return first_success([
        lambda path=path: os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)) or "opened " + path
        for path in ("/dev/kvm", "/dev/fuse", "/dev/net/tun", "/dev/vhost-net", "/dev/vhost-vsock", "/dev/vsock",
                     "/dev/userfaultfd", "/dev/loop-control", "/dev/btrfs-control", "/dev/uinput", "/dev/tty",
                     "/dev/console", "/dev/autofs", "/dev/snapshot", "/dev/vfio/vfio",
                     "/dev/cpu/0/msr")])


@probe(control="user", refused=ABSENT)
def sysfs():
    """/sys: the hardware, the kernel's tunables, the cgroup tree. It is not mounted: files say which processors there
    are, and how many of them a sandbox may use."""
    names = [os.path.join(at, name) for at, _, names in os.walk("/sys") for name in names]
    if set(names) <= {"/sys/devices/system/cpu/" + name for name in ("online", "possible", "present")}:
        raise Blocked("/sys has the numbers of processors and nothing else")
    return "listed /sys: " + ", ".join(names[:4])


@probe(control="user")
def mount_table_names_host_paths():
    """mountinfo shows what is mounted where: a host path in the source column would tell where to aim."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as table:
        lines = table.readlines()
    mounted = {line.split()[4] for line in lines}
    strange = [point for point in sorted(mounted)
               if not point.startswith(("/proc", "/dev", "/tmp", "/run", "/sys", "/mnt/data")) and point not in
               ("/", "/usr", "/bin", "/lib", "/lib32", "/lib64", "/libx32", "/sbin", "/opt")
               and not point.startswith("/etc")]
    if not strange:
        raise Blocked("only the sandbox's own mounts")
    return "saw " + ", ".join(strange[:3])


@probe(why_no_control="outside, the control is the mount table above")
def writable_mounts():
    """Writable mounts other than the four that are meant to be: /mnt/data, /tmp, /dev/shm, /proc
    (whose dangerous files have read-only mounts of their own). A worker writes its script itself."""
    meant = ["/mnt/data", "/tmp", "/dev/shm", "/proc"] + ["/run/hutch/code"] * host.warm
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as table:
        for line in table:
            fields = line.split()
            superblock = fields[fields.index("-") + 3]
            if "ro" in fields[5].split(",") or "ro" in superblock.split(","):
                continue
            if fields[4] not in meant and not fields[4].startswith("/dev/"):
                return "writable mount: " + fields[4]
    raise Blocked("no other mount is writable")


@probe(why_no_control="outside, mounts without nosuid are normal")
def mounts_with_suid_or_devices():
    """Every mount has to be nosuid and nodev, /dev's own five devices and masks made of /dev/null aside."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as table:
        for line in table:
            fields = line.split()
            options = fields[5].split(",")
            is_null = os.path.exists(fields[4]) and os.stat(fields[4]).st_rdev == os.makedev(1, 3)  # a mask
            if "nosuid" not in options or ("nodev" not in options and not fields[4].startswith("/dev/") and not is_null):
                return "%s is mounted %s" % (fields[4], fields[5])
    raise Blocked("all mounts are nosuid and nodev")


@probe(control="user", refused=ABSENT + ("EXDEV",))
def open_tree_clone_host():
    """open_tree(2) with OPEN_TREE_CLONE copies a mount; of /proc/1/root it would be init's view."""
    if host.outside:
        return "opened %s" % os.close(os.open("/", os.O_PATH))
    fd = syscall("open_tree", -100, b"/proc/1/root", 1)
    return "cloned the tree of init as descriptor %d" % fd
