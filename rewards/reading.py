"""Is a question worth asking? What a reader without tools makes of it, in up to three contexts.

* ``closed_book``: the question alone. Answered right, it needs no search.
* ``evidence``: the evidence mails among distractors. Not answered with the key, the evidence does not support it (SSP's
  RAG check, 2510.18821); answers that agree on something else say that the key is wrong.
* ``necessity``, from two hops on: the evidence without one mail, for each mail. Still answered right, the mail is not
  needed and the question has fewer hops than it claims (the hop proof of SSP's and SearchMaster's kind, 2608.01822).

Who reads is not known here: the policy itself or another model. A context that nobody could read leaves the proposal
undecided, never accepted and never refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from rewards.agreement import group_answers
from rewards.answers import MatchSettings, Verdict
from rewards.refusal import Refusal


class ReaderCheck(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    enabled: bool = False
    rollouts: Annotated[int, Field(ge=1)] = 4
    """Readings of one context."""
    threshold: Annotated[float, Field(gt=0, le=1)] = 0.5
    """The context counts as answered from this share of right readings on."""


class EvidenceCheck(ReaderCheck):
    distractors: Annotated[int, Field(ge=0)] = 4
    """Mails beside the evidence: the best hits of the question that are not evidence, here and in ``necessity``."""


class ReaderSettings(BaseModel):
    """Each check can be switched on by itself; all off, no question is read."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    closed_book: ReaderCheck = ReaderCheck()
    evidence: EvidenceCheck = EvidenceCheck()
    necessity: ReaderCheck = ReaderCheck()

    @property
    def enabled(self) -> bool:
        return self.closed_book.enabled or self.evidence.enabled or self.necessity.enabled


@dataclass(frozen=True, slots=True)
class Reply:
    """One reading: the verdict as ``solver_reward`` labels it, and the answer."""

    verdict: str = "none"
    answer: str = ""


@dataclass(frozen=True, slots=True)
class Readings:
    """The replies by context, those of the machinery's faults left out. ``without``: one context for each evidence mail
    that is left out, in the order of the evidence."""

    closed_book: Sequence[Reply] = ()
    evidence: Sequence[Reply] = ()
    without: Sequence[Sequence[Reply]] = ()


@dataclass(frozen=True, slots=True)
class ReadVerdict:
    """``unknown``: a context that had to be read was not. ``labels`` are shares of right readings: ``closed_book``,
    ``read``, and ``needless``, the greatest share without one mail."""

    refusal: Refusal | None = None
    unknown: bool = False
    labels: Mapping[str, float] = field(default_factory=dict[str, float])


def judge_readings(question: str, readings: Readings, settings: ReaderSettings, answers: MatchSettings) -> ReadVerdict:
    """The first check that fails, in the order closed book, evidence, necessity.

    A check that is on and has no replies in a context makes the verdict unknown, unless an earlier one refused.
    ``necessity`` looks at ``readings.without`` as it is: empty where one mail is all the evidence.
    """
    labels: dict[str, float] = {}
    if settings.closed_book.enabled:
        if not readings.closed_book:
            return ReadVerdict(None, True, labels)
        labels["closed_book"] = _share_right(readings.closed_book)
        if labels["closed_book"] >= settings.closed_book.threshold:
            return ReadVerdict(Refusal.CLOSED_BOOK, False, labels)
    if settings.evidence.enabled:
        if not readings.evidence:
            return ReadVerdict(None, True, labels)
        labels["read"] = _share_right(readings.evidence)
        if labels["read"] < settings.evidence.threshold:
            wrong = [reply.answer for reply in readings.evidence if reply.verdict == Verdict.WRONG]
            rival = max(group_answers(wrong, question, answers), default=0) / len(readings.evidence)
            agreed = rival >= settings.evidence.threshold
            return ReadVerdict(Refusal.WRONG_KEY if agreed else Refusal.UNSUPPORTED, False, labels)
    if settings.necessity.enabled and readings.without:
        if not all(readings.without):
            return ReadVerdict(None, True, labels)
        labels["needless"] = max(map(_share_right, readings.without))
        if labels["needless"] >= settings.necessity.threshold:
            return ReadVerdict(Refusal.UNNECESSARY, False, labels)
    return ReadVerdict(None, False, labels)


def _share_right(replies: Sequence[Reply]) -> float:
    return sum(reply.verdict == Verdict.RIGHT for reply in replies) / len(replies)
