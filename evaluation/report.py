"""What a run shows: the comparison table, and report.md + summary.json + curve.png in its folder."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import cast

from omegaconf import OmegaConf
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from evaluation.benchmark import write_text
from evaluation.curve import learning_curve, read_series
from evaluation.runner import OVERALL, EvalResult, Slice, accuracy_gain, load_result
from evaluation.stats import Interval

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


class ReportError(ValueError):
    """A run folder that holds nothing to report."""


def comparison_table(results: Mapping[str, EvalResult | Mapping[str, Slice]]) -> tuple[Table, str]:
    """A rich table and the same as markdown: one row a policy, in the order of ``results``.

    Accuracy by hops in per cent with its 95 % interval; the other columns are over all questions, turns and sampled
    tokens a question; the rich table leaves out the last two. A slice that a policy was not asked stays empty.
    Raises ValueError on no results.
    """
    if not results:
        raise ValueError("no results to compare; expected at least one")
    slices = {name: found.slices if isinstance(found, EvalResult) else found for name, found in results.items()}
    parts = sorted({part for found in slices.values() for part in found if part != OVERALL})
    counts = {part: max(found[part].questions for found in slices.values() if part in found) for part in parts}
    header = ["policy", *(f"{_title(part)} (n={counts[part]})" for part in parts), "all"]
    header += ["evidence opened", "turns", "tokens", "tool errors", "submitted"]
    rows = [[name, *_cells(found, [*parts, OVERALL])] for name, found in slices.items()]
    table = Table(title="Accuracy in % [95 % interval]", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1))
    shown = len(header) - 2  # a terminal of 80 columns has no room for the last two
    for column, title in enumerate(header[:shown]):
        title = title.replace(" (", "\n(").replace("evidence ", "evidence\n")
        table.add_column(title, justify="right" if column else "left")
    for name, found in slices.items():
        cells = _cells(found, [*parts, OVERALL], "{0:.1f}\n[{1:.0f}, {2:.0f}]")
        table.add_row(Text(_CONTROL.sub(" ", name)), *cells[: shown - 1])
    return table, markdown_table(header, rows)


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(_CONTROL.sub(" ", cell).replace("|", "\\|") for cell in cells) + " |"

    rule = "|" + "|".join("---" if column == 0 else "---:" for column in range(len(header))) + "|"
    return "\n".join([line(header), rule, *(line(row) for row in rows)]) + "\n"


def stored_results(run_folder: Path) -> list[tuple[int, str, EvalResult]]:
    """All evaluations of a run, by rising step."""
    return sorted((load_result(path) for path in (run_folder / "eval").glob("step_*.json")), key=lambda item: item[0])


def write_report(run_folder: Path) -> Path:
    """Writes report.md, summary.json and curve.png into the run folder from what the run left there; returns report.md.

    The table has a row for each stored evaluation; the paired gain is the last one's over the one before it. Raises
    ReportError where there are neither metrics nor evaluations, ValueError or BenchmarkError where a file of the run is
    broken.
    """
    metrics_path = run_folder / "metrics.jsonl"
    series = read_series(metrics_path) if metrics_path.exists() else {}
    stored = stored_results(run_folder)
    if not series and not stored:
        raise ReportError(f"{run_folder} has no metrics.jsonl and no eval/step_*.json; is it a run folder?")
    facts = _what_ran(run_folder)
    results, gains = _compared(stored)
    last = {name: float(found.values[-1]) for name, found in sorted(series.items())}
    steps = max((int(found.steps[-1]) for found in series.values()), default=0)
    text = [f"# {run_folder.name}\n", *(f"- {name}: {_code(value)}" for name, value in facts.items() if value), ""]
    if results:
        text += ["## Benchmark\n", comparison_table(results)[1]]
        text += [
            "In %, with 95 % bootstrap intervals that draw entities; the columns on the right are over all questions.\n"
        ]
    if gains:
        before, after = list(results)[-2:]
        text += [f"Gains of {_code(after)} over {_code(before)}, paired by question:\n"]
        text += [f"- {_title(part)}: {_points(gain)}" for part, gain in gains.items()] + [""]
    if series and learning_curve(metrics_path, run_folder / "curve.png"):
        text += ["## Learning curve\n", "![learning curve](curve.png)\n"]
    if last:
        text += [f"## Last value of each metric (up to step {steps})\n"]
        text += [markdown_table(["metric", "value"], [[name, f"{value:.5g}"] for name, value in last.items()])]
    summary = {
        **facts,
        "steps": steps,
        "results": {name: {part: asdict(found) for part, found in one.slices.items()} for name, one in results.items()},
        "gains": {part: asdict(gain) for part, gain in gains.items()},
        "last_metrics": last,
    }
    write_text(run_folder / "summary.json", json.dumps(summary, indent=2, ensure_ascii=False) + "\n")
    path = run_folder / "report.md"
    write_text(path, "\n".join(text))
    return path


def _compared(stored: Sequence[tuple[int, str, EvalResult]]) -> tuple[dict[str, EvalResult], dict[str, Interval]]:
    """The evaluations by label, the step beside labels that occur twice; the gains of the last over the one before."""
    labels = Counter(label for _, label, _ in stored)
    results = {label if labels[label] == 1 else f"{label} (step {step})": found for step, label, found in stored}
    if len(stored) < 2:
        return results, {}
    before, after = list(results.values())[-2:]
    shared = {row.id for row in before.rows if not row.faulted} & {row.id for row in after.rows if not row.faulted}
    parts = sorted({f"hops{row.hops}" for row in after.rows if row.id in shared})
    return results, {part: accuracy_gain(before, after, part) for part in [*parts, OVERALL]} if shared else {}


def _what_ran(run_folder: Path) -> dict[str, str]:
    """From run.json (each start of the run) and config.yaml; what is missing stays empty."""
    facts = {"command": "", "commit": "", "started": "", "resumed": "", "versions": "", "config": "", "seed": ""}
    record = run_folder / "run.json"
    if record.exists():
        starts = cast("list[dict[str, object]]", json.loads(record.read_text(encoding="utf-8"))["starts"])
        first = starts[0]
        facts["command"] = str(first["command"])
        if first["commit"]:
            facts["commit"] = str(first["commit"]) + (
                " with uncommitted changes" if first["uncommitted_changes"] else ""
            )
        facts["started"] = str(first["time"])
        facts["resumed"] = ", ".join(str(start["time"]) for start in starts[1:])
        versions = cast("dict[str, str]", first["versions"])
        facts["versions"] = ", ".join([f"python {first['python']}", *(f"{name} {v}" for name, v in versions.items())])
        facts["config"] = _config_name(facts["command"])
    config = run_folder / "config.yaml"
    if config.exists():
        facts["seed"] = str(OmegaConf.select(OmegaConf.load(config), "grpo.seed", default=""))
    return facts


def _config_name(command: str) -> str:
    found = re.search(r"--config[ =](\S+)", command)
    return Path(found[1].strip("'\"")).name if found else ""


def _cells(found: Mapping[str, Slice], parts: Sequence[str], accuracy: str = "{0:.1f} [{1:.1f}, {2:.1f}]") -> list[str]:
    """``accuracy`` is the format of mean, low and high in per cent."""
    of_parts = [found[part].accuracy if part in found else None for part in parts]
    cells = ["" if x is None else accuracy.format(100 * x.mean, 100 * x.low, 100 * x.high) for x in of_parts]
    whole = found[OVERALL]
    return [
        *cells,
        f"{whole.evidence_recall:.1%}",
        f"{whole.turns:.2f}",
        f"{whole.tokens:.0f}",
        f"{whole.tool_error_rate:.1%}",
        f"{whole.submitted_rate:.1%}",
    ]


def _points(gain: Interval) -> str:
    return (
        f"{100 * gain.mean:+.1f} points [{100 * gain.low:+.1f}, {100 * gain.high:+.1f}] "
        f"({gain.count} questions, {gain.clusters} entities)"
    )


def _title(part: str) -> str:
    if part == OVERALL:
        return "all"
    hops = part.removeprefix("hops")
    return f"{hops} hop" if hops == "1" else f"{hops} hops"


def _code(value: str) -> str:
    """As inline code that nothing in ``value`` can leave."""
    clean = _CONTROL.sub(" ", value)
    fence = "`" * (max((len(run) for run in re.findall("`+", clean)), default=0) + 1)
    pad = " " if "`" in clean else ""
    return f"{fence}{pad}{clean}{pad}{fence}"
