from __future__ import annotations

from dataclasses import replace
from typing import Any

from sft_play import INDEX, rows

from environments.chat_rows import ChatMessage, ChatRow
from environments.task import Role
from rewards.judge import RuleJudge
from rewards.refusal import ProposerChecks
from training.config_trajectories import DeduplicateConfig
from training.sft_data.duplicates import deduplicate
from training.sft_data.filters import clean, correct
from training.sft_data.splitting import split
from training.sft_data.thoughts import thoughts_of, with_thoughts


def changed(row: ChatRow, **episode: Any) -> ChatRow:
    assert row.episode is not None
    return row.model_copy(update={"episode": row.episode.model_copy(update=episode)})


def reasons(given: list[ChatRow], grounded: bool = True) -> dict[str, int]:
    outcome = correct(given, judge=RuleJudge(), checks=ProposerChecks(), read=INDEX.read, grounded=grounded)
    assert len(outcome.rows) + outcome.dropped.total() == len(given)
    return dict(outcome.dropped)


def test_only_what_is_right_passes() -> None:
    solver = next(row for row in rows() if row.task.role is Role.SOLVER)
    proposer = next(row for row in rows() if row.task.role is Role.PROPOSER)
    said_ = solver.outline().submission
    asked = proposer.outline().submission
    assert said_ is not None
    assert asked is not None
    assert reasons([solver, proposer]) == {}
    assert reasons([changed(solver, submission=replace(said_, answer="Elm 99"))]) == {"wrong": 1}
    assert reasons([changed(solver, opened=())]) == {"ungrounded": 1}
    assert reasons([changed(solver, opened=())], grounded=False) == {}
    assert reasons([changed(solver, submission=None)]) == {"no_submission": 1}
    assert reasons([changed(proposer, submission=replace(asked, evidence=("none",)))]) == {"unknown_evidence": 1}


def test_only_what_is_written_as_the_policy_shall_write_passes() -> None:
    row = rows()[0]

    def reworded(old: str, new: str) -> ChatRow:
        messages = tuple(
            ChatMessage(role=m.role, content=m.content.replace(old, new)) if m.role == "assistant" else m
            for m in row.messages
        )
        assert messages != row.messages
        return row.model_copy(update={"messages": messages})

    def why(given: ChatRow, max_errors: int = 0, short: bool = True) -> dict[str, int]:
        return dict(clean([given], max_errors=max_errors, fits=lambda _: short).dropped)

    assert why(row) == {}
    one_error = (replace(row.outline().events[0], error="no hits"), *row.outline().events[1:])
    assert why(changed(row, events=one_error)) == {"tool_error": 1}
    assert why(changed(row, events=one_error), max_errors=1) == {}
    assert why(reworded('", "arguments"', '",  "arguments"')) == {"format": 1}
    assert why(reworded("</tool_call>", "</tool_call> bye")) == {"format": 1}
    assert why(reworded("<think>\n", "<think>\n<|im_end|>")) == {"markup": 1}
    assert why(row, short=False) == {"too_long": 1}


def test_equal_and_nearly_equal_episodes_are_one() -> None:
    first, other, *_ = [row for row in rows() if row.task.role is Role.SOLVER]
    thoughts = thoughts_of(first)
    again = first.model_copy(update={"id": "again"})
    nearly = with_thoughts(first, [*thoughts[:-1], thoughts[-1] + " Yes."], "think").model_copy(update={"id": "nearly"})
    # Another wording of the question, with nearly the same turns.
    assert nearly.episode is not None
    asked = nearly.episode.model_copy(update={"task": replace(first.task, question="What does the mail say?")})
    nearly = nearly.model_copy(update={"episode": asked})
    outcome = deduplicate([first, again, nearly, other], DeduplicateConfig(threshold=0.6))
    assert [row.id for row in outcome.rows] == [first.id, other.id]
    assert outcome.dropped == {"exact": 1, "near": 1}
    far = [f"{k} quite other words for the same, {thought} as one can say it" for k, thought in enumerate(thoughts)]
    varied = with_thoughts(first, far, "think").model_copy(update={"id": "varied"})
    assert deduplicate([first, varied], DeduplicateConfig()).dropped == {"exact": 1}  # the calls are the same


def test_no_entity_is_on_both_sides() -> None:
    def row(name: str, *entities: str) -> ChatRow:
        return ChatRow(id=name, messages=(ChatMessage(role="assistant", content="x"),), entities=entities)

    chain = [row(f"c{k}", f"e{k}", f"e{k + 1}") for k in range(30)]
    islands = [row(f"i{k}", f"x{k // 2}") for k in range(40)]
    for seed in range(20):
        outcome = split([*chain, *islands], 0.2, seed)
        sides: dict[str, set[str]] = {"train": set(), "held_out": set()}
        for kept in outcome.rows:
            sides[kept.labels["split"]].update(kept.entities)
        assert not sides["train"] & sides["held_out"]
        assert 10 <= outcome.notes["held_out"] <= 16
        assert outcome.notes["held_out"] + outcome.notes["train"] + outcome.dropped["straddles"] == 70
        assert outcome.dropped["straddles"] <= 2 * outcome.notes["held_out"]
    assert split(islands, 0.2, 1).dropped == {}
    assert split(islands, 0.2, 1) == split(islands, 0.2, 1) != split(islands, 0.2, 2)
    assert split(islands, 0.0, 1).notes == {"train": 40}
    assert split(islands, 1.0, 1).notes == {"held_out": 40}
