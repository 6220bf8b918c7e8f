#!/usr/bin/python3
"""tests/snippets.py [--cold] [SUBJECT...] - runs the snippets of tests/corpus, names those that fail, and counts by subject.

tests/corpus has a file for each SUBJECT, with programs of the kind that models write for a code interpreter, each after a line
"=== NAME". They check what they have made; what shows only from outside is said by the lines right below the name:

  --- image: NAME    it takes the packages of this image; the default is python
  --- stdin: LINE    a line of standard input
  --- prints: LINE   a line of standard output, which has these lines and no others
  --- makes: FILE    a file of /mnt/data, which is not empty
  --- fails: TEXT    standard error has this text, after those of the lines before; the exit code is 1
  --- warns: TEXT    the same, and the program goes on
  --- exits: N       another exit code
  --- lacks: REASON  its author would have it pass, and it fails, as said by "fails": what the image has not, or hutch cannot
"""
import itertools
import json
import os
import subprocess
import sys
import tempfile

TREE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDER = os.path.join(TREE, "tests", "corpus")
KEYS = ("image", "stdin", "prints", "makes", "fails", "warns", "exits", "lacks")
# What follows a program that runs warm, where its files are not seen from outside.
FILES = "\nimport os\nassert all(os.path.getsize('/mnt/data/' + name) for name in %r)\n"


class Snippet:
    def __init__(self, subject, lines):
        self.name = "%s: %s" % (subject, lines[0][len("=== "):])
        self.subject = subject
        self.said = {key: [] for key in KEYS}
        head = list(itertools.takewhile(lambda line: line.startswith("--- "), lines[1:]))
        for line in head:
            key, _, value = line[len("--- "):].partition(": ")
            self.said[key].append(value)
        self.code = "\n".join(lines[1 + len(head):]).rstrip() + "\n"
        self.image = (self.said["image"] or ["python"])[0]
        self.lacks = "; ".join(self.said["lacks"])
        self.stdin = "".join(line + "\n" for line in self.said["stdin"])
        self.exit_code = int((self.said["exits"] or [1 if self.said["fails"] else 0])[0])

    def task(self):
        """A record of hutch batch."""
        checks = FILES % self.said["makes"] if self.said["makes"] and not self.exit_code else ""
        return {"id": self.name, "code": self.code + checks, "stdin": self.stdin, "compare": "exact",
                "expected": {"exit_code": self.exit_code}}

    def wrong(self, exit_code, stdout, stderr):
        """What is not as the snippet says, in a sentence; None where all is."""
        if exit_code != self.exit_code:
            return "exit code %s, not %d: %s" % (exit_code, self.exit_code, stderr[-1500:])
        if self.said["prints"] and stdout.rstrip("\n").split("\n") != self.said["prints"]:
            return "prints %r" % stdout
        rest = stderr
        for text in self.said["fails"] + self.said["warns"]:
            if text not in rest:
                return "standard error lacks %r: %s" % (text, stderr[-1500:])
            rest = rest.partition(text)[2]
        return None


def read(subjects=()):
    """All snippets, or those of @subjects."""
    found = []
    for name in sorted(os.listdir(FOLDER)):
        subject, dot, ending = name.partition(".")
        if (dot + ending) != ".txt" or (subjects and subject not in subjects):
            continue
        with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
            lines = file.read().rstrip("\n").split("\n")
        starts = [n for n, line in enumerate(lines) if line.startswith("=== ")]
        assert starts[:1] == [0], name
        found += [Snippet(subject, lines[start:end]) for start, end in zip(starts, starts[1:] + [len(lines)])]
    names = [snippet.name for snippet in found]
    assert len(set(names)) == len(names), "two snippets have one name"
    return found


def run_warm(hutch, snippets, image):
    """Runs them by one call of hutch batch; what is wrong with each, by its name."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        for snippet in snippets:
            file.write(json.dumps(snippet.task()) + "\n")
        file.flush()
        done = subprocess.run([hutch, "batch", file.name, "--format", "generic", "--image", image], capture_output=True,
                              timeout=600, check=False)
    if done.returncode not in (0, 1):
        raise RuntimeError(done.stderr.decode())
    results = {record["id"]: record for record in map(json.loads, done.stdout.decode().splitlines())}
    wrong = {}
    for snippet in snippets:
        record = results[snippet.name]
        if record["verdict"] not in ("pass", "wrong_answer", "runtime_error"):
            wrong[snippet.name] = record["result"]
        else:
            wrong[snippet.name] = snippet.wrong(record["exit_code"], record["stdout"], record["stderr"])
    return wrong


def run_cold(hutch, snippet, image):
    """Runs one by hutch run; what is wrong with it."""
    with tempfile.TemporaryDirectory() as data, tempfile.NamedTemporaryFile("w", suffix=".py", encoding="utf-8") as file:
        file.write(snippet.code)
        file.flush()
        done = subprocess.run([hutch, "run", "--json", "--image", image, "--data", data, file.name],
                              input=snippet.stdin.encode(), capture_output=True, timeout=120, check=False)
        result = json.loads(done.stdout)
        made = {file["path"] for file in result["files"]["added"] if file["size"]}
    if result["verdict"] not in ("ok", "error"):
        return result["message"]
    missing = set(snippet.said["makes"]) - made
    return snippet.wrong(result["exit_code"], result["stdout"], result["stderr"]) or (missing and "makes no %s" % missing) or None


def images(hutch):
    """The names in the store."""
    listed = subprocess.run([hutch, "rootfs", "list", "--json"], capture_output=True, check=True)
    return {name for image in json.loads(listed.stdout) for name in image["names"]}


def main(words):
    hutch = os.environ.get("HUTCH_BIN") or os.path.join(TREE, "build", "hutch")
    is_cold = "--cold" in words
    snippets = read([word for word in words if word != "--cold"])
    there = images(hutch)
    wrong = {}
    for image in sorted({snippet.image for snippet in snippets} & there):
        own = [snippet for snippet in snippets if snippet.image == image]
        wrong.update({snippet.name: run_cold(hutch, snippet, image) for snippet in own} if is_cold else run_warm(hutch, own, image))
    for name, why in wrong.items():
        if why:
            print("%s\n    %s" % (name, why.strip().replace("\n", "\n    ")))
    print("| subject | snippets | pass | fail | not run |\n|---|---|---|---|---|")
    totals = [0, 0, 0, 0]
    for subject in sorted({snippet.subject for snippet in snippets}):
        own = [snippet for snippet in snippets if snippet.subject == subject]
        ran = [snippet for snippet in own if snippet.name in wrong]
        failed = [snippet for snippet in ran if wrong[snippet.name] or snippet.lacks]
        row = (len(own), len(ran) - len(failed), len(failed), len(own) - len(ran))
        totals = [a + b for a, b in zip(totals, row)]
        print("| %s | %d | %d | %d | %d |" % (subject, *row))
    print("| all | %d | %d | %d | %d |\n\n| fails | because |\n|---|---|" % tuple(totals))
    for snippet in snippets:
        if snippet.lacks and not wrong.get(snippet.name, "not run"):
            print("| %s | %s |" % (snippet.name, snippet.lacks))
    return 1 if any(wrong.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
