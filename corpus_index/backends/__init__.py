"""Search engines behind one protocol: ``embedded:PATH`` now, ``opensearch:URL/NAME`` beside it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from corpus_index.backends.base import IndexWriter, SearchIndex
from corpus_index.document import Document

_FORMS = "embedded:PATH (a folder on this machine) or opensearch:URL/NAME"


def open_index(locator: str) -> SearchIndex:
    """Open an index for reading. Raises IndexUnavailable (missing, damaged), ValueError for a bad locator."""
    from corpus_index.backends.embedded import EmbeddedIndex

    return EmbeddedIndex.open(_embedded_path(locator))


def open_writer(locator: str, *, heap_bytes: int = 128_000_000, threads: int = 1) -> IndexWriter:
    """A writer that builds a whole index. ``heap_bytes``: memory per writing thread before it spills to disk."""
    from corpus_index.backends.embedded import EmbeddedWriter

    return EmbeddedWriter(_embedded_path(locator), heap_bytes=heap_bytes, threads=threads)


def open_memory_index(documents: Iterable[Document]) -> SearchIndex:
    """An embedded index that lives in this process only: for tests and small synthetic corpora."""
    from corpus_index.backends.embedded import build_in_memory

    return build_in_memory(documents)


def _embedded_path(locator: str) -> Path:
    scheme, _, rest = locator.partition(":")
    if scheme == "opensearch":
        raise ValueError(f"index {locator!r}: the opensearch backend is not there yet; use embedded:PATH")
    if scheme != "embedded" or not rest:
        raise ValueError(f"index {locator!r} is not a locator; write {_FORMS}")
    return Path(rest).expanduser()
