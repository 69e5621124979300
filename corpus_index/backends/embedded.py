"""The embedded backend: a tantivy index in a folder (or in memory), read by any number of threads and processes.

A folder holds ``index.json`` (what built it) and ``segments/`` (tantivy's files). It is written beside its final place
and renamed into it, so a reader sees the old index or the new one. A reader that is open keeps what it opened.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar, cast

import orjson
import tantivy
from tantivy import Order

from corpus_index.backends.base import Hit, IndexMissing, IndexStats, IndexUnavailable, SearchResult, check_id
from corpus_index.backends.loaded import Loaded, Remembered
from corpus_index.backends.snippets import Snippeter
from corpus_index.backends.swap import disk_error, recover, swapped_in
from corpus_index.backends.tantivy_query import Compiler, clamped
from corpus_index.backends.words import ENGLISH, WORDS, analysers
from corpus_index.document import Document, encodable
from corpus_index.query import Query
from corpus_index.scope import MailScope

FORMAT = {"format": "futari-embedded", "version": 1, "analyser": ENGLISH, "names": WORDS}
METADATA, SEGMENTS = "index.json", "segments"
MEMORY_LOCATOR = "embedded::memory:"
_LEAST_HEAP = 15_000_000  # bytes; the engine takes no less
_FIELDS = tuple(field.name for field in fields(Document))
_TUPLES = frozenset({"recipients", "recipient_names", "attachments"})

T = TypeVar("T")


def build_schema() -> tantivy.Schema:
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("id", tokenizer_name="raw", index_option="basic", fast=True)
    for name in ("mailbox", "folder", "thread"):
        builder.add_text_field(name, tokenizer_name="raw", index_option="basic")
    for name in ("subject", "body"):
        builder.add_text_field(name, tokenizer_name=ENGLISH)
    for name in ("sender", "recipient"):
        builder.add_text_field(name, tokenizer_name=WORDS)
    builder.add_date_field("date", indexed=True, fast=True)
    builder.add_bytes_field("stored", stored=True)
    return builder.build()


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
                _register(index)
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
            yield _decoded(cast(bytes, searcher.doc(address).get_first("stored"))).id

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
        return self._remembered.get(place, lambda: _decoded(cast(bytes, searcher.doc(address).get_first("stored"))))


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


class EmbeddedWriter:
    """Builds the index at ``path`` anew. Ids must be unique and made of letters, digits, ``_`` and ``-``."""

    def __init__(self, path: Path, *, heap_bytes: int = 128_000_000, threads: int = 1) -> None:
        if heap_bytes < _LEAST_HEAP or threads < 1:
            least = f"expected at least {_LEAST_HEAP} bytes a thread and 1 thread"
            raise ValueError(f"heap_bytes={heap_bytes}, threads={threads}: {least}")
        self._path, self._heap_bytes, self._threads = path, heap_bytes, threads

    def build(self, documents: Iterable[Document]) -> IndexStats:
        """Stream the documents in and swap the new index into place.

        Raises ValueError for a repeated or malformed id, OSError where the disk is full, not writable, or the folder
        holds something else, and whatever ``documents`` raises; the index that was there stays as it was.
        """
        if self._path.is_dir() and any(self._path.iterdir()) and not (self._path / SEGMENTS / "meta.json").exists():
            message = "this folder holds something else than an index; name a new folder"
            raise OSError(errno.EEXIST, message, str(self._path))
        with swapped_in(self._path) as folder:
            count = _fill(lambda: self._open_writer(folder / SEGMENTS), documents, self._path)
            metadata = {**FORMAT, "documents": count, "engine": f"tantivy {version('tantivy')}"}
            (folder / METADATA).write_text(json.dumps(metadata, indent=2) + "\n", encoding="utf-8")
        return EmbeddedIndex.open(self._path).stats()

    def _open_writer(self, segments: Path) -> tantivy.IndexWriter:
        segments.mkdir()
        index = tantivy.Index(build_schema(), path=str(segments), reuse=False)
        _register(index)
        return index.writer(self._heap_bytes * self._threads, self._threads)


def build_in_memory(documents: Iterable[Document]) -> EmbeddedIndex:
    """An index that lives in this process only: for tests and small synthetic corpora."""
    index = tantivy.Index(build_schema())
    _register(index)
    _fill(lambda: index.writer(_LEAST_HEAP, 1), documents, Path())
    return EmbeddedIndex(index, MEMORY_LOCATOR)


def _register(index: tantivy.Index) -> None:
    for name, analyser in analysers().items():
        index.register_tokenizer(name, analyser)


def _fill(open_writer: Callable[[], tantivy.IndexWriter], documents: Iterable[Document], target: Path) -> int:
    """Add all documents, commit once, wait for the merges. Returns how many."""
    writer = _written(open_writer, target)
    seen: set[str] = set()
    try:
        for document in documents:
            check_id(document, seen)
            entry = _entry(document)
            _written(lambda entry=entry: writer.add_document(entry), target)
        _written(writer.commit, target)
    except BaseException:
        with suppress(Exception):  # the writer may have died of the failure that brings us here
            writer.rollback()
        with suppress(Exception):  # its threads must not write into the folder while that is removed
            writer.wait_merging_threads()
        raise
    _written(writer.wait_merging_threads, target)
    return len(seen)


def _written(call: Callable[[], T], target: Path) -> T:
    try:
        return call()
    except Exception as error:
        raise disk_error(error, target) from error


def _entry(document: Document) -> tantivy.Document:
    entry = tantivy.Document()
    for name in ("id", "subject", "body", "mailbox", "folder", "thread"):
        text = cast(str, getattr(document, name))
        if text:
            entry.add_text(name, encodable(text))
    for name in (document.sender_name, document.sender):
        entry.add_text("sender", encodable(name))
    for name in (*document.recipient_names, *document.recipients):
        entry.add_text("recipient", encodable(name))
    if document.date is not None:
        entry.add_date("date", clamped(document.date).replace(microsecond=0))
    entry.add_bytes("stored", _dump(document))
    return entry


def _dump(document: Document) -> bytes:
    values = [getattr(document, name) for name in _FIELDS]
    try:
        return orjson.dumps(values)
    except orjson.JSONEncodeError:
        pass
    # surrogatepass: what a source could not decode comes back exactly as it was.
    return json.dumps(values, ensure_ascii=False, default=datetime.isoformat).encode("utf-8", "surrogatepass")


def _decoded(stored: bytes) -> Document:
    try:
        stored_values = orjson.loads(stored)
    except orjson.JSONDecodeError:
        stored_values = json.loads(stored.decode("utf-8", "surrogatepass"))
    values = dict(zip(_FIELDS, stored_values, strict=True))
    for name in _TUPLES:
        values[name] = tuple(values[name])
    if values["date"] is not None:
        values["date"] = datetime.fromisoformat(values["date"])
    return Document(**values)


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
