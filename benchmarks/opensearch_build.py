"""Documents a second into OpenSearch: our whole build against opensearch-py's bulk helpers, same mails, one run.

    python benchmarks/opensearch_build.py --opensearch http://127.0.0.1:9200 --source maildir:enron_mail.tar.gz

All sides write the same parsed mails into an index with the same mapping, with refresh off while writing and a refresh
at the end. The helpers get the mails as dictionaries, ready to send; our build makes these itself, checks the ids,
counts what arrived and turns the alias. The sides take turns; the fastest of ``--repeat`` runs counts.
"""

from __future__ import annotations

import argparse
import os
import time
import uuid
from collections.abc import Callable, Sequence

from opensearch_node import temporary_index
from opensearchpy import JSONSerializer, OpenSearch, helpers
from rich.console import Console
from rich.table import Table

from corpus_index.backends import open_writer
from corpus_index.backends.opensearch_client import BUILD_TIMEOUT, client_options, parse_address
from corpus_index.backends.opensearch_mapping import FORMAT, Layout, encoded, index_body
from corpus_index.backends.opensearch_writer import CHUNK_BYTES, CHUNK_DOCUMENTS, THREADS
from corpus_index.document import Document
from corpus_index.pipeline import prepare

Source = dict[str, object]


def with_helper(locator: str, sources: Sequence[Source], *, parallel: bool) -> None:
    """What one would write with the library alone."""
    address = parse_address(locator)
    name = f"{address.name}-{uuid.uuid4().hex[:8]}"
    plain = client_options(address) | {"serializer": JSONSerializer()}  # as the library comes
    client = OpenSearch(**plain, pool_maxsize=THREADS, timeout=BUILD_TIMEOUT)
    major = int(client.info()["version"]["number"].partition(".")[0])
    client.indices.create(index=name, body=index_body(Layout(), major, FORMAT))
    actions = ({"_index": name, "_id": source["id"], "_source": source} for source in sources)
    sizes = {"chunk_size": CHUNK_DOCUMENTS, "max_chunk_bytes": CHUNK_BYTES}
    if parallel:
        for _ in helpers.parallel_bulk(client, actions, thread_count=THREADS, **sizes):
            pass
    else:
        helpers.bulk(client, actions, **sizes)
    client.indices.refresh(index=name)
    client.indices.delete(index=name)
    client.close()


def measure(locator: str, mails: Sequence[Document], repeat: int) -> dict[str, tuple[float, float]]:
    """(wall, CPU of this process) in seconds of each side's fastest run."""
    sources = [encoded(mail) for mail in mails]
    sides: dict[str, Callable[[], object]] = {
        "helpers.bulk": lambda: with_helper(locator, sources, parallel=False),
        "helpers.parallel_bulk": lambda: with_helper(locator, sources, parallel=True),
        "our build": lambda: open_writer(locator).build(mails),
    }
    best: dict[str, tuple[float, float]] = {}
    for _ in range(repeat):
        for name, run in sides.items():
            wall, cpu = time.perf_counter(), time.process_time()
            run()
            taken = time.perf_counter() - wall, time.process_time() - cpu
            best[name] = min(best.get(name, taken), taken)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description="Documents a second into OpenSearch, against the library's helpers.")
    parser.add_argument("--opensearch", required=True, metavar="URL")
    parser.add_argument("--source", default="company:seed=7", help="what to build (%(default)s)")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--limit", type=int, help="only the first mails")
    options = parser.parse_args()
    mails = list(prepare(options.source)[0])[: options.limit]
    with temporary_index(options.opensearch) as locator:
        best = measure(locator, mails, options.repeat)
        stats = open_writer(locator).build(mails)
    table = Table(title=f"{len(mails):,} mails of {options.source}, {os.cpu_count()} cores for client and node")
    for column in ("", "seconds", "mails/s", "client CPU s", "of the faster helper"):
        table.add_column(column, justify="right" if column else "left")
    fastest = min(wall for name, (wall, _) in best.items() if name.startswith("helpers"))
    for name, (wall, cpu) in best.items():
        table.add_row(name, f"{wall:.2f}", f"{len(mails) / wall:,.0f}", f"{cpu:.2f}", f"{fastest / wall:.2f}")
    console = Console()
    console.print(table)
    console.print(
        f"{stats.bytes_on_disk / 1e6:.1f} MB in the index, {stats.bytes_on_disk / len(mails):,.0f} bytes a mail"
    )


if __name__ == "__main__":
    main()
