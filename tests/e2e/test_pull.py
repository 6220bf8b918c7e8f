"""hutch rootfs pull: images of a registry and of other tools by skopeo, and what can go wrong on the way. What skopeo and
the registry say and write is judged like any stranger's. Nothing is left behind, whichever way it ends."""
import base64
import contextlib
import http.server
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import tarfile
import threading
import time

import pytest

import rootfs_archives as make
import support
from rootfs_archives import docker_old, file, layer, oci, oci_folder

SECONDS = 60
CLIENTS = os.environ.get("HUTCH_TEST_CLIENTS") or os.path.join(support.TREE, "build", "clients")
ONE, TWO = [layer(file("which", b"one"))], [layer(file("which", b"two"))]
PASSWORD = "secret"
HTPASSWD = "ada:$2b$04$QUrup1Jqzqo8y4V89upDlu4E90lUvWFYZE3KA6kkqSbgyVyEsE3cO\n"  # of PASSWORD


def environment(folder, **more):
    """With an XDG_RUNTIME_DIR of the test's own: without one skopeo looks where root may have made a directory for itself."""
    os.makedirs(folder + "/runtime", mode=0o700, exist_ok=True)
    return {**os.environ, "XDG_RUNTIME_DIR": folder + "/runtime", **more}


def skopeo(folder, *words):
    subprocess.run(["skopeo", "--insecure-policy", "copy", "-q", *words], check=True, timeout=SECONDS, env=environment(folder))


@pytest.fixture(autouse=True)
def has_skopeo():
    if not shutil.which("skopeo"):
        support.miss("apt: skopeo is not there")


@pytest.fixture
def home(tmp_path):
    path = str(tmp_path / "home")
    yield path
    until = time.monotonic() + SECONDS
    while support.processes_about(path):
        assert time.monotonic() < until, "processes are left"
        time.sleep(0.02)
    if os.path.isdir(path):
        assert os.listdir(path + "/images/tmp") == [], "files are left"
    support.remove_tree(path)


def pull(home, *args, env=None, **options):
    return support.hutch("rootfs", "pull", *args, env=environment(os.path.dirname(home), HUTCH_HOME=home, **(env or {})), **options)


def refused(home, *args, says, **options):
    done = pull(home, *args, **options)
    assert done.returncode == 125 and done.stdout == b"", done
    line = support.sentence(done)
    for text in (says,) if isinstance(says, str) else says:
        assert text in line, line
    assert images(home) == []
    return line


def images(home):
    return json.loads(support.hutch("rootfs", "list", "--json", env={"HUTCH_HOME": home}).stdout)


def content(home, name="which"):
    (one,) = images(home)
    with open(os.path.join(home, "images", "trees", one["digest"][7:], "root", name), "rb") as opened:
        return opened.read()


# --- registries -------------------------------------------------------------------------------------------------

def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


@contextlib.contextmanager
def registry(folder, more=""):
    """Debian's, in the foreground. Its address."""
    program = shutil.which("docker-registry") or os.path.join(CLIENTS, "proxies", "root", "usr", "bin", "docker-registry")
    if not os.path.exists(program):
        support.miss("apt: docker-registry is not there (make clients)")
    address = "127.0.0.1:%d" % free_port()
    with open(os.path.join(folder, "registry.yml"), "w", encoding="ascii") as out:
        out.write("version: 0.1\nlog: {level: error, accesslog: {disabled: true}}\n"
                  "storage: {filesystem: {rootdirectory: %s/registry}}\nhttp: {addr: '%s'}\n%s" % (folder, address, more))
    with open(os.path.join(folder, "registry.log"), "wb") as log:
        process = subprocess.Popen([program, "serve", os.path.join(folder, "registry.yml")], stdout=log, stderr=log)
    try:
        await_port(address, process)
        yield address
    finally:
        process.kill()
        process.wait()


def await_port(address, process):
    host, _, port = address.partition(":")
    until = time.monotonic() + SECONDS
    while True:
        assert process.poll() is None and time.monotonic() < until, "the registry did not start"
        try:
            socket.create_connection((host, int(port)), 1).close()
            return
        except OSError:
            time.sleep(0.02)


