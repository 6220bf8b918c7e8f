#!/usr/bin/env python3
"""A person reads each program before it runs.

    approval.py "Print six times seven." """
import sys

import model

code = model.code_of(model.ask([{"role": "user", "content": sys.argv[1]}]))
# What a terminal would obey is shown as text: the program is not to decide what its reader sees.
print("".join(c if c == "\n" or c.isprintable() else "\\u%04x" % ord(c) for c in code))
if input("Run this? [y/N] ").strip().lower() != "y":
    print("It was not run.")
else:
    with model.client() as client:
        result = client.run(code, timeout=20)
    print("%s: %s" % (result.verdict, (result.stdout + result.stderr).rstrip()))
