"""Steps in which the search index was away: left out, skipped, or the run stopped and resumed, with nothing lost."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from company_play import Place, load, place
from scripted_play import (
    Act,
    OneWeightEngine,
    Script,
    ScriptedEngine,
    board,
    expert,
    group_number,
    guess,
    half_right,
    true_proposal,
    written,
)

from corpus_index.backends.base import IndexUnavailable, SearchIndex, SearchResult
from corpus_index.document import Document
from corpus_index.query import Query
from corpus_index.scope import MailScope
from environments.task import Role, Task
from environments.trajectory import StopReason, ToolEvent, Trajectory
from rewards.judge import RuleJudge
from training.checkpoint import CheckpointManager
from training.config import Config, EnvConfig
from training.console import step_line
from training.engines.base import Sampling
from training.faults import FaultStop, FaultWatch
from training.game import Board
from training.loop import run as run_loop
from training.recipe import Players, open_board
from training.runlog import RunLog
from training.selfplay import StepReport, train_step

JUDGE = RuleJudge()


@pytest.fixture(scope="module")
def firm() -> Place:
    return place()


class Scheduled:
    """Passes calls on while ``works(n)`` holds for the n-th of them, counted from 1."""

    def __init__(self, index: SearchIndex, works: Any = lambda _: True) -> None:
        self._index = index
        self.works = works
        self.asked = 0
        self.locator = "scheduled:"

    def _ask(self) -> None:
        self.asked += 1
        if not self.works(self.asked):
            raise IndexUnavailable("connection refused")

    def search(self, query: Query, *, snippet_chars: int = 160) -> SearchResult:
        self._ask()
        return self._index.search(query, snippet_chars=snippet_chars)

    def read(self, document_id: str) -> Document | None:
        self._ask()
        return self._index.read(document_id)

    def within(self, scope: MailScope) -> Scheduled:
        view = Scheduled(self._index.within(scope))
        view._ask = self._ask  # type: ignore[method-assign]
        return view

    def asynchronous(self) -> None:
        return None

    def ids(self):  # type: ignore[no-untyped-def]
        return self._index.ids()


def config(*overrides: str) -> Config:
    return load(
        "grpo.num_generations_per_prompt=4", "selfplay.proposer_prompts_per_step=3", "selfplay.max_solver_groups=20",
        "selfplay.hops={1: 1.0}", "selfplay.tool_variants=1", "tools.retries=1", "tools.backoff_seconds=0", *overrides,
    )  # fmt: skip


def trajectory(stop: StopReason = StopReason.SUBMITTED, error: str = "") -> Trajectory:
    return Trajectory(
        uid="u", task=Task(role=Role.SOLVER, group_id="g"), token_ids=(1, 2), loss_mask=(0, 1), logprobs=(0.0, -1.0),
        stop_reason=stop, policy_version=0, events=(ToolEvent(0, "search_keyword", {}, error),),
    )  # fmt: skip


def faulted(error: str = "index unavailable: down") -> Trajectory:
    return trajectory(StopReason.ENVIRONMENT_FAULT, error)


def step(
    firm: Place, settings: Config, act: Act, index: Scheduled, *, number: int = 1
) -> tuple[ScriptedEngine, StepReport]:
    loose = cast("SearchIndex", index)
    engine = ScriptedEngine(firm, firm.episode(settings, loose), act)
    return engine, train_step(engine, Board(loose, tuple(firm.index.ids()), firm.company), JUDGE, settings, number)


# --- the watch --------------------------------------------------------------------------------------------------------


def test_exactly_the_share_is_still_enough_and_one_more_is_too_many() -> None:
    watch = FaultWatch(EnvConfig(on_faults="continue", max_fault_share=0.5))
    assert (watch.lost, watch.summary(), watch.share) == (False, "", 0.0)
    watch.count([trajectory(), faulted()])
    assert not watch.lost
    watch.count([faulted("index unavailable: slow"), faulted("index unavailable: slow")])
    assert watch.lost
    assert watch.metrics() == {"faults/rollouts": 3.0, "faults/share": 0.75, "faults/lost": 1.0}
    assert watch.summary() == "3 of 4 rollouts ended by an environment fault (index unavailable: slow)"


def test_stopping_raises_as_soon_as_too_many_are_counted() -> None:
    watch = FaultWatch(EnvConfig(max_fault_share=0.25))
    watch.count([faulted(), *[trajectory()] * 3])
    with pytest.raises(FaultStop, match=r"3 of 6 rollouts .* \(index unavailable: down\)"):
        watch.count([faulted()] * 2)
    with pytest.raises(FaultStop, match=r"could not be read \(gone\)"):
        FaultWatch(EnvConfig()).unreadable(IndexUnavailable("gone"))


def test_shares_at_the_ends() -> None:
    never = FaultWatch(EnvConfig(max_fault_share=1.0))
    never.count([faulted()] * 5)
    assert not never.lost
    strict = FaultWatch(EnvConfig(max_fault_share=0.0))
    strict.count([trajectory()] * 5)
    assert not strict.lost
    with pytest.raises(FaultStop):
        strict.count([faulted()])


# --- a step -----------------------------------------------------------------------------------------------------------


def test_a_step_that_nothing_happens_to_reports_no_fault(firm: Place) -> None:
    _, report = step(firm, config(), half_right(firm), Scheduled(firm.index))
    assert {name: value for name, value in report.metrics.items() if name.startswith("faults/")} == {
        "faults/rollouts": 0.0, "faults/share": 0.0, "faults/lost": 0.0,
    }  # fmt: skip
    assert report.trouble == ""
    assert "faults" not in step_line(1, report.metrics, phase="train")


def dies_with_the_solvers(firm: Place, index: Scheduled) -> Act:
    """``half_right``, and the index is away for good when the first Solver begins."""
    usual = half_right(firm)

    def act(task: Task, member: int) -> Script:
        if task.role is Role.SOLVER:
            index.works = lambda _: False
        return usual(task, member)

    return act


def test_a_lost_step_is_skipped_and_counted_where_the_run_shall_go_on(firm: Place) -> None:
    index = Scheduled(firm.index)
    settings = config("env.on_faults=continue", "env.max_fault_share=0.2")
    engine, report = step(firm, settings, dies_with_the_solvers(firm, index), index)
    # 12 proposals and 12 Solvers; the half of these that look something up is lost.
    assert report.metrics["faults/rollouts"] == 6.0
    assert report.metrics["faults/share"] == 0.25
    assert (report.metrics["faults/lost"], report.metrics["update/skipped"]) == (1.0, 1.0)
    assert engine.updates == []
    assert report.trouble == ("6 of 24 rollouts ended by an environment fault (index unavailable: connection refused)")
    assert len(report.samples) == 24
    assert {record["advantage"] for record in report.samples} == {None}
    assert "faults 25%, no update" in step_line(1, report.metrics, phase="train")


def test_few_faults_are_left_out_and_the_rest_is_trained_on(firm: Place) -> None:
    index = Scheduled(firm.index)
    engine, report = step(firm, config(), dies_with_the_solvers(firm, index), index)
    assert (report.metrics["faults/share"], report.metrics["faults/lost"]) == (0.25, 0.0)
    assert len(engine.updates) == 1 - (report.metrics["update/skipped"] == 1.0)
    assert all(each.trajectory.stop_reason is not StopReason.ENVIRONMENT_FAULT for b in engine.updates for each in b)
    line = step_line(1, report.metrics, phase="train")
    assert "faults 25%" in line
    assert "no update" not in line


def test_a_lost_step_stops_before_the_weights_change(firm: Place) -> None:
    index = Scheduled(firm.index)
    settings = config("env.max_fault_share=0.2")
    engine = ScriptedEngine(
        firm, firm.episode(settings, cast("SearchIndex", index)), dies_with_the_solvers(firm, index)
    )
    with pytest.raises(FaultStop, match="6 of 24 rollouts"):
        train_step(engine, board(firm), JUDGE, settings, 1)
    assert (engine.updates, engine.syncs) == ([], 0)


def test_lost_proposals_cost_no_solver_rollouts(firm: Place) -> None:
    settings = config("env.on_faults=continue")
    # The three seeds are read; then the index is gone.
    engine, report = step(firm, settings, half_right(firm), Scheduled(firm.index, lambda n: n <= 3))
    assert engine.rollouts[1][0] == []
    assert report.metrics["faults/share"] == 0.5  # half of the proposals look nothing up
    settings = config("env.on_faults=continue", "env.max_fault_share=0.4")
    engine, report = step(firm, settings, half_right(firm), Scheduled(firm.index, lambda n: n <= 3))
    assert engine.rollouts[1][0] == []
    assert report.metrics["faults/lost"] == 1.0


def test_seeds_that_cannot_be_read_lose_the_step(firm: Place) -> None:
    dead = Scheduled(firm.index, lambda _: False)
    engine, report = step(firm, config("env.on_faults=continue"), half_right(firm), dead)
    assert dead.asked == 2  # one retry
    assert engine.rollouts == [([], engine.rollouts[0][1])]
    assert (report.metrics["faults/share"], report.metrics["update/skipped"]) == (1.0, 1.0)
    assert report.trouble == "the mails to start from could not be read (connection refused)"
    with pytest.raises(FaultStop, match="could not be read"):
        step(firm, config(), half_right(firm), Scheduled(firm.index, lambda _: False))


def test_a_short_outage_between_the_phases_is_waited_out(firm: Place) -> None:
    whole = Scheduled(firm.index)
    _, expected = step(firm, config(), half_right(firm), whole)
    for gap in (2, 5, whole.asked - 1):
        _, report = step(firm, config(), half_right(firm), Scheduled(firm.index, lambda n, gap=gap: n != gap))
        assert report.metrics == expected.metrics


def test_a_proposal_whose_evidence_cannot_be_checked_is_masked(firm: Place) -> None:
    # Three seeds and a mail for each of the six proposals that ask something; the checks then read those six again.
    index = Scheduled(firm.index, lambda n: n <= 9)
    _, report = step(firm, config("env.on_faults=continue"), half_right(firm), index)
    assert index.asked == 9 + 2  # the first with its retry, the others not at all
    unread = [r for r in report.samples if r["stop_reason"] == "environment_fault"]
    assert len(unread) == 6
    for record in unread:
        pay = cast("dict[str, object]", record["reward"])
        assert (pay["masked"], pay["total"]) == (True, 0.0)
        events = cast("list[dict[str, object]]", record["events"])
        assert events[-1]["error"] == "evidence could not be checked: connection refused"
    assert report.metrics["faults/rollouts"] == 6.0


# --- scopes -----------------------------------------------------------------------------------------------------------


def test_seeds_and_tools_stay_inside_the_scope_of_the_config(firm: Place, tmp_path: Path) -> None:
    boxes = sorted({mail.mailbox for mail in firm.company.documents()})
    mine = MailScope(mailboxes=(boxes[0],))
    source = "company:seed=3,projects=20,duplicates=0"
    settings = config(f"logger.log_dir={tmp_path}", f"corpus.source='{source}'", f"scope.mailboxes=['{boxes[0]}']")
    assert settings.scope == mine
    limited = open_board(settings, lambda _: None)
    inside = {mail.id for mail in firm.company.documents() if mail.mailbox == boxes[0]}
    assert set(limited.ids) <= inside
    assert limited.ids
    foreign = next(mail.id for mail in firm.company.documents() if mail.id not in inside)
    assert limited.read(foreign, settings.tools) is None
    with pytest.raises(ValueError, match=r"no mail of .* lies within scope"):
        open_board(config(f"logger.log_dir={tmp_path}", f"corpus.source='{source}'", "scope.folders=[none]"), print)


def test_a_question_is_checked_and_solved_in_the_scope_of_its_proposer(firm: Place) -> None:
    class Scoped(Board):
        def proposer_tasks(self, config: Config, step: int, rng: Any) -> list[Task]:
            made = super().proposer_tasks(config, step, rng)
            boxes = [firm.index.read(true_proposal(firm, k).evidence[0]) for k in range(3)]
            return [
                Task(
                    role=t.role, group_id=t.group_id, hops=t.hops, seed=t.seed,
                    scope=MailScope(mailboxes=(cast("Document", boxes[group_number(t)]).mailbox,)),
                )
                for t in made
            ]  # fmt: skip

    def act(task: Task, member: int) -> Script:
        if task.role is Role.PROPOSER:
            return true_proposal(firm, group_number(task)).script()
        return expert(firm, task) if member % 2 else guess()

    engine = ScriptedEngine(firm, firm.episode(config()), act)
    train_step(engine, Scoped(firm.index, tuple(firm.index.ids())), JUDGE, config("env.max_fault_share=1"), 1)
    solving = engine.rollouts[1][0]
    assert {task.scope for task in solving} == {task.scope for task in engine.rollouts[0][0]}
    assert None not in {task.scope for task in solving}


# --- a run ------------------------------------------------------------------------------------------------------------


@dataclass
class CountingEngine(OneWeightEngine):
    """Whose uids tell no resumed run from an unbroken one."""

    def rollout(self, tasks: Sequence[Task], sampling: Sampling) -> list[Trajectory]:
        made = super().rollout(tasks, sampling)
        self.rollouts.clear()  # they number the uids
        return made


def play(
    firm: Place, folder: Path, index: Scheduled, *overrides: str, steps: int = 4, period: int = 3
) -> CountingEngine:
    settings = config(
        f"grpo.max_num_steps={steps}", "grpo.val_period=2", "grpo.val_at_start=true", "sft.max_num_steps=0",
        f"checkpointing.save_period={period}", "checkpointing.keep_top_k=null", "env.max_fault_share=0.1", *overrides,
    )  # fmt: skip
    loose = cast("SearchIndex", index)
    engine = CountingEngine(firm, firm.episode(settings, loose), half_right(firm))
    players = Players(cast("Any", engine), firm.chat, settings)
    with RunLog(folder, {}) as log:
        run_loop(
            players, Board(loose, tuple(firm.index.ids()), firm.company), JUDGE, log,
            validate=lambda: cast("Mapping[str, float]", {"val/overall/accuracy": engine.weight}),
            benchmark=lambda step, label: log.write_metrics(step, {"eval/x": engine.weight}, phase="eval"),
        )  # fmt: skip
    return engine


def test_a_run_stopped_by_faults_resumes_exactly(firm: Place, tmp_path: Path) -> None:
    whole = Scheduled(firm.index)
    unbroken = play(firm, tmp_path / "unbroken", whole)
    per_step = whole.asked // 4
    dies = per_step * 2 + per_step // 2  # in the middle of step 3; by the period the only checkpoint is that of step 0
    with pytest.raises(FaultStop) as stopped:
        play(firm, tmp_path / "stopped", Scheduled(firm.index, lambda n: n < dies))
    message = str(stopped.value)
    assert message.startswith("step 3 was given up: ")
    for part in ("connection refused", "scheduled:", "step 2 is saved", "same command", "env.on_faults"):
        assert part in message
    saved = CheckpointManager(tmp_path / "stopped/checkpoints").latest()
    assert saved is not None
    lines = [json.loads(line) for line in (tmp_path / "unbroken/metrics.jsonl").read_text().splitlines()]
    [measured] = [
        line["metrics"]["val/overall/accuracy"] for line in lines if (line["phase"], line["step"]) == ("val", 2)
    ]
    assert (saved.step, saved.metric) == (2, measured)
    # Still down: nothing is lost, nothing is done twice.
    with pytest.raises(FaultStop, match="step 3 was given up"):
        play(firm, tmp_path / "stopped", Scheduled(firm.index, lambda _: False))
    resumed = play(firm, tmp_path / "stopped", Scheduled(firm.index))
    assert resumed.weight == unbroken.weight
    assert written(tmp_path / "stopped") == written(tmp_path / "unbroken")


def test_a_run_that_goes_on_loses_one_update_only(firm: Place, tmp_path: Path) -> None:
    probe = Scheduled(firm.index)
    play(firm, tmp_path / "probe", probe)
    per_step = probe.asked // 4
    away = range(per_step + 1, per_step + 4)
    engine = play(firm, tmp_path / "run", Scheduled(firm.index, lambda n: n not in away), "env.on_faults=continue")
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    train = [line["metrics"] for line in lines if line["phase"] == "train"]
    assert [metrics["faults/lost"] for metrics in train] == [0.0, 1.0, 0.0, 0.0]
    assert [metrics["update/skipped"] for metrics in train] == [0.0, 1.0, 0.0, 0.0]
    assert len(engine.updates) == 0  # CountingEngine keeps none
    assert engine.policy_version == 7 + 3
    events = (tmp_path / "run/events.log").read_text()
    assert "step 2: the mails to start from could not be read (connection refused)" in events


def test_without_checkpoints_the_message_says_so(firm: Place, tmp_path: Path) -> None:
    with pytest.raises(FaultStop, match=r"nothing is saved, because checkpointing\.enabled is false"):
        play(firm, tmp_path, Scheduled(firm.index, lambda _: False), "checkpointing.enabled=false")
    assert not (tmp_path / "checkpoints").exists()
