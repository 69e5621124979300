from __future__ import annotations

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from training.spread import spread

SORTS = st.lists(st.tuples(st.sampled_from((1, 2)), st.sampled_from("abcd")), max_size=40)


def test_a_rare_pattern_is_never_crowded_out() -> None:
    sorts = [(2, "desk")] * 30 + [(2, "phone"), (2, "team")]
    for seed in range(20):
        chosen = spread(sorts, 6, {2: 1.0}, random.Random(seed))
        assert Counter(sorts[i] for i in chosen) == {(2, "desk"): 4, (2, "phone"): 1, (2, "team"): 1}


def test_hops_follow_the_shares_while_there_are_enough() -> None:
    sorts = [(1, str(i)) for i in range(20)] + [(2, str(i)) for i in range(20)]
    chosen = spread(sorts, 12, {1: 0.25, 2: 0.75}, random.Random(0))
    assert Counter(sorts[i][0] for i in chosen) == {1: 3, 2: 9}
    scarce = sorts[:20] + sorts[20:24]
    assert Counter(scarce[i][0] for i in spread(scarce, 12, {1: 0.25, 2: 0.75}, random.Random(0))) == {1: 8, 2: 4}


@given(SORTS, st.integers(1, 50), st.integers(0, 99))
def test_nothing_is_chosen_twice_and_no_place_stays_empty(sorts: list[tuple[int, str]], count: int, seed: int) -> None:
    chosen = spread(sorts, count, {1: 0.5, 2: 0.5}, random.Random(seed))
    assert len(chosen) == len(set(chosen)) == min(count, len(sorts))
    assert chosen == spread(sorts, count, {1: 0.5, 2: 0.5}, random.Random(seed))
    # Within one hop count, no pattern is two ahead of one that still has a question left.
    for hops in (1, 2):
        there = Counter(sort for h, sort in sorts if h == hops)
        taken = Counter(sorts[i][1] for i in chosen if sorts[i][0] == hops)
        waiting = [taken[sort] for sort in there if taken[sort] < there[sort]]
        assert max(taken.values(), default=0) <= min(waiting, default=10**9) + 1


def test_the_draw_differs_by_seed() -> None:
    sorts = [(1, str(i)) for i in range(10)]
    assert len({tuple(spread(sorts, 3, {1: 1.0}, random.Random(seed))) for seed in range(10)}) > 5


def test_hops_that_the_shares_do_not_name_are_left_out() -> None:
    assert spread([(1, "a"), (3, "b")], 5, {1: 1.0}, random.Random(0)) == [0]
