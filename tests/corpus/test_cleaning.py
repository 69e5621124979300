from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from corpus_index.cleaning import CleaningOptions, CleaningReport, clean
from corpus_index.dedup import NearDuplicates, bands_for, fingerprint, jaccard, raw_key, shingle_hashes
from corpus_index.document import Document
from corpus_index.pipeline import prepare
from corpus_index.prepared import prepare_item
from corpus_index.sources.items import Item, Mail, RawMail, SourceError, Unread
from corpus_index.workers import prepare_items

# Without digits: a changed number is a changed fact.
WORDS = [f"w{chr(97 + number // 20)}{chr(97 + number % 20)}" for number in range(400)]


def text(seed: int, count: int) -> list[str]:
    return random.Random(seed).choices(WORDS, k=count)


def document(number: int, body: str, **changes: object) -> Document:
    base = Document(
        id=f"id{number}",
        subject="plan",
        body=body,
        sender="ann@x.org",
        recipients=("bob@x.org",),
        date=datetime(2001, 5, 14, tzinfo=UTC) + timedelta(hours=number),
        mailbox="ann",
        source=f"s{number}",
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def run(documents: list[Document], **settings: object) -> tuple[list[Document], CleaningReport]:
    report = CleaningReport()
    return list(clean(documents, CleaningOptions.model_validate(settings), report)), report


# -- shingles --------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.lists(st.sampled_from(["a", "b", "cc", "ddd", "é"]), max_size=40))
def test_shingles_are_the_set_of_five_word_runs(words: list[str]) -> None:
    runs = {tuple(words[start : start + 5]) for start in range(len(words) - 4)}
    hashes = shingle_hashes(" ".join(words).encode())
    assert len(hashes) == len(runs)
    assert np.array_equal(hashes, np.unique(hashes))


@settings(deadline=None)
@given(
    st.lists(st.sampled_from("abcd"), min_size=5, max_size=60),
    st.lists(st.sampled_from("abcd"), min_size=5, max_size=60),
)
def test_jaccard_of_hashes_is_jaccard_of_runs(left: list[str], right: list[str]) -> None:
    sets = [{tuple(words[start : start + 5]) for start in range(len(words) - 4)} for words in (left, right)]
    exact = len(sets[0] & sets[1]) / len(sets[0] | sets[1])
    assert jaccard(shingle_hashes(" ".join(left).encode()), shingle_hashes(" ".join(right).encode())) == pytest.approx(
        exact
    )


def test_sketches_of_long_texts_estimate_jaccard() -> None:
    rng = np.random.default_rng(1)
    pool = rng.permutation(np.unique(rng.integers(0, 2**32, 12_000, dtype=np.uint32)))
    left, right = np.sort(pool[:9000]), np.sort(pool[1000:])
    exact = len(np.intersect1d(left, right)) / len(np.union1d(left, right))
    assert jaccard(left[:1024], right[:1024]) == pytest.approx(exact, abs=0.04)
    # One side whole, the other a sketch: 900 of its own hashes against the 9,000.
    small = np.sort(left[::10])
    exact = len(small) / len(left)
    assert jaccard(left[:1024], small) == pytest.approx(exact, abs=0.04)


def test_bands_give_recall_at_the_threshold() -> None:
    for threshold in (0.5, 0.7, 0.8, 0.9):
        bands = bands_for(threshold, 128)
        assert 128 % bands == 0
        assert 1 - (1 - threshold ** (128 // bands)) ** bands >= 0.9
    assert bands_for(0.8, 128) == 16


# -- duplicates ------------------------------------------------------------------------------------------------------


def test_exact_duplicates_fold_case_and_white_space() -> None:
    first = document(1, "Hello  there\nBob")
    copies = [
        replace(first, id="x", source="s2", body="hello there bob\n", mailbox="bob"),
        replace(first, id="y", source="s3", subject="PLAN"),
        replace(first, id="z", source="s4", date=first.date and first.date + timedelta(minutes=1)),
        replace(first, id="w", source="s5", sender="eve@x.org"),
    ]
    kept, report = run([first, *copies])
    assert [item.id for item in kept] == ["id1", "z", "w"]
    assert report.dropped == {"exact_duplicate": 2}
    assert report.copies_in_other_mailboxes == 1
    assert run([first, *copies], exact_duplicates=False)[1].kept == 5


def test_near_duplicates_need_the_same_subject_and_numbers() -> None:
    words = text(1, 200)
    body = " ".join(words)
    changed = " ".join(["other", *words[1:]])
    assert run([document(1, body), document(2, changed)])[1].dropped == {"near_duplicate": 1}
    assert run([document(1, body), document(2, changed, subject="Fw: Plan")])[1].dropped == {"near_duplicate": 1}
    assert run([document(1, body), document(2, changed, subject="another plan")])[1].dropped == {}
    assert run([document(1, f"{body} at 10:30"), document(2, f"{body} at 11:30")])[1].dropped == {}
    assert run([document(1, body), document(2, changed)], near_duplicates=False)[1].kept == 2


def test_short_mails_are_compared_exactly_only() -> None:
    kept, _ = run([document(1, "see you at noon"), document(2, "see you at noon")])
    assert len(kept) == 2


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(60, 300), st.floats(0.0, 0.3))
def test_near_duplicates_agree_with_exact_jaccard(seed: int, count: int, share: float) -> None:
    rng = random.Random(seed)
    words = text(seed, count)
    other = ["new" if rng.random() < share / 5 else word for word in words]
    marks = [fingerprint(document(number, " ".join(item))) for number, item in enumerate((words, other))]
    exact = jaccard(np.frombuffer(marks[0].shingles, np.uint32), np.frombuffer(marks[1].shingles, np.uint32))
    near = NearDuplicates(0.8, 128)
    assert not near.seen(marks[0])
    found = near.seen(marks[1])
    if found:
        assert exact >= 0.8
    if exact >= 0.93:  # LSH finds such pairs with a chance above 0.9999
        assert found


def test_raw_twins_have_equal_fingerprints() -> None:
    head = b"Date: Mon, 14 May 2001 09:00:00 -0700\r\nFrom: a@x.org\r\nSubject: s\r\n"
    first = b"Message-ID: <1@x>\r\n" + head + b"X-Folder: \\Sent\r\nX-FileName: a.nsf\r\n\r\nbody body"
    twin = b"Message-ID: <2@x>\r\n" + head + b"X-Folder: \\All documents\r\nX-FileName: a.nsf\r\n\r\nbody body"
    other = first.replace(b"body body", b"body bodz")
    assert raw_key(first) == raw_key(twin) != raw_key(other)
    assert raw_key(first) != raw_key(first.replace(b"09:00", b"09:01"))
    prepared = [prepare_item(RawMail(data, "s")) for data in (first, twin)]
    assert not any(isinstance(item, Unread) for item in prepared)
    assert len({item.mark.exact for item in prepared if not isinstance(item, Unread)}) == 1


# -- the rest of the report ------------------------------------------------------------------------------------------


def test_empty_mails_and_shared_ids() -> None:
    kept, report = run(
        [
            document(1, " \n", subject=""),
            document(2, "", subject="lunch?"),
            document(3, "a"),
            document(4, "b", id="id3"),
        ]
    )
    assert report.dropped == {"empty": 1}
    assert report.renamed_ids == 1
    assert len({item.id for item in kept}) == 3
    assert kept[1].id == "id3"
    assert kept[2].id != "id3"
    assert run([document(3, "a"), document(4, "b", id="id3")])[0][1].id == kept[2].id


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["", "hello", " ".join(WORDS[:30])])), max_size=15))
def test_report_adds_up_and_cleaning_twice_changes_nothing(parts: list[tuple[int, str]]) -> None:
    documents = [document(hour, body, id=f"n{place}", source=f"p{place}") for place, (hour, body) in enumerate(parts)]
    kept, report = run(documents)
    assert report.read == len(documents) == report.kept + sum(report.dropped.values())
    assert report.kept == len(kept)
    again, second = run(kept)
    assert again == kept
    assert second.dropped == {}


