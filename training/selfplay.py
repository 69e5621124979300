"""One step of self-play: propose -> solve -> reward -> select -> update -> report.

The same weights play both roles. Proposers explore the corpus and hand in questions; every valid question becomes a
Solver group; Solvers are paid for right answers, Proposers for questions that Solvers answer sometimes; one update
moves both roles, each divided by its own tokens.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from corpus_index.backends.base import IndexUnavailable
from corpus_index.document import Document
from corpus_index.retries import RetrySettings
from corpus_index.scope import MailScope
from environments.task import Role, Task
from environments.trajectory import StopReason, ToolEvent, Trajectory
from rewards.breakdown import RewardBreakdown
from rewards.judge import Judge
from rewards.proposer import Refusal, check_proposal, proposer_reward
from rewards.solver import solver_reward
from training.advantages import group_advantages
from training.config import Config
from training.engines.base import Engine, Sampling, Weighted
from training.faults import FaultWatch
from training.game import Board
from training.losses import role_weights
from training.mismatch import beyond_threshold, mismatch_metrics, sequence_errors
from training.pool import QuestionPool, sort_of
from training.samples import Record, trajectory_record
from training.selection import out_of_group, select
from training.spread import Sort, question_pattern, spread
from training.step_metrics import game_metrics, proposal_metrics


@dataclass
class StepReport:
    """``seconds`` by part of the step; ``samples`` are all rollouts with their rewards; ``trouble`` says in one line
    what the search index failed, empty where it did not."""

    metrics: dict[str, float] = field(default_factory=dict[str, float])
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    samples: list[Record] = field(default_factory=list[Record])
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Proposals:
    """Aligned ``[proposals]``. ``group_of`` names the Solver group of a question that was sent on, else None; proposals
    with the same question and key share one."""

    trajectories: list[Trajectory]
    refusals: list[Refusal | None]
    group_of: list[str | None]


def train_step(
    engine: Engine, board: Board, judge: Judge, config: Config, step: int, pool: QuestionPool | None = None
) -> StepReport:
    """All draws come from ``grpo.seed``, ``step`` and ``pool``, so a resumed run repeats the unbroken one.

    ``pool`` holds questions of earlier steps (None: none); this step's join it once nothing can fail any more.

    Raises FaultStop, with the weights as they were, where the index failed too many rollouts and ``env.on_faults`` says
    to stop.
    """
    report = StepReport()
    pool = QuestionPool() if pool is None else pool
    faults = FaultWatch(config.env)
    clock = _Clock(report.seconds)
    rng = random.Random(f"{config.grpo.seed}/{step}")
    if config.selfplay.mode == "selfplay":
        with clock("propose"):
            old = min(round(config.selfplay.pool_share * config.selfplay.max_solver_groups), len(pool))
            groups = config.selfplay.max_solver_groups - old
            proposals = _propose(engine, board, config, step, rng, faults, groups, pool)
        asked = [] if faults.lost else _asked(proposals, config, rng)
        older = [] if faults.lost else _older(pool, old, asked, config, step, rng)
        solver_tasks = [task for task in (*asked, *older) for _ in range(config.selfplay.solver_generations)]
    else:
        proposals, asked, older = Proposals([], [], []), list[Task](), list[Task]()
        solver_tasks = board.fixed_tasks(config, step, rng)
    with clock("solve"):
        solved = engine.rollout(solver_tasks, _sampling(config, step, 1))
        faults.count(solved)
    with clock("reward"):
        solver_pay = [solver_reward(t, judge, config.rewards.solver) for t in solved]
        trajectories = [*proposals.trajectories, *solved]
        pay = [*_proposer_pay(proposals, solved, solver_pay, config), *solver_pay]
        advantages = _advantages(trajectories, pay, config)
    with clock("logprobs"):
        alive = [i for i, a in enumerate(advantages) if a != 0]
        recomputed = engine.logprobs([trajectories[i] for i in alive])
        errors = sequence_errors([trajectories[i] for i in alive], recomputed)
        flags = dict(zip(alive, beyond_threshold(errors, config.grpo.seq_logprob_error_threshold), strict=True))
    selection = select(
        trajectories, pay, advantages, config.grpo,
        logprob_error=[flags.get(i, False) for i in range(len(trajectories))],
    )  # fmt: skip
    with clock("update"):
        kept = () if faults.lost else selection.kept
        report.metrics |= _update(engine, trajectories, advantages, kept, config)
        engine.sync_weights()
    report.metrics |= selection.metrics | mismatch_metrics([trajectories[i] for i in alive], recomputed)
    report.metrics |= game_metrics(trajectories, pay)
    report.metrics |= proposal_metrics(proposals.trajectories, proposals.refusals, proposals.group_of, board, judge)
    report.metrics |= {"pool/sorts": float(len(pool)), "pool/drawn": float(len(older))}
    report.metrics |= faults.metrics()
    pool.add(asked, older)
    report.trouble = faults.summary()
    trained = set(kept)
    report.samples = [
        trajectory_record(t, p, advantages[i] if i in trained else None)
        for i, (t, p) in enumerate(zip(trajectories, pay, strict=True))
    ]
    report.seconds["total"] = sum(report.seconds.values())
    return report


def _propose(
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
    trajectories, refusals = _checked(engine.rollout(tasks, _sampling(config, step, 0)), board, config)
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


def _asked(proposals: Proposals, config: Config, rng: random.Random) -> list[Task]:
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


def _older(
    pool: QuestionPool, count: int, asked: Sequence[Task], config: Config, step: int, rng: random.Random
) -> list[Task]:
    """Tasks of earlier steps, at most ``count``, of the sorts that this step's questions lack."""
    play = config.selfplay
    drawn = pool.draw(count, play.hops, map(sort_of, asked), rng)
    return [
        replace(task, group_id=f"{step}/r{k}", tool_variant=rng.randrange(play.tool_variants))
        for k, task in enumerate(drawn)
    ]


