"""The sizes of a decoder that its memory follows from, read off a Hugging Face config or known by name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A dense decoder with grouped-query attention and a gated MLP: Llama, Mistral, Qwen2, Qwen3."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    tied: bool
    """The output head is the embedding."""
    qk_norm: bool = False
    """A norm of every head's query and key (Qwen3)."""
    qkv_bias: bool = False
    """Biases on query, key and value (Qwen2)."""

    @property
    def layer_parameters(self) -> int:
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        attention = self.hidden * (2 * queries + 2 * keys) + (queries + 2 * keys if self.qkv_bias else 0)
        norms = 2 * self.hidden + (2 * self.head_dim if self.qk_norm else 0)
        return attention + 3 * self.hidden * self.intermediate + norms

    @property
    def embedding_parameters(self) -> int:
        """Embedding and head."""
        return self.vocab * self.hidden * (1 if self.tied else 2)

    @property
    def parameters(self) -> int:
        return self.embedding_parameters + self.layers * self.layer_parameters + self.hidden

    def lora_parameters(self, rank: int) -> int:
        """Adapters of ``rank`` on every linear layer but the head."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        sides = 2 * (self.hidden + queries) + 2 * (self.hidden + keys) + 3 * (self.hidden + self.intermediate)
        return self.layers * rank * sides


class HuggingFaceConfig(Protocol):
    """The fields of a transformers config that are read here."""

    model_type: str
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    intermediate_size: int
    vocab_size: int
    tie_word_embeddings: bool


FAMILIES = ("llama", "mistral", "qwen2", "qwen3")

_QWEN3_06B = ModelShape(
    hidden=1024, layers=28, heads=16, kv_heads=8, head_dim=128, intermediate=3072, vocab=151936, tied=True, qk_norm=True
)
_QWEN3_4B = replace(_QWEN3_06B, hidden=2560, layers=36, heads=32, intermediate=9728)
KNOWN = {
    "Qwen/Qwen3-0.6B": _QWEN3_06B,
    "Qwen/Qwen3-1.7B": replace(_QWEN3_06B, hidden=2048, intermediate=6144),
    "Qwen/Qwen3-4B": _QWEN3_4B,
    "Qwen/Qwen3-4B-Instruct-2507": _QWEN3_4B,
    "Qwen/Qwen3-8B": replace(_QWEN3_4B, hidden=4096, intermediate=12288, tied=False),
}
"""So that a preflight needs no download. From the models' config.json."""


def shape_of(config: HuggingFaceConfig) -> ModelShape:
    """Raises ValueError for a family whose parameters are counted otherwise, such as a mixture of experts."""
    if config.model_type not in FAMILIES:
        raise ValueError(
            f"model_type {config.model_type}: memory is estimated for {', '.join(FAMILIES)} alone; measure this one"
        )
    return ModelShape(
        hidden=config.hidden_size,
        layers=config.num_hidden_layers,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
        intermediate=config.intermediate_size,
        vocab=config.vocab_size,
        tied=config.tie_word_embeddings,
        qk_norm=config.model_type == "qwen3",
        qkv_bias=config.model_type == "qwen2",
    )
