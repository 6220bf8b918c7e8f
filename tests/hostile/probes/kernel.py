"""Parts of the kernel that a script does not need and exploits do: every one of these calls has to be
refused before its own code runs. Arguments are such that a call that is let through does nothing."""
import ctypes
import fcntl
import mmap
import os
import platform
import signal
import socket
import sys

from kit import ABSENT, REFUSALS, Blocked, first_success, host, in_child, pack, probe, syscall


@probe(control="user")
def bpf_map():
    """bpf(2): programs in the kernel. BPF_MAP_CREATE of one small array."""
    attributes = pack("IIIII", 2, 4, 4, 1, 0) + bytes(100)
    try:
        fd = syscall("bpf", 0, attributes, len(attributes))
    except OSError as error:
        if host.outside and error.errno == 1:
            return "bpf answers, although it wants CAP_BPF here"
        raise
    return "made a map: descriptor %d" % fd


@probe(control="root")
def bpf_program():
    """BPF_PROG_LOAD of the smallest socket filter: the verifier has been wrong more than once."""
    instructions = ctypes.create_string_buffer(pack("BBhi", 0xB7, 0, 0, 0) + pack("BBhi", 0x95, 0, 0, 0), 16)
    licence = ctypes.create_string_buffer(b"GPL")
    attributes = pack("IIQQIIQII", 1, 2, ctypes.addressof(instructions), ctypes.addressof(licence), 0, 0, 0, 0, 0)
    attributes += bytes(72)
    return "loaded a program: descriptor %d" % syscall("bpf", 5, attributes, len(attributes))


@probe(control="root")
def perf_events():
    """perf_event_open(2): counters of the CPU, a side channel and a large interface."""
    attributes = pack("IIQQQQQ", 1, 112, 0, 0, 0, 0, 1 << 0 | 1 << 5 | 1 << 6) + bytes(64)
    return "opened a counter: descriptor %d" % syscall("perf_event_open", attributes, 0, -1, -1, 0)


@probe(control="root")
def userfaultfd():
    """userfaultfd(2) stops the kernel in the middle of a copy: it wins races for exploits."""
    return "made descriptor %d" % syscall("userfaultfd", 0o2000000)


@probe(control="user")
def io_uring():
    """io_uring_setup(2): calls made through a ring pass no seccomp filter."""
    parameters = ctypes.create_string_buffer(120)
    try:
        return "made a ring: descriptor %d" % syscall("io_uring_setup", 4, parameters)
    except OSError as error:
        if host.outside:
            raise Blocked("io_uring is turned off on this host: errno %d" % error.errno) from None
        raise


@probe(control="user", refused=REFUSALS + ("ENOTSUP",))
def urgent_data_of_local_sockets():
    """MSG_OOB between local sockets: little used, and the way to CVE-2025-38236. Each call that can send it."""
    byte = ctypes.create_string_buffer(b"x", 1)
    vector = ctypes.create_string_buffer(pack("QQ", ctypes.addressof(byte), 1))
    message = ctypes.create_string_buffer(pack("QIIQQQQiiII", 0, 0, 0, ctypes.addressof(vector), 1, 0, 0, 0, 0, 0, 0))
    one, other = socket.socketpair()

    def received():
        return "sent urgent data: %r" % other.recv(1, socket.MSG_OOB)

    with one, other:
        return first_success((lambda: one.send(b"x", socket.MSG_OOB) and received(),
                              lambda: one.sendmsg([b"x"], [], socket.MSG_OOB) and received(),
                              lambda: syscall("sendmmsg", one.fileno(), message, 1, int(socket.MSG_OOB)) and
                              "sent urgent data by sendmmsg"))


