"""What the interpreter has to do, one function each; runs inside a sandbox (see driver.py). Prints one JSON object a line: name, error or null."""
import functools
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import traceback

sys.path.insert(0, "/interpreter")

import driver  # noqa: E402

MAIN = driver.load("/interpreter/zygote")


# What IPython of this image shows by itself, in a process of its own: its words differ from one version to the next.
OWN = """
import contextlib, io, json
import jupyter_client.jsonutil
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance(colors="NoColor")
shell.extension_manager.load_extension("storemagic")
names = sorted(name for name in shell.user_ns if not name.startswith("_"))
said = io.StringIO()
with contextlib.redirect_stdout(said):
    shell.run_cell("1 / 0", store_history=True)
header, = [line for line in said.getvalue().splitlines() if line.startswith("Cell In")]
said = io.StringIO()
with contextlib.redirect_stdout(said):
    error = shell.run_cell("%store").error_in_exec
print(json.dumps({"names": names, "header": header, "png": jupyter_client.jsonutil.json_default(b"png"),
                  "store": repr(error) if error else said.getvalue()}))
"""


@functools.lru_cache(maxsize=None)
def own():
    return json.loads(subprocess.run([sys.executable, "-c", OWN], stdout=subprocess.PIPE, check=True).stdout)


def plain(lines):
    return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(lines))


def equal(one, other):
    assert one == other, "%r is not %r" % (one, other)


# --- values and streams ---

def test_value(interpreter):
    outputs, done = interpreter.run("1 + 1")
    equal([(kind, frame["data"], frame["metadata"], frame["count"]) for kind, frame in outputs], [("result", {"text/plain": "2"}, {}, 1)])
    equal((done["status"], done["count"], done["open_figures"]), ("ok", 1, 0))


def test_nothing_of_the_rehearsal(interpreter):
    equal(interpreter.value("In, Out, _, _i, __name__, get_ipython().history_manager.session_number"),
          "(['',\n  'In, Out, _, _i, __name__, get_ipython().history_manager.session_number'],\n {},\n '',\n '',\n '__main__',\n 1)")
    names = interpreter.value("sorted(name for name in globals() if not name.startswith('_'))")
    equal(names, repr(own()["names"]))
    assert {"In", "Out", "exit", "get_ipython", "quit"} <= set(own()["names"]) <= {"In", "Out", "exit", "get_ipython", "open", "quit"}


def test_suppressed_value(interpreter):
    equal(interpreter.run("1 + 1;")[0], [])
    equal(interpreter.run("None")[0], [])


def test_history_of_values(interpreter):
    interpreter.run("40 + 2")
    equal(interpreter.value("_ + Out[1] + _1"), "126")
    equal(interpreter.value("_i, In[1]"), "('_ + Out[1] + _1', '40 + 2')")


def test_output_of_c_code_in_place(interpreter):
    code = "import os\nprint('one')\nos.system('echo two')\nprint('three', end='')\nos.write(1, b' four\\n')\nprint('five')"
    equal(interpreter.out(code), "one\ntwo\nthree four\nfive\n")


def test_output_before_a_display(interpreter):
    kinds = [kind for kind, _ in interpreter.run("import os\nos.system('echo one'); display('x'); os.system('echo two'); None")[0]]
    equal(kinds, ["stdout", "display", "stdout"])


def test_streams_apart(interpreter):
    outputs, _ = interpreter.run("import sys\nprint('o')\nprint('e', file=sys.stderr)")
    equal(outputs, [("stdout", "o\n"), ("stderr", "e\n")])


def test_flush_tells_its_stream(interpreter):
    interpreter.begin("import sys\nprint('o')\nprint('e', file=sys.stderr, flush=True)")
    equal((interpreter.wait_for("flush", "done")[1]["is"]), "flush")
    interpreter.wait_for("done")
    interpreter.begin("sys.stdout.flush()")  # nothing was written
    equal(interpreter.frame()["is"], "done")


def test_numbers_of_frames(interpreter):
    interpreter.begin("for i in range(5): display(i)")
    numbers = [interpreter.frame()["n"] for _ in range(6)]
    equal(numbers, list(range(numbers[0], numbers[0] + 6)))


def test_ten_thousand_displays(interpreter):
    outputs, _ = interpreter.run("for i in range(10000): display({'text/plain': str(i)}, raw=True)")
    equal([frame["data"]["text/plain"] for kind, frame in outputs if kind == "display"], [str(i) for i in range(10000)])


def test_binary_junk(interpreter):
    equal(interpreter.out("import os\nos.write(1, b'\\xff\\x00ok\\n'); None"), "\ufffd\0ok\n")


def test_surrogates(interpreter):
    equal(interpreter.out("print('a\\ud800b')"), "a?b\n")
    outputs, _ = interpreter.run("display({'text/plain': 'a\\ud800b'}, raw=True)")
    equal(outputs[0][1]["data"]["text/plain"], "a?b")
    equal(interpreter.error("raise ValueError('\\udfff')")["evalue"], "?")
    equal(interpreter.value("1"), "1")


