"""The OpenSearch backend on a real node: the embedded index's answers, builds that swap, scopes, faults, crowds."""

from __future__ import annotations

import asyncio
import json
import random
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from bad_server import serving
from opensearchpy import OpenSearch

from corpus_index.__main__ import main
from corpus_index.backends import load_report, open_index, open_memory_index, open_writer, save_report
from corpus_index.backends.base import (
    AsyncSearchIndex,
    IndexMissing,
    IndexUnavailable,
    QueryRejected,
    SearchIndex,
    SearchResult,
)
from corpus_index.backends.opensearch import OpenSearchIndex
from corpus_index.backends.opensearch_mapping import FORMAT, META
from corpus_index.backends.swap import host
from corpus_index.document import Document
from corpus_index.query import KeywordQuery, parse_query
from corpus_index.retries import RetrySettings
from corpus_index.scope import MailScope

TOPICS = [
    "gas budget",
    "power plan",
    "storage of gas",
    "lunch on friday",
    "O'Neil's 3,000 barrels",
    "re: budgeted costs",
]
BODIES = [
    "the budget for gas storage is ready",
    "gas prices rose; budget meetings moved to enron.com",
    "please send prices for storage_tanks",
    "power desk plan and gas gas gas",
    "nothing of note here\n\n   " * 30 + "The <b>budgets</b> of the\n\tgas  meeting were happily met. ",
]
PEOPLE = [("phillip.allen@enron.com", "Phillip K Allen"), ("jane.tholt@enron.com", "Jane M. Tholt")]


def mails(count: int, seed: int = 1) -> list[Document]:
    rng, day = random.Random(seed), datetime(2001, 5, 14, tzinfo=UTC)
    found: list[Document] = []
    for number in range(count):
        sender, name = rng.choice(PEOPLE)
        found.append(
            Document(
                id=f"m{number:05}",
                subject=rng.choice(TOPICS),
                body=" ".join(rng.sample(BODIES, 2)),
                sender=sender,
                sender_name=name,
                recipients=("bob@gas.org", *(["ann@x.com"] if number % 3 else [])),
                recipient_names=("Bob O'Neil",),
                date=day + timedelta(hours=rng.randrange(100)) if number % 7 else None,
                thread=f"t{number % 5}",
                mailbox=("allen-p", "tholt-j", "Allen-P")[number % 3],
                folder=("inbox", "sent_items")[number % 2],
                attachments=("a.xls",) if number % 4 == 0 else (),
            )
        )
    return found


MAILS = mails(120)


@pytest.fixture
def locator(opensearch_url: str) -> Iterator[str]:
    """A name of one's own; what is under it is deleted."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    yield f"opensearch:{opensearch_url}/{name}"
    client = OpenSearch([opensearch_url])
    for index in client.indices.get(index=f"{name}*"):
        client.indices.delete(index=index)
    client.close()


@pytest.fixture(scope="module")
def index(opensearch_url: str) -> Iterator[OpenSearchIndex]:
    locator = f"opensearch:{opensearch_url}/test-backend-{uuid.uuid4().hex[:8]}"
    open_writer(locator).build(MAILS)
    opened = open_index(locator)
    assert isinstance(opened, OpenSearchIndex)
    yield opened
    opened.close()
    client = OpenSearch([opensearch_url])
    client.indices.delete(index=next(iter(client.indices.get_alias(name=locator.rpartition("/")[2]))))
    client.close()


@pytest.fixture(scope="module")
def embedded() -> SearchIndex:
    return open_memory_index(MAILS)


def names(locator: str) -> list[str]:
    """The indexes on the node that begin with the locator's name."""
    url, _, name = locator.partition(":")[2].rpartition("/")
    client = OpenSearch([url])
    found = list(client.indices.get(index=f"{name}*"))
    client.close()
    return found


# --- the same answers ---------------------------------------------------------------------------------------------

