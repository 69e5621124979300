from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from stand_in_checkout import make_checkout
from torch.optim import lr_scheduler

from training.batch_plan import BatchPlan, batch_plan
from training.config_load import ConfigError, dump_config, load_config
from training.config_policy import SchedulerConfig
from training.engines.nemo_rl.checkout import checkout, version
from training.engines.nemo_rl.config import nemo_rl_master_config
from training.engines.nemo_rl.schedule import torch_schedule
from training.engines.optimisation import OptimiserSettings, schedule

BASE = Path(__file__).resolve().parents[2] / "examples" / "configs" / "base.yaml"
Master = Callable[..., dict[str, object]]


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = make_checkout(tmp_path / "nemo-rl")
    monkeypatch.setenv("NEMO_RL_SOURCE", str(folder))
    monkeypatch.delenv("NEMO_RL_HOME", raising=False)
    return folder


@pytest.fixture
def master(source: Path) -> Master:
    assert source.is_dir()
    return lambda *overrides: nemo_rl_master_config(load_config(BASE, ["engine.name=nemo_rl", *overrides]))


def at(tree: object, path: str) -> object:
    for part in path.split("."):
        assert isinstance(tree, dict)
        tree = tree[part]
    return tree


@pytest.mark.parametrize(
    ("override", "path", "value"),
    [
        ("grpo.num_prompts_per_step=16", "grpo.num_prompts_per_step", 16),
        ("grpo.seed=9", "grpo.seed", 9),
        ("grpo.async_grpo.max_trajectory_age_steps=3", "grpo.async_grpo.max_trajectory_age_steps", 3),
        ("loss_fn.reference_policy_kl_penalty=0.05", "loss_fn.reference_policy_kl_penalty", 0.05),
        ("loss_fn.ratio_clip_max=4e-4", "loss_fn.ratio_clip_max", 4e-4),
        ("policy.optimizer.kwargs.lr=5e-7", "policy.optimizer.kwargs.lr", 5e-7),
        ("policy.optimizer.kwargs.lr=5e-7", "policy.megatron_cfg.optimizer.lr", 5e-7),
        ("policy.optimizer.kwargs.eps=1e-6", "policy.megatron_cfg.optimizer.adam_eps", 1e-6),
        ("policy.model_name=other", "policy.tokenizer.name", "other"),
        ("policy.tokenizer.name=mine", "policy.tokenizer.name", "mine"),
        ("policy.generation.top_k=-1", "policy.generation.top_k", None),
        ("policy.max_total_sequence_length=4096", "grpo.reward_shaping.max_response_length", 4096),
        ("policy.max_total_sequence_length=4096", "policy.sequence_packing.train_mb_tokens", 16384),
        ("cluster.gpus_per_node=4", "cluster.gpus_per_node", 4),
        ("checkpointing.keep_top_k=null", "checkpointing.keep_top_k", 101),
        ("nemo_rl.policy.dtensor_cfg.tensor_parallel_size=2", "policy.dtensor_cfg.tensor_parallel_size", 2),
        ("nemo_rl.policy.sequence_packing.enabled=true", "policy.sequence_packing.enabled", True),
        ("nemo_rl.checkpointing.save_consolidated=false", "checkpointing.save_consolidated", False),
        ("nemo_rl.policy.tokenizer.chat_template_kwargs={t: 1}", "policy.tokenizer.chat_template_kwargs", {"t": 1}),
        ("nemo_rl.policy.generation.vllm_kwargs.any_name=1", "policy.generation.vllm_kwargs.any_name", 1),
        ("nemo_rl.policy.dtensor_cfg.+dp_replicate_size=2", "policy.dtensor_cfg.dp_replicate_size", 2),
    ],
)  # fmt: skip
def test_what_a_recipe_says_reaches_nemo_rl(master: Master, override: str, path: str, value: object) -> None:
    assert at(master(override), path) == value


