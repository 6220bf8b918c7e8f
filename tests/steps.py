"""What a run spends: seconds of wall clock and of processors, for each step, each lane and each file of tests. tests/run prints
the table at its end, and nothing depends on it."""
import contextlib
import os
import resource
import subprocess
import sys
import time

LEAST = 1.0  # seconds; what took less of both is summed up in one line


class Steps:
    """The rows of the table. The Makefile's steps come from a file, which main() below writes."""

    def __init__(self, path=None):
        self.rows = []  # (name, seconds of wall clock, seconds of processors or None where nobody has counted them)
        self.began = time.time()
        if path and os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                for line in file:
                    name, began, wall, cpu = line.rstrip("\n").split("\t")
                    self.add(name, float(wall), float(cpu))
                    self.began = min(self.began, float(began))

    def add(self, name, wall, cpu):
        self.rows.append((name, wall, cpu))

    @contextlib.contextmanager
    def step(self, name):
        """Counts what this process waits for meanwhile; nothing else may run."""
        wall, cpu = time.monotonic(), cpu_of_children()
        yield
        self.add(name, time.monotonic() - wall, cpu_of_children() - cpu)

    def seconds(self):
        """Since the first step; the steps are parts of this time that may lie beside each other."""
        return time.time() - self.began

    def print(self):
        print("seconds, the longest first; of a file, all of its tests together:")
        print("  %-52s %8s %10s" % ("", "wall", "processor"))
        small = [row for row in self.rows if max(row[1], row[2] or 0) < LEAST]
        for name, seconds, cpu in sorted(set(self.rows) - set(small), key=lambda row: -row[1]):
            print("  %-52s %8.1f %10s" % (name, seconds, "-" if cpu is None else "%.1f" % cpu))
        if small:
            print("  %-52s %8.1f %10.1f" % ("%d others" % len(small), sum(row[1] for row in small), sum(row[2] or 0 for row in small)))
        print("  %-52s %8.1f" % ("since the first step", self.seconds()))


def cpu_of_children():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main(arguments):
    """steps.py FILE NAME COMMAND... runs a step of the Makefile and adds its line to FILE; ends as the command does."""
    path, name, *words = arguments
    began, started = time.time(), time.monotonic()
    status = subprocess.run(words, check=False).returncode
    if os.path.dirname(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "a", encoding="utf-8") as file:
        file.write("%s\t%.3f\t%.3f\t%.3f\n" % (name, began, time.monotonic() - started, cpu_of_children()))
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
