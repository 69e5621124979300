"""The Proposers' pay of a step, once Solvers have answered: brings together what ``rewards.proposer_pay`` looks at."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from environments.task import Task
from environments.trajectory import Trajectory
from rewards.breakdown import RewardBreakdown
from rewards.diversity import Sketch, diversity
from rewards.proposer_pay import proposer_reward
from training.config import Config
from training.memory import QuestionMemory
from training.proposals import Proposals

Paid = tuple[Trajectory, RewardBreakdown]
_LOGGED = ("p_hat", "p_hint", "right_rate", "guess_rate", "scattered", "rival_rate", "wrong_key")


def proposer_pay(
    proposals: Proposals, solved: Iterable[Paid], hinted: Iterable[Paid], memory: QuestionMemory, config: Config
) -> list[RewardBreakdown]:
    """``[proposals]``. ``solved`` and ``hinted`` are the step's Solver rollouts, without and with the evidence told."""
    by_group: dict[str, list[Paid]] = {}
    for t, pay in (*solved, *hinted):
        by_group.setdefault(t.group_id, []).append((t, pay))
    varieties = _varieties(proposals, memory) if config.rewards.proposer.diversity else [0.0] * len(proposals.refusals)
    paid: list[RewardBreakdown] = []
    for t, refusal, notes, group, variety in zip(
        proposals.trajectories, proposals.refusals, proposals.notes, proposals.group_of, varieties, strict=True
    ):
        mine = by_group.get(group, []) if group is not None else []
        told = by_group.get(f"{group}/hint", [])
        breakdown = proposer_reward(
            t,
            refusal,
            [pay for _, pay in mine],
            config.rewards.proposer,
            answers=[solver.submission.answer if solver.submission else "" for solver, _ in mine],
            hinted=[pay for _, pay in told],
            diversity=variety,
            notes=notes,
            matching=config.rewards.answers,
        )
        paid.append(breakdown)
    return paid


def sketch_of(task: Task) -> Sketch:
    return Sketch.of(task.question, task.answer, task.evidence)


def _varieties(proposals: Proposals, memory: QuestionMemory) -> list[float]:
    """The diversity of each valid proposal among the valid ones of its group and the recent ones; 0 for the others."""
    sketches = [
        Sketch.of(t.submission.question, t.submission.answer, t.submission.evidence)
        if refusal is None and t.submission is not None
        else None
        for t, refusal in zip(proposals.trajectories, proposals.refusals, strict=True)
    ]
    groups: dict[str, list[int]] = {}
    for i, t in enumerate(proposals.trajectories):
        groups.setdefault(t.group_id, []).append(i)
    recent = memory.recent
    found: list[float] = []
    for i, (t, mine) in enumerate(zip(proposals.trajectories, sketches, strict=True)):
        others = [other for j in groups[t.group_id] if j != i and (other := sketches[j]) is not None]
        found.append(0.0 if mine is None else diversity(mine, others, recent))
    return found


def pay_metrics(proposals: Proposals, pay: Sequence[RewardBreakdown]) -> dict[str, float]:
    """What reader and Solvers measured: means over the proposals for which they did, to which ``pay`` is aligned."""
    metrics: dict[str, float] = {}
    for name in dict.fromkeys(name for notes in proposals.notes for name in notes):
        metrics[f"reader/{name}"] = _mean([notes[name] for notes in proposals.notes if name in notes])
    solved = [p.labels for p in pay if not p.masked and float(p.labels["n_solvers"])]
    for name in _LOGGED:
        if values := [float(labels[name]) for labels in solved if name in labels]:
            metrics[f"proposals/{name}"] = _mean(values)
    return metrics


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
