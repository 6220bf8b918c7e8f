"""hutch rootfs extend, hutch run --with and PEP 723: packages in layers over an image. What the builder writes is judged like any
stranger's archive, and nothing is left behind, whichever way it ends."""
import base64
import contextlib
import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import tarfile
import threading
import time

import pytest

import support
import wheels as make
from layers import BASE, NO_BUILDER, SECONDS, environment, extend, hutch, listed, refused, run


@pytest.fixture
def index(tmp_path):
    folder = tmp_path / "index"
    folder.mkdir()
    served = make.Index(folder)
    yield served
    served.close()


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "wheels"
    path.mkdir()
    make.wheel(path, "nicate", "2.0")
    make.wheel(path, "frob", requires=["nicate>=2"])
    return str(path)


IMPORTS = "import frob, nicate; print(frob.version, nicate.version)"


# --------------------------------------------------------------------------------------------------
# What works

def test_wheels_of_a_directory(home, folder, tmp_path):
    digest = extend(home, "--pip", "frob", "--wheels", folder, "--as", "more")
    for words in ([], ["--warm"]):
        assert run(home, "more", IMPORTS, *words) == "1.0 2.0\n"
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text("".join(json.dumps({"id": str(i), "code": IMPORTS}) + "\n" for i in range(20)))
    done = hutch(home, "batch", "--image", "more", str(tasks))
    assert [json.loads(line)["stdout"] for line in done.stdout.splitlines()] == ["1.0 2.0\n"] * 20, done.stderr
    image = listed(home, "more")
    assert image["digest"] == digest and image["base"] == listed(home, BASE)["digest"]
    (layer,) = image["layers"]
    assert layer["kind"] == "pip" and layer["tool"].startswith("pip ") and image["bytes"] == layer["bytes"] > 0
    assert layer["packages"] == [{"name": name, "version": version, "sha256": make.digest("%s/%s-%s-py3-none-any.whl" % (folder, name, version)),
                                  "file": "%s-%s-py3-none-any.whl" % (name, version)} for name, version in (("frob", "1.0"), ("nicate", "2.0"))]
    assert hutch(home, "rootfs", "verify", "more").stdout == b"more: unchanged\n"
    # The same again is found, and nothing is made, under another name, with spaces, and in capitals.
    for words in (["frob", "--as", "again"], [" FROB "]):
        assert extend(home, "--pip", *words, "--wheels", folder, env=NO_BUILDER) == digest
    assert listed(home, "more")["names"] == ["again", "more"]
    # Another list is another image.
    assert extend(home, "--pip", "nicate", "--wheels", folder) != digest


def test_verify_finds_what_was_changed(home, folder):
    extend(home, "--pip", "nicate", "--wheels", folder, "--as", "more")
    layer = listed(home, "more")["layers"][0]["digest"].partition(":")[2]
    for where, _, names in os.walk(home + "/images/layers/" + layer + "/root"):
        if "nicate.py" in names:
            with open(where + "/nicate.py", "a", encoding="ascii") as file:
                file.write("#")
    done = hutch(home, "rootfs", "verify", "more")
    assert done.returncode == 1 and b"nicate.py" in done.stdout, done


def test_an_index(home, index):
    make.wheel(index.folder, "nicate", "2.0")
    make.wheel(index.folder, "frob", requires=["nicate"])
    done = hutch(home, "rootfs", "extend", BASE, "--pip", "frob", "--index", index.url)
    assert done.returncode == 0, done.stderr
    assert b"has this host's network; what runs on the image later has not" in done.stderr
    digest, asked = done.stdout.decode().strip(), len(index.asked)
    assert asked >= 4
    assert run(home, digest, IMPORTS) == "1.0 2.0\n"
    assert extend(home, "--pip", "frob", env={"PIP_INDEX_URL": index.url}) == digest
    assert len(index.asked) == asked, "the same list was fetched again"
    # What runs on it has no network.
    assert run(home, digest, "import socket, urllib.request\ntry:\n urllib.request.urlopen(%r)\nexcept OSError: print('none')" % index.url) == "none\n"


def test_hashes(home, index, tmp_path):
    good = make.wheel(index.folder, "frob")
    make.wheel(index.folder, "bad")
    wanted = tmp_path / "requirements.txt"
    wanted.write_text("# what is wanted\nfrob==1.0 \\\n    --hash=sha256:%s  # it\n" % ("1" * 64))
    refused(home, "--quiet", "--pip", str(wanted), "--index", index.url, says=("the hash is not the one that is expected: frob==1.0", make.digest(good)))
    wanted.write_text("frob==1.0 --hash=sha256:%s\n" % make.digest(good))
    assert run(home, extend(home, "--pip", str(wanted), "--index", index.url), "import frob; print(frob.version)") == "1.0\n"
    index.forged.add("bad-1.0-py3-none-any.whl")
    done = hutch(home, "rootfs", "extend", BASE, "--quiet", "--pip", "bad", "--index", index.url)
    assert done.returncode == 125 and "the hash is not the one that is expected: bad" in support.sentence(done)


def test_a_wheel_by_its_path(home, folder):
    digest = extend(home, "--pip", folder + "/nicate-2.0-py3-none-any.whl", "--index", "none")
    assert run(home, digest, "import nicate; print(nicate.version)") == "2.0\n"
    make.wheel(folder, "nicate", "2.0", {"nicate.py": "version = 'changed'\n"})
    digest = extend(home, "--pip", folder + "/nicate-2.0-py3-none-any.whl", "--index", "none")
    assert run(home, digest, "import nicate; print(nicate.version)") == "changed\n"


def test_two_images_share_a_layer(home, folder):
    for image in (BASE, "minimal"):
        extend(home, "--pip", "nicate", "--wheels", folder, "--as", "more-" + image, image=image)
    assert listed(home, "more-minimal")["layers"][0]["digest"] == listed(home, "more-" + BASE)["layers"][0]["digest"]
    assert len(os.listdir(home + "/images/layers")) == 1 and listed(home, "more-minimal")["base"] != listed(home, "more-" + BASE)["base"]
    assert run(home, "more-minimal", "import nicate; print(nicate.version)") == "2.0\n"


