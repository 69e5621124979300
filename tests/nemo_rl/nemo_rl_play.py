"""What the tests of NeMo-RL share: a company on disk, a tokenizer, and a generation that says what a test wants."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

import ray
import torch
from company_play import Place, load, place
from nemo_rl.data.collate_fn import rl_collate_fn
from nemo_rl.distributed.batched_data_dict import BatchedDataDict
from nemo_rl.experience.rollouts import run_async_multi_turn_rollout, run_multi_turn_rollout
from nemo_rl.models.generation.interfaces import GenerationInterface

from corpus_index.backends import open_writer
from environments.chat_format import ChatFormat
from environments.episode import Episode
from environments.nemo_rl_rows import RolloutTokenizer, make_rows
from environments.task import Task
from training.config import Config

ROLLOUTS: dict[str, Callable[..., Any]] = {"sync": run_multi_turn_rollout, "async": run_async_multi_turn_rollout}


@dataclass(frozen=True)
class Company:
    """A small company: its facts, its mails in an index on disk, and the folder of a tokenizer."""

    firm: Place
    config: Config
    section: dict[str, Any]
    """``env`` section of an actor."""

    @property
    def chat(self) -> ChatFormat:
        return self.firm.chat

    @property
    def episode(self) -> Episode:
        return self.firm.episode(self.config)


def company(folder: Path, *overrides: str) -> Company:
    """``overrides`` are those of the small model's recipe."""
    firm, config = place(), load("tools.retries=0", *overrides)
    locator = f"embedded:{folder / 'index'}"
    open_writer(locator).build(firm.company.documents())
    firm.chat.tokenizer.save_pretrained(folder / "tokenizer")
    env = config.env.model_dump(mode="json")
    section = {
        "index": locator,
        "tokenizer": str(folder / "tokenizer"),
        "tools": config.tools.model_dump(mode="json"),
        "episode": {name: env[name] for name in ("prompt_style", "limits", "outputs")},
    }
    return Company(firm, config, section)


@dataclass(frozen=True)
class Turn:
    """A turn to be said. ``ended`` False: generation stops at its end without closing it, as at ``max_new_tokens``."""

    text: str
    ended: bool = True


Speak = Callable[[list[str], int], str | Turn]
"""The texts so far (prompt, turn, result, turn, ...) and how often this very context has been met; returns a turn."""


class ReadyGeneration(GenerationInterface):
    """What NeMo-RL asks of a generation that is always awake and takes its weights from nobody."""

    asynchronous: bool

    @property
    def cfg(self) -> dict[str, Any]:
        return {"backend": "vllm", "vllm_cfg": {"async_engine": self.asynchronous}}

    def init_collective(self, *args: Any, **kwargs: Any) -> list[Any]:
        return []

    def prepare_for_generation(self, *args: Any, **kwargs: Any) -> bool:
        return True

    def finish_generation(self, *args: Any, **kwargs: Any) -> bool:
        return True

    def update_weights_via_ipc_zmq(self) -> list[Any]:
        return [ray.put(True)]


@dataclass
class ScriptedGeneration(ReadyGeneration):
    """Says what ``speak`` wants, as a server does that knows no more than token ids and ``max_seq_len``."""

    chat: ChatFormat
    speak: Speak
    max_seq_len: int = 4096
    asynchronous: bool = False
    tells_cuts: bool = True
    met: Counter[tuple[int, ...]] = field(default_factory=Counter)
    lock: Lock = field(default_factory=Lock)

    def generate(self, data: Any, greedy: bool = False) -> Any:
        rows: list[list[int]] = []
        counts: list[int] = []
        cut: list[bool] = []
        for ids, length in zip(data["input_ids"].tolist(), data["input_lengths"].tolist(), strict=True):
            said, is_cut = self._turn(ids[:length])
            rows.append([*ids[:length], *said])
            counts.append(len(said))
            cut.append(is_cut)
        longest = max(map(len, rows))
        output = torch.full((len(rows), longest), self.chat.tokenizer.pad_token_id)
        logprobs = torch.zeros(len(rows), longest)
        for row, (ids, count) in enumerate(zip(rows, counts, strict=True)):
            output[row, : len(ids)] = torch.tensor(ids)
            logprobs[row, len(ids) - count : len(ids)] = torch.tensor([logprob_of(i) for i in ids[len(ids) - count :]])
        cuts = {"truncated": torch.tensor(cut)} if self.tells_cuts else {}
        return BatchedDataDict(
            output_ids=output,
            logprobs=logprobs,
            generation_lengths=torch.tensor(counts),
            unpadded_sequence_lengths=torch.tensor([len(ids) for ids in rows]),
            **cuts,
        )

    async def generate_async(self, data: Any, greedy: bool = False) -> AsyncIterator[tuple[int, Any]]:
        for row in range(len(data["input_lengths"])):
            yield row, self.generate(data.slice(row, row + 1), greedy)

    def _turn(self, context: Sequence[int]) -> tuple[list[int], bool]:
        with self.lock:
            nth = self.met[tuple(context)]
            self.met[tuple(context)] += 1
        said = self.speak(self._texts(context), nth)
        turn = said if isinstance(said, Turn) else Turn(said)
        ids = self.chat.turn_ids(turn.text)
        ids = ids if turn.ended else ids[:-1]
        room = self.max_seq_len - len(context)
        return ids[:room], not turn.ended or len(ids) > room

    def _texts(self, context: Sequence[int]) -> list[str]:
        """ChatML's turns, without their tags."""
        text = self.chat.tokenizer.decode(context, skip_special_tokens=False)
        blocks = text.split("<|im_start|>")[1:-1]
        bodies = [block.partition("\n")[2].removesuffix("\n").removesuffix("<|im_end|>") for block in blocks]
        return [f"{bodies[0]}\n{bodies[1]}", *bodies[2:]]


def logprob_of(token: int) -> float:
    """Of every token another, so that a shift shows."""
    return -0.25 - token / 1024


def episode_ids(tasks: Sequence[Task]) -> list[str]:
    return [f"{task.group_id}#{number}" for number, task in enumerate(tasks)]


def batch_of(company: Company, tasks: Sequence[Task], **options: Any) -> Any:
    """Rows with an id each, as a loop of ours makes them."""
    options = {"episode_ids": episode_ids(tasks)} | options
    return rl_collate_fn(make_rows(tasks, company.episode, company.chat, **options))


def roll(kind: str, company: Company, batch: Any, speak: Speak, envs: dict[str, Any], **options: Any) -> Any:
    """The finished batch. ``options``: max_seq_len, max_rollout_turns, tokenizer, tells_cuts."""
    longest = options.get("max_seq_len", 4096)
    generation = ScriptedGeneration(
        company.chat, speak, longest, asynchronous=kind == "async", tells_cuts=options.get("tells_cuts", True)
    )
    done, _ = ROLLOUTS[kind](
        policy_generation=generation,
        input_batch=batch,
        tokenizer=options.get("tokenizer") or RolloutTokenizer(company.chat),
        task_to_env=envs,
        max_seq_len=longest,
        max_rollout_turns=options.get("max_rollout_turns", 16),
    )
    return done
