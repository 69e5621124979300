"""What outlives a step beside the weights, and goes into every checkpoint so that a killed run resumes exactly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from training.config import Config
from training.curriculum import Curriculum
from training.memory import QuestionMemory
from training.pool import QuestionPool
from training.tripwire import Tripwire

OF_ATTEMPT = ("tripwire", "judged")


@dataclass(frozen=True, slots=True)
class LoopState:
    """Questions of earlier steps to ask again, sketches of them to compare with, and where the curriculum stands. What
    the tripwire has counted, and ``judged``, the step of the last validation that ``checkpointing.validation_policy``
    acted on, belong to the weights: a restart does not take them along (``OF_ATTEMPT``)."""

    pool: QuestionPool
    memory: QuestionMemory
    curriculum: Curriculum
    tripwire: Tripwire
    judged: int = 0

    def saved(self) -> dict[str, Any]:
        """What ``load`` reads back, as JSON values."""
        return {
            "pool": self.pool.state(),
            "memory": self.memory.state(),
            "curriculum": self.curriculum.state(),
            "tripwire": self.tripwire.state(),
            "judged": self.judged,
        }

    @classmethod
    def load(cls, config: Config, saved: Mapping[str, Any]) -> LoopState:
        """``saved`` may be empty, or of a run that had less to keep."""
        return cls(
            pool=QuestionPool.load(saved.get("pool", {})),
            memory=QuestionMemory.load(config.rewards.proposer.diversity_window, saved.get("memory", {})),
            curriculum=Curriculum.load(config.selfplay.curriculum, saved.get("curriculum", {})),
            tripwire=Tripwire(config.tripwire, saved.get("tripwire")),
            judged=saved.get("judged", 0),
        )