def test_what_the_image_has_is_not_installed(home, tmp_path):
    make.wheel(tmp_path, "charts", requires=["numpy"])
    digest = extend(home, "--pip", "charts", "--wheels", str(tmp_path))
    assert [package["name"] for package in listed(home, digest)["layers"][0]["packages"]] == ["charts"]
    assert run(home, digest, "import charts, numpy; print('both')") == "both\n"


def test_a_newer_version_than_the_image_has(home, tmp_path):
    make.wheel(tmp_path, "tqdm", "99.0", {"tqdm/__init__.py": "__version__ = '99.0'\n"})
    digest = extend(home, "--pip", "tqdm>=99", "--wheels", str(tmp_path))
    assert run(home, digest, "import tqdm; print(tqdm.__version__)") == "99.0\n"
    assert run(home, BASE, "import tqdm; print(tqdm.__version__ != '99.0')") == "True\n"


# --------------------------------------------------------------------------------------------------
# hutch run

@pytest.mark.parametrize("words", [["--no-server"], ["--warm"], ["--rich"]])
def test_run_with(home, folder, words):
    code = [*words, "--image", BASE, "--wheels", folder, "--with", "frob,nicate>=1,<3", "-c", IMPORTS]
    done = hutch(home, "run", *code)
    assert (done.returncode, done.stdout) == (0, b"1.0 2.0\n"), done.stderr
    again = hutch(home, "run", *code, env=NO_BUILDER)
    assert (again.returncode, again.stdout, again.stderr) == (0, b"1.0 2.0\n", b"")


