"""--gpu: what of a host's driver is found and is inside, and what is refused. No machine of the tests has a GPU: below
a root of their own stand files in for the nodes, or device nodes of another driver, and files for the libraries."""
import json
import os
import struct
import subprocess

import pytest

import support
from support import run, run_json

DRIVER = "535.104.05"
LIB = "/usr/lib/aarch64-linux-gnu" if os.uname().machine == "aarch64" else "/usr/lib/x86_64-linux-gnu"
FLAGS = 0x0a03 if os.uname().machine == "aarch64" else 0x0303
NODES = ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
LIBRARIES = ("libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler")
FOUND = ["/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"]


@pytest.fixture(autouse=True)
def sandboxes():
    support.need("userns")


def write(path, text, mode=0o644):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, mode)


def write_cache(root, *libraries):
    """ld.so.cache as glibc's ldconfig writes it; a library is its name and its path."""
    names, rows, begin = b"", b"", 48 + 24 * len(libraries)
    for name, path in libraries:
        rows += struct.pack("=iIIIQ", FLAGS, begin + len(names), begin + len(names) + len(name) + 1, 0, 0)
        names += name.encode() + b"\0" + path.encode() + b"\0"
    os.makedirs(root + "/etc", exist_ok=True)
    with open(root + "/etc/ld.so.cache", "wb") as file:
        file.write(b"glibc-ld.so.cache1.1" + struct.pack("=II4BI12x", len(libraries), len(names), 2, 0, 0, 0, 0))
        file.write(rows + names)


def add_libraries(root, folder=LIB, driver=DRIVER):
    for name in LIBRARIES:
        write("%s%s/%s.so.%s" % (root, folder, name, driver), "the library %s %s\n" % (name, driver))
        os.symlink("%s.so.%s" % (name, driver), "%s%s/%s.so.1" % (root, folder, name))
    return [(name + ".so.1", "%s/%s.so.1" % (folder, name)) for name in LIBRARIES]


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A host with two GPUs. pytest's own folder is closed to others, and code inside is another user."""
    top = str(tmp_path / "host")
    for name in NODES:
        write(top + "/dev/" + name, "the node %s\n" % name, 0o666)
    write_cache(top, *add_libraries(top))
    write(top + "/usr/bin/nvidia-smi", "#!/bin/sh\necho GPUs: $(ls /dev | grep -c '^nvidia[0-9]')\n", 0o755)
    monkeypatch.setenv("HUTCH_GPU_ROOT", top)
    return top


def refused(*words, **options):
    done = run("--gpu", *words, "-c", "print(1)", **options)
    assert done.returncode == 125 and done.stdout == b"", (done.stdout, done.stderr)
    return support.sentence(done)


def test_what_is_inside(root):
    result = run_json("--gpu", "-c", """if True:
        import json, os, subprocess
        gpu = "/run/hutch/gpu"
        print(json.dumps({
            "nodes": sorted(name for name in os.listdir("/dev") if name.startswith("nvidia")),
            "read": [open("/dev/" + name).read() for name in ("nvidia0", "nvidia-uvm")],
            "links": {name: os.readlink(gpu + "/" + name) for name in os.listdir(gpu)
                      if os.path.islink(gpu + "/" + name)},
            "cuda": open(gpu + "/libcuda.so.1").read(),
            "environment": os.environ["LD_LIBRARY_PATH"],
            "smi": subprocess.run(["nvidia-smi"], stdout=subprocess.PIPE).stdout.decode(),
        }))""")
    assert result["verdict"] == "ok", result["stderr"]
    inside = json.loads(result["stdout"])
    assert inside["nodes"] == sorted(NODES[:-1]), "the node of displays' modes is not asked for"
    assert inside["read"] == ["the node nvidia0\n", "the node nvidia-uvm\n"]
    assert inside["links"] == {"libcuda.so": "libcuda.so." + DRIVER,
                               **{name + ".so.1": "%s.so.%s" % (name, DRIVER) for name in LIBRARIES}}
    assert inside["cuda"] == "the library libcuda %s\n" % DRIVER
    assert inside["environment"] == "/run/hutch/gpu" and inside["smi"] == "GPUs: 2\n"
    assert result["gpu"] == {"devices": FOUND, "driver": DRIVER, "from": "/etc/ld.so.cache", "root": root,
                             "files": ["%s.so.%s" % (name, DRIVER) for name in LIBRARIES] + ["nvidia-smi"],
                             "left_out": 0}


