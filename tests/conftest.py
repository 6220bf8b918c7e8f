"""Counts for tests/run, and fixtures that every test file may use."""
import json
import os
import sys

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["HUTCH_HOME"] += "." + os.environ["PYTEST_XDIST_WORKER"]

import support  # noqa: E402  (the path comes first)

COUNTS = {"passed": 0, "failed": 0, "skipped": 0, "probes": 0, "controls": 0, "skips": []}


@pytest.fixture
def data(tmp_path):
    """An empty directory for --data, removed whatever was left in it."""
    path = tmp_path / "data"
    path.mkdir()
    yield path
    support.remove_tree(str(path))


@pytest.fixture
def policy(tmp_path):
    """Writes a policy that extends default, or another one; returns its path."""
    def write(extends="default", **fields):
        path = tmp_path / "policy.json"
        path.write_text(json.dumps(dict({"schema": 1, "extends": extends}, **fields)))
        return str(path)
    return write


def pytest_runtest_logreport(report):
    if report.skipped:
        COUNTS["skipped"] += 1
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        COUNTS["skips"].append("%s: %s" % (report.nodeid.rpartition("/")[2], reason.replace("Skipped: ", "", 1)))
    elif report.failed:
        COUNTS["failed"] += 1
    elif report.when == "call":
        COUNTS["passed"] += 1
        if "test_probe[" in report.nodeid:
            COUNTS["probes"] += 1
        if "test_control[" in report.nodeid:
            COUNTS["controls"] += 1


def pytest_sessionfinish(session):
    path = os.environ.get("HUTCH_TEST_COUNTS")
    if path and not hasattr(session.config, "workerinput"):  # one of several at once; who started them counts
        with open(path, "w", encoding="utf-8") as file:
            json.dump(COUNTS, file)
