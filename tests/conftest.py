"""Counts for tests/run, and fixtures that every test file may use."""
import json
import os
import re
import sys
import time

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["HUTCH_HOME"] += "." + os.environ["PYTEST_XDIST_WORKER"]

import full  # noqa: E402  (the path comes first)
import groups  # noqa: E402
import support  # noqa: E402

COUNTS_PATH = os.environ.get("HUTCH_TEST_COUNTS")
IS_FIRST = "PYTEST_XDIST_WORKER" not in os.environ  # where several share the work, who started them counts

# Tests of a file that share something are one part, which one process runs. The parts of these files take longest, so they begin first;
# the other shared ones follow, and small groups are what the end is filled with.
LONG = ("test_parity.py", "test_sessions.py", "test_corpus.py", "test_fidelity.py", "test_idioms.py", "test_ui.py", "test_forks.py",
        "test_gateway_docs.py", "test_node_client.py", "test_e2b.py", "test_your_client.py", "test_python_client.py", "test_mcp.py", "test_python_sessions.py",
        "test_repl_server.py", "test_gateway_processes.py")
GROUP = 6  # tests that run one after the other at least

COUNTS = {"passed": 0, "failed": 0, "skipped": 0, "probes": 0, "controls": 0, "skips": [],
          # Each failure has the name of its test without the group, "setup", "call" or "teardown", and one line of the error.
          "failures": [],
          "files": {},   # by the name of a file: how many of its tests have passed, have failed, were skipped
          "costs": {}}   # by the path of a file: its seconds, and those of processors or None
OUTCOMES = ("passed", "failed", "skipped")


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


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """`make check` leaves out what is for `make check-full`. Where several processes share the work (--dist loadgroup), these are the
    parts: the tests of a file that share what was made for all of them stay together, and others are handed out in small groups."""
    if full.IS_SHORT:
        left_out = {item for item in items if full.is_for_full(item.nodeid)}
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]
    if not getattr(config.option, "loadgroup", False):
        return
    places, shared = {}, set()
    for item in items:
        fixtures = item._fixtureinfo.name2fixturedefs.values()
        name = item.path.name.partition(".")[0]
        family = getattr(getattr(item, "callspec", None), "params", {}).get("probe")
        if family:  # each process that runs probes has a victim of its own
            group = "%s.%s" % (name, family.family)
            shared.add(item)
        elif any(found[-1].scope == "module" for found in fixtures):
            group = name + ".shared"
            shared.add(item)
        else:
            places[name] = places.get(name, -1) + 1
            group = "%s.%d" % (name, places[name] // GROUP)
        item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: (item not in shared, LONG.index(item.path.name) if item.path.name in LONG else len(LONG)))


# What a test has cost, between the end of the one before and its own.
LAST = [time.monotonic(), groups.cpu()]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(call):
    made = yield
    if call.when == "teardown":
        now = [time.monotonic(), groups.cpu()]
        made.get_result().user_properties.append(("cost", [each - last for each, last in zip(now, LAST)]))
        LAST[:] = now


def pytest_unconfigure():
    groups.leave()


def show_failure(report):
    """At once and not in the end: a lane may not get there."""
    print("\nFAILED %s (%s)\n%s" % (report.nodeid, report.when, report.longreprtext), flush=True)
    for name, text in report.sections:
        print("---- %s\n%s" % (name, text), flush=True)


def pytest_collectreport(report):
    if report.failed and COUNTS_PATH and IS_FIRST:
        print("\nFAILED %s\n%s" % (report.nodeid, report.longreprtext), flush=True)


def count(report, outcome):
    name = re.search(r"test_(\w+)\.py", report.nodeid)
    COUNTS[outcome] += 1
    if name:
        COUNTS["files"].setdefault(name[1], [0, 0, 0])[OUTCOMES.index(outcome)] += 1


def pytest_runtest_logreport(report):
    if report.skipped:
        count(report, "skipped")
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        name = re.sub(r"@test_\w+\.\w+$", "", report.nodeid.rpartition("/")[2])  # the group
        COUNTS["skips"].append("%s: %s" % (name, reason.replace("Skipped: ", "", 1)))
    elif report.failed:
        count(report, "failed")
        lines = report.longreprtext.splitlines()
        line = next((line for line in lines if line.startswith("E ")), lines[0] if lines else "")
        name = re.sub(r"@test_\w+\.\w+$", "", report.nodeid)
        COUNTS["failures"].append([name, report.when, line.strip()[:300]])
        if COUNTS_PATH and IS_FIRST:
            show_failure(report)
    elif report.when == "call":
        count(report, "passed")
        if "test_probe[" in report.nodeid:
            COUNTS["probes"] += 1
        if "test_control[" in report.nodeid:
            COUNTS["controls"] += 1

    cost = dict(report.user_properties).get("cost")
    if cost and report.when == "teardown":
        path = re.sub(r"^.*?([^/]+/[^/]+\.py)::.*", r"\1", report.nodeid, flags=re.DOTALL)
        COUNTS["costs"][path] = [sum(each) for each in zip(COUNTS["costs"].get(path, [0, 0]), cost)]
    if COUNTS_PATH and IS_FIRST:
        write_counts()


def write_counts():
    """After each test: whoever ends us for the time it takes wants to know how far we got."""
    with open(COUNTS_PATH + ".part", "w", encoding="utf-8") as file:
        json.dump(COUNTS, file)
    os.rename(COUNTS_PATH + ".part", COUNTS_PATH)
