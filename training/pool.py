"""Valid questions of earlier steps, kept so that the Solvers meet every sort of question at every step.

Proposers ask some sorts far more often than others, and a Solver that trains on them as they come learns what is asked
most instead of what is asked. So some of a step's Solver groups answer older questions, of patterns that the step's own
questions lack. Their rollouts are as fresh as all others; only the question is old, and no Proposer is paid for it.

A sort's share of the Solvers grows with the square root of how often it is asked. Were all sorts served alike, slips of
the Proposer's tongue ("how desk does ... sit"), each asked once or twice and a sort of its own, would take half of all
Solver groups; were they served as they are asked, the rarest would be forgotten.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter

from environments.task import Task
from rewards.patterns import question_pattern
from training.spread import Sort, spread

PER_SORT = 8  # questions kept of one sort, the newest
_TASKS = TypeAdapter(list[Task])


def sort_of(task: Task) -> Sort:
    """Hops and pattern."""
    return task.hops, question_pattern(task.question)


class QuestionPool:
    """Solver tasks by sort, the newest last; how often valid questions ``asked`` each sort, and how often Solvers were
    given it: ``served``."""

    def __init__(self, tasks: Iterable[Task] = ()) -> None:
        self._by_sort: dict[Sort, list[Task]] = {}
        self.asked: Counter[Sort] = Counter()
        self.served: Counter[Sort] = Counter()
        self._keep(tasks)

    def __len__(self) -> int:
        return len(self._by_sort)

    def add(self, tasks: Sequence[Task], again: Iterable[Task] = (), valid: Iterable[Sort] | None = None) -> None:
        """Keep this step's questions; Solvers were given them and, of the pool, ``again``. ``valid``: the sorts of all
        valid questions, where there were more than were given to Solvers."""
        self.asked.update(map(sort_of, tasks) if valid is None else valid)
        self.served.update(map(sort_of, (*tasks, *again)))
        self._keep(tasks)

    def turn(self, valid: Iterable[Sort] = ()) -> Callable[[Sort], float]:
        """Whose turn it is: the sort with the lowest value. ``valid`` are sorts of this step, not yet added."""
        asked = self.asked + Counter(valid)
        return lambda sort: self.served[sort] / math.sqrt(max(asked[sort], 1))

    def _keep(self, tasks: Iterable[Task]) -> None:
        for task in tasks:
            kept = self._by_sort.setdefault(sort_of(task), [])
            kept.append(task)
            del kept[:-PER_SORT]

    def draw(self, count: int, shares: Mapping[int, float], without: Iterable[Sort], rng: random.Random) -> list[Task]:
        """Up to ``count`` tasks of sorts other than ``without``, in turn: a sort that is not asked any more would be
        forgotten."""
        left = set(without)
        held = [(sort, task) for sort, kept in self._by_sort.items() if sort not in left for task in kept]
        return [held[i][1] for i in spread([sort for sort, _ in held], count, shares, rng, self.turn())]

    def state(self) -> dict[str, Any]:
        """What ``load`` reads back, as JSON values."""
        tasks = [task for kept in self._by_sort.values() for task in kept]
        counts = {name: [list(item) for item in count.items()] for name, count in self._counts().items()}
        return {"tasks": _TASKS.dump_python(tasks, mode="json"), **counts}

    @classmethod
    def load(cls, state: Mapping[str, Any]) -> QuestionPool:
        """``state`` may be empty."""
        pool = cls(_TASKS.validate_python(state.get("tasks", [])))
        for name, count in pool._counts().items():
            count.update({(hops, pattern): n for (hops, pattern), n in state.get(name, [])})
        return pool

    def _counts(self) -> dict[str, Counter[Sort]]:
        return {"asked": self.asked, "served": self.served}
