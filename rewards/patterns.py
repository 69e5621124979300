"""The pattern of a question: what is left of it without its names. A cheap stand-in for the skill it asks for."""

from __future__ import annotations

import re

_WORD = re.compile(r"[^\W_]+")


def question_pattern(question: str) -> str:
    """The question in lower case with every run of names (capitals inside a sentence, digits) as one ``_``.

    ``What is the budget of Amber Falcon?`` becomes ``what is the budget of _``.
    """
    pattern: list[str] = []
    for place, word in enumerate(_WORD.findall(question)):
        named = any(c.isdigit() for c in word) or (place > 0 and word[0].isupper())
        if not named:
            pattern.append(word.lower())
        elif pattern[-1:] != ["_"]:
            pattern.append("_")
    return " ".join(pattern)
