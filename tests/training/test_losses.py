from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from training.config import LossConfig
from training.losses import (
    Denominators,
    denominators,
    kl_estimate,
    loss_units,
    merge_metrics,
    policy_loss,
    role_weights,
)

KINDS: dict[str, dict[str, Any]] = {
    "grpo": {},
    "sequence_mean": {"token_level_loss": False},
    "dr_grpo": {"constant_length": 16},
    "dual_clip": {"ratio_clip_c": 1.5},
    "gspo": {"sequence_level_importance_ratios": True, "token_level_loss": False, "ratio_clip_max": 0.1},
    "cispo": {"use_cispo": True},
    "sapo": {"use_sapo": True},
    "reinforce": {"disable_ppo_ratio": True},
    "k1": {"reference_policy_kl_penalty": 0.3, "reference_policy_kl_type": "k1"},
    "k2": {"reference_policy_kl_penalty": 0.3, "reference_policy_kl_type": "k2"},
    "k3": {"reference_policy_kl_penalty": 0.3, "reference_policy_kl_type": "k3"},
    "tis": {
        "use_importance_sampling_correction": True,
        "truncated_importance_sampling_type": "tis",
        "truncated_importance_sampling_ratio": 1.2,
    },
    "icepop": {
        "use_importance_sampling_correction": True,
        "truncated_importance_sampling_type": "icepop",
        "truncated_importance_sampling_ratio": 1.3,
        "truncated_importance_sampling_ratio_min": 0.8,
    },
    "seq_mask": {
        "use_importance_sampling_correction": True,
        "truncated_importance_sampling_type": "seq-mask-tis",
        "truncated_importance_sampling_ratio": 1.1,
        "truncated_importance_sampling_ratio_min": 0.9,
    },
}


class Batch:
    """Random log-probs in float64: 4 rows of 6 tokens, ragged masks, NaN wherever nothing was sampled."""

    def __init__(self, seed: int = 0, spread: float = 0.4) -> None:
        generator = torch.Generator().manual_seed(seed)

        def draw() -> Tensor:
            return torch.randn(4, 6, generator=generator, dtype=torch.float64) * spread

        self.mask = torch.tensor([[0, 1, 1, 0, 1, 1], [0, 1, 0, 0, 0, 0], [0, 0, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1]])
        base = -draw().abs() - 0.7
        hole = torch.where(self.mask.bool(), 0.0, torch.nan)
        self.curr = base + draw() + hole
        self.prev = base + hole
        self.generation = base + draw() + hole
        self.reference = base + draw() + hole
        self.advantages = torch.tensor([1.0, -0.5, 0.75, -1.5], dtype=torch.float64)
        self.weights = torch.tensor([1.0, 2.0, 0.5, 1.5], dtype=torch.float64)
        self.counts = [int(count) for count in self.mask.sum(1)]

    def loss(self, config: LossConfig, curr: Tensor, rows: slice = slice(None)) -> Any:
        return policy_loss(
            curr[rows],
            self.prev[rows],
            self.advantages[rows],
            self.mask[rows],
            config,
            denominators(self.counts, config),
            generation_logprobs=self.generation[rows],
            reference_logprobs=self.reference[rows],
            weights=self.weights[rows],
        )


