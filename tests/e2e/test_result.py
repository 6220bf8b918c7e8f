"""hutch run --json: one object with every key, whatever happens; and the files of /mnt/data in it."""
import base64
import json
import os
import socket
import stat

import pytest

import support
from support import IMAGE, check_result, hutch, paths, run, run_json


# --------------------------------------------------------------------------------------------------
# Verdicts

def test_ok():
    result = run_json("-c", "print('x')")
    assert (result["verdict"], result["exit_code"], result["signal"], result["message"]) == ("ok", 0, None, None)
    assert (result["stdout"], result["stderr"], result["error"]) == ("x\n", "", None)
    assert result["process"] == 0 and result["process_stderr"] == ""


def test_error_with_exit_code():
    result = run_json("-c", "raise SystemExit(3)")
    assert (result["verdict"], result["exit_code"], result["process"]) == ("error", 3, 3)
    assert result["error"] is None or result["error"]["name"] == "SystemExit"


def test_error_with_exception():
    result = run_json("-c", "def f():\n  return 1 / 0\nf()")
    assert (result["verdict"], result["exit_code"]) == ("error", 1)
    assert result["error"]["name"] == "ZeroDivisionError"
    assert result["error"]["value"] == "division by zero"
    assert "in f" in result["error"]["traceback"] and "Traceback" in result["error"]["traceback"]
    assert "ZeroDivisionError" in result["stderr"], "the script's own standard error is as always"


@pytest.mark.parametrize("code, name, value", [
    ("raise ValueError('with \\n newline')", "ValueError", "with \n newline"),
    ("class Own(Exception): pass\nraise Own(1, 2)", "Own", "(1, 2)"),
    ("x = ", "SyntaxError", None),
    ("import no_such_module", "ModuleNotFoundError", "No module named 'no_such_module'"),
    ("raise KeyboardInterrupt", "KeyboardInterrupt", ""),
    ("raise Exception('\\ud800')", "Exception", None),
    ("class Bad(Exception):\n  def __str__(self): raise RuntimeError\nraise Bad", "Bad", None)])
def test_error_kinds(code, name, value):
    result = run_json("-c", code)
    assert result["error"] is not None, result
    assert result["error"]["name"].rpartition(".")[2] == name
    if value is not None:
        assert result["error"]["value"] == value


def test_error_of_a_child_process_is_not_the_scripts():
    code = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', '1/0'])\nprint('fine')"
    result = run_json("-c", code)
    assert (result["verdict"], result["error"]) == ("ok", None)


def test_caught_exception_is_no_error():
    assert run_json("-c", "try: 1/0\nexcept ZeroDivisionError: pass")["error"] is None


def test_setup_failed(tmp_path):
    """A sandbox that cannot be made is a result, too."""
    result = run_json("--rootfs", str(tmp_path), "-c", "print(1)", image=None)
    assert result["verdict"] == "setup_failed" and result["process"] in (125, 127)
    assert result["exit_code"] in (None, 125, 127) and result["stdout"] == ""
    assert result["message"]


REFUSED = [
    (("--image", "no-such-image", "-c", "1"), 125, "no-such-image"),
    (("--policy", "no-such-policy", "-c", "1"), 125, "no-such-policy"),
    (("--memory", "1", "-c", "1"), 125, "--memory"),
    (("--data", "/nonexistent", "-c", "1"), 125, "/nonexistent"),
    (("--bogus", "-c", "1"), 125, "--bogus"),
    (("-v", "/nonexistent:/x", "-c", "1"), 125, "/nonexistent"),
    (("/nonexistent.py",), 127, "/nonexistent.py"),
    (("script.go",), 125, ".go"),
    ((), 125, "nothing to run"),
    (("--image", "\udcff\u202e", "-c", "1"), 125, "image"),
]
WAYS = ((), ("--rich",), ("--warm",))


@pytest.mark.parametrize("way, args, status, says", [(way, *row) for way in WAYS for row in REFUSED
                                                     if row[0] or way != ("--rich",)],  # whose program standard input is then
                         ids=str)
def test_one_object_when_hutch_fails(tmp_path, way, args, status, says):
    """Whoever reads standard output finds the same object there as ever."""
    (tmp_path / "script.go").write_text("package main")
    done = hutch("run", "--json", "--image", IMAGE, *way, *args, cwd=tmp_path)
    result = json.loads(done.stdout)
    check_result(result)
    assert done.returncode == result["exit_code"] == status
    assert result["verdict"] == "setup_failed" and says in result["message"] and result["files"]["directory"] is None
    assert done.stderr.decode("utf-8", "replace") in ("", "hutch: %s\n" % result["message"].replace("\u202e", "\\u202e"))


def test_one_object_wherever_the_option_stands(tmp_path):
    for args in (("--bogus", "--json", "x.py"), ("--image", "no-such-image", "--json", "-c", "1"), ("--bogus=1", "--rich", "--json")):
        assert json.loads(hutch("run", *args).stdout)["verdict"] == "setup_failed"
    assert hutch("run", "--bogus", "--", "--json").stdout == b""


