"""The candidate: the process that runs the program, and answers what the judge asks of it.

All of this is in the program's hands once it runs. Nothing here is relied upon but what happens before."""
import builtins
import ctypes
import errno
import io
import itertools
import os
import struct
import sys
import types

from hutch_judge.wire import pack, text_of, unpack

# landlock(7)
SYS_LANDLOCK_CREATE_RULESET = 444
SYS_LANDLOCK_RESTRICT_SELF = 446
LANDLOCK_CREATE_RULESET_VERSION = 1
LANDLOCK_ACCESS_FS_MAKE_BLOCK = 1 << 11
LANDLOCK_SCOPE_SIGNAL = 2
LANDLOCK_ABI_OF_SCOPES = 6  # Linux 6.12
PTRACE_SEIZE = 0x4206

MAX_NAME = 100

try:
    system_call = ctypes.CDLL(None).syscall
except (OSError, AttributeError):
    system_call = None


class NoInput(io.StringIO):
    """Reading standard input is an error, as in the reference runner of HumanEval."""

    def readable(self):
        return False

    def read(self, *_):
        raise OSError(errno.EBADF, "there is no standard input")

    readline = readlines = __next__ = read


def landlock_rules(abi):
    """Attributes of a ruleset that forbids little: what counts is that there is one more domain."""
    if abi >= LANDLOCK_ABI_OF_SCOPES:
        return struct.pack("<QQQ", 0, 0, LANDLOCK_SCOPE_SIGNAL)
    return struct.pack("<Q", LANDLOCK_ACCESS_FS_MAKE_BLOCK)  # which no process in a sandbox can do anyway


def can_reach(pid):
    """Whether the memory of process @pid can be opened, or the process be traced, which would lead there."""
    try:
        # For reading: an open for writing is refused by Landlock's rules about files already.
        os.close(os.open("/proc/%d/mem" % pid, os.O_RDONLY))
        return True
    except OSError:
        pass
    if os.path.isdir("/proc/self") or not system_call:
        return False
    # Without procfs there are still the calls for it, where the policy's filter lets them through.
    libc, none = ctypes.CDLL(None, use_errno=True), ctypes.c_long(0)
    nowhere = struct.pack("@NN", 0, 1)  # a struct iovec: the access is checked before the address
    for name, arguments in (("process_vm_readv", (pid, nowhere, ctypes.c_ulong(1), nowhere, ctypes.c_ulong(1), none)),
                            ("ptrace", (ctypes.c_long(PTRACE_SEIZE), pid, none, none))):
        call = getattr(libc, name, None)
        if call and (call(*arguments) >= 0 or ctypes.get_errno() == errno.EFAULT):
            return True
    return False


def confine():
    """Landlock lets a process look into those of its own or an inner domain only, so one more domain keeps the
    candidate out of the judge's memory. True if that memory is closed to it, by that or by something else."""
    if system_call:
        zero = ctypes.c_long(0)
        abi = system_call(SYS_LANDLOCK_CREATE_RULESET, None, zero, ctypes.c_long(LANDLOCK_CREATE_RULESET_VERSION))
        ruleset = -1
        if abi > 0:
            rules = landlock_rules(abi)
            ruleset = system_call(SYS_LANDLOCK_CREATE_RULESET, rules, ctypes.c_long(len(rules)), zero)
        if ruleset >= 0:
            system_call(SYS_LANDLOCK_RESTRICT_SELF, ctypes.c_long(ruleset), zero)
            os.close(ruleset)
    for pid in [os.getppid(), *range(1, min(os.getpid(), 64))]:  # the judge, and processes that share its memory
        if can_reach(pid):
            return False
    return True


