"""An episode as a chat of messages, without token ids: for teachers behind an endpoint, and to play episodes again."""

from __future__ import annotations

from environments.chat_rows import ChatRow, row_of
from environments.episode import Episode, EpisodeState, Observation
from environments.recorder import Recorder
from environments.task import Task


class Talk:
    """``messages`` grow by what is said and what the tools answer."""

    def __init__(self, episode: Episode, task: Task) -> None:
        self._episode = episode
        self.state: EpisodeState
        self.state, self.messages = episode.start(task)

    def say(self, text: str) -> Observation:
        """One assistant turn. Raises ValueError when the episode is over."""
        observation, self.state = self._episode.step(self.state, text)
        self.messages.append({"role": "assistant", "content": text})
        if not observation.done:
            self.messages.append({"role": "tool", "content": observation.text})
        return observation

    def row(self, uid: str) -> ChatRow:
        """The finished episode. Raises ValueError before its end."""
        return row_of(Recorder(()).trajectory(uid=uid, state=self.state, policy_version=-1, messages=self.messages))
