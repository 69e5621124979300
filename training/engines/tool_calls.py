"""Tool calls that run while the model goes on decoding: one asyncio loop in a thread of its own.

Only an index with an asynchronous side is asked this way. The embedded one answers in-process, sooner than a hop to
another thread and back would take.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeAlias

from environments.episode import Episode, EpisodeState, Observation

Step: TypeAlias = tuple[Observation, EpisodeState]

_CLOSING_SECONDS = 5.0


class ToolCalls:
    """One rollout's calls. They end in any order; each is known by its ``key``."""

    def __init__(self, loop: asyncio.AbstractEventLoop, places: asyncio.Semaphore, episode: Episode) -> None:
        self._loop = loop
        self._places = places
        self._episode = episode
        self._ended: SimpleQueue[tuple[int, Future[Step]]] = SimpleQueue()
        self._running: set[Future[Step]] = set()

    def send(self, key: int, state: EpisodeState, text: str) -> None:
        """Start ``Episode.astep``; it waits for a place where too many calls are in flight."""
        future = asyncio.run_coroutine_threadsafe(self._step(state, text), self._loop)
        self._running.add(future)
        future.add_done_callback(lambda done: self._ended.put((key, done)))

    def ended(self, *, wait: bool) -> list[tuple[int, Step]]:
        """Keys and results of the calls that ended since the last look; ``wait``: at least one. Raises what a call
        raised, RuntimeError where one is waited for and none runs."""
        if wait and not self._running:
            raise RuntimeError("no call is in flight, so none can end")
        found: list[tuple[int, Step]] = []
        while (wait and not found) or not self._ended.empty():
            key, future = self._ended.get()
            self._running.discard(future)
            found.append((key, future.result()))
        return found

    def cancel(self) -> None:
        for future in list(self._running):
            future.cancel()

    async def _step(self, state: EpisodeState, text: str) -> Step:
        # The deadline of a call starts within its place: waiting for one is not the index's doing.
        async with self._places:
            return await self._episode.astep(state, text)


class ToolLoop:
    """The loop, its thread, and the bound on calls in flight. Connections stay open from one rollout to the next."""

    def __init__(self, max_concurrent: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._places = asyncio.Semaphore(max_concurrent)
        self._episodes: list[Episode] = []
        self._thread = Thread(target=self._loop.run_forever, name="tool calls", daemon=True)
        self._thread.start()

    @contextmanager
    def calls(self, episode: Episode) -> Generator[ToolCalls]:
        """The calls of one rollout; those still running when the block ends are cancelled."""
        if episode not in self._episodes:
            self._episodes.append(episode)
        calls = ToolCalls(self._loop, self._places, episode)
        try:
            yield calls
        finally:
            calls.cancel()

    def close(self) -> None:
        """Cancel what runs, close the connections, end the thread. Safe to call twice."""
        if not self._thread.is_alive():
            return
        # At exit nothing is left to do about a server that does not say goodbye.
        with suppress(Exception):
            self._run(self._shut()).result(_CLOSING_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSING_SECONDS)
        if not self._thread.is_alive():
            self._loop.close()

    def _run(self, work: Coroutine[Any, Any, None]) -> Future[None]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _shut(self) -> None:
        running = asyncio.all_tasks(self._loop) - {asyncio.current_task()}
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for episode in self._episodes:
            await episode.aclose()
