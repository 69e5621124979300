"""Further Solver groups while too few have rewards that differ."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from company_play import Place, load, place
from scripted_play import (
    Act,
    Script,
    ScriptedEngine,
    board,
    expert,
    group_number,
    guess,
    mute,
    true_proposal,
)

from environments.task import Role, Task
from rewards.judge import RuleJudge
from training.config import Config
from training.config_load import ConfigError, validate_config
from training.loop_state import LoopState
from training.selfplay import StepReport, train_step


@pytest.fixture(scope="module")
def firm() -> Place:
    return place()


def config(*overrides: str) -> Config:
    return load(
        "selfplay.proposer_prompts_per_step=6", "selfplay.solver_generations=4", "selfplay.max_solver_groups=2",
        "selfplay.proposer_generations=2", "selfplay.hops={1: 1.0}", "selfplay.tool_variants=1",
        "selfplay.spread_questions=false", *overrides,
    )  # fmt: skip


def hard_but_for(firm: Place, projects: set[int]) -> Act:
    """Every Proposer group asks its own question. Half of the Solvers know those of ``projects``, none the others."""
    easy = {true_proposal(firm, number).question for number in projects}

    def act(task: Task, member: int) -> Script:
        if task.role is Role.PROPOSER:
            return true_proposal(firm, group_number(task)).script() if member == 0 else mute()
        return expert(firm, task) if task.question in easy and member % 2 else guess()

    return act


def run(firm: Place, settings: Config, act: Act, state: LoopState | None = None) -> tuple[ScriptedEngine, StepReport]:
    engine = ScriptedEngine(firm, firm.episode(settings), act)
    return engine, train_step(engine, board(firm), RuleJudge(), settings, 1, state)


def solver_groups(tasks: list[Task]) -> list[str]:
    sizes = Counter(task.group_id for task in tasks if task.role is Role.SOLVER)
    assert set(sizes.values()) <= {4}  # whole groups
    return list(sizes)


def test_off_by_default(firm: Place) -> None:
    engine, report = run(firm, config(), hard_but_for(firm, set()))
    assert len(engine.rollouts) == 2
    assert not any(name.startswith("refill/") for name in report.metrics)


def test_it_goes_on_until_the_groups_wanted_are_there(firm: Place) -> None:
    """Six questions, two of which teach something; two groups a round."""
    engine, report = run(firm, config("selfplay.refill_rounds=9"), hard_but_for(firm, {1, 4}))
    assert report.metrics["groups/solver/kept"] == 2
    assert report.metrics["refill/lacking"] == 0
    assert report.metrics["refill/rounds"] == len(engine.rollouts) - 2
    groups = [group for tasks, _ in engine.rollouts[1:] for group in solver_groups(tasks)]
    assert len(groups) == len(set(groups)) == report.metrics["groups/solver/all"]
    assert report.metrics["refill/groups"] == len(groups) - 2
    # Each round has its own randomness, and no more groups than lacked.
    assert len({sampling.seed for _, sampling in engine.rollouts}) == len(engine.rollouts)
    lacking = 2
    for tasks, _ in engine.rollouts[1:]:
        asked = {task.question for task in tasks}
        assert len(asked) <= lacking
        lacking -= len(asked & {true_proposal(firm, number).question for number in (1, 4)})


def test_a_question_of_a_later_round_pays_its_proposer(firm: Place) -> None:
    engine, report = run(firm, config("selfplay.refill_rounds=9"), hard_but_for(firm, {1, 4}))
    paid = {
        record["uid"]
        for record in report.samples
        if record["role"] == "proposer" and float(record["reward"]["labels"]["n_solvers"]) == 4
    }
    asked = {task.parent for tasks, _ in engine.rollouts[1:] for task in tasks}
    assert paid == asked


def test_rounds_are_bounded_and_so_are_questions(firm: Place) -> None:
    engine, report = run(firm, config("selfplay.refill_rounds=1"), hard_but_for(firm, set()))
    assert (len(engine.rollouts), report.metrics["refill/rounds"], report.metrics["refill/lacking"]) == (3, 1, 2)
    engine, report = run(firm, config("selfplay.refill_rounds=9"), hard_but_for(firm, set()))
    # Six questions by twos: the first round and two more; then there is nothing left to ask, and no empty rollout.
    assert (len(engine.rollouts), report.metrics["refill/groups"], report.metrics["refill/lacking"]) == (4, 4, 2)


def test_the_pool_fills_what_the_step_has_not(firm: Place) -> None:
    settings = config("selfplay.refill_rounds=2", "selfplay.max_solver_groups=7")
    state = LoopState.load(settings, {})
    key = firm.company.entities["person"][0]
    task: dict[str, Any] = {"hops": 1, "answer": "x", "evidence": ("0001",)}
    state.pool.add([Task(role=Role.SOLVER, group_id="0/s0", question=f"Where does {key} sit?", **task)])
    engine, report = run(firm, settings, hard_but_for(firm, {1, 4}), state)
    [tasks] = [tasks for tasks, _ in engine.rollouts[2:]]
    assert solver_groups(tasks) == ["1/r0"]
    assert report.metrics["pool/drawn"] == 1
    assert report.metrics["refill/lacking"] == 5


def test_seed_and_step_decide_the_rounds(firm: Place) -> None:
    settings = config("selfplay.refill_rounds=3")
    first, second = (run(firm, settings, hard_but_for(firm, {4}))[0] for _ in range(2))
    assert first.rollouts == second.rollouts


def test_fixed_questions_are_drawn_as_many_as_wanted() -> None:
    with pytest.raises(ConfigError, match=r"raise grpo\.num_prompts_per_step instead"):
        validate_config({"selfplay": {"mode": "fixed", "refill_rounds": 1}})
