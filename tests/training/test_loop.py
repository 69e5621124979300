"""Whole runs in processes of their own: killed ones must end as an unbroken one does, byte for byte."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from training.runlog import EVAL, SFT, RunLog

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "examples/models/futari-1m"
STEPS = 4
RECIPE = """
defaults: {root}/examples/configs/small_model.yaml
policy:
  model_name: {model}
  optimizer: {{kwargs: {{lr: 1e-3}}}}
logger: {{log_dir: {runs}, wandb_enabled: false}}
corpus: {{source: "company:seed=11,projects=8"}}
sft: {{max_num_steps: 3, companies: 1, trajectories_per_step: 4, learning_rate: 1e-3}}
grpo:
  seed: 1
  num_generations_per_prompt: 6
  max_num_steps: {steps}
  normalize_rewards: true
  val_period: 3
  max_val_samples: 30
selfplay:
  proposer_prompts_per_step: 3
  max_solver_groups: 4
  pool_share: 0.5
  tool_variants: 1
  cover: true
  curriculum: [{{hops: {{1: 1.0}}, until: {{step: 2}}}}, {{hops: {{1: 0.5, 2: 0.5}}}}]
rewards:
  proposer: {{shape: one_minus_p, valid: 0.5, diversity: 0.2}}
  reader: {{closed_book: {{enabled: true, rollouts: 1}}}}
engine: {{num_threads: 1, rollout_batch_size: 32}}
evaluation:
  source: company:seed=7,projects=8,split=test
  validation_source: company:seed=7,projects=8,split=validation
  questions: 10
  bootstrap_samples: 50
