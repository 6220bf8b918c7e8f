"""Images that are not hutch's: Debian's Python, Node, Ruby and R in the form of Docker's, and a tree of busybox and
musl. Each is packed by podman in two ways, unpacked by hutch, and used: scripts, programs with the image's Env,
Entrypoint, Cmd and WorkingDir, /mnt/data, limits, and what must fail."""
import json
import os
import shlex
import shutil
import subprocess

import pytest

import support
import trees
from containers import Storage

SUITE = "trixie"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# As Docker's image of Node has it.
NODE_ENTRYPOINT = """#!/bin/sh
set -e
if [ "${1#-}" != "${1}" ] || [ -z "$(command -v "${1}")" ] || { [ -f "${1}" ] && ! [ -x "${1}" ]; }; then
  set -- node "$@"
fi
exec "$@"
"""


class Foreign:
    """One image, and programs for it. @shows prints its arguments, the variable KIND and a line of standard input, and
    writes "made" into the file out; @loops and @grows use all the time, and all the memory. @words are a program of the
    image, and @prints what it prints."""

    def __init__(self, ending, shows, loops, grows, words, prints, packages=None, env=(), entrypoint=None, cmd=None):
        self.ending, self.shows, self.loops, self.grows = ending, shows, loops, grows
        self.words, self.prints = words, prints
        self.packages, self.env, self.entrypoint, self.cmd = packages, env, entrypoint, cmd

    def changes(self, name):
        """Its configuration, as podman import has it."""
        found = ["ENV " + text for text in (*self.env, "KIND=" + name)] + ["CMD " + json.dumps(self.cmd)]
        found += ["ENTRYPOINT " + json.dumps(self.entrypoint)] if self.entrypoint else []
        return found + ["WORKDIR /app", "USER root"]


IMAGES = {
    "python": Foreign(
        ".py", packages=["python3"], env=["PATH=" + PATH, "LANG=C.UTF-8", "PYTHON_VERSION=3.13"], cmd=["python3"],
        shows="import os, sys\n"
              "print(*sys.argv[1:], os.environ.get('KIND'), input())\n"
              "open('out', 'w').write('made')",
        loops="while True: pass",
        grows="kept = []\nwhile True: kept.append(b'x' * (8 << 20))",
        words=["python3", "-c", "import os; print(6 * 7, os.environ['PYTHON_VERSION'], os.getcwd())"],
        prints="42 3.13 /app\n"),
    "node": Foreign(
        ".js", packages=["nodejs"], env=["PATH=" + PATH, "NODE_VERSION=20"],
        entrypoint=["docker-entrypoint.sh"], cmd=["node"],
        shows="const fs = require('fs');\n"
              "console.log(...process.argv.slice(2), process.env.KIND, fs.readFileSync(0, 'utf8').trim());\n"
              "fs.writeFileSync('out', 'made');",
        loops="for (;;);",
        grows="const kept = [];\nfor (;;) kept.push(Buffer.alloc(8 << 20, 1));",
        words=["-p", "`${6 * 7} ${process.env.NODE_VERSION} ${process.cwd()}`"], prints="42 20 /app\n"),
    "ruby": Foreign(
        ".rb", packages=["ruby"], cmd=["irb"],
        env=["PATH=/usr/local/bundle/bin:" + PATH, "LANG=C.UTF-8", "GEM_HOME=/usr/local/bundle"],
        shows="puts [*ARGV, ENV['KIND'], STDIN.gets.strip].join(' ')\n"
              "File.write('out', 'made')",
        loops="loop {}",
        grows="kept = []\nloop { kept << 'x' * (8 << 20) }",
        words=["ruby", "-e", "puts 6 * 7, ENV['GEM_HOME'], Dir.pwd"], prints="42\n/usr/local/bundle\n/app\n"),
    "r": Foreign(
        ".R", packages=["r-base-core"], cmd=["R", "--no-save"],
        env=["PATH=" + PATH, "LC_ALL=C.UTF-8", "R_BASE_VERSION=4"],
        shows="cat(commandArgs(TRUE), Sys.getenv('KIND'), readLines('stdin', n = 1))\n"
              "cat('\\n')\n"
              "cat('made', file = 'out')",
        loops="while (TRUE) {}",
        grows="kept <- list()\nrepeat kept[[length(kept) + 1]] <- rep(1.5, 1e6)",
        words=["Rscript", "-e", "cat(6 * 7, Sys.getenv('R_BASE_VERSION'), getwd(), fill = TRUE)"],
        prints="42 4 /app\n"),
    "musl": Foreign(
        ".sh", env=["PATH=/opt/bin:/bin"], cmd=["/bin/sh"],
        shows="read line\necho \"$@\" $KIND $line\nprintf made >out",
        loops="while :; do :; done",
        grows="exec grow",
        words=["say", "42"], prints="42 /opt/bin:/bin /app\n"),
}
MUSL = {"say": r"""
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    char here[4096];
    printf("%s %s %s\n", argc > 1 ? argv[1] : "", getenv("PATH"), getcwd(here, sizeof(here)));
    return 0;
}
""", "grow": r"""
#include <stdlib.h>
#include <string.h>
int main(void)
{
    for (;;) {
        char *kept = malloc(8 << 20);
        if (kept)
            memset(kept, 1, 8 << 20);
    }
}
"""}

