"""hutch run NOTEBOOK.ipynb, from outside: what is written where, exit statuses, errors, limits. That what is written is what nbconvert would
write is test_parity.py's."""
import json
import os
import pty
import select
import signal
import stat
import subprocess
import time

import pytest

import parity
import support
from support import HUTCH, refused

IMAGE = parity.IMAGE
WRITTEN = []  # every notebook that a test has seen written


# --------------------------------------------------------------------------------------------------
# Notebooks to execute

def code(source, *tags, **more):
    cell = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": source, **more}
    if tags:
        cell["metadata"] = {"tags": list(tags)}
    return cell


def markdown(source):
    return {"cell_type": "markdown", "metadata": {}, "source": source}


def notebook(path, *cells, minor=4, metadata=None):
    """Writes one; sources are code."""
    cells = [code(cell) if isinstance(cell, str) else cell for cell in cells]
    path.write_text(json.dumps({"cells": cells, "metadata": metadata or {}, "nbformat": 4, "nbformat_minor": minor}), encoding="utf-8")
    return path


def run(*args, **options):
    return support.hutch("run", "--image", IMAGE, *map(str, args), timeout=120, **options)


def load(path):
    text = path.read_text(encoding="utf-8")
    found = json.loads(text)
    assert text == parity.canonical(found)
    WRITTEN.append(text)
    return found


def execute(path, *cells, args=(), status=0, **options):
    """Executes a notebook of these cells; the CompletedProcess, and the notebook that was written."""
    target = path / "out.ipynb"
    done = run("-o", target, *args, notebook(path / "in.ipynb", *cells, **options))
    assert done.returncode == status, (done.returncode, done.stderr)
    return done, load(target)


def texts(cell):
    """What a cell shows, as words: streams by name, values as plain text, errors by name."""
    found = []
    for output in cell["outputs"]:
        if output["output_type"] == "stream":
            found.append((output["name"], "".join(output["text"])))
        elif output["output_type"] == "error":
            found.append(("error", output["ename"]))
        else:
            found.append((output["output_type"], "".join(output["data"].get("text/plain", ""))))
    return found


def is_untouched(cell):
    return cell["outputs"] == [] and cell["execution_count"] is None and "execution" not in cell["metadata"]


# --------------------------------------------------------------------------------------------------
# What is written where

def test_beside_the_notebook(tmp_path):
    path = notebook(tmp_path / "work.ipynb", "print('hello')\n6 * 7")
    before = path.read_bytes()
    done = run(path)
    assert (done.returncode, done.stdout) == (0, b""), done.stderr
    assert path.read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["work.ipynb", "work.out.ipynb"]
    cell = load(tmp_path / "work.out.ipynb")["cells"][0]
    assert texts(cell) == [("stdout", "hello\n"), ("execute_result", "42")]
    assert cell["execution_count"] == 1
    assert sorted(cell["metadata"]["execution"]) == ["iopub.execute_input", "iopub.status.busy", "iopub.status.idle", "shell.execute_reply"]
    assert b"1 of 1 cells" in done.stderr and b"work.out.ipynb" in done.stderr
    assert b"\r" not in done.stderr and b"[1/1]" not in done.stderr


def test_quiet(tmp_path):
    done = run("-q", notebook(tmp_path / "work.ipynb", "1"))
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_standard_output(tmp_path):
    done = run("-q", "-o", "-", notebook(tmp_path / "work.ipynb", "1"))
    assert (done.returncode, done.stderr) == (0, b"")
    assert texts(json.loads(done.stdout)["cells"][0]) == [("execute_result", "1")]
    assert os.listdir(tmp_path) == ["work.ipynb"]


def test_over_itself_when_asked(tmp_path):
    path = notebook(tmp_path / "work.ipynb", "1")
    os.chmod(path, 0o640)
    assert run("-o", path, path).returncode == 0
    assert texts(load(path)["cells"][0]) == [("execute_result", "1")]
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert os.listdir(tmp_path) == ["work.ipynb"]


