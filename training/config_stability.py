"""``tripwire``: the bands that a step's numbers must stay in, or the run pauses. ``training.tripwire`` watches them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from training.config_base import NonNegativeFloat, PositiveFloat, PositiveInt, Section, refuse


class TripwireConfig(Section):
    """A bound of null is not watched. The three of the mismatch hold for every engine and model; the others depend on
    both: set them from what a healthy run showed. Each role is watched on its own."""

    enabled: bool = True
    patience: PositiveInt = 2
    """Steps running outside its band before a number pauses the run."""
    max_token_mult_prob_error: Annotated[float, Field(gt=1)] | None = 1.05
    max_gen_kl_error: PositiveFloat | None = 5e-3
    max_is_oob_ratio: Annotated[float, Field(ge=0, lt=1)] | None = 0.01
    """Share of tokens that the sampler and the trainer give probabilities a factor of 2 apart."""
    min_entropy: NonNegativeFloat | None = None
    """Nats a token. A fall to 0 is a policy that has stopped to explore."""
    max_entropy: PositiveFloat | None = None
    """A rise is a policy that loses its formats."""
    min_valid_rate: Annotated[float, Field(ge=0, le=1)] | None = None
    """Of the Proposers' questions."""
    max_tokens: PositiveFloat | None = None
    """Sampled tokens an episode."""
    max_grad_norm: PositiveFloat | None = None
    """Before clipping."""

    @model_validator(mode="after")
    def _bands_are_open(self) -> TripwireConfig:
        low, high = self.min_entropy, self.max_entropy
        refuse(
            {
                f"min_entropy {low} is not below max_entropy {high}: every step would be outside": (
                    low is not None and high is not None and low >= high
                )
            }
        )
        return self
