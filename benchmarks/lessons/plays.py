"""The runs of lessons: what is to be played, in which order, and what is there already."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from lesson import Lesson, Variant
from omegaconf import OmegaConf

from training.checkpoint import CheckpointManager, whole_folder
from training.config import Config
from training.config_load import load_config, plain_tree
from training.runlog import changed_keys

ROOT = Path(__file__).resolve().parents[2]
RECIPE = Path(__file__).parent / "lesson.yaml"
SHARED = "shared"
_DONE = "report.md"  # the script writes it when all steps are over
_RESTARTED = "restart.json"  # the script writes it when it starts over; a second time would lose what came since


class StaleRun(RuntimeError):
    """A finished run was played with another config than its lesson names now."""


class RunFailed(RuntimeError):
    """A run's process ended with an error; its log says why."""


@dataclass(frozen=True, slots=True)
class Play:
    """One run: ``variant`` at ``seed``, in ``folder``. ``needs`` are the folders of the runs that have to be there: the
    one whose weights it starts with, and the one that it goes on with."""

    variant: Variant
    seed: int
    folder: Path
    needs: tuple[Path, ...]
    extra: tuple[str, ...] = ()
    """Overrides of the command line, the same for all runs."""

    @property
    def overrides(self) -> list[str]:
        given = [f"policy.model_name={last_checkpoint(self.needs[0]) / 'policy'}"] if self.variant.start else []
        names = [
            f"grpo.seed={self.seed}",
            f"logger.log_dir={self.folder.parent}",
            f"logger.run_name={self.folder.name}",
        ]
        return [*names, *given, *self.variant.overrides, *self.extra]

    def config(self) -> Config:
        """Raises ConfigError where an override means nothing any more."""
        return load_config(RECIPE, self.overrides)

    def finished(self) -> bool:
        """Raises StaleRun where it was finished with other settings."""
        if not (self.folder / _DONE).exists():
            return False
        played = OmegaConf.to_container(OmegaConf.load(self.folder / "config.yaml"))
        if changed := sorted(changed_keys(played, plain_tree(self.config()))):
            raise StaleRun(
                f"{self.folder} was played with other settings ({', '.join(changed)}): delete it, or use --fresh to "
                "play it again"
            )
        return True


def last_checkpoint(folder: Path) -> Path:
    """Where the last weights of a run are, or will be: its only checkpoint."""
    newest = CheckpointManager(folder / "checkpoints").latest()
    return newest.path if newest else folder / "checkpoints" / "step_000000"


def plan(
    lessons: Iterable[Lesson],
    starts: Mapping[str, Variant],
    seeds: Sequence[int],
    runs: Path,
    extra: Sequence[str] = (),
) -> list[Play]:
    """Every run once, those that others start from before them."""
    found: dict[Path, Play] = {}

    def add(variant: Variant, siblings: Mapping[str, Variant], letter: str, seed: int) -> Path:
        folder = folder_of(variant, letter, seed, runs)
        if folder in found:
            return folder
        needs = [add(siblings[name], siblings, letter, seed) for name in (variant.start, variant.goes_on) if name]
        found[folder] = Play(variant, seed, folder, tuple(needs), tuple(extra))
        return folder

    for lesson in lessons:
        siblings = {**starts, **{variant.name: variant for variant in lesson.variants}}
        for seed in seeds:
            for variant in lesson.variants:
                add(variant, siblings, lesson.letter, seed)
    return list(found.values())


def folder_of(variant: Variant, letter: str, seed: int, runs: Path) -> Path:
    return runs / (SHARED if variant.shared else letter) / f"{variant.name}-{seed}"


def play_all(plays: Sequence[Play], *, side_by_side: int, fresh: bool, say: Callable[[str], None]) -> None:
    """Plays what is not finished; of runs that wait for nothing, ``side_by_side`` at once, one thread each.

    Raises StaleRun, or RunFailed after the runs beside the failed one have ended.
    """
    if fresh:
        for run in plays:
            shutil.rmtree(run.folder, ignore_errors=True)
    done: set[Path] = set()
    waiting = list(plays)
    while waiting:
        ready = [run for run in waiting if done.issuperset(run.needs)]
        waiting = [run for run in waiting if run not in ready]
        todo = [run for run in ready if not run.finished()]
        with ThreadPoolExecutor(side_by_side) as pool:
            for run, _ in zip(todo, pool.map(play, todo), strict=True):
                say(f"played {run.folder}")
        done.update(run.folder for run in ready)


def play(run: Play) -> None:
    """To its end, in a process of its own. Raises RunFailed."""
    if run.variant.goes_on and not run.folder.exists():
        with whole_folder(run.folder) as copy:
            shutil.copytree(run.needs[-1], copy, dirs_exist_ok=True, ignore=shutil.ignore_patterns(_DONE))
    run.folder.mkdir(parents=True, exist_ok=True)
    restart = ["--restart", "sft"] if run.variant.restart and not (run.folder / _RESTARTED).exists() else []
    command = [sys.executable, run.variant.script, "--config", str(RECIPE), *restart, *run.overrides]
    log = run.folder / "console.log"
    with log.open("ab") as output:
        code = subprocess.run(
            command, cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"}, stdout=output, stderr=output, check=False
        ).returncode
    if code:
        tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-5:])
        raise RunFailed(f"{run.folder} ended with exit code {code}; the end of {log}:\n{tail}")