def reference_token_loss(kind: str, config: LossConfig, curr: list[float], others: list[list[float]], a: float) -> Any:
    """One sequence's per-token losses in plain Python, straight from the papers' formulas."""
    prev, generation, reference = others
    logs = [c - p for c, p in zip(curr, prev, strict=True)]
    if kind == "gspo":
        logs = [math.fsum(logs) / len(logs)] * len(logs)
    geometric = math.prod(math.exp(p - g) for p, g in zip(prev, generation, strict=True)) ** (1 / len(prev))
    losses: list[float] = []
    for t, log in enumerate(logs):
        r = math.exp(log)
        cut = min(max(r, 1 - config.ratio_clip_min), 1 + config.ratio_clip_max)
        if kind == "cispo":
            value = -cut * a * curr[t]
        elif kind == "reinforce":
            value = -a * curr[t]
        elif kind == "sapo":
            tau = 1.0 if a > 0 else 1.05
            value = -4 / tau / (1 + math.exp(-tau * (r - 1))) * a
        else:
            value = -min(r * a, cut * a)
            if kind == "dual_clip" and a < 0:
                value = min(value, -1.5 * a)
        rho = math.exp(prev[t] - generation[t])
        if kind == "tis":
            value *= min(rho, 1.2)
        if kind == "icepop":
            value *= rho if 0.8 <= rho <= 1.3 else 0.0
        if kind == "seq_mask":
            value *= rho if 0.9 <= geometric <= 1.1 else 0.0
        ell = reference[t] - curr[t]
        value += 0.3 * {"k1": -ell, "k2": ell * ell / 2, "k3": math.exp(ell) - 1 - ell}.get(kind, 0.0)
        losses.append(value)
    return losses


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_value_equals_the_formula(kind: str, seed: int) -> None:
    batch, config = Batch(seed), LossConfig(**KINDS[kind])
    total = denominator = 0.0
    for i in range(4):
        on = batch.mask[i].bool()
        others = [x[i][on].tolist() for x in (batch.prev, batch.generation, batch.reference)]
        losses = reference_token_loss(kind, config, batch.curr[i][on].tolist(), others, float(batch.advantages[i]))
        weight = float(batch.weights[i])
        if not config.token_level_loss:
            total, denominator = total + weight * sum(losses) / len(losses), denominator + 1
        else:
            total = total + weight * sum(losses)
            denominator += config.constant_length or len(losses)
    assert float(batch.loss(config, batch.curr).loss) == pytest.approx(total / denominator, rel=1e-10)


@pytest.mark.parametrize("kind", [k for k in KINDS if k not in ("gspo", "cispo")])
def test_gradient_equals_finite_differences(kind: str) -> None:
    batch, config = Batch(3), LossConfig(**KINDS[kind])
    curr = batch.curr.clone().requires_grad_()
    batch.loss(config, curr).loss.backward()
    assert curr.grad is not None
    step = 1e-6
    for i, t in itertools.product(range(4), range(6)):
        if not batch.mask[i, t]:
            assert curr.grad[i, t] == 0.0  # and not NaN, though the padding is
            continue
        up, down = batch.curr.clone(), batch.curr.clone()
        up[i, t] += step
        down[i, t] -= step
        slope = float(batch.loss(config, up).loss - batch.loss(config, down).loss) / (2 * step)
        assert float(curr.grad[i, t]) == pytest.approx(slope, abs=1e-7)


def test_gspo_gradient_is_that_of_the_sequence_ratio() -> None:
    """The token form must differentiate like min(s A, clip(s) A) with s the geometric mean, checked by differences."""
    batch = Batch(4, spread=0.1)
    config = LossConfig(**KINDS["gspo"])
    curr = batch.curr.clone().requires_grad_()
    batch.loss(config, curr).loss.backward()
    assert curr.grad is not None

    def sequence_loss(values: Tensor) -> float:
        total = 0.0
        for i in range(4):
            on = batch.mask[i].bool()
            s, a = math.exp(float((values[i][on] - batch.prev[i][on]).mean())), float(batch.advantages[i])
            total -= float(batch.weights[i]) * min(s * a, min(max(s, 0.8), 1.1) * a)
        return total / 4

    step = 1e-6
    for i, t in zip(*torch.nonzero(batch.mask, as_tuple=True), strict=True):
        up, down = batch.curr.clone(), batch.curr.clone()
        up[i, t] += step
        down[i, t] -= step
        slope = (sequence_loss(up) - sequence_loss(down)) / (2 * step)
        assert float(curr.grad[i, t]) == pytest.approx(slope, abs=1e-7)


def test_cispo_gradient_is_the_clipped_ratio_times_the_advantage() -> None:
    batch, config = Batch(5, spread=1.0), LossConfig(use_cispo=True)
    curr = batch.curr.clone().requires_grad_()
    batch.loss(config, curr).loss.backward()
    assert curr.grad is not None
    clipped = torch.exp(batch.curr - batch.prev).clamp(0.8, 1.28)
    expected = -clipped * batch.advantages[:, None] * batch.weights[:, None] / batch.mask.sum()
    on = batch.mask.bool()
    assert (torch.exp(batch.curr - batch.prev)[on] > 1.28).any()  # tokens that PPO's clip would silence
    torch.testing.assert_close(curr.grad[on], expected[on])


