"""hutch's own plumbing: what it leaks in, and what a program can do with what it was given."""
import ctypes
import fcntl
import json
import os
import signal
import stat
import sys

from kit import ABSENT, REFUSALS, Blocked, first_success, host, in_child, probe

TIOCSTI, TIOCLINUX, TIOCSCTTY, TIOCCONS = 0x5412, 0x541C, 0x540E, 0x541D
NOT_A_TERMINAL = REFUSALS + ("ENOTTY", "ENXIO", "EIO", "ENOENT", "EINVAL", "ENODEV")


def own_descriptors():
    """Our descriptors with what they lead to, without the one that lists them."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink("/proc/self/fd/" + name)
        except OSError:
            pass
    return found


def report_descriptor():
    """What an uncaught exception is reported through: the one pipe beside the streams, or the socket that a worker got
    its job from."""
    for number, target in sorted(own_descriptors().items()):
        if number > 2 and target.startswith("socket:" if host.warm else "pipe:"):
            return number
    return None


# --------------------------------------------------------------------------------------------------
# What leaks in

@probe(control="user")
def leaked_descriptor():
    """hutch was started with an inheritable descriptor of a file on the host, as sloppy callers do."""
    for number, target in own_descriptors().items():
        if number <= 2 or number == report_descriptor():
            continue
        try:
            os.lseek(number, 0, os.SEEK_SET)
            text = os.read(number, 64)
        except OSError:
            continue
        if host.canary_text.encode() in text:
            return "read %r from descriptor %d" % (text, number)
    raise Blocked("not among %r" % sorted(own_descriptors()))


@probe(why_no_control="outside, a program has whatever its caller left open")
def unexpected_descriptors():
    """Only 0, 1, 2 and the report pipe may be open, whatever they lead to (and the script being read). In a session there are
    the loop that waits for the next cell, with a pair of sockets to itself, and the streams once more."""
    strange = {number: target for number, target in own_descriptors().items()
               if number > 2 and number != report_descriptor() and not target.startswith(("/proc/", "/run/hutch/"))}
    if host.get("cell"):
        streams = [os.readlink("/proc/self/fd/%d" % number) for number in (1, 2)]
        strange = {number: target for number, target in strange.items() if target not in streams}
        if sorted(target.partition(":")[0] for target in strange.values()) == ["anon_inode", "socket", "socket"]:
            strange = {}
    if strange:
        return "open: %r" % strange
    raise Blocked("none but our own")


@probe(why_no_control="outside, they are whatever the caller chose")
def standard_streams_are_the_callers():
    """0, 1 and 2 must be pipes of hutch's: reopening /proc/self/fd/1 would else open the caller's file or
    terminal anew, for reading too."""
    for number in (0, 1, 2):
        mode = os.fstat(number).st_mode
        if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.readlink("/proc/self/fd/%d" % number) == "/dev/null"):
            return "descriptor %d is %s" % (number, os.readlink("/proc/self/fd/%d" % number))
    raise Blocked("three pipes")


@probe(control="user")
def leaked_environment():
    """The caller's environment holds his secrets; hutch was started with one in it."""
    for source in (os.environ.items(), _environment_of("self"), _environment_of("1")):
        for name, value in source:
            if host.env_secret in value:
                return "found it as " + name
    raise Blocked("the environment is: " + " ".join(sorted(os.environ)))


def _environment_of(pid):
    try:
        with open("/proc/%s/environ" % pid, "rb") as file:
            return [entry.decode("utf-8", "replace").partition("=")[::2] for entry in file.read().split(b"\0")]
    except OSError:
        return []


@probe(why_no_control="outside, the variables are the caller's")
def environment_names_the_caller():
    """Names that tell who called and from where, or that change what libc and Python load."""
    for name in ("USER", "LOGNAME", "SUDO_USER", "SSH_CONNECTION", "SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS",
                 "XDG_RUNTIME_DIR", "DISPLAY", "LD_PRELOAD", "LD_LIBRARY_PATH", "HUTCH_HOME", "OLDPWD",
                 "INVOCATION_ID", "PYTHONSTARTUP"):
        value = os.environ.get(name, "")
        if value and value not in ("user",):
            return "%s=%s" % (name, value)
    raise Blocked("none of them is set")


