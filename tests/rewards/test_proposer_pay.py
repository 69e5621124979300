from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st
from pydantic import ValidationError
from reward_builders import proposer, solver

from environments.trajectory import StopReason
from rewards.answers import DEFAULT
from rewards.breakdown import RewardBreakdown
from rewards.outcomes import OutcomeSettings, cuts, measure
from rewards.proposer_pay import ProposerReward, proposer_reward
from rewards.refusal import Refusal
from rewards.shapes import SHAPES, flat_top, regret, shape_value, unbiased_quadratic

PARTS = {"valid", "success", "guessed", "vague", "wrong_key", "diversity", "refused"}
TWO_HOP = ("Which desk does the owner of Amber Falcon have?", "12-34", ("m1", "m2"))


def outcome(verdict: str, masked: bool = False) -> RewardBreakdown:
    return RewardBreakdown({"correctness": float(verdict == "right")}, {"verdict": verdict}, masked=masked)


def outcomes(right: int, n: int) -> list[RewardBreakdown]:
    return [outcome("right")] * right + [outcome(("wrong", "none", "unsure")[i % 3]) for i in range(n - right)]


# The table of section 3 of the design notes: value of each shape at k of 8 right, from the printed formulas.
TABLE = {
    "one_minus_p": (1.00, 0.88, 0.75, 0.63, 0.50, 0.25, 0.0),
    "quadratic": (0.0, 0.44, 0.75, 0.94, 1.0, 0.75, 0.0),
    "tent": (0.0, 0.25, 0.50, 0.75, 1.0, 0.50, 0.0),
    "spice": (0.04, 0.37, 0.82, 0.99, 1.0, 0.82, 0.04),
    "ssr": (-0.80, 0.78, 0.55, 0.33, 0.10, -0.35, -0.80),
}


@pytest.mark.parametrize("name", TABLE)
def test_shapes_match_the_published_table(name: str) -> None:
    shape = SHAPES[name]  # type: ignore[index]
    values = [shape(k / 8, 8) for k in (0, 1, 2, 3, 4, 6, 8)]
    assert values == pytest.approx(TABLE[name], abs=0.0051)


def test_flat_top() -> None:
    assert [flat_top(k / 8, 8) for k in range(9)] == pytest.approx([0, 0.3, 0.8, 1, 1, 1, 0.8, 0.3, 0])
    spade = [flat_top(k / 8, 8, lo=0.4, hi=0.6) for k in (0, 1, 2, 3, 4, 6, 8)]
    assert spade == pytest.approx([0, 0, 0.4, 0.9, 1, 0.4, 0])


@pytest.mark.parametrize("n", [2, 3, 4, 8])
@pytest.mark.parametrize("p", [0.0, 0.2, 0.5, 0.9])
def test_unbiased_quadratic_has_the_right_mean(p: float, n: int) -> None:
    chance = [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]
    mean = sum(c * unbiased_quadratic(k / n, n) for k, c in enumerate(chance))
    assert mean == pytest.approx(4 * p * (1 - p))
    assert unbiased_quadratic(1.0, 1) == 0.0


def test_pay_of_a_solved_question() -> None:
    reward = proposer_reward(
        proposer(*TWO_HOP), None, outcomes(2, 8), ProposerReward(shape="quadratic", weight=2.0, valid=0.1)
    )
    assert {name: part for name, part in reward.components.items() if part} == {
        "valid": 0.1, "success": pytest.approx(1.5),
    }  # fmt: skip
    assert dict(reward.labels) == {
        "refusal": "",
        "p_hat": 0.25,
        "n_solvers": 8.0,
        "hops": 2.0,
        "unsolved_budget": False,
    }
    assert not reward.masked


@pytest.mark.parametrize("shape", SHAPES)
def test_unsolved_question_pays_exactly_zero(shape: str) -> None:
    settings = ProposerReward(shape=shape, valid=0.3)  # type: ignore[arg-type]
    reward = proposer_reward(proposer(*TWO_HOP), None, outcomes(0, 8), settings)
    assert (reward.total, reward.masked, reward.labels["p_hat"]) == (0.0, False, 0.0)


def test_zero_if_unsolved_can_be_switched_off() -> None:
    settings = ProposerReward(shape="one_minus_p", valid=0.3, zero_if_unsolved=False)
    assert proposer_reward(proposer(*TWO_HOP), None, outcomes(0, 8), settings).total == pytest.approx(1.3)


