from __future__ import annotations

import math
import random
import statistics

import pytest

from environments.task import Role, Task
from environments.trajectory import StopReason, Trajectory
from training.mismatch import MAX_TURNS, beyond_threshold, mismatch_metrics, sequence_errors


def rollout(
    logprobs: list[float], mask: list[int], role: Role = Role.SOLVER, uid: str = "u", turns: tuple[int, ...] = ()
) -> Trajectory:
    return Trajectory(
        uid=uid,
        task=Task(role=role, group_id="g"),
        token_ids=tuple(range(len(mask))),
        loss_mask=tuple(mask),
        logprobs=tuple(logprobs),
        stop_reason=StopReason.SUBMITTED,
        policy_version=0,
        turn_starts=turns,
    )


def test_a_perfect_match() -> None:
    trajectory = rollout([0.0, -1.5, -0.2, 0.0], [0, 1, 1, 0])
    # Unsampled positions may hold anything, also NaN.
    got = mismatch_metrics([trajectory], [[math.nan, -1.5, -0.2, 7.0]])
    by_turn = {
        "token_mult_prob_error": 1.0,
        "gen_kl_error": 0.0,
        "gen_kl_error_k1": 0.0,
        "js_divergence_error": 0.0,
        "is_oob_ratio": 0.0,
    }
    whole = by_turn | {"sampling_importance_ratio": 1.0, "max_abs_diff": 0.0}
    assert got == {f"mismatch/solver/{name}": value for name, value in whole.items()} | {
        f"mismatch/solver/turn1/{name}": value for name, value in by_turn.items()
    }


def test_against_direct_formulas_per_role() -> None:
    rng = random.Random(0)
    recorded = [[-rng.random() * 3 for _ in range(7)] for _ in range(4)]
    recomputed = [[value + rng.gauss(0, 0.3) for value in row] for row in recorded]
    masks = [[0, 1, 1, 0, 1, 1, 1], [0, 0, 1, 1, 0, 0, 1], [0] * 7, [1] * 7]
    roles = [Role.SOLVER, Role.PROPOSER, Role.PROPOSER, Role.SOLVER]
    batch = [rollout(row, mask, role) for row, mask, role in zip(recorded, masks, roles, strict=True)]
    got = mismatch_metrics(batch, recomputed)
    for role in Role:
        d = [recomputed[i][t] - recorded[i][t] for i in range(4) for t in range(7) if masks[i][t] and roles[i] is role]
        expected = {
            "token_mult_prob_error": statistics.fmean(math.exp(abs(x)) for x in d),
            "gen_kl_error": statistics.fmean(math.exp(x) - 1 - x for x in d),
            "gen_kl_error_k1": statistics.fmean(-x for x in d),
            "sampling_importance_ratio": statistics.fmean(math.exp(x) for x in d),
            "max_abs_diff": max(abs(x) for x in d),
            "is_oob_ratio": statistics.fmean(math.exp(abs(x)) > 2 for x in d),
        }
        for name, value in expected.items():
            assert got[f"mismatch/{role}/{name}"] == pytest.approx(value, rel=1e-12)
    errors = sequence_errors(batch, recomputed)
    first = [math.exp(abs(recomputed[0][t] - recorded[0][t])) for t in range(7) if masks[0][t]]
    assert errors[0] == pytest.approx(statistics.fmean(first))
    assert errors[2] == 1.0


def test_kl_estimators_agree_with_the_true_divergence() -> None:
    """Tokens drawn from the sampler's distribution: both estimates must approach KL(generation || training)."""
    rng = random.Random(1)
    generation, training = [0.5, 0.3, 0.2], [0.4, 0.4, 0.2]
    draws = rng.choices(range(3), generation, k=40_000)
    trajectory = rollout([math.log(generation[i]) for i in draws], [1] * len(draws))
    got = mismatch_metrics([trajectory], [[math.log(training[i]) for i in draws]])
    truth = math.fsum(g * math.log(g / t) for g, t in zip(generation, training, strict=True))
    assert got["mismatch/solver/gen_kl_error"] == pytest.approx(truth, rel=0.03)
    assert got["mismatch/solver/gen_kl_error_k1"] == pytest.approx(truth, rel=0.15)
    assert got["mismatch/solver/sampling_importance_ratio"] == pytest.approx(1.0, abs=0.005)


