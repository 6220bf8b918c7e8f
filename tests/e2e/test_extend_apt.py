"""hutch rootfs extend --apt: packages of Debian in a layer over an image. Their scripts run as they are, in a sandbox without a network
and without the ids that they ask for."""
import glob
import json
import os
import shutil
import signal
import subprocess
import time

import pytest

import debs
import support
import wheels
from layers import NO_BUILDER, SECONDS, environment, extend, hutch, listed, refused, run

IMAGE = "minimal"
SCRIPTS = os.path.join(support.TREE, "rootfs")

# What packages' scripts do and a user without ids may not: all of it has to pass for done.
ROOTS_WORK = """
test "$(id -u)" = 0
test "$(whoami)" = root
chown 7:8 /usr/share/first/version
chmod u+s /usr/bin/first
chmod 4755 /usr/bin/first
install -d -o root -g mail -m 2775 /var/lib/first
touch /var/lib/first/x
perl -e '$) = "8 8"; $> = 7; exit 0'
update-alternatives --install /usr/bin/common common /usr/bin/first 50
echo "first::4242:first" >>/etc/group
rm /usr/share/common-licenses/BSD
echo done >/etc/first.conf
"""
PEEK = """
import os, subprocess, sys
print(os.getuid(), oct(os.stat('/usr/bin/first').st_mode), oct(os.stat('/var/lib/first').st_mode), os.stat('/etc/first.secret').st_size)
print(open('/etc/first.conf').read().strip(), subprocess.run(['common'], capture_output=True, text=True).stdout.strip(), os.path.exists('/var/lib/first/x'))
print(os.path.exists('/usr/sbin/policy-rc.d'), os.path.exists('/usr/share/common-licenses/BSD'))
import firstmodule
print(firstmodule.x, os.path.exists(firstmodule.__cached__), 'first::4242' in open('/etc/group').read())
"""


@pytest.fixture(autouse=True)
def needs_apt():
    support.need("userns")
    for program in ("apt-get", "dpkg-deb"):
        if not shutil.which(program):
            support.miss("apt: %s is not installed" % program)


@pytest.fixture
def archive(tmp_path):
    folder = tmp_path / "archive"
    folder.mkdir()
    served = debs.Archive(folder)
    yield served
    served.close()


@pytest.fixture
def sources(archive, tmp_path):
    """What the environment of hutch has so that it takes packages from the test's archive."""
    path = tmp_path / "sources"
    path.write_text(archive.line)
    return {"HUTCH_APT_SOURCES": str(path)}


@pytest.fixture
def first(archive):
    """A package whose scripts do what those of others do, and which wants another one."""
    debs.package(archive.folder, "second", scripts={"postinst": "touch /usr/share/second/is-configured\n"})
    files = {"usr/bin/first": "#!/bin/sh\necho it is the first\n", "etc/first.secret": "secret", "usr/share/first/version": "1.0",
             "usr/lib/python3/dist-packages/firstmodule.py": "x = 7\n", "usr/include/first.h": "int first;\n", "usr/share/doc/first/manual": "text"}
    modes = {"usr/bin/first": 0o4755, "etc/first.secret": 0o600}
    debs.package(archive.folder, "first", files=files, modes=modes, depends="second", more="Pre-Depends: second\n",
                 scripts={"preinst": "test -e /usr/share/second/is-configured\n", "postinst": ROOTS_WORK})
    return "first"