@pytest.mark.parametrize("kind", KINDS)
def test_micro_batches_add_up_to_one_batch(kind: str) -> None:
    batch, config = Batch(6), LossConfig(**KINDS[kind])
    whole = batch.curr.clone().requires_grad_()
    out = batch.loss(config, whole)
    out.loss.backward()
    parts = batch.curr.clone().requires_grad_()
    outs = [batch.loss(config, parts, slice(*cut)) for cut in ((0, 1), (1, 3), (3, 4))]
    for each in outs:
        each.loss.backward()
    assert whole.grad is not None
    assert parts.grad is not None
    torch.testing.assert_close(parts.grad, whole.grad, atol=1e-12, rtol=1e-6)
    assert merge_metrics([each.metrics for each in outs]) == pytest.approx(out.metrics, rel=1e-9)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["proposer", "solver"]), st.integers(0, 50), st.floats(-3, 3)),
        min_size=1,
        max_size=12,
    ).filter(lambda rows: any(count for _, count, _ in rows)),
    st.floats(0, 4),
    st.floats(0, 4),
    st.sampled_from(["grpo", "sequence_mean", "dr_grpo"]),
)
def test_each_role_counts_by_its_own_mean(rows: list[tuple[str, int, float]], wp: float, ws: float, kind: str) -> None:
    """Constant loss x_i on every token of trajectory i: the total must be the weighted sum of per-role means."""
    config = LossConfig(**KINDS[kind])
    roles, counts, values = [r for r, _, _ in rows], [c for _, c, _ in rows], [v for _, _, v in rows]
    wanted = {"proposer": wp, "solver": ws}
    weights = role_weights(roles, counts, wanted, config)
    length = config.constant_length
    sums = [v * (c if config.token_level_loss else min(c, 1)) for v, c in zip(values, counts, strict=True)]
    total = sum(w * s for w, s in zip(weights, sums, strict=True)) / denominators(counts, config).loss
    expected = 0.0
    for role, weight in wanted.items():
        mine = [i for i, r in enumerate(roles) if r == role and counts[i]]
        if not mine:
            continue
        if length is not None:
            n = length * len(mine)
        else:
            n = sum(counts[i] for i in mine) if config.token_level_loss else len(mine)
        expected += weight * sum(sums[i] for i in mine) / n
    assert total == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_role_gradients_do_not_depend_on_the_other_roles_length() -> None:
    config = LossConfig()
    shares: list[float] = []
    for solver_tokens in (2, 40):
        counts = [4, solver_tokens]
        curr = torch.zeros(2, 40, dtype=torch.float64, requires_grad=True)
        mask = torch.arange(40)[None] < torch.tensor(counts)[:, None]
        weights = role_weights(["proposer", "solver"], counts, {"proposer": 1.0, "solver": 1.0}, config)
        out = policy_loss(
            curr,
            torch.zeros(2, 40, dtype=torch.float64),
            torch.ones(2, dtype=torch.float64),
            mask,
            config,
            denominators(counts, config),
            weights=torch.tensor(weights, dtype=torch.float64),
        )
        out.loss.backward()
        assert curr.grad is not None
        shares.append(float(curr.grad[0].sum()))
        assert out.loss.item() == pytest.approx(-2.0)
    assert shares == pytest.approx([-1.0, -1.0])


def test_one_role_of_weight_one_is_the_plain_mean() -> None:
    assert role_weights(["solver"] * 3, [4, 1, 9], {"solver": 1.0}, LossConfig()) == [1.0, 1.0, 1.0]
    with pytest.raises(ValueError, match="'judge' has no weight"):
        role_weights(["judge"], [4], {"solver": 1.0}, LossConfig())


