"""The engine's way of running a program against the cold one: what a program can find out about itself and its sandbox has
to be the same, but for differences that are listed here, each with its reason."""
import contextlib
import ctypes
import json
import os
import re
import resource
import signal
import subprocess
import sys
import textwrap

import pytest

import engine
import support
from support import HUTCH, IMAGE, comm, open_files, status_of

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "surroundings.py")
FORKER_AND_HOLDER = "the worker is forked in: process 2 was the forker, 4 holds its memory, and it is 3"
NUMBERS = "namespaces, pipes and mounts are those of another sandbox"

# What may differ, by the path of keys in what surroundings.py prints, and why.
EXPLAINED = (
    (r"namespaces\.(cgroup|ipc|mnt|net|pid|pid_for_children|user|uts)", NUMBERS),
    (r"status\.(Pid|Tgid|NStgid|NSpid|NSpgid|NSsid)|relations|processes\.[234]|names", FORKER_AND_HOLDER),
    (r"status\.Seccomp_filters", "the zygote has a filter of its own below the worker's"),
    (r"limits\.RLIMIT_NPROC|proc\.limits", "one more, for the memory holder"),
    (r"(flags of )?descriptors\.3", "the socket that the job came by, where a cold run has the hook's pipe"),
    (r"environment\.(PYTHONPATH|HUTCH_REPORT_FD)|arguments", "the hook is built in: no site directory, no variables"),
    (r"directories\./run/hutch(/code)?|mounts", "the worker writes its script itself, to a file system of its own, and there is no hook"),
    (r"proc\.[ug]id_map", "the host id is another where each sandbox has its own"),
    (r"proc\.setgroups", "below a user namespace that denies it, as an ordinary caller's does"),
)


def compare(cold, warm, path=""):
    """Yields (path, cold, warm) for every leaf that differs."""
    if isinstance(cold, dict) and isinstance(warm, dict):
        for name in sorted(set(cold) | set(warm)):
            yield from compare(cold.get(name), warm.get(name), path + "." + name if path else name)
    elif cold != warm:
        yield path, cold, warm


def canonical(mount):
    """A mount as text, without what is another sandbox's number."""
    target, root, options, propagation, filesystem = mount
    assert not propagation, "%s is connected to the host: %r" % (target, propagation)
    return json.dumps([target, re.sub(r"/runs/\d+\.data(/[0-9a-f]{8})?$", "/runs/DATA", root), sorted(options.split(",")),
                       [re.sub(r"/proc/self/fd/\d+", "/proc/self/fd/N", re.sub(r"\b([ug]id)=\d+", r"\1=N", text)) for text in filesystem]])


def check_mounts(cold, warm):
    """The same mounts with the same options, in whatever order, and two more: a file system for the script, and below
    the caller's data directory, which a prepared sandbox gets last, the fresh one that it was prepared with, on disk or in
    memory."""
    scripts = [mount for mount in warm if mount[0] == "/run/hutch/code"]
    assert len(scripts) == 1 and {"nosuid", "nodev"} <= set(scripts[0][2].split(",")), scripts
    assert re.search(r"size=1024k,nr_inodes=\d+", scripts[0][4][2]), "memory that no limit bounds"
    data = [mount for mount in warm if mount[0] == "/mnt/data"]
    below = data[:-1]
    assert len(below) <= 1 and all(re.search(r"/runs/\d+\.data/[0-9a-f]{8}$", mount[1]) or mount[4][0] == "tmpfs" for mount in below), data
    rest = [canonical(mount) for mount in warm if mount not in scripts + below]
    assert sorted(rest) == sorted(canonical(mount) for mount in cold)


def check_named(cold, warm):
    """What is explained above, looked at more closely."""
    assert {name: value for name, value in cold["processes"].items() if name == "1"} == \
           {name: value for name, value in warm["processes"].items() if name == "1"}
    assert len(warm["processes"]) <= 3 and all(value == warm["processes"][str(warm["relations"][3])]
                                                for name, value in warm["processes"].items() if name != "1"), warm["processes"]
    assert warm["relations"][:3] == cold["relations"][:3], "leader of a group and of a session, child of init"
    assert warm["limits"]["RLIMIT_NPROC"] == [value + 1 if value >= 0 else value for value in cold["limits"]["RLIMIT_NPROC"]]
    assert warm["descriptors"]["3"] == "socket" and cold["descriptors"]["3"] == "pipe"
    assert set(warm["descriptors"]) == set(cold["descriptors"]) == {"0", "1", "2", "3"}
    assert int(warm["flags of descriptors"]["3"], 8) & 0o2000000, "the job socket is inherited by what the program executes"
    assert int(warm["status"]["Seccomp_filters"]) >= int(cold["status"]["Seccomp_filters"])
    assert warm["names"][:3] == [name.replace("/proc/2", "/proc/3") for name in cold["names"][:3]]
    assert warm["names"][3] == cold["names"][3], "working directory"
    assert warm["arguments"][0] == cold["arguments"][0], "sys.argv"
    assert warm["arguments"][1] == cold["arguments"][1], "sys.flags"
    assert warm["arguments"][2] == [entry for entry in cold["arguments"][2] if entry != "/run/hutch/site"], "sys.path"
    drop = re.compile(r"Max processes.*")
    assert drop.sub("", warm["proc"]["limits"]) == drop.sub("", cold["proc"]["limits"])
    assert warm["proc"]["setgroups"] in (cold["proc"]["setgroups"], "deny\n")
    check_mounts(cold["mounts"], warm["mounts"])


