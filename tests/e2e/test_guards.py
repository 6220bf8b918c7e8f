"""Workers of one zygote have stack guards and pointer guards of their own (rootfs/helper/guards.c), and what libc has mixed
with the zygote's still works: functions that exit(3) calls, look-ups of names, iconv, the end of the first thread.

A program reads both words in the control block of its thread, which is where pthread_self(3) points."""
import os
import platform
import re
import signal

import pytest

import engine
import support

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="guards are renewed on x86-64 only")

GUARDS = """
import ctypes, threading
libc = ctypes.CDLL(None)
libc.pthread_self.restype = ctypes.c_ulong
def guards():
    return [ctypes.c_ulong.from_address(libc.pthread_self() + offset).value for offset in (0x28, 0x30)]
"""

PRINTS_GUARDS = GUARDS + """
threads = []
thread = threading.Thread(target=lambda: threads.append(guards()))
thread.start()
thread.join()
assert threads == [guards()], (threads, guards())
print(*map(hex, guards()))
"""

# What libc keeps mixed: a function for exit(3), one for the end of a thread, the tables of the modules that look up
# names, and a converter of another library. Also copies of both guards as a coroutine's stack has them.
WARM_UP = GUARDS + """
import pwd, socket, sys
sys.modules["operators"] = operators = type(sys)("operators")
pwd.getpwuid(0)
socket.getaddrinfo("localhost", 80)
operators.libc, operators.text = libc, ctypes.create_string_buffer(b"said by exit(3)")
assert libc.__cxa_atexit(libc.puts, operators.text, None) == 0
operators.last = ctypes.create_string_buffer(b"said by the thread")
assert libc.__cxa_thread_atexit_impl(libc.puts, operators.last, ctypes.cast(ctypes.pythonapi.Py_Initialize, ctypes.c_void_p)) == 0
libc.iconv_open.restype = ctypes.c_void_p
operators.converter = libc.iconv_open(b"UTF-16LE", b"ISO-8859-15")
assert operators.converter != 2 ** 64 - 1
operators.copy = ctypes.c_ulong(guards()[0])
"""

# Such a word that nothing tells from one that looks so by chance.
DOUBTFUL = WARM_UP + """
def mixed(address, guard):
    return ((address ^ guard) << 17 | (address ^ guard) >> 47) & (1 << 64) - 1
address = ctypes.cast(libc.puts, ctypes.c_void_p).value
operators.words = (ctypes.c_ulong * 3)(1 << 63, 0, 1 << 63)
operators.words[1] = mixed(address, guards()[1])
"""

# What setjmp(3) has written, as a stack keeps it when nothing jumps there any more: the second word is something else's.
REMAINDER = WARM_UP + """
operators.jump, operators.remainder = (ctypes.c_ulong * 32)(), (ctypes.c_ulong * 32)()
libc._setjmp(operators.jump)
libc._setjmp(operators.remainder)
operators.remainder[1] = operators.address = ctypes.addressof(operators.remainder)
operators.words = operators.jump[:8], operators.remainder[:8]
"""

CONVERTS = """
import ctypes, operators
source, sink = ctypes.create_string_buffer(b"1 \\xa4"), ctypes.create_string_buffer(64)
pointers = [ctypes.c_void_p(ctypes.addressof(buffer)) for buffer in (source, sink)]
lengths = [ctypes.c_size_t(3), ctypes.c_size_t(64)]
operators.libc.iconv.argtypes = [ctypes.c_void_p] * 5
assert operators.libc.iconv(operators.converter, ctypes.byref(pointers[0]), ctypes.byref(lengths[0]), ctypes.byref(pointers[1]), ctypes.byref(lengths[1])) == 0
print(sink.raw[:6].decode("utf-16le") == "1 \\u20ac")
"""

SAID = "said by the thread\nsaid by exit(3)\n"

# A program, its standard output, and its exit code.
PROGRAMS = {
    "end": ("print(1)", "1\n", 0),
    "sys.exit": ("import sys; sys.exit(3)", "", 3),
    "os._exit": ("import os; os._exit(4)", "", 4),
    "exit(3)": ("import ctypes; ctypes.CDLL(None).exit(5)", SAID, 5),
    "exit(3) with a function of the program's":
        ("import ctypes\nlibc, text = ctypes.CDLL(None), ctypes.create_string_buffer(b'mine')\nlibc.__cxa_atexit(libc.puts, text, None)\nlibc.exit(5)",
         "said by the thread\nmine\nsaid by exit(3)\n", 5),
    "exit(3) beside a thread":
        ("import ctypes, threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\nctypes.CDLL(None).exit(5)", SAID, 5),
    "exit(3) of a thread":
        ("import ctypes, threading, time\nthreading.Thread(target=ctypes.CDLL(None).exit, args=(5,)).start()\ntime.sleep(60)", "said by exit(3)\n", 5),
    "exit(3) of a fork":
        ("import ctypes, os\nif os.fork() == 0: ctypes.CDLL(None).exit(5)\nprint(os.wait()[1] >> 8)", SAID + "5\n", 0),
    "quick_exit(3)": ("import ctypes; ctypes.CDLL(None).quick_exit(5)", "", 5),
    "pthread_exit(3) of the first thread": ("import ctypes; ctypes.CDLL(None).pthread_exit(None)", SAID, 0),
    "a thread that goes on": ("import threading\nthreading.Timer(0.1, print, (1,)).start()", "1\n", 0),
    "subprocess": ("import subprocess; print(subprocess.run(['/bin/echo', 1], capture_output=True).stdout)".replace("1]", "'1']"), "b'1\\n'\n", 0),
    "multiprocessing": ("import multiprocessing\nwith multiprocessing.Pool(2) as pool: print(pool.map(abs, [-1, 2]))", "[1, 2]\n", 0),
    "names": ("import pwd, socket; print(pwd.getpwuid(0).pw_name, socket.gethostbyname('localhost'))",
              "root 127.0.0.1\n", 0),
    "iconv": (CONVERTS, "True\n", 0),
    "a library that is not there": ("import ctypes\ntry: ctypes.CDLL('none.so')\nexcept OSError: print(1)", "1\n", 0),
}


