"""The lanes: what runs in each of them, as whom, for how long, and what came of it."""
import collections
import concurrent.futures
import copy
import json
import os
import platform
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import machine
import unsteady
from common import PYTHON, TREE, say
from scratch import FUZZ_BUILD

LANES = ("unit", "fuzz", "e2e", "hostile", "warm", "kill", "soak", "uml", "workers", "images")
LANE_SECONDS = {"unit": 600, "e2e": 2700, "hostile": 900, "warm": 900, "kill": 600, "soak": 600, "uml": 900, "workers": 3600,
                "images": 7200}
if os.environ.get("HUTCH_SOAK") == "full":
    LANE_SECONDS["soak"] = 5 * 3600
FUZZ_SECONDS = int(os.environ.get("HUTCH_FUZZ_SECONDS") or 5)
# The same inputs in each `make check-full`, as far as the time goes; `make fuzz` draws others.
FUZZ_SEED = [] if os.environ.get("HUTCH_FUZZ_SECONDS") else ["-seed=1"]
FUZZ_PATIENCE = 120 * (1 + FUZZ_SECONDS // 60)  # seconds besides, for the start, one slow input and a report
FUZZ_AT_ONCE = 2
# What a target begins with, besides tests/fuzz/seeds/NAME.
FUZZ_SEEDS = {"policy": "policies", "seccomp_profile": "policies", "notebook": "tests/notebooks", "batch_source": "tests/e2e/batch"}

# What sanitizers make of a program's speed.
SLOWER = 4 if any("asan" in word for word in sys.argv[1:] if word.startswith("B=")) else 1
LANE_SECONDS = {lane: SLOWER * seconds for lane, seconds in LANE_SECONDS.items()}
# What runs a second time by way of an engine: hutch run --warm.
WARM = ("e2e/test_run.py", "e2e/test_limits.py", "e2e/test_result.py", "e2e/test_jobs.py", "e2e/test_policy.py", "hostile/test_hostile.py")
AT_ONCE = {"e2e": 4, "hostile": 2, "warm": 2, "workers": 3}  # groups of tests, see conftest.py: they mostly wait
UNIT_AT_ONCE = 2
UNIT_SECONDS = 240 * SLOWER
AGAIN_SECONDS = 300 * SLOWER  # for one test that is run again


class Row:
    """One line of the table at the end."""

    def __init__(self, lane, who):
        self.lane, self.who = lane, who
        self.passed = self.failed = self.skipped = self.probes = self.controls = 0
        self.seconds = 0.0
        self.cpu = None  # seconds of processors, where somebody counts them
        self.costs = {}  # by the name of a file: its seconds, and those of processors or None
        self.files = {}  # of pytest's: as conftest.py counts them
        self.skips = []
        self.notes = []
        self.failures = []  # tests that can be run again: unsteady.Failure
        self.unsteady = []  # those of them that passed then

    def fail(self, why):
        self.failed += 1
        self.notes.append(why)

Ended = collections.namedtuple("Ended", "status output cpu")  # the status is None where the time was over
ENDING = threading.Event()  # the run is told to stop: what waits for a command kills it, and no lane begins


def bounded(words, seconds, **options):
    """Runs a command in a session of its own; when the time is over, its process group is killed."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(words, start_new_session=True, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                   **options)
        in_time = await_end(process.pid, seconds)
        if not in_time:
            os.killpg(process.pid, signal.SIGKILL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read().decode("utf-8", "replace")
    return Ended(process.returncode if in_time else None, text, usage.ru_utime + usage.ru_stime)


def await_end(pid, seconds):
    """Whether the process has ended within the time."""
    deadline = time.monotonic() + seconds
    fd = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        while not poll.poll(1000):
            if ENDING.is_set() or time.monotonic() > deadline:
                return False
        return True
    finally:
        os.close(fd)


def fuzz_seeds(scratch, name):
    """The directories of inputs that a fuzz target begins with."""
    paths = [os.path.join(scratch.tree, path) for path in ("tests/fuzz/seeds/" + name, FUZZ_SEEDS.get(name, "")) if path]
    return [path for path in paths if os.path.isdir(path)]


def unit_lane(scratch, identity, row, only=()):
    """@only: ROOM/PROGRAM of those that run; () for all."""
    names = sorted("%s/%s" % (room, name) for room in os.listdir(scratch.unit) for name in os.listdir(os.path.join(scratch.unit, room)))
    names = [name for name in names if not only or name in only]
    environment = dict(identity.environment(scratch), CMOCKA_MESSAGE_OUTPUT="STDOUT",
                       HUTCH_LAUNCHER=os.path.join(scratch.path, "installed/usr/local/libexec/hutch-launcher"),
                       HUTCH_HELPER=os.path.join(scratch.programs, "helper.so"),
                       HUTCH_MUSL_ZYGOTE=os.path.join(scratch.programs, "musl_zygote"))
    if not names:
        row.fail("no unit tests were built (make unit)")
    def run(name):
        room, _, program = name.partition("/")
        words = [os.path.join(scratch.unit, name), *(fuzz_seeds(scratch, program) if room == "replay" else ())]
        return bounded(identity.prefix() + words, UNIT_SECONDS, cwd=scratch.tree, env=environment)

    pool = concurrent.futures.ThreadPoolExecutor(UNIT_AT_ONCE)
    outcomes = {pool.submit(run, name): name for name in names}
    for outcome in concurrent.futures.as_completed(outcomes):
        name, (status, output, cpu) = outcomes[outcome], outcome.result()
        row.cpu = (row.cpu or 0) + cpu
        counts = {word: sum(int(n) for n in re.findall(r"\[ +%s +\] (\d+) test" % word, output))
                  for word in ("PASSED", "FAILED", "SKIPPED")}
        row.passed += counts["PASSED"]
        row.failed += counts["FAILED"]
        row.skipped += counts["SKIPPED"]
        row.skips += ["%s: %s" % (name, test) for test in re.findall(r"\[ +SKIPPED +\] (\w+)\n", output)]
        if status == 77:
            row.skipped += 1
            row.skips.append("%s: %s" % (name, output.strip().split("\n")[-1]))
        elif status != 0:
            row.failed -= counts["FAILED"]  # the program is what runs again
            text = "no end within %d s" % UNIT_SECONDS if status is None else "exit status %d" % status
            row.fail("%s: %s" % (name, text))
            row.failures.append(unsteady.Failure(name, text, lambda name=name: run(name).status == 0, note=row.notes[-1]))
            print(output, flush=True)
    row.skips.sort()


def fuzz_target(scratch, identity, name):
    """Runs one target. None, or what it found: a sentence with the place of the input and how to run it again."""
    folder = os.path.join(identity.temporary, "fuzz-" + name)
    found, corpus = os.path.join(folder, "found"), os.path.join(folder, "corpus")
    for path in (folder, found, corpus):
        os.mkdir(path, 0o755)
        if identity.uid != os.geteuid():
            os.chown(path, identity.uid, identity.gid)
    words = [os.path.join(scratch.fuzz, name), "-max_total_time=%d" % FUZZ_SECONDS, *FUZZ_SEED, "-max_len=8192", "-timeout=20",
             "-rss_limit_mb=2048", "-artifact_prefix=" + found + "/", corpus, *fuzz_seeds(scratch, name)]
    status, output, _ = bounded(identity.prefix() + words, FUZZ_SECONDS + FUZZ_PATIENCE, cwd=scratch.tree,
                                env=identity.environment(scratch))
    if status == 0:
        return None
    print(output[-16000:], flush=True)
    why = re.findall(r"^(?:SUMMARY: |==\d+== ?ERROR: )(.*)", output, re.MULTILINE)
    says = "%s: %s" % (name, why[-1] if why else "no end in time" if status is None else "exit status %d" % status)
    for input_name in sorted(os.listdir(found)):
        kept = os.path.join(scratch.findings, "%s-%s" % (name, input_name))
        os.makedirs(scratch.findings, exist_ok=True)
        shutil.copyfile(os.path.join(found, input_name), kept)
        says += "; again: %s %s" % (os.path.relpath(os.path.join(FUZZ_BUILD, name), TREE), kept)
    say(says)
    return says


def fuzz_lane(scratch, identity, row):
    names = sorted(os.listdir(scratch.fuzz)) if os.path.isdir(scratch.fuzz) else ()
    if not names:
        row.skipped = 1
        row.skips = ["fuzz: no clang with libFuzzer has built the targets (make fuzz-targets)"]
        if os.environ.get("HUTCH_STRICT_TESTS") == "1":
            row.fail("strict: " + row.skips[0])
    pool = concurrent.futures.ThreadPoolExecutor(FUZZ_AT_ONCE)
    for why in pool.map(lambda name: fuzz_target(scratch, identity, name), names):
        if why:
            row.fail(why)
        else:
            row.passed += 1


def pytest_lane(scratch, identity, row, words_of_pass):
    environment = identity.environment(scratch)
    tests = os.path.join(scratch.tree, "tests")
    counts_path = environment["HUTCH_TEST_COUNTS"] = os.path.join(identity.temporary, "counts-%s.json" % row.lane)
    if os.path.exists(counts_path):
        os.unlink(counts_path)
    words = [PYTHON, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", "--no-summary", "--rootdir", scratch.tree,
             "--basetemp", os.path.join(identity.temporary, row.lane)]
    alone = words[:]
    if row.lane in AT_ONCE:
        words += ["-n", str(AT_ONCE[row.lane]), "--dist", "loadgroup"]
    if row.lane == "workers":
        environment["HUTCH_TEST_WORKERS"] = "2"
    if row.lane == "warm":
        environment["HUTCH_WARM"] = "1"
        words += [os.path.join(tests, name) for name in WARM] + ["-k", "not test_control"]
    elif not any(word.startswith("{tests}") for word in words_of_pass):
        words += [os.path.join(tests, row.lane)]
    words += [word.format(tests=tests) for word in words_of_pass]
    status, output, row.cpu = bounded(identity.prefix() + words, LANE_SECONDS[row.lane], cwd=identity.home, env=environment)
    print(output, end="", flush=True)
    try:
        with open(counts_path, encoding="utf-8") as file:
            counts = json.load(file)
    except (OSError, ValueError):
        counts = {}
    for name in ("passed", "failed", "skipped", "probes", "controls", "skips", "files", "costs"):
        setattr(row, name, counts.get(name, getattr(row, name)))
    for name, when, text in counts.get("failures", ()):
        def again(path=os.path.join(scratch.tree, name)):
            done = bounded(identity.prefix() + alone + [path], min(LANE_SECONDS[row.lane], AGAIN_SECONDS), cwd=identity.home,
                           env=dict(environment, HUTCH_TEST_COUNTS=""))
            if done.status != 0:
                print(done.output[-8000:], flush=True)
            return done.status == 0
        row.failures.append(unsteady.Failure(name, text, again, when))
    if status is None:
        row.fail("not done within %d s" % LANE_SECONDS[row.lane])
    elif status != 0 and not row.failed:
        row.fail("pytest ended with status %d" % status)
    elif not row.passed and not row.skipped and not row.failed:
        row.fail("no test ran")
    subprocess.run(["chmod", "-R", "u+rwx", os.path.join(identity.temporary, row.lane)], stderr=subprocess.DEVNULL, check=False)
    subprocess.run(["rm", "-rf", os.path.join(identity.temporary, row.lane)], check=False)


def run_lane(scratch, identity, lane, words=(), label=None):
    """@words: which part of it, for pytest; of the lane unit, the names of programs."""
    row = Row(lane, label or identity.label)
    say("---- %s as %s begins" % (lane, row.who))
    started, cpu = time.monotonic(), identity.cpu()
    if lane == "unit":
        unit_lane(scratch, identity, row, words)
    elif lane == "fuzz":
        fuzz_lane(scratch, identity, row)
    else:
        pytest_lane(scratch, identity, row, words)
    for why in identity.left():
        row.fail(why)
    row.seconds = time.monotonic() - started
    if cpu is not None:
        row.cpu = identity.cpu() - cpu
    say("---- %s as %s: %d passed, %d failed, %d skipped in %.0f s"
        % (lane, row.who, row.passed, row.failed, row.skipped, row.seconds))
    return row


def uml_rows(scratch, identity, folder, is_full):
    """The lane in each kernel that boots, or in the best. A row for each, and one for each that does not."""
    if platform.machine() != "x86_64":
        row = skipped_row("uml", "kernel", "uml: user-mode Linux exists for x86 only")
        if os.environ.get("HUTCH_STRICT_TESTS") == "1":
            row.fail("strict: " + row.skips[0])
        return [row]
    rows = []
    n_booted = 0
    for kernel in machine.find(folder, build=is_full):
        release = kernel.program and machine.probe(kernel, identity.temporary)
        if not release:
            rows.append(skipped_row("uml", kernel.name, "uml: the kernel '%s' %s" % (kernel.name, kernel.reason)))
            say("uml: the kernel '%s' %s" % (kernel.name, kernel.reason))
            continue
        n_booted += 1
        kernel_identity = copy.copy(identity)
        kernel_identity.variables = {"HUTCH_UML_KERNEL": kernel.program, "HUTCH_UML_MODULES": kernel.modules}
        rows.append(run_lane(scratch, kernel_identity, "uml", label="%s %s" % (kernel.name, release)))
        if not is_full:
            break
    if not n_booted:
        rows.append(Row("uml", "kernel"))
        rows[-1].fail("no kernel boots")
    return rows


def skipped_row(lane, who, why):
    row = Row(lane, who)
    row.skipped = 1
    row.skips = [why]
    return row
