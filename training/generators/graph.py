"""Questions along sampled paths of the mail graph: the path fixes the hops, a writer finds the words."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from corpus_index.document import Document
from corpus_index.graph import MailGraph, MailPath
from training.generators.base import Attempt, CannotWrite, Draft, written

DRAWS = 50  # tries at a path before an attempt counts as one without


class Writer(Protocol):
    """May be shared by threads."""

    def write(self, path: MailPath, mails: Sequence[Document], rng: random.Random) -> Draft:
        """A question that needs all ``mails``, those of ``path`` in order. Raises CannotWrite, Unavailable."""
        ...


class GraphGenerator:
    name = "graph"

    def __init__(
        self,
        graph: MailGraph,
        read: Callable[[str], Document | None],
        writer: Writer,
        *,
        seed: int,
        per_round: int,
        threads: int = 1,
    ) -> None:
        """``threads`` write at once; ``read`` gives the mail of an id, or None."""
        self._graph = graph
        self._read = read
        self._writer = writer
        self._seed = seed
        self._per_round = per_round
        self._threads = threads

    def round(self, number: int, hops: int) -> list[Attempt]:
        def one(k: int) -> Draft | CannotWrite:
            return self._draft(hops, random.Random(f"{self._seed}/graph/{number}/{k}"))

        with ThreadPoolExecutor(self._threads, thread_name_prefix="writer") as pool:
            drafts = list(pool.map(one, range(self._per_round)))
        return [written(self.name, hops, draft) for draft in drafts]

    def _draft(self, hops: int, rng: random.Random) -> Draft | CannotWrite:
        path = next(filter(None, (self._graph.sample_path(hops, rng) for _ in range(DRAWS))), None)
        if path is None:
            return CannotWrite("no_path")
        mails = [mail for mail_id in path.mails if (mail := self._read(mail_id)) is not None]
        if len(mails) < len(path.mails):
            return CannotWrite("unreadable_mail")
        try:
            return self._writer.write(path, mails, rng)
        except CannotWrite as refusal:
            return refusal
