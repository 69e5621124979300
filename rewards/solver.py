"""What a Solver is paid for: a right answer, and by setting a little for opening the key's mails.

Outcomes form bands (wrong, none, right), as in ART-E; the evidence bonus moves a rollout inside its band and can never
lift it into the next one.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from environments.task import Role
from environments.trajectory import StopReason, Trajectory
from rewards.answers import Verdict
from rewards.breakdown import RewardBreakdown
from rewards.judge import Judge


class SolverReward(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    wrong: float = Field(default=0.0, allow_inf_nan=False)
    """Pay for a wrong answer."""
    none: float = Field(default=0.0, allow_inf_nan=False)
    """Pay for ending without an answer."""
    right: float = Field(default=1.0, allow_inf_nan=False)
    """Pay for a right answer."""
    evidence_bonus: float = Field(default=0.0, ge=0.0, allow_inf_nan=False)
    """Times the share of the key's mails that were opened. Must stay below the smallest gap between two bands."""
    unsure: Literal["wrong", "masked"] = "wrong"
    """An UNSURE verdict is paid like a wrong answer, or keeps the rollout out of its group."""

    @model_validator(mode="after")
    def _bands(self) -> Self:
        if self.right <= max(self.wrong, self.none):
            raise ValueError(
                f"rewards.solver: right={self.right} must be above wrong={self.wrong} and none={self.none}; "
                "otherwise a right answer is not worth giving"
            )
        gap = min(high - low for low, high in pairwise(sorted({self.wrong, self.none, self.right})))
        if self.evidence_bonus >= gap:
            raise ValueError(
                f"rewards.solver: evidence_bonus={self.evidence_bonus} must be below {gap}, the smallest gap between "
                f"wrong={self.wrong}, none={self.none} and right={self.right}; otherwise it crosses bands. Lower it"
            )
        return self


def solver_reward(trajectory: Trajectory, judge: Judge, settings: SolverReward) -> RewardBreakdown:
    """Judge one Solver rollout against the key in its task.

    Components: ``correctness`` (the band) and ``evidence`` (the bonus). Labels: ``verdict`` (right, wrong, none or
    unsure), ``grounded`` (every key mail was opened), ``stop``. An environment fault is masked and pays nothing.
    Whatever the judge raises passes through: the caller knows whether to retry or to mask.

    Raises:
        ValueError: the trajectory is not a Solver's.
    """
    if trajectory.role is not Role.SOLVER:
        raise ValueError(
            f"solver_reward got trajectory {trajectory.uid} of role {trajectory.role.value!r}, expected 'solver'; "
            "pay proposals with proposer_reward"
        )
    task = trajectory.task
    key_mails = set(task.evidence)
    opened = len(key_mails & set(trajectory.opened))
    grounded = bool(key_mails) and opened == len(key_mails)
    fault = trajectory.stop_reason is StopReason.ENVIRONMENT_FAULT
    if fault or trajectory.submission is None:
        verdict = "none"
    else:
        verdict = judge.judge(task.question, trajectory.submission.answer, task.answer).value
    labels = {"verdict": verdict, "grounded": grounded, "stop": trajectory.stop_reason.value}
    if fault or (verdict == Verdict.UNSURE and settings.unsure == "masked"):
        return RewardBreakdown({"correctness": 0.0, "evidence": 0.0}, labels, masked=True)
    pay = {"right": settings.right, "none": settings.none}.get(verdict, settings.wrong)
    share = opened / len(key_mails) if key_mails else 0.0
    return RewardBreakdown({"correctness": pay, "evidence": settings.evidence_bonus * share}, labels)
