"""Log-probs of the tokens that were sampled, by a full forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

from environments.trajectory import Trajectory
from training.engines.batching import PaddedBatch, length_batches, pad
from training.engines.models import Policy

_LOGIT_BUDGET = 2**26  # logits held at once (fp32: 256 MiB); more are recomputed in the backward pass


@torch.no_grad()
def recompute(
    policy: Policy, trajectories: Sequence[Trajectory], *, temperature: float, token_budget: int
) -> list[list[float]]:
    """``[tokens]`` each, 0.0 on tokens that were not sampled; a pass holds at most ``token_budget`` padded tokens."""
    lengths = [len(trajectory.token_ids) for trajectory in trajectories]
    result: list[list[float]] = [[0.0] * length for length in lengths]
    known = [index for index, trajectory in enumerate(trajectories) if trajectory.sampled_tokens]
    for places in length_batches([lengths[index] for index in known], token_budget):
        padded = pad(trajectories, [known[place] for place in places], policy.device)
        sampled, _ = token_logprobs(policy, padded, temperature)
        for index, row in zip(padded.indices, padded.spread(sampled).tolist(), strict=True):
            result[index] = row[: lengths[index]]
    return result


def token_logprobs(policy: Policy, padded: PaddedBatch, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-probs of the sampled tokens at ``temperature``, fp32 ``[sampled]``, and whether each is the argmax.

    The vocabulary's part runs on the sampled tokens alone.
    """
    features = policy.features(padded.token_ids, use_cache=False)[padded.row, padded.column]

    def score(features: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        logits = policy.logits(features).float() / temperature
        return -cross_entropy(logits, target, reduction="none"), logits.detach().argmax(dim=-1) == target

    rows = max(_LOGIT_BUDGET // policy.model.config.vocab_size, 1)
    if len(features) <= rows:
        return score(features, padded.target)
    parts = [
        cast("tuple[Tensor, Tensor]", checkpoint(score, some, target, use_reentrant=False))
        for some, target in zip(features.split(rows), padded.target.split(rows), strict=True)
    ]
    return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])
