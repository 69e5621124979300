from __future__ import annotations

import random
from collections import Counter
from typing import get_args

import pytest
from sft_play import episode, rows, settings

from environments.chat_rows import ChatRow, text_messages
from environments.protocol import SUBMIT, ToolCall, parse
from environments.task import Role
from rewards.answers import mentions
from training.config_trajectories import Pattern
from training.sft_data.scenarios import play_pattern, play_scenarios
from training.sft_data.thoughts import calls_of, keeps_all, thoughts_of

PATTERNS = get_args(Pattern)


def call(text: str) -> ToolCall:
    action = parse(text)
    assert isinstance(action, ToolCall)
    return action


def added(before: ChatRow, after: ChatRow) -> list[tuple[str, str]]:
    """The extra calls with their results."""
    left = Counter(calls_of(before))
    found: list[tuple[str, str]] = []
    results = [m.content for m in after.messages if m.role == "tool"]
    for text, result in zip(calls_of(after), results, strict=False):
        if left[text]:
            left[text] -= 1
        else:
            found.append((text, result))
    return found


@pytest.mark.parametrize("pattern", PATTERNS)
def test_what_a_pattern_adds_is_real(pattern: Pattern) -> None:
    """Played again from its texts alone, the episode gives the same results, events and submission."""
    config = settings("env.limits.max_turns=12", "grpo.max_rollout_turns=12")
    wide = episode(config)
    pairs = [(row, play_pattern(row, pattern, wide, "think", random.Random(k))) for k, row in enumerate(rows())]
    fitting = [(before, after) for before, after in pairs if after is not None]
    assert len(fitting) >= (2 if pattern == "ask_missing" else 5)
    for before, after in fitting:
        turns = [message["content"] for message in text_messages(after) if message["role"] == "assistant"]
        state = wide.replay(before.task, turns)
        assert after.outline().events == state.events
        assert after.outline().submission == state.submission == before.outline().submission
        assert keeps_all(before, after)
        assert after.entities == before.entities
        extra = added(before, after)
        answer = after.outline().submission
        assert answer is not None
        if pattern == "ask_missing":
            assert extra == []
            assert thoughts_of(after) != thoughts_of(before)
            continue
        ((text, result),) = extra
        if pattern == "change_plan":
            assert not any(mail_id in result.split() for mail_id in answer.evidence)
        elif pattern == "compare":
            assert call(text).name == "read_mail"
            assert not mentions(result, answer.answer)
        elif pattern == "refine_query":
            assert call(text).name == "search_bool"
            following = calls_of(after)[calls_of(after).index(text) + 1]
            assert call(following).arguments["id"] in result
        else:
            assert call(calls_of(after)[-1]).name == SUBMIT
            assert any(mail_id in result for mail_id in answer.evidence)


def test_a_pattern_that_does_not_fit_leaves_the_row_alone() -> None:
    # Two searches, two mails, the submission: one more does not go into five turns.
    long = [row for row in rows() if row.task.hops == 2 and row.task.role is Role.SOLVER]
    tight = episode(settings("env.limits.max_turns=5", "grpo.max_rollout_turns=5"))
    assert all(play_pattern(row, "change_plan", tight, "think", random.Random(0)) is None for row in long)
    no_bool = settings("tools.enabled=[search_keyword, read_mail]")
    assert play_pattern(rows()[0], "refine_query", episode(no_bool), "think", random.Random(0)) is None


def test_a_corpus_that_answers_differently_is_noticed() -> None:
    """The rows' results are of another corpus than the one they are played on."""
    other = episode(settings("tools.max_hits=1"))
    drawn = [play_pattern(row, "verify", other, "think", random.Random(0)) for row in rows()]
    assert drawn == [None] * len(drawn)


def test_counts_say_what_fitted_and_the_draw_is_the_rows_own() -> None:
    patterns: list[Pattern | None] = [PATTERNS[k % 5] if k % 6 else None for k in range(len(rows()))]
    outcome = play_scenarios(rows(), patterns, episode(), "think", lambda row: True, 7)
    wanted = Counter(pattern for pattern in patterns if pattern is not None)
    for pattern in PATTERNS:
        assert outcome.notes[pattern] + outcome.notes[f"no_{pattern}"] == wanted[pattern]
        assert outcome.notes[pattern] == sum(row.labels.get("scenario") == pattern for row in outcome.rows)
    assert not outcome.dropped
    again = play_scenarios(rows()[3:], patterns[3:], episode(), "think", lambda row: True, 7)
    assert again.rows == outcome.rows[3:]
    short = play_scenarios(rows(), patterns, episode(), "think", lambda row: False, 7)
    assert short.rows == list(rows())
