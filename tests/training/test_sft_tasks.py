"""What an episode is about, which decides the side of the split that it goes to."""

from __future__ import annotations

from dataclasses import replace

from sft_play import BOARD, tasks

from environments.task import Role
from training.sft_data.tasks import TaughtTask, entities_of

REAL = replace(BOARD, company=None)  # as if nobody knew the facts behind the mails


def proposer() -> TaughtTask:
    return next(one for one in tasks() if one.task.role is Role.PROPOSER)


def test_without_known_facts_a_question_is_about_what_it_names() -> None:
    about = entities_of(proposer(), ("0417",), "Where did Twin Quartz plan the kickoff of EB-3267?", REAL)
    assert {"twin quartz", "eb 3267", "mail 0417"} <= set(about)
    same = entities_of(proposer(), ("0933",), "Who owns Twin Quartz?", REAL)
    assert set(about) & set(same) == {"twin quartz"}


def test_with_known_facts_the_oracle_says_it() -> None:
    solver = next(one for one in tasks() if one.task.role is Role.SOLVER)
    about = entities_of(solver, (), solver.task.question, BOARD)
    assert about[: len(solver.entities)] == solver.entities
    assert entities_of(proposer(), (), solver.task.question, BOARD)[0] == solver.entities[0]


def test_a_questions_own_entities_stay_beside_what_it_names() -> None:
    solver = next(one for one in tasks() if one.task.role is Role.SOLVER)
    about = entities_of(solver, (), "Who owns Twin Quartz?", REAL)
    assert set(solver.entities) | {"twin quartz"} <= set(about)