@probe(control="user", refused=REFUSALS + ("ENOPROTOOPT",))
def memory_by_a_question_to_tcp():
    """TCP_ZEROCOPY_RECEIVE: a getsockopt(2) that maps pages of the network into the process. Here for no bytes."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as one:
        try:
            one.getsockopt(socket.IPPROTO_TCP, 35, 40)
        except OSError as error:
            if error.errno == 22:
                return "the kernel looked at the addresses"
            raise
    return "mapped nothing"


@probe(control="user", refused=REFUSALS + ("ENOPROTOOPT",))
def filter_on_a_socket():
    """SO_ATTACH_FILTER: a program of the caller's, compiled to code that runs in the kernel."""
    program = (ctypes.c_ubyte * 8)(0x06, 0, 0, 0, 0, 0, 0, 0)  # return 0
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
        one.setsockopt(socket.SOL_SOCKET, 26, pack("HxxxxxxQ", 1, ctypes.addressof(program)))
    return "attached a filter"


@probe(control="user")
def pages_of_the_image_in_memory():
    """mincore(2): which pages of a file are in the host's memory tells what other sandboxes have read."""
    with open("/usr/lib/os-release" if host.outside else sys.executable, "rb") as file:
        pages = mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    found = ctypes.create_string_buffer(len(pages) // mmap.PAGESIZE + 1)
    syscall("mincore", start, ctypes.c_size_t(len(pages)), found)
    return "knows of %d pages" % len(found)


@probe(control="user")
def rules_of_landlock():
    """landlock_add_rule(2): each exception of a ruleset is memory of the kernel that nothing counts."""
    attributes = pack("Q", 2)  # LANDLOCK_ACCESS_FS_WRITE_FILE
    try:
        rules = syscall("landlock_create_ruleset", attributes, ctypes.c_size_t(len(attributes)), 0)
    except OSError as error:
        raise Blocked("this kernel has no Landlock: errno %d" % error.errno) from None
    root = os.open("/", os.O_PATH)
    syscall("landlock_add_rule", rules, 1, pack("Qi", 2, root), 0)  # LANDLOCK_RULE_PATH_BENEATH
    return "added a rule"


def page_of_the_image():
    """A file that all sandboxes share, mapped: (descriptor, mapping, its address)."""
    fd = os.open("/usr/lib/os-release" if host.outside else sys.executable, os.O_RDONLY)
    pages = mmap.mmap(fd, 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
    return fd, pages, ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(pages)))


@probe(control="user", refused=REFUSALS + ("EINVAL",))
def push_the_image_out_of_memory():
    """POSIX_FADV_DONTNEED, MADV_COLD and MADV_PAGEOUT: who takes pages of the image out of memory and times how
    long a read takes then knows what other sandboxes have read meanwhile."""
    fd, pages, address = page_of_the_image()

    def advise_file():
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        return "pages of a file were dropped"

    def advise(advice, said):
        syscall("madvise", address, ctypes.c_size_t(min(len(pages), mmap.PAGESIZE)), advice)
        return said

    return first_success((advise_file, lambda: advise(20, "pages are the next to go"),
                          lambda: advise(21, "pages were taken out")))


def advise_page(advice):
    """Of shared memory of our own."""
    memory = mmap.mmap(-1, mmap.PAGESIZE)
    address = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
    syscall("madvise", address, ctypes.c_size_t(mmap.PAGESIZE), advice)


@probe(control="user", refused=REFUSALS + ("EINVAL",))
def merge_pages_with_others():
    """MADV_MERGEABLE: a write to memory that the kernel has merged is slow, which tells that somebody has the same."""
    try:
        advise_page(12)
    except OSError as error:
        if host.outside and error.errno == 22:
            return "this kernel does not merge pages"
        raise
    return "offered a page"


@probe(control="user", refused=REFUSALS + ("EINVAL",))
def holes_in_shared_memory():
    """MADV_REMOVE: what fallocate(2) does to a file, on a way that has lost races (CVE-2014-4171)."""
    advise_page(9)
    return "made a hole"


