"""Self-play in which rollouts of low reward are left out of the update, to show what that costs: the code that trains
has no such switch. Called as examples/run_selfplay.py is.
"""

from __future__ import annotations

import runpy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from environments.trajectory import Trajectory
from rewards.breakdown import RewardBreakdown
from training import selfplay
from training.config import GrpoConfig
from training.selection import Selection, select

_SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "run_selfplay.py"


def select_paid(
    trajectories: Sequence[Trajectory],
    breakdowns: Sequence[RewardBreakdown],
    advantages: Sequence[float],
    settings: GrpoConfig,
    *,
    logprob_error: Sequence[bool] | None = None,
) -> Selection:
    """``select``, and of what it keeps only the rollouts that were paid more than 0."""
    selection = select(trajectories, breakdowns, advantages, settings, logprob_error=logprob_error)
    return replace(selection, kept=tuple(index for index in selection.kept if breakdowns[index].total > 0))


if __name__ == "__main__":
    selfplay.select = select_paid
    runpy.run_path(str(_SCRIPT), run_name="__main__")
