"""Whether what a program printed is what was expected, in the modes of docs/batch.md. What it printed is hostile: each
comparison takes time in proportion to its length."""
from __future__ import annotations

import decimal
import re
from typing import Callable, Dict, List

NUMBER = re.compile(rb"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
MAX_DIGITS = 4096


def _same_number(a: bytes, b: bytes) -> bool:
    """Of equal value, without rounding: 1.0 is 1, and 0.1 is not 0.10000000000000001."""
    if a == b:
        return True
    if max(len(a), len(b)) > MAX_DIGITS or not NUMBER.fullmatch(a) or not NUMBER.fullmatch(b):
        return False
    try:
        x, y = decimal.Decimal(a.decode()), decimal.Decimal(b.decode())
    except decimal.DecimalException:
        return False
    return x.is_finite() and y.is_finite() and x == y


def _same_numbers(a: bytes, b: bytes) -> bool:
    x, y = a.split(), b.split()
    return len(x) == len(y) > 0 and all(map(_same_number, x, y))


def _lines(text: bytes) -> List[bytes]:
    return [line.strip() for line in text.strip().split(b"\n")]


def _decimal(got: bytes, want: bytes) -> bool:
    x, y = _lines(got), _lines(want)
    return len(x) == len(y) and all(a == b or _same_numbers(a, b) for a, b in zip(x, y))


MODES: Dict[str, Callable[[bytes, bytes], bool]] = {
    "exact": lambda got, want: got == want,
    "rstrip-newlines": lambda got, want: got.rstrip(b"\n") == want.rstrip(b"\n"),
    "lines": lambda got, want: _lines(got) == _lines(want),
    "words": lambda got, want: got.split() == want.split(),
    "decimal": _decimal,
    "exit0": lambda got, want: True,
}


def is_same(mode: str, got: bytes, want: bytes) -> bool:
    if mode not in MODES:
        raise ValueError("%r is not a way to compare: %s" % (mode, ", ".join(sorted(MODES))))
    return MODES[mode](got, want)
