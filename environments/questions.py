"""A file of questions with their keys, one JSON object a line. Benchmarks and built training data share the format."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from corpus_index.document import encodable
from corpus_index.scope import MailScope
from environments.json_lines import LineFileError, read_lines, save_lines
from environments.task import Role, Task


class QuestionFileError(LineFileError):
    """A file of questions that cannot be used as it is; the message names the file, the line and the field."""


def _carried(text: object) -> object:
    return encodable(text) if isinstance(text, str) else text  # a mail may hold a lone surrogate, JSON in UTF-8 not


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty")
    return text


Text = Annotated[str, BeforeValidator(_carried)]
Said = Annotated[Text, AfterValidator(_not_blank)]


class Question(BaseModel):
    """``evidence`` are the ids of the mails that the answer needs, ``hops`` how many steps lead to it.

    The other fields are optional. ``entity`` is what the question is about: questions of one entity form a cluster.
    ``kind`` is a free label of the pattern. ``generator``, ``corpus`` (the source it was asked of), ``fingerprint``
    (``corpus_fingerprint``) and ``seed`` say where it comes from. A Solver sees only the mails of ``scope``; None: all.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    id: Said
    question: Said
    answer: Said
    evidence: Annotated[tuple[Said, ...], Field(min_length=1)]
    hops: Annotated[int, Field(ge=1)]
    entity: Text = ""
    kind: Text = ""
    generator: Text = ""
    corpus: Text = ""
    fingerprint: Text = ""
    seed: int = 0
    scope: MailScope | None = None

    def task(self, group_id: str, tool_variant: int = 0) -> Task:
        """The Solver's task: it is shown the question and never the key."""
        return Task(
            role=Role.SOLVER,
            group_id=group_id,
            hops=self.hops,
            question=self.question,
            answer=self.answer,
            evidence=self.evidence,
            tool_variant=tool_variant,
            scope=self.scope,
        )


def corpus_fingerprint(ids: Iterable[str]) -> str:
    """16 hex digits that tell corpora apart by the ids of their mails, in whatever order."""
    digest = hashlib.sha256()
    for mail_id in sorted(ids):
        digest.update(mail_id.encode() + b"\n")
    return digest.hexdigest()[:16]


def load_questions(path: Path) -> list[Question]:
    """Raises QuestionFileError on a broken line, a wrong, missing or unknown field, an id that occurs twice, and for a
    file without any question; OSError where it cannot be read."""
    questions: list[Question] = []
    line_of_id: dict[str, int] = {}
    for number, question in read_lines(path, Question, QuestionFileError):
        if question.id in line_of_id:
            first = line_of_id[question.id]
            raise QuestionFileError(f"{path}, line {number}: id {question.id!r} was used on line {first} already")
        line_of_id[question.id] = number
        questions.append(question)
    if not questions:
        raise QuestionFileError(f"{path} holds no questions; expected one JSON object a line")
    return questions


def save_questions(path: Path, questions: Iterable[Question]) -> None:
    """Written beside the target and moved into place, so no reader sees half a file. Defaults are left out."""
    save_lines(path, questions)
