"""A chat endpoint's answer, read strictly: what is not a whole, finished reply is a fault, never a guess."""

from __future__ import annotations

import time
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Annotated

import httpx
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from corpus_index.faults import Unavailable

MAX_WAIT_SECONDS = 86_400.0


class FaultReason(StrEnum):
    """What went wrong with a call. Each is counted under its name."""

    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    RATE_LIMITED = "rate_limited"
    SERVER_ERROR = "server_error"
    REJECTED = "rejected"
    """The server does not take the request: a wrong key, model or parameter. Asking again cannot help."""
    REFUSED = "refused"
    """The model will not answer, or a filter kept its answer back."""
    TRUNCATED = "truncated"
    """The reply ran into ``max_tokens``, or the connection broke inside it."""
    BROKEN = "broken"
    """No JSON, not the wanted schema, or not what the protocol describes."""
    CACHE = "cache"
    """The file of earlier replies cannot be read or written."""


class EndpointFault(Unavailable):
    """No usable reply. ``passing`` and ``wait_seconds`` as in ``Unavailable``."""

    def __init__(self, reason: FaultReason, message: str, *, passing: bool = True, wait_seconds: float = 0.0) -> None:
        super().__init__(f"{reason.value}: {message}", passing=passing, wait_seconds=wait_seconds)
        self.reason = reason


OF_THE_MODEL = frozenset({FaultReason.REFUSED, FaultReason.TRUNCATED, FaultReason.BROKEN})
"""What another prompt may not meet; all else is the server's trouble."""


class _Read(BaseModel):
    """The part of the protocol's answer that is read; servers add fields of their own."""

    model_config = ConfigDict(strict=True, frozen=True)


class CalledFunction(_Read):
    """``arguments`` is the text that the model wrote: JSON, if it wrote it well."""

    name: str
    arguments: str


class ToolRequest(_Read):
    id: str = ""
    function: CalledFunction


class ReplyMessage(_Read):
    """``reasoning`` is where newer servers keep ``reasoning_content``."""

    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: tuple[ToolRequest, ...] | None = None

    @property
    def thought(self) -> str:
        return self.reasoning_content or self.reasoning or ""


class _Choice(_Read):
    message: ReplyMessage
    finish_reason: str | None = None


class Usage(_Read):
    """Tokens, as the server counts them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
        )


class Completion(_Read):
    choices: Annotated[tuple[_Choice, ...], Field(min_length=1)]
    usage: Usage | None = None

    @property
    def message(self) -> ReplyMessage:
        return self.choices[0].message

    @property
    def tokens(self) -> Usage:
        return self.usage or Usage()


def completion_of(status: int, headers: httpx.Headers, body: bytes) -> Completion:
    """A whole chat completion that says something, or calls a tool. Raises EndpointFault where there is none."""
    if status == 429:
        wait = retry_after(headers.get("Retry-After"))
        raise EndpointFault(FaultReason.RATE_LIMITED, f"HTTP 429, {_excerpt(body)}", wait_seconds=wait)
    if status >= 500 or status == 408:
        wait = retry_after(headers.get("Retry-After"))
        raise EndpointFault(FaultReason.SERVER_ERROR, f"HTTP {status}, {_excerpt(body)}", wait_seconds=wait)
    if status != 200:
        raise EndpointFault(FaultReason.REJECTED, f"HTTP {status}, {_excerpt(body)}", passing=False)
    try:
        completion = Completion.model_validate_json(body)
    except ValidationError as error:
        raise EndpointFault(FaultReason.BROKEN, f"no chat completion: {_excerpt(body)}") from error
    message, finish = completion.message, completion.choices[0].finish_reason
    if message.refusal or finish == "content_filter":
        raise EndpointFault(
            FaultReason.REFUSED, f"{message.refusal or 'the answer was filtered'!r}"[:300], passing=False
        )
    if finish == "length":
        raise EndpointFault(
            FaultReason.TRUNCATED, "the reply ran into max_tokens; raise it or ask for less", passing=False
        )
    if not message.content and not message.tool_calls:
        raise EndpointFault(FaultReason.BROKEN, f"an empty reply: {_excerpt(body)}")
    return completion


def content_of(completion: Completion) -> str:
    """The assistant's text. Raises EndpointFault where it calls a tool and says nothing."""
    if not completion.message.content:
        raise EndpointFault(FaultReason.BROKEN, "a reply without text that calls a tool nobody offered")
    return completion.message.content


def retry_after(value: str | None) -> float:
    """Seconds of a Retry-After header: a number, or the time left until a date; 0 where it says nothing readable."""
    if value is None:
        return 0.0
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, OverflowError):
            return 0.0
    return min(max(seconds, 0.0), MAX_WAIT_SECONDS) if seconds == seconds else 0.0


def _excerpt(body: bytes) -> str:
    return repr(body[:200].decode("utf-8", errors="replace"))