def test_not_a_terminal(interpreter):
    equal(interpreter.value("import sys\nsys.stdout.isatty(), sys.stdin.readline(), type(sys.stdout).__module__"),
          "(False, '', 'ipykernel.iostream')")


def test_write_of_no_text(interpreter):
    error = interpreter.error("import sys\nsys.stdout.write(b'x')")
    equal((error["ename"], error["evalue"]), ("TypeError", "write() argument must be str, not <class 'bytes'>"))
    assert "/interpreter/" not in plain(error["traceback"])


# --- displays ---

def test_display_ids(interpreter):
    outputs, _ = interpreter.run("handle = display('a', display_id='x')\nhandle.update('b')")
    equal([(kind, frame["id"], frame["data"]["text/plain"]) for kind, frame in outputs], [("display", "x", "'a'"), ("update", "x", "'b'")])


def test_clear(interpreter):
    outputs, _ = interpreter.run("from IPython.display import clear_output\nprint(1)\nclear_output(wait=True)\nclear_output()")
    equal([(kind, frame.get("wait") if kind == "clear" else frame) for kind, frame in outputs],
          [("stdout", "1\n"), ("clear", True), ("clear", False)])


def test_mime_bundle(interpreter):
    data = interpreter.run("display({'text/html': '<b>', 'application/json': {'b': 1, 2: [None, True]}}, raw=True)")[0][0][1]["data"]
    equal(list(data.items()), [("application/json", {"2": [None, True], "b": 1}), ("text/html", "<b>")])


def test_bytes_and_numbers_in_bundles(interpreter):
    data = interpreter.run("import numpy\ndisplay({'image/png': b'png', 'application/json': numpy.int64(3)}, raw=True)")[0][0][1]["data"]
    equal(data, {"image/png": own()["png"], "application/json": 3})
    equal(own()["png"].strip(), "cG5n")


def test_nan_in_a_bundle(interpreter):
    outputs, _ = interpreter.run("display({'application/json': float('nan')}, raw=True)")
    equal(outputs[0][1]["data"], {"application/json": "nan"})
    assert "Message serialization failed" in outputs[1][1]


def test_what_no_json_has(interpreter):
    error = interpreter.error("display({'application/json': object()}, raw=True)")
    equal(error["ename"], "ValueError")
    assert "/interpreter/" not in plain(error["traceback"]) and "session.py" in plain(error["traceback"])


def test_large_output_is_left_out(interpreter):
    data = interpreter.run("display({'text/plain': 'x' * (17 << 20)}, raw=True)")[0][0][1]["data"]
    assert re.fullmatch(r"\[output of 178\d+ bytes left out: more than 16777216\]", data["text/plain"]), data


def test_other_large_things(interpreter):
    outputs, done = interpreter.run("raise ValueError('x' * (20 << 20))")
    assert len(outputs[0][1]["evalue"]) < 70000 and len(done["evalue"]) < 70000 and "left out" in outputs[0][1]["traceback"][0]
    equal(interpreter.run("display('x', display_id='x' * 1000)")[0][0][1]["id"], None)


def test_html_of_a_frame(interpreter):
    outputs, _ = interpreter.run("import pandas\npandas.DataFrame({'a': [1]})")
    equal(sorted(outputs[0][1]["data"]), ["text/html", "text/plain"])
    equal(interpreter.value("pandas.get_option('display.max_columns')"), "20")


def test_figure_at_the_end(interpreter):
    outputs, done = interpreter.run("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nprint('x')")
    equal([kind for kind, _ in outputs], ["stdout", "display"])
    data = outputs[1][1]["data"]
    assert data["image/png"].startswith("iVBOR") and "\n" not in data["image/png"][:-1]
    equal(data["image/png"][-1] == "\n", own()["png"][-1] == "\n")
    equal((data["text/plain"], done["open_figures"]), ("<Figure size 640x480 with 1 Axes>", 0))
    equal(interpreter.value("plt.get_backend()"), "'module://matplotlib_inline.backend_inline'")


def test_figures_held_back(interpreter):
    interpreter.run("import matplotlib.pyplot as plt\nplt.figure(); plt.close()")
    outputs, done = interpreter.run("plt.plot([1, 2]);", figures=False)
    equal((outputs, done["open_figures"]), ([], 1))
    equal([kind for kind, _ in interpreter.run("None")[0]], ["display"])


def test_widgets_need_nobody(interpreter):
    equal(interpreter.run("from ipykernel.comm import Comm\nc = Comm('x', data={}); c.send({}); c.close()")[1]["status"], "ok")


# --- errors ---

def test_error(interpreter):
    outputs, done = interpreter.run("def f():\n    1 / 0\nprint('x')\nf()")
    error = outputs[1][1]
    equal((error["ename"], error["evalue"], done["ename"], done["line"], done["status"]),
          ("ZeroDivisionError", "division by zero", "ZeroDivisionError", 2, "error"))
    text = plain(error["traceback"])
    assert own()["header"].replace("line 1", "line 4") in text and "----> 2     1 / 0" in text and "/interpreter/" not in text, text
    assert "\x1b[0;31m" in error["traceback"][0]


