"""From gradients to weights: fp32 masters, the learning-rate schedule, AdamW, and Muon for training from scratch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from training.config import Config
from training.engines.muon import Muon


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimiserSettings:
    """``lr`` rises linearly over ``warmup_steps``, then stays, or falls to ``min_lr_ratio`` of itself at
    ``decay_steps`` (warm-up included). Weight decay is decoupled and spares vectors (norms, biases).

    ``muon`` (https://kellerjordan.github.io/posts/muon) moves the hidden matrices at ``muon_lr``; embeddings, the head
    and vectors stay with AdamW at ``lr``.
    """

    name: Literal["torch.optim.AdamW", "muon"] = "torch.optim.AdamW"
    lr: float
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    warmup_steps: int = 0
    decay_steps: int | None = None
    decay: Literal["linear", "cosine"] = "linear"
    min_lr_ratio: float = 0.0
    max_grad_norm: float | None = 1.0
    muon_lr: float = 0.02


def rl_settings(config: Config) -> OptimiserSettings:
    optimizer, scheduler = config.policy.optimizer, config.policy.scheduler
    return OptimiserSettings(
        name=optimizer.name,
        lr=optimizer.kwargs.lr,
        weight_decay=optimizer.kwargs.weight_decay,
        betas=optimizer.kwargs.betas,
        eps=optimizer.kwargs.eps,
        warmup_steps=scheduler.warmup_steps,
        decay_steps=scheduler.decay_steps,
        min_lr_ratio=scheduler.min_lr_ratio,
        max_grad_norm=config.policy.max_grad_norm,
    )


def sft_settings(config: Config) -> OptimiserSettings:
    optimizer = config.policy.optimizer
    return OptimiserSettings(
        name=optimizer.name,
        lr=config.sft.learning_rate,
        weight_decay=optimizer.kwargs.weight_decay,
        betas=optimizer.kwargs.betas,
        eps=optimizer.kwargs.eps,
        warmup_steps=config.sft.warmup_steps,
        # Falls to 0: the stage ends with sharp copies, which self-play at temperature 1 lives on.
        decay_steps=config.sft.max_num_steps or None,
        max_grad_norm=config.policy.max_grad_norm,
    )


def schedule(step: int, settings: OptimiserSettings) -> float:
    """The factor on the learning rate of optimiser step ``step`` (the first is 0)."""
    if step < settings.warmup_steps:
        return (step + 1) / settings.warmup_steps
    if settings.decay_steps is None:
        return 1.0
    span = max(settings.decay_steps - settings.warmup_steps, 1)
    done = min((step - settings.warmup_steps) / span, 1.0)
    left = (1 + math.cos(math.pi * done)) / 2 if settings.decay == "cosine" else 1 - done
    return settings.min_lr_ratio + (1 - settings.min_lr_ratio) * left


class MasterWeights:
    """What the optimiser moves. An fp32 model is its own master; a bf16 one gets fp32 copies, because steps of 1e-6
    vanish in bf16, and gradients of many micro-batches are summed in fp32."""

    def __init__(self, model: nn.Module) -> None:
        self._pairs: list[tuple[str, nn.Parameter, nn.Parameter]] = []
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                same = parameter.dtype == torch.float32
                master = parameter if same else nn.Parameter(parameter.detach().float())
                self._pairs.append((name, parameter, master))

    def named(self) -> dict[str, nn.Parameter]:
        return {name: master for name, _, master in self._pairs}

    def collect(self) -> None:
        """After each backward pass: move gradients to the masters."""
        for _, parameter, master in self._pairs:
            if master is not parameter and parameter.grad is not None:
                gradient = parameter.grad.float()
                master.grad = gradient if master.grad is None else master.grad + gradient
                parameter.grad = None

    @torch.no_grad()
    def publish(self) -> None:
        """After each optimiser step: round the masters into the model."""
        for _, parameter, master in self._pairs:
            if master is not parameter:
                parameter.copy_(master)

    def state(self) -> dict[str, Tensor]:
        """Only what the model's own weights do not hold."""
        return {name: master.detach() for name, parameter, master in self._pairs if master is not parameter}

    @torch.no_grad()
    def load_state(self, state: Mapping[str, Tensor]) -> None:
        for name, parameter, master in self._pairs:
            if master is not parameter:
                master.copy_(state[name])


class Optimiser:
    """The optimisers of one training stage, with its own step count."""

    def __init__(self, weights: MasterWeights, settings: OptimiserSettings, embeddings: frozenset[str]) -> None:
        """``embeddings``: parameter names that Muon must leave to AdamW, although they are matrices."""
        self._weights = weights
        self._settings = settings
        self._parts: list[torch.optim.Optimizer] = []
        self.steps = 0
        named = weights.named()
        hidden = [
            name
            for name, weight in named.items()
            if settings.name == "muon" and weight.ndim == 2 and name not in embeddings
        ]
        moved = frozenset(hidden)
        matrices = [weight for name, weight in named.items() if weight.ndim >= 2 and name not in moved]
        vectors = [weight for weight in named.values() if weight.ndim < 2]
        groups: list[dict[str, Any]] = [
            {"params": matrices, "weight_decay": settings.weight_decay},
            {"params": vectors, "weight_decay": 0.0},
        ]
        self._parts.append(
            torch.optim.AdamW(
                [group for group in groups if group["params"]],
                lr=settings.lr,
                betas=settings.betas,
                eps=settings.eps,
                fused=True,
            )
        )
        if hidden:
            self._parts.append(
                Muon([named[name] for name in hidden], lr=settings.muon_lr, weight_decay=settings.weight_decay)
            )

    def step(self) -> dict[str, float]:
        """Clip, step, publish, and clear the gradients. Returns ``grad_norm`` (before clipping) and ``lr``.

        A gradient that is not finite changes nothing and is reported as ``skipped_steps`` 1.
        """
        weights = list(self._weights.named().values())
        bound = self._settings.max_grad_norm
        norm = float(nn.utils.clip_grad_norm_(weights, math.inf if bound is None else bound))
        factor = schedule(self.steps, self._settings)
        finite = math.isfinite(norm)
        if finite:
            for part, base in zip(self._parts, (self._settings.lr, self._settings.muon_lr), strict=False):
                for group in part.param_groups:
                    group["lr"] = base * factor
                part.step()
            self._weights.publish()
        for weight in weights:
            weight.grad = None
        self.steps += 1
        return {"grad_norm": norm, "lr": self._settings.lr * factor, "skipped_steps": float(not finite)}

    def state(self) -> dict[str, Any]:
        return {"steps": self.steps, "parts": [part.state_dict() for part in self._parts]}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.steps = int(state["steps"])
        for part, saved in zip(self._parts, state["parts"], strict=True):
            part.load_state_dict(saved)
