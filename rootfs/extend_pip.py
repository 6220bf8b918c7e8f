"""Makes a layer of an image: installs packages by pip below a directory of this sandbox, and writes that to standard
output as a tar archive: lock.json, which says what was installed, and the directory tree.

It runs in the image that is to be extended, so that pip sees what that has already, and writes what fits its
interpreter. What comes out is judged by hutch as an archive from a stranger: code of a package may have run here.

argv: a JSON object with "index" (a URL, "" for none, null for pip's own), "wheels" (whether /mnt/wheels has some),
"build" (whether packages may be built from source) and "trusted" (a host without TLS, or null). /mnt/in has
requirements.txt."""
import compileall
import importlib.util
import json
import os
import py_compile
import subprocess
import sys
import sysconfig
import tarfile

WORK = "/mnt/data"
ROOT = WORK + "/root"
REPORT = WORK + "/report.json"
PIP_WHEEL = "/mnt/pip/pip.whl"
LONG_AGO = 315619200  # 2 January 1980: zip archives know no earlier time
MAX_ERROR = 600


def fail(text):
    """hutch shows the last line."""
    print(text.replace("\n", " ")[-MAX_ERROR:], file=sys.stderr, flush=True)
    sys.exit(1)


def find_pip():
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    if os.path.exists(PIP_WHEEL):
        return [sys.executable, PIP_WHEEL + "/pip"]
    return fail("the image has no pip, and this host has no wheel of it (apt install python3-pip-whl): take an image "
                "that has, such as python")


def words_for(request):
    words = ["install", "--isolated", "--root", ROOT, "--report", REPORT, "--no-compile", "--no-cache-dir",
             "--no-input", "--no-color", "--disable-pip-version-check", "--no-warn-script-location",
             "--progress-bar", "off", "-r", "/mnt/in/requirements.txt"]
    if not request["build"]:
        words += ["--only-binary", ":all:"]
    if request["index"] == "":
        words += ["--no-index"]
    elif request["index"]:
        words += ["--index-url", request["index"]]
    if request["trusted"]:
        words += ["--trusted-host", request["trusted"]]
    if request["wheels"]:
        words += ["--find-links", "/mnt/wheels"]
    return words


def run_pip(pip, words):
    environment = {**os.environ, "PIP_CONFIG_FILE": os.devnull, "TMPDIR": WORK + "/tmp"}
    with open(WORK + "/said", "w+", encoding="utf-8", errors="replace") as said:
        status = subprocess.run([*pip, *words], stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=environment,
                                check=False).returncode
        said.seek(0)
        lines = [line.strip() for line in said.read()[-100000:].splitlines()]
    if status != 0:
        errors = [line for line in lines if line.startswith(("ERROR: ", "error: ")) and line != "ERROR: Exception:"]
        errors = errors or [line for line in lines[-1:] if line] or ["it failed (%d)" % status]
        hashes = [line for line in lines if line.startswith(("Expected sha256", "Got  "))]
        if hashes:
            errors = ["the hash is not the one that is expected:", lines[lines.index(hashes[0]) - 1].split(" ")[0]]
        fail("pip: " + " ".join([*dict.fromkeys(errors), *hashes]))


def one_package(item):
    about, archive = item["metadata"], item["download_info"].get("archive_info") or {}
    digest = (archive.get("hashes") or {}).get("sha256") or archive.get("hash", "").partition("sha256=")[2]
    return {"name": about["name"], "version": about["version"], "sha256": digest,
            "file": os.path.basename(item["download_info"]["url"].partition("#")[0].partition("?")[0])}


def make_lock(pip):
    with open(REPORT, encoding="utf-8") as report:
        installed = json.load(report)["install"]
    version = subprocess.run([*pip, "--version"], stdout=subprocess.PIPE, check=True, text=True).stdout.split()[1]
    return {"tool": "pip " + version, "language": "python " + sysconfig.get_python_version(),
            "packages": sorted(map(one_package, installed), key=lambda package: package["name"].lower())}


def make_bytecode():
    """Of the kind that Python does not compare with its source: the layer is never written, and the same wheels give
    the same layer."""
    compileall.compile_dir(ROOT, quiet=2, stripdir=ROOT, prependdir="/",
                           invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)


def plain(entry):
    """What is neither file, directory nor link stays for hutch to refuse."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = LONG_AGO
    entry.mode = 0o755 if entry.isdir() or entry.mode & 0o111 else 0o644
    return entry


def add_sorted(archive, path, name):
    archive.add(path, name, recursive=False, filter=plain)
    if os.path.isdir(path) and not os.path.islink(path):
        for below in sorted(os.listdir(path)):
            add_sorted(archive, path + "/" + below, name + "/" + below)


def write_archive(lock):
    path = WORK + "/lock.json"
    with open(path, "w", encoding="utf-8") as file:
        json.dump(lock, file)
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        add_sorted(archive, path, "lock.json")
        add_sorted(archive, ROOT, "tree")


def main():
    request = json.loads(sys.argv[1])
    os.makedirs(ROOT + "/usr")
    os.mkdir(WORK + "/tmp")
    pip = find_pip()
    run_pip(pip, words_for(request))
    lock = make_lock(pip)
    make_bytecode()
    write_archive(lock)


main()
