from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from environments.questions import Question
from environments.task import Task
from environments.trajectory import StopReason, Submission, ToolEvent, Trajectory
from evaluation.benchmark import BenchmarkError
from evaluation.runner import (
    EvalResult,
    Row,
    accuracy_gain,
    benchmark_questions,
    evaluate,
    load_result,
    score,
    store_result,
    summarise,
)
from rewards.judge import Verdict
from training.engines.base import Sampling


class ExactJudge:
    def judge(self, question: str, answer: str, key: str) -> Verdict:
        assert question
        if answer == "perhaps":
            return Verdict.UNSURE
        return Verdict.RIGHT if answer == key else Verdict.WRONG


class ScriptedEngine:
    """Answers each question as told; only ``rollout`` is there, for evaluation must need no more."""

    def __init__(self, answers: dict[str, str]) -> None:
        self.answers = answers
        self.sampling: Sampling | None = None

    def rollout(self, tasks: Sequence[Task], sampling: Sampling) -> list[Trajectory]:
        self.sampling = sampling
        return [trajectory(task, answer=self.answers[task.question]) for task in tasks]


def question(number: int, hops: int = 1, entity: str = "e", evidence: tuple[str, ...] = ("m1", "m2")) -> Question:
    return Question(
        id=f"q{number}",
        question=f"question {number}",
        answer="yes",
        evidence=evidence,
        hops=hops,
        entity=entity,
        kind="k",
    )


def trajectory(task: Task | None = None, *, answer: str | None = "yes", **fields: Any) -> Trajectory:
    from environments.task import Role

    values: dict[str, Any] = {
        "uid": "u",
        "task": task or Task(role=Role.SOLVER, group_id="g"),
        "token_ids": (1, 2, 3, 4, 5),
        "loss_mask": (0, 1, 1, 0, 1),
        "logprobs": (0.0,) * 5,
        "stop_reason": StopReason.SUBMITTED if answer is not None else StopReason.MAX_TURNS,
        "policy_version": 0,
        "turn_starts": (1, 4),
        "submission": Submission(answer, ("m1",)) if answer is not None else None,
        "opened": ("m1", "m9"),
        "events": (ToolEvent(0, "read_mail", {}, "no such mail"), ToolEvent(0, "read_mail", {})),
    }
    return Trajectory(**(values | fields))


def row(number: int = 0, **fields: Any) -> Row:
    return replace(score(question(number), trajectory(), ExactJudge()), id=f"q{number}", **fields)


def test_a_row_counts_what_happened() -> None:
    found = score(question(0, evidence=("m1", "m2", "m3")), trajectory(), ExactJudge())
    assert found == Row(
        id="q0",
        hops=1,
        entity="e",
        kind="k",
        correct=True,
        verdict="right",
        answer="yes",
        evidence_recall=pytest.approx(1 / 3),
        cited_precision=1.0,
        cited_recall=pytest.approx(1 / 3),
        turns=2,
        sampled_tokens=3,
        tool_calls=2,
        tool_errors=1,
        stop_reason="submitted",
    )


@pytest.mark.parametrize(
    ("submission", "precision", "recall"),
    [
        (Submission("yes", ()), 0.0, 0.0),
        (Submission("yes", ("m2", "m2", "m1", "m7")), 2 / 3, 1.0),
        (Submission("yes", ("m7",)), 0.0, 0.0),
        (None, 0.0, 0.0),
    ],
)
def test_cited_mails(submission: Submission | None, precision: float, recall: float) -> None:
    found = score(question(0), trajectory(submission=submission), ExactJudge())
    assert (found.cited_precision, found.cited_recall) == pytest.approx((precision, recall))


@pytest.mark.parametrize(("answer", "verdict"), [("no", "wrong"), ("perhaps", "unsure"), (None, "")])
def test_only_right_is_correct(answer: str | None, verdict: str) -> None:
    found = score(question(0), trajectory(answer=answer), ExactJudge())
    assert (found.correct, found.verdict) == (False, verdict)