def test_through_a_link(tmp_path):
    (tmp_path / "else").mkdir()
    target, link = tmp_path / "else" / "target.ipynb", tmp_path / "link.ipynb"
    target.write_text("old")
    link.symlink_to(target)
    assert run("-o", link, notebook(tmp_path / "work.ipynb", "1")).returncode == 0
    assert link.is_symlink()
    assert texts(load(target)["cells"][0]) == [("execute_result", "1")]
    assert os.listdir(tmp_path / "else") == ["target.ipynb"]


def test_options_behind_the_notebook(tmp_path):
    assert run(notebook(tmp_path / "work.ipynb", "1"), "-q", "-o", tmp_path / "out.ipynb").returncode == 0
    assert texts(load(tmp_path / "out.ipynb")["cells"][0]) == [("execute_result", "1")]


@pytest.mark.parametrize("trap", ["os.symlink('/mnt/data/victim', '/mnt/data/in.out.ipynb')", "os.mkfifo('/mnt/data/in.out.ipynb')",
                                  "os.link('/mnt/data/victim', '/mnt/data/in.out.ipynb')"])
def test_cells_do_not_say_where_it_is_written(data, trap):
    """The notebook lies in the data directory, and what is executed puts something else in the place of its output."""
    (data / "victim").write_text("as before")
    done = run("--data", data, notebook(data / "in.ipynb", "import os\n" + trap))
    assert done.returncode == 0, done.stderr
    assert (data / "victim").read_text() == "as before"
    assert load(data / "in.out.ipynb")["cells"][0]["execution_count"] == 1


def test_a_directory_in_its_place(data):
    done = run("--data", data, notebook(data / "in.ipynb", "import os\nos.mkdir('/mnt/data/in.out.ipynb')"))
    assert done.returncode == 125
    kept, = [name for name in os.listdir(data) if name.startswith(".hutch-")]
    assert kept in done.stderr.decode() and load(data / kept)["cells"][0]["execution_count"] == 1


def test_executed_again(tmp_path):
    """What it wrote is a notebook like any other, and what was in it does not stay."""
    first, second = tmp_path / "first.ipynb", tmp_path / "second.ipynb"
    run("-o", first, notebook(tmp_path / "work.ipynb", "print(1)", "2"))
    run("-o", second, first)
    for cell in load(second)["cells"]:
        assert len(cell["outputs"]) == 1


@pytest.mark.parametrize("where, says", [("missing/out.ipynb", "missing/out.ipynb"), (".", "directory")])
def test_unwritable_is_told_before_anything_runs(tmp_path, data, where, says):
    path = notebook(tmp_path / "work.ipynb", "open('ran', 'w')")
    refused("run", "--image", IMAGE, "--data", str(data), "-o", str(tmp_path / where), str(path), says=("write the notebook", says))
    assert os.listdir(data) == []


@pytest.mark.skipif(support.is_root(), reason="root writes anywhere")
def test_closed_directory(tmp_path):
    path = notebook(tmp_path / "work.ipynb", "1")
    os.chmod(tmp_path, 0o555)
    try:
        refused("run", "--image", IMAGE, str(path), says=("work.out.ipynb", "-o", "Permission denied"))
    finally:
        os.chmod(tmp_path, 0o755)


# --------------------------------------------------------------------------------------------------
# Notebooks that are none

BROKEN = {
    "empty": (b"", "line 1"),
    "no JSON": (b'{\n "cells": [}', ("line 2", "column")),
    "cut": (b'{"cells": [{"cell_type": "code"', "line 1"),
    "no UTF-8": (b'{"nbformat": "\xff"}', "UTF-8"),
    "deep": (b"[" * 100000, "line 1"),
    "nothing in it": (b"{}", "nbformat"),
    "version 2": (b'{"nbformat": 2, "nbformat_minor": 0, "worksheets": [], "metadata": {}}', ("nbformat 2", "nbconvert")),
    "version 3": (b'{"nbformat": 3, "nbformat_minor": 0, "metadata": {}}', "worksheets"),
    "version 4.9": (b'{"nbformat": 4, "nbformat_minor": 9, "cells": [], "metadata": {}}', "4.0 to 4.5"),
    "cell": (b'{"nbformat": 4, "nbformat_minor": 4, "metadata": {}, "cells": [{"cell_type": "code"}]}', "cell 1"),
    "R": (b'{"nbformat": 4, "nbformat_minor": 4, "metadata": {"kernelspec": {"language": "R"}}, "cells": []}', "'R'"),
}


