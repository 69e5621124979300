"""Threads: by reply headers where there are any, else by subject, people, time and quoted text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from zlib import crc32

from corpus_index.document import Document
from corpus_index.quoting import bare_subject, is_reply, split_quoted
from corpus_index.sources.mail import document_id

_DAY = 86_400.0
_MAX_PEOPLE = 24
_OWN_LINES = 3
_QUOTED_LINES = 6
_MIN_LINE = 16
# Lines of a quoted header block, and rulers: they say who and when, not what.
_NOT_TEXT = (
    "---",
    "___",
    "===",
    "***",
    "from:",
    "to:",
    "cc:",
    "bcc:",
    "sent:",
    "date:",
    "subject:",
    "sent by:",
    "importance:",
)


@dataclass(frozen=True, slots=True)
class Trace:
    """The little of a mail that threading needs; every text is a 32-bit hash.

    ``seconds``: Unix time, None where unknown. ``own_lines``: first lines of the mail's own text. ``quoted_lines``:
    first lines of what it quotes.
    """

    subject: str
    reply: bool
    seconds: float | None
    people: tuple[int, ...]
    own_lines: tuple[int, ...]
    quoted_lines: tuple[int, ...]


def trace(document: Document) -> Trace:
    new, quoted = split_quoted(document.body)
    people = (document.sender, *document.recipients[: _MAX_PEOPLE - 1])
    names = () if document.recipients else document.recipient_names[: _MAX_PEOPLE - 1]
    return Trace(
        subject=bare_subject(document.subject),
        reply=bool(quoted) or is_reply(document.subject),
        seconds=document.date.timestamp() if document.date else None,
        people=tuple(crc32(person.lower().encode("utf-8", "replace")) for person in (*people, *names) if person),
        own_lines=_lines(new, _OWN_LINES),
        quoted_lines=_lines(quoted, _QUOTED_LINES) if quoted else (),
    )


def _lines(text: str, most: int) -> tuple[int, ...]:
    """Hashes of the first lines long enough to tell one mail from another, without quote marks and case."""
    found: list[int] = []
    for line in text[:6000].split("\n"):
        if len(line) < _MIN_LINE:
            continue
        line = line.strip(" \t>|").lower()
        if len(line) >= _MIN_LINE and not line.startswith(_NOT_TEXT):
            found.append(crc32(line.encode("utf-8", "replace")))
            if len(found) == most:
                break
    return tuple(found)


@dataclass(slots=True)
class _Thread:
    id: str
    first: float | None
    last: float | None
    people: set[int]
    opened: float | None = None


class Threads:
    """Gives each mail a thread id, in one pass over mails in any order.

    Headers decide where a mail has In-Reply-To or References, or is named by another's. Otherwise a mail joins a thread
    of the same bare subject when one quotes the other (or both quote the same text), or when they share a person and
    lie within ``window_days`` of each other. A thread has one opening mail: a second one without Re or quotes, more
    than a day away, opens a thread of its own, so that a weekly report is not one endless thread. Without a subject
    only quoted text counts.

    The id is that of the thread's first mail in source order, so a rebuild from the same source gives the same ids.
    Two threads that a later mail joins stay two: ids already handed on do not change. Memory: a small record a thread
    and up to 10 hashes a mail, no bodies.
    """

    def __init__(self, window_days: float = 30.0) -> None:
        self._window = window_days * _DAY
        self._by_message: dict[int, _Thread] = {}
        self._by_subject: dict[str, list[_Thread]] = {}
        self._by_own_line: dict[int, _Thread] = {}
        self._by_quoted_line: dict[int, _Thread] = {}

    def assign(self, document: Document, references: Iterable[str], mark: Trace) -> str:
        """The thread id of this mail; a thread that the source already gave is kept."""
        if document.thread:
            return document.thread
        keys = [hash(item) for item in (document.message_id, *references) if item]
        thread = self._by_headers(keys) or self._by_quotes(mark) or self._by_people(mark)
        if thread is None:
            thread = _Thread(
                document_id(f"thread\n{document.id}\n{document.source}"), mark.seconds, mark.seconds, set()
            )
            if mark.subject:
                self._by_subject.setdefault(mark.subject, []).append(thread)
        self._extend(thread, mark, keys)
        return thread.id

    def _by_headers(self, keys: list[int]) -> _Thread | None:
        return next((thread for key in keys if (thread := self._by_message.get(key)) is not None), None)

    def _by_quotes(self, mark: Trace) -> _Thread | None:
        for line in mark.quoted_lines:
            key = hash((mark.subject, line))
            if thread := self._by_own_line.get(key) or self._by_quoted_line.get(key):
                return thread
        for line in mark.own_lines:
            if thread := self._by_quoted_line.get(hash((mark.subject, line))):
                return thread
        return None

    def _by_people(self, mark: Trace) -> _Thread | None:
        """The thread of this subject nearest in time that shares a person."""
        best: _Thread | None = None
        best_gap = self._window
        for thread in self._by_subject.get(mark.subject, ()):
            gap = _gap(thread, mark.seconds)
            if gap is None or gap > best_gap or (best is not None and gap == best_gap):
                continue
            second_opening = not mark.reply and thread.opened is not None and _apart(thread.opened, mark.seconds) > _DAY
            if not second_opening and not thread.people.isdisjoint(mark.people):
                best, best_gap = thread, gap
        return best

    def _extend(self, thread: _Thread, mark: Trace, keys: list[int]) -> None:
        if mark.seconds is not None:
            thread.first = mark.seconds if thread.first is None else min(thread.first, mark.seconds)
            thread.last = mark.seconds if thread.last is None else max(thread.last, mark.seconds)
            if not mark.reply and thread.opened is None:
                thread.opened = mark.seconds
        thread.people.update(mark.people)
        for key in keys:
            self._by_message.setdefault(key, thread)
        for line in mark.own_lines:
            self._by_own_line.setdefault(hash((mark.subject, line)), thread)
        for line in mark.quoted_lines:
            self._by_quoted_line.setdefault(hash((mark.subject, line)), thread)


def _gap(thread: _Thread, seconds: float | None) -> float | None:
    """Seconds between a time and a thread's span; 0 within it, None where either is unknown."""
    if seconds is None or thread.first is None or thread.last is None:
        return None
    return max(thread.first - seconds, seconds - thread.last, 0.0)


def _apart(left: float, right: float | None) -> float:
    return 0.0 if right is None else abs(left - right)
