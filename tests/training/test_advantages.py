from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.advantages import GroupCounts, count_groups, group_advantages
from training.config import GrpoConfig

PLAIN = GrpoConfig(normalize_rewards=False, use_leave_one_out_baseline=False)


def of(rewards: list[float], masked: list[bool] | None = None, **settings: object) -> list[float]:
    """One group."""
    config = GrpoConfig.model_validate({"normalize_rewards": False, "use_leave_one_out_baseline": False, **settings})
    return group_advantages(rewards, ["g"] * len(rewards), masked or [False] * len(rewards), config)


def test_by_hand() -> None:
    rewards = [0.0, 0.0, 0.0, 1.0]
    assert of(rewards) == pytest.approx([-0.25, -0.25, -0.25, 0.75])
    assert of(rewards, normalize_rewards=True) == pytest.approx([-0.5, -0.5, -0.5, 1.5], rel=1e-5)
    assert of(rewards, use_leave_one_out_baseline=True) == pytest.approx([-1 / 3, -1 / 3, -1 / 3, 1.0])


def test_the_single_winner_is_scaled_like_its_group() -> None:
    """Leave-one-out std of the winner's group is 0, which would leave it alone unscaled (+1.0 by -.577)."""
    both = of([0.0, 0.0, 0.0, 1.0], normalize_rewards=True, use_leave_one_out_baseline=True)
    assert both == pytest.approx([-2 / 3, -2 / 3, -2 / 3, 2.0], rel=1e-5)
    # With a group of two the others' std is undefined; the group's is not.
    pair = of([1.0, 3.0], normalize_rewards=True, use_leave_one_out_baseline=True)
    assert pair == pytest.approx([-math.sqrt(2), math.sqrt(2)], rel=1e-5)


def test_by_mean_the_winners_of_a_group_pull_with_the_share_of_losers() -> None:
    """MaxRL: the ones' advantages sum to n (1 - p), the gradient of log p."""
    for winners in range(1, 8):
        rewards = [1.0] * winners + [0.0] * (8 - winners)
        got = of(rewards, normalize_rewards=True, normalize_by="mean")
        assert sum(got[:winners]) == pytest.approx(8 - winners, rel=1e-4)
        assert sum(got) == pytest.approx(0.0, abs=1e-9)
    assert of([0.0, 0.0], normalize_rewards=True, normalize_by="mean") == [0.0, 0.0]
    # Without normalize_rewards it has nothing to say.
    assert of([0.0, 1.0], normalize_by="mean") == of([0.0, 1.0])
    with pytest.raises(ValueError, match=r"-0\.5 beside grpo\.normalize_by: mean"):
        of([-0.5, 1.0], normalize_rewards=True, normalize_by="mean")


def test_groups_of_equal_prompts_stay_apart_and_interleave() -> None:
    got = group_advantages([0.0, 10.0, 1.0, 14.0], ["a", "b", "a", "b"], [False] * 4, PLAIN)
    assert got == pytest.approx([-0.5, -2.0, 0.5, 2.0])


def test_masked_members_shift_no_baseline() -> None:
    assert of([0.0, 1.0, -100.0], [False, False, True]) == pytest.approx([-0.5, 0.5, 0.0])
    assert of([0.0, math.nan, 1.0], [False, True, False]) == pytest.approx([-0.5, 0.0, 0.5])


def test_no_signal_is_exactly_zero() -> None:
    assert of([0.7]) == [0.0]
    assert of([0.7, 0.2], [False, True]) == [0.0, 0.0]
    assert of([0.1 + 0.2, 0.3, 0.3], normalize_rewards=True) == [0.0, 0.0, 0.0]  # equal but for the last bit
    assert of([1.0, 2.0], [True, True]) == [0.0, 0.0]


def test_clipping_comes_last() -> None:
    got = of([0.0, 0.0, 0.0, 8.0], advantage_clip_low=-1.5, advantage_clip_high=4.0)
    assert got == pytest.approx([-1.5, -1.5, -1.5, 4.0])


def test_counts() -> None:
    ids = ["a", "a", "b", "c", "c", "d", "d", "d"]
    masked = [False, False, False, True, True, False, False, True]
    got = count_groups([0.0, 1.0, 5.0, 1.0, 2.0, 3.0, 3.0, 9.0], ids, masked)
    assert got == GroupCounts(groups=4, singletons=1, zero_variance=1, all_masked=1, smallest=0)
    assert count_groups([], [], []) == GroupCounts(groups=0, singletons=0, zero_variance=0, all_masked=0, smallest=0)


def test_refusals() -> None:
    with pytest.raises(ValueError, match="2 rewards, 1 group ids, 2 masks"):
        group_advantages([0.0, 1.0], ["a"], [False, False], PLAIN)
    with pytest.raises(ValueError, match="rollout 1 of group 'a' has reward nan"):
        group_advantages([0.0, math.nan], ["a", "a"], [False, False], PLAIN)
    with pytest.raises(ValueError, match="group 'a' mixes the roles 'solver' and 'proposer'"):
        group_advantages([0.0, 1.0], ["a", "a"], [False, False], PLAIN, roles=["solver", "proposer"])
    group_advantages([0.0, 1.0], ["a", "b"], [False, False], PLAIN, roles=["solver", "proposer"])


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.floats(-5, 5), st.booleans()), max_size=20),
    st.booleans(),
    st.booleans(),
)
def test_against_direct_formulas(rows: list[tuple[str, float, bool]], normalise: bool, loo: bool) -> None:
    ids, rewards, masked = [r[0] for r in rows], [r[1] for r in rows], [r[2] for r in rows]
    config = GrpoConfig(normalize_rewards=normalise, use_leave_one_out_baseline=loo)
    got = group_advantages(rewards, ids, masked, config)
    for i, (group, reward, out) in enumerate(rows):
        active = [j for j, row in enumerate(rows) if row[0] == group and not row[2]]
        paid = [rewards[j] for j in active]
        if out or len(paid) < 2 or max(paid) - min(paid) <= 1e-9:
            assert got[i] == 0.0
            continue
        baseline = statistics.fmean(rewards[j] for j in active if not loo or j != i)
        scale = statistics.stdev(paid) + 1e-6 if normalise else 1.0
        assert got[i] == pytest.approx((reward - baseline) / scale, rel=1e-6, abs=1e-9)
    for group in set(ids):  # a baseline moves no mass: each group's advantages sum to 0
        assert math.fsum(a for a, g in zip(got, ids, strict=True) if g == group) == pytest.approx(0.0, abs=1e-6)
