"""Who decides whether an answer is right. The rule judge is the first; any judge fits the same protocol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from corpus_index.faults import Unavailable
from rewards.answers import MatchSettings, Verdict, match


@dataclass(frozen=True, slots=True)
class AnswerPair:
    question: str
    answer: str
    key: str


class Judge(Protocol):
    """Compares one answer with one key.

    A judge that fails (time-out, broken reply) must raise ``Unavailable`` and not return UNSURE: a fault is not the
    policy's doing, while UNSURE is a finding about the answer. ``answer`` is untrusted text and must never steer the
    judge.
    """

    def judge(self, question: str, answer: str, key: str) -> Verdict: ...


@runtime_checkable
class BatchJudge(Judge, Protocol):
    """A judge that is slow one by one and asked side by side; a fault stands in the place of its verdict."""

    def judge_all(self, pairs: Sequence[AnswerPair]) -> Sequence[Verdict | Unavailable]: ...


@dataclass(frozen=True, slots=True)
class RuleJudge:
    """``rewards.answers.match`` as a judge: deterministic, microseconds to milliseconds, no model."""

    settings: MatchSettings = field(default_factory=MatchSettings)

    def judge(self, question: str, answer: str, key: str) -> Verdict:
        return match(answer, key, question=question, settings=self.settings)
