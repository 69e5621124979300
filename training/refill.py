"""Solver groups beyond a step's first choice: old questions, and further rounds while too few groups teach anything.

A group whose Solvers are all right or all wrong has no advantage in it. Dynamic sampling (DAPO, 2503.14476) draws
further prompts until the batch is full. Here the Solvers get further questions; the Proposers are left alone, because a
Proposer group's failures are what its successes are measured against.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from environments.task import Task
from environments.trajectory import Trajectory
from rewards.judge import Judge
from training.advantages import count_groups
from training.config import Config
from training.engines.base import Engine
from training.faults import FaultWatch
from training.game import phase_sampling
from training.judging import solver_pay
from training.pool import QuestionPool, sort_of
from training.proposals import Proposals, asked_tasks, send_on
from training.selection import out_of_group

FIRST_PHASE = 10  # of the refills' rollouts, for ``phase_sampling``


@dataclass(frozen=True, slots=True)
class Solved:
    """``asked`` and ``older`` are one task a Solver group, of this step's questions and of the pool's; ``trajectories``
    are their rollouts. ``rounds`` of refilling it took, and ``lacking`` groups with rewards that differ are still not
    there."""

    proposals: Proposals
    asked: list[Task]
    older: list[Task]
    trajectories: list[Trajectory]
    rounds: int = 0
    lacking: int = 0

    def metrics(self, first: Solved) -> dict[str, float]:
        """Beside the ``first`` round's groups."""
        more = len(self.asked) + len(self.older) - len(first.asked) - len(first.older)
        return {
            "refill/rounds": float(self.rounds),
            "refill/groups": float(more),
            "refill/lacking": float(self.lacking),
        }


def refill(
    engine: Engine, judge: Judge, config: Config, step: int, first: Solved, pool: QuestionPool, faults: FaultWatch
) -> Solved:
    """Up to ``selfplay.refill_rounds`` further rounds after the ``first``: as many groups as lack, of this step's other
    valid questions, then of the pool. Ends sooner where no question is left or the step is lost."""
    play = config.selfplay
    rng = random.Random(f"{config.grpo.seed}/{step}/refill")
    now = first
    for number in range(1, play.refill_rounds + 1):
        lacking = play.max_solver_groups - _with_contrast(now.trajectories, judge, config)
        if lacking <= 0 or faults.lost:
            break
        proposals = send_on(now.proposals, config, step, rng, lacking, pool)
        known = {task.group_id for task in now.asked}
        asked = [task for task in asked_tasks(proposals, config, rng) if task.group_id not in known]
        served = [*now.asked, *asked, *now.older]
        older = older_tasks(pool, lacking - len(asked), served, config, step, rng, start=len(now.older))
        if not (asked or older):
            break
        played = engine.rollout(
            solver_tasks([*asked, *older], config), phase_sampling(config, step, FIRST_PHASE + number)
        )
        faults.count(played)
        now = Solved(proposals, [*now.asked, *asked], [*now.older, *older], [*now.trajectories, *played], rounds=number)
    return replace(now, lacking=max(play.max_solver_groups - _with_contrast(now.trajectories, judge, config), 0))


def solver_tasks(questions: Sequence[Task], config: Config) -> list[Task]:
    """Each question's group."""
    return [task for task in questions for _ in range(config.selfplay.solver_generations)]


def older_tasks(
    pool: QuestionPool,
    count: int,
    served: Sequence[Task],
    config: Config,
    step: int,
    rng: random.Random,
    *,
    start: int = 0,
) -> list[Task]:
    """Tasks of earlier steps, at most ``count``, of the sorts that what is ``served`` in this step lacks."""
    play = config.selfplay
    drawn = pool.draw(count, play.hops, map(sort_of, served), rng)
    return [
        replace(task, group_id=f"{step}/r{start + k}", tool_variant=rng.randrange(play.tool_variants))
        for k, task in enumerate(drawn)
    ]


def _with_contrast(solved: Sequence[Trajectory], judge: Judge, config: Config) -> int:
    """Solver groups in which rewards differ."""
    pay = solver_pay(solved, judge, config.rewards.solver)
    counts = count_groups(
        [p.total for p in pay], [t.group_id for t in solved],
        [out_of_group(t, p) for t, p in zip(solved, pay, strict=True)],
    )  # fmt: skip
    return counts.groups - counts.zero_variance - counts.all_masked - counts.singletons
