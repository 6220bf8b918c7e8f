"""Lines that people write: what each does under the policy `default` is what it does under bubblewrap, which has no filter and no limits.

idioms.txt has them, and the differences that are expected, with their reasons. All lines of a section run in one sandbox, by
idiom_driver.py, and once more in one of bubblewrap's with the same root tree and the same environment.
"""
import collections
import json
import os
import re
import resource
import shutil
import subprocess

import pytest

import support
from support import hutch, root_of_image

FOLDER = os.path.dirname(os.path.abspath(__file__))
SECONDS = 240  # for one section; some ten are usual
# Of a section: what stands before a line, the image, and whether there is a server for it to speak to.
Section = collections.namedtuple("Section", "words image serve")
PRELUDE = "import os, sys, signal, socket, subprocess, shutil, tempfile, threading, time\n"
SECTIONS = {
    "shell": Section(["bash", "-c"], "python", False),
    "python": Section(["python3", "-c"], "python", False),
    "node": Section(["node", "-e"], "node", False),
    "git and curl": Section(["bash", "-c"], None, True),  # no image has them: the host's
}
# hutch says so to the Python inside; it is no part of what a program is given.
OF_HUTCH = ("PYTHONPATH", "HUTCH_REPORT_FD")
HOSTS = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n127.0.1.1\thutch\n"  # as Debian's installer writes it


class Idiom:
    """A line of idioms.txt: the command, and behind " ## " what is said of it, see there."""

    def __init__(self, section, text):
        self.section = section
        self.line, *rest = text.split(" ## ")
        said = dict(one.split(": ", 1) for one in rest)
        self.status = int(said.pop("status", 0))
        self.differs = said.pop("differs", None)
        self.inside = said.pop("inside", None)
        self.varies = said.pop("varies", None)
        self.open = said.pop("open", None)
        assert not said, "idioms.txt: %r of %r is not known" % (sorted(said), text)
        assert bool(self.differs) == bool(self.inside), "idioms.txt: a difference has what is inside, and a reason: %r" % text
        self.name = "%s: %s" % (section, self.line)

    def command(self):
        return PRELUDE + self.line.replace(" ;; ", "\n") if self.section == "python" else self.line


def read():
    found = {}
    with open(os.path.join(FOLDER, "idioms.txt"), encoding="utf-8") as file:
        for line in file.read().splitlines():
            if heading := re.fullmatch(r"\[(.+)\]", line):
                section = heading[1]
                found[section] = []
            elif line and not line.startswith("#"):
                found[section].append(Idiom(section, line))
    assert list(found) == list(SECTIONS)
    return found


IDIOMS = read()
ALL = [(section, number) for section, idioms in IDIOMS.items() for number in range(len(idioms))]


def environment(image):
    """What a program inside is given, as it says."""
    done = hutch("run", *(["--image", image] if image else ["--rootfs", "host"]), "--", "/usr/bin/env", "-0")
    assert done.returncode == 0, done
    variables = dict(one.split("=", 1) for one in done.stdout.decode().split("\0") if one)
    return {name: value for name, value in variables.items() if name not in OF_HUTCH}


def bubblewrap(image):
    """The words before a command, and the environment."""
    words = ["bwrap", "--unshare-all", "--new-session", "--die-with-parent", "--uid", "1000", "--gid", "1000", "--cap-drop", "ALL",
             "--hostname", "hutch"]
    if image:
        words += ["--ro-bind", root_of_image(image), "/", "--ro-bind-data", "10", "/etc/hosts"]
    else:
        words += ["--ro-bind", "/usr", "/usr"]
        for name in ("alternatives", "ssl", "perl", "ld.so.cache", "nsswitch.conf", "services", "protocols", "mime.types"):
            words += ["--ro-bind-try", "/etc/" + name, "/etc/" + name]
        for name in ("bin", "lib", "lib64", "sbin"):
            if os.path.islink("/" + name):
                words += ["--symlink", "usr/" + name, "/" + name]
        words += ["--ro-bind-data", "10", "/etc/hosts", "--ro-bind-data", "11", "/etc/passwd", "--ro-bind-data", "12", "/etc/group"]
    words += ["--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--size", str(64 << 20), "--tmpfs", "/tmp", "--tmpfs", "/run",
              "--size", str(1 << 30), "--tmpfs", "/mnt/data", "--chdir", "/mnt/data", "--"]
    return words


