"""The embedded index: ranking against an independent BM25, filters, bool logic, snippets, ties, the swap on disk."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_index.backends import open_index, open_memory_index, open_writer
from corpus_index.backends.base import (
    IndexMissing,
    IndexUnavailable,
    IndexWriter,
    QueryRejected,
    SearchIndex,
    SearchResult,
)
from corpus_index.backends.snippets import FoldedText, Snippeter
from corpus_index.backends.words import analysers
from corpus_index.document import Document
from corpus_index.query import KeywordQuery, QueryError, parse_query


def mail(number: int, subject: str, body: str, **more: object) -> Document:
    return Document(id=f"m{number}", subject=subject, body=body, **more)  # type: ignore[arg-type]


PHILLIP = {
    "sender": "phillip.allen@enron.com",
    "sender_name": "Phillip K Allen",
    "mailbox": "allen-p",
    "folder": "Inbox",
}
JANE = {
    "sender": "jane.tholt@enron.com",
    "sender_name": "Jane M. Tholt",
    "mailbox": "tholt-j",
    "folder": "sent_items",
}
TO_JANE = {
    "recipients": ("jane.tholt@enron.com", "bob@gas.org"),
    "recipient_names": ("Jane Tholt", "Bob O'Neil"),
}
MAY_14, LATE, MAY_15 = (datetime(2001, 5, *rest, tzinfo=UTC) for rest in ((14,), (14, 23, 59, 59), (15,)))
JUNE_1, LONG_AGO = datetime(2001, 6, 1, tzinfo=UTC), datetime(1600, 1, 1, tzinfo=UTC)
MAILS = [
    mail(1, "gas budget", "the budget for gas storage is ready", date=MAY_14, thread="t1", **PHILLIP, **TO_JANE),
    mail(2, "lunch", "gas prices rose; budget meetings moved", date=LATE, thread="t1", **JANE),
    mail(3, "storage of gas", "please send prices for storage", date=MAY_15, thread="t2", **JANE),
    mail(4, "budgeted", "power desk plan and gas gas gas", date=JUNE_1, thread="t3", **PHILLIP),
    mail(5, "holiday", "the plan for the power desk", thread="t4", mailbox="Allen-P", folder="inbox"),
    mail(6, "Größe", "会議は水曜日 東京 naïve café", date=LONG_AGO, sender="élan@exämple.fr"),
]


@pytest.fixture(scope="module")
def index() -> SearchIndex:
    return open_memory_index(MAILS)


def found(result: SearchResult) -> list[str]:
    return [hit.document.id for hit in result.hits]


def keyword(index: SearchIndex, *keywords: str, **scope: object) -> list[str]:
    return found(index.search(parse_query("keyword", {"keywords": list(keywords), **scope})))


def boolean(index: SearchIndex, **clauses: object) -> list[str]:
    return found(index.search(parse_query("bool", clauses)))


def bm25(documents: list[Document], words: list[str]) -> dict[str, float]:
    """BM25 summed over words, 1.5 x subject + body, straight from the formula (lengths below 40 words are exact)."""
    analyse = analysers()["english_v1"].analyze
    scores = dict.fromkeys((document.id for document in documents), 0.0)
    for field, weight in (("subject", 1.5), ("body", 1.0)):
        texts = {document.id: analyse(getattr(document, field)) for document in documents}
        mean = sum(map(len, texts.values())) / len(texts)
        for word in words:
            having = sum(word in tokens for tokens in texts.values())
            idf = math.log(1 + (len(texts) - having + 0.5) / (having + 0.5))
            for document_id, tokens in texts.items():
                count = tokens.count(word)
                scores[document_id] += weight * idf * count * 2.2 / (count + 1.2 * (0.25 + 0.75 * len(tokens) / mean))
    return {document_id: score for document_id, score in scores.items() if score}


@pytest.mark.parametrize("words", [["budget"], ["gas", "storage"], ["plan", "power", "desk", "gas"], ["price"]])
def test_scores_and_order_are_bm25(index: SearchIndex, words: list[str]) -> None:
    expected = bm25(MAILS, [analysers()["english_v1"].analyze(word)[0] for word in words])
    result = index.search(KeywordQuery(keywords=(" ".join(words), words[0].upper())))
    assert {hit.document.id: hit.score for hit in result.hits} == pytest.approx(expected, rel=1e-4)
    assert found(result) == sorted(expected, key=lambda name: (-expected[name], name))
    assert result.total == len(expected)


def test_complete_first_lifts_mails_with_every_keyword_and_keeps_bm25_within() -> None:
    def mail(name: str, subject: str, body: str) -> Document:
        return Document(id=name, subject=subject, body=body)

    mails = [
        mail("desk", "Mira Okafor desk", "Mira Okafor sits at 4."),
        mail("phone", "Mira Okafor phone", "Call Mira Okafor on 5."),
        mail("wanted", "Amber Falcon owner", "From now on it is in the hands of Mira Okafor, who knows it well."),
        mail("split", "Owners", "A talk by Mira Sato about what an owner does."),
    ]
    index = open_memory_index(mails)

    def ranked(**more: bool) -> list[str]:
        return found(index.search(KeywordQuery(keywords=("Mira Okafor", "owner"), **more)))

    plain = ranked()
    assert plain.index("wanted") > plain.index("desk")  # what complete_first is for
    assert ranked(complete_first=True) == ["wanted", *(name for name in plain if name != "wanted")]
    one = KeywordQuery(keywords=("Mira Okafor",), complete_first=True)  # one keyword: nothing to complete
    assert found(index.search(one)) == found(index.search(one.model_copy(update={"complete_first": False})))


def test_words_meet_in_their_stem_but_names_do_not(index: SearchIndex) -> None:
    assert set(keyword(index, "budgets")) == {"m1", "m2", "m4"}
    assert keyword(index, "gas", sender="Allens") == []


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        ({"sender": "phillip.allen"}, {"m1", "m4"}),
        ({"sender": "Phillip.Allen@Enron.com"}, {"m1", "m4"}),
        ({"sender": "allen phillip"}, {"m1", "m4"}),
        ({"sender": "phillip tholt"}, set()),
        ({"sender": "allen.phillip"}, set()),
        ({"sender": "enron.com"}, {"m1", "m2", "m3", "m4"}),
        ({"recipient": "o'neil"}, {"m1"}),
        ({"recipient": "tholt@enron.com"}, {"m1"}),
        ({"recipient": "com bob@gas"}, {"m1"}),
        ({"recipient": "com.bob"}, set()),
        ({"mailbox": "allen-p"}, {"m1", "m4"}),
        ({"mailbox": "allen"}, set()),
        ({"folder": "sent_items"}, {"m2", "m3"}),
        ({"folder": "inbox"}, set()),
        ({"after": "2001-05-14", "before": "2001-05-15"}, {"m1", "m2"}),
        ({"after": "2001-05-15"}, {"m3", "m4"}),
        ({"before": "2001-05-14T23:59:59"}, {"m1"}),
        ({"after": "2001-05-14T02:00:00+02:00", "before": "2001-05-14T00:00:01"}, {"m1"}),
        ({"before": "9999-01-01"}, {"m1", "m2", "m3", "m4"}),
        ({"sender": "allen", "after": "2001-05-20"}, {"m4"}),
    ],
)
def test_scope_filters_and_adds_no_score(index: SearchIndex, scope: dict[str, str], expected: set[str]) -> None:
    everything = {hit.document.id: hit.score for hit in index.search(KeywordQuery(keywords=("gas",))).hits}
    result = index.search(parse_query("keyword", {"keywords": ["gas"], **scope}))
    assert {hit.document.id: hit.score for hit in result.hits} == {name: everything[name] for name in expected}
    assert result.total == len(expected)


def test_dates_that_the_engine_cannot_hold_are_clamped(index: SearchIndex) -> None:
    assert boolean(index, filter=[{"before": "1700-01-01"}]) == ["m6"]
    assert boolean(index, filter=[{"after": "1500-01-01", "before": "1500-01-02"}]) == []
    read = index.read("m6")
    assert read is not None
    assert read.date == LONG_AGO


@pytest.mark.parametrize(
    ("clauses", "expected"),
    [
        ({"must": [{"match": "gas"}, {"match": "storage"}]}, {"m1", "m3"}),
        ({"must": [{"match": "gas storage"}]}, {"m1", "m2", "m3", "m4"}),
        ({"must": [{"match": "gas", "field": "subject"}]}, {"m1", "m3"}),
        ({"must": [{"match": "gas"}], "must_not": [{"match": "budget"}]}, {"m3"}),
        ({"must": [{"match": "gas"}], "should": [{"match": "holiday"}]}, {"m1", "m2", "m3", "m4"}),
        ({"should": [{"match": "holiday"}, {"match": "lunch"}]}, {"m2", "m5"}),
        ({"should": [{"match": "holiday"}], "must_not": [{"match": "plan"}]}, set()),
        ({"filter": [{"match": "gas"}], "should": [{"match": "holiday"}]}, {"m1", "m2", "m3", "m4"}),
        ({"must": [{"phrase": "power desk"}]}, {"m4", "m5"}),
        ({"must": [{"phrase": "desk power"}]}, set()),
        ({"must": [{"phrase": "gas price", "field": "body"}]}, {"m2"}),
        ({"must": [{"phrase": "storage", "field": "subject"}]}, {"m3"}),
        ({"must": [{"phrase": "jane m tholt", "field": "sender"}]}, {"m2", "m3"}),
        ({"must": [{"match": "gas"}], "filter": [{"match": "phillip.allen", "field": "sender"}]}, {"m1", "m4"}),
        ({"filter": [{"match": "t1", "field": "thread"}]}, {"m1", "m2"}),
        ({"filter": [{"match": "m3", "field": "id"}]}, {"m3"}),
        ({"filter": [{"match": "M3", "field": "id"}]}, set()),
        ({"filter": [{"match": "Allen-P", "field": "mailbox"}]}, {"m5"}),
        ({"must": [{"after": "2001-05-15"}], "must_not": [{"match": "tholt-j", "field": "mailbox"}]}, {"m4"}),
    ],
)  # fmt: skip
def test_bool_logic(index: SearchIndex, clauses: dict[str, object], expected: set[str]) -> None:
    result = index.search(parse_query("bool", clauses))
    assert set(found(result)) == expected
    assert result.total == len(expected)


def test_filters_add_no_score_and_should_does(index: SearchIndex) -> None:
    def score(**clauses: object) -> dict[str, float]:
        return {hit.document.id: hit.score for hit in index.search(parse_query("bool", clauses)).hits}

    plain = score(must=[{"match": "gas"}])
    assert plain == score(must=[{"match": "gas"}], filter=[{"match": "gas"}])
    raised = score(must=[{"match": "gas"}], should=[{"match": "t2", "field": "thread"}])
    assert raised == pytest.approx({**plain, "m3": plain["m3"] + 1})
    assert set(score(filter=[{"match": "gas"}]).values()) == {0.0}


@pytest.mark.parametrize("clause", [{"match": "?!"}, {"phrase": "--"}, {"match": "…", "field": "sender"}])
def test_a_text_without_words_is_rejected_by_name(index: SearchIndex, clause: dict[str, str]) -> None:
    with pytest.raises(QueryRejected, match=r"must\[1\]\.(match|phrase): .* holds no letters or digits"):
        boolean(index, must=[{"match": "gas"}, clause])


def test_keywords_without_words(index: SearchIndex) -> None:
    assert keyword(index, "???", "holiday") == ["m5"]
    with pytest.raises(QueryRejected, match="keywords"):
        keyword(index, "???", "_")
    with pytest.raises(QueryRejected, match="sender"):
        keyword(index, "gas", sender="@")


def test_query_language_of_the_engine_is_only_words(index: SearchIndex) -> None:
    assert set(keyword(index, 'subject:holiday AND -gas "')) == {"m1", "m2", "m3", "m4", "m5"}  # also: "and"
    assert keyword(index, "holi*") == []


def test_other_scripts(index: SearchIndex) -> None:
    assert keyword(index, "東京") == ["m6"]
    assert keyword(index, "GRÖSSE", "größe") == ["m6"]
    assert keyword(index, "\U0001f4a9 café") == ["m6"]


# --- ties ---------------------------------------------------------------------------------------------------------


def test_equal_scores_come_by_id_and_the_limit_cuts_by_id() -> None:
    numbers = [(37 * i) % 200 for i in range(200)]  # not in order of id
    index = open_memory_index(
        mail(1000 + n, "same words", "in every mail" + " twice twice" * (n == 150)) for n in numbers
    )
    for limit in (1, 7, 50):
        result = index.search(parse_query("keyword", {"keywords": ["twice", "same"], "limit": limit}))
        assert found(result) == (["m1150"] + [f"m{1000 + n}" for n in range(200)])[:limit]
        assert result.total == 200
        only_filter = index.search(parse_query("bool", {"filter": [{"match": "same"}], "limit": limit}))
        assert found(only_filter) == [f"m{1000 + n}" for n in range(limit)]
        assert only_filter.total == 200


# --- snippets -----------------------------------------------------------------------------------------------------


def test_snippet_is_folded_text_around_the_densest_words() -> None:
    filler = "nothing of note here\n\n   " * 30
    body = filler + "budget alone. " + filler + "The <b>budgets</b> of the\n\tgas  meeting were happily met. " + filler
    index = open_memory_index([mail(1, "", body)])
    (hit,) = index.search(KeywordQuery(keywords=("budget", "gas meetings", "happy"))).hits
    assert len(hit.snippet) <= 160
    assert hit.snippet in " ".join(body.split())
    marked = [hit.snippet[start:end] for start, end in hit.highlights]
    assert marked == ["budgets", "gas", "meeting"]  # "happily" has another stem than "happy"
    assert index.search(KeywordQuery(keywords=("budget",)), snippet_chars=0).hits[0].snippet == ""


def test_without_a_match_in_the_body_the_snippet_is_its_start(index: SearchIndex) -> None:
    (hit,) = index.search(KeywordQuery(keywords=("holiday",)), snippet_chars=12).hits
    assert (hit.snippet, hit.highlights) == ("the plan for", ())


def cut(stems: set[str], body: str, chars: int) -> tuple[str, tuple[tuple[int, int], ...]]:
    analyse = analysers()["english_v1"].analyze
    snippeter = Snippeter(stems, lambda word: (analyse(word.encode("utf-8", "replace").decode()) or [""])[0])
    return snippeter.cut(FoldedText(body), chars)


WORD = st.sampled_from(
    [
        "gas",
        "Gas",
        "happy",
        "happiness",
        "running",
        "ran",
        "_gas_",
        "gas-oil",
        "İgas",
        "\n",
        "  ",
        "東京",
        "ß",
        "x" * 70,
    ]
)


@settings(max_examples=100, deadline=None)
@given(words=st.lists(WORD | st.text(max_size=6), max_size=60), chars=st.integers(0, 120))
def test_highlights_are_the_query_words_of_any_text(words: list[str], chars: int) -> None:
    analyse = analysers()["english_v1"].analyze
    stems = {"gas", "happi", "run", "東京"}
    body = " ".join(words)
    snippet, highlights = cut(stems, body, chars)
    assert len(snippet) <= chars
    assert snippet == snippet.strip()
    assert snippet in " ".join(body.split())
    assert list(highlights) == sorted(highlights)
    assert all(analyse(snippet[start:end])[0] in stems for start, end in highlights)
    # An independent look: every plain word of the snippet that has one of the stems is highlighted.
    plain = [
        (found.start(), found.end())
        for found in re.finditer(r"[^\W_]+", snippet)
        if found.group().isascii() and (analyse(found.group()) or [""])[0] in stems
    ]
    ascii_marks = [mark for mark in highlights if snippet[slice(*mark)].isascii()]
    # The last word may be cut in two, and then look like another one.
    assert ascii_marks == [mark for mark in plain if mark in highlights or mark[1] < len(snippet)]


@pytest.mark.parametrize(
    "word", ["happy", "happier", "hoping", "skies", "ability", "possibly", "relational", "gas", "organization"]
)
def test_a_word_is_highlighted_by_its_own_stem(word: str) -> None:
    (stem,) = analysers()["english_v1"].analyze(word)
    assert cut({stem, "other"}, f"so {word.upper()}!", 50) == (f"so {word.upper()}!", ((3, 3 + len(word)),))


def test_a_match_inside_an_endless_run_is_shown() -> None:
    snippet, marks = cut({"gas"}, "x_" * 300 + "gas" + "_x" * 300, 40)
    assert [snippet[start:end] for start, end in marks] == ["gas"]
    assert cut({"gas"}, "a" * 300, 40) == ("a" * 40, ())


# --- robustness ---------------------------------------------------------------------------------------------------

_TEXTS = st.text(min_size=1, max_size=20) | st.sampled_from(
    ["gas", "phillip.allen", "a" * 100, "東京 gas", "\x00", "\ud83d"]
)
_CLAUSE = (
    st.fixed_dictionaries({"match": _TEXTS, "field": st.sampled_from(["any", "body", "sender", "id", "folder"])})
    | st.fixed_dictionaries({"phrase": _TEXTS, "field": st.sampled_from(["any", "subject", "recipient"])})
    | st.fixed_dictionaries({"after": st.datetimes().map(str), "before": st.datetimes().map(str)})
)
_QUERIES = st.fixed_dictionaries(
    {"keywords": st.lists(_TEXTS, max_size=4)},
    optional={"sender": _TEXTS, "mailbox": _TEXTS, "before": st.datetimes().map(str)},
).map(lambda arguments: ("keyword", arguments)) | st.dictionaries(
    st.sampled_from(["must", "should", "must_not", "filter"]), st.lists(_CLAUSE, max_size=3)
).map(lambda arguments: ("bool", arguments))


@settings(max_examples=120, deadline=None)
@given(query=_QUERIES)
def test_random_queries_give_a_result_or_a_refusal(index: SearchIndex, query) -> None:
    try:
        result = index.search(parse_query(*query))
    except (QueryError, QueryRejected):
        return
    assert len(result.hits) <= min(10, result.total) or result.total <= 10
    order = [(-hit.score, hit.document.id) for hit in result.hits]
    assert order == sorted(order)


@settings(max_examples=30, deadline=None)
@given(subject=st.text(), body=st.text(), name=st.text(), date=st.none() | st.datetimes(timezones=st.just(UTC)))
def test_any_mail_comes_back_as_it_was(subject: str, body: str, name: str, date: datetime | None) -> None:
    document = mail(
        1, subject, body, sender_name=name, recipients=("a@b.c", name), attachments=(name,), date=date, folder=name
    )
    index = open_memory_index([document])
    assert index.read("m1") == document
    assert index.read("m2") is None
    assert index.read(name + "\ud800") is None


def test_threads_share_an_index(index: SearchIndex) -> None:
    expected = keyword(index, "gas", "budget")
    wrong: list[object] = []

    def work() -> None:
        try:
            wrong.extend(got for _ in range(60) if (got := keyword(index, "gas", "budget")) != expected)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# --- on disk ------------------------------------------------------------------------------------------------------


def locator(path: Path) -> str:
    return f"embedded:{path}"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_disk_index_equals_memory_index(tmp_path: Path, index: SearchIndex) -> None:
    writer = open_writer(locator(tmp_path / "deep" / "ix"))
    stats = writer.build(iter(MAILS))
    on_disk = open_index(locator(tmp_path / "deep" / "ix"))
    assert isinstance(on_disk, SearchIndex)
    assert (stats.documents, stats.locator) == (6, locator(tmp_path / "deep" / "ix"))
    assert stats.bytes_on_disk == sum(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file())
    assert list(on_disk.ids()) == list(index.ids()) == [f"m{i}" for i in range(1, 7)]
    query = KeywordQuery(keywords=("gas", "budget"))
    assert on_disk.search(query) == index.search(query)
    assert [on_disk.read(document.id) for document in MAILS] == MAILS
    assert names(tmp_path / "deep") == ["ix"]


def test_readers_write_nothing(tmp_path: Path) -> None:
    open_writer(locator(tmp_path / "ix")).build(MAILS)
    for lock in (tmp_path / "ix" / "segments").glob(".*.lock"):
        lock.unlink()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    reader = open_index(locator(tmp_path / "ix"))
    assert len(reader.search(KeywordQuery(keywords=("gas",))).hits) == 4
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_several_segments_rank_as_one(tmp_path: Path) -> None:
    # Spilling to disk makes segments; how many must not show. Ids rise with n, but segments mix them.
    documents = [
        mail(100_000 + (7919 * n) % 6000, f"note {n % 5}", f"word{n % 7} " * 4 + "filler text " * 120)
        for n in range(6000)
    ]
    open_writer(locator(tmp_path / "ix"), heap_bytes=15_000_000, threads=2).build(documents)
    many, one = (
        open_index(locator(tmp_path / "ix")),
        open_memory_index(sorted(documents, key=lambda document: document.id)),
    )
    assert len({file.stem for file in (tmp_path / "ix" / "segments").glob("*.store")}) > 1
    for arguments in ({"keywords": ["word3"]}, {"keywords": ["note 4", "word6"]}):
        query = parse_query("keyword", {**arguments, "limit": 50})
        assert many.search(query) == one.search(query)
    only_filter = parse_query("bool", {"filter": [{"match": "word2"}]})
    assert many.search(only_filter) == one.search(only_filter)
    assert list(many.ids()) == sorted(document.id for document in documents)


def test_a_rebuild_swaps_and_an_open_reader_keeps_its_view(tmp_path: Path) -> None:
    writer = open_writer(locator(tmp_path / "ix"))
    writer.build(MAILS)
    old = open_index(locator(tmp_path / "ix"))
    writer.build(MAILS[:2])
    assert open_index(locator(tmp_path / "ix")).stats().documents == 2
    assert old.read("m5") == MAILS[4]
    old.close()
    with pytest.raises(IndexUnavailable, match="closed"):
        old.read("m5")


def _breaking(error: BaseException):
    yield from MAILS[:3]
    raise error


@pytest.mark.parametrize("error", [RuntimeError("source broke"), KeyboardInterrupt()])
def test_a_failed_build_changes_nothing(tmp_path: Path, error: BaseException) -> None:
    writer = open_writer(locator(tmp_path / "ix"))
    with pytest.raises(type(error)):
        writer.build(_breaking(error))
    assert list(tmp_path.iterdir()) == []
    writer.build(MAILS)
    with pytest.raises(type(error)):
        writer.build(_breaking(error))
    assert open_index(locator(tmp_path / "ix")).stats().documents == 6
    assert names(tmp_path) == ["ix"]


def test_ids_must_be_unique_and_plain(tmp_path: Path) -> None:
    writer: IndexWriter = open_writer(locator(tmp_path / "ix"))
    with pytest.raises(ValueError, match=r"'m1'.*twice"):
        writer.build([*MAILS, MAILS[0]])
    with pytest.raises(ValueError, match=r"'a b'.*expected"):
        writer.build([Document(id="a b", subject="", body="")])
    assert list(tmp_path.iterdir()) == []


KILLED = """
import os, signal, sys
from corpus_index.backends import open_writer
from corpus_index.document import Document
def documents():
    yield Document(id="a", subject="", body="x")
    os.kill(os.getpid(), signal.SIGKILL)
