"""A served model as teacher: it is offered the tools natively, and what it calls is played as the policy's own turn.

Its text is untrusted like a mail's: no tag or special token of it gets into the data. A call that cannot be read is the
model's mistake: it is told so, and may mend it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from typing import Any

from corpus_index.backends.base import IndexUnavailable
from corpus_index.document import encodable
from environments.episode import Episode
from environments.protocol import render_call
from environments.roles import split_tools
from environments.tool_schemas import schemas
from environments.trajectory import StopReason
from environments.untrusted import neutralise
from rewards.endpoint import ChatTurn, Endpoint
from rewards.replies import OF_THE_MODEL, EndpointFault, ReplyMessage, Usage
from training.config_trajectories import TeacherConfig, Thoughts
from training.sft_data.talk import Talk
from training.sft_data.teachers import Solved, Try
from training.sft_data.thoughts import styled

_STRAY = "Each turn must call one tool; end with submit."


class EndpointTeacher:
    name = "endpoint"

    def __init__(self, endpoint: Endpoint, episode: Episode, settings: TeacherConfig, thoughts: Thoughts) -> None:
        self._endpoint = endpoint
        self._episode = episode
        self._settings = settings
        self._thoughts: Thoughts = thoughts

    def play(self, tries: Sequence[Try], landed: Callable[[Solved], None]) -> None:
        """Episodes run side by side, as many as the endpoint has places. A refusal or an unusable reply of the model
        ends its own try; a server that is away ends the command."""

        stopped = threading.Event()

        def one(item: Try) -> None:
            if stopped.is_set():
                return
            try:
                landed(self._played(item))
            except EndpointFault:
                raise
            except BaseException:  # the budget is spent, the index is away: what waits in the queue is not begun
                stopped.set()
                raise

        outcomes = self._endpoint.each(one, tries)
        away = [outcome for outcome in outcomes if isinstance(outcome, EndpointFault)]
        if away:
            raise EndpointFault(
                away[-1].reason,
                f"{len(away)} of {len(tries)} episodes could not be played, the last: {away[-1]}. What was played is "
                "kept: give the same command again",
            )

    def _played(self, item: Try) -> Solved:
        """Raises EndpointFault for trouble of the server's, IndexUnavailable."""
        talk = Talk(self._episode, item.taught.task)
        chat = self._opening(talk)
        tokens = Usage()
        try:
            while not talk.state.done:
                completion = self._endpoint.converse(chat, self._tools(talk), seed=item.sample)
                tokens += completion.tokens
                chat += self._turn(talk, completion.message)
        except EndpointFault as fault:
            if fault.reason not in OF_THE_MODEL:
                raise
            return Solved(uid=item.uid, trouble=f"endpoint_{fault.reason.value}", tokens=tokens)
        if talk.state.stop_reason is StopReason.ENVIRONMENT_FAULT:
            raise IndexUnavailable(talk.state.events[-1].error)
        if talk.state.stop_reason is not StopReason.SUBMITTED:
            return Solved(uid=item.uid, trouble=str(talk.state.stop_reason), tokens=tokens)
        return Solved(uid=item.uid, row=talk.row(item.uid), tokens=tokens)

    def _opening(self, talk: Talk) -> list[ChatTurn]:
        system, user = talk.messages
        text, _ = split_tools(system["content"])
        if self._settings.instructions:
            text = f"{text}\n\n{self._settings.instructions}"
        return [{"role": "system", "content": text}, user]

    def _tools(self, talk: Talk) -> list[dict[str, Any]]:
        """In the words of the task's prompt; in full where that says nothing about them."""
        task, settings = talk.state.task, self._episode.toolbox.settings
        describe = "full" if settings.describe == "none" else settings.describe
        return schemas(settings.enabled, task.role, variant=task.tool_variant, describe=describe)

    def _turn(self, talk: Talk, message: ReplyMessage) -> list[ChatTurn]:
        """Play one reply; the messages that it adds to the teacher's own chat."""
        thought = "\n\n".join(filter(None, (message.thought.strip(), (message.content or "").strip())))
        thought = neutralise(thought, self._episode.toolbox.special_tokens)
        if not message.tool_calls:
            observation = talk.say(thought)
            heard = {"role": "user", "content": f"{observation.text}\n{_STRAY}"}
            return [{"role": "assistant", "content": message.content or ""}, heard]
        # A model that calls several tools at once has not seen the first one's result: the others do not count.
        call = message.tool_calls[0]
        observation = talk.say(styled(_call_text(call.function.name, call.function.arguments), thought, self._thoughts))
        said: dict[str, Any] = {
            "role": "assistant",
            "content": message.content or "",
            "tool_calls": [{"id": call.id, "type": "function", "function": call.function.model_dump()}],
        }
        if message.thought and self._settings.send_reasoning:
            said["reasoning_content"] = message.thought
        return [said, {"role": "tool", "tool_call_id": call.id, "content": observation.text}]


def _call_text(name: str, arguments: str) -> str:
    """The call as our protocol writes it; JSON that cannot be read goes in as it is, for the episode to refuse."""
    try:
        call = render_call(name, json.loads(arguments or "{}"))
    except (ValueError, RecursionError):
        call = f'<tool_call>\n{{"name": {json.dumps(name)}, "arguments": {neutralise(arguments)}}}\n</tool_call>'
    return encodable(call)