def outside(image, driver, job, tmp_path):
    texts = {10: HOSTS, 11: "user:x:1000:1000:user:/tmp:/bin/bash\n", 12: "user:x:1000:\n"}
    for number, text in texts.items():
        (tmp_path / str(number)).write_text(text)
    # bubblewrap reads the three files from these descriptors.
    script = 'exec "$@" ' + " ".join("%d<'%s'" % (number, tmp_path / str(number)) for number in texts)
    core = resource.getrlimit(resource.RLIMIT_CORE)[1]
    return subprocess.Popen(["bash", "-c", script, "bash", *bubblewrap(image), "/usr/bin/python3", "-c", driver], env=environment(image),
                            stdin=open(job, "rb"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, umask=0o022,
                            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, core)))


def inside(image, driver, job):
    where = ["--image", image] if image else ["--rootfs", "host"]
    return subprocess.Popen([support.HUTCH, "run", *where, "--timeout", "%ds" % SECONDS, "--", "/usr/bin/python3", "-c", driver],
                            stdin=open(job, "rb"), stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def run_both(section, tmp_path):
    """What each line of a section did inside, and outside."""
    words, image, serve = SECTIONS[section]
    if image and not os.path.exists(os.path.join(support.hutch_home(), "images", "names", image)):
        pytest.skip("the store has no image '%s' (hutch rootfs build %s)" % (image, image))
    with open(os.path.join(FOLDER, "idiom_driver.py"), encoding="utf-8") as file:
        driver = file.read()
    job = tmp_path / "job"
    job.write_text(json.dumps({"words": words, "lines": [one.command() for one in IDIOMS[section]], "serve": serve}))
    answers = []
    processes = [inside(image, driver, job), outside(image, driver, job, tmp_path)]
    for process in processes:
        out, err = process.communicate(timeout=SECONDS + 30)
        assert process.returncode == 0, (process.args[:3], process.returncode, out[-1000:], err[-2000:])
        answers.append(json.loads(out))
    return answers


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Both runs of a section, when its first test asks for them."""
    if not shutil.which("bwrap"):
        support.miss("bubblewrap is not installed")
    tried = subprocess.run(["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        support.miss("bubblewrap cannot make a sandbox here: " + tried.stderr.strip())
    found = {}

    def of(section):
        if section not in found:
            try:
                found[section] = run_both(section, tmp_path_factory.mktemp("idioms"))
            except (Exception, pytest.skip.Exception) as error:
                found[section] = error
        if isinstance(found[section], BaseException):
            raise found[section]
        return found[section]
    return of


def told(result):
    return "status %s\n%s%s" % tuple(result)


@pytest.mark.parametrize("section, number", ALL, ids=[IDIOMS[section][number].name for section, number in ALL])
def test_idiom(results, section, number):
    idiom = IDIOMS[section][number]
    within, without = (answers[number] for answers in results(section))
    if idiom.open and within != without:
        pytest.xfail("open: " + idiom.open)
    assert without[0] == idiom.status, "under bubblewrap: %s" % told(without)
    if idiom.varies:
        assert within[0] == without[0], "inside:\n%s\nunder bubblewrap:\n%s" % (told(within), told(without))
    elif idiom.differs is None:
        assert within == without, "inside:\n%s\nunder bubblewrap:\n%s" % (told(within), told(without))
    else:
        assert within != without, "the difference that idioms.txt expects has gone: %s" % idiom.differs
        assert idiom.inside in told(within), "inside:\n%s\nunder bubblewrap:\n%s" % (told(within), told(without))


def test_there_are_enough():
    """Each line once, and no section is empty."""
    names = [IDIOMS[section][number].name for section, number in ALL]
    assert len(set(names)) == len(names) and len(names) >= 300
