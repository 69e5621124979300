"""Roles whose outputs do not mirror each other."""

from __future__ import annotations

import pytest
from mail_fakes import FakeIndex, mail

from environments.apart import FINISH, heard, spoken
from environments.episode import Episode, EpisodeSettings
from environments.protocol import Malformed, ToolCall, parse, render_call
from environments.task import Role, Task
from environments.tools import ToolBox, ToolSettings
from environments.trajectory import StopReason, Submission

SUBMITTED = render_call("submit", {"answer": "Birch 12", "evidence": ["0001"]})
FINISHED = render_call(FINISH, {"sources": ["0001"], "final": "Birch 12"})


def episode(outputs: str) -> Episode:
    toolbox = ToolBox(FakeIndex([mail(1, "room", "Birch 12")]), ToolSettings(describe="none"))
    return Episode(toolbox, EpisodeSettings.model_validate({"prompt_style": "brief", "outputs": outputs}))


def task(role: Role) -> Task:
    return Task(role=role, group_id="g", question="Which room?", seed="0001 | room")


@pytest.mark.parametrize(("outputs", "text"), [("mirrored", SUBMITTED), ("apart", FINISHED)])
def test_each_form_hands_in_the_same(outputs: str, text: str) -> None:
    playing = episode(outputs)
    state, _ = playing.start(task(Role.SOLVER))
    observation, state = playing.step(state, text)
    assert observation.done
    assert state.submission == Submission("Birch 12", ("0001",))


@pytest.mark.parametrize(("outputs", "text"), [("mirrored", FINISHED), ("apart", SUBMITTED)])
def test_the_other_form_is_a_mistake_that_one_can_mend(outputs: str, text: str) -> None:
    playing = episode(outputs)
    state, _ = playing.start(task(Role.SOLVER))
    observation, state = playing.step(state, text)
    assert not observation.done
    assert observation.text.startswith("error: ")
    _, state = playing.step(state, FINISHED if outputs == "apart" else SUBMITTED)
    assert state.stop_reason is StopReason.SUBMITTED


def test_the_proposer_keeps_its_form() -> None:
    text = render_call("submit", {"question": "Which room is it?", "answer": "Birch 12", "evidence": ["0001"]})
    assert spoken(text, Role.PROPOSER, "apart") == text
    playing = episode("apart")
    state, _ = playing.start(task(Role.PROPOSER))
    _, state = playing.step(state, text)
    assert state.submission == Submission("Birch 12", ("0001",), "Which room is it?")


def test_what_is_spoken_is_heard_as_it_was_meant() -> None:
    assert spoken(SUBMITTED, Role.SOLVER, "apart") == FINISHED
    assert heard(parse(FINISHED), Role.SOLVER, "apart") == parse(SUBMITTED)
    for text in ("I do not know", render_call("read_mail", {"id": "0001"})):
        assert spoken(text, Role.SOLVER, "apart") == text
        assert heard(parse(text), Role.SOLVER, "apart") == parse(text)


def test_a_field_of_the_other_form_is_not_taken_for_its_own() -> None:
    """``answer`` inside ``finish`` would make two ways to say the same."""
    action = heard(parse(render_call(FINISH, {"answer": "x", "sources": ["0001"]})), Role.SOLVER, "apart")
    assert isinstance(action, ToolCall)
    assert set(action.arguments) == {"answer?", "evidence"}
    assert isinstance(heard(Malformed("no"), Role.SOLVER, "apart"), Malformed)
