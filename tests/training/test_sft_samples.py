from __future__ import annotations

import random
from dataclasses import replace
from itertools import islice

import pytest
from company_play import load, place

from environments.chat_rows import ChatMessage, ChatRow, row_of
from environments.protocol import render_call
from environments.trajectory import Trajectory
from training.experts import Habits, demonstrations
from training.seeds import seed_text
from training.sft.agentic import agentic_sample
from training.sft.general import OwnAnswer, row_of_answer
from training.sft.picture import sample_page
from training.sft.samples import Kind, Sample, count_kinds, render_counts, token_kinds

FIRM = place()
CHAT = FIRM.chat


def played(count: int = 12, slip: float = 0.0) -> list[Trajectory]:
    hops = {1: 0.5, 2: 0.5}
    stream = demonstrations(
        FIRM.company, FIRM.episode(load()), CHAT, random.Random(0), proposer_share=0.5, proposer_hops=hops,
        solver_hops=hops, seed_text=seed_text, habits=Habits(slip=slip),
    )  # fmt: skip
    return list(islice(stream, count))


def general(prompt: str = "why?", answer: str = "because") -> Sample:
    ids = CHAT.prompt_ids([{"role": "user", "content": prompt}])
    said = CHAT.turn_ids(answer)
    own = OwnAnswer(prompt=prompt, language="en", answer=answer, token_ids=(*ids, *said), prompt_tokens=len(ids))
    return own.sample(0)


def text_of(trajectory: Trajectory, kinds: list[Kind], kind: Kind) -> str:
    ids = [token for token, found in zip(trajectory.token_ids, kinds, strict=True) if found is kind]
    return str(CHAT.tokenizer.decode(ids, skip_special_tokens=False))


def test_every_token_has_the_kind_that_the_messages_say() -> None:
    for trajectory in played():
        kinds = token_kinds(trajectory, CHAT)
        tools = [message["content"] for message in trajectory.messages if message["role"] == "tool"]
        turns = [message["content"] for message in trajectory.messages if message["role"] == "assistant"]
        assert text_of(trajectory, kinds, Kind.RESULT) == "".join(tools)
        assert text_of(trajectory, kinds, Kind.SUBMISSION) == f"{turns[-1]}<|im_end|>"
        assert text_of(trajectory, kinds, Kind.CALL) == "".join(f"{turn}<|im_end|>" for turn in turns[:-1])
        assert Kind.REASONING not in kinds  # these experts do not think aloud
        trained = {kind for kind, mask in zip(kinds, trajectory.loss_mask, strict=True) if mask}
        assert trained <= {Kind.CALL, Kind.SUBMISSION}


def test_reasoning_ends_where_the_call_begins() -> None:
    first = played(1)[0]
    thought = "<think>\nÜber 10 % of it, <b>so</b> 探す\n</think>\n\n"
    messages = tuple(
        message | {"content": thought + message["content"]} if message["role"] == "assistant" else message
        for message in first.messages
    )
    row = row_of(replace(first, messages=messages))
    sample = agentic_sample(row, CHAT)
    kinds = token_kinds(sample.trajectory, CHAT)
    turns = sum(message["role"] == "assistant" for message in messages)
    assert text_of(sample.trajectory, kinds, Kind.REASONING) == thought * turns
    assert all(
        mask == (kind in (Kind.REASONING, Kind.CALL, Kind.SUBMISSION))
        for kind, mask in zip(kinds, sample.trajectory.loss_mask, strict=True)
    )


def test_a_slip_is_shown_and_not_trained() -> None:
    slipped = [trajectory for trajectory in played(40, slip=0.5) if Kind.SLIP in token_kinds(trajectory, CHAT)]
    assert slipped
    for trajectory in slipped:
        kinds = token_kinds(trajectory, CHAT)
        assert not any(mask for kind, mask in zip(kinds, trajectory.loss_mask, strict=True) if kind is Kind.SLIP)
        assert sum(kind is not Kind.SLIP for kind in kinds) < len(kinds)


def test_messages_of_another_episode_are_noticed() -> None:
    first, second = played(2)
    with pytest.raises(ValueError, match="not of one episode"):
        token_kinds(replace(first, messages=second.messages), CHAT)


def test_the_read_back_counts_every_token_once() -> None:
    samples = [*(Sample(trajectory, "agentic", "en") for trajectory in played()), general()]
    counts = count_kinds(samples, CHAT)
    for name in ("general", "agentic"):
        mine = [sample.trajectory for sample in samples if sample.source == name]
        assert sum(trained for trained, _ in counts[name].values()) == sum(t.sampled_tokens for t in mine)
        assert sum(map(sum, counts[name].values())) == sum(len(t.token_ids) for t in mine)
    assert set(counts["general"]) == {Kind.PROMPT, Kind.ANSWER}
    assert counts["general"][Kind.ANSWER] == (len("because") + 1, 0)  # byte by byte, and the end of the turn
    assert (
        counts["agentic"][Kind.RESULT][0] == counts["agentic"][Kind.GLUE][0] == counts["agentic"][Kind.PROMPT][0] == 0
    )
    assert "| general | answer | 8 | 0 |" in render_counts(counts)


def test_the_page_shows_what_is_trained_and_escapes_what_others_wrote() -> None:
    attack = "<script>alert(1)</script>\x1b[2J"
    page = sample_page(general(attack, attack), CHAT)
    assert "<script>" not in page
    assert "\x1b" not in page
    assert page.count("&lt;script&gt;") == 2
    assert '<span class="answer" title="answer">&lt;script&gt;' in page
    assert '<span class="masked" title="prompt">' in page
    call = sample_page(Sample(played(1)[0], "agentic"), CHAT)
    assert 'class="call"' in call
    assert 'class="masked" title="tool result"' in call


def test_rows_and_answers_are_the_same_conversation() -> None:
    sample = general("why?", "because")
    row = row_of_answer(sample)
    assert row.labels == {"set": "general", "language": "en"}
    assert [message.role for message in row.messages] == ["user", "assistant"]
    trajectory = played(1)[0]
    again = agentic_sample(row_of(trajectory, labels={"language": "ja"}), CHAT)
    assert again.language == "ja"
    assert again.trajectory.token_ids == trajectory.token_ids
    assert again.trajectory.loss_mask == trajectory.loss_mask


def test_a_turn_without_a_call_is_reasoning() -> None:
    call = render_call("submit", {"answer": "x", "evidence": ["1"]})
    messages = [("system", "s"), ("user", "u"), ("assistant", "I wonder."), ("tool", "error"), ("assistant", call)]
    first = played(1)[0]
    row = row_of(first).model_copy(
        update={"messages": tuple(ChatMessage(role=role, content=text) for role, text in messages)}  # type: ignore[arg-type]
    )
    assert isinstance(row, ChatRow)
    trajectory = agentic_sample(row, CHAT).trajectory
    assert text_of(trajectory, token_kinds(trajectory, CHAT), Kind.REASONING) == "I wonder.<|im_end|>"
