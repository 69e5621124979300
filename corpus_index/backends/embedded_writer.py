"""Building an embedded index: streamed into a folder beside its place, and renamed into it."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

import tantivy

from corpus_index.backends.base import IndexStats, check_id
from corpus_index.backends.embedded import MEMORY_LOCATOR, EmbeddedIndex
from corpus_index.backends.embedded_mapping import FORMAT, METADATA, SEGMENTS, build_schema, entry, register
from corpus_index.backends.swap import disk_error, swapped_in
from corpus_index.document import Document

_LEAST_HEAP = 15_000_000  # bytes; the engine takes no less

T = TypeVar("T")


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
        register(index)
        return index.writer(self._heap_bytes * self._threads, self._threads)


def build_in_memory(documents: Iterable[Document]) -> EmbeddedIndex:
    """An index that lives in this process only: for tests and small synthetic corpora."""
    index = tantivy.Index(build_schema())
    register(index)
    _fill(lambda: index.writer(_LEAST_HEAP, 1), documents, Path())
    return EmbeddedIndex(index, MEMORY_LOCATOR)


def _fill(open_writer: Callable[[], tantivy.IndexWriter], documents: Iterable[Document], target: Path) -> int:
    """Add all documents, commit once, wait for the merges. Returns how many."""
    writer = _written(open_writer, target)
    seen: set[str] = set()
    try:
        for document in documents:
            check_id(document, seen)
            made = entry(document)
            _written(lambda made=made: writer.add_document(made), target)
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
