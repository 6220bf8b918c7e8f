"""Processes of a session beside its cells: what they are given, what is heard of them, how they end, and that they are confined as the
session's interpreter is. docs/sessions.md."""
import ctypes
import errno
import json
import os
import re
import signal
import time

import pytest

import engine
from engine import Session, refused

ZYGOTES = (("bare", None, (), 2, 4), ("shell", "bare", ("IPython", "ipykernel"), 2, 8))
STATUS = "grep -E '^(Uid|Gid|Groups|Cap...|NoNewPrivs|Seccomp|Seccomp_filters|Speculation.*):' /proc/self/status; cat /proc/self/limits"


@pytest.fixture(scope="module")
def shell():
    with engine.Engine(image="python", zygotes=ZYGOTES, trim_ms=1000) as one:
        yield one


@pytest.fixture
def session(shell):
    with Session(shell, max_processes=16) as one:
        yield one


@pytest.fixture
def plain(shell):
    """Without an interpreter."""
    with Session(shell, no_interpreter=1) as one:
        yield one


@pytest.fixture(params=["beside cells", "alone"])
def either(shell, request):
    fields = {"max_processes": 16} if request.param == "beside cells" else {"no_interpreter": 1}
    with Session(shell, **fields) as one:
        yield one


# --------------------------------------------------------------------------------------------------
# What it is given

def test_arguments_and_streams(either):
    process = either.spawn("/bin/sh", "-c", "echo \"$1\"; echo err >&2; exit 3", "sh", "a  b*\n")
    end = process.wait()
    assert (end["exit_code"], end["signal"], end["why"], end["truncated"]) == (3, 0, "", 0)
    assert process.output == {1: b"a  b*\n\n", 2: b"err\n"} and process.ends == 1
    assert end["run_ms"] > 0


def test_shell_text_and_environment(shell):
    with Session(shell, max_processes=2, env=["ONE=session", "TWO=session"]) as session:
        process = session.spawn(shell="echo $ONE $TWO $THREE; env | grep -c ^TWO=; pwd", env=["TWO=own", "THREE=a b"])
        assert process.wait_ok() == b"session own a b\n1\n/mnt/data\n"


def test_directory(either):
    assert either.spawn("pwd", cwd="/tmp").wait_ok() == b"/tmp\n"
    end = either.spawn("pwd", cwd="/none").wait()
    assert end["exit_code"] == 127 and "enter the directory '/none'" in end["why"] and "No such file" in end["why"]


def test_what_cannot_be_executed(either):
    end = either.spawn("no-such-program").wait()
    assert end["exit_code"] == 127 and end["why"] == "execute the program 'no-such-program': No such file or directory"
    end = either.spawn("/etc/passwd").wait()
    assert end["exit_code"] == 126 and "execute the program '/etc/passwd'" in end["why"]


def test_path_is_that_of_its_environment(either):
    either.spawn(shell="mkdir /tmp/bin; printf '#!/bin/sh\\necho mine\\n' >/tmp/bin/tool; chmod +x /tmp/bin/tool").wait_ok()
    assert either.spawn("tool").wait()["exit_code"] == 127
    assert either.spawn("tool", env=["PATH=/none:/tmp/bin:/bin:/usr/bin"]).wait_ok() == b"mine\n"


@pytest.mark.parametrize("wrong", [{}, {"args": [], "shell": None}, {"args": ["true"], "shell": "true"}, {"args": [""]},
                                   {"args": ["true"], "env": ["NAME"]}, {"args": ["true"], "env": ["=1"]},
                                   {"args": ["true"], "terminal": 1, "rows": 70000}])
def test_options_are_checked(session, wrong):
    wrong = dict(wrong)
    refused(lambda: session.spawn(*wrong.pop("args", ()), **wrong), errno.EINVAL)
    assert session.processes() == []


def test_texts_are_bounded(session):
    refused(lambda: session.spawn("true", "x" * (128 << 10)), errno.E2BIG)
    refused(lambda: session.spawn("true", *["x"] * 5000), errno.E2BIG)
    process = session.spawn("/bin/sh", "-c", "echo ${#1}", "sh", "x" * (100 << 10))
    assert process.wait_ok() == b"%d\n" % (100 << 10)


