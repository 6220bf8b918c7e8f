"""Executes notebooks by hutch and by nbconvert in the same image, and compares the notebooks that they write, field by field.

    parity.py [--report] [--control] [NOTEBOOK...]

Without names: all of tests/notebooks and, where there are, those of the test data. --report prints what docs/notebooks.md has.
--control compares nbconvert with itself instead: it shows that the rules below are needed, all of them, and that they are enough.

Everything is compared as it is but for what RULES says, which differs between two runs of nbconvert itself. Environment: as in
tests/support.py."""
import argparse
import concurrent.futures
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import support  # noqa: E402  (the path comes first)

IMAGE = "python"
OWN = os.path.join(support.TESTS, "notebooks")
LIMITS = ["--memory", "3g", "--pids-limit", "512", "--timeout", "900s"]
MAX_AGAIN = 5  # notebooks that differ and are executed once more
STOPPING = {"stops-at-error"}  # run without --allow-errors
FAILING = STOPPING | {"dies", "dies-by-signal"}  # nbconvert writes nothing: what it executed until then is compared
# These show random numbers: compared is a copy with one cell more, in front of the others, which seeds the generators.
RANDOM = {"custom-display-logic", "matplotlib-lecture", "pandas-puzzles"}
SEED = "import random, numpy\nrandom.seed(1)\nnumpy.random.seed(1)"

# What differs between two runs of nbconvert. Each: name, pattern, replacement.
RULES = [(name, re.compile(pattern), replacement) for name, pattern, replacement in (
    ("process id in the name of a cell's file", r"/ipykernel_\d+/", "/ipykernel_PID/"),
    ("address", r"\b(0x|(?<= object at ))[0-9a-f]{6,16}\b", "0xADDRESS"),
    ("measured time", r"(?<=CPU times: ).*|(?<=Wall time: ).*|[\d.]+ [nµμm]?s ± [\d.]+ [nµμm]?s(?= per loop)", "TIME"),
    ("date within an SVG image", r"(?<=<dc:date>)[^<]+", "DATE"),
    ("random id within an SVG image", r"(?<=[\"#])[mp][0-9a-f]{10}(?=[\")])", "ID"),
    ("random id of a styled table", r"\bT_[0-9a-f]{5}(?=[_\"])", "T_ID"),
    ("UUID", r"\b[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}\b", "UUID"),
)]
# Differences that are meant. Each: notebook, path, of which versions of ipykernel, why.
OLD, NEW = "before 6.29", "from 6.29 on"
LATE = "what a thread or a task writes after its cell, nbclient drops, since a kernel files it under that cell: here the cell at work has it"
FRAME = "a kernel has a frame of its own in each thread, by which it knows the cell that began it: here is none"
EXPECTED = [(re.compile(name), re.compile(path), age, why) for name, path, age, why in (
    (r"dies|dies-by-signal", r"cells/\d+/outputs/\d+", None, "nbconvert writes nothing when its kernel dies: here the cell says so, DeadKernelError"),
    (r"junk", r"cells/(0|1|6|9)/outputs/0", OLD, "a kernel loses what is written to its descriptors from the first byte on that is no UTF-8: here it is shown"),
    (r"junk", r"cells/9/outputs/0/text", NEW, "a kernel reads a character that is written to its descriptors in two pieces as two: here it is one"),
    (r"async", r"cells/10/outputs/.*", NEW, LATE), (r"background", r"cells/(1/outputs/0/text|5/outputs/.*)", NEW, LATE),
    (r"processes", r"cells/0/outputs/.*", NEW, "Python warns of fork() where there are threads: a kernel has some, and here are none"),
    (r"stacks", r"cells/6/outputs/0/text", NEW, FRAME), (r"threads", r"cells/3/outputs/0/text", NEW, FRAME),
)]
# What programs write to their descriptors in one cell, whole. A kernel reads it by a thread, and where the cell ends before that has
# all of it, as on a busy machine, nbclient drops the rest: then the reference is the beginning of this.
WHOLE = {
    ("stream-big-c-level", ("cells", 0, "outputs", 0, "text")): "".join("%03d %s\n" % (i, "x" * 4000) for i in range(100)),
    ("stream-big-c-level", ("cells", 1, "outputs", 0, "text")): "".join("%d\n" % i for i in range(1, 20001)),
}
CUT = "a kernel loses the end of what a program writes to its descriptors when the cell ends at once: here it is whole"
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$")
NEW_ID = re.compile(r"[0-9a-f]{8}$")
MISSING = object()


