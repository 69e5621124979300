"""Which GPUs train and which generate, and how the model is cut over them, read off a resolved NeMo-RL config."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Layout:
    backend: Literal["dtensor", "megatron"]
    colocated: bool
    """Training and generation take turns on the same GPUs."""
    training_gpus: int
    generation_gpus: int
    """0: a stage that generates nothing."""
    tensor: int
    pipeline: int
    context: int
    generation_tensor: int
    """GPUs of one copy of the inference engine."""

    @property
    def model_parallel(self) -> int:
        return self.tensor * self.pipeline * self.context

    @property
    def data(self) -> int:
        """Copies of the model that share a batch; 0 where the GPUs do not suffice for one."""
        return self.training_gpus // self.model_parallel

    @property
    def gpus(self) -> int:
        return self.training_gpus if self.colocated else self.training_gpus + self.generation_gpus

    @property
    def generation_copies(self) -> int:
        return self.generation_gpus // self.generation_tensor


def layout(master: Mapping[str, Any]) -> Layout:
    """``master`` is what ``nemo_rl_master_config`` gives. Where generation has GPUs of its own they are whole nodes, or
    some of the only node's; NeMo-RL's own setup counts them the same way."""
    policy, cluster = master["policy"], master["cluster"]
    megatron = policy["megatron_cfg"]
    total = cluster["gpus_per_node"] * cluster["num_nodes"]
    colocated, generating, engine_gpus = True, 0, 1
    if (generation := policy.get("generation")) is not None:
        colocated = generation["colocated"]["enabled"]
        generating = total if colocated else _own_gpus(generation["colocated"]["resources"], cluster["num_nodes"])
        engine_gpus = generation["vllm_cfg"]["tensor_parallel_size"] * generation["vllm_cfg"]["pipeline_parallel_size"]
    is_megatron = bool(megatron["enabled"])
    cut = policy["dtensor_cfg"]
    return Layout(
        backend="megatron" if is_megatron else "dtensor",
        colocated=colocated,
        training_gpus=total if colocated else total - generating,
        generation_gpus=generating,
        tensor=megatron["tensor_model_parallel_size"] if is_megatron else cut["tensor_parallel_size"],
        pipeline=megatron["pipeline_model_parallel_size"] if is_megatron else 1,
        context=megatron["context_parallel_size"] if is_megatron else cut["context_parallel_size"],
        generation_tensor=engine_gpus,
    )


def _own_gpus(resources: Mapping[str, Any], nodes: int) -> int:
    """A null is a number that NeMo-RL asks for and does not get."""
    gpus, own_nodes = resources["gpus_per_node"] or 0, resources["num_nodes"] or 0
    return gpus if nodes == 1 else gpus * own_nodes


def tokens_per_microbatch(master: Mapping[str, Any], kind: Literal["train", "logprob"]) -> int:
    """Padded tokens that one forward pass of training, or of log-probs, holds at most."""
    policy = master["policy"]
    for batching in ("dynamic_batching", "sequence_packing"):
        if policy[batching]["enabled"]:
            return policy[batching][f"{kind}_mb_tokens"]
    rows = policy["train_micro_batch_size"] if kind == "train" else policy["logprob_batch_size"]
    return rows * policy["max_total_sequence_length"]
