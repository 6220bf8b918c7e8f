"""In place of evalplus.eval's runner: `untrusted_check()` with its arguments and results.

The sample's program answers calls in a process of its own, and what it answers is compared in another one, so a result
that claims to equal everything equals nothing, and an early end is a failure. Two things differ. The time limit of an
input is not its own: the whole run has the sum of them. Of details, a run that timed out tells none."""
from __future__ import annotations

from typing import Any, List, Sequence, Tuple

from . import judging
from .engine import Engine
from .errors import HutchError

PASS, FAIL, TIMEOUT = "pass", "fail", "timeout"
MAX_SECONDS = 60.0

# Tasks of MBPP whose results are compared in a way of their own.
AS_SETS = ("similar_elements", "find_char_long", "common_in_nested_lists", "extract_singly", "larg_nnum",
           "intersection_array",
           "find_dissimilar", "Diff")
NOT_NONE = ("check_str", "text_match_three", "text_starta_endb")

COMPARE = '''
def is_float(value):
    if isinstance(value, (list, tuple)):
        return bool(value) and all(isinstance(item, float) for item in value)
    return isinstance(value, float)

def is_close(got, want, atol):
    if isinstance(want, (list, tuple)):
        return (type(got) is type(want) and len(got) == len(want) and
                all(is_close(one, other, atol) for one, other in zip(got, want)))
    if not isinstance(want, (int, float, complex)) or not isinstance(got, (int, float, complex)):
        return got == want
    return got == want or got != got and want != want or abs(got - want) <= atol + 1e-7 * abs(want)

def is_right(given, got, want, atol):
    if RULE == "anything":
        return True
    if RULE == "polynomial":
        return abs(sum(part * got ** power for power, part in enumerate(given[0]))) <= atol
    if RULE == "sets":
        return set(got) == set(want)
    if RULE == "not none":
        return (got if isinstance(got, bool) else got is not None) == want
    if got == want or RULE == "or zero" and got == 0:
        return True
    atol = atol or (1e-6 if is_float(want) else 0)
    return atol != 0 and is_close(got, want, atol)

def check(candidate):
    marks = []
    for given, want in zip(INPUTS, EXPECTED):
        try:
            marks.append("1" if is_right(given, candidate(*given), want, ATOL) else "0")
        except (Exception, SystemExit, KeyboardInterrupt):
            marks.append("0")
        if FAST and marks[-1] == "0":
            break
    raise AssertionError(MARK + "".join(marks))
'''


def rule_of(dataset: str, entry_point: str) -> str:
    if dataset == "humaneval" and entry_point == "find_zero":
        return "polynomial"
    if dataset != "mbpp":
        return ""
    if entry_point == "are_equivalent":
        return "anything"
    if entry_point == "sum_div":
        return "or zero"
    return "sets" if entry_point in AS_SETS else "not none" if entry_point in NOT_NONE else ""


def untrusted_check(dataset: str, code: str, inputs: List[Any], entry_point: str, expected: Sequence[Any], atol: float,
                    ref_time: Sequence[float], fast_check: bool = False, min_time_limit: float = 4.0,
                    gt_time_limit_factor: float = 4.0) -> Tuple[str, Any]:
    """"pass", "fail" or "timeout", and a list of what became of each input, as far as it came: all of them, or with
    @fast_check up to the first that failed. A numpy array where numpy is installed, as evalplus has it."""
    limits = [max(min_time_limit, gt_time_limit_factor * seconds) for seconds in ref_time]
    timeout = min(MAX_SECONDS, sum(limits)) + 1

    async def judge(engine: Engine) -> Tuple[str, List[bool]]:
        details: List[bool] = []
        for at in range(0, len(inputs), judging.CASES_A_RUN):
            part, want = inputs[at:at + judging.CASES_A_RUN], expected[at:at + judging.CASES_A_RUN]
            values = "INPUTS, EXPECTED = %r, %r\nATOL, FAST, RULE = %r, %r, %r\n" % (
                list(part), list(want), float(atol), bool(fast_check), rule_of(dataset, entry_point))
            text, word = judging.marked("inf, nan = float('inf'), float('nan')\n" + values + COMPARE)
            tests = judging.Tests([text], entry=entry_point, check=True)
            found = await judging.judge_tests(engine, [code], tests, together=False, timeout=timeout)
            if found.verdict == "internal":
                raise HutchError("judge '%s': %s" % (entry_point, found.text))
            if found.verdict == "timeout":
                return TIMEOUT, details
            marks = [mark == "1" for mark in found.text[len(word):]] if found.text.startswith(word) else []
            details += marks
            if len(marks) != len(part) or (fast_check and not all(marks)):
                return FAIL, details
        return PASS if all(details) else FAIL, details

    status, details = judging.default_engine()._call(judge)
    try:
        import numpy
    except ImportError:
        return status, details
    return status, numpy.array(details, dtype=bool)
