"""From OpenSearch's answers to ours: whole results only, mails decoded once, the snippets of the embedded index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import orjson

from corpus_index.backends.base import Hit, IndexUnavailable, QueryRejected, SearchResult
from corpus_index.backends.loaded import Loaded, Remembered
from corpus_index.backends.opensearch_client import SEARCH_TIMEOUT, Address, rebuild_hint
from corpus_index.backends.opensearch_mapping import decoded
from corpus_index.backends.opensearch_query import TERMINATE_AFTER, Compiled, Dsl, search_body
from corpus_index.backends.snippets import Snippeter
from corpus_index.backends.words import Words
from corpus_index.document import Document
from corpus_index.scope import MailScope

Answer = Mapping[str, Any]

Places = tuple[int, tuple[tuple[str, str, float], ...]]
"""How many match in all; index behind the alias, id and score of each hit."""

_MOST_RESULTS = 1_000  # that are held, with their mails


@dataclass(frozen=True)  # no slots: the key is kept
class Search:
    """One search, whoever asks."""

    compiled: Compiled
    limit: int
    snippet_chars: int

    def body(self, *, mails: bool = True) -> Dsl:
        # The node gives up a little before the client would: its answer says why.
        return search_body(self.compiled, self.limit, 0.9 * SEARCH_TIMEOUT, mails=mails)

    @cached_property
    def key(self) -> bytes:
        return orjson.dumps((self.compiled.query, self.compiled.scored, self.limit, self.snippet_chars))


class Reader:
    """Reads the answers about one alias.

    Eight Solvers of a group ask mostly the same. A search that was asked before is asked for ids alone; where they are
    those of last time, so is the result, for what an index holds under an id is written once. The node is asked every
    time, so a rebuild is seen at once.
    """

    def __init__(self, address: Address) -> None:
        self.address = address
        self.words = Words()
        self._remembered = Remembered()
        self._results: dict[bytes, tuple[Places, SearchResult]] = {}

    def asked(self, search: Search) -> bool:
        """Before, so that ids alone are likely to do."""
        return search.key in self._results

    def again(self, answer: Answer, search: Search) -> SearchResult | None:
        """Last time's result where ``answer``, which has ids alone, says that it is the same. Raises as ``result``."""
        places = self._places(answer, self.hits(answer), search)
        before, result = self._results.get(search.key, (None, None))
        return result if before == places else None

    def result(self, answer: Answer, search: Search) -> SearchResult:
        """Raises IndexUnavailable, QueryRejected."""
        hits = self.hits(answer)
        total, placed = places = self._places(answer, hits, search)
        found = [(score, self._mail(hit)) for hit, (_, _, score) in zip(hits, placed, strict=True)]
        # Scores are compared as they are shown, as in the embedded index.
        found.sort(key=lambda pair: (-pair[0], pair[1].document.id))
        if search.snippet_chars <= 0:
            shown = (Hit(mail.document, score, "") for score, mail in found)
        else:
            cut = Snippeter(search.compiled.stems, self.words.stem).cut
            shown = (Hit(mail.document, score, *cut(mail.folded(), search.snippet_chars)) for score, mail in found)
        result = SearchResult(tuple(shown), total)
        if len(self._results) >= _MOST_RESULTS:
            self._results.clear()
        self._results[search.key] = places, result
        return result

    def _places(self, answer: Answer, hits: Sequence[Answer], search: Search) -> Places:
        scored = search.compiled.scored
        try:
            total = cast(int, answer["hits"]["total"]["value"])
            return total, tuple((h["_index"], h["_id"], round(h["sort"][0], 5) if scored else 0.0) for h in hits)
        except (KeyError, TypeError, IndexError) as error:
            raise self._no_result(error) from error

    def document(self, answer: Answer, scopes: Sequence[MailScope]) -> Document | None:
        """The mail read. The node has filtered by the scopes; what it gives is checked all the same."""
        hits = self.hits(answer)
        mail = self._mail(hits[0]).document if hits else None
        return mail if mail and all(scope.allows(mail) for scope in scopes) else None

    def hits(self, answer: Answer) -> Sequence[Answer]:
        """The hits. Raises IndexUnavailable for a partial answer, QueryRejected where the query is too broad."""
        where = self.address.locator
        try:
            if answer["timed_out"]:
                raise IndexUnavailable(f"{where} could not answer in time; it is overloaded, or its disk is slow")
            if answer["_shards"]["failed"]:
                raise IndexUnavailable(f"{where}: a shard could not answer; look at the cluster's health")
            if answer.get("terminated_early"):
                raise QueryRejected(f"more than {TERMINATE_AFTER:,} mails match; add a word to must, or a filter")
            return cast("Sequence[Answer]", answer["hits"]["hits"])
        except (KeyError, TypeError) as error:
            raise self._no_result(error) from error

    def _no_result(self, error: Exception) -> IndexUnavailable:
        return IndexUnavailable(f"{self.address.locator} gave an answer that is not a search result ({error!r})")

    def _mail(self, hit: Answer) -> Loaded:
        # By the index behind the alias: it is written once, and a rebuild has another name.
        try:
            return self._remembered.get((hit["_index"], hit["_id"]), lambda: decoded(hit["_source"]))
        except (KeyError, TypeError, ValueError) as error:
            raise IndexUnavailable(
                f"{self.address.locator} holds something else than mails ({error!r}); {rebuild_hint(self.address)}"
            ) from error