@pytest.mark.parametrize("reason", list(Refusal))
def test_refused_question_stays_in_its_group_at_zero(reason: Refusal) -> None:
    reward = proposer_reward(proposer(*TWO_HOP), reason, [], ProposerReward(valid=0.3, zero_if_unsolved=False))
    assert (reward.total, reward.masked, reward.labels["refusal"]) == (0.0, False, reason.value)
    assert (reward.labels["p_hat"], reward.labels["n_solvers"]) == (-1.0, 0.0)
    assert reward.labels["unsolved_budget"] is False


def test_refused_question_can_be_punished_or_left_out_to_show_what_that_does() -> None:
    settings = ProposerReward(valid=0.3, zero_if_unsolved=False, refused=-0.1)
    punished = proposer_reward(proposer(*TWO_HOP), Refusal.SCHEMA, [], settings)
    assert (punished.total, punished.masked) == (-0.1, False)
    assert proposer_reward(proposer(*TWO_HOP), None, outcomes(0, 4), settings).components["refused"] == 0.0
    fault = proposer_reward(proposer(None, stop=StopReason.ENVIRONMENT_FAULT), Refusal.NO_SUBMISSION, [], settings)
    assert (fault.total, fault.masked) == (0.0, True)
    left_out = proposer_reward(proposer(*TWO_HOP), Refusal.SCHEMA, [], ProposerReward(refused=None))
    assert (left_out.total, left_out.masked) == (0.0, True)
    with pytest.raises(ValidationError, match="refused"):
        ProposerReward(refused=0.1)


def test_question_that_got_no_solvers_leaves_its_group() -> None:
    settings = ProposerReward(valid=0.3, zero_if_unsolved=False)
    reward = proposer_reward(proposer(*TWO_HOP), None, [], settings)
    assert (reward.total, reward.masked, reward.labels["unsolved_budget"]) == (0.0, True, True)
    faults = proposer_reward(proposer(*TWO_HOP), None, [outcome("none", masked=True)] * 4, settings)
    assert (faults.total, faults.masked, faults.labels["unsolved_budget"]) == (0.0, True, False)


def test_masked_outcomes_do_not_move_p_hat() -> None:
    mixed = [*outcomes(2, 4), outcome("none", masked=True), outcome("right", masked=True)]
    reward = proposer_reward(proposer(*TWO_HOP), None, mixed, ProposerReward(shape="tent"))
    assert (reward.labels["p_hat"], reward.labels["n_solvers"], reward.total) == (0.5, 4.0, 1.0)


def test_environment_fault_is_masked() -> None:
    trajectory = proposer(None, stop=StopReason.ENVIRONMENT_FAULT)
    reward = proposer_reward(trajectory, Refusal.NO_SUBMISSION, [], ProposerReward())
    assert (reward.masked, reward.total, reward.labels["unsolved_budget"]) == (True, 0.0, False)


def test_a_solver_rollout_is_refused() -> None:
    with pytest.raises(ValueError, match="role 'solver', expected 'proposer'"):
        proposer_reward(solver("x"), None, [], ProposerReward())


def test_refused_question_with_outcomes_is_a_broken_contract() -> None:
    with pytest.raises(ValueError, match=r"schema.*3 Solver outcomes"):
        proposer_reward(proposer(*TWO_HOP), Refusal.SCHEMA, outcomes(1, 3), ProposerReward())


@pytest.mark.parametrize("fields", [{"shape": "tents"}, {"weight": 0.0}, {"valid": -0.1}, {"wieght": 1.0}])
def test_bad_settings_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=next(iter(fields))):
        ProposerReward(**fields)  # type: ignore[arg-type]


@effort(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(SHAPES)), st.floats(0.01, 5), st.floats(0, 1), st.booleans(),
    st.integers(0, 12), st.integers(0, 12), st.sampled_from([None, *Refusal]),
)  # fmt: skip
def test_parts_sum_to_the_total(
    shape: str, weight: float, valid: float, zero: bool, right: int, other: int, reason: Refusal | None
) -> None:
    settings = ProposerReward(shape=shape, weight=weight, valid=valid, zero_if_unsolved=zero)  # type: ignore[arg-type]
    results = [] if reason else outcomes(right, right + other)
    reward = proposer_reward(proposer(*TWO_HOP), reason, results, settings)
    assert set(reward.components) == PARTS
    assert all(reward.components[part] == 0 for part in PARTS - {"valid", "success"})
    assert reward.total == sum(reward.components.values())
    if reason or (zero and right == 0):
        assert reward.total == 0.0
    elif results:
        p = right / len(results)
        assert reward.total == pytest.approx(valid + weight * SHAPES[shape](p, len(results)))  # type: ignore[index]