def test_nothing_of_it_without_the_option(root):
    result = run_json("-c", "import os\n"
                      "print([n for n in os.listdir('/dev') if 'nvidia' in n], os.environ.get('LD_LIBRARY_PATH'))")
    assert result["stdout"] == "[] None\n" and "gpu" not in result


def test_all_of_it_is_read_only(root):
    result = run_json("--gpu", "-c", """if True:
        import os
        for path in ("/dev/nvidia0", "/run/hutch/gpu/libcuda.so.1", "/run/hutch/gpu/bin/nvidia-smi"):
            for act in (lambda: open(path, "w"), lambda: os.unlink(path), lambda: os.chmod(path, 0o777),
                        lambda: os.truncate(path, 0)):
                try:
                    act(); print("done", path)
                except OSError as error:
                    assert error.errno in (1, 13, 16, 30), error
        try:
            open("/dev/nvidia9", "w"); print("made")
        except OSError: pass""")
    assert (result["verdict"], result["stdout"]) == ("ok", ""), result["stderr"]
    with open(root + "/dev/nvidia0", encoding="utf-8") as node:
        assert node.read() == "the node nvidia0\n"


def test_warm_and_on_demand(root):
    """The dynamic linker of a zygote has looked in the directory before a sandbox has something there."""
    code = "import ctypes, os; print(len(os.listdir('/run/hutch/gpu')), os.environ['LD_LIBRARY_PATH'])\n" \
           "try: ctypes.CDLL('libcuda.so.1')\nexcept OSError as error: print(error)"
    result = run_json("--gpu", *([] if support.WARM else ["--warm"]), "-c", code)
    assert result["stdout"].splitlines()[0] == "8 /run/hutch/gpu", result
    assert "libcuda.so.1: file too short" in result["stdout"] or "invalid ELF header" in result["stdout"], result
    assert result["gpu"]["devices"] == FOUND


def test_environment_of_ones_own(root):
    done = run("--gpu", "-e", "LD_LIBRARY_PATH=/opt/lib", "-e", "PATH=/usr/bin",
               "-c", "import os; print(os.environ['LD_LIBRARY_PATH'], os.environ['PATH'])")
    assert done.stdout == b"/run/hutch/gpu:/opt/lib /usr/bin:/run/hutch/gpu/bin\n", done.stderr


def policy(tmp_path, **keys):
    path = str(tmp_path / "policy.json")
    write(path, json.dumps({"schema": 1, "extends": "default", **keys}))
    return path


def test_policy_with_the_node_of_modes(root, tmp_path):
    for word, more in (("compute", []), ("modeset", ["/dev/nvidia-modeset"])):
        path = policy(tmp_path, gpu=word)
        for option in ([], ["--gpu"]):
            assert run_json("--policy", path, *option, "-c", "pass")["gpu"]["devices"] == FOUND + more
    assert "gpu" not in run_json("--policy", policy(tmp_path, gpu="none"), "-c", "pass")


def test_policy_that_requires_every_layer(root, tmp_path):
    path = policy(tmp_path, enforcement="require")
    assert "option '--gpu': the policy requires every layer" in refused("--policy", path)