def test_what_no_recipe_says_is_the_checkouts_or_ours(master: Master) -> None:
    tree = master()
    assert at(tree, "grpo.batch_multiplier") == 1
    assert at(tree, "policy.train_micro_batch_size") == 4
    assert at(tree, "policy.sequence_packing.enabled") is False
    assert at(tree, "checkpointing.save_consolidated") is True
    assert "constant_length" not in tree["loss_fn"]  # type: ignore[operator]
    # What belongs to the task of the defaults file is gone as a whole.
    assert tree["env"] == {}
    assert at(tree, "data.train") == {"dataset_name": "futari"}
    assert at(tree, "policy.optimizer.kwargs") == {"lr": 1e-6, "weight_decay": 0.01, "betas": [0.9, 0.999], "eps": 1e-8}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("nemo_rl.policy.dtensor_cfg.tensor_paralel_size=2", "unknown .* nearest: tensor_parallel_size"),
        ("nemo_rl.policy.generation.colocatd.enabled=false", "nearest: colocated"),
        ("nemo_rl.policy.optimizer.kwargs.lr=1e-6", "the policy section decides it"),
        ("nemo_rl.policy.+model_name=x", "the policy section decides it"),
        ("nemo_rl.policy.hf_config_overrides.rope_theta=1", "the policy section decides it"),
        ("nemo_rl.policy.optimizer=null", "the policy section decides it"),
        ("nemo_rl.grpo.async_grpo.enabled=true", "the grpo section decides it"),
        ("nemo_rl.polciy.precision=float32", "unknown key nemo_rl.polciy"),
        ("nemo_rl.policy.refit=${policy.train_micro_batch_size}", "policy.refit"),
    ],
)  # fmt: skip
def test_keys_that_mean_nothing_are_refused(master: Master, override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        master(override)


def test_every_wrong_key_is_named_at_once(master: Master) -> None:
    with pytest.raises(ConfigError) as caught:
        master("nemo_rl.grpo.batch_mulitplier=2", "nemo_rl.logger.monitor_gpu=false", "nemo_rl.cluster.num_nodes=2")
    assert len(str(caught.value).splitlines()) == 3


def test_the_section_is_merged_at_every_depth_and_survives_a_dump(tmp_path: Path) -> None:
    parent, child = tmp_path / "parent.yaml", tmp_path / "child.yaml"
    parent.write_text("nemo_rl: {policy: {generation: {vllm_cfg: {a: 1, b: 1}}, dtensor_cfg: {c: 1}}}")
    child.write_text("defaults: parent.yaml\nnemo_rl: {policy: {generation: {vllm_cfg: {b: 2}}}}")
    config = load_config(child)
    dump_config(config, tmp_path / "dump.yaml")
    assert load_config(tmp_path / "dump.yaml") == config
    assert config.nemo_rl.policy.model_dump() == {
        "generation": {"vllm_cfg": {"a": 1, "b": 2}},
        "dtensor_cfg": {"c": 1},
    }


def test_a_checkout_is_found_by_name(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (checkout(), version(checkout())) == (source, "0.7.0")
    monkeypatch.setenv("NEMO_RL_SOURCE", str(source / "nemo_rl"))
    with pytest.raises(ConfigError, match=r"NEMO_RL_SOURCE is .* the folder of the repository"):
        checkout()
    monkeypatch.delenv("NEMO_RL_SOURCE")
    monkeypatch.setenv("NEMO_RL_HOME", str(source))
    assert checkout() == source


def test_async_is_the_clusters(source: Path) -> None:
    with pytest.raises(ConfigError, match=r"async_grpo\.enabled with engine.name local"):
        load_config(BASE, ["grpo.async_grpo.enabled=true"])


@pytest.mark.parametrize(
    ("warmup", "decay", "floor"), [(0, None, 0.0), (1, None, 0.0), (5, None, 0.0), (4, 12, 0.1), (0, 8, 0.0)]
)
def test_the_torch_schedule_is_the_local_one(warmup: int, decay: int | None, floor: float) -> None:
    settings = SchedulerConfig(warmup_steps=warmup, decay_steps=decay, min_lr_ratio=floor)
    local = OptimiserSettings(lr=1.0, warmup_steps=warmup, decay_steps=decay, min_lr_ratio=floor)
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    *parts, milestones = torch_schedule(settings, 1)
    built = [getattr(lr_scheduler, part["name"].rpartition(".")[2])(optimiser, **part["kwargs"]) for part in parts]
    clock = lr_scheduler.SequentialLR(optimiser, built, milestones["milestones"])
    rates: list[float] = []
    for _ in range(16):
        rates.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        clock.step()
    assert rates == pytest.approx([schedule(step, local) for step in range(16)])


def test_nemo_rls_clock_ticks_once_an_update() -> None:
    *parts, milestones = torch_schedule(SchedulerConfig(warmup_steps=10, decay_steps=50), 4)
    assert milestones == {"milestones": [3]}  # 10 optimiser steps, 4 an update
    assert parts[1]["kwargs"]["total_iters"] == 10  # 50 are 13 updates, 3 of them warm-up


def planned(*overrides: str) -> BatchPlan:
    sizes = "proposer_prompts_per_step=16", "proposer_generations=4", "solver_generations=8", "max_solver_groups=12"
    return batch_plan(load_config(BASE, [*(f"selfplay.{size}" for size in sizes), *overrides]))


def test_rollouts_of_a_step_by_hand() -> None:
    plan = planned("selfplay.hint_generations=2")
    assert (plan.proposer, plan.solver, plan.hinted, plan.trained, plan.optimiser_steps) == (64, 96, 24, 160, 1)
    split = planned("policy.train_global_batch_size=48")
    assert (split.optimiser_step, split.optimiser_steps) == (48, 4)
    few = planned("selfplay.proposer_prompts_per_step=2", "selfplay.max_solver_groups=99")
    assert few.solver == 2 * 4 * 8  # no more questions than were asked
    fixed = planned("selfplay.mode=fixed", "grpo.num_prompts_per_step=5", "grpo.num_generations_per_prompt=8")
    assert (fixed.proposer, fixed.solver) == (0, 40)
