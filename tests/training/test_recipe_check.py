from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf
from rich.console import Console
from stand_in_checkout import make_checkout

from training.config_load import ConfigError, load_config
from training.recipe_check import MemoryEstimate, RecipeCheck, check
from training.recipe_tables import render

CONFIGS = Path(__file__).resolve().parents[2] / "examples" / "configs"
CLUSTER = sorted(CONFIGS.glob("*qwen3*.yaml"))
ASKED = CONFIGS / "selfplay_qwen3_4b_4xh100.yaml"
ASYNC = CONFIGS / "selfplay_qwen3_4b_4xh100_async.yaml"
MEGATRON = CONFIGS / "selfplay_qwen3_8b_2node_megatron.yaml"
LORA = CONFIGS / "selfplay_qwen3_4b_lora.yaml"
SFT = CONFIGS / "sft_dual_prompt_qwen3_4b.yaml"
GPU = 80 * 2**30
DTENSOR, CORE, GENERATION = (f"nemo_rl.policy.{name}" for name in ("dtensor_cfg", "megatron_cfg", "generation"))
PACKING, DYNAMIC = "nemo_rl.policy.sequence_packing.enabled", "policy.dynamic_batching.enabled"
OWN_GPUS = ["nemo_rl.policy.generation.colocated.enabled=false"]

Check = Callable[..., RecipeCheck]


@pytest.fixture
def checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    monkeypatch.setenv("NEMO_RL_SOURCE", str(make_checkout(tmp_path / "nemo-rl")))
    return lambda path, *overrides: check(path.stem, load_config(path, overrides), GPU)


def screen(found: RecipeCheck) -> str:
    console = Console(width=100, force_terminal=False)
    with console.capture() as capture:
        console.print(render(found))
    return capture.get()


def test_the_asked_for_values_stand_under_their_name() -> None:
    config = load_config(ASKED)
    loss, kwargs, play = config.loss_fn, config.policy.optimizer.kwargs, config.selfplay
    assert (config.cluster.gpus_per_node, config.grpo.num_prompts_per_step) == (4, 16)
    assert (play.proposer_generations, play.solver_generations, play.max_solver_groups) == (32, 32, 16)
    assert (loss.reference_policy_kl_penalty, loss.ratio_clip_min, loss.ratio_clip_max) == (0.05, 0.1, 0.1)
    assert 1e-7 <= kwargs.lr <= 5e-7
    assert kwargs.eps == 1e-8
    assert loss.sequence_level_importance_ratios


def test_the_twin_differs_in_the_ratio_alone() -> None:
    gspo, grpo = load_config(ASKED), load_config(CONFIGS / "selfplay_qwen3_4b_4xh100_grpo.yaml")
    token_ratios = {"sequence_level_importance_ratios": False, "token_level_loss": True}
    assert grpo.loss_fn == gspo.loss_fn.model_copy(update=token_ratios)
    same = {"loss_fn": grpo.loss_fn, "logger": grpo.logger}
    assert gspo.model_copy(update=same) == grpo


@pytest.mark.parametrize("path", CLUSTER, ids=lambda path: path.stem)
def test_every_recipe_stands(checked: Check, path: Path) -> None:
    found = checked(path)
    assert found.refusals == []
    assert found.cluster is not None
    assert isinstance(found.cluster.memory, MemoryEstimate)
    assert found.cluster.memory.training.total < 0.9 * GPU
    assert not [note for note in found.advice if "by estimate" in note]


def test_clips_that_never_act_are_said(checked: Check) -> None:
    notes = checked(ASKED).advice
    assert [note.partition(" acts")[0] for note in notes] == ["the clip 0.1 never"] * 2
    assert checked(CONFIGS / "selfplay_qwen3_4b_4xh100_clipped.yaml").advice == []
    assert checked(CONFIGS / "selfplay_qwen3_4b_4xh100_grpo_clipped.yaml").advice == []


