"""What NeMo-RL's policy reports of an update, in our names: means over the optimiser steps, and by role."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from training.config_loss import LossConfig
from training.engines.nemo_rl.roles import EXTREMES, MEANS, ROLES, SHARE

_CONSTANT = ("lr", "wd", "global_valid_seqs", "global_valid_toks")


def update_metrics(results: Mapping[str, Any], steps: int, loss: LossConfig) -> dict[str, float]:
    """``results`` as ``policy.train`` returns them: ``all_mb_metrics`` holds a list over micro-batches (of all ranks
    and optimiser steps) for each name, each value already divided by its optimiser step's tokens or sequences.

    ``<role>/<name>`` are means over that role's tokens. ``grad_norm`` is that of the last optimiser step, all that
    NeMo-RL keeps.
    """
    lists: Mapping[str, Sequence[float]] = results["all_mb_metrics"]
    metrics = {"grad_norm": float(results["grad_norm"])}
    for name, values in lists.items():
        if name in EXTREMES:
            finite = [value for value in values if math.isfinite(value)]
            if finite:
                metrics[name] = EXTREMES[name](finite)
        elif name in _CONSTANT:
            metrics[name] = sum(values) / len(values)
        elif "/" not in name:
            metrics[name] = sum(values) / steps
    for role in ROLES:
        share = sum(lists.get(f"{role}/{SHARE}", []))
        if share:
            metrics |= {
                f"{role}/{name}": sum(lists[f"{role}/{name}"]) / share for name in MEANS if f"{role}/{name}" in lists
            }
            metrics[f"{role}/{SHARE}"] = share / steps
    if loss.sequence_level_importance_ratios:
        # NeMo-RL v0.7.0 multiplies it by the rows of a micro-batch where ratios are per sequence: it means nothing.
        metrics = {name: value for name, value in metrics.items() if "sampling_importance_ratio" not in name}
    return metrics
