"""What every search backend offers: search, read, count. The rest of the house sees only this."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from corpus_index.document import Document
from corpus_index.query import Query


class IndexUnavailable(RuntimeError):
    """The search engine cannot answer (down, locked, missing). Never the policy's fault: retry, then mask."""


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

    def close(self) -> None: ...


class IndexWriter(Protocol):
    """Builds an index beside the live one and swaps it in at the end; a failed build leaves the old one as it was."""

    def build(self, documents: Iterable[Document]) -> IndexStats: ...
