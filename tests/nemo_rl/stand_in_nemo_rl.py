"""The part of NeMo-RL's contract that the environments and their rollouts touch, written anew for tests without it.

``test_stand_ins.py`` holds it against the real one where that is at hand.
"""

from __future__ import annotations

import abc
import asyncio
import copy
import os
import pkgutil
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Generic, NamedTuple, TypeVar

import stand_in_ray as ray
import torch

MetadataT = TypeVar("MetadataT")


class EnvironmentReturn(NamedTuple, Generic[MetadataT]):
    observations: list[dict[str, str]]
    metadata: list[MetadataT]
    next_stop_strings: list[list[str] | None] | list[None]
    rewards: torch.Tensor
    terminateds: torch.Tensor
    answers: list[str | None] | None


class EnvironmentInterface(abc.ABC, Generic[MetadataT]):
    @abc.abstractmethod
    def step(self, message_log_batch: Any, metadata: list[MetadataT]) -> EnvironmentReturn[MetadataT]: ...

    @abc.abstractmethod
    def global_post_process_and_metrics(self, batch: Any) -> tuple[Any, dict[str, Any]]: ...


class PY_EXECUTABLES:
    SYSTEM = sys.executable


ACTOR_ENVIRONMENT_REGISTRY: dict[str, str] = {}
ENV_REGISTRY: dict[str, dict[str, str]] = {}


def register_env(env_name: str, actor_class_fqn: str) -> None:
    if env_name in ENV_REGISTRY:
        raise ValueError(f"{env_name} is there already")
    ENV_REGISTRY[env_name] = {"actor_class_fqn": actor_class_fqn}


def create_env(env_name: str, env_config: dict[str, Any]) -> Any:
    name = ENV_REGISTRY[env_name]["actor_class_fqn"]
    if name not in ACTOR_ENVIRONMENT_REGISTRY:
        raise ValueError(f"no Python for {name}")
    environment = {"py_executable": ACTOR_ENVIRONMENT_REGISTRY[name], "env_vars": dict(os.environ)}
    return pkgutil.resolve_name(name).options(runtime_env=environment).remote(env_config)


class GenerationInterface(abc.ABC):
    @abc.abstractmethod
    def init_collective(self, ip: str, port: int, world_size: int) -> list[Any]: ...

    @abc.abstractmethod
    def generate(self, data: Any, greedy: bool) -> Any: ...

    @abc.abstractmethod
    def prepare_for_generation(self, *args: Any, **kwargs: Any) -> bool: ...

    @abc.abstractmethod
    def finish_generation(self, *args: Any, **kwargs: Any) -> bool: ...


class BatchedDataDict(dict[str, Any]):
    """Rows by column: tensors or lists."""

    def select_indices(self, indices: Any) -> BatchedDataDict:
        rows = [int(index) for index in indices]
        return BatchedDataDict(
            {k: v[rows] if isinstance(v, torch.Tensor) else [v[row] for row in rows] for k, v in self.items()}
        )

    def slice(self, start: int, end: int) -> BatchedDataDict:
        return self.select_indices(range(start, end))

    def repeat_interleave(self, num_repeats: int) -> BatchedDataDict:
        columns: dict[str, Any] = {}
        for name, column in self.items():
            if isinstance(column, torch.Tensor):
                columns[name] = column.repeat_interleave(num_repeats, dim=0)
            else:
                columns[name] = [copy.deepcopy(item) for item in column for _ in range(num_repeats)]
        return BatchedDataDict(columns)

    @property
    def size(self) -> int:
        return len(next(iter(self.values())))


def rl_collate_fn(data_batch: Sequence[Mapping[str, Any]]) -> BatchedDataDict:
    lengths = torch.tensor([row["length"] for row in data_batch])
    lists = {name: [row.get(name) for row in data_batch] for name in ("extra_env_info", "idx", "stop_strings")}
    return BatchedDataDict(
        message_log=[row["message_log"] for row in data_batch],
        length=lengths,
        loss_multiplier=torch.tensor([row["loss_multiplier"] for row in data_batch]),
        task_name=[row.get("task_name") for row in data_batch],
        batch_max_length=torch.ones_like(lengths) * lengths.max(),
        **lists,
    )


