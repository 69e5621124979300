"""Which items a step is dealt from an endless row of shuffled passes over all of them."""

from __future__ import annotations

import random
from functools import lru_cache


def dealt(total: int, count: int, step: int, seed: int, *, shuffle: bool = True) -> list[int]:
    """Places of the ``count`` items, out of ``total``, of a step (the first is 1): each comes once before any comes
    again, where ``count`` is the same at every step.

    What a step is dealt follows from its number alone, so a resumed run needs no state for it. A step that crosses the
    end of a pass may hold an item twice. Raises ZeroDivisionError for no items.
    """
    places = (divmod(place, total) for place in range((step - 1) * count, step * count))
    return [_order(total, seed, epoch)[k] if shuffle else k for epoch, k in places]


@lru_cache(maxsize=4)  # a step seldom meets more than two passes
def _order(total: int, seed: int, epoch: int) -> tuple[int, ...]:
    return tuple(random.Random(f"{seed}/pass {epoch}").sample(range(total), total))