MCP_CALLS = [{"method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}},
             {"method": "tools/call", "params": {"name": "run_python", "arguments": {"code": IMPORTS}}}]


def test_other_commands_with(home, folder, tmp_path):
    """hutch batch, repl and mcp take the same layer, made once."""
    asked = ["--image", BASE, "--wheels", folder, "--with", "frob"]
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text("".join(json.dumps({"id": str(i), "code": IMPORTS}) + "\n" for i in range(20)))
    done = hutch(home, "batch", *asked, str(tasks))
    assert [json.loads(line)["stdout"] for line in done.stdout.splitlines()] == ["1.0 2.0\n"] * 20, done.stderr
    results = tmp_path / "results.jsonl"
    results.write_bytes(done.stdout)
    done = hutch(home, "batch", *asked, "--resume", "-o", str(results), str(tasks), env=NO_BUILDER)
    assert done.returncode == 0 and len(results.read_text().splitlines()) == 20, done.stderr  # it is the same image
    done = hutch(home, "repl", *asked, stdin=IMPORTS.encode() + b"\n", env=NO_BUILDER)
    assert (done.returncode, done.stdout) == (0, b"1.0 2.0\n"), done
    with subprocess.Popen([support.HUTCH, "mcp", *asked], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(home, **NO_BUILDER)) as child:
        watch = threading.Timer(SECONDS, child.kill)
        watch.start()
        child.stdin.write(b"".join(json.dumps({"jsonrpc": "2.0", "id": i, **call}).encode() + b"\n" for i, call in enumerate(MCP_CALLS)))
        child.stdin.flush()
        answers = [child.stdout.readline() for _ in MCP_CALLS]
        child.stdin.close()
        assert child.wait(SECONDS) == 0 and b"1.0 2.0" in answers[-1], answers
        watch.cancel()
    for command in ("batch", "repl", "mcp"):
        done = hutch(home, command, "--image", BASE, "--wheels", folder, *([str(tasks)] if command == "batch" else []))
        assert done.returncode == 125 and "none is asked for (--with" in support.sentence(done), done


SCRIPT = '# /// script\n# requires-python = ">=3.9"\n# dependencies = [\n#   "frob",  # it\n#   \'nicate>=2\',\n# ]\n# ///\n' + IMPORTS + "\n"


def test_dependencies_of_a_script(home, folder, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    for env in ({}, NO_BUILDER):
        done = hutch(home, "run", "--image", BASE, "--wheels", folder, str(script), env=env)
        assert (done.returncode, done.stdout) == (0, b"1.0 2.0\n"), done.stderr
    project = tmp_path / "project"
    project.mkdir()
    (project / "main.py").write_text(SCRIPT)
    done = hutch(home, "run", "--image", BASE, "--wheels", folder, str(project), env=NO_BUILDER)
    assert (done.returncode, done.stdout) == (0, b"1.0 2.0\n"), done.stderr
    # In another language it is a comment.
    other = tmp_path / "script.sh"
    other.write_text(SCRIPT.replace(IMPORTS, "echo shell"))
    done = hutch(home, "run", "--image", BASE, str(other), env=NO_BUILDER)
    assert (done.returncode, done.stdout) == (0, b"shell\n"), done.stderr


def test_a_script_alone_has_nothing_fetched(home, index, tmp_path):
    """Nobody has read it, and what it wants is fetched by the host's network."""
    make.wheel(index.folder, "nicate", "2.0")
    make.wheel(index.folder, "frob")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    words = ["run", "--image", BASE, "--index", index.url]
    for more in ([], ["--quiet"], ["--network", "none", "--policy", "strict"]):
        done = hutch(home, *words, *more, str(script))
        assert done.returncode == 125 and done.stdout == b"" and not index.asked, done
        assert "'%s' wants packages that are not here: frob, nicate>=2 (--yes" % script in support.sentence(done)
    done = hutch(home, *words, "--yes", str(script))
    assert (done.returncode, done.stdout) == (0, b"1.0 2.0\n"), done.stderr
    done = hutch(home, *words, str(script), env=NO_BUILDER)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"1.0 2.0\n", b""), "what is there needs no question"


@pytest.mark.parametrize("requirement, says", [
    ("x @ http://127.0.0.1:1/x-1.tar.gz", "is a URL, which a script may not have asked for"),
    ("x @ https://127.0.0.1:1/${HTTPS_PROXY}/x-1-py3-none-any.whl", "has a '$'"),
    ("frob --no-binary=:all:", "has an option of pip's behind it"),
])
def test_what_no_script_may_want(home, tmp_path, requirement, says):
    script = tmp_path / "script.py"
    script.write_text("# /// script\n# dependencies = ['%s']\n# ///\nprint(1)\n" % requirement)
    done = hutch(home, "run", "--yes", "--image", BASE, str(script))
    assert done.returncode == 125 and says in support.sentence(done) and done.stdout == b"", done


@pytest.mark.parametrize("text, says", [
    ("# /// script\n# dependencies = ['frob']\nprint(1)\n", "has no end"),
    ("# /// script\n# dependencies = 'frob'\n# ///\n", "are not a list of texts"),
    ("# /// script\n# dependencies = ['frob'\n# ///\n", "are not a list of texts"),
    ("# /// script\n# dependencies = ['-r /etc/passwd']\n# ///\n", "is an option of pip's"),
    ("# /// script\n# dependencies = []\n# ///\nprint(1)\n# /// script\n# dependencies = []\n# ///\n", "two blocks"),
])
def test_a_script_that_says_it_wrongly(home, tmp_path, text, says):
    script = tmp_path / "script.py"
    script.write_text(text)
    done = hutch(home, "run", "--image", BASE, str(script))
    assert done.returncode == 125 and says in support.sentence(done) and done.stdout == b""


@pytest.mark.parametrize("requirement, says", [
    ("frob>=1,evil @ https://127.0.0.1:1/evil-1.0-py3-none-any.whl", "has a '/' in it"), ("s==1.txt", "pip: "), ("s==1.whl", "pip: "),
    ("frob; python_version in '2.7,3.0'", None),
])
def test_what_a_script_wants_is_one_requirement_each(home, folder, tmp_path, requirement, says):
    """It is no list, no requirements file and no wheel of the working directory, whoever reads it after hutch run."""
    script = tmp_path / "script.py"
    script.write_text('# /// script\n# dependencies = ["%s"]\n# ///\nprint(1)\n' % requirement)
    for name in ("s==1.txt", "s==1.whl"):
        (tmp_path / name).write_text("nicate\n")
    done = hutch(home, "run", "--yes", "--quiet", "--wheels", folder, "--image", BASE, str(script), cwd=str(tmp_path))
    if says:
        assert done.returncode == 125 and says in done.stderr.decode() and done.stdout == b"", done
        assert not os.path.isdir(home + "/images/layers") or os.listdir(home + "/images/layers") == []
    else:
        assert (done.returncode, done.stdout) == (0, b"1\n"), done
    done = hutch(home, "run", "--quiet", "--wheels", folder, "--image", BASE, "--with", "nicate; python_version not in '2.7,3.0',frob", "-c", IMPORTS)
    assert (done.returncode, done.stdout) == (0, b"1.0 2.0\n"), done


def test_the_question_names_all_of_it(home, tmp_path):
    """What a stranger's program wants is shown whole, and with nothing that a terminal obeys."""
    names = ["a%02d-innocent-looking-package" % i for i in range(20)] + ["zz-last"]
    script = tmp_path / "a\x1b[8m\x1b]0;TITLE\x07.py"
    script.write_text("# /// script\n# dependencies = [%s]\n# ///\nprint(1)\n" % ", ".join("'%s'" % name for name in names))
    shown, status = support.at_terminal(environment(home), b"n\n", "run", "--image", BASE, str(script))
    assert status == 125 and "is not run without its packages" in shown
    assert all(name in shown for name in names) and "\x1b[8m" not in shown and "\x1b]" not in shown, shown
    done = hutch(home, "run", "--image", BASE, str(script))
    assert done.returncode == 125 and " more (--yes" in support.sentence(done) and "zz-last" not in done.stderr.decode()


def test_run_refuses(home, folder):
    for words, says in ((["--rootfs", "host", "--with", "frob"], "with '--rootfs' there is none"),
                        (["--wheels", folder], "none is asked for"),
                        (["--with", "-x"], "is an option of pip's"), (["--image", "nosuch", "--with", "frob", "--wheels", folder], "there is no image 'nosuch'")):
        done = hutch(home, "run", *words, "-c", "print(1)")
        assert done.returncode == 125 and says in done.stderr.decode() and done.stdout == b"", done


def test_pip_inside_says_what_there_is(home):
    done = hutch(home, "run", "--image", BASE, "-c", "import subprocess, sys\nsys.exit(subprocess.run([sys.executable, '-m', 'pip', 'install', 'x']).returncode)")
    assert done.returncode != 0
    assert "hutch run --with PACKAGE" in done.stderr.decode()


# --------------------------------------------------------------------------------------------------
# What is refused in words

@pytest.mark.parametrize("words, says", [
    ([], "there is nothing to lay over the image"),
    (["--pip", "-e ."], "is an option of pip's"),
    (["--pip", "git+https://example.org/x"], "has no name"),
    (["--pip", "../x"], "has no name"),
    (["--pip", "a b"], "is none: NAME"),
    (["--pip", "/no/such.whl"], "look at the wheel '/no/such.whl': No such file"),
    (["--pip", "/no/such.txt"], "open the requirements '/no/such.txt': No such file"),
    (["--pip", "x", "--wheels", "/no/such"], "option '--wheels': look at '/no/such'"),
    (["--pip", "x", "--index", "ftp://x"], "is no URL"),
    (["--pip", "x", "--as", "%"], "cannot be an image's name"),
    (["--pip", "x", "--timeout", "0"], "in no time nothing is made"),
    (["--npm", "/no/such"], "option '--npm': look at '/no/such'"),
])
def test_bad_words(home, words, says):
    refused(home, *words, *([] if "--index" in words or "--wheels" in words else ["--index", "none"]), says=says)


def test_the_lines_of_a_requirements_file(home, tmp_path):
    wanted = tmp_path / "requirements.txt"
    wanted.write_text("frob\n\n--index-url http://x/\n")
    refused(home, "--pip", str(wanted), "--index", "none", says=("requirement 3 of the file", "is an option of pip's"))


def test_what_is_not_there(home, folder):
    refused(home, "--pip", "nosuch", "--wheels", folder, says="No matching distribution found for nosuch")
    refused(home, "--pip", "nosuch", "--index", "none", image="nosuch", says="there is no image 'nosuch'")


def test_places_that_pip_was_told(home, tmp_path):
    refused(home, "--pip", "x", env={"PIP_EXTRA_INDEX_URL": "http://x/"}, says="the environment has PIP_EXTRA_INDEX_URL, which hutch does not obey")
    config = tmp_path / "pip.conf"
    config.write_text("[global]\nindex-url = http://x/\n")
    refused(home, "--pip", "x", env={"PIP_CONFIG_FILE": str(config)}, says="says where packages are to be found, which hutch does not read")


def test_packages_from_source_are_asked_for(home, tmp_path):
    source = tmp_path / "src-1.0"
    source.mkdir()
    (source / "setup.py").write_text("raise SystemExit('it ran')\n")
    (source / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: src\nVersion: 1.0\n")
    dist = tmp_path / "dist"
    dist.mkdir()
    shutil.make_archive(str(dist / "src-1.0"), "gztar", str(tmp_path), "src-1.0")
    assert "it ran" not in refused(home, "--pip", "src", "--wheels", str(dist), says="No matching distribution found for src")


# --------------------------------------------------------------------------------------------------
# Hostile wheels

def test_a_wheel_that_leads_out(home, tmp_path):
    make.wheel(tmp_path, "out", files={"../../../../../../../mnt/data/said": "x", "out.py": ""})
    refused(home, "--pip", "out", "--wheels", str(tmp_path), says="pip: ")


def test_a_wheel_with_setuid_bits(home, tmp_path):
    def setuid(info):
        info.external_attr = 0o104755 << 16
    make.wheel(tmp_path, "suid", info=setuid)
    extend(home, "--pip", "suid", "--wheels", str(tmp_path))
    for where, folders, names in os.walk(home + "/images/layers"):
        for name in folders + names:
            assert os.lstat(os.path.join(where, name)).st_mode & 0o7000 == 0


def test_code_of_a_pth_file_runs_inside_only(home, tmp_path):
    mark = tmp_path / "ran"
    make.wheel(tmp_path, "hook", files={"hook.pth": "import os; os.path.exists('/tmp') and open(%r, 'w'); print('hooked')\n" % str(mark), "hook.py": ""})
    digest = extend(home, "--pip", "hook", "--wheels", str(tmp_path))
    assert not mark.exists()
    done = hutch(home, "run", "--image", digest, "-c", "print('end')")
    assert b"end" in done.stdout and not mark.exists(), done


def source(folder, name):
    """A source archive whose build backend is its own."""
    path = os.path.join(folder, name + "-1.0.tar.gz")
    with tarfile.open(path, "w:gz") as archive:
        for entry, text in (("pyproject.toml", "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n"),
                            ("backend.py", "import sys\nprint('BACKEND', file=sys.stderr, flush=True)\n1 / 0\n"),
                            ("PKG-INFO", "Metadata-Version: 2.1\nName: %s\nVersion: 1.0\n" % name)):
            one = tarfile.TarInfo("%s-1.0/%s" % (name, entry))
            one.size = len(text)
            archive.addfile(one, io.BytesIO(text.encode()))
    return path


def test_a_package_that_wants_a_source(home, index):
    """--only-binary does not count for URLs, and a wheel may name one."""
    source(index.folder, "evil")
    url = index.url.replace("/simple/", "/files/evil-1.0.tar.gz")
    make.wheel(index.folder, "frob", requires=["evil @ " + url])
    done = hutch(home, "rootfs", "extend", BASE, "--quiet", "--pip", "frob", "--index", index.url)
    assert done.returncode == 125 and "would have to be built from its source" in support.sentence(done), done.stderr
    assert b"BACKEND" not in done.stderr
    done = hutch(home, "rootfs", "extend", BASE, "--quiet", "--pip", "frob", "--index", index.url, "--allow-build")
    assert done.returncode == 125 and "would have to be built" not in done.stderr.decode(), "the test's source is none that is built"


def test_code_of_a_layer_does_not_run_in_the_next_builder(home, index, tmp_path):
    """That has the network, and this host's loopback with it."""
    url = index.url.replace("/simple/", "/hooked")
    make.wheel(tmp_path, "hook", files={"hook.pth": "import urllib.request as r; r.urlopen(%r, timeout=5)\n" % url, "hook.py": ""})
    make.wheel(index.folder, "frob")
    digest = extend(home, "--pip", "hook", "--wheels", str(tmp_path))
    extend(home, "--quiet", "--pip", "frob", "--index", index.url, image=digest)
    assert "/hooked" not in index.asked and index.asked, index.asked
    hutch(home, "run", "--image", digest, "--network", "host", "-c", "print('end')")
    assert "/hooked" in index.asked, "the hook of this test works nowhere"


def test_passwords_are_in_no_command_line(home, index):
    """Every user of the host can read those."""
    make.wheel(index.folder, "frob")
    seen, looked = [], []

    def look(_path):
        looked.append(1)
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError), open("/proc/%s/cmdline" % pid, "rb") as opened:
                words = opened.read()
                seen.extend([words] if b"sesame" in words else [])
    index.hold = look
    env = {"PIP_INDEX_URL": index.url.replace("http://", "http://ada:sesame@"), "HTTPS_PROXY": "http://ada:sesame@127.0.0.1:1"}
    digest = extend(home, "--quiet", "--pip", "frob", env=env)
    assert run(home, digest, "import frob; print(frob.version)") == "1.0\n"
    assert looked and not seen, seen


EVIL = "import os, sys\nos.write(2, b'a package ran in the builder')\nos._exit(3)\n"


def test_no_code_of_a_layer_runs_in_the_builder(home, folder, tmp_path):
    """A layer's package could wait for the network that the next layer's builder has."""
    image, files = "minimal", {"_manylinux.py": EVIL, "pip/__init__.py": EVIL, "pip/__main__.py": EVIL, "sitecustomize.py": EVIL, "html.py": EVIL,
                               "evil-1.0.data/scripts/python3": "#!/bin/sh\necho a script ran in the builder >&2; exit 3\n"}
    make.wheel(folder, "evil", "1.0", files, info=lambda entry: setattr(entry, "external_attr", 0o100755 << 16))
    extend(home, "--pip", "evil,nicate", "--wheels", folder, "--as", "evil", image=image)
    done = hutch(home, "run", "--no-server", "--image", "evil", "--entrypoint", "python3", "--", "-c", "1")
    assert done.returncode == 3 and b"a script ran" in done.stderr, "what is in the layer is in the way"
    digest = extend(home, "--pip", "frob", "--wheels", folder, "--as", "more", image="evil")
    below, above = listed(home, "more")["layers"]
    assert [package["name"] for package in below["packages"]] == ["evil", "nicate"] and [package["name"] for package in above["packages"]] == ["frob"]
    assert listed(home, "more")["digest"] == digest


# --------------------------------------------------------------------------------------------------
# A hostile builder: code of a package may run in it

BUILDER = """
import io, sys, tarfile, time
archive = None
def add(name, data=b'', kind=tarfile.REGTYPE, link='', mode=0o644):
    entry = tarfile.TarInfo(name)
    entry.size, entry.type, entry.linkname, entry.mode = len(data), kind, link, mode
    archive.addfile(entry, io.BytesIO(data))
LOCK = b'{"tool": "pip 1", "language": "python 3", "packages": []}'
def begin(lock=LOCK):
    global archive
    archive = tarfile.open(fileobj=sys.stdout.buffer, mode='w|')
    if lock is not None: add('lock.json', lock)
    add('tree', kind=tarfile.DIRTYPE, mode=0o755)
    add('tree/usr', kind=tarfile.DIRTYPE, mode=0o755)
def end(): archive.close()
"""


def builder(tmp_path, code):
    folder = tmp_path / "builder"
    folder.mkdir(exist_ok=True)
    (folder / "extend_pip.py").write_text(BUILDER + code)
    return {"HUTCH_ROOTFS_DIR": str(folder)}


@pytest.mark.parametrize("code, says", [
    ("begin(); add('tree/../../../../x', b'x'); end()", "'..'"),
    ("begin(); add('/etc/x', b'x'); end()", "the name is an absolute path"),
    ("begin(); add('tree/usr/up', kind=tarfile.SYMTYPE, link='../../../../..'); add('tree/usr/up/x', b'x'); end()", "tree/usr/up"),
    ("begin(); add('tree/usr/x', kind=tarfile.LNKTYPE, link='/etc/passwd'); end()", "/etc/passwd"),
    ("begin(); add('tree/usr/null', kind=tarfile.CHRTYPE); end()", "device"),
    ("begin(); add('tree/usr/fifo', kind=tarfile.FIFOTYPE); end()", "fifo"),
    ("begin(); add('tree/etc/passwd', b'x'); end()", "a layer may not have '/etc'"),
    ("begin(); add('tree/mnt', kind=tarfile.SYMTYPE, link='/etc'); end()", "a layer may not have '/mnt'"),
    ("begin(); add('tree/opt', kind=tarfile.SYMTYPE, link='/etc'); end()", "a layer may not have '/opt'"),
    ("begin(); add('other', b'x'); end()", "a layer may not have 'other'"),
    ("begin(None); end()", "find the layer in the builder's archive"),
    ("begin(b'{'); end()", "is no list of packages"),
    ("begin(LOCK.replace(b'pip 1', b'a\\\\u001bb')); end()", "is no list of packages"),
    ("print('no archive')", "layer"),
    ("pass", "layer"),
    ("sys.exit('it\\x1b[31m failed')", "failed"),
    ("begin(); [add('tree/usr/%d' % i) for i in range(2000)]; end()", "1000"),
    ("begin(); add('tree/usr/big', b'x' * 3000000); end()", "--max-size"),
    ("time.sleep(600)", "--timeout"),
    ("import os\nwhile True: os.write(1, b'x' * 65536)", "--max-size"),
])
def test_a_hostile_builder(home, tmp_path, code, says):
    words = ["--timeout", "3s"] if "sleep" in code else []
    line = refused(home, "--pip", "x", "--index", "none", "--max-entries", "1000", "--max-size", "2m", *words, says=says, env=builder(tmp_path, code))
    assert "\x1b" not in line


def test_modes_of_a_layer(home, tmp_path):
    code = "begin(); add('tree/usr/suid', b'x', mode=0o6755); add('tree/usr/closed', b'secret', mode=0o600); add('tree/usr/.wh.lib', b''); end()"
    digest = extend(home, "--pip", "x", "--index", "none", env=builder(tmp_path, code))
    out = run(home, digest, "import os; print(oct(os.stat('/usr/suid').st_mode), os.stat('/usr/closed').st_size, os.path.isdir('/usr/lib'))")
    assert out == "0o100755 0 True\n"


def test_ten_layers(home, tmp_path):
    image = BASE
    for i in range(12):
        code = "begin(); add('tree/usr/layer%d', b'%d'); add('tree/usr/last', b'%d'); end()" % (i, i, i)
        image = extend(home, "--pip", "x", "--index", "none", "--as", "l%d" % i, image=image, env=builder(tmp_path, code))
    out = run(home, image, "print(open('/usr/last').read(), ''.join(open('/usr/layer%d' % i).read() for i in range(12)))")
    assert out == "11 " + "".join(map(str, range(12))) + "\n"
    assert run(home, "l3", "import os; print(open('/usr/last').read(), os.path.exists('/usr/layer4'))", "--warm") == "3 False\n"
    layers = listed(home, "l11")["layers"]
    assert len(layers) == 12 == len(os.listdir(home + "/images/layers"))
    assert sum(len(names) for _, _, names in os.walk(home + "/images/layers")) == 12 * (2 + 2)  # files, record and layer.json
    done = hutch(home, "rootfs", "extend", image, "--pip", "x", "--index", "none", env=builder(tmp_path, "begin(); end()"))
    assert done.returncode == 125 and "has 12 layers, the most that there can be" in support.sentence(done)


# --------------------------------------------------------------------------------------------------
# Node

@pytest.fixture
def package(tmp_path):
    """A directory with a package.json that depends on a package beside it, as npm pack writes one."""
    if "node" not in [name for image in json.loads(support.hutch("rootfs", "list", "--json").stdout) for name in image["names"]]:
        support.miss("images: the store has no 'node'")
    about = {"name": "frob", "version": "1.2.3", "main": "index.js", "scripts": {"install": "touch built"}}
    with tarfile.open(str(tmp_path / "frob-1.2.3.tgz"), "w:gz") as archive:
        for name, text in (("package.json", json.dumps(about)), ("index.js", "exports.x = 42; exports.built = require('fs').existsSync(__dirname + '/built')")):
            entry = tarfile.TarInfo("package/" + name)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    (tmp_path / "package.json").write_text(json.dumps({"name": "app", "version": "1.0.0", "dependencies": {"frob": "file:frob-1.2.3.tgz"}}))
    (tmp_path / "a.js").write_text("const f = require('frob'); console.log(f.x, f.built)")
    (tmp_path / "b.mjs").write_text("import f from 'frob'; console.log(f.x, f.built)")
    return tmp_path


def test_npm(home, package):
    for words, said in (([], b"42 false\n"), (["--allow-build"], b"42 true\n")):
        extend(home, "--npm", str(package / "package.json"), "--index", "none", "--as", "app", *words, image="node")
        for name in ("a.js", "b.mjs"):
            done = hutch(home, "run", "--image", "app", str(package / name))
            assert (done.returncode, done.stdout) == (0, said), done.stderr
    (layer,) = listed(home, "app")["layers"]
    assert layer["kind"] == "npm" and layer["tool"].startswith("npm ")
    assert [(one["name"], one["version"], one["integrity"][:7]) for one in layer["packages"]] == [("frob", "1.2.3", "sha512-")]
    digest = listed(home, "app")["digest"]
    assert extend(home, "--npm", str(package), "--allow-build", "--index", "none", image="node", env=NO_BUILDER) == digest


class Registry(make.Index):
    """npm's: for each name an object with its versions. The packages are those of a directory."""

    def answer(self, path):
        found = super().answer(path) if path.startswith("/files/") else None
        name = path.strip("/").split("/")[-1]
        tarball = os.path.join(self.folder, name + "-1.2.3.tgz")
        if found or not os.path.exists(tarball):
            return found
        with open(tarball, "rb") as file:
            integrity = "sha512-" + base64.b64encode(hashlib.sha512(file.read()).digest()).decode()
        version = {"name": name, "version": "1.2.3", "dist": {"tarball": self.url.replace("/simple/", "/files/%s-1.2.3.tgz" % name), "integrity": integrity}}
        return json.dumps({"name": name, "dist-tags": {"latest": "1.2.3"}, "versions": {"1.2.3": version}}).encode()


@pytest.fixture
def registry(package):
    served = Registry(package)
    yield served
    served.close()


def test_npm_by_name(home, registry, package):
    digest = extend(home, "--npm", "frob@^1.2", "--index", registry.url, image="node")
    done = hutch(home, "run", "--image", digest, str(package / "a.js"), env=NO_BUILDER)  # the image has packages: it is not asked what it wants
    assert (done.returncode, done.stdout) == (0, b"42 false\n"), done.stderr
    refused_words = [("frob@https://x/y.tgz", "no range of versions"), ("@x", "is no name of a package"), ("nosuch@1", "npm: ")]
    for what, says in refused_words:
        done = hutch(home, "rootfs", "extend", "node", "--quiet", "--npm", what, "--index", registry.url)
        assert done.returncode == 125 and says in support.sentence(done), done


def test_package_json_beside_a_program(home, registry, package, tmp_path):
    """As with a script's dependencies: fetched when the caller says so, and found again by whoever wants the same."""
    for name in ("one", "two", "two/src"):
        (tmp_path / name).mkdir()
    manifest = json.dumps({"main": "src/b.mjs", "dependencies": {"frob": "^1.2"}, "scripts": {"install": "touch /mnt/data/ran"}})
    for folder, program, where in (("one", "a.js", "one"), ("two", "b.mjs", "two/src")):
        (tmp_path / folder / "package.json").write_text(manifest)
        shutil.copy(package / program, tmp_path / where)
    words = ["run", "--image", "node", "--index", registry.url]
    done = hutch(home, *words, str(tmp_path / "one/a.js"))
    assert done.returncode == 125 and "wants packages that are not here: frob@^1.2 (--yes" in support.sentence(done) and not registry.asked
    done = hutch(home, *words, "--yes", str(tmp_path / "one/a.js"))
    assert (done.returncode, done.stdout) == (0, b"42 false\n") and registry.asked, done.stderr
    for program in ("one/a.js", "two"):  # a project with the same list has the same layer
        done = hutch(home, *words, str(tmp_path / program), env=NO_BUILDER)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"42 false\n", b""), done
    # A program of Python has nothing to do with it, and an image without Node says that.
    (tmp_path / "one/x.py").write_text("print(1)")
    assert hutch(home, "run", "--image", BASE, str(tmp_path / "one/x.py"), env=NO_BUILDER).stdout == b"1\n"
    done = hutch(home, "run", "--image", BASE, str(tmp_path / "one/a.js"), env=NO_BUILDER)
    assert done.returncode == 127 and b"node" in done.stderr and b"packages" not in done.stderr, done


