from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest
from company_play import Place, place, two_groups
from scripted_play import Act, Script, ScriptedEngine, board, expert, guess, mute, true_proposal

from corpus_index.backends.base import IndexUnavailable
from corpus_index.document import Document
from corpus_index.faults import Unavailable
from corpus_index.scope import MailScope
from environments.protocol import render_call
from environments.task import Role, Task
from environments.trajectory import StopReason, Submission, Trajectory
from rewards.answers import Verdict
from rewards.judge import RuleJudge
from rewards.reading import ReadVerdict
from rewards.refusal import Refusal
from training.config import Config
from training.evidence import EvidenceDesk
from training.game import Board
from training.reader import read_questions
from training.selfplay import StepReport, train_step

JUDGE = RuleJudge()
CLOSED = "rewards.reader.closed_book.enabled=true"
EVIDENCE = "rewards.reader.evidence.enabled=true"
NECESSITY = "rewards.reader.necessity.enabled=true"


@pytest.fixture(scope="module")
def firm() -> Place:
    return place()


def submit(answer: str) -> Script:
    yield render_call("submit", {"answer": answer, "evidence": ["0000"]})


def proposal(firm: Place, hops: int) -> Trajectory:
    """A right question of the company as a Proposer's finished episode."""
    truth = firm.company.questions(hops, 1)[0]
    return Trajectory(
        uid="p", task=Task(role=Role.PROPOSER, group_id="1/p0", hops=hops), token_ids=(1,), loss_mask=(1,),
        logprobs=(0.0,), stop_reason=StopReason.SUBMITTED, policy_version=0,
        submission=Submission(truth.answer, truth.evidence, truth.question),
    )  # fmt: skip


def shown(firm: Place, task: Task) -> set[str]:
    """Ids of the mails that stand in the task's opening, by their first line."""
    starts = {line.split(" | ")[0] for line in task.opening.split("\n")}
    return starts & set(firm.index.ids())


def read_one(
    firm: Place, question: Trajectory, act: Act, *overrides: str, desk: EvidenceDesk | None = None
) -> tuple[ReadVerdict, ScriptedEngine]:
    settings = two_groups(*overrides)
    engine = ScriptedEngine(firm, firm.episode(settings), act)
    desk = desk or EvidenceDesk(board(firm), settings.tools)
    [verdict] = read_questions(engine, desk, JUDGE, settings, 1, [question])
    return verdict, engine


def reads_what_is_there(firm: Place) -> Act:
    """Right exactly where all the evidence stands before the question."""

    def act(task: Task, member: int) -> Script:
        return submit(task.answer if set(task.evidence) <= shown(firm, task) else "nobody knows")

    return act


def test_contexts_hold_what_they_promise(firm: Place) -> None:
    question = proposal(firm, 2)
    evidence = set(cast("Submission", question.submission).evidence)
    verdict, engine = read_one(
        firm, question, reads_what_is_there(firm), CLOSED, EVIDENCE, NECESSITY, "rewards.reader.evidence.distractors=3"
    )
    assert (verdict.refusal, verdict.unknown) == (None, False)
    assert dict(verdict.labels) == {"closed_book": 0.0, "read": 1.0, "needless": 0.0}
    [(tasks, _)] = engine.rollouts  # one batch for all contexts
    groups = {task.group_id: task for task in tasks}
    assert set(Counter(task.group_id for task in tasks).values()) == {4}
    closed, read, *without = groups.values()
    assert closed.opening == ""
    assert shown(firm, read) >= evidence
    assert len(shown(firm, read)) == len(evidence) + 3
    for task, gone in zip(without, cast("Submission", question.submission).evidence, strict=True):
        assert shown(firm, task) & evidence == evidence - {gone}
        assert len(shown(firm, task)) == len(evidence) + 3  # another mail stands in its place
    assert all(len(t.turn_starts) == 1 and not t.opened for t in engine.played)


def test_mails_are_shuffled_by_the_seed_alone(firm: Place) -> None:
    question = proposal(firm, 2)

    def openings(seed: int) -> list[str]:
        _, engine = read_one(firm, question, reads_what_is_there(firm), EVIDENCE, f"grpo.seed={seed}")
        return [task.opening for task in engine.rollouts[0][0]]

    assert openings(1) == openings(1)
    assert len({openings(seed)[0] for seed in range(5)}) > 1


def test_a_question_that_needs_no_mail_is_refused(firm: Place) -> None:
    def knows(task: Task, member: int) -> Script:
        return submit(task.answer)

    assert read_one(firm, proposal(firm, 1), knows, CLOSED)[0].refusal is Refusal.CLOSED_BOOK
    assert read_one(firm, proposal(firm, 2), knows, NECESSITY)[0].refusal is Refusal.UNNECESSARY
    one_hop, engine = read_one(firm, proposal(firm, 1), knows, NECESSITY)
    assert (one_hop.refusal, engine.rollouts) == (None, [])


