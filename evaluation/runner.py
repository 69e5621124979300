"""Runs a policy over a benchmark: one row a question, one slice by hop count and one over all."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from pydantic import TypeAdapter

from environments.questions import Question
from environments.trajectory import StopReason, Trajectory
from evaluation.benchmark import BenchmarkError, solver_tasks, write_text
from evaluation.stats import RESAMPLES, Interval, bootstrap_mean
from rewards.judge import Judge, Verdict
from training.engines.base import Engine, Sampling

GREEDY = Sampling(greedy=True)
OVERALL = "overall"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """How one question went. ``verdict`` is empty where nothing was submitted; an unsure judge counts as not correct.

    ``evidence_recall`` is the share of the needed mails that were opened; ``cited_*`` compare the cited mails with the
    needed ones (precision 0 where none was cited). A ``faulted`` row failed by no fault of the policy and is left out.
    """

    id: str
    hops: int
    entity: str
    kind: str
    correct: bool
    verdict: str
    answer: str
    evidence_recall: float
    cited_precision: float
    cited_recall: float
    turns: int
    sampled_tokens: int
    tool_calls: int
    tool_errors: int
    stop_reason: str

    @property
    def submitted(self) -> bool:
        return self.stop_reason == StopReason.SUBMITTED

    @property
    def faulted(self) -> bool:
        return self.stop_reason == StopReason.ENVIRONMENT_FAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Means over the rows that did not fault; rates are shares in [0, 1]; ``tool_error_rate``: errors / tool calls."""

    accuracy: Interval
    evidence_recall: float
    cited_precision: float
    cited_recall: float
    turns: float
    tokens: float
    tool_error_rate: float
    submitted_rate: float
    unsure_rate: float
    questions: int
    faults: int


@dataclass(frozen=True, slots=True)
class EvalResult:
    """``slices`` by name: ``hops1``, ``hops2``, ..., ``overall``."""

    rows: tuple[Row, ...]
    slices: Mapping[str, Slice]

    def metrics(self, prefix: str = "eval") -> dict[str, float]:
        """Flat: ``eval/hops2/accuracy``, with ``accuracy_low`` and ``accuracy_high`` (95 %), and so on."""
        flat: dict[str, float] = {}
        for name, part in self.slices.items():
            values = {**asdict(part), "accuracy": part.accuracy.mean}
            values |= {"accuracy_low": part.accuracy.low, "accuracy_high": part.accuracy.high}
            flat |= {f"{prefix}/{name}/{key}": float(value) for key, value in values.items()}
        return flat


