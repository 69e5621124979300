"""How we reach an OpenSearch node: its address, the credentials, TLS, and what errors mean.

Credentials come from the environment only: ``FUTARI_OPENSEARCH_USER`` and ``FUTARI_OPENSEARCH_PASSWORD``, and
``FUTARI_OPENSEARCH_CA`` for a certificate authority of one's own. They are in no locator, message or log.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

import orjson
from opensearchpy import (
    AsyncOpenSearch,
    ConnectionTimeout,
    ImproperlyConfigured,
    JSONSerializer,
    OpenSearch,
    OpenSearchException,
    SerializationError,
    SSLError,
    TransportError,
)
from opensearchpy import ConnectionError as NodeConnectionError

from corpus_index.backends.base import IndexMissing, IndexUnavailable, QueryRejected
from corpus_index.retries import RetrySettings, retried

USER, PASSWORD, CA = "FUTARI_OPENSEARCH_USER", "FUTARI_OPENSEARCH_PASSWORD", "FUTARI_OPENSEARCH_CA"
FORM = "opensearch:URL/NAME, such as opensearch:http://127.0.0.1:9200/mail"
POOL = 32  # requests that one client has on their way at once; the others wait for a place
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,199}")
_BUSY = frozenset({429, 502, 503, 504})  # of the answers of 400 and above those that may pass
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_TLS_TYPES = ("SSL", "Certificate")

CLIENT_ERRORS = (OpenSearchException, ImproperlyConfigured, UnicodeError)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Address:
    """``url``: scheme, host and port, and a path where a proxy asks for one. ``name``: the alias that is searched."""

    url: str
    name: str

    @property
    def locator(self) -> str:
        return f"opensearch:{self.url}/{self.name}"


# One request's time-out in seconds. Searches are tried once here: who searches knows how long an answer may take.
SEARCH_TIMEOUT, BUILD_TIMEOUT = 10.0, 120.0
OPENING = RetrySettings(deadline_seconds=10.0)
BUILDING = RetrySettings(
    retries=1000, backoff_seconds=0.5, longest_backoff_seconds=30.0, deadline_seconds=600.0
)  # a build of hours waits for a node that restarts


def parse_address(locator: str) -> Address:
    """Raises ValueError for anything but ``opensearch:URL/NAME``, and for credentials in it."""
    scheme, _, rest = locator.partition(":")
    url = urlsplit(rest)
    if "@" in url.netloc:  # before anything is shown: the message must not hold a password
        raise ValueError(f"index locator: credentials do not belong in it; set {USER} and {PASSWORD}, write {FORM}")
    try:
        port = url.port
    except ValueError:
        port = -1
    prefix, _, name = url.path.rpartition("/")
    if scheme != "opensearch" or url.scheme not in ("http", "https") or not url.hostname or port == -1:
        raise ValueError(f"index {locator!r} is not a locator; write {FORM}")
    if url.query or url.fragment or not _NAME.fullmatch(name):
        expected = "expected lower-case letters, digits, '_', '-' and '.', beginning with a letter or digit"
        raise ValueError(f"index {locator!r}: {name!r} is not an index name; {expected}. Write {FORM}")
    host = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
    port = port or (443 if url.scheme == "https" else 80)
    return Address(f"{url.scheme}://{host}:{port}{prefix}", name)


def client_options(address: Address) -> dict[str, Any]:
    """Keyword arguments of both clients. Raises ValueError where the environment's settings cannot be used."""
    url = urlsplit(address.url)
    user, password, authority = (os.environ.get(name, "") for name in (USER, PASSWORD, CA))
    if bool(user) != bool(password):
        raise ValueError(f"{USER if user else PASSWORD} is set without the other; set both or neither")
    if user and url.scheme == "http" and url.hostname not in _LOOPBACK:
        raise ValueError(f"{USER} is set, and {address.url} would carry the password in the clear; use https://")
    if authority and not Path(authority).exists():
        raise ValueError(f"{CA}={authority!r} is not there; name a PEM file or a folder of them")
    options: dict[str, Any] = {
        "hosts": [address.url],
        "use_ssl": url.scheme == "https",
        "verify_certs": True,
        "max_retries": 0,  # see corpus_index.retries
        "serializer": _Json(),
        "http_compress": False,
    }
    if user:
        options["http_auth"] = (user, password)
    if authority and url.scheme == "https":
        options["ca_certs"] = authority
    # The library warns about every failed request before we retry or raise.
    logging.getLogger("opensearch").setLevel(logging.ERROR)
    return options


class _Json(JSONSerializer):
    """The client's own, but faster: reading the answers is a good part of a search's cost on our side."""

    def loads(self, s: str) -> Any:
        try:
            return orjson.loads(s)
        except ValueError as error:
            raise SerializationError(s, error) from error

    def dumps(self, data: Any) -> Any:
        return super().dumps(data) if isinstance(data, str | bytes) else orjson.dumps(data).decode()


