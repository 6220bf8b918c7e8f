"""Extended images in a store of a test's own, over the images of the store that all tests have."""
import json
import os

import support

BASE = "python"
SECONDS = 120
NO_BUILDER = {"HUTCH_ROOTFS_DIR": "/nowhere"}  # where a layer would have to be made, it cannot be


def environment(home, **more):
    names = ("PIP_INDEX_URL", "PIP_TRUSTED_HOST", "PIP_CONFIG_FILE", "HUTCH_ROOTFS_DIR")
    kept = {name: value for name, value in os.environ.items() if name not in names}
    return {**kept, "HUTCH_HOME": home, "HUTCH_IMAGES": support.hutch_home() + "/images", "PIP_CONFIG_FILE": "/dev/null", **more}


def hutch(home, *args, env=None, **options):
    return support.hutch(*args, env=environment(home, **(env or {})), **{"timeout": SECONDS, **options})


def extend(home, *args, image=BASE, **options):
    """The digest of the extended image."""
    done = hutch(home, "rootfs", "extend", image, *args, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode().strip()


def refused(home, *args, says, image=BASE, **options):
    done = hutch(home, "rootfs", "extend", image, *args, **options)
    assert done.returncode == 125 and done.stdout == b"", done
    line = support.sentence(done)
    for text in (says,) if isinstance(says, str) else says:
        assert text in line, line
    if os.path.isdir(home + "/images/trees"):
        assert os.listdir(home + "/images/trees") == os.listdir(home + "/images/layers") == os.listdir(home + "/images/requests") == []
    return line


def listed(home, name):
    images = json.loads(hutch(home, "rootfs", "list", "--json").stdout)
    return next(image for image in images if name in image["names"] or name == image["digest"])


def run(home, image, code, *args, **options):
    done = hutch(home, "run", *args, "--image", image, "-c", code, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()
