"""The first run: an image that is in no store is built when the user wants it, by a stand-in for the builder here."""
import os

import pytest

import support
from rootfs_archives import file, layer, oci

LOGGED = "the stand-in builds %s"


@pytest.fixture
def env(tmp_path):
    folder = tmp_path / "builder"
    folder.mkdir()
    oci(str(folder / "image.tar"), [layer(file("usr/which", b"stand-in"))])
    script = folder / "build.sh"
    script.write_text('#!/bin/sh\necho "%s" >&2\n[ ! -e "${0%%/*}/fails" ] || exit 1\ncp "${0%%/*}/image.tar" "$2"\n' % LOGGED.replace("%s", "$1"))
    script.chmod(0o755)
    yield {"HUTCH_HOME": str(tmp_path / "home"), "HUTCH_ROOTFS_DIR": str(folder)}
    support.remove_tree(str(tmp_path / "home"))


def built(env):
    try:
        return sorted(os.listdir(os.path.join(env["HUTCH_HOME"], "images", "names")))
    except FileNotFoundError:
        return []


@pytest.mark.parametrize("answer", [b"\n", b"y\n", b"YES\n"])
def test_wanted(env, answer):
    shown, _ = support.at_terminal(env, answer, "run", "-c", "1")
    assert "no image 'python' yet" in shown and LOGGED % "python" in shown and built(env) == ["python"]
    shown, _ = support.at_terminal(env, b"", "run", "-c", "1")  # it is asked once
    assert "[Y/n]" not in shown and "no image" not in shown, shown


@pytest.mark.parametrize("answer", [b"n\n", b"nothing of it\n", b"\x04"])
def test_not_wanted(env, answer):
    shown, status = support.at_terminal(env, answer, "run", "-c", "1")
    assert status == 125 and "hutch rootfs build python" in shown and LOGGED % "python" not in shown and built(env) == []


def test_nobody_to_ask(env):
    """Without a terminal nothing is fetched that was not asked for."""
    support.refused("run", "-c", "1", env=env, says="hutch rootfs build python")
    assert built(env) == []


def test_yes(env):
    done = support.hutch("run", "--yes", "--image", "minimal", "-c", "1", env=env)
    assert built(env) == ["minimal"] and (LOGGED % "minimal").encode() in done.stderr and done.stdout == b"", done


def test_another_release(env):
    usual, other = support.releases()[:2]
    support.hutch("run", "--yes", "--image", "python-" + other, "-c", "1", env=env)
    assert built(env) == ["python-" + other]
    support.refused("run", "--yes", "--image", "python-" + usual, "-c", "1", env=env, says="no image 'python-%s'" % usual)
    assert built(env) == ["python-" + other]


def test_what_is_no_flavour(env):
    support.refused("run", "--yes", "--image", "alpine", "-c", "1", env=env, says="no image 'alpine'")
    assert built(env) == []


@pytest.mark.parametrize("words,status", [(["missing.py"], 127), (["missing.ipynb"], None), (["--rootfs", "host", "-c", "print(1)"], 0), (["-q", "-c", "1"], 125)])
def test_not_asked(env, words, status):
    """For a program that is not there, for none that needs it, and with -q."""
    shown, code = support.at_terminal(env, b"", "run", *words)
    assert "[Y/n]" not in shown and built(env) == [], shown
    assert code == status or (status is None and code != 0)


def test_builder_that_fails(env):
    open(os.path.join(env["HUTCH_ROOTFS_DIR"], "fails"), "w", encoding="ascii").close()
    done = support.hutch("run", "--yes", "-c", "1", env=env)
    assert done.returncode == 125 and b"the image 'python' could not be built" in done.stderr and built(env) == [], done.stderr
    shown, status = support.at_terminal(env, b"\n", "run", "-c", "1")
    assert status == 125 and "could not be built" in shown and built(env) == []
