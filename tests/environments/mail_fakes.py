"""A tiny mail corpus and an index over it, enough to drive tools and episodes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from corpus_index.backends.base import Hit, IndexStats, IndexUnavailable, QueryRejected, SearchResult
from corpus_index.document import Document
from corpus_index.query import KeywordQuery, Query


def mail(number: int, subject: str, body: str, **fields: object) -> Document:
    defaults: dict[str, object] = {
        "sender": "mira@x.org",
        "sender_name": "Mira Okafor",
        "recipients": ("tom@x.org",),
        "recipient_names": ("Tom Reed",),
        "date": datetime(2024, 3, 12, 14, 0, tzinfo=UTC),
    }
    return Document(id=f"{number:04d}", subject=subject, body=body, **{**defaults, **fields})  # type: ignore[arg-type]


class FakeIndex:
    """Matches keywords as substrings, in id order. ``down`` answers fail before it works again; -1 never works."""

    def __init__(self, documents: list[Document], down: int = 0, rejects: str = "") -> None:
        self.documents = {document.id: document for document in documents}
        self.down = down
        self.rejects = rejects
        self.queries: list[Query] = []
        self.asked = 0

    @property
    def locator(self) -> str:
        return "fake:"

    def _answer(self) -> None:
        self.asked += 1
        if self.down:
            self.down -= 1
            raise IndexUnavailable("the fake index is down")

    def search(self, query: Query, *, snippet_chars: int = 160) -> SearchResult:
        self._answer()
        self.queries.append(query)
        if self.rejects:
            raise QueryRejected(self.rejects)
        words = [word.lower() for word in query.keywords] if isinstance(query, KeywordQuery) else [""]
        found = [
            Hit(document, 1.0, document.body[:snippet_chars])
            for document in self.documents.values()
            if any(word in f"{document.subject} {document.body}".lower() for word in words)
        ]
        return SearchResult(tuple(found[: query.limit]), len(found))

    def read(self, document_id: str) -> Document | None:
        self._answer()
        return self.documents.get(document_id)

    def ids(self) -> Iterator[str]:
        return iter(self.documents)

    def stats(self) -> IndexStats:
        return IndexStats(len(self.documents), 0, self.locator)

    def close(self) -> None:
        return None
