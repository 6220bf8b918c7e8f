"""Makes image archives for the tests of `hutch rootfs`: well-formed ones of every kind, and any deviation."""
import gzip
import hashlib
import io
import json
import os
import platform
import subprocess
import tarfile

ARCH = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
MTIME = 1600000000


def x86_level():
    """The level of x86-64 that this machine has, 0 where it is another one."""
    if ARCH != "amd64":
        return 0
    levels = ("cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3", "avx avx2 bmi1 bmi2 f16c fma abm movbe xsave", "avx512f avx512bw avx512cd avx512dq avx512vl")
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as text:
        flags = set(next(line for line in text if line.startswith("flags")).split())
    return 1 + next((n for n, needed in enumerate(levels) if not flags.issuperset(needed.split())), len(levels))


def sha(data):
    return hashlib.sha256(data).hexdigest()


# --- entries of a layer: functions that add themselves to an open tar file --------------------------------------

def entry(name, kind, mode=0o644, uid=0, gid=0, data=b"", link="", mtime=MTIME, **more):
    def add(tar):
        info = tarfile.TarInfo(name)
        info.type, info.mode, info.uid, info.gid, info.mtime, info.linkname = kind, mode, uid, gid, mtime, link
        info.size = len(data)
        for key, value in more.items():
            setattr(info, key, value)
        tar.addfile(info, io.BytesIO(data))
    return add


def file(name, data=b"", mode=0o644, **more):
    return entry(name, tarfile.REGTYPE, mode, data=data if isinstance(data, bytes) else data.encode(), **more)


def folder(name, mode=0o755, **more):
    return entry(name, tarfile.DIRTYPE, mode, **more)


def symlink(name, target, **more):
    return entry(name, tarfile.SYMTYPE, 0o777, link=target, **more)


def hardlink(name, target, **more):
    return entry(name, tarfile.LNKTYPE, link=target, **more)


def layer(*entries, form=tarfile.PAX_FORMAT):
    """The bytes of a tar stream."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as tar:
        for add in entries:
            add(tar)
    return out.getvalue()


def raw_header(name, size=0, kind=b"0", link=b"", mode=0o644):
    """One ustar header, with whatever bytes as its name."""
    fields = [name.ljust(100, b"\0"), b"%07o\0" % mode, b"%07o\0" % 0, b"%07o\0" % 0, b"%011o\0" % size, b"%011o\0" % MTIME,
              b" " * 8, kind, link.ljust(100, b"\0"), b"ustar\0", b"00", b"\0" * 64, b"\0" * 16, b"\0" * 155, b"\0" * 12]
    block = b"".join(fields)
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]


def padded(data):
    return data + b"\0" * (-len(data) % 512)


def pax_record(key, value):
    body = b" " + key + b"=" + value + b"\n"
    size = len(body)
    while len(b"%d" % size) + len(body) != size:
        size = len(b"%d" % size) + len(body)
    return b"%d" % size + body


def pax_entry(name, records, data=b""):
    """A file with an extended header of our own making."""
    body = b"".join(pax_record(key, value) for key, value in records)
    return raw_header(b"pax", len(body), b"x") + padded(body) + raw_header(name, len(data)) + padded(data)


END = b"\0" * 1024


# --- compression ------------------------------------------------------------------------------------------------

def squeeze(data, how):
    if how == "gzip":
        return gzip.compress(data, mtime=0)
    if how == "zstd":
        return subprocess.run(["zstd", "-q", "-c"], input=data, stdout=subprocess.PIPE, check=True).stdout
    return data


SUFFIX = {"gzip": "+gzip", "zstd": "+zstd", "none": ""}


# --- whole images -----------------------------------------------------------------------------------------------

def write_tar(path, members):
    """@members: (name, bytes), or (name, (link type, target))."""
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            if isinstance(data, tuple):
                info.type, info.linkname = data
                tar.addfile(info)
            else:
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return path


def config_of(layers, **more):
    config = {"architecture": ARCH, "os": "linux", "config": {},
              "rootfs": {"type": "layers", "diff_ids": ["sha256:" + sha(data) for data in layers]}}
    config.update(more)
    return json.dumps(config).encode()


def oci_members(layers, compression="gzip", name=None, config=None, manifest=None, index=None, stored=None):
    """The members of an OCI image layout. @config, @manifest and @index change the parsed objects in place; @stored
    changes the list of the layers' stored bytes after their digests were taken."""
    blobs = {}

    def blob(data):
        blobs[sha(data)] = data
        return {"digest": "sha256:" + sha(data), "size": len(data)}

    config_object = json.loads(config_of(layers))
    if config:
        config(config_object)
    packed = [squeeze(data, compression) for data in layers]
    descriptors = [dict(blob(data), mediaType="application/vnd.oci.image.layer.v1.tar" + SUFFIX[compression]) for data in packed]
    manifest_object = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
                       "config": dict(blob(json.dumps(config_object).encode()), mediaType="application/vnd.oci.image.config.v1+json"),
                       "layers": descriptors}
    if manifest:
        manifest(manifest_object)
    descriptor = dict(blob(json.dumps(manifest_object).encode()), mediaType="application/vnd.oci.image.manifest.v1+json")
    if name:
        descriptor["annotations"] = {"org.opencontainers.image.ref.name": name}
    index_object = {"schemaVersion": 2, "manifests": [descriptor]}
    if index:
        index(index_object)
    if stored:
        stored(blobs, [sha(data) for data in packed])
    return ([("oci-layout", b'{"imageLayoutVersion":"1.0.0"}'), ("index.json", json.dumps(index_object).encode())]
            + [("blobs/sha256/" + digest, data) for digest, data in blobs.items()])


