"""Debian packages that tests make, and an archive of them that is served on loopback as apt wants it."""
import gzip
import hashlib
import os
import shutil
import subprocess

import wheels


def package(folder, name, version="1.0", files=None, depends="", scripts=None, modes=None, arch="all", more=""):
    """A .deb with files (paths without the first '/', and texts), the maintainer's scripts by name, and modes that are not 0644."""
    root = os.path.join(str(folder), "root-" + name)
    shutil.rmtree(root, ignore_errors=True)
    os.makedirs(root + "/DEBIAN")
    control = "Package: %s\nVersion: %s\nArchitecture: %s\nMaintainer: A Test <test@example.org>\nDescription: a test\n%s" % (name, version, arch, more)
    if depends:
        control += "Depends: %s\n" % depends
    for path, text in {"DEBIAN/control": control, **{"DEBIAN/" + key: "#!/bin/sh\nset -e\n" + code for key, code in (scripts or {}).items()},
                       **(files or {"usr/share/%s/version" % name: version})}.items():
        os.makedirs(os.path.dirname(root + "/" + path), exist_ok=True)
        with open(root + "/" + path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(root + "/" + path, (modes or {}).get(path, 0o755 if path.startswith("DEBIAN/") and path != "DEBIAN/control" else 0o644))
    for path, mode in (modes or {}).items():
        if os.path.isdir(root + "/" + path):
            os.chmod(root + "/" + path, mode)
    path = os.path.join(str(folder), "%s_%s_%s.deb" % (name, version, arch))
    subprocess.run(["dpkg-deb", "--root-owner-group", "--build", "-Zgzip", root, path], check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(root)
    return path


class Archive(wheels.Index):
    """A flat repository, without a signature, over the packages of a directory; @sources names it for apt, as one that is trusted."""

    def __init__(self, folder):
        super().__init__(folder)
        self.url = self.url.replace("/simple/", "/")
        self.line = "deb [trusted=yes] %s ./\n" % self.url

    def listed(self):
        text = ""
        for name in sorted(os.listdir(self.folder)):
            if not name.endswith(".deb"):
                continue
            path = os.path.join(self.folder, name)
            control = subprocess.run(["dpkg-deb", "--field", path], check=True, capture_output=True, text=True).stdout
            checksum = "0" * 64 if name in self.forged else wheels.digest(path)
            text += "%sFilename: ./%s\nSize: %d\nSHA256: %s\n\n" % (control, name, os.stat(path).st_size, checksum)
        return text.encode()

    def answer(self, path):
        name = os.path.basename(path)
        if name == "Packages":
            return self.listed()
        if name == "Packages.gz":
            return gzip.compress(self.listed())
        if name == "Release":
            return ("Date: Thu, 01 Jan 2026 00:00:00 UTC\nSHA256:\n %s %d Packages\n" % (hashlib.sha256(self.listed()).hexdigest(),
                                                                                         len(self.listed()))).encode()
        return super().answer("/files/" + name) if name.endswith(".deb") else None