@probe(control="user")
def interrupt_processors():
    """membarrier(2) interrupts processors of the host, as often as it is called (CVE-2024-26602)."""
    syscall("membarrier", 0, 0)
    return "membarrier answers"


@probe(control="user", refused=REFUSALS + ("ENOMEM",))
def huge_pages_of_the_host():
    """MAP_HUGETLB: memory set aside for others, which nothing counts for a sandbox. The length is none, so that
    nothing is taken."""
    try:
        syscall("mmap", None, ctypes.c_size_t(0), 1, 0x40002, -1, 0)
    except OSError as error:
        if error.errno == 9:
            return "the kernel looked at the file"
        raise
    return "mapped huge pages"


@probe(control="user")
def larger_pipes():
    """F_SETPIPE_SZ: pages of pipes are counted for a user of the host, and a larger pipe takes them from others."""
    reader, _ = os.pipe()
    return "a pipe of %d bytes" % fcntl.fcntl(reader, 1031, 1 << 19)


@probe(control="user", refused=REFUSALS + ("ENOPKG",))
def pipe_of_notifications():
    """O_NOTIFICATION_PIPE: the kernel writes into such a pipe by itself (CVE-2022-0995)."""
    try:
        return "made one: %r" % (os.pipe2(0x80),)
    except OSError as error:
        if host.outside and error.errno == 65:
            return "this kernel has none"
        raise


# What the default filter leaves out and no other probe calls, with the numbers of x86-64. Not sync, which stalls the
# host outside.
LEFT_OUT = """
    setgroups:116 ustat:136 sysfs:139 chroot:161 swapoff:168 setxattr:188 lsetxattr:189 fsetxattr:190
    removexattr:197 lremovexattr:198 fremovexattr:199 sched_setaffinity:203 set_thread_area:205 io_setup:206
    io_destroy:207 io_getevents:208 io_submit:209 io_cancel:210 get_thread_area:211 remap_file_pages:216
    mbind:237 get_mempolicy:239 mq_open:240 mq_unlink:241 mq_timedsend:242 mq_timedreceive:243 mq_notify:244
    mq_getsetattr:245 inotify_init:253 inotify_add_watch:254 inotify_rm_watch:255 splice:275 tee:276
    vmsplice:278 move_pages:279 fallocate:285 inotify_init1:294 fanotify_mark:301 syncfs:306 copy_file_range:326
    io_pgetevents:333 io_uring_enter:426 io_uring_register:427 fsconfig:431 fsmount:432 quotactl_fd:443
    set_mempolicy_home_node:450 cachestat:451 futex_wake:454 futex_wait:455 futex_requeue:456
"""
# Those that are refused with unknown flags even where they are allowed: the argument, and what is given.
ORDINARY = {"splice": (5, 0), "tee": (3, 0), "vmsplice": (3, 0)}
# EPERM, ENOSYS, EOPNOTSUPP; EXDEV, which copy_file_range alone answers; EINVAL of those in ORDINARY, for which the kernel has EBADF
REFUSED = (1, 18, 22, 38, 95)


@probe(control="user")
def calls_that_are_left_out():
    """Each call that the filter leaves out is code of the kernel that cannot be reached. All arguments are -1: no file,
    no address, no process, and flags that nobody knows but for a few."""
    if platform.machine() != "x86_64":
        raise Blocked("this architecture has other numbers")

    def attack():
        reached = []
        calls = [call.split(":") for call in LEFT_OUT.split()]
        libc = ctypes.CDLL(None, use_errno=True)
        for name, number in calls:
            arguments = [ctypes.c_long(-1)] * 6
            if name in ORDINARY:
                arguments[ORDINARY[name][0]] = ctypes.c_long(ORDINARY[name][1])
            ctypes.set_errno(0)
            if libc.syscall(ctypes.c_long(int(number)), *arguments) != -1 or \
                    ctypes.get_errno() not in REFUSED:
                reached.append(name)
        if not reached:
            raise Blocked("none of %d" % len(calls))
        return "reached " + ", ".join(reached)

    return in_child(attack)


