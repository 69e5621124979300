"""What keeps one role, or old weights, from ruling an update: the roles' share of the tokens, and the rollouts' age.

A role with most of the tokens has most of the noise, and of the optimiser steps where a batch is split. Whole groups of
it are dropped, drawn at random: to drop by reward would take its contrast away, and to drop single members would shift
the baseline that their group's advantages were measured from.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from environments.task import Role
from environments.trajectory import Trajectory


@dataclass(frozen=True)
class TokenBalance:
    """``max_share`` of the sampled tokens, above 1/2, is the most that one role may have."""

    max_share: float
    rng: random.Random

    def surplus(self, trajectories: Sequence[Trajectory], kept: Sequence[int]) -> list[int]:
        """Which of ``kept`` (indices) to drop: whole groups of the heavier role until its share is within bounds.

        Its last group always stays, and so does everything where the other role has nothing to balance with.
        """
        tokens = {
            role: sum(trajectories[i].sampled_tokens for i in kept if trajectories[i].role is role) for role in Role
        }
        heavy = max(Role, key=lambda role: tokens[role])
        others = sum(tokens.values()) - tokens[heavy]
        if not others:
            return []
        groups: dict[str, list[int]] = {}
        for i in kept:
            if trajectories[i].role is heavy:
                groups.setdefault(trajectories[i].group_id, []).append(i)
        left, dropped = tokens[heavy], list[int]()
        for group in self.rng.sample(list(groups), len(groups) - 1):
            if left / (left + others) <= self.max_share:
                break
            left -= sum(trajectories[i].sampled_tokens for i in groups[group])
            dropped += groups[group]
        return sorted(dropped)


def ages(trajectories: Sequence[Trajectory], version: int) -> list[int]:
    """Updates between the weights that sampled each and those of ``version``, ``[batch]``."""
    return [version - trajectory.policy_version for trajectory in trajectories]


def beyond_age(ages: Sequence[int], bound: int | None) -> list[bool]:
    """Which trajectories ``selfplay.max_age`` drops: hand it to ``select``. None drops nothing."""
    return [bound is not None and age > bound for age in ages]


def age_metrics(ages: Sequence[int]) -> dict[str, float]:
    return {"age/mean": sum(ages) / max(len(ages), 1), "age/max": float(max(ages, default=0))}