def test_a_session_without_processes_has_none(shell):
    with Session(shell) as session:
        refused(lambda: session.spawn("true"), errno.EINVAL)
        assert session.processes() == []
    refused(lambda: Session(shell, max_processes=65), errno.EINVAL)


# --------------------------------------------------------------------------------------------------
# Standard input

def test_input(either):
    process = either.spawn("cat", has_input=1)
    either.engine.until(lambda: process.listed()["state"] == "running")
    assert process.write(b"one\n") == 4
    process.until(b"one\n")
    assert process.write(b"two\n") == 4
    process.close_stdin()
    assert process.wait_ok() == b"one\ntwo\n"


def test_without_input_it_is_at_its_end(either):
    process = either.spawn("cat")
    refused(lambda: process.write(b"x"), errno.EPIPE)
    assert process.wait_ok() == b""


def test_a_full_input_is_told_and_its_room(session):
    session.spawn("mkfifo", "/mnt/data/fifo").wait_ok()
    process = session.spawn(shell="read go </mnt/data/fifo; cat", has_input=1, output_bytes=engine.UNKNOWN)
    session.engine.until(lambda: process.listed()["state"] == "running")
    sent, piece = 0, b"x" * 65536
    with pytest.raises(engine.Failure) as full:
        while sent < 64 << 20:
            sent += process.write(piece)
    assert full.value.code == errno.EAGAIN and 0 < sent < 64 << 20
    rooms = process.rooms
    session.spawn(shell="echo go >/mnt/data/fifo").wait_ok()
    session.engine.until(lambda: process.rooms > rooms)
    assert process.write(b"end") == 3
    process.close_stdin()
    assert process.wait_ok() == b"x" * sent + b"end"


def test_input_that_nobody_reads_any_more(session):
    process = session.spawn(shell="exec <&-; echo closed; sleep 100", has_input=1)
    process.until(b"closed\n")
    refused(lambda: process.write(b"x"), errno.EPIPE)
    process.signal(signal.SIGKILL)
    assert process.wait()["signal"] == signal.SIGKILL


# --------------------------------------------------------------------------------------------------
# Output

def test_held_output_makes_its_writer_wait(session):
    process = session.spawn(shell="while :; do echo line; done; echo never", output_bytes=engine.UNKNOWN)
    process.until(b"line\n")
    process.hold()
    held = len(process.output[1])
    beside = session.spawn("echo", "beside")
    assert beside.wait_ok() == b"beside\n"
    assert len(process.output[1]) == held and process.listed()["held"] and process.listed()["state"] == "running"
    process.hold(False)
    session.engine.until(lambda: len(process.output[1]) > held + (1 << 20))
    process.signal(signal.SIGTERM)
    assert process.wait()["signal"] == signal.SIGTERM


def test_an_end_waits_for_held_output(session):
    process = session.spawn(shell="echo first; read go; echo last", has_input=1)
    process.until(b"first\n")
    process.hold()
    process.write(b"\n")
    session.engine.until(lambda: process.listed()["state"] == "ended")
    assert process.end is None and process.output[1] == b"first\n"
    process.hold(False)
    assert process.wait_ok() == b"first\nlast\n"


def test_a_flood_ends_at_its_limit(session):
    process = session.spawn("yes", output_bytes=100000)
    end = process.wait()
    assert end["signal"] == signal.SIGKILL and end["truncated"] and end["why"] == "it wrote more than 100000 bytes"
    assert len(process.output[1]) == 100000


def test_what_it_leaves_behind_is_not_waited_for(session):
    process = session.spawn(shell="(sleep 100; echo late) & echo $!")
    pid = process.wait_ok().strip()
    assert session.spawn("kill", "-0", pid.decode()).wait_ok() == b""


def test_a_large_output_comes_whole(either):
    process = either.spawn("head", "-c", "20000000", "/dev/zero", output_bytes=engine.UNKNOWN)
    assert len(process.wait_ok()) == 20000000


