from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st

from rewards.claims import claim
from rewards.names import same_name
from rewards.rewording import one_notation

SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
).split()
TENS = "- - twenty thirty forty fifty sixty seventy eighty ninety".split()


def spelled(n: int, link: str) -> str:
    if n >= 1000:
        return f"{spelled(n // 1000, link)} thousand" + (f" {spelled(n % 1000, link)}" if n % 1000 else "")
    if n >= 100:
        return f"{SMALL[n // 100]} hundred" + (f"{link}{spelled(n % 100, link)}" if n % 100 else "")
    if n >= 20:
        return TENS[n // 10] + (f"-{SMALL[n % 10]}" if n % 10 else "")
    return SMALL[n]


@effort(max_examples=150, deadline=None)
@given(st.integers(100, 999_999), st.sampled_from([" ", " and "]))
def test_a_number_in_words_is_the_number(n: int, link: str) -> None:
    assert one_notation(f"about {spelled(n, link)} desks") == f"about {n} desks"


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ("four five", "four five"),
        ("two and three", "two and three"),
        ("one thousand thousand", "one thousand thousand"),
        ("twenty eleven", "twenty eleven"),
        ("a million dollars", "a million dollars"),
        ("fifteen hundred", "1500"),
        ("two dozen", "24"),
        ("four and a half million dollars", "4.5 million dollars"),
        ("a year and a half", "1.5 year"),
        ("half an hour", "0.5 hour"),
        ("12 1/2 %", "12.5 %"),
        ("half past three in the afternoon", "3:30 pm"),
        ("a quarter to one", "a 12:45"),
        ("seven in the morning", "7 am"),
        ("3.30 pm", "3:30 pm"),
        ("the third of September", "the 3th of September"),
        ("May twenty-first", "May 21th"),
        ("Dec 5 '00", "Dec 5 2000"),
        ("'42'", "'42'"),
        ("from May 7 through May 9", "from May 7-9"),
        ("May 7 to June 9", "May 7 to June 9"),
        ("no later than 5 pm", "by 5 pm"),
        ("don't sign, can't, won't", "do not sign, can not, will not"),
        ("300 megawatt-hours", "300 mwh"),
    ],
)
def test_wordings(said: str, read: str) -> None:
    assert one_notation(said) == read


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("It moved from 6 a.m. to 7 a.m.", "It moved to 7 a.m."),
        ("First May 5 was named; the final answer is May 12.", "May 12."),
        ("pump B, not pump A", "pump B"),
        ("Ana Lopez (not Ida Cole)", "Ana Lopez"),
        ("Ana Lopez, not sure", "Ana Lopez, not sure"),
        ("not pump A", "not pump A"),
        ("from May 7 to May 9", "from May 7 to May 9"),
    ],
)
def test_what_an_answer_stands_by(said: str, meant: str) -> None:
    assert claim(said) == meant


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("bob tanaka", "robert tanaka", True),
        ("bill o'hara", "william ohara", True),
        ("kathy osei", "katherine l osei", True),
        ("kathy osei", "kathleen osei", False),
        ("bob tanaka", "bill tanaka", False),
        ("r tanaka", "robert tanaka", True),
        ("robert a tanaka", "robert b tanaka", False),
        ("robert", "robert", False),
    ],
)
def test_one_person_under_two_names(one: str, other: str, same: bool) -> None:
    assert same_name(one.split(), other.split()) is same_name(other.split(), one.split()) is same
