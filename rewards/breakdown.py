"""A reward is its named parts; the total is their sum, so what a log shows is what was trained on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class RewardBreakdown:
    """``components`` are already weighted; ``total`` is their sum. ``masked`` keeps a rollout out of its group.

    ``labels`` are facts worth logging that carry no pay (``correct``, ``valid``, a refusal reason).
    """

    components: Mapping[str, float]
    labels: Mapping[str, float | str | bool]
    masked: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "components", MappingProxyType(dict(self.components)))
        object.__setattr__(self, "labels", MappingProxyType(dict(self.labels)))

    @property
    def total(self) -> float:
        return float(sum(self.components.values()))