def test_scripts_run(home, sources, first, archive):
    digest = extend(home, "--apt", first, "--as", "more", image=IMAGE, env=sources)
    expected = "1000 0o100755 0o40755 0\ndone it is the first True\nFalse True\n7 True True\n"
    for words in ([], ["--warm"]):
        assert run(home, "more", PEEK, *words) == expected
    (layer,) = listed(home, "more")["layers"]
    assert layer["kind"] == "apt" and layer["tool"].startswith("apt ") and layer["language"].startswith("debian ")
    assert layer["packages"] == [{"name": name, "version": "1.0", "sha256": wheels.digest("%s/%s_1.0_all.deb" % (archive.folder, name)),
                                  "file": name + "_1.0_all.deb"} for name in ("first", "second")]
    code = "import os; print(*(os.path.exists(p) for p in ('/usr/include/first.h', '/usr/share/doc/first/manual')))"
    assert run(home, "more", code) == "True False\n", "headers are wanted, documents are not"
    assert hutch(home, "rootfs", "verify", "more").stdout == b"more: unchanged\n"
    # The image is what it was, here and on the disk.
    assert run(home, IMAGE, "import os; print(os.path.exists('/usr/bin/first'), 'first' in open('/etc/group').read())") == "False False\n"
    # The same again is found.
    for words in ("first", " first ", "first,first"):
        assert extend(home, "--apt", words, image=IMAGE, env={**sources, **NO_BUILDER}) == digest


def test_modes_that_dpkg_is_told(home, sources, archive):
    """As dbus tells it of its helper: the file gets the mode without setuid."""
    debs.package(archive.folder, "helper", files={"usr/lib/helper": "#!/bin/sh\necho it helps\n"}, modes={"usr/lib/helper": 0o755}, scripts={
        "postinst": "dpkg-statoverride --update --add root mail 4754 /usr/lib/helper\ntest \"$(stat -c %a /usr/lib/helper)\" = 754\n"
                    "dpkg-statoverride --list /usr/lib/helper\n"})
    extend(home, "--apt", "helper", "--as", "more", image=IMAGE, env=sources)
    assert run(home, "more", "import os; print(oct(os.stat('/usr/lib/helper').st_mode))") == "0o100644\n", "others may read it, and no more"


def test_files_that_root_alone_could_open(home, sources, archive):
    """As systemd-sysusers leaves /etc/gshadow behind, which the next package opens: without any mode, or one to read alone."""
    debs.package(archive.folder, "opener1", scripts={"postinst": "umask 777\necho one >/etc/closed.shadow\n"})
    debs.package(archive.folder, "opener2", depends="opener1", files={"usr/share/opener2/list": "one\n"}, modes={"usr/share/opener2/list": 0o444},
                 scripts={"postinst": "echo two >>/etc/closed.shadow\ngrep -q one /etc/closed.shadow\necho two >>/usr/share/opener2/list\n"})
    extend(home, "--apt", "opener2", "--as", "more", image=IMAGE, env=sources)
    code = "import os; print(os.stat('/etc/closed.shadow').st_size, open('/usr/share/opener2/list').read().split())"
    assert run(home, "more", code) == "0 ['one', 'two']\n", "what only root may read is empty in an image"


def test_a_script_that_fails_for_ever(home, sources, archive):
    """Files that can be opened do not make it go on without end."""
    debs.package(archive.folder, "never", scripts={"postinst": "umask 777\necho x >/etc/never.$$\necho it fails >&2\nexit 3\n"})
    refused(home, "--quiet", "--apt", "never", image=IMAGE, env=sources, says="it fails")


def test_a_link_to_a_file_of_the_image_is_no_change(home, sources, archive):
    """Another store may make one at any time. It changes what the kernel says of the file, as this does, and nothing of the file."""
    debs.package(archive.folder, "slow", files={"usr/share/slow/file": "text"}, scripts={"postinst": "sleep 2\n"})
    touched = glob.glob("%s/images/trees/*/root/usr/bin/env" % support.hutch_home())
    assert touched
    process = subprocess.Popen([support.HUTCH, "rootfs", "extend", "--quiet", IMAGE, "--apt", "slow"], env=environment(home, **sources),
                               stdout=subprocess.PIPE)
    while process.poll() is None:
        for path in touched:
            os.chmod(path, os.stat(path).st_mode & 0o7777)
        time.sleep(0.05)
    assert process.returncode == 0
    names = {name for _, _, names in os.walk(home) for name in names}
    assert "file" in names and "env" not in names


