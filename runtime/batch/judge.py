"""Judges a program by tests that its own process never sees. `hutch batch` runs this inside a sandbox.

Two processes. The judge has the tests: it reads them from standard input after the other one was forked, and runs them. The
candidate runs the program and answers calls. Between them go plain data; what is compared was decoded here, so an object
that claims to equal everything, a patched builtin or a look at the stack of the caller gets a program nowhere. The candidate
has no way to the judge's output, and its end (os._exit, a signal, a crash) is a failed test.

What the judge says, and only that, is on standard output: a token that it was given, and one line of JSON.
docs/batch.md says what this defends against, and what not."""
import builtins
import collections
import ctypes
import errno
import io
import itertools
import json
import os
import select
import signal
import struct
import sys
import time
import types

MAX_MESSAGE = 64 << 20
MAX_DEPTH = 100
MAX_TEXT = 2000
READ_AHEAD = 64  # values of an iterator that are fetched at once

try:
    system_call = ctypes.CDLL(None).syscall
except (OSError, AttributeError):
    system_call = None
loads = json.JSONDecoder().decode
dumps = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


class Broken(BaseException):
    """The other side is gone, or says what it should not. No `except Exception` of a test shall take it for an answer."""


class CannotSend(BaseException):
    """A test passes an object that only exists in the judge's process."""


# --------------------------------------------------------------------------------------------------
# Plain data. JSON holds None, booleans, small integers, floats and text as they are; everything else is [tag, ...].

SEQUENCES = {"l": list, "t": tuple, "s": set, "f": frozenset, "Q": collections.deque}
SEQUENCE_TAGS = {kind: tag for tag, kind in SEQUENCES.items()}
MAPPINGS = {"d": dict, "O": collections.OrderedDict, "C": collections.Counter}
MAPPING_TAGS = {kind: tag for tag, kind in MAPPINGS.items()}
BASES = (bool, int, float, complex, str, bytes, bytearray, list, tuple, set, frozenset, dict)  # what a subclass is sent as


def pack(value, other, depth=0):
    """@other packs what is not plain data."""
    kind = type(value)
    if value is None or kind is bool or kind is str or kind is float:
        return value
    if kind is int:
        return value if -(1 << 62) < value < 1 << 62 else ["I", hex(value)]
    if depth > MAX_DEPTH:
        raise ValueError("nested more than %d levels deep" % MAX_DEPTH)
    tag = SEQUENCE_TAGS.get(kind)
    if tag:
        return [tag, *[pack(item, other, depth + 1) for item in value]]
    tag = MAPPING_TAGS.get(kind)
    if tag:
        packed = [tag]
        for key, item in value.items():
            packed.append(pack(key, other, depth + 1))
            packed.append(pack(item, other, depth + 1))
        return packed
    if kind is bytes or kind is bytearray:
        return ["b" if kind is bytes else "B", value.hex()]
    if kind is complex:
        return ["c", value.real, value.imag]
    if kind is range:
        return ["r", *[pack(part, other) for part in (value.start, value.stop, value.step)]]
    if kind is type({}.keys()) or kind is type({}.items()):
        return ["K" if kind is type({}.keys()) else "T", *[pack(item, other, depth + 1) for item in value]]
    return pack_known(kind, value, other, depth)


