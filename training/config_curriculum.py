"""The phases of a hop curriculum, as configured; ``training.curriculum`` walks them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from training.config_base import HopShares, PositiveInt, Section, refuse

Share = Annotated[float, Field(ge=0, le=1)]


class Until(Section):
    """Either ends the phase: its last step by number, or the measures below held for a number of steps in a row."""

    step: PositiveInt | None = None
    """The phase ends with this step of the run."""
    valid_rate: Share | None = None
    """At least this share of the proposals is valid."""
    success: Annotated[tuple[Share, Share] | None, Field(strict=False)] = None
    """The Solvers' mean success on the new questions lies in this band, bounds included."""
    steps: PositiveInt = 5
    """So many steps in a row."""

    @model_validator(mode="after")
    def _ends(self) -> Until:
        refuse(
            {
                "an `until` needs step, valid_rate or success": self.step is self.valid_rate is self.success is None,
                f"success {self.success} is empty: write the lower bound first": (
                    self.success is not None and self.success[0] > self.success[1]
                ),
            }
        )
        return self


class PhaseConfig(Section):
    hops: HopShares
    """In place of ``selfplay.hops``."""
    strict: bool = False
    """Hops must be needed: ``rewards.proposer.checks.bridge`` and ``rewards.reader.necessity`` are on. Else both are
    off."""
    until: Until | None = None
    """null: to the end of the run. Only the last phase may say so."""
