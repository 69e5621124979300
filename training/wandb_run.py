"""Weights & Biases beside the run folder: offline without a key, never asking, never ending a run."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class WandbSettings:
    """``name`` is the run's; empty: the name of the run folder. ``entity`` empty: the key's default."""

    project: str = "futari"
    name: str = ""
    entity: str = ""


def wandb_mode(environment: Mapping[str, str]) -> str:
    """``WANDB_MODE`` where it is set to offline or disabled; else online with a key and offline without one."""
    asked = environment.get("WANDB_MODE", "")
    if asked in ("offline", "disabled"):
        return asked
    return "online" if environment.get("WANDB_API_KEY") else "offline"


class WandbRun:
    """The same run id for every start of a folder, so that a resumed run goes on in its own chart.

    The first failure of any kind is handed to ``warn`` once; from then on this object does nothing.
    """

    def __init__(
        self, folder: Path, config: Mapping[str, object], settings: WandbSettings, *, warn: Callable[[str], None]
    ) -> None:
        self._warn = warn
        self._run: Any = None  # wandb.Run; the library is imported here only, since that takes seconds
        try:
            wandb = importlib.import_module("wandb")
            self._run = wandb.init(
                project=settings.project,
                name=settings.name or folder.name,
                entity=settings.entity or None,
                id=_run_id(folder),
                resume="allow",
                dir=str(folder),
                mode=wandb_mode(os.environ),
                config=dict(config),
                settings=wandb.Settings(silent=True, console="off", init_timeout=60),
            )
            # Its own step counter refuses to go back, which a resumed run does.
            self._run.define_metric("step")
            self._run.define_metric("*", step_metric="step")
        except Exception as error:  # whatever a third-party service throws
            self._give_up(error)

    def log(self, step: int, phase: str, metrics: Mapping[str, float]) -> None:
        if self._run is None:
            return
        prefix = "sft/" if phase == "sft" else ""  # SFT counts its own steps: keep its charts apart
        try:
            self._run.log({**{prefix + name: value for name, value in metrics.items()}, "step": step})
        except Exception as error:
            self._give_up(error)

    def close(self) -> None:
        if self._run is None:
            return
        try:
            self._run.finish()
        except Exception as error:
            self._give_up(error)
        self._run = None

    def _give_up(self, error: Exception) -> None:
        self._run = None
        self._warn(
            f"Weights & Biases is off from here on ({type(error).__name__}: {error}); the run goes on without it"
        )


def _run_id(folder: Path) -> str:
    path = folder / "wandb_id"
    if not path.exists():
        path.write_text(os.urandom(6).hex(), encoding="utf-8")
    return path.read_text(encoding="utf-8").strip()
