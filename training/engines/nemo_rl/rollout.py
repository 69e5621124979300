"""Tasks to trajectories by NeMo-RL's rollout over our environment actors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from environments.chat_format import ChatFormat
from environments.episode import Episode
from environments.nemo_rl_rows import RolloutLimits, RolloutTokenizer, Row, make_rows, read_back
from environments.recorder import Recorder
from environments.task import Role, Task
from environments.trajectory import StopReason, Trajectory
from training.engines.nemo_rl.pieces import Pieces, collated, play, result_of

StartActor = Callable[[Episode], Any]
"""A Ray actor of ``environments.nemo_rl`` that plays on this episode's corpus with its tools."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """``metrics`` are NeMo-RL's own of the rollout."""

    trajectories: list[Trajectory]
    metrics: Mapping[str, Any]


class Roller:
    """One actor a corpus, kept from rollout to rollout."""

    def __init__(self, chat: ChatFormat, limits: RolloutLimits, start_actor: StartActor) -> None:
        self._chat = chat
        self._limits = limits
        self._start_actor = start_actor
        self._actors: list[tuple[Episode, Any]] = []
        self._tokenizer = RolloutTokenizer(chat)

    def roll(
        self, pieces: Pieces, episode: Episode, tasks: Sequence[Task], *, greedy: bool, policy_version: int
    ) -> Rollout:
        """One trajectory a task, in the order of ``tasks``.

        Raises ValueError for a prompt that leaves no room; with an ``opening`` that episode ends by MAX_TOKENS before
        its first turn instead.
        """
        uids = rollout_ids(tasks)
        rows = make_rows(tasks, episode, self._chat, episode_ids=uids)
        full = [row["length"] >= self._limits.max_seq_len for row in rows]
        finished = {
            uid: self._full(row, episode, policy_version) for uid, row, no in zip(uids, rows, full, strict=True) if no
        }
        open_rows = [row for row, no in zip(rows, full, strict=True) if not no]
        metrics: Mapping[str, Any] = {}
        if open_rows:
            played, metrics = self._play(pieces, episode, open_rows, greedy=greedy, policy_version=policy_version)
            finished |= {trajectory.uid: trajectory for trajectory in played}
        return Rollout([finished[uid] for uid in uids], metrics)

    def _play(
        self, pieces: Pieces, episode: Episode, rows: Sequence[Row], *, greedy: bool, policy_version: int
    ) -> tuple[list[Trajectory], Mapping[str, Any]]:
        actor = self._actor(episode)
        names = [row["extra_env_info"]["episode_id"] for row in rows]
        try:
            batch, metrics = play(
                pieces, collated(rows), self._tokenizer, {role.value: actor for role in Role},
                longest=self._limits.max_seq_len, turns=self._limits.max_rollout_turns, greedy=greedy,
            )  # fmt: skip
        finally:  # a rollout that broke down must not leave its states for the next of the same ids
            states = result_of(actor.pop_results.remote(names))
        trajectories = read_back(
            batch, states, episode=episode, chat=self._chat, limits=self._limits, policy_version=policy_version
        )
        return trajectories, metrics

    def _full(self, row: Row, episode: Episode, policy_version: int) -> Trajectory:
        task, uid = row["extra_env_info"]["task"], row["extra_env_info"]["episode_id"]
        if not task.opening:
            raise ValueError(
                f"the prompt of group {task.group_id!r} has {row['length']} tokens and a trajectory may have "
                f"{self._limits.max_seq_len}: raise policy.max_total_sequence_length or shorten the prompt"
            )
        state, messages = episode.start(task)
        recorder = Recorder([int(token) for token in row["message_log"][0]["token_ids"]])
        return recorder.trajectory(
            uid=uid, state=state, policy_version=policy_version, messages=messages, stop_reason=StopReason.MAX_TOKENS
        )

    def _actor(self, episode: Episode) -> Any:
        for known, actor in self._actors:
            if known is episode:
                return actor
        actor = self._start_actor(episode)
        self._actors.append((episode, actor))
        return actor


def rollout_ids(tasks: Sequence[Task]) -> list[str]:
    """``group/member``, as the local engine names its trajectories."""
    seen: dict[str, int] = {}
    ids: list[str] = []
    for task in tasks:
        member = seen.get(task.group_id, 0)
        seen[task.group_id] = member + 1
        ids.append(f"{task.group_id}/{member}")
    return ids
