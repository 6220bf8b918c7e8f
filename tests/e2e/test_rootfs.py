"""hutch rootfs: archives of every kind come out as the right tree; hostile ones change nothing; the store keeps
its promises against a second process and against being killed."""
import contextlib
import fcntl
import glob
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import tarfile
import threading

import pytest

import rootfs_archives as make
import support
from rootfs_archives import docker_new, docker_old, file, folder, hardlink, layer, oci, oci_folder, symlink

MOUNT_POINTS = {"proc", "dev", "tmp", "run", "sys", "mnt", "mnt/data", "etc"}
USER = b"user:x:1000:1000:user:/tmp:/bin/sh\n"


@pytest.fixture
def home(tmp_path):
    """A store of its own, and a directory beside it that nothing may touch."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("untouched")
    before = describe(str(outside))
    path = tmp_path / "home"
    yield str(path)
    assert describe(str(outside)) == before, "something outside of the store changed"
    support.remove_tree(str(path))


def rootfs(home, *args, **options):
    return support.hutch("rootfs", *args, env={"HUTCH_HOME": home}, **options)


def unpack(home, archive, *args):
    """Unpacks, and returns the tree as describe() has it."""
    done = rootfs(home, "unpack", str(archive), *args)
    assert done.returncode == 0, done.stderr
    digest = re.fullmatch(rb"sha256:([0-9a-f]{64})\n", done.stdout).group(1).decode()
    return describe(tree_of(home, digest))


def tree_of(home, digest):
    return os.path.join(home, "images", "trees", digest, "root")


def describe(root):
    """{path: ("d", mode) | ("f", mode, content) | ("l", target) | ("?", mode)}, unreadable content as None."""
    found = {}
    for where, dirs, files in os.walk(root):
        for name in dirs + files:
            path = os.path.join(where, name)
            info = os.lstat(path)
            mode = stat.S_IMODE(info.st_mode)
            if stat.S_ISLNK(info.st_mode):
                value = ("l", os.readlink(path))
            elif stat.S_ISDIR(info.st_mode):
                value = ("d", mode)
            elif stat.S_ISREG(info.st_mode):
                content = None
                if info.st_size == 0:
                    content = b""
                elif os.access(path, os.R_OK):
                    with open(path, "rb") as opened:
                        content = opened.read()
                value = ("f", mode, content)
            else:
                value = ("?", mode)
            found[os.path.relpath(path, root)] = value
    return found


def beyond_mount_points(tree):
    """Without what every tree gets."""
    return {path: value for path, value in tree.items() if path not in MOUNT_POINTS | {"etc/passwd", "etc/group"}}


def store_is_empty(home):
    return all(os.listdir(os.path.join(home, "images", name)) == [] for name in ("names", "trees", "tmp"))


# --- what comes out ---------------------------------------------------------------------------------------------

BASE = layer(
    folder("./"), folder("usr"), folder("usr/bin"), symlink("bin", "usr/bin"), file("usr/bin/tool", "tool", 0o755),
    hardlink("usr/bin/alias", "usr/bin/tool"), folder("opt"), file("opt/old", "old"), folder("opt/deep"),
    file("opt/deep/one", "1"), file("opt/deep/two", "2"), folder("var"), symlink("var/run", "/run"), folder("run"),
    file("name with \u00e4\u20ac", "utf-8"), file("x" * 120 + "/" + "y" * 120, "long"))
TOP = layer(
    file("bin/added", "through a link", 0o755),       # lands in usr/bin
    file("var/run/pid", "1"),                         # an absolute link starts at the tree's root
    file("opt/.wh.old"),                              # gone
    file("opt/deep/three", "3"), file("opt/deep/.wh..wh..opq"), file("opt/deep/four", "4"),
    file("etc/new", "new"), file("usr/bin/tool", "replaced", 0o755))

EXPECTED = {
    "usr": ("d", 0o755), "usr/bin": ("d", 0o755), "bin": ("l", "usr/bin"), "usr/bin/tool": ("f", 0o755, b"replaced"),
    "usr/bin/alias": ("f", 0o755, b"tool"), "usr/bin/added": ("f", 0o755, b"through a link"), "opt": ("d", 0o755),
    "opt/deep": ("d", 0o755), "opt/deep/three": ("f", 0o644, b"3"), "opt/deep/four": ("f", 0o644, b"4"),
    "var": ("d", 0o755), "var/run": ("l", "/run"), "run/pid": ("f", 0o644, b"1"), "etc/new": ("f", 0o644, b"new"),
    "name with \u00e4\u20ac": ("f", 0o644, b"utf-8"), "x" * 120: ("d", 0o755), "x" * 120 + "/" + "y" * 120: ("f", 0o644, b"long"),
}


def outer(how):
    def write(path, layers):
        plain = oci(path + ".plain", layers)
        with open(plain, "rb") as opened, open(path, "wb") as out:
            out.write(make.squeeze(opened.read(), how))
        return path
    return write


FORMS = {
    "oci none": lambda path, layers: oci(path, layers, compression="none"),
    "oci gzip": lambda path, layers: oci(path, layers, compression="gzip"),
    "oci zstd": lambda path, layers: oci(path, layers, compression="zstd"),
    "oci folder": oci_folder,
    "oci in gzip": outer("gzip"),
    "oci in zstd": outer("zstd"),
    "docker old": docker_old,
    "docker new": docker_new,
}


@pytest.mark.parametrize("form", FORMS)
def test_forms(home, tmp_path, form):
    """Every form of the same two layers gives the same tree."""
    archive = FORMS[form](str(tmp_path / "image"), [BASE, TOP])
    tree = unpack(home, archive, "--name", "x")
    assert beyond_mount_points(tree) == EXPECTED
    assert {path for path in tree if path in MOUNT_POINTS} == MOUNT_POINTS
    assert tree["etc/passwd"] == ("f", 0o644, USER) and tree["etc/group"] == ("f", 0o644, b"user:x:1000:\n")
    assert os.listdir(os.path.join(home, "images", "tmp")) == []
    assert rootfs(home, "verify", "x").stdout == b"x: unchanged\n"


def test_tar_formats(home, tmp_path):
    """GNU and ustar streams too."""
    for number, form in enumerate((tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT)):
        data = layer(file("a/" + "b" * 90, "1"), symlink("l", "a"), form=form)
        tree = unpack(home, oci(tmp_path / str(number), [data]))
        assert beyond_mount_points(tree) == {"a": ("d", 0o755), "a/" + "b" * 90: ("f", 0o644, b"1"), "l": ("l", "a")}


def test_sparse_file(home, tmp_path):
    """A GNU sparse file keeps its holes and its size."""
    (tmp_path / "in").mkdir()
    with open(tmp_path / "in" / "holes", "wb") as out:
        out.truncate(1 << 20)
        out.seek(512 << 10)
        out.write(b"middle")
    data = subprocess.run(["tar", "-C", str(tmp_path / "in"), "--sparse", "--format=gnu", "-cf", "-", "holes"],
                          stdout=subprocess.PIPE, check=True).stdout
    assert len(data) < 100000, "tar made no sparse file"
    content = unpack(home, oci(tmp_path / "image", [data]))["holes"][2]
    assert len(content) == 1 << 20 and content.count(b"\0") == (1 << 20) - 6 and content[512 << 10:][:6] == b"middle"


def test_docker_shares_layers_by_links(home, tmp_path):
    data = layer(file("a", "1"))
    tree = unpack(home, docker_old(tmp_path / "image", [data, layer(file(".wh.a")), data], share=True))
    assert tree["a"] == ("f", 0o644, b"1")


WHITEOUTS = [
    ("a file", [layer(file("a"), file("b"))], [file(".wh.a")], {"b"}),
    ("a folder with content", [layer(folder("d"), file("d/x"), file("d/e/y"))], [file(".wh.d")], set()),
    ("a link, not what it points to", [layer(folder("d"), file("d/x"), symlink("l", "d"))], [file(".wh.l")], {"d", "d/x"}),
    ("nothing", [layer(file("a"))], [file(".wh.zzz")], {"a"}),
    ("in a folder reached by a link", [layer(folder("d"), file("d/x"), symlink("l", "d"))], [file("l/.wh.x")], {"d", "l"}),
    ("not what its own layer has", [layer(file("d/old"))], [file("d/new"), file(".wh.d")], {"d", "d/new"}),
    ("opaque, after its own entries", [layer(file("d/old"), file("d/s/old"))],
     [file("d/new"), file("d/s/new"), file("d/.wh..wh..opq")], {"d", "d/new", "d/s", "d/s/new"}),
    ("opaque twice", [layer(file("d/old"))], [file("d/.wh..wh..opq"), file("d/new"), file("d/.wh..wh..opq"), file(".wh.d")], {"d", "d/new"}),
    ("opaque, root", [layer(file("a"), file("d/x"))], [file(".wh..wh..opq"), file("b")], {"b"}),
    ("opaque in the first layer hides nothing", [], [file("d/x"), file("d/.wh..wh..opq")], {"d", "d/x"}),
    ("aufs leftovers are ignored", [layer(file("a"))], [folder(".wh..wh.plnk"), file(".wh..wh.plnk/1.2"), file("./.wh..wh.aufs")], {"a"}),
    ("a folder as a whiteout", [layer(file("a"))], [folder(".wh.a")], set()),
    ("folders that nobody listed, behind a link", [layer(symlink("l", "d"), folder("d"))], [file("l/x/y/z")], {"l", "d", "d/x", "d/x/y", "d/x/y/z"}),
    ("a folder becomes a file", [layer(file("d/x"))], [file("d", "file")], {"d"}),
    ("a file becomes a folder", [layer(file("d", "file"))], [folder("d"), file("d/x")], {"d", "d/x"}),
    ("a link becomes a folder", [layer(folder("t"), file("t/x"), symlink("d", "t"))], [folder("d"), file("d/y")],
     {"t", "t/x", "d", "d/y"}),
    ("a link to itself's folder is replaced while it is the way", [layer(symlink("s", "."))], [file("s/s", "f"), file("t")], {"s", "t"}),
]


@pytest.mark.parametrize("label, lower, upper, want", WHITEOUTS, ids=[row[0] for row in WHITEOUTS])
def test_layers_hide_and_replace(home, tmp_path, label, lower, upper, want):
    tree = unpack(home, oci(tmp_path / "image", lower + [layer(*upper)]))
    assert set(beyond_mount_points(tree)) == want, label


PERMISSIONS = [
    ("root's own file has no content", file("a", "secret", 0o600), ("f", 0, b"")),
    ("execute only is not enough", file("a", "secret", 0o711), ("f", 0, b"")),
    ("the user's file", file("a", "mine", 0o600, uid=1000), ("f", 0o644, b"mine")),
    ("the owner's bits count, not the wider ones", file("a", "secret", 0o077, uid=1000), ("f", 0, b"")),
    ("the user's group", file("a", "ours", 0o640, gid=1000), ("f", 0o644, b"ours")),
    ("others", file("a", "all", 0o604), ("f", 0o644, b"all")),
    ("setuid", file("a", "x", 0o4755), ("f", 0o755, b"x")),
    ("setgid", file("a", "x", 0o2755), ("f", 0o755, b"x")),
    ("world-writable", file("a", "x", 0o666), ("f", 0o644, b"x")),
    ("sticky folder", folder("a", 0o1777), ("d", 0o755)),
    ("setgid folder", folder("a", 0o2775), ("d", 0o755)),
    ("search only", folder("a", 0o711), ("d", 0o711)),
    ("closed folder", folder("a", 0o700), ("d", 0)),
    ("the user's closed folder", folder("a", 0o700, uid=1000), ("d", 0o755)),
]


@pytest.mark.parametrize("label, add, want", PERMISSIONS, ids=[row[0] for row in PERMISSIONS])
def test_permissions_are_the_users(home, tmp_path, label, add, want):
    tree = unpack(home, oci(tmp_path / "image", [layer(add)]), "x")
    assert tree["a"] == want, label
    info = os.lstat(glob.glob(os.path.join(home, "images/trees/*/root/a"))[0])
    assert (info.st_uid, info.st_gid) == (os.geteuid(), os.getegid())
    assert rootfs(home, "verify").returncode == 0


def test_closed_folder_is_empty(home, tmp_path):
    """What the user may not reach is not there, and the tree can be removed."""
    data = layer(folder("root", 0o700), file("root/.ssh/key", "secret"), file("root/open", "x"))
    later = layer(file("root/more", "secret"))
    tree = unpack(home, oci(tmp_path / "image", [data, later]), "x")
    assert tree["root"] == ("d", 0)
    root = glob.glob(os.path.join(home, "images/trees/*/root/root"))[0]
    os.chmod(root, 0o700)
    assert os.listdir(root) == []
    os.chmod(root, 0)
    assert rootfs(home, "remove", "x").returncode == 0
    assert store_is_empty(home)


MOUNT_POINT_CASES = [
    ("a link out", [symlink("mnt", "/outside"), symlink("proc", "../../..")]),
    ("a file", [file("dev", "x"), file("mnt", "x")]),
    ("a link below", [folder("mnt"), symlink("mnt/data", "/etc")]),
    ("a link around", [symlink("tmp", "tmp"), symlink("etc", "usr")]),
    ("closed", [folder("mnt", 0o700), folder("mnt/data", 0), folder("etc", 0o700), folder("tmp", 0)]),
]


@pytest.mark.parametrize("label, entries", MOUNT_POINT_CASES, ids=[row[0] for row in MOUNT_POINT_CASES])
def test_mount_points_are_folders(home, tmp_path, label, entries):
    tree = unpack(home, oci(tmp_path / "image", [layer(*entries)]))
    assert {path: tree[path] for path in MOUNT_POINTS} == {path: ("d", 0o755) for path in MOUNT_POINTS}, label
    assert tree["etc/passwd"][2] == USER


PASSWD_CASES = [
    ("appended", [file("etc/passwd", "root:x:0:0::/:/bin/sh\n")], b"root:x:0:0::/:/bin/sh\n" + USER),
    ("without a last newline", [file("etc/passwd", "root:x:0:0::/:/bin/sh")], b"root:x:0:0::/:/bin/sh\n" + USER),
    ("somebody has the id", [file("etc/passwd", "node:x:1000:1000::/:/bin/sh\n")], b"node:x:1000:1000::/:/bin/sh\n"),
    ("a similar id", [file("etc/passwd", "a:x:10001:1::/:/bin/sh\n")], b"a:x:10001:1::/:/bin/sh\n" + USER),
    ("a link is replaced, not followed", [file("etc/other", "keep"), symlink("etc/passwd", "other")], USER),
    ("a folder is replaced", [folder("etc/passwd"), file("etc/passwd/x")], USER),
    ("a hard link leaves the other name alone", [file("etc/passwd", "a:x:1:1::/:\n"), hardlink("keep", "etc/passwd")],
     b"a:x:1:1::/:\n" + USER),
]


@pytest.mark.parametrize("label, entries, want", PASSWD_CASES, ids=[row[0] for row in PASSWD_CASES])
def test_passwd(home, tmp_path, label, entries, want):
    tree = unpack(home, oci(tmp_path / "image", [layer(*entries)]))
    assert tree["etc/passwd"] == ("f", 0o644, want), label
    if "keep" in tree:
        assert tree["keep"] == ("f", 0o644, b"a:x:1:1::/:\n")


def test_times(home, tmp_path):
    """Files and folders keep theirs (fontconfig's cache depends on it), absurd ones are bounded."""
    data = layer(folder("d", mtime=1000000000), file("d/f", "x", mtime=1100000000), file("old", mtime=-5), file("far", mtime=1 << 60))
    unpack(home, oci(tmp_path / "image", [data]))
    root = glob.glob(os.path.join(home, "images/trees/*/root"))[0]
    assert [int(os.stat(os.path.join(root, name)).st_mtime) for name in ("d", "d/f", "old")] == [1000000000, 1100000000, 0]
    assert os.stat(os.path.join(root, "far")).st_mtime > 4e9


def test_devices_are_passed_over(home, tmp_path):
    """Whatever mmdebstrap and debootstrap make has them; a later layer may hide some, and leave more."""
    device = lambda name, kind=tarfile.CHRTYPE: make.entry(name, kind, devmajor=1, devminor=3)  # noqa: E731
    layers = [layer(folder("dev"), device("./dev/null"), device("dev/loop0", tarfile.BLKTYPE), device("dev/net/tun"), file("a", "x"),
                    hardlink("dev/same", "./dev/null"), hardlink("dev/tun", "dev/net/tun"), file("dev/file", "y"), folder("dev/folder"), file("dev/folder/z", "z")),
              layer(file("dev/.wh.null"), device("dev/zero"), device("dev/file"), device("dev/folder"))]
    archive = str(oci(tmp_path / "image", layers))
    done = rootfs(home, "unpack", archive)
    assert done.returncode == 0 and b"8 device nodes below /dev were passed over" in done.stderr, done.stderr
    assert json.loads(rootfs(home, "list", "--json").stdout)[0]["devices"] == 8
    root = glob.glob(os.path.join(home, "images/trees/*/root"))[0]
    assert os.listdir(os.path.join(root, "dev")) == [] and open(os.path.join(root, "a"), encoding="ascii").read() == "x"
    assert b"passed over" not in rootfs(home, "unpack", archive, "--quiet").stderr
    one = str(oci(tmp_path / "one", [layer(device("dev/null"))]))
    assert b"1 device node below /dev was passed over" in rootfs(home, "unpack", one).stderr


# --- hostile entries --------------------------------------------------------------------------------------------

def raw(*blocks):
    return b"".join(blocks) + make.END


HOSTILE = [
    ("dot-dot", layer(file("../evil")), "entry '../evil': the name has a component '..'"),
    ("dot-dot inside", layer(folder("a"), file("a/../../evil")), "the name has a component '..'"),
    ("dot-dot at the end", layer(folder("a/..")), "the name has a component '..'"),
    ("absolute", layer(file("/evil")), "entry '/evil': the name is an absolute path"),
    ("absolute folder", layer(folder("//evil")), "the name is an absolute path"),
    ("empty name", raw(make.raw_header(b"")[:100] + make.raw_header(b"")[100:]), None),
    ("through a link that climbs", layer(symlink("l", "../../outside"), file("l/evil")), "symbolic link 'l', which leads out of the tree"),
    ("through two links that climb", layer(symlink("a", "b/.."), symlink("b", "."), symlink("c", "a/../.."), file("c/evil")),
     "which leads out of the tree"),
    ("through an absolute link to nothing", layer(symlink("l", "/no/such"), file("l/evil")), "symbolic link 'l', which leads to nothing in the tree"),
    ("through a loop", layer(symlink("a", "b"), symlink("b", "a"), file("a/evil")), "Too many levels of symbolic links"),
    ("round and round", layer(folder("d"), symlink("l", "d/../" * 300 + "d"), symlink("m", "l/../l/../l/../l"), file("m/evil")),
     "(more than 1000 steps): Too many levels"),
    ("through a file", layer(file("f", "x"), file("f/evil")), "'f' is not a directory"),
    ("hard link out", layer(hardlink("h", "../outside/secret")), "the link target has a component '..'"),
    ("hard link to an absolute path", layer(hardlink("h", "/etc/passwd")), "the link target is an absolute path"),
    ("hard link through a link out", layer(symlink("l", "../.."), hardlink("h", "l/etc/passwd")), "leads out of the tree"),
    ("hard link to nothing", layer(hardlink("h", "nothing")), "hard link to 'nothing': No such file or directory"),
    ("hard link to a folder", layer(folder("d"), hardlink("h", "d")), "hard link to 'd', which is not a file"),
    ("character device", layer(make.entry("null", tarfile.CHRTYPE, devmajor=1, devminor=3)), "entry 'null': a device node outside of /dev"),
    ("device by way of /dev", layer(make.entry("dev/../null", tarfile.CHRTYPE, devmajor=1, devminor=3)), "the name has a component '..'"),
    ("device below another dev", layer(make.entry("a/dev/null", tarfile.CHRTYPE, devmajor=1, devminor=3)), "a device node outside of /dev"),
    ("device in the place of /dev", layer(make.entry("dev", tarfile.CHRTYPE, devmajor=1, devminor=3)), "a device node outside of /dev"),
    ("hard link to a device", layer(make.entry("dev/null", tarfile.CHRTYPE, devmajor=1, devminor=3), hardlink("h", "dev/null")),
     "hard link to 'dev/null'"),
    ("hard link to nothing below /dev", layer(folder("dev"), hardlink("dev/h", "dev/null")), "hard link to 'dev/null': No such file or directory"),
    ("device through a link of /dev", layer(folder("usr"), symlink("dev", "usr"), make.entry("dev/null", tarfile.CHRTYPE, devmajor=1, devminor=3)),
     "a device node outside of /dev"),
    ("hard link from /dev to a file that is not there", layer(make.entry("dev/null", tarfile.CHRTYPE, devmajor=1, devminor=3), hardlink("dev/h", "etc/none")),
     "hard link to 'etc/none'"),
    ("block device", layer(make.entry("sda", tarfile.BLKTYPE, devmajor=8, devminor=0)), "entry 'sda': a device node"),
    ("FIFO", layer(make.entry("pipe", tarfile.FIFOTYPE)), "entry 'pipe': a FIFO"),
    ("newline in a name", layer(file("a\nb")), "entry 'a?b': the name holds a control character (0x0a)"),
    ("escape sequence in a name", layer(file("a\x1b[2Jb")), "entry 'a?[2Jb': the name holds a control character (0x1b)"),
    ("DEL in a name", layer(file("a\x7fb")), "control character (0x7f)"),
    ("newline in a link", layer(symlink("l", "a\nb")), "the symbolic link's text holds a control character"),
    ("newline in a hard link", layer(hardlink("h", "a\nb")), "the link target holds a control character"),
    ("empty link", raw(make.raw_header(b"l", 0, b"2")), None),
    ("NUL in a pax name", raw(make.pax_entry(b"x", [(b"path", b"etc/pass\0wd")])), "a name with a NUL byte in it: 'etc/pass"),
    ("NUL in a pax link", raw(make.pax_entry(b"x", [(b"linkpath", b"a\0b")])), "a name with a NUL byte in it"),
    ("NUL in a GNU name", raw(make.raw_header(b"././@LongLink", 8, b"L"), make.padded(b"ab\0cdefg"), make.raw_header(b"x")),
     "a name with a NUL byte in it: 'ab"),
    ("a component too long", layer(file("n" * 256)), "the name has a component of 256 bytes"),
    ("a name too long", layer(file("/".join(["n" * 200] * 21))), "the name is longer than 4095 bytes"),
    ("too deep", layer(file("/".join("d" * 129))), "the name is more than 128 directories deep"),
    ("deeper by links", layer(folder("/".join("d" * 120)), symlink("1", "/".join("d" * 120)), folder("1/" + "/".join("e" * 120)),
                              symlink("2", "1/" + "/".join("e" * 120)), folder("2/" + "/".join("f" * 120))), "directories deep"),
    ("an extended header of 2 MiB", raw(make.raw_header(b"pax", 2 << 20, b"x"), b"\0" * (2 << 20), make.raw_header(b"x")),
     "an extended tar header of 2097152 bytes"),
    ("whiteout of dot-dot", layer(file(".wh...")), "entry '.wh...': the whiteout does not say which name it hides"),
    ("whiteout of dot", layer(file("a/.wh..")), "the whiteout does not say which name it hides"),
    ("whiteout of nothing", layer(file(".wh.")), "the whiteout does not say which name it hides"),
    ("whiteout through a link out", layer(symlink("l", "../.."), file("l/.wh.outside")), "leads out of the tree"),
    ("the root as a file", layer(file(".", "x")), None),
    ("a size larger than the limit", raw(make.raw_header(b"big", 0o77777777777)), "the image unpacks to more than 1048576 bytes"),
    ("not a tar stream", b"this is no tar stream at all" * 100, None),
]


@pytest.mark.parametrize("label, data, says", HOSTILE, ids=[row[0] for row in HOSTILE])
def test_hostile_entries(home, tmp_path, label, data, says):
    archive = oci(tmp_path / "image", [layer(folder("lower")), data], compression="none")
    done = rootfs(home, "unpack", str(archive), "x", "--max-size", "1m")
    line = support.sentence(done)
    assert done.returncode == 125 and done.stdout == b"", label
    assert line.startswith("hutch: unpack '%s': layer 'blobs/sha256/" % archive), line
    assert says is None or says in line, line
    assert store_is_empty(home), label


BOMBS = [
    ("zeros", [file("zeros", b"\0" * (4 << 20))], ["--max-size", "1m"], "unpacks to more than 1048576 bytes (--max-size allows more)"),
    ("zeros in many files", [file(str(n), b"\0" * 65536) for n in range(20)], ["--max-size", "1m"], "unpacks to more than 1048576 bytes"),
    ("entries", [folder(str(n)) for n in range(200)], ["--max-entries", "100"], "more than 100 entries (--max-entries allows more)"),
    ("directories of paths", [file("%d/%s/x" % (n, "/".join("abcdefghij"))) for n in range(20)], ["--max-entries", "100"],
     "too many directories, those that only a path names among them"),
]


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
@pytest.mark.parametrize("label, entries, limit, says", BOMBS, ids=[row[0] for row in BOMBS])
def test_bombs(home, tmp_path, label, entries, limit, says, compression):
    archive = oci(tmp_path / "image", [layer(*entries)], compression=compression)
    done = rootfs(home, "unpack", str(archive), *limit)
    assert done.returncode == 125 and says in support.sentence(done), label
    assert store_is_empty(home)


def test_limits_count_all_layers(home, tmp_path):
    layers = [layer(file(str(n), b"\0" * 400000)) for n in range(3)]
    done = rootfs(home, "unpack", str(oci(tmp_path / "image", layers)), "--max-size", "1m")
    assert done.returncode == 125 and "unpacks to more than 1048576 bytes" in support.sentence(done)


def test_sparse_bomb(home, tmp_path):
    """Holes count as what they would be."""
    with open(tmp_path / "holes", "wb") as out:
        out.truncate(1 << 30)
    data = subprocess.run(["tar", "-C", str(tmp_path), "--sparse", "-cf", "-", "holes"], stdout=subprocess.PIPE, check=True).stdout
    done = rootfs(home, "unpack", str(oci(tmp_path / "image", [data])), "--max-size", "100m")
    assert done.returncode == 125 and "the image unpacks to more than 104857600 bytes" in support.sentence(done)
    assert store_is_empty(home)


def test_compression_inside_of_compression(home, tmp_path):
    """Only one is undone, or a small file would unfold to any amount of work."""
    data = make.squeeze(layer(file("a", "x")), "gzip")
    done = rootfs(home, "unpack", str(oci(tmp_path / "image", [data], compression="gzip")))
    assert done.returncode == 125, done.stderr
    support.sentence(done)
    assert store_is_empty(home)


# --- broken archives --------------------------------------------------------------------------------------------

def test_truncated(home, tmp_path):
    """Cut anywhere, it is an error."""
    archive = oci(tmp_path / "image", [BASE, TOP], compression="zstd")
    whole = open(archive, "rb").read()
    for kept in [0, 1, 100, 511, 512, 513, 2000] + list(range(3000, len(whole) - 10240, 997)):
        cut = tmp_path / "cut"
        cut.write_bytes(whole[:kept])
        done = rootfs(home, "unpack", str(cut))
        assert done.returncode == 125, kept
        support.sentence(done)
        assert store_is_empty(home), kept


@pytest.mark.parametrize("form", ["oci none", "oci gzip", "oci zstd", "docker old"])
def test_bit_flips(home, tmp_path, form):
    """One flipped bit in a blob is noticed; one in the outer archive's padding need not be, but does no harm."""
    archive = FORMS[form](str(tmp_path / "image"), [BASE, TOP])
    whole = bytearray(open(archive, "rb").read())
    with tarfile.open(archive) as tar:
        spans = [(member.name, member.offset_data, member.size) for member in tar.getmembers()]
    flipped = tmp_path / "flipped"
    for name, start, size in spans:
        if name in ("oci-layout", "index.json", "manifest.json", "repositories"):
            continue # nothing vouches for these but what they lead to
        for position in {start, start + size // 3, start + size // 2, start + size - 1}:
            broken = bytearray(whole)
            broken[position] ^= 1 << (position % 8)
            flipped.write_bytes(broken)
            done = rootfs(home, "unpack", str(flipped))
            assert done.returncode == 125, (name, position)
            support.sentence(done)
            assert store_is_empty(home), (name, position)


def forge(index, data):
    """Replaces the stored bytes of a layer and keeps its name."""
    def change(blobs, layers):
        blobs[layers[index]] = data
    return change


def wrong_diff_id(config):
    config["rootfs"]["diff_ids"][0] = "sha256:" + "0" * 64


def set_path(*path, value):
    def change(target):
        for key in path[:-1]:
            target = target[key]
        target[path[-1]] = value
    return change


ONE = layer(file("a", "x"))
WRONG = [
    ("a layer's bytes", dict(compression="none", stored=forge(0, layer(file("a", "y")))), "has the digest sha256:"),
    ("a layer's length", dict(compression="none", stored=forge(0, ONE + b"\0" * 512)), "bytes, not the"),
    ("a layer is missing", dict(stored=lambda blobs, layers: blobs.pop(layers[0])), "find 'blobs/sha256/"),
    ("diff id", dict(config=wrong_diff_id), "its content has the digest sha256:"),
    ("one diff id too many", dict(config=lambda c: c["rootfs"]["diff_ids"].append("sha256:" + "0" * 64)), "has 1 layers, but its configuration"),
    ("diff id of another kind", dict(config=set_path("rootfs", "diff_ids", value=["sha512:" + "0" * 64])), "a diff id that is not"),
    ("diff id a number", dict(config=set_path("rootfs", "diff_ids", value=[7])), "a diff id that is not"),
    ("no rootfs", dict(config=lambda c: c.pop("rootfs")), "has no object 'rootfs'"),
    ("another machine", dict(config=set_path("architecture", value="pdp11")), "the image is made for linux/pdp11, this machine is linux/"),
    ("another system", dict(config=set_path("os", value="windows")), "the image is made for windows/"),
    ("no layers", dict(manifest=lambda m: m.pop("layers")), "has no array 'layers'"),
    ("layers a string", dict(manifest=set_path("layers", value="x")), "has no array 'layers'"),
    ("too many layers", dict(manifest=lambda m: m["layers"].extend(m["layers"] * 300)), "'layers' in 'blobs/sha256/"),
    ("encrypted layer", dict(manifest=set_path("layers", 0, "mediaType", value="application/vnd.oci.image.layer.v1.tar+encrypted")),
     "is of the kind 'application/vnd.oci.image.layer.v1.tar+encrypted', which hutch cannot unpack"),
    ("digest with a path", dict(manifest=set_path("layers", 0, "digest", value="sha256:../../../etc/passwd")), "which is not \"sha256:\" and 64 digits"),
    ("digest in upper case", dict(manifest=set_path("config", "digest", value="sha256:" + "A" * 64)), "which is not \"sha256:\" and 64 digits"),
    ("size a string", dict(manifest=set_path("layers", 0, "size", value="1")), "has no valid size"),
    ("size negative", dict(manifest=set_path("layers", 0, "size", value=-1)), "has no valid size"),
    ("no manifests", dict(index=set_path("manifests", value=[])), "'index.json' has no image"),
    ("only for others", dict(index=set_path("manifests", 0, "platform", value={"os": "linux", "architecture": "pdp11"})),
     "has no image for this machine (linux/"),
    ("an index that points to itself", dict(index=set_path("manifests", 0, "mediaType", value="application/vnd.oci.image.index.v1+json")),
     "has no array 'manifests'"),
    ("manifests an object", dict(index=set_path("manifests", value={})), "'index.json' has no array 'manifests'"),
    ("descriptor a list", dict(index=set_path("manifests", value=[[]])), "a descriptor that is not an object"),
]


@pytest.mark.parametrize("label, options, says", WRONG, ids=[row[0] for row in WRONG])
def test_wrong_images(home, tmp_path, label, options, says):
    archive = oci(tmp_path / "image", [ONE], **options)
    done = rootfs(home, "unpack", str(archive))
    assert done.returncode == 125 and done.stdout == b""
    assert says in support.sentence(done), (label, done.stderr)
    assert store_is_empty(home)


def replaced(path, name, data):
    """The archive with another member @name."""
    with tarfile.open(path) as tar:
        members = [(m.name, tar.extractfile(m).read()) for m in tar.getmembers()]
    return make.write_tar(path, [(n, data if n == name else d) for n, d in members])


JSON_CASES = [
    ("not JSON", b"{", "'index.json' is not valid JSON"),
    ("rubbish behind it", b'{"manifests":[]} x', "'index.json' is not valid JSON"),
    ("NUL in it", b'{"manifests":[]}\0', "'index.json' is not valid JSON"),
    ("empty", b"", "'index.json' is not valid JSON"),
    ("too deep", b"[" * 40 + b"]" * 40, "'index.json' is JSON nested more than 32 deep"),
    ("much too deep", b"[" * 1000000, "'index.json' is JSON nested more than 32 deep"),
    ("too large", b" " * (5 << 20), "read 'index.json' (the limit is 4194304 bytes): File too large"),
    ("an array", b"[]", "'index.json' has no array 'manifests'"),
    ("a number", b"7", "'index.json' has no array 'manifests'"),
]


@pytest.mark.parametrize("label, data, says", JSON_CASES, ids=[row[0] for row in JSON_CASES])
def test_broken_json(home, tmp_path, label, data, says):
    archive = replaced(oci(tmp_path / "image", [ONE]), "index.json", data)
    done = rootfs(home, "unpack", str(archive))
    assert done.returncode == 125 and says in support.sentence(done), (label, done.stderr)
    assert store_is_empty(home)


DOCKER_CASES = [
    ("two images", lambda path: replaced(docker_old(path, [ONE]), "manifest.json", b'[{"Config":"a","Layers":[]},{}]'), "has 2 images; --select takes one of: 0, 1"),
    ("no images", lambda path: replaced(docker_old(path, [ONE]), "manifest.json", b"[]"), "'manifest.json' has no image"),
    ("too many images", lambda path: replaced(docker_old(path, [ONE]), "manifest.json", b"[" + b"{}," * 300 + b"{}]"), "more than 256 images"),
    ("an image that is a number", lambda path: replaced(docker_old(path, [ONE]), "manifest.json", b"[7]"), "has no string 'Config'"),
    ("tags that are none", lambda path: replaced(docker_old(path, [ONE]), "manifest.json", b'[{"RepoTags":[7,{},[]]},{"RepoTags":{"a":7}}]'),
     "--select takes one of: 0, 1"),
    ("layer outside", lambda path: docker_old(path, [ONE], layer_names=["../../etc/passwd"]), "which is not a path inside the archive"),
    ("layer absolute", lambda path: docker_old(path, [ONE], layer_names=["/etc/passwd"]), "which is not a path inside the archive"),
    ("layer a number", lambda path: docker_old(path, [ONE], layer_names=[7]), "which is not a path inside the archive"),
    ("layer missing", lambda path: docker_old(path, [ONE], layer_names=["none"]), "find 'none' in '"),
    ("a link out of the archive", lambda path: make.write_tar(path, [("manifest.json", (tarfile.SYMTYPE, "../../../etc/passwd"))]),
     "'manifest.json' in '%s' is a link that leads out of the archive"),
    ("a link in a circle", lambda path: make.write_tar(path, [("manifest.json", (tarfile.SYMTYPE, "manifest.json"))]),
     "is a link to a link to a link"),
    ("neither format", lambda path: make.write_tar(path, [("hello", b"x")]), "it is neither an OCI image layout"),
]


@pytest.mark.parametrize("label, write, says", DOCKER_CASES, ids=[row[0] for row in DOCKER_CASES])
def test_wrong_docker_archives(home, tmp_path, label, write, says):
    archive = str(tmp_path / "image")
    write(archive)
    done = rootfs(home, "unpack", archive)
    assert done.returncode == 125 and (says % archive if "%s" in says else says) in support.sentence(done), (label, done.stderr)
    assert store_is_empty(home)


MACHINE = {"os": "linux", "architecture": make.ARCH}
OTHER = {"os": "linux", "architecture": "pdp11"}
TWO = [("example/a:1", [layer(file("a"))]), ("example/b:latest", [layer(file("b"))]), (None, [layer(file("c"))])]
THREE = [("a", MACHINE, [layer(file("a"))]), ("b", dict(MACHINE, variant="v3"), [layer(file("b"))]), ("c", OTHER, [layer(file("c"))])]
LEVEL = make.x86_level()
BEYOND = "v%d" % (LEVEL + 1)  # what this machine does not run


def variants(*several):
    """An image for each of these variants of this machine's architecture."""
    return [("a", OTHER, [layer(file("a"))])] + [(v, dict(MACHINE, variant=v), [layer(file(v))]) for v in several]


DOCKER_LIST, V3 = "0 (example/a:1), 1 (example/b:latest), 2", "linux/%s/v3" % make.ARCH


@pytest.mark.parametrize("write, args, want", [
    (lambda p: make.docker_several(p, TWO), [], "'manifest.json' has 3 images; --select takes one of: " + DOCKER_LIST),
    (lambda p: make.docker_several(p, TWO), ["--select", "x"], "has no image 'x'; --select takes one of: " + DOCKER_LIST),
    (lambda p: make.docker_several(p, TWO), ["--select", "3"], "has no image '3'"),
    (lambda p: make.docker_several(p, TWO), ["--select=-1"], "has no image '-1'"),
    (lambda p: make.docker_several(p, TWO), ["--select", ""], "has no image ''"),
    (lambda p: make.docker_several(p, TWO), ["--select", "example/a:1"], {"a"}),
    (lambda p: make.docker_several(p, TWO), ["--select", "example/b"], {"b"}),
    (lambda p: make.docker_several(p, TWO), ["--select", "2"], {"c"}),
    (lambda p: make.docker_several(p, [("n" * 90 + str(n), [ONE]) for n in range(200)]), [], ", ..."),
    (lambda p: make.oci_several(p, THREE), [], {"a"}),
    (lambda p: make.oci_several(p, THREE), ["--platform", V3], {"b"}),
    (lambda p: make.oci_several(p, THREE), ["--platform", "linux/pdp11"], {"c"}),
    (lambda p: make.oci_several(p, THREE), ["--platform", "linux/pdp11/70"], "has no image for the platform (linux/pdp11/70), only for others"),
    (lambda p: make.oci_several(p, THREE), ["--select", "c"], "has no image 'c' for linux/%s; --select takes one of: 0 (a)" % make.ARCH),
    (lambda p: make.oci_several(p, THREE), ["--platform", "windows/amd64"], "the platform 'windows/amd64' is not of the form linux/ARCH"),
    (lambda p: make.oci_several(p, THREE), ["--platform", "linux/a/b/c"], "is not of the form"),
    (lambda p: make.oci_several(p, THREE), ["--platform", "linux/" + "a" * 100], "is not of the form"),
    (lambda p: make.oci_several(p, THREE, nested=2), ["--platform", V3], {"b"}),
    (lambda p: make.oci_several(p, THREE, nested=3), [], "it leads from index to index more than 3 times"),
    (lambda p: make.oci_several(p, [THREE[0], ("b", None, [ONE])]), [], "has 2 images for linux/%s; --select takes one of: 0 (a), 1 (b)" % make.ARCH),
    (lambda p: make.oci_several(p, [THREE[0], ("b", None, [ONE])], nested=1), ["--select", "0"], "' has 2 images for linux/"),
    (lambda p: make.oci_several(p, [("a", None, [ONE]), ("b", None, [ONE])]), [], {"a"}), # one image with two names
    (lambda p: make.oci_several(p, [("a", None, [ONE]), ("b", None, [layer(file("b"))])]), ["--select", "b"], {"b"}),
    (lambda p: oci(p, [ONE]), ["--platform", "linux/pdp11"], "the image is made for linux/%s, and --platform asks for linux/pdp11" % make.ARCH),
    # None without a variant: the best that this machine runs.
    (lambda p: make.oci_several(p, variants("v1", BEYOND)), [], {"v1"} if LEVEL else "has no image for this machine"),
    (lambda p: make.oci_several(p, variants(BEYOND, "v%d" % LEVEL, "v1"), nested=1), [], {"v%d" % LEVEL} if LEVEL else "has no image"),
    (lambda p: make.oci_several(p, variants(BEYOND)), [], "has no image for this machine (linux/%s), only for others" % make.ARCH),
    (lambda p: make.oci_several(p, variants("v1")), ["--platform", "linux/" + make.ARCH], "has no image for the platform (linux/%s), only for others" % make.ARCH),
    (lambda p: make.oci_several(p, [*variants("v1"), ("b", None, [ONE])]), [], {"a"}),
    (lambda p: oci(p, [ONE], config=set_path("variant", value="v1")), [], {"a"} if LEVEL else "is made for"),
    (lambda p: oci(p, [ONE], config=set_path("variant", value=BEYOND)), [], "is made for linux/%s/%s, this machine is" % (make.ARCH, BEYOND)),
    (lambda p: oci(p, [ONE], config=set_path("variant", value="v9")), [], "is made for linux/%s/v9, this machine is linux/" % make.ARCH),
    (lambda p: oci(p, [ONE], config=set_path("variant", value="v9")), ["--platform", "linux/%s/v9" % make.ARCH], {"a"}),
])
def test_one_of_several(home, tmp_path, write, args, want):
    archive = str(tmp_path / "image")
    write(archive)
    if isinstance(want, set):
        assert set(beyond_mount_points(unpack(home, archive, *args))) == want
        return
    done = rootfs(home, "unpack", archive, *args)
    assert done.returncode == 125 and want in support.sentence(done), done.stderr
    assert store_is_empty(home)


def test_selected_name_is_the_images(home, tmp_path):
    archive = str(make.docker_several(tmp_path / "image", TWO))
    unpack(home, archive, "--select", "example/b")
    assert json.loads(rootfs(home, "list", "--json").stdout)[0]["names"] == ["example/b:latest"]


@pytest.mark.parametrize("as_tar", [False, True])
def test_dir_layout(home, tmp_path, as_tar):
    """skopeo's dir:, as it is and in a tar file."""
    path, members = str(tmp_path / "image"), make.dir_members([BASE, TOP])
    make.write_tar(path, members) if as_tar else make.write_folder(path, members)
    assert beyond_mount_points(unpack(home, path)) == EXPECTED
    assert rootfs(home, "verify").returncode == 0
    assert "it has one image, without a name, and no 'x'" in support.sentence(rootfs(home, "unpack", path, "--select", "x"))


def test_dir_layout_of_skopeo(home, tmp_path):
    """As skopeo itself writes it, of one image and of an index."""
    if not shutil.which("skopeo"):
        pytest.skip("no skopeo here")
    several = make.oci_several(tmp_path / "several", THREE, nested=1)
    for source, more, want in ((oci(tmp_path / "one", [ONE], name="x"), [], {"a"}), (several, ["--all"], {"b"})):
        target, folder_of_it = str(tmp_path / "dir") + str(len(more)), str(tmp_path / "layout") + str(len(more))
        with tarfile.open(source) as tar:
            make.write_folder(folder_of_it, [(member.name, tar.extractfile(member).read()) for member in tar])
        subprocess.run(["skopeo", "--insecure-policy", "copy", "-q", *more, "oci:" + folder_of_it, "dir:" + target],
                       check=True, timeout=60)
        assert set(beyond_mount_points(unpack(home, target, *(["--platform", V3] if more else [])))) == want


DIR_CASES = [
    ("no version", dict(version=None), "for skopeo's dir: 'version' has to be there"),
    ("version of the future", dict(version=b"Directory Transport Version: 2.0\n"), "'version' does not say"),
    ("version of something", dict(version=b"\0" * 100), "'version' does not say"),
    ("version too large", dict(version=b"D" * 300), "read 'version' (the limit is 256 bytes)"),
    ("a layer's bytes", dict(compression="none", stored=forge(0, layer(file("a", "y")))), "has the digest sha256:"),
    ("digest with a path", dict(manifest=set_path("layers", 0, "digest", value="sha256:../../../etc/passwd")), "which is not \"sha256:\" and 64 digits"),
    ("a layer is missing", dict(stored=lambda blobs, layers: blobs.pop(layers[0])), "find '"),
    ("no layers", dict(manifest=lambda m: m.pop("layers")), "has no array 'layers'"),
    ("an index of itself", dict(manifest=lambda m: m.update(manifests=[dict(m["config"], mediaType="application/vnd.oci.image.index.v1+json")])),
     ".manifest.json' in '"),
    ("another machine", dict(config=set_path("architecture", value="pdp11")), "the image is made for linux/pdp11"),
]


@pytest.mark.parametrize("label, options, says", DIR_CASES, ids=[row[0] for row in DIR_CASES])
def test_wrong_dir_layouts(home, tmp_path, label, options, says):
    archive = make.write_tar(tmp_path / "image", make.dir_members([ONE], **options))
    done = rootfs(home, "unpack", str(archive))
    assert done.returncode == 125 and says in support.sentence(done), (label, done.stderr)
    assert store_is_empty(home)


def test_docker_config_digest(home, tmp_path):
    """The configuration is named by its digest; another content is noticed."""
    archive = str(docker_old(tmp_path / "image", [ONE]))
    name = make.sha(make.config_of([ONE])) + ".json"
    replaced(archive, name, make.config_of([ONE], author="somebody else"))
    done = rootfs(home, "unpack", archive)
    assert done.returncode == 125 and "not the sha256:" in support.sentence(done)


def test_what_is_no_archive(home, tmp_path):
    text = tmp_path / "text"
    text.write_text("hello" * 1000)
    (tmp_path / "empty").touch()
    (tmp_path / "zeros").write_bytes(bytes(10240))
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    for path, says in ((tmp_path / "empty", "'%s' is empty"), (tmp_path / "zeros", "'%s' is an empty tar archive, or none"),
                       (tmp_path / "none", "open '%s': No such file or directory"), (text, "'%s' is not a tar archive"),
                       (tmp_path / "fifo", "'%s' is neither a file nor a directory"), (tmp_path / "folder", "read image '%s': it is neither")):
        done = rootfs(home, "unpack", str(path))
        assert done.returncode == 125 and says % path in support.sentence(done)
        assert store_is_empty(home)


def test_folder_with_links_out(home, tmp_path):
    """A layout in a directory: a blob that is a link to somewhere else is not followed out."""
    path = oci_folder(str(tmp_path / "layout"), [ONE])
    blob = [name for name in glob.glob(path + "/blobs/sha256/*") if open(name, "rb").read(2) == b"\x1f\x8b"][0]
    os.rename(blob, tmp_path / "elsewhere")
    os.symlink(str(tmp_path / "elsewhere"), blob)
    done = rootfs(home, "unpack", path)
    assert done.returncode == 125 and "Invalid cross-device link" in support.sentence(done)
    assert store_is_empty(home)


def test_disk_full(home, tmp_path):
    """On a small file system: one sentence, and all of the room is free again."""
    support.need("userns")
    archive = oci(tmp_path / "image", [layer(file("a", os.urandom(1 << 20)), file("b", os.urandom(8 << 20)))], compression="none")
    os.mkdir(home)
    script = ("mount -t tmpfs -o size=4m,nr_inodes=1000 none \"$HUTCH_HOME\" && { \"$1\" rootfs unpack \"$2\"; echo \"exit $?\"; "
              "find \"$HUTCH_HOME/images\" -mindepth 2 | wc -l; }")
    done = subprocess.run(["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh", support.HUTCH, str(archive)],
                          capture_output=True, env={**os.environ, "HUTCH_HOME": home}, timeout=60, check=False)
    assert done.stdout == b"exit 125\n0\n", done
    assert "entry 'b' (the store needs more room): write: No space left on device" in support.sentence(done)


# --- the store --------------------------------------------------------------------------------------------------

def test_names(home, tmp_path):
    """Where an image's name comes from, and how it is found."""
    for number, (archive, args, want) in enumerate((
            (oci(tmp_path / "1", [layer(file("1"))], name="from-annotation"), [], ["from-annotation"]),
            (oci(tmp_path / "2", [layer(file("2"))], name="from-annotation-2"), ["--name", "given/name:1.0"], ["given/name:1.0"]),
            (oci(tmp_path / "3", [layer(file("3"))]), ["second-argument"], ["second-argument"]),
            (docker_old(tmp_path / "4", [layer(file("4"))], tag="example/app:latest"), [], ["example/app:latest"]),
            (docker_new(tmp_path / "5", [layer(file("5"))], tag="example/new:2"), [], ["docker.io/example/new:2"]),
            (oci(tmp_path / "6", [layer(file("6"))], name="../../evil"), [], []),
            (oci(tmp_path / "7", [layer(file("7"))], name="a\nb"), [], []),
            (oci(tmp_path / "8", [layer(file("8"))]), [], []))):
        before = len(json.loads(rootfs(home, "list", "--json").stdout))
        done = rootfs(home, "unpack", str(archive), *args)
        assert done.returncode == 0, done.stderr
        images = json.loads(rootfs(home, "list", "--json").stdout)
        assert len(images) == before + 1 == number + 1
        image = [image for image in images if image["digest"] == done.stdout.decode().strip()][0]
        assert image["names"] == want
        assert image["entries"] == 11 and image["bytes"] > 40 and image["unpacked"] > 1600000000
        for name in want + [image["digest"], image["digest"][7:], image["digest"][:15]]:
            assert rootfs(home, "verify", name).returncode == 0, name
    assert rootfs(home, "verify", "example/app").returncode == 0, ":latest is found without saying so"


@pytest.mark.parametrize("name", ["", ".", "..", "-x", "/x", "a b", "a\nb", "a%b", "\u00e4", "x" * 201, ".new"])
def test_bad_names(home, tmp_path, name):
    done = rootfs(home, "unpack", str(oci(tmp_path / "image", [ONE])), "--name", name)
    assert done.returncode == 125 and "cannot be an image's name" in support.sentence(done)
    assert store_is_empty(home)


def test_unknown_image(home, tmp_path):
    done = rootfs(home, "verify", "nothing")
    assert done.returncode == 125
    assert support.sentence(done) == ("hutch: there is no image 'nothing' in '%s/images', which is empty; build the default one with: "
                                      "hutch rootfs build python: No such file or directory" % home).replace(": No such file or directory", "")
    unpack(home, oci(tmp_path / "image", [ONE]), "one")
    unpack(home, oci(tmp_path / "image", [ONE]), "two/three")
    for name in ("nothing", "deadbeef", "sha256:" + "0" * 64, "../lock", "o"):
        done = rootfs(home, "remove", name)
        assert done.returncode == 125
        assert "there is no image '%s' in the store; there are: one, two/three" % name in support.sentence(done)


def test_same_image_twice(home, tmp_path):
    """The second time, only the name is set; removing one name keeps the tree for the other."""
    archive = oci(tmp_path / "image", [ONE])
    unpack(home, archive, "one")
    inode = os.stat(glob.glob(home + "/images/trees/*/root")[0]).st_ino
    unpack(home, archive, "two")
    assert os.stat(glob.glob(home + "/images/trees/*/root")[0]).st_ino == inode
    assert json.loads(rootfs(home, "list", "--json").stdout)[0]["names"] == ["one", "two"]
    assert rootfs(home, "remove", "one").returncode == 0
    assert json.loads(rootfs(home, "list", "--json").stdout)[0]["names"] == ["two"]
    assert rootfs(home, "remove", "two").returncode == 0
    assert store_is_empty(home)


def test_remove_by_digest_takes_all_names(home, tmp_path):
    archive = oci(tmp_path / "image", [ONE])
    unpack(home, archive, "one")
    unpack(home, archive, "two")
    digest = os.listdir(home + "/images/trees")[0]
    assert rootfs(home, "remove", digest[:12]).returncode == 0
    assert store_is_empty(home)


def test_a_name_moves(home, tmp_path):
    unpack(home, oci(tmp_path / "1", [layer(file("1"))]), "x")
    unpack(home, oci(tmp_path / "2", [layer(file("2"))]), "x")
    images = json.loads(rootfs(home, "list", "--json").stdout)
    assert [image["names"] for image in images] == [["x"], []]
    assert os.path.exists(os.path.join(tree_of(home, images[0]["digest"][7:]), "2"))


def test_an_archive_takes_no_name_away(home, tmp_path):
    """What it calls itself is not the user's word: the name stays with the image that has it."""
    unpack(home, oci(tmp_path / "1", [layer(file("1"))], name="python"))
    other = oci(tmp_path / "2", [layer(file("2"))], name="python")
    done = rootfs(home, "unpack", str(other))
    assert done.returncode == 125 and "the archive calls its image 'python', as another in the store is called" in support.sentence(done)
    images = json.loads(rootfs(home, "list", "--json").stdout)
    assert [image["names"] for image in images] == [["python"]] and os.listdir(home + "/images/tmp") == []
    unpack(home, oci(tmp_path / "3", [layer(file("1"))], name="python"))
    unpack(home, other, "python")
    assert sorted(image["names"] for image in json.loads(rootfs(home, "list", "--json").stdout)) == [[], ["python"]]


def test_a_reader_waits_for_no_lock(home, tmp_path):
    """Every reader of a shared tree could hold one for ever."""
    archive = oci(tmp_path / "1", [layer(file("1"))])
    unpack(home, archive, "x")
    digest = json.loads(rootfs(home, "list", "--json").stdout)[0]["digest"][7:]
    holder = os.open(os.path.join(home, "images/trees", digest), os.O_RDONLY)
    try:
        fcntl.flock(holder, fcntl.LOCK_EX)
        assert rootfs(home, "verify", "x").stdout == b"x: unchanged\n"
    finally:
        os.close(holder)


def test_list_table(home, tmp_path):
    done = rootfs(home, "list")
    assert done.returncode == 0 and done.stdout == b"" and b"is empty" in done.stderr
    unpack(home, oci(tmp_path / "1", [layer(file("big", b"\0" * 2500000))]), "some/name")
    lines = rootfs(home, "list").stdout.decode().splitlines()
    assert lines[0].split() == ["NAME", "DIGEST", "SIZE", "ENTRIES", "UNPACKED"]
    assert re.fullmatch(r"some/name +[0-9a-f]{12} +3 MB +11 +\d{4}-\d\d-\d\d \d\d:\d\d", lines[1])


CHANGES = [
    ("content", lambda root: open(root + "/a/file", "w").write("other"), "changed /a/file"),
    ("same size", lambda root: open(root + "/a/file", "w").write("CONTENT"), "changed /a/file"),
    ("mode", lambda root: os.chmod(root + "/a/file", 0o755), "changed /a/file"),
    ("unreadable", lambda root: os.chmod(root + "/a/file", 0), "changed /a/file"),
    ("folder's mode", lambda root: os.chmod(root + "/a", 0o777), "changed /a"),
    ("link", lambda root: (os.unlink(root + "/link"), os.symlink("b", root + "/link")), "changed /link"),
    ("link to file", lambda root: (os.unlink(root + "/link"), open(root + "/link", "w").close()), "changed /link"),
    ("missing", lambda root: os.unlink(root + "/a/file"), "missing /a/file"),
    ("missing last", lambda root: os.unlink(root + "/zz"), "missing /zz"),
    ("extra", lambda root: open(root + "/a/more", "w").close(), "extra   /a/more"),
    ("extra last", lambda root: open(root + "/zzz", "w").close(), "extra   /zzz"),
    ("extra FIFO", lambda root: os.mkfifo(root + "/a/fifo"), "extra   /a/fifo"),
    ("extra with a newline", lambda root: open(root + "/a/x\ny", "w").close(), "extra   /a/x?y"),
]


@pytest.mark.parametrize("label, change, says", CHANGES, ids=[row[0] for row in CHANGES])
def test_verify(home, tmp_path, label, change, says):
    data = layer(file("a/file", "content"), file("a/other", "x"), file("a-b", "sorts between"), symlink("link", "a"), file("zz", "z"))
    unpack(home, oci(tmp_path / "image", [data]), "x")
    root = glob.glob(home + "/images/trees/*/root")[0]
    assert rootfs(home, "verify", "x").returncode == 0
    change(root)
    done = rootfs(home, "verify", "x")
    assert done.returncode == 1 and done.stderr == b"", (label, done.stderr)
    lines = done.stdout.decode().splitlines()
    assert lines == [says, "x: 1 difference from what was unpacked"], label
    report = json.loads(rootfs(home, "verify", "--json").stdout)
    assert report == [{"name": "x", "differences": 1, "shown": [{"what": says.split()[0], "path": says.split("/", 1)[1]}]}]


def test_verify_many(home, tmp_path):
    unpack(home, oci(tmp_path / "image", [layer(*[file("f%03d" % n, "x") for n in range(100)])]), "x")
    root = glob.glob(home + "/images/trees/*/root")[0]
    for number in range(50):
        os.unlink("%s/f%03d" % (root, number))
    lines = rootfs(home, "verify", "x").stdout.decode().splitlines()
    assert lines[:20] == ["missing /f%03d" % n for n in range(20)]
    assert lines[20:] == ["... and 30 more", "x: 50 differences from what was unpacked"]


@pytest.mark.parametrize("change", [lambda text: text[:-20], lambda text: text.replace("f 0644", "x 0644"), lambda text: "",
                                    lambda text: text.replace("end ", "end 1")])
def test_broken_record(home, tmp_path, change):
    unpack(home, oci(tmp_path / "image", [ONE]), "x")
    record = glob.glob(home + "/images/trees/*/record")[0]
    text = open(record).read()
    open(record, "w").write(change(text))
    done = rootfs(home, "verify", "x")
    assert done.returncode == 125 and "verify image 'x': the record of the tree is broken" in support.sentence(done)


def replace_by_fifo(path):
    os.unlink(path)
    os.mkfifo(path, 0o644)


def replace_by_link(path):
    os.rename(path, path + ".real")
    os.symlink("record.real", path)


def write_more(path, size, text=b""):
    with open(path, "r+b") as record:
        record.truncate(size)
        record.seek(len(b"hutch-tree 1\n"))
        record.write(text)


@pytest.mark.parametrize("change, says", [
    (replace_by_fifo, "'record' is not a regular file"),
    (replace_by_link, "open 'record': Too many levels of symbolic links"),
    (lambda path: (os.unlink(path), os.mkdir(path)), "'record' is not a regular file"),
    (lambda path: write_more(path, 5 << 30), "'record' is too large for the record of a tree"),
    (lambda path: write_more(path, 3 << 30, b"\0"), "the record of the tree is broken"),  # NUL all the way
    (lambda path: write_more(path, 1 << 20, b"d 0755 " + b"x" * 500000), "the record of the tree is broken"),
], ids=["fifo", "link", "directory", "size", "NUL", "line"])
def test_hostile_record(home, tmp_path, change, says):
    """Another user's store may hold anything: nothing of it is waited for, and no line is read without end."""
    unpack(home, oci(tmp_path / "image", [ONE]), "x")
    change(glob.glob(home + "/images/trees/*/record")[0])
    verifying = start(home, "verify", "x")
    timer = threading.Timer(60, verifying.kill)
    timer.start()
    stderr = verifying.stderr.read()
    _, ended, usage = os.wait4(verifying.pid, 0)
    timer.cancel()
    assert os.waitstatus_to_exitcode(ended) == 125 and ("verify image 'x': " + says).encode() in stderr, stderr
    assert usage.ru_maxrss < 1 << 20, "a line was read without end"
    verifying.communicate()


def test_remove_in_use(home, tmp_path):
    """A shared lock on the tree, as a sandbox holds it, keeps it."""
    unpack(home, oci(tmp_path / "image", [ONE]), "x")
    tree = glob.glob(home + "/images/trees/*")[0]
    held = os.open(tree, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_SH)
    done = rootfs(home, "remove", "x")
    assert done.returncode == 125 and "is in use by a running sandbox" in support.sentence(done)
    assert rootfs(home, "verify", "x").returncode == 0
    os.close(held)
    assert rootfs(home, "remove", "x").returncode == 0
    assert store_is_empty(home)


def test_prune(home, tmp_path):
    """What has lost its name to another image goes, but not under a sandbox; what has one stays. --dry-run changes nothing."""
    assert rootfs(home, "prune").returncode == 0
    for n in range(4):
        unpack(home, oci(tmp_path / str(n), [layer(file("f", b"%d" % n * 1500000))]), "x" if n < 3 else "some/other")
    images = {image["digest"]: image["names"] for image in json.loads(rootfs(home, "list", "--json").stdout)}
    unnamed = sorted(digest for digest, names in images.items() if not names)
    assert len(unnamed) == 2 and ["some/other"] in images.values()
    with open(home + "/images/names/lost%name", "w", encoding="ascii") as name:
        name.write("sha256:%s\n" % ("0" * 64))
    held = os.open(home + "/images/trees/" + unnamed[0][7:], os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_SH)
    before = describe(home)
    wanted = {("in use", unnamed[0], 1500000), ("image", unnamed[1], 1500000), ("name", "lost/name", 0)}
    for _ in range(2):
        done = rootfs(home, "prune", "--dry-run", "--json")
        told = {(entry["what"], entry["name"], entry["bytes"] // 100000 * 100000) for entry in json.loads(done.stdout)}
        assert done.returncode == 0 and told == wanted, done.stderr
        assert describe(home) == before
    assert b"MB would be freed" in rootfs(home, "prune", "--dry-run").stderr
    done = rootfs(home, "prune")
    assert done.returncode == 0 and b"2 MB freed" in done.stderr and unnamed[1][:19].encode() in done.stdout, done
    os.close(held)
    assert [entry["what"] for entry in json.loads(rootfs(home, "prune", "--json").stdout)] == ["image"]
    assert json.loads(rootfs(home, "prune", "--json").stdout) == []
    assert sorted(image["names"][0] for image in json.loads(rootfs(home, "list", "--json").stdout)) == ["some/other", "x"]
    assert os.listdir(home + "/images/tmp") == [] and rootfs(home, "verify").returncode == 0
    assert "usage: hutch rootfs prune" in support.sentence(rootfs(home, "prune", "x"))


def many_files(path, count=4000):
    """An archive that takes a while."""
    return oci(path, [layer(*[file("d%d/f%d" % (n % 50, n), b"x" * 3000) for n in range(count)])], compression="none")


def start(home, *args, **options):
    return subprocess.Popen([support.HUTCH, "rootfs", *args], env={**os.environ, "HUTCH_HOME": home}, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, **options)


def test_two_at_once(home, tmp_path):
    """Several processes unpack the same image at the same time: one tree, nothing left over."""
    archive = str(many_files(tmp_path / "image", 500))
    running = [start(home, "unpack", archive, "name%d" % n) for n in range(4)]
    results = [process.communicate(timeout=60) for process in running]
    assert [process.returncode for process in running] == [0] * 4, results
    assert len({out for out, _ in results}) == 1
    images = json.loads(rootfs(home, "list", "--json").stdout)
    assert len(images) == 1 and images[0]["names"] == ["name0", "name1", "name2", "name3"]
    assert os.listdir(home + "/images/tmp") == []
    assert rootfs(home, "verify").returncode == 0


def wait_until_unpacking(home, process):
    """Until the process has made files: it is in the middle then."""
    while process.poll() is None:
        if len(glob.glob(home + "/images/tmp/*/root/d*")) > 5:
            return
    raise AssertionError("it was done before anybody looked")


def test_killed(home, tmp_path):
    """SIGKILL leaves something in tmp; the next start of anything sweeps it, but not what a live process is at."""
    archive = str(many_files(tmp_path / "image"))
    process = start(home, "unpack", archive)
    wait_until_unpacking(home, process)
    os.kill(process.pid, signal.SIGSTOP)
    work = os.listdir(home + "/images/tmp")
    assert rootfs(home, "list").returncode == 0
    assert os.listdir(home + "/images/tmp") == work and len(work) == 1, "a live process's directory was swept"
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert os.listdir(home + "/images/tmp") == work
    assert rootfs(home, "list").returncode == 0
    assert store_is_empty(home)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted(home, tmp_path, number):
    """It cleans up at once and dies of the signal."""
    process = start(home, "unpack", str(many_files(tmp_path / "image")), preexec_fn=lambda: signal.signal(number, signal.SIG_DFL))
    wait_until_unpacking(home, process)
    os.kill(process.pid, number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == -number and out == b"" and b"interrupted: Operation canceled" in err, err
    assert store_is_empty(home)


def test_closed_leftovers_are_swept(home, tmp_path):
    """Leftovers may have directories without permissions."""
    assert rootfs(home, "list").returncode == 0
    os.makedirs(home + "/images/tmp/123-abc/root/a/b")
    os.chmod(home + "/images/tmp/123-abc/root/a/b", 0)
    os.chmod(home + "/images/tmp/123-abc/root/a", 0)
    assert rootfs(home, "list").returncode == 0
    assert os.listdir(home + "/images/tmp") == []


def test_home(tmp_path):
    """Where the store is: HUTCH_HOME, XDG_DATA_HOME, HOME; private from the start."""
    plain = {key: value for key, value in os.environ.items() if key not in ("HUTCH_HOME", "XDG_DATA_HOME", "HOME")}
    for more, want in (({"HUTCH_HOME": "%s/1"}, "1"), ({"XDG_DATA_HOME": "%s/2", "HOME": "%s/x"}, "2/hutch"),
                       ({"HOME": "%s/3"}, "3/.local/share/hutch"), ({"HUTCH_HOME": "", "HOME": "%s/4"}, "4/.local/share/hutch")):
        environment = {**plain, **{key: value.replace("%s", str(tmp_path)) for key, value in more.items()}}
        done = subprocess.run([support.HUTCH, "rootfs", "list"], env=environment, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        assert stat.S_IMODE(os.stat(tmp_path / want).st_mode) == 0o700 and os.path.isdir(tmp_path / want / "images/trees")
    done = subprocess.run([support.HUTCH, "rootfs", "list"], env={**plain, "HUTCH_HOME": "relative"}, capture_output=True, check=False)
    assert done.returncode == 125 and support.sentence(done) == "hutch: HUTCH_HOME is 'relative', which is not an absolute path"


USAGE = [
    ([], "usage: hutch rootfs COMMAND"), (["frobnicate"], "there is no command 'rootfs frobnicate'"), (["unpack"], "usage: hutch rootfs unpack"),
    (["unpack", "a", "b", "c"], "usage: hutch rootfs unpack"), (["unpack", "--frob", "a"], "there is no option '--frob' here"),
    (["list", "--name", "x"], "there is no option '--name' here"), (["unpack", "a", "--name"], "option '--name' needs a value"),
    (["list", "--json=1"], "option '--json' takes no value"), (["remove"], "usage: hutch rootfs remove"), (["list", "x"], "usage: hutch rootfs list"),
    (["build", "a", "b"], "usage: hutch rootfs build"), (["unpack", "a", "--max-size", "0"], "a limit of 0 leaves no room"),
    (["unpack", "a", "--max-size", "x"], "--max-size: "), (["unpack", "a", "--max-entries=-1"], "--max-entries: "),
]


@pytest.mark.parametrize("args, says", USAGE, ids=[" ".join(args) or "nothing" for args, _ in USAGE])
def test_usage(home, args, says):
    done = rootfs(home, *args)
    assert done.returncode == 125 and done.stdout == b"" and says in done.stderr.decode()


def test_progress_bar_only_on_a_terminal(home, tmp_path):
    done = rootfs(home, "unpack", str(many_files(tmp_path / "image", 1500)), "x")
    assert b"\r" not in done.stderr and b"\033" not in done.stderr
    assert done.stderr == b"hutch: image 'x' is in the store: 5 MB in 1560 entries\n"
    done = rootfs(home, "unpack", "-q", str(tmp_path / "image"), "y")
    assert done.stderr == b""


# --- the images of this tree ------------------------------------------------------------------------------------

SCRIPTS = os.path.join(support.TREE, "rootfs")


def test_one_package_list():
    """build.sh and the Dockerfile have their packages from packages.txt, by packages.sh, and from nowhere else."""
    flavours = support.packages("flavours")
    assert flavours == ["minimal", "python", "python-full", "node"]
    for smaller, larger in (("minimal", "python"), ("python", "python-full"), ("minimal", "node")):
        assert set(support.packages(smaller)) < set(support.packages(larger))
    for flavour in flavours:
        assert len(support.packages(flavour)) == len(set(support.packages(flavour))), "a package is listed twice"
        assert not set(support.packages("absent")) & set(support.packages(flavour))
    done = subprocess.run([os.path.join(SCRIPTS, "packages.sh"), "python-fuller"], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stdout == "" and "no flavour 'python-fuller'" in done.stderr
    with open(os.path.join(SCRIPTS, "Dockerfile"), encoding="utf-8") as opened:
        dockerfile = opened.read()
    with open(os.path.join(SCRIPTS, "build.sh"), encoding="utf-8") as opened:
        build = opened.read()
    shared = {"packages.txt", "packages.sh", "dpkg.cfg", "prepare.sh", "trim.sh", "hosts", "externally-managed"}
    copied = re.search(r"^COPY (.*) /hutch/$", dockerfile, re.M).group(1).split()
    assert set(copied) == shared | {"from-base.sh"}, "the Dockerfile takes what build.sh takes"
    assert set(re.search(r'^cp (.*) "\$work/rootfs"$', build, re.M).group(1).replace('"$here"/', "").split()) == shared
    with open(os.path.join(SCRIPTS, "from-base.sh"), encoding="utf-8") as opened:
        dockerfile += opened.read()
    for script in ("packages.sh", "prepare.sh", "trim.sh"):
        assert '"$here/%s"' % script in dockerfile, script
    for name in support.packages("python-full"):
        assert not re.search(r"(?<![\w./-])%s(?![\w./-])" % re.escape(name), re.sub(r"#.*", "", dockerfile).replace("[\"python3\"]", "")), name


def test_packages_of_a_release():
    """A package that one release alone has is not asked of another."""
    assert support.packages("releases") == ["trixie", "bookworm"]
    assert support.packages("python-full") == support.packages("python-full", support.packages("releases")[0])
    assert support.packages("released", "bookworm") < support.packages("released", "trixie") and support.packages("released", "none") == []
    assert set(support.packages("python-full", "bookworm")) ^ set(support.packages("python-full", "trixie")) == {"python3-pypdf2", "tzdata-legacy"}


@contextlib.contextmanager
def image(name):
    """The root tree of an image in the lane's own store."""
    done = support.hutch("rootfs", "list", "--json")
    found = [entry for entry in json.loads(done.stdout or b"[]") if name in entry["names"]]
    if not found:
        pytest.skip("image '%s' is not in the store" % name)
    yield found[0], tree_of(support.hutch_home(), found[0]["digest"][7:])


@pytest.mark.parametrize("name, most_mb", [("minimal", 200), ("python", 700)])
def test_images_are_trimmed(name, most_mb):
    with image(name) as (entry, root):
        print("%s: %d MB, %d entries" % (name, entry["bytes"] // 1000000, entry["entries"]))
        assert entry["bytes"] <= most_mb * 1000000
        unwanted = []
        for where, dirs, files in os.walk(root):
            below = os.path.relpath(where, root)
            for leaf in files:
                path = os.path.join(below, leaf)
                if (re.search(r"\.(a|la|h|hpp)$", leaf) or re.match(r"usr/share/(man|info|locale|lintian)/|usr/include/", path)
                        or (path.startswith("usr/share/doc/") and leaf != "copyright")
                        or re.fullmatch(r"usr/bin/(gcc|g\+\+|cc|c\+\+|cpp|ld|as|gdb|x86_64-linux-gnu-.*)(-\d+)?", path)
                        or re.match(r"etc/(shadow|gshadow|machine-id|hostname|resolv.conf)|var/cache/apt|var/lib/apt/lists|var/log/.", path)):
                    unwanted.append(path)
                if os.lstat(os.path.join(where, leaf)).st_mode & 0o7000:
                    unwanted.append("setuid " + path)
        assert unwanted == []


@pytest.mark.parametrize("name", ["minimal", "python"])
def test_images_hold_their_packages(name):
    with image(name) as (_, root):
        with open(os.path.join(root, "var/lib/dpkg/status"), encoding="utf-8") as opened:
            installed = set(re.findall(r"^Package: (\S+)\nStatus: install ok installed$", opened.read(), re.M))
        assert set(support.packages(name)) <= installed
        assert not set(support.packages("absent")) & installed


def python_of(root):
    """The second part of its version."""
    return max(int(name[len("python3."):]) for name in os.listdir(os.path.join(root, "usr/lib")) if re.fullmatch(r"python3\.\d+", name))


def test_images_have_bytecode():
    """Each module has its .pyc, of the kind that Python does not check against the source's time."""
    with image("minimal") as (_, root):
        version = "3.%d" % python_of(root)
        for module in ("os", "re/__init__", "json/decoder", "collections/__init__"):
            folder_, leaf = os.path.split(module)
            leaf += ".cpython-%s.pyc" % version.replace(".", "")
            with open(os.path.join(root, "usr/lib/python" + version, folder_, "__pycache__", leaf), "rb") as opened:
                assert opened.read(8)[4:] == b"\x01\0\0\0", module # hash-based, unchecked: PEP 552


def test_images_belong_to_the_caller():
    with image("minimal") as (_, root):
        owners = {os.lstat(os.path.join(where, leaf)).st_uid for where, dirs, files in os.walk(root) for leaf in dirs + files}
        assert owners == {os.geteuid()}


def test_build_is_reproducible(tmp_path):
    """Two builds of minimal give the same digest; so does one by an ordinary user when root asks."""
    if os.environ.get("HUTCH_TEST_SLOW") != "1":
        pytest.skip("slow: builds images (HUTCH_TEST_SLOW=1)")
    if not shutil.which("mmdebstrap"):
        pytest.skip("mmdebstrap is not installed")
    builder = os.path.join(SCRIPTS, "build.sh")
    digests = []
    commands = [[builder]] * 2
    user = os.environ.get("HUTCH_TEST_USER")
    if support.is_root() and user:
        commands.append(["runuser", "-u", user, "--", builder])
    tmp_path.chmod(0o777)
    for number, words in enumerate(commands):
        done = subprocess.run([*words, "minimal", "/tmp/hutch-test-%d-%d.tar" % (os.getpid(), number)], stdout=subprocess.PIPE, check=True,
                              timeout=900)
        os.unlink("/tmp/hutch-test-%d-%d.tar" % (os.getpid(), number))
        digests.append(done.stdout)
    assert len(set(digests)) == 1 and re.fullmatch(rb"sha256:[0-9a-f]{64}\n", digests[0]), digests


def test_another_release(tmp_path):
    """An image of another release than the usual one, under its own name."""
    if os.environ.get("HUTCH_TEST_SLOW") != "1":
        pytest.skip("slow: builds an image (HUTCH_TEST_SLOW=1)")
    if not shutil.which("mmdebstrap"):
        pytest.skip("mmdebstrap is not installed")
    env = {"HUTCH_HOME": str(tmp_path / "home")}
    done = support.hutch("rootfs", "build", "minimal", "--suite", "bookworm", env=env, timeout=900)
    assert done.returncode == 0 and b"image 'minimal-bookworm' is in the store" in done.stderr, done.stderr
    done = support.hutch("run", "--image", "minimal-bookworm", "-c", "import sys; print(*sys.version_info[:2])", env=env)
    assert done.stdout == b"3 11\n", done.stderr


@pytest.mark.parametrize("uids, gids, free", [
    ("", "", "100000-165535"),
    ("ada:100000:65536\n", "ada:100000:65536\n", "165536-231071"),
    ("ada:100000:65536\n", "ada:100000:65536\nbob:165536:65536\n", "231072-296607"),  # one range for both files
    ("ada:1000000:65536\nbob:100000:65536\n", "", "1065536-1131071"),
    ("ada:200:100\n", "", "100000-165535"),
    ("no line of this kind\nada:x:y\n::\nada:300000:10", "", "300010-365545"),
    ("ada:0:4294967294\n", "", None),
], ids=str)
def test_range_of_ids_that_nobody_has(tmp_path, uids, gids, free):
    """What build.sh tells root to give the user: a range of another user's would let one act as the other."""
    (tmp_path / "subuid").write_text(uids)
    (tmp_path / "subgid").write_text(gids)
    done = subprocess.run([os.path.join(SCRIPTS, "free-ids.sh"), str(tmp_path / "subuid"), str(tmp_path / "subgid"), str(tmp_path / "none")],
                          capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ((free + "\n", 0) if free else ("", 1)), done.stderr


def test_builder_names_no_range_of_others():
    with open(os.path.join(SCRIPTS, "build.sh"), encoding="utf-8") as opened:
        assert not re.search(r"add-sub[ug]ids [0-9]", opened.read())


def test_pip_says_what_to_do():
    """pip reads it before it tries anything: here no network is the reason, and neither apt nor venv a way."""
    text = os.path.join(SCRIPTS, "externally-managed")
    with image("python") as (_, root):
        version = python_of(root)
    done = support.run("--timeout", "3m", "-v", text + ":/usr/lib/python3.%d/EXTERNALLY-MANAGED:ro" % version, "-c",
                       "import subprocess, sys; sys.exit(subprocess.run([sys.executable, '-m', 'pip', 'install', 'six==0.1']).returncode)", image="python", timeout=240)
    shown = (done.stdout + done.stderr).decode()
    assert done.returncode == 1 and "error: externally-managed-environment" in shown
    assert "no network" in shown and "hutch run --with PACKAGE" in shown and "hutch rootfs extend IMAGE" in shown and "apt install" not in shown
    with open(os.path.join(SCRIPTS, "trim.sh"), encoding="utf-8") as opened:
        assert 'cp "$here/externally-managed" "$managed"' in opened.read()


def test_packages_from_a_directory(tmp_path):
    """The way that the text names."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "__init__.py").write_text("answer = 42")
    done = support.run("-v", "%s:/mnt/packages:ro" % tmp_path, "-e", "PYTHONPATH=/mnt/packages", "-c", "import own; print(own.answer)")
    assert done.stdout == b"42\n", done.stderr


BUILD_ERRORS = [
    (["nonsense", "/tmp/x"], {}, "no flavour 'nonsense'"), (["minimal"], {}, "usage: build.sh FLAVOUR OUT.tar"),
    (["minimal", "/tmp/x"], {"SOURCE_DATE_EPOCH": "now"}, "SOURCE_DATE_EPOCH is 'now', not a number of seconds"),
    (["minimal", "/tmp/x"], {"HUTCH_APT_SOURCES": "/no/such"}, "HUTCH_APT_SOURCES: cannot read '/no/such'"),
    (["minimal", "/tmp/x"], {"HUTCH_SUITE": "nosuchsuite"}, "knows no Debian sources for 'nosuchsuite'"),
    (["minimal", "/tmp/x"], {"HUTCH_SUITE": "a b|c"}, "HUTCH_SUITE is 'a b|c', not a release of Debian"),
]


@pytest.mark.parametrize("args, more, says", BUILD_ERRORS, ids=[row[2] for row in BUILD_ERRORS])
def test_build_errors(args, more, says):
    if not shutil.which("mmdebstrap"):
        pytest.skip("mmdebstrap is not installed")
    done = subprocess.run([os.path.join(SCRIPTS, "build.sh"), *args], env={**os.environ, **more}, capture_output=True, text=True, check=False)
    if "has no range of 65536 ids" in done.stderr:
        pytest.skip("this user has no subordinate ids")
    assert done.returncode == 1 and done.stdout == "" and says in done.stderr
    assert sum(done.stderr.count(name) for name in ("build.sh: ", "packages.sh: ", "debian-sources.sh: ")) == 1


@pytest.mark.parametrize("args, variable, says", [
    (["--suite", ""], None, "--suite: '' is none of the releases of Debian that images are made of: trixie bookworm"),
    (["--suite", "sid"], None, "--suite: 'sid' is none"), (["--suite", "trixie bookworm"], None, "--suite: 'trixie bookworm' is none"),
    (["--suite", "trix"], None, "--suite: 'trix' is none"), (["--suite", "../x"], "bookworm", "--suite: '../x' is none"),
    ([], "bookworm", "HUTCH_SUITE is 'bookworm', which build.sh alone obeys: here --suite names the release"),
    (["python", "--name", "p"], "sid", "HUTCH_SUITE is 'sid'"),
], ids=str)
def test_releases_that_are_refused(home, tmp_path, args, variable, says):
    """Before anything is built."""
    (tmp_path / "build.sh").write_text("#!/bin/sh\ntouch '%s/built'\nexit 1\n" % tmp_path)
    (tmp_path / "build.sh").chmod(0o755)
    environment = {"HUTCH_HOME": home, "HUTCH_ROOTFS_DIR": str(tmp_path), **({"HUTCH_SUITE": variable} if variable else {})}
    done = support.hutch("rootfs", "build", *args, env=environment)
    assert done.returncode == 125 and says in support.sentence(done)
    assert not (tmp_path / "built").exists() and json.loads(rootfs(home, "list", "--json").stdout) == []


@pytest.mark.parametrize("args, variable, suite, name", [
    ([], None, "trixie", "python"), (["--suite", "trixie"], "bookworm", "trixie", "python"), (["minimal"], "", "trixie", "minimal"),
    (["--suite", "bookworm"], None, "bookworm", "python-bookworm"), (["--suite", "bookworm", "--name", "mine"], "trixie", "bookworm", "mine"),
], ids=str)
def test_releases_and_names(home, tmp_path, args, variable, suite, name):
    """build.sh is told the release, and the image of another than the usual one is called after it."""
    archive = oci(tmp_path / "image", [ONE], name="from-archive")
    (tmp_path / "build.sh").write_text("#!/bin/sh\necho \"$HUTCH_SUITE\" >'%s/suite'\ncp '%s' \"$2\"\n" % (tmp_path, archive))
    (tmp_path / "build.sh").chmod(0o755)
    environment = {"HUTCH_HOME": home, "HUTCH_ROOTFS_DIR": str(tmp_path), **({"HUTCH_SUITE": variable} if variable is not None else {})}
    done = support.hutch("rootfs", "build", *args, env=environment)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "suite").read_text() == suite + "\n"
    assert [entry["names"] for entry in json.loads(rootfs(home, "list", "--json").stdout)] == [[name]]


def test_releases_are_documented():
    with open(os.path.join(support.TREE, "docs", "hutch.1"), encoding="utf-8") as opened:
        page = opened.read()
    for release in support.packages("releases"):
        assert "\n.Cm %s" % release in page, release
    with open(os.path.join(SCRIPTS, "Dockerfile"), encoding="utf-8") as opened:
        assert "ARG DEBIAN=debian:%s-slim\n" % support.packages("releases")[0] in opened.read()


def test_build_by_hutch(home, tmp_path):
    """`hutch rootfs build` runs the script it finds, and unpacks what that made; its failure is one."""
    fake = tmp_path / "scripts"
    fake.mkdir()
    archive = oci(tmp_path / "image", [ONE], name="from-archive")
    (fake / "build.sh").write_text("#!/bin/sh\nif [ \"$1\" = bad ]; then echo 'build.sh: no' >&2; exit 1; fi\ncp '%s' \"$2\"\n" % archive)
    (fake / "build.sh").chmod(0o755)
    environment = {"HUTCH_HOME": home, "HUTCH_ROOTFS_DIR": str(fake)}
    done = support.hutch("rootfs", "build", env=environment)
    assert done.returncode == 0, done.stderr
    assert json.loads(rootfs(home, "list", "--json").stdout)[0]["names"] == ["python"], "the default flavour"
    done = support.hutch("rootfs", "build", "minimal", "--output", str(tmp_path / "kept.tar"), env=environment)
    assert done.returncode == 0 and (tmp_path / "kept.tar").exists()
    done = support.hutch("rootfs", "build", "bad", env=environment)
    assert done.returncode == 125 and done.stderr == b"build.sh: no\nhutch: build image 'bad': the builder failed, it says why above\n"
    assert os.listdir(home + "/images/tmp") == []
    done = support.hutch("rootfs", "build", env={**environment, "HUTCH_ROOTFS_DIR": str(tmp_path)})
    assert done.returncode == 125 and "where no build.sh can be run" in support.sentence(done)
