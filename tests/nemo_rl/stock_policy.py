"""A model of two layers as NeMo-RL's policy and its generation, in this process: what its loops need of a cluster."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
import torch
from nemo_rl.distributed.batched_data_dict import BatchedDataDict
from nemo_rl.models.policy.interfaces import ColocatablePolicyInterface
from nemo_rl_play import ReadyGeneration
from transformers import PreTrainedTokenizerBase, Qwen3Config, Qwen3ForCausalLM


def tiny_model(vocabulary: int, seed: int = 0, positions: int = 4096) -> Qwen3ForCausalLM:
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=vocabulary, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, max_position_embeddings=positions, tie_word_embeddings=True,
    )  # fmt: skip
    return Qwen3ForCausalLM(config)


def next_logprobs(model: Any, input_ids: torch.Tensor) -> torch.Tensor:
    """``[B, S - 1]``: of each token after the first, given those before it. Right padding does no harm."""
    logits = model(input_ids=input_ids[:, :-1], use_cache=False).logits.float()
    return logits.log_softmax(-1).gather(-1, input_ids[:, 1:, None]).squeeze(-1)


@dataclass
class TinyPolicy(ColocatablePolicyInterface):
    """``train`` keeps what it was given in ``trained``. One optimiser step for each ``batch_size`` rows (None: all)."""

    model: Any
    tokenizer: PreTrainedTokenizerBase
    lr: float = 1e-3
    batch_size: int | None = None
    trained: list[Any] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.reference = copy.deepcopy(self.model).requires_grad_(False)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=self.lr)

    def train(
        self, data: Any, loss_fn: Any, eval_mode: bool = False, *, gbs: int | None = None, mbs: int | None = None,
        timer: Any = None,
    ) -> dict[str, Any]:  # fmt: skip
        if not eval_mode:
            self.trained.append(copy.deepcopy(dict(data)))
        rows = len(data["input_ids"])
        step = gbs or self.batch_size or rows
        assert rows % step == 0, f"{rows} rows do not divide into steps of {step}"
        metrics: dict[str, list[float]] = {}
        losses: list[torch.Tensor] = []
        norm = torch.zeros(1)
        for start in range(0, rows, step):
            part = data.slice(start, start + step)
            mask = part["token_mask"][:, 1:] * part["sample_mask"][:, None]
            sums = {"global_valid_seqs": part["sample_mask"].sum(), "global_valid_toks": mask.sum()}
            with torch.set_grad_enabled(not eval_mode):
                said = next_logprobs(self.model, part["input_ids"])
                loss, found = loss_fn(next_token_logprobs=said, data=part, **sums)
            losses.append(loss.detach().reshape(1))
            if not eval_mode:
                loss.backward()
                norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0).reshape(1)
                self.optimizer.step()
                self.optimizer.zero_grad()
            found |= {"lr": self.lr, "wd": 0.01} | {name: value.item() for name, value in sums.items()}
            for name, value in found.items():
                metrics.setdefault(name, []).append(value)
        return {"loss": torch.cat(losses).mean(), "grad_norm": norm, "all_mb_metrics": metrics}

    def _logprobs(self, model: Any, data: Any) -> torch.Tensor:
        with torch.no_grad():
            said = next_logprobs(model, data["input_ids"])
        return torch.cat([torch.zeros(len(said), 1), said], dim=1)

    def get_logprobs(self, data: Any, timer: Any = None) -> Any:
        return BatchedDataDict(logprobs=self._logprobs(self.model, data))

    def get_reference_policy_logprobs(self, data: Any, micro_batch_size: Any = None, timer: Any = None) -> Any:
        return BatchedDataDict(reference_logprobs=self._logprobs(self.reference, data))

    def save_checkpoint(self, weights_path: str, **where: Any) -> None:
        self.model.save_pretrained(weights_path)
        self.tokenizer.save_pretrained(where["tokenizer_path"])
        if where.get("optimizer_path"):
            Path(where["optimizer_path"]).mkdir(parents=True)
            torch.save(self.optimizer.state_dict(), Path(where["optimizer_path"]) / "state.pt")

    def get_free_memory_bytes(self) -> int:
        return 2**30

    def prepare_refit_info(self) -> dict[str, Any]:
        return {}

    def stream_weights_via_ipc_zmq(self, *args: Any, **kwargs: Any) -> list[Any]:
        return [ray.put(True)]

    def broadcast_weights_for_collective(self, kv_scales: Any = None) -> list[Any]:
        return [ray.put(True)]

    def init_collective(self, *args: Any, **kwargs: Any) -> list[Any]:
        return []

    def get_topk_logits(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def calibrate_qkv_fp8_scales(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def shutdown(self) -> bool:
        return True

    def offload_before_refit(self) -> None:
        self.calls.append("offload_before_refit")

    def offload_after_refit(self) -> None:
        self.calls.append("offload_after_refit")

    def prepare_for_lp_inference(self) -> None:
        self.calls.append("prepare_for_lp_inference")

    def prepare_for_training(self, *args: Any, **kwargs: Any) -> None:
        self.calls.append("prepare_for_training")

    def finish_training(self, *args: Any, **kwargs: Any) -> None:
        self.calls.append("finish_training")


@dataclass
class TinyGeneration(ReadyGeneration):
    """Samples a turn from ``policy``'s model at temperature 1 until a stop token. ``told`` may put words in its mouth:
    a turn's ids for a row's context, or None to sample at most ``max_new_tokens``. Log-probs are always the model's."""

    policy: TinyPolicy
    stop_ids: tuple[int, ...]
    max_new_tokens: int
    max_seq_len: int
    asynchronous: bool = False
    tells_cuts: bool = True
    told: Callable[[list[int]], list[int] | None] = lambda context: None

    def __post_init__(self) -> None:
        self.random = torch.Generator().manual_seed(0)

    def generate(self, data: Any, greedy: bool = False) -> Any:
        contexts = [
            ids[:length] for ids, length in zip(data["input_ids"].tolist(), data["input_lengths"].tolist(), strict=True)
        ]
        turns = [self._turn(context, greedy) for context in contexts]
        rows = [torch.tensor([*context, *ids]) for context, (ids, _) in zip(contexts, turns, strict=True)]
        pad = self.policy.tokenizer.pad_token_id
        output = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=pad)
        logprobs = torch.zeros(output.shape)
        for row, (context, (ids, _)) in enumerate(zip(contexts, turns, strict=True)):
            with torch.no_grad():
                said = next_logprobs(self.policy.model, rows[row][None])[0]
            logprobs[row, len(context) : len(rows[row])] = said[len(said) - len(ids) :]
        cuts = {"truncated": torch.tensor([cut for _, cut in turns])} if self.tells_cuts else {}
        return BatchedDataDict(
            output_ids=output,
            logprobs=logprobs,
            generation_lengths=torch.tensor([len(ids) for ids, _ in turns]),
            unpadded_sequence_lengths=torch.tensor([len(row) for row in rows]),
            **cuts,
        )

    async def generate_async(self, data: Any, greedy: bool = False) -> AsyncIterator[tuple[int, Any]]:
        for row in range(len(data["input_lengths"])):
            yield row, self.generate(data.slice(row, row + 1), greedy)

    @torch.no_grad()
    def _turn(self, context: list[int], greedy: bool) -> tuple[list[int], bool]:
        """The sampled ids, and whether the turn was cut."""
        room = self.max_seq_len - len(context)
        told = self.told(context)
        if told is not None:
            return told[:room], len(told) > room
        room = min(room, self.max_new_tokens)
        made: list[int] = []
        cache: Any = None
        step = torch.tensor([context])
        while len(made) < room:
            out = self.policy.model(input_ids=step, past_key_values=cache, use_cache=True)
            cache, shares = out.past_key_values, out.logits[0, -1].float().softmax(-1)
            token = int(shares.argmax() if greedy else torch.multinomial(shares, 1, generator=self.random))
            made.append(token)
            if token in self.stop_ids:
                return made, False
            step = torch.tensor([[token]])
        return made, True
