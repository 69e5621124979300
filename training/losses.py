"""Policy losses as pure functions of log-probabilities, ``[batch, tokens]``, named as NeMo-RL names them.

    ratio r = exp(current - prev)                                    prev: recomputed before the first update
    GRPO (2402.03300)    -min(r A, clip(r, 1 - ratio_clip_min, 1 + ratio_clip_max) A); DAPO (2503.14476) clips unevenly
    dual clip (1912.09729)   the above, at most c |A| where A < 0
    GSPO (2507.18071)    the above with r = (prod_t r_t)^(1/|y|), in its token form (same value, token gradients)
    CISPO (2506.13585)   -clip(r).detach() A log pi
    SAPO (2511.20347)    -(4 / tau) sigmoid(tau (r - 1)) A, tau by the sign of A
    Dr.GRPO (2503.20783) the mean divides by a constant length instead of by a length

    weight w = exp(prev - generation), detached: what the sampler gave against what the trainer recomputes
    tis                  min(w, C)                               C = truncated_importance_sampling_ratio, usual 2
    icepop               w where it lies in [.._ratio_min, .._ratio], else 0
    seq-mask-tis         w of all tokens of a sequence whose geometric mean (prod_t w_t)^(1/|y|) lies there, else 0

A batch may be cut into micro-batches: every call divides by the whole batch's ``Denominators``, so that losses and
gradients add up to those of one call. Log-probs are in nats; position t holds the log-prob of token t itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from training.config_loss import LossConfig


@dataclass(frozen=True, slots=True)
class Denominators:
    """Of one optimiser step's whole batch, all its micro-batches together. ``loss`` divides the loss, ``tokens`` (the
    number of sampled tokens) divides the metrics."""

    loss: float
    tokens: float


@dataclass(frozen=True, slots=True)
class LossOutput:
    """``loss`` is a scalar with a gradient. Sum ``metrics`` over micro-batches by ``merge_metrics``."""

    loss: Tensor
    metrics: dict[str, float]


def loss_units(token_counts: Sequence[int], config: LossConfig) -> list[float]:
    """What each trajectory adds to the loss's denominator: its tokens, 1 (sequence mean) or ``constant_length``.

    ``token_counts`` are numbers of sampled tokens, ``[batch]``. A trajectory without any adds nothing.
    """
    if config.constant_length is not None:
        return [float(config.constant_length) if count else 0.0 for count in token_counts]
    if config.token_level_loss:
        return [float(count) for count in token_counts]
    return [1.0 if count else 0.0 for count in token_counts]


def denominators(token_counts: Sequence[int], config: LossConfig) -> Denominators:
    """Raises ValueError if there is no sampled token at all."""
    if not any(token_counts):
        raise ValueError(f"{len(token_counts)} trajectories without a sampled token: there is nothing to divide by")
    return Denominators(loss=sum(loss_units(token_counts, config)), tokens=float(sum(token_counts)))


def role_weights(
    roles: Sequence[str], token_counts: Sequence[int], role_weight: Mapping[str, float], config: LossConfig
) -> list[float]:
    """Weights ``[batch]`` that make the batch's loss  sum over roles of  w_role * (mean over that role alone).

    With plain weights of 1 a role's share of the gradient would be its share of the tokens. Here each role is divided
    by its own units (``loss_units``) and multiplied by its weight. One role with weight 1 gets weights of 1.

    Raises ValueError for a role without a weight.
    """
    units = loss_units(token_counts, config)
    total = sum(units)
    of_role: dict[str, float] = {}
    for role, unit in zip(roles, units, strict=True):
        if role not in role_weight:
            raise ValueError(f"role {role!r} has no weight; known roles: {', '.join(sorted(role_weight))}")
        of_role[role] = of_role.get(role, 0.0) + unit
    return [role_weight[role] * total / of_role[role] if of_role[role] else 0.0 for role in roles]


def policy_loss(
    curr_logprobs: Tensor,
    prev_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    config: LossConfig,
    denominators: Denominators,
    *,
    generation_logprobs: Tensor | None = None,
    reference_logprobs: Tensor | None = None,
    weights: Tensor | None = None,
) -> LossOutput:
    """The configured policy loss plus ``reference_policy_kl_penalty`` times the KL to the reference.

    Args:
        curr_logprobs: ``[batch, tokens]``, with gradient.
        prev_logprobs: ``[batch, tokens]``, recomputed with the weights before this batch's first update.
        advantages: ``[batch]`` or ``[batch, tokens]``.
        mask: ``[batch, tokens]``, true or 1 on sampled tokens; what stands elsewhere is never read.
        denominators: of the whole batch, see ``Denominators``.
        generation_logprobs: ``[batch, tokens]``, recorded while sampling; needed by the importance-sampling correction.
        reference_logprobs: ``[batch, tokens]``; needed by the KL penalty.
        weights: ``[batch]``, see ``role_weights``; 1 when absent.

    Raises:
        ValueError: a needed tensor is absent, or a shape is another one.
    """
    mask = mask.bool()
    _check_shapes(curr_logprobs, prev_logprobs, advantages, mask, generation_logprobs, reference_logprobs, weights)
    if advantages.dim() == 1:
        advantages = advantages[:, None]
    curr = _blank(curr_logprobs, mask)
    prev = _blank(prev_logprobs, mask).detach()
    generation = prev if generation_logprobs is None else _blank(generation_logprobs, mask).detach()
    # Which tokens count must not depend on a NaN in the padding of the advantages either.
    advantages = _blank(advantages.to(curr.dtype).expand_as(curr), mask).detach()

    ratio = _ratio(curr, prev, mask, config)
    clipped = ratio.clamp(1 - config.ratio_clip_min, 1 + config.ratio_clip_max)
    tokens = _actor(ratio, clipped, advantages, curr, config)
    mean = _Mean(mask, denominators.tokens)
    metrics: dict[str, float] = {}

    if config.use_importance_sampling_correction:
        if generation_logprobs is None:
            raise ValueError("use_importance_sampling_correction needs generation_logprobs, got None")
        correction, out_of_bounds = _correction(prev - generation, mask, config)
        tokens = tokens * correction
        metrics |= {"sampling_importance_weight": mean(correction), "is_oob_ratio": mean(out_of_bounds)}
    if config.reference_policy_kl_penalty > 0:
        if reference_logprobs is None:
            raise ValueError("reference_policy_kl_penalty > 0 needs reference_logprobs, got None")
        kl = kl_estimate(curr, _blank(reference_logprobs, mask).detach(), config)
        metrics["kl_penalty"] = mean(kl)
        if config.use_on_policy_kl_approximation:
            kl = kl * torch.exp(curr - generation)
        tokens = tokens + config.reference_policy_kl_penalty * kl

    per_sequence = _blank(tokens, mask).sum(dim=1)
    if not config.token_level_loss:
        per_sequence = per_sequence / mask.sum(dim=1).clamp(min=1)
    if weights is not None:
        per_sequence = per_sequence * weights.to(per_sequence.dtype)
    loss = per_sequence.sum() / denominators.loss

    metrics |= {
        "loss": float(loss.detach()),
        "probs_ratio": mean(ratio),
        "probs_ratio_clamped": mean(clipped),
        # Shares of tokens whose gradient the clip removes; CISPO and SAPO report the same counts, though they keep it.
        "clipped_low": mean((ratio < 1 - config.ratio_clip_min) & (advantages < 0)),
        "clipped_high": mean((ratio > 1 + config.ratio_clip_max) & (advantages > 0)),
        "approx_entropy": mean(-torch.exp(curr - generation) * curr),
    }
    if mask.any():
        sampled = ratio.detach()[mask]
        metrics |= {"probs_ratio_min": float(sampled.min()), "probs_ratio_max": float(sampled.max())}
    return LossOutput(loss, metrics)


def merge_metrics(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Metrics of the whole batch from those of its micro-batches: minima and maxima by name, all others are sums."""
    merged: dict[str, float] = {}
    for part in parts:
        for name, value in part.items():
            if name not in merged:
                merged[name] = value
            elif name.endswith("_min"):
                merged[name] = min(merged[name], value)
            elif name.endswith("_max"):
                merged[name] = max(merged[name], value)
            else:
                merged[name] += value
    return merged


