"""What a Proposer is paid for: a valid question that the Solvers answer sometimes, but not always.

The game: the Proposer hands in (question, answer, evidence mails). The checks of ``rewards.refusal`` come first; a
refused question stays in its group with the lowest pay, 0, because failures are contrast and a penalty below 0 starts a
spiral (2510.18821). Only the Solvers' success then pays. A question nobody solves pays exactly 0: any pay for it is
hacked within minutes by unsolvable or wrong questions.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field

from environments.trajectory import StopReason, Trajectory
from rewards.breakdown import RewardBreakdown
from rewards.refusal import ProposerChecks, Refusal, demand_proposer
from rewards.shapes import SHAPES, Shape


class ProposerReward(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    shape: Shape = "flat_top"
    weight: float = Field(default=1.0, gt=0.0, allow_inf_nan=False)
    """Times the shape's value: the ``success`` component."""
    valid: float = Field(default=0.0, ge=0.0, allow_inf_nan=False)
    """Paid for any valid question that was sent to Solvers."""
    zero_if_unsolved: bool = True
    """A question that no Solver answered pays exactly 0, ``valid`` included."""
    checks: ProposerChecks = Field(default_factory=ProposerChecks)


def proposer_reward(
    trajectory: Trajectory,
    refusal: Refusal | None,
    outcomes: Sequence[RewardBreakdown],
    settings: ProposerReward,
) -> RewardBreakdown:
    """Pay one proposal from its refusal and the breakdowns of its Solver rollouts (empty when none were run).

    Components: ``valid`` and ``success``. Labels: ``refusal`` (empty when valid), ``p_hat`` (-1 when unmeasured),
    ``n_solvers`` (unmasked outcomes), ``hops`` (asked for), ``unsolved_budget``. Refused: total 0, stays in its group.
    Masked: an environment fault, or a valid question without any usable Solver outcome, whose worth nobody knows.

    Raises:
        ValueError: the trajectory is not a Proposer's, or a refused proposal comes with Solver outcomes.
    """
    demand_proposer(trajectory, "proposer_reward")
    if refusal is not None and outcomes:
        raise ValueError(
            f"proposal {trajectory.uid} was refused ({refusal.value}) yet has {len(outcomes)} Solver outcomes; "
            "send only valid questions to Solvers"
        )
    fault = trajectory.stop_reason is StopReason.ENVIRONMENT_FAULT
    usable = [outcome for outcome in outcomes if not outcome.masked]
    n = len(usable)
    p = sum(outcome.labels["verdict"] == "right" for outcome in usable) / n if n else -1.0
    valid = success = 0.0
    if not fault and refusal is None and n and (p > 0.0 or not settings.zero_if_unsolved):
        valid, success = settings.valid, settings.weight * SHAPES[settings.shape](p, n)
    return RewardBreakdown(
        {"valid": valid, "success": success},
        {
            "refusal": refusal.value if refusal else "",
            "p_hat": p,
            "n_solvers": float(n),
            "hops": float(trajectory.task.hops),
            "unsolved_budget": refusal is None and not fault and not outcomes,
        },
        masked=fault or (refusal is None and not n),
    )
