"""What self-play and its guards are worth, against built data: uv run benchmarks/headline/run.py --seeds 1 2 3

For every seed, from the same SFT start and with the same rollouts: GRPO on template questions and on questions along
paths of the mail graph, self-play as one would first write it (``naive.yaml``), and the quick start, which has every
guard that needs no further rollouts. Runs that are in ``--runs`` are read, the others are played first. Held-out
accuracy is the benchmark's; the other columns are means over the last third of the steps.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from quickstart import accuracy, late_mean, played

from evaluation.report import markdown_table, stored_results

HERE = Path("benchmarks/headline")
CONFIGS = Path("examples/configs")
ROWS = {
    "built data, templates": CONFIGS / "grpo_quickstart.yaml",
    "built data, mail graph": HERE / "graph.yaml",
    "self-play, naive": HERE / "naive.yaml",
    "self-play, full": CONFIGS / "selfplay_quickstart.yaml",
}
MEANS = {
    "valid": "proposals/valid_rate",
    "true": "proposals/true_rate",
    "true hops": "proposals/true_hops_rate",
    "different": "proposals/distinct_rate",
}
HEADER = ("run", "1 hop", "2 hops", "3 hops", *MEANS)
GRAPH_QUESTIONS = 400


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--runs", type=Path, default=Path("runs/headline"))
    parser.add_argument("--only", nargs="+", choices=ROWS, default=list(ROWS), help="rows to show")
    args, overrides = parser.parse_known_args()
    rows: list[list[str]] = []
    for seed in args.seeds:
        for k, name in enumerate(args.only):
            recipe: Path = ROWS[name]
            extra = [f"data.train.data_path={graph_questions(args.runs)}"] if recipe == HERE / "graph.yaml" else []
            folder = played(args.runs / f"{recipe.stem}-{seed}", recipe, seed, [*extra, *overrides])
            before, after = [result for _, _, result in stored_results(folder)][-2:]
            if not k:  # the same weights for every row of a seed
                rows.append([f"SFT only, seed {seed}", *(accuracy(before, hops) for hops in (1, 2, 3)), *[""] * 4])
            means = [late_mean(folder, metric) for metric in MEANS.values()]
            rows.append([f"{name}, seed {seed}", *(accuracy(after, hops) for hops in (1, 2, 3)), *means])
    print(markdown_table(HEADER, rows), end="")


def graph_questions(runs: Path) -> Path:
    """The built questions that all seeds train on."""
    out = runs / "graph.jsonl"
    if not out.exists():
        given = ["--config", str(HERE / "graph.yaml"), "--generator", "graph", "--count", str(GRAPH_QUESTIONS)]
        subprocess.run([sys.executable, "examples/make_tasks.py", *given, "--out", str(out)], check=True)
    return out


if __name__ == "__main__":
    main()
