"""Which of too many valid questions the Solvers get: all sorts alike, instead of the sort that is easiest to ask.

A small Proposer asks the same few sorts of question again and again. Solvers that train on them as they come learn the
favourite, not the question: whatever follows "the owner of", they look up the desk. Diversity counts by skill, not by
wording alone (``rewards.patterns`` has the cheap stand-in for a skill); where all questions differ in pattern, the draw
is uniform.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Mapping, Sequence
from types import MappingProxyType

Sort = tuple[int, Hashable]
"""Hops and pattern."""


def spread(
    sorts: Sequence[Sort],
    count: int,
    shares: Mapping[int, float],
    rng: random.Random,
    served: Mapping[Sort, float] = MappingProxyType({}),
) -> list[int]:
    """Places of up to ``count`` questions, each given as its (hops, pattern).

    Hops come as near to ``shares`` as what is there allows; within them every pattern gives one question before any
    gives a second, those that were ``served`` least so far first.
    """
    turns = {hops: _rounds([(i, s) for i, s in enumerate(sorts) if s[0] == hops], rng, served) for hops in shares}
    chosen: list[int] = []
    taken = dict.fromkeys(shares, 0)
    while len(chosen) < count and any(turns.values()):
        waiting = [hops for hops in shares if turns[hops]]
        hops = min(waiting, key=lambda h: (taken[h] + 1) / shares[h] if shares[h] else float("inf"))
        chosen.append(turns[hops].pop(0))
        taken[hops] += 1
    return chosen


def _rounds(items: Sequence[tuple[int, Sort]], rng: random.Random, served: Mapping[Sort, float]) -> list[int]:
    """The places in rounds: one of each sort, then the second of those that have one, and so on."""
    by_sort: dict[Sort, list[int]] = {}
    for place, sort in rng.sample(items, len(items)):
        by_sort.setdefault(sort, []).append(place)
    in_turn = [by_sort[sort] for sort in sorted(by_sort, key=lambda sort: served.get(sort, 0))]
    rounds = max(map(len, in_turn), default=0)
    return [places[k] for k in range(rounds) for places in in_turn if k < len(places)]
