"""What a Solver is paid for: a right answer, and by setting a little for opening the key's mails.

Outcomes form bands (wrong, none, right), as in ART-E; the pay for evidence moves a rollout inside its band and can
never lift it into the next one. Two forms of it: ``evidence_bonus`` times the share of the key's mails that were
opened, and ``evidence_each`` for every one of them up to ``evidence_cap``. The reward reported for Solvers on built
data is wrong -1, none 0, right +1 and 0.2 a key mail without a cap: five opened mails then lift a wrong answer to where
silence is, so that form needs ``cross_bands``; with ``evidence_cap: 0.6`` (three mails) the numbers keep their bands.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from corpus_index.faults import Unavailable
from environments.task import Role
from environments.trajectory import StopReason, Trajectory
from rewards.answers import Verdict
from rewards.breakdown import RewardBreakdown
from rewards.judge import Judge

FAULT: Final = "fault"
"""In place of a verdict, where the judge failed."""


class SolverReward(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    wrong: float = Field(default=0.0, allow_inf_nan=False)
    """Pay for a wrong answer."""
    none: float = Field(default=0.0, allow_inf_nan=False)
    """Pay for ending without an answer."""
    right: float = Field(default=1.0, allow_inf_nan=False)
    """Pay for a right answer."""
    evidence_bonus: float = Field(default=0.0, ge=0.0, allow_inf_nan=False)
    """Times the share of the key's mails that were opened."""
    evidence_each: float = Field(default=0.0, ge=0.0, allow_inf_nan=False)
    """Pay for each of the key's mails that was opened."""
    evidence_cap: float | None = Field(default=None, ge=0.0, allow_inf_nan=False)
    """The most that ``evidence_each`` pays a rollout; null: no limit, which needs ``cross_bands``."""
    cross_bands: bool = False
    """Allow evidence to pay as much as the smallest gap between two bands, or more."""
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
        if self.most_for_evidence >= gap and not self.cross_bands:
            raise ValueError(
                f"rewards.solver: evidence_bonus={self.evidence_bonus} and evidence_each={self.evidence_each} with "
                f"evidence_cap={self.evidence_cap} pay up to {self.most_for_evidence}; together they must stay below "
                f"{gap}, the smallest gap between wrong={self.wrong}, none={self.none} and right={self.right}, or they "
                "cross bands. Lower them, set evidence_cap, or allow it with cross_bands"
            )
        return self

    @property
    def most_for_evidence(self) -> float:
        """What evidence can add to a rollout's pay; infinite where each mail pays without a cap."""
        each = math.inf if self.evidence_cap is None else self.evidence_cap
        return self.evidence_bonus + (each if self.evidence_each else 0.0)

    def for_evidence(self, opened: int, needed: int) -> float:
        """Pay for having opened ``opened`` of the ``needed`` mails of the key."""
        share = opened / needed if needed else 0.0
        each = self.evidence_each * opened
        return self.evidence_bonus * share + (each if self.evidence_cap is None else min(each, self.evidence_cap))


def solver_reward(trajectory: Trajectory, judge: Judge, settings: SolverReward) -> RewardBreakdown:
    """Judge one Solver rollout against the key in its task.

    Components: ``correctness`` (the band) and ``evidence`` (the pay for opened key mails). Labels: ``verdict`` (right,
    wrong, none, unsure or fault), ``grounded`` (every key mail was opened), ``stop``; ``judge_fault`` is why the judge
    had none to give. A fault of the environment or of the judge is masked and pays nothing.

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
    labels: dict[str, float | str | bool] = {"grounded": grounded, "stop": trajectory.stop_reason.value}
    verdict = "none"
    if not fault and trajectory.submission is not None:
        try:
            verdict = judge.judge(task.question, trajectory.submission.answer, task.answer).value
        except Unavailable as broken:
            verdict = FAULT
            labels["judge_fault"] = str(broken)
    labels["verdict"] = verdict
    if fault or verdict == FAULT or (verdict == Verdict.UNSURE and settings.unsure == "masked"):
        return RewardBreakdown({"correctness": 0.0, "evidence": 0.0}, labels, masked=True)
    pay = {"right": settings.right, "none": settings.none}.get(verdict, settings.wrong)
    return RewardBreakdown({"correctness": pay, "evidence": settings.for_evidence(opened, len(key_mails))}, labels)
