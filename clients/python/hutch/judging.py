"""Judges programs by tests, or by what they print, in the way of `hutch batch`: docs/batch.md says against what that
defends. Tests run in another process of the sandbox than the program, which never sees them; what a program prints is
compared outside of it."""
from __future__ import annotations

import json
import os
import pkgutil
import secrets
import signal
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Sequence, Tuple

from . import _compare
from .blocking import SharedEngine
from .engine import Engine
from .errors import HutchError
from .options import Limits, Zygote
from .results import Result

# The judge is that of `hutch batch`, in the order in which one file imports another.
MODULES = (("hutch_judge.wire", "wire"), ("hutch_judge.candidate", "candidate"), ("hutch_judge.remote", "remote"),
           ("hutch_judge", "judge"))
MISSING = "hutch_judge is missing"
CODE = """import sys
m = sys.modules.get('hutch_judge')
if m is None:
    sys.stdout.write('%s\\n')
    sys.stdout.flush()
    raise SystemExit
m.main()
""" % MISSING
REPORT_BYTES = 65536
TRIES = 3           # of what hutch could not judge
CPU_SLACK_MS = 50   # the last moments of a process that the kernel killed are not all counted
MEMORY_SLACK = 16   # of this part of the limit
MAX_IMPORTS = 32
USUAL = ("collections", "copy", "datetime", "functools", "heapq", "itertools", "json", "math", "random", "re",
         "statistics", "string", "typing")
DATA = ("numpy", "pandas")
ALWAYS_MS = 24 * 3600 * 1000


@dataclass(frozen=True)
class Judgement:
    """`verdict`: pass, wrong_answer, runtime_error, timeout, memory_limit, output_limit, compile_error, or internal: it
    could not be judged. `text`: of the exception, or why."""

    verdict: str
    text: str = ""
    result: Optional[Result] = field(default=None, repr=False, compare=False)

    @property
    def passed(self) -> bool:
        return self.verdict == "pass"


def judge_text() -> str:
    """Python that makes the judge's modules: the warm-up of a zygote, or the beginning of a program."""
    parts = ["import sys, types\n"]
    for name, file in MODULES:
        text = pkgutil.get_data("hutch", "judge/%s.py" % file)
        if text is None:
            raise HutchError("this package is not whole: it lacks judge/%s.py" % file)
        parts.append("sys.modules[%r] = types.ModuleType(%r)\n" % (name, name))
        source = json.dumps(text.decode())  # JSON's escapes mean the same to Python
        parts.append("exec(compile(%s, %r, 'exec'), sys.modules[%r].__dict__)\n" % (source, name, name))
    return "".join(parts)


def engine_options(**options: Any) -> Dict[str, Any]:
    """Options for an engine that judges: the judge is in its zygotes, and times are each run's own to say."""
    at_once = options.get("max_running") or len(os.sched_getaffinity(0))
    zygotes = [Zygote("judge", USUAL, warm_up=judge_text(), min=at_once + 2, max=2 * at_once + 4),
               Zygote("data", DATA, parent="judge", min=1, max=2 * at_once + 2)]
    return {"zygotes": zygotes, "limits": Limits(wall_ms=ALWAYS_MS, cpu_ms=0), **options}


_shared = SharedEngine(engine_options)
default_engine = _shared.get    # the engine that judges
configure = _shared.configure   # options of `Engine` for it


# --- by tests

@dataclass(frozen=True)
class Tests:
    """What a program is to be tested by, as runtime/batch/judge/judge.py takes it."""

    tests: Sequence[str]
    entry: str = ""               # what the tests call: a name, or "Solution().name"
    check: bool = False           # they define check(candidate)
    call_tests: bool = False      # they define functions test_…(), which are called
    trusted: Sequence[str] = ()   # Python that the tests may use, which is the task's own
    trusted_may_fail: bool = False
    before: Sequence[str] = ()    # Python before the program
    data: Any = None              # DATA, in the tests

    __test__ = False              # pytest takes it for a test by its name

    def job(self, program: Sequence[str], token: str, together: bool) -> bytes:
        job = {"token": token, "program": list(program), "before": list(self.before), "trusted": list(self.trusted),
               "trusted_may_fail": self.trusted_may_fail, "before_may_fail": True, "reference": "",
               "tests": list(self.tests),
               "entry": self.entry, "check": self.check, "call_tests": self.call_tests, "no_input": True,
               "asks_objects": False, "together": together}
        if self.data is not None:
            job["data"] = self.data
        return json.dumps(job).encode("ascii")