def test_report_is_json_and_readable() -> None:
    _, report = run([document(1, "a b", date=None), document(2, "a b", date=None, id="c", mailbox="bob")])
    assert json.loads(json.dumps(report.to_json()))["dropped"] == {"exact_duplicate": 1}
    shown = report.render()
    assert "exact_duplicate  (e.g. s2)" in shown
    assert "50.0 %" in shown
    assert "undated" in shown


def test_options_refuse_unknown_names_and_bad_values() -> None:
    for wrong in ({"treshold": 0.8}, {"threshold": 0.0}, {"workers": -1}, {"max_bytes": 0}):
        with pytest.raises(ValidationError):
            CleaningOptions.model_validate(wrong)


# -- workers and the pipeline ----------------------------------------------------------------------------------------


def raw(number: int, body: str = "") -> RawMail:
    data = f"Message-ID: <{number}@x>\nFrom: a@x.org\nSubject: s{number}\n\n{body or f'body {number}'}\n".encode()
    return RawMail(data, f"maildir/a/b/{number}.", "a", "b")


def test_workers_keep_the_order_and_give_the_same_result() -> None:
    items: list[Item] = [raw(number) if number % 7 else RawMail(b"\x00junk", f"bad{number}") for number in range(900)]
    assert list(prepare_items(items, 2)) == [prepare_item(item) for item in items]