# --------------------------------------------------------------------------------------------------
# Keyrings: they belong to the user, not to a namespace that we would notice

KEYCTL_GET_KEYRING_ID, KEYCTL_JOIN_SESSION_KEYRING, KEYCTL_SEARCH, KEYCTL_READ = 0, 1, 10, 11
SESSION_KEYRING, USER_KEYRING = -3, -4


@probe(control="user")
def add_key():
    """add_key(2): memory in the kernel that outlives the process."""
    serial = syscall("add_key", b"user", b"hutch-probe", b"x", 1, -2)
    return "added key %d" % serial


@probe(control="user", refused=REFUSALS + ("ENOKEY",))
def request_key():
    """request_key(2): makes the kernel start a program on the host, /sbin/request-key, as root."""
    try:
        syscall("request_key", b"user", b"hutch-probe-absent", None, 0)
    except OSError as error:
        if host.outside:
            return "the kernel looked for the key (errno %d)" % error.errno
        if error.errno == 126:
            return "the kernel looked for the key"
        raise
    return "found a key"


@probe(control="user")
def read_callers_key():
    """The keyring of the user who called hutch, with the victim's key in it."""
    serial = syscall("keyctl", KEYCTL_SEARCH, USER_KEYRING, b"user", host.key_name.encode(), 0)
    buffer = ctypes.create_string_buffer(64)
    syscall("keyctl", KEYCTL_READ, serial, buffer, 64)
    return "read %r" % buffer.value


@probe(control="user")
def join_session_keyring():
    """keyctl(2), the call with most operations of all: join a session keyring by name."""
    def attack():
        return "joined keyring %d" % syscall("keyctl", KEYCTL_JOIN_SESSION_KEYRING, None)
    return in_child(attack)


# --------------------------------------------------------------------------------------------------
# Other code in the kernel

def refused_by_arguments(call):
    """Makes a call whose arguments no kernel accepts: any errno that talks about the arguments means that
    the call itself was let through."""
    try:
        call()
    except OSError as error:
        if error.errno in (1, 13, 38):
            raise
        return "the kernel looked at the arguments (errno %d)" % error.errno
    return "the call was accepted"


@probe(control="root")
def kexec_load():
    """kexec_load(2): another kernel. With an unknown flag, which is refused only after the permission."""
    return refused_by_arguments(lambda: syscall("kexec_load", 0, 1 << 20, None, 0))


@probe(control="root")
def kexec_file_load():
    """kexec_file_load(2), from files. The descriptors are none."""
    return refused_by_arguments(lambda: syscall("kexec_file_load", -1, -1, 0, None, 0))


@probe(control="root")
def init_module():
    """init_module(2): code in the kernel. The image is 4 bytes of nothing."""
    return refused_by_arguments(lambda: syscall("init_module", b"\0\0\0\0", 4, b""))


@probe(control="root")
def finit_module():
    """finit_module(2), from a descriptor, which is none here."""
    return refused_by_arguments(lambda: syscall("finit_module", -1, b"", 0))


@probe(control="root")
def delete_module():
    """delete_module(2) of a module that does not exist."""
    return refused_by_arguments(lambda: syscall("delete_module", b"hutch_probe_no_such_module", 0))


@probe(control="root")
def reboot():
    """reboot(2). The command is an unknown one, refused only after the permission."""
    return refused_by_arguments(lambda: syscall("reboot", 0xFEE1DEAD, 672274793, 0x12345678, None))


@probe(control="user")
def modify_ldt():
    """modify_ldt(2): segment descriptors of 16-bit programs, with a history."""
    return refused_by_arguments(lambda: syscall("modify_ldt", 0, ctypes.create_string_buffer(16), 16))


