"""Rollouts in a thread of their own: how far ahead, of what weights, and what the trainer hears of them."""

from __future__ import annotations

from threading import Event, Thread
from typing import Any

import pytest
from company_play import Place, load, place
from scripted_play import OneWeightEngine, board, half_right

from environments.task import Role, Task
from rewards.judge import RuleJudge
from training.ahead import RolloutsAhead
from training.config import Config
from training.faults import FaultStop
from training.loop_state import LoopState
from training.play import StepPlay
from training.played import Played
from training.pool import QuestionPool
from training.selfplay import train_step

WAIT = 30.0
CONFIG = Config()


class Player:
    """Stands in for ``StepPlay.play``: notes how many steps were trained when each began."""

    def __init__(self) -> None:
        self.trained = 0
        self.begun: dict[int, int] = {}
        self.pools: dict[int, QuestionPool] = {}
        self.changed = Event()
        self.fails_at: int | None = None
        self.holds_at: int | None = None
        self.release = Event()
        self.done: list[str] = []

    def play(self, part: StepPlay) -> Played:
        step = part.step
        self.begun[step] = self.trained
        self.pools[step] = part.pool
        self.changed.set()
        if step == self.fails_at:
            raise FaultStop("the index is away")
        if step == self.holds_at:
            assert self.release.wait(WAIT)
        self.done.append(f"played {step}")
        return Played(metrics={"played": float(step)})

    def wait_for(self, step: int) -> None:
        while step not in self.begun:
            assert self.changed.wait(WAIT), f"step {step} was never played"
            self.changed.clear()


@pytest.fixture
def player(monkeypatch: pytest.MonkeyPatch) -> Player:
    made = Player()
    monkeypatch.setattr(StepPlay, "play", lambda part: made.play(part))
    return made


def rounds(max_age: int, last_step: int = 6) -> RolloutsAhead:
    anything: Any = None
    return RolloutsAhead(anything, anything, anything, max_age=max_age, last_step=last_step)


@pytest.mark.parametrize("max_age", [1, 2, 4])
def test_no_step_begins_before_its_weights_are_young_enough(player: Player, max_age: int) -> None:
    ahead = rounds(max_age)
    for step in range(1, 7):
        found = ahead.take(step, CONFIG, QuestionPool())
        assert (found.step, found.played.metrics) == (step, {"played": step})
        # All that is allowed now is played before this step is trained: the worst that can be.
        player.wait_for(min(step + max_age, 6))
        assert max(player.begun) == min(step + max_age, 6)
        player.trained += 1
    assert all(step - 1 - trained <= max_age for step, trained in player.begun.items())
    assert max(step - 1 - trained for step, trained in player.begun.items()) == max_age
    assert list(player.begun) == [1, 2, 3, 4, 5, 6]


def test_a_resumed_run_begins_with_its_next_step(player: Player) -> None:
    ahead = rounds(max_age=1, last_step=9)
    assert ahead.take(5, CONFIG, QuestionPool()).step == 5
    player.wait_for(6)
    assert list(player.begun) == [5, 6]
    with pytest.raises(ValueError, match="step 8 was asked for and step 6 is next"):
        ahead.take(8, CONFIG, QuestionPool())


def test_what_the_rollouts_raise_is_raised_where_they_are_taken(player: Player) -> None:
    player.fails_at = 2
    ahead = rounds(max_age=1)
    ahead.take(1, CONFIG, QuestionPool())
    with pytest.raises(FaultStop, match="the index is away"):
        ahead.take(2, CONFIG, QuestionPool())


def test_the_pool_is_that_of_when_the_step_was_allowed(player: Player) -> None:
    ahead = rounds(max_age=1)
    pool = QuestionPool()
    ahead.take(1, CONFIG, pool)
    player.wait_for(2)
    pool.add([Task(role=Role.SOLVER, group_id="1/s0", question="what is it?", answer="x")], [], {})
    assert len(player.pools[2]) == 0
    ahead.take(2, CONFIG, pool)
    player.wait_for(3)
    assert len(player.pools[3]) == 1


def test_evaluation_has_the_engine_to_itself(player: Player) -> None:
    player.holds_at = 2
    ahead = rounds(max_age=1)
    ahead.take(1, CONFIG, QuestionPool())
    player.wait_for(2)
    measuring = Thread(target=ahead.alone(lambda: player.done.append("measured")))
    measuring.start()
    measuring.join(0.2)
    assert measuring.is_alive()
    player.release.set()
    measuring.join(WAIT)
    assert player.done == ["played 1", "played 2", "measured"]


@pytest.fixture(scope="module")
def firm() -> Place:
    return place()


def settings() -> Config:
    return load(
        "grpo.num_generations_per_prompt=4", "selfplay.proposer_prompts_per_step=2", "selfplay.max_solver_groups=4",
        "selfplay.hops={1: 1.0}", "selfplay.tool_variants=1", "tools.retries=0",
    )  # fmt: skip


def engine(firm: Place, config: Config) -> OneWeightEngine:
    return OneWeightEngine(firm, firm.episode(config), half_right(firm))


def test_a_step_that_was_played_ahead_is_trained_as_one_that_was_not(firm: Place) -> None:
    config = settings()
    one, other = engine(firm, config), engine(firm, config)
    ahead = RolloutsAhead(other, board(firm), RuleJudge(), max_age=1, last_step=3)
    apart, together = LoopState.load(config, {}), LoopState.load(config, {})
    judge = RuleJudge()
    first = train_step(one, board(firm), judge, config, 1, apart)
    same = train_step(other, board(firm), judge, config, 1, together, ahead)
    assert same.metrics == first.metrics
    assert {"ahead/propose", "ahead/solve", "wait"} <= set(same.seconds)
    assert same.seconds["total"] == pytest.approx(
        sum(value for name, value in same.seconds.items() if name != "total" and not name.startswith("ahead/"))
    )
    for step in (2, 3):
        report = train_step(other, board(firm), judge, config, step, together, ahead)
        assert 0 <= report.metrics["age/max"] <= 1
        assert report.metrics["update/skipped"] == 0


def test_a_step_without_runs_ahead_plays_itself(firm: Place) -> None:
    config = settings()
    report = train_step(engine(firm, config), board(firm), RuleJudge(), config, 1, LoopState.load(config, {}))
    assert "wait" not in report.seconds
