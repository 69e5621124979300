"""What the Solvers' answers say of a question beyond how many were right. It lowers the Proposer's pay afterwards.

The game this file guards: a vague or guessable question is answered by luck now and then, and so looks like one of
middling difficulty. A right answer whose Solver never opened the evidence is a guess; wrong answers that all differ
are the mark of a question that means several things; wrong answers that agree, by Solvers that read the evidence, are
the mark of a wrong key. (Solvers that did not read it agree on what looks like the answer elsewhere. A question with
such a trap is a good one, so they are no witnesses unless ``witnesses`` says so.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from rewards.agreement import group_answers, scatter
from rewards.answers import MatchSettings
from rewards.breakdown import RewardBreakdown


class OutcomeSettings(BaseModel):
    """``enabled`` false: p is the share of right answers and nothing is cut."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    enabled: bool = False
    """A right answer counts into p only if its Solver opened every mail of the evidence; and the cuts below."""
    guessed: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Times the share of the right answers that are guesses: the part of the pay that is cut."""
    vague: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Times the scatter of the wrong answers and their share of all Solvers: the part of what is left that is cut."""
    wrong_key: Annotated[float, Field(gt=0, le=1)] = 0.5
    """From this share of the witnesses on, wrong answers that agree, and are more than the right ones, cost all pay."""
    witnesses: Literal["readers", "all"] = "readers"
    """Whose wrong answers tell of a wrong key: of Solvers that opened every mail of the evidence, or of all."""


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Shares in [0, 1], of ``n`` Solvers unless said otherwise. ``p`` is what the pay's shape is taken of; ``guessed``
    is a share of the right answers; ``scattered`` is the scatter of the wrong answers times their share. Of the
    witnesses, ``rival`` is the share of the largest group of wrong answers that agree, ``agreed`` of the right ones."""

    n: int
    right: float
    p: float
    guessed: float = 0.0
    scattered: float = 0.0
    rival: float = 0.0
    agreed: float = 0.0

    def wrong_key(self, settings: OutcomeSettings) -> bool:
        return settings.enabled and self.rival >= settings.wrong_key and self.rival > self.agreed


def measure(
    solved: Sequence[tuple[RewardBreakdown, str]], question: str, settings: OutcomeSettings, answers: MatchSettings
) -> Outcomes:
    """``solved`` are the Solvers' breakdowns and what they answered, masked ones left out. n = 0 for none of them."""
    n = len(solved)
    if not n:
        return Outcomes(0, 0.0, 0.0)
    right = [pay for pay, _ in solved if pay.labels["verdict"] == "right"]
    if not settings.enabled:
        return Outcomes(n, len(right) / n, len(right) / n)
    grounded = sum(bool(pay.labels["grounded"]) for pay in right)
    wrong = _agreeing(solved, question, answers)
    witnesses = [pair for pair in solved if settings.witnesses == "all" or pair[0].labels["grounded"]]
    said_right = sum(pay.labels["verdict"] == "right" for pay, _ in witnesses)
    return Outcomes(
        n=n,
        right=len(right) / n,
        p=grounded / n,
        guessed=1 - grounded / len(right) if right else 0.0,
        scattered=scatter(wrong) * sum(wrong) / n,
        rival=max(_agreeing(witnesses, question, answers), default=0) / max(len(witnesses), 1),
        agreed=said_right / max(len(witnesses), 1),
    )


def _agreeing(solved: Sequence[tuple[RewardBreakdown, str]], question: str, answers: MatchSettings) -> list[int]:
    """Sizes of the groups of wrong answers that agree."""
    wrong = [answer for pay, answer in solved if pay.labels["verdict"] in ("wrong", "unsure")]
    return group_answers(wrong, question, answers)


def cuts(pay: float, outcomes: Outcomes, settings: OutcomeSettings) -> dict[str, float]:
    """Components at most 0 by name. They never take more than there is, and leave a ``pay`` below 0 alone."""
    if not settings.enabled or pay <= 0:
        return dict.fromkeys(("guessed", "vague", "wrong_key"), 0.0)
    guessed = -pay * settings.guessed * outcomes.guessed
    vague = -(pay + guessed) * settings.vague * outcomes.scattered
    wrong_key = -(pay + guessed + vague) if outcomes.wrong_key(settings) else 0.0
    return {"guessed": guessed, "vague": vague, "wrong_key": wrong_key}
