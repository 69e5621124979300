from __future__ import annotations

import random
import string
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from sft_play import COMPANY, episode, rows, tasks

from environments.chat_rows import native_row
from environments.task import Task
from environments.trajectory import StopReason, Trajectory
from training.engines.base import Sampling
from training.sft_data.expert_teacher import ExpertTeacher
from training.sft_data.policy_teacher import PolicyTeacher
from training.sft_data.teachers import Solved, Try
from training.sft_data.thoughts import thoughts_of
from training.sft_data.wordings import ENGLISH, LANGUAGES, said


@dataclass
class RolledOut:
    """An engine whose rollouts are the experts' episodes, ended as ``ends`` says, one after the other."""

    ends: Sequence[StopReason]
    asked: list[tuple[int, Sampling]] = field(default_factory=list)

    def rollout(self, given: Sequence[Task], sampling: Sampling) -> list[Trajectory]:
        first = sum(count for count, _ in self.asked)
        self.asked.append((len(given), sampling))
        known = {row.task: row.outline() for row in rows()}
        ends = self.ends[first : first + len(given)]
        return [replace(known[task], stop_reason=end) for task, end in zip(given, ends, strict=True)]


def tries(count: int) -> list[Try]:
    played = {row.task for row in rows()}
    return [Try(task, 0) for task in tasks() if task.task in played][:count]


def test_the_policy_is_asked_in_batches_and_faults_are_played_again() -> None:
    good, fault = StopReason.SUBMITTED, StopReason.ENVIRONMENT_FAULT
    ends = [good, StopReason.MAX_TURNS, fault, good, StopReason.MAX_TOKENS]
    engine = RolledOut(ends)
    landed: list[Solved] = []
    PolicyTeacher(engine, temperature=0.7, seed=5, batch=2).play(tries(5), landed.append)
    assert [(one.uid, one.trouble) for one in landed] == [
        (tries(5)[0].uid, ""), (tries(5)[1].uid, "max_turns"), (tries(5)[3].uid, ""), (tries(5)[4].uid, "max_tokens"),
    ]  # fmt: skip
    assert [one.row is not None for one in landed] == [True, False, True, False]
    assert [count for count, _ in engine.asked] == [2, 2, 1]
    assert {sampling.temperature for _, sampling in engine.asked} == {0.7}
    assert len({sampling.seed for _, sampling in engine.asked}) == 3
    # A command that goes on at the second batch draws the same numbers for it.
    again = RolledOut(ends[2:])
    PolicyTeacher(again, temperature=0.7, seed=5, batch=2).play(tries(5)[2:], landed.append)
    assert again.asked == engine.asked[1:]


def test_experts_think_in_the_language_that_is_asked_for() -> None:
    landed: list[Solved] = []
    ExpertTeacher(COMPANY, episode(), seed=1, thoughts="think", language="ja").play(tries(8), landed.append)
    for one in landed:
        assert one.row is not None
        assert all(any("぀" <= char <= "ヿ" for char in thought) for thought in thoughts_of(one.row))
    english = {row.id: row for row in rows()}
    for one in landed:
        assert one.row is not None
        calls = [[m.tool_calls for m in native_row(row).messages] for row in (one.row, english[one.uid])]
        assert calls[0] == calls[1]  # the words are others, the way is the same


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_every_language_says_the_same_things(language: str) -> None:
    def slots(text: str) -> set[str]:
        return {name for _, name, _, _ in string.Formatter().parse(text) if name}

    table = LANGUAGES[language]
    assert table.keys() == ENGLISH.keys()
    for key, wordings in table.items():
        assert len(set(wordings)) == len(wordings) >= 2
        allowed = set.union(*map(slots, ENGLISH[key]))
        assert all(slots(wording) <= allowed for wording in wordings)
    assert "Falcon" in said(language, "start", random.Random(0), a="Falcon", b="owner")
