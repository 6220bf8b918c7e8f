"""hutch run --rich and --llm: a program as one cell, with what it displays."""
import base64
import json
import os
import signal
import subprocess
import time

import pytest

import support
from support import check_files, hutch, is_number, refused

IMAGE = "python"
PLOT = "import matplotlib.pyplot as plt\nplt.plot([1, 3, 2]);\n"
PNG = b"\x89PNG\r\n\x1a\n"

CELL_KEYS = ("version", "verdict", "message", "execution_count", "value", "value_json", "outputs", "truncated", "error",
             "interrupted", "interpreter_died", "fresh", "files", "timings_ms", "times", "usage")


def run(*args, **options):
    return hutch("run", "--image", IMAGE, *args, **options)


def run_json(*args, **options):
    """hutch run --rich --json; returns the result, whose "cell" was checked, and the exit status."""
    done = run("--rich", "--json", *args, **options)
    result = json.loads(done.stdout)
    cell = result["cell"]
    support.check_result({key: value for key, value in result.items() if key != "cell"})
    assert tuple(sorted(cell)) == tuple(sorted(CELL_KEYS))
    assert cell["version"] == 1 and cell["verdict"] in support.VERDICTS
    assert cell["message"] is None or "\n" not in cell["message"]
    assert isinstance(cell["outputs"], list) and isinstance(cell["truncated"], bool)
    assert all(isinstance(cell[key], bool) for key in ("interrupted", "interpreter_died", "fresh"))
    if cell["error"] is not None:
        assert sorted(cell["error"]) == ["cause", "line", "name", "traceback", "traceback_ansi", "value"]
    if cell["files"] is not None:
        check_files(cell["files"])
    assert sorted(cell["timings_ms"]) == ["queued", "run"] and sorted(cell["times"]) == ["busy", "idle", "input", "reply"]
    assert all(value is None or is_number(value) for value in cell["times"].values())
    assert sorted(cell["usage"]) == ["cpu_system_ms", "cpu_user_ms", "memory_peak_bytes"]
    return result, cell, done.returncode


def kept(stderr):
    """The directory that a run has left, which is removed, and what is in it."""
    before, found, path = stderr.decode().strip().rpartition("hutch: files written to /mnt/data are in ")
    assert found, stderr
    files = {}
    for name in os.listdir(path):
        with open(os.path.join(path, name), "rb") as file:
            files[name] = file.read()
    support.remove_tree(path)
    return before, files


# --------------------------------------------------------------------------------------------------
# As a person reads it

def test_value():
    done = run("--rich", "-c", "print('printed')\n6 * 7")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"printed\n42\n", b"")


def test_without_value():
    done = run("--rich", "-c", "x = 1")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_file_and_stdin(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("sum(range(10))\n")
    assert run("--rich", str(script)).stdout == b"45\n"
    assert run("--rich", "-", stdin=b"sum(range(10))\n").stdout == b"45\n"


def test_byte_order_mark(tmp_path):
    """Python takes it at the beginning of a file, and IPython does not take it in a cell."""
    program = b"\xef\xbb\xbf'read'\n"
    (tmp_path / "program.py").write_bytes(program)
    assert run("--rich", str(tmp_path / "program.py")).stdout == b"'read'\n"
    assert run("--rich", "-", stdin=program).stdout == b"'read'\n"
    assert hutch("repl", "--image", IMAGE, stdin=program).stdout == b"'read'\n"


def test_streams_stay_apart():
    done = run("--rich", "-c", "import sys; print('out'); print('err', file=sys.stderr); 'value'")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"out\n'value'\n", b"err\n")