@pytest.mark.parametrize("label", BROKEN)
def test_broken(tmp_path, label):
    content, says = BROKEN[label]
    path = tmp_path / "work.ipynb"
    path.write_bytes(content)
    refused("run", "--image", IMAGE, str(path), says=says)
    assert os.listdir(tmp_path) == ["work.ipynb"]


def test_missing(tmp_path):
    refused("run", "--image", IMAGE, str(tmp_path / "none.ipynb"), says=("none.ipynb", "No such file"))


def test_too_large(tmp_path):
    path = tmp_path / "work.ipynb"
    with open(path, "wb") as file:
        file.truncate(300 << 20)
    refused("run", "--image", IMAGE, str(path), says="work.ipynb")


RECURSES = """
depth = 0


def deeper():
    global depth
    depth += 1
    deeper()


try:
    deeper()
except RecursionError:
    print(depth)
"""


def test_depth_of_recursion(tmp_path):
    """Where a kernel of the image ends it that has executed some ten statements. Before, IPython's call of exec() is not specialised yet, and
    there is one level less."""
    inside = tmp_path / "in"
    inside.mkdir()
    path = str(notebook(inside / "depth.ipynb", *["0"] * 12, RECURSES))
    reference = parity.run_reference(["depth"], {"depth": path}, str(tmp_path / "nbconvert"))
    expected, = texts(parity.load(reference["depth"])[0]["cells"][-1])
    _, found = execute(tmp_path, RECURSES)
    assert texts(found["cells"][0]) == [expected]
    assert int(expected[1]) > 2900


def test_a_text_that_no_encoding_has_as_first_statement(tmp_path):
    """Python 3.13 cannot compile it as what describes a module, and a kernel then owes the reply for ever. Here the cell ends."""
    _, found = execute(tmp_path, "'\\ud800'", "2", args=("--allow-errors",))
    assert texts(found["cells"][0]) in ([("execute_result", "'\\ud800'")], [("error", "UnicodeEncodeError")])
    assert texts(found["cells"][1]) == [("execute_result", "2")]


APPLICATION = """
from ipykernel import kernelapp
known = kernelapp.IPKernelApp.initialized(), type(kernelapp.IPKernelApp.instance())
try:
    kernelapp.nothing
except AttributeError as error:
    print(error)
from ipykernel.kernelapp import IPKernelApp, launch_new_instance
print(known == (IPKernelApp.initialized(), type(IPKernelApp.instance())), kernelapp.launch_new_instance is launch_new_instance)
"""


def test_module_of_the_application(tmp_path):
    """The real one comes when anything but its class is used. And nothing listens."""
    _, found = execute(tmp_path, APPLICATION, "%connect_info")
    assert ("stdout", "module 'ipykernel.kernelapp' has no attribute 'nothing'\nTrue True\n") in texts(found["cells"][0])
    (name, text), = texts(found["cells"][1])
    assert name == "stdout" and '"shell_port": 0,' in text and "/tmp/kernel.json" in text, text


def test_profile_that_cannot_be_made(tmp_path):
    """Where its place is read-only, cells are executed all the same."""
    _, found = execute(tmp_path, "import os\nprint(get_ipython().ipython_dir, os.path.isdir(get_ipython().profile_dir.location))",
                       args=("-e", "IPYTHONDIR=/usr/none"))
    assert texts(found["cells"][0]) == [("stdout", "/usr/none False\n")]


