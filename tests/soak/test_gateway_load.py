"""`hutch serve` under load: gateway_load.py, in a short form. `make load` is the long one."""
import os

import pytest

import gateway_load
import support
from test_soak import groups

FULL = os.environ.get("HUTCH_SOAK") == "full"
CONNECTIONS, SECONDS = (256, 60) if FULL else (64, 6)


def test_load(tmp_path, capsys):
    if support.hutch("serve", "--help").returncode:
        pytest.skip("this build has no `hutch serve`")
    before = groups()

    def show(text):
        with capsys.disabled():
            print("\n" + text, end="", flush=True)
    gateway_load.run(gateway_load.short(tmp_path), connections=CONNECTIONS, seconds=SECONDS, say=show)
    assert not support.live_runs() and not support.dead_runs()
    assert groups() <= before
