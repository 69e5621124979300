"""Named stages, one file each: what a stage was given and what it goes by decide whether it has to run again.

``OUT/NN_<stage>.jsonl`` are the rows after a stage, ``OUT/NN_<stage>.json`` its counts. A killed stage leaves no counts
and runs again; those before it do not.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from corpus_index.files import write_atomic
from environments.chat_rows import ChatRow, load_rows, save_rows
from environments.json_lines import line_of
from training.sft_data.filters import StageOutcome


@dataclass(frozen=True)
class Stage:
    """``settings`` are JSON values: all that the stage's outcome follows from beside the rows it is given."""

    name: str
    run: Callable[[Sequence[ChatRow]], StageOutcome]
    settings: Mapping[str, object]


class StageCounts(BaseModel):
    """``given`` rows in, ``kept`` out; ``dropped`` by reason, and ``notes`` of what was done to those kept."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    stage: str
    key: str
    given: int
    kept: int
    dropped: dict[str, int] = {}
    notes: dict[str, int] = {}


def run_stages(
    rows: list[ChatRow], stages: Sequence[Stage], out: Path, say: Callable[[str], None], first: int = 2
) -> tuple[list[ChatRow], list[StageCounts]]:
    """The rows after the last stage and the counts of each; ``first`` is the number of the first stage's files.

    Raises what a stage raises, OSError, and LineFileError where a stage's file was changed by hand into none of ours.
    """
    counts: list[StageCounts] = []
    for number, stage in enumerate(stages, start=first):
        path = out / f"{number:02d}_{stage.name}.jsonl"
        key = _key(rows, stage)
        done = _done(path, key)
        if done is not None:
            rows = load_rows(path)
            say(f"{stage.name}: done before, {done.kept} of {done.given} rows")
        else:
            outcome = stage.run(rows)
            done = StageCounts(
                stage=stage.name,
                key=key,
                given=len(rows),
                kept=len(outcome.rows),
                dropped=dict(outcome.dropped.most_common()),
                notes=dict(outcome.notes.most_common()),
            )
            rows = outcome.rows
            save_rows(path, rows)
            write_atomic(path.with_suffix(".json"), line_of(done))
            say(f"{stage.name}: {done.kept} of {done.given} rows")
        counts.append(done)
    return rows, counts


def table(counts: Iterable[StageCounts]) -> str:
    """A line a stage, in Markdown."""
    lines = ["| stage | in | out | dropped | |", "|---|--:|--:|---|---|"]
    lines += [
        f"| {count.stage} | {count.given} | {count.kept} | {_listed(count.dropped)} | {_listed(count.notes)} |"
        for count in counts
    ]
    return "\n".join(lines)


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def _key(rows: Sequence[ChatRow], stage: Stage) -> str:
    digest = hashlib.sha256(json.dumps([stage.name, stage.settings], sort_keys=True).encode())
    for row in rows:
        digest.update(line_of(row))
    return digest.hexdigest()[:16]


def _done(path: Path, key: str) -> StageCounts | None:
    """The counts of a stage that ran on the same rows under the same settings."""
    try:
        counts = StageCounts.model_validate_json(path.with_suffix(".json").read_bytes())
    except (FileNotFoundError, ValidationError):
        return None
    return counts if counts.key == key and path.exists() else None
