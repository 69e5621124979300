"""Is a question like the others of its group, or those asked lately? One pattern that works is milked otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from corpus_index.folding import words
from rewards.patterns import question_pattern


@dataclass(frozen=True, slots=True)
class Sketch:
    """What is compared of a question: its pattern, its evidence as a set, its answer's words."""

    pattern: str
    evidence: tuple[str, ...]
    answer: tuple[str, ...]

    @classmethod
    def of(cls, question: str, answer: str, evidence: Sequence[str]) -> Sketch:
        return cls(question_pattern(question), tuple(sorted(set(evidence))), tuple(words(answer)))

    def like(self, other: Sketch) -> bool:
        """The same in one of the three."""
        return self.pattern == other.pattern or self.evidence == other.evidence or self.answer == other.answer


def diversity(mine: Sketch, others: Sequence[Sketch], recent: Sequence[Sketch]) -> float:
    """(in the group + over time) / 2, each in [0, 1] and 1 where there is nothing to compare with.

    In the group: 1 - the share of its ``others`` that are like this question (R-Zero's cluster share, 2508.05004, with
    evidence and answer beside the wording). Over time: 1 - the share of ``recent`` questions of its pattern, and 0
    where one of them rests on the same evidence and answer.
    """
    in_group = 1 - sum(map(mine.like, others)) / len(others) if others else 1.0
    if any((mine.evidence, mine.answer) == (other.evidence, other.answer) for other in recent):
        return in_group / 2
    over_time = 1 - sum(mine.pattern == other.pattern for other in recent) / len(recent) if recent else 1.0
    return (in_group + over_time) / 2
