"""Single ``.eml`` files, or a folder of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from corpus_index.sources.items import Item
from corpus_index.sources.maildir import read_file


def read_eml(path: Path, max_bytes: int) -> Iterator[Item]:
    """``path`` itself, or every ``*.eml`` below it by name. Mailbox and folder are the folders below ``path``."""
    if path.is_file():
        yield read_file(path, path.name, max_bytes)
        return
    for file in sorted(item for item in path.rglob("*") if item.suffix.lower() == ".eml" and item.is_file()):
        yield read_file(file, file.relative_to(path).as_posix(), max_bytes)
