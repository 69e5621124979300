"""Small trajectories and mails for the reward tests."""

from __future__ import annotations

from corpus_index.document import Document
from environments.task import Role, Task
from environments.trajectory import StopReason, Submission, Trajectory


def mail(mail_id: str, body: str, **fields: object) -> Document:
    return Document(id=mail_id, subject=str(fields.pop("subject", "")), body=body, **fields)  # type: ignore[arg-type]


def solver(
    answer: str | None,
    *,
    key: str = "EB2868",
    evidence: tuple[str, ...] = ("m1", "m2"),
    opened: tuple[str, ...] = (),
    stop: StopReason = StopReason.SUBMITTED,
    question: str = "Which room holds the review?",
) -> Trajectory:
    task = Task(role=Role.SOLVER, group_id="g", question=question, answer=key, evidence=evidence)
    return _trajectory(task, stop, opened, None if answer is None else Submission(answer=answer))


def proposer(
    question: str | None,
    answer: str = "",
    evidence: tuple[str, ...] = (),
    *,
    hops: int | None = None,
    opened: tuple[str, ...] | None = None,
    stop: StopReason = StopReason.SUBMITTED,
) -> Trajectory:
    task = Task(role=Role.PROPOSER, group_id="g", hops=len(evidence) if hops is None else hops)
    submission = None if question is None else Submission(answer=answer, evidence=evidence, question=question)
    return _trajectory(task, stop, evidence if opened is None else opened, submission)


def _trajectory(task: Task, stop: StopReason, opened: tuple[str, ...], submission: Submission | None) -> Trajectory:
    return Trajectory(
        uid="t1", task=task, token_ids=(1, 2), loss_mask=(0, 1), logprobs=(0.0, -0.5), stop_reason=stop,
        policy_version=0, opened=opened, submission=submission,
    )  # fmt: skip