# --------------------------------------------------------------------------------------------------
# Terminals

def test_a_terminal(either):
    process = either.spawn(shell="tty; stty size; test -t 0 -a -t 1 -a -t 2 && echo all; echo err >&2; read line; echo \"got $line\"",
                           terminal=1, rows=41, cols=133)
    process.until(b"err\r\n")
    assert re.match(rb"/dev/pts/\d+\r\n41 133\r\nall\r\nerr\r\n$", process.output[1]), process.output
    process.write(b"hello\n")
    out = process.wait_ok()
    assert out.endswith(b"hello\r\ngot hello\r\n") and process.output[2] == b""


def test_a_terminal_has_job_control_and_changes_its_size(session):
    process = session.spawn("python3", "-c", """
import os, signal, time
signal.signal(signal.SIGWINCH, lambda *_: print(os.get_terminal_size(), flush=True))
try:
    print(os.tcgetpgrp(0) == os.getpid() == os.getpgrp(), flush=True)
    while True:
        time.sleep(1)
except KeyboardInterrupt:
    print("interrupted")
""", terminal=1)
    process.until(b"True\r\n")
    process.resize(50, 100)
    process.until(b"columns=100, lines=50")
    process.write(b"\x03")
    assert b"interrupted" in process.wait_ok()
    other = session.spawn("sleep", "100")
    refused(lambda: other.resize(10, 10), errno.EINVAL)
    other.signal(signal.SIGKILL)


def test_the_end_of_input_at_a_terminal(session):
    process = session.spawn("cat", terminal=1)
    session.engine.until(lambda: process.listed()["state"] == "running")
    process.write(b"typed\n")
    process.until(b"typed\r\ntyped\r\n")
    process.close_stdin()
    process.wait_ok()


def test_a_program_that_closes_its_terminal_is_not_hung_up(session):
    process = session.spawn(shell="name=$(tty); exec <&- >&- 2>&-; sleep 0.2; echo back >$name; sleep 0.2; exit 7", terminal=1)
    assert process.wait()["exit_code"] == 7 and process.output[1] == b"back\r\n"


# --------------------------------------------------------------------------------------------------
# Signals, times, numbers

def test_signals_reach_the_group(session):
    process = session.spawn(shell="sleep 100 & echo $!; wait")
    session.engine.until(lambda: b"\n" in process.output[1])
    child = process.output[1].strip().decode()
    process.signal(signal.SIGTERM)
    end = process.wait()
    assert end["signal"] == signal.SIGTERM and end["exit_code"] == -1 and end["why"] == ""
    session.engine.until(lambda: session.spawn("kill", "-0", child).wait()["exit_code"] != 0)
    refused(lambda: process.signal(signal.SIGTERM), errno.ENOENT)


def test_signals_are_checked(session):
    process = session.spawn("sleep", "100")
    refused(lambda: process.signal(0), errno.EINVAL)
    refused(lambda: process.signal(100), errno.EINVAL)
    process.signal(signal.SIGKILL)
    end = process.wait()
    assert end["signal"] == signal.SIGKILL or "before its program began" in end["why"]


def test_wall_time(session):
    process = session.spawn("sleep", "100", wall_ms=300)
    end = process.wait()
    assert end["signal"] == signal.SIGTERM and end["why"] == "it ran for longer than 300 ms"
    deaf = session.spawn(shell="trap '' TERM; while :; do sleep 0.1; done", wall_ms=4000)
    end = deaf.wait()
    assert end["signal"] == signal.SIGKILL and "4000 ms" in end["why"]


def test_many_at_once_and_no_more(shell):
    with Session(shell, max_processes=3) as session:
        processes = [session.spawn("cat", has_input=1) for _ in range(3)]
        said = refused(lambda: session.spawn("true"), errno.EAGAIN)
        assert "3 processes" in said
        shell.until(lambda: all(entry["state"] == "running" for entry in session.processes()))
        for number, process in enumerate(processes):
            process.write(b"%d" % number)
            process.close_stdin()
        assert [process.wait_ok() for process in processes] == [b"0", b"1", b"2"]
        assert session.spawn("echo", "again").wait_ok() == b"again\n"


