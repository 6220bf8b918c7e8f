"""The table of system calls, policies/syscalls.tsv, and what is made of it. What the filters then do is
tests/unit/sandbox/test_seccomp.c's."""
import csv
import json
import os
import re
import subprocess

import pytest

import support

TREE = os.environ.get("HUTCH_TEST_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ENGINE = "/usr/share/containers/seccomp.json"  # of Podman, Buildah and Skopeo
ARCHES = {"amd64", "arm64", "riscv64"}  # arm64 stands for 32-bit ARM, too, in these profiles
# Only 32-bit kernels have these names; 64-bit ones have another number for the same, or nothing.
OF_32_BITS = re.compile(r"arm_.*|sync_file_range2|set_tls|cacheflush|breakpoint|.*(64|32|_time64)|_newselect|mmap2|readdir|recv|send|sig\w+|signal|syscall|timerfd|ugetrlimit|waitpid")


def rows():
    with open(os.path.join(TREE, "policies", "syscalls.tsv"), encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def allowed_by_engine():
    """The calls that the engine's default profile lets a program without capabilities make."""
    if not os.path.exists(ENGINE):
        support.miss("apt: %s is not there (golang-github-containers-common)" % ENGINE)
    with open(ENGINE, encoding="utf-8") as file:
        profile = json.load(file)
    found = set()
    for rule in profile["syscalls"]:
        includes = rule.get("includes") or {}
        if rule["action"] == "SCMP_ACT_ALLOW" and not includes.get("caps") and (not includes.get("arches") or ARCHES & set(includes["arches"])):
            found.update(rule["names"])
    return found


def test_the_profiles_and_the_page_are_made_of_the_table():
    done = subprocess.run([os.path.join(TREE, "policies", "build"), "--check"], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_each_call_of_a_container_engine_is_decided():
    known = {row["call"] for row in rows()}
    assert {name for name in allowed_by_engine() - known if not OF_32_BITS.fullmatch(name)} == set()


def test_the_table_knows_what_container_engines_allow():
    engine = allowed_by_engine()
    marked = {row["call"] for row in rows() if row["engines"] == "yes"}
    assert {row["call"] for row in rows() if row["call"] in engine} <= marked


def test_each_refusal_says_why_to_whom_and_what_then():
    bare = [(row["call"], row["when"], key) for row in rows() if row["default"] not in ("allow", "-") and row["engines"] == "yes"
            for key in ("why", "callers", "fallback", "source") if not row[key]]
    assert bare == []


def test_a_call_has_one_line_for_each_condition():
    seen = [(row["call"], row["when"], profile) for row in rows() for profile in ("default", "strict", "trusted") if row[profile] != "-"]
    assert len(seen) == len(set(seen))


@pytest.mark.parametrize("profile", ["default", "strict", "trusted"])
def test_the_documents_count_what_is_allowed(profile):
    allowed = {row["call"] for row in rows() if row[profile] == "allow"}
    with open(os.path.join(TREE, "docs", "policy.md"), encoding="utf-8") as file:
        assert "`%s` allows %d calls" % (profile, len(allowed)) in " ".join(file.read().split())
