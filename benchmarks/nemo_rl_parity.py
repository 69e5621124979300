"""The same self-play steps on both engines, with the small model on the CPU: are their numbers the same within noise?

    NEMO_RL_SOURCE=... PYTHONPATH=. python benchmarks/nemo_rl_parity.py --steps 20

The cluster engine runs NeMo-RL v0.7.0's unmodified rollouts, refit, log-probs and loss over ``tests/nemo_rl``'s worker
(``tests/nemo_rl/run.py`` makes an environment). Both train the same model from the same weights with the same recipe;
what they sample differs. A number is within noise where its means over the steps differ by less than two standard
errors of their difference; of twenty such numbers one may be outside by chance.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "nemo_rl"))

import conftest  # noqa: F401  # the paths and the typing that NeMo-RL needs
import ray
import torch
from tiny_game import Game, open_game

from training.engines.base import Engine
from training.loop_state import LoopState
from training.recipe import rule_judge
from training.selfplay import train_step

Lines = list[dict[str, float]]
BOTH = (
    "reward/proposer/total", "reward/solver/total", "proposals/valid_rate", "proposals/true_rate",
    "groups/proposer/kept", "groups/solver/kept", "episode/proposer/tokens", "episode/solver/tokens",
    "episode/proposer/turns", "episode/solver/turns", "episode/proposer/entropy", "episode/solver/entropy",
    "episode/proposer/tool_error_rate", "episode/solver/tool_error_rate", "episode/solver/submitted_rate",
    "update/loss", "update/grad_norm", "update/probs_ratio", "update/approx_entropy", "update/kl_penalty",
)  # fmt: skip
"""Numbers that depend on what was sampled."""
MISMATCH = tuple(
    f"{prefix}/{role}/{name}"
    for prefix in ("mismatch", "update")
    for role in ("proposer", "solver")
    for name in ("token_mult_prob_error", "gen_kl_error")
)
"""``mismatch``: ours; ``update``: NeMo-RL's own, of its loss, by role."""
SIZES = (
    "selfplay.proposer_prompts_per_step=2", "selfplay.max_solver_groups=3", "selfplay.hops={1: 0.3, 2: 0.7}",
    "grpo.max_rollout_turns=8", "env.limits.max_turns=8",
    "policy.optimizer.kwargs.lr=0.0003", "loss_fn.reference_policy_kl_penalty=0.01", "selfplay.pool_share=0.25",
)  # fmt: skip


def play(engine: Engine, game: Game, steps: int, label: str) -> Iterator[dict[str, float]]:
    state = LoopState.load(game.config, {})
    for step in range(1, steps + 1):
        report = train_step(engine, game.board, rule_judge(game.config), game.config, step, state)
        yield report.metrics
        shown = {name: round(report.metrics.get(name, float("nan")), 4) for name in (BOTH[1], BOTH[2], BOTH[15])}
        print(f"{label} step {step}: {shown} {report.seconds['total']:.1f} s", flush=True)


def stored(path: Path, make: Callable[[], Iterator[dict[str, float]]]) -> Lines:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8", buffering=1) as file:
            file.writelines(json.dumps(line) + "\n" for line in make())
    return [json.loads(line) for line in path.read_text().splitlines()]


def column(lines: Lines, name: str) -> list[float]:
    return [line[name] for line in lines if name in line]


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    if len(values) < 2:
        return (values[0] if values else float("nan")), float("nan")
    return statistics.mean(values), statistics.stdev(values) / len(values) ** 0.5


def table(runs: Mapping[str, Lines]) -> str:
    rows = [f"{'mean over the steps':38} {'local':>20} {'nemo_rl':>20} {'difference / its error':>24}"]
    for name in BOTH:
        (one, e1), (other, e2) = (mean_and_error(column(runs[label], name)) for label in ("local", "nemo_rl"))
        error = (e1**2 + e2**2) ** 0.5
        apart = (other - one) / error if error else 0.0
        rows.append(f"{name:38} {one:11.4f} ± {e1:6.4f} {other:11.4f} ± {e2:6.4f} {apart:24.2f}")
    for name in MISMATCH:
        cells = [f"{max(values):20.7f}" if (values := column(runs[label], name)) else " " * 19 + "-" for label in runs]
        rows.append(f"{name:38} {' '.join(cells)}   (worst step)")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--out", type=Path, help="folder for the steps' metrics; what lies there is not played again")
    args, overrides = parser.parse_known_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        out = args.out or Path(folder)
        game = open_game(Path(folder), *SIZES, *overrides)
        ray.init(num_cpus=2, include_dashboard=False, object_store_memory=200 * 2**20, log_to_driver=False)
        runs = {
            label: stored(out / f"{label}.jsonl", lambda make=make, label=label: play(make(), game, args.steps, label))
            for label, make in (("local", game.local), ("nemo_rl", game.nemo))
        }
        ray.shutdown()
    print(table(runs))


if __name__ == "__main__":
    main()
