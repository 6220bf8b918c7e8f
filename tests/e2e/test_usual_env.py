"""Variables that hutch sets where nobody says otherwise: by the limits, and for programs that would fail in a sandbox."""
import json

import pytest

import engine
import support
from support import run

MIB = 1 << 20
LOOK = "import os\nfor name in %r: print(name, os.environ.get(name), sep='=')"
FIXED = {"ASAN_OPTIONS": "detect_leaks=0", "LSAN_OPTIONS": "detect_leaks=0", "GOCACHE": "/mnt/data/.cache/go-build",
         "GOTMPDIR": "/mnt/data", "CARGO_TARGET_DIR": "/mnt/data/target", "SCREENDIR": "/tmp/.screen",
         "GIT_CONFIG_SYSTEM": "/run/hutch/gitconfig"}
BY_LIMITS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
             "JAVA_TOOL_OPTIONS": "-Xmx256m -XX:MaxDirectMemorySize=128m -XX:ActiveProcessorCount=1"}
USUAL = {**FIXED, **BY_LIMITS}


def said(printed, names=USUAL):
    found = dict(line.split("=", 1) for line in printed.splitlines())
    assert set(found) == set(names), printed
    return {name: None if value == "None" else value for name, value in found.items()}


def look(*options, names=USUAL, **more):
    done = run(*options, "-c", LOOK % sorted(names), **more)
    assert done.returncode == 0, done.stderr
    return said(done.stdout.decode(), names)


def java(memory, direct, cpus):
    return "-Xmx%s -XX:MaxDirectMemorySize=%s -XX:ActiveProcessorCount=%d" % (memory, direct, cpus)


@pytest.mark.parametrize("options", [[], ["--warm"], ["--rootfs", "host"], ["--policy", "trusted"]], ids=" ".join)
def test_everywhere(options):
    found = look(*options, image=None if "host" in options else support.IMAGE)
    assert {name: found[name] for name in FIXED} == FIXED
    if "trusted" in options:  # which has 4G, and no limit on processors
        assert (found["JAVA_TOOL_OPTIONS"], found["OMP_NUM_THREADS"]) == ("-Xmx2g -XX:MaxDirectMemorySize=1g", None)
    else:
        assert found == USUAL


def test_cell():
    assert look("--rich", image="python") == USUAL


LIMITS = {
    "memory": (["--memory", "100m"], java("50m", "25m", 1), "1"),
    "the smallest": (["--memory", "8m", "--cpus", "0.5"], java("4m", "2m", 1), "1"),
    "no round number": (["--memory", "104857000"], java("51199k", "25599k", 1), "1"),
    "processors": (["--cpus", "1.5"], java("256m", "128m", 2), "2"),
    "no memory": (["--memory", "0"], "-XX:ActiveProcessorCount=1", "1"),
    "no processors": (["--cpus", "0"], "-Xmx256m -XX:MaxDirectMemorySize=128m", None),
    "neither": (["--memory", "0", "--cpus", "0"], None, None),
}


@pytest.mark.parametrize("name", LIMITS)
def test_follows_from_limits(name):
    options, options_of_java, threads = LIMITS[name]
    if name == "the smallest":  # a shell fits
        done = support.hutch("run", "--image", support.IMAGE, *options, "--language", "sh", "-c", 'echo "$JAVA_TOOL_OPTIONS"')
        assert done.stdout.decode().strip() == options_of_java, done.stderr
        return
    found = look(*options)
    assert (found["JAVA_TOOL_OPTIONS"], found["OMP_NUM_THREADS"]) == (options_of_java, threads)


