"""hutch batch, from outside: formats, verdicts, cheats, resuming, and the real sets."""
import gzip
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time

import pytest

import support
from support import HUTCH, IMAGE, hutch, refused

OWN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "batch")
MUTATIONS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "batch_mutations.py")
HEX = re.compile(r"[0-9a-f]{32}")
KEYS = {"result", "passed", "completion_id", "verdict", "cpu_ms", "wall_ms", "retried", "hash"}
VERDICTS = ("pass", "wrong_answer", "runtime_error", "timeout", "memory_limit", "output_limit", "compile_error",
            "internal")


def batch(*args, code=0, **options):
    """hutch batch ARGS; its lines, each checked, and its standard error."""
    done = hutch("batch", "--image", IMAGE, "-j", "2", *[str(arg) for arg in args], **{"timeout": 200, **options})
    assert done.returncode == code, (done.returncode, done.stderr.decode())
    lines = [json.loads(line) for line in done.stdout.decode().splitlines()]
    for line in lines:
        check_line(line)
    return lines, done.stderr.decode()


def check_line(line):
    assert KEYS <= set(line), line
    assert line["verdict"] in VERDICTS
    assert HEX.fullmatch(line["hash"])
    assert line["passed"] is (None if line["verdict"] == "internal" else line["verdict"] == "pass")
    if line["verdict"] == "pass":
        assert line["result"] == "passed"
    elif line["verdict"] == "timeout":
        assert line["result"] == "timed out"
    else:
        assert line["result"].startswith("internal: " if line["verdict"] == "internal" else "failed: "), line


def own(name):
    return os.path.join(OWN, name)


