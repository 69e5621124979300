"""What a Proposer is paid for: a valid question that the Solvers answer sometimes, but not always.

The game: the Proposer hands in (question, answer, evidence mails). Cheap checks come first, in order, and the first
that fails is the refusal; a refused question stays in its group with the lowest pay, 0, because failures are contrast
and a penalty below 0 starts a spiral (2510.18821). Only the Solvers' success then pays. A question nobody solves pays
exactly 0: any pay for it is hacked within minutes by unsolvable or wrong questions.

**Entity tokens.** Without a model, a "named thing" is a capitalised word or a word with a digit. Left out: a small
stop list (question words, mail furniture such as "Re" and "Thanks"), and the first word of a sentence, which is
capitalised anyhow, unless the evidence writes it with a capital inside a sentence. Neighbouring entity tokens of a
question form one phrase ("Falcon Ridge"); a mail holds a phrase if it holds all its tokens, in any order, so that
"Allen, Phillip K." holds "Phillip Allen" while a mail about another Ridge does not hold "Falcon Ridge". For links
between mails a token must also point at something: months, weekdays, years, hours and small numbers do not, nor does a
word that the evidence elsewhere writes in lower case. Recipients link nothing, for long lists would link everything.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from itertools import pairwise
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from corpus_index.document import Document
from environments.task import Role
from environments.trajectory import StopReason, Trajectory
from rewards.answers import mentions, words
from rewards.breakdown import RewardBreakdown


class Refusal(StrEnum):
    """Why a proposal is invalid, in the order of the checks."""

    NO_SUBMISSION = "no_submission"
    SCHEMA = "schema"
    UNKNOWN_EVIDENCE = "unknown_evidence"
    HOP_COUNT = "hop_count"
    NOT_OPENED = "not_opened"
    ANSWER_IN_QUESTION = "answer_in_question"
    NAMES_MAIL_ID = "names_mail_id"
    ANSWER_NOT_IN_EVIDENCE = "answer_not_in_evidence"
    UNGROUNDED = "ungrounded"
    NO_ENTITY = "no_entity"
    ONE_MAIL = "one_mail"
    NO_BRIDGE = "no_bridge"


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
    answer_in_evidence: Literal["any", "last", "off"] = "any"
    """Which evidence mail must state the answer: any of them, the last one, or none need to."""
    grounded: bool = True
    """Every name and number of the question stands in an evidence mail; a name's tokens all in the same mail."""
    bridge: bool = True
    """From 2 hops on: the mail with the answer holds no named thing of the question, and successive evidence mails
    share an entity token that the question does not name."""


_STOP = frozenset(
    [
        *("who", "whom", "whose", "what", "which", "when", "where", "why", "how", "is", "are", "was", "were", "do"),
        *("does", "did", "can", "could", "will", "would", "should", "the", "a", "an", "in", "on", "at", "of", "for"),
        *("from", "to", "by", "with", "and", "or", "if", "i", "we", "you", "he", "she", "it", "they", "my", "our"),
        *("your", "his", "her", "their", "this", "that", "these", "those", "there", "please", "name", "give", "find"),
        *("tell", "according", "after", "before", "during", "as", "has", "have", "had", "not", "no", "yes"),
        *("re", "fw", "fwd", "cc", "bcc", "subject", "sent", "date", "original", "message", "forwarded", "dear", "hi"),
        *("hello", "thanks", "thank", "regards", "best", "attached", "mail", "email", "e-mail", "am", "pm"),
    ]
)
_CALENDAR = frozenset(
    [
        *("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday", "mon", "tue", "tues", "wed"),
        *("thu", "thur", "thurs", "fri", "sat", "sun", "january", "february", "march", "april", "may", "june", "july"),
        *("august", "september", "october", "november", "december", "jan", "feb", "mar", "apr", "jun", "jul", "aug"),
        *("sep", "sept", "oct", "nov", "dec"),
    ]
)
"""Must be grounded, but a shared month or weekday links no two mails."""
_TOKEN = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
_SENTENCE_END = frozenset(".!?:\n\r")
_CLOCK_OR_NTH = re.compile(r"\d{1,2}(?:am|pm|st|nd|rd|th)")
_MAX_MAIL_CHARS = 100_000