pytestmark = pytest.mark.skipif(support.is_root(), reason="rootless builders: an ordinary user's lane has them")


@pytest.fixture(scope="module")
def storage():
    for program in ("podman", "runc", "mmdebstrap"):
        if not shutil.which(program):
            support.miss("apt: %s is not installed" % program)
    made = Storage()
    yield made
    made.close()


def add(tar, folder, *names):
    """To what mmdebstrap has made."""
    subprocess.run(["tar", "--owner=0", "--group=0", "-C", folder, "-rf", tar, *names], check=True)


def musl_tree(scratch):
    """As Alpine's: busybox under all its names, musl's loader, and programs that want it."""
    root, packages = os.path.join(scratch, "root"), os.path.join(scratch, "packages")
    for name in ("bin", "lib", "opt/bin", "etc", "tmp", "usr/bin", "app"):
        os.makedirs(os.path.join(root, name))
    for package in ("busybox-static", "musl"):
        subprocess.run(["apt-get", "download", "-q=2", package], cwd=scratch, check=True, capture_output=True)
    for name in os.listdir(scratch):
        if name.endswith(".deb"):
            subprocess.run(["dpkg-deb", "-x", os.path.join(scratch, name), packages], check=True)
    busybox = next(path for path in ("bin/busybox", "usr/bin/busybox") if os.path.exists(os.path.join(packages, path)))
    shutil.copy(os.path.join(packages, busybox), os.path.join(root, "bin/busybox"))
    applets = subprocess.run([os.path.join(root, "bin/busybox"), "--list"], capture_output=True, text=True, check=True)
    for applet in set(applets.stdout.split()) - {"busybox"}:
        os.symlink("busybox", os.path.join(root, "bin", applet))
    loaders = [os.path.join(where, "libc.so") for where, _, names in os.walk(packages) if "libc.so" in names]
    assert len(loaders) == 1, loaders
    machine = os.uname().machine
    shutil.copy(loaders[0], os.path.join(root, "lib/ld-musl-%s.so.1" % machine))
    for name, text in MUSL.items():
        source = os.path.join(scratch, name + ".c")
        with open(source, "w", encoding="ascii") as file:
            file.write(text)
        program = os.path.join(root, "opt/bin", name)
        subprocess.run(["musl-gcc", "-O1", "-o", program, source], check=True)
        with open(program, "rb") as file:
            assert b"/lib/ld-musl" in file.read(4096), "it is to be linked against musl"
    with open(os.path.join(root, "etc/passwd"), "w", encoding="ascii") as file:
        file.write("root:x:0:0:root:/root:/bin/sh\n")
    tar = os.path.join(scratch, "musl.tar")
    subprocess.run(["tar", "--owner=0", "--group=0", "-C", root, "-cf", tar, "."], check=True)
    return tar


