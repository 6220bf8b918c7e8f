"""The packages of `make deb`, on a clean tree of the Debian that they were built on: installed, used as an ordinary user, and
removed without a trace.

Needs root, for a tree in which packages can be installed, and Debian's archive. pivot_root(2) makes the tree the root directory: in
a chroot(2) no user can make a user namespace."""
import glob
import json
import os
import shutil
import subprocess
import tempfile

import pytest

TREE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DEBS = os.path.join(os.environ.get("HUTCH_TEST_BUILD") or os.path.join(TREE, "build"), "deb")
RELEASES = subprocess.run([os.path.join(TREE, "rootfs", "packages.sh"), "releases"], stdout=subprocess.PIPE, text=True, check=True).stdout
IMAGE = os.path.join(os.environ.get("HUTCH_TEST_IMAGES") or os.path.join(TREE, "build", "images", RELEASES.split()[0]), "minimal.tar")
with open("/etc/os-release", encoding="utf-8") as release:
    SUITE = dict(line.rstrip().partition("=")[::2] for line in release)["VERSION_CODENAME"]
SECONDS = 900
PACKAGES = ["hutch", "libhutch1", "libhutch-dev", "hutch-doc"]

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: trees in which packages can be installed")


def files_below(tree):
    """Every name but those that the package manager itself keeps or that change by themselves."""
    found = set()
    for where, folders, files in os.walk(tree):
        below = os.path.relpath(where, tree)
        folders[:] = [name for name in folders if os.path.join(below, name) not in ("./proc", "./sys", "./dev", "./tmp", "./run", "./home", "./debs")]
        found |= {os.path.normpath(os.path.join(below, name)) for name in folders + files}
    return {name for name in found if not name.startswith(("var/lib/dpkg/", "var/lib/apt/", "var/cache/", "var/log/", "etc/ld.so.cache"))}


class Tree:
    def __init__(self, suite):
        self.place = tempfile.mkdtemp(prefix="hutch-deb-", dir="/var/tmp")
        self.path = os.path.join(self.place, "root")
        done = subprocess.run(["unshare", "--mount", "mmdebstrap", "--quiet", "--variant=minbase", "--include=gcc,libc6-dev,pkg-config,man-db", suite, self.path],
                              capture_output=True, text=True, timeout=SECONDS, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        os.makedirs(self.path + "/debs")
        for deb in glob.glob(DEBS + "/*.deb"):
            if "dbgsym" not in deb:
                shutil.copy(deb, self.path + "/debs")

    def root(self, command):
        """As root, by chroot: for the package manager, which has the host's network."""
        script = 'mount --rbind /dev "$1/dev" && mount -t proc proc "$1/proc" && cp /etc/resolv.conf "$1/etc/resolv.conf" && exec chroot "$1" sh -c "$2"'
        done = subprocess.run(["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", self.path, command], capture_output=True, text=True,
                              timeout=SECONDS, check=False, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"})
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout

    def user(self, command, status=0):
        """As an ordinary user of it, without any privilege and without a network."""
        script = """set -e
            mount --bind "$1" "$1"; cd "$1"; mkdir -p old
            mount -t proc proc proc; mount --rbind /dev dev; mount -t tmpfs -o mode=1777 tmpfs tmp
            pivot_root . old; umount -l /old; rmdir /old; cd /home/user
            exec setpriv --reuid user --regid user --clear-groups --inh-caps=-all --bounding-set=-all \\
                env -i HOME=/home/user PATH=/usr/bin:/bin sh -c "$2" """
        words = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--net", "--ipc", "sh", "-c", script, "sh", self.path, command]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False, stdin=subprocess.DEVNULL,
                              env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})
        assert done.returncode == status, (done.returncode, done.stdout[-2000:], done.stderr[-2000:])
        return done.stdout

    def close(self):
        shutil.rmtree(self.place)


@pytest.fixture(scope="module")
def tree():
    assert glob.glob(DEBS + "/hutch_*.deb"), "make deb has made no packages in " + DEBS
    made = Tree(SUITE)
    made.root("apt-get -q update && useradd --create-home user")
    made.before = files_below(made.path)
    made.root("apt-get -qy --no-install-recommends install /debs/*.deb")
    yield made
    made.close()


def test_an_ordinary_user_runs_it(tree):
    assert tree.user("hutch --version").startswith("hutch ")
    report = json.loads(tree.user("hutch doctor --json || [ $? -eq 1 ]"))
    assert report["policies"]["default"]["runs"], report["policies"]
    shutil.copy(IMAGE, tree.path + "/home/user/minimal.tar")
    tree.user("mkdir data && hutch rootfs unpack minimal.tar minimal")
    script = "import os; open('/mnt/data/x', 'w').write('kept'); print(os.getuid(), os.listdir('/home'))"
    assert tree.user("hutch run --image minimal --data data -c \"%s\"" % script) == "1000 []\n"
    assert tree.user("cat data/x") == "kept"
    assert tree.user("echo '{\"id\": \"a\", \"code\": \"print(6 * 7)\"}' | hutch batch --image minimal - | grep -c '42'") == "1\n"


def test_a_program_is_made_with_it(tree):
    shutil.copy(os.path.join(TREE, "examples/embed.c"), tree.path + "/home/user/embed.c")
    tree.user("cc -Wall -Werror embed.c $(pkg-config --cflags --libs libhutch) -o embed")
    tree.user("hutch rootfs unpack minimal.tar python && ./embed 3")
    assert "libhutch.so.1" in tree.user("ldd ./embed")


def test_it_is_told_of(tree):
    for page in ("1/hutch", "1/hutch-serve", "1/hutch-rootfs", "3/libhutch"):
        section, name = page.split("/")
        assert tree.user("man -w %s %s" % (section, name)).strip()
    for path in ("/usr/share/hutch-data/apparmor/hutch", "/usr/share/hutch-data/seccomp-hutch.json", "/usr/share/hutch-data/policies/default.json",
                 "/usr/share/bash-completion/completions/hutch"):
        assert os.path.isfile(tree.path + path), path
    assert "hutch run" in tree.user("hutch completion bash; hutch run --help")


def test_it_goes_without_a_trace(tree):
    """Last: what is left is the user's own."""
    tree.root("apt-get -qy purge %s && apt-get -qy purge --autoremove && apt-get clean" % " ".join(PACKAGES))
    assert files_below(tree.path) - tree.before == set()