WIDGET = """
from ipykernel.comm import Comm
def widget(comm_id, **state):
    state = dict({"_model_name": "M", "_model_module": "m", "_model_module_version": "1"}, **state)
    return Comm(target_name="jupyter.widget", comm_id=comm_id, data={"state": state})
def change(comm, **state):
    comm.send({"method": "update", "state": state})
out = widget("out", _model_name="OutputModel", _model_module="@jupyter-widgets/output", outputs=[], msg_id="")
"""
ENTER = "change(out, msg_id=get_ipython().kernel.get_parent()['header']['msg_id'])\n"


def widget_states(notebook):
    return {name: model["state"] for name, model in
            notebook["metadata"]["widgets"]["application/vnd.jupyter.widget-state+json"]["state"].items()}


def test_widgets_of_a_run_that_ends_early(tmp_path):
    _, found = execute(tmp_path, WIDGET, "change(out, layout='x')\n" + ENTER + "print('taken')", "1 / 0", status=1)
    assert widget_states(found)["out"]["outputs"] == [{"name": "stdout", "output_type": "stream", "text": "taken\n"}]
    assert found["cells"][1]["outputs"] == []


@pytest.mark.parametrize("source, says", [
    ("widget('large', value='x' * 9000000)", "cell 2: its output, or the state of its widgets, was cut at the limit"),
    ("widget('larger', value='x' * 17000000)", "cell 2: its output, or the state of its widgets, was cut at the limit"),
    ("widget('many', **{'k%d' % i: i for i in range(20000)})", "cell 2: its output, or the state of its widgets, was cut at the limit"),
    ("comms = [widget('w%d' % i) for i in range(10001)]", "the notebook does not have the state of all widgets"),
    ("deep = []\nfor i in range(92):\n    deep = [deep]\nwidget('deep', value=deep)", "the notebook does not have the state of all widgets"),
])
def test_widgets_are_bounded(tmp_path, source, says):
    """What is too large is left out, and said; all else goes on."""
    done, found = execute(tmp_path, WIDGET, source, "change(out, msg_id='')\nprint('goes on')")
    assert says in done.stderr.decode() + "".join(text for cell in found["cells"] for _, text in texts(cell)), done.stderr
    assert texts(found["cells"][2]) == [("stdout", "goes on\n")] and "out" in widget_states(found)
    assert len(widget_states(found)) <= 10000 and not {"large", "larger", "many", "deep"} & set(widget_states(found))


def test_a_widget_that_grows_too_large(tmp_path):
    """What was known of it before would be a lie."""
    done, found = execute(tmp_path, WIDGET, "one = widget('one', value=1)", "change(one, value='x' * 9000000)", args=("--json",))
    report = json.loads(done.stdout)
    assert (report["widgets_truncated"], set(widget_states(found))) == (True, {"out"}), report


def test_an_output_widget_takes_no_more_than_a_frame(tmp_path):
    """What is beyond is the cell's output, and bounded as any."""
    source = ENTER + "for i in range(40):\n    print('x' * 1000000, flush=True)"
    _, found = execute(tmp_path, WIDGET, source, args=("--allow-errors",))
    cell = found["cells"][1]
    assert "left out" in "".join(text for _, text in texts(cell))
    assert "widgets" not in found["metadata"], "it holds more than a frame has room for"


def test_what_a_widget_makes_a_program_do_can_be_interrupted(tmp_path):
    """It is told what its Output widget shows, at the end of the cell."""
    forever = "def hear(message):\n    while True:\n        pass\nout.on_msg(hear)\n"
    done, found = execute(tmp_path, WIDGET, forever + ENTER + "print('x')", args=("--cell-timeout", "8"), status=124)
    assert "cell 2" in done.stderr.decode() and not is_untouched(found["cells"][1])


def test_widgets_are_for_notebooks(tmp_path):
    """Where nobody shows them, what they would take is shown."""
    done = run("--rich", "-c", WIDGET + ENTER + "print('shown')")
    assert (done.returncode, done.stdout.decode()) == (0, "shown\n"), done.stderr


# --------------------------------------------------------------------------------------------------
# Errors

