"""libhutch as it is installed: compiled against with pkg-config, shared and static, and what hutch.h promises of it."""
import os
import re
import subprocess

import pytest

import support

PREFIX = os.path.dirname(os.path.dirname(support.HUTCH))
LIB = os.path.join(PREFIX, "lib")
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
LINKED = ("shared", "static")

pytestmark = pytest.mark.skipif(not os.path.exists(os.path.join(LIB, "pkgconfig", "libhutch.pc")),
                                reason="the library is not installed beside %s (tests/run installs it)" % support.HUTCH)


def sh(*words, **options):
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                          errors="replace", **options)
    assert done.returncode == 0, "%s:\n%s" % (" ".join(words), done.stdout)
    return done.stdout


def pkg_config(*words):
    """For what make install put below DESTDIR, where it is not going to stay: that is the sysroot."""
    root = PREFIX[:-len("/usr/local")] if PREFIX.endswith("/usr/local") else ""
    return sh("pkg-config", *words, "libhutch",
              env={**os.environ, "PKG_CONFIG_PATH": os.path.join(LIB, "pkgconfig"), "PKG_CONFIG_SYSROOT_DIR": root}).split()


def sanitizer():
    """The library's own, which whatever it is linked into has to bring along."""
    symbols = sh("nm", "-D", os.path.join(LIB, "libhutch.so.1"))
    return ["-fsanitize=address,undefined"] if "__asan_init" in symbols else []


def compile_program(source, target, how, *more):
    flags = pkg_config("--cflags", "--libs", *(["--static"] if how == "static" else []))
    if how == "static":
        flags = ["-l:libhutch.a" if word == "-lhutch" else word for word in flags]
    sh("cc", "-O1", "-g", *STRICT, *sanitizer(), source, *flags, *more, "-o", str(target))
    return str(target)


def environment(how):
    return support.engine_env(**({"LD_LIBRARY_PATH": LIB} if how == "shared" else {}))


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("library")


@pytest.fixture(scope="module")
def library_program(scratch):
    """tests/library/library.c, linked both ways."""
    source = os.path.join(support.TESTS, "library", "library.c")
    return {how: compile_program(source, scratch / ("library-" + how), how, "-pthread") for how in LINKED}


# --------------------------------------------------------------------------------------------------
# What is installed

def declared():
    with open(os.path.join(PREFIX, "include", "hutch.h"), encoding="utf-8") as file:
        return sorted(re.findall(r"^[a-z][^;{}]*?\b(hutch_\w+)\(", file.read(), re.M))


def test_shared_library_exports_the_header():
    names = [line.split() for line in sh("nm", "-D", "--defined-only", os.path.join(LIB, "libhutch.so.1")).splitlines()]
    functions = sorted(words[2].partition("@")[0] for words in names if words[1] != "A")
    assert functions == declared()
    assert {words[2].partition("@@")[2] for words in names if words[1] != "A"} == {"HUTCH_1"}


def test_static_library_has_no_other_name():
    """Nothing of ours may meet a name of the program that it is linked into."""
    lines = sh("nm", "-g", "--defined-only", os.path.join(LIB, "libhutch.a")).splitlines()
    names = sorted(line.split()[2] for line in lines if len(line.split()) == 3)
    assert [name for name in names if "asan" not in name] == declared()


def test_what_the_library_loads():
    needed = sh("readelf", "-dW", os.path.join(LIB, "libhutch.so.1"))
    assert "Library soname: [libhutch.so.1]" in needed
    assert not re.search(r"NEEDED.*lib(archive|crypto|ssl)", needed), needed
    assert os.readlink(os.path.join(LIB, "libhutch.so")) == "libhutch.so.1"


def test_package_description():
    assert "-lhutch" in pkg_config("--libs") and "-lseccomp" not in pkg_config("--libs")
    static = pkg_config("--static", "--libs")
    assert {"-lhutch", "-lseccomp", "-lcap", "-lcgroup", "-lcjson"} <= set(static)
    assert not {"-larchive", "-lcrypto"} & set(static)
    version = sh(support.HUTCH, "--version").split()[1]
    assert pkg_config("--modversion") == [version]


def test_names_that_a_program_may_have(scratch):
    """A program whose functions are called like some inside of the library."""
    inside = re.findall(r" t (hutch_\w+)$", sh("nm", os.path.join(LIB, "libhutch.a")), re.M)
    assert "hutch_err_set" in inside
    code = "#include <hutch.h>\n" + "".join("int %s(void);\nint %s(void) { return 1; }\n" % (name, name) for name in sorted(set(inside)))
    code += "int main(void) { hutch_engine_free(0); return hutch_err_set() - 1; }\n"
    source = scratch / "names.c"
    source.write_text(code)
    for how in LINKED:
        sh(compile_program(str(source), scratch / ("names-" + how), how), env=environment(how))


