"""One recipe, NeMo-RL's config: its defaults file, then what our sections decide, then the ``nemo_rl`` section.

Nothing here needs NeMo-RL, only its checkout. The result is what ``MasterConfig(**tree)`` takes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from training.batch_plan import batch_plan
from training.config import Config
from training.config_load import Tree, plain_tree
from training.config_loss import LossConfig
from training.engines.nemo_rl.overlay import resolve
from training.engines.nemo_rl.schedule import megatron_schedule, torch_schedule

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
POLICY = ("model_name", "hf_config_overrides", "precision", "max_total_sequence_length", "max_grad_norm", "optimizer")
_GRPO_SECTIONS = ("grpo", "loss_fn", "policy", "data", "env", "logger", "checkpointing", "cluster", "data_plane")
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
    return resolve(config.nemo_rl.defaults, _decided(config), _preset(config), overlay)


def _decided(config: Config) -> Tree:
    """What our sections decide; ``nemo_rl`` may not say it again."""
    tree = plain_tree(config)
    grpo, policy, loss = tree["grpo"], tree["policy"], tree["loss_fn"]
    generation, plan = config.policy.generation, batch_plan(config)
    return {
        "grpo": {name: grpo[name] for name in _GRPO},
        "loss_fn": {name: loss[name] for name in LossConfig.model_fields if name not in _LOSSES_OF_OURS},
        "policy": {
            **{name: policy[name] for name in POLICY},
            "tokenizer": {"name": config.policy.tokenizer.name or config.policy.model_name},
            "train_global_batch_size": plan.optimiser_step,
            "dynamic_batching": policy["dynamic_batching"],
            "scheduler": torch_schedule(config.policy.scheduler, plan.optimiser_steps),
            "megatron_cfg": megatron_schedule(
                config.policy.optimizer.kwargs, config.policy.scheduler, config, plan.optimiser_steps
            ),
            "generation": {
                "max_new_tokens": generation.max_new_tokens,
                "temperature": generation.temperature,
                "top_p": generation.top_p,
                "top_k": None if generation.top_k == -1 else generation.top_k,
                "stop_strings": None,
            },
        },
        "checkpointing": _checkpointing(config),
        "logger": logger(config),
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


def _checkpointing(config: Config) -> Tree:
    tree = plain_tree(config)["checkpointing"]
    return {
        **{name: tree[name] for name in _CHECKPOINTING},
        # A folder of its own: NeMo-RL would take our step_* folders for checkpoints of its loop, and resuming is ours.
        "checkpoint_dir": str(nemo_rl_folder(config) / "checkpoints"),
        # NeMo-RL's schema has no null here: more than a run can write is all of them.
        "keep_top_k": config.checkpointing.keep_top_k or config.grpo.max_num_steps + 1,
    }


def logger(config: Config) -> Tree:
    """NeMo-RL's own logs, in a folder of their own; the metrics of a step are the run folder's."""
    wandb = config.logger.wandb
    names = {"project": wandb.project, "name": wandb.name or config.logger.run_name, "entity": wandb.entity}
    return {
        "log_dir": str(nemo_rl_folder(config)),
        "wandb_enabled": config.logger.wandb_enabled,
        "wandb": {name: value for name, value in names.items() if value is not None},
    }


def nemo_rl_folder(config: Config) -> Path:
    """Where NeMo-RL writes, in the run folder."""
    return Path(config.logger.log_dir) / config.logger.run_name / "nemo_rl"
