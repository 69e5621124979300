"""What every section of the configuration shares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


class Section(BaseModel):
    """A strict, frozen section: an unknown key or a value of another type is an error, never a guess."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)


def _shares_sum_to_one(shares: dict[int, float]) -> dict[int, float]:
    bad = {hops: share for hops, share in shares.items() if hops < 1 or share < 0}
    if bad:
        raise ValueError(f"hop counts start at 1 and shares at 0, got {bad}")
    if abs(sum(shares.values()) - 1.0) > 1e-6:
        raise ValueError(
            f"the shares sum to {sum(shares.values()):g}, they must sum to 1; a child recipe's mapping is merged into "
            "its parent's, so write `_override_: true` inside it to replace the parent's"
        )
    return {hops: share for hops, share in sorted(shares.items()) if share > 0}


HopShares = Annotated[dict[int, float], AfterValidator(_shares_sum_to_one)]
"""Wanted hop count -> share of the prompts, for example ``{1: 0.2, 2: 0.8}``."""

PositiveInt = Annotated[int, Field(gt=0)]
NonNegativeInt = Annotated[int, Field(ge=0)]
PositiveFloat = Annotated[float, Field(gt=0)]
NonNegativeFloat = Annotated[float, Field(ge=0)]
GroupSize = Annotated[int, Field(ge=2)]
"""Rollouts of one prompt. A group of one has no baseline, so its advantage is always 0."""


def refuse(forbidden: Mapping[str, bool]) -> None:
    """Raise ValueError with every reason whose condition holds."""
    reasons = [reason for reason, holds in forbidden.items() if holds]
    if reasons:
        raise ValueError("; ".join(reasons))
