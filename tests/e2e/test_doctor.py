"""hutch doctor, from outside: what it says about hosts that offer less and less, that its word on the policies is what
`hutch run` then does, and that it leaves nothing behind.

Lesser hosts are made of what an ordinary user can do to himself: namespaces, limits, no_new_privs."""
import json
import os
import shutil
import subprocess
import time

import pytest

import support
from support import HUTCH, hutch, need

STATUSES = ("ok", "degraded", "missing", "not_needed")
GROUPS = ("isolation", "calls", "limits", "files", "building images")
# What nothing runs without.
VITAL = ("user_namespace", "id_maps", "mount_namespace", "pid_namespace", "ipc_namespace", "uts_namespace",
         "cgroup_namespace", "mount_api", "readonly_root", "fresh_proc", "devices", "pivot_root", "no_capabilities",
         "no_new_privs", "clone3", "pidfd", "close_range", "openat2", "policies")


def check_report(report):
    """The schema, by hand."""
    assert list(report) == ["version", "host", "checks", "policies", "images"]
    assert report["version"] == 1
    host = report["host"]
    assert list(host) == ["kernel", "arch", "distribution", "uid", "user", "in_container", "home", "policies", "cgroup"]
    assert (host["kernel"], host["arch"]) == (os.uname().release, os.uname().machine)
    names = [check["name"] for check in report["checks"]]
    assert len(names) == len(set(names))
    for check in report["checks"]:
        assert list(check) == ["name", "group", "status", "detail", "costs", "fix"]
        assert check["group"] in GROUPS and check["status"] in STATUSES, check
        assert check["detail"] and "\n" not in check["detail"], check
        # Whatever is not there comes with what that costs and how it is mended.
        is_fine = check["status"] in ("ok", "not_needed")
        assert (check["costs"] is None, check["fix"] is None) == (is_fine, is_fine), check
    assert list(report["policies"]) == ["default", "strict"]
    for policy in report["policies"].values():
        assert list(policy) == ["runs", "level", "reason", "weaker"]
        assert policy["level"] in (("full", "no_proc") if policy["runs"] else ("refused",))
        assert policy["runs"] == (policy["reason"] is None), policy
        assert policy["runs"] or policy["weaker"] is None
    for image in report["images"]:
        assert list(image) == ["digest", "names", "bytes"]
        assert len(image["digest"]) == 64 and isinstance(image["names"], list)


def doctor(*before, expect=None, env=None):
    """hutch doctor --json, started by the words @before; {name: check} and the whole report."""
    done = subprocess.run([*before, HUTCH, "doctor", "--json"], capture_output=True, timeout=120, check=False,
                          env={**os.environ, **(env or {})})
    assert done.stderr == b"", done.stderr
    report = json.loads(done.stdout)
    check_report(report)
    runs = [report["policies"][name]["runs"] for name in ("default", "strict")]
    assert done.returncode == {(True, True): 0, (True, False): 1}.get(tuple(runs), 2), (done.returncode, runs)
    if expect is not None:
        assert done.returncode == expect, report["policies"]
    return {check["name"]: check for check in report["checks"]}, report


def have(program):
    if not shutil.which(program):
        pytest.skip("no program: %s" % program)


# --------------------------------------------------------------------------------------------------
# This host

def test_report():
    checks, report = doctor()
    assert report["host"]["uid"] == os.geteuid()
    assert checks["policies"]["status"] == "ok"
    assert checks["id_maps"]["status"] == "ok" or report["policies"]["default"]["runs"] is False


def test_vital_checks_decide():
    """Where the policy default runs, everything that nothing runs without is there."""
    checks, report = doctor()
    if report["policies"]["default"]["runs"]:
        assert {name: checks[name]["detail"] for name in VITAL if checks[name]["status"] != "ok"} == {}


@pytest.mark.parametrize("policy", ["default", "strict"])
def test_policies_are_as_said(policy):
    """What it says of a policy is what hutch run does."""
    _, report = doctor()
    done = hutch("run", "--rootfs", "host", "--policy", policy, "/usr/bin/true")
    said = report["policies"][policy]
    assert (done.returncode == 0) == said["runs"], (said, done.stderr)
    if not said["runs"]:
        assert said["reason"].split(":")[0] in done.stderr.decode(), (said, done.stderr)


