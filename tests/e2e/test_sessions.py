"""Sessions by way of libhutch: what cells share and what they do not, how they end, and what a hostile interpreter can do to others."""
import errno
import os
import random
import re
import resource
import signal
import time

import pytest

import engine
import support
from engine import SHELL_ZYGOTES, Session, value


# --------------------------------------------------------------------------------------------------
# What cells share

def test_variables_stay(session):
    assert session.run("x = 20\ndef double(y):\n    return 2 * y")["outputs"] == []
    result = session.run("double(x) + 2")
    assert (result["verdict"], result["execution_count"], value(result)) == ("ok", 2, "42")
    assert not result["is_fresh"] and not result["interpreter_died"] and result["message"] == ""


def test_outputs_come_as_they_are_made(session):
    cell = session.execute("import sys\nprint('one', flush=True)\nprint('two', file=sys.stderr)\n'three'")
    result = session.wait(cell)
    assert [output["output_type"] for output in result["outputs"]] == ["stream", "stream", "execute_result"]
    assert cell.text(1) == b"one\n" and cell.text(2) == b"two\n"
    assert [kind for kind, _ in cell.outputs][-1] == "value" and cell.results == 1


def test_output_comes_before_the_end(session):
    cell = session.run_until("print('ready', flush=True)\nx = input()", allow_input=1)
    assert cell.result is None
    session.engine.until(lambda: cell.prompts)
    assert session.reply("go on") == 1
    assert session.wait(cell)["verdict"] == "ok"
    assert session.reply("nobody asked") == 0
    assert session.printed("print(x)") == "go on\n"


def test_end_of_input(session):
    cell = session.execute("input('what? ')", allow_input=1)
    session.engine.until(lambda: cell.prompts)
    assert cell.prompts == [("what? ", False)]
    session.reply(None)
    assert session.wait(cell)["error_name"] == "EOFError"


def test_input_is_refused_unless_it_is_allowed(session):
    assert session.run("input()")["error_name"] == "StdinNotImplementedError"


def test_an_exception_ends_a_cell_and_no_more(session):
    result = session.run("a = 1\nb = a / 0\nc = 3")
    assert (result["verdict"], result["error_name"], result["error_value"]) == ("error", "ZeroDivisionError", "division by zero")
    assert result["error_line"] == 2 and "\x1b" not in result["error_traceback"] and "\x1b" in result["error_traceback_ansi"]
    assert value(session.run("a, 'c' in globals()")) == "(1, False)"


def test_contexts_have_variables_of_their_own(session):
    session.run("x = 'main'")
    session.run("x = 'other'", context="other")
    assert value(session.run("x")) == "'main'"
    assert value(session.run("x", context="other")) == "'other'"
    with pytest.raises(engine.Failure, match="context"):
        session.execute("1", context="no/such name")


def test_silent_cells_do_not_count(session):
    assert session.run("1", silent=1)["execution_count"] == 0
    assert session.run("1")["execution_count"] == 1


def test_files_of_a_cell(session):
    assert session.run("open('a.txt', 'w').write('x')")["json"]["files"]["added"][0]["path"] == "a.txt"
    files = session.run("open('a.txt', 'w').write('xyz')")["json"]["files"]
    assert (files["added"], files["modified"][0]["size"]) == ([], 3)
    assert session.run("1")["json"]["files"]["modified"] == []
    assert session.run("import os; os.remove('a.txt')")["json"]["files"]["deleted"] == [{"path": "a.txt"}]


MANY = "import os\nfor n in range(%d, %d): open('f%%04d' %% n, 'w').close()"


def test_many_files_of_a_cell(session):
    """The disk worker lists them, and the next cell's list goes on from there, until they are few again."""
    assert engine.file_counts(session.run(MANY % (0, 400))) == (400, 0, 0)
    assert engine.file_counts(session.run(MANY % (400, 900))) == (500, 0, 0), "the list before was the engine's"
    result = session.run("for n in range(30): open('f%04d' % n, 'w').write('x')\n"
                         "for n in range(100, 120): os.remove('f%04d' % n)\n" + MANY % (900, 907))
    assert engine.file_counts(result) == (7, 30, 20)
    assert [entry["path"] for entry in result["json"]["files"]["added"]] == ["f%04d" % n for n in range(900, 907)]
    assert engine.file_counts(session.run("1")) == (0, 0, 0)
    assert engine.file_counts(session.run("os.mkdir('closed', 0)")) == (0, 0, 0)
    # What a list leaves closed, test_changes.c has; a count in the middle of a cell may have opened it.
    assert engine.file_counts(session.run("1")) == (0, 0, 0)
    assert engine.file_counts(session.run("for n in range(1000):\n  if os.path.exists('f%04d' % n): os.remove('f%04d' % n)")) == (0, 0, 887)
    assert engine.file_counts(session.run("open('last', 'w').write('x')")) == (1, 0, 0)
    assert engine.file_counts(session.run("1")) == (0, 0, 0)


def test_many_files_of_a_cell_that_dies(session):
    assert engine.file_counts(session.run(MANY % (0, 800) + "\nos._exit(3)")) == (800, 0, 0)
    session.run(MANY % (800, 810))
    checkpoint = session.do("checkpoint")["id"]
    result = session.run(MANY % (810, 830) + "\nos._exit(3)")
    assert (result["interpreter_died"], engine.file_counts(result)) == (1, (20, 0, 0)), "its checkpoints have not ended"
    session.do("rollback", checkpoint)
    assert engine.file_counts(session.run(MANY % (900, 903))) == (3, 0, 0), "what the rollback did is not the cell's doing"
    session.restart()
    assert engine.file_counts(session.run("import os; os.remove('f0000')")) == (0, 0, 1)


def test_many_files_of_the_caller(shell, data):
    for n in range(700):
        (data / ("f%04d" % n)).write_text("caller's")
    with engine.Session(shell, data_dir=data) as session:
        assert engine.file_counts(session.run("import os; os.remove('f0000'); open('f0001', 'w').close()")) == (0, 1, 1)
        (data / "f0002").unlink()
        assert engine.file_counts(session.run("1")) == (0, 0, 1)


