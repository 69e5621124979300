"""Our optimiser settings in the words of NeMo-RL's two trainers."""

from __future__ import annotations

import math
from typing import Any

from training.config import Config
from training.config_load import Tree
from training.config_policy import OptimizerKwargs, SchedulerConfig


def torch_schedule(scheduler: SchedulerConfig, steps_per_update: int) -> list[dict[str, Any]]:
    """Our warm-up and decay as NeMo-RL's list of torch schedulers.

    NeMo-RL's clock ticks once an update, after all its optimiser steps: counts of ours are divided by
    ``steps_per_update`` and rounded up.
    """
    warmup = math.ceil(scheduler.warmup_steps / steps_per_update)
    after: dict[str, Any] = {"name": "torch.optim.lr_scheduler.ConstantLR", "kwargs": {"factor": 1.0, "total_iters": 1}}
    if scheduler.decay_steps is not None:
        span = max(math.ceil(scheduler.decay_steps / steps_per_update) - warmup, 1)
        after = _linear(1.0, scheduler.min_lr_ratio, span)
    if warmup < 2:  # the first step of a warm-up of one is at the full rate
        return [after, {"milestones": []}]
    return [_linear(1 / warmup, 1.0, warmup - 1), after, {"milestones": [warmup]}]


def _linear(start: float, end: float, steps: int) -> dict[str, Any]:
    kwargs = {"start_factor": start, "end_factor": end, "total_iters": steps}
    return {"name": "torch.optim.lr_scheduler.LinearLR", "kwargs": kwargs}


def megatron_schedule(
    optimizer: OptimizerKwargs, scheduler: SchedulerConfig, config: Config, steps_per_update: int
) -> Tree:
    """The optimiser and its schedule once more, where Megatron looks for them. Its own defaults start the warm-up, and
    end the decay, at 5e-7, which may be above our rate."""
    lr, steps = optimizer.lr, config.grpo.max_num_steps
    warmup = math.ceil(scheduler.warmup_steps / steps_per_update)
    decay = steps if scheduler.decay_steps is None else scheduler.decay_steps / steps_per_update
    return {
        "optimizer": {
            "lr": lr,
            "min_lr": lr * (1.0 if scheduler.decay_steps is None else scheduler.min_lr_ratio),
            "weight_decay": optimizer.weight_decay,
            "bf16": config.policy.precision == "bfloat16",
            "adam_beta1": optimizer.betas[0],
            "adam_beta2": optimizer.betas[1],
            "adam_eps": optimizer.eps,
        },
        "scheduler": {
            "lr_decay_style": "constant" if scheduler.decay_steps is None else "linear",
            "lr_decay_iters": max(math.ceil(decay), warmup + 1),
            "lr_warmup_iters": warmup,
            "lr_warmup_init": lr / max(warmup, 1),
        },
    }
