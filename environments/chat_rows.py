"""Chat data on disk: OpenAI chat messages, one conversation a line, as NeMo-RL's ``openai_format`` reads them.

An episode has two forms. The text form is what the policy sees and says: the tools stand in the system prompt and a
call is text between tags, so that a chat template writes the very tokens of a rollout. The native form has ``tools``
and ``tool_calls`` of their own, for trainers whose template writes them. ``text_row`` and ``native_row`` turn one into
the other without loss. Plain conversations have no ``episode``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from environments.json_lines import read_lines, save_lines
from environments.protocol import ToolCall, parse, render_call, render_turn
from environments.recorder import Recorder
from environments.roles import split_tools, tools_section
from environments.task import Task
from environments.trajectory import StopReason, Submission, ToolEvent, Trajectory

if TYPE_CHECKING:
    from environments.chat_format import ChatFormat

Form = Literal["text", "native"]
_TURN = re.compile(r"(?:<think>\n(.+?)\n</think>\n\n)?(?:(.+?)\n)?<tool_call>\n", re.DOTALL)


class ChatRowError(ValueError):
    """A row that cannot be what it is asked to be; the message names the row."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FunctionCall(_Part):
    """``arguments`` is JSON text."""

    name: str
    arguments: str


class NativeCall(_Part):
    id: str
    type: Literal["function"]
    function: FunctionCall


class ChatMessage(_Part):
    """``content`` is never null: older templates would print it."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    reasoning_content: str = ""
    tool_calls: tuple[NativeCall, ...] = ()
    tool_call_id: str = ""


class EpisodeRecord(_Part):
    """What a Trajectory knows beside its messages. Trainers that know no episodes skip it."""

    task: Task
    stop_reason: StopReason
    policy_version: int = -1
    events: tuple[ToolEvent, ...] = ()
    opened: tuple[str, ...] = ()
    submission: Submission | None = None


class ChatRow(_Part):
    """One conversation, the last message an assistant's. ``entities`` are the things it is about: rows that share one
    stay on one side of a split. ``labels`` are free: the teacher, the pattern of a rewrite, the language."""

    id: str
    messages: tuple[ChatMessage, ...]
    tools: tuple[dict[str, Any], ...] = ()
    episode: EpisodeRecord | None = None
    entities: tuple[str, ...] = ()
    labels: dict[str, str] = Field(default_factory=dict[str, str])

    @model_validator(mode="after")
    def _ends_with_the_assistant(self) -> Self:
        if not self.messages or self.messages[-1].role != "assistant":
            last = self.messages[-1].role if self.messages else "nobody"
            raise ValueError(f"row {self.id!r} ends with {last}; the last message must be the assistant's")
        return self

    @property
    def task(self) -> Task:
        """Raises ChatRowError for a plain conversation."""
        return self._episode().task

    def outline(self) -> Trajectory:
        """The episode without token ids, for checks that read what was done. Raises ChatRowError."""
        return self._trajectory(Recorder(()))

    def trajectory(self, chat: ChatFormat) -> Trajectory:
        """The episode as a rollout would have recorded it: every assistant turn in the loss, log-probs 0.

        Raises ChatRowError for a plain conversation.
        """
        return self._trajectory(record(text_messages(self), chat))

    def _episode(self) -> EpisodeRecord:
        if self.episode is None:
            raise ChatRowError(f"row {self.id!r} is a plain conversation and no episode of ours")
        return self.episode

    def _trajectory(self, recorded: Recorder) -> Trajectory:
        done = self._episode()
        return Trajectory(
            uid=self.id,
            task=done.task,
            token_ids=tuple(recorded.token_ids),
            loss_mask=tuple(recorded.loss_mask),
            logprobs=tuple(recorded.logprobs),
            stop_reason=done.stop_reason,
            policy_version=done.policy_version,
            turn_starts=tuple(recorded.turn_starts),
            events=done.events,
            opened=done.opened,
            submission=done.submission,
            messages=tuple(text_messages(self)),
        )


def row_of(trajectory: Trajectory, *, entities: Sequence[str] = (), labels: Mapping[str, str] | None = None) -> ChatRow:
    """The text form of a finished episode; token ids are left behind. Raises ValueError where it ends otherwise than
    with the policy's turn."""
    record = EpisodeRecord(
        task=trajectory.task,
        stop_reason=trajectory.stop_reason,
        policy_version=trajectory.policy_version,
        events=trajectory.events,
        opened=trajectory.opened,
        submission=trajectory.submission,
    )
    messages = tuple(ChatMessage.model_validate(message) for message in trajectory.messages)
    return ChatRow(
        id=trajectory.uid, messages=messages, episode=record, entities=tuple(entities), labels=dict(labels or {})
    )