def test_they_run_beside_a_cell(session):
    cell = session.run_until("print('ready', flush=True)\nimport time\nwhile not __import__('os').path.exists('/mnt/data/go'): time.sleep(0.01)")
    assert session.spawn("touch", "/mnt/data/go").wait_ok() == b""
    assert session.wait(cell)["verdict"] == "ok"
    assert session.printed("import os; print(os.listdir('/mnt/data'))") == "['go']\n"


def test_the_list(session):
    process = session.spawn("sh", "-c", "sleep 100", b"\xff", cwd="/tmp")
    session.engine.until(lambda: process.listed()["state"] == "running")
    entry = process.listed()
    assert entry["args"] == ["sh", "-c", "sleep 100", "\ufffd"] and entry["cwd"] == "/tmp" and entry["pid"] > 1
    assert not entry["terminal"] and not entry["held"] and entry["output_bytes"] == 0 and entry["run_ms"] > 0
    process.signal(signal.SIGKILL)
    process.wait()
    assert session.processes() == []


def test_an_unknown_process(session):
    process = session.spawn("true")
    process.wait_ok()
    for call in (lambda: process.write(b""), process.close_stdin, lambda: process.signal(1), lambda: process.resize(1, 1), process.hold):
        assert "no process" in refused(call, errno.ENOENT)


def test_what_a_process_does_to_files_is_seen(session):
    session.run("x = 1")
    session.spawn(shell="echo text >file").wait_ok()
    assert [entry["path"] for entry in session.files()] == ["file"]
    result = session.run("open('own', 'w').close()")
    assert [entry["path"] for entry in result["json"]["files"]["added"]] == ["own"]


# --------------------------------------------------------------------------------------------------
# The life of its session

def test_without_an_interpreter_there_are_no_cells(plain):
    refused(lambda: plain.execute("1"), errno.EINVAL)
    refused(lambda: plain.order("checkpoint"), errno.EINVAL)
    assert plain.spawn(shell="echo there >/mnt/data/x; cat x").wait_ok() == b"there\n"
    assert [entry["path"] for entry in plain.files()] == ["x"]


def test_variables_that_an_interpreter_reads_at_its_start_are_for_processes(shell):
    with Session(shell, no_interpreter=1, env=["PYTHONHASHSEED=7"]) as one, Session(shell, no_interpreter=1) as two:
        code = "import os; print(os.environ.get('PYTHONHASHSEED'), hash('x'))"
        hashes = {one.spawn("python3", "-c", code).wait_ok() for _ in range(2)}
        hashes |= {two.spawn("python3", "-c", code, env=["PYTHONHASHSEED=7"]).wait_ok()}
        assert len(hashes) == 1 and hashes.pop().startswith(b"7 ")


def test_the_end_of_a_session_ends_them(shell):
    session = Session(shell, max_processes=4)
    first, second = session.spawn("sleep", "100"), session.spawn(shell="echo out; sleep 100")
    second.until(b"out\n")
    second.hold()
    session.close()
    shell.until(lambda: session.ends)
    assert first.ends == second.ends == 1
    assert first.end["why"] == second.end["why"] == "the session was closed"
    assert first.end["exit_code"] == -1


def test_a_session_that_is_closed_at_once(shell):
    session = Session(shell, max_processes=4)
    process = session.spawn("true")
    session.close()
    shell.until(lambda: session.ends)
    assert process.ends == 1 and process.end["why"] == "the session was closed"


def test_a_restart_ends_them(either):
    process = either.spawn(shell="echo out; sleep 100")
    process.until(b"out\n")
    either.restart()
    assert process.wait()["why"] == "the session was restarted"
    assert either.spawn("echo", "new").wait_ok() == b"new\n"


def test_the_end_of_an_interpreter_ends_them(session):
    process = session.spawn(shell="echo out; sleep 100")
    process.until(b"out\n")
    session.run("import os; os._exit(5)")
    assert "exit code 5" in process.wait()["why"]
    assert session.spawn("echo", "new").wait_ok() == b"new\n"