def oci(path, layers, **options):
    return write_tar(path, oci_members(layers, **options))


def oci_folder(path, layers, **options):
    return write_folder(path, oci_members(layers, **options))


def write_folder(path, members):
    for name, data in members:
        os.makedirs(os.path.dirname(os.path.join(path, name)), exist_ok=True)
        with open(os.path.join(path, name), "wb") as out:
            out.write(data)
    return path


def docker_old(path, layers, tag="example/app:1", config=None, layer_names=None, share=False):
    """As docker save wrote until version 24: one folder a layer, "<config digest>.json", "manifest.json". With @share
    a layer that is there already is a symbolic link to the first, as docker does it."""
    config = config if config is not None else config_of(layers)
    members, names, first = [], [], {}
    for number, data in enumerate(layers):
        name = "%064x/layer.tar" % (number + 1)
        if share and data in first:
            members.append((name, (tarfile.SYMTYPE, "../" + first[data])))
        else:
            members.append((name, data))
            first.setdefault(data, name)
        names.append(name)
    members += [(sha(config) + ".json", config), ("repositories", b"{}")]
    manifest = [{"Config": sha(config) + ".json", "RepoTags": [tag] if tag else None, "Layers": layer_names or names}]
    return write_tar(path, members + [("manifest.json", json.dumps(manifest).encode())])


def docker_new(path, layers, tag="example/app:2"):
    """As docker save writes since version 25: an OCI image layout with a manifest.json beside it."""
    members = dict(oci_members(layers, compression="none"))
    index = json.loads(members["index.json"])
    index["manifests"][0]["annotations"] = {"io.containerd.image.name": "docker.io/" + tag,
                                            "org.opencontainers.image.ref.name": tag.rpartition(":")[2]}
    members["index.json"] = json.dumps(index).encode()
    names = ["blobs/sha256/" + sha(data) for data in layers]
    config = [name for name, data in members.items() if b'"diff_ids"' in data][0]
    members["manifest.json"] = json.dumps([{"Config": config, "RepoTags": [tag], "Layers": names}]).encode()
    return write_tar(path, members.items())


def docker_several(path, images):
    """What docker save writes of several images: (tag, layers) each."""
    members, manifest = {}, []
    for tag, layers in images:
        config = config_of(layers)
        members[sha(config) + ".json"] = config
        members.update((sha(data) + "/layer.tar", data) for data in layers)
        manifest.append({"Config": sha(config) + ".json", "RepoTags": [tag] if tag else None,
                         "Layers": [sha(data) + "/layer.tar" for data in layers]})
    return write_tar(path, [*members.items(), ("manifest.json", json.dumps(manifest).encode())])


def oci_several(path, images, nested=False):
    """A layout of several images: (name, platform or None, layers) each; with @nested behind an index of its own."""
    members, entries = {}, []
    for name, made_for, layers in images:
        config = (lambda c, p=made_for: c.update(p)) if made_for else None
        found = dict(oci_members(layers, name=name, config=config))
        entries += json.loads(found["index.json"])["manifests"]
        if made_for:
            entries[-1]["platform"] = made_for
        members.update(found)
    index = {"schemaVersion": 2, "manifests": entries}
    for _ in range(nested):
        blob = json.dumps(index).encode()
        members["blobs/sha256/" + sha(blob)] = blob
        index = {"schemaVersion": 2, "manifests": [{"mediaType": "application/vnd.oci.image.index.v1+json", "size": len(blob),
                                                    "digest": "sha256:" + sha(blob)}]}
    members["index.json"] = json.dumps(index).encode()
    return write_tar(path, members.items())


def dir_members(layers, version=b"Directory Transport Version: 1.1\n", **options):
    """As skopeo's dir: has it."""
    found = dict(oci_members(layers, **options))
    manifest = json.loads(found["index.json"])["manifests"][0]["digest"][7:]
    members = [(name[len("blobs/sha256/"):], data) for name, data in found.items() if name.startswith("blobs/") and not name.endswith(manifest)]
    return members + [("manifest.json", found["blobs/sha256/" + manifest])] + ([("version", version)] if version else [])