def test_bytes_that_are_no_utf8():
    result = run_json("-c", "import sys; sys.stdout.buffer.write(b'a\\xff\\xfeb\\0c\\xc3\\xa4\\n')")
    assert result["stdout"] == "a\ufffd\ufffdb\0c\u00e4\n"


def test_output_is_one_line_of_json():
    done = run("--json", "-c", "print('two\\nlines')")
    assert done.stdout.count(b"\n") == 1 and done.stdout.endswith(b"}\n")


def test_usage_and_timings():
    result = run_json("-c", "x = sum(i * i for i in range(2000000))")
    assert result["usage"]["cpu_user_ms"] > 0
    assert result["timings_ms"]["total"] >= result["timings_ms"]["run"] > 0
    assert result["timings_ms"]["total"] >= result["timings_ms"]["prepared"] > 0
    assert result["timings_ms"]["queued"] == 0 or support.WARM
    assert result["usage"]["pids_peak"] is None or result["usage"]["pids_peak"] >= 1


def test_layers_of_default_policy():
    layers = run_json("-c", "pass")["layers"]
    for name in ("user_namespace", "mount_namespace", "pid_namespace", "net_namespace", "ipc_namespace", "uts_namespace",
                 "cgroup_namespace", "readonly_root", "no_capabilities", "no_new_privs", "seccomp"):
        assert layers[name]["asked"] == "require" and layers[name]["active"], name
    assert layers["landlock"]["asked"] == "try"


def test_landlock_is_used_where_it_is():
    support.need("landlock")
    layer = run_json("-c", "pass")["layers"]["landlock"]
    assert layer["active"], layer


def test_layers_are_what_the_kernel_says():
    """The report is not only a claim: the same seen from inside."""
    code = ("import os, json\nf = dict(l.split(':', 1) for l in open('/proc/self/status') if ':' in l)\n"
            "print(json.dumps({'seccomp': f['Seccomp'].strip(), 'nnp': f['NoNewPrivs'].strip(), 'caps': f['CapBnd'].strip(),\n"
            "  'ns': {n: os.readlink('/proc/self/ns/' + n) for n in os.listdir('/proc/self/ns')}}))")
    seen = json.loads(run_json("-c", code)["stdout"])
    assert (seen["seccomp"], seen["nnp"], int(seen["caps"], 16)) == ("2", "1", 0)
    for name in ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup"):
        assert seen["ns"][name] != os.readlink("/proc/self/ns/" + name), name


# --------------------------------------------------------------------------------------------------
# Files

def test_files_added_modified_deleted(data):
    for name in ("kept.txt", "changed.txt", "removed.txt"):
        (data / name).write_text("before")
    os.utime(data / "changed.txt", (1, 1))
    code = ("import os\nopen('changed.txt', 'w').write('after it all')\nos.remove('removed.txt')\nos.makedirs('a/b')\n"
            "open('a/b/new.csv', 'w').write('x,y\\n')\nopen('top.png', 'wb').write(b'\\x89PNG\\r\\n\\x1a\\n' + b'x' * 100)")
    files = run_json("--data", str(data), "-c", code)["files"]
    assert files["directory"] == str(data)
    assert paths(files["added"]) == ["a/b/new.csv", "top.png"]
    assert files["modified"] == [{"path": "changed.txt", "size": 12, "mime": "text/plain"}]
    assert files["deleted"] == [{"path": "removed.txt"}]
    assert not files["truncated"]
    by_path = {entry["path"]: entry for entry in files["added"]}
    assert by_path["a/b/new.csv"]["size"] == 4 and by_path["a/b/new.csv"]["mime"] == "text/csv"
    assert by_path["top.png"]["size"] == 108 and by_path["top.png"]["mime"] == "image/png"


def test_files_same_size_same_time(data):
    """A change that keeps size and time stamp is a change: ctime tells."""
    (data / "x").write_text("aaaa")
    os.utime(data / "x", (1000, 1000))
    code = "import os\nopen('x', 'r+').write('bbbb')\nos.utime('x', (1000, 1000))"
    assert paths(run_json("--data", str(data), "-c", code)["files"]["modified"]) == ["x"]


def test_files_replaced_by_another_kind(data):
    (data / "x").write_text("file")
    files = run_json("--data", str(data), "-c", "import os\nos.remove('x')\nos.symlink('y', 'x')")["files"]
    assert "x" in paths(files["modified"]) + paths(files["added"])


def test_files_untouched(data):
    (data / "x").write_text("file")
    files = run_json("--data", str(data), "-c", "print(open('x').read())")["files"]
    assert (files["added"], files["modified"], files["deleted"]) == ([], [], [])


def test_files_fresh_directory():
    result = run_json("-c", "open('x.txt', 'w').write('text')")
    directory = result["files"]["directory"]
    assert paths(result["files"]["added"]) == ["x.txt"]
    with open(os.path.join(directory, "x.txt"), encoding="ascii") as file:
        assert file.read() == "text"
    support.remove_tree(directory)


