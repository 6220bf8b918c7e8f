"""What all parts of tests/run share: where the tree is, and how the run speaks."""
import os
import sys

TREE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PYTHON = "/usr/bin/python3"  # Debian's, for which python3-pytest is installed


def say(text):
    print("tests: " + text, flush=True)


def stop(text):
    print("tests/run: " + text, file=sys.stderr)
    sys.exit(2)
