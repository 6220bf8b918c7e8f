"""Makes a layer of an image: installs packages by pip below a directory of this sandbox, and writes that to standard
output as a tar archive: lock.json, which says what was installed, and the directory tree.

It runs in the image that is to be extended, but for its layers of packages: nobody has read those, and their code
could wait there for a sandbox with a network. They are in /mnt/layers, where pip sees what there is already, and
imports nothing. What comes out is judged by hutch as an archive from a stranger: code of a package may have run here.

It is executed by python3 -s -S, and so is pip: without the files of the image that have Python do something at its
start.

/mnt/in has requirements.txt, and request.json: an object with "index" (a URL, "" for none, null for pip's own),
"environment" (variables of proxies), "wheels" (whether /mnt/wheels has some), "build" (whether packages may be built
from source) and "trusted" (a host without TLS, or null)."""
import compileall
import glob
import importlib.util
import json
import os
import py_compile
import site
import subprocess
import sys
import sysconfig
import tarfile
import zipfile

WORK = "/mnt/data"
ROOT = WORK + "/root"
REPORT = WORK + "/report.json"
GIVEN = "/mnt/in"
REQUIREMENTS = WORK + "/requirements.txt"
AUTHORITIES = "/mnt/authorities/all.pem"
OWN_WHEELS = "/usr/share/python-wheels/pip-*.whl"  # of Debian's package python3-pip-whl
PIP_WHEEL = "/mnt/pip/pip.whl"
LAYERS = "/mnt/layers"
# argv: a directory or a wheel that has pip, or nothing; "build" or "wheels"; the directories of packages in the layers,
# with ":" between them, the topmost first; those of the image; pip's own words. Of what is in the layers the metadata
# is found, and nothing can be imported. --only-binary does not count for what is named by a URL, a package's own
# dependency too, so what would be built is refused where it would be. What the image has is not taken away: a layer
# lies over it.
PIP = """
import sys
place, what, layers, packages = sys.argv[1:5]
sys.argv[:5] = ["pip"]
sys.path[:0] = [place] if place else []
for layer in layers.split(":") if layers else []:
    sys.path_importer_cache[layer] = None
    sys.path.append(layer)
sys.path += packages.split(":")
from pip._internal.cli.main import main
from pip._internal.distributions.sdist import SourceDistribution
from pip._internal.exceptions import InstallationError
from pip._internal.req.req_install import InstallRequirement

def refuse(self, *words, **named):
    raise InstallationError("%s would have to be built from its source, which runs its code (--allow-build)" % self.req)

InstallRequirement.uninstall = lambda self, **how: None
if what != "build":
    SourceDistribution.prepare_distribution_metadata = refuse
sys.exit(main())
"""
LONG_AGO = 315619200  # 2 January 1980: zip archives know no earlier time
MAX_ERROR = 600


def fail(text):
    """hutch shows the last line."""
    print(text.replace("\n", " ")[-MAX_ERROR:], file=sys.stderr, flush=True)
    sys.exit(1)


def version_of_wheel():
    """Of the host's pip: "23.0.1"."""
    with zipfile.ZipFile(PIP_WHEEL) as wheel:
        return next(name for name in wheel.namelist() if ".dist-info/" in name).split("-")[1].partition(".dist")[0]


def find_pip(request):
    packages = site.getsitepackages()
    sys.path += packages
    words = [sys.executable, "-s", "-S", "-c", PIP]
    above = sorted(os.listdir(LAYERS), reverse=True) if os.path.isdir(LAYERS) else []
    layers = ["%s/%s%s" % (LAYERS, layer, place) for layer in above for place in packages]
    how = ["build" if request["build"] else "wheels", ":".join(layers), ":".join(packages)]
    if importlib.util.find_spec("pip"):
        return [*words, "", *how]
    own = sorted(glob.glob(OWN_WHEELS))
    if own:
        return [*words, own[-1], *how]
    if os.path.exists(PIP_WHEEL):
        version = version_of_wheel()
        if sys.version_info >= (3, 12) and tuple(map(int, version.split(".")[:2])) < (23, 1):
            fail("the image has no pip, and this host's (%s) is too old for its Python %s: take an image that has, "
                 "such as python" % (version, sysconfig.get_python_version()))
        return [*words, PIP_WHEEL, *how]
    return fail("the image has no pip, and this host has no wheel of it (apt install python3-pip-whl): take an image "
                "that has, such as python")


def words_for(request):
    words = ["install", "--isolated", "--root", ROOT, "--report", REPORT, "--no-compile", "--no-cache-dir",
             "--no-input", "--no-color", "--disable-pip-version-check", "--no-warn-script-location",
             "--progress-bar", "off", "-r", REQUIREMENTS]
    if not request["build"]:
        words += ["--only-binary", ":all:"]
    if request["index"] == "":
        words += ["--no-index"]
    if os.path.exists(AUTHORITIES):
        words += ["--cert", AUTHORITIES]
    if request["trusted"]:
        words += ["--trusted-host", request["trusted"]]
    if request["wheels"]:
        words += ["--find-links", "/mnt/wheels"]
    return words


def write_requirements(request):
    """An index may have a password in it, which is no word of a command line: that is seen from outside."""
    with open(GIVEN + "/requirements.txt", encoding="utf-8") as file:
        given = file.read()
    with open(REQUIREMENTS, "w", encoding="utf-8") as file:
        if request["index"]:
            file.write("--index-url %s\n" % request["index"])
        file.write(given)


def run_pip(pip, words, more):
    environment = {**os.environ, **more, "PIP_CONFIG_FILE": os.devnull, "TMPDIR": WORK + "/tmp"}
    with open(WORK + "/said", "w+", encoding="utf-8", errors="replace") as said:
        status = subprocess.run([*pip, *words], stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=environment,
                                check=False).returncode
        said.seek(0)
        lines = [line.strip() for line in said.read()[-100000:].splitlines()]
    if status != 0:
        errors = [line for line in lines if line.startswith(("ERROR: ", "error: ")) and line != "ERROR: Exception:"]
        errors = errors or [line for line in lines[-1:] if line] or ["it failed (%d)" % status]
        broken = [line.partition(" broken by ")[2].strip("'") for line in lines if line.startswith("WARNING: Retrying")]
        if broken and any("from versions: none" in line for line in errors):
            reason = (broken[-1].partition(">: ")[2] or broken[-1]).partition("')")[0]
            errors = ["the index cannot be reached (--index URL, --wheels DIR):", reason[-200:]]
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
    with open(GIVEN + "/request.json", encoding="utf-8") as file:
        request = json.load(file)
    os.makedirs(ROOT + "/usr")
    os.mkdir(WORK + "/tmp")
    pip = find_pip(request)
    write_requirements(request)
    run_pip(pip, words_for(request), request.get("environment", {}))
    lock = make_lock(pip)
    make_bytecode()
    write_archive(lock)


main()
