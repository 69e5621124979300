"""GRPO of the Solver on built questions:

    uv run examples/run_grpo.py --config examples/configs/grpo_tasks.yaml data.train.data_path=tasks.jsonl [key=value]

The questions are a file that examples/make_tasks.py writes (docs/tasks.md). The same command resumes a run that was
killed. ``--fresh`` deletes the run folder first.
"""

from __future__ import annotations

from evaluation.experiment import experiment_command
from training.recipe import user_errors


@user_errors()
def main() -> None:
    experiment_command(__doc__, "selfplay.mode=fixed")


if __name__ == "__main__":
    main()