QUERIES: list[tuple[str, dict[str, object]]] = [
    ("keyword", {"keywords": ["gas", "budget"]}),
    ("keyword", {"keywords": ["Gas storage prices", "GAS"], "limit": 50}),
    ("keyword", {"keywords": ["power plan", "friday"], "complete_first": True}),
    ("keyword", {"keywords": ["gas"], "sender": "phillip.allen", "recipient": "o'neil ann"}),
    ("keyword", {"keywords": ["gas"], "sender": "allen.phillip"}),
    ("keyword", {"keywords": ["enron", "com", "tanks", "3", "000", "neil"]}),
    ("keyword", {"keywords": ["budget"], "mailbox": "allen-p", "folder": "inbox"}),
    ("keyword", {"keywords": ["budget"], "after": "2001-05-15", "before": "2001-05-16T12:00"}),
    ("keyword", {"keywords": ["zebra"]}),
    ("keyword", {"keywords": ['subject:plan AND -gas "', "pric*"]}),
    ("bool", {"must": [{"match": "gas"}, {"phrase": "power desk"}], "must_not": [{"match": "lunch"}]}),
    ("bool", {"must": [{"phrase": "gas price", "field": "body"}], "should": [{"match": "t3", "field": "thread"}]}),
    ("bool", {"should": [{"match": "lunch"}, {"match": "happily", "field": "body"}]}),
    ("bool", {"should": [{"match": "plan"}], "must_not": [{"match": "tholt-j", "field": "mailbox"}]}),
    ("bool", {"filter": [{"match": "gas"}, {"phrase": "jane m tholt", "field": "sender"}], "limit": 50}),
    ("bool", {"filter": [{"after": "2001-05-15"}], "should": [{"match": "budget", "field": "subject"}]}),
    ("bool", {"must": [{"match": "m00007", "field": "id"}]}),
    ("bool", {"filter": [{"before": "1999-01-01"}]}),
]


@pytest.mark.parametrize(("kind", "arguments"), QUERIES)
def test_search_is_the_embedded_search(
    index: SearchIndex, embedded: SearchIndex, kind, arguments: dict[str, object]
) -> None:
    query = parse_query(kind, arguments)
    result, expected = index.search(query), embedded.search(query)
    assert [hit.score for hit in result.hits] == pytest.approx([hit.score for hit in expected.hits], abs=3e-5)
    assert [(hit.document, hit.snippet, hit.highlights) for hit in result.hits] == [
        (hit.document, hit.snippet, hit.highlights) for hit in expected.hits
    ]
    assert result.total == expected.total
    asynchronous = index.asynchronous()
    assert asynchronous is not None
    assert asyncio.run(_searched(asynchronous, query)) == result


async def _searched(index: AsyncSearchIndex, query) -> SearchResult:
    try:
        return await index.search(query)
    finally:
        await index.close()


def test_what_the_index_holds(index: SearchIndex) -> None:
    assert isinstance(index, SearchIndex)
    assert list(index.ids()) == [mail.id for mail in MAILS]
    assert [index.read(mail.id) for mail in MAILS[:10]] == MAILS[:10]
    assert index.read("nobody") is None
    stats = index.stats()
    assert (stats.documents, stats.locator) == (120, index.locator)
    assert stats.bytes_on_disk > 1000