def _imports(program: Sequence[str]) -> str:
    """What the program imports, after the end of the code that is submitted: the engine looks there for a zygote."""
    found: List[str] = []
    for line in "".join(program).split("\n"):
        words = line.split()
        if len(words) > 1 and words[0] in ("import", "from") and len(found) < MAX_IMPORTS:
            name = words[1].split(".")[0].rstrip(",;")
            if name.isidentifier() and name.isascii():
                found.append("import %s\n" % name)
    return "".join(found)


def _judge_end(result: Result) -> Optional[Judgement]:
    """The verdict where the engine's alone decides. None: the first process ran to an end of its own."""
    message = result.message or ""
    if result.verdict in ("ok", "error"):
        return None
    if result.verdict in ("timeout", "cpu_time"):
        return Judgement("timeout", message, result)
    if result.verdict == "out_of_memory":
        return Judgement("memory_limit", message, result)
    if result.verdict == "output_limit":
        return Judgement("output_limit", message, result)
    if result.verdict == "setup_failed" or (result.verdict == "killed" and result.hutch_failed):
        return Judgement("internal", message, result)
    return Judgement("runtime_error", message, result)


def _judge_loss(report: Dict[str, Any], result: Result, cpu_ms: int) -> Judgement:
    """The program's process is gone; the judge, another one, lived on to say so."""
    number = report.get("signal")
    if not isinstance(number, int):
        code = report.get("exit_code")
        how = "ended (exit code %d)" % code if isinstance(code, int) else "stopped answering"
        return Judgement("runtime_error", "the program %s before the tests were over" % how, result)
    used = max(report.get("cpu_ms") or 0, result.usage.cpu_ms or 0)
    if number == signal.SIGXCPU or (number == signal.SIGKILL and cpu_ms and used + CPU_SLACK_MS >= cpu_ms):
        return Judgement("timeout", "it used up its CPU time", result)
    limit, peak = result.limits["memory"].asked, result.usage.memory_peak_bytes
    if number == signal.SIGKILL and limit and peak is not None and peak >= limit - limit // MEMORY_SLACK:
        return Judgement("memory_limit", "it ran out of memory", result)
    return Judgement("runtime_error", "the program was ended by signal %d before the tests were over" % number, result)


def _judge_report(report: Dict[str, Any], result: Result, cpu_ms: int) -> Judgement:
    kind, text = report.get("kind"), str(report.get("text") or "")
    if kind == "passed":
        return Judgement("pass", "", result)
    if kind == "compile_error":
        return Judgement("compile_error", text, result)
    if kind == "error":
        name = report.get("name")
        verdict = {"AssertionError": "wrong_answer", "MemoryError": "memory_limit"}.get(str(name), "runtime_error")
        return Judgement(verdict, text, result)
    if kind == "ended":
        return _judge_loss(report, result, cpu_ms)
    if kind == "garbage":
        return Judgement("runtime_error", "the program gave %s" % (text or "an answer that cannot be read"), result)
    return Judgement("internal", "the tests cannot be run: %s" % (text or "no reason was given"), result)


def _read_report(result: Result, token: str) -> Optional[Dict[str, Any]]:
    """The judge writes "TOKEN {…}\\n" and nothing else."""
    out = result.stdout_bytes or b""
    if result.verdict != "ok" or not out.startswith(token.encode() + b" "):
        return None
    try:
        report = json.loads(out[len(token) + 1:])
    except (ValueError, RecursionError):
        return None
    return report if isinstance(report, dict) else None


