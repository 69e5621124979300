"""Build a file of questions to train on, from the mails of a recipe's corpus:

    uv run examples/make_tasks.py --config RECIPE --generator templates|graph|agentic --count 400 --out tasks.jsonl

templates asks from a company's facts, graph along paths of the mail graph (put into words by data.generate.writer), and
agentic lets policy.model_name explore with the Proposer's tools. What passes the checks is kept; OUT.report.json says
what was not and why. The same command goes on from where a killed one was. See docs/tasks.md.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import get_args

from training.config_load import load_config
from training.console import say
from training.generators.build import build_questions
from training.generators.make import GeneratorName, make_generator, make_plan, make_sieve
from training.recipe import open_board, user_errors


@user_errors()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True, type=Path)
    parser.add_argument("--generator", required=True, choices=get_args(GeneratorName))
    parser.add_argument("--count", required=True, type=int, help="questions to keep")
    parser.add_argument("--out", required=True, type=Path)
    args, overrides = parser.parse_known_args()
    if args.count < 1:
        parser.error(f"--count is {args.count}; expected at least 1")
    # A recipe may name the file that is to be built here.
    config = load_config(args.config, [*overrides, "data.train.data_path=null"])
    board = open_board(config, say)
    plan = make_plan(args.generator, config, board, args.count)
    generator = make_generator(args.generator, config, board, say)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    report = build_questions(generator, make_sieve(config, board), plan, args.out, say)
    say(f"{report.render()}\nquestions: {args.out}")


if __name__ == "__main__":
    main()
