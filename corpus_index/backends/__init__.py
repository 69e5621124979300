"""Search engines behind one protocol: ``embedded:PATH`` and ``opensearch:URL/NAME``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from corpus_index.backends.base import IndexWriter, SearchIndex
from corpus_index.document import Document

FORMS = "embedded:PATH (a folder on this machine) or opensearch:URL/NAME (such as http://127.0.0.1:9200/mail)"
_OPENSEARCH = "opensearch:"
_REPORT = "report.json"


def open_index(locator: str) -> SearchIndex:
    """Open an index for reading.

    Raises IndexMissing, IndexUnavailable (damaged, out of reach, another version), ValueError for a bad locator.
    """
    if locator.startswith(_OPENSEARCH):
        from corpus_index.backends.opensearch import OpenSearchIndex

        return OpenSearchIndex.open(locator)
    from corpus_index.backends.embedded import EmbeddedIndex

    return EmbeddedIndex.open(_embedded_path(locator))


def open_writer(
    locator: str, *, heap_bytes: int = 128_000_000, threads: int = 1, analyser: str | None = None
) -> IndexWriter:
    """A writer that builds a whole index.

    ``heap_bytes`` and ``threads`` are the embedded engine's: memory per writing thread before it spills to disk.
    ``analyser`` is OpenSearch's: ``english`` (what None means) or ``cjk``. Raises ValueError.
    """
    if locator.startswith(_OPENSEARCH):
        from corpus_index.backends.opensearch_mapping import Layout, analyser_named
        from corpus_index.backends.opensearch_writer import OpenSearchWriter

        return OpenSearchWriter(locator, Layout(analyser=analyser_named(analyser or "english")))
    if analyser not in (None, "english"):
        raise ValueError(f"analyser {analyser!r} needs OpenSearch; the embedded index knows english only")
    from corpus_index.backends.embedded_writer import EmbeddedWriter

    return EmbeddedWriter(_embedded_path(locator), heap_bytes=heap_bytes, threads=threads)


def open_memory_index(documents: Iterable[Document]) -> SearchIndex:
    """An embedded index that lives in this process only: for tests and small synthetic corpora."""
    from corpus_index.backends.embedded_writer import build_in_memory

    return build_in_memory(documents)


def save_report(locator: str, report: Mapping[str, object]) -> None:
    """Keep the report of a build with the index it describes. Raises IndexUnavailable, OSError."""
    if locator.startswith(_OPENSEARCH):
        from corpus_index.backends import opensearch_writer

        opensearch_writer.save_report(locator, report)
        return
    (_embedded_path(locator) / _REPORT).write_text(report_text(report), encoding="utf-8")


def load_report(locator: str) -> dict[str, object] | None:
    """What ``save_report`` kept, or None. Raises IndexUnavailable, OSError, ValueError for a damaged file."""
    if locator.startswith(_OPENSEARCH):
        from corpus_index.backends import opensearch_writer

        return opensearch_writer.load_report(locator)
    path = _embedded_path(locator) / _REPORT
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def report_text(report: Mapping[str, object]) -> str:
    return json.dumps(report, indent=2, ensure_ascii=False) + "\n"


def _embedded_path(locator: str) -> Path:
    scheme, _, rest = locator.partition(":")
    if scheme != "embedded" or not rest:
        raise ValueError(f"index {locator!r} is not a locator; write {FORMS}")
    return Path(rest).expanduser()