def check_same(cold, warm):
    strange = [(path, was, now) for path, was, now in compare(cold, warm)
               if not any(re.fullmatch(pattern, path) for pattern, _ in EXPLAINED)]
    assert not strange, "\n".join("%s: cold %.300r, warm %.300r" % entry for entry in strange)
    check_named(cold, warm)


def surroundings(*options, warm, script=SCRIPT, **how):
    words = [HUTCH, "run", *(["--warm"] if warm else []), "--image", IMAGE, *options, script, "an argument", "--another"]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False, **how)
    assert done.returncode == 0, (words, done.stderr)
    return json.loads(done.stdout)


OPTIONS = {
    "default": (),
    "limits": ("--memory", "300m", "--pids-limit", "17", "--cpus", "1", "--cpu-time", "9s", "--timeout", "20s"),
    "fractions of processors": ("--cpus", "1.5"),
    "strict": ("--policy", "strict"),
    "strict as far as can be": ("--policy", "{policy}"),
    "environment": ("-e", "A=1", "-e", "HOME=/mnt/data", "-e", "PYTHONDONTWRITEBYTECODE="),
    "directory": ("-w", "/usr/lib"),
    "mounts": ("--tmpfs", "/mnt/scratch:size=2m", "-v", "{folder}:/mnt/readable:ro", "-v", "{folder}:/mnt/writable"),
    "data": ("--data", "{folder}"),
    "data and mounts": ("--data", "{folder}", "-v", "{folder}:/mnt/readable:ro", "--policy", "{policy}"),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_surroundings(name, tmp_path, policy):
    folder = tmp_path / "folder"
    folder.mkdir()
    path = policy("strict", enforcement="best-effort", layers={"landlock": "try", "cgroup": "try"})
    options = [word.format(folder=folder, policy=path) for word in OPTIONS[name]]
    done = support.hutch("run", "--image", IMAGE, *options, "-c", "pass")
    if done.returncode == 125:
        pytest.skip("this policy asks for what the host does not offer: " + support.sentence(done))
    check_same(surroundings(*options, warm=False), surroundings(*options, warm=True))


def odd_caller():
    """Everything that a process hands on to what it starts, out of the ordinary."""
    libc = ctypes.CDLL(None)
    os.umask(0o077)
    os.nice(5)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))
    for name, value in ((resource.RLIMIT_STACK, 4 << 20), (resource.RLIMIT_NOFILE, 200), (resource.RLIMIT_FSIZE, 100 << 20),
                        (resource.RLIMIT_CORE, 1 << 20), (resource.RLIMIT_MEMLOCK, 32 << 10)):
        resource.setrlimit(name, (value, value))
    libc.prctl(29, 1000000, 0, 0, 0)  # PR_SET_TIMERSLACK
    libc.personality(0x0040000)  # ADDR_NO_RANDOMIZE
    libc.syscall(251 if support.platform_is_x86() else 30, 1, 0, 3 << 13)  # ioprio_set: idle
    with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("300")
    with open("/proc/self/coredump_filter", "w", encoding="ascii") as file:
        file.write("0x1")
    libc.syscall(250 if support.platform_is_x86() else 219, 1, None)  # keyctl: a session keyring of its own
    os.setsid()
    os.dup2(0, 9)
    os.set_inheritable(9, True)


def test_surroundings_of_an_odd_caller():
    cold, warm = (surroundings(warm=path, preexec_fn=odd_caller) for path in (False, True))
    assert cold["priority"][0] == min(5 + os.getpriority(os.PRIO_PROCESS, 0), 19) and cold["limits"]["RLIMIT_NOFILE"] == [200, 200], "the caller was not that odd"
    # A fresh data directory that many sandboxes come to have does not depend on the umask; above it is one of mode 0700.
    for found in (cold, warm):
        assert found["directories"]["/mnt/data"][0][0] in ("0o40700", "0o40755")
        del found["directories"]["/mnt/data"]
    check_same(cold, warm)


def test_surroundings_of_a_run_that_executes():
    """The host's network cannot be joined by a worker: such a run is executed in its sandbox like a cold one, and there
    is no difference but the numbers."""
    cold, warm = (surroundings("--policy", "trusted", warm=path) for path in (False, True))
    for found in (cold, warm):
        del found["network"], found["proc"]["setgroups"]
        found["mounts"] = sorted(canonical(mount) for mount in found["mounts"])
    strange = [entry for entry in compare(cold, warm) if not re.fullmatch(EXPLAINED[0][0] + r"|proc\.[ug]id_map", entry[0])]
    assert not strange, strange


