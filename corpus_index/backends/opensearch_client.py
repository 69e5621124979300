"""How we reach an OpenSearch node: its address, the credentials, TLS, retries with a deadline, and what errors mean.

Credentials come from the environment only: ``FUTARI_OPENSEARCH_USER`` and ``FUTARI_OPENSEARCH_PASSWORD``, and
``FUTARI_OPENSEARCH_CA`` for a certificate authority of one's own. They are in no locator, message or log.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import random
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

from opensearchpy import (
    AsyncOpenSearch,
    ConnectionTimeout,
    ImproperlyConfigured,
    OpenSearch,
    OpenSearchException,
    SerializationError,
    SSLError,
    TransportError,
)
from opensearchpy import ConnectionError as NodeConnectionError

from corpus_index.backends.base import IndexMissing, IndexUnavailable, QueryRejected

USER, PASSWORD, CA = "FUTARI_OPENSEARCH_USER", "FUTARI_OPENSEARCH_PASSWORD", "FUTARI_OPENSEARCH_CA"
FORM = "opensearch:URL/NAME, such as opensearch:http://127.0.0.1:9200/mail"
POOL = 32  # requests that one client has on their way at once; the others wait for a place
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,199}")
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_BUSY = frozenset({429, 502, 503, 504})
_TLS_TYPES = ("SSL", "Certificate")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Address:
    """``url``: scheme, host and port, and a path where a proxy asks for one. ``name``: the alias that is searched."""

    url: str
    name: str

    @property
    def locator(self) -> str:
        return f"opensearch:{self.url}/{self.name}"


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds. One request may take ``timeout``; no retry starts once ``deadline`` would be over. The pause before a
    retry doubles from ``first_pause`` up to ``longest_pause``, times a random 0.5 to 1.5."""

    timeout: float = 10.0
    deadline: float = 10.0
    first_pause: float = 0.1
    longest_pause: float = 3.0


SEARCHING = Patience()
BUILDING = Patience(timeout=120.0, deadline=600.0, first_pause=0.5, longest_pause=30.0)


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
        "max_retries": 0,  # retries are ours: they know the deadline
        "http_compress": False,
    }
    if user:
        options["http_auth"] = (user, password)
    if authority and url.scheme == "https":
        options["ca_certs"] = authority
    # The library warns about every failed request before we retry or raise.
    logging.getLogger("opensearch").setLevel(logging.ERROR)
    return options


class Connection:
    """The blocking client, for any number of threads."""

    def __init__(self, address: Address, patience: Patience = SEARCHING, pool: int = POOL) -> None:
        self.address, self.patience = address, patience
        self.client = OpenSearch(**client_options(address), pool_maxsize=pool, timeout=patience.timeout)

    def ask(self, call: Callable[[OpenSearch, float], T]) -> T:
        """``call(client, timeout)``, again where the node is busy or away. Raises IndexUnavailable, QueryRejected."""
        started = time.monotonic()
        for attempt in itertools.count():
            try:
                return call(self.client, _time_left(started, self.patience))
            except (OpenSearchException, ImproperlyConfigured, UnicodeError) as error:
                pause = pause_before_retry(error, attempt, started, self.patience)
                if pause is None:
                    raise explained(error, self.address) from error
            time.sleep(pause)
        raise AssertionError("unreachable: the loop ends by returning or raising")

    def close(self) -> None:
        self.client.close()