def test_other_places_of_libraries(root):
    """Not in the cache, or without one: where distributions have them. A library of another driver is not taken."""
    write_cache(root, ("libc.so.6", LIB + "/libc.so.6"))
    found = run_json("--gpu", "-c", "pass")["gpu"]
    assert (found["from"], found["driver"]) == (LIB, DRIVER)
    os.unlink(root + "/etc/ld.so.cache")
    assert run_json("--gpu", "-c", "pass")["gpu"] == found
    os.unlink("%s%s/libnvidia-ml.so.1" % (root, LIB))
    write("%s%s/libnvidia-ml.so.390.10" % (root, LIB), "old")
    os.symlink("libnvidia-ml.so.390.10", "%s%s/libnvidia-ml.so.1" % (root, LIB))
    assert [name for name in run_json("--gpu", "-c", "pass")["gpu"]["files"] if "ml" in name] == []


def test_capabilities_of_mig(root):
    """Those that everybody may open; what is root's alone is left out, and counted."""
    write(root + "/dev/nvidia-caps/nvidia-cap1", "", 0o400)
    write(root + "/dev/nvidia-caps/nvidia-cap2", "two", 0o444)
    result = run_json("--gpu", "-c", "import os\n"
                      "print(os.listdir('/dev/nvidia-caps'), open('/dev/nvidia-caps/nvidia-cap2').read())")
    assert result["stdout"] == "['nvidia-cap2'] two\n"
    assert result["gpu"]["devices"] == FOUND + ["/dev/nvidia-caps/nvidia-cap2"] and result["gpu"]["left_out"] == 1


@pytest.mark.parametrize("gone, says", [
    (["dev/nvidia0", "dev/nvidia1"],
     "there is no GPU of NVIDIA's that a sandbox could be handed: below '%s', '/dev/nvidia0' is not there"),
    (["dev/nvidiactl"], "'/dev/nvidiactl' is not there (nvidia-modprobe"),
    (["dev/nvidia-uvm"], "'/dev/nvidia-uvm' is not there (nvidia-modprobe"),
    (["etc/ld.so.cache", LIB[1:] + "/libcuda.so.1"],
     "the GPU's driver has no library libcuda.so.1 here: neither '/etc/ld.so.cache' nor"),
    ([LIB[1:] + "/libcuda.so." + DRIVER], "the GPU's driver has no library libcuda.so.1 here"),
], ids=["no GPU", "no control", "no memory", "no library", "a link to nothing"])
def test_what_is_missing(root, gone, says):
    for path in gone:
        os.unlink(os.path.join(root, path))
    assert (says % root if "%s" in says else says) in refused()


def test_no_gpu_on_this_host(monkeypatch):
    monkeypatch.delenv("HUTCH_GPU_ROOT", raising=False)
    if os.path.exists("/dev/nvidiactl"):
        pytest.skip("this host has a GPU")
    assert "below '/', '/dev/nvidia0' is not there" in refused()
    monkeypatch.setenv("HUTCH_GPU_ROOT", "/nowhere")
    assert refused() == "hutch: look for the GPU's driver below '/nowhere': No such file or directory"


def test_what_is_not_right(root):
    os.chmod(root + "/dev/nvidia1", 0o660)
    assert "the device node '/dev/nvidia1' has the mode 0660, so that code in a sandbox" in refused()
    os.chmod(root + "/dev/nvidia1", 0o666)
    library = "%s%s/libnvidia-ml.so.%s" % (root, LIB, DRIVER)
    os.chmod(library, 0o600)
    assert "has the mode 0600, so that code in a sandbox cannot read it" in refused()
    os.unlink(library)
    os.mkdir(library)
    assert "is not a file" in refused()
    os.rmdir(library)
    os.symlink("../../../etc/secret", library)
    write(root + "/etc/secret", "secret")
    assert "which is no library of the GPU's driver by its name" in refused()


def test_module_of_another_version(root):
    path, line = root + "/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  %s  Thu Feb 2\n"
    write(path, line % "550.54.14" + "GCC version: 12\n")
    assert "is version 550.54.14 and its libraries are version %s, which do not work" % DRIVER in refused()
    write(path, line % DRIVER)
    assert run_json("--gpu", "-c", "pass")["gpu"]["driver"] == DRIVER


@pytest.mark.parametrize("data", [b"", b"garbage" * 100, b"glibc-ld.so.cache1.1" + b"\xff" * 100],
                         ids=["empty", "garbage", "numbers"])
