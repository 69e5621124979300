"""Questions of a given model that explores the corpus with the Proposer's own tools and submits what it found."""

from __future__ import annotations

import random

from environments.trajectory import StopReason, Trajectory
from training.config import Config
from training.engines.base import Engine, Sampling
from training.game import Board
from training.generators.base import Attempt


class AgenticGenerator:
    name = "agentic"

    def __init__(self, engine: Engine, board: Board, config: Config) -> None:
        """``engine`` plays on the mails of ``board``."""
        self._engine = engine
        self._board = board
        self._config = config

    def round(self, number: int, hops: int) -> list[Attempt]:
        """``data.generate.per_round`` rollouts, each from a seed mail of its own. Raises IndexUnavailable."""
        part = self._config.data.generate
        rng = random.Random(f"{part.seed}/agentic/{number}")
        seeds = rng.sample(self._board.ids, min(part.per_round, len(self._board.ids)))
        tasks = [
            self._board.proposer_task(self._config, f"agentic/{number}/{k}", mail_id, hops, rng)
            for k, mail_id in enumerate(seeds)
        ]
        sampling = Sampling(temperature=self._config.policy.generation.temperature, seed=rng.getrandbits(48))
        return [_attempt(trajectory) for trajectory in self._engine.rollout(tasks, sampling)]


def _attempt(trajectory: Trajectory) -> Attempt:
    fault = trajectory.stop_reason is StopReason.ENVIRONMENT_FAULT
    return Attempt(proposal=trajectory, trouble=trajectory.stop_reason.value if fault else "")