@pytest.mark.parametrize("variables, npmrc, says", [
    ({"npm_config_registry": "http://127.0.0.1:1/"}, None, "the environment has npm_config_registry"),
    ({"NPM_CONFIG_USERCONFIG": "/nowhere"}, None, "the environment has NPM_CONFIG_USERCONFIG"),
    ({}, "registry=http://127.0.0.1:1/\n", "says where packages are to be found"), ({}, "fund=false\n @own:registry = http://127.0.0.1:1/\n", "says where packages"),
    ({}, "fund=false\n# registry=x\nnot-a=registry\n", None),
])
def test_where_npm_was_told_to_look(home, registry, package, tmp_path, variables, npmrc, says):
    """A package of the same name at the registry that everybody has may be a stranger's."""
    if npmrc:
        (tmp_path / ".npmrc").write_text(npmrc)
    env = {"HOME": str(tmp_path), **variables}
    if says:
        for words in (["rootfs", "extend", "node", "--quiet", "--npm", "frob@1"], ["run", "--yes", "--image", "node", str(package / "a.js")]):
            (package / "package.json").write_text('{"dependencies": {"frob": "1"}}')
            done = hutch(home, *words, env=env)
            assert done.returncode == 125 and ("says where packages come from" in done.stderr.decode() if words[0] == "run" and npmrc else says in done.stderr.decode()), done
    assert hutch(home, "rootfs", "extend", "node", "--quiet", "--npm", "frob@1", "--index", registry.url, env=env).returncode == 0


