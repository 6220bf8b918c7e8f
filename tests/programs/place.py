"""Where a program of the table is run: inside, by `hutch run` under a policy, and outside, by bubblewrap on the same files without a filter."""
import fcntl
import json
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TREE = os.path.dirname(os.path.dirname(HERE))
HUTCH = os.path.abspath(os.environ.get("HUTCH_BIN") or os.path.join(TREE, "build", "hutch"))
FOLDER = os.path.abspath(os.environ.get("HUTCH_TEST_PROGRAM_IMAGES") or os.path.join(TREE, "build", "programs"))
POLICIES = os.path.join(os.path.dirname(os.path.dirname(HUTCH)), "policies")
if not os.path.isdir(POLICIES):
    POLICIES = os.path.join(TREE, "policies")
SECONDS = 120  # for a program, where its row names no other time
BESIDE = 60  # for a sandbox to be built and removed on a machine that is busy
SHOWN = 600  # characters of what a program has written, in a message


class Ended:
    """What came of a program: status, both streams, and what was said beside."""

    def __init__(self, status, stdout, stderr, said=""):
        self.status, self.stdout, self.stderr, self.said = status, stdout, stderr, said

    def wrong(self, row, data):
        """What is not as the row says, in a sentence; None where all is."""
        if self.status != 0:
            return "status %s%s: %s" % (self.status, self.said and " (%s)" % self.said, _shown(self.stderr) or _shown(self.stdout))
        if "prints" in row and self.stdout.strip() != row["prints"].strip():
            return "prints %s; %s" % (_shown(self.stdout) or "nothing", _shown(self.stderr))
        for text in row.get("finds", ()):
            if text not in self.stdout:
                return "its output lacks '%s': %s; %s" % (text, _shown(self.stdout), _shown(self.stderr))
        for name, begins in row.get("makes", {}).items():
            try:
                with open(os.path.join(data, name), "rb") as file:
                    head = file.read(16)
            except OSError as error:
                return "%s: %s" % (error, _shown(self.stderr))
            if not head.startswith(begins.encode("latin-1")):
                return "%s begins with %r" % (name, head)
        return None


