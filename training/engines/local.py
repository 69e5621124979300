"""The local engine: one process, one module for sampling and training, on a CPU or one CUDA device."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import GenerationConfig as HfGenerationConfig

from environments.chat_format import ChatFormat
from environments.episode import Episode
from environments.task import Task
from environments.trajectory import Trajectory
from training.checkpoint import saved_state, whole_folder
from training.config import Config, EngineConfig, LossConfig
from training.engines.base import EffectiveSampling, Sampling, Weighted
from training.engines.batching import length_batches, optimiser_steps, pad
from training.engines.generation import GenerationLimits, generate
from training.engines.lagging import LaggingWeights
from training.engines.models import Policy, frozen_copy, load_weights, model_sampling
from training.engines.optimisation import MasterWeights, Optimiser, OptimiserSettings, rl_settings, sft_settings
from training.engines.scoring import recompute, token_logprobs
from training.engines.tool_calls import ToolCalls, ToolLoop
from training.losses import Denominators, denominators, merge_metrics, policy_loss

_STATE = "training_state.pt"
_REFERENCE = "reference"

Stage = Literal["sft", "rl"]


def pick_device(engine: EngineConfig) -> torch.device:
    """``auto`` is CUDA where there is one. Raises ValueError when CUDA is asked for and absent."""
    if engine.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("engine.device is cuda and torch sees no CUDA device: set it to auto or cpu")
    name = engine.device if engine.device != "auto" else ("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(name)


class LocalEngine:
    """``base.Engine`` on one machine.

    SFT and RL keep separate optimiser states and schedules. The KL reference is a frozen copy of the weights at the
    first RL update that asks for one, so after an SFT stage it is the SFT model. ``episode`` may be replaced between
    rollouts (another index, for a validation company).
    """

    def __init__(
        self,
        config: Config,
        policy: Policy,
        chat: ChatFormat,
        episode: Episode,
        *,
        sft: OptimiserSettings | None = None,
    ) -> None:
        """``sft``: optimiser of the SFT stage; None reads it from ``config``."""
        if config.engine.num_threads is not None:
            torch.set_num_threads(config.engine.num_threads)
        self.policy = policy
        self.episode = episode
        self._config = config
        self._chat = chat
        self._settings: dict[Stage, OptimiserSettings] = {
            "rl": rl_settings(config),
            "sft": sft or sft_settings(config),
        }
        self._weights = MasterWeights(policy.model)
        self._optimisers: dict[Stage, Optimiser] = {}
        self._reference: Policy | None = None
        self._version = 0
        self._lagging = LaggingWeights(config.engine.sync_every)
        self._model_file = model_sampling(policy.model)
        self._tool_loop: ToolLoop | None = None
        self._limits = GenerationLimits(
            slots=config.engine.rollout_batch_size,
            max_new_tokens=config.policy.generation.max_new_tokens,
            max_total_tokens=config.policy.max_total_sequence_length,
        )

    @property
    def policy_version(self) -> int:
        """Calls that changed the weights so far."""
        return self._version

    def effective_sampling(self, asked: Sampling) -> EffectiveSampling:
        """As asked: this engine's own loop reads neither the model's generation config nor penalties."""
        return EffectiveSampling(
            temperature=asked.temperature,
            training_temperature=self._config.policy.generation.temperature,
            top_p=asked.top_p,
            top_k=asked.top_k,
            min_p=asked.min_p,
            model_file=self._model_file,
        )

    def rollout(self, tasks: Sequence[Task], sampling: Sampling) -> list[Trajectory]:
        policy, version = self.policy, self._version
        if sampling.may_lag:
            policy, version = self._lagging.policy(policy, version)
        with self._tool_calls() as calls:
            return generate(
                policy,
                tasks,
                episode=self.episode,
                chat=self._chat,
                sampling=sampling,
                limits=self._limits,
                policy_version=version,
                calls=calls,
            )

    def logprobs(self, trajectories: Sequence[Trajectory]) -> list[list[float]]:
        return self._recompute(self.policy, trajectories)

    def update(self, batch: Sequence[Weighted], loss: LossConfig) -> Mapping[str, float]:
        """Means over the optimiser steps of the loss's metrics, ``grad_norm`` and ``lr``; counts are sums.

        Raises ValueError for a batch without a sampled token.
        """
        batch = [item for item in batch if item.trajectory.sampled_tokens]
        if not batch:
            raise ValueError("update got no trajectory with a sampled token: nothing to train on, skip the step")
        trajectories = [item.trajectory for item in batch]
        steps = optimiser_steps(
            len(batch), self._config.policy.train_global_batch_size, [self._config.grpo.seed, self._version]
        )
        # With one optimiser step the weights before it are the present ones: no second forward pass is needed.
        prev = self._previous(batch) if len(steps) > 1 else None
        reference = None
        if loss.reference_policy_kl_penalty > 0:
            reference = self._recompute(self._reference_policy(), trajectories)
        optimiser = self._optimiser("rl")
        reports: list[dict[str, float]] = []
        for members in steps:
            lengths = [len(trajectories[index].token_ids) for index in members]
            whole = denominators([trajectories[index].sampled_tokens for index in members], loss)
            parts: list[dict[str, float]] = []
            for places in length_batches(lengths, self._token_budget("train")):
                indices = [members[place] for place in places]
                parts.append(self._policy_backward(batch, trajectories, indices, loss, whole, prev, reference))
            reports.append(merge_metrics(parts) | optimiser.step())
        self._version += 1
        report = {name: sum(each[name] for each in reports) / len(reports) for name in reports[0]}
        report["skipped_steps"] = sum(each["skipped_steps"] for each in reports)
        return report | {
            "optimizer_steps": float(len(steps)),
            "trained_tokens": float(sum(trajectory.sampled_tokens for trajectory in trajectories)),
            "trained_trajectories": float(len(batch)),
        }

    def sft(self, trajectories: Sequence[Trajectory]) -> Mapping[str, float]:
        """``loss`` is the mean over all sampled tokens (nats), ``token_accuracy`` that of the argmax."""
        trajectories = [trajectory for trajectory in trajectories if trajectory.sampled_tokens]
        if not trajectories:
            raise ValueError("sft got no trajectory with a token whose loss_mask is 1: nothing to train on")
        tokens = sum(trajectory.sampled_tokens for trajectory in trajectories)
        total, right = 0.0, 0.0
        lengths = [len(trajectory.token_ids) for trajectory in trajectories]
        for indices in length_batches(lengths, self._token_budget("train")):
            padded = pad(trajectories, indices, self.policy.device)
            logprobs, correct = token_logprobs(self.policy, padded, temperature=1.0)
            loss = -logprobs.sum() / tokens
            loss.backward()  # pyright: ignore[reportUnknownMemberType]
            self._weights.collect()
            total += float(loss.detach())
            right += float(correct.sum())
        report = self._optimiser("sft").step()
        self._version += 1
        self._lagging.drop()
        return report | {"loss": total, "token_accuracy": right / tokens, "trained_tokens": float(tokens)}

    def sync_weights(self) -> None:
        """Sampling and training use the same module, unless ``engine.sync_every`` lets sampling fall behind."""
        self._lagging.sync(self.policy, self._version)

    def save(self, path: Path) -> None:
        """A Hugging Face folder (``AutoModelForCausalLM.from_pretrained`` reads it) plus the training state."""
        with whole_folder(path) as folder:
            model = self.policy.model
            # The model's own sampling defaults are not ours, and some are refused by save_pretrained.
            names = ("bos_token_id", "eos_token_id", "pad_token_id")
            ends = {name: getattr(model.config, name, None) for name in names}
            model.generation_config = HfGenerationConfig(**ends)
            model.save_pretrained(folder)
            self.policy.tokenizer.save_pretrained(folder)
            if self._reference is not None:
                self._reference.model.save_pretrained(folder / _REFERENCE)
            torch.save(
                {
                    "policy_version": self._version,
                    "optimisers": {stage: optimiser.state() for stage, optimiser in self._optimisers.items()},
                    "masters": self._weights.state(),
                    "lagging": self._lagging.save(folder),
                },
                folder / _STATE,
            )

    def load(self, path: Path) -> None:
        """Raises FileNotFoundError when the folder was not written by ``save``, ValueError for another model's."""
        saved = saved_state(path, _STATE)
        load_weights(self.policy, path)
        state: dict[str, Any] = torch.load(saved, map_location=self.policy.device, weights_only=True)
        self._weights.load_state(state["masters"])
        self._version = int(state["policy_version"])
        self._lagging.load(path, state.get("lagging", {}), self.policy)
        self._optimisers = {}
        for stage, saved in state["optimisers"].items():
            self._optimiser(stage).load_state(saved)
        self._reference = None
        if (path / _REFERENCE).is_dir():
            self._reference = frozen_copy(self.policy)
            load_weights(self._reference, path / _REFERENCE)

    def restart(self) -> None:
        self._optimisers = {}
        self._reference = None
        self._lagging.drop()

    def _tool_calls(self) -> AbstractContextManager[ToolCalls | None]:
        """None for an index that answers in-process."""
        if not self.episode.asynchronous:
            return nullcontext()
        if self._tool_loop is None:
            self._tool_loop = ToolLoop(self._config.tools.max_concurrent_calls)
            weakref.finalize(self, self._tool_loop.close)
        return self._tool_loop.calls(self.episode)

    def _optimiser(self, stage: Stage) -> Optimiser:
        if stage not in self._optimisers:
            model = self.policy.model
            ends = {id(part.weight) for part in (model.get_input_embeddings(), model.get_output_embeddings()) if part}
            names = frozenset(name for name, weight in model.named_parameters() if id(weight) in ends)
            self._optimisers[stage] = Optimiser(self._weights, self._settings[stage], names)
        return self._optimisers[stage]

    def _reference_policy(self) -> Policy:
        if self._reference is None:
            self._reference = frozen_copy(self.policy)
        return self._reference

    def _previous(self, batch: Sequence[Weighted]) -> list[Sequence[float]]:
        rest = iter(self._recompute(self.policy, [each.trajectory for each in batch if each.previous is None]))
        return [next(rest) if each.previous is None else each.previous for each in batch]

    def _token_budget(self, kind: Literal["train", "logprob"]) -> int:
        batching = self._config.policy.dynamic_batching
        if not batching.enabled:
            return self._config.policy.max_total_sequence_length  # one full-length trajectory at a time
        return batching.train_mb_tokens if kind == "train" else batching.logprob_mb_tokens

    def _policy_backward(
        self,
        batch: Sequence[Weighted],
        trajectories: Sequence[Trajectory],
        indices: list[int],
        loss: LossConfig,
        whole: Denominators,
        prev: Sequence[Sequence[float]] | None,
        reference: Sequence[Sequence[float]] | None,
    ) -> dict[str, float]:
        padded = pad(trajectories, indices, self.policy.device)
        sampled, _ = token_logprobs(self.policy, padded, self._config.policy.generation.temperature)
        current = padded.spread(sampled)
        mask = padded.spread(torch.ones_like(sampled))

        def column(values: Sequence[float]) -> Tensor:
            return torch.tensor(values, dtype=current.dtype, device=current.device)

        output = policy_loss(
            current,
            current.detach() if prev is None else _rows(prev, indices, current),
            column([batch[index].advantage for index in indices]),
            mask,
            loss,
            whole,
            generation_logprobs=_rows([trajectory.logprobs for trajectory in trajectories], indices, current),
            reference_logprobs=None if reference is None else _rows(reference, indices, current),
            weights=column([batch[index].weight for index in indices]),
        )
        output.loss.backward()  # pyright: ignore[reportUnknownMemberType]
        self._weights.collect()
        return output.metrics

    def _recompute(self, policy: Policy, trajectories: Sequence[Trajectory]) -> list[list[float]]:
        temperature = self._config.policy.generation.temperature
        return recompute(policy, trajectories, temperature=temperature, token_budget=self._token_budget("logprob"))


def _rows(values: Sequence[Sequence[float]], indices: Sequence[int], like: Tensor) -> Tensor:
    """Rows of unequal length to a tensor shaped as ``like``, 0 on the padding."""
    rows = torch.zeros(like.shape, dtype=like.dtype)
    for row, index in enumerate(indices):
        rows[row, : len(values[index])] = torch.tensor(values[index], dtype=like.dtype)
    return rows.to(like.device)