def test_two_sessions_know_nothing_of_each_other(shell):
    with Session(shell) as one, Session(shell) as two:
        one.run("x = 1; open('/mnt/data/file', 'w')")
        assert value(two.run("import os; 'x' in globals(), os.listdir('/mnt/data')")) == "(False, [])"
        assert value(one.run("x")) == "1"


def test_runs_go_on_beside_sessions(shell, session):
    cell = session.execute("import time; time.sleep(1)")
    assert shell.run("print(1)")["verdict"] == "ok"
    assert session.wait(cell)["verdict"] == "ok"


def test_env_and_data_directory_of_the_caller(shell, data):
    (data / "in.txt").write_text("hello")
    os.chmod(data, 0o777)
    with Session(shell, env=("GREETING=hi",), data_dir=data) as session:
        assert value(session.run("import os; os.environ['GREETING'], open('in.txt').read()")) == "('hi', 'hello')"
        session.run("os._exit(1)")
        assert value(session.run("open('/mnt/data/in.txt').read()")) == "'hello'"
    assert (data / "in.txt").exists() and session.ends == [("the session was closed", None)]


def test_a_kept_directory(shell):
    with Session(shell, keep_data=1) as session:
        session.run("open('kept.txt', 'w').write('x')")
    why, folder = session.ends[0]
    assert os.listdir(folder) == ["kept.txt"], why
    support.remove_tree(folder)


# --------------------------------------------------------------------------------------------------
# How cells end

def test_an_interrupted_cell(session):
    session.run("x = 1")
    cell = session.run_until("import time\nprint('ready', flush=True)\ntime.sleep(1000)")
    assert session.interrupt() == 1
    result = session.wait(cell)
    assert (result["verdict"], result["error_name"], result["was_interrupted"]) == ("error", "KeyboardInterrupt", 1)
    assert session.interrupt() == 0 and value(session.run("x")) == "1"


def test_an_interrupt_is_not_lost_before_the_cell_begins(session):
    cell = session.execute("while True: pass")
    session.engine.until(lambda: session.interrupt() == 1)
    assert session.wait(cell)["error_name"] == "KeyboardInterrupt"


def test_a_cell_that_takes_too_long_is_interrupted(session):
    session.run("x = 1")
    result = session.run("print('first', flush=True)\nwhile True: pass", timeout_ms=3000)
    assert (result["verdict"], result["was_interrupted"], result["interpreter_died"]) == ("timeout", 1, 0)
    assert "3000 ms" in result["message"] and result["outputs"][0]["text"] == "first\n"
    assert value(session.run("x")) == "1"


def test_a_cell_that_cannot_be_interrupted_is_killed(session):
    result = session.run("import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\nwhile True: pass", timeout_ms=3000)
    assert (result["verdict"], result["interpreter_died"]) == ("timeout", 1) and "killed" in result["message"]
    assert session.run("1")["is_fresh"]


@pytest.mark.parametrize("code, verdict, words", (
    ("import os; os._exit(3)", "error", "exit code 3"),
    ("import os; os._exit(0)", "error", "exit code 0"),
    ("import ctypes; ctypes.string_at(0)", "error", "SIGSEGV"),
    ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "killed", "SIGKILL"),
))
def test_the_interpreter_dies(session, code, verdict, words):
    session.run("x = 1; open('file', 'w').write('files stay')")
    result = session.run("print('before', flush=True)\n" + code)
    assert (result["verdict"], result["interpreter_died"], result["outputs"][0]["text"]) == (verdict, 1, "before\n")
    assert words in result["message"]
    result = session.run("'x' in globals(), open('file').read()")
    assert (result["is_fresh"], value(result)) == (1, "(False, 'files stay')") and words in result["message"]
    assert session.run("1")["is_fresh"] == 0


def test_the_interpreter_dies_between_cells(session):
    session.run("import os, threading\nthreading.Timer(0.3, os._exit, [5]).start()")
    session.engine.until(lambda: session.info()["state"] == "lost", what="its death")
    result = session.run("1")
    assert result["is_fresh"] == 1 and "exit code 5" in result["message"]


def test_memory_is_shown(shell, session):
    """What is left of the limit, from cell to cell, after pauses in which nobody counts; another session's is its own."""
    left = "print(meminfo()['MemTotal'] >> 20, meminfo()['MemAvailable'])"
    session.run(support.MEMINFO + "first = await_meminfo(lambda now: now['MemAvailable'] < now['MemTotal'])['MemAvailable']")
    session.run("held = b'x' * (200 << 20)")
    held = "await_meminfo(lambda now: 190 << 20 < first - now['MemAvailable'] < 240 << 20)['MemTotal'] >> 20"
    assert value(session.run(held)) == "512"
    time.sleep(0.5)
    assert value(session.run(held)) == "512"
    with Session(shell) as other:
        other.run(support.MEMINFO)
        total, available = map(int, other.printed(left).split())
        assert total == 512 and available > 400 << 20
    assert value(session.run("del held\nawait_meminfo(lambda now: first - now['MemAvailable'] < 40 << 20)['MemTotal'] >> 20")) == "512"


def test_memory_runs_out(shell):
    with Session(shell, memory_bytes=256 << 20) as session:
        # Several processes: one alone is refused the memory and gets a MemoryError.
        result = session.run("import os, time\nfor _ in range(6):\n    if os.fork() == 0:\n        b = bytearray(100 << 20)\n"
                             "        for i in range(0, len(b), 4096): b[i] = 1\n        time.sleep(100)\ntime.sleep(100)")
        assert (result["verdict"], result["interpreter_died"]) == ("out_of_memory", 1), result
        assert session.run("1")["is_fresh"] == 1


def test_the_limit_of_files_holds_after_a_pause(shell):
    """The sandbox of an idle session is checked seldom; that of a cell from its begin on."""
    with Session(shell, data_bytes=20 << 20) as session:
        assert session.printed("print(1)") == "1\n"
        until = time.monotonic() + 2.5
        while time.monotonic() < until:
            session.engine.dispatch(0.1)
        result = session.run("import time\nfor n in range(60):\n    open('f%d' % n, 'wb').write(bytes(4 << 20)); time.sleep(0.1)")
        assert result["verdict"] == "output_limit", result["verdict"]


