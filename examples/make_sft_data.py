"""Make SFT data: a teacher plays tasks with our tools, and a pipeline makes a data set of its episodes.

    uv run examples/make_sft_data.py --config examples/configs/sft_data_company.yaml --out runs/sft_data [key=value]

Writes OUT/train.jsonl and OUT/held_out.jsonl (OpenAI chat messages, one episode a line), and prints how many episodes
each stage took in and let through. The same command goes on from where a killed one was. See docs/sft.md.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from training.config_load import load_config
from training.console import say
from training.recipe import user_errors
from training.sft_data.make import make_sft_data
from training.sft_data.pipeline import table


@user_errors()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True, type=Path)
    parser.add_argument("--out", required=True, type=Path)
    args, overrides = parser.parse_known_args()
    counts = make_sft_data(load_config(args.config, overrides), args.out, say)
    say(f"{table(counts)}\ntrain: {args.out / 'train.jsonl'}  held out: {args.out / 'held_out.jsonl'}")


if __name__ == "__main__":
    main()