def test_evaluation_is_greedy_and_slices_by_hops() -> None:
    questions = [question(0, 1, "a"), question(1, 1, "b"), question(2, 2, "a"), question(3, 3, "c")]
    engine = ScriptedEngine({"question 0": "yes", "question 1": "no", "question 2": "yes", "question 3": "perhaps"})
    result = evaluate(engine, questions, ExactJudge())  # type: ignore[arg-type]
    assert engine.sampling is not None
    assert engine.sampling.greedy
    assert list(result.slices) == ["hops1", "hops2", "hops3", "overall"]
    assert {name: part.accuracy.mean for name, part in result.slices.items()} == {
        "hops1": 0.5,
        "hops2": 1.0,
        "hops3": 0.0,
        "overall": 0.5,
    }
    assert result.slices["overall"].accuracy.clusters == 3
    assert result.slices["hops3"].unsure_rate == 1.0
    metrics = result.metrics("val")
    assert metrics["val/hops1/accuracy"] == 0.5
    assert metrics["val/overall/evidence_recall"] == 0.5
    assert metrics["val/overall/tool_error_rate"] == 0.5
    assert metrics["val/overall/turns"] == 2.0
    assert metrics["val/overall/tokens"] == 3.0
    assert metrics["val/overall/submitted_rate"] == 1.0
    assert metrics["val/overall/accuracy_low"] <= 0.5 <= metrics["val/overall/accuracy_high"]
    assert all(math.isfinite(value) for value in metrics.values())


def test_faults_are_counted_and_left_out() -> None:
    fault = row(1, stop_reason="environment_fault", correct=False)
    result = summarise([row(0), fault, row(2, correct=False)])
    assert result.slices["overall"].accuracy.mean == 0.5
    assert (result.slices["overall"].questions, result.slices["overall"].faults) == (2, 1)
    with pytest.raises(ValueError, match="all 1 rollouts of hops1 ended in an environment fault"):
        summarise([fault])


def test_tool_errors_are_a_share_of_calls_not_of_rollouts() -> None:
    rows = [row(0, tool_calls=8, tool_errors=0), row(1, tool_calls=2, tool_errors=2)]
    assert summarise(rows).slices["overall"].tool_error_rate == 0.2
    assert summarise([row(0, tool_calls=0, tool_errors=0)]).slices["overall"].tool_error_rate == 0.0


def test_questions_without_an_entity_are_clusters_of_their_own() -> None:
    assert summarise([row(n, entity="") for n in range(5)]).slices["overall"].accuracy.clusters == 5


def test_gain_is_paired_by_question() -> None:
    before = summarise([row(n, entity=f"e{n}", correct=n < 2, hops=1 + n % 2) for n in range(8)])
    after = summarise([row(n, entity=f"e{n}", correct=n < 6, hops=1 + n % 2) for n in reversed(range(8))])
    gain = accuracy_gain(before, after, "overall")
    assert gain.mean == 0.5
    assert gain.low > 0
    assert (accuracy_gain(before, after, "hops2").mean, accuracy_gain(before, after, "hops2").count) == (0.5, 4)
    assert accuracy_gain(after, after, "overall").high == 0.0
    with pytest.raises(ValueError, match="share no question in hops3"):
        accuracy_gain(before, after, "hops3")


def test_a_stored_result_comes_back(tmp_path: Path) -> None:
    result = summarise([row(0, answer="\ud800 Ann"), row(1, correct=False, hops=2)])
    path = store_result(tmp_path, result, step=12, label="after")
    assert path == tmp_path / "eval" / "step_000012.json"
    assert load_result(path) == (12, "after", result)
    for broken in ("{", '{"step": 1}', '{"step": 1, "label": "x", "rows": [{"id": "q"}]}'):
        path.write_text(broken)
        with pytest.raises(BenchmarkError, match=r"step_000012\.json is not a stored evaluation"):
            load_result(path)


def test_refusals() -> None:
    with pytest.raises(ValueError, match="no questions"):
        evaluate(ScriptedEngine({}), [], ExactJudge())  # type: ignore[arg-type]

    class Short(ScriptedEngine):
        def rollout(self, tasks: Sequence[Task], sampling: Sampling) -> list[Trajectory]:
            return []

    with pytest.raises(ValueError, match="0 trajectories for 1 questions"):
        evaluate(Short({}), [question(0)], ExactJudge())  # type: ignore[arg-type]


@dataclass(frozen=True)
class Asked:
    question: str
    answer: str
    evidence: tuple[str, ...]
    entity: str
    chain: tuple[str, ...]

    @property
    def hops(self) -> int:
        return len(self.chain)


def test_company_questions_become_benchmark_questions() -> None:
    [made] = benchmark_questions([Asked("Where?", "B2", ("m1", "m2"), "Apollo", ("owner", "desk"))], prefix="bench")
    assert made == Question(
        id="bench-0000",
        question="Where?",
        answer="B2",
        evidence=("m1", "m2"),
        hops=2,
        entity="Apollo",
        kind="owner>desk",
    )


def test_a_result_is_a_value() -> None:
    assert summarise([row(0)]) == summarise([row(0)])
    assert isinstance(summarise([row(0)]), EvalResult)
