"""What `make check-suites` counts: the readers of tests/suites, its judgement, and that its table, its file and its page agree."""
import importlib.machinery
import importlib.util
import os
import re
import subprocess
import sys

import pytest

TREE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TREE, "tests", "suites"))

import judge  # noqa: E402  (the path comes first)
import page  # noqa: E402
import reading  # noqa: E402
import table  # noqa: E402

LOADER = importlib.machinery.SourceFileLoader("run", os.path.join(TREE, "tests", "suites", "run"))
run = importlib.util.module_from_spec(importlib.util.spec_from_loader("run", LOADER))
LOADER.exec_module(run)

TRS = ":test-result: PASS\n:global-test-result: PASS\n:recheck: no\n"
JUNIT = """<testsuites><testsuite name="a">
<testcase classname="test.A" name="one" status="run" result="completed"/>
<testcase classname="test.A" name="two" status="run" result="completed"><failure>no</failure></testcase>
<testcase classname="test.A" name="three"><skipped/></testcase>
<testcase classname="test.A" name="four" result="skipped"/>
</testsuite></testsuites>"""
GO = """{"Action":"run","Package":"io","Test":"TestCopy"}
{"Action":"pass","Package":"io","Test":"TestCopy","Elapsed":0}
{"Action":"skip","Package":"io","Test":"TestBig","Elapsed":0}
# a line of the compiler
{"Action":"fail","Package":"io","Elapsed":0.1}
"""
TAP = """1..4
ok 1 - it starts
not ok 2 - it ends # TODO known breakage
ok 3 # skip no network
    ok 1 - within another
not ok 4 - it goes on
"""
PERL = """../io/x.t ..
1..6
ok 1 - dup fileno 4
ok 2 - calling fpathconf(3, _PC_PIPE_BUF) (fifo1234)
ok 3 - ls and -b agreeing on /dev (0 0)
ok 4 - utime on tmp1234AB and /tmp/Xy_3z
ok 5 # skip no setuid bits
ok 6 # skip no setuid bits
ok
All tests successful.
"""
TRIAL = """twisted.test.test_udp
  MulticastTests
    test_ttl ...                                                      [SKIPPED]
  UDPTests
    test_start ... a line of the test's own
                                                                           [OK]
    test_stop ...                                                        [FAIL]

===============================================================================
[FAIL]
"""
CURL = """test 0001...[HTTP GET]
--pd---e--- OK (1   out of 3, remaining: 00:02, took 0.1s, duration: 00:00)
test 0002...[HTTP PUT] 2: protocol FAILED!
 - abort tests
test 0003 SKIPPED: curl lacks ECH support
"""
RUBY = """[ 1/3] TestIO#test_pipe = 0.01 s
[ 2/3] TestIO#test_copy_stream = 0.01 s
[ 3/3] TestIO::Sub#test_x = 0.00 s

  1) Skipped:
TestIO::Sub#test_x [/mnt/data/src/test/io/test_x.rb:7]:
no terminal

  2) Error:
TestIO#test_copy_stream:
Errno::EINVAL: Invalid argument
"""


