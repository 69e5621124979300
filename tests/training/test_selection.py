from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from environments.task import Role, Task
from environments.trajectory import StopReason, Trajectory
from rewards.breakdown import RewardBreakdown
from training.advantages import group_advantages
from training.balance import TokenBalance, age_metrics, ages, beyond_age
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
        "too_old": 0,
        "token_balance": 0,
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


def proposer(group: str, tokens: int) -> Trajectory:
    return rollout(group, role=Role.PROPOSER, tokens=tokens)


def mixed(make: Callable[[str, int], Trajectory], group: str, tokens: int) -> list[tuple[Trajectory, RewardBreakdown]]:
    """A group of two with a signal."""
    return [(make(group, tokens), paid(0)), (make(group, tokens), paid(1))]


def solver(group: str, tokens: int) -> Trajectory:
    return rollout(group, tokens=tokens)


def shares(got: Selection) -> float:
    return max(got.metrics[f"selection/{role}/token_share_after"] for role in Role)


def test_the_heavier_role_loses_whole_groups_until_its_share_is_within_bounds() -> None:
    rows = [row for k in range(8) for row in mixed(proposer, f"p{k}", 10)] + mixed(solver, "s", 20)
    got = run(rows, balance=TokenBalance(0.6, random.Random(0)))
    # 160 against 40 tokens: at most 60 may stay, and groups are of 20.
    assert got.dropped["token_balance"] == got.metrics["selection/proposer/dropped_token_balance"] == 10
    left = [rows[i][0].group_id for i in got.kept]
    assert Counter(left) == {**dict.fromkeys(left, 2)}
    assert shares(got) == 0.6


def test_the_draw_hangs_on_the_seed_and_never_on_the_reward() -> None:
    """Over many seeds every group goes equally often, the one that is paid least included."""
    rows = [row for k in range(4) for row in mixed(solver, f"s{k}", 10)] + mixed(proposer, "p", 10)
    rows += [(solver("bad", 10), paid(-5)), (solver("bad", 10), paid(-4.9))]
    gone: Counter[str] = Counter()
    for seed in range(400):
        got = run(rows, balance=TokenBalance(0.7, random.Random(seed)))
        again = run(rows, balance=TokenBalance(0.7, random.Random(seed)))
        assert got.kept == again.kept
        gone.update({rows[i][0].group_id for i in range(len(rows)) if i not in got.kept})
    assert set(gone) == {"s0", "s1", "s2", "s3", "bad"}
    assert all(200 < count < 280 for count in gone.values())  # 3 of 5 go: 240 each, on average


@given(
    tokens=st.lists(st.integers(1, 30), min_size=1, max_size=8),
    other=st.integers(1, 60),
    bound=st.sampled_from([0.55, 0.6, 0.8]),
    seed=st.integers(0, 5),
)
def test_balance_never_drops_more_than_it_must(tokens: list[int], other: int, bound: float, seed: int) -> None:
    rows = [row for k, n in enumerate(tokens) for row in mixed(solver, f"s{k}", n)] + mixed(proposer, "p", other)
    before, got = run(rows), run(rows, balance=TokenBalance(bound, random.Random(seed)))
    dropped = set(before.kept) - set(got.kept)
    heavy_before = max(2 * sum(tokens), 2 * other) / (2 * sum(tokens) + 2 * other)
    groups = {rows[i][0].group_id for i in got.kept}
    assert "p" in groups
    assert len(groups) >= 2  # neither role is emptied
    if heavy_before <= bound:
        assert not dropped
    elif len(groups) > 2:  # the last group of a role stays, however heavy
        solvers = sum(rows[i][0].sampled_tokens for i in got.kept if rows[i][0].role is Role.SOLVER)
        assert solvers / (solvers + 2 * other) <= bound


def test_one_role_alone_has_nothing_to_be_balanced_with() -> None:
    rows = mixed(solver, "a", 10) + mixed(solver, "b", 10)
    assert run(rows, balance=TokenBalance(0.6, random.Random(0))).kept == (0, 1, 2, 3)


def test_a_balance_that_leaves_hardly_anything_says_so() -> None:
    """Nine Solver groups of 20 tokens against one Proposer group of 20: one and a half times its tokens may stay."""
    rows = [row for k in range(9) for row in mixed(solver, f"s{k}", 10)] + mixed(proposer, "p", 10)
    got = run(rows, balance=TokenBalance(0.6, random.Random(0)))
    assert got.trouble.startswith("selfplay.max_token_share=0.6 dropped 16 of 18 solver rollouts")
    assert "have 20 tokens alone; raise it" in got.trouble
    assert run(rows, balance=TokenBalance(0.8, random.Random(0))).trouble == ""  # 10 of 18: a trim


def test_rollouts_of_too_old_weights_go_and_their_ages_are_told() -> None:
    rows = [(replace(t, policy_version=5 - k), p) for k, (t, p) in enumerate(mixed(solver, "a", 3) * 2)]
    old = ages([t for t, _ in rows], 5)
    assert old == [0, 1, 2, 3]
    got = run(rows, too_old=beyond_age(old, 1))
    assert got.kept == (0, 1)
    assert got.dropped["too_old"] == got.metrics["selection/solver/dropped_too_old"] == 2
    assert beyond_age(old, None) == [False] * 4
    assert age_metrics(old) == {"age/mean": 1.5, "age/max": 3.0}
    assert age_metrics([]) == {"age/mean": 0.0, "age/max": 0.0}


def test_misaligned_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="1 trajectories, 0 breakdowns"):
        select([rollout("g")], [], [0.0], GrpoConfig())
