"""A tiny mail corpus and an index over it, enough to drive tools and episodes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime

from corpus_index.backends.base import Hit, IndexStats, IndexUnavailable, QueryRejected, SearchResult
from corpus_index.document import Document
from corpus_index.query import KeywordQuery, Query
from corpus_index.scope import MailScope


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
    """Matches keywords as substrings, in id order. ``down`` answers fail before it works again; -1 never works.

    ``schedule`` says it call by call, in order: ``.`` works, ``x`` is away, ``z`` hangs until ``hanging`` is set (only
    the asynchronous side hangs, and only a ``remote`` index has one). After its end ``down`` decides.
    """

    def __init__(
        self, documents: list[Document], down: int = 0, rejects: str = "", schedule: str = "", remote: bool = False
    ) -> None:
        self.documents = {document.id: document for document in documents}
        self.down = down
        self.rejects = rejects
        self.schedule = schedule
        self.remote = remote
        self.queries: list[Query] = []
        self.asked = 0
        self.views: list[MailScope] = []
        self.hanging = asyncio.Event()
        self.closed = False

    @property
    def locator(self) -> str:
        return "fake:"

    def _answer(self) -> str:
        self.asked += 1
        turn = self.schedule[self.asked - 1 : self.asked]
        if turn == "x" or (not turn and self.down):
            self.down -= not turn
            raise IndexUnavailable("the fake index is down")
        return turn

    def search(self, query: Query, *, snippet_chars: int = 160) -> SearchResult:
        self._answer()
        return self.found(query, snippet_chars, MailScope())

    def found(self, query: Query, snippet_chars: int, *scopes: MailScope) -> SearchResult:
        self.queries.append(query)
        if self.rejects:
            raise QueryRejected(self.rejects)
        words = [word.lower() for word in query.keywords] if isinstance(query, KeywordQuery) else [""]
        found = [
            Hit(document, 1.0, document.body[:snippet_chars])
            for document in self.documents.values()
            if any(word in f"{document.subject} {document.body}".lower() for word in words)
            and all(scope.allows(document) for scope in scopes)
        ]
        return SearchResult(tuple(found[: query.limit]), len(found))

    def read(self, document_id: str) -> Document | None:
        self._answer()
        return self.documents.get(document_id)

    def within(self, scope: MailScope) -> FakeView:
        self.views.append(scope)
        return FakeView(self, (scope,))

    def asynchronous(self) -> FakeRemote | None:
        return FakeRemote(self) if self.remote else None

    def ids(self) -> Iterator[str]:
        return iter(self.documents)

    def stats(self) -> IndexStats:
        return IndexStats(len(self.documents), 0, self.locator)

    def close(self) -> None:
        return None


class FakeView:
    """The mails of a FakeIndex that all ``scopes`` allow."""

    def __init__(self, index: FakeIndex, scopes: tuple[MailScope, ...] = ()) -> None:
        self.index = index
        self.scopes = scopes
        self.locator = index.locator

    def search(self, query: Query, *, snippet_chars: int = 160) -> SearchResult:
        self.index._answer()
        return self.index.found(query, snippet_chars, *self.scopes)

    def read(self, document_id: str) -> Document | None:
        document = self.index.read(document_id)
        return document if document and all(scope.allows(document) for scope in self.scopes) else None

    def within(self, scope: MailScope) -> FakeView:
        self.index.views.append(scope)
        return FakeView(self.index, (*self.scopes, scope))

    def asynchronous(self) -> FakeRemote | None:
        return FakeRemote(self.index, self.scopes) if self.index.remote else None


class FakeRemote:
    """The asynchronous side of a FakeIndex."""

    def __init__(self, index: FakeIndex, scopes: tuple[MailScope, ...] = ()) -> None:
        self._index = index
        self._scopes = scopes
        self.locator = index.locator

    async def _answer(self) -> None:
        await asyncio.sleep(0)
        if self._index._answer() == "z":
            await self._index.hanging.wait()

    async def search(self, query: Query, *, snippet_chars: int = 160) -> SearchResult:
        await self._answer()
        return self._index.found(query, snippet_chars, *self._scopes)

    async def read(self, document_id: str) -> Document | None:
        await self._answer()
        document = self._index.documents.get(document_id)
        return document if document and all(scope.allows(document) for scope in self._scopes) else None

    def within(self, scope: MailScope) -> FakeRemote:
        self._index.views.append(scope)
        return FakeRemote(self._index, (*self._scopes, scope))

    async def close(self) -> None:
        self._index.closed = True
