"""Files of one JSON object a line, read by a pydantic model. Errors name the file, the line and the field."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from corpus_index.files import write_atomic

M = TypeVar("M", bound=BaseModel)


class LineFileError(ValueError):
    """A file of records that cannot be used as it is; the message names the file, the line and the field."""


def read_lines(path: Path, schema: type[M], fault: type[LineFileError] = LineFileError) -> Iterator[tuple[int, M]]:
    """Line numbers, from 1, and records; blank lines are skipped. Raises ``fault``, and OSError."""
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            record = schema.model_validate_json(line)
        except ValidationError as error:
            raise fault(f"{path}, line {number}: {_reasons(error)}") from error
        yield number, record


def line_of(record: BaseModel, *, exclude_defaults: bool = False) -> bytes:
    return record.model_dump_json(exclude_defaults=exclude_defaults).encode() + b"\n"


def save_lines(path: Path, records: Iterable[BaseModel]) -> None:
    """Written beside the target and moved into place, so no reader sees half a file. Defaults are left out."""
    write_atomic(path, b"".join(line_of(record, exclude_defaults=True) for record in records))


def whole_lines(path: Path) -> list[bytes]:
    """The lines of a file that only grows; one that a kill cut short is taken off the file. None without a file."""
    if not path.exists():
        return []
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        write_atomic(path, whole)
    return whole.splitlines()


def _reasons(error: ValidationError) -> str:
    """``hops: Input should be greater than or equal to 1, got 0``, one part a field."""
    parts = [
        f"{'.'.join(map(str, fault['loc'])) or 'line'}: {fault['msg']}"
        + ("" if fault["type"] in ("missing", "json_invalid") else f", got {str(fault['input'])[:80]!r}")
        for fault in error.errors(include_url=False)
    ]
    return "; ".join(parts)
