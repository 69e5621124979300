"""The GPU benchmark without a GPU: what it says of a quick start that it stopped, and its table."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks" / "gpu"))

from local_engine import RECIPE, SMALL, Measured, quick_start, table  # noqa: E402

from training.config_load import load_config  # noqa: E402


def test_a_stopped_quick_start_is_reported_as_far_as_it_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def stopped(command: list[str], **options: Any) -> None:
        asked.extend(command)
        folder = tmp_path / "quickstart"
        folder.mkdir()
        rows = [{"step": step, "phase": "val", "metrics": {"val/overall/accuracy": step / 40}} for step in (0, 10)]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        raise subprocess.TimeoutExpired(command, options["timeout"])

    monkeypatch.setattr(subprocess, "run", stopped)
    found = quick_start(tmp_path, ["grpo.seed=3"], 5.0)
    assert found["whole"] is False
    assert found["validation_accuracy"] == [[0, 0.0], [10, 0.25]]
    assert Path(str(found["report"])).exists()
    assert asked[asked.index("--config") + 1] == str(RECIPE)
    assert {"grpo.seed=3", f"logger.log_dir={tmp_path}", "logger.run_name=quickstart"} <= set(asked)


def test_the_dry_run_is_the_recipe_in_small() -> None:
    whole, small = load_config(ROOT / RECIPE), load_config(ROOT / RECIPE, SMALL)
    assert small.policy.model_name == whole.policy.model_name
    assert small.evaluation.source != small.evaluation.validation_source
    assert small.grpo.max_num_steps == 1
    assert small.corpus.source.startswith("company:")


def test_the_table_leaves_out_what_a_cpu_cannot_say() -> None:
    row = Measured("bfloat16", 8, 12345.6, 999.4, 1.2e-4, 1.01234, 0.5, None)
    assert table([row]).splitlines()[-1] == "| bfloat16 | 8 | 12,346 | 999 | 1.20e-04 | 1.0123 | - |"
