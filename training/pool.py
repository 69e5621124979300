"""Valid questions of earlier steps, kept so that the Solvers meet every sort of question at every step.

Proposers ask some sorts far more often than others, and a Solver that trains on them as they come learns what is asked
most instead of what is asked. So some of a step's Solver groups answer older questions, of patterns that the step's own
questions lack. Their rollouts are as fresh as all others; only the question is old, and no Proposer is paid for it.

What Solvers always answer teaches little, and among it are most slips of a Proposer's tongue, which nobody asks again:
such a sort comes round less often. What they never answer most likely has a wrong key and leaves, but not too soon: a
rare sort may have a single question, and at the start a hard one is answered by one Solver in twenty.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from pydantic import TypeAdapter

from environments.task import Task
from rewards.patterns import question_pattern
from training.spread import Sort, spread

PER_SORT = 8  # questions kept of one sort, the newest
SOLVED = 2.0  # turns that a sort waits longer once all of a group's answers were right
PATIENCE = 4  # groups in a row without a right answer after which a question leaves
_TASKS = TypeAdapter(list[Task])
_NONE: Mapping[str, float] = MappingProxyType({})


def sort_of(task: Task) -> Sort:
    """Hops and pattern."""
    return task.hops, question_pattern(task.question)


class QuestionPool:
    """Solver tasks by sort, the newest last, and how much Solvers were given of each sort, ``served``: a group counts
    1, and up to ``SOLVED`` more the nearer its answers were to all right."""

    def __init__(self, tasks: Iterable[Task] = ()) -> None:
        self._by_sort: dict[Sort, list[Task]] = {}
        self.served: dict[Sort, float] = {}
        self._unsolved: dict[tuple[str, str], int] = {}  # by question and answer: groups in a row without a right one
        self._keep(tasks)

    def __len__(self) -> int:
        return len(self._by_sort)

    def add(self, tasks: Sequence[Task], again: Sequence[Task] = (), success: Mapping[str, float] = _NONE) -> None:
        """Keep this step's questions; Solvers were given them and, of the pool, ``again``.

        ``success`` is the share of right answers by group id, for the groups of which it is known.
        """
        for task in (*tasks, *again):
            sort, group, key = sort_of(task), task.group_id, _key(task)
            self.served[sort] = self.served.get(sort, 0.0) + 1 + SOLVED * success.get(group, 0.0)
            if group in success:
                self._unsolved[key] = 0 if success[group] else self._unsolved.get(key, 0) + 1
        self._keep(tasks)
        self._let_go()

    def _let_go(self) -> None:
        """Of the questions that nobody answers, and of the counts of questions that are not held."""
        for sort, kept in list(self._by_sort.items()):
            kept[:] = [task for task in kept if self._unsolved.get(_key(task), 0) < PATIENCE]
            if not kept:
                del self._by_sort[sort]
        held = {_key(task) for kept in self._by_sort.values() for task in kept}
        self._unsolved = {key: count for key, count in self._unsolved.items() if count and key in held}

    def _keep(self, tasks: Iterable[Task]) -> None:
        for task in tasks:
            kept = self._by_sort.setdefault(sort_of(task), [])
            kept.append(task)
            del kept[:-PER_SORT]

    def draw(self, count: int, shares: Mapping[int, float], without: Iterable[Sort], rng: random.Random) -> list[Task]:
        """Up to ``count`` tasks of sorts other than ``without``, those served least first: a sort that is not asked any
        more would be forgotten."""
        left = set(without)
        held = [(sort, task) for sort, kept in self._by_sort.items() if sort not in left for task in kept]
        return [held[i][1] for i in spread([sort for sort, _ in held], count, shares, rng, self.served)]

    def state(self) -> dict[str, Any]:
        """What ``load`` reads back, as JSON values."""
        tasks = [task for kept in self._by_sort.values() for task in kept]
        return {
            "tasks": _TASKS.dump_python(tasks, mode="json"),
            "served": [list(item) for item in self.served.items()],
            "unsolved": [[*key, count] for key, count in self._unsolved.items()],
        }

    @classmethod
    def load(cls, state: Mapping[str, Any]) -> QuestionPool:
        """``state`` may be empty."""
        pool = cls(_TASKS.validate_python(state.get("tasks", [])))
        pool.served.update({(hops, pattern): count for (hops, pattern), count in state.get("served", [])})
        pool._unsolved.update({(question, answer): count for question, answer, count in state.get("unsolved", [])})
        return pool


def _key(task: Task) -> tuple[str, str]:
    return task.question, task.answer
