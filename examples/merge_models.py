"""Merge models without training, tensor by tensor: a soup of siblings, or a chat vector.

    uv run examples/merge_models.py soup --members A B C --out FOLDER [--weights 0.5 0.3 0.2]
    uv run examples/merge_models.py soup --members A B C --out FOLDER --greedy RECIPE [key=value]
    uv run examples/merge_models.py chat-vector --model CPT --chat INSTRUCT --base BASE --out FOLDER [--scale 1.0]

All models are Hugging Face folders with safetensors. --greedy selects members by the recipe's validation questions, not
by its benchmark.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from evaluation.evaluator import validation
from training.config_load import load_config
from training.merging import chat_vector, greedy_soup, soup
from training.recipe import company_index, make_players, rule_judge, user_errors

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def validation_accuracy(recipe: Path, overrides: list[str], model: Path) -> float:
    config = load_config(recipe, [*overrides, f"policy.model_name={model}", "policy.init=pretrained"])
    players = make_players(config, company_index(config.evaluation.validation_source))
    accuracy = validation(players, rule_judge(config))().slices["overall"].accuracy.mean
    print(f"{model}: {accuracy:.4f}", flush=True)
    return accuracy


@user_errors()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(dest="kind", required=True)
    mixed = kinds.add_parser("soup")
    mixed.add_argument("--members", required=True, type=Path, nargs="+")
    mixed.add_argument("--weights", type=float, nargs="+", help="one a member, they sum to 1; default: all alike")
    mixed.add_argument("--greedy", type=Path, metavar="RECIPE", help="keep a member only if validation is not lower")
    moved = kinds.add_parser("chat-vector")
    moved.add_argument("--model", required=True, type=Path, help="the child of BASE that is to learn to chat")
    moved.add_argument("--chat", required=True, type=Path)
    moved.add_argument("--base", required=True, type=Path)
    moved.add_argument("--scale", type=float, default=1.0)
    for part in (mixed, moved):
        part.add_argument("--out", required=True, type=Path)
        part.add_argument("--dtype", choices=DTYPES, help="default: that of the first model")
    args, overrides = parser.parse_known_args()
    dtype = DTYPES[args.dtype] if args.dtype else None
    if overrides and (args.kind != "soup" or args.greedy is None):
        parser.error(f"unknown arguments: {' '.join(overrides)}")
    if args.kind == "chat-vector":
        skipped = chat_vector(args.model, args.chat, args.base, args.out, scale=args.scale, dtype=dtype)
        if skipped:
            print(f"the vocabularies differ, so these stay as they are in {args.model}: {', '.join(skipped)}")
    elif args.greedy is not None:
        if args.weights is not None:
            parser.error("--greedy weighs its members alike: leave --weights out")
        chosen = greedy_soup(
            args.members, args.out, lambda path: validation_accuracy(args.greedy, overrides, path), dtype=dtype
        )
        print(f"{chosen.score:.4f} with {', '.join(str(path) for path in chosen.members)}")
    else:
        soup(args.members, args.out, weights=args.weights, dtype=dtype)
    print(f"weights: {args.out}")


if __name__ == "__main__":
    main()
