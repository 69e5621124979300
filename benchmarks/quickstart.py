"""The quick start over several seeds, next to its control, as one table: uv run benchmarks/quickstart.py --seeds 1 2 3

Runs that are there already (``runs/<recipe>-<seed>``) are read, the others are run first. A row is one run: benchmark
accuracy before and after by hops, and, for self-play, the share of accepted questions that are truly right and truly
have the hops asked for by the company's own facts, over the last third of the steps.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from evaluation.report import markdown_table, stored_results
from evaluation.runner import EvalResult, accuracy_gain

RECIPES = ("selfplay_quickstart", "grpo_quickstart")
HEADER = ("run", "1 hop", "2 hops", "3 hops", "gain at 2 hops", "true questions", "true hops")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    args, overrides = parser.parse_known_args()
    rows = [
        row(args.runs, recipe, seed, overrides)
        for recipe in RECIPES
        for seed in args.seeds
    ]  # fmt: skip
    print(markdown_table(HEADER, rows), end="")


def row(runs: Path, recipe: str, seed: int, overrides: list[str]) -> list[str]:
    folder = played(runs / f"{recipe}-{seed}", Path("examples/configs") / f"{recipe}.yaml", seed, overrides)
    results = [result for _, _, result in stored_results(folder)]
    before, after = results[-2], results[-1]
    cells = [f"{recipe.removesuffix('_quickstart')}, seed {seed}"]
    cells += [f"{accuracy(before, hops)} → {accuracy(after, hops)}" for hops in (1, 2, 3)]
    gain = accuracy_gain(before, after, "hops2")
    cells.append(f"{100 * gain.mean:+.1f} [{100 * gain.low:+.1f}, {100 * gain.high:+.1f}]")
    cells += [late_mean(folder, name) for name in ("proposals/true_rate", "proposals/true_hops_rate")]
    return cells


def played(folder: Path, recipe: Path, seed: int, overrides: list[str]) -> Path:
    """``folder``, with the recipe's run in it: played now unless it is there."""
    if not (folder / "report.md").exists():
        command = [sys.executable, "examples/run_selfplay.py", "--config", str(recipe)]
        names = [f"grpo.seed={seed}", f"logger.log_dir={folder.parent}", f"logger.run_name={folder.name}"]
        subprocess.run([*command, *names, *overrides], check=True)
    return folder


def accuracy(result: EvalResult, hops: int) -> str:
    found = result.slices[f"hops{hops}"].accuracy
    return f"{100 * found.mean:.1f} [{100 * found.low:.0f}, {100 * found.high:.0f}]"


def late_mean(folder: Path, name: str) -> str:
    lines = map(json.loads, (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    values = [line["metrics"][name] for line in lines if line["phase"] == "train" and name in line["metrics"]]
    late = values[-max(len(values) // 3, 1) :]
    return f"{sum(late) / len(late):.2f}" if late else ""


if __name__ == "__main__":
    main()
