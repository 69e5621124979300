"""The small, coarse protocol behind which a model lives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from environments.episode import Episode
from environments.task import Task
from environments.trajectory import Trajectory
from training.config import LossConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Training rollouts use temperature alone; ``greedy`` is for evaluation. No filter, so the sampled distribution is
    the trained one, unless ``policy.generation.allow_filters`` wants to see the difference. ``may_lag``: weights may be
    as old as ``engine.sync_every`` lets them; without it they are the trained ones. ``seed`` makes a rollout repeatable
    on one machine."""

    temperature: float = 1.0
    greedy: bool = False
    seed: int = 0
    top_p: float = 1.0
    top_k: int | None = None
    min_p: float = 0.0
    may_lag: bool = False

    @property
    def filtered(self) -> bool:
        return not self.greedy and (self.top_p < 1 or self.top_k is not None or self.min_p > 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveSampling:
    """What an engine's rollouts are really drawn with, wherever it comes from.

    ``training_temperature`` divides the logits of recomputed log-probs. ``model_file`` are the sampling fields that the
    model's own generation config sets; ``inherited`` names those that the engine follows.
    """

    temperature: float
    training_temperature: float
    top_p: float = 1.0
    top_k: int | None = None
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    model_file: Mapping[str, float] = field(default_factory=dict[str, float])
    inherited: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Weighted:
    """A trajectory with its advantage (one scalar, broadcast over its sampled tokens) and its role's loss weight.
    ``previous``: what ``Engine.logprobs`` gave for it with the weights that are now updated, where it was asked."""

    trajectory: Trajectory
    advantage: float
    weight: float = 1.0
    previous: Sequence[float] | None = None


class Engine(Protocol):
    episode: Episode
    """Steps the rollouts; may be replaced between them (another index, for a validation company)."""

    @property
    def policy_version(self) -> int: ...

    def effective_sampling(self, asked: Sampling) -> EffectiveSampling:
        """What a rollout that is ``asked`` for would really be drawn with."""
        ...

    def rollout(self, tasks: Sequence[Task], sampling: Sampling) -> list[Trajectory]:
        """One trajectory a task, in the order of ``tasks``."""
        ...

    def logprobs(self, trajectories: Sequence[Trajectory]) -> list[list[float]]:
        """Recomputed by a full forward pass with the current weights: ``[tokens]`` each, 0.0 on unsampled tokens."""
        ...

    def update(self, batch: Sequence[Weighted], loss: LossConfig) -> Mapping[str, float]:
        """One pass over the batch (several optimiser steps if ``train_global_batch_size`` is smaller than it). A
        ``previous`` that is None is computed where the loss needs it."""
        ...

    def sft(self, trajectories: Sequence[Trajectory]) -> Mapping[str, float]:
        """One optimiser step of cross-entropy on the tokens with ``loss_mask`` 1."""
        ...

    def sync_weights(self) -> None:
        """After each step. Bring the generation side to the trained weights, or count the step where it is to lag
        behind; a no-op where the two are the same object."""
        ...

    def save(self, path: Path) -> None:
        """Weights, tokenizer, optimizer, scheduler and RNG: all that an exact resume needs."""
        ...

    def load(self, path: Path) -> None: ...

    def restart(self) -> None:
        """Forget optimizers, schedules and the KL reference: training begins with the present weights."""
        ...
