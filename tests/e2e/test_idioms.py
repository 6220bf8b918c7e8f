"""Lines that people write: what each does under the policy `default` is what it does under bubblewrap, which has no filter and no limits.

idioms.txt has them, and the differences that are expected, with their reasons. All lines of a section run in one sandbox, by
idiom_driver.py, and once more in one of bubblewrap's with the same root tree and the same environment.
"""
import collections
import contextlib
import json
import os
import re
import shutil
import subprocess

import pytest

import support
from support import root_of_image, run_json

FOLDER = os.path.dirname(os.path.abspath(__file__))
SECONDS = 240  # for one section; some ten are usual
# Each section has the words before a line, an image, and whether a server runs for its lines.
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
# What bubblewrap has in /etc: the first as Debian's installer writes it, the others with the host's /usr only.
ETC = {"hosts": "127.0.0.1\tlocalhost\n127.0.1.1\thutch\n::1\tlocalhost ip6-localhost ip6-loopback\n",
       "passwd": "user:x:1000:1000:user:/tmp:/bin/sh\n", "group": "user:x:1000:\n"}


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
        self.may_differ = said.pop("may differ", None)
        assert not said, "idioms.txt: %r of %r is not known" % (sorted(said), text)
        assert bool(self.differs or self.may_differ) == bool(self.inside), "idioms.txt: a difference has what is inside, and a reason: %r" % text
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


def source(image):
    """Options of `hutch run`."""
    return ["--image", image] if image else ["--rootfs", "host"]


def given(image):
    """What a program inside is given: its environment, as it says, and the limits."""
    result = run_json(*source(image), "--", "/usr/bin/env", "-0", image=None)
    variables = dict(one.split("=", 1) for one in result["stdout"].split("\0") if one)
    return {name: value for name, value in variables.items() if name not in OF_HUTCH}, result["limits"]


def bubblewrap(image, limits, files):
    """The words before a command. @files has descriptors of what stands in for files of /etc."""
    def empty(path, limit, mode):
        return ["--perms", mode, "--size", str(limits[limit]["asked"]), "--tmpfs", path]

    words = ["bwrap", "--unshare-all", "--new-session", "--die-with-parent", "--uid", "1000", "--gid", "1000", "--cap-drop", "ALL",
             "--hostname", "hutch"]
    if image:
        words += ["--ro-bind", root_of_image(image), "/"]
    else:
        words += ["--ro-bind", "/usr", "/usr"]
        for name in ("alternatives", "ssl", "perl", "ld.so.cache", "nsswitch.conf", "services", "protocols", "mime.types"):
            words += ["--ro-bind-try", "/etc/" + name, "/etc/" + name]
        for name in ("bin", "lib", "lib64", "sbin"):
            if os.path.islink("/" + name):
                words += ["--symlink", "usr/" + name, "/" + name]
    for name, number in files.items():
        if name == "hosts" or not image:
            words += ["--perms", "0644", "--ro-bind-data", str(number), "/etc/" + name]
    return [*words, "--proc", "/proc", "--dev", "/dev", *empty("/tmp", "tmp_size", "1777"), "--tmpfs", "/run",
            *empty("/mnt/data", "data_size", "0755"), "--remount-ro", "/", "--chdir", "/mnt/data", "--"]


def start_both(section, tmp_path):
    """The driver inside, and under bubblewrap."""
    words, image, serve = SECTIONS[section]
    with open(os.path.join(FOLDER, "idiom_driver.py"), encoding="utf-8") as file:
        driver = ["/usr/bin/python3", "-c", file.read()]
    job = tmp_path / "job"
    job.write_text(json.dumps({"words": words, "lines": [one.command() for one in IDIOMS[section]], "serve": serve}))
    environment, limits = given(image)
    files = {}
    with contextlib.ExitStack() as stack:
        for name, text in ETC.items():
            (tmp_path / name).write_text(text)
            files[name] = stack.enter_context(open(tmp_path / name, "rb")).fileno()

        def start(command, **options):
            return subprocess.Popen([*command, *driver], stdin=stack.enter_context(open(job, "rb")), stdout=subprocess.PIPE,
                                    stderr=subprocess.PIPE, **options)

        inside = start([support.HUTCH, "run", *source(image), "--timeout", "%ds" % SECONDS, "--"])
        outside = start(["prlimit", "--core=0:", *bubblewrap(image, limits, files)], env=environment, umask=0o022, pass_fds=files.values())
    return inside, outside


def run_both(section, tmp_path):
    """What each line of a section did inside, and outside."""
    image = SECTIONS[section].image
    if image and not os.path.exists(os.path.join(support.hutch_home(), "images", "names", image)):
        pytest.skip("the store has no image '%s' (hutch rootfs build %s)" % (image, image))
    answers = []
    with contextlib.ExitStack() as stack:
        processes = start_both(section, tmp_path)
        for process in processes:
            stack.enter_context(process)
            stack.callback(process.kill)
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
    assert without[0] == idiom.status, "under bubblewrap: %s" % told(without)
    both = "inside:\n%s\nunder bubblewrap:\n%s" % (told(within), told(without))
    if idiom.varies:
        assert within[0] == without[0], both
    elif within == without:
        assert not idiom.differs, "the difference that idioms.txt expects has gone: %s" % idiom.differs
    else:
        assert idiom.inside and idiom.inside in told(within), both


def test_there_are_enough():
    """Each line once, and no section is empty."""
    names = [IDIOMS[section][number].name for section, number in ALL]
    assert len(set(names)) == len(names) and len(names) >= 300