def test_cache_that_is_none(root, data):
    with open(root + "/etc/ld.so.cache", "wb") as file:
        file.write(data)
    assert "'/etc/ld.so.cache'" in refused()


# --------------------------------------------------------------------------------------------------
# A specification of the Container Device Interface

CDI = """---
cdiVersion: 0.5.0
containerEdits:
  deviceNodes:
  - path: /dev/nvidiactl
  - path: /dev/nvidia-uvm
  - path: /dev/nvidia-modeset
  env:
  - NVIDIA_VISIBLE_DEVICES=void
  hooks:
  - args: []
    hookName: createContainer
    path: /usr/bin/nvidia-cdi-hook
  mounts:
  - containerPath: %(lib)s/libcuda.so.%(driver)s
    hostPath: %(lib)s/libcuda.so.%(driver)s
    options:
    - ro
  - hostPath: /usr/bin/nvidia-smi
  - hostPath: /etc/secret
devices:
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia1
  name: "0"
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia1
    - path: /dev/dri/card0
  name: all
kind: nvidia.com/gpu
""" % {"lib": LIB, "driver": DRIVER}


def test_specification(root):
    """What it names is taken, but for what is no node or library of NVIDIA's."""
    write(root + "/etc/cdi/nvidia.yaml", CDI)
    write(root + "/etc/secret", "secret")
    result = run_json("--gpu", "-c", "import os; print(sorted(os.listdir('/run/hutch/gpu')))")
    assert result["gpu"] == {"devices": ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia1"], "driver": DRIVER,
                             "files": ["libcuda.so." + DRIVER, "nvidia-smi"], "from": "/etc/cdi/nvidia.yaml",
                             "root": root, "left_out": 5}, "a variable, a hook, the modes' node, the secret, a card"
    assert result["stdout"] == str(["bin", "libcuda.so", "libcuda.so.1", "libcuda.so." + DRIVER]) + "\n"


def test_specification_of_the_running_system_goes_first(root):
    write(root + "/etc/cdi/nvidia.yaml", CDI)
    write(root + "/var/run/cdi/a.json", json.dumps({"kind": "example.com/nic", "devices": []}))
    edits = {"deviceNodes": [{"path": path} for path in FOUND], "mounts": [{"hostPath": LIB + "/libcuda.so.1"}]}
    write(root + "/var/run/cdi/nvidia.json", json.dumps({"kind": "nvidia.com/gpu",
                                                         "devices": [{"name": "0", "containerEdits": edits}]}))
    found = run_json("--gpu", "-c", "pass")["gpu"]
    assert (found["from"], found["devices"]) == ("/var/run/cdi/nvidia.json", FOUND)
    assert found["files"] == ["libcuda.so." + DRIVER]


@pytest.mark.parametrize("change, says", [
    (lambda text: text.replace("- path: /dev/nvidia1\n", "- path: /dev/nvidia7\n"),
     "'/dev/nvidia0' is not there, or not named"),
    (lambda text: text.replace("libcuda.so", "libcudart.so"),
     "no library libcuda.so of the GPU's driver is named and there"),
    (lambda text: text.replace("kind:", "kinds:"), "there is no kind"),
    (lambda text: text + "a: &b\n", "something other than mappings"),
    (lambda text: "- " * 100000, "too many levels"),
    (lambda text: text + "#" * (5 << 20), "the limit is 4194304 bytes"),
    (lambda text: text.replace("/dev/nvidiactl", "dev/nvidiactl"), "there is no absolute path"),
], ids=["a GPU that is gone", "no library", "no kind", "not read", "deep", "large", "relative"])
def test_specification_that_is_no_good(root, change, says):
    """It is not passed over for what else could be found."""
    write(root + "/etc/cdi/nvidia.yaml", change(CDI))
    sentence = refused()
    assert says in sentence and "/etc/cdi/nvidia.yaml" in sentence, sentence


