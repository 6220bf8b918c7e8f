"""The black-box fuzzer of `hutch serve` in its short form; `make fuzz-http` is the long one."""
import pytest

import gateway_fuzz
import support


def test_requests_that_are_nearly_right(tmp_path):
    if support.hutch("serve", "--help").returncode:
        pytest.skip("this build has no `hutch serve`")
    fuzz = gateway_fuzz.run(tmp_path, 10, 1, "python")
    assert fuzz.statuses["200"] and fuzz.statuses["400"] and fuzz.statuses["404"]
    assert not support.live_runs() and not support.dead_runs()
