from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from chat_server import ChatServer, Reply, called, said, serving
from pydantic import BaseModel, ConfigDict, ValidationError

from rewards.endpoint import Endpoint, EndpointSettings
from rewards.replies import EndpointFault, FaultReason, retry_after
from rewards.reply_cache import ReplyCache

ASKED = [{"role": "user", "content": "Which day?"}]


class Day(BaseModel):
    model_config = ConfigDict(extra="forbid")
    day: str


def endpoint(server: ChatServer, cache: Path | None = None, **changes: Any) -> Endpoint:
    settings = {"retries": 3, "backoff_seconds": 0.01, "timeout_seconds": 5.0, "deadline_seconds": 10.0} | changes
    return Endpoint(EndpointSettings.model_validate({"base_url": server.url, "model": "m"} | settings), cache)


def fault(server: ChatServer, **changes: Any) -> EndpointFault:
    with pytest.raises(EndpointFault) as caught:
        endpoint(server, **changes).ask(ASKED, Day)
    return caught.value


def test_a_reply_is_read_and_the_request_says_what_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", "sk-secret")
    with serving(lambda n, body: said('{"day": "Monday"}')) as server:
        client = endpoint(server, api_key_env="JUDGE_KEY", temperature=0.5)
        assert client.ask(ASKED, Day, seed=3) == Day(day="Monday")
        assert client.chat(ASKED) == '{"day": "Monday"}'
    structured, plain = server.asked
    assert structured["response_format"]["json_schema"]["schema"] == Day.model_json_schema()
    assert (structured["seed"], structured["model"], structured["temperature"]) == (3, "m", 0.5)
    assert structured["messages"] == plain["messages"] == ASKED
    assert "response_format" not in plain
    assert "seed" not in plain
    assert server.keys == ["Bearer sk-secret"] * 2


@pytest.mark.parametrize(("structured", "sent"), [("json_object", {"type": "json_object"}), ("off", None)])
def test_servers_without_schemas_are_asked_in_their_way(structured: str, sent: object) -> None:
    with serving(lambda n, body: said('{"day": "Monday"}')) as server:
        assert endpoint(server, structured=structured).ask(ASKED, Day).day == "Monday"
    assert server.asked[0].get("response_format") == sent


def test_a_model_that_is_offered_tools_calls_one(tmp_path: Path) -> None:
    tools = [{"type": "function", "function": {"name": "search", "parameters": {}}}]
    replies = [Reply(500), called("search", '{"q": 1', reasoning="Hm.", usage=(70, 9)), said("Done", usage=(80, 2))]
    with serving(lambda n, body: replies[n]) as server:
        client = endpoint(server, tmp_path / "replies.sqlite")
        first = client.converse(ASKED, tools)
        turn = {"role": "assistant", "content": "", "tool_calls": [{"id": "c1"}]}
        client.converse([*ASKED, turn, {"role": "tool", "tool_call_id": "c1", "content": "0 hits"}], tools)
        spent = client.spent
        client.close()
        again = endpoint(server, tmp_path / "replies.sqlite")
        assert again.converse(ASKED, tools) == first
        assert (again.spent.known, again.spent.tries) == (1, 0)
    (call,) = first.message.tool_calls or ()
    assert (call.function.name, call.function.arguments, first.message.thought) == ("search", '{"q": 1', "Hm.")
    assert (spent.tries, spent.replies, spent.tokens.prompt_tokens, spent.tokens.completion_tokens) == (3, 2, 150, 11)
    assert server.asked[1]["tools"] == tools
    assert server.asked[1]["parallel_tool_calls"] is False
    assert server.asked[2]["messages"][1:] == [turn, {"role": "tool", "tool_call_id": "c1", "content": "0 hits"}]


def test_a_tool_call_is_no_text() -> None:
    with serving(lambda n, body: called("search", {})) as server, pytest.raises(EndpointFault) as caught:
        endpoint(server, retries=0).chat(ASKED)
    assert caught.value.reason is FaultReason.BROKEN


def test_a_storm_of_429_is_waited_out_as_long_as_the_server_says() -> None:
    def script(n: int, body: dict[str, Any]) -> Reply:
        return Reply(429, "slow down", {"Retry-After": "0.2"}) if n < 3 else said('{"day": "Friday"}')

    with serving(script) as server:
        assert endpoint(server).ask(ASKED, Day).day == "Friday"
    pauses = [b - a for a, b in zip(server.times, server.times[1:], strict=False)]
    assert len(pauses) == 3
    assert min(pauses) >= 0.2


def test_a_pause_beyond_the_deadline_ends_the_call_at_once() -> None:
    with serving(lambda n, body: Reply(429, "", {"Retry-After": "3600"})) as server:
        caught = fault(server)
    assert caught.reason is FaultReason.RATE_LIMITED
    assert len(server.asked) == 1


def test_retry_after_reads_seconds_and_dates_and_nothing_else() -> None:
    assert retry_after("12") == 12.0
    soon = datetime.now(UTC) + timedelta(seconds=30)
    assert 28 <= retry_after(format_datetime(soon, usegmt=True)) <= 30
    for odd in (None, "", "soon", "-5", "nan", format_datetime(soon - timedelta(days=1), usegmt=True)):
        assert retry_after(odd) == 0.0
    assert retry_after("inf") == retry_after("1e99") == 86_400.0


