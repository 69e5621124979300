"""From a source spec to documents ready for an index, in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from corpus_index.ahead import read_ahead
from corpus_index.cleaning import CleaningOptions, CleaningReport, clean_prepared, drop_twins
from corpus_index.document import Document
from corpus_index.sources import kind_of, read_items
from corpus_index.workers import chunks, prepare_items

__all__ = ["CleaningOptions", "CleaningReport", "prepare"]

_PROGRESS_STEP = 100
_DEFAULTS = CleaningOptions()


def prepare(
    spec: str,
    options: CleaningOptions = _DEFAULTS,
    progress: Callable[[int], None] | None = None,
) -> tuple[Iterator[Document], CleaningReport]:
    """Read, parse, clean and thread a source as a stream.

    Returns the documents and a report that fills while they are consumed: read it when the iterator is at its end.
    ``progress`` gets the number of messages read so far, now and then and at the end. A wrong spec raises SourceError
    at once; a broken archive or a source without any message raises it while reading.
    """
    items = read_items(spec, max_bytes=options.max_bytes)
    company = kind_of(spec) == "company"
    if options.near_duplicates is None:
        options = options.model_copy(update={"near_duplicates": not company})
    report = CleaningReport()
    workers = 0 if company else options.workers
    if workers != 0:
        items = read_ahead(chunks(items))
    if options.exact_duplicates:
        items = drop_twins(items, report)
    documents = clean_prepared(prepare_items(items, workers), options, report)
    return (_watched(documents, report, progress) if progress else documents), report


def _watched(
    documents: Iterator[Document], report: CleaningReport, progress: Callable[[int], None]
) -> Iterator[Document]:
    shown = 0
    for document in documents:
        if report.read - shown >= _PROGRESS_STEP:
            shown = report.read
            progress(shown)
        yield document
    progress(report.read)
