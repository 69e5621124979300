"""The OpenSearch backend: the same answers as the embedded index, from a node or a cluster.

``OpenSearchIndex`` blocks its thread, ``AsyncOpenSearchIndex`` serves hundreds of episodes from one event loop; both
compile a request, send it and decode the answer with the same functions. They search an alias: after a rebuild they
see the new index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from opensearchpy import AsyncOpenSearch, OpenSearch

from corpus_index.backends.base import ID, IndexStats, IndexUnavailable, SearchResult
from corpus_index.backends.opensearch_answers import Answer, Reader, Search
from corpus_index.backends.opensearch_client import (
    OPENING,
    AsyncConnection,
    Connection,
    parse_address,
    rebuild_hint,
)
from corpus_index.backends.opensearch_mapping import FORMAT, META
from corpus_index.backends.opensearch_query import Dsl, all_of, compile_query, read_body
from corpus_index.document import Document
from corpus_index.query import Query
from corpus_index.retries import RetrySettings
from corpus_index.scope import MailScope

_PAGE = 5_000  # ids a request
# A shard that fails is an error, never a shorter answer; and several shards score as one.
_WHOLE = {"allow_partial_search_results": "false", "search_type": "dfs_query_then_fetch"}

Scopes = tuple[MailScope, ...]


class OpenSearchIndex:
    """A SearchIndex over an alias, or a view of it where ``scopes`` are given; may be shared by threads."""

    def __init__(self, connection: Connection, shared: AsyncConnection, reader: Reader, scopes: Scopes = ()) -> None:
        self._connection, self._shared = connection, shared
        self._reader, self._scopes = reader, scopes
        self._closed = False

    @classmethod
    def open(cls, locator: str) -> OpenSearchIndex:
        """Raises IndexMissing; IndexUnavailable where the node is not there or another version built the index."""
        address = parse_address(locator)
        connection = Connection(address)
        live_index(connection)
        return cls(connection, AsyncConnection(address), Reader(address))

    @property
    def locator(self) -> str:
        return self._connection.address.locator

    def search(self, query: Query, *, snippet_chars: int = 160) -> SearchResult:
        """Raises QueryRejected where a text of the query holds no word, or the node refuses the query."""
        search = Search(compile_query(query, self._reader.words, self._scopes), query.limit, snippet_chars)
        send = partial(_send, name=self._name)
        if self._reader.asked(search):
            answer = self._ask(partial(send, body=search.body(mails=False)))
            if (known := self._reader.again(answer, search)) is not None:
                return known
        answer = self._ask(partial(send, body=search.body()))
        return self._reader.result(answer, search)

    def read(self, document_id: str) -> Document | None:
        if not ID.fullmatch(document_id):
            return None
        answer = self._ask(partial(_send, name=self._name, body=read_body(document_id, self._scopes)))
        return self._reader.document(answer, self._scopes)

    def ids(self) -> Iterator[str]:
        """All ids in ascending order, some thousand a request, from the index that is live when it starts."""
        name, after = live_index(self._connection).name, list[object]()
        while True:
            body: Dsl = {"query": all_of(self._scopes), "size": _PAGE, "sort": [{"id": "asc"}], "_source": False}
            if after:
                body["search_after"] = after
            hits = self._reader.hits(self._ask(partial(_send, name=name, body=body), OPENING))
            yield from (hit["sort"][0] for hit in hits)
            if len(hits) < _PAGE:
                return
            after = hits[-1]["sort"]

    def stats(self) -> IndexStats:
        """Of a view: ``documents`` counts the allowed mails, the bytes are those of the whole index."""
        query = {"query": all_of(self._scopes)}
        count = self._ask(lambda client: client.count(index=self._name, body=query), OPENING)
        size = self._ask(lambda client: client.indices.stats(index=self._name, metric="store"), OPENING)
        if count["_shards"]["failed"]:
            raise IndexUnavailable(f"{self.locator}: a shard cannot count; look at the cluster's health")
        return IndexStats(count["count"], size["_all"]["primaries"]["store"]["size_in_bytes"], self.locator)

    def within(self, scope: MailScope) -> OpenSearchIndex:
        self._check_open()
        return OpenSearchIndex(self._connection, self._shared, self._reader, (*self._scopes, scope))

    def asynchronous(self) -> AsyncOpenSearchIndex:
        """The same view for an event loop; all of one index share a client."""
        return AsyncOpenSearchIndex(self._shared, self._reader, self._scopes)

    def close(self) -> None:
        self._closed = True
        if not self._scopes:
            self._connection.close()

    @property
    def _name(self) -> str:
        return self._connection.address.name

    def _ask(self, call: Callable[[OpenSearch], Any], retries: RetrySettings | None = None) -> Answer:
        self._check_open()
        return self._connection.ask(call, retries)

    def _check_open(self) -> None:
        if self._closed:
            raise IndexUnavailable(f"{self.locator} has been closed; open it again", passing=False)


class AsyncOpenSearchIndex:
    """An AsyncSearchIndex, made by ``OpenSearchIndex.asynchronous``.

    Closing that one closes the client (a later request opens it again); closing a view of it closes nothing.
    """

    def __init__(self, connection: AsyncConnection, reader: Reader, scopes: Scopes = (), *, owner: bool = True) -> None:
        self._connection, self._reader, self._scopes = connection, reader, scopes
        self._owner = owner

    @property
    def locator(self) -> str:
        return self._connection.address.locator

    async def search(self, query: Query, *, snippet_chars: int = 160) -> SearchResult:
        """As OpenSearchIndex.search."""
        search = Search(compile_query(query, self._reader.words, self._scopes), query.limit, snippet_chars)
        send = partial(_send, name=self._connection.address.name)
        if self._reader.asked(search):
            answer = await self._connection.ask(partial(send, body=search.body(mails=False)))
            if (known := self._reader.again(answer, search)) is not None:
                return known
        answer = await self._connection.ask(partial(send, body=search.body()))
        return self._reader.result(answer, search)

    async def read(self, document_id: str) -> Document | None:
        if not ID.fullmatch(document_id):
            return None
        name = self._connection.address.name
        answer = await self._connection.ask(partial(_send, name=name, body=read_body(document_id, self._scopes)))
        return self._reader.document(answer, self._scopes)

    def within(self, scope: MailScope) -> AsyncOpenSearchIndex:
        return AsyncOpenSearchIndex(self._connection, self._reader, (*self._scopes, scope), owner=False)

    async def close(self) -> None:
        if self._owner:
            await self._connection.close()


@dataclass(frozen=True, slots=True)
class LiveIndex:
    """The index behind an alias, and what its builder noted in it."""

    name: str
    notes: Mapping[str, Any]


def live_index(connection: Connection) -> LiveIndex:
    """Raises IndexUnavailable where there is none, it is not ours, or another version built it."""
    address = connection.address
    found: Answer = connection.ask(
        lambda client: client.indices.get_mapping(index=address.name), connection.retries or OPENING
    )
    if len(found) != 1:
        held = f"{len(found)} indexes ({', '.join(found)})"
        raise IndexUnavailable(f"{address.locator} stands for {held}, not for one", passing=False)
    ((name, held),) = found.items()
    notes = held.get("mappings", {}).get("_meta", {}).get(META, {})
    built = {key: notes.get(key) for key in FORMAT}
    if built != FORMAT or "documents" not in notes:
        raise IndexUnavailable(
            f"{address.locator} was built as {built}, this version reads {FORMAT}; {rebuild_hint(address)}",
            passing=False,
        )
    return LiveIndex(name, notes)


def _send(client: OpenSearch | AsyncOpenSearch, *, name: str, body: Dsl) -> Any:
    """A search. Returns what the client returns: the answer, or an awaitable of it."""
    return client.search(index=name, body=body, params=_WHOLE)
