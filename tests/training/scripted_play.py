"""An engine that plays scripts through the real episode, and the scripts."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from company_play import Place

from environments.chat_format import ChatFormat
from environments.episode import Episode, EpisodeState
from environments.protocol import render_call
from environments.recorder import Recorder
from environments.task import Role, Task
from environments.trajectory import Trajectory
from training.config import LossConfig
from training.engines.base import EffectiveSampling, Sampling, Weighted
from training.experts import ExpertStuck, Habits, solve
from training.game import Board

Script = Generator[str, EpisodeState, None]
Act = Callable[[Task, int], Script]
"""The task and the member's number in its group to a script."""
SPOKEN = -1.25
"""Log-probability of every token that the fake policy says."""


class Talks(Protocol):
    """Whatever knows how messages become token ids."""

    @property
    def chat(self) -> ChatFormat: ...


@dataclass
class ScriptedEngine:
    """Plays scripts through the real episode; ``shift`` is how far recomputed log-probs are from the recorded ones."""

    firm: Talks
    episode: Episode
    act: Act
    shift: Callable[[Trajectory], float] = lambda _: 0.0
    rollouts: list[tuple[list[Task], Sampling]] = field(default_factory=list)
    played: list[Trajectory] = field(default_factory=list)
    updates: list[list[Weighted]] = field(default_factory=list)
    syncs: int = 0
    policy_version: int = 7

    def effective_sampling(self, asked: Sampling) -> EffectiveSampling:
        return EffectiveSampling(temperature=asked.temperature, training_temperature=asked.temperature)

    def rollout(self, tasks: Sequence[Task], sampling: Sampling) -> list[Trajectory]:
        self.rollouts.append((list(tasks), sampling))
        seen: dict[str, int] = defaultdict(int)
        made: list[Trajectory] = []
        for number, task in enumerate(tasks):
            member = seen[task.group_id]
            seen[task.group_id] += 1
            made.append(self._play(task, self.act(task, member), f"{len(self.rollouts)}/{number}"))
        self.played += made
        return made

    def _play(self, task: Task, script: Script, uid: str) -> Trajectory:
        chat = self.firm.chat
        state, messages = self.episode.start(task)
        recorder = Recorder(chat.prompt_ids(messages))
        text = next(script)
        while True:
            ids = chat.turn_ids(text)
            recorder.sampled(ids, [SPOKEN] * len(ids))
            observation, state = self.episode.step(state, text)
            messages.append({"role": "assistant", "content": text})
            if observation.done:
                return recorder.trajectory(uid=uid, state=state, policy_version=self.policy_version, messages=messages)
            recorder.observed(chat.observation_ids(observation.text, ended=True))
            try:
                text = script.send(state)
            except (StopIteration, ExpertStuck):
                text = "I do not know"

    def logprobs(self, trajectories: Sequence[Trajectory]) -> list[list[float]]:
        return [
            [(SPOKEN + self.shift(t)) * mask for mask in t.loss_mask]  # 0.0 on what was not sampled
            for t in trajectories
        ]

    def update(self, batch: Sequence[Weighted], loss: LossConfig) -> dict[str, float]:
        self.updates.append(list(batch))
        return {"loss": 0.5}

    def sft(self, trajectories: Sequence[Trajectory]) -> dict[str, float]:
        raise AssertionError("a self-play step never imitates")

    def sync_weights(self) -> None:
        self.syncs += 1

    def save(self, path: Path) -> None:
        raise AssertionError("a step never saves")

    def load(self, path: Path) -> None:
        raise AssertionError("a step never loads")


@dataclass
class OneWeightEngine(ScriptedEngine):
    """Its one weight goes through every advantage of every update, so a lost or repeated update shows for ever."""

    weight: float = 0.5

    def update(self, batch: Sequence[Weighted], loss: LossConfig) -> dict[str, float]:
        for each in batch:
            self.weight = (self.weight * 1.7 + each.advantage + len(each.trajectory.token_ids)) % 1.0
        self.policy_version += 1
        return {"loss": self.weight}

    def save(self, path: Path) -> None:
        path.mkdir()
        (path / "state.json").write_text(json.dumps([self.weight, self.policy_version]))

    def load(self, path: Path) -> None:
        self.weight, self.policy_version = json.loads((path / "state.json").read_text())

    def restart(self) -> None:
        """There is nothing but the weight."""


def written(folder: Path) -> dict[str, bytes]:
    """The metrics and the rollouts of a run: those of a resumed run must be those of an unbroken one."""
    found = [folder / "metrics.jsonl", *folder.glob("samples/*")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


@dataclass(frozen=True)
class Proposal:
    question: str
    answer: str
    evidence: tuple[str, ...]

    def script(self) -> Script:
        for mail in self.evidence:
            yield render_call("read_mail", {"id": mail})
        yield render_call("submit", {"question": self.question, "answer": self.answer, "evidence": list(self.evidence)})


def mute() -> Script:
    while True:
        yield "I do not know"


def guess(answer: str = "zzz") -> Script:
    yield render_call("submit", {"answer": answer, "evidence": ["0000"]})


def expert(firm: Place, task: Task) -> Script:
    truth = firm.company.parse(task.question)
    assert truth is not None
    return solve(firm.company, truth, random.Random(0), Habits(vague=0.0))


def true_proposal(firm: Place, number: int) -> Proposal:
    """A different right one-hop question for each number."""
    project = firm.company.entities["project"][number]
    fact = firm.company.facts["budget", project]
    return Proposal(f"What is the budget of {project}?", fact.value, (fact.mails[-1],))


def group_number(task: Task) -> int:
    return int(task.group_id.rpartition("/")[2][1:])


def board(firm: Place) -> Board:
    return Board(firm.index, tuple(firm.index.ids()), firm.company)


def half_right(firm: Place) -> Act:
    """Each Proposer group asks its own question, members 0 and 1; the others say nothing. Half of the Solvers know."""

    def act(task: Task, member: int) -> Script:
        if task.role is Role.PROPOSER:
            return true_proposal(firm, group_number(task)).script() if member < 2 else mute()
        return expert(firm, task) if member % 2 else guess()

    return act
