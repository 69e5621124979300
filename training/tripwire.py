"""Numbers that leave their band pause the run, before a collapse has eaten the weights worth keeping.

The mismatch of sampler and trainer rises many steps before rewards fall, so it is watched by default; entropy, the
valid rate, lengths and the gradient's norm are watched where the recipe gives them a band.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from environments.task import Role
from training.config_stability import TripwireConfig
from training.faults import RunStop

REMEMBERED = 12
"""Steps whose numbers a diagnosis can show."""


class TripwireStop(RunStop):
    """The run pauses here, by ``tripwire``; the weights are those of the step that left its band."""


@dataclass(frozen=True, slots=True)
class Band:
    """``metric`` belongs between ``low`` and ``high``, both included; None: no bound on that side."""

    metric: str
    low: float | None = None
    high: float | None = None

    def holds(self, value: float) -> bool:
        """A number that is not finite is outside of every band."""
        return (
            math.isfinite(value)
            and (self.low is None or value >= self.low)
            and (self.high is None or value <= self.high)
        )

    def __str__(self) -> str:
        if self.high is None:
            return f"at least {self.low:g}"
        return f"at most {self.high:g}" if self.low is None else f"{self.low:g} to {self.high:g}"


@dataclass(frozen=True, slots=True)
class Breach:
    """``value`` is this step's, the last of ``steps`` running outside the band."""

    band: Band
    value: float
    steps: int

    def __str__(self) -> str:
        return f"{self.band.metric} is {self.value:.4g}, its band is {self.band}, for {self.steps} steps running"


def bands(settings: TripwireConfig) -> list[Band]:
    """Those with a bound; none where the tripwire is off."""
    if not settings.enabled:
        return []
    both = [
        band
        for role in Role
        for band in (
            Band(f"mismatch/{role}/token_mult_prob_error", high=settings.max_token_mult_prob_error),
            Band(f"mismatch/{role}/gen_kl_error", high=settings.max_gen_kl_error),
            Band(f"mismatch/{role}/is_oob_ratio", high=settings.max_is_oob_ratio),
            Band(f"episode/{role}/entropy", settings.min_entropy, settings.max_entropy),
            Band(f"episode/{role}/tokens", high=settings.max_tokens),
        )
    ]
    shared = [
        Band("proposals/valid_rate", low=settings.min_valid_rate),
        Band("update/grad_norm", high=settings.max_grad_norm),
    ]
    return [band for band in (*both, *shared) if (band.low, band.high) != (None, None)]


class Tripwire:
    """Counts for each band the steps running outside of it. A step that has no such number (nothing was updated, a role
    did not play) leaves its count as it is."""

    def __init__(self, settings: TripwireConfig, state: Mapping[str, Any] | None = None) -> None:
        """``state``: what ``state()`` gave. It may be empty."""
        state = state or {}
        self._patience = settings.patience
        self._bands = bands(settings)
        self._outside: Counter[str] = Counter(state.get("outside", {}))
        self._recent: deque[tuple[int, dict[str, float]]] = deque(
            ((step, dict(values)) for step, values in state.get("recent", [])), maxlen=REMEMBERED
        )

    def check(self, step: int, metrics: Mapping[str, float]) -> list[Breach]:
        """The bands that ``patience`` steps running were left, this one included; usually none.

        Their counts start again: whoever goes on after a pause has seen it, and gets as many steps again.
        """
        breaches: list[Breach] = []
        for band in self._bands:
            value = metrics.get(band.metric)
            if value is None:
                continue
            self._outside[band.metric] = 0 if band.holds(value) else self._outside[band.metric] + 1
            if self._outside[band.metric] >= self._patience:
                breaches.append(Breach(band, value, self._outside[band.metric]))
        for breach in breaches:
            del self._outside[breach.band.metric]
        self._recent.append((step, {name: v for name, v in metrics.items() if math.isfinite(v) and _telling(name)}))
        return breaches

    def recent(self) -> list[tuple[int, dict[str, float]]]:
        """(step, telling metrics) of the last steps, oldest first."""
        return list(self._recent)

    def state(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "outside": {name: count for name, count in self._outside.items() if count},
            "recent": [[step, values] for step, values in self._recent],
        }


def summary(breaches: Iterable[Breach]) -> str:
    return "; ".join(map(str, breaches))


_TELLING = ("mismatch/", "episode/", "reward/", "proposals/valid_rate", "groups/", "age/", "faults/share", "update/")


def _telling(name: str) -> bool:
    return name.startswith(_TELLING)
