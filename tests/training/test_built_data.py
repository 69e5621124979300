"""GRPO of the Solver on a file of questions: what a step is dealt, and an exact resume."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from company_play import Place, load, place
from scripted_play import OneWeightEngine, Script, guess, written

from environments.questions import Question, QuestionFileError, save_questions
from environments.task import Task
from environments.trajectory import Trajectory
from rewards.judge import RuleJudge
from training.config import Config
from training.config_load import ConfigError
from training.engines.base import Sampling, Weighted
from training.loop import run as run_loop
from training.recipe import Players, open_board
from training.runlog import RunLog

STEPS = 5


@pytest.fixture(scope="module")
def firm() -> Place:
    return place()


@pytest.fixture
def path(firm: Place, tmp_path: Path) -> Path:
    """Seven questions: with three a step, passes end inside of steps."""
    asked = firm.company.questions(1, 7)
    file = tmp_path / "tasks.jsonl"
    save_questions(
        file,
        [
            Question(id=f"q{n}", question=q.question, answer=q.answer, evidence=q.evidence, hops=q.hops)
            for n, q in enumerate(asked)
        ],
    )
    return file


def config(path: Path, *overrides: str) -> Config:
    return load(
        "selfplay.mode=fixed", f"data.train.data_path={path}", "grpo.num_prompts_per_step=3",
        "grpo.num_generations_per_prompt=2", f"grpo.max_num_steps={STEPS}", "grpo.val_period=0", "sft.max_num_steps=0",
        "checkpointing.save_period=2", "checkpointing.metric_name=null",
        "corpus.source=company:seed=3,projects=20,duplicates=0",
        f"logger.log_dir={path.parent}", *overrides,
    )  # fmt: skip


class Killed(Exception):
    pass


@dataclass
class MortalEngine(OneWeightEngine):
    """Dies in the update after ``lives`` of them; its uids tell no resumed run from an unbroken one."""

    lives: int = 99

    def rollout(self, tasks: Sequence[Task], sampling: Sampling) -> list[Trajectory]:
        made = super().rollout(tasks, sampling)
        self.rollouts.clear()  # they number the uids
        return made

    def update(self, batch: Sequence[Weighted], loss: Any) -> dict[str, float]:
        self.lives -= 1
        if self.lives < 0:
            raise Killed
        return super().update(batch, loss)


def half(task: Task, member: int) -> Script:
    return guess(task.answer) if member % 2 else guess()


def play(firm: Place, folder: Path, settings: Config, lives: int = 99) -> MortalEngine:
    board = open_board(settings, lambda _: None)
    engine = MortalEngine(firm, firm.episode(settings, board.index), half, lives=lives)
    players = Players(cast("Any", engine), firm.chat, settings)
    with RunLog(folder, {}) as log:
        run_loop(
            players, board, RuleJudge(), log,
            validate=lambda: cast("Mapping[str, float]", {}), benchmark=lambda step, label: None,
        )  # fmt: skip
    return engine


def test_every_question_is_played_and_a_killed_run_resumes_exactly(firm: Place, path: Path) -> None:
    settings = config(path)
    unbroken = play(firm, path.parent / "unbroken", settings)
    played = [t.task for t in unbroken.played]
    assert len(played) == STEPS * 3 * 2
    times = Counter(task.question for task in played)
    assert set(times) == {q.question for q in firm.company.questions(1, 7)}
    assert set(times.values()) == {4, 6}  # 15 groups of 2 rollouts: two passes and one question more
    with pytest.raises(Killed):
        play(firm, path.parent / "killed", settings, lives=3)
    resumed = play(firm, path.parent / "killed", settings)
    assert len(resumed.played) == 3 * 3 * 2  # from the checkpoint of step 2
    assert written(path.parent / "killed") == written(path.parent / "unbroken")


def test_the_run_folders_index_must_hold_the_evidence(path: Path) -> None:
    questions = [Question(id="q", question="Who?", answer="A", evidence=("none",), hops=1)]
    save_questions(path, questions)
    with pytest.raises(QuestionFileError, match="question 'q' needs mail 'none'"):
        open_board(config(path), lambda _: None)


def test_a_file_is_not_for_selfplay(path: Path) -> None:
    with pytest.raises(ConfigError, match=r"data\.train\.data_path is .* set selfplay\.mode to fixed"):
        config(path, "selfplay.mode=selfplay")