def _generation_input(logs: Sequence[Any], pad: int) -> BatchedDataDict:
    rows = [torch.cat([message["token_ids"] for message in log]) for log in logs]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=pad)
    return BatchedDataDict(
        input_ids=ids,
        input_lengths=torch.tensor([len(row) for row in rows], dtype=torch.int32),
        stop_strings=[None] * len(rows),
    )


def _said(log: list[Any], asked: Any, made: Any, row: int, tokenizer: Any) -> bool:
    """Append a generated turn. Returns whether generation was cut."""
    start, end = int(asked["input_lengths"][row]), int(made["unpadded_sequence_lengths"][row])
    ids = made["output_ids"][row, start:end]
    (text,) = tokenizer.batch_decode([ids], skip_special_tokens=True)
    said = {"role": "assistant", "content": text, "token_ids": ids}
    log.append(said | {"generation_logprobs": made["logprobs"][row, start:end]})
    return bool(made["truncated"][row]) if "truncated" in made else False


def calculate_rewards(batch: Any, task_to_env: Mapping[str, Any]) -> EnvironmentReturn[Any]:
    logs = [[{k: m[k] for k in ("role", "content")} for m in log] for log in batch["message_log"]]
    rows_of: dict[str, list[int]] = {}
    for row, name in enumerate(batch["task_name"]):
        if name not in task_to_env:
            raise ValueError(f"No environment found for task type: {name}")
        rows_of.setdefault(name, []).append(row)
    asked = {
        name: task_to_env[name].step.remote([logs[r] for r in rows], [batch["extra_env_info"][r] for r in rows])
        for name, rows in rows_of.items()
    }
    found: dict[int, tuple[Any, ...]] = {}
    for name, rows in rows_of.items():
        fields = list(ray.get(asked[name]))
        found |= zip(rows, zip(*(f if f is not None else [None] * len(rows) for f in fields), strict=True), strict=True)
    columns = [list(column) for column in zip(*(found[row] for row in range(len(logs))), strict=True)]
    columns[3:5] = [torch.stack(columns[3]), torch.tensor([bool(end) for end in columns[4]])]
    return EnvironmentReturn(*columns)


def _observed(log: list[Any], said: Mapping[str, str], tokenizer: Any, max_seq_len: int) -> bool:
    """Append an observation, cut to what is left. Returns whether it was cut."""
    ids = tokenizer(said["content"], return_tensors="pt", add_special_tokens=False).input_ids[0].to(torch.int64)
    left = max_seq_len - sum(len(message["token_ids"]) for message in log)
    full = len(ids) >= left
    log.append({**said, "token_ids": ids[: max(left, 0)] if full else ids})
    return full


def run_multi_turn_rollout(
    policy_generation: Any,
    input_batch: Any,
    tokenizer: Any,
    task_to_env: Mapping[str, Any],
    max_seq_len: int,
    max_rollout_turns: int = 999999,
    greedy: bool = False,
) -> tuple[Any, dict[str, Any]]:
    """All rows turn by turn; a cut generation goes on."""
    batch = BatchedDataDict(input_batch)
    count = len(batch["message_log"])
    active, reward = list(range(count)), torch.zeros(count)
    truncated = torch.zeros(count, dtype=torch.bool)
    for _ in range(max_rollout_turns):
        if not active:
            break
        part = batch.select_indices(active)
        asked = _generation_input(part["message_log"], tokenizer.pad_token_id)
        made = policy_generation.generate(asked, greedy=greedy)
        for place, row in enumerate(active):
            truncated[row] |= _said(batch["message_log"][row], asked, made, place, tokenizer)
        told = calculate_rewards(part, task_to_env)
        reward[active] += told.rewards
        going: list[int] = []
        for place, row in enumerate(active):
            full = _observed(batch["message_log"][row], told.observations[place], tokenizer, max_seq_len)
            truncated[row] |= full
            if not full and not told.terminateds[place]:
                going.append(row)
                if told.metadata[place] is not None:
                    batch["extra_env_info"][row] = told.metadata[place]
        active = going
    batch["total_reward"], batch["truncated"] = reward, truncated
    return batch, {}


