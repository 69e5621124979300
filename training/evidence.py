"""The mails that the checks of a step look at, read with the tools' retries."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from corpus_index.backends.base import IndexUnavailable, QueryRejected
from corpus_index.document import Document, encodable
from corpus_index.query import MAX_LIMIT, MAX_TEXT, QueryError, parse_query
from corpus_index.retries import RetrySettings, retried
from corpus_index.scope import MailScope
from training.game import Board

T = TypeVar("T")


class EvidenceDesk:
    """One step's access. Once retries were in vain the step's other questions are given up unasked: one after the
    other, they would wait for hours. Every method raises IndexUnavailable then."""

    def __init__(self, board: Board, patience: RetrySettings) -> None:
        self._board = board
        self._patience = patience
        self._gone: IndexUnavailable | None = None

    def reader(self, scope: MailScope | None) -> Callable[[str], Document | None]:
        """Reads a mail by id as a task of this ``scope`` may see it."""
        return lambda mail_id: self._asked(lambda: self._board.read(mail_id, self._patience, scope))

    def hits(self, text: str, count: int, scope: MailScope | None) -> list[Document]:
        """The best ``count`` mails (at most 50) for the words of ``text``; none where the engine cannot search it."""
        if not count:
            return []
        index = self._board.index if scope is None else self._board.index.within(scope)
        words = encodable(text).strip()[:MAX_TEXT]
        try:
            query = parse_query("keyword", {"keywords": words, "limit": min(count, MAX_LIMIT)})
            found = self._asked(lambda: retried(lambda: index.search(query, snippet_chars=0), self._patience))
        except (QueryError, QueryRejected):
            return []
        return [hit.document for hit in found.hits]

    def _asked(self, ask: Callable[[], T]) -> T:
        if self._gone is not None:
            raise IndexUnavailable(str(self._gone)) from self._gone
        try:
            return ask()
        except IndexUnavailable as fault:
            self._gone = fault
            raise
