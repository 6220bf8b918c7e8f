"""hutch run --image X [--entrypoint P] -- PROGRAM ARGS: programs of images that have nothing else in them."""
import json
import os
import subprocess

import pytest

import support
from rootfs_archives import docker_new, file, folder, layer, oci, symlink

SAY = r"""
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
extern char **environ;
int main(int argc, char **argv)
{
    char here[4096];

    for (int i = 0; i < argc; i++)
        printf("arg %s\n", argv[i]);
    for (char **e = environ; *e; e++)
        printf("env %s\n", *e);
    printf("dir %s\nuid %u\n", getcwd(here, sizeof(here)), (unsigned)getuid());
    return argc > 1 ? atoi(argv[1]) : 0;
}
"""


@pytest.fixture(scope="module")
def say(tmp_path_factory):
    """A program that needs no library, as in an image made from nothing."""
    where = tmp_path_factory.mktemp("say")
    (where / "say.c").write_text(SAY)
    done = subprocess.run(["cc", "-static", "-O1", "-s", "-o", str(where / "say"), str(where / "say.c")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return (where / "say").read_bytes()


@pytest.fixture
def image(tmp_path, say):
    """image(config) unpacks one with that configuration, and run(*words) runs in it."""
    home = str(tmp_path / "home")

    def make(config=None, write=oci):
        program = file("opt/bin/say", say, mode=0o755)
        layers = [layer(program, folder("app"), file("opt/bin/text", "no program"), symlink("gone", "/nowhere"))]
        archive = str(tmp_path / ("image-%d.tar" % len(os.listdir(tmp_path))))
        if write is oci:
            oci(archive, layers, config=(lambda c: c.update(config=config)))
        else:
            write(archive, layers, config=json.dumps(config))
        return support.hutch("rootfs", "unpack", archive, "made", env={"HUTCH_HOME": home})

    def run(*words, **options):
        return support.hutch("run", "--image", "made", *words, env={"HUTCH_HOME": home}, **options)

    make.run = run
    yield make
    support.remove_tree(home)


def said(done):
    """What the program printed: its arguments, environment, directory and uid."""
    lines = [line.partition(" ")[::2] for line in done.stdout.decode().splitlines()]
    return ([text for kind, text in lines if kind == "arg"], dict(text.partition("=")[::2] for kind, text in lines if kind == "env"),
            [text for kind, text in lines if kind == "dir"], [text for kind, text in lines if kind == "uid"])


OPT = {"Env": ["PATH=/opt/bin", "KIND=image", "HOME=/home/of/image", "no.letters=1", "=nothing", "NOVALUE"], "WorkingDir": "/app", "User": "root"}
SAYS = {**OPT, "Entrypoint": ["say", "0"], "Cmd": ["by", "default"]}


def test_as_the_image_wants_it(image):
    assert image(SAYS).returncode == 0
    args, env, where, uid = said(image.run("--"))
    assert args == ["say", "0", "by", "default"] and where == ["/app"] and uid == ["1000"]
    # The policy's environment wins, but for PATH: HOME is a place that can be written.
    assert env["PATH"] == "/opt/bin" and env["KIND"] == "image" and env["no.letters"] == "1" and env["HOME"] == "/tmp"
    assert "" not in env and "NOVALUE" not in env
    done = image.run("-v", "--")
    assert b"user 'root' is not obeyed" in done.stderr and b"'NOVALUE', which is passed over" in done.stderr


WORDS = [
    (["--", "7", "x"], ["say", "0", "7", "x"], 0),
    (["--entrypoint", "/opt/bin/say", "--", "5"], ["/opt/bin/say", "5"], 5),
    (["--entrypoint", "say"], ["say"], 0),
    (["--entrypoint", "say", "3", "-c", "x"], ["say", "3", "-c", "x"], 3),
    (["--entrypoint=say", "--", "--", "notebook.ipynb"], ["say", "--", "notebook.ipynb"], 0),
]


@pytest.mark.parametrize("words,args,status", WORDS)
def test_words(image, words, args, status):
    """As docker run has them."""
    image(SAYS)
    done = image.run(*words)
    assert (said(done)[0], done.returncode) == (args, status), done.stderr


def test_options_win(image):
    image(SAYS)
    _, env, where, _ = said(image.run("-e", "PATH=/x", "-e", "KIND=mine", "--workdir", "/", "--entrypoint", "/opt/bin/say", "--"))
    assert env["PATH"] == "/x" and env["KIND"] == "mine" and where == ["/"]


def test_an_image_that_names_nothing(image):
    image(None)
    assert said(image.run("--", "/opt/bin/say", "a"))[0] == ["/opt/bin/say", "a"]
    done = image.run("--")
    assert done.returncode == 125 and "the image 'made' names no program" in support.sentence(done)


def test_docker_saves_it_too(image):
    image(SAYS, write=lambda path, layers, config: docker_new(path, layers))
    assert image.run("--", "/opt/bin/say").returncode == 0


def test_directory_that_is_not_there(image):
    image({**SAYS, "WorkingDir": "/gone/below"})
    done = image.run("--")
    assert said(done)[2] == ["/mnt/data"] and b"working directory '/gone/below' is not in it" in done.stderr
    assert image.run("-q", "--").stderr == b""


@pytest.mark.parametrize("program,status,says", [("none", 127, "execute 'none'"), ("text", 126, "execute 'text': Permission denied"), ("/app", 126, "Permission"),
                                                  ("gone", 127, "execute 'gone'")])
def test_no_program(image, program, status, says):
    image(OPT)
    done = image.run("--", program)
    assert done.returncode == status and says in support.sentence(done)
    result = json.loads(image.run("--json", "--", program).stdout)
    support.check_result(result)
    assert result["exit_code"] in (status, None) and says in result["message"]


def test_result(image):
    image(SAYS)
    result = json.loads(image.run("--json", "--", "9").stdout)
    support.check_result(result)
    assert (result["verdict"], result["exit_code"]) == ("ok", 0) and "arg 9\n" in result["stdout"] and result["layers"]["seccomp"]["active"]


OPTIONS = [["--rootfs", "host"], ["-c", "1"], ["-m", "x"], ["--project", "/tmp"], ["--language", "sh"], ["--warm"], ["--rich"], ["--llm"], ["--writable"],
           ["--param", "a=1"], ["-o", "x"]]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: options[0])
def test_options_that_make_no_sense(image, options):
    """With --entrypoint. After any of them '--' is the end of the options, as ever."""
    image(SAYS)
    done = image.run(*options, "--entrypoint", "say", "--", "x")
    assert done.returncode == 125 and options[0] in support.sentence(done)
    if options[0] not in ("-m", "--project", "--rootfs", "-c", "--writable"):
        assert "'x'" in support.sentence(image.run(*options, "--", "x"))


def test_scripts_are_as_ever(tmp_path):
    """Without '--', or without an image that is named, a word is a file of the host."""
    script = tmp_path / "script.py"
    script.write_text("print('of the host')")
    assert support.hutch("run", "--image", support.IMAGE, str(script)).stdout == b"of the host\n"
    done = support.hutch("run", "--image", support.IMAGE, "-c", "import sys; print(sys.argv)", "--", "-x")
    assert done.stdout == b"['-c', '-x']\n", done.stderr
    done = support.hutch("run", "--rootfs", "host", "--", str(script))
    assert done.stdout == b"of the host\n", done.stderr


@pytest.fixture
def variables():
    """The image python as one that asks for variables; in this store no other test runs meanwhile."""
    path = os.path.join(os.path.dirname(support.root_of_image("python")), "config.json")
    with open(path, encoding="utf-8") as kept:
        before = kept.read()

    def replace(text):
        """By another file: other stores may have links to this one."""
        with open(path + ".new", "w", encoding="utf-8") as new:
            new.write(text)
        os.chmod(path + ".new", os.stat(path).st_mode & 0o7777)
        os.replace(path + ".new", path)

    env = ["KIND=image", "HOME=/home/of/image", "PATH=/opt/none:/usr/bin:/bin", "PYTHONPATH=/opt/modules", "GOCACHE=/opt/cache",
           "JAVA_TOOL_OPTIONS=-Xmx64m"]
    replace(json.dumps({"Env": env}))
    yield
    replace(before)


WAYS = {"program of the image": ["--", "python3", "-c"], "cold": ["-c"], "warm": ["--warm", "-c"], "cell": ["--rich", "-c"]}
LOOK = "import os, sys; print(*[os.environ[name] for name in ('KIND', 'HOME', 'PATH')], '/opt/modules' in sys.path)"
USUAL = "import os; print(os.environ['GOCACHE'], os.environ['JAVA_TOOL_OPTIONS'])"


@pytest.mark.parametrize("way", WAYS)
def test_environment_of_every_run(variables, way):
    """What the policy sets wins, but for PATH; -e wins over both."""
    options = [word for word in WAYS[way] if word.startswith("--") and word != "--"]
    words = WAYS[way][len(options):]
    run = ("run", "--image", "python", *options)
    assert support.hutch(*run, *words, LOOK).stdout == b"image /tmp /opt/none:/usr/bin:/bin True\n"
    done = support.hutch(*run, "-e", "KIND=mine", "-e", "PATH=/bin", *words, LOOK)
    assert done.stdout == b"mine /tmp /bin True\n", done.stderr
    # What hutch sets by itself gives way to the image, also where a limit makes another value of it.
    for more in ([], ["--memory", "300m"]):
        assert support.hutch(*run, *more, *words, USUAL).stdout == b"/opt/cache -Xmx64m\n"
    done = support.hutch(*run, "-e", "GOCACHE=/mnt/data/.cache/go-build", *words, USUAL)
    assert done.stdout == b"/mnt/data/.cache/go-build -Xmx64m\n", done.stderr


def test_environment_of_other_runs(variables, tmp_path):
    """Of a batch and of a notebook. A root tree that is no image has none."""
    task = {"id": "x", "code": LOOK, "stdin": "", "expected": {"stdout": "image /tmp /opt/none:/usr/bin:/bin True\n"}}
    (tmp_path / "tasks").write_text(json.dumps(task) + "\n")
    for options in ([], ["--memory", "300m"]):
        done = support.hutch("batch", str(tmp_path / "tasks"), "--format", "generic", "--image", "python", *options,
                            timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
    cell = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": LOOK}
    (tmp_path / "x.ipynb").write_text(json.dumps({"nbformat": 4, "nbformat_minor": 4, "metadata": {}, "cells": [cell]}))
    out = tmp_path / "out.ipynb"
    done = support.hutch("run", "--image", "python", str(tmp_path / "x.ipynb"), "-o", str(out), timeout=120)
    assert done.returncode == 0 and "/opt/none:/usr/bin:/bin True" in out.read_text(), done.stderr
    done = support.hutch("run", "--rootfs", support.root_of_image("python"), "-c", "import os; print('KIND' in os.environ)")
    assert done.stdout == b"False\n", done.stderr


HOSTILE = {
    "no object": ([], "'config' of the image's configuration is not an object"),
    "text for a list": ({"Entrypoint": "sh -c x"}, "'Entrypoint' of the image's configuration is not a list"),
    "number in a list": ({"Cmd": ["a", 1]}, "'Cmd' of the image's configuration holds what is not a text"),
    "object for a text": ({"User": {}}, "'User' of the image's configuration is not a text"),
    "too many": ({"Env": ["A=%d" % n for n in range(10000)]}, "'Env' of the image's configuration has more than 1024 texts"),
    "too long": ({"Env": ["A=" + "x" * (10 << 20)]}, None),
    "too long together": ({"Cmd": ["x" * 30000] * 10}, "more than 262144 bytes of texts"),
    "relative directory": ({"WorkingDir": "../.."}, "'WorkingDir' of the image's configuration is '../..', which is not an absolute path"),
    "long directory": ({"WorkingDir": "/" + "x" * 5000}, "which is not an absolute path"),
    "NUL": ({"Cmd": ["a\0b"]}, "JSON with a NUL in a text"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_configurations(image, case, tmp_path):
    config, says = HOSTILE[case]
    done = image(config)
    line = support.sentence(done)
    assert done.returncode == 125 and (says is None or says in line), line
    assert os.listdir(tmp_path / "home/images/trees") == [] == os.listdir(tmp_path / "home/images/tmp")


@pytest.mark.parametrize("text", ["", "[]", "{", '{"Env": 1}', "x" * (2 << 20)], ids=["empty", "list", "broken", "wrong", "long"])
def test_what_is_kept_is_not_believed(image, text, tmp_path):
    """Another's store may hold anything."""
    image(SAYS)
    trees = tmp_path / "home/images/trees"
    path = os.path.join(trees, os.listdir(trees)[0], "config.json")
    with open(path, "w", encoding="ascii") as kept:
        kept.write(text)
    done = image.run("--")
    assert done.returncode == 125 and support.sentence(done)


def test_directory_leads_nowhere_outside(image):
    """A link of the image for the working directory is followed within it."""
    image({**SAYS, "WorkingDir": "/gone/../app"})
    done = image.run("--")
    assert said(done)[2] in (["/app"], ["/mnt/data"])
