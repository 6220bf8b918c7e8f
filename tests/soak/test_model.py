"""Sessions against a model of them: any order may follow any other, alone or before the last is answered, and each has the one answer,
and leaves the variables and files, that the model says. Sequences are drawn from HUTCH_TEST_SEED; a failure names its sequence, which
HUTCH_MODEL_SEQUENCE runs alone. HUTCH_SOAK=full (make soak) draws many more."""
import json
import os
import random
from dataclasses import dataclass, field

import engine
from engine import Session

FULL = os.environ.get("HUTCH_SOAK") == "full"
SEED = int(os.environ.get("HUTCH_TEST_SEED", "20261122"))
ONLY = os.environ.get("HUTCH_MODEL_SEQUENCE")
SEQUENCES = [int(ONLY)] if ONLY else range(600 if FULL else 12)
STEPS = 24
MAX_COPIES = 3
ZYGOTES = (("bare", None, (), 1, 2), ("shell", "bare", ("IPython", "ipykernel"), 2, 4))
CONTEXTS, NAMES, FILES = ("main", "other"), ("x", "y"), ("f", "g", "d/h")
NOWHERE = 99  # no checkpoint and no branch
TOLD = ("verdict", "ok", "id", "message", "error_name", "is_fresh", "interpreter_died", "was_interrupted")  # by a failure

# What a cell does; a file changes in one step, so that a cell that ends early has changed it or not.
ACTS = {
    "set": "{name} = {value}",
    "write": "import os\nos.makedirs('d', exist_ok=True)\nopen('.new', 'w').write('{value}')\nos.replace('.new', '{name}')",
    "remove": "import os\nif os.path.exists('{name}'): os.remove('{name}')",
    "sleep": "import time\ntime.sleep({value} % 20 / 1000)",
    "die": "import os\nos._exit(3)",
}
# What each says then: all that it sees.
LOOK = "\n".join((
    "", "import json, os",
    "print(json.dumps([{name: globals()[name] for name in %r if name in globals()}," % (NAMES,),
    "    {os.path.relpath(os.path.join(at, name)): int(open(os.path.join(at, name)).read())",
    "     for at, _, names in os.walk('.') for name in names if name != '.new'}]))"))


@dataclass
class Step:
    what: str
    context: str = "main"
    name: str = ""
    value: int = 0
    target: int = 0

    @property
    def is_cell(self):
        return self.what in ACTS


@dataclass
class State:
    """Variables by context, and files."""
    variables: dict = field(default_factory=lambda: {context: {} for context in CONTEXTS})
    files: dict = field(default_factory=dict)

    def after(self, step):
        variables, files = {context: dict(names) for context, names in self.variables.items()}, dict(self.files)
        if step.what == "set":
            variables[step.context][step.name] = step.value
        elif step.what == "write":
            files[step.name] = step.value
        elif step.what == "remove":
            files.pop(step.name, None)
        return State(variables, files)


def union(first, second):
    return first + [state for state in second if state not in first]


class Model:
    """What a session is to be like. Where an order was broken off it is in one of several states, until a cell looks."""

    def __init__(self):
        self.states = [State()]
        self.copies = {}        # by id: is it a branch, its states, is_fresh as it was
        self.branch = 0
        self.is_parked = False  # the interpreter is dead, and its copies are not
        self.is_lost = False    # nothing is alive
        self.is_fresh = False   # the next cell is to say that its interpreter is another one

    def begin_anew(self):
        self.states = [State(files=state.files) for state in self.states]
        self.copies, self.branch, self.is_parked, self.is_lost = {}, 0, False, False

    def restart(self):
        self.begin_anew()
        self.is_fresh = False

    def refuses(self, step):
        """Whether the order has to be refused."""
        kind = self.copies.get(step.target, (None, None, None))[0]
        if step.what in ("checkpoint", "fork"):
            return len(self.copies) >= MAX_COPIES
        if step.what == "rollback":
            return kind is not False
        if step.what == "switch":
            return kind is not True and (step.target != self.branch or self.is_parked)
        return kind is None

    def prepare(self, step):
        """Before it is an order's turn: what is alive, and whether that can take it."""
        if self.is_lost or (self.is_parked and step.what not in ("rollback", "switch", "drop")):
            self.begin_anew()

    def take_cell(self, step, result, was_restarted):
        self.prepare(step)
        after = [state.after(step) for state in self.states]
        if result["verdict"] == "ok" and step.what != "die":
            # The last line: where an interrupt has come to IPython's own code, that may have a word about it before.
            said = [output["text"] for output in result["outputs"] if output["output_type"] == "stream" and output["name"] == "stdout"]
            seen = json.loads("".join(said).splitlines()[-1])
            self.states = [state for state in after if [state.variables[step.context], state.files] == seen]
            assert self.states, "it sees %r, and is to see one of %r" % (seen, after)
            assert bool(result["is_fresh"]) == self.is_fresh
        elif step.what == "die" and result["verdict"] == "error" and result["interpreter_died"]:
            assert "exit code 3" in result["message"], result
            self.is_parked, self.is_lost = bool(self.copies), not self.copies
        else:
            # not its error_name: an interrupt in IPython's own code can be one that it cannot format
            assert was_restarted and result["verdict"] == "killed" or result["verdict"] == "error" and result["was_interrupted"], result
            self.states = union(self.states, after)
        self.is_fresh = step.what == "die" and bool(result["interpreter_died"])

    def take_reply(self, step, reply, was_restarted):
        self.prepare(step)
        assert bool(reply["message"]) != bool(reply["ok"]), reply
        if was_restarted and not reply["ok"]:
            if step.target in self.copies and step.what != "drop":
                self.states = union(self.states, self.copies[step.target][1])
            return
        assert bool(reply["ok"]) != self.refuses(step), (reply, self.copies, self.branch)
        if not reply["ok"]:
            return
        if step.what in ("checkpoint", "fork"):
            assert reply["id"] not in self.copies
            self.copies[reply["id"]] = (step.what == "fork", self.states, self.is_fresh)
        elif step.what == "drop":
            del self.copies[step.target]
        elif step.what == "rollback" or step.target != self.branch:
            _, states, is_fresh = self.copies[step.target]
            if step.what == "switch":
                del self.copies[step.target]
                if not self.is_parked:
                    self.copies[self.branch] = (True, self.states, self.is_fresh)
                self.branch = step.target
            self.states, self.is_parked, self.is_fresh = states, False, is_fresh


