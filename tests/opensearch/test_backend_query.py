"""What is sent to OpenSearch, and how a mail is stored: pure functions, no node."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_index.backends.base import QueryRejected
from corpus_index.backends.opensearch_mapping import FORMAT, Layout, analyser_named, decoded, encoded, index_body
from corpus_index.backends.opensearch_query import (
    MAX_WORDS,
    TERMINATE_AFTER,
    all_of,
    compile_query,
    read_body,
    search_body,
)
from corpus_index.backends.words import Words
from corpus_index.document import Document
from corpus_index.query import KeywordQuery, parse_query
from corpus_index.scope import MailScope

WORDS = Words()
ONE_BOX = MailScope(mailboxes=("allen-p",))
ALLOWED = {"bool", "match", "match_phrase", "term", "terms", "ids", "range", "constant_score", "match_all"}


def match(field: str, text: str, boost: float = 1.0) -> dict[str, object]:
    return {"match": {field: {"query": text, "operator": "or", "boost": boost}}}


def phrase(field: str, text: str, boost: float = 1.0) -> dict[str, object]:
    return {"match_phrase": {field: {"query": text, "boost": boost}}}


def either(*queries: object) -> dict[str, object]:
    return {"bool": {"should": list(queries), "minimum_should_match": 1}}


def compiled(kind: str, *scopes: MailScope, **arguments: object) -> dict[str, object]:
    return compile_query(parse_query(kind, arguments), WORDS, scopes).query  # type: ignore[arg-type]


def test_keywords_are_words_of_both_fields_each_once() -> None:
    query = compile_query(KeywordQuery(keywords=("Gas prices!", "price GAS", "desk")), WORDS)
    assert query.query == either(match("subject", "gas prices desk", 1.5), match("body", "gas prices desk"))
    assert query.stems == {"gas", "price", "desk"}
    assert query.scored


def test_scope_of_a_query_is_a_filter() -> None:
    found = compiled(
        "keyword",
        keywords="gas",
        sender="Phillip allen@enron.com",
        mailbox="allen-p",
        folder="in",
        after="2001-05-14",
        before="2001-05-15T12:00",
    )
    assert found["bool"]["filter"] == [  # type: ignore[index]
        {"bool": {"filter": [phrase("sender_words", "Phillip"), phrase("sender_words", "allen@enron.com")]}},
        {"term": {"mailbox": "allen-p"}},
        {"term": {"folder": "in"}},
        {"range": {"date": {"gte": "2001-05-14T00:00:00+00:00", "lt": "2001-05-15T12:00:00+00:00"}}},
    ]


def test_complete_first_adds_a_constant_above_any_sum() -> None:
    should = compiled("keyword", keywords=["mira okafor", "owner"], complete_first=True)["bool"]["should"]  # type: ignore[index]
    words = [either(phrase("subject", word), phrase("body", word)) for word in ("mira", "okafor", "owner")]
    assert should[2:] == [{"constant_score": {"filter": {"bool": {"must": words}}, "boost": 100.0}}]
    one = compiled("keyword", keywords=["mira okafor"], complete_first=True)
    assert one == compiled("keyword", keywords=["mira okafor"])


def test_bool_clauses() -> None:
    query = parse_query(
        "bool",
        {
            "must": [{"match": "gas", "field": "body"}, {"phrase": "power desk"}],
            "should": [{"match": "t1", "field": "thread"}],
            "must_not": [{"after": "2001-01-01"}],
            "filter": [{"phrase": "j tholt", "field": "recipient"}],
        },
    )
    found = compile_query(query, WORDS)
    constant = {"filter": {"range": {"date": {"gte": "2001-01-01T00:00:00+00:00"}}}, "boost": 1.0}
    assert found.query == {
        "bool": {
            "must": [
                either(match("body", "gas")),
                either(phrase("subject", "power desk", 1.5), phrase("body", "power desk")),
            ],
            "should": [{"constant_score": {"filter": {"term": {"thread": "t1"}}, "boost": 1.0}}],
            "must_not": [{"constant_score": constant}],
            "filter": [{"constant_score": {"filter": phrase("recipient_words", "j tholt"), "boost": 1.0}}],
            "minimum_should_match": 0,
        }
    }
    assert found.stems == {"gas", "power", "desk"}
    only_should = compiled("bool", should={"match": "gas"}, must_not={"match": "power"})
    assert only_should["bool"]["minimum_should_match"] == 1  # type: ignore[index]
    assert not compile_query(parse_query("bool", {"filter": {"match": "gas"}}), WORDS).scored


def test_scopes_stand_outside_of_what_is_asked() -> None:
    later = MailScope.model_validate({"folders": ["in", "out"], "after": "2001-01-01"})
    filters = [
        {"terms": {"mailbox": ["allen-p"]}},
        {"terms": {"folder": ["in", "out"]}},
        {"range": {"date": {"gte": "2001-01-01T00:00:00+00:00"}}},
    ]
    inner = compiled("keyword", keywords="gas")
    assert compiled("keyword", ONE_BOX, later, keywords="gas") == {"bool": {"filter": filters, "must": [inner]}}
    unscored = compiled("bool", filter={"match": "gas"})
    assert compiled("bool", ONE_BOX, filter={"match": "gas"}) == {"bool": {"filter": [filters[0], unscored]}}
    assert read_body("m1", [ONE_BOX])["query"] == {"bool": {"filter": [{"ids": {"values": ["m1"]}}, filters[0]]}}
    assert all_of([ONE_BOX, later]) == {"bool": {"filter": filters}}
    assert all_of([]) == all_of([MailScope()]) == {"match_all": {}}
    assert compiled("keyword", MailScope(), keywords="gas") == inner


def test_a_search_has_a_limit_a_time_and_an_order() -> None:
    body = search_body(compile_query(KeywordQuery(keywords=("gas",)), WORDS), 7, 2.5)
    assert body["size"] == 7
    assert body["timeout"] == "2500ms"
    assert body["terminate_after"] == TERMINATE_AFTER
    assert body["track_total_hits"] is True
    assert body["sort"] == [{"_score": "desc"}, {"id": "asc"}]
    filtered = compile_query(parse_query("bool", {"filter": {"match": "gas"}}), WORDS)
    assert search_body(filtered, 7, 2.5)["sort"] == [{"id": "asc"}]


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        ("keyword", {"keywords": ["?", "_"]}, r"keywords: .* hold no letters or digits"),
        ("keyword", {"keywords": "gas", "sender": "@"}, r"sender: '@' holds no letters or digits"),
        ("bool", {"must": [{"match": "gas"}, {"match": "?!"}]}, r"must\[1\]\.match: '\?!' holds no letters"),
        ("bool", {"should": [{"phrase": "--"}]}, r"should\[0\]\.phrase: '--' holds no letters"),
    ],
)
def test_a_text_without_words_is_named(kind: str, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(QueryRejected, match=message):
        compiled(kind, **arguments)


def test_too_many_words_are_named() -> None:
    clauses = [{"match": " ".join(f"w{i}x{j}" for j in range(30))} for i in range(8)]
    with pytest.raises(QueryRejected, match=rf"must\[6\]\.match: the query holds 210 words .* at most {MAX_WORDS}"):
        compiled("bool", must=clauses)


_TEXT = st.text(min_size=1, max_size=20) | st.sampled_from(
    ["script", "*gas", "/g.s/", "a:b AND c", '{"query_string": {}}', "東京 gas", "\ud83d", "\x00", "\u2028"]
)
_CLAUSE = (
    st.fixed_dictionaries({"match": _TEXT, "field": st.sampled_from(["any", "body", "sender", "id", "folder"])})
    | st.fixed_dictionaries({"phrase": _TEXT, "field": st.sampled_from(["any", "subject", "recipient"])})
    | st.fixed_dictionaries({"after": st.datetimes().map(str), "before": st.datetimes().map(str)})
)


def queries_in(node: object) -> Iterator[str]:
    """The names of all queries in a DSL tree."""
    if isinstance(node, list):
        for item in node:
            yield from queries_in(item)
    elif isinstance(node, dict):
        ((name, body),) = node.items()
        yield name
        if name == "bool":
            for occur in ("must", "should", "must_not", "filter"):
                yield from queries_in(body.get(occur, []))
        elif name == "constant_score":
            yield from queries_in(body["filter"])


@settings(max_examples=80, deadline=None)
@given(
    clauses=st.dictionaries(st.sampled_from(["must", "should", "must_not", "filter"]), st.lists(_CLAUSE, max_size=4))
)
def test_only_harmless_queries_are_ever_written(clauses: dict[str, object]) -> None:
    try:
        query = compiled("bool", ONE_BOX, **clauses)
    except ValueError:  # refused: QueryError or QueryRejected
        return
    assert set(queries_in(query)) <= ALLOWED
    json.dumps(query, ensure_ascii=False).encode()  # can be sent
    assert {"terms": {"mailbox": ["allen-p"]}} in query["bool"]["filter"]  # type: ignore[index]


# --- mapping and stored mails -------------------------------------------------------------------------------------


def test_the_mapping_is_strict_and_versioned() -> None:
    body = index_body(Layout(), 2, {**FORMAT, "documents": 3})
    mappings, index = body["mappings"], body["settings"]["index"]  # type: ignore[index]
    assert mappings["dynamic"] == "strict"
    assert mappings["_meta"] == {"futari": {**FORMAT, "documents": 3}}
    assert index["similarity"] == {"bm25": {"type": "BM25", "k1": 1.2, "b": 0.75}}
    assert (index["refresh_interval"], index["number_of_replicas"]) == ("-1", 0)
    assert index["analysis"]["analyzer"]["text"]["filter"] == ["lowercase", "no_long_runs", "stems"]
    everything = Document(
        id="a", subject="s", body="b", sender="x", sender_name="X", recipients=("y",), recipient_names=("Y",),
        date=datetime(2001, 1, 1, tzinfo=UTC), thread="t", mailbox="m", folder="f", source="s", message_id="i",
        attachments=("a",),
    )  # fmt: skip
    assert set(encoded(everything)) == set(mappings["properties"]) - {"sender_words", "recipient_words", "unencodable"}
    assert set(encoded(Document(id="a", subject="\ud800", body=""))) == {"id", "subject", "unencodable"}


def test_cjk_is_a_setting() -> None:
    assert analyser_named("cjk") == "cjk"
    with pytest.raises(ValueError, match="'klingon' is not known; use english or cjk"):
        analyser_named("klingon")
    analysis = index_body(Layout(analyser="cjk"), 2, {})["settings"]["index"]["analysis"]  # type: ignore[index]
    assert analysis["analyzer"]["names"]["filter"] == ["cjk_width", "lowercase", "cjk_bigram"]


@settings(max_examples=60, deadline=None)
@given(
    text=st.text(st.characters(), max_size=10) | st.text(st.sampled_from("a\ud800\udfff\x00\u2028"), max_size=5),
    names=st.lists(st.text(max_size=5), max_size=3),
    date=st.none() | st.datetimes(timezones=st.just(UTC)),
)
def test_any_mail_comes_back_as_it_was(text: str, names: list[str], date: datetime | None) -> None:
    mail = Document(
        id="m1", subject=text, body=text, sender=text, recipients=tuple(names), attachments=(text,), date=date
    )
    sent = json.dumps(encoded(mail), ensure_ascii=False).encode()  # as the client does
    assert decoded(json.loads(sent)) == mail


def test_something_else_is_no_mail() -> None:
    for source in ({}, {"id": "a", "colour": "red"}, {"id": "a", "date": "yesterday"}):
        with pytest.raises((KeyError, TypeError, ValueError)):
            decoded(source)
