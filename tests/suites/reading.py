"""From what a suite prints or writes to one word for each test: "pass", "fail" or "skip".

Each reader takes the folder of a side, what the command printed, and the units that it was given. It yields (unit, test, word). A test
that is there on one side only counts as "none" on the other. Names lose what changes from run to run: process numbers, temporary names."""
import json
import os
import re
import xml.etree.ElementTree

# An expected failure is a failure that both sides have to have; a pass that was not expected is a pass.
TRS = {"PASS": "pass", "FAIL": "fail", "SKIP": "skip", "XFAIL": "fail", "XPASS": "pass", "ERROR": "fail"}
TAP = re.compile(r"^\s*(not ok|ok)\b ?(\d*)(?: ?-? ?)(.*)$")
# What the names of perl's tests have of one run: numbers of descriptors and processes, temporary files, and how many
# files /dev has.
PERL_NAMES = ((r"\b(fileno |fpathconf\()\d+", r"\1…"), (r"\bfifo\d+", "fifo…"), (r"\btmp\d+[A-Z]+\b", "tmp…"),
              (r"/tmp/[\w.-]+", "/tmp/…"), (r"agreeing on /dev \(\d+ \d+\)", "agreeing on /dev"))
DIRECTIVE = re.compile(r"(?<!\\)#\s*(skip|todo)\b.*$", re.IGNORECASE)
MOST_TEXT = 256 << 20  # characters of one file
MOST = 400_000  # tests of one run; more is a mistake of the reader


def text_of(data, *names):
    """The text of a file of the side; nothing where a link leads out of its folder, which is the sandbox's to write."""
    path = os.path.realpath(os.path.join(data, *names))
    if not path.startswith(os.path.realpath(data) + os.sep) or not os.path.isfile(path):
        return ""
    with open(path, encoding="utf-8", errors="replace") as text:
        return text.read(MOST_TEXT)


def stable(name):
    """Without what differs from run to run, and without what would break a line of the table."""
    name = re.sub(r"0x[0-9a-f]{6,}", "0x…", name)
    return re.sub(r"\s+", " ", name).strip()[:300]


def tap(unit, text, perl=False):
    """Each line of TAP; the number stands for a test without a name. Perl's own tests skip many at once, and
    which numbers these have says nothing."""
    for line in text.splitlines():
        found = TAP.match(line)
        if not found:
            continue
        word, number, name = found.groups()
        if not number and not name:  # what a harness that printed the lines says of all of them
            continue
        directive = DIRECTIVE.search(name)
        status = "pass" if word == "ok" else "fail"
        if directive and directive.group(1).lower() == "skip":
            status = "skip"
        if perl and status == "skip" and name.startswith("#"):
            name = "skipped"
        name = stable(DIRECTIVE.sub("", name))
        for pattern, instead in PERL_NAMES if perl else ():
            name = re.sub(pattern, instead, name)
        yield unit, name or number, status


def automake(where):
    """The .trs beside each unit, below src/ or src/@where."""
    def read(data, _printed, units):
        for unit in units:
            text = text_of(data, "src", where, re.sub(r"\.(sh|pl|test|py)$", "", unit) + ".trs") or \
                text_of(data, "src", where, unit + ".trs")
            seen = 0
            for line in text.splitlines():
                if line.startswith(":test-result:"):
                    seen += 1
                    word, _, name = line[len(":test-result:"):].strip().partition(" ")
                    yield unit, stable(name), TRS.get(word, "fail")
            if not seen:
                yield unit, "", "none"
    return read


def lines(_data, printed, _units):
    """What our own loops print: "=== WORD UNIT", or "=== WORD UNIT: TEST"."""
    for line in printed.splitlines():
        if line.startswith("=== "):
            word, _, name = line[len("=== "):].partition(" ")
            unit, _, test = name.partition(": ")
            yield unit, stable(test), word if word in ("pass", "fail", "skip") else "fail"


def status_word(status):
    return {0: "pass", 77: "skip"}.get(status, "fail")


def statuses(_data, printed, _units):
    """"=== STATUS UNIT" of a loop that only knows exit codes: 0, 77, or another one."""
    for line in printed.splitlines():
        found = re.match(r"=== (\d+) (.*)$", line)
        if found:
            yield found.group(2), "", status_word(int(found.group(1)))


def files_of_tap(where, perl=False):
    """UNIT.tap below @where, with "_" for each slash, and a line "=== STATUS UNIT" for each."""
    def read(data, printed, units):
        yield from statuses(data, printed, units)
        for unit in units:
            yield from tap(unit, text_of(data, where, unit.replace("/", "_") + ".tap"), perl)
    return read