def test_nothing_is_privileged_on_the_disk(home, sources, first):
    """What scripts are told to have succeeded was not done: no mode, no owner and no node reaches the host, at no time."""
    seen = set()
    env = environment(home, **sources)
    process = subprocess.Popen([support.HUTCH, "rootfs", "extend", "--quiet", IMAGE, "--apt", first], env=env, stdout=subprocess.DEVNULL)
    until = time.monotonic() + SECONDS
    while process.poll() is None and time.monotonic() < until:
        for where, _, names in os.walk(home + "/images/tmp"):
            for name in names:
                try:
                    st = os.lstat(os.path.join(where, name))
                except OSError:
                    continue
                if "/changes/" in where + "/":
                    seen.add(name)
                    assert not st.st_mode & 0o6000 and st.st_uid == os.geteuid() and (st.st_mode & 0o170000 != 0o020000 or st.st_rdev == 0), name
        time.sleep(0.01)
    assert process.wait(SECONDS) == 0
    assert seen, "nothing was looked at"


def test_a_layer_over_a_layer(home, sources, archive):
    debs.package(archive.folder, "one", scripts={"postinst": "update-alternatives --install /usr/bin/which-one which-one /usr/share/one/version 10\n"})
    debs.package(archive.folder, "two", depends="one",
                 scripts={"postinst": "update-alternatives --install /usr/bin/which-one which-one /usr/share/two/version 90\n"})
    extend(home, "--apt", "one", "--as", "l1", image=IMAGE, env=sources)
    extend(home, "--apt", "two", "--as", "l2", image="l1", env=sources)
    below, above = listed(home, "l2")["layers"]
    assert [package["name"] for package in below["packages"] + above["packages"]] == ["one", "two"], "what is there is not installed again"
    # Which program has a common name stays the choice of the image that is extended.
    code = "import os; print(os.path.realpath('/usr/bin/which-one'), os.path.exists('/usr/share/two/version'))"
    assert run(home, "l2", code) == "/usr/share/one/version True\n"
    digest = extend(home, "--apt", "one", image="l2", env=sources)
    assert listed(home, digest)["layers"][2]["packages"] == []


def test_a_layer_of_python_below_debians_is_in_no_builder(home, sources, archive, tmp_path):
    """A builder has the network. Scripts of the package above have run with the programs of the layer below."""
    debs.package(archive.folder, "hello")
    evil = "#!/bin/sh\necho a script ran in the builder >&2; exit 3\n"
    wheels.wheel(tmp_path, "evil", "1.0", {"evil-1.0.data/scripts/python3": evil},
                 info=lambda entry: setattr(entry, "external_attr", 0o100755 << 16))
    wheels.wheel(tmp_path, "good", "1.0", {"good.py": "x = 2\n"})
    extend(home, "--pip", "evil", "--wheels", str(tmp_path), "--as", "a", image=IMAGE)
    done = hutch(home, "run", "--no-server", "--image", "a", "--entrypoint", "python3", "--", "-c", "1")
    assert done.returncode == 3 and b"a script ran" in done.stderr, "what is in the layer is in the way"
    extend(home, "--apt", "hello", "--as", "b", image="a", env=sources)
    extend(home, "--pip", "good", "--wheels", str(tmp_path), "--as", "c", image="b")
    assert [[package["name"] for package in layer["packages"]] for layer in listed(home, "c")["layers"]] == [["evil"], ["hello"], ["good"]]


def test_packages_of_python_over_debians(home, sources, archive, tmp_path):
    """pip is executed on Debian's layers and without its own, also where the image of those alone is not there any more."""
    debs.package(archive.folder, "tool", files={"usr/lib/python3/dist-packages/tool.py": "x = 1\n"})
    folder = tmp_path / "wheels"
    folder.mkdir()
    for name, requires in (("nicate", ()), ("frob", ["nicate"]), ("third", ["frob"])):
        wheels.wheel(folder, name, "1.0", {name + ".py": "", "_manylinux.py": "raise SystemExit('a package ran')\n"}, requires=requires)
    extend(home, "--apt", "tool", "--as", "l1", image=IMAGE, env=sources)
    extend(home, "--pip", "nicate", "--wheels", str(folder), "--as", "l2", image="l1")
    extend(home, "--pip", "frob", "--wheels", str(folder), "--as", "l3", image="l2")
    assert hutch(home, "rootfs", "remove", "l1").returncode == hutch(home, "rootfs", "prune").returncode == 0
    extend(home, "--pip", "third", "--wheels", str(folder), "--as", "l4", image="l3")
    layers = listed(home, "l4")["layers"]
    assert [[package["name"] for package in layer["packages"]] for layer in layers] == [["tool"], ["nicate"], ["frob"], ["third"]]
    extend(home, "--apt", "tool", "--as", "l5", image="l4", env=sources)
    for words in ([], ["--warm"]):
        assert run(home, "l5", "import tool, nicate, frob, third; print(tool.x)", *words) == "1\n"
    assert hutch(home, "rootfs", "prune").returncode == 0 and hutch(home, "rootfs", "verify").returncode == 0


