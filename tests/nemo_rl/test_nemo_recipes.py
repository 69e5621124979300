"""Our recipes in NeMo-RL's own hands: its config models, its trainer's first checks, its files under our stand-ins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from nemo_rl_source import REASON, SOURCE

pytest.importorskip("nemo_rl.algorithms", reason=REASON)

from nemo_rl.algorithms.grpo import MasterConfig
from nemo_rl.algorithms.loss import ClippedPGLossFn
from nemo_rl.models.policy.lm_policy import Policy
from stand_in_checkout import GRPO, MEGATRON, SFT, make_checkout

from training.config import Config
from training.config_load import ConfigError, load_config, read_recipe
from training.config_nemo_rl import Overlay
from training.engines.nemo_rl.checkout import VERSION, checkout, version
from training.engines.nemo_rl.config import nemo_rl_master_config
from training.engines.nemo_rl.layout import layout
from training.engines.nemo_rl.limits import refusals
from training.engines.nemo_rl.schema import schema_errors
from training.engines.nemo_rl.sft_config import nemo_rl_sft_config

CONFIGS = Path(__file__).resolve().parents[2] / "examples" / "configs"
CLUSTER = [path for path in sorted(CONFIGS.glob("*.yaml")) if load_config(path).engine.name == "nemo_rl"]
ASKED = CONFIGS / "selfplay_qwen3_4b_4xh100.yaml"


def resolved(config: Config) -> dict[str, Any]:
    return nemo_rl_master_config(config) if config.grpo.max_num_steps else nemo_rl_sft_config(config)


def test_the_checkout_is_the_pinned_one() -> None:
    assert (checkout(), version(checkout())) == (Path(SOURCE), VERSION)


@pytest.mark.parametrize("path", CLUSTER, ids=lambda path: path.stem)
def test_nemo_rl_takes_every_recipe(path: Path) -> None:
    config = load_config(path)
    master = resolved(config)
    assert schema_errors(master) == []
    assert refusals(config, master) == []


@pytest.mark.parametrize(
    "path", [path for path in CLUSTER if load_config(path).grpo.max_num_steps], ids=lambda path: path.stem
)
def test_what_it_takes_is_what_we_said(path: Path) -> None:
    config = load_config(path)
    taken = MasterConfig(**resolved(config))
    assert taken.grpo["num_generations_per_prompt"] == config.grpo.num_generations_per_prompt
    assert taken.policy["model_name"] == config.policy.model_name
    assert taken.policy["optimizer"]["kwargs"]["lr"] == config.policy.optimizer.kwargs.lr
    loss = ClippedPGLossFn(taken.loss_fn)
    assert loss.sequence_level_importance_ratios == config.loss_fn.sequence_level_importance_ratios
    assert loss.reference_policy_kl_penalty == config.loss_fn.reference_policy_kl_penalty
    assert (loss.ratio_clip_min, loss.ratio_clip_max) == (config.loss_fn.ratio_clip_min, config.loss_fn.ratio_clip_max)


def test_a_typo_passes_nemo_rl_and_not_us() -> None:
    master = resolved(load_config(ASKED))
    master["policy"]["dtensor_cfg"]["tensor_paralel_size"] = 2
    assert schema_errors(master) == []
    with pytest.raises(ConfigError, match="nearest: tensor_parallel_size"):
        resolved(load_config(ASKED, ["nemo_rl.policy.dtensor_cfg.tensor_paralel_size=2"]))


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("nemo_rl.policy.dtensor_cfg.activation_checkpointing=often", "activation_checkpointing"),
        ("nemo_rl.policy.train_micro_batch_size=one", "train_micro_batch_size"),
        ("nemo_rl.policy.tokenizer.+chat_template=null", "chat_template"),
    ],
)
def test_a_wrong_value_is_found_by_its_model(override: str, key: str) -> None:
    errors = schema_errors(resolved(load_config(ASKED, [override])))
    assert any(key in error for error in errors), errors


def test_a_missing_key_is_found_by_its_model() -> None:
    master = resolved(load_config(ASKED))
    del master["policy"]["train_micro_batch_size"]
    assert any("train_micro_batch_size" in error for error in schema_errors(master))


@pytest.mark.parametrize(
    ("overrides", "theirs"),
    [
        (["nemo_rl.policy.megatron_cfg.enabled=true"], "not both"),
        (["nemo_rl.policy.dtensor_cfg.enabled=false"], "Please either set"),
        (["nemo_rl.policy.dtensor_cfg.tensor_parallel_size=3"], "must be divisible"),
        (["nemo_rl.policy.dtensor_cfg.tensor_parallel_size=8"], "is insufficient"),
        (
            ["nemo_rl.policy.dtensor_cfg.tensor_parallel_size=4", "nemo_rl.policy.logprob_batch_size=8"],
            "batch-variant accuracy",
        ),
    ],
)
def test_what_we_refuse_its_trainer_refuses(overrides: list[str], theirs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NRL_IGNORE_TP_ACCURACY_CHECK", raising=False)
    config = load_config(ASKED, overrides)
    master = resolved(config)
    assert refusals(config, master)
    gpus = SimpleNamespace(world_size=lambda: layout(master).training_gpus)
    with pytest.raises((ValueError, AssertionError), match=theirs):
        Policy(gpus, master["policy"], None)


def leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def holds(tree: Any, key: str) -> bool:
    for part in key.split("."):
        if not isinstance(tree, Mapping) or part not in tree:
            return False
        tree = tree[part]
    return True


@pytest.mark.parametrize("name", [GRPO, MEGATRON, SFT])
def test_the_stand_in_checkout_has_the_real_ones_keys(name: str, tmp_path: Path) -> None:
    real = read_recipe(Path(SOURCE) / "examples" / "configs" / name, Overlay)
    stand_in = read_recipe(make_checkout(tmp_path / "nemo-rl") / "examples" / "configs" / name, Overlay)
    assert not [key for key, _ in leaves(stand_in) if not holds(real, key)]
