from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st
from pydantic import ValidationError
from reward_builders import proposer, solver

from environments.trajectory import StopReason
from rewards.answers import MatchSettings, Verdict
from rewards.judge import Judge, RuleJudge
from rewards.solver import SolverReward, solver_reward

BANDS = SolverReward(wrong=-1.0, none=0.0, right=1.0, evidence_bonus=0.5)


class FixedJudge:
    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict
        self.asked: list[tuple[str, str, str]] = []

    def judge(self, question: str, answer: str, key: str) -> Verdict:
        self.asked.append((question, answer, key))
        return self.verdict


@pytest.mark.parametrize(
    ("answer", "verdict", "pay"), [("EB-2868", "right", 1.0), ("EB2869", "wrong", -1.0), (None, "none", 0.0)]
)
def test_bands(answer: str | None, verdict: str, pay: float) -> None:
    reward = solver_reward(solver(answer), RuleJudge(), BANDS)
    assert reward.labels["verdict"] == verdict
    assert dict(reward.components) == {"correctness": pay, "evidence": 0.0}
    assert reward.total == pay
    assert not reward.masked


def test_default_pays_only_right_answers() -> None:
    totals = [solver_reward(solver(a, opened=("m1", "m2")), RuleJudge(), SolverReward()).total
              for a in ("EB2868", "EB1", None)]  # fmt: skip
    assert totals == [1.0, 0.0, 0.0]


def test_evidence_counts_key_mails_only() -> None:
    half = solver_reward(solver("EB1", opened=("m1", "m7", "m8")), RuleJudge(), BANDS)
    assert half.components["evidence"] == pytest.approx(0.25)
    assert half.labels["grounded"] is False
    both = solver_reward(solver("EB1", opened=("m2", "m1", "m1")), RuleJudge(), BANDS)
    assert both.total == pytest.approx(-0.5)
    assert both.labels["grounded"] is True


def test_without_key_mails_nothing_is_grounded() -> None:
    reward = solver_reward(solver("EB2868", evidence=(), opened=("m1",)), RuleJudge(), BANDS)
    assert (reward.labels["grounded"], reward.components["evidence"]) == (False, 0.0)


def test_environment_fault_is_masked_even_with_an_answer() -> None:
    judge = FixedJudge(Verdict.RIGHT)
    reward = solver_reward(solver("EB2868", stop=StopReason.ENVIRONMENT_FAULT, opened=("m1",)), judge, BANDS)
    assert (reward.masked, reward.total, judge.asked) == (True, 0.0, [])
    assert reward.labels["stop"] == "environment_fault"


@pytest.mark.parametrize("stop", [s for s in StopReason if s is not StopReason.ENVIRONMENT_FAULT])
def test_other_stops_are_the_policys_own(stop: StopReason) -> None:
    reward = solver_reward(solver(None, stop=stop), RuleJudge(), BANDS)
    assert (reward.masked, reward.labels["verdict"], reward.labels["stop"]) == (False, "none", stop.value)


def test_unsure_counts_as_the_setting_says() -> None:
    judge: Judge = FixedJudge(Verdict.UNSURE)
    wrong = solver_reward(solver("perhaps"), judge, BANDS)
    assert (wrong.total, wrong.labels["verdict"], wrong.masked) == (-1.0, "unsure", False)
    masked = solver_reward(solver("perhaps", opened=("m1",)), judge, BANDS.model_copy(update={"unsure": "masked"}))
    assert (masked.total, masked.labels["verdict"], masked.masked) == (0.0, "unsure", True)


def test_judge_gets_question_answer_and_key() -> None:
    judge = FixedJudge(Verdict.RIGHT)
    solver_reward(solver("a", key="k", question="q"), judge, BANDS)
    assert judge.asked == [("q", "a", "k")]