def test_specification_that_others_write(root):
    write(root + "/etc/cdi/nvidia.yaml", CDI, 0o666)
    assert "others than root can write to it" in refused()


# --------------------------------------------------------------------------------------------------
# Nodes that are devices: those of /dev/null stand in for NVIDIA's

ASK = """if True:
    import errno, fcntl, os
    NONE = 99  # no descriptor: what the filter lets through gets EBADF
    for path in ("/dev/nvidia0", "/dev/zero", NONE):
        node = path
        if path != NONE:
            node = os.open(path, os.O_RDWR)
            os.write(node, b"x")
        for number in (0xc00846d6, 1, 0x30000001, 0x7ff, 0xc0086d00, 0x4600, 0x1234):
            try:
                fcntl.ioctl(node, number, bytearray(8))
            except OSError as error:
                print(hex(number), errno.errorcode[error.errno])
    for flags in (os.O_RDWR | os.O_TRUNC, os.O_WRONLY | os.O_CREAT):
        os.close(os.open("/dev/nvidia0", flags))
    try:
        os.chmod("/dev/nvidia0", 0)
    except OSError as error:
        print(errno.errorcode[error.errno])
"""


def with_null_nodes(root, *words):
    """Runs hutch where nodes below @root are those of /dev/null: made, or bound where only root may make one."""
    names = " ".join(root + "/dev/" + name for name in NODES)
    if support.is_root():
        for name in NODES:
            os.unlink(root + "/dev/" + name)
            os.mknod(root + "/dev/" + name, 0o020666, os.stat("/dev/null").st_rdev)
            os.chmod(root + "/dev/" + name, 0o666)
        ns = inner = []
    else:
        ns = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c",
              'for name in %s; do mount --bind /dev/null "$name"; done; exec "$@"' % names, "sh"]
        inner = ["unshare", "--user", "--map-user=%d" % os.getuid(), "--map-group=%d" % os.getgid()]
    return subprocess.run(ns + inner + support.command("--json", "--gpu", *words), stdin=subprocess.DEVNULL,
                          capture_output=True, timeout=60, check=False)


@pytest.mark.parametrize("word", ["compute", "modeset"])
def test_devices_are_opened_and_asked(root, tmp_path, word):
    """ioctl(2) reaches the driver, here that of /dev/null, which knows no number (ENOTTY). The filter lets through
    NVIDIA's numbers and no others (ENOTTY, too)."""
    path = str(tmp_path / "policy.json")
    write(path, json.dumps({"schema": 1, "extends": "default", "gpu": word}))
    done = with_null_nodes(root, "--policy", path, "-c", ASK)
    result = json.loads(done.stdout)
    support.check_result(result)
    assert result["verdict"] == "ok", (result, done.stderr)
    numbers = ["0xc00846d6", "0x1", "0x30000001", "0x7ff", "0xc0086d00", "0x4600", "0x1234"]
    let_through = 5 if word == "modeset" else 4
    want = [" ".join((number, passed if i < let_through else "ENOTTY"))
            for passed in ("ENOTTY", "ENOTTY", "EBADF") for i, number in enumerate(numbers)]
    assert result["stdout"].splitlines() == want + ["EROFS"], result
    assert result["gpu"]["devices"] == FOUND + ["/dev/nvidia-modeset"] * (word == "modeset")


def test_zygotes_know_the_numbers(root):
    """A worker has two filters, its own and its zygote's."""
    code = "import errno, fcntl\n" \
           "try: fcntl.ioctl(0, 0xc00846d6)\nexcept OSError as error: print(errno.errorcode[error.errno])"
    for option in ([], ["--warm"]):
        assert run("--gpu", *option, "-c", code).stdout == b"ENOTTY\n"


def test_filter_that_forbids_all(root, tmp_path):
    write(str(tmp_path / "all.json"), json.dumps({"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [
        {"names": ["ioctl"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1}]}))
    path = policy(tmp_path, seccomp="all.json")
    assert "the policy's seccomp profile forbids every ioctl" in refused("--policy", path)
