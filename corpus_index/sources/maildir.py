"""Maildir trees, as a folder or as a tar that is read as a stream and never unpacked."""

from __future__ import annotations

import lzma
import os
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from corpus_index.sources.items import TOO_LARGE, UNREADABLE, Item, RawMail, SourceError, Unread

TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz", ".tar.bz2")
_TAR_ERRORS = (tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, OSError)
_DELIVERY_FOLDERS = ("cur", "new", "tmp")


def read_maildir(path: Path, max_bytes: int) -> Iterator[Item]:
    """Every message below ``path`` (a folder or a tar). Raises SourceError where the tar is broken or cut short."""
    return _read_folder(path, max_bytes) if path.is_dir() else _read_tar(path, max_bytes)


def place_of(source: str) -> tuple[str, str]:
    """``maildir/allen-p/_sent_mail/1.`` -> ``("allen-p", "_sent_mail")``; deeper folders are joined by ``/``.

    What stands before a part named ``maildir`` is ignored; without one the first part is the mailbox.
    """
    parts = [part for part in source.split("/") if part not in ("", ".")]
    if "maildir" in parts[:-1]:
        parts = parts[len(parts) - parts[::-1].index("maildir") :]
    folders = [part for part in parts[1:-1] if part not in _DELIVERY_FOLDERS]
    return (parts[0] if len(parts) > 1 else ""), "/".join(folders)


def _read_tar(path: Path, max_bytes: int) -> Iterator[Item]:
    count = 0
    try:
        with tarfile.open(path, "r|*") as archive:
            while (member := archive.next()) is not None:
                # The stream needs no index of what it has passed; it would grow by 1 kB a message.
                archive.members.clear()  # pyright: ignore[reportAttributeAccessIssue]
                if not member.isfile() or _is_hidden(member.name):
                    continue
                count += 1
                source = member.name.removeprefix("./")
                if member.size > max_bytes:
                    yield Unread(source, TOO_LARGE)
                    continue
                handle = archive.extractfile(member)
                data = handle.read() if handle else b""
                if len(data) < member.size:
                    raise EOFError("unexpected end of data")
                yield RawMail(data, source, *place_of(source))
    except _TAR_ERRORS as error:
        what = "is not a tar archive" if count == 0 else f"breaks off after {count} messages"
        raise SourceError(
            f"{str(path)!r} {what} ({error}); expected a complete .tar, .tar.gz or .tar.xz. "
            f"Download or copy it again and compare its checksum"
        ) from error


def _is_hidden(name: str) -> bool:
    return name.rpartition("/")[2].startswith("._") or name.endswith(".DS_Store")


def _read_folder(root: Path, max_bytes: int) -> Iterator[Item]:
    """Files in a fixed order: folders by name, then numbered files by number."""
    base = root.resolve()
    anchor = len(base.parts)
    if "maildir" in base.parts:
        anchor = len(base.parts) - 1 - base.parts[::-1].index("maildir")
    prefix = "/".join(base.parts[anchor:])
    for folder, subfolders, files in os.walk(base):
        subfolders.sort()
        inner = Path(folder).relative_to(base).as_posix()
        parts = [part for part in (prefix, "" if inner == "." else inner) if part]
        for name in sorted(files, key=_number_first):
            if _is_hidden(name):
                continue
            source = "/".join([*parts, name])
            yield read_file(Path(folder) / name, source, max_bytes)


def _number_first(name: str) -> tuple[int, int, str]:
    stem = name.rstrip("._")
    return (0, int(stem), name) if stem.isascii() and stem.isdigit() else (1, 0, name)


def read_file(path: Path, source: str, max_bytes: int) -> RawMail | Unread:
    """One message file, unless it is over ``max_bytes`` or cannot be opened."""
    try:
        if path.stat().st_size > max_bytes:
            return Unread(source, TOO_LARGE)
        return RawMail(path.read_bytes(), source, *place_of(source))
    except OSError:
        return Unread(source, UNREADABLE)
