"""One recipe, NeMo-RL's config: its defaults file, then what our sections decide, then the ``nemo_rl`` section.

Nothing here needs NeMo-RL, only its checkout. The result is what ``MasterConfig(**tree)`` takes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from training.batch_plan import batch_plan
from training.config import Config
from training.config_load import ConfigError, Tree, merge, nearest_key, plain_tree
from training.config_loss import LossConfig
from training.config_nemo_rl import Overlay
from training.config_policy import SchedulerConfig
from training.engines.nemo_rl.checkout import read_defaults

_LOSSES_OF_OURS = {"constant_length", "use_sapo", "sapo_tau_pos", "sapo_tau_neg"}
"""Terms that NeMo-RL's loss lacks; ``training.engines.nemo_rl.loss`` adds them."""
_GRPO = (
    "num_prompts_per_step",
    "num_generations_per_prompt",
    "max_rollout_turns",
    "max_num_steps",
    "normalize_rewards",
    "use_leave_one_out_baseline",
    "adv_estimator",
    "advantage_clip_low",
    "advantage_clip_high",
    "val_period",
    "val_at_start",
    "val_at_end",
    "max_val_samples",
    "seed",
    "overlong_filtering",
    "seq_logprob_error_threshold",
    "async_grpo",
)
"""Keys of ``grpo`` that mean the same on both sides; ``normalize_by`` is ours alone, and so are the advantages."""
_POLICY = ("model_name", "hf_config_overrides", "precision", "max_total_sequence_length", "max_grad_norm", "optimizer")
_GRPO_SECTIONS = ("grpo", "loss_fn", "policy", "data", "env", "logger", "checkpointing", "cluster", "data_plane")
_REPLACED = ("env", "data.train", "policy.optimizer", "logger.wandb")
"""Mappings that are ours as a whole: what the defaults file has there belongs to another model and another task."""
_CHECKPOINTING = ("enabled", "metric_name", "higher_is_better", "save_period")


def nemo_rl_master_config(config: Config) -> dict[str, Any]:
    """What NeMo-RL's GRPO ``MasterConfig`` takes, resolved and plain.

    ``policy.train_global_batch_size`` is the most rollouts that a step can train where ours is null. ``data.train`` and
    ``env`` only name us: the prompts come from the self-play loop, the environments from ``environments.nemo_rl``.

    Raises ConfigError: no checkout, a key of ``nemo_rl`` that neither its defaults file knows nor a ``+`` adds, or one
    that another section of ours decides.
    """
    given = plain_tree(config)["nemo_rl"]
    overlay = {name: given[name] for name in _GRPO_SECTIONS if given[name]}
    return _resolve(config.nemo_rl.defaults, _decided(config), _preset(config), overlay)


def _decided(config: Config) -> Tree:
    """What our sections decide; ``nemo_rl`` may not say it again."""
    tree = plain_tree(config)
    grpo, policy, loss = tree["grpo"], tree["policy"], tree["loss_fn"]
    generation = config.policy.generation
    return {
        "grpo": {name: grpo[name] for name in _GRPO},
        "loss_fn": {name: loss[name] for name in LossConfig.model_fields if name not in _LOSSES_OF_OURS},
        "policy": {
            **{name: policy[name] for name in _POLICY},
            "tokenizer": {"name": config.policy.tokenizer.name or config.policy.model_name},
            "train_global_batch_size": batch_plan(config).optimiser_step,
            "dynamic_batching": policy["dynamic_batching"],
            "scheduler": torch_schedule(config.policy.scheduler, batch_plan(config).optimiser_steps),
            "megatron_cfg": _megatron(config),
            "generation": {
                "max_new_tokens": generation.max_new_tokens,
                "temperature": generation.temperature,
                "top_p": generation.top_p,
                "top_k": None if generation.top_k == -1 else generation.top_k,
                "stop_strings": None,
            },
        },
        "checkpointing": _checkpointing(config),
        "logger": _logger(config),
        "cluster": tree["cluster"],
    }


def _preset(config: Config) -> Tree:
    """What we would have otherwise than the defaults file; ``nemo_rl`` may say it again."""
    return {
        "grpo": {"val_batch_size": config.grpo.max_val_samples},
        "policy": {"sequence_packing": {"enabled": False}},
        "data": {
            "shuffle": config.data.shuffle,
            "train": {"dataset_name": "futari"},
            "validation": None,
            "default": None,
        },
        "env": {},
        # DTensor v2 saves shards without an index otherwise, and no converter of NeMo-RL's reads those.
        "checkpointing": {"save_consolidated": True},
    }


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


