"""NeMo-RL's clipped policy-gradient loss, role by role, with the terms that it lacks.

The object is pickled to the policy's workers, which run in an environment of their own: this module imports torch,
NeMo-RL, and of ours only what needs nothing else (``training.losses``, ``training.config_loss``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

# NeMo-RL lives in the cluster's environment, not in the one that the types are checked in.
from nemo_rl.algorithms.loss.loss_functions import (  # pyright: ignore[reportMissingImports]
    ClippedPGLossConfig,  # pyright: ignore[reportUnknownVariableType]
    ClippedPGLossFn,  # pyright: ignore[reportUnknownVariableType]
)
from torch import Tensor

from training.config_loss import LossConfig
from training.engines.nemo_rl.roles import EXTREMES, MEANS, ROLES, SHARE
from training.losses import Denominators, loss_units, policy_loss


def clipped_fields(config: LossConfig) -> dict[str, Any]:
    """What NeMo-RL's own loss knows of our settings: its fields have the same names."""
    known = cast("Mapping[str, object]", ClippedPGLossConfig.model_fields)  # pyright: ignore[reportUnknownMemberType]
    return {name: value for name, value in config.model_dump().items() if name in known}


def needs_own_terms(config: LossConfig) -> bool:
    """Whether the actor's term is one that NeMo-RL has not: SAPO, or Dr.GRPO's constant length."""
    return config.use_sapo or config.constant_length is not None


class RoleLossFn(ClippedPGLossFn):  # pyright: ignore[reportUntypedBaseClass]
    """sum over roles of  weight * (NeMo-RL's loss over that role's rows alone).

    NeMo-RL divides by what the whole batch holds, so the parts add up to one loss, and each role's weight
    (``training.losses.role_weights``) scales all of its terms, the KL among them. Beside the usual names, metrics come
    as ``<role>/<name>``, still divided by the whole batch's tokens: ``<role>/token_share`` turns them into the role's
    means (``training.engines.nemo_rl.metrics``).

    ``data`` has, beside NeMo-RL's keys, ``role_id`` and ``loss_weight``, both ``[batch]``.
    """

    def __init__(self, config: LossConfig) -> None:
        super().__init__(ClippedPGLossConfig(**clipped_fields(config)))  # pyright: ignore[reportUnknownMemberType]
        self._config = config
        self._own_terms = needs_own_terms(config)

    def __call__(
        self, next_token_logprobs: Tensor, data: Any, global_valid_seqs: Tensor, global_valid_toks: Tensor
    ) -> tuple[Tensor, dict[str, float]]:
        """``next_token_logprobs`` ``[batch, tokens - 1]``; the scalar loss, and metrics to sum over micro-batches."""
        total: Tensor | None = None
        truncated = self._config.truncated_importance_sampling_type is not None
        by_role = [name for name in MEANS if truncated or name != "is_oob_ratio"]
        # Always the same names, whatever rows a micro-batch holds: the workers gather them into lists.
        merged = {f"{role}/{name}": 0.0 for role in ROLES for name in (*by_role, SHARE)}
        kinds = zip(data["role_id"].tolist(), data["loss_weight"].tolist(), strict=True)
        for role_id, weight in sorted(set(kinds)):
            mine = (data["role_id"] == role_id) & (data["loss_weight"] == weight)
            part = _with(data, sample_mask=data["sample_mask"] * mine)
            loss, metrics = super().__call__(  # pyright: ignore[reportUnknownMemberType]
                next_token_logprobs, part, global_valid_seqs, global_valid_toks
            )
            loss, metrics = cast(Tensor, loss), cast("dict[str, float]", dict(metrics))
            if self._own_terms:
                loss = self._own(next_token_logprobs, part, global_valid_seqs, global_valid_toks)
                metrics["loss"] = float(loss.detach())
            total = weight * loss if total is None else total + weight * loss
            metrics["loss"] *= weight
            tokens = part["token_mask"][:, 1:] * part["sample_mask"][:, None]
            share = float(tokens.sum()) / max(float(global_valid_toks), 1.0)
            _add(merged, metrics)
            role = ROLES[int(role_id)]
            _add(merged, {f"{role}/{name}": metrics[name] for name in by_role} | {f"{role}/{SHARE}": share})
        if total is None:
            raise ValueError("the loss got a micro-batch without rows")
        return total, merged

    def _own(self, curr: Tensor, data: Any, global_valid_seqs: Tensor, global_valid_toks: Tensor) -> Tensor:
        reference = data["reference_policy_logprobs"][:, 1:] if self._config.reference_policy_kl_penalty else None
        by_token = self._config.token_level_loss and self._config.constant_length is None
        whole = float(global_valid_toks if by_token else global_valid_seqs) * loss_units([1], self._config)[0]
        mask = data["token_mask"][:, 1:] * data["sample_mask"][:, None]
        return policy_loss(
            curr,
            data["prev_logprobs"][:, 1:],
            data["advantages"][:, 1:],
            mask,
            self._config,
            Denominators(loss=whole, tokens=float(global_valid_toks)),
            generation_logprobs=data["generation_logprobs"][:, 1:],
            reference_logprobs=reference,
        ).loss


def _with(data: Any, **changed: Tensor) -> Any:
    """The same rows with other columns."""
    return type(data)({**{name: data[name] for name in data}, **changed})


def _add(merged: dict[str, float], metrics: Mapping[str, float]) -> None:
    for name, value in metrics.items():
        if name in EXTREMES:
            merged[name] = EXTREMES[name](merged.get(name, value), value)
        else:
            merged[name] = merged.get(name, 0.0) + value
