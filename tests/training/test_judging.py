"""Answers before a judge that may fail: masked, counted, and the run stopped where too many are unknown."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from company_play import Place, load, place
from scripted_play import ScriptedEngine, board, half_right

from environments.task import Role
from environments.trajectory import StopReason
from rewards.answers import Verdict
from rewards.judge import AnswerPair, RuleJudge
from rewards.llm_judge import Claim, EndpointJudge
from rewards.refusal import Refusal
from rewards.replies import EndpointFault, FaultReason
from training.config import Config
from training.consistency import check_claims
from training.evidence import EvidenceDesk
from training.faults import FaultStop, FaultWatch
from training.proposals import propose
from training.recipe import make_judge, rule_judge
from training.selfplay import StepReport, train_step

SLOW = EndpointFault(FaultReason.TIMEOUT, "no whole reply")


@pytest.fixture(scope="module")
def firm() -> Place:
    return place()


def config(*overrides: str) -> Config:
    return load(
        "selfplay.proposer_prompts_per_step=3", "selfplay.proposer_generations=4", "selfplay.solver_generations=4",
        "selfplay.max_solver_groups=20", "selfplay.hops={1: 1.0}", "selfplay.tool_variants=1", *overrides,
    )  # fmt: skip


@dataclass
class Panel:
    """The rules, but ``instead`` of a verdict on right answers when asked side by side."""

    instead: Verdict | EndpointFault | None = None
    asked: list[AnswerPair] = field(default_factory=list)

    def judge(self, question: str, answer: str, key: str) -> Verdict:
        raise AssertionError("asked one by one")

    def judge_all(self, pairs: Sequence[AnswerPair]) -> list[Verdict | EndpointFault]:
        self.asked += pairs
        ruled = [RuleJudge().judge(pair.question, pair.answer, pair.key) for pair in pairs]
        return [self.instead if self.instead is not None and v is Verdict.RIGHT else v for v in ruled]


def play(firm: Place, judge: Panel | RuleJudge, *overrides: str) -> tuple[ScriptedEngine, StepReport]:
    settings = config("rewards.solver.unsure=masked", *overrides)
    engine = ScriptedEngine(firm, firm.episode(settings), half_right(firm))
    return engine, train_step(engine, board(firm), judge, settings, 1)


def test_a_judge_asked_side_by_side_pays_like_one_asked_one_by_one(firm: Place) -> None:
    panel = Panel()
    _, side_by_side = play(firm, panel)
    _, one_by_one = play(firm, RuleJudge())
    assert side_by_side.metrics == one_by_one.metrics
    assert side_by_side.samples == one_by_one.samples
    assert side_by_side.metrics["judge/unsure"] == side_by_side.metrics["judge/faults"] == 0.0
    assert len(panel.asked) == len(set(panel.asked)) == 6  # three questions with two different answers each


def test_unjudged_rollouts_leave_their_groups_and_are_counted(firm: Place) -> None:
    engine, report = play(firm, Panel(SLOW))
    solvers = [t for t in engine.played if t.role is Role.SOLVER]
    half = len(solvers) / 2
    assert (report.metrics["judge/faults"], report.metrics["judge/fault/timeout"]) == (half, half)
    assert report.metrics["faults/rollouts"] == half
    assert report.metrics["reward/solver/total"] == 0.0  # of those that are known, which are the wrong ones
    trained = {each.trajectory.uid for batch in engine.updates for each in batch}
    assert trained.isdisjoint({t.uid for t in solvers})  # what is left of each group is all wrong
    assert "for want of a judge (judge: timeout: no whole reply)" in report.trouble


def test_what_the_judge_cannot_tell_is_unknown_too(firm: Place) -> None:
    _, report = play(firm, Panel(Verdict.UNSURE))
    assert report.metrics["judge/unsure"] > 0
    assert report.metrics["judge/faults"] == report.metrics["faults/rollouts"] == 0.0
    assert report.metrics["reward/solver/total"] == 0.0


def test_a_dead_judge_stops_the_run_before_the_weights_change(firm: Place) -> None:
    settings = config("rewards.solver.unsure=masked", "env.max_fault_share=0.4")
    engine = ScriptedEngine(firm, firm.episode(settings), half_right(firm))
    with pytest.raises(FaultStop, match="want of a judge"):
        train_step(engine, board(firm), Panel(SLOW), settings, 1)
    assert engine.updates == []


def test_a_lost_step_without_stop_changes_no_weights(firm: Place) -> None:
    engine, report = play(firm, Panel(SLOW), "env.max_fault_share=0.4", "env.on_faults=continue")
    assert (report.metrics["faults/lost"], report.metrics["update/skipped"]) == (1.0, 1.0)
    assert engine.updates == []


def test_the_config_says_who_judges(tmp_path: Path) -> None:
    assert isinstance(make_judge(load()), RuleJudge)
    replies = f"rewards.judge.cache_path={tmp_path}/replies"
    endpoint = ("rewards.judge.kind=endpoint", "rewards.judge.endpoint.model=m", replies)
    with pytest.raises(ValueError, match=r"set rewards\.solver\.unsure to masked"):
        load(*endpoint)
    masked = load(*endpoint, "rewards.solver.unsure=masked")
    assert isinstance(make_judge(masked), EndpointJudge)
    assert isinstance(rule_judge(masked), RuleJudge)


@dataclass
class Reader:
    """Says of each claim what ``verdicts`` hold for its answer, RIGHT where they hold none."""

    verdicts: dict[str, Verdict | EndpointFault]
    claims: list[Claim] = field(default_factory=list)

    def follow_all(self, claims: Sequence[Claim]) -> list[Verdict | EndpointFault]:
        self.claims += claims
        return [self.verdicts.get(claim.answer, Verdict.RIGHT) for claim in claims]


def test_a_proposal_that_its_mails_do_not_bear_out_is_refused_and_an_unknown_one_masked(firm: Place) -> None:
    settings = config("env.max_fault_share=0.9")
    engine = ScriptedEngine(firm, firm.episode(settings), half_right(firm))
    desk, faults = EvidenceDesk(board(firm), settings.tools), FaultWatch(settings.env)
    proposals = propose(engine, board(firm), settings, 1, random.Random(0), faults, desk)
    keys = [submission.answer for submission in proposals.submissions()]
    assert len(keys) == 3
    reader = Reader({keys[0]: Verdict.WRONG, keys[1]: Verdict.UNSURE, keys[2]: SLOW})
    checked, counts = check_claims(proposals, reader, desk, settings, faults)
    assert len(reader.claims) == 3  # six proposals, two of each
    for claim in reader.claims:
        assert claim.answer in claim.evidence[0]
    assert counts == {"judge/claims": 6.0, "judge/claims_unsure": 2.0, "judge/claims_faults": 2.0}
    assert checked.questions() == []
    assert checked.refusals.count(Refusal.INCONSISTENT) == 2
    masked = [t for t in checked.trajectories if t.stop_reason is StopReason.ENVIRONMENT_FAULT]
    assert len(masked) == 4
    assert faults.metrics()["faults/rollouts"] == 2.0
    untouched, _ = check_claims(proposals, Reader({}), desk, settings, faults)
    assert untouched == proposals