def test_stops_at_an_error(tmp_path):
    done, found = execute(tmp_path, "x = 1", code("1 / 0", "raises-exception"), "print(x)\nundefined", "'never'", markdown("text"), status=1)
    cells = found["cells"]
    assert texts(cells[1]) == [("error", "ZeroDivisionError")]
    assert texts(cells[2]) == [("stdout", "1\n"), ("error", "NameError")]
    assert is_untouched(cells[3])
    said = done.stderr.decode()
    assert "hutch: cell 3: NameError: name 'undefined' is not defined" in said
    assert "Traceback (most recent call last)" in said and "\x1b" not in said
    assert "3 of 4 cells" in said


def test_allow_errors(tmp_path):
    _, found = execute(tmp_path, "1 / 0", "'goes on'", args=["--allow-errors"])
    assert texts(found["cells"][1]) == [("execute_result", "'goes on'")]


def test_skipped_cells(tmp_path):
    _, found = execute(tmp_path, "x = 1", code("x = 2", "skip-execution"), "", markdown("x = 3"), "x")
    assert is_untouched(found["cells"][1]) and is_untouched(found["cells"][2])
    assert texts(found["cells"][4]) == [("execute_result", "1")]
    assert found["cells"][4]["execution_count"] == 2


def test_an_error_cannot_write_to_the_terminal(tmp_path):
    done, _ = execute(tmp_path, "raise ValueError('\\x1b]0;title\\x07\\x1b[2J')", status=1)
    assert b"\x1b" not in done.stderr and b"\x07" not in done.stderr


@pytest.mark.parametrize("label, source", [
    ("exits", "import os\nprint('last words')\nos._exit(3)"),
    ("exits well", "import os\nprint('last words')\nos._exit(0)"),
    ("is killed", "import os\nprint('last words')\nos.kill(os.getpid(), 9)"),
    ("crashes", "import ctypes\nprint('last words')\nctypes.string_at(0)"),
    ("leaves the protocol", "import os\nprint('last words')\nos.write(3, b'\\xff' * 100)\nimport time\ntime.sleep(60)"),
])
def test_interpreter_dies(tmp_path, label, source):
    done, found = execute(tmp_path, "'before'", source, "'never'", status=1, args=["--allow-errors"])
    cells = found["cells"]
    assert texts(cells[0]) == [("execute_result", "'before'")]
    assert texts(cells[1])[0] == ("stdout", "last words\n")
    assert texts(cells[1])[-1] == ("error", "DeadKernelError")
    assert is_untouched(cells[2])
    assert b"hutch: cell 2: " in done.stderr


def test_an_interpreter_that_left_is_missed(tmp_path):
    """The cell that ended it is fine; the next one has lost its variables, and so ends the run whatever it comes to."""
    done, found = execute(tmp_path, "x = 5", "exit()", "print(x)", "print('never')", args=("--allow-errors",), status=1)
    assert b"cell 3: the interpreter had died" in done.stderr
    assert is_untouched(found["cells"][3])


def test_out_of_memory(tmp_path):
    _, found = execute(tmp_path, "x = bytearray(10 ** 9)\nfor i in range(0, 10 ** 9, 4096): x[i] = 1", "'next'", status=1, args=["--memory", "300m"])
    assert texts(found["cells"][0])[-1][1] in ("DeadKernelError", "MemoryError")
    assert is_untouched(found["cells"][1])


# --------------------------------------------------------------------------------------------------
# Limits

@pytest.mark.parametrize("words", [["--cell-timeout", "5"], ["--timeout", "5s"], ["--cell-timeout", "5", "--allow-errors"]])
def test_timeout_of_a_cell(tmp_path, words):
    done, found = execute(tmp_path, "'before'", "print('begins', flush=True)\nwhile True: pass", "'never'", status=124, args=words)
    assert texts(found["cells"][0]) == [("execute_result", "'before'")]
    assert texts(found["cells"][1])[0] == ("stdout", "begins\n")
    assert is_untouched(found["cells"][2])
    assert b"hutch: cell 2: " in done.stderr


def test_timeout_that_is_longer_than_the_policy_says(tmp_path):
    execute(tmp_path, "1", args=["--cell-timeout", "3600"])


