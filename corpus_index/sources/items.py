"""What a reader hands on: raw mail, a finished document, or the reason why there is neither."""

from __future__ import annotations

from dataclasses import dataclass

from corpus_index.document import Document

DEFAULT_MAX_BYTES = 10_000_000

UNREADABLE = "unreadable"
TOO_LARGE = "too_large"


class SourceError(ValueError):
    """A source as a whole cannot be read. The message names the value received and says what to do next."""


@dataclass(frozen=True, slots=True)
class RawMail:
    """One message, byte for byte, and where it lay. ``mailbox`` and ``folder`` may be empty."""

    data: bytes
    source: str
    mailbox: str = ""
    folder: str = ""


@dataclass(frozen=True, slots=True)
class Unread:
    """One message that could not be used. It never stops a build: it is counted under ``reason``."""

    source: str
    reason: str


@dataclass(frozen=True, slots=True)
class Mail:
    """A parsed message. ``references`` are the Message-IDs it answers, oldest first, without angle brackets."""

    document: Document
    references: tuple[str, ...] = ()


Item = RawMail | Mail | Unread


def readable_size(count: int) -> str:
    """``12345678`` as ``12.3 MB``."""
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"
