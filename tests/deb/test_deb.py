"""The packages of `make deb`, on clean trees of Debian 12 and 13: installed, used as an ordinary user, and removed without a trace.

Those of the other release than this machine's are built there, in a tree with what .ci/packages names: libraries have other names
on each (libcgroup2 and libcgroup3, libarchive13 and libarchive13t64), so packages that were built on one cannot be installed on the
other. lintian of each release looks at its own."""
import glob
import json
import os
import shutil
import sys

import pytest

TREE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TREE, "tests"))

import debian_tree  # noqa: E402  (the path comes first)

DEBS = os.path.join(os.environ.get("HUTCH_TEST_BUILD") or os.path.join(TREE, "build"), "deb")
IMAGE = os.path.join(debian_tree.IMAGES, "minimal.tar")
SECONDS = 1800
PACKAGES = ["hutch", "libhutch1", "libhutch-dev", "hutch-doc"]

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: trees in which packages can be installed")


@pytest.fixture(scope="session")
def others(tmp_path_factory):
    """The packages of the release that this machine does not have."""
    target = str(tmp_path_factory.mktemp("debs"))
    with debian_tree.Tree(debian_tree.OTHER_SUITE) as made:
        debian_tree.copy_sources(TREE, made.at("/hutch"))
        # make deb: debhelper, and lintian, whose errors and warnings are failures.
        made.root("apt-get -q=2 update && apt-get -q=2 install make >&2 && cd /hutch && .ci/packages build deb && make deb", seconds=SECONDS)
        for deb in glob.glob(made.at("/hutch/build/deb/*.deb")):
            shutil.copy(deb, target)
    return target


@pytest.fixture(scope="module", params=debian_tree.SUITES)
def tree(request):
    where = DEBS if request.param == debian_tree.HOST_SUITE else request.getfixturevalue("others")
    debs = [deb for deb in glob.glob(where + "/*.deb") if "dbgsym" not in deb]
    assert sorted(os.path.basename(deb).split("_")[0] for deb in debs) == sorted(PACKAGES), "make deb has made %r in %s" % (debs, where)
    with debian_tree.Tree(request.param, ["gcc", "libc6-dev", "pkg-config", "man-db"]) as made:
        made.root("apt-get -q update")
        made.before = made.files()
        os.mkdir(made.at("/debs"))
        for deb in debs:
            shutil.copy(deb, made.at("/debs"))
        made.root("apt-get -qy --no-install-recommends install /debs/*.deb")
        yield made


def test_an_ordinary_user_runs_it(tree):
    assert tree.user("hutch --version").stdout.startswith("hutch ")
    report = json.loads(tree.user("hutch doctor --json || [ $? -eq 1 ]").stdout)
    assert report["policies"]["default"]["runs"], report["policies"]
    shutil.copy(IMAGE, tree.at("/home/user/minimal.tar"))
    tree.user("mkdir data && hutch rootfs unpack minimal.tar minimal")
    script = "import os; open('/mnt/data/x', 'w').write('kept'); print(os.getuid(), os.listdir('/home'))"
    assert tree.user("hutch run --image minimal --data data -c \"%s\"" % script).stdout == "1000 []\n"
    assert tree.user("cat data/x").stdout == "kept"
    assert tree.user("echo '{\"id\": \"a\", \"code\": \"print(6 * 7)\"}' | hutch batch --image minimal - | grep -c '42'").stdout == "1\n"


def test_a_program_is_made_with_it(tree):
    shutil.copy(os.path.join(TREE, "examples/embed.c"), tree.at("/home/user/embed.c"))
    tree.user("cc -Wall -Werror embed.c $(pkg-config --cflags --libs libhutch) -o embed")
    tree.user("hutch rootfs unpack minimal.tar python && ./embed 3")
    assert "libhutch.so.1" in tree.user("ldd ./embed").stdout


def test_it_is_told_of(tree):
    for page in ("1/hutch", "1/hutch-serve", "1/hutch-rootfs", "3/libhutch"):
        section, name = page.split("/")
        assert tree.user("man -w %s %s" % (section, name)).stdout.strip()
    for path in ("/usr/share/hutch-data/apparmor/hutch", "/usr/share/hutch-data/seccomp-hutch.json", "/usr/share/hutch-data/policies/default.json",
                 "/usr/share/bash-completion/completions/hutch"):
        assert os.path.isfile(tree.at(path)), path
    assert "hutch run" in tree.user("hutch completion bash; hutch run --help").stdout


def test_apparmor_reads_the_profile():
    """AppArmor 4, which Debian 13 has; without a kernel that has it, so that it is read and not loaded."""
    with debian_tree.Tree("trixie", ["apparmor"]) as made:
        shutil.copy(os.path.join(TREE, "debian/apparmor/hutch"), made.at("/home/user/profile"))
        made.root("apparmor_parser --skip-kernel-load --skip-cache --stdout /home/user/profile >/home/user/binary && test -s /home/user/binary")


def test_it_goes_without_a_trace(tree):
    """Last: what is left is the user's own. apt keeps what another package recommends or suggests, as libc6 does a library of ours."""
    tree.root("apt-get -qy purge %s && apt-get -qy -o APT::AutoRemove::RecommendsImportant=false -o APT::AutoRemove::SuggestsImportant=false "
              "purge --autoremove && apt-get clean" % " ".join(PACKAGES))
    assert tree.files() - tree.before == set()
