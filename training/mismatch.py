"""How far the log-probs recorded while sampling are from those recomputed for training, on sampled tokens.

    d = recomputed - recorded                                    per token, in nats
    token_mult_prob_error        mean exp|d|                     1 is perfect, 1.05 is an alarm
    gen_kl_error                 mean(e^d - 1 - d)               k3 estimate of KL(generation || training), at least 0
    gen_kl_error_k1              mean(-d)                        k1 estimate; far from k3: a heavy tail
    js_divergence_error          mean of (k3 to the two's mixture, from either side) / 2; below 1e-3 is good
    is_oob_ratio                 share of tokens with e^d outside [1/2, 2]
    sampling_importance_ratio    mean e^d                        about 1
    max_abs_diff                 max |d|

Names are NeMo-RL's where it has one. A rise means, in the order to check: a sampling filter or temperature, shifted
tokens, the dtype of logits or weights, kernels, the age of the weights. Shifted tokens begin with the first tool
result, so the first five are also given turn by turn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from environments.task import Role
from environments.trajectory import Trajectory

MAX_EXPONENT = 20.0
"""exp() of more would drown a batch's mean in one token; max_abs_diff shows the true size."""
OUT_OF_BOUNDS = 2.0
"""A token is out of bounds where one side gives it more than this many times the other side's probability."""
MAX_TURNS = 6
"""The last turn that has metrics of its own; later turns count in it."""


def mismatch_metrics(trajectories: Sequence[Trajectory], recomputed: Sequence[Sequence[float]]) -> dict[str, float]:
    """``mismatch/<role>/<name>`` for each role that sampled a token, means over the role's sampled tokens, and
    ``mismatch/<role>/turn<k>/<name>`` over those of its k-th turns, from 1.

    ``recomputed`` is ``[batch][tokens]``, aligned with the trajectories. Raises ValueError as ``token_differences``.
    """
    differences = token_differences(trajectories, recomputed)
    metrics: dict[str, float] = {}
    for role in Role:
        mine = [(t, diff) for t, diff in zip(trajectories, differences, strict=True) if t.role is role and diff.size]
        if not mine:
            continue
        diff = np.concatenate([diff for _, diff in mine])
        turns = np.concatenate([_turns(t) for t, _ in mine])
        bounded = np.clip(diff, -MAX_EXPONENT, MAX_EXPONENT)
        prefix = f"mismatch/{role}"
        metrics |= {f"{prefix}/{name}": value for name, value in _errors(diff).items()}
        metrics |= {
            f"{prefix}/sampling_importance_ratio": float(np.exp(bounded).mean()),
            f"{prefix}/max_abs_diff": float(np.abs(diff).max()),
        }
        for turn in np.unique(turns):
            metrics |= {f"{prefix}/turn{turn}/{name}": v for name, v in _errors(diff[turns == turn]).items()}
    return metrics


def _errors(diff: NDArray[np.float64]) -> dict[str, float]:
    bounded = np.clip(diff, -MAX_EXPONENT, MAX_EXPONENT)
    mixture = np.logaddexp(bounded, 0.0) - math.log(2)  # log of the two's mean over the recorded probability
    return {
        "token_mult_prob_error": float(np.exp(np.abs(bounded)).mean()),
        "gen_kl_error": float(_k3(bounded).mean()),
        "gen_kl_error_k1": float(-diff.mean()),
        "js_divergence_error": float((_k3(bounded - mixture) + _k3(-mixture)).mean() / 2),
        "is_oob_ratio": float((np.abs(diff) > math.log(OUT_OF_BOUNDS)).mean()),
    }


def _k3(log_ratio: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.expm1(log_ratio) - log_ratio


def _turns(trajectory: Trajectory) -> NDArray[np.int64]:
    """The turn of each sampled token, from 1, at most ``MAX_TURNS``."""
    sampled = np.flatnonzero(trajectory.loss_mask)
    return np.searchsorted(trajectory.turn_starts, sampled, side="right").clip(1, MAX_TURNS)


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