async def judge_tests(engine: Engine, program: Sequence[str], tests: Tests, *, together: Optional[bool] = None,
                      timeout: Optional[float] = None, cpu_time: Optional[float] = None, **limits: Any) -> Judgement:
    """@program: its parts, one after the other. @together: tests and program in one process, as reference runners have
    it; None: where a test passes something that cannot leave its process."""
    prefix = ""
    is_together = bool(together)
    judgement = Judgement("internal", "it was not tried")
    tries = 0
    while tries < TRIES:
        token = secrets.token_hex(16)
        result = await engine.run(prefix + CODE + _imports(program), name="-c",
                                  stdin=tests.job(program, token, is_together),
                                  timeout=timeout, cpu_time=cpu_time, output_bytes=REPORT_BYTES, **limits)
        if not prefix and result.stdout_bytes == MISSING.encode() + b"\n":
            prefix = judge_text()  # the engine is one that does not judge as a rule
            continue
        ended = _judge_end(result)
        report = _read_report(result, token) if ended is None else None
        if report is not None and report.get("kind") == "apart" and together is None and not is_together:
            is_together = True
            continue
        if ended is not None:
            judgement = ended
        elif report is None:
            judgement = Judgement("runtime_error", "the tests were ended before they could report", result)
        else:
            judgement = _judge_report(report, result, int((cpu_time or 0) * 1000))
        if judgement.verdict != "internal":
            return judgement
        tries += 1
    return judgement


# --- by what it prints

def _judge_failure(result: Result) -> Judgement:
    if result.error:
        name = result.error.name
        is_syntax = name in ("SyntaxError", "IndentationError", "TabError")
        verdict = "compile_error" if is_syntax else "memory_limit" if name == "MemoryError" else "runtime_error"
        return Judgement(verdict, "%s: %s" % (name, result.error.value), result)
    how = "ended by %s" % result.signal if result.signal else "exit code %s" % result.exit_code
    return Judgement("runtime_error", how, result)


async def judge_case(engine: Engine, program: str, given: str, expected: Optional[str], *, compare: str = "lines",
                     language: Optional[str] = None, timeout: Optional[float] = None, cpu_time: Optional[float] = None,
                     **limits: Any) -> Judgement:
    """One run with @given as its standard input. @expected: None when it is enough that it ends well."""
    judgement = Judgement("internal", "it was not tried")
    for _ in range(TRIES):
        result = await engine.run(program, stdin=given, language=language, timeout=timeout, cpu_time=cpu_time, **limits)
        ended = _judge_end(result)
        if ended is not None:
            judgement = ended
        elif result.exit_code != 0:
            judgement = _judge_failure(result)
        elif expected is None or _compare.is_same(compare, result.stdout_bytes or b"",
                                                  expected.encode("utf-8", "surrogatepass")):
            judgement = Judgement("pass", "", result)
        else:
            judgement = Judgement("wrong_answer", "wrong answer", result)
        if judgement.verdict != "internal":
            return judgement
    return judgement


# --- functions with many cases

CASES_A_RUN = 1000  # the judge's text has room for so many verdicts
FUNCTION_TESTS = """
def check(candidate):
    marks = []
    for arguments, want in DATA:
        try:
            got = candidate(*arguments)
            if isinstance(got, tuple):
                got = list(got)
            marks.append("1" if got == want else "0")
        except (Exception, SystemExit, KeyboardInterrupt):
            marks.append("0")
    raise AssertionError(MARK + "".join(marks))
"""


def marked(tests: str) -> Tuple[str, str]:
    """Tests that end by telling which cases passed, and the word before that. A program raises what it wants and says
    what it wants, but does not know the word: tests are not in its process."""
    word = secrets.token_hex(16)
    return "MARK = %r\n%s" % (word, tests), word


def read_marks(judgement: Judgement, word: str, count: int) -> Optional[List[bool]]:
    """Which cases passed; None when the tests did not get that far."""
    marks = judgement.text[len(word):]
    is_whole = judgement.text.startswith(word) and len(marks) == count and not set(marks) - {"0", "1"}
    return [mark == "1" for mark in marks] if is_whole and judgement.verdict == "wrong_answer" else None


async def judge_function(engine: Engine, program: Sequence[str], entry: str, cases: Sequence[Tuple[Sequence[Any], Any]],
                         **options: Any) -> List[Judgement]:
    """Calls the function @entry of the program with the arguments of each case; a tuple counts as a list."""
    found: List[Judgement] = []
    for at in range(0, len(cases), CASES_A_RUN):
        part = [[list(arguments), want] for arguments, want in cases[at:at + CASES_A_RUN]]
        text, word = marked(FUNCTION_TESTS)
        tests = Tests([text], entry=entry, check=True, data=part)
        judgement = await judge_tests(engine, program, tests, together=False, **options)
        marks = read_marks(judgement, word, len(part))
        if marks is None:
            found += [judgement] * len(part)
        else:
            found += [Judgement("pass" if mark else "wrong_answer", "", judgement.result) for mark in marks]
    return found
