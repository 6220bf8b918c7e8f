"""hutch dies by SIGKILL at any moment: nothing of the sandbox runs on, and the next start sweeps what lies
about. Two hundred times (thirty-two in `make check`), at moments spread over the setup, the start of Python and the run; and then hutch with an
engine in it, and the engine's own processes."""
import contextlib
import os
import random
import signal
import subprocess
import time

import pytest

import engine
import full
import support
from support import comm, command, run

TIMES = {"cold": 32, "warm": 32} if full.IS_SHORT else {"cold": 200, "warm": 80}
SEED = int(os.environ.get("HUTCH_TEST_SEED", "20240607"))

# Writes files, and leaves daemons in sessions of their own that do the same.
SCRIPT = """
import os, signal, time
print('started', flush=True)
for number in range(4):
    if os.fork() == 0:
        os.setsid()
        for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(s, signal.SIG_IGN)
        break
else:
    number = 'parent'
end = time.monotonic() + 30
while time.monotonic() < end:
    open('/mnt/data/f-%s' % number, 'a').write('x' * 100)
    open('/tmp/f-%s' % number, 'a').write('x' * 100)
"""


@pytest.fixture(autouse=True, scope="module")
def subreaper():
    """Orphans of a killed hutch become children of this process, so none can hide."""
    support.become_subreaper()


def groups():
    """Control groups beside and below our own."""
    own = support.own_cgroup()
    if own is None or own == support.cgroup2_mount():
        return set()  # nothing is delegated to us, and what is there is other people's
    top = os.path.dirname(own)
    return {os.path.join(parent, name) for parent, names, _ in os.walk(top) for name in names}


