"""docs/suites.md, made of the table and of differences.txt."""
import os
import textwrap

import judge
import places
import table

FILE = os.path.join(places.TREE, "docs", "suites.md")
HEAD = """# Suites of others

`make check-suites` runs the tests that other people wrote for their programs, inside under
`default` and outside, and compares them test by test. Outside is bubblewrap with the same root tree
and a copy of the same files, without a filter and without limits. What fails or is skipped on both
sides alike is not counted. [tests/README.md](../tests/README.md#suites-of-others) says how it is
used. `tests/suites/run --page` makes this page of `tests/suites/table.py` and
`tests/suites/differences.txt`.

## The suites

All run with these limits in place of the policy's: %s.
The column "raised" has what a suite needs besides. "Seen" says how far the suite has been run; a
row without an entry has never been run.

A long suite runs only its units that touch the kernel, so that the check ends in time;
`HUTCH_SUITES_ALL=1` runs the rest as well.
%s

| suite | tests | source | raised | known differences | seen |
|---|---|---|---|---|---|
"""


def limits(values):
    return ", ".join("`%s` %s" % (name, "none" if value is None else value) for name, value in values.items())


def page():
    known = judge.known()
    long = ["`%s`" % suite.name for suite in table.SUITES if suite.main]
    out = [HEAD % (limits(places.RAISED), textwrap.fill("These are long: %s." % ", ".join(long), 100))]
    for suite in table.SUITES:
        source = "source `%s`" % suite.package if suite.package else "Debian's packages"
        out.append("| `%s` | %s | %s | %s | %s | %s |\n" % (suite.name, suite.tests, source, limits(suite.limits) or "–",
                                                          len(known.get(suite.name, {})) or "–", suite.seen or "–"))
    left_out = [(suite.name, unit, reason) for suite in table.SUITES for unit, reason in suite.left_out.items()]
    if left_out:
        out.append("\nLeft out:\n\n")
        reasons = {}
        for name, unit, reason in left_out:
            reasons.setdefault((name, reason), []).append("`%s`" % unit)
        for (name, reason), units in reasons.items():
            out.append(textwrap.fill("- of `%s`: %s: %s." % (name, ", ".join(units), reason), 130, subsequent_indent="  ", break_long_words=False,
                                     break_on_hyphens=False) + "\n")
    out.append("\n## What differs, and why\n\n| reason | tests | in |\n|---|---|---|\n")
    reasons = {}
    for name, rows in known.items():
        for _key, (_inside, _outside, reason, _everywhere) in rows.items():
            reasons.setdefault(reason, []).append(name)
    for reason, names in sorted(reasons.items(), key=lambda pair: (-len(pair[1]), pair[0])):
        out.append("| %s | %d | %s |\n" % (reason.replace("|", "\\|"), len(names), ", ".join("`%s`" % name for name in dict.fromkeys(names))))
    return "".join(out)
