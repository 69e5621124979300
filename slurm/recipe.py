"""What a job has to know of a recipe, from the arguments of the script that it will run: ENGINE NODES GPUS-A-NODE.

``--build-index`` opens the recipe's index instead, or builds it where there is none.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from training.config_load import ConfigError, load_config


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--config", required=True, type=Path)
    parser.add_argument("--build-index", action="store_true")
    for theirs in ("--out", "--label", "--restart"):  # their values are no overrides
        parser.add_argument(theirs)
    args, rest = parser.parse_known_args()
    try:
        config = load_config(args.config, [word for word in rest if not word.startswith("-")])
    except ConfigError as error:
        parser.error(str(error))
    if args.build_index:
        from training.recipe import open_board, user_errors  # loads torch, which takes a while

        with user_errors():
            open_board(config, print)
        return
    cluster, engine = config.cluster, config.engine.name
    print(engine, cluster.num_nodes if engine == "nemo_rl" else 1, cluster.gpus_per_node)


if __name__ == "__main__":
    main()
