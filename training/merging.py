"""Arithmetic on the weights of trained models, tensor by tensor: model soups and chat vectors.

A soup (2203.05482) averages members fine-tuned from one start: sum of w_k theta_k with weights that sum to 1. A chat
vector (2310.04799) adds what instruction tuning did to a base model to another child of that base:
theta + s (theta_chat - theta_base).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from training.weight_folder import MergeError, WeightFolder, write_weights

MAX_SHARD_BYTES = 2 * 2**30
MIN_COSINE = 0.5
"""Between the matrices of two models with one ancestor it is above 0.9, between strangers 0."""
_EMBEDDINGS = frozenset({"embed_tokens", "lm_head", "wte", "embed_in", "embed_out"})
_SHOWN = 5


def soup(
    members: Sequence[Path],
    out: Path,
    *,
    weights: Sequence[float] | None = None,
    dtype: torch.dtype | None = None,
    max_shard_bytes: int = MAX_SHARD_BYTES,
) -> None:
    """Write the average of ``members``; ``weights`` None is uniform. Sums are made in fp32.

    ``dtype`` None keeps that of the first member, whose config and tokenizer are taken too. Raises MergeError where
    members differ in tensors, shapes or vocabulary, where they have no common ancestor, or where weights do not fit.
    """
    shares = _checked_weights(members, weights)
    folders = [WeightFolder(path) for path in members]
    for other in folders[1:]:
        _check_same_tensors(folders[0], other)
        if folders[0].vocabulary() != other.vocabulary():
            raise MergeError(f"{folders[0].path} and {other.path} have different vocabularies: their rows do not match")
        _check_kin(folders[0], other)

    def average(name: str) -> Tensor:
        return _weighted_sum([(folder, share) for folder, share in zip(folders, shares, strict=True)], name)

    note = {"kind": "soup", "members": [str(path) for path in members], "weights": shares}
    write_weights(out, folders[0], average, dtype=dtype, max_shard_bytes=max_shard_bytes, note=note)


def chat_vector(
    model: Path,
    chat: Path,
    base: Path,
    out: Path,
    *,
    scale: float = 1.0,
    dtype: torch.dtype | None = None,
    max_shard_bytes: int = MAX_SHARD_BYTES,
) -> list[str]:
    """Write ``model + scale (chat - base)``; returns the embeddings that were left as they are in ``model``.

    They are left where the vocabularies of the three are not one: then their rows mean different tokens. Raises
    MergeError where other tensors differ in shape, or where the three have no common ancestor.
    """
    folders = own, tuned, start = WeightFolder(model), WeightFolder(chat), WeightFolder(base)
    embeddings = [name for name in own.tensors if _is_embedding(name)]
    words = own.vocabulary()
    one_vocabulary = all(other.vocabulary() == words for other in (tuned, start)) and all(
        name in other.tensors and other.tensors[name].shape == own.tensors[name].shape
        for name in embeddings
        for other in (tuned, start)
    )
    skipped = [] if one_vocabulary else embeddings
    for other in (tuned, start):
        _check_same_tensors(own, other, but_embeddings=bool(skipped))
    _check_kin(start, tuned)
    _check_kin(start, own)

    def moved(name: str) -> Tensor:
        if name in skipped:
            return own.tensor(name)
        return _weighted_sum(list(zip(folders, (1.0, scale, -scale), strict=True)), name)

    note = {
        "kind": "chat_vector", "model": str(model), "chat": str(chat), "base": str(base), "scale": scale,
        "skipped": skipped,
    }  # fmt: skip
    write_weights(out, own, moved, dtype=dtype, max_shard_bytes=max_shard_bytes, note=note)
    return skipped


@dataclass(frozen=True, slots=True)
class GreedySoup:
    """``members`` in the order in which they went in; ``scores`` of every single member by its place in the input."""

    members: tuple[Path, ...]
    score: float
    scores: tuple[float, ...]


def greedy_soup(
    members: Sequence[Path],
    out: Path,
    score: Callable[[Path], float],
    *,
    dtype: torch.dtype | None = None,
    max_shard_bytes: int = MAX_SHARD_BYTES,
) -> GreedySoup:
    """The best member, then every other in order of its own score, each kept only if ``score`` of the soup with it is
    not lower. So the result is never worse than its best member on what ``score`` measures.

    ``score`` loads a folder and measures it, higher is better: give it questions that no reported number rests on.
    """
    _checked_weights(members, None)
    scores = [score(path) for path in members]
    order = sorted(range(len(members)), key=lambda place: -scores[place])
    kept, best = [members[order[0]]], scores[order[0]]
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".soup_") as scratch:
        for place in order[1:]:
            tried = Path(scratch) / "tried"
            soup([*kept, members[place]], tried, dtype=dtype, max_shard_bytes=max_shard_bytes)
            reached = score(tried)
            if reached >= best:
                kept.append(members[place])
                best = reached
    soup(kept, out, dtype=dtype, max_shard_bytes=max_shard_bytes)
    return GreedySoup(tuple(kept), best, tuple(scores))


def _checked_weights(members: Sequence[Path], weights: Sequence[float] | None) -> list[float]:
    if not members:
        raise MergeError("a soup of no members; name at least one folder")
    if weights is None:
        return [1 / len(members)] * len(members)
    if len(weights) != len(members) or min(weights) < 0 or abs(sum(weights) - 1) > 1e-6:
        raise MergeError(
            f"weights {list(weights)} for {len(members)} members: expected one a member, from 0 up, that sum to 1"
        )
    return list(weights)


def _weighted_sum(parts: Sequence[tuple[WeightFolder, float]], name: str) -> Tensor:
    """One tensor of each folder in memory after the other. What is no floating-point number is the first's own."""
    first, share = parts[0]
    kind = first.tensors[name].dtype
    if kind is None:
        return first.tensor(name)
    wide = torch.promote_types(kind, torch.float32)
    total = first.tensor(name).to(wide) * share
    for folder, weight in parts[1:]:
        total.add_(folder.tensor(name).to(wide), alpha=weight)
    return total