SEAL = """
import os, sys
sys.path.insert(0, sys.argv[1])
import seal
fds, before = os.listdir("/proc/self/fd"), seal.free_blocks()
seal.fill()
assert os.listdir("/proc/self/fd") == fds
sizes = [size for size, n in before]
assert len(sizes) > 20 and sizes == sorted(sizes) and sum(n for size, n in before) > 0, before
for (size, n), objects in zip(before, seal.held):
    assert all(size - 16 < sys.getsizeof(one) <= size for one in objects[:1]), (size, objects[:1])
assert sum(map(len, seal.held)) >= 20
sys.stderr.write("end")
"""


def test_free_blocks_of_the_zygote_are_filled():
    """Nothing of what is asked for that is shown, and no descriptor stays; bench/versions shows what it is good for."""
    done = subprocess.run([sys.executable, "-c", SEAL, os.path.join(support.TREE, "rootfs/python/zygote")], capture_output=True, check=False,
                          env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"end"), done
    none = subprocess.run([sys.executable, "-c", "import sys; sys.path.insert(0, sys.argv[1]); import seal; seal.fill(); print(seal.held)",
                           os.path.join(support.TREE, "rootfs/python/zygote")], capture_output=True, check=False,
                          env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONMALLOC": "malloc"})
    assert (none.returncode, none.stdout, none.stderr) == (0, b"[]\n", b""), "another allocator has nothing to fill"


def test_objects_of_the_zygote_are_immortal():
    """Where Python has immortal objects; the program's own are as ever."""
    code = """
        import gc, os, sys, weakref
        class Mine: pass
        mine = Mine()
        seen = weakref.ref(mine)
        before = sys.getrefcount(mine), sys.getrefcount(Mine) < 100
        del mine
        print(sys.version_info[:2] in ((3, 12), (3, 13)), 0xffffffff == sys.getrefcount(os) == sys.getrefcount(os.path.join), before, seen() is None)
        gc.collect()
        ring = []
        ring.append(ring)
        del ring
        print(gc.collect())
    """
    with engine.Engine() as warm:
        result = warm.run(textwrap.dedent(code))
    words = result["stdout"].split()
    assert result["verdict"] == "ok" and words == [words[0], words[0], "(2,", "True)", "True", "1"], result


def test_nothing_carries_over(tmp_path):
    """Runs of one engine, one after the other: each is like the first, whatever those before it changed."""
    spoil = ("import os, resource, signal\nos.umask(0o777)\nos.environ['LEFT'] = 'yes'\nos.nice(7)\nos.chdir('/')\n"
             "for n in signal.valid_signals():\n  try: signal.signal(n, signal.SIG_IGN)\n  except OSError: pass\n"
             "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\nresource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))\n"
             "resource.setrlimit(resource.RLIMIT_CPU, (5, 5))\n"
             "for top in ('/tmp', '/dev/shm', '/mnt/data', '/run/hutch/code'): open(top + '/left', 'w').write('left')\n")
    with open(SCRIPT, encoding="utf-8") as file:
        look = file.read()
    with engine.Engine(max_running=1, zygotes=(("bare", None, (), 1, 1),)) as warm:
        first = json.loads(warm.run(look, name="surroundings.py")["stdout"])
        for _ in range(3):
            done = warm.run(spoil)
            assert done["verdict"] == "ok", done["stderr"]
            found = list(compare(first, json.loads(warm.run(look, name="surroundings.py")["stdout"])))
            # The process 4 is the holder of memory, which a sandbox may be without.
            strange = [entry for entry in found if not re.fullmatch(r"namespaces\..*|mounts|proc\.[ug]id_map", entry[0]) and
                       not (entry[0] == "processes.4" and None in entry[1:])]
            assert not strange, strange


# --------------------------------------------------------------------------------------------------
# One engine for all that follows

@pytest.fixture(scope="module")
def shared():
    support.become_subreaper()
    with engine.Engine(max_running=4, zygotes=(("bare", None, (), 2, 4),)) as warm:
        warm.settle()
        yield warm


@pytest.fixture
def warm(shared):
    """The shared engine; after the test it has to be as before: it works, and nothing has piled up."""
    before = shared.settle()
    processes, groups = count_processes(), count_groups()
    yield shared
    assert shared.run("print('works')")["stdout"] == "works\n"
    after = shared.settle()
    assert after["prepared"] <= 4
    shared.until(lambda: count_processes() - processes <= 3 * max(0, after["prepared"] - before["prepared"]), what="no process is left")
    shared.until(lambda: count_groups() - groups <= max(0, after["prepared"] - before["prepared"]), what="no control group is left")


def count_processes():
    """Below this one, memory holders aside."""
    reap()
    count = 0
    for pid in support.descendants(os.getpid()):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            count += status_of(pid)["SigBlk"] != [support.MEMORY_HOLDER_BLOCKS]
    return count


def count_groups():
    """Below the group of this process's engine."""
    group = support.engine_cgroup(os.getpid())
    return sum(len(names) for _, names, _ in os.walk(group)) if group else 0


def reap():
    """Takes the zombies that fall to a subreaper; the engine's own child is the engine's."""
    for pid, (parent, state) in support.process_table().items():
        if parent == os.getpid() and state == "Z" and comm(pid) != "hutch-launcher":
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                pass


def workers():
    """All workers and memory holders, prepared ones too: two pid namespaces below ours."""
    found = []
    for pid in support.descendants(os.getpid()):
        try:
            if comm(pid).startswith("python") and len(status_of(pid)["NSpid"]) > 2:
                found.append(pid)
        except (FileNotFoundError, ProcessLookupError):
            pass
    return found


READY = "print('ready', flush=True)\n"


def sandbox_of(warm, code, **how):
    """A run that has said "ready", with the pids of its init, worker and memory holder as the host has them."""
    known = support.descendants(os.getpid())
    run = warm.run_streaming("import os\nprint('ns', os.readlink('/proc/self/ns/pid'), flush=True)\n" + READY + code, **how)
    namespace = run.output[1].split()[1].decode()
    found = {}
    for pid in known | support.descendants(os.getpid()):
        try:
            if os.readlink("/proc/%d/ns/pid" % pid) == namespace:
                found[int(status_of(pid)["NSpid"][-1])] = pid
        except OSError:
            pass  # gone, or not for us to look at, as init is for an ordinary user
    found.pop(1, None)
    worker = min(found)
    return run, {"worker": found[worker], "holder": found.get(worker + 1), "init": int(status_of(found[worker])["PPid"][0])}


# --------------------------------------------------------------------------------------------------
# Limits of one request

MIB = 1 << 20
WRITES = "import os\nfor n in range(64):\n  open('/mnt/data/%d' % n, 'wb').write(b'x' * (1 << 20))\nimport time; time.sleep(3)"

LIMITED = {
    "wall": ("import time; time.sleep(60)", {"wall_ms": 300}, "timeout"),
    "wall, of one that ignores it": ("import signal, time\nsignal.signal(15, signal.SIG_IGN)\ntime.sleep(60)", {"wall_ms": 300}, "timeout"),
    "wall, stopped": ("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)", {"wall_ms": 300}, "timeout"),
    "cpu": ("while True: pass", {"cpu_ms": 400}, "cpu_time"),
    "cpu, of children": ("import os\nfor _ in range(3): os.fork()\nwhile True: pass", {"cpu_ms": 700}, "cpu_time"),
    "cpu, of children that end": ("import os, time\nwhile True:\n  if os.fork() == 0:\n    end = time.process_time() + 0.1\n"
                                  "    while time.process_time() < end: pass\n    os._exit(0)\n  os.wait()", {"cpu_ms": 700}, "cpu_time"),
    "output": ("while True: print('x' * 1000)", {"output_bytes": 100000}, "output_limit"),
    "data": (WRITES, {"data_bytes": 8 * MIB}, "denied killed out_of_memory output_limit error"),
    "files": ("for n in range(10**6): open('/mnt/data/%d' % n, 'w')", {"data_files": 1000}, "denied killed output_limit error"),
    "size of a file": ("open('/mnt/data/x', 'wb').write(b'x' * (8 << 20))", {"file_bytes": MIB}, "error killed"),
    "memory": ("x = bytearray(b'x') * (300 << 20)\nprint('has it')", {"memory_bytes": 64 * MIB}, "out_of_memory error"),
    "memory, of children": ("import os, time\nfor _ in range(6):\n  if os.fork() == 0:\n    x = bytearray(b'x') * (30 << 20); time.sleep(20)\n"
                            "time.sleep(20)", {"memory_bytes": 96 * MIB}, "out_of_memory"),
    "processes": ("import os, signal\nn = 0\ntry:\n  while n < 50:\n    if os.fork() == 0: signal.pause()\n    n += 1\n"
                  "except OSError: print(n)\nraise SystemExit(n > 8)", {"pids": 8}, "ok"),
}


@pytest.mark.parametrize("name", LIMITED)
def test_limit(warm, name):
    code, limits, verdicts = LIMITED[name]
    result = warm.run(code, **dict({"wall_ms": 20000}, **limits))
    assert result["verdict"] in verdicts.split(), (result["verdict"], result["message"], result["stderr"][-300:])
    assert "has it" not in result["stdout"]


def test_limits_that_are_not_reached(warm):
    """Just below each of them: nothing is counted twice, least of all what the worker shares with the zygote or its memory holder."""
    result = warm.run("x = bytearray(b'x') * (80 << 20)\nimport time\ntime.sleep(0.4)\nprint('x' * 90000)\n"
                      "open('/mnt/data/x', 'wb').write(b'x' * 900000)",
                      memory_bytes=100 * MIB, output_bytes=100000, file_bytes=1000000, data_bytes=MIB, wall_ms=15000, cpu_ms=5000)
    assert result["verdict"] == "ok", (result["message"], result["stderr"])


@pytest.mark.parametrize("name", ["wall_ms", "memory_bytes", "pids", "cpus", "output_bytes", "data_bytes", "data_files",
                                  "file_bytes"])
def test_limit_above_the_policy(warm, name):
    """A request may only ask for less."""
    with pytest.raises(engine.Failure) as refusal:
        warm.submit("pass", **{name: 1 << 62})
    assert refusal.value.code == 22 and name in str(refusal.value)


# --------------------------------------------------------------------------------------------------
# /mnt/data of the caller's, mounted when the sandbox is there already

def test_data_directory(warm, data):
    (data / "in").write_text("input")
    result = warm.run("print(open('in').read())\nopen('out', 'w').write('output')\n"
                      "print([l.split()[5] for l in open('/proc/self/mountinfo') if ' /mnt/data ' in l][-1])", data_dir=data)
    assert result["stdout"].startswith("input\n") and (data / "out").read_text() == "output"
    assert support.paths(result["files"]["added"]) == ["out"]
    assert {"rw", "nosuid", "nodev"} <= set(result["stdout"].split()[1].split(","))
    assert (data / "out").stat().st_uid == data.stat().st_uid


MANY_FILES = """
import os
for n in range(300): os.unlink('old%d' % n)
for n in range(300, 400): open('old%d' % n, 'w').write('more')
for n in range(700): open('new%d' % n, 'w').write('%d' % n)
os.makedirs('a/b'); open('a/b/picture.png', 'wb').write(b'PNG'); os.symlink('b', 'a/link'); os.mkfifo('a/fifo')
open('a/b/guess', 'wb').write(b'\\x89PNG\\r\\n\\x1a\\n'); open(b'a/\\xff', 'w').close()
os.mkdir('closed'); open('closed/in', 'w').write('in'); os.chmod('closed', 0)
"""


@pytest.mark.parametrize("is_kept", [True, False])
def test_many_files(warm, tmp_path, is_kept):
    """What the disk worker has found, as there is too much for the loop: the same as a cold run tells."""
    found = []
    for name in ("cold", "warm"):
        folder = tmp_path / name
        folder.mkdir()
        code = "for n in range(800): open('old%d' % n, 'w').write('old')\n" * is_kept + MANY_FILES
        for n in range(0 if is_kept else 800):
            (folder / ("old%d" % n)).write_text("old")
        if name == "cold":
            result = support.run_json("--data", str(folder), "-c", code)
        else:
            result = warm.run(code, **({"keep_data": True} if is_kept else {"data_dir": folder}))
        assert result["verdict"] == "ok", result
        files, folder = result["files"], result["files"].pop("directory")
        found.append({what: [{key: value for key, value in entry.items() if key != "mtime"} for entry in entries]
                      if isinstance(entries, list) else entries for what, entries in files.items()})
        assert os.listdir(os.path.join(folder, "closed")) == ["in"]
    assert found[0] == found[1]
    assert (len(found[1]["added"]), len(found[1]["modified"]), len(found[1]["deleted"])) == ((1206, 0, 0) if is_kept else (706, 100, 300))


def test_many_files_over_the_limit(warm):
    """The count that ends a run while it goes on, and the one that no run escapes by its end."""
    code = "for n in range(900): open('f%d' % n, 'w').close()\n"
    for rest in ("import time; time.sleep(60)", ""):
        result = warm.run(code + rest, data_files=800, keep_data=True)
        assert (result["verdict"], result["files"]["directory"]) == ("output_limit", None), result
        assert "800 files" in result["message"]


def test_data_directory_opens_nothing_else(warm, data):
    """The Landlock rule for a directory that is mounted later is about /mnt: all else there is as read-only as ever."""
    code = ("import os\ndef attempt(what, *args):\n  try: what(*args); print('DONE', args)\n  except OSError as e: print(e.errno)\n"
            "attempt(os.mkdir, '/mnt/x')\nattempt(open, '/mnt/x', 'w')\nattempt(os.rmdir, '/mnt/data')\nattempt(os.chmod, '/mnt', 0o777)\n"
            "attempt(os.rename, '/mnt/data', '/mnt/x')\nattempt(os.symlink, '/etc', '/mnt/x')\nattempt(os.mkfifo, '/mnt/x')\n"
            "open('/mnt/data/f', 'w')\nattempt(os.link, '/mnt/data/f', '/mnt/f')\nattempt(os.rename, '/mnt/data/f', '/mnt/f')\n"
            "attempt(os.rename, '/mnt/data/f', '/tmp/f')\nattempt(os.mknod, '/mnt/data/null', 0o20666, os.makedev(1, 3))\n")
    for options in ({}, {"data_dir": data}):
        result = warm.run(code, **options)
        assert result["verdict"] == "ok", result["stderr"]
        assert "DONE" not in result["stdout"] and result["stdout"].count("\n") == 11, result["stdout"]


@pytest.mark.parametrize("kind", ["a file", "a FIFO", "nothing", "a link to nothing", "no name", "hutch's own", "a device"])
def test_data_directory_that_is_none(warm, tmp_path, kind):
    path = str(tmp_path / "x")
    if kind == "a file":
        open(path, "w", encoding="ascii").close()
    elif kind == "a FIFO":
        os.mkfifo(path)
    elif kind == "a link to nothing":
        os.symlink("nowhere", path)
    elif kind == "no name":
        path = ""
    elif kind == "hutch's own":
        path = os.path.join(support.hutch_home(), "runs")
    elif kind == "a device":
        path = "/dev/null"
    with pytest.raises(engine.Failure) as refusal:
        warm.submit("open('/mnt/data/ran', 'w')", data_dir=path)
    assert refusal.value.code in (2, 20, 22, 1) or "own" in str(refusal.value), (refusal.value.code, str(refusal.value))


def test_data_directory_behind_a_link(warm, tmp_path, data):
    """The caller's own link is his way to say where."""
    link = tmp_path / "link"
    link.symlink_to(data)
    assert warm.run("open('made', 'w')", data_dir=link)["verdict"] == "ok"
    assert (data / "made").exists()


@pytest.mark.parametrize("swap", ["link", "fifo", "file", "gone"])
def test_data_directory_that_another_run_swaps(warm, data, tmp_path, swap):
    """A directory inside of another run's data, which that run replaces when this one is on its way: never does it get
    what the replacement leads to."""
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "secret").write_text("secret")
    inner = data / "inner"
    inner.mkdir()
    # The first run lasts until it has swapped; the second was accepted before, and gets its place.
    act = {"link": "os.symlink(%r, 'inner')" % str(victim), "fifo": "os.mkfifo('inner')", "file": "open('inner', 'w')", "gone": "pass"}
    fill = [warm.submit("import time; time.sleep(25)") for _ in range(3)]
    first = warm.submit("import os, time\ntime.sleep(0.2)\nos.rename('inner', 'moved')\n%s" % act[swap], data_dir=data)
    second = warm.submit("import os; print(os.listdir('/mnt/data'))\nopen('/mnt/data/mark', 'w')", data_dir=inner)
    results = warm.wait(first, second)
    for run in fill:
        warm.cancel(run)
    warm.wait(*fill)
    assert results[0]["verdict"] == "ok", results[0]["stderr"]
    assert results[1]["verdict"] == "setup_failed" and results[1]["message"], results[1]
    assert os.listdir(victim) == ["secret"] and "secret" not in results[1]["stdout"]


