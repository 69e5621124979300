"""Advantages from group statistics (GRPO 2402.03300; without the std division, Dr.GRPO 2503.20783; divided by the mean,
MaxRL 2602.02710)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from training.config import GrpoConfig

STD_EPSILON = 1e-6
EQUAL_REWARDS = 1e-9
"""Rewards closer than this are equal: sums of the same parts in another order differ in the last bit."""


@dataclass(frozen=True, slots=True)
class GroupCounts:
    """``singletons`` have one unmasked member and so no baseline; ``zero_variance`` have several, all paid the same;
    ``all_masked`` have none. ``smallest`` is the least number of unmasked members."""

    groups: int
    singletons: int
    zero_variance: int
    all_masked: int
    smallest: int


def group_advantages(
    rewards: Sequence[float],
    group_ids: Sequence[str],
    masked: Sequence[bool],
    settings: GrpoConfig,
    *,
    roles: Sequence[str] | None = None,
) -> list[float]:
    """One advantage a rollout, ``[batch]``, all arguments aligned.

        baseline   the group's mean, or the mean of the others with ``use_leave_one_out_baseline``
        scale      1, or with ``normalize_rewards`` 1 / (std + 1e-6), std of the whole group with Bessel's correction,
                   or 1 / (mean + 1e-6) with ``normalize_by: mean``

    With rewards 0 and 1 and a share p of ones, the advantages of the ones sum to n p (1 - p) without a scale, to about
    n sqrt(p (1 - p)) by std, and to n (1 - p) by mean, the gradient of log p: the less is solved, the more it pulls.

    The std is the group's also beside the leave-one-out baseline: without the one winner of a group it would be 0, and
    that member alone would stay unscaled. Masked members take no part in the statistics and get 0; so do the members
    of groups with one unmasked member, or with equal rewards. ``advantage_clip_low`` and ``_high`` come last.

    Raises:
        ValueError: lengths differ, a reward that counts is not finite (or below 0 beside ``normalize_by: mean``), or a
            group mixes ``roles``.
    """
    _check(rewards, group_ids, masked, roles)
    advantages = [0.0] * len(rewards)
    for members in _groups(group_ids).values():
        active = [index for index in members if not masked[index]]
        paid = [rewards[index] for index in active]
        if len(active) < 2 or max(paid) - min(paid) <= EQUAL_REWARDS:
            continue
        mean = math.fsum(paid) / len(paid)
        scale = 1.0 / (_spread(paid, mean, settings) + STD_EPSILON) if settings.normalize_rewards else 1.0
        if settings.use_leave_one_out_baseline:
            # r - mean of the others == (r - mean) * G / (G - 1)
            scale *= len(paid) / (len(paid) - 1)
        for index in active:
            advantages[index] = _clip((rewards[index] - mean) * scale, settings)
    return advantages


def _spread(paid: Sequence[float], mean: float, settings: GrpoConfig) -> float:
    if settings.normalize_by == "mean":
        if min(paid) < 0:
            raise ValueError(
                f"a reward of {min(paid)} beside grpo.normalize_by: mean, which needs rewards from 0 up; set it to "
                "std, or pay nothing below 0"
            )
        return mean
    return math.sqrt(math.fsum((reward - mean) ** 2 for reward in paid) / (len(paid) - 1))


def count_groups(rewards: Sequence[float], group_ids: Sequence[str], masked: Sequence[bool]) -> GroupCounts:
    """What ``group_advantages`` saw. Raises ValueError as it does."""
    _check(rewards, group_ids, masked, None)
    active = [[rewards[index] for index in members if not masked[index]] for members in _groups(group_ids).values()]
    return GroupCounts(
        groups=len(active),
        singletons=sum(len(paid) == 1 for paid in active),
        zero_variance=sum(len(paid) > 1 and max(paid) - min(paid) <= EQUAL_REWARDS for paid in active),
        all_masked=sum(not paid for paid in active),
        smallest=min((len(paid) for paid in active), default=0),
    )


def _clip(advantage: float, settings: GrpoConfig) -> float:
    low, high = settings.advantage_clip_low, settings.advantage_clip_high
    if low is not None:
        advantage = max(advantage, low)
    if high is not None:
        advantage = min(advantage, high)
    return advantage


def _groups(group_ids: Sequence[str]) -> dict[str, list[int]]:
    groups: dict[str, list[int]] = {}
    for index, group_id in enumerate(group_ids):
        groups.setdefault(group_id, []).append(index)
    return groups


def _check(
    rewards: Sequence[float], group_ids: Sequence[str], masked: Sequence[bool], roles: Sequence[str] | None
) -> None:
    lengths = {len(rewards), len(group_ids), len(masked)} | ({len(roles)} if roles is not None else set[int]())
    if len(lengths) > 1:
        raise ValueError(
            f"got {len(rewards)} rewards, {len(group_ids)} group ids, {len(masked)} masks"
            + (f" and {len(roles)} roles" if roles is not None else "")
            + "; they must be aligned"
        )
    for index, reward in enumerate(rewards):
        if not masked[index] and not math.isfinite(reward):
            raise ValueError(f"rollout {index} of group {group_ids[index]!r} has reward {reward}: mask it or mend it")
    role_of: dict[str, str] = {}
    for group_id, role in zip(group_ids, roles or (), strict=False):
        if role_of.setdefault(group_id, role) != role:
            raise ValueError(
                f"group {group_id!r} mixes the roles {role_of[group_id]!r} and {role!r}; a group is one prompt"
            )
