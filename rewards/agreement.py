"""Which answers say the same, and how far a set of answers is scattered. By the rule matcher alone, no model."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rewards.answers import MatchSettings, Verdict, match


def group_answers(answers: Sequence[str], question: str, settings: MatchSettings) -> list[int]:
    """Sizes of the groups of answers that mean the same, the largest first.

    An answer joins the first group whose first answer is right as a key for it.
    """
    heads: list[str] = []
    sizes: list[int] = []
    for answer in answers:
        place = next((i for i, head in enumerate(heads) if _says(answer, head, question, settings)), None)
        if place is None:
            heads.append(answer)
            sizes.append(1)
        else:
            sizes[place] += 1
    return sorted(sizes, reverse=True)


def scatter(sizes: Sequence[int]) -> float:
    """Entropy of the groups over its greatest possible value, log(n) of n answers: 0 all the same (or none or one), 1
    all different."""
    n = sum(sizes)
    if n < 2:
        return 0.0
    return sum(size * math.log(n / size) for size in sizes) / (n * math.log(n))


def _says(answer: str, head: str, question: str, settings: MatchSettings) -> bool:
    return Verdict.RIGHT is match(answer, head, question=question, settings=settings)