def test_data_directory_that_goes_away(warm, tmp_path):
    """Removed by the caller himself while the run is at work."""
    folder = tmp_path / "folder"
    folder.mkdir()
    code = ("import os, time\nwhile os.stat('.').st_nlink: time.sleep(0.01)\n"
            "try: open('/mnt/data/x', 'w')\nexcept OSError as e: print(e.errno)")
    run = warm.run_streaming(READY + code, data_dir=folder)
    folder.rmdir()
    result = warm.wait(run)
    assert result["verdict"] == "ok", result["message"]


# --------------------------------------------------------------------------------------------------
# From outside

def test_all_of_a_sandbox_is_in_its_group(warm):
    """Init, worker, memory holder, and whatever the program starts."""
    support.need("delegation")
    run, pids = sandbox_of(warm, "import subprocess\nchildren = [subprocess.Popen(['sleep', '20']) for _ in range(3)]\n"
                                 "print('all', flush=True)\nimport time; time.sleep(20)")
    warm.until(lambda: b"all\n" in run.output[1])
    members = [pids["init"], *support.descendants(pids["init"])]
    groups = set()
    for pid in members:
        with open("/proc/%d/cgroup" % pid, encoding="ascii") as file:
            groups |= {line.strip()[3:] for line in file if line.startswith("0::")}
    assert len(members) >= 5 + (pids["holder"] is not None) and len(groups) == 1, (members, groups)
    name = groups.pop()
    assert os.path.basename(name).startswith("hutch-"), name
    with open("/proc/%d/cgroup" % warm.zygote_pid(), encoding="ascii") as file:
        assert "0::" + name + "\n" not in file.read(), "the zygote is in a sandbox's group"
    warm.cancel(run)
    assert warm.wait(run)["verdict"] == "killed"
    mount = support.cgroup2_mount()
    warm.until(lambda: not os.path.exists(mount + name), what="the group is gone")


