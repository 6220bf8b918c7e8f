"""What reaches a terminal: of a program text and colours, unless --raw was given; of hutch's own words nothing that it obeys."""
import json
import os
import pty
import re
import select

import pytest

import rootfs_archives as make
from support import HUTCH, IMAGE, WARM, hutch, hutch_home, run

EVIL = "\x1b]0;owned\x07\x9b6n\u202e\u2066"
C1_AND_DIRECTION = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def on_terminal(*args, env=None, cwd=None):
    """hutch ARGS with standard output and error on one terminal: the exit status, and what it got."""
    pid, fd = pty.fork()
    if pid == 0:
        try:
            if cwd:
                os.chdir(cwd)
            os.execve(HUTCH, [HUTCH, *map(str, args)], {**os.environ, "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "TERM": "xterm", "NO_COLOR": "", **(env or {})})
        finally:
            os._exit(127)
    output = b""
    while select.select([fd], [], [], 60)[0]:
        try:
            more = os.read(fd, 65536)
        except OSError:
            break
        if not more:
            break
        output += more
    os.close(fd)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), output.decode("utf-8", "surrogateescape").replace("\r\n", "\n")


def run_on_terminal(*args, **options):
    return on_terminal("run", *WARM, "--image", IMAGE, *args, **options)


PROGRAM = "import sys; print(%r); print(%r, file=sys.stderr)"


# --------------------------------------------------------------------------------------------------
# A program's own bytes

@pytest.mark.parametrize("text, shown", [
    ("\x1b]0;owned\x07", "^[]0;owned^G"),
    ("\x1b[6n\x1b[2J", "^[[6n^[[2J"),
    ("\x9b6n", "\\x9b6n"),
    ("a\u202eb", "a\\u202eb"),
    ("\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m"),
    ("10%\r20% caf\xe9 \U0001f600", "10%\r20% caf\xe9 \U0001f600"),
])
def test_escapes_of_a_program(text, shown):
    status, output = run_on_terminal("-c", PROGRAM % (text, text))
    assert status == 0 and sorted(output.splitlines()) == sorted((shown + "\n").splitlines() * 2)


def test_raw():
    status, output = run_on_terminal("--raw", "-c", PROGRAM % (EVIL, EVIL))
    assert (status, output) == (0, (EVIL + "\n") * 2)


def test_all_of_a_long_output():
    """More than any buffer holds, with sequences that are cut wherever a read ends."""
    status, output = run_on_terminal("-c", "for i in range(20000): print('\\x1b]0;%d\\x07\\x9b' % i)")
    assert status == 0
    assert output == "".join("^[]0;%d^G\\x9b\n" % i for i in range(20000))


def test_end_of_a_sequence_that_never_ends():
    """What was held back is shown, and colours end with the program."""
    assert run_on_terminal("-c", "print('\\x1b[31mred\\x1b[3', end='')") == (0, "\x1b[31mred^[[3\x1b[0m")


def test_pipes_get_every_byte():
    done = run("-c", "import os; os.write(1, bytes(range(256))); os.write(2, bytes(range(256)))")
    assert done.stdout == done.stderr == bytes(range(256))


@pytest.mark.parametrize("args", [("--json", "-c", "1"), ("--rich", "-c", "1"), ("--llm", "-c", "1"), ("a.ipynb",)])
def test_raw_is_for_programs(args):
    done = hutch("run", "--raw", *args)
    assert done.returncode == 125 and b"option '--raw'" in done.stderr


# --------------------------------------------------------------------------------------------------
# What hutch says itself, on a terminal and elsewhere

def assert_is_plain(text):
    assert not C1_AND_DIRECTION.search(text), repr(text)
    assert "\x1b" not in text and "\x07" not in text, repr(text)
    assert not any("\udc80" <= letter <= "\udcff" for letter in text), repr(text)


def check_words(*args, status=125, **options):
    """Both ways; the words, which quote something."""
    done = hutch(*args, **options)
    assert done.returncode == status, done.stderr
    assert_is_plain(done.stderr.decode("utf-8", "surrogateescape"))
    code, output = on_terminal(*args, **options)
    assert code == status
    assert_is_plain(output)
    return output


def test_words_of_the_command_line(tmp_path):
    for args in (("run", "--image", EVIL, "-c", "1"), ("run", "/nonexistent/" + EVIL), ("run", "--bogus" + EVIL), (EVIL,), ("rootfs", EVIL),
                 ("rootfs", "remove", EVIL), ("batch", "/nonexistent/" + EVIL), ("run", "-e", EVIL, "-c", "1"),
                 ("run", "--image", os.fsdecode(b"\x9b6n\xff"), "-c", "1")):
        assert "6n" in check_words(*args, status=127 if args[:2] == ("run", "/nonexistent/" + EVIL) else 125)


def test_words_of_a_policy(tmp_path):
    policy = tmp_path / "policy.json"
    for text in ('{"schema": 1, "%s": 1}', '{"schema": 1, "extends": "%s"}', '{"schema": 1, "description": "", "limits": {"%s": 1}}'):
        policy.write_text(text % EVIL.replace("\x1b", "\\u001b").replace("\x07", "\\u0007"))
        assert "owned" in check_words("run", "--image", IMAGE, "--policy", policy, "-c", "1")


def test_words_of_a_notebook(tmp_path):
    notebook = tmp_path / "in.ipynb"
    notebook.write_text(json.dumps({"cells": [], "metadata": {"kernelspec": {"name": EVIL, "language": EVIL, "display_name": EVIL},
                                                              "language_info": {"name": EVIL}}, "nbformat": 4, "nbformat_minor": 5}))
    assert "owned" in check_words("run", notebook)


def test_words_of_an_archive(tmp_path):
    for name in ("../" + EVIL, EVIL + "/../../x"):
        archive = make.oci(tmp_path / "a.tar", [make.layer(make.file(name, b"x"))])
        check_words("rootfs", "unpack", archive, env={"HUTCH_HOME": str(tmp_path / "home")})


def test_debug_words(tmp_path):
    (tmp_path / EVIL).mkdir()
    done = hutch("run", "--verbose", "--image", IMAGE, "-v", "%s:/x" % (tmp_path / EVIL), "-c", "1")
    assert done.returncode == 0
    assert_is_plain(done.stderr.decode("utf-8", "surrogateescape"))


@pytest.mark.parametrize("options", [(), ("--rich",)])
def test_json(options):
    """The program's own text is in it, and means the same."""
    done = run("--json", *options, "-c", "print(%r)" % (EVIL + "caf\xe9"), image="python")
    assert json.loads(done.stdout)["stdout" if not options else "cell"] is not None
    assert_is_plain(done.stdout.decode())
    if not options:
        assert json.loads(done.stdout)["stdout"] == EVIL + "caf\xe9\n"


def test_results_of_a_batch(tmp_path):
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text(json.dumps({"id": "one", "code": "print(%r)" % EVIL, "expected": "x"}) + "\n")
    done = hutch("batch", "-q", "--image", IMAGE, str(tasks), env={"HUTCH_HOME": hutch_home()})
    assert done.returncode == 0, done.stderr
    assert "owned" in done.stdout.decode()
    assert_is_plain(done.stdout.decode())
