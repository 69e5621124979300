"""A finished episode as the trainer sees it: exact token ids, what was sampled, and what happened."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from environments.task import Role, Task


class StopReason(StrEnum):
    SUBMITTED = "submitted"
    MAX_TURNS = "max_turns"
    MAX_TOKENS = "max_tokens"  # the context is full
    TOO_MANY_ERRORS = "too_many_errors"
    ENVIRONMENT_FAULT = "environment_fault"  # not the policy's fault: masked out of the loss, counted


@dataclass(frozen=True, slots=True)
class ToolEvent:
    """One turn's tool use. ``error`` is empty when the call worked; ``shown_ids`` are the mails it displayed."""

    turn: int
    name: str
    arguments: dict[str, Any]
    error: str = ""
    shown_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Submission:
    """What a role handed in. ``question`` is empty for the Solver."""

    answer: str
    evidence: tuple[str, ...] = ()
    question: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """``token_ids``, ``loss_mask`` and ``logprobs`` are aligned, ``[tokens]``.

    ``loss_mask[t]`` is 1 exactly where the policy sampled ``token_ids[t]``; ``logprobs[t]`` is the log-probability
    recorded while sampling (natural log, temperature as configured), 0.0 elsewhere. ``turn_starts`` are the indices of
    the first sampled token of each turn. ``messages`` is the readable text for samples and viewers.
    """

    uid: str
    task: Task
    token_ids: tuple[int, ...]
    loss_mask: tuple[int, ...]
    logprobs: tuple[float, ...]
    stop_reason: StopReason
    policy_version: int
    turn_starts: tuple[int, ...] = ()
    events: tuple[ToolEvent, ...] = ()
    opened: tuple[str, ...] = ()
    submission: Submission | None = None
    messages: tuple[dict[str, str], ...] = field(default=())

    def __post_init__(self) -> None:
        if not len(self.token_ids) == len(self.loss_mask) == len(self.logprobs):
            raise ValueError(
                f"trajectory {self.uid}: {len(self.token_ids)} token ids, {len(self.loss_mask)} mask entries and "
                f"{len(self.logprobs)} log-probs; the three must be aligned"
            )

    @property
    def role(self) -> Role:
        return self.task.role

    @property
    def group_id(self) -> str:
        return self.task.group_id

    @property
    def sampled_tokens(self) -> int:
        return sum(self.loss_mask)
