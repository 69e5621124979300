"""The SFT stage alone: uv run examples/run_sft.py --config RECIPE --out FOLDER [key=value]

Trains what ``sft.recipe`` asks for (docs/sft.md) and writes a Hugging Face folder, which a recipe then names as
``policy.model_name``. The same command goes on from a dual-prompt stage that was killed. With engine.name nemo_rl the
stage's data go to NeMo-RL's own SFT; --out is then left to the conversion of its checkpoints.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from evaluation.evaluator import validation
from training.config import Config
from training.config_load import load_config
from training.recipe import company_index, make_players, open_board, rule_judge, user_errors
from training.runlog import RunLog
from training.sft.stage import sft_checkpoints, sft_stage


def train_on_cluster(config: Config, log: RunLog) -> None:
    from training.engines.nemo_rl.sft import cluster_sft  # on other machines there is no NeMo-RL to import

    log.say(f"checkpoints of NeMo-RL: {cluster_sft(config, log)}")


@user_errors()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True, type=Path)
    parser.add_argument("--out", required=True, type=Path)
    args, overrides = parser.parse_known_args()
    config = load_config(args.config, overrides)
    with RunLog.of(config) as log:
        on_cluster = config.engine.name == "nemo_rl"
        if on_cluster and config.sft.recipe == "dual_prompt":
            train_on_cluster(config, log)
            return
        # The scripted experts bring their own companies; rows of a file were played on the recipe's corpus.
        if config.sft.agentic.data_path or on_cluster:
            index = open_board(config, log.say).index
        else:
            index = company_index(config.evaluation.validation_source)
        players = make_players(config, index)
        log.mirror = players.mirror
        sft_stage(players, log, index, sft_checkpoints(config, log.folder))
        if config.grpo.val_at_end:
            held_out = validation(players, rule_judge(config))
            log.step(config.sft.max_num_steps, held_out().metrics("val"), phase="val")
        players.engine.save(args.out)
        log.say(f"weights: {args.out}")


if __name__ == "__main__":
    main()
