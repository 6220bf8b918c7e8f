"""Images of other stores, which HUTCH_IMAGES names, and hutch rootfs share."""
import json
import os
import stat
import subprocess

import pytest

import support
from rootfs_archives import file, folder, layer, oci

ANOTHER = 54321  # a user of the host who has nothing


@pytest.fixture
def home(tmp_path):
    path = tmp_path / "home"
    yield str(path)
    support.remove_tree(str(path))


@pytest.fixture
def given():
    """The store of the tests: another's, as it were."""
    return os.path.join(support.hutch_home(), "images")


def small(tmp_path, name):
    return oci(str(tmp_path / (name + ".tar")), [layer(folder("usr"), file("usr/which", name.encode()))])


def unpack(home, archive, name):
    done = support.hutch("rootfs", "unpack", archive, name, env={"HUTCH_HOME": home})
    assert done.returncode == 0, done.stderr
    return done.stdout.decode().strip().partition(":")[2]


def listed(env):
    return [(image["names"], image["store"]) for image in json.loads(support.hutch("rootfs", "list", "--json", env=env).stdout)]


@pytest.mark.parametrize("words", [[], ["--warm"]])
def test_an_image_of_another_store(home, given, words):
    done = support.hutch("run", *words, "--image", support.IMAGE, "-c", "print(6 * 7)",
                         env={"HUTCH_HOME": home, "HUTCH_IMAGES": given + ":"})
    assert (done.returncode, done.stdout) == (0, b"42\n"), done.stderr
    assert os.listdir(os.path.join(home, "images", "trees")) == []


def test_batch_and_serve_take_it_too(home, given, tmp_path):
    """What goes by the library finds it the same way."""
    (tmp_path / "one.jsonl").write_text(json.dumps({"id": "a", "code": "print(1)"}) + "\n")
    done = support.hutch("batch", "--image", support.IMAGE, str(tmp_path / "one.jsonl"), env={"HUTCH_HOME": home, "HUTCH_IMAGES": given})
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[0])["stdout"] == "1\n"


def test_own_images_come_first(home, tmp_path):
    other = str(tmp_path / "other")
    own, foreign, only = (unpack(where, small(tmp_path, text), name)
                          for where, text, name in ((home, "own", "one"), (other, "foreign", "one"), (other, "only", "two")))
    env = {"HUTCH_HOME": home, "HUTCH_IMAGES": other + "/images"}
    assert listed(env) == [(["one"], home + "/images"), (["one"], other + "/images"), (["two"], other + "/images")]
    table = support.hutch("rootfs", "list", env=env).stdout.decode().splitlines()
    assert [line.split()[:2] for line in table[1:]] == [["one", own[:12]], ["one", foreign[:12]], ["two", only[:12]]]
    assert [" in " + other in line for line in table[1:]] == [False, True, True]
    assert support.hutch("rootfs", "verify", "two", env=env).stdout == b"two: unchanged\n"
    with open(os.path.join(other, "images", "trees", foreign, "root", "usr", "which"), "a", encoding="ascii") as changed:
        changed.write("!")
    assert support.hutch("rootfs", "verify", "one", env=env).returncode == 0  # the own one
    done = support.hutch("rootfs", "remove", "two", env=env)
    assert done.returncode == 125 and os.path.isdir(os.path.join(other, "images", "trees", only)), done.stderr


def test_a_store_that_cannot_be_written(home, tmp_path):
    """Nothing is made, swept or locked for writing there."""
    other = str(tmp_path / "other")
    unpack(other, small(tmp_path, "x"), "one")
    left = os.path.join(other, "images", "tmp", "left")
    os.mkdir(left)
    os.unlink(os.path.join(other, "images", "lock"))
    before = support_tree(other)
    for name in ("images", "images/names", "images/trees", "images/tmp"):
        os.chmod(os.path.join(other, name), 0o555)
    assert listed({"HUTCH_HOME": home, "HUTCH_IMAGES": other + "/images"}) == [(["one"], other + "/images")]
    assert support_tree(other) == before


def test_names_that_are_none(home, tmp_path):
    """A store of another's is shown at a terminal."""
    other = str(tmp_path / "other")
    digest = unpack(other, small(tmp_path, "x"), "one")
    for name in ("a\x1b[2Jb", "a\nb", "-q", "x" * 250, ".hidden", "a b"):
        with open(os.path.join(other, "images/names", name), "w", encoding="ascii") as file:
            file.write("sha256:%s\n" % digest)
    env = {"HUTCH_HOME": home, "HUTCH_IMAGES": other + "/images"}
    assert listed(env) == [(["one"], other + "/images")]
    assert b"there are: one (" in support.hutch("run", "--image", "none", "-c", "1", env=env).stderr


def support_tree(path):
    return sorted(os.path.join(where, name) for where, folders, files in os.walk(path) for name in folders + files)


