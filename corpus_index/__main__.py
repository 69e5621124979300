"""``python -m corpus_index build | search | read | stats``: a corpus from the command line."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import cast

from pydantic import ValidationError
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from corpus_index.backends import FORMS, load_report, open_index, open_writer, report_text, save_report
from corpus_index.backends.base import IndexUnavailable, QueryRejected, SearchResult
from corpus_index.document import Document
from corpus_index.query import OCCURS, Query, parse_query

# Everything a terminal would act on. Line breaks and tabs stay.
_CONTROLS = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# Marks that turn the reading direction round, and halves of characters that cannot be written.
_INVISIBLE = re.compile(r"[\u200e\u200f\u202a-\u202e\u2066-\u2069]|[\ud800-\udfff]")


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0 done; 1 no such mail, or no hit; 2 a mistake in the call or an index that is not there."""
    options = _parser().parse_args(arguments)
    console = Console(highlight=False, soft_wrap=True)
    command = cast("Callable[[argparse.Namespace, Console], int]", options.command)
    try:
        return command(options, console)
    except BrokenPipeError:  # the reader of a pipe, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (IndexUnavailable, QueryRejected, OSError, ValueError) as error:
        text = f"{error.strerror}: {error.filename}" if isinstance(error, OSError) and error.filename else str(error)
        print(f"corpus_index: {one_line(text)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("corpus_index: stopped; an index that was there is unchanged", file=sys.stderr)
        return 130


def printable(text: str) -> str:
    """Mail text without anything that a terminal acts on (escape sequences, control and direction characters)."""
    return _INVISIBLE.sub("\ufffd", _CONTROLS.sub("", text))


def one_line(text: str) -> str:
    """``printable``, with line breaks folded: a subject must not look like the next header."""
    return " ".join(printable(text).split())


def _build(options: argparse.Namespace, console: Console) -> int:
    from corpus_index.cleaning import CleaningOptions
    from corpus_index.pipeline import prepare

    given = {"near_duplicates": options.near_duplicates, "threshold": options.threshold, "workers": options.workers}
    try:
        settings = CleaningOptions.model_validate({name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ValueError(f"--{first['loc'][0]}={first['input']}: {first['msg']}") from None
    writer = open_writer(options.index, heap_bytes=options.heap_mb * 1_000_000, analyser=options.analyser)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    terminal = Console(stderr=True)
    progress = Progress(*columns, console=terminal, transient=True, disable=not terminal.is_terminal)
    task = progress.add_task("reading")
    kept = 0

    def show(read: int) -> None:
        elapsed = progress.tasks[task].elapsed or 0.0
        rate = f"{read / elapsed:,.0f}/s" if elapsed > 0 else ""
        progress.update(task, description=f"read {read:,} · kept {kept:,} · {rate}")

    documents, report = prepare(options.source, settings, show)

    def counted() -> Iterator[Document]:
        nonlocal kept
        for document in documents:
            kept += 1
            yield document

    with progress:
        stats = writer.build(counted())
    save_report(stats.locator, report.to_json())
    if options.report is not None:
        cast(Path, options.report).write_text(report_text(report.to_json()), encoding="utf-8")
    console.print(Text(printable(report.render())))
    console.print(Text(f"{stats.documents:,} mails, {stats.bytes_on_disk / 1e6:,.1f} MB in {stats.locator}"))
    return 0


def _search(options: argparse.Namespace, console: Console) -> int:
    result = open_index(options.index).search(_query(options), snippet_chars=options.snippet)
    _show_hits(result, console)
    return 0 if result.hits else 1


def _query(options: argparse.Namespace) -> Query:
    scope = ("sender", "recipient", "mailbox", "folder", "after", "before")
    given: dict[str, object] = {name: getattr(options, name) for name in scope if getattr(options, name) is not None}
    if options.bool is None:
        return parse_query("keyword", {"keywords": options.keyword, "limit": options.limit, **given})
    if given:
        raise ValueError(f"--{next(iter(given))} goes with --keyword; in --bool write it as a filter clause")
    try:
        query = json.loads(options.bool)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"--bool is not JSON ({error}); expected an object with {', '.join(OCCURS)}") from None
    return parse_query("bool", {"limit": options.limit, **query} if isinstance(query, dict) else query)


def _show_hits(result: SearchResult, console: Console) -> None:
    console.print(Text(f"{result.total:,} mails match, {len(result.hits)} shown"))
    for place, hit in enumerate(result.hits, 1):
        mail = hit.document
        date = mail.date.strftime("%Y-%m-%d %H:%M") if mail.date else "no date"
        console.print()
        console.print(Text(f"{place}. {mail.id}  {one_line(mail.subject) or '(no subject)'}", style="bold"))
        console.print(
            Text("   " + one_line(f"{date} · {mail.sender or mail.sender_name} · score {hit.score:.2f}"), style="dim")
        )
        # Text, never markup: a mail may hold "[red]" or "[link=...]".
        line, done = Text("   "), 0
        for start, end in hit.highlights:
            line.append(printable(hit.snippet[done:start]))
            line.append(printable(hit.snippet[start:end]), style="bold yellow")
            done = end
        line.append(printable(hit.snippet[done:]))
        console.print(line)


def _read(options: argparse.Namespace, console: Console) -> int:
    mail = open_index(options.index).read(options.id)
    if mail is None:
        print(f"corpus_index: no mail {printable(options.id)!r} in {options.index}", file=sys.stderr)
        return 1
    heads = {
        "Id": mail.id,
        "Date": mail.date.isoformat(sep=" ") if mail.date else "",
        "From": f"{mail.sender_name} <{mail.sender}>".strip(),
        "To": ", ".join(mail.recipients),
        "Subject": mail.subject,
        "Mailbox": f"{mail.mailbox}/{mail.folder}".strip("/"),
        "Thread": mail.thread,
        "Files": ", ".join(mail.attachments),
        "Source": mail.source,
    }
    for name, value in heads.items():
        if value:
            console.print(Text.assemble((f"{name}: ", "bold"), one_line(value)))
    console.print()
    console.print(Text(printable(mail.body)))
    return 0


def _stats(options: argparse.Namespace, console: Console) -> int:
    stats = open_index(options.index).stats()
    console.print(Text(f"{stats.locator}: {stats.documents:,} mails, {stats.bytes_on_disk / 1e6:,.1f} MB"))
    report = load_report(stats.locator)
    if report is not None:
        console.print(Text(printable(report_text(report))))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m corpus_index", description="Build and search a mail index.")
    commands = parser.add_subparsers(required=True, metavar="build | search | read | stats")

    build = commands.add_parser("build", help="read a source, clean it, and write an index")
    build.set_defaults(command=_build)
    forms = "maildir:PATH (folder or tar), mbox:PATH, eml:PATH, jsonl:PATH, company:SETTINGS"
    build.add_argument("--source", required=True, help=forms)
    build.add_argument("--near-duplicates", action=argparse.BooleanOptionalAction, help="default: for all but company:")
    build.add_argument("--threshold", type=float, help="how alike near duplicates are, 0 to 1 (0.8)")
    build.add_argument("--workers", type=int, help="parsing processes; 0: none (one a core for large sources)")
    build.add_argument("--report", type=Path, help="also write the report of what was dropped here (JSON)")
    build.add_argument("--heap-mb", type=int, default=128, help="memory of the embedded index writer (%(default)s)")
    build.add_argument(
        "--analyser", help="english (the default); OpenSearch also has cjk: bigrams for Japanese and kin"
    )

    search = commands.add_parser("search", help="search by keywords or by a bool query")
    search.set_defaults(command=_search)
    kind = search.add_mutually_exclusive_group(required=True)
    kind.add_argument("--keyword", action="append", metavar="WORDS", help="may be given several times; all optional")
    kind.add_argument("--bool", metavar="JSON", help='such as {"must": [{"match": "budget"}, {"phrase": "gas price"}]}')
    search.add_argument("--sender", help="words of the sender's name or address")
    search.add_argument("--recipient", help="words of a recipient's name or address")
    search.add_argument("--mailbox", help="exact")
    search.add_argument("--folder", help="exact")
    search.add_argument("--after", metavar="DATE", help="on or after, such as 2001-05-14")
    search.add_argument("--before", metavar="DATE", help="before")
    search.add_argument("--limit", type=int, default=10, help="hits (%(default)s)")
    search.add_argument("--snippet", type=int, default=240, help="characters of a snippet (%(default)s)")

    read = commands.add_parser("read", help="print one mail")
    read.set_defaults(command=_read)
    read.add_argument("id", metavar="ID")

    stats = commands.add_parser("stats", help="count the mails and show the build's report")
    stats.set_defaults(command=_stats)

    for command in (build, search, read, stats):
        command.add_argument("--index", required=True, metavar="LOCATOR", help=FORMS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