def test_workers_read_ahead_only_a_little_and_stop_when_dropped() -> None:
    taken = 0

    def endless() -> Iterator[Item]:
        nonlocal taken
        while True:
            taken += 1
            yield raw(taken)

    results = prepare_items(endless(), 1)
    assert not isinstance(next(results), Unread)
    assert taken <= 200 * 4
    results.close()  # type: ignore[attr-defined]


def test_an_error_of_the_source_reaches_the_caller_through_the_pool() -> None:
    def broken() -> Iterator[Item]:
        for number in range(500):
            yield raw(number)
        raise SourceError("cut short")

    results = prepare_items(broken(), 2)
    with pytest.raises(SourceError, match="cut short"):
        list(results)


def test_prepare_from_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "maildir" / "ann" / "inbox"
    folder.mkdir(parents=True)
    for number in range(12):
        (folder / f"{number}.").write_bytes(raw(number % 6).data)
    (folder / "99.").write_bytes(b"\x89PNG not mail")
    seen: list[int] = []
    documents, report = prepare(f"maildir:{tmp_path / 'maildir'}", CleaningOptions(), seen.append)
    assert report.read == 0
    kept = list(documents)
    assert (report.read, report.kept, report.dropped) == (13, 6, {"exact_duplicate": 6, "unreadable": 1})
    assert seen[-1] == 13
    assert {item.folder for item in kept} == {"inbox"}
    assert kept == list(prepare(f"maildir:{tmp_path / 'maildir'}", CleaningOptions(workers=1))[0])
    with pytest.raises(SourceError):
        prepare("maildir:/no/such/folder")


def test_company_keeps_its_look_alikes(monkeypatch: pytest.MonkeyPatch) -> None:
    words = " ".join(text(3, 100))
    pair = [Mail(document(1, words)), Mail(document(2, f"{words} more"))]
    monkeypatch.setattr("corpus_index.pipeline.read_items", lambda *_, **__: iter(pair))
    assert len(list(prepare("company:any")[0])) == 2
    assert len(list(prepare("company:any", CleaningOptions(near_duplicates=True))[0])) == 1


def test_real_sample_loses_about_a_third(shared_data: Path) -> None:
    tar = shared_data / "enron" / "enron-maildir-sample.tar.xz"
    documents, report = prepare(f"maildir:{tar}", CleaningOptions(near_duplicates=False))
    ids = {item.id for item in documents}
    assert report.read == 25_418
    # 8,175 were counted apart from this code, over From, Date, Subject and folded body.
    assert report.dropped == {"exact_duplicate": 8_175}
    assert len(ids) == report.kept == 17_243
    # 28 messages carry the placeholder date, some of them twice.
    assert 0 < report.undated <= 28