BAD = {
    "relative": ("images", "'images', which is not an absolute path"),
    "missing": ("/nonexistent/images", "no store of images that can be read at '/nonexistent/images'"),
    "no store": ("/usr", "no store of images that can be read at '/usr'"),
    "too many": (":".join(["{given}"] * 17), "more than 16 paths"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_list_of_stores(home, given, case):
    value, says = BAD[case]
    env = {"HUTCH_HOME": home, "HUTCH_IMAGES": value.replace("{given}", given)}
    support.refused("run", "--image", "none-such", "-c", "1", env=env, says=("HUTCH_IMAGES", says))
    support.refused("rootfs", "list", env=env, says=("HUTCH_IMAGES", says))


def test_an_image_that_none_has(home, given):
    support.refused("run", "--image", "none-such", "-c", "1", env={"HUTCH_HOME": home, "HUTCH_IMAGES": given},
                    says=("'none-such'", "HUTCH_IMAGES", support.IMAGE))


def test_doctor_counts_them(home, given):
    def images(**env):
        report = json.loads(support.hutch("doctor", "--json", env={"HUTCH_HOME": home, **env}).stdout)
        return {check["name"]: check for check in report["checks"]}["images"]["detail"], [name for image in report["images"] for name in image["names"]]
    assert images()[1] == []
    detail, names = images(HUTCH_IMAGES=given)
    assert support.IMAGE in names and support.IMAGE in detail
    assert "HUTCH_IMAGES" in images(HUTCH_IMAGES="/nonexistent")[0]
    assert not os.path.exists(home)


def modes(home):
    return {os.path.relpath(path, home): stat.S_IMODE(os.lstat(path).st_mode)
            for path in support_tree(home) if "/root" not in path}


def test_share(home, tmp_path):
    """One image of two: what is not shared stays as it was."""
    shared, kept = (unpack(home, small(tmp_path, name), name) for name in ("shared", "kept"))
    before = modes(home)
    done = support.hutch("rootfs", "share", "shared", env={"HUTCH_HOME": home})
    assert done.returncode == 0 and done.stdout.decode() == "HUTCH_IMAGES=%s/images\n" % home, done.stderr
    tree = "images/trees/" + shared
    assert {path: mode for path, mode in modes(home).items() if before[path] != mode} == {
        "images": 0o755, "images/names": 0o755, "images/names/shared": 0o644, "images/trees": 0o755, tree: 0o755,
        tree + "/record": 0o644, tree + "/image.json": 0o644, tree + "/config.json": 0o644}
    # pytest's directories are the user's own, and so is hutch's home.
    assert b"other users cannot enter '" in done.stderr
    assert kept != shared
    support.refused("rootfs", "share", "none-such", env={"HUTCH_HOME": home}, says="no image 'none-such'")
    support.refused("rootfs", "share", env={"HUTCH_HOME": home}, says="usage: hutch rootfs share NAME...")


@pytest.mark.skipif(not support.is_root(), reason="needs root: another user of the host")
def test_another_user(tmp_path_factory):
    """He runs it and checks it, and does not see what was not shared."""
    place = subprocess.run(["mktemp", "-d", "/var/tmp/hutch-shared-XXXXXX"], check=True, capture_output=True, text=True).stdout.strip()
    home = place + "/home"
    try:
        os.mkdir(home, 0o711)
        os.chmod(place, 0o711)
        unpack(home, small(tmp_path_factory.mktemp("small"), "kept"), "kept")
        tree = os.path.dirname(support.root_of_image("minimal"))
        subprocess.run(["cp", "-a", tree, home + "/images/trees/"], check=True)
        subprocess.run(["cp", "-a", os.path.join(support.hutch_home(), "images/names/minimal"), home + "/images/names/"], check=True)
        done = support.hutch("rootfs", "share", "minimal", env={"HUTCH_HOME": home})
        assert done.returncode == 0 and done.stderr == b"", done.stderr
        os.mkdir(place + "/another", 0o700)
        os.chown(place + "/another", ANOTHER, ANOTHER)

        def another(*words):
            return subprocess.run([support.HUTCH, *words], user=ANOTHER, group=ANOTHER, extra_groups=[], cwd="/", capture_output=True, check=False,
                                  timeout=60, env={"PATH": os.environ["PATH"], "HUTCH_HOME": place + "/another", "HUTCH_IMAGES": home + "/images"})

        done = another("run", "--image", "minimal", "-c", "import os; print(os.getuid())")
        assert (done.returncode, done.stdout) == (0, b"1000\n"), done.stderr
        assert [image["names"] for image in json.loads(another("rootfs", "list", "--json").stdout)] == [["minimal"]]
        assert another("rootfs", "verify", "minimal").stdout == b"minimal: unchanged\n"
        done = another("run", "--image", "kept", "-c", "1")
        assert done.returncode == 125 and b"no image 'kept'" in done.stderr, done.stderr
        # What he runs on is not removed under him.
        held = subprocess.Popen([support.HUTCH, "run", "--image", "minimal", "-c", "print(1, flush=True); input()"], user=ANOTHER, group=ANOTHER,
                                extra_groups=[], cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                env={"PATH": os.environ["PATH"], "HUTCH_HOME": place + "/another", "HUTCH_IMAGES": home + "/images"})
        assert held.stdout.readline() == b"1\n"
        support.refused("rootfs", "remove", "minimal", env={"HUTCH_HOME": home}, says="in use")
        held.communicate(b"\n", timeout=60)
        assert support.hutch("rootfs", "remove", "minimal", env={"HUTCH_HOME": home}).returncode == 0
    finally:
        support.remove_tree(place)
