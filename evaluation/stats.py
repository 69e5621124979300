"""How sure a benchmark number is: percentile bootstrap intervals, by question or by cluster of questions."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 2000
_BLOCK = 256  # resamples drawn at a time: bounds memory at _BLOCK x clusters


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its interval, ``low <= mean <= high`` but for odd samples; ``count`` values in ``clusters``."""

    mean: float
    low: float
    high: float
    count: int
    clusters: int


def bootstrap_mean(
    values: Sequence[float],
    *,
    clusters: Sequence[Hashable] | None = None,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """Percentile bootstrap of the mean of ``values`` ``[n]`` (Efron 1979).

    With ``clusters`` ``[n]`` whole clusters are drawn with replacement: questions about one entity stand or fall
    together, so drawing single questions would give too narrow an interval. The mean stays the plain mean over values.
    Where all values are equal the interval has no width; that says nothing about rare failures.

    Raises ValueError on no values, a value that is not finite, lengths that differ, or a confidence outside (0, 1).
    """
    x = np.asarray(values, dtype=np.float64)
    if x.size == 0:
        raise ValueError("no values to average; expected at least one")
    if not np.isfinite(x).all():
        raise ValueError(f"{int((~np.isfinite(x)).sum())} of {x.size} values are not finite; drop or fix them first")
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence is {confidence}; expected a share between 0 and 1, such as 0.95")
    if resamples < 1:
        raise ValueError(f"resamples is {resamples}; expected at least 1")
    if clusters is None:
        index_of_value = np.arange(x.size)
    else:
        if len(clusters) != x.size:
            raise ValueError(f"{x.size} values but {len(clusters)} cluster names; expected one name a value")
        order: dict[Hashable, int] = {}
        index_of_value = np.asarray([order.setdefault(name, len(order)) for name in clusters])
    sums = np.bincount(index_of_value, weights=x)
    sizes = np.bincount(index_of_value).astype(np.float64)
    rng = np.random.default_rng(seed)
    means = np.empty(resamples, dtype=np.float64)
    for start in range(0, resamples, _BLOCK):
        stop = min(start + _BLOCK, resamples)
        drawn = rng.integers(0, sums.size, size=(stop - start, sums.size))
        means[start:stop] = sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1)
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(means, [tail, 1.0 - tail])
    return Interval(mean=float(x.mean()), low=float(low), high=float(high), count=int(x.size), clusters=int(sums.size))
