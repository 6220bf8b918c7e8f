"""hutch run, from outside: flags, exit statuses, streams."""
import os
import pwd
import shlex
import signal
import socket
import subprocess
import sys
import time

import pytest

import support
from support import HUTCH, IMAGE, command, hutch, refused, run, run_json, sentence


# --------------------------------------------------------------------------------------------------
# Where the code comes from

def test_code_option():
    done = run("-c", "print('hello')")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"hello\n", b"")


def test_script_file(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("print('from a file')\n")
    assert run(str(script)).stdout == b"from a file\n"


def test_script_by_relative_name(tmp_path):
    (tmp_path / "script.py").write_text("print(__name__)\n")
    assert run("script.py", cwd=tmp_path).stdout == b"__main__\n"


def test_script_from_stdin():
    assert run("-", stdin=b"import sys\nprint('piped', sys.argv[1:])\n").stdout == b"piped []\n"


def test_script_from_stdin_with_arguments():
    assert run("-", "a", "b", stdin=b"import sys\nprint(sys.argv[1:])\n").stdout == b"['a', 'b']\n"


def test_arguments_of_file(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import sys\nprint(sys.argv[1:])\n")
    # Everything after FILE is the script's, options of hutch's own included.
    done = run(str(script), "one", "--memory", "-v", "", "two words", "ä")
    assert done.stdout.decode() == "['one', '--memory', '-v', '', 'two words', 'ä']\n"


def test_arguments_of_code():
    assert run("-c", "import sys; print(sys.argv[1:])", "x", "--json").stdout == b"['x', '--json']\n"


def test_script_with_any_bytes(tmp_path):
    """A script in another encoding is the interpreter's business, not hutch's."""
    script = tmp_path / "latin.py"
    script.write_bytes(b"# -*- coding: latin-1 -*-\nprint(ascii('\xe9'))\n")
    assert run(str(script)).stdout == b"'\\xe9'\n"


def test_large_script(tmp_path):
    script = tmp_path / "large.py"
    script.write_text("x = '''%s'''\nprint(len(x))\n" % ("y" * (4 << 20)))
    assert run(str(script)).stdout == b"%d\n" % (4 << 20)


def test_empty_script(tmp_path):
    script = tmp_path / "empty.py"
    script.write_text("")
    done = run(str(script))
    assert (done.returncode, done.stdout) == (0, b"")


def test_script_is_readable_although_private(tmp_path):
    """The caller can read it, so the sandbox gets it, whatever user it is in there."""
    script = tmp_path / "private.py"
    script.write_text("print('read')\n")
    script.chmod(0o600)
    assert run(str(script)).stdout == b"read\n"


def test_script_through_fifo(tmp_path):
    """As shells make it for <(command)."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    process = subprocess.Popen(command(str(fifo)), stdout=subprocess.PIPE)
    with open(fifo, "w", encoding="ascii") as writer:
        writer.write("print('through a fifo')\n")
    assert process.communicate(timeout=30)[0] == b"through a fifo\n"


# --------------------------------------------------------------------------------------------------
# Exit status

@pytest.mark.parametrize("code, status", [
    ("pass", 0), ("raise SystemExit(3)", 3), ("import sys; sys.exit(255)", 255), ("import os; os._exit(77)", 77),
    ("1/0", 1), ("def", 1), ("import sys; sys.exit('words')", 1)])
def test_exit_status(code, status):
    assert run("-c", code).returncode == status


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGABRT, signal.SIGUSR1])
def test_exit_status_of_signal(number):
    done = run("-c", "import os, signal; signal.signal(%d, signal.SIG_DFL) if %d not in (9,) else None; "
                     "os.kill(os.getpid(), %d)" % (number, number, number))
    assert done.returncode == 128 + number


def test_exit_status_of_timeout():
    assert run("--timeout", "300ms", "-c", "import time; time.sleep(30)").returncode == 124


def test_exit_status_is_not_confused_by_children():
    """A child that dies by a signal is not the script."""
    code = "import os, signal\nif os.fork() == 0: os.kill(os.getpid(), signal.SIGKILL)\nos.wait()\nraise SystemExit(5)"
    assert run("-c", code).returncode == 5


# --------------------------------------------------------------------------------------------------
# Streams

def test_stderr_stays_apart():
    done = run("-c", "import sys; print('out'); print('err', file=sys.stderr)")
    assert (done.stdout, done.stderr) == (b"out\n", b"err\n")


def test_stdin_reaches_the_script():
    done = run("-c", "import sys; print(sys.stdin.read().upper())", stdin=b"some text\n")
    assert done.stdout == b"SOME TEXT\n\n"


def test_binary_streams():
    every = bytes(range(256)) * 1000
    done = run("-c", "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())", stdin=every)
    assert done.stdout == every


def test_large_input_that_nobody_reads():
    """hutch must not wait for a script to take its input."""
    assert run("-c", "print('done')", stdin=b"x" * (8 << 20)).stdout == b"done\n"


def test_large_output():
    done = run("-c", "import sys; sys.stdout.write('x' * 1000000); print(); sys.stderr.write('y' * 500000)")
    assert len(done.stdout) == 1000001 and len(done.stderr) == 500000


def test_output_arrives_before_the_end():
    """The script says a word and waits for an answer on its input: nothing but streaming gets it to end."""
    code = "import sys\nprint('ready', flush=True)\nline = input()\nprint('got', line, flush=True)\nprint(input())"
    process = subprocess.Popen(command("-c", code), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline() == b"ready\n"
        process.stdin.write(b"first\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"got first\n"
        assert process.communicate(b"second\n", timeout=30)[0] == b"second\n"
    finally:
        process.kill()
        process.wait()


def test_stderr_arrives_before_the_end():
    code = "import sys\nprint('ready', file=sys.stderr, flush=True)\ninput()"
    process = subprocess.Popen(command("-c", code), stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert process.stderr.readline() == b"ready\n"
        process.communicate(b"\n", timeout=30)
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait()


def test_no_newline_is_streamed_too():
    code = "import sys\nsys.stdout.write('prompt> '); sys.stdout.flush()\ninput()"
    process = subprocess.Popen(command("-c", code), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert os.read(process.stdout.fileno(), 100) == b"prompt> "
        process.communicate(b"\n", timeout=30)
    finally:
        process.kill()
        process.wait()


def test_stdin_closed():
    done = subprocess.run(command("-c", "import sys; print(repr(sys.stdin.read()))"), stdin=subprocess.DEVNULL,
                          capture_output=True, timeout=30, check=False)
    assert done.stdout == b"''\n"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_started_with_closed_streams(closed, data):
    """A caller without some of the three: no descriptor of ours may take their numbers."""
    words = shlex.join(command("--data", str(data), "-c", "open('made', 'w').write('x')"))
    done = subprocess.run(["sh", "-c", "exec %s %s" % (words, closed)], timeout=30, check=False)
    assert done.returncode == 0
    assert (data / "made").read_text() == "x"


def test_reader_that_goes_away():
    """hutch run | head: when nobody reads any more, the run ends instead of writing for ever."""
    process = subprocess.Popen(command("-c", "while True: print('y')"), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    process.stdout.read(100)
    process.stdout.close()
    assert process.wait(timeout=45) != 0


def test_background_child_does_not_hold_the_streams():
    """The script's end is the end, although a child of it still holds its standard output."""
    done = run("--timeout", "20s", "-c", "import os, time\nif os.fork() == 0: time.sleep(60)\nprint('end')", timeout=15)
    assert (done.returncode, done.stdout) == (0, b"end\n")


# --------------------------------------------------------------------------------------------------
# What the script finds

def test_identity_inside():
    done = run("-c", "import os, pwd; print(os.getuid(), os.getgid(), pwd.getpwuid(os.getuid()).pw_name, os.environ['HOME'], "
                     "os.getcwd(), os.uname().nodename)")
    assert done.stdout.split()[:5] == [b"1000", b"1000", b"user", b"/tmp", b"/mnt/data"]


def test_environment_is_scrubbed():
    done = run("-c", "import os; print('SECRET_OF_CALLER' in os.environ, sorted(os.environ))",
               env={"SECRET_OF_CALLER": "1", "PYTHONPATH": "/nonexistent", "LD_PRELOAD": "", "PYTHONINSPECT": ""})
    assert done.stdout.startswith(b"False"), done.stdout
    assert b"PYTHONINSPECT" not in done.stdout and b"LD_PRELOAD" not in done.stdout


def test_environment_option():
    done = run("-e", "A=1", "--env", "B=two words=x", "-e", "EMPTY=", "-c",
               "import os; print([os.environ.get(name) for name in ('A', 'B', 'EMPTY', 'C')])")
    assert done.stdout == b"['1', 'two words=x', '', None]\n"


def test_environment_option_later_wins():
    assert run("-e", "A=1", "-e", "A=2", "-c", "import os; print(os.environ['A'])").stdout == b"2\n"


def test_workdir():
    assert run("-w", "/tmp", "-c", "import os; print(os.getcwd())").stdout == b"/tmp\n"
    assert run("--workdir", "/usr/lib", "-c", "import os; print(os.getcwd())").stdout == b"/usr/lib\n"


def test_tmp_is_private_and_writable():
    code = "import os; print(os.listdir('/tmp')); open('/tmp/x', 'w').write('x')"
    for _ in range(2):
        assert run("-c", code).stdout == b"[]\n"


def test_shm_works():
    assert run("-c", "from multiprocessing import shared_memory as s; m = s.SharedMemory(create=True, size=100); "
                     "print(len(m.buf) >= 100); m.close(); m.unlink()").stdout == b"True\n"


def test_multiprocessing_works():
    code = ("from multiprocessing import Pool\ndef f(x): return x * x\n"
            "if __name__ == '__main__':\n  with Pool(2) as p: print(p.map(f, range(5)))\n")
    assert run("-", stdin=code.encode()).stdout == b"[0, 1, 4, 9, 16]\n"


def test_subprocess_works():
    assert run("-c", "import subprocess; print(subprocess.run(['echo', 'x'], capture_output=True).stdout)").stdout == b"b'x\\n'\n"


def test_threads_work():
    code = "import threading\nt = [threading.Thread(target=print, args=(1,)) for _ in range(8)]\n[x.start() for x in t]\n[x.join() for x in t]"
    assert run("-c", code).stdout.count(b"1") == 8


def test_loopback_works_inside():
    """Test servers and multiprocessing managers talk to themselves."""
    code = ("import socket\ns = socket.create_server(('127.0.0.1', 0))\nc = socket.create_connection(s.getsockname())\n"
            "p, _ = s.accept()\nc.send(b'hi')\nprint(p.recv(2))")
    assert run("-c", code).stdout == b"b'hi'\n"


def test_zeromq_works():
    code = """
import zmq
context = zmq.Context()
one, other = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
one.bind("tcp://127.0.0.1:5555")
other.connect("tcp://127.0.0.1:5555")
one.send(b"hello")
print(other.recv())
"""
    done = run("-c", code, image="python")
    assert (done.returncode, done.stdout) == (0, b"b'hello'\n"), done.stderr


def test_script_gives_a_terminal(tmp_path):
    path = tmp_path / "terminal.sh"
    path.write_text("script -qec 'test -t 0 && echo a terminal' /dev/null </dev/null\n")
    done = run(path)
    assert (done.returncode, done.stdout.split()) == (0, [b"a", b"terminal"]), done.stderr


def test_random_differs_between_runs():
    outputs = {run("-c", "import os, random; print(os.urandom(8), random.random())").stdout for _ in range(3)}
    assert len(outputs) == 3


# --------------------------------------------------------------------------------------------------
# Mounts

def test_volume_is_writable(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "in").write_text("input")
    done = run("-v", "%s:/mnt/extra" % folder, "-c",
               "print(open('/mnt/extra/in').read()); open('/mnt/extra/out', 'w').write('output')")
    assert (done.returncode, done.stdout) == (0, b"input\n"), done.stderr
    assert (folder / "out").read_text() == "output"
    # Root's sandboxes are another user, and still the file belongs to whom the directory belongs to.
    assert (folder / "out").stat().st_uid == folder.stat().st_uid


def test_volume_read_only(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "in").write_text("input")
    done = run("--volume", "%s:/mnt/extra:ro" % folder, "-c",
               "print(open('/mnt/extra/in').read())\ntry: open('/mnt/extra/out', 'w')\nexcept OSError as e: print(e.errno)")
    assert done.stdout.split() in ([b"input", b"30"], [b"input", b"13"]), (done.stdout, done.stderr)
    assert not (folder / "out").exists()


def test_volume_of_a_file(tmp_path):
    file = tmp_path / "file"
    file.write_text("a file")
    assert run("-v", "%s:/mnt/file:ro" % file, "-c", "print(open('/mnt/file').read())").stdout == b"a file\n"


def test_volume_set_id_and_devices_mean_nothing(tmp_path):
    done = run("-v", "%s:/mnt/extra" % tmp_path, "-c",
               "print([l.split()[5] for l in open('/proc/self/mountinfo') if ' /mnt/extra ' in l])")
    assert b"nosuid" in done.stdout and b"nodev" in done.stdout


def test_tmpfs_option():
    done = run("--tmpfs", "/mnt/scratch:size=1m", "-c",
               "import os\nprint(os.listdir('/mnt/scratch'))\ntry: open('/mnt/scratch/x', 'wb').write(b'x' * (4 << 20))\n"
               "except OSError as e: print(e.errno)")
    assert done.stdout.split() == [b"[]", b"28"], (done.stdout, done.stderr)


def test_tmpfs_without_size():
    assert run("--tmpfs", "/mnt/scratch", "-c", "print(open('/mnt/scratch/x', 'w').write('abc'))").stdout == b"3\n"


# --------------------------------------------------------------------------------------------------
# /mnt/data

def test_data_directory(data):
    (data / "input.csv").write_text("a,b\n1,2\n")
    done = run("--data", str(data), "-c", "open('out.txt', 'w').write(open('/mnt/data/input.csv').read()[:3])")
    assert done.returncode == 0, done.stderr
    assert (data / "out.txt").read_text() == "a,b"
    info = (data / "out.txt").stat()
    assert info.st_uid == data.stat().st_uid and info.st_mode & 0o700 == 0o600


def test_data_directory_by_relative_name(tmp_path):
    (tmp_path / "d").mkdir()
    assert run("--data", "d", "-c", "open('x', 'w')", cwd=tmp_path).returncode == 0
    assert (tmp_path / "d" / "x").exists()


def test_data_directory_of_another_owner(tmp_path):
    """As root: what the sandbox writes belongs to the directory's owner."""
    if not support.is_root():
        pytest.skip("root's test")
    folder = tmp_path / "d"
    folder.mkdir()
    os.chown(folder, 12345, 12345)
    done = run("--data", str(folder), "-c", "import os; os.mkdir('sub'); open('sub/x', 'w')")
    assert done.returncode == 0, done.stderr
    for name in ("sub", "sub/x"):
        info = os.stat(folder / name)
        assert (info.st_uid, info.st_gid) == (12345, 12345), name


def test_fresh_data_directory_is_printed_when_written_to():
    done = run("-c", "open('result.txt', 'w').write('text')")
    assert done.returncode == 0 and done.stdout == b""
    outputs = os.path.join(support.hutch_home(), "outputs") + "/"
    folders = [word for word in sentence(done).split() if word.startswith(outputs)]
    assert len(folders) == 1, done.stderr
    folder = folders[0]
    with open(os.path.join(folder, "result.txt"), encoding="ascii") as file:
        assert file.read() == "text"
    support.remove_tree(folder)


def test_fresh_data_directory_carries_nothing_over():
    """Whatever a run did to the directory itself, the next run's is new: permissions, attributes, time stamps."""
    code = ("import os\nos.mkdir('d'); os.rmdir('d')\nos.chmod('.', 0o711)\nos.utime('.', (1, 1))\n"
            "try: os.setxattr('.', 'user.left', b'x')\nexcept OSError: pass")
    look = ("import os, json\ns = os.stat('/mnt/data')\ntry: x = os.listxattr('/mnt/data')\nexcept OSError: x = []\n"
            "print(json.dumps([oct(s.st_mode), s.st_mtime > 1000, [n for n in x if n.startswith('user.')], os.listdir('/mnt/data')]))")
    before = run_json("-c", look)["stdout"]
    assert run_json("-c", code)["verdict"] == "ok"
    assert run_json("-c", look)["stdout"] == before


def test_fresh_data_directory_is_gone_when_not_written_to():
    outputs = os.path.join(support.hutch_home(), "outputs")
    before = set(os.listdir(outputs)) if os.path.isdir(outputs) else set()
    done = run("-c", "print(1)")
    assert (done.stdout, done.stderr) == (b"1\n", b"")
    after = set(os.listdir(outputs)) if os.path.isdir(outputs) else set()
    assert after == before


def test_quiet_prints_nothing_of_its_own():
    done = run("-q", "-c", "open('result.txt', 'w').write('text'); print('x')")
    assert (done.stdout, done.stderr) == (b"x\n", b"")


def test_verbose_says_what_is_done():
    done = run("--verbose", "-c", "print('x')")
    assert done.stdout == b"x\n" and done.stderr != b""


# --------------------------------------------------------------------------------------------------
# Root trees

def test_rootfs_host():
    done = run("--rootfs", "host", "-c", "import sys; print(sys.version_info.major)", image=None)
    assert (done.returncode, done.stdout) == (0, b"3\n"), done.stderr


def test_rootfs_host_shows_nothing_private():
    code = ("import os\nfor p in ('/root', '/home', '/etc/shadow', '/etc/ssh', '/var', '/boot', '/work', '/srv', '/sys/class', '/sys/kernel'):\n"
            "  try: x = os.listdir(p) if os.path.isdir(p) else open(p).read()\n  except OSError: continue\n"
            "  if x: print(p, x)")
    done = run("--rootfs", "host", "-c", code, image=None)
    assert (done.returncode, done.stdout) == (0, b""), done.stderr


def test_rootfs_directory():
    """The tree of an image, by its path in the store."""
    images = os.path.join(support.hutch_home(), "images")
    for parent, names, _ in os.walk(images):
        if "usr" in names and "etc" in names:
            done = run("--rootfs", parent, "-c", "print('tree')", image=None)
            assert (done.returncode, done.stdout) == (0, b"tree\n"), done.stderr
            return
    pytest.fail("no tree below " + images)


def test_images_share_nothing():
    """Two runs of one image at once see the same read-only tree and not each other."""
    code = "import os; open('/tmp/mine', 'w'); print(sorted(os.listdir('/tmp')), input())"
    first = subprocess.Popen(command("-c", code), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    second = subprocess.Popen(command("-c", code), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    for process in (first, second):
        assert process.communicate(b"x\n", timeout=30)[0] == b"['mine'] x\n"


# --------------------------------------------------------------------------------------------------
# Network

def test_network_none_is_the_default():
    code = "import socket; print(sorted(n for _, n in socket.if_nameindex()))"
    assert run("-c", code).stdout == b"['lo']\n"
    assert run("--network", "none", "-c", code).stdout == b"['lo']\n"


def test_network_host_is_reported():
    layer = run_json("--network", "host", "-c", "pass")["layers"]["net_namespace"]
    assert layer["asked"] == "off" and not layer["active"]


def test_network_host_is_refused_by_strict_policy():
    refused("run", "--image", IMAGE, "--policy", "strict", "--network", "host", "-c", "pass", says="network")


def test_network_host_with_trusted_policy():
    done = run("--policy", "trusted", "--network", "host", "-c", "import os; print(os.readlink('/proc/self/ns/net'))")
    assert done.stdout.decode().strip() == os.readlink("/proc/self/ns/net"), done.stderr


# --------------------------------------------------------------------------------------------------
# What is wrong is said in one sentence, and nothing runs

@pytest.mark.parametrize("args, says", [
    ((), ()),
    (("-c",), "-c"),
    (("--image",), "--image"),
    (("--no-such-option", "-c", "pass"), "--no-such-option"),
    (("-Z", "-c", "pass"), "-Z"),
    (("--memory", "lots", "-c", "pass"), ("--memory", "lots")),
    (("--memory", "-1", "-c", "pass"), "--memory"),
    (("--memory", "", "-c", "pass"), "--memory"),
    (("--memory", "1", "-c", "pass"), "option '--memory': '1' is too small: expected a size 4M..1024T (a number alone is in bytes), or 0 for no limit"),
    (("--cpus", "0.001", "-c", "pass"), "option '--cpus': '0.001' is too small: expected a number of CPUs 0.01..1024, or 0 for no limit"),
    (("--timeout", "999d", "-c", "pass"), "'999d' is too large: expected a duration 1ms..365d (a number alone is in seconds), or 0 for no limit"),
    (("--memory", "99999999999999999999g", "-c", "pass"), "--memory"),
    (("--cpus", "many", "-c", "pass"), ("--cpus", "many")),
    (("--cpus", "-0.5", "-c", "pass"), "--cpus"),
    (("--pids-limit", "x", "-c", "pass"), "--pids-limit"),
    (("--pids-limit", "1.5", "-c", "pass"), "--pids-limit"),
    (("--timeout", "soon", "-c", "pass"), ("--timeout", "soon")),
    (("--timeout", "10 s", "-c", "pass"), "--timeout"),
    (("--network", "bridge", "-c", "pass"), ("--network", "bridge")),
    (("-e", "NOVALUE", "-c", "pass"), "NOVALUE"),
    (("-e", "=x", "-c", "pass"), "environment"),
    (("-v", "relative", "-c", "pass"), "relative"),
    (("-v", "/nonexistent-hutch:/mnt/x", "-c", "pass"), "/nonexistent-hutch"),
    (("-v", "/tmp:relative", "-c", "pass"), "relative"),
    (("-v", "/tmp:/mnt/../x", "-c", "pass"), "/mnt/../x"),
    (("-v", "/tmp:/mnt/x:rx", "-c", "pass"), "rx"),
    (("--tmpfs", "relative", "-c", "pass"), "relative"),
    (("--tmpfs", "/mnt/x:size=lots", "-c", "pass"), "lots"),
    (("-w", "relative", "-c", "pass"), "relative"),
    (("-w", "/no/such/directory", "-c", "pass"), "/no/such/directory"),
    (("-v", "/tmp", "-c", "pass"), "'-v /tmp' makes nothing visible: -v takes SRC:DST"),
    (("--data", "/nonexistent-hutch", "-c", "pass"), "/nonexistent-hutch"),
    (("--data", "/dev/null", "-c", "pass"), "/dev/null"),
    (("--policy", "no-such-policy", "-c", "pass"), "no-such-policy"),
    (("--policy", "/nonexistent-hutch.json", "-c", "pass"), "/nonexistent-hutch.json"),
], ids=lambda value: " ".join(value)[:40] if isinstance(value, tuple) else "")
def test_refused(args, says):
    refused("run", "--image", IMAGE, *args, says=says)


@pytest.mark.parametrize("way", [(), ("--warm",)], ids=" ".join)
def test_module_that_another_image_has(way):
    """Behind the traceback, where it is so, and only there: the name is the program's word."""
    told = b"\nhutch: image 'minimal' has no module 'numpy', and image 'python' has it: --image python\n"
    for code in ("import numpy", "import numpy.linalg"):
        done = run(*way, "-c", code, image="minimal")
        assert done.returncode == 1 and b"ModuleNotFoundError: No module named 'numpy'" + told in done.stderr
    assert told not in run(*way, "-q", "-c", "import numpy", image="minimal").stderr
    other = b"\nhutch: image 'minimal' has no module 'no_such_module'; --with PACKAGE lays the package over it that has it\n"
    assert other in run(*way, "-c", "import no_such_module", image="minimal").stderr
    for code in ("import json.numpy", "raise ModuleNotFoundError(\"No module named '../python3/numpy'\")"):
        assert b"hutch:" not in run(*way, "-c", code, image="minimal").stderr
    assert b"hutch:" not in run(*way, "-c", "import numpy.no_such_module", image="python").stderr


@pytest.mark.parametrize("way", [(), ("--warm",)], ids=" ".join)
@pytest.mark.parametrize("name", ["helper.py", "helper/__init__.py"])
def test_module_that_lies_beside_the_program(way, name, tmp_path):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("NAME = 1\n")
    (tmp_path / "main.py").write_text("import helper.part, sys\n" if "/" in name else "import helper, sys\n")
    done = run(*way, str(tmp_path / "main.py"), image="minimal")
    told = "hutch: '%s/%s' lies beside the program, which is inside by itself: hutch run --project %s/ main.py shows the directory\n"
    assert done.returncode == 1 and done.stderr.decode().endswith(told % (tmp_path, name, tmp_path)), done.stderr
    assert b"hutch:" not in run(*way, "-q", str(tmp_path / "main.py"), image="minimal").stderr
    done = run("main.py", image="minimal", cwd=str(tmp_path))
    assert done.stderr.decode().endswith("inside by itself: hutch run --project . main.py shows the directory\n"), done.stderr
    (tmp_path / "main.py").write_text("import json.helper\n")
    assert b"hutch:" not in run(*way, str(tmp_path / "main.py"), image="minimal").stderr


def test_refused_missing_image():
    line = refused("run", "--image", "no-such-image", "-c", "pass", says="no-such-image")
    assert "rootfs" in line, "the sentence says how to get one: " + line


def test_refused_image_name_is_no_path():
    refused("run", "--image", "../../etc", "-c", "pass", says="../../etc")


def test_refused_unreadable_script(tmp_path):
    if support.is_root():
        pytest.skip("root reads everything")
    script = tmp_path / "script.py"
    script.write_text("pass")
    script.chmod(0)
    refused("run", "--image", IMAGE, str(script), code=126, says=(str(script), "ermission"))


@pytest.mark.parametrize("options", [(), ("--rich",), ("--warm",), ("--image", "no-such-image")], ids=" ".join)
def test_script_that_is_not_there(tmp_path, options):
    """127 and 126, as shells have them and as the manual says; 125 would be a failure of hutch's own."""
    for path in (tmp_path / "missing.py", "/dev/null/script.py"):
        refused("run", "--image", IMAGE, *options, str(path), code=127, says=str(path))
    # A directory is a project: the one that is asked for the engine's way, or an empty one.
    code, says = (125, "is for a program by itself") if options in (("--rich",), ("--warm",)) else (127, "has no program")
    refused("run", "--image", IMAGE, *options, str(tmp_path), code=code, says=says)


def test_cpu_time_is_told_from_memory():
    """124, the exit status of time that is over; 137 is what running out of memory looks like."""
    done = run("--cpu-time", "200ms", "-c", "while True: pass")
    assert done.returncode == 124 and "CPU time" in sentence(done)
    done = run("--cpu-time", "200ms", "-c", "import os\nif os.fork(): os.wait()\nwhile True: pass")
    assert done.returncode == 124 and "CPU time" in sentence(done)


def test_refused_rootfs_that_is_none(tmp_path):
    done = hutch("run", "--rootfs", str(tmp_path), "-c", "pass")
    assert done.returncode in (125, 127) and sentence(done)


def test_refused_image_and_rootfs_at_once():
    refused("run", "--image", IMAGE, "--rootfs", "host", "-c", "pass", says="--rootfs")


def test_refused_file_where_interpreter_is_missing(tmp_path):
    """A tree without Python: 127, as shells say it."""
    for name in ("usr/bin", "etc", "proc", "dev", "tmp", "run", "mnt/data"):
        os.makedirs(tmp_path / "tree" / name)
    done = hutch("run", "--rootfs", str(tmp_path / "tree"), "-c", "pass")
    assert done.returncode == 127, done.stderr
    assert "python3" in sentence(done)


# --------------------------------------------------------------------------------------------------
# Languages

@pytest.mark.parametrize("name", ["main.tsx", "main.go", "main.c", "main.rs", "table.csv"])
def test_ending_of_no_language(tmp_path, name):
    """It may be Python to the letter: what its name says is something else."""
    script = tmp_path / name
    script.write_text("print('this ran')")
    refused("run", "--image", IMAGE, str(script), says=(os.path.splitext(name)[1], ".py, .sh", "--language"))
    done = run("--language", "python", str(script))
    assert done.returncode == 0 and done.stdout == b"this ran\n"


def test_language_of_a_file(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("echo $((6 * 7)) $1")
    done = run("--language", "sh", str(script), "one")
    assert done.returncode == 0 and done.stdout == b"42 one\n", done.stderr


@pytest.mark.parametrize("language, code, output", [
    ("python", "import sys; print(sys.argv)", b"['-c', 'one']\n"),
    ("sh", "echo \"$1\"; exit 3", b"one\n"),
    ("perl", "print \"@ARGV\\n\"", b"one\n"),
])
def test_language_of_a_text(language, code, output):
    done = run("--language", language, "-c", code, "one")
    assert done.stdout == output, done.stderr
    assert done.returncode == (3 if "exit 3" in code else 0)


def test_language_that_is_not_there(tmp_path):
    """No such language; or a language whose interpreter the image has not, which is told with those that it has."""
    refused("run", "--image", IMAGE, "--language", "cobol", "-c", "1", says=("'cobol'", "python, sh"))
    refused("run", "--image", IMAGE, "--language", "sh", "-", says="'-' is Python")
    script = tmp_path / "script.js"
    script.write_text("1")
    done = run(str(script))
    line = sentence(done)
    assert done.returncode == 127 and "'node'" in line and "python, sh, bash, perl" in line, line


def test_unknown_command():
    done = hutch("walk")
    assert done.returncode == 125 and done.stdout == b""
    assert done.stderr.startswith(b"hutch: ") and b"'walk'" in done.stderr.split(b"\n")[0]


def test_help():
    for args in (("--help",), ("run", "--help"), ("rootfs", "--help"), ("doctor", "--help")):
        done = hutch(*args)
        assert done.returncode == 0 and b"hutch" in done.stdout and done.stderr == b"", args


def test_help_lists_every_option():
    text = hutch("run", "--help").stdout.decode()
    for option in ("--image", "--rootfs", "--policy", "--memory", "--cpus", "--pids-limit", "--timeout", "--network", "--env",
                   "--volume", "--tmpfs", "--workdir", "--data", "--json", "--quiet", "--verbose", "-c"):
        assert option in text, option


# --------------------------------------------------------------------------------------------------
# Signals to hutch itself

def await_no_descendants():
    deadline = time.monotonic() + 30
    while support.descendants(os.getpid()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert support.descendants(os.getpid()) == set()


def start_waiting(*options):
    """A run that says 'ready' and then waits; returns the process."""
    code = ("import signal, time, sys\nsignal.signal(signal.SIGTERM, lambda *_: (print('bye', flush=True), sys.exit(7)))\n"
            "signal.signal(signal.SIGINT, lambda *_: (print('int', flush=True), sys.exit(8)))\n"
            "print('ready', flush=True)\ntime.sleep(60)")
    process = subprocess.Popen(command(*options, "-c", code), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    return process


@pytest.mark.parametrize("number, word, status", [(signal.SIGTERM, b"bye\n", (7, 128 + 15)), (signal.SIGINT, b"int\n", (8, 128 + 2))])
def test_signal_is_passed_on(number, word, status):
    support.become_subreaper()
    process = start_waiting()
    process.send_signal(number)
    output, _ = process.communicate(timeout=20)
    assert process.returncode in status
    assert output == word
    await_no_descendants()
    assert support.live_runs() + support.dead_runs() == []


def test_signal_that_the_script_ignores():
    """SIGTERM to hutch ends the run in any case, after the grace."""
    code = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('ready', flush=True)\ntime.sleep(60)"
    process = subprocess.Popen(command("-c", code), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode in (128 + 9, 128 + 15)


def test_caller_dies():
    """When the shell that started hutch is gone, hutch goes on: it is an ordinary child. When hutch is killed,
    its sandbox is gone (the kill lane does this 200 times)."""
    support.become_subreaper()
    process = start_waiting()
    process.kill()
    process.wait()
    await_no_descendants()
    process.stdout.close()
    process.stderr.close()


# --------------------------------------------------------------------------------------------------
# Many at once

def test_many_in_parallel():
    count = 24
    code = "import os, time\nprint(os.getpid(), os.listdir('/tmp'), input())\nopen('/tmp/x', 'w')"
    processes = [subprocess.Popen(command("-c", code), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                 for _ in range(count)]
    for number, process in enumerate(processes):
        output, errors = process.communicate(b"%d\n" % number, timeout=60)
        assert process.returncode == 0, errors
        assert output.endswith(b"[] %d\n" % number), output
    assert support.live_runs() + support.dead_runs() == []


def test_home_in_a_fresh_place(tmp_path):
    """HUTCH_HOME is made when it is missing; --rootfs host needs nothing in it."""
    home = tmp_path / "a" / "b"
    done = run("--rootfs", "host", "-c", "print(1)", image=None, env={"HUTCH_HOME": str(home)})
    assert (done.returncode, done.stdout) == (0, b"1\n"), done.stderr


def test_xdg_data_home(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "HUTCH_HOME"}
    environment["XDG_DATA_HOME"] = str(tmp_path)
    done = subprocess.run([HUTCH, "run", "--rootfs", "host", "-c", "open('x', 'w')"], env=environment, capture_output=True,
                          timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    assert os.path.isdir(tmp_path / "hutch" / "outputs")


def test_home_is_private():
    """Results and state are nobody else's business."""
    run("-c", "pass")
    for name in ("runs", "outputs"):
        path = os.path.join(support.hutch_home(), name)
        if os.path.isdir(path):
            assert os.stat(path).st_mode & 0o077 == 0 or os.stat(path).st_mode & 0o022 == 0, path
            assert os.stat(path).st_uid == os.geteuid()


def fields_of(pid):
    """Of /proc/PID/status; none of a process that has ended meanwhile."""
    try:
        with open("/proc/%d/status" % pid, encoding="utf-8") as status:
            return dict(line.rstrip("\n").split(":\t", 1) for line in status if ":\t" in line)
    except (FileNotFoundError, ProcessLookupError):
        return {}


def test_root_is_not_root_outside(data):
    """Root's sandboxes are an unprivileged user of the host; an ordinary user's are the user, or a subordinate one."""
    process = subprocess.Popen(command("-c", "print('ready', flush=True); input()"), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline() == b"ready\n"
        support.become_subreaper()
        below = [fields_of(pid) for pid in support.descendants(process.pid)]
        pythons = [fields for fields in below if "python" in fields.get("Name", "")]
        assert pythons
        uids = support.host_uids()
        for fields in pythons:
            assert {int(uid) for uid in fields["Uid"].split()} <= set(uids)
            assert len(set(fields["Uid"].split())) == 1
        assert len(uids) == 1 or any(int(fields["Uid"].split()[0]) in uids[1:] for fields in pythons)  # beside a zygote
    finally:
        process.communicate(b"\n", timeout=20)


def test_streams_can_be_opened_by_name():
    """Also where the one who has made the pipes is another user of the host than the program, as when root calls."""
    code = "import sys\nopen('/dev/stdout', 'a').write('out ' + open('/dev/stdin').read())\nopen('/dev/stderr', 'a').write('err')"
    done = run("-c", code, stdin=b"in")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"out in", b"err"), done


def test_python_is_debians():
    assert sys.executable.startswith("/usr/"), "run the tests with Debian's Python"
    assert pwd.getpwuid(os.geteuid())


def test_json_and_quiet_and_verbose_together(data):
    result = run_json("-q", "--verbose", "--data", str(data), "-c", "print(1)")
    assert result["stdout"] == "1\n"


# --------------------------------------------------------------------------------------------------
# Odd callers

@pytest.mark.parametrize("prepare", [
    "trap '' CHLD", "trap '' PIPE", "trap '' TERM INT HUP", "ulimit -c unlimited", "umask 777", "umask 0"])
def test_state_of_the_caller(prepare, data):
    """What a shell leaves to its children: ignored signals, limits, a mask. None of it changes a run."""
    done = subprocess.run(["sh", "-c", prepare + '; exec "$@"', "sh"] + command("--data", str(data), "-c", "print('ran')"),
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=40, check=False)
    assert (done.returncode, done.stdout) == (0, b"ran\n"), done.stderr


def test_caller_that_may_write_nothing():
    """ulimit -f 0: hutch may find that it cannot do without, but it says so and is not killed by SIGXFSZ."""
    done = subprocess.run(["sh", "-c", 'ulimit -f 0; exec "$@"', "sh"] + command("-c", "print('ran')"), stdin=subprocess.DEVNULL,
                          capture_output=True, timeout=40, check=False)
    assert (done.returncode, done.stdout) == (0, b"ran\n") or (done.returncode == 125 and sentence(done)), done


def test_signals_inside_are_the_defaults():
    """Ignored and blocked signals of the caller stay outside."""
    code = "f = dict(l.split(':\\t') for l in open('/proc/self/status') if l.startswith('Sig'))\nprint(f['SigBlk'], f['SigIgn'])"
    plain = run("-c", code).stdout
    done = subprocess.run(["sh", "-c", "trap '' TERM USR1 CHLD; exec \"$@\"", "sh"] + command("-c", code), capture_output=True,
                          timeout=40, check=False)
    assert done.stdout == plain


def test_scheduling_of_the_caller_stays_outside():
    """Real-time scheduling of the caller would starve the host when hostile code inherits it."""
    if not support.is_root():
        pytest.skip("root's test")
    code = "import os; print(os.sched_getscheduler(0), open('/proc/self/oom_score_adj').read().strip())"
    done = subprocess.run(["chrt", "-f", "10"] + command("-c", code), capture_output=True, timeout=40, check=False)
    if b"chrt" in done.stderr:
        pytest.skip("no real-time scheduling here")
    assert done.stdout == b"0 0\n", done.stderr


def test_output_to_a_full_disk():
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command("-c", "print('x' * 100)"), stdout=full, stderr=subprocess.PIPE, timeout=40, check=False)
    last = done.stderr.strip().split(b"\n")[-1]
    assert done.returncode != 0 and last.startswith(b"hutch: ") and b"No space left" in last, done.stderr


@pytest.mark.parametrize("target", ["/", "/proc", "/dev", "/run", "/run/hutch", "/mnt/data", "/mnt", "/proc/self", "//proc/",
                                    "/run/hutch/site"])
def test_volume_over_hutchs_own(target, tmp_path):
    """Whoever mounts over what hutch sets up would change what it relies on."""
    for option in (("-v", "%s:%s" % (tmp_path, target)), ("--tmpfs", target)):
        done = hutch("run", "--image", IMAGE, *option, "-c", "pass")
        assert done.returncode == 125, (option, done)
        assert sentence(done)
    assert os.listdir(tmp_path) == []


def test_volume_over_hutchs_own_by_a_link_of_the_image(tmp_path):
    """/var/run is a link to /run in Debian: what is checked has to be the place, not the name."""
    folder = tmp_path / "folder"
    folder.mkdir()
    hutch("run", "--image", IMAGE, "-v", "%s:/var/run" % folder, "-c", "pass")
    assert os.listdir(folder) == [], "hutch wrote its own files into the caller's directory"


def test_data_that_holds_the_store():
    """Writing to HUTCH_HOME from inside would change the images of all later runs."""
    refused("run", "--image", IMAGE, "--data", support.hutch_home(), "-c", "pass", says=support.hutch_home())
    refused("run", "--image", IMAGE, "-v", "%s:/mnt/home" % os.path.dirname(support.hutch_home()), "-c", "pass")


def test_a_stream_that_left_the_sandbox(data):
    """The script hands its standard output to somebody who keeps it open: no end of file comes, and hutch ends."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(data / "s"))
    os.chmod(data / "s", 0o777)
    listener.listen(1)
    code = ("import socket, array\nc = socket.socket(socket.AF_UNIX)\nc.connect('/mnt/data/s')\n"
            "c.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [1]))])\nprint('sent', flush=True)")
    process = subprocess.Popen(command("--data", str(data), "-c", code), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    listener.settimeout(20)
    peer, _ = listener.accept()
    _, fds, _, _ = socket.recv_fds(peer, 10, 1)
    try:
        output, errors = process.communicate(timeout=20)
        assert (process.returncode, output) == (0, b"sent\n"), errors
    finally:
        for fd in fds:
            os.close(fd)
        peer.close()
        listener.close()


def test_stdin_that_cannot_be_read(tmp_path):
    """A directory as standard input is an error of the caller's, and not an empty script."""
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        done = subprocess.run(command("-"), stdin=fd, capture_output=True, timeout=40, check=False)
    finally:
        os.close(fd)
    assert done.returncode in (125, 137) and "standard input" in sentence(done)