def junit(data, printed, units):
    """out/UNIT.xml, and a line "=== STATUS UNIT" for each unit as a whole."""
    yield from statuses(data, printed, units)
    for unit in units:
        try:
            root = xml.etree.ElementTree.fromstring(text_of(data, "out", unit.replace("/", "_") + ".xml"))
        except xml.etree.ElementTree.ParseError:  # of what is not there, too
            continue
        for case in root.iter("testcase"):
            name = ".".join(part for part in (case.get("classname"), case.get("name")) if part)
            if not name:  # regrtest's, of a test whose subtest has failed
                continue
            kinds = {child.tag for child in case}
            if case.get("result") == "skipped" or case.get("status") == "skipped" or "skipped" in kinds:
                word = "skip"
            else:
                word = "fail" if kinds & {"failure", "error"} else "pass"
            yield unit, stable(name), word


def go(_data, printed, _units):
    """`go test -json`: one object a line."""
    words = {"pass": "pass", "fail": "fail", "skip": "skip"}
    for line in printed.splitlines():
        if not line.startswith("{"):
            continue
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if event.get("Action") in words and "Package" in event:
            yield event["Package"], stable(event.get("Test", "")), words[event["Action"]]


AUTOTEST = re.compile(r"^\s*(\d+): (.*?)\s+(ok|FAILED|skipped|expected failure|UNEXPECTED PASS)\b")


def autotest(_data, printed, _units):
    """GNU Autotest: the number is the unit."""
    words = {"ok": "pass", "FAILED": "fail", "skipped": "skip", "expected failure": "fail", "UNEXPECTED PASS": "pass"}
    for line in printed.splitlines():
        found = AUTOTEST.match(line)
        if found:
            yield found.group(1), stable(found.group(2)), words[found.group(3)]


def trial(data, printed, units):
    """Twisted's own runner with --reporter=verbose, a tree of classes and tests in out/UNIT.txt, and a line "=== STATUS UNIT" for each."""
    words = {"OK": "pass", "SUCCESS!?!": "pass", "SKIPPED": "skip"}
    yield from statuses(data, printed, units)
    for unit in units:
        group = name = ""
        for line in text_of(data, "out", unit + ".txt").splitlines():
            if re.match(r"  \w+$", line):
                group = line.strip()
            begin = re.match(r"    (\w+) \.\.\.", line)
            name = begin.group(1) if begin else name
            # What a test prints itself stands between its name and its word.
            end = re.search(r"\[(OK|FAIL|ERROR|SKIPPED|TODO|SUCCESS!\?!)\]\s*$", line)
            if name and end:
                yield unit, group + "." + name, words.get(end.group(1), "fail")
                name = ""


def curl(_data, printed, _units):
    """runtests.pl: "test 0001...[name]" and, at the end of that line or of a later one, what became of it."""
    number = ""
    for line in printed.splitlines():
        begin = re.match(r"test (\d{4})(\.\.\.| SKIPPED: )", line)
        if begin:
            number = str(int(begin.group(1)))
            if begin.group(2) != "...":
                yield number, "", "skip"
                number = ""
        if number and re.search(r"\bOK \(", line):
            yield number, "", "pass"
            number = ""
        elif number and re.search(r"\bFAILED\b|^ *- abort|test ended with|^ exit FAILED", line):
            yield number, "", "fail"
            number = ""


RUBY = re.compile(r"^\[ *\d+/\d+\] (\w[\w:]*#\S.*?) = \d", re.MULTILINE)
RUBY_REPORT = re.compile(r"^ *\d+\) (Failure|Error|Timeout|Skipped):\n(\w[\w:]*#\S.*?)(?: \[.*|:)?$", re.MULTILINE)


def ruby(data, printed, units):
    """`test/runner.rb -v --show-skip`, and a line "=== STATUS UNIT" for each. Behind the tests are reports of those
    that have not passed."""
    yield from statuses(data, printed, units)
    for unit in units:
        text = text_of(data, "out", unit.replace("/", "_") + ".txt")
        words = {}
        for kind, name in RUBY_REPORT.findall(text):
            words[name] = "skip" if kind == "Skipped" and words.get(name) != "fail" else "fail"
        for name in RUBY.findall(text):
            yield unit, stable(name), words.get(name, "pass")


def collect(reader, data, printed, units):
    """{(unit, test): word}. A name that comes twice has a number from the second time on, in the order of the suite."""
    found, seen = {}, {}
    for unit, test, word in reader(data, printed, units):
        if word == "none":
            continue
        times = seen[unit, test] = seen.get((unit, test), 0) + 1
        found[unit, test if times == 1 else "%s [%d]" % (test, times)] = word
        assert len(found) < MOST
    return found
