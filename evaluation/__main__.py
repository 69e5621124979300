"""``python -m evaluation report RUN``: write its report. ``python -m evaluation compare RUN RUN ...``: one table."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from evaluation.report import ReportError, comparison_table, stored_results, write_report
from evaluation.runner import EvalResult


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m evaluation", description="Reports over finished runs.")
    commands = parser.add_subparsers(dest="command", required=True)
    report = commands.add_parser("report", help="write report.md, summary.json and curve.png into a run folder")
    report.add_argument("run", type=Path)
    compare = commands.add_parser("compare", help="one table over the last benchmark result of several runs")
    compare.add_argument("runs", type=Path, nargs="+")
    compare.add_argument("--markdown", action="store_true", help="print markdown instead of a terminal table")
    parsed = parser.parse_args(arguments)
    try:
        if parsed.command == "report":
            print(write_report(parsed.run))
            return 0
        table, markdown = comparison_table(_last_results(parsed.runs))
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if parsed.markdown:
        print(markdown, end="")
    else:
        Console().print(table)
    return 0


def _last_results(runs: Sequence[Path]) -> dict[str, EvalResult]:
    results: dict[str, EvalResult] = {}
    for run in runs:
        stored = stored_results(run)
        if not stored:
            raise ReportError(f"{run} has no eval/step_*.json; was the benchmark run?")
        results[str(run) if run.name in results else run.name] = stored[-1][2]
    return results


if __name__ == "__main__":
    raise SystemExit(main())
