from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from chat_templates import tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st
from mail_fakes import FakeIndex, mail

from corpus_index.scope import MailScope
from environments.chat_format import ChatFormat
from environments.chat_rows import (
    ChatMessage,
    ChatRow,
    ChatRowError,
    load_rows,
    native_row,
    row_of,
    save_rows,
    text_messages,
    text_row,
)
from environments.episode import Episode
from environments.json_lines import LineFileError, whole_lines
from environments.protocol import neutralise, render_call, render_turn
from environments.recorder import Recorder
from environments.roles import split_tools, system_prompt
from environments.task import Role, Task
from environments.tools import ToolBox, ToolSettings
from environments.trajectory import Trajectory

TURNS = (
    render_turn(render_call("search_keyword", {"keywords": ["Falcon"]}), reasoning="Which mail?\nI search."),
    render_turn(render_call("read_mail", {"id": "0001"}), content="Here it is."),
    'I say so. <tool_call>\n{"arguments": {"id":"0001"},  "name": "read_mail"}\n</tool_call> and more',
    render_call("no_such_tool", {}),
    render_turn(render_call("submit", {"answer": "房 12 </think>", "evidence": ["0001"]}), reasoning="a", content="b"),
)


def played(chat: ChatFormat, turns: tuple[str, ...] = TURNS, describe: str = "full") -> Trajectory:
    """An episode as an engine records it."""
    toolbox = ToolBox(
        FakeIndex([mail(1, "Falcon review", "Room 12, see <tool_call> [INST]", folder="inbox")]),
        ToolSettings.model_validate({"describe": describe}),
    )
    episode = Episode(toolbox)
    task = Task(
        role=Role.SOLVER, group_id="g", question="Which room?", answer="12", tool_variant=3,
        scope=MailScope(folders=("inbox",)),
    )  # fmt: skip
    state, messages = episode.start(task)
    recorder = Recorder(chat.prompt_ids(messages))
    for text in turns:
        ids = chat.turn_ids(text)
        recorder.sampled(ids, [0.0] * len(ids))
        observation, state = episode.step(state, text)
        messages.append({"role": "assistant", "content": text})
        if observation.done:
            break
        recorder.observed(chat.observation_ids(observation.text, ended=True))
        messages.append({"role": "tool", "content": observation.text})
    return recorder.trajectory(uid="t/1", state=state, policy_version=4, messages=messages)


@pytest.mark.parametrize("style", ["qwen3", "llama3", "gemma"])
@pytest.mark.parametrize("describe", ["full", "brief", "none"])
def test_an_episode_survives_the_file_in_both_forms(tmp_path: Path, style: str, describe: str) -> None:
    """Tokens, mask, turns, events, task and submission: all of a trajectory is read back."""
    chat = ChatFormat(tokenizer(style))
    trajectory = played(chat, describe=describe)
    row = row_of(trajectory, entities=["Falcon"], labels={"teacher": "x"})
    for form in (row, native_row(row)):
        save_rows(tmp_path / "rows.jsonl", [form])
        (loaded,) = load_rows(tmp_path / "rows.jsonl")
        assert loaded == form
        assert loaded.trajectory(chat) == trajectory
        assert text_row(loaded) == row


def test_the_native_form_is_openai_chat() -> None:
    chat = ChatFormat(tokenizer("qwen3"))
    native = json.loads(native_row(row_of(played(chat))).model_dump_json(exclude_defaults=True))
    system, user, first, result, second, _, third, _, _, _, last = native["messages"]
    assert "<tools>" not in system["content"]
    assert [tool["function"]["name"] for tool in native["tools"]] == [
        "search_keyword", "search_bool", "read_mail", "submit",
    ]  # fmt: skip
    assert user == {"role": "user", "content": "Question: Which room?"}
    assert first["reasoning_content"] == "Which mail?\nI search."
    assert first["content"] == ""
    (call,) = first["tool_calls"]
    assert call["type"] == "function"
    assert json.loads(call["function"]["arguments"]) == {"keywords": ["Falcon"]}
    assert result["tool_call_id"] == call["id"]
    assert second["content"] == "Here it is."
    assert third == {"role": "assistant", "content": TURNS[2]}  # its JSON has an order of its own
    assert json.loads(last["tool_calls"][0]["function"]["arguments"])["answer"] == "房 12 </think>"
    ids = [m["tool_calls"][0]["id"] for m in native["messages"] if "tool_calls" in m]
    assert len(set(ids)) == len(ids) == 4


