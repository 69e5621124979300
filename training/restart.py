"""Start a run again from the weights before self-play, or from another run's, and keep what the run had gathered.

Weights that went on from a bad stretch keep its habits; the questions asked meanwhile are still good. What was logged
and saved so far moves into ``attempts/001``, and ``restart.json`` says what the new attempt begins with, until its own
first checkpoint holds it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from corpus_index.files import write_atomic
from training.checkpoint import Checkpoint, CheckpointManager

FILE = "restart.json"
BASE, SFT = "base", "sft"
_MOVED = (
    "metrics.jsonl", "timings.jsonl", "samples", "eval", "diagnosis.md", "report.md", "summary.json", "curve.png",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Restart:
    """``policy`` is the folder of the weights to begin with; None: those of ``policy.model_name``, and a warm start as
    the config asks for. ``memory`` is the loop's state of the attempt before, as its last checkpoint had it."""

    source: str
    policy: Path | None
    memory: Mapping[str, Any]


def prepare_restart(folder: Path, manager: CheckpointManager, source: str) -> None:
    """Set the folder up for a new attempt. ``source`` is ``base``, ``sft`` (this run's weights after the warm start) or
    the folder of a run, whose best checkpoint is taken (its newest, where none has a metric).

    Raises ValueError, with nothing moved, where there is nothing to restart or no such weights.
    """
    last = manager.latest()
    if last is None:
        raise ValueError(f"{folder} has no checkpoint, so there is nothing to restart: leave --restart away")
    attempt = folder / "attempts" / f"{_attempts(folder) + 1:03d}"
    weights = _weights(source, manager)
    if weights is not None and weights.is_relative_to(manager.folder):
        weights = attempt / "checkpoints" / weights.relative_to(manager.folder)
    attempt.mkdir(parents=True)
    for name in _MOVED:
        if (folder / name).exists():
            (folder / name).rename(attempt / name)
    begin = {"source": source, "policy": str(weights.absolute()) if weights else None, "memory": last.loop_state}
    write_atomic(folder / FILE, json.dumps(begin, allow_nan=False).encode())
    # Last: with it goes the checkpoint that a start without --restart would resume.
    shutil.move(manager.folder, attempt / "checkpoints")


def pending_restart(folder: Path) -> Restart | None:
    """What an attempt without a checkpoint begins with; None for a first attempt."""
    path = folder / FILE
    if not path.exists():
        return None
    found = cast("dict[str, Any]", json.loads(path.read_text(encoding="utf-8")))
    return Restart(found["source"], Path(found["policy"]) if found["policy"] else None, found["memory"])


def _attempts(folder: Path) -> int:
    return sum(path.is_dir() for path in (folder / "attempts").glob("[0-9]*"))


def _weights(source: str, manager: CheckpointManager) -> Path | None:
    if source == BASE:
        return None
    if source == SFT:
        start = manager.at(0)
        if start is None:
            raise ValueError(
                f"{manager.folder} has no checkpoint of step 0, the weights after the warm start; use --restart base, "
                "which makes them again"
            )
        return start.policy
    run = Path(source)
    found = CheckpointManager(run / "checkpoints") if run.is_dir() else None
    best: Checkpoint | None = (found.best() or found.latest()) if found else None
    if best is None:
        raise ValueError(f"--restart {source}: give base, sft, or the folder of a run with checkpoints")
    return best.policy
