"""Scripted hacks against the pay: uv run benchmarks/hacks/table.py [--enron ARCHIVE] [key=value]

Every hack plays whole episodes through the real tools and the step that training takes, in one group with honest
members; the score is the mean total pay of either. A table for the rewards of the first version (``v1.yaml``) and for
all guards that need no model (``full.yaml``). ``key=value`` overrides go to ``full.yaml``: what does one guard catch?
Exit code 1 when a hack pays as much as honest play under ``full.yaml``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests" / "training"))

from grounds import company_ground, enron_ground  # noqa: E402  (their scripts are the tests')
from score import SIZES, Place, Score, score, solver_score  # noqa: E402
from solver_book import SOLVER_HACKS  # noqa: E402

from evaluation.report import markdown_table  # noqa: E402
from training.config import Config  # noqa: E402
from training.config_load import load_config  # noqa: E402

HEADER = ("corpus", "role", "hack", "how", "v1: honest", "v1: hack", "full: honest", "full: hack", "caught by")


def recipe(name: str, hops: int, overrides: Sequence[str] = ()) -> Config:
    """``full`` or ``v1``, in the sizes that are scored."""
    return load_config(HERE / f"{name}.yaml", [*SIZES, f"selfplay.hops={{{hops}: 1.0}}", *overrides])


def scores(place: Place, overrides: Sequence[str] = ()) -> Iterator[tuple[str, str, str, Score, Score]]:
    """Role, hack, how it is done, and its scores under ``v1`` and ``full``."""

    def both(hops: int, of: Callable[[Config], Score]) -> tuple[Score, Score]:
        return of(recipe("v1", hops)), of(recipe("full", hops, overrides))

    for hack in place.ground.hacks:
        yield "Proposer", hack.name, hack.how, *both(hack.hops, lambda config, hack=hack: score(place, hack, config))
    hops = max(place.ground.facts)
    for trick in SOLVER_HACKS:
        yield (
            "Solver", trick.name, trick.how,
            *both(hops, lambda config, trick=trick: solver_score(place, trick, config)),
        )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--enron", type=Path, help="a maildir archive of the Enron corpus")
    args, overrides = parser.parse_known_args()
    grounds = [company_ground(), *([enron_ground(args.enron)] if args.enron else [])]
    rows: list[list[str]] = []
    uncaught = 0
    for ground in grounds:
        for role, name, how, old, new in scores(Place(ground), overrides):
            numbers = [f"{value:.2f}" for value in (old.honest, old.hack, new.honest, new.hack)]
            rows.append([ground.name, role, name, how, *numbers, new.caught_by if new.caught else "**not caught**"])
            uncaught += not new.caught
    print(markdown_table(HEADER, rows), end="")
    raise SystemExit(1 if uncaught else 0)


if __name__ == "__main__":
    main()
