"""What differs between inside and outside, and which of it is known.

differences.txt has a line for each known difference: suite (SUITE@POLICY where that is not default), unit, test, inside,
outside and reason, between tabs. An empty test is the unit as a whole. Where a difference is there on some hosts only, "?"
follows the word for inside, and the reason says so. A name that comes many times, and differs each time, has one line:
with " [*]" behind it for the number. Empty lines and lines that begin with "#" are comments."""
import os
import re

FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "differences.txt")
WORDS = ("pass", "fail", "skip", "none")


class Mistake(Exception):
    """differences.txt is not as it should be."""


def known(path=FILE):
    """{suite: {(unit, test): (inside, outside, reason, whether every host has it)}}"""
    found = {}
    with open(path, encoding="utf-8") as text:
        for number, line in enumerate(text, 1):
            if not line.strip() or line.startswith("#"):
                continue
            fields = line.rstrip("\n").split("\t")
            place = "%s:%d: " % (os.path.basename(path), number)
            if len(fields) != 6:
                raise Mistake(place + "%d fields, not 6" % len(fields))
            suite, unit, test, inside, outside, reason = fields
            everywhere = not inside.endswith("?")
            inside = inside.rstrip("?")
            if inside not in WORDS or outside not in WORDS or inside == outside:
                raise Mistake(place + "no difference: '%s' and '%s'" % (inside, outside))
            if len(reason.split()) < 3:
                raise Mistake(place + "no reason")
            rows = found.setdefault(suite, {})
            if (unit, test) in rows:
                raise Mistake(place + "this test has a line already")
            rows[unit, test] = (inside, outside, reason, everywhere)
    return found


def differences(inside, outside):
    """{(unit, test): (inside, outside)} of two answers of reading.collect()."""
    pairs = {key: (inside.get(key, "none"), outside.get(key, "none")) for key in inside.keys() | outside.keys()}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def steady(runs):
    """What counts of several runs by turns: [(inside, outside), …], as {key: (inside, outside)}. A test counts where no run inside had
    what some run outside had: neither what is unsteady outside nor what comes out right inside now and then is a difference."""
    keys = set().union(*(differences(*run) for run in runs))
    found = {}
    for key in keys:
        insides = [run[0].get(key, "none") for run in runs]
        outsides = [run[1].get(key, "none") for run in runs]
        if not set(insides) & set(outsides):
            found[key] = (insides[0], outsides[0])
    return found


def of_many(key, pair, expected):
    """The key of the line that stands for this difference: its own, or that of all tests with this name."""
    unit, test = key
    every = unit, re.sub(r" \[\d+\]$", "", test) + " [*]"
    return every if key not in expected and expected.get(every) == pair else key


def verdict(found, rows, units):
    """(known, new, gone) as three sorted lists of (unit, test, inside, outside): what is found against the lines of the file for these
    units. A difference of another kind than its line says is new, and the line's has gone."""
    expected = {key: row[:2] for key, row in rows.items() if key[0] in units}
    found = {of_many(key, pair, expected): pair for key, pair in found.items()}
    optional = {key for key, row in rows.items() if not row[3]}
    return (sorted((*key, *pair) for key, pair in found.items() if expected.get(key) == pair),
            sorted((*key, *pair) for key, pair in found.items() if expected.get(key) != pair),
            sorted((*key, *pair) for key, pair in expected.items()
                   if found.get(key) != pair and (key in found or key not in optional)))