def test_too_much_output(shell):
    with Session(shell, output_bytes=100000) as session:
        result = session.run("while True: print('x' * 1000)")
        assert (result["verdict"], result["truncated"], result["interpreter_died"]) == ("output_limit", 1, 0)
        assert len(str(result["outputs"])) < 300000
        assert session.printed("print('short')") == "short\n", "the limit is each cell's"


@pytest.mark.parametrize("code, says", [("for i in range(12000): display({'text/plain': ''}, raw=True)", "more than 10000 outputs"),
                                        ("display({'text/plain': 'x' * (17 << 20)}, raw=True)", "outputs took more than 8388608 bytes")])
def test_which_limit_of_outputs(shell, code, says):
    with Session(shell) as session:
        result = session.run(code)
        assert (result["verdict"], result["truncated"]) == ("output_limit", 1) and says in result["message"], result


def test_too_much_in_the_data_directory(shell):
    with Session(shell, data_bytes=10 << 20) as session:
        result = session.run("import time\nopen('big', 'wb').write(bytes(20 << 20))\ntime.sleep(100)")
        assert (result["verdict"], result["interpreter_died"]) == ("output_limit", 1)


def test_restart(session):
    session.run("x = 1; open('file', 'w').write('stays')")
    running, waiting = session.execute("import time; time.sleep(1000)"), session.execute("'never'")
    session.restart()
    after = session.execute("'x' in globals(), open('file').read()")
    session.wait(running, waiting, after)
    assert running.result["verdict"] == waiting.result["verdict"] == "killed"
    assert "restarted" in running.result["message"] and "restarted" in waiting.result["message"]
    assert (value(after.result), after.result["is_fresh"]) == ("(False, 'stays')", 0)
    assert running.results == waiting.results == after.results == 1


def test_close_ends_all_cells(shell):
    session = Session(shell)
    cells = [session.execute("import time; time.sleep(1000)") for _ in range(3)]
    assert session.close() == 1 and session.close() == 0
    shell.until(lambda: session.ends)
    assert [cell.result["verdict"] for cell in cells] == ["killed"] * 3 and session.ends == [("the session was closed", None)]
    with pytest.raises(engine.Failure, match="there is no such session"):
        session.execute("1")


def test_close_before_it_has_begun(shell):
    session = Session(shell)
    session.close()
    shell.until(lambda: session.ends)


def test_idle_and_lifetime(shell):
    idle, old = Session(shell, idle_ms=300), Session(shell, lifetime_ms=300)
    shell.until(lambda: idle.ends and old.ends)
    assert "idle" in idle.ends[0][0] and "lifetime" in old.ends[0][0]


def test_queue_limit(session):
    session.run_until("import time\nprint('ready', flush=True)\ntime.sleep(1000)")
    for _ in range(63):
        session.execute("1")
    with pytest.raises(engine.Failure) as failure:
        session.execute("1")
    assert failure.value.code == 11, "EAGAIN"


def test_session_limit():
    with engine.Engine(image="python", zygotes=SHELL_ZYGOTES, max_sessions=2) as one:
        with Session(one), Session(one), pytest.raises(engine.Failure) as failure:
            Session(one)
        assert failure.value.code == 11
        assert one.stats()["sessions"] == 0


def test_what_is_refused(shell):
    for fields, words in (({"zygote": "no such"}, "zygote"), ({"env": ("PYTHONHASHSEED=1",)}, "environment"), ({"memory_bytes": 32 << 20}, "64 MiB"),
                          ({"policy": "no such"}, "no such"), ({"max_checkpoints": 65}, "64")):
        with pytest.raises(engine.Failure, match=words):
            Session(shell, **fields)
    with Session(shell) as session:
        for code, words in (("a\0b", "NUL"), (b"\xff", "UTF-8"), (b"#" * (9 << 20), "longer")):
            with pytest.raises(engine.Failure, match=words):
                session.execute(code)
        with pytest.raises(engine.Failure, match="above the policy"):
            session.execute("1", timeout_ms=10**9)


def test_a_callback_may_order_more_and_close(shell):
    session, results = Session(shell), []

    def on_result(cell):
        results.append(value(cell.result))
        if len(results) < 5:
            session.execute("%d" % len(results), on_result=on_result)
        else:
            session.close()

    session.execute("0", on_result=on_result)
    shell.until(lambda: session.ends)
    assert results == ["0", "1", "2", "3", "4"]


def test_a_callback_may_restart_and_interrupt(session):
    session.run("x = 1")
    cell, waiting = session.execute("x", on_result=lambda _: (session.interrupt(), session.restart())), session.execute("'never'")
    session.wait(cell, waiting)
    assert (cell.result["verdict"], waiting.result["verdict"]) == ("ok", "killed")
    checkpoint = session.order("checkpoint", on_reply=lambda _: (session.interrupt(), session.restart()))
    assert session.wait(checkpoint)["ok"]
    assert value(session.run("'x' in globals()")) == "False"
    session.run("import os; os._exit(1)", on_result=lambda _: (session.interrupt(), session.restart()))
    assert session.run("1")["verdict"] == "ok"


def test_close_while_output_comes(shell):
    session = Session(shell)
    session.execute("while True: print('x', flush=True)", on_output=lambda _: session.close())
    shell.until(lambda: session.ends)


# --------------------------------------------------------------------------------------------------
# Hostile interpreters

HOSTILE = {
    "garbage on descriptor 3": "import os\nos.write(3, b'garbage' * 100)",
    "a huge length": "import os, time\nos.write(3, b'\\xff\\xff\\xff\\x01' + b'x' * 100000)\ntime.sleep(100)",
    "no JSON": "import os, time\nos.write(3, b'\\x05\\0\\0\\0[[[[[')\ntime.sleep(100)",
    "a closed socket": "import os, time\nos.close(3)\ntime.sleep(100)",
    "a false end": "import json, os\nf = json.dumps({'is': 'done', 'n': 9999, 'id': 1, 'status': 'ok', 'count': 1}).encode()\n"
                   "os.write(3, len(f).to_bytes(4, 'little') + f)\nimport time; time.sleep(100)",
    "a flood of frames": "import json, os\nf = json.dumps({'is': 'display', 'n': 1, 'data': {'text/plain': 'x' * 1000}, 'metadata': {}}).encode()\n"
                         "f = len(f).to_bytes(4, 'little') + f\nwhile True: os.write(3, f)",
    "a fork that stays": "import os, time\nif os.fork() == 0: time.sleep(1000)\nos._exit(0)",
    "stopped": "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)",
    "no reader": "import socket, time\ns = socket.socket(fileno=3)\ns.shutdown(socket.SHUT_RD)\ns.detach()\ntime.sleep(1000)",
}


