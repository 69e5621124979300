"""The blocking and the asynchronous driver: the same calls, retries, faults and scopes; no call holds up another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mail_fakes import FakeIndex, mail

from corpus_index.backends.base import IndexUnavailable
from corpus_index.retries import RetrySettings, retried, retried_async
from corpus_index.scope import MailScope
from environments.episode import Episode, EpisodeLimits, EpisodeSettings, EpisodeState, Observation
from environments.protocol import ToolCall, render_call
from environments.task import Role, Task
from environments.tools import ToolBox, ToolOutcome, ToolSettings
from environments.trajectory import StopReason

MAILS = [
    mail(417, "Amber Falcon review", "room 12", mailbox="mira"),
    mail(418, "Lunch", "pizza for the Falcon team", mailbox="tom"),
    mail(419, "Falcon budget", "secret", mailbox="tom", date=datetime(2024, 5, 1, tzinfo=UTC)),
]
SOLVE = Task(role=Role.SOLVER, group_id="g", question="Where?")
SEARCH = ToolCall("search_keyword", {"keywords": ["falcon"]})
READ = ToolCall("read_mail", {"id": "0417"})

Run = Callable[[ToolBox, ToolCall, MailScope | None], ToolOutcome]
Step = Callable[[Episode, EpisodeState, str], tuple[Observation, EpisodeState]]


def box(index: FakeIndex, **options: object) -> ToolBox:
    return ToolBox(index, ToolSettings(**{"backoff_seconds": 0.0, "retries": 2, **options}))  # type: ignore[arg-type]


def episode(index: FakeIndex, **options: object) -> Episode:
    return Episode(box(index, **options), EpisodeSettings(limits=EpisodeLimits(max_errors=2)))


def blocking(toolbox: ToolBox, call: ToolCall, scope: MailScope | None = None) -> ToolOutcome:
    return toolbox.run(call, scope)


def looping(toolbox: ToolBox, call: ToolCall, scope: MailScope | None = None) -> ToolOutcome:
    return asyncio.run(toolbox.arun(call, scope))


def blocking_step(run: Episode, state: EpisodeState, text: str) -> tuple[Observation, EpisodeState]:
    return run.step(state, text)


def looping_step(run: Episode, state: EpisodeState, text: str) -> tuple[Observation, EpisodeState]:
    return asyncio.run(run.astep(state, text))


both = pytest.mark.parametrize("run", [blocking, looping])
both_steps = pytest.mark.parametrize("step", [blocking_step, looping_step])

CALLS = st.sampled_from(
    [
        SEARCH,
        READ,
        ToolCall("search_bool", {"must": [{"match": "falcon"}]}),
        ToolCall("read_mail", {"id": "0418", "offset": 3}),
        ToolCall("read_mail", {"id": "0418", "offset": 3000}),
        ToolCall("read_mail", {"id": "nope"}),
        ToolCall("read_mail", {"id": 7}),
        ToolCall("search_keyword", {}),
        ToolCall("serch", {}),
    ]
)
SCOPES = st.sampled_from(
    [None, MailScope(), MailScope(mailboxes=("mira",)), MailScope(mailboxes=("tom",)), MailScope(mailboxes=("no",))]
)


@given(st.lists(st.tuples(CALLS, SCOPES), max_size=6), st.text(".x", max_size=12), st.sampled_from(["", "too much"]))
def test_both_drivers_ask_and_answer_alike(
    calls: list[tuple[ToolCall, MailScope | None]], schedule: str, rejects: str
) -> None:
    def play(run: Run) -> tuple[list[object], int]:
        index = FakeIndex(MAILS, schedule=schedule, rejects=rejects, remote=True)
        toolbox = box(index)
        seen: list[object] = []
        for call, scope in calls:
            try:
                seen.append(run(toolbox, call, scope))
            except IndexUnavailable as fault:
                seen.append(str(fault))
        return seen, index.asked

    assert play(blocking) == play(looping)


@given(st.lists(st.sampled_from([SEARCH, READ, ToolCall("nope", {})]), max_size=6), st.text(".x", max_size=12))
def test_both_drivers_lead_an_episode_the_same_way(calls: list[ToolCall], schedule: str) -> None:
    def play(step: Step) -> list[object]:
        playing = episode(FakeIndex(MAILS, schedule=schedule, remote=True), retries=0)
        state, _ = playing.start(SOLVE)
        seen: list[object] = []
        texts = ["hello", *(render_call(call.name, call.arguments) for call in calls)]
        for text in [*texts, render_call("submit", {"answer": "room 12", "evidence": ["0417"]})]:
            if not state.done:
                observation, state = step(playing, state, text)
                seen += [observation, state]
        return seen

    assert play(blocking_step) == play(looping_step)


@both
def test_a_short_outage_is_retried_and_a_long_one_propagates(run: Run) -> None:
    index = FakeIndex(MAILS, schedule="xx.", remote=True)
    assert run(box(index), SEARCH, None).text.startswith("3 hits")
    assert index.asked == 3
    index = FakeIndex(MAILS, schedule="xxx.", remote=True)
    with pytest.raises(IndexUnavailable, match="down"):
        run(box(index), SEARCH, None)
    assert index.asked == 3
    index = FakeIndex(MAILS, down=-1, remote=True)
    with pytest.raises(IndexUnavailable, match="down"):
        run(box(index, retries=5, backoff_seconds=9.0, deadline_seconds=1.0), READ, None)
    assert index.asked == 1


@both_steps
def test_an_index_that_dies_ends_the_episode_as_a_fault(step: Step) -> None:
    playing = episode(FakeIndex(MAILS, schedule="..", down=-1, remote=True))
    state, _ = playing.start(SOLVE)
    for call in (SEARCH, READ):
        observation, state = step(playing, state, render_call(call.name, call.arguments))
        assert not observation.done
    observation, state = step(playing, state, render_call(SEARCH.name, SEARCH.arguments))
    assert (observation.text, observation.done) == ("", True)
    assert (state.stop_reason, state.opened, state.turn) == (StopReason.ENVIRONMENT_FAULT, ("0417",), 3)
    assert state.errors == 0  # not the policy's
    assert state.events[-1].error == "index unavailable: the fake index is down"
    with pytest.raises(ValueError, match="ended already"):
        step(playing, state, "more")


def test_a_call_that_hangs_is_given_up_at_the_deadline_and_holds_up_nobody() -> None:
    async def play() -> tuple[StopReason | None, str]:
        index = FakeIndex(MAILS, schedule="z", remote=True)
        hung, quick = episode(index, deadline_seconds=0.5), episode(index, deadline_seconds=60.0)
        text = render_call(SEARCH.name, SEARCH.arguments)
        first = asyncio.create_task(hung.astep(hung.start(SOLVE)[0], text))
        while not index.asked:
            await asyncio.sleep(0)
        observation, _ = await quick.astep(quick.start(SOLVE)[0], text)
        assert observation.text.startswith("3 hits")
        assert not first.done()
        _, state = await first
        return state.stop_reason, state.events[0].error

    reason, error = asyncio.run(play())
    assert reason is StopReason.ENVIRONMENT_FAULT
    assert error == "index unavailable: no answer within 0.5 s (tools.deadline_seconds)"


def test_a_slow_index_is_waited_for() -> None:
    async def play() -> str:
        index = FakeIndex(MAILS, schedule="z", remote=True)
        call = asyncio.create_task(box(index).arun(SEARCH))
        for _ in range(50):
            await asyncio.sleep(0)
        assert not call.done()
        index.hanging.set()
        return (await call).text

    assert asyncio.run(play()).startswith("3 hits")


def test_the_deadline_keeps_what_failed_before_it() -> None:
    tries: list[int] = []

    async def ask() -> int:
        tries.append(1)
        if len(tries) == 1:
            raise IndexUnavailable("status 503")
        return await asyncio.Event().wait()

    settings = RetrySettings(retries=3, backoff_seconds=0.0, deadline_seconds=0.2)
    with pytest.raises(IndexUnavailable, match=r"no answer within 0\.2 s .*; before that: status 503"):
        asyncio.run(retried_async(ask, settings))
    assert len(tries) == 2


def test_pauses_double_within_their_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)

    def ask() -> None:
        raise IndexUnavailable("away")

    for _ in range(20):
        slept.clear()
        with pytest.raises(IndexUnavailable):
            retried(ask, RetrySettings(retries=4, backoff_seconds=0.2, deadline_seconds=60.0))
        assert len(slept) == 4
        for attempt, pause in enumerate(slept):
            assert 0.1 * 2**attempt <= pause <= 0.3 * 2**attempt
    assert len({round(pause / 2**attempt, 9) for attempt, pause in enumerate(slept)}) > 1
    slept.clear()
    with pytest.raises(IndexUnavailable):
        retried(ask, RetrySettings(retries=30, backoff_seconds=0.2, longest_backoff_seconds=1.0, deadline_seconds=60.0))
    assert len(slept) == 30  # no pause outgrows the deadline
    assert all(0.5 <= pause <= 1.5 for pause in slept[3:])


def test_an_index_without_an_asynchronous_side_is_asked_in_place() -> None:
    toolbox = box(FakeIndex(MAILS))
    assert not toolbox.asynchronous
    assert looping(toolbox, SEARCH) == blocking(toolbox, SEARCH)
    asyncio.run(toolbox.aclose())
    remote = FakeIndex(MAILS, remote=True)
    toolbox = box(remote)
    assert toolbox.asynchronous
    asyncio.run(toolbox.aclose())
    assert remote.closed


@both
def test_a_scope_hides_mails_from_search_and_read_alike(run: Run) -> None:
    index = FakeIndex(MAILS, remote=True)
    toolbox = box(index)
    mira, tom = MailScope(mailboxes=("mira",)), MailScope(mailboxes=("tom",), before=datetime(2024, 4, 1, tzinfo=UTC))
    assert run(toolbox, SEARCH, mira).shown_ids == ("0417",)
    assert run(toolbox, SEARCH, tom).shown_ids == ("0418",)
    assert run(toolbox, SEARCH, None).shown_ids == ("0417", "0418", "0419")
    assert run(toolbox, READ, mira).opened_id == "0417"
    # A foreign id is told apart from an unknown one by nothing.
    foreign, unknown = run(toolbox, READ, tom), run(toolbox, ToolCall("read_mail", {"id": "9999"}), tom)
    assert foreign.error == unknown.error.replace("9999", "0417")
    assert run(toolbox, SEARCH, MailScope(mailboxes=("mira",))).shown_ids == ("0417",)
    assert index.views == [mira, tom]  # one view a scope, however often it is asked through


@both
def test_a_scope_narrows_what_the_index_is_limited_to(run: Run) -> None:
    view = FakeIndex(MAILS, remote=True).within(MailScope(mailboxes=("tom",)))
    toolbox = ToolBox(view, ToolSettings())  # type: ignore[arg-type]
    assert run(toolbox, SEARCH, None).shown_ids == ("0418", "0419")
    assert run(toolbox, SEARCH, MailScope(after=datetime(2024, 4, 1, tzinfo=UTC))).shown_ids == ("0419",)
    assert run(toolbox, SEARCH, MailScope(mailboxes=("mira",))).text.startswith("no hits")


@both_steps
def test_an_episode_is_played_in_the_scope_of_its_task(step: Step) -> None:
    playing = episode(FakeIndex(MAILS, remote=True))
    state, _ = playing.start(replace(SOLVE, scope=MailScope(mailboxes=("mira",))))
    _, state = step(playing, state, render_call(SEARCH.name, SEARCH.arguments))
    assert state.shown == ("0417",)
    observation, state = step(playing, state, render_call("read_mail", {"id": "0419"}))
    assert observation.text.startswith("error: no mail with id '0419'")
