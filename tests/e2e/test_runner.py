"""tests/run itself, on lanes of a few tests: what fails, comes and goes, or hangs, and what the run then says."""
import importlib.machinery
import importlib.util
import os
import re
import sys

import full
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

    @staticmethod
    def cpu():
        return None

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
    lanes_module = sys.modules["lanes"]
    monkeypatch.setattr(lanes_module, "AT_ONCE", {})

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
        me = Identity(module, tmp_path)
        rows = module.run_tracks([[lambda lane=lane: [lanes_module.run_lane(Scratch(str(tree)), me, lane)] for lane in lanes]])
        module.unsteady.settle(rows, module.say)
        capfd.readouterr()
        steps = module.Steps()
        module.add_costs(steps, rows)
        steps.print()
        passed = module.report(rows, 0)
        return passed, capfd.readouterr().out

    run.lanes, run.unsteady = lanes_module, module.unsteady
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


def test_what_a_run_has_cost(run):
    """Each lane and each of its files has a row; files of less than a second are summed up."""
    _, said = run(e2e=["import time\n\n\ndef test_long():\n    end = time.process_time() + 1.2\n"
                       "    while time.process_time() < end:\n        pass\n", PASSES])
    table = said[:said.index("skipped")].split("\n")
    assert any(line.startswith("  lane e2e as me ") for line in table), said
    assert any(line.startswith("    e2e as me: e2e/test_e2e_0.py ") and float(line.split()[-1]) >= 1.2 for line in table), said
    assert any(line.startswith("  1 others ") for line in table), said


def test_an_unsteady_test(run):
    passed, said = run(e2e=[PASSES, *unsteady(1)])
    assert passed and said.endswith("\n2 passed, 0 failed, 0 skipped, 1 of those passed unsteady\n")
    assert "unsteady: e2e as me: tests/e2e/test_e2e_1.py::test_unsteady_1: E   AssertionError: the first time" in said


def test_a_test_that_hangs(run, monkeypatch):
    monkeypatch.setitem(run.lanes.LANE_SECONDS, "e2e", 5)
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
    monkeypatch.setattr(run.lanes, "WARM", ("hostile/test_hostile_0.py",))
    passed, said = run(warm=[], beside={"hostile": unsteady(1)})
    assert not passed and "test_unsteady_1 passes when it runs again, and counts as failed in this lane" in said


def test_many_failures_are_not_run_again(run):
    passed, said = run(e2e=[PASSES, *unsteady(*range(run.unsteady.MOST_FAILURES + 1))])
    assert not passed and said.endswith("\n1 passed, 21 failed, 0 skipped\n")


def test_a_failure_at_the_end_of_a_test_that_passes_again(run):
    passed, said = run(e2e=[LATE])
    assert passed and said.endswith("\n1 passed, 0 failed, 0 skipped, 1 of those passed unsteady\n")


# What make check leaves out

def functions():
    """All tests, as FOLDER/FILE::NAME."""
    found = []
    for folder in ("e2e", "hostile", "kill", "soak"):
        for name in sorted(os.listdir(os.path.join(TESTS, folder))):
            if name.startswith("test_") and name.endswith(".py"):
                with open(os.path.join(TESTS, folder, name), encoding="utf-8") as file:
                    found += ["%s/%s::%s" % (folder, name, test) for test in re.findall(r"^def (test_\w+)", file.read(), re.MULTILINE)]
    return found


@pytest.mark.parametrize("row", full.ROWS, ids=lambda row: row[0])
def test_what_is_left_out_exists_and_has_a_reason(row):
    tests, _, why = row
    without_parameters = re.compile(tests.removeprefix("^warm:").partition("\\[")[0])
    assert any(without_parameters.search(name) for name in functions())
    assert why.endswith(".") and len(why) > 5


def test_no_file_is_left_out_as_a_whole_but_loads():
    """Something of every file stays, whatever its tests are about. Those of test_node_library.py have it in their parameters."""
    files = {}
    for name in functions():
        files.setdefault(name.partition("::")[0], []).append(full.is_for_full(name + "[x]") and full.is_for_full(name))
    assert [name for name, left_out in files.items() if all(left_out)] == ["e2e/test_node_library.py", "soak/test_gateway_load.py", "soak/test_gateway_slow.py"]


@pytest.mark.parametrize("name, is_left_out", [
    ("tests/e2e/test_parity.py::test_parity[errors]", False), ("tests/e2e/test_parity.py::test_parity[sympy]", True),
    ("tests/e2e/test_containers.py::test_hostile_suite[cold]", True), ("tests/hostile/test_hostile.py::test_probe[bombs.x]", False),
    ("tests/e2e/test_run.py::test_stdin", False)])
def test_what_is_left_out(name, is_left_out, monkeypatch):
    monkeypatch.delenv("HUTCH_WARM", raising=False)
    assert full.is_for_full(name) == is_left_out


def test_what_is_left_out_of_the_lane_warm(monkeypatch):
    monkeypatch.setenv("HUTCH_WARM", "1")
    assert full.is_for_full("tests/hostile/test_hostile.py::test_probe[files.x]")
    assert not full.is_for_full("tests/hostile/test_hostile.py::test_probe[warm.x]")
