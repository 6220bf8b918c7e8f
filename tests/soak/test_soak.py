"""An engine for a long time and under rough treatment; tests/soak/soak.c does it. Here in a short form, with HUTCH_SOAK=full (make
soak) in the long one. What the driver prints is shown, passed or not."""
import os
import random
import re
import signal
import subprocess
import tempfile
import time

import pytest

import support

FULL = os.environ.get("HUTCH_SOAK") == "full"
SEED = int(os.environ.get("HUTCH_TEST_SEED", "20240607"))
KILLS = 2000 if FULL else 40
RUNS, SAMPLES = (100000, 20) if FULL else (1500, 3)
SESSION_KILLS = 1500 if FULL else 24
HOSTILE = 2000 if FULL else 54
ENGINE_KILLS = 200 if FULL else 10
SECONDS = 3 * 3600 if FULL else 150


@pytest.fixture(autouse=True, scope="module")
def subreaper():
    """Orphans of a killed engine become children of this process, so none can hide."""
    support.become_subreaper()


@pytest.fixture
def show(capsys):
    """Prints to the terminal whatever pytest captures."""
    def print_it(text):
        with capsys.disabled():
            print("\n" + text.rstrip(), flush=True)
    return print_it


@pytest.fixture
def scratch(tmp_path):
    (tmp_path / "data").mkdir()
    yield tmp_path
    support.remove_tree(str(tmp_path))


def words(scenario, scratch, *options):
    return [support.program("soak"), scenario, "--image", support.IMAGE, "--dir", str(scratch), "--seed", str(SEED), *options]


def soak(show, scenario, scratch, *options):
    done = subprocess.run(words(scenario, scratch, *options), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace", timeout=SECONDS, check=False, env=support.engine_env())
    show(done.stdout)
    assert done.returncode == 0, done.stdout
    return done.stdout


def groups():
    """Control groups of hutch's beside and below our own; empty where nothing is delegated to us."""
    own = support.own_cgroup()
    if own is None or own == support.cgroup2_mount():
        return set()
    return {os.path.join(parent, name) for parent, names, _ in os.walk(os.path.dirname(own)) for name in names if name.startswith("hutch-")}


def reap():
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return
        except ChildProcessError:
            return


def left_behind(seconds):
    """Processes below us that are still there after so long."""
    deadline = time.monotonic() + seconds
    while True:
        left = support.descendants(os.getpid())
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.005)


def hold(scratch):
    """Starts an engine that has runs under way until it is killed; in a directory of its own, as it leaves files there then."""
    place = tempfile.mkdtemp(dir=scratch)
    os.mkdir(os.path.join(place, "data"))
    return subprocess.Popen(words("hold", place), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=support.engine_env())


def sweep(before):
    assert support.run("-c", "print('swept')").stdout == b"swept\n"
    assert support.live_runs() + support.dead_runs() == [], "the next start sweeps state"
    assert groups() <= before, "the next start sweeps control groups"


def test_killed_parts(show, scratch):
    """SIGKILL of the engine's processes, one after the other and several at once, with runs under way."""
    said = soak(show, "kills", scratch, "--kills", str(KILLS))
    assert int(re.search(r"kills: (\d+) runs", said)[1]) > KILLS / 2, "hardly any run was under way"
    assert not support.live_runs() and not support.dead_runs()
    assert not groups()


def test_flat(show, scratch):
    """What an engine has does not grow with the runs that it has done."""
    soak(show, "flat", scratch, "--runs", str(RUNS), "--samples", str(SAMPLES))
    assert not support.live_runs() and not support.dead_runs()


def test_sessions(show, scratch):
    """The same among sessions: their cells, copies and ends."""
    said = soak(show, "sessions", scratch, "--image", "python", "--kills", str(SESSION_KILLS), "--pool", "2")
    assert int(re.search(r"sessions: (\d+) opened", said)[1]) > 4, "hardly any session was open"
    assert not support.live_runs() and not support.dead_runs()
    assert not groups()


def test_hostile_workers(show, scratch):
    """Programs that write anything to hutch's descriptor, or close it, or fork and die, among innocent ones."""
    soak(show, "hostile", scratch, "--runs", str(HOSTILE))


def test_killed_engine(show, scratch):
    """SIGKILL of the process that has the engine: in its first moments, and with runs under way. All its processes go at once, the rest
    when somebody starts again."""
    rng = random.Random(SEED)
    before, swept, slowest, under_way = groups(), 0, 0.0, 0
    mounts = open("/proc/self/mountinfo", encoding="utf-8").read()
    for number in range(ENGINE_KILLS):
        engine = hold(scratch)
        try:
            if number % 2:
                while engine.stdout.readline() not in (b"ready\n", b""):
                    pass
                under_way += 1
            time.sleep(rng.uniform(0, 0.3 if number % 2 else 0.6))  # the moment is what is under test
            assert engine.poll() is None, "the engine ended by itself: %r" % engine.stdout.read()
        finally:
            engine.send_signal(signal.SIGKILL)
        killed = time.monotonic()
        left = left_behind(30)
        slowest = max(slowest, time.monotonic() - killed)
        engine.wait()
        engine.stdout.close()
        assert not left, "kill %d (seed %d) left %r" % (
            number, SEED, [support.comm(pid) for pid in left])
        reap()
        swept += bool(support.dead_runs() or groups() - before)
        if number % 5 == 4:
            sweep(before)
    assert swept > 0, "no kill left anything to sweep"
    assert open("/proc/self/mountinfo", encoding="utf-8").read() == mounts
    show("killed engines: %d, %d of them with runs under way; all processes gone after at most %.0f ms"
         % (ENGINE_KILLS, under_way, slowest * 1e3))


def test_swept_by_an_engine(scratch):
    """What one engine left, the next engine sweeps; one that lives is left alone."""
    before = groups()
    alive = hold(scratch)
    try:
        while alive.stdout.readline() not in (b"ready\n", b""):
            pass
        for _ in range(3):
            dead = hold(scratch)
            while dead.stdout.readline() not in (b"ready\n", b""):
                pass
            assert len(support.live_runs()) == 2
            dead.kill()
            dead.wait()
            dead.stdout.close()
            assert len(support.live_runs()) == 1
        assert alive.poll() is None, "an engine cannot bear another's death"
    finally:
        alive.kill()
        alive.wait()
        alive.stdout.close()
    assert not left_behind(30)
    reap()
    sweep(before)