PIECES = ["a", " ", "{", "}", '"', "\n", "<", ">", "/", "\\", "房", "<think>", "</think>\n\n", "<tool_call>\n"]
texts = st.lists(st.sampled_from(PIECES), max_size=6).map("".join)
values = st.recursive(
    texts | st.integers() | st.booleans() | st.none(), lambda v: st.lists(v, max_size=2), max_leaves=4
)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(texts, texts, st.dictionaries(texts, values, max_size=2)).map(
            lambda t: render_turn(render_call("n", t[2]), reasoning=neutralise(t[0]), content=neutralise(t[1]))
        )
        | texts,
        min_size=1,
        max_size=4,
    )
)
def test_any_turn_comes_back_to_the_letter(turns: list[str]) -> None:
    messages = [{"role": "assistant", "content": turn} for turn in turns]
    row = ChatRow.model_validate({"id": "r", "messages": messages})
    assert text_messages(native_row(row)) == messages
    assert native_row(text_row(native_row(row))) == native_row(row)


@pytest.mark.parametrize("role", list(Role))
def test_the_tools_part_from_the_system_prompt_and_join_it_again(role: Role) -> None:
    whole = system_prompt(role, ToolSettings(), variant=2, max_turns=8)
    text, tools = split_tools(whole)
    assert text == system_prompt(role, ToolSettings(describe="none"), variant=2, max_turns=8)
    assert tools[-1]["function"]["name"] == "submit"
    for odd in ("no tools", text, f"{whole} and more", whole.replace('"type"', '"tpye', 1), "<tools>\n\n</tools>"):
        assert split_tools(odd) == (odd, [])


def test_plain_conversations_are_rows_too(tmp_path: Path) -> None:
    row = ChatRow.model_validate(
        {"id": "a", "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]}
    )
    save_rows(tmp_path / "rows.jsonl", [row])
    assert load_rows(tmp_path / "rows.jsonl") == [row] == [native_row(row)]
    with pytest.raises(ChatRowError, match="'a' is a plain conversation"):
        row.outline()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"messages": []}, "ends with nobody"),
        ({"messages": [{"role": "user", "content": "x"}]}, "ends with user"),
        ({"messages": [{"role": "assistant", "content": None}]}, "messages.0.content"),
        ({"message": []}, "message: Extra inputs"),
    ],
)
def test_a_broken_row_is_named_by_file_and_line(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    row = {"id": "a", "messages": [{"role": "assistant", "content": "x"}]}
    (tmp_path / "rows.jsonl").write_text(f"{json.dumps(row)}\n\n{json.dumps(row | change)}\n")
    with pytest.raises(LineFileError, match=rf"rows\.jsonl, line 3: .*{message}"):
        load_rows(tmp_path / "rows.jsonl")


def test_a_user_who_speaks_again_has_no_place_in_an_episode() -> None:
    chat = ChatFormat(tokenizer("qwen3"))
    row = row_of(played(chat))
    again = (*row.messages, ChatMessage(role="user", content="and?"), ChatMessage(role="assistant", content="x"))
    with pytest.raises(ChatRowError, match="a user message after the assistant's"):
        row.model_copy(update={"messages": again}).trajectory(chat)


def test_a_line_that_a_kill_cut_short_is_taken_off(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    assert whole_lines(path) == []
    path.write_bytes(b'{"a": 1}\n{"a": 2')
    assert whole_lines(path) == [b'{"a": 1}']
    assert path.read_bytes() == b'{"a": 1}\n'
