"""Solver groups beyond a step's first choice: old questions, and further rounds while too few groups teach anything.

A group whose Solvers are all right or all wrong has no advantage in it. Dynamic sampling (DAPO, 2503.14476) draws
further prompts until the batch is full. Here the Solvers get further questions; the Proposers are left alone, because a
Proposer group's failures are what its successes are measured against.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from environments.task import Task
from rewards.judge import Judge
from training.advantages import count_groups
from training.config import Config
from training.engines.base import Engine
from training.faults import FaultWatch
from training.game import phase_sampling
from training.judging import solver_pay
from training.played import Played
from training.pool import QuestionPool, sort_of
from training.proposals import asked_tasks, send_on
from training.selection import out_of_group

FIRST_PHASE = 10  # of the refills' rollouts, for ``phase_sampling``


def refill(
    engine: Engine, judge: Judge, config: Config, step: int, first: Played, pool: QuestionPool, faults: FaultWatch
) -> Played:
    """Up to ``selfplay.refill_rounds`` further rounds after the ``first``: as many groups as lack, of this step's other
    valid questions, then of the pool. Ends sooner where no question is left or the step is lost. Its metrics say how
    many rounds it took, how many groups it brought, and how many with rewards that differ are ``lacking`` still."""
    play = config.selfplay
    rng = random.Random(f"{config.grpo.seed}/{step}/refill")
    now, rounds = first, 0
    lacking = _lacking(now, judge, config)
    while lacking and rounds < play.refill_rounds and not faults.lost:
        proposals = send_on(now.proposals, config, step, rng, lacking, pool)
        known = {task.group_id for task in now.asked}
        asked = [task for task in asked_tasks(proposals, config, rng) if task.group_id not in known]
        served = [*now.asked, *asked, *now.older]
        older = older_tasks(pool, lacking - len(asked), served, config, step, rng, start=len(now.older))
        if not (asked or older):
            break
        rounds += 1
        solved = engine.rollout(
            solver_tasks([*asked, *older], config), phase_sampling(config, step, FIRST_PHASE + rounds)
        )
        faults.count(solved)
        now = replace(
            now,
            proposals=proposals,
            asked=[*now.asked, *asked],
            older=[*now.older, *older],
            solved=[*now.solved, *solved],
        )
        lacking = _lacking(now, judge, config)
    metrics = {
        "refill/rounds": float(rounds),
        "refill/groups": float(len(now.served) - len(first.served)),
        "refill/lacking": float(lacking),
    }
    return replace(now, metrics=now.metrics | metrics)


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


def _lacking(played: Played, judge: Judge, config: Config) -> int:
    """Solver groups with rewards that differ, short of ``selfplay.max_solver_groups``."""
    pay = solver_pay(played.solved, judge, config.rewards.solver)
    counts = count_groups(
        [p.total for p in pay], [t.group_id for t in played.solved],
        [out_of_group(t, p) for t, p in zip(played.solved, pay, strict=True)],
    )  # fmt: skip
    contrast = counts.groups - counts.zero_variance - counts.all_masked - counts.singletons
    return max(config.selfplay.max_solver_groups - contrast, 0)
