"""Self-play, from a recipe to a table: uv run examples/run_selfplay.py --config examples/configs/NAME.yaml [key=value]

The same command resumes a run that was killed or paused. ``--fresh`` deletes the run folder first. ``--restart`` starts
again from other weights and keeps the questions gathered; give it once, then resume without it.
"""

from __future__ import annotations

from evaluation.experiment import experiment_command
from training.recipe import user_errors


@user_errors()
def main() -> None:
    experiment_command(__doc__)


if __name__ == "__main__":
    main()