def test_a_session_with_a_process_is_not_idle(shell):
    session = Session(shell, max_processes=2, idle_ms=300)
    process = session.spawn(shell="echo out; read end; echo done", has_input=1)
    process.until(b"out\n")
    until = time.monotonic() + 1.2
    while time.monotonic() < until:
        shell.dispatch(0.1)
    assert not session.ends
    process.write(b"\n")
    process.wait_ok()
    shell.until(lambda: session.ends)
    assert "idle" in session.ends[0][0]


def test_checkpoints_tell_of_them_and_a_rollback_ends_them(session):
    session.run("x = 1")
    process = session.spawn("sleep", "100")
    session.engine.until(lambda: process.listed()["state"] == "running")
    reply = session.do("checkpoint")
    assert "process %d: sleep 100" % process.id in reply["lost"]
    session.run("x = 2")
    back = session.do("rollback", reply["id"])
    assert "process %d: sleep 100" % process.id in back["lost"]
    end = process.wait()
    assert end["signal"] == signal.SIGKILL and "went back" in end["why"]
    assert session.printed("print(x)") == "1\n"
    assert session.spawn("echo", "after").wait_ok() == b"after\n"
    assert session.do("checkpoint")["lost"] == []


def test_an_interpreter_that_died_beside_a_checkpoint(session):
    session.run("x = 1")
    reply = session.do("checkpoint")
    process = session.spawn(shell="echo out; sleep 100")
    process.until(b"out\n")
    session.run("import os; os.kill(os.getpid(), 9)")
    assert "SIGKILL" in process.wait()["why"] or "died" in process.end["why"] or "ended" in process.end["why"]
    assert session.spawn("echo", "parked").wait_ok() == b"parked\n"
    session.do("rollback", reply["id"])
    assert session.printed("print(x)") == "1\n"


# --------------------------------------------------------------------------------------------------
# Confinement

def test_a_process_is_confined_as_the_interpreter_is(session):
    mine = session.spawn("/bin/sh", "-c", STATUS).wait_ok().decode()
    cell = session.printed("import subprocess; print(subprocess.run(['/bin/sh', '-c', %r], capture_output=True, text=True).stdout, end='')"
                           % STATUS)
    lines = [[line for line in found.splitlines() if not line.startswith("Max cpu time")] for found in (mine, cell)]
    assert lines[0] == lines[1]
    assert "NoNewPrivs:\t1" in mine and "Seccomp:\t2" in mine and "CapEff:\t0000000000000000" in mine


def test_a_process_has_no_other_descriptors(either):
    found = either.spawn("/bin/sh", "-c", "ls -l /proc/$$/fd").wait_ok().decode()
    assert sorted(re.findall(r" (\d+) -> ", found)) == ["0", "1", "2"], found
    assert len(re.findall(r"pipe:", found)) == 3


def test_a_process_has_the_sessions_namespaces_and_limits(shell):
    with Session(shell, max_processes=4, memory_bytes=256 << 20, pids=40) as session:
        session.run("x = 1")
        code = "x = b'x' * (1 << 30)\nimport time; time.sleep(20)"
        end = session.spawn("python3", "-c", code).wait()
        assert end["signal"] == signal.SIGKILL or end["exit_code"] != 0
        names = "for n in mnt pid net ipc uts user; do readlink /proc/self/ns/$n; done"
        assert session.spawn(shell=names).wait_ok().decode() == session.printed(
            "import os\nfor n in 'mnt pid net ipc uts user'.split(): print(os.readlink('/proc/self/ns/' + n))")


class Limits(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t)] + [(name, ctypes.c_uint64) for name in (
        "wall_ms", "cpu_ms", "memory_bytes", "pids", "cpus", "output_bytes", "data_bytes", "data_files", "file_bytes")]