# Holds as many descriptors on their way as its first argument says, until its standard input ends.
FLOOD = """
import array, resource, socket, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
ends = []
for _ in range(int(sys.argv[1]) // 250 + 1):
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    one.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [one.fileno()] * 250))])
    ends += one, other
print("full", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(support.is_root(), reason="root has no such limit")
def test_descriptors_on_their_way(warm, tmp_path):
    """The kernel counts for all processes of a user together how many descriptors are on their way through sockets, and
    refuses more than the soft limit of the sender on open files. What the engine sends goes through all the same, and
    the limit of the program that embeds it stays as it was."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = 600
    directories = [tmp_path / str(i) for i in range(6)]
    for directory in directories:
        directory.mkdir()
    warm.run("1")
    with subprocess.Popen([sys.executable, "-c", FLOOD, str(few + 400)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as flood:
        assert flood.stdout.readline() == b"full\n"
        resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))
        try:
            runs = [warm.submit("echo made > /mnt/data/made", language="sh", data_dir=directory) for directory in directories]
            assert [result["verdict"] for result in warm.wait(*runs)] == ["ok"] * len(runs)
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == (few, hard)
            assert flood.poll() is None
        finally:
            flood.stdin.close()
            flood.wait(timeout=20)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert [(directory / "made").read_text() for directory in directories] == ["made\n"] * len(runs)


