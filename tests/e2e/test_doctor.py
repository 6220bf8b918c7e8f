"""hutch doctor: what this host offers, for people and as JSON."""
import json

import support
from support import hutch


def test_doctor_for_people():
    done = hutch("doctor")
    text = done.stdout.decode()
    assert done.returncode in (0, 1) and done.stderr == b""
    for word in ("user namespace", "seccomp", "Landlock", "cgroup", "default", "strict"):
        assert word.lower() in text.lower(), word


def test_doctor_json():
    done = hutch("doctor", "--json")
    report = json.loads(done.stdout)
    assert isinstance(report, dict) and done.stdout.count(b"\n") == 1
    assert done.stderr == b""


def test_doctor_agrees_with_run(tmp_path):
    """The exit status says whether default and strict would run; so they are run."""
    status = hutch("doctor").returncode
    ran = [hutch("run", "--rootfs", "host", "--policy", policy, "--data", str(tmp_path), "-c", "pass").returncode == 0
           for policy in ("default", "strict")]
    assert (status == 0) == all(ran), (status, ran)


def test_doctor_says_how_to_fix():
    """Whatever is missing is followed by what it costs and what mends it."""
    report = hutch("doctor").stdout.decode()
    if not support.has("delegation") and not support.is_root():
        assert "cgroup" in report and ("systemd-run" in report or "Delegate" in report or "delegate" in report)


def test_doctor_needs_no_home(tmp_path):
    done = hutch("doctor", env={"HUTCH_HOME": str(tmp_path / "fresh")})
    assert done.returncode in (0, 1), done.stderr


def test_doctor_refuses_arguments():
    support.refused("doctor", "--no-such-option", says="--no-such-option")
