"""What is missing here: the library, the programs, an image, or something of the host, which `hutch doctor` tells."""
from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import List, Optional

from . import _library
from .errors import LibraryError


def find_program() -> Optional[str]:
    """The program `hutch`: $HUTCH_BIN, the one of the installation or the tree that this package is from, or on
    PATH."""
    given = os.environ.get("HUTCH_BIN")
    if given:
        return given
    prefix, tree = _library.prefix(), _library.tree()
    for path in (prefix and os.path.join(prefix, "bin", "hutch"), tree and os.path.join(tree, "build", "hutch")):
        if path and os.access(path, os.X_OK):
            return path
    return shutil.which("hutch")


def doctor(words: List[str]) -> int:
    """Says where the library is, then is `hutch doctor`, with its exit status: 2 when nothing can run."""
    is_plain = not any(word.startswith("--json") for word in words)
    is_lost = False
    try:
        library = _library.load()
        if is_plain:
            print("libhutch: %s" % library.path)
    except LibraryError as error:
        is_lost = True
        print("hutch: %s" % error, file=sys.stderr)
    program = find_program()
    if program is None:
        print("hutch: there is no program `hutch` on PATH: build it in hutch's source tree by `make`, and install it "
              "by `make install` (HUTCH_BIN can name it)", file=sys.stderr)
        return 2
    sys.stdout.flush()
    try:
        done = subprocess.run([program, "doctor", *words], check=False)
    except OSError as error:
        print("hutch: execute '%s': %s" % (program, error.strerror), file=sys.stderr)
        return 2
    return 2 if is_lost else done.returncode if done.returncode >= 0 else 2
