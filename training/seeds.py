"""What Proposer groups start exploring from: which mails of the corpus, and what of a mail the prompt shows."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Literal

from corpus_index.document import Document

SeedKind = Literal["mail", "subject", "person", "thread", "window"]


def seed_text(mail: Document, kind: SeedKind = "mail") -> str:
    """A mail to open, a subject, a person, a thread (as the field ``thread`` of ``search_bool`` takes it), or the week
    (Monday to Sunday, UTC) in which the mail was sent. Without a thread or a date it is the mail itself."""
    if kind == "subject":
        return mail.subject
    if kind == "person":
        return mail.sender_name or mail.sender
    if kind == "thread" and mail.thread:
        return f"thread {mail.thread} | {mail.subject}"
    if kind == "window" and mail.date is not None:
        monday = mail.date.date() - timedelta(days=mail.date.weekday())
        return f"mails of {monday.isoformat()} to {(monday + timedelta(days=6)).isoformat()}"
    return f"{mail.id} | {mail.subject}"


def covering(ids: Sequence[str], count: int, step: int, seed: int) -> list[str]:
    """The ``count`` mails of a step (the first is 1): every mail of the corpus comes once before any comes twice.

    One seeded permutation after the other, cut into steps: nothing need be remembered to go on with a later step.
    ``count`` is the same in every step and at most the number of mails.
    """
    places = range((step - 1) * count, step * count)
    orders = {
        epoch: random.Random(f"{seed}/cover/{epoch}").sample(ids, len(ids)) for epoch in {p // len(ids) for p in places}
    }
    return [orders[place // len(ids)][place % len(ids)] for place in places]
