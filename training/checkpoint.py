"""Checkpoints that are whole or absent: written beside, flushed to disk, then renamed."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

_STEP = re.compile(r"step_(\d{6,})")
_PARTIAL, _OLD = ".partial_", ".old_"
_STATE = "loop_state.json"
_ENGINE = "policy"


class CheckpointError(RuntimeError):
    """A checkpoint could not be written or read; the ones before it are untouched."""


class Saves(Protocol):
    """The part of an engine that this module needs."""

    def save(self, path: Path) -> None: ...

    def load(self, path: Path) -> None: ...


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """``metric`` ranks it (None: not validated at this step); ``loop_state`` is what the loop handed to ``save``."""

    step: int
    path: Path
    metric: float | None
    loop_state: dict[str, Any]

    @property
    def policy(self) -> Path:
        """The Hugging Face folder with the weights and the tokenizer."""
        return self.path / _ENGINE


@contextmanager
def whole_folder(path: Path) -> Generator[Path]:
    """Fill the yielded folder; it becomes ``path`` in one rename when the block ends, and is dropped on an error.

    A kill at any moment leaves the former ``path`` or the new one, after ``recover`` has run on the parent.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial, old = path.with_name(_PARTIAL + path.name), path.with_name(_OLD + path.name)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    try:
        yield partial
        _flush(partial)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    if path.exists():
        shutil.rmtree(old, ignore_errors=True)
        path.rename(old)
    partial.rename(path)
    _flush_entry(path.parent)
    shutil.rmtree(old, ignore_errors=True)


def recover(parent: Path) -> None:
    """Undo what a kill inside ``whole_folder`` left: bring back a folder that was moved aside, drop partial ones."""
    for old in parent.glob(f"{_OLD}*"):
        target = old.with_name(old.name.removeprefix(_OLD))
        if target.exists():
            shutil.rmtree(old, ignore_errors=True)
        else:
            old.rename(target)
    for partial in parent.glob(f"{_PARTIAL}*"):
        shutil.rmtree(partial, ignore_errors=True)


def saved_state(folder: Path, name: str) -> Path:
    """The state file of an engine's checkpoint, after ``recover``. Raises FileNotFoundError where it is not there."""
    recover(folder.parent)
    state = folder / name
    if not state.is_file():
        raise FileNotFoundError(
            f"{folder} has no {name}: it is not a checkpoint of this engine. To start from plain weights set "
            "policy.model_name to the folder"
        )
    return state


