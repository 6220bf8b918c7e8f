"""A program finds in a warm sandbox what `python3 script.py` shows it: hundreds of small programs run cold and warm, and
everything that can be observed is compared: output, exit code, signal, error, and the files that it leaves.

The programs are in fidelity/*.txt, each after a line "=== name". Lines "--- key: value" right below say how it runs:

    mode     file (the default), command (python3 -c) or stdin (python3 -)
    args     list of arguments, JSON
    env      environment on top of the policy's, JSON
    input    standard input, JSON; input_size: so many bytes of it
    raw      the program's text instead of the lines below, JSON; bytes: the same with Python's escapes for bytes
    zygote   data: it needs numpy, pandas or matplotlib
    only     bare: it looks at things that libraries change when they are imported"""
import concurrent.futures
import json
import os
import re

import pytest

import engine
import support

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fidelity")
IMAGE = "python"
LIBRARIES = ("ipykernel", "numpy", "pandas", "matplotlib", "matplotlib.pyplot")
# What Python's own programs use, so that its state is inherited too.
STANDARD = ("asyncio", "concurrent.futures.thread", "ctypes", "decimal", "doctest", "faulthandler", "inspect", "json", "logging.config",
            "multiprocessing.pool", "multiprocessing.synchronize", "random", "sqlite3", "ssl", "subprocess", "tempfile", "threading", "unittest", "uuid")
WORDS = ("mode", "zygote", "only")
LINE = b"0123456789abcde\n"


class Case:
    def __init__(self, group, name):
        self.name, self.options, self.lines = group + ": " + name, {}, []

    @property
    def code(self):
        if "bytes" in self.options:
            return self.options["bytes"].encode("latin-1").decode("unicode_escape").encode("latin-1")
        if "raw" in self.options:
            return self.options["raw"].encode()
        return "".join(self.lines).encode()

    @property
    def input(self):
        if "input_size" in self.options:
            return LINE * (self.options["input_size"] // len(LINE))
        return self.options.get("input", "").encode()


def read_cases():
    found = []
    for entry in sorted(os.listdir(FOLDER)):
        with open(os.path.join(FOLDER, entry), encoding="utf-8", newline="") as file:
            for line in file:
                if line.startswith("=== "):
                    found.append(Case(entry.partition(".")[0], line[4:].strip()))
                elif line.startswith("--- ") and not found[-1].lines:
                    key, _, value = line[4:].strip().partition(": ")
                    found[-1].options[key] = value if key in WORDS else json.loads(value)
                else:
                    found[-1].lines.append(line)
    return found


CASES = read_cases()
# What differs from run to run in any case: addresses, and what the interpreter dumps of an object that it cannot print.
CHANGING = re.compile(r"0x[0-9a-f]{6,}|object (address|refcount)  ?: .*")


def test_the_corpus_is_read():
    names = [case.name for case in CASES]
    assert len(names) > 500
    assert len(names) == len(set(names)), sorted(name for name in names if names.count(name) > 1)


def masked(text):
    return CHANGING.sub("…", text)


def files_below(folder):
    found = {}
    for where, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(where, name)
            if os.path.isfile(path):
                with open(path, "rb") as file:
                    found[os.path.relpath(path, folder)] = file.read()
    return found


def observed(result, folder):
    """Everything that a caller can see, as text that is the same whenever the same was seen."""
    found = {key: result[key] for key in ("verdict", "exit_code", "signal", "stdout_truncated", "stderr_truncated")}
    found["stdout"], found["stderr"] = masked(result["stdout"]), masked(result["stderr"])
    found["error"] = result["error"] and {key: masked(value) for key, value in result["error"].items()}
    found["files"] = files_below(folder)
    return found


def run_cold(case, folder, program):
    options, words = case.options, []
    for name, value in options.get("env", {}).items():
        words += ["--env", "%s=%s" % (name, value)]
    mode = options.get("mode", "file")
    if mode == "command":
        words += ["-c", case.code]
    elif mode == "stdin":
        words += ["-"]
    else:
        with open(program, "wb") as file:
            file.write(case.code)
        words += [program]
    given = case.code if mode == "stdin" else case.input
    return support.run_json("--data", folder, *words, *map(os.fsencode, options.get("args", ())), image=IMAGE, stdin=given)


def run_warm(case, folder, warm):
    options = case.options
    mode = options.get("mode", "file")
    environment = [b"%s=%s" % (os.fsencode(name), os.fsencode(value)) for name, value in options.get("env", {}).items()]
    return warm.run(case.code, args=list(map(os.fsencode, options.get("args", ()))), env=environment or None,
                    input=case.input, data_dir=str(folder),
                    name={"file": "main.py", "command": "-c", "stdin": "-"}[mode])


@pytest.fixture(scope="module")
def engines():
    """By name: one whose only zygote has nothing imported, and one whose only zygote has everything."""
    support.need("userns")
    with engine.Engine(image=IMAGE, zygotes=(("bare", None, (), 2, 4),)) as bare, \
         engine.Engine(image=IMAGE, zygotes=(("full", None, STANDARD + LIBRARIES, 2, 4),)) as full:
        yield {"bare": bare, "full": full}


@pytest.fixture(scope="module")
def cold(request, tmp_path_factory):
    """What each of the cases comes to in a cold run, as futures: two at a time, while the warm ones go on here."""
    support.need("userns")

    base = tmp_path_factory.mktemp("cold")

    def look(case):
        folder = os.path.join(base, str(CASES.index(case)))
        os.makedirs(folder + "/data")
        return observed(run_cold(case, folder + "/data", folder + "/main.py"), folder + "/data")

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        cases = [item.callspec.params["case"] for item in request.session.items if item.name.startswith("test_warm_is_as_cold[")]
        yield {case.name: pool.submit(look, case) for case in cases}
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_warm_is_as_cold(engines, cold, case, tmp_path):
    zygotes = ["bare"] if "zygote" not in case.options else []
    if case.options.get("only") != "bare":
        zygotes.append("full")
    for name in zygotes:
        folder = tmp_path / name
        folder.mkdir()
        result = run_warm(case, folder, engines[name])
        assert result["zygote"] == name or needs_own_interpreter(case), result["zygote"]
        seen = observed(result, folder)
        for key, value in cold[case.name].result().items():
            assert seen[key] == value, "%s of zygote %s" % (key, name)


def needs_own_interpreter(case):
    """It sets what an interpreter reads before there is any program, so it is not run by a zygote's fork."""
    return bool(set(case.options.get("env", {})) - HONOURED)


HONOURED = {"PYTHONUNBUFFERED", "PYTHONIOENCODING", "PYTHONWARNINGS", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX",
            "PYTHONINTMAXSTRDIGITS", "PYTHONFAULTHANDLER", "PYTHONTRACEMALLOC", "PYTHONBREAKPOINT", "PYTHONASYNCIODEBUG", "TZ", "TMPDIR",
            "GREETING", "EMPTY", "UMLAUT", "FOR_C"}


def test_the_same_by_the_command_line(tmp_path):
    """hutch run --warm, for a few."""
    for case in [case for case in CASES if case.name in ("main: globals", "exceptions: nested", "exits: sys.exit text",
                                                        "endings: del of a cycle", "signals: SIGTERM")]:
        results = []
        for words in ([], ["--warm"]):
            program = tmp_path / "main.py"
            program.write_bytes(case.code)
            folder = tmp_path / (case.name + str(words))
            folder.mkdir()
            result = support.run_json(*words, "--data", folder, program, image=IMAGE)
            results.append((observed(result, folder), result["process"]))
        assert results[0] == results[1], case.name
