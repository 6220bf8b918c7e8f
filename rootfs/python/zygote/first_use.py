# Much of what a library does, it does slower the first time: it imports the rest of itself, fills caches, compiles
# expressions. Done once in the zygote, no worker has to. Nothing here may leave a trace that a program could notice,
# nor draw random numbers from a generator that workers do not renew, start threads, or open files that stay open.

import sys

PYTHON = """
import io
stream = io.TextIOWrapper(io.BytesIO(), "utf-8", "strict", "\\n")
print("text", 1, 2.5, file=stream)
stream.flush()
"""

# From Python 3.13 on the interpreter imports a module for it, which no program is to find that has not asked for it.
EXCEPTION = """
import io, sys
def function(number):
    return number / 0
try:
    function(1)
except ZeroDivisionError:
    stderr, sys.stderr = sys.stderr, io.TextIOWrapper(io.BytesIO(), "utf-8")
    try:
        sys.__excepthook__(*sys.exc_info())
    finally:
        sys.stderr = stderr
"""

# OpenSSL loads its provider, fetches all algorithms and makes its generators. Each worker has these take new seeds
# (renew.py).
SSL = """
import ssl
ssl.RAND_add(bytes(32), 0.0)
ssl.RAND_bytes(8)
"""

JSON = """
import json
json.loads(json.dumps({"a": [1, 2.5, None, True, "text"]}, indent=1))
"""

NUMPY = """
import numpy as np
a = np.arange(12, dtype=float).reshape(3, 4)
(a @ a.T).sum(axis=0).mean(), a.std(), np.sort(a), np.linalg.inv(np.eye(3)), np.linalg.svd(a)
str(a), repr(a), np.concatenate([a, a]), np.where(a > 1, a, 0), np.exp(a), np.array(["text"])
"""

PANDAS = """
import io
import pandas as pd
frame = pd.DataFrame({"key": ["a", "b", "a"], "value": [1, 2, 3], "other": [0.5, 1.5, None]})
str(frame.groupby("key").agg({"value": ["sum", "mean"], "other": "max"}))
str(frame.groupby("key")["value"].sum()), str(frame.describe()), repr(frame.value)
frame.merge(frame, on="key"), frame.sort_values("value"), frame[frame.value > 1], frame.isna().sum(), frame.pivot_table(
    index="key", values="value")
pd.read_csv(io.StringIO("a,b\\n1,x\\n2,y\\n")).to_csv(index=False)
pd.to_datetime(pd.Series(["2020-01-02", "2021-03-04"])).dt.year
"""

# The parts that any figure needs, without pyplot, which would keep something. matplotlib keeps fonts that it has
# loaded, with their files open: here these are files in memory.
MATPLOTLIB = """
import builtins, io  # the first is asked by Python code, the second by matplotlib's own from 3.10 on
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
class File(io.BytesIO):
    pass
def open_font(path, mode="r", *rest, **named):
    file = original(path, mode, *rest, **named)
    if mode != "rb" or not str(path).endswith((".ttf", ".ttc")):
        return file
    with file:
        copy = File(file.read())
    copy.name = path
    return copy
def draw():
    figure = Figure()
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    left.plot([1, 2, 3], [2.5, 1, 4], "o-", label="line")
    left.set_title("title"); left.set_xlabel("x"); left.set_ylabel("y"); left.legend(); left.grid(True)
    right.bar(["a", "b"], [1, 2]); right.scatter([1], [1]); right.hist([1, 2, 2])
    figure.tight_layout()
    figure.savefig(io.BytesIO(), format="png")
original = io.open
io.open = builtins.open = open_font
try:
    draw()
finally:
    io.open = builtins.open = original
"""

PYPLOT = """
import io
import matplotlib.pyplot as plt
figure, axes = plt.subplots()
axes.plot([1, 2])
plt.savefig(io.BytesIO(), format="png")
plt.close("all")
"""

# What is there, and what to do with it. The first is the interpreter itself.
EXERCISES = [
    ("builtins", PYTHON),
    ("traceback" if sys.version_info >= (3, 13) else "builtins", EXCEPTION),
    ("ssl", SSL),
    ("json", JSON),
    ("numpy", NUMPY),
    ("pandas", PANDAS),
    ("matplotlib.figure", MATPLOTLIB),
    ("matplotlib.pyplot", PYPLOT),
]
done = {}


def run(code):
    try:
        exec(code, {"__name__": "first_use"})
    except Exception:
        pass  # a library that cannot be used is no reason not to have it: the program will be told the same


def exercise(modules):
    for name, code in EXERCISES:
        if (name in modules or name == "builtins") and code not in done:
            done[code] = compile(code, "<first use>", "exec", 0, True)
            run(done[code])


def again():
    for code in done.values():
        run(code)
