"""Mails through a pipe between two processes of ours, which trust each other: pickled, with the length before."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from copyreg import pickle as pickle_as
from dataclasses import fields
from operator import attrgetter
from typing import BinaryIO

from corpus_index.dedup import Fingerprint
from corpus_index.document import Document
from corpus_index.prepared import Prepared
from corpus_index.sources.items import Mail, RawMail
from corpus_index.threads import Trace

_LENGTH_BYTES = 8
_DOCUMENT = tuple(each.name for each in fields(Document))


def _document(*values: object) -> Document:
    return Document(**dict(zip(_DOCUMENT, values, strict=True)))  # pyright: ignore[reportArgumentType]


def _pickled_by_values(kind: type, make: Callable[..., object]) -> None:
    """The pickling that frozen dataclasses with slots bring along asks for every field by name, in Python."""
    values = attrgetter(*(each.name for each in fields(kind)))
    pickle_as(kind, lambda item: (make, values(item)))


_pickled_by_values(Document, _document)
for _kind in (Prepared, Mail, RawMail, Fingerprint, Trace):
    _pickled_by_values(_kind, _kind)


def send(pipe: BinaryIO, value: object) -> None:
    """``value`` with its length before it."""
    data = pickle.dumps(value, protocol=5)
    pipe.write(len(data).to_bytes(_LENGTH_BYTES, "little"))
    pipe.write(data)
    pipe.flush()


def receive(pipe: BinaryIO) -> object | None:
    """The next value, or None at the end of the stream."""
    head = pipe.read(_LENGTH_BYTES)
    if len(head) < _LENGTH_BYTES:
        return None
    size = int.from_bytes(head, "little")
    data = pipe.read(size)
    return pickle.loads(data) if len(data) == size else None
