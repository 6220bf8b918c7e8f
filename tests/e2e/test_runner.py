"""tests/run itself, on lanes of a few tests: what fails, comes and goes, or hangs, and what the run then says."""
import importlib.machinery
import importlib.util
import os
import sys

import pytest

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

PASSES = "def test_passes():\n    pass\n"
FAILS = "def test_fails():\n    assert 1 == 2\n"
HANGS = "import threading\n\n\ndef test_hangs():\n    threading.Event().wait()\n"
# Fails the first time.
UNSTEADY = """import os


def test_unsteady_%d():
    path = os.path.join(os.environ["TMPDIR"], "seen-%d")
    was_there = os.path.exists(path)
    open(path, "w").close()
    assert was_there, "the first time"
"""


# Passes, and what is done behind it fails the first time.
LATE = """import os

import pytest


@pytest.fixture
def end():
    yield
    path = os.path.join(os.environ["TMPDIR"], "seen")
    was_there = os.path.exists(path)
    open(path, "w").close()
    assert was_there


def test_end(end):
    pass
"""


def load():
    loader = importlib.machinery.SourceFileLoader("tests_run", os.path.join(TESTS, "run"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("tests_run", loader))
    loader.exec_module(module)
    return module


class Scratch:
    def __init__(self, tree):
        self.tree = tree


class Identity:
    """The caller, who leaves nothing behind."""

    def __init__(self, module, folder):
        self.label, self.uid, self.home = "me", os.geteuid(), str(folder)
        self.temporary = os.path.join(self.home, "tmp")
        self.module = module
        os.mkdir(self.temporary)

    @staticmethod
    def prefix():
        return []

    @staticmethod
    def left():
        return []

    def environment(self, _scratch):
        return dict(os.environ, TMPDIR=self.temporary)


@pytest.fixture
def run(tmp_path, capfd, monkeypatch):
    """Runs lanes that have these tests; whether the run passed, and what it printed."""
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_CURRENT_TEST", "PYTEST_ADDOPTS", "HUTCH_TEST_COUNTS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.setattr(sys, "argv", ["tests/run"])
    module = load()
    monkeypatch.setattr(module, "AT_ONCE", {})

    def run(beside=None, **lanes):
        """@beside: folders of tests that are no lanes of this run."""
        tree = tmp_path / "tree"
        (tree / "tests").mkdir(parents=True)
        (tree / "docs").symlink_to(os.path.join(os.path.dirname(TESTS), "docs"))  # that support.py reads
        for name in os.listdir(TESTS):
            if name.endswith(".py"):
                (tree / "tests" / name).symlink_to(os.path.join(TESTS, name))
        for lane, files in {**lanes, **(beside or {})}.items():
            (tree / "tests" / lane).mkdir()
            for number, text in enumerate(files):
                (tree / "tests" / lane / ("test_%s_%d.py" % (lane, number))).write_text(text)
        passes = [(Identity(module, tmp_path), "me", dict.fromkeys(lanes, ()))]
        rows = module.run_passes(Scratch(str(tree)), list(lanes), passes, None, None)
        capfd.readouterr()
        passed = module.report(rows, 0)
        return passed, capfd.readouterr().out

    run.module = module
    return run


def unsteady(*numbers):
    return [UNSTEADY % (number, number) for number in numbers]


def test_a_test_that_passes(run):
    passed, said = run(kill=[PASSES])
    assert passed and said.endswith("\n1 passed, 0 failed, 0 skipped\n")
    assert "unsteady" not in said


def test_a_test_that_fails(run):
    passed, said = run(e2e=[PASSES, FAILS])
    assert not passed and said.endswith("\n1 passed, 1 failed, 0 skipped\n")
    assert "unsteady" not in said


def test_an_unsteady_test(run):
    passed, said = run(e2e=[PASSES, *unsteady(1)])
    assert passed and said.endswith("\n2 passed, 0 failed, 0 skipped, 1 of those passed unsteady\n")
    assert "unsteady: e2e as me: tests/e2e/test_e2e_1.py::test_unsteady_1: E   AssertionError: the first time" in said


def test_a_test_that_hangs(run, monkeypatch):
    monkeypatch.setitem(run.module.LANE_SECONDS, "e2e", 5)
    passed, said = run(e2e=[PASSES, HANGS])
    assert not passed and "failed: e2e as me: not done within 5 s" in said
    assert said.endswith("\n1 passed, 1 failed, 0 skipped\n")


def test_a_fourth_unsteady_test(run):
    passed, said = run(e2e=unsteady(1, 2), soak=unsteady(3, 4))
    assert not passed and said.endswith("\n3 passed, 1 failed, 0 skipped, 3 of those passed unsteady\n")
    assert "failed: soak as me: tests/soak/test_soak_1.py::test_unsteady_4 is unsteady as well" in said


@pytest.mark.parametrize("lane", ["hostile", "kill"])
def test_an_unsteady_test_of_a_lane_that_bears_none(run, lane):
    passed, said = run(**{lane: [PASSES, *unsteady(1)]})
    assert not passed and said.endswith("\n1 passed, 1 failed, 0 skipped\n")
    assert "test_unsteady_1 passes when it runs again, and counts as failed in this lane" in said


def test_an_unsteady_test_of_the_hostile_programs(run, monkeypatch):
    """The lane warm has the hostile programs as well."""
    monkeypatch.setattr(run.module, "WARM", ("hostile/test_hostile_0.py",))
    passed, said = run(warm=[], beside={"hostile": unsteady(1)})
    assert not passed and "test_unsteady_1 passes when it runs again, and counts as failed in this lane" in said


def test_many_failures_are_not_run_again(run):
    passed, said = run(e2e=[PASSES, *unsteady(*range(run.module.unsteady.MOST_FAILURES + 1))])
    assert not passed and said.endswith("\n1 passed, 21 failed, 0 skipped\n")


def test_a_failure_at_the_end_of_a_test_that_passes_again(run):
    passed, said = run(e2e=[LATE])
    assert passed and said.endswith("\n1 passed, 0 failed, 0 skipped, 1 of those passed unsteady\n")
