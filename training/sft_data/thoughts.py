"""The words of an episode apart from its calls: what a rewrite may change, and the proof that it changed nothing else.

Every rewrite goes through ``with_thoughts``: the calls, the results and the answer are those of the row it is given,
and ``altered`` compares them once more before a row is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from environments.chat_rows import ChatMessage, ChatRow, native_row, text_row, turn_text
from environments.protocol import render_turn
from environments.untrusted import neutralise
from rewards.answers import mentions
from training.config_trajectories import Thoughts

Violation = Literal["", "turns", "emptied", "markup", "foresight", "altered"]


def thoughts_of(row: ChatRow) -> list[str]:
    """One text a turn of the assistant; empty where it only calls."""
    return [_thought(message) for message in _turns(row)]


def calls_of(row: ChatRow) -> list[str]:
    """Each turn's call as the protocol writes it; the whole turn where no call can be read."""
    return [_call(message) for message in _turns(row)]


def results_of(row: ChatRow) -> list[str]:
    """The tools' answers; the last turn has none."""
    return [message.content for message in row.messages if message.role == "tool"]


def styled(call: str, thought: str, style: Thoughts) -> str:
    """An assistant turn with its thought in the configured place."""
    if style == "none" or not thought:
        return call
    return render_turn(call, reasoning=thought) if style == "think" else render_turn(call, content=thought)


def with_thoughts(row: ChatRow, thoughts: Sequence[str], style: Thoughts) -> ChatRow:
    """The row in text form with other thoughts. Raises ValueError where they are not one a turn."""
    texts = iter([styled(call, thought, style) for call, thought in zip(calls_of(row), thoughts, strict=True)])
    messages = tuple(
        ChatMessage(role="assistant", content=next(texts)) if message.role == "assistant" else message
        for message in text_row(row).messages
    )
    return row.model_copy(update={"messages": messages, "tools": ()})


def reworded(row: ChatRow, thoughts: Sequence[str], style: Thoughts) -> tuple[ChatRow, Violation]:
    """The row with other thoughts, or as it was with the rule that they break.

    turns: not one a turn. emptied: a thought is gone. markup: protocol tags or special tokens. foresight: a thought
    names the answer before a result does, where the old one did not.
    """
    before = thoughts_of(row)
    thoughts = [thought.strip() for thought in thoughts]
    if len(thoughts) != len(before):
        return row, "turns"
    if any(old and not new for old, new in zip(before, thoughts, strict=True)):
        return row, "emptied"
    if any(neutralise(thought) != thought for thought in thoughts):
        return row, "markup"
    if _foresees(row, before, thoughts):
        return row, "foresight"
    changed = with_thoughts(row, thoughts, style)
    return (row, "altered") if altered(row, changed) else (changed, "")


def altered(before: ChatRow, after: ChatRow) -> bool:
    """Whether anything but words between the calls differs: prompts, calls, results, or what was handed in."""
    return _bones(before) != _bones(after) or before.episode != after.episode or before.id != after.id


def keeps_all(before: ChatRow, after: ChatRow) -> bool:
    """Whether ``after`` only adds calls: every call of ``before`` is there with its result, in order, and the last call
    is the same."""
    if calls_of(before)[-1] != calls_of(after)[-1] or _prompt(before) != _prompt(after):
        return False
    added = iter(_steps(after))
    return all(step in added for step in _steps(before))


def _steps(row: ChatRow) -> list[tuple[str, str]]:
    return list(zip(calls_of(row), [*results_of(row), ""], strict=True))


def _prompt(row: ChatRow) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in text_row(row).messages if message.role in ("system", "user")]


def _bones(row: ChatRow) -> object:
    """All of a conversation but the thoughts."""
    calls = iter(calls_of(row))
    return [
        (message.role, next(calls) if message.role == "assistant" else message.content)
        for message in text_row(row).messages
    ]


def _turns(row: ChatRow) -> list[ChatMessage]:
    return [message for message in native_row(row).messages if message.role == "assistant"]


def _thought(message: ChatMessage) -> str:
    if not message.tool_calls:
        return ""
    return "\n\n".join(filter(None, (message.reasoning_content, message.content)))


def _call(message: ChatMessage) -> str:
    if not message.tool_calls:
        return message.content
    return turn_text(message.model_copy(update={"reasoning_content": "", "content": ""}))


def _foresees(row: ChatRow, before: Sequence[str], after: Sequence[str]) -> bool:
    answer = row.outline().submission
    if answer is None:
        return False
    for turn, result in enumerate([*results_of(row), ""]):
        if mentions(after[turn], answer.answer) and not mentions(before[turn], answer.answer):
            return True
        if mentions(result, answer.answer):
            return False
    return False
