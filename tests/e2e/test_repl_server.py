"""hutch repl by the server on the default socket: what test_repl.py says of the session holds there too, and what is different."""
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time

import pytest

import gateway
import test_repl
from gateway import Server
from support import HUTCH, open_files
from test_repl import CTRL_D, IMAGE, Terminal

# Each of these is a test here as well: those that a session answers, and not the terminal alone.
THE_SAME = (
    "a_checkpoint_survives_its_interpreter", "branches", "bytes_that_are_no_letter", "cell_timeout",
    "checkpoint_and_rollback", "contexts", "ctrl_c_interrupts_a_loop", "death_of_the_interpreter",
    "download_follows_no_link", "empty_pipe", "error", "escape_sequences", "files_are_kept_and_told",
    "help_of_ipython", "input", "input_ends", "input_interrupted", "input_of_any_bytes", "many_images",
    "out_of_memory", "output_comes_as_it_is_printed", "output_that_never_ends", "pager", "password_is_not_shown",
    "pipe", "pipe_passes_bytes_on", "pipe_that_fails", "pipe_timeout", "pipe_without_answers", "plot_is_a_file",
    "plot_takes_no_name_that_is_taken", "program_that_cannot_be_interrupted", "reset", "state_across_cells",
    "stderr_in_its_place", "svg", "tab_completes", "tab_that_cannot_be_interrupted", "tab_that_ends_the_interpreter",
    "tab_that_takes_too_long", "terminal_that_goes_away", "upload_files_download")
globals().update({name: getattr(test_repl, name) for name in ("repl", *("test_" + name for name in THE_SAME))})

BY_SERVER = "the session is one of the server on the default socket"


@pytest.fixture(scope="module", autouse=True)
def server(tmp_path_factory):
    runtime = tempfile.mkdtemp(prefix="hutch-t")  # whose path is short
    with Server(tmp_path_factory.mktemp("gateway"), image=IMAGE, env={"XDG_RUNTIME_DIR": runtime}) as started:
        started.path = runtime + "/hutch/hutch.sock"
        started.runtime = runtime
        before = os.environ.get("XDG_RUNTIME_DIR")
        os.environ["XDG_RUNTIME_DIR"] = runtime
        yield started
        if before is None:
            del os.environ["XDG_RUNTIME_DIR"]
        else:
            os.environ["XDG_RUNTIME_DIR"] = before
    shutil.rmtree(runtime)


def sessions(server):
    return server.ask("GET", "/v1/sessions").json["sessions"]


def pipe(*args, text="print(1)"):
    done = subprocess.run([HUTCH, "repl", "--image", IMAGE, "--verbose", *args], input=text.encode(), capture_output=True, timeout=gateway.SECONDS)
    return done.returncode, done.stdout.decode(), BY_SERVER in done.stderr.decode()


def test_who_has_the_session(server):
    assert pipe() == (0, "1\n", True)
    assert pipe("--no-server") == (0, "1\n", False)
    assert sessions(server) == []


@pytest.mark.parametrize("args", [["-v", "/usr/share:/mnt/x:ro"], ["--tmpfs", "/mnt/y"], ["--workdir", "/tmp"],
                                  ["--memory", "0"], ["--cpu-time", "9s"]], ids=" ".join)
def test_what_a_server_cannot_be_asked_for(server, args):
    """It is done without one."""
    assert pipe(*args) == (0, "1\n", False)


@pytest.mark.parametrize("args, code, wanted", [
    (["-e", "A=é x"], "import os; print(os.environ['A'])", "é x\n"),
    (["--memory", "200m"], "print(int(open('/proc/meminfo').read().split()[1]) <= 200 << 10)", "True\n"),
    (["--context", "other"], "print(2)", "2\n"),
])
def test_options(server, args, code, wanted):
    assert pipe(*args, text=code) == (0, wanted, True)


