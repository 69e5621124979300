from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewards.agreement import group_answers, scatter
from rewards.answers import DEFAULT, Verdict
from rewards.reading import EvidenceCheck, ReaderCheck, ReaderSettings, Readings, ReadVerdict, Reply, judge_readings
from rewards.refusal import Refusal

ON = ReaderSettings(
    closed_book=ReaderCheck(enabled=True),
    evidence=EvidenceCheck(enabled=True),
    necessity=ReaderCheck(enabled=True),
)
RIGHT = Reply(Verdict.RIGHT, "12-34")
SILENT = Reply()


def wrong(*answers: str) -> list[Reply]:
    return [Reply(Verdict.WRONG, answer) for answer in answers]


def judged(readings: Readings, settings: ReaderSettings = ON) -> ReadVerdict:
    return judge_readings("Which desk does Mira Okafor have?", readings, settings, DEFAULT)


NOTHING = [SILENT] * 4
READ = [RIGHT] * 4


@pytest.mark.parametrize(
    ("readings", "refusal"),
    [
        (Readings(NOTHING, READ, [NOTHING, NOTHING]), None),
        (Readings([RIGHT, RIGHT, SILENT, SILENT], READ, [NOTHING]), Refusal.CLOSED_BOOK),
        (Readings([RIGHT, SILENT, SILENT, SILENT], READ, [NOTHING]), None),
        (Readings(NOTHING, NOTHING, [NOTHING]), Refusal.UNSUPPORTED),
        (Readings(NOTHING, [RIGHT, *wrong("1-1", "2-2", "3-3")], [NOTHING]), Refusal.UNSUPPORTED),
        (Readings(NOTHING, [RIGHT, RIGHT, *wrong("1-1", "1-1")], [NOTHING]), None),
        (Readings(NOTHING, [RIGHT, *wrong("77-10", "desk 77-10", "5-5")], [NOTHING]), Refusal.WRONG_KEY),
        (Readings(NOTHING, READ, [NOTHING, [RIGHT, RIGHT, SILENT, SILENT]]), Refusal.UNNECESSARY),
        (Readings(NOTHING, READ, []), None),  # one mail is all the evidence: nothing to leave out
    ],
)
def test_a_question_is_refused_for_what_its_readers_did(readings: Readings, refusal: Refusal | None) -> None:
    verdict = judged(readings)
    assert (verdict.refusal, verdict.unknown) == (refusal, False)


@pytest.mark.parametrize(
    "readings",
    [
        Readings([], READ, [NOTHING]),
        Readings(NOTHING, [], [NOTHING]),
        Readings(NOTHING, READ, [NOTHING, []]),
    ],
)
def test_a_context_that_nobody_read_decides_nothing(readings: Readings) -> None:
    verdict = judged(readings)
    assert verdict.unknown
    assert verdict.refusal is None


def test_an_earlier_refusal_stands_whatever_was_not_read_later() -> None:
    assert judged(Readings(READ, [], [])).refusal is Refusal.CLOSED_BOOK


def test_the_shares_are_reported() -> None:
    verdict = judged(Readings([RIGHT, SILENT, SILENT, SILENT], READ, [NOTHING, [RIGHT, SILENT, SILENT, SILENT]]))
    assert dict(verdict.labels) == {"closed_book": 0.25, "read": 1.0, "needless": 0.25}


@given(st.lists(st.sampled_from([RIGHT, SILENT, *wrong("1-1", "2-2")]), max_size=6))
def test_a_check_that_is_off_neither_refuses_nor_asks(replies: list[Reply]) -> None:
    off = ReaderSettings()
    assert not off.enabled
    assert judged(Readings(replies, replies, [replies]), off) == ReadVerdict()
    only = ReaderSettings(closed_book=ReaderCheck(enabled=True, threshold=1.0))
    verdict = judged(Readings(replies, [], [[]]), only)
    expected = Refusal.CLOSED_BOOK if replies and all(reply is RIGHT for reply in replies) else None
    assert verdict.refusal is expected
    assert verdict.unknown is (not replies)


def test_answers_are_grouped_by_what_they_say() -> None:
    said = ["$1,250", "1250 dollars", "room EB-3267", "EB 3267", "Mira Okafor", "USD 1,250"]
    assert group_answers(said, "", DEFAULT) == [3, 2, 1]
    assert group_answers([], "", DEFAULT) == []


@given(st.lists(st.integers(1, 30), max_size=6))
def test_scatter_is_entropy_between_agreement_and_chaos(sizes: list[int]) -> None:
    n = sum(sizes)
    value = scatter(sizes)
    assert 0 <= value <= 1 + 1e-9
    if n > 1:
        shares = [size / n for size in sizes]
        assert value == pytest.approx(-sum(p * math.log2(p) for p in shares) / math.log2(n))
    assert scatter([n]) == 0.0
    assert scatter([1] * max(n, 2)) == pytest.approx(1.0)