def test_npm_given_twice(home, registry, package):
    assert hutch(home, "rootfs", "extend", "node", "--quiet", "--npm", "frob", "--npm", "nosuch", "--index", registry.url).returncode == 125
    for words, says in ((["--npm", str(package), "--npm", str(package)], "is another one"), (["--npm", str(package), "--npm", "x@1"], "or packages by name"),
                        (["--npm", "x@1", "--wheels", str(package)], "option '--wheels' is for packages of Python")):
        done = hutch(home, "rootfs", "extend", "node", *words)
        assert done.returncode == 125 and says in support.sentence(done), done


@pytest.mark.parametrize("name, text, says", [
    ("package.json", '{"dependencies": {"x": "http://127.0.0.1:1/x.tgz"}}', "is no range of versions"),
    ("package.json", '{"dependencies": {"x": "1"}, "overrides": {"y": "file:/etc"}}', 'has "overrides"'),
    ("package.json", '{"dependencies": {"x": ', "package.json"),
    (".npmrc", "registry=http://127.0.0.1:1/\n", "has a .npmrc, which says where packages come from"),
    ("package-lock.json", "{}", "has a package-lock.json"), ("yarn.lock", "", "has a yarn.lock, which npm does not obey"),
    ("package.json", "long", "is no file that can be read, of at most"),
])
def test_what_no_package_json_may_want(home, package, tmp_path, name, text, says):
    folder = tmp_path / "program"
    folder.mkdir()
    (folder / "package.json").write_text('{"dependencies": {"frob": "1"}}')
    (folder / name).write_text(" " * (2 << 20) if text == "long" else text)
    shutil.copy(package / "a.js", folder)
    done = hutch(home, "run", "--yes", "--image", "node", str(folder / "a.js"))
    assert done.returncode == 125 and says in support.sentence(done) and done.stdout == b"", done


