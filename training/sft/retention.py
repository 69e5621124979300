"""The retention gate: what set A still knows, measured on its held-out answers without a system prompt."""

from __future__ import annotations

from collections.abc import Sequence

from training.config_sft import RetentionConfig
from training.engines.base import Engine
from training.faults import RunStop
from training.sft.samples import Sample


class RetentionStop(RunStop):
    """Set A fell below its gate, and ``sft.retention.on_breach`` is stop."""


def mean_logprob(engine: Engine, samples: Sequence[Sample]) -> float:
    """Nats a trained token, over all tokens of all samples; at ``policy.generation.temperature``."""
    trajectories = [sample.trajectory for sample in samples]
    tokens = sum(trajectory.sampled_tokens for trajectory in trajectories)
    if not tokens:
        raise ValueError(f"{len(samples)} samples without a trained token: there is nothing to measure")
    return sum(map(sum, engine.logprobs(trajectories))) / tokens


def breach(drop: float, settings: RetentionConfig) -> str:
    """What to say of a fall of ``drop`` nats a token; empty where the gate holds or is off."""
    if settings.on_breach == "ignore" or drop <= settings.max_drop:
        return ""
    return (
        f"set A fell by {drop:.4f} nat a token and sft.retention.max_drop is {settings.max_drop:g}: without a system "
        "prompt the model no longer answers as before. Raise sft.general.share or the number of its prompts, lower "
        "sft.learning_rate or sft.max_num_steps, or raise max_drop"
    )