open_writer(sys.argv[1]).build(documents())
"""

FULL = """
import resource, sys
from corpus_index.backends import open_writer
from corpus_index.document import Document
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))  # stands for a disk that takes no more
words = [f"{i:x}{i * i:x}" for i in range(5_000)]
try:
    open_writer(sys.argv[1], heap_bytes=15_000_000).build(
        Document(id=str(i), subject="", body=" ".join(words[i : i + 500])) for i in range(4_500)
    )
except OSError as error:
    print(error)
    sys.exit(7)
"""


def _python(script: str, path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", script, locator(path)], capture_output=True, text=True, timeout=60)


def test_a_killed_build_is_cleaned_up_by_the_next(tmp_path: Path) -> None:
    open_writer(locator(tmp_path / "ix")).build(MAILS)
    assert _python(KILLED, tmp_path / "ix").returncode == -9
    assert len(names(tmp_path)) == 2
    assert open_index(locator(tmp_path / "ix")).stats().documents == 6
    open_writer(locator(tmp_path / "ix")).build(MAILS[:1])
    assert names(tmp_path) == ["ix"]


def test_killed_between_the_two_renames_the_old_index_comes_back(tmp_path: Path) -> None:
    open_writer(locator(tmp_path / "ix")).build(MAILS)
    assert _python(KILLED, tmp_path / "ix").returncode == -9
    (building,) = tmp_path.glob("ix.building-*")
    (tmp_path / "ix").rename(tmp_path / building.name.replace("building", "replaced"))
    assert open_index(locator(tmp_path / "ix")).stats().documents == 6
    assert names(tmp_path) == ["ix"]


def test_a_build_that_cannot_write_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    open_writer(locator(tmp_path / "ix")).build(MAILS)
    done = _python(FULL, tmp_path / "ix")
    assert done.returncode == 7, done.stderr
    assert "could not be written" in done.stdout or "disk full" in done.stdout
    assert str(tmp_path / "ix") in done.stdout
    assert open_index(locator(tmp_path / "ix")).stats().documents == 6
    assert names(tmp_path) == ["ix"]


def test_other_folders_are_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("dear")
    with pytest.raises(OSError, match="something else than an index"):
        open_writer(locator(tmp_path)).build(MAILS)
    with pytest.raises(OSError, match="must be a folder"):
        open_writer(locator(tmp_path / "letters.txt")).build(MAILS)
    assert (tmp_path / "letters.txt").read_text() == "dear"


def _truncate(folder: Path) -> None:
    for file in (folder / "segments").iterdir():
        if file.suffix in {".store", ".term", ".idx"}:
            file.write_bytes(file.read_bytes()[:10])


def _metadata(folder: Path, **changes: object) -> None:
    known = json.loads((folder / "index.json").read_text())
    (folder / "index.json").write_text(json.dumps({**known, **changes}))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "index.json").unlink(), "not a whole index"),
        (lambda folder: (folder / "index.json").write_text("{"), "not a whole index"),
        (lambda folder: (folder / "index.json").write_text("[]"), "was built as"),
        (lambda folder: _metadata(folder, version=0), "was built as"),
        (lambda folder: _metadata(folder, analyser="other"), "was built as"),
        (lambda folder: _metadata(folder, documents=7), "holds 6 documents, not 7"),
        (lambda folder: (folder / "segments" / "meta.json").write_text("{}"), "damaged"),
        (_truncate, "damaged"),
    ],
)
def test_a_damaged_index_says_rebuild(tmp_path: Path, damage, message: str) -> None:
    open_writer(locator(tmp_path / "ix")).build(MAILS)
    damage(tmp_path / "ix")
    with pytest.raises(IndexUnavailable, match=message) as caught:
        open_index(locator(tmp_path / "ix"))
    assert "python -m corpus_index build" in str(caught.value)


def test_locators(tmp_path: Path) -> None:
    with pytest.raises(IndexMissing, match=r"no index at .*build it with: python -m corpus_index build"):
        open_index(locator(tmp_path / "none" / "ix"))
    for wrong in ("", "x", "embedded:", "lucene:/tmp/x"):
        with pytest.raises(ValueError, match="embedded:PATH"):
            open_index(wrong)
    with pytest.raises(ValueError, match="'cjk' needs OpenSearch"):
        open_writer(locator(tmp_path), analyser="cjk")


def test_an_empty_corpus_is_an_index(tmp_path: Path) -> None:
    assert open_writer(locator(tmp_path / "ix")).build([]).documents == 0
    empty = open_index(locator(tmp_path / "ix"))
    assert list(empty.ids()) == []
    assert empty.search(KeywordQuery(keywords=("gas",))) == SearchResult((), 0)
    assert empty.search(parse_query("bool", {"filter": [{"match": "gas"}]})) == SearchResult((), 0)
