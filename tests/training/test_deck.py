from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_index.backends import open_memory_index
from corpus_index.document import Document
from corpus_index.retries import RetrySettings
from corpus_index.scope import MailScope
from environments.questions import Question, QuestionFileError, corpus_fingerprint, save_questions
from training.deck import QuestionDeck, open_deck


def question(number: int, evidence: tuple[str, ...] = ("m0",), **fields: object) -> Question:
    return Question(id=f"q{number}", question="Who is it?", answer="Ann", evidence=evidence, hops=1, **fields)  # type: ignore[arg-type]


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 9), st.integers(1, 5), st.integers(1, 30), st.integers(0, 3))
def test_every_pass_deals_each_question_once(size: int, count: int, steps: int, seed: int) -> None:
    deck = QuestionDeck([question(n) for n in range(size)], seed)
    dealt = [q.id for step in range(1, steps + 1) for q in deck.deal(step, count)]
    assert len(dealt) == steps * count
    for start in range(0, len(dealt) - size + 1, size):
        assert len(set(dealt[start : start + size])) == size
    fewest, *_, most = sorted([*Counter(dealt).values(), 0] if len(dealt) < size else [*Counter(dealt).values()] * 2)
    assert most - fewest <= 1


def test_a_step_is_dealt_the_same_whatever_came_before() -> None:
    asked = [question(n) for n in range(7)]
    unbroken = QuestionDeck(asked, 3)
    rows = [unbroken.deal(step, 3) for step in range(1, 9)]
    assert [QuestionDeck(asked, 3).deal(step, 3) for step in (8, 2)] == [rows[7], rows[1]]
    assert [unbroken.deal(1, 7), unbroken.deal(2, 7)] != [QuestionDeck(asked, 4).deal(1, 7)] * 2
    assert unbroken.deal(1, 7) != unbroken.deal(2, 7)  # another order for every pass


def test_unshuffled_is_as_it_stands() -> None:
    deck = QuestionDeck([question(n) for n in range(3)], 0, shuffle=False)
    assert [q.id for q in deck.deal(2, 4)] == ["q1", "q2", "q0", "q1"]


def opened(path: Path, said: list[str]) -> QuestionDeck:
    mails = [
        Document(id=f"m{n}", subject="s", body="b", mailbox=box, date=datetime(2024, 1, 1, tzinfo=UTC))
        for n, box in enumerate(("ann", "bob"))
    ]
    index = open_memory_index(mails)
    patience = RetrySettings()
    return open_deck(path, index, tuple(index.ids()), seed=0, shuffle=True, patience=patience, say=said.append)


def test_evidence_must_be_in_the_index(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    save_questions(path, [question(0), question(1, ("m1", "m7"), corpus="company:seed=9"), question(2, ("m8",))])
    with pytest.raises(QuestionFileError, match=r"question 'q1' needs mail 'm7'.*built from company:seed=9.*make_task"):
        opened(path, [])


def test_evidence_must_lie_within_the_questions_own_scope(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    save_questions(path, [question(0, ("m0",), scope=MailScope(mailboxes=("ann",)))])
    assert len(opened(path, []).questions) == 1
    save_questions(path, [question(0, ("m1",), scope=MailScope(mailboxes=("ann",)))])
    with pytest.raises(QuestionFileError, match="needs mail 'm1'"):
        opened(path, [])


def test_other_mails_than_it_was_built_from_are_told(tmp_path: Path) -> None:
    path, said = tmp_path / "t.jsonl", list[str]()
    save_questions(path, [question(0, fingerprint=corpus_fingerprint(["m1", "m0"])), question(1)])
    opened(path, said)
    assert said == []
    save_questions(path, [question(0, fingerprint="feed")])
    opened(path, said)
    assert len(said) == 1
    assert "feed" in said[0]