@probe(why_no_control="the host's name is no secret on the host", layer="host_name")
def hostname_is_the_hosts():
    """The machine's name tells whose it is."""
    if os.uname().nodename == host.hostname:
        return "the name is " + host.hostname
    raise Blocked("the name is " + os.uname().nodename)


@probe(control="user")
def cgroup_path():
    """/proc/self/cgroup seen from a cgroup namespace is "/": the host's path names services and users."""
    with open("/proc/self/cgroup", encoding="ascii", errors="replace") as file:
        lines = file.read().split()
    if host.outside:
        return "in " + lines[-1]
    unified = [line for line in lines if line.startswith("0::")]
    if all(line in ("0::/",) for line in unified):
        raise Blocked(" ".join(unified) or "no cgroup v2")
    return "in " + unified[0]


# --------------------------------------------------------------------------------------------------
# The terminal: hutch is started with one (the suite gives it a pty), and types nothing

@probe(why_no_control="it would type into the suite's terminal", refused=NOT_A_TERMINAL)
def type_into_terminal():
    """TIOCSTI puts characters into the terminal's input: the shell runs them when hutch has ended."""
    def attempt(path):
        def act():
            fd = path if isinstance(path, int) else os.open(path, os.O_RDWR | os.O_NOCTTY)
            for character in b"touch hutch-probe\n":
                fcntl.ioctl(fd, TIOCSTI, bytes([character]))
            return "typed into %s" % path
        return act
    return first_success([attempt(path) for path in (0, 1, 2, "/dev/tty", "/dev/console", "/dev/pts/0")])


@probe(why_no_control="it would change the suite's terminal", refused=NOT_A_TERMINAL)
def paste_into_console():
    """TIOCLINUX pastes the selection of a Linux console, which is typing, too (CVE-2023-28100)."""
    def attempt(path, request):
        def act():
            fd = path if isinstance(path, int) else os.open(path, os.O_RDWR | os.O_NOCTTY)
            fcntl.ioctl(fd, request, b"\x03")
            return "ioctl 0x%x on %s" % (request, path)
        return act
    return first_success([attempt(path, request) for path in (0, 1, 2, "/dev/tty", "/dev/tty0")
                          for request in (TIOCLINUX, TIOCCONS)])


@probe(why_no_control="it would check the filter, which the host has none of", refused=REFUSALS)
def typing_is_filtered():
    """The filter has to refuse TIOCSTI by its number, on whatever descriptor: on a pipe of ours the kernel
    would say ENOTTY, which means that the filter let it pass. Also with high bits set, which ioctl ignores."""
    reader, _ = os.pipe()
    for request in (TIOCSTI, TIOCLINUX):
        try:
            fcntl.ioctl(reader, request, b"x")
        except OSError as error:
            if error.errno == 25:
                return "the filter lets 0x%x pass" % request
            last = error
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall(ctypes.c_long(16), ctypes.c_long(reader), ctypes.c_ulong(TIOCSTI | 1 << 32), b"x")
    if ctypes.get_errno() == 25:
        return "the filter lets 0x%x pass" % (TIOCSTI | 1 << 32)
    raise last


@probe(why_no_control="it would steal the suite's terminal", refused=NOT_A_TERMINAL)
def take_controlling_terminal():
    """A new session may take a terminal that nobody controls: then job control is ours."""
    def attack():
        os.setsid()
        for fd in (0, 1, 2):
            try:
                fcntl.ioctl(fd, TIOCSCTTY, 1)
            except OSError as error:
                last = error
                continue
            return "controls the terminal of descriptor %d" % fd
        raise last
    return in_child(attack)


@probe(why_no_control="hosts differ in which of them exist", refused=ABSENT)
def terminals_of_others():
    """/dev/pts of the host: whoever may open a terminal there reads what its user types. A sandbox has one of its own."""
    found = [name for name in os.listdir("/dev/pts") if name != "ptmx"]
    if found:
        return "found /dev/pts/" + found[0]
    raise Blocked("/dev/pts is empty")


@probe(why_no_control="it would take all pseudo-terminals of the host", refused=ABSENT + ("ENXIO", "EIO"))
def pseudo_terminals_without_end():
    """All sandboxes together draw on the kernel's 4096, which logins on the host need."""
    count = 0
    try:
        while count < 1000:
            os.openpty()
            count += 1
    except OSError as error:
        if count <= 64:
            raise Blocked("%d, then %s" % (count, error.strerror))
    return "made %d pseudo-terminals" % count