SLEEPS = "import time\nprint('begun')\ntime.sleep(100)"
CATCHES = "import time\ntry:\n    time.sleep(100)\nexcept KeyboardInterrupt:\n    print('caught')"
STAYS = "import time\nwhile True:\n    try:\n        time.sleep(100)\n    except KeyboardInterrupt:\n        pass"


@pytest.mark.parametrize("cell, args, goes_on, shows", [
    (SLEEPS, ["--allow-errors"], True, [("stdout", "begun\n"), ("error", "KeyboardInterrupt")]),
    (SLEEPS, [], False, [("stdout", "begun\n"), ("error", "KeyboardInterrupt")]),
    (code(SLEEPS, "raises-exception"), [], True, [("stdout", "begun\n"), ("error", "KeyboardInterrupt")]),
    (CATCHES, [], True, [("stdout", "caught\n")]),
    (STAYS, ["--allow-errors"], False, [("error", "DeadKernelError")]),
], ids=["allowed", "not allowed", "tagged", "caught", "not to be interrupted"])
def test_interrupt_on_timeout(tmp_path, cell, args, goes_on, shows):
    """As with nbclient's option of that name: the exception of a cell that was interrupted is one like any other."""
    done, found = execute(tmp_path, cell, "6 * 7", status=0 if goes_on else 124, args=["--cell-timeout", "4", "--interrupt-on-timeout", *args])
    assert texts(found["cells"][0]) == shows
    assert goes_on == (texts(found["cells"][1]) == [("execute_result", "42")])
    assert (b"cell 1: it took too long" in done.stderr) == (shows[-1][1] != "DeadKernelError"), done.stderr


def test_much_output_is_cut(tmp_path):
    done, found = execute(tmp_path, "for i in range(100):\n    print('x' * 10 ** 6)", "'next'", args=["--allow-errors"])
    text = "".join(text for kind, text in texts(found["cells"][0]) if kind == "stdout")
    assert 10 ** 6 <= len(text) <= 9 << 20
    assert b"cell 1: its output, or the state of its widgets, was cut" in done.stderr
    assert texts(found["cells"][1]) == [("execute_result", "'next'")]


def test_many_updates(tmp_path):
    """One display in many places, over and over: neither memory nor time without bounds."""
    _, found = execute(tmp_path, "for i in range(200): display(i, display_id='x')",
                       "from IPython.display import update_display\nfor i in range(5000): update_display('y' * 1000, display_id='x')",
                       args=["--allow-errors"])
    assert {text for _, text in texts(found["cells"][0])} == {repr("y" * 1000)}
    assert found["cells"][1]["outputs"] == []


def test_what_the_sandbox_has(tmp_path):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "file").write_text("content")
    _, found = execute(tmp_path, "import os, socket\nos.environ['NAME'], open('/shared/file').read(), os.getuid()", "open('/etc/x', 'w')",
                       "socket.create_connection(('192.0.2.1', 80), 1)", args=["--allow-errors", "-e", "NAME=value", "-v", "%s:/shared:ro" % (tmp_path / "shared")])
    assert texts(found["cells"][0]) == [("execute_result", "('value', 'content', 1000)")]
    assert texts(found["cells"][1])[-1][0] == "error" and texts(found["cells"][2])[-1][0] == "error"


# --------------------------------------------------------------------------------------------------
# Files

def test_data_directory(tmp_path, data):
    (data / "input.txt").write_text("from outside")
    _, found = execute(tmp_path, "import os\nos.getcwd(), open('input.txt').read()", "open('output.txt', 'w').write('from inside')",
                       args=["--data", data])
    assert texts(found["cells"][0]) == [("execute_result", "('/mnt/data', 'from outside')")]
    assert (data / "output.txt").read_text() == "from inside"


def test_fresh_data_directory_is_told(tmp_path):
    done, _ = execute(tmp_path, "open('x.txt', 'w').write('kept')")
    folder = done.stderr.decode().rpartition("files written to /mnt/data are in ")[2].strip()
    with open(os.path.join(folder, "x.txt"), encoding="utf-8") as file:
        assert file.read() == "kept"
    support.remove_tree(folder)


