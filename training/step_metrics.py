"""One step's rollouts in numbers: rewards, groups and episodes by role, and what became of the proposals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from environments.task import Role, Task
from environments.trajectory import Trajectory
from rewards.breakdown import RewardBreakdown
from rewards.judge import Judge
from rewards.refusal import Refusal
from training.advantages import count_groups
from training.game import Board, Truth, truth_metrics, truth_of
from training.selection import out_of_group


def game_metrics(trajectories: Sequence[Trajectory], pay: Sequence[RewardBreakdown]) -> dict[str, float]:
    """Rewards, groups, tokens and episodes by role."""
    metrics: dict[str, float] = {}
    for role in Role:
        mine = [(t, p) for t, p in zip(trajectories, pay, strict=True) if t.role is role]
        if not mine:
            continue
        counted = [p for t, p in mine if not out_of_group(t, p)]
        if counted:
            metrics[f"reward/{role}/total"] = sum(p.total for p in counted) / len(counted)
            for name in counted[0].components:
                metrics[f"reward/{role}/{name}"] = sum(p.components[name] for p in counted) / len(counted)
        groups = count_groups(
            [p.total for _, p in mine], [t.group_id for t, _ in mine], [out_of_group(t, p) for t, p in mine]
        )
        tokens = sum(t.sampled_tokens for t, _ in mine)
        calls = sum(len(t.events) for t, _ in mine)
        metrics |= {
            f"groups/{role}/all": float(groups.groups),
            f"groups/{role}/zero_variance": float(groups.zero_variance),
            f"groups/{role}/all_masked": float(groups.all_masked),
            f"groups/{role}/kept": float(groups.groups - groups.zero_variance - groups.all_masked - groups.singletons),
            f"tokens/{role}": float(tokens),
            f"episode/{role}/tokens": tokens / len(mine),
            # The mean surprise of what was drawn is an unbiased estimate of the entropy, where nothing filters.
            f"episode/{role}/entropy": -sum(sum(t.logprobs) for t, _ in mine) / max(tokens, 1),
            f"episode/{role}/turns": sum(len(t.turn_starts) for t, _ in mine) / len(mine),
            f"episode/{role}/tool_error_rate": sum(bool(e.error) for t, _ in mine for e in t.events) / max(calls, 1),
            f"episode/{role}/submitted_rate": sum(t.submission is not None for t, _ in mine) / len(mine),
        }
    return metrics


def proposal_metrics(
    trajectories: Sequence[Trajectory],
    refusals: Sequence[Refusal | None],
    group_of: Sequence[str | None],
    board: Board,
    judge: Judge,
) -> dict[str, float]:
    """``proposals/...`` from the Proposers' rollouts, why each was refused and the Solver group it became; all
    ``[proposals]``. Nothing where nobody proposed."""
    total = len(trajectories)
    if not total:
        return {}
    accepted = [t for t, refusal in zip(trajectories, refusals, strict=True) if refusal is None]
    reasons = Counter(refusal for refusal in refusals if refusal is not None)
    metrics = {f"proposals/refusal/{reason}": reasons[reason] / total for reason in Refusal}
    questions = {(t.submission.question, t.submission.answer) for t in accepted if t.submission is not None}
    sent = {group for group in group_of if group is not None}
    metrics |= {
        "proposals/valid_rate": len(accepted) / total,
        "proposals/distinct_rate": len(questions) / max(len(accepted), 1),
        "proposals/unsolved_budget": float(len(questions) - len(sent)),
    }
    if board.company is not None:
        truths: list[tuple[int, Truth]] = [
            (t.task.hops, truth_of(board.company, t.submission.question, t.submission.answer, judge))
            for t in accepted
            if t.submission is not None
        ]
        metrics |= truth_metrics(truths)
    return metrics


def served_metrics(tasks: Sequence[Task], board: Board, judge: Judge) -> dict[str, float]:
    """Of a step's Solver groups, given as one task each, the share whose key and hops are right by the company's facts.
    What is accepted may be nearly all true while what is chosen from it is not."""
    if board.company is None or not tasks:
        return {}
    truths = [(task.hops, truth_of(board.company, task.question, task.answer, judge)) for task in tasks]
    return {"served/true_hops_rate": sum(t.right and t.hops == hops for hops, t in truths) / len(truths)}
