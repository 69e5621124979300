"""How far the log-probs recorded while sampling are from those recomputed for training, on sampled tokens.

    d = recomputed - recorded                                    per token, in nats
    token_mult_prob_error        mean exp|d|                     1 is perfect, 1.05 is an alarm
    gen_kl_error                 mean(e^d - 1 - d)               k3 estimate of KL(generation || training), at least 0
    gen_kl_error_k1              mean(-d)                        k1 estimate; far from k3: a heavy tail
    sampling_importance_ratio    mean e^d                        about 1
    max_abs_diff                 max |d|

Names are NeMo-RL's where it has one. A rise means, in the order to check: a sampling filter or temperature, shifted
tokens, the dtype of logits or weights, kernels, the age of the weights.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from environments.task import Role
from environments.trajectory import Trajectory

MAX_EXPONENT = 20.0
"""exp() of more would drown a batch's mean in one token; max_abs_diff shows the true size."""


def mismatch_metrics(trajectories: Sequence[Trajectory], recomputed: Sequence[Sequence[float]]) -> dict[str, float]:
    """``mismatch/<role>/<name>`` for each role that sampled a token; means are over the role's sampled tokens.

    ``recomputed`` is ``[batch][tokens]``, aligned with the trajectories. Raises ValueError as ``token_differences``.
    """
    differences = token_differences(trajectories, recomputed)
    metrics: dict[str, float] = {}
    for role in Role:
        of_role = [diff for diff, trajectory in zip(differences, trajectories, strict=True) if trajectory.role is role]
        diff = np.concatenate(of_role) if of_role else np.empty(0)
        if not diff.size:
            continue
        bounded = np.clip(diff, -MAX_EXPONENT, MAX_EXPONENT)
        metrics |= {
            f"mismatch/{role}/token_mult_prob_error": float(np.exp(np.abs(bounded)).mean()),
            f"mismatch/{role}/gen_kl_error": float((np.expm1(bounded) - bounded).mean()),
            f"mismatch/{role}/gen_kl_error_k1": float(-diff.mean()),
            f"mismatch/{role}/sampling_importance_ratio": float(np.exp(bounded).mean()),
            f"mismatch/{role}/max_abs_diff": float(np.abs(diff).max()),
        }
    return metrics


def sequence_errors(trajectories: Sequence[Trajectory], recomputed: Sequence[Sequence[float]]) -> list[float]:
    """Each trajectory's own mean exp|d|, ``[batch]``; 1.0 for one without a sampled token."""
    return [
        float(np.exp(np.minimum(np.abs(diff), MAX_EXPONENT)).mean()) if diff.size else 1.0
        for diff in token_differences(trajectories, recomputed)
    ]


def beyond_threshold(errors: Sequence[float], threshold: float | None) -> list[bool]:
    """Which trajectories ``grpo.seq_logprob_error_threshold`` drops: hand it to ``select``. None drops nothing."""
    return [threshold is not None and error > threshold for error in errors]


def token_differences(
    trajectories: Sequence[Trajectory], recomputed: Sequence[Sequence[float]]
) -> list[NDArray[np.float64]]:
    """recomputed - recorded on the sampled tokens of each trajectory.

    Raises:
        ValueError: the two are not aligned, or a log-prob of a sampled token is not finite.
    """
    if len(trajectories) != len(recomputed):
        raise ValueError(f"got {len(trajectories)} trajectories and {len(recomputed)} recomputed log-prob rows")
    differences: list[NDArray[np.float64]] = []
    for trajectory, row in zip(trajectories, recomputed, strict=True):
        if len(row) != len(trajectory.token_ids):
            raise ValueError(
                f"trajectory {trajectory.uid}: {len(row)} recomputed log-probs for {len(trajectory.token_ids)} tokens"
            )
        sampled = np.flatnonzero(trajectory.loss_mask)
        recorded = np.asarray(trajectory.logprobs, dtype=np.float64)[sampled]
        difference = np.asarray(row, dtype=np.float64)[sampled] - recorded
        broken = np.flatnonzero(~np.isfinite(difference))
        if broken.size:
            at = int(sampled[broken[0]])
            raise ValueError(
                f"trajectory {trajectory.uid}, token {at}: recorded log-prob {trajectory.logprobs[at]}, recomputed "
                f"{row[at]}; both must be finite. Look for NaN weights or a token that the sampler should never draw"
            )
        differences.append(difference)
    return differences
