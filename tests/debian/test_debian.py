"""hutch on the Debian that this machine does not have, 12 or 13, from a copy of the sources: built, the unit lane, and what `make
demo` does first, all of it as an ordinary user, with that release's compiler, libraries, Python and mmdebstrap."""
import os
import shutil
import sys

import pytest

TREE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TREE, "tests"))

import debian_tree  # noqa: E402  (the path comes first)

IMAGES = debian_tree.IMAGES
SECONDS = 1800
# Of what .ci/packages has for tests, what the unit lane takes.
UNIT = "libcmocka-dev musl-tools procps python3-pytest python3-pytest-xdist util-linux"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: trees of Debian")


@pytest.fixture(scope="module")
def tree():
    with debian_tree.Tree(debian_tree.OTHER_SUITE) as made:
        debian_tree.copy_sources(TREE, made.at("/home/user/hutch"))
        made.root("apt-get -q=2 update && apt-get -q=2 install --no-install-recommends make %s >&2 && cd /home/user/hutch && "
                  ".ci/packages build images >&2 && chown -R user:user . && usermod --add-subuids 100000-165535 --add-subgids 100000-165535 user" % UNIT)
        made.user("make -j 4 -C hutch CFLAGS='-O2 -g -Werror' all unit", seconds=SECONDS)
        yield made


def test_the_demo(tree):
    """Its image is built by the builder of the tree, as root, who alone has a network there."""
    tree.root("mkdir -p /home/user/images && /home/user/hutch/rootfs/build.sh python /home/user/images/python.tar >&2 && chown -R user:user /home/user/images",
              seconds=SECONDS)
    said = tree.user("cd hutch && build/hutch rootfs unpack ../images/python.tar python && examples/demo build/hutch build/demo", seconds=SECONDS).stdout
    assert "accident_factors.png" in said and os.path.getsize(tree.at("/home/user/hutch/build/demo/report.md")) > 0, said


def test_the_unit_lane(tree):
    for name in ("minimal", "python", "node"):
        target = tree.at("/home/user/images/%s.tar" % name)
        if not os.path.exists(target):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copy(os.path.join(IMAGES, name + ".tar"), target)
    said = tree.user("HUTCH_TEST_IMAGES=/home/user/images hutch/tests/run unit", seconds=SECONDS, net=()).stdout
    print(said[-2000:])
    assert " 0 failed" in said, said[-3000:]