def test_landlock_is_as_found():
    need("landlock")
    checks, _ = doctor()
    assert checks["landlock"]["status"] in ("ok", "degraded")
    assert checks["landlock"]["detail"].startswith("ABI ")


def test_delegation_is_as_found():
    need("delegation")
    checks, report = doctor()
    for name in ("cgroup_v2", "cgroup_delegation", "cgroup_clone_into"):
        assert checks[name]["status"] == "ok", checks[name]
    assert report["host"]["cgroup"] is not None


def test_root_and_user_differ():
    checks, _ = doctor()
    if support.is_root():
        uids = support.host_uids()
        assert ("uid %d" % uids[0] if len(uids) == 1 else "%d to %d" % (uids[1], uids[-1])) in checks["identity"]["detail"]
        assert checks["idmapped_mounts"]["status"] in ("ok", "degraded")
        assert checks["subordinate_ids"]["status"] == "not_needed"
    else:
        uids = support.host_uids()
        detail = checks["identity"]["detail"]
        if len(uids) > 1:
            assert detail == "each sandbox whose files are in memory has a uid of its own, of %d to %d" % (uids[1], uids[-1])
        else:
            assert detail == "sandboxes run as the caller, uid %d: this user has no range of subordinate ids" % os.geteuid()
        assert checks["idmapped_mounts"]["status"] == "not_needed"


# --------------------------------------------------------------------------------------------------
# For people

def test_text():
    done = hutch("doctor")
    lines = done.stdout.decode().splitlines()
    assert done.stderr == b""
    assert lines[0].startswith("hutch doctor: Linux ") and "called by uid %d" % os.geteuid() in lines[0]
    assert lines[-1].endswith({0: "The policies default and strict both run here.",
                               1: "The policy default runs here; strict does not.",
                               2: "No sandbox runs here; the reasons stand above."}[done.returncode])
    assert b"\033" not in done.stdout  # colours are for terminals
    checks, _ = doctor()
    # "  missing    cgroup_memory      …"
    rows = [line for line in lines if line.startswith("  ") and line[13:31].strip() in checks]
    assert [line[13:31].strip() for line in rows] == list(checks)
    assert [line[2:12].strip().replace(" ", "_") for line in rows] == [check["status"] for check in checks.values()]


def test_colours_on_a_terminal():
    have("script")
    words = "%s doctor" % HUTCH
    for env, want in (({"TERM": "xterm"}, True), ({"TERM": "dumb"}, False), ({"TERM": "xterm", "NO_COLOR": "1"}, False)):
        done = subprocess.run(["script", "-qec", words, "/dev/null"], stdin=subprocess.DEVNULL, capture_output=True, timeout=120,
                              check=False, env={**{k: v for k, v in os.environ.items() if k != "NO_COLOR"}, **env})
        assert b"hutch doctor" in done.stdout
        assert (b"\033[32mok" in done.stdout) == want, env


def test_usage():
    assert b"--json" in hutch("doctor", "--help").stdout
    support.refused("doctor", "--jsno", says="there is no option '--jsno'")


def test_full_disk():
    with open("/dev/full", "wb") as full:
        done = subprocess.run([HUTCH, "doctor"], stdout=full, stderr=subprocess.PIPE, timeout=120, check=False)
    assert done.returncode == 125
    assert done.stderr == b"hutch: print the report: No space left on device\n"


# --------------------------------------------------------------------------------------------------
# Lesser hosts

def refusal(checks, name, *says):
    assert checks[name]["status"] == "missing", checks[name]
    for text in says:
        assert text in checks[name]["detail"] + " " + checks[name]["fix"], checks[name]


def in_userns(script, as_nobody=False):
    """Words that run hutch after @script, as root of a user namespace of ours. Where that would be the host's own
    root, hutch runs nothing; @as_nobody keeps out of that."""
    need("userns")
    have("unshare")
    words = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"] if as_nobody and support.is_root() else []
    return words + ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "sh", "-ec",
                    "mount -t proc proc /proc\n" + script + '\nexec "$0" "$@"']


