"""Valid questions of earlier steps, kept so that the Solvers meet every sort of question at every step.

Proposers ask some sorts far more often than others, and a Solver that trains on them as they come learns what is asked
most instead of what is asked. So some of a step's Solver groups answer older questions, of patterns that the step's own
questions lack. Their rollouts are as fresh as all others; only the question is old, and no Proposer is paid for it.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import TypeAdapter

from environments.task import Task
from training.spread import question_pattern, spread

Sort = tuple[int, str]
PER_SORT = 4  # questions kept of one sort, the newest
_TASKS = TypeAdapter(list[Task])


def sort_of(task: Task) -> Sort:
    """Hops and pattern."""
    return task.hops, question_pattern(task.question)


class QuestionPool:
    """Solver tasks by sort, the newest last."""

    def __init__(self, tasks: Iterable[Task] = ()) -> None:
        self._by_sort: dict[Sort, list[Task]] = {}
        self.add(tasks)

    def __len__(self) -> int:
        return len(self._by_sort)

    def add(self, tasks: Iterable[Task]) -> None:
        for task in tasks:
            kept = self._by_sort.setdefault(sort_of(task), [])
            kept.append(task)
            del kept[:-PER_SORT]

    def draw(self, count: int, shares: Mapping[int, float], without: Iterable[Sort], rng: random.Random) -> list[Task]:
        """Up to ``count`` tasks of sorts other than ``without``, of as many sorts as there are."""
        left = set(without)
        held = [(sort, task) for sort, kept in self._by_sort.items() if sort not in left for task in kept]
        return [held[i][1] for i in spread([sort for sort, _ in held], count, shares, rng)]

    def state(self) -> list[dict[str, Any]]:
        """What ``load`` reads back, as JSON values."""
        return _TASKS.dump_python([task for kept in self._by_sort.values() for task in kept], mode="json")

    @classmethod
    def load(cls, state: object) -> QuestionPool:
        return cls(_TASKS.validate_python(state))
