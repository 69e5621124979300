"""The embedded backend: a tantivy index in a folder (or in memory), read by any number of threads and processes.

A folder holds ``index.json`` (what built it) and ``segments/`` (tantivy's files). It is written beside its final place
and renamed into it, so a reader sees the old index or the new one. A reader that is open keeps what it opened.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar, cast

import tantivy
from tantivy import Order

from corpus_index.backends.base import Hit, IndexMissing, IndexStats, IndexUnavailable, SearchResult
from corpus_index.backends.embedded_mapping import FORMAT, METADATA, SEGMENTS, decoded, register
from corpus_index.backends.loaded import Loaded, Remembered
from corpus_index.backends.snippets import Snippeter
from corpus_index.backends.swap import recover
from corpus_index.backends.tantivy_query import Compiler
from corpus_index.document import Document, encodable
from corpus_index.query import Query
from corpus_index.scope import MailScope

MEMORY_LOCATOR = "embedded::memory:"

T = TypeVar("T")


class EmbeddedIndex:
    """A SearchIndex over one tantivy searcher: a fixed view of the index as it was opened."""

    def __init__(self, index: tantivy.Index, locator: str, path: Path | None = None) -> None:
        index.config_reader("manual")
        index.reload()
        self._searcher: tantivy.Searcher | None = index.searcher()
        self._schema = index.schema
        self._compiler = Compiler(index.schema)
        self._locator = locator
        self._path = path
        self._remembered = Remembered()  # ties, too, need the ids of the same mails again and again

    @classmethod
    def open(cls, path: Path) -> EmbeddedIndex:
        """Raises IndexMissing where nothing is there, IndexUnavailable where it is damaged or of another version."""
        rebuild = f"build it with: python -m corpus_index build --source SOURCE --index embedded:{path}"
        if not path.is_dir():
            recover(path)  # a build that was killed between its two renames left it beside its place
        if not path.is_dir():
            raise IndexMissing(f"no index at {path}; {rebuild}")
        try:
            metadata = json.loads((path / METADATA).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise IndexUnavailable(f"{path} is not a whole index ({METADATA}: {error}); {rebuild}") from error
        found = {key: metadata.get(key) for key in FORMAT} if isinstance(metadata, dict) else metadata
        if found != FORMAT or "documents" not in metadata:
            raise IndexUnavailable(f"{path} was built as {found}, this version reads {FORMAT}; {rebuild}")

        def load() -> EmbeddedIndex:
            # The engine takes a lock file where it opens an index. A folder of links keeps readers from writing into
            # the index: it may lie on a read-only disk. Everything is mapped once the searcher exists.
            # The engine may still let go of a lock file there: an index that opened must not fail for that.
            with TemporaryDirectory(prefix="futari-index-", ignore_cleanup_errors=True) as view:
                for file in (path / SEGMENTS).absolute().iterdir():
                    if not file.name.endswith(".lock"):
                        (Path(view) / file.name).symlink_to(file)
                index = tantivy.Index.open(view)
                register(index)
                return cls(index, f"embedded:{path}", path)

        opened = _guarded(load, f"the index at {path} is damaged; {rebuild}")
        held, written = opened.stats().documents, metadata["documents"]
        if held != written:
            raise IndexUnavailable(f"the index at {path} holds {held} documents, not {written}; {rebuild}")
        return opened

    @property
    def locator(self) -> str:
        return self._locator

    def search(self, query: Query, *, snippet_chars: int = 160) -> SearchResult:
        """Raises QueryRejected where a text of the query holds no word; IndexUnavailable where the engine fails."""
        return self.find(query, snippet_chars, ())

    def find(self, query: Query, snippet_chars: int, scopes: Sequence[MailScope]) -> SearchResult:
        """``search`` among the mails that all ``scopes`` allow."""
        searcher = self._live()
        compiled = self._compiler.compile(query, scopes)
        found, total = _guarded(
            lambda: (self._ranked if compiled.scored else self._by_id)(searcher, compiled.query, query.limit),
            f"search in {self._locator} failed",
        )
        if snippet_chars <= 0:
            return SearchResult(tuple(Hit(mail.document, score, "") for score, mail in found), total)
        snippeter = Snippeter(compiled.stems, self._compiler.words.stem)
        hits = (Hit(mail.document, score, *snippeter.cut(mail.folded(), snippet_chars)) for score, mail in found)
        return SearchResult(tuple(hits), total)

    def read(self, document_id: str) -> Document | None:
        searcher = self._live()
        query = tantivy.Query.term_query(self._schema, "id", encodable(document_id), "basic")
        hits = _guarded(lambda: searcher.search(query, 1, count=False).hits, f"reading from {self._locator} failed")
        return self._load(searcher, hits[0][1]).document if hits else None

    def ids(self) -> Iterator[str]:
        """All ids in ascending order. Holds them all: about 60 bytes each."""
        searcher = self._live()
        yield from (term for term, _ in searcher.terms_with_prefix("id", ""))

    def stats(self) -> IndexStats:
        size = sum(file.stat().st_size for file in self._path.rglob("*") if file.is_file()) if self._path else 0
        return IndexStats(self._live().num_docs, size, self._locator)

    def ids_within(self, scopes: Sequence[MailScope]) -> Iterator[str]:
        """The ids that all ``scopes`` allow, ascending."""
        query = self._compiler.within(scopes)
        count = self.count_within(scopes)
        if query is None or not count:
            yield from self.ids() if query is None else ()
            return
        searcher = self._live()
        found = _guarded(
            lambda: searcher.search(query, count, count=False, order_by_field="id", order=Order.Asc).hits,
            f"reading from {self._locator} failed",
        )
        for _, address in found:
            yield decoded(cast(bytes, searcher.doc(address).get_first("stored"))).id

    def count_within(self, scopes: Sequence[MailScope]) -> int:
        query, searcher = self._compiler.within(scopes), self._live()
        if query is None:
            return searcher.num_docs
        return _guarded(lambda: _count(searcher.search(query, 1)), f"search in {self._locator} failed")

    def within(self, scope: MailScope) -> ScopedIndex:
        return ScopedIndex(self, (scope,))

    def asynchronous(self) -> None:
        """None: the answer comes from this process, faster than any hop through an event loop."""

    def close(self) -> None:
        self._searcher = None

    def _live(self) -> tantivy.Searcher:
        if self._searcher is None:
            raise IndexUnavailable(f"{self._locator} has been closed; open it again")
        return self._searcher

    def _ranked(
        self, searcher: tantivy.Searcher, query: tantivy.Query, limit: int
    ) -> tuple[list[tuple[float, Loaded]], int]:
        """The first ``limit`` by (falling score, id).

        The engine breaks ties by its own document numbers, so ask for more while the tie at the limit goes on.
        Scores are compared as they are shown, at 5 decimals: equal mails in different segments differ in the last bit.
        """
        ask = limit + 4
        while True:
            result = searcher.search(query, ask)
            hits = [(round(cast(float, score), 5), address) for score, address in result.hits]
            if len(hits) < ask or hits[-1][0] < hits[limit - 1][0]:
                break
            ask *= 4
        last = hits[limit - 1][0] if len(hits) >= limit else float("-inf")
        loaded = [(score, self._load(searcher, address)) for score, address in hits if score >= last]
        loaded.sort(key=lambda pair: (-pair[0], pair[1].document.id))
        return loaded[:limit], _count(result)

    def _by_id(
        self, searcher: tantivy.Searcher, query: tantivy.Query, limit: int
    ) -> tuple[list[tuple[float, Loaded]], int]:
        """The first ``limit`` by id: for queries that only filter, where every match ties."""
        result = searcher.search(query, limit, order_by_field="id", order=Order.Asc)
        return [(0.0, self._load(searcher, address)) for _, address in result.hits], _count(result)

    def _load(self, searcher: tantivy.Searcher, address: tantivy.DocAddress) -> Loaded:
        place = (address.segment_ord, address.doc)
        return self._remembered.get(place, lambda: decoded(cast(bytes, searcher.doc(address).get_first("stored"))))


class ScopedIndex:
    """A view of an EmbeddedIndex: only the mails that all its scopes allow. Closing it leaves the index open."""

    def __init__(self, index: EmbeddedIndex, scopes: tuple[MailScope, ...]) -> None:
        self._index, self._scopes = index, scopes
        self._closed = False

    @property
    def locator(self) -> str:
        return self._index.locator

    def search(self, query: Query, *, snippet_chars: int = 160) -> SearchResult:
        return self._open().find(query, snippet_chars, self._scopes)

    def read(self, document_id: str) -> Document | None:
        document = self._open().read(document_id)
        return document if document and all(scope.allows(document) for scope in self._scopes) else None

    def ids(self) -> Iterator[str]:
        return self._open().ids_within(self._scopes)

    def stats(self) -> IndexStats:
        """``documents`` counts the allowed mails; the bytes are those of the whole index."""
        index = self._open()
        return replace(index.stats(), documents=index.count_within(self._scopes))

    def within(self, scope: MailScope) -> ScopedIndex:
        return ScopedIndex(self._index, (*self._scopes, scope))

    def asynchronous(self) -> None:
        """None, as for the index."""

    def close(self) -> None:
        self._closed = True

    def _open(self) -> EmbeddedIndex:
        if self._closed:
            raise IndexUnavailable(f"this view of {self.locator} has been closed; make it again with within()")
        return self._index


def _count(result: tantivy.SearchResult) -> int:
    return cast(int, result.count)  # pyright: ignore[reportAttributeAccessIssue]  (missing in the stub)


def _guarded(call: Callable[[], T], message: str) -> T:
    """The engine's failures, its panics included (they are not ``Exception``s), as IndexUnavailable."""
    try:
        return call()
    except (KeyboardInterrupt, SystemExit, IndexUnavailable):
        raise
    except BaseException as error:
        raise IndexUnavailable(f"{message} ({type(error).__name__}: {str(error)[:200]})") from error
