"""The command line: build, search, read, stats; one clear line and exit code 2 for a mistake."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from corpus_index.__main__ import main, printable
from corpus_index.backends import open_index, open_writer
from corpus_index.document import Document

MAILS = [
    {"id": "a1", "subject": "Gas budget", "body": "The budget of the gas desk is ready.", "sender": "ann@x.com"},
    {"id": "a2", "subject": "Lunch", "body": "Lunch on Friday, then the power budget.", "sender": "bob@x.com"},
    {"id": "a3", "subject": "Lunch", "body": "Lunch on Friday, then the power budget.", "sender": "bob@x.com"},
]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "mails.jsonl"
    path.write_text("".join(json.dumps(mail) + "\n" for mail in MAILS))
    return path


@pytest.fixture
def index(tmp_path: Path) -> str:
    locator = f"embedded:{tmp_path / 'ix'}"
    open_writer(locator).build(Document(**mail) for mail in MAILS)
    return locator


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    out, err = capsys.readouterr()
    return code, out, err


def test_build_then_search_read_and_stats(tmp_path: Path, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    locator, report = f"embedded:{tmp_path / 'ix'}", tmp_path / "report.json"
    code, out, _ = run(capsys, "build", "--source", f"jsonl:{source}", "--index", locator, "--report", str(report))
    assert code == 0
    kept = open_index(locator).stats().documents
    assert json.loads(report.read_text()) == json.loads((tmp_path / "ix" / "report.json").read_text())
    assert json.loads(report.read_text())["read"] == 3
    assert json.loads(report.read_text())["kept"] == kept == 2
    assert f"{kept} mails" in out

    code, out, _ = run(capsys, "search", "--index", locator, "--keyword", "budget", "--sender", "ann")
    assert code == 0
    assert "1 mails match, 1 shown" in out
    assert "The budget of the gas desk" in out
    (first,) = [name for name in open_index(locator).ids() if name in out]
    code, out, _ = run(capsys, "read", "--index", locator, first)
    assert code == 0
    assert "Subject: Gas budget" in out
    assert out.endswith("\n\nThe budget of the gas desk is ready.\n")
    assert run(capsys, "stats", "--index", locator)[1].startswith(f"{locator}: 2 mails")


def test_bool_search_and_no_hit(index: str, capsys: pytest.CaptureFixture[str]) -> None:
    query = json.dumps({"must": [{"match": "budget"}], "must_not": [{"match": "gas"}], "limit": 1})
    code, out, _ = run(capsys, "search", "--index", index, "--bool", query)
    assert code == 0
    assert "2 mails match, 1 shown" in out
    assert "1. a2" in out
    assert run(capsys, "search", "--index", index, "--keyword", "zebra")[0] == 1
    assert run(capsys, "read", "--index", index, "nobody")[0] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["search", "--keyword", "a", "--limit", "0"], "limit: 0 is not between 1 and 50"),
        (["search", "--keyword", "a", "--after", "May"], "after: 'May' is not a date"),
        (["search", "--keyword", "?"], "hold no letters or digits"),
        (["search", "--bool", "{"], "--bool is not JSON"),
        (["search", "--bool", "[" * 100_000], "--bool is not JSON"),
        (["search", "--bool", "[1]"], "[1] is not an object"),
        (
            ["search", "--bool", '{"must": [{"match": "x", "field": "sbject"}]}'],
            "must[0].field: 'sbject' is not a field",
        ),
        (["search", "--bool", '{"must": [{"match": "x"}]}', "--sender", "ann"], "--sender goes with --keyword"),
        (["build", "--source", "jsonl:/nowhere/x.jsonl"], "/nowhere/x.jsonl"),
        (["build", "--source", "company:people=5", "--threshold", "3"], "--threshold=3.0"),
    ],
)
def test_mistakes_get_one_line(
    index: str, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    code, out, err = run(capsys, *arguments, "--index", index)
    assert code == 2
    assert out == ""
    assert message in err
    assert err.startswith("corpus_index: ")
    assert err.count("\n") == 1
    assert open_index(index).stats().documents == 3


@pytest.mark.parametrize("locator", ["nonsense", "opensearch:nonsense", "embedded:/nowhere/at/all"])
def test_an_index_that_is_not_there(locator: str, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["search", "--keyword", "a"], ["read", "a1"], ["stats"]):
        code, _, err = run(capsys, *arguments, "--index", locator)
        assert code == 2
        assert locator.removeprefix("embedded:") in err


def test_mail_text_cannot_drive_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b[2J\x1b]0;owned\x07 budget [red]not markup[/red] [link=http://x]y[/link] \x9b31m \u202eabc\r\x08 \ud800"
    locator = f"embedded:{tmp_path / 'ix'}"
    mail = Document(
        id="e", subject="sub\x1b[31mject\nFrom: boss", body=evil, sender="a\x1b]8;;x\x1b\\b", attachments=("\x07.txt",)
    )
    open_writer(locator).build([mail])
    for arguments in (["search", "--keyword", "budget"], ["read", "e"]):
        code, out, _ = run(capsys, *arguments, "--index", locator)
        assert code == 0
        assert "[red]not markup[/red]" in out
        assert "[link=http://x]y[/link]" in out
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", out)
        assert "\u202e" not in out
        assert "\nFrom: boss" not in out


def test_printable_keeps_what_people_write() -> None:
    text = "Grüße, 東京\n\tindented “quotes” 👍"
    assert printable(text) == text
    assert printable("a\x1b[1;31mb\x1b[0mc\x00\x1b") == "abc"
