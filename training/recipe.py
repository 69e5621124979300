"""From a resolved config to the objects of a run."""

from __future__ import annotations

from corpus_index.document import Document


def seed_text(mail: Document) -> str:
    """What a Proposer starts from: a mail it can open."""
    return f"{mail.id} | {mail.subject}"