def draw(chance, model, ids):
    """The next order: likely one that is possible."""
    what = chance.choice(("set", "set", "write", "write", "remove", "sleep", "die", "checkpoint", "fork", "rollback", "rollback",
                          "switch", "switch", "drop"))
    if what in ACTS:
        return Step(what, chance.choice(CONTEXTS), chance.choice(NAMES if what == "set" else FILES), chance.randrange(1000))
    likely = list(model.copies) + [0] if chance.random() < 0.8 else sorted(ids) + [0, NOWHERE]
    return Step(what, target=0 if what in ("checkpoint", "fork") else chance.choice(likely))


def give(session, step):
    if step.is_cell:
        return session.execute(ACTS[step.what].format(**vars(step)) + LOOK, context=step.context)
    return session.order(step.what, *([step.target] if step.what in ("rollback", "switch", "drop") else []))


def disturb(chance, session):
    """Perhaps an interrupt or a restart, while orders are under way: which."""
    what = chance.choice((None, None, "interrupt", "restart"))
    for _ in range(chance.randrange(6) if what else 0):
        session.engine.dispatch(chance.choice((0, 0.002, 0.01)))
    if what == "interrupt" and not (FULL or ONLY):  # docs/open-items.md: not all of that is understood
        return None
    if what == "interrupt":
        return what if session.interrupt() else None
    if what == "restart":
        session.restart()
    return what


def run_sequence(one, chance, log):
    model, ids, orders = Model(), set(), []
    with Session(one, max_checkpoints=MAX_COPIES) as session:
        for _ in range(STEPS):
            steps = [draw(chance, model, ids) for _ in range(1 if chance.random() < 0.6 else chance.randrange(2, 6))]
            log.append(steps)
            given = [give(session, step) for step in steps]
            orders += given
            what = disturb(chance, session) if len(steps) > 1 else None
            log.append(what)
            session.wait(*given)
            n_interrupted = 0
            for step, order in zip(steps, given):
                log.append((step, {name: order.result[name] for name in TOLD if name in order.result}))
                (model.take_cell if step.is_cell else model.take_reply)(step, order.result, what == "restart")
                n_interrupted += step.is_cell and order.result["verdict"] == "error" and not order.result["interpreter_died"]
                ids |= set(model.copies)
            assert n_interrupted <= (what == "interrupt")
            if what == "restart":
                model.restart()
        orders += [give(session, draw(chance, model, ids)) for _ in range(chance.randrange(4))]
        session.close()
        one.until(lambda: session.ends, what="the session's end")
        assert len(session.ends) == 1 and {order.results for order in orders} == {1}


def count_fds():
    return len(os.listdir("/proc/self/fd"))


def test_model():
    with engine.Engine(image="python", zygotes=ZYGOTES, trim_ms=500) as one:
        with Session(one) as session:
            session.run("1")
        before = None
        for number in SEQUENCES:
            log = []
            try:
                run_sequence(one, random.Random("%d %d" % (SEED, number)), log)
            except BaseException:
                print("HUTCH_TEST_SEED=%d HUTCH_MODEL_SEQUENCE=%d" % (SEED, number), *log[-30:], sep="\n  ")
                raise
            stats = one.settle()
            assert stats["sessions"] == 0
            before = before or count_fds()
        one.until(lambda: count_fds() <= before + 8, what="descriptors are closed")