@probe(control="root")
def io_ports():
    """iopl(2) and ioperm(2): the machine's ports."""
    def attack():
        syscall("iopl", 0 if host.outside else 3)
        syscall("ioperm", 0x80, 1, 1)
        return "may write to I/O ports"
    return in_child(attack)


@probe(control="root", refused=ABSENT)
def read_kernel_log():
    """syslog(2): the kernel's messages by system call."""
    buffer = ctypes.create_string_buffer(4096)
    return "read %d bytes of the kernel's log" % syscall("syslog", 3, buffer, 4096)


@probe(control="root", refused=REFUSALS + ("EINVAL",))
def set_clock():
    """clock_settime(2) and settimeofday(2): the host's clock. The time is one that no kernel accepts."""
    impossible = pack("qq", 0, 2_000_000_000)
    try:
        syscall("settimeofday", pack("qq", 0, 2_000_000), None)
    except OSError as error:
        if host.outside and error.errno == 22:
            return "the kernel looked at the time"
        if error.errno == 22:
            syscall("clock_settime", 0, impossible)
        raise
    return "set the clock"


@probe(control="root")
def adjust_clock():
    """adjtimex(2) steers the host's clock. Reading it is allowed; here an offset is set."""
    ADJ_TICK = 0x4000
    if host.outside:
        syscall("adjtimex", ctypes.create_string_buffer(256))
        return "adjtimex answers"
    buffer = ctypes.create_string_buffer(pack("IIqq", ADJ_TICK, 0, 0, 0) + bytes(232), 256)
    return refused_by_arguments(lambda: syscall("adjtimex", buffer))


@probe(control="root")
def set_hostname():
    """sethostname(2): in our uts namespace it would change nothing outside, but it is not ours to change."""
    if host.outside:
        name = os.uname().nodename.encode()
    else:
        name = b"hutch-probe"
    syscall("sethostname", name, len(name))
    return "set the host name"


@probe(control="root", refused=REFUSALS + ("EINVAL",))
def set_domainname():
    """setdomainname(2), likewise."""
    if host.outside:
        with open("/proc/sys/kernel/domainname", "rb") as file:
            name = file.read().strip()
    else:
        name = b"hutch-probe"
    syscall("setdomainname", name, len(name))
    return "set the domain name"


@probe(control="user", refused=REFUSALS + ("EINVAL", "EFAULT", "ENODEV", "ESRCH", "ENOTBLK", "ENOENT"))
def quotactl():
    """quotactl(2) on the root's device."""
    if host.outside:
        return refused_by_arguments(lambda: syscall("quotactl", 0x800003 << 8, b"/nonexistent", 0, None))
    syscall("quotactl", 0x800001 << 8, None, 0, None)
    return "quotactl was accepted"


@probe(control="user")
def personality():
    """personality(2): ADDR_NO_RANDOMIZE makes the next program's addresses known, READ_IMPLIES_EXEC makes
    its data executable."""
    def attack():
        for flag in (0x0040000, 0x0400000, 0x0008):
            syscall("personality", flag)
        return "changed its personality"
    return in_child(attack)


@probe(control="user")
def secret_memory():
    """memfd_secret(2): memory that nobody else can look into, and that is not swapped or accounted well."""
    try:
        return "made descriptor %d" % syscall("memfd_secret", 0)
    except OSError as error:
        if host.outside and error.errno == 38:
            return "memfd_secret is not built in here, or is turned off"
        raise


@probe(control="user", refused=REFUSALS + ("EINVAL",))
def seccomp_listener():
    """seccomp(2) with SECCOMP_FILTER_FLAG_NEW_LISTENER: a filter of ours whose listener answers calls of
    programs we start."""
    def attack():
        instruction = ctypes.create_string_buffer(pack("HBBI", 6, 0, 0, 0x7FFF0000), 8)
        program = ctypes.create_string_buffer(pack("HHIQ", 1, 0, 0, ctypes.addressof(instruction)), 16)
        ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)
        return "has a listener: descriptor %d" % syscall("seccomp", 1, 8, program)
    return in_child(attack)


