"""rootfs/Dockerfile by podman and buildah, on a base made here: the image is what rootfs/build.sh makes, and programs
do in it, under podman, what they do under hutch."""
import hashlib
import json
import os
import shutil
import sys

import pytest

import support
import trees
from containers import Storage

sys.path[:0] = [support.TESTS, os.path.join(support.TESTS, "e2e")]
import parity  # noqa: E402  (the path comes first)
import snippets  # noqa: E402

SUITE = os.environ.get("HUTCH_SUITE") or support.releases()[0]
EPOCH = support.packages("released", SUITE)[0]  # fontconfig's cache has it in it
ROOTFS = os.path.join(support.TREE, "rootfs")
ARCHIVES = os.environ.get("HUTCH_TEST_IMAGES") or os.path.join(support.TREE, "build", "images", SUITE)
BUILD_SECONDS = 2400

# What may differ between the two images: a path, and why.
DIFFERENCES = {
    "": "podman and buildah write no entry for the root directory, tar does",
}
# Programs that do something else under another supervisor, and why.
OTHERWISE = {
    "errors: too much memory": "an ordinary user's podman has no cgroup to limit memory by",
}
# What hutch sets for every program: it changes which files one leaves.
ENVIRONMENT = ["-e", "PYTHONDONTWRITEBYTECODE=1"]

pytestmark = pytest.mark.skipif(support.is_root(), reason="rootless builders: an ordinary user's lane has them")


@pytest.fixture(scope="module")
def storage(tmp_path_factory):
    for program in ("podman", "buildah", "runc"):
        if not shutil.which(program):
            support.miss("apt: %s is not installed" % program)
    made = Storage()
    base = trees.debian("base", SUITE, "minbase", [], tmp_path_factory.mktemp("base"), lean=False)
    done = made.podman("import", base, "debian:%s-slim" % SUITE, seconds=300)
    assert done.returncode == 0, done.stderr
    yield made
    made.close()


def build(storage, flavour, program, name):
    words = {"podman": ["build"], "buildah": ["bud"]}[program]
    words += ["--pull-never", "--isolation", "chroot", "--network", "host", "--build-arg", "FLAVOUR=" + flavour,
              "--build-arg", "DEBIAN=debian:%s-slim" % SUITE, "--build-arg", "SOURCE_DATE_EPOCH=" + EPOCH,
              "-t", name, ROOTFS]
    done = storage.podman(*words, program=program, seconds=BUILD_SECONDS)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]


@pytest.fixture(scope="module")
def minimal(storage):
    build(storage, "minimal", "buildah", "hutch-minimal")
    return "hutch-minimal"


@pytest.fixture(scope="module")
def python(storage):
    build(storage, "python", "podman", "hutch-python")
    return "hutch-python"


def save(storage, name, path):
    done = storage.podman("save", "-q", "-o", str(path), name, seconds=300)
    assert done.returncode == 0, done.stderr
    return str(path)


@pytest.mark.parametrize("flavour", ["minimal", "python"])
def test_same_as_without_a_daemon(storage, request, tmp_path, flavour):
    built = trees.entries(save(storage, request.getfixturevalue(flavour), tmp_path / "built.tar"))
    wanted = trees.entries(os.path.join(ARCHIVES, flavour + ".tar"))
    assert len(wanted) > 5000
    both = {path: (wanted.get(path), built.get(path)) for path in set(wanted) | set(built)}
    different = {path: pair for path, pair in both.items() if pair[0] != pair[1]}
    left = {path: pair for path, pair in different.items() if path not in DIFFERENCES}
    assert not left, "\n".join("/%s\n  build.sh   %s\n  Dockerfile %s" % (path, *left[path])
                               for path in sorted(left)[:20])
    assert set(DIFFERENCES) <= set(different), "a difference that is allowed is none"


