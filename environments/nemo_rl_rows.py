"""Tasks <-> the rows of NeMo-RL's rollouts: prompts in, message logs back, as trajectories of exact token ids."""

from __future__ import annotations

import math
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict, cast

import torch
from torch import Tensor

from environments.chat_format import ChatFormat
from environments.episode import Episode, EpisodeState
from environments.recorder import Recorder
from environments.task import Task
from environments.trajectory import StopReason, Trajectory
from environments.turn_glue import TurnGlue


class EpisodeInfo(TypedDict):
    """A row's ``extra_env_info``, the only field of ours that NeMo-RL carries along.

    ``state`` travels with the row, so that any actor can take any turn; None before the first. The last one is kept by
    the actor under ``episode_id`` (``pop_results``), because a final turn's info is dropped. An empty ``episode_id``:
    nobody will ask.
    """

    episode_id: str
    task: Task
    state: EpisodeState | None


class Row(TypedDict):
    """NeMo-RL's ``DatumSpec``."""

    message_log: list[dict[str, Any]]
    length: int
    extra_env_info: EpisodeInfo
    loss_multiplier: float
    idx: int
    task_name: str


class LogMismatch(ValueError):
    """A message log whose token ids are not those of its texts: it must not be trained on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutLimits:
    """What the rollout was called with: tokens of a trajectory, prompt included, and assistant turns."""

    max_seq_len: int
    max_rollout_turns: int


class RolloutTokenizer:
    """The tokenizer to hand to NeMo-RL's rollouts: they decode turns and encode observations with it.

    Turns keep their special tokens and whether they closed themselves; observations get ``ChatFormat``'s ids, in which
    nothing that a mail says is a special token. Everything else is the tokenizer's own.
    """

    def __init__(self, chat: ChatFormat) -> None:
        self._glue = TurnGlue(chat)

    def __call__(self, text: str, **_: object) -> Encoded:
        return Encoded(torch.tensor([self._glue.observation_ids(text)], dtype=torch.int64))

    def batch_decode(self, sequences: Sequence[Sequence[int] | Tensor], **_: object) -> list[str]:
        return [self._glue.said(ids_of(sequence)) for sequence in sequences]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # not there yet while it is unpickled
            raise AttributeError(name)
        return getattr(self._glue.chat.tokenizer, name)


@dataclass(frozen=True, slots=True)
class Encoded:
    """``input_ids`` is ``[1, tokens]``, int64."""

    input_ids: Tensor


def make_rows(
    tasks: Sequence[Task],
    episode: Episode,
    chat: ChatFormat,
    *,
    episode_ids: Sequence[str] | None = None,
    task_name: str | None = None,
) -> list[Row]:
    """One row a task, for ``rl_collate_fn``. ``task_name`` None: the role's name.

    ``episode_ids`` are all different. Without them rows are made for a loop that copies each for its group and never
    asks for results, such as NeMo-RL's own ``grpo_train``. Raises ValueError for an id that occurs twice.
    """
    ids = [""] * len(tasks) if episode_ids is None else list(episode_ids)
    if episode_ids is not None and len(set(ids)) != len(ids):
        raise ValueError(f"{len(ids)} episode ids of which {len(set(ids))} differ: give each rollout an id of its own")
    prompts = _Prompts(episode, chat)
    rows: list[Row] = []
    for number, (task, episode_id) in enumerate(zip(tasks, ids, strict=True)):
        token_ids = prompts.token_ids(task)
        text = str(chat.tokenizer.decode(token_ids, skip_special_tokens=False))
        rows.append(
            Row(
                message_log=[{"role": "user", "content": text, "token_ids": torch.tensor(token_ids)}],
                length=len(token_ids),
                extra_env_info=EpisodeInfo(episode_id=episode_id, task=task, state=None),
                loss_multiplier=1.0,
                idx=number,
                task_name=task_name or task.role.value,
            )
        )
    return rows


def group_numbers(batch: Mapping[str, Any]) -> Tensor:
    """``[rows, 1]``, int64: equal for rows of one group, and only for those. For the advantages, in place of the
    prompts by whose ids NeMo-RL tells groups apart: two groups with one prompt stay two."""
    numbers: dict[str, int] = {}
    groups = (cast("EpisodeInfo", info)["task"].group_id for info in batch["extra_env_info"])
    return torch.tensor([[numbers.setdefault(group, len(numbers))] for group in groups])


def read_back(
    batch: Mapping[str, Any],
    states: Mapping[str, EpisodeState],
    *,
    episode: Episode,
    chat: ChatFormat,
    limits: RolloutLimits,
    policy_version: int,
) -> list[Trajectory]:
    """One trajectory a row of a finished rollout, in order. ``states`` are what ``pop_results`` gave.

    What no actor remembers is replayed from the message log, tools run again. A rollout that lost its generation ends
    with ENVIRONMENT_FAULT, as one that lost the index. Nothing after the last sampled token is kept.

    Raises LogMismatch.
    """
    reader = _LogReader(episode, chat, limits, policy_version)
    return [
        reader.trajectory(log, info, states.get(info["episode_id"]), truncated=bool(truncated))
        for log, info, truncated in zip(batch["message_log"], batch["extra_env_info"], batch["truncated"], strict=True)
    ]


def mask_faults(batch: MutableMapping[str, Any], trajectories: Sequence[Trajectory]) -> int:
    """Take the rows of faulted episodes out of the loss. Returns how many there are."""
    faulted = torch.tensor([trajectory.stop_reason is StopReason.ENVIRONMENT_FAULT for trajectory in trajectories])
    batch["loss_multiplier"] = torch.where(faulted, 0.0, batch["loss_multiplier"])
    return int(faulted.sum())


def ids_of(tokens: Sequence[int] | Tensor) -> list[int]:
    return [int(token) for token in (tokens.tolist() if isinstance(tokens, Tensor) else tokens)]


class _Prompts:
    """A group shares its prompt: encoded once."""

    def __init__(self, episode: Episode, chat: ChatFormat) -> None:
        self._episode = episode
        self._chat = chat
        self._known: dict[tuple[str, ...], list[int]] = {}

    def messages(self, task: Task) -> list[dict[str, str]]:
        return self._episode.start(task)[1]

    def token_ids(self, task: Task) -> list[int]:
        messages = self.messages(task)
        written = tuple(message["content"] for message in messages)
        if written not in self._known:
            self._known[written] = self._chat.prompt_ids(messages)
        return self._known[written]


class _LogReader:
    def __init__(self, episode: Episode, chat: ChatFormat, limits: RolloutLimits, policy_version: int) -> None:
        self._episode = episode
        self._chat = chat
        self._glue = TurnGlue(chat)
        self._prompts = _Prompts(episode, chat)
        self._limits = limits
        self._version = policy_version

    def trajectory(
        self, log: Sequence[Mapping[str, Any]], info: EpisodeInfo, state: EpisodeState | None, *, truncated: bool
    ) -> Trajectory:
        uid, task = info["episode_id"], info["task"]
        prompt = ids_of(log[0]["token_ids"])
        if prompt != self._prompts.token_ids(task):
            raise LogMismatch(f"rollout {uid!r}: its prompt is not that of its task, group {task.group_id!r}")
        recorder = Recorder(prompt)
        messages = [dict(message) for message in self._prompts.messages(task)]
        turns = [place for place, message in enumerate(log) if message["role"] == "assistant"]
        last = turns[-1] if turns else 0
        texts: list[str] = []
        for message in log[1 : last + 1]:
            if message["role"] == "assistant":
                texts.append(self._sampled(recorder, message, uid))
                messages.append({"role": "assistant", "content": texts[-1]})
            else:
                messages.append({"role": "tool", "content": self._observed(recorder, message, uid)})
        if state is None:
            state = self._episode.replay(task, texts)
        elif texts and state.turn != len(texts):
            raise LogMismatch(
                f"rollout {uid!r}: {len(texts)} turns in its log and {state.turn} in the environment; each rollout "
                "needs an episode id of its own"
            )
        cut = self._cut(log[last], len(recorder)) if turns else False
        reason = StopReason.MAX_TOKENS if cut else state.stop_reason or self._unfinished(len(texts), truncated)
        if cut:  # by the end of the context, in mid-turn: what stands there is not a turn
            state = replace(state, submission=None)
        return recorder.trajectory(
            uid=uid, state=state, policy_version=self._version, messages=messages, stop_reason=reason
        )

    def _unfinished(self, turns: int, truncated: bool) -> StopReason:
        if truncated and turns:
            return StopReason.MAX_TOKENS
        # NeMo-RL's asynchronous rollout swallows the errors of generation and hands the row back as it stands.
        return StopReason.MAX_TURNS if turns >= self._limits.max_rollout_turns else StopReason.ENVIRONMENT_FAULT

    def _cut(self, turn: Mapping[str, Any], tokens: int) -> bool:
        ids = ids_of(turn["token_ids"])
        return not ids or (ids[-1] not in self._chat.end_of_turn_ids and tokens >= self._limits.max_seq_len)

    def _sampled(self, recorder: Recorder, message: Mapping[str, Any], uid: str) -> str:
        ids = ids_of(message["token_ids"])
        logprobs = [float(value) for value in message["generation_logprobs"]]
        content = str(message["content"])
        if len(ids) != len(logprobs) or not all(map(math.isfinite, logprobs)):
            raise LogMismatch(f"rollout {uid!r}: {len(ids)} sampled ids with {len(logprobs)} log-probs, not all finite")
        if content not in (self._glue.said(ids), self._chat.tokenizer.decode(ids, skip_special_tokens=True)):
            raise LogMismatch(f"rollout {uid!r}: a turn's ids decode to {self._glue.said(ids)!r}, not {content!r}")
        if not set(self._chat.end_of_turn_ids).isdisjoint(ids[:-1]):
            raise LogMismatch(f"rollout {uid!r}: a turn went on behind its end: {self._glue.said(ids)!r}")
        if ids:
            recorder.sampled(ids, logprobs)
        return self._glue.heard(content)[0]

    def _observed(self, recorder: Recorder, message: Mapping[str, Any], uid: str) -> str:
        ids, content = ids_of(message["token_ids"]), str(message["content"])
        plain = self._chat.tokenizer.encode(content, add_special_tokens=False)
        if ids not in (self._glue.observation_ids(content), plain):
            raise LogMismatch(f"rollout {uid!r}: the ids of an observation are not those of {content[:80]!r}")
        recorder.observed(ids)
        return self._glue.result(content)