def make_tree(name, foreign, scratch):
    if name == "musl":
        return musl_tree(scratch)
    made = trees.debian(name, SUITE, "essential", foreign.packages, scratch)
    tar = os.path.join(scratch, "tree.tar")
    shutil.copyfile(made, tar)
    for folder in ("more/app", "more/usr/local/bin"):
        os.makedirs(os.path.join(scratch, folder))
    entrypoint = os.path.join(scratch, "more/usr/local/bin/docker-entrypoint.sh")
    with open(entrypoint, "w", encoding="ascii") as file:
        file.write(NODE_ENTRYPOINT)
    os.chmod(entrypoint, 0o755)
    add(tar, os.path.join(scratch, "more"), "./app", "./usr/local/bin/docker-entrypoint.sh")
    return tar


@pytest.fixture(scope="module", params=list(IMAGES))
def image(request, storage, tmp_path_factory):
    """The image's name in the store of @image.home, unpacked from what docker save would write."""
    name, foreign = request.param, IMAGES[request.param]
    scratch = tmp_path_factory.mktemp(name)
    changes = [word for change in foreign.changes(name) for word in ("--change", change)]
    done = storage.podman("import", *changes, make_tree(name, foreign, str(scratch)), name, seconds=300)
    assert done.returncode == 0, done.stderr
    foreign.name, foreign.scratch = name, scratch
    foreign.home = {"HUTCH_HOME": str(scratch / "home")}
    foreign.docker, foreign.oci = str(scratch / "docker.tar"), str(scratch / "oci")
    for target in ("docker-archive:" + foreign.docker, "oci:%s:latest" % foreign.oci):
        done = storage.podman("push", "-q", name, target, seconds=600)
        assert done.returncode == 0, done.stderr
    done = support.hutch("rootfs", "unpack", foreign.docker, name, env=foreign.home, timeout=600)
    assert done.returncode == 0, done.stderr
    yield foreign
    support.remove_tree(foreign.home["HUTCH_HOME"])
    storage.podman("rmi", "-f", name)


def run(image, *words, **options):
    return support.hutch("run", "--image", image.name, *words, env=image.home, **options)


def run_json(image, *words, **options):
    done = run(image, "--json", *words, **options)
    result = json.loads(done.stdout)
    support.check_result(result)
    return result


def script(image, tmp_path, text, ending=None):
    path = tmp_path / ("script" + (ending or image.ending))
    path.write_text(text)
    return str(path)


def record(image, name):
    images = json.loads(support.hutch("rootfs", "list", "--json", env=image.home).stdout)
    digest = next(found["digest"] for found in images if name in found["names"])
    tree = os.path.join(image.home["HUTCH_HOME"], "images/trees", digest.partition(":")[2])
    with open(os.path.join(tree, "record"), encoding="utf-8") as file:
        return file.read()


def test_packed_in_two_ways(image):
    """The same tree from an OCI layout, and by way of skopeo."""
    done = support.hutch("rootfs", "unpack", image.oci, "layout", env=image.home, timeout=600)
    assert done.returncode == 0, done.stderr
    wanted = record(image, image.name)
    assert wanted.count("\n") > 200 and record(image, "layout") == wanted
    if not shutil.which("skopeo"):
        support.miss("apt: skopeo is not installed")
    done = support.hutch("rootfs", "pull", "oci:%s:latest" % image.oci, "--name", "pulled", env=image.home, timeout=600)
    assert done.returncode == 0, done.stderr
    assert record(image, "pulled") == wanted
    assert support.hutch("rootfs", "verify", env=image.home, timeout=600).returncode == 0


