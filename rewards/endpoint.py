"""A client for any OpenAI-compatible chat endpoint: a served model as judge, or as writer of questions.

``Endpoint(settings).chat(messages)`` gives the reply's text, ``ask(messages, Model)`` a validated pydantic object, and
``each(call, items)`` runs many such calls side by side. A call is retried until its deadline; what then has no usable
reply raises EndpointFault, whose ``reason`` is to be counted. Prompts are the caller's: untrusted text belongs into
them as JSON data (``environments.untrusted``).
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

import httpx
from pydantic import BaseModel, Field, ValidationError, model_validator

from corpus_index.retries import RetrySettings, retried
from rewards.replies import Completion, EndpointFault, FaultReason, Usage, completion_of, content_of
from rewards.reply_cache import ReplyCache

Message = Mapping[str, str]
"""``{"role": "system" | "user" | "assistant", "content": text}``."""
ChatTurn = Mapping[str, Any]
"""A message that may also hold ``tool_calls``, ``tool_call_id`` or ``reasoning_content``."""
M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")
R = TypeVar("R")
_MAX_REPLY_BYTES = 4_000_000


class EndpointSettings(RetrySettings):
    base_url: str = "http://127.0.0.1:8000/v1"
    """Up to and without ``/chat/completions``."""
    model: str = ""
    api_key_env: str | None = None
    """Name of the environment variable that holds the key; null: no key is sent. The key stands in no file or log."""
    temperature: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    max_tokens: Annotated[int, Field(gt=0)] = 512
    structured: Literal["json_schema", "json_object", "off"] = "json_schema"
    """How ``ask`` tells the server its schema: response_format of that type, or off for a server that knows neither.
    The reply is validated in any case."""
    timeout_seconds: Annotated[float, Field(gt=0)] = 60.0
    """Of one try."""
    deadline_seconds: Annotated[float, Field(gt=0)] = 180.0
    """Of a call with its retries. A server that asks for a longer pause than is left ends the call."""
    longest_backoff_seconds: Annotated[float, Field(ge=0)] = 20.0
    max_concurrent: Annotated[int, Field(gt=0)] = 8
    requests_per_second: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Retries count. null: no limit."""

    @model_validator(mode="after")
    def _web_address(self) -> Self:
        if not self.base_url.startswith(("http://", "https://")):
            raise ValueError(f"base_url {self.base_url!r} is no http(s) address; write http://host:port/v1")
        return self


@dataclass(frozen=True, slots=True)
class Spent:
    """``tries`` are requests sent, ``replies`` those that were whole, ``known`` the calls that the cache answered."""

    tries: int = 0
    replies: int = 0
    known: int = 0
    tokens: Usage = field(default_factory=Usage)

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            self.tries + other.tries, self.replies + other.replies, self.known + other.known, self.tokens + other.tokens
        )