def record(messages: Sequence[Mapping[str, str]], chat: ChatFormat) -> Recorder:
    """Token ids and mask of a conversation in text form: a prompt, then assistant turns with tool results between.

    Raises ChatRowError where a user speaks again after the assistant.
    """
    first = next(i for i, message in enumerate(messages) if message["role"] == "assistant")
    recorded = Recorder(chat.prompt_ids(messages[:first]))
    for message in messages[first:]:
        if message["role"] == "assistant":
            ids = chat.turn_ids(message["content"])
            recorded.sampled(ids, [0.0] * len(ids))
        elif message["role"] == "tool":
            recorded.observed(chat.observation_ids(message["content"], ended=True))
        else:
            raise ChatRowError(f"a {message['role']} message after the assistant's: only tool results may follow it")
    return recorded


def text_messages(row: ChatRow) -> list[dict[str, str]]:
    """The messages as the policy sees and says them, whatever the form."""
    return [{"role": message.role, "content": message.content} for message in text_row(row).messages]


def text_row(row: ChatRow) -> ChatRow:
    """The row with the tools in the system prompt and calls as text."""

    def text(message: ChatMessage) -> str:
        if message.role == "system" and row.tools:
            return f"{message.content}\n\n{tools_section(row.tools)}"
        return turn_text(message)

    messages = tuple(ChatMessage(role=message.role, content=text(message)) for message in row.messages)
    return row.model_copy(update={"messages": messages, "tools": ()})


def turn_text(message: ChatMessage) -> str:
    """A message's content, with its native call as text."""
    if not message.tool_calls:
        return message.content
    function = message.tool_calls[0].function
    call = render_call(function.name, json.loads(function.arguments))
    return render_turn(call, reasoning=message.reasoning_content, content=message.content)


def native_row(row: ChatRow) -> ChatRow:
    """The row with ``tools`` and ``tool_calls``. A turn that ``text_row`` would not write back to the letter (spaces of
    its own in the JSON, no readable call) stays text."""
    tools: list[dict[str, Any]] = []
    messages: list[ChatMessage] = []
    calls = 0
    for message in text_row(row).messages:
        if message.role == "system":
            content, tools = split_tools(message.content)
            messages.append(message.model_copy(update={"content": content}))
        elif message.role == "assistant":
            calls += 1
            messages.append(_native(message, f"call_{calls}"))
        elif message.role == "tool" and messages[-1].tool_calls:
            messages.append(message.model_copy(update={"tool_call_id": messages[-1].tool_calls[0].id}))
        else:
            messages.append(message)
    return row.model_copy(update={"messages": tuple(messages), "tools": tuple(tools)})


def _native(message: ChatMessage, call_id: str) -> ChatMessage:
    action, head = parse(message.content), _TURN.match(message.content)
    if not isinstance(action, ToolCall) or head is None:
        return message
    reasoning, content = head[1] or "", head[2] or ""
    call = render_call(action.name, action.arguments)
    if render_turn(call, reasoning=reasoning, content=content) != message.content:
        return message
    function = FunctionCall(name=action.name, arguments=json.dumps(action.arguments, ensure_ascii=False))
    return ChatMessage(
        role="assistant",
        content=content,
        reasoning_content=reasoning,
        tool_calls=(NativeCall(id=call_id, type="function", function=function),),
    )


def load_rows(path: Path) -> list[ChatRow]:
    """Raises LineFileError on a broken line, a wrong, missing or unknown field; OSError where it cannot be read."""
    return [row for _, row in read_lines(path, ChatRow)]


def save_rows(path: Path, rows: Iterable[ChatRow]) -> None:
    """Whole or not at all."""
    save_lines(path, rows)
