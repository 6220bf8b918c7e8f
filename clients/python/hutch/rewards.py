"""Rewards for trainers: completions and tests in, scores out, one call. All runs of a batch are handed in at once.

`score()` is the plain function; `code_reward()` has the form that TRL calls, and the functions of hutch.verl those of
verl. Tests are taken in the forms that are in use:

    {"inputs": [...], "outputs": [...], "fn_name"?, "assert_case"?}   verl, APPS, TACO; also as JSON text
    {"language"?, "test_cases": [{"input", "output", "fn_name"?}]}    open-r1's verification_info
    [{"input": ..., "output": ...}, ...]                              cases alone
    {"test": ..., "entry_point": ..., "prompt"?}                      HumanEval
    ["assert f(1) == 2", ...] or a text of Python                     MBPP"""
from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence, Tuple

from . import judging
from .blocking import BlockingEngine
from .engine import Engine
from .judging import Judgement, Tests

MAX_FUNCTION_TIMES = 10  # a function's cases are one run, which has the time of so many at most
FENCE = re.compile(r"```[ \t]*([A-Za-z0-9_+-]*)[^\n]*\n(.*?)(?:```|\Z)", re.DOTALL)
COLUMNS = ("tests", "test_cases", "verification_info", "ground_truth", "test_list", "input_output")
# What LiveCodeBench and verl put before a program whose form is "inputs" and "outputs".
PRELUDE = "".join("from %s import *\n" % name for name in (
    "string re datetime collections heapq bisect copy math random statistics itertools functools operator io sys json "
    "builtins typing").split()) + (
    "import string, re, datetime, collections, heapq, bisect, copy, math, random, statistics, itertools\n"
    "import functools, operator, io, sys, json\nsys.setrecursionlimit(50000)\n")


@dataclass(frozen=True)
class Score:
    """`value`: the share of cases that passed; None when hutch could not judge it, which is no fault of the
    program's."""

    value: Optional[float]
    judgements: Sequence[Judgement] = ()

    @property
    def passed(self) -> int:
        return sum(judgement.passed for judgement in self.judgements)


def text_of(completion: Any) -> str:
    """The text of a completion, which may be a chat: its last message with contents."""
    if isinstance(completion, str):
        return completion
    for message in reversed(completion):
        content = message.get("content")
        if isinstance(content, list):
            content = "".join(part.get("text", "") for part in content if isinstance(part, dict))
        if content:
            return str(content)
    return ""


def extract_code(text: str, language: str = "python") -> str:
    """The last fenced block of the language; else the last one of any; else the whole text."""
    blocks = FENCE.findall(text)
    own = [code for name, code in blocks if name.lower() in (language, {"python": "py"}.get(language, language))]
    return own[-1] if own else blocks[-1][1] if blocks else text


@dataclass(frozen=True)
class Task:
    """Tests in one form."""

    cases: Sequence[Tuple[Any, Any]] = ()  # (input, expected output)
    function: Optional[str] = None         # they are arguments and values of it
    tests: Optional[Tests] = None
    prompt: str = ""
    language: str = "python"
    prelude: bool = False


def read_tests(tests: Any) -> Optional[Task]:
    """None for none. Errors: ValueError with what is wrong, as these are the trainer's own."""
    if isinstance(tests, str):
        try:
            loaded = json.loads(tests)
        except ValueError:
            return Task(tests=Tests([tests])) if tests.strip() else None
        if not isinstance(loaded, (dict, list)):
            raise ValueError("tests are the value %.40r: that tests nothing" % (loaded,))
        return read_tests(loaded)
    if isinstance(tests, dict):
        return _read_object(tests)
    if isinstance(tests, (list, tuple)):
        if not tests:
            return None
        if all(isinstance(test, str) for test in tests):
            return Task(tests=Tests(["\n".join(tests)]))
        return _read_object({"test_cases": tests})
    if tests is None:
        return None
    raise ValueError("tests are a %s: they can be a text, a list or an object" % type(tests).__name__)


def _read_object(found: Dict[str, Any]) -> Optional[Task]:
    if isinstance(found.get("input_output"), (str, dict)):
        return read_tests(found["input_output"])
    if "test" in found and "entry_point" in found:
        prompt = found.get("prompt") or ""
        return Task(tests=Tests([found["test"]], entry=found["entry_point"], check=True, trusted=[prompt],
                                trusted_may_fail=True),
                    prompt=prompt)
    if found.get("assert_case"):
        return Task(tests=Tests(["\n".join(found["assert_case"])]))
    if "inputs" in found and "outputs" in found:
        inputs, outputs = found["inputs"], found["outputs"]
        if len(inputs) != len(outputs):
            raise ValueError("the tests have %d inputs and %d outputs" % (len(inputs), len(outputs)))
        return _make_cases(list(zip(inputs, outputs)), found.get("fn_name"), "python", True)
    if "test_cases" in found:
        cases = found["test_cases"]
        name = next((case.get("fn_name") for case in cases if case.get("fn_name")), None)
        return _make_cases([(case["input"], case.get("output")) for case in cases], name,
                           found.get("language") or "python", False)
    raise ValueError("tests with the keys %s are in no form that is known here" % ", ".join(sorted(map(str, found))))


