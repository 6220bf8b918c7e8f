"""hutch repl, through a pseudo-terminal as a person has it, and from a pipe."""
import base64
import codecs
import fcntl
import os
import pty
import re
import select
import signal
import stat
import struct
import subprocess
import termios
import time

import pytest

import engine
import support
from support import HUTCH

IMAGE = "python"  # it has IPython's kernel, matplotlib and Pillow
SECONDS = 150     # for anything that has to happen at all

CTRL_C, CTRL_D, CTRL_R, CTRL_BACKSLASH, UP, TAB = "\x03", "\x04", "\x12", "\x1c", "\x1b[A", "\t"

# A picture of one pixel.
PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")

COLOURS = re.compile(r"\x1b\[[0-9;:]*m")


class Terminal:
    """hutch repl on a pseudo-terminal. `output` is all that it has written; what a test looks for is looked for behind what it
    found before."""

    def __init__(self, *args, cwd=None, **env):
        environment = {name: value for name, value in os.environ.items()
                       if name not in ("NO_COLOR", "KITTY_WINDOW_ID", "TERM_PROGRAM", "COLORTERM", "LC_ALL", "LC_CTYPE", "EDITRC", "PAGER", "LESS",
                                       "LESSOPEN", "LESSCLOSE", "LESSSECURE")}
        environment.update(TERM="vt100", LANG="C.UTF-8", HOME="/nonexistent")
        environment.update(env)
        if engine.has_sanitizer(HUTCH):
            environment["LSAN_OPTIONS"] = "suppressions=%s/lsan.supp" % os.path.dirname(os.path.abspath(__file__))
            environment["ASAN_OPTIONS"] = environment.get("ASAN_OPTIONS", "") + ":fast_unwind_on_malloc=0"  # or it sees too little
        self.output, self.raw, self.seen = "", "", 0
        self.decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")  # a read may end within a letter
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            try:
                if cwd:
                    os.chdir(cwd)
                os.execve(HUTCH, [HUTCH, "repl", "--image", IMAGE, *map(str, args)], environment)
            finally:
                os._exit(127)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 200, 0, 0))
        self.status = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)

    def type(self, text):
        os.write(self.fd, text.encode())

    def line(self, text=""):
        self.type(text + "\n")

    def read(self, seconds):
        """More output, much at once where there is much; False at the end of it."""
        data = b""
        while len(data) < 1 << 18 and select.select([self.fd], [], [], 0.005 if data else seconds)[0]:
            try:
                more = os.read(self.fd, 65536)
            except OSError:
                more = b""
            if not more and not data:
                return False
            data += more
            if not more:
                break
        # What asks the terminal to mark pastes is of no interest, and is not cut by the reads of a test.
        text = re.sub(r"\x1b\[\?2004[hl]", "", self.decoder.decode(data))
        self.raw += text
        self.output += re.sub(r"\x1b\[32m([^\x1b\n]*:)\x1b\[0m ", r"\1 ", text)  # nor is a prompt and its colour
        return True

    def expect(self, pattern):
        """Waits for @pattern, and returns what was shown before it."""
        deadline = time.monotonic() + SECONDS
        is_open, start = True, self.seen
        while True:
            found = re.compile(pattern).search(self.output, start)
            start = max(self.seen, len(self.output) - 4096)  # what was looked through once has no match
            if found:
                before = self.output[self.seen:found.start()]
                self.seen = found.end()
                return before
            assert is_open, "%r did not come before the end: %r" % (pattern, self.output[self.seen:][-2000:])
            assert time.monotonic() < deadline, "%r did not come: %r" % (pattern, self.output[self.seen:][-2000:])
            is_open = self.read(0.1)

    def prompt(self, number=None):
        return self.expect(r"(?:(?<=\n)\r\n)?In \[%s\]: " % (r"\d+" if number is None else number))

    def run(self, code):
        """Types a cell of one line at a prompt that was seen, and returns what it shows, up to the next prompt."""
        self.line(code)
        return self.prompt().partition("\n")[2].replace("\r\n", "\n")

    def end(self):
        """Waits until it has ended, and returns the exit status."""
        while self.read(SECONDS):
            pass
        _, status = os.waitpid(self.pid, 0)
        self.status = os.waitstatus_to_exitcode(status)
        return self.status


@pytest.fixture
def repl(data):
    with Terminal("--data", data) as terminal:
        terminal.prompt(1)
        yield terminal


# --------------------------------------------------------------------------------------------------
# Cells

def test_state_across_cells(repl):
    assert repl.run("x = 6") == ""
    assert repl.run("x * 7") == "Out[2]: 42\n"
    repl.line("print('x is', x); x + 1")
    assert repl.prompt(4).replace("\r\n", "\n").endswith("x is 6\nOut[3]: 7\n")
    repl.type(CTRL_D)
    assert repl.end() == 0


def test_empty_line_between_cells(repl):
    repl.run("x = 6")
    repl.run("x")
    repl.line()
    repl.prompt(3)
    repl.run("%pwd")
    repl.line("%context")
    repl.expect(r"'main'\r\n\r\nIn \[4\]: ")
    assert "In [1]: x = 6\r\n\r\nIn [2]: x\r\nOut[2]: 6\r\n\r\nIn [3]: \r\nIn [3]: %pwd\r\nOut[3]: '/mnt/data'\r\n\r\nIn [4]: " in repl.output


def test_value_of_several_lines(repl):
    assert repl.run("import pandas; pandas.DataFrame({'a': [1, 2]})") == "Out[1]: \n   a\n0  1\n1  2\n"


def test_block(repl):
    """A block goes on until an empty line, and so do brackets and strings until they are closed."""
    repl.line("for i in range(2):")
    repl.expect(r"   \.\.\.: ")
    repl.line("    print('item', i)")
    repl.expect(r"   \.\.\.: ")
    repl.line()
    assert repl.prompt(2).replace("\r\n", "\n").endswith("item 0\nitem 1\n")
    repl.line("s = '''one")
    repl.expect(r"   \.\.\.: ")
    repl.line()
    repl.expect(r"   \.\.\.: ")
    repl.line("three'''; (s,")
    repl.expect(r"   \.\.\.: ")
    repl.line(")")
    assert repl.prompt(3).replace("\r\n", "\n").endswith("Out[2]: ('one\\n\\nthree',)\n")


