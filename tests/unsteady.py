"""A test that fails is run again, alone, at the quiet end of a run of tests/run. One that then passes is unsteady: it
is named with its first failure, and a few of them do not fail the run. They are still faults: of the product, until
somebody shows that they are the test's."""
import re

RUNS = 2       # again, at most
MOST = 3       # unsteady tests that a run bears
MOST_FAILURES = 20  # more than that have one cause, and are not run again
NEVER = ("hostile", "kill")  # lanes in which a test that fails once has failed: it saw something get out, or survive
HOSTILE = "tests/hostile/"   # and so has a test of these files, in whatever lane


class Failure:
    """A test that has failed, and how it is run again."""

    def __init__(self, name, text, run, when="call", note=None):
        self.name = name  # as pytest has it, or a program of the lane unit
        self.text = text  # the first failure, in a line
        self.run = run    # runs it alone; True where it passes
        self.when = when  # "setup", "call" or "teardown"
        self.note = note  # what row.notes says of it, if anything


def settle(rows, say):
    """Runs the failures of all rows again, and corrects the rows: a test that passes counts as passed, and is in
    row.unsteady. One of a lane of NEVER, and one beyond MOST, stays failed, with a note that says so."""
    waiting = [(row, failure) for row in rows for failure in row.failures]
    if len(waiting) > MOST_FAILURES:
        say("%d tests have failed: none is run again" % len(waiting))
        return
    n_unsteady = 0
    for row, failure in waiting:
        if not passes_again(row, failure, say):
            continue
        if row.lane in NEVER or failure.name.startswith(HOSTILE):
            row.notes.append("%s passes when it runs again, and counts as failed in this lane" % failure.name)
        elif n_unsteady >= MOST:
            row.notes.append("%s is unsteady as well, and a run bears no more than %d such tests"
                             % (failure.name, MOST))
        else:
            n_unsteady += 1
            forgive(row, failure)


def passes_again(row, failure, say):
    for _ in range(RUNS):
        say("again, alone: %s of %s as %s" % (failure.name, row.lane, row.who))
        if failure.run():
            return True
    return False


def forgive(row, failure):
    passed = failure.when != "teardown"  # there the test itself had passed, and was counted
    counts = row.files.get((re.findall(r"test_(\w+)\.py", failure.name) or [None])[0])
    row.unsteady.append(failure)
    row.failed -= 1
    row.passed += passed
    if counts:
        counts[1] -= 1
        counts[0] += passed
    if failure.note in row.notes:
        row.notes.remove(failure.note)