def notebooks():
    """{name: path}"""
    folders = [OWN]
    try:
        folders.append(os.path.dirname(support.test_data("notebooks/README.md")))
    except BaseException as skipped:  # pytest's Skipped is no Exception
        print("only our own notebooks:", skipped, file=sys.stderr)
    return {name[:-len(".ipynb")]: os.path.join(folder, name)
            for folder in folders for name in sorted(os.listdir(folder)) if name.endswith(".ipynb")}


# --------------------------------------------------------------------------------------------------
# Comparing

class Comparison:
    """Two executed notebooks; `differences` are (path, what the reference has, what the other has)."""

    def __init__(self, name, source, reference_path, path, rules=RULES):
        self.name, self.source, self.reference_path, self.path, self.rules = name, source, reference_path, path, rules
        self.fields, self.differences = 0, []
        self.is_second = False
        self.used = set()
        other, is_canonical = load(path)
        self.compare((), load(reference_path)[0], other)
        if not is_canonical:
            self.differ(("file",), "as nbformat writes it", "keys, indents or escapes are otherwise")

    def unexpected(self):
        return [difference for difference in self.differences if not why_expected(self.name, *difference)]

    def normal(self, text):
        for name, pattern, replacement in self.rules:
            changed = pattern.sub(replacement, text)
            if changed != text:
                self.used.add(name)
                text = changed
        return text

    def is_made_id(self, path):
        """The id of a cell that had none, or had that of an earlier cell."""
        if len(path) != 3 or path[0] != "cells" or path[2] != "id":
            return False
        if self.source["nbformat"] == 3:
            return True
        cells = self.source["cells"]
        return "id" not in cells[path[1]] or cells[path[1]]["id"] in [cell.get("id") for cell in cells[:path[1]]]

    def differ(self, path, reference, other):
        self.differences.append((path, reference, other))

    def compare(self, path, reference, other):
        if isinstance(reference, dict) and isinstance(other, dict):
            self.fields += not reference
            for key in sorted(set(reference) | set(other)):
                self.compare(path + (key,), reference.get(key, MISSING), other.get(key, MISSING))
        elif isinstance(reference, list) and isinstance(other, list):
            self.fields += not reference
            if all(isinstance(entry, str) for entry in reference + other):
                # Lines: what is compared is the text, and that it was split in the same places.
                self.fields += len(reference)
                if [self.normal(line) for line in reference] != [self.normal(line) for line in other]:
                    self.differ(path, reference, other)
                return
            for i in range(max(len(reference), len(other))):
                self.compare(path + (i,), reference[i] if i < len(reference) else MISSING, other[i] if i < len(other) else MISSING)
        else:
            self.fields += 1
            self.compare_leaves(path, reference, other)

    def compare_leaves(self, path, reference, other):
        if isinstance(reference, str) and isinstance(other, str):
            if len(path) == 5 and path[2:4] == ("metadata", "execution") and TIME.match(reference) and TIME.match(other):
                self.used.add("time of day")
                return
            if self.is_made_id(path) and NEW_ID.match(reference) and NEW_ID.match(other):
                self.used.add("new cell id")
                return
            reference, other = self.normal(reference), self.normal(other)
        if type(reference) is not type(other) or repr(reference) != repr(other):
            self.differ(path, reference, other)


@functools.lru_cache(maxsize=None)
def age_of_kernel():
    """OLD or NEW, as the image's ipykernel is."""
    for name in os.listdir(os.path.join(support.root_of_image(IMAGE), "usr/lib/python3/dist-packages")):
        found = re.match(r"ipykernel-(\d+)\.(\d+)", name)
        if found:
            return OLD if tuple(map(int, found.groups())) < (6, 29) else NEW
    raise AssertionError("the image '%s' has no ipykernel" % IMAGE)


def why_expected(name, path, reference, other):
    """Why a difference is meant to be, or None."""
    whole = WHOLE.get((name, path))
    if whole and MISSING not in (reference, other) and "".join(other) == whole and whole.startswith("".join(reference)):
        return CUT
    for names, paths, age, why in EXPECTED:
        if names.fullmatch(name) and paths.fullmatch("/".join(map(str, path))) and age in (None, age_of_kernel()):
            return why
    return None


