from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime

from corpus_index.scope import MailScope
from environments.task import Role, Task
from training.pool import PATIENCE, PER_SORT, QuestionPool, sort_of

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


def asked(question: str, group: str) -> Task:
    return replace(task(question), group_id=group)


def test_what_is_always_answered_comes_round_less_often() -> None:
    pool = QuestionPool()
    easy, hard = asked("Where does the owner of P sit?", "1/s0"), asked("Which team is the owner of P in?", "1/s1")
    pool.add([easy, hard], success={"1/s0": 1.0, "1/s1": 0.25})
    drawn: Counter[str] = Counter()
    for step in range(2, 32):
        (again,) = pool.draw(1, SHARES, (), random.Random(step))
        drawn[again.question] += 1
        again = replace(again, group_id=f"{step}/r0")
        pool.add([], again=[again], success={again.group_id: 1.0 if again.question == easy.question else 0.25})
    # One turn in (1 + 2 * success): 3 against 1.5.
    assert drawn[hard.question] == 2 * drawn[easy.question]


def test_a_question_that_nobody_solves_leaves_but_not_for_bad_luck() -> None:
    pool = QuestionPool()
    wrong, hard = asked("Where does the owner of P sit?", "1/s0"), asked("Where does the owner of Q sit?", "1/s1")
    pool.add([wrong, hard], success={"1/s0": 0.0, "1/s1": 0.0})

    def serve(step: int, share: float | None) -> None:
        groups = [replace(wrong, group_id=f"{step}/r0", tool_variant=1), replace(hard, group_id=f"{step}/r1")]
        pool.add([], again=groups, success={} if share is None else {f"{step}/r0": 0.0, f"{step}/r1": share})

    for step in range(2, PATIENCE):
        serve(step, 0.0)
    serve(PATIENCE, None)  # its rollouts were lost: nothing is known
    assert len(pool.draw(9, SHARES, (), random.Random(0))) == 2
    pool = QuestionPool.load(json.loads(json.dumps(pool.state())))  # the count is in the checkpoint
    serve(PATIENCE + 1, 0.125)
    assert pool.draw(9, SHARES, (), random.Random(0)) == [hard], "answered once, it starts anew"
    for step in range(PATIENCE + 2, 2 * PATIENCE + 1):
        serve(step, 0.0)
    assert len(pool) == 1
    serve(2 * PATIENCE + 1, 0.0)
    assert len(pool) == 0
    assert pool.draw(9, SHARES, (), random.Random(0)) == []
    assert pool.state()["unsolved"] == []


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
