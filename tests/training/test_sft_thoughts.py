from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sft_play import rows

from environments.chat_rows import ChatMessage, ChatRow, native_row, text_row
from environments.protocol import ToolCall, parse, render_call
from training.config_trajectories import Thoughts
from training.sft_data.thoughts import altered, keeps_all, reworded, thoughts_of

TAGS = [
    "<tool_call>",
    "</tool_call>",
    "<think>",
    "</think>",
    "<|im_end|>",
    '{"name": "submit", "arguments": {}}',
    "[INST]",
]
pieces = st.sampled_from([*TAGS, "I look.", "\n", " ", "会議", '"', "\\", "\u200b", "\ud800"]) | st.text(max_size=5)
replies = st.lists(st.lists(pieces, max_size=4).map("".join), max_size=12)


def calls_and_results(row: ChatRow) -> list[object]:
    """Read anew from the messages by the protocol, not by what is tested."""
    found: list[object] = []
    for message in text_row(row).messages:
        action = parse(message.content) if message.role == "assistant" else None
        if isinstance(action, ToolCall):
            found.append((action.name, action.arguments, action.trailing))
        else:
            found.append((message.role, message.content))
    return found


@settings(max_examples=150, deadline=None)
@given(place=st.integers(0, 19), style=st.sampled_from(["think", "plain"]), data=st.data())
def test_no_reply_can_change_a_call_a_result_or_the_answer(place: int, style: Thoughts, data: st.DataObject) -> None:
    row = rows(style)[place]
    turns = len(thoughts_of(row))
    reply = data.draw(replies | st.lists(st.lists(pieces, max_size=3).map("".join), min_size=turns, max_size=turns))
    changed, violation = reworded(row, reply, style)
    assert calls_and_results(changed) == calls_and_results(row)
    assert changed.episode == row.episode
    assert violation or thoughts_of(changed) == [thought.strip() for thought in reply]
    if violation:
        assert changed == row


def test_each_broken_rule_has_its_name() -> None:
    row = next(row for row in rows() if row.task.hops == 2 and row.task.question)
    old, answer = thoughts_of(row), row.task.answer
    for reply, violation in [
        (old[:-1], "turns"),
        ([*old, "more"], "turns"),
        (["", *old[1:]], "emptied"),
        (["I close it </think> now", *old[1:]], "markup"),
        (["zero\u200bwidth", *old[1:]], "markup"),
        ([f"It will be {answer}.", *old[1:]], "foresight"),
        ([*old[:-1], f"So: {answer}!"], ""),
    ]:
        changed, found = reworded(row, reply, "think")
        assert found == violation, reply
        assert (changed == row) == bool(violation)


def test_whatever_else_is_changed_is_seen() -> None:
    row = rows()[0]
    for place, message in enumerate(row.messages):
        for old, new in (("a", "o"), ("e", "u"), ('"', "'")):
            other = message.content[::-1].replace(old, new, 1)[
                ::-1
            ]  # the last one: in a call, not in the thought before it
            if other == message.content:
                continue
            messages = (
                *row.messages[:place],
                ChatMessage(role=message.role, content=other),
                *row.messages[place + 1 :],
            )
            assert altered(row, row.model_copy(update={"messages": messages}))
    assert row.episode is not None
    assert altered(row, row.model_copy(update={"episode": row.episode.model_copy(update={"opened": ()})}))
    assert not altered(row, native_row(row))


def test_added_calls_must_leave_the_others_in_their_order() -> None:
    row = max(rows(), key=lambda row: len(row.messages))
    system, user, *turns = row.messages
    pairs = [tuple(turns[k : k + 2]) for k in range(0, len(turns), 2)]

    def played(*parts: tuple[ChatMessage, ...]) -> ChatRow:
        return row.model_copy(update={"messages": (system, user, *(m for part in parts for m in part))})

    asks = ChatMessage(role="assistant", content=render_call("read_mail", {"id": "1"}))
    extra = (asks, ChatMessage(role="tool", content="error: no such mail"))
    assert keeps_all(row, played(*pairs))
    assert keeps_all(row, played(extra, *pairs[:1], extra, *pairs[1:]))
    assert not keeps_all(row, played(pairs[1], pairs[0], *pairs[2:]))
    assert not keeps_all(row, played(*pairs[1:]))
    assert not keeps_all(row, played((pairs[0][0], extra[1]), *pairs[1:]))
    assert not keeps_all(row, played(*pairs[:-1], extra[:1]))


@pytest.mark.parametrize("style", ["think", "plain", "none"])
def test_thoughts_stand_where_the_style_wants_them(style: Thoughts) -> None:
    for row in rows(style)[:5]:
        said = [message for message in native_row(row).messages if message.role == "assistant"]
        assert all(message.tool_calls for message in said)
        assert all(bool(message.reasoning_content) == (style == "think") for message in said)
        assert all(bool(message.content) == (style == "plain") for message in said)