class Connection:
    """The blocking client, for any number of threads. Without ``retries`` a request is tried once."""

    def __init__(
        self,
        address: Address,
        *,
        timeout: float = SEARCH_TIMEOUT,
        retries: RetrySettings | None = None,
        pool: int = POOL,
    ) -> None:
        self.address, self.retries = address, retries
        self.client = OpenSearch(**client_options(address), pool_maxsize=pool, timeout=timeout)

    def ask(self, call: Callable[[OpenSearch], T], retries: RetrySettings | None = None) -> T:
        """``call(client)``. Raises IndexUnavailable, after ``retries`` or the connection's own, and QueryRejected."""
        patience = retries or self.retries
        return self._once(call) if patience is None else retried(lambda: self._once(call), patience)

    def close(self) -> None:
        self.client.close()

    def _once(self, call: Callable[[OpenSearch], T]) -> T:
        try:
            return call(self.client)
        except CLIENT_ERRORS as error:
            raise explained(error, self.address) from error


class AsyncConnection:
    """The asyncio client: at most ``pool`` requests at once, the others wait without a clock running.

    It opens with its first request and may be used again after ``close``. A client belongs to one event loop: used
    from another one, it opens a new client there.
    """

    def __init__(self, address: Address, *, timeout: float = SEARCH_TIMEOUT, pool: int = POOL) -> None:
        client_options(address)  # complain here, not in the middle of a rollout
        self.address, self._timeout, self._pool = address, timeout, pool
        self._open: tuple[asyncio.AbstractEventLoop, AsyncOpenSearch, asyncio.Semaphore] | None = None

    async def ask(self, call: Callable[[AsyncOpenSearch], Awaitable[T]]) -> T:
        """``call(client)``, once. Raises IndexUnavailable, QueryRejected."""
        client, places = self._opened()
        async with places:
            try:
                return await call(client)
            except CLIENT_ERRORS as error:
                raise explained(error, self.address) from error

    async def close(self) -> None:
        held, self._open = self._open, None
        if held is not None and held[0] is asyncio.get_running_loop():
            await held[1].close()

    def _opened(self) -> tuple[AsyncOpenSearch, asyncio.Semaphore]:
        loop = asyncio.get_running_loop()
        if self._open is None or self._open[0] is not loop:
            client = AsyncOpenSearch(**client_options(self.address), maxsize=self._pool, timeout=self._timeout)
            self._open = (loop, client, asyncio.Semaphore(self._pool))
        return self._open[1], self._open[2]


def explained(error: Exception, address: Address) -> IndexUnavailable | QueryRejected:
    """What an error of the client means: QueryRejected where the node refuses the query, else IndexUnavailable."""
    where = f"OpenSearch at {address.url}"
    if isinstance(error, ConnectionTimeout):
        return IndexUnavailable(f"{where} did not answer in time; it is overloaded, or the network drops packets")
    if isinstance(error, NodeConnectionError):
        detail = _short(error.info)
        if _is_tls(error):
            ours = f"name its certificate authority in {CA}, or use http:// if it does not speak TLS"
            return IndexUnavailable(f"{where}: no trusted TLS connection ({detail}); {ours}", passing=False)
        return IndexUnavailable(f"{where} cannot be reached ({detail}); is it running, and is this its address?")
    if isinstance(error, SerializationError | UnicodeError):
        return IndexUnavailable(f"{where} gave an answer that cannot be read; is this OpenSearch's port?")
    if not isinstance(error, TransportError):
        return IndexUnavailable(f"{where}: {_short(error)}")
    status, kind, reason = error.status_code, *_reason(error)
    if status == 401:
        return IndexUnavailable(f"{where} wants other credentials (401); check {USER} and {PASSWORD}", passing=False)
    if status == 403:
        todo = "give the user the rights, or free some disk"
        return IndexUnavailable(f"{where} refuses this (403: {reason}); {todo}", passing=False)
    if status == 404:
        return IndexMissing(f"no index {address.name} at {address.url}; {rebuild_hint(address)}", passing=False)
    if status == 400 and "mapping" not in reason.lower():
        return QueryRejected(f"the search engine refuses this query: {reason}")
    if status == 400:  # "No mapping found for [id]": something else lies under this name
        hint = f"{address.locator} is not an index of ours ({reason}); {rebuild_hint(address)}"
        return IndexUnavailable(hint, passing=False)
    if status == 429:
        return IndexUnavailable(f"{where} is overloaded (429: {reason}); ask it less at once or give it more memory")
    return IndexUnavailable(f"{where} failed ({status} {kind}: {reason})", passing=status in _BUSY)


def rebuild_hint(address: Address) -> str:
    return f"build it with: python -m corpus_index build --source SOURCE --index {address.locator}"


def _reason(error: TransportError) -> tuple[str, str]:
    """(type, reason) of the innermost cause that the node names."""
    info = error.info
    cause: object = cast("dict[str, object]", info).get("error") if isinstance(info, dict) else None
    if isinstance(cause, dict):
        cause = cast("dict[str, object]", cause)
        roots = cause.get("root_cause")
        if isinstance(roots, list) and roots and isinstance(roots[0], dict):
            cause = cast("dict[str, object]", roots[0])
        return str(cause.get("type", "error")), _short(cause.get("reason", "no reason given"))
    return str(error.error), _short(cause or info or "no reason given")


def _is_tls(error: TransportError) -> bool:
    if isinstance(error, SSLError):
        return True
    cause: object = error.info
    while isinstance(cause, BaseException):
        if any(mark in type(cause).__name__ for mark in _TLS_TYPES):
            return True
        cause = cause.__cause__
    return False


def _short(value: object) -> str:
    return " ".join(str(value).split())[:200]
