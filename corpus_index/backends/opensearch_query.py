"""From the validated query model to OpenSearch's query DSL: pure functions, no node needed.

Nothing is passed through: only ``match``, ``match_phrase``, ``term``, ``terms``, ``ids``, ``range``, ``bool`` and
``constant_score`` are ever written, with words that our own analyser found in the text. Scoring is that of
``tantivy_query``: BM25 summed over words and over subject (weight 1.5) and body.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from corpus_index.backends.base import QueryRejected
from corpus_index.backends.tantivy_query import COMPLETE_SCORE, SUBJECT_BOOST, wordless
from corpus_index.backends.words import ENGLISH, WORDS, Words
from corpus_index.document import encodable
from corpus_index.query import (
    EXACT_FIELDS,
    NAME_FIELDS,
    TEXT_FIELDS,
    BoolQuery,
    Clause,
    DateClause,
    KeywordQuery,
    MatchClause,
    Query,
)
from corpus_index.scope import MailScope

Dsl = dict[str, object]

MAX_WORDS = 200  # different words of a query: Lucene takes 1,024 terms, and each word may need four
TERMINATE_AFTER = 5_000_000  # matches a shard looks at before the query counts as too broad
_INDEXED_AS = {"sender": "sender_words", "recipient": "recipient_words"}


@dataclass(frozen=True, slots=True)
class Compiled:
    """``stems``: what a snippet highlights. ``scored`` is False where every match has the same score."""

    query: Dsl
    stems: frozenset[str]
    scored: bool


def search_body(compiled: Compiled, limit: int, timeout_seconds: float, *, mails: bool = True) -> Dsl:
    """The body of a search request: the first ``limit`` by falling score, then id; ``mails=False``: their ids alone."""
    by_id: Dsl = {"id": "asc"}
    return {
        "_source": mails,
        "query": compiled.query,
        "size": limit,
        "sort": [{"_score": "desc"}, by_id] if compiled.scored else [by_id],
        "track_total_hits": True,
        "timeout": f"{max(1, round(timeout_seconds * 1000))}ms",
        "terminate_after": TERMINATE_AFTER,
    }


def read_body(document_id: str, scopes: Sequence[MailScope]) -> Dsl:
    return {"query": _bool(filter=[{"ids": {"values": [document_id]}}, *scope_filters(scopes)]), "size": 1}


def scope_filters(scopes: Sequence[MailScope]) -> list[Dsl]:
    """What all scopes allow; empty where they allow everything."""
    filters: list[Dsl] = []
    for scope in scopes:
        for field, names in (("mailbox", scope.mailboxes), ("folder", scope.folders)):
            if names:
                filters.append({"terms": {field: list(names)}})
        if scope.after is not None or scope.before is not None:
            filters.append(_dates(scope.after, scope.before))
    return filters


def all_of(scopes: Sequence[MailScope]) -> Dsl:
    """Every mail that the scopes allow."""
    filters = scope_filters(scopes)
    return _bool(filter=filters) if filters else {"match_all": {}}


def compile_query(query: Query, words: Words, scopes: Sequence[MailScope] = ()) -> Compiled:
    """Raises QueryRejected where a text holds no word to search for, or the query too many."""
    compiler = _Compiler(words)
    compiled = compiler.keyword(query) if isinstance(query, KeywordQuery) else compiler.bool(query)
    filters = scope_filters(scopes)
    if not filters:
        return compiled
    inner = {"must": [compiled.query]} if compiled.scored else {"filter": [compiled.query]}
    outer = [*filters, *inner.get("filter", [])]
    return Compiled(_bool(filter=outer, must=inner.get("must", [])), compiled.stems, compiled.scored)


class _Compiler:
    """Compiles one query and counts its words."""

    def __init__(self, words: Words) -> None:
        self._words = words
        self._count = 0

    def keyword(self, query: KeywordQuery) -> Compiled:
        spelled = self._spelled(query.keywords)
        if not spelled:
            raise QueryRejected(f"keywords: {list(query.keywords)!r} hold no letters or digits to search for")
        self._add(len(spelled), "keywords")
        should = self._text("any", spelled.values())
        if query.complete_first and len(query.keywords) > 1:
            everywhere = list(map(_somewhere, spelled.values()))
            should.append(_constant(_bool(must=everywhere), COMPLETE_SCORE))
        scored = _bool(should=should, minimum_should_match=1, filter=self._scope(query))
        return Compiled(scored, frozenset(spelled), scored=True)

    def _scope(self, query: KeywordQuery) -> list[Dsl]:
        filters: list[Dsl] = []
        for field, text in (("sender", query.sender), ("recipient", query.recipient)):
            if text is not None:
                filters.append(self._name(field, text, field))
        for field, text in (("mailbox", query.mailbox), ("folder", query.folder)):
            if text is not None:
                filters.append({"term": {field: encodable(text)}})
        if query.after is not None or query.before is not None:
            filters.append(_dates(query.after, query.before))
        return filters

    def bool(self, query: BoolQuery) -> Compiled:
        stems: set[str] = set()
        parts: dict[str, list[Dsl]] = {}
        for occur, clauses in (
            ("must", query.must),
            ("should", query.should),
            ("must_not", query.must_not),
            ("filter", query.filter),
        ):
            for i, clause in enumerate(clauses):
                compiled, clause_stems = self._clause(clause, f"{occur}[{i}]")
                parts.setdefault(occur, []).append(compiled)
                if occur != "must_not":
                    stems.update(clause_stems)
        needed = 0 if query.must or query.filter else 1
        compiled = _bool(**parts, minimum_should_match=needed if query.should else None)
        return Compiled(compiled, frozenset(stems), scored=bool(query.must or query.should))

    def _clause(self, clause: Clause, path: str) -> tuple[Dsl, Iterable[str]]:
        if isinstance(clause, DateClause):
            return _constant(_dates(clause.after, clause.before)), ()
        if isinstance(clause, MatchClause):
            if clause.field in EXACT_FIELDS:
                return _constant({"term": {clause.field: encodable(clause.match)}}), ()
            if clause.field in NAME_FIELDS:
                return _constant(self._name(clause.field, clause.match, f"{path}.match")), ()
            spelled = self._spelled([clause.match])
            if not spelled:
                raise wordless(f"{path}.match", clause.match)
            self._add(len(spelled), f"{path}.match")
            return _either(self._text(clause.field, spelled.values())), spelled
        tokens = self._words.tokens(ENGLISH, clause.phrase)
        if not tokens:
            raise wordless(f"{path}.phrase", clause.phrase)
        self._add(len(tokens), f"{path}.phrase")
        if clause.field in NAME_FIELDS:
            return _constant(_phrase(_INDEXED_AS[clause.field], clause.phrase)), ()
        fields = TEXT_FIELDS if clause.field == "any" else (clause.field,)
        phrases = (_phrase(field, clause.phrase, _boost(field)) for field in fields)
        return _either(phrases), [word for _, word in tokens]

    def _spelled(self, texts: Iterable[str]) -> dict[str, str]:
        """Stem -> its first spelling in the texts: a word given twice counts once."""
        text, spelled = " ".join(texts), dict[str, str]()
        stems, surface = self._words.tokens(ENGLISH, text), self._words.tokens(WORDS, text)
        for (_, stem), (_, word) in zip(stems, surface, strict=True):
            spelled.setdefault(stem, word)
        return spelled

    def _text(self, field: str, words: Iterable[str]) -> list[Dsl]:
        fields, text = TEXT_FIELDS if field == "any" else (field,), " ".join(words)
        return [{"match": {name: {"query": text, "operator": "or", "boost": _boost(name)}}} for name in fields]

    def _name(self, field: str, text: str, path: str) -> Dsl:
        """Every blank-separated piece occurs; the words of one piece (``phillip.allen@enron.com``) stand together."""
        pieces = [(piece, count) for piece in text.split() if (count := len(self._words.tokens(WORDS, piece)))]
        if not pieces:
            raise wordless(path, text)
        self._add(sum(count for _, count in pieces), path)
        return _bool(filter=[_phrase(_INDEXED_AS[field], piece) for piece, _ in pieces])

    def _add(self, words: int, path: str) -> None:
        self._count += words
        if self._count > MAX_WORDS:
            raise QueryRejected(f"{path}: the query holds {self._count} words up to here; at most {MAX_WORDS}")


def _phrase(field: str, text: str, boost: float = 1.0) -> Dsl:
    return {"match_phrase": {field: {"query": encodable(text), "boost": boost}}}


@lru_cache(maxsize=4096)  # what is returned goes into several queries and is changed in none
def _somewhere(word: str) -> Dsl:
    return _either(_phrase(field, word) for field in TEXT_FIELDS)


def _dates(after: datetime | None, before: datetime | None) -> Dsl:
    bounds = {name: moment.isoformat() for name, moment in (("gte", after), ("lt", before)) if moment is not None}
    return {"range": {"date": bounds}}


def _boost(field: str) -> float:
    return SUBJECT_BOOST if field == "subject" else 1.0


def _either(queries: Iterable[Dsl]) -> Dsl:
    return _bool(should=list(queries), minimum_should_match=1)


def _constant(query: Dsl, boost: float = 1.0) -> Dsl:
    return {"constant_score": {"filter": query, "boost": boost}}


def _bool(**parts: object) -> Dsl:
    return {"bool": {name: part for name, part in parts.items() if part not in ([], None)}}
