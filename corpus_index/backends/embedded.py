"""The embedded backend: a tantivy index in a folder (or in memory), read by any number of threads and processes.

A folder holds ``index.json`` (what built it) and ``segments/`` (tantivy's files). It is written beside its final place
and renamed into it, so a reader sees the old index or the new one. A reader that is open keeps what it opened.
"""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import fields
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar, cast

import tantivy
from tantivy import Order

from corpus_index.backends.base import Hit, IndexStats, IndexUnavailable, SearchResult
from corpus_index.backends.snippets import FoldedText, Snippeter
from corpus_index.backends.swap import disk_error, recover, swapped_in
from corpus_index.backends.tantivy_query import ENGLISH, WORDS, Compiler, analysers, clamped, encodable
from corpus_index.document import Document
from corpus_index.query import Query

FORMAT = {"format": "futari-embedded", "version": 1, "analyser": ENGLISH, "names": WORDS}
METADATA, SEGMENTS = "index.json", "segments"
MEMORY_LOCATOR = "embedded::memory:"
_LEAST_HEAP = 15_000_000  # bytes; the engine takes no less
_REMEMBERED, _REMEMBERED_CHARS = 5_000, 8_000  # documents, and the longest body: 120 MB at the very most
_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
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
        # Searches of one group of episodes meet the same mails again and again, and ties need their ids.
        self._documents: dict[tuple[int, int], _Loaded] = {}

    @classmethod
    def open(cls, path: Path) -> EmbeddedIndex:
        """Raises IndexUnavailable where nothing is there, it is damaged, or another version built it."""
        rebuild = f"build it with: python -m corpus_index build --source SOURCE --index embedded:{path}"
        if not path.is_dir():
            recover(path)  # a build that was killed between its two renames left it beside its place
        if not path.is_dir():
            raise IndexUnavailable(f"no index at {path}; {rebuild}")
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
            with TemporaryDirectory(prefix="futari-index-") as view:
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
        searcher = self._live()
        compiled = self._compiler.compile(query)
        found, total = _guarded(
            lambda: (self._ranked if compiled.scored else self._by_id)(searcher, compiled.query, query.limit),
            f"search in {self._locator} failed",
        )
        if snippet_chars <= 0:
            return SearchResult(tuple(Hit(mail.document, score, "") for score, mail in found), total)
        snippeter = Snippeter(compiled.stems, self._compiler.stem)
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

    def close(self) -> None:
        self._searcher = None

    def _live(self) -> tantivy.Searcher:
        if self._searcher is None:
            raise IndexUnavailable(f"{self._locator} has been closed; open it again")
        return self._searcher

    def _ranked(
        self, searcher: tantivy.Searcher, query: tantivy.Query, limit: int
    ) -> tuple[list[tuple[float, _Loaded]], int]:
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
    ) -> tuple[list[tuple[float, _Loaded]], int]:
        """The first ``limit`` by id: for queries that only filter, where every match ties."""
        result = searcher.search(query, limit, order_by_field="id", order=Order.Asc)
        return [(0.0, self._load(searcher, address)) for _, address in result.hits], _count(result)

    def _load(self, searcher: tantivy.Searcher, address: tantivy.DocAddress) -> _Loaded:
        """The stored mail, remembered unless it is very long."""
        place = (address.segment_ord, address.doc)
        loaded = self._documents.get(place)
        if loaded is None:
            loaded = _Loaded(_decoded(cast(bytes, searcher.doc(address).get_first("stored"))))
            if len(loaded.document.body) <= _REMEMBERED_CHARS:
                if len(self._documents) >= _REMEMBERED:
                    self._documents.clear()
                self._documents[place] = loaded
        return loaded


class _Loaded:
    """A mail and, once a snippet was cut from it, its folded body."""

    __slots__ = ("_folded", "document")

    def __init__(self, document: Document) -> None:
        self.document = document
        self._folded: FoldedText | None = None

    def folded(self) -> FoldedText:
        if self._folded is None:
            self._folded = FoldedText(self.document.body)
        return self._folded


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
            _check_id(document, seen)
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


def _check_id(document: Document, seen: set[str]) -> None:
    where = f"document id {document.id!r} (source {document.source!r})"
    if not _ID.fullmatch(document.id):
        raise ValueError(f"{where}: expected 1 to 128 letters, digits, '_' or '-'")
    if document.id in seen:
        raise ValueError(f"{where} occurs twice; ids must be unique in a corpus")
    seen.add(document.id)


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
        entry.add_date("date", clamped(document.date))
    entry.add_bytes("stored", _dump(document))
    return entry


def _dump(document: Document) -> bytes:
    values = [getattr(document, name) for name in _FIELDS]
    # surrogatepass: what a source could not decode comes back exactly as it was.
    return json.dumps(values, ensure_ascii=False, default=datetime.isoformat).encode("utf-8", "surrogatepass")


def _decoded(stored: bytes) -> Document:
    values = dict(zip(_FIELDS, json.loads(stored.decode("utf-8", "surrogatepass")), strict=True))
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