# Processes that are held at a page that is not in memory, while they send, have all passed the kernel's check before one
# of them is counted.
GREEDY = """
import array, mmap, os, socket, time
page = os.open("page", os.O_RDWR | os.O_CREAT)
try:  # past the pages in memory
    direct = os.open("page", os.O_RDWR | os.O_DIRECT)
    os.write(direct, mmap.mmap(-1, 1 << 20))
except OSError: os.write(page, bytes(1 << 20))
text = memoryview(mmap.mmap(page, 1 << 20, mmap.MAP_SHARED, mmap.PROT_READ))[:4096]
gate, opener = os.pipe()
for _ in range(55):
    if os.fork() == 0:
        os.close(opener)
        one, other = socket.socketpair()
        os.read(gate, 1)
        for _ in range(200):
            try: one.sendmsg([text], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [gate] * 253))])
            except OSError: time.sleep(0.02)
        time.sleep(5)
os.close(opener)
time.sleep(8)
os._exit(0)
"""


def test_who_sends_too_many_descriptors_is_ended(warm, data):
    """The message lies in a file that is read from the disk, which takes time; of a file in memory no page is waited for. How many pass the
    kernel's check at once is chance, on a busy machine above all: it is tried some times."""
    for _ in range(5):
        result = warm.run(GREEDY, data_dir=str(data))
        if result["verdict"] != "ok":
            break
    assert result["verdict"] == "killed" and "descriptors were on their way" in result["message"], (result["verdict"], result["message"])


