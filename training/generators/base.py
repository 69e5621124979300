"""What every generator of questions offers: tries, each the submission that a Proposer could have made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from environments.task import Role, Task
from environments.trajectory import StopReason, Submission, Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A question as its writer means it. ``evidence`` are the ids of the mails it needs, first hop first; ``entity``
    is what it is about, ``kind`` a free label of its sort."""

    question: str
    answer: str
    evidence: tuple[str, ...]
    entity: str = ""
    kind: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try. ``trouble`` says why there is no question; it is empty where ``proposal`` is to be checked."""

    proposal: Trajectory
    entity: str = ""
    kind: str = ""
    trouble: str = ""


class CannotWrite(Exception):
    """No question came of this try; ``str`` of it is the reason to count."""


class Generator(Protocol):
    @property
    def name(self) -> str: ...

    def round(self, number: int, hops: int) -> Sequence[Attempt]:
        """Some tries at questions of ``hops`` hops. Another ``number`` gives other ones, the same number the same.

        Raises Unavailable where a service is away: the round is asked again when the command is.
        """
        ...


def written(name: str, hops: int, draft: Draft | CannotWrite) -> Attempt:
    """A try without an episode: its mails count as opened, for they were in front of the writer."""
    task = Task(role=Role.PROPOSER, group_id=name, hops=hops)
    if isinstance(draft, CannotWrite):
        return Attempt(proposal=_trajectory(task, None), trouble=str(draft))
    submission = Submission(answer=draft.answer, evidence=draft.evidence, question=draft.question)
    return Attempt(proposal=_trajectory(task, submission), entity=draft.entity, kind=draft.kind)


def _trajectory(task: Task, submission: Submission | None) -> Trajectory:
    return Trajectory(
        uid=task.group_id, task=task, token_ids=(), loss_mask=(), logprobs=(), stop_reason=StopReason.SUBMITTED,
        policy_version=0, opened=submission.evidence if submission else (), submission=submission,
    )  # fmt: skip
