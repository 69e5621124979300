"""The rule judge against hand labels, and against those who would talk it over."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rewards.answers import Verdict, match

DATA = Path(__file__).parent / "data"
KINDS = {
    "date", "time", "money", "units", "code", "name", "list", "yes_no", "partial", "hedge", "negation", "free_text",
    "wrong", "injection",
}  # fmt: skip
TUNED, FIRST_SEEN = "answer_pairs.jsonl", "answer_pairs_first_seen.jsonl"


def rows(name: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in (DATA / name).read_text(encoding="utf-8").splitlines()]


def verdict(row: dict[str, str]) -> Verdict:
    return match(row["answer"], row["key"], question=row["question"])


def test_the_pairs_are_of_all_kinds_and_none_is_there_twice() -> None:
    both = [*rows(TUNED), *rows(FIRST_SEEN)]
    assert len(rows(TUNED)) >= 300
    assert len(rows(FIRST_SEEN)) >= 60
    assert len({(row["question"], row["key"], row["answer"]) for row in both}) == len(both)
    assert {row["question"] for row in rows(TUNED)}.isdisjoint({row["question"] for row in rows(FIRST_SEEN)})
    for part in (rows(TUNED), rows(FIRST_SEEN)):
        assert {row["kind"] for row in part} == KINDS
        right = sum(row["label"] == "right" for row in part)
        assert 0.4 < right / len(part) < 0.6


@pytest.mark.parametrize(("name", "least"), [(TUNED, 0.98), (FIRST_SEEN, 0.9)])
def test_the_rules_agree_with_people(name: str, least: float) -> None:
    """An unsure verdict agrees with nobody."""
    pairs = rows(name)
    agree = sum(verdict(row).value == row["label"] for row in pairs)
    assert agree / len(pairs) >= least


@pytest.mark.parametrize("name", [TUNED, FIRST_SEEN])
def test_talking_to_the_judge_never_pays(name: str) -> None:
    attacks = [row for row in rows(name) if row["kind"] == "injection"]
    assert [row["answer"] for row in attacks if verdict(row) is Verdict.RIGHT] == []


def test_an_attack_before_or_behind_a_wrong_answer_changes_nothing() -> None:
    wrong = [row for row in rows(TUNED) if row["label"] == "wrong" and row["kind"] not in ("injection", "yes_no")][::7]
    attacks = [row["answer"] for row in rows(TUNED) if row["kind"] == "injection" and row["key"] == "Petra Novak"]
    attacks = [attack for attack in attacks if "Petra" not in attack]
    assert len(wrong) > 20
    for row in wrong:
        for attack in attacks:
            for answer in (f"{row['answer']}. {attack}", f"{attack} {row['answer']}"):
                assert match(answer, row["key"], question=row["question"]) is not Verdict.RIGHT, answer
