"""Is a proposal a question that Solvers should get? Cheap checks in order; the first that fails is the refusal.

No check asks a model. A refused question stays in its group with the lowest pay, 0 (``rewards.proposer_pay``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from corpus_index.document import Document
from corpus_index.folding import words
from environments.task import Role
from environments.trajectory import Trajectory
from environments.untrusted import neutralise
from rewards.answers import mentions
from rewards.named_things import MailWords, distinctive_things, holds, links, mail_words, phrases_of


class Refusal(StrEnum):
    """Why a proposal is invalid, in the order of the checks. Those from closed_book on are a reader's
    (``rewards.reading``), the last a judge's."""

    NO_SUBMISSION = "no_submission"
    SCHEMA = "schema"
    UNKNOWN_EVIDENCE = "unknown_evidence"
    HOP_COUNT = "hop_count"
    NOT_OPENED = "not_opened"
    ANSWER_IN_QUESTION = "answer_in_question"
    NAMES_MAIL_ID = "names_mail_id"
    MARKUP = "markup"
    ANSWER_NOT_IN_EVIDENCE = "answer_not_in_evidence"
    UNGROUNDED = "ungrounded"
    NO_ENTITY = "no_entity"
    ONE_MAIL = "one_mail"
    NO_BRIDGE = "no_bridge"
    CLOSED_BOOK = "closed_book"
    UNSUPPORTED = "unsupported"
    WRONG_KEY = "wrong_key"
    UNNECESSARY = "unnecessary"
    INCONSISTENT = "inconsistent"


class ProposerChecks(BaseModel):
    """Each check can be switched off; what is left runs in the order of ``Refusal``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_lengths: bool = True
    """Question and answer keep to the lengths below."""
    question_chars: tuple[int, int] = (10, 300)
    question_words: int = Field(default=4, ge=1)
    answer_chars: tuple[int, int] = (1, 80)
    evidence_exists: bool = True
    """At least one evidence id, and every id is a mail of the corpus."""
    exact_hops: bool = True
    """As many different evidence mails as hops were asked for."""
    evidence_opened: bool = True
    """Every evidence mail was opened by the Proposer in this episode."""
    answer_not_in_question: bool = True
    no_mail_ids: bool = True
    """The question names no mail id that the Proposer saw."""
    no_markup: bool = False
    """The question holds no protocol tag and no special token: a forged tool result makes some Solvers stop, and an
    easy question look like one of middling difficulty."""
    answer_in_evidence: Literal["any", "last", "off"] = "any"
    """Which evidence mail must state the answer: any of them, the last one, or none need to."""
    grounded: bool = True
    """Every name and number of the question stands in an evidence mail; a name's tokens all in the same mail."""
    bridge: bool = True
    """From 2 hops on: the mail with the answer holds no named thing of the question, and successive evidence mails
    share an entity token that the question does not name."""


def check_proposal(
    trajectory: Trajectory, read: Callable[[str], Document | None], checks: ProposerChecks
) -> Refusal | None:
    """The first check that the proposal fails, or None. ``read`` gives the mail of an id, None for an unknown id.

    Raises:
        ValueError: the trajectory is not a Proposer's.
        Whatever ``read`` raises: a search server that is down is no refusal.
    """
    demand_proposer(trajectory, "check_proposal")
    submission = trajectory.submission
    if submission is None:
        return Refusal.NO_SUBMISSION
    question, answer = submission.question.strip(), submission.answer.strip()
    asked = words(question[: checks.question_chars[1] * 4])
    if checks.schema_lengths and not (
        checks.question_chars[0] <= len(question) <= checks.question_chars[1]
        and len(asked) >= checks.question_words
        and checks.answer_chars[0] <= len(answer) <= checks.answer_chars[1]
        and words(answer)
    ):
        return Refusal.SCHEMA
    evidence = tuple(dict.fromkeys(submission.evidence))
    if checks.exact_hops and len(evidence) > 4 * trajectory.task.hops:
        return Refusal.HOP_COUNT  # before reading a list of any length
    documents = [document for mail_id in evidence if (document := read(mail_id)) is not None]
    if checks.evidence_exists and (not evidence or len(documents) < len(evidence)):
        return Refusal.UNKNOWN_EVIDENCE
    if checks.exact_hops and len(evidence) != trajectory.task.hops:
        return Refusal.HOP_COUNT
    if checks.evidence_opened and not set(evidence) <= set(trajectory.opened):
        return Refusal.NOT_OPENED
    if checks.answer_not_in_question and (mentions(question, answer) or set(words(answer)) <= set(asked)):
        return Refusal.ANSWER_IN_QUESTION
    if checks.no_mail_ids and _names_mail(question, trajectory, evidence):
        return Refusal.NAMES_MAIL_ID
    if checks.no_markup and neutralise(question) != question:
        return Refusal.MARKUP
    mails = [mail_words(document) for document in documents]
    stating = mails[-1:] if checks.answer_in_evidence == "last" else mails
    if checks.answer_in_evidence != "off" and not any(mentions(mail.text, answer) for mail in stating):
        return Refusal.ANSWER_NOT_IN_EVIDENCE
    phrases = phrases_of(question, mails)
    if checks.grounded and not all(any(holds(mail, phrase) for mail in mails) for phrase in phrases):
        return Refusal.UNGROUNDED
    if checks.bridge and trajectory.task.hops >= 2:
        return _bridge_refusal(answer, phrases, mails, frozenset(asked))
    return None


def _names_mail(question: str, trajectory: Trajectory, evidence: Sequence[str]) -> bool:
    seen = {*evidence, *trajectory.opened, *(i for event in trajectory.events for i in event.shown_ids)}
    said = {token.casefold() for token in re.split(r"[^A-Za-z0-9_-]+", question)}
    return any(mail_id.casefold() in said for mail_id in seen)


def demand_proposer(trajectory: Trajectory, caller: str) -> None:
    """Raises ValueError for a Solver's trajectory."""
    if trajectory.role is not Role.PROPOSER:
        raise ValueError(
            f"{caller} got trajectory {trajectory.uid} of role {trajectory.role.value!r}, expected 'proposer'; "
            "pay Solver rollouts with solver_reward"
        )


def _bridge_refusal(
    answer: str, phrases: Sequence[tuple[str, ...]], mails: Sequence[MailWords], named: frozenset[str]
) -> Refusal | None:
    """Must the reader pass from mail to mail? Judged by entity tokens alone; ``named`` are the question's words."""
    things = distinctive_things(phrases)
    if not things:
        return Refusal.NO_ENTITY
    stating = [m for m in mails if mentions(m.told, answer)] or [m for m in mails if mentions(m.text, answer)]
    if any(mail.own.issuperset(thing) for mail in stating for thing in things):
        return Refusal.ONE_MAIL
    return None if all(one & other for one, other in pairwise(links(mails, named))) else Refusal.NO_BRIDGE
