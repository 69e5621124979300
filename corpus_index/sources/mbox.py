"""Mbox files, read line by line: one message is in memory at a time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from corpus_index.sources.items import TOO_LARGE, Item, RawMail, SourceError, Unread

# "From ", an address or a dash, and a line that ends in a year or zone: prose rarely does.
_SEPARATOR = re.compile(rb"From \S.*\d{2}:\d{2}.*\d{4}\b")
_QUOTED_FROM = re.compile(rb">+From ")
# A line longer than this is read in pieces, so that a file without line ends cannot fill the memory.
_LINE_BYTES = 1 << 20


def read_mbox(path: Path, max_bytes: int) -> Iterator[Item]:
    """Messages in file order; ``source`` is ``name.mbox#1`` and so on. Raises SourceError where there is no message.

    A separator is a ``From `` line with a time and a year, at the start of the file or after an empty line. ``>From ``
    is unquoted.
    """
    mailbox = path.stem
    chunks: list[bytes] = []
    size = number = 0
    after_blank = True
    with path.open("rb") as file:
        while line := file.readline(_LINE_BYTES):
            if after_blank and line.startswith(b"From ") and _SEPARATOR.match(line):
                if number:
                    yield _message(chunks, size, f"{path.name}#{number}", mailbox, max_bytes)
                number, size, chunks = number + 1, 0, []
            elif number == 0 and line.strip():
                raise SourceError(
                    f"{str(path)!r} does not start with a 'From ' line, so it is not an mbox file; "
                    f"for a single message use eml:{path}, for a folder tree maildir:PATH"
                )
            elif number:
                size += len(line)
                if size <= max_bytes:
                    chunks.append(line[1:] if _QUOTED_FROM.match(line) else line)
                else:
                    chunks.clear()
            after_blank = line in (b"\n", b"\r\n")
    if number:
        yield _message(chunks, size, f"{path.name}#{number}", mailbox, max_bytes)


def _message(chunks: list[bytes], size: int, source: str, mailbox: str, max_bytes: int) -> Item:
    return Unread(source, TOO_LARGE) if size > max_bytes else RawMail(b"".join(chunks), source, mailbox, "")
