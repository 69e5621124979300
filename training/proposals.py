"""The Proposers' part of a step: roll out, check, choose what the Solvers get, and pay once they have answered."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from corpus_index.backends.base import IndexUnavailable
from environments.task import Role, Task
from environments.trajectory import StopReason, Submission, ToolEvent, Trajectory
from rewards.judge import Judge
from rewards.patterns import question_pattern
from rewards.refusal import Refusal, check_proposal
from training.config import Config
from training.engines.base import Engine
from training.evidence import EvidenceDesk
from training.faults import FaultWatch
from training.game import Board, phase_sampling
from training.pool import QuestionPool
from training.reader import read_questions
from training.spread import Sort, spread


@dataclass(frozen=True, slots=True)
class Proposals:
    """Aligned ``[proposals]``. ``notes`` are what a reader measured: ``ReadVerdict.labels``, and whether it is
    ``unknown``. ``group_of`` names the Solver group of a question that was sent on, else None; proposals with the same
    question and key share one."""

    trajectories: list[Trajectory] = field(default_factory=list[Trajectory])
    refusals: list[Refusal | None] = field(default_factory=list[Refusal | None])
    notes: list[Mapping[str, float]] = field(default_factory=list[Mapping[str, float]])
    group_of: list[str | None] = field(default_factory=list[str | None])

    def questions(self) -> list[list[int]]:
        """The places of the valid proposals, those of one question and key together: equal questions of one step are
        one question, and to roll it out twice would only measure the same thing twice."""
        distinct: dict[tuple[str, str], list[int]] = {}
        for i, (t, refusal) in enumerate(zip(self.trajectories, self.refusals, strict=True)):
            if refusal is None and t.submission is not None:
                distinct.setdefault((t.submission.question, t.submission.answer), []).append(i)
        return list(distinct.values())

    def submissions(self) -> dict[Submission, list[int]]:
        """The places of the valid proposals, those of one question, key and evidence together."""
        equal: dict[Submission, list[int]] = {}
        for i, (t, refusal) in enumerate(zip(self.trajectories, self.refusals, strict=True)):
            if refusal is None and t.submission is not None:
                equal.setdefault(t.submission, []).append(i)
        return equal


def propose(
    engine: Engine, board: Board, config: Config, step: int, rng: random.Random, faults: FaultWatch, desk: EvidenceDesk
) -> Proposals:
    """Roll out and check. None is sent on yet."""
    try:
        tasks = board.proposer_tasks(config, step, rng)
    except IndexUnavailable as fault:
        faults.unreadable(fault)
        return Proposals()
    trajectories, refusals = _checked(engine.rollout(tasks, phase_sampling(config, step, 0)), desk, config)
    faults.count(trajectories)
    return Proposals(trajectories, refusals, [{} for _ in trajectories], [None] * len(trajectories))


def read(
    engine: Engine, judge: Judge, config: Config, step: int, proposals: Proposals, desk: EvidenceDesk
) -> Proposals:
    """The proposals after the reader's checks (``rewards.reader``)."""
    trajectories, refusals = list(proposals.trajectories), list(proposals.refusals)
    notes = list(proposals.notes)
    equal = proposals.submissions()
    firsts = [trajectories[members[0]] for members in equal.values()]
    verdicts = read_questions(engine, desk, judge, config, step, firsts)
    for members, verdict in zip(equal.values(), verdicts, strict=True):
        for i in members:
            refusals[i], notes[i] = verdict.refusal, {**verdict.labels, "unknown": float(verdict.unknown)}
            if verdict.unknown:
                trajectories[i], refusals[i] = undecided(trajectories[i], "the reader's checks could not be made")
    return replace(proposals, trajectories=trajectories, refusals=refusals, notes=notes)


def send_on(
    proposals: Proposals, config: Config, step: int, rng: random.Random, groups: int, pool: QuestionPool
) -> Proposals:
    """At most ``groups`` of the valid questions that were not sent on yet go to the Solvers."""
    gone = {group for group in proposals.group_of if group is not None}
    questions = [members for members in proposals.questions() if proposals.group_of[members[0]] is None]
    sent = [questions[i] for i in _chosen(questions, proposals.trajectories, config, groups, rng, pool)]
    group_of = list(proposals.group_of)
    for k, members in enumerate(sent, start=len(gone)):
        for i in members:
            group_of[i] = f"{step}/s{k}"
    return replace(proposals, group_of=group_of)


def _chosen(
    questions: Sequence[Sequence[int]],
    trajectories: Sequence[Trajectory],
    config: Config,
    count: int,
    rng: random.Random,
    pool: QuestionPool,
) -> list[int]:
    """Which questions (each given as the proposals that ask it) become Solver groups, at most ``count``."""
    play = config.selfplay
    if not play.spread_questions:
        return rng.sample(range(len(questions)), min(count, len(questions)))
    sorts: list[Sort] = []
    for first, *_ in questions:
        t = trajectories[first]
        sorts.append((t.task.hops, question_pattern(t.submission.question if t.submission else "")))
    return spread(sorts, count, play.hops, rng, pool.served)


def _checked(
    played: Sequence[Trajectory], desk: EvidenceDesk, config: Config
) -> tuple[list[Trajectory], list[Refusal | None]]:
    """The proposals and each one's first failed check. One whose evidence cannot be read is the environment's fault."""
    trajectories: list[Trajectory] = []
    refusals: list[Refusal | None] = []
    for t in played:
        try:
            refusal = check_proposal(t, desk.reader(t.task.scope), config.rewards.proposer.checks)
        except IndexUnavailable as fault:
            t, refusal = undecided(t, f"evidence could not be checked: {fault}")
        trajectories.append(t)
        refusals.append(refusal)
    return trajectories, refusals


def undecided(t: Trajectory, reason: str) -> tuple[Trajectory, Refusal]:
    """The proposal as an environment fault, which is masked: nobody knows whether it is valid."""
    event = ToolEvent(len(t.turn_starts), "", {}, reason)
    faulted = replace(t, stop_reason=StopReason.ENVIRONMENT_FAULT, submission=None, events=(*t.events, event))
    return faulted, Refusal.NO_SUBMISSION


def asked_tasks(proposals: Proposals, config: Config, rng: random.Random) -> list[Task]:
    """One Solver task for each question that was sent on."""
    tasks: list[Task] = []
    done: set[str] = set()
    for t, group in zip(proposals.trajectories, proposals.group_of, strict=True):
        if group is None or group in done or t.submission is None:
            continue
        done.add(group)
        task = Task(
            role=Role.SOLVER,
            group_id=group,
            hops=t.task.hops,
            question=t.submission.question,
            answer=t.submission.answer,
            evidence=t.submission.evidence,
            tool_variant=rng.randrange(config.selfplay.tool_variants),
            parent=t.uid,
            scope=t.task.scope,
        )
        tasks.append(task)
    return tasks


def hint_tasks(asked: Sequence[Task], config: Config) -> list[Task]:
    """``selfplay.hint_generations`` tasks a question whose prompt names the evidence: SPADE's play with a hint."""
    hinted = [
        replace(task, group_id=f"{task.group_id}/hint", opening=f"hint: read {', '.join(task.evidence)}")
        for task in asked
    ]
    return [task for task in hinted for _ in range(config.selfplay.hint_generations)]
