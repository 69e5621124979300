"""From the validated query model to tantivy's query objects. Tantivy's own query language is never used.

Scoring: BM25 (k1 = 1.2, b = 0.75) summed over words and over subject (weight 1.5) and body; what Lucene-like engines
call a ``most_fields`` multi-match. A word given twice counts once. Scope filters, ``filter`` and ``must_not`` clauses
add no score; clauses on names, exact fields and dates add a constant 1 in ``must`` and ``should``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import tantivy
from tantivy import Occur

from corpus_index.backends.base import QueryRejected
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

COMPLETE_SCORE = 100.0
SUBJECT_BOOST = 1.5
# The dates tantivy can hold (64-bit nanoseconds).
EARLIEST, LATEST = datetime(1678, 1, 1, tzinfo=UTC), datetime(2262, 1, 1, tzinfo=UTC)


def clamped(moment: datetime) -> datetime:
    return min(max(moment, EARLIEST), LATEST)


@dataclass(frozen=True, slots=True)
class Compiled:
    """``stems``: what a snippet highlights. ``scored`` is False where every match has the same score."""

    query: tantivy.Query
    stems: frozenset[str]
    scored: bool


class Compiler:
    """Compiles queries for one schema; may be shared by threads."""

    def __init__(self, schema: tantivy.Schema) -> None:
        self._schema = schema
        self.words = Words()

    def compile(self, query: Query, scopes: Sequence[MailScope] = ()) -> Compiled:
        """Only mails that every scope allows match. Raises QueryRejected where a text holds no word to search for."""
        compiled = self._keyword(query) if isinstance(query, KeywordQuery) else self._bool(query)
        within = self.within(scopes)
        if within is None:
            return compiled
        inner = (Occur.Must, compiled.query)
        return replace(compiled, query=tantivy.Query.boolean_query([(Occur.Must, _unscored(within)), inner]))

    def within(self, scopes: Sequence[MailScope]) -> tantivy.Query | None:
        """What all scopes allow, or None where they allow everything."""
        parts: list[tuple[Occur, tantivy.Query]] = []
        for scope in scopes:
            for field, names in (("mailbox", scope.mailboxes), ("folder", scope.folders)):
                if names:
                    either = [(Occur.Should, self._term(field, name)) for name in names]
                    parts.append((Occur.Must, tantivy.Query.boolean_query(either)))
            if scope.after is not None or scope.before is not None:
                parts.append((Occur.Must, self._dates(scope.after, scope.before)))
        return tantivy.Query.boolean_query(parts) if parts else None

    def _keyword(self, query: KeywordQuery) -> Compiled:
        stems = list(dict.fromkeys(word for text in query.keywords for _, word in self.words.tokens(ENGLISH, text)))
        if not stems:
            raise QueryRejected(f"keywords: {list(query.keywords)!r} hold no letters or digits to search for")
        parts = list(self._scope(query))
        words = [(Occur.Should, term) for term in self._text_terms("any", stems)]
        if query.complete_first and len(query.keywords) > 1:
            words.append((Occur.Should, self._complete(stems)))
        if parts:
            parts.append((Occur.Must, tantivy.Query.boolean_query(words)))
        return Compiled(tantivy.Query.boolean_query(parts or words), frozenset(stems), scored=True)

    def _complete(self, stems: Iterable[str]) -> tantivy.Query:
        """Every word of every keyword occurs, in subject or body: a constant above any BM25 sum."""
        either = [
            tantivy.Query.boolean_query([(Occur.Should, self._term(name, word, "freq")) for name in TEXT_FIELDS])
            for word in stems
        ]
        everywhere = tantivy.Query.boolean_query([(Occur.Must, query) for query in either])
        return tantivy.Query.const_score_query(everywhere, COMPLETE_SCORE)

    def _scope(self, query: KeywordQuery) -> Iterator[tuple[Occur, tantivy.Query]]:
        for field, text in (("sender", query.sender), ("recipient", query.recipient)):
            if text is not None:
                yield Occur.Must, _unscored(self._name(field, text, field))
        for field, text in (("mailbox", query.mailbox), ("folder", query.folder)):
            if text is not None:
                yield Occur.Must, _unscored(self._term(field, encodable(text)))
        if query.after is not None or query.before is not None:
            yield Occur.Must, _unscored(self._dates(query.after, query.before))

    def _bool(self, query: BoolQuery) -> Compiled:
        stems: set[str] = set()
        parts: list[tuple[Occur, tantivy.Query]] = []
        for name, occur, clauses in (
            ("must", Occur.Must, query.must),
            ("should", Occur.Should, query.should),
            ("must_not", Occur.MustNot, query.must_not),
            ("filter", Occur.Must, query.filter),
        ):
            for i, clause in enumerate(clauses):
                compiled, clause_stems = self._clause(clause, f"{name}[{i}]")
                parts.append((occur, _unscored(compiled) if name == "filter" else compiled))
                if name != "must_not":
                    stems.update(clause_stems)
        return Compiled(tantivy.Query.boolean_query(parts), frozenset(stems), scored=bool(query.must or query.should))

    def _clause(self, clause: Clause, path: str) -> tuple[tantivy.Query, Iterable[str]]:
        if isinstance(clause, DateClause):
            return _constant(self._dates(clause.after, clause.before)), ()
        if isinstance(clause, MatchClause):
            if clause.field in EXACT_FIELDS:
                return _constant(self._term(clause.field, encodable(clause.match))), ()
            if clause.field in NAME_FIELDS:
                return _constant(self._name(clause.field, clause.match, f"{path}.match")), ()
            stems = list(dict.fromkeys(word for _, word in self.words.tokens(ENGLISH, clause.match)))
            if not stems:
                raise wordless(f"{path}.match", clause.match)
            words = [(Occur.Should, term) for term in self._text_terms(clause.field, stems)]
            return tantivy.Query.boolean_query(words), stems
        named = clause.field in NAME_FIELDS
        tokens = self.words.tokens(WORDS if named else ENGLISH, clause.phrase)
        if not tokens:
            raise wordless(f"{path}.phrase", clause.phrase)
        if named:
            return _constant(self._phrase(clause.field, tokens)), ()
        fields = TEXT_FIELDS if clause.field == "any" else (clause.field,)
        phrases = [(Occur.Should, _boosted(field, self._phrase(field, tokens))) for field in fields]
        return tantivy.Query.boolean_query(phrases), [word for _, word in tokens]

    def _text_terms(self, field: str, stems: Iterable[str]) -> list[tantivy.Query]:
        fields = TEXT_FIELDS if field == "any" else (field,)
        return [_boosted(name, self._term(name, stem, "freq")) for stem in stems for name in fields]

    def _name(self, field: str, text: str, path: str) -> tantivy.Query:
        """Every blank-separated piece occurs; the words of one piece (``phillip.allen@enron.com``) stand together."""
        pieces = [tokens for piece in text.split() if (tokens := self.words.tokens(WORDS, piece))]
        if not pieces:
            raise wordless(path, text)
        return tantivy.Query.boolean_query([(Occur.Must, self._phrase(field, piece)) for piece in pieces])

    def _phrase(self, field: str, tokens: Sequence[tuple[int, str]]) -> tantivy.Query:
        if len(tokens) == 1:
            return self._term(field, tokens[0][1], "freq")
        first = tokens[0][0]
        return tantivy.Query.phrase_query(self._schema, field, [(place - first, word) for place, word in tokens])

    def _dates(self, after: datetime | None, before: datetime | None) -> tantivy.Query:
        return tantivy.Query.range_query(
            self._schema,
            "date",
            tantivy.FieldType.Date,
            clamped(after) if after else EARLIEST,
            clamped(before) if before else LATEST,
            include_lower=True,
            # Without an upper bound nothing is cut off, not even a date at the very end of what can be held.
            include_upper=before is None,
        )

    def _term(self, field: str, value: str, index_option: str = "basic") -> tantivy.Query:
        return tantivy.Query.term_query(self._schema, field, value, index_option)


def wordless(path: str, text: str) -> QueryRejected:
    return QueryRejected(f"{path}: {text!r} holds no letters or digits to search for")


def _boosted(field: str, query: tantivy.Query) -> tantivy.Query:
    return tantivy.Query.boost_query(query, SUBJECT_BOOST) if field == "subject" else query


def _unscored(query: tantivy.Query) -> tantivy.Query:
    return tantivy.Query.const_score_query(query, 0.0)


def _constant(query: tantivy.Query) -> tantivy.Query:
    return tantivy.Query.const_score_query(query, 1.0)