def records(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def write_records(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def says_all_passed(summary, n):
    return summary.startswith("hutch: %d of %d passed\nhutch: pass@1 1.000000 (%d tasks)\n" % (n, n, n))


def many(tmp_path, count, code="print(1)"):
    return write_records(tmp_path / "tasks.jsonl", [{"id": "t%d" % i, "code": code} for i in range(count)])


# --------------------------------------------------------------------------------------------------
# Formats

@pytest.mark.parametrize("name, tasks", [("humaneval.jsonl", 5), ("mbpp.json", 4), ("mbpp.jsonl", 4)])
def test_own_solutions_pass(name, tasks):
    lines, summary = batch(own(name))
    assert [line["verdict"] for line in lines] == ["pass"] * tasks, lines
    assert says_all_passed(summary, tasks), summary


def test_challenge_tests():
    lines, _ = batch("--challenge", own("mbpp.jsonl"))
    got = {line["task_id"]: line["verdict"] for line in lines}
    assert got == {601: "pass", 602: "pass", 603: "pass", 604: "wrong_answer"}


def test_tests_with_a_lambda_run_together():
    lines, _ = batch(own("mbpp.jsonl"))
    assert [line["task_id"] for line in lines if line["judge"] == "together"] == [603]


def test_humaneval_samples():
    lines, summary = batch("--samples", own("humaneval_samples.jsonl"), "--k", "1,2,100", own("humaneval.jsonl"))
    samples = records(own("humaneval_samples.jsonl"))
    assert len(lines) == len(samples)
    for line, sample in zip(lines, samples):
        assert sample.items() <= line.items()  # the sample's own keys are carried through, in input order
        assert line["verdict"] == sample["want"], line
    by_task = {}
    for sample in samples:
        by_task.setdefault(sample["task_id"], []).append(sample["want"] == "pass")
    for k in (1, 2):
        scores = [1 - choose(len(ones) - sum(ones), k) / choose(len(ones), k) for ones in by_task.values()]
        assert "pass@%d %.6f (5 tasks)" % (k, sum(scores) / len(scores)) in summary
    assert "pass@100" not in summary  # no task has so many


def choose(n, k):
    product = 1
    for i in range(k):
        product = product * (n - i) // (i + 1)
    return product


def test_reference_keys_come_first():
    """What reads the reference runner's files finds its keys, in its order."""
    lines, _ = batch("--samples", own("humaneval_samples.jsonl"), own("humaneval.jsonl"))
    assert list(lines[0])[:2] == ["task_id", "completion"]
    reference = ["task_id", "completion", "result", "passed"]
    assert [key for key in lines[0] if key in reference] == reference


def test_stdio():
    lines, _ = batch(own("stdio.jsonl"))
    wanted = {task["id"]: task["want"] for task in records(own("stdio.jsonl"))}
    assert {line["id"]: line["verdict"] for line in lines} == wanted
    second = next(line for line in lines if line["id"] == "second")
    assert (second["cases"], second["score"]) == (["pass", "wrong_answer"], 0.333333)
    assert second["result"] == "failed: case 1: wrong answer"


def test_all_cases():
    lines, _ = batch("--all-cases", own("stdio.jsonl"))
    second = next(line for line in lines if line["id"] == "second")
    assert (second["cases"], second["score"]) == (["pass", "wrong_answer", "pass"], 0.666667)


def test_generic():
    lines, _ = batch(own("generic.jsonl"))
    wanted = {task["id"]: task["metadata"]["want"] for task in records(own("generic.jsonl"))}
    got = {line["id"]: line["verdict"] for line in lines}
    assert got == wanted
    shell = next(line for line in lines if line["id"] == "shell")
    assert (shell["exit_code"], shell["signal"], shell["stdout"]) == (2, None, "in arg\n")


def test_data_science_programs(tmp_path):
    rows = [{"id": "numpy", "code": "import numpy as np\n\n\ndef f(n):\n    return np.arange(n).cumsum()\n",
             "tests": "import numpy\nassert f(4).tolist() == [0, 1, 3, 6]\nassert numpy.allclose(f(3), [0, 1, 3])\n"
                      "assert f(4)[3] == 6"},
            {"id": "scalar", "code": "import numpy as np\n\n\ndef f(x):\n    return np.mean(x)\n",
             "tests": "assert f([1, 2]) == 1.5"},
            {"id": "pandas", "code": "import pandas as pd\nprint(pd.DataFrame({'a': [1, 2]})['a'].sum())",
             "expected": "3"}]
    done = hutch("batch", "--image", "python", str(write_records(tmp_path / "tasks.jsonl", rows)), timeout=200)
    assert [json.loads(line)["verdict"] for line in done.stdout.splitlines()] == ["pass"] * 3, done.stdout


@pytest.mark.parametrize("name", ["humaneval.jsonl", "mbpp.json"])
def test_gzip_and_pipe(name, tmp_path):
    with open(own(name), "rb") as file:
        text = file.read()
    (tmp_path / "packed").write_bytes(gzip.compress(text))
    plain, _ = batch(own(name))
    verdicts = [line["verdict"] for line in plain]
    assert [line["verdict"] for line in batch(tmp_path / "packed")[0]] == verdicts
    assert [line["verdict"] for line in batch("-", stdin=text)[0]] == verdicts


# --------------------------------------------------------------------------------------------------
# The real sets

@pytest.mark.parametrize("name, count", [("HumanEval.jsonl", 164), ("sanitized-mbpp.json", 427)])
def test_reference_solutions_pass(name, count, tmp_path):
    out = tmp_path / "out.jsonl"
    lines, summary = batch("-o", out, support.test_data(name))
    assert lines == []
    assert says_all_passed(summary, count), summary
    results = records(out)
    assert len(results) == count and all(line["passed"] is True for line in results)
    assert all(line["judge"] == "apart" for line in results)


@pytest.mark.parametrize("name, count", [("HumanEval.jsonl", 164), ("sanitized-mbpp.json", 427)])
def test_mutations_fail(name, count, tmp_path):
    tasks = support.test_data(name)
    made = subprocess.run([sys.executable, MUTATIONS, tasks], stdout=subprocess.PIPE, check=True, timeout=200)
    samples = tmp_path / "samples.jsonl"
    samples.write_bytes(made.stdout)
    lines, _ = batch("--samples", samples, tasks)
    assert len(lines) == count
    assert [line["task_id"] for line in lines if line["passed"] is not False] == []


# --------------------------------------------------------------------------------------------------
# Cheats

@pytest.fixture(scope="module")
def hostile():
    """All hostile programs in one batch: each must be judged right beside the others."""
    lines, _ = batch("--samples", own("hostile.jsonl"), "--cpu-time", "1s", "--timeout", "5s", "--memory", "256m",
                     own("hostile_task.jsonl"))
    return {line["name"]: line for line in lines}


@pytest.mark.parametrize("name, want", [(row["name"], row.get("want")) for row in records(own("hostile.jsonl"))])
def test_hostile(hostile, name, want):
    line = hostile[name]
    if want:
        assert line["verdict"] == want, line
    assert line["passed"] is (want == "pass"), line


def test_hostile_programs_that_print(tmp_path):
    """What a program prints is compared outside, and what it leaves behind comes too late."""
    late = "import os, time\nprint('4', flush=True)\n" \
           "if os.fork() == 0:\n    time.sleep(5)\n    print('5', flush=True)\n"
    rows = [{"id": "late", "inputs": [""], "outputs": ["4\n5"], "code": late},
            {"id": "atexit", "inputs": [""], "outputs": ["5"],
             "code": "import atexit, os\natexit.register(os._exit, 0)\nprint('4')\n"},
            {"id": "nothing", "inputs": [""], "outputs": ["5"], "code": "import os\nos._exit(0)\n"},
            {"id": "flood", "inputs": [""], "outputs": ["5"], "code": "while True:\n    print('5' * 10000)\n"}]
    lines, _ = batch(write_records(tmp_path / "tasks.jsonl", rows))
    assert [line["verdict"] for line in lines] == ["wrong_answer", "wrong_answer", "wrong_answer", "output_limit"]


def test_programs_are_kept_out_of_the_judge():
    """Where nothing keeps a program out of the judge's memory that would be said, and here something does."""
    support.need("landlock")
    lines, summary = batch(own("humaneval.jsonl"))
    assert all(line["passed"] for line in lines)
    assert "from looking into their judge" not in summary


# --------------------------------------------------------------------------------------------------
# Limits and load

def test_time_limits(tmp_path):
    rows = [{"id": "spins", "code": "while True:\n    pass"}, {"id": "sleeps", "code": "import time\ntime.sleep(1000)"},
            {"id": "reads", "code": "print(input())", "stdin": "x\n", "expected": "x"}]
    lines, _ = batch("--cpu-time", "1s", "--timeout", "10s", write_records(tmp_path / "tasks.jsonl", rows))
    assert [line["verdict"] for line in lines] == ["timeout", "timeout", "pass"]
    assert lines[0]["cpu_ms"] >= 1000


def test_cpu_time_decides_however_many_share_a_cpu(tmp_path):
    """Ten programs at once on few CPUs: each takes many times longer by the clock, and passes all the same."""
    code = "import time\nwhile time.process_time() < 0.4:\n    pass\n"
    lines, _ = batch("-j", "10", "--cpu-time", "2s", many(tmp_path, 20, code))
    assert [line["verdict"] for line in lines] == ["pass"] * 20


# --------------------------------------------------------------------------------------------------
# Order, resuming

def test_order(tmp_path):
    rows = [{"id": "slow", "code": "import time\ntime.sleep(5)"}] + [{"id": "t%d" % i, "code": "1"} for i in range(6)]
    tasks = write_records(tmp_path / "tasks.jsonl", rows)
    assert [line["id"] for line in batch(tasks)[0]] == [row["id"] for row in rows]
    finished = [line["id"] for line in batch("--order", "finish", tasks)[0]]
    assert sorted(finished) == sorted(row["id"] for row in rows)
    assert finished[-1] == "slow"


def start(*args, **variables):
    """@variables: of its environment, besides."""
    return subprocess.Popen([HUTCH, "batch", "--image", IMAGE, *[str(arg) for arg in args]], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **variables})


def wait_for_lines(path, count):
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline:
        if path.exists() and path.read_bytes().count(b"\n") >= count:
            return
        time.sleep(0.02)
    raise AssertionError("no %d lines in %s" % (count, path))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_interrupted_and_resumed(number, tmp_path):
    # Two that take longer, one for each that runs at once: it is not over before it is interrupted.
    tasks = write_records(tmp_path / "tasks.jsonl", [
        {"id": "t%d" % i, "code": "import time\ntime.sleep(%s)" % (5 if i in (20, 21) else 0.05)} for i in range(60)])
    out, temporary = tmp_path / "out.jsonl", tmp_path / "temporary"
    temporary.mkdir()
    (temporary / "hutch-batch.of-others").mkdir()  # which is no name of hutch's
    process = start("-j", "2", "-o", out, tasks, TMPDIR=str(temporary))
    wait_for_lines(out, 5)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    left = set(os.listdir(temporary)) - {"hutch-batch.of-others"}
    assert len(left) == (number == signal.SIGKILL), left
    done = out.read_bytes().count(b"\n")
    assert 5 <= done < 60
    if number == signal.SIGKILL:
        assert process.returncode == -signal.SIGKILL
        with open(out, "ab") as file:
            file.write(b'{"id": "t59", "resul')  # as a full disk leaves it
    else:
        assert process.returncode == 128 + number
        assert "hutch: interrupted, %d of 60 done; to go on: the same command with --resume\n" % done in said.decode()
    refused("batch", "-o", str(out), str(tasks), says="holds results (--resume goes on from there; or remove it)")
    lines, summary = batch("-o", out, "--resume", tasks, env={"TMPDIR": str(temporary)})
    assert lines == []
    assert os.listdir(temporary) == ["hutch-batch.of-others"], "what the killed one left is removed"
    assert [line["id"] for line in records(out)] == ["t%d" % i for i in range(60)]
    assert all(line["passed"] for line in records(out))
    assert "hutch: 60 of 60 passed\n" in summary
    assert "hutch: %d runs in " % (60 - done) in summary and "; %d results were there already\n" % done in summary
    assert ("the last line of '%s' was not complete and is cut" % out in summary) == (number == signal.SIGKILL)


def test_second_signal_ends_it_at_once(tmp_path):
    out = tmp_path / "out.jsonl"
    process = start("-j", "1", "-o", out, many(tmp_path, 5, "import time\ntime.sleep(0.1)"))
    wait_for_lines(out, 1)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode in (130, -signal.SIGINT, 0)  # whichever of them came while it still ran


def test_resume_runs_changed_programs_again(tmp_path):
    out = tmp_path / "out.jsonl"
    batch("-o", out, many(tmp_path, 4))
    tasks = many(tmp_path, 4)
    rows = records(tasks)
    rows[2]["code"] = "raise SystemExit(1)"
    _, summary = batch("-o", out, "--resume", write_records(tasks, rows))
    assert "hutch: 1 results in '%s' are run again" % out in summary
    assert [line["verdict"] for line in records(out)] == ["pass", "pass", "runtime_error", "pass"]
    _, summary = batch("-o", out, "--resume", "--cpu-time", "3s", tasks)  # other limits, other results
    assert "hutch: 4 results in" in summary and "hutch: 4 runs in" in summary


def test_two_batches_do_not_share_an_output(tmp_path):
    tasks = many(tmp_path, 30, "import time\ntime.sleep(1)")
    out = tmp_path / "out.jsonl"
    process = start("-j", "2", "-o", out, tasks)
    try:
        wait_for_lines(out, 1)
        refused("batch", "-o", str(out), "--resume", str(tasks), says="another 'hutch batch' writes to")
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


# --------------------------------------------------------------------------------------------------
# What it says

def test_progress_only_on_a_terminal(tmp_path):
    tasks = many(tmp_path, 30, "import time\ntime.sleep(0.05)")
    ours, theirs = pty.openpty()
    process = subprocess.Popen([HUTCH, "batch", "--image", IMAGE, "-j", "2", "-o", str(tmp_path / "out"), str(tasks)],
                               stdin=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    seen = b""
    while True:
        ready, _, _ = select.select([ours], [], [], 100)
        try:
            part = os.read(ours, 4096) if ready else b""
        except OSError:  # the other end is closed
            part = b""
        if not part:
            break
        seen += part
    os.close(ours)
    assert process.wait(60) == 0
    assert re.search(rb"\r\[#* *\] \d+/30  [\d.]+/s  0 failed  ETA [\d:-]+\x1b\[K", seen), seen
    assert b"\r\x1b[Khutch: 30 of 30 passed" in seen  # it goes before the summary comes
    _, summary = batch(tasks)
    assert "\r" not in summary and "\x1b" not in summary


def test_quiet(tmp_path):
    lines, summary = batch("--quiet", many(tmp_path, 2))
    assert len(lines) == 2 and summary == ""


def test_nothing_stays_behind(tmp_path):
    rows = [{"id": "a", "code": "open('left', 'w').write('x')", "files": {"in/x": "1"}}]
    before = set(os.listdir(tmp_path))
    batch(write_records(tmp_path / "tasks.jsonl", rows), env={"TMPDIR": str(tmp_path)})
    assert set(os.listdir(tmp_path)) - before == {"tasks.jsonl"}


# --------------------------------------------------------------------------------------------------
# Refusals

def test_usage_errors(tmp_path):
    tasks = str(many(tmp_path, 1))
    refused("batch", says="which tasks?")
    refused("batch", tasks, tasks, says="there is one task file")
    refused("batch", "--frmat", "x", tasks, says="there is no option '--frmat'")
    refused("batch", "--format", "x", tasks, says="'x' is not a format: generic, humaneval, mbpp, stdio or auto")
    refused("batch", "-j", "0", tasks, says="expected 1 to 1024")
    refused("batch", "--k", "0", tasks, says="option '--k'")
    refused("batch", "--timeout", "0", tasks, says="never ends")
    refused("batch", "--order", "random", tasks, says="expected 'input' or 'finish', got 'random'")
    refused("batch", "--resume", tasks, says="--resume needs the file that was written before")
    refused("batch", "--policy", "nonexistent", tasks, says="nonexistent")
    refused("batch", "--image", "nonexistent", tasks, says="nonexistent")
    refused("batch", str(tmp_path / "missing"), says="No such file or directory")
    refused("batch", "--samples", "-", "-", says="only one of tasks and samples")


def test_bad_input_names_file_and_line(tmp_path):
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text('{"id": "a", "code": "1"}\n{"id": "b", "code": 1}\n')
    refused("batch", str(tasks), says="'%s': line 2: the value of \"code\" is not a text" % tasks)
    tasks.write_text('{"id": "a", "code": "1"}\n\n{"id": "b", "code": "1"\n')
    refused("batch", str(tasks), says="'%s': line 3, column 24: the text ends within an object" % tasks)
    tasks.write_text('[\n{"id": "a", "code": "1"},\n{"id": "a b", "cod": "1"}]')
    refused("batch", str(tasks), says="'%s': line 3: unknown key \"cod\"" % tasks)
    refused("batch", "--samples", own("humaneval_samples.jsonl"), own("mbpp.json"),
            says="line 1: there is no task 'Own/0'")


def test_memory_that_is_too_small(tmp_path):
    tasks = write_records(tmp_path / "tasks.jsonl", [{"id": "a", "code": "1"}])
    refused("batch", "--memory", "1", str(tasks), says="option '--memory': '1' is too small: expected a size 4M..")


def test_unjudged_programs_count_for_nothing(tmp_path):
    rows = [{"id": "a", "code": "print(1)", "expected": "1"}, {"id": "b", "code": "x", "language": "cobol"}]
    lines, summary = batch(write_records(tmp_path / "tasks.jsonl", rows), code=1)
    assert [(line["verdict"], line["passed"]) for line in lines] == [("pass", True), ("internal", None)]
    assert "hutch: 1 programs were not judged and count for nothing: task 'b': " in summary


def test_help_lists_every_option():
    done = hutch("batch", "--help")
    assert done.returncode == 0 and done.stderr == b""
    for option in (b"--format", b"--samples", b"--jobs", b"--output", b"--resume", b"--order", b"--cpu-time",
                   b"--timeout", b"--memory", b"--image", b"--policy", b"--k", b"--compare", b"--judge",
                   b"--all-cases", b"--challenge", b"--partial", b"--quiet"):
        assert option in done.stdout
