"""Fixtures of the tests about sessions. A file that needs another engine, or other sessions, has fixtures of its own by these names."""
import pytest

import engine


@pytest.fixture(scope="module")
def shell():
    """One engine for all tests of a file that leave it as it was."""
    with engine.Engine(image="python", zygotes=engine.SHELL_ZYGOTES, trim_ms=1000) as one:
        yield one


@pytest.fixture
def session(shell):
    with engine.Session(shell) as one:
        yield one
