from __future__ import annotations

import io
import json
import lzma
import tarfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from corpus_index.sources import Unread, kind_of, open_source, read_items
from corpus_index.sources.items import RawMail, SourceError
from corpus_index.sources.mail import document_id
from corpus_index.sources.maildir import place_of

MAIL = (
    b"Message-ID: <%d@x>\nDate: Mon, 14 May 2001 09:00:00 -0700\nFrom: ann@x.org\nTo: bob@x.org\n"
    b"Subject: s%d\n\nBody %d.\n"
)


def mail(number: int) -> bytes:
    return MAIL % (number, number, number)


def make_tar(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:xz" if path.suffix == ".xz" else "w:gz" if path.suffix == ".gz" else "w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


@pytest.mark.parametrize(
    ("source", "mailbox", "folder"),
    [
        ("maildir/allen-p/_sent_mail/1.", "allen-p", "_sent_mail"),
        ("maildir/whalley-g/test/calendar/90.", "whalley-g", "test/calendar"),
        ("./enron_mail_20150507/maildir/buy-r/inbox/2.", "buy-r", "inbox"),
        ("ann/inbox/cur/17.host:2,S", "ann", "inbox"),
        ("ann/1.eml", "ann", ""),
        ("1.eml", "", ""),
    ],
)
def test_place_of(source: str, mailbox: str, folder: str) -> None:
    assert place_of(source) == (mailbox, folder)


@pytest.mark.parametrize("name", ["m.tar", "m.tar.gz", "m.tar.xz"])
def test_tar_and_folder_give_the_same_documents(tmp_path: Path, name: str) -> None:
    files = {f"maildir/ann/inbox/{number}.": mail(number) for number in (1, 2, 10)}
    tar = make_tar(tmp_path / name, files)
    for path, data in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data)
    from_tar = list(open_source(f"maildir:{tar}"))
    assert [document.source for document in from_tar] == list(files)
    assert from_tar == list(open_source(f"maildir:{tmp_path / 'maildir'}"))
    assert from_tar == list(open_source(str(tar)))
    # One mailbox out of the tree keeps its place and ids.
    assert from_tar == list(open_source(f"maildir:{tmp_path / 'maildir' / 'ann'}"))
    assert from_tar[0].date == datetime(2001, 5, 14, 16, 0, tzinfo=UTC)
    assert (from_tar[0].mailbox, from_tar[0].folder, from_tar[0].id) == ("ann", "inbox", document_id("1@x"))