def test_units_and_denominators() -> None:
    assert loss_units([3, 0, 5], LossConfig()) == [3.0, 0.0, 5.0]
    assert loss_units([3, 0, 5], LossConfig(token_level_loss=False)) == [1.0, 0.0, 1.0]
    assert loss_units([3, 0, 5], LossConfig(constant_length=100)) == [100.0, 0.0, 100.0]
    assert denominators([3, 0, 5], LossConfig(token_level_loss=False)) == Denominators(loss=2.0, tokens=8.0)
    with pytest.raises(ValueError, match="nothing to divide by"):
        denominators([0, 0], LossConfig())


def test_metrics_by_hand() -> None:
    """One sequence, ratios 0.5 and 2, advantage +1: only the high one is clipped; entropy from the recorded policy."""
    prev = torch.tensor([[-1.0, -2.0, 0.0]], dtype=torch.float64)
    curr = prev + torch.tensor([[math.log(0.5), math.log(2.0), 0.0]], dtype=torch.float64)
    mask, advantage = torch.tensor([[1, 1, 0]]), torch.tensor([1.0], dtype=torch.float64)
    out = policy_loss(curr, prev, advantage, mask, LossConfig(), denominators([2], LossConfig()))
    assert float(out.loss) == pytest.approx(-(0.5 + 1.28) / 2)
    entropy = -(0.5 * (-1.0 + math.log(0.5)) + 2.0 * (-2.0 + math.log(2.0))) / 2
    assert out.metrics == pytest.approx(
        {
            "loss": -0.89,
            "probs_ratio": 1.25,
            "probs_ratio_clamped": (0.8 + 1.28) / 2,
            "probs_ratio_min": 0.5,
            "probs_ratio_max": 2.0,
            "clipped_low": 0.0,
            "clipped_high": 0.5,
            "approx_entropy": entropy,
        }
    )
    minus = policy_loss(curr, prev, -advantage, mask, LossConfig(), denominators([2], LossConfig()))
    assert (minus.metrics["clipped_low"], minus.metrics["clipped_high"]) == (0.5, 0.0)


def test_correction_metrics_by_hand() -> None:
    prev = torch.tensor([[math.log(0.9), math.log(0.3), math.log(0.1)]], dtype=torch.float64)
    generation = torch.tensor([[math.log(0.3), math.log(0.3), math.log(0.4)]], dtype=torch.float64)  # 3, 1, 0.25
    one = torch.ones(1, dtype=torch.float64)
    for kind, weight, oob in (("tis", (2.0 + 1.0 + 0.25) / 3, 1 / 3), ("icepop", 1.0 / 3, 2 / 3)):
        config = LossConfig(
            use_importance_sampling_correction=True,
            truncated_importance_sampling_type=kind,  # type: ignore[arg-type]
            truncated_importance_sampling_ratio=2.0,
            truncated_importance_sampling_ratio_min=0.5 if kind == "icepop" else None,
        )
        out = policy_loss(
            prev, prev, one, torch.ones(1, 3), config, denominators([3], config), generation_logprobs=generation
        )
        assert out.metrics["sampling_importance_weight"] == pytest.approx(weight)
        assert out.metrics["is_oob_ratio"] == pytest.approx(oob)
        assert float(out.loss) == pytest.approx(-weight)


def test_a_sequence_is_masked_by_its_geometric_mean_and_not_by_a_token() -> None:
    # Weights 2 and 1/2: the product and the geometric mean are 1, so the row stays, with its token weights. The second
    # row's weights are all 1.2: no token is far off, the sequence is.
    generation = torch.log(torch.tensor([[0.2, 0.4], [0.25, 0.25]], dtype=torch.float64))
    prev = torch.log(torch.tensor([[0.4, 0.2], [0.3, 0.3]], dtype=torch.float64))
    config = LossConfig(
        use_importance_sampling_correction=True,
        truncated_importance_sampling_type="seq-mask-tis",
        truncated_importance_sampling_ratio=1.1,
        truncated_importance_sampling_ratio_min=0.9,
    )
    curr = prev.clone().requires_grad_()
    out = policy_loss(
        curr, prev, torch.ones(2, dtype=torch.float64), torch.ones(2, 2), config, denominators([2, 2], config),
        generation_logprobs=generation,
    )  # fmt: skip
    out.loss.backward()
    assert curr.grad is not None
    assert torch.allclose(curr.grad, torch.tensor([[-2.0, -0.5], [0.0, 0.0]], dtype=torch.float64) / 4)
    assert out.metrics["is_oob_ratio"] == 0.5
    assert out.metrics["sampling_importance_weight"] == pytest.approx(2.5 / 4)


