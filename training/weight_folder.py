"""A Hugging Face folder of safetensors, read and written one tensor at a time."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from training.checkpoint import whole_folder

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
_KEPT = frozenset({".json", ".jinja", ".txt", ".model"})  # what belongs to a model beside its weights
_DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


class MergeError(ValueError):
    """Weights that cannot be read or do not go together; the message names the folders and the tensors."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """``dtype`` is None for what is no floating-point number (an integer buffer)."""

    shape: tuple[int, ...]
    dtype: torch.dtype | None


class WeightFolder:
    """One file or shards with an index; nothing but headers is read until ``tensor`` asks."""

    def __init__(self, path: Path) -> None:
        """Raises MergeError for a folder without safetensors, or whose files do not fit its index."""
        self.path = path
        self._files = _files_of(path)
        self.tensors: dict[str, TensorInfo] = {}
        for file in sorted(set(self._files.values())):
            try:
                with safe_open(file, framework="pt") as opened:
                    held = set(cast("list[str]", opened.keys()))
                    for name in (name for name, where in self._files.items() if where == file):
                        if name not in held:
                            raise MergeError(f"{file} lacks {name}, which {path / INDEX} says it holds")
                        view = opened.get_slice(name)
                        self.tensors[name] = TensorInfo(tuple(view.get_shape()), _DTYPES.get(view.get_dtype()))
            except (OSError, SafetensorError) as error:
                raise MergeError(f"{file} cannot be read as safetensors ({error}): it is missing or cut") from error

    def tensor(self, name: str) -> Tensor:
        with safe_open(self._files[name], framework="pt") as opened:
            return cast(Tensor, opened.get_tensor(name))

    def vocabulary(self) -> dict[str, int] | None:
        """Token to id, added tokens included; None where the folder has no ``tokenizer.json``."""
        file = self.path / "tokenizer.json"
        if not file.is_file():
            return None
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(file)).get_vocab(with_added_tokens=True)


def write_weights(
    out: Path,
    like: WeightFolder,
    build: Callable[[str], Tensor],
    *,
    dtype: torch.dtype | None,
    max_shard_bytes: int,
    note: dict[str, Any],
) -> None:
    """``out`` with the tensors of ``like`` as ``build(name)`` gives them, and the config and tokenizer of ``like``.

    At most one shard and what ``build`` needs for one tensor are in memory. ``dtype`` None keeps that of ``like``.
    ``note`` becomes ``merge.json``. The folder appears whole or not at all.
    """
    shards = plan_shards(like, dtype, max_shard_bytes)
    with whole_folder(out) as folder:
        for file in like.path.iterdir():
            if file.is_file() and file.suffix in _KEPT and file.name not in (INDEX, "merge.json"):
                shutil.copyfile(file, folder / file.name)
        if dtype is not None and (folder / "config.json").is_file():
            _set_dtype(folder / "config.json", dtype)
        names = [f"model-{n:05d}-of-{len(shards):05d}.safetensors" for n in range(1, len(shards) + 1)]
        if len(shards) == 1:
            names = [SINGLE]
        total = 0
        for file, members in zip(names, shards, strict=True):
            held = {name: build(name).to(_out_dtype(like, name, dtype)).contiguous() for name in members}
            total += sum(tensor.nbytes for tensor in held.values())
            save_file(held, folder / file, metadata={"format": "pt"})
            del held
        if len(shards) > 1:
            where = {name: file for file, members in zip(names, shards, strict=True) for name in members}
            index = {"metadata": {"total_size": total}, "weight_map": where}
            (folder / INDEX).write_text(json.dumps(index, indent=1), encoding="utf-8")
        (folder / "merge.json").write_text(json.dumps(note, indent=1, ensure_ascii=False), encoding="utf-8")


def plan_shards(like: WeightFolder, dtype: torch.dtype | None, max_shard_bytes: int) -> list[list[str]]:
    """Names in order, cut where a shard would grow above the limit; a tensor above it is a shard of its own."""
    shards: list[list[str]] = []
    room = 0
    for name, info in like.tensors.items():
        kind = _out_dtype(like, name, dtype) or torch.int64  # an integer buffer: at most 8 bytes an element
        size = torch.Size(info.shape).numel() * kind.itemsize
        if not shards or size > room:
            shards.append([])
            room = max_shard_bytes
        shards[-1].append(name)
        room -= size
    return shards


def _out_dtype(like: WeightFolder, name: str, dtype: torch.dtype | None) -> torch.dtype | None:
    own = like.tensors[name].dtype
    return own if dtype is None or own is None else dtype


def _files_of(path: Path) -> dict[str, Path]:
    if (path / INDEX).is_file():
        try:
            where = cast("dict[str, str]", json.loads((path / INDEX).read_text(encoding="utf-8"))["weight_map"])
        except (ValueError, KeyError) as error:
            raise MergeError(f"{path / INDEX} is no index of shards ({error})") from error
        return {name: path / file for name, file in where.items()}
    single = path / SINGLE
    if not single.is_file():
        raise MergeError(
            f"{path} holds neither {SINGLE} nor {INDEX}: expected a Hugging Face folder with safetensors weights"
        )
    try:
        with safe_open(single, framework="pt") as opened:
            return dict.fromkeys(cast("Sequence[str]", opened.keys()), single)
    except (OSError, SafetensorError) as error:
        raise MergeError(f"{single} cannot be read as safetensors ({error}): it is cut or another format") from error


def _set_dtype(path: Path, dtype: torch.dtype) -> None:
    config = cast("dict[str, Any]", json.loads(path.read_text(encoding="utf-8")))
    config.pop("torch_dtype", None)
    config["dtype"] = str(dtype).removeprefix("torch.")
    path.write_text(json.dumps(config, indent=1), encoding="utf-8")