def test_broken_and_cut_tars_say_so(tmp_path: Path) -> None:
    garbage = tmp_path / "bad.tar.xz"
    garbage.write_bytes(b"not a tar at all" * 100)
    with pytest.raises(SourceError, match=r"bad\.tar\.xz.*not a tar archive.*again"):
        list(open_source(f"maildir:{garbage}"))
    whole = make_tar(tmp_path / "whole.tar", {f"maildir/a/b/{n}.": mail(n) * 200 for n in range(20)})
    cut = tmp_path / "cut.tar"
    cut.write_bytes(whole.read_bytes()[:60_000])
    with pytest.raises(SourceError, match=r"cut\.tar.*breaks off after \d+ messages"):
        list(open_source(f"maildir:{cut}"))
    packed = tmp_path / "cut.tar.xz"
    random_like = bytes((n * n * 31 + n // 7) % 251 for n in range(300_000))
    packed.write_bytes(
        lzma.compress(make_tar(tmp_path / "r.tar", {"maildir/a/b/1.": random_like}).read_bytes())[:-2000]
    )
    with pytest.raises(SourceError, match=r"cut\.tar\.xz"):
        list(open_source(f"maildir:{packed}"))


def test_wrong_specs_name_the_value_and_the_forms(tmp_path: Path) -> None:
    (tmp_path / "notes.xyz").write_text("hello")
    for spec, pattern in [
        ("outlook:box.pst", r"'outlook' is not a format.*maildir:PATH"),
        ("maildir:/no/such", r"no file or folder '/no/such'"),
        ("mbox:", r"mbox:"),
        (f"mbox:{tmp_path}", r"is a folder"),
        (str(tmp_path / "notes.xyz"), r"cannot tell the format.*maildir:PATH"),
        ("nowhere", r"'nowhere' is neither a path"),
    ]:
        with pytest.raises(SourceError, match=pattern):
            open_source(spec)
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError, match="holds no message"):
        list(open_source(f"maildir:{tmp_path / 'empty'}"))


def test_bare_paths_are_guessed(tmp_path: Path) -> None:
    (tmp_path / "a.eml").write_bytes(mail(1))
    (tmp_path / "box").write_bytes(b"From ann@x.org Mon May 14 09:00:00 2001\n" + mail(1))
    (tmp_path / "rows.jsonl").write_text('{"body": "b"}\n')
    (tmp_path / "tree" / "ann" / "inbox").mkdir(parents=True)
    assert kind_of(str(tmp_path / "a.eml")) == "eml"
    assert kind_of(str(tmp_path / "box")) == "mbox"
    assert kind_of(str(tmp_path / "rows.jsonl")) == "jsonl"
    assert kind_of(str(tmp_path)) == "eml"
    assert kind_of(str(tmp_path / "tree")) == "maildir"


def test_mbox_splits_at_separators_only(tmp_path: Path) -> None:
    box = tmp_path / "team.mbox"
    separator = b"From ann@x.org Mon May 14 09:00:00 2001\n"
    first = b"Subject: one\n\nHello\n\nFrom here on it is prose.\n>From quoted\n"
    box.write_bytes(separator + first + b"\n" + separator + b"Subject: two\n\nBye\n")
    documents = list(open_source(f"mbox:{box}"))
    assert [document.subject for document in documents] == ["one", "two"]
    assert documents[0].body == "Hello\n\nFrom here on it is prose.\nFrom quoted\n\n"
    assert [document.source for document in documents] == ["team.mbox#1", "team.mbox#2"]
    assert {document.mailbox for document in documents} == {"team"}
    (tmp_path / "no.mbox").write_bytes(b"Subject: x\n\nbody\n")
    with pytest.raises(SourceError, match="does not start with a 'From ' line"):
        list(open_source(f"mbox:{tmp_path / 'no.mbox'}"))


def test_large_messages_are_dropped_unread(tmp_path: Path) -> None:
    big = b"Subject: big\n\n" + b"x" * 5000
    tar = make_tar(tmp_path / "m.tar", {"maildir/a/b/1.": big, "maildir/a/b/2.": mail(2)})
    box = tmp_path / "m.mbox"
    separator = b"From a@x Mon May 14 09:00:00 2001\n"
    box.write_bytes(separator + big + b"\n\n" + separator + mail(2))
    lines = tmp_path / "m.jsonl"
    lines.write_text(json.dumps({"body": "x" * 5000}) + "\n" + json.dumps({"body": "small"}) + "\n")
    for spec in (f"maildir:{tar}", f"mbox:{box}", f"jsonl:{lines}"):
        seen: list[Unread] = []
        assert len(list(open_source(spec, max_bytes=1000, on_error=seen.append))) == 1, spec
        assert [item.reason for item in seen] == ["too_large"], spec


def test_bad_messages_are_handed_on_and_do_not_stop(tmp_path: Path) -> None:
    files = {
        "maildir/a/b/1.": b"\x89PNG\r\n\x1a\n" + bytes(range(256)),
        "maildir/a/b/2.": b"",
        "maildir/a/b/3.": mail(3),
    }
    seen: list[Unread] = []
    documents = list(open_source(f"maildir:{make_tar(tmp_path / 'm.tar', files)}", on_error=seen.append))
    assert [document.subject for document in documents] == ["s3"]
    assert [(item.source, item.reason) for item in seen] == [
        ("maildir/a/b/1.", "unreadable"),
        ("maildir/a/b/2.", "unreadable"),
    ]


def test_jsonl_reads_every_field_and_counts_bad_lines(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    record = {
        "id": "abc-1",
        "subject": "S",
        "body": "B\r\nC",
        "sender": "Ann@X.org",
        "recipients": ["Bob@x.org"],
        "date": "2001-05-14T09:00:00-07:00",
        "thread": "t1",
    }
    path.write_text(
        "\n".join([json.dumps(record), "{broken", "[1]", '{"subject": "no body"}', '{"body": 3}', '{"body": "last"}'])
    )
    seen: list[Unread] = []
    first, last = open_source(f"jsonl:{path}", on_error=seen.append)
    assert (first.id, first.body, first.sender, first.recipients) == ("abc-1", "B\nC", "ann@x.org", ("bob@x.org",))
    assert first.date == datetime(2001, 5, 14, 16, 0, tzinfo=UTC)
    assert first.thread == "t1"
    assert last.id == document_id("m.jsonl#6")
    assert [item.source for item in seen] == [f"m.jsonl#{line}" for line in (2, 3, 4, 5)]


def test_company_goes_to_its_own_reader() -> None:
    assert kind_of("company:seed=1") == "company"


def test_fixtures_with_odd_mime(shared_data: Path) -> None:
    with tarfile.open(shared_data / "enron" / "mime-oddities-not-enron.tar.xz") as archive:
        raw = {m.name.rpartition("/")[2]: archive.extractfile(m).read() for m in archive if m.isfile()}  # type: ignore[union-attr]
    spec = f"maildir:{shared_data / 'enron' / 'mime-oddities-not-enron.tar.xz'}"
    seen: list[Unread] = []
    found = {document.source.rpartition("/")[2]: document for document in open_source(spec, on_error=seen.append)}
    assert len(raw) == 114
    assert not seen
    assert set(found) == set(raw)
    assert found["japanese_shift_jis.eml"].body.startswith("あいうえお")
    assert found["japanese_iso_2022.eml"].recipient_names == ("みける",)
    assert found["ks_c_5601-1987.eml"].body.startswith("스티해")
    assert found["attachment_2_base64.eml"].attachments == ("yandex_email.eml",)
    assert "From: Buddy Rikard" in found["attachment_2_base64.eml"].body
    assert found["japanese_attachment.eml"].attachments == ("てすと.txt",)
    assert found["example13.eml"].sender == "jdoe@machine.example"
    assert found["example10.eml"].sender == "pete@silly.test"
    assert found["double_fields.eml"].recipients[:3] == ("aa@aa.ru", "bb@aa.ru", "cc@aa.ru")
    assert found["raw_email_bad_time.eml"].date is None
    assert found["raw_email_with_bad_date.eml"].date is None
    assert found["example06.eml"].date == datetime(1997, 11, 21, 16, 1, 10, tzinfo=UTC)
    for document in found.values():
        assert not any("\ud800" <= char <= "\udfff" for char in document.subject + document.body), document.source


def test_reading_is_lazy(tmp_path: Path) -> None:
    tar = make_tar(tmp_path / "m.tar", {f"maildir/a/b/{n}.": mail(n) for n in range(50)})
    items = read_items(f"maildir:{tar}")
    first = next(items)
    assert isinstance(first, RawMail)
    assert first.source == "maildir/a/b/0."