def test_script(image, tmp_path, data):
    """By the ending of its name: arguments, the image's environment, standard input and a file in /mnt/data."""
    result = run_json(image, "--data", str(data), script(image, tmp_path, image.shows), "one", "two", stdin=b"three\n")
    assert (result["verdict"], result["stdout"].split()) == ("ok", ["one", "two", image.name, "three"]), result
    assert (data / "out").read_text() == "made" and [file["path"] for file in result["files"]["added"]] == ["out"]


def test_shell(image, tmp_path):
    """Each of them has a shell."""
    done = run(image, script(image, tmp_path, "echo $KIND $1; exit 3", ".sh"), "x")
    assert (done.stdout.decode(), done.returncode) == (image.name + " x\n", 3), done.stderr


def test_program_of_the_image(image):
    done = run(image, "--", *image.words)
    assert (done.stdout.decode(), done.returncode) == (image.prints, 0), done.stderr
    done = run(image, "--entrypoint", "sh", "--", "-c", "echo $KIND; exit 4")
    assert (done.stdout.decode(), done.returncode) == (image.name + "\n", 4), done.stderr
    # Its user is root, which is not obeyed.
    assert run(image, "--entrypoint", "sh", "--", "-c", "id -u").stdout == b"1000\n"


def test_as_the_image_wants_it(image):
    """Nothing but the image: its Entrypoint and Cmd, an interpreter that reads its standard input."""
    programs = {"python": "print(6 * 7)", "node": "console.log(6 * 7)", "ruby": "puts 6 * 7", "r": "cat(6 * 7, '\\n')",
                "musl": "echo 42"}
    done = run(image, "--", stdin=(programs[image.name] + "\n").encode())
    assert done.returncode == 0 and b"42" in done.stdout, done


def test_options_win(image, tmp_path):
    """Over the image's environment, as for hutch's own images; what the policy sets stays the policy's."""
    shell = script(image, tmp_path, "echo $KIND $HOME $PATH", ".sh")
    wanted = next(text[len("PATH="):] for text in image.env if text.startswith("PATH="))
    assert run(image, shell).stdout.decode().split() == [image.name, "/tmp", wanted]
    done = run(image, "-e", "KIND=mine", "-e", "PATH=/usr/bin:/bin", shell)
    assert done.stdout.decode().split() == ["mine", "/tmp", "/usr/bin:/bin"], done.stderr


def test_timeout(image, tmp_path):
    result = run_json(image, "--timeout", "2s", script(image, tmp_path, image.loops))
    assert result["verdict"] == "timeout", result


def test_memory(image, tmp_path):
    """Ended by the limit, or told by the interpreter's own allocator that there is no more."""
    result = run_json(image, "--memory", "128m", "--timeout", "60s", script(image, tmp_path, image.grows), timeout=120)
    if result["verdict"] != "out_of_memory":
        assert result["verdict"] in ("error", "killed") and result["exit_code"] != 0, result
        assert any(word in result["stderr"] for word in ("memory", "Memory", "allocat")), result
    assert (result["usage"]["memory_peak_bytes"] or 0) < 512 << 20, result["usage"]


# --------------------------------------------------------------------------------------------------
# Hostile, in words that every shell has