def guards_of(result):
    assert (result["verdict"], result["stderr"]) == ("ok", ""), result
    return [int(word, 16) for word in result["stdout"].split()]


@pytest.fixture(scope="module", params=["executed", "forked from another zygote", "a spare"])
def warm(request):
    support.need("userns")
    zygotes = {"executed": (("bare", None, (), 2, 4, WARM_UP),)}.get(
        request.param, (("bare", None, (), 1, 2), ("warm", "bare", ("json",), 2, 4, WARM_UP)))
    with engine.Engine(max_running=4, zygotes=zygotes) as one:
        one.settle()
        if request.param == "a spare":
            before = one.stats()["zygotes"][1]
            os.kill(before["pid"], signal.SIGKILL)
            one.until(lambda: one.stats()["zygotes"][1]["recycled"] > before["recycled"], what="the spare took its place")
            one.settle()
        one.zygote = zygotes[-1][0]
        yield one


def run(warm, code):
    result = warm.run(code if warm.zygote == "bare" else "import json\n" + code)
    assert result["zygote"] == warm.zygote
    return result


def test_guards_differ(warm):
    found = [guards_of(run(warm, PRINTS_GUARDS)) for _ in range(6)]
    assert len({stack for stack, _ in found}) == 6 and len({pointer for _, pointer in found}) == 6, found
    assert all(stack & 0xff == 0 for stack, _ in found), "a string that runs over is not stopped"
    assert not any(word == 0 for both in found for word in both)


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_was_made_before_works(warm, name):
    code, printed, exit_code = PROGRAMS[name]
    result = run(warm, code)
    assert (result["stdout"], result["stderr"], result["exit_code"], result["signal"]) == (printed, "", exit_code, None), result


def test_copies_of_the_stack_guard_follow(warm):
    assert run(warm, GUARDS + "import operators; print(operators.copy.value == guards()[0])")["stdout"] == "True\n"


def test_a_doubtful_word_is_not_touched():
    """And so the pointer guard stays; the stack guard does not."""
    support.need("userns")
    with engine.Engine(zygotes=(("bare", None, (), 2, 4, DOUBTFUL),)) as warm:
        found = [guards_of(warm.run(PRINTS_GUARDS)) for _ in range(3)]
        assert len({stack for stack, _ in found}) == 3 and len({pointer for _, pointer in found}) == 1, found
        assert warm.run("import ctypes; ctypes.CDLL(None).exit(5)")["stdout"] == SAID


def test_what_is_left_of_a_jump_buffer():
    """An address in the place of its second word is used by other code, and stays; that of a whole one follows the guard."""
    support.need("userns")
    code = """
import operators
whole, rest = [[index for index in range(8) if now[index] != before[index]]
               for now, before in zip((operators.jump, operators.remainder), operators.words)]
print(whole, 1 in rest, operators.remainder[1] == operators.address)
"""
    with engine.Engine(zygotes=(("bare", None, (), 2, 4, REMAINDER),)) as warm:
        found = [guards_of(warm.run(PRINTS_GUARDS)) for _ in range(3)]
        assert len({pointer for _, pointer in found}) == 3, found
        assert warm.run(code)["stdout"] == "[1, 6, 7] False True\n"


def test_threads_of_a_fork_handler():
    """They have the zygote's pointer guard, so it stays. What a thread that began before is called back for works."""
    support.need("userns")
    warm_up = WARM_UP + """
import os, threading, time
def start():
    operators.event = threading.Event()
    operators.names = []
    def look_up():
        operators.event.wait()
        operators.names.append(pwd.getpwuid(0).pw_name)
    operators.thread = threading.Thread(target=look_up, daemon=True)
    operators.thread.start()
os.register_at_fork(after_in_child=start)
"""
    with engine.Engine(zygotes=(("bare", None, (), 2, 4, warm_up),)) as warm:
        found = [guards_of(warm.run(PRINTS_GUARDS)) for _ in range(3)]
        assert len({stack for stack, _ in found}) == 3 and len({pointer for _, pointer in found}) == 1, found
        result = warm.run("import operators\noperators.event.set()\noperators.thread.join()\nprint(operators.names)")
        assert result["stdout"] == "['root']\n", result


def test_a_session_keeps_its_guards():
    """All its interpreters are one tenant's, so a copy is not given others."""
    support.need("userns")
    with engine.Engine(image="python", zygotes=(("shell", None, ("IPython", "ipykernel"), 2, 4, WARM_UP),)) as warm:
        found = []
        for _ in range(2):
            with engine.Session(warm) as session:
                found.append(session.printed(PRINTS_GUARDS))
                checkpoint = session.do("checkpoint")["id"]
                session.run("1")
                session.do("rollback", checkpoint)
                assert session.printed("print(*map(hex, guards()))") == found[-1]
                branch = session.printed("import os\npid = os.fork()\nif pid == 0: libc.exit(5)\nprint(os.waitpid(pid, 0)[1] >> 8)")
                assert branch.endswith("5\n")
                assert session.run("libc.exit(5)")["interpreter_died"] == 1
        assert found[0] != found[1] and all(re.fullmatch(r"0x\w+ 0x\w+\n", text) for text in found), found
