"""NeMo-RL's two sides over one small transformers model on the CPU, for running its unmodified pieces without a GPU.

``WorkerPolicy`` does what its workers do: micro-batches, counts of valid tokens and sequences over a global batch, one
optimiser step for each; the optimiser is ours, so that runs compare with the local engine. (The workers' own way from
logits to log-probs cannot be taken: it asks for CUDA.)
``WorkerGeneration`` samples for real, with weights of its own that change only by a refit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
import torch
from nemo_rl.distributed.batched_data_dict import BatchedDataDict
from nemo_rl.models.generation.interfaces import verify_right_padding
from stock_policy import TinyGeneration, TinyPolicy, next_logprobs

from environments.chat_format import ChatFormat
from training.config import Config
from training.engines.models import Policy, frozen_copy, has_plain_head, load_policy, load_weights
from training.engines.nemo_rl.pieces import Pieces, Start
from training.engines.optimisation import MasterWeights, Optimiser, rl_settings

CPU = torch.device("cpu")


@dataclass(kw_only=True)
class WorkerPolicy(TinyPolicy):
    """Takes rows as ``data_parallel_size`` workers with micro-batches would. ``calls`` are what it was asked."""

    config: Config
    data_parallel_size: int = 1
    micro_batch: int = 4

    def __post_init__(self) -> None:
        assert self.config.policy.generation.temperature == 1.0
        self.policy = Policy(self.model, self.tokenizer, has_plain_head(self.model))
        self.reference = frozen_copy(self.policy).model
        self.weights = MasterWeights(self.model)
        self.optimiser = Optimiser(self.weights, rl_settings(self.config), frozenset())

    def get_logprobs(self, data: Any, timer: Any = None) -> Any:
        self.calls.append("get_logprobs")
        return super().get_logprobs(data, timer)

    def get_reference_policy_logprobs(self, data: Any, micro_batch_size: Any = None, timer: Any = None) -> Any:
        self.calls.append("get_reference_policy_logprobs")
        return super().get_reference_policy_logprobs(data, micro_batch_size, timer)

    def train(
        self, data: Any, loss_fn: Any, eval_mode: bool = False, *, gbs: int | None = None, mbs: int | None = None,
        timer: Any = None,
    ) -> dict[str, Any]:  # fmt: skip
        self.calls.append("train")
        wanted = gbs or data.size
        assert data.size % wanted == 0, (data.size, wanted)
        assert wanted % self.data_parallel_size == 0, (wanted, self.data_parallel_size)
        losses: list[float] = []
        metrics: dict[str, list[float]] = defaultdict(list)
        norm: dict[str, float] = {}
        for start in range(0, data.size, wanted):
            batch = data.slice(start, start + wanted)
            mask = batch["token_mask"][:, 1:] * batch["sample_mask"][:, None]
            sums = {"global_valid_seqs": batch["sample_mask"].sum(), "global_valid_toks": mask.sum()}
            total = 0.0
            for part in batch.make_microbatch_iterator(mbs or self.micro_batch):
                said = next_logprobs(self.model, part["input_ids"])
                loss, values = loss_fn(next_token_logprobs=said, data=part, **sums)
                loss.backward()
                self.weights.collect()
                total += loss.item()
                if values["num_valid_samples"] > 0:
                    for name, value in (values | {name: count.item() for name, count in sums.items()}).items():
                        metrics[name].append(value)
            norm = self.optimiser.step()
            metrics["lr"].append(norm["lr"])
            losses.append(total)
        return {
            "loss": torch.tensor(losses),
            "grad_norm": torch.tensor([norm["grad_norm"]]),
            "all_mb_metrics": dict(metrics),
        }

    def save_checkpoint(self, weights_path: str, **where: Any) -> None:
        """The folders that DTensor v2 writes: what workers read, and the consolidated model beside it."""
        self.calls.append("save_checkpoint")
        for folder in ("model/consolidated", "shards"):
            self.model.save_pretrained(Path(weights_path) / folder)
        self.tokenizer.save_pretrained(where["tokenizer_path"])
        if where["optimizer_path"]:
            Path(where["optimizer_path"]).mkdir()
            torch.save(self.optimiser.state(), Path(where["optimizer_path"]) / "state.pt")

    def read_checkpoint(self, start: Start) -> None:
        """As a worker does while it starts: after the reference was taken."""
        if start.weights is not None:
            load_weights(self.policy, start.weights / "shards")
        if start.optimizer is not None:
            self.optimiser.load_state(torch.load(start.optimizer / "state.pt"))

    def stream_weights_via_ipc_zmq(self, *args: Any, **kwargs: Any) -> list[Any]:
        self.calls.append("stream_weights_via_ipc_zmq")
        return self._sent()

    def broadcast_weights_for_collective(self, kv_scales: Any = None) -> list[Any]:
        self.calls.append("broadcast_weights_for_collective")
        return self._sent()

    def shutdown(self) -> bool:
        self.calls.append("shutdown")
        return True

    def _sent(self) -> list[Any]:
        self.sent = {name: value.clone() for name, value in self.model.state_dict().items()}
        return [ray.put(True)]

    @torch.no_grad()
    def _logprobs(self, model: Any, data: Any) -> torch.Tensor:
        assert data.size % self.data_parallel_size == 0, (data.size, self.data_parallel_size)
        parts = data.make_microbatch_iterator(self.micro_batch)
        return torch.nn.functional.pad(torch.cat([next_logprobs(model, part["input_ids"]) for part in parts]), (1, 0))


@dataclass(kw_only=True)
class WorkerGeneration(TinyGeneration):
    """Samples rows side by side. ``noise``: nats added to every recorded log-prob, as of a sampler that reports another
    distribution than its own."""

    config: Config
    noise: float = 0.0
    colocated: bool = True

    def __post_init__(self) -> None:
        self.random = torch.Generator().manual_seed(self.config.grpo.seed)
        self.copy = frozen_copy(self.policy.policy).model
        with torch.no_grad():
            for weight in self.copy.parameters():  # NeMo-RL starts vLLM with dummy weights: a missing refit must show
                weight.fill_(0.01)
        self.asleep = True

    def prepare_for_generation(self, *args: Any, **kwargs: Any) -> bool:
        self.asleep = False
        return True

    def finish_generation(self, *args: Any, **kwargs: Any) -> bool:
        self.policy.calls.append("finish_generation")
        self.asleep = True
        return True

    def update_weights_via_ipc_zmq(self) -> list[Any]:
        self.copy.load_state_dict(self.policy.sent)
        return [ray.put(True)]

    def update_weights_from_collective(self) -> list[Any]:
        return self.update_weights_via_ipc_zmq()

    def shutdown(self) -> bool:
        return True

    def generate(self, data: Any, greedy: bool = False) -> Any:
        assert not (self.asleep and self.colocated), "generation was put to sleep and asked for a turn"
        pad = self.policy.tokenizer.pad_token_id
        verify_right_padding(data, pad_value=pad)
        contexts = [ids[:n] for ids, n in zip(data["input_ids"], data["input_lengths"].tolist(), strict=True)]
        turns = self._sample(contexts, greedy, pad)
        rows = [torch.cat([context, ids]) for context, (ids, _) in zip(contexts, turns, strict=True)]
        output = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=pad)
        logprobs = torch.zeros(output.shape)
        for row, (whole, (ids, values)) in enumerate(zip(rows, turns, strict=True)):
            logprobs[row, len(whole) - len(ids) : len(whole)] = values
        return BatchedDataDict(
            output_ids=output,
            logprobs=logprobs,
            generation_lengths=torch.tensor([len(ids) for ids, _ in turns]),
            unpadded_sequence_lengths=torch.tensor([len(whole) for whole in rows]),
            truncated=torch.tensor([not len(ids) or int(ids[-1]) not in self.stop_ids for ids, _ in turns]),
        )

    @torch.inference_mode()
    def _sample(self, contexts: list[torch.Tensor], greedy: bool, pad: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Ids and log-probs of one turn each, contexts padded on the left."""
        width = max(map(len, contexts))
        step = torch.stack([torch.nn.functional.pad(c, (width - len(c), 0), value=pad) for c in contexts])
        mask = torch.stack([torch.arange(width) >= width - len(context) for context in contexts]).long()
        positions = (mask.cumsum(dim=1) - 1).clamp(min=0)
        rooms = [self.max_seq_len - len(context) for context in contexts]
        going = torch.ones(len(contexts), dtype=torch.bool)
        counts = torch.zeros(len(contexts), dtype=torch.long)
        said: list[torch.Tensor] = []
        values: list[torch.Tensor] = []
        cache: Any = None
        while len(said) < min(self.max_new_tokens, max(rooms)) and bool(going.any()):
            out = self.copy(
                input_ids=step, attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True
            )
            cache = out.past_key_values
            logprobs = torch.log_softmax(out.logits[:, -1].float(), dim=-1)
            if greedy:
                drawn = logprobs.argmax(dim=-1)
            else:
                drawn = torch.multinomial(logprobs.exp(), 1, generator=self.random)[:, 0]
            said.append(drawn)
            values.append(logprobs.gather(1, drawn[:, None])[:, 0])
            counts += going
            going &= ~torch.isin(drawn, torch.tensor(self.stop_ids))
            step, positions = drawn[:, None], positions[:, -1:] + 1
            mask = torch.cat([mask, torch.ones(len(contexts), 1, dtype=torch.long)], dim=1)
        ids, chances = torch.stack(said, dim=1), torch.stack(values, dim=1)
        chances = chances + self.noise * torch.randn(chances.shape, generator=self.random)
        ends = [min(int(count), room) for count, room in zip(counts, rooms, strict=True)]
        return [(ids[row, :end].clone(), chances[row, :end].clone()) for row, end in enumerate(ends)]