def test_nothing_is_left_without_files(tmp_path):
    done, _ = execute(tmp_path, "1")
    assert b"/mnt/data" not in done.stderr


# --------------------------------------------------------------------------------------------------
# Parameters

PARAMS = ["a=1", "b=text", "c=[1, true, null]", "d={\"k\": 2.5}", "e=\"quoted\"", "f=a=b"]
VALUES = "(1, 'text', [1, True, None], {'k': 2.5}, 'quoted', 'a=b')"


def with_params(*params):
    return [word for param in params for word in ("--param", param)]


def test_parameters(tmp_path):
    _, found = execute(tmp_path, "'first'", code("a = 0\nz = 5", "parameters"), "a, b, c, d, e, f", "z", args=with_params(*PARAMS), minor=5)
    cells = found["cells"]
    assert cells[2]["metadata"]["tags"] == ["injected-parameters"]
    assert "".join(cells[2]["source"]).startswith("# Parameters\na = 1\nb = \"text\"\n")
    assert texts(cells[3]) == [("execute_result", VALUES)]
    assert texts(cells[4]) == [("execute_result", "5")]
    assert cells[2]["id"] not in [cell["id"] for cell in cells if cell is not cells[2]]


def test_parameters_of_a_notebook_without_a_place_for_them(tmp_path):
    _, found = execute(tmp_path, "a", args=with_params("a=7"))
    assert [texts(cell) for cell in found["cells"]] == [[], [("execute_result", "7")]]


def test_parameters_that_json_has_not(tmp_path):
    """As papermill reads them."""
    params = ("a=False", "b=None", "c=NaN", "d=1e400", "e=-inf", "f=True")
    _, found = execute(tmp_path, "a, b, c != c, d, e, f", args=with_params(*params))
    assert [texts(cell) for cell in found["cells"]] == [[], [("execute_result", "(False, None, True, inf, -inf, True)")]]


def test_parameters_again(tmp_path):
    """What was put in before is replaced."""
    path = notebook(tmp_path / "in.ipynb", "x")
    for value in ("1", "2"):
        assert run("-o", path, *with_params("x=" + value), path).returncode == 0
    cells = load(path)["cells"]
    assert len(cells) == 2 and texts(cells[1]) == [("execute_result", "2")]


@pytest.mark.parametrize("param", ["a", "=1", "a b=1", "1a=1", "a-b=1", "class=1", "None=1"])
def test_odd_parameters(tmp_path, param):
    refused("run", "--image", IMAGE, "--param", param, str(notebook(tmp_path / "in.ipynb", "1")), says="--param")


# --------------------------------------------------------------------------------------------------
# Versions

@pytest.mark.parametrize("minor", range(6))
def test_version_stays(tmp_path, minor):
    _, found = execute(tmp_path, "1", minor=minor)
    assert (found["nbformat"], found["nbformat_minor"]) == (4, minor)
    assert ("id" in found["cells"][0]) == (minor >= 5)
    assert found["metadata"]["language_info"]["name"] == "python"


def test_notebook_without_code(tmp_path):
    _, found = execute(tmp_path, markdown("text"))
    assert found["cells"] == [{"cell_type": "markdown", "metadata": {}, "source": ["text"]}]
    assert found["metadata"]["language_info"]["name"] == "python"


# --------------------------------------------------------------------------------------------------
# Results for programs

def test_json(tmp_path, data):
    done = run("--json", "--data", data, "-o", tmp_path / "out.ipynb", notebook(tmp_path / "in.ipynb", markdown("text"), "print('x')\n1", "1/0", "2"))
    assert done.returncode == 1
    result = json.loads(done.stdout)
    assert done.stdout.count(b"\n") == 1
    assert list(result)[0] == "version" and list(result)[-1] == "cells"
    assert (result["version"], result["verdict"], result["n_cells"], result["n_executed"]) == (1, "error", 3, 2)
    assert result["notebook"] == str(tmp_path / "out.ipynb") and result["directory"] == str(data)
    assert result["message"] == "cell 3: ZeroDivisionError: division by zero"
    assert [entry["cell"] for entry in result["cells"]] == [2, 3]
    assert [entry["result"]["verdict"] for entry in result["cells"]] == ["ok", "error"]
    assert texts(load(tmp_path / "out.ipynb")["cells"][1]) == [("stdout", "x\n"), ("execute_result", "1")]