@pytest.mark.parametrize("what", sorted(HOSTILE))
def test_hostile_cells_hurt_themselves(shell, what):
    with Session(shell) as good, Session(shell) as bad:
        good.run("x = 1")
        cells = [bad.execute(HOSTILE[what], timeout_ms=1000), bad.execute("1", timeout_ms=5000)]
        bad.wait(*cells)
        assert [cell.results for cell in cells] == [1, 1]
        assert value(good.run("x")) == "1"


def test_frames_that_nobody_has_asked_for(session):
    """Between two cells an interpreter has little to say: not what fills the memory of a process with a thousand sessions."""
    session.run("import json, os, threading, time\nf = json.dumps({'is': 'display', 'n': 1, 'data': {'text/plain': 'x' * 10000}, 'metadata': {}}).encode()\n"
                "def flood():\n    time.sleep(0.3)\n    while True: os.write(3, len(f).to_bytes(4, 'little') + f)\n"
                "threading.Thread(target=flood, daemon=True).start()")
    session.engine.until(lambda: session.info()["state"] == "lost", what="its death")
    result = session.run("1")
    assert result["is_fresh"] and "descriptor 3" in result["message"]


# --------------------------------------------------------------------------------------------------
# Rich runs

def test_a_rich_run(shell):
    run = shell.submit("import sys\nprint('out')\nprint('err', file=sys.stderr)\nopen('file', 'w').write('x')\n6 * 7", rich=1)
    result = shell.wait(run)
    assert (result["verdict"], result["out"], result["err"]) == ("ok", b"out\n", b"err\n")
    assert run.cell["outputs"][-1]["data"]["text/plain"] == "42" and result["files"]["added"][0]["path"] == "file"


def test_rich_runs_end_as_runs_do(shell):
    assert shell.run("1 / 0", rich=1)["error"]["name"] == "ZeroDivisionError"
    run = shell.submit("print('said')\nwhile True: pass", rich=1, wall_ms=8000)
    result = shell.wait(run)
    assert (result["verdict"], result["out"], result["error"]["name"]) == ("timeout", b"said\n", "KeyboardInterrupt")
    assert shell.run("import os; os._exit(4)", rich=1)["exit_code"] == 4
    run = shell.submit("print('said', flush=True)\nimport time; time.sleep(100)", rich=1, stream=True)
    shell.until(lambda: run.output[1])
    shell.cancel(run)
    assert shell.wait(run)["verdict"] == "killed" and run.output[1] == b"said\n"
    for fields in ({"args": ("a",)}, {"name": "x.py"}, {"input": b"x"}, {"language": "sh"}):
        with pytest.raises(engine.Failure, match="rich"):
            shell.submit("1", rich=1, **fields)


# --------------------------------------------------------------------------------------------------
# Checkpoints and branches

def test_rollback(session):
    session.run("x = 1; import os; open('file', 'w').write('one'); random = __import__('random'); random.seed(1)")
    checkpoint = session.do("checkpoint")
    first = value(session.run("random.random()"))
    session.run("x = 2; open('file', 'w').write('two'); os.mkdir('folder'); open('folder/new', 'w')")
    for _ in range(3):
        session.do("rollback", checkpoint["id"])
        assert value(session.run("x, open('file').read(), os.listdir('.')")) == "(1, 'one', ['file'])"
        assert value(session.run("random.random()")) == first, "the state, and all of it"
        session.run("x = 3")
    assert session.do("drop", checkpoint["id"])
    assert "no checkpoint" in session.wait(session.order("rollback", checkpoint["id"]))["message"]


def test_a_rollback_is_not_the_next_cells_doing(session):
    session.run("open('file', 'w').write('one')")
    checkpoint = session.do("checkpoint")
    session.run("open('file', 'w').write('two')")
    session.do("rollback", checkpoint["id"])
    files = session.run("1")["json"]["files"]
    assert files["added"] == files["modified"] == files["deleted"] == []


def test_interrupts_reach_the_interpreter_after_a_rollback(session):
    checkpoint = session.do("checkpoint")
    session.do("rollback", checkpoint["id"])
    cell = session.run_until("import time\nprint('ready', flush=True)\ntime.sleep(1000)")
    assert session.interrupt() == 1 and session.wait(cell)["error_name"] == "KeyboardInterrupt"


def test_what_was_started_after_a_checkpoint_ends_with_a_rollback(session):
    checkpoint = session.do("checkpoint")
    session.run("import subprocess; p = subprocess.Popen(['sleep', '1000'])")
    session.do("rollback", checkpoint["id"])
    assert session.printed("import os\nfor pid in filter(str.isdigit, os.listdir('/proc')):\n    try:\n"
                           "        if b'sleep' in open('/proc/%s/cmdline' % pid, 'rb').read(): print(pid)\n    except OSError: pass") == ""


def test_a_checkpoint_tells_what_it_has_not(session):
    session.run("import threading, time; t = threading.Thread(target=time.sleep, args=(100,), daemon=True); t.start()")
    assert any("thread" in sentence for sentence in session.do("checkpoint")["lost"])


def test_pools_go_on_in_copies(session):
    """A thread pool works on; one of processes raises, and a new one works. Rollback and switch tell what there is no more."""
    session.run("import asyncio, multiprocessing\nfrom concurrent.futures import ThreadPoolExecutor\nthreads, pool = ThreadPoolExecutor(1), multiprocessing.Pool(1)\n"
                "assert threads.submit(abs, -1).result() == await asyncio.to_thread(abs, -1) == pool.apply(abs, [-1]) == 1")
    checkpoint, branch = session.do("checkpoint"), session.do("fork")
    for what, target in (("rollback", checkpoint), ("switch", branch)):
        lost = session.do(what, target["id"])["lost"]
        assert [line for line in lost if "threads: " in line] and [line for line in lost if "pool of processes" in line], lost
        assert value(session.run("threads.submit(abs, -2).result(), await asyncio.to_thread(abs, -3)")) == "(2, 3)"
        result = session.run("pool.map(abs, [-1])")
        assert result["error_name"] == "RuntimeError" and "Make a new pool" in result["error_value"]
        assert session.printed("with multiprocessing.Pool(1) as p: print(p.map(abs, [-4]))") == "[4]\n"


