"""User-mode Linux: which kernels there are, whether one boots, and what an init prints in it."""
import os
import re
import shutil
import signal
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
PROBE_SECONDS = 60
FETCH_SECONDS = 3600  # with --build it compiles


class Kernel:
    """One kernel: its program and the folder of its modules, or the reason why it is not to be had."""

    def __init__(self, name, program, modules="", reason=""):
        self.name, self.program, self.modules, self.reason = name, program, modules, reason


def find(folder, build=False):
    """The kernels, the best first: what tests/uml/kernels prints."""
    done = subprocess.run([os.path.join(HERE, "kernels")] + ["--build"] * build + [folder], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, text=True, timeout=FETCH_SECONDS, check=False)
    found = []
    for line in done.stdout.splitlines():
        name, program, rest = line.split("\t")
        found.append(Kernel(name, program, modules=rest) if program else Kernel(name, "", reason=rest))
    return found


def boot(kernel, init, folder, seconds, **variables):
    """Boots with @init, which gets the variables as its environment, and returns what the machine printed. @folder is for
    what the kernel itself leaves."""
    words = [kernel.program, "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "rw", "mem=2G", "init=" + init,
             "con=null", "con0=null,fd:1", "con1=fd:0,fd:1", "quiet", "uml_dir=" + folder + "/"]
    words += ["hutch_%s=%s" % pair for pair in sorted(variables.items())]
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               env={"HOME": folder, "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
                                    "TMPDIR": "/dev/shm"},
                               cwd=folder, start_new_session=True)
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        output += b"\nthe machine did not power off within %d s\n" % seconds
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return output.decode("utf-8", "replace").replace("\r", "")


def probe(kernel, folder):
    """Boots once. Returns the kernel's release, or None, and then .reason is the last line that it said."""
    init = os.path.join(folder, "probe.sh")
    shutil.copy(os.path.join(HERE, "probe.sh"), init)
    try:
        text = boot(kernel, init, folder, PROBE_SECONDS)
    except OSError as error:
        text = str(error)
    match = re.search(r"^UML boots (\S+)$", text, re.MULTILINE)
    if match:
        return match[1]
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    kernel.reason = "does not boot: " + (lines[-1] if lines else "it said nothing")
    return None
