"""What a GPU must hold while it trains, and what it has left for episodes while it generates, by formula.

Weights, gradients and optimiser states follow ZeRO (1910.02054): 16 bytes a parameter in mixed precision, divided over
the GPUs that share it. Activations are counted as 2205.05198 counts them, with the tensors that a gated decoder keeps.
The cache of keys and values is 2309.06180's, in blocks too small to matter. Fragmentation, the libraries' own buffers
and CUDA's context come on top: leave a tenth free.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from training.engines.nemo_rl.layout import Layout, tokens_per_microbatch
from training.model_shape import ModelShape

_HALF, _FULL = 2, 4
_ADAM = 2 * _FULL


@dataclass(frozen=True, slots=True)
class TrainingMemory:
    """Bytes on each training GPU at the peak of a training step."""

    weights: int
    gradients: int
    optimizer: int
    gathered: int
    """Layers that FSDP has in one piece while they compute, and their gradients before they are shared out."""
    activations: int
    logits: int

    @property
    def total(self) -> int:
        return sum(getattr(self, part.name) for part in fields(self))


@dataclass(frozen=True, slots=True)
class GenerationMemory:
    """Bytes on each generation GPU."""

    reserved: int
    """vLLM's share of the GPU."""
    weights: int
    cache: int
    """What is left for keys and values."""
    cache_per_token: int

    def episodes(self, tokens: int) -> int:
        """Full-length episodes that one engine's cache holds side by side."""
        return max(self.cache, 0) // (self.cache_per_token * tokens)


def training_memory(shape: ModelShape, master: Mapping[str, Any], layout: Layout) -> TrainingMemory:
    """``master`` is what ``nemo_rl_master_config`` gives. A pipeline's stages are taken as equal."""
    policy = master["policy"]
    whole = layout.tensor * layout.pipeline
    sharing = layout.data * layout.context
    held = shape.parameters // whole
    trained = _trained(shape, policy, layout) // whole
    if layout.backend == "megatron":  # its distributed optimizer shares out float32 weights and moments
        weights, gradients = _HALF * held, _HALF * trained
        optimizer, gathered = (_FULL + _ADAM) * trained // sharing, 0
    else:  # FSDP2 over weights that NeMo-RL loads in float32
        weights, gradients = _FULL * held // sharing, _FULL * trained // sharing
        optimizer = _ADAM * trained // sharing
        pieces = 2 * shape.layer_parameters + shape.embedding_parameters
        gathered = (_HALF + _HALF) * pieces // layout.tensor
    return TrainingMemory(
        weights=weights,
        gradients=gradients,
        optimizer=optimizer,
        gathered=gathered,
        activations=_activations(shape, policy, layout, tokens_per_microbatch(master, "train") // layout.context),
        logits=_logits(shape, policy, layout, tokens_per_microbatch(master, "train") // layout.context),
    )


def logprob_memory(shape: ModelShape, master: Mapping[str, Any], layout: Layout) -> int:
    """Bytes on each training GPU while log-probs are recomputed: no gradients, no kept activations, but the logits of
    ``logprob_mb_tokens`` tokens, in float32 too, and their log-softmax."""
    training = training_memory(shape, master, layout)
    tokens = tokens_per_microbatch(master, "logprob") // layout.context
    logits = shape.vocab // layout.tensor * tokens * (_HALF + 2 * _FULL)
    return training.weights + training.optimizer + training.gathered + logits


def generation_memory(shape: ModelShape, master: Mapping[str, Any], layout: Layout, gpu: int) -> GenerationMemory:
    """``gpu`` bytes of a whole GPU. While vLLM generates, a trainer on the same GPUs has moved to the host's memory."""
    engine = master["policy"]["generation"]["vllm_cfg"]
    reserved = int(engine["gpu_memory_utilization"] * gpu)
    size = _HALF if engine["precision"] == "bfloat16" else _FULL
    weights = size * shape.parameters // layout.generation_tensor
    per_token = 2 * shape.layers * shape.kv_heads * shape.head_dim * size // layout.generation_tensor
    return GenerationMemory(reserved=reserved, weights=weights, cache=reserved - weights, cache_per_token=per_token)


def reference_memory(shape: ModelShape, layout: Layout) -> int:
    """Bytes of host memory, of all training processes together: the reference's weights wait there in float32 and trade
    places with the policy's for its log-probs."""
    copies = layout.data * layout.context if layout.backend == "megatron" else 1
    size = _HALF if layout.backend == "megatron" else _FULL
    return size * shape.parameters * copies


def _trained(shape: ModelShape, policy: Mapping[str, Any], layout: Layout) -> int:
    adapters = policy["megatron_cfg"]["peft"] if layout.backend == "megatron" else policy["dtensor_cfg"]["lora_cfg"]
    return shape.lora_parameters(adapters["dim"]) if adapters["enabled"] else shape.parameters


def _activations(shape: ModelShape, policy: Mapping[str, Any], layout: Layout, tokens: int) -> int:
    """Kept for the backward pass. With checkpointing: each layer's input, and one layer in full while it is redone."""
    section = policy["megatron_cfg"] if layout.backend == "megatron" else policy["dtensor_cfg"]
    split = layout.tensor if section["sequence_parallel"] else 1
    entrance = _HALF * shape.hidden // split
    inside = activation_bytes(shape) // layout.tensor
    layers = shape.layers // layout.pipeline
    if section["activation_checkpointing"]:
        return tokens * (layers * entrance + inside)
    return tokens * layers * inside


def activation_bytes(shape: ModelShape) -> int:
    """Of one layer, a token, in half precision with fused attention: what its backward pass needs.

    As transformers 5 computes it: a norm keeps its input in float32 and two halves of what comes out of it, attention
    the rotated queries and keys, the values, and its output with a float32 sum a head, the MLP four of its width.
    """
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    norms = 2 * ((_FULL + 2 * _HALF) * shape.hidden + _FULL)
    attention = 2 * _HALF * (queries + keys) + _FULL * shape.heads
    if shape.qk_norm:
        attention += (_FULL + _HALF) * (queries + keys) + _FULL * (shape.heads + shape.kv_heads)
    return norms + attention + 4 * _HALF * shape.intermediate


def _logits(shape: ModelShape, policy: Mapping[str, Any], layout: Layout, tokens: int) -> int:
    """Half-precision logits, the same in float32 and their gradient; beside them the log-softmax, of
    ``logprob_chunk_size`` tokens at a time where that is set."""
    at_once = min(policy.get("logprob_chunk_size") or tokens, tokens)
    return shape.vocab // layout.tensor * ((_HALF + 2 * _FULL) * tokens + _FULL * at_once)
