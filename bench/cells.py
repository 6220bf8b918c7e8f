"""The part of bench/report about sessions: cells, notebooks, checkpoints, and what idle sessions take. Measured by
sessions.c."""
import json
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PARTS = ("cells", "notebook", "checkpoints", "idle")

NOTEBOOK = os.path.join(HERE, "plot.ipynb")
# nbconvert needs a filter that lets ZeroMQ set its threads' scheduling; the limits of a run would slow it down.
NBCONVERT = """\
import os, subprocess, sys, time
os.environ["HOME"] = "/tmp"
os.environ.pop("MPLBACKEND", None)
for _ in range(int(sys.argv[1])):
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute", "/mnt/data/plot.ipynb",
                           "--output", "/mnt/data/out.ipynb"], capture_output=True, text=True)
    taken = time.perf_counter() - start
    if done.returncode or "image/png" not in open("/mnt/data/out.ipynb").read():
        sys.exit(done.stderr)
    print(1e3 * taken, flush=True)
"""

# What IPython does with the figure, done by hand: the least that the notebook can take. And what its first steps take.
MADE = """\
import io
import matplotlib.pyplot as plt
squares = [n * n for n in range(50)]
plt.plot(squares)
plt.title("squares")
"""
DRAWN = MADE + "plt.gcf().canvas.draw()\n"
ENCODED = MADE + "image = io.BytesIO()\nplt.gcf().canvas.print_png(image)\n"
DONE = """\
plt.close("all")
print("done")
""", "done\n"
BARE = MADE + """\
image = io.BytesIO()
plt.gcf().canvas.print_figure(image, format="png", bbox_inches="tight", facecolor="w", edgecolor="w", dpi=plt.gcf().dpi)
plt.close("all")
print(image.getvalue()[:8] == b"\\x89PNG\\r\\n\\x1a\\n")
""", "True\n"

ROWS = 1_000_000
FRAME = f"""\
import numpy as np
import pandas as pd
frame = pd.DataFrame(np.random.default_rng(1).random(({ROWS}, 4)), columns=list("abcd"))
frame.head(100).to_csv("head.csv")
"""
DESTROY = """\
import os
frame.drop(frame.index, inplace=True)
frame = None
os.unlink("head.csv")
"""
LOOK = """\
import os
print(frame.shape, os.path.exists("head.csv"))
"""


def code_cells(path):
    with open(path, encoding="utf-8") as file:
        notebook = json.load(file)
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