def test_of_a_request():
    """Less than its policy has: in a prepared sandbox, in one of its own, and in one where init executes the program."""
    shell = "echo JAVA_TOOL_OPTIONS=$JAVA_TOOL_OPTIONS"
    python = LOOK % ["JAVA_TOOL_OPTIONS"]
    mine = {"env": ["JAVA_TOOL_OPTIONS=mine"]}
    rows = [
        (python, {}, BY_LIMITS["JAVA_TOOL_OPTIONS"]), (python, {"memory_bytes": 100 * MIB}, java("50m", "25m", 1)),
        (python, {"memory_bytes": 100 * MIB, **mine}, "mine"),
        (python, {"memory_bytes": 100 * MIB, "policy": engine.OTHER_DEFAULT}, java("50m", "25m", 1)),
        (python, {"memory_bytes": 32 * MIB}, java("16m", "8m", 1)), (python, {"memory_bytes": 32 * MIB, **mine}, "mine"),
        (shell, {"language": "sh"}, BY_LIMITS["JAVA_TOOL_OPTIONS"]),
        (shell, {"language": "sh", "memory_bytes": 100 * MIB}, java("50m", "25m", 1)),
        (shell, {"language": "sh", "memory_bytes": 100 * MIB, **mine}, "mine"),
    ]
    with engine.Engine() as one:
        one.settle()
        for code, fields, want in rows:
            result = one.run(code, **fields)
            assert said(result["stdout"], ["JAVA_TOOL_OPTIONS"]) == {"JAVA_TOOL_OPTIONS": want}, (fields, result)


@pytest.mark.parametrize("options", [[], ["--warm"]], ids=["cold", "warm"])
def test_who_wins(options, tmp_path):
    """The caller before the policy, and the policy before hutch; null leaves one out."""
    path = tmp_path / "policy.json"
    path.write_text(json.dumps({"schema": 1, "extends": "default", "environment": {
        "GOCACHE": "/of/policy", "SCREENDIR": "/of/policy", "JAVA_TOOL_OPTIONS": None, "ASAN_OPTIONS": None, "LSAN_OPTIONS": None}}))
    found = look(*options, "--policy", str(path), "-e", "GOCACHE=/mine", "-e", "OMP_NUM_THREADS=7", "-e", "LSAN_OPTIONS=verbosity=1")
    assert found == {**USUAL, "GOCACHE": "/mine", "SCREENDIR": "/of/policy", "OMP_NUM_THREADS": "7", "LSAN_OPTIONS": "verbosity=1",
                     "JAVA_TOOL_OPTIONS": None, "ASAN_OPTIONS": None}


COMMIT = "git init -q /mnt/data/r && cd /mnt/data/r && %sgit commit -q --allow-empty -m x && git log -1 --format='%%an <%%ae>'"
IDENTITIES = {
    "hutch's": ("", [], "hutch sandbox <sandbox@hutch.invalid>"),
    "of the repository": ("git config user.name Ada && git config user.email ada@localhost && ", [], "Ada <ada@localhost>"),
    "of the user": ("git config --global user.name Ada && ", [], "Ada <sandbox@hutch.invalid>"),
    "of the environment": ("", ["-e", "GIT_AUTHOR_NAME=Ada"], "Ada <sandbox@hutch.invalid>"),
    "of the image": ("", ["-v", "{}:/etc/gitconfig:ro"], "Ada of the image <sandbox@hutch.invalid>"),
}


@pytest.mark.parametrize("name", IDENTITIES)
def test_identity_of_git(name, tmp_path):
    """A commit has an author without a word; everything that git knows elsewhere comes first."""
    before, options, author = IDENTITIES[name]
    system, script = tmp_path / "gitconfig", tmp_path / "x.sh"
    system.write_text("[user]\n\tname = Ada of the image\n")
    system.chmod(0o644)
    script.write_text(COMMIT % before)
    done = support.hutch("run", "--rootfs", "host", *[word.format(system) for word in options], str(script))
    assert done.stdout.decode() == author + "\n", done.stderr


def test_leak_sanitizer(tmp_path):
    """Ends a program as it ends by itself: it cannot look for leaks without ptrace(2), and made an error of that."""
    (tmp_path / "x.c").write_text("int main(void) { return 7; }\n")
    (tmp_path / "x.sh").write_text("gcc -fsanitize=leak -o /mnt/data/x /mnt/x.c && exec /mnt/data/x\n")
    done = support.hutch("run", "--rootfs", "host", "-v", "%s:/mnt/x.c:ro" % (tmp_path / "x.c"), str(tmp_path / "x.sh"))
    assert (done.returncode, done.stdout) == (7, b"") and b"LeakSanitizer" not in done.stderr, done.stderr
