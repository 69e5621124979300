from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from environments.task import Role
from evaluation.benchmark import BenchmarkError, Question, load_questions, save_questions, solver_tasks

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


text = st.text(alphabet=st.characters(), min_size=1).filter(str.strip)  # surrogates and line separators, too


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.tuples(text, text, st.lists(text, min_size=1).map(tuple), st.integers(1, 5)), min_size=1))
def test_what_is_saved_is_loaded(tmp_path: Path, parts: list[tuple[str, str, tuple[str, ...], int]]) -> None:
    questions = [question(id=f"q{n}", question=q, answer=a, evidence=e, hops=h) for n, (q, a, e, h) in enumerate(parts)]
    save_questions(tmp_path / "set.jsonl", questions)
    assert load_questions(tmp_path / "set.jsonl") == questions


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "set.jsonl"
    save_questions(path, [question()])
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("training.samples.os.fsync", full)  # the data is written beside, then the disk refuses
    with pytest.raises(OSError, match="No space"):
        save_questions(path, [question(id="q2")])
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_tasks_show_the_question_and_carry_the_key() -> None:
    [task] = solver_tasks([question(hops=2, evidence=("m1", "m2"))])
    assert (task.role, task.group_id, task.question) == (Role.SOLVER, "eval/q1", "Who?")
    assert (task.answer, task.evidence, task.hops) == ("Ann", ("m1", "m2"), 2)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", r"line 2: Expecting"),
        ("[1]", r"line 2: expected a JSON object, got list"),
        (json.dumps({"id": "q2"}), r"line 2: missing fields \['question', 'answer'"),
        (json.dumps(RECORD | {"id": "q2", "extra": 1}), r"line 2: .*unknown fields \['extra'\]"),
        (json.dumps(RECORD | {"id": "q2", "hops": "2"}), r"line 2: hops is '2'; expected a whole number"),
        (json.dumps(RECORD | {"id": "q2", "hops": True}), r"line 2: hops is True"),
        (json.dumps(RECORD | {"id": "q2", "hops": 0}), r"line 2: .*hops is 0; expected 1 or more"),
        (json.dumps(RECORD | {"id": "q2", "evidence": "m1"}), r"line 2: evidence is 'm1'; expected a list"),
        (json.dumps(RECORD | {"id": "q2", "evidence": [1]}), r"line 2: evidence is \[1\]"),
        (json.dumps(RECORD | {"id": "q2", "evidence": []}), r"line 2: .*evidence is empty"),
        (json.dumps(RECORD | {"id": "q2", "answer": " "}), r"line 2: .*answer is empty"),
        (json.dumps(RECORD | {"id": "q2", "answer": 7}), r"line 2: answer is 7; expected text"),
        (json.dumps(RECORD), r"line 2: id 'q1' was used on line 1"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "set.jsonl"
    path.write_text(json.dumps(RECORD) + "\n" + line + "\n")
    with pytest.raises(BenchmarkError, match=message):
        load_questions(path)


def test_an_empty_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "set.jsonl"
    path.write_text("\n")
    with pytest.raises(BenchmarkError, match="holds no questions"):
        load_questions(path)
