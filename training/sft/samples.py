"""One conversation of the SFT stage, and what each of its tokens is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from environments.chat_format import ChatFormat
from environments.protocol import CALL_TAG, SUBMIT, ToolCall, parse
from environments.trajectory import Trajectory

SetName = Literal["general", "agentic"]
SETS: tuple[SetName, ...] = ("general", "agentic")


@dataclass(frozen=True, slots=True)
class Sample:
    """``general`` is set A (no system prompt), ``agentic`` set B. ``language`` is a label of the data, or empty."""

    trajectory: Trajectory
    source: SetName
    language: str = ""


class Kind(StrEnum):
    """Prompts count with the template's tokens around them; ``GLUE`` is what the template writes later."""

    PROMPT = "prompt"
    GLUE = "template"
    RESULT = "tool result"
    SLIP = "expert's slip"
    REASONING = "reasoning"
    CALL = "tool call"
    SUBMISSION = "submission"
    ANSWER = "answer"


def token_kinds(trajectory: Trajectory, chat: ChatFormat) -> list[Kind]:
    """What each token is, ``[tokens]``, read from the messages beside the recorded ids.

    Raises ValueError where the two do not fit together.
    """
    messages = trajectory.messages
    first = next(i for i, message in enumerate(messages) if message["role"] == "assistant")
    kinds = [Kind.PROMPT] * len(chat.prompt_ids(messages[:first]))
    for message in messages[first:]:
        at, text = len(kinds), message["content"]
        if message["role"] == "assistant":
            kinds += _turn_kinds(trajectory, at, text, chat)
        else:
            ended = chat.ended(trajectory.token_ids[:at])
            close, content, reopen = chat.observation_parts(text, ended=ended)
            kinds += [Kind.GLUE] * len(close) + [Kind.RESULT] * len(content) + [Kind.GLUE] * len(reopen)
    if len(kinds) != len(trajectory.token_ids):
        raise ValueError(
            f"trajectory {trajectory.uid}: its messages make {len(kinds)} tokens and {len(trajectory.token_ids)} are "
            "recorded; they are not of one episode or not of this tokenizer"
        )
    return kinds


def _turn_kinds(trajectory: Trajectory, start: int, text: str, chat: ChatFormat) -> list[Kind]:
    """An assistant turn: what stands before the call, then the call with the end of the turn."""
    mask = trajectory.loss_mask
    if start >= len(mask) or not mask[start]:
        return [Kind.SLIP] * len(chat.turn_ids(text))
    end = next((place for place in range(start, len(mask)) if not mask[place]), len(mask))
    ids = trajectory.token_ids[start:end]
    if all(message["role"] != "system" for message in trajectory.messages):
        return [Kind.ANSWER] * len(ids)
    action = parse(text)
    if not isinstance(action, ToolCall):
        return [Kind.REASONING] * len(ids)
    said = _tokens_before(chat, ids, text.rfind(CALL_TAG))
    call = Kind.SUBMISSION if action.name == SUBMIT else Kind.CALL
    return [Kind.REASONING] * said + [call] * (len(ids) - said)


def _tokens_before(chat: ChatFormat, ids: Sequence[int], character: int) -> int:
    """Tokens that lie wholly before a character of the turn's text."""
    low, high = 0, len(ids)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if len(chat.text(ids[:middle])) <= character else (low, middle - 1)
    return low


Counts = dict[Kind, tuple[int, int]]
"""Kind -> tokens in the loss, tokens left out."""


def count_kinds(samples: Iterable[Sample], chat: ChatFormat) -> dict[SetName, Counts]:
    """Tokens by set and kind: the read-back of the loss mask."""
    found: Counter[tuple[SetName, Kind, int]] = Counter()
    for sample in samples:
        kinds = token_kinds(sample.trajectory, chat)
        found.update((sample.source, kind, loss) for kind, loss in zip(kinds, sample.trajectory.loss_mask, strict=True))
    seen = {name: [kind for kind in Kind if found[name, kind, 0] + found[name, kind, 1]] for name in SETS}
    return {name: {kind: (found[name, kind, 1], found[name, kind, 0]) for kind in seen[name]} for name in SETS}


def render_counts(counts: dict[SetName, Counts]) -> str:
    """A markdown table."""
    lines = ["| set | tokens of | trained | masked |", "|---|---|---:|---:|"]
    for name, kinds in counts.items():
        lines += [f"| {name} | {kind} | {trained} | {masked} |" for kind, (trained, masked) in kinds.items()]
    return "\n".join(lines) + "\n"
