"""The objects that NeMo-RL hands over, as far as the engine uses them, and what it calls of NeMo-RL's functions.

NeMo-RL and Ray are imported inside the functions: both live in a cluster's environment alone, where the types of this
project are not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import lcm
from pathlib import Path
from typing import Any, Protocol, cast

from torch import Tensor

from training.engines.nemo_rl.batch import Columns, RowShape

Batch = Mapping[str, Any]
"""NeMo-RL's ``BatchedDataDict``."""


class TrainingSide(Protocol):
    """NeMo-RL's ``ColocatablePolicyInterface``; the rest of its methods are called by its own refit."""

    def prepare_for_lp_inference(self) -> None: ...

    def get_logprobs(self, data: Any) -> Mapping[str, Tensor]: ...

    def get_reference_policy_logprobs(self, data: Any) -> Mapping[str, Tensor]: ...

    def prepare_for_training(self) -> None: ...

    def train(self, data: Any, loss_fn: Any, *, gbs: int) -> Mapping[str, Any]: ...

    def offload_after_refit(self) -> None: ...

    def save_checkpoint(
        self, weights_path: str, optimizer_path: str | None, tokenizer_path: str, checkpointing_cfg: Mapping[str, Any]
    ) -> None: ...

    def shutdown(self) -> bool: ...


class GenerationSide(Protocol):
    """NeMo-RL's ``GenerationInterface``."""

    def prepare_for_generation(self) -> bool: ...

    def finish_generation(self) -> bool: ...

    def invalidate_kv_cache(self) -> bool: ...

    def shutdown(self) -> bool: ...


class Dashboard(Protocol):
    """NeMo-RL's ``Logger``."""

    def log_metrics(self, metrics: dict[str, Any], step: int, prefix: str | None = "") -> None: ...


class PlacementGroups(Protocol):
    """NeMo-RL's ``RayVirtualCluster``."""

    def shutdown(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Pieces:
    """One built cluster. ``master`` is NeMo-RL's resolved config by section; ``dashboard`` None: no logger. Two sides
    on the same GPUs have one of the ``clusters`` twice."""

    policy: TrainingSide
    generation: GenerationSide
    master: Mapping[str, Any]
    dashboard: Dashboard | None = None
    clusters: tuple[PlacementGroups, ...] = ()

    def shut_down(self) -> None:
        """Give the GPUs back."""
        for part in (self.generation, self.policy, *self.clusters):
            part.shutdown()

    @property
    def colocated(self) -> bool:
        """Whether sampling and training take turns on the same GPUs."""
        return bool(self.master["policy"]["generation"]["colocated"]["enabled"])

    @property
    def row_shape(self) -> RowShape:
        """How many rows the workers can share out, from the policy's own settings."""
        policy = self.master["policy"]
        by_tokens = policy["dynamic_batching"]["enabled"] or policy["sequence_packing"]["enabled"]
        micro = 1 if by_tokens else lcm(policy["train_micro_batch_size"], policy["logprob_batch_size"])
        shards = int(getattr(self.policy, "data_parallel_size", 1))
        pad_id = int(policy["generation"]["_pad_token_id"])
        return RowShape(shards, micro, int(policy["make_sequence_length_divisible_by"]), pad_id)

    @property
    def asynchronous(self) -> bool:
        """Whether the generation backend takes rows one by one, so that no episode waits for another's turn."""
        return asynchronous(self.master["policy"]["generation"])


def asynchronous(generation: Mapping[str, Any]) -> bool:
    """What NeMo-RL's trainer decides by, from its ``policy.generation``."""
    backend = generation["backend"]
    if backend == "sglang":
        return bool(generation.get("use_async_rollouts", False))
    section = {"vllm": "vllm_cfg", "megatron": "mcore_generation_config"}.get(backend, "")
    return bool(generation.get(section, {}).get("async_engine", False))


@dataclass(frozen=True, slots=True)
class Start:
    """What a cluster is built from: a checkpoint's ``weights`` and ``optimizer`` folders; ``model``, a Hugging Face
    folder or id, is also what the KL reference holds. None: as the recipe says."""

    weights: Path | None = None
    optimizer: Path | None = None
    model: str | None = None


Assemble = Callable[[Start], Pieces]


def batched(columns: Columns) -> Any:
    from nemo_rl.distributed.batched_data_dict import (  # pyright: ignore[reportMissingImports]
        BatchedDataDict,  # pyright: ignore[reportUnknownVariableType]
    )

    return cast("Any", BatchedDataDict)(columns)


def collated(rows: Sequence[Mapping[str, Any]]) -> Any:
    from nemo_rl.data.collate_fn import (  # pyright: ignore[reportMissingImports]
        rl_collate_fn,  # pyright: ignore[reportUnknownVariableType]
    )

    return cast("Any", rl_collate_fn)(list(rows))


def play(
    pieces: Pieces, batch: Any, tokenizer: Any, actors: Mapping[str, Any], *, longest: int, turns: int, greedy: bool
) -> tuple[Batch, dict[str, Any]]:
    """NeMo-RL's multi-turn rollout, row by row where the backend allows: the finished batch and its metrics."""
    from nemo_rl.experience import rollouts  # pyright: ignore[reportMissingImports, reportUnknownVariableType]

    library = cast("Any", rollouts)
    run = library.run_async_multi_turn_rollout if pieces.asynchronous else library.run_multi_turn_rollout
    return run(
        policy_generation=pieces.generation,
        input_batch=batch,
        tokenizer=tokenizer,
        task_to_env=dict(actors),
        max_seq_len=longest,
        max_rollout_turns=turns,
        greedy=greedy,
    )


def refit(pieces: Pieces) -> None:
    """Bring the trained weights to the generation side and make it ready. Raises RuntimeError where that failed."""
    from nemo_rl.algorithms.grpo import (  # pyright: ignore[reportMissingImports]
        refit_policy_generation,  # pyright: ignore[reportUnknownVariableType]
    )

    cast("Any", refit_policy_generation)(
        pieces.policy,
        pieces.generation,
        pieces.colocated,
        _refit_buffer_size_gb=pieces.master["policy"].get("refit_buffer_size_gb"),
    )


def result_of(reference: Any) -> Any:
    """Wait for what a Ray actor was asked."""
    import ray  # pyright: ignore[reportMissingImports]

    return cast("Any", ray).get(reference)
