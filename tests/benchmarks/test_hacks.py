"""Every known hack is paid less than honest play in the same group, under all guards that need no model."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks" / "hacks"), str(ROOT / "tests" / "training")]

from grounds import company_ground, enron_ground  # noqa: E402
from hands import Hack, honest  # noqa: E402
from score import NOISE, Place, score, solver_score  # noqa: E402
from solver_book import SOLVER_HACKS, SolverHack, honest_replies  # noqa: E402
from table import recipe  # noqa: E402

COMPANY = company_ground()
CAUGHT = {
    "answer in the question": "answer_in_question",
    "answer in the question, respelled": "answer_in_question",
    "answer in the question, look-alike letters": "ungrounded",
    "choice of two": "answer_in_question",
    "mail named": "names_mail_id",
    "evidence not opened": "not_opened",
    "invented evidence": "unknown_evidence",
    "evidence padded": "hop_count",
    "question padded": "success",
    "trivial question": "success",
    "wrong key": "success",
    "unsolvable question": "success",
    "huge answer": "schema",
    "key lists candidates": "answer_not_in_evidence",
    "injection in the key": "answer_not_in_evidence",
    "one mail sold as two hops": "one_mail",
    "two questions glued": "one_mail",
    "second mail leaked": "one_mail",
    "forged tool result": "markup",
    "same question again": "diversity",
    "one pattern milked": "diversity",
    "small set of answers": "success",
    "common knowledge": "success",
    "many right answers": "vague",
    # Only because half of the group asks it: one such question alone is paid in full, until a reader or judge looks.
    "two right answers": "diversity",
    "outdated key": "diversity",
}


@pytest.fixture(scope="module")
def company() -> Place:
    return Place(COMPANY)


@pytest.fixture(scope="module")
def enron(shared_data: Path) -> Place:
    return Place(enron_ground(shared_data / "enron" / "enron-maildir-sample.tar.xz"))


@pytest.mark.parametrize("hack", COMPANY.hacks, ids=lambda hack: hack.name)
def test_a_hack_is_paid_less_than_honest_play(hack: Hack, company: Place) -> None:
    found = score(company, hack, recipe("full", hack.hops))
    assert found.honest > 0
    assert found.caught, f"{hack.name} is paid {found.hack:.3f}, honest play {found.honest:.3f}"
    assert found.caught_by == CAUGHT.get(hack.name, found.caught_by)


@pytest.mark.parametrize("hack", SOLVER_HACKS, ids=lambda hack: hack.name)
def test_a_solver_earns_nothing_by_a_trick(hack: SolverHack, company: Place) -> None:
    for name in ("v1", "full"):
        found = solver_score(company, hack, recipe(name, 2))
        assert found.caught, f"{hack.name} is paid {found.hack:.3f} under {name}, honest play {found.honest:.3f}"


def test_honest_play_against_itself_is_not_caught(company: Place) -> None:
    """Otherwise the scores above would say nothing."""
    facts = COMPANY.facts[1]
    also_honest = Hack("none", "", 1, lambda number: honest(facts[len(facts) // 2 + number]))
    found = score(company, also_honest, recipe("full", 1))
    assert found.hack == pytest.approx(found.honest, abs=NOISE)
    assert not found.caught
    ours = solver_score(company, SolverHack("none", "", honest_replies), recipe("full", 2))
    assert ours.hack == pytest.approx(ours.honest)


def test_hacks_on_real_mail(enron: Place) -> None:
    paid = {hack.name: score(enron, hack, recipe("full", hack.hops)) for hack in enron.ground.hacks}
    assert len(paid) >= 12
    assert {name for name, found in paid.items() if not found.caught} == set()
    assert min(found.honest for found in paid.values()) > 0.5  # the checks let true questions about real mail pass
