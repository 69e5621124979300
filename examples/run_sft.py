"""The SFT stage alone: uv run examples/run_sft.py --config RECIPE --out FOLDER [key=value]

Imitates the scripted experts of both roles for ``sft.max_num_steps`` steps and writes a Hugging Face folder, which a
recipe then names as ``policy.model_name``.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from evaluation.evaluator import validation
from training.config_load import load_config
from training.loop import warm_start
from training.recipe import company_index, make_players, rule_judge, user_errors
from training.runlog import RunLog


@user_errors()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True, type=Path)
    parser.add_argument("--out", required=True, type=Path)
    args, overrides = parser.parse_known_args()
    config = load_config(args.config, overrides)
    with RunLog.of(config) as log:
        players = make_players(config, company_index(config.evaluation.validation_source))
        held_out = validation(players, rule_judge(config))
        warm_start(players, log)
        log.step(config.sft.max_num_steps, held_out().metrics("val"), phase="val")
        players.engine.save(args.out)
        log.say(f"weights: {args.out}")


if __name__ == "__main__":
    main()