class AsyncConnection:
    """The asyncio client: at most ``pool`` requests at once, the others wait without a clock running.

    It opens with its first request and may be used again after ``close``. A client belongs to one event loop: used
    from another one, it opens a new client there.
    """

    def __init__(self, address: Address, patience: Patience = SEARCHING, pool: int = POOL) -> None:
        client_options(address)  # complain here, not in the middle of a rollout
        self.address, self.patience, self._pool = address, patience, pool
        self._open: tuple[asyncio.AbstractEventLoop, AsyncOpenSearch, asyncio.Semaphore] | None = None

    async def ask(self, call: Callable[[AsyncOpenSearch, float], Awaitable[T]]) -> T:
        """As ``Connection.ask``, without holding up the loop."""
        client, places = self._opened()
        async with places:
            started = time.monotonic()
            for attempt in itertools.count():
                try:
                    return await call(client, _time_left(started, self.patience))
                except (OpenSearchException, ImproperlyConfigured, UnicodeError) as error:
                    pause = pause_before_retry(error, attempt, started, self.patience)
                    if pause is None:
                        raise explained(error, self.address) from error
                await asyncio.sleep(pause)
        raise AssertionError("unreachable: the loop ends by returning or raising")

    async def close(self) -> None:
        held, self._open = self._open, None
        if held is not None and held[0] is asyncio.get_running_loop():
            await held[1].close()

    def _opened(self) -> tuple[AsyncOpenSearch, asyncio.Semaphore]:
        loop = asyncio.get_running_loop()
        if self._open is None or self._open[0] is not loop:
            options = client_options(self.address)
            client = AsyncOpenSearch(**options, maxsize=self._pool, timeout=self.patience.timeout)
            self._open = (loop, client, asyncio.Semaphore(self._pool))
        return self._open[1], self._open[2]


def pause_before_retry(error: Exception, attempt: int, started: float, patience: Patience) -> float | None:
    """Seconds to wait before attempt ``attempt + 1``, or None where another one is no use or comes too late."""
    if not worth_retrying(error):
        return None
    pause = min(patience.first_pause * 2.0**attempt, patience.longest_pause) * random.uniform(0.5, 1.5)
    return pause if time.monotonic() - started + pause < patience.deadline else None


def worth_retrying(error: Exception) -> bool:
    """A node that is busy, restarting or out of reach; not one that says no."""
    if isinstance(error, NodeConnectionError):  # also timeouts
        return not _is_tls(error)
    return isinstance(error, TransportError) and error.status_code in _BUSY


def explained(error: Exception, address: Address) -> IndexUnavailable | QueryRejected:
    """What an error of the client means: QueryRejected where the node refuses the query, else IndexUnavailable."""
    where = f"OpenSearch at {address.url}"
    if isinstance(error, ConnectionTimeout):
        return IndexUnavailable(f"{where} did not answer in time; it is overloaded, or the network drops packets")
    if isinstance(error, NodeConnectionError):
        detail = _short(error.info)
        if _is_tls(error):
            ours = f"name its certificate authority in {CA}, or use http:// if it does not speak TLS"
            return IndexUnavailable(f"{where}: no trusted TLS connection ({detail}); {ours}")
        return IndexUnavailable(f"{where} cannot be reached ({detail}); is it running, and is this its address?")
    if isinstance(error, SerializationError | UnicodeError):
        return IndexUnavailable(f"{where} gave an answer that cannot be read; is this OpenSearch's port?")
    if not isinstance(error, TransportError):
        return IndexUnavailable(f"{where}: {_short(error)}")
    status, kind, reason = error.status_code, *_reason(error)
    if status == 401:
        return IndexUnavailable(f"{where} wants other credentials (401); check {USER} and {PASSWORD}")
    if status == 403:
        return IndexUnavailable(f"{where} refuses this (403: {reason}); give the user the rights, or free some disk")
    if status == 404:
        return IndexMissing(f"no index {address.name} at {address.url}; {rebuild_hint(address)}")
    if status == 400 and "mapping" not in reason.lower():
        return QueryRejected(f"the search engine refuses this query: {reason}")
    if status == 400:  # "No mapping found for [id]": something else lies under this name
        return IndexUnavailable(f"{address.locator} is not an index of ours ({reason}); {rebuild_hint(address)}")
    if status == 429:
        return IndexUnavailable(f"{where} is overloaded (429: {reason}); ask it less at once or give it more memory")
    return IndexUnavailable(f"{where} failed ({status} {kind}: {reason})")


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


def _time_left(started: float, patience: Patience) -> float:
    """Seconds for the next request: never past the deadline, but enough for a node that answers at all."""
    return max(min(patience.timeout, started + patience.deadline - time.monotonic()), 0.1)


def _short(value: object) -> str:
    return " ".join(str(value).split())[:200]