def test_a_wrong_key_is_told_from_an_unsupported_one(firm: Place) -> None:
    question = proposal(firm, 1)
    said = cast("Submission", question.submission)
    lie = replace(question, submission=replace(said, answer="999-999"))
    assert read_one(firm, lie, lambda task, _: submit(said.answer), EVIDENCE)[0].refusal is Refusal.WRONG_KEY
    scattered = read_one(firm, lie, lambda task, member: submit(f"{member}{member}-00"), EVIDENCE)
    assert scattered[0].refusal is Refusal.UNSUPPORTED
    assert read_one(firm, lie, lambda task, _: mute(), EVIDENCE)[0].refusal is Refusal.UNSUPPORTED


def test_the_reader_has_no_tools(firm: Place) -> None:
    def searches(task: Task, member: int) -> Script:
        yield render_call("search_keyword", {"keywords": [task.question]})
        yield render_call("submit", {"answer": task.answer, "evidence": ["0000"]})

    verdict, engine = read_one(firm, proposal(firm, 1), searches, EVIDENCE)
    assert verdict.refusal is Refusal.UNSUPPORTED
    assert {t.stop_reason for t in engine.played} == {StopReason.MAX_TURNS}
    assert all("there are no tools" in t.events[0].error for t in engine.played)


class Dead(EvidenceDesk):
    def hits(self, text: str, count: int, scope: MailScope | None) -> list[Document]:
        raise IndexUnavailable("down")


def test_what_could_not_be_read_is_unknown(firm: Place) -> None:
    dead = Dead(board(firm), two_groups().tools)
    verdict, engine = read_one(firm, proposal(firm, 1), reads_what_is_there(firm), CLOSED, EVIDENCE, desk=dead)
    assert (verdict.unknown, verdict.refusal, engine.rollouts) == (True, None, [])


class AwayJudge:
    def judge(self, question: str, answer: str, key: str) -> Verdict:
        raise Unavailable("no reply")


def test_what_nobody_could_judge_is_unknown(firm: Place) -> None:
    settings = two_groups(CLOSED)
    engine = ScriptedEngine(firm, firm.episode(settings), lambda task, _: submit(task.answer))
    desk = EvidenceDesk(board(firm), settings.tools)
    assert [v.unknown for v in read_questions(engine, desk, AwayJudge(), settings, 1, [proposal(firm, 1)])] == [True]


# --- in a step --------------------------------------------------------------------------------------------------------


def step(firm: Place, settings: Config, act: Act, where: Board | None = None) -> tuple[ScriptedEngine, StepReport]:
    engine = ScriptedEngine(firm, firm.episode(settings), act)
    return engine, train_step(engine, where or board(firm), JUDGE, settings, 1)


def asks_and_reads(firm: Place, read: Callable[[Task], Script]) -> Act:
    def act(task: Task, member: int) -> Script:
        if task.role is Role.PROPOSER:
            return true_proposal(firm, int(task.group_id[-1])).script() if member < 2 else mute()
        if task.without_tools:
            return read(task)
        return expert(firm, task) if member % 2 else guess()

    return act


def test_a_step_refuses_what_its_reader_refuses_and_never_trains_on_the_reading(firm: Place) -> None:
    first = true_proposal(firm, 0).question
    act = asks_and_reads(firm, lambda task: submit(task.answer) if task.question == first else mute())
    engine, report = step(firm, two_groups(CLOSED), act)
    assert report.metrics["proposals/refusal/closed_book"] == 2 / 8
    assert report.metrics["reader/closed_book"] == 0.5
    assert report.metrics["reader/unknown"] == 0.0
    assert report.seconds["read"] > 0
    solved = {task.question for tasks, _ in engine.rollouts for task in tasks if not task.without_tools}
    assert first not in solved - {""}
    assert all(not each.trajectory.task.without_tools for batch in engine.updates for each in batch)
    assert len(report.samples) == len([t for t in engine.played if not t.task.without_tools])


def test_an_unreadable_context_masks_the_proposal(firm: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EvidenceDesk, "hits", Dead.hits)
    _, report = step(firm, two_groups(EVIDENCE), asks_and_reads(firm, lambda _: mute()))
    assert report.metrics["reader/unknown"] == 1.0
    masked = [cast("dict[str, object]", record["reward"])["masked"] for record in report.samples]
    assert masked.count(True) == 4


def test_without_a_reader_a_step_is_what_it_was(firm: Place) -> None:
    engine, report = step(firm, two_groups(), asks_and_reads(firm, lambda _: mute()))
    assert len(engine.rollouts) == 2
    assert "read" not in report.seconds
    assert not any(name.startswith("reader/") for name in report.metrics)
