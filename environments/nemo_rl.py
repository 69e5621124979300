"""NeMo-RL's environment interface over ``Episode``: a Ray actor for the Proposer, the Solver and built questions."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any, cast

import ray  # pyright: ignore[reportMissingImports]  # only where NeMo-RL is
import torch
from nemo_rl.distributed.ray_actor_environment_registry import (  # pyright: ignore[reportMissingImports]
    ACTOR_ENVIRONMENT_REGISTRY,
)
from nemo_rl.distributed.virtual_cluster import PY_EXECUTABLES  # pyright: ignore[reportMissingImports]
from nemo_rl.environments.interfaces import (  # pyright: ignore[reportMissingImports]
    EnvironmentInterface,
    EnvironmentReturn,
)
from nemo_rl.environments.utils import ENV_REGISTRY, register_env  # pyright: ignore[reportMissingImports]
from pydantic import BaseModel, ConfigDict, Field
from transformers import AutoTokenizer

from corpus_index.backends import open_index
from corpus_index.scope import MailScope
from environments.chat_format import ChatFormat
from environments.episode import Episode, EpisodeSettings, EpisodeState
from environments.nemo_rl_rows import EpisodeInfo
from environments.tools import ToolBox, ToolSettings
from environments.trajectory import StopReason
from environments.turn_glue import TurnGlue

ENV_NAMES = ("futari_proposer", "futari_solver", "futari_questions")
ACTOR = f"{__name__}.SearchActor"
CONCURRENT_STEPS = 64  # NeMo-RL's asynchronous rollout makes a call for each turn of each row

Score = Callable[[EpisodeState], float | None]
"""What a finished episode is paid, or None where it must not be trained on."""


class SearchEnvConfig(BaseModel):
    """A section of NeMo-RL's ``env``: all that an actor needs to play, wherever it is started."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    index: str
    """``embedded:PATH`` (a folder that every node sees) or ``opensearch:URL/NAME``."""
    tokenizer: str
    """Folder or name: the policy's own."""
    template_kwargs: dict[str, Any] = Field(default_factory=dict)
    tools: ToolSettings = ToolSettings()
    episode: EpisodeSettings = EpisodeSettings()
    scope: MailScope = MailScope()
    score: str | None = None
    """``module:factory`` of a ``Score``, for loops in which the environment pays, such as NeMo-RL's ``grpo_train``.
    They cannot leave a row out, so a fault stops them. null: every reward is 0 and whoever reads the results pays."""
    score_settings: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the factory."""


class UnmaskableFault(RuntimeError):
    """An episode that must not be trained on, in a loop that would."""


class SearchEnvironment(
    EnvironmentInterface[EpisodeInfo]  # pyright: ignore[reportUntypedBaseClass]
):
    """Steps episodes of either role; thread-safe. A row's info says which task it plays and how far it is.

    What an actor keeps is the latest state of each named episode until ``pop_results`` asks for it.
    """

    def __init__(self, cfg: Mapping[str, Any]) -> None:
        """Raises ValidationError, ChatFormatError, IndexUnavailable, OSError for a tokenizer that is not there."""
        config = SearchEnvConfig.model_validate(dict(cfg))
        tokenizer = AutoTokenizer.from_pretrained(config.tokenizer)
        chat = ChatFormat(tokenizer, template_kwargs=config.template_kwargs)
        self._glue = TurnGlue(chat)
        self._episode = self._make_episode(config, chat)
        self._score = _score(config)
        self._states: dict[str, EpisodeState] = {}
        self._lock = Lock()
        self._rows = ThreadPoolExecutor(config.tools.max_concurrent_calls)

    def _make_episode(self, config: SearchEnvConfig, chat: ChatFormat) -> Episode:
        index = open_index(config.index)
        if config.scope != MailScope():
            index = index.within(config.scope)
        return Episode(ToolBox(index, config.tools, special_tokens=chat.special_tokens()), config.episode)

    def step(  # pyright: ignore[reportUnknownParameterType]  # EnvironmentReturn is NeMo-RL's
        self, message_log_batch: Sequence[Sequence[Mapping[str, Any]]], metadata: Sequence[EpisodeInfo]
    ) -> EnvironmentReturn[EpisodeInfo]:
        """One turn of each row. The policy's errors are observations; what a fault ended is marked in its state.

        Raises ValueError for two rows of one episode id, UnmaskableFault.
        """
        if len(metadata) == 1:
            turns = [self._turn(message_log_batch[0], metadata[0])]
        else:
            turns = list(self._rows.map(self._turn, message_log_batch, metadata))
        states = [state for _, state in turns]
        return EnvironmentReturn(
            observations=[{"role": "tool", "content": content} for content, _ in turns],
            metadata=[_at(info, state) for info, state in zip(metadata, states, strict=True)],
            next_stop_strings=[None] * len(turns),
            rewards=torch.tensor([self._pay(state) for state in states], dtype=torch.float32),
            terminateds=torch.tensor([state.done for state in states]),
            answers=[state.submission.answer if state.submission else None for state in states],
        )

    def pop_results(self, episode_ids: Sequence[str]) -> dict[str, EpisodeState]:
        """The latest states of these episodes, which are then forgotten; those never seen here are left out."""
        with self._lock:
            return {name: self._states.pop(name) for name in episode_ids if name in self._states}

    def global_post_process_and_metrics(self, batch: Any) -> tuple[Any, dict[str, float]]:
        """The batch as it is: rewards and metrics come from the results."""
        return batch, {}

    def shutdown(self) -> None:
        self._rows.shutdown()

    def _turn(self, log: Sequence[Mapping[str, Any]], info: EpisodeInfo) -> tuple[str, EpisodeState]:
        """What to tell the policy, and the state after its turn."""
        if log[-1]["role"] != "assistant":
            raise ValueError(f"a message log ends with the role {log[-1]['role']!r}; expected the assistant's turn")
        before = info["state"] or self._episode.start(info["task"])[0]
        text, ended = self._glue.heard(str(log[-1]["content"]))
        observation, state = self._episode.step(before, text)
        self._keep(info["episode_id"], state)
        return "" if observation.done else self._glue.observation(observation.text, ended=ended), state

    def _keep(self, episode_id: str, state: EpisodeState) -> None:
        if not episode_id:
            return
        with self._lock:
            known = self._states.get(episode_id)
            if known is not None and known.turn >= state.turn:
                raise ValueError(
                    f"episode {episode_id!r} is at turn {known.turn} and another row of that id at turn {state.turn}: "
                    "give ids to rows after they are repeated for their group, and pop the results of every rollout"
                )
            self._states[episode_id] = state

    def _pay(self, state: EpisodeState) -> float:
        if self._score is None or not state.done:
            return 0.0
        pay = None if state.stop_reason is StopReason.ENVIRONMENT_FAULT else self._score(state)
        if pay is None:
            last = state.events[-1].error if state.events else ""
            raise UnmaskableFault(
                f"an episode of group {state.task.group_id!r} must not be trained on ({last or 'no verdict'}), and "
                "this loop cannot leave it out: mend the index or the judge and start again from the last checkpoint"
            )
        return pay


def _at(info: EpisodeInfo, state: EpisodeState) -> EpisodeInfo:
    return EpisodeInfo(episode_id=info["episode_id"], task=info["task"], state=state)


def _score(config: SearchEnvConfig) -> Score | None:
    if config.score is None:
        return None
    return cast("Score", pkgutil.resolve_name(config.score)(**config.score_settings))


# NeMo-RL's create_env sets no concurrency of its own, and an actor's default of 1 makes rollouts wait for each other.
SearchActor = ray.remote(max_concurrency=CONCURRENT_STEPS)(SearchEnvironment)


def register() -> None:
    """Let NeMo-RL's ``create_env`` find the actor under ``ENV_NAMES``, in the driver's own Python. May be repeated."""
    ACTOR_ENVIRONMENT_REGISTRY[ACTOR] = PY_EXECUTABLES.SYSTEM
    for name in ENV_NAMES:
        if name not in ENV_REGISTRY:
            register_env(name, ACTOR)
