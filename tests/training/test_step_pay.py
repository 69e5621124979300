from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest
from company_play import Place, place, two_groups
from scripted_play import Act, Script, ScriptedEngine, board, expert, group_number, guess, half_right, true_proposal

from environments.protocol import render_call
from environments.task import Role, Task
from rewards.judge import RuleJudge
from training.config import Config
from training.loop_state import LoopState
from training.selfplay import StepReport, train_step


@pytest.fixture(scope="module")
def firm() -> Place:
    return place()


def step(firm: Place, settings: Config, act: Act, state: LoopState | None = None) -> tuple[ScriptedEngine, StepReport]:
    engine = ScriptedEngine(firm, firm.episode(settings), act)
    return engine, train_step(engine, board(firm), RuleJudge(), settings, 1, state)


def proposer_parts(report: StepReport) -> list[dict[str, float]]:
    rewards = [cast("dict[str, object]", each["reward"]) for each in report.samples if each["role"] == "proposer"]
    return [cast("dict[str, float]", reward["components"]) for reward in rewards]


def test_hinted_solvers_are_told_the_evidence_and_never_trained_on(firm: Place) -> None:
    def act(task: Task, member: int) -> Script:
        if task.role is Role.SOLVER and task.opening:
            return expert(firm, task)
        return half_right(firm)(task, member)

    settings = two_groups("selfplay.hint_generations=3", "rewards.proposer.shape=regret")
    engine, report = step(firm, settings, act)
    solvers, hinted = engine.rollouts[1][0], engine.rollouts[2][0]
    assert len(hinted) == 3 * len({task.group_id for task in solvers})
    for task in hinted:
        assert task.opening == f"hint: read {task.evidence[0]}"
        twin = next(other for other in solvers if f"{other.group_id}/hint" == task.group_id)
        assert replace(task, opening="", group_id=twin.group_id) == twin
    assert report.metrics["proposals/p_hint"] == 1.0
    assert report.metrics["proposals/p_hat"] == 0.5
    assert [parts["success"] for parts in proposer_parts(report)[:4]] == [0.5, 0.5, 0.0, 0.0]
    assert report.seconds["hint"] > 0
    assert not any(each.trajectory.task.opening for batch in engine.updates for each in batch)
    assert len(report.samples) == len(engine.played) - len(hinted)


def test_right_answers_from_nowhere_pay_their_proposer_nothing(firm: Place) -> None:
    def act(task: Task, member: int) -> Script:
        if task.role is Role.SOLVER and member % 2:
            return guess(task.answer)
        return half_right(firm)(task, member)

    _, plain = step(firm, two_groups(), act)
    _, adjusted = step(firm, two_groups("rewards.proposer.outcomes.enabled=true"), act)
    assert [parts["success"] for parts in proposer_parts(plain)[:2]] == [1.0, 1.0]
    assert all(not any(parts.values()) for parts in proposer_parts(adjusted))
    assert adjusted.metrics["proposals/guess_rate"] == 1.0
    assert (adjusted.metrics["proposals/right_rate"], adjusted.metrics["proposals/p_hat"]) == (0.5, 0.0)


def test_an_answer_that_solvers_agree_on_against_the_key_pays_nothing(firm: Place) -> None:
    def act(task: Task, member: int) -> Script:
        if task.role is Role.SOLVER:
            return expert(firm, task) if member == 0 else misread(task)
        return half_right(firm)(task, member)

    def misread(task: Task) -> Script:
        yield render_call("read_mail", {"id": task.evidence[0]})
        yield from guess("$77,777")

    _, report = step(firm, two_groups("rewards.proposer.outcomes.enabled=true", "rewards.proposer.diversity=0.5"), act)
    assert report.metrics["proposals/wrong_key"] == 1.0
    assert [sum(parts.values()) for parts in proposer_parts(report)] == [0.0] * 8


def test_asking_the_same_as_others_or_as_lately_pays_less(firm: Place) -> None:
    settings = two_groups("rewards.proposer.diversity=0.4")

    def same(task: Task, member: int) -> Script:
        if task.role is Role.PROPOSER:
            return true_proposal(firm, group_number(task)).script()
        return half_right(firm)(task, member)

    state = LoopState.load(settings, {})
    _, first = step(firm, settings, same, state)
    assert [parts["diversity"] for parts in proposer_parts(first)] == pytest.approx([0.4 * 0.5] * 8)  # all alike
    assert len(state.memory) == 2  # each question once
    _, second = step(firm, settings, same, state)
    assert [parts["diversity"] for parts in proposer_parts(second)] == [0.0] * 8  # and all asked before

    def alone(task: Task, member: int) -> Script:
        if task.role is Role.PROPOSER and member:
            return guess()
        return same(task, member)

    _, third = step(firm, settings, alone)
    assert proposer_parts(third)[0]["diversity"] == pytest.approx(0.4)


def test_nothing_is_remembered_where_diversity_is_not_paid(firm: Place) -> None:
    settings = two_groups()
    state = LoopState.load(settings, {})
    step(firm, settings, half_right(firm), state)
    assert len(state.memory) == 0
    assert len(state.pool) > 0
