from __future__ import annotations

from environments.questions import Question
from evaluation.benchmark import solver_tasks


def test_every_question_is_a_group_of_its_own() -> None:
    asked = [Question(id=f"q{n}", question="Who?", answer="Ann", evidence=("m1",), hops=1) for n in range(2)]
    tasks = solver_tasks(asked)
    assert [task.group_id for task in tasks] == ["eval/q0", "eval/q1"]
    assert [task.question for task in tasks] == ["Who?", "Who?"]
