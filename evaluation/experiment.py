"""A whole experiment, from a resolved recipe to its report: what ``run_selfplay`` and ``run_grpo`` share."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from rich.console import Console

from evaluation.evaluator import benchmark, validation
from evaluation.report import comparison_table, stored_results, write_report
from evaluation.runner import store_result
from training.config import Config
from training.config_load import load_config
from training.loop import checkpoints, run
from training.recipe import make_judge, make_players, open_board, rule_judge, run_folder
from training.restart import prepare_restart
from training.runlog import EVAL, RunLog


def experiment_command(description: str | None, *preset: str) -> None:
    """``--config RECIPE [--fresh] [--restart base|sft|RUN] [key=value ...]``; ``preset`` overrides the recipe and gives
    way to the user's."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True, type=Path)
    parser.add_argument("--fresh", action="store_true", help="delete the run folder and start over")
    parser.add_argument("--restart", metavar="base|sft|RUN", help="weights to start again from: see docs/stability.md")
    args, overrides = parser.parse_known_args()
    config = load_config(args.config, [*preset, *overrides])
    if args.fresh:
        shutil.rmtree(run_folder(config), ignore_errors=True)
    if args.restart:
        prepare_restart(run_folder(config), checkpoints(config, run_folder(config)), args.restart)
    run_experiment(config)


def run_experiment(config: Config) -> None:
    """Train, measuring the benchmark before and after, and write the report; resumes a run folder that is there."""
    folder = run_folder(config)
    with RunLog.of(config) as log:
        board = open_board(config, log.say)
        players = make_players(config, board.index)
        log.mirror = players.mirror
        judge, rules = make_judge(config), rule_judge(config)
        fixed = benchmark(players, rules) if config.evaluation.questions else None
        validates = config.grpo.val_period or config.grpo.val_at_start or config.grpo.val_at_end
        held_out = validation(players, rules) if validates else None

        def measure(step: int, label: str) -> None:
            if fixed is None:
                return
            result = fixed()
            store_result(folder, result, step=step, label=label)
            log.write_metrics(step, result.metrics("eval"), phase=EVAL)

        run(
            players,
            board,
            judge,
            log,
            validate=lambda: held_out().metrics("val") if held_out else {},
            benchmark=measure,
        )
        report = write_report(folder)
    results = {label: result for _, label, result in stored_results(folder)}
    if results:
        Console().print(comparison_table(results)[0])
    Console().print(f"report: {report}\ncurve:  {folder / 'curve.png'}\nrun:    {folder}")
