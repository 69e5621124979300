"""What a Proposer is paid for: a valid question that the Solvers answer sometimes, but not always.

The game: the Proposer hands in (question, answer, evidence mails). The checks of ``rewards.refusal`` come first; a
refused question stays in its group with the lowest pay, 0, because failures are contrast and a penalty below 0 starts a
spiral (2510.18821). Only the Solvers' success then pays, and what their answers say of the question may cut the pay
(``rewards.outcomes``). A question nobody solves pays exactly 0: any pay for it is hacked within minutes by unsolvable
or wrong questions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from environments.trajectory import StopReason, Trajectory
from rewards.answers import DEFAULT, MatchSettings
from rewards.breakdown import RewardBreakdown
from rewards.outcomes import Outcomes, OutcomeSettings, cuts, measure
from rewards.refusal import ProposerChecks, Refusal, demand_proposer
from rewards.shapes import Shape, shape_value


class ProposerReward(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    shape: Shape = "flat_top"
    weight: float = Field(default=1.0, gt=0.0, allow_inf_nan=False)
    """Times the shape's value: the ``success`` component."""
    valid: float = Field(default=0.0, ge=0.0, allow_inf_nan=False)
    """Paid for any valid question that was sent to Solvers."""
    zero_if_unsolved: bool = True
    """A question that no Solver answered pays exactly 0, ``valid`` included. (With ``outcomes`` on: answered from the
    evidence.)"""
    outcomes: OutcomeSettings = OutcomeSettings()
    """Cuts of the pay for guesses, scattered answers and agreement on another answer."""
    diversity: float = Field(default=0.0, ge=0.0, allow_inf_nan=False)
    """Times the question's diversity in its group and over time (``rewards.diversity``), where a Solver answered it."""
    diversity_window: Annotated[int, Field(ge=1)] = 512
    """Questions of earlier steps that count as recent."""
    refused: float | None = Field(default=0.0, le=0.0, allow_inf_nan=False)
    """Pay of a refused question; null leaves it out of its group. Anything but 0 is there to show a failure: below 0 a
    Proposer learns to say less and less (2510.18821), and without its failures a group has no contrast."""
    checks: ProposerChecks = Field(default_factory=ProposerChecks)


def proposer_reward(
    trajectory: Trajectory,
    refusal: Refusal | None,
    outcomes: Sequence[RewardBreakdown],
    settings: ProposerReward,
    *,
    answers: Sequence[str] = (),
    hinted: Sequence[RewardBreakdown] = (),
    diversity: float = 0.0,
    notes: Mapping[str, float] | None = None,
    matching: MatchSettings = DEFAULT,
) -> RewardBreakdown:
    """Pay one proposal from its refusal and the breakdowns of its Solver rollouts (empty when none were run).

    ``answers`` are what these Solvers answered, aligned with ``outcomes`` and empty text for no answer; only
    ``settings.outcomes`` needs them. ``hinted`` are rollouts with the evidence ids in the prompt, for shape regret.
    ``diversity`` is the question's, in [0, 1]. ``notes`` are a reader's measurements.

    Components: ``valid``, ``success``, then ``guessed``, ``vague`` and ``wrong_key`` (at most 0, and never more than
    what there is to cut), ``diversity``, and ``refused``. Labels: ``refusal`` (empty when valid), ``p_hat`` (what the
    shape is taken of, -1 when unmeasured), ``n_solvers`` (unmasked outcomes), ``hops`` (asked for),
    ``unsolved_budget``; with ``settings.outcomes`` on ``right_rate``, ``guess_rate``, ``scattered``, ``rival_rate`` and
    ``wrong_key``; with hints ``p_hint``; and ``reader_...`` of ``notes``.

    Refused: total ``settings.refused``, and in its group unless that is None. Masked: an environment fault, or a valid
    question without any usable Solver outcome (for regret: or hinted one), whose worth nobody knows.

    Raises:
        ValueError: the trajectory is not a Proposer's, a refused proposal comes with Solver outcomes, or ``answers``
            are missing where they are needed.
    """
    demand_proposer(trajectory, "proposer_reward")
    if refusal is not None and outcomes:
        raise ValueError(
            f"proposal {trajectory.uid} was refused ({refusal.value}) yet has {len(outcomes)} Solver outcomes; "
            "send only valid questions to Solvers"
        )
    if settings.outcomes.enabled and len(answers) != len(outcomes):
        raise ValueError(
            f"proposal {trajectory.uid} has {len(outcomes)} Solver outcomes and {len(answers)} answers; "
            "rewards.proposer.outcomes needs one answer each, empty where a Solver gave none"
        )
    said = answers or [""] * len(outcomes)
    usable = [pair for pair in zip(outcomes, said, strict=True) if not pair[0].masked]
    question = trajectory.submission.question if trajectory.submission else ""
    seen = measure(usable, question, settings.outcomes, matching)
    hints = [pay.labels["verdict"] == "right" for pay in hinted if not pay.masked]
    p_hint = sum(hints) / len(hints) if hints else None
    fault = trajectory.stop_reason is StopReason.ENVIRONMENT_FAULT
    known = seen.n > 0 and (settings.shape != "regret" or p_hint is not None)
    paid = not fault and refusal is None and known and (seen.p > 0.0 or not settings.zero_if_unsolved)
    valid = success = 0.0
    if paid:
        valid, success = settings.valid, settings.weight * shape_value(settings.shape, seen.p, seen.n, p_hint)
    solved = paid and seen.p > 0.0 and not seen.wrong_key(settings.outcomes)
    return RewardBreakdown(
        {
            "valid": valid,
            "success": success,
            **cuts(valid + success, seen, settings.outcomes),
            "diversity": settings.diversity * diversity if solved else 0.0,
            "refused": (settings.refused or 0.0) if refusal is not None and not fault else 0.0,
        },
        {
            "refusal": refusal.value if refusal else "",
            "p_hat": seen.p if seen.n else -1.0,
            "n_solvers": float(seen.n),
            "hops": float(trajectory.task.hops),
            "unsolved_budget": refusal is None and not fault and not outcomes,
            **(_outcome_labels(seen, settings.outcomes) if settings.outcomes.enabled and seen.n else {}),
            **({} if p_hint is None else {"p_hint": p_hint}),
            **{f"reader_{name}": value for name, value in (notes or {}).items()},
        },
        masked=fault or (not known if refusal is None else settings.refused is None),
    )


def _outcome_labels(seen: Outcomes, settings: OutcomeSettings) -> dict[str, float | bool]:
    return {
        "right_rate": seen.right,
        "guess_rate": seen.guessed,
        "scattered": seen.scattered,
        "rival_rate": seen.rival,
        "wrong_key": seen.wrong_key(settings),
    }
