"""How mails lie in an OpenSearch index: the mapping, the analysers and scoring, and a mail as stored there and back.

Built to rank as the embedded index does: words are runs of letters and digits, English stems by the same algorithm
(Snowball's ``porter2``), BM25 with k1 = 1.2 and b = 0.75. ``cjk`` adds bigrams of Chinese, Japanese and Korean letters.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Literal, cast

from corpus_index.backends.words import MAX_WORD
from corpus_index.document import Document, encodable

Analyser = Literal["english", "cjk"]
ANALYSERS: tuple[Analyser, ...] = ("english", "cjk")
FORMAT = {"format": "futari-opensearch", "version": 1}
META = "futari"  # our key in the mapping's _meta
LEGACY_BM25_UNTIL = 3  # from this major version on, BM25 without the constant (k1 + 1) is the default
_LONGEST_KEYWORD = 8191  # characters; a term of Lucene's holds 32,766 bytes

# Where the Unicode rules of the standard tokenizer keep a word together (``o'neil``, ``enron.com``, ``3,000``, ``a_b``)
# and the embedded index does not: a blank goes in their place.
_JOINERS = (
    "'.,:;_\u00ad\u00b7\u0387\u055f\u0589\u05f3\u05f4\u060c\u060d\u066c\u07f8\u200b\u200c\u200d\u2018\u2019\u2024"
    "\u2027\u202f\u203f\u2040\u2044\u2054\u2060\ufe10\ufe13\ufe14\ufe33\ufe34\ufe4d\ufe4e\ufe4f\ufe50\ufe52\ufe54"
    "\ufe55\ufeff\uff07\uff0c\uff0e\uff1a\uff1b\uff3f"
)
_FIELDS = tuple(field.name for field in fields(Document))
_TUPLES = frozenset({"recipients", "recipient_names", "attachments"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What a new index is like. ``replicas``: copies of each shard, as OpenSearch writes them in its
    ``auto_expand_replicas`` (``0-1``: one as soon as a second node is there)."""

    analyser: Analyser = "english"
    shards: int = 1
    replicas: str = "0-1"


def analyser_named(name: str) -> Analyser:
    """Raises ValueError for a name that is none."""
    for analyser in ANALYSERS:
        if analyser == name:
            return analyser
    raise ValueError(f"analyser {name!r} is not known; use {' or '.join(ANALYSERS)}")


def index_body(layout: Layout, major_version: int, meta: Mapping[str, object]) -> dict[str, object]:
    """The body of a create-index request, set for building: nothing is refreshed or copied until the end."""
    return {
        "settings": {
            "index": {
                "number_of_shards": layout.shards,
                "number_of_replicas": 0,
                "refresh_interval": "-1",
                "similarity": {"bm25": _similarity(major_version)},
                "analysis": _analysis(layout.analyser),
            }
        },
        "mappings": _mappings(meta),
    }


def _similarity(major_version: int) -> dict[str, object]:
    kind = "BM25" if major_version < LEGACY_BM25_UNTIL else "LegacyBM25"
    return {"type": kind, "k1": 1.2, "b": 0.75}


def _analysis(analyser: Analyser) -> dict[str, object]:
    words = ["lowercase", "no_long_runs"] if analyser == "english" else ["cjk_width", "lowercase", "cjk_bigram"]
    common = {"type": "custom", "char_filter": ["joiners"], "tokenizer": "words"}
    return {
        "char_filter": {
            "joiners": {"type": "mapping", "mappings": [f"\\u{ord(letter):04X} => \\u0020" for letter in _JOINERS]}
        },
        "tokenizer": {"words": {"type": "standard", "max_token_length": 8192}},
        "filter": {
            "no_long_runs": {"type": "length", "max": MAX_WORD - 1},
            "stems": {"type": "stemmer", "language": "porter2"},
        },
        "analyzer": {
            "text": {**common, "filter": [*words, "stems"]},
            "names": {**common, "filter": words},
        },
    }


def _mappings(meta: Mapping[str, object]) -> dict[str, object]:
    text = {"type": "text", "analyzer": "text", "similarity": "bm25"}
    names = {"type": "text", "analyzer": "names", "norms": False}
    exact = {"type": "keyword", "ignore_above": _LONGEST_KEYWORD}
    shown = {"type": "keyword", "index": False, "doc_values": False}  # only kept
    return {
        "dynamic": "strict",
        "_meta": {META: dict(meta)},
        "properties": {
            "id": exact,
            "subject": text,
            "body": text,
            "sender": {**exact, "copy_to": "sender_words"},
            "sender_name": {**shown, "copy_to": "sender_words"},
            "sender_words": names,
            "recipients": {**exact, "copy_to": "recipient_words"},
            "recipient_names": {**shown, "copy_to": "recipient_words"},
            "recipient_words": names,
            "date": {"type": "date", "format": "strict_date_optional_time"},
            "thread": exact,
            "mailbox": exact,
            "folder": exact,
            "source": shown,
            "message_id": shown,
            "attachments": shown,
            "unencodable": {"type": "binary"},
        },
    }


def encoded(document: Document) -> dict[str, object]:
    """The stored form: what is empty is left out. A mail with half characters (lone surrogates) also brings the
    original, as base64 of JSON."""
    source: dict[str, object] = {}
    for name in _FIELDS:
        value: object = getattr(document, name)
        if isinstance(value, str):
            if value:
                source[name] = encodable(value)
        elif isinstance(value, datetime):
            source[name] = value.isoformat()
        elif value:
            source[name] = [encodable(text) for text in cast("tuple[str, ...]", value)]
    if _decoded_plain(source) != document:
        values = json.dumps(
            [getattr(document, name) for name in _FIELDS], ensure_ascii=False, default=datetime.isoformat
        )
        source["unencodable"] = base64.b64encode(values.encode("utf-8", "surrogatepass")).decode()
    return source


def decoded(source: Mapping[str, object]) -> Document:
    """The mail that was stored. Raises ValueError, KeyError or TypeError where ``source`` is something else."""
    original = source.get("unencodable")
    if original is None:
        return _decoded_plain(source)
    text = base64.b64decode(cast(str, original)).decode("utf-8", "surrogatepass")
    values = dict(zip(_FIELDS, json.loads(text), strict=True))
    return _decoded_plain({name: value for name, value in values.items() if value is not None})


def _decoded_plain(source: Mapping[str, object]) -> Document:
    values: dict[str, object] = {"subject": "", "body": "", **source}
    for name in _TUPLES:
        if name in values:
            values[name] = tuple(cast("list[str]", values[name]))
    if "date" in values:
        values["date"] = datetime.fromisoformat(cast(str, values["date"]))
    return Document(**values)  # pyright: ignore[reportArgumentType]  (our own writer put them there)
