"""What Proposer groups start exploring from: what of a mail the prompt shows."""

from __future__ import annotations

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