def test_cpu_time_is_limited_for_each():
    limits = Limits(size=ctypes.sizeof(Limits), cpu_ms=1000)
    with engine.Engine(image="python", zygotes=ZYGOTES, limits=ctypes.addressof(limits)) as one, \
         Session(one, max_processes=2) as session:
        assert session.spawn(shell="ulimit -S -t; ulimit -H -t").wait_ok() == b"2\n3\n"
        end = session.spawn(shell="while :; do :; done").wait()
        assert end["signal"] in (signal.SIGXCPU, signal.SIGKILL)
        assert session.printed("print(1)") == "1\n"


# --------------------------------------------------------------------------------------------------
# What hostile code can do to them

KILL_SPAWNER = """
import os, signal
for name in filter(str.isdigit, os.listdir('/proc')):
    try:
        if open('/proc/%s/comm' % name).read().strip() == 'hutch-spawner':
            os.kill(int(name), SIGNAL)
            print('found')
    except OSError:
        pass
"""


def test_a_killed_spawner_ends_nothing_else(session):
    process = session.spawn(shell="echo out; read end; echo done", has_input=1)
    process.until(b"out\n")
    assert session.printed(KILL_SPAWNER.replace("SIGNAL", "signal.SIGKILL")) == "found\n"
    end = session.spawn("true").wait()
    assert end["exit_code"] == -1 and "restart of the session" in end["why"]
    process.write(b"\n")
    assert process.wait_ok() == b"out\ndone\n"
    session.restart()
    assert session.spawn("echo", "new").wait_ok() == b"new\n"


def test_a_stopped_spawner_is_not_waited_for():
    with engine.Engine(image="python", zygotes=ZYGOTES, answer_ms=5000) as one, Session(one, max_processes=4) as session:
        session.run("x = 1")
        assert session.printed(KILL_SPAWNER.replace("SIGNAL", "signal.SIGSTOP")) == "found\n"
        end = session.spawn("true").wait()
        assert end["exit_code"] == -1 and "did not answer in time" in end["why"]
        assert session.printed("print(x)") == "1\n"


def test_a_killed_spawner_without_an_interpreter_is_made_anew(plain):
    process = plain.spawn("python3", "-c", KILL_SPAWNER.replace("SIGNAL", "signal.SIGKILL") + "\nsignal.pause()")
    assert process.wait()["why"] == "what makes the session's processes ended: the program was killed by SIGKILL, and not by hutch"
    assert plain.spawn("echo", "new").wait_ok() == b"new\n"


def test_its_end_is_what_init_saw(session):
    process = session.spawn("python3", "-c", "import os, time; print('out', flush=True); time.sleep(100)")
    process.until(b"out\n")
    session.run("import os, signal\nos.kill(%d, signal.SIGKILL)" % process.listed()["pid"])
    end = process.wait()
    assert (end["exit_code"], end["signal"], end["why"]) == (-1, signal.SIGKILL, "")


def test_where_there_are_too_many_processes_it_says_so(shell):
    with Session(shell, max_processes=4, pids=30) as session:
        session.run("import os, time\nwhile True:\n    try:\n        if os.fork() == 0:\n            time.sleep(1000)\n"
                    "    except OSError:\n        break")
        end = session.spawn("true").wait()
        assert end["exit_code"] == -1 and "make a process in the sandbox (are there too many?)" in end["why"]


def test_a_daemon_does_not_outlive_the_session(shell):
    with Session(shell, max_processes=4) as session:
        process = session.spawn(shell="setsid setsid sh -c 'exec sleep 98765' >/dev/null 2>&1 & echo $!")
        process.wait_ok()
        session.engine.until(lambda: find_sleepers("98765"))
    shell.until(lambda: not find_sleepers("98765"))


def find_sleepers(word):
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/cmdline" % name, "rb") as file:
                if file.read().split(b"\0")[:2] == [b"sleep", word.encode()]:
                    found.append(name)
        except OSError:
            pass
    return found


def test_a_flood_of_spawns(shell):
    with Session(shell, max_processes=16) as session:
        for _ in range(10):
            processes = [session.spawn("echo", str(number)) for number in range(16)]
            for number, process in enumerate(processes):
                assert process.wait_ok() == b"%d\n" % number


