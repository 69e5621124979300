"""How alike the two backends rank: the overlap of their first ten hits, and why the worst queries differ.

    python benchmarks/search_parity.py --opensearch http://127.0.0.1:9200
    python benchmarks/search_parity.py --opensearch http://127.0.0.1:9200 --source maildir:enron_mail.tar.gz

Both backends are built from the same mails. The words of a query come from one random mail. Overlap is the share of
common mails among the first ten (of the longer list where a query has fewer hits).
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from opensearch_node import random_queries, temporary_index
from rich.console import Console
from rich.table import Table

from corpus_index.backends import open_index, open_memory_index, open_writer
from corpus_index.backends.base import SearchIndex, SearchResult
from corpus_index.pipeline import prepare
from corpus_index.query import KeywordQuery

LIMIT = 10


@dataclass(frozen=True)
class Compared:
    words: tuple[str, ...]
    embedded: SearchResult
    opensearch: SearchResult

    @property
    def overlap(self) -> float:
        ours, theirs = ids(self.embedded), ids(self.opensearch)
        return len(set(ours) & set(theirs)) / max(len(ours), len(theirs)) if ours or theirs else 1.0

    @property
    def same_order(self) -> bool:
        return ids(self.embedded) == ids(self.opensearch)

    @property
    def score_gap(self) -> float:
        """The largest difference of scores of a mail that both show, as a share of the score."""
        theirs = {hit.document.id: hit.score for hit in self.opensearch.hits}
        shared = [(hit.score, theirs[hit.document.id]) for hit in self.embedded.hits if hit.document.id in theirs]
        return max((abs(ours - other) / max(ours, other) for ours, other in shared), default=0.0)


def ids(result: SearchResult) -> list[str]:
    return [hit.document.id for hit in result.hits]


def compare(embedded: SearchIndex, opensearch: SearchIndex, queries: Sequence[Sequence[str]]) -> list[Compared]:
    compared: list[Compared] = []
    for words in queries:
        query = KeywordQuery(keywords=tuple(words), limit=LIMIT)
        results = (index.search(query, snippet_chars=0) for index in (embedded, opensearch))
        compared.append(Compared(tuple(words), *results))
    return compared


def reason(one: Compared, embedded: SearchIndex, opensearch: SearchIndex) -> str:
    """Why the hits differ: a word that the engines find in different mails, or scores that lie close together."""
    words: list[str] = []
    for word in one.words:
        query = KeywordQuery(keywords=(word,), limit=1)
        ours, theirs = (index.search(query, snippet_chars=0).total for index in (embedded, opensearch))
        if ours != theirs:
            words.append(f"{word!r} is in {ours} mails here, {theirs} there")
    if words:
        return "; ".join(words)
    if one.score_gap > 1e-4:
        return f"same matches, scores up to {one.score_gap:.2%} apart"
    return "same matches, same scores" if one.same_order else "same matches, ties or scores that differ in rounding"


def report(console: Console, title: str, compared: list[Compared], indexes: tuple[SearchIndex, SearchIndex]) -> None:
    overlaps = [one.overlap for one in compared]
    table = Table(title=title)
    for column in ("queries", "mean overlap", "lowest", "same ten, same order", "same total", "largest score gap"):
        table.add_column(column, justify="right")
    table.add_row(
        f"{len(compared)}",
        f"{statistics.mean(overlaps):.4f}",
        f"{min(overlaps):.2f}",
        f"{statistics.mean(one.same_order for one in compared):.1%}",
        f"{statistics.mean(one.embedded.total == one.opensearch.total for one in compared):.1%}",
        f"{max(one.score_gap for one in compared):.2%}",
    )
    console.print(table)
    worst = sorted(compared, key=lambda one: (one.overlap, one.same_order))[:10]
    for one in worst:
        if one.overlap == 1.0 and one.same_order:
            continue
        console.print(f"\n[bold]{' '.join(one.words)}[/bold]: overlap {one.overlap:.2f}; {reason(one, *indexes)}")
        side = Table("place", "embedded", "score", "OpenSearch", "score", box=None)
        rows = [
            [(hit.document.id, f"{hit.score:.4f}") for hit in found.hits] for found in (one.embedded, one.opensearch)
        ]
        for place in range(max(map(len, rows))):
            left, right = ((found[place] if place < len(found) else ("", "")) for found in rows)
            side.add_row(str(place + 1), *left, *right)
        console.print(side)


def main() -> None:
    parser = argparse.ArgumentParser(description="Overlap of the first ten hits, embedded against OpenSearch.")
    parser.add_argument("--opensearch", required=True, metavar="URL")
    parser.add_argument("--source", action="append", help="such as maildir:PATH; may be given again (company:seed=7)")
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    console = Console(highlight=False)
    for source in options.source or ["company:seed=7"]:
        mails = list(prepare(source)[0])
        with temporary_index(options.opensearch) as locator:
            open_writer(locator).build(mails)
            indexes = open_memory_index(mails), open_index(locator)
            compared = compare(*indexes, random_queries(mails, options.queries, options.seed))
            report(console, f"{source}: {len(mails):,} mails", compared, indexes)


if __name__ == "__main__":
    main()
