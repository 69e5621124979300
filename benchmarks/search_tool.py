"""How much the way through our index and tools costs over a raw tantivy query. Needs no GPU and no server.

    python benchmarks/search_tool.py                              # a synthetic company, built for the occasion
    python benchmarks/search_tool.py --index embedded:PATH        # any index

Every query is asked in every way before the next one comes, in changing order, so that a busy machine slows all ways
alike. The words of a query come from the subject of a random mail. Ratios stand against tantivy fetching the stored
mails, and against tantivy giving what the tool gives: the mails and a snippet of each.
"""

from __future__ import annotations

import argparse
import gc
import random
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import tantivy
from rich.console import Console
from rich.table import Table

from corpus_index.backends import open_index, open_writer
from corpus_index.backends.tantivy_query import SUBJECT_BOOST
from corpus_index.backends.words import analysers
from corpus_index.query import parse_query
from corpus_index.sources import open_source
from environments.protocol import ToolCall
from environments.tools import ToolBox, ToolSettings

LIMIT, SNIPPET = 10, 160
FIELDS = ["subject", "body"]
DOCUMENTS, SNIPPETS = "tantivy: search, mails", "tantivy: search, mails, snippets"

Way = Callable[[list[str]], object]


def raw_ways(path: Path) -> dict[str, Way]:
    """Tantivy alone, on the same files: its own query language, its own snippets."""
    index = tantivy.Index.open(str(path / "segments"))
    for name, analyser in analysers().items():
        index.register_tokenizer(name, analyser)
    index.reload()
    searcher, boosts = index.searcher(), {"subject": SUBJECT_BOOST}

    def search(words: list[str]) -> tuple[tantivy.Query, tantivy.SearchResult]:
        query = index.parse_query(" ".join(words), FIELDS, field_boosts=boosts)
        return query, searcher.search(query, LIMIT)

    def documents(words: list[str]) -> list[object]:
        return [searcher.doc(address).get_first("stored") for _, address in search(words)[1].hits]

    def snippets(words: list[str]) -> list[str]:
        query, result = search(words)
        generator = tantivy.SnippetGenerator.create(searcher, query, index.schema, "body")
        generator.set_max_num_chars(SNIPPET)
        texts: list[str] = []
        for _, address in result.hits:
            stored = searcher.doc(address).get_first("stored").decode("utf-8", "replace")
            texts.append(generator.snippet_from_doc(tantivy.Document(body=stored)).fragment())
        return texts

    return {"tantivy: search": search, DOCUMENTS: documents, SNIPPETS: snippets}


def our_ways(locator: str) -> dict[str, Way]:
    index = open_index(locator)
    tools = ToolBox(index, ToolSettings(max_hits=LIMIT, snippet_chars=SNIPPET))

    def plain(words: list[str]) -> object:
        return index.search(parse_query("keyword", {"keywords": words, "limit": LIMIT}), snippet_chars=0)

    def search(words: list[str]) -> object:
        return index.search(parse_query("keyword", {"keywords": words, "limit": LIMIT}), snippet_chars=SNIPPET)

    def tool(words: list[str]) -> object:
        outcome = tools.run(ToolCall(name="search_keyword", arguments={"keywords": words}))
        assert not outcome.error, outcome.error
        return outcome

    return {"index.search, no snippets": plain, "index.search": search, "tool call": tool}


def random_queries(locator: str, count: int, seed: int) -> list[list[str]]:
    index, rng = open_index(locator), random.Random(seed)
    ids, queries = list(index.ids()), list[list[str]]()
    while len(queries) < count:
        mail = index.read(rng.choice(ids))
        words = re.findall(r"[A-Za-z]{3,}", mail.subject.lower()) if mail else []
        if words:
            queries.append(rng.sample(words, min(len(words), rng.randint(1, 3))))
    return queries


def measure(ways: dict[str, Way], queries: Sequence[list[str]], seed: int) -> dict[str, list[float]]:
    """Seconds of every query by way, one call each after one warm-up round over all of them."""
    rng, order = random.Random(seed), list(ways)
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for warm in (True, False):
        for words in queries:
            rng.shuffle(order)
            for name in order:
                began = time.perf_counter()
                ways[name](words)
                if not warm:
                    seconds[name].append(time.perf_counter() - began)
    return seconds


def report(seconds: dict[str, list[float]], title: str) -> Table:
    table = Table(title=title)
    for heading in ("way", "median µs", "p95 µs", "÷ mails", "÷ snippets"):
        table.add_column(heading, justify="left" if heading == "way" else "right", no_wrap=True)
    documents, snippets = (statistics.median(seconds[name]) for name in (DOCUMENTS, SNIPPETS))
    for name, times in seconds.items():
        median, p95 = statistics.median(times), statistics.quantiles(times, n=20)[-1]
        ratios = (f"{median / documents:.2f}", f"{median / snippets:.2f}")
        table.add_row(name, f"{median * 1e6:,.0f}", f"{p95 * 1e6:,.0f}", *ratios)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description="Cost of a search through the tools over a raw tantivy query.")
    parser.add_argument("--index", help="embedded:PATH; without it a company is built")
    parser.add_argument("--source", default="company:seed=1", help="what to build without --index (%(default)s)")
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        locator = options.index
        if locator is None:
            locator = f"embedded:{folder}/index"
            open_writer(locator).build(open_source(options.source))
        mails = open_index(locator).stats().documents
        queries = random_queries(locator, options.queries, options.seed)
        ways = {**raw_ways(Path(locator.partition(":")[2])), **our_ways(locator)}
        gc.disable()
        seconds = measure(ways, queries, options.seed)
    title = f"{len(queries)} queries of 1 to 3 words, {LIMIT} hits, {mails:,} mails"
    Console().print(report(seconds, title))


if __name__ == "__main__":
    main()
