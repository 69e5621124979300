"""The formulas against models that transformers builds: parameters on the meta device, activations by what a forward
pass really keeps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, PretrainedConfig, Qwen2Config, Qwen3Config

from training.engines.nemo_rl.layout import layout, tokens_per_microbatch
from training.engines.nemo_rl.memory import (
    activation_bytes,
    generation_memory,
    logprob_memory,
    reference_memory,
    training_memory,
)
from training.model_shape import KNOWN, ModelShape, shape_of

QWEN3 = {  # what the models' own config.json say
    "Qwen/Qwen3-0.6B": (1024, 28, 16, 3072, True, 596_049_920),
    "Qwen/Qwen3-1.7B": (2048, 28, 16, 6144, True, 1_720_574_976),
    "Qwen/Qwen3-4B": (2560, 36, 32, 9728, True, 4_022_468_096),
    "Qwen/Qwen3-4B-Instruct-2507": (2560, 36, 32, 9728, True, 4_022_468_096),
    "Qwen/Qwen3-8B": (4096, 36, 32, 12288, False, 8_190_735_360),
}
SMALL = {"vocab_size": 64, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 16}  # fmt: skip


def built(config: PretrainedConfig) -> int:
    with torch.device("meta"):
        model: torch.nn.Module = AutoModelForCausalLM.from_config(config)
    return sum(weight.numel() for weight in model.parameters())


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_known_models_have_the_parameters_of_their_config(name: str) -> None:
    hidden, layers, heads, intermediate, tied, published = QWEN3[name]
    config = Qwen3Config(
        vocab_size=151936, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=8, head_dim=128, intermediate_size=intermediate, tie_word_embeddings=tied,
    )  # fmt: skip
    assert shape_of(config) == KNOWN[name]
    assert KNOWN[name].parameters == built(config) == published


@pytest.mark.parametrize(
    "config",
    [
        LlamaConfig(**SMALL, tie_word_embeddings=False),
        MistralConfig(**SMALL, tie_word_embeddings=True),
        Qwen2Config(**{**SMALL, "head_dim": 16}, tie_word_embeddings=True),
        Qwen3Config(**{**SMALL, "num_attention_heads": 8}, tie_word_embeddings=False),
    ],
    ids=lambda config: config.model_type,
)
def test_every_family_is_counted_as_it_is_built(config: PretrainedConfig) -> None:
    assert shape_of(config).parameters == built(config)


def test_a_mixture_of_experts_is_not_guessed_at() -> None:
    from transformers import Qwen3MoeConfig

    with pytest.raises(ValueError, match="qwen3_moe"):
        shape_of(Qwen3MoeConfig())


def test_adapters_by_hand() -> None:
    shape = shape_of(Qwen3Config(**SMALL))
    # rank x (in + out) of q, k, v, o, gate, up, down: 64->64, 64->32 twice, 64->64, 64->96 twice, 96->64
    assert shape.lora_parameters(4) == 2 * 4 * (128 + 96 + 96 + 128 + 160 + 160 + 160)


def kept(config: PretrainedConfig, layers: int) -> float:
    """Bytes a token that the forward pass keeps for the backward pass, weights apart."""
    rows, tokens = 2, 48
    config.num_hidden_layers = layers
    if getattr(config, "layer_types", None) is not None:
        config.layer_types = ["full_attention"] * layers
    model: Any = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").to(torch.bfloat16)
    weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    held: dict[int, torch.Tensor] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.untyped_storage().data_ptr() not in weights:
            held[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    def unpack(tensor: torch.Tensor) -> torch.Tensor:
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        model.model(input_ids=torch.randint(0, 64, (rows, tokens)))
    return sum(tensor.untyped_storage().nbytes() for tensor in held.values()) / (rows * tokens)


@pytest.mark.parametrize("config", [Qwen3Config(**SMALL), LlamaConfig(**SMALL)], ids=["qwen3", "llama"])
def test_activations_are_what_a_forward_pass_keeps(config: PretrainedConfig) -> None:
    assert activation_bytes(shape_of(config)) == kept(config, 3) - kept(config, 2)


def resolved(**changes: Any) -> dict[str, Any]:
    """The keys of a resolved config that layout and memory read: four GPUs, DTensor, no tensor parallelism."""
    tree: dict[str, Any] = {
        "cluster": {"gpus_per_node": 4, "num_nodes": 1},
        "policy": {
            "max_total_sequence_length": 100,
            "train_micro_batch_size": 2,
            "logprob_batch_size": 3,
            "logprob_chunk_size": None,
            "dtensor_cfg": {
                "enabled": True, "tensor_parallel_size": 1, "context_parallel_size": 1, "sequence_parallel": False,
                "activation_checkpointing": False, "lora_cfg": {"enabled": False, "dim": 4},
            },
            "megatron_cfg": {
                "enabled": False, "tensor_model_parallel_size": 1, "pipeline_model_parallel_size": 1,
                "context_parallel_size": 1, "sequence_parallel": False, "activation_checkpointing": False,
                "peft": {"enabled": False, "dim": 4},
            },
            "dynamic_batching": {"enabled": False, "train_mb_tokens": 500, "logprob_mb_tokens": 700},
            "sequence_packing": {"enabled": False, "train_mb_tokens": 600, "logprob_mb_tokens": 800},
            "generation": {
                "colocated": {"enabled": True, "resources": {"gpus_per_node": None, "num_nodes": None}},
                "vllm_cfg": {
                    "tensor_parallel_size": 1, "pipeline_parallel_size": 1, "precision": "bfloat16",
                    "gpu_memory_utilization": 0.5,
                },
            },
        },
    }  # fmt: skip
    for path, value in changes.items():
        node = tree
        *parents, leaf = path.split("__")
        for parent in parents:
            node = node[parent]
        assert leaf in node
        node[leaf] = value
    return tree


SHAPE = ModelShape(
    hidden=8, layers=4, heads=2, kv_heads=1, head_dim=4, intermediate=16, vocab=32, tied=True
)  # a layer: 8 x (16 + 8) + 3 x 8 x 16 + 16 = 592; in all 256 + 4 x 592 + 8 = 2632


def test_training_memory_by_hand() -> None:
    master = resolved()
    found = training_memory(SHAPE, master, layout(master))
    assert (found.weights, found.gradients, found.optimizer) == (2632, 2632, 5264)  # 16 bytes each, over four GPUs
    assert found.gathered == 4 * (2 * 592 + 256)
    inside = 2 * (8 * 8 + 4) + 4 * (8 + 4) + 4 * 2 + 8 * 16
    assert found.activations == 200 * 4 * inside  # two rows of 100 tokens, four layers
    assert found.logits == 200 * 32 * 14
    assert found.total == sum(asdict(found).values())
    assert logprob_memory(SHAPE, master, layout(master)) == 2632 + 5264 + found.gathered + 300 * 32 * 10
    assert reference_memory(SHAPE, layout(master)) == 4 * 2632


def shrunk() -> Iterator[tuple[str, dict[str, Any]]]:
    yield "activations", {"policy__dtensor_cfg__activation_checkpointing": True}
    yield "logits", {"policy__logprob_chunk_size": 50}
    yield "activations", {"policy__train_micro_batch_size": 1}
    yield "weights", {"cluster__gpus_per_node": 8}
    yield "logits", {"policy__dtensor_cfg__tensor_parallel_size": 2}
    yield "optimizer", {"policy__dtensor_cfg__lora_cfg": {"enabled": True, "dim": 1}}


@pytest.mark.parametrize(("part", "change"), shrunk())
def test_what_saves_memory_saves_it(part: str, change: dict[str, Any]) -> None:
    before, after = resolved(), resolved(**change)
    small = training_memory(SHAPE, after, layout(after))
    assert getattr(small, part) < getattr(training_memory(SHAPE, before, layout(before)), part)


def test_checkpointing_keeps_inputs_and_one_layer() -> None:
    master = resolved(policy__dtensor_cfg__activation_checkpointing=True)
    assert training_memory(SHAPE, master, layout(master)).activations == 200 * (4 * 2 * 8 + activation_bytes(SHAPE))


def test_megatron_keeps_half_precision_weights_and_shares_the_rest() -> None:
    master = resolved(policy__megatron_cfg__enabled=True, policy__megatron_cfg__tensor_model_parallel_size=2)
    found = training_memory(SHAPE, master, layout(master))
    assert (found.weights, found.gradients, found.gathered) == (2632, 2632, 0)  # half of 2 bytes each
    assert found.optimizer == 12 * 1316 // 2
    assert reference_memory(SHAPE, layout(master)) == 2 * 2632 * 2  # one copy for each of two


def test_generation_memory_by_hand() -> None:
    master = resolved(policy__generation__vllm_cfg__tensor_parallel_size=2)
    found = generation_memory(SHAPE, master, layout(master), 20_000)
    assert (found.reserved, found.weights, found.cache) == (10_000, 2632, 7368)
    assert found.cache_per_token == 2 * 4 * 1 * 4 * 2 // 2  # keys and values, layers, heads, size, bytes, over two GPUs
    assert found.episodes(100) == 7368 // 3200


@pytest.mark.parametrize(
    ("change", "tokens"),
    [
        ({}, (200, 300)),
        ({"policy__dynamic_batching__enabled": True}, (500, 700)),
        ({"policy__sequence_packing__enabled": True}, (600, 800)),
    ],
)
def test_tokens_of_a_microbatch(change: dict[str, Any], tokens: tuple[int, int]) -> None:
    master = resolved(**change)
    assert (tokens_per_microbatch(master, "train"), tokens_per_microbatch(master, "logprob")) == tokens


def own(gpus: int, nodes: int | None) -> dict[str, Any]:
    resources = {"gpus_per_node": gpus, "num_nodes": nodes}
    return {"policy__generation__colocated": {"enabled": False, "resources": resources}}


@pytest.mark.parametrize(
    ("change", "training", "generation", "copies"),
    [
        ({}, 4, 4, 4),
        (own(1, None), 3, 1, 3),
        (own(4, 2) | {"cluster__num_nodes": 3}, 4, 8, 4),
        ({"policy__dtensor_cfg__tensor_parallel_size": 2, "policy__dtensor_cfg__context_parallel_size": 2}, 4, 4, 1),
        ({"policy__dtensor_cfg__tensor_parallel_size": 8}, 4, 4, 0),
    ],
)  # fmt: skip
def test_gpus_and_copies(change: dict[str, Any], training: int, generation: int, copies: int) -> None:
    found = layout(resolved(**change))
    assert (found.training_gpus, found.generation_gpus, found.data) == (training, generation, copies)
