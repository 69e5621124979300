"""Rows that wait for their tool results while the others go on."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import tiny_policy as tiny

from corpus_index.backends.base import Hit, IndexStats, IndexUnavailable, SearchResult
from corpus_index.document import Document
from corpus_index.query import Query
from environments.chat_format import ChatFormat
from environments.episode import Episode, EpisodeSettings, EpisodeState, Observation
from environments.protocol import render_call
from environments.task import Role, Task
from environments.tools import ToolBox, ToolSettings
from environments.trajectory import StopReason, Trajectory
from training.engines.base import Sampling
from training.engines.generation import GenerationLimits, generate
from training.engines.tool_calls import ToolLoop


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_model(tmp_path_factory.mktemp("qwen"))


@pytest.fixture(scope="module")
def qwen(folder: Path) -> Any:
    return tiny.policy(tiny.config(folder))


@dataclass
class SlowEpisode(tiny.ScriptedEpisode):
    """``ScriptedEpisode`` whose tool takes its time: ``before(n)`` is awaited ahead of the n-th call."""

    asynchronous: ClassVar[bool] = True
    before: Callable[[int], Awaitable[None]] = field(default=lambda _: asyncio.sleep(0))
    calls: int = 0
    busy: int = 0
    most: int = 0

    async def astep(self, state: tiny.ScriptedState, text: str) -> tuple[tiny.ScriptedObservation, tiny.ScriptedState]:
        self.calls += 1
        self.busy += 1
        self.most = max(self.most, self.busy)
        try:
            await self.before(self.calls)
        finally:
            self.busy -= 1
        return self.step(state, text)

    async def aclose(self) -> None:
        self.seen.append("closed")


@contextmanager
def tool_loop(max_concurrent: int = 16) -> Iterator[ToolLoop]:
    loop = ToolLoop(max_concurrent)
    try:
        yield loop
    finally:
        loop.close()


def run(policy: Any, tasks: list[Task], episode: Any, loop: ToolLoop | None = None, slots: int = 4) -> list[Trajectory]:
    def play(calls: Any) -> list[Trajectory]:
        return generate(
            policy, tasks, episode=episode, chat=ChatFormat(policy.tokenizer), sampling=Sampling(seed=1), calls=calls,
            limits=GenerationLimits(slots=slots, max_new_tokens=10, max_total_tokens=256), policy_version=7,
        )  # fmt: skip

    if loop is None:
        return play(None)
    with loop.calls(episode) as calls:
        return play(calls)


def same(first: list[Trajectory], second: list[Trajectory]) -> None:
    for one, other in zip(first, second, strict=True):
        assert one.token_ids == other.token_ids
        assert (one.uid, one.messages, one.opened, one.stop_reason) == (
            other.uid, other.messages, other.opened, other.stop_reason,
        )  # fmt: skip
        assert np.allclose(one.logprobs, other.logprobs, atol=1e-4)


@pytest.mark.parametrize("seed", range(2))
def test_the_order_in_which_results_arrive_changes_nothing(qwen: Any, seed: int) -> None:
    tasks = tiny.tasks(groups=4, members=3)
    rng = random.Random(seed)

    async def shuffled(_: int) -> None:
        await asyncio.sleep(rng.choice((0, 0.001, 0.01, 0.03)))

    in_place = run(qwen, tasks, tiny.ScriptedEpisode([]))
    with tool_loop() as loop:
        for slots in (3, 12):
            same(run(qwen, tasks, SlowEpisode([], shuffled), loop, slots), in_place)


def test_other_rows_decode_and_new_ones_are_admitted_while_one_waits(qwen: Any) -> None:
    tasks = tiny.tasks(groups=3, members=2)
    others = sum(task.hops for task in tasks[1:])
    answered: list[int] = []
    everyone_else = asyncio.Event()

    async def first_is_last(number: int) -> None:
        # The first call is answered when all turns of all other episodes are over, three slots' worth of them new.
        if number == 1:
            await everyone_else.wait()
        answered.append(number)
        if len(answered) == others:
            everyone_else.set()

    with tool_loop() as loop:
        made = run(qwen, tasks, SlowEpisode([], first_is_last), loop, slots=2)
    assert answered.index(1) == others
    same(made, run(qwen, tasks, tiny.ScriptedEpisode([])))


def test_calls_in_flight_are_bounded(qwen: Any) -> None:
    async def long(_: int) -> None:
        await asyncio.sleep(0.01)

    for bound in (1, 3):
        episode = SlowEpisode([], long)
        with tool_loop(bound) as loop:
            run(qwen, tiny.tasks(groups=4, members=2), episode, loop, slots=8)
        assert episode.most == bound


def test_an_error_of_ours_comes_out_and_leaves_nothing_running(qwen: Any) -> None:
    cancelled: list[int] = []

    async def breaks(number: int) -> None:
        if number == 3:
            raise ZeroDivisionError("a bug")
        if number < 3:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(number)
                raise

    tasks = tiny.tasks(groups=2, members=2)
    with tool_loop() as loop:
        with pytest.raises(ZeroDivisionError):
            run(qwen, tasks, SlowEpisode([], breaks), loop)
        # The next rollout on the same loop sees no result of the broken one.
        same(run(qwen, tasks, SlowEpisode([]), loop), run(qwen, tasks, tiny.ScriptedEpisode([])))
    assert sorted(cancelled) == [1, 2]


def test_closing_ends_the_thread_and_the_connections() -> None:
    loop, episode = ToolLoop(1), SlowEpisode([])
    with loop.calls(episode), loop.calls(episode):  # type: ignore[arg-type]
        pass
    loop.close()
    loop.close()
    assert episode.seen == ["closed"]


def test_waiting_for_nothing_is_refused() -> None:
    with tool_loop() as loop, loop.calls(SlowEpisode([])) as calls:  # type: ignore[arg-type]
        assert calls.ended(wait=False) == []
        with pytest.raises(RuntimeError, match="no call is in flight"):
            calls.ended(wait=True)


# --- the engine over a remote index -----------------------------------------------------------------------------------

MAILS = [
    Document(id=f"m{k}", subject=f"review {k}", body=f"The review of project {k} is in room {k}.") for k in range(6)
]
TURNS = [
    render_call("search_keyword", {"keywords": ["review"]}),
    render_call("read_mail", {"id": "m3"}),
    render_call("submit", {"answer": "room 3", "evidence": ["m3"]}),
]


class RemoteIndex:
    """Answers ``works`` calls and is away from then on, until ``works`` is raised."""

    locator = "remote:"

    def __init__(self, works: int = 10**9) -> None:
        self.works = works
        self.asked = 0

    def asynchronous(self) -> RemoteIndex:
        return self

    async def _answer(self) -> None:
        self.asked += 1
        number = self.asked
        for _ in range(37 * number % 100):
            await asyncio.sleep(0)
        if number > self.works:
            raise IndexUnavailable("connection refused")

    async def search(self, query: Query, *, snippet_chars: int = 160) -> SearchResult:
        await self._answer()
        return SearchResult(
            tuple(Hit(each, 1.0, each.body[:snippet_chars]) for each in MAILS[: query.limit]), len(MAILS)
        )

    async def read(self, document_id: str) -> Document | None:
        await self._answer()
        return next((each for each in MAILS if each.id == document_id), None)

    def stats(self) -> IndexStats:
        return IndexStats(len(MAILS), 0, self.locator)

    async def close(self) -> None:
        self.asked = -1


class Rehearsed(Episode):
    """The real episode, but what the random policy says is replaced by the turns of a script."""

    async def astep(self, state: EpisodeState, text: str) -> tuple[Observation, EpisodeState]:
        return await super().astep(state, TURNS[state.turn])


def engine(folder: Path, index: RemoteIndex) -> Any:
    made = tiny.engine(tiny.config(folder, slots=3, max_total_sequence_length=512, generation={"max_new_tokens": 4}))
    settings = ToolSettings(backoff_seconds=0.0, retries=1, max_hits=2, hit_fields=(), describe="none")
    made.episode = Rehearsed(ToolBox(index, settings), EpisodeSettings(prompt_style="brief"))  # type: ignore[arg-type]
    return made


def test_an_index_that_dies_in_the_middle_of_a_rollout_costs_only_what_it_did_not_answer(folder: Path) -> None:
    index = RemoteIndex(works=7)
    playing = engine(folder, index)
    tasks = [Task(role=Role.SOLVER, group_id=f"g{k}", question="where is it?") for k in range(8)]
    made = playing.rollout(tasks, Sampling(seed=1))
    assert [each.task for each in made] == tasks
    whole = [each for each in made if each.stop_reason is StopReason.SUBMITTED]
    faulted = [each for each in made if each.stop_reason is StopReason.ENVIRONMENT_FAULT]
    assert len(whole) + len(faulted) == len(tasks)
    assert 1 <= len(whole) <= 3  # two calls each
    for each in whole:
        assert each.opened == ("m3",)
        assert each.submission is not None
    for each in faulted:
        assert each.events[-1].error == "index unavailable: connection refused"
        assert each.submission is None
        assert each.messages[-1]["role"] == "assistant"
    # Back again: the same engine and the same connections go on.
    index.works = 10**9
    again = playing.rollout(tasks, Sampling(seed=2))
    assert {each.stop_reason for each in again} == {StopReason.SUBMITTED}
    assert len(playing.logprobs(again)) == len(tasks)


def test_an_engine_that_is_gone_closes_its_connections(folder: Path) -> None:
    index = RemoteIndex()
    playing = engine(folder, index)
    playing.rollout([Task(role=Role.SOLVER, group_id="g", question="where?")], Sampling(seed=1))
    assert index.asked == 2
    del playing
    assert index.asked == -1
