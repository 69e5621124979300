"""The Proposers' part of a step: roll out, check, choose what the Solvers get, and pay once they have answered."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from corpus_index.backends.base import IndexUnavailable
from corpus_index.document import Document
from corpus_index.retries import RetrySettings
from corpus_index.scope import MailScope
from environments.task import Role, Task
from environments.trajectory import StopReason, ToolEvent, Trajectory
from rewards.breakdown import RewardBreakdown
from rewards.patterns import question_pattern
from rewards.proposer_pay import proposer_reward
from rewards.refusal import Refusal, check_proposal
from training.config import Config
from training.engines.base import Engine
from training.faults import FaultWatch
from training.game import Board, phase_sampling
from training.pool import QuestionPool
from training.spread import Sort, spread


@dataclass(frozen=True, slots=True)
class Proposals:
    """Aligned ``[proposals]``. ``group_of`` names the Solver group of a question that was sent on, else None; proposals
    with the same question and key share one."""

    trajectories: list[Trajectory]
    refusals: list[Refusal | None]
    group_of: list[str | None]


def propose(
    engine: Engine,
    board: Board,
    config: Config,
    step: int,
    rng: random.Random,
    faults: FaultWatch,
    groups: int,
    pool: QuestionPool,
) -> Proposals:
    """At most ``groups`` questions are sent on to the Solvers."""
    try:
        tasks = board.proposer_tasks(config, step, rng)
    except IndexUnavailable as fault:
        faults.unreadable(fault)
        return Proposals([], [], [])
    trajectories, refusals = _checked(engine.rollout(tasks, phase_sampling(config, step, 0)), board, config)
    faults.count(trajectories)
    # Equal questions of one step are one question: its Solvers would only measure the same thing twice.
    distinct: dict[tuple[str, str], list[int]] = {}
    for i, (t, refusal) in enumerate(zip(trajectories, refusals, strict=True)):
        if refusal is None and t.submission is not None:
            distinct.setdefault((t.submission.question, t.submission.answer), []).append(i)
    questions = list(distinct.values())
    sent = [questions[i] for i in _chosen(questions, trajectories, config, groups, rng, pool)]
    group_of: list[str | None] = [None] * len(trajectories)
    for k, members in enumerate(sent):
        for i in members:
            group_of[i] = f"{step}/s{k}"
    return Proposals(trajectories, refusals, group_of)


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
    played: Sequence[Trajectory], board: Board, config: Config
) -> tuple[list[Trajectory], list[Refusal | None]]:
    """The proposals and each one's first failed check. One whose evidence cannot be read is the environment's fault."""
    trajectories: list[Trajectory] = []
    refusals: list[Refusal | None] = []
    evidence = _Evidence(board, config.tools)
    for t in played:
        try:
            refusals.append(check_proposal(t, evidence.reader(t.task.scope), config.rewards.proposer.checks))
            trajectories.append(t)
        except IndexUnavailable as fault:
            event = ToolEvent(len(t.turn_starts), "", {}, f"evidence could not be checked: {fault}")
            refusals.append(Refusal.NO_SUBMISSION)
            trajectories.append(
                replace(t, stop_reason=StopReason.ENVIRONMENT_FAULT, submission=None, events=(*t.events, event))
            )
    return trajectories, refusals


class _Evidence:
    """Reads mails with the tools' retries. Once these were in vain the step's other proposals are given up unasked: one
    after the other, they would wait for hours."""

    def __init__(self, board: Board, patience: RetrySettings) -> None:
        self._board = board
        self._patience = patience
        self._gone: IndexUnavailable | None = None

    def reader(self, scope: MailScope | None) -> Callable[[str], Document | None]:
        def read(mail_id: str) -> Document | None:
            if self._gone is not None:
                raise IndexUnavailable(str(self._gone)) from self._gone
            try:
                return self._board.read(mail_id, self._patience, scope)
            except IndexUnavailable as fault:
                self._gone = fault
                raise

        return read


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


def proposer_pay(
    proposals: Proposals, solved: Sequence[Trajectory], solver_pay: Sequence[RewardBreakdown], config: Config
) -> list[RewardBreakdown]:
    outcomes: dict[str, list[RewardBreakdown]] = {}
    for t, pay in zip(solved, solver_pay, strict=True):
        outcomes.setdefault(t.group_id, []).append(pay)
    return [
        proposer_reward(t, refusal, outcomes[group] if group is not None else (), config.rewards.proposer)
        for t, refusal, group in zip(proposals.trajectories, proposals.refusals, proposals.group_of, strict=True)
    ]
