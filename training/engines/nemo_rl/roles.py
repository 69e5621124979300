"""What the loss in the workers and the batch in the driver agree on; it must import nothing that a worker lacks."""

from __future__ import annotations

ROLES = ("proposer", "solver")
"""A row's ``role_id`` is the place of its role here."""
SHARE = "token_share"
"""``<role>/token_share``: the role's share of an optimiser step's sampled tokens, summed over micro-batches."""
MEANS = (
    "token_mult_prob_error", "gen_kl_error", "policy_kl_error", "js_divergence_error", "sampling_importance_ratio",
    "approx_entropy", "kl_penalty", "probs_ratio", "probs_ratio_clamped", "is_oob_ratio",
)  # fmt: skip
"""The metrics of NeMo-RL's loss that are also given by role."""
EXTREMES = {
    "probs_ratio_min": min,
    "probs_ratio_clamped_min": min,
    "probs_ratio_max": max,
    "probs_ratio_clamped_max": max,
}