def test_error_in_a_library(interpreter):
    _, done = interpreter.run("import json\n\njson.loads('x')")
    equal((done["ename"], done["line"]), ("JSONDecodeError", 3))


def test_cause(interpreter):
    _, done = interpreter.run("try:\n    {}['a']\nexcept KeyError as e:\n    raise ValueError('bad') from e")
    equal((done["cause"], done["line"]), ("ValueError: bad, because of KeyError: 'a'", 4))


def test_syntax_error(interpreter):
    outputs, done = interpreter.run("x = 1\nx +")
    equal((outputs[0][1]["ename"], done["line"], len(outputs[0][1]["traceback"])), ("SyntaxError", 2, 1))
    assert re.fullmatch(r"invalid syntax \(\d+\.py, line 2\)", done["evalue"]), done


def test_exit_of_the_program(interpreter):
    outputs, done = interpreter.run("import sys\nsys.exit(3)")
    equal((outputs[0][1]["ename"], outputs[0][1]["evalue"], outputs[1][0]), ("SystemExit", "3", "stderr"))
    assert "To exit: use 'exit', 'quit', or Ctrl-D." in outputs[1][1]
    equal(interpreter.value("1"), "1")


def test_exit_of_the_shell(interpreter):
    interpreter.run("exit")
    try:
        interpreter.frame()
    except EOFError:
        return
    raise AssertionError("it goes on")


def test_error_that_renders_itself(interpreter):
    error = interpreter.error("class E(Exception):\n    def _render_traceback_(self): return None\nraise E('e')")
    equal((error["ename"], error["traceback"]), ("E", []))


def test_error_without_text(interpreter):
    interpreter.run("class E(Exception):\n    def __str__(self): raise TypeError\nraise E")
    equal(interpreter.value("1"), "1")


# --- magics ---

def test_shell_command(interpreter):
    equal(interpreter.out("!echo text; tty"), "text\r\n/dev/pts/0\r\n")
    equal(interpreter.value("x = !echo a\nx"), "['a']")


def test_cell_magics(interpreter):
    equal(interpreter.out("%%bash\necho text"), "text\n")
    equal(interpreter.run("%%html\n<b>")[0][0][1]["data"]["text/html"], "<b>\n")
    interpreter.run("%%writefile /tmp/f.py\nx = 3")
    equal(interpreter.value("%run /tmp/f.py\nx"), "3")


def test_store_is_there(interpreter):
    """And it says what it says without hutch: IPython 8.35 lacks a module for it, and raises."""
    kind, said = interpreter.run("%store")[0][0]
    equal(repr(AttributeError(said["evalue"])) if kind == "error" else said, own()["store"])


def test_inline_configuration(interpreter):
    outputs, _ = interpreter.run("%matplotlib inline\n%config InlineBackend.figure_format = 'svg'\nimport matplotlib.pyplot as plt\nplt.plot([1]);")
    assert outputs[0][1]["data"]["image/svg+xml"].startswith("<?xml")


def test_help_is_a_page(interpreter):
    equal(interpreter.run("print?")[0], [])


# --- input ---

def test_input_refused(interpreter):
    error = interpreter.error("input('? ')")
    equal((error["ename"], error["evalue"]),
          ("StdinNotImplementedError", "raw_input was called, but this frontend does not support input requests."))
    assert "in Kernel.raw_input(self, prompt)" in plain(error["traceback"])
    equal(interpreter.error("import getpass\ngetpass.getpass()")["evalue"],
          "getpass was called, but this frontend does not support input requests.")


def test_input(interpreter):
    interpreter.begin("print('x'); name = input('name? '); name", stdin=True)
    outputs, frame = interpreter.wait_for("input")
    equal((outputs, frame["prompt"], frame["password"]), ([("stdout", "x\n")], "name? ", False))
    interpreter.send({"do": "reply", "value": "\xe9"})
    equal(interpreter.wait_for("done")[0][0][1]["data"]["text/plain"], "'\xe9'")


def test_end_of_input(interpreter):
    interpreter.begin("input()", stdin=True)
    interpreter.wait_for("input")
    interpreter.send({"do": "reply", "eof": True})
    equal(interpreter.wait_for("done")[1]["ename"], "EOFError")


def test_interrupted_input(interpreter):
    interpreter.begin("input()", stdin=True)
    interpreter.wait_for("input")
    interpreter.interrupt()
    equal(interpreter.wait_for("done")[1]["ename"], "KeyboardInterrupt")


# --- interrupts ---

def test_interrupt(interpreter):
    interpreter.begin("x = 5\nprint('on', flush=True)\nwhile True: pass")
    interpreter.wait_for("flush")
    interpreter.interrupt()
    outputs, done = interpreter.wait_for("done")
    equal((done["ename"], done["evalue"]), ("KeyboardInterrupt", ""))
    equal(plain(outputs[-1][1]["traceback"]).split("\n")[-1], "KeyboardInterrupt: ")
    equal(interpreter.value("x"), "5")


