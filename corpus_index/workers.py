"""Parsing in worker processes: bounded, in order, and without touching the caller's main module.

``multiprocessing`` would import the caller's script again in every worker (and with it torch), or copy a process that
already runs threads. A worker here is a fresh interpreter on this module, fed over a pipe.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from pathlib import Path
from queue import SimpleQueue
from typing import BinaryIO, cast

from corpus_index.pipes import receive, send
from corpus_index.prepared import Prepared, prepare_item
from corpus_index.sources.items import Item, RawMail, Unread

_CHUNK_ITEMS = 200
_CHUNK_BYTES = 1_000_000
# Below this a pool costs more to start than it saves.
_POOL_FROM = 2_000

Chunk = list[Item]
Answer = list[Prepared | Unread]


def prepare_items(items: Iterable[Item], workers: int | None) -> Iterator[Prepared | Unread]:
    """``prepare_item`` of each item, in order. ``workers``: processes; 0 none; None one a core for long sources.

    At most two chunks a worker (each 200 messages or 1 MB) are in flight, so memory does not grow with the source.
    """
    source = iter(items)
    if workers is None:
        head = list(_first(source))
        source = chain(head, source)
        workers = min(os.cpu_count() or 1, 8) if len(head) >= _POOL_FROM else 0
    yield from _pooled(source, workers) if workers else map(prepare_item, source)


def _first(source: Iterator[Item]) -> Iterator[Item]:
    """Up to a pool's worth of items, or 16 MB of them."""
    size = 0
    for item in islice(source, _POOL_FROM):
        yield item
        size += len(item.data) if isinstance(item, RawMail) else 0
        if size > 16 * _CHUNK_BYTES:
            return


def chunks(source: Iterable[Item]) -> Iterator[Chunk]:
    """Lists of at most 200 messages, or of the messages that first pass 1 MB together."""
    chunk: Chunk = []
    size = 0
    for item in source:
        chunk.append(item)
        size += len(item.data) if isinstance(item, RawMail) else 0
        if len(chunk) >= _CHUNK_ITEMS or size >= _CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _pooled(source: Iterator[Item], count: int) -> Iterator[Prepared | Unread]:
    workers = [_Worker() for _ in range(count)]
    idle: SimpleQueue[_Worker] = SimpleQueue()
    for worker in workers:
        idle.put(worker)

    def run(chunk: Chunk) -> Answer:
        worker = idle.get()
        try:
            return worker.answer(chunk)
        finally:
            idle.put(worker)

    pending: deque[Future[Answer]] = deque()
    threads = ThreadPoolExecutor(count, thread_name_prefix="parse")
    try:
        for chunk in chunks(source):
            pending.append(threads.submit(run, chunk))
            if len(pending) >= 2 * count:
                yield from pending.popleft().result()
        while pending:
            yield from pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()
        for worker in workers:
            worker.close()
        threads.shutdown()


class _Worker:
    """One child process. ``answer`` writes a chunk and waits for its result, so neither pipe can fill up for good."""

    def __init__(self) -> None:
        root = str(Path(__file__).resolve().parents[1])
        path = os.pathsep.join(item for item in (root, os.environ.get("PYTHONPATH", "")) if item)
        # No thread pools of BLAS in a process that only parses text.
        environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "corpus_index.workers"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )

    def answer(self, chunk: Chunk) -> Answer:
        """Raises RuntimeError where the process has died."""
        to_child, from_child = cast("BinaryIO", self._process.stdin), cast("BinaryIO", self._process.stdout)
        try:
            send(to_child, chunk)
            reply = receive(from_child)
        except (OSError, ValueError) as error:
            raise RuntimeError(self._died()) from error
        if reply is None:
            raise RuntimeError(self._died())
        return cast("Answer", reply)

    def _died(self) -> str:
        return (
            f"a parsing process ended early (exit code {self._process.poll()}; -9 is often too little memory). "
            f"Run again with workers=0 to parse in this process"
        )

    def close(self) -> None:
        """End the process, busy or not."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:  # unsent bytes of a chunk nobody waits for
                    continue


def _serve() -> None:
    """The child's loop: chunk in, result out, until the parent closes the pipe."""
    gc.set_threshold(50_000)  # parsing makes hardly any cycles
    pipe_in, pipe_out = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # a stray print must not end up between two results
    while (chunk := receive(pipe_in)) is not None:
        send(pipe_out, [prepare_item(item) for item in cast("Chunk", chunk)])


if __name__ == "__main__":
    _serve()
