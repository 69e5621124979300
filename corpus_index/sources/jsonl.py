"""JSON lines: one object a line, with the field names of Document."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

from corpus_index.document import Document
from corpus_index.sources.dates import parse_date
from corpus_index.sources.items import TOO_LARGE, UNREADABLE, Item, Mail, Unread
from corpus_index.sources.mail import document_id
from corpus_index.sources.people import clean_address
from corpus_index.sources.text import tidy

_TEXTS = ("subject", "sender", "sender_name", "thread", "mailbox", "folder", "message_id")
_ID_CHARS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")


def read_jsonl(path: Path, max_bytes: int) -> Iterator[Item]:
    """Needed is ``body``; every other field of Document may be there, ``date`` as ISO 8601 (no zone means UTC).

    A line that is not such an object is Unread; ``source`` is ``name.jsonl#line`` unless the line gives one.
    """
    with path.open("rb") as file:
        number = 0
        while line := file.readline(max_bytes + 1):
            number += 1
            where = f"{path.name}#{number}"
            if len(line) > max_bytes:
                while line and not line.endswith(b"\n"):
                    line = file.readline(max_bytes)
                yield Unread(where, TOO_LARGE)
            elif line.strip():
                yield _parse_line(line, where)


def _parse_line(line: bytes, where: str) -> Item:
    try:
        value = json.loads(line)
        if not isinstance(value, dict):
            return Unread(where, UNREADABLE)
        return Mail(_document(cast("dict[str, object]", value), where))
    except (ValueError, TypeError, RecursionError):
        return Unread(where, UNREADABLE)


def _document(record: dict[str, object], where: str) -> Document:
    body = record.get("body")
    if not isinstance(body, str):
        raise TypeError("body must be a text")
    texts = {name: _text(record, name) for name in _TEXTS}
    source = _text(record, "source") or where
    own_id = _text(record, "id")
    valid = bool(own_id) and len(own_id) <= 64 and _ID_CHARS.issuperset(own_id)
    texts["sender"] = clean_address(texts["sender"]) or texts["sender"].strip().lower()
    return Document(
        id=own_id if valid else document_id(own_id or texts["message_id"] or source),
        body=tidy(body),
        recipients=tuple(clean_address(item) or item.strip().lower() for item in _texts(record, "recipients")),
        recipient_names=_texts(record, "recipient_names"),
        date=_date(_text(record, "date")),
        source=source,
        attachments=_texts(record, "attachments"),
        **texts,
    )


def _text(record: dict[str, object], name: str) -> str:
    value = record.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a text")
    return tidy(value)


def _texts(record: dict[str, object], name: str) -> tuple[str, ...]:
    """A list of texts, or one text with commas."""
    value = record.get(name)
    if value is None:
        return ()
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list):
        raise TypeError(f"{name} must be a list of texts")
    return tuple(str(item).strip() for item in cast("list[object]", items) if str(item).strip())


def _date(value: str) -> datetime | None:
    if not value:
        return None
    try:
        when = datetime.fromisoformat(value)
    except ValueError:
        return parse_date(value)
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).astimezone(UTC)
