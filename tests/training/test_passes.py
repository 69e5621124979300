from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from training.passes import dealt


@given(st.integers(1, 40), st.data(), st.integers(0, 99), st.booleans())
def test_every_item_comes_once_before_any_comes_again(n: int, data: st.DataObject, seed: int, shuffle: bool) -> None:
    count = data.draw(st.integers(1, 2 * n))
    times: Counter[int] = Counter()
    for step in range(1, 20):
        times.update(dealt(n, count, step, seed, shuffle=shuffle))
        assert sum(times.values()) == step * count
        assert max(times.values()) - min(times[k] for k in range(n)) <= 1


def test_passes_differ_and_the_seed_decides_them() -> None:
    passes = [dealt(30, 30, step, 1) for step in (1, 2)]
    assert passes[0] != passes[1]
    assert dealt(30, 30, 1, 2) != passes[0]
    # A step is the same wherever one starts.
    assert dealt(30, 7, 5, 1) == [*passes[0], *passes[1]][28:35]
    assert dealt(3, 4, 2, 1, shuffle=False) == [1, 2, 0, 1]
