"""``sft``: the stage before self-play. A warm start on scripted experts, or the dual-prompt mix (``training.sft``)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator

from corpus_index.sources.company_words import RELATIONS
from rewards.endpoint import EndpointSettings
from training.config_base import (
    HopShares,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Section,
    refuse,
)


def _sum_to_one(shares: dict[str, float]) -> dict[str, float]:
    if shares and (min(shares.values()) <= 0 or abs(sum(shares.values()) - 1) > 1e-6):
        raise ValueError(f"got {shares}: shares are above 0 and sum to 1; an empty mapping takes all as they come")
    return shares


LanguageShares = Annotated[dict[str, float], AfterValidator(_sum_to_one)]
"""Language label -> share of the set's trained tokens, for example ``{en: 0.5, ja: 0.5}``; others are left out. Empty:
all, as they come."""


class GeneralSetConfig(Section):
    """Set A: chats without a system prompt, answered by the model itself as it is before the stage."""

    share: Annotated[float, Field(ge=0, lt=1)] = 0.5
    """Of the trained tokens; 0: plain SFT, with set A measured all the same."""
    prompts: str = "examples/data/general_prompts.jsonl"
    """JSONL of ``{"prompt", "language"}``, any other file with one prompt a line, or ``company:seed=...``: its
    questions, for a model that knows nothing else."""
    max_prompts: PositiveInt | None = None
    """Drawn by the seed; null: all of the file, of a company 400 questions of one hop and as many of two."""
    samples_per_prompt: PositiveInt = 1
    answerer: Literal["policy", "endpoint"] = "policy"
    """policy: the weights that the stage starts from, sampled at temperature 1. endpoint: a server of the same weights;
    its text is tokenised anew, so a little of what is learned is the tokeniser's way."""
    endpoint: EndpointSettings = EndpointSettings(temperature=1.0)
    held_out: PositiveInt = 32
    """Prompts whose answers are never trained on: the retention gate measures them."""
    languages: LanguageShares = Field(default_factory=dict)


class AgenticSetConfig(Section):
    """Set B: whole episodes of both roles, with the role's system prompt."""

    data_path: str | None = None
    """JSONL of chat rows (``environments.chat_rows``); null: ``samples`` episodes of the scripted experts."""
    held_out_path: str | None = None
    """null: ``held_out`` rows of ``data_path`` drawn by the seed; they may share entities with trained ones."""
    samples: PositiveInt = 2000
    held_out: PositiveInt = 64
    languages: LanguageShares = Field(default_factory=dict)


class RetentionConfig(Section):
    """The gate on set A: how far the log-probability of held-out answers may fall."""

    max_drop: NonNegativeFloat = 0.02
    """Nats a token, against the weights before the stage."""
    on_breach: Literal["ignore", "warn", "stop"] = "warn"
    """stop: the stage ends with a checkpoint."""


class SftConfig(Section):
    recipe: Literal["warm_start", "dual_prompt"] = "warm_start"
    """warm_start: scripted experts alone. dual_prompt: sets A and B, their own validation, and the retention gate."""
    max_num_steps: NonNegativeInt = 0
    """0: no SFT."""
    seed: int = 42
    companies: PositiveInt = 4
    """Synthetic companies whose experts are imitated."""
    learning_rate: PositiveFloat = 1e-4
    warmup_steps: NonNegativeInt = 10
    trajectories_per_step: PositiveInt = 16
    tokens_per_step: PositiveInt | None = None
    """dual_prompt: a step takes samples until they hold so many tokens, prompts included; null:
    ``trajectories_per_step`` samples."""
    val_period: NonNegativeInt = 20
    """dual_prompt: validate and judge the gate every so many steps; 0: at the start and the end alone."""
    rollouts: NonNegativeInt = 16
    """dual_prompt: episodes of each role that a validation plays on the tasks of held-out rows, for the format success
    and the tool-error rate."""
    general: GeneralSetConfig = GeneralSetConfig()
    agentic: AgenticSetConfig = AgenticSetConfig()
    retention: RetentionConfig = RetentionConfig()
    proposer_share: Annotated[float, Field(ge=0, le=1)] = 0.5
    proposer_hops: HopShares = Field(default={1: 0.5, 2: 0.5})
    solver_hops: HopShares = Field(default={1: 0.5, 2: 0.5})
    slip: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of the experts' look-ups with a mistake in them: another name, a hit beside the right one, a wrong id. The
    mistake stands in the context without being trained; what is learned is to mend it."""
    wander: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of the Solver's demonstrations whose expert takes a random turning after the first hop and submits what it
    finds there: right only by chance. Which turning a question asks for is left to RL."""
    even_sorts: bool = False
    """The Proposer's expert asks all sorts of question alike: what it hardly asks, self-play hardly trains."""
    relation_weights: dict[str, PositiveFloat] = Field(default_factory=dict)
    """How often the company's relations are asked about, by the last relation of a question; 1 where not named."""

    @field_validator("relation_weights")
    @classmethod
    def _known_relations(cls, given: dict[str, float]) -> dict[str, float]:
        unknown = sorted(set(given) - set(RELATIONS))
        refuse({f"{', '.join(unknown)}: no such relation; use {', '.join(RELATIONS)}": bool(unknown)})
        return given
