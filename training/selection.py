"""Which trajectories enter the update. A low reward is never a reason to leave one out: it is the group's contrast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from environments.task import Role
from environments.trajectory import StopReason, Trajectory
from rewards.breakdown import RewardBreakdown
from training.balance import TokenBalance
from training.config import GrpoConfig

FAULT: Final = "environment_fault"
MASKED: Final = "masked"
LOGPROB_ERROR: Final = "logprob_error"
NO_TOKENS: Final = "no_sampled_token"
OVERLONG: Final = "overlong"
ZERO_VARIANCE: Final = "zero_variance"
TOO_OLD: Final = "too_old"
TOKEN_BALANCE: Final = "token_balance"
REASONS: Final = (FAULT, MASKED, TOO_OLD, LOGPROB_ERROR, NO_TOKENS, OVERLONG, ZERO_VARIANCE, TOKEN_BALANCE)
"""In the order in which they are asked; a trajectory is counted under the first that holds."""


@dataclass(frozen=True, slots=True)
class Selection:
    """``kept`` are indices into the batch, ascending. ``dropped`` counts by reason, all of ``REASONS`` present.
    ``trouble`` says in one line where the selection leaves too little to learn from, mostly ""."""

    kept: tuple[int, ...]
    dropped: dict[str, int]
    metrics: dict[str, float]
    trouble: str = ""


def out_of_group(trajectory: Trajectory, breakdown: RewardBreakdown) -> bool:
    """Whether its reward says nothing of the policy, so that it must not shift its group's baseline either."""
    return breakdown.masked or trajectory.stop_reason is StopReason.ENVIRONMENT_FAULT


def select(
    trajectories: Sequence[Trajectory],
    breakdowns: Sequence[RewardBreakdown],
    advantages: Sequence[float],
    settings: GrpoConfig,
    *,
    logprob_error: Sequence[bool] | None = None,
    too_old: Sequence[bool] | None = None,
    balance: TokenBalance | None = None,
) -> Selection:
    """Leave out what carries no signal or a false one.

    Out go environment faults, masked rewards, trajectories that are ``too_old`` or whose ``logprob_error`` is set (see
    ``training.mismatch``), those without a sampled token, with ``overlong_filtering`` those cut by a full context, and
    whole groups in which every advantage is 0. A member with advantage 0 in a group that has others stays. Of what is
    left, ``balance`` drops whole groups of the heavier role.

    Raises ValueError if the arguments are not aligned.
    """
    errors = logprob_error if logprob_error is not None else [False] * len(trajectories)
    old = too_old if too_old is not None else [False] * len(trajectories)
    if not len(trajectories) == len(breakdowns) == len(advantages) == len(errors) == len(old):
        raise ValueError(
            f"got {len(trajectories)} trajectories, {len(breakdowns)} breakdowns, {len(advantages)} advantages, "
            f"{len(errors)} log-prob error flags and {len(old)} age flags; they must be aligned"
        )
    alive = {trajectory.group_id for trajectory, a in zip(trajectories, advantages, strict=True) if a != 0}
    reasons: list[str | None] = []
    for trajectory, breakdown, error, aged in zip(trajectories, breakdowns, errors, old, strict=True):
        holds = {
            FAULT: trajectory.stop_reason is StopReason.ENVIRONMENT_FAULT,
            MASKED: breakdown.masked,
            TOO_OLD: aged,
            LOGPROB_ERROR: error,
            NO_TOKENS: trajectory.sampled_tokens == 0,
            OVERLONG: settings.overlong_filtering and trajectory.stop_reason is StopReason.MAX_TOKENS,
            ZERO_VARIANCE: trajectory.group_id not in alive,
        }
        reasons.append(next((reason for reason, on in holds.items() if on), None))
    trouble = ""
    if balance is not None:
        left = [index for index, reason in enumerate(reasons) if reason is None]
        surplus = balance.surplus(trajectories, left)
        trouble = balance.objection(trajectories, left, surplus)
        for index in surplus:
            reasons[index] = TOKEN_BALANCE
    return Selection(
        kept=tuple(index for index, reason in enumerate(reasons) if reason is None),
        dropped={reason: reasons.count(reason) for reason in REASONS},
        metrics=_metrics(trajectories, reasons),
        trouble=trouble,
    )


def _metrics(trajectories: Sequence[Trajectory], reasons: Sequence[str | None]) -> dict[str, float]:
    """Per role: trajectories and sampled tokens before and after, the role's share of the tokens, drops by reason.

    Every name is present at every step, so that a curve has no gaps.
    """
    metrics: dict[str, float] = {}
    all_before = sum(trajectory.sampled_tokens for trajectory in trajectories)
    all_after = sum(t.sampled_tokens for t, reason in zip(trajectories, reasons, strict=True) if reason is None)
    for role in Role:
        mine = [(t, reason) for t, reason in zip(trajectories, reasons, strict=True) if t.role is role]
        before = sum(t.sampled_tokens for t, _ in mine)
        after = sum(t.sampled_tokens for t, reason in mine if reason is None)
        prefix = f"selection/{role}"
        metrics |= {
            f"{prefix}/trajectories_before": float(len(mine)),
            f"{prefix}/trajectories_after": float(sum(reason is None for _, reason in mine)),
            f"{prefix}/tokens_before": float(before),
            f"{prefix}/tokens_after": float(after),
            f"{prefix}/token_share_before": before / all_before if all_before else 0.0,
            f"{prefix}/token_share_after": after / all_after if all_after else 0.0,
        }
        for reason in REASONS:
            metrics[f"{prefix}/dropped_{reason}"] = float(sum(each == reason for _, each in mine))
    return metrics