def run_async_multi_turn_rollout(
    policy_generation: Any,
    input_batch: Any,
    tokenizer: Any,
    task_to_env: Mapping[str, Any],
    max_seq_len: int,
    max_rollout_turns: int = 999999,
    greedy: bool = False,
) -> tuple[Any, dict[str, Any]]:
    """Each row on its own; a cut generation ends it after its step, and one that fails is swallowed."""

    async def play(row: int) -> tuple[list[Any], Any, float, bool]:
        log, info = copy.deepcopy((input_batch["message_log"][row], input_batch["extra_env_info"][row]))
        reward, truncated, over = 0.0, False, False
        for _ in range(max_rollout_turns):
            if over or truncated:
                break
            asked = _generation_input([log], tokenizer.pad_token_id)
            try:
                _, made = await anext(policy_generation.generate_async(asked, greedy=greedy))
            except Exception as error:
                print(f"row {row}: {error}")
                break
            truncated = _said(log, asked, made, 0, tokenizer)
            one = BatchedDataDict(message_log=[log], extra_env_info=[info], task_name=[input_batch["task_name"][row]])
            told = await asyncio.to_thread(calculate_rewards, one, task_to_env)
            reward += float(told.rewards[0])
            over = bool(told.terminateds[0])
            truncated |= _observed(log, told.observations[0], tokenizer, max_seq_len)
            if not over and not truncated and told.metadata[0] is not None:
                info = told.metadata[0]
        return log, info, reward, truncated

    async def play_all() -> list[Any]:
        return await asyncio.gather(*(play(row) for row in range(len(input_batch["message_log"]))))

    logs, infos, rewards, truncated = (list(column) for column in zip(*asyncio.run(play_all()), strict=True))
    return BatchedDataDict(
        {**input_batch, "message_log": logs, "extra_env_info": infos}
        | {"total_reward": torch.tensor(rewards), "truncated": torch.tensor(truncated)}
    ), {}


PLACES: dict[str, tuple[Any, ...]] = {
    "nemo_rl.environments.interfaces": (EnvironmentInterface, EnvironmentReturn),
    "nemo_rl.environments.utils": (register_env, create_env),
    "nemo_rl.distributed.virtual_cluster": (PY_EXECUTABLES,),
    "nemo_rl.distributed.batched_data_dict": (BatchedDataDict,),
    "nemo_rl.data.collate_fn": (rl_collate_fn,),
    "nemo_rl.models.generation.interfaces": (GenerationInterface,),
    "nemo_rl.experience.rollouts": (run_multi_turn_rollout, run_async_multi_turn_rollout, calculate_rewards),
}
"""Where the real ones live."""
_TABLES: dict[str, dict[str, Any]] = {
    "nemo_rl.environments.utils": {"ENV_REGISTRY": ENV_REGISTRY},
    "nemo_rl.distributed.ray_actor_environment_registry": {"ACTOR_ENVIRONMENT_REGISTRY": ACTOR_ENVIRONMENT_REGISTRY},
}


def install() -> None:
    """Make ``import ray`` and ``import nemo_rl...`` find the stand-ins in this process."""
    sys.modules["ray"] = ray
    for name, made in PLACES.items():
        _module(name).__dict__.update({thing.__name__: thing for thing in made})
    for name, tables in _TABLES.items():
        _module(name).__dict__.update(tables)


def _module(name: str) -> ModuleType:
    if name not in sys.modules:
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)
        module.__path__ = []
        sys.modules[name] = module
        above, _, last = name.rpartition(".")
        if above:
            setattr(_module(above), last, module)
    return sys.modules[name]