class Candidate:
    def __init__(self, channel):
        self.channel = channel
        self.objects = []
        self.names = {}

    def keep(self, value):
        """An object that stays here; the judge gets a number for it."""
        number = self.names.get(id(value))
        if number is None:
            number = self.names[id(value)] = len(self.objects)
            self.objects.append(value)
        # An iterator is its own iterator; a container makes a fresh one.
        is_iterator = hasattr(value, "__next__") and hasattr(value, "__iter__")
        name = getattr(value, "__name__", None) if callable(value) else None
        return ["i" if is_iterator else "o", number, type(value).__name__[:MAX_NAME], name]

    def find(self, packed):
        """Objects that the judge names."""
        if packed[0] == "R":
            return self.objects[packed[1]]
        if packed[0] == "n":
            return getattr(builtins, packed[1])
        if packed[0] == "g":
            __import__(packed[1])
            return getattr(sys.modules[packed[1]], packed[2])
        raise ValueError(packed[0])

    def pack(self, value):
        return pack(value, self.keep)

    def answer(self, request):
        what, target, arguments, keywords = request
        values = [unpack(argument, self.find) for argument in arguments]
        named = {name: unpack(value, self.find) for name, value in keywords.items()}
        thing = unpack(target, self.find) if target is not None else None
        result = self.pack(OPERATIONS[what](thing, *values, **named))
        # What the function did to its arguments is seen by the caller. Only containers can have changed.
        changed = {}
        for index, argument in enumerate(arguments):
            if isinstance(argument, list) and argument[0] in CHANGEABLE:
                after = self.pack(values[index])
                if after != argument:
                    changed[index] = after
        return ["ok", result, changed]

    def serve(self):
        while True:
            request = self.channel.receive()
            try:
                answer = self.answer(request)
            except BaseException as error:
                answer = self.describe(error)
            self.send(answer)

    def send(self, answer):
        try:
            self.channel.send(answer)
        except ValueError as error:  # too large, or not to be told as JSON
            self.channel.send(self.describe(error))

    @staticmethod
    def describe(error):
        bases = [kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins"]
        return ["raised", bases, text_of(error), type(error).__name__[:MAX_NAME]]


CHANGEABLE = ("l", "d", "s", "B", "Q", "O", "C")
OPERATIONS = {
    "call": lambda thing, *values, **named: thing(*values, **named),
    "get": lambda thing, name: getattr(thing, name),
    "set": setattr,
    "item": lambda thing, key: thing[key],
    "setitem": lambda thing, key, value: thing.__setitem__(key, value),
    "len": len,
    "iter": iter,
    "next": lambda thing, count: list(itertools.islice(thing, count)),
    "str": str,
    "repr": repr,
    "bool": bool,
    "in": lambda thing, value: value in thing,
    "equal": lambda thing, value: bool(thing == value),
    "instance": lambda thing, value: isinstance(value, thing),
}


def compile_program(text):
    return compile(text, "<program>", "exec", dont_inherit=True)


def load_program(job):
    """Runs the program as a module, so that what stands under `if __name__ == "__main__"` does not run. Returns its
    names."""
    module = types.ModuleType("program")
    sys.modules["program"] = module
    try:
        exec(compile_program("\n".join(job["before"])), module.__dict__)
    except Exception:
        if not job["before_may_fail"]:
            raise
    exec(compile_program("".join(job["program"])), module.__dict__)
    return module.__dict__


def run_tests(channel, candidate, names, standard, finish_tests):
    """The tests in the program's own process, for --judge together. @standard: the builtins as they were before it."""
    together = channel.receive()
    builtins.__dict__.update(standard)
    try:
        if "data" in together:
            names["DATA"] = together["data"]
        for text in together["tests"]:
            exec(compile(text, "<tests>", "exec", dont_inherit=True), names)
        finish_tests(together, names)
    except BaseException as error:
        channel.send(candidate.describe(error))
        return
    channel.send(["passed", together["nonce"]])


def run_candidate(channel, job, finish_tests):
    """Loads the program and answers for it, or runs the tests beside it."""
    candidate = Candidate(channel)
    standard = dict(builtins.__dict__)
    try:
        names = load_program(job)
        values = {}
        for expression in job["wanted"]:
            try:
                values[expression] = candidate.pack(eval(expression, names))
            except (NameError, AttributeError):
                pass
    except BaseException as error:
        answer = candidate.describe(error)
        answer[0] = "not loaded"
        channel.send(answer)
        return
    channel.send(["loaded", values])
    if job["together"]:
        run_tests(channel, candidate, names, standard, finish_tests)
    else:
        candidate.serve()


def become_candidate(channel, finish_tests):
    """The forked child, before it is given anything. @finish_tests(job, names) calls what tests only define."""
    os.setsid()  # a signal to its own process group does not reach the judge
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    low, high = sorted((channel.read_fd, channel.write_fd))
    os.closerange(3, low)
    os.closerange(low + 1, high)
    # Not beyond the limit: Python has libc do that, which ends a process where a container's filter lacks
    # close_range(2) and there is no procfs.
    os.closerange(high + 1, min(4096, os.sysconf("SC_OPEN_MAX")))
    channel.send(["here", confine()])
    job = channel.receive()
    if job["no_input"]:
        sys.stdin = sys.__stdin__ = NoInput()
    run_candidate(channel, job, finish_tests)
