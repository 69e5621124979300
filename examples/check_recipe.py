"""What a recipe comes to, before a cluster is held for it:

    uv run examples/check_recipe.py --config examples/configs/NAME.yaml [--gpu-gib 80] [--write FILE] [key=value]

Resolves and validates it, and for NeMo-RL prints GPUs, batch arithmetic, memory by formula and sampling, and refuses
what is known to break. ``--write`` saves the config that NeMo-RL takes as YAML. docs/recipes.md explains the numbers.
Exit code 0: nothing stands against it; 1: it would break; 2: it is no valid recipe.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console

from training.config_load import load_config
from training.recipe import user_errors
from training.recipe_check import check
from training.recipe_tables import render


@user_errors()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True, type=Path)
    parser.add_argument("--gpu-gib", type=float, default=80.0, help="memory of one GPU (default: 80, an H100)")
    parser.add_argument("--write", type=Path, help="where the config that NeMo-RL takes is saved")
    args, overrides = parser.parse_known_args()
    found = check(args.config.stem, load_config(args.config, overrides), int(args.gpu_gib * 2**30))
    Console().print(render(found))
    if args.write is not None:
        found.write(args.write)
    sys.exit(1 if found.refusals else 0)


if __name__ == "__main__":
    main()