@pytest.mark.parametrize("words, says", [
    ("nowhere", "apt: Unable to locate package nowhere"), ("first=7", "apt: Version '7' for 'first' was not found"),
    ("wants-none", "wants-none : Depends: nosuch"), ("fails", "dpkg: "), ("forged", "apt: "),
    ("no-name_", "option '--apt': 'no-name_' is no name of a package of Debian"), ("--yes", "'--yes' is no name of a package"),
    ("first-", "'first-' is no name"), ("first/sid", "'first/sid' is no name"), ("./first.deb", "'./first.deb' is no name"), ("first=", "is no version"),
    ("first,,second", "'' is no name"), ("first=1,first=2", "asked for twice"),
])
def test_refused(home, sources, archive, first, words, says):
    debs.package(archive.folder, "wants-none", depends="nosuch")
    debs.package(archive.folder, "fails", scripts={"postinst": "echo it cannot be >&2; exit 3\n"})
    archive.forged.add(os.path.basename(debs.package(archive.folder, "forged")))
    assert first
    line = refused(home, "--quiet", "--apt", words, image=IMAGE, env=sources, says=says)
    assert words != "fails" or "fails" in line


def test_an_archive_that_nobody_vouches_for(home, archive, tmp_path, first):
    path = tmp_path / "sources"
    path.write_text(archive.line.replace("[trusted=yes] ", ""))
    refused(home, "--quiet", "--apt", first, image=IMAGE, env={"HUTCH_APT_SOURCES": str(path)}, says=("apt: The repository", "not signed"))
    refused(home, "--quiet", "--apt", first, image=IMAGE, env={"HUTCH_APT_SOURCES": "/nowhere"}, says="HUTCH_APT_SOURCES: look at '/nowhere'")


@pytest.mark.parametrize("words, says", [
    (["--apt", "xx", "--pip", "y"], "options '--pip' and '--apt' are for two layers"), (["--apt", "xx", "--npm", "y"], "options '--npm' and '--apt'"),
    (["--apt", "xx", "--index", "none"], "option '--index' is for packages of Python and Node"),
    (["--apt", "xx", "--allow-build"], "option '--allow-build' is for"), (["--apt", "xx", "--wheels", "/tmp"], "option '--wheels' is for"),
])
def test_what_does_not_go_together(home, words, says):
    refused(home, *words, image=IMAGE, says=says)


@pytest.mark.parametrize("answer, says", [
    ("", "no list of dpkg's"), ("trixie amd64", "no list of dpkg's"), ("trixie\n", "no list of dpkg's"), ("a;b amd64\n", "no name of one"),
    ("trixie -o=x\n", "no name of one"), (" amd64\n", "no name of one"), ("trixie amd64 x\n", "no name of one"), ("trixie amd64\n\\0x\n", "no list of dpkg's"),
    ("trixie amd64\nPackage first\n", "apt: "),
])
def test_what_an_image_says_of_itself(home, sources, first, tmp_path, answer, says):
    """It is a stranger's word, as the image may be anybody's."""
    scripts = tmp_path / "rootfs"
    shutil.copytree(SCRIPTS, scripts, ignore=shutil.ignore_patterns("*.c", "*.h", "python", "helper"))
    (scripts / "extend_apt_ask.sh").write_text("printf '%s'\n" % answer)
    refused(home, "--quiet", "--apt", first, image=IMAGE, says=says, env={**sources, "HUTCH_ROOTFS_DIR": str(scripts)})


