"""Sampling token by token: caches, slots, prompts shared between rows, and how trajectories end."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_policy as tiny
import torch
from hypothesis import given
from hypothesis import strategies as st

from environments.chat_format import ChatFormat
from environments.task import Role, Task
from environments.trajectory import StopReason, Trajectory
from training.engines.base import Sampling
from training.engines.batching import length_batches, pad
from training.engines.generation import GenerationLimits, generate
from training.engines.sampling import draw, uniforms
from training.engines.slot_cache import SlotCache


@pytest.fixture(scope="module", params=["qwen3", "llama"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_model(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return tiny.policy(tiny.config(tiny.write_model(tmp_path_factory.mktemp("qwen"))))


def run(
    policy: Any,
    tasks: list[Task],
    *,
    seed: int = 1,
    greedy: bool = False,
    temperature: float = 1.0,
    **limits: int,
) -> list[Trajectory]:
    episode: Any = tiny.ScriptedEpisode([])
    return generate(
        policy,
        tasks,
        episode=episode,
        chat=ChatFormat(policy.tokenizer),
        sampling=Sampling(seed=seed, greedy=greedy, temperature=temperature),
        limits=GenerationLimits(**{"slots": 4, "max_new_tokens": 10, "max_total_tokens": 256} | limits),
        policy_version=7,
    )


def test_cached_logits_equal_a_full_forward_pass(folder: Path) -> None:
    policy = tiny.policy(tiny.config(folder))
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, tiny.VOCABULARY, (3, 40), generator=generator)
    cache = SlotCache(3)

    def forward(ids: torch.Tensor, starts: list[int], rows: list[int] | None) -> torch.Tensor:
        positions = torch.tensor(starts)[:, None] + torch.arange(ids.shape[1])
        allowed = cache.aim(positions, None if rows is None else torch.tensor(rows))
        mask = torch.zeros(allowed.shape).masked_fill(~allowed, torch.finfo(torch.float32).min)
        return policy.logits(
            policy.features(ids, position_ids=positions, attention_mask=mask, past_key_values=cache, use_cache=True)
        )

    with torch.inference_mode():
        whole = policy.model(input_ids=ids).logits
        # Row 2 is written first and alone, rows 0 and 1 in ragged chunks, then all decode at their own places.
        forward(ids[2:, :20], [0], [2])
        forward(torch.stack([ids[0, :8], ids[1, :8]]), [0, 0], [0, 1])
        chunk = forward(torch.stack([ids[0, 8:20], torch.cat([ids[1, 8:13], ids.new_zeros(7)])]), [8, 8], [0, 1])
        assert torch.allclose(chunk[0], whole[0, 8:20], atol=1e-4)
        assert torch.allclose(chunk[1, :5], whole[1, 8:13], atol=1e-4)
        starts = [20, 13, 20]
        for step in range(10):
            at = [start + step for start in starts]
            logits = forward(torch.stack([ids[row, place] for row, place in enumerate(at)])[:, None], at, None)
            for row, place in enumerate(at):
                assert torch.allclose(logits[row, 0], whole[row, place], atol=1e-4), (row, place)


def test_recorded_ids_and_logprobs_are_those_of_the_model_on_its_own_prefix(folder: Path) -> None:
    policy = tiny.policy(tiny.config(folder))
    for trajectory in run(policy, tiny.tasks()):
        with torch.inference_mode():
            logits = policy.model(input_ids=torch.tensor([trajectory.token_ids])).logits[0].double()
        expected = torch.log_softmax(logits, dim=-1)
        for place, (token, mask, logprob) in enumerate(
            zip(trajectory.token_ids, trajectory.loss_mask, trajectory.logprobs, strict=True)
        ):
            assert logprob == (pytest.approx(float(expected[place - 1, token]), abs=1e-4) if mask else 0.0)


def test_replaying_the_random_numbers_gives_the_sampled_ids(qwen: Any) -> None:
    """Token in, token out: each masked-in id is the one drawn from the ids before it, decoding never intervenes."""
    chat = ChatFormat(qwen.tokenizer)
    tasks = tiny.tasks(groups=2, members=2)
    for place, trajectory in enumerate(run(qwen, tasks, seed=5)):
        ids, start = list(trajectory.token_ids), trajectory.turn_starts[0]
        _, messages = tiny.ScriptedEpisode([]).start(trajectory.task)
        assert ids[:start] == chat.prompt_ids(messages)
        numbers = iter(uniforms(5, trajectory.group_id, place % 2, 256 - start))
        with torch.inference_mode():
            logits = qwen.model(input_ids=torch.tensor([ids])).logits[0].double()
        for index, mask in enumerate(trajectory.loss_mask):
            if mask:
                cumulated = torch.softmax(logits[index - 1], dim=-1).cumsum(0)
                number = next(numbers)
                below = float(cumulated[ids[index] - 1]) if ids[index] else 0.0
                assert below - 1e-5 <= number <= float(cumulated[ids[index]]) + 1e-5


def test_observations_are_spliced_in_as_ids(qwen: Any) -> None:
    chat = ChatFormat(qwen.tokenizer)
    for trajectory in run(qwen, tiny.tasks(groups=1, members=3, turns=3)):
        rebuilt = list(trajectory.token_ids[: trajectory.turn_starts[0]])
        spoken = [m["content"] for m in trajectory.messages if m["role"] == "assistant"]
        results = [m["content"] for m in trajectory.messages if m["role"] == "tool"]
        for turn, start in enumerate(trajectory.turn_starts):
            end = start
            while end < len(trajectory.token_ids) and trajectory.loss_mask[end]:
                end += 1
            ids = trajectory.token_ids[start:end]
            assert len(ids) <= 10
            assert chat.text(ids) == spoken[turn]
            rebuilt += ids
            if turn < len(results):
                rebuilt += chat.observation_ids(results[turn], ended=chat.ended(ids))
        assert rebuilt == list(trajectory.token_ids)


def test_the_number_of_slots_changes_nothing(folder: Path) -> None:
    policy = tiny.policy(tiny.config(folder))
    tasks = tiny.tasks(groups=4, members=3)
    alone = run(policy, tasks, slots=1)
    for slots in (2, 4, 64):
        together = run(policy, tasks, slots=slots)
        assert [t.token_ids for t in together] == [t.token_ids for t in alone]
        assert [t.uid for t in together] == [t.uid for t in alone]
        for one, other in zip(alone, together, strict=True):
            assert np.allclose(one.logprobs, other.logprobs, atol=1e-4)


def test_a_group_is_sampled_alike_whatever_runs_beside_it(qwen: Any) -> None:
    tasks = tiny.tasks(groups=3, members=2)
    everything = run(qwen, tasks)
    alone = run(qwen, tasks[2:4])
    assert [t.token_ids for t in alone] == [t.token_ids for t in everything[2:4]]


def test_members_of_a_group_and_seeds_differ(qwen: Any) -> None:
    tasks = tiny.tasks(groups=1, members=4)
    first, again, other = (run(qwen, tasks, seed=seed) for seed in (1, 1, 2))
    assert len({t.token_ids for t in first}) == 4
    assert len({t.uid for t in first}) == 4
    assert [t.token_ids for t in first] == [t.token_ids for t in again]
    assert not {t.token_ids for t in first} & {t.token_ids for t in other}


def test_greedy_takes_the_most_likely_token_and_ignores_the_seed(qwen: Any) -> None:
    tasks = tiny.tasks(groups=2, members=2, turns=2)
    first, other = run(qwen, tasks, seed=1, greedy=True), run(qwen, tasks, seed=9, greedy=True, slots=2)
    assert [t.token_ids for t in first] == [t.token_ids for t in other]
    assert first[0].token_ids == first[1].token_ids
    for trajectory in first:
        with torch.inference_mode():
            best = qwen.model(input_ids=torch.tensor([trajectory.token_ids])).logits[0].argmax(dim=-1)
        for place, mask in enumerate(trajectory.loss_mask):
            assert not mask or trajectory.token_ids[place] == best[place - 1]


@pytest.mark.parametrize("chunk", [3, 16, 512])
def test_small_prefill_chunks_change_nothing(qwen: Any, chunk: int) -> None:
    tasks = tiny.tasks(groups=2, members=2)
    assert [t.token_ids for t in run(qwen, tasks, chunk=chunk, prefill_tokens=64)] == [
        t.token_ids for t in run(qwen, tasks)
    ]


def test_a_full_context_ends_the_episode(qwen: Any) -> None:
    tasks = tiny.tasks(groups=2, members=3, turns=50)
    for trajectory in run(qwen, tasks, max_total_tokens=150):
        assert trajectory.stop_reason is StopReason.MAX_TOKENS
        assert len(trajectory.token_ids) <= 150
        assert trajectory.loss_mask[-1] == 1  # no observation that nobody could answer
        assert trajectory.policy_version == 7


def test_a_turn_that_fills_the_context_is_not_stepped(qwen: Any) -> None:
    episode = tiny.ScriptedEpisode([])
    task = tiny.tasks(groups=1, members=1)[0]
    chat = ChatFormat(qwen.tokenizer)
    prompt = len(chat.prompt_ids(episode.start(task)[1]))
    loose: Any = episode
    limits = GenerationLimits(slots=1, max_new_tokens=100, max_total_tokens=prompt + 5)
    sampling = Sampling(seed=3)
    (only,) = generate(qwen, [task], episode=loose, chat=chat, sampling=sampling, limits=limits, policy_version=0)
    assert (len(only.token_ids), only.stop_reason, episode.seen) == (prompt + 5, StopReason.MAX_TOKENS, [])


def test_a_prompt_without_room_is_refused(qwen: Any) -> None:
    with pytest.raises(ValueError, match=r"raise policy\.max_total_sequence_length"):
        run(qwen, tiny.tasks(), max_total_tokens=20)
    with pytest.raises(ValueError, match="temperature"):
        run(qwen, tiny.tasks(), temperature=0.0)


def test_an_end_of_turn_token_ends_the_turn_and_is_trained(qwen: Any) -> None:
    """A head that always answers with the end-of-turn token: each turn is that one token."""
    chat = ChatFormat(qwen.tokenizer)

    class AlwaysEnds:
        model, tokenizer, device, features = qwen.model, qwen.tokenizer, qwen.device, qwen.features

        def logits(self, features: torch.Tensor) -> torch.Tensor:
            logits = torch.zeros(features.shape[0], tiny.VOCABULARY)
            logits[:, chat.end_of_turn_id] = 50.0
            return logits

    for trajectory in run(AlwaysEnds(), tiny.tasks(turns=3)):
        assert tiny.sampled(trajectory) == [chat.end_of_turn_id] * 3
        assert [m["content"] for m in trajectory.messages if m["role"] == "assistant"] == [""] * 3
        after = trajectory.turn_starts[0] + 1
        assert trajectory.token_ids[after] != chat.end_of_turn_id  # not closed a second time


@given(
    logits=st.lists(st.floats(-8, 8), min_size=2, max_size=12),
    number=st.floats(0, 1, exclude_max=True),
    temperature=st.sampled_from([0.5, 1.0, 2.0]),
)
def test_draw_is_the_inverse_of_the_cumulated_distribution(
    logits: list[float], number: float, temperature: float
) -> None:
    ids, logprobs = draw(torch.tensor([logits]), [number], Sampling(temperature=temperature))
    scaled = np.array(logits) / temperature
    probabilities = np.exp(scaled - scaled.max()) / np.exp(scaled - scaled.max()).sum()
    upper = np.cumsum(probabilities)
    assert upper[ids[0]] >= number - 1e-5
    assert upper[ids[0]] - probabilities[ids[0]] <= number + 1e-5
    assert logprobs[0] == pytest.approx(np.log(probabilities[ids[0]]), abs=1e-4)


def test_draw_never_picks_an_impossible_token() -> None:
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf, 0.0, -torch.inf]])
    drawn = {draw(logits, [number], Sampling())[0][0] for number in (0.0, 0.25, 0.5, 0.75, 1 - 2**-53)}
    assert drawn == {1, 3}


def left_by(probabilities: list[float], *, top_k: int | None, top_p: float, min_p: float) -> dict[int, float]:
    """The tokens that the filters leave and their new probabilities, one rule after the other in plain Python."""
    ranked = sorted(range(len(probabilities)), key=lambda i: -probabilities[i])
    ranked = [i for i in ranked if probabilities[i] >= min_p * probabilities[ranked[0]]][:top_k]
    total = math.fsum(probabilities[i] for i in ranked)
    nucleus: list[int] = []
    while ranked and math.fsum(probabilities[i] / total for i in nucleus) < top_p:
        nucleus.append(ranked.pop(0))
    total = math.fsum(probabilities[i] for i in nucleus)
    return {i: probabilities[i] / total for i in nucleus}


@pytest.mark.parametrize(
    "asked",
    [
        {"top_k": 2, "top_p": 1.0, "min_p": 0.0},
        {"top_k": None, "top_p": 0.75, "min_p": 0.0},
        {"top_k": None, "top_p": 1.0, "min_p": 0.3},
        {"top_k": 3, "top_p": 0.62, "min_p": 0.1},
        {"top_k": None, "top_p": 0.01, "min_p": 0.0},
        {"top_k": 99, "top_p": 1.0, "min_p": 0.0},
    ],
)
def test_filters_draw_from_what_they_leave_and_record_its_log_probs(asked: dict[str, Any]) -> None:
    probabilities = [0.08, 0.4, 0.02, 0.3, 0.2]
    expected = left_by(probabilities, **asked)
    logits = torch.tensor([probabilities]).log()
    numbers = [(k + 0.5) / 400 for k in range(400)]
    ids, logprobs = draw(logits.expand(400, -1), numbers, Sampling(**asked))
    assert set(ids) == set(expected)
    for token, logprob in zip(ids, logprobs, strict=True):
        assert math.exp(logprob) == pytest.approx(expected[token], rel=1e-5)
    for token, probability in expected.items():
        assert ids.count(token) / 400 == pytest.approx(probability, abs=0.01)


def test_greedy_evaluation_is_never_filtered() -> None:
    logits = torch.tensor([[0.1, 0.6, 0.3]]).log()
    ids, logprobs = draw(logits, [0.9], Sampling(greedy=True, top_k=1, top_p=0.1))
    assert (ids, math.exp(logprobs[0])) == ([1], pytest.approx(0.6))


@given(
    lengths=st.lists(st.integers(1, 50), max_size=30),
    budget=st.integers(1, 120),
)
def test_batches_hold_everything_once_within_the_budget(lengths: list[int], budget: int) -> None:
    batches = length_batches(lengths, budget)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        longest = max(lengths[index] for index in batch)
        assert len(batch) == 1 or longest * len(batch) <= budget


def test_a_trajectory_that_begins_with_a_sampled_token_is_refused(qwen: Any) -> None:
    bad = Trajectory(
        uid="x",
        task=Task(role=Role.SOLVER, group_id="g"),
        token_ids=(1, 2),
        loss_mask=(1, 1),
        logprobs=(0.0, 0.0),
        stop_reason=StopReason.SUBMITTED,
        policy_version=0,
    )
    with pytest.raises(ValueError, match="needs a prompt"):
        pad([bad], [0], torch.device("cpu"))


def test_an_opening_too_long_for_the_context_ends_its_episode_alone(qwen: Any) -> None:
    short = tiny.tasks(groups=2)
    long = [replace(short[0], group_id="long", question="x" * 300, opening="mails") for _ in range(3)]
    made = run(qwen, [long[0], *short, *long[1:]], slots=2)
    ended = [made[0], *made[-2:]]
    assert {t.stop_reason for t in ended} == {StopReason.MAX_TOKENS}
    assert all(t.sampled_tokens == 0 and t.turn_starts == () for t in ended)
    assert [t.token_ids for t in made[1:-2]] == [t.token_ids for t in run(qwen, short, slots=2)]
    with pytest.raises(ValueError, match="max_total_sequence_length"):
        run(qwen, [replace(long[0], opening="")])