def test_no_user_namespaces():
    checks, report = doctor(*in_userns("echo 0 >/proc/sys/user/max_user_namespaces", True), expect=2)
    refusal(checks, "user_namespace", "No space left on device: user.max_user_namespaces is 0", "user.max_user_namespaces=15000")
    refusal(checks, "pivot_root", "not tried: it takes a user namespace")
    assert checks["seccomp"]["status"] == "ok"
    assert "max_user_namespaces" in report["policies"]["default"]["reason"]


@pytest.mark.parametrize("kind,check", [("net", "net_namespace"), ("mnt", "mount_namespace"), ("pid", "pid_namespace"),
                                        ("ipc", "ipc_namespace"), ("uts", "uts_namespace"), ("cgroup", "cgroup_namespace")])
def test_no_namespaces_of_a_kind(kind, check):
    checks, _ = doctor(*in_userns("echo 0 >/proc/sys/user/max_%s_namespaces" % kind, True), expect=2)
    assert checks["user_namespace"]["status"] == "ok"
    refusal(checks, check, "No space left on device", "user.max_%s_namespaces=15000" % kind)


def test_limit_further_out():
    have("bwrap")
    checks, _ = doctor("bwrap", "--dev-bind", "/", "/", "--proc", "/proc", "--unshare-user", "--disable-userns", expect=2)
    refusal(checks, "user_namespace", "set further out than can be seen from here", "without --disable-userns")


def test_masked_proc():
    """The level no_proc: default takes it, strict does not."""
    checks, report = doctor(*in_userns("mount -t tmpfs none /proc/sys", True), expect=1)
    assert checks["fresh_proc"]["status"] == "degraded" and "partly covered (/proc/sys)" in checks["fresh_proc"]["detail"]
    assert report["policies"]["default"]["level"] == "no_proc" and "own_proc" in report["policies"]["default"]["weaker"]
    assert report["policies"]["strict"]["level"] == "refused"
    assert checks["mount_api"]["status"] == "ok"


def test_two_with_one_pid():
    """In pid namespaces of their own, as in containers: what the one makes for a check and removes is not the other's."""
    alone = doctor(*in_userns("true", True))[1]["policies"]
    words = [*in_userns("true", True), HUTCH, "doctor", "--json"]
    for _ in range(3):
        both = [subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) for _ in range(2)]
        for one in both:
            assert json.loads(one.communicate(timeout=60)[0])["policies"] == alone


def test_unmapped_user():
    need("userns")
    have("unshare")
    checks, _ = doctor("unshare", "--user", expect=2)
    refusal(checks, "user_namespace", "Operation not permitted", "is not mapped in the user namespace around it")


def test_chroot(tmp_path):
    # A directory that is not the root of a mount, with the host's in it.
    root = tmp_path / "root"
    root.mkdir()
    checks, _ = doctor(*in_userns(
        "cd '%s'; for d in /*; do n=${d#/}; if [ -L $d ]; then ln -s $(readlink $d) $n; elif [ -d $d ]; then mkdir $n; "
        "mount --rbind $d $n; fi; done; PATH=$PATH:/usr/sbin; exec chroot . $0 \"$@\"" % root), expect=2)
    refusal(checks, "user_namespace", "hutch is in a chroot", "bwrap --dev-bind")


def test_root_without_capabilities():
    if not support.is_root():
        pytest.skip("not root")
    have("setpriv")
    checks, _ = doctor("setpriv", "--bounding-set", "-all", "--inh-caps", "-all", expect=2)
    refusal(checks, "identity", "refuse to run a sandbox as uid 0", "runuser")
    refusal(checks, "id_maps", "not tried")


def test_no_new_privs():
    """Sandboxes need no set-user-ID program; building images as a user does."""
    have("setpriv")
    checks, report = doctor("setpriv", "--no-new-privs")
    assert checks["no_new_privs"]["status"] == "ok"
    assert checks["newuidmap"]["status"] in ("not_needed", "missing")
    assert report["policies"]["default"] == doctor()[1]["policies"]["default"]