def test_streams_come_as_they_are_written(data):
    process = subprocess.Popen(support.command("--rich", "--data", str(data), "-c",
                                               "import os, time\nprint('ready')\nwhile not os.path.exists('go'): time.sleep(0.01)\n'over'",
                                               image=IMAGE), stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    (data / "go").write_text("")
    assert process.communicate(timeout=60)[0] == b"'over'\n"
    assert process.returncode == 0


def test_control_characters_pass():
    done = run("--rich", "-c", "import os; os.write(1, bytes(range(1, 128)));")
    assert (done.returncode, done.stdout) == (0, bytes(range(1, 128)))


def test_error():
    done = run("--rich", "-c", "print('before')\n1/0")
    assert (done.returncode, done.stdout) == (1, b"before\n")
    assert done.stderr.endswith(b"\nZeroDivisionError: division by zero\n") and b"\x1b" not in done.stderr


def test_magic_and_await():
    assert run("--rich", "-c", "import asyncio\nawait asyncio.sleep(0, 'awaited')").stdout == b"'awaited'\n"
    assert run("--rich", "-c", "%pwd").stdout == b"'/mnt/data'\n"


def test_images_are_files():
    done = run("--rich", "-c", PLOT + "plt.show()\nplt.plot([2, 1])\n'value'")
    assert (done.returncode, done.stdout) == (0, b"'value'\n")
    before, files = kept(done.stderr)
    assert before == "hutch: figure-1.png\nhutch: figure-2.png\n"
    assert sorted(files) == ["figure-1.png", "figure-2.png"] and all(data.startswith(PNG) for data in files.values())


def test_images_beside_files_of_the_program():
    """Its own figure-1.png is not written over."""
    done = run("--rich", "-c", "open('figure-1.png', 'w').write('mine')\nopen('other', 'w').close()\n" + PLOT)
    _, files = kept(done.stderr)
    assert sorted(files) == ["figure-1.png", "figure-2.png", "other"]
    assert files["figure-1.png"] == b"mine" and files["figure-2.png"].startswith(PNG)


def test_images_in_data_directory(data, tmp_path):
    """A link that the program leaves there leads nowhere."""
    outside = tmp_path / "outside"
    done = run("--rich", "--data", str(data), "-c", "import os; os.symlink('%s', 'figure-1.png')\n%s" % (outside, PLOT))
    assert done.stderr == b"hutch: figure-2.png\n"
    assert (data / "figure-2.png").read_bytes().startswith(PNG) and not outside.exists()


def test_jpeg_and_svg():
    code = ("from IPython.display import SVG\nimport base64\n"
            "display({'image/jpeg': base64.b64encode(b'jpeg').decode()}, raw=True)\n"
            "SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"></svg>')")
    done = run("--rich", "-c", code)
    _, files = kept(done.stderr)
    assert files["figure-1.jpg"] == b"jpeg" and files["figure-2.svg"].startswith(b"<svg")


@pytest.mark.parametrize("code, status", [
    ("import os; os._exit(0)", 0), ("import os; os._exit(7)", 7), ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 137),
    ("raise SystemExit(3)", 1), ("def", 1), ("", 0)])
def test_exit_status(code, status):
    assert run("--rich", "-c", code).returncode == status


def test_death_is_told():
    """A program that ends its interpreter half way has not come to its end, whatever its exit status."""
    done = run("--rich", "-c", "print('a'); import os; os._exit(0)")
    assert (done.returncode, done.stdout) == (0, b"a\n")
    assert support.sentence(done) == "hutch: the interpreter ended with exit code 0 before the end of the program"
    done = run("--llm", "-c", "print('a'); import os; os.kill(os.getpid(), 11)")
    assert (done.returncode, done.stdout) == (139, b"a\n[the interpreter died of SIGSEGV]\n")


def test_timeout():
    done = run("--rich", "--timeout", "5s", "-c", "print('begun')\nwhile True: pass")
    assert (done.returncode, done.stdout) == (124, b"begun\n")
    assert b"hutch: " in done.stderr


def test_out_of_memory():
    done = run("--rich", "--memory", "300m", "-c", "print('begun')\nx = []\nwhile True: x.append(b'x' * (1 << 24))")
    assert done.returncode in (1, 137) and done.stdout == b"begun\n"
    assert b"MemoryError" in done.stderr or b"hutch: " in done.stderr


def test_ctrl_c():
    process = subprocess.Popen(support.command("--rich", "-c", "print('ready')\nwhile True: pass", image=IMAGE), stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert b"KeyboardInterrupt" in err and process.returncode != 0


def test_reader_that_goes_away():
    """Nobody reads: no reason to go on."""
    process = subprocess.Popen(support.command("--rich", "-c", "while True: print('y' * 1000)", image=IMAGE), stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL)
    process.stdout.read(10)
    process.stdout.close()
    began = time.monotonic()
    process.wait(timeout=60)
    assert time.monotonic() - began < 30


# --------------------------------------------------------------------------------------------------
# As JSON

def test_json():
    result, cell, status = run_json("-c", "print('printed')\n6 * 7")
    assert status == 0 and result["verdict"] == cell["verdict"] == "ok" and result["stdout"] == "printed\n"
    assert cell["value"] == "42" and cell["execution_count"] == 1 and cell["error"] is None
    assert cell["outputs"] == [{"name": "stdout", "output_type": "stream", "text": "printed\n"},
                               {"data": {"text/plain": "42"}, "execution_count": 1, "metadata": {}, "output_type": "execute_result"}]


def test_json_of_displays():
    _, cell, _ = run_json("-c", PLOT + "plt.show()\nimport pandas\npandas.DataFrame({'a': [1]})")
    figure, table = cell["outputs"]
    assert base64.b64decode(figure["data"]["image/png"]).startswith(PNG)
    assert table["output_type"] == "execute_result" and "<table" in table["data"]["text/html"]
    assert cell["value"] == "   a\n0  1"


def test_json_of_error():
    result, cell, status = run_json("-c", "x = {}\nx['key']")
    assert status == 1 and result["verdict"] == cell["verdict"] == "error"
    assert cell["error"]["name"] == "KeyError" and cell["error"]["value"] == "'key'" and cell["error"]["line"] == 2
    assert "\x1b" in cell["error"]["traceback_ansi"] and "\x1b" not in cell["error"]["traceback"]
    assert cell["outputs"][-1]["output_type"] == "error"


def test_json_of_files(data):
    (data / "old").write_text("old")
    _, cell, _ = run_json("--data", str(data), "-c", "import os; open('new.csv', 'w').write('a,b'); os.remove('old')")
    assert support.paths(cell["files"]["added"]) == ["new.csv"] and support.paths(cell["files"]["deleted"]) == ["old"]
    assert cell["files"]["added"][0]["mime"] == "text/csv"


def test_json_without_rich_has_no_cell():
    assert "cell" not in json.loads(run("--json", "-c", "1").stdout)


def test_json_of_death():
    result, cell, status = run_json("-c", "print('before')\nimport os; os._exit(5)")
    assert status == 5 and cell["interpreter_died"] is True
    assert cell["outputs"] == [{"name": "stdout", "output_type": "stream", "text": "before\n"}]
    assert result["exit_code"] == 5


# --------------------------------------------------------------------------------------------------
# For a language model

def test_llm():
    done = run("--llm", "-c", "print('printed')\n6 * 7")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.splitlines()[0] == b"printed" and b"42" in done.stdout


def test_llm_names_images_as_they_are_saved():
    done = run("--llm", "-c", PLOT)
    assert b"figure-1.png" in done.stdout
    before, files = kept(done.stderr)
    assert before == "" and sorted(files) == ["figure-1.png"]


def test_llm_error_names_line_code_and_cause():
    done = run("--llm", "-c", "x = {}\nx['key']")
    assert done.returncode == 1
    assert b"line 2: x['key'] -> KeyError: 'key'" in done.stdout


@pytest.mark.parametrize("budget", [50, 500])
def test_llm_budget(budget):
    done = run("--llm=%d" % budget, "-c", "for i in range(10000): print('line', i)")
    assert done.returncode == 0 and len(done.stdout) <= 4 * budget
    assert b"left out" in done.stdout and b"line 0\n" in done.stdout and b"line 9999\n" in done.stdout


def test_llm_has_no_control_characters():
    done = run("--llm", "-c", r"print('\x1b]0;owned\x07 \x1b[31mred\x1b[0m \x9b6n')")
    assert not any(byte < 32 and byte not in b"\n\t" for byte in done.stdout) and b"\xc2\x9b" not in done.stdout


# --------------------------------------------------------------------------------------------------
# What makes no sense

@pytest.mark.parametrize("args, says", [
    (["--rich", "-c", "1", "argument"], "option '--rich': the program runs as a cell, which takes no arguments, but 'argument'"),
    (["--llm", "script.py", "x"], "option '--llm': the program runs as a cell, which takes no arguments, but 'x'"),
    (["--llm", "--json", "-c", "1"], "options '--json' and '--llm'"),
    (["--llm=0", "-c", "1"], "option '--llm': a budget is 1 to 1000000 tokens, not '0'"),
    (["--llm=much", "-c", "1"], "option '--llm'"),
    (["--rich=1", "-c", "1"], "option '--rich' takes no value"),
    (["--rich"], "there is nothing to run"),
    (["-o", "out.ipynb", "-c", "1"], "option '-o' is for notebooks, and '-c' is none"),
    (["--allow-errors", "script.py"], "option '--allow-errors' is for notebooks, and 'script.py' is none"),
    (["--interrupt-on-timeout", "script.py"], "option '--interrupt-on-timeout' is for notebooks, and 'script.py' is none"),
    (["--cell-timeout", "1s", "-"], "option '--cell-timeout' is for notebooks, and '-' is none"),
    (["--param", "a=1", "script.py"], "option '--param' is for notebooks"),
    (["--rich", "a.ipynb"], "option '--rich' is for programs"),
    (["--warm", "a.ipynb"], "option '--warm' is for programs"),
    (["--param", "1a=1", "a.ipynb"], "option '--param': expected NAME=VALUE, got '1a=1'"),
    (["--param", "a", "a.ipynb"], "option '--param': expected NAME=VALUE, got 'a'"),
    (["--cell-timeout", "soon", "a.ipynb"], "option '--cell-timeout'"),
    (["a.ipynb", "x"], "a notebook takes no arguments, but 'x'"),
    (["a.ipynb", "--json", "x", "--json"], "a notebook takes no arguments, but 'x'"),
    (["a.ipynb", "--rich"], "option '--rich' is for programs"), # a notebook's options may stand behind its name
    (["--json", "a.ipynb", "--llm"], "options '--json' and '--llm'"),
])
def test_refused(args, says):
    refused("run", "--image", IMAGE, *args, says=says)


def test_rich_is_for_python(tmp_path):
    script = tmp_path / "script.sh"
    script.write_text("echo 1\n")
    refused("run", "--image", IMAGE, "--rich", str(script), says="option '--rich' is for Python, and '%s' is something else" % script)


def test_rich_needs_an_image_with_ipython():
    line = refused("run", "--image", "minimal", "--rich", "-c", "1")
    assert "ipykernel" in line
