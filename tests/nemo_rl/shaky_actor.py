"""An actor whose index can be made to fail and to wait, for the tests of faults and of concurrency."""

from __future__ import annotations

from threading import Barrier
from typing import Any

import ray

from corpus_index.backends import open_index
from corpus_index.backends.base import IndexUnavailable
from environments.chat_format import ChatFormat
from environments.episode import Episode
from environments.nemo_rl import CONCURRENT_STEPS, SearchEnvConfig, SearchEnvironment
from environments.tools import ToolBox

OUTAGE = "outage"
"""A search for this word finds no index."""
TOGETHER = "together"
"""A search for this word waits until ``COMPANY`` of them run side by side, and fails where they never do."""
COMPANY = 4


class ShakyIndex:
    def __init__(self, locator: str) -> None:
        self._index = open_index(locator)
        self._barrier = Barrier(COMPANY)

    def search(self, query: Any, **options: Any) -> Any:
        words = str(query)
        if OUTAGE in words:
            raise IndexUnavailable("the index is away")
        if TOGETHER in words:
            self._barrier.wait(timeout=30)
        return self._index.search(query, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._index, name)


class ShakyEnvironment(SearchEnvironment):
    def _make_episode(self, config: SearchEnvConfig, chat: ChatFormat) -> Episode:
        index: Any = ShakyIndex(config.index)
        return Episode(ToolBox(index, config.tools, special_tokens=chat.special_tokens()), config.episode)


ShakyActor = ray.remote(max_concurrency=CONCURRENT_STEPS)(ShakyEnvironment)