def pack_known(kind, value, other, depth):
    """Values of the standard library and numpy that equal plain ones, and subclasses of plain types."""
    module, name = getattr(kind, "__module__", None), getattr(kind, "__name__", None)
    if module == "decimal" and name == "Decimal":
        return ["D", str(value)]
    if module == "fractions" and name == "Fraction":
        return ["F", pack(value.numerator, other), pack(value.denominator, other)]
    if module == "datetime" and name in ("date", "timedelta", "datetime", "time") and not getattr(value, "tzinfo", None):
        fields = {"date": "year month day", "timedelta": "days seconds microseconds",
                  "datetime": "year month day hour minute second microsecond", "time": "hour minute second microsecond"}
        return ["Z", name, *[getattr(value, field) for field in fields[name].split()]]
    if module == "numpy" and hasattr(value, "dtype") and hasattr(value, "tolist"):
        plain = pack(value.tolist(), other, depth + 1)
        return ["A", value.dtype.str, *[int(n) for n in value.shape], plain] if name == "ndarray" else plain
    for base in BASES:
        if isinstance(value, base):
            # By the base's own methods: the subclass may have its own idea of what it holds.
            if base in MAPPING_TAGS:
                return pack(dict(base.items(value)), other, depth)
            if base in SEQUENCE_TAGS:
                return pack(base(base.__iter__(value)), other, depth)
            if base is complex:
                return ["c", base.real.__get__(value), base.imag.__get__(value)]
            if base is str:
                return base.__str__(base.__getitem__(value, slice(None)))
            if base in (bytes, bytearray):
                return pack(base.__getitem__(value, slice(None)), other, depth)
            return pack(base.__pos__(value), other, depth)
    return other(value)


def unpack(packed, other):
    """@other unpacks the tags that stand for objects."""
    if not isinstance(packed, list):
        return packed
    tag = packed[0]
    if tag in SEQUENCES:
        return SEQUENCES[tag]([unpack(item, other) for item in packed[1:]])
    if tag in MAPPINGS:
        rest = iter(packed[1:])
        return MAPPINGS[tag]({unpack(key, other): unpack(item, other) for key, item in zip(rest, rest, strict=True)})
    if tag == "I":
        return int(packed[1], 16)
    if tag == "b":
        return bytes.fromhex(packed[1])
    if tag == "B":
        return bytearray.fromhex(packed[1])
    if tag == "c":
        return complex(packed[1], packed[2])
    if tag == "r":
        return range(*[unpack(part, other) for part in packed[1:4]])
    if tag == "K":
        return dict.fromkeys(unpack(item, other) for item in packed[1:]).keys()
    if tag == "T":
        return dict(unpack(item, other) for item in packed[1:]).items()
    if tag == "D":
        import decimal
        return decimal.Decimal(packed[1])
    if tag == "F":
        import fractions
        return fractions.Fraction(unpack(packed[1], other), unpack(packed[2], other))
    if tag == "Z":
        import datetime
        return {"date": datetime.date, "timedelta": datetime.timedelta, "datetime": datetime.datetime,
                "time": datetime.time}[packed[1]](*packed[2:])
    if tag == "A":
        import numpy
        dtype = numpy.dtype(packed[1])
        if dtype.hasobject:
            raise ValueError("an array of objects")
        return numpy.array(unpack(packed[-1], other), dtype=dtype).reshape(packed[2:-1])
    return other(packed)


def told(error):
    """The text of an exception, as str() has it, bounded."""
    try:
        return str(error)[:MAX_TEXT]
    except BaseException:
        return ""


class Channel:
    """Messages over two pipes: four bytes of length, JSON."""

    def __init__(self, read_fd, write_fd):
        self.read_fd, self.write_fd, self.pidfd = read_fd, write_fd, None

    def wait(self):
        """Until there is something to read. A child that has ended writes no more, whoever else has its pipe."""
        if self.pidfd is None:
            return
        poll = select.poll()
        poll.register(self.read_fd, select.POLLIN)
        poll.register(self.pidfd, select.POLLIN)
        if self.read_fd not in dict(poll.poll()):
            raise Broken("ended")

    def read(self, size):
        parts = []
        while size:
            self.wait()
            part = os.read(self.read_fd, min(size, 1 << 20))
            if not part:
                raise Broken("ended")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def receive(self):
        size, = struct.unpack("<I", self.read(4))
        if size > MAX_MESSAGE:
            raise Broken("an answer of %d bytes" % size)
        return loads(self.read(size).decode("ascii"))

    def send(self, message):
        text = dumps(message).encode("ascii")
        if len(text) > MAX_MESSAGE:
            raise ValueError("%d bytes are too much to pass" % len(text))
        data = memoryview(struct.pack("<I", len(text)) + text)
        try:
            while data:
                data = data[os.write(self.write_fd, data):]
        except BrokenPipeError:
            raise Broken("ended") from None