checkpointing: {{save_period: 1, keep_top_k: null}}
"""

needs_model = pytest.mark.skipif(
    not (MODEL / "training_first.jsonl").is_file(),
    reason=f"there is no model at {MODEL}; make it with make_base_model.py",
)


class Run:
    """``run_selfplay.py`` on one run folder; ``start`` is the same command each time."""

    def __init__(self, folder: Path, name: str) -> None:
        self.recipe = folder / "recipe.yaml"
        self.folder = folder / "runs" / name
        self._name = name
        self._starts = 0
        if not self.recipe.exists():
            self.recipe.write_text(RECIPE.format(root=ROOT, model=MODEL, runs=folder / "runs", steps=STEPS))

    def start(self) -> subprocess.Popen[bytes]:
        self._starts += 1
        command = [
            sys.executable, "examples/run_selfplay.py", "--config", str(self.recipe), f"logger.run_name={self._name}",
        ]  # fmt: skip
        # Each start hashes strings in its own way: nothing may hang on the order of a set.
        env = os.environ | {"PYTHONHASHSEED": str(self._starts), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        with (self.folder.parent.parent / f"{self._name}.log").open("ab") as log:
            return subprocess.Popen(command, cwd=ROOT, env=env, stdout=log, stderr=log)

    def finish(self) -> None:
        code = self.start().wait()
        assert code == 0, (self.folder.parent.parent / f"{self._name}.log").read_text()[-3000:]

    def kill_when(self, happened: Callable[[], bool]) -> None:
        """Start, and kill without a warning as soon as ``happened``."""
        process = self.start()
        try:
            while not happened():
                assert process.poll() is None, "the run ended before the moment to kill it"
                time.sleep(0.01)
        finally:
            process.kill()
        assert process.wait() == -signal.SIGKILL

    @property
    def metrics(self) -> bytes:
        path = self.folder / "metrics.jsonl"
        return path.read_bytes() if path.exists() else b""

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.metrics.splitlines()]

    def files(self, pattern: str) -> dict[str, bytes]:
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in sorted(self.folder.glob(pattern))}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("loop")


@pytest.fixture(scope="module")
def unbroken(place: Path) -> Run:
    run = Run(place, "unbroken")
    run.finish()
    return run


@needs_model
@pytest.mark.timeout(900)
def test_a_run_measures_warms_up_plays_and_reports(unbroken: Run) -> None:
    order = [(line["phase"], line["step"]) for line in unbroken.lines]
    assert order == [
        ("eval", -1), ("sft", 1), ("sft", 2), ("sft", 3), ("eval", 0), ("val", 0),
        ("train", 1), ("train", 2), ("train", 3), ("val", 3), ("train", 4), ("val", 4), ("eval", 4),
    ]  # fmt: skip
    for name in ("report.md", "curve.png", "config.yaml", "run.json"):
        assert (unbroken.folder / name).stat().st_size > 0
    assert len(unbroken.files("samples/*.jsonl")) == STEPS
    train = [line["metrics"] for line in unbroken.lines if line["phase"] == "train"]
    # Without updates and real groups the tests below would compare runs in which nothing happens.
    assert sum(metrics["update/skipped"] == 0.0 for metrics in train) >= 1
    assert any(metrics["proposals/valid_rate"] > 0 for metrics in train)
    assert any(metrics.get("groups/solver/all", 0) > 0 for metrics in train)
    assert [metrics["curriculum/phase"] for metrics in train] == [0.0, 0.0, 1.0, 1.0]
    assert len({metrics.get("reward/proposer/diversity") for metrics in train}) > 1
    before, after = (unbroken.folder / f"checkpoints/step_00000{k}/policy/model.safetensors" for k in (0, STEPS))
    assert before.read_bytes() != after.read_bytes()


@needs_model
@pytest.mark.timeout(900)
def test_a_run_that_was_killed_ends_as_the_unbroken_one(place: Path, unbroken: Run) -> None:
    run = Run(place, "killed")
    run.kill_when(lambda: b'"phase": "sft"' in run.metrics)
    assert not run.files("checkpoints/step_*/loop_state.json")
    # Step 3 is logged and its validation is on its way. Its checkpoint is not there yet, so the step will be repeated.
    run.kill_when((run.folder / "samples/step_000003.jsonl").exists)
    assert (run.folder / "checkpoints/step_000002").exists()
    assert Counter(line["phase"] for line in run.lines)["train"] == 3
    run.finish()
    assert run.metrics == unbroken.metrics
    for pattern in ("samples/*.jsonl", "eval/*.json", "checkpoints/*/policy/model.safetensors"):
        mine, theirs = run.files(pattern), unbroken.files(pattern)
        assert list(mine) == list(theirs)
        assert [name for name in mine if mine[name] != theirs[name]] == []
    assert len(json.loads((run.folder / "run.json").read_text())["starts"]) == 3


def test_the_last_benchmark_is_not_logged_twice_when_a_finished_run_is_started_again(tmp_path: Path) -> None:
    def lines(log: RunLog) -> list[tuple[str, int]]:
        return [(r["phase"], r["step"]) for r in map(json.loads, log.metrics_path.read_text().splitlines())]

    with RunLog(tmp_path, {}) as log:
        for phase, step in ((EVAL, -1), (SFT, 1), (EVAL, 0), ("val", 0), ("train", 1), ("train", 2), ("val", 2)):
            log.write_metrics(step, {"x": 1.0}, phase=phase)
        whole = lines(log)
        log.write_metrics(2, {"x": 1.0}, phase=EVAL)
        assert log.truncate_after(2) == 1  # the checkpoint of step 2 came before its benchmark
        assert lines(log) == whole
        assert log.truncate_after(0) == 3  # that of step 0 after it
        assert lines(log) == whole[:4]


@needs_model
@pytest.mark.timeout(1200)
def test_the_script_of_the_committed_model_repeats_its_first_steps(tmp_path: Path) -> None:
    recorded = [json.loads(line) for line in (MODEL / "training_first.jsonl").read_text().splitlines()]
    command = [
        sys.executable, "examples/make_base_model.py", "--steps", str(recorded[-1]["step"]), "--stop-after", "3",
        "--out", str(tmp_path / "out"), f"policy.model_name={tmp_path / 'start'}",
    ]  # fmt: skip
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-3000:]
    again = [json.loads(line) for line in (tmp_path / "out/training.jsonl").read_text().splitlines()]
    assert [line["step"] for line in again] == [1, 2, 3]
    for mine, theirs in zip(again, recorded, strict=False):
        assert mine["tokens"] == theirs["tokens"]
        assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-4)
        assert mine["lr"] == pytest.approx(theirs["lr"], rel=1e-9)
    # The tokenizer is part of what must come out the same.
    for name in ("tokenizer.json", "chat_template.jinja"):
        assert (tmp_path / "out" / name).read_bytes() == (MODEL / name).read_bytes()
