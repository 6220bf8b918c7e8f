"""A clean tree of a release of Debian, made by mmdebstrap, in which a test installs what it wants and is an ordinary user.

Needs root, for packages, and Debian's archive. HUTCH_TEST_SCRATCH is the folder for trees, /var/tmp without it. pivot_root(2) makes
the tree the root directory for a user: in a chroot(2) no user can make a user namespace."""
import os
import shutil
import subprocess
import tempfile

TREE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
USUAL = subprocess.run([os.path.join(TREE, "rootfs", "packages.sh"), "releases"], stdout=subprocess.PIPE, text=True,
                       check=True).stdout.split()[0]
IMAGES = os.environ.get("HUTCH_TEST_IMAGES") or os.path.join(TREE, "build", "images", USUAL)
SECONDS = 900
NAMESPACES = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child"]
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
with open("/etc/os-release", encoding="utf-8") as release:
    HOST_SUITE = dict(line.rstrip().partition("=")[::2] for line in release)["VERSION_CODENAME"]
SUITES = ("bookworm", "trixie")
assert HOST_SUITE in SUITES, "nobody has tried Debian's %s yet" % HOST_SUITE
OTHER_SUITE = SUITES[1 - SUITES.index(HOST_SUITE)]
# What the package manager itself keeps, or what changes by itself.
NOT_COMPARED = ("proc", "sys", "dev", "tmp", "run", "home", "debs")
NOT_OURS = ("var/lib/dpkg/", "var/lib/apt/", "var/cache/", "var/log/", "etc/ld.so.cache")


def copy_sources(source, target):
    """The tree without what was built in it."""
    os.makedirs(target)
    packed = subprocess.Popen(["tar", "-C", source, "-c", "--exclude=./build", "--exclude=./build-*", "--exclude=./.git", "--exclude=node_modules", "."],
                              stdout=subprocess.PIPE)
    subprocess.run(["tar", "-C", target, "-x", "--no-same-owner"], stdin=packed.stdout, check=True)
    packed.stdout.close()
    assert packed.wait() == 0


class Tree:
    def __init__(self, suite, packages=()):
        self.suite = suite
        self.place = tempfile.mkdtemp(prefix="hutch-%s-" % suite, dir=os.environ.get("HUTCH_TEST_SCRATCH") or "/var/tmp")
        os.chmod(self.place, 0o755)
        self.path = os.path.join(self.place, "root")
        include = ["--include=" + ",".join(packages)] if packages else []
        try:
            done = subprocess.run(["unshare", "--mount", "mmdebstrap", "--quiet", "--variant=minbase", *include, suite, self.path],
                                  capture_output=True, text=True, timeout=SECONDS, check=False)
            assert done.returncode == 0, done.stderr[-2000:]
            self.root("useradd --create-home user")
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_ignored):
        self.close()

    def at(self, path):
        return self.path + path

    def root(self, command, seconds=SECONDS):
        """As root, by chroot: for the package manager, which has the host's network."""
        script = ('mount --rbind /dev "$1/dev" && mount -t proc proc "$1/proc" && cp /etc/resolv.conf "$1/etc/resolv.conf" && '
                  'exec chroot "$1" sh -c "$2"')
        done = subprocess.run([*NAMESPACES, "sh", "-c", script, "sh", self.path, command],
                              capture_output=True, text=True, timeout=seconds, check=False, stdin=subprocess.DEVNULL,
                              env={"PATH": PATH, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive", "HOME": "/root"})
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    def user(self, command, status=0, seconds=120, path="/usr/bin:/bin", uid="user", net=("--net",)):
        """As an ordinary user of it, without any privilege and, by default, without a network. What came on both streams."""
        script = """set -e
            mount --bind "$1" "$1"; cd "$1"; mkdir -p old
            mount -t proc proc proc; mount --rbind /dev dev; mount -t tmpfs -o mode=1777 tmpfs tmp
            pivot_root . old; umount -l /old; rmdir /old; cd /home/user
            case $4 in [0-9]*) groups="--clear-groups --regid $4"; home= ;; *) groups="--init-groups --regid $4"; home=HOME=/home/$4 ;; esac
            exec setpriv --reuid "$4" $groups --inh-caps=-all \\
                env -i $home LC_ALL=C.UTF-8 PATH="$3" sh -c "$2" """
        words = [*NAMESPACES, *net, "--ipc", "sh", "-c", script, "sh", self.path, command, path, uid]
        done = subprocess.run(words, capture_output=True, text=True, timeout=seconds, check=False, stdin=subprocess.DEVNULL, env={"PATH": PATH})
        assert done.returncode == status, (done.returncode, done.stdout[-3000:], done.stderr[-3000:])
        return done

    def files(self):
        """Every name but those that change by themselves."""
        found = set()
        for where, folders, names in os.walk(self.path):
            below = os.path.relpath(where, self.path)
            if below == ".":
                folders[:] = [name for name in folders if name not in NOT_COMPARED]
            found |= {os.path.normpath(os.path.join(below, name)) for name in folders + names}
        return {name for name in found if not name.startswith(NOT_OURS)}

    def close(self):
        shutil.rmtree(self.place)