# --------------------------------------------------------------------------------------------------
# The candidate's side

class NoInput(io.StringIO):
    """Reading standard input is an error, as in the reference runner of HumanEval."""

    def readable(self):
        return False

    def read(self, *_):
        raise OSError(errno.EBADF, "there is no standard input")

    readline = readlines = __next__ = read


def confine():
    """Landlock lets a process look into those of its own or an inner domain only, so one more domain keeps the candidate
    out of the judge's memory. True if that holds, for whatever reason."""
    if system_call:
        abi = system_call(444, None, ctypes.c_long(0), ctypes.c_long(1))
        # Signals (Linux 6.12), else something that nobody in a sandbox can do anyway: block devices.
        attributes = struct.pack("<QQQ", 0, 0, 2) if abi >= 6 else struct.pack("<Q", 1 << 11)
        ruleset = system_call(444, attributes, ctypes.c_long(len(attributes)), ctypes.c_long(0)) if abi > 0 else -1
        if ruleset >= 0:
            system_call(446, ctypes.c_long(ruleset), ctypes.c_long(0))
            os.close(ruleset)
    for pid in [os.getppid(), *range(1, min(os.getpid(), 64))]:  # the judge, and whoever shares its memory
        try:
            os.close(os.open("/proc/%d/mem" % pid, os.O_RDONLY))  # to write, Landlock's rules about files would refuse already
            return False
        except OSError:
            pass
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
        return ["i" if is_iterator else "o", number, type(value).__name__[:100], getattr(value, "__name__", None) if callable(value) else None]

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
        return ["raised", [kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins"], told(error),
                type(error).__name__[:100]]


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
    """Runs the program as a module, so that what stands under `if __name__ == "__main__"` does not run. Returns its names."""
    module = types.ModuleType("program")
    sys.modules["program"] = module
    try:
        exec(compile_program("\n".join(job["before"])), module.__dict__)
    except Exception:
        if not job["before_may_fail"]:
            raise
    exec(compile_program("".join(job["program"])), module.__dict__)
    return module.__dict__


def run_candidate(channel, job):
    """Everything that happens in the candidate's process."""
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
        return
    candidate.serve()


def become_candidate(channel):
    """The forked child, before it is given anything."""
    os.setsid()  # a signal to its own process group does not reach the judge
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    low, high = sorted((channel.read_fd, channel.write_fd))
    os.closerange(3, low)
    os.closerange(low + 1, high)
    os.closerange(high + 1, 4096)
    channel.send(["here", confine()])
    job = channel.receive()
    if job["no_input"]:
        sys.stdin = sys.__stdin__ = NoInput()
    run_candidate(channel, job)


# --------------------------------------------------------------------------------------------------
# The judge's side

class Remote:
    """An object of the candidate's: a function, a class, an instance. Whatever it answers is the candidate's word, so it
    equals nothing but another object of the candidate's, and is asked for a yes or no only by tests that are about objects."""
    __slots__ = ("_judge", "_number", "_kind", "__name__")

    def __init__(self, judge, number, kind, name):
        for slot, value in (("_judge", judge), ("_number", number), ("_kind", kind), ("__name__", name)):
            object.__setattr__(self, slot, value)

    def __call__(self, *values, **named):
        return self._judge.ask("call", self, values, named)

    def __getattr__(self, name):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return self._judge.ask("get", self, (name,))

    def __setattr__(self, name, value):
        self._judge.ask("set", self, (name, value))

    def __getitem__(self, key):
        return self._judge.ask("item", self, (key,))

    def __setitem__(self, key, value):
        self._judge.ask("setitem", self, (key, value))

    def __len__(self):
        return int(self._judge.ask("len", self))

    def __iter__(self):
        found = self._judge.ask("iter", self)
        return found if isinstance(found, RemoteIterator) else iter(())

    def __contains__(self, value):
        if not self._judge.asks_objects:
            return any(item is value or item == value for item in self)
        return self._judge.ask("in", self, (value,)) is True

    def __instancecheck__(self, value):
        return type(value) is Remote and self._judge.ask("instance", self, (value,)) is True

    def __bool__(self):
        return self._judge.ask("bool", self) is True

    def __str__(self):
        return str(self._judge.ask("str", self))

    def __repr__(self):
        return str(self._judge.ask("repr", self))

    def __eq__(self, value):
        if not isinstance(value, Remote):
            return NotImplemented
        return self._number == value._number or (self._judge.asks_objects and self._judge.ask("equal", self, (value,)) is True)

    def __hash__(self):
        return hash(self._number)


class RemoteIterator(Remote):
    __slots__ = ("_ahead", "_is_over")

    def __init__(self, judge, number, kind, name):
        super().__init__(judge, number, kind, name)
        object.__setattr__(self, "_ahead", collections.deque())
        object.__setattr__(self, "_is_over", False)

    def __iter__(self):
        return self

    def __next__(self):
        if not self._ahead and not self._is_over:
            found = self._judge.ask("next", self, (READ_AHEAD,))
            object.__setattr__(self, "_is_over", not isinstance(found, list) or len(found) < READ_AHEAD)
            self._ahead.extend(found)
        if not self._ahead:
            raise StopIteration
        return self._ahead.popleft()


class Raised(Exception):
    """What the program raised, when it is of no builtin class."""


class Judge:
    def __init__(self, channel, asks_objects):
        self.channel = channel
        self.asks_objects = asks_objects
        self.remotes = {}
        self.failure = None  # the first Broken or CannotSend, whatever a test makes of it

    def fail(self, failure):
        self.failure = self.failure or failure
        raise failure from None

    @staticmethod
    def pack_other(value):
        if isinstance(value, Remote):
            return ["R", value._number]
        name, module = getattr(value, "__name__", None), getattr(value, "__module__", None)
        if isinstance(name, str) and getattr(builtins, name, None) is value:
            return ["n", name]
        if isinstance(module, str) and module in sys.modules and isinstance(name, str) and \
                module.partition(".")[0] in sys.stdlib_module_names and getattr(sys.modules[module], name, None) is value:
            return ["g", module, name]
        raise CannotSend(type(value).__name__)

    def unpack_other(self, packed):
        tag, number, kind, name = packed
        if tag not in ("o", "i") or type(number) is not int or not isinstance(kind, str) or not isinstance(name, (str, type(None))):
            raise ValueError("an unknown object")
        remote = self.remotes.get(number)
        if remote is None:
            remote = self.remotes[number] = (RemoteIterator if tag == "i" else Remote)(self, number, kind, name)
        return remote

    def understand(self, packed):
        """What the candidate sent is hostile: whatever goes wrong with it is its failure."""
        try:
            return unpack(packed, self.unpack_other)
        except Exception as error:
            return self.fail(Broken("an answer that cannot be read (%s)" % type(error).__name__))

    def ask(self, what, thing, values=(), named=None):
        try:
            packed = [pack(value, self.pack_other) for value in values]
            packed_named = {name: pack(value, self.pack_other) for name, value in (named or {}).items()}
        except CannotSend as error:
            return self.fail(error)
        try:
            self.channel.send([what, ["R", thing._number], packed, packed_named])
        except Broken as error:
            return self.fail(error)
        answer = self.receive()
        if answer[0] == "raised" and len(answer) == 4:
            raise self.exception(answer)
        if answer[0] != "ok" or len(answer) != 3 or not isinstance(answer[2], dict):
            self.fail(Broken("an answer that cannot be read"))
        for index, after in answer[2].items():
            self.apply(values, index, self.understand(after))
        return self.understand(answer[1])

    def receive(self):
        try:
            answer = self.channel.receive()
        except Broken as error:
            return self.fail(error)
        except (ValueError, RecursionError, MemoryError):
            return self.fail(Broken("an answer that cannot be read"))
        if not isinstance(answer, list) or not answer:
            return self.fail(Broken("an answer that cannot be read"))
        return answer

    def apply(self, values, index, after):
        """Does to an argument what the function did to its copy."""
        value = values[int(index)] if isinstance(index, str) and index.isdigit() and int(index) < len(values) else None
        if type(value) is not type(after):
            self.fail(Broken("an answer that cannot be read"))
        if isinstance(value, (list, bytearray)):
            value[:] = after
        elif isinstance(value, (dict, set, collections.deque)):
            value.clear()
            (value.extend if isinstance(value, collections.deque) else value.update)(after)

    @staticmethod
    def exception(answer):
        _, bases, text, name = answer
        text = text if isinstance(text, str) else ""
        for base in bases if isinstance(bases, list) else ():
            kind = getattr(builtins, base, None) if isinstance(base, str) else None
            # These would end a loop of the tests in silence.
            if isinstance(kind, type) and issubclass(kind, BaseException) and not issubclass(kind, (StopIteration, StopAsyncIteration, GeneratorExit)):
                try:
                    error = kind(text)
                except Exception:
                    continue  # UnicodeDecodeError wants more than a text
                # A KeyError says its key by repr(); this one must say it as the program's did.
                error.hutch_text = text
                return error
        error = Raised(text)
        error.hutch_text = text
        return error


def names_of(code):
    """All global names that a code object and those within it use."""
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= names_of(constant)
    return found


def defines(reference, name):
    """Does the task's own solution define this? Then the tests mean the program's, be it called as a builtin is."""
    return any(line.startswith((head + name + "(", head + name + ":")) for line in reference.split("\n")
               for head in ("def ", "class ", "async def "))


def finish_tests(job, names):
    """Calls what the tests only define."""
    if job["check"]:
        names["check"](names[job["entry"]] if job["entry"] in names else eval(job["entry"], names))
    if job["call_tests"]:
        for name, value in list(names.items()):
            if name.startswith("test_") and isinstance(value, types.FunctionType) and not value.__code__.co_argcount:
                value()


def prepare_tests(job):
    """The code of the tests, its namespace with all that is the task's own, and the names that the program must give."""
    module = types.ModuleType("tests")
    names = module.__dict__
    sys.modules["tests"] = module
    if "data" in job:
        names["DATA"] = job["data"]
    tests = list(job["tests"])
    try:
        exec(compile("\n".join(job["trusted"]), "<task>", "exec", dont_inherit=True), names)
    except Exception as error:
        if not job["trusted_may_fail"]:
            if not isinstance(error, NameError):
                raise
            tests = job["trusted"] + tests  # they need what the program defines
    code = compile("\n".join(tests), "<tests>", "exec", dont_inherit=True)
    wanted = []
    for name in sorted(names_of(code)):
        if name in names:
            continue
        if not hasattr(builtins, name) and name in sys.stdlib_module_names and not defines(job["reference"], name):
            names[name] = __import__(name)  # a program that passes has imported it
        elif not hasattr(builtins, name) or defines(job["reference"], name):
            wanted.append(name)
    if job["entry"] and job["entry"] not in wanted:
        wanted.append(job["entry"])
    return code, names, wanted


def judge(channel, job):
    """Returns what to report."""
    side = Judge(channel, job["asks_objects"])
    here = side.receive()
    code, names, wanted = None, {}, []
    if not job["together"]:
        code, names, wanted = prepare_tests(job)
    start = {name: job[name] for name in ("program", "before", "before_may_fail", "no_input", "together")}
    channel.send(dict(start, wanted=wanted))
    answer = side.receive()
    if answer[0] == "not loaded" and len(answer) == 4:
        is_syntax = isinstance(answer[1], list) and "SyntaxError" in answer[1]
        return {"kind": "compile_error" if is_syntax else "error", "text": told(answer[2]), "name": told(answer[3])}
    if answer[0] != "loaded" or len(answer) != 2 or not isinstance(answer[1], dict):
        raise Broken("an answer that cannot be read")
    report = {"kind": "passed", "guarded": here[1:] == [True]}
    try:
        if job["together"]:
            nonce = os.urandom(16).hex()
            tests = job["before"] * job["before_may_fail"] + job["tests"]
            channel.send({name: job[name] for name in ("check", "call_tests", "entry", "data") if name in job} |
                         {"tests": ["\n".join(tests)], "nonce": nonce})
            answer = side.receive()
            if answer[0] == "raised" and len(answer) == 4:
                raise side.exception(answer)
            if answer != ["passed", nonce]:
                raise Broken("an answer that cannot be read")
            return report
        for name in wanted:
            if name in answer[1]:
                names[name] = side.understand(answer[1][name])
        if job["entry"] and job["entry"] not in answer[1]:
            raise NameError("name '%s' is not defined" % job["entry"])
        exec(code, names)
        finish_tests(job, names)
    except (Broken, CannotSend):
        raise
    except BaseException as error:
        if not side.failure:
            text = getattr(error, "hutch_text", None)
            return dict(report, kind="error", text=told(error) if text is None else text[:MAX_TEXT], name=type(error).__name__)
    if side.failure:
        raise side.failure
    return report


def stay_clear():
    """From here on the candidate may write files: nothing is imported from where it can. The interpreter's own tree is
    part of the image, which is read-only."""
    os.chdir("/")
    sys.path[:] = [path for path in sys.path if path.startswith((sys.base_prefix + "/", sys.base_exec_prefix + "/"))]
    sys.dont_write_bytecode = True


def how_it_ended(channel, pid):
    if channel.pidfd is not None:
        poll = select.poll()
        poll.register(channel.pidfd, select.POLLIN)
        poll.poll(1000)  # its pipe is closed a moment before it has ended
    try:
        ended, status, usage = os.wait4(pid, os.WNOHANG)
    except ChildProcessError:
        return {}
    if not ended:
        return {}
    how = {"cpu_ms": int((usage.ru_utime + usage.ru_stime) * 1000)}
    if os.WIFSIGNALED(status):
        how["signal"] = os.WTERMSIG(status)
    elif os.WIFEXITED(status):
        how["exit_code"] = os.WEXITSTATUS(status)
    return how


def cpu_ms_of(pid):
    """CPU time of the candidate's process. Nobody else tells where no cgroup counts: it is not waited for before the end."""
    try:
        return int(time.clock_gettime((~pid << 3) | 2) * 1000)  # clock_getcpuclockid(3)
    except OSError:
        return 0


def main():
    to_candidate, to_judge = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            become_candidate(Channel(to_candidate[0], to_judge[1]))
        finally:
            os._exit(1)
    os.close(to_candidate[0])
    os.close(to_judge[1])
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    channel = Channel(to_judge[0], to_candidate[1])
    report = {"kind": "internal", "text": "no job came"}
    token = ""
    try:
        try:
            channel.pidfd = os.pidfd_open(pid)
        except OSError:
            pass  # its end shows by the pipe
        job = loads(sys.stdin.buffer.read().decode("utf-8", "surrogatepass"))
        token = job["token"]
        stay_clear()
        report = judge(channel, job)
    except Broken as error:
        report = dict(how_it_ended(channel, pid), kind="ended" if str(error) == "ended" else "garbage", text=str(error))
    except CannotSend as error:
        report = {"kind": "apart", "text": str(error)}
    except BaseException as error:
        report = {"kind": "internal", "text": "%s: %s" % (type(error).__name__, told(error))}
    report.setdefault("cpu_ms", cpu_ms_of(pid))
    text = "%s %s\n" % (token, dumps(report))
    os.write(1, text.encode("ascii"))
    os._exit(0)
