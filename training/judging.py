"""A step's Solver rollouts before their judge: asked side by side where that is faster, faults masked and counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from corpus_index.faults import Unavailable
from environments.trajectory import Trajectory
from rewards.answers import Verdict
from rewards.breakdown import RewardBreakdown
from rewards.judge import AnswerPair, BatchJudge, Judge
from rewards.solver import FAULT, SolverReward, solver_reward
from training.selection import out_of_group


@dataclass(frozen=True, slots=True)
class _Known:
    """A judge that has judged."""

    verdicts: Mapping[AnswerPair, Verdict | Unavailable]

    def judge(self, question: str, answer: str, key: str) -> Verdict:
        verdict = self.verdicts[AnswerPair(question, answer, key)]
        if isinstance(verdict, Unavailable):
            raise verdict
        return verdict


def solver_pay(solved: Sequence[Trajectory], judge: Judge, settings: SolverReward) -> list[RewardBreakdown]:
    """``solver_reward`` of each, in order. Equal answers to one question are judged once."""
    if isinstance(judge, BatchJudge):
        pairs = list(
            dict.fromkeys(
                AnswerPair(t.task.question, t.submission.answer, t.task.answer) for t in solved if t.submission
            )
        )
        judge = _Known(dict(zip(pairs, judge.judge_all(pairs), strict=True)))
    return [solver_reward(t, judge, settings) for t in solved]


def success_rates(solved: Sequence[Trajectory], pay: Sequence[RewardBreakdown]) -> dict[str, float]:
    """Share of right answers by group id, over the rollouts that nothing but the policy had a hand in."""
    verdicts: dict[str, list[bool]] = {}
    for t, p in zip(solved, pay, strict=True):
        if not out_of_group(t, p):
            verdicts.setdefault(t.group_id, []).append(p.labels["verdict"] == Verdict.RIGHT)
    return {group: sum(right) / len(right) for group, right in verdicts.items()}


def judge_faults(pay: Sequence[RewardBreakdown]) -> list[str]:
    """Why the judge failed, once for each rollout that it failed."""
    return [str(p.labels["judge_fault"]) for p in pay if p.labels["verdict"] == FAULT]


def judge_metrics(pay: Sequence[RewardBreakdown]) -> dict[str, float]:
    """How many rollouts the judge could not tell (``judge/unsure``) and failed (``judge/faults``, and by reason)."""
    verdicts = Counter(p.labels["verdict"] for p in pay)
    reasons = Counter(cause.partition(":")[0] for cause in judge_faults(pay))
    return {
        "judge/unsure": float(verdicts[Verdict.UNSURE]),
        "judge/faults": float(verdicts[FAULT]),
        **{f"judge/fault/{reason}": float(n) for reason, n in sorted(reasons.items())},
    }