@dataclass
class Lines:
    """Keeps what NeMo-RL's logger would be told: step, prefix, metrics."""

    lines: list[tuple[int, str, dict[str, Any]]] = field(default_factory=list)

    def log_metrics(self, metrics: dict[str, Any], step: int, prefix: str | None = "") -> None:
        self.lines.append((step, prefix or "", metrics))


@dataclass
class TinyCluster:
    """``assemble`` for ``NemoRlEngine``; ``built`` are the starts it was asked for."""

    config: Config
    chat: ChatFormat
    asynchronous: bool = False
    colocated: bool = True
    noise: float = 0.0
    shards: int = 1
    divisible_by: int = 1
    built: list[Start] = field(default_factory=list)
    dashboard: Lines = field(default_factory=Lines)

    def master(self) -> Mapping[str, Any]:
        """The keys of NeMo-RL's config that the engine reads."""
        return {
            "policy": {
                "train_micro_batch_size": 4,
                "logprob_batch_size": 4,
                "make_sequence_length_divisible_by": self.divisible_by,
                "dynamic_batching": {"enabled": False},
                "sequence_packing": {"enabled": False},
                "generation": {
                    "backend": "vllm",
                    "vllm_cfg": {"async_engine": self.asynchronous},
                    "colocated": {"enabled": self.colocated},
                    "_pad_token_id": self.chat.tokenizer.pad_token_id,
                },
            },
            "checkpointing": {"save_optimizer": True},
        }

    def assemble(self, start: Start) -> Pieces:
        self.built.append(start)
        config = self.config.policy
        if start.model is not None:
            config = config.model_copy(update={"model_name": start.model, "init": "pretrained"})
        loaded = load_policy(config, device=CPU, seed=self.config.grpo.seed)
        policy = WorkerPolicy(
            model=loaded.model, tokenizer=self.chat.tokenizer, config=self.config, data_parallel_size=self.shards
        )
        policy.read_checkpoint(start)
        generation = WorkerGeneration(
            policy=policy,
            stop_ids=self.chat.end_of_turn_ids,
            max_new_tokens=config.generation.max_new_tokens,
            max_seq_len=config.max_total_sequence_length,
            asynchronous=self.asynchronous,
            config=self.config,
            noise=self.noise,
            colocated=self.colocated,
        )
        return Pieces(policy, generation, self.master(), self.dashboard)
