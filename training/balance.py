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

MUCH = 2 / 3  # of a role's rollouts: the band is meant to trim


@dataclass(frozen=True)
class TokenBalance:
    """``max_share`` of the sampled tokens, above 1/2, is the most that one role may have."""

    max_share: float
    rng: random.Random

    def objection(self, trajectories: Sequence[Trajectory], kept: Sequence[int], dropped: Sequence[int]) -> str:
        """What to say where ``dropped`` of ``kept`` are so many that hardly anything is left to learn from."""
        if not dropped:
            return ""
        heavy = trajectories[dropped[0]].role
        mine = sum(trajectories[i].role is heavy for i in kept)
        if len(dropped) <= MUCH * mine:
            return ""
        return (
            f"selfplay.max_token_share={self.max_share:g} dropped {len(dropped)} of {mine} {heavy} rollouts that had a "
            f"gradient, because those of the other role have {self._others(trajectories, kept, heavy):,} tokens alone; "
            "raise it, or give the other role more groups (proposer_prompts_per_step, proposer_generations)"
        )

    @staticmethod
    def _others(trajectories: Sequence[Trajectory], kept: Sequence[int], heavy: Role) -> int:
        return sum(trajectories[i].sampled_tokens for i in kept if trajectories[i].role is not heavy)

    def surplus(self, trajectories: Sequence[Trajectory], kept: Sequence[int]) -> list[int]:
        """Which of ``kept`` (indices) to drop: whole groups of the heavier role until its share is within bounds.

        Its last group always stays, and so does everything where the other role has nothing to balance with.
        """
        tokens = {
            role: sum(trajectories[i].sampled_tokens for i in kept if trajectories[i].role is role) for role in Role
        }
        heavy = max(Role, key=lambda role: tokens[role])
        others = self._others(trajectories, kept, heavy)
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
