"""How long a tool search on OpenSearch takes at 1, 32 and 256 episodes at once, against the bare asyncio client.

    python benchmarks/opensearch_latency.py --opensearch http://127.0.0.1:9200
    python benchmarks/opensearch_latency.py --index opensearch:http://127.0.0.1:9200/enron

Both sides send the same request body through a client with the same number of connections and parse the same answer;
ours also reads the model's call, compiles the query, cuts snippets and writes the text the model reads. The sides take
turns in short rounds, and no round asks what another asked. A time is that of one call as its episode sees it, waiting
for a free connection included.

``--group`` says how many episodes ask each query: 1, all different; 8, as the rollouts of a group do, who mostly search
for the same. What was asked before is asked for ids alone by ours.

Where there are more episodes than connections, how they wait decides the median. The bare client hands a connection to
whoever asks when one is free, mostly the episode that has just given it back, and lets others starve; ours serves
them in the order in which they asked. The bare client behind the same queue is therefore a side of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from itertools import chain

from opensearch_node import random_queries, temporary_index
from opensearchpy import AsyncOpenSearch, JSONSerializer
from rich.console import Console
from rich.table import Table

from corpus_index.backends import open_index, open_writer
from corpus_index.backends.opensearch_client import POOL, SEARCH_TIMEOUT, client_options, parse_address
from corpus_index.backends.opensearch_query import compile_query, search_body
from corpus_index.backends.words import Words
from corpus_index.document import Document
from corpus_index.pipeline import prepare
from corpus_index.query import parse_query
from environments.protocol import ToolCall
from environments.tools import ToolBox, ToolSettings

LIMIT = 10
BARE, IN_TURN, OURS = "bare client", "bare client, in turn", "tool search"

Ask = Callable[[list[str]], Awaitable[object]]


async def episodes(ask: Ask, queries: Sequence[list[str]], concurrent: int) -> tuple[list[float], float]:
    """(seconds of each call, seconds in all) of ``queries`` shared out over ``concurrent`` episodes."""
    seconds: list[float] = []

    async def episode(own: Sequence[list[str]]) -> None:
        for words in own:
            began = time.perf_counter()
            await ask(words)
            seconds.append(time.perf_counter() - began)

    began = time.perf_counter()
    await asyncio.gather(*(episode(queries[start::concurrent]) for start in range(concurrent)))
    return seconds, time.perf_counter() - began


async def measure(
    locator: str, rounds: Sequence[Sequence[list[str]]], level: int
) -> dict[str, tuple[list[float], float]]:
    """By side: seconds of all calls, and seconds in all, of ``level`` episodes over the rounds after the first, which
    warms up."""
    address, words = parse_address(locator), Words()
    index = open_index(locator)
    tools = ToolBox(index, ToolSettings(max_hits=LIMIT))
    plain = client_options(address) | {"serializer": JSONSerializer()}  # as the library comes
    client = AsyncOpenSearch(**plain, maxsize=POOL, timeout=SEARCH_TIMEOUT)
    places = asyncio.Semaphore(POOL)
    bodies: dict[tuple[str, ...], dict[str, object]] = {}
    for own in chain.from_iterable(rounds):
        arguments = {"keywords": own, "limit": LIMIT, "complete_first": tools.settings.complete_first}
        compiled = compile_query(parse_query("keyword", arguments), words)
        bodies[tuple(own)] = search_body(compiled, LIMIT, SEARCH_TIMEOUT)

    async def bare(own: list[str]) -> object:
        return await client.search(index=address.name, body=bodies[tuple(own)])

    async def in_turn(own: list[str]) -> object:
        async with places:
            return await bare(own)

    async def ours(own: list[str]) -> object:
        outcome = await tools.arun(ToolCall(name="search_keyword", arguments={"keywords": own}))
        assert not outcome.error, outcome.error
        return outcome

    sides: dict[str, Ask] = {BARE: bare, IN_TURN: in_turn, OURS: ours}
    names = list(sides)
    found: dict[str, tuple[list[float], float]] = {name: ([], 0.0) for name in sides}
    for number, queries in enumerate(rounds):
        for name in (*names[number % 3 :], *names[: number % 3]):
            gc.collect()
            seconds, wall = await episodes(sides[name], queries, level)
            if number:
                before, total = found[name]
                found[name] = (before + seconds, total + wall)
    await client.close()
    await tools.aclose()
    index.close()
    return found


def streams(mails: Sequence[Document], options: argparse.Namespace, place: int) -> list[list[list[str]]]:
    """The queries of every round, the one to warm up first; those of a group one after the other, all others differ."""
    each = options.queries // options.group
    drawn = random_queries(mails, 2 * each * (options.rounds + 1), options.seed + 1000 * place)
    different = list({frozenset(own): own for own in drawn}.values())[: each * (options.rounds + 1)]
    rounds = [different[start : start + each] for start in range(0, len(different), each)]
    return [[own for own in part for _ in range(options.group)] for part in rounds]


def report(found: dict[int, dict[str, tuple[list[float], float]]], title: str) -> Table:
    table = Table(title=title)
    for column in ("episodes", "", "p50 ms", "p95 ms", "p99 ms", "searches/s", "rate ratio", "p50 ratio", "in turn"):
        table.add_column(column, justify="right" if column else "left")
    for level, sides in found.items():
        medians = [statistics.median(sides[name][0]) for name in (BARE, IN_TURN)]
        rate = len(sides[BARE][0]) / sides[BARE][1]
        for name, (seconds, wall) in sides.items():
            cuts = statistics.quantiles(seconds, n=100)
            cells = [f"{cuts[at - 1] * 1000:,.1f}" for at in (50, 95, 99)]
            own = len(seconds) / wall
            ratios = [f"{statistics.median(seconds) / median:.2f}" for median in medians]
            table.add_row(str(level), name, *cells, f"{own:,.0f}", f"{own / rate:.2f}", *ratios)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description="Latency of a tool search on OpenSearch over the bare client's.")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--opensearch", metavar="URL", help="build --source there, and delete it afterwards")
    where.add_argument("--index", metavar="LOCATOR", help="an index that is there: opensearch:URL/NAME")
    parser.add_argument("--source", default="company:seed=7", help="(%(default)s)")
    parser.add_argument("--queries", type=int, default=512, help="of each side and round (%(default)s)")
    parser.add_argument("--group", type=int, default=1, help="episodes that ask the same (%(default)s)")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--episodes", type=int, nargs="+", default=[1, 32, 256])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with ExitStack() as stack:
        if options.index:
            locator, index = options.index, open_index(options.index)
            ids = list(index.ids())
            step = max(1, len(ids) // 2000)
            mails = [mail for mail in map(index.read, ids[::step]) if mail]
            total = len(ids)
            index.close()
        else:
            locator = stack.enter_context(temporary_index(options.opensearch))
            mails = list(prepare(options.source)[0])
            total = open_writer(locator).build(mails).documents
        # Every level has rounds of its own and an index opened anew, so that nothing was asked before.
        found = {
            level: asyncio.run(measure(locator, streams(mails, options, place), level))
            for place, level in enumerate(options.episodes)
        }
    asked = "all different" if options.group == 1 else f"each by {options.group} episodes"
    title = (
        f"{total:,} mails, {LIMIT} hits with snippets, {POOL} connections, {options.queries * options.rounds:,} calls, "
        f"{asked}"
    )
    Console(width=120).print(report(found, title))


if __name__ == "__main__":
    main()