# Each succeeds where nothing prevents it, as on the host. %(file)s is a file there that everybody may read and write.
PROBES = {
    "read a file of the host": "cat %(file)s",
    "read it from above the root": "cat /../../../..%(file)s",
    "read it by way of process 1": "cat /proc/1/root%(file)s",
    "write a file of the host": "echo x >>%(file)s",
    "see the processes of the host": "test $(ls -d /proc/[0-9]* | wc -l) -gt 12",
    "see another network interface": "test $(grep -c : /proc/net/dev) -gt 1",
    "end a process of the host": "kill -0 %(pid)d",
}
# Each succeeds for root, and for some of them for whoever has a user namespace of his own.
FOR_ROOT = {
    "write to the image": "echo x >/usr/bin/hutch-probe",
    "replace a program": "rm -f /bin/sh",
    "make a mount": "mount -t tmpfs none /mnt/data",
    "make a device": "mknod /tmp/disk b 8 0",
    "become root": "chown 0 /tmp/mine",
    "set the host name": "echo x >/proc/sys/kernel/hostname",
    "ask the kernel for a dump": "echo t >/proc/sysrq-trigger",
    "raise a limit": "ulimit -n 1000000",
    "read password hashes": "test -n \"$(cat /etc/shadow)\"",
    "look into process 1": "ls /proc/1/fd/",
}
HEAD = """probe() { if (eval "$2") >/dev/null 2>&1; then echo "$1: done"; else echo "$1: refused"; fi; }
"""


def probes(table, **values):
    filled = {name: command % values if "%(" in command else command for name, command in table.items()}
    return HEAD + "".join("probe '%s' %s\n" % (name, shlex.quote(command)) for name, command in filled.items())


def said(output):
    return dict(line.rsplit(": ", 1) for line in output.splitlines())


@pytest.fixture
def secret(tmp_path):
    tmp_path.chmod(0o755)
    path = tmp_path / "secret"
    path.write_text("of the host\n")
    path.chmod(0o666)
    return str(path)


def test_probes(image, tmp_path, secret):
    text = ": >/tmp/mine\n" + probes({**PROBES, **FOR_ROOT}, file=secret, pid=os.getpid())
    result = run_json(image, script(image, tmp_path, text, ".sh"))
    found = said(result["stdout"])
    assert set(found) == set(PROBES) | set(FOR_ROOT), result
    assert [name for name, state in found.items() if state != "refused"] == []
    with open(secret, encoding="ascii") as file:
        assert file.read() == "of the host\n"


def test_probes_succeed_on_the_host(tmp_path, secret):
    """Control: each of these does what it says where nothing is in the way."""
    path = tmp_path / "probes.sh"
    table = {name: command for name, command in PROBES.items() if "process 1" not in name}  # which is root's
    path.write_text(probes(table, file=secret, pid=os.getpid()))
    found = said(subprocess.run(["sh", str(path)], capture_output=True, text=True, check=True).stdout)
    assert found == {name: "done" for name in table}


def test_fork_bomb(image, tmp_path):
    """It is stopped by the limits, and nothing of it is left."""
    bomb = script(image, tmp_path, "f() { f | f & }\nf\nwhile :; do :; done", ".sh")
    result = run_json(image, "--pids-limit", "32", "--timeout", "3s", bomb, timeout=60)
    assert result["verdict"] in ("timeout", "error", "killed"), result
    assert run(image, "--entrypoint", "sh", "--", "-c", "echo after").stdout == b"after\n"


# --------------------------------------------------------------------------------------------------
# The engine, for the image that has Python

def test_engine_has_the_environment(image, tmp_path):
    """Warm programs, batches and cells of the image have its variables as cold ones do."""
    if image.name != "python":
        done = run(image, "--warm", "-c", "print(1)")
        assert done.returncode == 125 and b"zygote" in done.stderr, done  # it has no python3
        return
    code = "import os; print(os.environ['KIND'], os.environ['PYTHON_VERSION'], os.environ['HOME'])"
    for words in (["-c", code], ["--warm", "-c", code]):
        done = run(image, *words)
        assert done.stdout == b"python 3.13 /tmp\n", (words, done.stderr)
    tasks = tmp_path / "tasks.jsonl"
    task = {"id": "x", "code": code, "stdin": "", "expected": {"stdout": "python 3.13 /tmp\n"}}
    tasks.write_text(json.dumps(task) + "\n")
    done = support.hutch("batch", str(tasks), "--format", "generic", "--image", image.name, env=image.home, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