def test_interrupt_of_await(interpreter):
    interpreter.begin("import asyncio\nprint('on', flush=True)\nawait asyncio.sleep(100)")
    interpreter.wait_for("flush")
    time.sleep(0.05)
    interpreter.interrupt()
    equal(interpreter.wait_for("done")[1]["ename"], "CancelledError")
    equal(interpreter.value("1"), "1")


def test_interrupt_between_cells(interpreter):
    interpreter.run("x = 1")
    for _ in range(20):
        interpreter.interrupt()
    equal(interpreter.value("x"), "1")


def test_interrupts_while_frames_go_out(interpreter):
    """Half a frame would be the end of everything."""
    for _ in range(20):
        interpreter.begin("while True: display({'text/plain': 'x' * 100000}, raw=True)")
        interpreter.wait_for("display")
        interpreter.interrupt()
        equal(interpreter.wait_for("done")[1]["status"], "error")
    equal(interpreter.value("1"), "1")


def test_interrupts_at_any_moment(interpreter):
    """One comes while the cell begins, is executed, or ends."""
    for number in range(60):
        interpreter.begin("sum(range(2000))")
        for _ in range(number % 3):
            interpreter.interrupt()
        interpreter.wait_for("done")
    equal(interpreter.value("1 + 1"), "2")


def test_handlers_of_the_program_end_with_the_cell(interpreter):
    interpreter.run("import signal\nsignal.signal(signal.SIGINT, lambda *_: None)")
    interpreter.begin("print('on', flush=True)\nwhile True: pass")
    interpreter.wait_for("flush")
    interpreter.interrupt()
    equal(interpreter.wait_for("done")[1]["ename"], "KeyboardInterrupt")


# --- asyncio ---

def test_await(interpreter):
    equal(interpreter.value("import asyncio\nawait asyncio.sleep(0, 7)"), "7")
    equal(interpreter.error("asyncio.run(asyncio.sleep(0))")["evalue"], "asyncio.run() cannot be called from a running event loop")


def test_tasks_go_on_between_cells(interpreter):
    """Seen by a file, as a cell would have the loop go on by itself."""
    interpreter.run("import asyncio\nasync def later():\n    await asyncio.sleep(0.02)\n    found.append(1)\n    open('/tmp/went-on', 'w').close()\n"
                    "found = []\ntask = asyncio.create_task(later())")
    until = time.monotonic() + 10
    while not os.path.exists("/tmp/went-on") and time.monotonic() < until:
        time.sleep(0.01)
    assert os.path.exists("/tmp/went-on")
    equal(interpreter.value("found"), "[1]")


def test_exit_in_a_task(interpreter):
    interpreter.run("import asyncio, sys\nasync def leave(): sys.exit(1)\ntask = asyncio.create_task(leave())")
    time.sleep(0.05)
    equal(interpreter.value("1"), "1")


# --- contexts ---

def test_contexts(interpreter):
    interpreter.run("x = 'main'")
    equal(interpreter.error("x", context="b")["ename"], "NameError")
    interpreter.run("x = 'b'", context="b")
    equal(interpreter.value("x, _i, len(In)", context="b"), "('b', \"x = 'b'\", 4)")
    equal(interpreter.value("import __main__\nx, len(In), __main__.x"), "('main', 3, 'main')")


def test_no_more_than_sixteen_contexts(interpreter):
    for number in range(15):
        equal(interpreter.run("x = 1", context="c%d" % number)[1]["status"], "ok")
    outputs, done = interpreter.run("x = 1", context="c15")
    equal((outputs[0][1]["evalue"], done["status"]), ("there are 16 contexts, which is the most that a session may have", "error"))


def test_silent_cell(interpreter):
    interpreter.run("1")
    outputs, done = interpreter.run("y = 2\n1 + 1", silent=True)
    equal((outputs, done["count"]), ([], 1))
    equal(interpreter.value("y, _, len(In)"), "(2, 1, 3)")


# --- copies ---

def park(interpreter):
    ours, theirs = socket.socketpair()
    interpreter.send({"do": "park"}, fd=theirs.fileno())
    theirs.close()
    _, frame = interpreter.wait_for("parked", "failed")
    copy = interpreter.copy(ours)
    return copy, frame, copy.frame()


def spawn(parked):
    ours, theirs = socket.socketpair()
    parked.send({"do": "spawn"}, fd=theirs.fileno())
    theirs.close()
    copy = parked.copy(ours)
    here = copy.frame()
    if here["is"] == "here":
        copy.send({"do": "renew"})
        copy.lost = copy.frame()["lost"]
    return copy, here


