from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from evaluation.__main__ import main
from evaluation.curve import learning_curve, read_series, running_mean
from evaluation.report import ReportError, comparison_table, write_report
from evaluation.runner import EvalResult, Row, store_result, summarise


def result(right: Iterable[bool], hops: int = 2, **fields: Any) -> EvalResult:
    values: dict[str, Any] = {
        "kind": "k",
        "verdict": "right",
        "answer": "a",
        "evidence_recall": 0.5,
        "cited_precision": 1.0,
        "cited_recall": 1.0,
        "turns": 4,
        "sampled_tokens": 80,
        "tool_calls": 4,
        "tool_errors": 1,
        "stop_reason": "submitted",
    }
    return summarise(
        [
            Row(id=f"q{n}", entity=f"e{n}", hops=1 + n % hops, correct=ok, **(values | fields))
            for n, ok in enumerate(right)
        ]
    )


def write_metrics(path: Path, lines: list[dict[str, Any]], tail: str = "") -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + tail)
    return path


def line(step: int, phase: str = "train", **metrics: float | None) -> dict[str, Any]:
    return {"step": step, "phase": phase, "metrics": {name.replace("__", "/"): v for name, v in metrics.items()}}


def test_the_table_holds_the_numbers() -> None:
    table, text = comparison_table({"before": result([True] * 4 + [False] * 6), "after": result([True] * 10)})
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in text.strip().split("\n")]
    assert rows[0][:4] == ["policy", "1 hop (n=5)", "2 hops (n=5)", "all"]
    assert rows[2][0] == "before"
    assert rows[2][3].startswith("40.0 [")
    assert rows[3][1:4] == ["100.0 [100.0, 100.0]"] * 3
    assert rows[3][4:] == ["50.0%", "4.00", "80", "25.0%", "100.0%"]
    assert len({len(row) for row in rows}) == 1
    assert table.row_count == 2


def test_policies_asked_different_hops_share_a_table() -> None:
    _, text = comparison_table({"a": result([True], hops=1), "b": result([True, True, True], hops=3)})
    assert "3 hops (n=1)" in text
    assert [cell.strip() for cell in text.split("\n")[2].split("|")][3:5] == ["", ""]


def test_names_are_never_markup() -> None:
    table, text = comparison_table({"[red]a|b\x1b[0m": result([True])})
    console = Console(width=200, color_system=None)
    with console.capture() as captured:
        console.print(table)
    assert "[red]a|b" in captured.get()
    assert "a\\|b" in text
    with pytest.raises(ValueError, match="no results"):
        comparison_table({})


def test_series_leave_out_nulls_sft_and_the_torn_line(tmp_path: Path) -> None:
    lines = [
        line(5, "sft", loss__sft=3.0),
        line(1, reward__solver__total=0.1, lr=1e-3),
        line(2, reward__solver__total=None),
        line(3, reward__solver__total=0.3),
        line(3, "val", reward__solver__total=0.4),
    ]
    series = read_series(write_metrics(tmp_path / "metrics.jsonl", lines, '{"step": 4, "ph'))
    assert set(series) == {"reward/solver/total", "lr"}
    assert series["reward/solver/total"].steps.tolist() == [1, 3]
    assert series["reward/solver/total"].values.tolist() == [0.1, 0.4]
    write_metrics(tmp_path / "metrics.jsonl", lines, "broken\n")
    with pytest.raises(ValueError, match="line 6 is not a metrics line"):
        read_series(tmp_path / "metrics.jsonl")


def test_running_mean_shortens_at_the_ends() -> None:
    assert running_mean(np.asarray([0.0, 3.0, 6.0, 3.0]), 3).tolist() == [1.5, 3.0, 4.0, 4.5]


@pytest.mark.parametrize("steps", [1, 40])
def test_the_curve_is_a_picture_with_a_panel_for_what_there_is(tmp_path: Path, steps: int) -> None:
    from matplotlib.image import imread

    one = [line(step, reward__solver__total=step / 40) for step in range(1, steps + 1)]
    two = [line(0, "eval", eval__hops1__accuracy=0.5, eval__hops1__accuracy_low=0.4, eval__hops1__accuracy_high=0.6)]
    two += [line(0, "val", val__overall__accuracy=0.5)]
    assert learning_curve(write_metrics(tmp_path / "one.jsonl", one), tmp_path / "one.png")
    assert learning_curve(write_metrics(tmp_path / "two.jsonl", one + two), tmp_path / "two.png")
    first, second = imread(tmp_path / "one.png"), imread(tmp_path / "two.png")
    assert second.shape[1] == pytest.approx(2 * first.shape[1], abs=2)
    assert first[..., :3].std() > 0.01
    assert sorted(path.name for path in tmp_path.glob("*.png")) == ["one.png", "two.png"]
    assert [path for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_nothing_to_draw_is_no_picture(tmp_path: Path) -> None:
    assert not learning_curve(write_metrics(tmp_path / "m.jsonl", [line(1, other=1.0)]), tmp_path / "c.png")
    assert not (tmp_path / "c.png").exists()


def test_the_report_of_a_run(tmp_path: Path) -> None:
    run = tmp_path / "quick"
    run.mkdir()
    write_metrics(run / "metrics.jsonl", [line(n, reward__solver__total=0.1 * n) for n in range(1, 4)])
    (run / "config.yaml").write_text("grpo:\n  seed: 17\n")
    start = {
        "time": "2026-01-02T03:04:05Z",
        "command": "python examples/run_selfplay.py --config examples/configs/a.yaml 'x=`y`'",
        "commit": "abc123",
        "uncommitted_changes": True,
        "python": "3.11.7",
        "versions": {"torch": "2.11.0"},
    }
    (run / "run.json").write_text(json.dumps({"starts": [start, start | {"time": "2026-01-02T04:00:00Z"}]}))
    store_result(run, result([True] * 10 + [False] * 30), step=0, label="before")
    store_result(run, result([True] * 30 + [False] * 10), step=3, label="after")
    path = write_report(run)
    text, summary = path.read_text(), json.loads((run / "summary.json").read_text())
    assert "- seed: `17`" in text
    assert "- config: `a.yaml`" in text
    assert "abc123 with uncommitted changes" in text
    assert "- resumed: `2026-01-02T04:00:00Z`" in text
    assert "`` " + start["command"] + " ``" in text
    assert "![learning curve](curve.png)" in text
    assert (run / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert "- all: +50.0 points [" in text
    assert text.index("| before |") < text.index("| after |")
    assert summary["gains"]["overall"]["mean"] == 0.5
    assert summary["results"]["after"]["overall"]["accuracy"]["mean"] == 0.75
    assert summary["last_metrics"] == {"reward/solver/total": pytest.approx(0.3)}
    assert summary["steps"] == 3


def test_a_report_needs_something_to_report(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="is it a run folder"):
        write_report(tmp_path)
    store_result(tmp_path, result([True, False]), step=0, label="before")
    text = write_report(tmp_path).read_text()
    assert "| before |" in text
    assert "Gain" not in text
    assert "curve.png" not in text


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, right in (("a", [True, False]), ("b", [True, True])):
        store_result(tmp_path / name, result(right), step=1)
    assert main(["compare", "--markdown", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    out = capsys.readouterr().out
    assert "| a | 100.0" in out
    assert "| b | 100.0" in out
    assert main(["report", str(tmp_path / "a")]) == 0
    assert main(["compare", str(tmp_path / "none")]) == 1
    assert "was the benchmark run?" in capsys.readouterr().err
