"""Every probe, once in a sandbox, where it has to be blocked and the host has to stay as it is; and, where
that harms nobody, once outside, where the same code has to get through: a probe that cannot fail proves
nothing.

The path under test is a command template in HUTCH_RUN, so that another front end can be put through the same
probes. It has to run {script} with {args}, with {data} at /mnt/data, and print hutch's result object."""
import errno
import fcntl
import fnmatch
import glob
import importlib
import json
import os
import pty
import pwd
import shlex
import stat
import subprocess
import sys
import termios

import pytest

import support
from support import HUTCH, IMAGE

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "probes")]

import kit  # noqa: E402
import witness  # noqa: E402

TEMPLATE = os.environ.get("HUTCH_RUN", " ".join(["{hutch} run --json --policy default --image {image} --data {data} {options}",
                                                *support.WARM, "{script} {args}"]))
IS_WARM = "--warm" in TEMPLATE
FAMILIES = sorted(os.path.basename(path)[:-3] for path in glob.glob(os.path.join(HERE, "probes", "*.py"))
                  if not path.endswith("kit.py"))
for _family in FAMILIES:
    importlib.import_module(_family)
PROBES = [probe for probe in sorted(kit.PROBES.values(), key=lambda probe: (probe.family, probe.name))
          if IS_WARM or not probe.warm]

# What a control run may say where the kernel simply lacks what the probe attacks.
LACKING = {errno.ENOSYS, errno.ENODEV, errno.ENOENT, errno.ENXIO, errno.EOPNOTSUPP, errno.EAFNOSUPPORT}


# --------------------------------------------------------------------------------------------------
# One script per family: the kit and the probes in one file, so that it needs nothing beside it

def write_scripts(directory):
    with open(os.path.join(HERE, "probes", "kit.py"), encoding="utf-8") as file:
        kit_source = file.read()
    scripts = {}
    for family in FAMILIES:
        with open(os.path.join(HERE, "probes", family + ".py"), encoding="utf-8") as file:
            source = file.read()
        scripts[family] = os.path.join(directory, family + ".py")
        with open(scripts[family], "w", encoding="utf-8") as file:
            file.write("import sys, types\n"
                       "kit = sys.modules['kit'] = types.ModuleType('kit')\n"
                       "exec(compile(%r, 'kit.py', 'exec'), kit.__dict__)\n"
                       "exec(compile(%r, '%s.py', 'exec'), {'__name__': '%s'})\n"
                       "kit.main(sys.argv)\n" % (kit_source, source, family, family))
    return scripts


class Terminal:
    """A terminal for hutch to be started on, as from a shell. Nobody types; what turns up was injected."""

    def __init__(self):
        self.master, self.slave = pty.openpty()
        os.set_blocking(self.master, False)

    def injected(self):
        try:
            return os.read(self.master, 4096)
        except BlockingIOError:
            return b""

    def take(self):
        """In the child: a session of its own with this as its controlling terminal."""
        os.setsid()
        fcntl.ioctl(self.slave, termios.TIOCSCTTY, 0)

    def close(self):
        os.close(self.master)
        os.close(self.slave)


class Setting:
    """The victim, the scripts and the facts, made once for all probes."""

    def __init__(self, directory):
        self.victim_directory = os.path.join(directory, "victim")
        os.makedirs(self.victim_directory)
        os.chmod(directory, 0o755)
        self.scratch = os.path.join(directory, "scratch")
        os.mkdir(self.scratch)
        self.work = directory
        self.scripts = write_scripts(directory)
        self.victim = witness.Victim(self.victim_directory, support.host_uids()[0])
        self.witness = witness.Witness(self.victim)
        self.home = os.environ.get("HOME") or pwd.getpwuid(os.geteuid()).pw_dir
        self.home_canary = os.path.join(self.home, ".hutch-canary-" + self.victim.token)
        open(self.home_canary, "w", encoding="ascii").close()
        self.env_secret = "secret-" + os.urandom(8).hex()
        self.facts = dict(self.victim.facts, outside=False, warm=IS_WARM, token=self.victim.token,
                          canary_dir=self.victim_directory, canary_file=self.victim.file,
                          canary_scratch=self.victim.scratch_file, canary_text=self.victim.text,
                          home=self.home, home_canary=os.path.basename(self.home_canary), hostname=os.uname().nodename,
                          env_secret=self.env_secret, scratch=self.scratch, addresses=addresses())

    def environment(self):
        return {**os.environ, "HUTCH_PROBE_SECRET": self.env_secret, "AWS_SECRET_ACCESS_KEY": self.env_secret}

    def close(self):
        os.unlink(self.home_canary)
        self.victim.close()


