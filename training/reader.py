"""The policy reads its own questions before any Solver gets them: without search, in one turn.

For each question the contexts of ``rewards.reading`` are built, all of a step's are rolled out together, and the
verdict says whether the question is refused. These rollouts are never trained on.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from corpus_index.backends.base import IndexUnavailable
from corpus_index.document import Document
from environments.task import Role, Task
from environments.tools import render_mail
from environments.trajectory import Submission, Trajectory
from rewards.judge import Judge
from rewards.reading import Readings, ReadVerdict, Reply, judge_readings
from training.config import Config
from training.engines.base import Engine
from training.evidence import EvidenceDesk
from training.game import phase_sampling
from training.judging import solver_pay


@dataclass(frozen=True, slots=True)
class _Contexts:
    """The tasks of one question, one a context; None: not asked for."""

    closed_book: Task | None
    evidence: Task | None
    without: tuple[Task, ...]


def read_questions(
    engine: Engine, desk: EvidenceDesk, judge: Judge, config: Config, step: int, proposals: Sequence[Trajectory]
) -> list[ReadVerdict]:
    """One verdict a proposal, which must have a submission. A context that the index, the judge or the length of the
    mails kept from being read leaves the verdict unknown.

    Draws come from ``grpo.seed`` and ``step``.
    """
    contexts: list[_Contexts | None] = []
    for number, proposal in enumerate(proposals):
        rng = random.Random(f"{config.grpo.seed}/{step}/read/{number}")
        try:
            contexts.append(_contexts(proposal, f"{step}/q{number}", desk, config, rng))
        except IndexUnavailable:
            contexts.append(None)
    settings = config.rewards.reader
    tasks: list[Task] = []
    for context in filter(None, contexts):
        tasks += _times(context.closed_book, settings.closed_book.rollouts)
        tasks += _times(context.evidence, settings.evidence.rollouts)
        tasks += [task for left_out in context.without for task in _times(left_out, settings.necessity.rollouts)]
    replies: dict[str, list[Reply]] = {}
    played = engine.rollout(tasks, phase_sampling(config, step, 2)) if tasks else []
    read = [t for t in played if t.turn_starts]  # the others' mails left no room for a turn
    for t, pay in zip(read, solver_pay(read, judge, config.rewards.solver), strict=True):
        if not pay.masked:
            answer = t.submission.answer if t.submission else ""
            replies.setdefault(t.group_id, []).append(Reply(str(pay.labels["verdict"]), answer))

    def of(task: Task | None) -> list[Reply]:
        return [] if task is None else replies.get(task.group_id, [])

    verdicts: list[ReadVerdict] = []
    for proposal, context in zip(proposals, contexts, strict=True):
        if context is None:
            verdicts.append(ReadVerdict(unknown=True))
            continue
        readings = Readings(of(context.closed_book), of(context.evidence), [of(task) for task in context.without])
        question = _submitted(proposal).question
        verdicts.append(judge_readings(question, readings, settings, config.rewards.answers))
    return verdicts


def mails_as_opening(mails: Iterable[Document], config: Config) -> str:
    """As the tool ``read_mail`` shows them; the prompt makes them harmless, as it does every opening."""
    return "\n\n".join(render_mail(mail, config.tools) for mail in mails)


def _contexts(proposal: Trajectory, name: str, desk: EvidenceDesk, config: Config, rng: random.Random) -> _Contexts:
    settings = config.rewards.reader
    submission = _submitted(proposal)

    def task(kind: str, mails: Sequence[Document]) -> Task:
        return Task(
            role=Role.SOLVER,
            group_id=f"{name}/{kind}",
            hops=proposal.task.hops,
            question=submission.question,
            answer=submission.answer,
            evidence=submission.evidence,
            parent=proposal.uid,
            scope=proposal.task.scope,
            opening=mails_as_opening(rng.sample(mails, len(mails)), config),
            turns=1,
        )

    closed_book = task("closed", ()) if settings.closed_book.enabled else None
    leave_out = settings.necessity.enabled and len(submission.evidence) > 1
    if not (settings.evidence.enabled or leave_out):
        return _Contexts(closed_book, None, ())
    read = desk.reader(proposal.task.scope)
    mails = [mail for mail_id in submission.evidence if (mail := read(mail_id)) is not None]
    wanted = settings.evidence.distractors
    found = desk.hits(submission.question, wanted + len(mails) + 1, proposal.task.scope)
    others = [mail for mail in found if mail.id not in submission.evidence]
    evidence = task("evidence", [*mails, *others[:wanted]]) if settings.evidence.enabled else None
    # A mail that is left out is replaced, so that the contexts are of one size.
    rest = [[mail for mail in mails if mail is not gone] for gone in mails] if leave_out else []
    without = tuple(task(f"without{k}", [*kept, *others[: wanted + 1]]) for k, kept in enumerate(rest))
    return _Contexts(closed_book, evidence, without)


def _times(task: Task | None, count: int) -> list[Task]:
    return [] if task is None else [task] * count


def _submitted(proposal: Trajectory) -> Submission:
    if proposal.submission is None:
        raise ValueError(f"proposal {proposal.uid} has no submission; read only what passed the checks")
    return proposal.submission
