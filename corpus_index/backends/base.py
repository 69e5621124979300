"""What every search backend offers: search, read, count. The rest of the house sees only this."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from corpus_index.document import Document
from corpus_index.faults import Unavailable
from corpus_index.query import Query
from corpus_index.scope import MailScope

ID = re.compile(r"[A-Za-z0-9_-]{1,128}")


class IndexUnavailable(Unavailable):
    """The search engine cannot answer (down, locked, missing). Never the policy's fault: retry, then mask.

    Not ``passing`` where credentials are wrong or another version built the index.
    """


class IndexMissing(IndexUnavailable):
    """There is no index under this name: the one case in which building it is the answer."""


class QueryRejected(ValueError):
    """The query is valid by our model but the engine refuses it. The policy's fault: it gets the message."""


@dataclass(frozen=True, slots=True)
class Hit:
    """One search hit. ``highlights`` are ``[start, end)`` character offsets into ``snippet``."""

    document: Document
    score: float
    snippet: str
    highlights: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Hits by falling score (ties by id), and how many documents match in all."""

    hits: tuple[Hit, ...]
    total: int


@dataclass(frozen=True, slots=True)
class IndexStats:
    documents: int
    bytes_on_disk: int
    locator: str


@runtime_checkable
class SearchIndex(Protocol):
    """Raises IndexUnavailable or QueryRejected; never returns a partial result."""

    @property
    def locator(self) -> str: ...

    def search(self, query: Query, *, snippet_chars: int = 160) -> SearchResult: ...

    def read(self, document_id: str) -> Document | None: ...

    def ids(self) -> Iterator[str]: ...

    def stats(self) -> IndexStats: ...

    def within(self, scope: MailScope) -> SearchIndex:
        """A view that knows only the mails ``scope`` allows: another's id reads as None, as an unknown one does.

        Scopes stack: all must allow a mail. Closing the view leaves this index open.
        """
        ...

    def asynchronous(self) -> AsyncSearchIndex | None:
        """The same index (and scope) for an event loop; None where the calls above are as fast as a hop to one."""
        ...

    def close(self) -> None: ...


class AsyncSearchIndex(Protocol):
    """A remote index for many searches at once; results and errors are those of SearchIndex."""

    @property
    def locator(self) -> str: ...

    async def search(self, query: Query, *, snippet_chars: int = 160) -> SearchResult: ...

    async def read(self, document_id: str) -> Document | None: ...

    def within(self, scope: MailScope) -> AsyncSearchIndex: ...

    async def close(self) -> None: ...


class IndexWriter(Protocol):
    """Builds an index beside the live one and swaps it in at the end; a failed build leaves the old one as it was."""

    def build(self, documents: Iterable[Document]) -> IndexStats: ...


def check_id(document: Document, seen: set[str]) -> None:
    """Adds the id to ``seen``. Raises ValueError for one that is malformed or was there."""
    where = f"document id {document.id!r} (source {document.source!r})"
    if not ID.fullmatch(document.id):
        raise ValueError(f"{where}: expected 1 to 128 letters, digits, '_' or '-'")
    if document.id in seen:
        raise ValueError(f"{where} occurs twice; ids must be unique in a corpus")
    seen.add(document.id)
