"""Fixtures that several files here use. A file that needs another engine, or other sessions, has fixtures of its own by these names."""
import os
import time

import pytest

import engine
import gateway
import support


@pytest.fixture
def home(tmp_path):
    """A store of the test's own, for layers.py."""
    path = str(tmp_path / "home")
    yield path
    until = time.monotonic() + 30  # what is killed is gone a moment later
    while support.processes_about(path) and time.monotonic() < until:
        time.sleep(0.05)
    if os.path.isdir(path + "/images"):
        assert support.hutch("rootfs", "list", env={"HUTCH_HOME": path}).returncode == 0
        assert os.listdir(path + "/images/tmp") == [], "files are left"
    assert not support.processes_about(path), "processes are left"
    support.remove_tree(path)


@pytest.fixture(scope="module")
def warm():
    """An engine that has prepared what it runs."""
    support.need("userns")
    with engine.Engine(max_running=4) as one:
        one.settle()
        yield one


@pytest.fixture(scope="module")
def shell():
    """One engine for all tests of a file that leave it as it was."""
    with engine.Engine(image="python", zygotes=engine.SHELL_ZYGOTES, trim_ms=1000) as one:
        yield one


@pytest.fixture
def session(shell):
    with engine.Session(shell) as one:
        yield one


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """One for all tests of a file, on a unix socket."""
    with gateway.Server(tmp_path_factory.mktemp("gateway"), image="python") as started:
        yield started