def test_an_open_file_is_that_of_the_checkpoint(session):
    """What is written after a rollback is in /mnt/data, and a database has the rows of before."""
    session.run("import sqlite3\nlog = open('log', 'a'); log.write('one\\n'); log.flush()\n"
                "db = sqlite3.connect('a.db'); db.execute('create table t (x)'); db.execute('insert into t values (1)'); db.commit()")
    checkpoint, branch = session.do("checkpoint"), session.do("fork")
    for what, target in (("rollback", checkpoint), ("rollback", checkpoint), ("switch", branch)):
        session.run("log.write('two\\n'); log.flush(); sqlite3.connect('a.db').execute('delete from t').connection.commit(); open('/tmp/x', 'w').close()")
        lost = session.do(what, target["id"])["lost"]
        assert any("connect anew to /mnt/data/a.db" in line for line in lost) and any("/tmp/x" in line for line in lost), lost
        assert value(session.run("log.write('three\\n'); log.flush(); open('log').read(), db.execute('select * from t').fetchall()")) == "('one\\nthree\\n', [(1,)])"
    session.do("switch", 0)
    assert value(session.run("log.write('four\\n'); log.flush(); open('log').read()")) == "'one\\nthree\\ntwo\\nfour\\n'"


def test_copies_know_their_processor(session):
    """What libc has registered with the kernel for a thread, rseq(2), is so in copies as it is in a program that was
    started: another area is refused."""
    code = ("import ctypes, platform\nlibc = ctypes.CDLL(None, use_errno=True)\narea = ctypes.create_string_buffer(128)\nctypes.set_errno(0)\n"
            "libc.syscall(334 if platform.machine() == 'x86_64' else 293, ctypes.c_void_p(ctypes.addressof(area) + 31 & ~31), 32, 0, 1)\n")
    cold = support.run("-c", code + "print(ctypes.get_errno())", image="python").stdout.decode().strip()
    assert value(session.run(code + "ctypes.get_errno()")) == cold
    checkpoint = session.do("checkpoint")
    session.do("rollback", checkpoint["id"])
    assert value(session.run(code + "ctypes.get_errno()")) == cold


def test_branches_take_turns(session):
    session.run("x = 'first'; open('file', 'w').write('first')")
    branch = session.do("fork")["id"]
    session.run("x = 'changed'; open('only here', 'w').write('')")
    session.do("switch", branch)
    assert value(session.run("import os; x, sorted(os.listdir('.'))")) == "('first', ['file'])"
    session.run("x = 'branch'; open('file', 'w').write('branch')")
    session.do("switch", 0)
    assert value(session.run("import os; x, open('file').read(), sorted(os.listdir('.'))")) == "('changed', 'first', ['file', 'only here'])"
    assert "is in" in session.wait(session.order("drop", 0))["message"]
    session.do("switch", branch)
    assert value(session.run("x, open('file').read()")) == "('branch', 'branch')"
    assert "no branch" in session.wait(session.order("switch", 99))["message"]


def test_bounds_of_checkpoints(shell):
    with Session(shell, max_checkpoints=2, checkpoint_bytes=1 << 20) as session:
        session.run("open('file', 'wb').write(bytes(700000))")
        first = session.do("checkpoint")
        assert first["bytes"] >= 700000
        assert not session.wait(session.order("checkpoint"))["ok"], "there is no room for two such files"
        session.run("import os; os.remove('file')")
        session.do("fork")
        assert "the most" in session.wait(session.order("checkpoint"))["message"]
        session.do("drop", first["id"])
        session.do("checkpoint")


@pytest.mark.parametrize("code, verdict", (
    ("import os; os._exit(3)", "error"),
    ("import ctypes; ctypes.string_at(0)", "error"),
    ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "killed"),
    ("import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\nwhile True: pass", "timeout"),
    ("import os\nif os.fork() == 0: __import__('time').sleep(1000)\nos._exit(0)", "error"),
))
def test_a_checkpoint_survives_its_interpreter(session, code, verdict):
    """As often as one dies. Others of its processes end, and the result of the cell is what it is without a checkpoint."""
    session.run("x = 1; open('file', 'w').write('one')")
    checkpoint = session.do("checkpoint")
    for _ in range(2):
        session.run("x = 2; open('file', 'w').write('two')")
        result = session.run("print('before', flush=True)\n" + code, **({"timeout_ms": 3000} if verdict == "timeout" else {}))
        assert (result["verdict"], result["interpreter_died"], result["outputs"][0]["text"]) == (verdict, 1, "before\n") and result["message"]
        assert "no checkpoint" in session.wait(session.order("rollback", 99))["message"]
        session.do("rollback", checkpoint["id"])
        result = session.run("import os, time\nuntil = time.monotonic() + 10\n"
                             "while (n := sum(name.isdigit() for name in os.listdir('/proc'))) > 3 and time.monotonic() < until: time.sleep(0.01)\n"
                             "x, open('file').read(), n")
        assert (value(result), result["is_fresh"], result["message"]) == ("(1, 'one', 3)", 0, ""), "process 1, this one, the parked one"
    assert session.do("checkpoint")["ok"]


def test_a_checkpoint_survives_a_death_between_cells(session):
    session.run("x = 1")
    checkpoint = session.do("checkpoint")
    session.run("import os, threading\nthreading.Timer(0.3, os._exit, [5]).start()")
    session.engine.until(lambda: session.info()["state"] == "lost", what="its death")
    session.do("rollback", checkpoint["id"])
    assert value(session.run("x")) == "1"


