"""The rollouts of a step: Proposers explore and ask, what they ask is checked, Solvers answer. Nothing is paid yet."""

from __future__ import annotations

import random
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from environments.task import Task
from environments.trajectory import Trajectory
from rewards.judge import Judge
from rewards.llm_judge import EndpointJudge
from training.config import Config
from training.consistency import check_claims
from training.engines.base import Engine
from training.evidence import EvidenceDesk
from training.faults import FaultWatch
from training.game import Board, phase_sampling
from training.pool import QuestionPool
from training.proposals import Proposals, asked_tasks, hint_tasks, propose, read, send_on
from training.refill import Solved, older_tasks, refill, solver_tasks


@dataclass(frozen=True, slots=True)
class Played:
    """``asked`` and ``older`` are one task a Solver group, of this step's questions and of the pool's; ``solved`` are
    their rollouts, ``hinted`` those of Solvers who were told the evidence. ``metrics`` are what came up on the way."""

    proposals: Proposals = field(default_factory=Proposals)
    asked: list[Task] = field(default_factory=list[Task])
    older: list[Task] = field(default_factory=list[Task])
    solved: list[Trajectory] = field(default_factory=list[Trajectory])
    hinted: list[Trajectory] = field(default_factory=list[Trajectory])
    metrics: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def trajectories(self) -> list[Trajectory]:
        """Those that may be trained on, the Proposers' first."""
        return [*self.proposals.trajectories, *self.solved]


class Clock:
    """``with clock("solve"):`` adds the block's seconds under that name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.aside: dict[str, float] = {}
        """What went on at the same time elsewhere, and is no part of the whole."""

    def beside(self, prefix: str, other: Clock) -> None:
        self.aside |= {f"{prefix}/{name}": seconds for name, seconds in other.seconds.items()}

    @contextmanager
    def __call__(self, name: str) -> Generator[None]:
        started = time.monotonic()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - started


def play(
    engine: Engine,
    board: Board,
    judge: Judge,
    config: Config,
    step: int,
    pool: QuestionPool,
    faults: FaultWatch,
    clock: Clock,
) -> Played:
    """The pool is drawn from and left as it is. Raises FaultStop where too many rollouts failed and ``env.on_faults``
    says to stop."""
    rng = random.Random(f"{config.grpo.seed}/{step}")
    if config.selfplay.mode == "selfplay":
        played = _ask(engine, board, judge, config, step, pool, faults, clock, rng)
        tasks = solver_tasks([*played.asked, *played.older], config)
    else:
        played, tasks = Played(), board.fixed_tasks(config, step, rng)
    with clock("solve"):
        solved = engine.rollout(tasks, phase_sampling(config, step, 1))
        faults.count(solved)
        played = replace(played, solved=solved)
        if config.selfplay.refill_rounds:
            played = _refilled(played, engine, judge, config, step, pool, faults)
    if config.selfplay.hint_generations and played.asked:
        with clock("hint"):
            hinted = engine.rollout(hint_tasks(played.asked, config), phase_sampling(config, step, 3))
            faults.count(hinted)
            played = replace(played, hinted=hinted)
    return played


def _ask(
    engine: Engine,
    board: Board,
    judge: Judge,
    config: Config,
    step: int,
    pool: QuestionPool,
    faults: FaultWatch,
    clock: Clock,
    rng: random.Random,
) -> Played:
    """The Proposers' phase: what is asked of the Solvers, nothing of it solved."""
    metrics: dict[str, float] = {}
    desk = EvidenceDesk(board, config.tools)
    with clock("propose"):
        old = min(round(config.selfplay.pool_share * config.selfplay.max_solver_groups), len(pool))
        groups = config.selfplay.max_solver_groups - old
        proposals = propose(engine, board, config, step, rng, faults, desk)
    if isinstance(judge, EndpointJudge) and config.rewards.judge.proposals and not faults.lost:
        with clock("consistency"):
            proposals, metrics = check_claims(proposals, judge, desk, config, faults)
    if config.rewards.reader.enabled and not faults.lost:
        with clock("read"):
            proposals = read(engine, judge, config, step, proposals, desk)
    proposals = send_on(proposals, config, step, rng, groups, pool)
    if faults.lost:
        return Played(proposals, metrics=metrics)
    asked = asked_tasks(proposals, config, rng)
    return Played(proposals, asked, older_tasks(pool, old, asked, config, step, rng), metrics=metrics)


def _refilled(
    played: Played, engine: Engine, judge: Judge, config: Config, step: int, pool: QuestionPool, faults: FaultWatch
) -> Played:
    first = Solved(played.proposals, played.asked, played.older, played.solved)
    final = refill(engine, judge, config, step, first, pool, faults)
    return Played(
        final.proposals, final.asked, final.older, final.trajectories, metrics=played.metrics | final.metrics(first)
    )
