"""``loss_fn``: which policy loss, under NeMo-RL v0.7.0's names. ``training.losses`` computes it.

Recipes by key: GRPO is the default; DAPO's clip is ``ratio_clip_max`` 0.28; Dr.GRPO adds ``constant_length`` (and no
std division in ``grpo``); GSPO is ``sequence_level_importance_ratios`` with ``token_level_loss: false``.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from training.config_base import NonNegativeFloat, PositiveFloat, PositiveInt, Section, refuse


class LossConfig(Section):
    reference_policy_kl_penalty: NonNegativeFloat = 0.0
    """Weight of the KL to the starting weights; 0 needs no reference model."""
    reference_policy_kl_type: Literal["k1", "k2", "k3"] = "k3"
    kl_input_clamp_value: PositiveFloat | None = 20.0
    """Bound of the log-ratio that enters the estimator."""
    kl_output_clamp_value: PositiveFloat | None = 10.0
    """Bound of a token's KL estimate."""
    use_on_policy_kl_approximation: bool = False
    """Weight a token's KL by exp(current - generation), for rollouts of an older policy."""

    ratio_clip_min: Annotated[float, Field(ge=0, le=1)] = 0.2
    """The ratio is clipped below at 1 - this. GSPO: about 3e-4."""
    ratio_clip_max: NonNegativeFloat = 0.28
    """The ratio is clipped above at 1 + this. GSPO: about 4e-4."""
    ratio_clip_c: Annotated[float, Field(gt=1)] | None = None
    """Dual clip (1912.09729): a negative advantage costs at most this many times its size. Usual: 3."""

    sequence_level_importance_ratios: bool = False
    """GSPO (2507.18071): one ratio a sequence, the geometric mean over its sampled tokens."""
    token_level_loss: bool = True
    """Mean over all tokens of the batch; false: mean over each sequence, then over sequences."""
    constant_length: PositiveInt | None = None
    """Ours. Dr.GRPO (2503.20783): divide each sequence's sum by this many tokens instead of by a length."""

    use_cispo: bool = False
    """CISPO (2506.13585): clip the detached ratio and keep every token's gradient."""
    use_sapo: bool = False
    """Ours. SAPO (2511.20347): a sigmoid of the ratio in place of the clip."""
    sapo_tau_pos: PositiveFloat = 1.0
    sapo_tau_neg: PositiveFloat = 1.05
    disable_ppo_ratio: bool = False
    """Plain policy gradient, -A log pi, without a ratio."""
    force_on_policy_ratio: bool = False
    """Take the ratio as 1 (its gradient stays): right only with one optimiser step a rollout."""

    use_importance_sampling_correction: bool = False
    """Weight tokens by exp(prev - generation): what the sampler gave against what the trainer recomputes."""
    truncated_importance_sampling_type: Literal["tis", "icepop", "seq-mask-tis"] | None = None
    """tis: weights are cut at ``_ratio``; icepop: weights outside [``_ratio_min``, ``_ratio``] become 0; seq-mask-tis:
    whole sequences whose geometric mean weight is outside become 0, and the others keep their token weights."""
    truncated_importance_sampling_ratio: PositiveFloat | None = None
    truncated_importance_sampling_ratio_min: PositiveFloat | None = None

    @model_validator(mode="after")
    def _forbidden(self) -> LossConfig:
        special = [
            name
            for name, on in {
                "use_cispo": self.use_cispo,
                "use_sapo": self.use_sapo,
                "sequence_level_importance_ratios": self.sequence_level_importance_ratios,
                "disable_ppo_ratio": self.disable_ppo_ratio,
            }.items()
            if on
        ]
        kind, upper, lower = (
            self.truncated_importance_sampling_type,
            self.truncated_importance_sampling_ratio,
            self.truncated_importance_sampling_ratio_min,
        )
        refuse(
            {
                f"{' and '.join(special)} are different losses: turn on one": len(special) > 1,
                f"ratio_clip_c bounds the clipped ratio's loss and {special} has none: set ratio_clip_c to null": (
                    self.ratio_clip_c is not None and (self.use_cispo or self.use_sapo or self.disable_ppo_ratio)
                ),
                "sequence_level_importance_ratios (GSPO) averages over sequences: set token_level_loss to false": (
                    self.sequence_level_importance_ratios and self.token_level_loss
                ),
                "use_cispo is defined over all tokens of the batch: set token_level_loss to true": (
                    self.use_cispo and not self.token_level_loss
                ),
                "constant_length replaces the length a sequence mean divides by: set token_level_loss to true": (
                    self.constant_length is not None and not self.token_level_loss
                ),
                "sequence_level_importance_ratios with use_importance_sampling_correction weighs a sequence by exp of "
                "the SUM of its tokens' log-ratios: a mean mismatch of 0.002 nats makes an episode of 2,000 tokens "
                "count for 1/50. Turn the correction off (on-policy GSPO) or use token ratios": (
                    self.sequence_level_importance_ratios and self.use_importance_sampling_correction
                ),
                "disable_ppo_ratio and force_on_policy_ratio are two ways to drop the ratio: turn on one": (
                    self.disable_ppo_ratio and self.force_on_policy_ratio
                ),
                f"truncated_importance_sampling_type {kind} truncates weights that are off: set "
                "use_importance_sampling_correction to true": (
                    kind is not None and not self.use_importance_sampling_correction
                ),
                "truncated_importance_sampling_ratio and _ratio_min do nothing without "
                "truncated_importance_sampling_type: set it to tis, icepop or seq-mask-tis": (
                    kind is None and (upper is not None or lower is not None)
                ),
                f"truncated_importance_sampling_type {kind} needs truncated_importance_sampling_ratio (usual: 2.0 for "
                "tis, 5.0 for icepop, 1.002 for seq-mask-tis)": kind is not None and upper is None,
                f"truncated_importance_sampling_type {kind} needs truncated_importance_sampling_ratio_min (usual: 0.5 "
                "for icepop, 0.999 for seq-mask-tis)": kind in ("icepop", "seq-mask-tis") and lower is None,
                "truncated_importance_sampling_type tis has no lower bound: set "
                "truncated_importance_sampling_ratio_min to null": kind == "tis" and lower is not None,
                f"truncated_importance_sampling_ratio_min {lower} is not below truncated_importance_sampling_ratio "
                f"{upper}": lower is not None and upper is not None and lower >= upper,
            }
        )
        return self