@dataclass(frozen=True, slots=True)
class _Token:
    word: str
    capital: bool
    first: bool
    """Opens a sentence or a line."""
    touches: bool
    """Only spaces, hyphens or "&" lie between it and the token before."""


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    text = unicodedata.normalize("NFKC", text[:_MAX_MAIL_CHARS]).replace("’", "'")[:_MAX_MAIL_CHARS]
    end = 0
    for found in _TOKEN.finditer(text):
        gap = text[end : found.start()]
        # "Phillip K. Allen": the point after an initial ends no sentence.
        initial = bool(tokens) and len(tokens[-1].word) == 1 and gap.strip() == "."
        first = not tokens or (not initial and not _SENTENCE_END.isdisjoint(gap))
        touches = bool(tokens) and (initial or not gap.strip(" -&"))
        word = found[0].casefold().removesuffix("'s")
        if not word.isascii():
            word = "".join(words(word)) or word  # accents off, as in answers
        tokens.append(_Token(word, found[0][0].isupper(), first, touches))
        end = found.end()
    return tokens


def _has_digit(word: str) -> bool:
    return any(c.isdigit() for c in word)


def _distinctive(word: str) -> bool:
    """Can this token alone point at a thing? Months, years and small numbers cannot."""
    if word in _STOP or word in _CALENDAR or len(word) < 2:
        return False
    if word.isdecimal():
        return len(word) >= 3 and not (len(word) == 4 and word[:2] in ("19", "20"))
    return not _CLOCK_OR_NTH.fullmatch(word)


@dataclass(frozen=True, slots=True)
class _Mail:
    """``told`` is what the sender says (name, address, subject, body), ``text`` all a reader sees, header included.

    The sets are words: ``held`` of ``text``, the others of ``told``. ``inside``: with a capital inside a sentence.
    """

    told: str
    text: str
    held: frozenset[str]
    own: frozenset[str]
    capitals: frozenset[str]
    inside: frozenset[str]
    lower: frozenset[str]
    numbers: frozenset[str]


@lru_cache(maxsize=512)
def _mail(document: Document) -> _Mail:
    told = "\n".join((document.sender_name, document.sender, document.subject, document.body))
    date = document.date.strftime("%A %d %B %Y, %Y-%m-%d, %H:%M") if document.date else ""
    text = "\n".join((*document.recipient_names, *document.recipients, date, told))
    # The address without its domain, which a whole company shares. "by", because a name opening a line is no sentence.
    address = document.sender.partition("@")[0].replace(".", " ").title()
    written = _tokens(f"by {document.sender_name}\nby {address}\n{document.subject}\n{document.body}")
    own = frozenset(t.word for t in written)
    return _Mail(
        told=told,
        text=text,
        held=own | frozenset(t.word for t in _tokens(text)),
        own=own,
        capitals=frozenset(t.word for t in written if t.capital),
        inside=frozenset(t.word for t in written if t.capital and not t.first),
        lower=frozenset(t.word for t in written if not t.capital),
        numbers=frozenset(t.word for t in written if _has_digit(t.word)),
    )


def _phrases(question: str, mails: Sequence[_Mail]) -> list[tuple[str, ...]]:
    """The named things of a question, each as its neighbouring entity tokens."""
    tokens = _tokens(question)
    inside = frozenset().union(*(mail.inside for mail in mails))
    lower = frozenset().union(*(mail.lower for mail in mails))

    def named(token: _Token) -> bool:
        if token.word in _STOP:
            return False
        return _has_digit(token.word) or (token.capital and (not token.first or token.word in inside))

    marks = [named(token) for token in tokens]
    if not any(marks):  # a question without capitals: take what the evidence always writes with one
        marks = [t.word in inside and t.word not in lower and t.word not in _STOP for t in tokens]
    phrases: list[list[str]] = []
    open_phrase = False
    for token, mark in zip(tokens, marks, strict=True):
        if mark and open_phrase and token.touches:
            phrases[-1].append(token.word)
        elif mark:
            phrases.append([token.word])
        open_phrase = mark
    return [tuple(phrase) for phrase in phrases]


