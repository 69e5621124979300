from __future__ import annotations

import json
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_policy
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from training.merging import chat_vector, greedy_soup, soup
from training.weight_folder import INDEX, SINGLE, MergeError, WeightFolder

Weights = dict[str, Tensor]


def start(seed: int = 0, rows: int = 8, dtype: torch.dtype = torch.float32) -> Weights:
    draw = torch.Generator().manual_seed(seed)
    shapes = {
        "model.embed_tokens.weight": (rows, 4),
        "model.layers.0.mlp.up_proj.weight": (6, 4),
        "model.norm.weight": (4,),
    }
    return {name: torch.randn(*shape, generator=draw).to(dtype) for name, shape in shapes.items()}


def child(weights: Weights, seed: int, by: float = 0.1) -> Weights:
    draw = torch.Generator().manual_seed(seed)
    return {
        name: (value.float() + by * torch.randn(value.shape, generator=draw)).to(value.dtype)
        for name, value in weights.items()
    }


def folder(path: Path, weights: Weights, *, shards: int = 1, words: int = 8) -> Path:
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps({"model_type": "llama", "dtype": "float32"}))
    tiny_policy.tokenizer().save_pretrained(path)
    state = json.loads((path / "tokenizer.json").read_text())
    state["added_tokens"] = state["added_tokens"][: words - 3]
    (path / "tokenizer.json").write_text(json.dumps(state))
    names = list(weights)
    if shards == 1:
        save_file(weights, path / SINGLE)
        return path
    where: dict[str, str] = {}
    for number in range(shards):
        part = names[number::shards]
        file = f"part{number}.safetensors"
        save_file({name: weights[name] for name in part}, path / file)
        where |= dict.fromkeys(part, file)
    (path / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": where}))
    return path


def read(path: Path) -> Weights:
    parts = [load_file(file) for file in sorted(path.glob("*.safetensors"))]
    return {name: tensor for part in parts for name, tensor in part.items()}


def test_a_soup_is_the_weighted_mean(tmp_path: Path) -> None:
    first = start()
    second, third = child(first, 1), child(first, 2)
    paths = [folder(tmp_path / name, each) for name, each in zip("abc", (first, second, third), strict=True)]
    soup(paths, tmp_path / "uniform")
    soup(paths, tmp_path / "weighted", weights=[0.5, 0.3, 0.2])
    for name in first:
        a, b, c = (each[name].numpy().astype(np.float64) for each in (first, second, third))
        np.testing.assert_allclose(read(tmp_path / "uniform")[name].numpy(), (a + b + c) / 3, rtol=1e-6, atol=1e-7)
        wanted = 0.5 * a + 0.3 * b + 0.2 * c
        np.testing.assert_allclose(read(tmp_path / "weighted")[name].numpy(), wanted, rtol=1e-6, atol=1e-7)
    note = json.loads((tmp_path / "weighted" / "merge.json").read_text())
    assert note["weights"] == [0.5, 0.3, 0.2]
    assert (tmp_path / "weighted" / "tokenizer.json").is_file()


def test_a_chat_vector_is_the_difference_added(tmp_path: Path) -> None:
    base = start()
    chat, own = child(base, 1), child(base, 2)
    paths = [
        folder(tmp_path / name, each) for name, each in zip(("own", "chat", "base"), (own, chat, base), strict=True)
    ]
    assert chat_vector(*paths, tmp_path / "out", scale=0.5) == []
    for name, value in read(tmp_path / "out").items():
        np.testing.assert_allclose(
            value.numpy(), (own[name] + 0.5 * (chat[name] - base[name])).numpy(), rtol=1e-6, atol=1e-7
        )


@pytest.mark.parametrize(("rows", "words"), [(10, 8), (8, 6)])
def test_embeddings_stay_where_the_vocabularies_differ(tmp_path: Path, rows: int, words: int) -> None:
    base, wider = start(), start(rows=rows)
    own = {**child(base, 2), "model.embed_tokens.weight": wider["model.embed_tokens.weight"]}
    chat = child(base, 1)
    out = tmp_path / "out"
    skipped = chat_vector(
        folder(tmp_path / "own", own, words=words),
        folder(tmp_path / "chat", chat),
        folder(tmp_path / "base", base),
        out,
    )
    assert skipped == ["model.embed_tokens.weight"]
    merged = read(out)
    assert torch.equal(merged["model.embed_tokens.weight"], own["model.embed_tokens.weight"])
    inner = "model.layers.0.mlp.up_proj.weight"
    torch.testing.assert_close(merged[inner], own[inner] + chat[inner] - base[inner])


def test_sums_of_half_precision_are_made_in_fp32(tmp_path: Path) -> None:
    first = start(dtype=torch.bfloat16)
    paths = [folder(tmp_path / str(n), child(first, n, by=0.01)) for n in range(8)]
    soup(paths, tmp_path / "half")
    soup(paths, tmp_path / "wide", dtype=torch.float32)
    for name in first:
        exact = torch.stack([child(first, n, by=0.01)[name].double() for n in range(8)]).mean(0)
        assert read(tmp_path / "half")[name].dtype == torch.bfloat16
        assert torch.equal(read(tmp_path / "half")[name], exact.to(torch.bfloat16))
        torch.testing.assert_close(read(tmp_path / "wide")[name], exact.float(), rtol=1e-6, atol=1e-7)
    assert json.loads((tmp_path / "wide" / "config.json").read_text())["dtype"] == "float32"


def test_integer_buffers_are_the_first_members(tmp_path: Path) -> None:
    first = start() | {"model.position_ids": torch.arange(5)}
    soup(
        [
            folder(tmp_path / "a", first),
            folder(tmp_path / "b", child(start(), 1) | {"model.position_ids": torch.arange(5)}),
        ],
        tmp_path / "out",
    )
    assert torch.equal(read(tmp_path / "out")["model.position_ids"], torch.arange(5))


def test_shards_in_and_out(tmp_path: Path) -> None:
    first = start()
    second = child(first, 1)
    one = [folder(tmp_path / "a1", first), folder(tmp_path / "b1", second)]
    many = [folder(tmp_path / "a2", first, shards=2), folder(tmp_path / "b2", second, shards=3)]
    soup(one, tmp_path / "whole")
    soup(many, tmp_path / "cut", max_shard_bytes=100)
    index = json.loads((tmp_path / "cut" / INDEX).read_text())
    assert set(index["weight_map"]) == set(first)
    assert len(set(index["weight_map"].values())) == 3
    assert index["metadata"]["total_size"] == sum(tensor.nbytes for tensor in first.values())
    assert WeightFolder(tmp_path / "cut").tensors == WeightFolder(tmp_path / "whole").tensors
    for name, value in read(tmp_path / "whole").items():
        assert torch.equal(read(tmp_path / "cut")[name], value)


def test_few_tensors_are_in_memory_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = torch.Generator().manual_seed(0)
    layers = {f"model.layers.{n}.weight": torch.randn(64, 64, generator=draw) for n in range(20)}
    members = [folder(tmp_path / str(n), child(layers, n, by=0.01)) for n in range(3)]
    alive = most = 0
    original = WeightFolder.tensor

    def counted(self: WeightFolder, name: str) -> Tensor:
        nonlocal alive, most
        value = original(self, name)
        alive += 1
        most = max(most, alive)

        def gone() -> None:
            nonlocal alive
            alive -= 1

        weakref.finalize(value, gone)
        return value

    monkeypatch.setattr(WeightFolder, "tensor", counted)
    soup(members, tmp_path / "out", max_shard_bytes=4 * 64 * 64 * 4)
    assert len(list((tmp_path / "out").glob("*.safetensors"))) == 5
    assert most <= 2  # of 60 that are read


def test_what_does_not_go_together_is_refused(tmp_path: Path) -> None:
    first = folder(tmp_path / "first", start())
    stranger = folder(tmp_path / "stranger", start(seed=9))
    wider = folder(tmp_path / "wider", start(rows=10))
    fewer = folder(tmp_path / "fewer", {name: value for name, value in start().items() if "mlp" not in name})
    other_words = folder(tmp_path / "words", child(start(), 1), words=6)
    for members, words in (
        ([first, stranger], "no common ancestor"),
        ([first, wider], r"embed_tokens.weight \(8, 4\) and \(10, 4\)"),
        ([first, fewer], "up_proj.weight are in one alone"),
        ([first, other_words], "different vocabularies"),
        ([], "no members"),
    ):
        with pytest.raises(MergeError, match=words):
            soup(members, tmp_path / "out")
    for weights in ([0.5, 0.6], [1.0], [1.5, -0.5]):
        with pytest.raises(MergeError, match="sum to 1"):
            soup([first, first], tmp_path / "out", weights=weights)
    with pytest.raises(MergeError, match="no common ancestor"):
        chat_vector(first, stranger, first, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_broken_folders_are_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    cut = folder(tmp_path / "cut", start())
    (cut / SINGLE).write_bytes((cut / SINGLE).read_bytes()[:40])
    lying = folder(tmp_path / "lying", start(), shards=2)
    index = json.loads((lying / INDEX).read_text())
    index["weight_map"]["model.extra.weight"] = "part0.safetensors"
    (lying / INDEX).write_text(json.dumps(index))
    for path, words in ((tmp_path / "empty", "holds neither"), (cut, "cut"), (lying, "lacks model.extra.weight")):
        with pytest.raises(MergeError, match=words):
            WeightFolder(path)


def test_a_greedy_soup_is_never_worse_than_its_best_member(tmp_path: Path) -> None:
    first = start()
    members = [folder(tmp_path / str(n), child(first, n, by=0.3)) for n in range(5)]
    target = start()["model.layers.0.mlp.up_proj.weight"]
    measured: list[float] = []

    def score(path: Path) -> float:
        measured.append(-float((read(path)["model.layers.0.mlp.up_proj.weight"] - target).square().sum()))
        return measured[-1]

    chosen = greedy_soup(members, tmp_path / "out", score)
    assert chosen.score == score(tmp_path / "out") >= max(chosen.scores)
    assert chosen.scores == tuple(score(path) for path in members)
    assert len(chosen.members) > 1  # independent noise averages out, so some member helps
    assert not list(tmp_path.glob(".soup_*"))

    def worse_together(path: Path) -> float:
        return 1.0 if path in members else 0.0

    alone = greedy_soup(members, tmp_path / "alone", worse_together)
    assert alone.members == (members[0],)
    assert read(tmp_path / "alone").keys() == first.keys()
    assert all(torch.equal(value, read(members[0])[name]) for name, value in read(tmp_path / "alone").items())


def test_a_merged_model_loads_and_speaks(tmp_path: Path) -> None:
    tiny_policy.write_model(tmp_path / "shape", kind="llama")
    settings = tiny_policy.config(tmp_path / "shape")
    model: Any = tiny_policy.policy(settings).model
    model.save_pretrained(tmp_path / "a")
    with torch.no_grad():
        for value in model.parameters():
            value.add_(0.01)
    model.save_pretrained(tmp_path / "b", max_shard_size="20KB")
    assert (tmp_path / "b" / INDEX).is_file()
    soup([tmp_path / "a", tmp_path / "b"], tmp_path / "out", max_shard_bytes=30_000)
    merged: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    wanted: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "a")
    with torch.no_grad():
        for value in wanted.parameters():
            value.add_(0.005)
    ids = torch.arange(6)[None]
    torch.testing.assert_close(merged(input_ids=ids).logits, wanted(input_ids=ids).logits, rtol=1e-4, atol=1e-4)
