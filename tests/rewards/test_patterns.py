from __future__ import annotations

import pytest

from rewards.patterns import question_pattern


@pytest.mark.parametrize(
    ("question", "pattern"),
    [
        ("What is the budget of Amber Falcon?", "what is the budget of _"),
        ("What is the budget of Quiet Harbor?", "what is the budget of _"),
        ("Who manages Mira Okafor and Tomas Sato?", "who manages _ and _"),
        ("Which room is review 12 of Q3-B in?", "which room is review _ of _ in"),
        ("Wer leitet das Projekt Nebel?", "wer leitet das _"),
        ("", ""),
    ],
)
def test_a_pattern_is_the_question_without_its_names(question: str, pattern: str) -> None:
    assert question_pattern(question) == pattern