def test_a_package_json_that_lies_elsewhere(home, package, tmp_path):
    """A link out of the directory tells what a file of the host's says, and whoever made the directory does not choose which."""
    folder = tmp_path / "program"
    folder.mkdir()
    (tmp_path / "elsewhere.json").write_text('{"dependencies": {"frob": "1"}}')
    (folder / "package.json").symlink_to("../elsewhere.json")
    shutil.copy(package / "a.js", folder)
    done = hutch(home, "run", "--yes", "--image", "node", str(folder / "a.js"))
    assert done.returncode == 125 and "is a link that leads out of the directory" in support.sentence(done), done


def test_a_project_brings_its_own_modules(home, package, tmp_path):
    folder = tmp_path / "project"
    (folder / "node_modules/frob").mkdir(parents=True)
    (folder / "node_modules/frob/index.js").write_text("exports.x = 'own'")
    (folder / "package.json").write_text('{"main": "a.js", "dependencies": {"frob": "1"}}')
    shutil.copy(package / "a.js", folder)
    done = hutch(home, "run", "--image", "node", str(folder), env=NO_BUILDER)
    assert (done.returncode, done.stdout) == (0, b"own undefined\n"), done.stderr


def test_npm_says_what_is_wrong(home, package):
    (package / "package.json").write_text('{"dependencies": {"nosuch": "1.0.0"}}')
    refused(home, "--npm", str(package), "--index", "none", image="node", says="npm: ")
    (package / "package.json").write_text("{")
    refused(home, "--npm", str(package), "--index", "none", image="node", says="npm: ")
    refused(home, "--npm", str(package), "--index", "none", "--pip", "x", image="node", says="are for two layers")