def test_tab_indents(repl):
    repl.line("if True:")
    repl.expect(r"   \.\.\.: ")
    repl.type(TAB + "print('indented')\n")
    repl.expect(r"   \.\.\.: ")
    repl.line()
    assert "indented\n" in repl.prompt(2).replace("\r\n", "\n")


def test_tab_completes(repl):
    repl.type("sortable = sort" + TAB + "([3, 1])\n")  # at the very first prompt
    repl.prompt(2)
    assert repl.run("sortable") == "Out[2]: [1, 3]\n"
    repl.type("sorta" + TAB + ".appe" + TAB + "(2); len(sorta" + TAB + ")\n")
    assert repl.prompt(4).replace("\r\n", "\n").endswith("\nOut[3]: 3\n")
    assert repl.run("_i, 'typed' in dir(), 'shell' in dir()") == "Out[4]: ('sortable.append(2); len(sortable)', False, False)\n"


def test_tab_lists_what_there_is(repl):
    repl.run("thing_one, thing_two, other = 1, 2, 3")
    repl.type("1 + thi" + TAB + TAB)
    repl.expect(r"\nthing_one  thing_two *\r\n")
    repl.expect(r"In \[2\]: 1 \+ thing_")
    repl.line("two")
    assert repl.prompt(3).replace("\r\n", "\n").endswith("Out[2]: 3\n")
    repl.run("word = ''")
    repl.type("word.isal" + TAB)
    repl.expect(r"\nisalnum  isalpha\s")
    repl.expect(r"In \[4\]: word\.isal")  # the prompt is shown again
    repl.type(CTRL_C)
    repl.prompt(4)
    repl.run("globals().update({'many_%03d' % i: i for i in range(300)})")
    repl.type("many_" + TAB)
    listed = repl.expect(r"hutch: and more\r\n")
    assert "many_199" in listed and "many_200" not in listed


def test_tab_in_the_context_that_is_shown(repl):
    repl.run("first_of_main = 1")
    repl.line("%context other")
    repl.prompt(1)
    repl.run("first_of_other = 2")
    repl.type("first_" + TAB + "\n")
    repl.expect(r"\nOut\[2\]: 2\r\n")


def test_tab_completes_lines_of_ours(repl):
    repl.type("%che" + TAB + "\n")
    assert "hutch: checkpoint 1" in repl.prompt()


def test_tab_in_a_pasted_text(repl):
    repl.type("\x1b[200~len('a\tb')\x1b[201~\n")
    assert repl.prompt(2).replace("\r\n", "\n").endswith("Out[1]: 3\n")


def test_tab_and_hostile_names(repl):
    """What would be obeyed by the terminal or by the prompt is not proposed, and nothing that was not typed is changed."""
    repl.run("class Evil:\n    def __dir__(self): return ['ab\\n%reset\\n', 'ab\\x1b]0;owned\\x07', 'ab\\u202e', 'ab\\ud800', 'abc' * 99, 'abcd']\n")
    repl.run("evil = Evil(); get_ipython().Completer.greedy = True")
    repl.type("evil.a" + TAB + "\n")
    assert "has no attribute 'abcd'" in repl.prompt()
    repl.run("get_ipython().complete = lambda *rest: ('x', ['x; import os'])")
    repl.type("evil" + TAB + "\n")
    assert "import" not in repl.prompt()
    repl.run("get_ipython().complete = lambda *rest: 1 / 0")
    repl.type("evil" + TAB + "\n")
    assert "Error" not in repl.prompt()
    assert "\x1b]" not in repl.output and "owned" not in repl.output.rpartition("evil.a")[2]


def test_tab_puts_no_foreign_word_into_a_line_of_ours(repl):
    """%download writes to this machine, and the program would say where to."""
    repl.run("asked = []")
    repl.run("get_ipython().complete = lambda text, line, at: asked.append(line) or ('', ['proposed'])")
    repl.type("%download report.csv " + TAB + "\n")
    shown = repl.prompt()
    assert "report.csv" in shown and "proposed" not in shown
    repl.type("%download " + TAB + "\\\n")
    repl.expect(r"   \.\.\.: ")
    repl.type("report.csv " + TAB + "\n")
    shown = repl.prompt()
    assert "report.csv" in shown and "proposed" not in shown
    assert repl.run("asked").endswith(": []\n")
    repl.type("'" + TAB + "'\n")
    assert "'proposed'" in repl.prompt()


def test_tab_that_takes_too_long(repl):
    repl.run("class Slow:\n    def __dir__(self):\n        while True: pass\n")
    repl.run("slow = Slow(); x = 'still there'")
    repl.type("slow.a" + TAB + "\n")
    assert "AttributeError" in repl.prompt()
    assert repl.run("x").endswith("'still there'\n")


def test_tab_that_cannot_be_interrupted(repl, data):
    """The prompt comes back to the line, and Tab asks no more until that has ended."""
    repl.run("import os")
    # A function: in Python 3.13, an interrupt in a loop that is itself below "try" may come out of it.
    repl.run("def wait():\n    while not os.path.exists('/mnt/data/go'): pass\n")
    repl.run("class Stubborn:\n    def __dir__(self):\n        while not os.path.exists('/mnt/data/go'):\n            try: wait()\n"
             "            except BaseException: pass\n        return ['abcd']\n")
    repl.run("stubborn = Stubborn(); sortable = [1]")
    repl.type("stubborn.ab" + TAB + "x")
    repl.expect(r"stubborn\.ab\x07x")
    repl.type(CTRL_C)
    repl.prompt(5)
    repl.type("sorta" + TAB + "x")
    repl.expect(r"sorta\x07x")
    repl.type(CTRL_C)
    repl.prompt(5)
    with open(os.path.join(data, "go"), "w", encoding="utf-8"):
        pass
    assert repl.run("sortable") == "Out[5]: [1]\n"
    repl.type("sorta" + TAB + "\n")
    assert "Out[6]: [1]" in repl.prompt(7)


