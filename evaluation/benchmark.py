"""A benchmark is a file of questions with their keys, one JSON object a line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import cast

from environments.task import Role, Task
from training.samples import write_atomic


class BenchmarkError(ValueError):
    """A benchmark file that cannot be used as it is; the message names the file, the line and the fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """``evidence`` are the ids of the mails that the answer needs, ``hops`` how many steps lead to it.

    ``entity`` is what the question is about: questions of one entity form a cluster. ``kind`` is a free label.
    """

    id: str
    question: str
    answer: str
    evidence: tuple[str, ...]
    hops: int
    entity: str
    kind: str

    def __post_init__(self) -> None:
        for name in ("id", "question", "answer"):
            if not getattr(self, name).strip():
                raise BenchmarkError(f"question {self.id!r}: {name} is empty")
        if not self.evidence:
            raise BenchmarkError(f"question {self.id!r}: evidence is empty; expected the ids of the mails it needs")
        if self.hops < 1:
            raise BenchmarkError(f"question {self.id!r}: hops is {self.hops}; expected 1 or more")


_TEXT = ("id", "question", "answer", "entity", "kind")
_FIELDS = tuple(field.name for field in fields(Question))


def load_questions(path: Path) -> list[Question]:
    """Raises BenchmarkError on a broken line, a wrong or missing field, or an id that occurs twice."""
    questions: list[Question] = []
    line_of_id: dict[str, int] = {}
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            where = f"{path}, line {number}"
            try:
                question = _question(json.loads(line))
            except (json.JSONDecodeError, BenchmarkError) as error:
                raise BenchmarkError(f"{where}: {error}") from error
            if question.id in line_of_id:
                raise BenchmarkError(f"{where}: id {question.id!r} was used on line {line_of_id[question.id]} already")
            line_of_id[question.id] = number
            questions.append(question)
    if not questions:
        raise BenchmarkError(f"{path} holds no questions; expected one JSON object a line")
    return questions


def save_questions(path: Path, questions: Sequence[Question]) -> None:
    """Written beside the target and moved into place, so that a reader never sees half a file."""
    lines = [json.dumps(asdict(question), ensure_ascii=False) for question in questions]
    write_text(path, "".join(line + "\n" for line in lines))


def solver_tasks(questions: Sequence[Question]) -> list[Task]:
    """One Solver task a question, in order, each its own group."""
    return [
        Task(
            role=Role.SOLVER,
            group_id=f"eval/{question.id}",
            hops=question.hops,
            question=question.question,
            answer=question.answer,
            evidence=question.evidence,
        )
        for question in questions
    ]


def write_text(path: Path, text: str) -> None:
    """Atomic: the old file or the whole new one, whatever happens meanwhile."""
    # A mail may hold a lone surrogate; as \udXXX it stays valid JSON and reads back as it was.
    write_atomic(path, text.encode("utf-8", errors="backslashreplace"))


def _question(raw: object) -> Question:
    if not isinstance(raw, dict):
        raise BenchmarkError(f"expected a JSON object, got {type(raw).__name__}")
    record = cast("dict[str, object]", raw)
    missing = [name for name in _FIELDS if name not in record]
    extra = sorted(set(record) - set(_FIELDS))
    if missing or extra:
        raise BenchmarkError(f"missing fields {missing}, unknown fields {extra}; expected exactly {list(_FIELDS)}")
    for name in _TEXT:
        if not isinstance(record[name], str):
            raise BenchmarkError(f"{name} is {record[name]!r}; expected text")
    hops, evidence = record["hops"], record["evidence"]
    if isinstance(hops, bool) or not isinstance(hops, int):
        raise BenchmarkError(f"hops is {hops!r}; expected a whole number")
    if not isinstance(evidence, list) or not all(isinstance(item, str) for item in cast("list[object]", evidence)):
        raise BenchmarkError(f"evidence is {evidence!r}; expected a list of mail ids")
    text = {name: cast("str", record[name]) for name in _TEXT}
    return Question(**text, hops=hops, evidence=tuple(cast("list[str]", evidence)))