def addresses():
    """The host's IPv4 addresses beyond loopback."""
    try:
        text = subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=False).stdout
    except OSError:
        return []
    return [word for word in text.split() if "." in word]


@pytest.fixture(scope="module")
def setting(tmp_path_factory):
    support.become_subreaper()
    directory = str(tmp_path_factory.mktemp("hostile"))
    # pytest's own directories are closed to others, and the victim of root's lane is another user.
    parent = directory
    while parent != "/" and os.stat(parent).st_uid == os.geteuid():
        if not stat.S_IMODE(os.stat(parent).st_mode) & 0o001:
            os.chmod(parent, stat.S_IMODE(os.stat(parent).st_mode) | 0o011)
        parent = os.path.dirname(parent)
    made = Setting(directory)
    yield made
    made.close()
    support.remove_tree(directory)


# --------------------------------------------------------------------------------------------------
# In the sandbox

class Run:
    """A finished run of one probe."""

    def __init__(self, result, data, terminal_input):
        self.result = result
        self.data = data
        self.terminal_input = terminal_input

    @property
    def verdict_lines(self):
        return [line for line in self.result["stdout"].split("\n")
                if line.startswith(("BLOCKED ", "GOT THROUGH ", "BROKEN "))]


def run_probe(setting, probe, data):
    facts = json.dumps(setting.facts)
    words = []
    for word in shlex.split(TEMPLATE):
        if word == "{options}":
            words += probe.options
        elif word == "{args}":
            words += [probe.name, facts]
        else:
            words.append(word.format(hutch=HUTCH, image=IMAGE, data=data, script=setting.scripts[probe.family]))
    terminal = Terminal()
    # As a careless caller would: an open file of his, inherited.
    secret = os.open(setting.victim.file, os.O_RDONLY)
    try:
        process = subprocess.Popen(words, stdin=terminal.slave, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env=setting.environment(), pass_fds=(secret,), preexec_fn=terminal.take)
    finally:
        os.close(secret)
    try:
        stdout, stderr = process.communicate(timeout=90)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        terminal.close()
        pytest.fail("hutch did not return within 90 s")
    injected = terminal.injected()
    terminal.close()
    try:
        result = json.loads(stdout)
    except ValueError:
        pytest.fail("no result object (exit %d): %r %r" % (process.returncode, stdout[:300], stderr[:800]))
    support.check_result(result)
    return Run(result, data, injected)


def check_data_directory(setting, probe, data):
    """Nothing in /mnt/data but what the probe declared, and nothing there that could hurt the caller."""
    top = os.stat(data)
    owner = top.st_uid
    os.chmod(data, 0o755)  # locked_top
    for name in os.listdir(data):
        assert any(fnmatch.fnmatch(name, pattern) for pattern in probe.leaves), "left in /mnt/data: %r" % name
    # find(1) and not os.walk, because the tree may be deeper than Python recurses and than PATH_MAX.
    bad = subprocess.run(["find", data, "(", "-perm", "/6000", "-o", "-type", "b", "-o", "-type", "c", "-o", "!", "-uid",
                          str(owner), ")", "-printf", r"%M owner %U: %.200p\n"], capture_output=True, check=False).stdout
    assert not bad, "set-id bits, devices or strange owners: %r" % bad[:600]


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: "%s.%s" % (probe.family, probe.name))
def test_probe(setting, probe, data):
    known = support.descendants(os.getpid())
    groups = witness.cgroups()
    setting.witness.remember()

    run = run_probe(setting, probe, str(data))

    # Inside: it was blocked, and hutch says what happened.
    result = run.result
    if probe.counted and "cgroup" not in result["limits"]["memory"]["enforced_by"]:
        pytest.skip("memory controller: the fallback cannot count this, as docs/security.md says")
    if probe.layer and not result["layers"][probe.layer]["active"]:
        pytest.skip("%s: this sandbox is without, as its result says" % probe.layer)
    assert "GOT THROUGH" not in "".join(run.verdict_lines), run.verdict_lines
    assert "BROKEN" not in "".join(run.verdict_lines), run.verdict_lines
    if not probe.silent:
        assert len(run.verdict_lines) == 1, (result["verdict"], result["message"], result["stdout"][-500:],
                                             result["stderr"][-1500:])
    assert result["verdict"] in probe.verdicts, (result["verdict"], result["message"], result["stderr"][-1500:])
    assert setting.victim.text not in json.dumps(result), "the secret is in the result"
    assert setting.env_secret not in json.dumps(result), "the environment's secret is in the result"

    # Outside: nothing happened.
    left = witness.leftover_processes(known)
    assert not left, "left processes: %r" % left
    setting.witness.check()
    assert run.terminal_input == b"", "typed into the terminal: %r" % run.terminal_input
    assert witness.leftover_runs() == [], "left in HUTCH_HOME/runs"
    assert witness.cgroups() <= groups, "left control groups"
    check_data_directory(setting, probe, str(data))
    after = globals().get("after_" + probe.name)
    if after:
        after(run)
    witness.reap_strays(known)