def test_roll_back(interpreter):
    interpreter.run("import random, os\nrandom.seed(1)\nx = [1, 2]; pid = os.getpid()")
    parked, frame, here = park(interpreter)
    equal((frame["is"], frame["lost"], here["is"]), ("parked", [], "here"))
    equal(interpreter.value("x.clear(); x"), "[]")
    draw = "round(random.random(), 6), x, os.getpid() == pid, os.getpgrp() == os.getpid(), os.getppid()"
    for _ in range(3):
        copy, here = spawn(parked)
        equal(copy.value(draw), "(0.134364, [1, 2], False, True, 1)")
        equal(copy.value("os.getpid()"), str(here["pid"]))
        equal(copy.value("import asyncio\nawait asyncio.sleep(0.001, 5)"), "5")
        copy.sock.close()
    equal(interpreter.value("round(random.random(), 6), x"), "(0.134364, [])")


def test_copy_of_a_copy(interpreter):
    interpreter.run("x = 1")
    copy, _ = spawn(park(interpreter)[0])
    copy.run("x += 1")
    other, _ = spawn(park(copy)[0])
    equal(other.value("x, In[1:]"), "(2, ['x = 1', 'x += 1', 'x, In[1:]'])")


def test_numbers_go_on_in_a_copy(interpreter):
    interpreter.run("x = 1")
    last = interpreter.run("x")[1]["n"]
    copy, _ = spawn(park(interpreter)[0])
    copy.send({"do": "execute", "id": 1, "code": "x"})
    equal(copy.frame()["n"], last + 1)


def test_copy_is_interrupted_alone(interpreter):
    copy, here = spawn(park(interpreter)[0])
    copy.pid = here["pid"]
    copy.begin("print('on', flush=True)\nwhile True: pass")
    copy.wait_for("flush")
    interpreter.interrupt()  # the other one
    copy.interrupt()
    equal(copy.wait_for("done")[1]["ename"], "KeyboardInterrupt")


def test_scripts_in_a_copy(interpreter):
    interpreter.run("%%bash\necho 1")
    copy, _ = spawn(park(interpreter)[0])
    equal(copy.out("%%bash\necho 2"), "2\n")
    equal(copy.out("!echo 3"), "3\r\n")


def test_what_is_lost(interpreter):
    interpreter.run("import threading, socket, subprocess, time\nthreading.Thread(target=time.sleep, args=(9,), name='nap', daemon=True).start()\n"
              "s = socket.socket(); f = open('/mnt/data/f', 'w'); g = open('/etc/passwd'); h = open('/tmp/h', 'w'); p = subprocess.Popen(['sleep', '9'])")
    lost = sorted(re.sub(r"\d+", "N", line) for line in park(interpreter)[1]["lost"])
    equal(lost, ["N thread: nap", "a socket: descriptor N, AF_INET", "child process N: sleep N", "what is written to an open file: /tmp/h"])


def test_nothing_goes_on_in_a_copy_before_its_files_are_there(interpreter):
    interpreter.run("import asyncio, os\nasync def tick():\n    while True:\n        await asyncio.sleep(0.001)\n"
                    "        if os.getpid() != pid: open('/mnt/data/tick', 'w').close()\npid = os.getpid(); task = asyncio.create_task(tick())")
    parked, _, _ = park(interpreter)
    ours, theirs = socket.socketpair()
    parked.send({"do": "spawn"}, fd=theirs.fileno())
    theirs.close()
    copy = parked.copy(ours)
    equal(copy.frame()["is"], "here")
    time.sleep(0.1)
    equal(os.path.exists("/mnt/data/tick"), False)
    copy.send({"do": "renew"})
    equal(copy.frame(), {"is": "renewed", "lost": []})
    copy.run("await asyncio.sleep(0.05); task.cancel()")
    os.unlink("/mnt/data/tick")


def test_thread_pool_in_a_copy(interpreter):
    """A worker that waits, one that works, and work that is queued; asyncio's own pool beside."""
    interpreter.run("import asyncio, threading\nfrom concurrent.futures import ThreadPoolExecutor\nidle, busy = ThreadPoolExecutor(2), ThreadPoolExecutor(1)\n"
                    "stop = threading.Event(); began = threading.Event()\ndef hold():\n    began.set()\n    stop.wait()\n"
                    "assert list(idle.map(abs, [-1, -2, -3])) == [1, 2, 3]\nheld, queued = busy.submit(hold), busy.submit(abs, -4)\n"
                    "began.wait(); assert await asyncio.to_thread(abs, -5) == 5")
    parked, frame, _ = park(interpreter)
    equal(len([line for line in frame["lost"] if "threads: ThreadPoolExecutor" in line]), 1)
    for _ in range(2):
        copy, _ = spawn(parked)
        equal(copy.lost, frame["lost"])
        equal(copy.value("list(idle.map(abs, range(-5, 0)))"), "[5, 4, 3, 2, 1]")
        equal(copy.value("queued.result(20), busy.submit(abs, -6).result(20)"), "(4, 6)")
        error = copy.error("held.result(20)")
        equal((error["ename"], "its threads have ended" in error["evalue"]), ("BrokenThreadPool", True))
        equal(copy.value("await asyncio.to_thread(abs, -7)"), "7")
        equal(copy.value("idle.shutdown(); busy.shutdown()"), None)
        copy.sock.close()
    equal(interpreter.value("stop.set(); held.result(20), queued.result(20), idle.submit(abs, -8).result(20)"), "(None, 4, 8)")


