"""Muon in the weights' own precision.

torch.optim.Muon orthogonalises in bfloat16, which a CPU without bfloat16 units emulates: there it took half of a
training step of the small model. The update is the same otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

# Newton-Schulz coefficients of https://kellerjordan.github.io/posts/muon
_A, _B, _C = 3.4445, -4.7750, 2.0315
_ROUNDS = 5


class Muon(torch.optim.Optimizer):
    """Momentum whose update of every matrix is replaced by the nearest orthogonal one; weight decay is decoupled."""

    def __init__(
        self, params: Iterable[Tensor], *, lr: float, weight_decay: float = 0.0, momentum: float = 0.95
    ) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                state: dict[str, Any] = self.state[weight]
                buffer = state.setdefault("momentum", torch.zeros_like(weight))
                buffer.lerp_(weight.grad, 1 - group["momentum"])
                update = orthogonal(weight.grad.lerp(buffer, group["momentum"]))
                weight.mul_(1 - group["lr"] * group["weight_decay"])
                rows, columns = weight.shape
                weight.add_(update, alpha=-group["lr"] * max(1.0, rows / columns) ** 0.5)


def orthogonal(matrix: Tensor) -> Tensor:
    """``[rows, columns]``: singular values near 1, the singular vectors kept (five Newton-Schulz rounds)."""
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    x = wide / (wide.norm() + 1e-7)
    for _ in range(_ROUNDS):
        square = x @ x.T
        x = _A * x + (_B * square + _C * square @ square) @ x
    return x if matrix.shape[0] <= matrix.shape[1] else x.T