def test_configuration(storage, minimal):
    """As build.sh writes it."""
    config = json.loads(storage.podman("inspect", minimal).stdout)[0]["Config"]
    assert (config["User"], config["WorkingDir"], config["Cmd"]) == ("1000:1000", "/mnt/data", ["python3"])
    assert sorted(config["Env"]) == ["HOME=/tmp", "LANG=C.UTF-8", "PATH=/usr/local/bin:/usr/bin:/bin"]


def test_unpacked(storage, minimal, tmp_path):
    """docker save and hutch rootfs unpack, as the Dockerfile says."""
    archive = save(storage, minimal, tmp_path / "built.tar")
    home = {"HUTCH_HOME": str(tmp_path / "home")}
    assert support.hutch("rootfs", "unpack", archive, "built", env=home).returncode == 0
    code = "import sys, ssl, sqlite3; print(sys.version_info[:2])"
    done = support.hutch("run", "--image", "built", "-c", code, env=home)
    assert done.returncode == 0 and done.stdout.startswith(b"(3, "), done.stderr
    assert support.hutch("run", "--image", "built", "--", env=home, stdin=b"print(7)").stdout == b"7\n"
    support.remove_tree(home["HUTCH_HOME"])


# --------------------------------------------------------------------------------------------------
# The same programs both ways

# Runs each program in an empty /mnt/data, where hutch has it, and says what came of it.
DRIVER = r"""
import hashlib, json, os, shutil, subprocess, sys
def empty(path):
    for entry in os.scandir(path):
        (shutil.rmtree if entry.is_dir(follow_symlinks=False) else os.unlink)(entry.path)
for name in sorted(os.listdir("/programs")):
    program = json.load(open("/programs/" + name))
    with open("/run/hutch/code/main.py", "w", encoding="utf-8") as file: file.write(program["code"])
    os.chdir("/mnt/data")
    stdin = program["stdin"].encode()
    done = subprocess.run(["python3", "/run/hutch/code/main.py"], input=stdin, capture_output=True, timeout=120)
    files = {}
    for folder, _, names in os.walk("/mnt/data"):
        for entry in names:
            path = os.path.join(folder, entry)
            data = os.readlink(path).encode() if os.path.islink(path) else open(path, "rb").read()
            files[os.path.relpath(path, "/mnt/data")] = [hashlib.sha256(data).hexdigest(), data[:4].hex()]
    print(json.dumps([program["name"], done.returncode, done.stdout.decode("utf-8", "replace"), files]), flush=True)
    empty("/mnt/data"); empty("/tmp")
"""


def data_volume(path):
    """A directory for /mnt/data that the image's user may write."""
    path.mkdir()
    path.chmod(0o777)
    return ["-v", "%s:/mnt/data" % path]


def contained(storage, options, *words, seconds):
    """podman run, as restricted as the image allows: no network, nothing to write but /tmp and what is mounted."""
    return storage.podman("run", "--rm", "--network", "none", "--read-only", "--tmpfs", "/tmp:rw,exec,mode=1777",
                          "--tmpfs", "/run/hutch/code:rw,mode=1777", *ENVIRONMENT,
                          "--pids-limit", "-1", *options, *words, seconds=seconds)


def files_below(folder):
    found = {}
    for where, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(where, name)
            if os.path.islink(path):
                data = os.readlink(path).encode()
            else:
                with open(path, "rb") as file:
                    data = file.read()
            found[os.path.relpath(path, folder)] = [hashlib.sha256(data).hexdigest(), data[:4].hex()]
    return found


def by_hutch(image, program, folder):
    data = os.path.join(folder, "data")
    os.mkdir(data)
    with open(os.path.join(folder, "main.py"), "w", encoding="utf-8") as file:
        file.write(program.code)
    done = support.hutch("run", "--json", "--image", image, "--data", data, os.path.join(folder, "main.py"),
                         stdin=program.stdin.encode(), timeout=180)
    result = json.loads(done.stdout)
    found = files_below(data)
    support.remove_tree(data)
    return [result["exit_code"], result["stdout"], found]