@pytest.mark.parametrize("words", [("cc", "-std=c99"), ("cc", "-std=c11"), ("c++", "-std=c++98"), ("c++", "-std=c++17")], ids=" ".join)
def test_compilers(scratch, words):
    is_c = "c++" not in words[1]
    source = scratch / ("header.c" if is_c else "header.cc")
    source.write_text("#include <hutch.h>\n#include <hutch.h>\nint main() { hutch_engine_free(0); return 0; }\n".replace(
        "main()", "main(void)" if is_c else "main()"))
    program = str(scratch / "header")
    sh(*words, *STRICT, *sanitizer(), str(source), *pkg_config("--cflags", "--libs"), "-o", program)
    sh(program, env=environment("shared"))


def test_man_page():
    page = os.path.join(PREFIX, "share", "man", "man3", "libhutch.3")
    with open(page, encoding="utf-8") as file:
        text = file.read()
    for name in declared():
        assert re.search(r"^\.F[no] \"?%s" % name, text, re.M), name


def test_example_of_the_man_page(scratch):
    """The program that the manual shows, as it stands there."""
    with open(os.path.join(PREFIX, "share", "man", "man3", "libhutch.3"), encoding="utf-8") as file:
        code = file.read().partition(".Sh EXAMPLES\n.Bd -literal\n")[2].partition("\n.Ed")[0]
    source = scratch / "manual.c"
    source.write_text(code.replace("\\en", "\\n") + "\n")
    program = compile_program(str(source), scratch / "manual", "shared", "-Wno-unused-parameter")
    assert sh(program, env=environment("shared"), timeout=120) == "ok: 42\n"


# --------------------------------------------------------------------------------------------------
# What it does

@pytest.mark.parametrize("how", LINKED)
def test_embed(scratch, how, capsys):
    """examples/embed.c: a thousand snippets, and how long they took."""
    source = os.path.join(support.TREE, "examples", "embed.c")
    with open(source, encoding="utf-8") as file:
        assert len(file.readlines()) < 100
    program = compile_program(source, scratch / ("embed-" + how), how, "-std=c11")
    count = 1000 if how == "shared" else 50
    said = sh(program, str(count), "4", env=environment(how), timeout=240)
    assert re.fullmatch(r"%d snippets, 0 wrong; ms: p50 \d+\.\d+  p90 \d+\.\d+  p99 \d+\.\d+  max \d+\.\d+\n" % count, said), said
    with capsys.disabled():
        print("\nembed, %s: %s" % (how, said), end="")
    assert not support.live_runs() and not support.dead_runs()


def test_checkpoint(scratch, capsys):
    """examples/checkpoint.c: what a cell has destroyed is there again, variables and files, twice."""
    source = os.path.join(support.TREE, "examples", "checkpoint.c")
    program = compile_program(source, scratch / "checkpoint", "shared", "-std=c11")
    said = sh(program, env=environment("shared"), timeout=240)
    lost, there = r"0 rows, files: \[\]", r"1000000 rows, mean of a (0\.\d+)"
    again = [("spoil", lost), ("roll back", None), ("look", there + r", files: \['head\.csv'\]")]
    steps = [("start", None), ("load", there), ("checkpoint", None), *again, *again]
    pattern = "".join(r"%s +\d+\.\d ms%s\n" % (name, "   " + text if text else "")
                      for name, text in steps)
    found = re.fullmatch(pattern, said)
    assert found and len(set(found.groups())) == 1, said
    with capsys.disabled():
        print("\n" + said, end="")
    assert not support.live_runs() and not support.dead_runs()


def scenarios():
    with open(os.path.join(support.TESTS, "library", "library.c"), encoding="utf-8") as file:
        return re.findall(r"^    \{ \"(\w+)\", \w+ \},$", file.read(), re.M)


@pytest.mark.parametrize("name", scenarios())
def test_promise(library_program, name):
    sh(library_program["shared"], name, env=environment("shared"), timeout=100)
    assert not support.live_runs() and not support.dead_runs()


def test_promises_of_the_static_library(library_program):
    for name in ("leaves_the_process_alone", "two_engines"):
        sh(library_program["static"], name, env=environment("static"), timeout=100)


def test_missing_launcher_is_named(library_program):
    done = subprocess.run([library_program["shared"], "two_engines"], stdout=subprocess.PIPE, text=True, check=False, timeout=60,
                          env={**environment("shared"), "HUTCH_LAUNCHER": "/nonexistent/launcher"})
    assert done.returncode == 1 and "/nonexistent/launcher" in done.stdout