def _megatron(config: Config) -> Tree:
    """The optimiser and its schedule once more, where Megatron looks for them. Its own defaults start the warm-up, and
    end the decay, at 5e-7, which may be above our rate."""
    optimizer, scheduler = config.policy.optimizer.kwargs, config.policy.scheduler
    per_update = batch_plan(config).optimiser_steps
    warmup = math.ceil(scheduler.warmup_steps / per_update)
    decay = config.grpo.max_num_steps if scheduler.decay_steps is None else scheduler.decay_steps / per_update
    bf16 = config.policy.precision == "bfloat16"
    return {
        "optimizer": {
            "lr": optimizer.lr,
            "min_lr": optimizer.lr * (1.0 if scheduler.decay_steps is None else scheduler.min_lr_ratio),
            "weight_decay": optimizer.weight_decay,
            "bf16": bf16,
            "adam_beta1": optimizer.betas[0],
            "adam_beta2": optimizer.betas[1],
            "adam_eps": optimizer.eps,
        },
        "scheduler": {
            "lr_decay_style": "constant" if scheduler.decay_steps is None else "linear",
            "lr_decay_iters": max(math.ceil(decay), warmup + 1),
            "lr_warmup_iters": warmup,
            "lr_warmup_init": optimizer.lr / max(warmup, 1),
        },
    }


def _checkpointing(config: Config) -> Tree:
    tree = plain_tree(config)["checkpointing"]
    return {
        **{name: tree[name] for name in _CHECKPOINTING},
        # A folder of its own: NeMo-RL would take our step_* folders for checkpoints of its loop, and resuming is ours.
        "checkpoint_dir": str(_nemo_rl_folder(config) / "checkpoints"),
        # NeMo-RL's schema has no null here: more than a run can write is all of them.
        "keep_top_k": config.checkpointing.keep_top_k or config.grpo.max_num_steps + 1,
    }


def _logger(config: Config) -> Tree:
    wandb = config.logger.wandb
    names = {"project": wandb.project, "name": wandb.name or config.logger.run_name, "entity": wandb.entity}
    return {
        "log_dir": str(_nemo_rl_folder(config)),
        "wandb_enabled": config.logger.wandb_enabled,
        "wandb": {name: value for name, value in names.items() if value is not None},
    }


def _nemo_rl_folder(config: Config) -> Path:
    return Path(config.logger.log_dir) / config.logger.run_name / "nemo_rl"


def _resolve(defaults: str, decided: Tree, preset: Tree, overlay: Tree) -> dict[str, Any]:
    base = read_defaults(defaults)
    for path in _REPLACED:
        _remove(base, path.split("."))
    base = merge(merge(base, preset, Overlay), decided, Overlay)
    wrong = [*_refused(overlay, decided), *_unknown(overlay, base, defaults)]
    if wrong:
        raise ConfigError("\n".join(wrong))
    tree = merge(base, _without_signs(overlay), Overlay)
    try:
        return cast(dict[str, Any], OmegaConf.to_container(OmegaConf.create(tree), resolve=True))
    except OmegaConfBaseException as error:
        raise ConfigError(f"{defaults} under this recipe: {error.full_key}: {str(error).splitlines()[0]}") from error


def _refused(overlay: Tree, decided: Tree) -> Iterator[str]:
    """Every leaf of ``overlay`` that ``decided`` holds too."""
    ours = set(_leaves(decided))
    for path in _leaves(_without_signs(overlay)):
        if path in ours:
            yield f"nemo_rl.{path}: the {path.partition('.')[0]} section decides it; set it there, for both engines"


def _unknown(overlay: Tree, known: Tree, defaults: str, prefix: str = "") -> Iterator[str]:
    """A mapping that ``known`` leaves empty or null takes any keys, and so does one that a ``+`` adds."""
    for key, value in overlay.items():
        name = str(key)
        if name.startswith("+"):
            continue
        if key not in known:
            near = nearest_key(name, [str(each) for each in known]) if known else defaults
            yield (
                f"nemo_rl.{prefix}{name}: unknown to {defaults}; nearest: {near}. Write +{name} to add a key that the "
                "file leaves out"
            )
        elif isinstance(value, dict) and isinstance(known[key], dict) and known[key]:
            yield from _unknown(cast(Tree, value), cast(Tree, known[key]), defaults, f"{prefix}{name}.")


def _leaves(tree: Mapping[Any, Any], prefix: str = "") -> Iterator[str]:
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from _leaves(cast(Tree, value), f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def _without_signs(overlay: Tree) -> Tree:
    return {
        str(key).removeprefix("+"): _without_signs(cast(Tree, value)) if isinstance(value, dict) else value
        for key, value in overlay.items()
    }


def _remove(tree: Tree, path: Sequence[str]) -> None:
    for part in path[:-1]:
        tree = tree.get(part, {})
    tree.pop(path[-1], None)
