"""One run folder: what ran, its metrics, samples, timings and events.

runs/<name>/config.yaml                 the resolved config
            run.json                    each start: command, commit, versions
            metrics.jsonl               {"step", "phase", "metrics"} a line; no clock time in it, so that the file
                                        of a resumed run equals an unbroken run's
            timings.jsonl               {"step", "phase", "seconds"} a line
            samples/step_000123.jsonl   full trajectories with their rewards
            preflight.json              what the rollouts of the last start are drawn with
            events.log                  what happened, with the time of day
"""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self, cast

from omegaconf import OmegaConf

from corpus_index.files import write_atomic
from training.config import Config
from training.config_load import plain_tree
from training.console import RunConsole, printable
from training.provenance import describe_start
from training.samples import Record, json_line, pick_per_role, sample_path, sample_step
from training.wandb_run import WandbRun, WandbSettings

SFT = "sft"  # the one phase that counts its own steps; all others share the steps of self-play
EVAL = "eval"  # the benchmark: before the first checkpoint, and after the last one
NON_FINITE = "log/non_finite"

_log = logging.getLogger("futari")


class RunLogError(RuntimeError):
    """The run folder cannot be read or written; the message names the file and what to do."""


class RunLog:
    """Write a step's lines before its checkpoint: on resume, ``truncate_after`` drops what came later.

    ``config`` is the resolved config, JSON-able. ``samples_per_role`` caps the trajectories kept a step and role
    (-1: all).
    ``total_steps`` sizes the progress bar of a terminal. ``wandb`` is None where W&B is off. Use as a context manager.
    Raises RunLogError where the folder cannot be written (full disk, no rights).
    """

    def __init__(
        self,
        folder: Path,
        config: Mapping[str, object],
        *,
        samples_per_role: int = 32,
        total_steps: int | None = None,
        wandb: WandbSettings | None = None,
        console: RunConsole | None = None,
    ) -> None:
        self.folder = folder
        self._samples_per_role = samples_per_role
        self._console = console if console is not None else RunConsole(total_steps)
        self._guard(folder / "samples", lambda path: path.mkdir(parents=True, exist_ok=True))
        for path in (self.metrics_path, self.timings_path):
            _drop_torn_tail(path)
        self._write_config(config)
        self._write_start()
        self._wandb = None if wandb is None else WandbRun(folder, config, wandb, warn=self.warn)
        self.mirror: Callable[[int, str, Mapping[str, float]], None] | None = None
        """Told of every line of metrics too: step, phase, finite values."""

    @classmethod
    def of(cls, config: Config) -> Self:
        """The log of ``logger.log_dir/logger.run_name``, as the ``logger`` section asks for it."""
        logger = config.logger
        wandb = WandbSettings(logger.wandb.project, logger.wandb.name or logger.run_name, logger.wandb.entity or "")
        return cls(
            Path(logger.log_dir) / logger.run_name,
            plain_tree(config),
            samples_per_role=logger.samples_per_role,
            total_steps=config.grpo.max_num_steps,
            wandb=wandb if logger.wandb_enabled else None,
        )

    @property
    def metrics_path(self) -> Path:
        return self.folder / "metrics.jsonl"

    @property
    def timings_path(self) -> Path:
        return self.folder / "timings.jsonl"

    def step(
        self,
        step: int,
        metrics: Mapping[str, float],
        *,
        phase: str = "train",
        seconds: Mapping[str, float] | None = None,
    ) -> None:
        """Metrics, timings and one readable line on the console."""
        self.write_metrics(step, metrics, phase=phase)
        if seconds is not None:
            self.write_timings(step, seconds, phase=phase)
        self._console.step(step, metrics, phase=phase, seconds=None if seconds is None else seconds.get("total"))

    def write_metrics(self, step: int, metrics: Mapping[str, float], *, phase: str = "train") -> None:
        """NaN and infinities become null, counted under ``log/non_finite``."""
        values: dict[str, float | int | None] = {}
        bad: list[str] = []
        for name, value in metrics.items():
            values[name] = value if math.isfinite(value) else None
            if values[name] is None:
                bad.append(name)
        if bad:
            values[NON_FINITE] = len(bad)
            self.event(f"step {step} ({phase}): not finite: {', '.join(bad)}", level="warning")
        self._append(self.metrics_path, {"step": step, "phase": phase, "metrics": values})
        finite = {name: value for name, value in values.items() if value is not None}
        if self._wandb is not None:
            self._wandb.log(step, phase, finite)
        if self.mirror is not None:
            self.mirror(step, phase, finite)

    def write_timings(self, step: int, seconds: Mapping[str, float], *, phase: str = "train") -> None:
        """``seconds`` by name of a part of the step; ``total`` is the whole."""
        rounded = {name: round(value, 4) for name, value in seconds.items()}
        self._append(self.timings_path, {"step": step, "phase": phase, "seconds": rounded})

    def write_samples(self, step: int, records: Sequence[Record]) -> Path:
        """Replaces the file of that step as a whole."""
        return self._write_records(sample_path(self.folder, step), pick_per_role(records, self._samples_per_role))

    def write_records(self, name: str, records: Sequence[Record]) -> Path:
        """Replaces a file of the folder as a whole: one record a line, all of them."""
        return self._write_records(self.folder / name, records)

    def write_text(self, name: str, text: str) -> Path:
        """Replaces a file of the folder as a whole."""
        path = self.folder / name
        self._guard(path, lambda target: write_atomic(target, text.encode("utf-8", errors="backslashreplace")))
        return path

    def event(self, text: str, *, level: str = "info") -> None:
        """One line in events.log, without the console. A log that cannot be written never ends a run."""
        stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        line = f"{stamp} {level:<7} {printable(text).replace(chr(10), ' ')}\n"
        try:
            with (self.folder / "events.log").open("a", encoding="utf-8") as file:
                file.write(line)
        except OSError as error:
            _log.warning("events.log cannot be written (%s): %s", error, line.strip())

    def say(self, text: str) -> None:
        self.event(text)
        self._console.say(text)

    def warn(self, text: str) -> None:
        self.event(text, level="warning")
        self._console.say(f"warning: {text}")

    def truncate_after(self, step: int, *, phase: str = "train") -> int:
        """Forgets all that was logged past ``step`` of ``phase``; returns how many metric lines were dropped.

        The SFT stage counts its own steps and comes first: truncating in it drops all of self-play, and truncating in
        self-play leaves its lines alone. A benchmark of ``step`` itself was measured after that step's checkpoint and
        goes too, but for step 0, whose checkpoint comes after it. Raises RunLogError on a line that is not ours.
        """
        dropped = 0
        for path in (self.metrics_path, self.timings_path):
            if not path.exists():
                continue
            lines = path.read_bytes().splitlines(keepends=True)
            kept = [line for number, line in enumerate(lines, 1) if not _past(line, step, phase, f"{path}:{number}")]
            if path == self.metrics_path:
                dropped = len(lines) - len(kept)
            if len(kept) < len(lines):
                data = b"".join(kept)
                self._guard(path, lambda target, data=data: write_atomic(target, data))
        for path in (self.folder / "samples").glob("step_*.jsonl"):
            of_step = sample_step(path)
            if of_step is not None and (phase == SFT or of_step > step):
                path.unlink()
        self.event(f"resumed after step {step} of {phase}; {dropped} later metric lines dropped")
        return dropped

    def close(self) -> None:
        self._console.close()
        if self._wandb is not None:
            self._wandb.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.event(f"ended by {type(error).__name__}: {error}", level="error")
        self.close()

    def _write_config(self, config: Mapping[str, object]) -> None:
        path = self.folder / "config.yaml"
        text = OmegaConf.to_yaml(OmegaConf.create(dict(config)))
        if path.exists():
            before, after = (OmegaConf.to_container(OmegaConf.create(yaml)) for yaml in (path.read_text("utf-8"), text))
            if changed := sorted(changed_keys(before, after)):
                self.warn(f"the config differs from the one this folder was started with: {', '.join(changed)}")
        self._guard(path, lambda target: write_atomic(target, text.encode("utf-8")))

    def _write_start(self) -> None:
        path = self.folder / "run.json"
        starts: list[object] = []
        if path.exists():
            starts = cast("list[object]", json.loads(path.read_text(encoding="utf-8"))["starts"])
        starts.append(describe_start())
        data = json.dumps({"starts": starts}, indent=2, ensure_ascii=False) + "\n"
        self._guard(path, lambda target: write_atomic(target, data.encode("utf-8", errors="backslashreplace")))

    def _write_records(self, path: Path, records: Sequence[Record]) -> Path:
        data = b"".join(map(json_line, records))
        self._guard(path, lambda target: write_atomic(target, data))
        return path

    def _append(self, path: Path, record: Mapping[str, object]) -> None:
        data = json_line(record)

        def write(target: Path) -> None:
            with target.open("ab", buffering=0) as file:
                size = file.seek(0, os.SEEK_END)
                try:
                    if file.write(data) != len(data):
                        raise OSError("only part of the line was written, as happens on a full disk")
                    os.fsync(file.fileno())
                except OSError:
                    file.truncate(size)  # half a line would spoil the next one
                    raise

        self._guard(path, write)

    def _guard(self, path: Path, write: Callable[[Path], None]) -> None:
        try:
            write(path)
        except OSError as error:
            raise RunLogError(
                f"cannot write {path}: {error}. Free space or fix the rights, then start again: the run resumes from "
                "its last checkpoint"
            ) from error


def _drop_torn_tail(path: Path) -> None:
    """A process killed while writing leaves half a line; cut it off before anything is added."""
    if path.exists() and not (data := path.read_bytes()).endswith(b"\n") and data:
        write_atomic(path, data[: data.rfind(b"\n") + 1])


def _past(line: bytes, step: int, phase: str, where: str) -> bool:
    try:
        record = json.loads(line)
        of_step, of_phase = int(record["step"]), str(record["phase"])
    except (ValueError, KeyError, TypeError) as error:
        raise RunLogError(f"{where} is not a log line of ours ({error}): {line[:80]!r}. Mend or delete it") from error
    if phase == SFT:
        return of_phase != SFT or of_step > step
    return of_phase != SFT and (of_step > step or (of_phase == EVAL and of_step == step > 0))


def changed_keys(before: object, after: object, prefix: str = "") -> set[str]:
    """Dotted names of the leaves in which two trees differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        old, new = cast("dict[object, object]", before), cast("dict[object, object]", after)
        found: set[str] = set()
        for key in old.keys() | new.keys():
            found |= changed_keys(old.get(key), new.get(key), f"{prefix}.{key}" if prefix else str(key))
        return found
    return set() if before == after else {prefix}