# One socket with 200 descriptors that six processes share, among more sockets than a sample remembers.
SHARED = """
import os, socket, time
kept = []
for _ in range(45):
    if os.fork() == 0:
        kept = [socket.socketpair() for _ in range(110)]
        time.sleep(4)
        os._exit(0)
time.sleep(2)
one, other = socket.socketpair()
null = os.open("/dev/null", 0)
socket.send_fds(one, [b"x"], [null] * 200)
for _ in range(6):
    if os.fork() == 0:
        time.sleep(1.5)
        os._exit(0)
one.close()
other.close()
time.sleep(1.5)
"""


def test_descriptors_that_processes_share_count_once(warm):
    result = warm.run(SHARED)
    assert result["verdict"] == "ok", result


STATE_OF_INIT = """with open("/proc/1/status") as file: state = dict(line.split(":", 1) for line in file)
with open("/proc/1/stat") as file: session = file.read().rpartition(")")[2].split()[3]
try: reached = open("/proc/1/environ").read()
except PermissionError: reached = None
print([int(state[name], 16) for name in ("CapPrm", "CapEff", "CapInh", "CapAmb", "CapBnd")], state["NoNewPrivs"].strip(),
      state["Seccomp"].strip(), session, reached)"""


def test_init_is_confined_before_the_first_instruction(warm, data):
    """One in five saw an init with all capabilities, when init was told to drop them and did not say that it had."""
    for i in range(60):
        options = {"data_dir": str(data)} if i % 6 == 5 else {}
        result = warm.run(STATE_OF_INIT, **options)
        assert result["stdout"] == "[0, 0, 0, 0, 0] 1 2 1 None\n", (i, result)


