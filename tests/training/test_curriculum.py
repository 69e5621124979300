from __future__ import annotations

import json
from typing import Any

import pytest
from company_play import load
from pydantic import ValidationError

from training.config import SelfPlayConfig
from training.config_curriculum import PhaseConfig, Until
from training.curriculum import Curriculum
from training.loop_state import LoopState

PHASES = [
    PhaseConfig(hops={1: 1.0}, until=Until(valid_rate=0.6, success=(0.3, 0.7), steps=2)),
    PhaseConfig(hops={1: 0.2, 2: 0.8}, until=Until(step=10)),
    PhaseConfig(hops={2: 1.0}, strict=True),
]
GOOD = {"proposals/valid_rate": 0.6, "proposals/p_hat": 0.7}


def walk(curriculum: Curriculum, steps: list[tuple[int, dict[str, float]]]) -> list[int]:
    phases: list[int] = []
    for step, metrics in steps:
        curriculum.advance(step, metrics)
        phases.append(curriculum.phase)
    return phases


def test_measures_must_hold_for_steps_in_a_row() -> None:
    bad = [{}, GOOD | {"proposals/valid_rate": 0.59}, GOOD | {"proposals/p_hat": 0.71}, GOOD | {"proposals/p_hat": 0.2}]
    for metrics in bad:
        assert walk(Curriculum(PHASES), [(1, GOOD), (2, metrics), (3, GOOD), (4, GOOD)]) == [0, 0, 0, 1]


def test_a_schedule_ends_a_phase_whatever_is_measured() -> None:
    assert walk(Curriculum(PHASES, phase=1), [(9, GOOD), (10, {}), (11, GOOD)]) == [1, 2, 2]
    late = Curriculum(PHASES, phase=1)  # reached after its last step was over
    assert "step 10 is over" in late.advance(12, {})


def test_the_change_is_said_once_and_the_phase_is_a_metric() -> None:
    curriculum = Curriculum(PHASES)
    said = [curriculum.advance(step, GOOD) for step in (1, 2, 3)]
    assert said == ["", "curriculum: phase 1 from step 3 (20% 1-hop, 80% 2-hop): its measures held for 2 steps", ""]
    assert curriculum.metrics() == {"curriculum/phase": 1.0}
    assert Curriculum().metrics() == {}
    assert Curriculum().advance(1, GOOD) == ""


def test_a_phase_sets_hops_and_strictness() -> None:
    config = load("rewards.proposer.checks.bridge=true")
    loose, strict = Curriculum(PHASES, phase=1).applied(config), Curriculum(PHASES, phase=2).applied(config)
    assert (loose.selfplay.hops, strict.selfplay.hops) == ({1: 0.2, 2: 0.8}, {2: 1.0})
    for phase, on in ((loose, False), (strict, True)):
        assert phase.rewards.proposer.checks.bridge is on
        assert phase.rewards.reader.necessity.enabled is on
    same = strict.model_dump()
    same["selfplay"]["hops"] = config.selfplay.hops
    same["rewards"]["proposer"]["checks"]["bridge"] = True
    same["rewards"]["reader"]["necessity"]["enabled"] = False
    assert same == config.model_dump()  # and nothing else
    assert Curriculum().applied(config) is config


def test_a_resumed_curriculum_goes_on_where_it_stood() -> None:
    steps = [(step, GOOD if step % 4 else {}) for step in range(1, 14)]
    whole = walk(Curriculum(PHASES), steps)
    for cut in range(len(steps)):
        first = Curriculum(PHASES)
        walk(first, steps[:cut])
        again = Curriculum.load(PHASES, json.loads(json.dumps(first.state())))
        assert walk(again, steps[cut:]) == whole[cut:]
    assert Curriculum.load(PHASES[:1], {"phase": 2}).phase == 0  # a shorter recipe: its last phase


def test_the_loop_keeps_it_with_the_rest() -> None:
    config = load()
    phased = config.model_copy(update={"selfplay": config.selfplay.model_copy(update={"curriculum": tuple(PHASES)})})
    state = LoopState.load(phased, {})
    walk(state.curriculum, [(1, GOOD), (2, GOOD)])
    again = LoopState.load(phased, json.loads(json.dumps(state.saved())))
    assert again.curriculum.phase == 1
    assert again.saved() == state.saved()


@pytest.mark.parametrize("until", [{}, {"steps": 3}, {"success": [0.7, 0.3]}, {"valid_rate": 2.0}, {"step": 0}])
def test_an_until_that_means_nothing_is_refused(until: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Until.model_validate_json(json.dumps(until))


def test_a_recipe_writes_phases() -> None:
    config = load(
        "selfplay.curriculum=[{hops: {1: 1.0}, until: {success: [0.3, 0.7]}}, {hops: {2: 1.0}, strict: true}]"
    )
    assert [phase.hops for phase in config.selfplay.curriculum] == [{1: 1.0}, {2: 1.0}]
    assert isinstance(config.selfplay, SelfPlayConfig)
    with pytest.raises(ValueError, match="every phase but the last"):
        load("selfplay.curriculum=[{hops: {1: 1.0}}, {hops: {2: 1.0}}]")
