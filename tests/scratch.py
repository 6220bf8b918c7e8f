"""What is tested: a copy of hutch and of its tests, installed where every user can read it, and the images."""
import atexit
import os
import re
import shutil
import subprocess
import tempfile
import time

from common import TREE, say, stop

IMAGES = ("minimal", "python", "node")
IMAGE_SECONDS = 1800  # to build all of them
FUZZ_BUILD = os.path.join(TREE, "build-fuzz", "tests", "fuzz")

class Scratch:
    def __init__(self, build):
        self.build = build
        self.archives = None  # folder of images that all users can read, once they are there
        self.path = tempfile.mkdtemp(prefix="hutch-tests.", dir="/tmp")
        os.chmod(self.path, 0o755)
        if os.environ.get("HUTCH_TEST_KEEP") != "1":
            atexit.register(self.remove)
        # -o all: what is in the build directory is what is tested, with whatever flags it was built.
        install = subprocess.run(["make", "--no-print-directory", "-C", TREE, "-o", "all", "install", "B=" + build,
                                  "PREFIX=/usr/local", "DESTDIR=" + os.path.join(self.path, "installed")],
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, umask=0o022)
        if install.returncode:
            stop("make install failed:\n" + install.stdout)
        self.binary = os.path.join(self.path, "installed/usr/local/bin/hutch")
        self.tree = os.path.join(self.path, "tree")
        os.mkdir(self.tree)
        ignore = shutil.ignore_patterns("__pycache__", ".pytest_cache")
        for name in ("tests", "examples", "policies", "rootfs", "bench", "docs", "clients"):
            if os.path.isdir(os.path.join(TREE, name)):  # links of packages lead to sources that are not copied
                shutil.copytree(os.path.join(TREE, name), os.path.join(self.tree, name), ignore=ignore, symlinks=name != "clients")
        shutil.copy(os.path.join(TREE, "README.md"), self.tree)  # whose table is tested
        os.makedirs(os.path.join(self.tree, "runtime/gateway"))
        for name in ("openapi.json", "routes.c"):  # that tests compare with what the server answers
            shutil.copy(os.path.join(TREE, "runtime/gateway", name), os.path.join(self.tree, "runtime/gateway", name))
        tests = os.path.join(build if os.path.isabs(build) else os.path.join(TREE, build), "tests")
        self.unit = os.path.join(self.path, "unit")
        self.programs = os.path.join(self.path, "programs")  # that tests of other lanes run
        for room in sorted(os.listdir(os.path.join(tests, "unit"))) if os.path.isdir(os.path.join(tests, "unit")) else ():
            copy_programs(os.path.join(tests, "unit", room), os.path.join(self.unit, room))
        self.fuzz = os.path.join(self.path, "fuzz")
        self.findings = os.path.join(os.path.dirname(tests), "fuzz-findings")
        if os.path.isdir(FUZZ_BUILD):
            copy_programs(FUZZ_BUILD, self.fuzz)
        copy_programs(tests, self.programs)
        shutil.copy(os.path.join(os.path.dirname(tests), "rootfs", "helper.so"), self.programs)
        self.clients = os.path.join(self.path, "clients")  # of others, from npm
        if os.path.isdir(os.path.join(TREE, "build", "clients")):
            shutil.copytree(os.path.join(TREE, "build", "clients"), self.clients, symlinks=True)
        subprocess.run(["chmod", "-R", "a+rX", self.path], check=True)

    def remove(self):
        subprocess.run(["chmod", "-R", "u+rwx", self.path], stderr=subprocess.DEVNULL, check=False)
        subprocess.run(["rm", "-rf", self.path], check=False)


def copy_programs(source, target):
    """The programs in a directory of the build; not what else the compiler leaves there."""
    os.makedirs(target)
    for name in sorted(os.listdir(source)):
        path = os.path.join(source, name)
        if os.path.isfile(path) and re.fullmatch(r"\w+", name) and os.access(path, os.X_OK):
            shutil.copy(path, target)


def prepare_archives(build):
    """The images as archives, which `make test-images` builds once. The folder, or None."""
    folder = os.environ.get("HUTCH_TEST_IMAGES")
    if not folder:
        releases = subprocess.run([os.path.join(TREE, "rootfs", "packages.sh"), "releases"], stdout=subprocess.PIPE, text=True, check=True)
        folder = os.path.join(build if os.path.isabs(build) else os.path.join(TREE, build), "images",
                              os.environ.get("HUTCH_SUITE") or releases.stdout.split()[0])
    if not all(os.path.exists(os.path.join(folder, name + ".tar")) for name in IMAGES):
        say("building the images (once, some minutes)")
        built = subprocess.run(["make", "--no-print-directory", "-C", TREE, "-j", "2", "test-images", "HUTCH_TEST_IMAGES=" + folder],
                               timeout=IMAGE_SECONDS, check=False)
        if built.returncode:
            return None
    return folder


def readable_for_all(scratch, archives):
    """A copy of the archives that every user can read: the checkout may be closed to others."""
    copy = os.path.join(scratch.path, "images")
    os.mkdir(copy)
    for name in IMAGES:
        shutil.copyfile(os.path.join(archives, name + ".tar"), os.path.join(copy, name + ".tar"))
    return copy


def prepare_store(scratch, identity, n_workers, linked_to=None):
    """Unpacks the images for one user, by hutch itself, or links them to another store of his. Tests at once have a store each,
    because some count what lives in theirs; these are linked to the first."""
    if not linked_to or not link_store(linked_to, identity.store):
        unpack_images(scratch, identity, identity.store)
    for store in ("%s.gw%d" % (identity.store, n) for n in range(n_workers)):
        if not link_store(identity.store, store):
            unpack_images(scratch, identity, store)


def link_store(source, store):
    """False where that cannot be: the kernel may forbid links to files of other ids (protected_hardlinks)."""
    if subprocess.run(["cp", "-al", source, store], stderr=subprocess.DEVNULL, check=False).returncode == 0:
        return True
    subprocess.run(["chmod", "-R", "u+rwx", store], stderr=subprocess.DEVNULL, check=False)
    subprocess.run(["rm", "-rf", store], check=False)
    return False


def unpack_images(scratch, identity, store):
    os.mkdir(store, 0o711)
    if identity.uid != os.geteuid():
        os.chown(store, identity.uid, identity.gid)
    for name in IMAGES:
        started = time.monotonic()
        done = subprocess.run(identity.prefix() + [scratch.binary, "rootfs", "unpack", os.path.join(scratch.archives, name + ".tar"), name],
                              env=dict(identity.environment(scratch), HUTCH_HOME=store), stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True, timeout=600, check=False, cwd="/")
        if done.returncode:
            stop("unpack the image %s as %s: %s" % (name, identity.label, done.stderr.strip()))
        say("unpacked %s for %s in %.1f s" % (name, identity.label, time.monotonic() - started))
