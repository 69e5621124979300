"""One step of self-play: propose -> solve -> reward -> select -> update -> report.

The same weights play both roles. Proposers explore the corpus and hand in questions; every valid question becomes a
Solver group; Solvers are paid for right answers, Proposers for questions that Solvers answer sometimes; one update
moves both roles, each divided by its own tokens.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from environments.trajectory import Trajectory
from rewards.breakdown import RewardBreakdown
from rewards.judge import Judge, RuleJudge
from training.advantages import group_advantages
from training.ahead import RolloutsAhead
from training.balance import TokenBalance, age_metrics, ages, beyond_age
from training.config import Config
from training.engines.base import Engine, Weighted
from training.faults import FaultWatch
from training.game import Board
from training.judging import judge_faults, judge_metrics, solver_pay, success_rates
from training.loop_state import LoopState
from training.losses import role_weights
from training.mismatch import beyond_threshold, mismatch_metrics, sequence_errors
from training.play import Clock, StepPlay
from training.played import Played
from training.proposer_pay import pay_metrics, proposer_pay, sketch_of
from training.samples import Record, trajectory_record
from training.selection import Selection, out_of_group, select
from training.step_metrics import game_metrics, proposal_metrics, served_metrics


@dataclass
class StepReport:
    """``seconds`` by part of the step; ``samples`` are all rollouts with their rewards; ``trouble`` says in one line
    what the search index failed and whether the selection left too little, empty where all is well."""

    metrics: dict[str, float] = field(default_factory=dict[str, float])
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    samples: list[Record] = field(default_factory=list[Record])
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Pay:
    """Of a step's Proposers and Solvers, each aligned to its trajectories; ``all`` to ``Played.trajectories``."""

    proposers: list[RewardBreakdown]
    solvers: list[RewardBreakdown]

    @property
    def all(self) -> list[RewardBreakdown]:
        return [*self.proposers, *self.solvers]


def train_step(
    engine: Engine,
    board: Board,
    judge: Judge,
    config: Config,
    step: int,
    state: LoopState | None = None,
    ahead: RolloutsAhead | None = None,
) -> StepReport:
    """All draws come from ``grpo.seed``, ``step`` and ``state``, so a resumed run repeats the unbroken one.

    ``state`` is what earlier steps left (None: nothing); this step's questions join it once nothing can fail any more.
    ``ahead`` has played the step already, or is about to; None: it is played here.

    Raises FaultStop, with the weights as they were, where the index failed too many rollouts and ``env.on_faults`` says
    to stop.
    """
    state = LoopState.load(config, {}) if state is None else state
    faults, clock = FaultWatch(config.env), Clock()
    if ahead is None:
        played = StepPlay(engine, board, judge, config, step, state.pool, faults, clock).play()
    else:
        with clock("wait"):
            done = ahead.take(step, config, state.pool)
        played, faults = done.played, done.faults
        clock.beside("ahead", done.clock)
    with clock("reward"):
        pay = _pay(played, judge, config, state, faults)
        advantages = _advantages(played.trajectories, pay.all, config)
    selection, learned = _learn(engine, played, pay, advantages, config, step, faults, clock)
    rules = RuleJudge(config.rewards.answers)  # what the facts say is no question for a model
    proposals = played.proposals
    metrics = (
        played.metrics
        | learned
        | game_metrics(played.trajectories, pay.all)
        | judge_metrics(pay.solvers)
        | proposal_metrics(proposals.trajectories, proposals.refusals, proposals.group_of, board, rules)
        | pay_metrics(proposals, pay.proposers)
        | served_metrics(played.served, board, rules)
        | {"pool/sorts": float(len(state.pool)), "pool/drawn": float(len(played.older))}
        | faults.metrics()
    )
    state.pool.add(played.asked, played.older, success_rates(played.solved, pay.solvers))
    if config.rewards.proposer.diversity:
        state.memory.add(map(sketch_of, played.asked))
    kept = set(selection.kept)
    samples = [
        trajectory_record(t, p, advantages[i] if i in kept else None)
        for i, (t, p) in enumerate(zip(played.trajectories, pay.all, strict=True))
    ]
    seconds = clock.seconds | {"total": sum(clock.seconds.values())} | clock.aside
    return StepReport(metrics, seconds, samples, "; ".join(filter(None, (faults.summary(), selection.trouble))))


