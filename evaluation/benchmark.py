"""A benchmark's questions as Solver tasks, and the files that an evaluation writes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from corpus_index.files import write_atomic
from environments.questions import Question
from environments.task import Task


class BenchmarkError(ValueError):
    """A stored evaluation that cannot be used as it is; the message names the file and the fault."""


def solver_tasks(questions: Sequence[Question]) -> list[Task]:
    """One Solver task a question, in order, each its own group."""
    return [question.task(f"eval/{question.id}") for question in questions]


def write_text(path: Path, text: str) -> None:
    """Atomic: the old file or the whole new one, whatever happens meanwhile."""
    # A mail may hold a lone surrogate; as \udXXX it stays valid JSON and reads back as it was.
    write_atomic(path, text.encode("utf-8", errors="backslashreplace"))
