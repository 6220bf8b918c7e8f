"""Debian's podman and buildah, rootless and without a daemon, with a storage of their own that is gone at the end; and containers
that have this machine's /usr, and nothing else of it but the tree, the store and the tests' data."""
import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import tarfile
import tempfile

import support

# Of a sandbox with 64 processes at most. They end before their parent: when that has given up its memory, init counts the process
# that held it, too.
CHILDREN = """
import os, time
made = []
try:
    for i in range(200):
        pid = os.fork()
        if pid == 0:
            time.sleep(60); os._exit(0)
        made.append(pid)
except OSError as error: print(error.errno)
time.sleep(1)
for pid in made: os.kill(pid, 9)
for pid in made: os.waitpid(pid, 0)
print(len(made))
"""
# Of one whose memory is to be used up.
MEMORY = {
    "one process": "kept = []\nwhile len(kept) < 1024: kept.append(b'x' * (1 << 20))",
    "four processes": "import os, time\nfor i in range(4):\n    if os.fork() == 0:\n        kept = b'x' * (300 << 20); time.sleep(60)\n"
                      "time.sleep(60)",
    "shared memory": "import mmap, time\nm = mmap.mmap(-1, 1 << 30)\nfor at in range(0, 1 << 30, 4096): m[at] = 1\ntime.sleep(60)",
}


def tiny_image(path):
    """A root file system of directories and links, over which this machine's /usr is mounted."""
    with tarfile.open(path, "w") as tar:
        for name in ("dev", "etc", "mnt", "proc", "root", "run", "sys", "tmp", "usr", "var", "home"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            tar.addfile(entry)
        for name in ("bin", "sbin", "lib", "lib64"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, "usr/" + name
            tar.addfile(entry)
        for name, text in (("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"), ("etc/group", "root:x:0:\n")):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(text), 0o644
            tar.addfile(entry, io.BytesIO(text.encode()))


class Storage:
    """One storage and one runtime directory."""

    def __init__(self):
        self.place = tempfile.mkdtemp(prefix="hutch-podman-", dir="/tmp")  # conmon's sockets take no long path
        os.mkdir(os.path.join(self.place, "run"), 0o700)
        settings = os.path.join(self.place, "containers.conf")
        with open(settings, "w", encoding="ascii") as file:
            file.write('[engine]\ncgroup_manager = "cgroupfs"\nruntime = "runc"\nevents_logger = "none"\n')
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": os.path.join(self.place, "run"),
                            "CONTAINERS_CONF": settings}
        self.storage = ["--root", os.path.join(self.place, "storage"), "--runroot", os.path.join(self.place, "runroot"),
                        "--storage-driver", "vfs"]

    def podman(self, *words, seconds=120, program="podman"):
        return subprocess.run([program, *self.storage, *words], env=self.environment, capture_output=True, text=True,
                              timeout=seconds, check=False)

    def buildah(self, *words, seconds=120):
        return self.podman(*words, seconds=seconds, program="buildah")

    def close(self):
        # What a first rootless command leaves to hold its namespaces.
        try:
            with open(os.path.join(self.place, "run/libpod/tmp/pause.pid"), encoding="ascii") as file:
                pause = int(file.read())
        except (OSError, ValueError):
            pause = None
        self.podman("unshare", "rm", "-rf", os.path.join(self.place, "storage"), os.path.join(self.place, "runroot"))
        if pause:
            os.kill(pause, signal.SIGTERM)
        shutil.rmtree(self.place, ignore_errors=True)
        assert not os.path.exists(self.place)


class Podman(Storage):
    """With an image that has nothing of its own."""

    def __init__(self):
        super().__init__()
        tar = os.path.join(self.place, "tiny.tar")
        tiny_image(tar)
        done = self.podman("import", tar, "tiny")
        assert done.returncode == 0, done.stderr

    def run(self, options, *words, seconds=120):
        store = os.environ.get("HUTCH_HOME") or os.path.join(os.environ["HOME"], ".local/share/hutch")
        prefix = os.path.dirname(os.path.dirname(os.path.realpath(support.HUTCH)))  # where its policies are, too
        mounts = {"/usr": "/usr", support.TREE: support.TREE, prefix: prefix}
        data = os.environ.get("HUTCH_TEST_DATA")
        if data and os.path.isdir(data):
            mounts[data] = data
        found = ["run", "--rm", "--network", "none", "--workdir", "/tmp", "-v", store + ":/store", "-e", "HUTCH_HOME=/store",
                 "-e", "HUTCH_BIN=" + support.HUTCH, "-e", "PYTHONDONTWRITEBYTECODE=1", "-v", self.place + "/files:/files"]
        if os.path.isdir("/etc/alternatives"):
            mounts["/etc/alternatives"] = "/etc/alternatives"
        for source, target in mounts.items():
            found += ["-v", "%s:%s:ro" % (source, target)]
        # What is printed goes to files: podman now and then passes on nothing of a container that ends at once.
        for name in ("stdout", "stderr"):
            os.chmod(self.place + self.file(name, ""), 0o666)
        done = self.podman(*found, *options, "tiny", "sh", "-c", 'exec "$@" >/files/stdout 2>/files/stderr', "sh", *words, seconds=seconds)
        done.stdout += self.read("stdout")
        done.stderr += self.read("stderr")
        return done

    def hutch(self, options, *words):
        """The result of a run inside."""
        done = self.run(options, support.HUTCH, "run", "--image", support.IMAGE, "--json", *words)
        assert done.stdout.startswith("{"), (done.returncode, done.stdout[:500], done.stderr[:2000])
        result = json.loads(done.stdout)
        support.check_result(result)
        return result

    def read(self, name):
        with open(os.path.join(self.place, "files", name), encoding="utf-8") as file:
            return file.read()

    def file(self, name, text):
        os.makedirs(self.place + "/files", exist_ok=True)
        with open(os.path.join(self.place, "files", name), "w", encoding="utf-8") as file:
            file.write(text)
        return "/files/" + name


@contextlib.contextmanager
def podman():
    if not shutil.which("podman") or not shutil.which("runc"):
        support.miss("apt: podman, or runc, is not installed")
    made = Podman()
    try:
        made.file("empty.py", "")
        done = made.run([], "true")
        if done.returncode:
            support.miss("podman starts no container here: " + done.stderr.strip()[-300:])
        yield made
    finally:
        made.close()


def as_caller():
    return ["--userns", "keep-id", "--cap-drop", "all", "--security-opt", "no-new-privileges"]