class CheckpointManager:
    """``folder/step_000123/`` holds ``policy/`` (``Engine.save``) and the loop's state.

    Kept: the ``keep_top_k`` best by metric and the newest; without metrics the ``keep_top_k`` newest; None keeps all.
    Step 0, the weights before self-play, always stays: a run can be restarted from it.
    One process at a time may use a folder.
    """

    def __init__(
        self, folder: Path, *, keep_top_k: int | None = 3, save_period: int = 10, higher_is_better: bool = True
    ) -> None:
        self.folder = folder
        self._keep = keep_top_k
        self._period = save_period
        self._sign = 1.0 if higher_is_better else -1.0
        if folder.is_dir():
            recover(folder)

    def due(self, step: int) -> bool:
        """Whether the end of step ``step`` (the first is 1) is a time to save."""
        return step > 0 and step % self._period == 0

    def save(self, step: int, engine: Saves, loop_state: Mapping[str, Any], *, metric: float | None = None) -> Path:
        """Raises CheckpointError, with the last good checkpoint named, when the disk is full or not writable."""
        path = self.folder / f"step_{step:06d}"
        text = json.dumps({"step": step, "metric": metric, "loop_state": dict(loop_state)}, allow_nan=False, indent=1)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            recover(self.folder)
            with whole_folder(path) as partial:
                engine.save(partial / _ENGINE)
                (partial / _STATE).write_text(text, encoding="utf-8")
        except Exception as error:
            problem = _disk_problem(error, self.folder)
            if problem is None:
                raise
            last = self.latest()
            kept = f"the last good checkpoint is {last.path}" if last else "there is no earlier checkpoint"
            raise CheckpointError(
                f"step {step} could not be saved to {path}: {problem}. {kept}; free space (or set checkpointing."
                "checkpoint_dir to another disk) and start the same command again to resume"
            ) from error
        self._prune()
        return path

    def latest(self) -> Checkpoint | None:
        """The newest whole checkpoint; folders without a readable state are passed over."""
        found = self._all()
        return found[-1] if found else None

    def at(self, step: int) -> Checkpoint | None:
        return next((checkpoint for checkpoint in self._all() if checkpoint.step == step), None)

    def best(self) -> Checkpoint | None:
        """The best by metric; ties go to the newer. None when no checkpoint has a metric."""
        ranked = self._ranked()
        return ranked[0] if ranked else None

    def resume(self, engine: Saves) -> Checkpoint | None:
        """Load the newest checkpoint into the engine and return it; None when there is none."""
        checkpoint = self.latest()
        if checkpoint is not None:
            engine.load(checkpoint.policy)
        return checkpoint

    def _all(self) -> list[Checkpoint]:
        found: list[Checkpoint] = []
        for path in self.folder.glob("step_*"):
            if _STEP.fullmatch(path.name) is None or not (path / _ENGINE).is_dir():
                continue
            try:
                state = json.loads((path / _STATE).read_text(encoding="utf-8"))
                found.append(Checkpoint(int(state["step"]), path, state["metric"], state["loop_state"]))
            except (OSError, ValueError, KeyError, TypeError):
                continue
        return sorted(found, key=lambda checkpoint: checkpoint.step)

    def _ranked(self) -> list[Checkpoint]:
        measured = [(c.metric, c) for c in self._all() if c.metric is not None]
        measured.sort(key=lambda pair: (self._sign * pair[0], pair[1].step), reverse=True)
        return [checkpoint for _, checkpoint in measured]

    def _prune(self) -> None:
        if self._keep is None:
            return
        found = self._all()
        best = self._ranked() or found[::-1]
        start = [checkpoint for checkpoint in found if checkpoint.step == 0]
        best = [checkpoint for checkpoint in best if checkpoint.step > 0]
        kept = {checkpoint.path for checkpoint in [*start, *best[: self._keep], found[-1]]}
        for checkpoint in found:
            if checkpoint.path not in kept:
                # Renamed first: a kill inside the deletion must not leave half a checkpoint under a good name.
                doomed = checkpoint.path.with_name(_PARTIAL + checkpoint.path.name)
                checkpoint.path.rename(doomed)
                shutil.rmtree(doomed, ignore_errors=True)


def _disk_problem(error: Exception, folder: Path) -> str | None:
    """What is wrong with the disk, or None. torch and safetensors hide the error number in a text."""
    number = error.errno if isinstance(error, OSError) else None
    if number in (errno.EROFS, errno.EACCES, errno.EPERM):
        return f"the folder is not writable ({os.strerror(number)})"
    text = str(error)
    if number == errno.EFBIG or "os error 27" in text:
        return "a file would be larger than this process may write (ulimit -f)"
    if number in (errno.ENOSPC, errno.EDQUOT) or "No space left" in text or "os error 28" in text:
        return f"the disk is full ({_free(folder)})"
    if "PytorchStreamWriter" in text or "file write failed" in text:
        return f"torch could not write, most likely because the disk is full ({_free(folder)})"
    return None


def _free(folder: Path) -> str:
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    return f"{shutil.disk_usage(existing).free / 2**20:.0f} MiB free"


def _flush(folder: Path) -> None:
    for path in folder.rglob("*"):
        _flush_entry(path)
    _flush_entry(folder)


def _flush_entry(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