@pytest.mark.parametrize("reader, files, printed, units, expected", [
    (reading.automake("tests"), {"src/tests/a.trs": TRS, "src/tests/b.trs": TRS.replace("PASS", "SKIP"),
                                 "src/tests/c.trs": TRS.replace("PASS", "XFAIL")}, "", ["a.sh", "b", "c", "d"],
     {("a.sh", ""): "pass", ("b", ""): "skip", ("c", ""): "fail"}),
    (reading.statuses, {}, "noise\n=== 0 a\n=== 77 b\n=== 1 c d\n", [], {("a", ""): "pass", ("b", ""): "skip", ("c d", ""): "fail"}),
    (reading.files_of_tap("src/t"), {"src/t/x.sh.tap": TAP}, "=== 1 x.sh\n", ["x.sh"],
     {("x.sh", ""): "fail", ("x.sh", "it starts"): "pass", ("x.sh", "it ends"): "fail", ("x.sh", "3"): "skip",
      ("x.sh", "within another"): "pass", ("x.sh", "it goes on"): "fail"}),
    (reading.files_of_tap("tap", perl=True), {"tap/io_x.t.tap": PERL}, "=== 0 io/x.t\n", ["io/x.t"],
     {("io/x.t", ""): "pass", ("io/x.t", "dup fileno …"): "pass",
      ("io/x.t", "calling fpathconf(…, _PC_PIPE_BUF) (fifo…)"): "pass",
      ("io/x.t", "ls and -b agreeing on /dev"): "pass", ("io/x.t", "utime on tmp… and /tmp/…"): "pass",
      ("io/x.t", "skipped"): "skip", ("io/x.t", "skipped [2]"): "skip"}),
    (reading.junit, {"out/a.xml": JUNIT}, "=== 2 a\n", ["a", "b"],
     {("a", ""): "fail", ("a", "test.A.one"): "pass", ("a", "test.A.two"): "fail", ("a", "test.A.three"): "skip", ("a", "test.A.four"): "skip"}),
    (reading.go, {}, GO, [], {("io", "TestCopy"): "pass", ("io", "TestBig"): "skip", ("io", ""): "fail"}),
    (reading.autotest, {}, "  1: tar version    ok\n 12: long names   FAILED (long.at:30)\n 13: sparse  skipped (s.at:1)\n", [],
     {("1", "tar version"): "pass", ("12", "long names"): "fail", ("13", "sparse"): "skip"}),
    (reading.trial, {"out/u.txt": TRIAL}, "=== 1 u\n", ["u"],
     {("u", ""): "fail", ("u", "MulticastTests.test_ttl"): "skip", ("u", "UDPTests.test_start"): "pass", ("u", "UDPTests.test_stop"): "fail"}),
    (reading.curl, {}, CURL, [], {("1", ""): "pass", ("2", ""): "fail", ("3", ""): "skip"}),
    (reading.ruby, {"out/a_b.rb.txt": RUBY}, "=== 1 a/b.rb\n", ["a/b.rb"],
     {("a/b.rb", ""): "fail", ("a/b.rb", "TestIO#test_pipe"): "pass", ("a/b.rb", "TestIO#test_copy_stream"): "fail",
      ("a/b.rb", "TestIO::Sub#test_x"): "skip"}),
], ids=["automake", "statuses", "tap", "perl", "junit", "go", "autotest", "trial", "curl", "ruby"])
def test_readers(tmp_path, reader, files, printed, units, expected):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert reading.collect(reader, str(tmp_path), printed, units) == expected


def test_a_link_that_leads_out_is_not_read(tmp_path):
    """The folder is the sandbox's to write."""
    (tmp_path / "side").mkdir()
    (tmp_path / "secret").write_text("secret")
    os.symlink("../secret", tmp_path / "side" / "log")
    os.symlink("..", tmp_path / "side" / "out")
    assert reading.text_of(str(tmp_path / "side"), "log") == reading.text_of(str(tmp_path / "side"), "out", "secret") == ""
    assert reading.text_of(str(tmp_path), "secret") == "secret"


def test_a_name_that_comes_twice_has_a_number():
    assert reading.collect(reading.statuses, "", "=== 0 a\n=== 1 a\n", []) == {("a", ""): "pass", ("a", " [2]"): "fail"}


def test_only_what_is_steady_counts():
    """What came out alike once, and what differs from run to run outside, is no difference; what is missing on one side is one."""
    runs = [({"always": "fail", "inside": "fail", "outside": "pass"}, {"always": "pass", "inside": "pass", "outside": "fail", "missing": "pass"}),
            ({"always": "fail", "inside": "pass", "outside": "pass"}, {"always": "pass", "inside": "pass", "outside": "pass", "missing": "pass"})]
    assert judge.steady(runs) == {"always": ("fail", "pass"), "missing": ("none", "pass")}