@pytest.mark.parametrize(
    ("path", "overrides", "reason"),
    [
        (ASYNC, [f"{GENERATION}.colocated.enabled=true"], "with generation on the training GPUs"),
        (ASYNC, [f"{GENERATION}.vllm_cfg.async_engine=false"], "sync engine cannot take requests"),
        (ASYNC, ["loss_fn.use_importance_sampling_correction=false", "loss_fn.truncated_importance_sampling_type=null",
                 "loss_fn.truncated_importance_sampling_ratio=null"], "gradient would be that of another policy"),
        (ASKED, ["grpo.async_grpo.enabled=true", *OWN_GPUS,
                 f"{GENERATION}.colocated.resources.gpus_per_node=2"], "product over its tokens"),
        (ASKED, OWN_GPUS, "0 generation GPUs do not divide into engines of 1"),
        (ASKED, [*OWN_GPUS, "cluster.num_nodes=2", f"{GENERATION}.colocated.resources.num_nodes=1",
                 f"{GENERATION}.colocated.resources.gpus_per_node=2"], "it must take whole ones"),
        (ASKED, [f"{PACKING}=true"], "are both on"),
        (ASKED, [f"{DTENSOR}.tensor_parallel_size=3"], "4 training GPUs do not divide into models of 3"),
        (ASKED, [f"{DTENSOR}.tensor_parallel_size=8"], "4 training GPUs do not divide into models of 8"),
        (ASKED, [f"{DTENSOR}.tensor_parallel_size=4", "nemo_rl.policy.logprob_batch_size=8"],
         "the two passes differ in rounding"),
        (ASKED, [f"{DTENSOR}.context_parallel_size=2", f"{DYNAMIC}=false",
                 f"{PACKING}=true"], "of DTensor with sequence packing"),
        (ASKED, [f"{DTENSOR}.context_parallel_size=2", f"{DTENSOR}.sequence_parallel=true",
                 f"{DTENSOR}.tensor_parallel_size=2"], "breaks in its worker"),
        (ASKED, [f"{CORE}.enabled=true"], "exactly one backend trains"),
        (MEGATRON, [f"{CORE}.context_parallel_size=2", f"{PACKING}=false"],
         "of Megatron without sequence packing"),
        (MEGATRON, [f"{CORE}.pipeline_model_parallel_size=2", f"{DYNAMIC}=true",
                    f"{PACKING}=false"], "NeMo-RL has it for one stage only"),
        (MEGATRON, [f"{DTENSOR}.lora_cfg.enabled=true"], "with Megatron does nothing"),
        (LORA, ["cluster.gpus_per_node=2", f"{DTENSOR}.tensor_parallel_size=2"], "its kernels know no shards"),
        (LORA, [f"{DTENSOR}._v2=false"], "needs dtensor_cfg._v2"),
        (SFT, ["sft.trajectories_per_step=30"], "30 rows does not divide over 4"),
        (SFT, ["sft.trajectories_per_step=24", f"{PACKING}=false", "nemo_rl.policy.train_micro_batch_size=4"],
         "6 rows a copy do not divide"),
        (ASKED, [f"{GENERATION}.vllm_cfg.max_model_len=4096"], "episodes would be cut"),
        (ASKED, [f"{GENERATION}.vllm_cfg.precision=fp8"], "generation in fp8 and training in bfloat16"),
        (ASKED, ["nemo_rl.grpo.use_dynamic_sampling=true"], "drops single rollouts out of their groups: groups"),
        (ASKED, ["nemo_rl.grpo.use_dynamic_sampling=true", "grpo.use_leave_one_out_baseline=true"],
         "drops the only winner"),
        (ASKED, ["nemo_rl.grpo.reward_shaping.enabled=true"], "one turn of many"),
        (ASKED, ["nemo_rl.grpo.reward_scaling.enabled=true"], "never applied"),
        (ASKED, ["nemo_rl.env.should_use_nemo_gym=true"], "replaces the rollouts"),
        (ASKED, ["nemo_rl.data_plane.enabled=true"], "a part of NeMo-RL's own loop"),
    ],
)  # fmt: skip
def test_what_is_known_to_break_is_refused(checked: Check, path: Path, overrides: list[str], reason: str) -> None:
    found = checked(path, *overrides)
    assert [each for each in found.refusals if reason in each], found.refusals
    assert f"refused: {found.refusals[0]}"[:60] in screen(found)


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        (["loss_fn.use_importance_sampling_correction=true"], "use_importance_sampling_correction weighs a sequence"),
        (["policy.generation.top_p=0.9"], "top_p 0.9"),
        (["policy.generation.stop_strings=[x]"], "stop_strings"),
        (["nemo_rl.policy.generation.stop_strings=[x]"], "the policy section decides it"),
    ],
)
def test_what_no_engine_may_do_is_no_recipe(checked: Check, overrides: list[str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        checked(ASKED, *overrides)


@pytest.mark.parametrize(
    ("path", "overrides", "note"),
    [
        (ASYNC, ["grpo.async_grpo.max_trajectory_age_steps=2"], "gains nothing without in_flight_weight_updates"),
        (ASKED, ["policy.train_global_batch_size=250"], "filled up with rows"),
        (ASKED, ["nemo_rl.policy.generation.vllm_cfg.async_engine=false"], "waits for the slowest episode"),
        (ASKED, ["nemo_rl.checkpointing.save_consolidated=false"], "no converter of NeMo-RL's"),
        (ASKED, ["policy.dynamic_batching.enabled=false", "nemo_rl.policy.sequence_packing.enabled=true"],
         "GSPO with sequence packing"),
        (ASKED, ["policy.dynamic_batching.train_mb_tokens=65536"], "training needs 1"),
        (ASKED, ["policy.dynamic_batching.logprob_mb_tokens=65536"], "log-probs need 1"),
        (ASKED, ["nemo_rl.policy.generation.vllm_cfg.gpu_memory_utilization=0.05"], "does not hold the weights"),
    ],
)  # fmt: skip
def test_what_runs_badly_is_said(checked: Check, path: Path, overrides: list[str], note: str) -> None:
    found = checked(path, *overrides)
    assert [each for each in found.advice if note in each], found.advice
    assert found.refusals == []


def test_the_screen_shows_the_arithmetic(checked: Check) -> None:
    shown = " ".join(screen(checked(ASKED)).split())
    for line in (
        "training, dtensor 4 1 1 1 4",
        "world size 4",
        "Proposer rollouts 512 16 groups x 32",
        "Solver rollouts, at most 512 16 groups x 32",
        "trained, at most 1024 both roles",
        "optimiser step 1024 1 a batch",
        "a copy's share of it 256 4 copies",
        "(4.02 B parameters)",
        "temperature 1, top_p 1, top_k off",
        "ok: nothing known stands against this recipe",
    ):
        assert line in shown


def test_an_unknown_model_has_no_estimate(checked: Check, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    found = checked(ASKED, f"policy.model_name={tmp_path}")
    assert found.cluster is not None
    assert "model_type gpt2" in str(found.cluster.memory)
    assert "not estimated" in screen(found)


def test_a_model_in_a_folder_is_read(checked: Check) -> None:
    small = CONFIGS.parent / "models" / "futari-1m"
    found = checked(ASKED, f"policy.model_name={small}")
    assert found.cluster is not None
    assert isinstance(found.cluster.memory, MemoryEstimate)
    assert found.cluster.memory.parameters == 2048 * 128 + 4 * (4 * 128**2 + 3 * 128 * 384 + 2 * 128) + 128


def test_a_local_recipe_needs_no_checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("NEMO_RL_SOURCE", raising=False)
    found = check("quick", load_config(CONFIGS / "selfplay_quickstart.yaml"), GPU)
    assert found.cluster is None
    assert "Proposer rollouts 96 48 groups x 2" in " ".join(screen(found).split())
    with pytest.raises(ConfigError, match="no NeMo-RL config"):
        found.write(tmp_path / "out.yaml")


def test_what_is_written_is_what_nemo_rl_takes(checked: Check, tmp_path: Path) -> None:
    found = checked(SFT)
    found.write(tmp_path / "out.yaml")
    written: Any = OmegaConf.to_container(OmegaConf.load(tmp_path / "out.yaml"))
    assert found.cluster is not None
    assert written == found.cluster.master
    assert written["sft"]["max_num_steps"] == 300
    assert "generation" not in written["policy"]
    assert written["policy"]["optimizer"]["kwargs"]["lr"] == 1e-5
    assert written["data"]["train"]["dataset_name"] == "openai_format"


@pytest.mark.parametrize(
    ("overrides", "code", "said"),
    [
        ([], 0, "ok: nothing known"),
        (["nemo_rl.grpo.reward_scaling.enabled=true"], 1, "refused: nemo_rl.grpo.reward_scaling"),
        (["nemo_rl.policy.dtensor_cfg.tensor_paralel_size=2"], 2, "nearest: tensor_parallel_size"),
    ],
)
def test_the_script_ends_as_it_found_things(
    checked: Check,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    overrides: list[str],
    code: int,
    said: str,
) -> None:
    del checked
    script = CONFIGS.parent / "check_recipe.py"
    monkeypatch.setattr("sys.argv", [str(script), "--config", str(ASKED), *overrides])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(script), run_name="__main__")
    captured = capsys.readouterr()
    assert ended.value.code == code
    assert said in captured.out + captured.err
