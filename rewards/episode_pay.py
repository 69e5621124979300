"""A Solver's pay from the state of its episode alone, for loops in which the environment pays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from environments.episode import EpisodeState
from environments.recorder import Recorder
from rewards.answers import MatchSettings
from rewards.judge import RuleJudge
from rewards.solver import SolverReward, solver_reward


class SolverEpisodePay:
    """``rewards.solver`` by the rule judge. ``solver`` and ``answers`` are those sections of ``rewards``.

    Raises ValidationError, and ValueError for pay without an answer: NeMo-RL gives 0 to a rollout that its context cut.
    """

    def __init__(self, *, solver: Mapping[str, Any] | None = None, answers: Mapping[str, Any] | None = None) -> None:
        self._settings = SolverReward.model_validate(solver or {})
        self._judge = RuleJudge(MatchSettings.model_validate(answers or {}))
        if self._settings.none:
            raise ValueError(
                f"rewards.solver.none is {self._settings.none}, and a rollout that the context cut is always paid 0 "
                "here: set it to 0, and shift wrong and right by as much"
            )

    def __call__(self, state: EpisodeState) -> float | None:
        """None where the rollout must be left out."""
        trajectory = Recorder(()).trajectory(uid=state.task.group_id, state=state, policy_version=0)
        pay = solver_reward(trajectory, self._judge, self._settings)
        return None if pay.masked else pay.total