@pytest.fixture(scope="module")
def programs():
    chosen = os.environ.get("HUTCH_TEST_SUBJECTS", "").split()
    return [program for program in snippets.read(chosen) if program.image == "python"]


@pytest.fixture(scope="module")
def by_podman(storage, python, programs, tmp_path_factory):
    """Twice {name of a program: exit code, standard output, {file: digest, first bytes}}."""
    place = tmp_path_factory.mktemp("programs")
    for number, program in enumerate(programs):
        with open(place / ("%03d" % number), "w", encoding="utf-8") as file:
            json.dump({"name": program.name, "code": program.code, "stdin": program.stdin}, file)
    with open(place / "../driver.py", "w", encoding="utf-8") as file:
        file.write(DRIVER)
    os.chmod(place, 0o755)
    rounds = []
    for number in range(2):
        data = place.parent / ("data%d" % number)
        done = contained(storage, ["-v", "%s:/programs:ro" % place, "-v", "%s:/driver.py:ro" % (place.parent / "driver.py"), *data_volume(data)],
                         python, "python3", "/driver.py", seconds=1800)
        storage.podman("unshare", "rm", "-rf", str(data))  # files of a user of the container
        assert done.returncode == 0, done.stderr[-3000:]
        rounds.append({name: found for name, *found in map(json.loads, done.stdout.splitlines())})
    return rounds


def without_what_varies(found, rounds):
    """Files hold times and random names, as an archive or a PDF does: of one that differs between two rounds under podman only its
    first bytes are compared."""
    code, output, files = found
    first, second = (one[2] for one in rounds)
    return [code, output, {name: about if first.get(name) == second.get(name) else about[1:] for name, about in files.items()}]


def test_programs(by_podman, programs, tmp_path):
    """Each program of the corpus: the same output, exit code and files."""
    different = {}
    for number, program in enumerate(programs):
        folder = tmp_path / str(number)
        folder.mkdir()
        rounds = [one[program.name] for one in by_podman]
        there, here = (without_what_varies(found, rounds) for found in (rounds[0], by_hutch("python", program, str(folder))))
        if here != there:
            different[program.name] = (there, here)
    left = {name: both for name, both in different.items() if name not in OTHERWISE}
    assert not left, "\n".join("%s\n  podman %r\n  hutch  %r" % (name, *both) for name, both in left.items())
    names = {program.name for program in programs}
    assert len(names) > 100 or os.environ.get("HUTCH_TEST_SUBJECTS")


# One of each kind; the parity tests have all of them, under hutch.
NOTEBOOKS = ("display", "errors-chained", "files-and-run", "figures-inline", "ansi", "async")


def test_notebooks(storage, python, tmp_path):
    """Executed by nbconvert in the container, and by hutch: the same notebook, field by field."""
    found = parity.prepare(parity.notebooks(), list(NOTEBOOKS), str(tmp_path / "in"))
    out = tmp_path / "out"
    out.mkdir()
    out.chmod(0o777)
    done = contained(storage, ["-v", "%s:/ref/in:ro" % (tmp_path / "in"), "-v", "%s:/ref/out" % out,
                               "-v", "%s:/reference.py:ro" % os.path.join(parity.OWN, "reference.py"),
                               *data_volume(tmp_path / "data")],
                     python, "python3", "/reference.py", "/ref/in", "/ref/out",
                     *[name + ":allow" for name in NOTEBOOKS], seconds=900)
    assert done.returncode == 0, done.stderr[-3000:]
    for name in NOTEBOOKS:
        here, why = parity.run_hutch(name, found[name], str(tmp_path))
        assert here, why
        with open(found[name], encoding="utf-8") as file:
            comparison = parity.Comparison(name, json.load(file), str(out / (name + ".ipynb")), here)
        assert comparison.fields > 0 and not comparison.unexpected(), (name, comparison.unexpected()[:3])
    storage.podman("unshare", "rm", "-rf", str(out), str(tmp_path / "data"))