def reap():
    """Takes the zombies that fell to us."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return


def wait_until_alone(seconds=10):
    """Returns the processes below us that are still there after @seconds."""
    deadline = time.monotonic() + seconds
    while True:
        left = support.descendants(os.getpid())
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.002)


def start(*args, stdout=subprocess.PIPE):
    return subprocess.Popen(command(*args), stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.DEVNULL)


def typical_start(*options):
    """Seconds until a script of this image speaks: the unit of the moments below."""
    times = []
    for _ in range(3):
        begin = time.monotonic()
        process = start(*options, "-c", "print(1)")
        process.stdout.readline()
        times.append(time.monotonic() - begin)
        process.communicate()
    return sorted(times)[1]


def moments(unit, times):
    """Whether Python has spoken before, and a seeded delay: half in the first 60 ms, a quarter over the time until Python speaks, and a
    quarter after that."""
    rng = random.Random(SEED)
    for number in range(times):
        yield number % 4 == 3, (rng.uniform(0, 0.060), rng.uniform(0, 0.060), rng.uniform(0, unit), rng.uniform(0, 0.1))[number % 4]


@pytest.mark.parametrize("path", TIMES)
def test_killed_many_times(data, path, policy):
    """With directories on disk, of which there is something to sweep."""
    options = ["--warm"] * (path == "warm") + ["--policy", policy(data_place="disk")]
    assert run("-c", "pass").returncode == 0
    before_groups, before_mounts = groups(), open("/proc/self/mountinfo", encoding="utf-8").read()
    temporary = set(os.listdir(os.environ.get("TMPDIR", "/tmp")))
    early = late = swept = 0
    for number, (has_spoken, delay) in enumerate(moments(typical_start(*options), TIMES[path])):
        # With a directory of the caller's, or with a fresh one that is the run's own.
        process = start(*options, *(("--data", str(data)) if number % 2 else ()), "-c", SCRIPT)
        said = process.stdout.readline() if has_spoken else b""
        time.sleep(delay)  # the moment is what is under test; nothing is expected of it
        process.kill()
        rest = process.stdout.read() if not wait_until_alone(0) else None
        process.wait()
        left = wait_until_alone()
        assert not left, "kill %d after %.4f s (seed %d) left %r" % (
            number, delay, SEED, [support.comm(pid) for pid in left])
        said += process.stdout.read() if rest is None else rest
        process.stdout.close()
        reap()
        if b"started" in said:
            late += 1
        else:
            early += 1
        swept += bool(support.dead_runs())
        if number % 10 == 9:
            assert run("-c", "print('swept')").stdout == b"swept\n"
            assert support.live_runs() + support.dead_runs() == [], "the next start sweeps state"
            assert groups() <= before_groups, "the next start sweeps control groups"
    assert early > 3 and late > 3, "all kills hit one phase: %d before the script, %d after" % (early, late)
    assert swept > 0, "no kill left anything to sweep"
    assert open("/proc/self/mountinfo", encoding="utf-8").read() == before_mounts
    assert set(os.listdir(os.environ.get("TMPDIR", "/tmp"))) - temporary == set() or not os.environ.get("TMPDIR")


def test_killed_with_fresh_directory():
    """Without --data the directory belongs to the run, and goes with it; results that were kept stay."""
    outputs = os.path.join(support.hutch_home(), "outputs")
    kept = set(os.listdir(outputs)) if os.path.isdir(outputs) else set()
    for _ in range(5):
        process = start("-c", SCRIPT)
        assert process.stdout.readline() == b"started\n"
        process.kill()
        process.wait()
        process.stdout.close()
        assert not wait_until_alone()
    assert run("-c", "pass").returncode == 0
    assert support.live_runs() + support.dead_runs() == []
    assert (set(os.listdir(outputs)) if os.path.isdir(outputs) else set()) == kept


def test_sweep_spares_the_living():
    """A run that lives is not what the next start sweeps."""
    alive = subprocess.Popen(command("-c", "open('/mnt/data/x', 'w').write('x'); print('ready', flush=True); input();"
                                           "print(open('/mnt/data/x').read())"),
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert alive.stdout.readline() == b"ready\n"
    dead = start("-c", SCRIPT)
    assert dead.stdout.readline() == b"started\n"
    assert len(support.live_runs()) == 2
    dead.kill()
    dead.wait()
    dead.stdout.close()
    assert run("-c", "print(1)").stdout == b"1\n"
    assert len(support.live_runs()) == 1 and support.dead_runs() == []
    output, _ = alive.communicate(b"\n", timeout=30)
    assert output == b"x\n" and alive.returncode == 0
    assert support.live_runs() + support.dead_runs() == []


def test_many_sweep_at_once():
    """Twelve starts at once over the remains of eight: each works, and the remains are gone."""
    dead = [start("-c", SCRIPT) for _ in range(8)]
    for process in dead:
        assert process.stdout.readline() == b"started\n"
    for process in dead:
        process.kill()
    for process in dead:
        process.wait()
        process.stdout.close()
    assert not wait_until_alone()
    together = [start("-c", "print(1)") for _ in range(12)]
    for process in together:
        assert process.communicate(timeout=60)[0] == b"1\n"
        assert process.returncode == 0
    assert support.live_runs() + support.dead_runs() == []


def test_init_killed_from_outside():
    """Somebody kills the sandbox's init instead: hutch says so, and ends."""
    process = subprocess.Popen(command("-c", "print('ready', flush=True)\nimport time; time.sleep(60)"), stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    inits = [pid for pid in support.descendants(process.pid) if len(nspid(pid)) > 1 and nspid(pid)[-1] == "1"]
    try:
        assert len(inits) == 1, inits
        os.kill(inits[0], signal.SIGKILL)
        _, errors = process.communicate(timeout=30)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode in (125, 137), process.returncode
    assert errors.startswith(b"hutch: "), errors
    assert not wait_until_alone()
    assert support.live_runs() + support.dead_runs() == []


def nspid(pid):
    """The pids of a process from our namespace down to its own; none of one that has ended meanwhile."""
    try:
        with open("/proc/%d/status" % pid, encoding="utf-8", errors="replace") as status:
            return next((line.split()[1:] for line in status if line.startswith("NSpid:")), [])
    except (FileNotFoundError, ProcessLookupError):
        return []


def test_stopped_hutch_is_killed():
    """A hutch that was stopped first, as a debugger or a full disk would have it."""
    process = start("-c", SCRIPT)
    assert process.stdout.readline() == b"started\n"
    process.send_signal(signal.SIGSTOP)
    process.kill()
    process.wait()
    process.stdout.close()
    assert not wait_until_alone()


def test_odd_state(tmp_path):
    """A run directory that somebody made unreadable, or that holds odd things, does not stop the next start."""
    folder = os.path.join(support.hutch_home(), "runs")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    assert run("-c", "pass").returncode == 0  # what other tests left in the slot is swept first
    odd = os.path.join(folder, "0.data")
    support.remove_tree(odd)
    os.makedirs(os.path.join(odd, "deep", "er"))
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").write_text("of the caller's")
    os.symlink(victim, os.path.join(odd, "link"))
    os.mkfifo(os.path.join(odd, "fifo"))
    os.chmod(os.path.join(odd, "deep", "er"), 0)
    os.chmod(os.path.join(odd, "deep"), 0)
    with open(os.path.join(folder, "0"), "w", encoding="ascii") as slot:
        slot.write("/sys/fs/cgroup/../../../%s\n../victim\n" % victim)  # a note that a bad disk changed
    done = run("-c", "print(1)")
    assert (done.returncode, done.stdout) == (0, b"1\n"), done.stderr
    assert (victim / "file").read_text() == "of the caller's", "the sweep followed a link"
    assert support.live_runs() + support.dead_runs() == []


# --------------------------------------------------------------------------------------------------
# The engine's own processes

def helpers(below):
    """(opener, anchor) of the engine of process @below, as far as they are there."""
    table, openers = support.process_table(), support.openers(below)
    anchors = [pid for pid, (parent, _) in table.items() if parent in openers and comm(pid) in ("hutch-anchor", "hutch-launcher")]
    return openers[:1], anchors[:1]


@pytest.mark.parametrize("who", ["opener", "anchor"])
def test_engine_loses_everything(who):
    """With the opener or the anchor goes all that the engine has, at any moment: each run has one result, and the engine
    starts anew. What it was in the middle of is begun again, or is over and says so."""
    rng = random.Random(SEED)
    before = support.descendants(os.getpid())
    with engine.Engine(max_running=3, zygotes=(("bare", None, (), 2, 4),)) as warm:
        for _ in range(12):
            runs = [warm.submit("import time; time.sleep(0.02); print(1)") for _ in range(6)]
            deadline = time.monotonic() + rng.uniform(0, 0.12)
            while time.monotonic() < deadline:
                warm.dispatch(0.002)
            send_all(helpers(os.getpid())[who == "anchor"], signal.SIGKILL)
            results = warm.wait(*runs)
            assert all(run.results == 1 for run in runs)
            for result in results:
                assert (result["verdict"], result["stdout"]) in (("ok", "1\n"), ("killed", ""), ("killed", "1"), ("killed", "1\n")), result
        # What was killed last may still be dying, and a run with it.
        assert any(warm.run("print('works')")["stdout"] == "works\n" for _ in range(5))
        warm.settle()
    deadline = time.monotonic() + 30  # what is killed at the end is gone when the kernel has torn it down
    while support.descendants(os.getpid()) - before and time.monotonic() < deadline:
        reap()
        time.sleep(0.01)
    assert not support.descendants(os.getpid()) - before
    assert run("-c", "print(1)").stdout == b"1\n"
    assert support.live_runs() + support.dead_runs() == []


@pytest.mark.parametrize("who", ["opener", "anchor"])
def test_run_loses_everything(who):
    """The same for a program in the middle of its work: hutch says that it was killed, and leaves nothing."""
    process = subprocess.Popen(command("--warm", "-c", "print('ready', flush=True)\nimport time; time.sleep(60)"), stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    send_all(helpers(process.pid)[who == "anchor"], signal.SIGKILL)
    _, errors = process.communicate(timeout=30)
    assert process.returncode in (125, 137), process.returncode
    assert errors.startswith(b"hutch: "), errors
    assert not wait_until_alone()
    assert support.live_runs() + support.dead_runs() == []


# --------------------------------------------------------------------------------------------------
# Helper processes that hang: SIGSTOP is the nearest to it that a test can send

ANSWER_MS, SETUP_MS = 5000, 15000


def all_helpers(warm):
    """{what: pids} of what the engine has in this process asks for answers."""
    openers, anchors = helpers(os.getpid())
    table = support.process_table()
    disks = [pid for pid, (parent, _) in table.items() if parent in openers and comm(pid) == "hutch-disk"]
    stats = warm.stats()
    launchers = [stats["launcher_pid"]] * (stats["launcher_pid"] > 0)
    zygotes = [pid for pid, (parent, _) in table.items() if parent in launchers + anchors + [stats["zygotes"][0]["pid"]] and
               comm(pid).startswith("python") and len(nspid(pid)) == len(nspid(launchers[0] if launchers else 0))]
    return {"opener": openers, "anchor": anchors, "disk": disks, "launcher": launchers, "zygote": zygotes}


def dispatch_for(warm, seconds):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        warm.dispatch(0.05)


def send_all(pids, sig):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # one that a zygote forks a worker by ends by itself
            os.kill(pid, sig)


@pytest.mark.parametrize("who", ["zygote", "launcher", "opener"])
def test_engine_survives_a_helper_that_hangs(who, tmp_path):
    """A helper that is stopped is killed and replaced, the zygote together with its spare; runs whose code has not begun
    find out nothing, and the statistics say what happened."""
    with engine.Engine(max_running=3, answer_ms=ANSWER_MS, setup_ms=SETUP_MS) as warm:
        warm.settle()
        data = {"data_dir": tmp_path} if who == "opener" else {}  # what the opener is asked for
        victims = all_helpers(warm)[who]
        assert victims
        send_all(victims, signal.SIGSTOP)
        runs = [warm.submit("print(1)", **data) for _ in range(12)]
        for result in warm.wait(*runs):
            assert (result["verdict"], result["stdout"]) == ("ok", "1\n"), result
        stats = warm.settle()
        assert stats["hung"] >= 1
        assert stats["lost_zygotes" if who == "zygote" else "lost_launchers"] >= 1
        assert not set(victims) & set(sum(all_helpers(warm).values(), [])), "the one that hung is still in its place"
        warm.until(lambda: not [pid for pid in victims if comm(pid) and state_of(pid) != "Z"], what="the end of the one that hung")
    reap()


def test_a_spare_that_hangs_while_it_starts(tmp_path):
    """It takes the place of a zygote that hangs, too, and runs wait no longer for it than for the first: its start has
    no more time than an answer."""
    with engine.Engine(max_running=1, answer_ms=ANSWER_MS, setup_ms=SETUP_MS) as warm:
        for _ in range(4):
            warm.settle()
            zygote = warm.stats()["zygotes"][0]["pid"]
            spares = set(all_helpers(warm)["zygote"]) - {zygote}
            send_all(spares, signal.SIGKILL)
            warm.until(lambda: set(all_helpers(warm)["zygote"]) - {zygote} - spares)
            send_all(set(all_helpers(warm)["zygote"]) - spares, signal.SIGSTOP)
            for result in warm.wait(*[warm.submit("print(1)") for _ in range(4)]):
                assert (result["verdict"], result["stdout"]) == ("ok", "1\n"), result
    reap()


@pytest.mark.parametrize("blow", [signal.SIGSTOP, signal.SIGKILL])
def test_a_look_at_files_that_is_lost(blow, tmp_path):
    """Many files are counted and listed by the disk worker. Where that hangs or is killed, no limit is off, and no list is
    missing."""
    code = "for n in range(900): open('f%d' % n, 'w').close()\nprint('made', flush=True)\n"
    with engine.Engine(max_running=3, answer_ms=ANSWER_MS, setup_ms=SETUP_MS) as warm:
        warm.settle()
        send_all(all_helpers(warm)["disk"], blow)
        over = warm.submit(code + "import time; time.sleep(60)", data_files=800)
        within = warm.submit(code, data_dir=tmp_path)
        over, within = warm.wait(over, within)
        assert over["verdict"] == "output_limit", over
        assert (within["verdict"], len(within["files"]["added"])) == ("ok", 900), within
        assert blow == signal.SIGKILL or warm.stats()["hung"] == 1, "nobody had asked it"
    reap()


def test_sandboxes_of_a_launcher_that_died(tmp_path, policy):
    """A run waits for its directory when the launcher dies, with a pool that was built after the run was handed in: none
    of those sandboxes can be given a directory, and none counts as an attempt. With host ids of their own, or with
    directories in memory, none is built while the opener is stopped."""
    shared = policy("default", layers={"own_uid": "off"}, data_place="disk")
    with engine.Engine(max_running=8, zygotes=(("bare", None, (), 6, 6),), setup_ms=SETUP_MS, policy=shared) as warm:
        warm.settle()
        openers = all_helpers(warm)["opener"]
        send_all(openers, signal.SIGSTOP)
        waits = warm.submit("print(open('kept').read())", data_dir=tmp_path)
        (tmp_path / "kept").write_text("kept")
        assert all(result["verdict"] == "ok" for result in warm.wait(*[warm.submit("print(1)") for _ in range(6)]))
        warm.until(lambda: warm.stats()["zygotes"][0]["prepared"] == 6)
        os.kill(warm.stats()["launcher_pid"], signal.SIGKILL)
        warm.until(lambda: warm.stats()["lost_launchers"] == 1)
        send_all(openers, signal.SIGCONT)
        result = warm.wait(waits)
        assert (result["verdict"], result["stdout"], result["restarts"]) == ("ok", "kept\n", 1), result
    reap()


def test_a_look_at_files_that_goes_with_the_opener(tmp_path):
    """The run is over, and its files are being listed."""
    with engine.Engine(max_running=3, setup_ms=SETUP_MS) as warm:
        warm.settle()
        found = all_helpers(warm)
        send_all(found["disk"], signal.SIGSTOP)
        run = warm.run_streaming("for n in range(900): open('f%d' % n, 'w').close()\nprint('made', flush=True)", word=b"made\n", data_dir=tmp_path)
        dispatch_for(warm, 2)  # by then it waits, as nothing else is left to do
        assert not run.results
        send_all(found["opener"], signal.SIGKILL)
        result = warm.wait(run)
        assert (result["verdict"], run.output[1], len(result["files"]["added"])) == ("ok", b"made\n", 900), result
    reap()


SHELL = {"max_running": 3, "setup_ms": SETUP_MS, "zygotes": (("shell", None, ("IPython", "ipykernel"), 2, 2),)}


@pytest.mark.parametrize("blow", [None, signal.SIGKILL])
def test_many_files_of_a_session(blow):
    """While the disk worker lists the files of one session, the other one has its answers. Where it is killed, no list is
    missing."""
    with engine.Engine("python", **SHELL) as warm, engine.Session(warm) as one, engine.Session(warm) as other:
        other.run("1")
        one.run("1")
        disks = all_helpers(warm)["disk"]
        assert disks
        send_all(disks, signal.SIGSTOP)
        waits = one.execute("for n in range(900): open('f%d' % n, 'w').close()\nprint('made')")
        warm.until(lambda: b"made" in waits.text())
        assert [other.printed("print(%d)" % n) for n in range(20)] == ["%d\n" % n for n in range(20)]
        assert waits.result is None and one.interrupt() == 0
        follows = one.execute("1")
        send_all(disks, blow or signal.SIGCONT)
        first, second = one.wait(waits, follows)
        assert (first["verdict"], engine.file_counts(first)) == ("ok", (900, 0, 0)), first
        assert (second["verdict"], engine.file_counts(second)) == ("ok", (0, 0, 0)), second
    reap()


@pytest.mark.parametrize("ends", ["close", "restart", "death", "death with a checkpoint"])
def test_a_session_that_ends_while_its_files_are_listed(ends):
    """The cell was over: its result says what it found."""
    with engine.Engine("python", **SHELL) as warm, engine.Session(warm) as one:
        one.run("import os, threading\nfor n in range(900): open('f%d' % n, 'w').close()")
        if "checkpoint" in ends:
            checkpoint = one.do("checkpoint")["id"]
        disks = all_helpers(warm)["disk"]
        send_all(disks, signal.SIGSTOP)
        dies = "threading.Timer(1.5, os._exit, [5]).start()\n" if "death" in ends else ""
        waits = one.execute(dies + "open('last', 'w').close()\nprint('made')")
        warm.until(lambda: b"made" in waits.text())
        dispatch_for(warm, 4 if dies else 0.6)  # by then it is dead
        assert waits.result is None
        if not dies:
            getattr(one, ends)()
        send_all(disks, signal.SIGCONT)
        result = one.wait(waits)
        assert (result["verdict"], result["interpreter_died"], engine.file_counts(result)) == ("ok", 0, (1, 0, 0)), result
        if "checkpoint" in ends:
            one.do("rollback", checkpoint)
        if ends != "close":
            result = one.run("import os; print(len(os.listdir('.')))")
            assert result["outputs"][0]["text"] == ("900\n" if "checkpoint" in ends else "901\n")
            assert engine.file_counts(result) == (0, 0, 0) and bool(result["is_fresh"]) == (ends == "death"), result
    reap()


@pytest.mark.parametrize("blow", [None, signal.SIGKILL])
def test_many_files_before_a_run(blow, tmp_path):
    """While the disk worker lists what lies in a directory of the caller's, other runs go on; the run begins when that is
    done, and where the disk worker is killed the list is not missing."""
    for n in range(900):
        (tmp_path / ("f%03d" % n)).write_text("before")
    with engine.Engine(max_running=3, setup_ms=SETUP_MS) as warm:
        warm.settle()
        disks = all_helpers(warm)["disk"]
        send_all(disks, signal.SIGSTOP)
        waits = warm.submit("import os; os.remove('f000'); open('f001', 'w').close(); print('ran')", data_dir=tmp_path)
        assert all(warm.run("print(1)")["verdict"] == "ok" for _ in range(5))
        assert waits.result is None and (tmp_path / "f000").exists(), "it has to wait"
        send_all(disks, blow or signal.SIGCONT)
        result = warm.wait(waits)
        assert (result["verdict"], result["stdout"], result["restarts"]) == ("ok", "ran\n", 0), result
        assert [len(result["files"][what]) for what in ("added", "modified", "deleted")] == [0, 1, 1], result["files"]
    reap()


def test_a_cell_that_died_is_not_timed_out_by_its_files():
    with engine.Engine("python", **SHELL) as warm, engine.Session(warm) as one:
        one.run("import os\nfor n in range(900): open('f%d' % n, 'w').close()")
        disks = all_helpers(warm)["disk"]
        send_all(disks, signal.SIGSTOP)
        waits = one.execute("open('last', 'w').close()\nprint('made', flush=True)\nos._exit(3)", timeout_ms=3000)
        warm.until(lambda: b"made" in waits.text())
        dispatch_for(warm, 4)
        assert waits.result is None and one.interrupt() == 0
        send_all(disks, signal.SIGCONT)
        result = one.wait(waits)
        assert (result["verdict"], result["was_interrupted"], engine.file_counts(result)) == ("error", 0, (1, 0, 0)), result
        assert "exit code 3" in result["message"], result
    reap()


def test_changes_of_the_caller_while_many_files_are_listed():
    """They are not the doing of the cell that waits for the list, and an interrupt is that cell's."""
    with engine.Engine("python", **SHELL) as warm, engine.Session(warm) as one:
        one.run("for n in range(900): open('f%d' % n, 'w').close()")
        with one.open_file("f0", os.O_WRONLY) as file:
            file.write(b"one")
        disks = all_helpers(warm)["disk"]
        send_all(disks, signal.SIGSTOP)
        waits = one.execute("while True: pass")
        dispatch_for(warm, 0.2)
        with one.open_file("f1", os.O_WRONLY) as file:
            file.write(b"two")
        assert one.interrupt() == 1
        send_all(disks, signal.SIGCONT)
        result = one.wait(waits)
        assert (result["error_name"], result["was_interrupted"], engine.file_counts(result)) == ("KeyboardInterrupt", 1, (0, 0, 0)), result
        assert engine.file_counts(one.run("open('f2', 'w').write('x')")) == (0, 1, 0)
    reap()


def state_of(pid):
    try:
        with open("/proc/%d/stat" % pid, encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return ""


FREE_SECONDS = 20  # two are promised; the rest is for a machine that has other things to do


def test_closed_while_everything_hangs():
    """An engine all of whose helpers are stopped ends in a moment, and none of them outlives it."""
    for stopped in (("opener",), ("disk",), ("opener", "anchor", "disk", "launcher", "zygote")):
        warm = engine.Engine(max_running=3)
        try:
            warm.run_streaming("print('ready', flush=True)\nimport time; time.sleep(60)")
            found = all_helpers(warm)
            for who in stopped:
                assert found[who], who
                send_all(found[who], signal.SIGSTOP)
            begin = time.monotonic()
        finally:
            warm.close()
        assert time.monotonic() - begin < FREE_SECONDS, stopped
        reap()
        assert not wait_until_alone(), stopped
    assert run("-c", "print(1)").stdout == b"1\n"
    assert support.live_runs() + support.dead_runs() == []


def test_helpers_hang_at_any_moment(tmp_path):
    """Whichever is stopped, and whenever: each run has one result, and what the engine was stopped in is over or begun
    again. Only with the opener do runs end that have begun."""
    rng = random.Random(SEED)
    with engine.Engine(max_running=3, answer_ms=ANSWER_MS, setup_ms=SETUP_MS) as warm:
        warm.settle()
        for who in rng.sample(["launcher", "zygote", "disk", "opener"], 4) + ["anchor"]:
            runs = [warm.submit("import time; time.sleep(0.02); print(1)", **({"data_dir": tmp_path} if number % 3 == 0 else {}))
                    for number in range(9)]
            deadline = time.monotonic() + rng.uniform(0, 0.12)
            while time.monotonic() < deadline:
                warm.dispatch(0.002)
            send_all(all_helpers(warm)[who], signal.SIGSTOP)
            for result in warm.wait(*runs):
                assert (result["verdict"], result["stdout"]) in (("ok", "1\n"), ("killed", ""), ("killed", "1"), ("killed", "1\n")), \
                    (who, result)
                assert result["verdict"] == "ok" or who in ("opener", "anchor"), (who, result)
            assert all(run.results == 1 for run in runs)
        assert any(warm.run("print('works')")["stdout"] == "works\n" for _ in range(5))
    reap()
    assert not wait_until_alone()
