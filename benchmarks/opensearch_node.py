"""What the OpenSearch benchmarks share: an index of their own that is gone afterwards, and queries from mails."""

from __future__ import annotations

import random
import re
import uuid
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from corpus_index.backends.opensearch_client import Connection, parse_address
from corpus_index.document import Document

_WORD = re.compile(r"[A-Za-z]{3,}")


@contextmanager
def temporary_index(url: str) -> Generator[str]:
    """A locator under a new name; whatever is built there is deleted at the end."""
    locator = f"opensearch:{url.rstrip('/')}/futari-benchmark-{uuid.uuid4().hex[:8]}"
    connection = Connection(parse_address(locator))
    try:
        yield locator
    finally:
        name = connection.address.name
        # By its names: many clusters refuse to delete by pattern.
        for index in connection.ask(lambda client: client.indices.get(index=f"{name}*")):
            connection.ask(lambda client, index=index: client.indices.delete(index=index))
        connection.close()


def random_queries(mails: Sequence[Document], count: int, seed: int) -> list[list[str]]:
    """1 to 4 different words of one random mail each, in lower case."""
    rng, queries = random.Random(seed), list[list[str]]()
    while len(queries) < count:
        mail = rng.choice(mails)
        words = sorted({word.lower() for word in _WORD.findall(f"{mail.subject} {mail.body}")})
        if words:
            queries.append(rng.sample(words, min(len(words), rng.randint(1, 4))))
    return queries
