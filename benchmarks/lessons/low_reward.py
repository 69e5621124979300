"""Self-play in which rollouts of low reward are left out of the update, to show what that costs: the code that trains
has no such switch. Called as examples/run_selfplay.py is.
"""

from __future__ import annotations

import runpy
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ParamSpec, cast

from rewards.breakdown import RewardBreakdown
from training import selfplay
from training.selection import Selection

_SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "run_selfplay.py"
P = ParamSpec("P")


def paid_only(select: Callable[P, Selection]) -> Callable[P, Selection]:
    """``training.selection.select``, and of what it keeps only the rollouts that were paid more than 0."""

    def selected(*args: P.args, **named: P.kwargs) -> Selection:
        selection = select(*args, **named)
        breakdowns = cast("Sequence[RewardBreakdown]", args[1])
        return replace(selection, kept=tuple(index for index in selection.kept if breakdowns[index].total > 0))

    return selected


if __name__ == "__main__":
    selfplay.select = paid_only(selfplay.select)
    runpy.run_path(str(_SCRIPT), run_name="__main__")
