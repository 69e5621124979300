"""Episode: a step function from (state, the model's text) to (observation, state). No model, no engine, no Ray."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from corpus_index.backends.base import IndexUnavailable
from environments.apart import Outputs, heard
from environments.protocol import SUBMIT, Malformed, ToolCall, parse
from environments.roles import (
    PromptStyle,
    SubmissionError,
    SubmissionLimits,
    parse_submission,
    system_prompt,
    user_prompt,
)
from environments.task import Task
from environments.tools import ToolBox, ToolOutcome
from environments.trajectory import StopReason, Submission, ToolEvent
from environments.untrusted import fold_line, neutralise


class EpisodeLimits(BaseModel):
    """``max_errors`` in a row end the episode: broken calls, failed tools and refused submissions all count."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_turns: Annotated[int, Field(ge=1)] = 8
    max_errors: Annotated[int, Field(ge=1)] = 3
    submission: SubmissionLimits = SubmissionLimits()


class EpisodeSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt_style: PromptStyle = "full"
    limits: EpisodeLimits = EpisodeLimits()
    outputs: Outputs = "mirrored"
    """apart: the roles hand in by tools and fields of different names. It is there to show a failure, and needs
    ``tools.describe`` none."""


@dataclass(frozen=True, slots=True)
class EpisodeState:
    """``turn`` turns are over. ``opened`` and ``shown`` are mail ids in order of first sight, each once; ``errors`` is
    the present run of failed turns. ``stop_reason`` is None while the episode goes on."""

    task: Task
    turn: int = 0
    events: tuple[ToolEvent, ...] = ()
    opened: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    errors: int = 0
    submission: Submission | None = None
    stop_reason: StopReason | None = None

    @property
    def done(self) -> bool:
        return self.stop_reason is not None


@dataclass(frozen=True, slots=True)
class Observation:
    """``text`` goes into the tool turn; it is empty after a submission. Nothing follows once ``done``."""

    text: str
    done: bool


class Episode:
    """Holds no state of its own: the same state and text over the same index give the same result."""

    def __init__(self, toolbox: ToolBox, settings: EpisodeSettings | None = None) -> None:
        self.toolbox = toolbox
        self.settings = settings or EpisodeSettings()

    def start(self, task: Task) -> tuple[EpisodeState, list[dict[str, str]]]:
        """The first state, and the system and user messages."""
        style = self.settings.prompt_style
        system = system_prompt(
            task.role,
            self.toolbox.settings,
            style,
            variant=task.tool_variant,
            max_turns=self._max_turns(task),
            without_tools=task.without_tools,
        )
        user = user_prompt(task, style, self.toolbox.special_tokens)
        return EpisodeState(task), [{"role": "system", "content": system}, {"role": "user", "content": user}]

    @property
    def asynchronous(self) -> bool:
        """Whether ``astep`` leaves its loop free while a tool runs."""
        return self.toolbox.asynchronous

    def step(self, state: EpisodeState, text: str) -> tuple[Observation, EpisodeState]:
        """Read one assistant turn and act on it. Raises ValueError when the episode is over."""
        action = self._read(state, text)
        if not isinstance(action, ToolCall):
            return action
        try:
            outcome = self.toolbox.run(action, state.task.scope)
        except IndexUnavailable as fault:
            return _faulted(state, action, fault)
        return self._called(state, action, outcome)

    async def astep(self, state: EpisodeState, text: str) -> tuple[Observation, EpisodeState]:
        """``step`` without blocking the loop while the tool runs."""
        action = self._read(state, text)
        if not isinstance(action, ToolCall):
            return action
        try:
            outcome = await self.toolbox.arun(action, state.task.scope)
        except IndexUnavailable as fault:
            return _faulted(state, action, fault)
        return self._called(state, action, outcome)

    async def aclose(self) -> None:
        """Close the connections that ``astep`` opened."""
        await self.toolbox.aclose()

    def replay(self, task: Task, assistant_texts: Iterable[str]) -> EpisodeState:
        """The state after these turns, tools run again: what a framework lost is recovered from the message log."""
        state, _ = self.start(task)
        for text in assistant_texts:
            if state.done:
                break
            _, state = self.step(state, text)
        return state

    def _read(self, state: EpisodeState, text: str) -> ToolCall | tuple[Observation, EpisodeState]:
        """The call to run a tool with, or where the turn leads without one."""
        if state.stop_reason is not None:
            raise ValueError(f"the episode of group {state.task.group_id!r} ended already ({state.stop_reason})")
        action = heard(parse(text), state.task.role, self.settings.outputs)
        if isinstance(action, Malformed):
            return self._failed(state, "", {}, action.reason)
        if action.name == SUBMIT:
            return self._submit(state, action)
        if state.task.without_tools:
            return self._failed(state, action.name, action.arguments, f"there are no tools here, only {SUBMIT}")
        return action

    def _called(self, state: EpisodeState, call: ToolCall, outcome: ToolOutcome) -> tuple[Observation, EpisodeState]:
        if outcome.error:
            return self._failed(state, call.name, call.arguments, outcome.error)
        event = ToolEvent(state.turn, call.name, call.arguments, "", outcome.shown_ids)
        after = replace(
            state,
            turn=state.turn + 1,
            events=(*state.events, event),
            opened=_with_new(state.opened, [outcome.opened_id] if outcome.opened_id else []),
            shown=_with_new(state.shown, outcome.shown_ids),
            errors=0,
        )
        return self._going_on(after, outcome.text)

    def _submit(self, state: EpisodeState, call: ToolCall) -> tuple[Observation, EpisodeState]:
        try:
            submission = parse_submission(state.task.role, call.arguments, self.settings.limits.submission)
        except SubmissionError as error:
            return self._failed(state, SUBMIT, call.arguments, str(error))
        event = ToolEvent(state.turn, SUBMIT, call.arguments)
        ended = replace(
            state,
            turn=state.turn + 1,
            events=(*state.events, event),
            errors=0,
            submission=submission,
            stop_reason=StopReason.SUBMITTED,
        )
        return Observation("", True), ended

    def _failed(
        self, state: EpisodeState, name: str, arguments: dict[str, Any], reason: str
    ) -> tuple[Observation, EpisodeState]:
        reason = neutralise(fold_line(reason), self.toolbox.special_tokens)
        after = replace(
            state,
            turn=state.turn + 1,
            events=(*state.events, ToolEvent(state.turn, name, arguments, reason)),
            errors=state.errors + 1,
        )
        return self._going_on(after, f"error: {reason}")

    def _going_on(self, state: EpisodeState, text: str) -> tuple[Observation, EpisodeState]:
        limits = self.settings.limits
        reason = None
        if state.errors >= limits.max_errors:
            reason = StopReason.TOO_MANY_ERRORS
        elif state.turn >= self._max_turns(state.task):
            reason = StopReason.MAX_TURNS
        return Observation(text, reason is not None), replace(state, stop_reason=reason)

    def _max_turns(self, task: Task) -> int:
        own = self.settings.limits.max_turns
        return own if task.turns is None else min(own, task.turns)


def _faulted(state: EpisodeState, call: ToolCall, fault: IndexUnavailable) -> tuple[Observation, EpisodeState]:
    event = ToolEvent(state.turn, call.name, call.arguments, f"index unavailable: {fault}")
    return Observation("", True), replace(
        state, turn=state.turn + 1, events=(*state.events, event), stop_reason=StopReason.ENVIRONMENT_FAULT
    )


def _with_new(seen: tuple[str, ...], ids: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*seen, *ids)))
