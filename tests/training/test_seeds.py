from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from company_play import load, place
from scripted_play import board

from corpus_index.document import Document
from training.config import Config
from training.seeds import SeedKind, seed_text

MAIL = Document(
    id="0417", subject="Amber Falcon review", body="x", sender="ana@f.example", sender_name="Ana Diaz", thread="t9",
    date=datetime(2024, 3, 3, 23, 30, tzinfo=UTC),  # a Sunday
)  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("mail", "0417 | Amber Falcon review"),
        ("subject", "Amber Falcon review"),
        ("person", "Ana Diaz"),
        ("thread", "thread t9 | Amber Falcon review"),
        ("window", "mails of 2024-02-26 to 2024-03-03"),
    ],
)
def test_a_seed_shows_one_side_of_a_mail(kind: SeedKind, text: str) -> None:
    assert seed_text(MAIL, kind) == text


def test_what_a_mail_lacks_is_replaced() -> None:
    bare = replace(MAIL, sender_name="", thread="", date=None)
    assert seed_text(bare, "person") == "ana@f.example"
    assert seed_text(bare, "thread") == seed_text(bare, "window") == seed_text(bare, "mail")


def test_the_board_covers_its_corpus_where_it_is_told_to() -> None:
    firm = place(projects=5)

    def drawn(settings: Config, steps: int) -> Counter[str]:
        rng = random.Random(0)
        return Counter(
            task.seed.split(" | ")[0] for step in range(1, steps + 1)
            for task in board(firm).proposer_tasks(settings, step, rng)[:: settings.selfplay.proposer_generations]
        )  # fmt: skip

    per_step = 10
    play = f"selfplay.proposer_prompts_per_step={per_step}"
    mails = len(list(firm.index.ids()))
    covered = drawn(load(play, "selfplay.cover=true"), mails // per_step)
    assert set(covered.values()) == {1}
    assert len(covered) == mails // per_step * per_step
    assert max(drawn(load(play), mails // per_step).values()) > 1
