from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_index.entities import named_things, tokenise


@pytest.mark.parametrize(
    ("text", "things"),
    [
        ("Please note that Mira Okafor is the owner of Amber Falcon from today.", ["mira okafor", "amber falcon"]),
        ("Amber Falcon moved to EB-3267.", ["amber falcon", "eb 3267"]),
        ("The budget is $4711 for this year.", ["4711"]),
        ("Finance has set it.", []),  # a sentence's first word is capitalised anyhow
        ("Finance has set it. We asked Finance.", ["finance"]),
        ("See it. Amber Falcon is late.", ["amber falcon"]),
        ("Call me on Monday, 5 May 2001.", []),  # points at nothing
        ("Phillip K. Allen's desk", ["phillip k allen"]),
        ("ask Zoë, then Zoe", ["zoe"]),
        ("", []),
    ],
)
def test_named_things(text: str, things: list[str]) -> None:
    assert named_things(text) == things


@settings(deadline=None, max_examples=50)
@given(st.text(max_size=300))
def test_things_are_made_of_the_texts_words(text: str) -> None:
    said = {token.word for token in tokenise(text)}
    things = named_things(text)
    assert len(things) == len(set(things))
    assert said.issuperset(word for thing in things for word in thing.split())