def test_readonly_home(tmp_path):
    checks, _ = doctor(*in_userns("mount -t tmpfs -o ro none '%s'" % tmp_path), env={"HUTCH_HOME": str(tmp_path / "home")})
    refusal(checks, "home", "Read-only file system", "HUTCH_HOME")


def test_noexec_home(tmp_path):
    checks, _ = doctor(*in_userns("mount -t tmpfs -o noexec none '%s'" % tmp_path), env={"HUTCH_HOME": str(tmp_path)})
    assert checks["home"]["status"] == "degraded" and "noexec" in checks["home"]["detail"]


def test_small_home(tmp_path):
    checks, _ = doctor(*in_userns("mount -t tmpfs -o size=1M none '%s'" % tmp_path), env={"HUTCH_HOME": str(tmp_path)})
    assert checks["space"]["status"] == "degraded" and checks["space"]["detail"].startswith("1 MB free")


def test_relative_home():
    checks, report = doctor(env={"HUTCH_HOME": "somewhere"})
    refusal(checks, "home", "HUTCH_HOME")
    assert report["host"]["home"] is None and report["images"] == []


def test_home_of_any_bytes(tmp_path):
    """The JSON stays UTF-8 whatever a path holds."""
    home = os.path.join(os.fsencode(tmp_path), b"\xff\xc3\n\xe4\xf6")
    os.mkdir(home)
    done = subprocess.run([HUTCH, "doctor", "--json"], capture_output=True, timeout=120, check=False,
                          env={**os.environb, b"HUTCH_HOME": home})
    report = json.loads(done.stdout.decode("utf-8"))
    assert report["host"]["home"].endswith("/\ufffd\ufffd\n\ufffd\ufffd")
    assert {c["name"]: c for c in report["checks"]}["home"]["status"] == "ok"


def test_no_policies(tmp_path):
    checks, report = doctor(env={"HUTCH_POLICY_DIR": str(tmp_path / "none")}, expect=2)
    refusal(checks, "policies", "none", "HUTCH_POLICY_DIR")
    assert report["policies"]["default"]["reason"]


def test_broken_policy(tmp_path):
    """What is wrong with a policy is said as hutch run would."""
    (tmp_path / "default.json").write_text('{"schema": 1, "limits": {"memroy": "1g"}}')
    checks, report = doctor(env={"HUTCH_POLICY_DIR": str(tmp_path)}, expect=2)
    refusal(checks, "policies", "memroy")
    assert "memroy" in report["policies"]["default"]["reason"]


def test_both_run(tmp_path):
    """Exit status 0: here through a policy strict that is content with less."""
    _, report = doctor()
    if not report["policies"]["default"]["runs"]:
        pytest.skip("no sandbox on this host: %s" % report["policies"]["default"]["reason"])
    for name in os.listdir(report["host"]["policies"]):
        shutil.copy(os.path.join(report["host"]["policies"], name), str(tmp_path))
    (tmp_path / "strict.json").write_text('{"schema": 1, "extends": "default"}')
    doctor(env={"HUTCH_POLICY_DIR": str(tmp_path)}, expect=0)


# --------------------------------------------------------------------------------------------------
# Nothing stays

def cgroups():
    """Those that doctors have made, this one or another's."""
    mount = support.cgroup2_mount()
    return {os.path.join(parent, name) for parent, names, _ in os.walk(mount) for name in names
            if name.startswith("hutch-doctor-")} if mount else set()


def test_leaves_nothing(tmp_path):
    home = tmp_path / "a" / "home"
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as table:
        mounts = table.read()
    support.become_subreaper()
    others = cgroups()
    doctor(env={"HUTCH_HOME": str(home)})
    left, deadline = cgroups() - others, time.monotonic() + 20
    assert os.listdir(tmp_path) == []  # not even its home, which it may be asked about before the first run
    while (left or support.descendants(os.getpid())) and time.monotonic() < deadline:  # those of doctors beside this one end
        time.sleep(0.1)
        left &= cgroups()
    assert not left and support.descendants(os.getpid()) == set()
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as table:
        assert table.read() == mounts
