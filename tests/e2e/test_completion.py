"""hutch completion: what bash, zsh and fish make of it, each as it runs at a terminal or as it answers for one.

zsh and fish are tested where they are installed; bash is everywhere."""
import os
import pty
import select
import shutil
import subprocess
import time

import pytest

import support

SHELLS = [pytest.param(name, marks=pytest.mark.skipif(not shutil.which(name), reason=f"{name} is not installed"))
          for name in ("bash", "zsh", "fish")]

# What is typed, and what is offered for its last word.
OFFERS = [
    ("hutch ru", ["run"]),
    ("hutch ", ["run", "repl", "batch", "serve", "mcp", "tools", "rootfs", "bundle", "doctor", "completion"]),
    ("hutch run --netw", ["--network"]),
    ("hutch run --network ", ["none", "host"]),
    ("hutch run --cont", []),
    ("hutch repl --cont", ["--context"]),
    ("hutch run --policy tru", ["trusted"]),
    ("hutch run -c 'print(1)' --mem", ["--memory"]),
    ("hutch run script.py --mem", []),  # the program's own
    ("hutch run book.ipynb --par", ["--param"]),
    ("hutch batch --judge ", ["apart", "together"]),
    ("hutch rootfs ", ["build", "unpack", "pull", "extend", "list", "verify", "remove", "share", "prune"]),
    ("hutch rootfs build ", ["minimal", "python", "python-full", "node"]),
    ("hutch rootfs list --js", ["--json"]),
    ("hutch bundle --cop", ["--copy"]),
    ("hutch completion ", ["bash", "zsh", "fish"]),
]


@pytest.fixture
def place(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "script.py").touch()
    (tmp_path / "book.ipynb").touch()
    for shell, name in (("bash", "hutch.bash"), ("zsh", "_hutch"), ("fish", "hutch.fish")):
        script = subprocess.run([support.HUTCH, "completion", shell], stdout=subprocess.PIPE, check=True).stdout
        (tmp_path / name).write_bytes(script)
    (tmp_path / "hutch").symlink_to(support.HUTCH)
    return tmp_path


def environment(place):
    return {"PATH": f"{place}:{os.environ['PATH']}", "HOME": str(place), "TERM": "dumb", "LC_ALL": "C.UTF-8",
            "HUTCH_HOME": str(place / "home"), "XDG_RUNTIME_DIR": str(place)}  # fish leaves files in /tmp without it


def words_of(line):
    """As bash splits them."""
    words = [word.strip("'") for word in line.split(" ")]
    return [part for word in words for part in (word.replace("=", "\0=\0").split("\0") if "=" in word else [word])]


def ask_bash(place, line):
    words = words_of(line)
    ask = ('source ./hutch.bash; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
           '$(complete -p hutch | sed "s/.*-F //; s/ .*//"); printf "%s\\n" "${COMPREPLY[@]}"')
    return subprocess.run(["bash", "--norc", "-c", ask, "bash", *words], cwd=place, env=environment(place),
                          stdout=subprocess.PIPE, check=True).stdout.decode().split()


def ask_fish(place, line):
    answer = subprocess.run(["fish", "--no-config", "-c", "source hutch.fish; complete -C $argv[1]", line], cwd=place,
                            env=environment(place), stdout=subprocess.PIPE, check=True).stdout.decode()
    return [offer.split("\t")[0] for offer in answer.splitlines()]


@pytest.mark.parametrize("line,wanted", OFFERS)
def test_bash_offers(place, line, wanted):
    offered = ask_bash(place, line)
    assert [word for word in offered if not word.startswith("--") or line.split(" ")[-1]] == wanted


def test_bash_offers_values_behind_an_equals_sign(place):
    assert ask_bash(place, "hutch run --network=h") == ["host"]
    assert ask_bash(place, "hutch run --network=") == ["none", "host"]
    assert ask_bash(place, "hutch run --data=da") == ["data"]


def test_bash_offers_files(place):
    assert "script.py" in ask_bash(place, "hutch run ") and "script.py" in ask_bash(place, "hutch run script.py ")
    assert ask_bash(place, "hutch run --data ") == ["data"]


@pytest.mark.skipif(not shutil.which("fish"), reason="fish is not installed")
@pytest.mark.parametrize("line,wanted", [row for row in OFFERS if "script.py" not in row[0]])
def test_fish_offers(place, line, wanted):
    assert sorted(ask_fish(place, line)) == sorted(wanted)


START = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], "bind 'set enable-bracketed-paste off'; source ./hutch.bash"),
    "zsh": (["zsh", "-f", "-i"], "fpath=($PWD $fpath); autoload -Uz compinit; compinit -u -D"),
    "fish": (["fish", "--no-config", "-i"], "source ./hutch.fish"),
}


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("typed,line", [
    ("hutch run --netw\tn\t", "hutch run --network none"),
    ("hutch rootfs bu\tminim\t", "hutch rootfs build minimal"),
    ("hutch run -c 1 --pids\t", "hutch run -c 1 --pids-limit"),
    ("hutch run --rootf\tho\t", "hutch run --rootfs host"),
])
def test_at_a_terminal(place, shell, typed, line):
    """The program that the shell would run gets the completed words."""
    (place / "hutch").unlink()
    (place / "hutch").write_text('#!/bin/sh\n[ "$1 $2" = "rootfs list" ] && exit\n'
                                 'echo "$*" >words.new\nmv words.new words\n')
    (place / "hutch").chmod(0o755)
    argv, start = START[shell]
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(place)
        os.execvpe(argv[0], argv, environment(place))
    try:
        os.write(fd, start.encode() + b"; touch ready\n")
        wait_for(place / "ready", fd)
        os.write(fd, typed.encode() + b"\n")
        wait_for(place / "words", fd)
    finally:
        os.close(fd)  # the shell's terminal is gone, and so is the shell
        os.waitpid(pid, 0)
    # zsh writes --network=none, which is the same.
    assert (place / "words").read_text().replace("=", " ").split() == line.split()[1:]


def wait_for(path, fd):
    """Reads what the terminal shows meanwhile, so that the shell can write."""
    deadline, shown = time.monotonic() + 60, b""
    while not path.exists():
        assert time.monotonic() < deadline, shown.decode(errors="replace")
        if select.select([fd], [], [], 0.05)[0]:
            shown += os.read(fd, 65536)


@pytest.mark.parametrize("args,says", [([], "for which shell?"), (["tcsh"], "knows bash, zsh and fish, not 'tcsh'"),
                                       (["bash", "zsh"], "for which shell?"), (["--no"], "there is no option '--no'")])
def test_usage(args, says):
    done = subprocess.run([support.HUTCH, "completion", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.returncode == 125 and says in done.stderr.decode() and not done.stdout