class Endpoint:
    """Threads may share one. ``cache_path`` keeps replies on disk; None: in memory, for the life of the object.

    Raises ValueError where the model has no name or the key's variable is not set.
    """

    def __init__(self, settings: EndpointSettings, cache_path: Path | None = None) -> None:
        if not settings.model:
            raise ValueError("the endpoint's model is empty; name the model as the server knows it (GET /v1/models)")
        headers: dict[str, str] = {}
        key = ""
        if settings.api_key_env is not None:
            key = os.environ.get(settings.api_key_env, "").strip()
            if not key:
                raise ValueError(
                    f"api_key_env: the environment variable {settings.api_key_env} is not set; export it, or set "
                    "api_key_env to null for a server that asks for no key"
                )
            headers["Authorization"] = f"Bearer {key}"
        self._secret = key.encode()
        self.settings = settings
        self._url = f"{settings.base_url.rstrip('/')}/chat/completions"
        limits = httpx.Limits(max_connections=settings.max_concurrent)
        self._client = httpx.Client(headers=headers, limits=limits)
        self._cache = ReplyCache(cache_path)
        self._seats = threading.BoundedSemaphore(settings.max_concurrent)
        self._pace = _Pace(settings.requests_per_second)
        self._spent = Spent()
        self._counting = threading.Lock()

    def chat(self, messages: Sequence[Message], *, seed: int | None = None) -> str:
        """The assistant's text. Another ``seed`` is another sample; the same one is answered from the cache.

        Raises EndpointFault.
        """
        return self._cached(self._body(messages, seed), content_of, str)

    def ask(self, messages: Sequence[Message], schema: type[M], *, seed: int | None = None) -> M:
        """``chat`` whose reply is ``schema``: JSON that fits it, and nothing around it. Raises EndpointFault."""
        body = self._body(messages, seed) | _response_format(schema, self.settings.structured)
        again = self.settings.temperature > 0  # at 0 the same prompt has the same reply

        def read(text: str) -> M:
            try:
                return schema.model_validate_json(text)
            except ValidationError as error:
                message = f"the reply is no {schema.__name__}: {text[:200]!r}"
                raise EndpointFault(FaultReason.BROKEN, message, passing=again) from error

        return self._cached(body, content_of, read, schema.model_json_schema())

    def converse(
        self, messages: Sequence[ChatTurn], tools: Sequence[Mapping[str, Any]], *, seed: int | None = None
    ) -> Completion:
        """The whole reply of a model that may call ``tools``; cached like that of ``chat``. Raises EndpointFault."""
        body = self._body(messages, seed) | ({"tools": list(tools), "parallel_tool_calls": False} if tools else {})
        return self._cached(body, Completion.model_dump_json, Completion.model_validate_json)

    @property
    def spent(self) -> Spent:
        """Since the object was made."""
        with self._counting:
            return self._spent

    def each(self, call: Callable[[T], R], items: Iterable[T]) -> list[R | EndpointFault]:
        """``call`` of every item, side by side, in order; a fault stands in the place of its result.

        Once ``max_concurrent`` calls in a row have spent their deadlines in vain the endpoint counts as dead, and the
        items that are left get that fault unasked: one after the other, they would wait for hours.
        """
        watch = _DeadWatch(self.settings.max_concurrent)

        def one(item: T) -> R | EndpointFault:
            if watch.fault is not None:
                return watch.fault
            try:
                result = call(item)
            except EndpointFault as fault:
                watch.failed(fault)
                return fault
            watch.worked()
            return result

        with ThreadPoolExecutor(self.settings.max_concurrent, thread_name_prefix="endpoint") as pool:
            try:
                return list(pool.map(one, items))
            except BaseException:  # Ctrl-C too: what waits in the queue is not begun
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def close(self) -> None:
        self._client.close()
        self._cache.close()

    def _body(self, messages: Sequence[ChatTurn], seed: int | None) -> dict[str, Any]:
        settings = self.settings
        body: dict[str, Any] = {
            "model": settings.model,
            "messages": [dict(message) for message in messages],
            "temperature": settings.temperature,
            "max_tokens": settings.max_tokens,
        }
        return body if seed is None else body | {"seed": seed}

    def _cached(
        self, body: dict[str, Any], kept: Callable[[Completion], str], read: Callable[[str], T], schema: object = None
    ) -> T:
        """``read`` of the text that is ``kept`` of a reply; the server is asked where no such text is known."""
        asked = json.dumps([self._url, body, schema], sort_keys=True)
        known = self._cache.get(asked)
        if known is not None:
            self._count(Spent(known=1))
            return read(known)
        deadline = time.monotonic() + self.settings.deadline_seconds

        def one_try() -> tuple[str, T]:
            text = kept(self._post(body, deadline))
            return text, read(text)

        text, result = retried(one_try, self.settings)
        self._cache.put(asked, text)
        return result

    def _count(self, more: Spent) -> None:
        with self._counting:
            self._spent += more

    def _post(self, body: dict[str, Any], deadline: float) -> Completion:
        """One try. Raises EndpointFault."""
        if not self._seats.acquire(timeout=max(deadline - time.monotonic(), 0.0)):
            raise EndpointFault(FaultReason.TIMEOUT, "no free connection before the deadline", passing=False)
        try:
            self._pace.wait()
            self._count(Spent(tries=1))
            end = min(deadline, time.monotonic() + self.settings.timeout_seconds)
            status, headers, data = self._exchange(json.dumps(body).encode(), end)
        finally:
            self._seats.release()
        completion = completion_of(status, headers, data)
        self._count(Spent(replies=1, tokens=completion.tokens))
        return completion

    def _exchange(self, body: bytes, end: float) -> tuple[int, httpx.Headers, bytes]:
        left = end - time.monotonic()
        late = f"no whole reply within {self.settings.timeout_seconds:g} s (timeout_seconds) or the deadline"
        if left <= 0:
            raise EndpointFault(FaultReason.TIMEOUT, late, passing=False)
        data = bytearray()
        try:
            with self._client.stream(
                "POST", self._url, content=body, headers={"Content-Type": "application/json"}, timeout=left
            ) as reply:
                for chunk in reply.iter_bytes():
                    data += chunk
                    if time.monotonic() > end:  # httpx times each read, not the whole: a server may drip for ever
                        raise EndpointFault(FaultReason.TIMEOUT, late)
                    if len(data) > _MAX_REPLY_BYTES:
                        raise EndpointFault(FaultReason.BROKEN, f"a reply of over {_MAX_REPLY_BYTES} bytes")
                whole = bytes(data).replace(self._secret, b"***") if self._secret else bytes(data)
                return reply.status_code, reply.headers, whole
        except httpx.TimeoutException as error:
            raise EndpointFault(FaultReason.TIMEOUT, late) from error
        except (httpx.RemoteProtocolError, httpx.ReadError, httpx.DecodingError) as error:
            raise EndpointFault(FaultReason.TRUNCATED, f"the connection broke inside the reply: {error}") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise EndpointFault(FaultReason.UNREACHABLE, f"{self._url}: {error}") from error


def _response_format(schema: type[BaseModel], kind: str) -> dict[str, Any]:
    if kind == "off":
        return {}
    if kind == "json_object":
        return {"response_format": {"type": "json_object"}}
    described = {"name": schema.__name__, "strict": True, "schema": schema.model_json_schema()}
    return {"response_format": {"type": "json_schema", "json_schema": described}}


class _Pace:
    """Requests start at least ``1 / per_second`` seconds apart, whichever thread asks."""

    def __init__(self, per_second: float | None) -> None:
        self._gap = 1.0 / per_second if per_second else 0.0
        self._next = 0.0
        self._lock = threading.Lock()

    def wait(self) -> None:
        with self._lock:
            now = time.monotonic()
            start = max(now, self._next)
            self._next = start + self._gap
        time.sleep(start - now)


class _DeadWatch:
    """``fault`` is the last one, once ``limit`` in a row might have passed and did not. A refusal is a sign of life."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._in_a_row = 0
        self._lock = threading.Lock()
        self.fault: EndpointFault | None = None

    def failed(self, fault: EndpointFault) -> None:
        with self._lock:
            self._in_a_row = self._in_a_row + 1 if fault.passing else 0
            if self._in_a_row >= self._limit:
                self.fault = fault

    def worked(self) -> None:
        with self._lock:
            self._in_a_row = 0
