"""What the tests see of the candidate: its values as plain data, and an object here for each that stays there."""
import builtins
import collections
import sys

from hutch_judge.wire import Broken, pack, unpack

READ_AHEAD = 64  # values of an iterator that are fetched at once


class CannotSend(BaseException):
    """A test passes an object that only exists in the judge's process."""


class Remote:
    """An object of the candidate's: a function, a class, an instance. What it answers is the candidate's word, so it
    equals nothing but another object of the candidate's, and is asked for a yes or no only by tests that are about
    objects."""
    __slots__ = ("_conversation", "_number", "_kind", "__name__")

    def __init__(self, conversation, number, kind, name):
        for slot, value in (("_conversation", conversation), ("_number", number), ("_kind", kind), ("__name__", name)):
            object.__setattr__(self, slot, value)

    def __call__(self, *values, **named):
        return self._conversation.ask("call", self, values, named)

    def __getattr__(self, name):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return self._conversation.ask("get", self, (name,))

    def __setattr__(self, name, value):
        self._conversation.ask("set", self, (name, value))

    def __getitem__(self, key):
        return self._conversation.ask("item", self, (key,))

    def __setitem__(self, key, value):
        self._conversation.ask("setitem", self, (key, value))

    def __len__(self):
        return int(self._conversation.ask("len", self))

    def __iter__(self):
        found = self._conversation.ask("iter", self)
        return found if isinstance(found, RemoteIterator) else iter(())

    def __contains__(self, value):
        if not self._conversation.asks_objects:
            return any(item is value or item == value for item in self)
        return self._conversation.ask("in", self, (value,)) is True

    def __instancecheck__(self, value):
        return type(value) is Remote and self._conversation.ask("instance", self, (value,)) is True

    def __bool__(self):
        return self._conversation.ask("bool", self) is True

    def __str__(self):
        return str(self._conversation.ask("str", self))

    def __repr__(self):
        return str(self._conversation.ask("repr", self))

    def __eq__(self, value):
        if not isinstance(value, Remote):
            return NotImplemented
        if self._number == value._number:
            return True
        return self._conversation.asks_objects and self._conversation.ask("equal", self, (value,)) is True

    def __hash__(self):
        return hash(self._number)


class RemoteIterator(Remote):
    __slots__ = ("_ahead", "_is_over")

    def __init__(self, conversation, number, kind, name):
        super().__init__(conversation, number, kind, name)
        object.__setattr__(self, "_ahead", collections.deque())
        object.__setattr__(self, "_is_over", False)

    def __iter__(self):
        return self

    def __next__(self):
        if not self._ahead and not self._is_over:
            found = self._conversation.ask("next", self, (READ_AHEAD,))
            object.__setattr__(self, "_is_over", not isinstance(found, list) or len(found) < READ_AHEAD)
            self._ahead.extend(found)
        if not self._ahead:
            raise StopIteration
        return self._ahead.popleft()


class Raised(Exception):
    """What the program raised, when it is of no builtin class."""


ENDS_OF_LOOPS = (StopIteration, StopAsyncIteration, GeneratorExit)  # raised here, they would end a loop of the tests


class Conversation:
    """The judge's end of the channel: asks, and makes of each answer what the tests see."""

    def __init__(self, channel, asks_objects):
        self.channel = channel
        self.asks_objects = asks_objects
        self.remotes = {}
        self.failure = None  # the first Broken or CannotSend, whatever a test makes of it

    def raise_failure(self, failure):
        self.failure = self.failure or failure
        raise failure from None

    @staticmethod
    def pack_other(value):
        if isinstance(value, Remote):
            return ["R", value._number]
        name, module = getattr(value, "__name__", None), getattr(value, "__module__", None)
        if isinstance(name, str) and getattr(builtins, name, None) is value:
            return ["n", name]
        if isinstance(module, str) and module in sys.modules and isinstance(name, str):
            is_standard = module.partition(".")[0] in sys.stdlib_module_names
            if is_standard and getattr(sys.modules[module], name, None) is value:
                return ["g", module, name]
        raise CannotSend(type(value).__name__)

    def unpack_other(self, packed):
        tag, number, kind, name = packed
        if tag not in ("o", "i") or type(number) is not int:
            raise ValueError("an unknown object")
        if not isinstance(kind, str) or not isinstance(name, (str, type(None))):
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
            return self.raise_failure(Broken("an answer that cannot be read (%s)" % type(error).__name__))

    def ask(self, what, thing, values=(), named=None):
        try:
            packed = [pack(value, self.pack_other) for value in values]
            packed_named = {name: pack(value, self.pack_other) for name, value in (named or {}).items()}
        except CannotSend as error:
            return self.raise_failure(error)
        try:
            self.channel.send([what, ["R", thing._number], packed, packed_named])
        except Broken as error:
            return self.raise_failure(error)
        answer = self.receive()
        if answer[0] == "raised" and len(answer) == 4:
            raise self.exception(answer)
        if answer[0] != "ok" or len(answer) != 3 or not isinstance(answer[2], dict):
            self.raise_failure(Broken("an answer that cannot be read"))
        for index, after in answer[2].items():
            self.apply_change(values, index, self.understand(after))
        return self.understand(answer[1])

    def receive(self):
        try:
            answer = self.channel.receive()
        except Broken as error:
            return self.raise_failure(error)
        except (ValueError, RecursionError, MemoryError):
            return self.raise_failure(Broken("an answer that cannot be read"))
        if not isinstance(answer, list) or not answer:
            return self.raise_failure(Broken("an answer that cannot be read"))
        return answer

    def apply_change(self, values, index, after):
        """Does to an argument what the function did to its copy."""
        value = values[int(index)] if isinstance(index, str) and index.isdigit() and int(index) < len(values) else None
        if type(value) is not type(after):
            self.raise_failure(Broken("an answer that cannot be read"))
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
            if isinstance(kind, type) and issubclass(kind, BaseException) and not issubclass(kind, ENDS_OF_LOOPS):
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
