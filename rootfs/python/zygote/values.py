# The value of a cell as JSON, where it is made of nothing but what JSON knows. No code of the program runs for it: what
# counts is the exact type, and numpy's scalars are the numbers that they hold.
import sys

MAX_TEXT = 256 << 10  # characters of JSON; as CELL_MAX_VALUE in runtime/cell/feed.h
MAX_VALUES = 50000
MAX_DEPTH = 32
MAX_BITS = 4096  # of an integer


class Unfit(Exception):
    """There is no JSON of it, or too much."""


class Budget:
    def __init__(self):
        self.values, self.text = MAX_VALUES, MAX_TEXT

    def take(self, values, text=0):
        self.values -= values
        self.text -= text
        if self.values < 0 or self.text < 0:
            raise Unfit


def scalar_of_numpy(value):
    numpy = sys.modules.get("numpy")
    generic = getattr(numpy, "generic", None)
    if not isinstance(generic, type) or type(value).__module__ != "numpy" or not issubclass(type(value), generic):
        raise Unfit
    value = value.item()
    if type(value) not in (bool, int, float, str):
        raise Unfit
    return value


def plain(value, depth, budget):
    budget.take(1)
    kind = type(value)
    if value is None or kind is bool:
        return value
    if kind is int:
        if value.bit_length() > MAX_BITS:
            raise Unfit
        return value
    if kind is float:
        if value != value or value in (float("inf"), float("-inf")):
            raise Unfit
        return value
    if kind is str:
        budget.take(0, len(value))
        value.encode("utf-8")  # lone surrogates are no text
        return value
    if kind in (list, tuple) and depth > 0:
        budget.take(len(value) // 2)
        return [plain(entry, depth - 1, budget) for entry in value]
    if kind is dict and depth > 0:
        budget.take(len(value) // 2)
        if any(type(key) is not str for key in value):
            raise Unfit
        return {plain(key, 0, budget): plain(entry, depth - 1, budget) for key, entry in value.items()}
    if kind in (list, tuple, dict):
        raise Unfit
    return plain(scalar_of_numpy(value), 0, budget)


def as_json(value):
    """ASCII text, or None."""
    import json

    if value is None:
        return None
    try:
        text = json.dumps(plain(value, MAX_DEPTH, Budget()), separators=(",", ":"))
    except Exception:  # another thread of the program may be changing it, too
        return None
    return text if len(text) <= MAX_TEXT else None