def evaluate(
    engine: Engine,
    questions: Sequence[Question],
    judge: Judge,
    sampling: Sampling = GREEDY,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> EvalResult:
    """One Solver rollout a question. ``seed`` is the bootstrap's.

    Raises ValueError where there is no question, or where every rollout of a slice faulted: nothing was measured then.
    """
    if not questions:
        raise ValueError("no questions to evaluate; expected at least one")
    trajectories = engine.rollout(solver_tasks(questions), sampling)
    if len(trajectories) != len(questions):
        raise ValueError(f"the engine returned {len(trajectories)} trajectories for {len(questions)} questions")
    rows = [score(question, trajectory, judge) for question, trajectory in zip(questions, trajectories, strict=True)]
    return summarise(rows, resamples=resamples, seed=seed)


def score(question: Question, trajectory: Trajectory, judge: Judge) -> Row:
    submission = trajectory.submission
    verdict = None
    if submission is not None and trajectory.stop_reason is StopReason.SUBMITTED:
        verdict = judge.judge(question.question, submission.answer, question.answer)
    gold = set(question.evidence)
    cited = set(submission.evidence) if submission is not None else set[str]()
    return Row(
        id=question.id,
        hops=question.hops,
        entity=question.entity,
        kind=question.kind,
        correct=verdict is Verdict.RIGHT,
        verdict="" if verdict is None else verdict.name.lower(),
        answer="" if submission is None else submission.answer,
        evidence_recall=len(gold & set(trajectory.opened)) / len(gold),
        cited_precision=len(gold & cited) / len(cited) if cited else 0.0,
        cited_recall=len(gold & cited) / len(gold),
        turns=len(trajectory.turn_starts),
        sampled_tokens=trajectory.sampled_tokens,
        tool_calls=len(trajectory.events),
        tool_errors=sum(1 for event in trajectory.events if event.error),
        stop_reason=trajectory.stop_reason.value,
    )


def summarise(rows: Sequence[Row], *, resamples: int = RESAMPLES, seed: int = 0) -> EvalResult:
    """Accuracy with a 95 % bootstrap interval that draws entities, not questions: those of one entity hang together."""
    parts = {f"hops{hops}": [row for row in rows if row.hops == hops] for hops in sorted({row.hops for row in rows})}
    parts[OVERALL] = list(rows)
    slices = {name: _slice(name, part, resamples=resamples, seed=seed) for name, part in parts.items()}
    return EvalResult(rows=tuple(rows), slices=slices)


def accuracy_gain(before: EvalResult, after: EvalResult, name: str, *, seed: int = 0) -> Interval:
    """Mean of (after - before) over the questions of slice ``name`` that both answered without a fault, paired.

    Raises ValueError where the two share no such question.
    """
    old = {row.id: row for row in before.rows if not row.faulted}
    new = [row for row in after.rows if not row.faulted and row.id in old and name in (f"hops{row.hops}", OVERALL)]
    if not new:
        raise ValueError(f"the two results share no question in {name}; compare runs over the same benchmark")
    gains = [float(row.correct) - float(old[row.id].correct) for row in new]
    return bootstrap_mean(gains, clusters=[_cluster(row) for row in new], seed=seed)


def benchmark_questions(asked: Iterable[CompanyLike], prefix: str = "company") -> list[Question]:
    """Questions of a synthetic company as benchmark questions, numbered in order."""
    return [
        Question(
            id=f"{prefix}-{number:04d}",
            question=item.question,
            answer=item.answer,
            evidence=item.evidence,
            hops=item.hops,
            entity=item.entity,
            kind=">".join(item.chain),
        )
        for number, item in enumerate(asked)
    ]


def store_result(run_folder: Path, result: EvalResult, *, step: int, label: str = "") -> Path:
    """``eval/step_000123.json`` in the run folder: what the report and later comparisons read."""
    path = run_folder / "eval" / f"step_{step:06d}.json"
    stored = _Stored(step, label or f"step {step}", result.rows)
    write_text(path, json.dumps(asdict(stored), ensure_ascii=False, indent=1) + "\n")
    return path


def load_result(path: Path) -> tuple[int, str, EvalResult]:
    """Step, label and result. Raises BenchmarkError on a file that ``store_result`` did not write."""
    try:
        stored = _STORED.validate_python(json.loads(path.read_bytes()))
        return stored.step, stored.label, summarise(stored.rows)
    except ValueError as error:
        raise BenchmarkError(f"{path} is not a stored evaluation: {error}") from error


@dataclass(frozen=True, slots=True)
class _Stored:
    step: int
    label: str
    rows: tuple[Row, ...]


_STORED = TypeAdapter(_Stored)


class CompanyLike(Protocol):
    """What a synthetic company says about one of its questions; ``chain`` are the relations, first hop first."""

    @property
    def question(self) -> str: ...

    @property
    def answer(self) -> str: ...

    @property
    def evidence(self) -> tuple[str, ...]: ...

    @property
    def hops(self) -> int: ...

    @property
    def entity(self) -> str: ...

    @property
    def chain(self) -> tuple[str, ...]: ...


def _slice(name: str, rows: Sequence[Row], *, resamples: int, seed: int) -> Slice:
    valid = [row for row in rows if not row.faulted]
    if not valid:
        raise ValueError(f"all {len(rows)} rollouts of {name} ended in an environment fault; is the index reachable?")
    calls = sum(row.tool_calls for row in valid)
    return Slice(
        accuracy=bootstrap_mean(
            [float(row.correct) for row in valid],
            clusters=[_cluster(row) for row in valid],
            resamples=resamples,
            seed=seed,
        ),
        evidence_recall=_mean(row.evidence_recall for row in valid),
        cited_precision=_mean(row.cited_precision for row in valid),
        cited_recall=_mean(row.cited_recall for row in valid),
        turns=_mean(row.turns for row in valid),
        tokens=_mean(row.sampled_tokens for row in valid),
        tool_error_rate=sum(row.tool_errors for row in valid) / calls if calls else 0.0,
        submitted_rate=_mean(row.submitted for row in valid),
        unsure_rate=_mean(row.verdict == Verdict.UNSURE.name.lower() for row in valid),
        questions=len(valid),
        faults=len(rows) - len(valid),
    )


def _cluster(row: Row) -> str:
    """A question without an entity is a cluster of its own."""
    return f"entity {row.entity}" if row.entity else f"question {row.id}"


def _mean(values: Iterable[float]) -> float:
    numbers = [float(value) for value in values]
    return sum(numbers) / len(numbers)
