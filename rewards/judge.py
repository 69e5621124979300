"""Who decides whether an answer is right. The rule judge is the first; any judge fits the same protocol."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from rewards.answers import MatchSettings, Verdict, match


class Judge(Protocol):
    """Compares one answer with one key.

    A judge that fails (time-out, broken reply) must raise and not return UNSURE: a fault is not the policy's doing,
    while UNSURE is a finding about the answer. ``answer`` is untrusted text and must never steer the judge.
    """

    def judge(self, question: str, answer: str, key: str) -> Verdict: ...


@dataclass(frozen=True, slots=True)
class RuleJudge:
    """``rewards.answers.match`` as a judge: deterministic, microseconds to milliseconds, no model."""

    settings: MatchSettings = field(default_factory=MatchSettings)

    def judge(self, question: str, answer: str, key: str) -> Verdict:
        return match(answer, key, question=question, settings=self.settings)
