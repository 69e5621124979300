"""Scopes: whatever is asked, no mail from outside comes back; and what is inside is all there."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from corpus_index.backends import open_memory_index
from corpus_index.backends.base import IndexUnavailable, QueryRejected, SearchIndex
from corpus_index.document import Document
from corpus_index.query import KeywordQuery, QueryError, parse_query
from corpus_index.scope import MailScope

BOXES, FOLDERS = ("allen-p", "Allen-P", "tholt-j", "", "a?"), ("inbox", "sent items ", "")
DAYS = (None, datetime(2001, 5, 14, tzinfo=UTC), datetime(2001, 5, 14, 23, 59, 59, 999_999, tzinfo=UTC))
OLD = (datetime(1969, 12, 31, 23, 59, 59, 500_000, tzinfo=UTC), datetime(1600, 1, 1, tzinfo=UTC))
MAILS = [
    Document(
        id=f"m{number:03}",
        subject="gas budget" if number % 3 else "lunch",
        body="the gas desk plan " + "gas " * (number % 5),
        sender=f"{'ann' if number % 2 else 'bob'}@x.com",
        mailbox=box,
        folder=folder,
        thread=f"t{number % 4}",
        date=date,
    )
    for number, (box, folder, date) in enumerate(product(BOXES, FOLDERS, (*DAYS, *OLD)))
]
MAILS += [Document(id="half", subject="gas", body="gas", mailbox="a\ud800", folder="inbox", date=DAYS[1])]


@pytest.fixture(scope="module")
def index() -> SearchIndex:
    return open_memory_index(MAILS)


_BOX = st.sampled_from([*filter(None, BOXES), "nobody"])
_FOLDER = st.sampled_from(["inbox", "sent items "])
_BOUND = (
    st.sampled_from([datetime(2001, 5, 14), datetime(2001, 5, 14, 23, 59, 59), datetime(1970, 1, 1)])
    | st.datetimes(datetime(1950, 1, 1), datetime(2010, 1, 1))
).map(lambda date: date.replace(tzinfo=UTC, microsecond=0))


@st.composite
def scopes(draw: st.DrawFn) -> MailScope:
    bounds = sorted(draw(st.lists(_BOUND, max_size=2, unique=True)))
    if len(bounds) < 2:
        bounds.insert(draw(st.integers(0, 1)) if bounds else 0, None)
    after, before = [*bounds, None][:2]
    return MailScope(
        mailboxes=tuple(draw(st.lists(_BOX, max_size=2))),
        folders=tuple(draw(st.lists(_FOLDER, max_size=2))),
        after=after,
        before=before,
    )


_WORD = st.sampled_from(["gas", "budget", "lunch desk", "plan", "m001", "*", "tholt-j", "a" * 70]) | st.text(
    min_size=1, max_size=8
)
_CLAUSE = (
    st.fixed_dictionaries(
        {"match": _WORD, "field": st.sampled_from(["any", "body", "sender", "mailbox", "thread", "id"])}
    )
    | st.fixed_dictionaries({"phrase": _WORD})
    | st.fixed_dictionaries({"after": st.just("1500-01-01")})
)
QUERIES = st.fixed_dictionaries(
    {"keywords": st.lists(_WORD, min_size=1, max_size=3), "limit": st.just(50)},
    optional={"mailbox": _BOX, "folder": _FOLDER, "sender": _WORD, "complete_first": st.booleans()},
).map(lambda arguments: ("keyword", arguments)) | st.dictionaries(
    st.sampled_from(["must", "should", "must_not", "filter"]), st.lists(_CLAUSE, min_size=1, max_size=3), min_size=1
).map(lambda clauses: ("bool", {**clauses, "limit": 50}))


@settings(max_examples=150, deadline=None)
@given(stacked=st.lists(scopes(), min_size=1, max_size=3), query=QUERIES)
def test_no_foreign_mail_whatever_is_asked(index: SearchIndex, stacked: list[MailScope], query) -> None:
    view = index
    for scope in stacked:
        view = view.within(scope)
    inside = [mail.id for mail in MAILS if all(scope.allows(mail) for scope in stacked)]
    assert list(view.ids()) == sorted(inside)
    assert view.stats().documents == len(inside)
    try:
        parsed = parse_query(*query)
        result, everything = view.search(parsed), index.search(parsed)
    except (QueryError, QueryRejected):
        return
    assert {hit.document.id for hit in result.hits} <= set(inside)
    assert result.total <= len(inside)
    if everything.total <= 50:  # all of it is seen: then the view is the part of it that is inside, scores and all
        assert [(hit.document.id, hit.score) for hit in result.hits] == [
            (hit.document.id, hit.score) for hit in everything.hits if hit.document.id in inside
        ]


@settings(max_examples=60, deadline=None)
@given(scope=scopes(), chosen=st.sampled_from(MAILS), guess=st.text(max_size=6))
def test_reading_knows_only_what_is_inside(index: SearchIndex, scope: MailScope, chosen: Document, guess: str) -> None:
    view = index.within(scope)
    assert view.read(chosen.id) == (chosen if scope.allows(chosen) else None)
    assert view.read(guess) is None


@given(scope=scopes(), mail=st.sampled_from(MAILS))
def test_allows_says_what_its_words_say(scope: MailScope, mail: Document) -> None:
    box = mail.mailbox.replace("\ud800", "?")
    expected = (
        (not scope.mailboxes or box in scope.mailboxes)
        and (not scope.folders or mail.folder in scope.folders)
        and (scope.after is None or (mail.date is not None and mail.date >= scope.after))
        and (scope.before is None or (mail.date is not None and mail.date < scope.before))
    )
    assert scope.allows(mail) == expected


def test_an_empty_scope_allows_everything(index: SearchIndex) -> None:
    view = index.within(MailScope())
    assert list(view.ids()) == list(index.ids())
    assert view.stats() == index.stats()
    assert view.search(KeywordQuery(keywords=("gas",))) == index.search(KeywordQuery(keywords=("gas",)))
    assert view.locator == index.locator
    assert isinstance(view, SearchIndex)


def test_closing_a_view_leaves_the_index_open(index: SearchIndex) -> None:
    view = index.within(MailScope(mailboxes=("allen-p",)))
    narrower = view.within(MailScope(folders=("inbox",)))
    view.close()
    with pytest.raises(IndexUnavailable, match="closed"):
        view.read("m000")
    assert narrower.read("m000") == index.read("m000")
    assert narrower.asynchronous() is None


def test_bounds_are_whole_seconds_in_utc() -> None:
    scope = MailScope.model_validate({"after": "2001-05-14T02:00:00.7+02:00", "before": "2001-05-15"})
    assert (scope.after, scope.before) == (datetime(2001, 5, 14, tzinfo=UTC), datetime(2001, 5, 15, tzinfo=UTC))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"mailbox": ["a"]}, "mailbox"),
        ({"mailboxes": [""]}, "mailboxes"),
        ({"mailboxes": "allen-p"}, "mailboxes"),
        ({"after": "2001-05-15", "before": "2001-05-15"}, "earlier than"),
        ({"after": "1500-01-01"}, "between 1700 and 2200"),
        ({"before": 5}, "not an ISO date"),
    ],
)
def test_a_wrong_scope_is_named(given: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        MailScope.model_validate(given)