PLATFORMS = [("one", {"os": "linux", "architecture": make.ARCH}, ONE), ("two", {"os": "linux", "architecture": "s390x"}, TWO)]


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    """A registry with images, which no test changes."""
    if not shutil.which("skopeo"):
        support.miss("apt: skopeo is not there")
    folder = str(tmp_path_factory.mktemp("shelf"))
    with registry(folder) as address:
        one, several = oci_folder(folder + "/one", ONE, name="x"), make.oci_several(folder + "/several.tar", PLATFORMS, nested=1)
        for tag in ("1.0", "latest"):
            skopeo(folder, "--dest-tls-verify=false", "oci:" + one, "docker://%s/team/app:%s" % (address, tag))
        with tarfile.open(several) as tar:
            make.write_folder(folder + "/several", [(member.name, tar.extractfile(member).read()) for member in tar])
        skopeo(folder, "--all", "--dest-tls-verify=false", "oci:" + folder + "/several", "docker://%s/team/many" % address)
        big = oci_folder(folder + "/big", [layer(file("a", os.urandom(1 << 20)), file("b", os.urandom(8 << 20)))], compression="none")
        skopeo(folder, "--dest-tls-verify=false", "oci:" + big, "docker://%s/team/big" % address)
        with open(one + "/index.json", encoding="ascii") as opened:
            digest = json.load(opened)["manifests"][0]["digest"]
        yield address, digest


def test_registry(home, shelf):
    address, digest = shelf
    done = pull(home, "docker://%s/team/app:1.0" % address, "--insecure")
    assert done.returncode == 0 and done.stdout.decode() == digest + "\n", done
    assert done.stderr.startswith(b"hutch: image 'app:1.0' is in the store: ") and done.stderr.count(b"\n") == 1, done.stderr
    (one,) = images(home)
    assert one["names"] == ["app:1.0"] and one["source"] == "docker://%s/team/app:1.0" % address and one["digest"] == digest
    assert content(home) == b"one"
    assert support.hutch("rootfs", "verify", "app:1.0", env={"HUTCH_HOME": home}).returncode == 0
    assert pull(home, "docker://%s/team/app:1.0" % address, "--insecure", "-q", "--name", "other").stderr == b""
    assert images(home)[0]["names"] == ["app:1.0", "other"]


@pytest.mark.parametrize("reference, name", [("app", "app:latest"), ("app@%s", "app@%s"), ("app:1.0@%s", "app:1.0"), ("app:nowhere@%s", "app:nowhere")])
def test_names(home, shelf, reference, name):
    """What docker calls it by default; of a reference with tag and digest the digest counts. The list has all of it."""
    address, digest = shelf
    source = "docker://%s/team/%s" % (address, reference.replace("%s", digest))
    assert pull(home, source, "--insecure").returncode == 0
    (one,) = images(home)
    assert one["names"] == [name.replace("%s", digest)] and one["source"] == source and one["digest"] == digest
    assert support.hutch("rootfs", "verify", "app" if name == "app:latest" else one["names"][0], env={"HUTCH_HOME": home}).returncode == 0


def test_platform(home, shelf):
    source = "docker://%s/team/many" % shelf[0]
    assert pull(home, source, "--insecure").returncode == 0 and content(home) == b"one"
    support.remove_tree(home)
    assert pull(home, source, "--insecure", "--platform", "linux/s390x").returncode == 0 and content(home) == b"two"
    support.remove_tree(home)
    refused(home, source, "--insecure", "--platform", "linux/pdp11", says=("skopeo: ", "pdp11"))
    refused(home, "docker://%s/team/app" % shelf[0], "--insecure", "--platform", "linux/pdp11",
            says="the image is made for linux/%s, and --platform asks for linux/pdp11" % make.ARCH)