def kl_estimate(curr_logprobs: Tensor, reference_logprobs: Tensor, config: LossConfig) -> Tensor:
    """Per-token estimate of KL(current || reference) from tokens of the current policy.

    With l = reference - current:  k1 = -l,  k2 = l^2 / 2,  k3 = e^l - 1 - l.
    """
    log_ratio = reference_logprobs - curr_logprobs
    if config.kl_input_clamp_value is not None:
        log_ratio = log_ratio.clamp(-config.kl_input_clamp_value, config.kl_input_clamp_value)
    if config.reference_policy_kl_type == "k1":
        kl = -log_ratio
    elif config.reference_policy_kl_type == "k2":
        kl = log_ratio.square() / 2
    else:
        kl = torch.expm1(log_ratio) - log_ratio
    if config.kl_output_clamp_value is not None:
        kl = kl.clamp(-config.kl_output_clamp_value, config.kl_output_clamp_value)
    return kl


def _ratio(curr: Tensor, prev: Tensor, mask: Tensor, config: LossConfig) -> Tensor:
    if config.force_on_policy_ratio:
        return torch.exp(curr - curr.detach())
    if config.sequence_level_importance_ratios:
        mean = (curr - prev).detach().sum(dim=1, keepdim=True) / mask.sum(dim=1, keepdim=True).clamp(min=1)
        # The value is the sequence's ratio, the gradient is each token's own: GSPO-token of 2507.18071.
        return torch.exp(mean + curr - curr.detach())
    return torch.exp(curr - prev)


