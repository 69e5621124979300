"""From a recipe to NeMo-RL's ``setup``: what is refused, what an actor is told, and how the workers are asked for."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
from company_play import ROOT, place
from nemo_rl_source import needs_nemo_rl

from corpus_index.backends import open_index, open_writer
from corpus_index.scope import MailScope
from environments.nemo_rl import SearchEnvConfig
from training.config import Config
from training.config_load import load_config
from training.engines.nemo_rl.cluster import Cluster, checked, env_section, training_tree
from training.engines.nemo_rl.pieces import Start
from training.recipe import make_episode

BASE = ROOT / "examples" / "configs" / "base.yaml"


def recipe(*overrides: str) -> Config:
    return load_config(BASE, ["engine.name=nemo_rl", *overrides])


@needs_nemo_rl
def test_a_recipe_that_would_break_is_refused_with_every_reason() -> None:
    assert checked(recipe())["grpo"]["num_prompts_per_step"] == recipe().grpo.num_prompts_per_step
    with pytest.raises(ValueError, match=r"no GGUF.*run the SFT stage first"):
        checked(recipe("policy.model_name=gguf:tiny", "sft.max_num_steps=5"))


def test_gspo_with_the_correction_is_refused_before_any_engine_is_asked() -> None:
    with pytest.raises(ValueError, match="exp of the SUM of its tokens' log-ratios"):
        recipe(
            "loss_fn.sequence_level_importance_ratios=true", "loss_fn.token_level_loss=false",
            "loss_fn.use_importance_sampling_correction=true",
        )  # fmt: skip


def test_an_actor_is_told_what_the_episode_plays_by(tmp_path: Path) -> None:
    locator = f"embedded:{tmp_path / 'index'}"
    open_writer(locator).build(place().company.documents())
    config = recipe("tools.max_hits=3", "env.limits.max_errors=2", "policy.model_name=a/model")
    episode = make_episode(config, place().chat, open_index(locator))
    told = SearchEnvConfig.model_validate(env_section(config, episode, MailScope(folders=("inbox",))))
    assert told.index == locator
    assert told.tokenizer == "a/model"
    assert told.tools == config.tools
    assert told.episode.limits == config.env.limits
    assert told.scope.folders == ("inbox",)


def test_an_index_in_memory_is_nothing_for_an_actor() -> None:
    firm = place()
    with pytest.raises(ValueError, match="cannot be opened by a Ray actor"):
        env_section(recipe(), firm.episode(recipe()), MailScope())


@needs_nemo_rl
def test_the_config_of_our_loop_is_one_of_nemo_rls() -> None:
    from nemo_rl.algorithms.grpo import MasterConfig

    config = recipe("loss_fn.force_on_policy_ratio=true", "loss_fn.ratio_clip_max=0.3", "logger.wandb_enabled=true")
    master = MasterConfig(**training_tree(config, Start(model="runs/x/policy"), [7, 9]))
    assert master.policy["generation"]["stop_token_ids"] == [7, 9]
    assert master.policy["model_name"] == "runs/x/policy"
    assert master.loss_fn.ratio_clip_max == 0.3
    assert not master.loss_fn.force_on_policy_ratio
    assert not any(master.grpo[name] for name in ("val_period", "val_at_start", "val_at_end"))
    assert not master.logger["wandb_enabled"]


@needs_nemo_rl
def test_setup_is_called_as_nemo_rl_has_it_and_workers_start_from_our_checkpoint(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """All but the workers themselves: they need GPUs."""
    from nemo_rl.algorithms import grpo
    from nemo_rl.distributed import virtual_cluster
    from nemo_rl.models.policy import lm_policy

    asked: dict[str, Any] = {}
    made: list[dict[str, Any]] = []
    signature = inspect.signature(grpo.setup)

    def setup(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
        asked.update(signature.bind(*args, **kwargs).arguments)
        policy = asked["policy_factory"](cluster="c", weights_path=None, optimizer_path="theirs", init_optimizer=True)
        results: list[Any] = [None] * 13
        results[0], results[1], results[7], results[10] = policy, "generation", "logger", asked["master_config"]
        results[3] = ("train cluster", "inference cluster")
        return tuple(results)

    def policy(**kwargs: Any) -> str:
        made.append(kwargs)
        return "policy"

    monkeypatch.setattr(grpo, "setup", setup)
    monkeypatch.setattr(virtual_cluster, "init_ray", lambda: None)
    monkeypatch.setattr(lm_policy, "Policy", policy)
    config = recipe("grpo.max_num_steps=7", "grpo.num_prompts_per_step=2")
    pieces = Cluster(config, place().chat).assemble(Start(tmp_path / "weights", tmp_path / "optimizer"))
    assert (pieces.policy, pieces.generation, pieces.dashboard) == ("policy", "generation", "logger")
    (told,) = made
    assert (told["weights_path"], told["optimizer_path"]) == (str(tmp_path / "weights"), str(tmp_path / "optimizer"))
    assert told["cluster"] == "c"
    assert len(asked["dataset"]) == 14  # 7 steps for NeMo-RL's count
    assert asked["val_dataset"] is None
    assert pieces.clusters == ("train cluster", "inference cluster")
    assert pieces.colocated
    assert not pieces.asynchronous
    assert pieces.row_shape.pad_id == place().chat.tokenizer.pad_token_id
