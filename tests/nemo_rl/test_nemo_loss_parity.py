"""Our loss and NeMo-RL's on the same random tensors: values to 1e-5, gradients where the two mean the same."""

from __future__ import annotations

from typing import Any

import pytest
from nemo_rl_source import REASON

pytest.importorskip("nemo_rl.algorithms", reason=REASON)

import torch
from nemo_rl.distributed.batched_data_dict import BatchedDataDict

from training.config_loss import LossConfig
from training.engines.nemo_rl.loss import RoleLossFn, clipped_fields
from training.losses import denominators, policy_loss, role_weights

ROWS, WIDTH = 7, 23
GSPO: dict[str, Any] = {"sequence_level_importance_ratios": True, "token_level_loss": False}
KINDS: dict[str, dict[str, Any]] = {
    "GRPO": {"ratio_clip_max": 0.2},
    "GRPO, DAPO's clip": {"ratio_clip_max": 0.28},
    "GRPO, dual clip": {"ratio_clip_c": 1.5},
    "GRPO, sequence mean": {"token_level_loss": False},
    "GSPO": GSPO | {"ratio_clip_min": 3e-4, "ratio_clip_max": 4e-4},
    "CISPO": {"use_cispo": True},
    "REINFORCE": {"disable_ppo_ratio": True},
    "on-policy ratio": {"force_on_policy_ratio": True},
    "correction": {"use_importance_sampling_correction": True},
    "TIS": {
        "use_importance_sampling_correction": True,
        "truncated_importance_sampling_type": "tis",
        "truncated_importance_sampling_ratio": 1.2,
    },
    "IcePop": {
        "use_importance_sampling_correction": True,
        "truncated_importance_sampling_type": "icepop",
        "truncated_importance_sampling_ratio": 1.3,
        "truncated_importance_sampling_ratio_min": 0.8,
    },
    "seq-mask-TIS": {
        "use_importance_sampling_correction": True,
        "truncated_importance_sampling_type": "seq-mask-tis",
        "truncated_importance_sampling_ratio": 1.1,
        "truncated_importance_sampling_ratio_min": 0.9,
    },
    "KL k1": {"reference_policy_kl_penalty": 0.05, "reference_policy_kl_type": "k1"},
    "KL k2": {"reference_policy_kl_penalty": 0.05, "reference_policy_kl_type": "k2"},
    "KL k3": {"reference_policy_kl_penalty": 0.05, "reference_policy_kl_type": "k3"},
    "KL k3, on-policy": {"reference_policy_kl_penalty": 0.05, "use_on_policy_kl_approximation": True},
    "GSPO, KL k3": GSPO | {"reference_policy_kl_penalty": 0.05},
}
OURS_ALONE: dict[str, dict[str, Any]] = {
    "SAPO": {"use_sapo": True},
    "SAPO, sequence mean": {"use_sapo": True, "token_level_loss": False},
    "Dr.GRPO": {"constant_length": 64},
    "Dr.GRPO, KL k3": {"constant_length": 64, "reference_policy_kl_penalty": 0.05},
}


def columns(seed: int = 0) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Current log-probs ``[rows, tokens]`` and the columns of a batch whose last row is there to fill up."""
    generator = torch.Generator().manual_seed(seed)

    def near(values: torch.Tensor, by: float) -> torch.Tensor:
        return values + by * torch.randn(values.shape, generator=generator)

    generation = -3 * torch.rand(ROWS, WIDTH, generator=generator)
    prev = near(generation, 0.4)
    curr = near(prev, 0.5)
    lengths = torch.randint(8, WIDTH + 1, (ROWS,), generator=generator)
    sampled = torch.rand(ROWS, WIDTH, generator=generator) < 0.6
    mask = (sampled & (torch.arange(WIDTH) < lengths[:, None])).long()
    mask[:, 0] = 0
    sample_mask = torch.ones(ROWS)
    sample_mask[-1] = 0
    roles = torch.tensor([0, 1, 1, 0, 1, 1, 0])
    advantages = torch.randn(ROWS, generator=generator)[:, None].expand(-1, WIDTH).contiguous()
    return curr, {
        "input_ids": torch.zeros(ROWS, WIDTH, dtype=torch.long),
        "input_lengths": lengths,
        "advantages": advantages,
        "prev_logprobs": prev,
        "generation_logprobs": generation,
        "reference_policy_logprobs": near(curr, 0.3),
        "token_mask": mask,
        "sample_mask": sample_mask,
        "role_id": roles,
        "loss_weight": torch.ones(ROWS),
    }


def counts(data: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Sequences and tokens of the whole batch, as NeMo-RL's workers count them."""
    return data["sample_mask"].sum(), (data["token_mask"][:, 1:] * data["sample_mask"][:, None]).sum()