def test_tokens_that_shift_at_the_second_turn_show_there() -> None:
    """Two turns of two tokens; then a rollout of many turns, whose last ones count together."""
    batch = [
        rollout([0, -1.0, -1.0, 0, -1.0, -1.0], [0, 1, 1, 0, 1, 1], turns=(1, 4)),
        rollout([0, -2.0], [0, 1], turns=(1,)),
        rollout([-1.0] * 9, [1] * 9, Role.PROPOSER, turns=tuple(range(9))),
    ]
    recomputed = [[0, -1.0, -1.0, 0, -3.0, -1.0], [0, -2.0], [-1.0] * 8 + [-1.0 - math.log(4)]]
    got = mismatch_metrics(batch, recomputed)
    name = "token_mult_prob_error"
    assert got[f"mismatch/solver/turn1/{name}"] == 1.0
    assert got[f"mismatch/solver/turn2/{name}"] == pytest.approx((math.exp(2) + 1) / 2)
    assert got["mismatch/solver/turn2/is_oob_ratio"] == 0.5
    assert got[f"mismatch/solver/{name}"] == pytest.approx((math.exp(2) + 4) / 5)
    assert got[f"mismatch/proposer/turn{MAX_TURNS}/{name}"] == pytest.approx((3 + 4) / 4)  # of turns 6 to 9
    assert f"mismatch/proposer/turn{MAX_TURNS + 1}/{name}" not in got


@pytest.mark.parametrize("difference", [-1.5, -0.01, 0.4, 3.0])
def test_js_divergence_straight_from_its_definition(difference: float) -> None:
    generation = math.exp(-2.0)
    training = generation * math.exp(difference)
    middle = (generation + training) / 2

    def k3(p: float, q: float) -> float:
        return p / q - 1 - math.log(p / q)

    got = mismatch_metrics([rollout([-2.0], [1])], [[-2.0 + difference]])
    expected = (k3(training, middle) + k3(generation, middle)) / 2
    assert got["mismatch/solver/js_divergence_error"] == pytest.approx(expected, rel=1e-9)


def test_shifted_and_dropped_tokens_show() -> None:
    """Off by one, or one token lost on the way: every later log-prob is another token's."""
    rng = random.Random(2)
    recorded = [-rng.expovariate(1.0) for _ in range(200)]
    noise = [value + rng.gauss(0, 1e-3) for value in recorded]
    trajectory = rollout(recorded, [1] * 200)
    dropped = [*noise[:120], *noise[121:], -1.0]
    healthy, shifted, cut = (
        sequence_errors([trajectory], [row])[0] for row in (noise, [noise[-1], *noise[:-1]], dropped)
    )
    assert healthy < 1.01
    assert shifted > 2.0
    assert 1.3 < cut < shifted
    assert beyond_threshold([healthy, shifted, cut], 1.3) == [False, True, True]
    assert beyond_threshold([healthy, shifted], None) == [False, False]


def test_one_mad_token_does_not_overflow() -> None:
    got = mismatch_metrics([rollout([-900.0, -1.0], [1, 1])], [[-0.1, -1.0]])
    assert got["mismatch/solver/max_abs_diff"] == pytest.approx(899.9)
    assert got["mismatch/solver/token_mult_prob_error"] == pytest.approx((math.exp(20) + 1) / 2)


def test_refusals_name_the_trajectory() -> None:
    trajectory = rollout([0.0, -1.0, -1.0], [0, 1, 1], uid="step3-7")
    with pytest.raises(ValueError, match="1 trajectories and 0 recomputed"):
        mismatch_metrics([trajectory], [])
    with pytest.raises(ValueError, match="step3-7: 2 recomputed log-probs for 3 tokens"):
        mismatch_metrics([trajectory], [[0.0, -1.0]])
    with pytest.raises(ValueError, match=r"step3-7, token 2: recorded log-prob -1\.0, recomputed nan"):
        mismatch_metrics([trajectory], [[0.0, -1.0, math.nan]])
