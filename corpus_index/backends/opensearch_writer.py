"""Builds an OpenSearch index under a name of its own, then turns the alias to it and deletes the old one, in one step.

A build that fails deletes its own new index only. What a killed build left is removed by the next one on its machine.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

from opensearchpy import NotFoundError, OpenSearch, TransportError
from opensearchpy.helpers import parallel_bulk

from corpus_index.backends.base import IndexStats, IndexUnavailable, check_id
from corpus_index.backends.opensearch import OpenSearchIndex, live_index
from corpus_index.backends.opensearch_client import (
    BUILD_TIMEOUT,
    BUILDING,
    OPENING,
    Address,
    Connection,
    client_options,
    explained,
    parse_address,
)
from corpus_index.backends.opensearch_mapping import FORMAT, META, Layout, encoded, index_body
from corpus_index.backends.swap import alive, host
from corpus_index.document import Document
from corpus_index.retries import Backoff

THREADS, CHUNK_DOCUMENTS, CHUNK_BYTES = 4, 500, 5_000_000


@dataclass
class OpenSearchWriter:
    """An IndexWriter for ``opensearch:URL/NAME``."""

    locator: str
    layout: Layout = field(default_factory=Layout)

    def build(self, documents: Iterable[Document]) -> IndexStats:
        """Stream the documents in and swap the new index into place.

        Raises ValueError for a repeated or malformed id, IndexUnavailable where the node is away, refuses documents or
        lost some, and whatever ``documents`` raises; the index that was there stays as it was.
        """
        address = parse_address(self.locator)
        with (
            # For what is no use waiting minutes for: the first look at the node, and tidying up after a failure.
            closing(Connection(address, retries=OPENING)) as hasty,
            closing(Connection(address, timeout=BUILD_TIMEOUT, retries=BUILDING)) as connection,
        ):
            _check_free(hasty)
            _remove_leftovers(connection)
            name = f"{address.name}-{datetime.now(UTC):%Y%m%d%H%M%S}-{uuid.uuid4().hex[:8]}"
            notes = {**FORMAT, "alias": address.name, "builder": {"host": host(), "pid": os.getpid()}}
            self._create(connection, name, notes)
            try:
                count = _fill(address, name, documents)
                _finish(connection, name, count, self.layout)
                notes = {**FORMAT, "alias": address.name, "analyser": self.layout.analyser, "documents": count}
                _note(connection, name, notes)
                _turn_alias(connection, name)
            except BaseException:
                # Not where the alias already points to it: the answer to the last request may have been lost.
                with suppress(Exception):
                    if name not in _behind_alias(hasty):
                        _delete(hasty, name)
                raise
        index = OpenSearchIndex.open(self.locator)
        try:
            return index.stats()
        finally:
            index.close()

    def _create(self, connection: Connection, name: str, notes: Mapping[str, object]) -> None:
        info: Mapping[str, Any] = connection.ask(lambda client: client.info())
        major = int(str(info["version"]["number"]).partition(".")[0])
        body = index_body(self.layout, major, notes)
        try:
            connection.ask(lambda client: client.indices.create(index=name, body=body))
        except ValueError as error:  # a 400 is no query here
            raise IndexUnavailable(f"{connection.address.locator} cannot be created: {error}") from error


def save_report(locator: str, report: Mapping[str, object]) -> None:
    """Note the report of the build in the live index. Raises IndexUnavailable."""
    with closing(Connection(parse_address(locator), retries=OPENING)) as connection:
        live = live_index(connection)
        _note(connection, live.name, {**live.notes, "report": json.dumps(report)})


def load_report(locator: str) -> dict[str, object] | None:
    """The report of the build, or None where none was noted. Raises IndexUnavailable."""
    with closing(Connection(parse_address(locator))) as connection:
        report = live_index(connection).notes.get("report")
    return json.loads(report) if isinstance(report, str) else None


class _PatientClient(OpenSearch):
    """The client for the bulk helper: where the node has no room, its threads wait and send again what was refused.

    While they wait the helper's queue is full, and no more documents are read: that is the back-pressure.
    """

    address: Address

    def bulk(self, *, body: Any, index: Any = None, params: Any = None, headers: Any = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]  (the helper's own call, nothing else)
        lines = cast(str, body).split("\n")  # not splitlines: a mail may hold U+2028
        backoff, items = Backoff(BUILDING), dict[int, dict[str, Any]]()
        waiting = list(range(len(lines) // 2))  # places of documents: an action line and a source line each
        text = cast(str, body)
        while True:
            try:
                answer = super().bulk(body=text, index=index, params=params, headers=headers)
                items.update(zip(waiting, answer["items"], strict=True))
                waiting = [place for place in waiting if items[place]["index"]["status"] == 429]
                error = TransportError(429, "refused", {"error": "documents refused, the node's queue is full"})
            except TransportError as failure:
                error = failure
            if not waiting:
                return {"items": [items[place] for place in sorted(items)]}
            meant = explained(error, self.address)
            pause = backoff.pause(meant) if isinstance(meant, IndexUnavailable) else None
            if pause is None:
                raise meant from error
            time.sleep(pause)
            text = "".join(f"{lines[2 * place]}\n{lines[2 * place + 1]}\n" for place in waiting)


def _fill(address: Address, name: str, documents: Iterable[Document]) -> int:
    """Send all documents. Returns how many."""
    client = _PatientClient(**client_options(address), pool_maxsize=THREADS, timeout=BUILD_TIMEOUT)
    client.address = address
    seen: set[str] = set()
    stopped: list[BaseException] = []

    def actions() -> Iterator[dict[str, object]]:
        try:
            for document in documents:
                check_id(document, seen)
                # The id makes a repeated request harmless: the same mail is written to the same place.
                yield {"_id": document.id, "_source": encoded(document)}
        except Exception:
            raise
        except BaseException as error:  # this runs in a thread of the helper, which would die of it unheard
            stopped.append(error)
            raise RuntimeError("stopped") from error

    try:
        sent = parallel_bulk(
            client,
            actions(),
            thread_count=THREADS,
            queue_size=THREADS,
            chunk_size=CHUNK_DOCUMENTS,
            max_chunk_bytes=CHUNK_BYTES,
            raise_on_error=False,
            index=name,
        )
        for accepted, item in sent:
            if not accepted:
                raise _refused(address, item["index"])
    except RuntimeError:
        if stopped:
            raise stopped[0] from None
        raise
    finally:
        client.close()
    return len(seen)


def _refused(address: Address, item: Mapping[str, Any]) -> IndexUnavailable:
    cause = item.get("error") or {}
    reason = str(cause.get("reason", cause) if isinstance(cause, dict) else cause)[:200]
    return IndexUnavailable(
        f"{address.locator}: mail {item.get('_id')!r} was refused ({item.get('status')}: {reason}); "
        "the index that was there is unchanged"
    )


def _finish(connection: Connection, name: str, count: int, layout: Layout) -> None:
    """Make everything searchable, count it, and give the index its settings for serving."""
    connection.ask(lambda client: client.indices.refresh(index=name))
    held = connection.ask(lambda client: client.count(index=name))["count"]
    if held != count:
        raise IndexUnavailable(f"the new index holds {held} mails, not the {count} that were sent; build it again")
    settings = {"index": {"refresh_interval": None, "auto_expand_replicas": layout.replicas}}
    connection.ask(lambda client: client.indices.put_settings(index=name, body=settings))


def _note(connection: Connection, name: str, notes: Mapping[str, object]) -> None:
    body = {"_meta": {META: dict(notes)}}
    connection.ask(lambda client: client.indices.put_mapping(index=name, body=body))


def _turn_alias(connection: Connection, name: str) -> None:
    """One atomic step: readers see the old index or the new one."""
    alias = connection.address.name
    actions: list[dict[str, object]] = [{"add": {"index": name, "alias": alias}}]
    for old in _behind_alias(connection):
        if old != name:
            actions.append({"remove_index": {"index": old}})
    body = {"actions": actions}
    connection.ask(lambda client: client.indices.update_aliases(body=body))


def _behind_alias(connection: Connection) -> list[str]:
    """The indexes that the alias stands for; none where it is not there."""

    def ask(client: OpenSearch) -> list[str]:
        try:
            return list(client.indices.get_alias(name=connection.address.name))
        except NotFoundError:
            return []

    return connection.ask(ask)


def _check_free(connection: Connection) -> None:
    """Raises ValueError where something that we did not build has the name."""
    address = connection.address

    def ask(client: OpenSearch) -> Mapping[str, Any]:
        try:
            return client.indices.get_mapping(index=address.name)
        except NotFoundError:
            return {}

    for name, held in connection.ask(ask).items():
        ours = held.get("mappings", {}).get("_meta", {}).get(META, {}).get("format") == FORMAT["format"]
        if name == address.name or not ours:
            raise ValueError(f"{address.locator}: {name!r} there is something else than our index; choose another name")


def _remove_leftovers(connection: Connection) -> None:
    """Delete the new indexes of builds for this alias that died on this machine."""
    pattern = f"{connection.address.name}-*"
    found: Mapping[str, Any] = connection.ask(lambda client: client.indices.get_mapping(index=pattern))
    for name, held in found.items():
        notes = held.get("mappings", {}).get("_meta", {}).get(META, {})
        builder = notes.get("builder")
        ours = notes.get("alias") == connection.address.name
        if ours and builder and builder["host"] == host() and not alive(builder["pid"]):
            _delete(connection, name)


def _delete(connection: Connection, name: str) -> None:
    connection.ask(lambda client: client.indices.delete(index=name))