def _shown(text):
    text = text.strip()
    return text if len(text) <= SHOWN else text[:SHOWN // 2] + " … " + text[-SHOWN // 2:]


def store():
    """The images in the store of whoever calls, unpacked from their archives where these have changed."""
    home = os.environ.get("HUTCH_HOME") or os.path.join(FOLDER, "store")
    os.environ["HUTCH_HOME"] = home
    os.makedirs(home, exist_ok=True)
    with open(os.path.join(home, "programs-lock"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another run by hand may use the same store
        unpack(home)
    return json.loads(subprocess.run([HUTCH, "rootfs", "list", "--json"], check=True, stdout=subprocess.PIPE).stdout)


def unpack(home):
    for name in sorted(os.listdir(FOLDER)):
        if not name.endswith(".tar"):
            continue
        archive, image = os.path.join(FOLDER, name), name[:-len(".tar")]
        st = os.stat(archive)
        stamp, now = os.path.join(home, "programs-%s" % image), "%d %d\n" % (st.st_size, st.st_mtime_ns)
        if os.path.exists(stamp) and open(stamp, encoding="utf-8").read() == now:
            continue
        subprocess.run([HUTCH, "rootfs", "remove", "--quiet", image], check=False, stderr=subprocess.DEVNULL)
        subprocess.run([HUTCH, "rootfs", "unpack", "--quiet", archive, image], check=True, stdout=sys.stderr)
        with open(stamp, "w", encoding="utf-8") as file:
            file.write(now)


def policy(row, folder):
    """The policy `default`, or a file with it, the row's limits and the calls that it allows."""
    path = os.path.join(POLICIES, "default.json")
    if "limits" not in row and "allow" not in row:
        return path
    with open(path, encoding="utf-8") as file:
        made = json.load(file)
    made["limits"].update({name: None if value == "none" else value for name, value in row.get("limits", {}).items()})
    made["seccomp"] = os.path.join(POLICIES, made["seccomp"])
    if "allow" in row:
        made["seccomp"] = profile(made["seccomp"], row["allow"], os.path.join(folder, "seccomp.json"))
    with open(os.path.join(folder, "policy.json"), "w", encoding="utf-8") as file:
        json.dump(made, file)
    return os.path.join(folder, "policy.json")


def profile(path, allowed, made):
    """The profile @path, in which the calls @allowed are allowed whatever their arguments."""
    with open(path, encoding="utf-8") as file:
        rules = json.load(file)
    for rule in rules["syscalls"]:
        rule["names"] = [name for name in rule["names"] if name not in allowed]
    rules["syscalls"] = [rule for rule in rules["syscalls"] if rule["names"]] + [{"names": allowed, "action": "SCMP_ACT_ALLOW"}]
    with open(made, "w", encoding="utf-8") as file:
        json.dump(rules, file)
    return made


def inside(row, folder, data):
    seconds = row.get("seconds", SECONDS)
    words = [HUTCH, "run", "--no-server", "--json", "--policy", policy(row, folder), "--timeout", "%ds" % seconds,
             "--image", row["image"], "--data", data]
    for name, value in row.get("environment", {}).items():
        words += ["--env", "%s=%s" % (name, value)]
    if "npm" in row:
        words += ["--volume", "%s:/opt/npm:ro" % os.path.join(FOLDER, row["npm"])]
    done = _run(words + ["--entrypoint", "/bin/bash", "--", "-ec", row["run"]], seconds + BESIDE)
    try:
        result = json.loads(done.stdout)
    except ValueError:
        return Ended(done.status, "", done.stderr + done.stdout)
    said = "" if result["verdict"] == "ok" else result["verdict"] + (result["message"] and ": " + result["message"] or "")
    status = 0 if result["verdict"] == "ok" else result["exit_code"] or result["signal"] or result["verdict"]
    return Ended(status, result["stdout"], result["stderr"], said)


def outside(row, folder, data, tree):
    """The same on the same files, with the environment of the policy and without its filter and limits."""
    seconds = row.get("seconds", SECONDS)
    with open(os.path.join(POLICIES, "default.json"), encoding="utf-8") as file:
        default = json.load(file)
    hosts = os.path.join(folder, "hosts")
    with open(os.path.join(tree, "etc/hosts"), encoding="utf-8") as theirs, open(hosts, "w", encoding="utf-8") as ours:
        ours.write(theirs.read() + "127.0.1.1 %s\n" % default["hostname"])
    words = ["bwrap", "--unshare-all", "--unshare-user", "--die-with-parent", "--new-session", "--uid", "1000", "--gid", "1000",
             "--hostname", default["hostname"], "--ro-bind", tree, "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp",
             "--tmpfs", "/run", "--ro-bind", hosts, "/etc/hosts",
             "--bind", data, "/mnt/data", "--chdir", "/mnt/data", "--clearenv"]
    for name, value in {**default["environment"], **row.get("environment", {}), **row.get("control", {})}.items():
        words += ["--setenv", name, value]
    if "npm" in row:
        words += ["--ro-bind", os.path.join(FOLDER, row["npm"]), "/opt/npm"]
    return _run(words + ["/bin/bash", "-ec", row["run"]], seconds)


def _run(words, seconds):
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=seconds, check=False)
    except subprocess.TimeoutExpired as late:
        return Ended("none after %d seconds" % seconds, *((text or b"").decode(errors="replace") for text in (late.stdout, late.stderr)))
    return Ended(done.returncode, done.stdout, done.stderr)


def empty(folder, name):
    path = os.path.join(folder, name)
    if os.path.exists(path):
        shutil.rmtree(path)
    os.makedirs(path)
    return path
