from __future__ import annotations

import json
import random
from collections import Counter
from datetime import UTC, datetime

from corpus_index.scope import MailScope
from environments.task import Role, Task
from training.pool import PER_SORT, QuestionPool, sort_of

SHARES = {1: 0.5, 2: 0.5}


def task(question: str, hops: int = 2, **more: object) -> Task:
    return Task(role=Role.SOLVER, group_id="1/s0", question=question, answer="7", hops=hops, **more)  # type: ignore[arg-type]


def test_a_rare_sort_is_drawn_as_often_as_a_common_one() -> None:
    pool = QuestionPool([task(f"Where does the owner of P{k} sit?") for k in range(50)])
    pool.add([task("Which extension reaches the manager of Ada?"), task("Which team is Ada in?", hops=1)])
    assert len(pool) == 3
    drawn = pool.draw(3, SHARES, (), random.Random(0))
    assert Counter(map(sort_of, drawn)).most_common(1)[0][1] == 1
    assert len(pool.draw(99, SHARES, (), random.Random(0))) == PER_SORT + 2


def test_the_newest_are_kept_and_sorts_that_are_asked_anyway_are_left_out() -> None:
    pool = QuestionPool([task(f"Where does P{k} sit?") for k in range(PER_SORT + 3)])
    held = {t.question for t in pool.draw(99, SHARES, (), random.Random(0))}
    assert held == {f"Where does P{k} sit?" for k in range(3, PER_SORT + 3)}
    assert pool.draw(99, SHARES, [sort_of(task("Where does Q sit?"))], random.Random(0)) == []
    # The same words with another number of hops are another sort.
    assert pool.draw(99, SHARES, [sort_of(task("Where does Q sit?", hops=1))], random.Random(0))


def test_the_sorts_served_least_come_first() -> None:
    pool = QuestionPool()
    desk, team = task("Where does the owner of P sit?"), task("Which team is the owner of P in?")
    pool.add([desk, team], again=[desk])
    assert [pool.draw(1, SHARES, (), random.Random(seed)) for seed in range(5)] == [[team]] * 5
    pool.add([], again=[team, team])
    assert [pool.draw(1, SHARES, (), random.Random(seed)) for seed in range(5)] == [[desk]] * 5
    again = QuestionPool.load(json.loads(json.dumps(pool.state())))
    assert again.served == pool.served
    assert QuestionPool.load({}).served == {}


def test_a_checkpoint_brings_the_pool_back() -> None:
    scope = MailScope(mailboxes=("ada",), after=datetime(2001, 5, 1, tzinfo=UTC))
    tasks = [
        task("Who manages A1?", evidence=("m1", "m2"), scope=scope, parent="3/p1/0", tool_variant=2),
        *(task(f"Where does P{k} sit?") for k in range(6)),
    ]
    pool = QuestionPool(tasks)
    again = QuestionPool.load(json.loads(json.dumps(pool.state())))
    for seed in range(5):
        assert again.draw(4, SHARES, (), random.Random(seed)) == pool.draw(4, SHARES, (), random.Random(seed))
    assert tasks[0] in again.draw(99, SHARES, (), random.Random(0))
    # What joins later meets the same order.
    for each in (pool, again):
        each.add([task("Where does New sit?")])
    assert pool.state() == again.state()
