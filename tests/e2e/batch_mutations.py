#!/usr/bin/python3
"""batch_mutations.py TASKS - writes, as JSON lines, one wrong program for each task of a HumanEval or MBPP file.

A wrong program is the task's own solution with one thing changed: an operator, a comparison, a constant, what is
returned. Of the changes that there are, in an order that never varies, the first is taken with which the task's tests
fail when they are run as a plain script. Those runs happen here, in forks of this interpreter, with little CPU time and
memory."""
import ast
import copy
import json
import os
import random
import resource
import signal
import sys

CPU_SECONDS = 1
MEMORY_BYTES = 2 << 30
OPERATORS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
             ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.BitXor: ast.BitAnd, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd}
COMPARISONS = {ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt,
               ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is}


def change(node):
    """The node with something else in it, or None."""
    if isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in OPERATORS:
        node.op = OPERATORS[type(node.op)]()
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
        node.ops[0] = COMPARISONS[type(node.ops[0])]()
    elif isinstance(node, ast.BoolOp):
        node.op = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        node.value = not node.value
    elif isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        node.value = node.value + 1
    elif isinstance(node, ast.Return) and node.value is not None:
        node.value = ast.List(elts=[node.value], ctx=ast.Load())
    else:
        return None
    return node


def mutations(program, name):
    """Programs that differ from @program in one place within the function @name, or anywhere when there is none of that
    name."""
    tree = ast.parse(program)
    roots = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name] or [tree]
    # What a loop's end depends on is left alone where that is easy to see: a program without end takes long to judge.
    loops = {id(inner) for node in ast.walk(roots[-1]) if isinstance(node, ast.While) for inner in ast.walk(node)}
    places = [index for index, node in enumerate(ast.walk(roots[-1]))
              if id(node) not in loops and change(copy.deepcopy(node))]
    random.Random(program).shuffle(places)
    for place in places:
        other = ast.parse(program)
        roots = [node for node in other.body if isinstance(node, ast.FunctionDef) and node.name == name] or [other]
        change(list(ast.walk(roots[-1]))[place])
        try:
            yield ast.unparse(ast.fix_missing_locations(other))
        except ValueError:
            pass


def passes(script):
    """Runs a script in a fork. True, False, or None when it takes too long to tell."""
    pid = os.fork()
    if pid == 0:
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        signal.alarm(10 * CPU_SECONDS)
        status = 1
        try:
            exec(compile(script, "<script>", "exec"), {"__name__": "script"})
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(pid, 0)
    return None if os.WIFSIGNALED(status) else os.WEXITSTATUS(status) == 0


def wrong_program(task):
    """The wrong program for a task, or None when every change is still right."""
    if "canonical_solution" in task:
        program, name = task["prompt"] + task["canonical_solution"], task["entry_point"]
        tests = task["test"] + "\ncheck(%s)\n" % name
    else:
        program, name = "\n".join(task.get("test_imports", []) + [task["code"]]), None
        tests = "\n".join(task["test_list"])
    for mutant in mutations(program, name):
        if passes(mutant + "\n" + tests) is False:
            return mutant
    return None


def read_tasks(path):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    if text.lstrip().startswith("["):
        return json.loads(text)
    return [json.loads(line) for line in text.split("\n") if line.strip()]


def main():
    for task in read_tasks(sys.argv[1]):
        mutant = wrong_program(task)
        if mutant is None:
            print("no change makes task %s wrong" % task["task_id"], file=sys.stderr)
        else:
            print(json.dumps({"task_id": task["task_id"], "solution": mutant}))


if __name__ == "__main__":
    main()