def test_ids_come_page_by_page(index: SearchIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corpus_index.backends.opensearch._PAGE", 40)
    assert list(index.ids()) == [mail.id for mail in MAILS]  # three full pages and an empty one


def test_a_text_without_words_is_refused(index: SearchIndex) -> None:
    with pytest.raises(QueryRejected, match="keywords"):
        index.search(KeywordQuery(keywords=("?",)))


def test_the_largest_query_that_is_let_through(index: SearchIndex) -> None:
    keywords = tuple(" ".join(f"q{i}z{j}" for j in range(12)) for i in range(16))  # 192 words
    assert index.search(KeywordQuery(keywords=(*keywords[:-1], "gas"), complete_first=True)).total > 0


def test_256_searches_at_once(index: SearchIndex) -> None:
    async def ask() -> list[SearchResult]:
        asynchronous = index.asynchronous()
        assert asynchronous is not None
        queries = [parse_query(*QUERIES[number % 8]) for number in range(256)]  # type: ignore[arg-type]
        try:
            return await asyncio.gather(*(asynchronous.search(query) for query in queries))
        finally:
            await asynchronous.close()

    expected = [index.search(parse_query(*query)) for query in QUERIES[:8]]  # type: ignore[arg-type]
    assert asyncio.run(ask()) == [expected[number % 8] for number in range(256)]


# --- scopes -------------------------------------------------------------------------------------------------------


def _random_scope(rng: random.Random) -> MailScope:
    day = datetime(2001, 5, 14, tzinfo=UTC)
    return MailScope(
        mailboxes=tuple(rng.sample(["allen-p", "tholt-j", "Allen-P", "nobody"], rng.randrange(3))),
        folders=tuple(rng.sample(["inbox", "sent_items"], rng.randrange(2))),
        after=rng.choice([None, day, day + timedelta(days=1)]),
        before=rng.choice([None, day + timedelta(days=2, seconds=1)]),
    )


def test_no_foreign_mail_whatever_is_asked(index: SearchIndex) -> None:
    async def check(seed: int) -> None:
        rng = random.Random(seed)
        scopes = [_random_scope(rng) for _ in range(rng.randint(1, 2))]
        view, asynchronous = index, whole
        for scope in scopes:
            view, asynchronous = view.within(scope), asynchronous.within(scope)
        inside = {mail.id for mail in MAILS if all(scope.allows(mail) for scope in scopes)}
        kind, arguments = rng.choice(QUERIES)
        query = parse_query(kind, {**arguments, "limit": 50})  # type: ignore[arg-type]
        result = await asynchronous.search(query)
        assert {hit.document.id for hit in result.hits} <= inside
        assert result.total <= len(inside)
        chosen = rng.choice(MAILS)
        assert await asynchronous.read(chosen.id) == (chosen if chosen.id in inside else None)
        if seed < 20:
            assert list(view.ids()) == sorted(inside)
            assert view.stats().documents == len(inside)
            assert view.search(query) == result
            assert view.read(chosen.id) == (chosen if chosen.id in inside else None)

    async def check_all() -> None:
        try:
            await asyncio.gather(*(check(seed) for seed in range(150)))
        finally:
            await whole.close()

    whole = index.asynchronous()
    assert whole is not None
    asyncio.run(check_all())


def test_a_view_finds_what_the_embedded_view_finds(index: SearchIndex, embedded: SearchIndex) -> None:
    for seed in range(8):
        scope = _random_scope(random.Random(seed))
        query = parse_query("keyword", {"keywords": ["gas plan"], "limit": 50})
        found, expected = index.within(scope).search(query), embedded.within(scope).search(query)
        assert [hit.document for hit in found.hits] == [hit.document for hit in expected.hits]
        assert found.total == expected.total


# --- building -----------------------------------------------------------------------------------------------------


def test_any_mail_comes_back_as_it_was(locator: str) -> None:
    odd = [
        Document(id="a", subject="", body=""),
        Document(id="b", subject="half \ud83d", body="\x00 \u2028 \x85 𝔘 \udfff", recipients=("", "\ud800")),
        Document(id="c", subject="会議", body="x " * 70_000 + "y" * 40_000, sender="a" * 40_000, mailbox="m" * 9_000),
        Document(id="d", subject="s", body="b", date=datetime(1, 1, 1, tzinfo=UTC)),
        Document(id="e", subject="s", body="b", date=datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)),
    ]
    assert open_writer(locator).build(odd).documents == 5
    index = open_index(locator)
    assert [index.read(mail.id) for mail in odd] == odd
    assert list(index.within(MailScope.model_validate({"before": "1900-01-01"})).ids()) == ["d"]


def test_a_rebuild_swaps_and_deletes_the_old_index(locator: str) -> None:
    open_writer(locator).build(MAILS)
    reader, first = open_index(locator), names(locator)
    open_writer(locator).build(iter(MAILS[:3]))
    assert reader.stats().documents == 3  # an open reader sees the new index
    (second,) = names(locator)
    assert first != [second]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_what_was_asked_before_is_asked_for_ids_alone(locator: str, opensearch_url: str, asynchronous: bool) -> None:
    query = parse_query("keyword", {"keywords": ["gas", "budget"]})
    open_writer(locator).build(MAILS)

    with serving(lambda *_: None, behind=opensearch_url) as server, asyncio.Runner() as runner:
        index = open_index(f"opensearch:{server.url}/{locator.rpartition('/')[2]}")
        assert isinstance(index, OpenSearchIndex)
        waiting, allowed = index.asynchronous(), index.within(MailScope(mailboxes=("tholt-j",)))

        def search(chars: int = 160) -> tuple[SearchResult, list[bool]]:
            """The result, and of each request whether it asked for the mails."""
            before = len(server.seen)
            if asynchronous:
                found = runner.run(waiting.search(query, snippet_chars=chars))
            else:
                found = index.search(query, snippet_chars=chars)
            return found, ['"_source":true' in line for line in server.seen[before:]]

        first, asked = search()
        assert asked == [True]
        assert search() == (first, [False])
        assert search(chars=40)[1] == [True], "other snippets"
        foreign = {hit.document.id for hit in first.hits if hit.document.mailbox != "tholt-j"}
        assert foreign
        assert not foreign & {hit.document.id for hit in allowed.search(query).hits}, "a view asks for itself"
        # The same ids in another index, whose mails differ, are other mails.
        open_writer(locator).build([replace(mail, body=f"{mail.body} anew") for mail in MAILS])
        second, asked = search()
        assert asked == [False, True]
        assert all("anew" in hit.document.body for hit in second.hits)
        assert search() == (second, [False])
        runner.run(waiting.close())


