"""Checkpoints are whole or absent, whatever happens while they are written."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from training.checkpoint import CheckpointError, CheckpointManager, recover, whole_folder


class FakeEngine:
    """Its weights are one number in two files, so a mixture of two saves would show."""

    def __init__(self, value: int = 0, fail: Exception | None = None) -> None:
        self.value, self.fail = value, fail

    def save(self, path: Path) -> None:
        path.mkdir(parents=True)
        (path / "first").write_text(str(self.value))
        if self.fail is not None:
            raise self.fail
        (path / "second").write_text(str(self.value))

    def load(self, path: Path) -> None:
        first, second = ((path / name).read_text() for name in ("first", "second"))
        assert first == second
        self.value = int(first)


def steps(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_round_trip(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path / "checkpoints")
    assert manager.latest() is None
    assert manager.resume(FakeEngine()) is None
    manager.save(3, FakeEngine(33), {"rng": [1, 2], "metrics_bytes": 1234, "name": "é"}, metric=0.5)
    other = FakeEngine()
    found = CheckpointManager(tmp_path / "checkpoints").resume(other)
    assert found is not None
    assert (found.step, found.metric, other.value) == (3, 0.5, 33)
    assert found.loop_state == {"rng": [1, 2], "metrics_bytes": 1234, "name": "é"}
    assert found.path.name == "step_000003"


def test_due() -> None:
    manager = CheckpointManager(Path("nowhere"), save_period=4)
    assert [step for step in range(13) if manager.due(step)] == [4, 8, 12]


@pytest.mark.parametrize(
    ("higher_is_better", "metrics", "kept"),
    [
        (True, [0.1, 0.9, 0.5, 0.2, 0.3], [2, 3, 5]),
        (False, [0.1, 0.9, 0.5, 0.2, 0.3], [1, 4, 5]),
        (True, [0.5, 0.5, 0.5, 0.5, 0.5], [4, 5]),  # ties go to the newer
        (True, [None, None, None, None, None], [4, 5]),
        (True, [0.7, None, 0.1, None, None], [1, 3, 5]),
    ],
)
def test_keeps_the_best_and_the_last(
    tmp_path: Path, higher_is_better: bool, metrics: list[float | None], kept: list[int]
) -> None:
    manager = CheckpointManager(tmp_path, keep_top_k=2, higher_is_better=higher_is_better)
    for step, metric in enumerate(metrics, start=1):
        manager.save(step, FakeEngine(step), {}, metric=metric)
    assert steps(tmp_path) == [f"step_{step:06d}" for step in kept]
    latest = manager.latest()
    assert latest is not None
    assert latest.step == 5


def test_the_start_always_stays(tmp_path: Path) -> None:
    """A run can be restarted from it, and it takes no place of the best."""
    manager = CheckpointManager(tmp_path, keep_top_k=1)
    manager.save(0, FakeEngine(0), {}, metric=0.9)
    for step, metric in enumerate([0.2, 0.5, 0.1], start=1):
        manager.save(step, FakeEngine(step), {}, metric=metric)
    assert steps(tmp_path) == ["step_000000", "step_000002", "step_000003"]
    start = manager.at(0)
    assert start is not None
    assert (start.step, start.metric, manager.at(1)) == (0, 0.9, None)


def test_keep_all(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path, keep_top_k=None)
    for step in range(1, 5):
        manager.save(step, FakeEngine(step), {})
    assert len(steps(tmp_path)) == 4
    assert manager.best() is None


def test_half_written_folders_are_passed_over(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path)
    manager.save(1, FakeEngine(1), {})
    (tmp_path / "step_000002" / "policy").mkdir(parents=True)  # no state
    (tmp_path / "step_000003").mkdir()
    (tmp_path / "step_000003" / "loop_state.json").write_text('{"step": 3')  # cut
    (tmp_path / "step_latest").mkdir()
    latest = manager.latest()
    assert latest is not None
    assert latest.step == 1


@pytest.mark.parametrize(
    "failure",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        RuntimeError('Error while serializing: IoError(Os { code: 28, message: "No space left on device" })'),
        RuntimeError("[enforce fail at inline_container.cc:858] . PytorchStreamWriter failed writing file data/0"),
    ],
)
def test_a_full_disk_says_so_and_leaves_the_last_good_one(tmp_path: Path, failure: Exception) -> None:
    manager = CheckpointManager(tmp_path)
    manager.save(1, FakeEngine(1), {})
    with pytest.raises(CheckpointError, match=r"disk is full.*last good checkpoint is .*step_000001"):
        manager.save(2, FakeEngine(2, failure), {})
    assert steps(tmp_path) == ["step_000001"]
    engine = FakeEngine()
    assert manager.resume(engine) is not None
    assert engine.value == 1


def test_other_failures_pass_through(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path)
    with pytest.raises(KeyError):
        manager.save(1, FakeEngine(1, KeyError("bug")), {})
    with pytest.raises(ValueError, match="not JSON compliant"):
        manager.save(1, FakeEngine(1), {"loss": float("nan")})
    assert steps(tmp_path) == []


def test_a_kill_between_the_two_renames_is_undone(tmp_path: Path) -> None:
    with whole_folder(tmp_path / "a") as folder:
        (folder / "x").write_text("first")
    # The state a kill leaves: the former folder moved aside, the new one not yet in place.
    (tmp_path / "a").rename(tmp_path / ".old_a")
    (tmp_path / ".partial_a").mkdir()
    recover(tmp_path)
    assert (tmp_path / "a" / "x").read_text() == "first"
    assert steps(tmp_path) == ["a"]


def test_saving_a_step_again_replaces_it(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path)
    for value in (1, 2):
        manager.save(7, FakeEngine(value), {"value": value})
    engine = FakeEngine()
    found = manager.resume(engine)
    assert found is not None
    assert (engine.value, found.loop_state) == (2, {"value": 2})
    assert steps(tmp_path) == ["step_000007"]


_WRITER = """
import itertools, sys
from pathlib import Path
sys.path[:0] = [{root!r}, {here!r}]
from test_checkpoint import FakeEngine
from training.checkpoint import CheckpointManager
manager = CheckpointManager(Path({folder!r}), keep_top_k=2)
for step in itertools.count(1):
    manager.save(step % 3 + 1, FakeEngine(step), {{"value": step}})
    print(step, flush=True)
"""


def test_kill_minus_nine_at_any_moment_leaves_a_usable_latest(tmp_path: Path) -> None:
    here = Path(__file__).resolve()
    script = _WRITER.format(root=str(here.parents[2]), here=str(here.parent), folder=str(tmp_path))
    for attempt in range(3):
        process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        for _ in range(3 + attempt):
            assert process.stdout.readline().strip()
        time.sleep(0.0007 * (attempt + 1))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        engine = FakeEngine()
        found = CheckpointManager(tmp_path).resume(engine)
        assert found is not None
        assert engine.value == found.loop_state["value"]
        assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
        assert json.loads((found.path / "loop_state.json").read_text())["step"] == found.step
