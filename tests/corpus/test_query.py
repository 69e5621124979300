"""The query model: what is refused, in which words, and what is forgiven."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_index.query import (
    MAX_CLAUSES,
    BoolQuery,
    DateClause,
    KeywordQuery,
    MatchClause,
    PhraseClause,
    QueryError,
    parse_query,
)

KEYWORD = {"keywords": ["budget"]}


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        (
            "bool",
            {"must": [{"match": "x", "field": "sbject"}]},
            "must[0].field: 'sbject' is not a field; use one of any, subject",
        ),
        ("bool", {"filter": [{"match": "x"}, {"phrase": "x", "field": "id"}]}, "filter[1].field: 'id' is not a field"),
        ("bool", {"must": [{"match": "x", "fild": "body"}]}, "must[0].fild: is not known; did you mean field?"),
        ("bool", {"should": [{"match": "x", "phrase": "y"}]}, "should[0]: has 'match', 'phrase'; a clause has one of"),
        ("bool", {"should": [{}]}, "should[0]: has nothing; a clause has one of"),
        ("bool", {"should": ["budget"]}, "should[0]: 'budget' is text, not a clause"),
        ("bool", {"should": "budget"}, "should: 'budget' is not a list of clauses"),
        ("bool", {"should": [7]}, "should[0]: 7 is not an object"),
        ("bool", {"must": [{"match": ["a"]}]}, "must[0].match: ['a'] is not text"),
        ("bool", {"must": [{"match": " \n"}]}, "must[0].match: ' \\n' is empty"),
        ("bool", {"must": [{"match": "x" * 201}]}, "is 201 characters; at most 200"),
        ("bool", {"must": [{"after": "May"}]}, "must[0].after: 'May' is not a date; write an ISO date"),
        (
            "bool",
            {"must": [{"after": "2002-01-01", "before": "2001-01-01"}]},
            "must[0]: 'after' (2002-01-01 00:00) must be earlier",
        ),
        ("bool", {"must_not": [{"match": "x"}]}, "a bool query needs at least one must, should or filter clause"),
        ("bool", {}, "a bool query needs at least one"),
        ("bool", {"mst": [], "must": [{"match": "x"}]}, "mst: is not known; did you mean must?"),
        ("keyword", {}, "keywords: is missing"),
        ("keyword", {"keywords": []}, "keywords: [] is empty; write at least one keyword"),
        ("keyword", {"keywords": ["a", ""]}, "keywords[1]: '' is empty"),
        ("keyword", {"keywords": ["a"] * 17}, "is too long; at most 16 keywords"),
        ("keyword", {"keywords": 3}, "keywords: 3 is not a list of keywords"),
        ("keyword", {"keywords": ["\ud800"]}, "keywords[0]: '\\ud800' holds half a character"),
        ("keyword", {**KEYWORD, "sendr": "x"}, "sendr: is not known; did you mean sender?"),
        ("keyword", {**KEYWORD, "limit": 51}, "limit: 51 is not between 1 and 50"),
        ("keyword", {**KEYWORD, "limit": "many"}, "limit: 'many' is not a whole number from 1 to 50"),
        ("keyword", {**KEYWORD, "limit": math.nan}, "limit: nan is not a whole number"),
        ("keyword", {**KEYWORD, "after": 20010514}, "after: 20010514 is not a date"),
        ("keyword", {**KEYWORD, "after": "20010514"}, "after: '20010514' is not a date"),
        ("keyword", {**KEYWORD, "before": "2001-02-30"}, "before: '2001-02-30' is not a date"),
    ],
)
def test_a_refusal_names_the_field_and_the_value_in_one_line(kind, arguments, message) -> None:
    with pytest.raises(QueryError) as caught:
        parse_query(kind, arguments)
    text = str(caught.value)
    assert message in text
    assert "\n" not in text
    assert len(text) < 250


@pytest.mark.parametrize("arguments", [[], "budget", None, 3])
def test_arguments_that_are_no_object_are_refused(arguments) -> None:
    with pytest.raises(QueryError, match="is not an object"):
        parse_query("keyword", arguments)


def test_what_models_write_is_forgiven() -> None:
    assert parse_query("keyword", {"keywords": "gas price", "sender": None}) == KeywordQuery(keywords=("gas price",))
    assert parse_query("keyword", {"keywords": [" gas "], "limit": "5"}) == KeywordQuery(keywords=("gas",), limit=5)
    one = parse_query("bool", {"must": {"match": "gas"}, "should": None})
    assert one == BoolQuery(must=(MatchClause(match="gas"),))


def test_the_keys_say_which_clause_it_is() -> None:
    query = parse_query(
        "bool", {"must": [{"match": "a", "field": "thread"}, {"phrase": "b c"}, {"before": "2001-05-14"}]}
    )
    assert isinstance(query, BoolQuery)
    assert query.must == (
        MatchClause(match="a", field="thread"),
        PhraseClause(phrase="b c"),
        DateClause(before=datetime(2001, 5, 14, tzinfo=UTC)),
    )


def test_dates_become_utc() -> None:
    query = parse_query("keyword", {**KEYWORD, "after": "2001-05-14T01:00:00+02:00", "before": "2001-05-14"})
    assert isinstance(query, KeywordQuery)
    assert query.after == datetime(2001, 5, 13, 23, tzinfo=UTC)
    assert query.before == datetime(2001, 5, 14, tzinfo=UTC)
    edge = KeywordQuery(keywords=("a",), after=datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5))))
    assert edge.after == datetime(1, 1, 1, tzinfo=UTC)


def test_the_cap_counts_all_lists_and_reads_no_clause_beyond_it() -> None:
    class Untouchable(dict[str, object]):
        def items(self):
            raise AssertionError("a clause was parsed although there are too many")

    with pytest.raises(QueryError, match="10000 clauses in all; at most 32"):
        parse_query("bool", {"must": [Untouchable()] * 9_999, "should": Untouchable()})
    full = {"must": [{"match": "a"}] * 16, "should": [{"match": "a"}] * 16}
    assert isinstance(parse_query("bool", full), BoolQuery)
    with pytest.raises(QueryError, match=f"33 clauses in all; at most {MAX_CLAUSES}"):
        parse_query("bool", {**full, "filter": [{"match": "a"}]})


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["any", "2001-05-14"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["match", "phrase", "field", "after", "before", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)
_ARGUMENTS = st.dictionaries(
    st.sampled_from(["keywords", "must", "should", "must_not", "filter", "limit", "sender", "after", "before"])
    | st.text(max_size=4),
    _JSON,
    max_size=5,
)


@settings(max_examples=100, deadline=None)
@given(kind=st.sampled_from(["keyword", "bool"]), arguments=_ARGUMENTS)
def test_any_json_gives_a_query_or_one_line(kind, arguments) -> None:
    try:
        query = parse_query(kind, arguments)
    except QueryError as error:
        query, message = None, str(error)
    if query is None:
        assert "\n" not in message
    else:
        assert isinstance(query, KeywordQuery if kind == "keyword" else BoolQuery)
