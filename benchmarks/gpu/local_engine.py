"""The local engine on one GPU, in under eight minutes, with the repository's small model:

    uv run python benchmarks/gpu/local_engine.py            # on the GPU
    uv run python benchmarks/gpu/local_engine.py --dry-run  # the same steps at tiny sizes, on the CPU

In float32 and in bfloat16: tokens a second while sampling and while training, how far recorded log-probs are from those
recomputed for training, and the most memory that was held. Then the quick start, as far as the time goes, to its
learning curve. Prints a table and writes it, with the machine's name and versions, to OUT/local_engine.json.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from environments.trajectory import Trajectory
from evaluation.curve import read_series
from evaluation.report import ReportError, markdown_table, write_report
from training.config import Config
from training.config_load import load_config
from training.engines.base import Engine, Weighted
from training.game import Board
from training.mismatch import mismatch_metrics
from training.preflight import training_sampling
from training.recipe import company_index, company_of, make_players

RECIPE = Path("examples/configs/selfplay_quickstart.yaml")
SMALL = (
    "grpo.num_prompts_per_step=2", "grpo.num_generations_per_prompt=2", "selfplay.proposer_prompts_per_step=2",
    "selfplay.max_solver_groups=2", "selfplay.solver_generations=2", "sft.max_num_steps=2", "sft.companies=1",
    "grpo.max_num_steps=1", "grpo.max_val_samples=8", "evaluation.questions=8",
    "corpus.source=company:seed=11,projects=8",
    "evaluation.source='company:seed=7,projects=8,split=test'",
    "evaluation.validation_source='company:seed=7,projects=8,split=validation'",
)  # fmt: skip
PRECISIONS = ("float32", "bfloat16")


@dataclass(frozen=True)
class Measured:
    """Of one precision. Sampled tokens a second while sampling, trained ones while training; ``peak_mib``: the most
    memory that tensors held, None without CUDA; the mismatch is the Solver's (``training.mismatch``)."""

    precision: str
    rollouts: int
    sampled_per_second: float
    trained_per_second: float
    gen_kl_error: float
    token_mult_prob_error: float
    max_abs_diff: float
    peak_mib: float | None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/gpu"))
    parser.add_argument("--groups", type=int, default=64, help="of eight rollouts, that are measured")
    parser.add_argument("--seconds", type=float, default=400.0, help="for the quick start; it is stopped there")
    parser.add_argument("--dry-run", action="store_true", help="tiny sizes on the CPU")
    args, overrides = parser.parse_known_args()
    if not args.dry_run and not torch.cuda.is_available():
        parser.error("torch sees no CUDA device; --dry-run takes the same steps at tiny sizes on the CPU")
    device = "cpu" if args.dry_run else "cuda"
    sizes = SMALL if args.dry_run else (f"grpo.num_prompts_per_step={args.groups}", "engine.rollout_batch_size=512")
    shared = [f"engine.device={device}", "logger.wandb_enabled=false", *sizes, *overrides]
    measured = [measure(load_config(RECIPE, [*shared, f"policy.precision={name}"])) for name in PRECISIONS]
    print(table(measured))
    curve = quick_start(args.out, shared, args.seconds)
    args.out.mkdir(parents=True, exist_ok=True)
    record = {"machine": machine(device), "measured": [asdict(each) for each in measured], "quick_start": curve}
    (args.out / "local_engine.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(curve, indent=2))


def measure(config: Config) -> Measured:
    """Rollouts of a company's questions, once to warm up and once by the clock, then one update on them all."""
    index = company_index(config.corpus.source)
    board = Board(index, tuple(index.ids()), company_of(config.corpus.source))
    engine = make_players(config, index).engine
    on_gpu = config.engine.device == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    roll_out(engine, board, config, step=0)
    start = moment(on_gpu)
    trajectories = roll_out(engine, board, config, step=1)
    sampling = moment(on_gpu) - start
    recomputed = engine.logprobs(trajectories)
    batch = [Weighted(trajectory, (-1.0) ** k, 1.0) for k, trajectory in enumerate(trajectories)]
    engine.update(batch, config.loss_fn)
    start = moment(on_gpu)
    trained = engine.update(batch, config.loss_fn)["trained_tokens"]
    training = moment(on_gpu) - start
    mismatch = mismatch_metrics(trajectories, recomputed)
    return Measured(
        precision=config.policy.precision,
        rollouts=len(trajectories),
        sampled_per_second=sum(trajectory.sampled_tokens for trajectory in trajectories) / sampling,
        trained_per_second=trained / training,
        gen_kl_error=mismatch["mismatch/solver/gen_kl_error"],
        token_mult_prob_error=mismatch["mismatch/solver/token_mult_prob_error"],
        max_abs_diff=mismatch["mismatch/solver/max_abs_diff"],
        peak_mib=torch.cuda.max_memory_allocated() / 2**20 if on_gpu else None,
    )


def roll_out(engine: Engine, board: Board, config: Config, step: int) -> list[Trajectory]:
    tasks = board.fixed_tasks(config, step, random.Random(f"{config.grpo.seed}/{step}"))
    return list(engine.rollout(tasks, training_sampling(config, step)))


def moment(on_gpu: bool) -> float:
    """The clock, once everything that was launched has ended."""
    if on_gpu:
        torch.cuda.synchronize()
    return time.perf_counter()


def quick_start(out: Path, overrides: Sequence[str], seconds: float) -> dict[str, object]:
    """The whole recipe in a process of its own, so that it can be stopped; what it has logged by then is reported."""
    folder = out / "quickstart"
    names = [f"logger.log_dir={out}", f"logger.run_name={folder.name}"]
    command = [sys.executable, "examples/run_selfplay.py", "--config", str(RECIPE), "--fresh", *overrides, *names]
    start, whole = time.perf_counter(), True
    try:
        subprocess.run(command, check=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        whole = False
    series = read_series(folder / "metrics.jsonl").get("val/overall/accuracy")
    accuracy = [] if series is None else list(zip(series.steps.tolist(), series.values.tolist(), strict=True))
    try:
        report = str(write_report(folder))
    except ReportError as error:
        report = f"none: {error}"
    return {
        "whole": whole,
        "seconds": round(time.perf_counter() - start, 1),
        "validation_accuracy": [[step, round(value, 3)] for step, value in accuracy],
        "report": report,
    }


def machine(device: str) -> dict[str, str]:
    gpu = torch.cuda.get_device_name() if device == "cuda" else "none"
    return {"gpu": gpu, "torch": torch.__version__, "python": platform.python_version(), "system": platform.platform()}


def table(measured: Sequence[Measured]) -> str:
    header = ["precision", "rollouts", "sampled tok/s", "trained tok/s", "gen_kl_error", "mult_prob_error", "peak MiB"]
    rows = [
        [
            each.precision,
            str(each.rollouts),
            f"{each.sampled_per_second:,.0f}",
            f"{each.trained_per_second:,.0f}",
            f"{each.gen_kl_error:.2e}",
            f"{each.token_mult_prob_error:.4f}",
            "-" if each.peak_mib is None else f"{each.peak_mib:,.0f}",
        ]
        for each in measured
    ]
    return markdown_table(header, rows)


if __name__ == "__main__":
    main()
