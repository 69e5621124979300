"""The filters: which episodes are right, and which are written as the policy shall write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from corpus_index.document import Document
from environments.chat_format import ChatFormat
from environments.chat_rows import ChatRow, native_row
from environments.task import Role
from environments.untrusted import neutralise
from rewards.answers import Verdict
from rewards.judge import Judge
from rewards.refusal import ProposerChecks, check_proposal


@dataclass(frozen=True, slots=True)
class StageOutcome:
    """What a stage lets through, in order. ``dropped`` counts rows by reason, ``notes`` what else it did."""

    rows: list[ChatRow]
    dropped: Counter[str] = field(default_factory=Counter[str])
    notes: Counter[str] = field(default_factory=Counter[str])


def sift(rows: Sequence[ChatRow], reason: Callable[[ChatRow], str]) -> StageOutcome:
    """Rows without a reason to drop them."""
    kept: list[ChatRow] = []
    dropped: Counter[str] = Counter()
    for row in rows:
        if why := reason(row):
            dropped[why] += 1
        else:
            kept.append(row)
    return StageOutcome(kept, dropped)


def correct(
    rows: Sequence[ChatRow],
    *,
    judge: Judge,
    checks: ProposerChecks,
    read: Callable[[str], Document | None],
    grounded: bool,
) -> StageOutcome:
    """A Solver's answer is the key's and, with ``grounded``, of mails that it opened; a Proposer's question passes the
    checks of self-play. Raises what ``judge`` and ``read`` raise."""

    def reason(row: ChatRow) -> str:
        done = row.outline()
        if done.submission is None:
            return "no_submission"
        if done.role is Role.PROPOSER:
            refusal = check_proposal(done, read, checks)
            return refusal.value if refusal is not None else ""
        verdict = judge.judge(done.task.question, done.submission.answer, done.task.answer)
        if verdict is not Verdict.RIGHT:
            return verdict.value
        return "ungrounded" if grounded and not set(done.submission.evidence) <= set(done.opened) else ""

    return sift(rows, reason)


def clean(rows: Sequence[ChatRow], *, max_errors: int, fits: Callable[[ChatRow], bool]) -> StageOutcome:
    """Few tool errors, every turn exactly one call in the protocol's own spelling, no foreign tag in what was said, and
    short enough."""

    def reason(row: ChatRow) -> str:
        if sum(bool(event.error) for event in row.outline().events) > max_errors:
            return "tool_error"
        turns = [message for message in native_row(row).messages if message.role == "assistant"]
        if not all(turn.tool_calls for turn in turns):
            return "format"
        said = [
            text
            for turn in turns
            for text in (turn.reasoning_content, turn.content, turn.tool_calls[0].function.arguments)
        ]
        if any(neutralise(text) != text for text in said):
            return "markup"
        return "" if fits(row) else "too_long"

    return sift(rows, reason)


def fits_into(chat: ChatFormat, max_tokens: int) -> Callable[[ChatRow], bool]:
    """Whether an episode has at most so many tokens."""
    return lambda row: len(row.trajectory(chat).token_ids) <= max_tokens