def test_callbacks_may_call_back(shell):
    with Session(shell, max_processes=4) as session:
        started = []

        def again(process):
            if process.output[1].endswith(b"\n") and not started:
                started.append(session.spawn("echo", "second"))
                process.hold()
                process.hold(False)
                process.signal(signal.SIGTERM)

        process = session.spawn(shell="echo first; sleep 100", on_output=again)
        assert process.wait()["signal"] == signal.SIGTERM
        assert started[0].wait_ok() == b"second\n"


def test_the_list_is_json_whatever_the_arguments_are(session):
    process = session.spawn("sh", "-c", "sleep 100", b"\xff\x1b\"\\")
    assert json.dumps(process.listed()["args"])
    process.signal(signal.SIGKILL)
    process.wait()


# --------------------------------------------------------------------------------------------------
# A session that pauses

def stand_still(session):
    session.pause()
    session.engine.until(lambda: session.info()["still"])


def spend(session, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        session.engine.dispatch(0.05)


def test_processes_stand_still_with_their_session(either):
    process = either.spawn(shell="while :; do echo x; sleep 0.02; done")
    either.engine.until(lambda: process.output[1])
    assert either.info()["processes"] == 1 and either.info()["idle_end"] is None
    stand_still(either)
    spend(either, 0.2)
    told = len(process.output[1])
    spend(either, 0.5)
    assert len(process.output[1]) == told and either.info()["still"]
    either.resume()
    either.engine.until(lambda: len(process.output[1]) > told)
    process.signal(signal.SIGKILL)
    assert process.wait()["signal"] == signal.SIGKILL


def test_the_time_of_a_process_stands_still(either):
    process = either.spawn(shell="echo begun; sleep 4; echo over", wall_ms=8000)
    either.engine.until(lambda: process.output[1])
    stand_still(either)
    spend(either, 9)
    assert process.ends == 0
    either.resume()
    end = process.wait()
    assert (end["exit_code"], end["why"]) == (0, "") and process.output[1] == b"begun\nover\n" and end["run_ms"] < 8500, end


def test_a_process_is_given_to_a_session_that_pauses(either):
    either.spawn("true").wait()
    stand_still(either)
    process = either.spawn("echo", "later")
    spend(either, 0.3)
    assert process.ends == 0 and either.processes()[0]["state"] == "waiting"
    either.resume()
    assert process.wait()["exit_code"] == 0 and process.output[1] == b"later\n"


def test_who_is_paused_is_not_sent_on(either):
    process = either.spawn("sleep", "100")
    either.engine.until(lambda: either.processes()[0]["state"] == "running")
    stand_still(either)
    for number in (signal.SIGCONT, signal.SIGSTOP):
        assert "paused" in refused(lambda number=number: process.signal(number), errno.EAGAIN)
    process.signal(signal.SIGKILL)
    either.resume()
    assert process.wait()["signal"] == signal.SIGKILL


STOPS_ALL = r"""
for d in /proc/[0-9]*; do
    p=${d#/proc/}; n=$(cat $d/comm 2>/dev/null)
    [ "$p" != 1 ] && [ "$p" != $$ ] && [ "$n" != hutch-spawner ] && kill -STOP $p 2>/dev/null && echo stopped
done
while :; do echo tick; sleep 0.05; done
"""


def test_clocks_go_on_until_the_sandbox_can_be_stopped(shell):
    """A process may run before the interpreter is ready, and keep it from that: a pause that cannot stop it gives it no time."""
    with Session(shell, max_processes=4, zygote="bare") as session:
        process = session.spawn(shell=STOPS_ALL, wall_ms=1000)
        session.engine.until(lambda: b"stopped" in process.output[1] or process.end)
        session.pause()
        session.engine.until(lambda: process.end or session.info()["still"])
        assert session.info()["still"] or "longer than 1000 ms" in process.end["why"]
        session.resume()


def test_no_terminal_without_landlock(shell, policy):
    with Session(shell, no_interpreter=1, policy=policy(layers={"landlock": "off"})) as session:
        end = session.spawn("true", terminal=1).wait()
        assert end["exit_code"] == -1 and "Landlock" in end["why"], end
        assert session.spawn("true").wait()["exit_code"] == 0