def test_an_image_of_others(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "os-release").write_text("NAME=other\n")
    script = ["-v", SCRIPTS + ":/mnt/scripts:ro", "--image", IMAGE, "--entrypoint", "sh", "--", "/mnt/scripts/extend_apt_ask.sh"]
    for volume, says in ((str(tmp_path / "empty") + ":/var/lib/dpkg:ro", b"the image was not made of Debian's packages: it has no /var/lib/dpkg/status\n"),
                         (str(tmp_path / "os-release") + ":/etc/os-release:ro", b"/etc/os-release has no VERSION_CODENAME\n")):
        done = support.hutch("run", "--no-server", "--quiet", "-v", volume, *script)
        assert done.returncode == 1 and done.stdout == b"" and done.stderr.endswith(says), done


@pytest.mark.parametrize("code, words, says", [
    ("sleep 600\n", ["--timeout", "8s"], "is not made after 8 s (--timeout)"),
    ("i=0; while [ $i -lt 900 ]; do head -c 1000000 /dev/zero >/usr/share/big$i; i=$((i + 1)); done; sleep 60\n", ["--max-size", "50m"], "--max-size"),
    ("cd /usr/share; i=0; while [ $i -lt 30000 ]; do : >f$i; i=$((i + 1)); done; sleep 60\n", ["--max-entries", "2000"], "--max-entries"),
    ("(setsid sleep 1000 >/dev/null 2>&1 </dev/null &)\nexit 1\n", [], "dpkg: "),
])
def test_a_hostile_package(home, sources, archive, code, words, says):
    debs.package(archive.folder, "bad", scripts={"postinst": code})
    refused(home, "--quiet", "--apt", "bad", *words, image=IMAGE, env=sources, says=says)


def test_no_network_and_no_host(home, sources, archive, tmp_path):
    """A package's script has what a sandbox has: not the archive that it came from, nor files of the caller's."""
    (tmp_path / "host-file").write_text("x")
    code = ("if python3 -c \"import urllib.request; urllib.request.urlopen('%s', timeout=3)\" 2>/dev/null; then exit 1; fi\n"
            "test ! -e %s\nif mount -t tmpfs none /mnt 2>/dev/null; then exit 1; fi\nif unshare -U true 2>/dev/null; then exit 1; fi\n"
            "grep -q '^CapEff:.0*$' /proc/self/status\ngrep -q '^Seccomp:.2$' /proc/self/status\n" % (archive.url, tmp_path / "host-file"))
    debs.package(archive.folder, "looks", scripts={"postinst": code + "touch /usr/share/looks/passed\n"})
    digest = extend(home, "--apt", "looks", image=IMAGE, env=sources)
    assert run(home, digest, "import os; print(os.path.exists('/usr/share/looks/passed'))") == "True\n"


def test_no_password_is_shown_to_a_package(home, sources, archive):
    """A proxy's, or an archive's: the scripts of packages run where the packages are, and a layer can be shared."""
    debs.package(archive.folder, "nosy", scripts={"postinst": "ls /mnt/in >/opt/seen\ncat /proc/1/environ /proc/self/environ >>/opt/seen 2>/dev/null || :\n"})
    env = {**sources, "https_proxy": "http://ada:sesame@127.0.0.1:1"}
    digest = extend(home, "--apt", "nosy", image=IMAGE, env=env)
    seen = run(home, digest, "print(open('/opt/seen', errors='replace').read())")
    assert "debs.tar" in seen and "sesame" not in seen and "sources" not in seen and "environment" not in seen, seen


def test_what_a_script_leaves_running(home, sources, archive):
    """It writes on while it is looked at what has changed."""
    debs.package(archive.folder, "busy", scripts={"postinst": "mkdir /opt/busy\n(while :; do echo x >>/opt/busy/grow; done) >/dev/null 2>&1 </dev/null &\nsleep 1\n"})
    digest = extend(home, "--apt", "busy", image=IMAGE, env=sources)
    assert run(home, digest, "import os; print(os.path.getsize('/opt/busy/grow') > 0)") == "True\n"


