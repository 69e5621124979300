from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from stand_in_checkout import make_checkout

from training.config_load import ConfigError, load_config
from training.config_sft import RetentionConfig
from training.engines.nemo_rl.sft import GatedLogger
from training.engines.nemo_rl.sft_config import TEMPLATE, nemo_rl_sft_config
from training.engines.nemo_rl.sft_masks import MaskMismatch, read_back
from training.runlog import RunLog
from training.sft.retention import RetentionStop

CONFIGS = Path(__file__).resolve().parents[2] / "examples" / "configs"


@pytest.fixture(autouse=True)
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEMO_RL_SOURCE", str(make_checkout(tmp_path / "nemo-rl")))
    monkeypatch.delenv("NEMO_RL_HOME", raising=False)


@pytest.mark.parametrize("recipe", ["sft_dual_prompt_qwen3_4b", "sft_dual_prompt_qwen3_4b_megatron"])
def test_the_recipes_become_nemo_rls_sft(recipe: str) -> None:
    tree = nemo_rl_sft_config(load_config(CONFIGS / f"{recipe}.yaml"))
    policy, data = tree["policy"], tree["data"]
    assert policy["optimizer"]["kwargs"]["lr"] == 1e-5
    assert policy["train_global_batch_size"] == 64
    assert policy["sequence_packing"] == {"enabled": True, "train_mb_tokens": 16384}
    assert policy["tokenizer"]["chat_template"] == str(TEMPLATE)
    assert policy["scheduler"][-1] == {"milestones": [20]}
    assert policy["scheduler"][1]["kwargs"] == {"start_factor": 1.0, "end_factor": 0.0, "total_iters": 280}
    assert data["train"]["data_path"] == f"runs/{recipe}/sft_train.jsonl"
    assert data["validation"]["data_path"] == f"runs/{recipe}/sft_general_held_out.jsonl"
    assert "split" not in data["validation"]
    assert data["max_input_seq_length"] == 16384
    assert (data["add_bos"], data["add_eos"], data["add_generation_prompt"], data["shuffle"]) == (
        False,
        False,
        True,
        False,
    )
    assert tree["sft"]["max_num_steps"] == 300
    assert tree["checkpointing"]["metric_name"] is None
    megatron = recipe.endswith("megatron")
    assert (policy["megatron_cfg"]["enabled"], policy["dtensor_cfg"]["enabled"]) == (megatron, not megatron)
    assert policy["megatron_cfg"]["optimizer"]["lr"] == 1e-5
    assert policy["megatron_cfg"]["scheduler"]["lr_decay_iters"] == 300
    json.dumps(tree)


def test_what_the_stage_decides_cannot_be_said_twice() -> None:
    with pytest.raises(ConfigError, match=r"nemo_rl\.sft\.max_num_steps: the sft section decides it"):
        nemo_rl_sft_config(load_config(CONFIGS / "sft_dual_prompt_qwen3_4b.yaml", ["nemo_rl.sft.max_num_steps=5"]))


class Kept:
    def __init__(self) -> None:
        self.lines: list[tuple[Mapping[str, Any], int, str]] = []

    def log_metrics(self, metrics: Mapping[str, Any], step: int, prefix: str = "") -> None:
        self.lines.append((metrics, step, prefix))


def test_the_gate_reads_nemo_rls_validation(tmp_path: Path) -> None:
    def started() -> tuple[Kept, GatedLogger, RunLog]:
        log = RunLog(tmp_path / "run", {})
        kept = Kept()
        return kept, GatedLogger(kept, RetentionConfig(on_breach="stop"), log), log

    kept, gated, log = started()
    gated.log_metrics({"val_loss": 1.5}, 0, prefix="validation")
    gated.log_metrics({"loss": 9.0}, 1, prefix="train")
    gated.log_metrics({"val_loss": 1.519}, 10, prefix="validation")
    assert len(kept.lines) == 3
    assert gated.lines is kept.lines  # all else is the logger's own
    log.close()
    # Started again, the stage still compares with the loss before its first step.
    kept, gated, log = started()
    with pytest.raises(RetentionStop, match=r"step 20: set A fell by 0\.0300 nat"):
        gated.log_metrics({"val_loss": 1.53}, 20, prefix="validation")
    assert len(kept.lines) == 1
    lines = [json.loads(line) for line in log.metrics_path.read_text().splitlines()]
    assert [line["metrics"]["sft/general/drop"] for line in lines] == pytest.approx([0.0, 0.019, 0.03])


def test_read_back_shows_the_first_token_that_differs() -> None:
    from test_sft_mixing import sample

    ours = sample("agentic", 0, 2, prompt=2).trajectory  # tokens 1 1 | 1 1
    same = [{"token_ids": [1, 1, 7], "token_loss_mask": [0, 0, 0]}, {"token_ids": [1, 1], "token_loss_mask": [1, 1]}]
    found = read_back([(same, ours)], lambda ids: "any")
    assert (found.trained, found.masked_here, found.masked_there) == (2, 2, 3)
    with pytest.raises(MaskMismatch, match=r"NeMo-RL reads '7 1 1' at character 4, and we '1 1'"):
        read_back([(same, ours)], lambda ids: " ".join(map(str, ids)))
    longer = [{"token_ids": [1], "token_loss_mask": [0]}, {"token_ids": [1, 1, 5], "token_loss_mask": [1, 1, 1]}]
    with pytest.raises(MaskMismatch, match=r"trains 3 tokens and we 2; at trained token 2 it has \[5\], we \[\]"):
        read_back([(longer, ours)], lambda ids: "any")
