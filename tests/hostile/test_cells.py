"""Probes once more, each as a cell of a session that stands between two ordinary ones: what is blocked in a run is blocked there, the host
stays as it is, and the session goes on. It keeps what the first cell left, or says that it does not.

One engine for all, as a service would have it, with another session beside, which must not notice. test_hostile.py says what a probe is."""
import json
import os
import re

import pytest

import engine
import neighbour
import support
import test_hostile
import witness
from neighbour import text_of

kit = test_hostile.kit
setting = test_hostile.setting  # a fixture

# Options of `hutch run`, as a session's or a cell's.
SIZES = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}

# A cell has no limit of its own for CPU time; the policy's is for each.
NOT_HERE = ("cpu_time_of_the_holder",)
DISK = "/mnt/data holds more than"  # said again and again, as the files stay
ON_DISK = ("close_stdout", "fill_data", "inode_bomb_in_data")  # with a check in test_hostile.py of what is left there
CHANNEL = re.compile("its descriptor 3( and could not be told anything any more)?, so it was ended")


def options_of(probe):
    """The fields of the session and those of the cell."""
    session, cell = {}, {}
    for name, value in zip(probe.options[::2], probe.options[1::2]):
        if name == "--memory":
            session["memory_bytes"] = int(value[:-1]) * SIZES[value[-1]]
        elif name == "--pids-limit":
            session["pids"] = int(value)
        elif name == "--timeout":
            cell["timeout_ms"] = int(value[:-2]) if value.endswith("ms") else int(value[:-1]) * 1000
        else:
            raise ValueError(name)
    return session, cell


def code_of(setting, probe):
    """The script of the probe's family, but for its last line: it would take standard output away from the cells to come."""
    with open(setting.scripts[probe.family], encoding="utf-8") as file:
        source = file.read()
    begin = "kit.main(sys.argv)\n"
    assert source.endswith(begin)
    return source[:-len(begin)] + ("import json, os\nkit.host.update(json.loads(%r))\nline = kit.run(%r)\n"
                                   "try: os.write(1, ('\\n' + line + '\\n').encode('utf-8', 'backslashreplace'))\n"
                                   "except OSError: pass\n" % (json.dumps(dict(setting.facts, warm=True, cell=True)), probe.name))


@pytest.fixture(scope="module")
def shared(setting):
    """With the careless caller's environment and an open file of his, as in test_hostile.py."""
    secret = os.open(setting.victim.file, os.O_RDONLY)
    os.set_inheritable(secret, True)
    before = dict(os.environ)
    os.environ.update(setting.environment())
    try:
        with neighbour.engine_with_session(prepared=1) as found:
            yield found
    finally:
        os.close(secret)
        os.environ.clear()
        os.environ.update(before)


def lines_of(result):
    """What the probe says of itself. An interrupt is meant to break it."""
    return [line for line in text_of(result).split("\n") if line.startswith(("BLOCKED ", "GOT THROUGH ", "BROKEN ")) and
            not (result["was_interrupted"] and "KeyboardInterrupt" in line)]


def check_after(result, died):
    """The cell after the probe: the state is there, or it is said that it is not."""
    if result["is_fresh"]:
        assert result["error_name"] == "NameError" or result["verdict"] != "ok", result
        assert result["message"], result
    else:
        assert not died and result["verdict"] == "ok" and "kept" in text_of(result), result


# What filters, namespaces and limits do is the same in the sandboxes of runs and of sessions, so that is for the long form; and so is what is
# killed only some seconds after its interrupt.
LONG = os.environ.get("HUTCH_SOAK") == "full"
OF_SANDBOXES = ("bombs", "kernel", "mounts", "network")
IS_SLOW = ("ignore_sigterm", "stop_everybody", "vfork_and_wait", "many_files", "deep_directories", "names_that_fill_memory")
PROBES = [probe for probe in sorted(kit.PROBES.values(), key=lambda probe: (probe.family, probe.name))
          if probe.name not in NOT_HERE and (LONG or (probe.family not in OF_SANDBOXES and probe.name not in IS_SLOW))]


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: "%s.%s" % (probe.family, probe.name))
def test_probe(setting, shared, probe, data):
    if probe.counted and not support.has("delegation"):
        pytest.skip("memory controller: the fallback cannot count this, as docs/security.md says")
    warm, beside, whole = shared
    warm.settle()
    own, processes, groups = neighbour.own_processes(warm), witness.names_of_processes(whole), len(witness.cgroups())
    setting.witness.remember()
    of_session, of_cell = options_of(probe)

    with engine.Session(warm, data_dir=data, **of_session) as session:
        assert session.run("state = 'kept'")["verdict"] == "ok"
        cell = session.execute(code_of(setting, probe), **{"timeout_ms": 30000, **of_cell})
        result = session.wait(cell)
        after = session.run("print(state)")
        again = session.run("print(6 * 7)")

    # Inside: it was blocked, and the session goes on.
    lines = lines_of(result)
    assert "GOT THROUGH" not in "".join(lines) and "BROKEN" not in "".join(lines), lines
    if not probe.silent and not result["was_interrupted"] and not result["interpreter_died"]:
        assert len(lines) == 1, result
    if not result["interpreter_died"]:
        assert result["verdict"] in probe.verdicts, result
    elif result["verdict"] != "error":  # a cell in which the interpreter ended, however well
        assert result["verdict"] in probe.verdicts or CHANNEL.search(result["message"]), result
    assert cell.results == 1 and len(session.ends) == 1, (cell.results, session.ends)
    for secret in (setting.victim.text, setting.env_secret):
        assert secret not in json.dumps([result, after, again]), "a secret is in a result"
    check_after(after, result["interpreter_died"])
    assert "42" in text_of(again) or DISK in again["message"], again

    # Outside: nothing happened.
    assert beside.printed("print(value)") == "beside\n"
    warm.settle()
    neighbour.check_outside(warm, own, processes)
    warm.until(lambda: len(witness.cgroups()) <= groups, what="the end of control groups")
    setting.witness.check()
    assert support.dead_runs() == []
    test_hostile.check_data_directory(setting, probe, str(data))
    if probe.name in ON_DISK:
        getattr(test_hostile, "after_" + probe.name)(test_hostile.Run(None, str(data), b""))
