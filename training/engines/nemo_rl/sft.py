"""The dual-prompt stage on NeMo-RL: its own ``sft_train`` on our files, with the retention gate in its log."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from environments.chat_format import ChatFormat
from environments.chat_rows import save_rows
from training.config import Config
from training.config_sft import RetentionConfig
from training.engines.nemo_rl.sft_config import nemo_rl_sft_config
from training.engines.nemo_rl.sft_masks import read_back
from training.runlog import SFT, RunLog
from training.sft.agentic import agentic_set
from training.sft.files import chat_row, write_train_file
from training.sft.general import general_set, held_out_answers
from training.sft.retention import RetentionStop, breach
from training.sft.samples import Sample
from training.sft.stage import show_samples

_READ_BACK = 256  # rows compared before training
_LOSS = "sft/general/val_loss"


def cluster_sft(config: Config, log: RunLog) -> Path:
    """Train ``sft.max_num_steps`` steps; returns NeMo-RL's checkpoint folder. Started again, it resumes from there.

    Raises RetentionStop where the gate is breached and says stop, MaskMismatch where NeMo-RL's preprocessing would
    train on other tokens than ours, ConfigError and ValueError where config or data do not fit.
    """
    chat = ChatFormat(AutoTokenizer.from_pretrained(config.policy.tokenizer.name or config.policy.model_name))
    answers = general_set(config, None, chat, log.folder, log.say)
    general, held_out = held_out_answers(answers, config)
    samples = [*general, *agentic_set(config, chat).train]
    show_samples(chat, log, samples)
    tree = nemo_rl_sft_config(config)
    written = write_train_file(samples, config, chat, Path(tree["data"]["train"]["data_path"]))
    save_rows(Path(tree["data"]["validation"]["data_path"]), map(chat_row, held_out))
    if written.left_out:
        log.say(
            f"{written.left_out} samples with a turn that is not to be trained are left out: NeMo-RL cannot mask one"
        )
    return _train(tree, written.samples, config.sft.retention, log)


def _train(tree: dict[str, Any], samples: Sequence[Sample], retention: RetentionConfig, log: RunLog) -> Path:
    from nemo_rl.algorithms.sft import (  # pyright: ignore[reportMissingImports]
        MasterConfig,  # pyright: ignore[reportUnknownVariableType]
        setup,  # pyright: ignore[reportUnknownVariableType]
        sft_train,  # pyright: ignore[reportUnknownVariableType]
    )
    from nemo_rl.algorithms.utils import get_tokenizer  # pyright: ignore[reportMissingImports, reportUnknownVariableType]
    from nemo_rl.distributed.virtual_cluster import (  # pyright: ignore[reportMissingImports]
        init_ray,  # pyright: ignore[reportUnknownVariableType]
    )

    master: Any = MasterConfig(**tree)
    tokenizer: Any = get_tokenizer(master.policy["tokenizer"])
    train, validation = (stock_data_set(tree, name, tokenizer) for name in ("train", "validation"))
    shown = range(min(_READ_BACK, len(samples)))
    rows = ((masked_log(train[k]), samples[k].trajectory) for k in shown)
    log.say(str(read_back(rows, tokenizer.decode)))
    init_ray()
    made: Any = setup(master, tokenizer, train, validation)
    policy, cluster, batches, val_batches, loss, logger, checkpoints, state, master = made
    log.truncate_after(state.total_steps, phase=SFT)
    gated = GatedLogger(logger, retention, log)
    try:
        sft_train(policy, batches, val_batches, tokenizer, loss, master, gated, checkpoints, state)
    finally:
        policy.shutdown()
        cluster.shutdown()
    return Path(tree["checkpointing"]["checkpoint_dir"])


def stock_data_set(tree: Mapping[str, Any], name: str, tokenizer: Any) -> Any:
    """NeMo-RL's data set of ``data.train`` or ``data.validation``, with its own preprocessing: one DatumSpec a row."""
    from nemo_rl.data.datasets import (  # pyright: ignore[reportMissingImports]
        AllTaskProcessedDataset,  # pyright: ignore[reportUnknownVariableType]
        load_response_dataset,  # pyright: ignore[reportUnknownVariableType]
    )

    data = tree["data"]
    loaded: Any = load_response_dataset(data[name])
    keys = ("add_bos", "add_eos", "add_generation_prompt")
    processor = partial(loaded.processor, **{key: data[key] for key in keys})
    tasks = {loaded.task_name: (loaded.task_spec, processor)}
    return AllTaskProcessedDataset(loaded.dataset, tokenizer, None, tasks, max_seq_length=data["max_input_seq_length"])


def masked_log(datum: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row's message log with the loss mask that ``sft_train`` gives it."""
    from nemo_rl.data.llm_message_utils import (  # pyright: ignore[reportMissingImports]
        add_loss_mask_to_message_log,  # pyright: ignore[reportUnknownVariableType]
    )

    log: list[dict[str, Any]] = datum["message_log"]
    add_loss_mask_to_message_log([log], roles_to_train_on=["assistant"])
    return log


def first_loss(log: RunLog) -> float | None:
    """Set A's loss before the stage, from the run folder; None where it was not measured yet."""
    if not log.metrics_path.is_file():
        return None
    lines = map(json.loads, log.metrics_path.read_text(encoding="utf-8").splitlines())
    return next((line["metrics"][_LOSS] for line in lines if line["phase"] == SFT and _LOSS in line["metrics"]), None)


class GatedLogger:
    """NeMo-RL's logger, which also compares each validation loss with the first one: the fall of set A.

    Its validation is set A's held-out answers, and its loss their mean negative log-probability a token.
    """

    def __init__(self, logger: Any, settings: RetentionConfig, log: RunLog) -> None:
        self._logger = logger
        self._settings = settings
        self._log = log
        self._start = first_loss(log)  # of the run before, where this one resumes it

    def __getattr__(self, name: str) -> Any:
        return getattr(self._logger, name)

    def log_metrics(self, metrics: Mapping[str, Any], step: int, *args: Any, **kwargs: Any) -> None:
        """Raises RetentionStop."""
        self._logger.log_metrics(metrics, step, *args, **kwargs)
        if kwargs.get("prefix") != "validation" or "val_loss" not in metrics:
            return
        loss = float(metrics["val_loss"])
        if self._start is None:
            self._start = loss
        drop = loss - self._start
        self._log.write_metrics(step, {_LOSS: loss, "sft/general/drop": drop}, phase=SFT)
        fallen = breach(drop, self._settings)
        if fallen:
            self._log.warn(f"SFT step {step}: {fallen}")
            if self._settings.on_breach == "stop":
                raise RetentionStop(f"SFT ended at step {step}: {fallen}")
