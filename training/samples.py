"""Full trajectories with their rewards as readable JSON records, one file a step."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from environments.trajectory import Trajectory
from rewards.breakdown import RewardBreakdown

Record = dict[str, object]


def trajectory_record(trajectory: Trajectory, breakdown: RewardBreakdown, advantage: float | None) -> Record:
    """All that a reader needs to judge one rollout. ``advantage`` is None where the rollout was not trained on.

    Numbers that are not finite become None, so that the record is valid JSON.
    """
    task, submission = trajectory.task, trajectory.submission
    record: Record = {
        "uid": trajectory.uid,
        "role": trajectory.role.value,
        "group_id": trajectory.group_id,
        "policy_version": trajectory.policy_version,
        "task": {
            "hops": task.hops,
            "seed": task.seed,
            "question": task.question,
            "answer": task.answer,
            "evidence": list(task.evidence),
            "tool_variant": task.tool_variant,
            "parent": task.parent,
            "scope": None if task.scope is None else task.scope.model_dump(mode="json"),
        },
        "messages": [dict(message) for message in trajectory.messages],
        "events": [
            {
                "turn": event.turn,
                "name": event.name,
                "arguments": event.arguments,
                "error": event.error,
                "shown_ids": list(event.shown_ids),
            }
            for event in trajectory.events
        ],
        "opened": list(trajectory.opened),
        "submission": None
        if submission is None
        else {"question": submission.question, "answer": submission.answer, "evidence": list(submission.evidence)},
        "stop_reason": trajectory.stop_reason.value,
        "reward": {
            "total": breakdown.total,
            "components": dict(breakdown.components),
            "labels": dict(breakdown.labels),
            "masked": breakdown.masked,
        },
        "advantage": advantage,
        "tokens": {
            "total": len(trajectory.token_ids),
            "sampled": trajectory.sampled_tokens,
            "turns": len(trajectory.turn_starts),
        },
    }
    return {name: _finite(value) for name, value in record.items()}


def pick_per_role(records: Sequence[Record], per_role: int) -> list[Record]:
    """At most ``per_role`` records of each role, spread evenly over the step, so that many groups are seen.

    The choice depends on nothing but the order of ``records``. Negative ``per_role`` keeps all.
    """
    if per_role < 0:
        return list(records)
    positions: dict[object, list[int]] = {}
    for position, record in enumerate(records):
        positions.setdefault(record.get("role"), []).append(position)
    kept: set[int] = set()
    for mine in positions.values():
        count = min(per_role, len(mine))
        kept.update(mine[k * len(mine) // count] for k in range(count))
    return [record for position, record in enumerate(records) if position in kept]


def sample_path(folder: Path, step: int) -> Path:
    return folder / "samples" / f"step_{step:06d}.jsonl"


def sample_step(path: Path) -> int | None:
    """The step of a file named by ``sample_path``; None for any other file."""
    digits = path.name.removeprefix("step_").removesuffix(".jsonl")
    return int(digits) if path.name == f"step_{digits}.jsonl" and digits.isdigit() else None


def json_line(record: Mapping[str, object]) -> bytes:
    """One JSON object and a newline. Raises ValueError on a number that is not finite.

    A mail may hold a lone surrogate, which UTF-8 cannot carry: as ``\\udXXX`` it is valid JSON and reads back the same.
    """
    return (json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n").encode("utf-8", errors="backslashreplace")


def _finite(value: object) -> object:
    """A model may write NaN as a tool argument, and Python's JSON reader takes it; a strict reader would not."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in cast("dict[str, object]", value).items()}
    if isinstance(value, list):
        return [_finite(item) for item in cast("list[object]", value)]
    return value
