from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewards.diversity import Sketch, diversity

BUDGET = Sketch.of("What is the budget of Amber Falcon?", "$1,250", ("m1",))
OTHER_BUDGET = Sketch.of("What is the budget of Quiet Harbor?", "$900", ("m2",))
SAME_MAIL = Sketch.of("How much may Amber Falcon spend?", "1250", ("m1",))
DESK = Sketch.of("Which desk does the owner of Amber Falcon have?", "12-34", ("m3", "m4"))
SKETCHES = st.builds(
    Sketch, st.sampled_from("pqr"), st.sampled_from([("m1",), ("m2",), ("m1", "m2")]), st.sampled_from([("1",), ("2",)])
)


def test_one_thing_in_common_makes_two_questions_alike() -> None:
    assert BUDGET.like(OTHER_BUDGET)  # pattern
    assert BUDGET.like(SAME_MAIL)  # evidence
    assert DESK.like(Sketch.of("Where do we meet?", "12 34", ("m9",)))  # answer
    assert not BUDGET.like(DESK)
    assert Sketch.of("q", "a", ("m4", "m3", "m3")).evidence == DESK.evidence


def test_the_group_counts_half_and_the_recent_questions_half() -> None:
    assert diversity(BUDGET, [], []) == 1.0
    assert diversity(BUDGET, [OTHER_BUDGET, DESK], []) == pytest.approx((0.5 + 1) / 2)
    assert diversity(BUDGET, [DESK], [OTHER_BUDGET, DESK, DESK, DESK]) == pytest.approx((1 + 0.75) / 2)
    # The same mail and answer again is no news, however it is worded.
    again = Sketch.of("How much may Amber Falcon spend?", "$1,250", ("m1",))
    assert diversity(BUDGET, [DESK], [again, DESK, DESK, DESK]) == 0.5
    assert diversity(BUDGET, [BUDGET], [BUDGET]) == 0.0


@given(SKETCHES, st.lists(SKETCHES, max_size=6), st.lists(SKETCHES, max_size=6))
def test_a_copy_of_a_question_never_makes_it_more_diverse(
    mine: Sketch, others: list[Sketch], recent: list[Sketch]
) -> None:
    value = diversity(mine, others, recent)
    assert 0 <= value <= 1
    assert diversity(mine, [*others, mine], recent) <= value
    assert diversity(mine, others, [*recent, mine]) <= value
