"""What the rollouts of a step leave, before any of it is paid."""

from __future__ import annotations

from dataclasses import dataclass, field

from environments.task import Task
from environments.trajectory import Trajectory
from training.proposals import Proposals


@dataclass(frozen=True, slots=True)
class Played:
    """``asked`` and ``older`` are one task a Solver group, of this step's questions and of the pool's; ``solved`` are
    their rollouts, ``hinted`` those of Solvers who were told the evidence. ``metrics`` are what came up on the way."""

    proposals: Proposals = field(default_factory=Proposals)
    asked: list[Task] = field(default_factory=list[Task])
    older: list[Task] = field(default_factory=list[Task])
    solved: list[Trajectory] = field(default_factory=list[Trajectory])
    hinted: list[Trajectory] = field(default_factory=list[Trajectory])
    metrics: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def trajectories(self) -> list[Trajectory]:
        """Those that may be trained on, the Proposers' first."""
        return [*self.proposals.trajectories, *self.solved]

    @property
    def served(self) -> list[Task]:
        """Every Solver group's question."""
        return [*self.asked, *self.older]