def test_what_awaits_a_thread_fails_in_a_copy(interpreter):
    interpreter.run("import asyncio, threading\nstop = threading.Event(); began = threading.Event()\ndef hold():\n    began.set()\n    stop.wait()\n"
                    "task = asyncio.create_task(asyncio.to_thread(hold))\nawait asyncio.sleep(0); began.wait()")
    copy, _ = spawn(park(interpreter)[0])
    equal(copy.error("await asyncio.wait_for(task, 20)")["ename"], "BrokenThreadPool")
    interpreter.run("stop.set(); await task")


def test_process_pools_in_a_copy(interpreter):
    """They cannot be mended: they raise, and say what to do. What ends them does not wait."""
    interpreter.run("import multiprocessing, multiprocessing.pool, time\nfrom concurrent.futures import ProcessPoolExecutor\n"
                    "pool, threads, executor = multiprocessing.Pool(1), multiprocessing.pool.ThreadPool(1), ProcessPoolExecutor(1)\n"
                    "assert pool.map(abs, [-1]) == threads.map(abs, [-1]) == list(executor.map(abs, [-1])) == [1]\n"
                    "begun = [pool.apply_async(time.sleep, [1000]), threads.map_async(time.sleep, [1000]), executor.submit(time.sleep, 1000)]\n"
                    "several = pool.imap(time.sleep, [1000])")
    copy, _ = spawn(park(interpreter)[0])
    equal([line for line in copy.lost if line.startswith("3 pools")], ["3 pools of processes: make new ones"])
    for code in ("pool.map(abs, [-1])", "pool.apply(abs, [-1])", "list(pool.imap(abs, [-1]))", "threads.map(abs, [-1])", "executor.submit(abs, -1)",
                 "begun[0].get(20)", "begun[1].get(20)", "begun[2].result(20)", "several.next(20)"):
        error = copy.error(code)
        equal((code, error and "Make a new pool" in error["evalue"]), (code, True))
    equal(copy.error("pool.terminate(); pool.join(); threads.close(); threads.join(); executor.shutdown()"), None)
    equal(copy.out("del pool, threads, executor, begun, several\n"
                   "with multiprocessing.Pool(1) as pool: print(pool.map(abs, [-2]))\nwith ProcessPoolExecutor(1) as e: print(list(e.map(abs, [-3])))"), "[2]\n[3]\n")
    copy.send({"do": "end"})
    interpreter.run("pool.terminate(); threads.terminate()\nfor p in executor._processes.values(): p.kill()")


def test_joblib_in_a_copy(interpreter):
    interpreter.begin("from joblib import Parallel, delayed\nfrom joblib.externals.loky import get_reusable_executor\n"
                      "kept = get_reusable_executor(1); assert kept.submit(abs, -1).result() == 1; begun = kept.submit(__import__('time').sleep, 1000)")
    interpreter.wait_for("done", seconds=60)
    copy, _ = spawn(park(interpreter)[0])
    for code in ("kept.submit(abs, -1)", "begun.result(20)"):
        equal("Make a new pool" in copy.error(code)["evalue"], True)
    copy.begin("assert Parallel(n_jobs=2)(delayed(abs)(-i) for i in range(4)) == [0, 1, 2, 3]; get_reusable_executor().shutdown(kill_workers=True)")
    equal(copy.wait_for("done", seconds=60)[1]["status"], "ok")
    interpreter.run("kept.shutdown(kill_workers=True)")


def test_openmp_in_a_copy(interpreter):
    """A team of two threads: each adds one."""
    code = "seen = []; gomp.GOMP_parallel(add, None, 2, 0); len(seen)"
    interpreter.run("import ctypes\ngomp = ctypes.CDLL('libgomp.so.1'); seen = []; add = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: seen.append(1))")
    equal(interpreter.value(code), "2")
    copy, _ = spawn(park(interpreter)[0])
    equal(copy.value(code), "2")
    equal(interpreter.value(code), "2")