def _holds(mail: _Mail, phrase: tuple[str, ...]) -> bool:
    """All tokens, or the same value in another notation: "EB-3267" for "EB3267"."""
    return mail.held.issuperset(phrase) or (any(map(_has_digit, phrase)) and mentions(mail.text, " ".join(phrase)))


def _bridge_refusal(
    answer: str, phrases: Sequence[tuple[str, ...]], mails: Sequence[_Mail], named: frozenset[str]
) -> Refusal | None:
    """Must the reader pass from mail to mail? Judged by entity tokens alone; ``named`` are the question's words."""
    things = [kept for phrase in phrases if (kept := [w for w in phrase if _distinctive(w)])]
    if not things:
        return Refusal.NO_ENTITY
    stating = [m for m in mails if mentions(m.told, answer)] or [m for m in mails if mentions(m.text, answer)]
    if any(mail.own.issuperset(thing) for mail in stating for thing in things):
        return Refusal.ONE_MAIL
    inside = frozenset().union(*(mail.inside for mail in mails))
    lower = frozenset().union(*(mail.lower for mail in mails))
    links = [
        {w for w in ((mail.capitals & inside) - lower) | mail.numbers if _distinctive(w)} - named for mail in mails
    ]  # fmt: skip
    return None if all(one & other for one, other in pairwise(links)) else Refusal.NO_BRIDGE


def check_proposal(
    trajectory: Trajectory, read: Callable[[str], Document | None], checks: ProposerChecks
) -> Refusal | None:
    """The first check that the proposal fails, or None. ``read`` gives the mail of an id, None for an unknown id.

    Raises:
        ValueError: the trajectory is not a Proposer's.
        Whatever ``read`` raises: a search server that is down is no refusal.
    """
    _demand_proposer(trajectory, "check_proposal")
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
    mails = [_mail(document) for document in documents]
    stating = mails[-1:] if checks.answer_in_evidence == "last" else mails
    if checks.answer_in_evidence != "off" and not any(mentions(mail.text, answer) for mail in stating):
        return Refusal.ANSWER_NOT_IN_EVIDENCE
    phrases = _phrases(question, mails)
    if checks.grounded and not all(any(_holds(mail, phrase) for mail in mails) for phrase in phrases):
        return Refusal.UNGROUNDED
    if checks.bridge and trajectory.task.hops >= 2:
        return _bridge_refusal(answer, phrases, mails, frozenset(asked))
    return None


def _names_mail(question: str, trajectory: Trajectory, evidence: Sequence[str]) -> bool:
    seen = {*evidence, *trajectory.opened, *(i for event in trajectory.events for i in event.shown_ids)}
    said = {token.casefold() for token in re.split(r"[^A-Za-z0-9_-]+", question)}
    return any(mail_id.casefold() in said for mail_id in seen)


def _demand_proposer(trajectory: Trajectory, caller: str) -> None:
    if trajectory.role is not Role.PROPOSER:
        raise ValueError(
            f"{caller} got trajectory {trajectory.uid} of role {trajectory.role.value!r}, expected 'proposer'; "
            "pay Solver rollouts with solver_reward"
        )


# --- shapes of the pay for a success rate p measured on n rollouts --------------------------------------------------


def one_minus_p(p: float, n: int) -> float:
    """1 - p (SSP, 2510.18821). Pays hard questions most; needs ``zero_if_unsolved``."""
    return 1.0 - p


def quadratic(p: float, n: int) -> float:
    """4 p (1 - p): learnability, 1 at one half. Low by the factor (1 - 1/n) on average."""
    return 4.0 * p * (1.0 - p)


def unbiased_quadratic(p: float, n: int) -> float:
    """4 n / (n - 1) p (1 - p): its mean over rollouts is 4 p (1 - p) of the true p. Up to n / (n - 1); 0 for n = 1."""
    return 4.0 * n / (n - 1) * p * (1.0 - p) if n > 1 else 0.0


