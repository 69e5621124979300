"""How many rollouts a step trains at most, and what an optimiser step takes of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from training.config import Config


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """Upper bounds: an unasked question, a group without a difference in reward or a fault leaves rollouts out."""

    proposer: int
    solver: int
    """Of the first round; ``selfplay.refill_rounds`` may add groups."""
    hinted: int
    """Never trained on."""
    optimiser_step: int
    """Rollouts of one optimiser step: ``policy.train_global_batch_size``, or all that are trained."""

    @property
    def trained(self) -> int:
        return self.proposer + self.solver

    @property
    def optimiser_steps(self) -> int:
        return math.ceil(self.trained / self.optimiser_step)


def batch_plan(config: Config) -> BatchPlan:
    play = config.selfplay
    if play.mode == "fixed":
        proposer, asked = 0, config.grpo.num_prompts_per_step
        solver = asked * config.grpo.num_generations_per_prompt
    else:
        proposer = play.proposer_prompts_per_step * play.proposer_generations
        asked = min(play.max_solver_groups, proposer)
        solver = asked * play.solver_generations
    return BatchPlan(
        proposer=proposer,
        solver=solver,
        hinted=asked * play.hint_generations,
        optimiser_step=config.policy.train_global_batch_size or proposer + solver,
    )
