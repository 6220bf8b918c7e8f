"""make install and make uninstall: what was built is copied, wherever to, and taken away again; nothing is compiled."""
import os
import re
import subprocess

import pytest

import support

SOURCE = os.environ.get("HUTCH_TEST_SOURCE") or support.TREE
BUILD = os.environ.get("HUTCH_TEST_BUILD") or os.path.dirname(support.HUTCH)
UNREADABLE = [path for path in (os.path.join(SOURCE, "Makefile"), os.path.join(BUILD, "libhutch.a")) if not os.access(path, os.R_OK)]
pytestmark = pytest.mark.skipif(UNREADABLE != [], reason="this user cannot read what make install copies from: " + ", ".join(UNREADABLE))


def make(target, **variables):
    words = ["%s=%s" % pair for pair in {"B": BUILD, **variables}.items()]
    done = subprocess.run(["make", "--no-print-directory", "-C", SOURCE, target, *words], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def files_below(path):
    return sorted(os.path.relpath(os.path.join(where, name), path) for where, _, names in os.walk(path) for name in names)


def built():
    return {name: os.stat(os.path.join(BUILD, name)).st_mtime_ns for name in os.listdir(BUILD)}


def test_install_compiles_nothing(tmp_path):
    """With another prefix than ever, and with another compiler."""
    before = built()
    output = make("install", PREFIX=str(tmp_path / "one"), CC="false", CFLAGS="-O0")
    assert built() == before and " CC " not in output
    done = subprocess.run([str(tmp_path / "one" / "bin" / "hutch"), "run", "--rootfs", "host", "-c", "print(6 * 7)"], capture_output=True, text=True,
                          check=False, env={"HUTCH_HOME": str(tmp_path / "home"), "PATH": os.environ["PATH"]}, timeout=60)
    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr


def test_what_is_installed_can_be_moved(tmp_path):
    """The library finds launcher and policies from where it lies."""
    make("install", PREFIX=str(tmp_path / "one"))
    os.rename(tmp_path / "one", tmp_path / "two")
    source = tmp_path / "open.c"
    source.write_text('#include <hutch.h>\n#include <stdio.h>\nint main(void)\n{\n    struct hutch_engine_options options;\n    struct hutch_engine *engine;\n'
                      '    struct hutch_error error;\n\n    hutch_engine_options_init(&options);\n    options.rootfs = "host";\n'
                      '    if (hutch_engine_open(&options, &engine, &error) < 0) {\n        puts(error.message);\n        return 1;\n    }\n'
                      '    hutch_engine_free(engine);\n    return 0;\n}\n')
    prefix = str(tmp_path / "two")
    sanitizer = ["-fsanitize=address,undefined"] if BUILD.endswith("-asan") else []
    subprocess.run(["cc", *sanitizer, str(source), "-I" + prefix + "/include", "-L" + prefix + "/lib", "-lhutch", "-o", str(tmp_path / "open")], check=True)
    done = subprocess.run([str(tmp_path / "open")], capture_output=True, text=True, check=False, timeout=60,
                          env={"LD_LIBRARY_PATH": prefix + "/lib", "HUTCH_HOME": str(tmp_path / "home"), "PATH": os.environ["PATH"]})
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("libdir", [None, "lib/x86_64-linux-gnu"])
def test_uninstall_takes_it_all(tmp_path, libdir):
    more = {"LIBDIR": "/usr/local/" + libdir} if libdir else {}
    make("install", DESTDIR=str(tmp_path), PREFIX="/usr/local", **more)
    installed = files_below(tmp_path)
    assert "usr/local/bin/hutch" in installed and len(installed) > 25
    own = tmp_path / "usr/local/share/hutch-data/policies/own.json"
    own.write_text("{}")
    make("uninstall", DESTDIR=str(tmp_path), PREFIX="/usr/local", **more)
    assert files_below(tmp_path) == [os.path.relpath(own, tmp_path)]
    own.unlink()
    make("uninstall", DESTDIR=str(tmp_path), PREFIX="/usr/local", **more)
    assert not os.path.exists(own.parent.parent)


def test_the_tarball_runs_where_it_was_unpacked(tmp_path):
    """Cold, warm, and by a link from elsewhere. `make check-tarball` has the rest of it, on trees without our libraries."""
    subprocess.run(["tar", "-xzf", support.static_file("hutch-*-linux-*.tar.gz"), "-C", str(tmp_path)], check=True)
    (prefix,) = tmp_path.iterdir()
    for name in ("bin/hutch", "bin/hutch-rootfs", "bin/hutch-serve", "libexec/hutch-launcher"):
        headers = subprocess.run(["readelf", "-lW", str(prefix / name)], capture_output=True, text=True, check=True).stdout
        assert "INTERP" not in headers and "GNU_RELRO" in headers and "RWE" not in headers, name
    os.symlink(prefix / "bin/hutch", tmp_path / "link")
    for words in (["run", "--rootfs", "host"], ["run", "--warm", "--rootfs", "host"]):
        done = subprocess.run([str(tmp_path / "link"), *words, "-c", "print(6 * 7)"], capture_output=True, text=True, check=False, cwd="/", timeout=60,
                              env={"HUTCH_HOME": str(tmp_path / "home"), "PATH": os.environ["PATH"]})
        assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr


def test_store_and_installed_data_are_two_directories(tmp_path):
    """Installed for one user alone: the store is where it is without HUTCH_HOME, and no file of ours is in it."""
    home = tmp_path / "home"
    make("install", PREFIX=str(home / ".local"))
    environment = {"HOME": str(home), "PATH": os.environ["PATH"]}
    done = subprocess.run([str(home / ".local/bin/hutch"), "rootfs", "list"], env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    store = home / ".local/share/hutch"
    assert "'%s/images'" % store in done.stderr
    assert not [path for path in files_below(home / ".local") if path.startswith("share/hutch/") and not path.startswith("share/hutch/images/")]


POLICIES, BUILDER, LAUNCHER = "share/hutch-data/policies", "share/hutch-data/rootfs/build.sh", "libexec/hutch-launcher"
ASKS = {POLICIES: (["run", "--rootfs", "host", "-c", "1"], "find the policies: neither"), BUILDER: (["rootfs", "build", "none"], "find build.sh: neither"),
        LAUNCHER: (["run", "--warm", "--rootfs", "host", "-c", "1"], "find the helper program '/usr")}


@pytest.mark.parametrize("asked,planted", [(POLICIES, POLICIES), (POLICIES, "share/hutch-data"), (POLICIES, "share"), (BUILDER, BUILDER),
                                           (BUILDER, os.path.dirname(BUILDER)), (LAUNCHER, LAUNCHER), (LAUNCHER, "libexec")])
@pytest.mark.parametrize("how", ["open to all", "another's", "another's link"])
def test_what_others_can_write_did_not_come_with_hutch(tmp_path, asked, planted, how):
    """Where a program was copied to, anybody may have put policies beside it: below /tmp, say."""
    prefix, words, sentence = tmp_path / "one", *ASKS[asked]
    if how != "open to all" and os.geteuid() != 0:
        pytest.skip("only root gives files away")
    if asked == LAUNCHER and any(os.path.exists(os.path.join(usual, LAUNCHER)) for usual in ("/usr/local", "/usr")):
        pytest.skip("a launcher is installed here")
    make("install", PREFIX=str(prefix))
    path = prefix / planted
    if how == "open to all":
        path.chmod(0o777)
    elif how == "another's":
        os.chown(path, 65534, 65534)
    else:
        os.rename(path, tmp_path / "moved")
        os.symlink(tmp_path / "moved", path)
        os.chown(path, 65534, 65534, follow_symlinks=False)
    done = subprocess.run([str(prefix / "bin/hutch"), *words], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=60,
                          env={"HUTCH_HOME": str(tmp_path / "home"), "PATH": os.environ["PATH"]})
    assert done.returncode == 125 and sentence in done.stderr, done.stderr


@pytest.mark.parametrize("target, parts", [("check", ("all", "unit", "clients", "test-images", "image")), ("demo", ("all",)),
                                           ("check-full", ("all", "unit", "clients", "test-images", "image", "fuzz-targets"))])
def test_packages_that_are_missing_are_named_at_once(target, parts, tmp_path):
    """Before anything is built: what the parts want later is among what is wanted first."""
    def wanted(name):
        done = subprocess.run(["make", "-n", "--no-print-directory", "-C", SOURCE, name, "B=%s/build" % tmp_path,
                               "HUTCH_TEST_IMAGES=%s/images" % tmp_path], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        return [words.split() for words in re.findall(r"\.ci/packages ([a-z ]+)$", done.stdout, re.MULTILINE)], done.stdout

    (first, *later), said = wanted(target)
    assert said.index(".ci/packages") < said.index("make --no-print-directory"), said
    for words in later + [words for part in parts for words in wanted(part)[0]]:
        assert set(words) <= set(first), words
