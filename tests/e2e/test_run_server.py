"""`hutch run` by the server on the default socket: the same as without it, or without it. docs/gateway.md."""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

import pytest

import gateway
import support
from gateway import Server

BY_SERVER = "the run was done by the server"


@pytest.fixture(scope="module")
def runtime():
    """A directory for the socket, whose path is short."""
    path = tempfile.mkdtemp(prefix="hutch-t")
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def server(runtime, tmp_path_factory):
    with Server(tmp_path_factory.mktemp("gateway"), image="python", env={"XDG_RUNTIME_DIR": runtime}) as started:
        started.path = runtime + "/hutch/hutch.sock"
        yield started


def run(runtime, *words, stdin=subprocess.DEVNULL, cwd=None, **more):
    return subprocess.run([support.HUTCH, "run", *words], capture_output=True, cwd=cwd, env={**os.environ, "XDG_RUNTIME_DIR": runtime},
                          timeout=gateway.SECONDS, check=False, **({"input": stdin} if isinstance(stdin, bytes) else {"stdin": stdin}), **more)


def is_by_server(done):
    return BY_SERVER.encode() in done.stderr


TABLE = {
    "print": ["-c", "print('hello é \U0001f600')"],
    "empty": ["-c", ""],
    "exit status": ["-c", "import sys; sys.exit(7)"],
    "exception": ["-c", "def f(): raise ValueError('x')\nf()"],
    "both streams": ["-c", "import sys; print(1); print(2, file=sys.stderr)"],
    "any bytes": ["-c", "import sys; sys.stdout.buffer.write(bytes(range(256)) * 100); sys.stderr.buffer.write(b'\\xff\\n')"],
    "cut characters": ["-c", "import sys, time\nfor b in 'é\U0001f600'.encode():\n  sys.stdout.buffer.write(bytes([b])); sys.stdout.flush(); time.sleep(0.01)"],
    "much": ["-c", "for i in range(200000): print(i)"],
    "arguments": ["-c", "import sys; print(sys.argv)", "a b", "", "é", "-x"],
    "file": ["program.py", "one", "two"],
    "shell": ["program.sh", "one"],
    "by its mark": ["marked", "one"],
    "language": ["--language", "sh", "-c", "echo $1; exit 3", "word"],
    "variables": ["-e", "A=1", "-e", "B=x=y é", "-c", "import os; print(os.environ['A'], os.environ['B'])"],
    "signal": ["-c", "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"],
    "killed": ["-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"],
    "time limit": ["--timeout", "4s", "-c", "print('begun', flush=True)\nwhile True: pass"],
    "memory limit": ["--memory", "128m", "-c", "x = bytearray(400 << 20)\nimport time; time.sleep(20)"],
    "no such module": ["-c", "import no_such_module"],
    "directory and names": ["-c", "import os; print(os.getcwd(), __name__, globals().get('__file__'), os.listdir('.'))"],
    "syntax error": ["-c", "print("],
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("programs")
    (folder / "program.py").write_text("import sys\nprint(sys.argv, __file__)\n1 / 0\n")
    (folder / "program.sh").write_text("echo $0 $1; exit 4\n")
    (folder / "marked").write_text("#!/bin/sh\necho marked $1\n")
    return folder


def measured(text):
    """Without how many bytes were found in use."""
    return re.sub(rb"\d+ bytes were in use", b"N bytes were in use", text)


@pytest.mark.parametrize("label", TABLE)
def test_the_same_by_both_ways(server, runtime, programs, label):
    words = TABLE[label]
    with_it, without = run(runtime, *words, cwd=programs), run(runtime, "--no-server", *words, cwd=programs)
    assert (with_it.returncode, with_it.stdout, measured(with_it.stderr)) == (without.returncode, without.stdout, measured(without.stderr))
    assert is_by_server(run(runtime, "--verbose", *words, cwd=programs)) and not is_by_server(run(runtime, "--no-server", "--verbose", *words, cwd=programs))


@pytest.mark.parametrize("label", ["print", "exit status", "exception", "any bytes", "arguments", "file", "signal", "time limit"])
def test_the_same_result(server, runtime, programs, label):
    """Limits and layers, too, as far as they are not of the way: a server's sandbox may be measured otherwise, and is no weaker."""
    words = ["--json", *TABLE[label]]
    with_it, without = (json.loads(run(runtime, *more, *words, cwd=programs).stdout) for more in ([], ["--no-server"]))
    assert with_it.pop("server") is True and "server" not in without
    for one in (with_it, without):
        del one["timings_ms"], one["usage"]
    assert with_it.pop("layers").keys() == without.pop("layers").keys()
    for name, limit in without.pop("limits").items():
        assert with_it["limits"][name]["asked"] == limit["asked"], name
    del with_it["limits"]
    assert with_it == without


def test_layers_are_those_of_the_server(server, runtime):
    result = json.loads(run(runtime, "--json", "-c", "pass").stdout)
    cold = json.loads(run(runtime, "--no-server", "--json", "-c", "pass").stdout)
    weaker = [name for name, layer in cold["layers"].items() if layer["active"] and not result["layers"][name]["active"]]
    assert not weaker, weaker
    assert {name: layer["active"] for name, layer in server.run("pass")["layers"].items()} == {name: layer["active"] for name, layer in result["layers"].items()}


@pytest.mark.parametrize("words", [
    ["--rootfs", "host"], ["--policy", "trusted"], ["--image", "minimal"], ["--network", "host"], ["--workdir", "/tmp"], ["-v", "/usr/share:/mnt/x:ro"],
    ["--tmpfs", "/mnt/y"], ["--timeout", "99m"], ["--memory", "0"],
])
def test_what_a_server_cannot_be_asked_for(server, runtime, words, tmp_path):
    """It is done without one, as it is without a server."""
    more = ["--language", "sh"] if "minimal" in words else []
    done = run(runtime, "--verbose", *words, *more, "-c", "echo done" if more else "print('done')", cwd=tmp_path)
    assert done.returncode == 0 and done.stdout == b"done\n" and not is_by_server(done), done.stderr


def test_another_server_is_not_used(tmp_path):
    """One that makes its sandboxes otherwise."""
    folder = tempfile.mkdtemp(prefix="hutch-t")
    with Server(tmp_path, "--memory", "200m", image="python", env={"XDG_RUNTIME_DIR": folder}):
        done = run(folder, "--verbose", "-c", "print(1)")
        assert done.returncode == 0 and not is_by_server(done) and b"not as the client's" in done.stderr
    shutil.rmtree(folder)


# --- standard input

@pytest.mark.parametrize("data", [b"", b"line\nmore", bytes(range(256)) * 2000], ids=["empty", "lines", "bytes"])
def test_stdin_pipe(server, runtime, data):
    code = "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read()[::-1])"
    assert run(runtime, "-c", code, stdin=data).stdout == data[::-1]
    assert is_by_server(run(runtime, "--verbose", "-c", code, stdin=data))


def test_stdin_file_from_where_it_stands(server, runtime, tmp_path):
    (tmp_path / "f").write_bytes(b"0123456789")
    with open(tmp_path / "f", "rb") as file:
        os.lseek(file.fileno(), 4, os.SEEK_SET)
        assert run(runtime, "-c", "print(input())", stdin=file).stdout == b"456789\n"


def test_stdin_that_is_not_read_does_not_hold(server, runtime):
    """A pipe that nobody closes."""
    reader, writer = os.pipe()
    assert run(runtime, "-c", "print(1)", stdin=reader).stdout == b"1\n"
    os.close(reader)
    os.close(writer)


def test_stdin_socket(server, runtime):
    ours, theirs = socket.socketpair()
    ours.sendall(b"by socket\n")
    done = run(runtime, "--verbose", "-c", "print(input())", stdin=theirs)
    assert done.stdout == b"by socket\n" and not is_by_server(done)
    ours.close()
    theirs.close()


def test_files_are_kept(server, runtime):
    done = run(runtime, "-c", "open('f', 'w').write('kept')")
    folder = done.stderr.decode().split(" are in ")[1].strip()
    with open(folder + "/f") as file:
        assert file.read() == "kept"
    shutil.rmtree(folder)


def test_data(server, runtime, tmp_path):
    folder = tmp_path / "with % and é"
    folder.mkdir()
    (folder / "in").write_text("in")
    seen = []
    for way in ([], ["--no-server"]):
        done = run(runtime, *way, "--json", "--data", str(folder), "-c", "open('out', 'w').write(open('in').read() + ' and out')")
        result = json.loads(done.stdout)
        assert (folder / "out").read_text() == "in and out" and result.get("server") == (None if way else True), result
        (folder / "out").unlink()
        seen.append((result["files"], done.stderr, done.returncode))
    assert seen[0] == seen[1] and seen[0][0]["directory"] == str(folder)
    missing = run(runtime, "--data", str(folder / "in"), "-c", "pass")
    assert missing.returncode == 125 and missing.stderr == run(runtime, "--no-server", "--data", str(folder / "in"), "-c", "pass").stderr


# --- ends

def start(runtime, *words):
    return subprocess.Popen([support.HUTCH, "run", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env={**os.environ, "XDG_RUNTIME_DIR": runtime})


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_cancel(server, runtime, number):
    ended = {}
    for way in ([], ["--no-server"]):
        process = start(runtime, *way, "-c", "import time\nprint(1, flush=True)\ntime.sleep(1000)")
        assert process.stdout.readline() == b"1\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=gateway.SECONDS)
        ended[bool(way)] = (process.returncode, out, err.splitlines()[-1])  # without a server, Python says something of SIGINT
    assert ended[False] == ended[True]
    server.await_metric("hutch_http_exchanges", 1)
    gateway.await_that(lambda: server.ask("GET", "/v1/pools").json["running"] == 0)


def test_a_reader_that_leaves(server, runtime):
    process = start(runtime, "-c", "while True: print('x' * 1000)")
    process.stdout.read(10)
    process.stdout.close()
    assert process.wait(gateway.SECONDS) != 0
    process.stderr.close()
    server.await_metric("hutch_http_exchanges", 1)


def test_a_server_with_a_policy_for_its_clients(runtime, tmp_path):
    """Its runs would not have this user's limits."""
    place = tempfile.mkdtemp(prefix="hutch-t")
    config = tmp_path / "config.json"
    config.write_text('{"policies": {"formats": {"native": "trusted"}}}')
    try:
        with Server(tmp_path, "--config", str(config), env={"XDG_RUNTIME_DIR": place}):
            done = run(place, "--verbose", "--image", "minimal", "-c", "print(1)")
            assert done.stdout == b"1\n" and not is_by_server(done)
    finally:
        shutil.rmtree(place)


def test_a_server_that_has_stopped_answering(tmp_path):
    place = tempfile.mkdtemp(prefix="hutch-t")
    try:
        with Server(tmp_path, env={"XDG_RUNTIME_DIR": place}) as server:
            server.process.send_signal(signal.SIGSTOP)
            done = run(place, "--image", "minimal", "-c", "print(1)")
            server.process.send_signal(signal.SIGCONT)
            assert done.stdout == b"" and done.returncode == 125 and b"does not answer" in done.stderr, done
    finally:
        shutil.rmtree(place)


def test_a_server_that_dies(tmp_path):
    """In the midst of a run, which is not done twice."""
    folder = tempfile.mkdtemp(prefix="hutch-t")
    server = Server(tmp_path, image="python", env={"XDG_RUNTIME_DIR": folder})
    process = start(folder, "-c", "import time\nprint('begun', flush=True)\ntime.sleep(1000)")
    assert process.stdout.readline() == b"begun\n"
    server.process.kill()
    server.process.wait()
    out, err = process.communicate(timeout=gateway.SECONDS)
    assert process.returncode == 125 and out == b"" and b"went away before the run was over" in err
    done = run(folder, "--verbose", "-c", "print(1)")  # its socket is there, and nobody listens
    assert done.returncode == 0 and done.stdout == b"1\n" and not is_by_server(done)
    server.reader.join()
    server.process.stderr.close()
    shutil.rmtree(folder)


class Listener:
    """Somebody else on the path, who answers with these bytes."""

    def __init__(self, answer, mode=0o600, folder_mode=0o700):
        self.runtime = tempfile.mkdtemp(prefix="hutch-t")
        os.mkdir(self.runtime + "/hutch")
        os.chmod(self.runtime + "/hutch", folder_mode)
        self.sock, self.answer, self.heard = socket.socket(socket.AF_UNIX), answer, []
        self.sock.bind(self.runtime + "/hutch/hutch.sock")
        os.chmod(self.runtime + "/hutch/hutch.sock", mode)
        self.sock.listen()
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        try:
            while True:
                peer, _ = self.sock.accept()
                self.heard.append(peer.recv(1 << 20))
                peer.sendall(self.answer)
                peer.close()
        except OSError:
            return

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()
        self.thread.join()
        shutil.rmtree(self.runtime)


HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(text):
    return b"%x\r\n%s\r\n" % (len(text), text)


@pytest.mark.parametrize("answer", [
    b"", b"\0" * 100, b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", b"x" * (1 << 20),
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", HEAD, HEAD + b"fffffffffffffffff\r\n", HEAD + b"-1\r\n",
    HEAD + chunk(b"no json\n"), HEAD + chunk(b'{"event":"output","data":{}}\n'), HEAD + chunk(b'{"event":"result","data":{"verdict":"fine"}}\n') + b"0\r\n\r\n",
    HEAD + chunk(b'{"event":"result","data":[]}\n') + b"0\r\n\r\n", HEAD + b"0\r\n\r\n", HEAD + b"0\r\nX: y\r\n\r\n", HEAD + chunk(b"[" * 100000 + b"\n"),
    HEAD + chunk(b'{"event":"output","data":{"stream":"stdout","text":"","base64":"!"}}\n'),
], ids=lambda answer: repr(answer[:60]))
def test_answers_that_are_none(answer):
    """It may have run: nothing is done again, and nothing is taken for a result."""
    with Listener(answer) as listener:
        done = run(listener.runtime, "-c", "print(1)")
        assert done.returncode == 125 and done.stdout == b"" and done.stderr.startswith(b"hutch: ") and len(listener.heard) == 1, done


def test_answers_that_refuse():
    """Without it, then."""
    for answer in (b"HTTP/1.1 503 x\r\nContent-Length: 0\r\n\r\n", b"HTTP/1.1 404 x\r\nContent-Length: 3\r\n\r\n[1]"):
        with Listener(answer) as listener:
            done = run(listener.runtime, "--verbose", "-c", "print(1)")
            assert done.returncode == 0 and done.stdout == b"1\n" and b"the server refused" in done.stderr


@pytest.mark.parametrize("mode,folder_mode", [(0o666, 0o700), (0o620, 0o700), (0o600, 0o777), (0o600, 0o770)])
def test_sockets_that_others_could_have_made(mode, folder_mode):
    with Listener(HEAD, mode, folder_mode) as listener:
        done = run(listener.runtime, "--verbose", "-c", "print(1)")
        assert done.returncode == 0 and done.stdout == b"1\n" and b"not this user's alone" in done.stderr and not listener.heard


def test_no_privileges_for_other_clients(server):
    """What only `hutch run` may ask for: not by a header alone, whoever sends it."""
    headers = {"X-Hutch-Settings": "x", "X-Hutch-Stdin": "0"}
    answer = server.ask("POST", "/v1/run", {"code": "1"}, headers)
    assert answer.status == 412 and "not this user's hutch" in answer.error["message"]


def test_how_long_it_takes(server, runtime):
    """It is to be worth it: the best times of both ways, taken in turn."""
    times = {(): [], ("--no-server",): []}
    for turn in range(40):
        for words, taken in times.items():
            begun = time.monotonic()
            assert run(runtime, *words, "-c", "pass").returncode == 0
            taken.append(time.monotonic() - begun)
        by_server, without = map(min, times.values())
        if turn >= 4 and by_server < without:
            return
    raise AssertionError(times)