# --- what the Solvers' answers say ------------------------------------------------------------------------------------

ON = OutcomeSettings(enabled=True)
Said = tuple[str, bool, str]
"""Verdict, whether the evidence was opened, and the answer."""
RIGHT: Said = ("right", True, "12-34")
GUESS: Said = ("right", False, "12-34")
NONE: Said = ("none", False, "")


def wrong(answer: str) -> Said:
    return ("wrong", True, answer)


def paid(said: list[Said], outcome_settings: OutcomeSettings = ON, **fields: object) -> RewardBreakdown:
    breakdowns = [RewardBreakdown({}, {"verdict": verdict, "grounded": opened}) for verdict, opened, _ in said]
    settings = ProposerReward(shape="quadratic", valid=0.5, outcomes=outcome_settings, **fields)  # type: ignore[arg-type]
    return proposer_reward(
        proposer(*TWO_HOP), None, breakdowns, settings, answers=[answer for *_, answer in said], diversity=0.5
    )


def test_grounded_answers_and_silence_cut_nothing() -> None:
    reward = paid([RIGHT, RIGHT, NONE, NONE])
    assert (reward.total, reward.labels["p_hat"], reward.labels["guess_rate"]) == (1.5, 0.5, 0.0)


def test_guesses_do_not_count_and_cost() -> None:
    reward = paid([RIGHT, GUESS, NONE, NONE])
    assert (reward.labels["p_hat"], reward.labels["right_rate"]) == (0.25, 0.5)
    whole = 0.5 + 0.75
    assert reward.components["guessed"] == pytest.approx(-whole / 2)  # half of the right answers
    assert paid([RIGHT, GUESS, NONE, NONE], OutcomeSettings(enabled=True, guessed=0.0)).total == pytest.approx(whole)
    only_guesses = paid([GUESS, GUESS, NONE, NONE])
    assert (only_guesses.total, only_guesses.masked, only_guesses.labels["p_hat"]) == (0.0, False, 0.0)


def test_scattered_wrong_answers_cut_the_pay_and_agreeing_ones_less() -> None:
    scattered = paid([RIGHT, RIGHT, wrong("1-1"), wrong("2-2")])
    assert scattered.components["vague"] == pytest.approx(-1.5 * 0.5 * 1.0 * 0.5)  # all different, half of the Solvers
    same = paid([RIGHT, RIGHT, RIGHT, wrong("1-1"), wrong("1-1")])
    assert same.components["vague"] == 0.0
    assert same.total > scattered.total


def test_agreement_on_another_answer_costs_everything() -> None:
    reward = paid([RIGHT, wrong("77-10"), wrong("77-10"), wrong("desk 77-10")], diversity=1.0)
    assert reward.labels["wrong_key"] is True
    assert reward.total == 0.0
    assert reward.components["wrong_key"] < 0
    # Not where the right answers are as many, nor where the others are no half.
    silent: Said = ("none", True, "")
    for said in ([RIGHT, RIGHT, wrong("7-1"), wrong("7-1")], [RIGHT, silent, silent, wrong("7-1"), wrong("7-1")]):
        assert paid(said).labels["wrong_key"] is False
        assert paid(said).total > 0


def test_only_those_who_read_the_evidence_tell_of_a_wrong_key() -> None:
    trapped: Said = ("wrong", False, "77-10")  # a mail that looks like the answer, before the evidence was found
    reward = paid([RIGHT, trapped, trapped, trapped])
    assert (reward.labels["wrong_key"], reward.labels["rival_rate"]) == (False, 0.0)
    assert reward.total > 0
    everybody = paid([RIGHT, trapped, trapped, trapped], OutcomeSettings(enabled=True, witnesses="all"))
    assert (everybody.labels["wrong_key"], everybody.labels["rival_rate"], everybody.total) == (True, 0.75, 0.0)
    # Two of three readers say otherwise; who never read it does not make that less.
    assert paid([RIGHT, wrong("77-10"), wrong("77-10"), *[NONE] * 5]).labels["wrong_key"] is True


def test_outcomes_without_answers_are_a_broken_contract() -> None:
    with pytest.raises(ValueError, match="2 Solver outcomes and 0 answers"):
        proposer_reward(proposer(*TWO_HOP), None, outcomes(1, 2), ProposerReward(outcomes=ON))


