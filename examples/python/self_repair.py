#!/usr/bin/env python3
"""A program by a model that has to work: what went wrong is told to the model, which has three tries.

    self_repair.py "Print the sum of the squares of 1 to 10." """
import sys

import model

TRIES = 3

messages = [{"role": "system", "content": "Answer with one Python program between ``` and nothing else."},
            {"role": "user", "content": sys.argv[1]}]
with model.client() as client:
    for number in range(1, TRIES + 1):
        message = model.ask(messages)
        result = client.run(model.code_of(message), timeout=20)
        if result.verdict == "ok":
            print("try %d: %s" % (number, result.stdout.rstrip()))
            sys.exit(0)
        why = "%s: %s" % (result.error.name, result.error.value) if result.error else result.message or "exit code %d" % result.exit_code
        print("try %d: %s" % (number, why))
        messages += [message, {"role": "user", "content": "That failed:\n%s\nMend it." % (result.stderr or why)}]
sys.exit("no program worked in %d tries" % TRIES)