def test_tab_that_ends_the_interpreter(repl):
    repl.run("import os")
    repl.run("class Deadly:\n    def __dir__(self): os._exit(3)\n")
    repl.run("deadly = Deadly()")
    repl.type("deadly.a" + TAB)
    repl.expect(r"hutch: the interpreter ended with exit code 3[^\n]*\r\n")
    repl.expect(r"deadly\.a")
    repl.type("\n")
    assert "NameError" in repl.prompt()


def test_error(repl):
    shown = COLOURS.sub("", repl.run("1/0"))
    assert "ZeroDivisionError: division by zero" in shown and re.search(r"Cell In ?\[1\]", shown)
    assert repl.run("1") == "Out[2]: 1\n"


def test_colours_only_where_they_are_wanted(data):
    with Terminal("--data", data, NO_COLOR="1") as repl:
        repl.prompt(1)
        assert not COLOURS.search(repl.run("1/0"))
        assert not COLOURS.search(repl.raw)
    with Terminal("--data", data) as repl:
        repl.prompt(1)
        assert "\x1b[32mIn [1]:\x1b[0m " in repl.raw
        assert COLOURS.search(repl.run("1/0"))
        repl.line("(")
        repl.expect(r"   \.\.\.: ")
        assert "\x1b[32m   ...:\x1b[0m " in repl.raw


def test_marks_of_a_traceback_have_no_ground_of_their_own(repl):
    repl.run("def f(x): return x + 1 / 0")
    shown = repl.run("f(2)")
    numbers = {int(number) for colour in COLOURS.findall(shown) for number in re.sub("38;5;[0-9]+", "0", colour[2:-1]).split(";") if number}
    assert "ZeroDivisionError" in shown and 4 in numbers and not numbers & set(range(40, 49))


def test_output_comes_as_it_is_printed(repl, data):
    """The cell goes on when its first line was seen."""
    repl.line("import os, time")
    repl.prompt()
    repl.line("print('first')\\")
    repl.expect(r"   \.\.\.: ")
    repl.line("; exec('while not os.path.exists(\"go\"): time.sleep(0.01)'); print('second')")
    repl.expect(r"\nfirst\r\n")
    (data / "go").write_text("")
    repl.expect(r"second\r\n")


def test_magics_and_commands_of_ipython(repl):
    assert repl.run("%pwd") == "Out[1]: '/mnt/data'\n"
    assert repl.run("!echo from a shell").replace("\r", "") == "from a shell\n"


def test_prompt_after_output_without_newline(repl):
    assert repl.run("print('no newline', end='')") == "no newline\n"


def test_stderr_in_its_place(repl):
    code = "import sys; print(1, flush=True); print(2, file=sys.stderr, flush=True); print(3, flush=True)"
    assert repl.run(code) == "1\n2\n3\n"


def test_paste(repl):
    """An empty line within a pasted text ends nothing."""
    repl.type("\x1b[200~class A:\n    x = 1\n\n    def f(self):\n        return 'f'\n\nA().f()\n\x1b[201~")
    repl.expect(r"A\(\)\.f\(\)\r\n")
    repl.expect(r"   \.\.\.: ")
    repl.line()
    assert repl.prompt(2).replace("\r\n", "\n").endswith("Out[1]: 'f'\n")
    repl.type("\x1b[200~'not a \xe9 paste'\x1b[201~\x1b[D\x1b[D!\n")  # and keys are keys
    assert repl.prompt(3).replace("\r\n", "\n").endswith("Out[2]: 'not a \xe9 past!e'\n")


def test_help_of_ipython(repl):
    assert "Docstring:" in repl.run("len?")
    repl.line("%reset")
    repl.prompt(1)
    assert "Docstring:" in repl.run("len?")


@pytest.mark.parametrize("word", ["exit", "quit", "exit()", "quit()", "exit(3)", "exit;"])
def test_farewell(repl, word):
    repl.line(word)
    assert repl.end() == 0


# --------------------------------------------------------------------------------------------------
# Keys and signals

def test_ctrl_c_interrupts_a_loop(repl):
    """KeyboardInterrupt in the cell, and the state is still there."""
    repl.run("x = 'still there'")
    repl.line("print('begun')\\")
    repl.expect(r"   \.\.\.: ")
    repl.line("; exec('while True: pass')")
    repl.expect(r"\nbegun\r\n")
    repl.type(CTRL_C)
    assert "KeyboardInterrupt" in repl.prompt(3)
    assert repl.run("x") == "Out[3]: 'still there'\n"


def test_ctrl_c_at_the_prompt_clears_the_line(repl):
    repl.type("1/0")
    repl.expect("1/0")
    repl.type(CTRL_C)
    repl.prompt(1)
    assert repl.run("6 * 7") == "Out[1]: 42\n"
    repl.line("if True:")
    repl.expect(r"   \.\.\.: ")
    repl.type(CTRL_C)
    repl.prompt(2)


def test_program_that_cannot_be_interrupted(repl):
    repl.run("x = 1; import signal")
    repl.line("signal.signal(signal.SIGINT, signal.SIG_IGN); print('begun'); exec('while True: pass')")
    repl.expect(r"\nbegun\r\n")
    deadline = time.monotonic() + SECONDS
    while "hutch: it has been" not in repl.output:  # two signals that come at once are one, and the terminal drops output for each
        assert time.monotonic() < deadline
        repl.type(CTRL_C)
        pause = time.monotonic() + 0.5
        while time.monotonic() < pause:
            repl.read(0.1)
    repl.expect(r"hutch: it has been interrupted twice and goes on; Ctrl-\\ ends the interpreter")
    repl.type(CTRL_BACKSLASH)
    repl.prompt()
    assert "NameError" in repl.run("x")


