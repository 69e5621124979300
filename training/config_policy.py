"""``policy``: the model, its optimizer, its memory budget, and how training rollouts are sampled."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from training.config_base import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, Section, refuse


class TokenizerConfig(Section):
    name: str | None = None
    """A Hub id or a folder; null: the model's own."""


class DynamicBatchingConfig(Section):
    """Micro-batches are filled up to a token budget; every trajectory counts at the padded length."""

    enabled: bool = True
    train_mb_tokens: PositiveInt = 16384
    logprob_mb_tokens: PositiveInt = 32768


class OptimizerKwargs(Section):
    lr: PositiveFloat = 1e-6
    weight_decay: NonNegativeFloat = 0.01
    betas: Annotated[tuple[float, float], Field(strict=False)] = (0.9, 0.999)
    eps: PositiveFloat = 1e-8


class OptimizerConfig(Section):
    name: Literal["torch.optim.AdamW"] = "torch.optim.AdamW"
    kwargs: OptimizerKwargs = OptimizerKwargs()


class SchedulerConfig(Section):
    """Linear warm-up, then constant, or a linear fall to ``min_lr_ratio`` over ``decay_steps`` optimiser steps."""

    warmup_steps: NonNegativeInt = 0
    decay_steps: PositiveInt | None = None
    min_lr_ratio: Annotated[float, Field(ge=0, le=1)] = 0.0


_FILTER = (
    "the sampler would draw from another distribution than the one trained, which biases every ratio and has collapsed "
    "runs: leave it {off}"
)


class GenerationConfig(Section):
    """Training rollouts sample at ``temperature`` alone. The filters exist to be refused by name: an unset field would
    be read from the model's own generation config by engines that do so (``training.preflight``)."""

    max_new_tokens: PositiveInt = 256
    """Tokens a turn."""
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int | None = None
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    allow_filters: bool = False
    """Let ``top_p``, ``top_k`` and ``min_p`` stand all the same, to see what they break: recorded log-probs are then
    those of the filtered distribution, as an inference server reports them, and training's are not."""
    stop_strings: Annotated[tuple[str, ...] | None, Field(strict=False)] = None

    @field_validator("temperature")
    @classmethod
    def _positive(cls, value: float) -> float:
        if value <= 0:
            raise ValueError(
                f"got {value}: greedy rollouts make a group of equal members, so nothing is learned; set it above 0 "
                "(usual: 1.0). Evaluation has its own switch, evaluation.greedy"
            )
        return value

    @model_validator(mode="after")
    def _no_filters(self) -> GenerationConfig:
        refused = not self.allow_filters
        refuse(
            {
                f"top_p {self.top_p}: {_FILTER.format(off=1.0)}": refused and self.top_p != 1.0,
                f"top_k {self.top_k}: {_FILTER.format(off='null')}": refused and self.top_k not in (None, -1),
                f"min_p {self.min_p}: {_FILTER.format(off=0.0)}": refused and self.min_p != 0.0,
                f"top_p {self.top_p}: it is a share of the probability, above 0 and at most 1": not 0 < self.top_p <= 1,
                f"top_k {self.top_k}: it is a number of tokens, at least 1; null is off": (
                    self.top_k is not None and self.top_k != -1 and self.top_k < 1
                ),
                f"min_p {self.min_p}: it is a share of the likeliest token's probability, from 0 to below 1": (
                    not 0 <= self.min_p < 1
                ),
                f"repetition_penalty {self.repetition_penalty}: {_FILTER.format(off=1.0)}": (
                    self.repetition_penalty != 1.0
                ),
                f"presence_penalty {self.presence_penalty}: {_FILTER.format(off=0.0)}": self.presence_penalty != 0.0,
                f"frequency_penalty {self.frequency_penalty}: {_FILTER.format(off=0.0)}": (
                    self.frequency_penalty != 0.0
                ),
                f"stop_strings {self.stop_strings}: a turn would end on text that the model did not choose to end on, "
                "and one role's string would stop the other; the protocol ends turns, so leave it null": bool(
                    self.stop_strings
                ),
            }
        )
        return self


class PolicyConfig(Section):
    model_name: str = "Qwen/Qwen3-0.6B"
    """A Hub id, a folder, a ``.gguf`` file, or ``gguf:PACKAGE``."""
    init: Literal["pretrained", "random"] = "pretrained"
    """random: weights drawn from ``grpo.seed`` for the model's config."""
    hf_config_overrides: dict[str, int | float | str | bool] = Field(default={})
    tokenizer: TokenizerConfig = TokenizerConfig()
    precision: Literal["float32", "bfloat16"] = "float32"
    max_total_sequence_length: PositiveInt = 2048
    train_global_batch_size: PositiveInt | None = None
    """Trajectories an optimiser step; null: one step for all that selection kept."""
    dynamic_batching: DynamicBatchingConfig = DynamicBatchingConfig()
    max_grad_norm: PositiveFloat | None = 1.0
    optimizer: OptimizerConfig = OptimizerConfig()
    scheduler: SchedulerConfig = SchedulerConfig()
    generation: GenerationConfig = GenerationConfig()

    @model_validator(mode="after")
    def _fits(self) -> PolicyConfig:
        longest, batching = self.max_total_sequence_length, self.dynamic_batching
        refuse(
            {
                f"generation.max_new_tokens {self.generation.max_new_tokens} is above max_total_sequence_length "
                f"{longest}: one turn must fit in the context": self.generation.max_new_tokens > longest,
                f"dynamic_batching.train_mb_tokens {batching.train_mb_tokens} is below max_total_sequence_length "
                f"{longest}: a full-length trajectory fits no micro-batch": (
                    batching.enabled and batching.train_mb_tokens < longest
                ),
                f"dynamic_batching.logprob_mb_tokens {batching.logprob_mb_tokens} is below max_total_sequence_length "
                f"{longest}: a full-length trajectory fits no micro-batch": (
                    batching.enabled and batching.logprob_mb_tokens < longest
                ),
            }
        )
        return self
