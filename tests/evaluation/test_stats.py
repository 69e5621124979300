from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluation.stats import bootstrap_mean


def test_agrees_with_all_possible_resamples() -> None:
    values = [0.0, 1.0, 1.0, 5.0]
    means = sorted(np.mean(draw) for draw in itertools.product(values, repeat=4))  # 256, equally likely
    interval = bootstrap_mean(values, confidence=0.9, resamples=40_000)
    assert interval.mean == pytest.approx(1.75)
    assert interval.low == pytest.approx(np.quantile(means, 0.05), abs=0.26)  # one step of the lattice
    assert interval.high == pytest.approx(np.quantile(means, 0.95), abs=0.26)


def test_agrees_with_all_possible_resamples_of_clusters() -> None:
    clusters = {"a": [1.0, 1.0, 0.0], "b": [0.0], "c": [1.0, 0.0]}
    values = [value for part in clusters.values() for value in part]
    names = [name for name, part in clusters.items() for _ in part]
    draws = itertools.product(clusters.values(), repeat=3)  # 27
    means = [np.mean(list(itertools.chain.from_iterable(draw))) for draw in draws]
    interval = bootstrap_mean(values, clusters=names, confidence=0.8, resamples=20_000)
    assert interval.mean == pytest.approx(0.5)
    assert interval.low == pytest.approx(np.quantile(means, 0.1), abs=0.05)
    assert interval.high == pytest.approx(np.quantile(means, 0.9), abs=0.05)
    assert (interval.count, interval.clusters) == (6, 3)


def test_width_is_that_of_a_normal_mean() -> None:
    values = np.random.default_rng(1).normal(size=2000)
    interval = bootstrap_mean(values.tolist())
    half = 1.96 * values.std() / math.sqrt(values.size)
    assert interval.high - interval.low == pytest.approx(2 * half, rel=0.08)


def test_repeated_questions_of_an_entity_make_the_interval_no_narrower() -> None:
    outcomes = [float(n % 3 == 0) for n in range(60)]
    single = bootstrap_mean(outcomes)
    repeated = [value for value in outcomes for _ in range(8)]
    entities = [entity for entity in range(60) for _ in range(8)]
    clustered = bootstrap_mean(repeated, clusters=entities)
    naive = bootstrap_mean(repeated)
    assert (clustered.low, clustered.high) == pytest.approx((single.low, single.high))
    assert naive.high - naive.low < 0.5 * (clustered.high - clustered.low)


def test_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    hits = 0
    for trial in range(200):
        skill = rng.beta(2, 2, size=60)  # one an entity; mean 0.5
        answers = (rng.random((60, 4)) < skill[:, None]).astype(float)
        names = np.repeat(np.arange(60), 4).tolist()
        interval = bootstrap_mean(answers.ravel().tolist(), clusters=names, resamples=300, seed=trial)
        hits += interval.low <= 0.5 <= interval.high
    assert 0.89 <= hits / 200 <= 0.99  # 0.95 within four standard errors


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.integers(0, 4)), min_size=1, max_size=30), st.integers(0, 99))
def test_is_repeatable_and_stays_within_the_values(pairs: list[tuple[float, int]], seed: int) -> None:
    values, names = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    first = bootstrap_mean(values, clusters=names, resamples=300, seed=seed)
    assert first == bootstrap_mean(values, clusters=names, resamples=300, seed=seed)
    slack = 1e-9 * max(1.0, max(abs(value) for value in values))
    assert min(values) - slack <= first.low <= first.high <= max(values) + slack


def test_one_cluster_has_no_width() -> None:
    interval = bootstrap_mean([0.0, 1.0], clusters=["a", "a"])
    assert (interval.low, interval.mean, interval.high) == (0.5, 0.5, 0.5)


def test_refusals() -> None:
    with pytest.raises(ValueError, match="no values"):
        bootstrap_mean([])
    with pytest.raises(ValueError, match="1 of 2 values are not finite"):
        bootstrap_mean([0.0, math.nan])
    with pytest.raises(ValueError, match="2 values but 1 cluster names"):
        bootstrap_mean([0.0, 1.0], clusters=["a"])
    with pytest.raises(ValueError, match="confidence is 95"):
        bootstrap_mean([0.0], confidence=95)
    with pytest.raises(ValueError, match="resamples is 0"):
        bootstrap_mean([0.0], resamples=0)