def _breaking(error: BaseException) -> Iterator[Document]:
    yield from mails(1200)
    raise error


@pytest.mark.parametrize("error", [RuntimeError("source broke"), KeyboardInterrupt()])
def test_a_failed_build_changes_nothing(locator: str, error: BaseException) -> None:
    with pytest.raises(type(error)):
        open_writer(locator).build(_breaking(error))
    assert names(locator) == []
    open_writer(locator).build(MAILS)
    before = names(locator)
    with pytest.raises(type(error)):
        open_writer(locator).build(_breaking(error))
    assert names(locator) == before
    assert open_index(locator).stats().documents == 120


def test_ids_must_be_unique_and_plain(locator: str) -> None:
    with pytest.raises(ValueError, match=r"'m00000'.*twice"):
        open_writer(locator).build([*MAILS, MAILS[0]])
    with pytest.raises(ValueError, match=r"'a b'.*expected"):
        open_writer(locator).build([Document(id="a b", subject="", body="")])
    assert names(locator) == []


def test_an_empty_corpus_is_an_index(locator: str) -> None:
    assert open_writer(locator).build([]).documents == 0
    empty = open_index(locator)
    assert list(empty.ids()) == []
    assert empty.search(KeywordQuery(keywords=("gas",))) == SearchResult((), 0)
    assert empty.search(parse_query("bool", {"filter": [{"match": "gas"}]})) == SearchResult((), 0)


def test_what_a_killed_build_left_goes_with_the_next(locator: str, opensearch_url: str) -> None:
    name = locator.rpartition("/")[2]
    client = OpenSearch([opensearch_url])
    for suffix, builder in (("dead", {"host": host(), "pid": 2**22 + 1}), ("elsewhere", {"host": "other", "pid": 1})):
        notes = {**FORMAT, "alias": name, "builder": builder}
        client.indices.create(index=f"{name}-{suffix}", body={"mappings": {"_meta": {META: notes}}})
    open_writer(locator).build(MAILS[:1])
    left = names(locator)
    assert f"{name}-dead" not in left
    assert f"{name}-elsewhere" in left
    assert len(left) == 2