def test_cells_take_longer_than_the_policy_allows_others(server, tmp_path):
    """A server's cells have the policy's wall limit; one at a prompt has none, and --timeout where that is given."""
    folder = tempfile.mkdtemp(prefix="hutch-t")
    policy = gateway.policy_file(tmp_path, "short", wall="1s")
    environment = {**os.environ, "XDG_RUNTIME_DIR": folder, "HUTCH_POLICY_DIR": os.path.dirname(policy)}
    with Server(tmp_path, "--policy", "short", image=IMAGE, env=environment) as one:
        one.path = folder + "/hutch/hutch.sock"
        session = one.ask("POST", "/v1/sessions", {}).json["id"]
        code = "import time; time.sleep(1.5); print('slept')"
        forever = code.replace("1.5", "60")
        assert one.ask("POST", "/v1/sessions/%s/cells" % session, {"code": forever}).json["verdict"] == "timeout"
        words = [HUTCH, "repl", "--image", IMAGE, "--verbose", "--policy", "short"]
        done = subprocess.run(words, input=code.encode(), capture_output=True, timeout=gateway.SECONDS, env=environment)
        assert (done.returncode, done.stdout) == (0, b"slept\n") and BY_SERVER.encode() in done.stderr, done.stderr
        done = subprocess.run(words + ["--timeout", "500ms"], input=forever.encode(), capture_output=True, timeout=gateway.SECONDS, env=environment)
        assert (done.returncode, done.stdout) == (124, b"") and b"500 ms" in done.stderr, done.stderr
    shutil.rmtree(folder)


def test_large_upload(server, data, tmp_path):
    with open(tmp_path / "large", "wb") as file:
        file.truncate(50 << 20)
    with open(tmp_path / "larger", "wb") as file:
        file.truncate(2 << 30)
    with Terminal("--data", data) as repl:
        repl.prompt(1)
        assert repl.run("%%upload %s" % (tmp_path / "large")) == "hutch: /mnt/data/large: %d bytes\n" % (50 << 20)
        assert "more than its files may" in repl.run("%%upload %s" % (tmp_path / "larger"))
        assert repl.run("import os; os.listdir()") == "Out[1]: ['large']\n"


def test_long_names(server, data, tmp_path):
    """Each of its letters takes nine in a request."""
    name = "\u6587" * 60
    (tmp_path / name).write_text("here")
    with Terminal("--data", data) as repl:
        repl.prompt(1)
        assert repl.run("%%upload '%s'" % (tmp_path / name)).endswith(": 4 bytes\n")
        assert (data / name).read_text() == "here"


def test_cells_one_after_the_other(server, data):
    """A connection for each, and none of them is left."""
    with Terminal("--data", data) as repl:
        repl.prompt(1)
        for i in range(30):
            assert repl.run("%d" % i).endswith("Out[%d]: %d\n" % (i + 1, i))
        sockets = [fd for fd, link in open_files(repl.pid).items() if link.startswith("socket:")]
        assert len(sockets) == 1  # as long as which the session lives


def test_a_server_that_stands_still(tmp_path, data):
    """A prompt that is told to end does."""
    folder = tempfile.mkdtemp(prefix="hutch-t")
    with Server(tmp_path, image=IMAGE, env={"XDG_RUNTIME_DIR": folder}) as one:
        one.path = folder + "/hutch/hutch.sock"
        with Terminal("--data", data, XDG_RUNTIME_DIR=folder) as repl:
            repl.prompt(1)
            repl.line("import time; print('begun'); time.sleep(1000)")
            repl.expect("\nbegun")
            one.process.send_signal(signal.SIGSTOP)
            os.kill(repl.pid, signal.SIGTERM)
            assert repl.end() == 128 + signal.SIGTERM
        one.process.send_signal(signal.SIGCONT)
        gateway.await_that(lambda: sessions(one) == [])
    shutil.rmtree(folder)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_a_prompt_that_ends_leaves_no_session(server, end, data):
    with Terminal("--data", data) as repl:
        repl.prompt(1)
        assert len(sessions(server)) == 1
        repl.line("while True: pass")
        time.sleep(0.2)
        os.kill(repl.pid, end)
        gateway.await_that(lambda: sessions(server) == [])


