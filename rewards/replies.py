"""A chat endpoint's answer, read strictly: what is not a whole, finished reply is a fault, never a guess."""

from __future__ import annotations

import time
from email.utils import parsedate_to_datetime
from enum import StrEnum

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


class _Message(BaseModel):
    model_config = ConfigDict(strict=True)

    content: str | None = None
    refusal: str | None = None


class _Choice(BaseModel):
    model_config = ConfigDict(strict=True)

    message: _Message
    finish_reason: str | None = None


class _Completion(BaseModel):
    """The part of the protocol's answer that is read; servers add fields of their own."""

    model_config = ConfigDict(strict=True)

    choices: list[_Choice] = Field(min_length=1)


def content_of(status: int, headers: httpx.Headers, body: bytes) -> str:
    """The assistant's text of a chat completion. Raises EndpointFault where there is none that can be used."""
    if status == 429:
        wait = retry_after(headers.get("Retry-After"))
        raise EndpointFault(FaultReason.RATE_LIMITED, f"HTTP 429, {_excerpt(body)}", wait_seconds=wait)
    if status >= 500 or status == 408:
        wait = retry_after(headers.get("Retry-After"))
        raise EndpointFault(FaultReason.SERVER_ERROR, f"HTTP {status}, {_excerpt(body)}", wait_seconds=wait)
    if status != 200:
        raise EndpointFault(FaultReason.REJECTED, f"HTTP {status}, {_excerpt(body)}", passing=False)
    try:
        choice = _Completion.model_validate_json(body).choices[0]
    except ValidationError as error:
        raise EndpointFault(FaultReason.BROKEN, f"no chat completion: {_excerpt(body)}") from error
    if choice.message.refusal or choice.finish_reason == "content_filter":
        raise EndpointFault(
            FaultReason.REFUSED, f"{choice.message.refusal or 'the answer was filtered'!r}"[:300], passing=False
        )
    if choice.finish_reason == "length":
        raise EndpointFault(
            FaultReason.TRUNCATED, "the reply ran into max_tokens; raise it or ask for less", passing=False
        )
    if not choice.message.content:
        raise EndpointFault(FaultReason.BROKEN, f"an empty reply: {_excerpt(body)}")
    return choice.message.content


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