def test_variant_of_this_machine(home, shelf, tmp_path):
    """Where no image is for all machines of the kind, as unpacking chooses."""
    level = make.x86_level()
    if not level:
        pytest.skip("not an x86-64")
    several = make.oci_several(str(tmp_path / "several.tar"), [(v, {"os": "linux", "architecture": make.ARCH, "variant": v}, [layer(file("which", v))])
                                                               for v in ("v1", "v%d" % level, "v%d" % (level + 1))][level == 1:], nested=1)
    with tarfile.open(several) as tar:
        make.write_folder(str(tmp_path / "several"), [(member.name, tar.extractfile(member).read()) for member in tar])
    source = "docker://%s/team/variants" % shelf[0]
    skopeo(str(tmp_path), "--all", "--dest-tls-verify=false", "oci:%s" % (tmp_path / "several"), source)
    assert pull(home, source, "--insecure").returncode == 0 and content(home) == b"v%d" % level
    support.remove_tree(home)
    refused(home, source, "--insecure", "--platform", "linux/" + make.ARCH, says=("skopeo: ", "no image found in"))
    refused(home, source, "--insecure", "--platform", "linux/%s/v9" % make.ARCH, says=("skopeo: ", "no image found in", "v9"))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A registry that wants a password."""
    folder = str(tmp_path_factory.mktemp("guarded"))
    with open(folder + "/users", "w", encoding="ascii") as out:
        out.write(HTPASSWD)
    with registry(folder, "auth: {htpasswd: {realm: test, path: %s/users}}\n" % folder) as address:
        skopeo(folder, "--dest-tls-verify=false", "--dest-creds", "ada:" + PASSWORD, "oci:" + oci_folder(folder + "/one", ONE), "docker://%s/app" % address)
        yield address


def auth(path, address, password=PASSWORD):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="ascii") as out:
        json.dump({"auths": {address: {"auth": base64.b64encode(("ada:" + password).encode()).decode()}}}, out)
    return path


def test_passwords(home, guarded, tmp_path):
    """Where skopeo has them, and where the user says."""
    source, nobody = ("docker://%s/app" % guarded, "--insecure"), {"HOME": str(tmp_path / "nobody"), "XDG_RUNTIME_DIR": str(tmp_path / "none")}
    (tmp_path / "none").mkdir(mode=0o700)
    refused(home, *source, env=nobody, says=("skopeo: ", "authentication required"))
    wrong = auth(str(tmp_path / "wrong.json"), guarded, "guess")
    assert "guess" not in refused(home, *source, "--authfile", wrong, env=nobody, says=("skopeo: ", "unauthorized"))
    for number, (words, env) in enumerate((
            (["--authfile", auth(str(tmp_path / "right.json"), guarded)], nobody),
            ([], {**nobody, "REGISTRY_AUTH_FILE": str(tmp_path / "right.json")}),
            ([], {**nobody, "XDG_RUNTIME_DIR": os.path.dirname(os.path.dirname(auth(str(tmp_path / "run/containers/auth.json"), guarded)))}),
            ([], {**nobody, "HOME": os.path.dirname(os.path.dirname(auth(str(tmp_path / "ada/.docker/config.json"), guarded)))}))):
        assert pull(home, *source, *words, "--name", "n%d" % number, env=env).returncode == 0, number
    assert len(images(home)[0]["names"]) == 4


# --- other tools ------------------------------------------------------------------------------------------------

def storage(tmp_path):
    where = "containers-storage:[vfs@%s/storage+%s/run]localhost/team/app:1" % (tmp_path, tmp_path)
    made = subprocess.run(["skopeo", "--insecure-policy", "copy", "-q", "oci:" + oci_folder(str(tmp_path / "layout"), ONE), where],
                          capture_output=True, env=environment(str(tmp_path)), timeout=SECONDS, check=False)
    if made.returncode:
        pytest.skip("skopeo has no storage of containers here: %s" % made.stderr[-200:].decode("utf-8", "replace"))
    return where


def own_archive(folder, layout):
    """Of files of the caller's: skopeo makes what it takes out belong to whom the archive says."""
    subprocess.run(["tar", "-C", layout, "-cf", str(folder / "app.tar"), "."], check=True)
    return str(folder / "app.tar")


OTHERS = {
    "oci": (lambda p: "oci:%s:1.0" % oci_folder(str(p / "app"), ONE, name="1.0"), "app:1.0"),
    "oci, without a tag": (lambda p: "oci:" + oci_folder(str(p / "app"), ONE), "app:latest"),
    "oci, a name as a tag": (lambda p: "oci:%s:example.org/a/tool:7" % oci_folder(str(p / "app"), ONE, name="example.org/a/tool:7"), "tool:7"),
    "oci-archive": (lambda p: "oci-archive:" + own_archive(p, oci_folder(str(p / "app"), ONE)), "app:latest"),
    "docker-archive": (lambda p: "docker-archive:" + docker_old(str(p / "app.tar"), ONE), "app:latest"),
    "docker-archive, one of two": (lambda p: "docker-archive:%s:example.org/b:2" % make.docker_several(
        str(p / "app.tar"), [("example.org/a:1", TWO), ("example.org/b:2", ONE)]), "b:2"),
    "dir": (lambda p: "dir:" + make.write_folder(str(p / "app"), make.dir_members(ONE)), "app:latest"),
    "containers-storage": (storage, "app:1"),
}


