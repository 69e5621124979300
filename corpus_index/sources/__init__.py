"""Where mail comes from: ``kind:path`` specs, one reader a format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from corpus_index.document import Document
from corpus_index.sources.eml import read_eml
from corpus_index.sources.items import DEFAULT_MAX_BYTES, Item, Mail, RawMail, SourceError, Unread
from corpus_index.sources.jsonl import read_jsonl
from corpus_index.sources.mail import parse_mail
from corpus_index.sources.maildir import TAR_SUFFIXES, read_maildir
from corpus_index.sources.mbox import read_mbox

__all__ = [
    "DEFAULT_MAX_BYTES",
    "FORMS",
    "Mail",
    "SourceError",
    "Unread",
    "kind_of",
    "open_source",
    "parse_item",
    "read_items",
]

FORMS = "maildir:PATH (folder, .tar, .tar.gz, .tar.xz), mbox:PATH, eml:PATH, jsonl:PATH, company:SETTINGS"
_READERS: dict[str, Callable[[Path, int], Iterator[Item]]] = {
    "maildir": read_maildir,
    "mbox": read_mbox,
    "eml": read_eml,
    "jsonl": read_jsonl,
}
_SUFFIXES = {".mbox": "mbox", ".mbx": "mbox", ".eml": "eml", ".jsonl": "jsonl", ".ndjson": "jsonl"}


def open_source(
    spec: str,
    *,
    on_error: Callable[[Unread], None] | None = None,
    max_bytes: int = DEFAULT_MAX_BYTES,
) -> Iterator[Document]:
    """Parsed documents of a source, in its own order, one at a time.

    ``spec`` is one of FORMS, or a bare path whose kind is plain to see. A message that cannot be used is skipped and
    handed to ``on_error``. Raises SourceError at once for an unknown form or a missing path, and while reading for a
    broken archive or a source without any message.
    """
    items = read_items(spec, max_bytes=max_bytes)  # here, not in the generator: a wrong spec fails at the call
    return _documents(items, on_error)


def _documents(items: Iterable[Item], on_error: Callable[[Unread], None] | None) -> Iterator[Document]:
    for item in items:
        mail = parse_item(item)
        if isinstance(mail, Mail):
            yield mail.document
        elif on_error is not None:
            on_error(mail)


def parse_item(item: Item) -> Mail | Unread:
    """What a reader gave, parsed; never raises."""
    return parse_mail(item) if isinstance(item, RawMail) else item


def read_items(spec: str, *, max_bytes: int = DEFAULT_MAX_BYTES) -> Iterator[Item]:
    """Unparsed items of a source. Checks the spec at once; raises SourceError."""
    kind, rest = split_spec(spec)
    if kind == "company":
        from corpus_index.sources.company import documents_from_spec

        return (Mail(document) for document in documents_from_spec(rest))
    if max_bytes < 1:
        raise SourceError(f"max_bytes is {max_bytes}; expected at least 1 (the default is {DEFAULT_MAX_BYTES})")
    path = Path(rest).expanduser()
    return _not_empty(_READERS[kind](path, max_bytes), spec)


def _not_empty(items: Iterator[Item], spec: str) -> Iterator[Item]:
    count = 0
    for item in items:
        count += 1
        yield item
    if count == 0:
        raise SourceError(f"{spec!r} holds no message; check the path, or name the format: {FORMS}")


def kind_of(spec: str) -> str:
    """``maildir``, ``mbox``, ``eml``, ``jsonl`` or ``company``. Raises SourceError like open_source."""
    return split_spec(spec)[0]


def split_spec(spec: str) -> tuple[str, str]:
    """``(kind, rest)`` of a source spec; the kind of a bare path is guessed. Raises SourceError."""
    kind, colon, rest = spec.partition(":")
    if kind == "company":
        return kind, rest
    if colon and kind in _READERS:
        path = Path(rest).expanduser()
        if not rest or not path.exists():
            raise SourceError(
                f"{spec!r}: there is no file or folder {rest!r} here; check the path (now in {Path.cwd()})"
            )
        if kind in ("mbox", "jsonl") and path.is_dir():
            raise SourceError(
                f"{spec!r}: {rest!r} is a folder; {kind} expects one file. For a folder use maildir: or eml:"
            )
        return kind, rest
    path = Path(spec).expanduser()
    if path.exists():
        return _guess(path, spec), spec
    if colon and kind.isalnum() and len(kind) > 1:
        raise SourceError(f"unknown source {spec!r}: {kind!r} is not a format. Expected one of: {FORMS}")
    raise SourceError(f"source {spec!r} is neither a path that exists nor one of: {FORMS}")


def _guess(path: Path, spec: str) -> str:
    if path.is_dir():
        return "eml" if any(path.glob("*.eml")) else "maildir"
    if path.name.lower().endswith(TAR_SUFFIXES):
        return "maildir"
    if path.suffix.lower() in _SUFFIXES:
        return _SUFFIXES[path.suffix.lower()]
    with path.open("rb") as file:
        if file.read(5) == b"From ":
            return "mbox"
    raise SourceError(f"cannot tell the format of {spec!r}; name it: {FORMS}")