def _proposer_pay(
    proposals: Proposals, solved: Sequence[Trajectory], solver_pay: Sequence[RewardBreakdown], config: Config
) -> list[RewardBreakdown]:
    outcomes: dict[str, list[RewardBreakdown]] = {}
    for t, pay in zip(solved, solver_pay, strict=True):
        outcomes.setdefault(t.group_id, []).append(pay)
    return [
        proposer_reward(t, refusal, outcomes[group] if group is not None else (), config.rewards.proposer)
        for t, refusal, group in zip(proposals.trajectories, proposals.refusals, proposals.group_of, strict=True)
    ]


def _advantages(trajectories: Sequence[Trajectory], pay: Sequence[RewardBreakdown], config: Config) -> list[float]:
    return group_advantages(
        [p.total for p in pay],
        [t.group_id for t in trajectories],
        [out_of_group(t, p) for t, p in zip(trajectories, pay, strict=True)],
        config.grpo,
        roles=[t.role for t in trajectories],
    )


def _update(
    engine: Engine, trajectories: Sequence[Trajectory], advantages: Sequence[float], kept: Sequence[int], config: Config
) -> dict[str, float]:
    """Nothing to learn from is no error: the step is counted and the weights stay."""
    if not kept:
        return {"update/skipped": 1.0}
    chosen = [trajectories[i] for i in kept]
    weights = role_weights(
        [t.role for t in chosen], [t.sampled_tokens for t in chosen],
        config.selfplay.role_weights.model_dump(), config.loss_fn,
    )  # fmt: skip
    batch = [Weighted(t, advantages[i], w) for i, t, w in zip(kept, chosen, weights, strict=True)]
    metrics = engine.update(batch, config.loss_fn)
    return {f"update/{name}": value for name, value in metrics.items()} | {"update/skipped": 0.0}


def _sampling(config: Config, step: int, phase: int) -> Sampling:
    seed = random.Random(f"{config.grpo.seed}/{step}/{phase}").getrandbits(48)
    return Sampling(temperature=config.policy.generation.temperature, seed=seed)


class _Clock:
    """``with clock("solve"):`` adds the block's seconds under that name."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self._seconds = seconds

    def __call__(self, name: str) -> _Clock:
        self._name = name
        return self

    def __enter__(self) -> None:
        self._started = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self._seconds[self._name] = self._seconds.get(self._name, 0.0) + time.monotonic() - self._started
