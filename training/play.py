"""The rollouts of a step: Proposers explore and ask, what they ask is checked, Solvers answer. Nothing is paid yet."""

from __future__ import annotations

import random
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from environments.task import Task
from rewards.judge import Judge
from rewards.llm_judge import EndpointJudge
from training.config import Config
from training.consistency import check_claims
from training.engines.base import Engine
from training.evidence import EvidenceDesk
from training.faults import FaultWatch
from training.game import Board, phase_sampling
from training.played import Played
from training.pool import QuestionPool
from training.proposals import asked_tasks, hint_tasks, propose, read, send_on
from training.refill import older_tasks, refill, solver_tasks


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


@dataclass(frozen=True, slots=True)
class StepPlay:
    """A step's rollouts. The pool is drawn from and left as it is."""

    engine: Engine
    board: Board
    judge: Judge
    config: Config
    step: int
    pool: QuestionPool
    faults: FaultWatch
    clock: Clock

    def play(self) -> Played:
        """Raises FaultStop where too many rollouts failed and ``env.on_faults`` says to stop."""
        rng = random.Random(f"{self.config.grpo.seed}/{self.step}")
        if self.config.selfplay.mode == "selfplay":
            played = self._ask(rng)
            tasks = solver_tasks(played.served, self.config)
        else:
            played, tasks = Played(), self.board.fixed_tasks(self.config, self.step, rng)
        return self._hint(self._solve(played, tasks))

    def _ask(self, rng: random.Random) -> Played:
        """The Proposers' phase: what is asked of the Solvers, nothing of it solved."""
        config, step, faults = self.config, self.step, self.faults
        metrics: dict[str, float] = {}
        desk = EvidenceDesk(self.board, config.tools)
        with self.clock("propose"):
            old = min(round(config.selfplay.pool_share * config.selfplay.max_solver_groups), len(self.pool))
            groups = config.selfplay.max_solver_groups - old
            proposals = propose(self.engine, self.board, config, step, rng, faults, desk)
        if isinstance(self.judge, EndpointJudge) and config.rewards.judge.proposals and not faults.lost:
            with self.clock("consistency"):
                proposals, metrics = check_claims(proposals, self.judge, desk, config, faults)
        if config.rewards.reader.enabled and not faults.lost:
            with self.clock("read"):
                proposals = read(self.engine, self.judge, config, step, proposals, desk)
        proposals = send_on(proposals, config, step, rng, groups, self.pool)
        if faults.lost:
            return Played(proposals, metrics=metrics)
        asked = asked_tasks(proposals, config, rng)
        return Played(proposals, asked, older_tasks(self.pool, old, asked, config, step, rng), metrics=metrics)

    def _solve(self, played: Played, tasks: Sequence[Task]) -> Played:
        with self.clock("solve"):
            solved = self.engine.rollout(tasks, phase_sampling(self.config, self.step, 1))
            self.faults.count(solved)
            played = replace(played, solved=solved)
            if not self.config.selfplay.refill_rounds:
                return played
            return refill(self.engine, self.judge, self.config, self.step, played, self.pool, self.faults)

    def _hint(self, played: Played) -> Played:
        if not (self.config.selfplay.hint_generations and played.asked):
            return played
        with self.clock("hint"):
            tasks = hint_tasks(played.asked, self.config)
            hinted = self.engine.rollout(tasks, phase_sampling(self.config, self.step, 3))
            self.faults.count(hinted)
            return replace(played, hinted=hinted)
