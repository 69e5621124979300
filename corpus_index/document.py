"""The one record that travels from a mail file to a search hit."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


def encodable(text: str) -> str:
    """The text with lone surrogates replaced: search engines take only what UTF-8 can carry."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One mail after parsing.

    ``id`` is what the model sees and cites: short, stable over rebuilds, unique in a corpus, and made of
    ``[A-Za-z0-9_-]`` only. Addresses are lower case. ``date`` is timezone-aware UTC, or None where the header is a
    placeholder or unreadable.
    """

    id: str
    subject: str
    body: str
    sender: str = ""
    sender_name: str = ""
    recipients: tuple[str, ...] = ()
    recipient_names: tuple[str, ...] = ()
    date: datetime | None = None
    thread: str = ""
    mailbox: str = ""
    folder: str = ""
    source: str = ""
    message_id: str = ""
    attachments: tuple[str, ...] = ()
