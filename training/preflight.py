"""Before a run: what rollouts are really drawn with, and why a run that samples another distribution than it trains is
refused.

A filter or a penalty left on in rollouts alone makes every ratio wrong by a systematic factor, and has been the first
cause of collapses that no other setting could mend. It need not stand in the config: an inference server fills every
field that a request leaves out from the model's own ``generation_config.json``.
"""

from __future__ import annotations

import json
from dataclasses import asdict

from training.config import Config
from training.engines.base import EffectiveSampling, Engine, Sampling
from training.runlog import RunLog

FILE = "preflight.json"
_OFF = {
    "top_p": 1.0,
    "top_k": None,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
"""Each filter's neutral value; no other value of it leaves the distribution alone."""
_FILTERS = ("top_p", "top_k", "min_p")


def training_sampling(config: Config, seed: int) -> Sampling:
    """What the training rollouts ask the engine for."""
    asked = config.policy.generation
    return Sampling(
        temperature=asked.temperature,
        seed=seed,
        top_p=asked.top_p,
        top_k=None if asked.top_k == -1 else asked.top_k,
        min_p=asked.min_p,
        may_lag=True,
    )


def preflight(engine: Engine, config: Config, log: RunLog) -> EffectiveSampling:
    """Say what the training rollouts will be drawn with, write it to ``preflight.json`` in the run folder, and refuse
    what is not the trained distribution.

    Raises ValueError with every reason.
    """
    found = engine.effective_sampling(training_sampling(config, config.grpo.seed))
    log.write_text(FILE, json.dumps(asdict(found), indent=2) + "\n")
    for line in describe(found):
        log.say(line)
    reasons = refusals(found, allow_filters=config.policy.generation.allow_filters)
    if reasons:
        raise ValueError("sampling preflight: " + "; ".join(reasons))
    for name in switched_on(found):
        log.warn(f"policy.generation.{name} {getattr(found, name)} is on by allow_filters: expect a mismatch")
    return found


def describe(found: EffectiveSampling) -> list[str]:
    """The effective values in one line; in a second one, what the model's file asks for and does not get."""
    values = ", ".join(f"{name} {_shown(getattr(found, name))}" for name in ("temperature", *_OFF))
    lines = [f"rollouts are drawn with {values}; log-probs for training at temperature {found.training_temperature:g}"]
    ignored = differing(found)
    if ignored:
        fields = ", ".join(f"{name} {_shown(value)}" for name, value in ignored.items())
        lines.append(f"ignored of the model's own generation config: {fields}")
    return lines


def differing(found: EffectiveSampling) -> dict[str, float]:
    """The fields of the model's file that rollouts do not follow and that would have changed them."""
    return {
        name: value
        for name, value in found.model_file.items()
        if name not in found.inherited and not _same(name, value, getattr(found, name))
    }


def switched_on(found: EffectiveSampling) -> list[str]:
    """The filters and penalties that are not neutral."""
    return [name for name, off in _OFF.items() if not _same(name, getattr(found, name), off)]


def refusals(found: EffectiveSampling, *, allow_filters: bool) -> list[str]:
    """Why these rollouts are not drawn from the distribution that is trained; empty where they are."""
    reasons = [
        f"{name} is {_shown(getattr(found, name))}{_origin(name, found)} and must be {_shown(_OFF[name])}: rollouts "
        "would be drawn from another distribution than the one trained, which biases every ratio"
        for name in switched_on(found)
        if not (allow_filters and name in _FILTERS and name not in found.inherited)
    ]
    if found.temperature != found.training_temperature:
        reasons.append(
            f"rollouts are drawn at temperature {found.temperature:g}{_origin('temperature', found)} and log-probs are "
            f"recomputed at {found.training_temperature:g}: the two must be one, policy.generation.temperature"
        )
    return reasons


def _origin(name: str, found: EffectiveSampling) -> str:
    inherited = name in found.inherited
    return " (from the model's generation_config.json; set it in the engine's requests)" if inherited else ""


def _same(name: str, one: float | None, other: float | None) -> bool:
    """Some write 0 or -1 for a top-k that is off."""
    if name == "top_k":
        return (one if one and one > 0 else None) == (other if other and other > 0 else None)
    return one == other


def _shown(value: float | None) -> str:
    return "off" if value is None else f"{value:g}"