@pytest.mark.parametrize(
    ("reply", "reason", "tries"),
    [
        (Reply(500, "oops"), FaultReason.SERVER_ERROR, 4),
        (Reply(503, "loading"), FaultReason.SERVER_ERROR, 4),
        (Reply(401, "bad key"), FaultReason.REJECTED, 1),
        (Reply(404, "no such model"), FaultReason.REJECTED, 1),
        (Reply(200, "<html>"), FaultReason.BROKEN, 4),
        (Reply(200, {"choices": []}), FaultReason.BROKEN, 4),
        (Reply(200, {"error": "busy"}), FaultReason.BROKEN, 4),
        (Reply(200, {"choices": [{"message": {"content": 3}}]}), FaultReason.BROKEN, 4),
        (said(None), FaultReason.BROKEN, 4),
        (said("Monday, I think"), FaultReason.BROKEN, 1),
        (said('{"day": "Monday"} {"day": "Friday"}'), FaultReason.BROKEN, 1),
        (said('{"day": "Monday", "note": "x"}'), FaultReason.BROKEN, 1),
        (said('{"day": "Mon', finish_reason="length"), FaultReason.TRUNCATED, 1),
        (Reply(200, {"choices": []}, cut=True), FaultReason.TRUNCATED, 4),
        (said(None, refusal="I can't help with that"), FaultReason.REFUSED, 1),
        (said("", finish_reason="content_filter"), FaultReason.REFUSED, 1),
    ],
    ids=str,
)
def test_what_is_no_usable_reply_is_a_fault(reply: Reply, reason: FaultReason, tries: int) -> None:
    with serving(lambda n, body: reply) as server:
        assert fault(server).reason is reason
    assert len(server.asked) == tries


@pytest.mark.parametrize("slow", [{"delay": 1.5}, {"drip": 0.05}], ids=str)
def test_a_slow_server_is_left_at_the_deadline(slow: dict[str, float]) -> None:
    with serving(lambda n, body: Reply(body={"choices": [{"message": {"content": "x" * 400}}]}, **slow)) as server:
        caught = fault(server, deadline_seconds=0.4, timeout_seconds=0.3)
    assert caught.reason is FaultReason.TIMEOUT
    assert len(server.asked) <= 2


def test_an_unreachable_server_is_a_passing_fault() -> None:
    with serving(lambda n, body: said("")) as server:
        pass
    caught = fault(server)
    assert (caught.reason, caught.passing) == (FaultReason.UNREACHABLE, True)


def test_the_key_is_not_in_what_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", "sk-secret")
    with serving(lambda n, body: Reply(401, "the key sk-secret is wrong")) as server:
        caught = fault(server, api_key_env="JUDGE_KEY")
    assert "the key *** is wrong" in str(caught)
    assert "sk-secret" not in str(caught)


def test_settings_that_cannot_work_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JUDGE_KEY", raising=False)
    with pytest.raises(ValueError, match="JUDGE_KEY is not set"):
        Endpoint(EndpointSettings(model="m", api_key_env="JUDGE_KEY"))
    with pytest.raises(ValueError, match="model is empty"):
        Endpoint(EndpointSettings())
    with pytest.raises(ValidationError, match="no http"):
        EndpointSettings(base_url="localhost:8000")


def test_replies_are_kept_over_restarts_and_faults_are_not(tmp_path: Path) -> None:
    script = [Reply(401), said('{"day": "Monday"}'), said('{"day": "Friday"}')]
    with serving(lambda n, body: script[n]) as server:
        first = endpoint(server, tmp_path / "deep" / "replies.sqlite")
        with pytest.raises(EndpointFault):
            first.ask(ASKED, Day)
        assert first.ask(ASKED, Day).day == "Monday"
        first.close()
        again = endpoint(server, tmp_path / "deep" / "replies.sqlite")
        assert again.ask(ASKED, Day).day == "Monday"
        assert again.ask(ASKED, Day, seed=1).day == "Friday"
    assert len(server.asked) == 3


def test_a_file_that_is_no_cache_is_named(tmp_path: Path) -> None:
    odd = tmp_path / "replies.sqlite"
    odd.write_text("these are no replies, " * 100)
    with pytest.raises(ValueError, match=r"replies\.sqlite cannot be used"):
        ReplyCache(odd)


def test_calls_side_by_side_keep_their_order_their_limit_and_their_faults() -> None:
    def script(n: int, body: dict[str, Any]) -> Reply:
        text = body["messages"][0]["content"]
        return Reply(500) if text == "7" else Reply(body=said(text).body, delay=0.03)

    with serving(script) as server:
        client = endpoint(server, max_concurrent=3)
        found = client.each(lambda i: client.chat([{"role": "user", "content": str(i)}]), range(12))
    assert [r for r in found if isinstance(r, str)] == [str(i) for i in range(12) if i != 7]
    assert isinstance(found[7], EndpointFault)
    assert 2 <= server.most <= 3


def test_a_dead_server_is_given_up_for_the_whole_batch() -> None:
    with serving(lambda n, body: Reply(500)) as server:
        client = endpoint(server, retries=0, max_concurrent=2)
        found = client.each(lambda i: client.chat([{"role": "user", "content": str(i)}]), range(50))
    assert all(isinstance(r, EndpointFault) for r in found)
    assert len(server.asked) <= 4


def test_the_pace_holds_over_threads() -> None:
    with serving(lambda n, body: said("x")) as server:
        client = endpoint(server, requests_per_second=20.0)
        threads = [
            threading.Thread(target=client.chat, args=([{"role": "user", "content": str(i)}],)) for i in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(server.times) == 6
    assert server.times[-1] - server.times[0] >= 0.2  # five gaps of 0.05 s, less the jitter of arriving