def test_json_of_a_run_that_went_well(tmp_path):
    done = run("--json", "-o", tmp_path / "out.ipynb", notebook(tmp_path / "in.ipynb", "1"))
    result = json.loads(done.stdout)
    assert (done.returncode, result["verdict"], result["message"]) == (0, "ok", None)


@pytest.mark.parametrize("args, says", [(("--image", "no-such-image"), "no-such-image"), (("--cell-timeout", "soon"), "--cell-timeout"),
                                        (("-o", "/nonexistent/out.ipynb"), "/nonexistent")], ids=str)
def test_json_when_hutch_fails(tmp_path, args, says):
    path = notebook(tmp_path / "in.ipynb", "1")
    for source in (path, tmp_path / "missing.ipynb"):
        done = run("--json", *args, source)
        result = json.loads(done.stdout)
        assert done.returncode == 125
        assert (result["verdict"], result["notebook"], result["cells"]) == ("setup_failed", None, [])
        assert done.stderr.decode() == "hutch: %s\n" % result["message"]
        assert says in result["message"] or source != path


def test_text_for_language_models(tmp_path):
    done = run("--llm", "-q", notebook(tmp_path / "in.ipynb", "print('printed')\n6 * 7", "1 / 0"))
    text = done.stdout.decode()
    assert done.returncode == 1
    assert text.index("Cell 1:") < text.index("printed") < text.index("42") < text.index("Cell 2:") < text.index("ZeroDivisionError")


def test_two_things_on_standard_output(tmp_path):
    refused("run", "--image", IMAGE, "--json", "-o", "-", str(notebook(tmp_path / "in.ipynb", "1")), says="standard output")


# --------------------------------------------------------------------------------------------------
# While it runs

def test_progress_on_a_terminal(tmp_path):
    path = notebook(tmp_path / "in.ipynb", markdown("text"), "1", "2")
    ours, theirs = pty.openpty()
    process = subprocess.Popen([HUTCH, "run", "--image", IMAGE, str(path)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    said = b""
    while select.select([ours], [], [], 60)[0]:
        try:
            piece = os.read(ours, 4096)
        except OSError:  # EIO: nobody has it open any more
            break
        said += piece
    os.close(ours)
    assert process.wait(60) == 0
    assert "[1/2] cell 2 …".encode() in said and "[2/2] cell 3 …".encode() in said
    assert b"2 of 2 cells" in said


def wait_for(path, process):
    limit = time.monotonic() + 60
    while not path.exists():
        assert process.poll() is None and time.monotonic() < limit
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal(tmp_path, data, number):
    """The notebook so far is written."""
    target = tmp_path / "out.ipynb"
    path = notebook(tmp_path / "in.ipynb", "'before'", "open('begun', 'w').close()\nwhile True: pass", "'never'")
    process = subprocess.Popen([HUTCH, "run", "--image", IMAGE, "--data", str(data), "-o", str(target), str(path)], stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    wait_for(data / "begun", process)
    process.send_signal(number)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 128 + number, said
    cells = load(target)["cells"]
    assert texts(cells[0]) == [("execute_result", "'before'")]
    if number == signal.SIGINT:
        assert texts(cells[1]) == [("error", "KeyboardInterrupt")]
    assert is_untouched(cells[2])


def test_nothing_is_left_behind(tmp_path):
    execute(tmp_path, "1")
    assert support.dead_runs() == []


# --------------------------------------------------------------------------------------------------

def test_everything_written_is_valid(data):
    """The last test: it has what the others have seen written."""
    parity.validate(WRITTEN, data)