def _actor(ratio: Tensor, clipped: Tensor, advantages: Tensor, curr: Tensor, config: LossConfig) -> Tensor:
    if config.disable_ppo_ratio:
        return -advantages * curr
    if config.use_cispo:
        return -clipped.detach() * advantages * curr
    if config.use_sapo:
        tau = torch.full_like(advantages, config.sapo_tau_neg).masked_fill(advantages > 0, config.sapo_tau_pos)
        return -(4 / tau) * torch.sigmoid(tau * (ratio - 1)) * advantages
    tokens = torch.maximum(-advantages * ratio, -advantages * clipped)
    if config.ratio_clip_c is not None:
        bounded = torch.minimum(tokens, -advantages * config.ratio_clip_c)
        tokens = torch.where(advantages < 0, bounded, tokens)
    return tokens


def _correction(log_weight: Tensor, mask: Tensor, config: LossConfig) -> tuple[Tensor, Tensor]:
    """Weights prev / generation ``[batch, tokens]`` after truncation, and which of them it changed."""
    weight = torch.exp(log_weight)
    upper, lower = config.truncated_importance_sampling_ratio, config.truncated_importance_sampling_ratio_min
    if upper is None:
        return weight, torch.zeros_like(weight)
    judged = weight
    if config.truncated_importance_sampling_type == "seq-mask-tis":
        mean = log_weight.sum(dim=1, keepdim=True) / mask.sum(dim=1, keepdim=True).clamp(min=1)
        judged = torch.exp(mean).expand_as(weight)
    outside = judged > upper
    if lower is None:
        return weight.clamp(max=upper), outside
    outside = outside | (judged < lower)
    return weight.masked_fill(outside, 0.0), outside


def _blank(values: Tensor, mask: Tensor) -> Tensor:
    """Zero where nothing was sampled, whatever stands there (padding may be NaN or -inf), in value and in gradient."""
    return values.masked_fill(~mask, 0.0)


@dataclass(frozen=True, slots=True)
class _Mean:
    mask: Tensor
    tokens: float

    def __call__(self, values: Tensor) -> float:
        return float(values.detach()[self.mask].sum()) / self.tokens


def _check_shapes(
    curr: Tensor,
    prev: Tensor,
    advantages: Tensor,
    mask: Tensor,
    generation: Tensor | None,
    reference: Tensor | None,
    weights: Tensor | None,
) -> None:
    if curr.dim() != 2:
        raise ValueError(f"curr_logprobs: got shape {tuple(curr.shape)}, expected [batch, tokens]")
    like_curr = {
        "prev_logprobs": prev,
        "mask": mask,
        "generation_logprobs": generation,
        "reference_logprobs": reference,
    }
    for name, tensor in like_curr.items():
        if tensor is not None and tensor.shape != curr.shape:
            raise ValueError(
                f"{name}: got shape {tuple(tensor.shape)}, expected {tuple(curr.shape)} like curr_logprobs"
            )
    if advantages.shape not in (curr.shape, curr.shape[:1]):
        raise ValueError(f"advantages: got shape {tuple(advantages.shape)}, expected [batch] or [batch, tokens]")
    if weights is not None and weights.shape != curr.shape[:1]:
        raise ValueError(f"weights: got shape {tuple(weights.shape)}, expected {tuple(curr.shape[:1])}")
