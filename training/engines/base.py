"""The small, coarse protocol behind which a model lives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from environments.task import Task
from environments.trajectory import Trajectory
from training.config import LossConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Training rollouts use temperature alone; ``greedy`` is for evaluation. No filter, so the sampled
    distribution is the trained one. ``seed`` makes a rollout repeatable on one machine."""

    temperature: float = 1.0
    greedy: bool = False
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Weighted:
    """A trajectory with its advantage (one scalar, broadcast over its sampled tokens) and its role's loss weight."""

    trajectory: Trajectory
    advantage: float
    weight: float = 1.0


class Engine(Protocol):
    @property
    def policy_version(self) -> int: ...

    def rollout(self, tasks: Sequence[Task], sampling: Sampling) -> list[Trajectory]:
        """One trajectory a task, in the order of ``tasks``."""
        ...

    def logprobs(self, trajectories: Sequence[Trajectory]) -> list[list[float]]:
        """Recomputed by a full forward pass with the current weights: ``[tokens]`` each, 0.0 on unsampled tokens."""
        ...

    def update(self, batch: Sequence[Weighted], loss: LossConfig) -> Mapping[str, float]:
        """One pass over the batch (several optimiser steps if ``train_global_batch_size`` is smaller than it)."""
        ...

    def sft(self, trajectories: Sequence[Trajectory]) -> Mapping[str, float]:
        """One optimiser step of cross-entropy on the tokens with ``loss_mask`` 1."""
        ...

    def sync_weights(self) -> None:
        """Bring the generation side to the trained weights; a no-op where they are the same object."""
        ...

    def save(self, path: Path) -> None:
        """Weights, tokenizer, optimizer, scheduler and RNG: all that an exact resume needs."""
        ...

    def load(self, path: Path) -> None: ...
