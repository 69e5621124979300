"""Resume or restart: whether the weights of the last checkpoint still deserve to be trained on.

A run that is started again goes on from where it was, good or bad. Its own validations decide: where the last one lies
well below the best one, or below the one before the first step, going on means to carry a bad stretch along.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from training.config import CheckpointingConfig
from training.faults import RunStop


class ValidationStop(RunStop):
    """The run is not resumed, by ``checkpointing.validation_policy``."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Validations as (step, value): the last, the best, and the first one, before any step."""

    last: tuple[int, float]
    best: tuple[int, float]
    first: tuple[int, float]


def standing(metrics_path: Path, settings: CheckpointingConfig, until: int) -> Standing | None:
    """What the log says up to step ``until``; None where it has fewer than two validations of ``metric_name``."""
    kind, _, name = (settings.metric_name or "").partition(":")
    if kind != "val" or not metrics_path.exists():
        return None
    found: list[tuple[int, float]] = []
    for line in metrics_path.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        value = record["metrics"].get(f"val/overall/{name}")
        if record["phase"] == "val" and record["step"] <= until and value is not None:
            found.append((record["step"], value))
    if len(found) < 2:
        return None
    sign = 1 if settings.higher_is_better else -1
    return Standing(found[-1], max(found, key=lambda measured: sign * measured[1]), found[0])


def fallen(found: Standing, settings: CheckpointingConfig) -> str:
    """What is wrong with the last validation, in one line; empty where nothing is."""
    sign = 1 if settings.higher_is_better else -1
    (step, last), (best_step, best), (first_step, first) = found.last, found.best, found.first
    drop = sign * (best - last)
    reasons: list[str] = []
    if drop > settings.max_validation_drop:
        reasons.append(f"{drop:.3g} worse than {best:.3g} at step {best_step}")
    if sign * (first - last) > 0:
        reasons.append(f"worse than {first:.3g} at step {first_step}, before training")
    if not reasons:
        return ""
    return f"{settings.metric_name} {last:.3g} at step {step} is {' and '.join(reasons)}"
