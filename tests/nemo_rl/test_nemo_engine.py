"""The engine on NeMo-RL's unmodified rollouts, refit, log-probs and loss, with a small model on the CPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from nemo_rl_source import REASON

pytest.importorskip("nemo_rl.algorithms", reason=REASON)

import torch
from tiny_game import Game, open_game

from environments.task import Role
from environments.trajectory import StopReason
from training.ahead import RolloutsAhead
from training.config import LossConfig
from training.engines.base import Sampling, Weighted
from training.loop_state import LoopState
from training.mismatch import mismatch_metrics
from training.recipe import rule_judge
from training.selfplay import train_step


@pytest.fixture(scope="module")
def game(tmp_path_factory: pytest.TempPathFactory, cluster: None) -> Game:
    torch.set_num_threads(1)
    return open_game(tmp_path_factory.mktemp("game"), "policy.optimizer.kwargs.lr=0.001")


def weighted(trajectories: list, game: Game) -> list[Weighted]:
    return [Weighted(t, 1.0 if place % 2 else -1.0) for place, t in enumerate(trajectories)]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_rollout_is_what_was_sampled(game: Game, asynchronous: bool) -> None:
    engine = game.nemo(asynchronous=asynchronous)
    tasks = game.tasks()
    trajectories = engine.rollout(tasks, Sampling())
    assert [t.task for t in trajectories] == tasks
    assert [t.uid for t in trajectories] == ["g0/0", "g0/1", "g1/0", "g1/1"]
    assert all(t.sampled_tokens and t.stop_reason is not StopReason.ENVIRONMENT_FAULT for t in trajectories)
    metrics = mismatch_metrics(trajectories, engine.logprobs(trajectories))
    assert metrics["mismatch/solver/token_mult_prob_error"] == pytest.approx(1, abs=1e-4)
    assert metrics["mismatch/solver/max_abs_diff"] < 1e-3


def test_greedy_is_the_local_engines(game: Game) -> None:
    tasks = game.tasks(members=1)
    theirs = game.nemo().rollout(tasks, Sampling(greedy=True))
    ours = game.local().rollout(tasks, Sampling(greedy=True))
    assert [t.token_ids for t in theirs] == [t.token_ids for t in ours]
    assert [t.loss_mask for t in theirs] == [t.loss_mask for t in ours]
    assert [(t.stop_reason, t.submission, t.events) for t in theirs] == [
        (t.stop_reason, t.submission, t.events) for t in ours
    ]


def test_an_update_is_the_local_engines(game: Game) -> None:
    """Two optimiser steps, an odd number of rows over three workers, the KL on: the same weights afterwards."""
    game = game.with_config(policy={"train_global_batch_size": 3})
    loss = LossConfig(reference_policy_kl_penalty=0.05, use_on_policy_kl_approximation=True)
    local = game.local()
    batch = weighted(local.rollout([*game.tasks(groups=2, members=2), game.tasks(members=1)[0]], Sampling()), game)
    nemo = game.nemo(shards=3, divisible_by=8)
    ours, theirs = local.update(batch, loss), nemo.update(batch, loss)
    for name in ("loss", "probs_ratio", "lr", "optimizer_steps", "trained_tokens", "approx_entropy"):
        assert theirs[name] == pytest.approx(ours[name], abs=2e-5), name
    assert theirs["filled_rows"] == 19  # each of the two steps takes 12 rows: 3 workers by micro-batches of 4
    model = nemo.pieces.policy.policy.model  # pyright: ignore
    for (name, mine), other in zip(local.policy.model.named_parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(other, mine, atol=1e-4, rtol=1e-3, msg=name)
    assert nemo.policy_version == 1


def test_generation_gets_the_trained_weights_and_no_others(game: Game) -> None:
    engine = game.nemo()
    tasks = game.tasks(members=2)
    first = engine.rollout(tasks, Sampling(may_lag=True))
    engine.update(weighted(first, game), LossConfig())
    engine.sync_weights()
    second = engine.rollout(tasks, Sampling(may_lag=True))
    assert [t.policy_version for t in (*first, *second)] == [0] * 4 + [1] * 4
    metrics = mismatch_metrics(second, engine.logprobs(second))
    assert metrics["mismatch/solver/token_mult_prob_error"] == pytest.approx(1, abs=1e-4)


def test_rollouts_may_lag_and_evaluation_may_not(game: Game) -> None:
    game = game.with_config(engine={"sync_every": 2})
    engine = game.nemo()
    tasks = game.tasks(members=1)
    batch = engine.rollout(game.tasks(), Sampling(may_lag=True))
    engine.update(weighted(batch, game), LossConfig())
    engine.sync_weights()
    assert engine.rollout(tasks, Sampling(may_lag=True))[0].policy_version == 0
    assert engine.rollout(tasks, Sampling(greedy=True))[0].policy_version == 1


def test_the_order_of_calls_is_that_of_grpo_train(game: Game) -> None:
    cluster = game.cluster()
    engine = game.nemo(cluster)
    batch = engine.rollout(game.tasks(), Sampling(may_lag=True))
    engine.rollout(game.tasks(), Sampling(may_lag=True))
    known = zip(weighted(batch, game), engine.logprobs(batch), strict=True)
    loss = LossConfig(reference_policy_kl_penalty=0.1)
    engine.update([replace(each, previous=values) for each, values in known], loss)
    assert engine.pieces.policy.calls == [  # pyright: ignore
        "offload_before_refit", "stream_weights_via_ipc_zmq", "offload_after_refit",
        "finish_generation",  # once, after both phases
        "prepare_for_lp_inference", "get_logprobs",
        "prepare_for_lp_inference", "get_reference_policy_logprobs",
        "prepare_for_training", "train",
    ]  # fmt: skip


def test_a_resumed_engine_goes_on_where_it_was(game: Game, tmp_path: Path) -> None:
    engine, again = game.nemo(), game.nemo()
    loss = LossConfig(reference_policy_kl_penalty=0.05)
    batch = weighted(engine.rollout(game.tasks(), Sampling()), game)
    engine.update(batch, loss)
    engine.save(tmp_path / "policy")
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {p.name for p in (tmp_path / "policy").iterdir()}
    again.load(tmp_path / "policy")
    assert again.policy_version == 1
    one, other = engine.update(batch, loss), again.update(batch, loss)
    assert one == pytest.approx(other, rel=1e-5)
    assert one["kl_penalty"] > 0  # the reference is still the first model


def test_a_restart_takes_the_weights_for_reference_and_no_optimiser(game: Game, tmp_path: Path) -> None:
    engine = game.nemo()
    batch = weighted(engine.rollout(game.tasks(), Sampling()), game)
    engine.update(batch, LossConfig())
    engine.save(tmp_path / "policy")
    cluster = game.cluster()
    again = game.nemo(cluster)
    again.load(tmp_path / "policy")
    again.restart()
    assert again.update(batch, LossConfig(reference_policy_kl_penalty=0.05))["kl_penalty"] == pytest.approx(0, abs=1e-6)
    assert [start.model for start in cluster.built] == [str(tmp_path / "policy")]


def test_rollouts_run_ahead_on_a_side_of_their_own(game: Game) -> None:
    """Three steps whose rollouts are at most one update old, through NeMo-RL's collective refit."""
    correction = {
        "use_importance_sampling_correction": True,
        "truncated_importance_sampling_type": "tis",
        "truncated_importance_sampling_ratio": 2.0,
    }
    few = {"proposer_prompts_per_step": 1, "proposer_generations": 3, "max_solver_groups": 1, "solver_generations": 3}
    game = game.with_config(loss_fn=correction, selfplay=few)
    cluster = game.cluster(asynchronous=True, colocated=False)
    engine, judge = game.nemo(cluster), rule_judge(game.config)
    ahead = RolloutsAhead(engine, game.board, judge, max_age=1, last_step=3)
    state = LoopState.load(game.config, {})
    for step in (1, 2, 3):
        report = train_step(engine, game.board, judge, game.config, step, state, ahead)
        assert report.metrics["faults/rollouts"] == 0
        assert 0 <= report.metrics["age/max"] <= 1
    calls = engine.pieces.policy.calls  # pyright: ignore
    assert "broadcast_weights_for_collective" in calls
    assert "stream_weights_via_ipc_zmq" not in calls


def test_a_self_play_step(game: Game) -> None:
    """The loop itself, both roles: it knows nothing of the engine."""
    cluster = game.cluster()
    engine = game.nemo(cluster)
    report = train_step(engine, game.board, rule_judge(game.config), game.config, 1)
    assert report.metrics["faults/rollouts"] == 0
    assert {sample["role"] for sample in report.samples} >= {Role.PROPOSER.value}
    assert report.metrics["tokens/proposer"] > 0
    assert any(prefix == "rollout" and "avg_turns_per_sample" in line for _, prefix, line in cluster.dashboard.lines)