@pytest.mark.parametrize("back", ["rollback", "switch"])
def test_a_copy_of_a_fresh_interpreter_is_fresh(session, back):
    """An interpreter died between two cells, and the first order after that is no cell: the next cell is told, wherever it
    was gone to meanwhile."""
    session.run("x = 1\nimport os, threading\nthreading.Timer(0.2, os._exit, [5]).start()")
    session.engine.until(lambda: session.info()["state"] == "lost", what="its death")
    copy = session.do("checkpoint" if back == "rollback" else "fork")
    session.do(back, copy["id"])
    result = session.run("x")
    assert (result["error_name"], result["is_fresh"]) == ("NameError", 1) and "exit code 5" in result["message"], result
    if back == "switch":
        session.do("switch", 0)
        assert session.run("x")["is_fresh"] == 1, "that one was not told"
    assert session.run("1")["is_fresh"] == 0


def test_a_branch_survives_the_other(session):
    session.run("x = 1; open('file', 'w').write('one')")
    branch = session.do("fork")["id"]
    session.run("x = 2; open('file', 'w').write('two'); import os; os._exit(1)")
    session.do("switch", branch)
    assert value(session.run("x, open('file').read()")) == "(1, 'one')"
    assert not session.wait(session.order("switch", 0))["ok"], "that one is dead"


def test_a_dead_branch_is_not_changed_to(session):
    session.run("x = 1")
    branch = session.do("fork")["id"]
    session.run("import os; os._exit(1)")
    assert "has died" in session.wait(session.order("switch", 0))["message"]
    session.do("switch", branch)
    assert value(session.run("x")) == "1"


def test_a_death_behind_a_dropped_checkpoint_is_told_as_it_is(session):
    """The process of the checkpoint may still be on its way out."""
    for _ in range(10):
        session.run("1")
        checkpoint = session.do("checkpoint")["id"]
        orders = session.order("drop", checkpoint), session.execute("import os; os._exit(3)")
        result = session.wait(*orders)[1]
        assert result["verdict"] == "error" and "exit code 3" in result["message"], result


def test_a_cell_after_a_death_ends_checkpoints(session):
    """It gets another interpreter, in a sandbox of its own."""
    checkpoint = session.do("checkpoint")
    session.run("x = 1; import os; os._exit(1)")
    result = session.run("1")
    assert result["is_fresh"] and "exit code 1" in result["message"]
    assert not session.wait(session.order("rollback", checkpoint["id"]))["ok"]


def test_the_last_checkpoint_is_dropped_after_a_death(session):
    checkpoint = session.do("checkpoint")
    session.run("x = 1; import os; os._exit(1)")
    session.do("drop", checkpoint["id"])
    assert session.run("1")["is_fresh"]


def test_restart_and_close_after_a_death(shell):
    with Session(shell) as session:
        session.run("1")
        session.do("checkpoint")
        session.run("import os; os._exit(1)")
        session.restart()
        assert value(session.run("2")) == "2"
        session.do("checkpoint")
        session.run("import os; os._exit(1)")


def test_a_killed_checkpoint_is_told(session):
    """The code inside is the same user, and can end any process of its sandbox."""
    checkpoint = session.do("checkpoint")
    session.run("import os, signal\nfor pid in map(int, filter(str.isdigit, os.listdir('/proc'))):\n"
                "    if pid not in (1, os.getpid()):\n        try: os.kill(pid, signal.SIGKILL)\n        except OSError: pass\nx = 1")
    assert not session.wait(session.order("rollback", checkpoint["id"]))["ok"]
    assert value(session.run("x")) == "1"


def test_memory_of_checkpoints_counts(shell):
    with Session(shell, memory_bytes=256 << 20) as session:
        session.run("b = bytearray(120 << 20)\nfor i in range(0, len(b), 4096): b[i] = 1")
        session.do("checkpoint")
        result = session.run("import time\nfor i in range(0, len(b), 4096): b[i] = 2\ntime.sleep(1)\n"
                             "c = bytearray(100 << 20)\nfor i in range(0, len(c), 4096): c[i] = 1\ntime.sleep(20)")
        assert result["verdict"] in ("out_of_memory", "error"), result


# --------------------------------------------------------------------------------------------------
# Files

def test_files_from_outside(session):
    session.run("1")
    with session.open_file("folder/in.bin", os.O_WRONLY) as file:
        file.write(b"\0\1")
    result = session.run("open('folder/in.bin', 'rb').read()")
    assert value(result) == "b'\\x00\\x01'" and result["json"]["files"]["added"] == [], "the cell has not made it"
    session.run("open('out.txt', 'w').write('out'); import os; os.symlink('/etc/passwd', 'link'); os.mkfifo('fifo')")
    assert {entry["path"] for entry in session.files()} == {"folder/in.bin", "out.txt", "link", "fifo"}
    with session.open_file("out.txt") as file:
        assert file.read() == b"out"
    for name in ("link", "fifo", "../" * 3 + "etc/passwd", "/etc/passwd", "", "no such", "folder"):
        with pytest.raises(engine.Failure):
            session.open_file(name)
    session.delete_file("out.txt")
    assert value(session.run("os.path.exists('out.txt')")) == "False"


# --------------------------------------------------------------------------------------------------
# Many, and what is left of them

def count_fds():
    return len(os.listdir("/proc/self/fd"))