def replace(path, text):
    """As a rollback does: another file with that name."""
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
    os.rename(path + ".new", path)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def test_files_that_are_open_in_a_copy(interpreter):
    """The position is that of the checkpoint, whatever the original has done since; what is written goes to the file of that name."""
    interpreter.run("import os\nopen('/mnt/data/in', 'w').write('abcdef'); a = open('/mnt/data/log', 'a'); a.write('one\\n'); a.flush(); a.write('two\\n')\n"
                    "r = os.open('/mnt/data/in', os.O_RDONLY); os.read(r, 2); twin = os.dup(r); other = os.open('/mnt/data/in', os.O_RDONLY); folder = os.open('/mnt/data', os.O_RDONLY)\n"
                    "gone = open('/mnt/data/gone', 'w+'); os.unlink('/mnt/data/gone'); moved = open('/mnt/data/moved', 'w'); p = open('/etc/passwd', 'rb', 0); p.read(4)")
    parked, frame, _ = park(interpreter)
    equal(frame["lost"], ["what is written to an open file: /mnt/data/gone (deleted)"])
    equal(interpreter.value("a.write('three'); a.flush(); os.read(r, 9), os.read(other, 3), len(p.read(4))"), "(b'cdef', b'abc', 4)")
    replace("/mnt/data/in", "ABCDEF")
    replace("/mnt/data/log", "one\n")
    os.unlink("/mnt/data/moved")
    for _ in range(2):
        copy, _ = spawn(parked)
        equal([line for line in copy.lost if "moved" in line], ["an open file: /mnt/data/moved: No such file or directory"])
        equal(copy.value("os.read(r, 1), os.read(twin, 1), os.read(other, 1), p.tell(), 'log' in os.listdir(folder), os.get_inheritable(r)"),
              "(b'C', b'D', b'A', 4, True, False)")
        copy.run("a.write('four\\n'); a.close()")
        equal(read("/mnt/data/log"), "one\ntwo\nfour\n")
        replace("/mnt/data/log", "one\n")
        equal(copy.error("moved.write('x'); moved.flush()")["ename"], "OSError")
        copy.sock.close()
    for name in ("in", "log"):
        os.unlink("/mnt/data/" + name)


def test_a_database_that_is_open_in_a_copy(interpreter):
    make = "import sqlite3\ndb = sqlite3.connect('/mnt/data/%s'); db.execute('pragma journal_mode=%s'); db.execute('create table t (x)'); db.execute('insert into t values (1)'); db.commit()"
    for name, mode in (("a.db", "delete"), ("b.db", "wal")):
        interpreter.run(make % (name, mode))
        parked, _, _ = park(interpreter)
        for ending in ("", "-wal", "-shm"):
            if os.path.exists("/mnt/data/" + name + ending):
                shutil.copy("/mnt/data/" + name + ending, "/mnt/data/kept" + ending)
        interpreter.run("db.execute('insert into t values (2)'); db.commit()")
        for ending in ("", "-wal", "-shm"):
            if os.path.exists("/mnt/data/kept" + ending):
                os.rename("/mnt/data/kept" + ending, "/mnt/data/" + name + ending)
        copy, _ = spawn(parked)
        equal([line for line in copy.lost if "database" in line], ["an open connection to a database, which may fail: connect anew to /mnt/data/" + name])
        if mode == "delete":
            equal(copy.value("db.execute('select * from t').fetchall()"), "[(1,)]")
        equal(copy.error("db.execute('insert into t values (3)'); db.commit()")["ename"], "OperationalError")
        equal(copy.value("new = sqlite3.connect('/mnt/data/%s'); new.execute('insert into t values (4)'); new.commit(); new.execute('select * from t').fetchall()" % name), "[(1,), (4,)]")
        copy.run("new.close()")
        interpreter.run("db.close()")
        copy.sock.close()


def test_maps_scratch_and_directory_of_a_copy(interpreter):
    interpreter.run("import mmap, os\nos.makedirs('/mnt/data/sub'); os.chdir('/mnt/data/sub'); f = open('/mnt/data/map', 'w+b'); f.write(bytes(4096)); f.flush(); m = mmap.mmap(f.fileno(), 0)")
    parked, frame, _ = park(interpreter)
    equal(frame["lost"], ["a file that is mapped into memory: /mnt/data/map"])
    interpreter.run("open('/tmp/scratch file', 'w').close(); os.chdir('/'); os.rmdir('/mnt/data/sub')")
    os.mkdir("/mnt/data/sub")
    copy, _ = spawn(parked)
    equal(copy.lost, ["a file that is mapped into memory: /mnt/data/map", "what has changed in /tmp and /dev/shm, which do not roll back: /tmp/scratch file"])
    equal(copy.value("open('here', 'w').close(); os.listdir('/mnt/data/sub')"), "['here']")
    shutil.rmtree("/mnt/data/sub")
    copy, _ = spawn(parked)
    equal((copy.lost[1], copy.value("os.getcwd()")), ("the working directory: /mnt/data/sub", "'/mnt/data'"))
    os.unlink("/tmp/scratch file")


def test_bound_of_what_is_lost(interpreter):
    interpreter.run("import socket\nkept = [socket.socket() for _ in range(200)]")
    lost = park(interpreter)[1]["lost"]
    equal((len(lost), lost[-1]), (64, "and 137 more"))


def test_program_sees_no_children(interpreter):
    park(interpreter)
    equal(interpreter.error("import os\nos.wait()")["ename"], "ChildProcessError")


def test_parked_process_ends(interpreter):
    parked, _, here = park(interpreter)
    parked.sock.close()
    for _ in range(1000):
        if not os.path.exists("/proc/%d" % here["pid"]):
            return
        time.sleep(0.005)
    raise AssertionError("it is still there")


