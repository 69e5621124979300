from __future__ import annotations

import pytest

from environments.task import Role, Task
from environments.trajectory import StopReason, Trajectory
from rewards.breakdown import RewardBreakdown
from training.advantages import group_advantages
from training.config import GrpoConfig
from training.selection import REASONS, Selection, out_of_group, select


def rollout(
    group: str,
    *,
    role: Role = Role.SOLVER,
    tokens: int = 3,
    stop: StopReason = StopReason.SUBMITTED,
) -> Trajectory:
    return Trajectory(
        uid=f"{group}-{tokens}",
        task=Task(role=role, group_id=group),
        token_ids=(5,) * (tokens + 2),
        loss_mask=(0, 0) + (1,) * tokens,
        logprobs=(0.0, 0.0) + (-1.0,) * tokens,
        stop_reason=stop,
        policy_version=0,
    )


def paid(total: float, masked: bool = False) -> RewardBreakdown:
    return RewardBreakdown({"correct": total}, {}, masked=masked)


def run(rows: list[tuple[Trajectory, RewardBreakdown]], config: GrpoConfig | None = None, **more: object) -> Selection:
    config = config or GrpoConfig()
    trajectories, breakdowns = [t for t, _ in rows], [b for _, b in rows]
    advantages = group_advantages(
        [b.total for b in breakdowns],
        [t.group_id for t in trajectories],
        [out_of_group(t, b) for t, b in rows],
        config,
        roles=[t.role for t in trajectories],
    )
    return select(trajectories, breakdowns, advantages, config, **more)  # type: ignore[arg-type]


def test_zero_variance_goes_and_low_rewards_stay() -> None:
    rows = [
        (rollout("all right"), paid(1)),
        (rollout("all right"), paid(1)),
        (rollout("all wrong"), paid(-1)),
        (rollout("all wrong"), paid(-1)),
        (rollout("mixed"), paid(-1)),
        (rollout("mixed"), paid(-1)),
        (rollout("mixed"), paid(1)),
    ]
    got = run(rows)
    assert got.kept == (4, 5, 6)
    assert got.dropped == {**dict.fromkeys(REASONS, 0), "zero_variance": 4}


def test_a_member_paid_the_mean_stays_with_its_group() -> None:
    assert run([(rollout("g"), paid(0)), (rollout("g"), paid(1)), (rollout("g"), paid(2))]).kept == (0, 1, 2)


def test_each_reason_is_counted_once() -> None:
    fault, full = StopReason.ENVIRONMENT_FAULT, StopReason.MAX_TOKENS
    rows = [
        (rollout("g", stop=fault), paid(0, masked=True)),  # a fault first, though masked too
        (rollout("g"), paid(5, masked=True)),
        (rollout("g"), paid(0)),
        (rollout("g", tokens=0), paid(1)),
        (rollout("g", stop=full), paid(0)),
        (rollout("g"), paid(1)),
        (rollout("alone"), paid(3)),
        (rollout("alone"), paid(9, masked=True)),
    ]
    flags = [False, False, True, False, False, False, False, False]
    got = run(rows, GrpoConfig(overlong_filtering=True), logprob_error=flags)
    assert got.kept == (5,)
    assert got.dropped == {
        "environment_fault": 1,
        "masked": 2,
        "logprob_error": 1,
        "no_sampled_token": 1,
        "overlong": 1,
        "zero_variance": 1,
    }
    assert len(rows) == len(got.kept) + sum(got.dropped.values())
    assert 4 in run(rows).kept  # cut episodes are trained on unless the filter is on


def test_faults_and_masked_rewards_leave_the_group_alone() -> None:
    """Two equal rewards and a fault: no signal, although the fault's reward differs."""
    rows = [
        (rollout("g"), paid(1)),
        (rollout("g"), paid(1)),
        (rollout("g", stop=StopReason.ENVIRONMENT_FAULT), paid(0)),
    ]
    assert run(rows).kept == ()


def test_tokens_by_role() -> None:
    rows = [
        (rollout("p", role=Role.PROPOSER, tokens=10), paid(0)),
        (rollout("p", role=Role.PROPOSER, tokens=20), paid(1)),
        (rollout("s", tokens=4), paid(0)),
        (rollout("s", tokens=6), paid(0)),
    ]
    metrics = run(rows).metrics
    assert metrics["selection/proposer/tokens_before"] == metrics["selection/proposer/tokens_after"] == 30
    assert metrics["selection/solver/tokens_before"] == 10
    assert metrics["selection/solver/tokens_after"] == 0
    assert metrics["selection/solver/token_share_before"] == 0.25
    assert metrics["selection/proposer/token_share_after"] == 1.0
    assert metrics["selection/solver/dropped_zero_variance"] == 2
    assert metrics["selection/solver/trajectories_before"] == 2
    assert metrics["selection/solver/trajectories_after"] == 0
    assert set(run([]).metrics) == set(metrics)  # a curve has no gaps


def test_misaligned_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="1 trajectories, 0 breakdowns"):
        select([rollout("g")], [], [0.0], GrpoConfig())