def canonical(notebook):
    """The text of a notebook's file, as nbformat writes it."""
    return json.dumps(notebook, indent=1, sort_keys=True, ensure_ascii=False, separators=(",", ": ")) + "\n"


def prepare(found, names, folder):
    """Puts what is executed in @folder; {name: path}."""
    os.makedirs(folder)
    prepared = {}
    for name in names:
        prepared[name] = os.path.join(folder, name + ".ipynb")
        shutil.copyfile(found[name], prepared[name])
        if name in RANDOM:
            with open(found[name], encoding="utf-8") as file:
                notebook = json.load(file)
            notebook["cells"].insert(0, {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": SEED})
            with open(prepared[name], "w", encoding="utf-8") as file:
                json.dump(notebook, file)
    return prepared


def load(path):
    with open(path, encoding="utf-8", newline="") as file:
        text = file.read()
    notebook = json.loads(text)
    return notebook, text == canonical(notebook)


# --------------------------------------------------------------------------------------------------
# Running

def run_reference(names, found, scratch):
    """Executes the notebooks, which are in one folder, by nbconvert in one sandbox; {name: path of the result}."""
    folder, out, data = os.path.dirname(found[names[0]]), os.path.join(scratch, "out"), os.path.join(scratch, "data")
    for path in (out, data):
        os.makedirs(path)
    jobs = ["%s:%s" % (name, "stop" if name in STOPPING else "allow") for name in names]
    done = support.hutch("run", "--image", IMAGE, "--policy", os.path.join(OWN, "reference.json"), *LIMITS, "--data", data, "-v", folder + ":/ref/in:ro", "-v", out + ":/ref/out",
                         os.path.join(OWN, "reference.py"), "/ref/in", "/ref/out", *jobs, timeout=1000)
    sys.stderr.write(done.stderr.decode("utf-8", "replace"))
    ended = {name for name in names if os.path.exists(os.path.join(out, name + ".ipynb"))}
    for name in ended:
        if os.path.exists(os.path.join(out, name + ".error")) != (name in FAILING):
            print("%s: nbconvert has %sfailed" % (name, "not " if name in FAILING else ""), file=sys.stderr)
    return {name: os.path.join(out, name + ".ipynb") for name in ended
            if os.path.exists(os.path.join(out, name + ".error")) == (name in FAILING)}


# Seconds, of those that take long: for sharing out.
LONG = {"matplotlib-lecture": 22, "running-code": 18, "pandas-puzzles": 8, "figures-inline": 5, "figures-styles": 5, "figures-formats": 4}


def shares(names, n):
    """@n lists of about the same duration."""
    lists = [[] for _ in range(n)]
    loads = [0] * n
    for name in sorted(names, key=lambda name: -LONG.get(name, 2)):
        least = loads.index(min(loads))
        lists[least].append(name)
        loads[least] += LONG.get(name, 2)
    return [entry for entry in lists if entry]


def run_references(names, found, scratch, workers=3):
    results = {}
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        jobs = [pool.submit(run_reference, share, found, os.path.join(scratch, str(i))) for i, share in enumerate(shares(names, workers))]
        for job in jobs:
            results.update(job.result())
    return results


def run_hutch(name, path, scratch):
    """Executes one notebook by hutch; the path of the result, or None and what hutch said."""
    data, out = os.path.join(scratch, name), os.path.join(scratch, name + ".ipynb")
    os.makedirs(data)
    words = [] if name in STOPPING else ["--allow-errors"]
    try:
        done = support.hutch("run", "--image", IMAGE, *LIMITS, "--data", data, *words, "-o", out, path, timeout=300)
    except subprocess.TimeoutExpired:
        return None, "no end within 300 s"
    return (out if os.path.exists(out) else None), "exit %d: %s" % (done.returncode, done.stderr.decode("utf-8", "replace")[-300:])


def compare_all(names, found, scratch, control=False, kept=None):
    """[Comparison], one for each notebook that both have executed, and [(name, why not)]. @kept: {name: path} of what nbconvert has
    written of them before, which is compared then.

    A kernel cuts its streams by the clock, so on a busy machine they differ now and then between any two runs: what differs is executed
    once more, and that counts."""
    compared, failed = compare_once(names, found, os.path.join(scratch, "first"), control, kept)
    again = [comparison.name for comparison in compared if comparison.unexpected()]
    if again and len(again) <= MAX_AGAIN:
        more, more_failed = compare_once(again, found, os.path.join(scratch, "again"), control)
        for comparison in more:
            comparison.is_second = True
        compared = [comparison for comparison in compared if comparison.name not in again] + more
        failed += more_failed
    return compared, failed


def compare_once(names, found, scratch, control, kept=None):
    found = prepare(found, names, os.path.join(scratch, "in"))
    with concurrent.futures.ThreadPoolExecutor(1) as aside, concurrent.futures.ThreadPoolExecutor(2) as pool:
        references = None if kept else aside.submit(run_references, names, found, os.path.join(scratch, "reference"))
        if control:
            others = {name: (path, "") for name, path in run_references(names, found, os.path.join(scratch, "control")).items()}
        else:
            os.makedirs(os.path.join(scratch, "hutch"))
            others = dict(zip(names, pool.map(lambda name: run_hutch(name, found[name], os.path.join(scratch, "hutch")), names)))
        references = kept or references.result()
    compared, failed = [], []
    for name in names:
        other, why = others.get(name, (None, "nothing was written"))
        if name not in references or not other:
            failed.append((name, "nbconvert wrote nothing" if name not in references else why))
            continue
        compared.append(Comparison(name, load(found[name])[0], references[name], other))
    return compared, failed


# --------------------------------------------------------------------------------------------------
# Telling

def shown(value):
    if value is MISSING:
        return "(nothing)"
    text = repr("".join(value) if isinstance(value, list) and all(isinstance(line, str) for line in value) else value)
    return text if len(text) <= 300 else text[:150] + " … " + text[-150:]


def print_differences(compared, failed, file=sys.stdout):
    for name, why in failed:
        print("%s: not compared: %s" % (name, why), file=file)
    for comparison in compared:
        for path, reference, other in comparison.differences:
            print("%s: %s%s\n   nbconvert %s\n   here      %s" % (
                comparison.name, "/".join(map(str, path)), " (expected)" if why_expected(comparison.name, path, reference, other) else "", shown(reference),
                shown(other)), file=file)


VALIDATE = """
import json, nbformat, warnings
warnings.simplefilter("error")
i = -1
for i, text in enumerate(json.load(open("notebooks.json"))):
    nbformat.validate(nbformat.from_dict(json.loads(text)))
print(i + 1)
"""


def validate(written, data):
    """The image's nbformat accepts all these texts. @data: an empty directory."""
    (data / "notebooks.json").write_text(json.dumps(written), encoding="utf-8")
    os.chmod(data / "notebooks.json", 0o644)
    done = support.hutch("run", "--image", IMAGE, "--memory", "2g", "--data", str(data), "-c", VALIDATE)
    assert done.stdout.decode() == "%d\n" % len(written), done.stderr.decode()


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--report", action="store_true", help="print the numbers of docs/notebooks.md")
    parser.add_argument("--control", action="store_true", help="compare nbconvert with itself")
    parser.add_argument("--keep", metavar="DIR", help="leave all that was written in DIR")
    parser.add_argument("names", nargs="*", metavar="NOTEBOOK")
    options = parser.parse_args()
    found = notebooks()
    names = options.names or list(found)
    with tempfile.TemporaryDirectory(prefix="hutch-parity.") as scratch:
        compared, failed = compare_all(names, found, options.keep or scratch, options.control)
    print_differences(compared, failed)
    if options.report:
        print("notebooks compared: %d" % len(compared))
        print("fields compared: %d" % sum(comparison.fields for comparison in compared))
        print("fields that differ: %d" % sum(len(comparison.differences) for comparison in compared))
        for why in sorted({why_expected(c.name, *difference) or "not expected: %s: %s" % (c.name, "/".join(map(str, difference[0])))
                           for c in compared for difference in c.differences}):
            print("  %s" % why)
        print("executed once more: %s" % (", ".join(c.name for c in compared if c.is_second) or "none"))
        for rule in sorted(set().union(*(comparison.used for comparison in compared))):
            print("normalised: %s, in %d notebooks" % (rule, sum(rule in comparison.used for comparison in compared)))
    return bool(failed or any(comparison.unexpected() for comparison in compared))


if __name__ == "__main__":
    sys.exit(main())
