"""Trajectories to padded tensors, under a token budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from environments.trajectory import Trajectory


def length_batches(lengths: Sequence[int], token_budget: int) -> list[list[int]]:
    """Indices of ``lengths``, longest first, cut into batches whose padded size is within the budget.

    A single sequence longer than the budget is a batch of its own: it cannot be made smaller.
    """
    order = sorted(range(len(lengths)), key=lambda index: (-lengths[index], index))
    batches: list[list[int]] = []
    for index in order:
        if batches and (len(batches[-1]) + 1) * lengths[batches[-1][0]] <= token_budget:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


def optimiser_steps(count: int, global_batch_size: int | None, seed: Sequence[int]) -> list[list[int]]:
    """Members of each optimiser step: shuffled (a batch comes ordered by role and group), of nearly equal size, at most
    ``global_batch_size``; None: one step.

    The order depends on ``seed`` alone, so a resumed run that gives the same one repeats it.
    """
    if global_batch_size is None or global_batch_size >= count:
        return [list(range(count))]
    order = np.random.default_rng(seed).permutation(count)
    return [[int(index) for index in part] for part in np.array_split(order, -(-count // global_batch_size))]


@dataclass(frozen=True, slots=True)
class PaddedBatch:
    """Right-padded trajectories. A sampled token at ``t`` is predicted by the features at ``t - 1``.

    ``indices`` are the trajectories' places in the caller's list; ``token_ids`` is ``[rows, time]``. ``row`` and
    ``column`` ``[sampled]`` point at the predicting features of each sampled token, ``target`` is the token.
    """

    indices: list[int]
    token_ids: Tensor
    row: Tensor
    column: Tensor
    target: Tensor

    def spread(self, values: Tensor) -> Tensor:
        """``[sampled]`` values to ``[rows, time]``, 0 on every other token."""
        spread = values.new_zeros(self.token_ids.shape)
        return spread.index_put((self.row, self.column + 1), values)


def pad(trajectories: Sequence[Trajectory], indices: list[int], device: torch.device) -> PaddedBatch:
    """Padding is token 0 on the right: causal attention never looks at it, so no mask is needed."""
    longest = max(len(trajectories[index].token_ids) for index in indices)
    token_ids = torch.zeros(len(indices), longest, dtype=torch.long)
    mask = torch.zeros(len(indices), longest, dtype=torch.bool)
    for row, index in enumerate(indices):
        trajectory = trajectories[index]
        length = len(trajectory.token_ids)
        token_ids[row, :length] = torch.tensor(trajectory.token_ids)
        mask[row, :length] = torch.tensor(trajectory.loss_mask, dtype=torch.bool)
    if bool(mask[:, 0].any()):
        raise ValueError("a trajectory begins with a sampled token, which nothing predicts: it needs a prompt")
    row, column = mask.nonzero(as_tuple=True)
    target = token_ids[row, column]
    return PaddedBatch(indices, *(part.to(device) for part in (token_ids, row, column - 1, target)))