class Sessions:
    """@bench: report's, for its arguments and its record."""

    def __init__(self, bench, say, run_json, percentiles, sandbox_memory):
        self.bench, self.say, self.run_json = bench, say, run_json
        self.percentiles, self.sandbox_memory = percentiles, sandbox_memory

    def command(self, scenario, codes, want=None, **options):
        command = [os.path.join(self.bench.args.build, "bench", "sessions"), scenario, "--image", self.bench.args.image]
        for code in codes:
            command += ["--code", code]
        if want:
            command += ["--want", want]
        for name, value in options.items():
            command += [f"--{name.replace('_', '-')}", str(value)]
        return command

    def measure(self, scenario, *args, **options):
        self.say(f"sessions, {scenario}")
        return self.run_json(self.command(scenario, *args, **options), f"sessions {scenario}")

    def run_cells(self):
        rounds = self.bench.rounds
        self.bench.record["cell"] = self.measure("cell", ["1+1"], '"text/plain":"2"', rounds=rounds(2000))
        self.bench.record["session_open"] = self.measure("open", ["1+1"], '"text/plain":"2"', rounds=rounds(400))

    def run_notebook(self):
        record, args = self.bench.record, self.bench.args
        record["notebook"] = self.measure("notebook", code_cells(NOTEBOOK), '"image/png"',
                                          rounds=self.bench.rounds(200))
        self.say("its figure in a bare warm interpreter")
        record["bare_notebook"] = self.bench.bare(BARE, self.bench.rounds(150))
        steps = ("made", MADE), ("made, drawn once", DRAWN), ("made, drawn once, as PNG", ENCODED)
        record["bare_steps"] = {label: self.bench.bare((code + DONE[0], DONE[1]), self.bench.rounds(60))["in_process"]
                                for label, code in steps}
        self.say("nbconvert --execute")
        with tempfile.TemporaryDirectory(prefix="hutch-bench-") as work, open(NOTEBOOK, encoding="utf-8") as notebook:
            with open(os.path.join(work, "plot.ipynb"), "w", encoding="utf-8") as copy:
                copy.write(notebook.read())
            script = os.path.join(work, "measure.py")
            with open(script, "w", encoding="utf-8") as file:
                file.write(NBCONVERT)
            policy = os.path.join(HERE, "..", "tests", "notebooks", "reference.json")
            done = subprocess.run([self.bench.hutch, "run", "-q", "--image", args.image, "--policy", policy, "--memory",
                                   "0", "--cpus", "0", "--timeout", "0", "--data", work, script,
                                   "3" if args.quick else "10"],
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                sys.exit(f"bench/report: nbconvert: {done.stderr.strip()[-600:]}")
            record["nbconvert"] = self.percentiles([float(line) for line in done.stdout.split()])
            self.say("command lines that start an engine")
            out = os.path.join(work, "out.ipynb")
            record["rich_cold"] = self.command_line(["--rich", "-c", "1+1"], "2\n")
            record["notebook_cold"] = self.command_line([NOTEBOOK, "-o", out])
            with open(out, encoding="utf-8") as executed:
                if '"image/png"' not in executed.read():
                    sys.exit("bench/report: hutch run plot.ipynb: there is no plot")

    def command_line(self, words, want=None):
        times = []
        for _ in range(3 if self.bench.args.quick else 20):
            start = time.perf_counter()
            done = subprocess.run([self.bench.hutch, "run", "-q", "--image", self.bench.args.image, *words],
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
            times.append(1e3 * (time.perf_counter() - start))
            if done.returncode != 0 or (want and done.stdout != want):
                sys.exit(f"bench/report: hutch run {words}: {done.stdout[-200:]}{done.stderr.strip()[-600:]}")
        return self.percentiles(times)

    def run_checkpoints(self):
        self.bench.record["checkpoint"] = self.measure("checkpoint", [FRAME, DESTROY, LOOK], f"({ROWS}, 4) True",
                                                       rounds=self.bench.rounds(100), warm_up=3)

    def run_idle(self):
        count = min(self.bench.args.sessions, 20) if self.bench.args.quick else self.bench.args.sessions
        self.say(f"{count} open sessions")
        process = subprocess.Popen(self.command("hold", ["x = 1"], count=count), stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True)
        line = process.stdout.readline()
        if not line:
            process.wait()
            sys.exit("bench/report: 'sessions hold' has failed")
        self.bench.record["idle"] = {**json.loads(line), **self.sandbox_memory(process.pid, count)}
        self.bench.record["idle"]["cpu_ms_per_s"] = idle_time(process.pid)
        self.bench.release(process)


def idle_time(root):
    """Milliseconds of processor time a second that the engine takes to look after sessions in which nothing happens."""
    def spent():
        with open(f"/proc/{root}/stat", encoding="utf-8") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")
    before = spent()
    time.sleep(3)
    return (spent() - before) / 3


def rows(record):
    """(label, percentiles, remark)."""
    found = []
    if "cell" in record:
        found.append(("a cell, 1+1", record["cell"]["total"], ""))
        found.append(("a new session from the pool, and its first cell", record["session_open"]["total"], ""))
    if "notebook" in record:
        mine, other = record["notebook"]["total"], record["nbconvert"]
        found.append(("notebook with one plot, in a new session", mine,
                      f"nbconvert takes {other['p50'] / mine['p50']:.0f}x as long"))
        found.append(("its figure alone, bare, in one process", record["bare_notebook"]["in_process"],
                      f"nbconvert takes {other['p50'] / record['bare_notebook']['in_process']['p50']:.0f}x as long"))
        found += [(f"of which: {label}", times, "") for label, times in record["bare_steps"].items()]
        found.append(("the notebook by jupyter nbconvert --execute", other, ""))
        found.append(("the notebook by hutch run, with an engine's start", record["notebook_cold"], ""))
        found.append(("hutch run --rich -c 1+1, likewise", record["rich_cold"], ""))
    if "checkpoint" in record:
        times = record["checkpoint"]
        for name, label in (("checkpoint", "checkpoint, with a DataFrame of 1 M rows"), ("rollback", "roll back"),
                            ("look", "the first cell after that"), ("fork", "fork"),
                            ("switch", "switch to the branch")):
            found.append((label, times[name], ""))
    return found


def goals(record):
    """As report's find_goals()."""
    if "notebook" in record:
        yield ("notebook with one plot, times as fast as nbconvert --execute",
               record["nbconvert"]["p50"] / record["notebook"]["total"]["p50"], 100, "x", True)


def print_idle(record, print_table):
    idle = record["idle"]
    print("\n## Memory of an idle session with the full stack, in kB (median)\n")
    print_table(["", "private", "of which init", "page tables", "largest", "engine's CPU, all"],
                [[f"one of {idle['sessions']}, after a first cell", f"{idle['private_kb']:.0f}",
                  f"{idle['init_kb']:.0f}", f"{idle['page_tables_kb']:.0f}", f"{idle['max_kb']:.0f}",
                  f"{idle['cpu_ms_per_s'] / 10:.1f} %"]])
