"""What a tantivy index of mails holds: its fields, the analysers of their words, and a mail as an entry of it."""

from __future__ import annotations

import json
from dataclasses import fields
from datetime import datetime
from typing import cast

import orjson
import tantivy

from corpus_index.backends.tantivy_query import clamped
from corpus_index.backends.words import ENGLISH, WORDS, analysers
from corpus_index.document import Document, encodable

FORMAT = {"format": "futari-embedded", "version": 1, "analyser": ENGLISH, "names": WORDS}
METADATA, SEGMENTS = "index.json", "segments"  # of an index's folder: what built it, and the engine's files
_FIELDS = tuple(field.name for field in fields(Document))
_TUPLES = frozenset({"recipients", "recipient_names", "attachments"})


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


def register(index: tantivy.Index) -> None:
    """Make the schema's analysers known to an index that was made or opened: they are not kept with it."""
    for name, analyser in analysers().items():
        index.register_tokenizer(name, analyser)


def entry(document: Document) -> tantivy.Document:
    """A mail by its fields, and whole in ``stored``."""
    made = tantivy.Document()
    for name in ("id", "subject", "body", "mailbox", "folder", "thread"):
        text = cast(str, getattr(document, name))
        if text:
            made.add_text(name, encodable(text))
    for name in (document.sender_name, document.sender):
        made.add_text("sender", encodable(name))
    for name in (*document.recipient_names, *document.recipients):
        made.add_text("recipient", encodable(name))
    if document.date is not None:
        made.add_date("date", clamped(document.date).replace(microsecond=0))
    made.add_bytes("stored", _dump(document))
    return made


def _dump(document: Document) -> bytes:
    values = [getattr(document, name) for name in _FIELDS]
    try:
        return orjson.dumps(values)
    except orjson.JSONEncodeError:
        pass
    # surrogatepass: what a source could not decode comes back exactly as it was.
    return json.dumps(values, ensure_ascii=False, default=datetime.isoformat).encode("utf-8", "surrogatepass")


def decoded(stored: bytes) -> Document:
    """The mail that ``entry`` stored."""
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
