"""Measure a model on the fixed benchmark: uv run examples/run_eval.py --config RECIPE [policy.model_name=FOLDER] [...]

The result is stored in the run folder as eval/step_000000.json; `python -m evaluation compare RUN RUN` puts runs side
by side.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

from evaluation.evaluator import benchmark
from evaluation.report import comparison_table
from evaluation.runner import store_result
from training.config_load import load_config
from training.recipe import company_index, make_players, rule_judge, run_folder, user_errors


@user_errors()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True, type=Path)
    parser.add_argument("--label", help="the row's name; default: policy.model_name")
    args, overrides = parser.parse_known_args()
    config = load_config(args.config, overrides)
    players = make_players(config, company_index(config.evaluation.source))
    result = benchmark(players, rule_judge(config))()
    label = args.label or config.policy.model_name
    path = store_result(run_folder(config), result, step=0, label=label)
    Console().print(comparison_table({label: result})[0])
    Console().print(f"rows: {path}")


if __name__ == "__main__":
    main()
