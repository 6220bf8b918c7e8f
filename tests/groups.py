"""A control group for each process that runs tests, below the one that tests/run has delegated: what one of them has made there is
not what another one's tests find, and its time is counted by the kernel, with that of all it has started."""
import os
import re
import resource

import support

WORKER = os.environ.get("PYTEST_XDIST_WORKER")
LEAF = "shell"  # of a group in which processes are, as people.py has it


def enter():
    """The group of this process alone; None where nothing is delegated, or where nobody else runs tests."""
    own = support.own_cgroup()
    if not WORKER or not own or os.path.basename(own) != LEAF:
        return None
    group = os.path.join(os.path.dirname(own), WORKER)
    try:
        for path in (group, os.path.join(group, LEAF)):
            os.makedirs(path, exist_ok=True)
        delegate(os.path.dirname(own))
        with open(os.path.join(group, LEAF, "cgroup.procs"), "w", encoding="ascii") as file:
            file.write(str(os.getpid()))
    except OSError:
        return None
    return group


def delegate(group):
    """Lets the groups below have the controllers that this one has."""
    with open(os.path.join(group, "cgroup.controllers"), encoding="ascii") as file:
        controllers = file.read().split()
    with open(os.path.join(group, "cgroup.subtree_control"), "w", encoding="ascii") as file:
        file.write(" ".join("+" + name for name in controllers if name in ("memory", "pids", "cpu")))


def leave():
    """Goes back to where all were, and removes the group. What others have left in it stays, and tests/run finds it."""
    if not GROUP:
        return
    with open(os.path.join(os.path.dirname(GROUP), LEAF, "cgroup.procs"), "w", encoding="ascii") as file:
        file.write(str(os.getpid()))
    for path in (os.path.join(GROUP, LEAF), GROUP):
        try:
            os.rmdir(path)
        except OSError:
            return


def cpu():
    """Seconds of processors: of the group, or of this process and of what it has waited for."""
    own = support.own_cgroup()
    if own and os.path.basename(own) == LEAF:
        with open(os.path.join(os.path.dirname(own), "cpu.stat"), encoding="ascii") as file:
            return int(re.search(r"usage_usec (\d+)", file.read())[1]) / 1e6
    return sum(usage.ru_utime + usage.ru_stime for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))


GROUP = enter()
