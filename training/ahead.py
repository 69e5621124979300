"""Rollouts that run ahead of training: both phases of the next steps, in a thread of their own.

Step s is played while the steps before it are trained, and at most ``max_age`` of them are still to be trained when it
begins: its rollouts are trained at most that many updates after their weights. A player that is further ahead waits, so
nothing is thrown away for its age. What is asked of old questions comes from the pool as it was when the step was
allowed.

Which weights a step is played with depends on how fast both sides are. Neither a second run nor a resumed one repeats
the first exactly; what was played and not yet trained is played again after a resume.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Queue, SimpleQueue
from threading import Lock, Thread
from typing import TypeVar

from rewards.judge import Judge
from training.config import Config
from training.engines.base import Engine
from training.faults import FaultWatch
from training.game import Board
from training.play import Clock, StepPlay
from training.played import Played
from training.pool import QuestionPool

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Round:
    """One step's rollouts, what failed in them, and the seconds that they took."""

    step: int
    played: Played
    faults: FaultWatch
    clock: Clock


@dataclass(frozen=True, slots=True)
class _Permit:
    step: int
    config: Config
    pool: QuestionPool


class RolloutsAhead:
    """The engine's rollouts run in the player's thread, everything else in the caller's. The thread begins with the
    first step that is taken, waits where it is not allowed to go on, and ends with the process."""

    def __init__(self, engine: Engine, board: Board, judge: Judge, *, max_age: int, last_step: int) -> None:
        self._engine = engine
        self._board = board
        self._judge = judge
        self._max_age = max_age
        self._last_step = last_step
        self._allowed: int | None = None
        self._permits: SimpleQueue[_Permit] = SimpleQueue()
        self._rounds: Queue[Round | BaseException] = Queue(maxsize=max_age + 1)
        self._playing = Lock()
        self._thread: Thread | None = None

    def take(self, step: int, config: Config, pool: QuestionPool) -> Round:
        """The rollouts of ``step``, whose predecessors are all trained; those of the next ``max_age`` steps may begin.

        Raises what the rollouts raised, ValueError for a step out of turn.
        """
        first = step if self._allowed is None else self._allowed + 1
        for number in range(first, min(step + self._max_age, self._last_step) + 1):
            # A copy: the caller's pool goes on while this step is played.
            self._permits.put(_Permit(number, config, QuestionPool.load(pool.state())))
            self._allowed = number
        if self._thread is None:
            self._thread = Thread(target=self._run, name="rollouts ahead", daemon=True)
            self._thread.start()
        found = self._rounds.get()
        if isinstance(found, BaseException):
            raise found
        if found.step != step:
            raise ValueError(f"step {step} was asked for and step {found.step} is next: take every step once, in order")
        return found

    @contextmanager
    def paused(self) -> Generator[None]:
        """Wait for the step that is being played, and let none begin: the engine's rollouts are the caller's."""
        with self._playing:
            yield

    def alone(self, measure: Callable[[], T]) -> Callable[[], T]:
        """``measure`` while nothing else is played."""

        def measured() -> T:
            with self.paused():
                return measure()

        return measured

    def _run(self) -> None:
        while True:
            permit = self._permits.get()
            try:
                with self._playing:
                    self._rounds.put(self._play(permit))
            except BaseException as error:  # the caller's to judge, in its own thread
                self._rounds.put(error)
                return

    def _play(self, permit: _Permit) -> Round:
        faults, clock = FaultWatch(permit.config.env), Clock()
        step = StepPlay(self._engine, self._board, self._judge, permit.config, permit.step, permit.pool, faults, clock)
        return Round(permit.step, step.play(), faults, clock)