@pytest.mark.parametrize("mode", [0o555, 0o300, 0])
def test_files_fresh_directory_that_the_script_locked(mode):
    """The permissions of the directory itself are the script's to change, and no reason to lose its files."""
    result = run_json("-c", "import os\nopen('x.txt', 'w').write('text')\nprint('said')\nos.chmod('.', %d)" % mode)
    assert (result["verdict"], result["process"], result["stdout"]) == ("ok", 0, "said\n")
    directory = result["files"]["directory"]
    assert paths(result["files"]["added"]) == ["x.txt"]
    with open(os.path.join(directory, "x.txt"), encoding="ascii") as file:
        assert file.read() == "text"
    support.remove_tree(directory)


def test_files_fresh_directory_without_files_is_gone():
    directory = run_json("-c", "pass")["files"]["directory"]
    assert directory is None or not os.path.exists(directory)


def test_files_collected_after_timeout(data):
    result = run_json("--data", str(data), "--timeout", "5s", "-c", "open('early', 'w').write('x')\nimport time; time.sleep(60)")
    assert result["verdict"] == "timeout" and paths(result["files"]["added"]) == ["early"]


def test_files_with_any_byte_in_the_name(data):
    names = [b"new\nline", b"\xff\xfe", b"quote\"", b"back\\slash", b"\x01", b" ", b"-rf", b"\x1b[31m", "ä\u202e".encode(),
             b"l" * 255]
    code = "import os\nfor n in %r: open(n, 'w').write('x')" % names
    result = run_json("--data", str(data), "-c", code)
    added = result["files"]["added"]
    assert len(added) == len(names)
    seen = sorted(base64.b64decode(entry["path_base64"]) if "path_base64" in entry else entry["path"].encode() for entry in added)
    assert seen == sorted(names)
    assert set(os.listdir(os.fsencode(data))) == set(names)


def test_files_that_are_no_files(data):
    code = ("import os, socket\nos.mkfifo('fifo')\nsocket.socket(socket.AF_UNIX).bind('socket')\nos.symlink('/etc/passwd', 'link')\n"
            "os.symlink('/', 'root')\nos.mkdir('empty')\nopen('file', 'w').close()")
    entries = {entry["path"]: entry for entry in run_json("--data", str(data), "-c", code)["files"]["added"]}
    assert entries["fifo"].get("type") == "fifo"
    assert entries["socket"].get("type") == "socket"
    assert entries["link"].get("type") == "symlink" and entries["link"]["size"] == len("/etc/passwd")
    assert "type" not in entries["file"]
    assert not [path for path in entries if path.startswith("root/")], "a link was followed"


def test_fifo_that_the_caller_left(data):
    """A FIFO and a socket that were there before do not block either."""
    os.mkfifo(data / "fifo")
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(data / "socket"))
    result = run_json("--data", str(data), "-c", "print(1)")
    server.close()
    assert result["verdict"] == "ok" and result["files"]["added"] == []


def test_set_id_bits_do_not_stay(data):
    """chmod is refused inside; were it not, the bits would be taken off."""
    run_json("--data", str(data), "-c", "import os\nopen('x', 'w').close()\ntry: os.chmod('x', 0o6755)\nexcept OSError: pass")
    assert not stat.S_IMODE((data / "x").stat().st_mode) & 0o6000


def test_hundred_thousand_files(tmp_path, data):
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"schema": 1, "extends": "default", "limits": {"data_files": 1000000, "wall": "2m"}}))
    # Mostly hard links, which are names like all others and quicker to make than files.
    code = ("import os\nfor d in range(100):\n  os.mkdir('d%d' % d)\n  for f in range(1000):\n"
            "    if f % 20: os.link('d%d/f%d' % (d, f - f % 20), 'd%d/f%d' % (d, f))\n"
            "    else: os.close(os.open('d%d/f%d' % (d, f), os.O_CREAT | os.O_WRONLY))")
    result = run_json("--policy", str(policy), "--data", str(data), "-c", code, timeout=150)
    assert result["verdict"] == "ok", (result["verdict"], result["message"])
    files = result["files"]
    assert len(files["added"]) == 100000 or files["truncated"]
    assert len(files["added"]) >= 1000
    assert files["added"][0]["path"].startswith("d")


def test_deep_tree(data):
    code = "import os\nfor i in range(600):\n  os.mkdir('d'); os.chdir('d')\nopen('bottom', 'w').close()"
    result = run_json("--data", str(data), "-c", code)
    assert result["verdict"] == "ok"
    # Not below PATH_MAX here, so it is listed.
    assert paths(result["files"]["added"])[-1].endswith("/bottom")


def test_unreadable_directories(data):
    code = "import os\nos.makedirs('a/b')\nopen('a/b/c', 'w').close()\nos.chmod('a/b', 0)\nos.chmod('a', 0)"
    result = run_json("--data", str(data), "-c", code)
    assert result["verdict"] == "ok"
    assert "a/b/c" in paths(result["files"]["added"]) or result["files"]["truncated"]


def test_result_of_many_warnings_is_valid():
    result = run_json("-c", "import warnings\nfor i in range(100): warnings.warn('w%d \\x1b[0m \\u2028' % i)")
    assert result["verdict"] == "ok" and result["stderr"].count("UserWarning") == 100
