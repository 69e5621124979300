from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from corpus_index.scope import MailScope
from environments.questions import Question, QuestionFileError, load_questions, save_questions
from environments.task import Role

RECORD = {
    "id": "q1",
    "question": "Who?",
    "answer": "Ann",
    "evidence": ["m1"],
    "hops": 1,
    "entity": "Ann",
    "kind": "owner",
}


def question(**fields: Any) -> Question:
    return Question(**({**RECORD, "evidence": ("m1",)} | fields))


text = st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)  # line separators, too
scopes = st.none() | st.builds(
    MailScope,
    mailboxes=st.lists(text, max_size=2).map(tuple),
    after=st.none() | st.integers(0, 10**9).map(lambda seconds: datetime.fromtimestamp(seconds, UTC)),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50)
@given(
    st.lists(st.tuples(text, text, st.lists(text, min_size=1).map(tuple), st.integers(1, 5), scopes), min_size=1),
)
def test_what_is_saved_is_loaded(
    tmp_path: Path, parts: list[tuple[str, str, tuple[str, ...], int, MailScope | None]]
) -> None:
    questions = [
        question(id=f"q{n}", question=q, answer=a, evidence=e, hops=h, scope=s, seed=n, generator="graph")
        for n, (q, a, e, h, s) in enumerate(parts)
    ]
    save_questions(tmp_path / "set.jsonl", questions)
    assert load_questions(tmp_path / "set.jsonl") == questions


def test_what_utf8_cannot_carry_is_replaced_before_it_is_saved(tmp_path: Path) -> None:
    save_questions(tmp_path / "set.jsonl", [question(question="Who is \ud800?")])
    assert load_questions(tmp_path / "set.jsonl")[0].question == "Who is ??"


def test_a_plain_benchmark_file_needs_no_new_field(tmp_path: Path) -> None:
    path = tmp_path / "set.jsonl"
    path.write_text(json.dumps(RECORD) + "\n\n" + json.dumps(RECORD | {"id": "q2"}))
    assert [(q.id, q.generator, q.scope) for q in load_questions(path)] == [("q1", "", None), ("q2", "", None)]


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "set.jsonl"
    save_questions(path, [question()])
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("corpus_index.files.os.fsync", full)  # the data is written beside, then the disk refuses
    with pytest.raises(OSError, match="No space"):
        save_questions(path, [question(id="q2")])
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_the_solvers_task_shows_the_question_and_carries_the_key() -> None:
    scope = MailScope(mailboxes=("ann",))
    task = question(hops=2, evidence=("m1", "m2"), scope=scope).task("eval/q1", tool_variant=3)
    assert (task.role, task.group_id, task.question, task.tool_variant) == (Role.SOLVER, "eval/q1", "Who?", 3)
    assert (task.answer, task.evidence, task.hops, task.scope) == ("Ann", ("m1", "m2"), 2, scope)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", r"line 2: .*EOF while parsing"),
        ("[1]", r"line 2: .*should be an object"),
        (json.dumps({"id": "q2"}), r"line 2: question: Field required; answer: Field required; evidence"),
        (json.dumps(RECORD | {"id": "q2", "extra": 1}), r"line 2: extra: Extra inputs are not permitted"),
        (json.dumps(RECORD | {"id": "q2", "hops": "2"}), r"line 2: hops: .*integer, got '2'"),
        (json.dumps(RECORD | {"id": "q2", "hops": True}), r"line 2: hops: .*integer, got 'True'"),
        (json.dumps(RECORD | {"id": "q2", "hops": 0}), r"line 2: hops: .*greater than or equal to 1, got '0'"),
        (json.dumps(RECORD | {"id": "q2", "evidence": "m1"}), r"line 2: evidence: .*got 'm1'"),
        (json.dumps(RECORD | {"id": "q2", "evidence": ["m", 1]}), r"line 2: evidence\.1: .*string, got '1'"),
        (json.dumps(RECORD | {"id": "q2", "evidence": []}), r"line 2: evidence: .*at least 1"),
        (json.dumps(RECORD | {"id": "q2", "answer": " "}), r"line 2: answer: .*is empty"),
        (json.dumps(RECORD | {"id": "q2", "answer": 7}), r"line 2: answer: .*string, got '7'"),
        (json.dumps(RECORD | {"id": "q2", "scope": {"mailbox": ["a"]}}), r"line 2: scope\.mailbox: Extra inputs"),
        (json.dumps(RECORD), r"line 2: id 'q1' was used on line 1"),
    ],
)
def test_a_broken_line_and_its_field_are_named(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "set.jsonl"
    path.write_text(json.dumps(RECORD) + "\n" + line + "\n")
    with pytest.raises(QuestionFileError, match=message):
        load_questions(path)


def test_an_empty_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "set.jsonl"
    path.write_text("\n")
    with pytest.raises(QuestionFileError, match="holds no questions"):
        load_questions(path)