def test_rule_judge_uses_its_settings_and_the_question() -> None:
    assert RuleJudge(MatchSettings(day_first=True)).judge("", "12/3/2001", "March 12, 2001") is Verdict.RIGHT
    asked = "Which room holds the Falcon Ridge review?"
    assert RuleJudge().judge(asked, "The Falcon Ridge review is in EB2868", "EB2868") is Verdict.RIGHT


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"evidence_bonus": 1.0}, "evidence_bonus=1.0"),
        ({"evidence_each": 0.2}, "evidence_each=0.2 with evidence_cap=None pay up to inf"),
        ({"evidence_each": 0.2, "evidence_cap": 1.0}, "evidence_cap=1.0 pay up to 1.0"),
        ({"evidence_bonus": 0.5, "evidence_each": 0.2, "evidence_cap": 0.5}, "pay up to 1.0"),
        ({"evidence_each": 0.2, "evidence_cap": float("inf"), "cross_bands": True}, "evidence_cap"),
        ({"wrong": -1.0, "none": -0.8, "evidence_bonus": 0.3}, "evidence_bonus=0.3"),
        ({"right": 0.0}, "right=0.0"),
        ({"none": 2.0}, "none=2.0"),
        ({"evidence_bonus": -0.1}, "evidence_bonus"),
        ({"right": float("nan")}, "right"),
        ({"rihgt": 1.0}, "rihgt"),
    ],
)
def test_settings_that_break_the_bands_are_refused(fields: dict[str, float], named: str) -> None:
    with pytest.raises(ValidationError, match=named):
        SolverReward(**fields)  # type: ignore[arg-type]


def test_a_proposal_is_refused() -> None:
    with pytest.raises(ValueError, match="role 'proposer', expected 'solver'"):
        solver_reward(proposer("What is it about now?"), RuleJudge(), BANDS)


REPORTED = {"wrong": -1.0, "none": 0.0, "right": 1.0, "evidence_each": 0.2}
MAILS = tuple("abcdef")


@pytest.mark.parametrize(
    ("answer", "opened", "capped", "reported"),
    [
        ("EB2868", 0, 1.0, 1.0),
        ("EB2868", 2, 1.4, 1.4),
        ("EB1", 3, -0.4, -0.4),
        ("EB1", 5, -0.4, 0.0),  # by the reported reward as good as silence
        (None, 6, 0.6, 1.2),  # ... and silence better than a right answer without a mail
    ],
)
def test_each_key_mail_pays_up_to_the_cap(answer: str | None, opened: int, capped: float, reported: float) -> None:
    trajectory = solver(answer, evidence=MAILS, opened=(*MAILS[:opened], "elsewhere"))
    bands = SolverReward.model_validate(REPORTED | {"evidence_cap": 0.6})
    assert solver_reward(trajectory, RuleJudge(), bands).total == pytest.approx(capped)
    crossing = SolverReward.model_validate(REPORTED | {"cross_bands": True})
    assert solver_reward(trajectory, RuleJudge(), crossing).total == pytest.approx(reported)


pays = st.floats(-5, 5, allow_nan=False)


@effort(max_examples=60, deadline=None)
@given(
    st.tuples(pays, pays, pays),
    st.tuples(st.floats(0, 5), st.floats(0, 5), st.floats(0, 5)),
    st.sampled_from(["EB2868", "EB1", "", None]),
    st.sets(st.sampled_from("abm")),
)
def test_parts_sum_and_bands_hold(
    bands: tuple[float, float, float], extra: tuple[float, float, float], answer: str | None, opened: set[str]
) -> None:
    try:
        settings = SolverReward(
            wrong=bands[0], none=bands[1], right=bands[2],
            evidence_bonus=extra[0], evidence_each=extra[1], evidence_cap=extra[2],
        )  # fmt: skip
    except ValidationError:
        return
    reward = solver_reward(solver(answer, evidence=("a", "b"), opened=tuple(opened)), RuleJudge(), settings)
    assert reward.total == sum(reward.components.values())
    level = reward.components["correctness"]
    assert level <= reward.total
    assert all(reward.total < band for band in bands if band > level)
