"""Trees of Debian's packages, made by mmdebstrap, and what an archive's layers make of a tree.

HUTCH_TEST_TREES may name a folder that keeps the trees for the next time."""
import hashlib
import io
import json
import os
import subprocess
import tarfile
import tempfile

import support

SECONDS = 1200
LEAN = ["/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*"]


def sources(suite):
    """Apt's sources of a release, from where this machine has its own."""
    kept = tempfile.mkdtemp()
    os.makedirs(kept + "/lists/partial")
    words = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)", "Created-By: Packages", "Origin: Debian",
             "Component: main"]
    found = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split("\n")
    if not any(found):
        own = ["-o", "Dir::State::lists=" + kept + "/lists", "-o", "Dir::Cache=" + kept, "-o", "APT::Sandbox::User=",
               "-o", "Acquire::Languages=none"]
        subprocess.run(["apt-get", "-q=2", *own, "update"], check=True)
        words[1:1] = own
        found = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split("\n")
    support.remove_tree(kept)
    lines = set()
    for line in found:
        uri, _, release = line.partition(" ")
        name, dash, kind = release.partition("-")
        if name in ("bookworm", "trixie") and (not dash or kind in ("updates", "security")):
            lines.add("deb %s %s%s main" % (uri, suite, dash + kind))
    assert lines, "apt on this machine knows no sources of Debian"
    return "".join(line + "\n" for line in sorted(lines))


def debian(name, suite, variant, packages, scratch, lean=True):
    """The path of a tar file of the tree."""
    folder = os.environ.get("HUTCH_TEST_TREES") or str(scratch)
    path = os.path.join(folder, "%s-%s.tar" % (name, suite))
    if os.path.exists(path):
        return path
    listed = os.path.join(str(scratch), "sources-" + suite)
    with open(listed, "w", encoding="ascii") as file:
        file.write(sources(suite))
    words = ["mmdebstrap", "--quiet", "--mode=" + ("root" if support.is_root() else "unshare"), "--variant=" + variant,
             "--format=tar", '--aptopt=Acquire::Languages "none"', "--dpkgopt=force-unsafe-io"]
    words += ["--dpkgopt=path-exclude=" + pattern for pattern in LEAN if lean]
    words += ["--include=" + ",".join(packages)] if packages else []
    os.chmod(str(scratch), 0o755)  # mmdebstrap's own ids look into it
    done = subprocess.run([*words, suite, path + ".part", listed], capture_output=True, text=True, timeout=SECONDS,
                          check=False, env={**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"})
    assert done.returncode == 0, done.stderr[-3000:]
    os.rename(path + ".part", path)
    return path


# --------------------------------------------------------------------------------------------------
# What is in an archive

def _add_layer(stream, found):
    with tarfile.open(fileobj=stream, mode="r|") as tar:
        for entry in tar:
            name = os.path.normpath("/" + entry.name).lstrip("/")
            folder, _, base = name.rpartition("/")
            if base.startswith(".wh."):
                gone = os.path.join(folder, base[len(".wh."):])
                for path in [path for path in found if path == gone or path.startswith(gone + "/")]:
                    del found[path]
                continue
            if entry.islnk():
                found[name] = found[os.path.normpath("/" + entry.linkname).lstrip("/")]
                continue
            content = hashlib.sha256(tar.extractfile(entry).read()).hexdigest() if entry.isreg() else None
            link = entry.linkname if entry.issym() else None
            found[name] = {"type": entry.type.decode(), "mode": oct(entry.mode & 0o7777),
                           "owner": (entry.uid, entry.gid), "link": link, "content": content}


def entries(archive):
    """{path: what it is} of an image in an OCI layout or in what `podman save` writes."""
    found = {}
    with tarfile.open(archive) as tar:
        names = tar.getnames()

        def blob(digest):
            return tar.extractfile("blobs/" + digest.replace(":", "/")).read()

        if "manifest.json" in names:
            for layer in json.load(tar.extractfile("manifest.json"))[0]["Layers"]:
                _add_layer(tar.extractfile(layer), found)
            return found
        manifest = json.loads(blob(json.load(tar.extractfile("index.json"))["manifests"][0]["digest"]))
        for layer in manifest["layers"]:
            data = blob(layer["digest"])
            for ending, program in (("zstd", ["zstd", "-dc"]), ("gzip", ["gzip", "-dc"])):
                if layer["mediaType"].endswith(ending):
                    data = subprocess.run(program, input=data, stdout=subprocess.PIPE, check=True).stdout
            _add_layer(io.BytesIO(data), found)
    return found
