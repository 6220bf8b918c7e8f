"""Rewards for verl. `overrides()` is what goes on its command line:

    python3 -m verl.trainer.main_ppo $(python3 -m hutch.verl) ...

verl loads this file by its path, so it imports hutch by name."""
from __future__ import annotations

import os
from typing import Any, Dict, List, Optional, Sequence

from hutch import rewards

MAX_CASES = 10  # of which verl's own score is the share


def _as_dict(found: rewards.Score) -> Dict[str, Any]:
    """The same keys for each sample, as verl makes columns of them."""
    return {"score": found.value or 0.0, "passed": found.passed, "cases": len(found.judgements),
            "is_judged": found.value is not None}


def compute_scores(data_sources: Sequence[Any], solution_strs: Sequence[str], ground_truths: Sequence[Any],
                   extra_infos: Optional[Sequence[Any]] = None, *, timeout: float = 10.0,
                   compare: str = "rstrip-newlines",
                   max_cases: Optional[int] = MAX_CASES, **_others: Any) -> List[Dict[str, Any]]:
    """For the reward manager `batch`: one call for all samples. What could not be judged scores 0, and says is_judged
    false."""
    found = rewards.judge_all(list(solution_strs), list(ground_truths), timeout=timeout, compare=compare,
                              max_cases=max_cases)
    return [_as_dict(one) for one in found]


def compute_score(data_source: Any = None, solution_str: str = "", ground_truth: Any = None, extra_info: Any = None,
                  **options: Any) -> Dict[str, Any]:
    """For the other reward managers, which ask for one sample at a time."""
    return compute_scores([data_source], [solution_str], [ground_truth], [extra_info], **options)[0]


def overrides(batch: bool = True, prefix: str = "") -> List[str]:
    """Words for verl's command line. @prefix: "reward." for versions that have these keys below `reward`."""
    words = ["%scustom_reward_function.path=%s" % (prefix, os.path.abspath(__file__)),
             "%scustom_reward_function.name=%s" % (prefix, "compute_scores" if batch else "compute_score")]
    return words + (["reward_model.reward_manager=batch"] if batch else [])


if __name__ == "__main__":
    print(" ".join(overrides()))
