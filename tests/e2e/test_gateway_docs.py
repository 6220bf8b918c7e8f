"""The commands of docs/gateway.md are run, and what they print is compared; `…` in what is
printed stands for anything. Each request of the OpenAPI document has a line of curl's."""
import functools
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile

import pytest

import gateway
import openapi
import support

DOCUMENT = os.path.join(support.TREE, "docs", "gateway.md")
LEFT_OUT = {"haproxy": "test_proxies.py starts it", "xdg-open": "there is nobody to look"}
END = "--- end of command"


@functools.lru_cache(maxsize=None)
def blocks():
    """(line number, [(command, what it prints)]) of each console."""
    with open(DOCUMENT, encoding="utf-8") as file:
        text = file.read()
    found = []
    for match in re.finditer(r"^```console\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        commands = []
        for line in match[1].splitlines():
            if line.startswith("$ "):
                commands.append([line[2:], ""])
            elif commands[-1][0].endswith(("\\", "|")) and not commands[-1][1]:
                commands[-1][0] += "\n" + line
            else:
                commands[-1][1] += line + "\n"
        found.append((text.count("\n", 0, match.start()) + 1, commands))
    return found


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def write_files(folder):
    """Those whose contents the document shows by `cat`."""
    for _, commands in blocks():
        for command, printed in commands:
            if re.fullmatch(r"cat [\w.]+", command):
                (folder / command[4:]).write_text(printed)


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    """The directory with the socket of a server as `hutch serve &` starts it, and with the functions of the document."""
    folder, runtime = tmp_path_factory.mktemp("docs"), tempfile.mkdtemp(prefix="hutch-docs-", dir="/tmp")  # paths of sockets are short
    write_files(folder)
    functions = re.findall(r"--function (\w+)=(\S+)", "\n".join(command for _, commands in blocks() for command, _ in commands))
    words = [word for name, file in functions for word in ("--function", "%s=%s" % (name, folder / file))]
    with gateway.Server(folder, *words, image="python", env={"XDG_RUNTIME_DIR": runtime}, warm="usual"):
        yield runtime
    shutil.rmtree(runtime)


@pytest.fixture
def own():
    """A directory for the socket of a server that a command starts."""
    runtime = tempfile.mkdtemp(prefix="hutch-docs-", dir="/tmp")
    yield runtime
    shutil.rmtree(runtime)


def script_of(commands, port, runtime):
    """Each command, then a mark; a server in the background is awaited."""
    lines = ["sock=$XDG_RUNTIME_DIR/hutch/hutch.sock", "exec 2>&1"]
    for command, _ in commands:
        command = command.replace("curl …", "curl -sS --unix-socket $sock").replace("curl ", "curl -sS ").replace("8080", str(port))
        command = command.replace(" -m 1 ", " -m 8 ")  # what a busy machine takes until it answers
        if "hutch serve" in command and command.endswith("&"):
            asked = "127.0.0.1:%d" % port if "--listen" in command or "--config" in command else "--unix-socket %s/hutch/hutch.sock localhost" % runtime
            command = "{ %s; } >>log 2>&1 & until curl -sf %s/readyz >>log; do sleep 0.05; kill -0 $! || break; done" % (command[:-1], asked)
        lines += [command, "echo; echo '%s'" % END]
    return "\n".join(lines)


def fits(printed, expected):
    """As the document has it: `…` is anything on that line, times are other times, and names of sessions other names."""
    pattern = r"[^\n]*".join(map(re.escape, expected.split("…"))).replace(r"\-", "-")
    pattern = re.sub(r"\d+\\\.\d+", lambda _: r"\d+\.\d+", pattern)
    pattern = re.sub(r'"id":"[\w-]{21}"', lambda _: r'"id":"[\w-]{21}"', pattern)
    pattern = re.sub(r'"id":\d+', lambda _: r'"id":\d+', pattern)
    return re.fullmatch(pattern, printed.rstrip("\n") + "\n")


@pytest.mark.parametrize("number,commands", [pytest.param(*block, id="line-%d" % block[0]) for block in blocks()])
def test_console(usual, own, tmp_path, number, commands):
    text = "\n".join(command for command, _ in commands)
    for word in LEFT_OUT:
        if word in text:
            return
    if not shutil.which("curl"):
        support.miss("curl is not installed")
    runtime = own if "hutch serve" in text else usual
    write_files(tmp_path)
    (tmp_path / "notes.txt").write_text("a note\n")
    (tmp_path / "tokens").write_text("ben %s\n" % ("0" * 64))
    (tmp_path / "tokens").chmod(0o600)
    env = {**os.environ, "XDG_RUNTIME_DIR": runtime, "PATH": "%s:%s" % (os.path.dirname(support.HUTCH), os.environ["PATH"])}
    script = "id=%s\n" % session_of(usual) if "$id" in text and "id=$(" not in text else ""
    process = subprocess.Popen(["bash", "-c", script + script_of(commands, free_port(), runtime)], cwd=tmp_path, env=env, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        printed, _ = process.communicate(timeout=gateway.SECONDS)
    finally:
        end_group(process.pid)
    answers = printed.split("\n%s\n" % END)
    assert len(answers) == len(commands) + 1, printed
    if os.environ.get("HUTCH_TEST_SHOW"):
        print("\n".join("$ %s\n%s" % (command, answer) for (command, _), answer in zip(commands, answers)))
    for (command, expected), answer in zip(commands, answers):
        assert "curl: (" not in answer and '"error":{"status"' not in answer or expected, "%s\n%s" % (command, answer)
        assert not expected or fits(answer, expected), "line %d: %s\nprinted\n%s\nand not\n%s" % (number, command, answer, expected)


def test_units(tmp_path):
    if not shutil.which("systemd-analyze"):
        support.miss("there is no systemd-analyze to check docs/hutch.service")
    for name in ("hutch.service", "hutch.socket"):
        with open(os.path.join(support.TREE, "docs", name), encoding="utf-8") as file:
            text = file.read().replace("/usr/local/bin/hutch", support.HUTCH)
        (tmp_path / name).write_text(text)
    env = {**os.environ, "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run(["systemd-analyze", "verify", "--user", *map(str, tmp_path.glob("hutch.*"))], env=env,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def end_group(number):
    """The servers in the background, too; until they have gone. Who is dead stays in its group where process 1 takes no zombies."""
    def is_over():
        try:
            os.killpg(number, signal.SIGTERM)
        except ProcessLookupError:
            return True
        return not support.group(number)
    gateway.await_that(is_over)


def session_of(usual):
    server = gateway.UnixConnection(os.path.join(usual, "hutch", "hutch.sock"))
    server.request("POST", "/v1/sessions", b'{"max_processes": 4}', {"Content-Type": "application/json"})
    return server.getresponse().read().decode().split('"')[3]


def asked_by(command):
    """(method, path) of each line of curl's."""
    for part in command.replace("$id", "ID").replace("$n", "1").split("curl ")[1:]:
        path = re.search(r" [\"']?(?:https?://)?(?:localhost|127\.0\.0\.1:\d+)(/[^\s)\"']*)", " " + part)
        if path:
            given = re.search(r" -X (\w+)", part)
            yield (given[1] if given else "PUT" if " -T " in part else
                   "POST" if re.search(r" (-d|-F|--json|--data-binary) ", part) else "GET"), path[1]


def test_each_request_has_its_line():
    asked = set()
    for _, commands in blocks():
        for command, _ in commands:
            for method, path in asked_by(command):
                path = path.partition("?")[0]
                fitting = [template for pattern, template in openapi.patterns() if pattern.fullmatch(path)]
                asked.add((method.lower(), fitting[0] if fitting else path))
    wanted = {(method, path) for path, operations in openapi.document()["paths"].items() for method in operations if method in openapi.METHODS}
    assert wanted - asked == set()