def _make_cases(cases: List[Tuple[Any, Any]], function: Optional[str], language: str, prelude: bool) -> Optional[Task]:
    if not cases:
        return None
    if function:
        cases = [(_arguments(given), _value(want)) for given, want in cases]
    else:
        cases = [(_lines(given), None if want is None else _lines(want)) for given, want in cases]
    return Task(cases=cases, function=function, language=language.lower(),
                prelude=prelude and language.lower() == "python")


def _lines(value: Any) -> str:
    return "\n".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _arguments(given: Any) -> List[Any]:
    """A list of them, or one JSON value a line."""
    if isinstance(given, str):
        return [json.loads(line) for line in given.split("\n") if line.strip()]
    return list(given)


def _value(want: Any) -> Any:
    return json.loads(want) if isinstance(want, str) else want


# --- scoring

async def _judge(engine: Engine, program: str, task: Task, timeout: float, compare: str, max_cases: Optional[int],
                 limits: Dict[str, Any]) -> List[Judgement]:
    cases = task.cases if max_cases is None else task.cases[:max_cases]
    prelude = PRELUDE if task.prelude and "from __future__" not in program else ""
    if task.tests is not None:
        parts = [task.prompt, program] if task.prompt and not _has_definition(program, task) else [program]
        return [await judging.judge_tests(engine, parts, task.tests, timeout=timeout, **limits)]
    if task.function:
        entry = "Solution().%s" % task.function if "class Solution" in program else task.function
        return await judging.judge_function(engine, [prelude, program], entry, cases,
                                            timeout=timeout * min(len(cases), MAX_FUNCTION_TIMES), **limits)
    runs = [judging.judge_case(engine, prelude + program, given, want, compare=compare, language=task.language,
                               timeout=timeout,
                               **limits) for given, want in cases]
    return list(await asyncio.gather(*runs))


def _has_definition(program: str, task: Task) -> bool:
    """Whether it is a whole program, and not what follows a prompt."""
    return bool(task.tests and re.search(r"^(?:async[ \t]+)?def[ \t]+%s\b" % re.escape(task.tests.entry), program,
                                         re.MULTILINE))


def judge_all(completions: Sequence[Any], tests: Sequence[Any], *, engine: Optional[BlockingEngine] = None,
              timeout: float = 10.0, compare: str = "lines", max_cases: Optional[int] = None,
              **limits: Any) -> List[Score]:
    """One Score for each completion. @timeout: seconds for each case; @compare: a mode of docs/batch.md; @max_cases:
    only the first so many; @limits: memory_bytes and the others of `Engine.run()`, no more than the engine's own."""
    if len(completions) != len(tests):
        raise ValueError("there are %d completions, and tests for %d" % (len(completions), len(tests)))
    tasks = [read_tests(test) for test in tests]

    async def judge_one(loop_engine: Engine, completion: Any, task: Optional[Task]) -> Score:
        if task is None:
            return Score(None)
        program = extract_code(text_of(completion), task.language)
        judgements = await _judge(loop_engine, program, task, timeout, compare, max_cases, limits)
        if any(judgement.verdict == "internal" for judgement in judgements):
            return Score(None, judgements)
        return Score(sum(judgement.passed for judgement in judgements) / len(judgements), judgements)

    async def judge(loop_engine: Engine) -> List[Score]:
        return list(await asyncio.gather(*(judge_one(loop_engine, *pair) for pair in zip(completions, tasks))))

    return (engine or judging.default_engine())._call(judge)


def score(completions: Sequence[Any], tests: Sequence[Any], *, strict: bool = False,
          **options: Any) -> List[Optional[float]]:
    """From 0.0 to 1.0 for each completion: the share of its cases that pass, with @strict 1.0 only when all do. None
    where there are no tests, or where hutch could not judge. Options are those of `judge_all()`."""
    values = [found.value for found in judge_all(completions, tests, **options)]
    return [float(value == 1.0) if strict and value is not None else value for value in values]


def code_reward(prompts: Any = None, completions: Sequence[Any] = (), **columns: Any) -> List[Optional[float]]:
    """For TRL's `reward_funcs`: the tests are in the data set's column `tests`, or another of COLUMNS. None where there
    are none, which TRL leaves out of the reward."""
    for name in COLUMNS:
        if columns.get(name) is not None:
            return score(completions, columns[name])
    raise ValueError("the data set has none of the columns %s" % ", ".join(COLUMNS))
