"""A key-value cache with one row a slot, each row at its own length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import Cache

BLOCK = 64
"""Rows are attended up to a multiple of this many tokens, so shapes (and kernels chosen for them) rarely change."""


class SlotCache(Cache):
    """Keys lie transposed, ``[slots, kv_heads, width, capacity]``: a decode step then reads both halves in order.

    ``aim`` says where the coming forward pass writes; the layers then call ``update``. What lies beyond a row's own
    length is never attended: the mask hides it until a real token is written there.
    """

    def __init__(self, slots: int) -> None:
        super().__init__(layers=[])
        self._slots = slots
        self._capacity = 0
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []
        self._rows: Tensor | None = None
        self._all_rows = torch.empty(0, dtype=torch.long)
        self._positions = torch.empty(0, 0, dtype=torch.long)
        self._reach = 0

    def aim(self, positions: Tensor, rows: Tensor | None = None) -> Tensor:
        """``positions`` ``[rows, time]``: where each token goes. ``rows``: the slots, None for all of them in order.

        Returns which cached positions each token may attend, bool ``[rows, 1, time, reach]``.
        """
        self._rows = rows
        self._positions = positions
        self._reach = -(-(int(positions.max()) + 1) // BLOCK) * BLOCK
        if self._reach > self._capacity:
            self._grow(self._reach)
        if self._all_rows.numel() != self._slots or self._all_rows.device != positions.device:
            self._all_rows = torch.arange(self._slots, device=positions.device)
        columns = torch.arange(self._reach, device=positions.device)
        return columns <= positions[:, None, :, None]

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write ``[rows, kv_heads, time, width]``; returns both halves, ``[rows, kv_heads, reach, width]``."""
        if layer_idx == len(self._keys):
            _, heads, _, width = key_states.shape
            self._keys.append(key_states.new_zeros(self._slots, heads, width, self._capacity))
            self._values.append(value_states.new_zeros(self._slots, heads, self._capacity, value_states.shape[-1]))
        keys, values = self._keys[layer_idx], self._values[layer_idx]
        at = (self._all_rows if self._rows is None else self._rows)[:, None]
        keys[at, :, :, self._positions] = key_states.transpose(1, 2)
        values[at, :, self._positions] = value_states.transpose(1, 2)
        if self._rows is not None:
            keys, values = keys.index_select(0, self._rows), values.index_select(0, self._rows)
        return keys[..., : self._reach].transpose(2, 3), values[:, :, : self._reach]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self._reach

    def copy(self, sources: Sequence[int], targets: Sequence[int], length: int) -> None:
        """Copy the first ``length`` positions of each source slot to the target slot beside it."""
        device = self._all_rows.device
        source, target = torch.tensor(sources, device=device), torch.tensor(targets, device=device)
        for keys, values in zip(self._keys, self._values, strict=True):
            keys[target, :, :, :length] = keys[source, :, :, :length]
            values[target, :, :length] = values[source, :, :length]

    def keep(self, slots: Sequence[int]) -> None:
        """Drop all other slots; the kept ones are renumbered in the given order."""
        index = torch.tensor(slots, device=self._all_rows.device)
        self._slots = len(slots)
        self._keys = [keys.index_select(0, index) for keys in self._keys]
        self._values = [values.index_select(0, index) for values in self._values]

    def _grow(self, capacity: int) -> None:
        extra = capacity - self._capacity
        self._keys = [torch.cat([keys, keys.new_zeros(*keys.shape[:3], extra)], dim=3) for keys in self._keys]
        self._values = [
            torch.cat([values, values.new_zeros(*values.shape[:2], extra, values.shape[3])], dim=2)
            for values in self._values
        ]
        self._capacity = capacity