# --------------------------------------------------------------------------------------------------
# Interrupted, at the same time, without room

def started(home, *words, env):
    return subprocess.Popen([support.HUTCH, "rootfs", "extend", BASE, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env=environment(home, **env))


def await_that(holds, what):
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_killed_in_the_middle(home, index, number):
    make.wheel(index.folder, "frob")
    gone = []
    index.hold = lambda path: "/files/" in path and await_that(lambda: gone, "the builder is not ended")
    child = started(home, "--pip", "frob", "--index", index.url, env={})
    await_that(lambda: any("frob" in path for path in index.asked), "nobody asks")
    child.send_signal(number)
    assert child.wait(SECONDS) == -number
    child.communicate()
    await_that(lambda: not support.processes_about(home), "processes are left")
    gone.append(True)
    index.hold = lambda path: None
    hutch(home, "rootfs", "list")
    assert os.listdir(home + "/images/tmp") == os.listdir(home + "/images/layers") == []
    assert run(home, extend(home, "--pip", "frob", "--index", index.url), "import frob; print(frob.version)") == "1.0\n"


def test_two_at_once_make_one(home, index):
    make.wheel(index.folder, "frob")
    waits = []
    index.hold = lambda path: "/files/" in path and await_that(lambda: waits, "the other does not wait")
    first = started(home, "--pip", "frob", "--index", index.url, env={})
    await_that(lambda: index.asked, "nobody asks")
    second = started(home, "--pip", "frob", "--index", index.url, env={})
    assert b"another process makes the same image" in second.stderr.readline()
    waits.append(True)
    assert first.communicate(timeout=SECONDS)[0] == second.communicate(timeout=SECONDS)[0] != b""
    assert first.returncode == second.returncode == 0
    assert len([path for path in index.asked if "/files/" in path]) == 1


def test_waiting_has_a_bound(home, tmp_path):
    env = builder(tmp_path, "time.sleep(600)")
    first = started(home, "--pip", "x", "--index", "none", env=env)
    await_that(lambda: os.path.isdir(home + "/images/tmp") and any(name.startswith("request-") for name in os.listdir(home + "/images/tmp")), "nobody begins")
    done = hutch(home, "rootfs", "extend", BASE, "--pip", "x", "--index", "none", "--timeout", "1s", env=env)
    assert done.returncode == 125 and b"another process has not made the same image after 1 s" in done.stderr
    first.terminate()
    assert first.wait(SECONDS) == -signal.SIGTERM
    first.communicate()


def test_no_room(home, tmp_path):
    """A limit on the size of files is what a full disk is: a write fails."""
    env = builder(tmp_path, "begin(); add('tree/usr/big', b'x' * 3000000); end()")
    done = subprocess.run(["sh", "-c", 'ulimit -f 2000; exec "$0" "$@"', support.HUTCH, "rootfs", "extend", BASE, "--pip", "x", "--index", "none"],
                          capture_output=True, timeout=SECONDS, env=environment(home, **env), check=False)
    assert done.returncode == 125 and done.stdout == b"", done
    assert os.listdir(home + "/images/layers") == os.listdir(home + "/images/trees") == []


# --------------------------------------------------------------------------------------------------
# In the store

def own_base(home, name=BASE):
    """The image in the store of the test, by links."""
    given = support.hutch_home() + "/images"
    with open(given + "/names/" + name, encoding="ascii") as file:
        digest = file.read().strip().partition(":")[2]
    hutch(home, "rootfs", "list")
    subprocess.run(["cp", "-al", given + "/trees/" + digest, home + "/images/trees/"], check=False, capture_output=True)
    if not os.path.isdir(home + "/images/trees/%s/root/usr" % digest):
        subprocess.run(["cp", "-a", given + "/trees/" + digest, home + "/images/trees/"], check=True)
    shutil.copy(given + "/names/" + name, home + "/images/names/" + name)
    return digest


def test_removing(home, folder):
    base = own_base(home, "minimal")
    extend(home, "--pip", "nicate", "--wheels", folder, "--as", "more", image="minimal")
    done = hutch(home, "rootfs", "remove", "minimal")
    assert done.returncode == 125 and "remove image 'minimal': the image 'more' extends it: remove that first" in support.sentence(done)
    assert hutch(home, "rootfs", "remove", "more").returncode == 0
    assert os.listdir(home + "/images/layers") == os.listdir(home + "/images/requests") == os.listdir(home + "/images/tmp") == []
    assert os.listdir(home + "/images/trees") == [base]
    # What a run has made has no name: prune takes it, and the base stays, which has one.
    done = hutch(home, "run", "--image", "minimal", "--wheels", folder, "--with", "nicate", "-c", "import nicate")
    assert done.returncode == 0, done.stderr
    assert hutch(home, "rootfs", "remove", "minimal").returncode == 125
    dry = json.loads(hutch(home, "rootfs", "prune", "--dry-run", "--json").stdout)
    assert [item["what"] for item in dry] == ["image", "layer"] and len(os.listdir(home + "/images/layers")) == 1
    done = hutch(home, "rootfs", "prune", "--json")
    assert [item["what"] for item in json.loads(done.stdout)] == ["image", "layer"] and os.listdir(home + "/images/tmp") == []
    assert os.listdir(home + "/images/layers") == os.listdir(home + "/images/requests") == []
    assert os.listdir(home + "/images/trees") == [base]


def test_in_use_it_stays(home, tmp_path):
    extend(home, "--pip", "x", "--index", "none", "--as", "more", env=builder(tmp_path, "begin(); end()"))
    with subprocess.Popen([support.HUTCH, "run", "--no-server", "--image", "more", "-c", "print('up', flush=True); input()"], env=environment(home),
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout.readline() == b"up\n"
        done = hutch(home, "rootfs", "remove", "more")
        assert done.returncode == 125 and "is in use by a running sandbox" in support.sentence(done)
        child.communicate(b"\n")
    assert hutch(home, "rootfs", "remove", "more").returncode == 0


def test_another_store_that_has_it(home, folder, tmp_path):
    extend(home, "--pip", "frob", "--wheels", folder, "--as", "more")
    assert hutch(home, "rootfs", "share", "more").returncode == 0
    other = str(tmp_path / "other")
    env = {"HUTCH_IMAGES": home + "/images:" + support.hutch_home() + "/images"}
    assert run(other, "more", IMPORTS, env=env) == "1.0 2.0\n"
    # Over that, a layer of one's own.
    make.wheel(folder, "third")
    digest = extend(other, "--pip", "third", "--wheels", folder, image="more", env=env)
    assert run(other, digest, IMPORTS + "; import third", env=env) == "1.0 2.0\n"
    done = hutch(other, "run", "--image", digest, "-c", IMPORTS)
    assert done.returncode == 125 and "is in no store that is known here" in support.sentence(done)
    support.remove_tree(other)


@pytest.mark.parametrize("text", ["", "x\n", "hutch-extended 1\n", "hutch-extended 1\nbase sha256:../..\nlayer sha256:x\n",
                                  "hutch-extended 1\nbase sha256:%s\n" % ("0" * 64)])
def test_a_broken_extension(home, text):
    hutch(home, "rootfs", "list")
    os.mkdir(home + "/images/trees/" + "a" * 64)
    with open(home + "/images/trees/" + "a" * 64 + "/extends", "w", encoding="ascii") as file:
        file.write(text)
    done = hutch(home, "run", "--image", "a" * 64, "-c", "print(1)")
    assert done.returncode == 125 and "the file 'extends' of the image is broken" in support.sentence(done)