def test_parked_process_minds_no_nonsense(interpreter):
    parked, _, _ = park(interpreter)
    parked.send({"do": "execute", "id": 1, "code": "1"})
    equal(spawn(parked)[1]["is"], "here")


# --- the end ---

def test_end(interpreter):
    interpreter.run("import atexit\natexit.register(lambda: open('/mnt/data/end', 'w').close()); None")
    interpreter.send({"do": "end"})
    equal((interpreter.status(), os.path.exists("/mnt/data/end")), (0, True))
    os.unlink("/mnt/data/end")


def test_end_after_an_error(interpreter):
    interpreter.run("1 / 0")
    interpreter.send({"do": "end"})
    equal(interpreter.status(), 1)


def test_nobody_there(interpreter):
    interpreter.run("import atexit\natexit.register(lambda: open('/mnt/data/end', 'w').close()); None")
    interpreter.sock.close()
    equal((interpreter.status(), os.path.exists("/mnt/data/end")), (0, False))


def test_forked_children_say_nothing(interpreter):
    code = "import os\npid = os.fork()\nif pid == 0:\n    display('child'); print('child', flush=True); os._exit(0)\nos.waitpid(pid, 0); None"
    outputs, _ = interpreter.run(code)
    equal(outputs[0], ("stdout", "child\n"))
    equal([kind for kind, _ in outputs if kind == "display"], [])


def test_forked_child_that_comes_back(interpreter):
    for code in ("pid = os.fork()\nprint(pid == 0)", "if os.fork() == 0: 1 / 0", "import sys\nif os.fork() == 0: sys.exit(1)",
                 "import asyncio\nawait asyncio.sleep(0)\nif os.fork() == 0: 1 / 0"):
        interpreter.run("import os\n" + code)
        time.sleep(0.05)
        equal(interpreter.value("import os\ntry:\n    while True: os.wait()\nexcept ChildProcessError: pass\n1 + 1"), "2")


def test_loop_that_is_stopped(interpreter):
    interpreter.run("import asyncio\nasyncio.get_event_loop().stop()")
    equal(interpreter.value("1 + 1"), "2")


def test_interrupt_of_a_busy_coroutine(interpreter):
    interpreter.begin("import asyncio\nawait asyncio.sleep(0)\nprint('on', flush=True)\nwhile True: pass")
    interpreter.wait_for("flush")
    interpreter.interrupt()
    equal(interpreter.wait_for("done")[1]["ename"], "KeyboardInterrupt")
    equal(interpreter.value("1 + 1"), "2")


# --- surroundings ---

def test_surroundings(interpreter):
    equal(interpreter.value("import os\n[os.environ[n] for n in ('TERM', 'PAGER', 'GIT_PAGER', 'CLICOLOR', 'MPLBACKEND')], _dh"),
          "(['xterm-color',\n  'cat',\n  'cat',\n  '1',\n  'module://matplotlib_inline.backend_inline'],\n [PosixPath('/mnt/data')])")


def test_shell_for_others(interpreter):
    equal(interpreter.value("'IPKernelApp' in get_ipython().config, type(get_ipython()).__mro__[:2]"),
          "(True,\n (ipykernel.zmqshell.ZMQInteractiveShell,\n  IPython.core.interactiveshell.InteractiveShell))")


def test_names_of_cells(interpreter):
    found = interpreter.value("import inspect, os\ndef f(): pass\ninspect.getsourcefile(f).replace(str(os.getpid()), 'PID'), inspect.getsource(f)")
    assert re.fullmatch(r"\('/tmp/ipykernel_PID/\d+\.py', 'def f\(\): pass\\n'\)", found), found


def test_nothing_of_ours_in_the_zygote(_interpreter):
    import asyncio
    import builtins
    import linecache

    import IPython
    import matplotlib

    equal(IPython.get_ipython(), None)
    equal([name for name in ("get_ipython", "display", "__IPYTHON__") if hasattr(builtins, name)], [])
    equal([name for name in ("ps1", "ps2", "ps3", "last_value") if hasattr(sys, name)], [])
    equal((sys.displayhook, matplotlib.get_backend().lower(), matplotlib.is_interactive()), (sys.__displayhook__, "agg", False))
    equal((linecache.checkcache.__module__, asyncio.events._event_loop_policy), ("linecache", None))
    equal(len(os.listdir("/proc/self/task")), 1)
    equal(LEFT_BY_ZYGOTE, [])


LEFT_BY_ZYGOTE = []  # in /tmp, before there is an interpreter


def main():
    LEFT_BY_ZYGOTE.extend(name for name in (".ipython", "kernel.json") if os.path.exists("/tmp/" + name))
    checks = [(name, function) for name, function in list(globals().items()) if name.startswith("test_")]
    for name, check in checks:
        interpreter = None
        error = None
        try:
            interpreter = driver.Interpreter(MAIN)
            interpreter.wait_for("ready")
            check(interpreter)
        except BaseException:
            error = traceback.format_exc()
        if interpreter is not None:
            interpreter.close()
        print(json.dumps({"name": name, "error": error}), flush=True)


if __name__ == "__main__":
    main()
