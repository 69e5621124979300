"""Reading ahead in a thread: decompression and disk waits pass while the caller works on what was read before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from queue import Full, Queue
from threading import Event, Thread
from typing import TypeVar

T = TypeVar("T")
_POLL_SECONDS = 0.1


def read_ahead(batches: Iterable[list[T]], depth: int = 2) -> Iterator[T]:
    """What the batches hold, in order; at most ``depth`` batches are read before they are asked for.

    One thread consumes ``batches`` and ends with this iterator. What it raises is raised here, after the items before.
    """
    ready: Queue[list[T] | BaseException | None] = Queue(depth)
    stop = Event()

    def put(value: list[T] | BaseException | None) -> None:
        while not stop.is_set():
            with suppress(Full):
                ready.put(value, timeout=_POLL_SECONDS)
                return

    def read() -> None:
        try:
            for batch in batches:
                put(batch)
                if stop.is_set():
                    return
            put(None)
        except BaseException as error:  # whatever it is, it belongs to the caller
            put(error)

    reader = Thread(target=read, name="read-ahead", daemon=True)
    reader.start()
    try:
        while (value := ready.get()) is not None:
            if isinstance(value, BaseException):
                raise value
            yield from value
    finally:
        stop.set()
        reader.join()
