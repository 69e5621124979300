"""One step of self-play: propose -> solve -> reward -> select -> update -> report.

The same weights play both roles. Proposers explore the corpus and hand in questions; every valid question becomes a
Solver group; Solvers are paid for right answers, Proposers for questions that Solvers answer sometimes; one update
moves both roles, each divided by its own tokens.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from environments.task import Task
from environments.trajectory import Trajectory
from rewards.breakdown import RewardBreakdown
from rewards.judge import Judge, RuleJudge
from rewards.llm_judge import EndpointJudge
from training.advantages import group_advantages
from training.balance import TokenBalance, age_metrics, ages, beyond_age
from training.config import Config
from training.consistency import check_claims
from training.engines.base import Engine, Weighted
from training.evidence import EvidenceDesk
from training.faults import FaultWatch
from training.game import Board, phase_sampling
from training.judging import judge_faults, judge_metrics, solver_pay
from training.loop_state import LoopState
from training.losses import role_weights
from training.mismatch import beyond_threshold, mismatch_metrics, sequence_errors
from training.proposals import Proposals, asked_tasks, hint_tasks, propose, read, send_on
from training.proposer_pay import pay_metrics, proposer_pay, sketch_of
from training.refill import Solved, older_tasks, refill, solver_tasks
from training.samples import Record, trajectory_record
from training.selection import out_of_group, select
from training.step_metrics import game_metrics, proposal_metrics, served_metrics


@dataclass
class StepReport:
    """``seconds`` by part of the step; ``samples`` are all rollouts with their rewards; ``trouble`` says in one line
    what the search index failed, empty where it did not."""

    metrics: dict[str, float] = field(default_factory=dict[str, float])
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    samples: list[Record] = field(default_factory=list[Record])
    trouble: str = ""


def train_step(
    engine: Engine, board: Board, judge: Judge, config: Config, step: int, state: LoopState | None = None
) -> StepReport:
    """All draws come from ``grpo.seed``, ``step`` and ``state``, so a resumed run repeats the unbroken one.

    ``state`` is what earlier steps left (None: nothing); this step's questions join it once nothing can fail any more.

    Raises FaultStop, with the weights as they were, where the index failed too many rollouts and ``env.on_faults`` says
    to stop.
    """
    report = StepReport()
    state = LoopState.load(config, {}) if state is None else state
    pool = state.pool
    faults = FaultWatch(config.env)
    clock = _Clock(report.seconds)
    rng = random.Random(f"{config.grpo.seed}/{step}")
    if config.selfplay.mode == "selfplay":
        desk = EvidenceDesk(board, config.tools)
        with clock("propose"):
            old = min(round(config.selfplay.pool_share * config.selfplay.max_solver_groups), len(pool))
            groups = config.selfplay.max_solver_groups - old
            proposals = propose(engine, board, config, step, rng, faults, desk)
        if isinstance(judge, EndpointJudge) and config.rewards.judge.proposals and not faults.lost:
            with clock("consistency"):
                proposals, counts = check_claims(proposals, judge, desk, config, faults)
                report.metrics |= counts
        if config.rewards.reader.enabled and not faults.lost:
            with clock("read"):
                proposals = read(engine, judge, config, step, proposals, desk)
        proposals = send_on(proposals, config, step, rng, groups, pool)
        asked = [] if faults.lost else asked_tasks(proposals, config, rng)
        older = [] if faults.lost else older_tasks(pool, old, asked, config, step, rng)
        tasks = solver_tasks([*asked, *older], config)
    else:
        proposals, asked, older = Proposals(), list[Task](), list[Task]()
        tasks = board.fixed_tasks(config, step, rng)
    with clock("solve"):
        solved = engine.rollout(tasks, phase_sampling(config, step, 1))
        faults.count(solved)
        if config.selfplay.refill_rounds:
            first = Solved(proposals, asked, older, solved)
            final = refill(engine, judge, config, step, first, pool, faults)
            proposals, asked, older, solved = final.proposals, final.asked, final.older, final.trajectories
            report.metrics |= final.metrics(first)
    hinted: list[Trajectory] = []
    if config.selfplay.hint_generations and asked:
        with clock("hint"):
            hinted = engine.rollout(hint_tasks(asked, config), phase_sampling(config, step, 3))
            faults.count(hinted)
    with clock("reward"):
        answer_pay = solver_pay(solved, judge, config.rewards.solver)
        faults.unjudged(judge_faults(answer_pay), answers=sum(t.submission is not None for t in solved))
        trajectories = [*proposals.trajectories, *solved]
        hint_pay = solver_pay(hinted, judge, config.rewards.solver)
        with_pay, hinted_pay = zip(solved, answer_pay, strict=True), zip(hinted, hint_pay, strict=True)
        proposers = proposer_pay(proposals, with_pay, hinted_pay, state.memory, config)
        pay = [*proposers, *answer_pay]
        advantages = _advantages(trajectories, pay, config)
    with clock("logprobs"):
        alive = [i for i, a in enumerate(advantages) if a != 0]
        recomputed = engine.logprobs([trajectories[i] for i in alive])
        errors = sequence_errors([trajectories[i] for i in alive], recomputed)
        flags = dict(zip(alive, beyond_threshold(errors, config.grpo.seq_logprob_error_threshold), strict=True))
    age = ages(trajectories, engine.policy_version)
    share = config.selfplay.max_token_share
    selection = select(
        trajectories, pay, advantages, config.grpo,
        logprob_error=[flags.get(i, False) for i in range(len(trajectories))],
        too_old=beyond_age(age, config.selfplay.max_age),
        balance=TokenBalance(share, random.Random(f"{config.grpo.seed}/{step}/balance")) if share else None,
    )  # fmt: skip
    with clock("update"):
        kept = () if faults.lost else selection.kept
        report.metrics |= _update(engine, trajectories, advantages, kept, config)
        engine.sync_weights()
    report.metrics |= selection.metrics | mismatch_metrics([trajectories[i] for i in alive], recomputed)
    report.metrics |= game_metrics(trajectories, pay) | judge_metrics(answer_pay)
    rules = RuleJudge(config.rewards.answers)  # what the facts say is no question for a model
    report.metrics |= proposal_metrics(proposals.trajectories, proposals.refusals, proposals.group_of, board, rules)
    report.metrics |= pay_metrics(proposals, proposers)
    report.metrics |= served_metrics([*asked, *older], board, rules)
    report.metrics |= {"pool/sorts": float(len(pool)), "pool/drawn": float(len(older))}
    report.metrics |= faults.metrics() | age_metrics(age)
    pool.add(asked, older)
    if config.rewards.proposer.diversity:
        state.memory.add(map(sketch_of, asked))
    report.trouble = faults.summary()
    trained = set(kept)
    report.samples = [
        trajectory_record(t, p, advantages[i] if i in trained else None)
        for i, (t, p) in enumerate(zip(trajectories, pay, strict=True))
    ]
    report.seconds["total"] = sum(report.seconds.values())
    return report


def _advantages(trajectories: Sequence[Trajectory], pay: Sequence[RewardBreakdown], config: Config) -> list[float]:
    return group_advantages(
        [p.total for p in pay],
        [t.group_id for t in trajectories],
        [out_of_group(t, p) for t, p in zip(trajectories, pay, strict=True)],
        config.grpo,
        roles=[t.role for t in trajectories],
    )


def _update(
    engine: Engine, trajectories: Sequence[Trajectory], advantages: Sequence[float], kept: Sequence[int], config: Config
) -> dict[str, float]:
    """Nothing to learn from is no error: the step is counted and the weights stay."""
    if not kept:
        return {"update/skipped": 1.0}
    chosen = [trajectories[i] for i in kept]
    weights = role_weights(
        [t.role for t in chosen], [t.sampled_tokens for t in chosen],
        config.selfplay.role_weights.model_dump(), config.loss_fn,
    )  # fmt: skip
    batch = [Weighted(t, advantages[i], w) for i, t, w in zip(kept, chosen, weights, strict=True)]
    metrics = engine.update(batch, config.loss_fn)
    return {f"update/{name}": value for name, value in metrics.items()} | {"update/skipped": 0.0}


class _Clock:
    """``with clock("solve"):`` adds the block's seconds under that name."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self._seconds = seconds

    def __call__(self, name: str) -> _Clock:
        self._name = name
        return self

    def __enter__(self) -> None:
        self._started = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self._seconds[self._name] = self._seconds.get(self._name, 0.0) + time.monotonic() - self._started