def _pay(played: Played, judge: Judge, config: Config, state: LoopState, faults: FaultWatch) -> Pay:
    """Solvers first: how they fared is what the Proposers are paid for."""
    solvers = solver_pay(played.solved, judge, config.rewards.solver)
    faults.unjudged(judge_faults(solvers), answers=sum(t.submission is not None for t in played.solved))
    hinted = solver_pay(played.hinted, judge, config.rewards.solver)
    solved = zip(played.solved, solvers, strict=True)
    told = zip(played.hinted, hinted, strict=True)
    return Pay(proposer_pay(played.proposals, solved, told, state.memory, config), solvers)


def _advantages(trajectories: Sequence[Trajectory], pay: Sequence[RewardBreakdown], config: Config) -> list[float]:
    return group_advantages(
        [p.total for p in pay],
        [t.group_id for t in trajectories],
        [out_of_group(t, p) for t, p in zip(trajectories, pay, strict=True)],
        config.grpo,
        roles=[t.role for t in trajectories],
    )


def _learn(
    engine: Engine,
    played: Played,
    pay: Pay,
    advantages: Sequence[float],
    config: Config,
    step: int,
    faults: FaultWatch,
    clock: Clock,
) -> tuple[Selection, dict[str, float]]:
    """Select and update. Returns what was trained on, nothing of it where the step is lost to faults, and metrics."""
    trajectories = played.trajectories
    with clock("logprobs"):
        alive = [i for i, a in enumerate(advantages) if a != 0]
        recomputed = engine.logprobs([trajectories[i] for i in alive])
        errors = sequence_errors([trajectories[i] for i in alive], recomputed)
        flags = dict(zip(alive, beyond_threshold(errors, config.grpo.seq_logprob_error_threshold), strict=True))
    age = ages(trajectories, engine.policy_version)
    share = config.selfplay.max_token_share
    selection = select(
        trajectories, pay.all, advantages, config.grpo,
        logprob_error=[flags.get(i, False) for i in range(len(trajectories))],
        too_old=beyond_age(age, config.selfplay.max_age),
        balance=TokenBalance(share, random.Random(f"{config.grpo.seed}/{step}/balance")) if share else None,
    )  # fmt: skip
    with clock("update"):
        if faults.lost:
            selection = replace(selection, kept=())
        previous = dict(zip(alive, recomputed, strict=True))
        batch = [Weighted(trajectories[i], advantages[i], previous=previous.get(i)) for i in selection.kept]
        metrics = _update(engine, batch, config)
        engine.sync_weights()
    metrics |= selection.metrics | mismatch_metrics([trajectories[i] for i in alive], recomputed) | age_metrics(age)
    return selection, metrics


def _update(engine: Engine, batch: Sequence[Weighted], config: Config) -> dict[str, float]:
    """With each role's weight. Nothing to learn from is no error: the step is counted and the weights stay."""
    if not batch:
        return {"update/skipped": 1.0}
    weights = role_weights(
        [each.trajectory.role for each in batch], [each.trajectory.sampled_tokens for each in batch],
        config.selfplay.role_weights.model_dump(), config.loss_fn,
    )  # fmt: skip
    batch = [replace(each, weight=weight) for each, weight in zip(batch, weights, strict=True)]
    metrics = engine.update(batch, config.loss_fn)
    return {f"update/{name}": value for name, value in metrics.items()} | {"update/skipped": 0.0}