@pytest.mark.parametrize("which", OTHERS)
def test_other_tools(home, tmp_path, which):
    """What they keep; relative paths are the caller's."""
    write, name = OTHERS[which]
    source = write(tmp_path)
    relative = source.replace(str(tmp_path) + "/", "") if not which.startswith("containers") else source
    done = pull(home, relative, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert content(home) == b"one" and images(home)[0]["names"] == [name] and images(home)[0]["source"] == relative


def test_oci_archive_of_another(home, tmp_path):
    if support.is_root():
        pytest.skip("root may make files of others")
    refused(home, "oci-archive:" + oci(str(tmp_path / "app.tar"), ONE), says=("skopeo: ", "(hutch rootfs unpack reads the file by itself)"))
    assert support.hutch("rootfs", "unpack", str(tmp_path / "app.tar"), env={"HUTCH_HOME": home}).returncode == 0


def test_unpacked_has_no_source(home, tmp_path):
    """The list says where a tree came from first."""
    path = oci_folder(str(tmp_path / "app"), ONE)
    assert support.hutch("rootfs", "unpack", path, "x", env={"HUTCH_HOME": home}).returncode == 0
    assert images(home)[0]["source"] is None
    assert pull(home, "oci:" + path).returncode == 0
    assert images(home)[0]["source"] is None and images(home)[0]["names"] == ["app:latest", "x"]


def test_pulled_image_runs(home):
    """As any other does."""
    done = pull(home, "oci-archive:" + os.path.join(os.environ.get("HUTCH_TEST_IMAGES") or "/nowhere", "minimal.tar"))
    if b"no such file" in done.stderr:
        pytest.skip("no archive of an image in HUTCH_TEST_IMAGES")
    assert done.returncode == 0, done.stderr
    done = support.hutch("run", "--image", "minimal", "-c", "print(6 * 7)", env={"HUTCH_HOME": home})
    assert done.stdout == b"42\n", done


# --- what is refused before anybody is asked --------------------------------------------------------------------

REFUSED = [
    ([], "usage: hutch rootfs pull SOURCE"), (["docker://a", "b"], "usage: hutch rootfs pull SOURCE"),
    (["debian:12"], "begins with none of docker://, docker-archive:, oci:, oci-archive:, dir: and containers-storage:; an image of a registry is docker://debian:12"),
    (["https://example.org/app"], "an image of a registry is docker://NAME[:TAG]"),
    (["--", "--debug"], "'--debug' begins with none of"), (["--", "-"], "'-' begins with none of"), ([""], "'' begins with none of"),
    (["--debug"], "there is no option '--debug' here"),
    (["docker:app"], "is not of the form docker://"), (["docker://"], "is not of the form docker://"),
    (["docker-daemon:app:1"], "'docker-daemon:' is not taken: to ask Docker's daemon is to be as good as root; write a file with docker save"),
    (["ostree:app"], "'ostree:' is not taken: "), (["sif:app"], "'sif:' is not taken: "), (["tarball:app"], "'tarball:' is not taken: "),
    (["docker://a\nb"], "has a control character in it"), (["docker://a\033[2J"], "has a control character in it"), ([b"oci:\xff"], "is not UTF-8"),
    (["docker://" + "a" * 1100], "is longer than 1024 bytes"), (["docker://" + "a" * 300], "does not say what the image is called; --name does"),
    (["oci:."], "does not say what the image is called; --name does"), (["oci:x y"], "does not say what the image is called"),
    (["oci:x", "--name", "a b"], "'a b' is not a name for an image"), (["oci:x", "--name", ""], "'' is not a name for an image"),
    (["oci:x", "--timeout", "0"], "a --timeout of 0 leaves no time"), (["oci:x", "--timeout", "soon"], "--timeout: "),
    (["oci:x", "--max-size", "0"], "a limit of 0 leaves no room"), (["oci:x", "--platform", "amd64"], "is not of the form linux/ARCH"),
    (["oci:x", "--insecure"], "--insecure is for images of a registry"), (["oci:x", "--authfile", "/dev/null"], "--authfile is for images of a registry"),
    (["docker://x", "--authfile", "/no/such"], "read the passwords of --authfile '/no/such': No such file or directory"),
    (["docker://x", "--authfile", "--debug"], "read the passwords of --authfile '--debug'"),
]


@pytest.mark.parametrize("args, says", REFUSED, ids=[repr(args)[:60] for args, _ in REFUSED])
def test_refused(home, tmp_path, args, says):
    """Without a start of skopeo, which here would say that it was."""
    fake(tmp_path, "touch '%s/started'" % tmp_path)
    refused(home, *args, env=path_of(tmp_path), says=says)
    assert not (tmp_path / "started").exists()


def fake(tmp_path, script):
    """A skopeo of ours."""
    (tmp_path / "bin").mkdir(exist_ok=True)
    program = tmp_path / "bin" / "skopeo"
    program.write_text("#!/bin/sh\nfor last; do :; done; to=${last#dir:}\n" + script + "\n", encoding="utf-8")
    program.chmod(0o755)


def path_of(tmp_path):
    return {"PATH": "%s/bin:%s" % (tmp_path, os.environ["PATH"])}


@pytest.mark.parametrize("path", ["", "/no/such:bin:.", "%s"])
def test_without_skopeo(home, tmp_path, path):
    """Nor is one of the current directory taken, or one that cannot be executed."""
    fake(tmp_path, "touch started")
    (tmp_path / "dead").mkdir()
    (tmp_path / "dead" / "skopeo").write_text("no program")
    refused(home, "docker://a", env={"PATH": path.replace("%s", str(tmp_path / "dead"))}, cwd=tmp_path,
            says=("pulling takes skopeo, which is not in PATH: install Debian's package skopeo", "skopeo copy SOURCE docker-archive:FILE", "hutch rootfs unpack FILE"))
    assert not (tmp_path / "started").exists()


# --- what skopeo says and does ----------------------------------------------------------------------------------

FAILS = [
    (["docker://%s/team/nothing", "--insecure"], ("skopeo: ", "manifest unknown")), (["docker://%s/team/app:9", "--insecure"], ("skopeo: ", "manifest unknown")),
    (["docker://%s/team/app@sha256:" + "0" * 64, "--insecure"], ("skopeo: ", "manifest unknown")),
    (["docker://%s/team/app"], ("skopeo: ", "server gave HTTP response to HTTPS client", "(--insecure takes a registry without TLS)")),
    (["docker://%s/Team/App:1", "--insecure"], ("skopeo: ", "repository name must be lowercase")),
    (["docker://%s/team/app@sha256:00", "--insecure"], "skopeo: "), (["docker://127.0.0.1:1/app"], ("skopeo: ", "connection refused")),
    (["docker://%s/team/app:", "--insecure", "--name", "x"], ("skopeo: ", "invalid reference format")),
    (["docker://no-such-host.invalid/app"], "skopeo: "), (["oci:/no/such"], ("skopeo: ", "no such file or directory")),
    (["docker-archive:/no/such"], ("skopeo: ", "no such file or directory")), (["oci-archive:/dev/null", "--name", "x"], "skopeo: "),
    (["dir:/no/such"], ("skopeo: ", "no such file or directory")), (["docker-archive:/proc/version"], "skopeo: "),
]


@pytest.mark.parametrize("args, says", FAILS, ids=[" ".join(args)[:60] for args, _ in FAILS])
def test_fails(home, shelf, args, says):
    """One sentence, skopeo's own."""
    line = refused(home, *[word.replace("%s", shelf[0]) for word in args], says=says)
    assert len(line) < 450 and "level=" not in line and "time=" not in line


def test_arguments_and_environment(home, tmp_path):
    """What skopeo is told: no word of the user's is an option, and of the environment it has what it needs."""
    fake(tmp_path, 'env -0 >"%s/env"; printf "%%s\\n" "$@" >"%s/args"; for fd in /proc/$$/fd/*; do readlink $fd; done >"%s/fds"; exit 1' % ((tmp_path,) * 3))
    auth(str(tmp_path / "a"), "x")
    env = {**path_of(tmp_path), "HOME": "/h", "XDG_RUNTIME_DIR": "/r", "https_proxy": "http://p", "TOKEN": "s", "LD_LIBRARY_PATH": "/l", "TMPDIR": "/t",
           "CONTAINERS_STORAGE_CONF": "/c", "GODEBUG": "x"}
    refused(home, "docker://-x/--insecure-policy", "--name", "x", "--insecure", "--authfile", str(tmp_path / "a"), "--platform", "linux/arm/v6", env=env,
            says="skopeo failed (1) and did not say why")
    args = (tmp_path / "args").read_text().splitlines()
    work = os.path.dirname(args[-1][len("dir:"):])
    assert work.startswith(home + "/images/tmp/")
    assert args == ["--tmpdir=" + work + "/scratch", "--override-os=linux", "--override-arch=arm", "--override-variant=v6", "copy", "--quiet",
                    "--src-tls-verify=false", "--src-authfile=" + str(tmp_path / "a"), "--", "docker://-x/--insecure-policy", "dir:" + work + "/fetched"]
    others = {to for to in (tmp_path / "fds").read_text().splitlines() if to != "/dev/null" and not to.startswith(("pipe:", str(tmp_path)))}
    assert not others and (tmp_path / "fds").read_text().count(home) == 1, "skopeo has descriptors besides the lock"
    got = dict(line.split("=", 1) for line in (tmp_path / "env").read_text().split("\0") if line)
    assert {key: got.get(key) for key in ("HOME", "XDG_RUNTIME_DIR", "CONTAINERS_STORAGE_CONF", "https_proxy", "TMPDIR")} == {
        "HOME": "/h", "XDG_RUNTIME_DIR": "/r", "CONTAINERS_STORAGE_CONF": "/c", "https_proxy": "http://p", "TMPDIR": work + "/scratch"}
    assert not set(got) & {"TOKEN", "LD_LIBRARY_PATH", "GODEBUG", "HUTCH_HOME"}, got


SAYS = [
    ("echo one >&2; echo two >&2; exit 1", "hutch: skopeo: two"),
    ("printf '\\033[2Jx\\007\\302\\233y\\r\\n' >&2; exit 1", None),
    ("printf 'time=\"1\" level=fatal msg=\"say \\\\\"no\\\\\"\"\\n' >&2; exit 1", 'hutch: skopeo: say "no"'),
    ("head -c 3000000 /dev/zero | tr '\\0' x >&2; echo the cause >&2; exit 1", "xxxthe cause"),
    ("printf '%05000d the cause' 0 >&2; exit 1", " the cause"),
    ("exit 3", "hutch: pull 'oci:app': skopeo failed (3) and did not say why"),
    ("kill -9 $$", "hutch: pull 'oci:app': skopeo was ended by signal 9"),
    ("echo 'reading \"/run/containers/7/auth.json\": open /run/containers/7/auth.json: permission denied' >&2; exit 1", "(XDG_RUNTIME_DIR has to name a directory of yours)"),
    ("echo words; exit 1", "skopeo failed (1) and did not say why"),
    ("echo 'reading manifest: unauthorized: authentication required' >&2; exit 1", "(skopeo login REGISTRY keeps a password, --authfile FILE"),
    ("echo 'tls: failed to verify certificate: x509: certificate signed by unknown authority' >&2; exit 1", "(SSL_CERT_FILE names the authority"),
    ("exit 0", "hutch: pull 'oci:app': skopeo says that it is done, and has written no image"), ("mkdir \"$to\"", "hutch: read image 'oci:app': it is neither"),
    ("ln -s /etc \"$to\"", "has written no image"), ("mkfifo \"$to\"", "has written no image"),
]


@pytest.mark.parametrize("script, says", SAYS, ids=[script[:40] for script, _ in SAYS])
def test_words_of_skopeo(home, tmp_path, script, says):
    fake(tmp_path, script)
    line = refused(home, "oci:app", env=path_of(tmp_path), says=says or "skopeo: ")
    assert line.isprintable() and len(line) < 450, line


def test_what_skopeo_writes_is_checked(home, tmp_path):
    """As an archive is."""
    def forge(blobs, layers):
        blobs[layers[0]] = layer(file("which", b"two"))
    for number, (members, says) in enumerate((
            (make.dir_members(ONE, compression="none", stored=forge), "has the digest sha256:"),
            (make.dir_members([layer(file("../../evil", b"x"))]), "evil"),
            (make.dir_members(ONE, config=lambda c: c.update(architecture="pdp11")), "the image is made for linux/pdp11"))):
        made = make.write_folder(str(tmp_path / ("made%d" % number)), members)
        fake(tmp_path, "cp -r '%s' \"$to\"" % made)
        line = refused(home, "oci:app", env=path_of(tmp_path), says=says)
        assert "oci:app" in line and "fetched" not in line, line
    made = make.write_folder(str(tmp_path / "good"), make.dir_members(ONE))
    fake(tmp_path, "cp -r '%s' \"$to\"; (sleep 300 & sleep 300) >/dev/null 2>&1 &" % made)  # processes that stay behind are ended
    assert pull(home, "oci:app", env=path_of(tmp_path)).returncode == 0 and content(home) == b"one"


class StandIn(http.server.BaseHTTPRequestHandler):
    """A registry that answers as a test wants: the attribute `answer` of its class."""
    def do_GET(self):
        if self.path == "/v2/":
            self.reply(200, b"{}")
        else:
            self.answer()

    do_HEAD = do_GET

    def reply(self, status, body, kind="application/json"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def stand_in(answer):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Answering", (StandIn,), {"answer": answer}))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield "127.0.0.1:%d" % server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


MANIFEST = "application/vnd.oci.image.manifest.v1+json"


def test_registry_with_other_content(home):
    """A digest is asked for, and something else comes."""
    members = dict(oci_members_by_digest(ONE))
    digest = next(name for name, data in members.items() if b'"layers": [' in data)
    with stand_in(lambda self: self.reply(200, members[digest] + b" ", MANIFEST)) as address:
        refused(home, "docker://%s/app@sha256:%s" % (address, digest), "--insecure", says=("skopeo: ", "digest"))

    def answer(self):
        name = self.path.rpartition(":")[2].rpartition("/")[2]
        if "/manifests/" in self.path:
            self.reply(200, members[digest], MANIFEST)
        else:
            self.reply(200, members[name][:-1] + b"?", "application/octet-stream")
    with stand_in(answer) as address:
        refused(home, "docker://%s/app" % address, "--insecure", says="skopeo: ")


def oci_members_by_digest(layers):
    return [(name[len("blobs/sha256/"):], data) for name, data in make.oci_members(layers) if name.startswith("blobs/")]


def test_hostile_words_of_a_registry(home):
    body = json.dumps({"errors": [{"code": "DENIED", "message": "\033]0;title\007\nhutch: all is well\u202e " + "x" * 5000}]}).encode()
    with stand_in(lambda self: self.reply(403, body)) as address:
        line = refused(home, "docker://%s/app" % address, "--insecure", says="skopeo: ")
        assert line.isprintable() and "\u202e" not in line and len(line) < 450, line


# --- how it ends ------------------------------------------------------------------------------------------------

@pytest.fixture
def silent():
    """An address where connections are taken, and nothing is answered."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        yield "docker://127.0.0.1:%d/app" % sock.getsockname()[1]


def test_silent_registry(home, silent):
    began = time.monotonic()
    refused(home, silent, "--insecure", "--timeout", "1500ms", says="hutch: pull '%s': it is not here after 2 s (--timeout)" % silent)
    assert 1.5 <= time.monotonic() - began < 20


def start(home, *args, **options):
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": environment(os.path.dirname(home), HUTCH_HOME=home), **options}
    return subprocess.Popen([support.HUTCH, "rootfs", "pull", *args], **options)


def await_skopeo(home):
    """The process of it that works for the store."""
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        for pid in support.processes_about(home):
            with contextlib.suppress(OSError):
                if os.readlink("/proc/%d/exe" % pid).endswith("/skopeo"):
                    return pid
        time.sleep(0.02)
    raise AssertionError("skopeo was not started")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted(home, silent, number):
    """It dies of the signal, and takes skopeo and the files along."""
    process = start(home, silent, "--insecure", preexec_fn=lambda: signal.signal(number, signal.SIG_DFL))
    await_skopeo(home)
    process.send_signal(number)
    out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == -number and out == b"" and err.decode() == "hutch: pull '%s': Operation canceled\n" % silent
    assert not support.processes_about(home) and os.listdir(home + "/images/tmp") == []


def test_stubborn_skopeo(home, tmp_path):
    """What does not heed SIGTERM is killed."""
    fake(tmp_path, "trap '' TERM INT HUP; while :; do sleep 300; done")
    refused(home, "oci:app", "--timeout", "500ms", env=path_of(tmp_path), says="it is not here after 1 s")


def test_killed(home, silent):
    """skopeo ends with hutch; the files go when the store is opened the next time."""
    process = start(home, silent, "--insecure")
    pid = await_skopeo(home)
    process.kill()
    process.communicate(timeout=SECONDS)
    until = time.monotonic() + SECONDS
    while support.processes_about(home):
        assert time.monotonic() < until, "skopeo goes on"
        time.sleep(0.02)
    assert pid and len(os.listdir(home + "/images/tmp")) == 1
    while images(home) != [] or os.listdir(home + "/images/tmp"):  # a thread of skopeo's that dies may hold the lock
        assert time.monotonic() < until, "files are left"
        time.sleep(0.05)


def test_sweeping_leaves_live_ones(home, silent):
    """Another command in the meantime."""
    process = start(home, silent, "--insecure")
    await_skopeo(home)
    before = os.listdir(home + "/images/tmp")
    assert images(home) == [] and os.listdir(home + "/images/tmp") == before and len(before) == 1
    process.terminate()
    process.communicate(timeout=SECONDS)


def test_endless_image(home):
    """A registry that sends more than the image may have is not heard to its end."""
    digest = "sha256:" + "1" * 64
    manifest = json.dumps({"schemaVersion": 2, "mediaType": MANIFEST, "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest, "size": 100},
                           "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": digest, "size": 1 << 40}]}).encode()

    def answer(self):
        if "/manifests/" in self.path:
            self.reply(200, manifest, MANIFEST)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(1 << 40))
        self.end_headers()
        with contextlib.suppress(OSError):
            while True:
                self.wfile.write(bytes(1 << 16))
                time.sleep(0.002)
    with stand_in(answer) as address:
        refused(home, "docker://%s/app" % address, "--insecure", "--max-size", "2m", says="it takes more than 4194 kB of the disk (--max-size)")


def test_too_large_unpacked(home, shelf):
    refused(home, "docker://%s/team/big" % shelf[0], "--insecure", "--max-size", "8m", says="hutch: unpack 'docker://%s/team/big': " % shelf[0])


def test_disk_full(home, shelf):
    """On a small file system: one sentence, and all of the room is free again. skopeo as root of a namespace would look for
    signatures where those of the host's root are."""
    support.need("userns")
    os.mkdir(home)
    script = ("mount -t tmpfs -o size=4m,nr_inodes=1000 none \"$HUTCH_HOME\" && { unshare --user --map-user=1000 \"$1\" rootfs pull \"$2\" --insecure; echo \"exit $?\"; "
              "find \"$HUTCH_HOME/images\" -mindepth 2 | wc -l; }")
    done = subprocess.run(["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh", support.HUTCH, "docker://%s/team/big" % shelf[0]],
                          capture_output=True, env=environment(os.path.dirname(home), HUTCH_HOME=home), timeout=SECONDS, check=False)
    assert done.stdout == b"exit 125\n0\n", done
    assert "skopeo: " in support.sentence(done) and "no space left on device" in support.sentence(done)
    os.rmdir(home)


def test_private_meanwhile(home, tmp_path):
    """What is fetched may have come by a password."""
    fake(tmp_path, "stat -c %%a \"${to%%/*}\" >'%s/mode'; exit 1" % tmp_path)
    refused(home, "oci:app", env=path_of(tmp_path), says="skopeo failed")
    assert (tmp_path / "mode").read_text() == "700\n" and stat.S_IMODE(os.stat(home).st_mode) == 0o700


def at_terminal(home, *words, keys=b""):
    """What is shown, and the exit status. @keys are typed when skopeo runs."""
    def type_keys(fd):
        if keys:
            await_skopeo(home)
            os.write(fd, keys)
    env = environment(os.path.dirname(home), HUTCH_HOME=home)
    return support.at_terminal(env, b"", "rootfs", "pull", *words, began=type_keys, seconds=SECONDS)


def test_progress_at_a_terminal(home, shelf):
    """skopeo's own, on standard error; with -q only the digest."""
    source = "docker://%s/team/app:1.0" % shelf[0]
    shown, status = at_terminal(home, source, "--insecure")
    assert status == 0 and "Getting image source signatures" in shown and "image 'app:1.0' is in the store" in shown and shelf[1] in shown
    assert at_terminal(home, source, "--insecure", "-q") == (shelf[1] + "\r\n", 0)


def test_ctrl_c(home, silent):
    shown, status = at_terminal(home, silent, "--insecure", keys=b"\x03")
    assert status == -signal.SIGINT and "Operation canceled" in shown
    assert not support.processes_about(home) and os.listdir(home + "/images/tmp") == []


def test_two_at_once(home, shelf):
    running = [start(home, "docker://%s/team/app" % shelf[0], "--insecure", "--name", "n%d" % n) for n in range(3)]
    results = [process.communicate(timeout=SECONDS) for process in running]
    assert [process.returncode for process in running] == [0] * 3, results
    assert images(home)[0]["names"] == ["n0", "n1", "n2"]