def test_processes_of_the_engine(warm):
    """What they hold: the zygote has nothing but its socket and no rights; none has a descriptor, a variable or the
    terminal of the caller's."""
    zygote = warm.zygote_pid()
    state = status_of(zygote)
    assert all(int(state[name][0], 16) == 0 for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")), state
    assert state["NoNewPrivs"] == ["1"] and state["Seccomp"] == ["2"] and state["Threads"] == ["1"]
    assert state["Uid"] == [str(support.host_uids()[0])] * 4, state["Uid"]
    below = {pid for pid in support.descendants(os.getpid()) if comm(pid) in ("hutch-launcher", "hutch-anchor", "hutch-init")}
    assert len(below) >= 4
    for pid in below | {zygote}:
        try:
            state = status_of(pid)
            assert len(state["NSpid"]) > 1 or comm(pid) == "hutch-launcher"
            links = open_files(pid)
            with open("/proc/%d/environ" % pid, "rb") as file:
                environment = file.read()
        except (PermissionError, FileNotFoundError, ProcessLookupError):
            continue  # not dumpable: that goes for sandboxed code as well; or gone
        strange = {fd: target for fd, target in links.items()
                   if not target.startswith(("socket:", "anon_inode:", "pipe:", "/dev/null", "/memfd:", "/sys/fs/cgroup", "/proc", "/ (deleted)")) and
                   not target.endswith("(deleted)") and fd > 2 and comm(pid) != "hutch-launcher" and
                   (comm(pid), target) != ("hutch-init", "/shm/meminfo")}  # the sandbox's own /proc/meminfo
        assert not strange, (comm(pid), strange)
        assert b"PYTEST_CURRENT_TEST" not in environment, comm(pid)
    links = warm.zygote_files() if os.access("/proc/%d/fd" % zygote, os.R_OK) else {}
    assert set(links) <= {0, 1, 2, 3}, links


@pytest.mark.parametrize("who", ["worker", "init", "holder"])
def test_killed_from_outside(warm, who):
    """Somebody else's SIGKILL in the middle of a run. No run depends on the memory holder."""
    seconds = 5 if who == "holder" else 60
    run, pids = sandbox_of(warm, "import time; time.sleep(%d); print('end')" % seconds, wall_ms=25000)
    if pids[who] is None:
        pytest.skip("nothing holds the memory on this architecture")
    os.kill(pids[who], signal.SIGKILL)
    result = warm.wait(run)
    assert run.results == 1
    if who == "holder":
        assert result["verdict"] == "ok" and run.output[1].endswith(b"end\n"), result
    else:
        assert result["verdict"] == "killed" and result["message"], result
        assert b"end" not in run.output[1]


@pytest.mark.parametrize("who", ["worker", "init"])
def test_stopped_from_outside(warm, who):
    """Neither can a stopped process keep a run beyond its time."""
    run, pids = sandbox_of(warm, "import time; time.sleep(60)", wall_ms=5000)
    os.kill(pids[who], signal.SIGSTOP)
    assert warm.wait(run)["verdict"] == "timeout"


def signal_workers(number):
    for pid in workers():
        with contextlib.suppress(ProcessLookupError):  # its sandbox was already on its way out
            os.kill(pid, number)


def test_prepared_and_killed(warm):
    """A worker that dies while it waits for a job: the next run does not notice."""
    for _ in range(2):
        warm.settle()
        signal_workers(signal.SIGKILL)
        results = warm.wait(*[warm.submit("print(%d)" % number) for number in range(4)])
        assert [result["stdout"] for result in results] == ["0\n", "1\n", "2\n", "3\n"], results


def test_prepared_and_stopped(warm):
    """A worker that waits and is stopped: its run gets a result all the same, when its time is over."""
    warm.settle()
    signal_workers(signal.SIGSTOP)
    results = warm.wait(*[warm.submit("print(1)", wall_ms=4000) for _ in range(6)])
    assert {result["verdict"] for result in results} <= {"ok", "timeout"}
    for result in results:
        assert (result["verdict"] == "ok") == (result["stdout"] == "1\n")


def test_zygote_is_killed(warm):
    """While runs come in: each has its result, and there is another zygote."""
    before = warm.zygote_pid()
    runs = [warm.submit("print(1)") for _ in range(10)]
    os.kill(before, signal.SIGKILL)
    runs += [warm.submit("print(1)") for _ in range(10)]
    assert {result["stdout"] for result in warm.wait(*runs)} == {"1\n"}
    assert warm.settle()["zygotes"][0]["pid"] not in (0, before)


# --------------------------------------------------------------------------------------------------
# The engine's end

CHILD = """
import os, sys
sys.path.insert(0, %r)
import engine
warm = engine.Engine(zygotes=(("bare", None, (), 2, 4),))
warm.settle()
runs = [warm.run_streaming("print('ready', flush=True)\\nimport os, time\\nif os.fork() == 0: os.setsid()\\ntime.sleep(60)") for _ in range(2)]
if %d and os.fork() == 0:
    import signal
    print(os.getpid(), flush=True)
    signal.pause()
elif not %d:
    print(0, flush=True)
sys.stdin.read()
"""


UNREAD = """
import sys, time
sys.path.insert(0, %r)
import engine
text = b"x" * (1 << 20)
with engine.Engine() as one:
    one.run("print(1)")
    for _ in range(4):
        run = one.submit("import os, time\\nprint('ready', flush=True)\\nif os.fork() == 0: time.sleep(60)\\ntime.sleep(0.02)\\nos._exit(0)",
                         stream=True, input=text, input_len=len(text))
        while b"ready" not in run.output[1]:
            one.dispatch(0.2)
        time.sleep(1)
        one.wait(run)
        assert run.result["verdict"] == "ok", run.result
print("done")
"""


def test_events_of_a_run_that_is_over():
    """Its end and the end of the pipe that its input goes to come in one turn: what is freed by the first is not called by the second."""
    engine.library()
    done = subprocess.run(["/usr/bin/python3", "-c", UNREAD % support.TESTS], stdout=subprocess.PIPE, timeout=120, check=False,
                          env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "MALLOC_PERTURB_": "85"})
    assert (done.returncode, done.stdout) == (0, b"done\n")


@pytest.mark.parametrize("has_child", [0, 1], ids=["alone", "with a child that holds copies of all sockets"])
def test_engine_is_killed(has_child):
    """With its process goes everything at once, and what lies about is for the next start."""
    engine.library()
    support.become_subreaper()
    before = support.descendants(os.getpid())
    process = subprocess.Popen(["/usr/bin/python3", "-c", CHILD % (support.TESTS, has_child, has_child)], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
    child = int(process.stdout.readline())
    group = support.engine_cgroup(process.pid)
    process.kill()
    process.wait()
    try:
        deadline = engine.time.monotonic() + 10
        while support.descendants(os.getpid()) - before - {child} and engine.time.monotonic() < deadline:
            engine.time.sleep(0.02)
        left = {pid: comm(pid) for pid in support.descendants(os.getpid()) - before - {child}}
        assert not left, left
    finally:
        if child:
            os.kill(child, signal.SIGKILL)  # it has the lock of the engine's state, too
            os.waitpid(child, 0)
        process.stdin.close()
        process.stdout.close()
    assert support.run("-c", "print(1)").stdout == b"1\n"
    assert support.dead_runs() == [] and not (group and os.path.exists(group)), "the next start sweeps"
