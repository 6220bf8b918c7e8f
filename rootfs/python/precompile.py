"""precompile.py SOURCE OUTPUT: SOURCE as this Python's byte code, behind a line with the tag that belongs in the name
of the file (cpython-311). To a Python of another version it is a file that it never looks at."""

import importlib.util
import py_compile
import sys

source, output = sys.argv[1:]
py_compile.compile(
    source,
    cfile=output,
    dfile="/run/hutch/site/sitecustomize.py",
    doraise=True,
    # Valid whatever time stamp the source has inside.
    invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
)
with open(output, "rb") as file:
    code = file.read()
assert code.startswith(importlib.util.MAGIC_NUMBER)
with open(output, "wb") as file:
    file.write(sys.implementation.cache_tag.encode() + b"\n" + code)