def test_a_server_that_goes_away(tmp_path, data):
    """What runs says so, and so does the next cell; the terminal is whole."""
    folder = tempfile.mkdtemp(prefix="hutch-t")
    one = Server(tmp_path, image=IMAGE, env={"XDG_RUNTIME_DIR": folder})
    with Terminal("--data", data, XDG_RUNTIME_DIR=folder) as repl:
        repl.prompt(1)
        assert repl.run("x = 1") == ""
        repl.line("import time; print('begun'); time.sleep(1000)")
        repl.expect("\nbegun")
        one.process.kill()
        one.process.wait(gateway.SECONDS)
        repl.expect("the session is over: the server went away")
        repl.prompt()
        assert "--no-server" in repl.run("x")
        repl.type(CTRL_D)
        assert repl.end() == 0
    shutil.rmtree(folder)


def test_a_server_that_is_stopped(tmp_path, data):
    """It does not wait for prompts at which nothing runs, and tells them."""
    folder = tempfile.mkdtemp(prefix="hutch-t")
    one = Server(tmp_path, "--drain", "1h", image=IMAGE, env={"XDG_RUNTIME_DIR": folder})
    with Terminal("--data", data, XDG_RUNTIME_DIR=folder) as repl:
        repl.prompt(1)
        repl.run("x = 1")
        one.process.send_signal(signal.SIGTERM)
        assert one.process.wait(gateway.SECONDS) == 0
        repl.expect("the session is over")
    shutil.rmtree(folder)


def test_the_stream_of_a_session_for_anybody(server):
    """A client that opens a session by a stream has it as long as that: events tell of its end."""
    connection = gateway.UnixConnection(server.path)
    connection.request("POST", "/v1/sessions", "{}", {"Content-Type": "application/json", "Accept": "application/x-ndjson"})
    answer = connection.getresponse()
    assert answer.status == 200
    event = json.loads(answer.readline())
    assert event["event"] == "session" and [event["data"]["id"]] == [one["id"] for one in sessions(server)]
    assert server.ask("DELETE", "/v1/sessions/" + event["data"]["id"]).status == 204
    assert json.loads(answer.readline()) == {"event": "end", "data": {"why": "the session was closed", "directory": None}}
    assert answer.read() == b""
    connection.request("POST", "/v1/sessions", "{}", {"Content-Type": "application/json", "Accept": "text/event-stream"})
    answer = connection.getresponse()
    while answer.readline() != b"event: session\n":  # behind comments
        pass
    connection.close()
    gateway.await_that(lambda: sessions(server) == [])


def test_much_for_a_terminal_that_is_slow(server, data):
    """Its output is all there, however long it takes to be shown: 6 MiB, with a result that has them again."""
    with Terminal("--data", data) as repl:
        repl.prompt(1)
        repl.line("for i in range(6000): print('y' * 1000, i)\n")
        time.sleep(2)  # in which nobody reads
        repl.expect("\ny+ 5999\r\n")
        assert repl.output.count("y" * 1000) == 6000
        repl.prompt(2)


@pytest.mark.parametrize("headers", [
    {"X-Hutch-Settings": "x"}, {"X-Hutch-Settings": "x", "X-Hutch-Wall": "18446744073709551615", "X-Hutch-Data": "/etc"},
])
def test_nobody_else_has_what_a_prompt_may_ask(server, headers):
    """A client that only says that it is one is refused, and what a prompt's headers say alone means nothing."""
    answer = server.ask("POST", "/v1/sessions", {}, headers=headers)
    assert answer.status == 412, answer.body
    answer = server.ask("POST", "/v1/sessions", {}, headers={"X-Hutch-Data": "/etc", "X-Hutch-Wall": "1"})
    assert answer.status == 201 and server.ask("DELETE", "/v1/sessions/" + answer.json["id"]).status == 204