def test_many_sessions_at_once():
    wanted = 14 * 200 + 300  # with a volume each, where files are in memory
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < wanted:
        pytest.skip("no more than %d descriptors" % hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    try:
        with engine.Engine(image="python", zygotes=SHELL_ZYGOTES) as one:
            sessions = [Session(one) for _ in range(200)]
            cells = [session.execute("x = %d" % i) for i, session in enumerate(sessions)]
            one.until(lambda: all(cell.result for cell in cells), 240, "every cell has a result")
            assert {cell.result["verdict"] for cell in cells} == {"ok"}
            assert one.stats()["sessions"] == 200
            cells = [session.execute("x") for session in sessions]
            one.until(lambda: all(cell.result for cell in cells), 120, "every cell has a result")
            assert [value(cell.result) for cell in cells] == [str(i) for i in range(200)]
            for session in sessions:
                session.close()
            one.until(lambda: all(session.ends for session in sessions), 120, "every session has ended")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_more_sessions_than_there_are_descriptors_for():
    """Those that open work, the first that cannot says what it would need, and runs have theirs all the while."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(600, hard), hard))
    try:
        with engine.Engine(image="python", zygotes=SHELL_ZYGOTES) as one:
            sessions = []
            with pytest.raises(engine.Failure) as refusal:
                while len(sessions) < 200:
                    sessions.append(Session(one))
            assert refusal.value.code == errno.EMFILE and "and the limit is %d: raise RLIMIT_NOFILE" % min(600, hard) in str(refusal.value)
            assert len(sessions) >= 20
            cells = [session.execute("x = %d" % i) for i, session in enumerate(sessions)]
            runs = [one.submit("print(%d)" % i) for i in range(20)]
            one.until(lambda: all(cell.result for cell in cells), 240, "every cell has a result")
            assert {cell.result["verdict"] for cell in cells} == {"ok"}
            assert [result["stdout"] for result in one.wait(*runs)] == ["%d\n" % i for i in range(20)]
            assert one.stats()["restarted"] == 0
            sessions.pop().close()
            one.until(lambda: one.stats()["sessions"] == len(sessions), 60, "one has ended")
            Session(one)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_an_engine_is_freed_with_sessions_open():
    before = count_fds()
    one = engine.Engine(image="python", zygotes=SHELL_ZYGOTES)
    sessions = [Session(one) for _ in range(3)]
    sessions[0].run("x = 1")
    sessions[0].do("checkpoint")
    sessions[1].execute("while True: pass")
    one.close()
    assert count_fds() == before and not any(session.ends for session in sessions)


def test_nothing_is_left(shell):
    shell.settle()
    before, folder = count_fds(), os.path.join(os.environ["HUTCH_HOME"], "runs")

    def directories():
        return sorted(path for path, names, _ in os.walk(folder) for _ in names)

    for _ in range(3):
        with Session(shell) as session:
            session.run("open('file', 'w')")
            checkpoint = session.do("checkpoint")
            branch = session.do("fork")
            session.do("rollback", checkpoint["id"])
            session.do("switch", branch["id"])
            session.run("import os; os._exit(1)")
            session.run("1")
    shell.settle()
    shell.until(lambda: count_fds() <= before, what="descriptors are closed")
    shell.until(lambda: not [name for name in os.listdir(shell_data(folder)) if name.startswith("c")], what="states are removed")


def test_a_change_that_fails_half_way_leaves_nothing(session, shell):
    """Whoever says that he is another process cannot be followed, and by then the files have been changed over."""
    session.run("import os\ndef change_pid(*group): os.getpid = lambda: 999999\n"
                "os.setpgid = change_pid  # which a copy calls first\nopen('file', 'w').write('one')")
    branch = session.do("fork")
    assert "child" in session.wait(session.order("switch", branch["id"]))["message"]
    assert session.run("1")["is_fresh"]
    folder = os.path.join(os.environ["HUTCH_HOME"], "runs")
    shell.until(lambda: not [name for name in os.listdir(shell_data(folder)) if name.startswith("c")], what="states are removed")


def test_a_source_that_is_missing_is_told_and_tried_again(tmp_path, policy):
    """Also to who comes when it has been found to be missing already."""
    missing = tmp_path / "missing"
    path = policy(mounts=[{"type": "bind", "source": str(missing), "target": "/extra"}])
    with engine.Engine(image="python", max_running=1) as one:
        busy = one.run_streaming("print('ready', flush=True)\nimport time\ntime.sleep(0.5)")
        queued = one.submit("print(1)", policy=path)
        results = one.wait(busy, queued)
        assert results[1]["verdict"] == "setup_failed" and str(missing) in results[1]["message"]
        with Session(one, policy=path) as session:
            for _ in range(2):
                result = session.run("1")
                assert result["verdict"] == "setup_failed" and str(missing) in result["message"]
            missing.mkdir()
            assert value(session.run("import os; os.path.isdir('/extra')")) == "True"
        assert one.run("print(1)")["verdict"] == "ok" and one.stats()["lost_launchers"] == 0


def test_files_that_are_too_large_end_every_interpreter_and_can_be_removed(policy):
    """Nothing is imported there, so the next interpreter is found to have too much before it is ready."""
    with engine.Engine(image="python", policy=policy(limits={"data_size": "1M"}, data_place="disk")) as one, Session(one) as session:
        result = session.run("open('file', 'wb').write(bytes(8 << 20))\nimport time\ntime.sleep(20)")
        assert result["verdict"] == "output_limit" and result["interpreter_died"]
        result = session.run("1")
        assert result["verdict"] == "output_limit" and "/mnt/data holds more than 1048576 bytes" in result["message"]
        session.delete_file("file")
        assert value(session.run("1")) == "1"


def shell_data(folder):
    return next(os.path.join(folder, name) for name in os.listdir(folder) if re.fullmatch(r"\d+\.data", name))


# --------------------------------------------------------------------------------------------------
# Helpers that are killed

def descendants():
    """Of this process, as pids."""
    children, found, queue = {}, [], [os.getpid()]
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/stat" % pid, encoding="utf-8", errors="replace") as file:
                children.setdefault(int(file.read().rpartition(")")[2].split()[1]), []).append(int(pid))
        except OSError:
            pass
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def test_whoever_is_killed_every_order_is_answered_once():
    """Any of the engine's processes, while cells and checkpoints are under way: interpreters, parked ones, inits, zygotes, helpers."""
    seed = int(os.environ.get("HUTCH_TEST_SEED", "20261121"))
    chance, orders = random.Random(seed), []
    with engine.Engine(image="python", zygotes=SHELL_ZYGOTES) as one:
        sessions = [Session(one) for _ in range(3)]
        assert [value(session.run("1")) for session in sessions] == ["1"] * 3, "an engine that never worked gives up soon"
        for _ in range(40):
            for session in sessions:
                what = chance.choice(("cell", "cell", "cell", "checkpoint", "rollback", "fork", "switch"))
                if sum(order.result is None for order in session.pending) > 3:
                    continue
                if what == "cell":
                    orders.append(session.execute("x = globals().get('x', 0) + 1; open('file', 'w').write(str(x)); x"))
                else:
                    orders.append(session.order(what, *([chance.randrange(4)] if what in ("rollback", "switch") else [])))
            for _ in range(3):
                one.dispatch(0.02)
            victims = descendants()
            if victims:
                try:
                    os.kill(chance.choice(victims), signal.SIGKILL)
                except OSError:
                    pass
        one.until(lambda: all(order.result is not None for order in orders), 120, "every order is answered")
        assert {order.results for order in orders} == {1}, "seed %d" % seed
        for session in sessions:
            result = session.run("6 * 7")
            for _ in range(2):  # what follows from the last kill may come this late
                result = session.run("6 * 7") if result["interpreter_died"] else result
            assert value(result) == "42"
        for session in sessions:
            session.close()
        one.until(lambda: all(session.ends for session in sessions))
        assert {len(session.ends) for session in sessions} == {1}


def kill_inits():
    """Process 1 of each sandbox: two pid namespaces below this one."""
    def numbers(pid):
        with open("/proc/%s/status" % pid, encoding="utf-8", errors="replace") as file:
            return re.search(r"^NSpid:(.*)", file.read(), re.M)[1].split()

    killed = 0
    for pid in descendants():
        try:
            if len(numbers(pid)) == len(numbers("self")) + 2 and numbers(pid)[-1] == "1":
                os.kill(pid, signal.SIGKILL)
                killed += 1
        except (FileNotFoundError, ProcessLookupError):
            pass  # it has ended meanwhile
    return killed


def test_two_deaths_without_a_cell_between_are_told():
    with engine.Engine(image="python", zygotes=SHELL_ZYGOTES) as one, Session(one) as session:
        session.run("x = 1")
        one.settle()
        assert kill_inits() > 0
        one.until(lambda: session.wait(session.order("checkpoint"))["ok"], what="the next interpreter is asked")
        assert kill_inits() > 0
        one.until(lambda: session.info()["state"] == "lost", what="its death")
        assert session.run("1")["is_fresh"] == 1


def test_sessions_outlive_the_launcher_and_the_zygotes():
    with engine.Engine(image="python", zygotes=SHELL_ZYGOTES) as one, Session(one) as session:
        session.run("x = 1")
        one.settle()
        os.kill(one.stats()["launcher_pid"], signal.SIGKILL)
        for entry in one.stats()["zygotes"]:
            os.kill(entry["pid"], signal.SIGKILL)
        one.until(lambda: one.stats()["lost_launchers"] == 1)
        assert value(session.run("x")) == "1"
        session.run("import os; os._exit(1)")
        assert session.run("1")["is_fresh"] == 1


# --------------------------------------------------------------------------------------------------
# Another program clears away what the engine has on disk

def own_runs(before):
    """The directory of the one engine that was opened since."""
    (number,) = set(support.live_runs()) - set(before)
    return os.path.join(support.hutch_home(), "runs", "%s.data" % number)


def test_the_runs_of_an_engine_are_removed():
    """Nothing waits for ever, and nothing is ok whose files are gone; the engine says that it is over."""
    before = support.live_runs()
    with engine.Engine(image="python", zygotes=SHELL_ZYGOTES) as one:
        sessions = [Session(one, keep_data=1) for _ in range(3)]
        for session in sessions:
            assert session.run("open('/mnt/data/file', 'w').write('kept')")["verdict"] == "ok"
        checkpoint = sessions[1].do("checkpoint")["id"]
        busy = sessions[2].run_until("print('ready', flush=True)\ninput()", allow_input=1)
        run = one.run_streaming("import time; print('ready', flush=True); time.sleep(600)", keep_data=1, wall_ms=3000)
        support.remove_tree(own_runs(before))
        orders = [sessions[0].execute("1"), sessions[0].execute("1"), sessions[1].order("rollback", checkpoint), busy]
        late = one.submit("print(1)")
        with pytest.raises(engine.Failure, match="was removed while the engine used it: open another engine"):
            one.until(lambda: False, 60, "the engine says that it is over")
        assert [pending.results for pending in orders] == [1] * 4 and (run.results, late.results) == (1, 1)
        assert {order.result.get("verdict") or order.result["ok"] for order in orders} == {"killed", False}
        assert all(order.result["message"] for order in orders)
        assert (run.result["verdict"], late.result["verdict"]) == ("timeout", "setup_failed"), (run.result, late.result)
        for session in sessions:
            ((why, directory),) = session.ends
            assert directory is None and why.endswith("; its files are lost"), why


def test_the_files_of_a_session_are_removed(policy):
    """A program that clears away what is old: the session is over, and its engine is not."""
    with engine.Engine(image="python", zygotes=SHELL_ZYGOTES, policy=policy(data_place="disk")) as shell:
        check_removed_files(shell)


def check_removed_files(shell):
    with Session(shell, keep_data=1) as one:
        one.run("open('/mnt/data/only_here', 'w').write('x')")
        runs = os.path.join(support.hutch_home(), "runs")
        (folder,) = [path for path, _, files in os.walk(runs) if "only_here" in files]
        support.remove_tree(folder)
        result = one.run("1")
        assert (result["verdict"], result["message"]) == ("killed", "another program has removed the files of the session")
        shell.until(lambda: one.ends, what="the session's end")
        assert one.ends == [("another program has removed the files of the session; its files are lost", None)]
    with Session(shell) as another:
        assert another.run("1")["verdict"] == "ok"


# --------------------------------------------------------------------------------------------------
# Limits of a session's own, in a sandbox that was prepared for the policy's

def test_limits_are_set_in_a_prepared_sandbox(shell):
    """They hold from the first cell on, for each interpreter that takes the place of a dead one, and for copies."""
    seen = "import resource\n" + support.MEMINFO + "print(meminfo()['MemTotal'] >> 20, resource.getrlimit(resource.RLIMIT_NPROC)[1])"
    before = shell.settle()
    with Session(shell, memory_bytes=200 << 20, pids=20) as session:
        assert session.printed(seen) == "200 22\n"
        after = shell.stats()
        assert (after["from_pool"] - before["from_pool"], after["on_demand"] - before["on_demand"]) == (1, 0)
        session.do("checkpoint")
        result = session.run("import time\nheld = bytearray(b'x') * (400 << 20)\ntime.sleep(60)")
        assert (result["verdict"], result["interpreter_died"]) == ("out_of_memory", True), result["message"]
        assert session.printed(seen) == "200 22\n"
        session.restart()
        assert session.printed(seen) == "200 22\n"