def test_ctrl_d_ends(repl):
    repl.type(CTRL_D)
    assert repl.end() == 0


def settings_of_a_new_terminal():
    """Those of one that no program has changed yet, as the prompt does at once."""
    ends = os.openpty()
    try:
        return termios.tcgetattr(ends[0])
    finally:
        for end in ends:
            os.close(end)


def test_terminal_is_as_it_was(data):
    before = settings_of_a_new_terminal()
    with Terminal("--data", data) as repl:
        repl.prompt(1)
        repl.run("1")
        repl.line("import getpass; getpass.getpass()")
        repl.expect("Password: ")
        repl.type(CTRL_C)
        repl.prompt()
        repl.type(CTRL_D)
        while repl.read(SECONDS):
            pass
        assert termios.tcgetattr(repl.fd) == before


def test_window_and_job_control(repl):
    """The line that is typed survives another size of the window, and a stop."""
    repl.type("6 *")
    repl.expect(r"6 \*")
    fcntl.ioctl(repl.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 100, 0, 0))
    os.kill(repl.pid, signal.SIGWINCH)
    os.kill(repl.pid, signal.SIGSTOP)
    os.waitpid(repl.pid, os.WUNTRACED)
    os.kill(repl.pid, signal.SIGCONT)
    repl.expect(r"6 \*")
    repl.line(" 7")
    assert repl.prompt(2).endswith("Out[1]: 42\r\n")


def test_terminal_that_goes_away(data):
    with Terminal("--data", data) as repl:
        repl.prompt(1)
        os.close(repl.fd)
        repl.fd = os.open("/dev/null", os.O_RDONLY)
        _, status = os.waitpid(repl.pid, 0)
        repl.status = os.waitstatus_to_exitcode(status)
        assert repl.status == 128 + signal.SIGHUP


def test_signal_ends_all(data):
    """SIGTERM while a cell runs: nothing is left of it."""
    with Terminal("--data", data) as repl:
        repl.prompt(1)
        repl.line("print('begun')\\")
        repl.expect(r"   \.\.\.: ")
        repl.line("; exec('while True: pass')")
        repl.expect(r"\nbegun\r\n")
        below = support.descendants(repl.pid)
        assert below
        os.kill(repl.pid, signal.SIGTERM)
        assert repl.end() == 128 + signal.SIGTERM
        deadline = time.monotonic() + SECONDS
        while any(support.process_table().get(pid, (0, "Z"))[1] not in "ZX" for pid in below):
            assert time.monotonic() < deadline
            time.sleep(0.05)


# --------------------------------------------------------------------------------------------------
# An interpreter that dies, and limits

def test_death_of_the_interpreter(repl):
    repl.run("x = 1; open('file', 'w').close()")
    assert repl.run("import os; os._exit(3)") == "hutch: the interpreter ended with exit code 3; variables are lost\n"
    assert "NameError" in repl.run("x")
    assert repl.run("import os; os.path.exists('file')").endswith("True\n")


def test_a_checkpoint_survives_its_interpreter(repl):
    repl.run("x = 1")
    repl.run("%checkpoint")
    assert repl.run("import os; os._exit(3)") == ("hutch: the interpreter ended with exit code 3; variables are lost, "
                                                  "and %rollback goes back to a checkpoint\n")
    repl.run("%rollback 1")
    assert repl.run("x").endswith("Out[2]: 1\n")


def test_out_of_memory(data):
    with Terminal("--data", data, "--memory", "300m") as repl:
        repl.prompt(1)
        shown = repl.run("x = b'x' * (1 << 40)")
        assert "MemoryError" in shown or "hutch: " in shown
        assert repl.run("6 * 7").endswith("42\n")


def test_cell_timeout(data):
    with Terminal("--data", data, "--timeout", "5s") as repl:
        repl.prompt(1)
        repl.run("x = 5")
        shown = repl.run("while True: pass\n")
        assert "KeyboardInterrupt" in shown and "hutch: " in shown
        repl.prompt()
        assert repl.run("x").endswith("5\n")


# --------------------------------------------------------------------------------------------------
# Hostile output

@pytest.mark.parametrize("text, shown", [
    (r"\x1b]0;owned\x07", "^[]0;owned^G"),          # the window's title
    (r"\x1b]52;c;Zm9v\x07", "^[]52;c;Zm9v^G"),      # the clipboard
    (r"\x1b[6n", "^[[6n"),                          # an answer that comes as if it were typed
    (r"\x1b[2J\x1b[H", "^[[2J^[[H"),                # what was on the screen
    (r"\x1bP0q~~~\x1b\\", "^[P0q~~~^[\\"),          # graphics
    (r"\x1b_Ga=d\x1b\\", "^[_Ga=d^[\\"),
    (r"\x9b6n", r"\x9b6n"),                         # the same with a control character of C1
    (r"a\u202eb", r"a\u202eb"),                     # text that is read backwards
    (r"\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m"),  # colours pass
])
def test_escape_sequences(repl, text, shown):
    assert repl.run("print('%s')" % text) == shown + "\n"
    assert repl.run("import sys; sys.stderr.write('%s\\n');" % text) == shown + "\n"


def test_escape_sequences_everywhere(repl):
    """In a value, an exception's text, a prompt, a file's name, and in bytes that no Python has looked at."""
    evil, harmless = r"\x1b]0;owned\x07", "^[]0;owned^G"
    repl.run("class Evil:\n    def __repr__(self): return '%s'\n" % evil)
    assert repl.run("Evil()").endswith(harmless + "\n")
    assert harmless in repl.run("raise ValueError('%s')" % evil)
    assert harmless in repl.run("import os; os.system(r\"printf '\\033]0;owned\\007'\");")
    repl.line("input('%s? ')" % evil)
    repl.expect(re.escape("\n" + harmless) + r"\? ")
    repl.line("x")
    repl.prompt()
    repl.run("open('%s', 'w').close()" % evil)
    assert harmless in repl.run("%files")
    assert "\x1b]" not in repl.output and "\x07" not in repl.output


