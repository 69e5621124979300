"""Drawing tokens: temperature, filters only where asked for, one reproducible stream of numbers a trajectory."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.engines.base import Sampling


def uniforms(seed: int, group_id: str, member: int, count: int) -> NDArray[np.float64]:
    """The ``count`` numbers in [0, 1) of the ``member``-th trajectory of a group.

    They depend on nothing else, so neither the slots nor the other groups of a rollout change what is sampled.
    """
    key = hashlib.blake2b(f"{seed}\0{member}\0{group_id}".encode(), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(key, "little"))).random(count)


def draw(logits: Tensor, numbers: list[float], sampling: Sampling) -> tuple[list[int], list[float]]:
    """``logits`` ``[rows, vocabulary]`` to a token id a row and its log-probability (natural log, at the temperature,
    of the distribution that is left by the filters).

    Inverse CDF: the first token whose cumulated probability is above the row's number. Summed in float64, so a
    vocabulary of 150,000 loses nothing.
    """
    logprobs = torch.log_softmax(logits.float() / sampling.temperature, dim=-1)
    if sampling.filtered:
        logprobs = _filtered(logprobs, sampling)
    if sampling.greedy:
        ids = logprobs.argmax(dim=-1)
    else:
        cumulated = logprobs.exp().cumsum(dim=-1, dtype=torch.float64)
        # Times the last sum, which is 1 only up to rounding: a number just below 1 still finds a token.
        wanted = torch.tensor(numbers, dtype=torch.float64, device=logits.device)[:, None] * cumulated[:, -1:]
        ids = torch.searchsorted(cumulated, wanted, right=True)[:, 0].clamp(max=logits.shape[-1] - 1)
    return ids.tolist(), logprobs.gather(-1, ids[:, None])[:, 0].tolist()


def _filtered(logprobs: Tensor, sampling: Sampling) -> Tensor:
    """Log-probs renormalised over what min-p, then top-k, then top-p leave: in this order inference servers go."""
    ranked, order = logprobs.sort(dim=-1, descending=True, stable=True)
    kept = torch.ones_like(ranked, dtype=torch.bool)
    if sampling.min_p > 0:
        kept = ranked >= ranked[:, :1] + math.log(sampling.min_p)
    if sampling.top_k is not None:
        kept[:, sampling.top_k :] = False
    if sampling.top_p < 1:
        left = torch.softmax(ranked.masked_fill(~kept, -torch.inf), dim=-1)
        kept &= left.cumsum(dim=-1) - left < sampling.top_p  # the fewest tokens that reach it together
    kept = torch.zeros_like(kept).scatter(-1, order, kept)
    return torch.log_softmax(logprobs.masked_fill(~kept, -torch.inf), dim=-1)
