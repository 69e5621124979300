"""Train and held-out rows that share no entity and no mail of evidence, or validation would measure memory."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Sequence

from environments.chat_rows import ChatRow
from training.sft_data.filters import StageOutcome

SPLIT, TRAIN, HELD_OUT = "split", "train", "held_out"


def split(rows: Sequence[ChatRow], share: float, seed: int) -> StageOutcome:
    """Every row labelled ``split``: train or held_out; those that have a foot on each side are dropped.

    Rows that are linked by shared entities form clusters, which stay whole where they fit into what is still to be held
    out. Of a cluster that does not (entities link most rows of a dense corpus) single rows are held out, and the rows
    that share only some of their entities straddle.
    """
    wanted = round(share * len(rows))
    clusters = _clusters(rows)
    size = Counter(clusters)
    members: dict[int, list[int]] = defaultdict(list)
    by_entity: dict[str, list[int]] = defaultdict(list)
    for place, row in enumerate(rows):
        members[clusters[place]].append(place)
        for entity in row.entities:
            by_entity[entity].append(place)
    held: set[str] = set()
    out: set[int] = set()
    for place in random.Random(f"{seed}/split").sample(range(len(rows)), len(rows)):
        if len(out) >= wanted:
            break
        if place in out:
            continue
        whole = size[clusters[place]] <= wanted - len(out)
        for taken in members[clusters[place]] if whole else [place]:
            held.update(rows[taken].entities)
            out.add(taken)
        touched = {other for entity in rows[place].entities for other in by_entity[entity]}
        out.update(other for other in touched if held.issuperset(rows[other].entities))
    kept: list[ChatRow] = []
    dropped: Counter[str] = Counter()
    notes: Counter[str] = Counter()
    for place, row in enumerate(rows):
        if place not in out and not held.isdisjoint(row.entities):
            dropped["straddles"] += 1
            continue
        side = HELD_OUT if place in out else TRAIN
        notes[side] += 1
        kept.append(row.model_copy(update={"labels": {**row.labels, SPLIT: side}}))
    return StageOutcome(kept, dropped, notes)


def _clusters(rows: Sequence[ChatRow]) -> list[int]:
    """A number for each row; rows linked through shared entities have the same one."""
    parent = list(range(len(rows)))

    def root(place: int) -> int:
        while parent[place] != place:
            parent[place] = place = parent[parent[place]]
        return place

    first: dict[str, int] = {}
    for place, row in enumerate(rows):
        for entity in row.entities:
            parent[root(place)] = root(first.setdefault(entity, place))
    return [root(place) for place in range(len(rows))]