def test_a_busy_node_gets_every_mail_once(locator: str, opensearch_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A half-dead bulk: the first answer to each request is 429, or 429 for some of its mails, or never arrives."""
    monkeypatch.setattr("corpus_index.backends.opensearch_writer.BUILDING", RetrySettings(backoff_seconds=0.01))
    monkeypatch.setattr("corpus_index.backends.opensearch_writer.CHUNK_DOCUMENTS", 100)
    bulks = iter(range(1000))
    refused = {"error": {"type": "rejected", "reason": "queue full", "root_cause": []}}

    def script(_: int, path: str) -> tuple[int, object, float] | None:
        if "_bulk" not in path:
            return None
        match next(bulks) % 4:
            case 0:
                return 429, refused, 0
            case 1:
                items = [{"index": {"_id": "x", "status": 429, **refused}}] * 100
                return 200, {"items": items, "errors": True}, 0
            case 2:
                return 503, "<html>", 0
            case _:
                return None

    with serving(script, behind=opensearch_url) as server:
        through = f"opensearch:{server.url}/{locator.rpartition('/')[2]}"
        documents = mails(300)
        assert open_writer(through).build(documents).documents == 300
        assert sum("_bulk" in line for line in server.seen) > 3
    assert list(open_index(locator).ids()) == [mail.id for mail in documents]


def test_a_node_that_dies_in_the_middle_of_a_build_keeps_the_live_index(locator: str, opensearch_url: str) -> None:
    open_writer(locator).build(MAILS)
    before = names(locator)

    def script(_: int, path: str) -> tuple[int, object, float] | None:
        return (500, {"error": "disk broke"}, 0) if "_bulk" in path else None

    with serving(script, behind=opensearch_url) as server, pytest.raises(IndexUnavailable, match="disk broke"):
        open_writer(f"opensearch:{server.url}/{locator.rpartition('/')[2]}").build(mails(700))
    assert names(locator) == before
    assert open_index(locator).stats().documents == 120


def test_lost_mails_are_noticed(locator: str, opensearch_url: str) -> None:
    def script(_: int, path: str) -> tuple[int, object, float] | None:
        items = [{"index": {"_id": mail.id, "status": 201}} for mail in MAILS]
        return (200, {"items": items, "errors": False}, 0) if "_bulk" in path else None

    with (
        serving(script, behind=opensearch_url) as server,
        pytest.raises(IndexUnavailable, match="holds 0 mails, not the 120"),
    ):
        open_writer(f"opensearch:{server.url}/{locator.rpartition('/')[2]}").build(MAILS)
    assert names(locator) == []


# --- indexes that are not ours ------------------------------------------------------------------------------------


def test_an_index_that_is_not_there(locator: str) -> None:
    with pytest.raises(IndexMissing, match=rf"no index {locator.rpartition('/')[2]} at .*corpus_index build"):
        open_index(locator)


@pytest.mark.parametrize("notes", [{}, {META: {**FORMAT, "version": 0, "documents": 3}}, {META: FORMAT}])
def test_an_index_of_another_version_says_rebuild(locator: str, opensearch_url: str, notes: dict[str, object]) -> None:
    name = locator.rpartition("/")[2]
    client = OpenSearch([opensearch_url])
    client.indices.create(index=f"{name}-old", body={"mappings": {"_meta": notes}})
    client.indices.put_alias(index=f"{name}-old", name=name)
    with pytest.raises(IndexUnavailable, match=r"was built as .*this version reads .*corpus_index build"):
        open_index(locator)


def test_somebody_elses_index_is_never_replaced(locator: str, opensearch_url: str) -> None:
    name = locator.rpartition("/")[2]
    client = OpenSearch([opensearch_url])
    client.indices.create(index=name)
    with pytest.raises(ValueError, match="something else than our index"):
        open_writer(locator).build(MAILS)
    assert names(locator) == [name]


def test_an_alias_of_two_indexes_is_refused(locator: str, opensearch_url: str) -> None:
    open_writer(locator).build(MAILS[:1])
    name = locator.rpartition("/")[2]
    client = OpenSearch([opensearch_url])
    client.indices.create(index=f"{name}-second")
    client.indices.put_alias(index=f"{name}-second", name=name)
    with pytest.raises(IndexUnavailable, match="stands for 2 indexes"):
        open_index(locator)


def test_an_index_deleted_under_a_reader(locator: str, opensearch_url: str) -> None:
    open_writer(locator).build(MAILS[:1])
    reader = open_index(locator)
    OpenSearch([opensearch_url]).indices.delete(index=names(locator)[0])
    with pytest.raises(IndexUnavailable, match="no index"):
        reader.search(KeywordQuery(keywords=("gas",)))


# --- the rest -----------------------------------------------------------------------------------------------------


def test_cjk_finds_words_inside_a_sentence(locator: str) -> None:
    odd = [
        Document(id="a", subject="会議", body="来週の会議は東京都で"),
        Document(id="b", subject="x", body="京都の夏 gas"),
    ]
    open_writer(locator, analyser="cjk").build(odd)
    index = open_index(locator)

    def found(*keywords: str) -> list[str]:
        return [hit.document.id for hit in index.search(KeywordQuery(keywords=keywords)).hits]

    assert found("東京") == ["a"]
    assert found("夏") == []
    assert found("京都の夏") == ["b", "a"]  # the bigram of Kyoto is in Tokyo-to as well
    assert found("GAS") == ["b"]


def test_the_report_stays_with_the_index(locator: str, tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "mails.jsonl"
    source.write_text(
        "".join(json.dumps({"id": f"a{i}", "subject": "Gas", "body": f"gas {i}"}) + "\n" for i in range(3))
    )
    assert main(["build", "--source", f"jsonl:{source}", "--index", locator, "--no-near-duplicates"]) == 0
    capsys.readouterr()
    assert main(["stats", "--index", locator]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{locator}: 3 mails")
    report = load_report(locator)
    assert report is not None
    assert json.loads(out[out.index("{") :]) == report
    assert report["kept"] == 3
    assert main(["search", "--index", locator, "--keyword", "gas"]) == 0
    save_report(locator, {"kept": 4})
    assert load_report(locator) == {"kept": 4}
    assert open_index(locator).stats().documents == 3
    open_writer(locator).build(MAILS[:1])
    assert load_report(locator) is None