SAID = st.lists(
    st.sampled_from([RIGHT, GUESS, NONE, wrong("1-1"), wrong("2-2"), wrong("3-3"), ("unsure", True, "4-4")]),
    max_size=10,
)


@effort(max_examples=200, deadline=None)
@given(
    SAID, st.sampled_from(sorted(SHAPES)), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.floats(0.1, 1),
    st.floats(0, 1), st.booleans(), st.booleans(),
)  # fmt: skip
def test_all_parts_sum_to_the_total_and_cuts_never_turn_it_negative(
    said: list[Said], shape: str, valid: float, guessed: float, vague: float, wrong_key: float, weight: float,
    enabled: bool, zero: bool,
) -> None:  # fmt: skip
    settings = ProposerReward(
        shape=shape, valid=valid, diversity=weight, zero_if_unsolved=zero,  # type: ignore[arg-type]
        outcomes=OutcomeSettings(enabled=enabled, guessed=guessed, vague=vague, wrong_key=wrong_key),
    )  # fmt: skip
    breakdowns = [RewardBreakdown({}, {"verdict": verdict, "grounded": opened}) for verdict, opened, _ in said]
    answers = [answer for *_, answer in said]
    reward = proposer_reward(proposer(*TWO_HOP), None, breakdowns, settings, answers=answers, diversity=0.7)
    parts = reward.components
    assert set(parts) == PARTS
    assert reward.total == sum(parts.values())
    assert all(parts[part] <= 0 for part in ("guessed", "vague", "wrong_key"))
    assert 0 <= parts["diversity"] <= weight
    before = parts["valid"] + parts["success"]
    assert reward.total >= min(before, 0.0) - 1e-12
    assert reward.total <= max(before, 0.0) + weight + 1e-12
    if not enabled:
        assert parts["guessed"] == parts["vague"] == parts["wrong_key"] == 0
    elif reward.labels.get("wrong_key"):
        assert reward.total == pytest.approx(min(before, 0.0), abs=1e-12)


@given(SAID, st.floats(0.01, 5))
def test_more_guesses_never_pay_more(said: list[Said], pay: float) -> None:
    def left(these: list[Said]) -> float:
        pairs = [(RewardBreakdown({}, {"verdict": v, "grounded": o}), a) for v, o, a in these]
        return pay + sum(cuts(pay, measure(pairs, "", ON, DEFAULT), ON).values())

    lucky = [GUESS if each is RIGHT else each for each in said]
    assert left(lucky) <= left(said) + 1e-12


# --- diversity and regret ---------------------------------------------------------------------------------------------


def test_diversity_is_paid_on_solved_questions_alone() -> None:
    settings = ProposerReward(shape="quadratic", diversity=0.4)

    def part(right: int, reason: Refusal | None = None) -> float:
        outs = [] if reason else outcomes(right, 4)
        return proposer_reward(proposer(*TWO_HOP), reason, outs, settings, diversity=0.5).components["diversity"]

    assert part(2) == part(4) == pytest.approx(0.2)
    assert part(0) == part(0, Refusal.UNGROUNDED) == 0.0
    free = ProposerReward(zero_if_unsolved=False, diversity=0.4)
    assert proposer_reward(proposer(*TWO_HOP), None, outcomes(0, 4), free, diversity=1.0).components["diversity"] == 0.0


def test_regret_pays_what_the_hint_was_worth() -> None:
    settings = ProposerReward(shape="regret", weight=2.0)

    def reward(right: int, with_hint: int) -> RewardBreakdown:
        return proposer_reward(proposer(*TWO_HOP), None, outcomes(right, 4), settings, hinted=outcomes(with_hint, 4))

    assert reward(1, 4).total == pytest.approx(1.5)
    assert reward(1, 4).labels["p_hint"] == 1.0
    assert reward(4, 4).total == reward(3, 1).total == reward(0, 4).total == 0.0  # easy; vague; unsolved
    unmeasured = proposer_reward(
        proposer(*TWO_HOP), None, outcomes(1, 4), settings, hinted=[outcome("none", masked=True)]
    )
    assert (unmeasured.total, unmeasured.masked) == (0.0, True)
    assert (regret(0.5, 1.0), regret(1.0, 0.5)) == (0.5, 0.0)
    with pytest.raises(ValueError, match="p_hint"):
        shape_value("regret", 0.5, 4)
