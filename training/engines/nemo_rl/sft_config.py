"""A recipe of the SFT stage in NeMo-RL's words. Its own loop runs it, over chat rows on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from training.config import Config
from training.config_load import Tree, merge, plain_tree
from training.config_nemo_rl import Overlay
from training.config_policy import SchedulerConfig
from training.engines.nemo_rl.config import POLICY, logger, nemo_rl_folder
from training.engines.nemo_rl.overlay import remove, resolve
from training.engines.nemo_rl.schedule import megatron_schedule, torch_schedule

_SECTIONS = ("sft", "policy", "data", "logger", "checkpointing", "cluster")
_CHAT_ROWS: Tree = {"dataset_name": "openai_format", "chat_key": "messages", "use_preserving_dataset": True}
TEMPLATE = Path(__file__).with_name("chatml.jinja")
TRAIN, GENERAL_HELD_OUT = "sft_train.jsonl", "sft_general_held_out.jsonl"
"""The files of the dual-prompt stage, in the run folder."""
_PRESET: Tree = {
    "policy": {
        "tokenizer": {"chat_template": "default"},  # the model's own, not the file's
        "sequence_packing": {"enabled": False},
    },
    "data": {
        # The template writes every token. A turn's header belongs to what comes before it, as in rollouts.
        "add_bos": False,
        "add_eos": False,
        "add_generation_prompt": True,
        "train": {**_CHAT_ROWS, "data_path": "sft_train.jsonl"},
        "validation": {**_CHAT_ROWS, "data_path": "sft_validation.jsonl"},
    },
    "checkpointing": {"save_consolidated": True},
}


def nemo_rl_sft_config(config: Config) -> dict[str, Any]:
    """What the ``MasterConfig`` of NeMo-RL's SFT takes, resolved and plain: its own loop over chat rows on disk.

    Raises ConfigError as ``nemo_rl_master_config`` does.
    """
    given = plain_tree(config)["nemo_rl"]
    overlay = {name: given[name] for name in _SECTIONS if given[name]}
    remove(overlay, ["policy", "generation"])  # of the recipe that this one inherits from
    decided = _sft_decided(config)
    if config.sft.recipe == "dual_prompt":
        decided = merge(decided, _dual_prompt(config), Overlay)
    return resolve(config.nemo_rl.sft_defaults, decided, _PRESET, overlay)


def _dual_prompt(config: Config) -> Tree:
    """Its validation is the held-out part of set A alone: ``val_loss`` is what the retention gate compares."""
    folder = nemo_rl_folder(config).parent

    def rows(name: str) -> Tree:
        # The tools stand in our system prompt, so the template gets none.
        return {**_CHAT_ROWS, "data_path": str(folder / name), "tool_key": None, "processor": "sft_processor"}

    return {
        "sft": {
            "max_num_epochs": 1,
            "val_period": config.sft.val_period,
            "val_at_start": True,
            "val_at_end": True,
            "val_batches": -1,
        },
        "policy": {"tokenizer": {"chat_template": str(TEMPLATE)}},
        "data": {
            "shuffle": False,  # the file is in the order of the steps
            "default": None,
            "train": rows(TRAIN),
            "validation": rows(GENERAL_HELD_OUT),
        },
        # A gate and no goal: the newest weights are kept, not those that moved least.
        "checkpointing": {"metric_name": None},
    }


def _sft_decided(config: Config) -> Tree:
    tree, stage = plain_tree(config), config.sft
    policy = tree["policy"]
    falls = SchedulerConfig(warmup_steps=stage.warmup_steps, decay_steps=stage.max_num_steps or None)
    optimizer = config.policy.optimizer.kwargs.model_copy(update={"lr": stage.learning_rate})
    return {
        "sft": {
            "max_num_steps": stage.max_num_steps,
            "seed": stage.seed,
            **{name: tree["grpo"][name] for name in ("val_period", "val_at_start", "val_at_end")},
        },
        "policy": {
            **{name: policy[name] for name in POLICY},
            "tokenizer": {"name": config.policy.tokenizer.name or config.policy.model_name},
            "train_global_batch_size": stage.trajectories_per_step,
            "dynamic_batching": {name: policy["dynamic_batching"][name] for name in ("enabled", "train_mb_tokens")},
            "optimizer": {
                "name": policy["optimizer"]["name"],
                "kwargs": {**policy["optimizer"]["kwargs"], "lr": optimizer.lr},
            },
            "scheduler": torch_schedule(falls, 1),
            "megatron_cfg": megatron_schedule(optimizer, falls, config, 1),
        },
        "checkpointing": {
            "enabled": config.checkpointing.enabled,
            "checkpoint_dir": str(nemo_rl_folder(config) / "checkpoints"),
            "save_period": config.checkpointing.save_period,
        },
        "logger": logger(config),
        "cluster": tree["cluster"],
    }
