from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import islice

import pytest

from corpus_index.ahead import read_ahead


def batches(size: int, count: int, read: list[int]) -> Iterator[list[int]]:
    for start in range(0, size * count, size):
        read.append(start)
        yield list(range(start, start + size))


def test_everything_in_order() -> None:
    assert list(read_ahead(batches(7, 30, []))) == list(range(210))
    assert list(read_ahead(iter([]))) == []


def test_never_more_than_depth_batches_ahead() -> None:
    read: list[int] = []
    items = read_ahead(batches(1, 50, read), depth=3)
    for taken, _ in enumerate(items, start=1):
        assert len(read) <= taken + 3 + 1  # and the one that waits for a place
    assert len(read) == 50


def test_a_failure_comes_after_the_items_before_it() -> None:
    def broken() -> Iterator[list[int]]:
        yield [1, 2]
        raise ValueError("cut short")

    items = read_ahead(broken())
    assert list(islice(items, 2)) == [1, 2]
    with pytest.raises(ValueError, match="cut short"):
        next(items)


def test_the_thread_ends_with_an_iterator_that_is_given_up() -> None:
    before = threading.active_count()
    items = read_ahead(batches(1, 10_000, []))
    assert next(items) == 0
    items.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before