def test_terminal_without_utf8(data):
    """The second byte of U+011B would begin a sequence there."""
    with Terminal("--data", data, LANG="C") as repl:
        repl.prompt(1)
        assert repl.run(r"print('\u011b2J')") == r"\u011b2J" + "\n"


@pytest.mark.parametrize("env", [{"LANG": ""}, {"LANG": "C"}, {"LANG": "C", "LC_ALL": "POSIX"}, {"LANG": "de_DE.ISO-8859-1"}])
def test_letters_whatever_the_locale_says(data, env):
    """A letter that got lost would make another program of what was typed."""
    with Terminal("--data", data, **env) as repl:
        repl.prompt(1)
        assert repl.run("na\xefve = 'caf\xe9 \u20ac'") == ""
        assert repl.run("ascii(na\xefve)") == "Out[2]: \"'caf\\\\xe9 \\\\u20ac'\"\n"
        assert repl.run("na\xefve[:4]") == "Out[3]: 'caf\xe9'\n"


def test_bytes_that_are_no_letter(repl):
    """Latin-1, say: the cell is no Python, and not Python without the letter."""
    os.write(repl.fd, b"na\xefve = 1\n")
    assert "SyntaxError" in repl.prompt(2)


def test_output_that_never_ends(repl):
    repl.line("while True: print('y' * 1000)\n")
    repl.expect(r"hutch: [^\n]*output")
    repl.prompt()
    repl.prompt()
    assert repl.run("6 * 7").endswith("42\n")


# --------------------------------------------------------------------------------------------------
# Images

PLOT = "import matplotlib.pyplot as plt; plt.plot([1, 3, 2]);"


def test_plot_is_a_file(repl, data):
    assert repl.run(PLOT) == "hutch: figure-1.png\n"
    assert repl.run(PLOT) == "hutch: figure-2.png\n"
    for name in ("figure-1.png", "figure-2.png"):
        assert (data / name).read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert "\x1b_G" not in repl.output and "\x1bP" not in repl.output


def test_plot_takes_no_name_that_is_taken(repl, data):
    (data / "figure-1.png").write_bytes(b"mine")
    (data / "figure-2.png").symlink_to("/etc/hostname")
    assert repl.run(PLOT) == "hutch: figure-3.png\n"
    assert (data / "figure-1.png").read_bytes() == b"mine"


def test_svg(repl, data):
    assert repl.run("from IPython.display import SVG; display(SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"/>'))") == "hutch: figure-1.svg\n"
    assert (data / "figure-1.svg").read_text().startswith("<svg")


def kitty_images(text):
    """What a terminal for kitty's protocol would show: the PNG of every image."""
    parts = re.findall(r"\x1b_G([^;]*);([^\x1b]*)\x1b\\", text)
    images, open_image = [], None
    for keys, data in parts:
        keys = dict(key.split("=") for key in keys.split(","))
        assert len(data) <= 4096
        if open_image is None:
            assert keys["a"] == "T" and keys["f"] == "100" and keys["q"] == "2", keys
            open_image = ""
        open_image += data
        if keys["m"] == "0":
            images.append(base64.b64decode(open_image))
            open_image = None
    assert open_image is None
    return images


def test_kitty(data):
    with Terminal("--data", data, TERM="xterm-256color", KITTY_WINDOW_ID="1") as repl:
        repl.prompt(1)
        shown = repl.run(PLOT)
        image, = kitty_images(shown)
        assert image.startswith(b"\x89PNG\r\n\x1a\n") and image.endswith(b"IEND\xaeB`\x82")
        assert shown.endswith("hutch: figure-1.png\n")
        assert b"Software" in (data / "figure-1.png").read_bytes() and b"Software" not in image  # only what a picture needs


def test_kitty_is_not_shown_what_is_no_image(data):
    with Terminal("--data", data, "--images", "kitty") as repl:
        repl.prompt(1)
        fake = base64.b64encode(PNG[:30] + b"\x1b\\\x1b]0;owned\x07" + PNG[30:]).decode()
        shown = repl.run("display({'image/png': '%s'}, raw=True)" % fake)
        assert not kitty_images(shown) and "hutch: figure-1.png is not shown: it is a broken PNG image" in shown
        shown = repl.run("display({'image/png': 'no base64'}, raw=True)")
        assert not kitty_images(shown) and "hutch: an image is not saved: its base64 is broken" in shown
        assert len(kitty_images(repl.run("display({'image/png': '%s'}, raw=True)" % base64.b64encode(PNG).decode()))) == 1


SIXELS = r"\x1bP0;1q([#$!\-;0-9?-~]+)\x1b\\"


def test_sixel(data):
    with Terminal("--data", data, TERM="foot") as repl:
        repl.prompt(1)
        shown = repl.run(PLOT)
        assert len(re.findall(SIXELS, shown)) == 1 and shown.count("\x1b") == 2
        assert shown.endswith("hutch: figure-1.png\n")
        # Whatever the program has made of Pillow, it is not asked.
        repl.run("import PIL.Image; PIL.Image.open = lambda *a: print('?\\x1b\\\\\\x1b]0;owned\\x07')")
        shown = repl.run(PLOT)
        assert len(re.findall(SIXELS, shown)) == 1 and shown.count("\x1b") == 2


BLOCKS = r"(?:(?:\x1b\[[34]8;(?:5;\d+|2;\d+;\d+;\d+)m){0,2}\u2580)+\x1b\[0m\n"


def test_blocks(data):
    """Where a terminal has nothing better."""
    with Terminal("--data", data, TERM="xterm-256color") as repl:
        repl.prompt(1)
        shown = repl.run(PLOT)
        assert re.fullmatch("(?:%s){23}hutch: figure-1.png\n" % BLOCKS, shown) and "\x1b[38;2" not in shown
    with Terminal("--data", data, TERM="xterm-256color", COLORTERM="truecolor") as repl:
        repl.prompt(1)
        shown = repl.run(PLOT)
        assert re.fullmatch("(?:%s){23}hutch: figure-2.png\n" % BLOCKS, shown) and "\x1b[38;5" not in shown


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"LANG": "C"}], ids=str)
def test_no_blocks_without_colours_or_letters(data, env):
    with Terminal("--data", data, TERM="xterm-256color", **env) as repl:
        repl.prompt(1)
        assert repl.run(PLOT) == "hutch: figure-1.png\n"