@pytest.mark.parametrize("number", (signal.SIGTERM, signal.SIGKILL))
def test_interrupted(home, sources, archive, number):
    debs.package(archive.folder, "slow", scripts={"postinst": "touch /usr/share/slow/began; sleep 600\n"})
    process = subprocess.Popen([support.HUTCH, "rootfs", "extend", "--quiet", IMAGE, "--apt", "slow"], env=environment(home, **sources),
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + SECONDS
    while not any("began" in names for _, _, names in os.walk(home + "/images/tmp")) and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(number)
    assert process.wait(SECONDS) != 0
    while support.processes_about(home) and time.monotonic() < until:
        time.sleep(0.05)
    # A run of the same store takes away what the killed one could not: its control group.
    assert run(home, IMAGE, "print(1)") == "1\n"


def test_debians_own_archive(home):
    """A program and its library, as everybody fetches them."""
    digest = extend(home, "--apt", "lua5.4", "--as", "lua", image=IMAGE)
    done = hutch(home, "run", "--image", "lua", "--entrypoint", "lua5.4", "--", "-e", "print(6 * 7)")
    assert (done.returncode, done.stdout) == (0, b"42\n"), done.stderr
    names = [package["name"] for package in listed(home, digest)["layers"][0]["packages"]]
    assert "lua5.4" in names and len(names) >= 1, json.dumps(names)


# --------------------------------------------------------------------------------------------------
# The policy's key by itself

@pytest.fixture
def changes(tmp_path):
    folder = tmp_path / "changes"
    for name in ("upper", "work"):
        (folder / name).mkdir(parents=True)
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"schema": 1, "extends": "default", "root_changes": str(folder)}))
    yield folder, str(policy)
    support.remove_tree(str(folder))


def test_changes_of_the_root(changes):
    folder, policy = changes
    code = ("import os; open('/usr/bin/new', 'w').write('x'); os.chown('/usr/bin/new', 3, 4); os.remove('/usr/bin/env'); os.setuid(0)\n"
            "try: os.chmod('/usr/bin/new', 0o6755)\nexcept PermissionError: print('refused')\n"
            "os.rename('/usr/bin/new', '/etc/new'); print(os.getuid(), oct(os.stat('/etc/new').st_mode), os.path.exists('/usr/bin/env'))")
    done = support.run("--no-server", "--policy", policy, "-c", code, image=IMAGE)
    assert done.stdout == b"refused\n0 0o100644 False\n", done
    found = os.stat(folder / "upper/etc/new")
    assert found.st_uid == os.geteuid() and found.st_mode == 0o100644 and os.stat(folder / "upper/usr/bin/env").st_rdev == 0
    assert support.run("-c", "import os; print(os.path.exists('/usr/bin/env'), os.path.exists('/etc/new'), os.getuid())", image=IMAGE).stdout == b"True False 1000\n"
    # What was changed is there the next time.
    assert support.run("--no-server", "--policy", policy, "-c", "import os; print(os.path.exists('/etc/new'))", image=IMAGE).stdout == b"True\n"


def test_changes_are_for_one_run_alone(changes, tmp_path):
    folder, policy = changes
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text('{"id": "1", "code": "print(1)"}\n')
    for words, says in ((["run", "--warm", "--policy", policy, "--image", IMAGE, "-c", "1"], "is for one run alone"),
                        (["batch", "--policy", policy, "--image", IMAGE, str(tasks)], "is for one run alone"),
                        (["bundle", IMAGE, str(tmp_path / "bundle"), "--policy", policy], "root_changes"),
                        (["run", "--no-server", "--policy", policy, "--rootfs", "host", "-c", "1"], "take no changes")):
        done = support.hutch(*words)
        assert done.returncode == 125 and says in done.stderr.decode(), done
    shutil.rmtree(folder / "work")
    done = support.hutch("run", "--no-server", "--policy", policy, "--image", IMAGE, "-c", "1")
    assert done.returncode == 125 and "'upper' and 'work'" in support.sentence(done), done
