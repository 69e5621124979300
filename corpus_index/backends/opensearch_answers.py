"""From OpenSearch's answers to ours: whole results only, mails decoded once, the snippets of the embedded index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from corpus_index.backends.base import Hit, IndexUnavailable, QueryRejected, SearchResult
from corpus_index.backends.loaded import Loaded, Remembered
from corpus_index.backends.opensearch_client import Address, rebuild_hint
from corpus_index.backends.opensearch_mapping import decoded
from corpus_index.backends.opensearch_query import TERMINATE_AFTER, Compiled
from corpus_index.backends.snippets import Snippeter
from corpus_index.backends.words import Words
from corpus_index.document import Document
from corpus_index.scope import MailScope

Answer = Mapping[str, Any]


class Reader:
    """Reads the answers about one alias."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.words = Words()
        self._remembered = Remembered()

    def result(self, answer: Answer, compiled: Compiled, snippet_chars: int) -> SearchResult:
        """Raises IndexUnavailable, QueryRejected."""
        found = [(round(hit["sort"][0], 5) if compiled.scored else 0.0, self._mail(hit)) for hit in self.hits(answer)]
        # Scores are compared as they are shown, as in the embedded index.
        found.sort(key=lambda pair: (-pair[0], pair[1].document.id))
        total = cast(int, answer["hits"]["total"]["value"])
        if snippet_chars <= 0:
            return SearchResult(tuple(Hit(mail.document, score, "") for score, mail in found), total)
        snippeter = Snippeter(compiled.stems, self.words.stem)
        hits = (Hit(mail.document, score, *snippeter.cut(mail.folded(), snippet_chars)) for score, mail in found)
        return SearchResult(tuple(hits), total)

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
            raise IndexUnavailable(f"{where} gave an answer that is not a search result ({error!r})") from error

    def _mail(self, hit: Answer) -> Loaded:
        # By the index behind the alias: it is written once, and a rebuild has another name.
        try:
            return self._remembered.get((hit["_index"], hit["_id"]), lambda: decoded(hit["_source"]))
        except (KeyError, TypeError, ValueError) as error:
            raise IndexUnavailable(
                f"{self.address.locator} holds something else than mails ({error!r}); {rebuild_hint(self.address)}"
            ) from error