def test_sixels_of_a_broken_image(data):
    with Terminal("--data", data, "--images", "sixel") as repl:
        repl.prompt(1)
        broken = bytearray(PNG)
        broken[len(PNG) // 2] ^= 0x41
        shown = repl.run("display({'image/png': '%s'}, raw=True)" % base64.b64encode(broken).decode())
        assert "hutch: figure-1.png is not shown: it is a broken PNG image: " in shown and "\x1b" not in shown


def test_many_images(repl, data):
    shown = repl.run("for i in range(102): display({'image/png': '%s'}, raw=True)\n" % base64.b64encode(PNG).decode())
    repl.prompt()
    assert "hutch: more than 100 images: the others are not saved" in shown
    assert len(list(data.iterdir())) == 100


# --------------------------------------------------------------------------------------------------
# input()

def test_input(repl):
    repl.line("name = input('Your name? ')")
    repl.expect(r"\nYour name\? ")
    repl.line("Ada")
    repl.prompt()
    assert repl.run("name") == "Out[2]: 'Ada'\n"


def test_input_of_any_bytes(repl):
    repl.line("answer = input('? ')")
    repl.expect(r"\n\? ")
    os.write(repl.fd, b"a\xff\xc3b\n")
    repl.prompt()
    assert repl.run("answer") == "Out[2]: 'a\ufffd\ufffdb'\n"


def test_input_ends(repl):
    repl.line("input('Your name? ')")
    repl.expect(r"\nYour name\? ")
    repl.type(CTRL_D)
    assert "EOFError" in repl.prompt()


def test_input_interrupted(repl):
    repl.line("input('Your name? ')")
    repl.expect(r"\nYour name\? ")
    repl.type(CTRL_C)
    assert "KeyboardInterrupt" in repl.prompt()
    assert repl.run("1") == "Out[2]: 1\n"


def test_input_interrupted_unseen(repl):
    """The signal comes to another thread, and wakes nobody that waits. So does one that comes just before a wait begins."""
    repl.run("import signal, threading; ended = threading.Event()")
    repl.run("threading.Thread(target=ended.wait).start(); signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})")
    repl.line("input('Your name? ')")
    repl.expect(r"\nYour name\? ")
    repl.type(CTRL_C)
    assert "KeyboardInterrupt" in repl.prompt()
    repl.run("ended.set(); signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})")


def test_password_is_not_shown(data):
    with Terminal("--data", data) as repl:
        repl.prompt(1)
        repl.line("import getpass; secret = getpass.getpass()")
        repl.expect(r"\nPassword: ")
        repl.line("swordfish")
        repl.prompt()
        assert "swordfish" not in repl.output
        assert repl.run("secret") == "Out[2]: 'swordfish'\n"
        repl.type(CTRL_D)
        repl.end()
    with open(os.path.join(support.hutch_home(), "repl_history"), "rb") as file:
        assert b"swordfish" not in file.read()


# --------------------------------------------------------------------------------------------------
# Files and the other lines of ours

def test_upload_files_download(repl, data, tmp_path):
    (tmp_path / "a table.csv").write_text("a,b\n1,2\n")
    assert repl.run("%%upload '%s'" % (tmp_path / "a table.csv")) == "hutch: /mnt/data/a table.csv: 8 bytes\n"
    assert repl.run("open('a table.csv').read()") == "Out[1]: 'a,b\\n1,2\\n'\n"
    assert re.fullmatch(r" +8  \d{4}-\d\d-\d\d \d\d:\d\d  a table.csv\n", repl.run("%files"))
    repl.run("open('out.txt', 'w').write('made inside');")
    target = tmp_path / "target"
    target.mkdir()
    assert repl.run("%%download out.txt %s" % target) == "hutch: %s/out.txt: 11 bytes\n" % target
    assert (target / "out.txt").read_text() == "made inside"
    assert "is there already" in repl.run("%%download out.txt %s" % target)
    assert repl.run("%%download /mnt/data/out.txt %s/other" % target).endswith("11 bytes\n")


def test_large_upload(repl, tmp_path):
    with open(tmp_path / "large", "wb") as file:
        file.truncate(50 << 20)
    assert repl.run("%%upload %s" % (tmp_path / "large")) == "hutch: /mnt/data/large: %d bytes\n" % (50 << 20)
    with open(tmp_path / "larger", "wb") as file:
        file.truncate(2 << 30)
    assert "and /mnt/data takes" in repl.run("%%upload %s" % (tmp_path / "larger"))


def test_download_follows_no_link(repl, data, tmp_path):
    (tmp_path / "outside").write_text("not for you")
    repl.run("import os; os.symlink('%s', 'link'); os.mkfifo('fifo')" % (tmp_path / "outside"))
    for name in ("link", "fifo", "../outside", "nothing"):
        assert re.fullmatch(r"hutch: [^\n]+\n", repl.run("%%download %s %s/got" % (name, tmp_path)))
    assert not (tmp_path / "got").exists()


def test_upload_of_what_is_no_file(repl, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    assert "is not a regular file" in repl.run("%%upload %s" % (tmp_path / "fifo"))
    assert "No such file" in repl.run("%%upload %s" % (tmp_path / "nothing"))


def test_reset(repl, data):
    repl.run("x = 1; open('file', 'w').close()")
    repl.line("%reset")
    repl.prompt(1)
    assert "NameError" in repl.run("x")
    assert (data / "file").exists()


def test_contexts(repl):
    repl.run("x = 1")
    repl.line("%context other")
    repl.expect(r"\[other\] In \[1\]: ")
    assert "NameError" in repl.run("x")
    repl.line("x = 2")
    repl.prompt()
    repl.line("%context main")
    repl.prompt(2)
    assert repl.run("x").endswith(": 1\n")
    assert "is no name for a context" in repl.run("%context a/b")


def test_context_option(data):
    with Terminal("--data", data, "--context", "mine") as repl:
        repl.expect(r"\[mine\] In \[1\]: ")


def test_checkpoint_and_rollback(repl, data):
    repl.run("x = 'as it was'; open('file', 'w').write('old');")
    assert re.match(r"hutch: checkpoint 1, in [\d.]+ ms; \d+ bytes of files\n", repl.run("%checkpoint"))
    repl.run("del x; open('file', 'w').write('new');")
    for _ in range(2):
        repl.line("%rollback 1")
        assert "hutch: rolled back, in " in repl.prompt(2)  # the count is what it was, too
        assert repl.run("x, open('file').read()").endswith("('as it was', 'old')\n")
        repl.run("x = 'changed'; open('file', 'w').write('new');")
    assert re.fullmatch(r"hutch: [^\n]+\n", repl.run("%rollback 99"))
    assert "is not a number" in repl.run("%rollback first")


def test_branches(repl):
    repl.run("x = 1")
    number = re.match(r"hutch: branch (\d+), in ", repl.run("%fork")).group(1)
    repl.run("x = 2")
    assert repl.run("%switch " + number).startswith("hutch: switched")
    assert repl.run("x") == "Out[2]: 1\n"
    assert repl.run("%switch 0").startswith("hutch: switched")
    assert repl.run("x") == "Out[3]: 2\n"
    assert repl.run("%drop " + number).startswith("hutch: dropped")


def test_help_and_usage(repl):
    shown = repl.run("%help")
    for name in ("upload", "download", "files", "reset", "context", "checkpoint", "rollback", "fork", "switch", "drop", "help"):
        assert re.search(r"^  %%%s\b" % name, shown, re.M), name
    assert repl.run("%upload") == "hutch: usage: %upload FILE...\n"
    assert repl.run("%upload 'open").startswith("hutch: usage: ")
    assert repl.run("%download a b c") == "hutch: usage: %download NAME [TO]\n"


# --------------------------------------------------------------------------------------------------
# The pager

LONG = "from IPython.core.page import page; text = '\\n'.join('line %d' % i for i in range(60))"
HOSTILE = "page(text + '\\n\\x1b]0;title\\x07\\x9b2J\\u202e\\x1b[31mred\\x1b[0m\\n')"


def pager(folder, script):
    """Names a program as PAGER does."""
    path = folder / "pager"
    path.write_text("cd '%s'\n" % folder + script, encoding="utf-8")
    return "sh %s" % path


def begin(data, **env):
    """A prompt at which `text` is longer than the terminal."""
    repl = Terminal("--data", data, **env)
    repl.prompt(1)
    repl.run(LONG)
    return repl


def test_pager(data, tmp_path):
    """It gets what a terminal may be shown, by a pipe, is told to do nothing but show it, and the terminal is as it was when it is over,
    whatever it did."""
    script = "env >env; [ -p /dev/stdin ] && touch pipe; cat >text; stty raw -echo </dev/tty; echo 'pager is here'; head -c 1 </dev/tty >key\n"
    with begin(data, PAGER=pager(tmp_path, script), LESSOPEN="|-touch opened %s", LESSCLOSE="x", LESSSECURE="", OF_THE_USER="yes") as repl:
        repl.line(HOSTILE)
        repl.expect("pager is here")
        repl.type(CTRL_C)
        shown = repl.prompt(3)
        assert "line 1" not in shown and "title" not in shown
        assert repl.run("6 * 7") == "Out[3]: 42\n"  # it is echoed again, and Return is Return
        assert (tmp_path / "key").read_bytes() == b"\x03" and (tmp_path / "pipe").exists()
    text = (tmp_path / "text").read_text(encoding="utf-8")
    assert text.startswith("line 0\nline 1\n") and text.endswith("line 59\n^[]0;title^G\\x9b2J\\u202e\x1b[31mred\x1b[0m\n\n"), text[-200:]
    env = (tmp_path / "env").read_text().splitlines()
    assert {"LESSSECURE=1", "LESS=R", "OF_THE_USER=yes"} <= set(env)
    assert not [line for line in env if line.startswith(("LESSOPEN=", "LESSCLOSE=", "LESSSECURE=")) and line != "LESSSECURE=1"]


def test_pager_for_help(data, tmp_path):
    with begin(data, PAGER=pager(tmp_path, "cat >text\n")) as repl:
        repl.run("f = type('T', (), {'__doc__': text})")
        assert "line" not in repl.run("f?")
        assert "line 59" in (tmp_path / "text").read_text()


def test_no_pager_for_what_fits(data, tmp_path):
    with begin(data, PAGER=pager(tmp_path, "touch started\n")) as repl:
        assert repl.run("page('a\\nb')") == "a\nb\n"
        assert "Docstring:" in repl.run("len?")
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize("env", [{"PAGER": ""}, {"PAGER": "/nonexistent/pager"}, {"PATH": "/nonexistent"}, {"TERM": "dumb", "PAGER": "true"}])
def test_no_pager(data, env):
    """Where there is none, the text is shown as any."""
    with begin(data, **env) as repl:
        shown = repl.run(HOSTILE)
        assert "line 0\nline 1\n" in shown and "line 59\n^[]0;title^G" in shown and "\x1b]" not in shown


def test_pager_and_ctrl_c(data, tmp_path):
    """It is the pager's: the prompt and its interpreter stay."""
    script = "trap 'echo interrupted; exit 0' INT; echo 'pager is here'; while :; do sleep 0.1; done\n"
    with begin(data, PAGER=pager(tmp_path, script)) as repl:
        repl.line("page(text)")
        repl.expect("pager is here")
        repl.type(CTRL_C)
        repl.expect("interrupted")
        repl.prompt(3)
        assert repl.run("len(text) > 1") == "Out[3]: True\n"


def test_pager_that_reads_nothing(data, tmp_path):
    with begin(data, PAGER=pager(tmp_path, "exit 3\n")) as repl:
        assert "x" * 100 not in repl.run("page('x' * 1000000)")
        assert repl.run("6 * 7") == "Out[3]: 42\n"


def test_signal_while_a_pager_shows(data, tmp_path):
    script = "echo $$ >pid; stty raw -echo </dev/tty; echo 'pager is here'; exec sleep 1000\n"
    with begin(data, PAGER=pager(tmp_path, script)) as repl:
        repl.line("page(text)")
        repl.expect("pager is here")
        os.kill(repl.pid, signal.SIGTERM)
        assert repl.end() == 128 + signal.SIGTERM
        flags = termios.tcgetattr(repl.fd)[3]
        assert flags & termios.ECHO and flags & termios.ICANON
        with pytest.raises(ProcessLookupError):
            os.kill(int((tmp_path / "pid").read_text()), 0)


def test_less(data):
    """What there is without PAGER. It is asked for a shell, and has none."""
    with begin(data) as repl:
        repl.line(HOSTILE)
        repl.expect(r"line 20[^0-9]")
        repl.type("!")
        repl.expect("(?i)not available")
        repl.type("\n")
        repl.expect(":")
        repl.type("q")
        repl.prompt(3)
        assert repl.run("6 * 7") == "Out[3]: 42\n"


def test_text_for_a_pager_in_a_pipe():
    done = support.hutch("repl", "--image", IMAGE, "-q", stdin=(LONG + "\n" + "page(text)").encode(), timeout=120)
    assert done.returncode == 0 and done.stdout.decode().startswith("line 0\n") and "line 59\n" in done.stdout.decode()


# --------------------------------------------------------------------------------------------------
# History

def test_history(data):
    path = os.path.join(support.hutch_home(), "repl_history")
    if os.path.exists(path):
        os.unlink(path)
    with Terminal("--data", data) as repl:
        repl.prompt(1)
        repl.run("'first of all'")
        repl.run("'second'")
        repl.type(CTRL_D)
        repl.end()
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    with Terminal("--data", data) as repl:
        repl.prompt(1)
        repl.type(UP + UP + "\n")
        assert repl.prompt(2).endswith("Out[1]: 'first of all'\r\n")
        repl.type(CTRL_R + "sec\n")
        assert repl.prompt(3).endswith("Out[2]: 'second'\r\n")


def test_history_is_bounded(data):
    path = os.path.join(support.hutch_home(), "repl_history")
    with open(path, "w", encoding="ascii") as file:
        file.write("_HiStOrY_V2_\n" + "".join("line%d\n" % i for i in range(3000)))
    with Terminal("--data", data) as repl:
        repl.prompt(1)
        repl.run("'%s'" % ("long" * 1500))
        repl.run("'new'")
        repl.type(CTRL_D)
        repl.end()
    with open(path, encoding="ascii") as file:
        lines = file.read().splitlines()
    assert len(lines) == 1001 and lines[-1] == "'new'" and lines[-2] == "line2999"


# --------------------------------------------------------------------------------------------------
# Without a terminal, and options

def pipe(text, *args, **options):
    return support.hutch("repl", "--image", IMAGE, *args, stdin=text, **options)


def test_pipe():
    done = pipe(b"def f():\n    x = 1\n\n    return x\nprint('printed')\nf() + 41\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"printed\n42\n", b"")


def test_pipe_that_fails():
    done = pipe(b"print('before')\n1/0\n")
    assert (done.returncode, done.stdout) == (1, b"before\n")
    assert b"ZeroDivisionError: division by zero\n" in done.stderr and b"\x1b" not in done.stderr


def test_pipe_passes_bytes_on():
    done = pipe(b"import os; os.write(1, b'\\x1b]0;x\\x07\\n');")
    assert (done.returncode, done.stdout) == (0, b"\x1b]0;x\x07\n")


def test_pipe_without_answers():
    assert b"EOFError" in pipe(b"input('? ')\n").stderr


def test_pipe_timeout():
    assert pipe(b"while True: pass\n", "--timeout", "1s").returncode == 124


def test_empty_pipe():
    done = pipe(b"")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_files_are_kept_and_told():
    done = pipe(b"open('made.txt', 'w').write('inside');\n")
    line = support.sentence(done)
    folder = line.partition("hutch: files written to /mnt/data are in ")[2]
    with open(os.path.join(folder, "made.txt"), encoding="ascii") as file:
        assert file.read() == "inside"
    support.remove_tree(folder)
    assert pipe(b"1;\n").stderr == b""


def test_isolation_options(tmp_path):
    (tmp_path / "file").write_text("from outside")
    done = pipe(b"import os; print(open('/mnt/x/file').read(), os.environ['A'], os.getcwd())", "-v", "%s:/mnt/x:ro" % tmp_path, "-e", "A=b",
                "-w", "/tmp")
    assert (done.returncode, done.stdout) == (0, b"from outside b /tmp\n"), done.stderr


@pytest.mark.parametrize("args, says", [
    (["file.py"], "hutch repl takes no arguments, but 'file.py'"),
    (["--json"], "there is no option '--json' (see: hutch repl --help)"),
    (["--context", "a b"], "option '--context': 'a b' is no name for a context"),
    (["--images", "ascii"], "option '--images': 'ascii' is no way to show images"),
    (["--data", "/nonexistent"], "option '--data': look at '/nonexistent'"),
    (["--memory", "much"], "much"),
    (["--image", "nonexistent"], "nonexistent"),
])
def test_refused(args, says):
    support.refused("repl", *args, says=says)


def test_library_and_launcher_load_nothing_for_terminals():
    folder = os.path.dirname(HUTCH)
    for name in ("hutch-launcher", "../libexec/hutch-launcher", "libhutch.so.1", "../lib/libhutch.so.1"):
        path = os.path.join(folder, name)
        if os.path.exists(path):
            loaded = subprocess.run(["ldd", path], capture_output=True, text=True, check=False).stdout
            assert "libedit" not in loaded and "libspng" not in loaded
