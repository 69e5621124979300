"""Addresses, credentials, retries and what an error means, against a small server that misbehaves to order."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import time

import pytest
from bad_server import serving
from opensearchpy import ConnectionError as NodeConnectionError
from opensearchpy import ConnectionTimeout, NotFoundError, RequestError, SerializationError, TransportError

from corpus_index.backends.base import IndexMissing, IndexUnavailable, QueryRejected
from corpus_index.backends.opensearch import AsyncOpenSearchIndex, OpenSearchIndex
from corpus_index.backends.opensearch_answers import Reader
from corpus_index.backends.opensearch_client import (
    Address,
    AsyncConnection,
    Connection,
    client_options,
    explained,
    parse_address,
)
from corpus_index.backends.opensearch_mapping import encoded
from corpus_index.document import Document
from corpus_index.query import KeywordQuery
from corpus_index.retries import RetrySettings, retried, retried_async
from corpus_index.scope import MailScope

QUICK, PATIENT = 0.5, 5.0  # seconds that one request may take
AGAIN = RetrySettings(retries=4, backoff_seconds=0.01)
MAIL = Document(id="m1", subject="Gas", body="the gas desk", mailbox="allen-p")
GAS = KeywordQuery(keywords=("gas",))


def found(source: dict[str, object]) -> dict[str, object]:
    hit = {"_index": "mail-1", "_id": "m1", "_source": source, "sort": [1.25, "m1"]}
    return {"timed_out": False, "_shards": {"failed": 0}, "hits": {"total": {"value": 1}, "hits": [hit]}}


FOUND = found(encoded(MAIL))


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("USER", "PASSWORD", "CA"):
        monkeypatch.delenv(f"FUTARI_OPENSEARCH_{name}", raising=False)


# --- addresses and credentials ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("locator", "url", "name"),
    [
        ("opensearch:http://127.0.0.1:9200/mail", "http://127.0.0.1:9200", "mail"),
        ("opensearch:https://search.example.com/enron-2", "https://search.example.com:443", "enron-2"),
        ("opensearch:http://[::1]:9200/a.b_c", "http://[::1]:9200", "a.b_c"),
        ("opensearch:https://proxy:8443/team/os/mail", "https://proxy:8443/team/os", "mail"),
    ],
)
def test_an_address(locator: str, url: str, name: str) -> None:
    assert parse_address(locator) == Address(url, name)
    assert parse_address(parse_address(locator).locator) == Address(url, name)


@pytest.mark.parametrize(
    "locator",
    [
        "opensearch:",
        "opensearch:mail",
        "opensearch:ftp://h/mail",
        "opensearch:http:///mail",
        "opensearch:http://h:port/mail",
        "opensearch:http://h:9200",
        "opensearch:http://h:9200/",
        "opensearch:http://h:9200/Mail",
        "opensearch:http://h:9200/mail*",
        "opensearch:http://h:9200/_all",
        "opensearch:http://h:9200/mail?pretty",
        "embedded:/tmp/x",
    ],
)
def test_no_address(locator: str) -> None:
    with pytest.raises(ValueError, match=r"opensearch:URL/NAME, such as"):
        parse_address(locator)


def test_credentials_in_the_locator_are_refused_unseen() -> None:
    with pytest.raises(ValueError, match="FUTARI_OPENSEARCH_USER") as caught:
        parse_address("opensearch:https://ann:geheim@h:9200/mail")
    assert "geheim" not in str(caught.value)


def test_credentials_come_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    far, near = Address("https://search.example.com:443", "mail"), Address("http://127.0.0.1:9200", "mail")
    assert "http_auth" not in client_options(far)
    monkeypatch.setenv("FUTARI_OPENSEARCH_USER", "ann")
    with pytest.raises(ValueError, match="without the other"):
        client_options(far)
    monkeypatch.setenv("FUTARI_OPENSEARCH_PASSWORD", "geheim")
    assert client_options(far)["http_auth"] == ("ann", "geheim")
    assert (client_options(far)["use_ssl"], client_options(far)["verify_certs"]) == (True, True)
    assert client_options(near)["http_auth"] == ("ann", "geheim")
    with pytest.raises(ValueError, match="in the clear; use https") as caught:
        client_options(Address("http://search.example.com:9200", "mail"))
    assert "geheim" not in str(caught.value)
    monkeypatch.setenv("FUTARI_OPENSEARCH_CA", str(tmp_path / "ca.pem"))
    with pytest.raises(ValueError, match=r"ca\.pem' is not there"):
        client_options(far)
    (tmp_path / "ca.pem").write_text("")
    assert client_options(far)["ca_certs"] == str(tmp_path / "ca.pem")


# --- errors -------------------------------------------------------------------------------------------------------

HERE = Address("http://127.0.0.1:9200", "mail")


def because(status: int, kind: str, reason: str) -> TransportError:
    info = {"error": {"type": "outer", "reason": "outer", "root_cause": [{"type": kind, "reason": reason}]}}
    return {400: RequestError, 404: NotFoundError}.get(status, TransportError)(status, kind, info)


@pytest.mark.parametrize(
    ("error", "kind", "message", "again"),
    [
        (ConnectionTimeout("TIMEOUT", "read timed out", None), IndexUnavailable, "did not answer in time", True),
        (NodeConnectionError("N/A", "refused", OSError("refused")), IndexUnavailable, "cannot be reached", True),
        (because(429, "rejected", "queue full"), IndexUnavailable, r"overloaded \(429: queue full\)", True),
        (because(503, "no_shard", "no master"), IndexUnavailable, "failed .503 no_shard: no master", True),
        (because(500, "oops", "broke"), IndexUnavailable, "failed .500 oops: broke", False),
        (because(401, "auth", "no"), IndexUnavailable, "FUTARI_OPENSEARCH_PASSWORD", False),
        (because(403, "block", "read-only"), IndexUnavailable, "403: read-only", False),
        (because(404, "gone", "no"), IndexMissing, "no index mail at .*corpus_index build", False),
        (because(400, "too_many_clauses", "field [body] has 2000"), QueryRejected, r"field \[body\] has 2000", False),
        (because(400, "query", "No mapping found for [id]"), IndexUnavailable, "not an index of ours", False),
        (TransportError(502, "<html>bad gateway", ""), IndexUnavailable, "failed .502", True),
        (SerializationError("x", ValueError()), IndexUnavailable, "cannot be read", True),
    ],
)
def test_what_an_error_means(error: Exception, kind: type[Exception], message: str, again: bool) -> None:
    meant = explained(error, HERE)
    assert type(meant) is kind
    assert re.search(message, str(meant)), str(meant)
    assert getattr(meant, "passing", False) == again
    tries: list[int] = []

    def ask() -> None:
        tries.append(1)
        raise meant

    with pytest.raises(kind):
        retried(ask, AGAIN)
    assert len(tries) == (5 if again else 1)


# --- a server that misbehaves -------------------------------------------------------------------------------------


def blocking(address: Address, timeout: float = QUICK) -> OpenSearchIndex:
    shared = AsyncConnection(address, timeout=timeout)
    return OpenSearchIndex(Connection(address, timeout=timeout), shared, Reader(address))


def asynchronous(address: Address, timeout: float, pool: int = 8) -> AsyncOpenSearchIndex:
    return AsyncOpenSearchIndex(AsyncConnection(address, timeout=timeout, pool=pool), Reader(address))


def search_both(address: Address, timeout: float = QUICK) -> list[object]:
    """The result, or the error, of the blocking and of the asynchronous index, asked as the tools do."""

    async def ask() -> object:
        index = asynchronous(address, timeout)
        try:
            return await retried_async(lambda: index.search(GAS), AGAIN)
        except (IndexUnavailable, QueryRejected) as error:
            return error
        finally:
            await index.close()

    index = blocking(address, timeout)
    try:
        first: object = retried(lambda: index.search(GAS), AGAIN)
    except (IndexUnavailable, QueryRejected) as error:
        first = error
    finally:
        index.close()
    return [first, asyncio.run(ask())]


BUSY = {"error": {"type": "rejected", "reason": "queue full", "root_cause": []}, "status": 429}


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_node_is_asked_again(status: int) -> None:
    with serving(lambda number, _: (status, BUSY, 0) if number % 3 < 2 else (200, FOUND, 0)) as server:
        for result in search_both(server.address, PATIENT):
            assert [hit.document for hit in result.hits] == [MAIL]  # type: ignore[attr-defined]
        assert server.count == 6


@pytest.mark.parametrize(
    ("status", "body", "kind", "message"),
    [
        (429, BUSY, IndexUnavailable, "overloaded"),
        (503, BUSY, IndexUnavailable, "failed .503"),
        (401, "Unauthorized", IndexUnavailable, "credentials"),
        (400, BUSY, QueryRejected, "queue full"),
        (200, "<html>hello</html>", IndexUnavailable, "cannot be read"),
        (200, {"hello": 1}, IndexUnavailable, "not a search result"),
        (200, {**FOUND, "timed_out": True}, IndexUnavailable, "in time"),
        (200, {**FOUND, "_shards": {"failed": 1}}, IndexUnavailable, "shard"),
        (200, {**FOUND, "terminated_early": True}, QueryRejected, "more than 5,000,000 mails match"),
        (200, found({"x": 1}), IndexUnavailable, "something else than mails"),
    ],
)
def test_bad_answers(status: int, body: object, kind: type[Exception], message: str) -> None:
    with serving(lambda *_: (status, body, 0)) as server:
        for result in search_both(server.address):
            assert type(result) is kind
            assert re.search(message, str(result)), str(result)


def test_a_stalled_node_and_a_closed_port_are_unavailable_within_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as stalled:  # takes the connection, never answers
        address = Address(f"http://127.0.0.1:{stalled.getsockname()[1]}", "mail")
        for result in search_both(address):
            assert isinstance(result, IndexUnavailable)
            assert "did not answer in time" in str(result)
    for result in search_both(address):
        assert isinstance(result, IndexUnavailable)
        assert "cannot be reached" in str(result)


def test_tls_where_the_server_speaks_none() -> None:
    with serving(lambda *_: (200, FOUND, 0)) as server:
        address = Address(server.address.url.replace("http:", "https:"), "mail")
        for result in search_both(address):
            assert isinstance(result, IndexUnavailable)
            assert "no trusted TLS connection" in str(result)
            assert "FUTARI_OPENSEARCH_CA" in str(result)


def test_credentials_travel_in_the_header_and_show_nowhere(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("FUTARI_OPENSEARCH_USER", "ann")
    monkeypatch.setenv("FUTARI_OPENSEARCH_PASSWORD", "geheim")
    caplog.set_level(logging.DEBUG)
    with serving(lambda *_: (500, {"error": "broken"}, 0)) as server:
        results = search_both(server.address)
        assert [line.rpartition(" ")[2] for line in server.seen] == ["YW5uOmdlaGVpbQ=="] * 2
    for text in (*map(str, results), caplog.text):
        assert "geheim" not in text
        assert "YW5uOmdlaGVpbQ" not in text


def test_256_searches_share_a_bounded_pool_and_one_slow_query_blocks_nobody() -> None:
    slow = 3.0

    async def ask(address: Address) -> tuple[list[float], float]:
        index, began = asynchronous(address, PATIENT, pool=8), time.monotonic()
        first = asyncio.create_task(index.search(KeywordQuery(keywords=("slow",))))
        await asyncio.sleep(0.3)  # it is on its way

        async def timed() -> float:
            await index.search(GAS)
            return time.monotonic() - began

        others = await asyncio.gather(*(timed() for _ in range(256)))
        await first
        ended = time.monotonic() - began
        await index.close()
        return others, ended

    with serving(lambda number, _: (200, FOUND, slow if number == 0 else 0)) as server:
        others, ended = asyncio.run(ask(server.address))
        assert server.count == 257
        assert server.most <= 8
        assert sorted(others)[0] < ended  # while the slow one was still out
        assert len(others) == 256


def test_a_search_that_waits_for_a_place_does_not_time_out() -> None:
    """Sixteen requests of 0.2 s through one place take 3 s; each may take 0.5 s."""

    async def ask(address: Address) -> int:
        index = asynchronous(address, QUICK, pool=1)
        results = await asyncio.gather(*(index.search(GAS) for _ in range(16)))
        await index.close()
        return len(results)

    with serving(lambda *_: (200, FOUND, 0.2)) as server:
        assert asyncio.run(ask(server.address)) == 16
        assert server.most == 1


def test_closing_a_view_leaves_the_client_open() -> None:
    async def ask(address: Address) -> int:
        index = asynchronous(address, PATIENT)
        view = index.within(MailScope(folders=("inbox",)))
        await asyncio.gather(view.search(GAS), index.search(GAS))
        await view.close()
        again = asyncio.create_task(index.search(GAS))
        await view.close()
        total = (await again).total
        await index.close()
        return total

    with serving(lambda *_: (200, FOUND, 0)) as server:
        assert asyncio.run(ask(server.address)) == 1


def test_one_index_serves_one_loop_after_another() -> None:
    with serving(lambda *_: (200, FOUND, 0)) as server:
        index = asynchronous(server.address, PATIENT)

        async def ask() -> int:
            try:
                return (await index.search(GAS)).total
            finally:
                await index.close()

        assert [asyncio.run(ask()) for _ in range(3)] == [1, 1, 1]


def test_a_mail_from_outside_is_not_read_even_if_the_node_gives_it() -> None:
    """A belt beside the braces: the filter is in the request, and the answer is checked."""
    with serving(lambda *_: (200, FOUND, 0)) as server:
        index = blocking(server.address, PATIENT)
        assert index.read("m1") == MAIL
        view = index.within(MailScope(mailboxes=("tholt-j",)))
        assert view.read("m1") is None
        assert '"mailbox":["tholt-j"]' in server.seen[-1].replace(" ", "")
        count = server.count
        assert index.read("../_search") is None
        assert server.count == count  # an id that none can have is not even asked for
        view.close()
        with pytest.raises(IndexUnavailable, match="closed"):
            view.read("m1")
        assert index.read("m1") == MAIL
