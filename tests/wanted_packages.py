#!/usr/bin/python3
"""tests/wanted_packages.py - what images have of the packages in HUTCH_TEST_DATA/packages-wanted.json.

A flavour has what Debian's apt would install for it (packages.sh says what that is), so that no image has to be built. It takes the
package lists of a machine with Debian 12, which is what packages-wanted.json knows, as they are after apt-get update.
"""
import json
import os
import re
import subprocess
import sys
import textwrap

TREE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FLAVOURS = ("python", "python-full")
RELEASE = "bookworm"


def listed(section):
    return subprocess.run([os.path.join(TREE, "rootfs", "packages.sh"), section, RELEASE], stdout=subprocess.PIPE, text=True, check=True).stdout.split()


def installed(flavour):
    """The packages of a flavour, with all that they depend on, on an empty system."""
    done = subprocess.run(["apt-get", "-s", "-o", "Dir::State::status=/dev/null", "-o", "Debug::NoLocking=1", "install", "--no-install-recommends",
                           *listed(flavour)], stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, "LC_ALL": "C"})
    return set(re.findall(r"^Inst (\S+)", done.stdout, re.MULTILINE)) - set(listed("absent"))


def main():
    folder = os.environ.get("HUTCH_TEST_DATA") or os.path.join(os.path.dirname(TREE), "shared", "data")
    try:
        with open(os.path.join(folder, "packages-wanted.json"), encoding="utf-8") as file:
            wanted = json.load(file)
    except OSError as error:
        sys.exit("wanted_packages.py: HUTCH_TEST_DATA: %s" % error)
    rest = wanted
    print("| of %d packages that are wanted | |\n|---|---|" % len(wanted))
    for flavour in FLAVOURS:
        there = installed(flavour)
        has = [row for row in wanted if row["deb"] in there]
        rest = [row for row in rest if row["deb"] not in there]
        print("| `%s` has | %d |" % (flavour, len(has)))
    in_debian = [row["pip"] for row in rest if row[RELEASE]]
    others = [row["pip"] for row in rest if not row[RELEASE]]
    print("| Debian 12 has, and no image | %d |\n| Debian 12 has not | %d |" % (len(in_debian), len(others)))
    for title, names in (("Debian 12 has, and no image", in_debian), ("Debian 12 has not", others)):
        print("\n%s:\n%s" % (title, textwrap.fill(", ".join(sorted(names, key=str.lower)), 100)))


if __name__ == "__main__":
    main()