def tent(p: float, n: int) -> float:
    """1 - 2 |p - 1/2| (R-Zero, 2508.05004; SCOPE, 2605.31433 with tau = 1/2)."""
    return 1.0 - 2.0 * abs(p - 0.5)


def spice(p: float, n: int) -> float:
    """exp(-(p (1 - p) - 1/4)^2 / (2 * 0.01)) (SPICE, 2510.24684): a Gaussian in the variance of the outcomes."""
    return math.exp(-((p * (1.0 - p) - 0.25) ** 2) / 0.02)


def flat_top(p: float, n: int, lo: float = 0.3, hi: float = 0.7, ramp: float = 0.25) -> float:
    """1 on [lo, hi], falling to 0 over ``ramp`` on both sides (SPADE, 2608.19197). Most tolerant of a noisy p."""
    return max(0.0, 1.0 - max(lo - p, p - hi, 0.0) / ramp)


def ssr(p: float, n: int, alpha: float = 0.8) -> float:
    """1 - (1 + alpha) p, and -alpha at p = 0 or 1. Negative for easy questions: less than an invalid one gets."""
    return -alpha if p in (0.0, 1.0) else 1.0 - (1.0 + alpha) * p


Shape = Literal["one_minus_p", "quadratic", "unbiased_quadratic", "tent", "spice", "flat_top", "ssr"]
SHAPES: Mapping[Shape, Callable[[float, int], float]] = {
    "one_minus_p": one_minus_p,
    "quadratic": quadratic,
    "unbiased_quadratic": unbiased_quadratic,
    "tent": tent,
    "spice": spice,
    "flat_top": flat_top,
    "ssr": ssr,
}


class ProposerReward(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    shape: Shape = "flat_top"
    weight: float = Field(default=1.0, gt=0.0, allow_inf_nan=False)
    """Times the shape's value: the ``success`` component."""
    valid: float = Field(default=0.0, ge=0.0, allow_inf_nan=False)
    """Paid for any valid question that was sent to Solvers."""
    zero_if_unsolved: bool = True
    """A question that no Solver answered pays exactly 0, ``valid`` included."""
    checks: ProposerChecks = Field(default_factory=ProposerChecks)


def proposer_reward(
    trajectory: Trajectory,
    refusal: Refusal | None,
    outcomes: Sequence[RewardBreakdown],
    settings: ProposerReward,
) -> RewardBreakdown:
    """Pay one proposal from its refusal and the breakdowns of its Solver rollouts (empty when none were run).

    Components: ``valid`` and ``success``. Labels: ``refusal`` (empty when valid), ``p_hat`` (-1 when unmeasured),
    ``n_solvers`` (unmasked outcomes), ``hops`` (asked for), ``unsolved_budget``. Refused: total 0, stays in its group.
    Masked: an environment fault, or a valid question without any usable Solver outcome, whose worth nobody knows.

    Raises:
        ValueError: the trajectory is not a Proposer's, or a refused proposal comes with Solver outcomes.
    """
    _demand_proposer(trajectory, "proposer_reward")
    if refusal is not None and outcomes:
        raise ValueError(
            f"proposal {trajectory.uid} was refused ({refusal.value}) yet has {len(outcomes)} Solver outcomes; "
            "send only valid questions to Solvers"
        )
    fault = trajectory.stop_reason is StopReason.ENVIRONMENT_FAULT
    usable = [outcome for outcome in outcomes if not outcome.masked]
    n = len(usable)
    p = sum(outcome.labels["verdict"] == "right" for outcome in usable) / n if n else -1.0
    valid = success = 0.0
    if not fault and refusal is None and n and (p > 0.0 or not settings.zero_if_unsolved):
        valid, success = settings.valid, settings.weight * SHAPES[settings.shape](p, n)
    return RewardBreakdown(
        {"valid": valid, "success": success},
        {
            "refusal": refusal.value if refusal else "",
            "p_hat": p,
            "n_solvers": float(n),
            "hops": float(trajectory.task.hops),
            "unsolved_budget": refusal is None and not fault and not outcomes,
        },
        masked=fault or (refusal is None and not n),
    )
