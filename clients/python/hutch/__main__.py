"""`python -m hutch doctor`: what this host offers, and whether this package finds its library."""
from __future__ import annotations

import sys

from .doctor import doctor

USAGE = """usage: python -m hutch doctor [OPTIONS of hutch doctor]
"""


def main() -> int:
    words = sys.argv[1:]
    if words[:1] == ["doctor"]:
        return doctor(words[1:])
    print(USAGE, end="", file=sys.stdout if words in (["-h"], ["--help"]) else sys.stderr)
    return 0 if words in (["-h"], ["--help"]) else 2


if __name__ == "__main__":
    sys.exit(main())
