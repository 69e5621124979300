"""Trajectories to the padded columns that NeMo-RL's policy takes, with as many rows as its workers can share out.

A self-play batch has the size that selection left. NeMo-RL asks for a multiple of the global batch size, and that for
a multiple of the data-parallel size: rows are filled up with copies of the shortest trajectory whose ``sample_mask`` is
0, which no loss and no count sees, instead of leaving trajectories out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from environments.trajectory import Trajectory
from training.engines.base import Weighted
from training.engines.nemo_rl.roles import ROLES

Columns = dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class RowShape:
    """``shards`` data-parallel ranks, each of which takes rows in multiples of ``micro_batch`` (1 where micro-batches
    are made by tokens). Rows are a multiple of ``divisible_by`` tokens long, padded with ``pad_id``."""

    shards: int = 1
    micro_batch: int = 1
    divisible_by: int = 1
    pad_id: int = 0

    @property
    def rows(self) -> int:
        """What a number of rows must be a multiple of."""
        return self.shards * self.micro_batch


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a batch, ``order`` the trajectory of each and ``filled`` whether it is there to fill up; every
    ``global_batch`` of them are one optimiser step."""

    order: list[int]
    filled: list[bool]
    global_batch: int

    @property
    def fillers(self) -> int:
        return sum(self.filled)


def fill_up(steps: Sequence[Sequence[int]], lengths: Sequence[int], multiple: int) -> Rows:
    """Each optimiser step's members, and fillers up to the same ``multiple`` for all."""
    size = -(-max(len(step) for step in steps) // multiple) * multiple
    shortest = min(range(len(lengths)), key=lambda index: (lengths[index], index))
    order: list[int] = []
    filled: list[bool] = []
    for step in steps:
        lacking = size - len(step)
        order += [*step, *[shortest] * lacking]
        filled += [False] * len(step) + [True] * lacking
    return Rows(order, filled, size)


def token_columns(trajectories: Sequence[Trajectory], rows: Rows, shape: RowShape) -> Columns:
    """``input_ids``, ``token_mask``, ``generation_logprobs`` ``[rows, tokens]``, padded on the right; ``input_lengths``
    and ``sample_mask`` ``[rows]``."""
    chosen = [trajectories[index] for index in rows.order]
    lengths = torch.tensor([len(trajectory.token_ids) for trajectory in chosen], dtype=torch.int32)
    width = -(-int(lengths.max()) // shape.divisible_by) * shape.divisible_by
    ids = torch.full((len(chosen), width), shape.pad_id, dtype=torch.long)
    mask = torch.zeros(len(chosen), width, dtype=torch.long)
    logprobs = torch.zeros(len(chosen), width)
    for row, trajectory in enumerate(chosen):
        end = len(trajectory.token_ids)
        ids[row, :end] = torch.tensor(trajectory.token_ids)
        mask[row, :end] = torch.tensor(trajectory.loss_mask)
        logprobs[row, :end] = torch.tensor(trajectory.logprobs)
    return {
        "input_ids": ids,
        "input_lengths": lengths,
        "generation_logprobs": logprobs,
        "token_mask": mask,
        "sample_mask": torch.tensor([float(not filler) for filler in rows.filled]),
    }


def update_columns(batch: Sequence[Weighted], rows: Rows, width: int) -> Columns:
    """``advantages`` ``[rows, tokens]``; ``loss_weight`` and ``role_id`` ``[rows]``."""
    chosen = [batch[index] for index in rows.order]
    return {
        "advantages": torch.tensor([item.advantage for item in chosen])[:, None].expand(-1, width).contiguous(),
        "loss_weight": torch.tensor([item.weight for item in chosen]),
        "role_id": torch.tensor([ROLES.index(item.trajectory.role) for item in chosen]),
    }


def rows_of(values: Tensor, trajectories: Sequence[Trajectory], rows: Rows) -> list[list[float]]:
    """``[rows, tokens]`` back to one list a trajectory, 0.0 on tokens that were not sampled."""
    found: list[list[float]] = [[] for _ in trajectories]
    for row, (index, filler) in enumerate(zip(rows.order, rows.filled, strict=True)):
        if not filler:
            mask = trajectories[index].loss_mask
            kept = values[row, : len(mask)] * torch.tensor(mask)
            found[index] = [float(value) for value in kept.tolist()]
    return found
