"""Numbers outside their bands pause a run; it can be resumed exactly, and says what to look at."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from company_play import Place, load, place
from scripted_play import OneWeightEngine, board, half_right, written

from environments.trajectory import Trajectory
from rewards.judge import RuleJudge
from training.checkpoint import CheckpointManager
from training.config import Config
from training.config_stability import TripwireConfig
from training.diagnosis import FILE, diagnosis
from training.engines.base import EffectiveSampling
from training.loop import run as run_loop
from training.recipe import Players
from training.runlog import RunLog
from training.tripwire import Band, Breach, Tripwire, TripwireStop, bands

PLAIN = EffectiveSampling(temperature=1.0, training_temperature=1.0)
KL = "mismatch/solver/gen_kl_error"


def test_a_band_holds_its_ends_and_no_nan() -> None:
    band = Band("x", low=0.5, high=2.0)
    assert band.holds(0.5)
    assert band.holds(2.0)
    assert not any(band.holds(v) for v in (0.49, 2.01, math.nan, math.inf))
    assert Band("x", low=0.5).holds(9e9)


def test_it_takes_patience_steps_running() -> None:
    trip = Tripwire(TripwireConfig(patience=2))
    assert [len(trip.check(step, {KL: v})) for step, v in enumerate([1.0, 1e-3, 1.0, 1.0], 1)] == [0, 0, 0, 1]
    # Whoever goes on has seen it: the count starts again.
    assert [len(trip.check(step, {KL: 1.0})) for step in (5, 6)] == [0, 1]


def test_a_step_without_the_number_neither_counts_nor_forgives() -> None:
    trip = Tripwire(TripwireConfig(patience=2))
    assert [len(trip.check(step, m)) for step, m in enumerate([{KL: 1.0}, {}, {KL: 1.0}], 1)] == [0, 0, 1]


def test_defaults_watch_the_mismatch_of_both_roles_alone() -> None:
    names = ("token_mult_prob_error", "gen_kl_error", "is_oob_ratio")
    assert {band.metric for band in bands(TripwireConfig())} == {
        f"mismatch/{role}/{name}" for role in ("proposer", "solver") for name in names
    }
    assert bands(TripwireConfig(enabled=False)) == []


@pytest.mark.parametrize(
    ("settings", "metrics"),
    [
        ({"min_entropy": 0.1}, {"episode/proposer/entropy": 0.05}),
        ({"max_entropy": 2.0}, {"episode/solver/entropy": 2.5}),
        ({"min_valid_rate": 0.3}, {"proposals/valid_rate": 0.1}),
        ({"max_tokens": 100.0}, {"episode/solver/tokens": 101.0}),
        ({"max_grad_norm": 5.0}, {"update/grad_norm": math.nan}),
        ({"max_token_mult_prob_error": 1.05}, {"mismatch/proposer/token_mult_prob_error": 1.2}),
        ({"max_is_oob_ratio": 0.01}, {"mismatch/solver/is_oob_ratio": 0.02}),
    ],
)
def test_every_band_trips_on_its_own_metric(settings: dict[str, Any], metrics: dict[str, float]) -> None:
    [breach] = Tripwire(TripwireConfig(patience=1, **settings)).check(7, metrics)
    assert breach.band.metric == next(iter(metrics))


def test_a_resumed_tripwire_goes_on_counting() -> None:
    settings = TripwireConfig(patience=3)
    values = [1.0, 1.0, 1e-3, 1.0, 1.0, 1.0, 1.0]
    whole = Tripwire(settings)
    unbroken = [len(whole.check(step, {KL: v})) for step, v in enumerate(values)]
    assert unbroken == [0, 0, 0, 0, 0, 1, 0]
    for killed in range(len(values)):
        first = Tripwire(settings)
        seen = [len(first.check(step, {KL: v})) for step, v in enumerate(values[:killed])]
        second = Tripwire(settings, json.loads(json.dumps(first.state())))
        seen += [len(second.check(step, {KL: v})) for step, v in enumerate(values[killed:], killed)]
        assert seen == unbroken
        assert second.recent() == whole.recent()
        assert second.state() == whole.state()


# What the diagnosis says


def written_for(last: Mapping[str, float], sampling: EffectiveSampling = PLAIN, **changes: Any) -> list[str]:
    breach = Breach(Band(KL, high=5e-3), 0.4, 2)
    text = diagnosis([breach], [(8, {KL: 0.002}), (9, {KL: 0.4} | dict(last))], Config(**changes), sampling, ["go on"])
    assert "| mismatch/solver/gen_kl_error | 0.002 | 0.4 |" in text
    return [line for line in text.splitlines() if line[:2] in ("1.", "2.", "3.", "4.", "5.")]


def test_the_causes_come_in_their_order() -> None:
    lines = written_for({})
    assert [line.split("**")[1].rstrip(".") for line in lines] == [
        "Sampling filters or temperature", "Shifted tokens", "Number format of logits or weights", "Kernels",
        "Age of the weights",
    ]  # fmt: skip
    assert ["Ruled out" in line for line in lines] == [True, False, True, False, True]


def test_a_filter_that_is_on_is_named() -> None:
    assert "Likely: top_p 0.9, top_k 5" in written_for({}, replace(PLAIN, top_p=0.9, top_k=5))[0]
    assert "temperature 0.6 against 1 in training" in written_for({}, replace(PLAIN, temperature=0.6))[0]


def test_turns_tell_shifted_tokens_from_the_rest() -> None:
    def of(*values: float) -> str:
        return written_for({f"mismatch/solver/turn{k}/token_mult_prob_error": v for k, v in enumerate(values, 1)})[1]

    assert "the solver's turns match up to turn 2 and not from turn 3 on" in of(1.0, 1.001, 1.4)
    assert "Unlikely" in of(1.3, 1.3, 1.4)


def test_old_weights_and_half_precision_are_possible_causes() -> None:
    lines = written_for({"age/mean": 1.5}, policy={"precision": "bfloat16"})
    assert "Possible: weights are bfloat16" in lines[2]
    assert "Rollouts were 1.5 updates old" in lines[4]


def test_what_breaks_without_a_mismatch_is_looked_for_elsewhere() -> None:
    breach = Breach(Band("proposals/valid_rate", low=0.3), 0.1, 2)
    text = diagnosis([breach], [(4, {"proposals/valid_rate": 0.1, "reward/proposer/total": -0.2})], Config(), PLAIN, [])
    assert "breaks mid-way" in text
    assert "Mean rewards: proposer -0.2" in text
    assert "**Valid rate** 0.10" in text


# The run


class Drifting(OneWeightEngine):
    """From its third update on, the trainer sees other log-probs than the sampler."""

    def logprobs(self, trajectories: Any) -> list[list[float]]:
        off = 0.3 if self.policy_version >= 7 + 2 else 0.0
        return [[(-1.25 + off) * mask for mask in t.loss_mask] for t in trajectories]

    def rollout(self, tasks: Any, sampling: Any) -> list[Trajectory]:
        made = super().rollout(tasks, sampling)
        self.rollouts.clear()  # they number the uids
        return made


@pytest.fixture(scope="module")
def firm() -> Place:
    return place()


def play(firm: Place, folder: Path, *overrides: str) -> Drifting:
    settings = load(
        "grpo.num_generations_per_prompt=4", "selfplay.proposer_prompts_per_step=3", "selfplay.hops={1: 1.0}",
        "selfplay.tool_variants=1", "grpo.max_num_steps=6", "grpo.val_period=2", "sft.max_num_steps=0",
        "checkpointing.save_period=4", "checkpointing.keep_top_k=null", *overrides,
    )  # fmt: skip
    engine = Drifting(firm, firm.episode(settings), half_right(firm))
    with RunLog(folder, {}) as log:
        run_loop(
            Players(cast("Any", engine), firm.chat, settings), board(firm), RuleJudge(), log,
            validate=lambda: {"val/overall/accuracy": engine.weight}, benchmark=lambda step, label: None,
        )  # fmt: skip
    return engine


def test_a_run_pauses_with_a_checkpoint_and_a_diagnosis_and_resumes_exactly(firm: Place, tmp_path: Path) -> None:
    unbroken = play(firm, tmp_path / "unbroken", "tripwire.enabled=false")
    with pytest.raises(TripwireStop) as stopped:
        play(firm, tmp_path / "run")
    message = str(stopped.value)
    for part in ("paused after step 4", "mismatch/solver/token_mult_prob_error is 1.35", "for 2 steps running", FILE):
        assert part in message
    saved = CheckpointManager(tmp_path / "run/checkpoints").latest()
    assert saved is not None
    assert saved.step == 4
    text = (tmp_path / "run" / FILE).read_text()
    assert text.startswith("# Paused after step 4")
    assert "Ruled out by the preflight" in text
    assert "| mismatch/solver/token_mult_prob_error | 1 | 1 | 1.35 | 1.35 |" in text
    # The same command goes on, with the same patience; and loses nothing by the pause.
    with pytest.raises(TripwireStop, match="paused after step 6"):
        play(firm, tmp_path / "run")
    resumed = play(firm, tmp_path / "run")
    assert resumed.weight == unbroken.weight
    assert written(tmp_path / "run") == written(tmp_path / "unbroken")
