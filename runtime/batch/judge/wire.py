"""What goes between judge and candidate: plain data as JSON, and messages over two pipes."""
import collections
import json
import os
import select
import struct

MAX_MESSAGE = 64 << 20
MAX_DEPTH = 100
MAX_TEXT = 2000

loads = json.JSONDecoder().decode
dumps = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


class Broken(BaseException):
    """The other side is gone, or sends what it should not. Not an Exception: a test's `except Exception` must not catch
    it."""


# --------------------------------------------------------------------------------------------------
# Plain data. JSON holds None, booleans, small integers, floats and text as they are; everything else is [tag, ...].

SEQUENCES = {"l": list, "t": tuple, "s": set, "f": frozenset, "Q": collections.deque}
SEQUENCE_TAGS = {kind: tag for tag, kind in SEQUENCES.items()}
MAPPINGS = {"d": dict, "O": collections.OrderedDict, "C": collections.Counter}
MAPPING_TAGS = {kind: tag for tag, kind in MAPPINGS.items()}
# What a subclass is sent as.
BASES = (bool, int, float, complex, str, bytes, bytearray, list, tuple, set, frozenset, dict)
DATE_FIELDS = {"date": "year month day", "timedelta": "days seconds microseconds",
               "datetime": "year month day hour minute second microsecond", "time": "hour minute second microsecond"}


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
    if module == "datetime" and name in DATE_FIELDS and not getattr(value, "tzinfo", None):
        return ["Z", name, *[getattr(value, field) for field in DATE_FIELDS[name].split()]]
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


def text_of(error):
    """The text of an exception, as str() has it, bounded."""
    try:
        return str(error)[:MAX_TEXT]
    except BaseException:
        return ""


# --------------------------------------------------------------------------------------------------
# Messages

class Channel:
    """Messages over two pipes: four bytes of length, JSON."""

    def __init__(self, read_fd, write_fd):
        self.read_fd, self.write_fd, self.pidfd = read_fd, write_fd, None

    def wait(self):
        """Until there is something to read. A child that has ended writes no more, even if its children have its
        pipe."""
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