def _is_embedding(name: str) -> bool:
    return not _EMBEDDINGS.isdisjoint(name.split("."))


def _check_same_tensors(first: WeightFolder, other: WeightFolder, *, but_embeddings: bool = False) -> None:
    def compared(folder: WeightFolder) -> dict[str, tuple[int, ...]]:
        known = folder.tensors.items()
        return {name: info.shape for name, info in known if not (but_embeddings and _is_embedding(name))}

    mine, theirs = compared(first), compared(other)
    odd = sorted(mine.keys() ^ theirs.keys())
    if odd:
        raise MergeError(f"{first.path} and {other.path} do not have the same tensors: {_listed(odd)} are in one alone")
    unlike = [f"{name} {mine[name]} and {theirs[name]}" for name in mine if mine[name] != theirs[name]]
    if unlike:
        raise MergeError(f"{first.path} and {other.path} differ in shape: {_listed(unlike)}")


def _check_kin(first: WeightFolder, other: WeightFolder) -> None:
    """Weights of one start stay close in direction; those of two starts are as good as orthogonal."""
    dot = mine = theirs = 0.0
    for name, info in first.tensors.items():
        # Vectors (norms) look alike in all models.
        if len(info.shape) < 2 or info.dtype is None or _is_embedding(name):
            continue
        a, b = first.tensor(name).double().flatten(), other.tensor(name).double().flatten()
        dot += float(a @ b)
        mine += float(a @ a)
        theirs += float(b @ b)
    cosine = dot / (mine * theirs) ** 0.5 if mine and theirs else 1.0
    if not cosine >= MIN_COSINE:
        raise MergeError(
            f"{first.path} and {other.path} have no common ancestor: the cosine of their weights is {cosine:.2f}, and "
            f"children of one model are above {MIN_COSINE}. Their average would be noise"
        )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