def test_a_new_difference_and_one_that_has_gone():
    rows = {("a", "known"): ("fail", "pass", "why", True), ("a", "gone"): ("fail", "pass", "why", True),
            ("a", "another"): ("fail", "pass", "why", True), ("not run", ""): ("fail", "pass", "why", True),
            ("a", "not on this host"): ("fail", "pass", "why", False)}
    found = {("a", "known"): ("fail", "pass"), ("a", "new"): ("skip", "pass"), ("a", "another"): ("skip", "pass")}
    assert judge.verdict(found, rows, {"a"}) == (
        [("a", "known", "fail", "pass")],
        [("a", "another", "skip", "pass"), ("a", "new", "skip", "pass")],
        [("a", "another", "fail", "pass"), ("a", "gone", "fail", "pass")])


def test_one_line_for_a_name_that_comes_many_times():
    """What differs in another way than the line says has to have its own."""
    rows = {("a", "mode set [*]"): ("none", "pass", "why", True), ("a", "owner set [*]"): ("none", "pass", "why", True)}
    found = {("a", "mode set"): ("none", "pass"), ("a", "mode set [2]"): ("none", "pass"),
             ("a", "mode set [3]"): ("fail", "pass"),
             ("a", "modes"): ("none", "pass")}
    assert judge.verdict(found, rows, {"a"}) == (
        [("a", "mode set [*]", "none", "pass")],
        [("a", "mode set [3]", "fail", "pass"), ("a", "modes", "none", "pass")],
        [("a", "owner set [*]", "none", "pass")])


@pytest.mark.parametrize("line", [
    "grep\ta\t\tfail\tpass", "grep\ta\t\tpass\tpass\tno difference at all", "grep\ta\t\tfail\tok\tanother word than ours",
    "grep\ta\t\tfail\tpass\tno", "grep\ta\t\tfail\tpass\tit comes twice\ngrep\ta\t\tfail\tpass\tit comes twice"],
    ids=["five fields", "no difference", "unknown word", "no reason", "twice"])
def test_mistakes_in_the_file(tmp_path, line):
    path = tmp_path / "differences.txt"
    path.write_text("# comment\n\n" + line + "\n")
    with pytest.raises(judge.Mistake):
        judge.known(str(path))


def test_file_and_table_agree():
    names = [suite.name for suite in table.SUITES]
    assert len(names) == len(set(names))
    assert {name.partition("@")[0] for name in judge.known()} <= set(names)
    for suite in table.SUITES:
        assert suite.tree in table.TREES
        assert all(len(reason.split()) > 2 for reason in suite.left_out.values()), suite.name
        re.compile(suite.main)


@pytest.mark.parametrize("environment, expected", [
    ({}, ["io/a", "io/b"]), ({"HUTCH_SUITES_ALL": "1"}, ["io/a", "re/c", "io/b"]),
    ({"HUTCH_SUITES_ALL": ""}, ["io/a", "io/b"]),
    ({"HUTCH_SUITES_UNITS": "c$|d$"}, ["re/c"]), ({"HUTCH_SUITES_UNITS": "^io/a", "HUTCH_SUITES_ALL": "1"}, ["io/a"])],
    ids=["main", "all", "an empty word chooses nothing", "a named unit that is not main", "both"])
def test_which_units_run(environment, expected):
    suite = table.Suite("a", "a's", "", "c", "", "", "", reading.statuses, main="^io/",
                        left_out={"io/d": "it never comes to an end"})
    assert run.chosen(suite, ["io/a", "re/c", "io/b", "io/d", "io/a"], environment) == expected


def test_no_main_means_all():
    suite = table.Suite("a", "a's", "", "c", "", "", "", reading.statuses)
    assert run.chosen(suite, ["b", "a"], {}) == ["b", "a"]


def test_the_page_is_made_of_them():
    with open(page.FILE, encoding="utf-8") as text:
        assert text.read() == page.page(), "tests/suites/run --page writes it anew"


def test_a_suite_that_nobody_knows():
    done = subprocess.run([os.path.join(TREE, "tests", "suites", "run"), "greb"], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "no suite is called greb; there are grep" in done.stderr