# --------------------------------------------------------------------------------------------------
# What has to be true after single probes

def listed(run):
    files = run.result["files"]
    return {entry["path"]: entry for entry in files["added"]}


def after_symlink_out(run):
    # The links are reported or left out, but never what they lead to.
    for path, entry in listed(run).items():
        assert path in ("link", "absolute", "up"), path
        assert entry["size"] != len("canary-") + 24, "the size is that of the file behind the link"


def after_symlink_loop(run):
    assert set(listed(run)) <= {"a", "b", "self"}


def after_swap_while_collecting(run):
    assert set(listed(run)) <= {"real", "real/file", "swap"}, listed(run)


def after_odd_names(run):
    names = [path for path in listed(run) if path.startswith("odd/")]
    assert len(names) == 11, names


def after_many_files(run):
    assert len(listed(run)) >= 5000 or run.result["files"]["truncated"]


def after_names_that_fill_memory(run):
    assert len(json.dumps(run.result)) < 64 << 20


def after_lying_file_types(run):
    assert {"image.png", "page.html", "tool.sh"} <= set(listed(run))


def after_close_stdout(run):
    # Silent by intention: that it went on shows in the file it wrote.
    with open(os.path.join(run.data, "went-on"), encoding="ascii") as file:
        assert file.read() == "yes"


def after_forge_result_on_stdout(run):
    assert "forged" in run.result["stdout"] and "forged" not in run.result


def after_forge_error_report(run):
    # Whatever the record says, the script ended with status 0.
    assert run.result["exit_code"] == 0 and run.result["verdict"] == "ok"


def after_kill_itself(run):
    assert run.result["signal"] == "SIGKILL" and run.result["exit_code"] is None


def after_stdout_bomb(run):
    assert run.result["stdout_truncated"] and len(run.result["stdout"]) < 64 << 20


def after_stderr_bomb(run):
    assert run.result["stderr_truncated"] and len(run.result["stderr"]) < 64 << 20


def allocated(directory):
    """Bytes on disk below @directory."""
    return sum(os.lstat(os.path.join(parent, name)).st_blocks * 512
               for parent, _, files in os.walk(directory) for name in files)


def after_fill_data(run):
    # The supervisor looks now and then, so a burst gets through; two gigabytes do not.
    assert allocated(run.data) < 2 << 30, "%d bytes in /mnt/data" % allocated(run.data)


def after_inode_bomb_in_data(run):
    assert len(os.listdir(run.data)) < 300_000


# --------------------------------------------------------------------------------------------------
# Outside: the same code gets through

def has_all_capabilities():
    """A root inside of a container has fewer than the kernel knows."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        effective = [int(line.split()[1], 16) for line in status if line.startswith("CapEff:")]
    with open("/proc/sys/kernel/cap_last_cap", encoding="ascii") as file:
        return effective[0] == (2 << int(file.read())) - 1

CONTROLS = [probe for probe in PROBES if probe.control == "user" or (probe.control == "root" and support.is_root())]


@pytest.mark.parametrize("probe", CONTROLS, ids=lambda probe: "%s.%s" % (probe.family, probe.name))
def test_control(setting, probe):
    facts = json.dumps(dict(setting.facts, outside=True))
    secret = os.open(setting.victim.file, os.O_RDONLY)
    try:
        done = subprocess.run([sys.executable, "-I", setting.scripts[probe.family], probe.name, facts], timeout=60,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, cwd=setting.scratch,
                              env=setting.environment(), pass_fds=(secret,), start_new_session=True)
    finally:
        os.close(secret)
    lines = [line for line in done.stdout.split("\n") if line.startswith(("BLOCKED ", "GOT THROUGH ", "BROKEN "))]
    assert len(lines) == 1, (done.stdout, done.stderr)
    word = lines[0].partition(" ")[2]
    if lines[0].startswith("BLOCKED ") and getattr(errno, word, None) in LACKING:
        pytest.skip("this kernel lacks it: " + word)
    if lines[0] in ("BLOCKED EPERM", "BLOCKED EACCES") and probe.control == "root" and not has_all_capabilities():
        pytest.skip("root has not all capabilities on this machine: " + word)
    assert lines[0].startswith("GOT THROUGH "), "a probe that cannot fail: " + lines[0]


def test_enough_probes():
    """The suite's own floor, so that a family that is not found does not go unnoticed."""
    assert len(PROBES) >= 80
    assert len(FAMILIES) >= 12
    for probe in PROBES:
        assert probe.control or probe.why_no_control, probe.name
