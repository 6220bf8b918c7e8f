"""The tarball of `make tarball`, on clean trees of Debian 12 and 13 that have none of the libraries: unpacked and used as an ordinary
user, moved, and removed without a trace. And made twice."""
import filecmp
import glob
import json
import os
import shutil
import subprocess
import sys

import pytest

TREE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TREE, "tests"))

import debian_tree  # noqa: E402  (the path comes first)

BUILD = os.environ.get("HUTCH_TEST_BUILD") or os.path.join(TREE, "build")
IMAGE = os.path.join(debian_tree.IMAGES, "minimal.tar")
SECONDS = 1800
# Of those that are linked in, what no tree has whose package manager works.
LIBRARIES = ("libcgroup.so", "libcjson.so", "libarchive.so", "libspng.so", "libmicrohttpd.so", "libedit.so")
ASK = r"""use IO::Socket::UNIX; my $s = IO::Socket::UNIX->new(Peer => "/tmp/s") or die; my $b = "{\"code\": \"print(6 * 7)\"}";
print $s "POST /v1/run HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: ".length($b)."\r\n\r\n$b"; print <$s>;"""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: trees of Debian")


def tarball(build=BUILD):
    found = glob.glob(os.path.join(build, "hutch-*-linux-*.tar.gz"))
    assert len(found) == 1, "make tarball has made %r in %s" % (found, build)
    return found[0]


@pytest.fixture(scope="module", params=debian_tree.SUITES)
def tree(request):
    with debian_tree.Tree(request.param) as made:
        assert not [path for path in made.files() if os.path.basename(path).startswith(LIBRARIES)]
        shutil.copy(tarball(), made.at("/home/hutch.tar.gz"))
        shutil.copy(IMAGE, made.at("/home/minimal.tar"))
        made.before, made.home_before = made.files(), home_of(made)
        made.user("mkdir apps && tar -xzf /home/hutch.tar.gz -C apps && mv apps/hutch-* apps/hutch")
        yield made


def home_of(made):
    return {os.path.join(where, name) for where, folders, names in os.walk(made.at("/home")) for name in folders + names}


def hutch(made, command, **options):
    return made.user(command, path="/home/user/apps/hutch/bin:/usr/bin:/bin", **options)


def test_an_ordinary_user_runs_it(tree):
    assert hutch(tree, "hutch --version").stdout.startswith("hutch ")
    report = json.loads(hutch(tree, "hutch doctor --json || [ $? -eq 1 ]").stdout)
    assert report["policies"]["default"]["runs"], report["policies"]
    hutch(tree, "mkdir data && hutch rootfs unpack /home/minimal.tar minimal && hutch rootfs verify minimal")
    script = "import os; open('/mnt/data/\u00fc', 'w').write('kept'); print(os.getuid(), os.listdir('/home'))"
    assert hutch(tree, "hutch run --image minimal --data data -c \"%s\"" % script).stdout == "1000 []\n"
    assert hutch(tree, "cat data/\u00fc").stdout == "kept"
    assert hutch(tree, "hutch run --image minimal --warm -c 'print(1 + 1)'").stdout == "2\n"
    assert hutch(tree, "echo '{\"id\": \"a\", \"code\": \"print(6 * 7)\"}' | hutch batch --image minimal - | grep -c '42'").stdout == "1\n"
    assert "not installed: mmdebstrap" in hutch(tree, "hutch rootfs build minimal", status=125).stderr, "the builder is found, and says what it lacks"


def test_it_serves(tree):
    found = hutch(tree, "hutch serve --listen unix:/tmp/s --image minimal 2>/tmp/log & server=$!\n"
                        "until [ -S /tmp/s ]; do kill -0 $server || { cat /tmp/log; exit 1; }; sleep 0.1; done\n"
                        "perl -e '%s'; kill $server; wait $server" % ASK)
    head, body = found.stdout.split("\n\n", 1)
    answer = json.loads(body)
    assert "200" in head.splitlines()[0] and (answer["verdict"], answer["stdout"]) == ("ok", "42\n"), found.stdout


def test_it_can_be_moved(tree):
    hutch(tree, "mv apps/hutch 'apps/an other place' && mkdir run")
    moved = "'/home/user/apps/an other place/bin/hutch'"
    try:
        assert tree.user(moved + " run --image minimal --warm -c 'print(3)'").stdout == "3\n"
        assert tree.user("cd run && ln -s %s h && ./h run --image minimal -c 'print(4)'" % moved).stdout == "4\n"
    finally:
        tree.user("mv 'apps/an other place' apps/hutch && rm -r run")


def test_who_calls_it(tree):
    """A user of a directory service is in no file: the host's getent(1) knows, which alone can load the modules of its own libc."""
    shutil.copytree(tree.at("/home/user/apps/hutch"), tree.at("/home/all"), symlinks=True)
    with open(tree.at("/home/getent"), "w", encoding="ascii") as file:
        file.write('#!/bin/sh\n[ "$1 $2" = "passwd 4711" ] && echo "ada:x:4711:4711::/home/ada:/bin/sh"\n')
    os.chmod(tree.at("/home/getent"), 0o755)
    subprocess.run(["chown", "-R", "0:0", tree.at("/home/all")], check=True)
    real = tree.at("/usr/bin/getent")
    os.rename(real, real + ".real")
    try:
        shutil.copy(tree.at("/home/getent"), real)
        os.makedirs(tree.at("/home/ada/.local"))
        os.chown(tree.at("/home/ada/.local"), 4711, 4711)
        said = tree.user("/home/all/bin/hutch rootfs list", uid="4711").stderr
        assert "'/home/ada/.local/share/hutch/images'" in said, said
        os.unlink(real)
        said = tree.user("/home/all/bin/hutch rootfs list", uid="4711", status=125).stderr
        assert "set HUTCH_HOME" in said, said
    finally:
        os.replace(real + ".real", real)
        for name in ("all", "ada"):
            shutil.rmtree(tree.at("/home/" + name))
        os.unlink(tree.at("/home/getent"))


def test_it_goes_without_a_trace(tree):
    """Last: nothing outside of its directory and of the user's own store was touched."""
    assert tree.files() == tree.before
    tree.user("rm -r apps data .local")
    assert home_of(tree) == tree.home_before


def test_the_same_bytes_from_two_builds(tmp_path):
    """All is compiled and packed again elsewhere, the libraries of Debian's sources too."""
    place = str(tmp_path / "another" / "directory")
    debian_tree.copy_sources(TREE, place)
    done = subprocess.run(["make", "--no-print-directory", "-j", "4", "-C", place, "tarball"], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert filecmp.cmp(tarball(), tarball(os.path.join(place, "build")), shallow=False)
    shutil.rmtree(place)