def nemo(
    config: LossConfig, curr: torch.Tensor, data: dict[str, torch.Tensor]
) -> tuple[torch.Tensor, dict[str, float]]:
    sequences, tokens = counts(data)
    return RoleLossFn(config)(curr[:, 1:], BatchedDataDict(data), sequences, tokens)


def ours(config: LossConfig, curr: torch.Tensor, data: dict[str, torch.Tensor]) -> torch.Tensor:
    real = data["sample_mask"] > 0
    mask = data["token_mask"][real]
    return policy_loss(
        curr[real],
        # NeMo-RL takes the present log-probs for the old ones here.
        (curr.detach() if config.force_on_policy_ratio else data["prev_logprobs"])[real],
        data["advantages"][real],
        mask,
        config,
        denominators(mask.sum(dim=1).tolist(), config),
        generation_logprobs=data["generation_logprobs"][real],
        reference_logprobs=data["reference_policy_logprobs"][real],
        weights=data["loss_weight"][real],
    ).loss


@pytest.mark.parametrize("kind", [*KINDS, *OURS_ALONE])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_loss_is_the_same(kind: str, seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    config = LossConfig(**(KINDS | OURS_ALONE)[kind])
    curr, data = columns(seed)
    theirs, mine = float(nemo(config, curr, data)[0]), float(ours(config, curr, data))
    with capsys.disabled():
        print(
            f"\n{kind:20} seed {seed}  NeMo-RL {theirs:+.7f}  ours {mine:+.7f}  difference {abs(theirs - mine):.1e}",
            end="",
        )
    assert theirs == pytest.approx(mine, abs=1e-5)


@pytest.mark.parametrize(
    "kind", [kind for kind, fields in KINDS.items() if not fields.get("reference_policy_kl_penalty")]
)
def test_the_gradient_is_the_same(kind: str) -> None:
    config = LossConfig(**KINDS[kind])
    curr, data = columns()
    first, second = curr.clone().requires_grad_(), curr.clone().requires_grad_()
    nemo(config, first, data)[0].backward()
    ours(config, second, data).backward()
    torch.testing.assert_close(first.grad, second.grad, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("kind", ["GRPO", "GSPO", "KL k3", "SAPO", "Dr.GRPO"])
def test_role_weights_scale_a_role_with_its_kl(kind: str) -> None:
    config = LossConfig(**(KINDS | OURS_ALONE)[kind])
    curr, data = columns()
    real = [row for row in range(ROWS) if data["sample_mask"][row]]
    roles = [("proposer", "solver")[int(data["role_id"][row])] for row in real]
    tokens = [int(data["token_mask"][row].sum()) for row in real]
    weights = role_weights(roles, tokens, {"proposer": 0.3, "solver": 1.7}, config)
    data["loss_weight"] = torch.tensor([*weights, weights[0]])
    assert float(nemo(config, curr, data)[0]) == pytest.approx(float(ours(config, curr, data)), abs=1e-5)


def test_with_weights_of_one_it_is_nemo_rls_own_loss() -> None:
    from nemo_rl.algorithms.loss.loss_functions import ClippedPGLossConfig, ClippedPGLossFn

    config = LossConfig(**KINDS["KL k3"])
    curr, data = columns()
    stock, _ = ClippedPGLossFn(ClippedPGLossConfig(**clipped_fields(config)))(
        curr[:, 1:], BatchedDataDict(data), *counts(data)
    )
    assert float(nemo(config, curr, data)[0]) == pytest.approx(float(stock), abs=1e-6)


def test_micro_batches_add_up_and_roles_have_their_own_means() -> None:
    config = LossConfig(reference_policy_kl_penalty=0.05)
    curr, data = columns()
    whole, metrics = nemo(config, curr, data)
    sequences, tokens = counts(data)
    parts = [
        RoleLossFn(config)(
            curr[rows, 1:], BatchedDataDict({name: value[rows] for name, value in data.items()}), sequences, tokens
        )
        for rows in (slice(0, 3), slice(3, 5), slice(5, 7))
    ]
    assert sum(float(loss) for loss, _ in parts) == pytest.approx(float(whole), abs=1e-6)
    for name in ("solver/gen_kl_error", "proposer/token_share", "kl_penalty"):
        assert sum(values[name] for _, values in parts) == pytest.approx(metrics[name], abs=1e-6)
    solver = data["role_id"] == 1
    mask = (data["token_mask"] * data["sample_mask"][:, None] * solver[:, None]).bool()
    difference = (data["prev_logprobs"] - data["generation_logprobs"]).abs()[mask]
    mean = metrics["solver/token_mult_prob_error"] / metrics["solver/token_share"]
    assert mean == pytest.approx(float(difference.exp().mean()), abs=1e-5)