@probe(why_no_control="a filter cannot be removed anywhere", refused=REFUSALS + ("EINVAL", "EFAULT"))
def remove_seccomp_filter():
    """A filter is there (mode 2 in /proc/self/status), and going back to mode 0 is refused."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        fields = dict(line.split(":", 1) for line in status if ":" in line)
    if fields["Seccomp"].strip() != "2":
        return "no filter: Seccomp is %s" % fields["Seccomp"].strip()
    if ctypes.CDLL(None, use_errno=True).prctl(22, 0, 0, 0, 0) == 0:
        return "turned seccomp off"
    raise Blocked("filtered, and it stays")


def raw_code(code):
    """Runs machine code in a child and returns (value, wait status)."""
    if platform.machine() != "x86_64":
        raise Blocked("x86-64 only")
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        page.write(code)
        function = ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
        os.write(writer, b"%d" % function())
        os._exit(0)
    os.close(writer)
    text = os.read(reader, 64)
    os.close(reader)
    _, status = os.waitpid(pid, 0)
    return text, status


@probe(control="user")
def call_as_i386():
    """int 0x80 enters the kernel as a 32-bit program: other call numbers, which a filter for x86-64 would
    take for others. getpid is number 20."""
    text, status = raw_code(b"\xb8\x14\x00\x00\x00\xcd\x80\x48\x98\xc3")
    if os.WIFSIGNALED(status):
        raise Blocked("killed by %s" % signal.Signals(os.WTERMSIG(status)).name)
    if int(text) < 0:
        raise Blocked("refused: %s" % text.decode())
    return "getpid as i386 says %s" % text.decode()


@probe(why_no_control="most kernels have no x32")
def call_as_x32():
    """The x32 numbers (0x40000000 + n) are the same calls under other numbers. getpid is 39."""
    text, status = raw_code(b"\xb8\x27\x00\x00\x40\x0f\x05\x48\x98\xc3")
    if os.WIFSIGNALED(status):
        raise Blocked("killed by %s" % signal.Signals(os.WTERMSIG(status)).name)
    if int(text) < 0:
        raise Blocked("refused: %s" % text.decode())
    return "getpid as x32 says %s" % text.decode()


@probe(control="user")
def unknown_call_answers_enosys():
    """A call number that no kernel has yet answers ENOSYS, as programs expect of a new call: not EPERM, and
    no kill. Here the refusal is what is checked."""
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.syscall(ctypes.c_long(999))
    code = ctypes.get_errno()
    if result == -1 and code == 38:
        if host.outside:
            return "ENOSYS outside, too"
        raise Blocked("ENOSYS")
    return "answered %d, errno %d" % (result, code)


@probe(control="root", refused=REFUSALS + ("EOPNOTSUPP", "EINVAL"))
def vhangup():
    """vhangup(2) hangs up the terminal of the session. In a session without terminal it does nothing."""
    def attack():
        os.setsid()
        syscall("vhangup")
        return "hung up"
    return in_child(attack)


@probe(why_no_control="obsolete calls: few kernels have them")
def obsolete_calls():
    """uselib(2), lookup_dcookie(2) and others that are only kept for programs of the last century."""
    for name, args in (("uselib", (b"/nonexistent",)), ("lookup_dcookie", (0, None, 0))):
        got = None
        try:
            syscall(name, *args)
            got = "accepted"
        except OSError as error:
            if error.errno not in (1, 13, 38):
                got = "errno %d" % error.errno
        except Blocked:
            continue
        if got:
            return "%s: %s" % (name, got)
    raise Blocked("all refused")


@probe(control="user", refused=REFUSALS + ("EINVAL",))
def numa_policy():
    """mbind(2) and set_mempolicy(2): where the host's memory comes from."""
    def attack():
        syscall("set_mempolicy", 0, None, 0)
        return "set its memory policy"
    return in_child(attack)