def test_kl_clamps() -> None:
    curr, reference = torch.tensor([0.0, 0.0]), torch.tensor([-50.0, 3.0])
    free = LossConfig(kl_input_clamp_value=None, kl_output_clamp_value=None)
    assert kl_estimate(curr, reference, free).tolist() == pytest.approx([49.0, math.exp(3) - 4])
    assert kl_estimate(curr, reference, LossConfig()).tolist() == pytest.approx([10.0, 10.0])
    k1 = LossConfig(reference_policy_kl_type="k1", kl_output_clamp_value=None)
    assert kl_estimate(curr, reference, k1).tolist() == pytest.approx([20.0, -3.0])


def test_on_policy_kl_approximation_weighs_by_the_sampler() -> None:
    batch = Batch(7)
    plain = LossConfig(reference_policy_kl_penalty=1.0)
    weighed = LossConfig(reference_policy_kl_penalty=1.0, use_on_policy_kl_approximation=True)
    zero = torch.zeros(4, dtype=torch.float64)

    def kl_of(config: LossConfig) -> Tensor:
        curr = batch.curr
        dens = denominators(batch.counts, config)
        return policy_loss(
            curr, batch.prev, zero, batch.mask, config, dens,
            generation_logprobs=batch.generation, reference_logprobs=batch.reference,
        ).loss  # fmt: skip

    on = batch.mask.bool()
    kl = kl_estimate(batch.curr, batch.reference, plain)
    assert float(kl_of(plain)) == pytest.approx(float(kl[on].mean()))
    assert float(kl_of(weighed)) == pytest.approx(float((kl * torch.exp(batch.curr - batch.generation))[on].mean()))


def test_forced_on_policy_ratio_ignores_prev_and_keeps_the_gradient() -> None:
    batch, config = Batch(8), LossConfig(force_on_policy_ratio=True)
    curr = batch.curr.clone().requires_grad_()
    out = batch.loss(config, curr)
    out.loss.backward()
    assert curr.grad is not None
    on = batch.mask.bool()
    expected = (-batch.advantages * batch.weights)[:, None].expand(4, 6) / batch.mask.sum()
    torch.testing.assert_close(curr.grad[on], expected[on])
    assert out.metrics["probs_ratio_min"] == out.metrics["probs_ratio_max"] == 1.0


def test_token_advantages_equal_sequence_advantages_when_constant() -> None:
    batch, config = Batch(9), LossConfig()
    dens = denominators(batch.counts, config)
    wide = batch.advantages[:, None].expand(4, 6)
    one = policy_loss(batch.curr, batch.prev, batch.advantages, batch.mask, config, dens).loss
    assert float(policy_loss(batch.curr, batch.prev, wide, batch.mask, config, dens).loss) == float(one)


def test_missing_or_misshapen_inputs_are_named() -> None:
    batch = Batch()
    dens = Denominators(1.0, 1.0)
    with pytest.raises(ValueError, match="needs reference_logprobs"):
        policy_loss(
            batch.curr,
            batch.prev,
            batch.advantages,
            batch.mask,
            LossConfig(reference_policy_kl_penalty=0.1),
            dens,
        )
    with pytest.raises(ValueError, match="needs generation_logprobs"):
        policy_loss(
            batch.curr,
            batch.prev,
            batch.advantages,
            batch.mask,
            LossConfig(use_importance_sampling_correction=True),
            dens,
        )
    with pytest.raises(ValueError, match=r"prev_logprobs: got shape \(4, 5\), expected \(4, 6\)"):
        policy_loss(batch.curr, batch.prev[:, 1:], batch.advantages, batch.mask, LossConfig(), dens)
    with pytest.raises(ValueError, match="advantages: got shape"):
        policy_loss(batch.curr, batch.prev, batch.advantages[:3], batch.mask, LossConfig(), dens)