# --------------------------------------------------------------------------------------------------
# What we were given

@probe(why_no_control="hutch is outside", leaves=())
def forge_result_on_stdout():
    """A result object on standard output must stay text: the suite reads hutch's own object."""
    print(json.dumps({"version": 1, "verdict": "ok", "exit_code": 0, "stdout": "forged", "forged": True}))
    print("\0\x1b]0;forged\x07" * 10)
    sys.stdout.flush()
    raise Blocked("it is output like any other")


@probe(why_no_control="hutch is outside", verdicts=("ok", "error"))
def flood_report_pipe():
    """Megabytes of nonsense into the pipe of the Python hook, until it takes no more."""
    fd = report_descriptor()
    if fd is None:
        raise Blocked("there is no report pipe")
    os.set_blocking(fd, False)
    sent = 0
    try:
        for _ in range(4096):
            sent += os.write(fd, b"\xff{\"name\":" * 1000)
    except OSError:
        pass
    raise Blocked("%d bytes went in, and the result has to be right all the same" % sent)


@probe(why_no_control="hutch is outside", verdicts=("ok", "error"))
def forge_error_report():
    """A forged record says that the run died of something it did not; the exit status stays the fact."""
    fd = report_descriptor()
    if fd is None:
        raise Blocked("there is no report pipe")
    for record in (b'{"name":"Forged","value":"forged","traceback":"x"}\n', b"[" * 100000, b'{"name":' * 1000,
                   b'{"verdict":"ok","exit_code":0}', b"\0" * 100):
        try:
            os.write(fd, record)
        except OSError:
            pass
    raise Blocked("written")


@probe(why_no_control="hutch is outside", silent=True, verdicts=("ok", "error"))
def write_to_every_descriptor():
    """Nonsense into every descriptor that takes it, whatever it is, including ones that are not ours."""
    for number in range(3, 64):
        try:
            os.set_blocking(number, False)
            os.write(number, b"\x00\x01\x02\x03garbage" * 64)
        except OSError:
            pass
    raise Blocked("done")


@probe(why_no_control="hutch is outside", silent=True)
def read_other_end_of_stdin():
    """Standard input reopened for writing, standard output for reading: are they ours to turn around?"""
    for number, flags in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_RDONLY)):
        try:
            fd = os.open("/proc/self/fd/%d" % number, flags | os.O_NONBLOCK)
            if flags == os.O_WRONLY:
                os.write(fd, b"hello me\n")
            else:
                os.read(fd, 100)
        except OSError:
            pass
    raise Blocked("done")


@probe(why_no_control="hutch is outside", silent=True, leaves=("went-on",))
def close_stdout():
    """Closing all three streams: the run goes on, and its end is not the end of its output."""
    for number in (0, 1, 2):
        os.close(number)
    with open("/mnt/data/went-on", "w", encoding="ascii") as file:
        file.write("yes")
    raise Blocked("closed")


@probe(why_no_control="hutch is outside", silent=True, leaves=("pipe",))
def replace_stdout_by_fifo():
    """Standard output over a FIFO in /mnt/data: the collector must not open it."""
    os.mkfifo("/mnt/data/pipe")
    fd = os.open("/mnt/data/pipe", os.O_RDWR)
    os.dup2(fd, 1)
    os.write(1, b"into the pipe\n")
    raise Blocked("done")


@probe(why_no_control="hutch is outside", verdicts=("killed",), silent=True)
def kill_itself():
    """SIGKILL to oneself: the verdict says so, and nothing waits."""
    os.kill(os.getpid(), signal.SIGKILL)
    return "survived SIGKILL"


@probe(why_no_control="hutch is outside", verdicts=("killed", "error"), silent=True)
def crash():
    """A wild read: SIGSEGV, with whatever the host does with core dumps."""
    ctypes.string_at(16)
    return "read address 16"


@probe(why_no_control="the report descriptor exists inside only")
def hook_is_ours_to_change():
    """The hook that reports errors runs with no more rights than the script, so a script may break it; what
    must not happen is that the next run sees the change."""
    import sitecustomize
    path = getattr(sitecustomize, "__file__", "")
    try:
        with open(path, "a", encoding="ascii") as file:
            file.write("# hutch-probe\n")
    except OSError as error:
        raise Blocked("the file refuses: errno %d" % error.errno) from None
    return "changed " + path
